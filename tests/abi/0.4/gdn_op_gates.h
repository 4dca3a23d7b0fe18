/* gdn_op_gates.h - decay and beta from raw projections (gates), and the b/a projection fused with them (ba_gates, ba_gemv).
 *
 *     beta = 1 / (1 + exp(-b))          gate = exp( -exp(min(A_log, 20)) * log(1 + exp(min(a + dt_bias, 20))) )
 *
 * gate is the LINEAR decay (gate_form LOG: its argument, the log decay). The clamps at 20 are part of the contract on
 * every target; a head with a + dt_bias > 20 differs from Hugging Face's softplus there, by at most the clamp.
 * Outputs are f32, never rounded to the activation type. A_log and dt_bias are f32.
 *
 * Interleaved b/a rows: a checkpoint may keep, per key head, vpg rows of b and then vpg rows of a (vpg = nv/nk). Column n
 * of such a row, with gd = 2*vpg, w = n % gd, grp = n / gd, is beta of head grp*vpg + w for w < vpg, else the gate of head
 * grp*vpg + w - vpg. vpg = nv is the plain order, all b then all a. */
#ifndef GDN_OP_GATES_H
#define GDN_OP_GATES_H

#include "gdn_ops.h"

/* ---- gates: elementwise, a and b projected before ------------------------------------------------------------------ */
typedef struct gdn_gates_shape {
    gdn_shape base; /* act_type: of a and b                                                        */
    uint32_t nv;
    uint32_t a_stride, b_stride; /* elements from row to row; 0 = nv (2*nv when vpg is set)               */
    uint32_t gate_stride;        /* f32 elements from output row to row, [gate nv | beta nv]; 0 = 2*nv          */
    uint32_t vheads_per_group;   /* 0: a and b rows hold nv values. vpg: heads h is at (h/vpg)*2*vpg + h%vpg
                                  * from either base (b = row, a = row + vpg)                               */
    uint32_t gate_form;          /* GDN_GATE_LINEAR or GDN_GATE_LOG (gdn_op_rule.h), no default                 */
    uint32_t param_type;         /* of A_log and dt_bias: GDN_F32; others are refused                           */
    uint32_t max_rows;
} gdn_gates_shape;
#define GDN_GATES_PTRS(X)                      \
    X(GDN_GATES_P_A, "a", GDN_REQ)             \
    X(GDN_GATES_P_B, "b", GDN_REQ)             \
    X(GDN_GATES_P_A_LOG, "A_log", GDN_REQ)     \
    X(GDN_GATES_P_DT_BIAS, "dt_bias", GDN_REQ) \
    X(GDN_GATES_P_OUT, "out", GDN_REQ)
#define GDN_GATES_U32S(X) X(GDN_GATES_U_ROWS, "rows", GDN_REQ)
enum { GDN_GATES_PTRS(GDN_ORDER_) GDN_GATES_N_PTR };
enum { GDN_GATES_U32S(GDN_ORDER_) GDN_GATES_N_U32 };

/* ---- ba_gates (dense_gemm_ba_gates_prefill) and ba_gemv (dense_gemv_ba_gates, M = 1, separate outputs) ------------------
 * r[m][n] = sum_k A[m][k] B[n][k], then the gates; output row [gate nv | beta nv], LINEAR.
 * The reduction order is a bit contract: lane l of 64 takes 8-element vectors l, l+64, ... < K/8 ascending, elements in
 * order, product rounded then added to one f32 accumulator; lanes by shuffle-down 16, 8, 4, 2, 1 in each half of 32;
 * result = lower half + upper half. */
typedef struct gdn_ba_shape {
    gdn_shape base;       /* act_type: of A                                              */
    uint32_t N, K;        /* N = 2*nv columns; K % 8 == 0                                */
    uint32_t K_stride;    /* elements from activation row to row, >= K; 0 = K            */
    uint32_t gate_stride; /* f32 elements from output row to row; 0 = 2*nv               */
    uint32_t nv;
    uint32_t vheads_per_group;
    uint32_t weight_type; /* of B: GDN_BF16 or GDN_F32 (cpu)                             */
    uint32_t max_m;
} gdn_ba_shape;
#define GDN_BA_GATES_PTRS(X)                      \
    X(GDN_BA_GATES_P_A, "A", GDN_REQ)             \
    X(GDN_BA_GATES_P_B, "B", GDN_REQ)             \
    X(GDN_BA_GATES_P_A_LOG, "A_log", GDN_REQ)     \
    X(GDN_BA_GATES_P_DT_BIAS, "dt_bias", GDN_REQ) \
    X(GDN_BA_GATES_P_GATE_OUT, "gate_out", GDN_REQ)
#define GDN_BA_GATES_U32S(X) X(GDN_BA_GATES_U_M, "M", GDN_REQ)
enum { GDN_BA_GATES_PTRS(GDN_ORDER_) GDN_BA_GATES_N_PTR };
enum { GDN_BA_GATES_U32S(GDN_ORDER_) GDN_BA_GATES_N_U32 };

#define GDN_BA_GEMV_PTRS(X)                      \
    X(GDN_BA_GEMV_P_A, "A", GDN_REQ)             \
    X(GDN_BA_GEMV_P_B, "B", GDN_REQ)             \
    X(GDN_BA_GEMV_P_A_LOG, "A_log", GDN_REQ)     \
    X(GDN_BA_GEMV_P_DT_BIAS, "dt_bias", GDN_REQ) \
    X(GDN_BA_GEMV_P_GATE, "gate", GDN_REQ)       \
    X(GDN_BA_GEMV_P_BETA, "beta", GDN_REQ)
enum { GDN_BA_GEMV_PTRS(GDN_ORDER_) GDN_BA_GEMV_N_PTR };
enum { GDN_BA_GEMV_N_U32 = 0 };

/* Guards of the Hopper twin, first match wins; the texts are the contract. */
#define GDN_BA_GUARD_MAP(X)                                                              \
    X(GDN_BA_NOT_REQUESTED, "not requested")                                             \
    X(GDN_BA_KERNEL_ABSENT, "kernel absent from this image (kernels/hopper only)")       \
    X(GDN_BA_EMPTY, "empty BA projection")                                               \
    X(GDN_BA_K_TAIL, "K is not a multiple of 8 (the uint4 K sweep would drop a tail)")   \
    X(GDN_BA_K_STRIDE, "K_stride < K: the activation row is shorter than the reduction") \
    X(GDN_BA_FEW_TOKENS, "too few tokens to fill the device at one CTA per token")
/* What the operation itself refuses besides, as GDN_E_ARG (empty, tail and stride come with the texts above). */
#define GDN_BA_N_TEXT     "N is not 2*nv"
#define GDN_BA_ALIGN_TEXT "activation rows are not 16-byte aligned"

#endif
