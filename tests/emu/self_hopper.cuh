/* self_hopper.cuh - as self_kernels.cuh, with bulk copies, mbarriers and warpgroup products (sm_90a). */
#pragma once
#include "gdn_hopper.cuh"

enum { SELF_TILE = 8192, SELF_STAGES = 2 }; /* a tile: 64 rows of 64 16-bit elements */

/* A ring of two stages: warp 4 loads tiles, warps 0..3 add up their words. 1: no wait for the full stage; 2: the producer does not
 * wait for the empty one; 3: the consumers never free it; 4: fewer bytes are announced than come; 5: the barriers are not
 * initialised; 6: nobody waits at all. */
template <int PLANT> __global__ void __launch_bounds__(160) self_ring(const uint32_t *x, uint32_t *o, int n) {
    GDN_DYN_SMEM_ALIGNED(uint32_t, tile, 1024);
    __shared__ gdn_mbarrier full[SELF_STAGES], empty[SELF_STAGES];
    const uint32_t t = threadIdx.x, words = SELF_TILE / 4;
    if (t == 0 && PLANT != 5) {
        for (int s = 0; s < SELF_STAGES; s++) {
            gdn_mbar_init(full[s], 1);
            gdn_mbar_init(empty[s], 4);
        }
        gdn_mbar_init_fence();
    }
    __syncthreads();
    if (gdn_warp() == 4) {
        if (gdn_lane() == 0)
            for (int c = 0; c < n; c++) {
                const int s = c % SELF_STAGES, round = c / SELF_STAGES;
                if (PLANT != 2 && PLANT != 6) gdn_mbar_wait(empty[s], (round & 1) ^ 1);
                gdn_mbar_arrive_expect(full[s], SELF_TILE - (PLANT == 4 ? 16 : 0));
                gdn_bulk_load(tile + s * words, x + c * words, SELF_TILE, full[s]);
            }
        return;
    }
    uint32_t sum = 0;
    for (int c = 0; c < n; c++) {
        const int s = c % SELF_STAGES, round = c / SELF_STAGES;
        if (PLANT != 1 && PLANT != 6) gdn_mbar_wait(full[s], round & 1);
        for (uint32_t i = t; i < words; i += 128) sum += tile[s * words + i] ^ (uint32_t)c;
        __syncwarp();
        if (gdn_lane() == 0 && PLANT != 3) gdn_mbar_arrive(empty[s]);
    }
    o[t] = sum;
}

/* A tile goes out through the copy engine: registers, shared memory, a box of the tensor. 1: no proxy fence; 2: no wait before the
 * tile is rewritten; 3: no wait at all. */
template <int PLANT> __global__ void __launch_bounds__(128) self_out(const GDN_GRID_CONSTANT gdn_tensor_map map, int n) {
    GDN_DYN_SMEM_ALIGNED(uint32_t, tile, 1024);
    const uint32_t t = threadIdx.x;
    for (int c = 0; c < n; c++) {
        for (uint32_t i = t; i < SELF_TILE / 4; i += 128) tile[gdn_swizzle128(4 * i) / 4] = i * 3 + (uint32_t)c;
        if (PLANT != 1) gdn_fence_async();
        __syncthreads();
        if (t == 0) {
            gdn_tensor_store_2d(map, 0, 64 * c, tile);
            gdn_bulk_commit();
            if (PLANT != 2 && PLANT != 3) gdn_bulk_wait_read<0>();
        }
        __syncthreads();
    }
    if (t == 0 && PLANT != 3) gdn_bulk_wait<0>();
}

/* D = A B^T of two f16 tiles, 64 x 64 x 64, kept in f32. 1: the accumulators are read before the wait; 2: B is rewritten before it;
 * 3: no wait; 4: no gdn_wgmma_fence; 5: one warp leaves out a product; 6: tiles written without a proxy fence. */
template <int PLANT> __global__ void __launch_bounds__(128) self_product(const uint32_t *a, const uint32_t *b, float *o) {
    GDN_DYN_SMEM_ALIGNED(uint32_t, tile, 1024);
    const uint32_t t = threadIdx.x, words = SELF_TILE / 4, row = gdn_warp() * 16 + gdn_lane() / 4, col = gdn_lane() % 4 * 2;
    for (uint32_t i = t; i < words; i += 128) {
        tile[gdn_swizzle128(4 * i) / 4] = a[i];
        tile[words + gdn_swizzle128(4 * i) / 4] = b[i];
    }
    if (PLANT != 6) gdn_fence_async();
    __syncthreads();
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 0.0f;
    if (PLANT != 4) gdn_wgmma_fence();
    for (uint32_t k = 0; k < 4; k++)
        if (PLANT != 5 || k != 2 || gdn_warp() != 1)
            gdn_wgmma_f16(d, gdn_move(gdn_make_tile_k(tile), 32 * k), gdn_move(gdn_make_tile_k(tile + words), 32 * k), true);
    gdn_wgmma_commit();
    if (PLANT == 2) { /* the next B comes too early */
        for (uint32_t i = t; i < words; i += 128) tile[words + i] = 0x3c003c00u;
    }
    float early = 0.0f;
    if (PLANT == 1) early = d[0];
    if (PLANT != 3) gdn_wgmma_wait<0>();
    gdn_pin(d);
    if (PLANT == 1) d[0] = early;
    for (uint32_t i = 0; i < 32; i++) o[(row + (i & 2 ? 8 : 0)) * 64 + i / 4 * 8 + col + (i & 1)] = d[i];
}
