/* gdn_recompute_wu.cuh - first kernel of the chunk pipeline: W, U and gc of one chunk and value head.
 *
 * gc_i = sum_{j<=i} ln a_j, added in index order. L[i][l] = beta_i exp(gc_i - gc_l) <k_i, k_l> for l < i, and
 *     (I + L) U = diag(beta) V          (I + L) W = diag(beta exp gc) K
 * by forward substitution in f32, thread = column, each row's terms in ascending l; results rounded to bf16. */
#pragma once
#include "gdn_mma.cuh"
#include "gdn_rule.cuh"
#include "gdn_tile.cuh"

struct gdn_wu {
    const gdn_bf16 *key, *value;
    const float *gate, *beta;
    gdn_bf16 *W, *U;
    float *gc;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride, v_stride, gb_stride;
    const int32_t *cu;
    bool varlen;
};

enum { GDN_WU_BLOCK = 256, GDN_C = GDN_CHUNK_TOKENS };

/* Running sums of the logs in `sum`, in place; by one thread. 16-byte accesses, additions in index order. */
GDN_DEVICE void gdn_serial_sums(float *sum) {
    float run = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_C; i += 4) {
        float4 x = gdn_ld16f(sum + i);
        x.x = run + x.x;
        x.y = x.x + x.y;
        x.z = x.y + x.z;
        x.w = x.z + x.w;
        run = x.w;
        gdn_st16f(sum + i, x);
    }
}

/* Eight warps: warp w has rows 16 (w / 2) .. and columns 32 (w % 2) .. of K K^T. LT[l][i], zero unless l < i < rows. */
GDN_DEVICE void gdn_wu_gram(const gdn_bf16 *k, const float *gc, const float *beta, uint32_t rows, float *LT) {
    const uint32_t lane = gdn_lane(), i0 = gdn_warp() / 2 * 16, l0 = gdn_warp() % 2 * 32;
    float d[4][4] = {};
    GDN_UNROLL
    for (uint32_t k16 = 0; k16 < 8; k16++) {
        uint32_t a[4];
        gdn_ldmatrix_x4(a, k + gdn_tile_at<true>(i0 + lane % 16, 2 * k16 + lane / 16));
        GDN_UNROLL
        for (uint32_t n = 0; n < 4; n += 2) {
            uint32_t b[4];
            gdn_ldmatrix_x4(b, k + gdn_tile_at<true>(l0 + 8 * n + lane % 8 + lane / 16 * 8, 2 * k16 + lane / 8 % 2));
            gdn_mma_bf16_m16n8k16(d[n], a, { b[0], b[1] });
            gdn_mma_bf16_m16n8k16(d[n + 1], a, { b[2], b[3] });
        }
    }
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) GDN_UNROLL
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t i = i0 + lane / 4 + e / 2 * 8, l = l0 + 8 * n + lane % 4 * 2 + e % 2;
        LT[l * GDN_C + i] = l < i && i < rows ? beta[i] * gdn_exp(gc[i] - gc[l]) * d[n][e] : 0.0f;
    }
}

/* x_i -= L[i][l] x_l for all i > l, l ascending: the terms of one x_i arrive in the order of a row-wise substitution. */
GDN_DEVICE void gdn_wu_solve(float (&x)[GDN_C], const float *LT) {
    GDN_UNROLL
    for (uint32_t l = 0; l + 1 < GDN_C; l++) GDN_UNROLL
    for (uint32_t i = (l + 1) & ~3u; i < GDN_C; i += 4) {
        const float4 c = gdn_ld16f_shared(LT + l * GDN_C + i);
        if (i > l) x[i] = gdn_fma(-c.x, x[l], x[i]);
        if (i + 1 > l) x[i + 1] = gdn_fma(-c.y, x[l], x[i + 1]);
        if (i + 2 > l) x[i + 2] = gdn_fma(-c.z, x[l], x[i + 2]);
        if (i + 3 > l) x[i + 3] = gdn_fma(-c.w, x[l], x[i + 3]);
    }
}

GDN_DEVICE void gdn_recompute_wu(const gdn_wu &a, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM(float, LT);
    gdn_bf16 *const k = reinterpret_cast<gdn_bf16 *>(LT + GDN_C * GDN_C);
    float *const gc = LT + GDN_C * GDN_C + GDN_C * GDN_TILE_COLUMNS / 2;
    __shared__ float beta[GDN_C], w_factor[GDN_C];
    const uint32_t head = blockIdx.y, b = blockIdx.z, t = threadIdx.x;
    if (gdn_is_padding(ext, b)) return;
    const gdn_sequence s = gdn_find_sequence(ext, b, a.seq_len, a.num_chunks, a.cu, a.varlen);
    const uint32_t c = s.begin + blockIdx.x;
    if (c >= s.end) return;
    const uint32_t rows = gdn_chunk_rows(s, c), key_head = gdn_key_head(head, a.nk, a.nv);
    const uint64_t token = s.token + (uint64_t)c * GDN_C, qk_token = s.qk_token + (uint64_t)c * GDN_C;
    const uint64_t row = (uint64_t)(s.chunk_row + blockIdx.x) * a.nv + head;

    gdn_tile_load<true>(k, a.key + qk_token * a.qk_stride + key_head * GDN_TILE_COLUMNS, a.qk_stride, rows, GDN_C);
    if (t < GDN_C) {
        const uint64_t at = (token + t) * a.gb_stride + head;
        gc[t] = t < rows ? gdn_log_decay(a.gate[at]) : 0.0f;
        beta[t] = t < rows ? a.beta[at] : 0.0f;
    }
    const uint32_t column = t % GDN_TILE_COLUMNS;
    float x[GDN_C];
    if (t < GDN_TILE_COLUMNS) {
        const gdn_bf16 *const v = a.value + token * a.v_stride + head * GDN_TILE_COLUMNS + column;
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_C; i++) x[i] = i < rows ? gdn_to_f32(v[(uint64_t)i * a.v_stride]) : 0.0f;
    }
    gdn_sync_block();
    if (t == 0) gdn_serial_sums(gc);
    gdn_sync_block();
    if (t < GDN_C) w_factor[t] = beta[t] * gdn_exp(gc[t]);
    if (t < rows) a.gc[row * GDN_C + t] = gc[t];
    gdn_wu_gram(k, gc, beta, rows, LT);
    gdn_sync_block();
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_C; i++)
        x[i] = t < GDN_TILE_COLUMNS ? beta[i] * x[i] : w_factor[i] * gdn_to_f32(gdn_tile_element(k, i, column));
    gdn_wu_solve(x, LT);
    gdn_bf16 *const out = (t < GDN_TILE_COLUMNS ? a.U : a.W) + row * GDN_C * GDN_TILE_COLUMNS + column;
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_C; i++)
        if (i < rows) out[i * GDN_TILE_COLUMNS] = gdn_to_bf16(x[i]);
}
