/* fake_cuda.c - a CUDA driver for tests: counts what it gives, checks who asks, fails on demand. See fake_cuda.h. */
#include "fake_cuda.h"
#include "fake_graph.h"
#include "fake_thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef struct image {
    int device, is_library;
    char *text;
} image;
typedef struct entry {
    const image *owner;
    char name[96];
} entry;

typedef struct launch_attribute {
    int id, pad, on, rest[15];
} launch_attribute;
typedef struct launch_config {
    unsigned grid[3], block[3], smem;
    void *stream;
    const launch_attribute *attribute;
    unsigned attributes;
} launch_config;

/* With kernels (tests/emu/driver): finds one in an image. Without: images hold text, and a launch only is noted. */
int emu_driver_find(const char *image, const char *entry) __attribute__((weak));

static fake_cuda state = { .devices = FAKE_DEVICES, .cc = { 90, 121 }, .trail = "" };
static fake_context contexts[FAKE_DEVICES] = { { 0 }, { 1 } };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what is no single number */

EXPORT fake_cuda *fake_cuda_state(void) {
    return &state;
}
EXPORT void *fake_cuda_context(int device) {
    return &contexts[device];
}
EXPORT void *fake_cuda_current(void) {
    const fake_thread *t = fake_mine();
    return t->depth ? t->stack[t->depth - 1] : NULL;
}
EXPORT void fake_cuda_set_current(void *ctx) {
    fake_mine()->depth = ctx ? 1 : 0;
    fake_mine()->stack[0] = ctx;
}

static int violation(int answer) {
    state.violations++;
    return answer;
}

/* Notes the call; the answer is what the test wants it to be, else 0. */
static int begin(const char *name) {
    (void)pthread_mutex_lock(&mutex);
    const size_t n = strlen(state.trail);
    (void)snprintf(state.trail + n, sizeof state.trail - n, "%s ", name);
    (void)pthread_mutex_unlock(&mutex);
    const int number = ++state.calls;
    return state.fail_at && number == state.fail_at ? state.fail_with : state.sticky;
}
#define BEGIN(name)                      \
    do {                                 \
        const int answer_ = begin(name); \
        if (answer_) return answer_;     \
    } while (0)
/* Calls that need a context, and calls that no capture of this thread allows unless its mode is relaxed. */
#define NEED_CONTEXT()                                  \
    do {                                                \
        if (!fake_mine()->depth) return violation(201); \
    } while (0)
#define NEED_RELAXED()                                     \
    do {                                                   \
        if (fake_mine()->mode != 2) return violation(900); \
    } while (0)
static int current_device(void) {
    const fake_thread *t = fake_mine();
    return t->depth ? t->stack[t->depth - 1]->device : -1;
}
int fake_begin(const char *name) {
    return begin(name);
}
int fake_device(void) {
    return current_device();
}
int fake_violation(int answer) {
    return violation(answer);
}
static int foreign(const void *stream) {
    return stream && ((const fake_stream *)stream)->device != current_device();
}
static int captured(const void *stream) {
    return stream && ((const fake_stream *)stream)->capturing;
}

