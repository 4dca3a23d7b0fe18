/* gdn_step.cuh - decode and verify: the rows of one (sequence, value head), by a block of 128 threads. Contract: abi/gdn_op_rule.h.
 *
 *     pass 1   hk_t[v] = sum_j S[j][v] k_t[j]     c_t = (g_0...g_{t-1}) hk_t + sum_{s<t} (g_{s+1}...g_{t-1}) (k_t.k_s) vn_s   (row 0: hk)
 *              vn_t[v] = (v_t - g_t c_t) b_t
 *     pass 2   S[j][v] = g_t S + k_t[j] vn_t[v] for t in order;     out_t[v] = scale * sum_j S_t[j][v] q_t[j]
 *
 * Bits: sums over j from 0, in groups of four: the four products added left to right, then that sum to the accumulator. Dots of two
 * keys by shuffle-down in each warp, the warps as (w0 + w2) + (w1 + w3), for 64 dimensions w0 + w1. Products of decays, and c_t, left
 * to right. Nothing is contracted. The bytes are those of kernels/cpu/isa/decode_k.c, in both state layouts.
 *
 * The state is read once and stays in registers between the passes (gdn_step_state.cuh). A thread owns value column threadIdx.x: its
 * v, vn and outputs. Heads of 64 dimensions leave half of the block idle. GDN_QK_L2NORM: one more variant of a module, q and k are
 * divided by sqrt(sum x^2 + 1e-6) first. */
#pragma once
#include "gdn_step_state.cuh"

enum { GDN_STEP_BLOCK = 128, GDN_STEP_DIM = 128, GDN_STEP_ROWS = 16 };

/* What all entries have in common. */
struct gdn_step {
    const gdn_bf16 *q, *k, *v;
    const float *gate, *beta;
    gdn_bf16 *out;
    uint32_t nk, nv, qk_stride, v_stride, gb_stride;
    float scale;
};

template <uint32_t ROWS> struct __align__(16) gdn_step_smem {
    float q[ROWS][GDN_STEP_DIM], k[ROWS][GDN_STEP_DIM];
    float vn[ROWS][GDN_STEP_DIM]; /* v, then vn, then the output; a thread touches its column only */
    float g[ROWS], b[ROWS], lead[ROWS], mix[ROWS][ROWS];
    float dots[ROWS][ROWS][4]; /* each warp's share */
    float *after[ROWS];        /* where the state after a row goes */
    gdn_bf16 *out;             /* of the first row and this head; with what follows kept here to spare registers */
    float scale;
    uint32_t rows;
#ifdef GDN_QK_L2NORM
    float squares[2][ROWS][4];
#endif
    gdn_state_smem turn;
};

template <uint32_t DIM> GDN_DEVICE bool gdn_step_active() {
    return DIM == GDN_STEP_BLOCK || threadIdx.x < DIM;
}

/* Raw values of up to N rows in registers, so that the loads are on their way before the state's. */
template <uint32_t N> struct gdn_step_raw {
    gdn_bf16 q[N], k[N], v[N];
    float gate, beta;
};
template <uint32_t DIM, uint32_t N>
GDN_DEVICE void gdn_step_fetch(gdn_step_raw<N> &r, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head) {
    const uint32_t i = threadIdx.x, kh = gdn_key_head(head, a.nk, a.nv);
    GDN_UNROLL
    for (uint32_t t = 0; t < N; t++)
        if (t < rows && gdn_step_active<DIM>()) {
            const uint64_t qk = (row + t) * a.qk_stride + kh * DIM + i;
            r.q[t] = a.q[qk];
            r.k[t] = a.k[qk];
            r.v[t] = a.v[(row + t) * a.v_stride + head * DIM + i];
        }
}
template <uint32_t DIM, uint32_t ROWS, uint32_t N>
GDN_DEVICE void gdn_step_put(gdn_step_smem<ROWS> &m, const gdn_step_raw<N> &r, uint32_t from, uint32_t rows) {
    const uint32_t i = threadIdx.x;
    GDN_UNROLL
    for (uint32_t t = 0; t < N; t++)
        if (t < rows && gdn_step_active<DIM>()) {
            m.q[from + t][i] = gdn_to_f32(r.q[t]);
            m.k[from + t][i] = gdn_to_f32(r.k[t]);
            m.vn[from + t][i] = gdn_to_f32(r.v[t]);
        }
}

