/* cuda_backend.c - the backend of GPUs put together: open, devices, close; and the probe that makes no context. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>

static gdn_status device_count(void *user, uint32_t *out) {
    const gdn__cuda *cu = user;
    if (!out) return GDN_E_ARG;
    *out = gdn__cuda_alive(cu) ? cu->n : 0;
    return gdn__cuda_alive(cu) ? GDN_OK : GDN_E_FORKED;
}

static gdn_status device(void *user, int32_t ordinal, gdn_device *out) {
    const gdn__cuda *cu = user;
    if (!out || out->struct_size < GDN_THROUGH(gdn_device, name)) return GDN_E_ARG;
    if (!gdn__cuda_alive(cu)) return GDN_E_FORKED;
    if (ordinal < 0 || (uint32_t)ordinal >= cu->n) return GDN_E_ARG;
    const uint32_t size = out->struct_size < sizeof *out ? out->struct_size : (uint32_t)sizeof *out;
    memcpy(out, &cu->dev[ordinal].info, size);
    out->struct_size = size;
    return GDN_OK;
}

static gdn_status read_devices(gdn__cuda *cu, gdn_text *err) {
    cu->dev = gdn__alloc((cu->n ? cu->n : 1) * sizeof *cu->dev);
    if (!cu->dev) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    for (uint32_t i = 0; i < cu->n; i++) {
        gdn__cuda_device *d = &cu->dev[i];
        const gdn_status st = gdn__cuda_device_read(&cu->api, (int)i, &d->info, d->name, &d->handle, err);
        if (st != GDN_OK) return st;
    }
    return GDN_OK;
}

gdn_status gdn__cuda_backend_open_file(const char *file, const gdn__log *log, const gdn__env *env, const gdn_backend **out, gdn_text *err) {
    int devices = 0;
    *out = NULL;
    gdn__cuda *cu = gdn__alloc(sizeof *cu);
    if (!cu) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    cu->log = *log;
    cu->table = (gdn_backend) { .struct_size = (uint32_t)sizeof cu->table,
                                .abi_minor = GDN_ABI_MINOR,
                                .name = "cuda",
                                .user = cu,
                                .device_count = device_count,
                                .device = device };
    gdn__cuda_memory_entries(&cu->table);
    gdn__cuda_module_entries(&cu->table);
    gdn__cuda_function_entries(&cu->table);
    gdn_status st = gdn__cuda_guard_make(cu, err);
    if (st != GDN_OK) goto no_guard;
    st = gdn__cuda_api_open(file, &cu->api, &devices, err);
    if (st != GDN_OK) goto no_driver;
    cu->n = devices > 0 ? (uint32_t)devices : 0;
    cu->early = cu->api.cuLaunchKernelEx && cu->api.version >= 12030;
    st = read_devices(cu, err);
    if (st != GDN_OK) goto no_devices;
    if (pthread_mutex_init(&cu->mutex, NULL) != 0) {
        gdn__text_set(err, "a mutex could not be made");
        st = GDN_E_INTERNAL;
        goto no_devices;
    }
    st = gdn__jit_open(&cu->jit, env, log, err);
    if (st != GDN_OK) goto no_jit;
    gdn__log_line(log, GDN_LOG_INFO, "cuda", "driver for CUDA %d.%d: %s, %u device%s", cu->api.version / 1000, cu->api.version % 1000 / 10,
                  cu->api.path, (unsigned)cu->n, cu->n == 1 ? "" : "s");
    *out = &cu->table;
    return GDN_OK;
no_jit:
    (void)pthread_mutex_destroy(&cu->mutex);
no_devices:
    free(cu->dev);
    gdn__cuda_api_close(&cu->api);
no_driver:
    gdn__cuda_guard_drop(cu);
no_guard:
    free(cu);
    return st;
}

gdn_status gdn__cuda_backend_open(const gdn__log *log, const gdn__env *env, const gdn_backend **out, gdn_text *err) {
    return gdn__cuda_backend_open_file(NULL, log, env, out, err);
}

void gdn__cuda_backend_close(const gdn_backend *backend) {
    if (!backend) return;
    gdn__cuda *cu = backend->user;
    if (gdn__cuda_alive(cu)) { /* in a child of fork nothing of the driver is ours */
        gdn__cuda_modules_drop(cu);
        for (uint32_t i = 0; i < cu->n; i++)
            if (cu->dev[i].ctx)
                (void)gdn__cuda_check(cu, cu->api.cuDevicePrimaryCtxRelease(cu->dev[i].handle), "cuDevicePrimaryCtxRelease", NULL);
    }
    gdn__jit_close(&cu->jit);
    (void)pthread_mutex_destroy(&cu->mutex);
    free(cu->dev);
    gdn__cuda_api_close(&cu->api);
    gdn__cuda_guard_drop(cu);
    free(cu);
}

gdn_status gdn__cuda_probe_file(const char *file, gdn_device *out, uint32_t cap, uint32_t *n, gdn_text *err) {
    gdn__cuda_api api;
    char name[128];
    int devices = 0, handle;
    *n = 0;
    gdn_status st = gdn__cuda_api_open(file, &api, &devices, err);
    if (st != GDN_OK) return st;
    for (int i = 0; i < devices && (uint32_t)i < cap && st == GDN_OK; i++) {
        st = gdn__cuda_device_read(&api, i, &out[i], name, &handle, err);
        out[i].name = NULL;
    }
    if (st == GDN_OK) *n = (uint32_t)devices;
    gdn__cuda_api_close(&api);
    return st;
}

gdn_status gdn__cuda_probe(gdn_device *out, uint32_t cap, uint32_t *n, gdn_text *err) {
    return gdn__cuda_probe_file(NULL, out, cap, n, err);
}
