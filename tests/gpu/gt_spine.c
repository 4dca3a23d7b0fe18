/* gt_spine.c - the state spine alone, scalar and on tensor cores: S, uc and h against an f64 spine that is fed the W, U and gc which the
 * launch itself left in its workspace. The gates are those of the contract: h, S and uc beside the scalar spine's, no drift. */
#include "gt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 6, D = 128, CHUNK = GDN_CHUNK, HEAD = D * D };
#define H_TOL     1e-3 /* relative RMS of the final state; 3e-6 to 4e-6 with two limbs */
#define TO_SCALAR 1.25 /* S and uc, which are stored in bf16, against the scalar spine's  */
#define DRIFT     3.0  /* S of the last chunk against the median chunk's                  */

typedef struct spine_errors {
    double h, S, uc, drift;
    bool two_limbs;
} spine_errors;

/* Sums of squares of one chunk and head, and of the whole. */
typedef struct sums {
    double err, ref;
} sums;
static void add(sums *s, double ref, double got) {
    s->ref += ref * ref;
    s->err += (got - ref) * (got - ref);
}
static double relative(sums s) {
    return s.ref > 0 && isfinite(s.err) ? sqrt(s.err / s.ref) : INFINITY;
}

/* The parts of a workspace of one sequence: behind two tables of one entry each, 256 bytes apiece. */
typedef struct scratch {
    const uint16_t *W, *U, *uc, *S;
    const float *gc;
} scratch;
static scratch parts_of(const uint8_t *workspace, uint32_t T) {
    const uint64_t rows = (T / CHUNK + 1ull) * NV, tile = rows * CHUNK * D * 2;
    const uint8_t *const at = workspace + 512;
    return (scratch) { (const uint16_t *)(const void *)at, (const uint16_t *)(const void *)(at + tile),
                       (const uint16_t *)(const void *)(at + 2 * tile), (const uint16_t *)(const void *)(at + 3 * tile),
                       (const float *)(const void *)(at + 3 * tile + rows * HEAD * 2) };
}

