/* gated_delta_rule_chunk_tc.cu - the state spine of the chunked prefill on tensor cores. Entries
 *
 *     gated_delta_rule_chunk_delta_h_tcfuse       one bf16 limb of the state and of the decayed uc
 *     gated_delta_rule_chunk_delta_h_tcfuse_x2    two limbs, hi + lo = bf16(x - hi): the one the lever ships
 *
 * and their _ext forms. Per (sequence, value head), serial over 64-token chunks c:
 *
 *     S_out[c] = bf16(S_c);  uc = U - W S_c;  S_(c+1) = exp(gc_last) S_c + sum_i exp(gc_last - gc_i) k_i (outer) uc_i
 *
 * gc_last: of the last valid row. Grid (nv, batch), block 256, dynamic shared memory GDN_SPINE_TC_SMEM = 88,324. k_dim = v_dim = 128,
 * chunk 64, qk_stride % 8 == 0, key 16-byte aligned (guards). Reads W, U bf16 [64][128], gc f32 [64] (scratch rows (chunk*nv + head)),
 * key, h_state; writes S_out bf16 [128][128], uc_out bf16 [64][128] and h_state. Rows past the last valid token are neither read nor
 * written. _ext: struct gdn_rule_ext; a launch for later chunks takes the states that the one before has written as its in_tab.
 *
 * Everything is transposed, and a warp owns 16 value columns. S^T [16 v][128 k] never leaves its f32 accumulators: they are (split
 * into limbs) the A operand of (W S)^T, whose accumulators, which begin as -U^T, are the A operand of S^T += (decayed uc)^T K. No
 * warp needs another's numbers; W and K are shared and double-buffered by cp.async, U is each warp's own. One barrier a chunk. */
#include "gdn_device.cuh"
#include "gdn_rule.cuh"
#include "gdn_swizzle.cuh"

namespace gdn_spine_tc {
enum {
    CHUNK = GDN_CHUNK_TOKENS,
    DIM = 128,
    THREADS = 256,
    COLUMNS = 16, /* of a warp */
    K_TILES = DIM / 16,
    T_TILES = CHUNK / 16,
    TILE = CHUNK * DIM * 2,
    STAGE = 2 * TILE,          /* W, K */
    OWN = CHUNK * COLUMNS * 2, /* a warp's U; in between, its rows of S or uc on their way out */
    STRIP = 16 * COLUMNS * 2,  /* 16 rows of them */
    DECAYS = CHUNK + 1,
    AT_OWN = 2 * STAGE,
    AT_DECAY = AT_OWN + THREADS / 32 * OWN,
    DECAY_PITCH = 68,
    SMEM = 88324, /* the contract's */
};
static_assert(AT_DECAY + 2 * DECAY_PITCH * 4 <= SMEM, "fits");

struct operands {
    void *h_state;
    const gdn_bf16 *W, *U, *key;
    const float *gc;
    gdn_bf16 *S_out, *uc_out;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride;
    bool h_state_is_table;
    const int32_t *cu;
    bool is_varlen;
};
/* One (sequence, head), seen by one thread. */
struct place {
    uint32_t head, lane, warp;
    uint64_t row0, rows; /* scratch row of the first chunk, and from chunk to chunk */
    const gdn_bf16 *key;
    unsigned char *smem, *own;
};

/* ---- state: thread holds S^T at v = 16 warp + g + 8 (q / 2), k = 8 n + 2 t + q % 2 in s[n][q] ---- */
template <class F> GDN_DEVICE void each_element(const place &at, F visit) {
    const uint32_t v = at.warp * COLUMNS + at.lane / 4, k = 2 * (at.lane % 4);
    GDN_UNROLL
    for (uint32_t n = 0; n < 2 * K_TILES; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) visit(n, q, gdn_state_at(8 * n + k + q % 2, v + 8 * (q / 2), DIM, DIM));
    }
}
typedef float state[2 * K_TILES][4];
GDN_DEVICE void store_state(const place &at, float *out, const state &s) {
    each_element(at, [&](uint32_t n, uint32_t q, uint32_t i) { out[i] = s[n][q]; });
}

