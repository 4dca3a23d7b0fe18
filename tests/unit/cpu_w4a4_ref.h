/* cpu_w4a4_ref.h - NVFP4 for tests: values, a quantiser that searches all codes, the instruction and a projection by it in
 * integers, and where codes and scales are stored.
 *
 * Written from the definitions; nothing of the kernels is used. */
#ifndef GDN_TEST_CPU_W4A4_REF_H
#define GDN_TEST_CPU_W4A4_REF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- formats, from their definitions ---- */
static const double e2m1_value[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
static inline double e2m1(uint32_t code) {
    return (code & 8 ? -1 : 1) * e2m1_value[code & 7];
}
static inline double ue4m3(uint32_t b) {
    return (b & 0x7f) == 0x7f ? (double)NAN : b & 0x78 ? ldexp(8 + (b & 7), (int)(b >> 3 & 15) - 10) : ldexp(b & 7, -9);
}

/* Nearest of codes 0..last by distance, ties to the even code. Exact: all differences are of f32 values close together. */
static inline uint32_t nearest(double x, double (*value)(uint32_t), uint32_t last) {
    uint32_t best = 0;
    for (uint32_t i = 1; i <= last; i++) {
        const double d = fabs(value(i) - x), e = fabs(value(best) - x);
        if (d < e || (d == e && i % 2 == 0)) best = i;
    }
    return best;
}

typedef struct plain { /* row-major codes and scales */
    uint8_t *code, *scale;
    float *ag;
} plain;

static inline void slow_quant(const double *x, uint32_t K, uint8_t *code, uint8_t *scale, float *ag) {
    float amax = 0;
    bool bad = false;
    for (uint32_t k = 0; k < K; k++) {
        bad |= !isfinite(x[k]);
        amax = fmaxf(amax, fabsf((float)x[k]));
    }
    *ag = bad ? NAN : amax > 0 ? amax / 2688.0f : 1.0f;
    memset(code, 0, K);
    memset(scale, 0, K / 16);
    for (uint32_t g = 0; g < K / 16 && !bad; g++) {
        float gm = 0;
        for (uint32_t i = 0; i < 16; i++) gm = fmaxf(gm, fabsf((float)x[g * 16 + i]));
        const float want = gm / 6.0f / *ag;
        scale[g] = (uint8_t)nearest((double)want, ue4m3, 0x7e);
        const float step = (float)ue4m3(scale[g]) * *ag;
        for (uint32_t i = 0; i < 16 && scale[g]; i++) {
            const float q = (float)x[g * 16 + i] / step;
            const uint32_t c = nearest((double)fabsf(q), e2m1, 7);
            code[g * 16 + i] = (uint8_t)(c && q < 0 ? c | 8 : c);
        }
    }
}

/* ---- the storage order, in the words of its definition ---- */
static inline uint64_t code_at(uint32_t K, uint32_t m, uint32_t k, uint32_t *shift) {
    const uint32_t c = k / 128, b = k % 128 / 16, h = k % 16 / 8, p = b / 4, s = b % 4 / 2, j = b % 2, n = m % 8, nch = K / 128;
    *shift = k % 2 * 4;
    return (((uint64_t)(m / 8) * nch + c) * 32 + 4 * n + 2 * p + h) * 16 + (2 * j + s) * 4 + k % 8 / 2;
}
static inline uint64_t scale_at(uint32_t K, uint32_t m, uint32_t g) {
    const uint32_t c = g / 8, b = g % 8, p = b / 4, s = b % 4 / 2, j = b % 2, n = m % 8, nch = K / 128;
    return (((uint64_t)(m / 8) * nch + c) * 8 + n) * 8 + 4 * j + 2 * s + p;
}

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* ---- the instruction in integers: one MMA, one output ---- */
static inline void scale_parts(uint8_t b, int *m, int *e) {
    const int x = b >> 3 & 15;
    *m = (b & 7) + (x ? 8 : 0);
    *e = x ? x - 7 : *m ? -6 : -126;
}
static inline float ref_mma(float C, const int dot[4], const uint8_t sa[4], const uint8_t sb[4]) {
    uint32_t u;
    memcpy(&u, &C, 4);
    const int ex = (int)(u >> 23 & 255), ec = ex ? ex - 127 : -126;
    const int64_t mc = (int64_t)(u & 0x7fffff) | (ex ? 0x800000 : 0);
    if (C != C) return C;
    int mx = ec, e[4];
    int64_t num[4], sum = 0;
    for (int b = 0; b < 4; b++) {
        int m0, e0, m1, e1;
        if ((sa[b] & 0x7f) == 0x7f || (sb[b] & 0x7f) == 0x7f) return NAN;
        scale_parts(sa[b], &m0, &e0);
        scale_parts(sb[b], &m1, &e1);
        num[b] = (int64_t)dot[b] * m0 * m1, e[b] = e0 + e1;
        mx = e[b] > mx ? e[b] : mx;
    }
    for (int b = 0; b < 5; b++) { /* units of 2^(mx-35) */
        const int64_t v = b < 4 ? llabs(num[b]) : mc;
        const int sh = b < 4 ? 27 + e[b] - mx : 12 + ec - mx;
        const int64_t t = sh >= 0 ? v << sh : sh > -63 ? v >> -sh : 0;
        sum += (b < 4 ? num[b] < 0 : (u >> 31) != 0) ? -t : t;
    }
    int64_t a = llabs(sum);
    int drop = 0;
    while (a >> drop >= (1 << 24)) drop++;
    a = a >> drop << drop;
    return (float)ldexp((double)(sum < 0 ? -a : a), mx - 35);
}

static inline int twice(uint8_t c) {
    return (int)(2 * e2m1(c));
}

static inline float ref_acc(const plain *A, uint32_t m, const plain *B, uint32_t n, uint32_t K) {
    float partial[8] = { 0 }, total = 0;
    for (uint32_t c = 0; c < K / 128; c++)
        for (uint32_t j = 0; j < 2; j++) {
            int dot[4] = { 0 };
            uint8_t sa[4], sb[4];
            for (uint32_t i = 0; i < 4; i++) {
                const uint64_t g = c * 8 + 2 * i + j;
                for (uint32_t k = 0; k < 16; k++)
                    dot[i] += twice(A->code[(uint64_t)m * K + g * 16 + k]) * twice(B->code[(uint64_t)n * K + g * 16 + k]);
                sa[i] = A->scale[(uint64_t)m * (K / 16) + g], sb[i] = B->scale[(uint64_t)n * (K / 16) + g];
            }
            partial[c % 8] = ref_mma(partial[c % 8], dot, sb, sa);
        }
    for (int w = 0; w < 8; w++) total += partial[w];
    return total;
}

/* ---- memory ---- */
static inline plain plain_alloc(uint32_t rows, uint32_t K) {
    const plain p = { calloc((size_t)rows * K, 1), calloc((size_t)rows * (K / 16), 1), calloc(rows, sizeof(float)) };
    assert_true(p.code && p.scale && p.ag);
    return p;
}
static inline void plain_free(plain *p) {
    free(p->code);
    free(p->scale);
    free(p->ag);
}

#endif
