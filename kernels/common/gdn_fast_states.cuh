/* gdn_fast_states.cuh - how states come to the computing warps of the fast prefill's serial pass and leave them. Warps 12 to 15 bring a
 * task's state to a buffer while the task before runs. At the end of that, each computing thread puts its elements of the old state where
 * it took those of the new one, and warps 12 to 15 take the old one away.
 *
 * Turns count the tasks of a block that have a pass; behind the last there is one more, with no state and no chunks. Barriers: noted (two;
 * a task's note is there, one task ahead), state (it is in the buffer), taken (the buffer holds the one before). */
#pragma once
#include "gdn_fast_task.cuh"
#include "gdn_rows.cuh"

namespace gdn_fast {
enum {
    MANY_BARS = FWD_SMEM,
    MANY_NOTES = MANY_BARS + 32,     /* chunks of four tasks in turn; 0: there is none */
    MANY_STATE = MANY_NOTES + 4 * 4, /* where a task's state is exchanged for the next one's */
    MANY_SMEM = MANY_STATE + DIM * COLUMNS * 4,
};
struct many_bars {
    gdn_mbarrier noted[2], state, taken;
};
static_assert(sizeof(many_bars) <= 32, "MANY_NOTES");
static_assert(MANY_BARS % 8 == 0 && MANY_STATE % 16 == 0, "mbarriers, copies");
static_assert(MANY_SMEM == 216672, "the launcher's number");
GDN_DEVICE many_bars &many_bars_of(unsigned char *smem) {
    return *reinterpret_cast<many_bars *>(smem + MANY_BARS);
}
GDN_DEVICE uint32_t &note_of(unsigned char *smem, uint32_t turn) {
    return *reinterpret_cast<uint32_t *>(smem + MANY_NOTES + turn % 4 * 4);
}

/* Byte of element (k, v) in the buffer: rows as in memory, units of 16 bytes swizzled so that neither side meets a bank twice. */
GDN_DEVICE uint32_t state_byte(uint32_t k, uint32_t v) {
    return GDN_IS_VK ? v * 512 + (k * 4 ^ (v & 3) * 32) : k * 256 + (v * 4 ^ (k & 6) * 16);
}
/* The same of a task's slice in memory, in elements. */
GDN_DEVICE uint32_t slice_at(uint32_t k, uint32_t v) {
    return gdn_state_at(k, v, DIM, DIM);
}

/* ---- computing warps ---- */
/* A thread's elements of rows 64 half .. + 63: k = 64 half + 8 j + 2 t, +1 of value columns v and v + 8 in [4 j..4 j + 3]. PUT: in
 * exchange. */
template <bool PUT> GDN_DEVICE void take_state(float (&s)[32], unsigned char *smem, uint32_t half) {
    const uint32_t lane = gdn_anew(gdn_lane()), k = 64 * half + 2 * (lane % 4), v = gdn_warp() * 16 + lane / 4;
    unsigned char *const buffer = smem + MANY_STATE;
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        float *at[2], in[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            at[i] = reinterpret_cast<float *>(buffer + state_byte(k + 8 * j, v + 8 * i));
            in[2 * i] = at[i][0], in[2 * i + 1] = at[i][GDN_IS_VK ? 1 : 64];
        }
        GDN_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            if (PUT) at[i][0] = s[4 * j + 2 * i], at[i][GDN_IS_VK ? 1 : 64] = s[4 * j + 2 * i + 1];
            s[4 * j + 2 * i] = in[2 * i], s[4 * j + 2 * i + 1] = in[2 * i + 1];
        }
    }
}

