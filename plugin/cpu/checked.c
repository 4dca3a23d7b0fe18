/* checked.c - values that live in memory: offsets and accepted counts are always looked at here, where that is cheap; slots,
 * output collisions and gate ranges when the plan is GDN_PLAN_CHECKED. Padding rows are skipped: whatever they hold is legal. */
#include "cpu_plugin.h"
#include "step.h"

static int64_t offset_at(const void *cu, bool cu64, uint32_t i) {
    return cu64 ? ((const int64_t *)cu)[i] : ((const int32_t *)cu)[i];
}

gdn_status cpu_check_offsets(gdn_text *err, const char *op, const char *name, const void *cu, bool cu64, uint32_t n, uint64_t max_total,
                             uint64_t max_each) {
    const int64_t first = offset_at(cu, cu64, 0);
    if (first < 0) return gdn__fail(err, GDN_E_CHECKED, "%s: %s[0] is %lld", op, name, (long long)first);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t a = offset_at(cu, cu64, i), b = offset_at(cu, cu64, i + 1);
        if (b < a)
            return gdn__fail(err, GDN_E_CHECKED, "%s: %s[%u] is %lld, below %s[%u], %lld", op, name, i + 1, (long long)b, name, i,
                             (long long)a);
        if ((uint64_t)(b - a) > max_each)
            return gdn__fail(err, GDN_E_CHECKED, "%s: sequence %u has %lld rows, above %llu", op, i, (long long)(b - a),
                             (unsigned long long)max_each);
        if ((uint64_t)(b - first) > max_total)
            return gdn__fail(err, GDN_E_CHECKED, "%s: %s ends at %lld, more than the plan's %llu tokens", op, name, (long long)b,
                             (unsigned long long)max_total);
    }
    return GDN_OK;
}

