/* test_engine_text.c - a trained checkpoint against text recorded from another implementation, plain and speculative.
 *
 * f32 (target cpu): every recorded byte is reproduced in closed loop, and both ways to speculate give the same bytes. bf16: fed with the
 * recorded bytes, it differs only where the recording's two best logits are less than 0.5 apart. On a GPU target, which has bf16
 * alone, the texts are shorter, and speculation is judged as rounding allows: every byte that it writes is plain decoding's best one
 * at that place or within 0.5 of it. */
#include "engine.h"
#include "generate.h"
#include "target.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char dir[] = GDN_TEST_DATA "/jargon-tiny";
enum { MAX_TEXT = 512, VOCAB = 256 };

typedef struct recorded {
    uint32_t prompt[MAX_TEXT], tokens[MAX_TEXT];
    uint64_t n_prompt, n;
    double gap[MAX_TEXT], first[VOCAB];
} recorded;

static json_t *recording;

/* Case number `index` among those of `dtype`; false past the last. */
static bool read_case(const char *dtype, size_t index, recorded *out) {
    const json_t *cases = json_object_get(recording, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        if (strcmp(json_string_value(json_object_get(c, "dtype")), dtype) != 0 || index--) continue;
        const json_t *prompt = json_object_get(c, "prompt"), *tokens = json_object_get(c, "tokens"), *gap = json_object_get(c, "top2_gap"),
                     *first = json_object_get(c, "first_logits");
        out->n_prompt = json_string_length(prompt);
        out->n = json_array_size(tokens);
        assert_true(out->n_prompt < MAX_TEXT && out->n < MAX_TEXT && json_array_size(first) == VOCAB);
        for (size_t k = 0; k < out->n_prompt; k++) out->prompt[k] = (unsigned char)json_string_value(prompt)[k];
        for (size_t k = 0; k < out->n; k++) {
            out->tokens[k] = (uint32_t)json_integer_value(json_array_get(tokens, k));
            out->gap[k] = json_number_value(json_array_get(gap, k));
        }
        for (size_t k = 0; k < VOCAB; k++) out->first[k] = json_number_value(json_array_get(first, k));
        return true;
    }
    return false;
}

static gdn_engine *load(uint32_t dtype, bool woa) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    const gdn_engine_options opt = { .target = target(), .dtype = dtype, .woa = woa };
    if (gdn_engine_load(dir, &opt, &e, &err) != GDN_OK) fail_msg("%s", buf);
    return e;
}

typedef struct written {
    uint32_t tokens[MAX_TEXT];
    uint64_t n, stop_after;
} written;

static bool keep(void *user, uint32_t token) {
    written *w = user;
    w->tokens[w->n++] = token;
    return w->n != w->stop_after;
}

static gdn_generate_stats write_text(gdn_engine *e, const recorded *c, double temperature, uint32_t drafts, uint64_t n, written *out) {
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_sampler s;
    gdn_generate_stats st;
    assert_int_equal(gdn_sampler_init(&s, temperature, 0.95, 42, VOCAB, NULL), GDN_OK);
    const gdn_generate_options opt = { .n = n, .sampler = &s, .drafts = drafts, .token = keep, .user = out };
    out->n = 0;
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    if (gdn_generate(e, c->prompt, c->n_prompt, &opt, &st, &err) != GDN_OK) fail_msg("%s", buf);
    gdn_sampler_free(&s);
    return st;
}

static void expect_same(const written *w, const uint32_t *want, uint64_t n, const gdn_generate_stats *st, const char *what) {
    assert_int_equal(st->generated, w->n);
    for (uint64_t i = 0; i < n; i++)
        if (i >= w->n || w->tokens[i] != want[i])
            fail_msg("%s: byte %llu differs (near ties: %llu, least gap %g)", what, (unsigned long long)i,
                     (unsigned long long)st->near_ties, (double)st->least_gap);
    assert_int_equal(w->n, n);
}

