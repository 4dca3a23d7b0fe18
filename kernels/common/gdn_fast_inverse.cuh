/* gdn_fast_inverse.cuh - T' = (I + L)^-1 - I of a strictly lower L [64][64], by one warpgroup: the 16 x 16 diagonal blocks by
 * substitution in f32, then merged to 32 and to 64 by f16 products with f32 accumulators: the block below the diagonal is -B L A for the
 * inverses A (above) and B (below it). Warp w has rows 16 w..16 w + 15. */
#pragma once
#include "gdn_fast.cuh"

namespace gdn_fast {
enum {
    L_ROW = 112, /* bytes of a row of L: columns 0..47, the diagonal blocks are elsewhere */
    T_ROW = 144,
    D_ROW = 20, /* floats of a column of a diagonal block */
    L_BYTES = CHUNK * L_ROW,
    T_BYTES = CHUNK * T_ROW,
    D_BYTES = 4 * 16 * D_ROW * 4,
};
/* Where they lie in shared memory; `diagonal` is this warp's. */
struct inverse_smem {
    unsigned char *L, *T;
    float *diagonal;
};

/* The diagonal block of this warp: lane l and l + 16 have column l % 16; each stores half of it. */
GDN_DEVICE void invert_diagonal(const inverse_smem &s, uint32_t warp, uint32_t lane) {
    const uint32_t column = lane & 15, half = lane >> 4;
    float x[16];
    GDN_UNROLL
    for (uint32_t i = 0; i < 16; i++) x[i] = i == column ? 1.0f : 0.0f;
    GDN_UNROLL
    for (uint32_t l = 0; l < 15; l++) {
        float c[16];
        GDN_UNROLL
        for (uint32_t m = (l + 1) / 4; m < 4; m++) {
            const float4 v = gdn_ld16f(s.diagonal + l * D_ROW + 4 * m);
            c[4 * m] = v.x, c[4 * m + 1] = v.y, c[4 * m + 2] = v.z, c[4 * m + 3] = v.w;
        }
        GDN_UNROLL
        for (uint32_t i = l + 1; i < 16; i++) x[i] = gdn_fma(-c[i], x[l], x[i]);
    }
    gdn_f16 *const to = reinterpret_cast<gdn_f16 *>(s.T + (16 * warp + 8 * half) * T_ROW) + 16 * warp + column;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) to[i * (T_ROW / 2)] = gdn_to_f16(half ? x[i + 8] : x[i]);
}

GDN_DEVICE void multiply(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    const uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    gdn_mma_f16_m16n8k16(d0, a, b0);
    gdn_mma_f16_m16n8k16(d1, a, b1);
}
GDN_DEVICE void as_operand(uint32_t (&a)[4], const float (&d0)[4], const float (&d1)[4]) {
    a[0] = gdn_pack_f16(d0[0], d0[1]);
    a[1] = gdn_pack_f16(d0[2], d0[3]);
    a[2] = gdn_pack_f16(d1[0], d1[1]);
    a[3] = gdn_pack_f16(d1[2], d1[3]);
}
/* 16 x 16 at (row, column) of T, negated. */
GDN_DEVICE void put_block(const inverse_smem &s, uint32_t row, uint32_t column, uint32_t lane, const float (&d0)[4], const float (&d1)[4]) {
    unsigned char *const to = s.T + (row + lane / 4) * T_ROW + (column + 2 * (lane % 4)) * 2;
    put_pair(to, gdn_pack_f16(-d0[0], -d0[1]));
    put_pair(to + 8 * T_ROW, gdn_pack_f16(-d0[2], -d0[3]));
    put_pair(to + 16, gdn_pack_f16(-d1[0], -d1[1]));
    put_pair(to + 16 + 8 * T_ROW, gdn_pack_f16(-d1[2], -d1[3]));
}
/* A lane's row of 16 and its half of 32 bytes. */
GDN_DEVICE const unsigned char *fragment(const unsigned char *tile, uint32_t row_bytes, uint32_t row, uint32_t column, uint32_t lane) {
    return tile + (row + lane % 16) * row_bytes + column * 2 + lane / 16 * 16;
}

/* Blocks (1,0) and (3,2): the odd warps. */
GDN_DEVICE void merge_16(const inverse_smem &s, uint32_t warp, uint32_t lane) {
    const uint32_t row = 16 * warp, left = row - 16;
    uint32_t a[4], b[4];
    float z[2][4] = {}, y[2][4] = {};
    gdn_ldmatrix_x4(a, fragment(s.T, T_ROW, row, row, lane));
    gdn_ldmatrix_x4_trans(b, fragment(s.L, L_ROW, row, left, lane));
    multiply(z[0], z[1], a, b);
    as_operand(a, z[0], z[1]);
    gdn_ldmatrix_x4_trans(b, fragment(s.T, T_ROW, left, left, lane));
    multiply(y[0], y[1], a, b);
    put_block(s, row, left, lane, y[0], y[1]);
}
/* The lower left 32 x 32: warps 2 and 3. */
GDN_DEVICE void merge_32(const inverse_smem &s, uint32_t warp, uint32_t lane) {
    uint32_t a[4], b[4], za[2][4];
    float z[4][4] = {}, y[4][4] = {};
    GDN_UNROLL
    for (uint32_t m = 2; m < 4; m++)
        if (m <= warp) {
            gdn_ldmatrix_x4(a, fragment(s.T, T_ROW, 16 * warp, 16 * m, lane));
            GDN_UNROLL
            for (uint32_t n = 0; n < 2; n++) {
                gdn_ldmatrix_x4_trans(b, fragment(s.L, L_ROW, 16 * m, 16 * n, lane));
                multiply(z[2 * n], z[2 * n + 1], a, b);
            }
        }
    as_operand(za[0], z[0], z[1]);
    as_operand(za[1], z[2], z[3]);
    gdn_ldmatrix_x4_trans(b, fragment(s.T, T_ROW, 0, 0, lane));
    multiply(y[0], y[1], za[0], b);
    gdn_ldmatrix_x4_trans(b, fragment(s.T, T_ROW, 16, 0, lane));
    multiply(y[0], y[1], za[1], b);
    gdn_ldmatrix_x4_trans(b, fragment(s.T, T_ROW, 16, 16, lane));
    multiply(y[2], y[3], za[1], b);
    put_block(s, 16 * warp, 0, lane, y[0], y[1]);
    put_block(s, 16 * warp, 16, lane, y[2], y[3]);
}
/* T without its diagonal, zeros above it, as a swizzled panel; all 128 threads. */
GDN_DEVICE void copy_strictly_lower(const inverse_smem &s, uint32_t thread, unsigned char *panel) {
    const uint32_t row0 = thread / 8, unit = thread % 8, n = row0 % 8, word = n / 2, mask = n % 2 ? 0xffffu : 0u;
    const unsigned char *const from = s.T + row0 * T_ROW + unit * 16;
    unsigned char *const to = panel + place(row0, unit * 8);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t last = row0 / 8 + 2 * i; /* unit with the diagonal: its first n of eight stay */
        uint4 x = { 0, 0, 0, 0 };
        if (unit <= last) {
            x = gdn_ld16(from + i * 16 * T_ROW);
            if (unit == last) {
                x.x = word == 0 ? x.x & mask : x.x;
                x.y = word < 1 ? 0u : word == 1 ? x.y & mask : x.y;
                x.z = word < 2 ? 0u : word == 2 ? x.z & mask : x.z;
                x.w = word < 3 ? 0u : x.w & mask;
            }
        }
        gdn_st16(to + i * 2048, x);
    }
}
} // namespace gdn_fast
