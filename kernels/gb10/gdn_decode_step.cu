/* gdn_decode_step.cu - a decode step of one token a sequence in one launch: causal convolution of width 4 with its state, SiLU, split,
 * L2 norm of q and k, gates, gated delta rule with its f32 state [K][V], gated RMS norm. Contract: abi/gdn_op_step.h.
 *
 * Grid (nv/nk, nk, batch), no dynamic shared memory: a block has one value head of one sequence, and makes q and k of its key head itself.
 * The bytes of conv_silu_split_l2norm, gdn_gates, gated_delta_rule_decode and gated_rmsnorm in that order (gdn_decode_step.cuh).
 *   gdn_decode_step        block 256: a thread has half a value column of the state in registers; three blocks a multiprocessor (two on
 * 12.x)
 *   gdn_decode_step_wide   block 512: a thread has eight rows of four columns, so that a head is read at once; few sequences
 * Both read x, weight, bias, a, b, A_log, dt_bias, z, norm_weight, slots, fresh, accepted; write conv_state, state, out and the counts
 * in `arrived` (batch * nk, zero before and after; not looked at when nv = nk). batch at most 65535; any strides, any element-aligned
 * base.
 *
 * x, weight, bias, conv_state, a, b, A_log, dt_bias, z, norm_weight, out, state, slots, fresh, accepted, arrived, conv_slot_stride,
 * state_stride (elements), nk, nv, x_stride, z_stride, a_stride, b_stride, vpg, state_len, eps, scale, flags
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
            conv_slot_stride, state_stride, nk, nv, x_stride, z_stride, a_stride, b_stride, vpg, state_len, eps, scale, flags     \
    }

/* ---- half a column a thread ---- */
/* 80 registers a thread do on 9.0; the compiler for 12.x wants a few more, and that device needs fewer blocks. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define HALF_BLOCKS 2
#else
#define HALF_BLOCKS 3
#endif
enum { HALF = GDN_DSTEP_DIM / 2, HALF_GROUPS = HALF / 4 };
struct half_smem {
    gdn_dstep_smem m;
    float sum[GDN_DSTEP_DIM], vn[GDN_DSTEP_DIM]; /* of the first half's rows; of a column */
    gdn_dstep_place place;                       /* kept here to spare registers */
};

/* q and v by the first 128 threads, k and the gates by the others. */
GDN_DEVICE void half_rows(gdn_dstep_smem &m, const gdn_dstep &a, const gdn_dstep_place &p, uint32_t half, uint32_t i) {
    const uint32_t c = gdn_dstep_channel(a, p, half, i);
    gdn_dstep_window w;
    w.load(a, p, c);
    if (half) {
        gdn_dstep_gate gate = {};
        if (i >= 64) gate.load(a, p, i >= 96);
        if (i == 64) m.g = gate.decay(a);
        if (i == 96) m.beta = gate.beta(a);
    } else {
        const uint32_t cv = gdn_dstep_channel(a, p, 2, i);
        gdn_dstep_window v;
        v.load(a, p, cv);
        m.v[i] = gdn_dstep_round(v.value(a, cv));
        v.store(a, p, cv);
    }
    const float y = w.value(a, c);
    m.y[half][i] = y;
    if (half)
        gdn_bar_sync(2, GDN_DSTEP_DIM);
    else
        gdn_bar_sync(1, GDN_DSTEP_DIM);
    (half ? m.k : m.q)[i] = gdn_dstep_l2norm(y, gdn_dstep_squares(m.y[half]));
}

GDN_DEVICE void half_load(float (&s)[HALF], const gdn_dstep_place &p, uint32_t half, uint32_t i) {
    const float *const from = gdn_opaque(p.state + half * HALF * GDN_DSTEP_DIM + i);
    const bool fresh = p.fresh;
    GDN_UNROLL
    for (uint32_t j = 0; j < HALF; j++) s[j] = fresh ? 0.0f : gdn_ld4f_stream(from + j * GDN_DSTEP_DIM);
}

