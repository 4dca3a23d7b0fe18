/* gated_delta_rule_wy4_woa.cu - write-on-accept verify: four rows that write no state, the fold of the accepted ones, and the flag between
 * them. Contract: abi/gdn_op_rule.h; formulas and bits: gdn_step.cuh; stash: gdn_fold.cuh. k_dim = v_dim = 128 in woa; the fold of a plain
 * verify copies 64 as well. Outputs are gated_delta_rule_wy4's, the folded state is its Hi(na-1), or H for all rows: the same bytes.
 * Arguments, in order:
 *
 * gated_delta_rule_wy4_woa        h_table, query, key, value, gate, beta, output, stash, batch, nk, nv, k_dim, v_dim, qk_stride, v_stride,
 *                                 gb_stride, stash_seq_floats, engaged_flag
 * gated_delta_rule_wy4_woa_ext    the same, GDN_STEP_EXT_ARGS
 * gated_delta_rule_wy4_woa_seq    the same with record for engaged_flag, GDN_STEP_EXT_ARGS, cu_rows, seq_ids
 * gated_delta_rule_wy4_fold       h_table, stash, na_tab, hi_tables, slab_entries, engaged_flag, k_rows, batch, nk, nv, k_dim, v_dim,
 *                                 stash_seq_floats
 * gated_delta_rule_wy4_fold_ext   the same, GDN_STEP_EXT_ARGS (scale is not looked at), cu_rows, hi_is_table, hi_capacity
 * gated_delta_rule_wy4_fold_seq   h_table, stash, na_tab, hi_tables, slab_entries, record, batch, nk, nv, k_dim, v_dim, stash_seq_floats,
 *                                 GDN_STEP_EXT_ARGS, hi_is_table, hi_capacity, seq_ids
 * gated_delta_rule_wy4_flag_clear        engaged_flag
 * gated_delta_rule_wy4_flag_clear_seq    record, seq_ids, count
 *
 * Grids: (nv, batch) of 128 threads, batch at most 65535; fold takes (parts nv, batch), parts 1 or, k_dim 128, 2 or 4; flag_clear 1 and
 * flag_clear_seq any of 32. Dynamic shared memory: k_dim*v_dim*4 in the three woa entries, which use it on Hopper; any in the others, none
 * is used. h_table: u64 addresses, one a sequence, not looked at where in_tab and out_tab (woa: the same table twice) are given; a NULL is
 * padding. fresh: u8 a sequence or NULL; scale 0: rsqrt(k_dim).
 *
 * woa reads each state once, stashes sequence b at stash + b*stash_seq_floats and sets *engaged_flag = 1. fold: na = na_tab[b], 0: nothing.
 * Engaged (*engaged_flag == 1): the first min(na, 4) stashed rows onto the state, or onto zeros where fresh. Else na < k_rows (with
 * cu_rows: the sequence's own rows) copies the state after row na-1, hi_tables[(na-1)*slab_entries + b], or with hi_is_table 0 the f32 at
 * ((b*hi_capacity) + na-1)*nv*K*V; NULL, and na >= k_rows: nothing.
 *
 * Batches that run as several launches (different rows, some declined, another order): the _seq entries. What lives from a verify to its
 * fold is found by the sequence's own number, id = seq_ids[b] (int32; NULL: b), in every launch: its stash row, its row of hi, and
 * record[id] (u32), which says what ran: 0 nothing, GDN_RECORD_DEFERRED | rows, or GDN_RECORD_KEPT | rows (wyn_ext with `record`: the
 * state after every row in hi, none written). The fold goes by that alone, so launches may cut and order the batch as they like, and one
 * fold may serve several; a sequence that no verify saw since flag_clear_seq, at the start of the round, is left alone, and so is one of
 * which nothing is accepted. na_tab, tables and fresh are of the launch that they are given to, by b. woa_seq: with cu_rows a sequence has
 * rows [cu_rows[b], cu_rows[b+1]), 0 to 4. Accepted rows beyond those that ran count as all of them. flag_clear_seq skips negative ids. */
#include "gdn_device.cuh"
#include "gdn_fold.cuh"
#include "gdn_step_stay.cuh"
#include "gdn_verify.cuh"

/* Hopper keeps blocks that go from head to head, the next state on its way through shared memory; elsewhere, and [V][K], a block has one
 * head, its state in registers. The emulator runs Hopper's. */
#ifndef GDN_WOA_STAY
#if !defined(GDN_STATE_VK) && (defined(GDN_EMU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000))
#define GDN_WOA_STAY 1
#else
#define GDN_WOA_STAY 0
#endif
#endif
#if GDN_WOA_STAY
typedef gdn_stay_smem woa_smem;
#define WOA_BLOCKS 2
#else
typedef gdn_step_smem<GDN_STASH_ROWS> woa_smem;
#define WOA_BLOCKS 3

