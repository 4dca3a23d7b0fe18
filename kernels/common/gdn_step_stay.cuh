/* gdn_step_stay.cuh - up to four rows of (sequence, value head) after (sequence, value head), heads of 128, that leave the states as they
 * were: gdn_step.cuh's operations in its order, so its bytes. States [K][V] only; sm_90 and later.
 *
 * A block of four warps stays for all the heads that are its turn; while it computes one, the next one's state comes to shared memory.
 * Leg w (a warp) has k = 32w ... 32w+31 of a head in registers, a lane four neighbouring columns: 16 bytes of k or q, which all lanes
 * read, serve four columns. Sums over k go from leg to leg, a row at a time: while a leg adds its sums of four to what it was handed, the
 * next one makes its own. All lanes of a warp arrive at a barrier, not one for them: that is what racecheck understands.
 *
 * The last leg is the one that the others wait for: it makes vn and the outputs, and nothing else. What it takes to have the next head's
 * rows, the first three do in the time until vn is there, behind which is the block's only barrier. */
#pragma once
#include "gdn_stay_rows.cuh"

GDN_DEVICE float4 gdn_stay_add(float4 a, float4 b) {
    return float4 { a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w };
}
/* g a + b k */
GDN_DEVICE float4 gdn_stay_mix(float g, float4 a, float k, float4 b) {
    return float4 { g * a.x + k * b.x, g * a.y + k * b.y, g * a.z + k * b.z, g * a.w + k * b.w };
}

/* The sum of a row: what the leg before hands on, and the leg's own in their order; handed on. */
GDN_DEVICE float4 gdn_stay_hand(gdn_stay_smem &m, const gdn_stay_lane &l, uint32_t pass, uint32_t t, uint32_t parity,
                                const float4 (&own)[GDN_STAY_GROUPS]) {
    float4 sum = {};
    if (l.leg > 0) {
        gdn_mbar_wait(m.hand[pass][l.leg - 1][t], parity);
        sum = gdn_ld16f(m.handed[pass][l.leg - 1][t] + l.column);
    }
    GDN_UNROLL
    for (uint32_t n = 0; n < GDN_STAY_GROUPS; n++) sum = gdn_stay_add(sum, own[n]);
    if (l.leg < GDN_STAY_LEGS - 1) {
        gdn_st16f(m.handed[pass][l.leg][t] + l.column, sum);
        gdn_mbar_arrive(m.hand[pass][l.leg][t]);
    }
    return sum;
}

/* Four k of the lane's four columns. */
struct gdn_stay_four {
    float4 s[4];
    GDN_METHOD float4 sum(float4 x) const {
        return float4 { gdn_group_sum(float4 { s[0].x, s[1].x, s[2].x, s[3].x }, x),
                        gdn_group_sum(float4 { s[0].y, s[1].y, s[2].y, s[3].y }, x),
                        gdn_group_sum(float4 { s[0].z, s[1].z, s[2].z, s[3].z }, x),
                        gdn_group_sum(float4 { s[0].w, s[1].w, s[2].w, s[3].w }, x) };
    }
    GDN_METHOD void step(float g, float4 k, float4 vn) {
        s[0] = gdn_stay_mix(g, s[0], k.x, vn);
        s[1] = gdn_stay_mix(g, s[1], k.y, vn);
        s[2] = gdn_stay_mix(g, s[2], k.z, vn);
        s[3] = gdn_stay_mix(g, s[3], k.w, vn);
    }
};
GDN_DEVICE void gdn_stay_take(gdn_stay_four (&s)[GDN_STAY_GROUPS], gdn_stay_smem &m, const float *state, const gdn_stay_task &t,
                              const gdn_stay_lane &l) {
    const uint32_t at = l.leg * GDN_STAY_PART + l.column;
    if (t.kind == GDN_STAY_BULK) {
        gdn_mbar_wait(m.arrived[l.leg], t.arrived);
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_STAY_LEG; j++) s[j / 4].s[j % 4] = gdn_ld16f(state + at + j * GDN_STEP_DIM);
    } else {
        const float *const p = gdn_opaque(t.in + at);
        const bool narrow = t.kind == GDN_STAY_NARROW;
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_STAY_LEG; j++) {
            const float *const e = p + j * GDN_STEP_DIM;
            s[j / 4].s[j % 4] = narrow
                                    ? float4 { gdn_ld4f_stream(e), gdn_ld4f_stream(e + 1), gdn_ld4f_stream(e + 2), gdn_ld4f_stream(e + 3) }
                                    : float4 { 0, 0, 0, 0 };
        }
    }
}

