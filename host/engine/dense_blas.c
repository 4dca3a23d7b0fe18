/* dense_blas.c - the dense operations on host memory: projections by OpenBLAS in f32, the rest plain loops.
 *
 * Weights are stored as f32 (a bf16 checkpoint widens exactly). bf16 activations are widened into a scratch block, and
 * products rounded on the way out.
 *
 * Threads are OpenMP's, the pool of the cpu target: a product is cut into tiles, each an OpenBLAS call of one thread. Two
 * pools that wait in turns for each other's processors cost more than the products themselves. While a table is open,
 * OpenBLAS is therefore set to one thread; closing the last one gives it back what it had. The tiles do not depend on the
 * number of threads, nor do the results.
 *
 * Up to four rows (decode and verify) take a form in which a row's bits do not depend on how many rows came with it, so
 * that a verified row says what a decoded one would: sgemm, four rows for less than two times the price of one, where this
 * machine's sgemm has that property, else sgemv row by row. */
#include "dense.h"
#include "engine_text.h"
#include "numbers.h"
#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_ROWS = 4,
    FEW_ELEMS = 1 << 17, /* weights a tile of few rows: they stay in the cache from row to row, and OpenBLAS keeps to
                            its kernels for small products, whose limit is rows*in*out of 10^6 */
    FEW_OUT = 128,
    GEMM_STEP = 4,
    MANY_ROWS = 128,
    MANY_OUT = 512,        /* tile of many rows */
    SERIAL_WORK = 1 << 16, /* rows*in*out below which waking threads costs more than it gives */
};

typedef struct blas {
    uint32_t act;
    uint64_t max_elems;
    float *in, *out; /* bf16 only: the widened operand and the product before rounding */
    bool alike;      /* sgemm gives a row the same bits alone and among four            */
} blas;

/* ---- OpenBLAS's own threads ---- */

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static int tables_open, threads_before;

static void threads_take(void) {
    (void)pthread_mutex_lock(&threads_lock);
    if (!tables_open++) {
        threads_before = openblas_get_num_threads();
        openblas_set_num_threads(1);
    }
    (void)pthread_mutex_unlock(&threads_lock);
}

static void threads_give_back(void) {
    (void)pthread_mutex_lock(&threads_lock);
    if (!--tables_open) openblas_set_num_threads(threads_before);
    (void)pthread_mutex_unlock(&threads_lock);
}

/* ---- products ---- */

/* y[rows][n] = x w^T, rows of y out apart */
static void gemm(const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t n, uint32_t out) {
    const int k = (int)in;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)n, k, 1.0f, x, k, w, k, 0.0f, y, (int)out);
}

static void gemv_rows(const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t n, uint32_t out) {
    const int k = (int)in;
    for (uint32_t r = 0; r < rows; r++)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)n, k, 1.0f, w, k, x + (size_t)r * in, 1, 0.0f, y + (size_t)r * out, 1);
}

/* Whether rows of sgemm have the same bits in launches of one to four: tried on columns that are a multiple of GEMM_STEP (an
 * odd rest is another matter, and goes another way). */
static bool rows_are_alike(void) {
    enum { N = 64 + 3 * GEMM_STEP, SIZES = 3, K_MAX = 1003 };
    static const uint32_t sizes[SIZES] = { 64, 250, K_MAX };
    float *x = malloc(sizeof(float) * FEW_ROWS * K_MAX), *w = malloc(sizeof(float) * N * K_MAX), alone[FEW_ROWS * N], among[FEW_ROWS * N];
    bool same = x && w;
    uint32_t bits = 1;
    for (uint32_t i = 0; same && i < (FEW_ROWS + N) * K_MAX; i++) {
        bits = bits * 1664525u + 1013904223u;
        const float v = (float)(bits >> 8) * 0x1p-24f - 0.5f;
        if (i < FEW_ROWS * K_MAX)
            x[i] = v;
        else
            w[i - FEW_ROWS * K_MAX] = v;
    }
    for (uint32_t s = 0; same && s < SIZES; s++) {
        for (uint32_t r = 0; r < FEW_ROWS; r++) gemm(x + r * sizes[s], w, alone + r * N, 1, sizes[s], N, N);
        for (uint32_t rows = 2; same && rows <= FEW_ROWS; rows++) {
            gemm(x, w, among, rows, sizes[s], N, N);
            same = memcmp(alone, among, rows * N * sizeof *alone) == 0;
        }
    }
    free(w);
    free(x);
    return same;
}

static void few_rows(const blas *b, const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t n, uint32_t out) {
    const uint32_t even = b->alike ? n / GEMM_STEP * GEMM_STEP : 0;
    if (even) gemm(x, w, y, rows, in, even, out);
    if (even < n) gemv_rows(x, w + (size_t)even * in, y + even, rows, in, n - even, out);
}

/* y[rows][out] = x w^T */
static void product(const blas *b, const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t out) {
    const bool few = rows <= FEW_ROWS;
    const uint32_t fit = FEW_ELEMS / in < FEW_OUT ? FEW_ELEMS / in : FEW_OUT, few_out = fit >= 16 ? fit / 16 * 16 : fit ? fit : 1;
    const uint32_t tile = few ? few_out : MANY_OUT, across = (out + tile - 1) / tile, down = (rows + MANY_ROWS - 1) / MANY_ROWS;
#pragma omp parallel for schedule(static) collapse(2) if ((uint64_t)rows * in * out > SERIAL_WORK)
    for (uint32_t i = 0; i < down; i++)
        for (uint32_t j = 0; j < across; j++) {
            const uint32_t r = i * MANY_ROWS, o = j * tile, n = out - o < tile ? out - o : tile;
            const uint32_t m = rows - r < MANY_ROWS ? rows - r : MANY_ROWS;
            const float *px = x + (size_t)r * in, *pw = w + (size_t)o * in;
            float *py = y + (size_t)r * out + o;
            if (few)
                few_rows(b, px, pw, py, m, in, n, out);
            else
                gemm(px, pw, py, m, in, n, out);
        }
}

