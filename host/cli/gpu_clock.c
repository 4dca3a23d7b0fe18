/* gpu_clock.c - see gpu_clock.h: driver, context, streams, graphs, times. */
#include "gpu_clock.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTR_SM_COUNT = 16, ATTR_L2_BYTES = 38, ATTR_CC_MAJOR = 75, ATTR_CC_MINOR = 76, NON_BLOCKING = 1 };

bool gpu_ok(gpu_clock *c, int result, const char *call) {
    const char *name = NULL;
    if (result == 0) return true;
    if (c->error_name) (void)c->error_name(result, &name);
    (void)snprintf(c->why, sizeof c->why, "%s: %s (%d)", call, name ? name : "unknown error", result);
    return false;
}

/* By the exported name; else, where only cuGetProcAddress is exported, by the plain one. */
static void *find_one(void *library, const char *text) {
    int (*ask)(const char *symbol, void **out, int version, uint64_t flags, int *found) = NULL;
    void *symbol = dlsym(library, text), *other = symbol ? NULL : dlsym(library, "cuGetProcAddress_v2");
    char plain[64];
    int found = 1;
    if (!other) return symbol;
    memcpy(&ask, &other, sizeof other);
    (void)snprintf(plain, sizeof plain, "%.*s", (int)(strstr(text, "_v2") ? strlen(text) - 3 : strlen(text)), text);
    return ask(plain, &symbol, 12000, 1 /* the legacy default stream */, &found) == 0 ? symbol : NULL;
}

static bool find_all(gpu_clock *c) {
    void *symbol = NULL;
    c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!c->library) {
        (void)snprintf(c->why, sizeof c->why, "no driver: %.200s", dlerror());
        return false;
    }
#define FIND_(name, text, params)                                            \
    symbol = find_one(c->library, text);                                     \
    if (!symbol) {                                                           \
        (void)snprintf(c->why, sizeof c->why, "the driver has no %s", text); \
        return false;                                                        \
    }                                                                        \
    memcpy(&c->name, &symbol, sizeof symbol);
    GPU_CLOCK_MAP(FIND_)
#undef FIND_
    return true;
}

bool gpu_clock_open(gpu_clock *c, int ordinal) {
    int l2 = 0;
    memset(c, 0, sizeof *c);
    if (!find_all(c)) goto failed;
    if (!gpu_ok(c, c->init(0), "cuInit") || !gpu_ok(c, c->version(&c->driver), "cuDriverGetVersion") ||
        !gpu_ok(c, c->device_get(&c->device, ordinal), "cuDeviceGet") ||
        !gpu_ok(c, c->device_attribute(&c->cc_major, ATTR_CC_MAJOR, c->device), "cuDeviceGetAttribute") ||
        !gpu_ok(c, c->device_attribute(&c->cc_minor, ATTR_CC_MINOR, c->device), "cuDeviceGetAttribute") ||
        !gpu_ok(c, c->device_attribute(&c->sm_count, ATTR_SM_COUNT, c->device), "cuDeviceGetAttribute") ||
        !gpu_ok(c, c->device_attribute(&l2, ATTR_L2_BYTES, c->device), "cuDeviceGetAttribute"))
        goto failed;
    c->l2_bytes = l2 > 0 ? (uint64_t)l2 : 0;
    if (!gpu_ok(c, c->ctx_retain(&c->ctx, c->device), "cuDevicePrimaryCtxRetain")) goto failed;
    if (!gpu_clock_enter(c)) goto release;
    if (gpu_ok(c, c->stream_create(&c->stream, NON_BLOCKING), "cuStreamCreate") &&
        gpu_ok(c, c->event_create(&c->begin, 0), "cuEventCreate") && gpu_ok(c, c->event_create(&c->end, 0), "cuEventCreate"))
        return true;
    if (c->begin) (void)c->event_destroy(c->begin);
    if (c->stream) (void)c->stream_destroy(c->stream);
    gpu_clock_leave(c);
release:
    (void)c->ctx_release(c->device);
failed:
    c->ctx = NULL; /* the library stays mapped: the driver may have threads */
    return false;
}

void gpu_clock_close(gpu_clock *c) {
    if (!c->ctx) return;
    (void)c->event_destroy(c->end);
    (void)c->event_destroy(c->begin);
    (void)c->stream_destroy(c->stream);
    gpu_clock_leave(c);
    (void)c->ctx_release(c->device);
    c->ctx = NULL;
}

bool gpu_clock_enter(gpu_clock *c) {
    return gpu_ok(c, c->ctx_push(c->ctx), "cuCtxPushCurrent");
}
void gpu_clock_leave(gpu_clock *c) {
    void *popped;
    (void)c->ctx_pop(&popped);
}

void *gpu_stream(gpu_clock *c, bool non_blocking) {
    void *s = NULL;
    return gpu_ok(c, c->stream_create(&s, non_blocking ? NON_BLOCKING : 0), "cuStreamCreate") ? s : NULL;
}
void gpu_stream_free(gpu_clock *c, void *stream) {
    if (stream) (void)c->stream_destroy(stream);
}
bool gpu_sync(gpu_clock *c, void *stream) {
    return gpu_ok(c, c->stream_sync(stream), "cuStreamSynchronize");
}

