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

/* The same with the ordinary functions, and log(1 + t) that keeps what 1 + t rounds away: a few more instructions, half the error. */
GDN_DEVICE float gdn_beta_precise(float r) {
    return gdn_div(1.0f, 1.0f + gdn_exp(-r));
}
GDN_DEVICE float gdn_gate_precise(float r, float A_log, float dt_bias) {
    const float x = gdn__clamp20(r + dt_bias), t = gdn_exp(-fabsf(x)), u = 1.0f + t;
    const float softplus = (x > 0.0f ? x : 0.0f) + (gdn_log(u) + (t - (u - 1.0f)) * gdn_rcp_fast(u));
    return gdn_exp(-gdn_exp(gdn__clamp20(A_log)) * softplus);
}

/* Column n's dot product r, through its gate, to the row's gate or beta pointer. */
template <bool PRECISE>
GDN_DEVICE void gdn_store_gate(float *gate, float *beta, float r, uint32_t n, uint32_t vpg, const float *A_log, const float *dt_bias) {
    const gdn_ba_slot slot = gdn_ba_slot_of(n, vpg);
    if (slot.is_beta) {
        beta[slot.head] = PRECISE ? gdn_beta_precise(r) : gdn_beta_fast(r);
    } else {
        const float A = A_log[slot.head], dt = dt_bias[slot.head];
        gate[slot.head] = PRECISE ? gdn_gate_precise(r, A, dt) : gdn_gate_fast(r, A, dt);
    }
}
