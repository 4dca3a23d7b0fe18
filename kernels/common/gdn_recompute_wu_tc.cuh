/* gdn_recompute_wu_tc.cuh - W, U and gc of one chunk and value head on tensor cores. Formulas and contract:
 * hopper/gated_delta_rule_fla_hopper.cu.
 *
 * The solve inverts I + L: 16 x 16 diagonal blocks in f32 by substitution, blocks below them by products of two bf16 limbs
 * (hi hi + hi lo + lo hi, f32 accumulators). K and V are exact in bf16, so that the inverse, times the row scale, in two limbs is all
 * that U and W need. */
#pragma once
#include "gdn_chunk_tc.cuh"

namespace gdn_wu_tc {
using namespace gdn_chunk_tc;
enum {
    T_PITCH = 72,    /* floats: row pairs of a fragment meet no bank twice */
    DIAG_PITCH = 20, /* floats */
    LIMB = CHUNK * CHUNK * 2,
    AT_K = 0,
    AT_V = AT_K + TILE,
    AT_LIMBS = AT_V + TILE, /* of L below the diagonal blocks, of the inverse in them; at the end the warps' staging */
    AT_T = AT_LIMBS + 2 * LIMB,
    AT_DIAG = AT_T + CHUNK * T_PITCH * 4,
    AT_VEC = AT_DIAG + BLOCKS * 16 * DIAG_PITCH * 4, /* logs, gc, beta, beta exp(gc) */
    SMEM = 79104,
};
static_assert(AT_VEC + 4 * CHUNK * 4 <= SMEM, "fits");
static_assert(16 * STAGING <= 2 * LIMB, "staging");

struct shared {
    unsigned char *K, *V, *limbs;
    float *T, *diag, *log_decay, *gc, *beta, *beta_decay;
};
GDN_DEVICE shared carve(unsigned char *smem) {
    float *const vec = reinterpret_cast<float *>(smem + AT_VEC);
    return shared { smem + AT_K,
                    smem + AT_V,
                    smem + AT_LIMBS,
                    reinterpret_cast<float *>(smem + AT_T),
                    reinterpret_cast<float *>(smem + AT_DIAG),
                    vec,
                    vec + CHUNK,
                    vec + 2 * CHUNK,
                    vec + 3 * CHUNK };
}
/* Element pair (row, col), (row, col + 1) of both limbs of a 64 x 64 matrix. */
GDN_DEVICE void put_limbs(unsigned char *limbs, uint32_t row, uint32_t col, float x, float y) {
    uint32_t hi, lo;
    gdn_split_bf16(hi, lo, x, y);
    const uint32_t at = gdn_swizzle_at<128>(row, col / 8) + col % 8 * 2;
    *reinterpret_cast<uint32_t *>(limbs + at) = hi;
    *reinterpret_cast<uint32_t *>(limbs + LIMB + at) = lo;
}

/* One thread: the contract's serial sum. */
GDN_DEVICE void sum_logs(const shared &s) {
    float sum = 0.0f;
    GDN_UNROLL
    for (uint32_t i = 0; i < CHUNK; i += 4) {
        const float4 l = gdn_ld16f(s.log_decay + i);
        float4 g;
        g.x = sum + l.x;
        g.y = g.x + l.y;
        g.z = g.y + l.z;
        g.w = g.z + l.w;
        sum = g.w;
        gdn_st16f(s.gc + i, g);
    }
}
/* L of one 16 x 16 block from its Gram matrix: limbs below the diagonal blocks; those themselves in f32, transposed. */
GDN_DEVICE void put_l(const shared &s, uint32_t block_row, uint32_t block_col, const float (&d)[2][4]) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        GDN_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t r = lane / 4 + 8 * h, c = 8 * n + 2 * (lane % 4), i = block_row * 16 + r, l = block_col * 16 + c;
            const float beta = s.beta[i], gi = s.gc[i];
            const float x = l < i ? beta * gdn_exp(gi - s.gc[l]) * d[n][2 * h] : 0.0f;
            const float y = l + 1 < i ? beta * gdn_exp(gi - s.gc[l + 1]) * d[n][2 * h + 1] : 0.0f;
            if (block_row == block_col) {
                float *const diag = s.diag + (block_row * 16 + c) * DIAG_PITCH + r;
                diag[0] = x;
                diag[DIAG_PITCH] = y;
            } else {
                put_limbs(s.limbs, i, l, x, y);
            }
        }
    }
}
/* Inverse of I + L of one diagonal block by one warp: lane c % 16 has column c, right-looking. */
GDN_DEVICE void invert_diagonal(const shared &s, uint32_t block) {
    const uint32_t lane = gdn_lane(), c = lane % 16;
    float x[16];
    GDN_UNROLL
    for (uint32_t r = 0; r < 16; r++) x[r] = r == c ? 1.0f : 0.0f;
    GDN_UNROLL
    for (uint32_t m = 0; m < 15; m++) {
        const float *const L = s.diag + (block * 16 + m) * DIAG_PITCH; /* column m */
        GDN_UNROLL
        for (uint32_t r4 = (m + 1) / 4 * 4; r4 < 16; r4 += 4) {
            const float4 l = gdn_ld16f(L + r4);
            const float e[4] = { l.x, l.y, l.z, l.w };
            GDN_UNROLL
            for (uint32_t q = 0; q < 4; q++)
                if (r4 + q > m) x[r4 + q] = gdn_fma(-e[q], x[m], x[r4 + q]);
        }
    }
    if (lane >= 16) return;
    GDN_UNROLL
    for (uint32_t r = 0; r < 16; r++) {
        const uint32_t row = block * 16 + r, col = block * 16 + c;
        s.T[row * T_PITCH + col] = x[r];
        const uint32_t at = gdn_swizzle_at<128>(row, col / 8) + col % 8 * 2;
        const gdn_bf16 hi = gdn_to_bf16(x[r]);
        *reinterpret_cast<gdn_bf16 *>(s.limbs + at) = hi;
        *reinterpret_cast<gdn_bf16 *>(s.limbs + LIMB + at) = gdn_to_bf16(x[r] - gdn_to_f32(hi));
    }
}
/* d += A^T-block products in two limbs: B = block (row, col) of the matrix in `limbs`, transposed. */
GDN_DEVICE void limb_product(float (&d)[2][4], const uint32_t (&hi)[4], const uint32_t (&lo)[4], const unsigned char *limbs, uint32_t row,
                             uint32_t col) {
    const uint32_t lane = gdn_lane(), at = gdn_swizzle_at<128>(row * 16 + gdn_crossed_row(lane), 2 * col + gdn_crossed_unit(lane));
    uint32_t b[4], b_lo[4];
    gdn_ldmatrix_x4(b, limbs + at);
    gdn_ldmatrix_x4(b_lo, limbs + LIMB + at);
    gdn_mma_pair(d[0], d[1], lo, b);
    gdn_mma_pair(d[0], d[1], hi, b_lo);
    gdn_mma_pair(d[0], d[1], hi, b);
}
/* Column of blocks j of the inverse below its diagonal, by one warp: T_ij = -T_ii sum_{j<=m<i} L_im T_mj, all of it transposed, so
 * that each accumulator is the next A operand. */