static int f_cuInit(unsigned flags) {
    (void)flags;
    BEGIN("cuInit");
    return state.init_error;
}
static int f_cuDriverGetVersion(int *v) {
    BEGIN("cuDriverGetVersion");
    *v = 13000;
    return 0;
}
static int f_cuGetErrorName(int e, const char **t) {
    *t = e == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
         : e == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
         : e == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                    : "CUDA_ERROR_FAKE";
    return 0;
}
static int f_cuGetErrorString(int e, const char **t) {
    (void)e;
    *t = "as the test asked";
    return 0;
}
static int f_cuDeviceGetCount(int *n) {
    BEGIN("cuDeviceGetCount");
    *n = state.devices;
    return 0;
}
static int f_cuDeviceGet(int *d, int ordinal) {
    BEGIN("cuDeviceGet");
    *d = ordinal;
    return 0;
}
static int f_cuDeviceGetName(char *name, int len, int d) {
    BEGIN("cuDeviceGetName");
    (void)snprintf(name, (size_t)len, "Fake %d", d);
    return 0;
}
static int f_cuDeviceGetAttribute(int *v, int attribute, int d) {
    BEGIN("cuDeviceGetAttribute");
    *v = attribute == 75   ? state.cc[d] / 10
         : attribute == 76 ? state.cc[d] % 10
         : attribute == 16 ? 132 - d
         : attribute == 97 ? 232448
                           : -1;
    return 0;
}
static int f_cuDeviceTotalMem(size_t *n, int d) {
    BEGIN("cuDeviceTotalMem");
    *n = (size_t)1 << (37 - d);
    return 0;
}
static int f_cuDevicePrimaryCtxRetain(void **ctx, int d) {
    BEGIN("cuDevicePrimaryCtxRetain");
    state.retained[d]++;
    *ctx = &contexts[d];
    return 0;
}
static int f_cuDevicePrimaryCtxRelease(int d) {
    BEGIN("cuDevicePrimaryCtxRelease");
    state.retained[d]--;
    return 0;
}
static int f_cuCtxGetCurrent(void **ctx) {
    BEGIN("cuCtxGetCurrent");
    *ctx = fake_cuda_current();
    return 0;
}
static int f_cuCtxPushCurrent(void *ctx) {
    BEGIN("cuCtxPushCurrent");
    fake_mine()->stack[fake_mine()->depth++] = ctx;
    return 0;
}
static int f_cuCtxPopCurrent(void **ctx) {
    /* Pops also when it fails: a stack that stays wrong would blame the wrong call. */
    if (!fake_mine()->depth) return violation(201);
    *ctx = fake_mine()->stack[--fake_mine()->depth];
    BEGIN("cuCtxPopCurrent");
    return 0;
}
static int f_cuThreadExchangeStreamCaptureMode(int *m) {
    BEGIN("cuThreadExchangeStreamCaptureMode");
    const int before = fake_mine()->mode;
    fake_mine()->mode = *m;
    *m = before;
    return 0;
}
static int f_cuStreamIsCapturing(void *stream, int *status) {
    NEED_CONTEXT();
    BEGIN("cuStreamIsCapturing");
    if (!stream && state.implicit) return 906;
    *status = stream ? ((fake_stream *)stream)->capturing : 0;
    return 0;
}
static int f_cuStreamSynchronize(void *stream) {
    NEED_CONTEXT();
    BEGIN("cuStreamSynchronize");
    if (captured(stream)) return violation(900);
    return foreign(stream) ? 400 : 0;
}
static int f_cuMemAlloc(uint64_t *p, size_t n) {
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuMemAlloc");
    void *m = NULL;
    if (posix_memalign(&m, 256, n) != 0) return 2;
    *p = (uint64_t)(uintptr_t)m;
    state.allocs++;
    return 0;
}
static int f_cuMemFree(uint64_t p) {
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuMemFree");
    free((void *)(uintptr_t)p);
    state.allocs--;
    return 0;
}
static int f_cuMemcpyHtoDAsync(uint64_t dst, const void *src, size_t n, void *stream) {
    NEED_CONTEXT();
    BEGIN("cuMemcpyHtoDAsync");
    if (captured(stream)) return violation(900);
    if (foreign(stream)) return 400;
    memcpy((void *)(uintptr_t)dst, src, n);
    return 0;
}
static int f_cuMemcpyDtoHAsync(void *dst, uint64_t src, size_t n, void *stream) {
    NEED_CONTEXT();
    BEGIN("cuMemcpyDtoHAsync");
    if (captured(stream)) return violation(900);
    if (foreign(stream)) return 400;
    memcpy(dst, (const void *)(uintptr_t)src, n);
    return 0;
}
typedef struct filling {
    uint64_t dst;
    size_t n;
    unsigned char b;
} filling;
static int fill(void *args) {
    const filling *f = args;
    memset((void *)(uintptr_t)f->dst, f->b, f->n);
    return 0;
}
static int f_cuMemsetD8Async(uint64_t dst, unsigned char b, size_t n, void *stream) {
    NEED_CONTEXT();
    BEGIN("cuMemsetD8Async");
    if (foreign(stream)) return 400;
    const filling f = { dst, n, b };
    return fake_enqueue(stream, fill, &f, sizeof f);
}

