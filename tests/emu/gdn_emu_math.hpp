/* gdn_emu_math.hpp - host forms of gdn_math.cuh's approximate instructions: f64, rounded once; subnormals go to zero where the
 * instruction says ftz. */
#pragma once

namespace emu {
inline float flush(float x) {
    return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
} // namespace emu
GDN_DEVICE float gdn_exp_fast(float x) {
    return __expf(x);
}
GDN_DEVICE float gdn_log_fast(float x) {
    return __logf(x);
}
GDN_DEVICE float gdn_exp2_fast(float x) {
    return emu::flush((float)std::exp2((double)emu::flush(x)));
}
GDN_DEVICE float gdn_log2_fast(float x) {
    return emu::flush((float)std::log2((double)emu::flush(x)));
}
GDN_DEVICE float gdn_rsqrt(float x) {
    return rsqrtf(x);
}
GDN_DEVICE float gdn_rcp_fast(float x) {
    return emu::flush(1.0f / emu::flush(x));
}
GDN_DEVICE float gdn_div_fast(float a, float b) {
    return __fdividef(a, b);
}
