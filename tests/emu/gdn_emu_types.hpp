/* gdn_emu_types.hpp - host forms of gdn_types.cuh: the conversions that round. */
#pragma once

GDN_DEVICE gdn_bf16 gdn_to_bf16(float x) {
    const uint32_t u = gdn_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return { 0x7fff };
    return { (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16) };
}
GDN_DEVICE gdn_f16 gdn_to_f16(float x) {
    const uint32_t u = gdn_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return { 0x7fff };
    if (a >= 0x477ff000u) return { (uint16_t)(sign | 0x7c00u) }; /* 65520 and above round to infinity */
    if (a < 0x38800000u) {                                       /* below 2^-14: units of 2^-24; the sum's low bits are the rounded count */
        const float magic = gdn_float(a) + 0.5f;
        return { (uint16_t)(sign | (gdn_bits(magic) - 0x3f000000u)) };
    }
    const uint32_t r = a + 0xfffu + (a >> 13 & 1);
    return { (uint16_t)(sign | ((r - 0x38000000u) >> 13)) };
}
GDN_DEVICE float gdn_to_f32(gdn_f16 x) {
    const uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16, e = x.bits >> 10 & 31u, m = x.bits & 0x3ffu;
    if (e == 31) return gdn_float(m ? 0x7fffffffu : sign | 0x7f800000u);
    if (e) return gdn_float(sign | ((e + 112) << 23) | m << 13);
    const float v = (float)m * 0x1p-24f;
    return sign ? -v : v;
}
GDN_DEVICE uint32_t gdn_pack_bf16(float lo, float hi) {
    return gdn_to_bf16(lo).bits | (uint32_t)gdn_to_bf16(hi).bits << 16;
}
GDN_DEVICE uint32_t gdn_pack_f16(float lo, float hi) {
    return gdn_to_f16(lo).bits | (uint32_t)gdn_to_f16(hi).bits << 16;
}
