/* nvrtc_jit.c - settings of the compiler, checks of what it is given, NVRTC at the first miss, a refused module made anew. */
#include "nvrtc_jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *set_or_null(const gdn__env *env, const char *name) {
    const char *v = gdn__env_get(env, name);
    return v && *v ? v : NULL;
}

gdn_status gdn__jit_open(gdn__jit *j, const gdn__env *env, const gdn__log *log, gdn_text *err) {
    const char *asked = set_or_null(env, "GDN_NVRTC"), *nocache = set_or_null(env, "GDN_JIT_NOCACHE"),
               *print = set_or_null(env, "GDN_JIT_PRINT");
    *j = (gdn__jit) { .log = *log,
                      .env = env,
                      .shipped = { set_or_null(env, "GDN_CUBIN_DIR"), GDN_INSTALL_DATA_DIR "/cubins" },
                      .asked = asked ? asked : "",
                      .dump = set_or_null(env, "GDN_JIT_DUMP"),
                      .kernels = set_or_null(env, "GDN_KERNEL_DIR"),
                      .print = print && strcmp(print, "0") != 0,
                      .nocache = nocache && strcmp(nocache, "0") != 0 };
    struct stat st;
    if (j->shipped[0] && (stat(j->shipped[0], &st) != 0 || !S_ISDIR(st.st_mode)))
        gdn__log_line(&j->log, GDN_LOG_WARN, "nvrtc", "GDN_CUBIN_DIR=%s: no such folder; modules come from elsewhere", j->shipped[0]);
    if (pthread_mutex_init(&j->mutex, NULL) == 0) return GDN_OK;
    gdn__text_set(err, "a mutex could not be made");
    return GDN_E_INTERNAL;
}

void gdn__jit_close(gdn__jit *j) {
    while (j->notes) {
        gdn__jit_note *n = j->notes;
        j->notes = n->next;
        free(n->data);
        free(n->why);
        free(n);
    }
    while (j->texts) {
        gdn__jit_text *t = j->texts;
        j->texts = t->next;
        free(t->data);
        free(t);
    }
    gdn__jit_said_drop(j);
    gdn__nvrtc_close(&j->nvrtc);
    free(j->nvrtc_why);
    gdn__cache_close(&j->cache);
    (void)pthread_mutex_destroy(&j->mutex);
}

void gdn__log_text(const gdn__log *log, uint32_t severity, const char *area, const char *text) {
    while (*text) {
        const size_t n = strcspn(text, "\n");
        if (n) gdn__log_line(log, severity, area, "%.*s", (int)(n < 4000 ? n : 4000), text);
        text += n + (text[n] == '\n');
    }
}

gdn_status gdn__job_read(const gdn_compile_job *jobs, uint32_t i, gdn_compile_job *out, gdn_text *err) {
    const size_t stride = jobs->struct_size;
    const char *what = NULL;
    *out = (gdn_compile_job) { 0 };
    if (stride < GDN_THROUGH(gdn_compile_job, n_options)) {
        gdn__text_set(err, "gdn_compile_job.struct_size is %zu, at least %zu are needed", stride, GDN_THROUGH(gdn_compile_job, n_options));
        return GDN_E_ABI;
    }
    memcpy(out, (const char *)jobs + i * stride, stride < sizeof *out ? stride : sizeof *out);
    if (!out->name || !*out->name || !out->source || !out->arch) what = "name, source or arch is missing";
    if ((out->n_headers && (!out->headers || !out->header_names)) || (out->n_options && !out->options)) what = "a list is NULL";
    for (uint32_t k = 0; !what && k < out->n_headers; k++)
        if (!out->headers[k] || !out->header_names[k]) what = "a header is NULL";
    for (uint32_t k = 0; !what && k < out->n_options; k++) {
        const char *o = out->options[k];
        if (!o)
            what = "an option is NULL";
        else if (!strncmp(o, "-arch", 5) || !strncmp(o, "--gpu-architecture", 18))
            what = "an option names an architecture";
    }
    if (!what) return GDN_OK;
    gdn__text_set(err, "module %u ('%s'): %s", (unsigned)i, out->name ? out->name : "", what);
    return GDN_E_ARG;
}

