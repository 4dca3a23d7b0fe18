/* test_cpu_w4a4.c - gdn_cpu_w4a4_gemv called directly.
 *
 * Bit for bit against the instruction's model in 64-bit integers on plain (row-major) codes; against f64 as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <omp.h>

#include "cpu_kernels.h"
#include "cpu_w4a4_ref.h"
#include "gdn_op_w4a4.h"
#include "guard.h"
#include "numeric.h"

/* ---- a projection and its buffers ---- */
typedef struct proj {
    gdn_cpu_w4a4 c;
    guard aq, as, ag, bq, bs, C;
    plain A, B;
} proj;

/* lo..hi: scale bytes; wild: now and then any byte that is not NaN. */
static void fill_side(plain *p, uint32_t rows, uint32_t K, rng *r, uint8_t lo, uint8_t hi, bool wild) {
    for (uint64_t i = 0; i < (uint64_t)rows * K; i++) p->code[i] = (uint8_t)rng_below(r, 16);
    for (uint64_t i = 0; i < (uint64_t)rows * (K / 16); i++)
        p->scale[i] = (uint8_t)(wild && rng_below(r, 4) == 0 ? rng_below(r, 0x7f) : lo + rng_below(r, (uint32_t)(hi - lo) + 1));
    for (uint32_t m = 0; m < rows; m++) p->ag[m] = (float)rng_uniform(r, 0.001, 0.01);
}

static void put_plain(proj *t) {
    const uint32_t K = t->c.K;
    guard_poison(&t->aq); /* padding tokens: codes F, scales NaN */
    guard_poison(&t->as);
    for (uint32_t m = 0; m < t->c.M; m++) {
        for (uint32_t k = 0; k < K; k++) {
            uint32_t shift;
            const uint64_t at = code_at(K, m, k, &shift);
            t->aq.p[at] = (uint8_t)((t->aq.p[at] & ~(15u << shift)) | (uint32_t)t->A.code[(uint64_t)m * K + k] << shift);
        }
        for (uint32_t g = 0; g < K / 16; g++) t->as.p[scale_at(K, m, g)] = t->A.scale[(uint64_t)m * (K / 16) + g];
    }
    memcpy(t->ag.p, t->A.ag, t->c.M * 4u);
    for (uint64_t i = 0; i < (uint64_t)t->c.N * K; i += 2) t->bq.p[i / 2] = (uint8_t)(t->B.code[i] | t->B.code[i + 1] << 4);
    memcpy(t->bs.p, t->B.scale, (uint64_t)t->c.N * (K / 16));
}

static void proj_make(proj *t, uint32_t M, uint32_t N, uint32_t K, bool f32) {
    t->aq = guard_alloc(GDN_W4A4_AQ_BYTES(M, K)), t->as = guard_alloc(GDN_W4A4_AS_BYTES(M, K)), t->ag = guard_alloc(M * 4u);
    t->bq = guard_alloc((uint64_t)N * K / 2), t->bs = guard_alloc((uint64_t)N * (K / 16)),
    t->C = guard_alloc((uint64_t)M * N * (f32 ? 4u : 2u));
    t->A = plain_alloc(M, K), t->B = plain_alloc(N, K);
    t->c = (gdn_cpu_w4a4) { .aq = t->aq.p,
                            .as = t->as.p,
                            .ag = (float *)(void *)t->ag.p,
                            .bq = t->bq.p,
                            .bs = t->bs.p,
                            .C = t->C.p,
                            .scale2 = 0.0078125f * 1.1f,
                            .M = M,
                            .N = N,
                            .K = K,
                            .a_stride = K,
                            .f32 = f32 };
}

