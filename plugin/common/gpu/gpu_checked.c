/* gpu_checked.c - GDN_PLAN_CHECKED: a kernel in front of the launch looks at its offsets, slots, accepted counts, gates and sequence
 * numbers (gdn_check.cu). What it finds is read before the operation starts, so that nothing is written; on a capturing stream, where
 * nothing can be read, by the plan's next launch outside a capture. */
#include "gdn_check.h"
#include "gpu_rule.h"
#include <unistd.h>

/* Where a launch has what is looked at; pointers are places in its list, NONE where there is no such argument. */
typedef struct lists {
    int32_t offsets, in_slots, out_slots, fresh, gate, accepted, ids, in_table, out_table, na, flag, record, hi_table;
    uint32_t wide, batch, seq_len;
    uint64_t max_total, max_each, num_in, num_out;
    uint32_t pairs, nv, gb_stride, log_gate, most_accepted, most_kept, num_ids, has, hi_capacity, k_rows, slab_entries;
} lists;
enum { NONE = -1 };

static lists none(uint32_t batch) {
    return (lists) { NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, .batch = batch, .k_rows = UINT32_MAX };
}

static lists of_conv(const gdn_conv_shape *s, const gdn__call *c) {
    const bool fused = s->base.op == GDN_OP_CONV_FUSED;
    const uint32_t extra = s->state_len - (s->width - 1);
    lists l = none(c->u32[GDN_CONV1D_U_BATCH]);
    if (s->offsets) l.offsets = fused ? GDN_CONV_FUSED_P_CU_SEQLENS : GDN_CONV1D_P_CU_SEQLENS;
    l.wide = s->offsets == GDN_OFFSETS_I64;
    l.seq_len = c->u32[GDN_CONV1D_U_SEQ_LEN];
    l.max_total = l.max_each = s->max_tokens;
    l.in_slots = GDN_CONV1D_P_SLOTS;
    l.num_in = s->num_slots;
    if (c->ptr[GDN_CONV1D_P_STATE]) {
        l.accepted = fused ? GDN_CONV_FUSED_P_ACCEPTED : GDN_CONV1D_P_ACCEPTED;
        l.most_accepted = extra;
        l.most_kept = s->base.flags & GDN_CONV_KEEP_ROWS ? extra : 0;
    }
    return l;
}

static lists of_state(const gdn_state_shape *s, const gdn__call *c) {
    const bool copy = s->base.op == GDN_OP_STATE_COPY;
    lists l = none(c->u32[0]);
    l.out_slots = copy ? GDN_STATE_COPY_P_DST_SLOTS : GDN_STATE_ZERO_P_DST_SLOTS;
    l.num_out = s->dst_slots;
    l.pairs = GDN_CHECK_SAME_SLOT;
    if (!copy) return l;
    l.in_slots = GDN_STATE_COPY_P_SRC_SLOTS;
    l.num_in = s->src_slots;
    if (c->ptr[GDN_STATE_COPY_P_SRC] == c->ptr[GDN_STATE_COPY_P_DST] && s->src_stride == s->dst_stride) l.pairs |= GDN_CHECK_READ_SLOT;
    return l;
}

static lists of_step(const gdn_step_shape *s, const gdn__call *c) {
    lists l = none(c->u32[GDN_DECODE_STEP_U_BATCH]);
    l.in_slots = l.out_slots = GDN_DECODE_STEP_P_SLOTS;
    l.num_in = s->num_slots;
    l.pairs = c->ptr[GDN_DECODE_STEP_P_SLOTS] ? GDN_CHECK_SAME_SLOT : 0;
    l.accepted = GDN_DECODE_STEP_P_ACCEPTED;
    l.most_accepted = s->state_len - (s->width - 1);
    return l;
}

static int32_t ids_of(uint32_t op) {
    return op == GDN_OP_VERIFY       ? GDN_VERIFY_P_SEQ_IDS
           : op == GDN_OP_VERIFY_WOA ? GDN_VERIFY_WOA_P_SEQ_IDS
           : op == GDN_OP_FOLD       ? GDN_FOLD_P_SEQ_IDS
           : op == GDN_OP_ROUND      ? GDN_ROUND_P_SEQ_IDS
                                     : NONE;
}

static void add_hi(const gdn_rule_shape *s, int32_t place, lists *l) {
    l->hi_capacity = s->hi_capacity;
    if (s->state_addr == GDN_STATE_TABLE) l->hi_table = place, l->slab_entries = s->slab_entries;
}
static void add_fold(const gdn_rule_shape *s, const gdn__call *c, lists *l) {
    l->na = GDN_FOLD_P_NA;
    if (gdn__by_sequence(&s->base))
        l->record = GDN_FOLD_P_FLAG; /* in its place */
    else
        l->flag = GDN_FOLD_P_FLAG;
    add_hi(s, GDN_FOLD_P_HI, l);
    l->has = (c->ptr[GDN_FOLD_P_STASH] ? GDN_CHECK_HAS_STASH : 0u) | (c->ptr[GDN_FOLD_P_HI] ? GDN_CHECK_HAS_HI : 0u);
}

