/* gdn_fast_fwd.cuh - second kernel of the fast prefill: state and output of one (sequence, value head), 64 value columns a block, serial
 * over the chunks.
 *
 * Everything is transposed: the block's value columns are the rows of all products, and S^T [64 v][128 k] stays in the f32 accumulators
 * of one warpgroup. Products whose left operand is made here (S, R, uc) take it from registers, rounded to f16; the right one is a tile
 * of the scratch. Per chunk
 *
 *     X^T  = S^T K^T
 *     R^T  = beta V^T - beta e^gc X^T
 *     uc^T = R^T T^T                   R is rounded once, as if v were: a difference of rows that cancels later still does
 *     S^T  = e^gc_last S^T + (e^(gc_last - gc) uc)^T K
 *     O^T  = scale e^gc (S^T Q^T) + uc^T P^T     with the S of the chunk's begin
 *
 * Warps 0..3 compute. Warp 4 brings tiles by bulk copies, warp 5 the rows of V, warps 6 and 7
 * carry finished outputs away. All meet at mbarriers: full[s] (stage s of a chunk is there, and the output buffer that the chunk will use
 * has been emptied), empty[s], done[i] (output buffer i is complete).
 *
 * ptxas keeps several products in flight only if nothing is pending at the loop's back edge and no product stands in a branch. */
#pragma once
#include "gdn_fast.cuh"

namespace gdn_fast {
enum {
    FWD_THREADS = 256,
    COLUMNS = 64, /* of a block */
    STAGES = 3,
    FWD_K = 0,
    FWD_Q = FWD_K + TILE,
    FWD_T = FWD_Q + TILE,
    FWD_P = FWD_T + PANEL,
    FWD_V = FWD_P + PANEL, /* [64 tokens][64], swizzled */
    STAGE = FWD_V + PANEL,
    FWD_O = STAGES * STAGE, /* two buffers like V */
    FWD_SCALARS = FWD_O + 2 * PANEL,
    FWD_BARS = FWD_SCALARS + STAGES * SCALARS * 4,
    FWD_SMEM = FWD_BARS + 128,
};
static_assert(FWD_SMEM == 191664, "the launcher's number");
static_assert(FWD_BARS % 8 == 0, "mbarriers");

struct fwd_args {
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    scratch from;
    uint32_t seq_len, num_chunks, nk, nv, v_stride;
    const int32_t *cu;
    bool is_varlen;
};
struct fwd_bars {
    gdn_mbarrier full[STAGES], empty[STAGES], done[2];
};
/* One block. */
struct fwd_place {
    uint32_t head, key_head, column, chunks; /* column: the block's first of the head; chunks: of this launch */
    uint32_t rows;                           /* tokens in them */
    uint64_t chunk_row, token;
    unsigned char *smem;
    fwd_bars *bars;
};
struct ring { /* a stage and the parity of its barrier */
    uint32_t stage = 0, parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

/* ---- warp 4 ---- */
GDN_DEVICE void bring_tiles(const fwd_args &o, const fwd_place &at) {
    ring r;
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        unsigned char *const stage = at.smem + r.stage * STAGE;
        gdn_mbarrier &full = at.bars->full[r.stage];
        const uint64_t key = ((at.chunk_row + c) * o.nk + at.key_head) * TILE, value = (at.chunk_row + c) * o.nv + at.head;
        gdn_mbar_wait(at.bars->empty[r.stage], r.parity ^ 1);
        gdn_mbar_arrive_expect(full, 2 * TILE + 2 * PANEL + SCALARS * 4);
        gdn_bulk_load(stage + FWD_K, o.from.k + key, TILE, full);
        gdn_bulk_load(at.smem + FWD_SCALARS + r.stage * (SCALARS * 4), o.from.scalars + value * SCALARS, SCALARS * 4, full);
        gdn_bulk_load(stage + FWD_T, o.from.t + value * PANEL, PANEL, full);
        gdn_bulk_load(stage + FWD_Q, o.from.q + key, TILE, full);
        gdn_bulk_load(stage + FWD_P, o.from.p + value * PANEL, PANEL, full);
    }
}

/* ---- warp 5: rows of V go through registers, a chunk ahead; those past the end are zeros ---- */
GDN_DEVICE void bring_values(const fwd_args &o, const fwd_place &at) {
    const uint32_t lane = gdn_lane(), row0 = lane / 8, unit = lane % 8;
    const uint32_t even = place(row0, unit * 8), odd = place(row0 + 4, unit * 8);
    const uint64_t step = (uint64_t)4 * o.v_stride;
    const gdn_bf16 *from = o.value + (at.token + row0) * o.v_stride + at.head * DIM + at.column + unit * 8;
    uint4 x[CHUNK / 4];
    ring r;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        const uint32_t first = c * CHUNK + row0, left = first < at.rows ? at.rows - first : 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 4; i++, from += step) {
            x[i] = uint4 { 0, 0, 0, 0 };
            if (4 * i < left) x[i] = gdn_ld16_once(from);
        }
        unsigned char *const to = at.smem + r.stage * STAGE + FWD_V;
        gdn_mbar_wait(at.bars->empty[r.stage], r.parity ^ 1);
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 4; i++) gdn_st16(to + (i % 2 ? odd : even) + i / 2 * 1024, x[i]);
        gdn_sync_warp();
        if (lane == 0) gdn_mbar_arrive(at.bars->full[r.stage]);
    }
}