/* weight, a lane each: what row t takes of row s < t, and of hk. */
GDN_DEVICE void gdn_stay_weigh(gdn_stay_smem &m, const gdn_stay_rows &x) {
    const uint32_t t = gdn_lane() / 4, s = gdn_lane() % 4;
    if (t < GDN_STAY_ROWS && (s < t || s == 3)) {
        float w = s == 3 ? x.g[0] : s + 1 < t ? x.g[s + 1] : 1.0f;
        GDN_NO_UNROLL
        for (uint32_t e = s == 3 ? 1 : s + 2; e < t; e++) w *= x.g[e];
        m.weight[t][s] = s == 3 ? w : w * gdn_step_join<GDN_STEP_DIM>(x.dots[gdn_stay_pair(t, s)]);
    }
}
/* vn, by the last leg. */
GDN_DEVICE void gdn_stay_values(gdn_stay_smem &m, const gdn_stay_rows &x, const gdn_stay_lane &l, uint32_t two) {
    float4 vn[GDN_STAY_ROWS];
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_STAY_ROWS; t++) {
        const float4 weight = gdn_ld16f(m.weight[t]);
        const float w[3] = { weight.x, weight.y, weight.z }, g = x.g[t], b = x.b[t];
        float4 c = gdn_ld16f(m.hk[t] + l.column);
        if (t > 0) c = float4 { weight.w * c.x, weight.w * c.y, weight.w * c.z, weight.w * c.w };
        GDN_UNROLL
        for (uint32_t s = 0; s < t; s++)
            c = float4 { c.x + w[s] * vn[s].x, c.y + w[s] * vn[s].y, c.z + w[s] * vn[s].z, c.w + w[s] * vn[s].w };
        const uint2 v = gdn_ld8(m.raw_v[two][t] + l.column);
        vn[t] = float4 { (gdn_bf16_lo(v.x) - g * c.x) * b, (gdn_bf16_hi(v.x) - g * c.y) * b, (gdn_bf16_lo(v.y) - g * c.z) * b,
                         (gdn_bf16_hi(v.y) - g * c.w) * b };
        gdn_st16f(m.vn[two][t] + l.column, vn[t]);
    }
}
GDN_DEVICE void gdn_stay_put(const gdn_step &a, float scale, const gdn_stay_task &t, uint32_t r, const gdn_stay_lane &l, float4 out) {
    gdn_bf16 *const to = a.out + ((t.row + r) * a.nv + t.head) * GDN_STEP_DIM + l.column;
    const uint2 pair = { gdn_pack_bf16(scale * out.x, scale * out.y), gdn_pack_bf16(scale * out.z, scale * out.w) };
    if (((uint64_t)to & 7) == 0) {
        gdn_st8(to, pair);
    } else {
        to[0].bits = (uint16_t)pair.x, to[1].bits = (uint16_t)(pair.x >> 16);
        to[2].bits = (uint16_t)pair.y, to[3].bits = (uint16_t)(pair.y >> 16);
    }
}

