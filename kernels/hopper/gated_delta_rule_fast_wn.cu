/* gated_delta_rule_fast_wn.cu - the fast prefill of Hopper by W and N: what gated_delta_rule_fast.cu computes, with products in another
 * order, so that nothing that cancels later is rounded before. More accurate where keys are alike; the first kernel takes longer.
 *
 * gated_delta_rule_fast_wn_prepare   grid (blocks), block 256, dynamic shared memory 110,624. What a chunk needs of q, k, gate and beta
 *                                    alone, to the scratch (gdn_wn.cuh): f16 tiles of K and Q, W and N, scalars. Units are (chunk, key
 *                                    head) of all sequences. The first `whole` blocks have one each, the others up to `heads` value heads
 *                                    of one, nv / nk / heads, rounded up, blocks a unit. Two blocks a multiprocessor.
 * gated_delta_rule_fast_wn_fwd       grid (blocks), block 512, dynamic shared memory 230,384. The blocks take the tasks (sequence, value
 *                                    head, 64 value columns) in turn, serial over the chunks. Reads the scratch, value, states; writes
 *                                    output and states.
 * gated_delta_rule_fast_wn_fwd_ext   as fwd, and the states at multiples of ckpt_every tokens.
 *
 * in_tab, out_tab, fresh, scale, chunk_begin, chunk_end, qk_from_first, guards, range and padding: as in gated_delta_rule_fast.cu.
 * A prefill cut at multiples of 64 tokens gives the bytes of the whole; so do any other company in the batch, whole and heads. */
#include "gdn_wn_fwd.cuh"
#include "gdn_wn_prepare.cuh"

/* With GDN_CHECKPOINTS a build has what plans with checkpoints need beside the others. */
#if defined(GDN_EMU) || !defined(GDN_CHECKPOINTS)
GDN_KERNEL(256, 2)
gated_delta_rule_fast_wn_prepare(const gdn_bf16 *query, const gdn_bf16 *key, const float *gate, const float *beta, uint8_t *K16,
                                 uint8_t *Q16, uint8_t *W16, uint8_t *N16, float *scalars, uint32_t batch, uint32_t seq_len,
                                 uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t qk_stride, uint32_t gb_stride,
                                 const int32_t *cu_seqlens, uint32_t is_varlen, const uint64_t *in_tab, const uint64_t *out_tab,
                                 float scale, uint32_t chunk_begin, uint32_t chunk_end, uint32_t qk_from_first, uint32_t whole,
                                 uint32_t heads) {
    gdn_begin();
    const gdn_wn::prepare_args o = {
        query,          key,   gate,  beta, { K16, Q16, W16, N16, scalars }, seq_len, num_chunks, nk, nv, qk_stride, gb_stride, cu_seqlens,
        is_varlen != 0, batch, whole, heads
    };
    gdn_wn::prepare(o, gdn_rule_ext { in_tab, out_tab, nullptr, nullptr, 0, scale, chunk_begin, chunk_end, qk_from_first });
}
#endif

/* The serial pass; GDN_CHECKPOINTS builds have the form with checkpoints alone. */
#define FWD_                                                                                                                           \
    float *h_state, const gdn_bf16 *value, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *W16, uint8_t *N16, float *scalars,   \
        uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t v_stride, const int32_t *cu_seqlens, \
        uint32_t is_varlen, const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float scale, uint32_t chunk_begin,  \
        uint32_t chunk_end
#define FWD_BODY_(checkpoints, ckpt, ckpt_every)                                                                                           \
    gdn_begin();                                                                                                                           \
    const gdn_wn::fwd_args o = { h_state,  value,      output,        { K16, Q16, W16, N16, scalars }, batch, seq_len, num_chunks, nk, nv, \
                                 v_stride, cu_seqlens, is_varlen != 0 };                                                                   \
    gdn_wn::forward<checkpoints>(o, gdn_rule_ext { in_tab, out_tab, fresh, ckpt, ckpt_every, scale, chunk_begin, chunk_end, 0 })
#if defined(GDN_EMU) || !defined(GDN_CHECKPOINTS)
GDN_KERNEL(512, 1) gated_delta_rule_fast_wn_fwd(FWD_) {
    FWD_BODY_(false, nullptr, 0);
}
#endif
#if defined(GDN_EMU) || defined(GDN_CHECKPOINTS)
GDN_KERNEL(512, 1) gated_delta_rule_fast_wn_fwd_ext(FWD_, float *ckpt, uint32_t ckpt_every) {
    FWD_BODY_(true, ckpt, ckpt_every);
}
#endif
#undef FWD_
#undef FWD_BODY_
