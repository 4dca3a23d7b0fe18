/* gdn_fast_segments.cuh - the fast prefill of few heads over many multiprocessors: a sequence is cut into segments of a fixed number of
 * chunks, which pass side by side. The state behind a segment is linear in the state in front of it,
 *
 *     S'^T = S^T M + A,
 *
 * exactly as the pass computes it, so three kernels behind the preparing one do it without leaving anything out:
 *   carry  M [128 k][128 k] and A [128 v][128 k] of every full segment: the pass without outputs, over a state that begins as the identity
 *          (and values that are zero), and over one that begins as zero. Four tasks of 64 rows a segment and value head.
 *   join   the state in front of every segment, one segment after another, in f32. Behind a full segment that ends a sequence this is
 *          the state, too, so that a prefill cut there gives the same bytes.
 *   pass   all segments at once, each from its own state.
 * Borders count from the first token of a call. */
#pragma once
#include "gdn_fast_fwd.cuh"

namespace gdn_fast {
typedef segments_of<fwd_args> segment_args;

/* ---- pass ---- */
GDN_DEVICE void pass_segments(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_pass<fwd_args> each { o, ext, smem };
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    gdn_sync_block();
    if (warp < 4) {
        gdn_registers_up<248>();
        turns now;
        each([&](const fwd_place &at) {
            if (has_pass(at)) compute<false>(o.pass, ext, at, now);
        });
    } else {
        gdn_registers_down<88>();
        serve(o.pass, smem, warp, each);
    }
}

/* ---- carry ---- */
GDN_DEVICE void bring_k_and_t(const prepare_args &p, const fwd_place &at, turns &r) {
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        unsigned char *const stage = at.smem + r.stage * STAGE;
        gdn_mbarrier &full = at.bars->full[r.stage];
        const uint64_t key = ((at.chunk_row + c) * p.nk + at.key_head) * TILE, value = (at.chunk_row + c) * p.nv + at.head;
        if (gdn_lane() == 0) {
            gdn_mbar_wait(at.bars->free[r.stage], r.stage_parity ^ 1);
            gdn_mbar_arrive_expect(full, TILE + PANEL + SCALARS * 4);
            gdn_bulk_load(at.smem + FWD_SCALARS + r.stage * (SCALARS * 4), p.to.scalars + value * SCALARS, SCALARS * 4, full);
            gdn_bulk_load(stage + FWD_K, p.to.k + key, TILE, full);
            gdn_bulk_load(stage + FWD_T, p.to.t + value * PANEL, PANEL, full);
        }
        gdn_sync_warp();
    }
}
/* The pass of 64 rows of M or A, which go to `to`. */
GDN_DEVICE void carry_rows(const fwd_place &at, bool identity, float *to, turns &now) {
    const lane_place l = place_lane(at, gdn_warp(), gdn_lane());
    float s0[32], s1[32], x[32], bv[32];
    uint32_t sh[32], r[16], u[16], ud[16];
    float4 decay[4], rest[4];
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t k = i / 4 * 8 + 2 * l.t + i % 2, row = l.v + i / 2 % 2 * 8;
        s0[i] = identity && k == row ? 1.0f : 0.0f;
        s1[i] = identity && k + 64 == row ? 1.0f : 0.0f;
    }
    pack_state(sh, s0);
    pack_state(sh + 16, s1);
    auto stage_of = [&](const turns &t) { return at.smem + t.stage * STAGE; };
    auto scalars_of = [&](const turns &t) { return reinterpret_cast<const float *>(at.smem + FWD_SCALARS + t.stage * (SCALARS * 4)); };
    auto values_of = [&](const turns &t) { return at.smem + FWD_V + t.two() * PANEL; };
    fwd_bars &bars = *at.bars;
    gdn_mbar_wait(bars.full[now.stage], now.stage_parity);
    gdn_wgmma_fence();
    multiply_sk(x, sh, gdn_make_tile_k(stage_of(now) + FWD_K), 0);
    multiply_sk(x, sh, gdn_make_tile_k(stage_of(now) + FWD_K), 1);
    gdn_wgmma_commit();
    gdn_mbar_wait(bars.v[now.two()], now.parity());
    take_values(bv, values_of(now), scalars_of(now), l, 0);
    float beta = take_values(bv, values_of(now), scalars_of(now), l, 1);
    if (at.chunks > 1) gdn_mbar_arrive(bars.v_free[now.two()]);
    load_scalars(decay, scalars_of(now) + AT_BETA_DECAY, l);
    float all = scalars_of(now)[AT_ALL + l.t];
    gdn_wgmma_wait<0>();
    gdn_pin(x);
    make_r(r, x, bv, decay);

    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        unsigned char *const stage = stage_of(now);
        const gdn_tile_k T = gdn_make_tile_k(stage + FWD_T);
        const gdn_tile_mn K = gdn_make_tile_mn(stage + FWD_K, PANEL);
        load_scalars(rest, scalars_of(now) + AT_REST, l);
        last_token last;
        load_tail(last, scalars_of(now), l);
        last.r[0] = r[14], last.r[1] = r[15], last.beta = beta;
        gdn_wgmma_fence();
        multiply_rt(x, r, T, false);
        gdn_wgmma_commit();
        const bool end = c + 1 == at.chunks; /* as in `compute` */
        turns next = now;
        next.next();
        if (end) next = now;
        const gdn_tile_k next_k = gdn_make_tile_k(stage_of(next) + FWD_K);
        scale(s0, all);
        scale(s1, all);
        gdn_wgmma_wait<0>();
        gdn_pin(x);
        make_u(u, ud, x, rest, last, l.t, [] {});
        gdn_wgmma_fence();
        multiply_uk(s0, ud, K, 0);
        gdn_wgmma_commit();
        multiply_uk(s1, ud, K, 1);
        gdn_wgmma_commit();
        if (!end) {
            gdn_mbar_wait(bars.full[next.stage], next.stage_parity);
            gdn_mbar_wait(bars.v[next.two()], next.parity());
        }
        take_values(bv, values_of(next), scalars_of(next), l, 0);
        gdn_wgmma_wait<1>();
        gdn_pin(s0);
        pack_state(sh, s0);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 0);
        gdn_wgmma_commit();
        gdn_wgmma_wait<1>();
        gdn_pin(s1);
        pack_state(sh + 16, s1);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 1);
        gdn_wgmma_commit();
        beta = take_values(bv, values_of(next), scalars_of(next), l, 1);
        load_scalars(decay, scalars_of(next) + AT_BETA_DECAY, l);
        all = scalars_of(next)[AT_ALL + l.t];
        if (!end) gdn_mbar_arrive(bars.free[now.stage]);
        if (c + 2 < at.chunks) gdn_mbar_arrive(bars.v_free[next.two()]);
        gdn_wgmma_wait<0>();
        gdn_pin(x);
        make_r(r, x, bv, decay);
        now = next;
    }
    gdn_mbar_arrive(bars.v_free[now.two()]);
    gdn_mbar_arrive(bars.free[now.stage]);
    now.next();
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i += 2) {
        float *const row = to + (l.v + i / 2 % 2 * 8) * DIM + i / 4 * 8 + 2 * l.t;
        *reinterpret_cast<float2 *>(row) = float2 { s0[i], s0[i + 1] };
        *reinterpret_cast<float2 *>(row + 64) = float2 { s1[i], s1[i + 1] };
    }
}
GDN_DEVICE void carry(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_carry<fwd_args> each { o, ext, smem };
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS), 128);
    gdn_sync_block();
    turns r;
    if (warp < 4) {
        gdn_registers_up<248>();
        each([&](const fwd_place &at, bool identity, float *to) { carry_rows(at, identity, to, r); });
    } else {
        gdn_registers_down<88>();
        if (warp == 4) each([&](const fwd_place &at, bool, float *) { bring_k_and_t(o.pass.rest, at, r); });
        if (warp / 4 == 2) each([&](const fwd_place &at, bool, float *) { bring_values(o.pass, at, r); });
    }
}

