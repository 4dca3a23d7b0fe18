/* gdn_wn_prepare.cuh - what a chunk of the fast prefill by W and N needs of its own tokens alone. Two warpgroups have a unit, a (chunk, key
 * head), or some of its value heads: K K^T with L and its inverse T, two heads at a time, and then W of the last two; Q K^T with P, then N
 * and the other W of one head after another. T goes from one to the other through two places.
 *
 * e^(gc_i - gc_l) for a row block and the columns in front of it is a product of two factors at most 1, with the last column of these
 * between them: no overflow, and an underflow only where the value itself has one. Inside a diagonal block it is taken by itself. */
#pragma once
#include "gdn_wn_inverse.cuh"

namespace gdn_wn {
enum {
    PREPARE_THREADS = 256,
    PLACES = 5, /* of panels that are sent, in turn: three, and then where Q was */
    PREPARE_PLACES = TILE,
    PREPARE_Q = PREPARE_PLACES + 3 * PANEL,
    PREPARE_L = PREPARE_PLACES + PLACES * PANEL,
    PREPARE_T = PREPARE_L + PAIR * PANEL,
    PREPARE_LOW = PREPARE_T + PAIR * PANEL,
    PREPARE_LOGS = PREPARE_LOW + PAIR * PANEL,
    PREPARE_UNIT = PREPARE_LOGS + 2 * MAX_RATIO * CHUNK * 4, /* the tokens need the registers */
    PREPARE_SMEM = PREPARE_UNIT + 32,
    BAR_BOTH = 1, /* named barriers: of both warpgroups, of the first, of the second */
    BAR_L = 2,
    BAR_P = 3,
    BAR_FULL = 4, /* two: T is there; and has been used (the first time: gc is there) */
    BAR_FREE = 6,
};
static_assert(PREPARE_SMEM == 110624, "the launcher's number");

struct prepare_args {
    const gdn_bf16 *query, *key;
    const float *gate, *beta;
    scratch to;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride, gb_stride;
    const int32_t *cu;
    bool is_varlen;
    uint32_t batch, whole, heads; /* units with a block of their own; value heads of a block of the others */
};
struct prepare_unit {
    uint64_t token, qk_token;                  /* of the chunk's first row */
    uint32_t rows, key_head, chunk_row, first; /* of its value heads */
};
static_assert(sizeof(prepare_unit) == 32, "PREPARE_UNIT");
/* The block, seen by one thread. */
struct prepare_place {
    uint32_t thread, warp, lane; /* in the warpgroup */
    uint32_t all, ratio,
        row; /* value heads of the key head, and of them here; this thread's first row of a product, the other is 8 further */
    unsigned char *smem;
    float *logs, *betas; /* [ratio][CHUNK]: gc in base 2, beta */
};
GDN_DEVICE uint32_t value_head(uint32_t key_head, uint32_t i, uint32_t nk, uint32_t ratio) {
    return GDN_IS_TILED ? key_head + i * nk : key_head * ratio + i;
}
GDN_DEVICE uint64_t value_row(const prepare_args &o, const prepare_place &at, const prepare_unit &kept, uint32_t i) {
    return (uint64_t)kept.chunk_row * o.nv + value_head(kept.key_head, kept.first + i, o.nk, at.all);
}

/* ---- tokens in ---- */
struct token_rows {
    uint4 x[8];
};
/* Rows of K (group 0) or Q. */
GDN_DEVICE token_rows load_rows(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u) {
    const uint32_t row0 = at.thread / 16;
    const gdn_bf16 *const from =
        gdn_opaque((group ? o.query : o.key) + (u.qk_token + row0) * o.qk_stride + u.key_head * DIM + at.thread % 16 * 8);
    const uint64_t step = (uint64_t)o.qk_stride * 8;
    token_rows r;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        r.x[i] = uint4 { 0, 0, 0, 0 };
        if (row0 + 8 * i < u.rows) r.x[i] = gdn_ld16_once(from + i * step);
    }
    return r;
}
/* As f16 tile. */
GDN_DEVICE void put_tokens(const prepare_place &at, const token_rows &r, unsigned char *tile) {
    unsigned char *const to = tile + at.thread % 16 / 8 * PANEL + place(at.thread / 16, at.thread % 8 * 8);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t w[4] = { r.x[i].x, r.x[i].y, r.x[i].z, r.x[i].w };
        uint32_t h[4];
        GDN_UNROLL
        for (uint32_t e = 0; e < 4; e++) h[e] = gdn_pack_f16(gdn_bf16_lo(w[e]), gdn_bf16_hi(w[e]));
        gdn_st16(to + i * 1024, uint4 { h[0], h[1], h[2], h[3] });
    }
    gdn_fence_async();
}
/* Betas (group 0) or log decays, token by token: two of a thread at a time. */
struct gate_pair {
    float v[2];
};
/* Token and head of the n-th. */
struct gate_place {
    uint32_t token, head;
};
GDN_DEVICE gate_place place_gate(uint32_t n, uint32_t ratio) {
    const uint32_t token =
        (uint32_t)(((float)n + 0.5f) * gdn_rcp_fast((float)ratio)); /* a division would take longer than what it is for */
    return gate_place { token, n - token * ratio };
}
GDN_DEVICE gate_pair load_gates(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u, uint32_t first) {
    const float *const gates = (group ? o.gate : o.beta) + u.token * o.gb_stride;
    gate_pair g;
    GDN_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const gate_place n = place_gate(first + 128 * e, at.ratio);
        g.v[e] = !group || GDN_IS_LOG ? 0.0f : 1.0f;
        if (n.token < u.rows) g.v[e] = gates[(uint64_t)n.token * o.gb_stride + value_head(u.key_head, u.first + n.head, o.nk, at.all)];
    }
    return g;
}
GDN_DEVICE void put_gates(const prepare_place &at, uint32_t group, const gate_pair &g, uint32_t first) {
    GDN_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const gate_place n = place_gate(gdn_anew(first) + 128 * e, at.ratio);
        if (n.token >= CHUNK) break;
        if (group)
            at.logs[n.head * CHUNK + n.token] = gdn_log_decay(g.v[e]) * 1.44269504f;
        else
            at.betas[n.head * CHUNK + n.token] = g.v[e];
    }
}
/* Rows of K with betas (group 0), or Q with log decays; all loads are under way before the first is waited for. */
GDN_DEVICE void load_tokens(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u, unsigned char *tile) {
    const gate_pair gates = load_gates(o, at, group, u, at.thread);
    const token_rows rows = load_rows(o, at, group, u);
    put_gates(at, group, gates, at.thread);
    GDN_NO_UNROLL
    for (uint32_t i = at.thread + 256; i < at.ratio * CHUNK; i += 256) put_gates(at, group, load_gates(o, at, group, u, i), i);
    put_tokens(at, rows, tile);
}
/* In order: a tree of sums costs accuracy. */
GDN_DEVICE void sum_logs(const prepare_place &at) {
    if (at.thread >= at.ratio) return;
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
/* a = A K^T, 64 x 64. */
template <class F> GDN_DEVICE void gram(float (&a)[32], const unsigned char *K, const unsigned char *A, F meanwhile) {
    const gdn_tile_k rows = gdn_make_tile_k(A), columns = gdn_make_tile_k(K);
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const uint32_t at = j % 4 * 32 + j / 4 * PANEL;
        gdn_wgmma_f16(a, gdn_move(rows, at), gdn_move(columns, at), j > 0);
    }
    gdn_wgmma_commit();
    meanwhile();
    gdn_wgmma_wait<0>();
    gdn_pin(a);
}

