/* prompt_lookup.c - drafts from the text so far. */
#include "prompt_lookup.h"
#include <stddef.h>

/* How many tokens before `end` equal those before n, at most max_n. */
static uint32_t match_length(const uint32_t *text, uint64_t n, uint64_t end, uint32_t max_n) {
    uint32_t len = 0;
    while (len < max_n && len < end && text[end - 1 - len] == text[n - 1 - len]) len++;
    return len;
}

uint32_t gdn_lookup(const uint32_t *text, uint64_t n, uint32_t min_n, uint32_t max_n, uint32_t want, uint32_t *drafts, uint32_t *matched) {
    uint32_t best = 0;
    uint64_t from = 0; /* first token after the best match */
    for (uint64_t end = n ? n - 1 : 0; end > 0 && best < max_n; end--) {
        const uint32_t len = match_length(text, n, end, max_n);
        if (len > best) {
            best = len;
            from = end;
        }
    }
    if (matched) *matched = best;
    if (best < min_n || !best) return 0;
    for (uint32_t i = 0; i < want; i++) drafts[i] = from + i < n ? text[from + i] : drafts[from + i - n];
    return want;
}
