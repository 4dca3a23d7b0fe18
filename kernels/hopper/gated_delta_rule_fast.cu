/* gated_delta_rule_fast.cu - the fast prefill of Hopper: two kernels instead of three, f16 operands (f32 accumulators and state), output
 * from the same pass as the state. Per (sequence, value head), chunks of 64 tokens, k_dim = v_dim = 128:
 *
 *     (I + L) u = beta (v - e^gc S k)     L[i][l] = beta_i e^(gc_i - gc_l) <k_i, k_l>, l < i
 *     o_i = scale (e^gc_i S q_i + sum_(l<=i) e^(gc_i - gc_l) <q_i, k_l> u_l),   S <- e^gc_last S + sum_i e^(gc_last - gc_i) k_i u_i
 *
 * gated_delta_rule_fast_prepare   grid (nk * parts, lead, batch), block 256, dynamic shared memory 67,792. What a chunk needs of q, k, gate
 * and beta alone, for the first `lead` chunks of each sequence, to the scratch (gdn_fast.cuh): f16 tiles of K and Q, T = (I + L)^-1, P,
 * scalars. Clears n_words words of it. Three blocks a multiprocessor. parts: blocks of `heads` value heads each that have those of a key
 * head. gated_delta_rule_fast_prepare_two   the same bytes by two blocks, which have more registers and are done sooner.
 * gated_delta_rule_fast_fwd       grid (blocks), block 512, dynamic shared memory 183,856. The first `helpers` blocks that come prepare the
 *                                 chunks from `lead` on and raise flags, the others have the tasks (sequence, value head, 64 value
 *                                 columns), serial over the chunks. Reads the scratch, value, states; writes output and states.
 * gated_delta_rule_fast_many      the same bytes sooner where blocks have several tasks; helpers 0, dynamic shared memory 216,672.
 * gated_delta_rule_fast_fwd_ext   as fwd, and the states at multiples of ckpt_every tokens.
 *
 * Unlike the version before, the second kernel begins when the first chunks are prepared, on the multiprocessors that its tasks leave free.
 * helpers 0 wants lead = all chunks, and words are not looked at; else blocks > helpers > 0 and n_words = 32 + nk * (chunks in the launch).
 * Arguments are those of both; in_tab, out_tab, fresh, scale, chunk_begin, chunk_end, qk_from_first as in struct gdn_rule_ext, null and 0
 * where there is none (then h_state is contiguous). A launch for later chunks takes the written states as its in_tab. Padding: nothing
 * is read, output rows become zero.
 * Guards: query, key, value, output 16-byte aligned; qk_stride and v_stride multiples of 8; nv / nk at most 8.
 * Range: |k|, |q|, |beta v|, |u| and |S| below 65,504 (f16); others become infinite.
 * A prefill cut at multiples of 64 tokens gives the bytes of the whole; so do any other company in the batch, lead and helpers. */
#include "gdn_fast_many.cuh"

/* With GDN_CHECKPOINTS a build has what plans with checkpoints need beside the others. */
#if defined(GDN_EMU) || !defined(GDN_CHECKPOINTS)
#define PREPARE_                                                                                                                  \
    const gdn_bf16 *query, const gdn_bf16 *key, const float *gate, const float *beta, uint8_t *K16, uint8_t *Q16, uint8_t *T16,   \
        uint8_t *P16, float *scalars, uint32_t *words, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv,           \
        uint32_t qk_stride, uint32_t gb_stride, const int32_t *cu_seqlens, uint32_t is_varlen, const uint64_t *in_tab,            \
        const uint64_t *out_tab, float scale, uint32_t chunk_begin, uint32_t chunk_end, uint32_t qk_from_first, uint32_t n_words, \
        uint32_t heads
#define PREPARE_BODY_                                                          \
    gdn_begin();                                                               \
    const gdn_fast::prepare_args o = { query,                                  \
                                       key,                                    \
                                       gate,                                   \
                                       beta,                                   \
                                       { K16, Q16, T16, P16, scalars, words }, \
                                       seq_len,                                \
                                       num_chunks,                             \
                                       nk,                                     \
                                       nv,                                     \
                                       qk_stride,                              \
                                       gb_stride,                              \
                                       cu_seqlens,                             \
                                       is_varlen != 0,                         \
                                       0,                                      \
                                       heads };                                \
    gdn_fast::prepare(o, gdn_rule_ext { in_tab, out_tab, nullptr, nullptr, 0, scale, chunk_begin, chunk_end, qk_from_first }, n_words)
