/* plan_checked.c - the sentences about bad values in memory, the same on every target. */
#include "gdn_check.h"
#include "plan_common.h"
#include <string.h>

static bool is_state(uint32_t op) {
    return op == GDN_OP_STATE_COPY || op == GDN_OP_STATE_ZERO;
}
static const char *offsets_of(uint32_t op) {
    return op == GDN_OP_PREFILL || op == GDN_OP_CONV1D || op == GDN_OP_CONV_FUSED ? "cu_seqlens" : "cu_rows";
}
static const char *slots_of(uint32_t op, bool out) {
    if (is_state(op)) return out ? "dst_slots" : "src_slots";
    if (op == GDN_OP_CONV1D || op == GDN_OP_CONV_FUSED || op == GDN_OP_DECODE_STEP) return "slots";
    return out ? "out_tab" : "in_tab";
}

static gdn_status same_slot(gdn_text *err, uint32_t op, const gdn_check_report *r) {
    const char *name = gdn__op_name(op);
    const int slot = (int)r->value;
    if (is_state(op)) return gdn__fail(err, GDN_E_CHECKED, "%s: dst_slots names slot %d twice, at %u and %u", name, slot, r->a, r->b);
    if (op == GDN_OP_DECODE_STEP)
        return gdn__fail(err, GDN_E_CHECKED, "%s: sequences %u and %u have the same slot, %d", name, r->a, r->b, slot);
    return gdn__fail(err, GDN_E_CHECKED, "%s: sequences %u and %u write the same slot, %d", name, r->a, r->b, slot);
}

static gdn_status bad_gate(gdn_text *err, uint32_t op, const gdn_check_report *r) {
    const uint32_t bits = (uint32_t)r->value;
    float g;
    memcpy(&g, &bits, sizeof g);
    return gdn__fail(err, GDN_E_CHECKED, "%s: gate of row %u, head %u is %g; the plan says %s", gdn__op_name(op), r->a, r->b, (double)g,
                     r->bound ? "GDN_GATE_LOG, log decays <= 0" : "GDN_GATE_LINEAR, decays in [0, 1]");
}

static gdn_status bad_offset(gdn_text *err, uint32_t op, const gdn_check_report *r) {
    const char *name = gdn__op_name(op), *list = offsets_of(op);
    const long long value = r->value, bound = r->bound;
    switch (r->kind) {
    case GDN_BAD_OFFSET_FIRST: return gdn__fail(err, GDN_E_CHECKED, "%s: %s[0] is %lld", name, list, value);
    case GDN_BAD_OFFSET_BACK:
        return gdn__fail(err, GDN_E_CHECKED, "%s: %s[%u] is %lld, below %s[%u], %lld", name, list, r->a, value, list, r->a - 1, bound);
    case GDN_BAD_OFFSET_EACH: return gdn__fail(err, GDN_E_CHECKED, "%s: sequence %u has %lld rows, above %lld", name, r->a, value, bound);
    default: return gdn__fail(err, GDN_E_CHECKED, "%s: %s ends at %lld, more than the plan's %lld tokens", name, list, value, bound);
    }
}

gdn_status gdn__fail_checked(gdn_text *err, uint32_t op, const gdn_check_report *r) {
    const char *name = gdn__op_name(op);
    const long long value = r->value, bound = r->bound;
    switch (r->kind) {
    case GDN_BAD_SLOT_IN:
    case GDN_BAD_SLOT_OUT:
        return gdn__fail(err, GDN_E_CHECKED, "%s: %s[%u] is slot %lld, but the pool has %lld", name,
                         slots_of(op, r->kind == GDN_BAD_SLOT_OUT), r->a, value, bound);
    case GDN_BAD_SAME_SLOT: return same_slot(err, op, r);
    case GDN_BAD_READ_SLOT:
        return gdn__fail(err, GDN_E_CHECKED,
                         is_state(op) ? "%s: pair %u copies from slot %lld, which pair %u writes"
                                      : "%s: sequence %u reads slot %lld, which sequence %u writes",
                         name, r->a, value, r->b);
    case GDN_BAD_GATE: return bad_gate(err, op, r);
    case GDN_BAD_ACCEPTED: return gdn__fail(err, GDN_E_CHECKED, "%s: accepted[%u] is %lld, expected 0 to %lld", name, r->a, value, bound);
    case GDN_BAD_KEPT_ROWS:
        return gdn__fail(err, GDN_E_CHECKED, "%s: sequence %u has %lld rows to keep, but state_len has room for %lld", name, r->a, value,
                         bound);
    case GDN_BAD_ID:
        return gdn__fail(err, GDN_E_CHECKED, "%s: seq_ids[%u] is %lld, expected 0 to stash_seqs - 1, %lld", name, r->a, value, bound - 1);
    case GDN_BAD_SAME_ID:
        return gdn__fail(err, GDN_E_CHECKED, "%s: sequences %u and %u have the same seq_ids, %lld", name, r->a, r->b, value);
    case GDN_BAD_RECORD:
        return gdn__fail(err, GDN_E_CHECKED, "%s: the record of sequence %u is 0x%llx, which no verify writes", name, r->a, value);
    case GDN_BAD_NO_STASH:
        if (!r->bound) return gdn__fail(err, GDN_E_ARG, "%s: pointer 'stash' is NULL, but the flag is engaged", name);
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'stash' is NULL, but sequence %u was deferred", name, r->a);
    case GDN_BAD_NO_HI:
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'hi_tables' is NULL, but sequence %u accepted %lld of %lld rows", name, r->a, value,
                         bound);
    case GDN_BAD_NO_KEPT:
        return gdn__fail(err, GDN_E_ARG, "%s: %s, but sequence %u accepted %lld kept rows", name,
                         bound ? "hi_capacity is below that" : "pointer 'hi_tables' is NULL", r->a, value);
    case GDN_BAD_HI_ENTRY:
        return gdn__fail(err, GDN_E_CHECKED, "%s: hi_tables has no state for sequence %u after row %lld", name, r->a, value);
    default: return bad_offset(err, op, r);
    }
}
