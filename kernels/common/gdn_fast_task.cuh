/* gdn_fast_task.cuh - what the warps of the fast prefill's serial pass share: shared memory and its barriers, tasks, and whose turn it is.
 * A task is one (sequence, value head) and 64 value columns of it. Who does what is in gdn_fast_fwd.cuh. */
#pragma once
#include "gdn_fast_places.cuh"
#include "gdn_fast_rest.cuh"

namespace gdn_fast {
enum {
    FWD_THREADS = 512,
    STAGES = 3,
    FWD_K = 0,
    FWD_Q = FWD_K + TILE,
    FWD_T = FWD_Q + TILE,
    FWD_P = FWD_T + PANEL,
    STAGE = FWD_P + PANEL,
    FWD_V = STAGES * STAGE,    /* two: [64 tokens][64] bf16, swizzled */
    FWD_O = FWD_V + 2 * PANEL, /* likewise */
    FWD_SCALARS = FWD_O + 2 * PANEL,
    FWD_BARS = FWD_SCALARS + STAGES * SCALARS * 4,
    FWD_ROLE = FWD_BARS + 112,
    FWD_SMEM = FWD_ROLE + 16,
    PAIR_STEP = (PREPARE_SMEM + 1023) / 1024 * 1024,
};
static_assert(FWD_SMEM == 183856, "the launcher's number");
static_assert(FWD_BARS % 8 == 0 && FWD_SCALARS % 16 == 0, "mbarriers, bulk copies");
static_assert((int)PAIR_STEP + (int)PREPARE_SMEM <= (int)FWD_ROLE, "two pairs where no pass is");

struct fwd_bars {
    gdn_mbarrier full[STAGES], free[STAGES], v[2], v_free[2], done[2];
};
static_assert(sizeof(fwd_bars) <= 112, "FWD_BARS");
typedef task_place<fwd_bars, FWD_BARS> fwd_place;
struct fwd_args {
    typedef fwd_place place;
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    uint32_t v_stride, batch, helpers; /* helpers: blocks without a pass */
    prepare_args rest;                 /* the scratch, the sizes, and what is left to prepare */
};
GDN_DEVICE const prepare_args &sizes_of(const fwd_args &o) {
    return o.rest;
}
GDN_DEVICE uint32_t workers_of(const fwd_args &o) {
    return gridDim.x - o.helpers;
}
/* The places of a chunk, and the parities of their barriers. */
struct turns {
    uint32_t stage = 0, stage_parity = 0, count = 0;
    __device__ __forceinline__ uint32_t two() const { return count & 1; }
    __device__ __forceinline__ uint32_t parity() const { return count >> 1 & 1; }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, stage_parity ^= 1;
        count++;
    }
};
} // namespace gdn_fast
