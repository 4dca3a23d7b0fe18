/* gt_gates.c - gates from separate projections, and rows B75 to B86 on the device. */
#include "gt.h"
#include <math.h>
#include <string.h>

static void pair(gt *t, const char *name, uint32_t rows, uint32_t nv, uint32_t vpg, uint32_t pad, uint32_t form) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "%s", name)) return;
    gt_gates_job(t, rows, nv, vpg, pad, form, &s, &job);
    gt_pair(t, &job);
    gt_end(t);
}

enum { MANY = 8 };
/* n heads of one row with given inputs; *l holds [gate n | beta n]. */
static bool of_values(gt *t, uint32_t n, const double *a, const double *b, const double *A_log, const double *dt, gt_shapes *s, gt_job *job,
                      float out[2 * MANY]) {
    gt_live l;
    gt_gates_job(t, 1, n, 0, 0, GDN_GATE_LINEAR, s, job);
    uint16_t *pa = gt_keep(t, 2ull * n), *pb = gt_keep(t, 2ull * n);
    float *pl = gt_keep(t, 4ull * n), *pd = gt_keep(t, 4ull * n);
    for (uint32_t i = 0; i < n; i++) pa[i] = num_to_bf16(a[i]), pb[i] = num_to_bf16(b[i]), pl[i] = (float)A_log[i], pd[i] = (float)dt[i];
    job->buf[GDN_GATES_P_A].init = pa;
    job->buf[GDN_GATES_P_B].init = pb;
    job->buf[GDN_GATES_P_A_LOG].init = pl;
    job->buf[GDN_GATES_P_DT_BIAS].init = pd;
    const bool ok = gt_up(t, t->dev, job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL);
    if (ok) memcpy(out, l.got[GDN_GATES_P_OUT], 8ull * n);
    gt_drop(&l);
    return ok;
}

static double decay(double a, double A_log, double dt) {
    return exp(-exp(fmin(A_log, 20)) * log1p(exp(fmin(a + dt, 20))));
}

/* B77, B78: large a, across the clamp; B80: beta is not rounded; B81 (first half): A_log as f32. */
static void known_values(gt *t) {
    static const double a[MANY] = { 100, 19.875, 20, 20.125, 88, 89, 200, 1e4 }, zero[MANY] = { 0 };
    static const double rate[MANY] = { -8, -8, -8, -8, -8, -8, -8, -8 }, half[MANY] = { 0.5, -0.5, 3, -3, 20, -20, 0, 1 };
    gt_shapes s;
    gt_job job;
    float out[2 * MANY];
    if (gt_begin(t, "B77_B78_gates_large_a")) {
        if (of_values(t, MANY, a, half, rate, zero, &s, &job, out))
            for (uint32_t i = 0; i < MANY; i++) {
                const double want = decay(num_from_bf16(num_to_bf16(a[i])), -8, 0);
                (void)gt_check(t, fabs((double)out[i] - want) <= 3e-6 * want && want > 0.99, "a = %g: %.9g, expected %.9g", a[i],
                               (double)out[i], want);
            }
        gt_end(t);
    }
    if (gt_begin(t, "B80_beta_is_not_rounded")) {
        if (of_values(t, MANY, a, half, rate, zero, &s, &job, out))
            (void)gt_check(t, fabs((double)out[MANY] - 0.62245933) < 2e-7, "beta of 0.5 is %.9g", (double)out[MANY]);
        gt_end(t);
    }
    if (gt_begin(t, "B86_gates_inf_times_zero")) {
        static const double low[MANY] = { -200, -200, -88, -1e4, 0, 0, 0, 0 }, big[MANY] = { 100, 20, 100, 1e4, 0, 0, 0, 0 };
        if (of_values(t, 4, low, half, big, zero, &s, &job, out))
            for (uint32_t i = 0; i < 4; i++) {
                const double want = decay(num_from_bf16(num_to_bf16(low[i])), big[i], 0);
                (void)gt_check(t, fabs((double)out[i] - want) <= 3e-6, "a = %g, A_log = %g: %.9g, expected %.9g", low[i], big[i],
                               (double)out[i], want);
            }
        gt_end(t);
    }
}