static void add_round(const gdn_rule_shape *s, const gdn__call *c, lists *l) {
    l->na = GDN_ROUND_P_NA;
    if (gdn__by_sequence(&s->base))
        l->record = GDN_ROUND_P_PENDING_FLAG;
    else
        l->flag = GDN_ROUND_P_PENDING_FLAG;
    l->k_rows = c->u32[GDN_ROUND_U_K_ROWS];
    add_hi(s, GDN_ROUND_P_HI, l);
    l->has = GDN_CHECK_HAS_STASH | (c->ptr[GDN_ROUND_P_HI] ? GDN_CHECK_HAS_HI : 0u);
}

static lists of_rule(const gdn_rule_shape *s, const gdn__call *c) {
    const bool prefill = s->base.op == GDN_OP_PREFILL, decode = s->base.op == GDN_OP_DECODE;
    const gpu_rule_order *o = prefill ? gpu_prefill_order() : s->base.op == GDN_OP_ROUND ? gpu_round_order() : gpu_step_order(s->base.op);
    lists l = none(prefill ? c->u32[GDN_PREFILL_U_BATCH] : decode ? c->u32[GDN_DECODE_U_BATCH] : c->u32[GDN_VERIFY_U_BATCH]);
    const int32_t state_out = o->state_out;
    l.seq_len = prefill ? c->u32[GDN_PREFILL_U_SEQ_LEN] : decode ? 1 : c->u32[GDN_VERIFY_U_ROWS];
    l.offsets = o->cu;
    l.gate = o->gate;
    l.fresh = o->fresh;
    l.in_slots = o->in_slots;
    l.out_slots = o->out_slots;
    if (s->base.op == GDN_OP_FOLD) add_fold(s, c, &l);
    if (s->base.op == GDN_OP_ROUND) add_round(s, c, &l);
    if (gdn__by_sequence(&s->base)) {
        l.ids = ids_of(s->base.op);
        l.num_ids = s->stash_seqs;
    }
    if (!s->offsets) l.offsets = NONE;
    l.wide = s->offsets == GDN_OFFSETS_I64;
    l.max_each = prefill && !l.seq_len ? s->max_tokens : l.seq_len;
    l.max_total = prefill ? s->max_tokens : (uint64_t)l.batch * l.seq_len;
    l.nv = s->nv;
    l.gb_stride = s->gb_stride;
    l.log_gate = s->gate_form == GDN_GATE_LOG;
    const bool own_out = state_out == NONE || !c->ptr[state_out];
    if (s->state_addr == GDN_STATE_TABLE) {
        l.in_table = o->state;
        l.out_table = own_out ? l.in_table : state_out;
    }
    if (s->state_addr != GDN_STATE_POOL) {
        l.in_slots = l.out_slots = NONE;
        return l;
    }
    if (l.out_slots == NONE || !c->ptr[l.out_slots]) l.out_slots = l.in_slots;
    l.num_in = l.num_out = s->num_slots;
    l.pairs = GDN_CHECK_SAME_SLOT | (own_out ? GDN_CHECK_READ_SLOT : 0);
    return l;
}

/* false: a list that this launch needs is missing, which the operation's own checks say. */
static bool complete(const gdn__shape *s, const gdn__call *c, const lists *l) {
    const bool rule = s->base.op == GDN_OP_PREFILL || s->base.op == GDN_OP_DECODE || s->base.op == GDN_OP_VERIFY ||
                      s->base.op == GDN_OP_VERIFY_WOA || s->base.op == GDN_OP_FOLD || s->base.op == GDN_OP_ROUND;
    const int32_t needed[] = { l->offsets, l->na, l->flag, l->record, l->in_table, l->gate, rule ? l->in_slots : NONE };
    for (uint32_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] != NONE && !c->ptr[needed[i]]) return false;
    return !l->pairs || (l->out_slots != NONE && c->ptr[l->out_slots]);
}

/* false: the operation has nothing that lies in memory to be looked at. */
static bool lists_of(const gdn__shape *s, const gdn__call *c, lists *out) {
    switch (s->base.op) {
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: *out = of_conv(&s->conv, c); return true;
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: *out = of_state(&s->state, c); return true;
    case GDN_OP_DECODE_STEP: *out = of_step(&s->step, c); return true;
    case GDN_OP_PREFILL:
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD:
    case GDN_OP_ROUND: *out = of_rule(&s->rule, c); return true;
    default: return false;
    }
}

