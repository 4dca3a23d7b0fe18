/* gdn_fast_pass.cuh - the warpgroup that computes a task of the fast prefill (the formulas are in gdn_fast_fwd.cuh).
 *
 * ptxas keeps several products in flight only if nothing is pending at the loop's back edge and no product stands in a branch. */
#pragma once
#include "gdn_fast_task.cuh"

namespace gdn_fast {
/* ---- warps 0..3. Accumulators of 32 columns hold tokens 8 j + 2 t, +1 of value columns g and g + 8 in [4 j..4 j + 3] ---- */
GDN_DEVICE void pack_state(uint32_t *to, const float (&s)[32]) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) to[i] = gdn_pack_f16(s[2 * i], s[2 * i + 1]);
}
/* 16 scalars of this lane: two of each 8 tokens. */
GDN_DEVICE void load_scalars(float4 (&to)[4], const float *from, const lane_place &l) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) to[j] = gdn_ld16f(from + 16 * j + 4 * l.t);
}
/* Half the tokens of a chunk's values, and their betas, as they lie in shared memory. */
struct raw_values {
    uint32_t v[2][4];
    float4 beta[2];
};
GDN_DEVICE void load_values(raw_values &raw, const unsigned char *tile, const float *scalars, const lane_place &l, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 2; j++) {
        gdn_ldmatrix_x4_trans(raw.v[j], tile + l.matrix + (2 * half + j) * 2048);
        raw.beta[j] = gdn_ld16f(scalars + AT_BETA + 16 * (2 * half + j) + 4 * l.t);
    }
}
/* bv = beta V^T, half `half` of the tokens. */
GDN_DEVICE void make_values(float (&bv)[32], const raw_values &raw, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t(&x)[4] = raw.v[j];
        const float4 b = raw.beta[j];
        float *const to = bv + 16 * half + 8 * j;
        to[0] = gdn_bf16_lo(x[0]) * b.x, to[1] = gdn_bf16_hi(x[0]) * b.y;
        to[2] = gdn_bf16_lo(x[1]) * b.x, to[3] = gdn_bf16_hi(x[1]) * b.y;
        to[4] = gdn_bf16_lo(x[2]) * b.z, to[5] = gdn_bf16_hi(x[2]) * b.w;
        to[6] = gdn_bf16_lo(x[3]) * b.z, to[7] = gdn_bf16_hi(x[3]) * b.w;
    }
    gdn_pin(reinterpret_cast<float(&)[16]>(bv[16 * half]));
}
GDN_DEVICE float take_values(float (&bv)[32], const unsigned char *tile, const float *scalars, const lane_place &l, uint32_t half) {
    raw_values raw;
    load_values(raw, tile, scalars, l, half);
    make_values(bv, raw, half);
    return raw.beta[1].w;
}
/* r = bv - decay x. */
GDN_DEVICE void make_r(uint32_t (&r)[16], const float (&x)[32], const float (&bv)[32], const float4 (&decay)[4]) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const float2 d = of_eight(decay, j);
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t e = 4 * j + 2 * i;
            r[2 * j + i] = gdn_pack_f16(gdn_fma(-d.x, x[e], bv[e]), gdn_fma(-d.y, x[e + 1], bv[e + 1]));
        }
    }
}
/* Products, each of four steps. x (+)= 64 rows k of S^T K^T; of S^T Q^T as well. */
GDN_DEVICE void multiply_sk(float (&x)[32], const uint32_t (&s)[32], gdn_tile_k K, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x, gdn_quad(s, 16 * half + 4 * j), gdn_move(K, half * PANEL + j * 32), half + j > 0);
}
/* x (+)= a T^T, of uc and P as well. */
GDN_DEVICE void multiply_rt(float (&x)[32], const uint32_t (&a)[16], gdn_tile_k T, bool add) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(x, gdn_quad(a, 4 * j), gdn_move(T, 32 * j), add || j > 0);
}
/* s, 64 columns k, += ud K. */
GDN_DEVICE void multiply_uk(float (&s)[32], const uint32_t (&ud)[16], gdn_tile_mn K, uint32_t half) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(s, gdn_quad(ud, 4 * j), gdn_move(K, half * PANEL + 2048 * j), true);
}
/* A lane's pairs of <k_63, k_j>, the words of R that have token 63's, and its beta in lane 3 of four. */
struct last_token {
    uint4 tail[2];
    uint32_t r[2];
    float beta;
};
GDN_DEVICE void load_tail(last_token &to, const float *scalars, const lane_place &l) {
    to.tail[0] = gdn_ld16(scalars + tail_at(0, l.t));
    to.tail[1] = gdn_ld16(scalars + tail_at(4, l.t));
}
/* Left operands of the last two products from uc: u, and ud = e^(gc_last - gc) uc. Token 63's is made once more from the others as they
 * were rounded, R_63 - beta_63 sum_j <k_63, k_j> ud_j: in a direction that keys have in common the state is rid of their roundings so. The
 * sum's products have eight columns, all the same. meanwhile(): issues what the tensor cores do next. */
