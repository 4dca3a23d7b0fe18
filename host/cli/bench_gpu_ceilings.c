/* bench_gpu_ceilings.c - what the device can do at best: copies of 1 GiB (4 where there is room), read + write, and a dense
 * bf16 product.
 *
 * The copy is the best run of the driver's device-to-device memcpy and a 16-byte copy kernel in a few geometries, compiled through NVRTC
 * at run time; without NVRTC the memcpy alone, and copy_by says so. The product is cuBLAS's, opened at run time (CUBLAS_LIBRARY, else
 * libcublas.so.13, .12): 8192 cubed on random values; without it bf16_tflops is null and bf16_by says why. */
#include "bench_gpu.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char copy_source[] =
    "template <int U> static __device__ void copy(const uint4 *a, uint4 *b, unsigned long long n) {\n"
    "    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x * U + threadIdx.x; i < n;\n"
    "         i += (unsigned long long)gridDim.x * blockDim.x * U) {\n"
    "        uint4 v[U];\n"
    "#pragma unroll\n"
    "        for (int u = 0; u < U; u++) if (i + u * blockDim.x < n) v[u] = __ldcs(a + i + u * blockDim.x);\n"
    "#pragma unroll\n"
    "        for (int u = 0; u < U; u++) if (i + u * blockDim.x < n) __stcs(b + i + u * blockDim.x, v[u]);\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void gdn_copy(const uint4 *a, uint4 *b, unsigned long long n, int u) {\n"
    "    if (u == 1) copy<1>(a, b, n); else if (u == 2) copy<2>(a, b, n); else if (u == 4) copy<4>(a, b, n); else copy<8>(a, b, n);\n"
    "}\n";

typedef struct copying {
    gpu_clock *c;
    const gpu_kernel *k; /* NULL: memcpy */
    uint64_t from, to, bytes;
    uint32_t grid, block;
    int unroll;
} copying;

static bool copy_once(void *user, uint32_t i, void *stream) {
    const copying *w = user;
    uint64_t from = i % 2 ? w->to : w->from, to = i % 2 ? w->from : w->to, n = w->bytes / 16;
    int unroll = w->unroll;
    if (!w->k) return w->c->copy_dtod(to, from, w->bytes, stream) == 0;
    void *params[] = { &from, &to, &n, &unroll };
    return gpu_kernel_go(w->c, w->k, w->grid, w->block, stream, params);
}

/* The best of all geometries; 0 without a kernel. */
static double copy_kernel(gpu_bench *b, copying *w, char *by, size_t cap) {
    static const uint32_t blocks[] = { 256, 512, 1024 }, waves[] = { 1, 2, 4, 8, 0 };
    static const int unrolls[] = { 1, 2, 4, 8 };
    gpu_kernel k;
    gpu_times t;
    double best = 0;
    if (!gpu_kernel_make(&b->clock, copy_source, "gdn_copy", &k)) {
        (void)snprintf(by, cap, "memcpy alone: %.200s", b->clock.why);
        return 0;
    }
    w->k = &k;
    for (uint32_t i = 0; i < 3 * 5 * 4; i++) {
        const uint32_t wave = waves[i / 3 % 5], full = 2048 / blocks[i % 3] * (uint32_t)b->clock.sm_count;
        w->block = blocks[i % 3];
        w->unroll = unrolls[i / 15];
        const uint64_t all = (w->bytes / 16 + (uint64_t)w->block * (uint32_t)w->unroll - 1) / ((uint64_t)w->block * (uint32_t)w->unroll);
        w->grid = wave ? wave * full : (uint32_t)all;
        if (!gpu_clock_plain(&b->clock, copy_once, w, 2, 3, &t)) break;
        const double gbps = 2e-3 * (double)w->bytes / t.us_best;
        if (gbps <= best) continue;
        best = gbps;
        (void)snprintf(by, cap, "16-byte kernel, %u blocks of %u threads, %d words a thread", w->grid, w->block, w->unroll);
    }
    gpu_kernel_free(&b->clock, &k);
    w->k = NULL;
    return best;
}

/* ---- cuBLAS ---- */
typedef struct blas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b,
                int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
    void *library, *handle;
    uint64_t a, b, c;
} blas;
enum { N = 8192, R_16BF = 14, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1 };

