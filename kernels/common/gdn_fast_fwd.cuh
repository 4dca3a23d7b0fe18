/* gdn_fast_fwd.cuh - state and output of one (sequence, value head), 64 value columns a task, serial over the chunks.
 *
 * Everything is transposed: the task's value columns are the rows of all products, and S^T [64 v][128 k] stays in the f32 accumulators
 * of one warpgroup. Products whose left operand is made here (S, R, uc) take it from registers, rounded to f16; the right one is a tile
 * of the scratch. Per chunk
 *
 *     X^T  = S^T K^T
 *     R^T  = beta V^T - beta e^gc X^T
 *     uc^T = R^T T^T                   R is rounded once, as if v were: a difference of rows that cancels later still does
 *     S^T  = e^gc_last S^T + (e^(gc_last - gc) uc)^T K
 *     O^T  = scale e^gc (S^T Q^T) + uc^T P^T     with the S of the chunk's begin
 *
 * Warps 0..3 compute: one warp on each scheduler, so a chunk takes as long as that warp's instructions and what they wait for. Warp 4
 * brings tiles by bulk copies, once their flag is up, warps 8 to 11 bring rows of V, warps 6 and 7 carry finished outputs away. All meet at
 * mbarriers, by places in turn over all tasks of the block: tiles (three places; full, free), v (two; full: V is there, and the output
 * buffer of the chunk has been emptied; free), done (an output buffer is complete).
 *
 * ptxas keeps several products in flight only if nothing is pending at the loop's back edge and no product stands in a branch. */
#pragma once
#include "gdn_fast_rest.cuh"

namespace gdn_fast {
enum {
    FWD_THREADS = 512,
    COLUMNS = 64, /* of a task */
    STAGES = 3,
    FWD_K = 0,
    FWD_Q = FWD_K + TILE,
    FWD_T = FWD_Q + TILE,
    FWD_P = FWD_T + PANEL,
    STAGE = FWD_P + PANEL,
    FWD_V = STAGES * STAGE,    /* two: [64 tokens][64] bf16, swizzled */
    FWD_O = FWD_V + 2 * PANEL, /* likewise */
    FWD_SCALARS = FWD_O + 2 * PANEL,
    FWD_BARS = FWD_SCALARS + STAGES * SCALARS * 4,
    FWD_ROLE = FWD_BARS + 112,
    FWD_SMEM = FWD_ROLE + 16,
    PAIR_STEP = (PREPARE_SMEM + 1023) / 1024 * 1024,
};
static_assert(FWD_SMEM == 183472, "the launcher's number");
static_assert(FWD_BARS % 8 == 0 && FWD_SCALARS % 16 == 0, "mbarriers, bulk copies");
static_assert((int)PAIR_STEP + (int)PREPARE_SMEM <= (int)FWD_ROLE, "two pairs where no pass is");

struct fwd_args {
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    uint32_t v_stride, batch, helpers; /* helpers: blocks without a pass */
    prepare_args rest;                 /* the scratch, the sizes, and what is left to prepare */
};
struct fwd_bars {
    gdn_mbarrier full[STAGES], free[STAGES], v[2], v_free[2], done[2];
};
static_assert(sizeof(fwd_bars) <= 112, "FWD_BARS");
/* One task. */
struct fwd_place {
    uint32_t head, key_head, column, chunks; /* column: the task's first of the head; chunks: of this launch */
    uint32_t rows;                           /* tokens in them */
    uint64_t chunk_row, token;
    gdn_state_ptrs h; /* in == NULL: padding */
    bool fresh;
    uint32_t sequence, begin, len; /* for checkpoints: its first chunk here, its tokens in all */
    unsigned char *smem;
    fwd_bars *bars;
};
/* The places of a chunk, and the parities of their barriers. */
struct turns {
    uint32_t stage = 0, stage_parity = 0, count = 0;
    __device__ __forceinline__ uint32_t two() const { return count & 1; }
    __device__ __forceinline__ uint32_t parity() const { return count >> 1 & 1; }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, stage_parity ^= 1;
        count++;
    }
};