static int load(const char *bytes, int is_library, unsigned n, const int *options, void **values, image **out) {
    const char *text = bytes + 8;
    char number[8];
    if (n == 4 && options[2] == 5 && values[0] && values[2] && (uintptr_t)values[3] >= 1024) state.logs_given++;
    const int refused = state.refuse_next;
    state.refuse_next = 0;
    (void)snprintf(number, sizeof number, "sm_%d", state.cc[current_device()]);
    const size_t k = strlen(number);
    const int fits = !memcmp(bytes,
                             "\x7f"
                             "ELF",
                             4) &&
                     !strncmp(text, number, k) && (text[k] < '0' || text[k] > '9');
    if (refused || !fits || strstr(text, "REFUSE")) {
        if (n == 4) (void)snprintf(values[2], (uintptr_t)values[3], "the linker's own words");
        return refused ? refused : 200;
    }
    image *m = calloc(1, sizeof *m);
    if (!m) return 2;
    m->text = strdup(text);
    m->device = current_device();
    m->is_library = is_library;
    *out = m;
    return 0;
}
static void drop(image *m) {
    free(m->text);
    free(m);
}
static int f_cuModuleLoadDataEx(void **module, const void *bytes, unsigned n, int *options, void **values) {
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuModuleLoadDataEx");
    image *m = NULL;
    const int r = load(bytes, 0, n, options, values, &m);
    if (r) return r;
    state.modules++;
    *module = m;
    return 0;
}
static int f_cuModuleLoadData(void **module, const void *bytes) {
    return f_cuModuleLoadDataEx(module, bytes, 0, NULL, NULL);
}
static int unload_answer(const char *name) {
    const int r = begin(name), own = state.unload_error;
    state.unload_error = 0;
    return r ? r : own;
}
static int f_cuModuleUnload(void *module) {
    NEED_CONTEXT();
    NEED_RELAXED();
    const int r = unload_answer("cuModuleUnload");
    if (r) {
        if (r != 900) drop(module); /* still counted, and nobody will ask again */
        return r;
    }
    if (((image *)module)->device != current_device()) state.violations++;
    state.modules--;
    drop(module);
    return 0;
}
static int f_cuLibraryLoadData(void **library, const void *bytes, int *options, void **values, unsigned n, int *lo, void **lv,
                               unsigned ln) {
    (void)lo;
    (void)lv;
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuLibraryLoadData");
    image *m = NULL;
    const int r = ln ? 1 : load(bytes, 1, n, options, values, &m);
    if (r) return r;
    state.libraries++;
    *library = m;
    return 0;
}
static int f_cuLibraryGetModule(void **module, void *library) {
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuLibraryGetModule");
    *module = library;
    return 0;
}
static int f_cuLibraryUnload(void *library) {
    NEED_CONTEXT();
    NEED_RELAXED();
    const int r = unload_answer("cuLibraryUnload");
    if (r) {
        if (r != 900) drop(library); /* still counted, and nobody will ask again */
        return r;
    }
    if (((image *)library)->device != current_device()) state.violations++;
    state.libraries--;
    drop(library);
    return 0;
}
static int f_cuModuleGetFunction(void **out, void *module, const char *name) {
    static entry entries[4096];
    static _Atomic unsigned n;
    char call[104];
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuModuleGetFunction");
    const image *m = module;
    (void)snprintf(call, sizeof call, "%s(", name);
    if (m->device != current_device()) state.violations++;
    if (emu_driver_find ? !emu_driver_find(m->text, name) : !strstr(m->text, call)) return 500;
    entry *e = &entries[n++ % 4096];
    e->owner = m;
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    *out = e;
    return 0;
}
static int f_cuFuncLoad(void *f) {
    (void)f;
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuFuncLoad");
    state.func_loads++;
    return 0;
}
static int f_cuFuncGetAttribute(int *v, int attribute, void *f) {
    (void)f;
    NEED_CONTEXT();
    BEGIN("cuFuncGetAttribute");
    *v = attribute == 4 ? 32 : state.attribute;
    return 0;
}
static int f_cuFuncSetAttribute(void *f, int attribute, int v) {
    (void)f;
    (void)attribute;
    NEED_CONTEXT();
    NEED_RELAXED();
    BEGIN("cuFuncSetAttribute");
    state.attribute = v;
    return 0;
}
static int f_cuStreamGetCtx(void *stream, void **ctx) {
    BEGIN("cuStreamGetCtx");
    *ctx = &contexts[((fake_stream *)stream)->device];
    return 0;
}
static int started(void *f, const unsigned grid[3], const unsigned block[3], unsigned smem, void *stream, void **params) {
    if (((entry *)f)->owner->device != current_device()) return violation(400);
    if (foreign(stream)) return 400;
    (void)pthread_mutex_lock(&mutex);
    memcpy(state.grid, grid, sizeof state.grid);
    memcpy(state.block, block, sizeof state.block);
    state.smem = smem;
    state.launch_stream = stream;
    state.launch_params = params;
    (void)pthread_mutex_unlock(&mutex);
    state.launched_on = current_device();
    state.launches++;
    return fake_launch(stream, ((entry *)f)->owner->text, ((entry *)f)->name, grid, block, smem, params);
}
static int f_cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                            void *stream, void **params, void **extra) {
    const unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };
    (void)extra;
    NEED_CONTEXT();
    BEGIN("cuLaunchKernel");
    return started(f, grid, block, smem, stream, params);
}
/* Of attributes it knows the one that lets a kernel start early, on. */
static int f_cuLaunchKernelEx(const launch_config *c, void *f, void **params, void **extra) {
    (void)extra;
    NEED_CONTEXT();
    BEGIN("cuLaunchKernelEx");
    if (c->attributes != 1 || c->attribute->id != 6 || c->attribute->on != 1) return violation(1);
    return started(f, c->grid, c->block, c->smem, c->stream, params);
}

