/* dense_blas.c - the dense operations on host memory: projections by OpenBLAS in f32, the rest plain loops.
 *
 * Weights are stored as f32 (a bf16 checkpoint widens exactly). bf16 activations are widened into a scratch block, and
 * products rounded on the way out. Up to four rows go through gemv one by one, a block of weights at a time (the later rows
 * find it in the cache): a row's bits do not depend on how many rows came with it, and a verified row says what a decoded
 * one would. Threads are OpenBLAS's (OPENBLAS_NUM_THREADS): its waiting threads yield, which OpenMP's do not, and that
 * decides how a loop of small products fares on a machine that does other things too. */
#include "dense.h"
#include "engine_text.h"
#include "numbers.h"
#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { GEMV_ROWS = 4, BLOCK_ELEMS = 1 << 19 /* of weights, 2 MiB */ };

typedef struct blas {
    uint32_t act;
    uint64_t max_elems;
    float *in, *out; /* bf16 only: the widened operand and the product before rounding */
} blas;

static void blas_close(void *ctx) {
    blas *b = ctx;
    if (!b) return;
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

/* y[rows][out] = x w^T */
static void product(const float *x, const float *w, float *y, uint32_t rows, uint32_t in, uint32_t out) {
    const int k = (int)in;
    if (rows > GEMV_ROWS) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, k, 1.0f, x, k, w, k, 0.0f, y, (int)out);
        return;
    }
    const uint32_t block = BLOCK_ELEMS / in < 64 ? 64 : BLOCK_ELEMS / in / 64 * 64;
    for (uint32_t o = 0; o < out; o += block) {
        const int n = (int)(out - o < block ? out - o : block);
        for (uint32_t r = 0; r < rows; r++)
            cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, w + (size_t)o * in, k, x + (size_t)r * in, 1, 0.0f,
                        y + (size_t)r * out + o, 1);
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
