/* held_text.c - the text on which it is told what quantising costs. In the manner of a hacker's dictionary, which the small model of the
 * tests knows. */
#include "generate_held.h"

const char gdn__held_text[] =
    ":spill-over: n.\n\n"
    "   The moment in a long night of debugging when the number of things one has to remember becomes larger than the number of things\n"
    "   that fit in one's head. From then on every value that is looked at drives another one out, and the program seems to get worse\n"
    "   with each test. The known cures are a sheet of paper and a bed. See also {stack overflow}, {thrash}.\n\n"
    ":warm cache: n.\n\n"
    "   1. Memory whose contents happen to be what the next measurement needs. 2. By extension, any reason why a demonstration works\n"
    "   well for its author and badly for everybody else. `It took two seconds on my machine.' `Yes, with a warm cache.' Old hands empty\n"
    "   it first, and then quote the slower figure. Compare {benchmark}, {handwave}.\n\n"
    ":off-by-none error: n.\n\n"
    "   A loop that is right, found after an hour of looking for the mistake in it. Usually the bug was in the other file.\n";
