/* gdn_stay_rows.cuh - what gdn_step_stay.cuh's blocks have to know of a head before they compute it: where its state and rows are, their
 * copies to shared memory, and the rows in f32 with the products of keys. The first three legs (warps) do this for the next head.
 * Leg w has k = 32w ... 32w+31; what it reads of q and k, but for the last leg's, it has made itself. */
#pragma once
#include "gdn_bulk.cuh"
#include "gdn_fold.cuh"
#include "gdn_rows.cuh"
#include "gdn_step.cuh"
#include "gdn_verify.cuh"

enum {
    GDN_STAY_ROWS = 4,
    GDN_STAY_LEGS = 4,
    GDN_STAY_LEG = 32,
    GDN_STAY_GROUPS = GDN_STAY_LEG / 4,
    GDN_STAY_PAIRS = 6,
    GDN_STAY_PART = GDN_STAY_LEG * GDN_STEP_DIM, /* of a state */
};
enum { GDN_STAY_END, GDN_STAY_NONE, GDN_STAY_ZEROS, GDN_STAY_NARROW, GDN_STAY_BULK };

/* What all entries have in common. */
struct gdn_stay {
    gdn_step a;
    gdn_rule_ext x;
    void *h_table;
    float *stash;
    uint64_t pitch;
    uint32_t batch;
    uint32_t *record; /* NULL, or the words by sequence */
    const int32_t *cu_rows, *seq_ids;
};
/* One head. kind: how its state comes; GDN_STAY_NONE: padding, or no rows. two, three, arrived: its place, modulo 2 and 3, among heads with
 * work, and the parity of those whose state comes by bulk copy; here, and not counted in registers, which are short. */
struct __align__(16) gdn_stay_task {
    const float *in, *gate, *beta;
    const gdn_bf16 *q, *k, *v; /* of the first row */
    uint64_t row;
    uint32_t head, rows, id, kind, key_head, first_of_key_head, two, three, arrived;
};

/* A head's rows as they are used; of the head before, the present and the next one. */
struct __align__(16) gdn_stay_rows {
    float q[GDN_STAY_ROWS][GDN_STEP_DIM], k[GDN_STAY_ROWS][GDN_STEP_DIM];
    float g[GDN_STAY_ROWS], b[GDN_STAY_ROWS];
    float dots[GDN_STAY_PAIRS][GDN_STAY_LEGS]; /* of keys t and s < t, each leg's share */
};
struct __align__(16) gdn_stay_smem {
    gdn_stay_rows rows[3];
    float handed[2][GDN_STAY_LEGS - 1][GDN_STAY_ROWS][GDN_STEP_DIM]; /* [hk, outputs][from leg] */
    float hk[GDN_STAY_ROWS][GDN_STEP_DIM], vn[2][GDN_STAY_ROWS][GDN_STEP_DIM];
    float weight[GDN_STAY_ROWS][4]; /* what row t takes of rows 0, 1, 2; of hk */
#ifdef GDN_QK_L2NORM
    float squares[2 * GDN_STAY_ROWS][GDN_STAY_LEGS];
#endif
    /* on their way, for the next head */
    gdn_bf16 raw_q[GDN_STAY_ROWS][GDN_STEP_DIM], raw_k[GDN_STAY_ROWS][GDN_STEP_DIM], raw_v[2][GDN_STAY_ROWS][GDN_STEP_DIM];
    float raw_gb[2 * GDN_STAY_ROWS];
    gdn_stay_task task[4]; /* the present one's, those before and behind it */
    gdn_mbarrier arrived[GDN_STAY_LEGS], hand[2][GDN_STAY_LEGS - 1][GDN_STAY_ROWS], weighed;
#ifdef GDN_QK_L2NORM
    gdn_mbarrier squared; /* by the first three legs */
#endif
    float scale;
};

/* A leg's lane. */
struct gdn_stay_lane {
    uint32_t leg, lane, column, first; /* its first column, the leg's first k */
};
/* Made anew where it is used: what is made of it takes no registers elsewhere. */
GDN_DEVICE gdn_stay_lane gdn_stay_place(uint32_t leg) {
    const uint32_t lane = gdn_anew(gdn_lane()), which = gdn_anew(leg);
    return gdn_stay_lane { which, lane, 4 * lane, which * GDN_STAY_LEG };
}