gdn_status gpu_bind_checked(gdn_plan *p, gdn_text *err) {
    const gdn_backend *b = p->ctx->host.backend;
    lists l;
    const gdn__call c = { .op = p->op };
    if (!(p->shape.base.flags & GDN_PLAN_CHECKED) || !lists_of(&p->shape, &c, &l)) return GDN_OK;
    if (!gpu_has(p->present, GPU_E_CHECK))
        return gdn__fail(err, GDN_ABSENT, "%s: GDN_PLAN_CHECKED: %s did not load", gdn__op_name(p->op->op), gpu_entry_name(GPU_E_CHECK));
    if (!GDN_HAS(b, gdn_backend, mem_alloc) || !GDN_HAS(b, gdn_backend, copy_out) || !GDN_HAS(b, gdn_backend, fill))
        return gdn__fail(err, GDN_ABSENT, "%s: GDN_PLAN_CHECKED: the backend has no memory", gdn__op_name(p->op->op));
    gdn_status st = b->mem_alloc(b->user, p->ctx->ordinal, sizeof(gdn_check_report), &p->report);
    if (!st) st = b->fill(b->user, p->ctx->ordinal, NULL, p->report, 0, sizeof(gdn_check_report));
    if (!st) st = b->sync(b->user, p->ctx->ordinal, NULL);
    return st ? gdn__fail(err, st, "%s: GDN_PLAN_CHECKED: no memory for the report", gdn__op_name(p->op->op)) : st;
}

void gpu_drop_checked(gdn_plan *p) {
    const gdn_backend *b = p->ctx->host.backend;
    if (p->report && p->ctx->pid == getpid()) b->mem_free(b->user, p->ctx->ordinal, p->report);
    p->report = 0;
}

/* What a launch before this one, or the kernel just started, has found. */
static gdn_status read_report(const gdn_plan *p, void *stream, gdn_text *err) {
    const gdn_backend *b = p->ctx->host.backend;
    gdn_check_report r = { 0 };
    gdn_status st = b->copy_out(b->user, p->ctx->ordinal, stream, &r, p->report, sizeof r);
    if (st) return gdn__fail(err, st, "%s: GDN_PLAN_CHECKED: the report could not be read", gdn__op_name(p->op->op));
    if (r.kind == GDN_BAD_NOTHING) return GDN_OK;
    st = b->fill(b->user, p->ctx->ordinal, stream, p->report, 0, sizeof r);
    return st ? gdn__fail(err, st, "%s: GDN_PLAN_CHECKED: the report could not be cleared", gdn__op_name(p->op->op))
              : gdn__fail_checked(err, p->op->op, &r);
}

static void pack(const gdn_plan *p, gdn__call *c, const lists *l, gpu_args *a) {
#define PTR_(field, align) gpu_arg_u64(a, l->field == NONE ? 0 : (uint64_t)(uintptr_t)gdn__call_ptr(c, (uint32_t)l->field, align))
    gpu_arg_u64(a, p->report);
    PTR_(offsets, l->wide ? 8 : 4);
    gpu_arg_u32(a, l->wide);
    gpu_arg_u32(a, l->batch);
    gpu_arg_u32(a, l->seq_len);
    gpu_arg_u64(a, l->max_total);
    gpu_arg_u64(a, l->max_each);
    PTR_(in_slots, 4);
    PTR_(out_slots, 4);
    gpu_arg_u64(a, l->num_in);
    gpu_arg_u64(a, l->num_out);
    PTR_(in_table, 8);
    PTR_(out_table, 8);
    gpu_arg_u32(a, l->pairs);
    PTR_(fresh, 1);
    PTR_(gate, 4);
    gpu_arg_u32(a, l->nv);
    gpu_arg_u32(a, l->gb_stride);
    gpu_arg_u32(a, l->log_gate);
    PTR_(accepted, 4);
    gpu_arg_u32(a, l->most_accepted);
    gpu_arg_u32(a, l->most_kept);
    PTR_(ids, 4);
    gpu_arg_u32(a, l->num_ids);
    PTR_(na, 4);
    PTR_(flag, 4);
    PTR_(record, 4);
    gpu_arg_u32(a, l->has);
    gpu_arg_u32(a, l->hi_capacity);
    gpu_arg_u32(a, l->k_rows);
    PTR_(hi_table, 8);
    gpu_arg_u32(a, l->slab_entries);
#undef PTR_
}

gdn_status gpu_check_values(const gdn_plan *p, gdn__call *c, void *stream, gdn_text *err) {
    static const gdn_dims dims = { .grid = { GDN_CHECK_BLOCKS, 1, 1 }, .block = { GDN_CHECK_BLOCK, 1, 1 } };
    const gdn_backend *b = p->ctx->host.backend;
    uint32_t capturing = 0;
    gpu_args a = { .n = 0 };
    lists l;
    gdn_status st = b->capturing(b->user, p->ctx->ordinal, stream, &capturing);
    if (st) return gdn__fail(err, st, "%s: the stream cannot be asked whether it is capturing", gdn__op_name(p->op->op));
    if (!lists_of(&p->shape, c, &l) || !complete(&p->shape, c, &l)) return GDN_OK;
    if (!capturing && (st = read_report(p, stream, err))) return st;
    pack(p, c, &l, &a);
    if ((st = gdn__call_bound(c, err))) return st;
    if ((st = b->launch(b->user, p->entry[GPU_E_CHECK], &dims, stream, a.param)))
        return gdn__fail(err, st, "%s: the launch of %s failed", gdn__op_name(p->op->op), gpu_entry_name(GPU_E_CHECK));
    return capturing ? GDN_OK : read_report(p, stream, err);
}
