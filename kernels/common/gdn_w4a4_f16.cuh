/* gdn_w4a4_f16.cuh - what the W4A4 projections by exact f16 products share: tokens and weights as fragments of m16n8k16.
 *
 * A lane has 16 bytes of a row's chunk of 128 k, whole blocks 2t and 2t + 1 (t = lane % 4): word q of them makes products 2q and 2q + 1, in
 * the same places on both sides. Both sides carry 2^-14 (gdn_fp4_f16.cuh), which the end takes back: GDN_W4A4_F16_UNIT. */
#pragma once
#include "gdn_fp4_f16.cuh"
#include "gdn_memory.cuh"
#include "gdn_mma.cuh"
#include "gdn_w4a4.cuh"
#include "gdn_warp.cuh"

#define GDN_W4A4_F16_UNIT 268435456.0f /* 2^28 */
enum { GDN_W4A4_F16_SLOT = 2048 };     /* a chunk of eight tokens as f16 */

/* ---- activations ---- */
/* A lane's words and scales of a chunk in global memory: word q of token g (= lane / 4), blocks 2t and 2t + 1. */
struct gdn_f16_tokens {
    const uint8_t *codes, *scales; /* of block 0 */
    uint32_t chunks, last;         /* last: block of tokens that exists */
    /* Products 2q and 2q + 1: b of the first, b of the second. */
    __device__ __forceinline__ uint4 pair(uint32_t block, uint32_t q) const {
        const uint32_t at = min(block, last) * chunks; /* all of it is at most 1 MiB */
        uint32_t h[4];
        gdn_e2m1x8(gdn_ld4_ro(codes + at * GDN_W4A4_CODE_BYTES + (q & 1) * 16 + (q >> 1) * 8), h);
        const uint32_t s = gdn_ue4m3_two(scales[at * GDN_W4A4_SCALE_BYTES + (q >> 1) * 4]);
        return uint4 { gdn_scale_f16x2(h[0], s, 0), gdn_scale_f16x2(h[1], s, 0), gdn_scale_f16x2(h[2], s, 0), gdn_scale_f16x2(h[3], s, 0) };
    }
};
/* From shared memory: what pair() gave, 16 bytes a lane and q. */
struct gdn_f16_staged {
    const uint8_t *slot; /* of block 0 */
    __device__ __forceinline__ uint4 pair(uint32_t block, uint32_t q) const {
        return gdn_ld16(slot + block * GDN_W4A4_F16_SLOT + q * 512 + 16 * gdn_lane());
    }
};
GDN_DEVICE gdn_f16_tokens gdn_f16_tokens_at(const uint8_t *Aq, const uint8_t *As, uint32_t M, uint32_t chunks, uint32_t chunk) {
    const uint32_t lane = gdn_lane(), g = lane >> 2, p = lane >> 1 & 1, s = lane & 1;
    return gdn_f16_tokens { Aq + (uint64_t)chunk * GDN_W4A4_CODE_BYTES + (4 * g + 2 * p) * 16 + s * 4,
                            As + (uint64_t)chunk * GDN_W4A4_SCALE_BYTES + g * 8 + 2 * s + p, chunks, (M - 1) / GDN_W4A4_TOKENS };
}

/* ---- weights ---- */
/* Rows g and g + 8 of a tile. 16 bytes of codes each; the scales of these blocks, 2t and 2t + 1, lie at an eighth of their offset. */
struct gdn_f16_rows {
    uint32_t row[2];
};
struct gdn_f16_words {
    uint4 code[2];
    uint32_t scale[2];
};
GDN_DEVICE gdn_f16_rows gdn_f16_rows_at(uint32_t row0, uint32_t N) {
    const uint32_t row = row0 + (gdn_lane() >> 2);
    return gdn_f16_rows { { min(row, N - 1), min(row + 8, N - 1) } };
}
GDN_DEVICE gdn_f16_words gdn_f16_load(const uint8_t *Bq, const uint8_t *Bs, const gdn_f16_rows &w, uint32_t chunk, uint32_t K) {
    const uint32_t in_row = chunk * 64 + 16 * (gdn_lane() & 3);
    gdn_f16_words r;
    GDN_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t at = (uint64_t)w.row[i] * (K / 2) + in_row;
        r.code[i] = gdn_ld16_once_256(Bq + at);
        r.scale[i] = gdn_ld2_ro(Bs + at / 8);
    }
    return r;
}

/* ---- one chunk ---- */
/* Products 2q and 2q + 1: word q of each row, and its scales. */
template <int BLOCKS, int TILES, class Tokens>
GDN_DEVICE void gdn_f16_word_products(float (&acc)[TILES][BLOCKS][4], const uint32_t (&word)[TILES][2], const uint32_t (&scale)[TILES][2],
                                      const Tokens &x, uint32_t q) {
    const int j = (int)q / 2;
    uint32_t first[TILES][4], second[TILES][4];
    GDN_UNROLL
    for (int k = 0; k < 2 * TILES; k++) {
        const int t = k / 2, i = k % 2;
        uint32_t h[4];
        gdn_e2m1x8(word[t][i], h);
        first[t][i] = gdn_scale_f16x2(h[0], scale[t][i], j), first[t][2 + i] = gdn_scale_f16x2(h[1], scale[t][i], j);
        second[t][i] = gdn_scale_f16x2(h[2], scale[t][i], j), second[t][2 + i] = gdn_scale_f16x2(h[3], scale[t][i], j);
    }
    GDN_UNROLL
    for (int b = 0; b < BLOCKS; b++) {
        const uint4 v = x.pair((uint32_t)b, q);
        const uint32_t b0[2] = { v.x, v.y }, b1[2] = { v.z, v.w };
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) {
            gdn_mma_f16_m16n8k16(acc[t][b], first[t], b0);
            gdn_mma_f16_m16n8k16(acc[t][b], second[t], b1);
        }
    }
}
/* Block 2t + j. */
template <int BLOCKS, int TILES, class Tokens>
GDN_DEVICE void gdn_f16_block_products(float (&acc)[TILES][BLOCKS][4], const gdn_f16_words (&w)[TILES], const Tokens &x, uint32_t j) {
    uint32_t word[TILES][2], scale[TILES][2];
    GDN_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        GDN_UNROLL
        for (int k = 0; k < 2 * TILES; k++) {
            const int t = k / 2, i = k % 2;
            const uint4 &v = w[t].code[i];
            word[t][i] = half ? (j ? v.w : v.y) : (j ? v.z : v.x);
            if (!half) scale[t][i] = gdn_ue4m3_two(w[t].scale[i]);
        }
        gdn_f16_word_products<BLOCKS, TILES>(acc, word, scale, x, 2 * j + half);
    }
}
template <int BLOCKS, int TILES>
GDN_DEVICE void gdn_f16_chunk_products(float (&acc)[TILES][BLOCKS][4], const gdn_f16_words (&w)[TILES], const gdn_f16_staged &x) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 2; j++) gdn_f16_block_products<BLOCKS, TILES>(acc, w, x, j);
}
/* Not unrolled: the words of all blocks at once would not fit the registers. */
template <int BLOCKS, int TILES>
GDN_DEVICE void gdn_f16_chunk_products(float (&acc)[TILES][BLOCKS][4], const gdn_f16_words (&w)[TILES], const gdn_f16_tokens &x) {
    GDN_NO_UNROLL
    for (uint32_t j = 0; j < 2; j++) gdn_f16_block_products<BLOCKS, TILES>(acc, w, x, j);
}
