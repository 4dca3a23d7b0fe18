/* rule_step_case.h - inputs, an f64 recurrence and comparisons for the tests of decode, verify, woa and fold on the CPU.
 *
 * A case owns every buffer of one launch, filled from its seed: two cases of one spec hold the same bytes, so that what two
 * runs wrote is compared with memcmp over whole buffers, gaps included. Outputs, hi and stash start as NaN. */
#ifndef RULE_STEP_CASE_H
#define RULE_STEP_CASE_H

#include "cpu_kernels.h"
#include "gdn_op_rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_SEQ = 16, EDGE = 5 }; /* EDGE: elements that make every pitch odd */

typedef struct spec {
    uint32_t batch, rows, nk, nv, dim, addr, isa, hi_capacity;
    const uint32_t *lens; /* rows of each sequence, or NULL */
    bool f32, log_gate, tiled, v_major, l2norm, elsewhere, cu64;
    uint64_t seed;
} spec;

typedef struct step_case {
    spec s;
    gdn_cpu_rule c;
    size_t row, tokens, seq, out_bytes, pool_len, hi_len, stash_len;
    void *act, *out;
    float *gb, *pool, *hi, *stash;
    int32_t in_slots[MAX_SEQ], out_slots[MAX_SEQ], cu32[MAX_SEQ + 1];
    int64_t cu64[MAX_SEQ + 1];
    uint64_t tab_in[MAX_SEQ], tab_out[MAX_SEQ], tab_hi[GDN_MAX_ROWS * MAX_SEQ];
    uint8_t fresh[MAX_SEQ];
    uint32_t na[MAX_SEQ], engaged;
} step_case;

static inline float uniform(uint64_t *s, float lo, float hi) {
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return lo + (hi - lo) * (float)((z ^ (z >> 31)) >> 40) * 0x1p-24f;
}
static inline void *must(void *p) {
    assert_non_null(p);
    return p;
}
static inline float *floats(size_t n, float value) {
    float *const p = must(malloc((n + 1) * sizeof *p));
    for (size_t i = 0; i < n; i++) p[i] = value;
    return p;
}

/* ---- activations by index, in the case's type ---- */
static inline float act_get(const step_case *t, const void *base, size_t i) {
    return t->s.f32 ? ((const float *)base)[i] : gdn_bf16_to_f32(((const uint16_t *)base)[i]);
}
static inline void act_set(const step_case *t, void *base, size_t i, float x) {
    if (t->s.f32)
        ((float *)base)[i] = x;
    else
        ((uint16_t *)base)[i] = gdn_f32_to_bf16(x);
}

/* Fills activations and gates anew: the next tokens of the same case. */
static inline void case_tokens(step_case *t, uint64_t seed) {
    const spec *const s = &t->s;
    const float qk = s->l2norm ? 3.0f : 1.7f / sqrtf((float)s->dim); /* norm about 1 unless the kernel normalises */
    for (size_t r = 0; r < t->tokens; r++) {
        for (size_t i = 0; i < t->row; i++) {
            const float m = i < 2u * s->nk * s->dim ? qk : 0.5f;
            act_set(t, t->act, r * t->row + i, uniform(&seed, -m, m));
        }
        for (size_t h = 0; h < s->nv; h++) {
            const float g = uniform(&seed, 0.7f, 1.0f);
            t->gb[r * t->c.gb_stride + h] = s->log_gate ? logf(g) : g;
            t->gb[r * t->c.gb_stride + s->nv + h] = uniform(&seed, 0.1f, 1.0f);
        }
    }
}

static inline void case_rule(step_case *t) {
    const spec *const s = &t->s;
    char *const act = t->act;
    const size_t width = s->f32 ? 4 : 2;
    t->c = (gdn_cpu_rule) { .q = act,
                            .k = act + s->nk * s->dim * width,
                            .v = act + 2 * s->nk * s->dim * width,
                            .gate = t->gb,
                            .beta = t->gb + s->nv,
                            .out = t->out,
                            .state = t->pool,
                            .state_out = t->pool,
                            .in_slots = t->in_slots,
                            .out_slots = t->out_slots,
                            .fresh = t->fresh,
                            .hi = t->hi,
                            .stash = t->stash,
                            .engaged = &t->engaged,
                            .na = t->na,
                            .state_stride = t->seq + EDGE,
                            .stash_stride = t->stash_len / s->batch,
                            .batch = s->batch,
                            .seq_len = s->rows,
                            .nk = s->nk,
                            .nv = s->nv,
                            .k_dim = s->dim,
                            .v_dim = s->dim,
                            .qk_stride = (uint32_t)t->row,
                            .v_stride = (uint32_t)t->row,
                            .gb_stride = 2 * s->nv + 1,
                            .hi_capacity = s->hi_capacity,
                            .slab_entries = MAX_SEQ,
                            .addr = s->addr,
                            .isa = s->isa,
                            .scale = 1.0f / sqrtf((float)s->dim),
                            .f32 = s->f32,
                            .cu64 = s->cu64,
                            .log_gate = s->log_gate,
                            .tiled = s->tiled,
                            .v_major = s->v_major,
                            .l2norm = s->l2norm };
    if (s->lens) t->c.cu = s->cu64 ? (const void *)t->cu64 : t->cu32;
    if (s->addr == GDN_STATE_TABLE) {
        t->c.state = t->tab_in;
        t->c.state_out = t->tab_out;
        t->c.hi = t->tab_hi;
    } else if (s->addr == GDN_STATE_CONTIGUOUS) { /* one sequence at its slot */
        t->c.state = t->pool + t->seq + EDGE;
        t->c.state_out = t->pool + (s->elsewhere ? 2 : 1) * (t->seq + EDGE);
    }
}

