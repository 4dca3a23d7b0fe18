/* gdn_wn_pass.cuh - the warpgroup that computes a task of the fast prefill by W and N (the formulas are in gdn_wn_fwd.cuh).
 *
 * ptxas keeps several products in flight only if nothing is pending at a loop's back edge and no product stands in a branch. Instructions
 * that use shared memory go in order with the products of their warp, so they stand where the chain of products waits anyhow. */
#pragma once
#include "gdn_wn_states.cuh"

namespace gdn_wn {
/* What is kept from chunk to chunk: S^T in f32 and as f16 operands, S^T K^T, S^T Q^T that becomes O^T, V^T, R^T; e^gc, and e^gc_last. */
struct pass_registers {
    float s0[32], s1[32], x[32], out[32], v[32];
    uint32_t sh[32], r[16];
    float4 decay[4];
    float all;
};
GDN_DEVICE void pack_state(pass_registers &p) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        p.sh[i] = gdn_pack_f16(p.s0[2 * i], p.s0[2 * i + 1]);
        p.sh[16 + i] = gdn_pack_f16(p.s1[2 * i], p.s1[2 * i + 1]);
    }
}
/* V^T and scalars of the chunk at `t`, all of which is there. */
GDN_DEVICE void load_values(pass_registers &p, const fwd_place &at, const turns &t, const lane_place &l) {
    const unsigned char *const tile = at.smem + FWD_V + t.stage * PANEL + l.matrix;
    const float *const scalars = reinterpret_cast<const float *>(at.smem + FWD_SCALARS + t.stage * (SCALARS * 4));
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) p.decay[j] = gdn_ld16f(scalars + AT_DECAY + 16 * j + 4 * l.t);
    p.all = scalars[AT_ALL];
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t x[4];
        gdn_ldmatrix_x4_trans(x, tile + j * 2048);
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) p.v[8 * j + 2 * i] = gdn_bf16_lo(x[i]), p.v[8 * j + 2 * i + 1] = gdn_bf16_hi(x[i]);
    }
    gdn_mbar_arrive(at.bars->v_free[t.stage]);
}
GDN_DEVICE void wait_values(const fwd_place &at, const turns &t) {
    gdn_mbar_wait(at.bars->front[t.stage], t.stage_parity);
    gdn_mbar_wait(at.bars->v[t.stage], t.stage_parity);
}
/* r = v - decay x. */
GDN_DEVICE void make_r(pass_registers &p) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const float2 d = of_eight(p.decay, j);
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t e = 4 * j + 2 * i;
            p.r[2 * j + i] = gdn_pack_f16(gdn_fma(-d.x, p.x[e], p.v[e]), gdn_fma(-d.y, p.x[e + 1], p.v[e + 1]));
        }
    }
}
/* to = S^T A^T, A: K or Q. */
GDN_DEVICE void multiply_state(float (&to)[32], const uint32_t (&sh)[32], const unsigned char *tile) {
    const gdn_tile_k A = gdn_make_tile_k(tile);
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) gdn_wgmma_f16(to, gdn_quad(sh, 4 * j), gdn_move(A, j % 4 * 32 + j / 4 * PANEL), j > 0);
    gdn_wgmma_commit();
}
/* S^T += R^T W. */
GDN_DEVICE void add_to_state(pass_registers &p, const unsigned char *tile) {
    const gdn_tile_mn W = gdn_make_tile_mn(tile, PANEL);
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(p.s0, gdn_quad(p.r, 4 * j), gdn_move(W, 2048 * j), true);
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(p.s1, gdn_quad(p.r, 4 * j), gdn_move(W, PANEL + 2048 * j), true);
    gdn_wgmma_commit();
}
GDN_DEVICE void scale_state(pass_registers &p) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) p.s0[i] *= p.all, p.s1[i] *= p.all;
    gdn_pin(p.s0);
    gdn_pin(p.s1);
}
GDN_DEVICE bool is_empty(const fwd_place &at, const turns &t) {
    return gdn_mbar_test(at.bars->out_free[t.two()], t.two_parity());
}
/* O^T of the chunk at `t` leaves. */
GDN_DEVICE void put_output(const pass_registers &p, const fwd_place &at, const turns &t, const lane_place &l, bool empty) {
    unsigned char *const buffer = at.smem + FWD_O + t.two() * PANEL + l.matrix;
    wait_unless(empty, at.bars->out_free[t.two()], t.two_parity());
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t o[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) o[i] = gdn_pack_bf16(p.out[8 * j + 2 * i], p.out[8 * j + 2 * i + 1]);
        gdn_stmatrix_x4_trans(buffer + j * 2048, o);
    }
    gdn_mbar_arrive(at.bars->done[t.two()]);
    gdn_mbar_arrive(at.bars->back_free[t.stage]);
}
GDN_DEVICE void store_state(const pass_registers &p, const fwd_place &at, float *to) {
    each_state(place_lane(at, gdn_warp(), gdn_anew(gdn_lane())), [&](uint32_t i, uint32_t a, uint32_t b) {
        to[a] = p.s0[i];
        to[b] = p.s1[i];
    });
}
/* Where a task's states at multiples of ckpt_every tokens go. */
struct checkpoints {
    float *to;
    uint32_t every, nv;
};
GDN_DEVICE void put_checkpoint(const pass_registers &p, const fwd_place &at, const checkpoints &ckpt, uint32_t c) {
    const uint32_t tokens = (at.begin + c + 1) * CHUNK;
    if (tokens > at.len || tokens % ckpt.every) return;
    store_state(p, at, ckpt.to + (uint64_t)(tokens / ckpt.every - 1) * ckpt.nv * (DIM * DIM));
}

