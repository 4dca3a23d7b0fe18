/* gdn_wn_prepare.cuh - what a chunk of the fast prefill by W and N needs of its own tokens alone. Two warpgroups have a unit, a (chunk, key
 * head), or some of its value heads: K K^T and Q K^T, then for groups of heads T (gdn_wn_inverse.cuh), and then the first warpgroup W, the
 * second one N.
 *
 * e^(gc_i - gc_l) for a row block and the columns in front of it is a product of two factors at most 1, with the last column of these
 * between them: no overflow, and an underflow only where the value itself has one. Inside a diagonal block it is taken by itself. */
#pragma once
#include "gdn_wn_inverse.cuh"

namespace gdn_wn {
enum {
    PREPARE_THREADS = 256,
    PREPARE_Q = TILE,             /* then N, two places in turn */
    PREPARE_A = PREPARE_Q + TILE, /* then W, likewise */
    PREPARE_T = PREPARE_A + TILE,
    PREPARE_LOGS = PREPARE_T + GROUP * LIMBS,
    PREPARE_DIAGONAL = PREPARE_LOGS + 2 * MAX_RATIO * CHUNK * 4,
    PREPARE_UNIT = PREPARE_DIAGONAL + CHUNK * 8 * 4, /* the tokens need the registers */
    PREPARE_SMEM = PREPARE_UNIT + 32,
    BAR_GROUP = 1, /* two: a barrier of each warpgroup */
};
static_assert(PREPARE_SMEM == 104480, "the launcher's number");

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
    uint32_t group, thread, warp, lane; /* the warpgroup; in it */
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
GDN_DEVICE token_rows load_tokens(const prepare_args &o, const prepare_place &at, const gdn_bf16 *from, const prepare_unit &u) {
    const uint32_t row0 = at.thread / 16;
    const gdn_bf16 *const first = gdn_opaque(from + (u.qk_token + row0) * o.qk_stride + u.key_head * DIM + at.thread % 16 * 8);
    const uint64_t step = (uint64_t)o.qk_stride * 8;
    token_rows r;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        r.x[i] = uint4 { 0, 0, 0, 0 };
        if (row0 + 8 * i < u.rows) r.x[i] = gdn_ld16_once(first + i * step);
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
}
/* Log decays in base 2 and betas, token by token. */
GDN_DEVICE void load_gates(const prepare_args &o, const prepare_place &at, const prepare_unit &u) {
    const float inverse = gdn_rcp_fast((float)at.ratio); /* divisions would take longer than what they are for */
    GDN_NO_UNROLL
    for (uint32_t n = threadIdx.x; n < at.ratio * CHUNK; n += PREPARE_THREADS) {
        const uint32_t t = (uint32_t)(((float)n + 0.5f) * inverse), head = n - t * at.ratio;
        float gate = GDN_IS_LOG ? 0.0f : 1.0f, beta = 0.0f;
        if (t < u.rows) {
            const uint64_t e = (u.token + t) * o.gb_stride + value_head(u.key_head, u.first + head, o.nk, at.all);
            gate = o.gate[e], beta = o.beta[e];
        }
        at.logs[head * CHUNK + t] = gdn_log_decay(gate) * 1.44269504f;
        at.betas[head * CHUNK + t] = beta;
    }
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
/* a = K K^T or Q K^T, 64 x 64. */
template <class F> GDN_DEVICE void multiply_tokens(float (&a)[32], const unsigned char *K, const unsigned char *A, F meanwhile) {
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

/* ---- A and T ---- */
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
/* The strictly lower K K^T as A. */
GDN_DEVICE void put_a(const prepare_place &at, const float (&a)[32]) {
    unsigned char *const A = at.smem + PREPARE_A;
    float own[4] = {}; /* of the diagonal blocks; by selection, since an index would put `a` into memory */
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        operand v;
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float x = a[8 * m + 2 * i], y = a[8 * m + 2 * i + 1];
            const two_limbs limbs = split(x, y);
            v.high[i] = limbs.high, v.low[i] = limbs.low;
            if (i == 0) own[0] = m == 0 || m == at.warp ? x : own[0], own[1] = m == 0 || m == at.warp ? y : own[1];
            if (i == 3) own[2] = m == 0 || m == at.warp ? x : own[2], own[3] = m == 0 || m == at.warp ? y : own[3];
        }
        put_columns(A, at.warp, at.lane, m, v.high);
        put_columns(A + PANEL, at.warp, at.lane, m, v.low);
    }
    float *const to = reinterpret_cast<float *>(at.smem + PREPARE_DIAGONAL) + at.row * 8 + 2 * (at.lane % 4);
    *reinterpret_cast<float2 *>(to) = float2 { own[0], own[1] };
    *reinterpret_cast<float2 *>(to + 64) = float2 { own[2], own[3] };
}
/* The same place, of which nothing computed before is kept: addresses would cost registers from one head to the next. */
GDN_DEVICE prepare_place anew(prepare_place at) {
    at.lane = gdn_anew(at.lane);
    at.warp = gdn_anew(at.warp);
    at.row = at.warp * 16 + at.lane / 4;
    return at;
}
/* Of heads from `first` on; the whole block. */
GDN_DEVICE void make_t(const prepare_place &at, uint32_t first, uint32_t heads) {
    const inverse_smem s = { at.smem + PREPARE_A, at.smem + PREPARE_T, at.betas + first * CHUNK,
                             reinterpret_cast<const float *>(at.smem + PREPARE_DIAGONAL) };
    const uint32_t warp = 4 * at.group + at.warp;
    invert_diagonal(s, heads, warp, at.lane);
    gdn_sync_block();
    merge_8(s, heads, warp, at.lane);
    gdn_sync_block();
    merge_16(s, heads, warp, at.lane);
    gdn_sync_block();
    merge_32(s, heads, warp, at.lane);
    gdn_fence_async();
    gdn_sync_block();
}

/* ---- P, N, W and the scalars ---- */
struct row_factors {
    float f0, f1;
};
GDN_DEVICE row_factors factors_of_w(const prepare_place &at, uint32_t head) {
    const float *const gc = at.logs + head * CHUNK, *const beta = at.betas + head * CHUNK;
    const float last = gc[CHUNK - 1];
    return row_factors { beta[at.row] * gdn_exp2_fast(last - gc[at.row]), beta[at.row + 8] * gdn_exp2_fast(last - gc[at.row + 8]) };
}
/* 64 columns of W to a panel. */
GDN_DEVICE void put_w(const prepare_place &at, const float (&w)[32], row_factors f, unsigned char *panel) {
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
    return gdn_move(T, (j < 4 ? PANEL : 0) + j % 4 * 2048);
}

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
/* Behind it the places of this warpgroup are free, but the one that was sent from last. */
GDN_DEVICE void wait_sent(const prepare_place &at) {
    if (at.thread == 0) gdn_bulk_wait_read<0>();
    gdn_bar_sync(BAR_GROUP + at.group, 128);
}
/* A panel leaves; the next one's place is free behind the barrier. */
template <class F> GDN_DEVICE void send(const prepare_place &at, uint32_t places, uint32_t &sent, unsigned char *to, F put) {
    unsigned char *const panel = at.smem + places + sent++ % 2 * PANEL;
    put(panel);
    gdn_fence_async();
    wait_sent(at);
    if (at.thread == 0) {
        gdn_bulk_store(to, panel, PANEL);
        gdn_bulk_commit();
    }
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
GDN_DEVICE gdn_tile_mn t_of(const prepare_place &at, uint32_t i) {
    return gdn_make_tile_mn(at.smem + PREPARE_T + i * LIMBS, PANEL);
}
/* W of heads from `first` on: the first warpgroup. */
GDN_DEVICE void make_w(const prepare_args &o, const prepare_place &at, const prepare_unit &kept, uint32_t first, uint32_t heads) {
    const gdn_tile_mn K = gdn_make_tile_mn(at.smem, PANEL);
    uint32_t sent = 0;
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        const prepare_place here = anew(at);
        float x[32], y[32];
        start_w(x, t_of(at, i), K);
        start_w(y, t_of(at, i), gdn_move(K, PANEL));
        const row_factors f = factors_of_w(here, first + i);
        unsigned char *const to = o.to.w + value_row(o, at, kept, first + i) * TILE;
        gdn_wgmma_wait<1>();
        gdn_pin(x);
        send(at, PREPARE_A, sent, to, [&](unsigned char *panel) { put_w(here, x, f, panel); });
        gdn_wgmma_wait<0>();
        gdn_pin(y);
        send(at, PREPARE_A, sent, to + PANEL, [&](unsigned char *panel) { put_w(here, y, f, panel); });
    }
}
/* N: the second one. */
GDN_DEVICE void make_n(const prepare_args &o, const prepare_place &at, const prepare_unit &kept, const uint32_t (&p)[16],
                       const uint32_t (&low)[16], uint32_t first, uint32_t heads, uint32_t &sent, float scale) {
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        const prepare_place here = anew(at);
        float x[32];
        start_n(x, p, low, t_of(at, i));
        gdn_wgmma_wait<0>();
        gdn_pin(x);
        send(at, PREPARE_Q, sent, o.to.n + value_row(o, at, kept, first + i) * PANEL,
             [&](unsigned char *panel) { put_n(here, x, first + i, scale, panel); });
    }
}

