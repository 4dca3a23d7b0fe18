/* gt_overhead.c - what a launch through the library costs the host above the driver's own call. */
#include "gt.h"
#include <string.h>
#include <time.h>

enum { LAUNCHES = 4000, ROUNDS = 7, DRAIN = 250 };

static double now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* One row of gates, by the driver or by the library; ns a launch, the queue drained before it is full, waits not counted. */
static double cost(gt *t, const gt_live *l, const gt_direct *d, void *stream) {
    const gdn_gates_shape *s = (const gdn_gates_shape *)(const void *)l->job->shape;
    uint64_t p[5];
    uint32_t u[7] = { 1, s->nv, s->a_stride, s->b_stride, s->gate_stride, s->vheads_per_group, 0 };
    void *params[12];
    double best = 1e12;
    memcpy(p, l->ptr, sizeof p);
    for (int i = 0; i < 5; i++) params[i] = &p[i];
    for (int i = 0; i < 7; i++) params[5 + i] = &u[i];
    for (int round = 0; round < ROUNDS; round++) {
        double spent = 0;
        for (int i = 0; i < LAUNCHES; i += DRAIN) {
            const double from = now_ns();
            for (int k = 0; k < DRAIN; k++) {
                if (d)
                    (void)d->clock->launch(d->function, 1, 1, 1, 256, 1, 1, 0, stream, params, NULL);
                else
                    (void)gt_launch(l, stream);
            }
            spent += now_ns() - from;
            if (!gt_check(t, gpu_sync(t->clock, stream), "%s", t->clock->why)) return 0;
        }
        if (spent / LAUNCHES < best) best = spent / LAUNCHES;
    }
    return best;
}

void gt_test_overhead(gt *t) {
    gt_direct d = { 0 };
    gt_shapes s;
    gt_job job;
    gt_live l = { 0 };
    if (!gt_begin(t, "launch_overhead")) return;
    if (gt_direct_open(t, "ssm_preprocess.cu", "gdn_gates", &d)) {
        void *stream = gpu_stream(t->clock, true);
        gt_gates_job(t, 1, 48, 0, 0, GDN_GATE_LINEAR, &s, &job);
        if (gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, t->dev, &job, &l)) {
            const double bare = cost(t, &l, &d, stream), ours = cost(t, &l, NULL, stream);
            gt_figure(t, "bare_ns", bare);
            gt_figure(t, "library_ns", ours);
            gt_figure(t, "above_ns", ours - bare);
            (void)gt_check(t, ours - bare <= 1000, "%.0f ns above the driver's call", ours - bare);
            (void)gt_down(t, &l, stream);
            for (uint32_t i = 0; i < 96 && l.got[GDN_GATES_P_OUT]; i++)
                (void)gt_check(t, num_get(l.got[GDN_GATES_P_OUT], GDN_F32, i) >= 0, "control: element %u was not written", i);
        }
        gpu_stream_free(t->clock, stream);
        gt_drop(&l);
    }
    gt_direct_close(&d);
    gt_end(t);
}
