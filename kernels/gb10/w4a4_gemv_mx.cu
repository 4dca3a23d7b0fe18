/* w4a4_gemv_mx.cu - NVFP4 x NVFP4 projection of up to 64 rows on block-scaled FP4 tensor cores (sm_121a, sm_121f). Contract and order
 * of additions: abi/gdn_op_w4a4.h, gdn_w4a4_mx.cuh; every entry gives the same bytes.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * Grid ceil(N / rows), block 256 (eight warps, each all rows and an eighth of the chunks), static shared memory 8 KiB.
 *   mx8 mx16 mx32 mx64            1, 2, 4, 8 blocks of eight tokens; 16 rows
 *   mx16_nt2 mx64_nt2 (32 rows), mx32_nt4 (64 rows)   tiles that share the activations' fragments in registers: less traffic from L2
 * The weights of the next chunk are loaded before the products of this one. Arguments: Aq, As, Ag (of w4a4_quant_rows), Bq u8
 * [N][K/2], Bs u8 [N][K/16], scale2, C bf16 [M][N], M at most 8 times the blocks, N, K a multiple of 128. */
#include "gdn_device.cuh"
#include "gdn_w4a4_mx.cuh"

template <int BLOCKS, int TILES>
GDN_DEVICE void project(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2,
                        gdn_bf16 *C, uint32_t M, uint32_t N, uint32_t K) {
    __shared__ __align__(16) float sums[2 * GDN_MX_PAIR_FLOATS];
    const uint32_t warp = gdn_warp(), chunks = K / GDN_W4A4_CHUNK, row0 = blockIdx.x * (GDN_MX_TILE * TILES);
    gdn_mx_tile tile[TILES];
    gdn_mx_words now[TILES] = {}, next[TILES] = {};
    float acc[TILES][BLOCKS][4] = {};
    GDN_UNROLL
    for (int t = 0; t < TILES; t++) {
        tile[t] = gdn_mx_tile_at(Bq, Bs, row0 + (uint32_t)t * GDN_MX_TILE, N, K);
        if (warp < chunks) now[t] = gdn_mx_load(tile[t], warp);
    }
    GDN_NO_UNROLL
    for (uint32_t c = warp; c < chunks; c += GDN_MX_WARPS) {
        GDN_UNROLL
        for (int t = 0; t < TILES; t++)
            if (c + GDN_MX_WARPS < chunks) next[t] = gdn_mx_load(tile[t], c + GDN_MX_WARPS);
        gdn_mx_chunk<BLOCKS, TILES>(acc, now, gdn_mx_global_at(Aq, As, M, chunks, c));
        GDN_UNROLL
        for (int t = 0; t < TILES; t++) now[t] = next[t];
    }
    gdn_mx_finish<BLOCKS, TILES>(acc, sums, gdn_mx_whole_block {}, row0, gdn_mx_out { C, Ag, scale2, M, N }, [] {});
}

#define ENTRY_(name, BLOCKS, TILES)                                                                                              \
    GDN_KERNEL(GDN_MX_BLOCK)                                                                                                     \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K) {                                                                                   \
        gdn_begin();                                                                                                             \
        project<BLOCKS, TILES>(Aq, As, Ag, Bq, Bs, scale2, C, M, N, K);                                                          \
    }
ENTRY_(w4a4_gemv_mx8, 1, 1)
ENTRY_(w4a4_gemv_mx16, 2, 1)
ENTRY_(w4a4_gemv_mx16_nt2, 2, 2)
ENTRY_(w4a4_gemv_mx32, 4, 1)
ENTRY_(w4a4_gemv_mx32_nt4, 4, 4)
ENTRY_(w4a4_gemv_mx64, 8, 1)
ENTRY_(w4a4_gemv_mx64_nt2, 8, 2)
