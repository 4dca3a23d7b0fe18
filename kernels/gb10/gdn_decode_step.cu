/* gdn_decode_step.cu - a decode step of one token a sequence in one launch: causal convolution of width 4 with its state, SiLU, split,
 * L2 norm of q and k, gates, gated delta rule with its f32 state [K][V], gated RMS norm. Contract: abi/gdn_op_step.h.
 *
 * Grid (nv, batch), no dynamic shared memory: a block has one value head of one sequence, and makes q and k of its key head itself. The
 * bytes of conv_silu_split_l2norm, gdn_gates, gated_delta_rule_decode and gated_rmsnorm in that order (gdn_decode_step.cuh).
 *   gdn_decode_step        block 128: a thread has a value column, all of its state in registers; three blocks a multiprocessor
 *   gdn_decode_step_wide   block 512: warp w has 32 columns and 32 rows of the state, so that a head is read at once; few sequences
 * Both read x, weight, bias, a, b, A_log, dt_bias, z, norm_weight, slots, fresh, accepted; write conv_state, state, out and the counts
 * in `arrived` (batch * nk, zero before and after; not looked at when nv = nk). batch at most 65535; any strides, any element-aligned
 * base.
 *
 * x, weight, bias, conv_state, a, b, A_log, dt_bias, z, norm_weight, out, state, slots, fresh, accepted, arrived, conv_slot_stride,
 * state_stride (elements), nk, nv, x_stride, z_stride, a_stride, b_stride, vpg, state_len, eps, scale (0: rsqrtf(128)), flags
 * (GDN_DSTEP_* of gdn_geometry.h) */
#include "gdn_device.cuh"
#include "gdn_geometry.h"

#include "gdn_decode_step.cuh"

#define GDN_DSTEP_PARAMS                                                                                                             \
    const gdn_bf16 *x, const void *weight, const void *bias, gdn_bf16 *conv_state, const void *a_rows, const void *b_rows,           \
        const float *A_log, const float *dt_bias, const gdn_bf16 *z, const void *norm_weight, gdn_bf16 *out, float *state,           \
        const int32_t *slots, const uint8_t *fresh, const int32_t *accepted, uint32_t *arrived, uint64_t conv_slot_stride,           \
        uint64_t state_stride, uint32_t nk, uint32_t nv, uint32_t x_stride, uint32_t z_stride, uint32_t a_stride, uint32_t b_stride, \
        uint32_t vpg, uint32_t state_len, float eps, float scale, uint32_t flags
#define GDN_DSTEP_ARGS                                                                                                            \
    gdn_dstep {                                                                                                                   \
        x, weight, bias, conv_state, a_rows, b_rows, A_log, dt_bias, z, norm_weight, out, state, slots, accepted, fresh, arrived, \
            conv_slot_stride, state_stride, nk, nv, x_stride, z_stride, a_stride, b_stride, vpg, state_len, eps,                  \
            gdn_output_scale(GDN_DSTEP_DIM, scale), flags                                                                         \
    }

/* ---- a column a thread ---- */
/* q, k, v, g and beta to m. Ends with a barrier; the thread that counts the block in gets the count. */
GDN_DEVICE uint32_t narrow_rows(gdn_dstep_smem &m, const gdn_dstep &a, const gdn_dstep_place &p) {
    const uint32_t i = threadIdx.x;
    gdn_dstep_window w[3];
    GDN_UNROLL
    for (uint32_t part = 0; part < 3; part++) w[part].load(a, p, gdn_dstep_channel(a, p, part, i));
    float y[2];
    GDN_UNROLL
    for (uint32_t part = 0; part < 2; part++) m.y[part][i] = y[part] = w[part].value(a, gdn_dstep_channel(a, p, part, i));
    const uint32_t cv = gdn_dstep_channel(a, p, 2, i);
    m.v[i] = gdn_dstep_round(w[2].value(a, cv)); /* a thread's own, as is its channel's state */
    w[2].store(a, p, cv);
    if (i == 64) m.beta = gdn_dstep_beta(a, p);
    if (i == 96) m.g = gdn_dstep_gate(a, p);
    gdn_sync_block();
    m.q[i] = gdn_dstep_l2norm(y[0], gdn_dstep_squares(m.y[0]));
    m.k[i] = gdn_dstep_l2norm(y[1], gdn_dstep_squares(m.y[1]));
    const uint32_t before = i == 0 ? gdn_dstep_arrive(a, p) : 0;
    gdn_sync_block();
    return before;
}

