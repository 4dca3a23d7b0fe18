/* norm_row.c - one row of the gated RMS norm, f32 inside, rounded once:
 *
 *     out = x * (1 / sqrt(mean(x^2) + eps)) * w * act(z)        act = SiLU or sigmoid, from left to right
 *
 * The bytes are the same on every instruction set. */
#include "norm_row.h"
#include "conv_vec.h"

/* Inlined with constants where it matters. */
GDN_INLINE void vector(const gdn_cpu_norm *c, const void *x, const void *z, void *out, vf r, uint32_t i, bool f32, bool weight_f32,
                       bool sigmoid, bool full) {
    const uint32_t dim = c->dim;
    const vf v = vload_row(x, i, dim, f32, full), g = vload_row(z, i, dim, f32, full);
    const vf w = vload_row(c->w, i, dim, weight_f32, full);
    vstore_row(out, i, dim, f32, full, v * r * w * (sigmoid ? vsigmoid(g) : vsilu(g)));
}

GDN_INLINE void row_as(const gdn_cpu_norm *c, const void *x, const void *z, void *out, bool f32, bool weight_f32, bool sigmoid) {
    const vf r = vset(1.0f / __builtin_sqrtf(vsquares(x, c->dim, f32) / (float)c->dim + c->eps));
    uint32_t i = 0;
    for (; i + VL <= c->dim; i += VL) vector(c, x, z, out, r, i, f32, weight_f32, sigmoid, true);
    if (i < c->dim) vector(c, x, z, out, r, i, f32, weight_f32, sigmoid, false);
}

static void norm_row(const gdn_cpu_norm *c, const void *x, const void *z, void *out) {
    if (!c->f32 && !c->sigmoid && !c->weight_f32)
        row_as(c, x, z, out, false, false, false);
    else if (!c->f32 && !c->sigmoid)
        row_as(c, x, z, out, false, true, false);
    else
        row_as(c, x, z, out, c->f32, c->weight_f32, c->sigmoid);
}

const struct gdn__norm_table GDN_ISA_NAME(gdn__norm_table) = { norm_row };
