/* gpu_target.h - what a GPU target is made of: its modules, their entries, and the embedded texts they are compiled from. */
#ifndef GDN_GPU_TARGET_H
#define GDN_GPU_TARGET_H

#include <stdint.h>

extern const uint32_t gdn__embedded_headers, gdn__embedded_sources;
extern const char *const gdn__embedded_headers_names[], *const gdn__embedded_headers_texts[];
extern const char *const gdn__embedded_sources_names[], *const gdn__embedded_sources_texts[];

/* X(ID, file, arch, forms). arch NULL = portable, compiled for the device that is there; else for exactly that architecture, and absent
 * on any other device. forms: which builds of the source there are.
 *   PLAIN    one, for every plan: loaded when the target opens. The others are loaded by the plan that needs them (gpu_builds.c).
 *   RULE     one for each combination of GPU_RULE_*
 *   STEP     the same with GPU_STEP_L2NORM
 *   OTHERS   as RULE, with -DGDN_OTHER_SPINES: the entries of a file that only a lever asks for
 *   COLUMNS  -DGDN_BA_TC_COLUMNS=32 (form 0), 64, 96, 128
 * RULE_CORE, STEP_CORE, RULE_CKPT: each form twice, its second half (GPU_HALF) with -DGDN_CORE or -DGDN_CHECKPOINTS: the entries that
 * most plans do not need. */
enum { GPU_PLAIN, GPU_RULE, GPU_OTHERS, GPU_STEP, GPU_COLUMNS, GPU_RULE_CORE, GPU_STEP_CORE, GPU_RULE_CKPT, GPU_FORMS = 32 };
enum { GPU_RULE_VK = 1, GPU_RULE_TILED = 2, GPU_RULE_LOG = 4, GPU_STEP_L2NORM = 8, GPU_HALF = 16 };
#define GPU_MODULE_MAP(X)                                                       \
    X(SSM_PREPROCESS, "ssm_preprocess.cu", 0, PLAIN)                            \
    X(CAUSAL_CONV1D, "causal_conv1d.cu", 0, PLAIN)                              \
    X(GATED_RMSNORM, "gated_rmsnorm.cu", 0, PLAIN)                              \
    X(GDN_STATE, "gdn_state.cu", 0, PLAIN)                                      \
    X(CHECK, "gdn_check.cu", 0, PLAIN)                                          \
    X(PREPARE, "gdn_rule_prepare.cu", 0, PLAIN)                                 \
    X(FLA, "gated_delta_rule_fla.cu", 0, RULE_CORE)                             \
    X(FLA_OTHERS, "gated_delta_rule_fla.cu", 0, OTHERS)                         \
    X(RECURRENT, "gated_delta_rule_recurrent.cu", 0, RULE)                      \
    X(DECODE, "gated_delta_rule_decode.cu", 0, STEP_CORE)                       \
    X(WY, "gated_delta_rule_wy.cu", 0, STEP)                                    \
    X(WY3, "gated_delta_rule_wy3.cu", 0, STEP)                                  \
    X(WY4, "gated_delta_rule_wy4.cu", 0, STEP)                                  \
    X(WYN, "gated_delta_rule_wyn.cu", 0, STEP_CORE)                             \
    X(VERIFY_SPLIT, "gated_delta_rule_verify_split.cu", 0, STEP_CORE)           \
    X(BF16_STATE, "gated_delta_rule_bf16_state.cu", 0, STEP)                    \
    X(WY4_WOA, "gated_delta_rule_wy4_woa.cu", 0, STEP_CORE)                     \
    X(WY4_ROUND, "gated_delta_rule_wy4_round.cu", 0, STEP)                      \
    X(CHUNK_TC, "gated_delta_rule_chunk_tc.cu", "sm_90a", RULE_CORE)            \
    X(TC_OTHERS, "gated_delta_rule_chunk_tc.cu", "sm_90a", OTHERS)              \
    X(FLA_HOPPER, "gated_delta_rule_fla_hopper.cu", "sm_90a", RULE_CORE)        \
    X(W4A4_QUANT, "w4a4_quant.cu", 0, PLAIN)                                    \
    X(W4A4_MX, "w4a4_gemv_mx.cu", "sm_121f", PLAIN)                             \
    X(W4A4_MX_PS, "w4a4_gemv_mx_ps.cu", "sm_121f", PLAIN)                       \
    X(W4A4_F16, "w4a4_gemv_f16.cu", "sm_90a", PLAIN)                            \
    X(W4A4_F16_WIDE, "w4a4_gemv_f16_wide.cu", "sm_90a", PLAIN)                  \
    X(FAST, "gated_delta_rule_fast.cu", "sm_90a", RULE_CKPT)                    \
    X(FAST_SEGMENTS, "gated_delta_rule_fast_segments.cu", "sm_90a", RULE)       \
    X(FAST_WN, "gated_delta_rule_fast_wn.cu", "sm_90a", RULE_CKPT)              \
    X(FAST_WN_SEGMENTS, "gated_delta_rule_fast_wn_segments.cu", "sm_90a", RULE) \
    X(DECODE_STEP, "gdn_decode_step.cu", 0, PLAIN)                              \
    X(SSM_BA_GATES_HOPPER, "ssm_ba_gates_hopper.cu", 0, PLAIN)                  \
    X(SSM_BA_GATES_TC, "ssm_ba_gates_tc.cu", "sm_90a", COLUMNS)
