/* w4a4_gemv_f16.cu - NVFP4 x NVFP4 projection of up to 64 rows where there are no FP4 tensor cores: codes and scales are multiplied
 * to f16, exactly, and the products summed by m16n8k16 with f32 accumulators. Contract: abi/gdn_op_w4a4.h.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * All products are exact, so this differs from the block-scaled instruction by f32 summation only; all entries of this file give the
 * same bytes. Order: warp w of eight has the chunks of 128 k with c % 8 == w, ascending, in eight products each; the eight sums are
 * added in order 0..7.
 *
 *     entry                     f16_8   f16_16   f16_32   f16_64
 *     blocks of eight tokens        1        2        4        8
 *     rows of weights a group      16       16       32       32
 *     groups of eight warps         3        3        2        1      block 256 * groups
 *
 * Blocks stay (grid: at most the multiprocessors): group g of block b takes the row tiles g*grid + b, then every grid*groups-th. The
 * activations of the first sst chunks of each warp are expanded to f16 once, in dynamic shared memory 16384 * sst * blocks +
 * 8192 * groups; those of later chunks are expanded each time, from the caches. sst may be 0. The weights of the next chunk, of this
 * tile or of the next one, are loaded before the products of this one.
 *
 * A lane has 16 bytes of a row's chunk, whole blocks 2t and 2t + 1 (t = lane % 4): word q of them makes products 2q and 2q + 1, in the same
 * places on both sides. Both sides carry 2^-14 (gdn_fp4_f16.cuh), which the end takes back. Arguments: those of w4a4_gemv_mx.cu, sst. */
#include "gdn_device.cuh"
#include "gdn_fp4_f16.cuh"
#include "gdn_w4a4_sums.cuh"

enum { SLOT = 2048 }; /* a chunk of eight tokens as f16 */

/* Eight warps of a block, with a barrier of their own. */
struct warp_group {
    static constexpr float UNIT = 268435456; /* 2^28 */
    uint32_t index;
    __device__ __forceinline__ uint32_t thread() const { return threadIdx.x % GDN_MX_BLOCK; }
    __device__ __forceinline__ void sync() const { gdn_bar_sync(1 + index, GDN_MX_BLOCK); }
};

/* ---- activations ---- */
/* A lane's words and scales of a chunk in global memory: word q of token g (= lane / 4), blocks 2t and 2t + 1. */
struct global_tokens {
    const uint8_t *codes, *scales; /* of block 0 */
    uint32_t chunks, last;         /* last: block of tokens that exists */
    /* Products 2q and 2q + 1: b of the first, b of the second. */
    __device__ __forceinline__ uint4 pair(uint32_t block, uint32_t q) const {
        const uint32_t at = min(block, last) * chunks; /* all of it is at most 1 MiB */
        uint32_t h[4];
        gdn_e2m1x8(gdn_ld4_ro(codes + at * GDN_W4A4_CODE_BYTES + (q & 1) * 16 + (q >> 1) * 8), h);
        const uint32_t s = gdn_ue4m3_pair(scales[at * GDN_W4A4_SCALE_BYTES + (q >> 1) * 4]);
        return uint4 { gdn_mul_f16x2(h[0], s), gdn_mul_f16x2(h[1], s), gdn_mul_f16x2(h[2], s), gdn_mul_f16x2(h[3], s) };
    }
};
/* From shared memory: what pair() gave, 16 bytes a lane and q. */
struct staged_tokens {
    const uint8_t *slot; /* of block 0 */
    __device__ __forceinline__ uint4 pair(uint32_t block, uint32_t q) const {
        return gdn_ld16(slot + block * SLOT + q * 512 + 16 * gdn_lane());
    }
};
GDN_DEVICE global_tokens global_tokens_at(const uint8_t *Aq, const uint8_t *As, uint32_t M, uint32_t chunks, uint32_t chunk) {
    const uint32_t lane = gdn_lane(), g = lane >> 2, p = lane >> 1 & 1, s = lane & 1;
    return global_tokens { Aq + (uint64_t)chunk * GDN_W4A4_CODE_BYTES + (4 * g + 2 * p) * 16 + s * 4,
                           As + (uint64_t)chunk * GDN_W4A4_SCALE_BYTES + g * 8 + 2 * s + p, chunks, (M - 1) / GDN_W4A4_TOKENS };
}

