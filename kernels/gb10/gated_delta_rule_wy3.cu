/* gated_delta_rule_wy3.cu - verify of 3 rows a sequence. Contract: abi/gdn_op_rule.h; formulas and bits: gdn_step.cuh; the `_ext`
 * arguments: gdn_verify.cuh.
 *
 * Grid (nv, batch), block 128, no dynamic shared memory; k_dim = v_dim = 64 or 128; batch at most 65535. Row t of sequence b is row
 * 3*b + t of q, k, v, gate, beta and out. Reads the state once; writes it after the last row, and after row t to Hi_t.
 * gated_delta_rule_wy3: h, q, k, v, gate, beta, out, Hi0, Hi1, batch, nk, nv, kd, vd, qk_stride, v_stride, gb_stride,
 *   state_is_table. With state_is_table h and the Hi are tables of u64 addresses, one a sequence; else batch is 1 and they are f32. A
 *   Hi that is NULL, or NULL in its table, is not kept.
 * gated_delta_rule_wy3_ext: appended GDN_STEP_EXT_ARGS, cu_rows, hi_capacity, seq_ids, record. Where in_tab is given,
 *   state_is_table says only what the Hi are: 0: sequence b's at Hi_t + b*hi_capacity*nv*kd*vd.
 * Row 0 has decode's bytes. */
#include "gdn_device.cuh"
#include "gdn_verify.cuh"

GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_wy3(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta, gdn_bf16 *out,
                     void *Hi0, void *Hi1, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride,
                     uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table) {
    gdn_begin();
    (void)batch;
    __shared__ gdn_step_smem<4> m;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    gdn_verify<4>(m, a, gdn_rule_ext {}, gdn_verify_ext {}, h, state_is_table, kd, 3, [&](uint32_t t, uint32_t id) {
        return gdn_hi_of(gdn_hi { t == 0 ? Hi0 : Hi1, 0, 0, state_is_table != 0 }, 0, id, (uint64_t)nv * kd * vd);
    });
}

GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_wy3_ext(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                         gdn_bf16 *out, void *Hi0, void *Hi1, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                         uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table, GDN_STEP_EXT_ARGS,
                         const int32_t *cu_rows, uint32_t hi_capacity, const int32_t *seq_ids, uint32_t *record) {
    gdn_begin();
    (void)batch;
    __shared__ gdn_step_smem<4> m;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    gdn_verify<4>(m, a, GDN_STEP_EXT, gdn_verify_ext { cu_rows, seq_ids, record, hi_capacity }, h, state_is_table, kd, 3,
                  [&](uint32_t t, uint32_t id) {
                      return gdn_hi_of(gdn_hi { t == 0 ? Hi0 : Hi1, 0, hi_capacity, state_is_table != 0 }, 0, id, (uint64_t)nv * kd * vd);
                  });
}
