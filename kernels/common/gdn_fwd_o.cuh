/* gdn_fwd_o.cuh - last kernel of the chunk pipeline: the output rows of one chunk and value head.
 *
 *     O_i[v] = ( exp(gc_i) bf16(<q_i, S_c[:,v]>) + sum_{l<=i} exp(gc_i - gc_l) <q_i, k_l> uc_l[v] ) scale
 *
 * q.k and q.S on tensor cores, k ascending in steps of 16; the intra-chunk sum in f32 with one rounding a term (fma), l ascending,
 * added to the inter-chunk term at the end. Two forms with the same bytes: fragments gathered word by word and one output a thread
 * and step, or ldmatrix and 4x4 outputs a thread. 512 threads. */
#pragma once
#include "gdn_mma.cuh"
#include "gdn_rule.cuh"
#include "gdn_tile.cuh"

struct gdn_fwd_o {
    const gdn_bf16 *query, *key;
    const float *gate, *gc;
    const gdn_bf16 *S, *uc;
    gdn_bf16 *output;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride;
    const int32_t *cu;
    bool varlen;
};

enum { GDN_O_BLOCK = 512, GDN_O_ROWS = GDN_CHUNK_TOKENS, GDN_O_DIM = 128 };

/* The block's shared memory. After the products Q's tile holds bf16(q.S), linear. */
struct gdn_o_tiles {
    gdn_bf16 *q, *k, *uc, *S; /* uc linear, the others swizzled */
    float *PT;                /* [l][i]: exp(gc_i - gc_l) <q_i, k_l>, zero for l > i */
    float *gc, *factor;       /* factor: exp(gc_i) */
};

/* ---- the parent's products: every fragment word by word ---- */
GDN_DEVICE uint32_t gdn_tile_pair(const gdn_bf16 *tile, uint32_t row, uint32_t column) {
    return *reinterpret_cast<const uint32_t *>(tile + gdn_tile_at<true>(row, column / 8) + column % 8);
}
GDN_DEVICE void gdn_gather_a(uint32_t (&a)[4], const gdn_bf16 *tile, uint32_t row0, uint32_t k0) {
    const uint32_t g = gdn_lane() / 4, t = gdn_lane() % 4;
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) a[i] = gdn_tile_pair(tile, row0 + g + i % 2 * 8, k0 + 2 * t + i / 2 * 8);
}
/* B(k, n) = tile[n][k], or tile[k][n]. */
template <bool TRANSPOSED> GDN_DEVICE void gdn_gather_b(uint32_t (&b)[2], const gdn_bf16 *tile, uint32_t k0, uint32_t n0) {
    const uint32_t g = gdn_lane() / 4, t = gdn_lane() % 4;
    GDN_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t k = k0 + 2 * t + i * 8;
        b[i] = TRANSPOSED ? gdn_tile_element(tile, k, n0 + g).bits | (uint32_t)gdn_tile_element(tile, k + 1, n0 + g).bits << 16
                          : gdn_tile_pair(tile, n0 + g, k);
    }
}

/* 16 rows from row0, N tiles of 8 columns from n0, of A [64][128] B. Sixteen columns at a time by ldmatrix in the fast form. */
template <bool FAST, bool TRANSPOSED, uint32_t N>
GDN_DEVICE void gdn_o_product(float (&d)[N][4], const gdn_bf16 *a_tile, const gdn_bf16 *b_tile, uint32_t row0, uint32_t n0) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t k16 = 0; k16 < GDN_O_DIM / 16; k16++) {
        uint32_t a[4];
        if (FAST)
            gdn_ldmatrix_x4(a, a_tile + gdn_tile_at<true>(row0 + lane % 16, 2 * k16 + lane / 16));
        else
            gdn_gather_a(a, a_tile, row0, 16 * k16);
        GDN_UNROLL
        for (uint32_t n = 0; n < N; n += 2) {
            uint32_t b[2][2];
            if (FAST) {
                uint32_t four[4];
                if (TRANSPOSED)
                    gdn_ldmatrix_x4_trans(four, b_tile + gdn_tile_at<true>(16 * k16 + lane % 16, n0 / 8 + n + lane / 16));
                else
                    gdn_ldmatrix_x4(four, b_tile + gdn_tile_at<true>(n0 + 8 * n + lane % 8 + lane / 16 * 8, 2 * k16 + lane / 8 % 2));
                b[0][0] = four[0], b[0][1] = four[1], b[1][0] = four[2], b[1][1] = four[3];
            } else {
                gdn_gather_b<TRANSPOSED>(b[0], b_tile, 16 * k16, n0 + 8 * n);
                gdn_gather_b<TRANSPOSED>(b[1], b_tile, 16 * k16, n0 + 8 * n + 8);
            }
            gdn_mma_bf16_m16n8k16(d[n], a, b[0]);
            gdn_mma_bf16_m16n8k16(d[n + 1], a, b[1]);
        }
    }
}

