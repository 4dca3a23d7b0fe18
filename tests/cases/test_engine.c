/* test_engine.c - the engine's sequence on small random checkpoints: prefill, step, verify and accept say the same.
 *
 * The reference is always another way through the same engine; the values themselves are checked on recorded text in
 * test_engine_text.c. */
#include "engine.h"
#include "target.h"
#include "tiny_checkpoint.h"
#include <math.h>

enum { TOKENS = 150, VOCAB = 40 };
static uint32_t text[TOKENS];

static gdn_engine *load(const tiny *t, uint32_t dtype, uint32_t segment, bool woa) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    const gdn_engine_options opt = { .target = target(), .dtype = dtype, .segment = segment, .woa = woa };
    if (gdn_engine_load(t->dir, &opt, &e, &err) != GDN_OK) fail_msg("%s", buf);
    return e;
}

static double distance(const float *a, const float *b, uint64_t n) {
    double diff = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : INFINITY; /* no logits at all prove nothing */
}

static void near(const float *a, const float *b, uint64_t n, double tol, const char *what) {
    const double d = distance(a, b, n);
    if (!(d <= tol)) fail_msg("%s: relative distance %.3e, at most %.1e", what, d, tol);
}

/* Logits after every token of text, by one prefill of a fresh sequence. */
static float *by_prefill(gdn_engine *e, uint32_t n) {
    float *out = malloc((size_t)n * VOCAB * sizeof *out);
    assert_non_null(out);
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, text, n, true, out, NULL), GDN_OK);
    assert_int_equal(gdn_engine_position(e), n);
    return out;
}

static void steps_equal_prefill(gdn_engine *e, double tol) {
    float *all = by_prefill(e, TOKENS), one[VOCAB];
    assert_true(distance(all, all + VOCAB, VOCAB) > 0.1); /* tokens do matter */
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    for (uint32_t i = 0; i < TOKENS; i++) {
        assert_int_equal(gdn_engine_step(e, text[i], one, NULL), GDN_OK);
        near(one, all + (size_t)i * VOCAB, VOCAB, tol, "step against prefill");
    }
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK); /* a part by prefill, last logits only, the rest by steps */
    assert_int_equal(gdn_engine_prefill(e, text, 70, false, one, NULL), GDN_OK);
    near(one, all + 69 * VOCAB, VOCAB, tol, "last logits");
    assert_int_equal(gdn_engine_prefill(e, text + 70, 2, false, NULL, NULL), GDN_OK);
    assert_int_equal(gdn_engine_step(e, text[72], one, NULL), GDN_OK);
    near(one, all + 72 * VOCAB, VOCAB, tol, "step after prefill in pieces");
    free(all);
}

static void same_by_any_way(void **state) {
    (void)state;
    const struct {
        tiny t;
        const char *what;
    } rows[] = {
        { { .vocab = 40, .hidden = 32, .inter = 48, .layers = 2, .nk = 2, .nv = 4, .dim = 64, .width = 4, .f32 = true }, "dim 64" },
        { { .vocab = 40, .hidden = 40, .inter = 24, .layers = 1, .nk = 1, .nv = 3, .dim = 128, .width = 3, .tied = true },
          "dim 128, width 3, tied" },
        { { .vocab = 40, .hidden = 64, .inter = 8, .layers = 3, .nk = 2, .nv = 2, .dim = 64, .width = 1 }, "width 1" },
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        tiny t = rows[i].t;
        tiny_make(&t, 11 + i);
        gdn_engine *e = load(&t, GDN_F32, 0, false);
        steps_equal_prefill(e, 2e-4);
        gdn_engine_free(e);
        e = load(&t, GDN_BF16, 0, false);
        steps_equal_prefill(e, 0.1); /* rounding to bf16 at each stage, in another order of sums */
        gdn_engine_free(e);
        tiny_remove(&t);
    }
}

