/* gdn_wn_segments.cuh - the fast prefill by W and N of few heads over many multiprocessors: carry and pass of gdn_fast_segments.cuh, whose
 * formulas and places these are. What stands between them, join, has nothing of either form, and is gated_delta_rule_fast_join. */
#pragma once
#include "gdn_wn_fwd.cuh"

namespace gdn_wn {
typedef gdn_fast::segments_of<fwd_args> segment_args;

/* ---- pass ---- */
GDN_DEVICE void pass_segments(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_pass<fwd_args> each { o, ext, smem };
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    gdn_sync_block();
    if (warp < 4) {
        gdn_registers_up<240>();
        compute_tasks<false>(o.pass, ext, each);
    } else {
        gdn_registers_down<88>();
        serve<true>(o.pass, smem, warp, each); /* join has made the states */
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
GDN_DEVICE void carry(const segment_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_carry<fwd_args> each { o, ext, smem };
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