gdn_status cpu_check_slots(gdn_text *err, const char *op, const char *name, const int32_t *slots, uint32_t n, uint64_t num_slots) {
    for (uint32_t i = 0; num_slots && i < n; i++)
        if (slots[i] >= 0 && (uint64_t)slots[i] >= num_slots)
            return gdn__fail(err, GDN_E_CHECKED, "%s: %s[%u] is slot %d, but the pool has %llu", op, name, i, slots[i],
                             (unsigned long long)num_slots);
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

static gdn_status check_gate(const gdn_cpu_rule *c, const char *op, uint64_t row, gdn_text *err) {
    const float *g = c->gate + row * c->gb_stride;
    for (uint32_t h = 0; h < c->nv; h++) {
        if (c->log_gate ? g[h] <= 0.0f : (g[h] >= 0.0f && g[h] <= 1.0f)) continue;
        return gdn__fail(err, GDN_E_CHECKED, "%s: gate of row %llu, head %u is %g; the plan says %s", op, (unsigned long long)row, h,
                         (double)g[h], c->log_gate ? "GDN_GATE_LOG, log decays <= 0" : "GDN_GATE_LINEAR, decays in [0, 1]");
    }
    return GDN_OK;
}

static gdn_status check_gates(const gdn_cpu_rule *c, const char *op, gdn_text *err) {
    gdn_status st = GDN_OK;
    for (uint32_t b = 0; !st && b < c->batch; b++) {
        const uint64_t r0 = c->cu ? (uint64_t)offset_at(c->cu, c->cu64, b) : (uint64_t)b * c->seq_len;
        const uint64_t r1 = c->cu ? (uint64_t)offset_at(c->cu, c->cu64, b + 1) : r0 + c->seq_len;
        for (uint64_t r = r0; !st && r < r1 && !is_padding(c, b); r++) st = check_gate(c, op, r, err);
    }
    return st;
}

/* Two sequences that write one state, or one that reads what another writes. */
static gdn_status check_collisions(const gdn_cpu_rule *c, const char *op, gdn_text *err) {
    for (uint32_t i = 0; i < c->batch; i++)
        for (uint32_t j = 0; j < c->batch; j++) {
            if (i == j || is_padding(c, i) || is_padding(c, j)) continue;
            if (c->out_slots[i] == c->out_slots[j])
                return gdn__fail(err, GDN_E_CHECKED, "%s: sequences %u and %u write the same slot, %d", op, i, j, c->out_slots[i]);
            if (c->state == c->state_out && c->in_slots[i] == c->out_slots[j] && !(c->fresh && c->fresh[i]))
                return gdn__fail(err, GDN_E_CHECKED, "%s: sequence %u reads slot %d, which sequence %u writes", op, i, c->in_slots[i], j);
        }
    return GDN_OK;
}

/* By sequence: numbers within stash, hi and record; checked plans also see one that is given twice. */
static gdn_status check_ids(const gdn_cpu_rule *c, const gdn_rule_shape *s, const char *op, gdn_text *err) {
    const bool pairs = (s->base.flags & GDN_PLAN_CHECKED) != 0;
    for (uint32_t b = 0; c->ids && b < c->batch; b++) {
        if (is_padding(c, b)) continue;
        if (c->ids[b] < 0 || (uint32_t)c->ids[b] >= s->stash_seqs)
            return gdn__fail(err, GDN_E_CHECKED, "%s: seq_ids[%u] is %d, expected 0 to stash_seqs - 1, %u", op, b, c->ids[b],
                             s->stash_seqs - 1);
        for (uint32_t i = 0; pairs && i < b; i++)
            if (c->ids[i] == c->ids[b] && !is_padding(c, i))
                return gdn__fail(err, GDN_E_CHECKED, "%s: sequences %u and %u have the same seq_ids, %d", op, i, b, c->ids[b]);
    }
    return GDN_OK;
}

/* What the record says must be something that a verify writes, and what it points to must be there. */
static gdn_status check_record(const gdn_cpu_rule *c, const char *op, gdn_text *err) {
    for (uint32_t b = 0; b < c->batch; b++) {
        if (is_padding(c, b)) continue;
        const uint32_t id = gdn__rule_id(c, b), word = c->record[id], rows = word & GDN_RECORD_ROWS;
        const uint32_t kind = word & ~(uint32_t)GDN_RECORD_ROWS, most = kind == GDN_RECORD_DEFERRED ? GDN_WOA_ROWS : GDN_MAX_ROWS;
        if (word == GDN_RECORD_NONE) continue;
        if ((kind != GDN_RECORD_DEFERRED && kind != GDN_RECORD_KEPT) || rows > most)
            return gdn__fail(err, GDN_E_CHECKED, "%s: the record of sequence %u is 0x%x, which no verify writes", op, id, word);
        const uint32_t na = c->na[b] < rows ? c->na[b] : rows;
        if (na == 0) continue;
        if (kind == GDN_RECORD_DEFERRED && !c->stash)
            return gdn__fail(err, GDN_E_ARG, "%s: pointer 'stash' is NULL, but sequence %u was deferred", op, id);
        if (kind == GDN_RECORD_KEPT && (!c->hi || na > c->hi_capacity))
            return gdn__fail(err, GDN_E_ARG, "%s: %s, but sequence %u accepted %u kept rows", op,
                             c->hi ? "hi_capacity is below that" : "pointer 'hi_tables' is NULL", id, na);
        if (kind == GDN_RECORD_KEPT && !gdn__step_hi(c, b, na - 1))
            return gdn__fail(err, GDN_E_CHECKED, "%s: hi_tables has no state for sequence %u after row %u", op, id, na - 1);
    }
    return GDN_OK;
}

/* A plain verify has written the state of all its rows: fewer accepted ones need the states it kept. */
static gdn_status check_kept(const gdn_cpu_rule *c, const char *op, gdn_text *err) {
    for (uint32_t b = 0; *c->engaged != 1 && b < c->batch; b++) {
        const uint64_t rows = c->cu ? (uint64_t)(offset_at(c->cu, c->cu64, b + 1) - offset_at(c->cu, c->cu64, b)) : c->seq_len;
        if (c->na[b] == 0 || c->na[b] >= rows || is_padding(c, b)) continue;
        if (!c->hi)
            return gdn__fail(err, GDN_E_ARG, "%s: pointer 'hi_tables' is NULL, but sequence %u accepted %u of %llu rows", op, b, c->na[b],
                             (unsigned long long)rows);
        if (c->addr == GDN_STATE_TABLE && !((const uint64_t *)c->hi)[(uint64_t)(c->na[b] - 1) * c->slab_entries + b])
            return gdn__fail(err, GDN_E_CHECKED, "%s: hi_tables has no state for sequence %u after row %u", op, b, c->na[b] - 1);
    }
    return GDN_OK;
}

gdn_status cpu_check_rule(const gdn_plan *p, const gdn_cpu_rule *c, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const char *op = gdn__op_name(s->base.op);
    gdn_status st = GDN_OK;
    if (c->cu && s->base.op == GDN_OP_PREFILL)
        st = cpu_check_offsets(err, op, "cu_seqlens", c->cu, c->cu64, c->batch, s->max_tokens, s->max_tokens);
    if (c->cu && s->base.op != GDN_OP_PREFILL)
        st = cpu_check_offsets(err, op, "cu_rows", c->cu, c->cu64, c->batch, (uint64_t)c->batch * c->seq_len, c->seq_len);
    if (!st) st = check_ids(c, s, op, err);
    if (!st && s->base.op == GDN_OP_FOLD) st = c->record ? check_record(c, op, err) : check_kept(c, op, err);
    if (st || !(s->base.flags & GDN_PLAN_CHECKED)) return st;
    if (is_pool(c) &&
        ((st = cpu_check_slots(err, op, "in_tab", c->in_slots, c->batch, s->num_slots)) ||
         (st = cpu_check_slots(err, op, "out_tab", c->out_slots, c->batch, s->num_slots)) || (st = check_collisions(c, op, err))))
        return st;
    return c->gate ? check_gates(c, op, err) : GDN_OK;
}

gdn_status cpu_check_conv(const gdn_plan *p, const gdn_cpu_conv *c, gdn_text *err) {
    const gdn_conv_shape *s = &p->shape.conv;
    const char *op = gdn__op_name(s->base.op);
    const uint32_t extra = s->state_len - (s->width - 1);
    gdn_status st = GDN_OK;
    if (c->cu && (st = cpu_check_offsets(err, op, "cu_seqlens", c->cu, c->cu64, c->batch, s->max_tokens, s->max_tokens))) return st;
    for (uint32_t b = 0; c->state && b < c->batch; b++) {
        const int64_t len = c->cu ? offset_at(c->cu, c->cu64, b + 1) - offset_at(c->cu, c->cu64, b) : (int64_t)c->seq_len;
        if (c->slots && c->slots[b] < 0) continue;
        if (c->accepted && (c->accepted[b] < 0 || (uint32_t)c->accepted[b] > extra))
            return gdn__fail(err, GDN_E_CHECKED, "%s: accepted[%u] is %d, expected 0 to %u", op, b, c->accepted[b], extra);
        if (c->keep_rows && len > (int64_t)extra)
            return gdn__fail(err, GDN_E_CHECKED, "%s: sequence %u has %lld rows to keep, but state_len has room for %u", op, b,
                             (long long)len, extra);
    }
    if (c->slots && (s->base.flags & GDN_PLAN_CHECKED)) st = cpu_check_slots(err, op, "slots", c->slots, c->batch, s->num_slots);
    return st;
}
