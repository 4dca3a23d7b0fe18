/* shape_fields.c - one X-macro a shape struct, one row an operation. */
#include "shape_fields.h"

static const cli_word types[] = { { "bf16", GDN_BF16 }, { "f32", GDN_F32 }, { "f16", GDN_F16 }, { 0 } };
static const cli_word flag_bits[] = { { "checked", GDN_PLAN_CHECKED },     { "qk_l2norm", GDN_QK_L2NORM },
                                      { "keep_rows", GDN_CONV_KEEP_ROWS }, { "by_sequence", GDN_VERIFY_BY_SEQUENCE },
                                      { "bf16_state", GDN_BF16_STATE },    { 0 } };
static const cli_word offset_kinds[] = { { "none", GDN_OFFSETS_NONE }, { "i32", GDN_OFFSETS_I32 }, { "i64", GDN_OFFSETS_I64 }, { 0 } };
static const cli_word gate_forms[] = { { "linear", GDN_GATE_LINEAR }, { "log", GDN_GATE_LOG }, { 0 } };
static const cli_word head_maps[] = { { "grouped", GDN_HEADS_GROUPED }, { "tiled", GDN_HEADS_TILED }, { 0 } };
static const cli_word layouts[] = { { "k_major", GDN_STATE_K_MAJOR }, { "v_major", GDN_STATE_V_MAJOR }, { 0 } };
static const cli_word addresses[] = {
    { "contiguous", GDN_STATE_CONTIGUOUS }, { "pool", GDN_STATE_POOL }, { "table", GDN_STATE_TABLE }, { 0 }
};
static const cli_word step_gates[] = { { "raw", GDN_STEP_GATES_RAW }, { "made", GDN_STEP_GATES_MADE }, { 0 } };
static const cli_word norm_acts[] = { { "silu", GDN_NORM_SILU }, { "sigmoid", GDN_NORM_SIGMOID }, { 0 } };
#define plain NULL /* a number and nothing else */

/* X(struct, field, kind, words) */
#define BASE_FIELDS(X, T) X(T, flags, CLI_U32, flag_bits) X(T, act_type, CLI_U32, types)
#define RULE_FIELDS(X, T)                \
    X(T, nk, CLI_U32, plain)             \
    X(T, nv, CLI_U32, plain)             \
    X(T, k_dim, CLI_U32, plain)          \
    X(T, v_dim, CLI_U32, plain)          \
    X(T, qk_stride, CLI_U32, plain)      \
    X(T, v_stride, CLI_U32, plain)       \
    X(T, gb_stride, CLI_U32, plain)      \
    X(T, gate_form, CLI_U32, gate_forms) \
    X(T, head_map, CLI_U32, head_maps)   \
    X(T, state_layout, CLI_U32, layouts) \
    X(T, state_addr, CLI_U32, addresses) \
    X(T, state_type, CLI_U32, types)     \
    X(T, offsets, CLI_U32, offset_kinds) \
    X(T, max_tokens, CLI_U32, plain)     \
    X(T, max_batch, CLI_U32, plain)      \
    X(T, max_rows, CLI_U32, plain)       \
    X(T, ckpt_every, CLI_U32, plain)     \
    X(T, hi_capacity, CLI_U32, plain)    \
    X(T, slab_entries, CLI_U32, plain)   \
    X(T, stash_seqs, CLI_U32, plain)     \
    X(T, layers, CLI_U32, plain)         \
    X(T, scale, CLI_F32, plain)          \
    X(T, state_stride, CLI_U64, plain)   \
    X(T, num_slots, CLI_U64, plain)      \
    X(T, stash_stride, CLI_U64, plain)   \
    X(T, max_workspace, CLI_U64, plain)
#define CONV_FIELDS(X, T)                \
    X(T, channels, CLI_U32, plain)       \
    X(T, width, CLI_U32, plain)          \
    X(T, state_len, CLI_U32, plain)      \
    X(T, x_stride, CLI_U32, plain)       \
    X(T, out_stride, CLI_U32, plain)     \
    X(T, silu, CLI_U32, plain)           \
    X(T, weight_type, CLI_U32, types)    \
    X(T, offsets, CLI_U32, offset_kinds) \
    X(T, max_tokens, CLI_U32, plain)     \
    X(T, max_batch, CLI_U32, plain)      \
    X(T, nk, CLI_U32, plain)             \
    X(T, nv, CLI_U32, plain)             \
    X(T, k_dim, CLI_U32, plain)          \
    X(T, v_dim, CLI_U32, plain)          \
    X(T, q_stride, CLI_U32, plain)       \
    X(T, k_stride, CLI_U32, plain)       \
    X(T, v_stride, CLI_U32, plain)       \
    X(T, slot_stride, CLI_U64, plain)    \
    X(T, num_slots, CLI_U64, plain)
