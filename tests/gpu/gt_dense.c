/* gt_dense.c - the engine's dense operations on host memory in plain loops, in the place of OpenBLAS's (dense_blas.c), which a machine
 * with a GPU may not have. f32 alone; a row's bits do not depend on how many rows come with it. */
#include "dense.h"
#include "engine_text.h"
#include <math.h>

static void *at(uint64_t address) {
    return (void *)(uintptr_t)address;
}

static gdn_status plain_open(gdn *g, gdn__stream *stream, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err) {
    (void)g;
    (void)stream;
    (void)max_elems;
    *ctx = NULL;
    return act_type == GDN_F32 ? GDN_OK : gdn__engine_say(err, GDN_REFUSED, "gpu_test has host products of f32 alone");
}
static void plain_close(void *ctx) {
    (void)ctx;
}
static uint32_t plain_weight_type(uint32_t act_type) {
    return act_type;
}

/* Eight sums, so that the compiler may take them side by side. */
static float dot(const float *x, const float *w, uint32_t n) {
    float s[8] = { 0 };
    for (uint32_t i = 0; i < n / 8 * 8; i += 8)
        for (uint32_t k = 0; k < 8; k++) s[k] += x[i + k] * w[i + k];
    for (uint32_t i = n / 8 * 8; i < n; i++) s[i % 8] += x[i] * w[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static gdn_status plain_matmul(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, uint32_t y_type) {
    (void)ctx;
    (void)y_type;
#pragma omp parallel for schedule(static)
    for (uint32_t o = 0; o < out; o++)
        for (uint32_t r = 0; r < rows; r++)
            ((float *)at(y))[(uint64_t)r * out + o] =
                dot((const float *)at(x) + (uint64_t)r * in, (const float *)at(w) + (uint64_t)o * in, in);
    return GDN_OK;
}

static gdn_status plain_embed(void *ctx, uint64_t w, uint64_t tokens, uint64_t y, uint32_t rows, uint32_t dim) {
    (void)ctx;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < dim; i++)
            ((float *)at(y))[(uint64_t)r * dim + i] = ((const float *)at(w))[(uint64_t)((const uint32_t *)at(tokens))[r] * dim + i];
    return GDN_OK;
}

static gdn_status plain_rms_norm(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps) {
    (void)ctx;
    for (uint32_t r = 0; r < rows; r++) {
        const float *px = (const float *)at(x) + (uint64_t)r * dim, *pw = at(w);
        float *py = (float *)at(y) + (uint64_t)r * dim;
        double sum = 0;
        for (uint32_t i = 0; i < dim; i++) sum += (double)px[i] * (double)px[i];
        const float scale = (float)(1.0 / sqrt(sum / dim + (double)eps));
        for (uint32_t i = 0; i < dim; i++) py[i] = px[i] * scale * pw[i];
    }
    return GDN_OK;
}

static gdn_status plain_add(void *ctx, uint64_t x, uint64_t y, uint64_t n) {
    (void)ctx;
    for (uint64_t i = 0; i < n; i++) ((float *)at(y))[i] += ((const float *)at(x))[i];
    return GDN_OK;
}

static gdn_status plain_silu_mul(void *ctx, uint64_t gate_up, uint64_t y, uint32_t rows, uint32_t dim) {
    (void)ctx;
    for (uint32_t r = 0; r < rows; r++) {
        const float *gate = (const float *)at(gate_up) + (uint64_t)r * 2 * dim, *up = gate + dim;
        for (uint32_t i = 0; i < dim; i++) ((float *)at(y))[(uint64_t)r * dim + i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
    return GDN_OK;
}

const gdn__dense gdn__dense_blas = {
    .name = "plain loops",
    .open = plain_open,
    .close = plain_close,
    .weight_type = plain_weight_type,
    .matmul = plain_matmul,
    .embed = plain_embed,
    .rms_norm = plain_rms_norm,
    .add = plain_add,
    .silu_mul = plain_silu_mul,
};
