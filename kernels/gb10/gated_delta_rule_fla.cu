/* gated_delta_rule_fla.cu - prefill by 64-token chunks in three launches: recompute_wu, a scalar state spine, chunk_fwd_o. Contract:
 * abi/gdn_op_rule.h; formulas in kernels/common/gdn_{recompute_wu,spine,fwd_o}.cuh. K = V = 128.
 *
 * Scratch, row r = (chunk_offset + c)*nv + head: W, U, uc bf16 [64][128], S bf16 [128][128], gc f32 [64]. chunk_offset: b*num_chunks,
 * or (varlen) the sum of ceil(len/64) over earlier sequences. Rows past a chunk's last valid token are neither written nor read.
 *
 *   gated_delta_rule_recompute_wu                 grid (num_chunks, nv, batch)  block 256  smem 33024
 *   gated_delta_rule_chunk_delta_h_vfused         grid (nv, batch)              block 256  smem 49412
 *   gated_delta_rule_chunk_delta_h_vtile          grid (nv, batch)              block 512  smem 49412
 *   gated_delta_rule_chunk_delta_h_pipe           grid (nv, batch)              block 256  smem 99336   vfused's bytes; on Hopper 49152
 * static beside it gated_delta_rule_chunk_fwd_o                  grid (num_chunks, nv, batch)  block 512  smem 98816
 *   gated_delta_rule_chunk_fwd_o_mma8             the same                                              fwd_o's bytes
 *
 * A build has wu, _pipe and _mma8; with GDN_OTHER_SPINES it has what only a lever asks for: _vfused, _vtile and fwd_o's plain form.
 *
 * gate rows hold nv values gb_stride apart, beta is a pointer of its own with the same stride. cu_chunks is not read. Each entry has
 * an `_ext` form with gdn_rule_ext's fields appended (kernels/common/gdn_rule.cuh); grid.x then counts the chunks of this launch. */
#include "gdn_device.cuh"
#include "gdn_fwd_o.cuh"
#include "gdn_recompute_wu.cuh"
#include "gdn_spine_tile.cuh"

#if defined(GDN_EMU) || !defined(GDN_OTHER_SPINES)
#define GDN_USUAL_ENTRIES
#endif
#if defined(GDN_EMU) || defined(GDN_OTHER_SPINES)
#define GDN_OTHER_ENTRIES
#endif

/* ---- W, U, gc ---- */
#define WU_                                                                                                                                \
    const gdn_bf16 *key, const gdn_bf16 *value, const float *gate, const float *beta, gdn_bf16 *W, gdn_bf16 *U, float *gc, uint32_t batch, \
        uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride,  \
        uint32_t gb_stride, const int32_t *cu_seqlens, const int32_t *cu_chunks, uint32_t is_varlen
#define WU_VALUES_                                                                                                                \
    gdn_wu {                                                                                                                      \
        key, value, gate, beta, W, U, gc, seq_len, num_chunks, nk, nv, qk_stride, v_stride, gb_stride, cu_seqlens, is_varlen != 0 \
    }
#define UNUSED_WU_ (void)batch, (void)kd, (void)vd, (void)cu_chunks

#if defined(GDN_USUAL_ENTRIES) && defined(GDN_CORE_ENTRIES)
GDN_KERNEL(GDN_WU_BLOCK, 2) gated_delta_rule_recompute_wu(WU_) {
    gdn_begin();
    UNUSED_WU_;
    gdn_recompute_wu(WU_VALUES_, gdn_rule_ext {});
}
#endif
#if defined(GDN_USUAL_ENTRIES) && defined(GDN_EXT_ENTRIES)
GDN_KERNEL(GDN_WU_BLOCK, 2) gated_delta_rule_recompute_wu_ext(WU_, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    UNUSED_WU_;
    gdn_recompute_wu(WU_VALUES_, GDN_PREFILL_EXT);
}
#endif

/* ---- the state spines ---- */
#define SPINE_                                                                                                                       \
    void *h_state, const gdn_bf16 *W, const gdn_bf16 *U, const gdn_bf16 *key, const float *gate, const float *gc, gdn_bf16 *S_out,   \
        gdn_bf16 *uc_out, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, \
        uint32_t qk_stride, uint32_t gb_stride, uint32_t h_state_is_table, const int32_t *cu_seqlens, const int32_t *cu_chunks,      \
        uint32_t is_varlen
