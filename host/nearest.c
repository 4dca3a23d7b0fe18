/* nearest.c - "did you mean", by edit distance. */
#include "nearest.h"

#include <stdint.h>
#include <string.h>

/* Levenshtein distance of two short words; what is longer than a row is far from everything. */
static size_t distance(const char *a, const char *b) {
    enum { ROW = 64 };
    size_t row[ROW];
    const size_t na = strlen(a), nb = strlen(b);
    if (na >= ROW || nb >= ROW) return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            if (substitute < best) best = substitute;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *gdn__nearest(const char *word, const char *const *names, size_t n) {
    return gdn__nearest_within(word, names, n, strlen(word) / 2); /* further away than half the word is no suggestion */
}

const char *gdn__nearest_within(const char *word, const char *const *names, size_t n, size_t most) {
    const char *best = NULL;
    size_t least = most + 1;
    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}