static bool gemm_once(void *user, uint32_t i, void *stream) {
    const blas *x = user;
    const float one = 1, zero = 0;
    (void)i;
    (void)stream; /* set before */
    void *p[3];
    const uint64_t address[3] = { x->a, x->b, x->c };
    for (int j = 0; j < 3; j++) p[j] = (void *)(uintptr_t)address[j]; /* NOLINT(performance-no-int-to-ptr): a device address */
    return x->gemm(x->handle, 1, 0, N, N, N, &one, p[0], R_16BF, N, p[1], R_16BF, N, &zero, p[2], R_16BF, N, COMPUTE_32F,
                   DEFAULT_ALGORITHM) == 0;
}

static bool blas_find(blas *x, char *why, size_t cap) {
    const char *asked = getenv("CUBLAS_LIBRARY");
    const char *const names[] = { asked && *asked ? asked : "libcublas.so.13", "libcublas.so.12" };
    for (size_t i = 0; i < (asked && *asked ? 1u : 2u) && !x->library; i++) x->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!x->library) {
        (void)snprintf(why, cap, "no cuBLAS: %.200s", dlerror());
        return false;
    }
    void *symbol[4] = { dlsym(x->library, "cublasCreate_v2"), dlsym(x->library, "cublasDestroy_v2"),
                        dlsym(x->library, "cublasSetStream_v2"), dlsym(x->library, "cublasGemmEx") };
    if (!symbol[0] || !symbol[1] || !symbol[2] || !symbol[3]) {
        (void)snprintf(why, cap, "cuBLAS lacks an entry");
        return false;
    }
    memcpy(&x->create, &symbol[0], sizeof symbol[0]);
    memcpy(&x->destroy, &symbol[1], sizeof symbol[1]);
    memcpy(&x->set_stream, &symbol[2], sizeof symbol[2]);
    memcpy(&x->gemm, &symbol[3], sizeof symbol[3]);
    return true;
}

/* TFLOP/s, or NaN and why. */
static double bf16_rate(gpu_bench *b, char *by, size_t cap) {
    blas x = { 0 };
    gpu_times t;
    double rate = NAN;
    if (!blas_find(&x, by, cap)) return NAN;
    x.a = gpu_bench_take(b, 2ull * N * N, true);
    x.b = gpu_bench_take(b, 2ull * N * N, true);
    x.c = gpu_bench_take(b, 2ull * N * N, false);
    if (!x.a || !x.b || !x.c || x.create(&x.handle) != 0 || x.set_stream(x.handle, b->clock.stream) != 0) {
        (void)snprintf(by, cap, "cuBLAS could not be started");
    } else if (!gpu_clock_plain(&b->clock, gemm_once, &x, 3, 7, &t)) {
        (void)snprintf(by, cap, "cuBLAS: %.200s", b->clock.why);
    } else {
        rate = 2.0 * N * N * (double)N / t.us_median * 1e-6;
        (void)snprintf(by, cap, "cuBLAS, 8192 cubed, random values, median of 7 runs of 3");
    }
    if (x.handle) (void)x.destroy(x.handle);
    gpu_bench_release(b);
    return rate;
}

bool gpu_bench_ceilings(gpu_bench *b, json_t *doc) {
    copying w = { .c = &b->clock, .bytes = (uint64_t)1 << 30 };
    gpu_times t;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    char by[256] = "memcpy", dense[256] = "";
    if (gdn_describe(b->g, &info) == GDN_OK && info.device.memory_bytes >> 35) w.bytes <<= 2; /* 32 GiB and more */
    w.from = gpu_bench_take(b, w.bytes, true);
    w.to = gpu_bench_take(b, w.bytes, true);
    if (!w.from || !w.to) return false;
    if (!gpu_clock_plain(&b->clock, copy_once, &w, 2, 9, &t)) {
        cli_error(b->cli, "the copy could not be timed: %s", b->clock.why);
        return false;
    }
    const double memcpy_gbps = 2e-3 * (double)w.bytes / t.us_best, kernel = copy_kernel(b, &w, by, sizeof by);
    if (kernel > 0 && kernel < memcpy_gbps) (void)snprintf(by, sizeof by, "memcpy (the 16-byte kernel reached %.0f)", kernel);
    gpu_bench_release(b);
    const double rate = bf16_rate(b, dense, sizeof dense);
    json_object_set_new(doc, "memcpy_gbps", json_real(memcpy_gbps));
    json_object_set_new(doc, "copy_gbps", json_real(fmax(memcpy_gbps, kernel)));
    json_object_set_new(doc, "copy_by", json_string(by));
    json_object_set_new(doc, "bf16_tflops", isnan(rate) ? json_null() : json_real(rate));
    json_object_set_new(doc, "bf16_by", json_string(dense));
    return true;
}
