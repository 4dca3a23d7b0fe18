/* dense_blas.c - the dense operations on host memory: projections by OpenBLAS in f32, the rest plain loops.
 *
 * Weights are stored as f32 (a bf16 checkpoint widens exactly). bf16 activations are widened into a scratch block, and
 * products rounded on the way out. The operations of the cpu target use OpenMP; so that two pools of threads do not take the
 * cores from each other, a product is cut into fixed tiles over OpenMP threads and OpenBLAS itself runs single. The tiles
 * depend on the shape only, so the bits do not depend on the number of threads. Up to four rows go through gemv one by one,
 * a block of weights at a time (the later rows find it in the cache): a row's bits do not depend on how many rows came with
 * it, and a verified row says what a decoded one would. */
#include "dense.h"
#include "engine_text.h"
#include "numbers.h"
#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { GEMV_ROWS = 4, TILE_ROWS = 256, TILE_OUT = 128 };
/* Below these a product or a loop over rows takes less time than waiting for another thread may. */
enum { THREADS_PRODUCT = 1 << 22, THREADS_ROWS = 64 };

typedef struct blas {
    uint32_t act;
    uint64_t max_elems;
    int threads;     /* OpenBLAS's own, put back at the end */
    float *in, *out; /* bf16 only: the widened operand and the product before rounding */
} blas;

static void blas_close(void *ctx) {
    blas *b = ctx;
    if (!b) return;
    openblas_set_num_threads(b->threads);
    free(b->out);
    free(b->in);
    free(b);
}

static gdn_status blas_open(gdn *g, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err) {
    (void)g;
    *ctx = NULL;
    blas *b = calloc(1, sizeof *b);
    if (!b) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    b->act = act_type;
    b->max_elems = max_elems;
    b->threads = openblas_get_num_threads();
    openblas_set_num_threads(1);
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

/* y[rows][out] = x w^T for a tile of rows and outputs. */
static void tile(const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t n, uint32_t y_stride) {
    const int k = (int)in, cols = (int)n;
    if (rows > GEMV_ROWS) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, cols, k, 1.0f, x, k, w, k, 0.0f, y, (int)y_stride);
        return;
    }
    for (uint32_t r = 0; r < rows; r++)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, cols, k, 1.0f, w, k, x + (size_t)r * in, 1, 0.0f, y + (size_t)r * y_stride, 1);
}

static void product(const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t out) {
    const bool threads = (uint64_t)rows * in * out > THREADS_PRODUCT;
    const int64_t across = (out + TILE_OUT - 1) / TILE_OUT, down = rows > GEMV_ROWS ? (rows + TILE_ROWS - 1) / TILE_ROWS : 1;
#pragma omp parallel for schedule(static) if (threads)
    for (int64_t i = 0; i < across * down; i++) {
        const uint32_t o = (uint32_t)(i % across) * TILE_OUT, r = (uint32_t)(i / across) * TILE_ROWS;
        const uint32_t n = out - o < TILE_OUT ? out - o : TILE_OUT, m = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
        tile(x + (size_t)r * in, w + (size_t)o * in, y + (size_t)r * out + o, m, in, n, out);
    }
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
    product(px, at(w), py, rows, in, out);
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

static gdn_status blas_embed(void *ctx, uint64_t w, const uint32_t *tokens, uint64_t y, uint32_t rows, uint32_t dim) {
    const blas *b = ctx;
    for (uint32_t r = 0; r < rows; r++) {
        const float *src = (const float *)at(w) + (uint64_t)tokens[r] * dim;
        for (uint32_t i = 0; i < dim; i++) store(b, y, (uint64_t)r * dim + i, src[i]);
    }
    return GDN_OK;
}

static gdn_status blas_rms_norm(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps) {
    const blas *b = ctx;
    const float *pw = at(w);
#pragma omp parallel for schedule(static) if (rows > THREADS_ROWS)
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
#pragma omp parallel for schedule(static) if (rows > THREADS_ROWS)
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
    .name = "openblas",
    .open = blas_open,
    .close = blas_close,
    .weight_type = blas_weight_type,
    .matmul = blas_matmul,
    .embed = blas_embed,
    .rms_norm = blas_rms_norm,
    .add = blas_add,
    .silu_mul = blas_silu_mul,
};

const gdn__dense *gdn__dense_for(const gdn *g) {
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    if (gdn_describe(g, &info) != GDN_OK) return NULL;
    return info.target && info.device.cc_major == 0 ? &gdn__dense_blas : NULL;
}
