/* call_regions_rule.c - the memory of the rule operations, prefill to fold. */
#include "call_regions.h"

/* What a pointer is. */
enum { QK, VALUE, GATE, OUTPUT, STATE, SLOTS, OFFSETS, FRESH, CKPT, WORKSPACE, HI, STASH, FLAG };
typedef struct place {
    uint8_t ptr, kind, is;
} place;
typedef struct places {
    const place *list;
    size_t n;
} places;
typedef struct rule_counts {
    uint64_t batch, tokens, ckpts, sequences, workspace;
    uint32_t packed;
} rule_counts;

#define P(op, NAME) GDN_##op##_P_##NAME
#define ROWS(op)                                                                                                                    \
    { P(op, QUERY), QK, 0 }, { P(op, KEY), QK, 0 }, { P(op, VALUE), VALUE, 0 }, { P(op, GATE), GATE, 0 }, { P(op, BETA), GATE, 0 }, \
        { P(op, OUTPUT), OUTPUT, GDN__WRITTEN }, { P(op, IN_SLOTS), SLOTS, 0 }, { P(op, FRESH), FRESH, 0 }, {                       \
        P(op, WORKSPACE), WORKSPACE, GDN__WRITTEN                                                                                   \
    }
#define OUT_STATE(op)                            \
    { P(op, STATE_OUT), STATE, GDN__WRITTEN }, { \
        P(op, OUT_SLOTS), SLOTS, 0               \
    }

static places places_of(uint32_t op) {
    static const place prefill[] = { ROWS(PREFILL),
                                     OUT_STATE(PREFILL),
                                     { P(PREFILL, STATE), STATE, 0 },
                                     { P(PREFILL, CU_SEQLENS), OFFSETS, 0 },
                                     { P(PREFILL, CKPT), CKPT, GDN__WRITTEN } };
    static const place decode[] = { ROWS(DECODE), OUT_STATE(DECODE), { P(DECODE, STATE), STATE, 0 } };
    static const place verify[] = { ROWS(VERIFY),
                                    OUT_STATE(VERIFY),
                                    { P(VERIFY, STATE), STATE, 0 },
                                    { P(VERIFY, CU_ROWS), OFFSETS, 0 },
                                    { P(VERIFY, HI), HI, GDN__WRITTEN },
                                    { P(VERIFY, SEQ_IDS), SLOTS, 0 },
                                    { P(VERIFY, RECORD), FLAG, GDN__WRITTEN } };
    static const place woa[] = { ROWS(VERIFY_WOA),
                                 { P(VERIFY_WOA, STATE), STATE, 0 },
                                 { P(VERIFY_WOA, STASH), STASH, GDN__WRITTEN },
                                 { P(VERIFY_WOA, FLAG), FLAG, GDN__WRITTEN },
                                 { P(VERIFY_WOA, CU_ROWS), OFFSETS, 0 },
                                 { P(VERIFY_WOA, SEQ_IDS), SLOTS, 0 } };
    static const place fold[] = { { P(FOLD, STATE), STATE, GDN__WRITTEN },
                                  { P(FOLD, STASH), STASH, 0 },
                                  { P(FOLD, NA), SLOTS, 0 },
                                  { P(FOLD, HI), HI, 0 },
                                  { P(FOLD, FLAG), FLAG, 0 },
                                  { P(FOLD, IN_SLOTS), SLOTS, 0 },
                                  { P(FOLD, FRESH), FRESH, 0 },
                                  { P(FOLD, CU_ROWS), OFFSETS, 0 },
                                  { P(FOLD, SEQ_IDS), SLOTS, 0 } };
    static const place round[] = { ROWS(ROUND),
                                   { P(ROUND, STATE), STATE, GDN__WRITTEN },
                                   { P(ROUND, STASH), STASH, GDN__WRITTEN },
                                   { P(ROUND, FLAG), FLAG, GDN__WRITTEN },
                                   { P(ROUND, PENDING), STASH, 0 },
                                   { P(ROUND, PENDING_FLAG), FLAG, 0 },
                                   { P(ROUND, NA), SLOTS, 0 },
                                   { P(ROUND, HI), HI, 0 },
                                   { P(ROUND, CU_ROWS), OFFSETS, 0 },
                                   { P(ROUND, SEQ_IDS), SLOTS, 0 } };
#define PLACES(name) ((places) { name, sizeof(name) / sizeof *(name) })
    switch (op) {
    case GDN_OP_PREFILL: return PLACES(prefill);
    case GDN_OP_DECODE: return PLACES(decode);
    case GDN_OP_VERIFY: return PLACES(verify);
    case GDN_OP_VERIFY_WOA: return PLACES(woa);
    case GDN_OP_ROUND: return PLACES(round);
    default: return PLACES(fold);
    }
}

/* The launch's own state pointer is written when no other takes the new states. */
static uint32_t in_place(const gdn_rule_shape *s, const gdn__call *c) {
    static const uint32_t out[] = {
        [GDN_OP_PREFILL] = GDN_PREFILL_P_STATE_OUT, [GDN_OP_DECODE] = GDN_DECODE_P_STATE_OUT, [GDN_OP_VERIFY] = GDN_VERIFY_P_STATE_OUT
    };
    if (!c || gdn__by_sequence(&s->base) || s->base.op > GDN_OP_VERIFY) return 0;
    return c->ptr[out[s->base.op]] ? 0 : GDN__WRITTEN;
}

