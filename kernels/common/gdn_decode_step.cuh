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

/* ---- where a block is: value head `head` of sequence b ---- */
struct gdn_dstep_place {
    gdn_bf16 *conv; /* of the slot; NULL: padding */
    float *state;   /* of the head */
    uint32_t b, head, kh, na;
    bool fresh;
};
GDN_DEVICE gdn_dstep_place gdn_dstep_find(const gdn_dstep &a) {
    gdn_dstep_place p = { nullptr, nullptr, blockIdx.y, blockIdx.x, 0, 0, false };
    const int32_t slot = a.slots ? a.slots[p.b] : (int32_t)p.b;
    p.kh = a.flags & GDN_DSTEP_TILED ? p.head % a.nk : p.head / (a.nv / a.nk);
    if (slot < 0) return p;
    p.fresh = a.fresh && a.fresh[p.b];
    p.na = a.accepted && !p.fresh ? (uint32_t)a.accepted[p.b] : 0;
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

/* ---- one channel's convolution ---- */
struct gdn_dstep_window {
    gdn_bf16 column[GDN_DSTEP_COLUMNS], x;

    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t c) {
        const gdn_bf16 *const from = p.conv + (uint64_t)c * a.state_len + p.na;
        x = a.x[(uint64_t)p.b * a.x_stride + c];
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_DSTEP_COLUMNS; j++) column[j] = p.fresh ? gdn_bf16 { 0 } : from[j];
    }
    /* The sum of the taps, oldest first, through SiLU. */
    GDN_METHOD float value(const gdn_dstep &a, uint32_t c) const {
        const bool f32 = a.flags & GDN_DSTEP_WEIGHT_F32;
        float acc = a.bias ? gdn_weight(a.bias, f32, c) : 0.0f;
        GDN_UNROLL
        for (uint32_t j = 0; j <= GDN_DSTEP_COLUMNS; j++) {
            const float w = gdn_weight(a.weight, f32, (uint64_t)c * (GDN_DSTEP_COLUMNS + 1) + j);
            const float v = gdn_to_f32(j < GDN_DSTEP_COLUMNS ? column[j] : x);
            acc = f32 ? acc + w * v : gdn_fma(w, v, acc);
        }
        return gdn_silu_fast(acc);
    }
    /* The columns move on by one. */
    GDN_METHOD void store(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t c) const {
        gdn_bf16 *const to = p.conv + (uint64_t)c * a.state_len;
        to[0] = column[1];
        to[1] = column[2];
        to[2] = x;
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

/* ---- gates of the head ---- */
GDN_DEVICE uint32_t gdn_dstep_gate_at(const gdn_dstep &a, uint32_t head) {
    return a.vpg ? head / a.vpg * 2 * a.vpg + head % a.vpg : head;
}
GDN_DEVICE float gdn_dstep_gate(const gdn_dstep &a, const gdn_dstep_place &p) {
    const uint64_t row = (uint64_t)p.b * a.a_stride;
    if (a.flags & GDN_DSTEP_GATES_MADE) return gdn_step_decay(static_cast<const float *>(a.a)[row + p.head]);
    const float v = gdn_to_f32(static_cast<const gdn_bf16 *>(a.a)[row + gdn_dstep_gate_at(a, p.head)]);
    return gdn_step_decay(gdn_gate_exact(v, a.A_log[p.head], a.dt_bias[p.head], false));
}
GDN_DEVICE float gdn_dstep_beta(const gdn_dstep &a, const gdn_dstep_place &p) {
    const uint64_t row = (uint64_t)p.b * a.b_stride;
    if (a.flags & GDN_DSTEP_GATES_MADE) return static_cast<const float *>(a.b)[row + p.head];
    return gdn_beta_exact(gdn_to_f32(static_cast<const gdn_bf16 *>(a.b)[row + gdn_dstep_gate_at(a, p.head)]));
}

/* ---- the gated norm of one output column, and what it reads ---- */
struct gdn_dstep_norm {
    float z, w;
    GDN_METHOD void load(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t i) {
        z = gdn_to_f32(a.z[(uint64_t)p.b * a.z_stride + p.head * GDN_DSTEP_DIM + i]);
        w = gdn_weight(a.norm_weight, a.flags & GDN_DSTEP_NORM_F32, i);
    }
    GDN_METHOD gdn_bf16 apply(const gdn_dstep &a, float x, float sum) const {
        const float r = gdn_rsqrt(sum * (1.0f / GDN_DSTEP_DIM) + a.eps);
        return gdn_to_bf16(x * r * w * ((a.flags & GDN_DSTEP_SIGMOID ? 1.0f : z) * gdn_sigmoid_fast(z)));
    }
};

/* ---- who writes the conv state of q and k ---- */
GDN_DEVICE uint32_t *gdn_dstep_count(const gdn_dstep &a, const gdn_dstep_place &p) {
    return a.arrived + (uint64_t)p.b * a.nk + p.kh;
}
/* By one thread, behind a barrier that all readers of this block have passed. */
GDN_DEVICE uint32_t gdn_dstep_arrive(const gdn_dstep &a, const gdn_dstep_place &p) {
    return a.nv == a.nk ? 0 : gdn_atomic_add_acq_rel(gdn_dstep_count(a, p), 1);
}
GDN_DEVICE bool gdn_dstep_is_last(const gdn_dstep &a, const gdn_dstep_place &p, uint32_t before) {
    if (a.nv == a.nk) return true;
    if (before + 1 != a.nv / a.nk) return false;
    gdn_st_release(gdn_dstep_count(a, p), 0);
    return true;
}