/* The sum of the warps' shares. */
template <uint32_t DIM> GDN_DEVICE float gdn_step_join(const float (&w)[4]) {
    return DIM == 64 ? w[0] + w[1] : (w[0] + w[2]) + (w[1] + w[3]);
}
GDN_DEVICE void gdn_step_share(float (&w)[4], float x) {
    const float sum = gdn_warp_sum_down(x);
    if (gdn_lane() == 0) w[threadIdx.x / 32] = sum;
}

#ifdef GDN_QK_L2NORM
template <uint32_t DIM, uint32_t ROWS> GDN_DEVICE void gdn_step_normalise(gdn_step_smem<ROWS> &m, uint32_t rows) {
    const uint32_t i = threadIdx.x;
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < rows && gdn_step_active<DIM>(); t++) {
        gdn_step_share(m.squares[0][t], m.q[t][i] * m.q[t][i]);
        gdn_step_share(m.squares[1][t], m.k[t][i] * m.k[t][i]);
    }
    gdn_sync_block();
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < rows && gdn_step_active<DIM>(); t++) {
        m.q[t][i] = gdn_div(m.q[t][i], sqrtf(gdn_step_join<DIM>(m.squares[0][t]) + 1e-6f));
        m.k[t][i] = gdn_div(m.k[t][i], sqrtf(gdn_step_join<DIM>(m.squares[1][t]) + 1e-6f));
    }
    gdn_sync_block();
}
#endif

/* What row t takes of row s < t, and lead; from the dots. */
template <uint32_t DIM, uint32_t ROWS> GDN_DEVICE void gdn_step_mix_pair(gdn_step_smem<ROWS> &m, uint32_t t, uint32_t s) {
    float decay = s + 1 < t ? m.g[s + 1] : 1.0f;
    GDN_NO_UNROLL
    for (uint32_t e = s + 2; e < t; e++) decay *= m.g[e];
    m.mix[t][s] = decay * gdn_step_join<DIM>(m.dots[t][s]);
    if (s > 0) return;
    float lead = m.g[0];
    GDN_NO_UNROLL
    for (uint32_t e = 1; e < t; e++) lead *= m.g[e];
    m.lead[t] = lead;
}
/* lead and mix of rows 1 and up; needs k and g. */
template <uint32_t DIM, uint32_t ROWS> GDN_DEVICE void gdn_step_mix(gdn_step_smem<ROWS> &m, uint32_t rows) {
    const uint32_t i = threadIdx.x;
    GDN_NO_UNROLL
    for (uint32_t t = 1; t < rows && gdn_step_active<DIM>(); t++) {
        GDN_NO_UNROLL
        for (uint32_t s = 0; s < t; s++) gdn_step_share(m.dots[t][s], m.k[t][i] * m.k[s][i]);
    }
    gdn_sync_block();
    GDN_NO_UNROLL
    for (uint32_t pair = i; pair < ROWS * ROWS; pair += GDN_STEP_BLOCK)
        if (pair % ROWS < pair / ROWS && pair / ROWS < rows) gdn_step_mix_pair<DIM, ROWS>(m, pair / ROWS, pair % ROWS);
    gdn_sync_block();
}
/* vn of row t and column i, from hk and from v, which it replaces. */
template <uint32_t ROWS> GDN_DEVICE void gdn_step_value(gdn_step_smem<ROWS> &m, uint32_t t, uint32_t i, float hk) {
    float c = hk;
    if (t > 0) {
        c = m.lead[t] * hk;
        GDN_NO_UNROLL
        for (uint32_t s = 0; s < t; s++) c += m.mix[t][s] * m.vn[s][i];
    }
    m.vn[t][i] = (m.vn[t][i] - m.g[t] * c) * m.b[t];
}

/* As `after`: no state is written. */
struct gdn_step_nowhere {
    __device__ float *operator()(uint32_t) const { return nullptr; }
};
template <class AFTER> GDN_DEVICE float *gdn_step_kept(float *const &p, const AFTER &) {
    return p;
}
GDN_DEVICE float *gdn_step_kept(float *const &, const gdn_step_nowhere &) {
    return nullptr;
}

/* As `seen`: nobody wants to know. */
struct gdn_step_unseen {
    template <class SMEM> GDN_METHOD void keys(const SMEM &, uint32_t) const {}
    template <class SMEM> GDN_METHOD void value(const SMEM &, uint32_t, uint32_t) const {}
};