/* ---- warps 6 and 7 ---- */
GDN_DEVICE void take_outputs(const fwd_args &o, const fwd_place &at) {
    const uint32_t lane = gdn_lane(), thread = threadIdx.x % 64, row0 = thread / 8, unit = thread % 8;
    const uint64_t step = (uint64_t)8 * o.nv * DIM;
    const unsigned char *const buffers = at.smem + FWD_O + place(row0, unit * 8);
    gdn_bf16 *to = o.output + ((at.token + row0) * o.nv + at.head) * DIM + at.column + unit * 8;
    for (uint32_t c = 0; c < 2 && c < at.chunks; c++)
        if (lane == 0) gdn_mbar_arrive(at.bars->full[c]); /* both buffers are empty */
    ring r;                                               /* of chunk c + 2 */
    r.next();
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        const uint32_t first = c * CHUNK + row0, left = first < at.rows ? at.rows - first : 0;
        uint4 x[CHUNK / 8];
        r.next();
        gdn_mbar_wait(at.bars->done[c % 2], c / 2 & 1);
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++) x[i] = gdn_ld16(buffers + c % 2 * PANEL + i * 1024);
        gdn_sync_warp();
        if (lane == 0 && c + 2 < at.chunks) gdn_mbar_arrive(at.bars->full[r.stage]);
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
GDN_DEVICE void pack_state(uint32_t *to, const float (&s)[32]) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) to[i] = gdn_pack_f16(s[2 * i], s[2 * i + 1]);
}
/* bv = beta V^T, decay = beta e^gc. */
GDN_DEVICE void load_values(float (&bv)[32], float2 (&decay)[8], const unsigned char *tile, const float *scalars, const lane_place &l) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t r[4];
        gdn_ldmatrix_x4_trans(r, tile + l.matrix + j * 2048);
        const float2 b0 = get_pair(scalars + AT_BETA + 16 * j + 2 * l.t), b1 = get_pair(scalars + AT_BETA + 16 * j + 8 + 2 * l.t);
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            bv[8 * j + 2 * i] = gdn_bf16_lo(r[i]) * (i < 2 ? b0.x : b1.x);
            bv[8 * j + 2 * i + 1] = gdn_bf16_hi(r[i]) * (i < 2 ? b0.y : b1.y);
        }
    }
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) decay[j] = get_pair(scalars + AT_BETA_DECAY + 8 * j + 2 * l.t);
    gdn_pin(bv);
}
/* r = bv - decay x for half `half` of the tokens. */
GDN_DEVICE void make_r(uint32_t (&r)[16], const float (&x)[16], const float (&bv)[32], const float2 (&decay)[8], uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const float2 d = decay[4 * half + j];
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t e = 4 * j + 2 * i, at = 16 * half + e;
            r[8 * half + 2 * j + i] = gdn_pack_f16(gdn_fma(-d.x, x[e], bv[at]), gdn_fma(-d.y, x[e + 1], bv[at + 1]));
        }
    }
}
/* x (+)= 64 rows k of S^T K^T. */
GDN_DEVICE void multiply_sk(float (&x)[16], const uint32_t (&s)[32], gdn_tile_k K, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x, gdn_quad(s, 16 * half + 4 * j), gdn_move(K, half * PANEL + j * 32), half + j > 0);
}
/* Left operands of the last two products from half `half` of uc. */
GDN_DEVICE void make_u(uint32_t (&u)[16], uint32_t (&ud)[16], const float (&x)[16], const float *rest, uint32_t half, const lane_place &l) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const float2 d = get_pair(rest + 32 * half + 8 * j + 2 * l.t);
        const uint32_t at = 8 * half + 2 * j;
        u[at] = gdn_pack_f16(x[4 * j], x[4 * j + 1]);
        u[at + 1] = gdn_pack_f16(x[4 * j + 2], x[4 * j + 3]);
        ud[at] = gdn_pack_f16(x[4 * j] * d.x, x[4 * j + 1] * d.y);
        ud[at + 1] = gdn_pack_f16(x[4 * j + 2] * d.x, x[4 * j + 3] * d.y);
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

