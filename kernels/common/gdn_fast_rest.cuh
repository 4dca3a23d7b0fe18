/* gdn_fast_rest.cuh - the chunks of the fast prefill that are prepared while the serial pass runs. Units are in the order in which the
 * passes need them, sequence by sequence and chunk by chunk, and are taken by ticket. A pair of warpgroups waits for no one. */
#pragma once
#include "gdn_fast_prepare.cuh"

namespace gdn_fast {
enum { UNIT_HERE, UNIT_PADDING, UNIT_END }; /* prepare_unit.none */

/* Where a warp stands in the list of packed sequences, and the rest chunks in front. */
struct rest_place {
    uint32_t sequence = 0, chunks = 0;
};
GDN_DEVICE uint32_t rest_of(const prepare_args &p, uint32_t chunks) {
    return chunks > p.lead ? chunks - p.lead : 0;
}
/* The sequence of rest chunk x, at or behind `at`; from there on, x becomes the chunk of the sequence. False: there is none. */
GDN_DEVICE bool find_packed(const prepare_args &p, const gdn_rule_ext &ext, uint32_t batch, rest_place &at, uint32_t &sequence,
                            uint32_t &x) {
    const uint32_t lane = gdn_lane();
    for (; at.sequence < batch; at.sequence += 32) {
        const uint32_t b = at.sequence + lane;
        const uint32_t own = b < batch ? rest_of(p, gdn_chunks_here(ext, gdn_chunks_of((uint32_t)(p.cu[b + 1] - p.cu[b])))) : 0;
        uint32_t sum = own; /* up to this lane */
        GDN_UNROLL
        for (uint32_t d = 1; d < 32; d *= 2) {
            const uint32_t left = __shfl_up_sync(GDN_FULL_MASK, sum, d);
            if (lane >= d) sum += left;
        }
        const uint32_t beyond = __ballot_sync(GDN_FULL_MASK, x < at.chunks + sum);
        if (beyond) {
            const int first = __ffs((int)beyond) - 1;
            sequence = at.sequence + (uint32_t)first;
            x -= at.chunks + __shfl_sync(GDN_FULL_MASK, sum - own, first);
            return true;
        }
        at.chunks += __shfl_sync(GDN_FULL_MASK, sum, 31);
    }
    return false;
}
/* One warp; every lane has the unit. */
GDN_DEVICE prepare_unit find_unit(const prepare_args &p, const gdn_rule_ext &ext, uint32_t batch, uint32_t ticket, rest_place &at) {
    const uint32_t rest = rest_of(p, gdn_chunks_here(ext, p.num_chunks));
    uint32_t x = ticket / p.nk, sequence = 0;
    prepare_unit none = {};
    none.none = UNIT_END;
    if (p.is_varlen) {
        if (!find_packed(p, ext, batch, at, sequence, x)) return none;
    } else {
        if (x >= rest * batch) return none;
        sequence = x / rest;
        x %= rest;
    }
    none.none = UNIT_PADDING;
    if (gdn_is_padding(ext, sequence)) return none;
    const gdn_sequence seq = gdn_find_sequence(ext, sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
    return unit_of(seq, seq.begin + p.lead + x, ticket % p.nk, p.nv / p.nk);
}
/* One warp. */
GDN_DEVICE uint32_t take_ticket(const prepare_args &p) {
    return gdn_lane() == 0 ? gdn_atomic_add(p.to.words + NEXT_UNIT, 1u) : 0;
}

/* A pair of warpgroups; bars: its first named barrier. */
GDN_DEVICE void prepare_rest(const prepare_args &p, const gdn_rule_ext &ext, uint32_t batch, unsigned char *smem, uint32_t warp,
                             uint32_t bars) {
    const prepare_place at = place_pair(p, smem, threadIdx.x % PREPARE_THREADS, warp, bars);
    const float scale = gdn_output_scale(DIM, ext.scale);
    const bool finds = warp % 8 == 0;
    prepare_unit *const kept = reinterpret_cast<prepare_unit *>(smem + PREPARE_UNITS);
    rest_place place_of_rest;
    uint32_t ticket = finds ? take_ticket(p) : 0;
    GDN_NO_UNROLL
    for (uint32_t turn = 0;; turn ^= 1) {
        if (finds) {
            const prepare_unit u = find_unit(p, ext, batch, __shfl_sync(GDN_FULL_MASK, ticket, 0), place_of_rest);
            if (gdn_lane() == 0) kept[turn] = u;
            if (u.none != UNIT_END) ticket = take_ticket(p);
        }
        gdn_bar_sync(bars + BAR_BOTH, PREPARE_THREADS); /* all have left the unit before */
        const prepare_unit u = kept[turn];
        if (u.none == UNIT_END) return;
        if (u.none == UNIT_HERE) prepare_one<true>(p, at, warp / 4 % 2, u, kept[turn], scale);
    }
}
} // namespace gdn_fast