/* What the rows leave for the fold. Addresses are made here, and not before: registers are short. */
struct to_stash {
    float *stash;
    uint64_t pitch;
    uint32_t row, nk, nv, head;
    GDN_METHOD gdn_stash place() const { return gdn_stash_of(gdn_opaque(stash), row, pitch, nv); }
    GDN_METHOD void keys(const woa_smem &m, uint32_t rows) const {
        const uint32_t i = threadIdx.x;
        const gdn_stash s = place();
        if (i < rows) s.g[i * nv + head] = m.g[i];
        if (!gdn_first_of_key_head(head, nk, nv)) return;
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < rows; t++) s.sk[(t * nk + gdn_key_head(head, nk, nv)) * GDN_STASH_DIM + i] = m.k[t][i];
    }
    GDN_METHOD void value(const woa_smem &m, uint32_t t, uint32_t column) const {
        place().vn[(t * nv + head) * GDN_STASH_DIM + column] = m.vn[t][column];
    }
};

#endif

GDN_DEVICE void woa(woa_smem &m, const gdn_step &a, const gdn_rule_ext &x, void *h_table, float *stash, uint64_t pitch, uint32_t batch,
                    uint32_t *record, const int32_t *cu_rows, const int32_t *seq_ids) {
#if GDN_WOA_STAY
    GDN_DYN_SMEM_ALIGNED(float, state, 128);
    const gdn_stay o = { a, x, h_table, stash, pitch, batch, record, cu_rows, seq_ids };
    gdn_stay_run(m, state, o, gdn_stay_alone { m, o });
#else
    const uint32_t head = blockIdx.x, b = blockIdx.y, id = gdn_sequence_id(seq_ids, b);
    const gdn_step_span span = gdn_step_rows_of(cu_rows, b, GDN_STASH_ROWS);
    const gdn_state_ptrs p = gdn_states_of(x, h_table, true, b, head, a.nv, GDN_STASH_DIM, GDN_STASH_DIM);
    (void)batch;
    if (!p.in) {
        gdn_step_zero(a, span.row, span.rows, head, GDN_STASH_DIM);
        return;
    }
    if (record && head == 0 && threadIdx.x == 0) record[id] = GDN_RECORD_DEFERRED | span.rows;
    if (span.rows == 0) return;
    gdn_step_rows<GDN_STASH_DIM, GDN_STASH_ROWS, true>(m, a, span.row, span.rows, head, gdn_is_fresh(x, b) ? nullptr : p.in,
                                                       gdn_step_nowhere(), to_stash { stash, pitch, id, a.nk, a.nv, head });
#endif
}

#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, WOA_BLOCKS)
gated_delta_rule_wy4_woa(void *h_table, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                         const float *beta, gdn_bf16 *output, float *stash, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,
                         uint32_t v_dim, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t stash_seq_floats,
                         uint32_t *engaged_flag) {
    gdn_begin();
    (void)v_dim;
    __shared__ woa_smem m;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(k_dim, 0) };
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *engaged_flag = 1;
    woa(m, a, gdn_rule_ext {}, h_table, stash, stash_seq_floats, batch, nullptr, nullptr, nullptr);
}
#endif

#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, WOA_BLOCKS)
gated_delta_rule_wy4_woa_ext(void *h_table, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                             const float *beta, gdn_bf16 *output, float *stash, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,
                             uint32_t v_dim, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t stash_seq_floats,
                             uint32_t *engaged_flag, GDN_STEP_EXT_ARGS) {
    gdn_begin();
    (void)v_dim;
    __shared__ woa_smem m;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(k_dim, scale) };
    const gdn_rule_ext x = GDN_STEP_EXT;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *engaged_flag = 1;
    woa(m, a, x, h_table, stash, stash_seq_floats, batch, nullptr, nullptr, nullptr);
}

GDN_KERNEL(GDN_STEP_BLOCK, WOA_BLOCKS)
gated_delta_rule_wy4_woa_seq(void *h_table, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate,
                             const float *beta, gdn_bf16 *output, float *stash, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,
                             uint32_t v_dim, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t stash_seq_floats,
                             uint32_t *record, GDN_STEP_EXT_ARGS, const int32_t *cu_rows, const int32_t *seq_ids) {
    gdn_begin();
    (void)v_dim;
    __shared__ woa_smem m;
    const gdn_step a = { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(k_dim, scale) };
    const gdn_rule_ext x = GDN_STEP_EXT;
    woa(m, a, x, h_table, stash, stash_seq_floats, batch, record, cu_rows, seq_ids);
}
#endif

