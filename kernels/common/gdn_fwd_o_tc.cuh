/* gdn_fwd_o_tc.cuh - the output of one chunk and value head on tensor cores. Formula and contract:
 * hopper/gated_delta_rule_fla_hopper.cu.
 *
 * Ten warps make the ten 16 x 16 blocks of the gated q.k below the diagonal, as limbs in the order of A fragments; then each of the
 * 16 warps has 16 rows x 32 columns of the output. */
#pragma once
#include "gdn_chunk_tc.cuh"

namespace gdn_fwd_o_tc {
using namespace gdn_chunk_tc;
enum {
    AT_Q = 0,
    AT_K = AT_Q + TILE, /* at the end the warps' staging */
    AT_S = AT_K + TILE,
    AT_UC = AT_S + 2 * TILE,
    AT_P = AT_UC + TILE, /* ten blocks, two limbs, in the order of A fragments */
    FRAGMENT = 32 * 16,
    AT_GC = AT_P + 10 * 2 * FRAGMENT,
    SMEM = 97536,
};
static_assert(AT_GC + CHUNK * 4 <= SMEM, "fits");

struct operands {
    const gdn_bf16 *query, *key;
    const float *gc;
    const gdn_bf16 *S, *uc;
    gdn_bf16 *output;
    uint32_t seq_len, num_chunks, nk, nv, kd, qk_stride;
    const int32_t *cu;
    bool is_varlen;
};
/* Gated q.k of one block of the lower triangle, in limbs. */
GDN_DEVICE void put_p(unsigned char *smem, uint32_t block, uint32_t rows) {
    const uint32_t lane = gdn_lane();
    const float *const gc = reinterpret_cast<const float *>(smem + AT_GC);
    uint32_t block_row, block_col, hi[4], lo[4];
    lower_block(block, block_row, block_col);
    if (block_row * 16 >= rows) return;
    float d[2][4];
    gram_block(d, smem + AT_Q, block_row * 16, smem + AT_K, block_col * 16);
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            const uint32_t i = block_row * 16 + lane / 4 + 8 * (q / 2), l = block_col * 16 + 8 * n + 2 * (lane % 4) + q % 2;
            d[n][q] = l <= i && i < rows ? gdn_exp(gc[i] - gc[l]) * d[n][q] : 0.0f;
        }
    }
    gdn_split_a(hi, lo, d[0], d[1]);
    unsigned char *const p = smem + AT_P + block * 2 * FRAGMENT + lane * 16;
    gdn_st16(p, uint4 { hi[0], hi[1], hi[2], hi[3] });
    gdn_st16(p + FRAGMENT, uint4 { lo[0], lo[1], lo[2], lo[3] });
}
GDN_DEVICE uint32_t block_of(uint32_t row, uint32_t col) { /* the inverse of lower_block */
    return row == col ? row : row == 1 ? 4 : row == 2 ? 5 + col : 7 + col;
}
/* 16 rows x 32 columns of exp(gc) Q S + P uc. */
GDN_DEVICE void rows_of_o(float (&d)[4][4], const unsigned char *smem, uint32_t block, uint32_t unit) {
    const uint32_t lane = gdn_lane();
    const float *const gc = reinterpret_cast<const float *>(smem + AT_GC);
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) d[n][q] = 0.0f;
    }
    GDN_UNROLL
    for (uint32_t k = 0; k < DIM / 16; k++) {
        uint32_t a[4];
        gdn_ldmatrix_x4(a, smem + AT_Q + gdn_swizzle_at<256>(block * 16 + gdn_plain_row(lane), 2 * k + gdn_plain_unit(lane)));
        GDN_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t b[4];
            gdn_ldmatrix_x4_trans(b, smem + AT_S + gdn_swizzle_at<256>(k * 16 + gdn_plain_row(lane), unit + 2 * n + gdn_plain_unit(lane)));
            gdn_mma_pair(d[2 * n], d[2 * n + 1], a, b);
        }
    }
    const float e[2] = { gdn_exp(gc[block * 16 + lane / 4]), gdn_exp(gc[block * 16 + lane / 4 + 8]) };
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) d[n][q] *= e[q / 2];
    }
    GDN_NO_UNROLL
    for (uint32_t k = 0; k <= block; k++) {
        const unsigned char *const p = smem + AT_P + block_of(block, k) * 2 * FRAGMENT + lane * 16;
        const uint4 h = gdn_ld16(p), l = gdn_ld16(p + FRAGMENT);
        const uint32_t hi[4] = { h.x, h.y, h.z, h.w }, lo[4] = { l.x, l.y, l.z, l.w };
        GDN_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t b[4];
            gdn_ldmatrix_x4_trans(b, smem + AT_UC + gdn_swizzle_at<256>(k * 16 + gdn_plain_row(lane), unit + 2 * n + gdn_plain_unit(lane)));
            gdn_mma_pair(d[2 * n], d[2 * n + 1], lo, b);
            gdn_mma_pair(d[2 * n], d[2 * n + 1], hi, b);
        }
    }
}
GDN_DEVICE void zero_rows(gdn_bf16 *out, uint64_t stride, uint32_t rows) {
    for (uint32_t i = threadIdx.x; i < rows * DIM; i += THREADS) out[i / DIM * stride + i % DIM].bits = 0;
}