/* The rows' values to m, all but lead and mix. load(): sends for the state, after the first values and before the wait for them. */
template <uint32_t DIM, uint32_t ROWS, class LOAD, class AFTER>
GDN_DEVICE void gdn_step_begin(gdn_step_smem<ROWS> &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, LOAD load,
                               AFTER after) {
    constexpr uint32_t EARLY = ROWS < 2 ? 1 : 2; /* more cost registers */
    const uint32_t i = threadIdx.x;
    gdn_step_raw<EARLY> raw = {};
    gdn_step_fetch<DIM, EARLY>(raw, a, row, rows, head);
    float *to = nullptr;
    if (i < rows) {
        raw.gate = a.gate[(row + i) * a.gb_stride + head];
        raw.beta = a.beta[(row + i) * a.gb_stride + head];
        to = after(i);
    }
    load();
    gdn_step_put<DIM, ROWS, EARLY>(m, raw, 0, rows);
    if (i < rows) {
        m.g[i] = gdn_step_decay(raw.gate);
        m.b[i] = raw.beta;
        m.after[i] = to;
    }
    if (i == 0) {
        m.out = a.out + (row * a.nv + head) * DIM;
        m.scale = a.scale;
        m.rows = rows;
    }
    GDN_NO_UNROLL
    for (uint32_t t = EARLY; EARLY < ROWS && t < rows; t++) {
        gdn_step_raw<1> one = {};
        gdn_step_fetch<DIM, 1>(one, a, row + t, 1, head);
        gdn_step_put<DIM, ROWS, 1>(m, one, t, 1);
    }
    gdn_sync_block();
#ifdef GDN_QK_L2NORM
    gdn_step_normalise<DIM, ROWS>(m, rows);
#endif
}

/* Rows [row, row + rows) of a head, 1 <= rows <= ROWS, from the state `in` (NULL: zeros), held as STATE. after(t): where the state after row
 * t goes, NULL: nowhere. seen.keys(m, rows): called by all threads when g and k are in m; seen.value(m, t, column): vn is. */
template <class STATE, uint32_t DIM, uint32_t ROWS, class AFTER, class SEEN>
GDN_DEVICE void gdn_step_rows_in(gdn_step_smem<ROWS> &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, const float *in,
                                 AFTER after, SEEN seen) {
    const uint32_t i = threadIdx.x;
    STATE state(m.turn);
    gdn_step_begin<DIM, ROWS>(
        m, a, row, rows, head,
        [&] {
            if (gdn_step_active<DIM>()) state.load(in);
        },
        after);
    seen.keys(m, m.rows);
    if (ROWS > 1 && m.rows > 1) gdn_step_mix<DIM, ROWS>(m, m.rows);
    if (!gdn_step_active<DIM>()) return;
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < (ROWS == 1 ? 1 : m.rows); t++) {
        gdn_step_value<ROWS>(m, t, i, state.dot(m.k[t]));
        seen.value(m, t, i);
    }
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < (ROWS == 1 ? 1 : m.rows); t++)
        m.vn[t][i] = state.step(m.g[t], m.vn[t][i], m.k[t], m.q[t], gdn_step_kept(m.after[t], after));
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < (ROWS == 1 ? 1 : m.rows); t++) m.out[(uint64_t)t * a.nv * DIM + i] = gdn_to_bf16(m.scale * m.vn[t][i]);
}

template <uint32_t DIM, uint32_t ROWS, bool STREAM, class AFTER, class SEEN>
GDN_DEVICE void gdn_step_rows(gdn_step_smem<ROWS> &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, const float *in,
                              AFTER after, SEEN seen) {
    gdn_step_rows_in<gdn_state<DIM, STREAM>, DIM, ROWS>(m, a, row, rows, head, in, after, seen);
}

/* A padding row's output. */
GDN_DEVICE void gdn_step_zero(const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, uint32_t dim) {
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < rows; t++)
        if (threadIdx.x < dim) a.out[((row + t) * a.nv + head) * dim + threadIdx.x] = gdn_bf16 { 0 };
}
/* A sequence without rows: its state stays, or moves. in NULL: zeros. */
template <class T> GDN_DEVICE void gdn_step_carry(const T *in, T *out, uint32_t elements) {
    if (out == in) return;
    GDN_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < elements; i += GDN_STEP_BLOCK) out[i] = in ? in[i] : T {};
}

/* The rows of sequence b: `rows` each, or [cu_rows[b], cu_rows[b+1]). */
struct gdn_step_span {
    uint64_t row;
    uint32_t rows;
};
GDN_DEVICE gdn_step_span gdn_step_rows_of(const int32_t *cu_rows, uint32_t b, uint32_t rows) {
    if (!cu_rows) return gdn_step_span { (uint64_t)b * rows, rows };
    return gdn_step_span { (uint64_t)(uint32_t)cu_rows[b], (uint32_t)(cu_rows[b + 1] - cu_rows[b]) };
}