GDN_KERNEL(GDN_DSTEP_BLOCK, HALF_BLOCKS) gdn_decode_step(GDN_DSTEP_PARAMS) {
    gdn_begin();
    __shared__ __align__(16) half_smem sm;
    gdn_dstep_smem &m = sm.m;
    const gdn_dstep a = GDN_DSTEP_ARGS;
    const uint32_t half = threadIdx.x / GDN_DSTEP_DIM, i = threadIdx.x % GDN_DSTEP_DIM;
    {
        const gdn_dstep_place at = gdn_dstep_find(a);
        if (threadIdx.x == 0) sm.place = at;
        if (!at.conv) {
            if (half == 0) *gdn_dstep_out(a, at, i) = gdn_bf16 { 0 };
            return;
        }
        for (uint32_t line = 0; line < 2 && a.flags & GDN_DSTEP_AHEAD && !at.fresh; line++)
            gdn_prefetch_l2(at.state + (line * GDN_DSTEP_BLOCK + threadIdx.x) * 32);
        half_rows(m, a, at, half, i);
    }
    gdn_sync_block();
    const gdn_dstep_place &p = sm.place;
    float s[HALF]; /* registers are for the state, which is loaded last */
    half_load(s, p, half, i);
    if (threadIdx.x == GDN_DSTEP_DIM) m.last = gdn_dstep_is_last(a, p, gdn_dstep_arrive(a, p)); /* it comes with the state */
    GDN_NO_UNROLL
    for (uint32_t turn = 0; turn < 2; turn++) {
        if (turn == half) {
            float sum = half ? sm.sum[i] : 0.0f;
            GDN_UNROLL
            for (uint32_t g = 0; g < HALF_GROUPS; g++)
                sum += gdn_group_sum(float4 { s[4 * g], s[4 * g + 1], s[4 * g + 2], s[4 * g + 3] }, gdn_ld16f(m.k + half * HALF + 4 * g));
            if (half)
                sm.vn[i] = (m.v[i] - m.g * sum) * m.beta;
            else
                sm.sum[i] = sum;
        }
        gdn_sync_block();
    }
    float *const to = gdn_opaque(p.state + half * HALF * GDN_DSTEP_DIM + i);
    GDN_UNROLL
    for (uint32_t g = 0; g < HALF_GROUPS; g++) {
        const float4 next = gdn_group_step(m.g, float4 { s[4 * g], s[4 * g + 1], s[4 * g + 2], s[4 * g + 3] },
                                           gdn_ld16f(m.k + half * HALF + 4 * g), sm.vn[i]);
        float *const row = to + 4 * g * GDN_DSTEP_DIM;
        gdn_st4f_stream(row, next.x), gdn_st4f_stream(row + GDN_DSTEP_DIM, next.y), gdn_st4f_stream(row + 2 * GDN_DSTEP_DIM, next.z);
        gdn_st4f_stream(row + 3 * GDN_DSTEP_DIM, next.w);
        s[4 * g] = gdn_group_sum(next, gdn_ld16f(m.q + half * HALF + 4 * g));
    }
    gdn_dstep_norm n = {};
    float sum = 0;
    if (half) {
        n.load(a, p, i);
    } else {
        GDN_UNROLL
        for (uint32_t g = 0; g < HALF_GROUPS; g++) sum += s[4 * g];
        sm.sum[i] = sum;
    }
    gdn_sync_block();
    if (half) {
        sum = sm.sum[i];
        GDN_UNROLL
        for (uint32_t g = 0; g < HALF_GROUPS; g++) sum += s[4 * g];
        const float o = gdn_dstep_round(a.scale * sum);
        m.o[i] = o;
        gdn_bar_sync(1, GDN_DSTEP_DIM);
        *gdn_dstep_out(a, p, i) = n.apply(a, o, gdn_dstep_squares(m.o));
    } else if (m.last) {
        GDN_UNROLL
        for (uint32_t part = 0; part < 2; part++) { /* read once more, for the registers */
            const uint32_t c = gdn_dstep_channel(a, p, part, i);
            gdn_dstep_window w;
            w.load_columns(a, p, c);
            w.store(a, p, c);
        }
    }
}

