/* sampler.h - the next token from a row of logits.
 *
 * temperature 0: the first largest logit. Otherwise softmax(logits / temperature), cut to the smallest set of most probable
 * tokens whose mass reaches top_p, and one draw of a splitmix64 stream a token: the same seed and logits give the same
 * tokens. Speculation draws in the same order, so that it gives the text of plain decoding. */
#ifndef GDN_ENGINE_SAMPLER_H
#define GDN_ENGINE_SAMPLER_H

#include "gdn_status.h"

typedef struct gdn_sampler {
    double temperature; /* 0: greedy          */
    double top_p;       /* (0, 1]; 1: no cut  */
    uint64_t rng;       /* the seed, then the state */
    uint32_t vocab;
    uint32_t pad_;
    struct gdn__candidate *work; /* vocab entries; NULL when greedy */
} gdn_sampler;

/* GDN_E_ARG for a temperature or top_p outside its range. */
gdn_status gdn_sampler_init(gdn_sampler *s, double temperature, double top_p, uint64_t seed, uint32_t vocab, gdn_text *err);
void gdn_sampler_free(gdn_sampler *s);
/* GDN_E_INTERNAL when a logit is not finite. gap (may be NULL): best minus second best logit. */
gdn_status gdn_sampler_next(gdn_sampler *s, const float *logits, uint32_t *token, float *gap);

#endif
