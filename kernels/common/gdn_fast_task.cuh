/* gdn_fast_task.cuh - what the warps of the fast prefill's serial pass share: shared memory and its barriers, tasks, and whose turn it is.
 * A task is one (sequence, value head) and 64 value columns of it. Who does what is in gdn_fast_fwd.cuh. */
#pragma once
#include "gdn_fast_rest.cuh"

namespace gdn_fast {
enum {
    FWD_THREADS = 512,
    COLUMNS = 64, /* of a task */
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
static_assert(FWD_SMEM == 183472, "the launcher's number");
static_assert(FWD_BARS % 8 == 0 && FWD_SCALARS % 16 == 0, "mbarriers, bulk copies");
static_assert((int)PAIR_STEP + (int)PREPARE_SMEM <= (int)FWD_ROLE, "two pairs where no pass is");

struct fwd_args {
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    uint32_t v_stride, batch, helpers; /* helpers: blocks without a pass */
    prepare_args rest;                 /* the scratch, the sizes, and what is left to prepare */
};
struct fwd_bars {
    gdn_mbarrier full[STAGES], free[STAGES], v[2], v_free[2], done[2];
};
static_assert(sizeof(fwd_bars) <= 112, "FWD_BARS");
/* One task. */
struct fwd_place {
    uint32_t head, key_head, column, chunks; /* column: the task's first of the head; chunks: of this launch */
    uint32_t rows;                           /* tokens in them */
    uint64_t chunk_row, token;
    gdn_state_ptrs h; /* in == NULL: padding; out == NULL: the state goes nowhere */
    bool fresh;
    uint32_t sequence, begin, len; /* for checkpoints: its first chunk here, its tokens in all */
    unsigned char *smem;
    fwd_bars *bars;
};
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

/* Visits the tasks of worker `first`; all warps find the same. */
template <class F> GDN_DEVICE void each_task(const fwd_args &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t first, F visit) {
    const prepare_args &p = o.rest;
    GDN_NO_UNROLL
    for (uint32_t task = first; task < 2 * p.nv * o.batch; task += gridDim.x - o.helpers) {
        const uint32_t sequence = task / (2 * p.nv);
        const gdn_sequence seq = gdn_find_sequence(ext, sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
        fwd_place at;
        at.head = task / 2 % p.nv;
        at.key_head = gdn_key_head(at.head, p.nk, p.nv);
        at.column = task % 2 * COLUMNS;
        at.chunks = seq.end - seq.begin;
        at.rows = at.chunks ? min(seq.len - seq.begin * CHUNK, at.chunks * CHUNK) : 0;
        at.chunk_row = seq.chunk_row;
        at.token = seq.token + (uint64_t)seq.begin * CHUNK;
        at.h = gdn_states_of(ext, o.h_state, false, sequence, at.head, p.nv, DIM, DIM);
        at.fresh = gdn_is_fresh(ext, sequence);
        at.sequence = sequence;
        at.begin = seq.begin;
        at.len = seq.len;
        at.smem = smem;
        at.bars = reinterpret_cast<fwd_bars *>(smem + FWD_BARS);
        visit(at);
    }
}
GDN_DEVICE bool has_pass(const fwd_place &at) {
    return at.h.in && at.chunks;
}
} // namespace gdn_fast
