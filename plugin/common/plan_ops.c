/* plan_ops.c - the table of operations, made from the lists in abi/. */
#include "plan_common.h"

#define ARG_(ID, name, need) { name, need },
#define PTRS_(OP)            static const gdn__arg OP##_ptrs[] = { GDN_##OP##_PTRS(ARG_) }
#define U32S_(OP)            static const gdn__arg OP##_u32s[] = { GDN_##OP##_U32S(ARG_) }
#define NO_U32S_(OP)         static const gdn__arg OP##_u32s[1] = { { NULL, GDN_OPT } }
PTRS_(CONV1D);
U32S_(CONV1D);
PTRS_(CONV_FUSED);
U32S_(CONV_FUSED);
PTRS_(GATES);
U32S_(GATES);
PTRS_(BA_GATES);
U32S_(BA_GATES);
PTRS_(PREFILL);
U32S_(PREFILL);
PTRS_(DECODE);
U32S_(DECODE);
PTRS_(VERIFY);
U32S_(VERIFY);
PTRS_(VERIFY_WOA);
U32S_(VERIFY_WOA);
PTRS_(FOLD);
U32S_(FOLD);
PTRS_(ROUND);
U32S_(ROUND);
PTRS_(NORM);
U32S_(NORM);
PTRS_(STATE_COPY);
U32S_(STATE_COPY);
PTRS_(STATE_ZERO);
U32S_(STATE_ZERO);
PTRS_(W4A4_QUANT);
U32S_(W4A4_QUANT);
PTRS_(W4A4_GEMV);
U32S_(W4A4_GEMV);
PTRS_(DECODE_STEP);
U32S_(DECODE_STEP);
PTRS_(BA_GEMV);
NO_U32S_(BA_GEMV);
PTRS_(FLAG_CLEAR);
U32S_(FLAG_CLEAR);

/* X(OP, shape type, flags it takes) */
#define SHAPES_(X)                                                                                        \
    X(CONV1D, gdn_conv_shape, GDN_PLAN_CHECKED | GDN_CONV_KEEP_ROWS)                                      \
    X(CONV_FUSED, gdn_conv_shape, GDN_PLAN_CHECKED | GDN_CONV_KEEP_ROWS)                                  \
    X(GATES, gdn_gates_shape, GDN_PLAN_CHECKED)                                                           \
    X(BA_GATES, gdn_ba_shape, GDN_PLAN_CHECKED)                                                           \
    X(BA_GEMV, gdn_ba_shape, GDN_PLAN_CHECKED)                                                            \
    X(PREFILL, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM)                                          \
    X(DECODE, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM | GDN_BF16_STATE)                          \
    X(VERIFY, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM | GDN_VERIFY_BY_SEQUENCE | GDN_BF16_STATE) \
    X(VERIFY_WOA, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM | GDN_VERIFY_BY_SEQUENCE)              \
    X(FOLD, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM | GDN_VERIFY_BY_SEQUENCE)                    \
    X(ROUND, gdn_rule_shape, GDN_PLAN_CHECKED | GDN_QK_L2NORM | GDN_VERIFY_BY_SEQUENCE)                   \
    X(FLAG_CLEAR, gdn_flag_shape, GDN_PLAN_CHECKED | GDN_VERIFY_BY_SEQUENCE)                              \
    X(NORM, gdn_norm_shape, GDN_PLAN_CHECKED)                                                             \
    X(STATE_COPY, gdn_state_shape, GDN_PLAN_CHECKED)                                                      \
    X(STATE_ZERO, gdn_state_shape, GDN_PLAN_CHECKED)                                                      \
    X(W4A4_QUANT, gdn_w4a4_shape, GDN_PLAN_CHECKED)                                                       \
    X(W4A4_GEMV, gdn_w4a4_shape, GDN_PLAN_CHECKED)                                                        \
    X(DECODE_STEP, gdn_step_shape, GDN_PLAN_CHECKED)
static const char *const names[GDN_OP_COUNT_] = {
#define NAME_(NAME, number, text) [number] = (text),
    GDN_OP_MAP(NAME_)
};

#define ROW_(OP, type, take) \
    [GDN_OP_##OP] = { GDN_OP_##OP, (uint32_t)sizeof(type), (uint32_t)(take), GDN_##OP##_N_PTR, GDN_##OP##_N_U32, OP##_ptrs, OP##_u32s },
static const gdn__op rows[GDN_OP_COUNT_] = { SHAPES_(ROW_) };

const gdn__op *gdn__op_find(uint32_t op) {
    return op > 0 && op < GDN_OP_COUNT_ && rows[op].op == op ? &rows[op] : NULL;
}

const char *gdn__op_name(uint32_t op) {
    return op < GDN_OP_COUNT_ && names[op] ? names[op] : "operation";
}
