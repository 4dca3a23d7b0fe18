/* check_model.c - recorded text (check_replay.h) through a checkpoint: every byte is fed as recorded, and the best next one compared.
 *
 * Two passes a case: the prompt by prefill and then token by token through decode; and prompt and text in one prefill. Where
 * first_logits are recorded, those after the prompt must be near them: 1e-3 with f32 activations, 0.5 with bf16. Only the cases of
 * the dtype asked for are used. */
#include "check.h"
#include "check_replay.h"
#include "engine.h"
#include "engine_text.h"
#include "model_config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPLAY = 256 << 20 };
static const double bf16_gap = 0.5;                     /* a bf16 run may differ below it */
static const double first_f32 = 1e-3, first_bf16 = 0.5; /* of the first logits, absolute; measured 2.4e-5 and 0.23 */

/* Steps compared, mismatches, and the largest recorded gap at one. */
typedef struct pass {
    uint64_t steps, wrong;
    double worst_gap;
} pass;

typedef struct totals {
    uint64_t cases, firsts; /* firsts: cases with first_logits */
    pass decode, prefill;
    double first_diff;
} totals;

/* ---- comparing ---- */

static uint32_t best_of(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void compare(pass *p, const replay_case *k, uint64_t step, const float *logits, uint32_t vocab) {
    bool finite = true;
    for (uint32_t i = 0; finite && i < vocab; i++) finite = isfinite(logits[i]);
    p->steps++;
    if (finite && best_of(logits, vocab) == k->tokens[k->n_prompt + step]) return;
    const double gap = finite ? k->gap[step] : INFINITY; /* no gap excuses it */
    p->wrong++;
    if (gap > p->worst_gap) p->worst_gap = gap;
}

static gdn_status by_decode(gdn_engine *e, const replay_case *k, float *logits, pass *p, double *first_diff, gdn_text *err) {
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    gdn_status s = gdn_engine_reset(e, err);
    if (s == GDN_OK) s = gdn_engine_prefill(e, k->tokens, k->n_prompt, false, logits, err);
    for (uint32_t i = 0; s == GDN_OK && k->first && i < vocab; i++) {
        const double d = fabs((double)logits[i] - (double)k->first[i]);
        if (!(d <= *first_diff)) *first_diff = d; /* a NaN stays */
    }
    for (uint64_t i = 0; s == GDN_OK && i < k->n; i++) {
        compare(p, k, i, logits, vocab);
        if (i + 1 < k->n) s = gdn_engine_step(e, k->tokens[k->n_prompt + i], logits, err);
    }
    return s;
}

static gdn_status by_prefill(gdn_engine *e, const replay_case *k, pass *p, gdn_text *err) {
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    const uint64_t n = k->n_prompt + k->n - 1;
    float *logits = malloc((size_t)n * vocab * sizeof *logits);
    if (!logits) return GDN_E_NOMEM;
    gdn_status s = gdn_engine_reset(e, err);
    if (s == GDN_OK) s = gdn_engine_prefill(e, k->tokens, n, true, logits, err);
    for (uint64_t i = 0; s == GDN_OK && i < k->n; i++) compare(p, k, i, logits + (k->n_prompt - 1 + i) * vocab, vocab);
    free(logits);
    return s;
}

/* JSON has no NaN: null. */
static json_t *real_or_null(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *first_or_null(const totals *t) {
    return t->firsts ? real_or_null(t->first_diff) : json_null();
}

static const char *first_text(const totals *t, char buf[40]) {
    if (t->firsts)
        snprintf(buf, 40, "within %.2e", t->first_diff);
    else
        snprintf(buf, 40, "not recorded");
    return buf;
}

static void print_case(const cli_common *c, const replay_case *k, const totals *t, json_t *list) {
    if (c->json) {
        json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:o,s:o,s:o}", "prompt", k->prompt, "steps", (json_int_t)t->decode.steps,
                                              "decode_mismatches", (json_int_t)t->decode.wrong, "prefill_mismatches",
                                              (json_int_t)t->prefill.wrong, "decode_gap", real_or_null(t->decode.worst_gap), "prefill_gap",
                                              real_or_null(t->prefill.worst_gap), "first_logits_difference", first_or_null(t)));
        return;
    }
    char shown[33], first[40];
    size_t n = 0;
    for (; n < sizeof shown - 1 && k->prompt[n]; n++) shown[n] = (unsigned char)k->prompt[n] < 0x20 ? ' ' : k->prompt[n];
    shown[n] = 0;
    printf("%-32s %llu steps, mismatches: decode %llu (gap %.4g), prefill %llu (gap %.4g); first logits %s\n", shown,
           (unsigned long long)t->decode.steps, (unsigned long long)t->decode.wrong, t->decode.worst_gap,
           (unsigned long long)t->prefill.wrong, t->prefill.worst_gap, first_text(t, first));
}