/* The slots of sequence b are 2b+1 (in) and, elsewhere, 2b+2; slot 0 belongs to nobody. */
static inline step_case *case_make(const spec *from) {
    step_case *const t = must(calloc(1, sizeof *t));
    uint64_t seed = from->seed;
    t->s = *from;
    spec *const s = &t->s;
    if (s->hi_capacity == 0) s->hi_capacity = s->rows;
    t->row = (2 * s->nk + s->nv) * s->dim + EDGE;
    t->seq = (size_t)s->nv * s->dim * s->dim;
    const size_t first = s->lens ? 2 : 0; /* cu[0] > 0 */
    t->tokens = first;
    for (uint32_t b = 0; b <= s->batch; b++) {
        t->cu32[b] = (int32_t)t->tokens;
        t->cu64[b] = (int64_t)t->tokens;
        if (b < s->batch) t->tokens += s->lens ? s->lens[b] : s->rows;
    }
    t->out_bytes = t->tokens * s->nv * s->dim * (s->f32 ? 4 : 2);
    t->pool_len = (2 * (size_t)s->batch + 1) * (t->seq + EDGE);
    t->hi_len = (size_t)s->batch * s->hi_capacity * t->seq;
    t->stash_len = s->batch * (4 * ((size_t)s->nv * s->dim + s->nv + (size_t)s->nk * s->dim) + EDGE);
    t->act = floats(t->tokens * t->row, 0);
    t->gb = floats(t->tokens * (2 * s->nv + 1), NAN);
    t->out = must(malloc(t->out_bytes + 1));
    memset(t->out, 0xff, t->out_bytes);
    t->pool = floats(t->pool_len, 0);
    t->hi = floats(t->hi_len, NAN);
    t->stash = floats(t->stash_len, NAN);
    for (size_t i = 0; i < t->pool_len; i++) t->pool[i] = uniform(&seed, -0.2f, 0.2f);
    for (uint32_t b = 0; b < s->batch; b++) {
        t->in_slots[b] = (int32_t)(2 * b + 1);
        t->out_slots[b] = t->in_slots[b] + (s->elsewhere ? 1 : 0);
        t->tab_in[b] = (uintptr_t)(t->pool + (size_t)t->in_slots[b] * (t->seq + EDGE));
        t->tab_out[b] = (uintptr_t)(t->pool + (size_t)t->out_slots[b] * (t->seq + EDGE));
        for (uint32_t j = 0; j + 1 < s->rows; j++) t->tab_hi[j * MAX_SEQ + b] = (uintptr_t)(t->hi + (b * s->hi_capacity + j) * t->seq);
    }
    case_rule(t);
    case_tokens(t, seed);
    return t;
}
static inline void case_free(step_case *t) {
    free(t->stash);
    free(t->hi);
    free(t->pool);
    free(t->out);
    free(t->gb);
    free(t->act);
    free(t);
}

/* Sequence b of a uniform case as a launch of its own. */
static inline gdn_cpu_rule case_single(const step_case *t, uint32_t b) {
    gdn_cpu_rule c = t->c;
    const size_t width = t->s.f32 ? 4 : 2, rows = c.seq_len;
    c.batch = 1;
    c.q = (const char *)c.q + b * rows * c.qk_stride * width;
    c.k = (const char *)c.k + b * rows * c.qk_stride * width;
    c.v = (const char *)c.v + b * rows * c.v_stride * width;
    c.gate += b * rows * c.gb_stride;
    c.beta += b * rows * c.gb_stride;
    c.out = (char *)c.out + b * rows * c.nv * c.v_dim * width;
    c.in_slots += b;
    c.out_slots += b;
    c.fresh += b;
    c.na += b;
    c.stash += b * c.stash_stride;
    if (c.addr == GDN_STATE_TABLE) {
        c.state = t->tab_in + b;
        c.state_out = (uint64_t *)c.state_out + b;
        c.hi = (uint64_t *)c.hi + b;
    } else {
        c.hi = (float *)c.hi + b * c.hi_capacity * t->seq;
    }
    return c;
}

