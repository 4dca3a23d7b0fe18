/* gdn_fast_places.cuh - what the serial passes of both forms of the fast prefill have in common: tasks and how blocks find theirs, the same
 * for segments, where a lane's elements are. A form's fwd_args have `place`, a task_place, and
 *
 *     sizes_of(args)      seq_len, num_chunks, nk, nv, cu, is_varlen
 *     workers_of(args)    blocks that take tasks */
#pragma once
#include "gdn_fast_tiles.cuh"

namespace gdn_fast {
enum { COLUMNS = 64 /* of a task */ };
/* One task. BARS: the form's barriers, AT bytes from the begin of shared memory. */
template <class BARS_, uint32_t AT_> struct task_place {
    typedef BARS_ bars_type;
    enum { AT_BARS = AT_ };
    uint32_t head, key_head, column, chunks; /* column: the task's first of the head; chunks: of this launch */
    uint32_t rows;                           /* tokens in them */
    uint64_t chunk_row, token;
    gdn_state_ptrs h; /* in == NULL: padding; out == NULL: the state goes nowhere */
    bool fresh;
    uint32_t sequence, begin, len; /* for checkpoints: its first chunk here, its tokens in all */
    unsigned char *smem;
    BARS_ *bars;
};
/* Visits the tasks of worker `first`; all warps find the same. */
template <class ARGS, class F>
GDN_DEVICE void each_task(const ARGS &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t first, F visit) {
    typedef typename ARGS::place place;
    const auto &p = sizes_of(o);
    GDN_NO_UNROLL
    for (uint32_t task = first; task < 2 * p.nv * o.batch; task += workers_of(o)) {
        const uint32_t sequence = task / (2 * p.nv);
        const gdn_sequence seq = gdn_find_sequence(ext, sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
        place at;
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
        at.bars = reinterpret_cast<typename place::bars_type *>(smem + place::AT_BARS);
        visit(at);
    }
}
template <class PLACE> GDN_DEVICE bool has_pass(const PLACE &at) {
    return at.h.in && at.chunks;
}

/* ---- warps 0..3. Accumulators of 32 columns hold tokens 8 j + 2 t, +1 of value columns g and g + 8 in [4 j..4 j + 3] ---- */
struct lane_place {
    uint32_t t;      /* lane % 4 */
    uint32_t v;      /* value column of g, in the head */
    uint32_t matrix; /* this lane's row of an 8 x 8 matrix in V's and O's tiles */
};
template <class PLACE> GDN_DEVICE lane_place place_lane(const PLACE &at, uint32_t warp, uint32_t lane) {
    return lane_place { lane % 4, at.column + warp * 16 + lane / 4, place(lane / 16 * 8 + lane % 8, (warp * 2 + lane / 8 % 2) * 8) };
}
/* Of 16 scalars of a lane, two of each 8 tokens. */
GDN_DEVICE float2 of_eight(const float4 (&x)[4], uint32_t j) {
    return j % 2 ? float2 { x[j / 2].z, x[j / 2].w } : float2 { x[j / 2].x, x[j / 2].y };
}
template <class F> GDN_DEVICE void each_state(const lane_place &l, F visit) {
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            visit(4 * j + i, gdn_state_at(8 * j + 2 * l.t + i % 2, l.v + i / 2 * 8, DIM, DIM),
                  gdn_state_at(64 + 8 * j + 2 * l.t + i % 2, l.v + i / 2 * 8, DIM, DIM));
    }
}
/* A wait that is rarely one. */
GDN_DEVICE void wait_unless(bool ready, gdn_mbarrier &bar, uint32_t parity) {
    if (!ready) gdn_mbar_wait(bar, parity);
}

/* ---- a sequence that has no chunk here, or is padding: warps 6 and 7 ---- */
template <class ARGS, class PLACE> GDN_DEVICE void zero_outputs(const ARGS &o, const PLACE &at) {
    const uint32_t thread = threadIdx.x % 64, unit = thread % 8;
    for (uint32_t row = thread / 8; row < at.rows; row += 8)
        gdn_st16(o.output + ((at.token + row) * sizes_of(o).nv + at.head) * DIM + at.column + unit * 8, uint4 { 0, 0, 0, 0 });
}
template <class PLACE> GDN_DEVICE void pass_state(const PLACE &at) {
    if (at.h.in == at.h.out && !at.fresh) return;
    for (uint32_t i = threadIdx.x % 64; i < DIM * COLUMNS; i += 64) {
        const uint32_t e =
            GDN_IS_VK ? gdn_state_at(i % DIM, at.column + i / DIM, DIM, DIM) : gdn_state_at(i / COLUMNS, at.column + i % COLUMNS, DIM, DIM);
        at.h.out[e] = at.fresh ? 0.0f : at.h.in[e];
    }
}

/* ---- segments (gdn_fast_segments.cuh) ---- */
template <class ARGS> struct segments_of {
    ARGS pass;                     /* without helpers: all chunks are prepared */
    uint32_t chunks;               /* of a segment */
    uint32_t count;                /* segments of the longest sequence */
    float *moved, *added, *begins; /* [segment_of][value head]: M and A, row by row; a state */
};
/* The place of a segment among all: chunk_row is its first chunk's, and no two chunks have the same. Below all chunks / chunks of a segment
 * + sequences. */
template <class ARGS> GDN_DEVICE uint64_t segment_row(const segments_of<ARGS> &o, uint32_t sequence, uint64_t chunk_row, uint32_t head) {
    return ((chunk_row / o.chunks + sequence) * sizes_of(o.pass).nv + head) * (DIM * DIM);
}
/* Visits (place, part) of this block's tasks, each (sequence, segment, value head) in `parts` of 64 columns. The segments of a
 * sequence that has no tokens: the first alone. */
template <class ARGS, class F>
GDN_DEVICE void each_segment(const segments_of<ARGS> &o, const gdn_rule_ext &ext, unsigned char *smem, uint32_t parts, F visit) {
    typedef typename ARGS::place place;
    const auto &p = sizes_of(o.pass);
    GDN_NO_UNROLL
    for (uint32_t task = blockIdx.x; task < parts * p.nv * o.count * o.pass.batch; task += gridDim.x) {
        const uint32_t segment = task / (parts * p.nv) % o.count, first = segment * o.chunks;
        place at;
        at.sequence = task / (parts * p.nv) / o.count;
        const gdn_sequence seq = gdn_find_sequence(ext, at.sequence, p.seq_len, p.num_chunks, p.cu, p.is_varlen);
        if (segment && first >= seq.end) continue;
        at.head = task / parts % p.nv;
        at.key_head = gdn_key_head(at.head, p.nk, p.nv);
        at.column = task % parts % 2 * COLUMNS;
        at.chunks = min(seq.end - first, o.chunks);
        at.rows = min(seq.len - first * CHUNK, at.chunks * CHUNK);
        at.chunk_row = seq.chunk_row + first;
        at.token = seq.token + (uint64_t)first * CHUNK;
        at.h = gdn_states_of(ext, o.pass.h_state, false, at.sequence, at.head, p.nv, DIM, DIM);
        at.fresh = gdn_is_fresh(ext, at.sequence);
        at.begin = first;
        at.len = seq.len;
        at.smem = smem;
        at.bars = reinterpret_cast<typename place::bars_type *>(smem + place::AT_BARS);
        visit(at, task % parts);
    }
}
template <class ARGS> GDN_DEVICE bool is_full(const segments_of<ARGS> &o, const typename ARGS::place &at) {
    return at.h.in && at.rows == o.chunks * CHUNK;
}

template <class ARGS> struct each_pass {
    const segments_of<ARGS> &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    template <class F> __device__ __forceinline__ void operator()(F visit) const {
        each_segment(o, ext, smem, 2, [&](typename ARGS::place &at, uint32_t) {
            if (has_pass(at)) {
                at.h.in = o.begins + segment_row(o, at.sequence, at.chunk_row, at.head);
                at.fresh = false;
                if (is_full(o, at)) at.h.out = nullptr; /* join has the state behind it */
            }
            visit(at);
        });
    }
};
template <class ARGS> struct each_carry {
    const segments_of<ARGS> &o;
    const gdn_rule_ext &ext;
    unsigned char *smem;
    template <class F> __device__ __forceinline__ void operator()(F visit) const {
        each_segment(o, ext, smem, 4, [&](typename ARGS::place &at, uint32_t part) {
            const bool identity = part >= 2;
            if (!is_full(o, at)) return;
            if (identity) at.rows = 0; /* no values */
            visit(at, identity, (identity ? o.moved : o.added) + segment_row(o, at.sequence, at.chunk_row, at.head));
        });
    }
};
} // namespace gdn_fast
