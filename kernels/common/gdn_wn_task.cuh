/* gdn_wn_task.cuh - what the warps of the serial pass share, by W and N: shared memory and its barriers, arguments, and whose turn it is. A
 * task is one (sequence, value head) and 64 value columns of it. Who does what is in gdn_wn_fwd.cuh. */
#pragma once
#include "gdn_fast_places.cuh"
#include "gdn_wn.cuh"

namespace gdn_wn {
using gdn_fast::COLUMNS;
using gdn_fast::each_carry;
using gdn_fast::each_pass;
using gdn_fast::each_state;
using gdn_fast::each_task;
using gdn_fast::has_pass;
using gdn_fast::lane_place;
using gdn_fast::of_eight;
using gdn_fast::pass_state;
using gdn_fast::place_lane;
using gdn_fast::wait_unless;
using gdn_fast::zero_outputs;
enum {
    FWD_THREADS = 512,
    HALF = 64,  /* rows k of a state that go through the buffer at a time */
    STAGES = 3, /* places for the front of a chunk, for its back and for its values */
    FRONT_K = 0,
    FRONT_Q = TILE,
    FRONT = 2 * TILE,
    BACK_W = 0,
    BACK_N = TILE,
    BACK = TILE + PANEL,
    FWD_BACK = STAGES * FRONT,
    FWD_V = FWD_BACK + STAGES * BACK, /* [64 tokens][64] bf16, swizzled */
    FWD_O = FWD_V + STAGES * PANEL,   /* likewise; two */
    FWD_STATE = FWD_O + 2 * PANEL,    /* half of the next task's state */
    FWD_SCALARS = FWD_STATE + HALF * COLUMNS * 4,
    FWD_BARS = FWD_SCALARS + STAGES * SCALARS * 4,
    FWD_SMEM = FWD_BARS + 192,
};
static_assert(FWD_SMEM == 230384, "the launcher's number");
static_assert(FWD_BARS % 8 == 0 && FWD_SCALARS % 16 == 0, "mbarriers, bulk copies");

struct fwd_bars {
    gdn_mbarrier front[STAGES], front_free[STAGES], back[STAGES], back_free[STAGES], v[STAGES], v_free[STAGES];
    gdn_mbarrier done[2], out_free[2]; /* an output is complete; was taken */
    gdn_mbarrier state, taken;         /* half of a state is in the buffer; was taken */
};
static_assert(sizeof(fwd_bars) <= 192, "FWD_SMEM");
typedef gdn_fast::task_place<fwd_bars, FWD_BARS> fwd_place;
struct fwd_args {
    typedef fwd_place place;
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    scratch from;
    uint32_t batch, seq_len, num_chunks, nk, nv, v_stride;
    const int32_t *cu;
    bool is_varlen;
};
GDN_DEVICE const fwd_args &sizes_of(const fwd_args &o) {
    return o;
}
GDN_DEVICE uint32_t workers_of(const fwd_args &) {
    return gridDim.x;
}
/* The places of a chunk, and the parities of their barriers: of all by `stage`, of outputs by `two`. */
struct turns {
    uint32_t stage = 0, stage_parity = 0, count = 0;
    __device__ __forceinline__ uint32_t two() const { return count & 1; }
    __device__ __forceinline__ uint32_t two_parity() const { return count >> 1 & 1; }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, stage_parity ^= 1;
        count++;
    }
    /* Without the parity. */
    __device__ __forceinline__ void previous() {
        stage = stage ? stage - 1 : STAGES - 1;
        count--;
    }
};
} // namespace gdn_wn
