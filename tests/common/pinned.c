/* pinned.c - see pinned.h. */
#include "pinned.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int (*init)(unsigned flags);
    int (*retain)(void **ctx, int device);
    int (*set)(void *ctx);
    int (*add)(void *p, size_t bytes, unsigned flags);
    int (*drop)(void *p);
} api;

static void must(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(3);
}

static void resolve(void *library, const char *name, void *function) {
    void *const symbol = dlsym(library, name);
    if (!symbol) must(-1, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* false: not asked for. The first device's primary context becomes current in this thread and stays so. */
static int ready(void) {
    static int state; /* 0: not asked yet, 1: yes, 2: no */
    if (state) return state == 1;
    state = getenv("GDN_TEST_PINNED") ? 1 : 2;
    if (state == 2) return 0;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) must(-1, "libcuda.so.1");
    resolve(library, "cuInit", &api.init);
    resolve(library, "cuDevicePrimaryCtxRetain", &api.retain);
    resolve(library, "cuCtxSetCurrent", &api.set);
    resolve(library, "cuMemHostRegister_v2", &api.add);
    resolve(library, "cuMemHostUnregister", &api.drop);
    void *ctx = NULL;
    must(api.init(0), "cuInit");
    must(api.retain(&ctx, 0), "cuDevicePrimaryCtxRetain");
    must(api.set(ctx), "cuCtxSetCurrent");
    return 1;
}

void pinned_add(void *pages, uint64_t bytes) {
    enum { DEVICEMAP = 2, PORTABLE = 1 };
    if (ready()) must(api.add(pages, bytes, PORTABLE | DEVICEMAP), "cuMemHostRegister");
}

void pinned_drop(void *pages) {
    if (ready()) must(api.drop(pages), "cuMemHostUnregister");
}