/* Visits the tasks of worker `first`; all warps find the same. */
template <class F> GDN_DEVICE void each_task(const fwd_args &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t first, F visit) {
    const prepare_args &p = o.rest;
    GDN_NO_UNROLL
    for (uint32_t task = first; task < 2 * p.nv * o.batch; task += gridDim.x - o.helpers) {
        const uint32_t sequence = task / (2 * p.nv);
        const gdn_sequence seq = gdn_find_sequence(ext, sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
        fwd_place at;
        at.head = task / 2 % p.nv;
        at.key_head = gdn_key_head(at.head, p.nk, p.nv);
        at.column = task % 2 * COLUMNS;
        at.chunks = seq.end - seq.begin;
        at.rows = at.chunks ? min(seq.len - seq.begin * CHUNK, at.chunks * CHUNK) : 0;
        at.chunk_row = seq.chunk_row;
        at.token = seq.token + (uint64_t)seq.begin * CHUNK;
        at.h = gdn_states_of(ext, o.h_state, false, sequence, at.head, p.nv, DIM, DIM);
        at.fresh = gdn_is_fresh(ext, sequence);
        at.sequence = sequence;
        at.begin = seq.begin;
        at.len = seq.len;
        at.smem = smem;
        at.bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
        visit(at);
    }
}
GDN_DEVICE bool has_pass(const fwd_place &at) {
    return at.h.in && at.chunks;
}

/* ---- warp 4 ---- */
/* How many of the chunks from `known` on are there; at least one. */
GDN_DEVICE uint32_t count_ready(const prepare_args &p, const fwd_place &at, uint32_t known) {
    const uint32_t lane = gdn_lane();
    const uint32_t *const first = p.to.words + READY + (at.chunk_row + known) * p.nk + at.key_head;
    uint32_t missing = __ballot_sync(GDN_FULL_MASK, known + lane >= at.chunks || gdn_ld_acquire(first + (uint64_t)lane * p.nk) != 2);
    if (missing & 1) {
        if (lane == 0) gdn_wait_word(first, 2);
        missing &= ~1u;
    }
    gdn_sync_warp();
    return missing ? __ffs((int)missing) - 1 : 32;
}
GDN_DEVICE void bring_tiles(const prepare_args &p, const fwd_place &at, turns &r) {
    uint32_t known = p.lead;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        if (c >= known) known += count_ready(p, at, known);
        if (gdn_lane() == 0) {
            unsigned char *const stage = at.smem + r.stage * STAGE;
            gdn_mbarrier &full = at.bars->full[r.stage];
            const uint64_t key = ((at.chunk_row + c) * p.nk + at.key_head) * TILE, value = (at.chunk_row + c) * p.nv + at.head;
            gdn_fence_async_global();
            gdn_mbar_wait(at.bars->free[r.stage], r.stage_parity ^ 1);
            gdn_mbar_arrive_expect(full, 2 * TILE + 2 * PANEL + SCALARS * 4);
            gdn_bulk_load(at.smem + FWD_SCALARS + r.stage * (SCALARS * 4), p.to.scalars + value * SCALARS, SCALARS * 4, full);
            gdn_bulk_load(stage + FWD_K, p.to.k + key, TILE, full);
            gdn_bulk_load(stage + FWD_T, p.to.t + value * PANEL, PANEL, full);
            gdn_bulk_load(stage + FWD_Q, p.to.q + key, TILE, full);
            gdn_bulk_load(stage + FWD_P, p.to.p + value * PANEL, PANEL, full);
        }
        gdn_sync_warp();
    }
}

/* ---- warps 8 to 11: rows of V two chunks ahead in registers, as memory takes longer to answer than one lasts; those past the end are
 * zeros ---- */
