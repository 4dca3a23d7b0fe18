/* gpu_jit.c - a small kernel of the bench's or a test's own, through NVRTC at run time; see gpu_clock.h. */
#define _GNU_SOURCE /* dladdr */
#include "gdn_backend.h"
#include "gpu_clock.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(name, exported symbol, parameters) */
#define NVRTC_MAP(X)                                                                                                       \
    X(version, "nvrtcVersion", (int *major, int *minor))                                                                   \
    X(create, "nvrtcCreateProgram",                                                                                        \
      (void **program, const char *source, const char *name, int n, const char *const *headers, const char *const *names)) \
    X(compile, "nvrtcCompileProgram", (void *program, int n, const char *const *options))                                  \
    X(size, "nvrtcGetCUBINSize", (void *program, size_t *bytes))                                                           \
    X(cubin, "nvrtcGetCUBIN", (void *program, char *cubin))                                                                \
    X(destroy, "nvrtcDestroyProgram", (void **program))

enum { MAX_OPTIONS = 12 };
typedef struct nvrtc {
#define FIELD_(name, symbol, params) int(*name) params;
    NVRTC_MAP(FIELD_)
#undef FIELD_
    void *library;
} nvrtc;

static bool nvrtc_open(nvrtc *n, char *why, size_t cap) {
    const char *asked = getenv("GDN_NVRTC");
    const char *const names[] = { asked && *asked ? asked : "libnvrtc.so.13", asked && *asked ? asked : "libnvrtc.so.12",
                                  "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12" };
    const size_t tries = asked && *asked ? 1 : sizeof names / sizeof *names;
    memset(n, 0, sizeof *n);
    for (size_t i = 0; i < tries && !n->library; i++) n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        (void)snprintf(why, cap, "no NVRTC: %.200s", dlerror());
        return false;
    }
    void *symbol;
#define FIND_(name, text, params)                          \
    symbol = dlsym(n->library, text);                      \
    if (!symbol) {                                         \
        (void)snprintf(why, cap, "NVRTC has no %s", text); \
        return false;                                      \
    }                                                      \
    memcpy(&n->name, &symbol, sizeof symbol);
    NVRTC_MAP(FIND_)
#undef FIND_
    return true;
}

void gpu_nvrtc_text(char *buf, size_t cap) {
    nvrtc n;
    Dl_info info = { 0 };
    int major = 0, minor = 0;
    if (!nvrtc_open(&n, buf, cap)) return;
    if (n.version(&major, &minor) != 0) major = minor = 0;
    void *address;
    memcpy(&address, &n.version, sizeof address);
    (void)dladdr(address, &info);
    (void)snprintf(buf, cap, "%d.%d (%s)", major, minor, info.dli_fname ? info.dli_fname : "?");
}

/* job: what of it is set; its architecture is not looked at. */
static bool compile(gpu_clock *c, const gdn_compile_job *job, const char *option, void **module) {
    nvrtc n;
    void *program = NULL;
    char *image = NULL, arch[48];
    const char *options[MAX_OPTIONS] = { arch };
    int n_options = 1;
    size_t bytes = 0;
    *module = NULL;
    if (!nvrtc_open(&n, c->why, sizeof c->why)) return false;
    const bool own = (c->cc_major == 9 && c->cc_minor == 0);
    (void)snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d%s", c->cc_major, c->cc_minor, own ? "a" : "");
    for (uint32_t i = 0; i < job->n_options && n_options < MAX_OPTIONS - 1; i++) options[n_options++] = job->options[i];
    if (option) options[n_options++] = option;
    if (n.create(&program, job->source, job->name, (int)job->n_headers, job->headers, job->header_names) != 0 ||
        n.compile(program, n_options, options) != 0 || n.size(program, &bytes) != 0 || bytes == 0 || !(image = malloc(bytes)) ||
        n.cubin(program, image) != 0)
        (void)snprintf(c->why, sizeof c->why, "NVRTC did not compile %s", job->name);
    else
        (void)gpu_ok(c, c->module_load(module, image), "cuModuleLoadData");
    free(image);
    if (program) (void)n.destroy(&program);
    return *module != NULL;
}

bool gpu_module_make(gpu_clock *c, const gdn_compile_job *job, const char *option, void **module) {
    return compile(c, job, option, module);
}

bool gpu_kernel_make(gpu_clock *c, const char *source, const char *entry, gpu_kernel *out) {
    const gdn_compile_job job = { .name = entry, .source = source };
    *out = (gpu_kernel) { 0 };
    if (compile(c, &job, NULL, &out->module) && !gpu_ok(c, c->module_function(&out->function, out->module, entry), "cuModuleGetFunction"))
        gpu_kernel_free(c, out);
    return out->function != NULL;
}

void gpu_kernel_free(gpu_clock *c, gpu_kernel *k) {
    if (k->module) (void)c->module_unload(k->module);
    *k = (gpu_kernel) { 0 };
}

bool gpu_kernel_go(gpu_clock *c, const gpu_kernel *k, uint32_t grid, uint32_t block, void *stream, void **params) {
    return gpu_ok(c, c->launch(k->function, grid, 1, 1, block, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
}
