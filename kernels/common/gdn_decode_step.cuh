/* gdn_decode_step.cuh - the parts of the fused decode step that do not depend on how a head's state lies in its block: where a block
 * finds its sequence, one channel's convolution, the L2 norm, the gates, the gated norm, and who writes the conv state of q and k.
 * Contract: abi/gdn_op_step.h; entries and argument order: gdn_decode_step.cu.
 *
 * Bits: those of causal_conv1d.cu, ssm_preprocess.cu, gated_delta_rule_decode.cu and gated_rmsnorm.cu one after another; what those
 * kernels round to bf16 on the way (q, k, v, the rule's output) is rounded here too. A norm's sum goes by pieces of eight channels,
 * ascending inside a piece, then a butterfly over the sixteen pieces.
 *
 * The nv/nk value heads of a key head all need its q and k, so their blocks all read the conv state of those channels; it may be
 * replaced only when all have. Each block counts itself in when it has read; the one that finds all others counted writes, and sets
 * the count back to zero for the next launch. Nobody waits. */
#pragma once
#include "gdn_gates_exact.cuh"
#include "gdn_rows.cuh"
#include "gdn_step_state.cuh"

enum { GDN_DSTEP_DIM = 128, GDN_DSTEP_COLUMNS = 3 }; /* conv width 4 */

struct gdn_dstep {
    const gdn_bf16 *x;
    const void *weight, *bias;
    gdn_bf16 *conv_state;
    const void *a, *b;
    const float *A_log, *dt_bias;
    const gdn_bf16 *z;
    const void *norm_weight;
    gdn_bf16 *out;
    float *state;
    const int32_t *slots, *accepted;
    const uint8_t *fresh;
    uint32_t *arrived;
    uint64_t conv_slot_stride, state_stride;
    uint32_t nk, nv, x_stride, z_stride, a_stride, b_stride, vpg, state_len;
    float eps, scale;
    uint32_t flags; /* GDN_DSTEP_* of gdn_geometry.h */
};

struct __align__(16) gdn_dstep_smem {
    float y[2][GDN_DSTEP_DIM];                                  /* q and k before their norm */
    float q[GDN_DSTEP_DIM], k[GDN_DSTEP_DIM], v[GDN_DSTEP_DIM]; /* rounded */
    float o[GDN_DSTEP_DIM];                                     /* the rule's output, rounded */
    float g, beta;
    uint32_t last;
};

/* ---- where a block is: value head `head` of sequence b, from a grid that needs no division ---- */
struct gdn_dstep_place {
    gdn_bf16 *conv; /* of the slot; NULL: padding */
    float *state;   /* of the head */
    uint32_t b, head, kh, na;
    bool fresh;
};
GDN_DEVICE gdn_dstep_place gdn_dstep_find(const gdn_dstep &a) {
    gdn_dstep_place p = { nullptr, nullptr, blockIdx.z, 0, blockIdx.y, 0, false };
    const int32_t slot = a.slots ? a.slots[p.b] : (int32_t)p.b, na = a.accepted ? a.accepted[p.b] : 0; /* all three at once */
    const uint8_t fresh = a.fresh ? a.fresh[p.b] : 0;
    p.head = a.flags & GDN_DSTEP_TILED ? blockIdx.x * a.nk + p.kh : p.kh * gridDim.x + blockIdx.x;
    if (slot < 0) return p;
    p.fresh = fresh != 0;
    p.na = p.fresh ? 0 : (uint32_t)na;
    p.conv = a.conv_state + (uint64_t)(uint32_t)slot * a.conv_slot_stride;
    p.state = a.state + (uint64_t)(uint32_t)slot * a.state_stride + (uint64_t)p.head * GDN_DSTEP_DIM * GDN_DSTEP_DIM;
    return p;
}
/* Channel i of the packed row's q (part 0), k (1) or v (2), for this block's heads. */
GDN_DEVICE uint32_t gdn_dstep_channel(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t part, uint32_t i) {
    return (part == 0 ? p.kh : part == 1 ? a.nk + p.kh : 2 * a.nk + p.head) * GDN_DSTEP_DIM + i;
}
GDN_DEVICE gdn_bf16 *gdn_dstep_out(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t i) {
    return a.out + ((uint64_t)p.b * a.nv + p.head) * GDN_DSTEP_DIM + i;
}

/* ---- values as they lie in memory ----
 * Everything small is asked for before the state and looked at after it has been asked for: a conversion in between would hold the
 * state's loads up until the small ones have come. */
GDN_DEVICE uint32_t gdn_dstep_raw(const void *p, bool f32, uint64_t i) {
    if (f32) return gdn_bits(gdn_ld4f_global(static_cast<const float *>(p) + i));
    return gdn_ld2_global(static_cast<const gdn_bf16 *>(p) + i);
}
GDN_DEVICE float gdn_dstep_value(uint32_t raw, bool f32) {
    raw = gdn_anew(raw);
    return gdn_float(f32 ? raw : raw << 16);
}

/* ---- one channel's convolution ---- */
struct gdn_dstep_window {
    uint32_t column[GDN_DSTEP_COLUMNS + 1]; /* the last one is x */
    uint32_t tap[GDN_DSTEP_COLUMNS + 1];

