/* gated_delta_rule_bf16_state.cu - decode, and verify of 1 to 4 rows, on states kept in bf16: half the bytes of gated_delta_rule_decode.cu
 * and gated_delta_rule_wyn.cu, whose arguments, sums and order these are. Contract: abi/gdn_op_rule.h (GDN_BF16_STATE).
 *
 *     S = widened state    ... the f32 rows of gdn_step.cuh ...    state = S rounded to nearest even, once, where it is stored
 *
 * So outputs are those of f32 arithmetic from the state as it was read, a verify's rows see no rounding between them, and the state
 * after row 0 of a verify is decode's. k_dim = v_dim = 128; batch at most 65535; no dynamic shared memory. States are 8-byte aligned,
 * the other bases by their elements.
 *
 * gated_delta_rule_decode_bf16_state, _ext: as gated_delta_rule_decode and _ext. Grid (2*nv, batch), block 128: two blocks a head, each
 *   with 64 value columns (gdn_step_split16.cuh).
 * gated_delta_rule_wyn_bf16_state, _ext: as gated_delta_rule_wyn and, but for seq_ids and record, _ext; states and hi in bf16, strides in
 *   their elements. Grid (nv, batch), block 128. Reads the state once; writes it after the last row, and after row t to hi. */
#include "gdn_device.cuh"
#include "gdn_step_split16.cuh"
#include "gdn_verify.cuh"

/* Rows of a verify; blocks on a multiprocessor of a decode, of a verify: as many as fit without spills. */
enum { ROWS16 = 4, DECODES16 = 5 };
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { VERIFIES16 = 2 };
#else
enum { VERIFIES16 = 3 };
#endif

GDN_DEVICE void decode16(const gdn_step &a, const gdn_rule_ext &x, void *h_state, bool is_table) {
    __shared__ gdn_split16_smem m;
    const uint32_t head = blockIdx.x / 2, slice = blockIdx.x % 2, b = blockIdx.y;
    const gdn_state_ptrs_of<gdn_bf16> p = gdn_states_of<gdn_bf16>(x, h_state, is_table, b, head, a.nv, GDN_STEP_DIM, GDN_STEP_DIM);
    if (p.in)
        gdn_split16_decode(m, a, b, head, slice, gdn_is_fresh(x, b) ? nullptr : p.in, p.out);
    else if (slice == 0)
        gdn_step_zero(a, b, 1, head, GDN_STEP_DIM);
}

GDN_KERNEL(GDN_STEP_BLOCK, DECODES16)
gated_delta_rule_decode_bf16_state(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                                   const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                                   uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table) {
    gdn_begin();
    gdn_let_next();
    (void)batch, (void)vd;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    decode16(a, gdn_rule_ext {}, h_state, state_is_table);
}

GDN_KERNEL(GDN_STEP_BLOCK, DECODES16)
gated_delta_rule_decode_bf16_state_ext(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                                       const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd,
                                       uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table,
                                       GDN_STEP_EXT_ARGS) {
    gdn_begin();
    gdn_let_next();
    (void)batch, (void)vd;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    decode16(a, GDN_STEP_EXT, h_state, state_is_table);
}

GDN_DEVICE void verify16(const gdn_step &a, const gdn_rule_ext &x, const int32_t *cu_rows, void *h, bool is_table, uint32_t rows,
                         const gdn_hi &hi) {
    __shared__ gdn_step_smem<ROWS16> m;
    enum : uint32_t { ONE = GDN_STEP_DIM * GDN_STEP_DIM };
    const uint32_t head = blockIdx.x, b = blockIdx.y;
    const gdn_step_span span = gdn_step_rows_of(cu_rows, b, rows);
    const gdn_state_ptrs_of<gdn_bf16> p = gdn_states_of<gdn_bf16>(x, h, is_table, b, head, a.nv, GDN_STEP_DIM, GDN_STEP_DIM);
    if (!p.in) {
        gdn_step_zero(a, span.row, span.rows, head, GDN_STEP_DIM);
        return;
    }
    const gdn_bf16 *const in = gdn_is_fresh(x, b) ? nullptr : p.in;
    if (span.rows == 0) {
        gdn_step_carry(in, p.out, ONE);
        return;
    }
    gdn_step_rows_in<gdn_state16<GDN_STEP_DIM>, GDN_STEP_DIM, ROWS16>(
        m, a, span.row, span.rows, head, reinterpret_cast<const float *>(in),
        [&](uint32_t t) {
            gdn_bf16 *to = p.out;
            if (t + 1 != span.rows) {
                to = gdn_hi_of<gdn_bf16>(hi, t, b, (uint64_t)a.nv * ONE);
                if (to) to += (uint64_t)head * ONE;
            }
            return reinterpret_cast<float *>(to);
        },
        gdn_step_unseen());
}

GDN_KERNEL(GDN_STEP_BLOCK, VERIFIES16)
gated_delta_rule_wyn_bf16_state(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                                gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch, uint32_t nk,
                                uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride,
                                uint32_t state_is_table) {
    gdn_begin();
    gdn_let_next();
    (void)batch, (void)vd;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    verify16(a, gdn_rule_ext {}, nullptr, h, state_is_table, rows, gdn_hi { hi_tables, slab_entries, rows, state_is_table != 0 });
}

GDN_KERNEL(GDN_STEP_BLOCK, VERIFIES16)
gated_delta_rule_wyn_bf16_state_ext(void *h, const gdn_bf16 *q, const gdn_bf16 *k, const gdn_bf16 *v, const float *gate, const float *beta,
                                    gdn_bf16 *out, const void *hi_tables, uint32_t slab_entries, uint32_t rows, uint32_t batch,
                                    uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, uint32_t v_stride,
                                    uint32_t gb_stride, uint32_t state_is_table, GDN_STEP_EXT_ARGS, const int32_t *cu_rows,
                                    uint32_t hi_capacity) {
    gdn_begin();
    gdn_let_next();
    (void)batch, (void)vd;
    const gdn_step a = { q, k, v, gate, beta, out, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    verify16(a, GDN_STEP_EXT, cu_rows, h, state_is_table, rows, gdn_hi { hi_tables, slab_entries, hi_capacity, state_is_table != 0 });
}
