/* prompt_lookup.h - drafts from the text so far: what followed the longest earlier occurrence of its end.
 *
 * Of all places where the last n tokens (min_n <= n <= max_n) occurred before, the longest match wins, then the latest one.
 * A match that runs into the end goes on with its own drafts, so that a repeated token or phrase is continued. */
#ifndef GDN_ENGINE_PROMPT_LOOKUP_H
#define GDN_ENGINE_PROMPT_LOOKUP_H

#include <stdint.h>

enum { GDN_LOOKUP_MIN = 3, GDN_LOOKUP_MAX = 16 };

/* Writes at most `want` drafts and returns how many: want, or 0 without a match. matched (may be NULL): its length. */
uint32_t gdn_lookup(const uint32_t *text, uint64_t n, uint32_t min_n, uint32_t max_n, uint32_t want, uint32_t *drafts, uint32_t *matched);

#endif
