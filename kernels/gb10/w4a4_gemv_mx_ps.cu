/* w4a4_gemv_mx_ps.cu - the projection of w4a4_gemv_mx.cu by blocks that stay: one a multiprocessor, its activations staged in shared
 * memory once, tiles of sixteen weight rows pulled from a counter. The same bytes. It saves the activations' traffic from L2.
 *
 * Grid: any number of blocks (the number of multiprocessors), block 256. Dynamic shared memory 8 sst BLOCKS 576 + 8192: warp w stages
 * its own chunks w + 8i, i < sst, of every block of tokens (2 in mx16_ps, 4 in mx32_ps); later chunks come from global memory, and
 * sst may be 0. Static shared memory 8 bytes. Arguments: those of w4a4_gemv_mx.cu, then sst and counter: u32[2], zero before
 * the first launch, zero again after each (the last block resets it). It lies in the launch's workspace, so that launches on two
 * streams, each with a workspace of its own, cannot meet. Which block computes a tile changes no byte.
 *
 * The next tile is pulled while this one is computed, and its first weights are loaded before this one's sums are added. */
#include "gdn_device.cuh"
#include "gdn_w4a4_mx.cuh"

enum { SLOT = GDN_W4A4_CODE_BYTES + GDN_W4A4_SCALE_BYTES };

/* Scales are aligned to 4 bytes only. */
template <int BLOCKS>
GDN_DEVICE void stage(uint8_t *stripe, const uint8_t *Aq, const uint8_t *As, uint32_t warp, uint32_t M, uint32_t chunks, uint32_t sst) {
    const uint32_t lane = gdn_lane(), last = (M - 1) / GDN_W4A4_TOKENS;
    for (uint32_t i = 0; i < sst && warp + GDN_MX_WARPS * i < chunks; i++) {
        GDN_UNROLL
        for (uint32_t b = 0; b < BLOCKS; b++) {
            uint8_t *const slot = stripe + (i * BLOCKS + b) * SLOT;
            const uint64_t at = (uint64_t)min(b, last) * chunks + warp + GDN_MX_WARPS * i;
            gdn_cp_async16(slot + 16 * lane, Aq + at * GDN_W4A4_CODE_BYTES + 16 * lane);
            if (lane < 16) gdn_cp_async4(slot + GDN_W4A4_CODE_BYTES + 4 * lane, As + at * GDN_W4A4_SCALE_BYTES + 4 * lane);
        }
    }
    gdn_cp_async_commit();
    gdn_cp_async_wait<0>();
    gdn_sync_warp();
}

template <int BLOCKS>
GDN_DEVICE void project(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                        gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K, uint32_t sst, uint32_t *counter) {
    GDN_DYN_SMEM(uint8_t, staged);
    __shared__ uint32_t pulled[2];
    const uint32_t warp = gdn_warp(), chunks = K / GDN_W4A4_CHUNK, tiles = (N + GDN_MX_TILE - 1) / GDN_MX_TILE;
    uint8_t *const stripe = staged + (uint64_t)warp * sst * (BLOCKS * SLOT);
    float *const sums = reinterpret_cast<float *>(staged + (uint64_t)GDN_MX_WARPS * sst * (BLOCKS * SLOT));
    const gdn_mx_out out = { C, Ag, scale2, M, N };
    uint32_t at = blockIdx.x, parity = 0;
    gdn_mx_tile tile = gdn_mx_tile_at(Bq, Bs, min(at, tiles - 1) * GDN_MX_TILE, N, K);
    gdn_mx_words now[1] = {}, next[1] = {};
    if (warp < chunks) now[0] = gdn_mx_load(tile, warp);
    stage<BLOCKS>(stripe, Aq, As, warp, M, chunks, sst);
    GDN_NO_UNROLL
    while (at < tiles) {
        uint32_t after = 0;
        float acc[1][BLOCKS][4] = {};
        if (threadIdx.x == 0) pulled[parity] = gridDim.x + gdn_atomic_add(counter, 1u);
        uint32_t c = warp;
        GDN_NO_UNROLL
        for (uint32_t i = 0; c < chunks; i++, c += GDN_MX_WARPS) {
            if (c + GDN_MX_WARPS < chunks) next[0] = gdn_mx_load(tile, c + GDN_MX_WARPS);
            if (i < sst)
                gdn_mx_chunk<BLOCKS, 1>(acc, now, gdn_mx_staged { stripe + i * (BLOCKS * SLOT) });
            else
                gdn_mx_chunk<BLOCKS, 1>(acc, now, gdn_mx_global_at(Aq, As, M, chunks, c));
            now[0] = next[0];
        }
        gdn_mx_finish<BLOCKS, 1>(acc, sums, gdn_mx_whole_block {}, at * GDN_MX_TILE, out, [&] {
            after = pulled[parity];
            if (after >= tiles || warp >= chunks) return;
            tile = gdn_mx_tile_at(Bq, Bs, after * GDN_MX_TILE, N, K);
            now[0] = gdn_mx_load(tile, warp);
        });
        at = after;
        parity ^= 1;
    }
    if (threadIdx.x != 0) return;
    gdn_fence_gpu();
    if (gdn_atomic_add(counter + 1, 1u) != gridDim.x - 1) return;
    counter[0] = 0; /* every block has pulled its last */
    counter[1] = 0;
}

#define ENTRY_(name, BLOCKS)                                                                                                     \
    GDN_KERNEL(GDN_MX_BLOCK, 1)                                                                                                  \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K, uint32_t sst, uint32_t *counter) {                                                  \
        gdn_begin();                                                                                                             \
        project<BLOCKS>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K, sst, counter);                                                   \
    }
ENTRY_(w4a4_gemv_mx16_ps, 2)
ENTRY_(w4a4_gemv_mx32_ps, 4)
