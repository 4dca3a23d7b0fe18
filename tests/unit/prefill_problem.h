/* prefill_problem.h - random prefill launches for test_cpu_prefill.c: rows, states and slots, and an f64 recurrence to compare with.
 *
 * States are in a pool, sequence b from slot 2b+1 to slot 2b; what must not be read is NaN, what must not be written holds a
 * pattern. The reference goes token by token and knows nothing of chunks. */
#ifndef GDN_PREFILL_PROBLEM_H
#define GDN_PREFILL_PROBLEM_H

#include "cpu_kernels.h"
#include "gdn_op_rule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_BATCH = 8, GUARD_ROWS = 40 };

enum data_kind { ORDINARY, ZERO_ONE, ZERO_TWO, ZERO_ALL, DECAY_ONE, TINY_DECAY, EQUAL_KEYS, SLOW };

typedef struct problem {
    uint32_t isa, nk, nv, dim, batch;
    uint32_t len[MAX_BATCH];
    bool packed, cu64, f32, log_gate, tiled, v_major, l2norm, fresh[MAX_BATCH], padding[MAX_BATCH];
    bool wide_rows;             /* odd strides, beyond the row */
    uint32_t ckpt_every, first; /* first: cu[0] */
    enum data_kind kind;
} problem;

typedef struct data {
    gdn_cpu_rule c;
    uint64_t rows, ckpts; /* rows: up to the end of the last sequence */
    void *q, *k, *v;
    float *gb, *in, *out_state, *ckpt;
    void *out;
    int64_t cu[MAX_BATCH + 1];
    int32_t cu32[MAX_BATCH + 1], slots[MAX_BATCH], out_slots[MAX_BATCH];
    uint8_t fresh[MAX_BATCH];
    uint32_t slot_count;
} data;

static uint64_t seed;
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}
static void *need(size_t size) {
    void *p = malloc(size ? size : 1);
    assert_non_null(p);
    return p;
}

static double get(bool f32, const void *p, uint64_t i) {
    return f32 ? (double)((const float *)p)[i] : (double)gdn_bf16_to_f32(((const uint16_t *)p)[i]);
}
static void put(bool f32, void *p, uint64_t i, double x) {
    if (f32)
        ((float *)p)[i] = (float)x;
    else
        ((uint16_t *)p)[i] = gdn_f32_to_bf16((float)x);
}

/* ---- making a problem ---- */

static double gate_of(enum data_kind kind, uint32_t t) {
    switch (kind) {
    case ZERO_ONE: return t % 32 == 5 ? 0 : 0.8 + 0.199 * uniform();
    case ZERO_TWO: return t % 32 == 5 || t % 32 == 19 ? 0 : 0.8 + 0.199 * uniform();
    case ZERO_ALL: return t < 64 && t >= 32 ? 0 : 0.8 + 0.199 * uniform();
    case DECAY_ONE:
    case EQUAL_KEYS: return 1;
    case TINY_DECAY: return exp(-27.6);
    case SLOW: return 0.999 + 0.001 * uniform();
    default: return 0.8 + 0.199 * uniform();
    }
}

/* Unit rows for q and k (any length with l2norm), row by row; guard rows after the end are NaN. */
static void fill_rows(const problem *p, void *x, uint64_t rows, uint32_t stride, uint32_t heads, bool unit) {
    const uint64_t from = p->packed ? p->first : 0;
    for (uint64_t i = 0; i < (rows + GUARD_ROWS) * stride; i++) put(p->f32, x, i, NAN);
    for (uint64_t t = from; t < rows; t++)
        for (uint32_t h = 0; h < heads; h++) {
            double e[128], sum = 0;
            for (uint32_t i = 0; i < p->dim; i++) {
                e[i] = p->kind == EQUAL_KEYS && unit ? (double)(i % 7) : uniform() - 0.5;
                sum += e[i] * e[i];
            }
            const double norm = unit && !p->l2norm ? 1 / sqrt(sum) : 1;
            for (uint32_t i = 0; i < p->dim; i++) put(p->f32, x, t * stride + h * p->dim + i, e[i] * norm);
        }
}

static void fill_gates(const problem *p, data *d) {
    for (uint64_t i = 0; i < (d->rows + GUARD_ROWS) * d->c.gb_stride; i++) d->gb[i] = NAN;
    for (uint64_t t = p->packed ? p->first : 0; t < d->rows; t++)
        for (uint32_t h = 0; h < p->nv; h++) {
            const double a = gate_of(p->kind, (uint32_t)t);
            d->gb[t * d->c.gb_stride + h] = (float)(p->log_gate ? log(a) : a);
            d->gb[t * d->c.gb_stride + p->nv + h] = p->kind == EQUAL_KEYS ? 1.f : (float)uniform();
        }
}