/* ---- 32 rows of 32 columns a warp, eight rows of four columns a thread ---- */
enum { WIDE_LINES = 8, WIDE_GROUPS = WIDE_LINES / 4 };
struct __align__(16) wide_smem {
    gdn_dstep_smem m;
    float sums[2][GDN_DSTEP_DIM / 4][GDN_DSTEP_DIM]; /* [pass][group of four k][column] */
    float vn[GDN_DSTEP_DIM];
    gdn_dstep_place place; /* kept here to spare registers */
};

/* The column's 32 sums of four, in order. */
GDN_DEVICE float wide_total(const float (&sums)[GDN_DSTEP_DIM / 4][GDN_DSTEP_DIM], uint32_t column) {
    float sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < GDN_DSTEP_DIM / 4; i++) sum += sums[i][column];
    return sum;
}

/* Four k of four columns: their sums of four with k. */
GDN_DEVICE float4 wide_dot(const float4 *s, float4 k) {
    return float4 { gdn_group_sum(float4 { s[0].x, s[1].x, s[2].x, s[3].x }, k), gdn_group_sum(float4 { s[0].y, s[1].y, s[2].y, s[3].y }, k),
                    gdn_group_sum(float4 { s[0].z, s[1].z, s[2].z, s[3].z }, k), gdn_group_sum(float4 { s[0].w, s[1].w, s[2].w, s[3].w }, k) };
}
GDN_DEVICE float4 wide_line(float g, float4 s, float k, float4 vn) {
    return float4 { g * s.x + k * vn.x, g * s.y + k * vn.y, g * s.z + k * vn.z, g * s.w + k * vn.w };
}
GDN_DEVICE float4 wide_get(const float *p, bool whole) {
    if (whole) return gdn_ld16f_stream(p);
    return float4 { gdn_ld4f_stream(p), gdn_ld4f_stream(p + 1), gdn_ld4f_stream(p + 2), gdn_ld4f_stream(p + 3) };
}
GDN_DEVICE void wide_put(float *p, bool whole, float4 x) {
    if (whole)
        gdn_st16f_stream(p, x);
    else
        gdn_st4f_stream(p, x.x), gdn_st4f_stream(p + 1, x.y), gdn_st4f_stream(p + 2, x.z), gdn_st4f_stream(p + 3, x.w);
}

/* What a thread asks for before the state, by its part of the block: q, k and v by 128 threads each, the gates by two of the last. */
struct wide_raw {
    gdn_dstep_window w;
    gdn_dstep_gate gate;
    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t part, uint32_t i) {
        if (part < 3)
            w.load(a, p, gdn_dstep_channel(a, p, part, i));
        else
            gate.load(a, p, i >= 32);
    }
    GDN_METHOD void rows(gdn_dstep_smem &m, const gdn_dstep &a, const gdn_dstep_place &p, uint32_t part, uint32_t i) const {
        const uint32_t c = gdn_dstep_channel(a, p, part, i);
        if (part < 2)
            m.y[part][i] = w.value(a, c);
        else if (part == 2)
            m.v[i] = gdn_dstep_round(w.value(a, c));
        else if (i == 0)
            m.g = gate.decay(a);
        else if (i == 32)
            m.beta = gate.beta(a);
    }
};

