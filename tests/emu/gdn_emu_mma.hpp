/* gdn_emu_mma.hpp - host forms of gdn_mma.cuh. */
#pragma once
#include "emu_mma.hpp"

GDN_DEVICE void gdn_mma_bf16_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_AT) {
    emu::mma_m16n8k16(d, a, b, false, at);
}
GDN_DEVICE void gdn_mma_f16_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_AT) {
    emu::mma_m16n8k16(d, a, b, true, at);
}
GDN_DEVICE void gdn_ldmatrix_x1(uint32_t (&r)[1], const void *row, EMU_AT) {
    emu::ldmatrix(r, 1, false, row, at);
}
GDN_DEVICE void gdn_ldmatrix_x1_trans(uint32_t (&r)[1], const void *row, EMU_AT) {
    emu::ldmatrix(r, 1, true, row, at);
}
GDN_DEVICE void gdn_ldmatrix_x2(uint32_t (&r)[2], const void *row, EMU_AT) {
    emu::ldmatrix(r, 2, false, row, at);
}
GDN_DEVICE void gdn_ldmatrix_x2_trans(uint32_t (&r)[2], const void *row, EMU_AT) {
    emu::ldmatrix(r, 2, true, row, at);
}
GDN_DEVICE void gdn_ldmatrix_x4(uint32_t (&r)[4], const void *row, EMU_AT) {
    emu::ldmatrix(r, 4, false, row, at);
}
GDN_DEVICE void gdn_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, EMU_AT) {
    emu::ldmatrix(r, 4, true, row, at);
}
GDN_DEVICE void gdn_stmatrix_x4(void *row, const uint32_t (&r)[4], EMU_AT) {
    emu::stmatrix(row, r, false, at);
}
GDN_DEVICE void gdn_stmatrix_x4_trans(void *row, const uint32_t (&r)[4], EMU_AT) {
    emu::stmatrix(row, r, true, at);
}