static void lay_out(const problem *p, data *d) {
    uint64_t at = p->packed ? p->first : 0;
    for (uint32_t b = 0; b <= p->batch; b++) {
        d->cu[b] = (int64_t)at;
        d->cu32[b] = (int32_t)at;
        if (b < p->batch) at += p->len[b];
    }
    d->rows = at;
    for (uint32_t b = 0; b < p->batch; b++) {
        d->slots[b] = p->padding[b] ? -1 : (int32_t)(2 * b + 1);
        d->out_slots[b] = p->padding[b] ? (int32_t)(2 * b + 1) : (int32_t)(2 * b);
        d->fresh[b] = p->fresh[b];
        if (p->ckpt_every) d->ckpts += p->len[b] / p->ckpt_every;
    }
    d->slot_count = 2 * p->batch + 1;
}

static data make(const problem *p) {
    data d = { 0 };
    seed = 12345 + p->kind;
    lay_out(p, &d);
    const uint64_t head = (uint64_t)p->dim * p->dim, seq = p->nv * head, wide = p->wide_rows ? 3 : 0, size = p->f32 ? 4 : 2;
    gdn_cpu_rule *c = &d.c;
    *c = (gdn_cpu_rule) { .batch = p->batch,
                          .seq_len = p->packed ? 0 : p->len[0],
                          .nk = p->nk,
                          .nv = p->nv,
                          .k_dim = p->dim,
                          .v_dim = p->dim,
                          .qk_stride = (uint32_t)(p->nk * p->dim + wide),
                          .v_stride = (uint32_t)(p->nv * p->dim + wide),
                          .gb_stride = (uint32_t)(2 * p->nv + wide),
                          .state_stride = seq + 5,
                          .addr = GDN_STATE_POOL,
                          .isa = p->isa,
                          .scale = 1.f / sqrtf((float)p->dim),
                          .f32 = p->f32,
                          .cu64 = p->cu64,
                          .log_gate = p->log_gate,
                          .tiled = p->tiled,
                          .v_major = p->v_major,
                          .l2norm = p->l2norm,
                          .ckpt_every = p->ckpt_every };
    d.q = need((d.rows + GUARD_ROWS) * c->qk_stride * size);
    d.k = need((d.rows + GUARD_ROWS) * c->qk_stride * size);
    d.v = need((d.rows + GUARD_ROWS) * c->v_stride * size);
    d.gb = need((d.rows + GUARD_ROWS) * c->gb_stride * sizeof(float));
    d.out = need((d.rows + GUARD_ROWS) * p->nv * p->dim * size);
    d.in = need(d.slot_count * c->state_stride * sizeof(float));
    d.out_state = need(d.slot_count * c->state_stride * sizeof(float));
    d.ckpt = need(d.ckpts * seq * sizeof(float));
    fill_rows(p, d.q, d.rows, c->qk_stride, p->nk, true);
    fill_rows(p, d.k, d.rows, c->qk_stride, p->nk, true);
    fill_rows(p, d.v, d.rows, c->v_stride, p->nv, false);
    fill_gates(p, &d);
    for (uint64_t i = 0; i < d.slot_count * c->state_stride; i++) d.in[i] = d.out_state[i] = NAN;
    for (uint32_t b = 0; b < p->batch; b++)
        for (uint64_t i = 0; !p->padding[b] && !p->fresh[b] && i < seq; i++)
            d.in[(2 * b + 1) * c->state_stride + i] = (float)(uniform() * 0.2 - 0.1);
    memset(d.out, 0x5a, (d.rows + GUARD_ROWS) * p->nv * p->dim * size);
    memset(d.ckpt, 0xff, d.ckpts * seq * sizeof(float));
    return d;
}
/* Pointers are set on a copy that stays where it is. */
static void bind(const problem *p, data *d) {
    gdn_cpu_rule *c = &d->c;
    c->q = d->q, c->k = d->k, c->v = d->v;
    c->gate = d->gb, c->beta = d->gb + p->nv;
    c->out = d->out, c->state = d->in, c->state_out = d->out_state;
    c->in_slots = d->slots, c->out_slots = d->out_slots;
    c->fresh = d->fresh;
    c->ckpt = p->ckpt_every ? d->ckpt : NULL;
    c->cu = !p->packed ? NULL : p->cu64 ? (const void *)d->cu : (const void *)d->cu32;
}
static void drop(data *d) {
    free(d->ckpt);
    free(d->out_state);
    free(d->in);
    free(d->out);
    free(d->gb);
    free(d->v);
    free(d->k);
    free(d->q);
}

/* ---- the reference: f64, token by token ---- */

typedef struct errors {
    double out, out_norm, state, state_norm, ckpt, ckpt_norm;
} errors;
static double relative(double e, double n) {
    return n > 0 ? sqrt(e / n) : sqrt(e);
}