template <class F>
GDN_DEVICE void make_u(uint32_t (&u)[16], uint32_t (&ud)[16], const float (&x)[32], const float4 (&rest)[4], const last_token &last,
                       uint32_t t, F meanwhile) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const float2 d = of_eight(rest, j);
        ud[2 * j] = gdn_pack_f16(x[4 * j] * d.x, x[4 * j + 1] * d.y);
        ud[2 * j + 1] = gdn_pack_f16(x[4 * j + 2] * d.x, x[4 * j + 3] * d.y);
    }
    float sum[4][4] = {};
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint4 m = last.tail[i / 2];
        gdn_mma_f16_m16n8k16(sum[i], gdn_quad(ud, 4 * i), { i % 2 ? m.z : m.x, i % 2 ? m.w : m.y });
    }
    meanwhile();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        u[2 * j] = gdn_pack_f16(x[4 * j], x[4 * j + 1]);
        u[2 * j + 1] = gdn_pack_f16(x[4 * j + 2], x[4 * j + 3]);
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const float all = (sum[0][2 * i] + sum[1][2 * i]) + (sum[2][2 * i] + sum[3][2 * i]);
        const uint32_t w = gdn_pack_f16(0.0f, gdn_fma(-last.beta, all, gdn_f16_hi(last.r[i])));
        ud[14 + i] = t == 3 ? (ud[14 + i] & 0xffff) | w : ud[14 + i];
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
GDN_DEVICE void scale_output(float (&out)[32], const float4 (&factor)[4]) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) out[i] *= i % 2 ? of_eight(factor, i / 4).y : of_eight(factor, i / 4).x;
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

/* The tensor cores take products in the order of their issue, the small ones of make_u as well: half of S^T Q^T runs while uc becomes an
 * operand, the other half while its last token is mended, V is made ready while S is. While products run, what is asked of shared memory
 * takes up to 200 cycles to come: it is asked for early. A value that all lanes load from one place becomes a uniform register, which is
 * waited for at once. */
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
    take_values(bv, values_of(now), scalars_of(now), l, 0);
    float beta = take_values(bv, values_of(now), scalars_of(now), l, 1); /* of token 63, in lane 3 of four */
    if (at.chunks > 1) gdn_mbar_arrive(bars.v_free[now.two()]);
    load_scalars(decay, scalars_of(now) + AT_BETA_DECAY, l);
    float all = scalars_of(now)[AT_ALL + l.t];
    gdn_wgmma_wait<0>();
    gdn_pin(x);
    make_r(r, x, bv, decay);

    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++) {
        unsigned char *const stage = stage_of(now);
        const float *const scalars = scalars_of(now);
        const gdn_tile_k T = gdn_make_tile_k(stage + FWD_T), Q = gdn_make_tile_k(stage + FWD_Q), P = gdn_make_tile_k(stage + FWD_P);
        const gdn_tile_mn K = gdn_make_tile_mn(stage + FWD_K, PANEL);
        /* After the last chunk the products with the next K are made from this one's, and not looked at. */
        const bool end = c + 1 == at.chunks;
        turns next = now;
        next.next();
        if (end) next = now;
        const gdn_tile_k next_k = gdn_make_tile_k(stage_of(next) + FWD_K);
        uint32_t u[16], ud[16];
        float4 rest[4], factor[4];
        raw_values raw;
        load_scalars(rest, scalars + AT_REST, l);
        last_token last;
        load_tail(last, scalars, l);
        last.r[0] = r[14], last.r[1] = r[15], last.beta = beta;
        const bool ready = gdn_mbar_test(bars.full[next.stage], next.stage_parity),
                   ready_v = gdn_mbar_test(bars.v[next.two()], next.parity());
        gdn_wgmma_fence();
        multiply_rt(x, r, T, false);
        gdn_wgmma_commit();
        multiply_sk(out, sh, Q, 0);
        gdn_wgmma_commit();
        scale(s0, all);
        scale(s1, all);
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
        load_values(raw, values_of(next), scalars_of(next), l, 0);
        gdn_wgmma_wait<2>();
        gdn_pin(out);
        scale_output(out, factor);
        gdn_wgmma_fence();
        multiply_rt(out, u, P, true);
        gdn_wgmma_commit();
        make_values(bv, raw, 0);
        load_values(raw, values_of(next), scalars_of(next), l, 1);
        /* the next chunk's S^T K^T, as the two halves of S become ready */
        gdn_wgmma_wait<2>();
        gdn_pin(s0);
        pack_state(sh, s0);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 0);
        gdn_wgmma_commit();
        make_values(bv, raw, 1);
        beta = raw.beta[1].w;
        gdn_wgmma_wait<2>();
        gdn_pin(s1);
        pack_state(sh + 16, s1);
        gdn_wgmma_fence();
        multiply_sk(x, sh, next_k, 1);
        gdn_wgmma_commit();
        load_scalars(decay, scalars_of(next) + AT_BETA_DECAY, l);
        all = scalars_of(next)[AT_ALL + l.t];
        gdn_wgmma_wait<2>();
        gdn_pin(out);
        put_output(at, out, now.two(), l);
        if (!end) gdn_mbar_arrive(bars.free[now.stage]);
        if (c + 2 < at.chunks) gdn_mbar_arrive(bars.v_free[next.two()]); /* the last V is read once more */
        gdn_wgmma_wait<0>();
        gdn_pin(x);
        make_r(r, x, bv, decay);
        if (CKPT) put_checkpoint(at, ext, ckpt, o.rest.nv, c, s0, s1);
        now = next;
    }
    gdn_mbar_arrive(bars.v_free[now.two()]);
    gdn_mbar_arrive(bars.free[now.stage]);
    now.next();
    if (!at.h.out) return;
    each_state(place_lane(at, gdn_warp(), gdn_anew(lane)), [&](uint32_t i, uint32_t a, uint32_t b) {
        at.h.out[a] = s0[i];
        at.h.out[b] = s1[i];
    });
}
} // namespace gdn_fast
