/* w4a4_gemv_f16.cu - NVFP4 x NVFP4 projection of up to 64 rows where there are no FP4 tensor cores: codes and scales are multiplied
 * to f16, exactly, and the products summed by m16n8k16 with f32 accumulators. Contract: abi/gdn_op_w4a4.h.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * All products are exact, so this differs from the block-scaled instruction by f32 summation only; all entries of this file give the
 * same bytes. Order: eight partial sums, the w-th over the chunks of 128 k with c % 8 == w, ascending, in eight products each; they are
 * added in order 0..7.
 *
 * f16_8, f16_16 (1 and 2 blocks of eight tokens): three groups of eight warps (block 768), a group 16 weight rows, warp w of it
 * the w-th partial sum. Blocks stay (grid: at most the multiprocessors): group g of block b takes the row tiles g*grid + b, then every
 * grid*groups-th. The activations of the first sst chunks of each warp are expanded to f16 once, in dynamic shared memory
 * 16384 * sst * blocks + 24576; those of later chunks each time, from the caches. sst may be 0.
 *
 * f16_32, f16_64 (4 and 8 blocks): many tokens make the expansion dear, so the warps of a block share it: each has 16 weight rows and all
 * of K, partial sum after partial sum, and the block expands one chunk while it multiplies the one before. Block 32 to 384 threads, any
 * number of warps; grid ceil(N / (16 warps)); static shared memory 4096 * blocks.
 *
 * The weights of the next chunk, of this tile or of the next one, are loaded before the products of this one. Arguments: those of
 * w4a4_gemv_mx.cu; f16_8, f16_16: then sst. */
#include "gdn_device.cuh"
#include "gdn_w4a4_f16.cuh"
#include "gdn_w4a4_sums.cuh"

/* Eight warps of a block, with a barrier of their own. */
struct warp_group {
    static constexpr float UNIT = GDN_W4A4_F16_UNIT;
    uint32_t index;
    __device__ __forceinline__ uint32_t thread() const { return threadIdx.x % GDN_MX_BLOCK; }
    __device__ __forceinline__ void sync() const { gdn_bar_sync(1 + index, GDN_MX_BLOCK); }
};

template <int BLOCKS, int TILES, int GROUPS>
GDN_DEVICE void project(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                        gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {
    GDN_DYN_SMEM(uint8_t, smem);
    constexpr uint32_t ROWS = GDN_MX_TILE * TILES;
    const uint32_t all = gdn_warp(), warp = all % GDN_MX_WARPS, chunks = K / GDN_W4A4_CHUNK, tiles = (N + ROWS - 1) / ROWS;
    const warp_group group = { all / GDN_MX_WARPS };
    uint8_t *const stripe = smem + (uint64_t)warp * sst * (BLOCKS * GDN_W4A4_F16_SLOT);
    float *const sums = reinterpret_cast<float *>(smem + (uint64_t)GDN_MX_WARPS * sst * (BLOCKS * GDN_W4A4_F16_SLOT)) +
                        group.index * 2 * GDN_MX_PAIR_FLOATS;
    const gdn_mx_out out = { C, Ag, scale2, M, N };
    for (uint32_t i = group.index; i < sst && warp + GDN_MX_WARPS * i < chunks; i += GROUPS) {
        const gdn_f16_tokens x = gdn_f16_tokens_at(Aq, As, M, chunks, warp + GDN_MX_WARPS * i);
        GDN_UNROLL
        for (uint32_t k = 0; k < 4 * BLOCKS; k++) /* word q of block b: q * 512 in the slot */
            gdn_st16(stripe + i * (BLOCKS * GDN_W4A4_F16_SLOT) + k * 512 + 16 * gdn_lane(), x.pair(k / 4, k % 4));
    }
    gdn_sync_block();
    gdn_f16_rows rows[TILES];
    gdn_f16_words now[TILES] = {}, next[TILES] = {};
    auto point = [&](uint32_t at) {
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) rows[t] = gdn_f16_rows_at(at * ROWS + (uint32_t)t * GDN_MX_TILE, N);
    };
    auto fetch = [&](uint32_t chunk, gdn_f16_words(&to)[TILES]) {
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) to[t] = gdn_f16_load(Bq, Bs, rows[t], chunk, K);
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
                gdn_f16_chunk_products<BLOCKS, TILES>(acc, now, gdn_f16_staged { stripe + i * (BLOCKS * GDN_W4A4_F16_SLOT) });
            else
                gdn_f16_chunk_products<BLOCKS, TILES>(acc, now, gdn_f16_tokens_at(Aq, As, M, chunks, c));
            GDN_UNROLL
            for (int t = 0; t < TILES; t++) now[t] = next[t];
        }
        gdn_mx_finish<BLOCKS, TILES>(acc, sums, group, at * ROWS, out, [] {});
        at = after;
    }
}

