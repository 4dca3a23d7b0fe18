/* checked.c - values that live in memory: offsets and accepted counts are always looked at here, where that is cheap; slots,
 * output collisions and gate ranges when the plan is GDN_PLAN_CHECKED. Padding rows are skipped: whatever they hold is legal. */
#include "cpu_plugin.h"
#include "gdn_check.h"
#include "step.h"
#include <string.h>

static int64_t offset_at(const void *cu, bool cu64, uint32_t i) {
    return cu64 ? ((const int64_t *)cu)[i] : ((const int32_t *)cu)[i];
}

static gdn_status bad(gdn_text *err, uint32_t op, uint32_t kind, uint32_t a, uint32_t b, int64_t value, int64_t bound) {
    const gdn_check_report r = { .kind = kind, .a = a, .b = b, .value = value, .bound = bound };
    return gdn__fail_checked(err, op, &r);
}

static gdn_status check_offsets(gdn_text *err, uint32_t op, const void *cu, bool cu64, uint32_t n, uint64_t max_total, uint64_t max_each) {
    const int64_t first = offset_at(cu, cu64, 0);
    if (first < 0) return bad(err, op, GDN_BAD_OFFSET_FIRST, 0, 0, first, 0);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t a = offset_at(cu, cu64, i), b = offset_at(cu, cu64, i + 1);
        if (b < a) return bad(err, op, GDN_BAD_OFFSET_BACK, i + 1, 0, b, a);
        if ((uint64_t)(b - a) > max_each) return bad(err, op, GDN_BAD_OFFSET_EACH, i, 0, b - a, (int64_t)max_each);
        if ((uint64_t)(b - first) > max_total) return bad(err, op, GDN_BAD_OFFSET_TOTAL, i, 0, b, (int64_t)max_total);
    }
    return GDN_OK;
}

/* other: the other list of the same sequences, NULL: there is none. Negative in either is padding, whatever the other says. */
static gdn_status check_slots(gdn_text *err, uint32_t op, const int32_t *slots, const int32_t *other, uint32_t n, uint64_t num_slots,
                              bool out) {
    for (uint32_t i = 0; num_slots && i < n; i++)
        if (slots[i] >= 0 && (!other || other[i] >= 0) && (uint64_t)slots[i] >= num_slots)
            return bad(err, op, out ? GDN_BAD_SLOT_OUT : GDN_BAD_SLOT_IN, i, 0, slots[i], (int64_t)num_slots);
    return GDN_OK;
}

/* GDN_STATE_POOL: only then are there slots, and then both. */
static bool is_pool(const gdn_cpu_rule *c) {
    return c->in_slots && c->out_slots;
}

static bool is_padding(const gdn_cpu_rule *c, uint32_t b) {
    if (is_pool(c)) return c->in_slots[b] < 0 || c->out_slots[b] < 0;
    if (c->addr == GDN_STATE_TABLE) return !((const uint64_t *)c->state)[b] || !((const uint64_t *)c->state_out)[b];
    return false;
}

static gdn_status check_gate(const gdn_cpu_rule *c, uint32_t op, uint64_t row, gdn_text *err) {
    const float *g = c->gate + row * c->gb_stride;
    for (uint32_t h = 0; h < c->nv; h++) {
        if (c->log_gate ? g[h] <= 0.0f : (g[h] >= 0.0f && g[h] <= 1.0f)) continue;
        uint32_t bits;
        memcpy(&bits, &g[h], sizeof bits);
        return bad(err, op, GDN_BAD_GATE, (uint32_t)row, h, bits, c->log_gate);
    }
    return GDN_OK;
}

static gdn_status check_gates(const gdn_cpu_rule *c, uint32_t op, gdn_text *err) {
    gdn_status st = GDN_OK;
    for (uint32_t b = 0; !st && b < c->batch; b++) {
        const uint64_t r0 = c->cu ? (uint64_t)offset_at(c->cu, c->cu64, b) : (uint64_t)b * c->seq_len;
        const uint64_t r1 = c->cu ? (uint64_t)offset_at(c->cu, c->cu64, b + 1) : r0 + c->seq_len;
        for (uint64_t r = r0; !st && r < r1 && !is_padding(c, b); r++) st = check_gate(c, op, r, err);
    }
    return st;
}

