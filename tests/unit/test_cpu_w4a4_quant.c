/* test_cpu_w4a4_quant.c - gdn_cpu_w4a4_quant called directly, byte for byte against a search over all codes. */
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

static uint64_t wrong_rows(const gdn_cpu_w4a4 *c, const plain *want) {
    uint64_t bad = 0;
    for (uint32_t m = 0; m < c->M; m++) {
        for (uint32_t k = 0; k < c->K; k++) {
            uint32_t shift;
            const uint64_t at = code_at(c->K, m, k, &shift);
            bad += (c->aq[at] >> shift & 15) != want->code[(uint64_t)m * c->K + k];
        }
        for (uint32_t g = 0; g < c->K / 16; g++) bad += c->as[scale_at(c->K, m, g)] != want->scale[(uint64_t)m * (c->K / 16) + g];
        bad += (isnan(want->ag[m]) ? !isnan(c->ag[m]) : bits_of(c->ag[m]) != bits_of(want->ag[m])) ? 1 : 0;
    }
    return bad;
}

/* A: M rows of K, `gap` elements apart. Checks bytes, thread counts, untouched rows past M, and a control. */
static void check_quant(const double *A, uint32_t M, uint32_t K, uint32_t gap, bool f32) {
    const uint32_t type = f32 ? GDN_F32 : GDN_BF16, stride = K + gap;
    guard a = guard_alloc(((uint64_t)(M - 1) * stride + K) * num_size(type)), aq = guard_alloc(GDN_W4A4_AQ_BYTES(M, K));
    guard as = guard_alloc(GDN_W4A4_AS_BYTES(M, K)), ag = guard_alloc(M * 4u), kept = { 0 };
    plain want = plain_alloc(M, K);
    double *const seen = calloc(K, sizeof *seen);
    assert_non_null(seen);
    guard_poison(&a);
    for (uint32_t m = 0; m < M; m++) {
        for (uint32_t k = 0; k < K; k++) {
            num_put(a.p, type, (uint64_t)m * stride + k, A[(uint64_t)m * K + k]);
            seen[k] = num_get(a.p, type, (uint64_t)m * stride + k);
        }
        slow_quant(seen, K, want.code + (uint64_t)m * K, want.scale + (uint64_t)m * (K / 16), want.ag + m);
    }
    const gdn_cpu_w4a4 c = {
        .A = a.p, .aq = aq.p, .as = as.p, .ag = (float *)(void *)ag.p, .M = M, .K = K, .a_stride = stride, .f32 = f32
    };
    for (int threads = 1; threads <= 3; threads += 2) {
        guard_poison(&aq);
        guard_poison(&as);
        guard_poison(&ag);
        omp_set_num_threads(threads);
        gdn_cpu_w4a4_quant(&c);
        if (!kept.p) kept = guard_copy(&aq);
        assert_memory_equal(kept.p, aq.p, aq.bytes);
    }
    assert_int_equal(wrong_rows(&c, &want), 0);
    for (uint32_t m = M; m < (M + 7) / 8 * 8; m++) {
        uint32_t shift;
        for (uint32_t k = 0; k < K; k++) assert_int_equal(aq.p[code_at(K, m, k, &shift)], 0xff);
        for (uint32_t g = 0; g < K / 16; g++) assert_int_equal(as.p[scale_at(K, m, g)], 0xff);
    }
    as.p[0] ^= 1; /* control */
    assert_int_equal(wrong_rows(&c, &want), 1);
    guard *const all[] = { &a, &aq, &as, &ag, &kept, NULL };
    for (size_t i = 0; all[i]; i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
    free(seen);
    plain_free(&want);
}

static void test_quant_random(void **state) {
    (void)state;
    enum { M = 11, K = 384 };
    rng r = { 1 };
    static double A[M * K];
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < M * K; i++) /* block sizes from far below the row's largest (scale 0, subnormal) up to it */
            A[i] = rng_uniform(&r, -1, 1) * exp2(-(double)((i / 16 * 2654435761u + round) % 22)) * (i % 997 == 5 ? 100 : 1);
        check_quant(A, round % 2 ? M : 8, K, round % 3 * 5, round % 2);
    }
}