GDN_KERNEL(256, 3) gated_delta_rule_fast_prepare(PREPARE_) {
    PREPARE_BODY_;
}
GDN_KERNEL(256, 2) gated_delta_rule_fast_prepare_two(PREPARE_) {
    PREPARE_BODY_;
}
#undef PREPARE_
#undef PREPARE_BODY_

GDN_KERNEL(512, 1)
gated_delta_rule_fast_fwd(float *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                          const float *beta, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *T16, uint8_t *P16, float *scalars,
                          uint32_t *words, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv,
                          uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, const int32_t *cu_seqlens, uint32_t is_varlen,
                          const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float scale, uint32_t chunk_begin,
                          uint32_t chunk_end, uint32_t qk_from_first, uint32_t lead, uint32_t helpers) {
    gdn_begin();
    const gdn_fast::prepare_args rest = { query,
                                          key,
                                          gate,
                                          beta,
                                          { K16, Q16, T16, P16, scalars, words },
                                          seq_len,
                                          num_chunks,
                                          nk,
                                          nv,
                                          qk_stride,
                                          gb_stride,
                                          cu_seqlens,
                                          is_varlen != 0,
                                          lead,
                                          0 };
    const gdn_fast::fwd_args o = { h_state, value, output, v_stride, batch, helpers, rest };
    gdn_fast::forward<false>(o, gdn_rule_ext { in_tab, out_tab, fresh, nullptr, 0, scale, chunk_begin, chunk_end, qk_from_first });
}
GDN_KERNEL(512, 1)
gated_delta_rule_fast_many(float *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                           const float *beta, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *T16, uint8_t *P16, float *scalars,
                           uint32_t *words, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv,
                           uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, const int32_t *cu_seqlens, uint32_t is_varlen,
                           const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float scale, uint32_t chunk_begin,
                           uint32_t chunk_end, uint32_t qk_from_first, uint32_t lead, uint32_t helpers) {
    gdn_begin();
    const gdn_fast::prepare_args rest = { query,
                                          key,
                                          gate,
                                          beta,
                                          { K16, Q16, T16, P16, scalars, words },
                                          seq_len,
                                          num_chunks,
                                          nk,
                                          nv,
                                          qk_stride,
                                          gb_stride,
                                          cu_seqlens,
                                          is_varlen != 0,
                                          lead,
                                          0 };
    const gdn_fast::fwd_args o = { h_state, value, output, v_stride, batch, helpers, rest };
    gdn_fast::forward_many(o, gdn_rule_ext { in_tab, out_tab, fresh, nullptr, 0, scale, chunk_begin, chunk_end, qk_from_first });
}
#endif

#if defined(GDN_EMU) || defined(GDN_CHECKPOINTS)
GDN_KERNEL(512, 1)
gated_delta_rule_fast_fwd_ext(float *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                              const float *beta, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *T16, uint8_t *P16, float *scalars,
                              uint32_t *words, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv,
                              uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, const int32_t *cu_seqlens, uint32_t is_varlen,
                              const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float scale, uint32_t chunk_begin,
                              uint32_t chunk_end, uint32_t qk_from_first, uint32_t lead, uint32_t helpers, float *ckpt,
                              uint32_t ckpt_every) {
    gdn_begin();
    const gdn_fast::prepare_args rest = { query,
                                          key,
                                          gate,
                                          beta,
                                          { K16, Q16, T16, P16, scalars, words },
                                          seq_len,
                                          num_chunks,
                                          nk,
                                          nv,
                                          qk_stride,
                                          gb_stride,
                                          cu_seqlens,
                                          is_varlen != 0,
                                          lead,
                                          0 };
    const gdn_fast::fwd_args o = { h_state, value, output, v_stride, batch, helpers, rest };
    gdn_fast::forward<true>(o, gdn_rule_ext { in_tab, out_tab, fresh, ckpt, ckpt_every, scale, chunk_begin, chunk_end, qk_from_first });
}
#endif