static void add_pass(pass *to, const pass *from) {
    to->steps += from->steps;
    to->wrong += from->wrong;
    if (from->worst_gap > to->worst_gap) to->worst_gap = from->worst_gap;
}

/* ---- the whole replay ---- */

static bool run_case(const cli_common *c, gdn_engine *e, const json_t *j, size_t index, const char *file, totals *sum, json_t *list) {
    char buf[300] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    replay_case k = { 0 };
    totals t = { 0 };
    bool ok = false;
    float *logits = malloc(vocab * sizeof *logits);
    const char *why = logits ? replay_read(j, vocab, &k) : "out of memory";
    if (why) {
        cli_error(c, "%s: case %zu: %s", file, index, why);
    } else {
        gdn_status s = by_decode(e, &k, logits, &t.decode, &t.first_diff, &err);
        if (s == GDN_OK) s = by_prefill(e, &k, &t.prefill, &err);
        t.firsts = k.first != NULL;
        ok = s == GDN_OK;
        if (!ok) cli_error(c, "case %zu: %s", index, buf[0] ? buf : gdn_status_text(s));
    }
    if (ok) {
        print_case(c, &k, &t, list);
        add_pass(&sum->decode, &t.decode);
        add_pass(&sum->prefill, &t.prefill);
        if (!(t.first_diff <= sum->first_diff)) sum->first_diff = t.first_diff;
        sum->firsts += t.firsts;
        sum->cases++;
    }
    replay_free(&k);
    free(logits);
    return ok;
}

static bool good(const pass *p, uint32_t dtype) {
    return p->wrong == 0 || (dtype == GDN_BF16 && p->worst_gap < bf16_gap);
}

static int verdict(const cli_common *c, const totals *t, uint32_t dtype, json_t *list) {
    const bool half = dtype == GDN_BF16;
    const bool ok = good(&t->decode, dtype) && good(&t->prefill, dtype) && t->first_diff <= (half ? first_bf16 : first_f32);
    const char *rule = half ? "mismatches only at gaps below 0.5, first logits within 0.5" : "no mismatch, first logits within 1e-3";
    char first[40];
    if (c->json) {
        cli_print_json(json_pack("{s:i,s:s,s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:s,s:b,s:o}", "schema", 1, "command", "check", "dtype",
                                 half ? "bf16" : "f32", "steps", (json_int_t)t->decode.steps, "decode_mismatches",
                                 (json_int_t)t->decode.wrong, "prefill_mismatches", (json_int_t)t->prefill.wrong, "decode_gap",
                                 real_or_null(t->decode.worst_gap), "prefill_gap", real_or_null(t->prefill.worst_gap),
                                 "first_logits_difference", first_or_null(t), "rule", rule, "ok", ok, "cases", list));
    } else {
        printf(
            "%s: %llu case%s, decode %llu of %llu right (largest gap at a mismatch %.4g), prefill %llu of %llu (%.4g); first logits %s\n",
            half ? "bf16" : "f32", (unsigned long long)t->cases, t->cases == 1 ? "" : "s",
            (unsigned long long)(t->decode.steps - t->decode.wrong), (unsigned long long)t->decode.steps, t->decode.worst_gap,
            (unsigned long long)(t->prefill.steps - t->prefill.wrong), (unsigned long long)t->prefill.steps, t->prefill.worst_gap,
            first_text(t, first));
        printf("%s (asked: %s)\n", ok ? "ok" : "NOT ok", rule);
        json_decref(list);
    }
    return ok ? CLI_OK : CLI_NO;
}