static void plain_and_speculative(void **state) {
    (void)state;
    gdn_engine *e = load(GDN_F32, false), *woa = load(GDN_F32, true);
    static recorded c;
    size_t cases = 0;
    uint64_t accepted = 0, rows4 = 0;
    for (; read_case("float32", cases, &c); cases++) {
        written w = { .n = 0 };
        gdn_generate_stats st = write_text(e, &c, 0, 0, c.n, &w);
        expect_same(&w, c.tokens, c.n, &st, "plain");
        assert_int_equal(st.steps, c.n - 1);
        st = write_text(e, &c, 0, 3, c.n, &w);
        expect_same(&w, c.tokens, c.n, &st, "verify");
        assert_int_equal(st.generated, 1 + st.steps + st.verifies + st.accepted);
        accepted += st.accepted;
        st = write_text(woa, &c, 0, 3, c.n, &w);
        expect_same(&w, c.tokens, c.n, &st, "woa");
        rows4 += st.rows[4];
        print_message("case %zu: %llu of %llu drafts accepted, near ties %llu\n", cases, (unsigned long long)st.accepted,
                      (unsigned long long)st.proposed, (unsigned long long)st.near_ties);
    }
    assert_int_equal(cases, 4);
    assert_true(accepted > 50 && rows4 > 20); /* speculation did happen */
    gdn_engine_free(woa);
    gdn_engine_free(e);
}

/* Sampling draws once a token in the order of the text, so that speculation does not change it. */
static void sampled(void **state) {
    (void)state;
    gdn_engine *e = load(GDN_F32, true);
    static recorded c;
    written plain = { .n = 0 }, spec = { .n = 0 };
    assert_true(read_case("float32", 3, &c));
    gdn_generate_stats st = write_text(e, &c, 0.8, 0, 120, &plain);
    assert_int_equal(plain.n, 120);
    uint64_t differ = 0;
    for (uint64_t i = 0; i < 120; i++) differ += plain.tokens[i] != c.tokens[i];
    assert_true(differ > 0); /* it is not the greedy text */
    st = write_text(e, &c, 0.8, 3, 120, &spec);
    expect_same(&spec, plain.tokens, 120, &st, "sampled");
    gdn_engine_free(e);
}

/* The callback may stop in the middle of a verify; the engine then holds no pending rows. */
static void stopping(void **state) {
    (void)state;
    gdn_engine *e = load(GDN_F32, false);
    static recorded c;
    assert_true(read_case("float32", 2, &c));
    for (uint64_t stop = 1; stop < 30; stop++) {
        written w = { .stop_after = stop };
        const gdn_generate_stats st = write_text(e, &c, 0, 3, 100, &w);
        expect_same(&w, c.tokens, stop, &st, "stopped");
        float logits[VOCAB];
        assert_int_equal(gdn_engine_step(e, 10, logits, NULL), GDN_OK);
    }
    gdn_engine_free(e);
}

static uint32_t best_of(const float *logits) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Mismatches of a teacher-forced pass; worst: the largest recorded gap at one, first: of the first logits. */
static uint64_t replay(gdn_engine *e, const recorded *c, double *worst, double *first) {
    float logits[VOCAB];
    uint64_t wrong = 0;
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, c->prompt, c->n_prompt, false, logits, NULL), GDN_OK);
    for (uint32_t i = 0; i < VOCAB; i++) *first = fmax(*first, fabs((double)logits[i] - c->first[i]));
    for (uint64_t i = 0; i < c->n; i++) {
        if (best_of(logits) != c->tokens[i]) {
            wrong++;
            *worst = fmax(*worst, c->gap[i]);
        }
        if (i + 1 < c->n) assert_int_equal(gdn_engine_step(e, c->tokens[i], logits, NULL), GDN_OK);
    }
    return wrong;
}

static void teacher_forced(void **state) {
    (void)state;
    static recorded c;
    double worst = 0, first = 0;
    uint64_t wrong = 0;
    gdn_engine *e = load(GDN_F32, false);
    for (size_t i = 0; read_case("float32", i, &c); i++) wrong += replay(e, &c, &worst, &first);
    assert_int_equal(wrong, 0);
    if (!(first < 1e-4)) fail_msg("first logits differ by %g", first);
    assert_true(read_case("float32", 0, &c)); /* the control: one byte of the prompt is another, and it shows */
    c.prompt[1] ^= 1;
    assert_true(replay(e, &c, &worst, &first) > 0);
    gdn_engine_free(e);
    e = load(GDN_BF16, false);
    worst = first = 0;
    for (size_t i = 0; read_case("bfloat16", i, &c); i++) wrong += replay(e, &c, &worst, &first);
    print_message("bf16: %llu mismatches, largest gap %g, first logits within %g\n", (unsigned long long)wrong, worst, first);
    assert_true(worst < 0.5);
    gdn_engine_free(e);
}