#define ENTRY_(name, BLOCKS)                                                                                                     \
    GDN_KERNEL(GDN_MX_BLOCK * 3, 1)                                                                                              \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {                                                                     \
        project<BLOCKS, 1, 3>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K, sst);                                                      \
    }
ENTRY_(w4a4_gemv_f16_8, 1)
ENTRY_(w4a4_gemv_f16_16, 2)

/* ---- many tokens ---- */
/* Chunks in the order of the partial sums: 0, 8, 16, .., 1, 9, .. */
struct chunk_order {
    uint32_t chunks, at;
    __device__ __forceinline__ bool ends_partial() const { return at + GDN_MX_WARPS >= chunks; }
    __device__ __forceinline__ uint32_t after() const { return ends_partial() ? at % GDN_MX_WARPS + 1 : at + GDN_MX_WARPS; }
    __device__ __forceinline__ bool is_last() const { return ends_partial() && after() >= min(chunks, (uint32_t)GDN_MX_WARPS); }
};

template <int BLOCKS>
GDN_DEVICE void project_shared(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                               gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K) {
    __shared__ __align__(16) uint8_t stage[2][BLOCKS * GDN_W4A4_F16_SLOT];
    const uint32_t warps = blockDim.x / 32, warp = gdn_warp(), lane = gdn_lane(), row0 = (blockIdx.x * warps + warp) * GDN_MX_TILE;
    const gdn_f16_rows rows = gdn_f16_rows_at(row0, N);
    chunk_order c = { K / GDN_W4A4_CHUNK, 0 };
    auto expand = [&](uint32_t chunk, uint32_t to) {
        const gdn_f16_tokens x = gdn_f16_tokens_at(Aq, As, M, c.chunks, chunk);
        for (uint32_t k = warp; k < 4 * BLOCKS; k += warps) gdn_st16(stage[to] + k * 512 + 16 * lane, x.pair(k / 4, k % 4));
    };
    gdn_f16_words now[1], next[1] = {};
    float acc[1][BLOCKS][4] = {}, total[BLOCKS][4] = {};
    uint32_t parity = 0;
    now[0] = gdn_f16_load(Bq, Bs, rows, 0, K);
    expand(0, 0);
    gdn_sync_block();
    GDN_NO_UNROLL
    while (true) {
        const bool ends = c.ends_partial(), last = c.is_last();
        if (!last) {
            next[0] = gdn_f16_load(Bq, Bs, rows, c.after(), K);
            expand(c.after(), parity ^ 1);
        }
        gdn_f16_chunk_products<BLOCKS, 1>(acc, now, gdn_f16_staged { stage[parity] });
        GDN_UNROLL
        for (int k = 0; ends && k < 4 * BLOCKS; k++) {
            total[k / 4][k % 4] += acc[0][k / 4][k % 4];
            acc[0][k / 4][k % 4] = 0;
        }
        if (last) break;
        gdn_sync_block();
        now[0] = next[0];
        c.at = c.after();
        parity ^= 1;
    }
    GDN_UNROLL
    for (uint32_t k = 0; k < 4 * BLOCKS; k++) {
        const uint32_t m = k / 4 * GDN_W4A4_TOKENS + lane % 4 * 2 + k % 2, n = row0 + lane / 4 + k % 4 / 2 * 8;
        if (m < M && n < N) C[(uint64_t)m * N + n] = gdn_to_bf16(total[k / 4][k % 4] * GDN_W4A4_F16_UNIT * (Ag[m] * scale2));
    }
}

#define SHARED_(name, BLOCKS)                                                                                                    \
    GDN_KERNEL(384, 1)                                                                                                           \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K) {                                                                                   \
        project_shared<BLOCKS>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K);                                                          \
    }
SHARED_(w4a4_gemv_f16_32, 4)
SHARED_(w4a4_gemv_f16_64, 8)