/* Two sequences that write one state, or one that reads what another writes. */
static gdn_status check_collisions(const gdn_cpu_rule *c, uint32_t op, gdn_text *err) {
    for (uint32_t i = 0; i < c->batch; i++)
        for (uint32_t j = 0; j < c->batch; j++) {
            if (i == j || is_padding(c, i) || is_padding(c, j)) continue;
            if (c->out_slots[i] == c->out_slots[j]) return bad(err, op, GDN_BAD_SAME_SLOT, i, j, c->out_slots[i], 0);
            if (c->state == c->state_out && c->in_slots[i] == c->out_slots[j] && !(c->fresh && c->fresh[i]))
                return bad(err, op, GDN_BAD_READ_SLOT, i, j, c->in_slots[i], 0);
        }
    return GDN_OK;
}

/* By sequence: numbers within stash, hi and record; checked plans also see one that is given twice. */
static gdn_status check_ids(const gdn_cpu_rule *c, const gdn_rule_shape *s, uint32_t op, gdn_text *err) {
    const bool pairs = (s->base.flags & GDN_PLAN_CHECKED) != 0;
    for (uint32_t b = 0; c->ids && b < c->batch; b++) {
        if (is_padding(c, b)) continue;
        if (c->ids[b] < 0 || (uint32_t)c->ids[b] >= s->stash_seqs) return bad(err, op, GDN_BAD_ID, b, 0, c->ids[b], s->stash_seqs);
        for (uint32_t i = 0; pairs && i < b; i++)
            if (c->ids[i] == c->ids[b] && !is_padding(c, i)) return bad(err, op, GDN_BAD_SAME_ID, i, b, c->ids[b], 0);
    }
    return GDN_OK;
}

/* What the record says must be something that a verify writes, and what it points to must be there. */
static gdn_status check_record(const gdn_cpu_rule *c, uint32_t op, gdn_text *err) {
    for (uint32_t b = 0; b < c->batch; b++) {
        if (is_padding(c, b)) continue;
        const uint32_t id = gdn__rule_id(c, b), word = c->record[id], rows = word & GDN_RECORD_ROWS;
        const uint32_t kind = word & ~(uint32_t)GDN_RECORD_ROWS, most = kind == GDN_RECORD_DEFERRED ? GDN_WOA_ROWS : GDN_MAX_ROWS;
        if (word == GDN_RECORD_NONE) continue;
        if ((kind != GDN_RECORD_DEFERRED && kind != GDN_RECORD_KEPT) || rows > most) return bad(err, op, GDN_BAD_RECORD, id, 0, word, 0);
        const uint32_t na = c->na[b] < rows ? c->na[b] : rows, room = c->hi ? c->hi_capacity : 0;
        if (na == 0) continue;
        if (kind == GDN_RECORD_DEFERRED && !c->stash) return bad(err, op, GDN_BAD_NO_STASH, id, 0, na, 1);
        if (kind == GDN_RECORD_KEPT && na > room) return bad(err, op, GDN_BAD_NO_KEPT, id, 0, na, room);
        if (kind == GDN_RECORD_KEPT && !gdn__step_hi(c, b, na - 1)) return bad(err, op, GDN_BAD_HI_ENTRY, id, 0, na - 1, 0);
    }
    return GDN_OK;
}

/* A plain verify has written the state of all its rows: fewer accepted ones need the states it kept. */
static gdn_status check_kept(const gdn_cpu_rule *c, uint32_t op, gdn_text *err) {
    for (uint32_t b = 0; *c->engaged != 1 && b < c->batch; b++) {
        const uint64_t rows = c->cu ? (uint64_t)(offset_at(c->cu, c->cu64, b + 1) - offset_at(c->cu, c->cu64, b)) : c->seq_len;
        if (c->na[b] == 0 || c->na[b] >= rows || is_padding(c, b)) continue;
        if (!c->hi) return bad(err, op, GDN_BAD_NO_HI, b, 0, c->na[b], (int64_t)rows);
        if (c->addr == GDN_STATE_TABLE && !((const uint64_t *)c->hi)[(uint64_t)(c->na[b] - 1) * c->slab_entries + b])
            return bad(err, op, GDN_BAD_HI_ENTRY, b, 0, c->na[b] - 1, 0);
    }
    return GDN_OK;
}

gdn_status cpu_check_fold(const gdn_cpu_rule *c, uint32_t op, gdn_text *err) {
    return c->record ? check_record(c, op, err) : check_kept(c, op, err);
}