/* All barriers are the block's: racecheck does not take a named one of some warps for an order, and these cost no more. */
GDN_KERNEL(GDN_DSTEP_WIDE, 2) gdn_decode_step_wide(GDN_DSTEP_PARAMS) {
    gdn_begin();
    __shared__ wide_smem sm;
    gdn_dstep_smem &m = sm.m;
    const gdn_dstep a = GDN_DSTEP_ARGS;
    const gdn_dstep_place at = gdn_dstep_find(a);
    const uint32_t part = threadIdx.x / GDN_DSTEP_DIM, i = threadIdx.x % GDN_DSTEP_DIM;
    if (threadIdx.x == 0) sm.place = at;
    if (!at.conv) {
        if (part == 0) *gdn_dstep_out(a, at, i) = gdn_bf16 { 0 };
        return;
    }
    wide_raw raw = {};
    raw.load(a, at, part, i);
    const uint32_t rows = threadIdx.x / 32 % 4 * 32 + gdn_lane() / 8 * WIDE_LINES, column = part * 32 + gdn_lane() % 8 * 4;
    float *const mine = gdn_opaque(at.state + rows * GDN_DSTEP_DIM + column);
    const bool whole = (uint64_t)at.state % 16 == 0;
    float4 s[WIDE_LINES];
    raw.rows(m, a, at, part, i);
    /* Asked for earlier it would be waited for above: the compiler has one scoreboard for loads that are used in another basic block. */
    GDN_UNROLL
    for (uint32_t j = 0; j < WIDE_LINES; j++) s[j] = at.fresh ? float4 { 0, 0, 0, 0 } : wide_get(mine + j * GDN_DSTEP_DIM, whole);
    gdn_sync_block();
    if (part < 2) (part ? m.k : m.q)[i] = gdn_dstep_l2norm(m.y[part][i], gdn_dstep_squares(m.y[part]));
    gdn_sync_block();
    const gdn_dstep_place &p = sm.place;
    uint32_t before = 0;
    gdn_dstep_norm n = {};
    const bool counts = threadIdx.x == GDN_DSTEP_WIDE - 32;
    if (counts) before = gdn_dstep_arrive(a, p);
    if (part == 0) n.load(a, p, i);
    if (part == 2) raw.w.store(a, p, gdn_dstep_channel(a, p, part, i));
    GDN_UNROLL
    for (uint32_t g = 0; g < WIDE_GROUPS; g++)
        gdn_st16f(&sm.sums[0][rows / 4 + g][column], wide_dot(s + 4 * g, gdn_ld16f(m.k + rows + 4 * g)));
    gdn_sync_block();
    if (part == 0) sm.vn[i] = (m.v[i] - m.g * wide_total(sm.sums[0], i)) * m.beta;
    gdn_sync_block();
    const float4 vn = gdn_ld16f(sm.vn + column);
    const float decay = m.g;
    GDN_UNROLL
    for (uint32_t g = 0; g < WIDE_GROUPS; g++) {
        const float4 four = gdn_ld16f(m.k + rows + 4 * g);
        const float k[4] = { four.x, four.y, four.z, four.w };
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) s[4 * g + j] = wide_line(decay, s[4 * g + j], k[j], vn);
        gdn_st16f(&sm.sums[1][rows / 4 + g][column], wide_dot(s + 4 * g, gdn_ld16f(m.q + rows + 4 * g)));
    }
    GDN_UNROLL
    for (uint32_t j = 0; j < WIDE_LINES; j++) wide_put(mine + j * GDN_DSTEP_DIM, whole, s[j]);
    gdn_sync_block();
    if (part == 0) m.o[i] = gdn_dstep_round(a.scale * wide_total(sm.sums[1], i));
    if (counts) m.last = gdn_dstep_is_last(a, p, before); /* the count is waited for late */
    gdn_sync_block();
    if (part == 0) *gdn_dstep_out(a, p, i) = n.apply(a, m.o[i], gdn_dstep_squares(m.o));
    if (part < 2 && m.last) raw.w.store(a, p, gdn_dstep_channel(a, p, part, i));
}