/* ---- warps 12 to 15 ---- */
/* This thread's units of 16 bytes, a part of them: visit(number in it, element of the slice, byte in the buffer). */
enum { STATE_THREADS = 128, BAR_STATES = 1, UNITS = 4, UNIT_PARTS = DIM * COLUMNS / 4 / STATE_THREADS / UNITS };
template <class F> GDN_DEVICE void each_unit(uint32_t part, F visit) {
    const uint32_t thread = threadIdx.x % STATE_THREADS;
    GDN_UNROLL
    for (uint32_t n = 0; n < UNITS; n++) {
        const uint32_t i = UNITS * part + n, k = GDN_IS_VK ? thread % 32 * 4 : 8 * i + thread / 16,
                       v = GDN_IS_VK ? 4 * i + thread / 32 : thread % 16 * 4;
        visit(n, slice_at(k, v), state_byte(k, v));
    }
}
/* The same by elements, for states that are not aligned. */
template <class F> GDN_DEVICE void each_element(F visit) {
    GDN_NO_UNROLL
    for (uint32_t i = threadIdx.x % STATE_THREADS; i < DIM * COLUMNS; i += STATE_THREADS) {
        const uint32_t k = GDN_IS_VK ? i % DIM : i / COLUMNS, v = GDN_IS_VK ? i / DIM : i % COLUMNS;
        visit(slice_at(k, v), state_byte(k, v));
    }
}
GDN_DEVICE void fill_buffer(unsigned char *buffer, const float *from, bool zeros) {
    const uint32_t left = zeros ? 0 : 16; /* bytes that are read */
    if (gdn_aligned16(from)) {
        GDN_NO_UNROLL
        for (uint32_t part = 0; part < UNIT_PARTS; part++)
            each_unit(part, [&](uint32_t, uint32_t e, uint32_t to) { gdn_cp_async16(buffer + to, from + e, left); });
    } else {
        each_element([&](uint32_t e, uint32_t to) { gdn_cp_async4(buffer + to, from + e, left / 4); });
    }
    gdn_cp_async_commit();
    gdn_cp_async_wait<0>();
}
GDN_DEVICE void empty_buffer(const unsigned char *buffer, float *to) {
    if (!gdn_aligned16(to)) {
        each_element([&](uint32_t e, uint32_t from) { to[e] = *reinterpret_cast<const float *>(buffer + from); });
        return;
    }
    GDN_NO_UNROLL
    for (uint32_t part = 0; part < UNIT_PARTS; part++) {
        uint4 x[UNITS];
        each_unit(part, [&](uint32_t n, uint32_t, uint32_t from) { x[n] = gdn_ld16(buffer + from); });
        each_unit(part, [&](uint32_t n, uint32_t e, uint32_t) { gdn_st16(to + e, x[n]); });
    }
}
GDN_DEVICE void prefetch_slice(const float *from) {
    GDN_UNROLL
    for (uint32_t i = threadIdx.x % STATE_THREADS; i < DIM * COLUMNS / 32; i += STATE_THREADS)
        gdn_prefetch_l2(from + (GDN_IS_VK ? i * 32 : i / 2 * DIM + i % 2 * 32));
}
/* Where the states of the two tasks before go. */
struct states_out {
    float *older = nullptr, *newer = nullptr;
};
GDN_DEVICE void put_note(unsigned char *smem, uint32_t turn, uint32_t chunks) {
    if (threadIdx.x % STATE_THREADS) return;
    note_of(smem, turn) = chunks;
    gdn_mbar_arrive(many_bars_of(smem).noted[turn % 2]);
}
/* Behind the turn before, the buffer holds what the task before that has left. */
GDN_DEVICE void take_away(unsigned char *smem, uint32_t turn, float *to) {
    if (turn == 0) return;
    gdn_mbar_wait(many_bars_of(smem).taken, (turn - 1) & 1);
    if (turn > 1) empty_buffer(smem + MANY_STATE, to);
    gdn_bar_sync(BAR_STATES, STATE_THREADS); /* a thread need not fill what it emptied */
}
template <class E> GDN_DEVICE void bring_states(unsigned char *smem, E each) {
    many_bars &bars = many_bars_of(smem);
    states_out out;
    uint32_t turn = 0;
    each([&](const fwd_place &at) {
        if (!has_pass(at)) return;
        const uint32_t slice = slice_at(0, at.column);
        put_note(smem, turn, at.chunks);
        if (!at.fresh && turn) prefetch_slice(at.h.in + slice);
        take_away(smem, turn, out.older);
        fill_buffer(smem + MANY_STATE, at.h.in + slice, at.fresh);
        gdn_mbar_arrive(bars.state);
        out.older = out.newer;
        out.newer = at.h.out + slice;
        turn++;
    });
    put_note(smem, turn, 0);
    if (turn == 0) return;
    take_away(smem, turn, out.older);
    gdn_mbar_arrive(bars.state);
    take_away(smem, turn + 1, out.newer);
}
} // namespace gdn_fast
