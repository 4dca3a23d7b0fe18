/* nvrtc_compile.c - one source to one cubin for exactly the architecture asked for. */
#include "nvrtc_compile.h"
#include "cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double gdn__now_ms(void) {
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC, &t) == 0 ? (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6 : 0;
}

void gdn__compiled_free(gdn__compiled *c) {
    free(c->data);
    free(c->log);
    *c = (gdn__compiled) { 0 };
}

/* Refused by name before the compiler is asked: its own answer says neither what it is nor what it knows. */
gdn_status gdn__nvrtc_knows(const gdn__nvrtc *n, const char *arch, gdn_text *err) {
    uint32_t number;
    char suffix;
    if (!gdn__arch_read(arch, &number, &suffix)) {
        gdn__text_set(err, "architecture '%s': expected sm_<number>, with a or f behind it or not (PTX is never made)", arch);
        return GDN_E_ARCH;
    }
    if ((suffix == 'a' && number < 90) || (suffix == 'f' && number < 100)) {
        gdn__text_set(err, "there is no %s: 'a' is for architectures from 90 on, 'f' from 100 on", arch);
        return GDN_E_ARCH;
    }
    for (int i = 0; i < n->n_archs; i++)
        if (n->archs[i] == (int)number) return GDN_OK;
    gdn__text_set(err, "%s is wanted; NVRTC %d.%d (%s) compiles for", arch, n->major, n->minor, n->path);
    for (int i = 0; i < n->n_archs; i++) gdn__text_add(err, " %d", n->archs[i]);
    if (n->n_archs) gdn__text_add(err, ": %s", (int)number > n->archs[n->n_archs - 1] ? "a newer NVRTC is needed" : "not this one");
    return GDN_E_ARCH;
}

static char *log_of(const gdn__nvrtc *n, void *prog) {
    size_t size = 0;
    if (n->nvrtcGetProgramLogSize(prog, &size) != GDN__NVRTC_OK || size <= 1) return NULL;
    char *log = gdn__alloc(size + 1);
    if (log && n->nvrtcGetProgramLog(prog, log) != GDN__NVRTC_OK) {
        free(log);
        return NULL;
    }
    for (size_t k = log ? strlen(log) : 0; k && (log[k - 1] == '\n' || log[k - 1] == ' '); k--) log[k - 1] = '\0';
    if (log && !*log) {
        free(log);
        return NULL;
    }
    return log;
}

static gdn_status failed(const gdn__nvrtc *n, const gdn_compile_job *job, gdn__nvrtc_result r, const char *log, gdn_text *err) {
    const bool arch = r != GDN__NVRTC_OK && log && (strstr(log, "gpu-architecture") || strstr(log, "nv_arch"));
    const gdn_status st = r == GDN__NVRTC_BUILTIN ? GDN_E_NONVRTC : arch ? GDN_E_ARCH : GDN_E_COMPILE;
    gdn__text_set(err, "%s: %s for %s with NVRTC %d.%d (%s): %s%s%s%s", job->name,
                  st == GDN_E_NONVRTC ? "NVRTC's builtins library is missing or does not fit; it did not compile" : "did not compile",
                  job->arch, n->major, n->minor, n->path, n->nvrtcGetErrorString(r), log ? "\n" : "", log ? log : "",
                  log ? "" : " (no compiler log)");
    return st;
}

static gdn_status take_cubin(const gdn__nvrtc *n, const gdn_compile_job *job, void *prog, gdn__compiled *out, gdn_text *err) {
    const gdn__nvrtc_result r = n->nvrtcGetCUBINSize(prog, &out->size);
    if (r != GDN__NVRTC_OK || out->size == 0) {
        out->size = 0;
        gdn__text_set(err, "%s: NVRTC %d.%d made no machine code for %s (%s)", job->name, n->major, n->minor, job->arch,
                      r == GDN__NVRTC_OK ? "a cubin of 0 bytes" : n->nvrtcGetErrorString(r));
        return GDN_E_COMPILE;
    }
    out->data = gdn__alloc(out->size);
    if (!out->data) {
        gdn__text_set(err, "%s: %s", job->name, gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    const gdn__nvrtc_result got = n->nvrtcGetCUBIN(prog, out->data);
    if (got == GDN__NVRTC_OK && out->size > 4 &&
        !memcmp(out->data,
                "\x7f"
                "ELF",
                4))
        return GDN_OK;
    gdn__text_set(err, "%s: what NVRTC %d.%d made for %s is no ELF file (%s)", job->name, n->major, n->minor, job->arch,
                  n->nvrtcGetErrorString(got));
    return GDN_E_COMPILE;
}

gdn_status gdn__nvrtc_compile(const gdn__nvrtc *n, const gdn_compile_job *job, const char *extra, gdn__compiled *out, gdn_text *err) {
    const double begin = gdn__now_ms();
    void *prog = NULL;
    *out = (gdn__compiled) { 0 };
    gdn_status st = gdn__nvrtc_knows(n, job->arch, err);
    if (st != GDN_OK) return st;
    char *arch = gdn__format("--gpu-architecture=%s", job->arch);
    const char **options = gdn__alloc(((size_t)job->n_options + 2) * sizeof *options);
    int k = 0;
    if (!arch || !options) {
        gdn__text_set(err, "%s: %s", job->name, gdn_status_text(GDN_E_NOMEM));
        st = GDN_E_NOMEM;
        goto out;
    }
    options[k++] = arch;
    for (uint32_t i = 0; i < job->n_options; i++) options[k++] = job->options[i];
    if (extra) options[k++] = extra;
    gdn__nvrtc_result r = n->nvrtcCreateProgram(&prog, job->source, job->name, (int)job->n_headers, job->headers, job->header_names);
    if (r != GDN__NVRTC_OK) {
        st = failed(n, job, r, NULL, err);
        goto out;
    }
    r = n->nvrtcCompileProgram(prog, k, options);
    out->log = log_of(n, prog);
    st = r == GDN__NVRTC_OK ? take_cubin(n, job, prog, out, err) : failed(n, job, r, out->log, err);
out:
    if (prog) (void)n->nvrtcDestroyProgram(&prog);
    free(options);
    free(arch);
    out->ms = gdn__now_ms() - begin;
    if (st != GDN_OK) {
        free(out->data);
        out->data = NULL;
        out->size = 0;
    }
    return st;
}