gdn_status cpu_check_rule(const gdn_plan *p, const gdn_cpu_rule *c, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const uint32_t number = s->base.op;
    gdn_status st = GDN_OK;
    const uint32_t longest = c->seq_len ? c->seq_len : s->max_tokens;
    if (c->cu && number == GDN_OP_PREFILL) st = check_offsets(err, number, c->cu, c->cu64, c->batch, s->max_tokens, longest);
    if (c->cu && number != GDN_OP_PREFILL)
        st = check_offsets(err, number, c->cu, c->cu64, c->batch, (uint64_t)c->batch * c->seq_len, c->seq_len);
    if (!st) st = check_ids(c, s, number, err);
    if (!st && number == GDN_OP_FOLD) st = cpu_check_fold(c, number, err);
    if (st || !(s->base.flags & GDN_PLAN_CHECKED)) return st;
    if (is_pool(c) && ((st = check_slots(err, number, c->in_slots, c->out_slots, c->batch, s->num_slots, false)) ||
                       (st = check_slots(err, number, c->out_slots, c->in_slots, c->batch, s->num_slots, true)) ||
                       (st = check_collisions(c, number, err))))
        return st;
    return c->gate ? check_gates(c, number, err) : GDN_OK;
}

gdn_status cpu_check_accepted(gdn_text *err, uint32_t op, const int32_t *slots, const int32_t *accepted, uint32_t n, uint32_t most) {
    for (uint32_t b = 0; accepted && b < n; b++)
        if (!(slots && slots[b] < 0) && (accepted[b] < 0 || (uint32_t)accepted[b] > most))
            return bad(err, op, GDN_BAD_ACCEPTED, b, 0, accepted[b], most);
    return GDN_OK;
}

gdn_status cpu_check_conv(const gdn_plan *p, const gdn_cpu_conv *c, gdn_text *err) {
    const gdn_conv_shape *s = &p->shape.conv;
    const uint32_t extra = s->state_len - (s->width - 1), op = s->base.op;
    gdn_status st = GDN_OK;
    if (c->cu && (st = check_offsets(err, op, c->cu, c->cu64, c->batch, s->max_tokens, s->max_tokens))) return st;
    if (c->state && (st = cpu_check_accepted(err, op, c->slots, c->accepted, c->batch, extra))) return st;
    for (uint32_t b = 0; c->state && c->keep_rows && b < c->batch; b++) {
        const int64_t len = c->cu ? offset_at(c->cu, c->cu64, b + 1) - offset_at(c->cu, c->cu64, b) : (int64_t)c->seq_len;
        if (!(c->slots && c->slots[b] < 0) && len > (int64_t)extra) return bad(err, op, GDN_BAD_KEPT_ROWS, b, 0, len, extra);
    }
    return c->slots && (s->base.flags & GDN_PLAN_CHECKED) ? check_slots(err, op, c->slots, NULL, c->batch, s->num_slots, false) : GDN_OK;
}

gdn_status cpu_check_step(const gdn_step_shape *s, const int32_t *slots, uint32_t n, gdn_text *err) {
    gdn_status st = check_slots(err, s->base.op, slots, NULL, n, s->num_slots, false);
    for (uint32_t i = 0; !st && i < n; i++)
        for (uint32_t j = 0; !st && j < i; j++)
            if (slots[i] >= 0 && slots[i] == slots[j]) st = bad(err, s->base.op, GDN_BAD_SAME_SLOT, j, i, slots[i], 0);
    return st;
}

gdn_status cpu_check_pairs(const gdn_state_shape *s, const int32_t *src, const int32_t *dst, uint32_t n, bool one_pool, gdn_text *err) {
    const uint32_t op = s->base.op;
    gdn_status st = check_slots(err, op, dst, src, n, s->dst_slots, true);
    if (!st && src) st = check_slots(err, op, src, dst, n, s->src_slots, false);
    for (uint32_t i = 0; !st && i < n; i++)
        for (uint32_t j = 0; !st && j < i; j++)
            if (dst[i] >= 0 && dst[i] == dst[j] && (!src || (src[i] >= 0 && src[j] >= 0)))
                st = bad(err, op, GDN_BAD_SAME_SLOT, j, i, dst[i], 0);
    for (uint32_t i = 0; !st && src && one_pool && i < n; i++)
        for (uint32_t j = 0; !st && j < n; j++)
            if (i != j && src[i] >= 0 && dst[i] >= 0 && src[j] >= 0 && src[i] == dst[j])
                st = bad(err, op, GDN_BAD_READ_SLOT, i, j, src[i], 0);
    return st;
}
