/* gated_delta_rule_fla_hopper.cu - the first and the last kernel of the chunked prefill for Hopper, twins of gated_delta_rule_fla.cu's.
 * Chunks of 64 tokens, k_dim = v_dim = 128, grid (num_chunks, nv, batch), block 512; blocks past a sequence's own chunks exit.
 *
 * gated_delta_rule_recompute_wu_hopper, dynamic shared memory 79,104:
 *     gc_i = sum_{j<=i} log decay_j       logs in parallel, additions serial in index order: the parent's bits
 *     L_il = beta_i exp(gc_i - gc_l) <k_i, k_l>, l < i;   (I + L) U = diag(beta) V;   (I + L) W = diag(beta exp(gc)) K
 *   reads key, value, gate, beta; writes W, U bf16 [64][128], gc f32 [64] at scratch row chunk*nv + head.
 * gated_delta_rule_chunk_fwd_o_hopper, dynamic shared memory 97,536:
 *     O_i = ( exp(gc_i) <q_i, S_c> + sum_{l<=i} exp(gc_i - gc_l) <q_i, k_l> uc_l ) scale
 *   reads query, key, gc, S, uc; writes output bf16, row token*nv + head.
 *
 * Rows past the last valid token are neither read nor written. Any qk_stride, v_stride and 2-byte aligned base of query, key, value and
 * output: where 16-byte copies do not fit the same kernel copies narrower, same bytes. W, U, S, uc: 16-byte aligned. _ext: struct
 * gdn_rule_ext; a padding sequence is not read, its output rows become zeros.
 *
 * Against the parents: the solve inverts I + L (16x16 diagonal blocks in f32, the rest by products of two bf16 limbs on tensor
 * cores) and multiplies the exact bf16 K and V by the inverse in two limbs, instead of substituting token by token; q.S stays f32
 * and the gated q.k enters its product with uc as two limbs. */
#include "gdn_fwd_o_tc.cuh"
#include "gdn_recompute_wu_tc.cuh"

#define WU_ARGS                                                                                                                            \
    const gdn_bf16 *key, const gdn_bf16 *value, const float *gate, const float *beta, gdn_bf16 *W, gdn_bf16 *U, float *gc, uint32_t batch, \
        uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride,  \
        uint32_t gb_stride, const int32_t *cu_seqlens, const int32_t *cu_chunks, uint32_t is_varlen
#define WU_OPERANDS                                                                                               \
    (void)batch, (void)kd, (void)vd, (void)cu_chunks;                                                             \
    const gdn_wu_tc::operands o = { key,        value, gate, beta,      W,        U,         gc,         seq_len, \
                                    num_chunks, nk,    nv,   qk_stride, v_stride, gb_stride, cu_seqlens, is_varlen != 0 }
#define FWD_O_ARGS                                                                                                                   \
    const gdn_bf16 *query, const gdn_bf16 *key, const float *gate, const float *gc, const gdn_bf16 *S, const gdn_bf16 *uc,           \
        gdn_bf16 *output, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, \
        uint32_t qk_stride, uint32_t gb_stride, const int32_t *cu_seqlens, const int32_t *cu_chunks, uint32_t is_varlen
#define FWD_O_OPERANDS                                                                                        \
    (void)gate, (void)batch, (void)vd, (void)gb_stride, (void)cu_chunks;                                      \
    const gdn_fwd_o_tc::operands o = {                                                                        \
        query, key, gc, S, uc, output, seq_len, num_chunks, nk, nv, kd, qk_stride, cu_seqlens, is_varlen != 0 \
    }

#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(512, 2) gated_delta_rule_recompute_wu_hopper(WU_ARGS) {
    gdn_begin();
    WU_OPERANDS;
    gdn_wu_tc::run(o, gdn_rule_ext {});
}
#endif
#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(512, 2) gated_delta_rule_recompute_wu_hopper_ext(WU_ARGS, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    WU_OPERANDS;
    gdn_wu_tc::run(o, GDN_PREFILL_EXT);
}
#endif
#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(512, 2) gated_delta_rule_chunk_fwd_o_hopper(FWD_O_ARGS) {
    gdn_begin();
    FWD_O_OPERANDS;
    gdn_fwd_o_tc::run(o, gdn_rule_ext {});
}
#endif
#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(512, 2) gated_delta_rule_chunk_fwd_o_hopper_ext(FWD_O_ARGS, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    FWD_O_OPERANDS;
    gdn_fwd_o_tc::run(o, GDN_PREFILL_EXT);
}
#endif
#undef WU_ARGS
#undef WU_OPERANDS
#undef FWD_O_ARGS
#undef FWD_O_OPERANDS