GDN_DEVICE constexpr uint32_t gdn_stay_pair(uint32_t t, uint32_t s) {
    return t * (t - 1) / 2 + s;
}
/* Eight sums over the warp, each in gdn_warp_sum_down's order, in nine exchanges: lane 4n holds the one of x[n]. */
GDN_DEVICE float gdn_stay_sums(float (&x)[8]) {
    const uint32_t lane = gdn_lane();
    GDN_UNROLL
    for (uint32_t half = 4; half > 0; half /= 2) GDN_UNROLL
    for (uint32_t n = 0; n < half; n++) {
        const bool upper = lane & 4 * half;
        const float away = upper ? x[n] : x[n + half], here = upper ? x[n + half] : x[n];
        x[n] = here + __shfl_xor_sync(GDN_FULL_MASK, away, (int)(4 * half));
    }
    GDN_UNROLL
    for (int d = 2; d > 0; d >>= 1) x[0] += __shfl_xor_sync(GDN_FULL_MASK, x[0], d);
    return x[0];
}
GDN_DEVICE void gdn_stay_share(float (*to)[GDN_STAY_LEGS], uint32_t count, uint32_t leg, float sum) {
    const uint32_t lane = gdn_lane();
    if (lane % 4 == 0 && lane / 4 < count) to[lane / 4][leg] = sum;
}

/* ---- order between legs ---- */
GDN_DEVICE void gdn_stay_init(gdn_stay_smem &m) {
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_STAY_LEGS; i++) gdn_mbar_init(m.arrived[i], 1);
    GDN_UNROLL
    for (uint32_t i = 0; i < 2 * (GDN_STAY_LEGS - 1); i++) GDN_UNROLL
    for (uint32_t t = 0; t < GDN_STAY_ROWS; t++) gdn_mbar_init(m.hand[i / (GDN_STAY_LEGS - 1)][i % (GDN_STAY_LEGS - 1)][t], 32);
    gdn_mbar_init(m.weighed, 32);
#ifdef GDN_QK_L2NORM
    gdn_mbar_init(m.squared, 96);
#endif
    gdn_mbar_init_fence();
}
/* ---- what a head needs ---- */
/* Its place behind the one before. */
GDN_DEVICE void gdn_stay_follow(gdn_stay_task &t, const gdn_stay_task &before) {
    const uint32_t one = before.kind > GDN_STAY_NONE;
    t.two = before.two ^ one;
    t.three = before.three + one == 3 ? 0 : before.three + one;
    t.arrived = before.arrived ^ (before.kind == GDN_STAY_BULK);
}
/* Where its rows are; row, head and key_head are set. */
GDN_DEVICE void gdn_stay_rows_at(gdn_stay_task &t, const gdn_step &a) {
    t.q = a.q + t.row * a.qk_stride + t.key_head * GDN_STEP_DIM;
    t.k = a.k + t.row * a.qk_stride + t.key_head * GDN_STEP_DIM;
    t.v = a.v + t.row * a.v_stride + t.head * GDN_STEP_DIM;
    t.gate = a.gate + t.row * a.gb_stride + t.head;
    t.beta = a.beta + t.row * a.gb_stride + t.head;
}
/* The block's n-th head, by one thread; m.task has the one before. */
GDN_DEVICE void gdn_stay_find(gdn_stay_smem &m, const gdn_stay &o, uint32_t n) {
    const uint32_t nv = o.a.nv, blocks = gdn_anew(gridDim.x) * gridDim.y, task = gdn_anew(blockIdx.y) * gridDim.x + blockIdx.x + n * blocks;
    gdn_stay_task t = {};
    if (n > 0) gdn_stay_follow(t, m.task[(n + 3) % 4]);
    if (task < nv * o.batch) {
        const uint32_t b = task / nv, head = task % nv;
        const gdn_step_span span = gdn_step_rows_of(o.cu_rows, b, GDN_STAY_ROWS);
        const gdn_state_ptrs p = gdn_states_of(o.x, o.h_table, true, b, head, nv, GDN_STEP_DIM, GDN_STEP_DIM);
        t.in = p.in;
        t.row = span.row;
        t.rows = span.rows;
        t.head = head;
        t.id = gdn_sequence_id(o.seq_ids, b);
        t.key_head = gdn_key_head(head, o.a.nk, nv);
        t.first_of_key_head = gdn_first_of_key_head(head, o.a.nk, nv);
        gdn_stay_rows_at(t, o.a);
        t.kind = !p.in || span.rows == 0 ? GDN_STAY_NONE
                 : gdn_is_fresh(o.x, b)  ? GDN_STAY_ZEROS
                 : gdn_aligned16(p.in)   ? GDN_STAY_BULK
                                         : GDN_STAY_NARROW;
        if (p.in && o.record && head == 0) o.record[t.id] = GDN_RECORD_DEFERRED | span.rows;
    }
    m.task[n % 4] = t;
}

