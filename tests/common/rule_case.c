/* rule_case.c - builds the buffers of a rule_case and launches it; see rule_case.h. */
#include "rule_case.h"
#include "oracle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t or_else(uint32_t x, uint32_t other) {
    return x ? x : other;
}

static void take_defaults(rc_spec *s) {
    s->act = or_else(s->act, target_act());
    s->batch = or_else(s->batch, 1);
    s->gate_form = or_else(s->gate_form, GDN_GATE_LINEAR);
    if (s->op == GDN_OP_DECODE) s->rows = 1;
    s->hi = s->hi && (s->op == GDN_OP_VERIFY || s->op == GDN_OP_VERIFY_WOA);
    if (s->len) s->offsets = or_else(s->offsets, GDN_OFFSETS_I32);
    if (s->a_hi == 0) {
        s->a_lo = 0.80;
        s->a_hi = 0.999;
    }
    if (s->b_hi == 0) {
        s->b_lo = 0.05;
        s->b_hi = 0.95;
    }
    if (s->norm == 0) s->norm = s->flags & GDN_QK_L2NORM ? 10 : 1;
    s->num_slots = or_else(s->num_slots, s->batch + 3);
    s->seed = s->seed ? s->seed : 1;
}

static void *zalloc(uint64_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

static void place_rows(rule_case *c) {
    const rc_spec *s = &c->s;
    c->start = zalloc((s->batch + 1) * sizeof *c->start);
    c->start[0] = s->len ? s->row0 : 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        const uint32_t n = s->len ? s->len[b] : s->rows;
        c->start[b + 1] = c->start[b] + n;
        if (n > c->longest) c->longest = n;
    }
    c->buffer_rows = c->start[s->batch] + s->tail;
    if (!s->len) return;
    const uint32_t size = s->offsets == GDN_OFFSETS_I64 ? 8 : 4;
    c->cu = guard_alloc((uint64_t)(s->batch + 1) * size);
    for (uint32_t b = 0; b <= s->batch; b++) {
        if (size == 8) {
            ((int64_t *)(void *)c->cu.p)[b] = c->start[b];
        } else {
            ((int32_t *)(void *)c->cu.p)[b] = (int32_t)c->start[b];
        }
    }
}

/* A row of heads with random directions and the wanted length. */
static void fill_unit(uint8_t *row, const rc_spec *s, rng *r) {
    double x[256];
    for (uint32_t h = 0; h < s->nk; h++) {
        double ss = 0;
        for (uint32_t i = 0; i < s->dim; i++) {
            x[i] = rng_uniform(r, -1, 1);
            ss += x[i] * x[i];
        }
        for (uint32_t i = 0; i < s->dim; i++) num_put(row, s->act, (uint64_t)h * s->dim + i, x[i] * s->norm / sqrt(ss));
    }
}

static void fill_rows(rule_case *c, rng *r) {
    const rc_spec *s = &c->s;
    const uint64_t size = num_size(s->act);
    for (uint64_t t = c->start[0]; t < c->start[s->batch]; t++) {
        fill_unit(c->qp + t * c->qk_stride * size, s, r);
        fill_unit(c->kp + t * c->qk_stride * size, s, r);
        num_fill(c->vp + t * c->v_stride * size, s->act, (uint64_t)s->nv * s->dim, r, -0.5, 0.5);
        for (uint32_t h = 0; h < s->nv; h++) {
            const double a = rng_uniform(r, s->a_lo, s->a_hi);
            *rc_gate(c, (uint32_t)t, h) = (float)(s->gate_form == GDN_GATE_LOG ? log(a) : a);
            *rc_beta(c, (uint32_t)t, h) = (float)rng_uniform(r, s->b_lo, s->b_hi);
        }
    }
}

static void make_inputs(rule_case *c) {
    const rc_spec *s = &c->s;
    const uint64_t size = num_size(s->act), qk = (uint64_t)s->nk * s->dim, vw = (uint64_t)s->nv * s->dim, rows = c->buffer_rows;
    c->gb_stride = 2 * s->nv + s->gb_pad;
    c->gb = guard_alloc(rows * c->gb_stride * 4);
    if (s->packed_row) {
        c->qk_stride = c->v_stride = (uint32_t)(2 * qk + vw) + s->qk_pad;
        c->q = guard_alloc(rows * c->qk_stride * size);
        c->qp = c->q.p;
        c->kp = c->q.p + (c->q.p ? qk * size : 0);
        c->vp = c->q.p + (c->q.p ? 2 * qk * size : 0);
    } else {
        c->qk_stride = (uint32_t)qk + s->qk_pad;
        c->v_stride = (uint32_t)vw + s->v_pad;
        c->q = guard_alloc(rows * c->qk_stride * size);
        c->k = guard_alloc(rows * c->qk_stride * size);
        c->v = guard_alloc(rows * c->v_stride * size);
        c->qp = c->q.p;
        c->kp = c->k.p;
        c->vp = c->v.p;
    }
    c->o = guard_alloc(rows * vw * size);
    rc_poison_rows(c, &c->q);
    rc_poison_rows(c, &c->k);
    rc_poison_rows(c, &c->v);
    rc_poison_rows(c, &c->gb);
    rc_poison_rows(c, &c->o);
}

