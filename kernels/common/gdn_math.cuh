/* gdn_math.cuh - arithmetic that a contract has to name: fused or not, exact or approximate.
 *
 * + - * / sqrtf and gdn_fma round once, and give the same bytes here, on the CPU targets and in the emulator (modules are
 * compiled with --fmad=false). gdn_exp and gdn_log are the ordinary single-precision functions, off by an ulp or two,
 * not the same ulp on both sides. The _fast forms are the approximate instructions; the emulator computes them in f64 and
 * rounds once, so device and emulator differ by no more than the device's own error (CUDA's table of intrinsics):
 *   gdn_exp_fast   2 + floor(|1.173 x|) ulp       gdn_log_fast   2^-21.41 absolute in [0.5, 2], else 3 ulp
 *   gdn_exp2_fast  2 ulp, subnormals to zero      gdn_log2_fast  2^-22 absolute in [0.5, 2], else 2 ulp
 *   gdn_rsqrt      2 ulp                          gdn_rcp_fast   1 ulp             gdn_div_fast  2 ulp for 2^-126 < |y| < 2^126
 * GDN_NO_LIBM replaces exp, log and division by cheap exact arithmetic: a build for instruction counts only (their
 * expansions hold FFMA), never for results. */
#pragma once
#include "gdn_types.cuh"

GDN_DEVICE float gdn_fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}

#ifdef GDN_NO_LIBM
GDN_DEVICE float gdn_exp(float x) {
    return x;
}
GDN_DEVICE float gdn_log(float x) {
    return x;
}
GDN_DEVICE float gdn_div(float a, float b) {
    return a * b;
}
#else
GDN_DEVICE float gdn_exp(float x) {
    return expf(x);
}
GDN_DEVICE float gdn_log(float x) {
    return logf(x);
}
GDN_DEVICE float gdn_div(float a, float b) {
    return __fdiv_rn(a, b);
}
#endif

#ifdef GDN_EMU
#include "gdn_emu_math.hpp"
#else
GDN_DEVICE float gdn_exp_fast(float x) {
    return __expf(x);
}
GDN_DEVICE float gdn_log_fast(float x) {
    return __logf(x);
}
GDN_DEVICE float gdn_exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GDN_DEVICE float gdn_log2_fast(float x) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GDN_DEVICE float gdn_rsqrt(float x) {
    return rsqrtf(x);
}
GDN_DEVICE float gdn_rcp_fast(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
GDN_DEVICE float gdn_div_fast(float a, float b) {
    return __fdividef(a, b);
}
#endif
