/* gt_ba.c - the b/a projection fused with the gates: the twin gives the parent's bytes, the tensor-core route is no worse than the
 * parent against f64, one row is the gemv's. Guard bands round every output; one changed ulp must be noticed. */
#include "gt.h"
#include "oracle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char twin_entry[] = "dense_gemm_ba_gates_prefill_hopper", tc_entry[] = "dense_gemm_ba_gates_prefill_tc";

/* The last bit of one f32 in the middle of the twin's output. */
static void one_ulp(gt *t, const gt_live *parent, gt_live *twin) {
    const uint64_t bytes = twin->job->buf[GDN_BA_GATES_P_GATE_OUT].bytes, at = bytes / 8 * 4;
    uint8_t *got = twin->got[GDN_BA_GATES_P_GATE_OUT];
    got[at] ^= 1;
    (void)gt_check(t, memcmp(parent->got[GDN_BA_GATES_P_GATE_OUT], got, bytes) != 0, "control: a changed ulp is not noticed");
    got[at] ^= 1;
}

/* The twin's kernel itself, so that shapes below its floor are run as well. */
static bool launch_direct(const gt_direct *d, const gt_live *l) {
    const gdn_ba_shape *s = (const gdn_ba_shape *)(const void *)l->job->shape;
    uint64_t p[5];
    uint32_t u[7] = { l->job->u32[0], s->N, s->K, s->K_stride, s->gate_stride, s->nv, s->vheads_per_group };
    void *params[12];
    memcpy(p, l->ptr, sizeof p);
    for (int i = 0; i < 5; i++) params[i] = &p[i];
    for (int i = 0; i < 7; i++) params[5 + i] = &u[i];
    return gpu_ok(d->clock, d->clock->launch(d->function, u[0], 1, 1, 256, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel") &&
           gpu_sync(d->clock, NULL);
}

static void bytes_of(gt *t, const gt_direct *d, uint32_t M, uint32_t nv, uint32_t vpg, uint32_t K, uint32_t pad, uint32_t out_pad) {
    gt_shapes s;
    gt_job job;
    gt_live parent, twin = { 0 };
    gt_ba_job(t, M, nv, vpg, K, pad, out_pad, &s, &job);
    if (gt_up(t, t->dev, &job, &parent) && gt_check(t, gt_launch(&parent, NULL) == GDN_OK, "the parent did not run") &&
        gt_down(t, &parent, NULL)) {
        (void)gt_check(t, !strcmp(gt_entry(&parent), "dense_gemm_ba_gates_prefill"), "%s ran as the parent", gt_entry(&parent));
        twin = parent;
        memset(twin.got, 0, sizeof twin.got);
        if (gt_fill(t, &twin, NULL) && gt_check(t, launch_direct(d, &twin), "%s", t->clock->why) && gt_down(t, &twin, NULL) &&
            gt_same_bytes(t, parent.got[GDN_BA_GATES_P_GATE_OUT], twin.got[GDN_BA_GATES_P_GATE_OUT], job.buf[GDN_BA_GATES_P_GATE_OUT].bytes,
                          "twin against parent"))
            one_ulp(t, &parent, &twin);
    }
    gt_drop(&parent);
}

/* Through the library: the lever chooses the twin, explain says so, and bytes are the parent's. */
static void by_lever(gt *t, gdn *with, uint32_t M) {
    gt_shapes s;
    gt_job job;
    gt_live parent, twin;
    gt_ba_job(t, M, 48, 3, 5120, 0, 0, &s, &job);
    const bool up = gt_up(t, t->dev, &job, &parent) && gt_up(t, with, &job, &twin);
    if (up && gt_check(t, !strcmp(gt_entry(&twin), twin_entry), "%s ran", gt_entry(&twin)) &&
        gt_check(t, gt_launch(&parent, NULL) == GDN_OK && gt_launch(&twin, NULL) == GDN_OK, "launch") && gt_down(t, &parent, NULL) &&
        gt_down(t, &twin, NULL) &&
        gt_same_bytes(t, parent.got[GDN_BA_GATES_P_GATE_OUT], twin.got[GDN_BA_GATES_P_GATE_OUT], job.buf[GDN_BA_GATES_P_GATE_OUT].bytes,
                      "twin against parent"))
        one_ulp(t, &parent, &twin);
    gt_drop(&parent);
    if (up) gt_drop(&twin);
}

static void twin_tests(gt *t) {
    static const uint32_t M[] = { 17, 25, 1168, 4576 };
    static const uint32_t ragged[][6] = { { 1, 1, 1, 8, 0, 0 },        { 3, 3, 1, 264, 8, 1 },    { 5, 18, 3, 520, 16, 7 },
                                          { 300, 33, 1, 1032, 8, 2 },  { 129, 100, 4, 64, 0, 5 }, { 31, 17, 17, 5128, 24, 3 },
                                          { 263, 48, 3, 2048, 0, 16 }, { 2, 2, 2, 512, 0, 0 } };
    gt_direct d = { 0 };
    for (uint32_t i = 0; i < GT_N(M); i++) {
        if ((t->brief && M[i] > 25) || !gt_begin(t, "ba_twin_bytes_M%u", M[i])) continue;
        if (gt_direct_open(t, "ssm_ba_gates_hopper.cu", twin_entry, &d)) bytes_of(t, &d, M[i], 48, 3, 5120, 0, 0);
        gt_direct_close(&d);
        gt_end(t);
    }
    for (uint32_t i = 0; i < GT_N(ragged); i++) {
        const uint32_t *r = ragged[i];
        if (!gt_begin(t, "ba_twin_bytes_ragged_M%u_N%u_K%u", r[0], 2 * r[1], r[3])) continue;
        if (gt_direct_open(t, "ssm_ba_gates_hopper.cu", twin_entry, &d)) bytes_of(t, &d, r[0], r[1], r[2], r[3], r[4], r[5]);
        gt_direct_close(&d);
        gt_end(t);
    }
    if (t->brief) return;
    gdn *with = NULL;
    for (uint32_t i = 2; i < GT_N(M); i++) {
        if (!gt_begin(t, "ba_twin_by_lever_M%u", M[i])) continue;
        if (gt_needs_hopper(t) && (with || (with = gt_open(t, t->target, "ssm_ba_gates_hopper", "true", "ssm_ba_gates_tc", "false", NULL))))
            by_lever(t, with, M[i]);
        gt_end(t);
    }
    gdn_close(with);
}

/* Widths of the tensor-core route against the cpu target; the same bounds as the parent's. */
static void tc_shapes(gt *t) {
    static const uint32_t shapes[][6] = { { 165, 16, 2, 512, 0, 0 },  { 300, 16, 1, 1024, 64, 3 }, { 300, 24, 3, 5120, 0, 0 },
                                          { 385, 48, 3, 2048, 8, 1 }, { 298, 64, 4, 1024, 0, 5 },  { 1168, 48, 3, 5120, 0, 0 } };
    gdn *with = NULL, *dev = t->dev;
    for (uint32_t i = 0; i < GT_N(shapes); i++) {
        const uint32_t *r = shapes[i];
        gt_shapes s;
        gt_job job;
        gt_live probe;
        if ((t->brief && r[3] > 1024) || !gt_begin(t, "ba_tc_M%u_N%u_K%u", r[0], 2 * r[1], r[3])) continue;
        if (gt_needs_hopper(t) &&
            (with || (with = gt_open(t, t->target, "ssm_ba_gates_hopper", "false", "ssm_ba_gates_tc", "true", NULL)))) {
            gt_ba_job(t, r[0], r[1], r[2], r[3], r[4], r[5], &s, &job);
            t->dev = with;
            if (gt_up(t, with, &job, &probe) && gt_check(t, !strcmp(gt_entry(&probe), tc_entry), "%s ran", gt_entry(&probe)))
                gt_pair(t, &job);
            gt_drop(&probe);
            t->dev = dev;
        }
        gt_end(t);
    }
    gdn_close(with);
}

/* Every row of a batch, alone through the gemv. */
static void gemv_rows(gt *t) {
    gt_shapes s, one;
    gt_job job, row;
    gt_live all, l;
    if (!gt_begin(t, "ba_gemv_is_the_parent's_row")) return;
    gt_ba_job(t, 5, 48, 3, 5120, 8, 3, &s, &job);
    if (gt_up(t, t->dev, &job, &all) && gt_check(t, gt_launch(&all, NULL) == GDN_OK, "launch") && gt_down(t, &all, NULL))
        for (uint32_t m = 0; m < 5 && !t->bad; m++) {
            gt_gemv_job(t, &job, m, &one, &row);
            if (gt_up(t, t->dev, &row, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "gemv") && gt_down(t, &l, NULL)) {
                const uint8_t *want = all.got[GDN_BA_GATES_P_GATE_OUT] + 4ull * m * s.ba.gate_stride;
                (void)gt_same_bytes(t, want, l.got[GDN_BA_GEMV_P_GATE], 4 * 48, "gate");
                (void)gt_same_bytes(t, want + 4 * 48, l.got[GDN_BA_GEMV_P_BETA], 4 * 48, "beta");
                l.got[GDN_BA_GEMV_P_BETA][8] ^= 1;
                (void)gt_check(t, memcmp(want + 4 * 48, l.got[GDN_BA_GEMV_P_BETA], 4 * 48) != 0, "control: a changed ulp is not noticed");
            }
            gt_drop(&l);
        }
    gt_drop(&all);
    gt_end(t);
}

void gt_test_ba(gt *t) {
    static const uint32_t shapes[][6] = {
        { 5, 6, 3, 264, 16, 3 }, { 17, 48, 3, 5120, 0, 0 }, { 70, 6, 1, 1032, 0, 0 }, { 1168, 48, 3, 2048, 0, 0 }
    };
    for (uint32_t i = 0; i < GT_N(shapes); i++) {
        const uint32_t *r = shapes[i];
        gt_shapes s;
        gt_job job;
        if ((t->brief && r[0] > 100) || !gt_begin(t, "ba_parent_M%u_N%u_K%u", r[0], 2 * r[1], r[3])) continue;
        gt_ba_job(t, r[0], r[1], r[2], r[3], r[4], r[5], &s, &job);
        gt_pair(t, &job);
        gt_end(t);
    }
    twin_tests(t);
    tc_shapes(t);
    gemv_rows(t);
}

/* ---- against f64 ---- */
typedef struct both_errors {
    num_error gate, beta;
} both_errors;

/* want: gate and beta [M][nv] each. */
static void reference(const gt_job *job, double *gate, double *beta) {
    const gdn_ba_shape *s = (const gdn_ba_shape *)(const void *)job->shape;
    const uint32_t M = job->u32[0], K = s->K, nv = s->nv, vpg = s->vheads_per_group;
    const uint16_t *A = job->buf[0].init, *B = job->buf[1].init;
    const float *rate = job->buf[2].init, *dt = job->buf[3].init;
    double *b = malloc((size_t)s->N * K * sizeof *b);
    if (!b) abort();
    for (uint64_t i = 0; i < (uint64_t)s->N * K; i++) b[i] = num_from_bf16(B[i]);
#pragma omp parallel for schedule(static)
    for (uint32_t m = 0; m < M; m++) {
        double *row = malloc(K * sizeof *row);
        if (!row) abort();
        for (uint32_t k = 0; k < K; k++) row[k] = num_from_bf16(A[(uint64_t)m * s->K_stride + k]);
        for (uint32_t n = 0; n < s->N; n++) {
            const double *w = b + (uint64_t)n * K;
            double r = 0;
            for (uint32_t k = 0; k < K; k++) r += row[k] * w[k];
            const uint32_t in = n % (2 * vpg), head = n / (2 * vpg) * vpg + in % vpg;
            if (in < vpg)
                beta[(uint64_t)m * nv + head] = oracle_beta(r);
            else
                gate[(uint64_t)m * nv + head] = exp(oracle_log_decay(r, (double)rate[head], (double)dt[head]));
        }
        free(row);
    }
    free(b);
}

static both_errors errors_of(const gt_live *l, const double *gate, const double *beta, double *got) {
    const gdn_ba_shape *s = (const gdn_ba_shape *)(const void *)l->job->shape;
    const uint64_t n = (uint64_t)l->job->u32[0] * s->nv;
    both_errors e;
    for (int part = 0; part < 2; part++) {
        for (uint64_t i = 0; i < n; i++)
            got[i] = num_get(l->got[GDN_BA_GATES_P_GATE_OUT], GDN_F32, i / s->nv * s->gate_stride + (part ? s->nv : 0) + i % s->nv);
        const num_error one = num_compare(part ? beta : gate, got, n);
        if (part)
            e.beta = one;
        else
            e.gate = one;
    }
    return e;
}

static void compare(gt *t, const char *what, double parent, double tc) {
    char name[64];
    (void)snprintf(name, sizeof name, "parent_%s", what);
    gt_figure(t, name, parent);
    (void)snprintf(name, sizeof name, "tc_%s", what);
    gt_figure(t, name, tc);
    (void)gt_check(t, tc <= parent, "%s: %.4g through the tensor cores, %.4g by the parent", what, tc, parent);
}

void gt_test_ba_error(gt *t) {
    enum { M = 4576, NV = 48, K = 5120 };
    for (uint32_t seed = 1; seed <= 3; seed++) {
        gt_shapes s;
        gt_job job;
        gt_live parent, tc;
        if (!gt_begin(t, "ba_tc_error_seed_%u", seed)) continue;
        gdn *with = gt_needs_hopper(t) ? gt_open(t, t->target, "ssm_ba_gates_hopper", "false", "ssm_ba_gates_tc", "true", NULL) : NULL;
        if (with) {
            gt_ba_job(t, M, NV, 3, K, 0, 0, &s, &job);
            const bool up = gt_up(t, t->dev, &job, &parent) && gt_up(t, with, &job, &tc);
            if (up && gt_check(t, !strcmp(gt_entry(&tc), tc_entry), "%s ran", gt_entry(&tc)) &&
                gt_check(t, gt_launch(&parent, NULL) == GDN_OK && gt_launch(&tc, NULL) == GDN_OK, "launch") && gt_down(t, &parent, NULL) &&
                gt_down(t, &tc, NULL)) {
                const uint64_t n = (uint64_t)M * NV;
                double *gate = gt_keep(t, n * sizeof *gate), *beta = gt_keep(t, n * sizeof *beta), *got = gt_keep(t, n * sizeof *got);
                reference(&job, gate, beta);
                const both_errors p = errors_of(&parent, gate, beta, got), c = errors_of(&tc, gate, beta, got);
                (void)gt_check(t, p.gate.finite && p.beta.finite && c.gate.finite && c.beta.finite, "a result is not finite");
                (void)gt_check(t, p.gate.rms > 0.1 && p.beta.rms > 0.1, "control: the reference is near zero");
                compare(t, "gate_rms", p.gate.rel_rms, c.gate.rel_rms);
                compare(t, "gate_worst", p.gate.rel_worst, c.gate.rel_worst);
                compare(t, "beta_rms", p.beta.rel_rms, c.beta.rel_rms);
                compare(t, "beta_worst", p.beta.rel_worst, c.beta.rel_worst);
                gate[n / 2] += 0.5; /* control: one wrong element shows in the worst one */
                (void)gt_check(t, errors_of(&tc, gate, beta, got).gate.rel_worst > p.gate.rel_worst,
                               "control: a wrong element is not noticed");
            }
            gt_drop(&parent);
            if (up) gt_drop(&tc);
        }
        gdn_close(with);
        gt_end(t);
    }
}
