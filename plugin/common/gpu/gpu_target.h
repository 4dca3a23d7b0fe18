/* gpu_target.h - what a GPU target is made of: its modules, their entries, and the embedded texts they are compiled from. */
#ifndef GDN_GPU_TARGET_H
#define GDN_GPU_TARGET_H

#include <stdint.h>

extern const uint32_t gdn__embedded_headers, gdn__embedded_sources;
extern const char *const gdn__embedded_headers_names[], *const gdn__embedded_headers_texts[];
extern const char *const gdn__embedded_sources_names[], *const gdn__embedded_sources_texts[];

/* X(ID, file, arch): arch NULL = portable, compiled for the device that is there; else for exactly that architecture, and absent on
 * any other device. */
#define GPU_MODULE_MAP(X)                               \
    X(SSM_PREPROCESS, "ssm_preprocess.cu", 0)           \
    X(CAUSAL_CONV1D, "causal_conv1d.cu", 0)             \
    X(GATED_RMSNORM, "gated_rmsnorm.cu", 0)             \
    X(GDN_STATE, "gdn_state.cu", 0)                     \
    X(SSM_BA_GATES_HOPPER, "ssm_ba_gates_hopper.cu", 0) \
    X(SSM_BA_GATES_TC, "ssm_ba_gates_tc.cu", "sm_90a")
#define GPU_ENUM_(ID, ...) GPU_M_##ID,
enum { GPU_MODULE_MAP(GPU_ENUM_) GPU_MODULES };
#undef GPU_ENUM_

/* X(ID, module, entry): the one place where an entry's name stands; handles are bound and routes are printed from it. */
#define GPU_ENTRY_MAP(X)                                                  \
    X(BA_PARENT, SSM_PREPROCESS, "dense_gemm_ba_gates_prefill")           \
    X(BA_GEMV, SSM_PREPROCESS, "dense_gemv_ba_gates")                     \
    X(GATES, SSM_PREPROCESS, "gdn_gates")                                 \
    X(CONV1D, CAUSAL_CONV1D, "causal_conv1d")                             \
    X(CONV_FUSED, CAUSAL_CONV1D, "conv_silu_split_l2norm")                \
    X(NORM, GATED_RMSNORM, "gated_rmsnorm")                               \
    X(STATE_COPY, GDN_STATE, "gdn_state_copy")                            \
    X(STATE_ZERO, GDN_STATE, "gdn_state_zero")                            \
    X(BA_TWIN, SSM_BA_GATES_HOPPER, "dense_gemm_ba_gates_prefill_hopper") \
    X(BA_TC, SSM_BA_GATES_TC, "dense_gemm_ba_gates_prefill_tc")
#define GPU_ENUM_(ID, ...) GPU_E_##ID,
enum { GPU_ENTRY_MAP(GPU_ENUM_) GPU_ENTRIES };
#undef GPU_ENUM_

/* X(ID, module, define): forms of a module that exist only with a define; a plan loads the one that it needs. */
#define GPU_VARIANT_MAP(X)                                 \
    X(BA_TC_32, SSM_BA_GATES_TC, "-DGDN_BA_TC_COLUMNS=32") \
    X(BA_TC_64, SSM_BA_GATES_TC, "-DGDN_BA_TC_COLUMNS=64") \
    X(BA_TC_96, SSM_BA_GATES_TC, "-DGDN_BA_TC_COLUMNS=96") \
    X(BA_TC_128, SSM_BA_GATES_TC, "-DGDN_BA_TC_COLUMNS=128")
#define GPU_ENUM_(ID, ...) GPU_V_##ID,
enum { GPU_VARIANT_MAP(GPU_ENUM_) GPU_VARIANTS };
#undef GPU_ENUM_

typedef struct gpu_target {
    const char *name;            /* "hopper"                                                  */
    uint32_t cc_major, cc_minor; /* the device that it is for                                 */
    const char *arch;            /* "sm_90a"                                                  */
    uint32_t modules;            /* bit GPU_M_*: those it carries                             */
} gpu_target;
/* Defined once in each plugin. */
extern const gpu_target gdn__gpu_target;

/* gb10's modules; hopper inherits all of them. */
#define GPU_GB10_MODULES \
    ((1u << GPU_M_SSM_PREPROCESS) | (1u << GPU_M_CAUSAL_CONV1D) | (1u << GPU_M_GATED_RMSNORM) | (1u << GPU_M_GDN_STATE))
#define GPU_HOPPER_MODULES (GPU_GB10_MODULES | (1u << GPU_M_SSM_BA_GATES_HOPPER) | (1u << GPU_M_SSM_BA_GATES_TC))

#endif
