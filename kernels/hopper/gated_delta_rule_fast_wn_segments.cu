/* gated_delta_rule_fast_wn_segments.cu - the fast prefill by W and N for few heads and long sequences: segments of a sequence side by side,
 * as gated_delta_rule_fast_segments.cu has them. Behind gated_delta_rule_fast_wn_prepare of all chunks, in this order:
 *
 *   gated_delta_rule_fast_wn_carry: grid (blocks), block 512, dynamic shared memory 230,384.
 *       Tasks (sequence, full segment, value head, M or A, 64 rows), which the blocks take in turn.
 *   gated_delta_rule_fast_join
 *   gated_delta_rule_fast_wn_pass: as carry.
 *       Tasks (sequence, segment, value head, 64 value columns).
 *
 * segment, segments, moved, added, begins are those of the other file. The other arguments, guards and ranges are
 * gated_delta_rule_fast_wn_fwd's; what is longer than num_chunks is cut there.
 * A prefill cut at multiples of `segment` * 64 tokens gives the bytes of the whole; so does any other company in the batch. */
#include "gdn_wn_segments.cuh"

#define GDN_WN_SEGMENT_ARGS                                                                                                             \
    float *h_state, const gdn_bf16 *value, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *W16, uint8_t *N16, float *scalars,    \
        uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t v_stride, const int32_t *cu_seqlens,  \
        uint32_t is_varlen, const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, uint32_t segment, uint32_t segments, \
        float *moved, float *added, float *begins

#define GDN_WN_SEGMENT_CALL(what)                                       \
    const gdn_wn::segment_args o = { { h_state,                         \
                                       value,                           \
                                       output,                          \
                                       { K16, Q16, W16, N16, scalars }, \
                                       batch,                           \
                                       seq_len,                         \
                                       num_chunks,                      \
                                       nk,                              \
                                       nv,                              \
                                       v_stride,                        \
                                       cu_seqlens,                      \
                                       is_varlen != 0 },                \
                                     segment,                           \
                                     segments,                          \
                                     moved,                             \
                                     added,                             \
                                     begins };                          \
    gdn_wn::what(o, gdn_rule_ext { in_tab, out_tab, fresh, nullptr, 0, 0, 0, num_chunks, 0 })

GDN_KERNEL(512, 1) gated_delta_rule_fast_wn_carry(GDN_WN_SEGMENT_ARGS) {
    gdn_begin();
    GDN_WN_SEGMENT_CALL(carry);
}
GDN_KERNEL(512, 1) gated_delta_rule_fast_wn_pass(GDN_WN_SEGMENT_ARGS) {
    gdn_begin();
    GDN_WN_SEGMENT_CALL(pass_segments);
}
