/* gdn_round_rows.cuh - what a block of gdn_round.cuh has to know of a part before it computes it: which one, where its state is, what the
 * round before left for it; and its rows, from memory to shared memory. */
#pragma once
#include "gdn_async.cuh"
#include "gdn_fold.cuh"
#include "gdn_round_state.cuh"

/* Blocks on a multiprocessor: sm_121 has 100 KiB of shared memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define GDN_ROUND_BLOCKS 2
#else
#define GDN_ROUND_BLOCKS 5
#endif
enum { GDN_ROUND_TASKS = 4 };

struct gdn_round {
    gdn_step a;
    void *h;                 /* a table of addresses, or with slot_stride f32 */
    const int32_t *in_slots; /* NULL: b */
    uint64_t slot_stride;
    const uint8_t *fresh;
    float *stash;                 /* of this round */
    uint32_t *engaged;            /* one word, or by sequence the record */
    float *pending;               /* stash of the round before */
    const uint32_t *na_tab, *ran; /* and its word, or record */
    gdn_hi hi;
    uint64_t pitch;
    uint32_t k_rows, batch;
    const int32_t *cu_rows, *seq_ids;
    bool by_sequence;
};

/* COLUMNS columns of a head. */
struct __align__(16) gdn_round_task {
    const float *in; /* the head's state, or the one after the last accepted row; NULL: zeros */
    float *out;      /* where it goes with the accepted rows on it; NULL: it stays            */
    uint64_t row;    /* the first                                                             */
    uint32_t rows, fold, id, head, key_head, slice;
    uint32_t zero;  /* rows of padding                        */
    uint32_t keys;  /* its keys are stashed                   */
    uint32_t there; /* 0: there are no more                   */
};