struct value_rows {
    uint4 x[4];
};
GDN_DEVICE value_rows load_rows(const fwd_args &o, const fwd_place &at, uint32_t c) {
    const uint32_t thread = threadIdx.x % 128, first = c * CHUNK + thread / 8, left = first < at.rows ? at.rows - first : 0;
    const gdn_bf16 *const from = o.value + (at.token + first) * o.v_stride + at.head * DIM + at.column + thread % 8 * 8;
    value_rows v;
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v.x[i] = uint4 { 0, 0, 0, 0 };
        if (16 * i < left) v.x[i] = gdn_ld16_once(from + (uint64_t)(16 * i) * o.v_stride);
    }
    return v;
}
GDN_DEVICE void put_rows(const fwd_place &at, const turns &r, const value_rows &v) {
    const uint32_t thread = threadIdx.x % 128;
    unsigned char *const to = at.smem + FWD_V + r.two() * PANEL + place(thread / 8, thread % 8 * 8);
    gdn_mbar_wait(at.bars->v_free[r.two()], r.parity() ^ 1);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) gdn_st16(to + i * 2048, v.x[i]);
    gdn_mbar_arrive(at.bars->v[r.two()]);
}
/* By twos: a row that moved from one register to another would be waited for. */
GDN_DEVICE void bring_values(const fwd_args &o, const fwd_place &at, turns &r) {
    value_rows even = load_rows(o, at, 0), odd = load_rows(o, at, 1);
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c += 2) {
        put_rows(at, r, even);
        r.next();
        even = load_rows(o, at, c + 2);
        if (c + 1 == at.chunks) break;
        put_rows(at, r, odd);
        r.next();
        odd = load_rows(o, at, c + 3);
    }
}

/* ---- warps 6 and 7 ---- */
GDN_DEVICE void take_outputs(const fwd_args &o, const fwd_place &at, turns &r) {
    const uint32_t thread = threadIdx.x % 64, row0 = thread / 8, unit = thread % 8;
    const uint64_t step = (uint64_t)8 * o.rest.nv * DIM;
    const unsigned char *const buffers = at.smem + FWD_O + place(row0, unit * 8);
    gdn_bf16 *to = o.output + ((at.token + row0) * o.rest.nv + at.head) * DIM + at.column + unit * 8;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        const uint32_t first = c * CHUNK + row0, left = first < at.rows ? at.rows - first : 0;
        uint4 x[CHUNK / 8];
        gdn_mbar_wait(at.bars->done[r.two()], r.parity());
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++) x[i] = gdn_ld16(buffers + r.two() * PANEL + i * 1024);
        gdn_mbar_arrive(at.bars->v[r.two()]); /* for the chunk after the next */
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++, to += step)
            if (8 * i < left) gdn_st16_stream(to, x[i]);
    }
}

