/* generate.c - the writing loop, with drafts by prompt lookup. */
#include "generate.h"
#include "engine_text.h"
#include "prompt_lookup.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct writer {
    gdn_engine *e;
    const gdn_generate_options *opt;
    gdn_generate_stats *st;
    gdn_text *err;
    uint32_t *text; /* prompt and all that was written */
    uint64_t n;
    float *logits; /* one row for each row of a verify */
    bool stop;
} writer;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Samples from a row of logits and writes the token. */
static gdn_status emit(writer *w, const float *logits) {
    uint32_t token = 0;
    float gap = 0;
    const gdn_status s = gdn_sampler_next(w->opt->sampler, logits, &token, &gap);
    if (s != GDN_OK)
        return gdn__engine_say(w->err, s, "the logits after %llu tokens are not finite: the checkpoint's values overflow",
                               (unsigned long long)w->n);
    if (gap < w->st->least_gap) w->st->least_gap = gap;
    w->st->near_ties += gap < GDN_NEAR_TIE;
    w->text[w->n++] = token;
    w->st->generated++;
    if (w->opt->token && !w->opt->token(w->opt->user, token)) w->stop = true;
    return GDN_OK;
}

static bool done(const writer *w) {
    return w->stop || w->st->generated >= w->opt->n;
}

static gdn_status plain(writer *w) {
    w->st->steps++;
    const gdn_status s = gdn_engine_step(w->e, w->text[w->n - 1], w->logits, w->err);
    return s == GDN_OK ? emit(w, w->logits) : s;
}

static gdn_status speculate(writer *w, const uint32_t *drafts, uint32_t n) {
    const uint32_t vocab = gdn_engine_config(w->e)->vocab;
    uint32_t rows[GDN_ENGINE_MAX_ROWS], kept = 0;
    rows[0] = w->text[w->n - 1];
    memcpy(rows + 1, drafts, n * sizeof *drafts);
    gdn_status s = gdn_engine_verify(w->e, rows, n + 1, w->logits, w->err);
    w->st->verifies++;
    w->st->rows[n + 1]++;
    w->st->proposed += n;
    while (s == GDN_OK && kept <= n) {
        s = emit(w, w->logits + (uint64_t)kept * vocab);
        kept++;
        if (s != GDN_OK || done(w) || kept > n || w->text[w->n - 1] != drafts[kept - 1]) break;
        w->st->accepted++;
    }
    return s == GDN_OK ? gdn_engine_accept(w->e, kept, w->err) : s;
}

static gdn_status write_on(writer *w) {
    gdn_status s = GDN_OK;
    while (s == GDN_OK && !done(w)) {
        const uint64_t left = w->opt->n - w->st->generated; /* a verify of k drafts writes at most k + 1 tokens */
        const uint32_t want = left - 1 < w->opt->drafts ? (uint32_t)(left - 1) : w->opt->drafts;
        uint32_t drafts[GDN_ENGINE_MAX_ROWS];
        const uint32_t n = want ? gdn_lookup(w->text, w->n, GDN_LOOKUP_MIN, GDN_LOOKUP_MAX, want, drafts, NULL) : 0;
        s = n ? speculate(w, drafts, n) : plain(w);
    }
    return s;
}

static gdn_status run(writer *w, const uint32_t *prompt, uint64_t n_prompt) {
    memcpy(w->text, prompt, (size_t)n_prompt * sizeof *prompt);
    w->n = n_prompt;
    const double t0 = now();
    gdn_status s = gdn_engine_prefill(w->e, prompt, n_prompt, false, w->logits, w->err);
    const double t1 = now();
    w->st->prefill_seconds = t1 - t0;
    if (s == GDN_OK && w->opt->n) s = emit(w, w->logits);
    if (s == GDN_OK) s = write_on(w);
    w->st->decode_seconds = now() - t1;
    return s;
}

gdn_status gdn_generate(gdn_engine *e, const uint32_t *prompt, uint64_t n_prompt, const gdn_generate_options *opt,
                        gdn_generate_stats *stats, gdn_text *err) {
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    *stats = (gdn_generate_stats) { .prompt = n_prompt, .least_gap = INFINITY };
    if (!n_prompt) return gdn__engine_say(err, GDN_E_ARG, "the prompt is empty");
    if (opt->drafts >= GDN_ENGINE_MAX_ROWS)
        return gdn__engine_say(err, GDN_E_ARG, "%u drafts a verify, at most %d", opt->drafts, GDN_ENGINE_MAX_ROWS - 1);
    if (opt->sampler->vocab != vocab) return gdn__engine_say(err, GDN_E_ARG, "the sampler is for another vocabulary");
    if (n_prompt > UINT32_MAX || opt->n > UINT32_MAX) return gdn__engine_say(err, GDN_E_ARG, "too many tokens");
    writer w = { .e = e, .opt = opt, .st = stats, .err = err };
    w.text = malloc((size_t)(n_prompt + opt->n) * sizeof *w.text);
    w.logits = malloc((size_t)vocab * GDN_ENGINE_MAX_ROWS * sizeof *w.logits);
    const gdn_status s = w.text && w.logits ? run(&w, prompt, n_prompt) : gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    free(w.logits);
    free(w.text);
    return s;
}
