/* gdn_fast_prepare.cuh - first kernel of the fast prefill: what a chunk needs of its own tokens alone. One block a (chunk, key head): two
 * warpgroups, K K^T with L and its inverse, and Q K^T with P. The value heads of the key head go one after another through two buffers:
 * T' where K was, P where Q was. */
#pragma once
#include "gdn_fast_inverse.cuh"

namespace gdn_fast {
enum {
    PREPARE_THREADS = 256,
    PREPARE_L = 2 * TILE,
    PREPARE_T = PREPARE_L + L_BYTES,
    PREPARE_D = PREPARE_T + T_BYTES,
    PREPARE_LOGS = PREPARE_D + D_BYTES,
    PREPARE_SMEM = PREPARE_LOGS + 2 * MAX_RATIO * CHUNK * 4,
    BAR_L = 1, /* named barriers of the two warpgroups */
    BAR_P = 2,
};
static_assert(PREPARE_SMEM == 58368, "the launcher's number");

struct prepare_args {
    const gdn_bf16 *query, *key;
    const float *gate, *beta;
    scratch to;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride, gb_stride;
    const int32_t *cu;
    bool is_varlen;
};
/* One block, seen by one thread. */
struct prepare_place {
    uint32_t thread, warp, lane; /* in the warpgroup */
    uint32_t ratio, row;         /* value heads of the key head; this thread's first row of a product, the other is 8 further */
    uint32_t chunk_row;
    unsigned char *smem;
    float *logs, *betas; /* [ratio][CHUNK]: gc in base 2, beta */
};
GDN_DEVICE uint32_t value_head(uint32_t key_head, uint32_t i, uint32_t nk, uint32_t ratio) {
    return GDN_IS_TILED ? key_head + i * nk : key_head * ratio + i;
}

/* ---- tokens in ---- */
/* Rows of K (group 0) or Q as f16 tile; log decays and betas beside it, summed along the chunk. */
GDN_DEVICE void load_tokens(const prepare_args &o, const prepare_place &at, uint32_t group, uint64_t token, uint64_t qk_token,
                            uint32_t rows) {
    const uint32_t row0 = at.thread / 16, unit = at.thread % 16, head = blockIdx.x;
    const gdn_bf16 *const from = (group ? o.query : o.key) + (qk_token + row0) * o.qk_stride + head * DIM + unit * 8;
    uint4 x[8];
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        x[i] = uint4 { 0, 0, 0, 0 };
        if (row0 + 8 * i < rows) x[i] = gdn_ld16(from + (uint64_t)(8 * i) * o.qk_stride);
    }
    for (uint32_t i = threadIdx.x; i < at.ratio * CHUNK; i += PREPARE_THREADS) {
        const uint32_t t = i % CHUNK;
        float log = 0.0f, beta = 0.0f;
        if (t < rows) {
            const uint64_t e = (token + t) * o.gb_stride + value_head(head, i / CHUNK, o.nk, at.ratio);
            log = gdn_log_decay(o.gate[e]) * 1.44269504f;
            beta = o.beta[e];
        }
        at.logs[i] = log;
        at.betas[i] = beta;
    }
    gdn_sync_block();
    if (group == 1 && at.thread < at.ratio) { /* in order: a tree of sums costs accuracy */
        float sum = 0;
        float4 *const p = reinterpret_cast<float4 *>(at.logs + at.thread * CHUNK);
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 4; i++) {
            float4 v = p[i];
            v.x += sum, v.y += v.x, v.z += v.y, v.w += v.z;
            sum = v.w;
            p[i] = v;
        }
    }
    unsigned char *const to = at.smem + group * TILE + unit / 8 * PANEL + place(row0, unit % 8 * 8);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t w[4] = { x[i].x, x[i].y, x[i].z, x[i].w };
        uint32_t h[4];
        GDN_UNROLL
        for (uint32_t e = 0; e < 4; e++) h[e] = gdn_pack_f16(gdn_bf16_lo(w[e]), gdn_bf16_hi(w[e]));
        gdn_st16(to + i * 1024, uint4 { h[0], h[1], h[2], h[3] });
    }
}
/* a = K K^T (group 0) or Q K^T, 64 x 64. */
GDN_DEVICE void gram(float (&a)[32], const unsigned char *K, const unsigned char *A) {
    const gdn_tile_k rows = gdn_make_tile_k(A), columns = gdn_make_tile_k(K);
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const uint32_t at = j % 4 * 32 + j / 4 * PANEL;
        gdn_wgmma_f16(a, gdn_move(rows, at), gdn_move(columns, at), j > 0);
    }
    gdn_wgmma_commit();
    gdn_wgmma_wait<0>();
    gdn_pin(a);
}

