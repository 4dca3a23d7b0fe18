/* gated_delta_rule_chunk_tc.cu - the state spine of the chunked prefill on tensor cores. Entries
 *
 *     gated_delta_rule_chunk_delta_h_tcfuse       one bf16 limb of the state and of the decayed uc
 *     gated_delta_rule_chunk_delta_h_tcfuse_x2    two limbs, hi + lo = bf16(x - hi): the one the lever ships
 *
 * and their _ext forms. Per (sequence, value head), serial over 64-token chunks c:
 *
 *     S_out[c] = bf16(S_c);  uc = U - W S_c;  S_(c+1) = exp(gc_last) S_c + sum_i exp(gc_last - gc_i) k_i (outer) uc_i
 *
 * gc_last: of the last valid row. Grid (nv, batch), block 256, dynamic shared memory 88,324. k_dim = v_dim = 128,
 * chunk 64, qk_stride % 8 == 0, key 16-byte aligned (guards). Reads W, U bf16 [64][128], gc f32 [64] (scratch rows (chunk*nv + head)),
 * key, h_state; writes S_out bf16 [128][128], uc_out bf16 [64][128] and h_state. Rows past the last valid token are neither read nor
 * written. _ext: struct gdn_rule_ext; a launch for later chunks takes the states that the one before has written as its in_tab.
 *
 * Everything is transposed, and a warp owns 16 value columns. S^T [16 v][128 k] never leaves its f32 accumulators: they are (split
 * into limbs) the A operand of (W S)^T, whose result, taken from U^T, is the A operand of S^T += (decayed uc)^T K. No warp needs
 * another's numbers; they meet twice a chunk, because W and K are shared and because S and uc go out by whole rows, while the second
 * product runs. K and U arrive during the first product, the next chunk's W during the second. */
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
    AT_W = 0,
    AT_K = AT_W + TILE,
    AT_U = AT_K + TILE, /* then uc on its way out; a warp reads and writes its own columns */
    AT_S = AT_U + TILE, /* bf16(S) on its way out */
    AT_DECAY = AT_S + 2 * TILE,
    SMEM = 88324, /* the contract's */
};
static_assert(AT_DECAY + (CHUNK + 1) * 4 <= SMEM, "fits");

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
    unsigned char *smem;
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
GDN_DEVICE void fetch_w(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    const uint64_t row = at.row0 + (c - seq.begin) * at.rows;
    gdn_swizzle_load<CHUNK, THREADS>(at.smem + AT_W, o.W + row * (CHUNK * DIM), DIM, gdn_chunk_rows(seq, c));
}
/* K, and this warp's columns of U. */
GDN_DEVICE void fetch_ku(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    const uint32_t rows = gdn_chunk_rows(seq, c), unit = 2 * at.warp + at.lane % 2;
    const gdn_bf16 *const U = o.U + (at.row0 + (c - seq.begin) * at.rows) * (CHUNK * DIM);
    gdn_swizzle_load<CHUNK, THREADS>(at.smem + AT_K, at.key + (uint64_t)c * CHUNK * o.qk_stride, o.qk_stride, rows);
    unsigned char *const to = at.smem + AT_U + gdn_swizzle_at<256>(at.lane / 2, unit);
    const gdn_bf16 *const from = U + at.lane / 2 * DIM + unit * 8;
    GDN_UNROLL
    for (uint32_t i = 0; i < CHUNK / 16; i++)
        gdn_cp_async16(to + i * 16 * DIM * 2, from + i * 16 * DIM, i * 16 + at.lane / 2 < rows ? 16 : 0);
}
/* gc of one row, and of the last valid one, of chunk c. All warps do this and the next, without a branch: it hides among products. */
struct logs {
    float own, last;
};
GDN_DEVICE uint32_t own_row() {
    return threadIdx.x % CHUNK;
}
GDN_DEVICE logs fetch_logs(const operands &o, const place &at, const gdn_sequence &seq, uint32_t c) {
    const float *const gc = o.gc + (at.row0 + (c - seq.begin) * at.rows) * CHUNK;
    const uint32_t last = gdn_chunk_rows(seq, c) - 1;
    return logs { gc[min(own_row(), last)], gc[last] };
}
/* The decay of each row (a row that does not exist has uc = 0), and the state's own. */
GDN_DEVICE void put_decays(const place &at, const logs &l) {
    float *const decay = reinterpret_cast<float *>(at.smem + AT_DECAY);
    const float own = gdn_exp(l.last - l.own), all = gdn_exp(l.last);
    if (threadIdx.x < CHUNK) decay[threadIdx.x] = own;
    if (threadIdx.x == CHUNK) decay[CHUNK] = all;
}