static void load_row(const problem *p, const void *x, uint64_t at, double *to) {
    double sum = 0;
    for (uint32_t i = 0; i < p->dim; i++) {
        to[i] = get(p->f32, x, at + i);
        sum += to[i] * to[i];
    }
    for (uint32_t i = 0; p->l2norm && i < p->dim; i++) to[i] /= sqrt(sum + 1e-6);
}
static void add_state_error(const problem *p, const double *S, const float *got, double *e, double *n) {
    for (uint32_t i = 0; i < p->dim; i++)
        for (uint32_t j = 0; j < p->dim; j++) {
            const double x = S[i * p->dim + j], y = (double)got[p->v_major ? j * p->dim + i : i * p->dim + j] - x;
            *e += y * y;
            *n += x * x;
        }
}
/* One token: S <- a S, u = beta (v - S^T k), S <- S + k u^T, o = scale S^T q. */
static void step(uint32_t n, double a, double beta, const double *q, const double *k, const double *v, double *S, double *o) {
    double u[128] = { 0 };
    for (uint32_t j = 0; j < n; j++) o[j] = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) u[j] += (S[i * n + j] *= a) * k[i];
    for (uint32_t j = 0; j < n; j++) u[j] = beta * (v[j] - u[j]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) o[j] += (S[i * n + j] += k[i] * u[j]) * q[i] / sqrt((double)n);
}

static void compare_head(const problem *p, const data *d, uint32_t b, uint32_t h, uint64_t ckpt_first, errors *err) {
    const gdn_cpu_rule *c = &d->c;
    const uint32_t kh = p->tiled ? h % p->nk : h / (p->nv / p->nk), n = p->dim;
    const uint64_t head = (uint64_t)n * n;
    const float *in = d->in + (2 * b + 1) * c->state_stride + h * head;
    double *S = need(head * sizeof *S), q[128], k[128], v[128], o[128];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) S[i * n + j] = p->fresh[b] ? 0 : (double)in[p->v_major ? j * n + i : i * n + j];
    for (uint32_t t = 0; t < p->len[b]; t++) {
        const uint64_t row = (uint64_t)d->cu[b] + t;
        load_row(p, d->q, row * c->qk_stride + kh * n, q);
        load_row(p, d->k, row * c->qk_stride + kh * n, k);
        for (uint32_t i = 0; i < n; i++) v[i] = get(p->f32, d->v, row * c->v_stride + h * n + i);
        const double g = (double)d->gb[row * c->gb_stride + h];
        step(n, p->log_gate ? exp(fmax(g, log(1e-30))) : fmax(g, 1e-30), (double)d->gb[row * c->gb_stride + p->nv + h], q, k, v, S, o);
        for (uint32_t i = 0; i < n; i++) {
            const double e = get(p->f32, d->out, (row * p->nv + h) * n + i) - o[i];
            err->out += e * e;
            err->out_norm += o[i] * o[i];
        }
        if (p->ckpt_every && (t + 1) % p->ckpt_every == 0)
            add_state_error(p, S, d->ckpt + ((ckpt_first + (t + 1) / p->ckpt_every - 1) * p->nv + h) * head, &err->ckpt, &err->ckpt_norm);
    }
    add_state_error(p, S, d->out_state + 2 * b * c->state_stride + h * head, &err->state, &err->state_norm);
    free(S);
}

/* Rows that belong to no sequence and states of no sequence keep what they held; padding rows are zero. */
static void check_untouched(const problem *p, const data *d) {
    const uint64_t width = (uint64_t)p->nv * p->dim * (p->f32 ? 4 : 2), seq = (uint64_t)p->nv * p->dim * p->dim;
    const uint8_t *out = d->out;
    for (uint64_t i = 0; i < (uint64_t)d->cu[0] * width; i++) assert_int_equal(out[i], 0x5a);
    for (uint64_t i = d->rows * width; i < (d->rows + GUARD_ROWS) * width; i++) assert_int_equal(out[i], 0x5a);
    for (uint32_t b = 0; b < p->batch; b++)
        for (uint64_t i = (uint64_t)d->cu[b] * width; p->padding[b] && i < (uint64_t)d->cu[b + 1] * width; i++) assert_int_equal(out[i], 0);
    for (uint32_t s = 0; s < d->slot_count; s++) {
        const bool written = s % 2 == 0 && s / 2 < p->batch && !p->padding[s / 2];
        for (uint64_t i = written ? seq : 0; i < d->c.state_stride; i++) assert_true(isnan(d->out_state[s * d->c.state_stride + i]));
    }
}

static errors run_and_compare(const problem *p, data *d) {
    errors err = { 0 };
    uint64_t ckpt_first = 0;
    bind(p, d);
    gdn_cpu_prefill(&d->c);
    for (uint32_t b = 0; b < p->batch; b++) {
        for (uint32_t h = 0; !p->padding[b] && h < p->nv; h++) compare_head(p, d, b, h, ckpt_first, &err);
        if (p->ckpt_every) ckpt_first += p->len[b] / p->ckpt_every;
    }
    return err;
}

#endif
