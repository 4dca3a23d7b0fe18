/* gt_streams.c - the caller's streams and threads: work ordered behind a slow producer, one plan on two streams from two threads, the
 * first calls of many threads together, and arguments refused before anything is launched. Rows B187, B189. */
#include "gt.h"
#include <pthread.h>
#include <string.h>

static const char spin_source[] = "extern \"C\" __global__ void gdn_spin(long long cycles) {\n"
                                  "    const long long from = clock64();\n"
                                  "    while (clock64() - from < cycles) { }\n"
                                  "}\n";
enum { SPIN_CYCLES = 40 * 1000 * 1000 }; /* about 20 ms at 2 GHz */

/* On `producer`: wait, then bring the inputs from where they lie to where the job reads them. On `consumer`: the launch. */
static bool behind(gt *t, const gpu_kernel *spin, const gt_live *from, gt_live *l, void *producer, void *consumer) {
    long long cycles = SPIN_CYCLES;
    void *params[] = { &cycles };
    if (!gt_check(t, gpu_kernel_go(t->clock, spin, 1, 1, producer, params), "%s", t->clock->why)) return false;
    for (uint32_t i = 0; i < l->job->n_ptr; i++) {
        const gt_buf *b = &l->job->buf[i];
        if (!b->bytes || b->same_as) continue;
        if (!gt_check(t, gpu_ok(t->clock, t->clock->copy_dtod(l->ptr[i], from->ptr[i], b->bytes, producer), "cuMemcpyDtoDAsync"), "%s",
                      t->clock->why))
            return false;
    }
    const gdn_status st = gt_launch(l, consumer);
    /* Fetched before the producer is waited for: what an unordered launch gave is still there then. */
    const bool ok = gt_check(t, st == GDN_OK, "launch: %s", gdn_status_name(st)) &&
                    gt_check(t, gpu_sync(t->clock, consumer), "%s", t->clock->why) && gt_down(t, l, consumer);
    return gt_check(t, gpu_sync(t->clock, producer), "%s", t->clock->why) && ok;
}

/* Everything zero but slots: nothing of a true input, and nothing that an index could go astray with. */
static void blank(gt *t, const gt_job *job, gt_job *out) {
    *out = *job;
    for (uint32_t i = 0; i < job->n_ptr; i++)
        if (out->buf[i].bytes > 64) {
            out->buf[i].init = gt_keep(t, out->buf[i].bytes);
            out->buf[i].role = out->buf[i].role == GT_IN ? GT_INOUT : out->buf[i].role;
        }
}

static void slow_producer(gt *t, uint32_t index) {
    gt_shapes s;
    gt_job job, empty;
    gt_live want = { 0 }, l = { 0 };
    gpu_kernel spin = { 0 };
    if (!gt_begin(t, "B187_behind_a_slow_producer_%s", gt_job_name(index))) return;
    if (!gt_needs_device(t)) goto out;
    if (!gpu_kernel_make(t->clock, spin_source, "gdn_spin", &spin)) {
        gt_skip(t, "no slow kernel: %s", t->clock->why);
        goto out;
    }
    gt_any_job(t, index, &s, &job);
    blank(t, &job, &empty);
    void *side = gpu_stream(t->clock, true), *other = gpu_stream(t->clock, true);
    if (gt_check(t, side && other, "%s", t->clock->why) && gt_up(t, t->dev, &job, &want) && gt_up(t, t->dev, &empty, &l) &&
        behind(t, &spin, &want, &l, side, side)) {
        gt_live again = l;
        bool ok = gt_check(t, gt_launch(&want, NULL) == GDN_OK, "plain launch") && gt_down(t, &want, NULL);
        for (uint32_t i = 0; ok && i < job.n_ptr; i++)
            if (job.buf[i].role != GT_IN && job.buf[i].bytes && !job.buf[i].same_as)
                (void)gt_same_bytes(t, want.got[i], l.got[i], job.buf[i].bytes, "behind the producer");
        /* Control: on a stream that does not wait for the producer, it runs before the inputs are there. */
        memset(again.got, 0, sizeof again.got);
        bool differs = false;
        ok = ok && gt_fill(t, &want, NULL) && gt_fill(t, &again, NULL) && behind(t, &spin, &want, &again, side, other);
        for (uint32_t i = 0; ok && i < job.n_ptr; i++)
            if (again.got[i] && want.got[i] && job.buf[i].role != GT_IN)
                differs = differs || memcmp(want.got[i], again.got[i], job.buf[i].bytes) != 0;
        if (ok) (void)gt_check(t, differs, "control: unordered work gave the ordered result");
    }
    gpu_stream_free(t->clock, side);
    gpu_stream_free(t->clock, other);
    gt_drop(&l);
    gt_drop(&want);
    gpu_kernel_free(t->clock, &spin);
out:
    gt_end(t);
}

/* ---- threads ---- */
typedef struct worker {
    gt *t;
    gt_live l;
    void *stream;
    uint32_t launches;
    pthread_barrier_t *together;
    gdn_status st;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    (void)pthread_barrier_wait(w->together);
    for (uint32_t i = 0; i < w->launches && w->st == GDN_OK; i++) w->st = gt_launch(&w->l, w->stream);
    if (w->st == GDN_OK) w->st = gdn_sync(w->l.g, w->stream); /* no context was ever pushed in this thread */
    return NULL;
}