/* What is wrong with a case, said, before any is run. mine: it has the dtype asked for. */
static bool case_is_good(const cli_common *c, const json_t *j, size_t index, const char *file, const char *want, uint32_t vocab,
                         bool *mine) {
    char buf[200] = "";
    gdn_text text = { buf, sizeof buf, 0 };
    replay_case k = { 0 };
    const char *kind = json_string_value(json_object_get(j, "dtype")), *why = kind ? NULL : "dtype is missing or not a string";
    *mine = kind && !strcmp(kind, want);
    if (kind && strcmp(kind, "float32") != 0 && strcmp(kind, "bfloat16") != 0) {
        (void)gdn__engine_say(&text, GDN_E_MODEL, "dtype is '%.40s', expected float32 or bfloat16", kind);
        why = buf;
    }
    if (*mine) why = replay_read(j, vocab, &k);
    replay_free(&k);
    if (why) cli_error(c, "%s: case %zu: %s", file, index, why);
    return !why;
}

static int replay(const cli_common *c, gdn_engine *e, const json_t *root, const char *file, uint32_t dtype) {
    const json_t *cases = json_object_get(root, "cases");
    const char *want = dtype == GDN_BF16 ? "bfloat16" : "float32";
    const uint32_t vocab = gdn_engine_config(e)->vocab;
    json_t *list = json_array();
    totals sum = { 0 };
    size_t wanted = 0;
    bool ok = json_is_array(cases), mine = false;
    if (!ok) cli_error(c, "%s: cases is missing or not an array", file);
    for (size_t i = 0; ok && i < json_array_size(cases); i++) {
        ok = case_is_good(c, json_array_get(cases, i), i, file, want, vocab, &mine);
        wanted += mine;
    }
    if (ok && !wanted) {
        cli_error(c, "%s: no case with dtype %s", file, want);
        ok = false;
    }
    for (size_t i = 0; ok && i < json_array_size(cases); i++) {
        const json_t *j = json_array_get(cases, i);
        if (!strcmp(json_string_value(json_object_get(j, "dtype")), want)) ok = run_case(c, e, j, i, file, &sum, list);
    }
    if (ok) return verdict(c, &sum, dtype, list);
    json_decref(list);
    return CLI_NO;
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user;
    cli_progress(what, done, total);
}

static json_t *read_json(const cli_common *c, const char *file) {
    char buf[300] = "", *bytes = NULL;
    gdn_text err = { buf, sizeof buf, 0 };
    uint64_t size = 0;
    if (gdn__read_file(file, MAX_REPLAY, &bytes, &size, &err) != GDN_OK) {
        cli_error(c, "%s", buf);
        return NULL;
    }
    json_error_t je;
    json_t *root = json_loadb(bytes, (size_t)size, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        (void)gdn__engine_say(&err, GDN_E_MODEL, "%s: line %d: not JSON: %s", file, je.line, je.text);
        cli_error(c, "%s", buf);
    }
    free(bytes);
    return root;
}

int cli_check_model(const cli_common *c, const char *dir, const char *file, uint32_t dtype) {
    char buf[600] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    int rc = CLI_NO;
    if (!*dir || !*file) return cli_error(c, "%s is empty", *dir ? "--replay" : "--model"), CLI_USAGE;
    json_t *root = read_json(c, file);
    gdn *g = root ? cli_open(c) : NULL;
    const gdn_engine_options opt = { .target = g, .dtype = dtype, .progress = on_progress };
    if (g && gdn_engine_load(dir, &opt, &e, &err) != GDN_OK) cli_error(c, "%s", buf);
    if (e) rc = replay(c, e, root, file, gdn_engine_dtype(e));
    gdn_engine_free(e);
    gdn_close(g);
    json_decref(root);
    return rc;
}