/* ---- one chunk ---- */
/* Where this lane's part of 16 rows of this warp's columns is, for transposing loads and stores of fragments. */
GDN_DEVICE unsigned char *strip(const place &at, uint32_t tile, uint32_t i) {
    return at.smem + tile + gdn_swizzle_at<256>(16 * i + gdn_crossed_row(at.lane), 2 * at.warp + gdn_crossed_unit(at.lane));
}
/* x = S^T W^T; bf16(S) is put down. `beside` is called where products are under way. */
template <int LIMBS, class F> GDN_DEVICE void product_ws(const place &at, const state &s, float (&x)[2 * T_TILES][4], F beside) {
    GDN_UNROLL
    for (uint32_t t = 0; t < 2 * T_TILES; t++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) x[t][q] = 0.0f;
    }
    GDN_UNROLL
    for (uint32_t k = 0; k < K_TILES; k++) {
        uint32_t hi[4], lo[4];
        gdn_split_a(hi, lo, s[2 * k], s[2 * k + 1]);
        gdn_stmatrix_x4_trans(strip(at, AT_S, k), hi);
        GDN_UNROLL
        for (uint32_t t = 0; t < T_TILES; t++) {
            uint32_t b[4];
            gdn_ldmatrix_x4(b, at.smem + AT_W + gdn_swizzle_at<256>(16 * t + gdn_crossed_row(at.lane), 2 * k + gdn_crossed_unit(at.lane)));
            gdn_mma_pair(x[2 * t], x[2 * t + 1], hi, b);
            if (LIMBS == 2) gdn_mma_pair(x[2 * t], x[2 * t + 1], lo, b);
        }
        beside(k);
    }
}
/* x = U^T - x, which is uc^T; bf16(uc) takes U's place. */
GDN_DEVICE void make_uc(const place &at, float (&x)[2 * T_TILES][4]) {
    uint32_t u[T_TILES][4];
    GDN_UNROLL
    for (uint32_t t = 0; t < T_TILES; t++) gdn_ldmatrix_x4_trans(u[t], strip(at, AT_U, t));
    gdn_sync_warp();
    GDN_UNROLL
    for (uint32_t t = 0; t < T_TILES; t++) {
        uint32_t r[4];
        GDN_UNROLL
        for (uint32_t m = 0; m < 4; m++) {
            float *const pair = x[2 * t + m / 2] + m % 2 * 2;
            pair[0] = gdn_bf16_lo(u[t][m]) - pair[0];
            pair[1] = gdn_bf16_hi(u[t][m]) - pair[1];
            r[m] = gdn_pack_bf16(pair[0], pair[1]);
        }
        gdn_stmatrix_x4_trans(strip(at, AT_U, t), r);
    }
}
/* Rows on their way out, two of this warp's at a time: of S in pieces 0..7, of uc in pieces 8..11. */
enum { PIECES_S = 8 };
GDN_DEVICE uint32_t piece_row(const place &at, uint32_t i) {
    return i % PIECES_S * 16 + at.warp * 2 + at.lane / 16;
}
GDN_DEVICE uint4 take_piece(const place &at, uint32_t i) {
    return gdn_ld16(at.smem + (i < PIECES_S ? AT_S : AT_U) + gdn_swizzle_at<256>(piece_row(at, i), at.lane % 16));
}
GDN_DEVICE void put_piece(const place &at, uint32_t i, gdn_bf16 *S_out, gdn_bf16 *uc_out, uint32_t rows, uint4 v) {
    const uint32_t row = piece_row(at, i);
    if (i < PIECES_S || row < rows) gdn_st16((i < PIECES_S ? S_out : uc_out) + row * DIM + at.lane % 16 * 8, v);
}
/* S = e S + (decayed uc)^T K; meanwhile S and uc go out by whole rows, `rows` of uc. */
template <int LIMBS>
GDN_DEVICE void product_k(const place &at, const float *decay, state &s, const float (&x)[2 * T_TILES][4], gdn_bf16 *S_out,
                          gdn_bf16 *uc_out, uint32_t rows) {
    const float e = decay[CHUNK];
    GDN_UNROLL
    for (uint32_t n = 0; n < 2 * K_TILES; n++) {
        GDN_UNROLL
        for (uint32_t q = 0; q < 4; q++) s[n][q] *= e;
    }
    GDN_UNROLL
    for (uint32_t t = 0; t < T_TILES; t++) {
        uint4 piece = take_piece(at, 3 * t); /* three go out while the products of this tile run */
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
            gdn_ldmatrix_x4_trans(b,
                                  at.smem + AT_K + gdn_swizzle_at<256>(16 * t + gdn_plain_row(at.lane), 2 * k + gdn_plain_unit(at.lane)));
            gdn_mma_pair(s[2 * k], s[2 * k + 1], hi, b);
            if (LIMBS == 2) gdn_mma_pair(s[2 * k], s[2 * k + 1], lo, b);
            if (k == 2 || k == 4 || k == 6) {
                put_piece(at, 3 * t + k / 2 - 1, S_out, uc_out, rows, piece);
                if (k < 6) piece = take_piece(at, 3 * t + k / 2);
            }
        }
    }
}