/* What a fold works on: one (sequence, value head), or a part of it. */
struct fold_head {
    const float *in; /* fresh: NULL */
    float *out;      /* NULL: padding */
    gdn_fold_part part;
};
GDN_DEVICE fold_head fold_head_of(const gdn_rule_ext &x, void *h_table, uint32_t nv, uint32_t k_dim, uint32_t v_dim) {
    const gdn_fold_part part = { blockIdx.x % nv, blockIdx.x / nv, gridDim.x / nv };
    const gdn_state_ptrs p = gdn_states_of(x, h_table, true, blockIdx.y, part.head, nv, k_dim, v_dim);
    return fold_head { gdn_is_fresh(x, blockIdx.y) ? nullptr : p.in, p.out, part };
}
GDN_DEVICE void fold_hi(const gdn_hi &hi, uint32_t na, uint32_t id, const fold_head &f, uint32_t nv, uint32_t k_dim, uint32_t v_dim) {
    const uint64_t one = (uint64_t)k_dim * v_dim;
    const uint32_t share = (uint32_t)one / f.part.parts, at = f.part.part * share;
    const float *const from = gdn_hi_of(hi, na - 1, id, nv * one);
    if (from) gdn_fold_copy(from + f.part.head * one + at, f.out + at, share);
}
/* The single-word form. */
GDN_DEVICE void fold(const gdn_rule_ext &x, void *h_table, float *stash, uint32_t na, const gdn_hi &hi, bool engaged, uint32_t k_rows,
                     uint32_t nk, uint32_t nv, uint32_t k_dim, uint32_t v_dim, uint64_t pitch) {
    const uint32_t b = blockIdx.y;
    const fold_head f = fold_head_of(x, h_table, nv, k_dim, v_dim); /* its load and na's wait together */
    if (na == 0 || !f.out) return;
    if (engaged)
        gdn_fold_stash(f.in, f.out, gdn_stash_of(stash, b, pitch, nv), f.part, nk, nv, min(na, (uint32_t)GDN_STASH_ROWS));
    else if (na < k_rows)
        fold_hi(hi, na, b, f, nv, k_dim, v_dim);
}

#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 6)
gated_delta_rule_wy4_fold(void *h_table, float *stash, const uint32_t *na_tab, const void *hi_tables, uint32_t slab_entries,
                          const uint32_t *engaged_flag, uint32_t k_rows, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,
                          uint32_t v_dim, uint32_t stash_seq_floats) {
    gdn_begin();
    (void)batch;
    fold(gdn_rule_ext {}, h_table, stash, na_tab[blockIdx.y], gdn_hi { hi_tables, slab_entries, 0, true }, *engaged_flag == 1, k_rows, nk,
         nv, k_dim, v_dim, stash_seq_floats);
}
#endif

#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(GDN_STEP_BLOCK, 6)
gated_delta_rule_wy4_fold_ext(void *h_table, float *stash, const uint32_t *na_tab, const void *hi_tables, uint32_t slab_entries,
                              const uint32_t *engaged_flag, uint32_t k_rows, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,
                              uint32_t v_dim, uint32_t stash_seq_floats, GDN_STEP_EXT_ARGS, const int32_t *cu_rows, uint32_t hi_is_table,
                              uint32_t hi_capacity) {
    gdn_begin();
    (void)batch;
    fold(GDN_STEP_EXT, h_table, stash, na_tab[blockIdx.y], gdn_hi { hi_tables, slab_entries, hi_capacity, hi_is_table != 0 },
         *engaged_flag == 1, gdn_step_rows_of(cu_rows, blockIdx.y, k_rows).rows, nk, nv, k_dim, v_dim, stash_seq_floats);
}

GDN_KERNEL(GDN_STEP_BLOCK, 6)
gated_delta_rule_wy4_fold_seq(void *h_table, float *stash, const uint32_t *na_tab, const void *hi_tables, uint32_t slab_entries,
                              const uint32_t *record, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim, uint32_t v_dim,
                              uint32_t stash_seq_floats, GDN_STEP_EXT_ARGS, uint32_t hi_is_table, uint32_t hi_capacity,
                              const int32_t *seq_ids) {
    gdn_begin();
    (void)batch;
    const fold_head f = fold_head_of(GDN_STEP_EXT, h_table, nv, k_dim, v_dim);
    if (!f.out) return;
    const uint32_t id = gdn_sequence_id(seq_ids, blockIdx.y), word = record[id], rows = word & GDN_RECORD_ROWS,
                   na = min(na_tab[blockIdx.y], rows);
    if (word & GDN_RECORD_DEFERRED) {
        if (na) gdn_fold_stash(f.in, f.out, gdn_stash_of(stash, id, stash_seq_floats, nv), f.part, nk, nv, na);
    } else if (word & GDN_RECORD_KEPT && na)
        fold_hi(gdn_hi { hi_tables, slab_entries, hi_capacity, hi_is_table != 0 }, na, id, f, nv, k_dim, v_dim);
}

GDN_KERNEL(32)
gated_delta_rule_wy4_flag_clear(uint32_t *engaged_flag) {
    gdn_begin();
    if (threadIdx.x == 0) *engaged_flag = 0;
}

GDN_KERNEL(32)
gated_delta_rule_wy4_flag_clear_seq(uint32_t *record, const int32_t *seq_ids, uint32_t count) {
    gdn_begin();
    for (uint32_t i = blockIdx.x * 32 + threadIdx.x; i < count; i += gridDim.x * 32)
        if (!seq_ids || seq_ids[i] >= 0) record[gdn_sequence_id(seq_ids, i)] = GDN_RECORD_NONE;
}
#endif
