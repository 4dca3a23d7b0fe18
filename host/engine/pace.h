/* pace.h - whether the steps of one kind run in all threads or in one.
 *
 * A step is some twenty short parallel regions. On a free machine threads halve its time; beside another busy program each
 * region may wait a whole time slice for a thread that has no processor, and the step takes a hundred times longer than one
 * thread needs alone. Neither is known beforehand, so it is measured: a few steps alone, then in threads for as long as
 * they are cheaper, then alone again for a pause, which doubles each time that threads fail. Results do not depend on it. */
#ifndef GDN_ENGINE_PACE_H
#define GDN_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { GDN__PACE_FIRST = 4, GDN__PACE_PAUSE = 64, GDN__PACE_LONGEST = 4096, GDN__PACE_GOOD = 256 };

/* Zeroed to begin with. */
typedef struct gdn__pace {
    double alone, threads; /* what a step costs, s; 0: not known */
    double began;
    uint32_t left, pause, good; /* steps alone before the next try; the pause after it; steps in threads that went well */
    int limit;                  /* of the caller's threads while one step runs alone; 0: nothing was changed */
    bool threaded;
} gdn__pace;

/* Around a step, on the thread that launches it. step false: a smaller piece that goes the step's way but is not judged. */
void gdn__pace_begin(gdn__pace *p);
void gdn__pace_end(gdn__pace *p, bool step);
/* The decision alone: the step just done took so long. */
void gdn__pace_took(gdn__pace *p, double seconds);

#endif