GDN_DEVICE void compute(const fwd_place &at, const gdn_state_ptrs &h, bool fresh) {
    const uint32_t lane = gdn_lane(), warp = gdn_warp();
    lane_place l;
    l.t = lane % 4;
    l.v = at.column + warp * 16 + lane / 4;
    l.matrix = place(lane / 16 * 8 + lane % 8, (warp * 2 + lane / 8 % 2) * 8);
    float s0[32], s1[32], x0[16], x1[16], bv[32], out[32];
    uint32_t sh[32], r[16];
    float2 decay[8];
    each_state(l, [&](uint32_t i, uint32_t a, uint32_t b) {
        s0[i] = fresh ? 0.0f : h.in[a];
        s1[i] = fresh ? 0.0f : h.in[b];
    });
    pack_state(sh, s0);
    pack_state(sh + 16, s1);
    auto scalars_of = [&](uint32_t stage) { return reinterpret_cast<const float *>(at.smem + FWD_SCALARS + stage * (SCALARS * 4)); };

    gdn_mbar_wait(at.bars->full[0], 0);
    gdn_wgmma_fence();
    {
        const gdn_tile_k K = gdn_make_tile_k(at.smem + FWD_K);
        multiply_sk(x0, sh, K, 0);
        multiply_sk(x0, sh, K, 1);
        gdn_wgmma_commit();
        multiply_sk(x1, sh, gdn_move(K, 4096), 0);
        multiply_sk(x1, sh, gdn_move(K, 4096), 1);
        gdn_wgmma_commit();
    }
    load_values(bv, decay, at.smem + FWD_V, scalars_of(0), l);
    gdn_wgmma_wait<0>();
    gdn_pin(x0);
    gdn_pin(x1);
    make_r(r, x0, bv, decay, 0);

    ring now;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        unsigned char *const stage = at.smem + now.stage * STAGE;
        const float *const scalars = scalars_of(now.stage);
        const gdn_tile_k T = gdn_make_tile_k(stage + FWD_T), Q = gdn_make_tile_k(stage + FWD_Q), P = gdn_make_tile_k(stage + FWD_P);
        const gdn_tile_mn K = gdn_make_tile_mn(stage + FWD_K, PANEL);
        /* uc, tokens 0..31 and 32..63: T is triangular */
        gdn_wgmma_fence();
        gdn_wgmma_f16(x0, gdn_quad(r, 0), T, false);
        gdn_wgmma_f16(x0, gdn_quad(r, 4), gdn_move(T, 32), true);
        gdn_wgmma_commit();
        make_r(r, x1, bv, decay, 1);
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x1, gdn_quad(r, 4 * j), gdn_move(T, 4096 + 32 * j), j > 0);
        gdn_wgmma_commit();
        GDN_UNROLL
        for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(out, gdn_quad(sh, 4 * j), gdn_move(Q, j % 4 * 32 + j / 4 * PANEL), j > 0);
        gdn_wgmma_commit();
        const float all = scalars[AT_ALL];
        GDN_UNROLL
        for (uint32_t i = 0; i < 32; i++) {
            s0[i] *= all;
            s1[i] *= all;
        }
        gdn_pin(s0);
        gdn_pin(s1);
        uint32_t u[16], ud[16];
        gdn_wgmma_wait<2>();
        gdn_pin(x0);
        make_u(u, ud, x0, scalars + AT_REST, 0, l);
        /* After the last chunk the products with the next K are made from this one's, and not looked at. */
        const bool last = c + 1 == at.chunks;
        ring next = now;
        next.next();
        if (last) next = now;
        unsigned char *const ahead = at.smem + next.stage * STAGE;
        const gdn_tile_k next_k = gdn_make_tile_k(ahead + FWD_K);
        const bool ready = gdn_mbar_test(at.bars->full[next.stage], next.parity);
        gdn_wgmma_wait<1>();
        gdn_pin(x1);
        make_u(u, ud, x1, scalars + AT_REST, 1, l);
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(s0, gdn_quad(ud, 4 * j), gdn_move(K, 2048 * j), true);
        gdn_wgmma_commit();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(s1, gdn_quad(ud, 4 * j), gdn_move(K, PANEL + 2048 * j), true);
        gdn_wgmma_commit();
        float2 factor[8];
        GDN_UNROLL
        for (uint32_t j = 0; j < 8; j++) factor[j] = get_pair(scalars + AT_OUT + 8 * j + 2 * l.t);
        gdn_wgmma_wait<2>();
        gdn_pin(out);
        GDN_UNROLL
        for (uint32_t i = 0; i < 32; i++) out[i] *= i % 2 ? factor[i / 4].y : factor[i / 4].x;
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(out, gdn_quad(u, 4 * j), gdn_move(P, 32 * j), true);
        gdn_wgmma_commit();
        /* the next chunk's S^T K^T, as the two halves of S become ready */
        if (!ready) gdn_mbar_wait(at.bars->full[next.stage], next.parity);
        gdn_wgmma_wait<2>();
        gdn_pin(s0);
        pack_state(sh, s0);
        gdn_wgmma_fence();
        multiply_sk(x0, sh, next_k, 0);
        multiply_sk(x1, sh, gdn_move(next_k, 4096), 0);
        gdn_wgmma_commit();
        gdn_wgmma_wait<2>();
        gdn_pin(s1);
        pack_state(sh + 16, s1);
        gdn_wgmma_fence();
        multiply_sk(x0, sh, next_k, 1);
        gdn_wgmma_commit();
        multiply_sk(x1, sh, gdn_move(next_k, 4096), 1);
        gdn_wgmma_commit();
        gdn_wgmma_wait<3>();
        gdn_pin(out);
        unsigned char *const buffer = at.smem + FWD_O + c % 2 * PANEL;
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t o[4];
            GDN_UNROLL
            for (uint32_t i = 0; i < 4; i++) o[i] = gdn_pack_bf16(out[8 * j + 2 * i], out[8 * j + 2 * i + 1]);
            gdn_stmatrix_x4_trans(buffer + l.matrix + j * 2048, o);
        }
        gdn_sync_warp();
        if (lane == 0) {
            if (!last) gdn_mbar_arrive(at.bars->empty[now.stage]);
            gdn_mbar_arrive(at.bars->done[c % 2]);
        }
        load_values(bv, decay, ahead + FWD_V, scalars_of(next.stage), l);
        gdn_wgmma_wait<1>();
        gdn_pin(x0);
        make_r(r, x0, bv, decay, 0);
        gdn_wgmma_wait<0>();
        gdn_pin(x1);
        now = next;
    }
    each_state(l, [&](uint32_t i, uint32_t a, uint32_t b) {
        h.out[a] = s0[i];
        h.out[b] = s1[i];
    });
}

