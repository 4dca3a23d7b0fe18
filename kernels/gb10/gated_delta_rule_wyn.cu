/* gated_delta_rule_wyn.cu - verify of any number of rows, 1 to 16. Contract: abi/gdn_op_rule.h; formulas and bits: gdn_step.cuh; the
 * `_ext` arguments: gdn_verify.cuh.
 *
 * Grid (nv, batch), block 128, no dynamic shared memory; k_dim = v_dim = 64 or 128; rows 1 to 16; batch at most 65535. Row t of sequence
 * b is row rows*b + t of q, k, v, gate, beta and out. Reads the state once; writes it after the last row, and after row t to hi.
 * gated_delta_rule_wyn: h, q, k, v, gate, beta, out, hi_tables, slab_entries, rows, batch, nk, nv, kd, vd, qk_stride, v_stride,
 *   gb_stride, state_is_table. With state_is_table h is a table of u64 addresses, one a sequence, and hi_tables one whose entry
 *   t*slab_entries + b is the place after row t (NULL: not kept); else batch is 1 and they are f32, row t's place at t*nv*kd*vd.
 *   hi_tables NULL: none is kept.
 * gated_delta_rule_wyn_ext: appended GDN_STEP_EXT_ARGS, cu_rows, hi_capacity, seq_ids, record. Where in_tab is given,
 *   state_is_table says only what hi_tables is: 0: f32, row t of sequence b at (b*hi_capacity + t)*nv*kd*vd.
 * A sequence has the bytes of gated_delta_rule_wy2, _wy3, _wy4 and, in row 0, of decode. */
#include "gdn_device.cuh"
#include "gdn_verify.cuh"

#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_wyn(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta, gdn_bf16 *out,
                     const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd,
                     uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table) {
    gdn_begin();
    (void)batch;
    __shared__ gdn_step_smem<GDN_STEP_ROWS> m;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    const gdn_hi hi = { hi_tables, slab_entries, rows, state_is_table != 0 };
    gdn_verify<GDN_STEP_ROWS>(m, a, gdn_rule_ext {}, gdn_verify_ext {}, h, state_is_table, kd, rows,
                              [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}
#endif

#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_wyn_ext(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                         gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                         uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                         uint32_t state_is_table, GDN_STEP_EXT_ARGS, const int32_t *cu_rows, uint32_t hi_capacity, const int32_t *seq_ids,
                         uint32_t *record) {
    gdn_begin();
    (void)batch;
    __shared__ gdn_step_smem<GDN_STEP_ROWS> m;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    const gdn_hi hi = { hi_tables, slab_entries, hi_capacity, state_is_table != 0 };
    gdn_verify<GDN_STEP_ROWS>(m, a, GDN_STEP_EXT, gdn_verify_ext { cu_rows, seq_ids, record, hi_capacity }, h, state_is_table, kd, rows,
                              [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}
#endif