/* ---- a GPU target ---- */
enum { SHORT = 20, LONG = 40 }; /* bytes of each case fed; written */

/* Every byte of w is the best after those before it, or within 0.5 of it. */
static uint64_t differs(gdn_engine *e, const recorded *c, const written *w, double *worst) {
    float logits[VOCAB];
    uint64_t n = 0;
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, c->prompt, c->n_prompt, false, logits, NULL), GDN_OK);
    for (uint64_t i = 0; i < w->n; i++) {
        const uint32_t best = best_of(logits);
        n += best != w->tokens[i];
        *worst = fmax(*worst, (double)logits[best] - (double)logits[w->tokens[i]]);
        if (i + 1 < w->n) assert_int_equal(gdn_engine_step(e, w->tokens[i], logits, NULL), GDN_OK);
    }
    return n;
}

static void bf16_fed(void **state) {
    (void)state;
    static recorded c;
    double worst = 0, first = 0, other = 0;
    uint64_t wrong = 0;
    gdn_engine *e = load(GDN_BF16, false);
    for (size_t i = 0; read_case("bfloat16", i, &c); i++) {
        c.n = c.n < SHORT ? c.n : SHORT;
        wrong += replay(e, &c, &worst, &first);
    }
    print_message("%llu mismatches, largest gap %g, first logits within %g\n", (unsigned long long)wrong, worst, first);
    assert_true(worst < 0.5 && first < 0.5);
    assert_true(read_case("bfloat16", 0, &c)); /* the control */
    c.prompt[1] ^= 1;
    c.n = SHORT;
    assert_true(replay(e, &c, &worst, &other) > 0 && other > 0.5);
    gdn_engine_free(e);
}

/* Two texts: one whose drafts are all right, one whose drafts are wrong. */
static void bf16_speculative(void **state) {
    (void)state;
    static recorded c;
    static const size_t cases[] = { 2, 1 };
    gdn_engine *e = load(GDN_BF16, false), *woa = load(GDN_BF16, true);
    for (uint32_t way = 0; way < 2; way++) {
        written w = { .n = 0 };
        uint64_t accepted = 0, proposed = 0, rows4 = 0, other = 0;
        double worst = 0;
        for (size_t i = 0; i < N_OF(cases); i++) {
            assert_true(read_case("bfloat16", cases[i], &c));
            const gdn_generate_stats st = write_text(way ? woa : e, &c, 0, 3, LONG, &w);
            other += differs(e, &c, &w, &worst);
            accepted += st.accepted;
            proposed += st.proposed;
            rows4 += st.rows[4];
        }
        print_message("%s: %llu of %llu drafts accepted, %llu bytes are not plain decoding's, at most %g from it\n", way ? "woa" : "verify",
                      (unsigned long long)accepted, (unsigned long long)proposed, (unsigned long long)other, worst);
        assert_true(accepted > 10 && accepted < proposed && rows4 > 3 && worst < 0.5);
        w.tokens[LONG / 2] ^= 1; /* the control */
        assert_true(differs(e, &c, &w, &worst) > 0 && worst > 0.5);
    }
    gdn_engine_free(woa);
    gdn_engine_free(e);
}

static int setup(void **state) {
    recording = json_load_file(GDN_TEST_DATA "/jargon-tiny/greedy.json", 0, NULL);
    return recording ? target_setup(state) : -1;
}

static int teardown(void **state) {
    json_decref(recording);
    return target_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_speculative),
        cmocka_unit_test(sampled),
        cmocka_unit_test(stopping),
        cmocka_unit_test(teacher_forced),
    };
    const struct CMUnitTest on_a_gpu[] = { cmocka_unit_test(bf16_fed), cmocka_unit_test(bf16_speculative) };
    return target_is_cpu() ? cmocka_run_group_tests(tests, setup, teardown) : cmocka_run_group_tests(on_a_gpu, setup, teardown);
}
