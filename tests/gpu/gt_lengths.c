/* gt_lengths.c - prefill of every length: a route's calls of each T in turn, with NaN rows right behind the last one and a poisoned
 * workspace, against the cpu target's tokens one by one; then the longest cut at each multiple of 64, and all lengths in one packed batch,
 * which have the bytes of those calls. */
#include "gt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 4, D = 128, ROW = NV * D, ONE = ROW * D, PAD = 8, FIRST = 3, LONGEST = 300 };
#define OUT_TOL   4e-3 /* as gt_prefill.c */
#define STATE_TOL 2.5e-3

/* What every route is held against: row t of the output, the state after T tokens. */
typedef struct expected {
    bool made;
    uint32_t top, step; /* lengths 0, step, .. top of the route at hand */
    uint16_t *out;
    float *state; /* [LONGEST + 1][ONE] */
} expected;
typedef struct length_bytes {
    uint64_t out, state;
} length_bytes;

/* Pointers to rows that are read, and the row's bytes. */
enum { INPUTS = 5 };
static const struct {
    uint32_t ptr, values, size;
} inputs[INPUTS] = { { GDN_PREFILL_P_QUERY, NK *D, 2 },
                     { GDN_PREFILL_P_KEY, NK *D, 2 },
                     { GDN_PREFILL_P_VALUE, NV *D, 2 },
                     { GDN_PREFILL_P_GATE, 2 * NV, 4 },
                     { GDN_PREFILL_P_BETA, 2 * NV, 4 } };
static uint64_t rows_of(uint32_t i, uint64_t rows) {
    return rows * (inputs[i].values + PAD) * inputs[i].size;
}

/* The same rows and state for every route. */
static void make_job(gt *t, gdn *g, gt_shapes *s, gt_job *job) {
    const gt_rule p = { .nk = NK, .nv = NV, .rows = LONGEST, .pad = PAD };
    t->r.s = num_hash("every length", 12);
    gt_prefill_job(t, g, &p, s, job);
}

/* Rows [from, from + n) of a job, in a call of their own. */
static bool call_rows(gt *t, const gt_live *l, uint32_t from, uint32_t n) {
    const uint32_t u32[] = { 1, n };
    uint64_t ptr[GT_MAX_PTR];
    memcpy(ptr, l->ptr, sizeof ptr);
    for (uint32_t i = 0; i < INPUTS; i++) ptr[inputs[i].ptr] += rows_of(i, from);
    ptr[GDN_PREFILL_P_OUTPUT] += from * ROW * 2ull;
    const gdn_launch_args args = { (uint32_t)sizeof args, l->job->n_ptr, 2, 0, NULL, ptr, u32 };
    return gt_check(t, gdn_launch(l->plan, &args) == GDN_OK, "launch of %u rows from %u", n, from);
}

/* One token a call on the cpu target. */
static bool expect(gt *t, expected *e) {
    gt_shapes s;
    gt_job job;
    gt_live l = { 0 };
    make_job(t, t->cpu, &s, &job);
    bool ok = gt_up(t, t->cpu, &job, &l);
    for (uint32_t T = 0; ok; T++) {
        ok = gt_check(t, gdn_copy_out(t->cpu, NULL, e->state + (uint64_t)T * ONE, l.ptr[GDN_PREFILL_P_STATE], ONE * 4) == GDN_OK, "copy");
        if (T == LONGEST) break;
        ok = ok && call_rows(t, &l, T, 1);
    }
    ok = ok && gt_down(t, &l, NULL);
    if (ok) memcpy(e->out, l.got[GDN_PREFILL_P_OUTPUT], LONGEST * ROW * 2ull);
    gt_drop(&l);
    return e->made = ok;
}

static double distance(const void *want, const void *got, uint32_t type, uint64_t n) {
    static double x[LONGEST * ROW], y[LONGEST * ROW];
    for (uint64_t i = 0; i < n; i++) x[i] = num_get(want, type, i), y[i] = num_get(got, type, i);
    const num_error e = num_compare(x, y, n);
    return e.finite && (e.rms > 0 || n == 0) ? e.rel_rms : INFINITY;
}

static bool poisoned(const uint8_t *p, const uint8_t *end) {
    while (p < end && *p == 0xFF) p++;
    return p == end;
}