/* Registers are for the state, which is loaded last: until then it comes nearer. */
GDN_KERNEL(GDN_DSTEP_BLOCK, 3) gdn_decode_step(GDN_DSTEP_PARAMS) {
    __shared__ gdn_dstep_smem m;
    __shared__ gdn_state_smem turn;
    const gdn_dstep a = GDN_DSTEP_ARGS;
    __shared__ gdn_dstep_place kept; /* for behind the state's passes */
    const gdn_dstep_place p = gdn_dstep_find(a);
    const uint32_t i = threadIdx.x;
    if (i == 0) kept = p;
    if (!p.conv) {
        *gdn_dstep_out(a, p, i) = gdn_bf16 { 0 };
        return;
    }
    GDN_UNROLL
    for (uint32_t line = 0; line < 4 && !p.fresh; line++) gdn_prefetch_l2(p.state + (line * GDN_DSTEP_DIM + i) * 32);
    const uint32_t before = narrow_rows(m, a, p);
    gdn_state<GDN_DSTEP_DIM, false> s(turn);
    s.load(kept.fresh ? nullptr : kept.state);
    if (i == 0) m.last = gdn_dstep_is_last(a, kept, before); /* the count comes with the state */
    m.v[i] = (m.v[i] - m.g * s.dot(m.k)) * m.beta;           /* a store between the passes: k is not kept in registers */
    const float o = gdn_dstep_round(a.scale * s.step(m.g, m.v[i], m.k, m.q, kept.state));
    m.o[i] = o;
    gdn_dstep_norm n;
    n.load(a, kept, i);
    gdn_sync_block();
    *gdn_dstep_out(a, kept, i) = n.apply(a, o, gdn_dstep_squares(m.o));
    if (!m.last) return;
    GDN_UNROLL
    for (uint32_t part = 0; part < 2; part++) { /* read once more, likewise */
        const uint32_t c = gdn_dstep_channel(a, kept, part, i);
        gdn_dstep_window w;
        w.load(a, kept, c);
        w.store(a, kept, c);
    }
}

/* ---- 32 rows of 32 columns a warp ---- */
enum { WIDE_GROUPS = 8 };
struct __align__(16) wide_smem {
    gdn_dstep_smem m;
    float sums[2][GDN_DSTEP_DIM / 4][GDN_DSTEP_DIM]; /* [pass][group of four k][column] */
};

/* The column's 32 sums of four, in order. */
GDN_DEVICE float wide_total(const float (&sums)[GDN_DSTEP_DIM / 4][GDN_DSTEP_DIM], uint32_t column) {
    float sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_DSTEP_DIM / 4; i++) sum += sums[i][column];
    return sum;
}

/* q, k and v by 128 threads each, the gates by two lanes of the last 128. */
GDN_DEVICE void wide_rows(gdn_dstep_smem &m, const gdn_dstep &a, const gdn_dstep_place &p, const gdn_dstep_window &w, uint32_t part,
                          uint32_t i) {
    const uint32_t c = gdn_dstep_channel(a, p, part, i);
    if (part < 2) {
        const float y = w.value(a, c);
        m.y[part][i] = y;
        if (part)
            gdn_bar_sync(2, GDN_DSTEP_DIM);
        else
            gdn_bar_sync(1, GDN_DSTEP_DIM);
        (part ? m.k : m.q)[i] = gdn_dstep_l2norm(y, gdn_dstep_squares(m.y[part]));
    } else if (part == 2) {
        m.v[i] = gdn_dstep_round(w.value(a, c));
        w.store(a, p, c);
    } else if (i == 0) {
        m.g = gdn_dstep_gate(a, p);
    } else if (i == 32) {
        m.beta = gdn_dstep_beta(a, p);
    }
}