/* Every decision point of the codes (scale 1 row factor 1: amax = 2688 in a block of its own), and both neighbours. */
static void test_quant_boundaries(void **state) {
    (void)state;
    enum { K = 128 };
    static const double point[8] = { 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0 };
    static const uint8_t tie[8] = { 0, 2, 2, 4, 4, 6, 6, 7 };
    double A[K] = { 0 };
    A[0] = 2688;
    for (int i = 0; i < 8; i++) A[16 + i] = point[i] == 7.0 ? 6 : point[i], A[24 + i] = -A[16 + i];
    for (int i = 0; i < 7; i++) A[32 + i] = point[i] * (1 + 0x1p-7), A[40 + i] = -point[i] * (1 - 0x1p-8);
    A[39] = 6;
    check_quant(A, 1, K, 0, true);
    check_quant(A, 1, K, 0, false);
    float in[K];
    for (int i = 0; i < K; i++) in[i] = (float)A[i];
    uint8_t aq[8 * 64], as[64];
    float ag;
    const gdn_cpu_w4a4 c = { .A = in, .aq = aq, .as = as, .ag = &ag, .M = 1, .K = K, .a_stride = K, .f32 = true };
    gdn_cpu_w4a4_quant(&c);
    assert_true(ag == 1.0f && as[scale_at(K, 0, 1)] == 0x38); /* 1.0 */
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t shift;
        const uint8_t byte = aq[code_at(K, 0, 16 + i, &shift)];
        assert_int_equal(byte >> shift & 15, i < 8 ? tie[i] : tie[i - 8] ? tie[i - 8] | 8 : 0);
    }
    /* Saturation: the scale rounds down (gm/6 = 17/16 takes 1.0), so 6.375/1 becomes 6. */
    in[16] = 6.375f;
    for (int i = 17; i < 32; i++) in[i] = 7.0f * 6.375f / 7.0f;
    gdn_cpu_w4a4_quant(&c);
    assert_true(as[scale_at(K, 0, 1)] == 0x38);
    for (uint32_t i = 16; i < 32; i++) {
        uint32_t shift;
        const uint8_t byte = aq[code_at(K, 0, i, &shift)];
        assert_int_equal(byte >> shift & 15, 7);
    }
}

/* Every scale value, every midpoint between two scales, and the f32 neighbours of both. */
static void test_quant_scales(void **state) {
    (void)state;
    enum { M = 64, K = 128 };
    static double A[M * K];
    uint32_t block = 0;
    memset(A, 0, sizeof A);
    for (uint32_t s = 0; s < 0x7e; s++)
        for (int v = -1; v <= 1; v++) {
            const double mid = (ue4m3(s) + ue4m3(s + 1)) / 2, gm = (double)(float)(mid * 6);
            A[(uint64_t)(block / 7) * K + 16 + block % 7 * 16] = v == 0 ? gm : (double)nextafterf((float)gm, v > 0 ? INFINITY : 0);
            if (++block % 7 == 0 || s == 0x7d) A[(uint64_t)((block - 1) / 7) * K] = 2688;
        }
    const uint32_t rows = (block + 6) / 7;
    assert_true(rows <= M);
    check_quant(A, rows, K, 0, true);
}

static void test_quant_special_rows(void **state) {
    (void)state;
    enum { M = 7, K = 256 };
    static double A[M * K];
    rng r = { 9 };
    for (int i = 0; i < M * K; i++) A[i] = rng_uniform(&r, -2, 2);
    for (int k = 0; k < K; k++) A[K + k] = k % 2 ? 0 : -0.0; /* all zero */
    A[2 * K + 100] = (double)NAN;
    A[3 * K + 255] = (double)INFINITY;
    for (int k = 0; k < K; k++) A[4 * K + k] = k == 7 ? 3e38 : 1e-3; /* one outlier */
    for (int k = 0; k < K; k++) A[5 * K + k] *= 1e-36;
    check_quant(A, M, K, 3, false);
    check_quant(A, M, K, 0, true);
    /* Below what f32 can divide: zeros, no NaN. */
    float tiny[128] = { 1e-45f }, ag = -1;
    uint8_t aq[512], as[64];
    const gdn_cpu_w4a4 c = { .A = tiny, .aq = aq, .as = as, .ag = &ag, .M = 1, .K = 128, .a_stride = 128, .f32 = true };
    gdn_cpu_w4a4_quant(&c);
    assert_true(ag == 0 && as[0] == 0);
    for (uint32_t k = 0; k < 128; k++) {
        uint32_t shift;
        const uint64_t at = code_at(128, 0, k, &shift);
        assert_int_equal(aq[at] >> shift & 15, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quant_random),
        cmocka_unit_test(test_quant_boundaries),
        cmocka_unit_test(test_quant_scales),
        cmocka_unit_test(test_quant_special_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
