/* plan_call.c - a launch's arguments: sizes, counts against their maxima, pointers that must be there, alignment. */
#include "plan_common.h"
#include <string.h>

/* All that are required; optional ones stand at the end. */
static gdn_status counts_given(gdn__call *c, uint32_t n, gdn_text *err) {
    c->n_u32 = n;
    if (n >= c->op->n_u32 || c->op->u32[n].need != GDN_REQ) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: %u scalars given, '%s' is missing", gdn__op_name(c->op->op), n, c->op->u32[n].name);
}

gdn_status gdn__call_read(const gdn__op *op, const gdn_launch_args *args, gdn__call *out, gdn_text *err) {
    const char *name = gdn__op_name(op->op);
    *out = (gdn__call) { .op = op };
    if (!args) return gdn__fail(err, GDN_E_ARG, "%s: the launch arguments are NULL", name);
    if (args->struct_size < sizeof *args)
        return gdn__fail(err, GDN_E_ABI, "%s: struct_size of the launch arguments is %u, expected %zu", name, args->struct_size,
                         sizeof *args);
    if (args->flags) return gdn__fail(err, GDN_E_ARG, "%s: flags of the launch arguments is not 0", name);
    if ((args->n_ptr && !args->ptr) || (args->n_u32 && !args->u32)) return gdn__fail(err, GDN_E_ARG, "%s: an argument array is NULL", name);
    for (uint32_t i = 0; i < args->n_ptr; i++) {
        if (i < op->n_ptr)
            out->ptr[i] = args->ptr[i];
        else if (args->ptr[i])
            return gdn__fail(err, GDN_E_ABI, "%s: pointer %u is set, only %u are known", name, i, op->n_ptr);
    }
    for (uint32_t i = 0; i < args->n_u32; i++) {
        if (i < op->n_u32)
            out->u32[i] = args->u32[i];
        else if (args->u32[i])
            return gdn__fail(err, GDN_E_ABI, "%s: scalar %u is set, only %u are known", name, i, op->n_u32);
    }
    return counts_given(out, args->n_u32, err);
}

gdn_status gdn__asked_counts(const gdn__shape *s, uint32_t n_u32, const uint32_t *u32, gdn_text *err) {
    gdn__call c = { .op = gdn__op_find(s->base.op) };
    const char *name = gdn__op_name(s->base.op);
    if (n_u32 == 0) return GDN_OK;
    if (!u32) return gdn__fail(err, GDN_E_ARG, "%s: the scalars are NULL", name);
    const gdn_status st = counts_given(&c, n_u32, err);
    if (st) return st;
    for (uint32_t i = c.op->n_u32; i < n_u32; i++)
        if (u32[i]) return gdn__fail(err, GDN_E_ABI, "%s: scalar %u is set, only %u are known", name, i, c.op->n_u32);
    memcpy(c.u32, u32, (n_u32 < c.op->n_u32 ? n_u32 : c.op->n_u32) * sizeof *u32);
    return gdn__call_counts(s, &c, err);
}

/* Pointers to rows: bit i is pointer i. */
static uint32_t row_pointers(uint32_t op) {
    switch (op) {
    case GDN_OP_PREFILL:
        return 1u << GDN_PREFILL_P_QUERY | 1u << GDN_PREFILL_P_KEY | 1u << GDN_PREFILL_P_VALUE | 1u << GDN_PREFILL_P_GATE |
               1u << GDN_PREFILL_P_BETA | 1u << GDN_PREFILL_P_OUTPUT;
    case GDN_OP_VERIFY:
        return 1u << GDN_VERIFY_P_QUERY | 1u << GDN_VERIFY_P_KEY | 1u << GDN_VERIFY_P_VALUE | 1u << GDN_VERIFY_P_GATE |
               1u << GDN_VERIFY_P_BETA | 1u << GDN_VERIFY_P_OUTPUT;
    case GDN_OP_CONV1D: return 1u << GDN_CONV1D_P_X | 1u << GDN_CONV1D_P_WEIGHT | 1u << GDN_CONV1D_P_OUT;
    case GDN_OP_CONV_FUSED:
        return 1u << GDN_CONV_FUSED_P_X | 1u << GDN_CONV_FUSED_P_WEIGHT | 1u << GDN_CONV_FUSED_P_OUT_Q | 1u << GDN_CONV_FUSED_P_OUT_K |
               1u << GDN_CONV_FUSED_P_OUT_V;
    default: return 0;
    }
}