/* ---- warps 0..3. Accumulators of 32 columns hold tokens 8 j + 2 t, +1 of value columns g and g + 8 in [4 j..4 j + 3] ---- */
struct lane_place {
    uint32_t t;      /* lane % 4 */
    uint32_t v;      /* value column of g, in the head */
    uint32_t matrix; /* this lane's row of an 8 x 8 matrix in V's and O's tiles */
};
GDN_DEVICE lane_place place_lane(const fwd_place &at, uint32_t warp, uint32_t lane) {
    return lane_place { lane % 4, at.column + warp * 16 + lane / 4, place(lane / 16 * 8 + lane % 8, (warp * 2 + lane / 8 % 2) * 8) };
}
GDN_DEVICE void pack_state(uint32_t *to, const float (&s)[32]) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) to[i] = gdn_pack_f16(s[2 * i], s[2 * i + 1]);
}
/* 16 scalars of this lane: two of each 8 tokens. */
GDN_DEVICE void load_scalars(float4 (&to)[4], const float *from, const lane_place &l) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) to[j] = gdn_ld16f(from + 16 * j + 4 * l.t);
}
GDN_DEVICE float2 of_eight(const float4 (&x)[4], uint32_t j) {
    return j % 2 ? float2 { x[j / 2].z, x[j / 2].w } : float2 { x[j / 2].x, x[j / 2].y };
}
/* bv = beta V^T, half `half` of the tokens. */
GDN_DEVICE void load_values(float (&bv)[32], const unsigned char *tile, const float *scalars, const lane_place &l, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 2 * half; j < 2 * half + 2; j++) {
        uint32_t x[4];
        gdn_ldmatrix_x4_trans(x, tile + l.matrix + j * 2048);
        const float4 b = gdn_ld16f(scalars + AT_BETA + 16 * j + 4 * l.t);
        bv[8 * j] = gdn_bf16_lo(x[0]) * b.x, bv[8 * j + 1] = gdn_bf16_hi(x[0]) * b.y;
        bv[8 * j + 2] = gdn_bf16_lo(x[1]) * b.x, bv[8 * j + 3] = gdn_bf16_hi(x[1]) * b.y;
        bv[8 * j + 4] = gdn_bf16_lo(x[2]) * b.z, bv[8 * j + 5] = gdn_bf16_hi(x[2]) * b.w;
        bv[8 * j + 6] = gdn_bf16_lo(x[3]) * b.z, bv[8 * j + 7] = gdn_bf16_hi(x[3]) * b.w;
    }
    gdn_pin(reinterpret_cast<float(&)[16]>(bv[16 * half]));
}
/* r = bv - decay x for half `half` of the tokens. */
GDN_DEVICE void make_r(uint32_t (&r)[16], const float (&x)[32], const float (&bv)[32], const float4 (&decay)[4], uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 4 * half; j < 4 * half + 4; j++) {
        const float2 d = of_eight(decay, j);
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t e = 4 * j + 2 * i;
            r[2 * j + i] = gdn_pack_f16(gdn_fma(-d.x, x[e], bv[e]), gdn_fma(-d.y, x[e + 1], bv[e + 1]));
        }
    }
}
/* x (+)= 64 rows k of S^T K^T. */
GDN_DEVICE void multiply_sk(float (&x)[32], const uint32_t (&s)[32], gdn_tile_k K, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x, gdn_quad(s, 16 * half + 4 * j), gdn_move(K, half * PANEL + j * 32), half + j > 0);
}
/* Left operands of the last two products from uc. */
GDN_DEVICE void make_u(uint32_t (&u)[16], uint32_t (&ud)[16], const float (&x)[32], const float4 (&rest)[4]) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const float2 d = of_eight(rest, j);
        u[2 * j] = gdn_pack_f16(x[4 * j], x[4 * j + 1]);
        u[2 * j + 1] = gdn_pack_f16(x[4 * j + 2], x[4 * j + 3]);
        ud[2 * j] = gdn_pack_f16(x[4 * j] * d.x, x[4 * j + 1] * d.y);
        ud[2 * j + 1] = gdn_pack_f16(x[4 * j + 2] * d.x, x[4 * j + 3] * d.y);
    }
}
template <class F> GDN_DEVICE void each_state(const lane_place &l, F visit) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            visit(4 * j + i, gdn_state_at(8 * j + 2 * l.t + i % 2, l.v + i / 2 * 8, DIM, DIM),
                  gdn_state_at(64 + 8 * j + 2 * l.t + i % 2, l.v + i / 2 * 8, DIM, DIM));
    }
}