EXPORT int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *found);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *found) {
    if (state.lookup_error) return state.lookup_error;
    typedef void (*any)(void); /* what every function pointer may become */
#define ROW(name, since, optional) \
    { #name, since, optional, (any)f_##name }
    static const struct {
        const char *name;
        int since, optional;
        any fn;
    } table[] = { ROW(cuInit, 2000, 0),
                  ROW(cuDriverGetVersion, 2020, 0),
                  ROW(cuGetErrorName, 6000, 0),
                  ROW(cuGetErrorString, 6000, 0),
                  ROW(cuDeviceGetCount, 2000, 0),
                  ROW(cuDeviceGet, 2000, 0),
                  ROW(cuDeviceGetName, 2000, 0),
                  ROW(cuDeviceGetAttribute, 2000, 0),
                  ROW(cuDeviceTotalMem, 3020, 0),
                  ROW(cuDevicePrimaryCtxRetain, 7000, 0),
                  ROW(cuDevicePrimaryCtxRelease, 11000, 0),
                  ROW(cuCtxGetCurrent, 4000, 0),
                  ROW(cuCtxPushCurrent, 4000, 0),
                  ROW(cuCtxPopCurrent, 4000, 0),
                  ROW(cuThreadExchangeStreamCaptureMode, 10010, 0),
                  ROW(cuStreamIsCapturing, 10000, 0),
                  ROW(cuStreamSynchronize, 2000, 0),
                  ROW(cuStreamCreate, 2000, 0),
                  ROW(cuStreamDestroy, 4000, 0),
                  ROW(cuStreamBeginCapture, 10010, 0),
                  ROW(cuStreamEndCapture, 10000, 0),
                  ROW(cuGraphInstantiateWithFlags, 11040, 0),
                  ROW(cuGraphLaunch, 10000, 0),
                  ROW(cuGraphExecDestroy, 10000, 0),
                  ROW(cuGraphDestroy, 10000, 0),
                  ROW(cuGraphGetNodes, 10000, 0),
                  ROW(cuMemcpyDtoDAsync, 3020, 0),
                  ROW(cuEventCreate, 2000, 0),
                  ROW(cuEventDestroy, 4000, 0),
                  ROW(cuEventRecord, 2000, 0),
                  ROW(cuEventSynchronize, 2000, 0),
                  ROW(cuEventElapsedTime, 2000, 0),
                  ROW(cuModuleLoadData, 2000, 0),
                  ROW(cuMemAlloc, 3020, 0),
                  ROW(cuMemFree, 3020, 0),
                  ROW(cuMemcpyHtoDAsync, 3020, 0),
                  ROW(cuMemcpyDtoHAsync, 3020, 0),
                  ROW(cuMemsetD8Async, 3020, 0),
                  ROW(cuModuleLoadDataEx, 2010, 0),
                  ROW(cuModuleUnload, 2000, 0),
                  ROW(cuModuleGetFunction, 2000, 0),
                  ROW(cuFuncGetAttribute, 2020, 0),
                  ROW(cuFuncSetAttribute, 9000, 0),
                  ROW(cuLaunchKernel, 4000, 0),
                  ROW(cuLaunchKernelEx, 11060, 1),
                  ROW(cuLibraryLoadData, 12000, 1),
                  ROW(cuLibraryGetModule, 12000, 1),
                  ROW(cuLibraryUnload, 12000, 1),
                  ROW(cuFuncLoad, 12040, 1),
                  ROW(cuStreamGetCtx, 9020, 1) };
#undef ROW
    *out = NULL;
    *found = 1;
    if (flags != 1) return 1; /* the legacy default stream is what the host's headers mean */
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, symbol) != 0) continue;
        if ((state.missing && !strcmp(state.missing, symbol)) || (state.no_library && table[i].optional)) return 500;
        if (version < table[i].since) return *found = 2, 500;
        memcpy(out, &table[i].fn, sizeof *out);
        *found = 0;
        return 0;
    }
    return 500;
}