gdn_status gdn__call_required(const gdn__call *c, bool has_rows, gdn_text *err) {
    const uint32_t free_to_be_null = has_rows ? 0 : row_pointers(c->op->op);
    for (uint32_t i = 0; i < c->op->n_ptr; i++)
        if (c->op->ptr[i].need == GDN_REQ && !c->ptr[i] && !(free_to_be_null >> i & 1))
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL", gdn__op_name(c->op->op), c->op->ptr[i].name);
    return GDN_OK;
}

/* Pointers that only some plans take: bit i is pointer i. */
typedef struct optional_pointers {
    uint32_t offsets, slots, ckpt, by_sequence;
} optional_pointers;

static optional_pointers optional_of(uint32_t op) {
    switch (op) {
    case GDN_OP_PREFILL:
        return (optional_pointers) { .offsets = 1u << GDN_PREFILL_P_CU_SEQLENS,
                                     .slots = 1u << GDN_PREFILL_P_IN_SLOTS | 1u << GDN_PREFILL_P_OUT_SLOTS,
                                     .ckpt = 1u << GDN_PREFILL_P_CKPT };
    case GDN_OP_DECODE: return (optional_pointers) { .slots = 1u << GDN_DECODE_P_IN_SLOTS | 1u << GDN_DECODE_P_OUT_SLOTS };
    case GDN_OP_VERIFY:
        return (optional_pointers) { .offsets = 1u << GDN_VERIFY_P_CU_ROWS,
                                     .slots = 1u << GDN_VERIFY_P_IN_SLOTS | 1u << GDN_VERIFY_P_OUT_SLOTS,
                                     .by_sequence = 1u << GDN_VERIFY_P_SEQ_IDS | 1u << GDN_VERIFY_P_RECORD };
    case GDN_OP_VERIFY_WOA:
        return (optional_pointers) { .offsets = 1u << GDN_VERIFY_WOA_P_CU_ROWS,
                                     .slots = 1u << GDN_VERIFY_WOA_P_IN_SLOTS,
                                     .by_sequence = 1u << GDN_VERIFY_WOA_P_SEQ_IDS };
    case GDN_OP_FOLD:
        return (optional_pointers) { .offsets = 1u << GDN_FOLD_P_CU_ROWS,
                                     .slots = 1u << GDN_FOLD_P_IN_SLOTS,
                                     .by_sequence = 1u << GDN_FOLD_P_SEQ_IDS };
    case GDN_OP_ROUND:
        return (optional_pointers) { .offsets = 1u << GDN_ROUND_P_CU_ROWS,
                                     .slots = 1u << GDN_ROUND_P_IN_SLOTS,
                                     .by_sequence = 1u << GDN_ROUND_P_SEQ_IDS };
    case GDN_OP_FLAG_CLEAR: return (optional_pointers) { .by_sequence = 1u << GDN_FLAG_CLEAR_P_SEQ_IDS };
    case GDN_OP_CONV1D: return (optional_pointers) { .offsets = 1u << GDN_CONV1D_P_CU_SEQLENS };
    case GDN_OP_CONV_FUSED: return (optional_pointers) { .offsets = 1u << GDN_CONV_FUSED_P_CU_SEQLENS };
    default: return (optional_pointers) { 0 };
    }
}

static gdn_status none_of(const gdn__call *c, uint32_t mask, const char *why, gdn_text *err) {
    for (uint32_t i = 0; i < c->op->n_ptr; i++)
        if (mask >> i & 1 && c->ptr[i])
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is given, but %s", gdn__op_name(c->op->op), c->op->ptr[i].name, why);
    return GDN_OK;
}

