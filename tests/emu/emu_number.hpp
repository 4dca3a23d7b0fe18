/* emu_number.hpp - the emulator's own 16-bit floats (exact widening), independent of the headers under test. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emu {
inline float widen_bf16(uint16_t x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
inline float widen_f16(uint16_t x) {
    const int e = x >> 10 & 31, m = x & 1023;
    if (e && e < 31) { /* normal: move the exponent */
        uint32_t u = (uint32_t)(x & 0x8000) << 16 | (uint32_t)(e + 112) << 23 | (uint32_t)m << 13;
        float f;
        __builtin_memcpy(&f, &u, 4);
        return f;
    }
    const float v = e ? (m ? NAN : INFINITY) : (float)m * 0x1p-24f;
    return x & 0x8000 ? -v : v;
}
inline float low_half(uint32_t pair, bool f16) {
    return f16 ? widen_f16((uint16_t)pair) : widen_bf16((uint16_t)pair);
}
inline float high_half(uint32_t pair, bool f16) {
    return low_half(pair >> 16, f16);
}
} // namespace emu
