/* gdn_ops.h - the list of operations, what every shape begins with, and the values that shapes share.
 *
 * An operation is planned from its shape (geometry and maxima, constant for the life of the plan) and launched with
 * pointers and this launch's counts, in the orders that the gdn_op_*.h headers give. Shape values are in elements
 * unless a name says bytes. A field that is 0 takes the default its comment names; a field without a default must be set.
 *
 * What a launch writes must lie apart from everything else that it is given: GDN_E_ARG, naming both, where sizes and strides alone show
 * that it does not. Rows may lie between each other's (a packed row's three outputs), slots be the same slots of one pool (input and
 * output states, hi, checkpoints, source and destination), and what a header calls in place the same memory. What only memory says is not
 * seen: slots of a pool whose num_slots is 0, rows of a packed batch, but for the first; tables. Maxima whose sizes and strides make more
 * bytes than an address reaches (2^62) are refused at the plan, likewise. */
#ifndef GDN_OPS_H
#define GDN_OPS_H

#include <stdint.h>

/* X(NAME, number, name). The number is the ABI, the name is what people type and logs print. */
#define GDN_OP_MAP(X)                 \
    X(CONV1D, 1, "conv1d")            \
    X(CONV_FUSED, 2, "conv_fused")    \
    X(GATES, 3, "gates")              \
    X(BA_GATES, 4, "ba_gates")        \
    X(BA_GEMV, 5, "ba_gemv")          \
    X(PREFILL, 6, "prefill")          \
    X(DECODE, 7, "decode")            \
    X(VERIFY, 8, "verify")            \
    X(VERIFY_WOA, 9, "verify_woa")    \
    X(FOLD, 10, "fold")               \
    X(FLAG_CLEAR, 11, "flag_clear")   \
    X(NORM, 12, "norm")               \
    X(STATE_COPY, 13, "state_copy")   \
    X(STATE_ZERO, 14, "state_zero")   \
    X(W4A4_QUANT, 15, "w4a4_quant")   \
    X(W4A4_GEMV, 16, "w4a4")          \
    X(DECODE_STEP, 17, "decode_step") \
    X(ROUND, 18, "round")
#define GDN_OP_ENUM_(NAME, number, name) GDN_OP_##NAME = (number),
enum { GDN_OP_MAP(GDN_OP_ENUM_) GDN_OP_COUNT_ };
#undef GDN_OP_ENUM_

/* Element types (act_type, state_type, weight_type, ...). 0 is never a type: what is forgotten is refused by name. */
enum { GDN_BF16 = 1, GDN_F32 = 2, GDN_F16 = 3 };

/* Plan flags (gdn_shape.flags). */
enum {
    GDN_PLAN_CHECKED = 1,       /* validate slots, offsets, accepted counts, sequence numbers, fold's record and gate ranges before
                                 * anything is written: a bad value gives GDN_E_CHECKED from this launch and a log line naming it.
                                 * A GPU's launch then waits for its stream; on a capturing stream it cannot: a replay runs
                                 * whatever its values are, and what it has found comes from the plan's next launch outside a
                                 * capture, which does not run.
                                 * Not looked at: beta, fresh, and where the first row of a packed batch lies (cu[0]).
                                 * For debugging: slots are compared pair by pair, batch^2 steps a launch                   */
    GDN_QK_L2NORM = 2,          /* rule operations: normalise q and k rows, x / sqrt(sum x^2 + 1e-6), before they are used   */
    GDN_CONV_KEEP_ROWS = 4,     /* convolution: keep every row of this launch in the state (verify), see gdn_op_conv.h      */
    GDN_VERIFY_BY_SEQUENCE = 8, /* verify, verify_woa, fold, round, flag_clear: what lives from a verify to its fold is found by
                                 * the sequence's own number, see gdn_op_rule.h                                       */
    GDN_BF16_STATE = 16         /* decode, verify: consent to state_type GDN_BF16, see gdn_op_rule.h                     */
};

/* Offsets of a packed batch (cu_seqlens): none = uniform sequences. */
enum { GDN_OFFSETS_NONE = 0, GDN_OFFSETS_I32 = 1, GDN_OFFSETS_I64 = 2 };

/* Pointers marked GDN_REQ must not be NULL when the launch has work; GDN_OPT ones may always be. */
enum { GDN_REQ = 1, GDN_OPT = 0 };

/* The first member of every shape. */
typedef struct gdn_shape {
    uint32_t struct_size; /* sizeof the whole shape that the caller was compiled with */
    uint32_t op;          /* GDN_OP_* */
    uint32_t flags;       /* GDN_PLAN_CHECKED, ... ; unknown bits are refused */
    uint32_t act_type;    /* type of activations in and out: GDN_BF16, or GDN_F32 (cpu) */
} gdn_shape;

/* Turns one row of a *_PTRS or *_U32S list into an enumerator. */
#define GDN_ORDER_(ID, name, need) ID,

#endif
