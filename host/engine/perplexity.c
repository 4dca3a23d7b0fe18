/* perplexity.c - how well a text is foreseen: exp of the mean of -ln p(token | those before it), from the second token on. */
#include "engine_internal.h"
#include "engine_text.h"
#include <math.h>
#include <stdlib.h>

enum { PIECE = 512 };

/* -ln of the softmax at `token`. */
static double surprise(const float *logits, uint32_t vocab, uint32_t token) {
    double top = (double)logits[0], sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if ((double)logits[i] > top) top = (double)logits[i];
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - top);
    return log(sum) - ((double)logits[token] - top);
}

gdn_status gdn_engine_perplexity(gdn_engine *e, const uint32_t *tokens, uint64_t n, double *out, gdn_text *err) {
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    if (n < 2) return gdn__engine_say(err, GDN_E_ARG, "a perplexity needs at least two tokens");
    float *logits = malloc((size_t)PIECE * vocab * sizeof *logits);
    if (!logits) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    double sum = 0;
    gdn_status s = gdn_engine_reset(e, err);
    for (uint64_t at = 0; s == GDN_OK && at < n; at += PIECE) {
        const uint64_t rows = n - at < PIECE ? n - at : PIECE;
        s = gdn_engine_prefill(e, tokens + at, rows, true, logits, err);
        for (uint64_t i = 0; s == GDN_OK && i < rows && at + i + 1 < n; i++) sum += surprise(logits + i * vocab, vocab, tokens[at + i + 1]);
        if (s == GDN_OK && e->progress && n > PIECE) e->progress(e->user, "text", at + rows, n);
    }
    free(logits);
    if (s == GDN_OK) s = gdn_engine_reset(e, err);
    if (s == GDN_OK) *out = exp(sum / (double)(n - 1));
    return s;
}