/* ---- a sequence that has no chunk here, or is padding ---- */
GDN_DEVICE void zero_outputs(const fwd_args &o, const fwd_place &at) {
    const uint32_t unit = threadIdx.x % 8;
    for (uint32_t row = threadIdx.x / 8; row < at.rows; row += FWD_THREADS / 8)
        gdn_st16(o.output + ((at.token + row) * o.nv + at.head) * DIM + at.column + unit * 8, uint4 { 0, 0, 0, 0 });
}
GDN_DEVICE void pass_state(const fwd_place &at, const gdn_state_ptrs &h, bool fresh) {
    if (h.in == h.out && !fresh) return;
    for (uint32_t i = threadIdx.x; i < DIM * COLUMNS; i += FWD_THREADS) {
        const uint32_t e =
            GDN_IS_VK ? gdn_state_at(i % DIM, at.column + i / DIM, DIM, DIM) : gdn_state_at(i / COLUMNS, at.column + i % COLUMNS, DIM, DIM);
        h.out[e] = fresh ? 0.0f : h.in[e];
    }
}

GDN_DEVICE void forward(const fwd_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const gdn_sequence seq = gdn_find_sequence(ext, blockIdx.z, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    const uint32_t warp = gdn_warp();
    fwd_place at;
    at.head = blockIdx.y;
    at.key_head = gdn_key_head(at.head, o.nk, o.nv);
    at.column = blockIdx.x * COLUMNS;
    at.chunks = seq.end - seq.begin;
    at.rows = at.chunks ? min(seq.len - seq.begin * CHUNK, at.chunks * CHUNK) : 0;
    at.chunk_row = seq.chunk_row;
    at.token = seq.token + (uint64_t)seq.begin * CHUNK;
    at.smem = smem;
    at.bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    const gdn_state_ptrs h = gdn_states_of(ext, o.h_state, false, blockIdx.z, at.head, o.nv, DIM, DIM);
    const bool fresh = gdn_is_fresh(ext, blockIdx.z);
    if (!h.in) return zero_outputs(o, at);
    if (at.chunks == 0) return pass_state(at, h, fresh);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            gdn_mbar_init(at.bars->full[i], 4); /* warps 4 to 7 */
            gdn_mbar_init(at.bars->empty[i], 4);
        }
        for (uint32_t i = 0; i < 2; i++) gdn_mbar_init(at.bars->done[i], 4);
        gdn_mbar_init_fence();
    }
    gdn_sync_block();
    if (warp < 4) {
        compute(at, h, fresh);
    } else if (warp == 4) {
        if (gdn_lane() == 0) bring_tiles(o, at);
    } else if (warp == 5) {
        bring_values(o, at);
    } else {
        take_outputs(o, at);
    }
}
} // namespace gdn_fast
