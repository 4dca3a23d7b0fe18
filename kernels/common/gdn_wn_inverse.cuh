/* gdn_wn_inverse.cuh - T = (I + L)^-1 of strictly lower L [64][64], as the sum of two f16 tiles, by one warpgroup. Two heads at a time:
 * the 8 x 8 diagonal blocks by substitution in f32, then merged to 16, 32 and 64 by f16 products with f32 accumulators. With the inverses
 * A (above) and B (below), the block between them is -B L A. Then, for each head, what this T lacks:
 *     E = I - T (I + L),   low = E T
 * with L as the sum of two f16 tiles, whose products are exact, so that T + low is off by E^2 and by the rounding of low. Where keys are
 * alike the sums that T goes into cancel: with one tile of L, or of T, what is left is off by 1e-3 to 2e-2.
 *
 * Tiles are swizzled panels of f16. That of L has ones on its diagonal, as in I + L. T's upper blocks are zero before. */
#pragma once
#include "gdn_wn.cuh"

namespace gdn_wn {
enum { PAIR = 2 }; /* heads at a time */
/* Where they lie, for the head in each of the two places. */
struct inverse_smem {
    unsigned char *L, *T, *low; /* [PAIR][PANEL] each; low: of L, then of T */
};

/* A lane's address for ldmatrix and stmatrix of 16 x 16 (row and column are multiples of 16: the swizzle is the lane's alone). */
GDN_DEVICE unsigned char *of_block(unsigned char *panel, uint32_t row, uint32_t column, uint32_t lane) {
    return panel + row * 128 + (place(lane % 16, lane / 16 * 8) ^ column * 2);
}
/* What is above the 8 x 8 diagonal blocks of both panels; 128 threads. */
GDN_DEVICE void zero_upper(unsigned char *panel, uint32_t thread) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = thread / 8 + 16 * i, unit = thread % 8;
        if (unit <= row / 8) continue;
        gdn_st16(panel + place(row, unit * 8), uint4 { 0, 0, 0, 0 });
        gdn_st16(panel + PANEL + place(row, unit * 8), uint4 { 0, 0, 0, 0 });
    }
}
/* The two diagonal blocks of this warp's 16 rows: lane l has column l % 8 of block l / 8 % 2 of head l / 16. */
GDN_DEVICE void invert_diagonal(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t head = lane >> 4, row = 16 * warp + (lane & 8);
    if (head >= heads) return;
    float x[8];
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        float sum = i == (lane & 7) ? 1.0f : 0.0f;
        if (i > 0) {
            const uint4 v = gdn_ld16(s.L + head * PANEL + place(row + i, row));
            const uint32_t c[4] = { v.x, v.y, v.z, v.w };
            GDN_UNROLL
            for (uint32_t l = 0; l < i; l++) sum = gdn_fma(-(l % 2 ? gdn_f16_hi(c[l / 2]) : gdn_f16_lo(c[l / 2])), x[l], sum);
        }
        x[i] = sum;
    }
    unsigned char *const to = s.T + head * PANEL;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) *reinterpret_cast<gdn_f16 *>(to + place(row + i, row + (lane & 7))) = gdn_to_f16(x[i]);
}
/* Between them, in both heads: an 8 x 8 product as part of one of 16 x 8 x 16. */
GDN_DEVICE void merge_8(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t row = 16 * warp, panel = lane / 8 % 2 * PANEL, i = lane % 8;
    uint32_t below[2], left[2], above[2];
    gdn_ldmatrix_x2(below, s.T + panel + place(row + 8 + i, row + 8));
    gdn_ldmatrix_x2_trans(left, s.L + panel + place(row + 8 + i, row));
    gdn_ldmatrix_x2_trans(above, s.T + panel + place(row + i, row));
    GDN_UNROLL
    for (uint32_t h = 0; h < PAIR; h++) {
        float z[4] = {}, y[4] = {};
        const uint32_t a[4] = { 0, 0, 0, below[h] }, b[2] = { 0, left[h] };
        gdn_mma_f16_m16n8k16(z, a, b);
        const uint32_t c[4] = { 0, gdn_pack_f16(z[2], z[3]), 0, 0 }, d[2] = { above[h], 0 };
        gdn_mma_f16_m16n8k16(y, c, d);
        if (h < heads) put_pair(s.T + h * PANEL + place(row + 8 + lane / 4, row + 2 * (lane % 4)), gdn_pack_f16(-y[2], -y[3]));
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
/* -d to a block of T. */
GDN_DEVICE void put_block(unsigned char *panel, uint32_t row, uint32_t column, uint32_t lane, const block &d) {
    uint32_t a[4];
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) a[i] = gdn_pack_f16(-d[i / 2][i % 2 * 2], -d[i / 2][i % 2 * 2 + 1]);
    gdn_stmatrix_x4(of_block(panel, row, column, lane), a);
}

/* Blocks (1,0) and (3,2): odd warps of the first head, even warps of the second. */
GDN_DEVICE void merge_16(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t head = ~warp & 1, row = 16 * (warp | 1), left = row - 16;
    if (head >= heads) return;
    unsigned char *const L = s.L + head * PANEL, *const T = s.T + head * PANEL;
    uint32_t a[4], b[4];
    block z = {}, y = {};
    gdn_ldmatrix_x4(a, of_block(T, row, row, lane));
    gdn_ldmatrix_x4_trans(b, of_block(L, row, left, lane));
    multiply(z, a, b);
    as_operand(a, z);
    gdn_ldmatrix_x4_trans(b, of_block(T, left, left, lane));
    multiply(y, a, b);
    put_block(T, row, left, lane, y);
}
/* The lower left 32 x 32: warps 2 and 3 of the first head, 0 and 1 of the second. */
GDN_DEVICE void merge_32(const inverse_smem &s, uint32_t heads, uint32_t warp, uint32_t lane) {
    const uint32_t head = warp < 2, low = warp & 1, row = 32 + 16 * low;
    if (head >= heads) return;
    unsigned char *const L = s.L + head * PANEL, *const T = s.T + head * PANEL;
    uint32_t a[2][4], b[4];
    block z[2] = {}, y[2] = {};
    GDN_UNROLL
    for (uint32_t m = 0; m < 2; m++)
        if (m <= low) {
            gdn_ldmatrix_x4(a[0], of_block(T, row, row - 16 * m, lane));
            GDN_UNROLL
            for (uint32_t n = 0; n < 2; n++) {
                gdn_ldmatrix_x4_trans(b, of_block(L, row - 16 * m, 16 * n, lane));
                multiply(z[n], a[0], b);
            }
        }
    as_operand(a[0], z[0]);
    as_operand(a[1], z[1]);
    gdn_ldmatrix_x4_trans(b, of_block(T, 0, 0, lane));
    multiply(y[0], a[0], b);
    gdn_ldmatrix_x4_trans(b, of_block(T, 16, 0, lane));
    multiply(y[0], a[1], b);
    gdn_ldmatrix_x4_trans(b, of_block(T, 16, 16, lane));
    multiply(y[1], a[1], b);
    put_block(T, row, 0, lane, y[0]);
    put_block(T, row, 16, lane, y[1]);
}

/* Where the diagonal of an 8 x 8 tile is in a lane's pair, as mask. */
GDN_DEVICE uint32_t diagonal_of(uint32_t lane) {
    const uint32_t column = lane / 4 - lane % 4 * 2;
    return column == 0 ? 0x0000ffffu : column == 1 ? 0xffff0000u : 0;
}
/* Of 64 x 64 accumulators, sixteen columns at a time: what a lane has of them, packed, to its row block of a panel. */
GDN_DEVICE void put_columns(unsigned char *panel, uint32_t warp, uint32_t lane, uint32_t m, const uint32_t (&a)[4]) {
    gdn_stmatrix_x4(of_block(panel + warp * 2048, 0, 16 * m, lane), a);
}
/* low of the head in place `head`, where L's second tile was. The panels are there for the products; all_read: a barrier of the warpgroup.
 */
template <class F> GDN_DEVICE void refine(const inverse_smem &s, uint32_t head, uint32_t warp, uint32_t lane, F all_read) {
    unsigned char *const panel = s.T + head * PANEL, *const low = s.low + head * PANEL;
    const gdn_tile_k rows = gdn_make_tile_k(panel);
    const gdn_tile_mn T = gdn_make_tile_mn(panel, PANEL), L = gdn_make_tile_mn(s.L + head * PANEL, PANEL),
                      L_low = gdn_make_tile_mn(low, PANEL);
    const uint32_t diagonal = diagonal_of(lane);
    float d[32];
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(d, gdn_move(rows, 32 * j), gdn_move(L_low, 2048 * j), j > 0);
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(d, gdn_move(rows, 32 * j), gdn_move(L, 2048 * j), true);
    gdn_wgmma_commit();
    gdn_wgmma_wait<0>();
    gdn_pin(d);
    uint32_t e[16];
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        e[i] = gdn_pack_f16(-d[2 * i], -d[2 * i + 1]);
        if (i / 4 == warp && (i % 4 == 0 || i % 4 == 3)) e[i] &= ~diagonal; /* 1 - 1 */
    }
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 4; j++) gdn_wgmma_f16(d, gdn_quad(e, 4 * j), gdn_move(T, 2048 * j), j > 0);
    gdn_wgmma_commit();
    all_read();
    gdn_wgmma_wait<0>();
    gdn_pin(d);
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        uint32_t r[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) r[i] = gdn_pack_f16(d[8 * m + 2 * i], d[8 * m + 2 * i + 1]);
        put_columns(low, warp, lane, m, r);
    }
}
} // namespace gdn_wn
