/* gdn_chunk_tc.cuh - what the tensor-core kernels with one block a chunk share (gdn_recompute_wu_tc.cuh, gdn_fwd_o_tc.cuh): which chunk
 * a block has, products of 16 x 16 blocks of q and k, results on their way out. Block 512, k_dim = v_dim = 128. */
#pragma once
#include "gdn_device.cuh"
#include "gdn_rows.cuh"
#include "gdn_rule.cuh"
#include "gdn_swizzle.cuh"

namespace gdn_chunk_tc {
enum {
    CHUNK = GDN_CHUNK_TOKENS,
    DIM = 128,
    THREADS = 512,
    BLOCKS = CHUNK / 16, /* of 16 tokens */
    TILE = CHUNK * DIM * 2,
    WIDTH = 32,               /* columns of a result that a warp has */
    STAGING = 16 * WIDTH * 2, /* a warp's 16 rows of them */
};

/* Which chunk a block has. */
struct chunk {
    gdn_sequence seq;
    uint32_t index, rows;     /* in its sequence; valid rows. 0: none */
    uint64_t row;             /* of the scratch */
    uint64_t token, qk_token; /* of its first row; in query and key */
};
GDN_DEVICE chunk find_chunk(const gdn_rule_ext &ext, uint32_t seq_len, uint32_t num_chunks, uint32_t nv, const int32_t *cu,
                            bool is_varlen) {
    chunk c;
    c.seq = gdn_find_sequence(ext, blockIdx.z, seq_len, num_chunks, cu, is_varlen);
    c.index = c.seq.begin + blockIdx.x;
    c.rows = c.index < c.seq.end ? gdn_chunk_rows(c.seq, c.index) : 0;
    c.row = (uint64_t)(c.seq.chunk_row + blockIdx.x) * nv + blockIdx.y;
    c.token = c.seq.token + (uint64_t)c.index * CHUNK;
    c.qk_token = c.seq.qk_token + (uint64_t)c.index * CHUNK;
    return c;
}

/* ---- 16 rows x 32 columns of a result: accumulators to bf16 rows `stride` elements apart, through the warp's own kilobyte ---- */
template <bool VEC>
GDN_DEVICE void store_rows(unsigned char *staging, const float (&d)[4][4], gdn_bf16 *out, uint64_t stride, uint32_t rows) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t r[4] = { gdn_pack_bf16(d[2 * n][0], d[2 * n][1]), gdn_pack_bf16(d[2 * n][2], d[2 * n][3]),
                                gdn_pack_bf16(d[2 * n + 1][0], d[2 * n + 1][1]), gdn_pack_bf16(d[2 * n + 1][2], d[2 * n + 1][3]) };
        gdn_stmatrix_x4(staging + gdn_swizzle_at<64>(gdn_plain_row(lane), 2 * n + gdn_plain_unit(lane)), r);
    }
    gdn_sync_warp();
    GDN_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = i * 8 + lane / 4, unit = lane % 4;
        if (row < rows) gdn_store8<VEC>(out + row * stride + unit * 8, 8, gdn_ld16(staging + gdn_swizzle_at<64>(row, unit)));
    }
    gdn_sync_warp();
}
/* Block i of 10 of the lower triangle of 4 x 4: the diagonal first, so that four warps of four quarters have it. */
GDN_DEVICE void lower_block(uint32_t i, uint32_t &row, uint32_t &col) {
    row = i < 4 ? i : i == 4 ? 1 : i < 7 ? 2 : 3;
    col = i < 4 ? i : i == 4 ? 0 : i < 7 ? i - 5 : i - 7;
}
/* d[0..1] = 16 x 16 block of A B^T, both tiles of 128 columns. */
GDN_DEVICE void gram_block(float (&d)[2][4], const unsigned char *A, uint32_t a_row, const unsigned char *B, uint32_t b_row) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) d[n][q] = 0.0f;
    }
    GDN_UNROLL
    for (uint32_t k = 0; k < DIM / 16; k++) {
        uint32_t a[4], b[4];
        gdn_ldmatrix_x4(a, A + gdn_swizzle_at<256>(a_row + gdn_plain_row(lane), 2 * k + gdn_plain_unit(lane)));
        gdn_ldmatrix_x4(b, B + gdn_swizzle_at<256>(b_row + gdn_crossed_row(lane), 2 * k + gdn_crossed_unit(lane)));
        gdn_mma_pair(d[0], d[1], a, b);
    }
}
} // namespace gdn_chunk_tc