GDN_DEVICE void merge_column(const shared &s, uint32_t j) {
    const uint32_t lane = gdn_lane(), at = gdn_swizzle_at<128>(j * 16 + gdn_crossed_row(lane), 2 * j + gdn_crossed_unit(lane));
    uint32_t hi[BLOCKS - 1][4], lo[BLOCKS - 1][4]; /* T_mj^T, m = j + index */
    gdn_ldmatrix_x4_trans(hi[0], s.limbs + at);
    gdn_ldmatrix_x4_trans(lo[0], s.limbs + LIMB + at);
    GDN_UNROLL
    for (uint32_t step = 1; step < BLOCKS; step++) {
        const uint32_t i = j + step;
        if (i >= BLOCKS) break;
        float y[2][4] = {}, d[2][4] = {};
        GDN_UNROLL
        for (uint32_t m = 0; m < step; m++) limb_product(y, hi[m], lo[m], s.limbs, i, j + m);
        uint32_t y_hi[4], y_lo[4];
        gdn_split_a(y_hi, y_lo, y[0], y[1]);
        limb_product(d, y_hi, y_lo, s.limbs, i, i);
        GDN_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            GDN_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                d[n][q] = -d[n][q];
                s.T[(i * 16 + 8 * n + 2 * (lane % 4) + q % 2) * T_PITCH + j * 16 + lane / 4 + 8 * (q / 2)] = d[n][q];
            }
        }
        if (step < BLOCKS - 1) gdn_split_a(hi[step], lo[step], d[0], d[1]);
    }
}
/* 16 rows x 32 columns of (T diag(scale)) X, X exact. */
GDN_DEVICE void apply(float (&d)[4][4], const shared &s, uint32_t block, const float *scale, const unsigned char *X, uint32_t unit) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) d[n][q] = 0.0f;
    }
    GDN_NO_UNROLL
    for (uint32_t k = 0; k <= block; k++) {
        uint32_t hi[4], lo[4];
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            const uint32_t row = block * 16 + lane / 4 + 8 * (q % 2), col = k * 16 + 2 * (lane % 4) + 8 * (q / 2);
            const float2 t = *reinterpret_cast<const float2 *>(s.T + row * T_PITCH + col);
            const float2 f = *reinterpret_cast<const float2 *>(scale + col);
            gdn_split_bf16(hi[q], lo[q], t.x * f.x, t.y * f.y);
        }
        GDN_UNROLL
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t b[4];
            gdn_ldmatrix_x4_trans(b, X + gdn_swizzle_at<256>(k * 16 + gdn_plain_row(lane), unit + 2 * n + gdn_plain_unit(lane)));
            gdn_mma_pair(d[2 * n], d[2 * n + 1], lo, b);
            gdn_mma_pair(d[2 * n], d[2 * n + 1], hi, b);
        }
    }
}