GDN_DEVICE bool gdn_stay_wide(const gdn_step &a) {
    return (((uint64_t)a.q | (uint64_t)a.k | (uint64_t)a.v | 2 * (uint64_t)(a.qk_stride | a.v_stride)) & 15) == 0;
}
/* Eight elements, or zeros. */
GDN_DEVICE void gdn_stay_copy(gdn_bf16 *to, const gdn_bf16 *from, bool there, bool wide) {
    if (wide) {
        gdn_cp_async16(to, from, there ? 16 : 0);
    } else {
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < 8; i++) to[i] = there ? from[i] : gdn_bf16 { 0 };
    }
}
/* Sends for the leg's part of a head's state. */
GDN_DEVICE void gdn_stay_send(gdn_stay_smem &m, float *state, const gdn_stay_task &t, uint32_t leg) {
    if (t.kind != GDN_STAY_BULK || gdn_lane() != 0) return;
    gdn_mbar_arrive_expect(m.arrived[leg], GDN_STAY_PART * 4);
    gdn_bulk_load(state + leg * GDN_STAY_PART, t.in + leg * GDN_STAY_PART, GDN_STAY_PART * 4, m.arrived[leg]);
}
/* Sends for 32 elements of its q and k; those of rows beyond the head's are zeros. */
GDN_DEVICE void gdn_stay_send_part(gdn_stay_smem &m, const gdn_stay &o, const gdn_stay_task &t, uint32_t part, uint32_t lane) {
    const uint32_t r = lane / 4 % 4, at = part * GDN_STAY_LEG + lane % 4 * 8;
    const bool there = r < t.rows;
    gdn_stay_copy((lane < 16 ? m.raw_q : m.raw_k)[r] + at, (lane < 16 ? t.q : t.k) + (uint64_t)(there ? r : 0) * o.a.qk_stride + at, there,
                  gdn_stay_wide(o.a));
}
/* Sends for its rows: part 3 by leg 0, decays and betas by leg 1, values by leg 2. */
GDN_DEVICE void gdn_stay_send_rows(gdn_stay_smem &m, const gdn_stay &o, const gdn_stay_task &t, const gdn_stay_lane &l) {
    if (t.kind <= GDN_STAY_NONE || l.leg == GDN_STAY_LEGS - 1) return;
    gdn_stay_send_part(m, o, t, l.leg, l.lane);
    if (l.leg == 0) gdn_stay_send_part(m, o, t, GDN_STAY_LEGS - 1, l.lane);
    if (l.leg == 1 && l.lane < 2 * GDN_STAY_ROWS) {
        const uint32_t r = l.lane % GDN_STAY_ROWS;
        const bool there = r < t.rows;
        gdn_cp_async4(&m.raw_gb[l.lane], (l.lane < GDN_STAY_ROWS ? t.gate : t.beta) + (uint64_t)(there ? r : 0) * o.a.gb_stride,
                      there ? 4 : 0);
    }
    if (l.leg == 2) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t r = 2 * i + l.lane / 16, at = l.lane % 16 * 8;
            const bool there = r < t.rows;
            gdn_stay_copy(m.raw_v[t.two][r] + at, t.v + (uint64_t)(there ? r : 0) * o.a.v_stride + at, there, gdn_stay_wide(o.a));
        }
    }
    gdn_cp_async_commit();
}

