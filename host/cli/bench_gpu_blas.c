/* bench_gpu_blas.c - bf16 products by cuBLAS, opened at run time: CUBLAS_LIBRARY, else libcublas.so.13, .12. */
#include "bench_gpu.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { R_16BF = 14, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1, WORKSPACE = 32 << 20 };

static bool find(gpu_blas *x, char *why, size_t cap) {
    const char *asked = getenv("CUBLAS_LIBRARY");
    const char *const names[] = { asked && *asked ? asked : "libcublas.so.13", "libcublas.so.12" };
    const struct {
        void *to;
        const char *name;
    } calls[] = { { &x->create, "cublasCreate_v2" },
                  { &x->destroy, "cublasDestroy_v2" },
                  { &x->set_stream, "cublasSetStream_v2" },
                  { &x->set_workspace, "cublasSetWorkspace_v2" },
                  { &x->gemm, "cublasGemmEx" } };
    for (size_t i = 0; i < (asked && *asked ? 1u : 2u) && !x->library; i++) x->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!x->library) {
        (void)snprintf(why, cap, "no cuBLAS: %.200s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *const found = dlsym(x->library, calls[i].name);
        if (!found) {
            (void)snprintf(why, cap, "cuBLAS has no %s", calls[i].name);
            return false;
        }
        memcpy(calls[i].to, &found, sizeof found);
    }
    return true;
}

static void *at(uint64_t address) {
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr): a device address */
}

/* The workspace is given, so that nothing is allocated while a graph is captured. */
bool gpu_blas_open(gpu_bench *b, gpu_blas *x, char *why, size_t cap) {
    *x = (gpu_blas) { 0 };
    if (!find(x, why, cap)) return false;
    const uint64_t workspace = gpu_bench_take(b, WORKSPACE, false);
    if (workspace && x->create(&x->handle) == 0 && x->set_stream(x->handle, b->clock.stream) == 0 &&
        x->set_workspace(x->handle, at(workspace), WORKSPACE) == 0)
        return true;
    (void)snprintf(why, cap, "cuBLAS could not be started");
    gpu_blas_close(x);
    return false;
}

/* The library stays mapped: it has threads and exit handlers of its own. */
void gpu_blas_close(gpu_blas *x) {
    if (x->handle) (void)x->destroy(x->handle);
    x->handle = NULL;
}

/* cuBLAS stores columns: there, c^T [N][M] = (w^T)^T a^T. */
bool gpu_blas_product(const gpu_blas *x, uint64_t a, uint64_t w, uint64_t c, uint32_t M, uint32_t N, uint32_t K) {
    const float one = 1, zero = 0;
    if (M > INT_MAX || N > INT_MAX || K > INT_MAX) return false;
    return x->gemm(x->handle, 1, 0, (int)N, (int)M, (int)K, &one, at(w), R_16BF, (int)K, at(a), R_16BF, (int)K, &zero, at(c), R_16BF,
                   (int)N, COMPUTE_32F, DEFAULT_ALGORITHM) == 0;
}
