/* gt_speculation.c - speculation writes what plain decoding writes: the engine on a trained checkpoint (GPU_TEST_MODEL, or
 * tests/data/jargon-tiny), prompts recorded beside it, drafts by prompt lookup, by verify and by write-on-accept. The target is opened
 * with its own defaults and gdn_woa.
 *
 * On a GPU a row among four need not have the bits of a row alone (cuBLAS's products), and activations are bf16. A byte that is another
 * is therefore judged by plain decoding, fed with the bytes written: its logit there is at most 0.5 below the best, as the checkpoint's
 * README.md allows two ways to round. Such bytes are told as ties; without one the texts are the same. On the cpu target, in f32, none is
 * allowed. */
#include "engine.h"
#include "generate.h"
#include "gt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 64, TEXT = 256, SHORT_TEXT = 40, VOCAB = 256 };
static const size_t order[] = { 2, 1, 3, 0 }; /* a text whose drafts are right, then one whose drafts are wrong */
enum { SHORT_CASES = 2 };

typedef struct prompt {
    uint32_t tokens[MAX_PROMPT];
    uint64_t n;
} prompt;
typedef struct text {
    uint32_t tokens[TEXT];
    uint64_t n;
    gdn_generate_stats st;
} text;
typedef struct sums {
    double bytes, offered, accepted, verifies, rows4, same, ties, gap, least;
} sums;

static const char *model_dir(void) {
    const char *asked = getenv("GPU_TEST_MODEL");
    return asked && *asked ? asked : "tests/data/jargon-tiny";
}

static bool read_prompts(gt *t, prompt out[GT_N(order)]) {
    char path[512];
    json_error_t e;
    (void)snprintf(path, sizeof path, "%s/greedy.json", model_dir());
    json_t *doc = json_load_file(path, 0, &e);
    bool ok = gt_check(t, doc != NULL, "%.300s: %s", path, e.text);
    for (size_t i = 0; ok && i < GT_N(order); i++) {
        const json_t *p = json_object_get(json_array_get(json_object_get(doc, "cases"), order[i]), "prompt");
        const char *s = json_string_value(p);
        out[i].n = json_string_length(p);
        ok = gt_check(t, s && out[i].n && out[i].n <= MAX_PROMPT, "%.300s has no prompt %zu", path, order[i]);
        for (uint64_t k = 0; ok && k < out[i].n; k++) out[i].tokens[k] = (unsigned char)s[k];
    }
    json_decref(doc);
    return ok;
}

static bool keep(void *user, uint32_t token) {
    text *w = user;
    w->tokens[w->n++] = token;
    return true;
}
static bool write_text(gt *t, gdn_engine *e, const prompt *p, uint32_t drafts, uint64_t n, text *out) {
    char why[400] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_sampler s;
    if (!gt_check(t, gdn_sampler_init(&s, 0, 1, 0, VOCAB, &err) == GDN_OK && gdn_engine_reset(e, &err) == GDN_OK, "%s", why)) return false;
    const gdn_generate_options opt = { .n = n, .sampler = &s, .drafts = drafts, .token = keep, .user = out };
    out->n = 0;
    const gdn_status st = gdn_generate(e, p->tokens, p->n, &opt, &out->st, &err);
    gdn_sampler_free(&s);
    return gt_check(t, st == GDN_OK && out->n == n, "%llu of %llu bytes written: %s", (unsigned long long)out->n, (unsigned long long)n,
                    why);
}

/* Plain decoding fed with w: bytes that are not its best, and the worst of them below it. */
static bool judge(gt *t, gdn_engine *e, const prompt *p, const text *w, double *ties, double *gap) {
    float logits[VOCAB];
    char why[400] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_status st = gdn_engine_reset(e, &err);
    if (st == GDN_OK) st = gdn_engine_prefill(e, p->tokens, p->n, false, logits, &err);
    for (uint64_t i = 0; st == GDN_OK && i < w->n; i++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < VOCAB; k++)
            if (logits[k] > logits[best]) best = k;
        *ties += best != w->tokens[i];
        *gap = fmax(*gap, (double)logits[best] - (double)logits[w->tokens[i]]);
        if (i + 1 < w->n) st = gdn_engine_step(e, w->tokens[i], logits, &err);
    }
    return gt_check(t, st == GDN_OK, "%s", why);
}

