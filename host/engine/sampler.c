/* sampler.c - greedy and top-p sampling. */
#include "sampler.h"
#include "engine_text.h"
#include <math.h>
#include <stdlib.h>

struct gdn__candidate {
    double p;
    uint32_t token;
    uint32_t pad_;
};

gdn_status gdn_sampler_init(gdn_sampler *s, double temperature, double top_p, uint64_t seed, uint32_t vocab, gdn_text *err) {
    *s = (gdn_sampler) { .temperature = temperature, .top_p = top_p, .rng = seed, .vocab = vocab };
    if (!(temperature >= 0 && temperature <= 100))
        return gdn__engine_say(err, GDN_E_ARG, "temperature is %g, must be 0 to 100", temperature);
    if (!(top_p > 0 && top_p <= 1)) return gdn__engine_say(err, GDN_E_ARG, "top_p is %g, must be above 0 and at most 1", top_p);
    if (!vocab) return gdn__engine_say(err, GDN_E_ARG, "vocabulary is empty");
    if (temperature > 0) {
        s->work = calloc(vocab, sizeof *s->work);
        if (!s->work) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    }
    return GDN_OK;
}

void gdn_sampler_free(gdn_sampler *s) {
    free(s->work);
    s->work = NULL;
}

static double uniform(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int by_probability(const void *pa, const void *pb) {
    const struct gdn__candidate *a = pa, *b = pb;
    if (a->p != b->p) return a->p > b->p ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static uint32_t draw(gdn_sampler *s, const float *logits, float best) {
    double sum = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        const double p = exp(((double)logits[i] - (double)best) / s->temperature);
        s->work[i] = (struct gdn__candidate) { p, i, 0 };
        sum += p;
    }
    qsort(s->work, s->vocab, sizeof *s->work, by_probability);
    double kept = 0;
    uint32_t n = 0;
    while (n < s->vocab && (n == 0 || kept < s->top_p * sum)) kept += s->work[n++].p;
    double u = uniform(&s->rng) * kept;
    for (uint32_t i = 0; i + 1 < n; i++) {
        u -= s->work[i].p;
        if (u < 0) return s->work[i].token;
    }
    return s->work[n - 1].token;
}

gdn_status gdn_sampler_next(gdn_sampler *s, const float *logits, uint32_t *token, float *gap) {
    uint32_t best = 0;
    float second = -INFINITY;
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (!isfinite(logits[i])) return GDN_E_INTERNAL;
        if (!i) continue;
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    if (gap) *gap = logits[best] - second;
    *token = s->temperature > 0 ? draw(s, logits, logits[best]) : best;
    return GDN_OK;
}