#define SPINE_VALUES_                                                                                                               \
    gdn_spine {                                                                                                                     \
        h_state, W, U, key, gate, gc, S_out, uc_out, seq_len, num_chunks, nk, nv, qk_stride, h_state_is_table != 0, is_varlen != 0, \
            cu_seqlens                                                                                                              \
    }
#define UNUSED_SPINE_ (void)batch, (void)kd, (void)vd, (void)gb_stride, (void)cu_chunks

/* Hopper has the shared memory for pipe as two matrix products in registers; elsewhere it takes four tokens side by side. The emulator
 * runs Hopper's. */
#ifndef GDN_PIPE_PATCH
#if defined(GDN_EMU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000)
#define GDN_PIPE_PATCH true
#else
#define GDN_PIPE_PATCH false
#endif
#endif
template <uint32_t SPLIT, uint32_t BUFFERS, uint32_t TOKENS> GDN_DEVICE void spine(const gdn_spine &a, const gdn_rule_ext &x) {
    if constexpr (BUFFERS == 2 && GDN_PIPE_PATCH)
        gdn_patch_spine(a, x);
    else
        gdn_scalar_spine<SPLIT, BUFFERS, TOKENS>(a, x);
}
/* split, buffers, tokens side by side */
#define SPINE_ENTRIES_(name, split, buffers, tokens)                                                                       \
    GDN_CORE_ENTRY(GDN_KERNEL(128 * split, 1) gated_delta_rule_chunk_delta_h_##name(SPINE_) {                              \
        gdn_begin();                                                                                                       \
        UNUSED_SPINE_;                                                                                                     \
        spine<split, buffers, tokens>(SPINE_VALUES_, gdn_rule_ext {});                                                     \
    })                                                                                                                     \
    GDN_EXT_ENTRY(GDN_KERNEL(128 * split, 1) gated_delta_rule_chunk_delta_h_##name##_ext(SPINE_, GDN_PREFILL_EXT_ARGS) {   \
        gdn_begin();                                                                                                       \
        UNUSED_SPINE_;                                                                                                     \
        spine<split, buffers, tokens>(SPINE_VALUES_, GDN_PREFILL_EXT);                                                     \
    })
#ifdef GDN_OTHER_ENTRIES
SPINE_ENTRIES_(vfused, 2, 1, 1)
SPINE_ENTRIES_(vtile, 4, 1, 1)
#endif
#ifdef GDN_USUAL_ENTRIES
SPINE_ENTRIES_(pipe, 2, 2, 4)
#endif

/* ---- the output ---- */
#define FWD_O_                                                                                                                       \
    const gdn_bf16 *query, const gdn_bf16 *key, const float *gate, const float *gc, const gdn_bf16 *S, const gdn_bf16 *uc,           \
        gdn_bf16 *output, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, \
        uint32_t qk_stride, uint32_t gb_stride, const int32_t *cu_seqlens, const int32_t *cu_chunks, uint32_t is_varlen
#define FWD_O_VALUES_                                                                                           \
    gdn_fwd_o {                                                                                                 \
        query, key, gate, gc, S, uc, output, seq_len, num_chunks, nk, nv, qk_stride, cu_seqlens, is_varlen != 0 \
    }

#define FWD_O_ENTRIES_(name, fast)                                                      \
    GDN_CORE_ENTRY(GDN_KERNEL(GDN_O_BLOCK, 1) name(FWD_O_) {                            \
        gdn_begin();                                                                    \
        UNUSED_SPINE_;                                                                  \
        gdn_chunk_fwd_o<fast>(FWD_O_VALUES_, gdn_rule_ext {});                          \
    })                                                                                  \
    GDN_EXT_ENTRY(GDN_KERNEL(GDN_O_BLOCK, 1) name##_ext(FWD_O_, GDN_PREFILL_EXT_ARGS) { \
        gdn_begin();                                                                    \
        UNUSED_SPINE_;                                                                  \
        gdn_chunk_fwd_o<fast>(FWD_O_VALUES_, GDN_PREFILL_EXT);                          \
    })
#ifdef GDN_OTHER_ENTRIES
FWD_O_ENTRIES_(gated_delta_rule_chunk_fwd_o, false)
#endif
#ifdef GDN_USUAL_ENTRIES
FWD_O_ENTRIES_(gated_delta_rule_chunk_fwd_o_mma8, true)
#endif