static bool one_text(gt *t, gdn_engine *e, const prompt *p, uint64_t n, text *plain, text *spec, sums *s) {
    uint64_t same = 0;
    double ties = 0;
    if (!write_text(t, e, p, 0, n, plain) || !write_text(t, e, p, GDN_ENGINE_MAX_ROWS - 1, n, spec)) return false;
    while (same < n && plain->tokens[same] == spec->tokens[same]) same++;
    s->bytes += (double)n;
    s->same += (double)same;
    s->offered += (double)spec->st.proposed;
    s->accepted += (double)spec->st.accepted;
    s->verifies += (double)spec->st.verifies;
    s->rows4 += (double)spec->st.rows[4];
    s->least = fmin(s->least, (double)plain->st.least_gap);
    if (same == n) return true;
    if (!judge(t, e, p, spec, &ties, &s->gap)) return false;
    s->ties += ties;
    return gt_check(t, ties > 0, "byte %llu is another, though plain decoding has it as its best", (unsigned long long)same);
}

static void add_woa(void *user, const char *op, const gdn_route *route, uint64_t launches) {
    (void)route;
    if (strcmp(op, "verify_woa") == 0) *(double *)user += (double)launches;
}

static void all_texts(gt *t, gdn_engine *e, bool woa, const prompt *p) {
    const uint64_t n = t->brief ? SHORT_TEXT : TEXT;
    const double limit = gdn_engine_dtype(e) == GDN_F32 ? 0 : 0.5;
    const char *failed = NULL;
    double ties = 0, gap = 0, launched = 0;
    sums s = { .least = INFINITY };
    text *plain = gt_keep(t, sizeof *plain), *spec = gt_keep(t, sizeof *spec), *first = gt_keep(t, sizeof *first);
    for (size_t i = 0; i < (t->brief ? (size_t)SHORT_CASES : GT_N(order)); i++) {
        if (!one_text(t, e, &p[i], n, plain, spec, &s)) return;
        if (!i) *first = *plain;
    }
    gt_figure(t, "bytes", s.bytes);
    gt_figure(t, "same_before_a_tie", s.same);
    gt_figure(t, "ties", s.ties);
    gt_figure(t, "worst_tie", s.gap);
    gt_figure(t, "least_gap_of_plain", s.least);
    gt_figure(t, "offered", s.offered);
    gt_figure(t, "accepted", s.accepted);
    gt_figure(t, "verifies", s.verifies);
    (void)gt_check(t, s.gap <= limit, "a byte is %g below plain decoding's best", s.gap);
    (void)gt_check(t, s.accepted > 0 && s.accepted < s.offered && s.rows4 > 0, "%g of %g drafts accepted, %g verifies of four rows",
                   s.accepted, s.offered, s.rows4);
    (void)gt_check(t, gdn_engine_routes(e, add_woa, &launched) == GDN_OK && (launched > 0) == woa, "verify_woa was launched %g times",
                   launched);
    const uint64_t replays = gdn_engine_replays(e, &failed);
    gt_figure(t, "graph_replays", (double)replays);
    (void)gt_check(t, !failed && (replays > 0) == (t->clock != NULL), "%llu passes were replayed: %s", (unsigned long long)replays,
                   failed ? failed : "no capture failed");
    /* Controls: another byte is judged wrong, another prompt gives another text. */
    spec = first;
    (void)gt_check(t, memcmp(first->tokens, plain->tokens, n * sizeof *plain->tokens) != 0, "control: two prompts gave one text");
    spec->tokens[n / 2] ^= 1;
    if (judge(t, e, &p[0], spec, &ties, &gap))
        (void)gt_check(t, ties > 0 && gap > limit, "control: a changed byte was not noticed, %g from the best", gap);
}

static void speculate(gt *t, const char *target, bool woa) {
    char why[800] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_engine *e = NULL;
    static prompt p[GT_N(order)];
    if (!gt_begin(t, "speculation_%s_%s", woa ? "woa" : "verify", target)) return;
    gdn *g = gt_open(t, target, "gdn_woa", "1", NULL);
    const gdn_engine_options opt = { .target = g, .woa = woa };
    if (g && read_prompts(t, p)) {
        if (gdn_engine_load(model_dir(), &opt, &e, &err) == GDN_OK)
            all_texts(t, e, woa, p);
        else if (strstr(why, "no cuBLAS"))
            gt_skip(t, "%s", why);
        else
            gt_fail(t, "%s", why);
    }
    gdn_engine_free(e);
    gdn_close(g);
    gt_end(t);
}

void gt_test_speculation(gt *t) {
    if (getenv("GPU_TEST_NO_LENGTHS")) return; /* under a sanitizer: single kernels have to do */
    for (int woa = 0; woa < 2; woa++) speculate(t, t->target, woa);
    for (int woa = 0; woa < 2 && !t->brief && strcmp(t->target, "hopper") == 0; woa++) speculate(t, "gb10", woa);
}
