/* test_engine_w4a4.c - the engine with NVFP4 projections: beside the dense engine on the same small random checkpoint, by prefill and by
 * steps; projections whose sizes do not fit stay dense by name; the perplexity of a text. */
#include "engine.h"
#include "numeric.h"
#include "nvfp4.h"
#include "target.h"
#include "tiny_checkpoint.h"
#include <math.h>

enum { TOKENS = 70 /* more than one block of 64 rows */, VOCAB = 40 };
static uint32_t text[TOKENS];

static gdn_engine *load(const tiny *t, bool w4a4) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    const gdn_engine_options opt = { .target = target(), .segment = 128, .w4a4 = w4a4 };
    if (gdn_engine_load(t->dir, &opt, &e, &err) != GDN_OK) fail_msg("%s", buf);
    return e;
}

static double distance(const float *a, const float *b, uint64_t n) {
    double diff = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : INFINITY;
}

static float *by_prefill(gdn_engine *e) {
    float *out = malloc((size_t)TOKENS * VOCAB * sizeof *out);
    assert_non_null(out);
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, text, TOKENS, true, out, NULL), GDN_OK);
    return out;
}

typedef struct seen {
    uint32_t n, fp4;
    char why[4][240];
} seen;
static void note(void *user, const char *name, uint32_t n, uint32_t k, const char *why) {
    seen *s = user;
    assert_true(n && k && *name);
    s->fp4 += !why;
    snprintf(s->why[s->n++], sizeof s->why[0], "%s", why ? why : "");
}
static void count_route(void *user, const char *op, const gdn_route *route, uint64_t launches) {
    assert_non_null(route->entry);
    if (!strncmp(op, "w4a4", 4)) *(uint64_t *)user += launches;
}

/* y = x w^T by the target, w through gdn__nvfp4: as far from the exact product as four-bit codes are, and no further. */
static void quantised_weights_multiply(void **state) {
    (void)state;
    enum { M = 3, N = 48, K = 256 };
    const gdn_w4a4_shape q = { .base = { (uint32_t)sizeof q, GDN_OP_W4A4_QUANT, 0, GDN_BF16 }, .K = K, .max_m = M };
    gdn_w4a4_shape g = q;
    static float x[M * K], w[N * K];
    static uint16_t half[M * K], y[M * N];
    static uint8_t codes[N * K / 2], scales[N * K / 16];
    gdn_hplan *plan[2] = { NULL, NULL };
    uint64_t p[7] = { 0 }, a = 0;
    rng r = { 3 };
    for (uint32_t i = 0; i < M * K; i++) half[i] = num_to_bf16(rng_uniform(&r, -1, 1)), x[i] = (float)num_from_bf16(half[i]);
    for (uint32_t i = 0; i < N * K; i++) w[i] = (float)rng_uniform(&r, -0.1, 0.1);
    const float scale2 = gdn__nvfp4(w, N, K, codes, scales);
    g.base.op = GDN_OP_W4A4_GEMV;
    g.N = N;
    assert_int_equal(gdn_plan_make(target(), &q.base, NULL, &plan[0], NULL), GDN_OK);
    assert_int_equal(gdn_plan_make(target(), &g.base, NULL, &plan[1], NULL), GDN_OK);
    const struct {
        uint64_t *to, bytes;
        const void *from;
    } put[] = { { &a, sizeof half, half },
                { &p[0], GDN_W4A4_AQ_BYTES(M, K), NULL },
                { &p[1], GDN_W4A4_AS_BYTES(M, K), NULL },
                { &p[2], M * 4, NULL },
                { &p[3], sizeof codes, codes },
                { &p[4], sizeof scales, scales },
                { &p[5], sizeof y, NULL },
                { &p[6], 64, NULL } };
    for (size_t i = 0; i < N_OF(put); i++) {
        assert_int_equal(gdn_mem_alloc(target(), put[i].bytes, put[i].to), GDN_OK);
        assert_int_equal(put[i].from ? gdn_copy_in(target(), NULL, *put[i].to, put[i].from, put[i].bytes)
                                     : gdn_fill(target(), NULL, *put[i].to, 0, put[i].bytes),
                         GDN_OK);
    }
    const uint64_t quant[] = { a, p[0], p[1], p[2] };
    uint32_t u32[] = { 0, M };
    const uint32_t rows = M;
    memcpy(u32, &scale2, 4);
    const gdn_launch_args one = { (uint32_t)sizeof one, 4, 1, 0, NULL, quant, &rows },
                          two = { (uint32_t)sizeof two, 7, 2, 0, NULL, p, u32 };
    assert_int_equal(gdn_launch(plan[0], &one), GDN_OK);
    assert_int_equal(gdn_launch(plan[1], &two), GDN_OK); /* the rows, quantised once, */
    assert_int_equal(gdn_launch(plan[1], &two), GDN_OK); /* may be multiplied as often as the caller says */
    assert_int_equal(gdn_copy_out(target(), NULL, y, p[5], sizeof y), GDN_OK);
    assert_int_equal(gdn_sync(target(), NULL), GDN_OK);
    double error = 0, norm = 0;
    for (uint32_t m = 0; m < M; m++)
        for (uint32_t n = 0; n < N; n++) {
            double want = 0;
            for (uint32_t k = 0; k < K; k++) want += (double)x[m * K + k] * (double)w[n * K + k];
            error += (num_from_bf16(y[m * N + n]) - want) * (num_from_bf16(y[m * N + n]) - want);
            norm += want * want;
        }
    print_message("a product of NVFP4 codes on both sides against f64: %.3f\n", sqrt(error / norm));
    assert_true(sqrt(error / norm) > 0.02 && sqrt(error / norm) < 0.2);
    for (size_t i = 0; i < N_OF(put); i++) gdn_mem_free(target(), *put[i].to);
    gdn_plan_free(plan[0]);
    gdn_plan_free(plan[1]);
}