static void proj_free(proj *t) {
    guard *const all[] = { &t->aq, &t->as, &t->ag, &t->bq, &t->bs, &t->C, NULL };
    for (size_t i = 0; all[i]; i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
    plain_free(&t->A);
    plain_free(&t->B);
}

/* The device's: all ones, no sign. */
static bool one_nan(const uint8_t *C, bool f32, uint64_t i) {
    const uint8_t all_ones[4] = { 0xff, 0xff, 0xff, 0x7f };
    return f32 ? !memcmp(C + 4 * i, all_ones, 4) : !memcmp(C + 2 * i, all_ones + 2, 2);
}
static uint64_t wrong_outputs(const proj *t) {
    uint64_t bad = 0;
    for (uint32_t m = 0; m < t->c.M; m++)
        for (uint32_t n = 0; n < t->c.N; n++) {
            const float want = ref_acc(&t->A, m, &t->B, n, t->c.K) * (t->A.ag[m] * t->c.scale2);
            const double got = num_get(t->C.p, t->c.f32 ? GDN_F32 : GDN_BF16, (uint64_t)m * t->c.N + n);
            const double as = t->c.f32 ? (double)want : num_from_bf16(num_to_bf16((double)want));
            bad += (isnan(as) ? !one_nan(t->C.p, t->c.f32, (uint64_t)m * t->c.N + n) : got != as) ? 1 : 0;
        }
    return bad;
}

static void run(proj *t, int threads) {
    guard_poison(&t->C);
    omp_set_num_threads(threads);
    gdn_cpu_w4a4_gemv(&t->c);
}

static void check_proj(uint32_t M, uint32_t N, uint32_t K, bool f32, uint8_t lo, uint8_t hi, bool wild) {
    proj t;
    rng r = { M * 7919u + N * 31u + K };
    proj_make(&t, M, N, K, f32);
    fill_side(&t.A, M, K, &r, lo, hi, wild);
    fill_side(&t.B, N, K, &r, lo, hi, wild);
    put_plain(&t);
    run(&t, 1);
    guard kept = guard_copy(&t.C);
    run(&t, 3);
    assert_memory_equal(kept.p, t.C.p, t.C.bytes);
    assert_int_equal(wrong_outputs(&t), 0);
    if (f32) { /* control: one flipped weight bit is noticed */
        t.bq.p[K / 2 * (N - 1)] ^= 4;
        run(&t, 1);
        assert_true(wrong_outputs(&t) > 0);
    }
    t.A.ag[M / 2] = -NAN;                  /* one row of NaN */
    t.B.scale[(N - 1) * (K / 16)] |= 0x7f; /* and a column */
    put_plain(&t);
    run(&t, 2);
    assert_int_equal(wrong_outputs(&t), 0);
    guard_free(&kept);
    proj_free(&t);
}

static void test_proj_shapes(void **state) {
    (void)state;
    static const uint32_t ms[] = { 1, 7, 8, 9, 17, 64 }, ks[] = { 128, 384, 1152, 2176 };
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) check_proj(ms[i], k % 2 ? 7 : 35, ks[k], (i + k) % 2, 0x28, 0x3f, false);
    check_proj(2, 464, 256, false, 0x28, 0x3f, false);
    check_proj(1, 3, 32768, true, 0x28, 0x3f, false);
}

/* Scales from one end to the other: where the alignment cuts bits, sums cancel, accumulators grow. */
static void test_proj_extreme_scales(void **state) {
    (void)state;
    for (uint32_t i = 0; i < (TEST_LIGHT ? 2u : 10u); i++) {
        check_proj(5, 33, 1024 + 128 * i, true, 0x00, 0x7e, false);
        check_proj(5, 33, 1024 + 128 * i, true, 0x70, 0x7e, true);
        check_proj(8, 16, 2048, true, 0x00, 0x0f, true);
        check_proj(8, 16, 2048, true, 0x78, 0x7e, i % 2);
        check_proj(3, 17, 8192 + 128 * i, true, 0x50, 0x5f, true);
    }
}

/* The reference model itself does cut: with the alignment left out some of these outputs differ. */
static void test_alignment_matters(void **state) {
    (void)state;
    const int dot[4] = { 16 * 144, 1, 0, 0 };
    const uint8_t big[4] = { 0x7e, 0x01, 0, 0 }; /* exponents 8 and -6: 16 against -12 */
    const float kept = ref_mma(0, dot, big, big), lost = ref_mma(0, (const int[4]) { 0, 1, 0, 0 }, big, big);
    assert_true(kept == (float)(576 * 448.0 * 448.0) && lost == 0); /* 2^-20 is below 2^(16-35) */
    proj t;
    proj_make(&t, 1, 1, 128, true);
    t.A.ag[0] = 1;
    t.c.scale2 = 1;
    memset(t.A.scale, 0, 8);
    memset(t.B.scale, 0, 8);
    t.A.scale[0] = t.B.scale[0] = 0x7e; /* no code: only its exponent counts */
    t.A.scale[2] = t.B.scale[2] = 0x01;
    t.A.code[32] = t.B.code[32] = 1;
    put_plain(&t);
    run(&t, 1);
    assert_true(num_get(t.C.p, GDN_F32, 0) == 0);
    t.A.scale[0] = 0x70; /* one binade less: the term survives */
    put_plain(&t);
    run(&t, 1);
    assert_true(num_get(t.C.p, GDN_F32, 0) == 0x1p-20);
    proj_free(&t);
}

/* One code at the front of block b, both sides; the weight's is negative when asked. */
static void put_term(proj *t, uint32_t b, uint8_t scale, uint8_t a, uint8_t w) {
    t->A.scale[b] = t->B.scale[b] = scale;
    t->A.code[b * 16] = a, t->B.code[b * 16] = w;
}