/* ---- join: block (value head, sequence, 16 rows v), 256 threads ---- */
enum { JOIN_ROWS = 16, JOIN_PARTS = 4 /* of the sum over r */, JOIN_SUM = DIM / JOIN_PARTS };
/* A warp's share of S^T M: rows r of part `warp % 4`, 8 of the rows v, 4 columns a lane. m: its rows of M. */
GDN_DEVICE void multiply_m(float4 (&sum)[8], const float4 (&m)[JOIN_SUM], const float4 (*state)[JOIN_ROWS / 4], uint32_t half) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) sum[i] = float4 { 0, 0, 0, 0 };
    GDN_UNROLL
    for (uint32_t r = 0; r < JOIN_SUM; r++) {
        const float4 a = state[r][2 * half], b = state[r][2 * half + 1];
        const float v[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            sum[i].x = gdn_fma(v[i], m[r].x, sum[i].x), sum[i].y = gdn_fma(v[i], m[r].y, sum[i].y);
            sum[i].z = gdn_fma(v[i], m[r].z, sum[i].z), sum[i].w = gdn_fma(v[i], m[r].w, sum[i].w);
        }
    }
}
GDN_DEVICE void join(const segment_args &o, const gdn_rule_ext &ext) {
    __shared__ float4 state[DIM][JOIN_ROWS / 4]; /* by k */
    __shared__ float part[JOIN_PARTS][JOIN_ROWS][DIM];
    const prepare_args &p = o.pass.rest;
    const uint32_t warp = gdn_warp(), lane = gdn_lane(), sums = warp % JOIN_PARTS, half = warp / JOIN_PARTS, head = blockIdx.x;
    const uint32_t k = threadIdx.x / 2, v0 = threadIdx.x % 2 * 8,
                   first = blockIdx.z * JOIN_ROWS + v0; /* a thread's 8 values of the state */
    const gdn_sequence seq = gdn_find_sequence(ext, blockIdx.y, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
    const gdn_state_ptrs h = gdn_states_of(ext, o.pass.h_state, false, blockIdx.y, head, p.nv, DIM, DIM);
    if (!h.in || seq.end == 0) return;
    const uint32_t len = min(seq.len, seq.end * CHUNK), full = len / (o.chunks * CHUNK);
    auto row_of = [&](uint32_t g) { return segment_row(o, blockIdx.y, seq.chunk_row + (uint64_t)g * o.chunks, head); };
    float s[8];
    float4 m[JOIN_SUM], sum[8];
    auto load_m = [&](uint32_t g) {
        const float *const from = o.moved + row_of(g) + sums * JOIN_SUM * DIM + 4 * lane;
        GDN_UNROLL
        for (uint32_t r = 0; r < JOIN_SUM; r++) m[r] = gdn_ld16f(from + r * DIM);
    };
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) s[i] = gdn_is_fresh(ext, blockIdx.y) ? 0.0f : h.in[gdn_state_at(k, first + i, DIM, DIM)];
    if (full) load_m(0);
    GDN_NO_UNROLL
    for (uint32_t g = 0;; g++) {
        float *const to = g == full && len == full * o.chunks * CHUNK ? h.out : o.begins + row_of(g);
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) to[gdn_state_at(k, first + i, DIM, DIM)] = s[i];
        if (g == full) return;
        state[k][v0 / 4] = float4 { s[0], s[1], s[2], s[3] };
        state[k][v0 / 4 + 1] = float4 { s[4], s[5], s[6], s[7] };
        const float *const added = o.added + row_of(g) + k;
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) s[i] = added[(first + i) * DIM];
        gdn_sync_block();
        multiply_m(sum, m, state + sums * JOIN_SUM, half);
        if (g + 1 < full) load_m(g + 1);
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) gdn_st16f(&part[sums][8 * half + i][4 * lane], sum[i]);
        gdn_sync_block();
        GDN_UNROLL
        for (uint32_t n = 0; n < JOIN_PARTS; n++) GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) s[i] += part[n][v0 + i][k];
    }
}
} // namespace gdn_fast
