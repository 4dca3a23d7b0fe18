/* cublas.c - see cublas.h. */
#define _GNU_SOURCE /* secure_getenv */
#include "cublas.h"
#include "engine_text.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(field, symbol, parameters); every one answers a cublasStatus_t. */
#define CUBLAS_CALLS(X)                                                                                                             \
    X(create, "cublasCreate_v2", (void **handle))                                                                                   \
    X(destroy, "cublasDestroy_v2", (void *handle))                                                                                  \
    X(set_stream, "cublasSetStream_v2", (void *handle, void *stream))                                                               \
    X(set_workspace, "cublasSetWorkspace_v2", (void *handle, void *workspace, size_t bytes))                                        \
    X(set_math, "cublasSetMathMode", (void *handle, int mode))                                                                      \
    X(gemm, "cublasGemmEx",                                                                                                         \
      (void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b, \
       int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm))

/* cublasOperation_t, cudaDataType, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t */
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, ALGO_DEFAULT = -1, NO_REDUCED_PRECISION = 16 };

struct gdn__cublas {
#define FIELD(field, symbol, params) int(*field) params;
    CUBLAS_CALLS(FIELD)
#undef FIELD
    void *library, *handle;
};

static const char *reason_of(const char *file) {
    const char *why = dlerror();
    const size_t n = strlen(file);
    if (!why) return "no reason given";
    return strncmp(why, file, n) == 0 && why[n] == ':' ? why + n + 2 : why; /* glibc begins with the name */
}

/* The library stays mapped: it has threads and exit handlers of its own. */
static gdn_status find_library(gdn__cublas *b, gdn_text *err) {
    const char *const asked = secure_getenv("CUBLAS_LIBRARY");
    const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13",
                                  "/usr/local/cuda/lib64/libcublas.so.12" };
    const bool one = asked && *asked;
    char tried[700] = "";
    size_t n = 0;
    for (size_t i = 0; !b->library && i < (one ? 1 : sizeof names / sizeof *names); i++) {
        const char *const file = one ? asked : names[i];
        b->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (b->library || n + 1 >= sizeof tried) continue;
        const int k = snprintf(tried + n, sizeof tried - n, "%s%s (%.100s)", n ? ", " : "", file, reason_of(file));
        n += k > 0 ? (size_t)k : 0;
    }
    if (b->library) return GDN_OK;
    return gdn__engine_say(err, GDN_E_LOAD, "no cuBLAS for the dense products; tried %s; CUBLAS_LIBRARY%s names the file", tried,
                           one ? ", which is set," : "");
}

static gdn_status resolve(gdn__cublas *b, gdn_text *err) {
#define FIND(field, symbol, params)                                                                   \
    do {                                                                                              \
        void *found = dlsym(b->library, symbol);                                                      \
        if (!found) return gdn__engine_say(err, GDN_E_LOAD, "cuBLAS: the library has no %s", symbol); \
        memcpy(&b->field, &found, sizeof found);                                                      \
    } while (0);
    CUBLAS_CALLS(FIND)
#undef FIND
    return GDN_OK;
}

static gdn_status check(int r, const char *call, gdn_text *err) {
    return r ? gdn__engine_say(err, r == 3 ? GDN_E_NOMEM : GDN_E_DRIVER, "cuBLAS: %s answered %d", call, r) : GDN_OK;
}

static void *at(uint64_t address) {
    return (void *)(uintptr_t)address;
}

gdn_status gdn__cublas_open(void *stream, uint64_t workspace, gdn__cublas **out, gdn_text *err) {
    *out = NULL;
    gdn__cublas *b = calloc(1, sizeof *b);
    if (!b) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    gdn_status st = find_library(b, err);
    if (st == GDN_OK) st = resolve(b, err);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): resolve fills every entry, through copies */
    if (st == GDN_OK) st = check(b->create(&b->handle), "cublasCreate", err);
    /* The stream first: setting it gives the handle its own workspace back. */
    if (st == GDN_OK) st = check(b->set_stream(b->handle, stream), "cublasSetStream", err);
    if (st == GDN_OK) st = check(b->set_workspace(b->handle, at(workspace), GDN__CUBLAS_WORKSPACE), "cublasSetWorkspace", err);
    if (st == GDN_OK) st = check(b->set_math(b->handle, NO_REDUCED_PRECISION), "cublasSetMathMode", err);
    if (st != GDN_OK) {
        gdn__cublas_close(b);
        return st;
    }
    *out = b;
    return GDN_OK;
}

void gdn__cublas_close(gdn__cublas *b) {
    if (!b) return;
    if (b->handle) (void)b->destroy(b->handle);
    free(b);
}

/* cuBLAS stores columns: there, y^T [out][rows] = (w^T)^T x^T. */
gdn_status gdn__cublas_matmul(gdn__cublas *b, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, int wide) {
    const float one = 1, zero = 0;
    if (!rows) return GDN_OK;
    if (rows > INT_MAX || in > INT_MAX || out > INT_MAX) return GDN_E_ARG;
    const int m = (int)out, n = (int)rows, k = (int)in;
    return check(b->gemm(b->handle, OP_T, OP_N, m, n, k, &one, at(w), R_16BF, k, at(x), R_16BF, k, &zero, at(y), wide ? R_32F : R_16BF, m,
                         COMPUTE_32F, ALGO_DEFAULT),
                 "cublasGemmEx", NULL);
}
