/* rule_launch.c - launches of a rule_case: pointers and counts of any run of its sequences, in the orders of gdn_op_rule.h. */
#include "rule_case.h"
#include <string.h>

/* Pointers of a launch that begins with sequence b. */
typedef struct view {
    uint64_t q, k, v, gate, beta, o, state, state_out, in_slots, out_slots, fresh, cu, hi, ckpt, stash, flag, na, ws;
} view;

static uint64_t at(const guard *g, uint64_t bytes) {
    return g->p ? addr_of(g->p + bytes) : 0;
}

static uint64_t base_of(const uint8_t *p, uint64_t bytes) {
    return p ? addr_of(p + bytes) : 0;
}

static view view_of(const rule_case *c, uint32_t b) {
    const rc_spec *s = &c->s;
    const uint64_t size = num_size(s->act), row = s->len ? 0 : c->start[b];
    const uint32_t cap = s->hi_capacity ? s->hi_capacity : c->shape.max_rows - 1;
    view w = { 0 };
    w.q = base_of(c->qp, row * c->qk_stride * size);
    w.k = base_of(c->kp, row * c->qk_stride * size);
    w.v = base_of(c->vp, row * c->v_stride * size);
    w.gate = at(&c->gb, row * c->gb_stride * 4);
    w.beta = at(&c->gb, (row * c->gb_stride + s->nv) * 4);
    w.o = at(&c->o, row * rc_out_row_bytes(c));
    w.cu = at(&c->cu, b * (s->offsets == GDN_OFFSETS_I64 ? 8u : 4u));
    w.in_slots = at(&c->in_slots, b * 4);
    w.out_slots = at(&c->out_slots, b * 4);
    w.fresh = at(&c->fresh, b);
    w.hi = at(&c->hi, (uint64_t)b * cap * c->state_elems * 4);
    w.state = at(&c->pool, 0);
    w.state_out = at(&c->pool_out, 0);
    if (s->addr == GDN_STATE_CONTIGUOUS) {
        w.state = at(&c->pool, b * c->stride * 4);
        w.state_out = at(&c->pool_out, b * c->stride * 4);
    } else if (s->addr == GDN_STATE_TABLE) {
        w.state = at(&c->in_tab, b * 8);
        w.state_out = at(&c->out_tab, b * 8);
        w.hi = at(&c->hi_tab, b * 8);
    }
    uint64_t before = 0;
    for (uint32_t i = 0; s->ckpt_every && i < b; i++) before += (c->start[i + 1] - c->start[i]) / s->ckpt_every;
    w.ckpt = at(&c->ckpt, before * c->state_elems * 4);
    w.stash = at(&c->stash, c->stash.bytes / s->batch * b);
    w.flag = at(&c->flag, 0);
    w.na = at(&c->na, b * 4);
    w.ws = at(&c->ws, 0);
    return w;
}

static gdn_hplan *plan_of(rule_case *c, uint32_t op) {
    if (c->plan[op]) return c->plan[op];
    if (op == GDN_OP_FLAG_CLEAR) {
        const gdn_flag_shape f = { SHAPE_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR, 0) };
        return c->plan[op] = plan_ok(&f);
    }
    gdn_rule_shape sh = c->shape;
    sh.base.op = op;
    if (op == GDN_OP_FOLD) sh.base.flags &= ~(uint32_t)GDN_QK_L2NORM; /* the stash holds k as used */
    c->plan[op] = plan_ok(&sh);
    const uint64_t ws = plan_workspace(c->plan[op]);
    if (ws > c->ws.bytes) {
        guard_free(&c->ws);
        c->ws = guard_alloc((ws + 255) / 256 * 256);
        guard_poison(&c->ws);
    }
    return c->plan[op];
}

gdn_status rc_launch_op(rule_case *c, uint32_t op, uint32_t first, uint32_t n) {
    const gdn_hplan *p = plan_of(c, op);
    const view w = view_of(c, first);
    uint32_t longest = 0;
    for (uint32_t b = first; b < first + n; b++)
        longest = c->start[b + 1] - c->start[b] > longest ? c->start[b + 1] - c->start[b] : longest;
    switch (op) {
    case GDN_OP_PREFILL: {
        const uint64_t ptr[] = { w.q,  w.k,         w.v,        w.gate,      w.beta,  w.state, w.o,
                                 w.cu, w.state_out, w.in_slots, w.out_slots, w.fresh, w.ckpt,  w.ws };
        const uint32_t u32[] = { n, longest };
        return launch(p, N_OF(ptr), ptr, N_OF(u32), u32);
    }
    case GDN_OP_DECODE: {
        const uint64_t ptr[] = { w.state, w.q, w.k, w.v, w.gate, w.beta, w.o, w.state_out, w.in_slots, w.out_slots, w.fresh, w.ws };
        return launch(p, N_OF(ptr), ptr, 1, &n);
    }
    case GDN_OP_VERIFY: {
        const uint64_t ptr[] = { w.state, w.q,  w.k,         w.v,        w.gate,      w.beta,  w.o,
                                 w.hi,    w.cu, w.state_out, w.in_slots, w.out_slots, w.fresh, w.ws };
        const uint32_t u32[] = { c->s.len ? c->shape.max_rows : longest, n };
        return launch(p, N_OF(ptr), ptr, N_OF(u32), u32);
    }
    case GDN_OP_VERIFY_WOA: {
        const uint64_t ptr[] = { w.state, w.q, w.k, w.v, w.gate, w.beta, w.o, w.stash, w.flag, w.in_slots, w.fresh, w.ws };
        const uint32_t u32[] = { 4, n };
        return launch(p, N_OF(ptr), ptr, N_OF(u32), u32);
    }
    case GDN_OP_FOLD: {
        const uint64_t ptr[] = { w.state, w.stash, w.na, w.hi, w.flag, w.in_slots, w.fresh, w.cu };
        const uint32_t u32[] = { c->shape.max_rows, n };
        return launch(p, N_OF(ptr), ptr, N_OF(u32), u32);
    }
    case GDN_OP_FLAG_CLEAR: return launch(p, 1, &w.flag, 0, NULL);
    default: return GDN_ABSENT;
    }
}

gdn_status rc_launch(rule_case *c) {
    return rc_launch_op(c, c->s.op, 0, c->s.batch);
}
