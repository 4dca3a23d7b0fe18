/* gdn_step_state16.cuh - states in bf16 for gdn_step.cuh: widened when they are read, rounded to nearest even when they are written, and
 * what lies between is gdn_step_state.cuh's f32: the same registers, sums and order. Pointers to states travel as float *, as
 * gdn_step_smem keeps them; what they point to is bf16, 8-byte aligned. */
#pragma once
#include "gdn_step_state.cuh"

GDN_DEVICE const gdn_bf16 *gdn_as16(const float *p) {
    return reinterpret_cast<const gdn_bf16 *>(p);
}
GDN_DEVICE gdn_bf16 *gdn_as16(float *p) {
    return reinterpret_cast<gdn_bf16 *>(p);
}
GDN_DEVICE float4 gdn_ld4x16(const gdn_bf16 *p) {
    const uint2 w = gdn_ld8_stream(p);
    return float4 { gdn_bf16_lo(w.x), gdn_bf16_hi(w.x), gdn_bf16_lo(w.y), gdn_bf16_hi(w.y) };
}
GDN_DEVICE void gdn_st4x16(gdn_bf16 *p, float4 x) {
    gdn_st8_stream(p, uint2 { gdn_pack_bf16(x.x, x.y), gdn_pack_bf16(x.z, x.w) });
}

template <uint32_t DIM> struct gdn_state16 {
    gdn_state<DIM, true> f;
    GDN_METHOD gdn_state16(gdn_state_smem &m) : f(m) {}
    GDN_METHOD float dot(const float *k) const { return f.dot(k); }
#ifndef GDN_STATE_VK
    GDN_METHOD void load(const float *in) {
        const gdn_bf16 *const p = gdn_opaque(gdn_as16(in) + threadIdx.x);
        GDN_UNROLL
        for (uint32_t j = 0; j < DIM; j++) f.s[j] = in ? gdn_to_f32(gdn_ld2_stream(p + j * DIM)) : 0.0f;
    }
    GDN_METHOD void store(float *to) const {
        gdn_bf16 *const p = gdn_opaque(gdn_as16(to) + threadIdx.x);
        GDN_UNROLL
        for (uint32_t j = 0; j < DIM; j++) gdn_st2_stream(p + j * DIM, gdn_to_bf16(f.s[j]));
    }
#else
    GDN_METHOD void load(const float *in) {
        const gdn_bf16 *const p = gdn_opaque(gdn_as16(in) + f.place());
        GDN_UNROLL
        for (uint32_t i = 0; i < f.GROUPS; i++) f.s[i] = in ? gdn_ld4x16(p + 128 * i) : float4 { 0, 0, 0, 0 };
    }
    GDN_METHOD void store(float *to) const {
        gdn_bf16 *const p = gdn_opaque(gdn_as16(to) + f.place());
        GDN_UNROLL
        for (uint32_t i = 0; i < f.GROUPS; i++) gdn_st4x16(p + 128 * i, f.s[i]);
    }
#endif
    GDN_METHOD float step(float g, float vn, const float *k, const float *q, float *to) {
        const float sum = f.step(g, vn, k, q, nullptr);
        if (to) store(to);
        return sum;
    }
};