/* ---- copies in ---- */
GDN_DEVICE void fetch_shared(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    unsigned char *const stage = at.smem + (c & 1) * STAGE;
    const uint32_t rows = gdn_chunk_rows(seq, c);
    const uint64_t row = at.row0 + (c - seq.begin) * at.rows;
    gdn_swizzle_load<CHUNK, THREADS>(stage, o.W + row * (CHUNK * DIM), DIM, rows);
    gdn_swizzle_load<CHUNK, THREADS>(stage + TILE, at.key + (uint64_t)c * CHUNK * o.qk_stride, o.qk_stride, rows);
}
GDN_DEVICE void fetch_own(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    const uint32_t rows = gdn_chunk_rows(seq, c);
    const gdn_bf16 *const U = o.U + (at.row0 + (c - seq.begin) * at.rows) * (CHUNK * DIM) + at.warp * COLUMNS;
    GDN_UNROLL
    for (uint32_t i = 0; i < CHUNK / 16; i++) {
        const uint32_t row = i * 16 + at.lane / 2, unit = at.lane % 2;
        const bool there = row < rows;
        gdn_cp_async16(at.own + gdn_swizzle_at<32>(row, unit), U + (there ? row * DIM + unit * 8 : 0), there ? 16 : 0);
    }
}
/* gc of row threadIdx.x and of the last valid row of chunk c. */
struct logs {
    float own, last;
    bool valid;
};
GDN_DEVICE logs fetch_logs(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    logs l = { 0, 0, false };
    if (threadIdx.x < CHUNK && c < seq.end) {
        const float *const gc = o.gc + (at.row0 + (c - seq.begin) * at.rows) * CHUNK;
        const uint32_t rows = gdn_chunk_rows(seq, c);
        l.valid = threadIdx.x < rows;
        l.last = gc[rows - 1];
        if (l.valid) l.own = gc[threadIdx.x];
    }
    return l;
}
/* Minus the decay of each row, and the state's own. */
GDN_DEVICE void put_decays(const place &at, const logs &l, uint32_t c) {
    float *const decay = reinterpret_cast<float *>(at.smem + AT_DECAY) + (c & 1) * DECAY_PITCH;
    if (threadIdx.x < CHUNK) decay[threadIdx.x] = l.valid ? -gdn_exp(l.last - l.own) : 0.0f;
    if (threadIdx.x == 0) decay[CHUNK] = gdn_exp(l.last);
}

/* ---- rows out: strips of 16 rows x 16 columns, from fragments of the transpose ---- */
GDN_DEVICE void put_strip(const place &at, uint32_t strip, const uint32_t (&r)[4]) {
    gdn_stmatrix_x4_trans(at.own + strip * STRIP + gdn_swizzle_at<32>(gdn_crossed_row(at.lane), gdn_crossed_unit(at.lane)), r);
}
/* Four strips, 64 rows of `out` (128 elements a row), of which `rows` are written. */
GDN_DEVICE void store_strips(const place &at, gdn_bf16 *out, uint32_t rows) {
    const uint32_t row = at.lane / 2, unit = at.lane % 2;
    gdn_sync_warp();
    uint4 v[4];
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) v[i] = gdn_ld16(at.own + i * STRIP + gdn_swizzle_at<32>(row, unit));
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (i * 16 + row < rows) gdn_st16(out + (i * 16 + row) * DIM + at.warp * COLUMNS + unit * 8, v[i]);
    gdn_sync_warp();
}

