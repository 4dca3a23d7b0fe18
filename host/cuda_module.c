/* cuda_module.c - modules put on a device: from the batch of sources to loaded images, and off again.
 *
 * Loading is finished when it is said to be: the image is put on the device at once (cuda_function.c touches every function),
 * so that the driver's lazy loading has nothing left for a launch, which may be the first thing in a capture. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 8192 };

/* ---- unload ---- */
static void free_module(gdn__cuda_module *m) {
    while (m->functions) {
        gdn__cuda_function *f = m->functions;
        m->functions = f->next;
        free(f);
    }
    free(m);
}

/* Within a scope of its device, off the list. false: a capture is in the way and nothing was done. */
static bool unload_now(gdn__cuda *cu, gdn__cuda_module *m) {
    const gdn__cu_result r = m->library ? cu->api.cuLibraryUnload(m->library) : cu->api.cuModuleUnload(m->module);
    if (gdn__cuda_status(r) == GDN_E_CAPTURE) return false;
    (void)gdn__cuda_check(cu, r, m->library ? "cuLibraryUnload" : "cuModuleUnload", NULL);
    free_module(m);
    return true;
}

/* Those of this device that were given up while something was captured. Unloading could spoil a capture, and the backend does not
 * know the caller's streams; the legacy stream answers for all that are not made non-blocking, without harm to them. */
static void unload_dead(gdn__cuda *cu, gdn__cuda_device *dev) {
    (void)pthread_mutex_lock(&cu->mutex);
    bool any = false;
    for (const gdn__cuda_module *m = cu->modules; m; m = m->next) any |= m->dead && m->dev == dev;
    if (any && gdn__cuda_not_capturing(cu, NULL) == GDN_OK) {
        for (gdn__cuda_module **at = &cu->modules; *at;) {
            gdn__cuda_module *m = *at, *next = m->next;
            if (!m->dead || m->dev != dev)
                at = &m->next;
            else if (unload_now(cu, m))
                *at = next;
            else
                break;
        }
    }
    (void)pthread_mutex_unlock(&cu->mutex);
}

static void module_unload(void *user, int32_t ordinal, void *module) {
    gdn__cuda *cu = user;
    gdn__cuda_module *m = module;
    gdn__cuda_scope s;
    if (!m || !gdn__cuda_alive(cu)) return;
    (void)pthread_mutex_lock(&cu->mutex);
    m->dead = true;
    (void)pthread_mutex_unlock(&cu->mutex);
    if (gdn__cuda_enter(cu, ordinal, true, &s, NULL) != GDN_OK) return; /* it stays on the list, for close */
    unload_dead(cu, m->dev);
    gdn__cuda_leave(&s);
}

void gdn__cuda_modules_drop(gdn__cuda *cu) {
    while (cu->modules) {
        gdn__cuda_module *m = cu->modules;
        gdn__cuda_scope s;
        cu->modules = m->next;
        if (gdn__cuda_enter(cu, m->dev->info.ordinal, true, &s, NULL) != GDN_OK) {
            free_module(m); /* the device is lost; the driver told so */
            continue;
        }
        if (!unload_now(cu, m)) {
            gdn__log_line(&cu->log, GDN_LOG_HOST_BUG, "cuda", "closed while a stream is capturing: %s stays loaded", m->name);
            free_module(m);
        }
        gdn__cuda_leave(&s);
    }
}

/* ---- load ---- */
static gdn__cu_result load_image(const gdn__cuda *cu, const void *image, gdn__cuda_module *m, char *info, char *error, const char **call) {
    const gdn__cuda_api *api = &cu->api;
    int options[4] = { GDN__CU_JIT_INFO_LOG, GDN__CU_JIT_INFO_LOG_BYTES, GDN__CU_JIT_ERROR_LOG, GDN__CU_JIT_ERROR_LOG_BYTES };
    void *values[4] = { info, (void *)(uintptr_t)LOG_BYTES, error, (void *)(uintptr_t)LOG_BYTES };
    if (!api->cuLibraryLoadData || !api->cuLibraryGetModule || !api->cuLibraryUnload) {
        *call = "cuModuleLoadDataEx";
        return api->cuModuleLoadDataEx(&m->module, image, 4, options, values);
    }
    *call = "cuLibraryLoadData";
    gdn__cu_result r = api->cuLibraryLoadData(&m->library, image, options, values, 4, NULL, NULL, 0);
    if (r != GDN__CU_OK) {
        m->library = NULL;
        return r;
    }
    /* A library may wait with its image until somebody asks; this asks. */
    *call = "cuLibraryGetModule";
    r = api->cuLibraryGetModule(&m->module, m->library);
    if (r != GDN__CU_OK) {
        (void)gdn__cuda_check(cu, api->cuLibraryUnload(m->library), "cuLibraryUnload", NULL);
        m->library = m->module = NULL;
    }
    return r;
}

/* Is it the image that is at fault? A device that was lost by somebody else's fault must not empty the cache. */
static bool image_refused(gdn__cu_result r) {
    return gdn__cuda_status(r) == GDN_E_LOAD;
}

