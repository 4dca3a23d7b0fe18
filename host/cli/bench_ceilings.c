/* bench_ceilings.c - what this machine can do at best: copies, an in-place scale, sgemm. Each uses the same OpenMP threads as the kernels.
 *
 * sgemm runs one single-threaded BLAS call in each OpenMP thread: BLAS's own threads would inherit the binding of the main thread. */
#include "bench.h"
#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* On x86-64 the loops exist for the wider registers too, as the kernels do. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_add(bench_samples *b, double seconds) {
    if (b->n < BENCH_MAX_REPS) b->s[b->n++] = seconds;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(const bench_samples *b, double q) {
    double s[BENCH_MAX_REPS];
    if (b->n == 0) return NAN;
    memcpy(s, b->s, b->n * sizeof *s);
    qsort(s, b->n, sizeof *s, ascending);
    return s[(uint32_t)(q * (b->n - 1) + 0.5)];
}

/* Thread t's share of n floats, whole cache lines. */
static void share(uint64_t n, uint64_t *from, uint64_t *to) {
    const uint64_t t = (uint64_t)omp_get_thread_num(), all = (uint64_t)omp_get_num_threads(), each = (n / all + 15) / 16 * 16;
    *from = t * each < n ? t * each : n;
    *to = *from + each < n ? *from + each : n;
}

CLONES static void scale_some(float *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) p[i] *= 0.999f;
}

void bench_scale(float *p, uint64_t n) {
#pragma omp parallel
    {
        uint64_t a, z;
        share(n, &a, &z);
        scale_some(p + a, z - a);
    }
}

void bench_memcpy(float *dst, const float *src, uint64_t n) {
#pragma omp parallel
    {
        uint64_t a, z;
        share(n, &a, &z);
        memcpy(dst + a, src + a, (size_t)(z - a) * sizeof *dst);
    }
}

static void stream_some(float *dst, const float *src, uint64_t n) {
    uint64_t i = 0;
#if defined(__SSE2__)
    for (; i + 4 <= n; i += 4) _mm_stream_ps(dst + i, _mm_load_ps(src + i));
    _mm_sfence();
#endif
    memcpy(dst + i, src + i, (size_t)(n - i) * sizeof *dst);
}

void bench_stream_copy(float *dst, const float *src, uint64_t n) {
#pragma omp parallel
    {
        uint64_t a, z;
        share(n, &a, &z);
        stream_some(dst + a, src + a, z - a);
    }
}

void bench_sgemm(bench *b) {
    enum { N = BENCH_SGEMM_N };
#pragma omp parallel
    {
        const int threads = omp_get_num_threads(), t = omp_get_thread_num(), from = N * t / threads, to = N * (t + 1) / threads;
        if (to > from)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, to - from, N, N, 1, b->sgemm_a + (size_t)from * N, N, b->sgemm_b, N, 0,
                        b->sgemm_c + (size_t)from * N, N);
    }
}

bool bench_open_ceilings(bench *b) {
    enum { N = BENCH_SGEMM_N };
    const size_t square = (size_t)N * N * sizeof(float);
    b->pool = aligned_alloc((size_t)2 << 20, (size_t)b->pool_bytes);
    b->other = aligned_alloc((size_t)2 << 20, (size_t)b->pool_bytes);
    b->sgemm_a = aligned_alloc(4096, square);
    b->sgemm_b = aligned_alloc(4096, square);
    b->sgemm_c = aligned_alloc(4096, square);
    if (!b->pool || !b->other || !b->sgemm_a || !b->sgemm_b || !b->sgemm_c) return false;
    openblas_set_num_threads(1);
    const uint64_t n = b->pool_bytes / sizeof(float);
#pragma omp parallel
    {
        uint64_t a, z;
        share(n, &a, &z);
        for (uint64_t i = a; i < z; i++) b->pool[i] = b->other[i] = 1e-3f;
    }
    for (size_t i = 0; i < (size_t)N * N; i++) b->sgemm_a[i] = b->sgemm_b[i] = (float)(i % 251) * 0.003f;
    return true;
}

void bench_close_ceilings(bench *b) {
    free(b->pool);
    free(b->other);
    free(b->sgemm_a);
    free(b->sgemm_b);
    free(b->sgemm_c);
}

void bench_measure_machine(bench *b, bench_machine *out) {
    const uint64_t n = b->pool_bytes / sizeof(float);
    const double bytes = 2 * (double)b->pool_bytes, flop = 2.0 * BENCH_SGEMM_N * BENCH_SGEMM_N * BENCH_SGEMM_N;
    double best[4] = { 0, 0, 0, 0 };
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 4; k++) {
            const double t0 = bench_now();
            if (k == 0)
                bench_memcpy(b->other, b->pool, n);
            else if (k == 1)
                bench_stream_copy(b->other, b->pool, n);
            else if (k == 2)
                bench_scale(b->pool, n);
            else
                bench_sgemm(b);
            best[k] = fmax(best[k], (k < 3 ? bytes : flop) / (bench_now() - t0) * 1e-9);
        }
        cli_progress("ceilings", (uint64_t)i + 1, 5);
    }
    *out = (bench_machine) { best[0], best[1], best[2], best[3], omp_get_max_threads() };
}