/* A row of vn to the stash. */
GDN_DEVICE void gdn_stay_stash(const gdn_stay_smem &m, const gdn_stay &o, const gdn_stay_task &t, uint32_t r, uint32_t lane) {
    if (r >= t.rows) return;
    float *const vn = gdn_stash_of(o.stash, t.id, o.pitch, o.a.nv).vn + (r * o.a.nv + t.head) * GDN_STEP_DIM + lane;
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_STEP_DIM; j += 32) vn[j] = m.vn[t.two][r][j + lane];
}
/* What write-on-accept has to do beside the rows: to find the heads. gdn_round_stay.cuh has more. */
struct gdn_stay_alone {
    gdn_stay_smem &m;
    const gdn_stay &o;
    GDN_METHOD void find_first() const { gdn_stay_find(m, o, 0); }
    GDN_METHOD void find_second() const { gdn_stay_find(m, o, 1); }
    GDN_METHOD void find(uint32_t n) const { gdn_stay_find(m, o, n); }
    GDN_METHOD void send(const gdn_stay_task &, uint32_t, const gdn_stay_lane &) const {}
    GDN_METHOD void landed(uint32_t) const {}
    GDN_METHOD void late() const {}
    /* true: the leg's part of `state` is on its way out, until left() has been called. */
    GDN_METHOD bool leaves(uint32_t) const { return false; }
    GDN_METHOD void left() const {}
    GDN_METHOD void fold(gdn_stay_four (&)[GDN_STAY_GROUPS], float *, const gdn_stay_task &, uint32_t, const gdn_stay_lane &) const {}
};
template <class MORE>
GDN_DEVICE void gdn_stay_head(gdn_stay_smem &m, float *state, const gdn_stay &o, const MORE &more, uint32_t n, uint32_t leg) {
    const gdn_stay_task &t = m.task[n % 4], &next = m.task[(n + 1) % 4];
    const bool last = leg == GDN_STAY_LEGS - 1;
    gdn_stay_four s[GDN_STAY_GROUPS];
    float4 own[GDN_STAY_GROUPS];
    gdn_stay_take(s, m, state, t, gdn_stay_place(leg));
    gdn_sync_warp();
    const bool leaves = more.leaves(n);
    if (!leaves) gdn_stay_send(m, state, next, leg);
    gdn_stay_send_rows(m, o, next, gdn_stay_place(leg));
    more.send(next, n + 1, gdn_stay_place(leg));
    more.fold(s, state, t, n, gdn_stay_place(leg));
    const gdn_stay_lane l = gdn_stay_place(leg);
    const gdn_stay_rows &x = m.rows[t.three];
    const uint32_t two = t.two;
    GDN_NO_UNROLL
    for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) {
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_STAY_GROUPS; i++) own[i] = s[i].sum(gdn_ld16f_turn(x.k[r] + l.first + 4 * i));
        const float4 sum = gdn_stay_hand(m, l, 0, r, two, own);
        if (last) gdn_st16f(m.hk[r] + l.column, sum);
    }
    if (leaves) {
        more.left();
        gdn_stay_send(m, state, next, leg);
    }
    if (leg == 0) {
        gdn_stay_weigh(m, x);
        gdn_mbar_arrive(m.weighed);
    }
    gdn_stay_begin(m, o, next, gdn_stay_place(leg));
    if (leg == 1 && l.lane == 0) more.find(n + 2);
    more.landed(leg);
    if (last) {
        gdn_mbar_wait(m.weighed, two);
        gdn_stay_values(m, x, l, two);
    }
    gdn_sync_block();
    if (!last) gdn_stay_stash(m, o, t, leg, l.lane);
    if (leg == 0) gdn_stay_stash(m, o, t, GDN_STAY_ROWS - 1, l.lane);
    GDN_NO_UNROLL
    for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) {
        const float4 vn = gdn_ld16f(m.vn[two][r] + l.column);
        const float g = x.g[r];
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_STAY_GROUPS; i++) {
            const float4 k = gdn_ld16f_turn(x.k[r] + l.first + 4 * i), q = gdn_ld16f_turn(x.q[r] + l.first + 4 * i);
            s[i].step(g, k, vn);
            own[i] = s[i].sum(q);
        }
        const float4 out = gdn_stay_hand(m, l, 1, r, two, own);
        if (last && r < t.rows) gdn_stay_put(o.a, m.scale, t, r, l, out);
    }
}

/* All heads of all sequences, by any grid of blocks of 128 threads. state: 64 KiB of shared memory. */
template <class MORE> GDN_DEVICE void gdn_stay_run(gdn_stay_smem &m, float *state, const gdn_stay &o, const MORE &more) {
    /* Of two blocks on a multiprocessor, most likely one of each half: a scheduler gets the last leg of one only. */
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x, warp = gdn_warp();
    const uint32_t leg = 2 * block >= gridDim.x * gridDim.y ? GDN_STAY_LEGS - 1 - warp : warp;
    const bool finds = leg == 1 && gdn_lane() == 0;
    const auto send = [&](uint32_t n) {
        gdn_stay_send(m, state, m.task[n % 4], leg);
        gdn_stay_send_rows(m, o, m.task[n % 4], gdn_stay_place(leg));
        more.send(m.task[n % 4], n, gdn_stay_place(leg));
    };
    const auto begin = [&](uint32_t n) {
        gdn_stay_begin(m, o, m.task[n % 4], gdn_stay_place(leg));
        more.landed(leg);
        gdn_sync_block();
    };
    if (threadIdx.x == 0) gdn_stay_init(m), m.scale = o.a.scale;
    if (finds) more.find_first();
    gdn_sync_block();
    if (2 * block >= gridDim.x * gridDim.y) more.late();
    send(0);
    if (finds) more.find_second();
    begin(0);
    GDN_NO_UNROLL
    for (uint32_t n = 0; m.task[n % 4].kind != GDN_STAY_END; n++) {
        if (m.task[n % 4].kind != GDN_STAY_NONE) {
            gdn_stay_head(m, state, o, more, n, leg);
            continue;
        }
        send(n + 1);
        gdn_step_zero(o.a, m.task[n % 4].row, m.task[n % 4].rows, m.task[n % 4].head, GDN_STEP_DIM);
        if (finds) more.find(n + 2);
        begin(n + 1);
    }
}