static rule_counts counts_of(const gdn_rule_shape *s, const gdn__call *c) {
    const uint32_t op = s->base.op;
    const uint64_t batch = !c ? s->max_batch : op == GDN_OP_PREFILL || op == GDN_OP_DECODE ? c->u32[0] : c->u32[1];
    const uint64_t len = !c || op == GDN_OP_DECODE ? 1 : op == GDN_OP_PREFILL ? c->u32[GDN_PREFILL_U_SEQ_LEN] : c->u32[0];
    rule_counts n = { .batch = batch, .tokens = batch * len, .sequences = gdn__by_sequence(&s->base) ? s->stash_seqs : batch };
    if (!c && op == GDN_OP_PREFILL) n.tokens = s->max_tokens;
    if (!c && (op == GDN_OP_VERIFY || op == GDN_OP_VERIFY_WOA || op == GDN_OP_ROUND)) n.tokens = batch * s->max_rows;
    if (s->ckpt_every) n.ckpts = c ? batch * (len / s->ckpt_every) : s->max_tokens / s->ckpt_every;
    if (s->offsets && c) n.tokens = 1, n.ckpts = 0, n.packed = GDN__PACKED;
    return n;
}

static void states(const gdn_rule_shape *s, uint32_t ptr, uint32_t is, const rule_counts *n, gdn__regions *r) {
    const uint64_t size = gdn__size(s->state_type), one = (uint64_t)s->nv * s->k_dim * s->v_dim * size;
    if (s->state_addr == GDN_STATE_TABLE)
        gdn__region_of(r, ptr, 0, 8 * n->batch);
    else if (s->state_addr == GDN_STATE_POOL)
        gdn__region_pool(r, ptr, is, s->num_slots, one, gdn__times(s->state_stride, size));
    else
        gdn__region_of(r, ptr, is | GDN__STATES, gdn__times(n->batch, one));
}

static void kept_states(const gdn_rule_shape *s, uint32_t ptr, uint32_t is, const rule_counts *n, gdn__regions *r) {
    const uint64_t one = (uint64_t)s->nv * s->k_dim * s->v_dim * gdn__size(s->state_type);
    if (s->hi_capacity == 0) return;
    if (s->state_addr == GDN_STATE_TABLE)
        gdn__region_of(r, ptr, 0, 8 * ((uint64_t)(s->hi_capacity - 1) * s->slab_entries + n->sequences));
    else
        gdn__region_pool(r, ptr, is, gdn__times(n->sequences, s->hi_capacity), one, one);
}

static void one_place(const gdn_rule_shape *s, const place *p, const rule_counts *n, gdn__regions *r) {
    const uint64_t act = gdn__size(s->base.act_type), qk = (uint64_t)s->nk * s->k_dim, v = (uint64_t)s->nv * s->v_dim;
    const uint32_t row = p->is | n->packed;
    switch (p->kind) {
    case QK: gdn__region_rows(r, p->ptr, row, n->tokens, qk * act, s->qk_stride * act); break;
    case VALUE: gdn__region_rows(r, p->ptr, row, n->tokens, v * act, s->v_stride * act); break;
    case GATE: gdn__region_rows(r, p->ptr, row, n->tokens, s->nv * 4ull, s->gb_stride * 4ull); break;
    case OUTPUT: gdn__region_rows(r, p->ptr, row, n->tokens, v * act, v * act); break;
    case STATE: states(s, p->ptr, p->is, n, r); break;
    case HI: kept_states(s, p->ptr, p->is, n, r); break;
    case SLOTS: gdn__region_of(r, p->ptr, p->is, 4 * n->batch); break;
    case FRESH: gdn__region_of(r, p->ptr, p->is, n->batch); break;
    case OFFSETS: gdn__region_of(r, p->ptr, p->is, (s->offsets == GDN_OFFSETS_I64 ? 8ull : 4ull) * (n->batch + 1)); break;
    case CKPT:
        if (n->ckpts) gdn__region_pool(r, p->ptr, p->is, n->ckpts, v * s->k_dim * 4, v * s->k_dim * 4);
        break;
    case WORKSPACE: gdn__region_of(r, p->ptr, p->is, n->workspace); break;
    case STASH: gdn__region_rows(r, p->ptr, p->is, n->sequences, 16 * (v + s->nv + qk), gdn__times(s->stash_stride, 4)); break;
    default: gdn__region_of(r, p->ptr, p->is, gdn__by_sequence(&s->base) ? 4ull * s->stash_seqs : 4); break;
    }
}

void gdn__regions_rule(const gdn_rule_shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r) {
    const places all = places_of(s->base.op);
    rule_counts n = counts_of(s, c);
    n.workspace = workspace;
    for (size_t i = 0; i < all.n; i++) {
        place p = all.list[i];
        if (c && !c->ptr[p.ptr]) continue;
        if (p.kind == STATE && !p.is) p.is = (uint8_t)in_place(s, c);
        one_place(s, &p, &n, r);
    }
}