#define GATES_FIELDS(X, T)                 \
    X(T, nv, CLI_U32, plain)               \
    X(T, a_stride, CLI_U32, plain)         \
    X(T, b_stride, CLI_U32, plain)         \
    X(T, gate_stride, CLI_U32, plain)      \
    X(T, vheads_per_group, CLI_U32, plain) \
    X(T, gate_form, CLI_U32, gate_forms)   \
    X(T, param_type, CLI_U32, types)       \
    X(T, max_rows, CLI_U32, plain)
#define BA_FIELDS(X, T)                    \
    X(T, N, CLI_U32, plain)                \
    X(T, K, CLI_U32, plain)                \
    X(T, K_stride, CLI_U32, plain)         \
    X(T, gate_stride, CLI_U32, plain)      \
    X(T, nv, CLI_U32, plain)               \
    X(T, vheads_per_group, CLI_U32, plain) \
    X(T, weight_type, CLI_U32, types)      \
    X(T, max_m, CLI_U32, plain)
#define NORM_FIELDS(X, T)             \
    X(T, dim, CLI_U32, plain)         \
    X(T, heads, CLI_U32, plain)       \
    X(T, x_stride, CLI_U32, plain)    \
    X(T, z_stride, CLI_U32, plain)    \
    X(T, act, CLI_U32, norm_acts)     \
    X(T, weight_type, CLI_U32, types) \
    X(T, max_rows, CLI_U32, plain)    \
    X(T, eps, CLI_F32, plain)
#define STATE_FIELDS(X, T)           \
    X(T, bytes, CLI_U64, plain)      \
    X(T, src_stride, CLI_U64, plain) \
    X(T, dst_stride, CLI_U64, plain) \
    X(T, src_slots, CLI_U64, plain)  \
    X(T, dst_slots, CLI_U64, plain)  \
    X(T, max_count, CLI_U32, plain)
#define W4A4_FIELDS(X, T)       \
    X(T, N, CLI_U32, plain)     \
    X(T, K, CLI_U32, plain)     \
    X(T, max_m, CLI_U32, plain) \
    X(T, a_stride, CLI_U32, plain)

#define STEP_FIELDS(X, T)                  \
    X(T, nk, CLI_U32, plain)               \
    X(T, nv, CLI_U32, plain)               \
    X(T, k_dim, CLI_U32, plain)            \
    X(T, v_dim, CLI_U32, plain)            \
    X(T, width, CLI_U32, plain)            \
    X(T, state_len, CLI_U32, plain)        \
    X(T, x_stride, CLI_U32, plain)         \
    X(T, z_stride, CLI_U32, plain)         \
    X(T, weight_type, CLI_U32, types)      \
    X(T, gates, CLI_U32, step_gates)       \
    X(T, a_stride, CLI_U32, plain)         \
    X(T, b_stride, CLI_U32, plain)         \
    X(T, vheads_per_group, CLI_U32, plain) \
    X(T, param_type, CLI_U32, types)       \
    X(T, head_map, CLI_U32, head_maps)     \
    X(T, state_type, CLI_U32, types)       \
    X(T, norm_act, CLI_U32, norm_acts)     \
    X(T, norm_weight_type, CLI_U32, types) \
    X(T, eps, CLI_F32, plain)              \
    X(T, scale, CLI_F32, plain)            \
    X(T, max_batch, CLI_U32, plain)        \
    X(T, conv_slot_stride, CLI_U64, plain) \
    X(T, state_stride, CLI_U64, plain)     \
    X(T, num_slots, CLI_U64, plain)

/* The kind is checked against the member's own type. */
#define TYPE_OK(T, field, kind) \
    _Generic(((T *)0)->field, uint32_t : (kind) == CLI_U32, uint64_t : (kind) == CLI_U64, float : (kind) == CLI_F32)
#define CHECK(T, field, kind, words)    _Static_assert(TYPE_OK(T, field, kind), "the kind of " #field);
#define ROW(T, field, kind, words)      { #field, (uint32_t)offsetof(T, field), kind, words },
#define BASE_ROW(T, field, kind, words) { #field, (uint32_t)offsetof(T, base.field), kind, words },

