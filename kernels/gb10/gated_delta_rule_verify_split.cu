/* gated_delta_rule_verify_split.cu - verify of few sequences: several blocks a head, each with 16 or 32 of its value columns. The arguments and
 * the bytes of gated_delta_rule_wyn (its file says them), for heads of 128. Contract: abi/gdn_op_rule.h; how a block goes about it:
 * gdn_verify_split.cuh.
 *
 * Grid (8*nv, batch), block 128, or grid (4*nv, batch), block 256; no dynamic shared memory.
 * gated_delta_rule_wy4_split, gated_delta_rule_wy4_split_ext: 1 to 4 rows.
 * gated_delta_rule_wyn_split, gated_delta_rule_wyn_split_ext: 1 to 16 rows. */
#include "gdn_device.cuh"
#include "gdn_verify_split.cuh"

#ifdef GDN_EXT_ENTRIES
GDN_PART_KERNEL(4)
gated_delta_rule_wy4_split_ext(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                               gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                               uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                               uint32_t state_is_table, GDN_STEP_EXT_ARGS, const int32_t *cu_rows, uint32_t hi_capacity,
                               const int32_t *seq_ids, uint32_t *record) {
    gdn_begin();
    gdn_let_next();
    (void)batch;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    const gdn_hi hi = { hi_tables, slab_entries, hi_capacity, state_is_table != 0 };
    gdn_verify_split<4>(a, GDN_STEP_EXT, gdn_verify_ext { cu_rows, seq_ids, record, hi_capacity }, h, state_is_table, rows,
                        [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}

GDN_PART_KERNEL(GDN_STEP_ROWS)
gated_delta_rule_wyn_split_ext(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                               gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                               uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                               uint32_t state_is_table, GDN_STEP_EXT_ARGS, const int32_t *cu_rows, uint32_t hi_capacity,
                               const int32_t *seq_ids, uint32_t *record) {
    gdn_begin();
    gdn_let_next();
    (void)batch;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    const gdn_hi hi = { hi_tables, slab_entries, hi_capacity, state_is_table != 0 };
    gdn_verify_split<GDN_STEP_ROWS>(a, GDN_STEP_EXT, gdn_verify_ext { cu_rows, seq_ids, record, hi_capacity }, h, state_is_table, rows,
                        [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}
#endif

#ifdef GDN_CORE_ENTRIES
GDN_PART_KERNEL(4)
gated_delta_rule_wy4_split(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                           gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                           uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                           uint32_t state_is_table) {
    gdn_begin();
    gdn_let_next();
    (void)batch;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    const gdn_hi hi = { hi_tables, slab_entries, rows, state_is_table != 0 };
    gdn_verify_split<4>(a, gdn_rule_ext {}, gdn_verify_ext {}, h, state_is_table, rows,
                        [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}

GDN_PART_KERNEL(GDN_STEP_ROWS)
gated_delta_rule_wyn_split(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                           gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                           uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                           uint32_t state_is_table) {
    gdn_begin();
    gdn_let_next();
    (void)batch;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    const gdn_hi hi = { hi_tables, slab_entries, rows, state_is_table != 0 };
    gdn_verify_split<GDN_STEP_ROWS>(a, gdn_rule_ext {}, gdn_verify_ext {}, h, state_is_table, rows,
                        [&](uint32_t t, uint32_t id) { return gdn_hi_of(hi, t, id, (uint64_t)nv * kd * vd); });
}
#endif