GDN_KERNEL(GDN_DSTEP_WIDE, 2) gdn_decode_step_wide(GDN_DSTEP_PARAMS) {
    __shared__ wide_smem sm;
    gdn_dstep_smem &m = sm.m;
    const gdn_dstep a = GDN_DSTEP_ARGS;
    const gdn_dstep_place p = gdn_dstep_find(a);
    const uint32_t part = threadIdx.x / GDN_DSTEP_DIM, i = threadIdx.x % GDN_DSTEP_DIM;
    if (!p.conv) {
        if (part == 0) *gdn_dstep_out(a, p, i) = gdn_bf16 { 0 };
        return;
    }
    gdn_dstep_window w = {};
    gdn_dstep_norm n = {};
    if (part < 3) w.load(a, p, gdn_dstep_channel(a, p, part, i));
    if (part == 0) n.load(a, p, i);
    const uint32_t rows = threadIdx.x / 32 % 4 * 32, column = part * 32 + gdn_lane();
    float *const mine = gdn_opaque(p.state + rows * GDN_DSTEP_DIM + column);
    float4 s[WIDE_GROUPS];
    GDN_UNROLL
    for (uint32_t g = 0; g < WIDE_GROUPS; g++) {
        const float *const f = mine + 4 * g * GDN_DSTEP_DIM;
        s[g] = p.fresh ? float4 { 0, 0, 0, 0 }
                       : float4 { gdn_ld4f_stream(f), gdn_ld4f_stream(f + GDN_DSTEP_DIM), gdn_ld4f_stream(f + 2 * GDN_DSTEP_DIM),
                                  gdn_ld4f_stream(f + 3 * GDN_DSTEP_DIM) };
    }
    wide_rows(m, a, p, w, part, i);
    gdn_sync_block();
    uint32_t before = 0;
    const bool counts = threadIdx.x == GDN_DSTEP_WIDE - 32;
    if (counts) before = gdn_dstep_arrive(a, p);
    GDN_UNROLL
    for (uint32_t g = 0; g < WIDE_GROUPS; g++) sm.sums[0][rows / 4 + g][column] = gdn_group_sum(s[g], gdn_ld16f(m.k + rows + 4 * g));
    gdn_sync_block();
    const float decay = m.g, vn = (m.v[column] - decay * wide_total(sm.sums[0], column)) * m.beta;
    GDN_UNROLL
    for (uint32_t g = 0; g < WIDE_GROUPS; g++) {
        const float4 t = gdn_group_step(decay, s[g], gdn_ld16f(m.k + rows + 4 * g), vn);
        sm.sums[1][rows / 4 + g][column] = gdn_group_sum(t, gdn_ld16f(m.q + rows + 4 * g));
        float *const to = mine + 4 * g * GDN_DSTEP_DIM;
        gdn_st4f_stream(to, t.x), gdn_st4f_stream(to + GDN_DSTEP_DIM, t.y), gdn_st4f_stream(to + 2 * GDN_DSTEP_DIM, t.z);
        gdn_st4f_stream(to + 3 * GDN_DSTEP_DIM, t.w);
    }
    if (counts) m.last = gdn_dstep_is_last(a, p, before);
    gdn_sync_block();
    if (part < 2 && m.last) w.store(a, p, gdn_dstep_channel(a, p, part, i));
    if (part) return;
    const float o = gdn_dstep_round(a.scale * wide_total(sm.sums[1], i));
    m.o[i] = o;
    gdn_bar_sync(1, GDN_DSTEP_DIM);
    *gdn_dstep_out(a, p, i) = n.apply(a, o, gdn_dstep_squares(m.o));
}
