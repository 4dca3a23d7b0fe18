/* gdn_w4a4_mx.cuh - what the W4A4 projections on block-scaled FP4 products share. Contract: abi/gdn_op_w4a4.h.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * Sixteen weight rows are the 16-row side of a product, eight tokens its columns; a chunk of 128 k is two products. Eight warps: warp w
 * takes the chunks c with c % 8 == w, ascending, product 0 then product 1; the eight sums are added in order 0..7. This order is
 * the byte contract of every entry.
 *
 * Weights stay in the checkpoint's order, Bq [N][K/2] and Bs [N][K/16]. A chunk of a row is 64 bytes, 16 a lane of a quad; a product
 * wants the two halves of the same blocks in both lanes of a pair, so each pair swaps one word of every 8 bytes. Rows past N and
 * blocks of tokens past M are clamped (loaded, never stored). */
#pragma once
#include "gdn_memory.cuh"
#include "gdn_mma_fp4.cuh"
#include "gdn_w4a4_sums.cuh"

/* ---- weights ---- */
/* A lane's part of sixteen rows: rows g and g + 8, the scales of row g + 8 (lane & 1). */
struct gdn_mx_tile {
    const uint8_t *lo, *hi, *scale;
};
struct gdn_mx_words {
    uint4 lo, hi;
    uint2 scale;
};
GDN_DEVICE gdn_mx_tile gdn_mx_tile_at(const uint8_t *Bq, const uint8_t *Bs, uint32_t row0, uint32_t N, uint32_t K) {
    const uint32_t lane = gdn_lane(), g = lane >> 2, l = lane & 3, last = N - 1;
    const uint32_t lo = min(row0 + g, last), hi = min(row0 + g + 8, last), s = lane & 1 ? hi : lo;
    return gdn_mx_tile { Bq + (uint64_t)lo * (K / 2) + 16 * l, Bq + (uint64_t)hi * (K / 2) + 16 * l, Bs + (uint64_t)s * (K / 16) };
}
GDN_DEVICE gdn_mx_words gdn_mx_load(const gdn_mx_tile &t, uint32_t chunk) {
    return gdn_mx_words { gdn_ld16_once(t.lo + (uint64_t)chunk * 64), gdn_ld16_once(t.hi + (uint64_t)chunk * 64),
                          gdn_ld8_ro(t.scale + (uint64_t)chunk * 8) };
}
/* The words of blocks 4p, 4p + 2, 4p + 1, 4p + 3, p = l >> 1: even lanes the first halves, odd lanes the second. */
GDN_DEVICE uint4 gdn_mx_pair_swap(uint4 v) {
    const bool odd = gdn_lane() & 1;
    const uint32_t a = __shfl_xor_sync(GDN_FULL_MASK, odd ? v.x : v.y, 1), b = __shfl_xor_sync(GDN_FULL_MASK, odd ? v.z : v.w, 1);
    return odd ? uint4 { a, v.y, b, v.w } : uint4 { v.x, a, v.z, b };
}

/* ---- activations of one chunk ---- */
/* From global memory: blocks of tokens are `chunks` chunks apart. */
struct gdn_mx_global {
    const uint8_t *codes, *scales; /* of block 0, this lane's */
    uint64_t chunks;
    uint32_t last; /* block of tokens that exists */
    __device__ __forceinline__ uint4 code(uint32_t block) const {
        return gdn_ld16_ro(codes + min(block, last) * chunks * GDN_W4A4_CODE_BYTES);
    }
    __device__ __forceinline__ uint32_t scale(uint32_t block) const {
        return gdn_ld4_ro(scales + min(block, last) * chunks * GDN_W4A4_SCALE_BYTES);
    }
};
/* From shared memory: a slot of 576 bytes a block, the scales behind the codes. */
struct gdn_mx_staged {
    const uint8_t *slot; /* of block 0 */
    __device__ __forceinline__ uint4 code(uint32_t block) const {
        return gdn_ld16(slot + block * (GDN_W4A4_CODE_BYTES + GDN_W4A4_SCALE_BYTES) + 16 * gdn_lane());
    }
    __device__ __forceinline__ uint32_t scale(uint32_t block) const {
        const uint32_t lane = gdn_lane();
        return *reinterpret_cast<const uint32_t *>(slot + block * (GDN_W4A4_CODE_BYTES + GDN_W4A4_SCALE_BYTES) + GDN_W4A4_CODE_BYTES +
                                                   (lane >> 2) * 8 + (lane & 1) * 4);
    }
};
GDN_DEVICE gdn_mx_global gdn_mx_global_at(const uint8_t *Aq, const uint8_t *As, uint32_t M, uint32_t chunks, uint32_t chunk) {
    const uint32_t lane = gdn_lane();
    return gdn_mx_global { Aq + (uint64_t)chunk * GDN_W4A4_CODE_BYTES + 16 * lane,
                           As + (uint64_t)chunk * GDN_W4A4_SCALE_BYTES + (lane >> 2) * 8 + (lane & 1) * 4, chunks,
                           (M - 1) / GDN_W4A4_TOKENS };
}

/* ---- products ---- */
/* One chunk: BLOCKS blocks of tokens, TILES tiles that share their fragments. A lane's scale word serves both products of two blocks
 * of tokens: lane l of a quad has product l & 1 of block l >> 1. */
template <int BLOCKS, int TILES, class Activations>
GDN_DEVICE void gdn_mx_chunk(float (&acc)[TILES][BLOCKS][4], const gdn_mx_words (&w)[TILES], const Activations &x) {
    const uint32_t upper = gdn_lane() >> 1 & 1;
    uint32_t first[TILES][4], second[TILES][4], sa[TILES];
    GDN_UNROLL
    for (int t = 0; t < TILES; t++) {
        const uint4 lo = gdn_mx_pair_swap(w[t].lo), hi = gdn_mx_pair_swap(w[t].hi);
        first[t][0] = lo.x, first[t][1] = hi.x, first[t][2] = lo.y, first[t][3] = hi.y;
        second[t][0] = lo.z, second[t][1] = hi.z, second[t][2] = lo.w, second[t][3] = hi.w;
        sa[t] = __byte_perm(w[t].scale.x, w[t].scale.y, upper ? 0x7351 : 0x6240);
    }
    GDN_UNROLL
    for (int b = 0; b < BLOCKS; b += 2) {
        const uint4 p = x.code((uint32_t)b);
        const uint32_t sb = x.scale(BLOCKS == 1 ? 0 : (uint32_t)b + upper), p0[2] = { p.x, p.y }, p1[2] = { p.z, p.w };
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) {
            gdn_mma_mxf4nvf4_m16n8k64<0, 0>(acc[t][b], first[t], p0, sa[t], sb);
            gdn_mma_mxf4nvf4_m16n8k64<1, 1>(acc[t][b], second[t], p1, sa[t], sb);
        }
        if constexpr (BLOCKS > 1) {
            const uint4 q = x.code((uint32_t)b + 1);
            const uint32_t q0[2] = { q.x, q.y }, q1[2] = { q.z, q.w };
            GDN_UNROLL
            for (int t = 0; t < TILES; t++) {
                gdn_mma_mxf4nvf4_m16n8k64<0, 2>(acc[t][b + 1], first[t], q0, sa[t], sb);
                gdn_mma_mxf4nvf4_m16n8k64<1, 3>(acc[t][b + 1], second[t], q1, sa[t], sb);
            }
        }
    }
}
