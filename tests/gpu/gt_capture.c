/* gt_capture.c - graphs: the first launch inside a capture, replays with other inputs and slots, plans refused while capturing, large
 * calls between replays of a small one. Rows B187, B188, B192. */
#include "gt.h"
#include <stdlib.h>
#include <string.h>

/* Runs the job plainly; what it gives is kept in l->got and l goes away. */
static bool plain(gt *t, gdn *g, const gt_job *job, gt_live *l) {
    const bool ok = gt_up(t, g, job, l) && gt_check(t, gt_launch(l, NULL) == GDN_OK, "plain launch") && gt_down(t, l, NULL);
    uint8_t *got[GT_MAX_PTR];
    memcpy(got, l->got, sizeof got);
    gt_drop(l);
    l->job = job;
    memcpy(l->got, got, sizeof got);
    return ok;
}

/* Captures one launch of that many kernels. */
static bool capture_nodes(gt *t, const gt_live *l, void *stream, int mode, size_t least, size_t most, gpu_graph *out) {
    gpu_clock *c = t->clock;
    if (!gt_check(t, gpu_capture_begin(c, stream, mode), "%s", c->why)) return false;
    const gdn_status st = gt_launch(l, stream);
    if (!gt_check(t, gpu_capture_end(c, stream, out), "the capture was spoiled: %s", c->why)) return false;
    return gt_check(t, st == GDN_OK, "launch in a capture: %s", gdn_status_name(st)) &&
           gt_check(t, out->nodes >= least && out->nodes <= most, "%zu nodes were captured, expected %zu to %zu", out->nodes, least, most);
}
static bool capture(gt *t, const gt_live *l, void *stream, int mode, gpu_graph *out) {
    return capture_nodes(t, l, stream, mode, 1, 1, out);
}
static bool replay(gt *t, const gpu_graph *g, void *stream) {
    return gt_check(t, gpu_graph_go(t->clock, g, stream) && gpu_sync(t->clock, stream), "%s", t->clock->why);
}

/* A target of its own, so that the captured launch is the first of its functions. */
static void first_in_capture(gt *t, uint32_t index, int mode) {
    gt_shapes s;
    gt_job job;
    gt_live want, l = { 0 };
    gpu_graph graph = { 0 };
    const char *name = gt_job_name(index);
    if (!gt_begin(t, "B188_first_call_in_capture_%s_mode_%d", name, mode)) return;
    if (!gt_needs_device(t)) goto out;
    gt_any_job(t, index, &s, &job);
    gdn *own = gt_open(t, t->target, "ssm_ba_gates_hopper", "false", "ssm_ba_gates_tc", "false", NULL);
    void *stream = gpu_stream(t->clock, true);
    if (own && gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, own, &job, &l) && capture(t, &l, stream, mode, &graph) &&
        replay(t, &graph, stream) && gt_down(t, &l, stream) && plain(t, t->dev, &job, &want)) {
        (void)gt_same(t, &want, &l, true);
        gt_control(t, &want, &l);
    }
    gpu_graph_free(t->clock, &graph);
    gpu_stream_free(t->clock, stream);
    gt_drop(&l);
    gdn_close(own);
out:
    gt_end(t);
}

/* The same graph over new rows and other slots. */
static void changed_inputs(gt *t, bool conv) {
    static const int32_t slots_a[] = { 4, 0, 2 }, slots_b[] = { 1, -1, 5 };
    static const gt_conv spec = { .nk = 2, .nv = 6, .dim = 128, .batch = 3, .rows = 9, .slots = slots_a, .num_slots = 7 };
    gt_shapes s;
    gt_job job, other;
    gt_live l = { 0 }, want;
    gpu_graph graph = { 0 };
    if (!gt_begin(t, "B187_replay_with_changed_inputs_%s", conv ? "and_slots_conv_fused" : "ba_gates")) return;
    if (!gt_needs_device(t)) goto out;
    if (conv)
        gt_conv_job(t, &spec, &s, &job);
    else
        gt_ba_job(t, 300, 48, 3, 1024, 0, 0, &s, &job);
    void *stream = gpu_stream(t->clock, true);
    if (gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, t->dev, &job, &l) &&
        capture(t, &l, stream, GPU_CAPTURE_GLOBAL, &graph) && replay(t, &graph, stream) && gt_down(t, &l, stream) &&
        plain(t, t->dev, &job, &want) && gt_same(t, &want, &l, true)) {
        other = job;
        other.buf[0].init = gt_random(t, GDN_BF16, job.buf[0].bytes / 2, -1, 1);
        if (conv) other.buf[GDN_CONV_FUSED_P_SLOTS].init = slots_b;
        l.job = &other;
        if (gt_fill(t, &l, NULL) && replay(t, &graph, stream) && gt_down(t, &l, stream)) {
            (void)gt_check(t, !gt_same(t, &want, &l, false), "control: other inputs gave the same outputs");
            if (plain(t, t->dev, &other, &want)) (void)gt_same(t, &want, &l, true);
        }
    }
    gpu_graph_free(t->clock, &graph);
    gpu_stream_free(t->clock, stream);
    gt_drop(&l);
