/* gdn_swizzle.cuh - tiles of bf16 rows in shared memory for tensor-core kernels: where an element lies, how rows come in from any stride,
 * which address a lane gives ldmatrix, and f32 values as two bf16 limbs.
 *
 * A row is ROW_BYTES = 32, 64, 128 or 256 bytes without a pad. Its 16-byte unit u lies at unit u ^ s(row), so that eight rows of one
 * unit (what one matrix of ldmatrix or stmatrix touches) meet no bank twice. Tiles are 16-byte aligned, better 128. */
#pragma once
#include "gdn_async.cuh"
#include "gdn_memory.cuh"
#include "gdn_mma.cuh"
#include "gdn_types.cuh"
#include "gdn_warp.cuh"

template <uint32_t ROW_BYTES> GDN_DEVICE uint32_t gdn_swizzle_of(uint32_t row) {
    static_assert(ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128 || ROW_BYTES == 256, "rows of 2, 4, 8 or 16 units");
    return ROW_BYTES == 32 ? row >> 2 & 1 : ROW_BYTES == 64 ? row >> 1 & 3 : row & 7;
}
template <uint32_t ROW_BYTES> GDN_DEVICE uint32_t gdn_swizzle_at(uint32_t row, uint32_t unit) {
    return row * ROW_BYTES + ((unit ^ gdn_swizzle_of<ROW_BYTES>(row)) << 4);
}

/* ---- fragments of m16n8k16 (gdn_mma.cuh), two B tiles or one A tile by one ldmatrix.x4 ----
 * A lane's row and unit inside 16 rows x 2 units. PLAIN: memory rows are the operand's rows m with k along them (A), or, with the
 * transposing load, its rows k with n along them (B: r[0..1] columns 0..7, r[2..3] columns 8..15). CROSSED: memory rows are columns n
 * with k along them (B, not transposed), or k with m along them (A, transposed). */
GDN_DEVICE uint32_t gdn_plain_row(uint32_t lane) {
    return lane & 15;
}
GDN_DEVICE uint32_t gdn_plain_unit(uint32_t lane) {
    return lane >> 4;
}
GDN_DEVICE uint32_t gdn_crossed_row(uint32_t lane) {
    return (lane & 7) + (lane >> 4) * 8;
}
GDN_DEVICE uint32_t gdn_crossed_unit(uint32_t lane) {
    return lane >> 3 & 1;
}
GDN_DEVICE void gdn_mma_pair(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    const uint32_t b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    gdn_mma_bf16_m16n8k16(d0, a, b0);
    gdn_mma_bf16_m16n8k16(d1, a, b1);
}

/* ---- limbs: x = hi + lo up to 2^-17 |x|; hi = bf16(x), lo = bf16(x - hi) ---- */
GDN_DEVICE void gdn_split_bf16(uint32_t &hi, uint32_t &lo, float x, float y) {
    hi = gdn_pack_bf16(x, y);
    lo = gdn_pack_bf16(x - gdn_bf16_lo(hi), y - gdn_bf16_hi(hi));
}
/* Accumulators of two neighbouring tiles (16 x 16) as the A operand of the next product, in limbs. */
GDN_DEVICE void gdn_split_a(uint32_t (&hi)[4], uint32_t (&lo)[4], const float (&d0)[4], const float (&d1)[4]) {
    gdn_split_bf16(hi[0], lo[0], d0[0], d0[1]);
    gdn_split_bf16(hi[1], lo[1], d0[2], d0[3]);
    gdn_split_bf16(hi[2], lo[2], d1[0], d1[1]);
    gdn_split_bf16(hi[3], lo[3], d1[2], d1[3]);
}

/* ---- rows from global memory ---- */
/* The widest copy that base and stride (in elements) allow: 16, 8, 4 or 2 bytes. */
GDN_DEVICE uint32_t gdn_copy_bytes(const gdn_bf16 *base, uint32_t stride) {
    const uint32_t bits = (uint32_t)(uint64_t)base | stride * 2;
    return (bits & 15) == 0 ? 16 : (bits & 7) == 0 ? 8 : (bits & 3) == 0 ? 4 : 2;
}
/* HEIGHT rows of 128 elements, of which `rows` exist; the others become zeros and are not read. All THREADS threads of a block; the
 * caller commits the group and waits. */
template <uint32_t HEIGHT, uint32_t THREADS>
GDN_DEVICE void gdn_swizzle_load(unsigned char *tile, const gdn_bf16 *base, uint32_t stride, uint32_t rows, uint32_t bytes = 16) {
    static_assert(HEIGHT * 16 % THREADS == 0 && THREADS % 128 == 0, "whole passes of eight rows and more: one place in all of them");
    const uint32_t row0 = threadIdx.x / 16, unit = threadIdx.x % 16;
    unsigned char *const to0 = tile + gdn_swizzle_at<256>(row0, unit);
    const gdn_bf16 *from = base + ((uint64_t)row0 * stride + unit * 8);
    GDN_UNROLL
    for (uint32_t i = 0; i < HEIGHT * 16 / THREADS; i++, from += (uint64_t)(THREADS / 16) * stride) {
        const bool there = row0 + i * (THREADS / 16) < rows; /* with 0 bytes the address is not looked at */
        unsigned char *const to = to0 + i * (THREADS * 16);
        if (bytes == 16) {
            gdn_cp_async16(to, from, there ? 16 : 0);
        } else if (bytes == 8) {
            gdn_cp_async8(to, from, there ? 8 : 0);
            gdn_cp_async8(to + 8, from + 4, there ? 8 : 0);
        } else if (bytes == 4) {
            GDN_UNROLL
            for (uint32_t e = 0; e < 4; e++) gdn_cp_async4(to + e * 4, from + e * 2, there ? 4 : 0);
        } else {
            uint32_t w[4] = { 0, 0, 0, 0 };
            if (there) {
                GDN_UNROLL
                for (uint32_t e = 0; e < 8; e++) w[e / 2] |= (uint32_t)from[e].bits << (16 * (e % 2));
            }
            gdn_st16(to, uint4 { w[0], w[1], w[2], w[3] });
        }
    }
}
