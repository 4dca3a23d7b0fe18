/* gdn_op_conv.h - depthwise causal convolution over time, alone or fused with SiLU, split and L2 norm.
 *
 *     y[t][c] = act( bias[c] + sum_{j<width} weight[c][j] * x[t - (width-1) + j][c] )     act = SiLU or none
 *
 * x rows before the sequence's first token come from the conv state. weight [channels][width], oldest tap first.
 *
 * Conv state, act_type, [slot][channels][state_len], oldest column first, state_len = width-1 + extra. The window is the
 * width-1 columns [na, na + width-1) where na = accepted[b] (NULL: 0): accepting na rows of an earlier verify is an
 * offset, not a copy. What is written:
 *   plain (prefill, update)     columns [0, width-1): the last width-1 of (window ++ x); extra columns are left alone
 *   GDN_CONV_KEEP_ROWS (verify) columns [0, width-1+T): window ++ all T rows, T <= extra; the next launch names how many
 *                               of them were accepted
 * A sequence without tokens keeps its state (na != 0: its window moves to column 0). state NULL: zeros before the first
 * token, nothing written. Negative slot = padding: nothing read, no state written, output rows zeroed. fresh[b] = 1: the
 * window is zero, the slot is not read. slots NULL: sequence b uses slot b. Packed batches as in gdn_op_rule.h.
 * The outputs must not overlap x: later rows read earlier ones. */
#ifndef GDN_OP_CONV_H
#define GDN_OP_CONV_H

#include "gdn_ops.h"

enum { GDN_CONV_ACT_NONE = 0, GDN_CONV_ACT_SILU = 1 };
enum { GDN_CONV_MAX_WIDTH = 8 };

typedef struct gdn_conv_shape {
    gdn_shape base;
    uint32_t channels;                     /* conv1d: any; conv_fused: 2*nk*k_dim + nv*v_dim                  */
    uint32_t width;                        /* taps, 1..8                                                      */
    uint32_t state_len;                    /* columns of a state row; 0 = width-1                             */
    uint32_t x_stride;                     /* elements from token to token; 0 = channels                      */
    uint32_t out_stride;                   /* conv1d: the same for out; conv_fused: not used                  */
    uint32_t silu;                         /* GDN_CONV_ACT_*; conv_fused: always SiLU, must be 1              */
    uint32_t weight_type;                  /* GDN_BF16 or GDN_F32, of weight and bias                         */
    uint32_t offsets;                      /* GDN_OFFSETS_* of cu_seqlens                                     */
    uint32_t max_tokens;                   /* tokens of all sequences together                                */
    uint32_t max_batch;                    /* sequences                                                       */
    uint32_t nk, nv;                       /* conv_fused: heads ...                                           */
    uint32_t k_dim, v_dim;                 /* ... and head sizes; k_dim at most 512 (gb10, hopper: 256)    */
    uint32_t q_stride, k_stride, v_stride; /* conv_fused outputs; 0 = channels (a packed row) */
    uint32_t pad_;                         /* must be 0                                                       */
    uint64_t slot_stride;                  /* elements from slot to slot; 0 = channels*state_len              */
    uint64_t num_slots;                    /* for GDN_PLAN_CHECKED; 0 = unknown                               */
} gdn_conv_shape;

/* causal_conv1d */
#define GDN_CONV1D_PTRS(X)                              \
    X(GDN_CONV1D_P_X, "x", GDN_REQ)                     \
    X(GDN_CONV1D_P_WEIGHT, "weight", GDN_REQ)           \
    X(GDN_CONV1D_P_BIAS, "bias", GDN_OPT)               \
    X(GDN_CONV1D_P_STATE, "state", GDN_OPT)             \
    X(GDN_CONV1D_P_SLOTS, "slots", GDN_OPT) /* int32 */ \
    X(GDN_CONV1D_P_FRESH, "fresh", GDN_OPT) /* u8 */    \
    X(GDN_CONV1D_P_OUT, "out", GDN_REQ)                 \
    X(GDN_CONV1D_P_CU_SEQLENS, "cu_seqlens", GDN_OPT)   \
    X(GDN_CONV1D_P_ACCEPTED, "accepted", GDN_OPT) /* int32, 0..state_len-(width-1) */
#define GDN_CONV1D_U32S(X)                  \
    X(GDN_CONV1D_U_BATCH, "batch", GDN_REQ) \
    X(GDN_CONV1D_U_SEQ_LEN, "seq_len", GDN_REQ) /* uniform: tokens of each; packed: 0 */
enum { GDN_CONV1D_PTRS(GDN_ORDER_) GDN_CONV1D_N_PTR };
enum { GDN_CONV1D_U32S(GDN_ORDER_) GDN_CONV1D_N_U32 };

/* conv_silu_split_l2norm: the packed row [Q|K|V] in, three outputs; q and k heads leave as x / sqrt(sum x^2 + 1e-6).
 * With out_q = base, out_k = base + nk*k_dim, out_v = base + 2*nk*k_dim and strides of channels it is one packed row. */
#define GDN_CONV_FUSED_PTRS(X)                            \
    X(GDN_CONV_FUSED_P_X, "x", GDN_REQ)                   \
    X(GDN_CONV_FUSED_P_WEIGHT, "weight", GDN_REQ)         \
    X(GDN_CONV_FUSED_P_BIAS, "bias", GDN_OPT)             \
    X(GDN_CONV_FUSED_P_STATE, "state", GDN_OPT)           \
    X(GDN_CONV_FUSED_P_SLOTS, "slots", GDN_OPT)           \
    X(GDN_CONV_FUSED_P_FRESH, "fresh", GDN_OPT)           \
    X(GDN_CONV_FUSED_P_OUT_Q, "out_q", GDN_REQ)           \
    X(GDN_CONV_FUSED_P_OUT_K, "out_k", GDN_REQ)           \
    X(GDN_CONV_FUSED_P_OUT_V, "out_v", GDN_REQ)           \
    X(GDN_CONV_FUSED_P_CU_SEQLENS, "cu_seqlens", GDN_OPT) \
    X(GDN_CONV_FUSED_P_ACCEPTED, "accepted", GDN_OPT)
#define GDN_CONV_FUSED_U32S(X)                  \
    X(GDN_CONV_FUSED_U_BATCH, "batch", GDN_REQ) \
    X(GDN_CONV_FUSED_U_SEQ_LEN, "seq_len", GDN_REQ)
enum { GDN_CONV_FUSED_PTRS(GDN_ORDER_) GDN_CONV_FUSED_N_PTR };
enum { GDN_CONV_FUSED_U32S(GDN_ORDER_) GDN_CONV_FUSED_N_U32 };

#endif