bool gpu_capture_begin(gpu_clock *c, void *stream, int mode) {
    return gpu_ok(c, c->capture_begin(stream, mode), "cuStreamBeginCapture");
}

bool gpu_capture_end(gpu_clock *c, void *stream, gpu_graph *out) {
    *out = (gpu_graph) { 0 };
    if (!gpu_ok(c, c->capture_end(stream, &out->graph), "cuStreamEndCapture")) return false;
    if (gpu_ok(c, c->graph_nodes(out->graph, NULL, &out->nodes), "cuGraphGetNodes") &&
        gpu_ok(c, c->graph_instantiate(&out->exec, out->graph, 0), "cuGraphInstantiate"))
        return true;
    gpu_graph_free(c, out);
    return false;
}

bool gpu_graph_go(gpu_clock *c, const gpu_graph *g, void *stream) {
    return gpu_ok(c, c->graph_launch(g->exec, stream), "cuGraphLaunch");
}

void gpu_graph_free(gpu_clock *c, gpu_graph *g) {
    if (g->exec) (void)c->exec_destroy(g->exec);
    if (g->graph) (void)c->graph_destroy(g->graph);
    *g = (gpu_graph) { 0 };
}

static int ascending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Between two events on the clock's stream; ms[i] of run i. */
typedef bool (*timed)(gpu_clock *c, void *what);
static bool time_runs(gpu_clock *c, timed run, void *what, uint32_t calls, uint32_t replays, gpu_times *out) {
    float ms[GPU_MAX_REPLAYS];
    if (replays == 0 || replays > GPU_MAX_REPLAYS) return gpu_ok(c, 1, "replays");
    for (uint32_t i = 0; i < 2; i++)
        if (!run(c, what)) return false;
    if (!gpu_sync(c, c->stream)) return false;
    for (uint32_t i = 0; i < replays; i++) {
        if (!gpu_ok(c, c->event_record(c->begin, c->stream), "cuEventRecord") || !run(c, what) ||
            !gpu_ok(c, c->event_record(c->end, c->stream), "cuEventRecord") || !gpu_ok(c, c->event_sync(c->end), "cuEventSynchronize") ||
            !gpu_ok(c, c->event_elapsed(&ms[i], c->begin, c->end), "cuEventElapsedTime"))
            return false;
    }
    qsort(ms, replays, sizeof *ms, ascending);
    const double scale = 1e3 / calls, last = replays - 1;
    *out = (gpu_times) { .us_median = (double)ms[(uint32_t)(0.5 * last + 0.5)] * scale,
                         .us_p10 = (double)ms[(uint32_t)(0.1 * last + 0.5)] * scale,
                         .us_p90 = (double)ms[(uint32_t)(0.9 * last + 0.5)] * scale,
                         .us_best = (double)ms[0] * scale,
                         .calls = calls,
                         .replays = replays };
    return true;
}

static bool replay(gpu_clock *c, void *what) {
    return gpu_graph_go(c, what, c->stream);
}

bool gpu_clock_time(gpu_clock *c, gpu_work work, void *user, uint32_t calls, uint32_t replays, gpu_times *out) {
    gpu_graph g;
    bool went = true;
    if (!gpu_capture_begin(c, c->stream, GPU_CAPTURE_THREAD)) return false;
    for (uint32_t i = 0; i < calls && went; i++) went = work(user, i, c->stream);
    if (!gpu_capture_end(c, c->stream, &g)) return false;
    if (!went) (void)snprintf(c->why, sizeof c->why, "a call did not go into the graph");
    const bool ok = went && time_runs(c, replay, &g, calls, replays, out);
    gpu_graph_free(c, &g);
    return ok;
}

uint32_t gpu_clock_calls(gpu_clock *c, gpu_work work, void *user, double us, uint32_t lo, uint32_t hi) {
    gpu_times t;
    if (!gpu_clock_time(c, work, user, lo < 4 ? 4 : lo, 3, &t)) return 0;
    const double n = us / (t.us_median > 0.1 ? t.us_median : 0.1);
    return n < lo ? lo : n > hi ? hi : (uint32_t)n;
}

typedef struct plain_run {
    gpu_work work;
    void *user;
    uint32_t calls;
} plain_run;
static bool enqueue(gpu_clock *c, void *what) {
    const plain_run *p = what;
    for (uint32_t i = 0; i < p->calls; i++)
        if (!p->work(p->user, i, c->stream)) {
            (void)snprintf(c->why, sizeof c->why, "a call did not go");
            return false;
        }
    return true;
}

bool gpu_clock_plain(gpu_clock *c, gpu_work work, void *user, uint32_t calls, uint32_t replays, gpu_times *out) {
    plain_run p = { work, user, calls };
    return time_runs(c, enqueue, &p, calls, replays, out);
}