struct operands {
    const gdn_bf16 *key, *value;
    const float *gate, *beta;
    gdn_bf16 *W, *U;
    float *gc;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride, v_stride, gb_stride;
    const int32_t *cu;
    bool is_varlen;
};
GDN_DEVICE void run(const operands &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM(unsigned char, smem);
    if (gdn_is_padding(ext, blockIdx.z)) return;
    const chunk c = find_chunk(ext, o.seq_len, o.num_chunks, o.nv, o.cu, o.is_varlen);
    if (c.rows == 0) return;
    const shared s = carve(smem);
    const uint32_t head = blockIdx.y, t = threadIdx.x, warp = gdn_warp();
    const gdn_bf16 *const key = o.key + c.qk_token * o.qk_stride + gdn_key_head(head, o.nk, o.nv) * DIM;
    const gdn_bf16 *const value = o.value + c.token * o.v_stride + (uint64_t)head * DIM;
    gdn_swizzle_load<CHUNK, THREADS>(s.K, key, o.qk_stride, c.rows, gdn_copy_bytes(key, o.qk_stride));
    gdn_cp_async_commit();
    gdn_swizzle_load<CHUNK, THREADS>(s.V, value, o.v_stride, c.rows, gdn_copy_bytes(value, o.v_stride));
    gdn_cp_async_commit();
    if (t < CHUNK) {
        const uint64_t at = (c.token + t) * o.gb_stride + head;
        s.log_decay[t] = t < c.rows ? gdn_log_decay(o.gate[at]) : 0.0f;
        s.beta[t] = t < c.rows ? o.beta[at] : 0.0f;
    }
    gdn_cp_async_wait<1>();
    gdn_sync_block();

    uint32_t row = 0, col = 0;
    float d[2][4];
    if (warp < 10) {
        lower_block(warp, row, col);
        gram_block(d, s.K, row * 16, s.K, col * 16);
    } else if (warp == 15 && gdn_lane() == 0) {
        sum_logs(s);
    }
    gdn_sync_block();
    if (warp < 10) {
        put_l(s, row, col, d);
        if (warp < BLOCKS) {
            gdn_sync_warp();
            invert_diagonal(s, warp);
        }
    } else if (warp < 12) {
        const uint32_t i = t - 10 * 32;
        s.beta_decay[i] = s.beta[i] * gdn_exp(s.gc[i]);
        if (i < c.rows) o.gc[c.row * CHUNK + i] = s.gc[i];
    }
    gdn_sync_block();
    if (warp < BLOCKS - 1) merge_column(s, warp);
    gdn_cp_async_wait<0>();
    gdn_sync_block();

    /* A warp: blocks of rows i and 3 - i, so that all have five products; 32 columns of U or W. */
    const uint32_t pair = warp % 2, part = warp / 2;
    const bool is_u = part < 4;
    const uint32_t column = part % 4 * WIDTH;
    gdn_bf16 *const out = (is_u ? o.U : o.W) + c.row * (CHUNK * DIM) + column;
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t block = i ? pair : BLOCKS - 1 - pair;
        if (block * 16 >= c.rows) continue;
        float r[4][4];
        apply(r, s, block, is_u ? s.beta : s.beta_decay, is_u ? s.V : s.K, column / 8);
        store_rows<true>(s.limbs + warp * STAGING, r, out + block * 16 * DIM, DIM, c.rows - block * 16);
    }
}
} // namespace gdn_wu_tc
