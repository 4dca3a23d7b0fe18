/* gdn_op_step.h - a decode step of one token a sequence in one launch: what lies between the projections in front of a layer and the
 * one behind it.
 *
 *     row = SiLU(conv(x))                     width 4, its state moves on by one column         gdn_op_conv.h
 *     q, k, v = row, q and k by their norm    x / sqrt(sum x^2 + 1e-6) a head
 *     gate, beta from a, b, A_log, dt_bias                                                      gdn_op_gates.h
 *     S, o = the gated delta rule             one token, state [K][V] f32                       gdn_op_rule.h, decode
 *     out = gated RMS norm(o, z)                                                                gdn_op_norm.h
 *
 * The bytes of conv state, state and out (padding rows aside) are those of conv_fused, gates, decode and norm one after another on the
 * same target: what those write in the activation type on the way is rounded here too.
 *
 * x rows are [Q nk*k_dim][K nk*k_dim][V nv*v_dim], x_stride apart; z rows nv heads of v_dim, z_stride apart, so that z may lie behind x
 * in one projection's row. out is dense, row (b*nv + h)*v_dim. conv weight [channels][width], bias [channels] or NULL. x, z and out must
 * not overlap.
 * gates: GDN_STEP_GATES_RAW: a and b as in gdn_op_gates.h, act_type. GDN_STEP_GATES_MADE: a is the decay and b the beta of each head,
 * f32 (what ba_gates wrote: a_stride = b_stride = its gate_stride); A_log and dt_bias are not looked at and may be NULL.
 *
 * Both states are in place. Conv state, act_type, [slot][channels][state_len], its window at accepted[b] (NULL: 0), columns 0..width-2
 * written. State: sequence b at state + slot[b]*state_stride. slots NULL: sequence b uses slot b; the same slot for both states. A
 * negative slot is PADDING: nothing of the row is read, no state is written, its output row is zeroed. fresh[b] = 1: zero window and
 * zero state, the slot is not read. Two sequences of one launch must not have the same slot.
 *
 * workspace: as many bytes as the plan says (0: not looked at), zero before its first launch; every launch leaves it ready for the
 * next. Launches on different streams need one each, and nothing else may write it in between.
 * A plan is refused on every target by the first guard of GDN_STEP_GUARD_MAP that fires; the four operations above take such shapes. */
#ifndef GDN_OP_STEP_H
#define GDN_OP_STEP_H

#include "gdn_ops.h"

enum { GDN_STEP_GATES_RAW = 1, GDN_STEP_GATES_MADE = 2 }; /* gates, no default */

typedef struct gdn_step_shape {
    gdn_shape base;
    uint32_t nk, nv;             /* key heads, value heads; nv % nk must be 0                            */
    uint32_t k_dim, v_dim;       /* 128                                                                  */
    uint32_t width;              /* taps of the convolution: 4                                           */
    uint32_t state_len;          /* columns of a conv state row; 0 = width-1                             */
    uint32_t x_stride;           /* elements from row to row; 0 = 2*nk*k_dim + nv*v_dim                  */
    uint32_t z_stride;           /* the same; 0 = nv*v_dim                                               */
    uint32_t weight_type;        /* of the convolution's weight and bias: GDN_BF16 or GDN_F32            */
    uint32_t gates;              /* GDN_STEP_GATES_RAW or _MADE                                          */
    uint32_t a_stride, b_stride; /* elements from row to row; 0 = nv (2*nv when MADE or vheads_per_group) */
    uint32_t vheads_per_group;   /* RAW: as in gdn_gates_shape; MADE: must be 0                          */
    uint32_t param_type;         /* RAW: of A_log and dt_bias, GDN_F32; MADE: not looked at              */
    uint32_t head_map;           /* GDN_HEADS_* (gdn_op_rule.h)                                          */
    uint32_t state_type;         /* GDN_F32; others are refused by name                                  */
    uint32_t norm_act;           /* GDN_NORM_* (gdn_op_norm.h)                                           */
    uint32_t norm_weight_type;   /* GDN_BF16 or GDN_F32                                                  */
    float eps;                   /* of the norm, > 0                                                     */
    float scale;                 /* output scale of the rule; 0 = 1/sqrt(k_dim)                          */
    uint32_t max_batch;          /* sequences of a launch                                                */
    uint32_t pad_;               /* must be 0                                                            */
    uint64_t conv_slot_stride;   /* elements from slot to slot; 0 = channels*state_len                   */
    uint64_t state_stride;       /* f32 elements from slot to slot; 0 = nv*k_dim*v_dim                   */
    uint64_t num_slots;          /* for GDN_PLAN_CHECKED; 0 = unknown                                    */
} gdn_step_shape;

#define GDN_DECODE_STEP_PTRS(X)                                                            \
    X(GDN_DECODE_STEP_P_X, "x", GDN_REQ)                                                   \
    X(GDN_DECODE_STEP_P_WEIGHT, "weight", GDN_REQ)                                         \
    X(GDN_DECODE_STEP_P_BIAS, "bias", GDN_OPT)                                             \
    X(GDN_DECODE_STEP_P_CONV_STATE, "conv_state", GDN_REQ)                                 \
    X(GDN_DECODE_STEP_P_A, "a", GDN_REQ)                                                   \
    X(GDN_DECODE_STEP_P_B, "b", GDN_REQ)                                                   \
    X(GDN_DECODE_STEP_P_A_LOG, "A_log", GDN_OPT)     /* f32; required by RAW */            \
    X(GDN_DECODE_STEP_P_DT_BIAS, "dt_bias", GDN_OPT) /* f32; required by RAW */            \
    X(GDN_DECODE_STEP_P_STATE, "state", GDN_REQ)     /* f32 */                             \
    X(GDN_DECODE_STEP_P_Z, "z", GDN_REQ)                                                   \
    X(GDN_DECODE_STEP_P_NORM_WEIGHT, "norm_weight", GDN_REQ) /* [v_dim] */                 \
    X(GDN_DECODE_STEP_P_OUT, "out", GDN_REQ)                                               \
    X(GDN_DECODE_STEP_P_SLOTS, "slots", GDN_OPT)       /* int32 */                         \
    X(GDN_DECODE_STEP_P_FRESH, "fresh", GDN_OPT)       /* u8 */                            \
    X(GDN_DECODE_STEP_P_ACCEPTED, "accepted", GDN_OPT) /* int32, 0..state_len-(width-1) */ \
    X(GDN_DECODE_STEP_P_WORKSPACE, "workspace", GDN_OPT)
#define GDN_DECODE_STEP_U32S(X) X(GDN_DECODE_STEP_U_BATCH, "batch", GDN_REQ)
enum { GDN_DECODE_STEP_PTRS(GDN_ORDER_) GDN_DECODE_STEP_N_PTR };
enum { GDN_DECODE_STEP_U32S(GDN_ORDER_) GDN_DECODE_STEP_N_U32 };

/* First match wins; the texts are the contract. */
#define GDN_STEP_GUARD_MAP(X)                             \
    X(GDN_STEP_DIMS, "k_dim or v_dim is not 128")         \
    X(GDN_STEP_WIDTH, "the convolution's width is not 4") \
    X(GDN_STEP_STATE_TYPE, "state is not f32")            \
    X(GDN_STEP_BATCH, "more than 65535 sequences in a launch")

#endif
