/* gdn_fast_fwd.cuh - state and output of one (sequence, value head), 64 value columns a task, serial over the chunks.
 *
 * Everything is transposed: the task's value columns are the rows of all products, and S^T [64 v][128 k] stays in the f32 accumulators
 * of one warpgroup. Products whose left operand is made here (S, R, uc) take it from registers, rounded to f16; the right one is a tile
 * of the scratch. Per chunk
 *
 *     X^T  = S^T K^T
 *     R^T  = beta V^T - beta e^gc X^T
 *     uc^T = R^T T^T                   R is rounded once, as if v were: a difference of rows that cancels later still does
 *     ud   = e^(gc_last - gc) uc       rounded; row 63 = R_63 - beta_63 sum_(j < 63) <k_63, k_j> ud_j, which is the same but for rounding
 *     S^T  = e^gc_last S^T + ud^T K
 *     O^T  = scale e^gc (S^T Q^T) + uc^T P^T     with the S of the chunk's begin
 *
 * Warps 0..3 compute: one warp on each scheduler, so a chunk takes as long as that warp's instructions and what they wait for. Warp 4
 * brings tiles by bulk copies, once their flag is up, warps 8 to 11 bring rows of V, warps 6 and 7 carry finished outputs away. All meet at
 * mbarriers, by places in turn over all tasks of the block: tiles (three places; full, free), v (two; full: V is there, and the output
 * buffer of the chunk has been emptied; free), done (an output buffer is complete). Every thread
 * arrives for what it read or wrote itself. */
#pragma once
#include "gdn_fast_pass.cuh"
#include "gdn_fast_serve.cuh"

namespace gdn_fast {
GDN_DEVICE void init_bars(fwd_bars &bars, uint32_t v = 192) {
    for (uint32_t i = 0; i < STAGES; i++) {
        gdn_mbar_init(bars.full[i], 1);
        gdn_mbar_init(bars.free[i], 128); /* the computing threads: each arrives for what it did itself */
    }
    for (uint32_t i = 0; i < 2; i++) {
        gdn_mbar_init(bars.v[i], v); /* warps 6 to 11 */
        gdn_mbar_init(bars.v_free[i], 128);
        gdn_mbar_init(bars.done[i], 128);
    }
    gdn_mbar_init_fence();
}
struct each_task_of {
    const fwd_args &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    uint32_t worker;
    template <class F> __device__ __forceinline__ void operator()(F visit) const { each_task(o, ext, smem, worker, visit); }
};
/* Warps 4 to 15. each(visit): the tasks of this block. */
template <class E> GDN_DEVICE void serve(const fwd_args &o, unsigned char *smem, uint32_t warp, E each) {
    fwd_bars *const bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    turns r;
    if (warp == 4) {
        each([&](const fwd_place &at) {
            if (has_pass(at)) bring_tiles(o, at, r);
        });
    } else if (warp == 6 || warp == 7) {
        for (uint32_t i = 0; i < 2; i++) gdn_mbar_arrive(bars->v[i]); /* both buffers are empty */
        each([&](const fwd_place &at) {
            if (!at.h.in)
                zero_outputs(o, at);
            else if (at.chunks == 0)
                pass_state(at);
            else
                take_outputs(o, at, r);
        });
    } else if (warp / 4 == 2) {
        each([&](const fwd_place &at) {
            if (has_pass(at)) bring_values(o, at, r);
        });
    }
}

/* The first `helpers` blocks that come here prepare the rest, with two pairs of warpgroups each, and wait for no one; the others pass, and
 * wait only for them. Blocks that have not come yet may be waiting for a multiprocessor themselves. */
GDN_DEVICE uint32_t take_role(const fwd_args &o, unsigned char *smem) {
    if (o.helpers == 0) return blockIdx.x;
    uint32_t *const role = reinterpret_cast<uint32_t *>(smem + FWD_ROLE);
    if (threadIdx.x == 0) *role = gdn_atomic_add(o.rest.to.words + NEXT_ROLE, 1u);
    gdn_sync_block();
    return *role;
}
/* Registers: 512 in all for a place in the four warpgroups of a worker. */
template <bool CKPT> GDN_DEVICE void forward(const fwd_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    const uint32_t role = gdn_uniform(take_role(o, smem)), worker = role - o.helpers;
    gdn_sync_block();
    if (role >= o.helpers && warp < 4) {
        gdn_registers_up<248>();
        turns now;
        each_task(o, ext, smem, worker, [&](const fwd_place &at) {
            if (has_pass(at)) compute<CKPT>(o, ext, at, now);
        });
    } else if (role >= o.helpers) {
        gdn_registers_down<88>();
        serve(o, smem, warp, each_task_of { o, ext, smem, worker });
    } else {
        prepare_rest(o.rest, ext, o.batch, smem + warp / 8 * PAIR_STEP, warp, 1 + 3 * (warp / 8));
    }
}
} // namespace gdn_fast
