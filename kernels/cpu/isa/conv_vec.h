/* conv_vec.h - loads, stores, exp and sums of the elementwise families (conv, norm, ba_gates), for one instruction set.
 *
 * Everything here gives the same bytes on every instruction set: no FMA, and sums keep sixteen partial sums whatever the
 * width of a register is. */
#ifndef GDN_CONV_VEC_H
#define GDN_CONV_VEC_H

#include "cpu_kernels.h"
#include "isa.h"

typedef uint32_t vu __attribute__((vector_size(VL * 4), may_alias));
typedef uint16_t vh __attribute__((vector_size(VL * 2), may_alias));

enum { SUM_LANES = 16 };

/* Activations: bf16 bits or f32, VL of them. */
GDN_INLINE vf vload_bf16(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* Nearest even; a NaN stays a quiet NaN: gdn_f32_to_bf16, VL at a time. */
GDN_INLINE void vstore_bf16(uint16_t *p, vf x) {
    const vu u = (vu)x;
    const vu nan = (vu)(x != x);
    const vu r = ((nan & (u | 0x400000u)) | (~nan & (u + 0x7fffu + ((u >> 16) & 1u)))) >> 16;
    const vh h = __builtin_convertvector(r, vh);
    memcpy(p, &h, sizeof h);
}

/* Elements [i, i + VL) of a row of n, the ones past n zero; nothing past n is touched. */
GDN_INLINE vf vload_row(const void *row, uint32_t i, uint32_t n, bool f32) {
    if (n - i >= VL) return f32 ? vload((const float *)row + i) : vload_bf16((const uint16_t *)row + i);
    float t[VL] = { 0 };
    for (uint32_t j = 0; i + j < n; j++) t[j] = f32 ? ((const float *)row)[i + j] : gdn_bf16_to_f32(((const uint16_t *)row)[i + j]);
    return vload(t);
}

GDN_INLINE void vstore_row(void *row, uint32_t i, uint32_t n, bool f32, vf x) {
    if (n - i >= VL) {
        if (f32)
            vstore((float *)row + i, x);
        else
            vstore_bf16((uint16_t *)row + i, x);
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

/* exp(x) below 1 ulp, +inf and subnormals included; a NaN gives +inf (callers divide the NaN itself by it).
 * x = n ln2 + r, with what r lost in rounding kept in `low`; Taylor to r^7 (remainder 6e-9); 2^n in two factors. */
GDN_INLINE vf vexp_bytes(vf x) {
    const vf hi = vset(89.0f), lo = vset(-104.0f), magic = vset(12582912.0f); /* 1.5 * 2^23: the fraction bits are an integer */
    x = vsel((vi)(x < hi), x, hi);
    x = vsel((vi)(x > lo), x, lo);
    const vf t = x * 1.44269504f + magic, nf = t - magic;
    const vi n = (vi)t - (vi)magic;
    const vf h = x - nf * 0x1.62e4p-1f; /* 15 bits of ln2: exact */
    const vf c = nf * 0x1.7f7d1cp-20f;
    const vf r = h - c, low = (h - r) - c;
    vf p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    const vf y = 1.0f + (r + (r * r * p + low));
    const vi n1 = n >> 1, n2 = n - n1;
    return y * (vf)((n1 + 127) << 23) * (vf)((n2 + 127) << 23);
}

GDN_INLINE vf vsigmoid(vf x) {
    return 1.0f / (1.0f + vexp_bytes(-x));
}
GDN_INLINE vf vsilu(vf x) {
    return x / (1.0f + vexp_bytes(-x));
}

/* Sixteen running sums of squares; `k` counts elements. */
typedef struct vsum {
    vf part[SUM_LANES / VL];
} vsum;

/* (0+8, 1+9, ...), then by 4, 2, 1. */
GDN_INLINE float vsum_total(const vsum *s) {
    float t[SUM_LANES];
    for (uint32_t i = 0; i < SUM_LANES / VL; i++) vstore(t + i * VL, s->part[i]);
    for (uint32_t off = SUM_LANES / 2; off; off /= 2)
        for (uint32_t i = 0; i < off; i++) t[i] += t[i + off];
    return t[0];
}

#endif
