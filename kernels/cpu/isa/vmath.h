/* vmath.h - arithmetic on the vectors of isa.h: fused multiply-add, sum, exp, bf16 rows, transposition.
 *
 * vfma is one rounding where the instruction set has it (AVX2 and AVX-512 forms), product and sum in the base form. */
#ifndef GDN_VMATH_H
#define GDN_VMATH_H

#include "isa.h"
#include <stdbool.h>

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

/* For loops of constant length, which must go entirely: arrays of vectors are registers only then. */
#ifdef __clang__
#define GDN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GDN_UNROLL _Pragma("GCC unroll 16")
#endif

typedef uint32_t vu __attribute__((vector_size(VL * 4), may_alias));
typedef uint16_t vh __attribute__((vector_size(VL * 2), may_alias));
typedef uint16_t vh_unaligned __attribute__((vector_size(VL * 2), aligned(2), may_alias));

/* a b + c */
GDN_INLINE vf vfma(vf a, vf b, vf c) {
#if VL == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8 && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* The sum of the lanes, by halves. */
GDN_INLINE float vsum(vf x) {
    float t[VL];
    vstore(t, x);
    for (int w = VL / 2; w; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

/* exp x for x <= 0: 2^n p(r), |r| <= ln 2 / 2, degree 6. Below -87 it is 0, so no result is subnormal; a NaN stays one. */
GDN_INLINE vf vexp(vf x) {
    const vf shift = vset(12582912.f); /* 1.5 * 2^23: adding it rounds to an integer and leaves it in the low bits */
    vf t = vfma(x, vset(1.44269504f), shift), n = t - shift;
    vf r = vfma(n, vset(2.12194440e-4f), vfma(n, vset(-0.693359375f), x));
    vf p = vfma(r, vset(1.9875691500e-4f), vset(1.3981999507e-3f));
    p = vfma(p, r, vset(8.3334519073e-3f));
    p = vfma(p, r, vset(4.1665795894e-2f));
    p = vfma(p, r, vset(1.6666665459e-1f));
    p = vfma(p, r, vset(5.0000001201e-1f));
    p = vfma(p, r * r, r) + vset(1.f);
    vi e = ((vi)t - 0x4B400000 + 127) << 23;
    return vsel((vi)(x < vset(-87.f)), vset(0.f), p * (vf)e);
}

/* bf16 in memory, any element alignment; stores round to nearest even, a NaN stays a quiet NaN. */
GDN_INLINE vf vload_bf16(const uint16_t *p) {
    return (vf)(__builtin_convertvector(*(const vh_unaligned *)p, vu) << 16);
}
GDN_INLINE void vstore_bf16(uint16_t *p, vf x) {
    vu u = (vu)x, even = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
    vu is_nan = (vu)(x != x); /* NOLINT(misc-redundant-expression): what a NaN is */
    *(vh_unaligned *)p = __builtin_convertvector((is_nan & nan) | (~is_nan & even), vh);
}
GDN_INLINE vf vload_act(bool f32, const void *p, uint64_t i) {
    return f32 ? vload((const float *)p + i) : vload_bf16((const uint16_t *)p + i);
}
GDN_INLINE void vstore_act(bool f32, void *p, uint64_t i, vf x) {
    if (f32)
        vstore((float *)p + i, x);
    else
        vstore_bf16((uint16_t *)p + i, x);
}

/* VL x VL transposition in registers: step s exchanges the off-diagonal s x s blocks of every 2s x 2s block. */
#define GDN_LO_(s, p)        (((p) & (s)) ? VL + (p) - (s) : (p))
#define GDN_HI_(s, p)        (((p) & (s)) ? VL + (p) : (p) + (s))
#define GDN_LANES4_(F, s, p) F(s, (p)), F(s, (p) + 1), F(s, (p) + 2), F(s, (p) + 3)
#if VL == 16
#define GDN_LANES_(F, s) GDN_LANES4_(F, s, 0), GDN_LANES4_(F, s, 4), GDN_LANES4_(F, s, 8), GDN_LANES4_(F, s, 12)
#elif VL == 8
#define GDN_LANES_(F, s) GDN_LANES4_(F, s, 0), GDN_LANES4_(F, s, 4)
#else
#define GDN_LANES_(F, s) GDN_LANES4_(F, s, 0)
#endif
#define GDN_EXCHANGE_(s)                                                    \
    GDN_UNROLL for (int i = 0; i < VL; i++) if (!(i & (s))) {               \
        vf a = r[i], b = r[i + (s)];                                        \
        r[i] = __builtin_shufflevector(a, b, GDN_LANES_(GDN_LO_, s));       \
        r[i + (s)] = __builtin_shufflevector(a, b, GDN_LANES_(GDN_HI_, s)); \
    }
GDN_INLINE void vtranspose(vf r[VL]) {
    GDN_EXCHANGE_(1)
    GDN_EXCHANGE_(2)
#if VL >= 8
    GDN_EXCHANGE_(4)
#endif
#if VL >= 16
    GDN_EXCHANGE_(8)
#endif
}

#endif