/* ---- which part: (sequence, head) after (sequence, head), always the same slice ---- */
struct gdn_round_at {
    uint32_t b, head, slice, step_b, step_head, per_key_head; /* value heads of a key head, tiled: key heads */
    float inverse;                                            /* of it */
};
template <uint32_t COLUMNS> GDN_DEVICE gdn_round_at gdn_round_first(const gdn_round &o) {
    constexpr uint32_t PARTS = GDN_STEP_DIM / COLUMNS;
    const uint32_t nv = o.a.nv, first = blockIdx.x / PARTS, step = gridDim.x / PARTS;
    const uint32_t per = GDN_IS_TILED ? o.a.nk : nv / o.a.nk;
    return gdn_round_at { first / nv, first % nv, blockIdx.x % PARTS, step / nv, step % nv, per, gdn_rcp_fast((float)per) };
}
GDN_DEVICE void gdn_round_next(gdn_round_at &at, const gdn_round &o) {
    at.b += at.step_b, at.head += at.step_head;
    if (at.head >= o.a.nv) at.head -= o.a.nv, at.b++;
}
/* What memory says of it: sent for one part before it is looked at, so that nobody waits. */
struct gdn_round_words {
    uint64_t base;
    int32_t slot, rows[2];
    uint32_t na, ran;
};
GDN_DEVICE void gdn_round_ask(gdn_round_words &w, const gdn_round &o, const gdn_round_at &at) {
    const uint32_t b = at.b;
    if (b >= o.batch) return;
    if (!o.slot_stride) gdn_cp_async8(&w.base, static_cast<const uint64_t *>(o.h) + b);
    if (o.in_slots) gdn_cp_async4(&w.slot, o.in_slots + b);
    if (o.cu_rows) gdn_cp_async4(&w.rows[0], o.cu_rows + b), gdn_cp_async4(&w.rows[1], o.cu_rows + b + 1);
    gdn_cp_async4(&w.na, o.na_tab + b);
    if (!o.by_sequence) gdn_cp_async4(&w.ran, o.ran);
}
/* What the round before left to be done: rows to be folded, or a state that was kept. */
GDN_DEVICE void gdn_round_settle(gdn_round_task &t, const gdn_round &o, uint32_t b, const gdn_round_words &w, float *state) {
    const uint64_t one = GDN_STEP_DIM * GDN_STEP_DIM;
    bool deferred = !o.by_sequence && w.ran == 1, kept = !o.by_sequence && !deferred && w.na < o.k_rows;
    uint32_t na = o.by_sequence ? w.na : min(w.na, deferred ? (uint32_t)GDN_ROUND_ROWS : o.k_rows); /* of the rows that there were */
    if (o.by_sequence && na) {
        const uint32_t word = o.ran[t.id];
        na = min(na, word & GDN_RECORD_ROWS);
        deferred = word & GDN_RECORD_DEFERRED, kept = word & GDN_RECORD_KEPT;
    }
    t.in = o.fresh && o.fresh[b] && (na == 0 || deferred) ? nullptr : state;
    if (na && deferred) {
        t.fold = min(na, (uint32_t)GDN_ROUND_ROWS), t.out = state; /* whatever the record says */
    } else if (na && kept) {
        const float *const from = gdn_hi_of(o.hi, na - 1, t.id, o.a.nv * one);
        if (from) t.in = from + t.head * one, t.out = state;
    }
}
/* The part at `at`, which goes on. */
template <uint32_t COLUMNS>
GDN_DEVICE void gdn_round_find(gdn_round_task &to, const gdn_round &o, gdn_round_at &at, const gdn_round_words &w) {
    gdn_round_task t = {};
    t.there = at.b < o.batch;
    t.head = at.head, t.slice = at.slice;
    t.row = o.cu_rows ? (uint32_t)w.rows[0] : (uint64_t)at.b * GDN_ROUND_ROWS;
    const uint32_t rows = o.cu_rows ? (uint32_t)(w.rows[1] - w.rows[0]) : (uint32_t)GDN_ROUND_ROWS;
    const bool padding = o.in_slots ? w.slot < 0 : !o.slot_stride && w.base == 0;
    if (t.there && padding) t.zero = rows;
    if (t.there && !padding) {
        const uint64_t slot = o.in_slots ? (uint32_t)w.slot : at.b;
        float *const base = o.slot_stride ? static_cast<float *>(o.h) + slot * o.slot_stride : reinterpret_cast<float *>(w.base);
        const uint32_t whole = (uint32_t)(((float)at.head + 0.5f) * at.inverse); /* far from a whole number, below 2^20 heads */
        t.id = o.by_sequence ? gdn_sequence_id(o.seq_ids, at.b) : at.b;
        t.key_head = GDN_IS_TILED ? at.head - whole * at.per_key_head : whole;
        t.keys = at.slice == 0 && (GDN_IS_TILED ? whole == 0 : at.head == whole * at.per_key_head);
        t.rows = min(rows, (uint32_t)GDN_ROUND_ROWS);
        gdn_round_settle(t, o, at.b, w, base + (uint64_t)at.head * (GDN_STEP_DIM * GDN_STEP_DIM));
        if (o.by_sequence && at.slice == 0 && at.head == 0) o.engaged[t.id] = GDN_RECORD_DEFERRED | t.rows;
    }
    to = t;
    gdn_round_next(at, o);
}

/* Four floats to `to`, from anywhere. */
GDN_DEVICE void gdn_round_send4(float *to, const float *from) {
    if ((uint64_t)from % 16 == 0) {
        gdn_cp_async16(to, from);
    } else {
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) gdn_cp_async4(to + j, from + j);
    }
}