/* One call's results; worst: of output and state. */
static bool right(gt *t, const expected *e, uint32_t T, const gt_live *l, double worst[2]) {
    const gt_buf *b = &l->job->buf[GDN_PREFILL_P_OUTPUT];
    const uint8_t *out = l->got[GDN_PREFILL_P_OUTPUT], *state = l->got[GDN_PREFILL_P_STATE];
    const double o = T ? distance(e->out, out, GDN_BF16, (uint64_t)T * ROW) : 0,
                 s = distance(e->state + (uint64_t)T * ONE, state, GDN_F32, ONE);
    worst[0] = fmax(worst[0], o);
    worst[1] = fmax(worst[1], s);
    return gt_check(t, o <= OUT_TOL, "T %u: output, relative RMS %.3g", T, o) &&
           gt_check(t, s <= STATE_TOL, "T %u: state, relative RMS %.3g", T, s) && gt_check(t, T || s == 0, "T 0: the state has changed") &&
           gt_check(t, poisoned(out + T * ROW * 2ull, out + b->bytes), "T %u: output rows behind the last were written", T) &&
           gt_check(t, !T || distance(e->state + (T - 1ull) * ONE, state, GDN_F32, ONE) > STATE_TOL,
                    "control: the state after %u tokens passes for that after %u", T, T - 1);
}

static length_bytes bytes_of(const gt_live *l, uint32_t T) {
    return (length_bytes) { num_hash(l->got[GDN_PREFILL_P_OUTPUT], T * ROW * 2ull), num_hash(l->got[GDN_PREFILL_P_STATE], ONE * 4) };
}

/* The longest, cut at each multiple of 64 tokens and carried on from the state. */
static bool cuts(gt *t, gt_live *l, uint32_t T, length_bytes want) {
    bool ok = true;
    for (uint32_t at = GDN_CHUNK; ok && at < T; at += GDN_CHUNK) {
        ok = gt_fill(t, l, NULL) && call_rows(t, l, 0, at) && call_rows(t, l, at, T - at) && gt_down(t, l, NULL);
        const length_bytes got = ok ? bytes_of(l, T) : want;
        ok = ok && gt_check(t, got.out == want.out && got.state == want.state, "T %u cut at %u: other bytes", T, at);
    }
    return ok;
}

/* Each T in a call of its own, all by one plan. */
static bool single_calls(gt *t, gdn *g, const char *entry, const expected *e, length_bytes *bytes) {
    gt_shapes s;
    gt_job job;
    gt_live l = { 0 };
    uint8_t *rows[INPUTS];
    const void *from[INPUTS];
    double worst[2] = { 0, 0 };
    make_job(t, g, &s, &job);
    for (uint32_t i = 0; i < INPUTS; i++) {
        gt_buf *b = &job.buf[inputs[i].ptr];
        from[i] = b->init;
        b->init = rows[i] = gt_keep(t, b->bytes);
    }
    bool ok = gt_up(t, g, &job, &l) && gt_check(t, !entry || !strcmp(gt_entry(&l), entry), "%s runs, not %s", gt_entry(&l), entry);
    for (uint32_t T = 0; ok && T <= e->top; T += e->step) {
        job.u32[GDN_PREFILL_U_SEQ_LEN] = T;
        for (uint32_t i = 0; i < INPUTS; i++) {
            memset(rows[i], 0xFF, job.buf[inputs[i].ptr].bytes);
            memcpy(rows[i], from[i], rows_of(i, T));
        }
        ok = gt_fill(t, &l, NULL) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "T %u: launch", T) && gt_down(t, &l, NULL) &&
             right(t, e, T, &l, worst);
        if (ok) bytes[T] = bytes_of(&l, T);
    }
    ok = ok && cuts(t, &l, e->top, bytes[e->top]);
    gt_drop(&l);
    if (ok) gt_figure(t, "output_rel_rms", worst[0]);
    if (ok) gt_figure(t, "state_rel_rms", worst[1]);
    return ok;
}