RULE_FIELDS(CHECK, gdn_rule_shape)
CONV_FIELDS(CHECK, gdn_conv_shape)
GATES_FIELDS(CHECK, gdn_gates_shape)
BA_FIELDS(CHECK, gdn_ba_shape)
NORM_FIELDS(CHECK, gdn_norm_shape)
STATE_FIELDS(CHECK, gdn_state_shape)
W4A4_FIELDS(CHECK, gdn_w4a4_shape)
STEP_FIELDS(CHECK, gdn_step_shape)

static const cli_field rule_fields[] = { BASE_FIELDS(BASE_ROW, gdn_rule_shape) RULE_FIELDS(ROW, gdn_rule_shape) };
static const cli_field conv_fields[] = { BASE_FIELDS(BASE_ROW, gdn_conv_shape) CONV_FIELDS(ROW, gdn_conv_shape) };
static const cli_field gates_fields[] = { BASE_FIELDS(BASE_ROW, gdn_gates_shape) GATES_FIELDS(ROW, gdn_gates_shape) };
static const cli_field ba_fields[] = { BASE_FIELDS(BASE_ROW, gdn_ba_shape) BA_FIELDS(ROW, gdn_ba_shape) };
static const cli_field norm_fields[] = { BASE_FIELDS(BASE_ROW, gdn_norm_shape) NORM_FIELDS(ROW, gdn_norm_shape) };
static const cli_field flag_fields[] = { BASE_FIELDS(BASE_ROW, gdn_flag_shape) };
static const cli_field state_fields[] = { BASE_FIELDS(BASE_ROW, gdn_state_shape) STATE_FIELDS(ROW, gdn_state_shape) };
static const cli_field w4a4_fields[] = { BASE_FIELDS(BASE_ROW, gdn_w4a4_shape) W4A4_FIELDS(ROW, gdn_w4a4_shape) };
static const cli_field step_fields[] = { BASE_FIELDS(BASE_ROW, gdn_step_shape) STEP_FIELDS(ROW, gdn_step_shape) };

/* The counts of each operation, by the names in abi/; the NULL is for operations without any. */
#define NAME(ID, name, need)     name,
#define REQUIRED(ID, name, need) | ((need) == GDN_REQ ? 1u << (ID) : 0u)
#define NO_COUNTS(X)
#define COUNTED(X)                            \
    X(CONV1D, conv, GDN_CONV1D_U32S)          \
    X(CONV_FUSED, conv, GDN_CONV_FUSED_U32S)  \
    X(GATES, gates, GDN_GATES_U32S)           \
    X(BA_GATES, ba, GDN_BA_GATES_U32S)        \
    X(BA_GEMV, ba, NO_COUNTS)                 \
    X(PREFILL, rule, GDN_PREFILL_U32S)        \
    X(DECODE, rule, GDN_DECODE_U32S)          \
    X(VERIFY, rule, GDN_VERIFY_U32S)          \
    X(VERIFY_WOA, rule, GDN_VERIFY_WOA_U32S)  \
    X(FOLD, rule, GDN_FOLD_U32S)              \
    X(ROUND, rule, GDN_ROUND_U32S)            \
    X(FLAG_CLEAR, flag, GDN_FLAG_CLEAR_U32S)  \
    X(NORM, norm, GDN_NORM_U32S)              \
    X(STATE_COPY, state, GDN_STATE_COPY_U32S) \
    X(STATE_ZERO, state, GDN_STATE_ZERO_U32S) \
    X(W4A4_QUANT, w4a4, GDN_W4A4_QUANT_U32S)  \
    X(W4A4_GEMV, w4a4, GDN_W4A4_GEMV_U32S)    \
    X(DECODE_STEP, step, GDN_DECODE_STEP_U32S)
#define NAMES(OP, shape, U32S) static const char *const OP##_counts[] = { U32S(NAME) NULL };
COUNTED(NAMES)

#define OP_ROW(OP, shape, U32S)                                   \
    { GDN_OP_##OP,                                                \
      (uint32_t)sizeof(gdn_##shape##_shape),                      \
      shape##_fields,                                             \
      (uint32_t)(sizeof shape##_fields / sizeof *shape##_fields), \
      (uint32_t)(sizeof OP##_counts / sizeof *OP##_counts - 1),   \
      OP##_counts,                                                \
      0u U32S(REQUIRED) },
static const cli_shape shapes[] = { COUNTED(OP_ROW) };

const cli_shape *cli_shape_of(uint32_t op) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].op == op) return &shapes[i];
    return NULL;
}
