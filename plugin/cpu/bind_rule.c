/* bind_rule.c - a rule operation's pointers and shape become the kernels' call struct. */
#include "cpu_plugin.h"

/* The pointer positions of one operation; NONE where it has no such pointer. */
enum { NONE = GDN__MAX_PTR };
typedef struct rule_order {
    uint8_t q, k, v, gate, beta, out, state, state_out, in_slots, out_slots, fresh, ckpt, cu, hi, stash, flag, na, batch, len;
} rule_order;

static const rule_order *order_of(uint32_t op) {
    static const rule_order prefill = { GDN_PREFILL_P_QUERY,
                                        GDN_PREFILL_P_KEY,
                                        GDN_PREFILL_P_VALUE,
                                        GDN_PREFILL_P_GATE,
                                        GDN_PREFILL_P_BETA,
                                        GDN_PREFILL_P_OUTPUT,
                                        GDN_PREFILL_P_STATE,
                                        GDN_PREFILL_P_STATE_OUT,
                                        GDN_PREFILL_P_IN_SLOTS,
                                        GDN_PREFILL_P_OUT_SLOTS,
                                        GDN_PREFILL_P_FRESH,
                                        GDN_PREFILL_P_CKPT,
                                        GDN_PREFILL_P_CU_SEQLENS,
                                        NONE,
                                        NONE,
                                        NONE,
                                        NONE,
                                        GDN_PREFILL_U_BATCH,
                                        GDN_PREFILL_U_SEQ_LEN };
    static const rule_order decode = { GDN_DECODE_P_QUERY,
                                       GDN_DECODE_P_KEY,
                                       GDN_DECODE_P_VALUE,
                                       GDN_DECODE_P_GATE,
                                       GDN_DECODE_P_BETA,
                                       GDN_DECODE_P_OUTPUT,
                                       GDN_DECODE_P_STATE,
                                       GDN_DECODE_P_STATE_OUT,
                                       GDN_DECODE_P_IN_SLOTS,
                                       GDN_DECODE_P_OUT_SLOTS,
                                       GDN_DECODE_P_FRESH,
                                       NONE,
                                       NONE,
                                       NONE,
                                       NONE,
                                       NONE,
                                       NONE,
                                       GDN_DECODE_U_BATCH,
                                       NONE };
    static const rule_order verify = { GDN_VERIFY_P_QUERY,
                                       GDN_VERIFY_P_KEY,
                                       GDN_VERIFY_P_VALUE,
                                       GDN_VERIFY_P_GATE,
                                       GDN_VERIFY_P_BETA,
                                       GDN_VERIFY_P_OUTPUT,
                                       GDN_VERIFY_P_STATE,
                                       GDN_VERIFY_P_STATE_OUT,
                                       GDN_VERIFY_P_IN_SLOTS,
                                       GDN_VERIFY_P_OUT_SLOTS,
                                       GDN_VERIFY_P_FRESH,
                                       NONE,
                                       GDN_VERIFY_P_CU_ROWS,
                                       GDN_VERIFY_P_HI,
                                       NONE,
                                       NONE,
                                       NONE,
                                       GDN_VERIFY_U_BATCH,
                                       GDN_VERIFY_U_ROWS };
    static const rule_order woa = { GDN_VERIFY_WOA_P_QUERY,
                                    GDN_VERIFY_WOA_P_KEY,
                                    GDN_VERIFY_WOA_P_VALUE,
                                    GDN_VERIFY_WOA_P_GATE,
                                    GDN_VERIFY_WOA_P_BETA,
                                    GDN_VERIFY_WOA_P_OUTPUT,
                                    GDN_VERIFY_WOA_P_STATE,
                                    NONE,
                                    GDN_VERIFY_WOA_P_IN_SLOTS,
                                    NONE,
                                    GDN_VERIFY_WOA_P_FRESH,
                                    NONE,
                                    NONE,
                                    NONE,
                                    GDN_VERIFY_WOA_P_STASH,
                                    GDN_VERIFY_WOA_P_FLAG,
                                    NONE,
                                    GDN_VERIFY_WOA_U_BATCH,
                                    GDN_VERIFY_WOA_U_ROWS };
    static const rule_order fold = { NONE,
                                     NONE,
                                     NONE,
                                     NONE,
                                     NONE,
                                     NONE,
                                     GDN_FOLD_P_STATE,
                                     NONE,
                                     GDN_FOLD_P_IN_SLOTS,
                                     NONE,
                                     GDN_FOLD_P_FRESH,
                                     NONE,
                                     NONE,
                                     GDN_FOLD_P_HI,
                                     GDN_FOLD_P_STASH,
                                     GDN_FOLD_P_FLAG,
                                     GDN_FOLD_P_NA,
                                     GDN_FOLD_U_BATCH,
                                     GDN_FOLD_U_K_ROWS };
    switch (op) {
    case GDN_OP_PREFILL: return &prefill;
    case GDN_OP_DECODE: return &decode;
    case GDN_OP_VERIFY: return &verify;
    case GDN_OP_VERIFY_WOA: return &woa;
    default: return &fold;
    }
}