/* One unit, or some of its heads; `kept` is its copy in shared memory. */
GDN_DEVICE void prepare_one(const prepare_args &o, const prepare_place &at, const prepare_unit &u, const prepare_unit &kept, float scale) {
    unsigned char *const own = at.smem + at.group * TILE;
    {
        const token_rows rows = load_tokens(o, at, at.group ? o.query : o.key, u);
        load_gates(o, at, u);
        zero_upper(at.smem + PREPARE_T, 2 * min(at.ratio, (uint32_t)GROUP));
        put_tokens(at, rows, own);
    }
    gdn_fence_async();
    gdn_sync_block();
    if (at.thread == 0 && kept.first == 0) {
        gdn_bulk_store((at.group ? o.to.q : o.to.k) + ((uint64_t)kept.chunk_row * o.nk + kept.key_head) * TILE, own, TILE);
        gdn_bulk_commit();
    }
    uint32_t p[16], low[16], sent = 0;
    if (at.group == 1) {
        float a[32];
        multiply_tokens(a, at.smem, own, [&] { sum_logs(at); });
        make_p(at, a, p, low);
        wait_sent(at);
        put_scalars(o, at, kept);
    }
    GDN_NO_UNROLL
    for (uint32_t first = 0; first < at.ratio; first += GROUP) {
        const uint32_t heads = min(at.ratio - first, (uint32_t)GROUP);
        if (at.group == 0) {
            float a[32]; /* again for each group: it would take registers from what is between */
            multiply_tokens(a, at.smem, at.smem, [] {});
            keep_lower(at, a, true);
            if (first > 0) wait_sent(at);
            put_a(at, a);
        }
        gdn_sync_block();
        make_t(anew(at), first, heads);
        if (at.group == 0)
            make_w(o, at, kept, first, heads);
        else
            make_n(o, at, kept, p, low, first, heads, sent, scale);
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
    if (gdn_is_padding(ext, sequence)) return;
    const gdn_sequence seq = gdn_find_sequence(ext, sequence, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    const uint32_t ahead = chunks - 1 - row / o.batch, chunk = seq.begin + ahead;
    if (chunk >= seq.end) return;
    const uint64_t token = (uint64_t)chunk * CHUNK;
    const prepare_unit u = { seq.token + token, seq.qk_token + token,  gdn_chunk_rows(seq, chunk),
                             unit - row * o.nk, seq.chunk_row + ahead, part * o.heads };
    prepare_place at;
    at.group = warp / 4;
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
    prepare_one(o, at, u, kept, gdn_output_scale(DIM, ext.scale));
}
} // namespace gdn_wn