/* ---- L and T: warpgroup 0 ---- */
/* Zero from the diagonal (a strict triangle), or above it. */
GDN_DEVICE void keep_lower(const prepare_place &at, float (&a)[32], bool strict) {
    const uint32_t column = 2 * (at.lane % 4) + strict, row = at.lane / 4;
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        float *const x = a + 8 * m;
        if (m == at.warp) {
            if (column > row) x[0] = 0, x[6] = 0;
            if (column + 1 > row) x[1] = 0, x[7] = 0;
        }
        if (m >= at.warp) x[4] = 0, x[5] = 0;
        if (m > at.warp) x[0] = 0, x[1] = 0, x[2] = 0, x[3] = 0, x[6] = 0, x[7] = 0;
    }
}
/* I + L of a head as two f16 tiles; a: the strictly lower K K^T. The second one's place is that of `low`, which may still be in use. */
template <class F> GDN_DEVICE void put_l(const prepare_place &at, const inverse_smem &s, const float (&a)[32], uint32_t head, F is_free) {
    const uint32_t to = head % PAIR * PANEL, diagonal = diagonal_of(at.lane), ones = diagonal & 0x3c003c00u;
    const float b0 = at.betas[head * CHUNK + at.row], b1 = at.betas[head * CHUNK + at.row + 8];
    uint32_t low[16];
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        uint32_t high[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float b = i % 2 ? b1 : b0, x = a[8 * m + 2 * i] * b, y = a[8 * m + 2 * i + 1] * b;
            high[i] = gdn_pack_f16(x, y);
            low[4 * m + i] = gdn_pack_f16(x - gdn_f16_lo(high[i]), y - gdn_f16_hi(high[i]));
        }
        if (m == at.warp) high[0] = (high[0] & ~diagonal) | ones, high[3] = (high[3] & ~diagonal) | ones;
        put_columns(s.L + to, at.warp, at.lane, m, high);
    }
    is_free();
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) put_columns(s.low + to, at.warp, at.lane, m, gdn_quad(low, 4 * m));
}
/* The same place, of which nothing computed before is kept: addresses would cost registers from one head to the next. */
GDN_DEVICE prepare_place anew(prepare_place at) {
    at.lane = gdn_anew(at.lane);
    at.warp = gdn_anew(at.warp);
    at.row = at.warp * 16 + at.lane / 4;
    return at;
}
GDN_DEVICE void make_t(const prepare_place &at, float (&a)[32]) {
    const inverse_smem s = { at.smem + PREPARE_L, at.smem + PREPARE_T, at.smem + PREPARE_LOW };
    keep_lower(at, a, true);
    GDN_NO_UNROLL
    for (uint32_t h = 0; h < at.ratio; h += PAIR) {
        const uint32_t heads = at.ratio - h < PAIR ? 1 : PAIR;
        const prepare_place here = anew(at);
        const uint32_t warp = here.warp, lane = here.lane;
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < heads; i++)
            put_l(here, s, a, h + i, [&] {
                if (h > 0) gdn_bar_sync(BAR_FREE + i, PREPARE_THREADS);
            });
        gdn_sync_warp();
        invert_diagonal(s, heads, warp, lane);
        gdn_sync_warp();
        merge_8(s, heads, warp, lane);
        gdn_fence_async();
        gdn_bar_sync(BAR_L, 128);
        merge_16(s, heads, warp, lane);
        gdn_bar_sync(BAR_L, 128);
        merge_32(s, heads, warp, lane);
        gdn_fence_async();
        gdn_bar_sync(BAR_L, 128);
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < heads; i++) {
            refine(s, i, warp, lane, [&] { gdn_bar_sync(BAR_L, 128); });
            gdn_fence_async();
            if (h + i == 0) gdn_bar_sync(BAR_FREE, PREPARE_THREADS); /* the sums are there */
            gdn_bar_arrive(BAR_FULL + i, PREPARE_THREADS);
        }
    }
}

