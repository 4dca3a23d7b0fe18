/* gated_rmsnorm.cu - gated RMS norm, one row a (token, value head), bf16 in and out, f32 inside, one rounding.
 *
 *     out = x * rsqrt(mean(x^2) + eps) * w * act(z)      from left to right; act = SiLU (1) or sigmoid (2)
 *
 * Row r = t*heads + h: x + t*x_stride + h*dim, z likewise; out dense. Grid GDN_NORM_GRID(rows, dim), block GDN_NORM_BLOCK. Reads x,
 * z, w; writes out, which may be x when x is dense: a row belongs to one group of lanes, which has read it before it writes.
 *   dim / 8 a power of two up to 32: that many lanes a row, eight elements each, GDN_NORM_DEPTH rows in flight.
 *   any other dim: a warp a row; lane l takes the pieces of eight l, l + 32, ... and reads x a second time.
 * Sum of squares: ascending inside a lane, then a butterfly over the row's lanes, far to near. 16-byte accesses where base, strides
 * and dim allow, else element by element: the same bytes. */
#include "gdn_device.cuh"
#include "gdn_geometry.h"
#include "gdn_rows.cuh"

struct gdn_norm {
    const gdn_bf16 *x, *z;
    const void *w;
    gdn_bf16 *out;
    uint32_t rows, dim, x_stride, z_stride, heads;
    float eps, inv_dim;
    bool sigmoid, weight_f32, wide_w;
};

/* Where row r begins in x and z. DENSE: rows one after another, no division. */
struct place {
    uint64_t x, z;
};
template <bool DENSE> GDN_DEVICE place place_of(const gdn_norm &a, uint32_t r) {
    if (DENSE) return place { (uint64_t)r * a.dim, (uint64_t)r * a.dim };
    const uint32_t group = r / a.heads;
    const uint64_t in_group = (uint64_t)(r - group * a.heads) * a.dim;
    return place { (uint64_t)group * a.x_stride + in_group, (uint64_t)group * a.z_stride + in_group };
}

GDN_DEVICE void weights(float (&w)[8], const gdn_norm &a, uint32_t i0, uint32_t n) {
    if (a.wide_w && n >= 8) {
        gdn_unpack8(w, gdn_ld16_ro(static_cast<const gdn_bf16 *>(a.w) + i0));
        return;
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) w[i] = i < n ? gdn_weight(a.w, a.weight_f32, i0 + i) : 0;
}

/* Adds the squares of a piece; elements past the end are zero. */
GDN_DEVICE float squares(float sum, uint4 piece) {
    float x[8];
    gdn_unpack8(x, piece);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) sum = gdn_fma(x[i], x[i], sum);
    return sum;
}

GDN_DEVICE float factor(const gdn_norm &a, float sum) {
    return gdn_rsqrt(sum * a.inv_dim + a.eps);
}

GDN_DEVICE uint4 piece_of(const gdn_norm &a, uint4 x8, uint4 z8, const float (&w)[8], float r) {
    float x[8], z[8];
    gdn_unpack8(x, x8);
    gdn_unpack8(z, z8);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) x[i] = x[i] * r * w[i] * ((a.sigmoid ? 1.0f : z[i]) * gdn_sigmoid_fast(z[i]));
    return gdn_pack8(x);
}

