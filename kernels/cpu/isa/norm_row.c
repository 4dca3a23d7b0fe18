/* norm_row.c - one row of the gated RMS norm, f32 inside, rounded once:
 *
 *     out = x * (1 / sqrt(mean(x^2) + eps)) * w * act(z)        act = SiLU or sigmoid, from left to right
 *
 * The bytes are the same on every instruction set. */
#include "norm_row.h"
#include "conv_vec.h"

static void norm_row(const gdn_cpu_norm *c, const void *x, const void *z, void *out) {
    const uint32_t dim = c->dim;
    vsum sum = { { { 0 } } };
    for (uint32_t i = 0; i < dim; i += SUM_LANES)
        for (uint32_t j = 0; j < SUM_LANES / VL && i + j * VL < dim; j++) {
            const vf v = vload_row(x, i + j * VL, dim, c->f32);
            sum.part[j] += v * v;
        }
    const float r = 1.0f / __builtin_sqrtf(vsum_total(&sum) / (float)dim + c->eps);
    for (uint32_t i = 0; i < dim; i += VL) {
        const vf v = vload_row(x, i, dim, c->f32), g = vload_row(z, i, dim, c->f32);
        const vf w = vload_row(c->w, i, dim, c->weight_f32);
        vstore_row(out, i, dim, c->f32, v * r * w * (c->sigmoid ? vsigmoid(g) : vsilu(g)));
    }
}

const struct gdn__norm_table GDN_ISA_NAME(gdn__norm_table) = { norm_row };
