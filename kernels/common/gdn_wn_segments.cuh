/* gdn_wn_segments.cuh - the fast prefill by W and N of few heads over many multiprocessors: carry and pass of gdn_fast_segments.cuh, whose
 * formulas and places these are. What stands between them, join, has nothing of either form, and is gated_delta_rule_fast_join. */
#pragma once
#include "gdn_wn_fwd.cuh"

namespace gdn_wn {
struct segment_args {
    fwd_args pass;
    uint32_t chunks;               /* of a segment */
    uint32_t count;                /* segments of the longest sequence */
    float *moved, *added, *begins; /* [segment_of][value head]: M and A, row by row; a state */
};
/* The place of a segment among all: chunk_row is its first chunk's, and no two chunks have the same. Below all chunks / chunks of a segment
 * + sequences. */
GDN_DEVICE uint64_t segment_row(const segment_args &o, uint32_t sequence, uint64_t chunk_row, uint32_t head) {
    return ((chunk_row / o.chunks + sequence) * o.pass.nv + head) * (DIM * DIM);
}
/* Visits (place, part) of this block's tasks, each (sequence, segment, value head) in `parts` of 64 columns. The segments of a
 * sequence that has no tokens: the first alone. */
template <class F>
GDN_DEVICE void each_segment(const segment_args &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t parts, F visit) {
    const fwd_args &p = o.pass;
    GDN_NO_UNROLL
    for (uint32_t task = blockIdx.x; task < parts * p.nv * o.count * o.pass.batch; task += gridDim.x) {
        const uint32_t segment = task / (parts * p.nv) % o.count, first = segment * o.chunks;
        fwd_place at;
        at.sequence = task / (parts * p.nv) / o.count;
        const gdn_sequence seq = gdn_find_sequence(ext, at.sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
        if (segment && first >= seq.end) continue;
        at.head = task / parts % p.nv;
        at.key_head = gdn_key_head(at.head, p.nk, p.nv);
        at.column = task % parts % 2 * COLUMNS;
        at.chunks = min(seq.end - first, o.chunks);
        at.rows = min(seq.len - first * CHUNK, at.chunks * CHUNK);
        at.chunk_row = seq.chunk_row + first;
        at.token = seq.token + (uint64_t)first * CHUNK;
        at.h = gdn_states_of(ext, o.pass.h_state, false, at.sequence, at.head, p.nv, DIM, DIM);
        at.fresh = gdn_is_fresh(ext, at.sequence);
        at.begin = first;
        at.len = seq.len;
        at.smem = smem;
        at.bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
        visit(at, task % parts);
    }
}
GDN_DEVICE bool is_full(const segment_args &o, const fwd_place &at) {
    return at.h.in && at.rows == o.chunks * CHUNK;
}

/* ---- pass ---- */
struct each_pass {
    const segment_args &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    template <class F> __device__ __forceinline__ void operator()(F visit) const {
        each_segment(o, ext, smem, 2, [&](fwd_place &at, uint32_t) {
            if (has_pass(at)) {
                at.h.in = o.begins + segment_row(o, at.sequence, at.chunk_row, at.head);
                at.fresh = false;
                if (is_full(o, at)) at.h.out = nullptr; /* join has the state behind it */
            }
            visit(at);
        });
    }
};
GDN_DEVICE void pass_segments(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_pass each { o, ext, smem };
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    gdn_sync_block();
    if (warp < 4) {
        gdn_registers_up<240>();
        compute_tasks<false>(o.pass, ext, each);
    } else {
        gdn_registers_down<88>();
        serve(o.pass, smem, warp, each);
    }
}

/* ---- carry ---- */
/* The pass of 64 rows of M or A, which go to `to`. */
GDN_DEVICE void carry_rows(const fwd_place &at, bool identity, float *to, turns &now) {
    const lane_place l = place_lane(at, gdn_warp(), gdn_lane());
    fwd_bars &bars = *at.bars;
    pass_registers p;
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t k = i / 4 * 8 + 2 * l.t + i % 2, row = l.v + i / 2 % 2 * 8;
        p.s0[i] = identity && k == row ? 1.0f : 0.0f;
        p.s1[i] = identity && k + 64 == row ? 1.0f : 0.0f;
    }
    pack_state(p);
    wait_values(at, now);
    load_values(p, at, now, l);
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        turns next = now;
        next.next();
        gdn_wgmma_fence();
        multiply_state(p.x, p.sh, at.smem + now.stage * FRONT + FRONT_K);
        scale_state(p);
        gdn_mbar_wait(bars.back[now.stage], now.stage_parity);
        gdn_wgmma_wait<0>();
        gdn_pin(p.x);
        gdn_mbar_arrive(bars.front_free[now.stage]);
        make_r(p);
        gdn_wgmma_fence();
        add_to_state(p, at.smem + FWD_BACK + now.stage * BACK + BACK_W);
        if (c + 1 < at.chunks) {
            wait_values(at, next);
            load_values(p, at, next, l);
        }
        gdn_wgmma_wait<0>();
        gdn_pin(p.s0);
        gdn_pin(p.s1);
        gdn_mbar_arrive(bars.back_free[now.stage]);
        pack_state(p);
        now = next;
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i += 2) {
        float *const row = to + (l.v + i / 2 % 2 * 8) * DIM + i / 4 * 8 + 2 * l.t;
        *reinterpret_cast<float2 *>(row) = float2 { p.s0[i], p.s0[i + 1] };
        *reinterpret_cast<float2 *>(row + 64) = float2 { p.s1[i], p.s1[i + 1] };
    }
}
struct each_carry {
    const segment_args &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    template <class F> __device__ __forceinline__ void operator()(F visit) const {
        each_segment(o, ext, smem, 4, [&](fwd_place &at, uint32_t part) {
            const bool identity = part >= 2;
            if (!is_full(o, at)) return;
            if (identity) at.rows = 0; /* no values */
            visit(at, identity, (identity ? o.moved : o.added) + segment_row(o, at.sequence, at.chunk_row, at.head));
        });
    }
};
GDN_DEVICE void carry(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_carry each { o, ext, smem };
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    gdn_sync_block();
    turns r;
    if (warp < 4) {
        gdn_registers_up<240>();
        each([&](const fwd_place &at, bool identity, float *to) { carry_rows(at, identity, to, r); });
    } else {
        gdn_registers_down<88>();
        if (warp == 4) each([&](const fwd_place &at, bool, float *) { bring_fronts<false>(o.pass, at, r); });
        if (warp == 5) each([&](const fwd_place &at, bool, float *) { bring_backs<false>(o.pass, at, r); });
        if (warp / 4 == 2) each([&](const fwd_place &at, bool, float *) { bring_values(o.pass, at, r); });
    }
}
} // namespace gdn_wn