/* All lengths as one batch, scattered, between NaN rows: the bytes of the single calls. */
static void packed(gt *t, gdn *g, const expected *e, const length_bytes *bytes) {
    const uint32_t n = e->top / e->step + 1;
    uint32_t *len = gt_keep(t, n * sizeof *len);
    gt_shapes s, one;
    gt_job job, single;
    gt_live l = { 0 };
    for (uint32_t i = 0; i < n; i++) len[i] = (i % 2 ? n - 1 - i / 2 : i / 2) * e->step; /* short and long in turn */
    const gt_rule p = { .nk = NK, .nv = NV, .batch = n, .len = len, .first = FIRST, .pad = PAD, .max_workspace = 256ull << 20 };
    gt_prefill_job(t, g, &p, &s, &job);
    make_job(t, g, &one, &single);
    float *state = gt_keep(t, (uint64_t)n * ONE * 4);
    for (uint32_t i = 0; i < INPUTS; i++) {
        gt_buf *b = &job.buf[inputs[i].ptr];
        uint8_t *rows = gt_keep(t, b->bytes), *at = rows + rows_of(i, FIRST);
        memset(rows, 0xFF, b->bytes);
        for (uint32_t k = 0; k < n; at += rows_of(i, len[k++])) memcpy(at, single.buf[inputs[i].ptr].init, rows_of(i, len[k]));
        b->init = rows;
    }
    for (uint32_t k = 0; k < n; k++) memcpy(state + (uint64_t)k * ONE, single.buf[GDN_PREFILL_P_STATE].init, ONE * 4);
    job.buf[GDN_PREFILL_P_STATE].init = state;
    if (gt_up(t, g, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch of the packed batch") && gt_down(t, &l, NULL)) {
        const uint8_t *out = l.got[GDN_PREFILL_P_OUTPUT] + FIRST * ROW * 2, *h = l.got[GDN_PREFILL_P_STATE];
        (void)gt_check(t, poisoned(l.got[GDN_PREFILL_P_OUTPUT], out), "rows in front of the batch were written");
        for (uint32_t k = 0; k < n; k++, h += ONE * 4) {
            const uint64_t rows = len[k] * ROW * 2ull;
            (void)gt_check(t, num_hash(out, rows) == bytes[len[k]].out, "T %u: other output bytes in a batch", len[k]);
            (void)gt_check(t, num_hash(h, ONE * 4) == bytes[len[k]].state, "T %u: another state in a batch", len[k]);
            out += rows;
        }
        (void)gt_check(t, poisoned(out, l.got[GDN_PREFILL_P_OUTPUT] + job.buf[GDN_PREFILL_P_OUTPUT].bytes),
                       "rows behind the batch were written");
    }
    gt_drop(&l);
}

typedef struct length_route {
    const char *name, *entry, *fast, *wn, *tc, *pipe, *vtile; /* entry: of explain; NULL: not looked at */
    uint32_t top;
} length_route;

static void one_route(gt *t, const length_route *r, expected *e) {
    static length_bytes bytes[LONGEST + 1];
    if (!gt_begin(t, "prefill_every_T_to_%u_%s", r->top, r->name)) return;
    gdn *g = gt_open(t, t->target, "gdn_prefill_fast", r->fast, "gdn_prefill_fast_wn", r->wn, "gdn_prefill_tc", r->tc, "gdn_pipe", r->pipe,
                     r->vtile ? "gdn_vtile" : NULL, r->vtile, NULL);
    const char *entry = strcmp(t->target, "cpu") == 0 ? NULL : r->entry;
    e->top = r->top;
    if (g && (e->made || expect(t, e)) && single_calls(t, g, entry, e, bytes)) packed(t, g, e, bytes);
    gdn_close(g);
    gt_end(t);
}

void gt_test_lengths(gt *t) {
    static const length_route routes[] = {
        { "fast", "gated_delta_rule_fast_fwd", "true", "false", "true", "1", NULL, LONGEST },
        { "fast_wn", "gated_delta_rule_fast_wn_fwd", "true", "true", "true", "1", NULL, 300 },
        { "tensor_cores", "gated_delta_rule_chunk_delta_h_tcfuse_x2", "false", "false", "true", "1", NULL, 200 },
        { "pipe", "gated_delta_rule_chunk_delta_h_pipe", "false", "false", "false", "1", NULL, 200 },
        { "vfused", "gated_delta_rule_chunk_delta_h_vfused", "false", "false", "false", "0", NULL, 200 },
        { "vtile", "gated_delta_rule_chunk_delta_h_vtile", "false", "false", "false", "0", "1", 200 },
    };
    if (getenv("GPU_TEST_NO_LENGTHS")) return; /* under a sanitizer: the other lengths have to do */
    const bool hopper = strcmp(t->target, "hopper") == 0, cpu = strcmp(t->target, "cpu") == 0; /* whose routes are one */
    expected e = { false, 0, t->brief ? 50 : 1, calloc(LONGEST * ROW, 2), calloc((LONGEST + 1ull) * ONE, 4) };
    if (!e.out || !e.state) abort();
    for (uint32_t i = 0; i < GT_N(routes); i++) {
        if ((!hopper && i < 3) || (cpu && i > 3)) continue; /* no kernels of these there */
        if (i < 2 && getenv("GPU_TEST_NO_FAST")) continue;
        one_route(t, &routes[i], &e);
    }
    free(e.state);
    free(e.out);
}