GDN_DEVICE void run(const operands &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM(unsigned char, smem);
    const chunk c = find_chunk(ext, o.seq_len, o.num_chunks, o.nv, o.cu, o.is_varlen);
    if (c.rows == 0) return;
    const uint32_t head = blockIdx.y, t = threadIdx.x, warp = gdn_warp();
    const uint64_t stride = (uint64_t)o.nv * DIM;
    gdn_bf16 *const output = o.output + c.token * stride + head * DIM;
    if (gdn_is_padding(ext, blockIdx.z)) return zero_rows(output, stride, c.rows);

    const uint64_t row = c.qk_token * o.qk_stride + gdn_key_head(head, o.nk, o.nv) * DIM;
    gdn_swizzle_load<CHUNK, THREADS>(smem + AT_Q, o.query + row, o.qk_stride, c.rows, gdn_copy_bytes(o.query + row, o.qk_stride));
    gdn_swizzle_load<CHUNK, THREADS>(smem + AT_K, o.key + row, o.qk_stride, c.rows, gdn_copy_bytes(o.key + row, o.qk_stride));
    gdn_cp_async_commit();
    gdn_swizzle_load<DIM, THREADS>(smem + AT_S, o.S + c.row * (DIM * DIM), DIM, DIM);
    gdn_swizzle_load<CHUNK, THREADS>(smem + AT_UC, o.uc + c.row * (CHUNK * DIM), DIM, c.rows);
    gdn_cp_async_commit();
    if (t < CHUNK) reinterpret_cast<float *>(smem + AT_GC)[t] = t < c.rows ? o.gc[c.row * CHUNK + t] : 0.0f;
    gdn_cp_async_wait<1>();
    gdn_sync_block();
    if (warp < 10) put_p(smem, warp, c.rows);
    gdn_cp_async_wait<0>();
    gdn_sync_block();

    /* Each quarter of the multiprocessor (warp % 4) gets every block of rows once. */
    const uint32_t block = (warp + warp / 4) % 4, column = warp / 4 * WIDTH;
    if (block * 16 >= c.rows) return;
    float d[4][4];
    rows_of_o(d, smem, block, column / 8);
    const float scale = gdn_output_scale(o.kd, ext.scale);
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) d[n][q] *= scale;
    }
    gdn_bf16 *const out = output + block * 16 * stride + column;
    unsigned char *const staging = smem + AT_K + warp * STAGING;
    if (gdn_aligned16(o.output))
        store_rows<true>(staging, d, out, stride, c.rows - block * 16);
    else
        store_rows<false>(staging, d, out, stride, c.rows - block * 16);
}
} // namespace gdn_fwd_o_tc