gdn_status gdn__call_unused(const gdn__shape *s, const gdn__call *c, gdn_text *err) {
    const optional_pointers o = optional_of(s->base.op);
    const bool conv = s->base.op == GDN_OP_CONV1D || s->base.op == GDN_OP_CONV_FUSED;
    gdn_status st = GDN_OK;
    if (o.offsets && !(conv ? s->conv.offsets : s->rule.offsets))
        st = none_of(c, o.offsets, "the plan's offsets are GDN_OFFSETS_NONE", err);
    if (!st && o.slots && s->rule.state_addr != GDN_STATE_POOL) st = none_of(c, o.slots, "the plan's states are not GDN_STATE_POOL", err);
    if (!st && o.ckpt && !s->rule.ckpt_every) st = none_of(c, o.ckpt, "the plan's ckpt_every is 0", err);
    if (!st && o.by_sequence && !gdn__by_sequence(&s->base)) st = none_of(c, o.by_sequence, "the plan is not GDN_VERIFY_BY_SEQUENCE", err);
    return st;
}

gdn_status gdn__call_by_sequence(const gdn__shape *s, const gdn__call *c, gdn_text *err) {
    static const char *const why = "the plan is GDN_VERIFY_BY_SEQUENCE: the fold writes the states";
    const char *const op = gdn__op_name(s->base.op);
    if (s->base.op != GDN_OP_VERIFY || !gdn__by_sequence(&s->base)) return GDN_OK;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t at = i ? (uint32_t)GDN_VERIFY_P_RECORD : (uint32_t)GDN_VERIFY_P_HI;
        if (!c->ptr[at])
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL, but the plan is GDN_VERIFY_BY_SEQUENCE", op, c->op->ptr[at].name);
    }
    return none_of(c, 1u << GDN_VERIFY_P_STATE_OUT | 1u << GDN_VERIFY_P_OUT_SLOTS, why, err);
}

gdn_status gdn__rule_needed(const gdn_rule_shape *s, bool has_cu, bool has_slots, bool has_ckpt, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    if (s->offsets && !has_cu)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL, but the plan's offsets ask for it", op,
                         s->base.op == GDN_OP_PREFILL ? "cu_seqlens" : "cu_rows");
    if (s->state_addr == GDN_STATE_POOL && !has_slots)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'in_tab' is NULL, but the states are a pool", op);
    if (s->ckpt_every && s->base.op == GDN_OP_PREFILL && !has_ckpt)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'ckpt' is NULL, but ckpt_every is %u", op, s->ckpt_every);
    return GDN_OK;
}

gdn_status gdn__dstep_needed(const gdn_step_shape *s, const gdn__call *c, gdn_text *err) {
    const uint32_t raw[] = { GDN_DECODE_STEP_P_A_LOG, GDN_DECODE_STEP_P_DT_BIAS };
    for (uint32_t i = 0; s->gates == GDN_STEP_GATES_RAW && i < sizeof raw / sizeof *raw; i++)
        if (!c->ptr[raw[i]])
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL, but the gates are raw", gdn__op_name(s->base.op),
                             c->op->ptr[raw[i]].name);
    return GDN_OK;
}

void *gdn__call_ptr(gdn__call *c, uint32_t index, uint32_t align) {
    const uint64_t p = c->ptr[index];
    if (p % align && !c->bad_name) {
        c->bad_name = c->op->ptr[index].name;
        c->bad_what = align == 2 ? "2-byte" : align == 4 ? "4-byte" : align == 8 ? "8-byte" : "16-byte";
    }
    return (void *)(uintptr_t)p;
}

gdn_status gdn__call_bound(const gdn__call *c, gdn_text *err) {
    if (!c->bad_name) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is not %s aligned", gdn__op_name(c->op->op), c->bad_name, c->bad_what);
}

gdn_status gdn__call_max(const gdn__call *c, uint32_t i, uint64_t max, const char *max_name, gdn_text *err) {
    if (c->u32[i] <= max) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: '%s' is %u, above the plan's %s, %llu", gdn__op_name(c->op->op), c->op->u32[i].name, c->u32[i],
                     max_name, (unsigned long long)max);
}