/* Verify rows at a place, accept some, go on: logits and all later ones are those of the prefill. */
static void verified(gdn_engine *e, const float *all, uint32_t rows, uint32_t accept, double tol) {
    float got[GDN_ENGINE_MAX_ROWS * VOCAB];
    uint32_t tried[GDN_ENGINE_MAX_ROWS], at = 9;
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, text, at, false, NULL, NULL), GDN_OK);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < rows; i++) tried[i] = i < accept ? text[at + i] : (text[at + i] + 1) % VOCAB; /* wrong drafts */
        assert_int_equal(gdn_engine_verify(e, tried, rows, got, NULL), GDN_OK);
        near(got, all + (size_t)at * VOCAB, (uint64_t)accept * VOCAB, tol, "verified rows");
        assert_int_equal(gdn_engine_accept(e, accept, NULL), GDN_OK);
        at += accept;
        assert_int_equal(gdn_engine_position(e), at);
        if (round == 1) { /* the next verify then begins after a plain launch */
            assert_int_equal(gdn_engine_step(e, text[at], got, NULL), GDN_OK);
            near(got, all + (size_t)at * VOCAB, VOCAB, tol, "step after accept");
            at++;
        }
    }
    assert_int_equal(gdn_engine_prefill(e, text + at, 3, true, got, NULL), GDN_OK);
    near(got, all + (size_t)at * VOCAB, 3 * VOCAB, tol, "prefill after accept");
}

static void count_rounds(void *user, const char *name, const gdn_route *r, uint64_t launches) {
    (void)r;
    if (!strcmp(name, "round")) *(uint64_t *)user += launches;
}

static void verify_and_accept(void **state) {
    (void)state;
    tiny t = { .vocab = 40, .hidden = 32, .inter = 48, .layers = 2, .nk = 2, .nv = 4, .dim = 128, .width = 4, .f32 = true };
    tiny_make(&t, 21);
    for (uint32_t woa = 0; woa < 2; woa++) {
        gdn_engine *e = load(&t, GDN_F32, 0, woa);
        float *all = by_prefill(e, TOKENS);
        for (uint32_t rows = 1; rows <= GDN_ENGINE_MAX_ROWS; rows++)
            for (uint32_t accept = 1; accept <= rows; accept++) verified(e, all, rows, accept, 2e-4);
        uint64_t rounds = 0; /* a verify of four rows behind one whose rows were accepted */
        assert_int_equal(gdn_engine_routes(e, count_rounds, &rounds), GDN_OK);
        assert_true(woa ? rounds > 0 : rounds == 0);
        /* The control: one row too many accepted, and the next logits are others. */
        float got[GDN_ENGINE_MAX_ROWS * VOCAB];
        const uint32_t tried[2] = { text[9], (text[10] + 1) % VOCAB };
        assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
        assert_int_equal(gdn_engine_prefill(e, text, 9, false, NULL, NULL), GDN_OK);
        assert_int_equal(gdn_engine_verify(e, tried, 2, got, NULL), GDN_OK);
        assert_int_equal(gdn_engine_accept(e, 2, NULL), GDN_OK);
        assert_int_equal(gdn_engine_step(e, text[11], got, NULL), GDN_OK);
        assert_true(distance(got, all + 11 * VOCAB, VOCAB) > 1e-2);
        free(all);
        gdn_engine_free(e);
    }
    tiny_remove(&t);
}

static void segments(void **state) {
    (void)state;
    tiny t = TINY_DEFAULT;
    tiny_make(&t, 31);
    gdn_engine *whole = load(&t, GDN_F32, 0, false), *cut = load(&t, GDN_F32, 64, false);
    float *a = by_prefill(whole, TOKENS), *b = by_prefill(cut, TOKENS);
    near(b, a, (uint64_t)TOKENS * VOCAB, 2e-5, "three segments against one");
    free(a);
    free(b);
    gdn_engine_free(whole);
    gdn_engine_free(cut);
    tiny_remove(&t);
}

typedef struct told {
    uint64_t n, done[8], total;
    bool other;
} told;

static void tell(void *user, const char *what, uint64_t done, uint64_t total) {
    told *t = user;
    if (!strcmp(what, "loading")) return;
    t->other = t->other || strcmp(what, "prompt") != 0 || t->n == N_OF(t->done);
    if (t->other) return;
    t->done[t->n++] = done;
    t->total = total;
}

