/* gdn_rule_prepare.cu - what a launch of a rule operation needs in another form first. Contract: abi/gdn_op_rule.h.
 *
 *   gdn_rule_tables   grid (ceil((batch + 1) / 256)), block 256. State bases and offsets for the `_ext` entries:
 *     in_tab[b]  = state + slot * stride_bytes, slot = in_slots[b], or b when in_slots is NULL; a negative slot gives NULL (padding).
 *     out_tab[b] = the same of state_out and out_slots; padding of either is padding of both.
 *     cu_out[b]  = (int32) cu_in[b] for b <= batch. NULL in_tab or cu_out: that part is not asked for.
 *   gdn_rule_l2norm   grid (ceil(rows * heads / 8)), block 256. A warp a row and head: out = x / sqrt(sum x^2 + 1e-6), bf16, for query and
 *     key. dim is 64 or 128. Row r of the outputs (dense, heads * dim) is row first + r of the inputs, first = cu[0] (0 without cu);
 *     rows from cu[batch] on are skipped. A row of zeros stays zero, a NaN stays in its row. */
#include "gdn_device.cuh"
#include "gdn_rows.cuh"

GDN_KERNEL(256)
gdn_rule_tables(const uint8_t *state, uint8_t *state_out, const int32_t *in_slots, const int32_t *out_slots, uint64_t stride_bytes,
                uint64_t *in_tab, uint64_t *out_tab, const int64_t *cu_in, int32_t *cu_out, uint32_t batch) {
    gdn_begin();
    gdn_let_next();
    const uint32_t b = blockIdx.x * 256 + threadIdx.x;
    if (cu_out && b <= batch) cu_out[b] = (int32_t)cu_in[b];
    if (!in_tab || b >= batch) return;
    const int64_t in = in_slots ? in_slots[b] : (int64_t)b, out = out_slots ? out_slots[b] : in;
    const bool padding = in < 0 || out < 0;
    in_tab[b] = padding ? 0 : (uint64_t)(state + (uint64_t)in * stride_bytes);
    out_tab[b] = padding ? 0 : (uint64_t)(state_out + (uint64_t)out * stride_bytes);
}

/* A lane has elements lane*4 .. of a row of 128, or lane*2 .. of one of 64. */
GDN_DEVICE void normalise(const gdn_bf16 *x, gdn_bf16 *out, uint32_t dim) {
    const uint32_t n = dim / 32, i0 = gdn_lane() * n;
    float v[4] = {}, sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (i < n) v[i] = gdn_to_f32(x[i0 + i]);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) sum = gdn_fma(v[i], v[i], sum);
    const float f = gdn_div(1.0f, sqrtf(gdn_warp_sum(sum) + 1e-6f));
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (i < n) out[i0 + i] = gdn_to_bf16(v[i] * f);
}

GDN_KERNEL(256)
gdn_rule_l2norm(const gdn_bf16 *query, const gdn_bf16 *key, gdn_bf16 *query_out, gdn_bf16 *key_out, uint32_t rows, uint32_t heads,
                uint32_t dim, uint32_t qk_stride, const int32_t *cu, uint32_t batch) {
    gdn_begin();
    gdn_let_next();
    const uint64_t at = (uint64_t)blockIdx.x * 8 + gdn_warp();
    const uint32_t r = (uint32_t)(at / heads), head = (uint32_t)(at % heads);
    const uint64_t first = cu ? (uint64_t)(uint32_t)cu[0] : 0;
    if (r >= rows || (cu && r >= (uint32_t)(cu[batch] - cu[0]))) return;
    const uint64_t from = (first + r) * qk_stride + head * dim, to = ((uint64_t)r * heads + head) * dim;
    normalise(query + from, query_out + to, dim);
    normalise(key + from, key_out + to, dim);
}