out:
    gt_end(t);
}

/* A plan asked for on a capturing stream, a copy, a wait: each answers GDN_E_CAPTURE and the capture stays whole. */
static void refused_in_capture(gt *t, int mode) {
    gt_shapes s, s2;
    gt_job job, second;
    gt_live l = { 0 }, want;
    gpu_graph graph = { 0 };
    gdn_hplan *plan = NULL;
    uint32_t word = 0;
    if (!gt_begin(t, "B188_plan_in_capture_is_refused_mode_%d", mode)) return;
    if (!gt_needs_device(t)) goto out;
    gt_norm_job(t, 66, 6, 128, GDN_NORM_SILU, 0, &s, &job);
    gt_gates_job(t, 4, 6, 0, 0, GDN_GATE_LINEAR, &s2, &second);
    void *stream = gpu_stream(t->clock, true);
    if (gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, t->dev, &job, &l) &&
        gt_check(t, gpu_capture_begin(t->clock, stream, mode), "%s", t->clock->why)) {
        const gdn_status planned = gdn_plan_make(t->dev, second.shape, stream, &plan, NULL);
        const gdn_status copied = gdn_copy_in(t->dev, stream, l.ptr[0], job.buf[0].init, 4),
                         fetched = gdn_copy_out(t->dev, stream, &word, l.ptr[0], 4), waited = gdn_sync(t->dev, stream),
                         launched = gt_launch(&l, stream);
        const bool whole = gpu_capture_end(t->clock, stream, &graph);
        (void)gt_check(t, planned == GDN_E_CAPTURE && !plan, "plan answered %s", gdn_status_name(planned));
        (void)gt_check(t, copied == GDN_E_CAPTURE && fetched == GDN_E_CAPTURE && waited == GDN_E_CAPTURE,
                       "copy_in, copy_out and sync answered %s, %s and %s", gdn_status_name(copied), gdn_status_name(fetched),
                       gdn_status_name(waited));
        (void)gt_check(t, launched == GDN_OK, "launch answered %s", gdn_status_name(launched));
        if (gt_check(t, whole, "the capture was spoiled: %s", t->clock->why) && replay(t, &graph, stream) && gt_down(t, &l, stream) &&
            plain(t, t->dev, &job, &want))
            (void)gt_same(t, &want, &l, true);
        gdn_plan_free(plan);
    }
    gpu_graph_free(t->clock, &graph);
    gpu_stream_free(t->clock, stream);
    gt_drop(&l);
out:
    gt_end(t);
}

/* B192: capture a small call, make a large one with the same plan, replay the small one. */
static void small_large_small(gt *t) {
    gt_shapes s;
    gt_job large, small;
    gt_live l = { 0 }, want;
    gpu_graph graph = { 0 };
    if (!gt_begin(t, "B192_capture_small_call_large_replay_small")) return;
    if (!gt_needs_device(t)) goto out;
    gt_ba_job(t, 1168, 48, 3, 1024, 0, 0, &s, &large);
    small = large;
    small.u32[0] = 19;
    void *stream = gpu_stream(t->clock, true);
    if (gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, t->dev, &large, &l)) {
        l.job = &small;
        bool ok = capture(t, &l, stream, GPU_CAPTURE_GLOBAL, &graph);
        l.job = &large;
        ok = ok && gt_check(t, gt_launch(&l, stream) == GDN_OK && gpu_sync(t->clock, stream), "the large call");
        l.job = &small;
        if (ok && gt_fill(t, &l, NULL) && replay(t, &graph, stream) && gt_down(t, &l, stream) && plain(t, t->dev, &small, &want)) {
            (void)gt_same(t, &want, &l, true);
            gt_control(t, &want, &l);
        }
    }
    gpu_graph_free(t->clock, &graph);
    gpu_stream_free(t->clock, stream);
    gt_drop(&l);
