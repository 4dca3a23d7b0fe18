/* nvrtc_open.c - finds NVRTC, says which one, and compiles one line so that a missing part is reported as such. */
#define _GNU_SOURCE /* dlinfo */
#include "cuda_backend.h"
#include "nvrtc_compile.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct entry {
    const char *name;
    size_t at;
} entries[] = {
#define ROW(name, params) { #name, offsetof(gdn__nvrtc, name) },
    GDN__NVRTC_MAP(ROW)
#undef ROW
        { "nvrtcGetErrorString", offsetof(gdn__nvrtc, nvrtcGetErrorString) }
};

static char *path_of(void *library) {
    struct link_map *map = NULL;
    char real[PATH_MAX];
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return NULL;
    return gdn__copy(realpath(map->l_name, real) ? real : map->l_name);
}

static gdn_status resolve(gdn__nvrtc *n, gdn_text *err) {
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *symbol = dlsym(n->library, entries[i].name);
        if (!symbol) {
            gdn__text_set(err, "%s has no %s: too old, or not NVRTC", n->path, entries[i].name);
            return GDN_E_NONVRTC;
        }
        memcpy((char *)n + entries[i].at, &symbol, sizeof symbol);
    }
    return GDN_OK;
}

/* The file of NVRTC's builtins beside the library, or NULL. It is loaded by its bare name at the first compile and libnvrtc does
 * not say where: loading it first makes a toolkit that is on no search path work. */
static char *builtins_beside(const gdn__nvrtc *n) {
    const char *slash = strrchr(n->path, '/');
    struct stat st;
    char *file = slash ? gdn__format("%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - n->path), n->path, n->major, n->minor) : NULL;
    if (file && stat(file, &st) == 0 && dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return file;
    free(file);
    return NULL;
}

static uint64_t size_of(const char *path) {
    struct stat st;
    return path && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Patch releases share their version number, so the sizes of the files go in as well. */
static void identify(gdn__nvrtc *n, const char *builtins) {
    char sizes[64], hash[33];
    (void)snprintf(sizes, sizeof sizes, "%llu %llu", (unsigned long long)size_of(n->path), (unsigned long long)size_of(builtins));
    gdn__hash_hex(sizes, strlen(sizes), hash);
    (void)snprintf(n->id, sizeof n->id, "%d.%d-%.8s", n->major, n->minor, hash);
}

static gdn_status ask(gdn__nvrtc *n, gdn_text *err) {
    int count = 0;
    const char *call = "nvrtcVersion";
    gdn__nvrtc_result r = n->nvrtcVersion(&n->major, &n->minor);
    if (r == GDN__NVRTC_OK) r = n->nvrtcGetNumSupportedArchs(&count), call = "nvrtcGetNumSupportedArchs";
    int *list = r == GDN__NVRTC_OK && count > 0 && count < 4096 ? gdn__alloc((size_t)count * sizeof *list) : NULL;
    if (r == GDN__NVRTC_OK && list) r = n->nvrtcGetSupportedArchs(list), call = "nvrtcGetSupportedArchs";
    if (r != GDN__NVRTC_OK || !list) {
        gdn__text_set(err, "%s: %s: %s", n->path, call, r != GDN__NVRTC_OK ? n->nvrtcGetErrorString(r) : "no usable list");
        free(list);
        return GDN_E_NONVRTC;
    }
    for (int i = 0; i < count && n->n_archs < GDN__NVRTC_MAX_ARCHS; i++) n->archs[n->n_archs++] = list[i];
    free(list);
    return GDN_OK;
}

static gdn_status probe(const gdn__nvrtc *n, gdn_text *err) {
    char arch[24], why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    (void)snprintf(arch, sizeof arch, "sm_%d", n->archs[n->n_archs - 1]);
    const gdn_compile_job job = {
        .struct_size = (uint32_t)sizeof job, .name = "probe.cu", .source = "extern \"C\" __global__ void probe() {}\n", .arch = arch
    };
    gdn__compiled c;
    const gdn_status st = gdn__nvrtc_compile(n, &job, NULL, &c, &text);
    gdn__compiled_free(&c);
    if (st == GDN_OK) return GDN_OK;
    gdn__text_set(err, "NVRTC %d.%d (%s) cannot compile one line: %s", n->major, n->minor, n->path, why);
    return st == GDN_E_NOMEM ? st : GDN_E_NONVRTC;
}

static gdn_status open_one(const char *file, gdn__nvrtc *out, gdn_text *err) {
    *out = (gdn__nvrtc) { 0 };
    (void)dlerror();
    out->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        const char *why = dlerror();
        gdn__text_set(err, "%s", why ? why : "dlopen failed without a reason");
        return GDN_ABSENT;
    }
    out->path = path_of(out->library);
    gdn_status st = out->path ? resolve(out, err) : GDN_E_NOMEM;
    if (st == GDN_E_NOMEM) gdn__text_set(err, "%s", gdn_status_text(st));
    if (st == GDN_OK) st = ask(out, err);
    if (st == GDN_OK) {
        char *builtins = builtins_beside(out);
        identify(out, builtins);
        free(builtins);
        st = probe(out, err);
    }
    if (st != GDN_OK) gdn__nvrtc_close(out);
    return st;
}

gdn_status gdn__nvrtc_open(const char *asked, const gdn__log *log, gdn__nvrtc *out, gdn_text *err) {
    static const char *const places[] = { "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                          "/usr/local/cuda/lib64/libnvrtc.so.12" };
    char why[1024];
    gdn_text text = { why, sizeof why, 0 };
    gdn_status st = GDN_ABSENT, worst = GDN_ABSENT;
    const bool named = asked && *asked;
    gdn__text_set(err, "NVRTC is needed and cannot be used:");
    for (size_t i = 0; i < (named ? 1 : sizeof places / sizeof *places); i++) {
        st = open_one(named ? asked : places[i], out, &text);
        if (st == GDN_OK) break;
        gdn__text_add(err, "%s %s%s", i ? ";" : "", named ? "GDN_NVRTC: " : "", why);
        if (st != GDN_ABSENT) worst = st; /* one that is there and broken says more than those that are not there */
    }
    if (st != GDN_OK) return worst == GDN_E_NOMEM ? worst : GDN_E_NONVRTC;
    gdn__text_set(err, "%s", "");
    gdn__log_line(log, GDN_LOG_INFO, "nvrtc", "NVRTC %d.%d: %s%s", out->major, out->minor, out->path, named ? " (GDN_NVRTC)" : "");
    return GDN_OK;
}

void gdn__nvrtc_close(gdn__nvrtc *n) {
    free(n->path); /* its code stays: it has threads and exit handlers of its own */
    *n = (gdn__nvrtc) { 0 };
}