    GDN_METHOD void load_columns(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t c) {
        const gdn_bf16 *const from = p.conv + (uint64_t)c * a.state_len + p.na;
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_DSTEP_COLUMNS; j++) column[j] = p.fresh ? 0 : gdn_ld2_global(from + j);
        column[GDN_DSTEP_COLUMNS] = gdn_ld2_global(a.x + (uint64_t)p.b * a.x_stride + c);
    }
    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t c) {
        load_columns(a, p, c);
        GDN_UNROLL
        for (uint32_t j = 0; j <= GDN_DSTEP_COLUMNS; j++)
            tap[j] = gdn_dstep_raw(a.weight, a.flags & GDN_DSTEP_WEIGHT_F32, (uint64_t)c * (GDN_DSTEP_COLUMNS + 1) + j);
    }
    /* The sum of the taps, oldest first, through SiLU. */
    GDN_METHOD float value(const gdn_dstep &a, uint32_t c) const {
        const bool f32 = a.flags & GDN_DSTEP_WEIGHT_F32;
        float acc = a.bias ? gdn_weight(a.bias, f32, c) : 0.0f;
        GDN_UNROLL
        for (uint32_t j = 0; j <= GDN_DSTEP_COLUMNS; j++) {
            const float w = gdn_dstep_value(tap[j], f32), v = gdn_dstep_value(column[j], false);
            acc = f32 ? acc + w * v : gdn_fma(w, v, acc);
        }
        return gdn_silu_fast(acc);
    }
    /* The columns move on by one. */
    GDN_METHOD void store(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t c) const {
        gdn_bf16 *const to = p.conv + (uint64_t)c * a.state_len;
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_DSTEP_COLUMNS; j++) to[j] = gdn_bf16 { (uint16_t)column[j + 1] };
    }
};

GDN_DEVICE float gdn_dstep_round(float x) {
    return gdn_to_f32(gdn_to_bf16(x));
}

/* The sum of squares of 128 values in shared memory; whole warps, every lane gets it. */
GDN_DEVICE float gdn_dstep_squares(const float *y) {
    const float *const piece = y + 8 * (gdn_lane() % 16);
    const float4 lo = gdn_ld16f(piece), hi = gdn_ld16f(piece + 4);
    float sum = gdn_fma(lo.x, lo.x, 0.0f);
    sum = gdn_fma(lo.y, lo.y, sum);
    sum = gdn_fma(lo.z, lo.z, sum);
    sum = gdn_fma(lo.w, lo.w, sum);
    sum = gdn_fma(hi.x, hi.x, sum);
    sum = gdn_fma(hi.y, hi.y, sum);
    sum = gdn_fma(hi.z, hi.z, sum);
    sum = gdn_fma(hi.w, hi.w, sum);
    GDN_UNROLL
    for (int d = 8; d > 0; d /= 2) sum += __shfl_xor_sync(GDN_FULL_MASK, sum, d);
    return sum;
}
GDN_DEVICE float gdn_dstep_l2norm(float y, float sum) {
    return gdn_dstep_round(y * gdn_rsqrt(sum + 1e-6f));
}

/* ---- gates of the head: what a gate (beta false) or beta comes from ---- */
struct gdn_dstep_gate {
    uint32_t row;
    float A_log, dt_bias;
    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, bool beta) {
        const bool made = a.flags & GDN_DSTEP_GATES_MADE;
        const uint32_t h = p.head, at = a.vpg ? h / a.vpg * 2 * a.vpg + h % a.vpg : h;
        row = gdn_dstep_raw(beta ? a.b : a.a, made, (uint64_t)p.b * (beta ? a.b_stride : a.a_stride) + at);
        if (made || beta) return;
        A_log = gdn_ld4f_global(a.A_log + h);
        dt_bias = gdn_ld4f_global(a.dt_bias + h);
    }
    GDN_METHOD float decay(const gdn_dstep &a) const {
        const bool made = a.flags & GDN_DSTEP_GATES_MADE;
        const float v = gdn_dstep_value(row, made);
        return gdn_step_decay(made ? v : gdn_gate_exact(v, A_log, dt_bias, false));
    }
    GDN_METHOD float beta(const gdn_dstep &a) const {
        const bool made = a.flags & GDN_DSTEP_GATES_MADE;
        const float v = gdn_dstep_value(row, made);
        return made ? v : gdn_beta_exact(v);
    }
};

/* ---- the gated norm of one output column, and what it reads ---- */
struct gdn_dstep_norm {
    uint32_t z, w;
    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t i) {
        z = gdn_ld2_global(a.z + (uint64_t)p.b * a.z_stride + p.head * GDN_DSTEP_DIM + i);
        w = gdn_dstep_raw(a.norm_weight, a.flags & GDN_DSTEP_NORM_F32, i);
    }
    GDN_METHOD gdn_bf16 apply(const gdn_dstep &a, float x, float sum) const {
        const float r = gdn_rsqrt(sum * (1.0f / GDN_DSTEP_DIM) + a.eps), gate = gdn_dstep_value(z, false);
        const float weight = gdn_dstep_value(w, a.flags & GDN_DSTEP_NORM_F32);
        return gdn_to_bf16(x * r * weight * ((a.flags & GDN_DSTEP_SIGMOID ? 1.0f : gate) * gdn_sigmoid_fast(gate)));
    }
};

/* ---- who writes the conv state of q and k ---- */
GDN_DEVICE uint32_t *gdn_dstep_count(const gdn_dstep &a, const gdn_dstep_place &p) {
    return a.arrived + (uint64_t)p.b * a.nk + p.kh;
}
/* By one thread, behind a barrier at which all threads of the block have used what they read: no load is on its way any more, so that
 * a count without an order will do. */
GDN_DEVICE uint32_t gdn_dstep_arrive(const gdn_dstep &a, const gdn_dstep_place &p) {
    return gridDim.x == 1 ? 0 : gdn_atomic_add(gdn_dstep_count(a, p), 1);
}
GDN_DEVICE bool gdn_dstep_is_last(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t before) {
    if (gridDim.x == 1) return true;
    if (before + 1 != gridDim.x) return false;
    *gdn_dstep_count(a, p) = 0;
    return true;
}
