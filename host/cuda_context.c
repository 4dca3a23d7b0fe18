/* cuda_context.c - who may call the driver and with which context: fork guard, primary contexts, capture mode, errors. */
#define _GNU_SOURCE /* MADV_WIPEONFORK */
#include "cuda_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Atomic bool gdn__cuda_no_wipe;

/* A page of its own that a child of fork sees as zeros: asking whether this is the process that opened the driver is one load.
 * Kernels that cannot do that (before Linux 4.14, some sandboxes) cost a system call instead. */
gdn_status gdn__cuda_guard_make(gdn__cuda *cu, gdn_text *err) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        gdn__text_set(err, "fork guard: %s", strerror(errno));
        return GDN_E_NOMEM;
    }
    if (atomic_load(&gdn__cuda_no_wipe) || madvise(p, page, MADV_WIPEONFORK) != 0) cu->pid = getpid();
    *p = 1;
    cu->alive = p;
    return GDN_OK;
}

void gdn__cuda_guard_drop(gdn__cuda *cu) {
    if (cu->alive) (void)munmap((void *)(uintptr_t)cu->alive, (size_t)sysconf(_SC_PAGESIZE));
    cu->alive = NULL;
}

gdn_status gdn__cuda_check(const gdn__cuda *cu, gdn__cu_result r, const char *call, gdn_text *err) {
    char why[512];
    if (r == GDN__CU_OK) return GDN_OK;
    gdn__cuda_explain(&cu->api, call, r, why, sizeof why);
    if (err)
        gdn__text_set(err, "%s", why);
    else
        gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s", why);
    return gdn__cuda_status(r);
}

/* Once a device and backend; the driver counts, and gives the context that the CUDA runtime uses as well. */
static gdn_status retain(gdn__cuda *cu, gdn__cuda_device *dev, gdn_text *err) {
    gdn_status st = GDN_OK;
    (void)pthread_mutex_lock(&cu->mutex);
    if (!dev->ctx) {
        void *ctx = NULL;
        st = gdn__cuda_check(cu, cu->api.cuDevicePrimaryCtxRetain(&ctx, dev->handle), "cuDevicePrimaryCtxRetain", err);
        if (st == GDN_OK) dev->ctx = ctx;
    }
    (void)pthread_mutex_unlock(&cu->mutex);
    return st;
}

gdn_status gdn__cuda_enter(gdn__cuda *cu, int32_t ordinal, bool relaxed, gdn__cuda_scope *scope, gdn_text *err) {
    *scope = (gdn__cuda_scope) { .cu = cu, .mode = GDN__CU_MODE_RELAXED };
    if (!gdn__cuda_alive(cu)) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_FORKED));
        return GDN_E_FORKED;
    }
    if (ordinal < 0 || (uint32_t)ordinal >= cu->n) {
        if (err)
            gdn__text_set(err, "device %d: there are %u", (int)ordinal, (unsigned)cu->n);
        else
            gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "device %d: there are %u", (int)ordinal, (unsigned)cu->n);
        return GDN_E_ARG;
    }
    gdn__cuda_device *dev = &cu->dev[ordinal];
    gdn_status st = retain(cu, dev, err);
    if (st == GDN_OK) st = gdn__cuda_check(cu, cu->api.cuCtxPushCurrent(dev->ctx), "cuCtxPushCurrent", err);
    if (st != GDN_OK) return st;
    scope->dev = dev;
    if (relaxed) {
        st = gdn__cuda_check(cu, cu->api.cuThreadExchangeStreamCaptureMode(&scope->mode), "cuThreadExchangeStreamCaptureMode", err);
        scope->relaxed = st == GDN_OK;
        if (st != GDN_OK) gdn__cuda_leave(scope);
    }
    return st;
}

void gdn__cuda_leave(gdn__cuda_scope *scope) {
    const gdn__cuda_api *api = &scope->cu->api;
    void *popped;
    /* What was done is done; a failure here is a sticky one that the next call reports as well. */
    if (scope->relaxed)
        (void)gdn__cuda_check(scope->cu, api->cuThreadExchangeStreamCaptureMode(&scope->mode), "cuThreadExchangeStreamCaptureMode", NULL);
    if (scope->dev) (void)gdn__cuda_check(scope->cu, api->cuCtxPopCurrent(&popped), "cuCtxPopCurrent", NULL);
    scope->dev = NULL;
    scope->relaxed = false;
}

gdn_status gdn__cuda_not_capturing(const gdn__cuda *cu, void *stream) {
    int status = GDN__CU_CAPTURE_NONE;
    const gdn__cu_result r = cu->api.cuStreamIsCapturing(stream, &status);
    if (r == GDN__CU_CAPTURE_IMPLICIT || (r == GDN__CU_OK && status != GDN__CU_CAPTURE_NONE)) return GDN_E_CAPTURE;
    return gdn__cuda_check(cu, r, "cuStreamIsCapturing", NULL);
}
