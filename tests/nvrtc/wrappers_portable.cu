/* wrappers_portable.cu - every wrapper of the portable device headers once, for the compile gates: does it become the instruction
 * that it is meant to be? One entry a family; nothing here computes anything useful. */
#include "gdn_device.cuh"

GDN_KERNEL(256) wrap_mma(const uint32_t *x, float *o) {
    gdn_begin();
    GDN_DYN_SMEM(uint32_t, s);
    const uint32_t l = threadIdx.x;
    uint32_t a[4], b[2], c[1];
    float d[4] = {};
    s[l] = x[l];
    gdn_sync_block();
    gdn_ldmatrix_x4(a, s + 4 * l);
    gdn_ldmatrix_x2(b, s + 4 * l);
    gdn_mma_bf16_m16n8k16(d, a, b);
    gdn_ldmatrix_x4_trans(a, s + 4 * l);
    gdn_ldmatrix_x2_trans(b, s + 4 * l);
    gdn_mma_f16_m16n8k16(d, a, b);
    gdn_ldmatrix_x1(c, s + 4 * l);
    a[0] += c[0];
    gdn_ldmatrix_x1_trans(c, s + 4 * l);
    a[1] += c[0];
    gdn_stmatrix_x4(s + 4 * l, a);
    gdn_stmatrix_x4_trans(s + 4 * l + 1024, a);
    gdn_sync_block();
    o[l] = d[0] + d[1] + d[2] + d[3] + gdn_float(s[l] ^ s[l + 1024]);
}

GDN_KERNEL(256) wrap_copies(const uint4 *x, uint4 *o) {
    gdn_begin();
    GDN_DYN_SMEM(uint4, s);
    const uint32_t l = threadIdx.x;
    gdn_cp_async16(s + 3 * l, x + l, l & 16);
    gdn_cp_async8(s + 3 * l + 1, x + l);
    gdn_cp_async4(s + 3 * l + 2, x + l);
    gdn_cp_async_commit();
    gdn_cp_async_wait<0>();
    gdn_bar_arrive(1, 256);
    gdn_bar_sync(2, 256);
    o[l] = s[(3 * l + 7) % 768];
}

GDN_KERNEL(256) wrap_memory(const uint4 *x, uint4 *o, uint32_t *c, uint64_t *c64, float *f) {
    gdn_begin();
    const uint32_t l = threadIdx.x;
    uint4 v = gdn_ld16_ro(x + l), w = gdn_ld16_once(x + 256 + l);
    const uint2 u = gdn_ld8_ro(x + 512 + l);
    v.x += w.x + u.x + gdn_ld4_ro(x + 768 + l);
    w = gdn_ld16_stream(x + 1024 + l);
    v.y += w.y;
    gdn_prefetch_l2(x + 4096 + l);
    gdn_st16_stream(o + l, v);
    gdn_st8_stream(o + 256 + l, make_uint2(v.x, v.y));
    gdn_st16(o + 512 + l, v);
    gdn_st8(o + 768 + l, gdn_ld8(x + 2048 + l));
    gdn_st16f(o + 1024 + l, gdn_ld16f(x + 2304 + l));
    gdn_st_release(c, gdn_ld_acquire(c + 1));
    gdn_wait_word(c + 1, 7);
    gdn_add_release(c + 7, 1);
    gdn_fence_gpu();
    gdn_fence_block();
    c[8 + l] = gdn_atomic_add(c + 2, 1u) + gdn_atomic_max(c + 3, l) + gdn_atomic_or(c + 4, l) + gdn_atomic_exch(c + 5, l) +
               gdn_atomic_cas(c + 6, 1u, l);
    c64[1 + l] = gdn_atomic_add(c64, (uint64_t)l);
    f[1 + l] = gdn_atomic_add(f, 1.0f);
}

GDN_KERNEL(256) wrap_math(const float *x, float *o) {
    gdn_begin();
    const float a = x[threadIdx.x];
    o[threadIdx.x] = gdn_exp2_fast(a) + gdn_log2_fast(a) + gdn_rcp_fast(a);
}

GDN_KERNEL(256) wrap_convert(const float *x, uint32_t *o, gdn_bf16 *b, gdn_f16 *h, float *f) {
    gdn_begin();
    const uint32_t l = threadIdx.x;
    const float a = x[l], c = x[l + 256];
    o[l] = gdn_pack_bf16(a, c) ^ gdn_pack_f16(a, c);
    f[l] = gdn_to_f32(b[l]) + gdn_to_f32(h[l]) + gdn_bf16_lo(o[l + 256]) + gdn_bf16_hi(o[l + 512]) + gdn_f16_lo(o[l + 768]) +
           gdn_f16_hi(o[l + 1024]);
    b[l + 256] = gdn_to_bf16(a);
    h[l + 256] = gdn_to_f16(c);
}

GDN_KERNEL(256) wrap_warp(const float *x, float *o) {
    gdn_begin();
    const float a = x[threadIdx.x];
    const float s = gdn_warp_sum_down(a), t = gdn_warp_sum(a), m = gdn_warp_max(a);
    gdn_sync_warp();
    o[threadIdx.x] = s + t + m + (float)(gdn_warp() + gdn_lane());
}
