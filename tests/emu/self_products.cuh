/* self_products.cuh - warpgroup products in every operand form, and boxes of a tensor through shared memory: small enough to be
 * compared with plain loops, on the emulator and on a device. */
#pragma once
#include "gdn_hopper.cuh"

/* ---- warpgroup products: A 64 x 64 and B N x 64 (or transposed), swizzled by hand ---- */
enum form { REGISTERS, ROWS, COLUMNS };
template <int R, bool F16, form A, form B>
static __global__ void __launch_bounds__(128) one_product(const uint16_t *a, const uint16_t *b, const float *c, float *d, int keep) {
    GDN_DYN_SMEM_ALIGNED(uint16_t, tile, 1024); /* A 8 KiB, then B */
    enum { N = 2 * R, PANELS = B == COLUMNS ? (N + 63) / 64 : 1, BROWS = B == COLUMNS ? 64 : N };
    uint16_t *const tb = tile + 4096;
    const uint32_t t = threadIdx.x;
    for (uint32_t i = t; i < 4096; i += 128) { /* row r along M (k contiguous), or row k (M contiguous) */
        const uint32_t r = i / 64, k = i % 64;
        tile[gdn_swizzle128(A == COLUMNS ? (k * 64 + r) * 2 : i * 2) / 2] = a[i];
    }
    for (uint32_t i = t; i < N * 64; i += 128) {
        const uint32_t n = i / 64, k = i % 64;
        tb[gdn_swizzle128(B == COLUMNS ? (n / 64) * 8192 + (k * 64 + n % 64) * 2 : i * 2) / 2] = b[i];
    }
    gdn_fence_async();
    __syncthreads();
    const uint32_t g = gdn_warp() * 16 + gdn_lane() / 4, q = gdn_lane() % 4 * 2;
    float acc[R];
    for (uint32_t i = 0; i < R; i++) acc[i] = c[(g + (i & 2 ? 8 : 0)) * N + i / 4 * 8 + q + (i & 1)];
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        auto run = [&](auto bt) {
            const bool on = keep || k > 0;
            if constexpr (A == REGISTERS) {
                uint32_t fa[4];
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t at = (g + (i & 1) * 8) * 64 + k * 16 + q + (i >> 1) * 8;
                    fa[i] = a[at] | (uint32_t)a[at + 1] << 16;
                }
                gdn_wgmma_fence(); /* ordinary code wrote the registers of A */
                if constexpr (F16)
                    gdn_wgmma_f16(acc, fa, bt, on);
                else
                    gdn_wgmma_bf16(acc, fa, bt, on);
            } else if constexpr (A == ROWS) {
                if constexpr (F16)
                    gdn_wgmma_f16(acc, gdn_move(gdn_make_tile_k(tile), 32 * k), bt, on);
                else
                    gdn_wgmma_bf16(acc, gdn_move(gdn_make_tile_k(tile), 32 * k), bt, on);
            } else {
                if constexpr (F16)
                    gdn_wgmma_f16(acc, gdn_move(gdn_make_tile_mn(tile, 8192), 2048 * k), bt, on);
                else
                    gdn_wgmma_bf16(acc, gdn_move(gdn_make_tile_mn(tile, 8192), 2048 * k), bt, on);
            }
        };
        if constexpr (B == COLUMNS)
            run(gdn_move(gdn_make_tile_mn(tb, 8192), 2048 * k));
        else
            run(gdn_move(gdn_make_tile_k(tb), 32 * k));
        if (k & 1) gdn_wgmma_commit();
    }
    gdn_wgmma_wait<1>();
    gdn_wgmma_wait<0>();
    gdn_pin(acc);
    for (uint32_t i = 0; i < R; i++) d[(g + (i & 2 ? 8 : 0)) * N + i / 4 * 8 + q + (i & 1)] = acc[i];
}

/* ---- boxes ---- */
static __global__ void __launch_bounds__(64)
    box_through(const GDN_GRID_CONSTANT gdn_tensor_map in, const GDN_GRID_CONSTANT gdn_tensor_map out, uint16_t *image, int x, int y, int z,
                int rank, uint32_t bytes) {
    GDN_DYN_SMEM_ALIGNED(uint16_t, tile, 1024);
    __shared__ gdn_mbarrier bar;
    if (threadIdx.x == 0) {
        gdn_mbar_init(bar, 1);
        gdn_mbar_init_fence();
        gdn_mbar_arrive_expect(bar, bytes);
        if (rank == 2)
            gdn_tensor_load_2d(tile, in, x, y, bar);
        else
            gdn_tensor_load_3d(tile, in, x, y, z, bar);
    }
    __syncthreads();
    gdn_mbar_wait(bar, 0);
    for (uint32_t i = threadIdx.x; i < bytes / 2; i += 64) image[i] = tile[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        if (rank == 2)
            gdn_tensor_store_2d(out, x, y, tile);
        else
            gdn_tensor_store_3d(out, x, y, z, tile);
        gdn_bulk_commit();
        gdn_bulk_wait<0>();
    }
}
