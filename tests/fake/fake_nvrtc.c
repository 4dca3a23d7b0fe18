/* fake_nvrtc.c - an NVRTC for tests: makes an image of arch and source, with the manners of the real one that matter here.
 * Built twice, as 13.0 and as 12.9 (FAKE_MAJOR, FAKE_MINOR). Sources that say FAIL do not compile, WARN gives a log, EMPTY
 * gives a cubin of 0 bytes. */
#define _GNU_SOURCE
#include "fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
typedef struct program {
    char *source, *name, *log, *cubin;
    size_t size;
} program;
static fake_nvrtc state;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the options */

EXPORT fake_nvrtc *fake_nvrtc_state(void) {
    return &state;
}

#define API(name, ...)            \
    EXPORT int name(__VA_ARGS__); \
    EXPORT int name(__VA_ARGS__)

EXPORT const char *nvrtcGetErrorString(int r);
EXPORT const char *nvrtcGetErrorString(int r) {
    return r == 6 ? "NVRTC_ERROR_COMPILATION" : r == 7 ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE" : "NVRTC_ERROR_FAKE";
}
API(nvrtcVersion, int *major, int *minor) {
    *major = FAKE_MAJOR;
    *minor = FAKE_MINOR;
    return 0;
}
API(nvrtcGetNumSupportedArchs, int *n) {
    *n = FAKE_MAJOR >= 13 ? 3 : 2;
    return 0;
}
API(nvrtcGetSupportedArchs, int *archs) {
    const int list[] = { 90, 100, 121 };
    memcpy(archs, list, (FAKE_MAJOR >= 13 ? 3 : 2) * sizeof *list);
    return 0;
}
API(nvrtcCreateProgram, void **prog, const char *src, const char *name, int n, const char *const *headers, const char *const *names) {
    (void)headers;
    (void)names;
    if (n < 0) return 3;
    program *p = calloc(1, sizeof *p);
    if (!p) return 1;
    p->source = strdup(src);
    p->name = strdup(name);
    atomic_fetch_add(&state.live, 1);
    *prog = p;
    return 0;
}
API(nvrtcDestroyProgram, void **prog) {
    program *p = *prog;
    free(p->source);
    free(p->name);
    free(p->log);
    free(p->cubin);
    free(p);
    *prog = NULL;
    atomic_fetch_sub(&state.live, 1);
    return 0;
}
static int make_log(program *p, const char *fmt) {
    return asprintf(&p->log, fmt, p->name) < 0 ? -1 : 0;
}
API(nvrtcCompileProgram, void *prog, int n, const char *const *options) {
    program *p = prog;
    const char *arch = "";
    char text[1024] = "";
    const int running = atomic_fetch_add(&state.running, 1) + 1;
    if (running > atomic_load(&state.most_running)) atomic_store(&state.most_running, running);
    atomic_fetch_add(&state.compiles, 1);
    for (int i = 0; i < n; i++) {
        const size_t k = strlen(text);
        if (!strncmp(options[i], "--gpu-architecture=", 19)) arch = options[i] + 19;
        (void)snprintf(text + k, sizeof text - k, "%s ", options[i]);
    }
    (void)pthread_mutex_lock(&mutex);
    memcpy(state.options, text, sizeof text);
    (void)pthread_mutex_unlock(&mutex);
    const char *slow = getenv("FAKE_NVRTC_SLEEP_MS"); /* of a program of its own */
    const long ms = slow ? strtol(slow, NULL, 10) : state.sleep_ms;
    if (ms > 0) {
        const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
        (void)nanosleep(&t, NULL);
    }
    atomic_fetch_sub(&state.running, 1);
    if (state.builtins_missing) {
        (void)make_log(p, "nvrtc: error: failed to open libnvrtc-builtins.so (%s)\n");
        return 7;
    }
    if (strstr(p->source, "FAIL")) {
        (void)make_log(p, "%s(3): error: identifier \"FAIL\" is undefined\n\n1 error detected in the compilation.\n");
        return 6;
    }
    if (strstr(p->source, "WARN")) (void)make_log(p, "%s(1): warning #177-D: variable was declared but never referenced\n");
    if (strstr(p->source, "EMPTY")) return 0;
    p->size = 8 + strlen(arch) + 1 + strlen(p->source) + 16 + strlen(text) + 1;
    p->cubin = calloc(1, p->size);
    if (!p->cubin) return 1;
    memcpy(p->cubin,
           "\x7f"
           "ELF",
           4);
    (void)snprintf(p->cubin + 8, p->size - 8, "%s %s\n/* options: %s*/", arch, p->source, text);
    return 0;
}
API(nvrtcGetProgramLogSize, void *prog, size_t *size) {
    const program *p = prog;
    *size = (p->log ? strlen(p->log) : 0) + 1;
    return 0;
}
API(nvrtcGetProgramLog, void *prog, char *log) {
    const program *p = prog;
    (void)strcpy(log, p->log ? p->log : "");
    return 0;
}
API(nvrtcGetCUBINSize, void *prog, size_t *size) {
    *size = ((program *)prog)->size;
    return 0;
}
API(nvrtcGetCUBIN, void *prog, char *cubin) {
    const program *p = prog;
    memcpy(cubin, p->cubin, p->size);
    return 0;
}
