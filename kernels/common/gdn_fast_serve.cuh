/* gdn_fast_serve.cuh - the warps beside the pass that computes: they bring tiles and values, and take outputs away. */
#pragma once
#include "gdn_fast_task.cuh"

namespace gdn_fast {
/* ---- warp 4 ---- */
/* How many of the chunks from `known` on are there; at least one. */
GDN_DEVICE uint32_t count_ready(const prepare_args &p, const fwd_place &at, uint32_t known) {
    const uint32_t lane = gdn_lane();
    const uint32_t *const first = p.to.words + READY + (at.chunk_row + known) * p.nk + at.key_head;
    uint32_t missing = __ballot_sync(GDN_FULL_MASK, known + lane >= at.chunks || gdn_ld_acquire(first + (uint64_t)lane * p.nk) != 2);
    if (missing & 1) {
        if (lane == 0) gdn_wait_word(first, 2);
        missing &= ~1u;
    }
    gdn_sync_warp();
    return missing ? __ffs((int)missing) - 1 : 32;
}
/* Where the scratch of the launch is at most 2.5 times the L2, tiles that were read make room for those that were not. */
GDN_DEVICE bool tiles_fit(const fwd_args &o) {
    const uint32_t bytes = o.rest.nv * (2 * PANEL + SCALARS * 4) + o.rest.nk * 2 * TILE;
    return (uint64_t)o.batch * o.rest.num_chunks * bytes < 128u << 20;
}
GDN_DEVICE void bring_tiles(const fwd_args &o, const fwd_place &at, turns &r) {
    const prepare_args &p = o.rest;
    const uint64_t first_out = gdn_l2_first_out();
    const bool fit = tiles_fit(o);
    auto load = [&](void *to, const uint8_t *from, uint32_t bytes, gdn_mbarrier &full) {
        if (fit)
            gdn_bulk_load_as(to, from, bytes, full, first_out);
        else
            gdn_bulk_load(to, from, bytes, full);
    };
    uint32_t known = p.lead;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        if (c >= known) known += count_ready(p, at, known);
        if (gdn_lane() == 0) {
            unsigned char *const stage = at.smem + r.stage * STAGE;
            gdn_mbarrier &full = at.bars->full[r.stage];
            const uint64_t key = ((at.chunk_row + c) * p.nk + at.key_head) * TILE, value = (at.chunk_row + c) * p.nv + at.head;
            gdn_fence_async_global();
            gdn_mbar_wait(at.bars->free[r.stage], r.stage_parity ^ 1);
            gdn_mbar_arrive_expect(full, 2 * TILE + 2 * PANEL + SCALARS * 4);
            gdn_bulk_load(at.smem + FWD_SCALARS + r.stage * (SCALARS * 4), p.to.scalars + value * SCALARS, SCALARS * 4, full);
            load(stage + FWD_K, p.to.k + key, TILE, full);
            load(stage + FWD_T, p.to.t + value * PANEL, PANEL, full);
            load(stage + FWD_Q, p.to.q + key, TILE, full);
            load(stage + FWD_P, p.to.p + value * PANEL, PANEL, full);
        }
        gdn_sync_warp();
    }
}

/* Tokens of chunk c. */
GDN_DEVICE uint32_t rows_of(const fwd_place &at, uint32_t c) {
    return c * CHUNK < at.rows ? min(at.rows - c * CHUNK, (uint32_t)CHUNK) : 0;
}

/* ---- warps 8 to 11: rows of V two chunks ahead in registers, as memory takes longer to answer than one lasts; those without a token are
 * zeros ---- */
struct value_rows {
    uint4 x[4];
};
GDN_DEVICE value_rows load_rows(const fwd_args &o, const fwd_place &at, uint32_t c) {
    const uint32_t thread = threadIdx.x % 128, rows = rows_of(at, c);
    const gdn_bf16 *const from = o.value + (at.token + c * CHUNK + thread / 8) * o.v_stride + at.head * DIM + at.column + thread % 8 * 8;
    value_rows v;
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t t = token_of(thread / 8 + 16 * i, rows), step = i < 3 ? 16 * i : t - thread / 8; /* the same, but for row 63 */
        v.x[i] = uint4 { 0, 0, 0, 0 };
        if (t < rows) v.x[i] = gdn_ld16_once(from + (int64_t)(int32_t)step * o.v_stride);
    }
    return v;
}
GDN_DEVICE void put_rows(const fwd_place &at, const turns &r, const value_rows &v) {
    const uint32_t thread = threadIdx.x % 128;
    unsigned char *const to = at.smem + FWD_V + r.two() * PANEL + place(thread / 8, thread % 8 * 8);
    gdn_mbar_wait(at.bars->v_free[r.two()], r.parity() ^ 1);
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) gdn_st16(to + i * 2048, v.x[i]);
    gdn_mbar_arrive(at.bars->v[r.two()]);
}
/* By twos: a row that moved from one register to another would be waited for. */
GDN_DEVICE void bring_values(const fwd_args &o, const fwd_place &at, turns &r) {
    value_rows even = load_rows(o, at, 0), odd = load_rows(o, at, 1);
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c += 2) {
        put_rows(at, r, even);
        r.next();
        even = load_rows(o, at, c + 2);
        if (c + 1 == at.chunks) break;
        put_rows(at, r, odd);
        r.next();
        odd = load_rows(o, at, c + 3);
    }
}

/* ---- warps 6 and 7 ---- */
GDN_DEVICE void take_outputs(const fwd_args &o, const fwd_place &at, turns &r) {
    const uint32_t thread = threadIdx.x % 64, row0 = thread / 8, unit = thread % 8;
    const uint64_t step = (uint64_t)8 * o.rest.nv * DIM;
    const unsigned char *const buffers = at.smem + FWD_O + place(row0, unit * 8);
    gdn_bf16 *to = o.output + ((at.token + row0) * o.rest.nv + at.head) * DIM + at.column + unit * 8;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        const uint32_t rows = rows_of(at, c);
        uint4 x[CHUNK / 8];
        gdn_mbar_wait(at.bars->done[r.two()], r.parity());
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++) x[i] = gdn_ld16(buffers + r.two() * PANEL + i * 1024);
        gdn_mbar_arrive(at.bars->v[r.two()]); /* for the chunk after the next */
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8 - 1; i++, to += step)
            if (token_of(row0 + 8 * i, rows) < rows) gdn_st16_stream(to, x[i]);
        const uint32_t t = token_of(row0 + CHUNK - 8, rows); /* of row 63 it is another one */
        if (t < rows) gdn_st16_stream(to + (int64_t)(int32_t)(t - row0 - CHUNK + 8) * (o.rest.nv * DIM), x[CHUNK / 8 - 1]);
        to += step;
    }
}
} // namespace gdn_fast