/* Sixteen warps: warp w has rows 16 (w / 4) .. and a quarter of the columns. Barrier inside: Q is overwritten after the products. */
template <bool FAST> GDN_DEVICE void gdn_o_products(const gdn_o_tiles &m, uint32_t rows) {
    const uint32_t g = gdn_lane() / 4, t = gdn_lane() % 4, row0 = gdn_warp() / 4 * 16, quarter = gdn_warp() % 4;
    float qk[2][4] = {}, qs[4][4] = {};
    if (!FAST || 16 * quarter < row0 + 16) gdn_o_product<FAST, false, 2>(qk, m.q, m.k, row0, 16 * quarter);
    gdn_o_product<FAST, true, 4>(qs, m.q, m.S, row0, 32 * quarter);
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) GDN_UNROLL
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t i = row0 + g + e / 2 * 8, l = 16 * quarter + 8 * n + 2 * t + e % 2;
        m.PT[l * GDN_O_ROWS + i] = l <= i && i < rows ? gdn_exp(m.gc[i] - m.gc[l]) * qk[n][e] : 0.0f;
    }
    gdn_sync_block();
    GDN_UNROLL
    for (uint32_t n = 0; n < 4; n++) GDN_UNROLL
    for (uint32_t e = 0; e < 4; e += 2)
        *reinterpret_cast<uint32_t *>(m.q + (row0 + g + e / 2 * 8) * GDN_O_DIM + 32 * quarter + 8 * n + 2 * t) =
            gdn_pack_bf16(qs[n][e], qs[n][e + 1]);
    gdn_sync_block();
}

GDN_DEVICE float gdn_o_value(const gdn_o_tiles &m, float inter, float intra, uint32_t i, float scale) {
    return (m.factor[i] * inter + intra) * scale;
}

/* The parent: row t / 8, sixteen columns one after another. */
GDN_DEVICE void gdn_o_rows(const gdn_o_tiles &m, uint32_t rows, float scale, gdn_bf16 *out, uint64_t stride) {
    const uint32_t i = threadIdx.x / 8;
    if (i >= rows) return;
    for (uint32_t v = threadIdx.x % 8; v < GDN_O_DIM; v += 8) {
        float sum = 0;
        for (uint32_t l = 0; l <= i; l++) sum = gdn_fma(m.PT[l * GDN_O_ROWS + i], gdn_to_f32(m.uc[l * GDN_O_DIM + v]), sum);
        out[i * stride + v] = gdn_to_bf16(gdn_o_value(m, gdn_to_f32(m.q[i * GDN_O_DIM + v]), sum, i, scale));
    }
}

/* A warp has four rows, a lane four columns of them. Terms below the diagonal block are unconditional. */
GDN_DEVICE void gdn_o_blocks(const gdn_o_tiles &m, uint32_t rows, float scale, gdn_bf16 *out, uint64_t stride) {
    const uint32_t i0 = gdn_warp() * 4, v0 = gdn_lane() * 4;
    float sum[4][4] = {};
    auto term = [&](uint32_t l, bool diagonal) {
        const float4 p = gdn_ld16f(m.PT + l * GDN_O_ROWS + i0);
        const uint2 w = gdn_ld8(m.uc + l * GDN_O_DIM + v0);
        const float c[4] = { p.x, p.y, p.z, p.w };
        const float u[4] = { gdn_bf16_lo(w.x), gdn_bf16_hi(w.x), gdn_bf16_lo(w.y), gdn_bf16_hi(w.y) };
        GDN_UNROLL
        for (uint32_t r = 0; r < 4; r++)
            if (!diagonal || l <= i0 + r) {
                GDN_UNROLL
                for (uint32_t v = 0; v < 4; v++) sum[r][v] = gdn_fma(c[r], u[v], sum[r][v]);
            }
    };
    if (i0 >= rows) return;
    for (uint32_t l = 0; l < i0; l++) term(l, false);
    GDN_UNROLL
    for (uint32_t d = 0; d < 4; d++) term(i0 + d, true);
    GDN_UNROLL
    for (uint32_t r = 0; r < 4; r++) {
        if (i0 + r >= rows) return;
        const uint2 w = gdn_ld8(m.q + (i0 + r) * GDN_O_DIM + v0);
        const float u[4] = { gdn_bf16_lo(w.x), gdn_bf16_hi(w.x), gdn_bf16_lo(w.y), gdn_bf16_hi(w.y) };
        float o[4];
        GDN_UNROLL
        for (uint32_t v = 0; v < 4; v++) o[v] = gdn_o_value(m, u[v], sum[r][v], i0 + r, scale);
        gdn_bf16 *const to = out + (i0 + r) * stride + v0;
        if ((uint64_t)to % 8 == 0) {
            gdn_st8(to, uint2 { gdn_pack_bf16(o[0], o[1]), gdn_pack_bf16(o[2], o[3]) });
        } else {
            GDN_UNROLL
            for (uint32_t v = 0; v < 4; v++) to[v] = gdn_to_bf16(o[v]);
        }
    }
}

