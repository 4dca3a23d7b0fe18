/* conv_vec.h - loads, stores, exp and sums of the elementwise families (conv, norm, ba_gates), for one instruction set.
 *
 * Everything here gives the same bytes on every instruction set: no FMA, and sums keep sixteen partial sums whatever the
 * width of a register is. */
#ifndef GDN_CONV_VEC_H
#define GDN_CONV_VEC_H

#include "cpu_kernels.h"
#include "vmath.h"

enum { SUM_LANES = 16 };

/* Elements [i, i + VL) of a row of n, the ones past n zero; nothing past n is touched. `full` is a constant of the caller:
 * the loop over whole vectors must have no branch for the last one, or the compiler hoists nothing out of it. */
GDN_INLINE vf vload_row(const void *row, uint32_t i, uint32_t n, bool f32, bool full) {
    if (full) return vload_act(f32, row, i);
    float t[VL] = { 0 };
    for (uint32_t j = 0; i + j < n; j++) t[j] = f32 ? ((const float *)row)[i + j] : gdn_bf16_to_f32(((const uint16_t *)row)[i + j]);
    return vload(t);
}

GDN_INLINE void vstore_row(void *row, uint32_t i, uint32_t n, bool f32, bool full, vf x) {
    if (full) {
        vstore_act(f32, row, i, x);
        return;
    }
    float t[VL];
    vstore(t, x);
    for (uint32_t j = 0; i + j < n; j++) {
        if (f32)
            ((float *)row)[i + j] = t[j];
        else
            ((uint16_t *)row)[i + j] = gdn_f32_to_bf16(t[j]);
    }
}

/* exp(x) below 1 ulp, overflow gives +inf; below -87 some value under 2^-125, and for a NaN +inf: callers add 1 to it and
 * divide the NaN itself. x = n ln2 + r, with what r lost in rounding kept in `low`; Taylor to r^7 (remainder 6e-9). */
GDN_INLINE vf vexp_bytes(vf x) {
    const vf hi = vset(89.0f), lo = vset(-87.0f), magic = vset(12582912.0f); /* 1.5 * 2^23: the fraction bits are an integer */
    x = vsel((vi)(x < hi), x, hi);
    x = vsel((vi)(x > lo), x, lo);
    const vf t = x * 1.44269504f + magic, nf = t - magic;
    const vi n = (vi)t - (vi)magic;     /* -126 to 128 */
    const vf h = x - nf * 0x1.62e4p-1f; /* 15 bits of ln2: exact */
    const vf c = nf * 0x1.7f7d1cp-20f;
    const vf r = h - c, low = (h - r) - c;
    vf p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    const vf y = 1.0f + (r + (r * r * p + low));
    return (y + y) * (vf)((n + 126) << 23);
}

GDN_INLINE vf vsigmoid(vf x) {
    return 1.0f / (1.0f + vexp_bytes(-x));
}
GDN_INLINE vf vsilu(vf x) {
    return x / (1.0f + vexp_bytes(-x));
}

/* The sum of squares of a row: sixteen partial sums, then (0+8, 1+9, ...), by 4, 2, 1. */
GDN_INLINE float vsquares(const void *row, uint32_t n, bool f32) {
    enum { VECTORS = SUM_LANES / VL };
    vf part[VECTORS] = { { 0 } };
    uint32_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (uint32_t j = 0; j < VECTORS; j++) {
            const vf v = vload_act(f32, row, i + j * VL);
            part[j] += v * v;
        }
    float t[SUM_LANES];
    for (uint32_t j = 0; j < VECTORS; j++) vstore(t + j * VL, part[j]);
    for (uint32_t l = 0; i + l < n; l++) {
        const float v = f32 ? ((const float *)row)[i + l] : gdn_bf16_to_f32(((const uint16_t *)row)[i + l]);
        t[l] += v * v;
    }
    for (uint32_t off = SUM_LANES / 2; off; off /= 2)
        for (uint32_t l = 0; l < off; l++) t[l] += t[l + off];
    return t[0];
}

#endif