/* One chunk of one head: uc of its n rows, then S goes on. */
static void one_chunk(const scratch *x, const uint16_t *key, uint64_t stride, uint64_t row, uint32_t n, double *S, sums *of_S,
                      sums *of_uc) {
    static const uint32_t V = D;
    const uint16_t *const W = x->W + row * CHUNK * D, *const U = x->U + row * CHUNK * D, *const got_uc = x->uc + row * CHUNK * D,
                          *const got_S = x->S + row * HEAD;
    const float *const gc = x->gc + row * CHUNK;
    double *const uc = malloc((uint64_t)CHUNK * D * sizeof *uc);
    if (!uc) abort();
    for (uint32_t i = 0; i < HEAD; i++) add(of_S, S[i], num_from_bf16(got_S[i]));
    for (uint32_t i = 0; i < n; i++) {
        double *const u = uc + (uint64_t)i * V;
        for (uint32_t v = 0; v < V; v++) u[v] = num_from_bf16(U[i * D + v]);
        for (uint32_t k = 0; k < D; k++) {
            const double w = num_from_bf16(W[i * D + k]);
            for (uint32_t v = 0; v < V; v++) u[v] -= w * S[k * D + v];
        }
        for (uint32_t v = 0; v < V; v++) add(of_uc, u[v], num_from_bf16(got_uc[i * D + v]));
    }
    const double last = (double)gc[n - 1], all = exp(last);
    for (uint32_t i = 0; i < HEAD; i++) S[i] *= all;
    for (uint32_t i = 0; i < n; i++) {
        const double decay = exp(last - (double)gc[i]);
        for (uint32_t k = 0; k < D; k++) {
            const double a = decay * num_from_bf16(key[i * stride + k]);
            for (uint32_t v = 0; v < V; v++) S[k * D + v] += a * uc[(uint64_t)i * V + v];
        }
    }
    free(uc);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* state: of the f64 spine, [NV][HEAD]. */
static spine_errors errors_of(gt *t, const gt_live *l, const gdn_rule_shape *s, uint32_t T, double *state) {
    const uint32_t chunks = (T + CHUNK - 1) / CHUNK;
    const scratch x = parts_of(l->got[GDN_PREFILL_P_WORKSPACE], T);
    const uint16_t *const key = l->job->buf[GDN_PREFILL_P_KEY].init;
    const float *const h0 = l->job->buf[GDN_PREFILL_P_STATE].init, *const h = (const float *)(const void *)l->got[GDN_PREFILL_P_STATE];
    sums *const of_S = gt_keep(t, (uint64_t)chunks * NV * sizeof(sums)), *const of_uc = gt_keep(t, NV * sizeof(sums));
    double *const each = gt_keep(t, chunks * sizeof *each);
    sums all_S = { 0, 0 }, all_uc = { 0, 0 }, of_h = { 0, 0 };
#pragma omp parallel for
    for (uint32_t v = 0; v < NV; v++) {
        double *const S = state + (uint64_t)v * HEAD;
        for (uint32_t i = 0; i < HEAD; i++) S[i] = (double)h0[(uint64_t)v * HEAD + i];
        for (uint32_t c = 0; c < chunks; c++) {
            const uint32_t n = T - c * CHUNK < CHUNK ? T - c * CHUNK : CHUNK;
            const uint16_t *const k = key + (uint64_t)c * CHUNK * s->qk_stride + v / (NV / NK) * D;
            one_chunk(&x, k, s->qk_stride, (uint64_t)c * NV + v, n, S, &of_S[c * NV + v], &of_uc[v]);
        }
    }
    for (uint32_t c = 0; c < chunks; c++) {
        sums one = { 0, 0 };
        for (uint32_t v = 0; v < NV; v++) one.err += of_S[c * NV + v].err, one.ref += of_S[c * NV + v].ref;
        all_S.err += one.err, all_S.ref += one.ref;
        each[c] = relative(one);
    }
    for (uint32_t v = 0; v < NV; v++) all_uc.err += of_uc[v].err, all_uc.ref += of_uc[v].ref;
    for (uint64_t i = 0; i < (uint64_t)NV * HEAD; i++) add(&of_h, state[i], (double)h[i]);
    const double last = each[chunks - 1];
    qsort(each, chunks, sizeof *each, ascending);
    return (spine_errors) { relative(of_h), relative(all_S), relative(all_uc), last / each[chunks / 2], false };
}

static bool run(gt *t, bool tc, uint32_t T, spine_errors *e) {
    const gt_rule p = { .nk = NK, .nv = NV, .rows = T };
    gt_shapes s;
    gt_job job;
    gt_live l = { 0 };
    gdn *g = gt_open(t, t->target, "gdn_prefill_fast", "false", "gdn_prefill_tc", tc ? "true" : "false", NULL);
    if (!g) return false;
    t->r.s = num_hash("spine", 5); /* the same rows for both */
    gt_prefill_job(t, g, &p, &s, &job);
    job.buf[GDN_PREFILL_P_WORKSPACE].role = GT_INOUT;
    double *const state = gt_keep(t, (uint64_t)NV * HEAD * sizeof *state);
    const bool ok = gt_up(t, g, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL);
    if (ok) {
        *e = errors_of(t, &l, &s.rule, T, state);
        e->two_limbs = strstr(gt_entry(&l), "tcfuse_x2") != NULL;
        const float *const h = (const float *)(const void *)l.got[GDN_PREFILL_P_STATE];
        sums other = { 0, 0 }; /* control: the state of one head is not that of another */
        for (uint32_t i = 0; i < HEAD; i++) add(&other, state[HEAD + i], (double)h[i]);
        (void)gt_check(t, relative(other) > H_TOL, "control: another head's state is within the bound");
    }
    gt_drop(&l);
    gdn_close(g);
    return ok;
}

static void spine(gt *t, uint32_t T) {
    spine_errors x2 = { 0 }, scalar = { 0 };
    if (!gt_begin(t, "prefill_spine_error_against_f64_T%u", T)) return;
    if (run(t, true, T, &x2) && run(t, false, T, &scalar)) {
        gt_figure(t, "h_rel_rms", x2.h);
        gt_figure(t, "h_rel_rms_scalar", scalar.h);
        gt_figure(t, "S_rel_rms", x2.S);
        gt_figure(t, "S_rel_rms_scalar", scalar.S);
        gt_figure(t, "uc_rel_rms", x2.uc);
        gt_figure(t, "uc_rel_rms_scalar", scalar.uc);
        gt_figure(t, "last_chunk_to_median", x2.drift);
        (void)gt_check(t, x2.two_limbs && !scalar.two_limbs, "the spines that ran are not the two that were asked for");
        (void)gt_check(t, x2.h <= H_TOL && scalar.h <= H_TOL, "h: relative RMS %.3g, scalar %.3g", x2.h, scalar.h);
        (void)gt_check(t, x2.S <= TO_SCALAR * scalar.S, "S: relative RMS %.3g, scalar %.3g", x2.S, scalar.S);
        (void)gt_check(t, x2.uc <= TO_SCALAR * scalar.uc, "uc: relative RMS %.3g, scalar %.3g", x2.uc, scalar.uc);
        (void)gt_check(t, x2.drift <= DRIFT && scalar.drift <= DRIFT, "S of the last chunk: %.3g times the median's", x2.drift);
    }
    gt_end(t);
}

void gt_test_spine(gt *t) {
    static const uint32_t T[] = { 256, 1193, 4593 };
    if (strcmp(t->target, "hopper") != 0 || getenv("GPU_TEST_NO_LENGTHS")) return; /* the scalar ones alone have nothing to stand beside */
    for (uint32_t i = 0; i < (t->brief ? 1 : GT_N(T)); i++) spine(t, T[i]);
}
