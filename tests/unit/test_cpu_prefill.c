/* test_cpu_prefill.c - gdn_cpu_prefill against an f64 token recurrence: every instruction set, layout, type and gate form.
 *
 * Rows and states lie between guard values (NaN for what must not be read, a pattern for what must not be written).
 * The last test feeds the comparison a wrong input and wants it noticed. */
#include "cpu_kernels.h"
#include "gdn_op_rule.h"
#include <math.h>
#include <omp.h>
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
    bool wide_rows, zero_state; /* odd strides, beyond the row */
    uint32_t ckpt_every, first; /* first: cu[0] */
    enum data_kind kind;
} problem;

typedef struct data {
    gdn_cpu_rule c;
    uint64_t rows, ckpts; /* rows: up to the end of the last sequence */
    void *q, *k, *v;      /* allocations; the kernel's pointers may be odd */
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
            d.in[(2 * b + 1) * c->state_stride + i] = p->zero_state ? 0 : (float)(uniform() * 0.2 - 0.1);
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
static void check(const problem *p, double out_limit, double state_limit) {
    data d = make(p);
    const errors e = run_and_compare(p, &d);
    check_untouched(p, &d);
    const double out = relative(e.out, e.out_norm), state = relative(e.state, e.state_norm), ckpt = relative(e.ckpt, e.ckpt_norm);
    if (getenv("GDN_TEST_PRINT"))
        print_message("%-6s dim %3u kind %d f32 %d len %4u: output %.1e state %.1e checkpoints %.1e\n", gdn_cpu_isa_name(p->isa), p->dim,
                      (int)p->kind, p->f32, p->len[0], out, state, ckpt);
    if (!(out <= out_limit && state <= state_limit && ckpt <= state_limit))
        fail_msg("isa %s dim %u kind %d f32 %d len %u: output %.2e (limit %.1e), state %.2e, checkpoints %.2e (limit %.1e)",
                 gdn_cpu_isa_name(p->isa), p->dim, (int)p->kind, p->f32, p->len[0], out, out_limit, state, ckpt, state_limit);
    drop(&d);
}
/* bf16 outputs are rounded once: 2^-9 at most, a third of it in the mean. */
static double out_limit(bool f32, double limit) {
    return f32 ? limit : 2e-3;
}

#define EACH_ISA(i) for (uint32_t i = 0; i <= gdn_cpu_isa_pick(GDN_CPU_AVX512); i++)

/* ---- tests ---- */

static void test_forms(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 64; form++) {
        problem p = { .isa = isa, .nk = 2, .nv = 6, .dim = form & 1 ? 64 : 128, .batch = 1, .len = { 69 } };
        p.f32 = form & 2, p.v_major = form & 4, p.log_gate = form & 8, p.tiled = form & 16, p.l2norm = form & 32;
        p.wide_rows = (form ^ (form >> 3)) & 1;
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

static void test_lengths(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t len = 0; len <= 200; len++) {
        problem p = {
            .isa = isa, .nk = 1, .nv = 1, .dim = len % 3 ? 64 : 128, .batch = 1, .len = { len }, .f32 = len % 4 != 1, .v_major = len & 1
        };
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

static void test_hard_data(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (int kind = ORDINARY; kind <= EQUAL_KEYS; kind++)
        for (uint32_t log_gate = 0; log_gate < 2; log_gate++) {
            problem p = { .isa = isa, .nk = 1, .nv = 2, .dim = 128, .batch = 1, .len = { 150 }, .f32 = true, .log_gate = log_gate };
            p.kind = (enum data_kind)kind;
            check(&p, kind == ORDINARY ? 1e-6 : 1e-5, kind == ORDINARY ? 1e-6 : 1e-5);
        }
}

static void test_long(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = { .isa = isa, .nk = 1, .nv = 1, .dim = 128, .batch = 1, .len = { 8192 }, .f32 = true, .kind = SLOW };
        check(&p, 1e-5, 1e-5);
    }
}

static problem packed(uint32_t isa, uint32_t form) {
    problem p = {
        .isa = isa, .nk = 2, .nv = 4, .dim = form & 1 ? 128 : 64, .batch = 6, .len = { 70, 0, 131, 40, 1, 64 }, .packed = true, .first = 5
    };
    p.cu64 = form & 2, p.f32 = form & 4, p.v_major = form & 8, p.ckpt_every = 64;
    p.fresh[2] = true, p.padding[3] = true, p.fresh[3] = true;
    return p;
}
static void test_packed(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 16; form++) {
        problem p = packed(isa, form);
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

/* The last sequence alone, in place, through a table of pointers, gives the bytes it gave in the batch. */
static void test_alone_in_place(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 16; form++) {
        problem p = packed(isa, form);
        data d = make(&p);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        const uint64_t seq = (uint64_t)p.nv * p.dim * p.dim, size = p.f32 ? 4 : 2, row = (uint64_t)d.cu[5], width = p.nv * p.dim * size;
        uint8_t *out = need(p.len[5] * width);
        memcpy(out, (uint8_t *)d.out + row * width, p.len[5] * width);
        memset((uint8_t *)d.out + row * width, 0x77, p.len[5] * width);
        const uint64_t table = (uint64_t)(uintptr_t)(d.in + 11 * d.c.state_stride);
        const int64_t cu[2] = { d.cu[5], d.cu[6] };
        gdn_cpu_rule c = d.c;
        c.addr = GDN_STATE_TABLE, c.state = &table, c.state_out = (void *)(uintptr_t)&table, c.fresh = NULL, c.ckpt = NULL;
        c.batch = 1, c.cu = cu, c.cu64 = true;
        gdn_cpu_prefill(&c);
        assert_memory_equal(out, (uint8_t *)d.out + row * width, p.len[5] * width);
        assert_memory_equal(d.in + 11 * d.c.state_stride, d.out_state + 10 * d.c.state_stride, seq * sizeof(float));
        free(out);
        drop(&d);
    }
}

/* Two calls, cut at `cut`, against one. */
static bool same_when_cut(uint32_t isa, bool f32, bool v_major, uint32_t cut) {
    problem p = { .isa = isa, .nk = 1, .nv = 2, .dim = 128, .batch = 1, .len = { 259 }, .f32 = f32, .v_major = v_major };
    data d = make(&p);
    bind(&p, &d);
    gdn_cpu_prefill(&d.c);
    const uint64_t size = f32 ? 4 : 2, seq = (uint64_t)p.nv * p.dim * p.dim, all = p.len[0] * (uint64_t)p.nv * p.dim * size;
    uint8_t *out = need(all);
    float *end = need(seq * sizeof(float));
    memcpy(out, d.out, all);
    memcpy(end, d.out_state, seq * sizeof(float));
    memset(d.out, 0x11, all);
    gdn_cpu_rule c = d.c;
    c.cu = d.cu, c.cu64 = true;
    d.cu[1] = cut;
    gdn_cpu_prefill(&c);
    d.cu[0] = cut, d.cu[1] = (int64_t)p.len[0];
    c.state = d.out_state, c.in_slots = d.out_slots;
    gdn_cpu_prefill(&c);
    const bool same = memcmp(out, d.out, all) == 0 && memcmp(end, d.out_state, seq * sizeof(float)) == 0;
    free(end);
    free(out);
    drop(&d);
    return same;
}
static void test_cut(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 4; form++) {
        for (uint32_t cut = 64; cut < 259; cut += 64) assert_true(same_when_cut(isa, form & 1, form & 2, cut));
        assert_false(same_when_cut(isa, form & 1, form & 2, 77)); /* control: a ragged cut rounds otherwise */
    }
}

/* Any number of threads, so any cut into units, and a zero state instead of a fresh one: the same bytes. */
static void test_threads(void **state) {
    (void)state;
    static const int threads[] = { 1, 2, 7, 64 };
    const int before = omp_get_max_threads();
    EACH_ISA(isa)
    for (uint32_t heads = 1; heads <= 9; heads += 4) {
        problem p = { .isa = isa, .nk = 1, .nv = heads, .dim = 128, .batch = 1, .len = { 75 }, .fresh = { true } };
        const uint64_t all = p.len[0] * (uint64_t)p.nv * p.dim * 2, seq = (uint64_t)p.nv * p.dim * p.dim * sizeof(float);
        data first = { 0 };
        for (uint32_t i = 0; i < 5; i++) {
            omp_set_num_threads(threads[i % 4]);
            data d = make(&p);
            if (i == 4) {
                memset(d.in, 0, d.slot_count * d.c.state_stride * sizeof(float));
                d.fresh[0] = 0;
            }
            bind(&p, &d);
            gdn_cpu_prefill(&d.c);
            if (i == 0) {
                first = d;
                continue;
            }
            assert_memory_equal(d.out, first.out, all);
            assert_memory_equal(d.out_state, first.out_state, seq);
            drop(&d);
        }
        drop(&first);
    }
    omp_set_num_threads(before);
}

/* A NaN in one sequence stays there, although every other unit reuses the scratch that held it. */
static void test_nan_stays(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = packed(isa, 5);
        p.ckpt_every = 0;
        data d = make(&p);
        for (uint64_t i = 0; i < d.c.v_stride; i++) put(p.f32, d.v, (uint64_t)d.cu[0] * d.c.v_stride + i, NAN);
        for (uint64_t i = 0; i < d.c.qk_stride; i++) put(p.f32, d.k, ((uint64_t)d.cu[1] - 1) * d.c.qk_stride + i, NAN);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        errors e = { 0 }, bad = { 0 };
        for (uint32_t b = 1; b < p.batch; b++)
            for (uint32_t h = 0; !p.padding[b] && h < p.nv; h++) compare_head(&p, &d, b, h, 0, &e);
        assert_true(relative(e.out, e.out_norm) < 1e-6 && relative(e.state, e.state_norm) < 1e-6);
        compare_head(&p, &d, 0, 0, 0, &bad);
        assert_true(isnan(bad.out)); /* control: it was there */
        drop(&d);
    }
}

/* Control: one changed input value, in the last row of the last sequence, is noticed by the comparison. */
static void test_control(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = packed(isa, 5);
        data d = make(&p);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        put(p.f32, d.v, (d.rows - 1) * d.c.v_stride + 7, 0.75);
        errors e = { 0 };
        compare_head(&p, &d, 5, 0, 0, &e);
        assert_true(relative(e.out, e.out_norm) > 1e-4 && relative(e.state, e.state_norm) > 1e-4);
        drop(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),   cmocka_unit_test(test_lengths), cmocka_unit_test(test_hard_data),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_packed),  cmocka_unit_test(test_alone_in_place),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_threads), cmocka_unit_test(test_nan_stays),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests_name("cpu prefill", tests, NULL, NULL);
}
