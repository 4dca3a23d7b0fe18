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
 * (gdn_step_split.cuh). _split_ext ends with num_slots, u64: the slots that exist, 0 where nobody said; no byte depends on it. */
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
    gdn_begin();
    gdn_let_next();
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
    gdn_begin();
    gdn_let_next();
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
enum : uint32_t { DECODE_MANY = 2048, DECODE_FIRST = 132 };
/* Likewise, while the kernel in front still runs, the first blocks ask for what they begin with. That kernel may still write slots: where
 * these are looked at, the answer is a guess, good for a hint, and only where it is a place in the pool. */
GDN_DEVICE void decode_guess(const gdn_step &a, const gdn_rule_ext &x, const void *h_state, bool is_table, uint64_t num_slots) {
    enum : uint32_t { COLUMNS = GDN_SPLIT_WIDEST, PARTS = GDN_STEP_DIM / COLUMNS, ONE = GDN_STEP_DIM * GDN_STEP_DIM };
    const uint32_t head = blockIdx.x / PARTS, slice = blockIdx.x % PARTS * COLUMNS, b = blockIdx.y, block = b * gridDim.x + blockIdx.x;
    if (gridDim.x * gridDim.y < DECODE_MANY || block >= 4 * DECODE_FIRST) return;
    if (threadIdx.x >= GDN_STEP_DIM) {
        const uint32_t line = threadIdx.x - GDN_STEP_DIM;
        const uint64_t key = b * (uint64_t)a.qk_stride + gdn_key_head(head, a.nk, a.nv) * GDN_STEP_DIM + line % 2 * 64;
        if (line < 4) gdn_prefetch_l2((line < 2 ? a.q : a.k) + key);
        if (line == 4) gdn_prefetch_l2(a.v + b * (uint64_t)a.v_stride + head * GDN_STEP_DIM + slice);
        if (line == 5 || line == 6) gdn_prefetch_l2((line == 5 ? a.gate : a.beta) + b * (uint64_t)a.gb_stride + head);
        return;
    }
    if (block >= DECODE_FIRST || is_table || x.in_tab) return;
    uint64_t slot = b;
    if (x.in_slots) {
        slot = gdn_ld4_guess(x.in_slots + b);
        if (slot > 0x7fffffffu || slot >= num_slots) return;
    }
    const uint64_t stride = x.slot_stride ? x.slot_stride : (uint64_t)a.nv * ONE;
    gdn_prefetch_l2(static_cast<const float *>(h_state) + slot * stride + head * ONE + threadIdx.x * GDN_STEP_DIM + slice);
}
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
    if (p.in)
        gdn_split_decode<COLUMNS>(m, a, b, head, slice, gdn_is_fresh(x, b) ? nullptr : p.in, p.out,
                                  [&] { decode_ahead<COLUMNS>(x, h_state, is_table, a.nv); });
    else if (slice == 0)
        gdn_step_zero(a, b, 1, head, GDN_STEP_DIM);
}
GDN_DEVICE void decode_begin(const gdn_step &a, const gdn_rule_ext &x, const void *h_state, bool is_table, uint64_t num_slots) {
    if (DECODE_AHEAD && blockDim.x == GDN_SPLIT_WIDEST * GDN_SPLIT_THREADS) decode_guess(a, x, h_state, is_table, num_slots);
    gdn_begin();
    gdn_let_next();
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
                                  uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t state_is_table, GDN_STEP_EXT_ARGS,
                                  uint64_t num_slots) {
    (void)batch, (void)vd;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(kd, scale) };
    decode_begin(a, GDN_STEP_EXT, h_state, state_is_table, num_slots);
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
    decode_begin(a, gdn_rule_ext {}, h_state, state_is_table, 0);
    decode_split(a, gdn_rule_ext {}, h_state, state_is_table);
}
#endif