const gdn__nvrtc *gdn__jit_nvrtc(gdn__jit *j, gdn_status *status, gdn_text *err) {
    (void)pthread_mutex_lock(&j->mutex);
    if (!j->nvrtc_tried) {
        char why[4096] = "";
        gdn_text text = { why, sizeof why, 0 };
        j->nvrtc_tried = true;
        j->nvrtc_status = gdn__nvrtc_open(j->asked, &j->log, &j->nvrtc, &text);
        if (j->nvrtc_status != GDN_OK)
            j->nvrtc_why = gdn__copy(why);
        else if (j->cache.writable && !j->nocache)
            gdn__cache_note_nvrtc(&j->cache, j->asked, j->nvrtc.path, j->nvrtc.id);
    }
    *status = j->nvrtc_status;
    if (*status != GDN_OK) gdn__text_set(err, "%s", j->nvrtc_why ? j->nvrtc_why : gdn_status_text(*status));
    const gdn__nvrtc *n = *status == GDN_OK ? &j->nvrtc : NULL;
    (void)pthread_mutex_unlock(&j->mutex);
    return n;
}

/* The file of the cache that c was read from or, anew compiled, written to. NULL: none. */
static char *kept_file(const gdn__jit *j, const gdn_compile_job *job, const gdn__cubin *c) {
    gdn__key key;
    if (c->path) return gdn__copy(c->path);
    if (!j->cache.root || !*c->nvrtc || gdn__cubin_key(job, c->nvrtc, &key) != GDN_OK) return NULL;
    return gdn__format("%s/%s/%.2s/%s.cubin", j->cache.root, c->nvrtc, key.hex, key.hex);
}

void gdn__jit_refused(gdn__jit *j, const gdn_compile_job *job, const gdn__cubin *c, const char *why) {
    gdn__key content;
    char *file = kept_file(j, job, c);
    const bool aside = file && gdn__cache_quarantine(&j->cache, file);
    gdn__log_line(&j->log, GDN_LOG_ERROR, "cache", "%s%s%s: refused by the driver%s: %.*s", job->name, file ? ", " : "", file ? file : "",
                  aside ? " and set aside in bad/" : "", (int)strcspn(why, "\n"), why);
    free(file);
    if (gdn__cubin_key(job, "", &content) == GDN_OK) gdn__jit_note_add(j, &content, GDN_E_LOAD, why, NULL, 0);
}

const char *gdn__job_defines(const gdn_compile_job *job, char out[GDN__DEFINES_BYTES]) {
    gdn_text t = { out, GDN__DEFINES_BYTES, 0 };
    gdn__text_set(&t, "%s", "");
    for (uint32_t i = 0; i < job->n_options; i++)
        if (!strncmp(job->options[i], "-D", 2)) gdn__text_add(&t, " %s", job->options[i]);
    return out;
}

/* The caller's text gets what fits, and the whole length. */
void gdn__hand_over(gdn_text *err, const gdn_text *why) {
    gdn__text_set(err, "%s", why->buf ? why->buf : gdn_status_text(GDN_E_NOMEM));
    if (err && why->buf && why->len > err->len) err->len = why->len;
}

gdn_status gdn__jit_renew(gdn__jit *j, const gdn_compile_job *job, gdn__cubin *c, gdn_text *err) {
    gdn__key content;
    gdn_status st;
    bool hit;
    double ms;
    /* A shipped file cannot be set aside, but the cache may hold what was compiled in its place. */
    const bool shipped = c->path && (!j->cache.root || strncmp(c->path, j->cache.root, strlen(j->cache.root)) != 0);
    if (c->path && !gdn__cache_quarantine(&j->cache, c->path))
        gdn__log_line(&j->log, GDN_LOG_WARN, "cache", "%s was refused by the driver and could not be set aside", c->path);
    gdn__cubin_free(c);
    if (!gdn__jit_nvrtc(j, &st, err)) return st;
    st = gdn__cubin_key(job, "", &content);
    char *buf = gdn__alloc(GDN__WHY_BYTES);
    gdn_text why = { buf, buf ? GDN__WHY_BYTES : 0, 0 };
    if (st == GDN_OK) st = gdn__jit_build(j, job, &content, shipped, c, &hit, &ms, &why);
    if (st != GDN_OK)
        gdn__hand_over(err, &why);
    else if (!hit) {
        char defines[GDN__DEFINES_BYTES];
        gdn__log_line(&j->log, GDN_LOG_INFO, "nvrtc", "compile 1/1 %s%s %s %.0f ms (cached: 0)", job->name, gdn__job_defines(job, defines),
                      job->arch, ms);
    }
    free(buf);
    return st;
}
