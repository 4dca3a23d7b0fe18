/* gdn_wn_inverse.cuh - T = (I + L)^-1 of strictly lower L = diag(beta) A [64][64], of up to GROUP heads with one A, by 8 warps: the 8 x 8
 * diagonal blocks by substitution in f32, then merged to 16, 32 and 64. With the inverses X (above) and Y (below), the block between them
 * is -Y L X, and beta is multiplied into Y.
 *
 * A and T are sums of two f16 tiles (swizzled panels) each, what one rounds and what is left of it, and a product of two such sums has
 * three products of f16 with f32 accumulators. Where keys are alike the sums that T goes into cancel: with one tile of A, or of T, what is
 * left is off by 1e-3 to 2e-2. T's upper blocks are zero before, in both tiles. */
#pragma once
#include "gdn_wn.cuh"

namespace gdn_wn {
enum { GROUP = 3, LIMBS = 2 * PANEL /* both tiles of a T */ };
struct inverse_smem {
    unsigned char *A, *T;  /* two panels; two panels of each head */
    const float *betas;    /* [heads][CHUNK] */
    const float *diagonal; /* [8 blocks][8 rows][8]: A's, in f32 */
};

/* Two values as f16, and what that leaves. */
struct two_limbs {
    uint32_t high, low;
};
GDN_DEVICE two_limbs split(float x, float y) {
    const uint32_t high = gdn_pack_f16(x, y);
    return two_limbs { high, gdn_pack_f16(x - gdn_f16_lo(high), y - gdn_f16_hi(high)) };
}
/* A lane's address for ldmatrix and stmatrix of 16 x 16 (row and column are multiples of 16: the swizzle is the lane's alone). */
GDN_DEVICE unsigned char *of_block(unsigned char *panel, uint32_t row, uint32_t column, uint32_t lane) {
    return panel + row * 128 + (place(lane % 16, lane / 16 * 8) ^ column * 2);
}
/* What is above the 8 x 8 diagonal blocks of some panels; 256 threads. */
GDN_DEVICE void zero_upper(unsigned char *panels, uint32_t count) {
    const uint32_t row = threadIdx.x / 4, unit = threadIdx.x % 4;
    GDN_NO_UNROLL
    for (uint32_t n = 0; n < count; n++, panels += PANEL) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            if (unit + 4 * i > row / 8) gdn_st16(panels + place(row, (unit + 4 * i) * 8), uint4 { 0, 0, 0, 0 });
    }
}
/* The diagonal block of this warp: lane l has column l % 8 of head l / 8. */
GDN_DEVICE void invert_diagonal(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t row = 8 * warp, column = lane & 7, head = lane / 8;
    if (head >= heads) return;
    const float *const A = s.diagonal + row * 8, *const beta = s.betas + head * CHUNK + row;
    float x[8], b[8];
    GDN_UNROLL
    for (uint32_t m = 0; m < 2; m++) {
        const float4 v = gdn_ld16f(beta + 4 * m);
        b[4 * m] = v.x, b[4 * m + 1] = v.y, b[4 * m + 2] = v.z, b[4 * m + 3] = v.w;
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        float c[8], sum = 0;
        GDN_UNROLL
        for (uint32_t m = 0; m < (i + 3) / 4; m++) {
            const float4 v = gdn_ld16f(A + 8 * i + 4 * m);
            c[4 * m] = v.x, c[4 * m + 1] = v.y, c[4 * m + 2] = v.z, c[4 * m + 3] = v.w;
        }
        GDN_UNROLL
        for (uint32_t l = 0; l < i; l++) sum = gdn_fma(c[l], x[l], sum);
        x[i] = gdn_fma(-b[i], sum, i == column ? 1.0f : 0.0f);
    }
    unsigned char *const T = s.T + head * LIMBS + row * 128;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i += 2) {
        const two_limbs v = split(x[i], x[i + 1]);
        GDN_UNROLL
        for (uint32_t e = 0; e < 2; e++) {
            unsigned char *const to = T + (i + e) * 128 + ((row + column) * 2 ^ (i + e) * 16);
            *reinterpret_cast<uint16_t *>(to) = (uint16_t)(e ? v.high >> 16 : v.high);
            *reinterpret_cast<uint16_t *>(to + PANEL) = (uint16_t)(e ? v.low >> 16 : v.low);
        }
    }
}
/* Pairs of columns times their betas. */
GDN_DEVICE two_limbs times(uint32_t high, uint32_t low, float2 beta) {
    return split((gdn_f16_lo(high) + gdn_f16_lo(low)) * beta.x, (gdn_f16_hi(high) + gdn_f16_hi(low)) * beta.y);
}
/* visit(head, job): `jobs` of each head, shared by the warps. */
template <class F> GDN_DEVICE void each_job(uint32_t heads, uint32_t jobs, uint32_t warp, F visit) {
    GDN_NO_UNROLL
    for (uint32_t j = warp; j < heads * jobs; j += 8) visit(j / jobs, j % jobs);
}
/* Between two 8 x 8: their products as parts of some of 16 x 8 x 16, two limbs in one where the other factor is the same. */
GDN_DEVICE void merge_8(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    each_job(heads, 4, warp, [&](uint32_t head, uint32_t job) {
        const uint32_t row = 16 * job, i = lane % 8, limb = lane / 8 % 2 * PANEL;
        unsigned char *const T = s.T + head * LIMBS;
        uint32_t below[2], left[2], above[2];
        gdn_ldmatrix_x2(below, T + limb + place(row + 8 + i, row + 8));
        gdn_ldmatrix_x2_trans(left, s.A + limb + place(row + 8 + i, row));
        gdn_ldmatrix_x2_trans(above, T + limb + place(row + i, row));
        auto multiply = [](float(&d)[4], two_limbs a, const uint32_t(&b)[2]) {
            const uint32_t both[4] = { 0, a.high, 0, a.low }, b_high[2] = { b[0], b[0] }, high[4] = { 0, a.high, 0, 0 },
                           b_low[2] = { b[1], 0 };
            gdn_mma_f16_m16n8k16(d, high, b_low);
            gdn_mma_f16_m16n8k16(d, both, b_high);
        };
        float z[4] = {}, y[4] = {};
        multiply(z, times(below[0], below[1], get_pair(s.betas + head * CHUNK + row + 8 + 2 * (lane % 4))), left);
        multiply(y, split(z[2], z[3]), above);
        const two_limbs v = split(-y[2], -y[3]);
        unsigned char *const to = T + place(row + 8 + lane / 4, row + 2 * (lane % 4));
        put_pair(to, v.high);
        put_pair(to + PANEL, v.low);
    });
}

