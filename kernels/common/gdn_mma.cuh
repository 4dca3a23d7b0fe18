/* gdn_mma.cuh - tensor-core products of one warp, and the loads and stores of their fragments. All 32 lanes take part.
 *
 * D[16][8] += A[16][16] B[16][8], 16-bit operands, f32 accumulators. With g = lane / 4 and t = lane % 4 a lane holds
 *   a[0] = A(g, 2t..2t+1)   a[1] = A(g+8, 2t..)   a[2] = A(g, 2t+8..)   a[3] = A(g+8, 2t+8..)
 *   b[0] = B(2t..2t+1, g)   b[1] = B(2t+8.., g)   d[0..1] = D(g, 2t..2t+1)   d[2..3] = D(g+8, 2t..)
 * each 32-bit word a pair, the smaller index in the lower half. The emulator adds exact products in f64 and rounds once;
 * the hardware aligns and truncates inside the product, so device against emulator is a comparison with a tolerance. */
#pragma once
#include "gdn_async.cuh"

#ifdef GDN_EMU
#include "gdn_emu_mma.hpp"
#else
GDN_DEVICE void gdn_mma_bf16_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GDN_DEVICE void gdn_mma_f16_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 8x8 matrices of 16-bit elements in shared memory. Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned;
 * x1 uses lanes 0..7, x2 lanes 0..15, the others' addresses are ignored) and receives the pair at row l / 4, columns
 * 2 (l % 4), +1 of each matrix; _trans: of each matrix transposed. */
GDN_DEVICE void gdn_ldmatrix_x1(uint32_t (&r)[1], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(gdn__shared_addr(row)) : "memory");
}
GDN_DEVICE void gdn_ldmatrix_x1_trans(uint32_t (&r)[1], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(gdn__shared_addr(row)) : "memory");
}
GDN_DEVICE void gdn_ldmatrix_x2(uint32_t (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(gdn__shared_addr(row))
                 : "memory");
}
GDN_DEVICE void gdn_ldmatrix_x2_trans(uint32_t (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(gdn__shared_addr(row))
                 : "memory");
}
GDN_DEVICE void gdn_ldmatrix_x4(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gdn__shared_addr(row))
                 : "memory");
}
GDN_DEVICE void gdn_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gdn__shared_addr(row))
                 : "memory");
}
/* The way back (sm_90 and later): lane l's pairs go to row l / 4, columns 2 (l % 4), +1; addresses as above. */
GDN_DEVICE void gdn_stmatrix_x4(void *row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(gdn__shared_addr(row)), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}
GDN_DEVICE void gdn_stmatrix_x4_trans(void *row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(gdn__shared_addr(row)), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif
