/* gdn_fp4_f16.cuh - FP4 codes and their scales as f16, exactly: e2m1 * ue4m3 has 6 significant bits and is a multiple of 2^-10, so it
 * fits f16 even times 2^-14 (a multiple of 2^-24, the smallest subnormal). For devices without FP4 tensor cores (sm_89 and later). */
#pragma once
#include "gdn_types.cuh"

/* Two products, rounded to nearest even: exact wherever this file is used. */
#ifdef GDN_EMU
GDN_DEVICE uint32_t gdn_mul_f16x2(uint32_t a, uint32_t b) {
    return gdn_pack_f16(gdn_f16_lo(a) * gdn_f16_lo(b), gdn_f16_hi(a) * gdn_f16_hi(b));
}
GDN_DEVICE uint32_t gdn__ue4m3_f16(uint32_t byte) {
    const uint32_t x = byte >> 3 & 15, m = byte & 7;
    if (x == 15 && m == 7) return 0x7fff;
    return gdn_to_f16(x ? gdn_float((x + 120) << 23 | m << 20) : (float)m * 0x1p-9f).bits;
}
GDN_DEVICE uint32_t gdn_ue4m3_two(uint32_t bytes) {
    return gdn__ue4m3_f16(bytes) | gdn__ue4m3_f16(bytes >> 8) << 16;
}
GDN_DEVICE uint32_t gdn_scale_f16x2(uint32_t a, uint32_t scales, int which) {
    return gdn_mul_f16x2(a, (scales >> 16 * which & 0xffffu) * 0x10001u);
}
#else
GDN_DEVICE uint32_t gdn_mul_f16x2(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
/* Two scales: the low byte's in the low half. The sign bits are not looked at; 0x7F is NaN. Above bytes' low 16 bits lies nothing. */
GDN_DEVICE uint32_t gdn_ue4m3_two(uint32_t bytes) {
    const uint16_t both = (uint16_t)(bytes & 0x7f7fu);
    uint32_t r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(both));
    return r;
}
/* a times one of two scales: which 0 the low half's, 1 the high half's; a constant. */
GDN_DEVICE uint32_t gdn_scale_f16x2(uint32_t a, uint32_t scales, int which) {
    uint32_t r;
    if (which)
        asm("{\n.reg .b16 l, h;\n.reg .b32 d;\nmov.b32 {l, h}, %2;\nmov.b32 d, {h, h};\nmul.rn.f16x2 %0, %1, d;\n}"
            : "=r"(r)
            : "r"(a), "r"(scales));
    else
        asm("{\n.reg .b16 l, h;\n.reg .b32 d;\nmov.b32 {l, h}, %2;\nmov.b32 d, {l, l};\nmul.rn.f16x2 %0, %1, d;\n}"
            : "=r"(r)
            : "r"(a), "r"(scales));
    return r;
}
#endif

/* Eight codes, the lowest nibble first, as values * 2^-14: h[i] = (code i, code i + 4)'s order h[0] = (0, 4), h[1] = (1, 5), h[2] = (2, 6),
 * h[3] = (3, 7). The code's three bits go to bits 11..9 of the f16, subnormals and all. */
GDN_DEVICE void gdn_e2m1x8(uint32_t w, uint32_t (&h)[4]) {
    const uint32_t even = (w << 4 & 0x80808080u) | (w << 1 & 0x0e0e0e0eu), odd = (w & 0x80808080u) | (w >> 3 & 0x0e0e0e0eu);
    h[0] = __byte_perm(even, 0, 0x2404);
    h[2] = __byte_perm(even, 0, 0x3414);
    h[1] = __byte_perm(odd, 0, 0x2404);
    h[3] = __byte_perm(odd, 0, 0x3414);
}