/* ---- P and the scalars: warpgroup 1 ---- */
GDN_DEVICE void put_scalars(const prepare_place &at, const float *gc, const float *beta, float scale, float *to) {
    const float last = gc[CHUNK - 1];
    if (at.thread < CHUNK) {
        const float x = gc[at.thread], b = beta[at.thread], e = gdn_exp2_fast(x);
        to[AT_BETA + at.thread] = b;
        to[AT_BETA_DECAY + at.thread] = b * e;
        to[AT_REST + at.thread] = gdn_exp2_fast(last - x);
        to[AT_OUT + at.thread] = e * scale;
    } else if (at.thread < CHUNK + 4) {
        to[AT_ALL + at.thread - CHUNK] = gdn_exp2_fast(last);
    }
}
GDN_DEVICE void put_p(const prepare_place &at, const float (&a)[32], const float *gc, unsigned char *panel) {
    const uint32_t t = at.lane % 4, i0 = at.row, i1 = at.row + 8;
    const float g0 = gc[i0], g1 = gc[i1];
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const uint32_t l = 8 * j + 2 * t;
        uint32_t p0 = 0, p1 = 0;
        if (j < 2 * at.warp + 2) {
            const float2 g = get_pair(gc + l);
            float e00 = gdn_exp2_fast(g0 - g.x), e01 = gdn_exp2_fast(g0 - g.y), e10 = gdn_exp2_fast(g1 - g.x),
                  e11 = gdn_exp2_fast(g1 - g.y);
            if (j >= 2 * at.warp) { /* above the diagonal the exponent has no bound */
                e00 = l <= i0 ? e00 : 0.0f;
                e01 = l + 1 <= i0 ? e01 : 0.0f;
                e10 = l <= i1 ? e10 : 0.0f;
                e11 = l + 1 <= i1 ? e11 : 0.0f;
            }
            p0 = gdn_pack_f16(a[4 * j] * e00, a[4 * j + 1] * e01);
            p1 = gdn_pack_f16(a[4 * j + 2] * e10, a[4 * j + 3] * e11);
        }
        unsigned char *const to = panel + place(i0, l);
        put_pair(to, p0);
        put_pair(to + 1024, p1); /* 8 rows further */
    }
}
GDN_DEVICE void make_p(const prepare_args &o, const prepare_place &at, float (&a)[32], float scale) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) a[i] *= scale;
    for (uint32_t h = 0; h < at.ratio; h++) {
        const float *const gc = at.logs + h * CHUNK;
        const uint64_t to = (uint64_t)at.chunk_row * o.nv + value_head(blockIdx.x, h, o.nk, at.ratio);
        unsigned char *const panel = at.smem + TILE + h % 2 * PANEL;
        if (h >= 2) {
            if (at.thread == 0) gdn_bulk_wait_read<1>();
            gdn_bar_sync(BAR_P, 128);
        }
        put_scalars(at, gc, at.betas + h * CHUNK, scale, o.to.scalars + to * SCALARS);
        put_p(at, a, gc, panel);
        gdn_fence_async();
        gdn_bar_sync(BAR_P, 128);
        if (at.thread == 0) {
            gdn_bulk_store(o.to.p + to * PANEL, panel, PANEL);
            gdn_bulk_commit();
        }
    }
    if (at.thread == 0) gdn_bulk_wait_read<0>();
}