static void make_table(const rule_case *c, guard *tab, bool output, uint32_t entries) {
    *tab = guard_alloc((uint64_t)entries * 8);
    memset(tab->p, 0, tab->bytes);
    for (uint32_t b = 0; b < c->s.batch; b++) ((uint64_t *)(void *)tab->p)[b] = addr_of(rc_state(c, output, b));
}

static void make_states(rule_case *c, rng *r) {
    const rc_spec *s = &c->s;
    c->state_elems = (uint64_t)s->nv * s->dim * s->dim;
    c->stride = c->state_elems + (s->addr == GDN_STATE_CONTIGUOUS ? 0 : s->slot_pad);
    c->num_slots = s->num_slots;
    c->in = zalloc(s->batch * sizeof *c->in);
    c->out = zalloc(s->batch * sizeof *c->out);
    for (uint32_t b = 0; b < s->batch; b++) {
        c->in[b] = s->addr == GDN_STATE_CONTIGUOUS ? (int32_t)b : s->slots ? s->slots[b] : (int32_t)(s->batch + 1 - b);
        c->out[b] = s->out_slots ? s->out_slots[b] : c->in[b];
    }
    c->pool = guard_alloc(c->num_slots * c->stride * 4);
    num_fill(c->pool.p, GDN_F32, c->num_slots * c->stride, r, -0.1, 0.1);
    if (s->other_pool) {
        c->pool_out = guard_alloc(c->num_slots * c->stride * 4);
        num_fill(c->pool_out.p, GDN_F32, c->num_slots * c->stride, r, -0.1, 0.1);
    }
    if (s->addr == GDN_STATE_POOL) {
        c->in_slots = guard_of(c->in, s->batch * sizeof *c->in);
        if (s->out_slots) c->out_slots = guard_of(c->out, s->batch * sizeof *c->out);
    }
    if (s->addr == GDN_STATE_TABLE) {
        make_table(c, &c->in_tab, false, s->batch);
        if (s->out_slots || s->other_pool) make_table(c, &c->out_tab, true, s->batch);
    }
    if (s->fresh) c->fresh = guard_of(s->fresh, s->batch);
}

static void make_extras(rule_case *c) {
    const rc_spec *s = &c->s;
    const uint32_t slab = or_else(s->slab_entries, GDN_SLAB_ENTRIES), cap = or_else(s->hi_capacity, c->shape.max_rows - 1);
    if (s->op == GDN_OP_PREFILL && s->ckpt_every) {
        uint64_t n = 0;
        for (uint32_t b = 0; b < s->batch; b++) n += (c->start[b + 1] - c->start[b]) / s->ckpt_every;
        c->ckpt = guard_alloc((n ? n : 1) * c->state_elems * 4);
        guard_poison(&c->ckpt);
    }
    if (s->hi && cap > 0) {
        c->hi = guard_alloc((uint64_t)s->batch * cap * c->state_elems * 4);
        guard_poison(&c->hi);
        if (s->addr == GDN_STATE_TABLE) {
            c->hi_tab = guard_alloc((uint64_t)(c->shape.max_rows - 1) * slab * 8);
            memset(c->hi_tab.p, 0, c->hi_tab.bytes);
            for (uint32_t t = 0; t + 1 < c->shape.max_rows; t++) {
                for (uint32_t b = 0; b < s->batch; b++) ((uint64_t *)(void *)c->hi_tab.p)[t * slab + b] = addr_of(rc_hi(c, b, t));
            }
        }
    }
    if (c->shape.stash_seqs) {
        c->stash = guard_alloc((uint64_t)s->batch * 4 * ((uint64_t)s->nv * s->dim + s->nv + (uint64_t)s->nk * s->dim) * 4);
        guard_poison(&c->stash);
    }
    c->flag = guard_alloc(4);
    guard_poison(&c->flag);
    c->na = guard_alloc((uint64_t)s->batch * 4);
    memset(c->na.p, 0, c->na.bytes);
}

