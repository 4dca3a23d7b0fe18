/* w4a4_gemv_f16.cu - NVFP4 x NVFP4 projection of up to 16 rows where there are no FP4 tensor cores: codes and scales are multiplied
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

template <int BLOCKS, int GROUPS>
GDN_DEVICE void project(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                        gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {
    GDN_DYN_SMEM(uint8_t, smem);
    constexpr uint32_t SLOT = BLOCKS * GDN_W4A4_F16_SLOT;
    const uint32_t warp = gdn_warp() % GDN_MX_WARPS, chunks = K / GDN_W4A4_CHUNK, tiles = (N + GDN_MX_TILE - 1) / GDN_MX_TILE;
    const uint32_t mine = warp < chunks ? (chunks - warp + GDN_MX_WARPS - 1) / GDN_MX_WARPS : 0, step = gridDim.x * GROUPS;
    const warp_group group = { gdn_warp() / GDN_MX_WARPS };
    uint8_t *const stripe = smem + warp * sst * SLOT;
    float *const sums = reinterpret_cast<float *>(smem + GDN_MX_WARPS * sst * SLOT) + group.index * 2 * GDN_MX_PAIR_FLOATS;
    const gdn_mx_out out = { C, Ag, scale2, M, N };
    uint32_t at = group.index * gridDim.x + blockIdx.x;
    gdn_f16_rows rows = gdn_f16_rows_at(at * GDN_MX_TILE, N);
    gdn_f16_words now[1] = {}, next[1] = {};
    if (at < tiles && mine) now[0] = gdn_f16_load(Bq, Bs, rows, warp, K);
    for (uint32_t i = group.index; i < sst && i < mine; i += GROUPS) {
        const gdn_f16_tokens x = gdn_f16_tokens_at(Aq, As, M, chunks, warp + GDN_MX_WARPS * i);
        GDN_UNROLL
        for (uint32_t k = 0; k < 4 * BLOCKS; k++) /* word q of block b: q * 512 in the slot */
            gdn_st16(stripe + i * SLOT + k * 512 + 16 * gdn_lane(), x.pair(k / 4, k % 4));
    }
    gdn_sync_block();
    GDN_NO_UNROLL
    for (; at < tiles; at += step) {
        float acc[1][BLOCKS][4] = {};
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < mine; i++) {
            if (i + 1 < mine) {
                next[0] = gdn_f16_load(Bq, Bs, rows, warp + (i + 1) * GDN_MX_WARPS, K);
            } else if (at + step < tiles) {
                rows = gdn_f16_rows_at((at + step) * GDN_MX_TILE, N);
                next[0] = gdn_f16_load(Bq, Bs, rows, warp, K);
            }
            if (i < sst)
                gdn_f16_chunk_products<BLOCKS, 1>(acc, now, gdn_f16_staged { stripe + i * SLOT });
            else
                gdn_f16_chunk_products<BLOCKS, 1>(acc, now, gdn_f16_tokens_at(Aq, As, M, chunks, warp + GDN_MX_WARPS * i));
            now[0] = next[0];
        }
        gdn_mx_finish<BLOCKS, 1>(acc, sums, group, at * GDN_MX_TILE, out, [] {});
    }
}

#define ENTRY_(name, BLOCKS)                                                                                                     \
    GDN_KERNEL(GDN_MX_BLOCK * 3, 1)                                                                                              \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K, uint32_t sst) {                                                                     \
        gdn_begin();                                                                                                             \
        project<BLOCKS, 3>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K, sst);                                                         \
    }
ENTRY_(w4a4_gemv_f16_8, 1)
ENTRY_(w4a4_gemv_f16_16, 2)