/* O^T of a chunk leaves. */
GDN_DEVICE void put_output(const fwd_place &at, const float (&out)[32], uint32_t two, const lane_place &l) {
    unsigned char *const buffer = at.smem + FWD_O + two * PANEL;
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t o[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) o[i] = gdn_pack_bf16(out[8 * j + 2 * i], out[8 * j + 2 * i + 1]);
        gdn_stmatrix_x4_trans(buffer + l.matrix + j * 2048, o);
    }
    gdn_mbar_arrive(at.bars->done[two]);
}
/* A wait that is rarely one. */
GDN_DEVICE void wait_unless(bool ready, gdn_mbarrier &bar, uint32_t parity) {
    if (!ready) gdn_mbar_wait(bar, parity);
}
template <int N> GDN_DEVICE void scale(float (&s)[N], float by) {
    GDN_UNROLL
    for (uint32_t i = 0; i < N; i++) s[i] *= by;
    gdn_pin(s);
}

/* The state behind chunk c, where one is asked for there. */
GDN_DEVICE void put_checkpoint(const fwd_place &at, const gdn_rule_ext &ext, float *ckpt, uint32_t nv, uint32_t c, const float (&s0)[32],
                               const float (&s1)[32]) {
    const uint32_t tokens = (at.begin + c + 1) * CHUNK;
    if (tokens > at.len || tokens % ext.ckpt_every) return;
    float *const to = ckpt + (uint64_t)(tokens / ext.ckpt_every - 1) * nv * (DIM * DIM);
    each_state(place_lane(at, gdn_warp(), gdn_anew(gdn_lane())), [&](uint32_t i, uint32_t a, uint32_t b) {
        to[a] = s0[i];
        to[b] = s1[i];
    });
}

