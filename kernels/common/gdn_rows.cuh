/* gdn_rows.cuh - rows of bf16 in pieces of eight elements (one 16-byte word), and the sigmoid of the elementwise kernels.
 *
 * A piece at any address with any number of valid elements has the same form in registers as an aligned whole one, so a kernel
 * computes the same bytes for every base and stride. */
#pragma once
#include "gdn_math.cuh"
#include "gdn_memory.cuh"
#include "gdn_types.cuh"

GDN_DEVICE bool gdn_aligned16(const void *p) {
    return ((uint64_t)p & 15u) == 0;
}

/* Elements [0, n) of p, the others zero; nothing past n is read. READ_ONLY: no thread writes them while the kernel runs. */
template <bool VEC, bool READ_ONLY> GDN_DEVICE uint4 gdn_load8(const gdn_bf16 *p, uint32_t n) {
    if constexpr (VEC) {
        if (n == 0) return uint4 { 0, 0, 0, 0 };
        return READ_ONLY ? gdn_ld16_ro(p) : gdn_ld16(p);
    } else {
        uint32_t w[4] = { 0, 0, 0, 0 };
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (i < n) w[i / 2] |= (uint32_t)p[i].bits << (16 * (i % 2));
        return uint4 { w[0], w[1], w[2], w[3] };
    }
}
template <bool VEC> GDN_DEVICE void gdn_store8(gdn_bf16 *p, uint32_t n, uint4 v) {
    if constexpr (VEC) {
        if (n) gdn_st16(p, v);
    } else {
        const uint32_t w[4] = { v.x, v.y, v.z, v.w };
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (i < n) p[i].bits = (uint16_t)(w[i / 2] >> (16 * (i % 2)));
    }
}

GDN_DEVICE void gdn_unpack8(float (&x)[8], uint4 v) {
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        x[2 * i] = gdn_bf16_lo(w[i]);
        x[2 * i + 1] = gdn_bf16_hi(w[i]);
    }
}
GDN_DEVICE uint4 gdn_pack8(const float (&x)[8]) {
    return uint4 { gdn_pack_bf16(x[0], x[1]), gdn_pack_bf16(x[2], x[3]), gdn_pack_bf16(x[4], x[5]), gdn_pack_bf16(x[6], x[7]) };
}

/* Eight weights, bf16 or f32, the ones from n on zero; scalar loads. */
GDN_DEVICE float gdn_weight(const void *w, bool f32, uint64_t i) {
    return f32 ? static_cast<const float *>(w)[i] : gdn_to_f32(static_cast<const gdn_bf16 *>(w)[i]);
}

/* 1 / (1 + 2^(-x log2 e)). Relative error below |x| 2^-24 (the rounded exponent) + 2^-21 (the two approximate instructions, one
 * rounding each of product and sum): 6e-6 at x = -87, where half an ulp of bf16 is 2e-3. Below -87.3 the result is 0. */
GDN_DEVICE float gdn_sigmoid_fast(float x) {
    return gdn_rcp_fast(1.0f + gdn_exp2_fast(x * -1.44269504f));
}
GDN_DEVICE float gdn_silu_fast(float x) {
    return x * gdn_sigmoid_fast(x);
}