/* ---- W: of the last two heads by warpgroup 0, of the others by warpgroup 1 ---- */
GDN_DEVICE bool is_late(const prepare_place &at, uint32_t head) {
    return head + PAIR >= at.ratio;
}
struct row_factors {
    float f0, f1;
};
GDN_DEVICE row_factors factors_of_w(const prepare_place &at, uint32_t head) {
    const float *const gc = at.logs + head * CHUNK, *const beta = at.betas + head * CHUNK;
    const float last = gc[CHUNK - 1];
    return row_factors { beta[at.row] * gdn_exp2_fast(last - gc[at.row]), beta[at.row + 8] * gdn_exp2_fast(last - gc[at.row + 8]) };
}
/* 64 columns of W to a panel. */
GDN_DEVICE void put_w(const prepare_place &at, const float *w, row_factors f, unsigned char *panel) {
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        uint32_t r[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float x = i % 2 ? f.f1 : f.f0;
            r[i] = gdn_pack_f16(w[8 * m + 2 * i] * x, w[8 * m + 2 * i + 1] * x);
        }
        put_columns(panel, at.warp, at.lane, m, r);
    }
}
/* Of the operands: low, then T, in steps of 16. */
GDN_DEVICE gdn_tile_mn step_of_t(gdn_tile_mn T, uint32_t j) {
    return gdn_move(T, (j < 4 ? PREPARE_LOW - PREPARE_T : 0) + j % 4 * 2048);
}
/* They go out from where L was. */
GDN_DEVICE void make_late_w(const prepare_args &o, const prepare_place &at, const prepare_unit &kept) {
    gdn_bar_sync(BAR_L, 128);
    const gdn_tile_mn K = gdn_make_tile_mn(at.smem, PANEL), T0 = gdn_make_tile_mn(at.smem + PREPARE_T, PANEL);
    unsigned char *const from = at.smem + PREPARE_L;
    const uint32_t first = at.ratio < PAIR ? 0 : at.ratio - PAIR;
    GDN_NO_UNROLL
    for (uint32_t h = first; h < at.ratio; h++) {
        const gdn_tile_mn T = gdn_move(T0, h % 2 * PANEL);
        float w[64];
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(w, step_of_t(T, j), gdn_move(K, j % 4 * 2048), j > 0);
        gdn_wgmma_commit();
        const row_factors f = factors_of_w(at, h);
        if (h > first) {
            if (at.thread == 0) gdn_bulk_wait_read<0>();
            gdn_bar_sync(BAR_L, 128);
        }
        gdn_wgmma_wait<0>();
        gdn_pin(w);
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) put_w(at, w + 32 * i, f, from + i * PANEL);
        gdn_fence_async();
        gdn_bar_sync(BAR_L, 128);
        if (at.thread == 0) {
            gdn_bulk_store(o.to.w + value_row(o, at, kept, h) * TILE, from, TILE);
            gdn_bulk_commit();
        }
    }
}