#define GPU_ENUM_(ID, ...) GPU_M_##ID,
enum { GPU_MODULE_MAP(GPU_ENUM_) GPU_MODULES };
#undef GPU_ENUM_

/* X(ID, module, op, entry): the one place where an entry's name stands; handles are bound and routes and log lines are printed from
 * it. Entries of RULE modules also exist as `<entry>_ext`, but for the fast prefill's, the `_seq` ones and the round, which have every
 * argument. op: the operation that the counters give it to. */
#define GPU_ENTRY_MAP(X)                                                            \
    X(BA_PARENT, SSM_PREPROCESS, BA_GATES, "dense_gemm_ba_gates_prefill")           \
    X(BA_GEMV, SSM_PREPROCESS, BA_GEMV, "dense_gemv_ba_gates")                      \
    X(GATES, SSM_PREPROCESS, GATES, "gdn_gates")                                    \
    X(CONV1D, CAUSAL_CONV1D, CONV1D, "causal_conv1d")                               \
    X(CONV_FUSED, CAUSAL_CONV1D, CONV_FUSED, "conv_silu_split_l2norm")              \
    X(NORM, GATED_RMSNORM, NORM, "gated_rmsnorm")                                   \
    X(STATE_COPY, GDN_STATE, STATE_COPY, "gdn_state_copy")                          \
    X(STATE_ZERO, GDN_STATE, STATE_ZERO, "gdn_state_zero")                          \
    X(CHECK, CHECK, COUNT_, "gdn_check_values")                                     \
    X(TABLES, PREPARE, PREFILL, "gdn_rule_tables")                                  \
    X(L2NORM, PREPARE, PREFILL, "gdn_rule_l2norm")                                  \
    X(WU, FLA, PREFILL, "gated_delta_rule_recompute_wu")                            \
    X(VFUSED, FLA_OTHERS, PREFILL, "gated_delta_rule_chunk_delta_h_vfused")         \
    X(VTILE, FLA_OTHERS, PREFILL, "gated_delta_rule_chunk_delta_h_vtile")           \
    X(PIPE, FLA, PREFILL, "gated_delta_rule_chunk_delta_h_pipe")                    \
    X(FWD_O, FLA_OTHERS, PREFILL, "gated_delta_rule_chunk_fwd_o")                   \
    X(FWD_O_MMA8, FLA, PREFILL, "gated_delta_rule_chunk_fwd_o_mma8")                \
    X(RECURRENT, RECURRENT, PREFILL, "gated_delta_rule_recurrent_prefill")          \
    X(DECODE, DECODE, DECODE, "gated_delta_rule_decode")                            \
    X(DECODE_SPLIT, DECODE, DECODE, "gated_delta_rule_decode_split")                \
    X(WY2, WY, VERIFY, "gated_delta_rule_wy2")                                      \
    X(WY3, WY3, VERIFY, "gated_delta_rule_wy3")                                     \
    X(WY4, WY4, VERIFY, "gated_delta_rule_wy4")                                     \
    X(WYN, WYN, VERIFY, "gated_delta_rule_wyn")                                     \
    X(WY4_SPLIT, VERIFY_SPLIT, VERIFY, "gated_delta_rule_wy4_split")                \
    X(WYN_SPLIT, VERIFY_SPLIT, VERIFY, "gated_delta_rule_wyn_split")                \
    X(WOA, WY4_WOA, VERIFY_WOA, "gated_delta_rule_wy4_woa")                         \
    X(FOLD, WY4_WOA, FOLD, "gated_delta_rule_wy4_fold")                             \
    X(FLAG_CLEAR, WY4_WOA, FLAG_CLEAR, "gated_delta_rule_wy4_flag_clear")           \
    X(WOA_SEQ, WY4_WOA, VERIFY_WOA, "gated_delta_rule_wy4_woa_seq")                 \
    X(FOLD_SEQ, WY4_WOA, FOLD, "gated_delta_rule_wy4_fold_seq")                     \
    X(FLAG_CLEAR_SEQ, WY4_WOA, FLAG_CLEAR, "gated_delta_rule_wy4_flag_clear_seq")   \
    X(ROUND, WY4_ROUND, ROUND, "gated_delta_rule_wy4_round")                        \
    X(ROUND_STAY, WY4_ROUND, ROUND, "gated_delta_rule_wy4_round_stay")              \
    X(DECODE16, BF16_STATE, DECODE, "gated_delta_rule_decode_bf16_state")           \
    X(WYN16, BF16_STATE, VERIFY, "gated_delta_rule_wyn_bf16_state")                 \
    X(W4A4_QUANT, W4A4_QUANT, W4A4_QUANT, "w4a4_quant_rows")                        \
    X(W4A4_QUANT_EXT, W4A4_QUANT, W4A4_QUANT, "w4a4_quant_rows_ext")                \
    X(W4A4_MX8, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx8")                                \
    X(W4A4_MX16, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx16")                              \
    X(W4A4_MX16_NT2, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx16_nt2")                      \
    X(W4A4_MX32, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx32")                              \
    X(W4A4_MX32_NT4, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx32_nt4")                      \
    X(W4A4_MX64, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx64")                              \
    X(W4A4_MX64_NT2, W4A4_MX, W4A4_GEMV, "w4a4_gemv_mx64_nt2")                      \
    X(W4A4_MX16_PS, W4A4_MX_PS, W4A4_GEMV, "w4a4_gemv_mx16_ps")                     \
    X(W4A4_MX32_PS, W4A4_MX_PS, W4A4_GEMV, "w4a4_gemv_mx32_ps")                     \
    X(W4A4_F16_8, W4A4_F16, W4A4_GEMV, "w4a4_gemv_f16_8")                           \
    X(W4A4_F16_16, W4A4_F16, W4A4_GEMV, "w4a4_gemv_f16_16")                         \
    X(W4A4_F16_16_WIDE, W4A4_F16_WIDE, W4A4_GEMV, "w4a4_gemv_f16_16_wide")          \
    X(W4A4_F16_32, W4A4_F16_WIDE, W4A4_GEMV, "w4a4_gemv_f16_32")                    \
    X(W4A4_F16_64, W4A4_F16_WIDE, W4A4_GEMV, "w4a4_gemv_f16_64")                    \
    X(TCFUSE, TC_OTHERS, PREFILL, "gated_delta_rule_chunk_delta_h_tcfuse")          \
    X(TCFUSE_X2, CHUNK_TC, PREFILL, "gated_delta_rule_chunk_delta_h_tcfuse_x2")     \
    X(WU_HOPPER, FLA_HOPPER, PREFILL, "gated_delta_rule_recompute_wu_hopper")       \
    X(FWD_O_HOPPER, FLA_HOPPER, PREFILL, "gated_delta_rule_chunk_fwd_o_hopper")     \
    X(FAST_PREPARE, FAST, PREFILL, "gated_delta_rule_fast_prepare")                 \
    X(FAST_PREPARE_TWO, FAST, PREFILL, "gated_delta_rule_fast_prepare_two")         \
    X(FAST_FWD, FAST, PREFILL, "gated_delta_rule_fast_fwd")                         \
    X(FAST_MANY, FAST, PREFILL, "gated_delta_rule_fast_many")                       \
    X(FAST_CARRY, FAST_SEGMENTS, PREFILL, "gated_delta_rule_fast_carry")            \
    X(FAST_JOIN, FAST_SEGMENTS, PREFILL, "gated_delta_rule_fast_join")              \
    X(FAST_PASS, FAST_SEGMENTS, PREFILL, "gated_delta_rule_fast_pass")              \
    X(FAST_WN_PREPARE, FAST_WN, PREFILL, "gated_delta_rule_fast_wn_prepare")        \
    X(FAST_WN_FWD, FAST_WN, PREFILL, "gated_delta_rule_fast_wn_fwd")                \
    X(FAST_WN_CARRY, FAST_WN_SEGMENTS, PREFILL, "gated_delta_rule_fast_wn_carry")   \
    X(FAST_WN_PASS, FAST_WN_SEGMENTS, PREFILL, "gated_delta_rule_fast_wn_pass")     \
    X(DSTEP, DECODE_STEP, DECODE_STEP, "gdn_decode_step")                           \
    X(DSTEP_WIDE, DECODE_STEP, DECODE_STEP, "gdn_decode_step_wide")                 \
    X(BA_TWIN, SSM_BA_GATES_HOPPER, BA_GATES, "dense_gemm_ba_gates_prefill_hopper") \
    X(BA_TC, SSM_BA_GATES_TC, BA_GATES, "dense_gemm_ba_gates_prefill_tc")
