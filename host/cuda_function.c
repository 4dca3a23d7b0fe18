/* cuda_function.c - functions of loaded modules, their attributes, and the launch.
 *
 * A launch fills nothing and looks up nothing: one question (is the context current already?) and one driver call. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- functions ---- */
/* Lazy loading puts a function on the device when it is first needed; this is when. */
static gdn_status touch(const gdn__cuda *cu, void *fn) {
    int regs = 0, smem = 0;
    gdn_status st = GDN_OK;
    if (cu->api.cuFuncLoad) st = gdn__cuda_check(cu, cu->api.cuFuncLoad(fn), "cuFuncLoad", NULL);
    if (st == GDN_OK) st = gdn__cuda_check(cu, cu->api.cuFuncGetAttribute(&regs, GDN__CU_FUNC_NUM_REGS, fn), "cuFuncGetAttribute", NULL);
    if (st == GDN_OK)
        st = gdn__cuda_check(cu, cu->api.cuFuncGetAttribute(&smem, GDN__CU_FUNC_MAX_DYNAMIC_SMEM, fn), "cuFuncGetAttribute", NULL);
    if (st == GDN_OK)
        st = gdn__cuda_check(cu, cu->api.cuFuncSetAttribute(fn, GDN__CU_FUNC_MAX_DYNAMIC_SMEM, smem), "cuFuncSetAttribute", NULL);
    return st;
}

static gdn_status find(gdn__cuda *cu, gdn__cuda_module *m, const char *entry, gdn__cuda_function **out) {
    for (gdn__cuda_function *f = m->functions; f; f = f->next) {
        if (strcmp(f->entry, entry) != 0) continue;
        *out = f;
        return GDN_OK;
    }
    const size_t bytes = strlen(entry) + 1;
    gdn__cuda_function *f = gdn__alloc(sizeof *f + bytes);
    if (!f) return GDN_E_NOMEM;
    memcpy(f->entry, entry, bytes);
    f->module = m;
    f->ctx = m->dev->ctx;
    const gdn__cu_result r = cu->api.cuModuleGetFunction(&f->fn, m->module, entry);
    if (r == GDN__CU_NOT_FOUND) gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s has no entry '%s'", m->name, entry);
    gdn_status st = r == GDN__CU_NOT_FOUND ? GDN_E_LOAD : gdn__cuda_check(cu, r, "cuModuleGetFunction", NULL);
    if (st == GDN_OK) st = touch(cu, f->fn);
    if (st != GDN_OK) {
        free(f);
        return st;
    }
    f->next = m->functions;
    m->functions = f;
    *out = f;
    return GDN_OK;
}

static gdn_status function(void *user, void *module, const char *entry, void **out) {
    gdn__cuda *cu = user;
    gdn__cuda_module *m = module;
    gdn__cuda_function *f = NULL;
    gdn__cuda_scope s;
    if (!out) return GDN_E_ARG;
    *out = NULL;
    if (!m || !entry) return GDN_E_ARG;
    gdn_status st = gdn__cuda_enter(cu, m->dev->info.ordinal, true, &s, NULL);
    if (st != GDN_OK) return st;
    (void)pthread_mutex_lock(&cu->mutex);
    st = find(cu, m, entry, &f);
    (void)pthread_mutex_unlock(&cu->mutex);
    gdn__cuda_leave(&s);
    *out = f;
    return st;
}

static gdn_status set_smem(void *user, void *fn, uint32_t bytes) {
    gdn__cuda *cu = user;
    const gdn__cuda_function *f = fn;
    gdn__cuda_scope s;
    if (!f) return GDN_E_ARG;
    const gdn_device *d = &f->module->dev->info;
    if (bytes > d->smem_optin) {
        gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s: %u bytes of shared memory, device %d allows %u", f->entry, (unsigned)bytes,
                      (int)d->ordinal, (unsigned)d->smem_optin);
        return GDN_E_ARG;
    }
    gdn_status st = gdn__cuda_enter(cu, d->ordinal, true, &s, NULL);
    if (st != GDN_OK) return st;
    st = gdn__cuda_check(cu, cu->api.cuFuncSetAttribute(f->fn, GDN__CU_FUNC_MAX_DYNAMIC_SMEM, (int)bytes), "cuFuncSetAttribute", NULL);
    gdn__cuda_leave(&s);
    return st;
}

/* ---- launch ---- */
/* Off the fast path. A stream of another device is the usual mistake, and the driver's answer does not say so. */
static gdn_status launch_failed(const gdn__cuda *cu, gdn__cuda_function *f, void *stream, gdn__cu_result r, const char *call) {
    void *ctx = NULL;
    const bool handle = r == GDN__CU_INVALID_HANDLE || r == GDN__CU_INVALID_CONTEXT;
    const bool foreign = handle && stream && cu->api.cuStreamGetCtx && cu->api.cuStreamGetCtx(stream, &ctx) == GDN__CU_OK && ctx != f->ctx;
    char why[512];
    if (atomic_exchange(&f->last_error, r) != r) { /* once per distinct cause */
        gdn__cuda_explain(&cu->api, call, r, why, sizeof why);
        gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s on device %d: %s%s", f->entry, (int)f->module->dev->info.ordinal, why,
                      foreign ? "; the stream belongs to another device or context" : "");
    }
    return foreign ? GDN_E_ARG : gdn__cuda_status(r);
}

static gdn__cu_result start(const gdn__cuda *cu, const gdn__cuda_function *f, const gdn_dims *d, void *stream, void **params, bool early) {
    if (!early)
        return cu->api.cuLaunchKernel(f->fn, d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1], d->block[2], d->smem_bytes,
                                      stream, params, NULL);
    gdn__cu_launch_attribute attribute = { .id = GDN__CU_LAUNCH_EARLY, .value = { .on = 1 } };
    const gdn__cu_launch l = {
        { d->grid[0], d->grid[1], d->grid[2] }, { d->block[0], d->block[1], d->block[2] }, d->smem_bytes, stream, &attribute, 1
    };
    return cu->api.cuLaunchKernelEx(&l, f->fn, params, NULL);
}

static gdn_status launch_as(const gdn__cuda *cu, gdn__cuda_function *f, const gdn_dims *d, void *stream, void **params, bool early) {
    void *current = NULL;
    if (!gdn__cuda_alive(cu)) return GDN_E_FORKED;
    if (!f || !d) return GDN_E_ARG;
    early = early && cu->early && f->module->dev->info.cc_major >= 9;
    gdn__cu_result r = cu->api.cuCtxGetCurrent(&current);
    const bool push = r == GDN__CU_OK && current != f->ctx;
    if (push) r = cu->api.cuCtxPushCurrent(f->ctx);
    if (r == GDN__CU_OK) {
        r = start(cu, f, d, stream, params, early);
        if (push) {
            const gdn__cu_result popped = cu->api.cuCtxPopCurrent(&current);
            if (r == GDN__CU_OK) r = popped;
        }
    }
    return r == GDN__CU_OK ? GDN_OK : launch_failed(cu, f, stream, r, early ? "cuLaunchKernelEx" : "cuLaunchKernel");
}

static gdn_status launch(void *user, void *fn, const gdn_dims *d, void *stream, void **params) {
    return launch_as(user, fn, d, stream, params, false);
}

static gdn_status launch_early(void *user, void *fn, const gdn_dims *d, void *stream, void **params) {
    return launch_as(user, fn, d, stream, params, true);
}

void gdn__cuda_function_entries(gdn_backend *table) {
    table->function = function;
    table->set_smem = set_smem;
    table->launch = launch;
    table->launch_early = launch_early;
}
