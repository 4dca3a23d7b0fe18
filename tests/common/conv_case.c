/* conv_case.c - see conv_case.h: buffers and launch. */
#include "conv_case.h"
#include <stdlib.h>
#include <string.h>

static void *zalloc(uint64_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

static void place(conv_case *c) {
    const conv_spec *s = &c->s;
    c->start = zalloc((s->batch + 1) * sizeof *c->start);
    c->slot = zalloc(s->batch * sizeof *c->slot);
    c->start[0] = s->len ? s->row0 : 0;
    for (uint32_t b = 0; b < s->batch; b++) {
        c->start[b + 1] = c->start[b] + (s->len ? s->len[b] : s->rows);
        c->slot[b] = s->no_slots ? (int32_t)b : s->slots ? s->slots[b] : (int32_t)(s->batch + 1 - b);
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

static void fill(conv_case *c) {
    const conv_spec *s = &c->s;
    const uint64_t size = num_size(s->act), C = s->channels;
    rng r = { s->seed * 1009 + C };
    c->x = guard_alloc(c->buffer_rows * c->x_stride * size);
    guard_poison(&c->x);
    for (uint64_t t = c->start[0]; t < c->start[s->batch]; t++) num_fill(c->x.p + t * c->x_stride * size, s->act, C, &r, -2, 2);
    c->weight = guard_alloc(C * s->width * num_size(s->weight_type));
    num_fill(c->weight.p, s->weight_type, C * s->width, &r, -1, 1);
    if (s->bias) {
        c->bias = guard_alloc(C * num_size(s->weight_type));
        num_fill(c->bias.p, s->weight_type, C, &r, -1, 1);
    }
    if (!s->no_state) {
        c->state = guard_alloc(s->num_slots * c->slot_stride * size);
        num_fill(c->state.p, s->act, s->num_slots * c->slot_stride, &r, -2, 2);
    }
    if (!s->no_slots) c->slots = guard_of(c->slot, s->batch * sizeof *c->slot);
    if (s->fresh) c->fresh = guard_of(s->fresh, s->batch);
    if (s->accepted) c->accepted = guard_of(s->accepted, s->batch * 4ull);
    for (uint32_t i = 0; i < (s->nk ? 3u : 1u); i++) {
        const uint64_t width = !s->nk ? c->out_stride : (i < 2 ? s->nk : s->nv) * s->dim + s->out_pad;
        c->out[i] = guard_alloc(c->buffer_rows * width * size);
    }
    conv_poison(c);
}

void conv_make(conv_case *c, const conv_spec *spec) {
    memset(c, 0, sizeof *c);
    c->s = *spec;
    conv_spec *s = &c->s;
    s->act = s->act ? s->act : GDN_F32;
    s->weight_type = s->weight_type ? s->weight_type : GDN_F32;
    s->width = s->width ? s->width : 4;
    s->batch = s->batch ? s->batch : 1;
    s->num_slots = s->num_slots ? s->num_slots : s->batch + 3;
    s->offsets = s->len ? s->offsets ? s->offsets : GDN_OFFSETS_I32 : 0;
    if (s->nk) s->channels = (2 * s->nk + s->nv) * s->dim;
    c->state_len = s->width - 1 + s->extra;
    c->slot_stride = (uint64_t)s->channels * c->state_len + s->slot_pad;
    c->x_stride = s->channels + s->x_pad;
    c->out_stride = s->channels + s->out_pad;
    place(c);
    fill(c);
    const uint32_t tokens = c->start[s->batch] - c->start[0], qk = s->nk * s->dim + s->out_pad, v = s->nv * s->dim + s->out_pad;
    c->shape = (gdn_conv_shape) {
        .base = { .struct_size = sizeof c->shape,
                  .op = s->nk ? GDN_OP_CONV_FUSED : GDN_OP_CONV1D,
                  .act_type = s->act,
                  .flags = s->flags | (s->keep ? (uint32_t)GDN_CONV_KEEP_ROWS : 0) },
        .channels = s->channels,
        .width = s->width,
        .state_len = s->extra ? c->state_len : 0,
        .x_stride = s->x_pad ? c->x_stride : 0,
        .out_stride = s->out_pad && !s->nk ? c->out_stride : 0,
        .silu = s->no_silu ? GDN_CONV_ACT_NONE : GDN_CONV_ACT_SILU,
        .weight_type = s->weight_type,
        .offsets = s->offsets,
        .max_tokens = tokens ? tokens : 1,
        .max_batch = s->batch,
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->dim,
        .v_dim = s->dim,
        .q_stride = s->nk ? qk : 0,
        .k_stride = s->nk ? qk : 0,
        .v_stride = s->nk ? v : 0,
        .slot_stride = s->slot_pad ? c->slot_stride : 0,
        .num_slots = s->num_slots,
    };
}

static guard *all(conv_case *c, uint32_t i) {
    guard *g[] = { &c->x, &c->weight, &c->bias, &c->state, &c->slots, &c->fresh, &c->accepted, &c->cu, &c->out[0], &c->out[1], &c->out[2] };
    return i < N_OF(g) ? g[i] : NULL;
}

void conv_free(conv_case *c) {
    gdn_plan_free(c->plan);
    for (uint32_t i = 0; all(c, i); i++) guard_free(all(c, i));
    free(c->start);
    free(c->slot);
    memset(c, 0, sizeof *c);
}

void conv_poison(const conv_case *c) {
    for (uint32_t i = 0; i < 3; i++) guard_poison(&c->out[i]);
}

static uint64_t at(const guard *g, uint64_t bytes) {
    return g->p ? addr_of(g->p + bytes) : 0;
}

gdn_status conv_launch(conv_case *c, uint32_t first, uint32_t n) {
    const conv_spec *s = &c->s;
    if (!c->plan) c->plan = plan_ok(&c->shape);
    const uint64_t size = num_size(s->act), row = s->len ? 0 : c->start[first];
    const uint64_t cu = at(&c->cu, first * (s->offsets == GDN_OFFSETS_I64 ? 8u : 4u)), x = at(&c->x, row * c->x_stride * size);
    const uint64_t state = s->no_slots ? at(&c->state, first * c->slot_stride * size) : at(&c->state, 0);
    const uint64_t slots = at(&c->slots, first * 4), fresh = at(&c->fresh, first), acc = at(&c->accepted, first * 4);
    const uint32_t u32[] = { n, s->len ? 0 : s->rows };
    if (s->nk) {
        const uint64_t qk = row * c->shape.q_stride * size, v = row * c->shape.v_stride * size;
        const uint64_t ptr[] = {
            x, at(&c->weight, 0), at(&c->bias, 0), state, slots, fresh, at(&c->out[0], qk), at(&c->out[1], qk), at(&c->out[2], v), cu, acc
        };
        return launch(c->plan, N_OF(ptr), ptr, 2, u32);
    }
    const uint64_t ptr[] = {
        x, at(&c->weight, 0), at(&c->bias, 0), state, slots, fresh, at(&c->out[0], row * c->out_stride * size), cu, acc
    };
    return launch(c->plan, N_OF(ptr), ptr, 2, u32);
}

double conv_x(const conv_case *c, uint32_t row, uint32_t channel) {
    return num_get(c->x.p, c->s.act, (uint64_t)row * c->x_stride + channel);
}

uint64_t conv_at(const conv_case *c, uint32_t slot, uint32_t channel, uint32_t column) {
    return slot * c->slot_stride + (uint64_t)channel * c->state_len + column;
}

double conv_out(const conv_case *c, uint32_t row, uint32_t ch) {
    if (!c->s.nk) return num_get(c->out[0].p, c->s.act, (uint64_t)row * c->out_stride + ch);
    const uint32_t qk = c->s.nk * c->s.dim, i = ch < qk ? 0 : ch < 2 * qk ? 1 : 2;
    const uint32_t stride = i < 2 ? c->shape.q_stride : c->shape.v_stride;
    return num_get(c->out[i].p, c->s.act, (uint64_t)row * stride + ch - i * qk);
}