#define GPU_ENUM_(ID, ...) GPU_E_##ID,
enum { GPU_ENTRY_MAP(GPU_ENUM_) GPU_ENTRIES };
#undef GPU_ENUM_

typedef struct gpu_target {
    const char *name;            /* "hopper"                                                  */
    uint32_t cc_major, cc_minor; /* the device that it is for                                 */
    const char *arch;            /* "sm_90a"                                                  */
    uint64_t modules;            /* bit GPU_M_*: those it carries                             */
} gpu_target;
/* Defined once in each plugin. */
extern const gpu_target gdn__gpu_target;

/* gb10's modules; hopper inherits all of them. */
#define GPU_GB10_MODULES                                                                                                              \
    ((1ull << GPU_M_SSM_PREPROCESS) | (1ull << GPU_M_CAUSAL_CONV1D) | (1ull << GPU_M_GATED_RMSNORM) | (1ull << GPU_M_GDN_STATE) |     \
     (1ull << GPU_M_CHECK) | (1ull << GPU_M_PREPARE) | (1ull << GPU_M_FLA) | (1ull << GPU_M_FLA_OTHERS) | (1ull << GPU_M_RECURRENT) | \
     (1ull << GPU_M_DECODE) | (1ull << GPU_M_WY) | (1ull << GPU_M_WY3) | (1ull << GPU_M_WY4) | (1ull << GPU_M_WYN) |                  \
     (1ull << GPU_M_VERIFY_SPLIT) | (1ull << GPU_M_WY4_WOA) | (1ull << GPU_M_WY4_ROUND) | (1ull << GPU_M_W4A4_QUANT) |                \
     (1ull << GPU_M_W4A4_MX) | (1ull << GPU_M_W4A4_MX_PS) | (1ull << GPU_M_DECODE_STEP) | (1ull << GPU_M_BF16_STATE))
#define GPU_HOPPER_MODULES                                                                                                 \
    (GPU_GB10_MODULES | (1ull << GPU_M_SSM_BA_GATES_HOPPER) | (1ull << GPU_M_SSM_BA_GATES_TC) | (1ull << GPU_M_CHUNK_TC) | \
     (1ull << GPU_M_TC_OTHERS) | (1ull << GPU_M_FLA_HOPPER) | (1ull << GPU_M_W4A4_F16) | (1ull << GPU_M_W4A4_F16_WIDE) |   \
     (1ull << GPU_M_FAST) | (1ull << GPU_M_FAST_SEGMENTS) | (1ull << GPU_M_FAST_WN) | (1ull << GPU_M_FAST_WN_SEGMENTS))

#endif