typedef float block[2][4]; /* 16 x 16 accumulators */
/* 16 x 16 of two limbs as operands. */
struct operand {
    uint32_t high[4], low[4];
};
GDN_DEVICE void multiply(block &d, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    const uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    gdn_mma_f16_m16n8k16(d[0], a, b0);
    gdn_mma_f16_m16n8k16(d[1], a, b1);
}
GDN_DEVICE void multiply(block &d, const operand &a, const operand &b) {
    multiply(d, a.low, b.high);
    multiply(d, a.high, b.low);
    multiply(d, a.high, b.high);
}
GDN_DEVICE operand as_operand(const block &d) {
    operand a;
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const two_limbs v = split(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
        a.high[i] = v.high, a.low[i] = v.low;
    }
    return a;
}
/* Y at (row, column) of T with its columns' betas. */
GDN_DEVICE operand load_left(const inverse_smem &s, uint32_t head, uint32_t row, uint32_t column, uint32_t lane) {
    unsigned char *const from = of_block(s.T + head * LIMBS, row, column, lane);
    const float *const beta = s.betas + head * CHUNK + column + 2 * (lane % 4);
    const float2 b[2] = { get_pair(beta), get_pair(beta + 8) };
    operand a;
    gdn_ldmatrix_x4(a.high, from);
    gdn_ldmatrix_x4(a.low, from + PANEL);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const two_limbs v = times(a.high[i], a.low[i], b[i / 2]);
        a.high[i] = v.high, a.low[i] = v.low;
    }
    return a;
}
GDN_DEVICE operand load_right(unsigned char *panels, uint32_t row, uint32_t column, uint32_t lane) {
    unsigned char *const from = of_block(panels, row, column, lane);
    operand a;
    gdn_ldmatrix_x4_trans(a.high, from);
    gdn_ldmatrix_x4_trans(a.low, from + PANEL);
    return a;
}
/* -d to a block of T. */
GDN_DEVICE void put_block(const inverse_smem &s, uint32_t head, uint32_t row, uint32_t column, uint32_t lane, const block &d) {
    unsigned char *const to = of_block(s.T + head * LIMBS, row, column, lane);
    operand a = as_operand(d);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) a.high[i] ^= 0x80008000u, a.low[i] ^= 0x80008000u;
    gdn_stmatrix_x4(to, a.high);
    gdn_stmatrix_x4(to + PANEL, a.low);
}

/* Blocks (1,0) and (3,2). */
GDN_DEVICE void merge_16(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    each_job(heads, 2, warp, [&](uint32_t head, uint32_t job) {
        const uint32_t row = 16 + 32 * job, left = row - 16;
        block z = {}, y = {};
        multiply(z, load_left(s, head, row, row, lane), load_right(s.A, row, left, lane));
        multiply(y, as_operand(z), load_right(s.T + head * LIMBS, left, left, lane));
        put_block(s, head, row, left, lane, y);
    });
}
/* The lower left 32 x 32, a block a job. */
GDN_DEVICE void merge_32(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    each_job(heads, 4, warp, [&](uint32_t head, uint32_t job) {
        const uint32_t low = job / 2, row = 32 + 16 * low, column = job % 2 * 16;
        block z[2] = {}, y = {};
        GDN_UNROLL
        for (uint32_t m = 0; m < 2; m++)
            if (m <= low) {
                const operand Y = load_left(s, head, row, row - 16 * m, lane);
                if (column == 0) multiply(z[0], Y, load_right(s.A, row - 16 * m, 0, lane));
                multiply(z[1], Y, load_right(s.A, row - 16 * m, 16, lane));
            }
        if (column == 0) multiply(y, as_operand(z[0]), load_right(s.T + head * LIMBS, 0, 0, lane));
        multiply(y, as_operand(z[1]), load_right(s.T + head * LIMBS, 16, column, lane));
        put_block(s, head, row, column, lane, y);
    });
}

/* Of 64 x 64 accumulators, sixteen columns at a time: what a lane has of them, packed, to its row block of a panel. */
GDN_DEVICE void put_columns(unsigned char *panel, uint32_t warp, uint32_t lane, uint32_t m, const uint32_t (&a)[4]) {
    gdn_stmatrix_x4(of_block(panel + warp * 2048, 0, 16 * m, lane), a);
}
} // namespace gdn_wn