/* ---- weights ---- */
/* Rows g and g + 8 of a tile. 16 bytes of codes each; the scales of these blocks, 2t and 2t + 1, lie at an eighth of their offset. */
struct weight_rows {
    uint32_t row[2];
};
struct weight_words {
    uint4 code[2];
    uint32_t scale[2];
};
GDN_DEVICE weight_rows rows_at(uint32_t row0, uint32_t N) {
    const uint32_t row = row0 + (gdn_lane() >> 2);
    return weight_rows { { min(row, N - 1), min(row + 8, N - 1) } };
}
GDN_DEVICE weight_words load(const uint8_t *Bq, const uint8_t *Bs, const weight_rows &w, uint32_t chunk, uint32_t K) {
    const uint32_t in_row = chunk * 64 + 16 * (gdn_lane() & 3);
    weight_words r;
    GDN_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t at = (uint64_t)w.row[i] * (K / 2) + in_row;
        r.code[i] = gdn_ld16_once(Bq + at);
        r.scale[i] = __ldg(reinterpret_cast<const unsigned short *>(Bs + at / 8));
    }
    return r;
}

/* ---- one chunk ---- */
/* Products 2q and 2q + 1: word q of each row, and its scales. */
template <int BLOCKS, int TILES, class Tokens>
GDN_DEVICE void word_products(float (&acc)[TILES][BLOCKS][4], const uint32_t (&word)[TILES][2], const uint32_t (&scale)[TILES][2],
                              const Tokens &x, uint32_t q) {
    uint32_t first[TILES][4], second[TILES][4];
    GDN_UNROLL
    for (int k = 0; k < 2 * TILES; k++) {
        const int t = k / 2, i = k % 2;
        uint32_t h[4];
        gdn_e2m1x8(word[t][i], h);
        first[t][i] = gdn_mul_f16x2(h[0], scale[t][i]), first[t][2 + i] = gdn_mul_f16x2(h[1], scale[t][i]);
        second[t][i] = gdn_mul_f16x2(h[2], scale[t][i]), second[t][2 + i] = gdn_mul_f16x2(h[3], scale[t][i]);
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
GDN_DEVICE void block_products(float (&acc)[TILES][BLOCKS][4], const weight_words (&w)[TILES], const Tokens &x, uint32_t j) {
    uint32_t word[TILES][2], scale[TILES][2];
    GDN_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        GDN_UNROLL
        for (int k = 0; k < 2 * TILES; k++) {
            const int t = k / 2, i = k % 2;
            const uint4 &v = w[t].code[i];
            word[t][i] = half ? (j ? v.w : v.y) : (j ? v.z : v.x);
            if (!half) scale[t][i] = gdn_ue4m3_pair(w[t].scale[i] >> j * 8);
        }
        word_products<BLOCKS, TILES>(acc, word, scale, x, 2 * j + half);
    }
}
template <int BLOCKS, int TILES>
GDN_DEVICE void chunk_products(float (&acc)[TILES][BLOCKS][4], const weight_words (&w)[TILES], const staged_tokens &x) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 2; j++) block_products<BLOCKS, TILES>(acc, w, x, j);
}
/* Not unrolled: the words of all blocks at once would not fit the registers. */
template <int BLOCKS, int TILES>
GDN_DEVICE void chunk_products(float (&acc)[TILES][BLOCKS][4], const weight_words (&w)[TILES], const global_tokens &x) {
    GDN_NO_UNROLL
    for (uint32_t j = 0; j < 2; j++) block_products<BLOCKS, TILES>(acc, w, x, j);
}