/* The tensor cores take products in the order of their issue: S^T Q^T runs while uc becomes an operand. */
template <bool CKPT> GDN_DEVICE void compute(const fwd_args &o, const gdn_rule_ext &ext, const fwd_place &at, turns &now) {
    const uint32_t lane = gdn_lane();
    const lane_place l = place_lane(at, gdn_warp(), lane);
    float s0[32], s1[32], x[32], bv[32], out[32];
    uint32_t sh[32], r[16];
    float4 decay[4];
    each_state(l, [&](uint32_t i, uint32_t a, uint32_t b) {
        s0[i] = at.fresh ? 0.0f : at.h.in[a];
        s1[i] = at.fresh ? 0.0f : at.h.in[b];
    });
    pack_state(sh, s0);
    pack_state(sh + 16, s1);
    auto stage_of = [&](const turns &t) { return at.smem + t.stage * STAGE; };
    auto scalars_of = [&](const turns &t) { return reinterpret_cast<const float *>(at.smem + FWD_SCALARS + t.stage * (SCALARS * 4)); };
    auto values_of = [&](const turns &t) { return at.smem + FWD_V + t.two() * PANEL; };
    fwd_bars &bars = *at.bars;
    float *ckpt = nullptr;
    if (CKPT)
        ckpt = ext.ckpt +
               (gdn_ckpts_before(ext, at.sequence, o.rest.seq_len, o.rest.cu, o.rest.is_varlen) * o.rest.nv + at.head) * (DIM * DIM);

    gdn_mbar_wait(bars.full[now.stage], now.stage_parity);
    gdn_wgmma_fence();
    {
        const gdn_tile_k K = gdn_make_tile_k(stage_of(now) + FWD_K);
        multiply_sk(x, sh, K, 0);
        multiply_sk(x, sh, K, 1);
        gdn_wgmma_commit();
    }
    gdn_mbar_wait(bars.v[now.two()], now.parity());
    load_values(bv, values_of(now), scalars_of(now), l, 0);
    load_values(bv, values_of(now), scalars_of(now), l, 1);
    load_scalars(decay, scalars_of(now) + AT_BETA_DECAY, l);
    float all = scalars_of(now)[AT_ALL];
    gdn_wgmma_wait<0>();
    gdn_pin(x);
    make_r(r, x, bv, decay, 0);
    make_r(r, x, bv, decay, 1);

    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        unsigned char *const stage = stage_of(now);
        const float *const scalars = scalars_of(now);
        const gdn_tile_k T = gdn_make_tile_k(stage + FWD_T), Q = gdn_make_tile_k(stage + FWD_Q), P = gdn_make_tile_k(stage + FWD_P);
        const gdn_tile_mn K = gdn_make_tile_mn(stage + FWD_K, PANEL);
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x, gdn_quad(r, 4 * j), gdn_move(T, 32 * j), j > 0);
        gdn_wgmma_commit();
        GDN_UNROLL
        for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(out, gdn_quad(sh, 4 * j), gdn_move(Q, j % 4 * 32 + j / 4 * PANEL), j > 0);
        gdn_wgmma_commit();
        /* After the last chunk the products with the next K are made from this one's, and not looked at. */
        const bool end = c + 1 == at.chunks;
        turns next = now;
        next.next();
        if (end) next = now;
        const gdn_tile_k next_k = gdn_make_tile_k(stage_of(next) + FWD_K);
        const bool ready = gdn_mbar_test(bars.full[next.stage], next.stage_parity);
        uint32_t u[16], ud[16];
        float4 rest[4], factor[4];
        load_scalars(rest, scalars + AT_REST, l);
        {
            scale(s0, all);
            scale(s1, all);
        }
        gdn_wgmma_wait<1>();
        gdn_pin(x);
        make_u(u, ud, x, rest);
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(s0, gdn_quad(ud, 4 * j), gdn_move(K, 2048 * j), true);
        gdn_wgmma_commit();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(s1, gdn_quad(ud, 4 * j), gdn_move(K, PANEL + 2048 * j), true);
        gdn_wgmma_commit();
        wait_unless(ready, bars.full[next.stage], next.stage_parity);
        if (!end) gdn_mbar_wait(bars.v[next.two()], next.parity());
        load_values(bv, values_of(next), scalars_of(next), l, 0);
        load_scalars(factor, scalars + AT_OUT, l);
        gdn_wgmma_wait<2>();
        gdn_pin(out);
        GDN_UNROLL
        for (uint32_t i = 0; i < 32; i++) out[i] *= i % 2 ? of_eight(factor, i / 4).y : of_eight(factor, i / 4).x;
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(out, gdn_quad(u, 4 * j), gdn_move(P, 32 * j), true);
        gdn_wgmma_commit();
        /* the next chunk's S^T K^T, as the two halves of S become ready */
        gdn_wgmma_wait<2>();
        gdn_pin(s0);
        pack_state(sh, s0);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 0);
        gdn_wgmma_commit();
        gdn_wgmma_wait<2>();
        gdn_pin(s1);
        pack_state(sh + 16, s1);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 1);
        gdn_wgmma_commit();
        gdn_wgmma_wait<2>();
        gdn_pin(out);
        put_output(at, out, now.two(), l);
        load_values(bv, values_of(next), scalars_of(next), l, 1);
        load_scalars(decay, scalars_of(next) + AT_BETA_DECAY, l);
        all = scalars_of(next)[AT_ALL];
        if (!end) {
            gdn_mbar_arrive(bars.free[now.stage]);
            gdn_mbar_arrive(bars.v_free[now.two()]);
        }
        gdn_wgmma_wait<0>();
        gdn_pin(x);
        make_r(r, x, bv, decay, 0);
        make_r(r, x, bv, decay, 1);
        if (CKPT) put_checkpoint(at, ext, ckpt, o.rest.nv, c, s0, s1);
        now = next;
    }
    gdn_mbar_arrive(bars.v_free[now.two()]);
    gdn_mbar_arrive(bars.free[now.stage]);
    now.next();
    each_state(place_lane(at, gdn_warp(), gdn_anew(lane)), [&](uint32_t i, uint32_t a, uint32_t b) {
        at.h.out[a] = s0[i];
        at.h.out[b] = s1[i];
    });
}

