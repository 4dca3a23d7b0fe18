/* gdn_check.cu - GDN_PLAN_CHECKED on the device: looks at the offsets, slots, accepted counts, gates and sequence numbers of the launch
 * that follows, and leaves the first bad value that a thread finds in *report (kernels/common/gdn_check.h). Writes nothing else, and reads
 * no gate of a sequence whose offsets are wrong.
 *
 * Grid GDN_CHECK_BLOCKS, block GDN_CHECK_BLOCK; every list may be NULL. A sequence is padding when its slot in either list is negative, or
 * its entry in either table is null; padding is not looked at, whatever it holds. */
#include "gdn_device.cuh"

#include "gdn_check.h"

struct check_lists {
    const void *offsets;
    uint32_t wide, batch, seq_len; /* seq_len: rows of each without offsets */
    const int32_t *in_slots, *out_slots;
    const uint64_t *in_table, *out_table;
};

GDN_DEVICE void found(gdn_check_report *r, uint32_t kind, uint32_t a, uint32_t b, int64_t value, int64_t bound) {
    if (gdn_atomic_cas(&r->kind, GDN_BAD_NOTHING, kind) != GDN_BAD_NOTHING) return;
    r->a = a;
    r->b = b;
    r->value = value;
    r->bound = bound;
}

GDN_DEVICE int64_t offset_at(const check_lists &l, uint32_t i) {
    return l.wide ? static_cast<const int64_t *>(l.offsets)[i] : static_cast<const int32_t *>(l.offsets)[i];
}
GDN_DEVICE int64_t begin_of(const check_lists &l, uint32_t b) {
    return l.offsets ? offset_at(l, b) : (int64_t)b * l.seq_len;
}
GDN_DEVICE bool is_padding(const check_lists &l, uint32_t b) {
    if ((l.in_slots && l.in_slots[b] < 0) || (l.out_slots && l.out_slots[b] < 0)) return true;
    return (l.in_table && !l.in_table[b]) || (l.out_table && !l.out_table[b]);
}

/* false: rows of this sequence must not be touched. */
GDN_DEVICE bool check_offsets(gdn_check_report *r, const check_lists &l, uint32_t b, uint64_t max_total, uint64_t max_each) {
    if (!l.offsets) return true;
    const int64_t first = offset_at(l, 0), from = offset_at(l, b), to = offset_at(l, b + 1);
    if (first < 0) return found(r, GDN_BAD_OFFSET_FIRST, 0, 0, first, 0), false;
    if (to < from) return found(r, GDN_BAD_OFFSET_BACK, b + 1, 0, to, from), false;
    if ((uint64_t)(to - from) > max_each) return found(r, GDN_BAD_OFFSET_EACH, b, 0, to - from, (int64_t)max_each), false;
    if (from < first || (uint64_t)(to - first) > max_total) return found(r, GDN_BAD_OFFSET_TOTAL, b, 0, to, (int64_t)max_total), false;
    return true;
}

GDN_DEVICE void check_slot(gdn_check_report *r, const int32_t *slots, uint32_t b, uint64_t many, uint32_t kind) {
    if (slots && many && slots[b] >= 0 && (uint64_t)slots[b] >= many) found(r, kind, b, 0, slots[b], (int64_t)many);
}

/* Sequences i and j, i != j. */
GDN_DEVICE void check_pair(gdn_check_report *r, const check_lists &l, uint32_t pairs, const uint8_t *fresh, uint32_t i, uint32_t j) {
    if (is_padding(l, i) || is_padding(l, j)) return;
    if ((pairs & GDN_CHECK_SAME_SLOT) && i < j && l.out_slots[i] == l.out_slots[j]) found(r, GDN_BAD_SAME_SLOT, i, j, l.out_slots[i], 0);
    if ((pairs & GDN_CHECK_READ_SLOT) && l.in_slots[i] == l.out_slots[j] && !(fresh && fresh[i]))
        found(r, GDN_BAD_READ_SLOT, i, j, l.in_slots[i], 0);
}

GDN_DEVICE void check_gates(gdn_check_report *r, const float *gate, int64_t from, int64_t to, uint32_t nv, uint32_t stride, uint32_t log) {
    for (uint64_t i = threadIdx.x; i < (uint64_t)(to - from) * nv; i += GDN_CHECK_BLOCK) {
        const int64_t row = from + (int64_t)(i / nv);
        const uint32_t head = (uint32_t)(i % nv);
        const float g = gate[row * stride + head];
        if (log ? g <= 0.0f : g >= 0.0f && g <= 1.0f) continue;
        found(r, GDN_BAD_GATE, (uint32_t)row, head, (int64_t)gdn_bits(g), log);
    }
}