template <int BLOCKS, int TILES, int GROUPS>
GDN_DEVICE void project(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                        gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {
    GDN_DYN_SMEM(uint8_t, smem);
    constexpr uint32_t ROWS = GDN_MX_TILE * TILES;
    const uint32_t all = gdn_warp(), warp = all % GDN_MX_WARPS, chunks = K / GDN_W4A4_CHUNK, tiles = (N + ROWS - 1) / ROWS;
    const warp_group group = { all / GDN_MX_WARPS };
    uint8_t *const stripe = smem + (uint64_t)warp * sst * (BLOCKS * SLOT);
    float *const sums =
        reinterpret_cast<float *>(smem + (uint64_t)GDN_MX_WARPS * sst * (BLOCKS * SLOT)) + group.index * 2 * GDN_MX_PAIR_FLOATS;
    const gdn_mx_out out = { C, Ag, scale2, M, N };
    for (uint32_t i = group.index; i < sst && warp + GDN_MX_WARPS * i < chunks; i += GROUPS) {
        const global_tokens x = global_tokens_at(Aq, As, M, chunks, warp + GDN_MX_WARPS * i);
        GDN_UNROLL
        for (uint32_t k = 0; k < 4 * BLOCKS; k++) /* word q of block b: q * 512 in the slot */
            gdn_st16(stripe + i * (BLOCKS * SLOT) + k * 512 + 16 * gdn_lane(), x.pair(k / 4, k % 4));
    }
    gdn_sync_block();
    weight_rows rows[TILES];
    weight_words now[TILES] = {}, next[TILES] = {};
    auto point = [&](uint32_t at) {
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) rows[t] = rows_at(at * ROWS + (uint32_t)t * GDN_MX_TILE, N);
    };
    auto fetch = [&](uint32_t chunk, weight_words(&to)[TILES]) {
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) to[t] = load(Bq, Bs, rows[t], chunk, K);
    };
    uint32_t at = group.index * gridDim.x + blockIdx.x;
    point(at); /* rows past N are clamped */
    if (at < tiles && warp < chunks) fetch(warp, now);
    GDN_NO_UNROLL
    while (at < tiles) {
        const uint32_t after = at + gridDim.x * GROUPS;
        float acc[TILES][BLOCKS][4] = {};
        uint32_t c = warp;
        GDN_NO_UNROLL
        for (uint32_t i = 0; c < chunks; i++, c += GDN_MX_WARPS) {
            if (c + GDN_MX_WARPS < chunks) {
                fetch(c + GDN_MX_WARPS, next);
            } else if (after < tiles) {
                point(after);
                fetch(warp, next);
            }
            if (i < sst)
                chunk_products<BLOCKS, TILES>(acc, now, staged_tokens { stripe + i * (BLOCKS * SLOT) });
            else
                chunk_products<BLOCKS, TILES>(acc, now, global_tokens_at(Aq, As, M, chunks, c));
            GDN_UNROLL
            for (int t = 0; t < TILES; t++) now[t] = next[t];
        }
        gdn_mx_finish<BLOCKS, TILES>(acc, sums, group, at * ROWS, out, [] {});
        at = after;
    }
}

#define ENTRY_(name, BLOCKS, TILES, GROUPS)                                                                                      \
    GDN_KERNEL(GDN_MX_BLOCK *GROUPS, 1)                                                                                          \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {                                                                     \
        project<BLOCKS, TILES, GROUPS>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K, sst);                                             \
    }
ENTRY_(w4a4_gemv_f16_8, 1, 1, 3)
ENTRY_(w4a4_gemv_f16_16, 2, 1, 3)
ENTRY_(w4a4_gemv_f16_32, 4, 2, 2)
ENTRY_(w4a4_gemv_f16_64, 8, 2, 1)