/* ---- a sequence that has no chunk here, or is padding: warps 6 and 7 ---- */
GDN_DEVICE void zero_outputs(const fwd_args &o, const fwd_place &at) {
    const uint32_t thread = threadIdx.x % 64, unit = thread % 8;
    for (uint32_t row = thread / 8; row < at.rows; row += 8)
        gdn_st16(o.output + ((at.token + row) * o.rest.nv + at.head) * DIM + at.column + unit * 8, uint4 { 0, 0, 0, 0 });
}
GDN_DEVICE void pass_state(const fwd_place &at) {
    if (at.h.in == at.h.out && !at.fresh) return;
    for (uint32_t i = threadIdx.x % 64; i < DIM * COLUMNS; i += 64) {
        const uint32_t e =
            GDN_IS_VK ? gdn_state_at(i % DIM, at.column + i / DIM, DIM, DIM) : gdn_state_at(i / COLUMNS, at.column + i % COLUMNS, DIM, DIM);
        at.h.out[e] = at.fresh ? 0.0f : at.h.in[e];
    }
}

GDN_DEVICE void init_bars(fwd_bars &bars) {
    for (uint32_t i = 0; i < STAGES; i++) {
        gdn_mbar_init(bars.full[i], 1);
        gdn_mbar_init(bars.free[i], 128); /* the computing threads: each arrives for what it did itself */
    }
    for (uint32_t i = 0; i < 2; i++) {
        gdn_mbar_init(bars.v[i], 192); /* warps 6 to 11 */
        gdn_mbar_init(bars.v_free[i], 128);
        gdn_mbar_init(bars.done[i], 128);
    }
    gdn_mbar_init_fence();
}
/* Warps 4 to 15. */
GDN_DEVICE void serve(const fwd_args &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t worker, uint32_t warp) {
    fwd_bars *const bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    turns r;
    if (warp == 4) {
        each_task(o, ext, smem, worker, [&](const fwd_place &at) {
            if (has_pass(at)) bring_tiles(o.rest, at, r);
        });
    } else if (warp == 6 || warp == 7) {
        for (uint32_t i = 0; i < 2; i++) gdn_mbar_arrive(bars->v[i]); /* both buffers are empty */
        each_task(o, ext, smem, worker, [&](const fwd_place &at) {
            if (!at.h.in)
                zero_outputs(o, at);
            else if (at.chunks == 0)
                pass_state(at);
            else
                take_outputs(o, at, r);
        });
    } else if (warp / 4 == 2) {
        each_task(o, ext, smem, worker, [&](const fwd_place &at) {
            if (has_pass(at)) bring_values(o, at, r);
        });
    }
}

/* The first `helpers` blocks that come here prepare the rest, with two pairs of warpgroups each, and wait for no one; the others pass, and
 * wait only for them. Blocks that have not come yet may be waiting for a multiprocessor themselves. */
GDN_DEVICE uint32_t take_role(const fwd_args &o, unsigned char *smem) {
    if (o.helpers == 0) return blockIdx.x;
    uint32_t *const role = reinterpret_cast<uint32_t *>(smem + FWD_ROLE);
    if (threadIdx.x == 0) *role = gdn_atomic_add(o.rest.to.words + NEXT_ROLE, 1u);
    gdn_sync_block();
    return *role;
}
/* Registers: 512 in all for a place in the four warpgroups of a worker. */
template <bool CKPT> GDN_DEVICE void forward(const fwd_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    const uint32_t role = gdn_uniform(take_role(o, smem)), worker = role - o.helpers;
    gdn_sync_block();
    if (role >= o.helpers && warp < 4) {
        gdn_registers_up<240>();
        turns now;
        each_task(o, ext, smem, worker, [&](const fwd_place &at) {
            if (has_pass(at)) compute<CKPT>(o, ext, at, now);
        });
    } else if (role >= o.helpers) {
        gdn_registers_down<88>();
        serve(o, ext, smem, worker, warp);
    } else {
        prepare_rest(o.rest, ext, o.batch, smem + warp / 8 * PAIR_STEP, warp, 1 + 3 * (warp / 8));
    }
}
} // namespace gdn_fast
