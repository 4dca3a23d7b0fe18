/* gdn_wn_task.cuh - what the warps of the fast prefill by W and N, in its serial pass share: shared memory and its barriers, tasks, and
 * whose turn it is. A task is one (sequence, value head) and 64 value columns of it. Who does what is in gdn_wn_fwd.cuh. */
#pragma once
#include "gdn_wn.cuh"

namespace gdn_wn {
enum {
    FWD_THREADS = 512,
    COLUMNS = 64, /* of a task */
    HALF = 64,    /* rows k of a state that go through the buffer at a time */
    STAGES = 3,   /* places for the front of a chunk, for its back and for its values */
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

struct fwd_args {
    void *h_state;
    const gdn_bf16 *value;
    gdn_bf16 *output;
    scratch from;
    uint32_t batch, seq_len, num_chunks, nk, nv, v_stride;
    const int32_t *cu;
    bool is_varlen;
};
struct fwd_bars {
    gdn_mbarrier front[STAGES], front_free[STAGES], back[STAGES], back_free[STAGES], v[STAGES], v_free[STAGES];
    gdn_mbarrier done[2], out_free[2]; /* an output is complete; was taken */
    gdn_mbarrier state, taken;         /* half of a state is in the buffer; was taken */
};
static_assert(sizeof(fwd_bars) <= 192, "FWD_SMEM");
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

/* Visits the tasks of this block; all warps find the same. */
template <class F> GDN_DEVICE void each_task(const fwd_args &o, const gdn_rule_ext &ext, unsigned char *smem, F visit) {
    GDN_NO_UNROLL
    for (uint32_t task = blockIdx.x; task < 2 * o.nv * o.batch; task += gridDim.x) {
        const uint32_t sequence = task / (2 * o.nv);
        const gdn_sequence seq = gdn_find_sequence(ext, sequence, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
        fwd_place at;
        at.head = task / 2 % o.nv;
        at.key_head = gdn_key_head(at.head, o.nk, o.nv);
        at.column = task % 2 * COLUMNS;
        at.chunks = seq.end - seq.begin;
        at.rows = at.chunks ? min(seq.len - seq.begin * CHUNK, at.chunks * CHUNK) : 0;
        at.chunk_row = seq.chunk_row;
        at.token = seq.token + (uint64_t)seq.begin * CHUNK;
        at.h = gdn_states_of(ext, o.h_state, false, sequence, at.head, o.nv, DIM, DIM);
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
} // namespace gdn_wn
