/* gdn_wn_states.cuh - how states come to the computing warps of the fast prefill by W and N, in its serial pass: warps 12 to 15 read a
 * task's state while the task before runs, keep it in registers, and hand it over by halves of 64 rows k through a buffer. Barriers: state
 * (a half is in the buffer), taken. */
#pragma once
#include "gdn_rows.cuh"
#include "gdn_wn_task.cuh"

namespace gdn_wn {
/* Byte of element (k, v) of a half: rows as in memory, units of 16 bytes swizzled so that neither side meets a bank twice. */
GDN_DEVICE uint32_t state_byte(uint32_t k, uint32_t v) {
    return GDN_IS_VK ? v * 256 + (k * 4 ^ (v & 3) * 32) : k * 256 + (v * 4 ^ (k & 6) * 16);
}

/* ---- computing warps ---- */
/* A thread's elements of the next half: k = 8 j + 2 t, +1 of value columns v and v + 8 in [4 j..4 j + 3]. halves: taken by this block so
 * far. */
GDN_DEVICE void take_state(float (&s)[32], const fwd_place &at, uint32_t &halves) {
    const uint32_t lane = gdn_anew(gdn_lane()), k = 2 * (lane % 4), v = gdn_warp() * 16 + lane / 4;
    gdn_mbar_wait(at.bars->state, halves++ & 1);
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const float *const from = reinterpret_cast<const float *>(at.smem + FWD_STATE + state_byte(k + 8 * j, v + 8 * i));
            s[4 * j + 2 * i] = from[0], s[4 * j + 2 * i + 1] = from[GDN_IS_VK ? 1 : 64];
        }
    }
    gdn_mbar_arrive(at.bars->taken);
}

/* ---- warps 12 to 15: a thread has 8 units of 16 bytes of each half ---- */
enum { STATE_THREADS = 128, UNITS = HALF * COLUMNS / 4 / STATE_THREADS };
struct state_half {
    float4 x[UNITS];
};
template <class F> GDN_DEVICE void each_unit(F visit) {
    const uint32_t thread = threadIdx.x % STATE_THREADS, line = thread / 16, unit = thread % 16 * 4;
    GDN_UNROLL
    for (uint32_t i = 0; i < UNITS; i++) visit(i, GDN_IS_VK ? unit : 8 * i + line, GDN_IS_VK ? 8 * i + line : unit);
}
/* PLAIN: no state is fresh, and all are aligned. */
template <bool PLAIN> GDN_DEVICE state_half load_half(const fwd_place &at, uint32_t half) {
    const bool aligned = PLAIN || gdn_aligned16(at.h.in);
    state_half s;
    each_unit([&](uint32_t i, uint32_t k, uint32_t v) {
        const float *const from = at.h.in + gdn_state_at(half * HALF + k, at.column + v, DIM, DIM);
        if (!PLAIN && at.fresh)
            s.x[i] = float4 { 0, 0, 0, 0 };
        else if (aligned)
            s.x[i] = gdn_ld16f(from);
        else
            s.x[i] = float4 { from[0], from[1], from[2], from[3] };
    });
    return s;
}
/* halves: handed over by this block so far. */
GDN_DEVICE void hand_over(const fwd_place &at, const state_half &s, uint32_t &halves) {
    gdn_mbar_wait(at.bars->taken, ~halves++ & 1);
    each_unit(
        [&](uint32_t i, uint32_t k, uint32_t v) { gdn_st16f(reinterpret_cast<float *>(at.smem + FWD_STATE + state_byte(k, v)), s.x[i]); });
    gdn_mbar_arrive(at.bars->state);
}
template <bool PLAIN, class E> GDN_DEVICE void bring_states(E each) {
    uint32_t halves = 0;
    each([&](const fwd_place &at) {
        if (!has_pass(at)) return;
        const state_half first = load_half<PLAIN>(at, 0), second = load_half<PLAIN>(at, 1);
        hand_over(at, first, halves);
        hand_over(at, second, halves);
    });
}
} // namespace gdn_wn