enum { MOST = 32 };
/* n threads, a stream and buffers each, one plan; no state, so that repeating a launch gives the same. */
static void threads(gt *t, const char *name, uint32_t n, uint32_t launches, bool fresh) {
    gt_shapes s[MOST];
    static gt_job job[MOST];
    static worker w[MOST];
    pthread_t id[MOST];
    pthread_barrier_t together;
    gdn *g = NULL;
    uint32_t started = 0, up = 0;
    if (!gt_begin(t, "%s", name)) return;
    if (!gt_needs_device(t)) goto out;
    g = fresh ? gt_open(t, t->target, "ssm_ba_gates_hopper", "false", "ssm_ba_gates_tc", "false", NULL) : t->dev;
    if (!g || !gt_check(t, pthread_barrier_init(&together, NULL, n) == 0, "barrier")) goto out;
    for (; up < n; up++) {
        gt_ba_job(t, 40, 6, 3, 520, 0, 0, &s[up], &job[up]);
        w[up] = (worker) { .t = t, .launches = launches, .together = &together, .stream = gpu_stream(t->clock, true) };
        if (!gt_check(t, w[up].stream != NULL, "%s", t->clock->why) || !gt_up(t, g, &job[up], &w[up].l)) break;
        if (up) { /* the first one's plan serves all */
            gdn_plan_free(w[up].l.plan);
            w[up].l.plan = w[0].l.plan;
        }
    }
    for (; up == n && started < n; started++)
        if (!gt_check(t, pthread_create(&id[started], NULL, work, &w[started]) == 0, "thread %u", started)) break;
    for (uint32_t i = 0; i < started; i++) (void)pthread_join(id[i], NULL);
    for (uint32_t i = 0; i < started; i++) {
        gt_live ref;
        (void)gt_check(t, w[i].st == GDN_OK, "thread %u: %s", i, gdn_status_name(w[i].st));
        if (!gt_down(t, &w[i].l, w[i].stream) || !gt_up(t, t->dev, &job[i], &ref)) break;
        if (gt_check(t, gt_launch(&ref, NULL) == GDN_OK, "alone") && gt_down(t, &ref, NULL)) {
            (void)gt_same_bytes(t, ref.got[GDN_BA_GATES_P_GATE_OUT], w[i].l.got[GDN_BA_GATES_P_GATE_OUT],
                                job[i].buf[GDN_BA_GATES_P_GATE_OUT].bytes, "a thread's output");
            if (i)
                (void)gt_check(t, memcmp(ref.got[GDN_BA_GATES_P_GATE_OUT], w[0].l.got[GDN_BA_GATES_P_GATE_OUT], 64) != 0,
                               "control: two threads have the same data");
        }
        gt_drop(&ref);
    }
    gt_figure(t, "threads", n);
    gt_figure(t, "launches", (double)n * launches);
    for (uint32_t i = up; i-- > 0;) {
        gpu_stream_free(t->clock, w[i].stream);
        if (i) w[i].l.plan = NULL;
        gt_drop(&w[i].l);
    }
    if (up == n) (void)pthread_barrier_destroy(&together);
out:
    if (fresh) gdn_close(g);
    gt_end(t);
}

void gt_test_streams(gt *t) {
    for (uint32_t i = 0; i < GT_ANY; i++) slow_producer(t, i);
    threads(t, "one_plan_two_threads_two_streams", 2, t->clock ? 300 : 60, false);
    threads(t, "B189_first_calls_of_32_threads", MOST, 1, true);
}

/* ---- arguments ---- */
/* The launch is refused and the outputs still hold the poison. */
static void refused(gt *t, gt_live *l, const char *what) {
    const gdn_status st = gt_launch(l, NULL);
    (void)gt_check(t, st == GDN_E_ARG, "%s gave %s", what, gdn_status_name(st));
}

void gt_test_refusals(gt *t) {
    for (uint32_t index = 0; index < GT_ANY; index++) {
        gt_shapes s;
        gt_job job;
        gt_live l;
        if (!gt_begin(t, "wrong_pointers_are_refused_%s", gt_job_name(index))) continue;
        gt_any_job(t, index, &s, &job);
        if (gt_up(t, t->dev, &job, &l)) {
            const uint64_t first = l.ptr[0], second = l.ptr[1];
            l.ptr[1] = 0;
            refused(t, &l, "a required pointer that is NULL");
            l.ptr[1] = second;
            if (index < 6) { /* states are bytes: any address will do */
                l.ptr[0] = first + 1;
                refused(t, &l, "an odd address");
                l.ptr[0] = first;
            }
            gt_job count = job;
            count.u32[0] = UINT32_MAX;
            l.job = &count;
            if (job.n_u32) refused(t, &l, "a count above the plan's maximum");
            l.job = &job;
            (void)gt_down(t, &l, NULL);
            for (uint32_t i = 0; i < job.n_ptr; i++)
                for (uint64_t k = 0; l.got[i] && k < job.buf[i].bytes; k++) {
                    const uint8_t before = job.buf[i].init ? ((const uint8_t *)job.buf[i].init)[k] : 0xFF;
                    if (!gt_check(t, l.got[i][k] == before, "a refused launch wrote output %u", i)) break;
                }
            (void)gt_check(t, gt_launch(&l, NULL) == GDN_OK, "control: the right arguments are refused as well");
        }
        gt_drop(&l);
        gt_end(t);
    }
}
