/* gt_layer.c - gated norm and state copies, and rows B101 to B112. */
#include "gt.h"
#include <math.h>
#include <string.h>

static void norm_pair(gt *t, const char *name, uint32_t rows, uint32_t heads, uint32_t dim, uint32_t act, uint32_t pad, uint32_t shift) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "%s", name)) return;
    gt_norm_job(t, rows, heads, dim, act, pad, &s, &job);
    job.buf[GDN_NORM_P_X].shift = job.buf[GDN_NORM_P_W].shift = job.buf[GDN_NORM_P_Z].shift = shift;
    gt_pair(t, &job);
    gt_end(t);
}

/* B102: w = 0 gives 0, w = 1 the plain norm, z = 50 does not come before the norm. */
static void norm_scale(gt *t) {
    enum { DIM = 128, ROWS = 3 };
    gt_shapes s;
    gt_job job;
    gt_live l;
    if (!gt_begin(t, "B102_norm_scale")) return;
    gt_norm_job(t, ROWS, 1, DIM, GDN_NORM_SILU, 0, &s, &job);
    uint16_t *w = gt_keep(t, DIM * 2), *z = gt_keep(t, 2 * ROWS * DIM), *x = gt_keep(t, 2 * ROWS * DIM);
    for (uint32_t i = 0; i < DIM; i++) w[i] = num_to_bf16(i % 2 ? 1 : 0);
    for (uint32_t i = 0; i < ROWS * DIM; i++) z[i] = num_to_bf16(50), x[i] = num_to_bf16(i % 3 ? 0.01 : -0.02);
    job.buf[GDN_NORM_P_W].init = w;
    job.buf[GDN_NORM_P_Z].init = z;
    job.buf[GDN_NORM_P_X].init = x;
    if (gt_up(t, t->dev, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL))
        for (uint32_t r = 0; r < ROWS; r++) {
            double ss = 0;
            for (uint32_t i = 0; i < DIM; i++) ss += pow(num_from_bf16(x[r * DIM + i]), 2);
            for (uint32_t i = 0; i < DIM; i++) {
                const double got = num_get(l.got[GDN_NORM_P_OUT], GDN_BF16, r * DIM + i);
                const double want = i % 2 ? num_from_bf16(x[r * DIM + i]) / sqrt(ss / DIM + 1e-6) * 50 : 0;
                (void)gt_check(t, i % 2 ? fabs(got - want) <= fabs(want) * 0x1p-8 : got == 0, "row %u element %u is %g, expected %g", r, i,
                               got, want);
            }
        }
    gt_drop(&l);
    gt_end(t);
}

/* B104: the sum of squares of 128 times 300 leaves a half's range. */
static void norm_large(gt *t) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "B104_norm_large_values")) return;
    gt_norm_job(t, 12, 4, 128, GDN_NORM_SILU, 0, &s, &job);
    job.buf[GDN_NORM_P_X].init = gt_random(t, GDN_BF16, job.buf[GDN_NORM_P_X].bytes / 2, 290, 310);
    gt_pair(t, &job);
    gt_end(t);
}

static void norm_unknown_gate(gt *t) {
    gt_shapes s;
    gt_job job;
    gdn_hplan *plan = NULL;
    if (!gt_begin(t, "B101_norm_unknown_gate_is_refused")) return;
    gt_norm_job(t, 4, 1, 128, GDN_NORM_SILU, 0, &s, &job);
    if (t->dev) {
        const gdn_status good = gdn_plan_make(t->dev, job.shape, NULL, &plan, NULL);
        gdn_plan_free(plan);
        s.norm.act = 3;
        const gdn_status bad = gdn_plan_make(t->dev, job.shape, NULL, &plan, NULL);
        (void)gt_check(t, good == GDN_OK && bad == GDN_E_ARG && !plan, "a known gate gave %s, an unknown one %s", gdn_status_name(good),
                       gdn_status_name(bad));
    }
    gt_end(t);
}

/* out == x. */
static void norm_in_place(gt *t) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "norm_in_place")) return;
    gt_norm_job(t, 96, 6, 128, GDN_NORM_SILU, 0, &s, &job);
    job.buf[GDN_NORM_P_X].role = GT_INOUT;
    job.buf[GDN_NORM_P_X].type = GDN_BF16;
    job.buf[GDN_NORM_P_X].tol = job.buf[GDN_NORM_P_OUT].tol;
    job.buf[GDN_NORM_P_OUT].same_as = GDN_NORM_P_X + 1;
    gt_pair(t, &job);
    gt_end(t);
}

void gt_test_norm(gt *t) {
    norm_pair(t, "norm_48_heads", t->brief ? 96 : 4593 * 48, 48, 128, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B101_norm_sigmoid", 66, 6, 128, GDN_NORM_SIGMOID, 0, 0);
    norm_pair(t, "B106_norm_dim_127", 7, 1, 127, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B106_norm_dim_129", 7, 1, 129, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B107_norm_dim_96", 35, 5, 96, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B107_norm_dim_384", 35, 5, 384, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B107_norm_dim_3584", 9, 3, 3584, GDN_NORM_SILU, 0, 0);
    norm_pair(t, "B108_norm_offset_pointers", 66, 6, 128, GDN_NORM_SILU, 0, 2);
    norm_pair(t, "B112_norm_strided_views", 66, 6, 128, GDN_NORM_SILU, 40, 0);
    if (!t->brief) norm_pair(t, "B109_norm_131072_rows", 131072, 32, 128, GDN_NORM_SILU, 0, 0);
    norm_in_place(t);
    if (t->brief) return;
    norm_scale(t);
    norm_large(t);
    norm_unknown_gate(t);
}

void gt_test_state(gt *t) {
    static const uint64_t bytes[] = { 1, 7, 100, 4000, 32768, 98304 + 20, 3145728 };
    gt_shapes s;
    gt_job job;
    for (uint32_t i = 0; i < GT_N(bytes); i++)
        for (int copy = 0; copy < 2; copy++) {
            if (t->brief && bytes[i] > 40000) continue;
            if (!gt_begin(t, "state_%s_%llu_bytes", copy ? "copy" : "zero", (unsigned long long)bytes[i])) continue;
            gt_state_job(t, copy, bytes[i], 5, &s, &job);
            gt_pair(t, &job);
            gt_end(t);
        }
}
