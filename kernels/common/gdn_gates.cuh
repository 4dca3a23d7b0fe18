/* gdn_gates.cuh - the gate non-linearity of the projection kernels, in fast intrinsics or ordinary functions,
 * and the store of one output.
 *
 *     beta = 1 / (1 + exp(-r))          gate = exp(-exp(min(A_log, 20)) * log(1 + exp(min(r + dt_bias, 20))))
 *
 * Finite for all finite inputs: exp(200) = inf gives beta 0, and log(1 + 0) = 0 times a clamped rate gives gate 1. The clamp lets
 * a NaN through. The emulator's intrinsics differ from the device's by the bounds in gdn_math.cuh. */
#pragma once
#include "gdn_ba_maps.h"
#include "gdn_math.cuh"
#include "gdn_types.cuh"

GDN_DEVICE float gdn__clamp20(float x) {
    return x > 20.0f ? 20.0f : x;
}
GDN_DEVICE float gdn_beta_fast(float r) {
    return gdn_rcp_fast(1.0f + gdn_exp_fast(-r));
}
GDN_DEVICE float gdn_gate_fast(float r, float A_log, float dt_bias) {
    const float softplus = gdn_log_fast(1.0f + gdn_exp_fast(gdn__clamp20(r + dt_bias)));
    return gdn_exp_fast(-gdn_exp_fast(gdn__clamp20(A_log)) * softplus);
}

/* exp(x + low) for x in [-87, 88], low small beside it: about 0.6 ulp, where the ordinary exp has up to 2. */
GDN_DEVICE float gdn__exp_near(float x, float low) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: the sum's last bits are the nearest integer */
    const float shifted = gdn_fma(x, 1.44269504f, magic), n = shifted - magic;
    const float r = gdn_fma(n, -1.42860677e-6f, gdn_fma(n, -0.693145752f, x)) + low; /* ln 2 = 15 bits + rest: the inner one is exact */
    float q = 1.98412698e-4f;                                                        /* 1/2! + r/3! + ... + r^5/7!, |r| < 0.35 */
    q = gdn_fma(q, r, 1.38888889e-3f);
    q = gdn_fma(q, r, 8.33333333e-3f);
    q = gdn_fma(q, r, 4.16666667e-2f);
    q = gdn_fma(q, r, 1.66666667e-1f);
    q = gdn_fma(q, r, 0.5f);
    const float e = 1.0f + gdn_fma(r * r, q, r);
    return gdn_float(gdn_bits(e) + (gdn_bits(shifted) << 23)); /* times 2^n: what magic adds is shifted out */
}
/* Of r + low, without a branch. What 1 + e rounds away goes into the reciprocal, so that the result is off by the exp and one rounding. */
GDN_DEVICE float gdn_beta_precise(float r, float low) {
    const float x = r < -87.0f ? -87.0f : r > 87.0f ? 87.0f : r, e = gdn__exp_near(-x, -low), u = 1.0f + e;
    const float rest = e < 1.0f ? e - (u - 1.0f) : 1.0f - (u - e), q = gdn_rcp_fast(u);
    const float beta = gdn_fma(q, gdn_fma(-q, rest, gdn_fma(-u, q, 1.0f)), q);
    return r >= -87.0f ? beta : r < -87.0f ? 0.0f : r; /* a NaN stays one */
}
/* exp(min(A_log, 20)): of a head. */
GDN_DEVICE float gdn_gate_rate(float A_log) {
    return gdn_exp(gdn__clamp20(A_log));
}
/* With the ordinary functions, and log(1 + t) that keeps what 1 + t rounds away: a few more instructions, half the error. */
GDN_DEVICE float gdn_gate_precise(float r, float rate, float dt_bias) {
    const float x = gdn__clamp20(r + dt_bias), t = gdn_exp(-fabsf(x)), u = 1.0f + t;
    const float softplus = (x > 0.0f ? x : 0.0f) + (gdn_log(u) + (t - (u - 1.0f)) * gdn_rcp_fast(u));
    return gdn_exp(-rate * softplus);
}

/* Column n's dot product r, through its gate, to the row's gate or beta pointer. */
GDN_DEVICE void gdn_store_gate(float *gate, float *beta, float r, uint32_t n, uint32_t vpg, const float *A_log, const float *dt_bias) {
    const gdn_ba_slot slot = gdn_ba_slot_of(n, vpg);
    if (slot.is_beta)
        beta[slot.head] = gdn_beta_fast(r);
    else
        gate[slot.head] = gdn_gate_fast(r, A_log[slot.head], dt_bias[slot.head]);
}
