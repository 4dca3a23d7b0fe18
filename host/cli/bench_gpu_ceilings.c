/* bench_gpu_ceilings.c - what the device can do at best: copies of 1 GiB (4 where there is room), read + write, and a dense
 * bf16 product.
 *
 * The copy is the best run of the driver's device-to-device memcpy and a 16-byte copy kernel in a few geometries, compiled through NVRTC
 * at run time; without NVRTC the memcpy alone, and copy_by says so. The product is cuBLAS's (bench_gpu_blas.c): 8192 cubed on random
 * values; without it bf16_tflops is null and bf16_by says why. */
#include "bench_gpu.h"
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

/* ---- the product ---- */
enum { N = 8192 };
typedef struct squares {
    const gpu_blas *blas;
    uint64_t a, b, c;
} squares;

static bool gemm_once(void *user, uint32_t i, void *stream) {
    const squares *x = user;
    (void)i;
    (void)stream; /* set before */
    return gpu_blas_product(x->blas, x->a, x->b, x->c, N, N, N);
}

/* TFLOP/s, or NaN and why. */
static double bf16_rate(gpu_bench *b, char *by, size_t cap) {
    gpu_blas blas;
    gpu_times t;
    double rate = NAN;
    if (!gpu_blas_open(b, &blas, by, cap)) return NAN;
    const squares x = { &blas, gpu_bench_take(b, 2ull * N * N, true), gpu_bench_take(b, 2ull * N * N, true),
                        gpu_bench_take(b, 2ull * N * N, false) };
    if (!x.a || !x.b || !x.c) {
        (void)snprintf(by, cap, "no device memory for the matrices");
    } else if (!gpu_clock_plain(&b->clock, gemm_once, (void *)&x, 3, 7, &t)) {
        (void)snprintf(by, cap, "cuBLAS: %.200s", b->clock.why);
    } else {
        rate = 2.0 * N * N * (double)N / t.us_median * 1e-6;
        (void)snprintf(by, cap, "cuBLAS, 8192 cubed, random values, median of 7 runs of 3");
    }
    gpu_blas_close(&blas);
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