/* ---- L and T': warpgroup 0 ---- */
GDN_DEVICE void put_l(const prepare_place &at, const inverse_smem &s, const float (&a)[32], const float *gc, const float *beta) {
    const uint32_t g = at.lane / 4, t = at.lane % 4, i0 = at.row, i1 = at.row + 8;
    const float g0 = gc[i0], g1 = gc[i1], b0 = beta[i0], b1 = beta[i1];
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const uint32_t l = 8 * j + 2 * t;
        if (j >= 2 * at.warp + 2) continue;
        const float2 gl = get_pair(gc + l);
        const float l00 = a[4 * j] * (gdn_exp2_fast(fminf(g0 - gl.x, 0.0f)) * b0),
                    l01 = a[4 * j + 1] * (gdn_exp2_fast(fminf(g0 - gl.y, 0.0f)) * b0),
                    l10 = a[4 * j + 2] * (gdn_exp2_fast(fminf(g1 - gl.x, 0.0f)) * b1),
                    l11 = a[4 * j + 3] * (gdn_exp2_fast(fminf(g1 - gl.y, 0.0f)) * b1);
        if (j >= 2 * at.warp) { /* by columns; what is not below the diagonal is never looked at */
            float *const d = s.diagonal + (l - 16 * at.warp) * D_ROW + g;
            d[0] = l00, d[D_ROW] = l01, d[8] = l10, d[D_ROW + 8] = l11;
        } else {
            put_pair(s.L + i0 * L_ROW + l * 2, gdn_pack_f16(l00, l01));
            put_pair(s.L + i1 * L_ROW + l * 2, gdn_pack_f16(l10, l11));
        }
    }
}
GDN_DEVICE void make_t(const prepare_args &o, const prepare_place &at, const float (&a)[32]) {
    const inverse_smem s = { at.smem + PREPARE_L, at.smem + PREPARE_T,
                             reinterpret_cast<float *>(at.smem + PREPARE_D) + at.warp * 16 * D_ROW };
    for (uint32_t h = 0; h < at.ratio; h++) {
        const uint64_t to = (uint64_t)at.chunk_row * o.nv + value_head(blockIdx.x, h, o.nk, at.ratio);
        unsigned char *const panel = at.smem + h % 2 * PANEL;
        put_l(at, s, a, at.logs + h * CHUNK, at.betas + h * CHUNK);
        gdn_sync_warp();
        invert_diagonal(s, at.warp, at.lane);
        gdn_bar_sync(BAR_L, 128);
        if (at.warp & 1) merge_16(s, at.warp, at.lane);
        gdn_bar_sync(BAR_L, 128);
        if (at.warp & 2)
            merge_32(s, at.warp, at.lane);
        else if (h >= 2 && at.thread == 0)
            gdn_bulk_wait_read<1>();
        gdn_bar_sync(BAR_L, 128);
        copy_strictly_lower(s, at.thread, panel);
        gdn_fence_async();
        gdn_bar_sync(BAR_L, 128);
        if (at.thread == 0) {
            gdn_bulk_store(o.to.t + to * PANEL, panel, PANEL);
            gdn_bulk_commit();
        }
    }
    if (at.thread == 0) gdn_bulk_wait_read<0>();
}

GDN_DEVICE void prepare(const prepare_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    if (gdn_is_padding(ext, blockIdx.z)) return;
    const gdn_sequence seq = gdn_find_sequence(ext, blockIdx.z, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    const uint32_t chunk = seq.begin + blockIdx.y, warp = gdn_warp(), group = warp / 4;
    if (chunk >= seq.end) return;
    prepare_place at;
    at.thread = threadIdx.x % 128;
    at.warp = warp % 4;
    at.lane = gdn_lane();
    at.row = at.warp * 16 + at.lane / 4;
    at.ratio = o.nv / o.nk;
    at.chunk_row = seq.chunk_row + blockIdx.y;
    at.smem = smem;
    at.logs = reinterpret_cast<float *>(smem + PREPARE_LOGS);
    at.betas = at.logs + MAX_RATIO * CHUNK;
    load_tokens(o, at, group, seq.token + (uint64_t)chunk * CHUNK, seq.qk_token + (uint64_t)chunk * CHUNK, gdn_chunk_rows(seq, chunk));
    gdn_fence_async();
    gdn_sync_block();
    if (threadIdx.x == 0) {
        const uint64_t to = ((uint64_t)at.chunk_row * o.nk + blockIdx.x) * TILE;
        gdn_bulk_store(o.to.k + to, smem, TILE);
        gdn_bulk_store(o.to.q + to, smem + TILE, TILE);
        gdn_bulk_commit();
    }
    float a[32];
    gram(a, smem, smem + group * TILE);
    if (threadIdx.x == 0) gdn_bulk_wait_read<0>();
    gdn_sync_block(); /* the tiles are free */
    if (group == 1)
        make_p(o, at, a, gdn_output_scale(DIM, ext.scale));
    else
        make_t(o, at, a);
}
} // namespace gdn_fast