template <uint32_t COLUMNS, uint32_t GROUPS> struct __align__(16) gdn_round_smem {
    typedef gdn_round_state<COLUMNS, GROUPS> part;
    enum : uint32_t { THREADS = part::THREADS, EACH = 256 / THREADS };
    float q[GDN_ROUND_ROWS][GDN_STEP_DIM], k[GDN_ROUND_ROWS][GDN_STEP_DIM];
    float vn[GDN_ROUND_ROWS][COLUMNS]; /* v, then vn */
    float hk[GDN_ROUND_ROWS][COLUMNS];
    float sums[GDN_ROUND_ROWS][part::SUMS];
    float g[GDN_ROUND_ROWS], b[GDN_ROUND_ROWS];
    float dots[6][4]; /* of keys t and s < t, at t(t-1)/2 + s: each quarter's share */
#ifdef GDN_QK_L2NORM
    float squares[2 * GDN_ROUND_ROWS][4];
#endif
    float fold_k[GDN_ROUND_ROWS][GDN_STEP_DIM], fold_vn[GDN_ROUND_ROWS][COLUMNS], fold_g[GDN_ROUND_ROWS];
    /* the next part's, each thread its own */
    float4 state[GROUPS][4][THREADS];
    uint2 raw_qk[EACH][THREADS], raw_v[COLUMNS];
    float raw_gb[2 * GDN_ROUND_ROWS];
    gdn_round_task task[GDN_ROUND_TASKS];
    gdn_round_at at;          /* the first part that is not in task */
    gdn_round_words words[2]; /* of that, and at the start of the second one */
};

template <uint32_t COLUMNS, uint32_t GROUPS> struct gdn_round_rows {
    typedef gdn_round_smem<COLUMNS, GROUPS> smem;
    enum : uint32_t { THREADS = smem::THREADS, EACH = smem::EACH, STRIDE = THREADS / 64, FOURS = COLUMNS / 4 };
    /* A warp has every second row, or every fourth, of q or of k, a lane four neighbours. */
    static GDN_METHOD uint32_t first() { return threadIdx.x / 64; }
    static GDN_METHOD bool is_key() { return threadIdx.x / 32 % 2; }

    /* Four elements of a row; of one that is not there zeros. */
    static GDN_METHOD void send_row(uint2 *to, const gdn_bf16 *from, bool there) {
        if (!there)
            *to = uint2 { 0, 0 };
        else if ((uint64_t)from % 8 == 0)
            gdn_cp_async8(to, from);
        else
            *to = uint2 { from[0].bits | (uint32_t)from[1].bits << 16, from[2].bits | (uint32_t)from[3].bits << 16 };
    }
    /* The rows to be folded. */
    static GDN_METHOD void send_fold(smem &m, const gdn_round &o, const gdn_round_task &t) {
        const uint32_t i = threadIdx.x, nv = o.a.nv, late = THREADS - 1 - i;
        const gdn_stash s = gdn_stash_of(o.pending, t.id, o.pitch, nv);
        if (i < 128 && i / 32 < t.fold)
            gdn_round_send4(m.fold_k[i / 32] + 4 * gdn_lane(), s.sk + (i / 32 * o.a.nk + t.key_head) * GDN_STASH_DIM + 4 * gdn_lane());
        if (late < COLUMNS) {
            const uint32_t r = late / FOURS, at = late % FOURS * 4;
            if (r < t.fold) gdn_round_send4(m.fold_vn[r] + at, s.vn + (r * nv + t.head) * GDN_STASH_DIM + t.slice * COLUMNS + at);
        } else if (late - COLUMNS < t.fold) {
            gdn_cp_async4(m.fold_g + (late - COLUMNS), s.g + (late - COLUMNS) * nv + t.head);
        }
    }
    static GDN_METHOD void send(smem &m, const gdn_round &o, const gdn_round_task &t) {
        const uint32_t i = threadIdx.x, late = i - 32; /* the second warp */
        const gdn_bf16 *const from = is_key() ? o.a.k : o.a.q;
        const gdn_bf16 *const p = from + (t.row + first()) * o.a.qk_stride + t.key_head * GDN_STEP_DIM + 4 * gdn_lane();
        GDN_UNROLL
        for (uint32_t n = 0; n < EACH; n++)
            send_row(&m.raw_qk[n][i], p + (uint64_t)n * STRIDE * o.a.qk_stride, first() + n * STRIDE < t.rows);
        if (i < COLUMNS) {
            const uint32_t r = i / FOURS, at = t.head * GDN_STEP_DIM + t.slice * COLUMNS + i % FOURS * 4;
            send_row(&m.raw_v[i], o.a.v + (t.row + r) * o.a.v_stride + at, r < t.rows);
        }
        if (late < 2 * GDN_ROUND_ROWS) {
            const uint32_t r = late % GDN_ROUND_ROWS;
            if (r < t.rows)
                gdn_cp_async4(m.raw_gb + late, (late < GDN_ROUND_ROWS ? o.a.gate : o.a.beta) + (t.row + r) * o.a.gb_stride + t.head);
            else
                m.raw_gb[late] = 0;
        }
        if (t.fold) send_fold(m, o, t);
    }
    /* What came, to where it is used. */
    static GDN_METHOD float4 wide(uint2 x) { return float4 { gdn_bf16_lo(x.x), gdn_bf16_hi(x.x), gdn_bf16_lo(x.y), gdn_bf16_hi(x.y) }; }
    static GDN_METHOD void put(smem &m) {
        const uint32_t i = threadIdx.x, late = i - 32;
        GDN_UNROLL
        for (uint32_t n = 0; n < EACH; n++) gdn_st16f((is_key() ? m.k : m.q)[first() + n * STRIDE] + 4 * gdn_lane(), wide(m.raw_qk[n][i]));
        if (i < COLUMNS) gdn_st16f(m.vn[i / FOURS] + i % FOURS * 4, wide(m.raw_v[i]));
        if (late < GDN_ROUND_ROWS)
            m.g[late] = gdn_step_decay(m.raw_gb[late]);
        else if (late < 2 * GDN_ROUND_ROWS)
            m.b[late - GDN_ROUND_ROWS] = m.raw_gb[late];
    }
#ifdef GDN_QK_L2NORM
    /* Between two barriers. */
    static GDN_METHOD void normalise(smem &m, uint32_t rows) {
        const uint32_t w = threadIdx.x / 32;
        GDN_NO_UNROLL
        for (uint32_t n = w / 4; n < 2 * rows; n += THREADS / 128) {
            const float x = (n % 2 ? m.k : m.q)[n / 2][w % 4 * 32 + gdn_lane()], sum = gdn_warp_sum_down(x * x);
            if (gdn_lane() == 0) m.squares[n][w % 4] = sum;
        }
        gdn_sync_block();
        GDN_NO_UNROLL
        for (uint32_t t = first(); t < rows; t += STRIDE) {
            float *const p = (is_key() ? m.k : m.q)[t] + 4 * gdn_lane();
            const float size = sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[2 * t + is_key()]) + 1e-6f);
            const float4 x = gdn_ld16f(p);
            gdn_st16f(p, float4 { gdn_div(x.x, size), gdn_div(x.y, size), gdn_div(x.z, size), gdn_div(x.w, size) });
        }
        gdn_sync_block();
    }
