/* gdn_fast_inverse.cuh - T = (I + L)^-1 of strictly lower L [64][64], two heads at a time by one warpgroup: the 16 x 16 diagonal blocks
 * by substitution in f32, each row from those above as they are rounded to f16, so that it makes up for their roundings; then merged to 32
 * and to 64 by f16 products with f32 accumulators. With the inverses A (above) and B (below), the block between them is -B L A.
 *
 * T is made where it is sent from, a swizzled panel whose upper blocks are zero before. In all steps the four warps have the two heads. */
#pragma once
#include "gdn_fast.cuh"

namespace gdn_fast {
enum {
    PAIR = 2,    /* heads at a time */
    L_ROW = 112, /* bytes of a row of L: columns 0..47, the diagonal blocks are elsewhere */
    D_ROW = 20,  /* floats of a column of a diagonal block */
    L_BYTES = CHUNK * L_ROW,
    D_FLOATS = 4 * 16 * D_ROW,
};
/* Where they lie, for the head in each of the two places. */
struct inverse_smem {
    unsigned char *L;     /* [PAIR][CHUNK rows of L_ROW] */
    float *diagonal;      /* [PAIR][4 blocks][16 columns of D_ROW] */
    unsigned char *panel; /* [PAIR][PANEL] */
};

/* Upper 16 x 16 blocks of both panels; 128 threads. */
GDN_DEVICE void zero_upper(unsigned char *panel, uint32_t thread) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = thread / 8 + 16 * i, unit = thread % 8;
        if (unit / 2 <= i) continue;
        gdn_st16(panel + place(row, unit * 8), uint4 { 0, 0, 0, 0 });
        gdn_st16(panel + PANEL + place(row, unit * 8), uint4 { 0, 0, 0, 0 });
    }
}
/* The diagonal block of this warp: lane l has column l % 16 of head l / 16. */
GDN_DEVICE void invert_diagonal(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t column = lane & 15, head = lane >> 4;
    if (head >= heads) return;
    const float *const d = s.diagonal + head * D_FLOATS + warp * 16 * D_ROW;
    float x[16];
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) x[i] = i == column ? 1.0f : 0.0f;
    GDN_UNROLL
    for (uint32_t l = 0; l < 15; l++) {
        x[l] = gdn_to_f32(gdn_to_f16(x[l]));
        float c[16];
        GDN_UNROLL
        for (uint32_t m = (l + 1) / 4; m < 4; m++) {
            const float4 v = gdn_ld16f(d + l * D_ROW + 4 * m);
            c[4 * m] = v.x, c[4 * m + 1] = v.y, c[4 * m + 2] = v.z, c[4 * m + 3] = v.w;
        }
        GDN_UNROLL
        for (uint32_t i = l + 1; i < 16; i++) x[i] = gdn_fma(-c[i], x[l], x[i]);
    }
    unsigned char *const to = s.panel + head * PANEL;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        unsigned char *const e = to + place(16 * warp + i, 16 * warp + column);
        *reinterpret_cast<gdn_f16 *>(e) = gdn_to_f16(x[i]);
        *reinterpret_cast<gdn_f16 *>(e + 1024) = gdn_to_f16(x[i + 8]);
    }
}

typedef float block[2][4]; /* 16 x 16 accumulators */
GDN_DEVICE void multiply(block &d, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    const uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    gdn_mma_f16_m16n8k16(d[0], a, b0);
    gdn_mma_f16_m16n8k16(d[1], a, b1);
}
GDN_DEVICE void as_operand(uint32_t (&a)[4], const block &d) {
    a[0] = gdn_pack_f16(d[0][0], d[0][1]);
    a[1] = gdn_pack_f16(d[0][2], d[0][3]);
    a[2] = gdn_pack_f16(d[1][0], d[1][1]);
    a[3] = gdn_pack_f16(d[1][2], d[1][3]);
}
/* -d to a block of T (row and column are multiples of 16: the swizzle is the lane's alone). */
GDN_DEVICE void put_block(unsigned char *panel, uint32_t row, uint32_t column, uint32_t lane, const block &d) {
    const uint32_t own = place(lane / 4, 2 * (lane % 4));
    GDN_UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        unsigned char *const to = panel + row * 128 + (own ^ (column * 2 + 16 * n));
        put_pair(to, gdn_pack_f16(-d[n][0], -d[n][1]));
        put_pair(to + 1024, gdn_pack_f16(-d[n][2], -d[n][3]));
    }
}
/* A lane's address for ldmatrix of 16 x 16: a row of 16, and one of two units. */
GDN_DEVICE const unsigned char *of_l(const unsigned char *L, uint32_t row, uint32_t column, uint32_t lane) {
    return L + (row + lane % 16) * L_ROW + column * 2 + lane / 16 * 16;
}
GDN_DEVICE const unsigned char *of_t(const unsigned char *panel, uint32_t row, uint32_t column, uint32_t lane) {
    return panel + row * 128 + (place(lane % 16, lane / 16 * 8) ^ column * 2);
}

/* Blocks (1,0) and (3,2): odd warps of the first head, even warps of the second. */
GDN_DEVICE void merge_16(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t head = ~warp & 1, row = 16 * (warp | 1), left = row - 16;
    if (head >= heads) return;
    const unsigned char *const L = s.L + head * L_BYTES;
    unsigned char *const T = s.panel + head * PANEL;
    uint32_t a[4], b[4];
    block z = {}, y = {};
    gdn_ldmatrix_x4(a, of_t(T, row, row, lane));
    gdn_ldmatrix_x4_trans(b, of_l(L, row, left, lane));
    multiply(z, a, b);
    as_operand(a, z);
    gdn_ldmatrix_x4_trans(b, of_t(T, left, left, lane));
    multiply(y, a, b);
    put_block(T, row, left, lane, y);
}
/* The lower left 32 x 32: warps 2 and 3 of the first head, 0 and 1 of the second. */
GDN_DEVICE void merge_32(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t head = warp < 2, low = warp & 1, row = 32 + 16 * low;
    if (head >= heads) return;
    const unsigned char *const L = s.L + head * L_BYTES;
    unsigned char *const T = s.panel + head * PANEL;
    uint32_t a[2][4], b[4];
    block z[2] = {}, y[2] = {};
    GDN_UNROLL
    for (uint32_t m = 0; m < 2; m++)
        if (m <= low) {
            gdn_ldmatrix_x4(a[0], of_t(T, row, row - 16 * m, lane));
            GDN_UNROLL
            for (uint32_t n = 0; n < 2; n++) {
                gdn_ldmatrix_x4_trans(b, of_l(L, row - 16 * m, 16 * n, lane));
                multiply(z[n], a[0], b);
            }
        }
    as_operand(a[0], z[0]);
    as_operand(a[1], z[1]);
    gdn_ldmatrix_x4_trans(b, of_t(T, 0, 0, lane));
    multiply(y[0], a[0], b);
    gdn_ldmatrix_x4_trans(b, of_t(T, 16, 0, lane));
    multiply(y[0], a[1], b);
    gdn_ldmatrix_x4_trans(b, of_t(T, 16, 16, lane));
    multiply(y[1], a[1], b);
    put_block(T, row, 0, lane, y[0]);
    put_block(T, row, 16, lane, y[1]);
}
} // namespace gdn_fast