/* One chunk, at `now`. UNDER_WAY: the chunk before left its last products so. LEAVE: this one does, for the next one at once. more: a chunk
 * of the task follows. The tensor cores take products in the order of their issue: S^T Q^T runs while R^T becomes an operand, O^T is
 * scaled while S^T is made, S^T becomes an operand while R^T N^T runs. */
template <bool UNDER_WAY, bool LEAVE>
GDN_DEVICE void pass_chunk(pass_registers &p, const fwd_place &at, const lane_place &l, float scale, turns &now, bool more) {
    enum { ALONE = !UNDER_WAY && !LEAVE }; /* ptxas puts in a wait where its S^T is touched behind the products */
    fwd_bars &bars = *at.bars;
    turns before = now, next = now;
    if (UNDER_WAY) before.previous();
    next.next();
    const unsigned char *const front = at.smem + now.stage * FRONT, *const back = at.smem + FWD_BACK + now.stage * BACK;
    const bool here = gdn_mbar_test(bars.back[now.stage], now.stage_parity), empty = UNDER_WAY && is_empty(at, before);
    if (ALONE) scale_state(p);
    gdn_wgmma_fence();
    multiply_state(p.x, p.sh, front + FRONT_K);
    if (UNDER_WAY) {
        gdn_wgmma_wait<1>();
        gdn_pin(p.out);
        put_output(p, at, before, l, empty);
    }
    gdn_wgmma_fence();
    multiply_state(p.out, p.sh, front + FRONT_Q);
    if (!ALONE) scale_state(p);
    gdn_wgmma_wait<1>();
    gdn_pin(p.x);
    make_r(p);
    wait_unless(here, bars.back[now.stage], now.stage_parity);
    gdn_wgmma_fence();
    add_to_state(p, back + BACK_W);
    gdn_wgmma_wait<1>();
    gdn_pin(p.out);
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const float2 d = of_eight(p.decay, j), f = { d.x * scale, d.y * scale };
        p.out[4 * j] *= f.x, p.out[4 * j + 1] *= f.y;
        p.out[4 * j + 2] *= f.x, p.out[4 * j + 3] *= f.y;
    }
    gdn_wgmma_fence();
    {
        const gdn_tile_k N = gdn_make_tile_k(back + BACK_N);
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(p.out, gdn_quad(p.r, 4 * j), gdn_move(N, 32 * j), true);
        gdn_wgmma_commit();
    }
    gdn_mbar_arrive(bars.front_free[now.stage]);
    const bool own = !LEAVE && is_empty(at, now);
    if (more) {
        wait_values(at, next);
        load_values(p, at, next, l);
    }
    gdn_wgmma_wait<1>();
    gdn_pin(p.s0);
    gdn_pin(p.s1);
    pack_state(p);
    if (!LEAVE) {
        gdn_wgmma_wait<0>();
        gdn_pin(p.out);
        put_output(p, at, now, l, own);
    }
    now = next;
}
template <bool CKPT>
GDN_DEVICE void compute(const fwd_args &o, const gdn_rule_ext &ext, const fwd_place &at, turns &now, uint32_t &halves) {
    const lane_place l = place_lane(at, gdn_warp(), gdn_lane());
    const float scale = gdn_output_scale(DIM, ext.scale);
    checkpoints ckpt = {};
    if (CKPT) {
        const uint64_t before = gdn_ckpts_before(ext, at.sequence, o.seq_len, o.cu, o.is_varlen);
        ckpt = checkpoints { ext.ckpt + (before * o.nv + at.head) * (DIM * DIM), ext.ckpt_every, o.nv };
    }
    pass_registers p;
    take_state(p.s0, at, halves);
    take_state(p.s1, at, halves);
    pack_state(p);
    wait_values(at, now);
    load_values(p, at, now, l);
    const uint32_t chunks = gdn_uniform(at.chunks);
    uint32_t c = 0;
    if (CKPT) {
        GDN_NO_UNROLL
        for (; c < chunks; c++) {
            pass_chunk<false, false>(p, at, l, scale, now, c + 1 < chunks);
            put_checkpoint(p, at, ckpt, c);
        }
    } else {
        if (chunks % 2) pass_chunk<false, false>(p, at, l, scale, now, ++c < chunks);
        GDN_NO_UNROLL
        for (; c < chunks; c += 2) {
            pass_chunk<false, true>(p, at, l, scale, now, true);
            pass_chunk<true, false>(p, at, l, scale, now, c + 2 < chunks);
        }
    }
    if (at.h.out) store_state(p, at, at.h.out);
}
} // namespace gdn_wn
