/* fake_cublas.c - a cuBLAS of one product, for the emulated device: y = x w^T of bf16 rows, sums in f32, on host memory. It goes by the
 * fake driver's streams, so that it can be captured, and refuses whatever else it is asked for. */
#include "fake_graph.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define API(name, ...)                                            \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    __attribute__((visibility("default"))) int name(__VA_ARGS__)
enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };

typedef struct handle {
    void *stream, *workspace;
    int math;
    int (*enqueue)(void *stream, fake_work work, const void *args, size_t bytes);
} handle;

typedef struct product {
    const uint16_t *x, *w;
    void *y;
    int rows, in, out, wide;
} product;

static float widen(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t narrow(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static int run(void *args) {
    const product *p = args;
    float *x = malloc((size_t)p->in * sizeof *x);
    if (!x) return 3;
    for (int r = 0; r < p->rows; r++) {
        for (int k = 0; k < p->in; k++) x[k] = widen(p->x[(size_t)r * (size_t)p->in + (size_t)k]);
        for (int o = 0; o < p->out; o++) {
            const uint16_t *w = p->w + (size_t)o * (size_t)p->in;
            float sum[8] = { 0 };
            for (int k = 0; k < p->in; k++) sum[k % 8] += x[k] * widen(w[k]);
            const float all = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
            const size_t at = (size_t)r * (size_t)p->out + (size_t)o;
            if (p->wide)
                ((float *)p->y)[at] = all;
            else
                ((uint16_t *)p->y)[at] = narrow(all);
        }
    }
    free(x);
    return 0;
}

/* The driver of this process, and the context that must be current. */
static int driver(handle *h) {
    void *(*current)(void) = NULL, *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *enqueue = library ? dlsym(library, "fake_enqueue") : NULL, *ask = library ? dlsym(library, "fake_cuda_current") : NULL;
    if (!enqueue || !ask) return NOT_INITIALIZED;
    memcpy(&h->enqueue, &enqueue, sizeof enqueue);
    memcpy(&current, &ask, sizeof ask);
    return current() ? 0 : NOT_INITIALIZED;
}

API(cublasCreate_v2, void **out) {
    handle *h = calloc(1, sizeof *h);
    const int r = h ? driver(h) : 3;
    if (r) free(h);
    *out = r ? NULL : h;
    return r;
}
API(cublasDestroy_v2, void *h) {
    const int r = driver(h);
    free(h);
    return r;
}
API(cublasSetStream_v2, void *h, void *stream) {
    ((handle *)h)->stream = stream;
    ((handle *)h)->workspace = NULL;
    return 0;
}
API(cublasSetWorkspace_v2, void *h, void *workspace, size_t bytes) {
    ((handle *)h)->workspace = workspace;
    return workspace && bytes ? 0 : INVALID_VALUE;
}
API(cublasSetMathMode, void *h, int mode) {
    ((handle *)h)->math = mode;
    return 0;
}
API(cublasGemmEx, void *handle_, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
    const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm) {
    handle *h = handle_;
    float scale, keep;
    memcpy(&scale, alpha, sizeof scale);
    memcpy(&keep, beta, sizeof keep);
    if (driver(h)) return NOT_INITIALIZED;
    if (m < 1 || n < 1 || k < 1 || lda < k || ldb < k || ldc < m) return INVALID_VALUE;
    /* An own workspace or a capture would allocate; products that lose bits are not what dense.h promises. */
    if (!h->workspace || h->math != 16) return NOT_SUPPORTED;
    if (op_a != 1 || op_b != 0 || type_a != 14 || type_b != 14 || (type_c != 14 && type_c != 0) || compute != 68 || algorithm != -1 ||
        scale < 1 || scale > 1 || keep < 0 || keep > 0 || lda != k || ldb != k || ldc != m)
        return NOT_SUPPORTED;
    const product p = { b, a, c, n, k, m, type_c == 0 };
    return h->enqueue(h->stream, run, &p, sizeof p) ? 13 : 0;
}