/* ---- P, N, the other W and the scalars: warpgroup 1 ---- */
GDN_DEVICE void put_scalars(const prepare_args &o, const prepare_place &at, const prepare_unit &kept) {
    GDN_NO_UNROLL
    for (uint32_t h = at.thread / CHUNK; h < at.ratio; h += 2) {
        const uint32_t t = at.thread % CHUNK;
        const float *const gc = at.logs + h * CHUNK;
        float *const to = o.to.scalars + value_row(o, at, kept, h) * SCALARS;
        to[AT_DECAY + spot(t)] = gdn_exp2_fast(gc[t]);
        if (t < 4) to[AT_ALL + t] = gdn_exp2_fast(gc[CHUNK - 1]);
    }
}
/* P as operand A, as the sum of two. */
GDN_DEVICE void make_p(const prepare_place &at, float (&a)[32], uint32_t (&p)[16], uint32_t (&low)[16]) {
    keep_lower(at, a, false);
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        p[i] = gdn_pack_f16(a[2 * i], a[2 * i + 1]);
        low[i] = gdn_pack_f16(a[2 * i] - gdn_f16_lo(p[i]), a[2 * i + 1] - gdn_f16_hi(p[i]));
    }
}
/* n = P T with its factors, to a panel. Above the diagonal n is zero, and the exponents have no bound but that of fminf. */
GDN_DEVICE void put_n(const prepare_place &at, const float (&n)[32], uint32_t head, float scale, unsigned char *panel) {
    const float *const gc = at.logs + head * CHUNK, *const beta = at.betas + head * CHUNK;
    const float g0 = gc[at.row], g1 = gc[at.row + 8], border = at.warp ? gc[at.warp * 16 - 1] : 0;
    const float r0 = gdn_exp2_fast(g0 - border) * scale, r1 = gdn_exp2_fast(g1 - border) * scale;
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t l = 16 * m + 2 * (at.lane % 4);
        const float2 g[2] = { get_pair(gc + l), get_pair(gc + l + 8) }, b[2] = { get_pair(beta + l), get_pair(beta + l + 8) };
        uint32_t r[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const float *const x = n + 8 * m + 4 * i;
            uint32_t *const to = r + 2 * i;
            if (m < at.warp) {
                const float c0 = gdn_exp2_fast(border - g[i].x) * b[i].x, c1 = gdn_exp2_fast(border - g[i].y) * b[i].y;
                to[0] = gdn_pack_f16(x[0] * r0 * c0, x[1] * r0 * c1);
                to[1] = gdn_pack_f16(x[2] * r1 * c0, x[3] * r1 * c1);
            } else if (m == at.warp) {
                const float s0 = b[i].x * scale, s1 = b[i].y * scale;
                to[0] = gdn_pack_f16(x[0] * (gdn_exp2_fast(fminf(g0 - g[i].x, 0.0f)) * s0),
                                     x[1] * (gdn_exp2_fast(fminf(g0 - g[i].y, 0.0f)) * s1));
                to[1] = gdn_pack_f16(x[2] * (gdn_exp2_fast(fminf(g1 - g[i].x, 0.0f)) * s0),
                                     x[3] * (gdn_exp2_fast(fminf(g1 - g[i].y, 0.0f)) * s1));
            } else {
                to[0] = 0;
                to[1] = 0;
            }
        }
        put_columns(panel, at.warp, at.lane, m, r);
    }
}
/* Panels go out by the places in turn; `sent` counts those of the unit. Before the barrier the next one's place is known to be free: that
 * of Q (stored in front of all), or of the panel PLACES before. */
