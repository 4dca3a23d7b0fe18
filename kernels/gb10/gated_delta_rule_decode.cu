/* gated_delta_rule_decode.cu - decode: one token a sequence. Contract: abi/gdn_op_rule.h; formulas, order of additions and what a
 * thread holds: gdn_step.cuh.
 *
 *     g = clamp(gate, 1e-6, 1 - 1e-6)    hk[v] = sum_j S[j][v] k[j]    vn = (v - g hk) beta    S = g S + k vn    out = scale sum_j S q
 *
 * Grid (nv, batch), block 128, no dynamic shared memory; k_dim = v_dim = 64 or 128; batch at most 65535. Reads q, k, v, gate, beta and
 * the state (once), writes the state and row b of the output. Any strides, any element-aligned base. The clamp of the decay is that of
 * decode and verify; prefill has none.
 *
 * gated_delta_rule_decode: h_state, query, key, value, gate, beta, output, batch, nk, nv, kd, vd, qk_stride, v_stride, gb_stride,
 *   state_is_table. States in place, dense one after another, or, with state_is_table, at the addresses in the table h_state.
 * gated_delta_rule_decode_ext: appended GDN_STEP_EXT_ARGS (gdn_rule.cuh): in_tab, out_tab (u64 addresses a sequence, both or neither; then
 * h_state is not looked at), fresh (u8 a sequence or NULL), scale (0: rsqrt(kd)). Without them the core's bytes.
 *
 * gated_delta_rule_decode_split, gated_delta_rule_decode_split_ext: the same arguments and bytes, for heads of 128, few sequences:
 * grid (4*nv, batch), block 512, four blocks a head, each with 32 value columns; or grid (8*nv, batch), block 256, 16 columns
 * (gdn_step_split.cuh). */
#include "gdn_device.cuh"
#include "gdn_step_split.cuh"

template <uint32_t DIM>
GDN_DEVICE void decode(gdn_step_smem<1> &m, const gdn_step &a, const gdn_rule_ext &x, void *h_state, bool is_table) {
    const uint32_t head = blockIdx.x, b = blockIdx.y;
    const gdn_state_ptrs p = gdn_states_of(x, h_state, is_table, b, head, a.nv, DIM, DIM);
    if (p.in)
        gdn_step_rows<DIM, 1, false>(
            m, a, b, 1, head, gdn_is_fresh(x, b) ? nullptr : p.in, [&](uint32_t) { return p.out; }, gdn_step_unseen());
    else
        gdn_step_zero(a, b, 1, head, DIM);
}

#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_decode_ext(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                            const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                            uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table, GDN_STEP_EXT_ARGS) {
    (void)batch, (void)vd;
    __shared__ gdn_step_smem<1> m;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    const gdn_rule_ext x = GDN_STEP_EXT;
    if (kd == 128)
        decode<128>(m, a, x, h_state, state_is_table);
    else
        decode<64>(m, a, x, h_state, state_is_table);
}
#endif

#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 3)
gated_delta_rule_decode(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                        const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                        uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table) {
    (void)batch, (void)vd;
    __shared__ gdn_step_smem<1> m;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    if (kd == 128)
        decode<128>(m, a, gdn_rule_ext {}, h_state, state_is_table);
    else
        decode<64>(m, a, gdn_rule_ext {}, h_state, state_is_table);
}
#endif

/* Hopper, many blocks: the states of those a little further on are sent for from memory to L2, where these then find them. */
#if !defined(GDN_STATE_VK) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#define DECODE_AHEAD 264
#else
#define DECODE_AHEAD 0
#endif
enum { DECODE_MANY = 2048 };
template <uint32_t COLUMNS> GDN_DEVICE void decode_ahead(const gdn_rule_ext &x, void *h_state, bool is_table, uint32_t nv) {
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x + DECODE_AHEAD, blocks = gridDim.x * gridDim.y;
    if (!DECODE_AHEAD || COLUMNS < 32 || threadIdx.x >= GDN_STEP_DIM || blocks < DECODE_MANY || block >= blocks) return;
    const uint32_t in_sequence = block % gridDim.x;
    const gdn_state_ptrs p = gdn_states_of(x, h_state, is_table, block / gridDim.x, in_sequence / (GDN_STEP_DIM / COLUMNS), nv,
                                           GDN_STEP_DIM, GDN_STEP_DIM);
    if (p.in) gdn_prefetch_l2(p.in + threadIdx.x * GDN_STEP_DIM + in_sequence % (GDN_STEP_DIM / COLUMNS) * COLUMNS);
}
template <uint32_t COLUMNS>
GDN_DEVICE void decode_part(gdn_split_smem &m, const gdn_step &a, const gdn_rule_ext &x, void *h_state, bool is_table) {
    enum : uint32_t { PARTS = GDN_STEP_DIM / COLUMNS };
    const uint32_t head = blockIdx.x / PARTS, slice = blockIdx.x % PARTS, b = blockIdx.y;
    const gdn_state_ptrs p = gdn_states_of(x, h_state, is_table, b, head, a.nv, GDN_STEP_DIM, GDN_STEP_DIM);
    decode_ahead<COLUMNS>(x, h_state, is_table, a.nv);
    if (p.in)
        gdn_split_decode<COLUMNS>(m, a, b, head, slice, gdn_is_fresh(x, b) ? nullptr : p.in, p.out);
    else if (slice == 0)
        gdn_step_zero(a, b, 1, head, GDN_STEP_DIM);
}
GDN_DEVICE void decode_split(const gdn_step &a, const gdn_rule_ext &x, void *h_state, bool is_table) {
    __shared__ gdn_split_smem m;
    if (blockDim.x == 32 * GDN_SPLIT_THREADS)
        decode_part<32>(m, a, x, h_state, is_table);
    else
        decode_part<16>(m, a, x, h_state, is_table);
}
/* As many blocks as threads and registers allow: [V][K] takes more of them, an sm_121 has room for 1536 threads. */
#if defined(GDN_STATE_VK) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200)
#define SPLIT_ENTRY GDN_KERNEL(GDN_SPLIT_WIDEST *GDN_SPLIT_THREADS, 3)
#else
#define SPLIT_ENTRY GDN_KERNEL(GDN_SPLIT_WIDEST *GDN_SPLIT_THREADS, 4)
#endif

#ifdef GDN_EXT_ENTRIES
SPLIT_ENTRY
gated_delta_rule_decode_split_ext(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                                  const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                                  uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table, GDN_STEP_EXT_ARGS) {
    (void)batch, (void)vd;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    decode_split(a, GDN_STEP_EXT, h_state, state_is_table);
}
#endif

#ifdef GDN_CORE_ENTRIES
SPLIT_ENTRY
gated_delta_rule_decode_split(void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                              const float *beta, gdn_bf16 *output, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd,
                              uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table) {
    (void)batch, (void)vd;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, 0) };
    decode_split(a, gdn_rule_ext {}, h_state, state_is_table);
}
#endif