/* An accumulator is aligned too: its last bits go when the next MMA's scales are large, before the sum is truncated. */
static void test_accumulator_is_aligned(void **state) {
    (void)state;
    for (int with_8 = 0; with_8 < 2; with_8++) {
        proj t;
        proj_make(&t, 1, 1, 128, true);
        t.A.ag[0] = 1;
        t.c.scale2 = 1;
        put_term(&t, 0, 0x01, 1, 9);              /* MMA 0: -2^-20 */
        if (with_8) put_term(&t, 2, 0x38, 4, 14); /* ... and 2 * -4 */
        put_term(&t, 1, 0x7e, 1, 1);              /* MMA 1: 0.25 * 448 * 448, on a grid of 2^-19 */
        put_plain(&t);
        run(&t, 1);
        assert_true(num_get(t.C.p, GDN_F32, 0) == 50176 - 8 * with_8);
        put_term(&t, 1, 0x70, 1, 1); /* 0.25 * 128 * 128 = 4096, on a finer one: the bit counts, and truncation shows it */
        put_plain(&t);
        run(&t, 1);
        assert_true(num_get(t.C.p, GDN_F32, 0) == 4096 - 8 * with_8 - 0x1p-12);
        assert_int_equal(wrong_outputs(&t), 0);
        proj_free(&t);
    }
}

/* Byte 0x21: element 0 is the low nibble (0.5), element 1 the high one (1.0). */
static void test_nibble_order(void **state) {
    (void)state;
    for (uint32_t hot = 0; hot < 2; hot++) {
        proj t;
        float in[128] = { 0 };
        in[hot] = 6;
        proj_make(&t, 1, 1, 128, true);
        t.c.A = in;
        t.c.scale2 = 1;
        gdn_cpu_w4a4_quant(&t.c);
        memset(t.bq.p, 0x21, t.bq.bytes);
        memset(t.bs.p, 0x38, t.bs.bytes);
        run(&t, 1);
        assert_true(fabs(num_get(t.C.p, GDN_F32, 0) - (hot ? 6.0 : 3.0)) < 1e-5);
        proj_free(&t);
    }
}

/* Quantised rows, projected together and alone; zero, NaN and Inf rows; NaN weight scales; C past row M stays. */
static void test_rows_are_independent(void **state) {
    (void)state;
    enum { M = 13, N = 40, K = 640 };
    rng r = { 21 };
    static float A[M * K];
    num_fill(A, GDN_F32, M * K, &r, -3, 3);
    memset(A + 1 * K, 0, K * 4);
    A[2 * K + 5] = NAN;
    A[3 * K + 6] = -INFINITY;
    proj t;
    proj_make(&t, M, N, K, true);
    fill_side(&t.B, N, K, &r, 0x28, 0x3f, false);
    t.B.scale[7 * (K / 16) + 3] = 0x7f; /* weight row 7 */
    put_plain(&t);
    guard_poison(&t.aq);
    guard_poison(&t.as);
    t.c.A = A;
    gdn_cpu_w4a4_quant(&t.c);
    run(&t, 2);
    for (uint32_t n = 0; n < N; n++) {
        assert_true(n == 7 ? isnan(num_get(t.C.p, GDN_F32, N + n)) : num_get(t.C.p, GDN_F32, N + n) == 0);
        assert_true(one_nan(t.C.p, true, 2 * N + n) && one_nan(t.C.p, true, 3 * N + n));
    }
    for (uint32_t m = 0; m < M; m++) {
        uint8_t aq[8 * K / 2], as[8 * K / 16];
        float ag, C[N + 1];
        memset(aq, 0xff, sizeof aq);
        memset(as, 0xff, sizeof as);
        C[N] = 123;
        gdn_cpu_w4a4 one = t.c;
        one.A = A + m * K, one.aq = aq, one.as = as, one.ag = &ag, one.C = C, one.M = 1;
        gdn_cpu_w4a4_quant(&one);
        gdn_cpu_w4a4_gemv(&one);
        assert_true(C[N] == 123);
        assert_memory_equal(C, t.C.p + (size_t)m * N * 4, N * 4);
        /* And f64 over the dequantised values: summation error only. */
        for (uint32_t n = 0; n < N && m > 3 && n != 7; n++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < K; k++) {
                uint32_t shift;
                const uint64_t at = code_at(K, 0, k, &shift);
                const double a = e2m1(aq[at] >> shift & 15) * ue4m3(as[scale_at(K, 0, k / 16)]) * (double)ag;
                const double p = a * e2m1(t.B.code[n * K + k]) * ue4m3(t.B.scale[n * (K / 16) + k / 16]) * (double)t.c.scale2;
                sum += p, size += fabs(p);
            }
            assert_true(fabs((double)C[n] - sum) <= 2e-6 * size);
        }
    }
    proj_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proj_shapes),       cmocka_unit_test(test_proj_extreme_scales),
        cmocka_unit_test(test_alignment_matters), cmocka_unit_test(test_accumulator_is_aligned),
        cmocka_unit_test(test_nibble_order),      cmocka_unit_test(test_rows_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