template <class F> GDN_DEVICE void send(const prepare_place &at, uint32_t &sent, uint32_t &turn, unsigned char *to, F put) {
    unsigned char *const panel = at.smem + PREPARE_PLACES + turn * PANEL;
    put(panel);
    gdn_fence_async();
    if (at.thread == 0) {
        if (sent == 2) gdn_bulk_wait_read<2>();
        if (sent > 3) gdn_bulk_wait_read<3>();
    }
    gdn_bar_sync(BAR_P, 128);
    if (at.thread == 0) {
        gdn_bulk_store(to, panel, PANEL);
        gdn_bulk_commit();
    }
    sent++;
    turn = turn + 1 == PLACES ? 0 : turn + 1;
}
GDN_DEVICE void start_n(float (&n)[32], const uint32_t (&p)[16], const uint32_t (&low)[16], gdn_tile_mn T) {
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(n, gdn_quad(p, j % 4 * 4), step_of_t(T, j), j > 0);
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(n, gdn_quad(low, 4 * j), step_of_t(T, j + 4), true);
    gdn_wgmma_commit();
}
/* 64 columns, of which K has the tile. */
GDN_DEVICE void start_w(float (&w)[32], gdn_tile_mn T, gdn_tile_mn K) {
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(w, step_of_t(T, j), gdn_move(K, j % 4 * 2048), j > 0);
    gdn_wgmma_commit();
}
GDN_DEVICE void make_n(const prepare_args &o, const prepare_place &all, const prepare_unit &kept, float (&a)[32], float scale) {
    uint32_t p[16], low[16], sent = 0, turn = 0;
    make_p(all, a, p, low);
    const gdn_tile_mn K = gdn_make_tile_mn(all.smem, PANEL), T0 = gdn_make_tile_mn(all.smem + PREPARE_T, PANEL);
    uint32_t h = 0;
    GDN_NO_UNROLL
    for (; !is_late(all, h); h++) {
        const prepare_place at = anew(all);
        const gdn_tile_mn T = gdn_move(T0, h % 2 * PANEL);
        float n[32];
        gdn_bar_sync(BAR_FULL + h % 2, PREPARE_THREADS);
        const uint64_t to = value_row(o, at, kept, h);
        start_n(n, p, low, T);
        gdn_wgmma_wait<0>();
        gdn_pin(n);
        send(at, sent, turn, o.to.n + to * PANEL, [&](unsigned char *panel) { put_n(at, n, h, scale, panel); });
        const row_factors f = factors_of_w(at, h);
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            start_w(n, T, gdn_move(K, i * PANEL));
            gdn_wgmma_wait<0>();
            gdn_pin(n);
            if (i == 1) gdn_bar_arrive(BAR_FREE + h % 2, PREPARE_THREADS);
            send(at, sent, turn, o.to.w + to * TILE + i * PANEL, [&](unsigned char *panel) { put_w(at, n, f, panel); });
        }
    }
    GDN_NO_UNROLL
    for (; h < all.ratio; h++) {
        const prepare_place at = anew(all);
        float n[32];
        gdn_bar_sync(BAR_FULL + h % 2, PREPARE_THREADS);
        start_n(n, p, low, gdn_move(T0, h % 2 * PANEL));
        gdn_wgmma_wait<0>();
        gdn_pin(n);
        send(at, sent, turn, o.to.n + value_row(o, at, kept, h) * PANEL, [&](unsigned char *panel) { put_n(at, n, h, scale, panel); });
    }
}