out:
    gt_end(t);
}

/* One graph of a prefill, captured once, serves the lengths that the offsets hold when it is replayed. */
static void prefill_lengths(gt *t, const char *route, const char *fast, const char *wn, const char *tc, size_t kernels) {
    enum { N = 3, ROWS = 201 };
    static const uint32_t most[N] = { 67, 67, 67 };
    static const int32_t offsets[][N + 1] = {
        { 0, 67, 134, 201 }, { 0, 0, 200, 201 }, { 5, 70, 70, 72 }, { 0, 1, 65, 129 }, { 7, 7, 7, 7 }
    };
    const gt_rule p = { .nk = 2, .nv = 4, .batch = N, .len = most };
    gt_shapes s;
    gt_job job, other;
    gt_live l = { 0 }, want;
    gpu_graph graph = { 0 };
    void *stream = NULL;
    if (!gt_begin(t, "prefill_one_graph_for_many_lengths_%s", route)) return;
    gdn *g =
        gt_needs_device(t) ? gt_open(t, t->target, "gdn_prefill_fast", fast, "gdn_prefill_fast_wn", wn, "gdn_prefill_tc", tc, NULL) : NULL;
    if (!g) goto out;
    gt_prefill_job(t, g, &p, &s, &job);
    for (uint32_t i = 0; i < job.n_ptr; i++) job.buf[i].tol = 0;
    job.u32[GDN_PREFILL_U_SEQ_LEN] = 0; /* not known: up to the plan's maximum */
    stream = gpu_stream(t->clock, true);
    bool ok = gt_check(t, stream != NULL, "%s", t->clock->why) && gt_up(t, g, &job, &l) &&
              capture_nodes(t, &l, stream, GPU_CAPTURE_GLOBAL, kernels, kernels + 2, &graph);
    for (uint32_t i = 0; ok && i < GT_N(offsets); i++) {
        other = job;
        other.buf[GDN_PREFILL_P_CU_SEQLENS].init = offsets[i];
        l.job = &other;
        memset(l.got, 0, sizeof l.got);
        ok = gt_fill(t, &l, NULL) && replay(t, &graph, stream) && gt_down(t, &l, stream) && plain(t, g, &other, &want) &&
             gt_same(t, &want, &l, true);
        if (ok && i == 0) gt_control(t, &want, &l);
    }
    gt_figure(t, "replays", GT_N(offsets));
out:
    gpu_graph_free(t->clock, &graph);
    gpu_stream_free(t->clock, stream);
    gt_drop(&l);
    gdn_close(g);
    gt_end(t);
}

void gt_test_capture(gt *t) {
    for (uint32_t i = 0; i < GT_ANY; i++)
        for (int mode = t->brief ? GPU_CAPTURE_RELAXED : GPU_CAPTURE_GLOBAL; mode <= GPU_CAPTURE_RELAXED; mode += 2)
            first_in_capture(t, i, mode);
    changed_inputs(t, true);
    changed_inputs(t, false);
    for (int mode = GPU_CAPTURE_GLOBAL; mode <= GPU_CAPTURE_RELAXED; mode++) refused_in_capture(t, mode);
    small_large_small(t);
    if (strcmp(t->target, "hopper") == 0) {
        if (!getenv("GPU_TEST_NO_FAST")) {
            prefill_lengths(t, "fast", "true", "false", "true", 2);
            prefill_lengths(t, "fast_wn", "true", "true", "true", 2);
        }
        prefill_lengths(t, "tensor_cores", "false", "false", "true", 3);
    }
    prefill_lengths(t, "scalar", "false", "false", "false", 3);
}