/* A prompt of several segments says how far it is, one of a single segment nothing. */
static void progress_of_a_long_prompt(void **state) {
    (void)state;
    tiny t = TINY_DEFAULT;
    tiny_make(&t, 31);
    told got = { .n = 0 };
    gdn_engine *e = NULL;
    const gdn_engine_options opt = { .target = target(), .segment = 64, .progress = tell, .user = &got };
    assert_int_equal(gdn_engine_load(t.dir, &opt, &e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, text, 64, false, NULL, NULL), GDN_OK);
    assert_int_equal(got.n, 0);
    assert_int_equal(gdn_engine_prefill(e, text, TOKENS, false, NULL, NULL), GDN_OK);
    assert_false(got.other);
    assert_int_equal(got.n, 3);
    assert_int_equal(got.total, TOKENS);
    assert_true(got.done[0] == 64 && got.done[1] == 128 && got.done[2] == TOKENS);
    gdn_engine_free(e);
    tiny_remove(&t);
}

static void misuse(void **state) {
    (void)state;
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    tiny t = TINY_DEFAULT;
    tiny_make(&t, 41);
    gdn_engine *e = load(&t, GDN_F32, 0, false), *none = NULL;
    float got[5 * VOCAB];
    const uint32_t tokens[5] = { 1, 2, 3, 4, 5 }, bad = VOCAB;
    const gdn_engine_options odd = { .target = target(), .segment = 100 }, type = { .target = target(), .dtype = GDN_F16 };
    assert_int_equal(gdn_engine_load(t.dir, &odd, &none, &err), GDN_E_ARG);
    assert_non_null(strstr(buf, "segment 100"));
    assert_int_equal(gdn_engine_load(t.dir, &type, &none, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_prefill(e, tokens, 0, false, got, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_prefill(e, &bad, 1, false, got, &err), GDN_E_ARG);
    assert_string_equal(buf, "token 40 is outside the vocabulary of 40");
    assert_int_equal(gdn_engine_step(e, VOCAB, got, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_verify(e, tokens, 0, got, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_verify(e, tokens, 5, got, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_accept(e, 1, &err), GDN_E_ARG);
    assert_string_equal(buf, "accept without a verify");
    assert_int_equal(gdn_engine_position(e), 0); /* nothing was taken */
    assert_int_equal(gdn_engine_verify(e, tokens, 3, got, &err), GDN_OK);
    assert_int_equal(gdn_engine_step(e, 1, got, &err), GDN_E_ARG);
    assert_string_equal(buf, "3 verified rows wait for accept");
    assert_int_equal(gdn_engine_accept(e, 0, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_accept(e, 4, &err), GDN_E_ARG);
    assert_int_equal(gdn_engine_accept(e, 3, &err), GDN_OK);
    assert_int_equal(gdn_engine_position(e), 3);
    gdn_engine_free(e);
    gdn_engine_free(NULL);
    tiny_remove(&t);
}

/* Without its lever, write-on-accept is refused by name, and the engine is not made. */
static void woa_needs_its_lever(void **state) {
    (void)state;
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    tiny t = { .vocab = 40, .hidden = 32, .inter = 48, .layers = 1, .nk = 2, .nv = 4, .dim = 128, .width = 4 };
    tiny_make(&t, 51);
    const gdn_setting off = { "gdn_woa", "0" };
    gdn_options open = GDN_OPTIONS_INIT;
    open.target = "cpu";
    open.settings = &off;
    open.n_settings = 1;
    gdn *g = NULL;
    if (gdn_open(&open, &g, &err) != GDN_OK) fail_msg("%s", buf);
    gdn_engine *e = NULL;
    const gdn_engine_options opt = { .target = g, .woa = true }, plain = { .target = g };
    assert_int_equal(gdn_engine_load(t.dir, &opt, &e, &err), GDN_REFUSED);
    assert_null(e);
    assert_non_null(strstr(buf, "not requested"));
    assert_int_equal(gdn_engine_load(t.dir, &plain, &e, &err), GDN_OK);
    gdn_engine_free(e);
    gdn_close(g);
    tiny_remove(&t);
}

int main(void) {
    rng r = { 5 };
    for (uint32_t i = 0; i < TOKENS; i++) text[i] = rng_below(&r, VOCAB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_by_any_way), cmocka_unit_test(verify_and_accept),
        cmocka_unit_test(segments),        cmocka_unit_test(progress_of_a_long_prompt),
        cmocka_unit_test(misuse),          cmocka_unit_test(woa_needs_its_lever),
    };
    return cmocka_run_group_tests(tests, target_setup, target_teardown);
}