/* One unit; `kept` is its copy in shared memory. */
GDN_DEVICE void prepare_one(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u, const prepare_unit &kept,
                            float scale) {
    unsigned char *const own = at.smem + (group ? PREPARE_Q : 0);
    if (group == 0) zero_upper(at.smem + PREPARE_T, at.thread);
    load_tokens(o, at, group, u, own);
    if (group == 1) {
        gdn_bar_sync(BAR_BOTH, PREPARE_THREADS);
    } else {
        gdn_bar_arrive(BAR_BOTH, PREPARE_THREADS);
        gdn_bar_sync(BAR_L, 128);
    }
    if (at.thread == 0 && kept.first == 0) {
        const uint64_t to = ((uint64_t)kept.chunk_row * o.nk + kept.key_head) * TILE;
        gdn_bulk_store((group ? o.to.q : o.to.k) + to, own, TILE);
        gdn_bulk_commit();
    }
    float a[32];
    if (group == 1) {
        gram(a, at.smem, own, [&] { sum_logs(at); });
        gdn_bar_arrive(BAR_FREE, PREPARE_THREADS); /* for the first time: the sums are there */
        gdn_bar_sync(BAR_P, 128);
        put_scalars(o, at, kept);
        make_n(o, at, kept, a, scale);
    } else {
        gram(a, at.smem, own, [] {});
        make_t(at, a);
        make_late_w(o, at, kept);
    }
    if (at.thread == 0) gdn_bulk_wait_read<0>();
}
/* The last chunks of all sequences first: L2 still has what the pass begins with. */
GDN_DEVICE void prepare(const prepare_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t all = o.nv / o.nk, parts = (all + o.heads - 1) / o.heads, number = blockIdx.x;
    const uint32_t left = number < o.whole ? 0 : number - o.whole, part = left % parts,
                   unit = number < o.whole ? number : o.whole + left / parts;
    const uint32_t chunks = gdn_chunks_here(ext, o.num_chunks), row = unit / o.nk, sequence = row % o.batch, warp = gdn_warp();
    const bool padding = gdn_is_padding(ext, sequence);
    const gdn_sequence seq = gdn_find_sequence(ext, sequence, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    const uint32_t ahead = chunks - 1 - row / o.batch, chunk = seq.begin + ahead;
    if (padding || chunk >= seq.end) return;
    const uint64_t token = (uint64_t)chunk * CHUNK;
    const prepare_unit u = { seq.token + token, seq.qk_token + token,  gdn_chunk_rows(seq, chunk),
                             unit - row * o.nk, seq.chunk_row + ahead, part * o.heads };
    prepare_place at;
    at.thread = threadIdx.x % 128;
    at.warp = warp % 4;
    at.lane = gdn_lane();
    at.row = at.warp * 16 + at.lane / 4;
    at.all = all;
    at.ratio = number < o.whole ? all : min(o.heads, all - u.first);
    at.smem = smem;
    at.logs = reinterpret_cast<float *>(smem + PREPARE_LOGS);
    at.betas = at.logs + MAX_RATIO * CHUNK;
    prepare_unit &kept = *reinterpret_cast<prepare_unit *>(smem + PREPARE_UNIT);
    if (threadIdx.x == 0) kept = u;
    prepare_one(o, at, warp / 4, u, kept, gdn_output_scale(DIM, ext.scale));
}
} // namespace gdn_wn
