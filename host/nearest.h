/* nearest.h - "did you mean": the name closest to a word. Used by libgdn and by the command. */
#ifndef GDN_NEAREST_H
#define GDN_NEAREST_H

#include <stddef.h>

/* NULL when none of the n names is close. */
const char *gdn__nearest(const char *word, const char *const *names, size_t n);
/* The same, with at most `most` letters inserted, dropped or changed. */
const char *gdn__nearest_within(const char *word, const char *const *names, size_t n, size_t most);

#endif
