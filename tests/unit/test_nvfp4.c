/* test_nvfp4.c - weights to NVFP4: against the definition, value by value; ties, saturation, subnormal scales, zeros, NaN. */
#include "nvfp4.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { K = 64, ROWS = 5, N = K * ROWS };

static double value_of(uint32_t code) {
    static const double v[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    return code & 8 ? -v[code & 7] : v[code & 7];
}
static double scale_of(uint8_t s) {
    return s >> 3 ? ldexp(8 + (s & 7), (s >> 3) - 10) : ldexp(s & 7, -9);
}
/* The nearest of n values to x, the even index at a tie. */
static uint32_t nearest(double x, double (*value)(uint32_t), uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        const double a = fabs(x - value(i)), b = fabs(x - value(best));
        if (a < b || (a == b && i % 2 == 0)) best = i;
    }
    return best;
}
static double scale_at(uint32_t i) {
    return scale_of((uint8_t)i);
}

static uint32_t bits = 7;
static float uniform(void) {
    bits = bits * 1664525u + 1013904223u;
    return (float)(bits >> 8) * 0x1p-23f - 1;
}

static void by_definition(const float *w) {
    uint8_t codes[N / 2], scales[N / 16];
    float amax = 0;
    for (uint32_t i = 0; i < N; i++) amax = fabsf(w[i]) > amax ? fabsf(w[i]) : amax;
    const float scale2 = gdn__nvfp4(w, ROWS, K, codes, scales), want = amax > 0 ? amax / 2688.0f : 1.0f;
    assert_memory_equal(&scale2, &want, sizeof want);
    for (uint32_t b = 0; b < N / 16; b++) {
        float gm = 0;
        for (uint32_t i = 0; i < 16; i++) gm = fabsf(w[b * 16 + i]) > gm ? fabsf(w[b * 16 + i]) : gm;
        assert_int_equal(scales[b], nearest((double)(gm / 6.0f / scale2), scale_at, 0x7f));
        const float step = (float)scale_of(scales[b]) * scale2;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t at = b * 16 + i, code = codes[at / 2] >> (at % 2 * 4) & 15;
            const uint32_t size = step > 0 ? nearest((double)fabsf(w[at] / step), value_of, 8) : 0;
            if (code != (size | (size && w[at] < 0 ? 8 : 0))) fail_msg("value %u: code %u of %g, step %g", at, code, w[at], step);
        }
    }
}

static void values(void **state) {
    (void)state;
    float w[N];
    for (uint32_t round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < N; i++) w[i] = uniform() * (round % 3 == 1 ? expf(8 * uniform()) : 1);
        if (round % 4 == 2) w[77] = 3e4f; /* others' scales become subnormal, or 0 */
        by_definition(w);
    }
    for (uint32_t i = 0; i < N; i++) w[i] = (float)((int)(i % 25) - 12) / 4; /* ties: with amax 2688 steps are powers of two */
    w[0] = 2688;
    by_definition(w);
    memset(w, 0, sizeof w);
    by_definition(w);
    w[3] = -0.0f;
    by_definition(w);
}

/* What comes back is within half a step of the grid, and a column of the wrong block would not be. */
static void nothing_is_moved(void **state) {
    (void)state;
    float w[N];
    uint8_t codes[N / 2], scales[N / 16];
    double error = 0, norm = 0;
    for (uint32_t i = 0; i < N; i++) w[i] = uniform();
    const double scale2 = (double)gdn__nvfp4(w, ROWS, K, codes, scales);
    for (uint32_t i = 0; i < N; i++) {
        const double x = value_of(codes[i / 2] >> (i % 2 * 4) & 15) * scale_of(scales[i / 16]) * scale2 - (double)w[i];
        error += x * x;
        norm += (double)w[i] * (double)w[i];
    }
    assert_true(sqrt(error / norm) < 0.12);
}

static void not_finite(void **state) {
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (uint32_t k = 0; k < 3; k++) {
        float w[N] = { 1, 2, 3 };
        uint8_t codes[N / 2], scales[N / 16];
        memset(codes, 0xff, sizeof codes);
        memset(scales, 0xff, sizeof scales);
        w[100] = bad[k];
        assert_true(isnan(gdn__nvfp4(w, ROWS, K, codes, scales)));
        for (uint32_t i = 0; i < N / 2; i++) assert_int_equal(codes[i], 0);
        for (uint32_t i = 0; i < N / 16; i++) assert_int_equal(scales[i], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(values), cmocka_unit_test(nothing_is_moved), cmocka_unit_test(not_finite) };
    return cmocka_run_group_tests_name("nvfp4", tests, NULL, NULL) != 0;
}