/* B86 in the fused projection: r = -200 and +200 under A_log = 100. */
static void fused_inf_times_zero(gt *t) {
    enum { K = 64, NV = 2 };
    gt_shapes s;
    gt_job job;
    gt_live l;
    if (!gt_begin(t, "B86_ba_gates_inf_times_zero")) return;
    gt_ba_job(t, 2, NV, NV, K, 0, 0, &s, &job);
    uint16_t *A = gt_keep(t, 2ull * 2 * K), *B = gt_keep(t, 2ull * 2 * NV * K);
    float *rate = gt_keep(t, 4 * NV), *dt = gt_keep(t, 4 * NV);
    for (uint32_t k = 0; k < K; k++) A[k] = num_to_bf16(-1), A[K + k] = num_to_bf16(1);
    for (uint32_t i = 0; i < 2 * NV * K; i++) B[i] = num_to_bf16(200.0 / K);
    for (uint32_t h = 0; h < NV; h++) rate[h] = 100;
    job.buf[GDN_BA_GATES_P_A].init = A;
    job.buf[GDN_BA_GATES_P_B].init = B;
    job.buf[GDN_BA_GATES_P_A_LOG].init = rate;
    job.buf[GDN_BA_GATES_P_DT_BIAS].init = dt;
    if (gt_up(t, t->dev, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL)) {
        const float *o = (const float *)(const void *)l.got[GDN_BA_GATES_P_GATE_OUT];
        (void)gt_check(t, o[0] == 1 && o[1] == 1, "decay of -200 is %.9g", (double)o[0]);
        (void)gt_check(t, o[4] >= 0 && o[4] < 1e-30f, "decay of +200 is %.9g", (double)o[4]);
        (void)gt_check(t, o[2] >= 0 && o[2] < 1e-30f && o[6] == 1, "betas of -200 and +200 are %.9g and %.9g", (double)o[2], (double)o[6]);
    }
    gt_drop(&l);
    gt_end(t);
}

/* B81: parameters of another type than f32 are refused, not reinterpreted. */
static void bf16_parameters(gt *t) {
    gt_shapes s;
    gt_job job;
    gdn_hplan *plan = NULL;
    if (!gt_begin(t, "B81_gates_bf16_parameters_are_refused")) return;
    gt_gates_job(t, 4, 6, 0, 0, GDN_GATE_LINEAR, &s, &job);
    if (t->dev) {
        const gdn_status good = gdn_plan_make(t->dev, job.shape, NULL, &plan, NULL);
        gdn_plan_free(plan);
        s.gates.param_type = GDN_BF16;
        const gdn_status bad = gdn_plan_make(t->dev, job.shape, NULL, &plan, NULL);
        (void)gt_check(t, good == GDN_OK && bad != GDN_OK && !plan, "f32 gave %s, bf16 %s", gdn_status_name(good), gdn_status_name(bad));
    }
    gt_end(t);
}

void gt_test_gates(gt *t) {
    pair(t, "gates_rows_70", 70, 6, 0, 0, GDN_GATE_LINEAR);
    pair(t, "gates_log_form", 70, 6, 0, 0, GDN_GATE_LOG);
    pair(t, "B75_gates_views_of_a_wide_row_16_16", 33, 16, 0, 29, GDN_GATE_LINEAR);
    pair(t, "B75_gates_views_of_a_wide_row_8_32", 33, 32, 4, 7, GDN_GATE_LINEAR);
    pair(t, "B76_gates_interleaved", 33, 8, 2, 0, GDN_GATE_LINEAR);
    pair(t, "B83_gates_3_rows_6_heads", 3, 6, 0, 0, GDN_GATE_LINEAR);
    if (t->brief) return;
    pair(t, "gates_8192_rows_48_heads", 8192, 48, 3, 0, GDN_GATE_LINEAR);
    known_values(t);
    fused_inf_times_zero(t);
    bf16_parameters(t);
}
