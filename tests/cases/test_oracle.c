/* test_oracle.c - the oracle itself: the token recurrence against the chunk form (two derivations of one algebra), against a
 * case worked by hand, and the small parts against their definitions. No product code runs here. */
#include "checkkern.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    uint32_t T, D;
    double *q, *k, *v, *a, *beta, *S, *o;
} run;

static void make(run *r, uint32_t T, uint32_t D, double a_lo) {
    rng g = { T * 7 + D };
    *r = (run) { .T = T, .D = D };
    double **row[] = { &r->q, &r->k, &r->v, &r->o };
    for (uint32_t i = 0; i < 4; i++) {
        *row[i] = calloc((uint64_t)T * D, sizeof(double));
        assert_non_null(*row[i]);
        for (uint64_t j = 0; j < (uint64_t)T * D; j++) (*row[i])[j] = rng_uniform(&g, -1, 1);
    }
    for (uint32_t t = 0; t < T; t++) {
        oracle_l2norm(r->q + (uint64_t)t * D, D);
        oracle_l2norm(r->k + (uint64_t)t * D, D);
    }
    r->a = calloc(2ull * T, sizeof(double));
    r->beta = r->a + T;
    r->S = calloc((uint64_t)D * D, sizeof(double));
    assert_true(r->a && r->S);
    for (uint32_t t = 0; t < T; t++) {
        r->a[t] = rng_uniform(&g, a_lo, 1);
        r->beta[t] = rng_uniform(&g, 0, 1);
    }
    for (uint64_t j = 0; j < (uint64_t)D * D; j++) r->S[j] = rng_uniform(&g, -0.5, 0.5);
}

static void drop(run *r) {
    double *all[] = { r->q, r->k, r->v, r->o, r->a, r->S };
    for (uint32_t i = 0; i < N_OF(all); i++) free(all[i]);
}

static void by_tokens(run *r) {
    const uint64_t D = r->D;
    for (uint64_t t = 0; t < r->T; t++)
        oracle_token(r->S, r->D, r->D, r->q + t * D, r->k + t * D, r->v + t * D, r->a[t], r->beta[t], 0.125, r->o + t * D);
}

/* Without rounding the chunk form equals the token recurrence to 1e-12. */
static void chunk_form_is_the_token_recurrence(void **state) {
    (void)state;
    static const uint32_t T[] = { 1, 63, 64, 65, 200 };
    static const double lo[] = { 0.8, 1e-3, 0.999 };
    for (uint32_t i = 0; i < N_OF(T) * N_OF(lo); i++) {
        run a, b;
        make(&a, T[i / 3], 64, lo[i % 3]);
        make(&b, T[i / 3], 64, lo[i % 3]);
        by_tokens(&a);
        oracle_chunked(b.S, 64, 64, b.T, 64, b.q, b.k, b.v, b.a, b.beta, 0.125, b.o);
        num_error s = num_compare(a.S, b.S, 64 * 64), o = num_compare(a.o, b.o, (uint64_t)a.T * 64);
        assert_true(num_close(&s, 1e-12) && num_close(&o, 1e-12));
        drop(&b);
        make(&b, T[i / 3], 64, lo[i % 3]);
        b.beta[b.T - 1] += 1e-9; /* control: a wrong input is noticed at this bound */
        oracle_chunked(b.S, 64, 64, b.T, 64, b.q, b.k, b.v, b.a, b.beta, 0.125, b.o);
        s = num_compare(a.S, b.S, 64 * 64);
        assert_false(num_close(&s, 1e-12));
        drop(&a);
        drop(&b);
    }
}

/* K = V = 2, worked by hand: S = [[1,2],[3,4]], k = (1,0), v = (10,20), a = 1/2, beta = 1/2.
 * aS = [[.5,1],[1.5,2]]; S^T k = (.5,1); u = (4.75,9.5); S = [[5.25,10.5],[1.5,2]]; q = (1,1): S^T q = (6.75,12.5). */
static void one_token_by_hand(void **state) {
    (void)state;
    double S[] = { 1, 2, 3, 4 }, o[2];
    const double q[] = { 1, 1 }, k[] = { 1, 0 }, v[] = { 10, 20 };
    oracle_token(S, 2, 2, q, k, v, 0.5, 0.5, 2, o);
    assert_true(S[0] == 5.25 && S[1] == 10.5 && S[2] == 1.5 && S[3] == 2);
    assert_true(o[0] == 13.5 && o[1] == 25);
}

static void clamps(void **state) {
    (void)state;
    assert_true(oracle_decay_prefill(0, false) == 1e-30 && oracle_decay_prefill(1, false) == 1);
    assert_true(fabs(oracle_decay_prefill(-INFINITY, true) / 1e-30 - 1) < 1e-12 && oracle_decay_prefill(0, true) == 1);
    assert_true(oracle_decay_decode(0, false) == 1e-6 && oracle_decay_decode(1, false) == 1 - 1e-6);
    assert_true(oracle_decay_decode(-INFINITY, true) == 1e-6 && oracle_decay_decode(0, true) == 1 - 1e-6);
}