template <int LIMBS> GDN_DEVICE void run(const operands &o, const gdn_rule_ext &ext) {
    GDN_DYN_SMEM(unsigned char, smem);
    const uint32_t b = blockIdx.y;
    place at;
    at.head = blockIdx.x;
    at.lane = gdn_lane();
    at.warp = gdn_warp();
    at.smem = smem;
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
    logs l = { 0, 0 };
    if (!idle) {
        l = fetch_logs(o, at, seq, seq.begin);
        fetch_w(o, at, seq, seq.begin);
    }
    gdn_cp_async_commit();
    state s;
    if (fresh)
        each_element(at, [&](uint32_t n, uint32_t q, uint32_t) { s[n][q] = 0.0f; });
    else
        each_element(at, [&](uint32_t n, uint32_t q, uint32_t i) { s[n][q] = h.in[i]; });

    GDN_NO_UNROLL
    for (uint32_t c = seq.begin; c < seq.end; c++) {
        const uint64_t row = at.row0 + (c - seq.begin) * at.rows;
        gdn_cp_async_wait<0>();
        gdn_sync_block(); /* W is here; K, S and uc of the chunk before are done with */
        float x[2 * T_TILES][4];
        product_ws<LIMBS>(at, s, x, [&](uint32_t k) {
            if (k == 0) {
                fetch_ku(o, at, seq, c);
                gdn_cp_async_commit();
            }
            if (k == 3) put_decays(at, l);
        });
        gdn_cp_async_wait<0>();
        gdn_sync_warp(); /* this warp's columns of U are here */
        make_uc(at, x);
        gdn_sync_block(); /* K is here, S and uc are complete, W is done with */
        if (c + 1 < seq.end) {
            fetch_w(o, at, seq, c + 1);
            l = fetch_logs(o, at, seq, c + 1);
        }
        gdn_cp_async_commit();
        product_k<LIMBS>(at, reinterpret_cast<const float *>(smem + AT_DECAY), s, x, o.S_out + row * (DIM * DIM),
                         o.uc_out + row * (CHUNK * DIM), gdn_chunk_rows(seq, c));
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
#define SPINE_OPERANDS                                                                                                                   \
    (void)gate, (void)batch, (void)kd, (void)vd, (void)gb_stride, (void)cu_chunks;                                                       \
    const gdn_spine_tc::operands o = {                                                                                                   \
        h_state, W, U, key, gc, S_out, uc_out, seq_len, num_chunks, nk, nv, qk_stride, h_state_is_table != 0, cu_seqlens, is_varlen != 0 \
    }

/* A build has one of the two: _tcfuse is no lever's, and is built with GDN_OTHER_SPINES. */
#if defined(GDN_EMU) || !defined(GDN_OTHER_SPINES)
#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_x2(SPINE_ARGS) {
    gdn_begin();
    SPINE_OPERANDS;
    gdn_spine_tc::run<2>(o, gdn_rule_ext {});
}
#endif
#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_x2_ext(SPINE_ARGS, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    SPINE_OPERANDS;
    gdn_spine_tc::run<2>(o, GDN_PREFILL_EXT);
}
#endif
#endif
#if defined(GDN_EMU) || defined(GDN_OTHER_SPINES)
#ifdef GDN_CORE_ENTRIES
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse(SPINE_ARGS) {
    gdn_begin();
    SPINE_OPERANDS;
    gdn_spine_tc::run<1>(o, gdn_rule_ext {});
}
#endif
#ifdef GDN_EXT_ENTRIES
GDN_KERNEL(256, 1) gated_delta_rule_chunk_delta_h_tcfuse_ext(SPINE_ARGS, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    SPINE_OPERANDS;
    gdn_spine_tc::run<1>(o, GDN_PREFILL_EXT);
}
#endif
#endif
#undef SPINE_OPERANDS
#undef SPINE_ARGS