static void *at(gdn__call *c, uint8_t index, uint32_t align) {
    return index == NONE ? NULL : gdn__call_ptr(c, index, align);
}

/* Pointers that only some shapes need. */
static gdn_status check_needed(const gdn_rule_shape *s, const gdn_cpu_rule *r, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    if (s->offsets && !r->cu)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL, but the plan's offsets ask for it", op,
                         s->base.op == GDN_OP_VERIFY ? "cu_rows" : "cu_seqlens");
    if (s->state_addr == GDN_STATE_POOL && !r->in_slots)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'in_tab' is NULL, but the states are a pool", op);
    if (s->ckpt_every && s->base.op == GDN_OP_PREFILL && !r->ckpt)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'ckpt' is NULL, but ckpt_every is %u", op, s->ckpt_every);
    if (s->base.op == GDN_OP_FOLD && *r->engaged && !r->stash)
        return gdn__fail(err, GDN_E_ARG, "fold: pointer 'stash' is NULL, but the flag is engaged");
    return GDN_OK;
}

gdn_status cpu_bind_rule(const gdn_plan *p, gdn__call *c, gdn_cpu_rule *r, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const rule_order *o = order_of(s->base.op);
    const bool f32 = s->base.act_type == GDN_F32, table = s->state_addr == GDN_STATE_TABLE;
    const uint32_t act = f32 ? 4 : 2, st_align = table ? 8 : 4, cu_align = s->offsets == GDN_OFFSETS_I64 ? 8 : 4;
    *r = (gdn_cpu_rule) {
        .q = at(c, o->q, act),
        .k = at(c, o->k, act),
        .v = at(c, o->v, act),
        .gate = at(c, o->gate, 4),
        .beta = at(c, o->beta, 4),
        .out = at(c, o->out, act),
        .state = at(c, o->state, st_align),
        .state_out = at(c, o->state_out, st_align),
        .in_slots = at(c, o->in_slots, 4),
        .out_slots = at(c, o->out_slots, 4),
        .fresh = at(c, o->fresh, 1),
        .ckpt = at(c, o->ckpt, 4),
        .hi = at(c, o->hi, st_align),
        .stash = at(c, o->stash, 4),
        .engaged = at(c, o->flag, 4),
        .na = at(c, o->na, 4),
        .cu = at(c, o->cu, cu_align),
        .state_stride = s->state_stride,
        .stash_stride = s->stash_stride,
        .batch = c->u32[o->batch],
        .seq_len = o->len == NONE ? 1 : c->u32[o->len],
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .qk_stride = s->qk_stride,
        .v_stride = s->v_stride,
        .gb_stride = s->gb_stride,
        .ckpt_every = s->ckpt_every,
        .hi_capacity = s->hi_capacity,
        .slab_entries = s->slab_entries,
        .addr = s->state_addr,
        .isa = p->ctx->isa,
        .scale = s->scale,
        .f32 = f32,
        .cu64 = s->offsets == GDN_OFFSETS_I64,
        .log_gate = s->gate_form == GDN_GATE_LOG,
        .tiled = s->head_map == GDN_HEADS_TILED,
        .v_major = s->state_layout == GDN_STATE_V_MAJOR,
        .l2norm = (s->base.flags & GDN_QK_L2NORM) != 0,
    };
    gdn_status st = gdn__call_bound(c, err);
    if (st) return st;
    if (!s->offsets) r->cu = NULL;
    if (s->state_addr != GDN_STATE_POOL)
        r->in_slots = r->out_slots = NULL;
    else if (!r->out_slots)
        r->out_slots = r->in_slots;
    if (!r->state_out) r->state_out = c->ptr[o->state] ? (void *)(uintptr_t)c->ptr[o->state] : NULL;
    if (!s->ckpt_every) r->ckpt = NULL;
    return check_needed(s, r, err);
}
