/* gdn_ba_dot.cuh - the dot product of the BA projection, whose order of additions is a bit contract:
 *
 *     lane l of 64 takes the 8-element vectors l, l + 64, ... ascending, elements in order, product rounded, then added to one f32
 *     accumulator; lanes by shuffle-down 16, 8, 4, 2, 1 in each warp; result = even warp + odd warp
 *
 * A product of two bf16 is exact in f32 (in [2^-149, 2^128)), so one fused multiply-add gives the bytes of product and sum. */
#pragma once
#include "gdn_ba_maps.h"
#include "gdn_math.cuh"
#include "gdn_memory.cuh"
#include "gdn_types.cuh"
#include "gdn_warp.cuh"

/* acc + a[0] b[0], + a[1] b[1], ... of one vector. */
GDN_DEVICE float gdn_ba_dot8(float acc, const float (&a)[8], uint4 b) {
    const uint32_t w[4] = { b.x, b.y, b.z, b.w };
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        acc = gdn_fma(a[2 * i], gdn_bf16_lo(w[i]), acc);
        acc = gdn_fma(a[2 * i + 1], gdn_bf16_hi(w[i]), acc);
    }
    return acc;
}
GDN_DEVICE void gdn_ba_widen(float (&a)[8], uint4 v) {
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        a[2 * i] = gdn_bf16_lo(w[i]);
        a[2 * i + 1] = gdn_bf16_hi(w[i]);
    }
}
/* One lane's share of one output. */
GDN_DEVICE float gdn_ba_lane_sum(const gdn_bf16 *a, const gdn_bf16 *b, uint32_t lane, uint32_t K) {
    float acc = 0.0f;
    for (uint32_t kv = lane; kv < K / GDN_BA_VECTOR; kv += GDN_BA_LANES) {
        float e[8];
        gdn_ba_widen(e, gdn_ld16_ro(a + (uint64_t)kv * GDN_BA_VECTOR));
        acc = gdn_ba_dot8(acc, e, gdn_ld16_ro(b + (uint64_t)kv * GDN_BA_VECTOR));
    }
    return acc;
}
