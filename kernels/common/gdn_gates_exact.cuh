/* gdn_gates_exact.cuh - the same gates, careful, from exactly rounded operations alone (+ - * / and fused multiply-add): the same bytes
 * on every device and in the emulator, and no double precision. Largest relative errors found in 20 million tries over g in
 * [-87, 0]: gate 1.4e-6, its logarithm 8.1e-8, beta 1.5e-7.
 *
 *     beta = 1 / (1 + exp(-b))     g = -exp(min(A_log, 20)) * log(1 + exp(min(a + dt_bias, 20)))     gate = exp(g)
 *
 * g reaches -87 before gate leaves the range, and exp turns the absolute error of g into a relative one; so g needs about nine
 * more bits than an f32 has. Values are unevaluated sums hi + lo with a power of two apart, so nothing underflows on the way. */
#pragma once
#include "gdn_math.cuh"
#include "gdn_types.cuh"

/* (hi + lo) * 2^n */
struct gdn_pair {
    float hi, lo;
    int32_t n;
};

/* hi + lo = a + b exactly. */
GDN_DEVICE gdn_pair gdn__two_sum(float a, float b) {
    const float s = a + b, t = s - a;
    return { s, (a - (s - t)) + (b - t), 0 };
}
/* x * 2^n; n beyond what f32 can show makes 0 or infinity of a mantissa near 1. */
GDN_DEVICE float gdn__scale(float x, int32_t n) {
    n = n < -252 ? -252 : n > 252 ? 252 : n;
    const int32_t half = n / 2;
    return x * gdn_float((uint32_t)(127 + half) << 23) * gdn_float((uint32_t)(127 + n - half) << 23);
}

/* e^(hi + lo) for hi in [-1000, 100], lo small beside it: relative error below 2^-25. */
GDN_DEVICE gdn_pair gdn__exp_pair(float hi, float lo) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: the sum's last bits are the nearest integer, also for a NaN a defined one */
    const float shifted = gdn_fma(hi, 1.44269504f, magic), n = shifted - magic;
    const float ln2_head = 0.693145752f; /* 15 bits: n times it is exact; ln 2 = head + mid */
    const float mid = 1.42860677e-6f;
    const float r = gdn_fma(-n, ln2_head, hi); /* exact */
    const float p = n * mid, p_low = gdn_fma(n, mid, -p);
    const gdn_pair x = gdn__two_sum(r, -p);
    const float x_low = x.lo + (lo - p_low);
    float q = 1.98412698e-4f; /* x^2 (1/2! + x/3! + ... + x^5/7!), |x| < 0.35 */
    q = gdn_fma(q, x.hi, 1.38888889e-3f);
    q = gdn_fma(q, x.hi, 8.33333333e-3f);
    q = gdn_fma(q, x.hi, 4.16666667e-2f);
    q = gdn_fma(q, x.hi, 1.66666667e-1f);
    q = gdn_fma(q, x.hi, 0.5f);
    const gdn_pair s = gdn__two_sum(1.0f, x.hi);
    const float curve = gdn_fma(x.hi * x.hi, q, s.lo), low = gdn_fma(s.hi + curve, x_low, curve); /* e^x (1 + x_low) */
    const gdn_pair e = gdn__two_sum(s.hi, low);
    return { e.hi, e.lo, (int32_t)(gdn_bits(shifted) & 0x7fffffu) - 0x400000 };
}

/* log(1 + e^x), x = hi + lo <= 20. */
GDN_DEVICE gdn_pair gdn__softplus_pair(float hi, float lo) {
    const bool positive = hi > 0.0f;
    const gdn_pair t = positive ? gdn__exp_pair(-hi, -lo) : gdn__exp_pair(hi, lo);
    if (hi < -20.0f) return t; /* t - t^2/2: t is below 2.1e-9 */
    /* log(1 + t) = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = t / (2 + t) <= 1/3 */
    const float th = gdn__scale(t.hi, t.n), tl = gdn__scale(t.lo, t.n);
    const gdn_pair d = gdn__two_sum(2.0f, th);
    const float s = gdn_div(th, d.hi);
    const float rest = gdn_fma(-s, d.hi, th) + (tl - s * (d.lo + tl)); /* what s * (2 + t) misses of t */
    const float s_low = gdn_div(rest, d.hi);
    const float z = s * s;
    float q = 0.0588235294f; /* 1/17 */
    q = gdn_fma(q, z, 0.0666666667f);
    q = gdn_fma(q, z, 0.0769230769f);
    q = gdn_fma(q, z, 0.0909090909f);
    q = gdn_fma(q, z, 0.111111111f);
    q = gdn_fma(q, z, 0.142857143f);
    q = gdn_fma(q, z, 0.2f);
    q = gdn_fma(q, z, 0.333333333f);
    const float low = 2.0f * gdn_fma(s * z, q, s_low);
    if (!positive) return gdn__two_sum(2.0f * s, low);
    const gdn_pair y = gdn__two_sum(hi, 2.0f * s);
    return gdn__two_sum(y.hi, y.lo + (low + lo));
}

GDN_DEVICE float gdn__clamp(float x, float lo, float hi) { /* a NaN goes through */
    return x > hi ? hi : x < lo ? lo : x;
}

/* gate, or with log_form its logarithm g. */
GDN_DEVICE float gdn_gate_exact(float a, float A_log, float dt_bias, bool log_form) {
    gdn_pair x = gdn__two_sum(a, dt_bias);
    if (x.hi >= 20.0f) x = { 20.0f, 0.0f, 0 };
    if (x.hi < -1000.0f) x = { -1000.0f, 0.0f, 0 };
    const gdn_pair rate = gdn__exp_pair(gdn__clamp(A_log, -1000.0f, 20.0f), 0.0f), soft = gdn__softplus_pair(x.hi, x.lo);
    const float p = rate.hi * soft.hi, p_low = gdn_fma(rate.hi, soft.hi, -p) + gdn_fma(rate.hi, soft.lo, rate.lo * soft.hi);
    const int32_t n = rate.n + soft.n;
    if (log_form) return -gdn__scale(p + p_low, n);
    const float g = -gdn__scale(p, n);
    if (g < -110.0f) return 0.0f;
    const gdn_pair e = gdn__exp_pair(g, -gdn__scale(p_low, n));
    return gdn__scale(e.hi + e.lo, e.n);
}

/* 1 / (1 + e^-b) without overflow, and with its relative precision where it is tiny. */
GDN_DEVICE float gdn_beta_exact(float b) {
    const bool positive = b > 0.0f;
    const float x = gdn__clamp(b, -200.0f, 200.0f);
    const gdn_pair e = gdn__exp_pair(positive ? -x : x, 0.0f);
    const float t = gdn__scale(e.hi + e.lo, e.n);
    return gdn_div(positive ? 1.0f : t, 1.0f + t);
}
