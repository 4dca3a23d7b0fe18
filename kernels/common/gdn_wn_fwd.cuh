/* gdn_wn_fwd.cuh - state and output of one (sequence, value head), 64 value columns a task, serial over the chunks.
 *
 * Everything is transposed: the task's value columns are the rows of all products, and S^T [64 v][128 k] stays in the f32 accumulators
 * of one warpgroup. Products whose left operand is made here (S, R) take it from registers, rounded to f16; the right one is a tile
 * of the scratch. Per chunk
 *
 *     R^T = V^T - e^gc (S^T K^T)
 *     S^T = e^gc_last S^T + R^T W
 *     O^T = scale e^gc (S^T Q^T) + R^T N^T     with the S of the chunk's begin
 *
 * R is rounded once, as if v were, and no difference of its rows is made that would not be exact: W and N have been summed in f32.
 *
 * Warps 0..3 compute: one warp on each scheduler, so a chunk takes as long as that warp's instructions and what they wait for. Warp 4
 * brings the fronts of chunks (K, Q, scalars) by bulk copies, warp 5 their backs (W, N), warps 8 to 11 rows of V, warps 12 to 15 the next
 * task's state, warps 6 and 7 carry finished outputs away. All meet at mbarriers, by places in turn over all tasks of the block: fronts,
 * backs and values (three places each; full, free), outputs (two; done, free), halves of a state (one; there, taken). Every thread arrives
 * for what it read or wrote itself. */
#pragma once
#include "gdn_wn_pass.cuh"
#include "gdn_wn_serve.cuh"

namespace gdn_wn {
GDN_DEVICE void init_bars(fwd_bars &bars) {
    for (uint32_t i = 0; i < STAGES; i++) {
        gdn_mbar_init(bars.front[i], 1);
        gdn_mbar_init(bars.back[i], 1);
        gdn_mbar_init(bars.v[i], 128);
        gdn_mbar_init(bars.front_free[i], 128); /* the computing threads: each arrives for what it did itself */
        gdn_mbar_init(bars.back_free[i], 128);
        gdn_mbar_init(bars.v_free[i], 128);
    }
    for (uint32_t i = 0; i < 2; i++) {
        gdn_mbar_init(bars.done[i], 128);
        gdn_mbar_init(bars.out_free[i], 64); /* warps 6 and 7 */
    }
    gdn_mbar_init(bars.state, STATE_THREADS);
    gdn_mbar_init(bars.taken, 128);
    gdn_mbar_init_fence();
}
struct each_task_of {
    const fwd_args &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    template <class F> __device__ __forceinline__ void operator()(F visit) const { each_task(o, ext, smem, blockIdx.x, visit); }
};
/* Warps 4 to 15. each(visit): the tasks of this block. PLAIN: see load_half. */
template <bool PLAIN, class E> GDN_DEVICE void serve(const fwd_args &o, unsigned char *smem, uint32_t warp, E each) {
    fwd_bars *const bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
    turns r;
    if (warp == 4) {
        each([&](const fwd_place &at) {
            if (has_pass(at)) bring_fronts<true>(o, at, r);
        });
    } else if (warp == 5) {
        each([&](const fwd_place &at) {
            if (has_pass(at)) bring_backs<true>(o, at, r);
        });
    } else if (warp < 8) {
        for (uint32_t i = 0; i < 2; i++) gdn_mbar_arrive(bars->out_free[i]); /* both buffers are empty */
        each([&](const fwd_place &at) {
            if (!at.h.in)
                zero_outputs(o, at);
            else if (at.chunks == 0)
                pass_state(at);
            else
                take_outputs(o, at, r);
        });
    } else if (warp < 12) {
        each([&](const fwd_place &at) {
            if (has_pass(at)) bring_values(o, at, r);
        });
    } else {
        bring_states<PLAIN>(each);
    }
}

/* Warps 0 to 3. */
template <bool CKPT, class E> GDN_DEVICE void compute_tasks(const fwd_args &o, const gdn_rule_ext &ext, E each) {
    turns now;
    uint32_t halves = 0;
    each([&](const fwd_place &at) {
        if (has_pass(at)) compute<CKPT>(o, ext, at, now, halves);
    });
}
/* Registers: 512 in all for a place in the four warpgroups of a worker. */
template <bool CKPT> GDN_DEVICE void forward(const fwd_args &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t warp = gdn_warp();
    if (threadIdx.x == 0) init_bars(*reinterpret_cast<fwd_bars *>(smem + FWD_BARS));
    gdn_sync_block();
    if (warp < 4) {
        gdn_registers_up<240>();
        compute_tasks<CKPT>(o, ext, each_task_of { o, ext, smem });
    } else {
        gdn_registers_down<88>();
        serve<false>(o, smem, warp, each_task_of { o, ext, smem });
    }
}
} // namespace gdn_wn