void rc_make(rule_case *c, const rc_spec *spec) {
    memset(c, 0, sizeof *c);
    c->s = *spec;
    take_defaults(&c->s);
    const rc_spec *s = &c->s;
    rng r = { s->seed * 7919 + s->op };
    place_rows(c);
    make_inputs(c);
    fill_rows(c, &r);
    make_states(c, &r);
    c->shape = (gdn_rule_shape) {
        .base = { .struct_size = sizeof c->shape, .op = s->op, .flags = s->flags, .act_type = s->act },
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->dim,
        .v_dim = s->dim,
        .qk_stride = s->qk_pad || s->packed_row ? c->qk_stride : 0,
        .v_stride = s->v_pad || s->packed_row ? c->v_stride : 0,
        .gb_stride = s->gb_pad ? c->gb_stride : 0,
        .gate_form = s->gate_form,
        .head_map = s->head_map,
        .state_layout = s->layout,
        .state_addr = s->addr,
        .state_type = GDN_F32,
        .offsets = s->offsets,
        .max_tokens = or_else(c->start[s->batch] - c->start[0], 1),
        .max_batch = s->batch,
        .max_rows = or_else(s->rows, or_else(c->longest, 1)),
        .ckpt_every = s->ckpt_every,
        .hi_capacity = s->hi_capacity,
        .slab_entries = s->slab_entries,
        .stash_seqs = s->op == GDN_OP_VERIFY_WOA ? s->batch : 0,
        .scale = s->scale,
        .state_stride = s->addr == GDN_STATE_POOL && s->slot_pad ? c->stride : 0,
        .num_slots = s->addr == GDN_STATE_POOL ? c->num_slots : 0,
        .max_workspace = s->max_workspace,
    };
    make_extras(c);
}

void rc_free(rule_case *c) {
    for (uint32_t i = 0; i < N_OF(c->plan); i++) gdn_plan_free(c->plan[i]);
    guard *all[] = { &c->q,      &c->k,       &c->v,     &c->gb,   &c->o,  &c->pool,   &c->pool_out, &c->cu,   &c->in_slots, &c->out_slots,
                     &c->in_tab, &c->out_tab, &c->fresh, &c->ckpt, &c->hi, &c->hi_tab, &c->stash,    &c->flag, &c->na,       &c->ws };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
    free(c->start);
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof *c);
}

bool rc_canaries(const rule_case *c) {
    const guard *all[] = { &c->q,  &c->k,        &c->v,         &c->gb,     &c->o,       &c->pool,  &c->pool_out,
                           &c->cu, &c->in_slots, &c->out_slots, &c->in_tab, &c->out_tab, &c->fresh, &c->ckpt,
                           &c->hi, &c->hi_tab,   &c->stash,     &c->flag,   &c->na,      &c->ws };
    for (uint32_t i = 0; i < N_OF(all); i++) {
        if (!guard_ok(all[i])) return false;
    }
    return true;
}

/* ---- places ---- */
float *rc_state(const rule_case *c, bool output, uint32_t b) {
    const int32_t slot = output ? c->out[b] : c->in[b];
    const guard *pool = output && c->s.other_pool ? &c->pool_out : &c->pool;
    return slot < 0 ? NULL : (float *)(void *)pool->p + (uint64_t)slot * c->stride;
}

uint64_t rc_elem(const rule_case *c, uint32_t k, uint32_t v) {
    return c->s.layout == GDN_STATE_V_MAJOR ? (uint64_t)v * c->s.dim + k : (uint64_t)k * c->s.dim + v;
}

bool rc_padding(const rule_case *c, uint32_t b) {
    return c->in[b] < 0 || c->out[b] < 0;
}

float *rc_hi(const rule_case *c, uint32_t b, uint32_t t) {
    const uint32_t cap = or_else(c->s.hi_capacity, c->shape.max_rows - 1);
    return (float *)(void *)c->hi.p + ((uint64_t)b * cap + t) * c->state_elems;
}

float *rc_gate(const rule_case *c, uint32_t row, uint32_t head) {
    return (float *)(void *)c->gb.p + (uint64_t)row * c->gb_stride + head;
}
float *rc_beta(const rule_case *c, uint32_t row, uint32_t head) {
    return rc_gate(c, row, head) + c->s.nv;
}
uint64_t rc_out_row_bytes(const rule_case *c) {
    return (uint64_t)c->s.nv * c->s.dim * num_size(c->s.act);
}
uint8_t *rc_out_row(const rule_case *c, uint32_t row) {
    return c->o.p + row * rc_out_row_bytes(c);
}

uint32_t rc_first_row(const rule_case *c) {
    return c->s.sparse && c->start[0] > 64 ? c->start[0] - 64 : 0;
}

void rc_poison_rows(const rule_case *c, const guard *g) {
    const uint64_t skip = c->buffer_rows ? g->bytes / c->buffer_rows * rc_first_row(c) : 0;
    if (g->p) memset(g->p + skip, 0xFF, g->bytes - skip);
}
