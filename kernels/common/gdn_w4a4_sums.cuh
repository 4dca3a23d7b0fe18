/* gdn_w4a4_sums.cuh - the end of a W4A4 projection: eight warps have the sums of their chunks (warp w those with c % 8 == w); they are
 * added in order 0..7, scaled, rounded to bf16 and stored. Contract: abi/gdn_op_w4a4.h. */
#pragma once
#include "gdn_memory.cuh"
#include "gdn_w4a4.cuh"
#include "gdn_warp.cuh"

enum { GDN_MX_WARPS = 8, GDN_MX_BLOCK = 256, GDN_MX_TILE = 16 };
enum { GDN_MX_PAIR_FLOATS = 1024 }; /* the eight warps' sums of a tile and a block of tokens: 4 KiB */

struct gdn_mx_out {
    gdn_bf16 *C;
    const float *Ag;
    float scale2;
    uint32_t M, N;
};
/* Who works together: here the eight warps of a block. UNIT: what the sums are multiplied with, a power of two. */
struct gdn_mx_whole_block {
    static constexpr float UNIT = 1;
    __device__ __forceinline__ uint32_t thread() const { return threadIdx.x; }
    __device__ __forceinline__ void sync() const { gdn_sync_block(); }
};
/* acc: of tiles of sixteen rows and blocks of eight tokens, as gdn_mma.cuh's d. sums: 2 * GDN_MX_PAIR_FLOATS, 16-byte aligned.
 * `between` runs in all threads once, behind the first barrier. */
template <int BLOCKS, int TILES, class Group, class Between>
GDN_DEVICE void gdn_mx_finish(const float (&acc)[TILES][BLOCKS][4], float *sums, const Group &group, uint32_t row0, const gdn_mx_out &o,
                              const Between &between) {
    constexpr uint32_t pairs = BLOCKS * TILES;
    const uint32_t thread = group.thread(), mine = thread / 128, i = thread % 128, lane = i / 4, r = i % 4;
    GDN_UNROLL
    for (uint32_t q = 0; q < pairs; q += 2) {
        group.sync(); /* what lay here has been read */
        GDN_UNROLL
        for (uint32_t k = q; k < q + 2 && k < pairs; k++) {
            const float(&a)[4] = acc[k / BLOCKS][k % BLOCKS];
            gdn_st16f(sums + (k - q) * GDN_MX_PAIR_FLOATS + thread * 4, float4 { a[0], a[1], a[2], a[3] });
        }
        group.sync();
        if (q == 0) between();
        const uint32_t k = q + mine, m = k % BLOCKS * GDN_W4A4_TOKENS + lane % 4 * 2 + r % 2,
                       n = row0 + k / BLOCKS * GDN_MX_TILE + lane / 4 + r / 2 * 8;
        if (k < pairs && m < o.M && n < o.N) {
            const float *const p = sums + mine * GDN_MX_PAIR_FLOATS + i;
            float sum = p[0];
            GDN_UNROLL
            for (uint32_t w = 1; w < GDN_MX_WARPS; w++) sum += p[w * 128];
            o.C[(uint64_t)m * o.N + n] = gdn_to_bf16(sum * Group::UNIT * (o.Ag[m] * o.scale2));
        }
    }
}