/* Output rows of a padding sequence. All threads. */
GDN_DEVICE void gdn_o_zero(gdn_bf16 *out, uint64_t stride, uint32_t rows) {
    for (uint32_t p = threadIdx.x; p < rows * GDN_O_DIM; p += blockDim.x) out[p / GDN_O_DIM * stride + p % GDN_O_DIM] = gdn_bf16 { 0 };
}

template <bool FAST> GDN_DEVICE void gdn_chunk_fwd_o(const gdn_fwd_o &a, const gdn_rule_ext &x) {
    GDN_DYN_SMEM(gdn_bf16, smem);
    enum { TILE = GDN_O_ROWS * GDN_O_DIM };
    float *const floats = reinterpret_cast<float *>(smem + 3 * TILE + GDN_O_DIM * GDN_O_DIM);
    const gdn_o_tiles m = { smem,
                            smem + TILE,
                            smem + 2 * TILE,
                            smem + 3 * TILE,
                            floats,
                            floats + GDN_O_ROWS * GDN_O_ROWS,
                            floats + GDN_O_ROWS * GDN_O_ROWS + GDN_O_ROWS };
    const uint32_t head = blockIdx.y, b = blockIdx.z, t = threadIdx.x;
    const gdn_sequence s = gdn_find_sequence(x, b, a.seq_len, a.num_chunks, a.cu, a.varlen);
    const uint32_t c = s.begin + blockIdx.x;
    if (c >= s.end) return;
    const uint32_t rows = gdn_chunk_rows(s, c), key_head = gdn_key_head(head, a.nk, a.nv);
    const uint64_t token = s.token + (uint64_t)c * GDN_O_ROWS, qk_at = (s.qk_token + (uint64_t)c * GDN_O_ROWS) * a.qk_stride;
    const uint64_t row = (uint64_t)(s.chunk_row + blockIdx.x) * a.nv + head, stride = (uint64_t)a.nv * GDN_O_DIM;
    gdn_bf16 *const out = a.output + token * stride + head * GDN_O_DIM;
    if (gdn_is_padding(x, b)) {
        gdn_o_zero(out, stride, rows);
        return;
    }
    gdn_tile_load<true>(m.q, a.query + qk_at + key_head * GDN_O_DIM, a.qk_stride, rows, GDN_O_ROWS);
    gdn_tile_load<true>(m.k, a.key + qk_at + key_head * GDN_O_DIM, a.qk_stride, rows, GDN_O_ROWS);
    gdn_tile_load<false>(m.uc, a.uc + row * TILE, GDN_O_DIM, rows, GDN_O_ROWS);
    gdn_tile_load<true>(m.S, a.S + row * GDN_O_DIM * GDN_O_DIM, GDN_O_DIM, GDN_O_DIM, GDN_O_DIM);
    if (t < GDN_O_ROWS) {
        const float g = t < rows ? a.gc[row * GDN_O_ROWS + t] : 0.0f;
        m.gc[t] = g;
        m.factor[t] = gdn_exp(g);
    }
    gdn_sync_block();
    gdn_o_products<FAST>(m, rows);
    const float scale = gdn_output_scale(GDN_O_DIM, x.scale);
    if (FAST)
        gdn_o_blocks(m, rows, scale, out, stride);
    else
        gdn_o_rows(m, rows, scale, out, stride);
}