/* ---- one chunk ---- */
/* x = -U^T */
GDN_DEVICE void load_u(const place &at, float (&x)[2 * T_TILES][4]) {
    GDN_UNROLL
    for (uint32_t i = 0; i < T_TILES; i++) {
        uint32_t r[4];
        gdn_ldmatrix_x4_trans(r, at.own + gdn_swizzle_at<32>(16 * i + gdn_crossed_row(at.lane), gdn_crossed_unit(at.lane)));
        GDN_UNROLL
        for (uint32_t m = 0; m < 4; m++) {
            x[2 * i + m / 2][m % 2 * 2] = -gdn_bf16_lo(r[m]);
            x[2 * i + m / 2][m % 2 * 2 + 1] = -gdn_bf16_hi(r[m]);
        }
    }
}
/* x += S^T W^T, and S_out = bf16(S). */
template <int LIMBS>
GDN_DEVICE void product_ws(const place &at, const unsigned char *W, const state &s, float (&x)[2 * T_TILES][4], gdn_bf16 *S_out) {
    GDN_UNROLL
    for (uint32_t k = 0; k < K_TILES; k++) {
        uint32_t hi[4], lo[4];
        gdn_split_a(hi, lo, s[2 * k], s[2 * k + 1]);
        put_strip(at, k % 4, hi);
        GDN_UNROLL
        for (uint32_t t = 0; t < T_TILES; t++) {
            uint32_t b[4];
            gdn_ldmatrix_x4(b, W + gdn_swizzle_at<256>(16 * t + gdn_crossed_row(at.lane), 2 * k + gdn_crossed_unit(at.lane)));
            gdn_mma_pair(x[2 * t], x[2 * t + 1], hi, b);
            if (LIMBS == 2) gdn_mma_pair(x[2 * t], x[2 * t + 1], lo, b);
        }
        if (k % 4 == 3) store_strips(at, S_out + (k / 4) * 64 * DIM, 64);
    }
}
/* S = e S - (x decay)^T K, with the decays negative; uc_out = bf16(-x). */
template <int LIMBS>
GDN_DEVICE void product_k(const place &at, const unsigned char *K, const float *decay, state &s, const float (&x)[2 * T_TILES][4]) {
    const float e = decay[CHUNK];
    GDN_UNROLL
    for (uint32_t n = 0; n < 2 * K_TILES; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) s[n][q] *= e;
    }
    GDN_UNROLL
    for (uint32_t t = 0; t < T_TILES; t++) {
        float d[2][4];
        GDN_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float2 a = *reinterpret_cast<const float2 *>(decay + 16 * t + 8 * h + 2 * (at.lane % 4));
            GDN_UNROLL
            for (uint32_t q = 0; q < 4; q++) d[h][q] = x[2 * t + h][q] * (q % 2 ? a.y : a.x);
        }
        uint32_t hi[4], lo[4];
        gdn_split_a(hi, lo, d[0], d[1]);
        GDN_UNROLL
        for (uint32_t k = 0; k < K_TILES; k++) {
            uint32_t b[4];
            gdn_ldmatrix_x4_trans(b, K + gdn_swizzle_at<256>(16 * t + gdn_plain_row(at.lane), 2 * k + gdn_plain_unit(at.lane)));
            gdn_mma_pair(s[2 * k], s[2 * k + 1], hi, b);
            if (LIMBS == 2) gdn_mma_pair(s[2 * k], s[2 * k + 1], lo, b);
        }
    }
}
GDN_DEVICE void store_uc(const place &at, const float (&x)[2 * T_TILES][4], gdn_bf16 *uc_out, uint32_t rows) {
    GDN_UNROLL
    for (uint32_t t = 0; t < T_TILES; t++) {
        const uint32_t r[4] = { gdn_pack_bf16(-x[2 * t][0], -x[2 * t][1]), gdn_pack_bf16(-x[2 * t][2], -x[2 * t][3]),
                                gdn_pack_bf16(-x[2 * t + 1][0], -x[2 * t + 1][1]), gdn_pack_bf16(-x[2 * t + 1][2], -x[2 * t + 1][3]) };
        put_strip(at, t, r);
    }
    store_strips(at, uc_out, rows);
}

