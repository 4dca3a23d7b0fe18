/* gpu_stream.c - see gpu_stream.h. */
#include "gpu_stream.h"
#include "engine_text.h"
#include "gdn.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* X(name, version of the signature, parameters) */
#define STREAM_CALLS(X)                                                               \
    X(cuGetErrorName, 6000, (int error, const char **text))                           \
    X(cuDeviceGet, 2000, (int *device, int ordinal))                                  \
    X(cuDevicePrimaryCtxRetain, 7000, (void **ctx, int device))                       \
    X(cuDevicePrimaryCtxRelease, 11000, (int device))                                 \
    X(cuCtxPushCurrent, 4000, (void *ctx))                                            \
    X(cuCtxPopCurrent, 4000, (void **ctx))                                            \
    X(cuStreamCreate, 2000, (void **stream, unsigned flags))                          \
    X(cuStreamDestroy, 4000, (void *stream))                                          \
    X(cuStreamSynchronize, 2000, (void *stream))                                      \
    X(cuStreamBeginCapture, 10010, (void *stream, int mode))                          \
    X(cuStreamEndCapture, 10000, (void *stream, void **graph))                        \
    X(cuGraphInstantiateWithFlags, 11040, (void **exec, void *graph, uint64_t flags)) \
    X(cuGraphLaunch, 10000, (void *exec, void *stream))                               \
    X(cuGraphExecDestroy, 10000, (void *exec))                                        \
    X(cuGraphDestroy, 10000, (void *graph))
enum { LEGACY_STREAM = 1, NON_BLOCKING = 1, THREAD_LOCAL = 1, OUT_OF_MEMORY = 2 };

struct gdn__stream {
#define FIELD(name, version, params) int(*name) params;
    STREAM_CALLS(FIELD)
#undef FIELD
    void *ctx, *handle;
    int device;
};

typedef int (*get_proc_fn)(const char *symbol, void **out, int version, uint64_t flags, int *found);

static gdn_status resolve(gdn__stream *s, gdn_text *err) {
    static const struct {
        const char *name;
        int version;
        size_t at;
    } calls[] = {
#define ROW(name, version, params) { #name, version, offsetof(gdn__stream, name) },
        STREAM_CALLS(ROW)
#undef ROW
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* libgdn has it open: this counts, and it stays mapped */
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    get_proc_fn get = NULL;
    if (!symbol) return gdn__engine_say(err, GDN_E_NODRIVER, "libcuda.so.1: no driver, or one before CUDA 12.0");
    memcpy(&get, &symbol, sizeof get);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *fn = NULL;
        int found = 0;
        if (get(calls[i].name, &fn, calls[i].version, LEGACY_STREAM, &found) != 0 || !fn)
            return gdn__engine_say(err, GDN_E_NODRIVER, "the driver does not offer %s", calls[i].name);
        memcpy((char *)s + calls[i].at, &fn, sizeof fn);
    }
    return GDN_OK;
}

static gdn_status check(const gdn__stream *s, int r, const char *call, gdn_text *err) {
    const char *name = NULL;
    if (!r) return GDN_OK;
    if (s->cuGetErrorName(r, &name) != 0 || !name) name = "an error without a name";
    return gdn__engine_say(err, r == OUT_OF_MEMORY ? GDN_E_NOMEM : GDN_E_DRIVER, "%s: %s (%d)", call, name, r);
}

gdn_status gdn__stream_open(int32_t ordinal, bool own, gdn__stream **out, gdn_text *err) {
    *out = NULL;
    gdn__stream *s = calloc(1, sizeof *s);
    if (!s) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    gdn_status st = resolve(s, err);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): resolve fills every entry, through offsets */
    if (st == GDN_OK) st = check(s, s->cuDeviceGet(&s->device, ordinal), "cuDeviceGet", err);
    if (st == GDN_OK) st = check(s, s->cuDevicePrimaryCtxRetain(&s->ctx, s->device), "cuDevicePrimaryCtxRetain", err);
    if (st == GDN_OK && own) {
        st = gdn__stream_enter(s);
        if (st == GDN_OK) {
            st = check(s, s->cuStreamCreate(&s->handle, NON_BLOCKING), "cuStreamCreate", err);
            gdn__stream_leave(s);
        }
    }
    if (st != GDN_OK) {
        gdn__stream_close(s);
        return st;
    }
    *out = s;
    return GDN_OK;
}

void gdn__stream_close(gdn__stream *s) {
    if (!s) return;
    if (s->handle && gdn__stream_enter(s) == GDN_OK) {
        (void)s->cuStreamSynchronize(s->handle); /* a failure of earlier work has been told, or concerns nobody now */
        (void)s->cuStreamDestroy(s->handle);
        gdn__stream_leave(s);
    }
    if (s->ctx) (void)s->cuDevicePrimaryCtxRelease(s->device);
    free(s);
}

void *gdn__stream_handle(const gdn__stream *s) {
    return s ? s->handle : NULL;
}

gdn_status gdn__stream_enter(gdn__stream *s) {
    return check(s, s->cuCtxPushCurrent(s->ctx), "cuCtxPushCurrent", NULL);
}

void gdn__stream_leave(gdn__stream *s) {
    void *popped = NULL;
    (void)s->cuCtxPopCurrent(&popped); /* fails only with the context, which the next call reports */
}

/* The capture is ended whatever became of it. */
static gdn_status capture(gdn__stream *s, gdn__stream_work work, void *user, void **exec, gdn_text *err) {
    void *graph = NULL;
    gdn_status st = check(s, s->cuStreamBeginCapture(s->handle, THREAD_LOCAL), "cuStreamBeginCapture", err);
    if (st != GDN_OK) return st;
    const gdn_status went = work(user);
    st = check(s, s->cuStreamEndCapture(s->handle, &graph), "cuStreamEndCapture", err);
    if (went != GDN_OK) st = gdn__engine_say(err, went, "what is captured failed: %s", gdn_status_text(went));
    if (st == GDN_OK) st = check(s, s->cuGraphInstantiateWithFlags(exec, graph, 0), "cuGraphInstantiate", err);
    if (graph) (void)s->cuGraphDestroy(graph); /* the instance does not need it */
    return st;
}

gdn_status gdn__stream_capture(gdn__stream *s, gdn__stream_work work, void *user, void **graph, gdn_text *err) {
    *graph = NULL;
    gdn_status st = gdn__stream_enter(s);
    if (st != GDN_OK) return gdn__engine_say(err, st, "the device's context cannot be entered");
    st = capture(s, work, user, graph, err);
    gdn__stream_leave(s);
    return st;
}

gdn_status gdn__stream_replay(gdn__stream *s, void *graph) {
    gdn_status st = gdn__stream_enter(s);
    if (st != GDN_OK) return st;
    st = check(s, s->cuGraphLaunch(graph, s->handle), "cuGraphLaunch", NULL);
    gdn__stream_leave(s);
    return st;
}

void gdn__stream_drop(gdn__stream *s, void *graph) {
    if (!graph || gdn__stream_enter(s) != GDN_OK) return;
    (void)s->cuGraphExecDestroy(graph);
    gdn__stream_leave(s);
}