/* What a fold needs for the rows that it is told to apply. Words of the record: abi/gdn_op_rule.h. */
struct check_fold {
    const uint32_t *na, *flag, *record;
    uint32_t has, hi_capacity;
    const uint64_t *hi; /* a table, or NULL */
    uint32_t slab_entries;
};
GDN_DEVICE void check_hi(gdn_check_report *r, const check_fold &f, uint32_t id, uint32_t na) {
    if (f.hi && !f.hi[(uint64_t)(na - 1) * f.slab_entries + id]) found(r, GDN_BAD_HI_ENTRY, id, 0, na - 1, 0);
}
enum : uint32_t { KEPT = 0x100, DEFERRED = 0x200, ROWS = 0xff };
GDN_DEVICE void check_record(gdn_check_report *r, const check_fold &f, uint32_t b, uint32_t id) {
    const uint32_t word = f.record[id], rows = word & ROWS, kind = word & ~ROWS, na = f.na[b] < rows ? f.na[b] : rows;
    if (word == 0) return;
    if ((kind != KEPT && kind != DEFERRED) || rows > (kind == KEPT ? 16 : 4)) return found(r, GDN_BAD_RECORD, id, 0, word, 0);
    if (na && kind == DEFERRED && !(f.has & GDN_CHECK_HAS_STASH)) found(r, GDN_BAD_NO_STASH, id, 0, na, 1);
    const uint32_t room = f.has & GDN_CHECK_HAS_HI ? f.hi_capacity : 0;
    if (kind == KEPT && na > room) found(r, GDN_BAD_NO_KEPT, id, 0, na, room);
    if (kind == KEPT && na && na <= room) check_hi(r, f, id, na);
}
GDN_DEVICE void check_accepted_rows(gdn_check_report *r, const check_fold &f, uint32_t b, uint32_t rows) {
    const uint32_t na = f.na[b];
    if (na == 0) return;
    if (*f.flag == 1) {
        if (!(f.has & GDN_CHECK_HAS_STASH)) found(r, GDN_BAD_NO_STASH, b, 0, na, 0);
    } else if (na < rows && !(f.has & GDN_CHECK_HAS_HI)) {
        found(r, GDN_BAD_NO_HI, b, 0, na, rows);
    } else if (na < rows) {
        check_hi(r, f, b, na);
    }
}

GDN_KERNEL(GDN_CHECK_BLOCK, 1)
gdn_check_values(gdn_check_report *report, const void *offsets, uint32_t wide, uint32_t batch, uint32_t seq_len, uint64_t max_total,
                 uint64_t max_each, const int32_t *in_slots, const int32_t *out_slots, uint64_t num_in, uint64_t num_out,
                 const uint64_t *in_table, const uint64_t *out_table, uint32_t pairs, const uint8_t *fresh, const float *gate, uint32_t nv,
                 uint32_t gb_stride, uint32_t log_gate, const int32_t *accepted, uint32_t most_accepted, uint32_t most_kept,
                 const int32_t *ids, uint32_t num_ids, const uint32_t *na, const uint32_t *flag, const uint32_t *record, uint32_t has,
                 uint32_t hi_capacity, uint32_t k_rows, const uint64_t *hi, uint32_t slab_entries) {
    gdn_begin();
    const check_fold fold { na, flag, record, has, hi_capacity, hi, slab_entries };
    const check_lists l { offsets, wide, batch, seq_len, in_slots, out_slots, in_table, out_table };
    for (uint32_t b = blockIdx.x; b < batch; b += gridDim.x) {
        const bool whole = check_offsets(report, l, b, max_total, max_each);
        if (is_padding(l, b)) continue;
        const int64_t from = begin_of(l, b), to = begin_of(l, b + 1);
        if (whole && gate) check_gates(report, gate, from, to, nv, gb_stride, log_gate);
        for (uint32_t j = threadIdx.x; j < batch; j += GDN_CHECK_BLOCK) {
            if (j == b) continue;
            if (pairs) check_pair(report, l, pairs, fresh, b, j);
            if (ids && b < j && ids[b] == ids[j] && !is_padding(l, j)) found(report, GDN_BAD_SAME_ID, b, j, ids[b], 0);
        }
        if (threadIdx.x) continue;
        check_slot(report, in_slots, b, num_in, GDN_BAD_SLOT_IN);
        check_slot(report, out_slots, b, num_out, GDN_BAD_SLOT_OUT);
        if (accepted && (accepted[b] < 0 || (uint32_t)accepted[b] > most_accepted))
            found(report, GDN_BAD_ACCEPTED, b, 0, accepted[b], most_accepted);
        if (most_kept && whole && to - from > (int64_t)most_kept) found(report, GDN_BAD_KEPT_ROWS, b, 0, to - from, most_kept);
        const bool known = !ids || (ids[b] >= 0 && (uint32_t)ids[b] < num_ids);
        if (!known) found(report, GDN_BAD_ID, b, 0, ids[b], num_ids);
        if (na && record && known) check_record(report, fold, b, ids ? (uint32_t)ids[b] : b);
        if (na && !record && flag && whole) check_accepted_rows(report, fold, b, k_rows == ~0u ? (uint32_t)(to - from) : k_rows);
    }
}