/* Codes of four bits on both sides: near the dense engine, and not on it. Steps are near the prefill: what differs in a last bit may fall
 * on the other side of a code. */
static void beside_dense(void **state) {
    (void)state;
    tiny t = { .vocab = VOCAB, .hidden = 128, .inter = 256, .layers = 2, .nk = 1, .nv = 2, .dim = 64, .width = 4 };
    tiny_make(&t, 5);
    gdn_engine *dense = load(&t, false), *e = load(&t, true);
    seen s = { 0 }, none = { 0 };
    gdn_engine_projections(e, note, &s);
    gdn_engine_projections(dense, note, &none);
    assert_true(s.n == 4 && none.n == 4 && none.fp4 == 0);
    assert_string_equal(none.why[0], "not asked for");
    if (s.fp4 != 4) fail_msg("dense: %s", s.why[0]);
    float *want = by_prefill(dense), *got = by_prefill(e), step[VOCAB];
    const double apart = distance(got, want, (uint64_t)TOKENS * VOCAB);
    print_message("NVFP4 projections against dense: %.3f\n", apart);
    assert_true(apart > 0.01 && apart < 0.9);
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    double worst = 0;
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(gdn_engine_step(e, text[i], step, NULL), GDN_OK);
        worst = fmax(worst, distance(step, got + (size_t)i * VOCAB, VOCAB));
    }
    print_message("steps against prefill, at most: %.3f\n", worst);
    assert_true(worst < apart);
    uint64_t launches = 0;
    assert_int_equal(gdn_engine_routes(e, count_route, &launches), GDN_OK);
    assert_int_equal(launches, 2 * 4 * 2 * (2 + 12)); /* quantise and project, projections, layers, two blocks of rows and the steps */
    free(got);
    free(want);
    gdn_engine_free(e);
    gdn_engine_free(dense);
    tiny_remove(&t);
}

/* k = 40 and 56 are no multiples of 128; 512 is. */
static void what_does_not_fit(void **state) {
    (void)state;
    tiny t = { .vocab = VOCAB, .hidden = 40, .inter = 56, .layers = 1, .nk = 2, .nv = 4, .dim = 128, .width = 4 };
    tiny_make(&t, 6);
    gdn_engine *dense = load(&t, false), *e = load(&t, true);
    seen s = { 0 };
    gdn_engine_projections(e, note, &s);
    for (uint32_t i = 0; i < 4; i++)
        if (!strstr(s.why[i], "k is not a multiple of 128") != (i == 1)) fail_msg("projection %u: '%s'", i, s.why[i]);
    assert_string_equal(s.why[1], "");
    assert_int_equal(s.fp4, 1);
    float *want = by_prefill(dense), *got = by_prefill(e);
    const double apart = distance(got, want, (uint64_t)TOKENS * VOCAB);
    assert_true(apart > 1e-4 && apart < 0.5);
    free(got);
    free(want);
    gdn_engine_free(e);
    gdn_engine_free(dense);
    tiny_remove(&t);
}

/* Against the definition, from logits of one prefill. */
static void the_perplexity(void **state) {
    (void)state;
    tiny t = { .vocab = VOCAB, .hidden = 32, .inter = 48, .layers = 1, .nk = 2, .nv = 2, .dim = 64, .width = 4 };
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    tiny_make(&t, 7);
    gdn_engine *e = load(&t, false);
    float *logits = by_prefill(e);
    double sum = 0, got = 0;
    for (uint32_t i = 0; i + 1 < TOKENS; i++) {
        double all = 0;
        for (uint32_t v = 0; v < VOCAB; v++) all += exp((double)logits[i * VOCAB + v]);
        sum -= log(exp((double)logits[i * VOCAB + text[i + 1]]) / all);
    }
    assert_int_equal(gdn_engine_perplexity(e, text, TOKENS, &got, &err), GDN_OK);
    assert_true(fabs(got / exp(sum / (TOKENS - 1)) - 1) < 1e-5);
    assert_int_equal(gdn_engine_position(e), 0);
    assert_int_equal(gdn_engine_perplexity(e, text, 1, &got, &err), GDN_E_ARG);
    assert_string_equal(buf, "a perplexity needs at least two tokens");
    free(logits);
    gdn_engine_free(e);
    tiny_remove(&t);
}

int main(void) {
    for (uint32_t i = 0; i < TOKENS; i++) text[i] = i * 7 % 13 + i % 5 * 5;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_multiply),
        cmocka_unit_test(beside_dense),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(the_perplexity),
    };
    return cmocka_run_group_tests_name("engine_w4a4", tests, target_setup, target_teardown) != 0;
}