static inline float *state_in(const step_case *t, uint32_t b) {
    return (float *)(uintptr_t)t->tab_in[b];
}
static inline float *state_out(const step_case *t, uint32_t b) {
    return (float *)(uintptr_t)t->tab_out[b];
}
static inline float *hi_at(const step_case *t, uint32_t b, uint32_t r) {
    return t->hi + (b * t->s.hi_capacity + r) * t->seq;
}
static inline bool same_floats(const float *a, const float *b, size_t n) {
    return memcmp(a, b, n * sizeof *a) == 0;
}
/* Everything that a launch may write. */
static inline bool same_case(const step_case *a, const step_case *b) {
    return memcmp(a->out, b->out, a->out_bytes) == 0 && same_floats(a->pool, b->pool, a->pool_len) &&
           same_floats(a->hi, b->hi, a->hi_len) && same_floats(a->stash, b->stash, a->stash_len);
}

/* ---- the recurrence in f64, S [K][V] ---- */
static inline void ref_state(const step_case *t, const float *from, uint32_t h, double *S) {
    const size_t d = t->s.dim;
    for (size_t j = 0; j < d; j++)
        for (size_t v = 0; v < d; v++) S[j * d + v] = from[h * d * d + (t->s.v_major ? v * d + j : j * d + v)];
}
static inline void ref_row(const step_case *t, size_t row, uint32_t h, double *S, double *o) {
    const spec *const s = &t->s;
    const size_t d = s->dim, kh = s->tiled ? h % s->nk : h / (s->nv / s->nk), at = row * t->row;
    double q[128], k[128], qq = 0, kk = 0;
    for (size_t j = 0; j < d; j++) {
        q[j] = act_get(t, t->act, at + kh * d + j);
        k[j] = act_get(t, t->act, at + (s->nk + kh) * d + j);
        qq += q[j] * q[j];
        kk += k[j] * k[j];
    }
    for (size_t j = 0; s->l2norm && j < d; j++) {
        q[j] /= sqrt(qq + 1e-6);
        k[j] /= sqrt(kk + 1e-6);
    }
    double g = t->gb[row * t->c.gb_stride + h];
    if (s->log_gate) g = exp(g);
    g = g < 1e-6 ? 1e-6 : g > 1 - 1e-6 ? 1 - 1e-6 : g;
    const double beta = t->gb[row * t->c.gb_stride + s->nv + h];
    double u[128] = { 0 };
    for (size_t j = 0; j < d; j++)
        for (size_t v = 0; v < d; v++) u[v] += g * S[j * d + v] * k[j];
    for (size_t v = 0; v < d; v++) {
        u[v] = beta * (act_get(t, t->act, at + (2 * s->nk + h) * d + v) - u[v]);
        o[v] = 0;
    }
    for (size_t j = 0; j < d; j++)
        for (size_t v = 0; v < d; v++) {
            S[j * d + v] = g * S[j * d + v] + k[j] * u[v];
            o[v] += S[j * d + v] * q[j] * (double)t->c.scale;
        }
}

/* Largest difference over largest reference value; a NaN counts as infinite. */
typedef struct worst {
    double diff, size;
} worst;
static inline void worst_add(worst *w, double x, double ref) {
    const double d = fabs(x - ref);
    if (!(d <= w->diff)) w->diff = isnan(d) ? INFINITY : d;
    if (fabs(ref) > w->size) w->size = fabs(ref);
}
static inline double error_out(const step_case *t, size_t row, uint32_t h, const double *o) {
    worst w = { 0, 1e-3 };
    for (size_t v = 0; v < t->s.dim; v++) worst_add(&w, act_get(t, t->out, (row * t->s.nv + h) * t->s.dim + v), o[v]);
    return w.diff / w.size;
}
static inline double error_state(const step_case *t, const float *is, uint32_t h, const double *S) {
    worst w = { 0, 1e-3 };
    const size_t d = t->s.dim;
    for (size_t j = 0; j < d; j++)
        for (size_t v = 0; v < d; v++) worst_add(&w, is[h * d * d + (t->s.v_major ? v * d + j : j * d + v)], S[j * d + v]);
    return w.diff / w.size;
}

#endif