template <int LIMBS> GDN_DEVICE void run(const operands &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM(unsigned char, smem);
    const uint32_t b = blockIdx.y;
    place at;
    at.head = blockIdx.x;
    at.lane = gdn_lane();
    at.warp = gdn_warp();
    at.smem = smem;
    at.own = smem + AT_OWN + at.warp * OWN;
    const gdn_state_ptrs h = gdn_states_of(ext, o.h_state, o.h_state_is_table, b, at.head, o.nv, DIM, DIM);
    if (!h.in) return;
    const gdn_sequence seq = gdn_find_sequence(ext, b, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    at.row0 = (uint64_t)seq.chunk_row * o.nv + at.head;
    at.rows = o.nv;
    at.key = o.key + seq.qk_token * o.qk_stride + gdn_key_head(at.head, o.nk, o.nv) * DIM;
    float *ckpt = nullptr;
    if (ext.ckpt && ext.ckpt_every)
        ckpt = ext.ckpt + (gdn_ckpts_before(ext, b, o.seq_len, o.cu, o.is_varlen) * o.nv + at.head) * (DIM * DIM);

    const bool fresh = gdn_is_fresh(ext, b), idle = seq.begin == seq.end; /* idle: nothing to do but to pass the state on */
    if (idle && h.in == h.out && !fresh) return;
    logs l = fetch_logs(o, at, seq, seq.begin);
    if (!idle) {
        fetch_shared(o, at, seq, seq.begin);
        fetch_own(o, at, seq, seq.begin);
    }
    gdn_cp_async_commit();
    state s;
    if (fresh)
        each_element(at, [&](uint32_t n, uint32_t q, uint32_t) { s[n][q] = 0.0f; });
    else
        each_element(at, [&](uint32_t n, uint32_t q, uint32_t i) { s[n][q] = h.in[i]; });
    put_decays(at, l, seq.begin);

    GDN_NO_UNROLL
    for (uint32_t c = seq.begin; c < seq.end; c++) {
        const uint64_t row = at.row0 + (c - seq.begin) * at.rows;
        const unsigned char *const stage = smem + (c & 1) * STAGE;
        gdn_cp_async_wait<0>();
        gdn_sync_block(); /* this chunk is here, and everyone has left the one before */
        if (c + 1 < seq.end) fetch_shared(o, at, seq, c + 1);
        gdn_cp_async_commit();
        l = fetch_logs(o, at, seq, c + 1);

        float x[2 * T_TILES][4];
        load_u(at, x);
        gdn_sync_warp();
        product_ws<LIMBS>(at, stage, s, x, o.S_out + row * (DIM * DIM));
        store_uc(at, x, o.uc_out + row * (CHUNK * DIM), gdn_chunk_rows(seq, c));
        if (c + 1 < seq.end) fetch_own(o, at, seq, c + 1);
        gdn_cp_async_commit();
        product_k<LIMBS>(at, stage + TILE, reinterpret_cast<const float *>(smem + AT_DECAY) + (c & 1) * DECAY_PITCH, s, x);
        put_decays(at, l, c + 1);
        if (ckpt) {
            const uint64_t done = (uint64_t)(c + 1) * CHUNK;
            if (done <= seq.len && done % ext.ckpt_every == 0) store_state(at, ckpt + (done / ext.ckpt_every - 1) * o.nv * (DIM * DIM), s);
        }
    }
    store_state(at, h.out, s);
}
} // namespace gdn_spine_tc

#define SPINE_ARGS                                                                                                                   \
    float *h_state, const gdn_bf16 *W, const gdn_bf16 *U, const gdn_bf16 *key, const float *gate, const float *gc, gdn_bf16 *S_out,  \
        gdn_bf16 *uc_out, uint32_t batch, uint32_t seq_len, uint32_t num_chunks, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, \
        uint32_t qk_stride, uint32_t gb_stride, uint32_t h_state_is_table, const int32_t *cu_seqlens, const int32_t *cu_chunks,      \
        uint32_t is_varlen
#define EXT_ARGS                                                                                                          \
    const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float *ckpt, uint32_t ckpt_every, float scale, \
        uint32_t chunk_begin, uint32_t chunk_end, uint32_t qk_from_first
#define SPINE_OPERANDS                                                                                                                   \
    (void)gate, (void)batch, (void)kd, (void)vd, (void)gb_stride, (void)cu_chunks;                                                       \
    const gdn_spine_tc::operands o = {                                                                                                   \
        h_state, W, U, key, gc, S_out, uc_out, seq_len, num_chunks, nk, nv, qk_stride, h_state_is_table != 0, cu_seqlens, is_varlen != 0 \
    }

GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse(SPINE_ARGS) {
    SPINE_OPERANDS;
    gdn_spine_tc::run<1>(o, gdn_rule_ext {});
}
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_x2(SPINE_ARGS) {
    SPINE_OPERANDS;
    gdn_spine_tc::run<2>(o, gdn_rule_ext {});
}
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_ext(SPINE_ARGS, EXT_ARGS) {
    SPINE_OPERANDS;
    gdn_spine_tc::run<1>(o, gdn_rule_ext { in_tab, out_tab, fresh, ckpt, ckpt_every, scale, chunk_begin, chunk_end, qk_from_first });
}
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_x2_ext(SPINE_ARGS, EXT_ARGS) {
    SPINE_OPERANDS;
    gdn_spine_tc::run<2>(o, gdn_rule_ext { in_tab, out_tab, fresh, ckpt, ckpt_every, scale, chunk_begin, chunk_end, qk_from_first });
}
#undef SPINE_OPERANDS
#undef EXT_ARGS
#undef SPINE_ARGS