static gdn_status load_one(gdn__cuda *cu, gdn__cuda_device *dev, const gdn_compile_job *job, const gdn__cubin *c, gdn__cuda_module **out,
                           bool *refused, gdn_text *err) {
    const size_t name_bytes = strlen(job->name) + 1;
    gdn__cuda_module *m = gdn__alloc(sizeof *m + name_bytes);
    char *logs = gdn__alloc(2 * LOG_BYTES);
    const char *call = "";
    gdn_status st = GDN_E_NOMEM;
    *refused = false;
    if (!m || !logs) {
        gdn__text_set(err, "%s: %s", job->name, gdn_status_text(st));
        goto out;
    }
    memcpy(m->name, job->name, name_bytes);
    m->dev = dev;
    const gdn__cu_result r = load_image(cu, c->data, m, logs, logs + LOG_BYTES, &call);
    logs[LOG_BYTES - 1] = logs[2 * LOG_BYTES - 1] = '\0';
    st = gdn__cuda_status(r);
    if (st == GDN_OK) {
        if (*logs) gdn__log_text(&cu->log, GDN_LOG_DEBUG, "cuda", logs);
        (void)pthread_mutex_lock(&cu->mutex);
        m->next = cu->modules;
        cu->modules = m;
        (void)pthread_mutex_unlock(&cu->mutex);
        *out = m;
        m = NULL;
    } else {
        char why[512];
        const char *error = logs + LOG_BYTES;
        *refused = image_refused(r);
        gdn__cuda_explain(&cu->api, call, r, why, sizeof why);
        gdn__text_set(err, "%s for %s on device %d: %s%s%s", job->name, job->arch, (int)dev->info.ordinal, why, *error ? "\n" : "", error);
        gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s for %s on device %d: %s", job->name, job->arch, (int)dev->info.ordinal, why);
        gdn__log_text(&cu->log, GDN_LOG_ERROR, "cuda", error);
    }
out:
    free(logs);
    free(m);
    return st;
}

/* Once more from the source when the driver refuses what was taken from a folder. */
static gdn_status load_or_renew(gdn__cuda *cu, gdn__cuda_device *dev, const gdn_compile_job *job, gdn__cubin *c, gdn__cuda_module **out,
                                gdn_text *err) {
    char why[2048] = "";
    gdn_text text = { why, sizeof why, 0 };
    bool refused;
    gdn_status st = load_one(cu, dev, job, c, out, &refused, &text);
    if (st != GDN_OK && refused && c->path) {
        st = gdn__jit_renew(&cu->jit, job, c, &text);
        if (st == GDN_OK) st = load_one(cu, dev, job, c, out, &refused, &text);
    }
    if (st != GDN_OK) gdn__text_set(err, "%s", why);
    if (st == GDN_E_LOAD && refused) gdn__jit_refused(&cu->jit, job, c, why);
    return st;
}

/* Refused before anything is compiled: what does not fit the device is never approximated. */
static gdn_status check_fits(const void *user, const gdn_compile_job *job, gdn_text *err) {
    const gdn__cuda_device *dev = user;
    if (gdn__arch_fits(job->arch, dev->info.cc_major, dev->info.cc_minor)) return GDN_OK;
    gdn__text_set(err, "%s: code for %s does not run on device %d (%s, compute capability %u.%u)", job->name, job->arch,
                  (int)dev->info.ordinal, dev->name, (unsigned)dev->info.cc_major, (unsigned)dev->info.cc_minor);
    return GDN_E_ARCH;
}

static gdn_status modules_load(void *user, int32_t ordinal, uint32_t n, const gdn_compile_job *jobs, void **modules, gdn_status *status,
                               gdn_text *err) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    gdn_status first = GDN_OK;
    if (n && (!jobs || !modules || !status)) return GDN_E_ARG;
    if (n && jobs->struct_size < GDN_THROUGH(gdn_compile_job, n_options)) return GDN_E_ABI;
    for (uint32_t i = 0; i < n; i++) modules[i] = NULL;
    gdn_status st = gdn__cuda_enter(cu, ordinal, true, &s, err && n ? &err[0] : NULL);
    gdn__cubin *cubins = st == GDN_OK ? gdn__alloc((n ? n : 1) * sizeof *cubins) : NULL;
    if (st == GDN_OK && !cubins) {
        gdn__cuda_leave(&s);
        st = GDN_E_NOMEM;
    }
    if (st != GDN_OK) {
        for (uint32_t i = 0; i < n; i++) {
            status[i] = st;
            if (err && (i || !err[0].len)) gdn__text_set(&err[i], "%s", gdn_status_text(st));
        }
        return st;
    }
    unload_dead(cu, s.dev);
    (void)gdn__jit_get(&cu->jit, n, jobs, check_fits, s.dev, cubins, status, err);
    for (uint32_t i = 0; i < n; i++) {
        gdn_compile_job job;
        gdn__cuda_module *m = NULL;
        gdn_text *why = err ? &err[i] : NULL;
        if (status[i] == GDN_OK) status[i] = gdn__job_read(jobs, i, &job, why);
        if (status[i] == GDN_OK) status[i] = gdn__jit_sources(&cu->jit, &job, why);
        if (status[i] == GDN_OK) status[i] = load_or_renew(cu, s.dev, &job, &cubins[i], &m, why);
        modules[i] = m;
        if (first == GDN_OK) first = status[i];
        gdn__cubin_free(&cubins[i]);
    }
    free(cubins);
    gdn__cuda_leave(&s);
    return first;
}

void gdn__cuda_module_entries(gdn_backend *table) {
    table->modules_load = modules_load;
    table->module_unload = module_unload;
}
