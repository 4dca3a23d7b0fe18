/* gdn_fast_many.cuh - the serial pass of the fast prefill where blocks have several tasks each: gdn_fast_pass.cuh's, but that it runs on
 * from task to task. A kernel of its own: behind another kernel a block's first instructions come from memory, and what there is more of
 * them costs a launch of few tasks more than it gains. */
#pragma once
#include "gdn_fast_fwd.cuh"
#include "gdn_fast_states.cuh"

namespace gdn_fast {
GDN_DEVICE unsigned char *stage_of(unsigned char *smem, const turns &t) {
    return smem + t.stage * STAGE;
}
GDN_DEVICE const float *scalars_of(unsigned char *smem, const turns &t) {
    return reinterpret_cast<const float *>(smem + FWD_SCALARS + t.stage * (SCALARS * 4));
}
GDN_DEVICE const unsigned char *values_of(unsigned char *smem, const turns &t) {
    return smem + FWD_V + t.two() * PANEL;
}
/* What the computing warps keep from chunk to chunk, in accumulators and operands: S^T, S^T K^T, beta V^T and R^T of the chunk to come. */
struct pass_registers {
    float s0[32], s1[32], x[32], bv[32], out[32];
    uint32_t sh[32], r[16];
    float4 decay[4];
    float all, beta; /* e^gc_last; beta of token 63, in lane 3 of four */
};
/* One chunk, at `now`; the products with the next K and the next R^T are made for that at `next`. LAST: of its task, whose state is
 * exchanged for that of task `coming` on the way; where there is none, what is made for the next chunk is not looked at. */
template <bool LAST>
GDN_DEVICE void pass_chunk(pass_registers &p, unsigned char *smem, const lane_place &l, const turns &now, const turns &next,
                           uint32_t coming) {
    float(&s0)[32] = p.s0, (&s1)[32] = p.s1, (&x)[32] = p.x, (&bv)[32] = p.bv, (&out)[32] = p.out;
    uint32_t(&sh)[32] = p.sh, (&r)[16] = p.r;
    fwd_bars &bars = *reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    fwd_place at {};
    at.smem = smem, at.bars = &bars;
    unsigned char *const stage = stage_of(smem, now);
    const float *const scalars = scalars_of(smem, now);
    const gdn_tile_k T = gdn_make_tile_k(stage + FWD_T), Q = gdn_make_tile_k(stage + FWD_Q), P = gdn_make_tile_k(stage + FWD_P);
    const gdn_tile_mn K = gdn_make_tile_mn(stage + FWD_K, PANEL);
    const gdn_tile_k next_k = gdn_make_tile_k(stage_of(smem, next) + FWD_K);
    uint32_t u[16], ud[16];
    float4 rest[4], factor[4];
    raw_values raw;
    last_token last;
    load_scalars(rest, scalars + AT_REST, l);
    load_tail(last, scalars, l);
    last.r[0] = r[14], last.r[1] = r[15], last.beta = p.beta;
    const bool ready = gdn_mbar_test(bars.full[next.stage], next.stage_parity), ready_v = gdn_mbar_test(bars.v[next.two()], next.parity());
    gdn_wgmma_fence();
    multiply_rt(x, r, T, false);
    gdn_wgmma_commit();
    multiply_sk(out, sh, Q, 0);
    gdn_wgmma_commit();
    scale(s0, p.all);
    scale(s1, p.all);
    gdn_wgmma_wait<1>();
    gdn_pin(x);
    make_u(u, ud, x, rest, last, l.t, [&] {
        gdn_wgmma_fence();
        multiply_sk(out, sh, Q, 1);
        gdn_wgmma_commit();
    });
    load_scalars(factor, scalars + AT_OUT, l);
    gdn_wgmma_fence();
    multiply_uk(s0, ud, K, 0);
    gdn_wgmma_commit();
    multiply_uk(s1, ud, K, 1);
    gdn_wgmma_commit();
    wait_unless(ready, bars.full[next.stage], next.stage_parity);
    wait_unless(ready_v, bars.v[next.two()], next.parity());
    load_values(raw, values_of(smem, next), scalars_of(smem, next), l, 0);
    gdn_wgmma_wait<2>();
    gdn_pin(out);
    scale_output(out, factor);
    gdn_wgmma_fence();
    multiply_rt(out, u, P, true);
    gdn_wgmma_commit();
    make_values(bv, raw, 0);
    if (!LAST) load_values(raw, values_of(smem, next), scalars_of(smem, next), l, 1);
    /* the next chunk's S^T K^T, as the two halves of S become ready */
    gdn_wgmma_wait<2>();
    gdn_pin(s0);
    if (LAST) {
        gdn_mbar_wait(many_bars_of(smem).state, coming % 2);
        if (gdn_anew(coming)) take_state<true>(s0, smem, 0); /* always; a branch keeps its registers apart */
    }
    pack_state(sh, s0);
    gdn_wgmma_fence();
    multiply_sk(x, sh, next_k, 0);
    gdn_wgmma_commit();
    if (!LAST) make_values(bv, raw, 1);
    gdn_wgmma_wait<2>();
    gdn_pin(s1);
    if (LAST) {
        if (gdn_anew(coming)) take_state<true>(s1, smem, 1);
        gdn_mbar_arrive(many_bars_of(smem).taken);
    }
    pack_state(sh + 16, s1);
    gdn_wgmma_fence();
    multiply_sk(x, sh, next_k, 1);
    gdn_wgmma_commit();
    load_scalars(p.decay, scalars_of(smem, next) + AT_BETA_DECAY, l);
    p.all = scalars_of(smem, next)[AT_ALL + l.t];
    gdn_wgmma_wait<2>();
    gdn_pin(out);
    put_output(at, out, now.two(), l);
    if (LAST) {
        load_values(raw, values_of(smem, next), scalars_of(smem, next), l, 1);
        make_values(bv, raw, 1);
    }
    p.beta = raw.beta[1].w;
    gdn_mbar_arrive(bars.free[now.stage]);
    gdn_mbar_arrive(bars.v_free[next.two()]);
    gdn_wgmma_wait<0>();
    gdn_pin(x);
    make_r(r, x, bv, p.decay);
}
/* In front of a block's first chunk: its state, S^T K^T and R^T. */
GDN_DEVICE void begin_pass(pass_registers &p, unsigned char *smem, const lane_place &l, const turns &now) {
    fwd_bars &bars = *reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    gdn_mbar_wait(many_bars_of(smem).state, 0);
    take_state<false>(p.s0, smem, 0);
    take_state<false>(p.s1, smem, 1);
    gdn_mbar_arrive(many_bars_of(smem).taken);
    pack_state(p.sh, p.s0);
    pack_state(p.sh + 16, p.s1);
    gdn_mbar_wait(bars.full[now.stage], now.stage_parity);
    gdn_wgmma_fence();
    const gdn_tile_k K = gdn_make_tile_k(stage_of(smem, now) + FWD_K);
    multiply_sk(p.x, p.sh, K, 0);
    multiply_sk(p.x, p.sh, K, 1);
    gdn_wgmma_commit();
    gdn_mbar_wait(bars.v[now.two()], now.parity());
    take_values(p.bv, values_of(smem, now), scalars_of(smem, now), l, 0);
    p.beta = take_values(p.bv, values_of(smem, now), scalars_of(smem, now), l, 1);
    gdn_mbar_arrive(bars.v_free[now.two()]);
    load_scalars(p.decay, scalars_of(smem, now) + AT_BETA_DECAY, l);
    p.all = scalars_of(smem, now)[AT_ALL + l.t];
    gdn_wgmma_wait<0>();
    gdn_pin(p.x);
    make_r(p.r, p.x, p.bv, p.decay);
}
/* The chunks of a task but the last one are a loop without branches. */
GDN_DEVICE void compute_many(unsigned char *smem) {
    const lane_place l = place_lane(fwd_place {}, gdn_warp(), gdn_lane());
    many_bars &bars = many_bars_of(smem);
    pass_registers p;
    turns now;
    gdn_mbar_wait(bars.noted[0], 0);
    uint32_t task = 0, left = note_of(smem, 0); /* chunks of the task */
    if (left == 0) return;
    begin_pass(p, smem, l, now);
    for (;;) {
        GDN_NO_UNROLL
        for (; left > 1; left--) {
            turns next = now;
            next.next();
            pass_chunk<false>(p, smem, l, now, next, 0);
            now = next;
        }
        gdn_mbar_wait(bars.noted[(task + 1) % 2], (task + 1) / 2 % 2);
        const uint32_t coming = note_of(smem, task + 1);
        turns next = now;
        if (coming) next.next();
        pass_chunk<true>(p, smem, l, now, next, task + 1);
        if (coming == 0) return;
        task++;
        left = coming;
        now = next;
    }
}
/* As `forward`, without helpers and checkpoints. */
GDN_DEVICE void forward_many(const fwd_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    const each_task_of each { o, ext, smem, blockIdx.x };
    if (threadIdx.x == 0) {
        many_bars &bars = many_bars_of(smem);
        for (uint32_t i = 0; i < 2; i++) gdn_mbar_init(bars.noted[i], 1);
        gdn_mbar_init(bars.state, STATE_THREADS);
        gdn_mbar_init(bars.taken, 128);
        init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    }
    gdn_sync_block();
    if (warp < 4) {
        gdn_registers_up<248>();
        compute_many(smem);
    } else {
        gdn_registers_down<88>();
        if (warp < 12)
            serve(o, smem, warp, each);
        else
            bring_states(smem, each);
    }
}
} // namespace gdn_fast