/* ---- opening ---- */

static void blas_close(void *ctx) {
    blas *b = ctx;
    if (!b) return;
    threads_give_back();
    free(b->out);
    free(b->in);
    free(b);
}

static gdn_status blas_open(gdn *g, gdn__stream *stream, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err) {
    (void)g;
    (void)stream;
    *ctx = NULL;
    blas *b = calloc(1, sizeof *b);
    if (!b) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    threads_take();
    b->act = act_type;
    b->max_elems = max_elems;
    b->alike = rows_are_alike();
    if (act_type == GDN_BF16) {
        b->in = malloc((size_t)max_elems * sizeof *b->in);
        b->out = malloc((size_t)max_elems * sizeof *b->out);
        if (!b->in || !b->out) {
            blas_close(b);
            return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
        }
    }
    *ctx = b;
    return GDN_OK;
}

static uint32_t blas_weight_type(uint32_t act_type) {
    (void)act_type;
    return GDN_F32;
}

static void *at(uint64_t address) {
    return (void *)(uintptr_t)address;
}

static gdn_status blas_matmul(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, uint32_t y_type) {
    blas *b = ctx;
    if (!rows) return GDN_OK;
    const uint64_t n_in = (uint64_t)rows * in, n_out = (uint64_t)rows * out;
    if (n_in > b->max_elems || n_out > b->max_elems) return GDN_E_INTERNAL;
    const bool half = b->act == GDN_BF16, narrow = half && y_type == GDN_BF16;
    const float *px = half ? b->in : at(x);
    float *py = narrow ? b->out : at(y);
    if (half)
        for (uint64_t i = 0; i < n_in; i++) b->in[i] = gdn__from_bf16(((const uint16_t *)at(x))[i]);
    product(b, px, at(w), py, rows, in, out);
    if (narrow) {
        for (uint64_t i = 0; i < n_out; i++) ((uint16_t *)at(y))[i] = gdn__to_bf16(py[i]);
    } else if (half) {
        for (uint64_t i = 0; i < n_out; i++) py[i] = gdn__round_bf16(py[i]);
    }
    return GDN_OK;
}

/* ---- row operations, once per activation type ---- */

static float load(const blas *b, uint64_t base, uint64_t i) {
    return b->act == GDN_F32 ? ((const float *)at(base))[i] : gdn__from_bf16(((const uint16_t *)at(base))[i]);
}

static void store(const blas *b, uint64_t base, uint64_t i, float v) {
    if (b->act == GDN_F32)
        ((float *)at(base))[i] = v;
    else
        ((uint16_t *)at(base))[i] = gdn__to_bf16(v);
}

static gdn_status blas_embed(void *ctx, uint64_t w, uint64_t tokens, uint64_t y, uint32_t rows, uint32_t dim) {
    const blas *b = ctx;
    for (uint32_t r = 0; r < rows; r++) {
        const float *src = (const float *)at(w) + (uint64_t)((const uint32_t *)at(tokens))[r] * dim;
        for (uint32_t i = 0; i < dim; i++) store(b, y, (uint64_t)r * dim + i, src[i]);
    }
    return GDN_OK;
}

static gdn_status blas_rms_norm(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps) {
    const blas *b = ctx;
    const float *pw = at(w);
    for (uint32_t r = 0; r < rows; r++) {
        const uint64_t row = (uint64_t)r * dim;
        double sum = 0;
        for (uint32_t i = 0; i < dim; i++) {
            const double v = (double)load(b, x, row + i);
            sum += v * v;
        }
        const float scale = (float)(1.0 / sqrt(sum / dim + (double)eps));
        for (uint32_t i = 0; i < dim; i++) store(b, y, row + i, load(b, x, row + i) * scale * pw[i]);
    }
    return GDN_OK;
}

static gdn_status blas_add(void *ctx, uint64_t x, uint64_t y, uint64_t n) {
    const blas *b = ctx;
    for (uint64_t i = 0; i < n; i++) store(b, y, i, load(b, y, i) + load(b, x, i));
    return GDN_OK;
}

static gdn_status blas_silu_mul(void *ctx, uint64_t gate_up, uint64_t y, uint32_t rows, uint32_t dim) {
    const blas *b = ctx;
    for (uint32_t r = 0; r < rows; r++) {
        const uint64_t gate = (uint64_t)r * 2 * dim, up = gate + dim;
        for (uint32_t i = 0; i < dim; i++) {
            const float g = load(b, gate_up, gate + i);
            float s = g / (1.0f + expf(-g));
            if (b->act == GDN_BF16) s = gdn__round_bf16(s); /* two modules, two roundings */
            store(b, y, (uint64_t)r * dim + i, s * load(b, gate_up, up + i));
        }
    }
    return GDN_OK;
}

const gdn__dense gdn__dense_blas = {
    .name = "OpenBLAS",
    .open = blas_open,
    .close = blas_close,
    .weight_type = blas_weight_type,
    .matmul = blas_matmul,
    .embed = blas_embed,
    .rms_norm = blas_rms_norm,
    .add = blas_add,
    .silu_mul = blas_silu_mul,
};
