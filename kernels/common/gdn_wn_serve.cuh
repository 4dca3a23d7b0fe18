/* gdn_wn_serve.cuh - the warps beside the pass that computes: they bring tiles and values, and take outputs away. */
#pragma once
#include "gdn_wn_task.cuh"

namespace gdn_wn {
/* ---- warps 4 and 5: fronts and backs of chunks, each as soon as a place is free ---- */
/* Where the scratch of the launch is at most 2.5 times the L2, tiles that were read make room for those that were not. */
GDN_DEVICE bool tiles_fit(const fwd_args &o) {
    const uint32_t bytes = o.nv * (BACK + SCALARS * 4) + o.nk * FRONT;
    return (uint64_t)o.batch * o.num_chunks * bytes < 128u << 20;
}
/* A tile of the scratch that is read once more at most. */
struct tile_loader {
    uint64_t policy;
    bool fit;
    __device__ __forceinline__ void operator()(void *to, const uint8_t *from, uint32_t bytes, gdn_mbarrier &full) const {
        if (fit)
            gdn_bulk_load_as(to, from, bytes, full, policy);
        else
            gdn_bulk_load(to, from, bytes, full);
    }
};
/* visit(key head's row, value head's row) for one lane, chunk after chunk. */
template <class F> GDN_DEVICE void each_chunk(const fwd_args &o, const fwd_place &at, turns &r, F visit) {
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        if (gdn_lane() == 0) visit((at.chunk_row + c) * o.nk + at.key_head, (at.chunk_row + c) * o.nv + at.head);
        gdn_sync_warp();
    }
}
/* Q: with it; else K and the scalars alone. */
template <bool Q> GDN_DEVICE void bring_fronts(const fwd_args &o, const fwd_place &at, turns &r) {
    const scratch &from = o.from;
    const tile_loader load { gdn_l2_first_out(), tiles_fit(o) };
    each_chunk(o, at, r, [&](uint64_t key, uint64_t value) {
        unsigned char *const to = at.smem + r.stage * FRONT;
        gdn_mbarrier &full = at.bars->front[r.stage];
        gdn_mbar_wait(at.bars->front_free[r.stage], r.stage_parity ^ 1);
        gdn_mbar_arrive_expect(full, (Q ? 2 : 1) * TILE + SCALARS * 4);
        load(to + FRONT_K, from.k + key * TILE, TILE, full);
        gdn_bulk_load(at.smem + FWD_SCALARS + r.stage * (SCALARS * 4), from.scalars + value * SCALARS, SCALARS * 4, full);
        if (Q) load(to + FRONT_Q, from.q + key * TILE, TILE, full);
    });
}
/* N: with it; else W alone. */
template <bool N> GDN_DEVICE void bring_backs(const fwd_args &o, const fwd_place &at, turns &r) {
    const scratch &from = o.from;
    const tile_loader load { gdn_l2_first_out(), tiles_fit(o) };
    each_chunk(o, at, r, [&](uint64_t, uint64_t value) {
        unsigned char *const to = at.smem + FWD_BACK + r.stage * BACK;
        gdn_mbarrier &full = at.bars->back[r.stage];
        gdn_mbar_wait(at.bars->back_free[r.stage], r.stage_parity ^ 1);
        gdn_mbar_arrive_expect(full, TILE + (N ? PANEL : 0));
        load(to + BACK_W, from.w + value * TILE, TILE, full);
        if (N) load(to + BACK_N, from.n + value * PANEL, PANEL, full);
    });
}

/* ---- warps 8 to 11: rows of V, two chunks ahead of the one that is waited for; those past the end are zeros ---- */
GDN_DEVICE void bring_values(const fwd_args &o, const fwd_place &at, turns &r) {
    enum { AHEAD = 2 };
    const uint32_t thread = threadIdx.x % 128, row0 = thread / 8;
    const uint64_t step = (uint64_t)16 * o.v_stride;
    const gdn_bf16 *from = o.value + (at.token + row0) * o.v_stride + at.head * DIM + at.column + thread % 8 * 8;
    unsigned char *const places = at.smem + FWD_V + place(row0, thread % 8 * 8);
    turns landed = r;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks + AHEAD; c++) {
        if (c < at.chunks) {
            const uint32_t first = c * CHUNK + row0, left = first < at.rows ? at.rows - first : 0;
            gdn_mbar_wait(at.bars->v_free[r.stage], r.stage_parity ^ 1);
            GDN_UNROLL
            for (uint32_t i = 0; i < 4; i++, from += step)
                gdn_cp_async16(places + r.stage * PANEL + i * 2048, 16 * i < left ? from : o.value, 16 * i < left ? 16 : 0);
            r.next();
        }
        gdn_cp_async_commit();
        if (c < AHEAD) continue;
        gdn_cp_async_wait<AHEAD>();
        gdn_mbar_arrive(at.bars->v[landed.stage]);
        landed.next();
    }
}

/* ---- warps 6 and 7 ---- */
GDN_DEVICE void take_outputs(const fwd_args &o, const fwd_place &at, turns &r) {
    const uint32_t thread = threadIdx.x % 64, row0 = thread / 8, unit = thread % 8;
    const uint64_t step = (uint64_t)8 * o.nv * DIM;
    const unsigned char *const buffers = at.smem + FWD_O + place(row0, unit * 8);
    gdn_bf16 *to = o.output + ((at.token + row0) * o.nv + at.head) * DIM + at.column + unit * 8;
    GDN_NO_UNROLL
    for (uint32_t c = 0; c < at.chunks; c++, r.next()) {
        const uint32_t first = c * CHUNK + row0, left = first < at.rows ? at.rows - first : 0;
        uint4 x[CHUNK / 8];
        gdn_mbar_wait(at.bars->done[r.two()], r.two_parity());
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++) x[i] = gdn_ld16(buffers + r.two() * PANEL + i * 1024);
        gdn_mbar_arrive(at.bars->out_free[r.two()]); /* for the chunk after the next */
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 8; i++, to += step)
            if (8 * i < left) gdn_st16_stream(to, x[i]);
    }
}
} // namespace gdn_wn
