/* gated_delta_rule_fast_segments.cu - the fast prefill of Hopper for few heads and long sequences: segments of a sequence side by side
 * (gdn_fast_segments.cuh says how, and that nothing is left out). Behind gated_delta_rule_fast_prepare of all chunks, in this order:
 *
 *   gated_delta_rule_fast_carry: grid (blocks), block 512, dynamic shared memory 183,856.
 *       Tasks (sequence, full segment, value head, M or A, 64 rows), which the blocks take in turn.
 *   gated_delta_rule_fast_join: grid (nv, batch, 8), block 256.
 *   gated_delta_rule_fast_pass: as carry.
 *       Tasks (sequence, segment, value head, 64 value columns).
 *
 * segment: chunks of one; segments: those of the longest sequence. moved, added, begins: [chunks of all sequences / segment + batch][nv]
 * [128][128] f32, the last in the layout of states. The other arguments, guards and ranges are gated_delta_rule_fast_fwd's;
 * what is longer than num_chunks is cut there.
 * A prefill cut at multiples of `segment` * 64 tokens gives the bytes of the whole; so does any other company in the batch. */
#include "gdn_fast_segments.cuh"

#define GDN_SEGMENT_ARGS                                                                                                                \
    float *h_state, const gdn_bf16 *value, gdn_bf16 *output, uint8_t *K16, uint8_t *Q16, uint8_t *T16, uint8_t *P16, float *scalars,    \
        uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t v_stride, const int32_t *cu_seqlens,  \
        uint32_t is_varlen, const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, uint32_t segment, uint32_t segments, \
        float *moved, float *added, float *begins

#define GDN_SEGMENT_CALL(what)                                                                                                          \
    const gdn_fast::prepare_args rest = {                                                                                               \
        nullptr,    nullptr,        nullptr, nullptr, { K16, Q16, T16, P16, scalars, nullptr }, seq_len, num_chunks, nk, nv, 0, 0,      \
        cu_seqlens, is_varlen != 0, ~0u,     0                                                                                          \
    };                                                                                                                                  \
    const gdn_fast::segment_args o = { { h_state, value, output, v_stride, batch, 0, rest }, segment, segments, moved, added, begins }; \
    gdn_fast::what(o, gdn_rule_ext { in_tab, out_tab, fresh, nullptr, 0, 0, 0, num_chunks, 0 })

GDN_KERNEL(512, 1) gated_delta_rule_fast_carry(GDN_SEGMENT_ARGS) {
    gdn_begin();
    GDN_SEGMENT_CALL(carry);
}
GDN_KERNEL(256, 1) gated_delta_rule_fast_join(GDN_SEGMENT_ARGS) {
    gdn_begin();
    GDN_SEGMENT_CALL(join);
}
GDN_KERNEL(512, 1) gated_delta_rule_fast_pass(GDN_SEGMENT_ARGS) {
    gdn_begin();
    GDN_SEGMENT_CALL(pass_segments);
}