static void bf16_and_small_parts(void **state) {
    (void)state;
    assert_int_equal(num_to_bf16(1.0), 0x3F80);
    assert_int_equal(num_to_bf16(1 + 0x1p-8), 0x3F80);           /* a tie: to even */
    assert_int_equal(num_to_bf16(1 + 3 * 0x1p-8), 0x3F82);       /* a tie: to even, upwards */
    assert_int_equal(num_to_bf16(1 + 0x1p-8 + 0x1p-16), 0x3F81); /* just above a tie */
    assert_true(isnan(num_from_bf16(num_to_bf16(NAN))) && isinf(num_from_bf16(num_to_bf16(3.4e38))));
    for (uint32_t h = 0; h < 0x10000; h++) {
        const double x = num_from_bf16((uint16_t)h);
        if (!isnan(x)) assert_int_equal(num_to_bf16(x), h);
    }
    assert_true(fabs(oracle_silu(1) - 0.731058578630005) < 1e-15 && fabs(oracle_beta(0.5) - 0.622459331201855) < 1e-15);
    assert_true(fabs(oracle_log_decay(100, -8, 0) + 20 * exp(-8)) < 1e-9);
    const double w[] = { 1, 0, 0, 0 }, hist[] = { 7, 8, 9 }, x[] = { 1, 2, 3, 4 };
    double y[4];
    oracle_conv(w, 4, 0.5, false, hist, x, 4, y);
    assert_true(y[0] == 7.5 && y[1] == 8.5 && y[2] == 9.5 && y[3] == 1.5);
}

static void fp4_codes(void **state) {
    (void)state;
    assert_true(oracle_ue4m3(0x38) == 1 && oracle_ue4m3(0x7E) == 448 && oracle_ue4m3(1) == 0x1p-9 && isnan(oracle_ue4m3(0x7F)));
    for (uint32_t c = 0; c < 127; c++) assert_int_equal(oracle_to_ue4m3((float)oracle_ue4m3(c)), c);
    assert_int_equal(oracle_to_ue4m3(1e9f), 0x7E);
    for (uint32_t c = 0; c < 16; c++) assert_int_equal(oracle_to_e2m1((float)oracle_e2m1(c)), c == 8 ? 0 : c);
    assert_int_equal(oracle_to_e2m1(-5.0f), 8 | 6);
    assert_int_equal(oracle_to_e2m1(100.0f), 7);
}

/* ---- the harness: what must not pass does not ---- */
static guard sink;
static void fill_a(void *ctx) {
    (void)ctx;
    for (uint32_t i = 0; i < 64; i++) num_put(sink.p, GDN_F32, i, i + 1);
}
static void fill_b(void *ctx) {
    fill_a(ctx);
    num_put(sink.p, GDN_F32, 9, 10.01);
}
static void fill_half(void *ctx) {
    (void)ctx;
    for (uint32_t i = 0; i < 32; i++) num_put(sink.p, GDN_F32, i, i + 1);
}
static void fill_zero(void *ctx) {
    (void)ctx;
    memset(sink.p, 0, sink.bytes);
}
static void fill_drifting(void *ctx) {
    static uint32_t calls;
    fill_a(ctx);
    num_put(sink.p, GDN_F32, 3, 4 + 1e-5 * calls++);
}
static void fill_before(void *ctx) {
    fill_a(ctx);
    sink.p[-1] = 0;
}

static bool pair(void (*ref)(void *), void (*variant)(void *), double tol) {
    char why[256] = "";
    const ck_output out = { "sink", &sink, GDN_F32, tol };
    const ck_pair p = { .name = "pair", .ref = ref, .variant = variant, .out = &out, .n_out = 1 };
    const bool ok = ck_pair_check(&p, why, sizeof why);
    assert_true(ok || why[0]);
    return ok;
}

static void checkkern_notices_what_it_must(void **state) {
    (void)state;
    sink = guard_alloc(64 * 4);
    assert_true(pair(fill_a, fill_a, 0) && pair(fill_a, fill_a, 1e-5));
    assert_false(pair(fill_a, fill_b, 0));
    assert_false(pair(fill_a, fill_b, 1e-5));
    assert_true(pair(fill_a, fill_b, 1e-2));
    assert_false(pair(fill_a, fill_half, 1e-2));     /* the rest is poison */
    assert_false(pair(fill_zero, fill_zero, 1e-5));  /* a zero reference proves nothing */
    assert_false(pair(fill_a, fill_drifting, 1e-3)); /* other bytes at the second run */
    assert_false(pair(fill_a, fill_before, 0));      /* a canary is gone */
    guard_free(&sink);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_form_is_the_token_recurrence),
        cmocka_unit_test(one_token_by_hand),
        cmocka_unit_test(clamps),
        cmocka_unit_test(bf16_and_small_parts),
        cmocka_unit_test(fp4_codes),
        cmocka_unit_test(checkkern_notices_what_it_must),
    };
    return cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
}