/* Several rows at a time, `lanes` a row. All lanes of a warp stay, also those whose rows do not exist. */
template <bool VEC, bool DENSE> GDN_DEVICE void short_rows(const gdn_norm &a, uint32_t lanes) {
    const uint32_t groups = GDN_NORM_BLOCK / lanes, i0 = threadIdx.x % lanes * 8;
    const uint32_t first = blockIdx.x * groups * GDN_NORM_DEPTH + threadIdx.x / lanes;
    uint4 x[GDN_NORM_DEPTH], z[GDN_NORM_DEPTH];
    float w[8], sum[GDN_NORM_DEPTH];
    GDN_UNROLL
    for (uint32_t k = 0; k < GDN_NORM_DEPTH; k++) {
        const uint32_t r = first + k * groups, n = r < a.rows ? 8 : 0;
        const place at = place_of<DENSE>(a, r);
        x[k] = gdn_load8<VEC, false>(a.x + at.x + i0, n);
        z[k] = gdn_load8<VEC, true>(a.z + at.z + i0, n);
    }
    weights(w, a, i0, 8);
    GDN_UNROLL
    for (uint32_t k = 0; k < GDN_NORM_DEPTH; k++) sum[k] = squares(0, x[k]);
    GDN_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) {
        if (d >= lanes) continue;
        GDN_UNROLL
        for (uint32_t k = 0; k < GDN_NORM_DEPTH; k++) sum[k] += __shfl_xor_sync(GDN_FULL_MASK, sum[k], (int)d);
    }
    GDN_UNROLL
    for (uint32_t k = 0; k < GDN_NORM_DEPTH; k++) {
        const uint32_t r = first + k * groups;
        gdn_store8<VEC>(a.out + (uint64_t)r * a.dim + i0, r < a.rows ? 8 : 0, piece_of(a, x[k], z[k], w, factor(a, sum[k])));
    }
}

/* A warp a row. Each lane rewrites only what it alone has read. */
template <bool VEC> GDN_DEVICE void any_row(const gdn_norm &a) {
    const uint32_t r = blockIdx.x * (GDN_NORM_BLOCK / 32) + gdn_warp();
    if (r >= a.rows) return;
    const place at = place_of<false>(a, r);
    const gdn_bf16 *const x = a.x + at.x, *const z = a.z + at.z;
    gdn_bf16 *const out = a.out + (uint64_t)r * a.dim;
    float sum = 0;
    for (uint32_t i = gdn_lane() * 8; i < a.dim; i += 256) sum = squares(sum, gdn_load8<VEC, false>(x + i, a.dim - i));
    const float f = factor(a, gdn_warp_sum(sum));
    for (uint32_t i = gdn_lane() * 8; i < a.dim; i += 256) {
        const uint32_t n = a.dim - i;
        float w[8];
        weights(w, a, i, n);
        gdn_store8<VEC>(out + i, n, piece_of(a, gdn_load8<VEC, false>(x + i, n), gdn_load8<VEC, true>(z + i, n), w, f));
    }
}

GDN_KERNEL(GDN_NORM_BLOCK, 2)
gated_rmsnorm(const gdn_bf16 *x, const gdn_bf16 *z, const void *w, gdn_bf16 *out, uint32_t rows, uint32_t dim, uint32_t x_stride,
              uint32_t z_stride, float eps, uint32_t act, uint32_t heads, uint32_t weight_f32) {
    gdn_begin();
    gdn_let_next();
    const gdn_norm a = { x,
                         z,
                         w,
                         out,
                         rows,
                         dim,
                         x_stride,
                         z_stride,
                         heads,
                         eps,
                         gdn_div(1.0f, (float)dim),
                         act == 2,
                         weight_f32 != 0,
                         !weight_f32 && gdn_aligned16(w) };
    const bool aligned = gdn_aligned16(x) && gdn_aligned16(z) && gdn_aligned16(out) && (dim | x_stride | z_stride) % 8 == 0;
    const bool dense = x_stride == (uint64_t)heads * dim && z_stride == x_stride;
    if (aligned && dim == 128 && dense)
        short_rows<true, true>(a, 16);
    else if (aligned && dim == 128)
        short_rows<true, false>(a, 16);
    else if (aligned && GDN_NORM_SPLITS(dim))
        short_rows<true, false>(a, GDN_NORM_LANES(dim));
    else if (GDN_NORM_SPLITS(dim))
        short_rows<false, false>(a, GDN_NORM_LANES(dim));
    else if (aligned)
        any_row<true>(a);
    else
        any_row<false>(a);
}
