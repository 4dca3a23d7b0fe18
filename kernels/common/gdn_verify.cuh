/* gdn_verify.cuh - the body of the verify entries (gated_delta_rule_wy*.cu): one (sequence, value head) a block, grid (nv, batch), block
 * 128. Contract: abi/gdn_op_rule.h; formulas and bits: gdn_step.cuh.
 *
 * What an `_ext` entry appends: GDN_STEP_EXT_ARGS (gdn_rule.cuh), then
 *   cu_rows       int32[batch + 1] or NULL: sequence b has rows [cu_rows[b], cu_rows[b+1]), at most the entry's, 0 included
 *   hi_capacity   where hi is no table: states a sequence has room for there
 *   seq_ids       int32 a sequence or NULL (then b): the row of the sequence in what outlives the launch: hi and record
 *   record        u32[ids] or NULL, which it is but for wyn: by sequence. Gets GDN_RECORD_KEPT | rows for each sequence that is not
 *                 padding, fold_seq goes by it; the state after the last row goes to hi as well, and none is written elsewhere */
#pragma once
#include "gdn_step.cuh"

enum { GDN_RECORD_NONE = 0, GDN_RECORD_KEPT = 0x100, GDN_RECORD_DEFERRED = 0x200, GDN_RECORD_ROWS = 0xff };

struct gdn_verify_ext {
    const int32_t *cu_rows, *seq_ids;
    uint32_t *record;
    uint32_t hi_capacity;
};
GDN_DEVICE uint32_t gdn_sequence_id(const int32_t *seq_ids, uint32_t b) {
    return seq_ids ? (uint32_t)seq_ids[b] : b;
}

/* Where the states between the rows of a sequence begin. NULL, as a whole or an entry: not kept. One address: a table of 64-bit
 * bases, entry t*slab_entries + id, or elements T at (id*hi_capacity + t) states of a sequence. */
struct gdn_hi {
    const void *base;
    uint32_t slab_entries, capacity;
    bool is_table;
};
template <class T = float> GDN_DEVICE T *gdn_hi_of(const gdn_hi &hi, uint32_t t, uint32_t id, uint64_t sequence_size) {
    if (!hi.base) return nullptr;
    if (hi.is_table) return static_cast<T *const *>(hi.base)[(uint64_t)t * hi.slab_entries + id];
    return static_cast<T *>(const_cast<void *>(hi.base)) + ((uint64_t)id * hi.capacity + t) * sequence_size;
}

/* What a block has to do for sequence blockIdx.y and a head. */
struct gdn_verify_work {
    uint64_t row;    /* its first                                                */
    uint32_t rows;   /* 0: nothing is left to do                                 */
    uint32_t id;     /* of the sequence                                          */
    const float *in; /* the head's state; NULL: zeros                            */
    float *out;      /* where it goes after the last row; NULL: where hi_of says */
};
/* first: this block does what is done once a head. meanwhile(): called when the state's address is on its way. */
template <uint32_t DIM, class MEANWHILE>
GDN_DEVICE gdn_verify_work gdn_verify_begin(const gdn_step &a, const gdn_rule_ext &x, const gdn_verify_ext &e, void *h, bool is_table,
                                            uint32_t head, bool first, uint32_t rows, MEANWHILE meanwhile) {
    const uint32_t b = blockIdx.y;
    const gdn_step_span span = gdn_step_rows_of(e.cu_rows, b, rows);
    const gdn_state_ptrs p = gdn_states_of(x, h, is_table, b, head, a.nv, DIM, DIM);
    meanwhile();
    if (!p.in) {
        if (first) gdn_step_zero(a, span.row, span.rows, head, DIM);
        return gdn_verify_work {};
    }
    const uint32_t id = gdn_sequence_id(e.seq_ids, b);
    if (e.record && head == 0 && first && threadIdx.x == 0) e.record[id] = GDN_RECORD_KEPT | span.rows;
    const float *const in = gdn_is_fresh(x, b) ? nullptr : p.in;
    if (span.rows == 0 && !e.record && first && threadIdx.x < GDN_STEP_BLOCK) gdn_step_carry(in, p.out, DIM * DIM);
    return gdn_verify_work { span.row, span.rows, id, in, e.record ? nullptr : p.out };
}
/* Where the head's state goes after row t, or NULL. hi_of(t, id): where the sequence's begins. */
template <uint32_t DIM, class HI> GDN_DEVICE float *gdn_verify_after(const gdn_verify_work &w, uint32_t head, uint32_t t, HI hi_of) {
    if (t + 1 == w.rows && w.out) return w.out;
    float *const hi = hi_of(t, w.id);
    return hi ? hi + (uint64_t)head * DIM * DIM : hi;
}

template <uint32_t DIM, uint32_t ROWS, class HI>
GDN_DEVICE void gdn_verify_head(gdn_step_smem<ROWS> &m, const gdn_step &a, const gdn_rule_ext &x, const gdn_verify_ext &e, void *h,
                                bool is_table, uint32_t rows, HI hi_of) {
    const uint32_t head = blockIdx.x;
    const gdn_verify_work w = gdn_verify_begin<DIM>(a, x, e, h, is_table, head, true, rows, [&] {});
    if (w.rows == 0) return;
    gdn_step_rows<DIM, ROWS, true>(
        m, a, w.row, w.rows, head, w.in, [&](uint32_t t) { return gdn_verify_after<DIM>(w, head, t, hi_of); }, gdn_step_unseen());
}
template <uint32_t ROWS, class HI>
GDN_DEVICE void gdn_verify(gdn_step_smem<ROWS> &m, const gdn_step &a, const gdn_rule_ext &x, const gdn_verify_ext &e, void *h,
                           bool is_table, uint32_t kd, uint32_t rows, HI hi_of) {
    if (kd == 128)
        gdn_verify_head<128, ROWS>(m, a, x, e, h, is_table, rows, hi_of);
    else
        gdn_verify_head<64, ROWS>(m, a, x, e, h, is_table, rows, hi_of);
}