/* 32 elements of the rows, from what came: to `to`, the keys to the stash, too. */
struct gdn_stay_part {
    float q[GDN_STAY_ROWS], k[GDN_STAY_ROWS];
    uint32_t part, e;
    GDN_METHOD void load(const gdn_stay_smem &m, uint32_t which) {
        part = which, e = which * GDN_STAY_LEG + gdn_lane();
        GDN_UNROLL
        for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) q[r] = gdn_to_f32(m.raw_q[r][e]), k[r] = gdn_to_f32(m.raw_k[r][e]);
    }
#ifdef GDN_QK_L2NORM
    GDN_METHOD void square(gdn_stay_smem &m) const {
        float x[2 * GDN_STAY_ROWS];
        GDN_UNROLL
        for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) x[r] = q[r] * q[r], x[GDN_STAY_ROWS + r] = k[r] * k[r];
        gdn_stay_share(m.squares, 2 * GDN_STAY_ROWS, part, gdn_stay_sums(x));
    }
    GDN_METHOD void normalise(const gdn_stay_smem &m) {
        GDN_UNROLL
        for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) {
            q[r] = gdn_div(q[r], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[r]) + 1e-6f));
            k[r] = gdn_div(k[r], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[GDN_STAY_ROWS + r]) + 1e-6f));
        }
    }
#endif
    GDN_METHOD void store(gdn_stay_rows &to) const {
        float dots[8] = { k[1] * k[0], k[2] * k[0], k[2] * k[1], k[3] * k[0], k[3] * k[1], k[3] * k[2], 0, 0 };
        GDN_UNROLL
        for (uint32_t r = 0; r < GDN_STAY_ROWS; r++) to.q[r][e] = q[r], to.k[r][e] = k[r];
        gdn_stay_share(to.dots, GDN_STAY_PAIRS, part, gdn_stay_sums(dots));
    }
    GDN_METHOD void stash(const gdn_stay &o, const gdn_stay_task &t) const {
        if (!t.first_of_key_head) return;
        float *const sk = gdn_stash_of(o.stash, t.id, o.pitch, o.a.nv).sk + t.key_head * GDN_STEP_DIM + e;
        GDN_UNROLL
        for (uint32_t r = 0; r < GDN_STAY_ROWS; r++)
            if (r < t.rows) sk[r * o.a.nk * GDN_STEP_DIM] = k[r];
    }
};
/* A head's rows, by all legs but the last, which the block's next barrier shows them. */
GDN_DEVICE void gdn_stay_begin(gdn_stay_smem &m, const gdn_stay &o, const gdn_stay_task &t, const gdn_stay_lane &l) {
    if (t.kind <= GDN_STAY_NONE || l.leg == GDN_STAY_LEGS - 1) return;
    gdn_stay_rows &to = m.rows[t.three];
    gdn_stay_part own = {}, far = {};
    const bool both = l.leg == 0;
    gdn_cp_async_wait<0>();
    gdn_sync_warp();
    own.load(m, l.leg);
    if (both) far.load(m, GDN_STAY_LEGS - 1);
#ifdef GDN_QK_L2NORM
    own.square(m);
    if (both) far.square(m);
    gdn_mbar_arrive(m.squared); /* racecheck does not take a named barrier of some warps for an order */
    gdn_mbar_wait(m.squared, t.two);
    own.normalise(m);
    if (both) far.normalise(m);
#endif
    own.store(to);
    own.stash(o, t);
    if (both) {
        far.store(to);
        far.stash(o, t);
    }
    if (l.leg == 1 && l.lane < GDN_STAY_ROWS) {
        const float g = l.lane < t.rows ? gdn_step_decay(m.raw_gb[l.lane]) : 0.0f;
        to.g[l.lane] = g;
        to.b[l.lane] = m.raw_gb[GDN_STAY_ROWS + l.lane];
        if (l.lane < t.rows) gdn_stash_of(o.stash, t.id, o.pitch, o.a.nv).g[l.lane * o.a.nv + t.head] = g;
    }
    gdn_sync_warp(); /* what came may be replaced */
}