#endif
    /* Each quarter's share of all products of keys. */
    static GDN_METHOD void dots(smem &m) {
        const uint32_t i = threadIdx.x, which = gdn_eight_of(gdn_lane());
        if (THREADS > 128u && i >= GDN_STEP_DIM) return;
        const float k0 = m.k[0][i], k1 = m.k[1][i], k2 = m.k[2][i], k3 = m.k[3][i];
        const float x[8] = { k1 * k0, k2 * k0, k2 * k1, k3 * k0, k3 * k1, k3 * k2, 0, 0 };
        const float sum = gdn_eight_sums(x);
        if (gdn_lane() % 4 == 0 && which < 6) m.dots[which][i / 32] = sum;
    }
    static GDN_METHOD void stash_keys(const smem &m, const gdn_round &o, const gdn_round_task &t) {
        const gdn_stash s = gdn_stash_of(o.stash, t.id, o.pitch, o.a.nv);
        const uint32_t i = threadIdx.x;
        if (t.slice == 0 && i < t.rows) s.g[i * o.a.nv + t.head] = m.g[i];
        if (!t.keys) return;
        GDN_NO_UNROLL
        for (uint32_t e = i; e < t.rows * GDN_STEP_DIM; e += THREADS)
            s.sk[(e / GDN_STEP_DIM * o.a.nk + t.key_head) * GDN_STASH_DIM + e % GDN_STEP_DIM] = m.k[e / GDN_STEP_DIM][e % GDN_STEP_DIM];
    }
};
