/* bind_rule.c - a rule operation's pointers and shape become the kernels' call struct. */
#include "cpu_plugin.h"

/* Where an operation has each pointer: its index + 1, 0 when it has none. */
typedef struct rule_order {
    uint8_t q, k, v, gate, beta, out, state, state_out, in_slots, out_slots, fresh, ckpt, cu, hi, stash, flag, na, ids, record, batch, len;
} rule_order;

#define P(op, name) GDN_##op##_P_##name + 1
#define U(op, name) GDN_##op##_U_##name + 1
#define ROWS(op)                                                                                                           \
    .q = P(op, QUERY), .k = P(op, KEY), .v = P(op, VALUE), .gate = P(op, GATE), .beta = P(op, BETA), .out = P(op, OUTPUT), \
    .state = P(op, STATE), .in_slots = P(op, IN_SLOTS), .fresh = P(op, FRESH), .batch = U(op, BATCH)
#define OUT_STATE(op) .state_out = P(op, STATE_OUT), .out_slots = P(op, OUT_SLOTS)

static const rule_order *order_of(uint32_t op) {
    static const rule_order prefill = { ROWS(PREFILL), OUT_STATE(PREFILL), .ckpt = P(PREFILL, CKPT), .cu = P(PREFILL, CU_SEQLENS),
                                        .len = U(PREFILL, SEQ_LEN) };
    static const rule_order decode = { ROWS(DECODE), OUT_STATE(DECODE) };
    static const rule_order verify = { ROWS(VERIFY),          OUT_STATE(VERIFY),         .cu = P(VERIFY, CU_ROWS),
                                       .hi = P(VERIFY, HI),   .ids = P(VERIFY, SEQ_IDS), .record = P(VERIFY, RECORD),
                                       .len = U(VERIFY, ROWS) };
    static const rule_order woa = { ROWS(VERIFY_WOA),
                                    .stash = P(VERIFY_WOA, STASH),
                                    .flag = P(VERIFY_WOA, FLAG),
                                    .cu = P(VERIFY_WOA, CU_ROWS),
                                    .ids = P(VERIFY_WOA, SEQ_IDS),
                                    .len = U(VERIFY_WOA, ROWS) };
    static const rule_order fold = { .state = P(FOLD, STATE),
                                     .in_slots = P(FOLD, IN_SLOTS),
                                     .fresh = P(FOLD, FRESH),
                                     .cu = P(FOLD, CU_ROWS),
                                     .hi = P(FOLD, HI),
                                     .stash = P(FOLD, STASH),
                                     .flag = P(FOLD, FLAG),
                                     .na = P(FOLD, NA),
                                     .ids = P(FOLD, SEQ_IDS),
                                     .batch = U(FOLD, BATCH),
                                     .len = U(FOLD, K_ROWS) };
    static const rule_order round = { ROWS(ROUND),        .stash = P(ROUND, STASH), .flag = P(ROUND, FLAG),   .hi = P(ROUND, HI),
                                      .na = P(ROUND, NA), .cu = P(ROUND, CU_ROWS),  .ids = P(ROUND, SEQ_IDS), .len = U(ROUND, ROWS) };
    switch (op) {
    case GDN_OP_ROUND: return &round;
    case GDN_OP_PREFILL: return &prefill;
    case GDN_OP_DECODE: return &decode;
    case GDN_OP_VERIFY: return &verify;
    case GDN_OP_VERIFY_WOA: return &woa;
    default: return &fold;
    }
}

static void *at(gdn__call *c, uint8_t place, uint32_t align) {
    return place ? gdn__call_ptr(c, place - 1u, align) : NULL;
}
static uint32_t count_of(const gdn__call *c, uint8_t place) {
    return place ? c->u32[place - 1] : 1;
}

/* Pointers that only some shapes need. */
static gdn_status check_needed(const gdn_rule_shape *s, const gdn_cpu_rule *r, gdn_text *err) {
    const gdn_status st = gdn__rule_needed(s, r->cu, r->in_slots, r->ckpt, err);
    if (st) return st;
    if (s->base.op == GDN_OP_FOLD && r->engaged && *r->engaged && !r->stash)
        return gdn__fail(err, GDN_E_ARG, "fold: pointer 'stash' is NULL, but the flag is engaged");
    return GDN_OK;
}

gdn_status cpu_bind_rule(const gdn_plan *p, gdn__call *c, gdn_cpu_rule *r, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const rule_order *o = order_of(s->base.op);
    const bool f32 = s->base.act_type == GDN_F32, table = s->state_addr == GDN_STATE_TABLE;
    const uint32_t act = f32 ? 4 : 2, st_align = table || gdn__bf16_state(s) ? 8 : 4, cu_align = s->offsets == GDN_OFFSETS_I64 ? 8 : 4;
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
        .record = at(c, o->record, 4),
        .ids = at(c, o->ids, 4),
        .cu = at(c, o->cu, cu_align),
        .state_stride = s->state_stride,
        .stash_stride = s->stash_stride,
        .batch = count_of(c, o->batch),
        .seq_len = count_of(c, o->len),
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
        .bf16_state = gdn__bf16_state(s),
    };
    gdn_status st = gdn__call_bound(c, err);
    if (st) return st;
    if (gdn__by_sequence(&s->base) && !r->record) {
        r->record = r->engaged;
        r->engaged = NULL;
    }
    if (!s->offsets) r->cu = NULL;
    if (s->state_addr != GDN_STATE_POOL)
        r->in_slots = r->out_slots = NULL;
    else if (!r->out_slots)
        r->out_slots = r->in_slots;
    if (!r->state_out) r->state_out = (void *)(uintptr_t)c->ptr[o->state - 1];
    if (!s->ckpt_every) r->ckpt = NULL;
    return check_needed(s, r, err);
}

gdn_status cpu_bind_round(const gdn_plan *p, gdn__call *c, gdn_cpu_rule *verify, gdn_cpu_rule *fold, gdn_text *err) {
    void *const pending = gdn__call_ptr(c, GDN_ROUND_P_PENDING, 4), *const word = gdn__call_ptr(c, GDN_ROUND_P_PENDING_FLAG, 4);
    const gdn_status st = cpu_bind_rule(p, c, verify, err);
    if (st) return st;
    *fold = *verify;
    fold->stash = pending;
    fold->seq_len = c->u32[GDN_ROUND_U_K_ROWS];
    fold->cu = NULL;
    if (verify->record)
        fold->record = word;
    else
        fold->engaged = word;
    return GDN_OK;
}
