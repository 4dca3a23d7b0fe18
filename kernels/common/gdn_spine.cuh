/* gdn_spine.cuh - the scalar state spines: one (sequence, value head) a block, serial over its chunks, the state in f32 registers.
 *
 *     S_out[c] = bf16(S_c);  uc_i = U_i - W_i S_c;  S_{c+1} = exp(gc_last) S_c + sum_i k_i (exp(gc_last - gc_i) uc_i)
 *
 * gc_last: of the last valid row. SPLIT threads own a value column, each with 128 / SPLIT of its rows: pieces of eight consecutive
 * rows, dealt in turn. A token's dot: each thread over its rows ascending, product and sum rounded apart, then a butterfly over the
 * SPLIT threads. The update adds its terms in token order, with the unrounded uc. So SPLIT decides the bytes, buffering does not. */
#pragma once
#include "gdn_async.cuh"
#include "gdn_rule.cuh"
#include "gdn_tile.cuh"

struct gdn_spine {
    void *h_state;
    const gdn_bf16 *W, *U, *key;
    const float *gate, *gc;
    gdn_bf16 *S_out, *uc_out;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride;
    bool is_table, varlen;
    const int32_t *cu;
};

enum { GDN_D = 128, GDN_SPINE_TILE = GDN_CHUNK_TOKENS * GDN_D };

/* What one chunk needs in shared memory. */
struct gdn_spine_stage {
    gdn_bf16 *W, *K, *U; /* linear tiles; rows past the last valid one are zero */
    float *decay;        /* 64: exp(gc_last - gc_i); one more: exp(gc_last)     */
};

/* One thread's part of a column. */
template <uint32_t SPLIT> struct gdn_column {
    enum { ROWS = GDN_D / SPLIT, PIECES = ROWS / 8 };
    static __device__ __forceinline__ uint32_t piece(uint32_t m) { return m * SPLIT + threadIdx.x % SPLIT; }
    static __device__ __forceinline__ uint32_t row(uint32_t j) { return piece(j / 8) * 8 + j % 8; }
    static __device__ __forceinline__ uint32_t column() { return threadIdx.x / SPLIT; }
};

template <uint32_t SPLIT> GDN_DEVICE void gdn_column_load(float (&S)[GDN_D / SPLIT], const float *state) {
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_D / SPLIT; j++)
        S[j] = state ? state[gdn_state_at(gdn_column<SPLIT>::row(j), gdn_column<SPLIT>::column(), GDN_D, GDN_D)] : 0.0f;
}
template <uint32_t SPLIT> GDN_DEVICE void gdn_column_store(const float (&S)[GDN_D / SPLIT], float *state) {
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_D / SPLIT; j++)
        state[gdn_state_at(gdn_column<SPLIT>::row(j), gdn_column<SPLIT>::column(), GDN_D, GDN_D)] = S[j];
}

/* TOKENS tokens of a chunk from row i on: their dots with S side by side, then their terms into `next`. */
template <uint32_t SPLIT, uint32_t TOKENS>
GDN_DEVICE void gdn_spine_tokens(const gdn_spine_stage &st, uint32_t i, const float (&S)[GDN_D / SPLIT], float (&next)[GDN_D / SPLIT],
                                 gdn_bf16 *uc_out) {
    const uint32_t v = gdn_column<SPLIT>::column();
    float dot[TOKENS] = {}, x[8];
    GDN_UNROLL
    for (uint32_t m = 0; m < gdn_column<SPLIT>::PIECES; m++) GDN_UNROLL
    for (uint32_t t = 0; t < TOKENS; t++) {
        gdn_unpack8(x, gdn_ld16(st.W + gdn_tile_at<false>(i + t, gdn_column<SPLIT>::piece(m))));
        GDN_UNROLL
        for (uint32_t e = 0; e < 8; e++) dot[t] = dot[t] + x[e] * S[8 * m + e];
    }
    GDN_UNROLL
    for (uint32_t mask = 1; mask < SPLIT; mask *= 2) GDN_UNROLL
    for (uint32_t t = 0; t < TOKENS; t++) dot[t] += __shfl_xor_sync(GDN_FULL_MASK, dot[t], (int)mask);
    GDN_UNROLL
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float uc = gdn_to_f32(st.U[(i + t) * GDN_D + v]) - dot[t];
        if (threadIdx.x % SPLIT == 0) uc_out[(i + t) * GDN_D + v] = gdn_to_bf16(uc);
        dot[t] = st.decay[i + t] * uc;
    }
    GDN_UNROLL
    for (uint32_t m = 0; m < gdn_column<SPLIT>::PIECES; m++) GDN_UNROLL
    for (uint32_t t = 0; t < TOKENS; t++) {
        gdn_unpack8(x, gdn_ld16(st.K + gdn_tile_at<false>(i + t, gdn_column<SPLIT>::piece(m))));
        GDN_UNROLL
        for (uint32_t e = 0; e < 8; e++) next[8 * m + e] = next[8 * m + e] + x[e] * dot[t];
    }
}

template <uint32_t SPLIT, uint32_t TOKENS>
GDN_DEVICE void gdn_spine_chunk(const gdn_spine_stage &st, uint32_t rows, float (&S)[GDN_D / SPLIT], gdn_bf16 *S_out, gdn_bf16 *uc_out) {
    float next[GDN_D / SPLIT];
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_D / SPLIT; j++) {
        S_out[gdn_column<SPLIT>::row(j) * GDN_D + gdn_column<SPLIT>::column()] = gdn_to_bf16(S[j]);
        next[j] = st.decay[GDN_CHUNK_TOKENS] * S[j];
    }
    uint32_t i = 0;
    GDN_NO_UNROLL
    for (; i + TOKENS <= rows; i += TOKENS) gdn_spine_tokens<SPLIT, TOKENS>(st, i, S, next, uc_out);
    if (TOKENS > 1) {
        GDN_NO_UNROLL
        for (; i < rows; i++) gdn_spine_tokens<SPLIT, 1>(st, i, S, next, uc_out);
    }
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_D / SPLIT; j++) S[j] = next[j];
}

/* Where a chunk's inputs and outputs are. */
struct gdn_spine_place {
    const gdn_bf16 *W, *U, *K;
    const float *gc;
    gdn_bf16 *S_out, *uc_out;
    uint32_t rows;
};
GDN_DEVICE gdn_spine_place gdn_spine_at(const gdn_spine &a, const gdn_sequence &s, uint32_t c, uint32_t head) {
    const uint64_t row = (uint64_t)(s.chunk_row + c - s.begin) * a.nv + head;
    const uint64_t token = s.qk_token + (uint64_t)c * GDN_CHUNK_TOKENS;
    return gdn_spine_place {
        a.W + row * GDN_SPINE_TILE,    a.U + row * GDN_SPINE_TILE,    a.key + token * a.qk_stride + gdn_key_head(head, a.nk, a.nv) * GDN_D,
        a.gc + row * GDN_CHUNK_TOKENS, a.S_out + row * GDN_D * GDN_D, a.uc_out + row * GDN_SPINE_TILE,
        gdn_chunk_rows(s, c)
    };
}

/* decay[i] = exp(gc_last - gc_i), decay[64] = exp(gc_last); gc in global or shared memory. */
GDN_DEVICE void gdn_spine_decays(float *decay, const float *gc, uint32_t rows) {
    const uint32_t t = threadIdx.x;
    if (t < rows) decay[t] = gdn_exp(gc[rows - 1] - gc[t]);
    if (t == GDN_CHUNK_TOKENS) decay[t] = gdn_exp(gc[rows - 1]);
}

/* W, K and U by cp.async: rows of K in 16, 4 or 2 bytes, as base and stride allow. Commits one group. */
GDN_DEVICE void gdn_spine_fetch(const gdn_spine_stage &st, float *gc, const gdn_spine_place &p, uint64_t stride) {
    const bool wide = gdn_aligned16(p.K) && stride % 8 == 0, words = (uint64_t)p.K % 4 == 0 && stride % 2 == 0;
    for (uint32_t i = threadIdx.x; i < GDN_SPINE_TILE / 8; i += blockDim.x) {
        const uint32_t r = i / GDN_TILE_PIECES, n = i % GDN_TILE_PIECES, bytes = r < p.rows ? 16 : 0;
        const uint32_t from = r < p.rows ? r : 0; /* nothing is read of a row that is not there */
        gdn_cp_async16(st.W + i * 8, p.W + from * GDN_D + n * 8, bytes);
        gdn_cp_async16(st.U + i * 8, p.U + from * GDN_D + n * 8, bytes);
        const gdn_bf16 *const k = p.K + from * stride + n * 8;
        if (wide) {
            gdn_cp_async16(st.K + i * 8, k, bytes);
        } else if (words) {
            GDN_UNROLL
            for (uint32_t e = 0; e < 8; e += 2) gdn_cp_async4(st.K + i * 8 + e, k + e, bytes / 4);
        } else {
            gdn_st16(st.K + i * 8, gdn_load8<false, true>(k, bytes / 2));
        }
    }
    if (threadIdx.x < p.rows) gdn_cp_async4(gc + threadIdx.x, p.gc + threadIdx.x);
    gdn_cp_async_commit();
}

template <uint32_t SPLIT>
GDN_DEVICE void gdn_spine_checkpoint(const gdn_rule_ext &x, const gdn_sequence &s, uint32_t c, uint64_t ckpt0, uint32_t head, uint32_t nv,
                                     const float (&S)[GDN_D / SPLIT]) {
    const uint32_t tokens = (c + 1) * GDN_CHUNK_TOKENS;
    if (!x.ckpt_every || tokens % x.ckpt_every || tokens > s.len) return;
    gdn_column_store<SPLIT>(S, x.ckpt + ((ckpt0 + tokens / x.ckpt_every - 1) * nv + head) * GDN_D * GDN_D);
}

/* BUFFERS 1: a chunk's tiles are loaded when the chunk before is done. 2: while it is computed. */
template <uint32_t SPLIT, uint32_t BUFFERS, uint32_t TOKENS> GDN_DEVICE void gdn_scalar_spine(const gdn_spine &a, const gdn_rule_ext &x) {
    GDN_DYN_SMEM(gdn_bf16, smem);
    float *const floats = reinterpret_cast<float *>(smem + BUFFERS * 3 * GDN_SPINE_TILE);
    const uint32_t head = blockIdx.x, b = blockIdx.y;
    const gdn_state_ptrs h = gdn_states_of(x, a.h_state, a.is_table, b, head, a.nv, GDN_D, GDN_D);
    if (!h.in) return;
    const gdn_sequence s = gdn_find_sequence(x, b, a.seq_len, a.num_chunks, a.cu, a.varlen);
    const uint64_t ckpt0 = x.ckpt_every ? gdn_ckpts_before(x, b, a.seq_len, a.cu, a.varlen) : 0;
    const bool fresh = gdn_is_fresh(x, b);
    if (s.begin == s.end && h.in == h.out && !fresh) return;
    auto stage = [&](uint32_t n) {
        gdn_bf16 *const tiles = smem + n * 3 * GDN_SPINE_TILE;
        return gdn_spine_stage { tiles, tiles + GDN_SPINE_TILE, tiles + 2 * GDN_SPINE_TILE, floats + n * (GDN_CHUNK_TOKENS + 1) };
    };
    auto stage_gc = [&](uint32_t n) { return floats + BUFFERS * (GDN_CHUNK_TOKENS + 1) + n * GDN_CHUNK_TOKENS; };

    if (BUFFERS == 2 && s.begin < s.end) gdn_spine_fetch(stage(0), stage_gc(0), gdn_spine_at(a, s, s.begin, head), a.qk_stride);
    float S[GDN_D / SPLIT];
    gdn_column_load<SPLIT>(S, fresh ? nullptr : h.in);
    for (uint32_t c = s.begin; c < s.end; c++) {
        const gdn_spine_place p = gdn_spine_at(a, s, c, head);
        const uint32_t n = BUFFERS == 2 ? (c - s.begin) % 2 : 0;
        const gdn_spine_stage st = stage(n);
        if (BUFFERS == 2) {
            gdn_cp_async_wait<0>();
            gdn_sync_block(); /* this stage has arrived, and the other one is no longer read */
            if (c + 1 < s.end) gdn_spine_fetch(stage(1 - n), stage_gc(1 - n), gdn_spine_at(a, s, c + 1, head), a.qk_stride);
            gdn_spine_decays(st.decay, stage_gc(n), p.rows);
        } else {
            gdn_sync_block();
            gdn_tile_load<false>(st.W, p.W, GDN_D, p.rows, GDN_CHUNK_TOKENS);
            gdn_tile_load<false>(st.U, p.U, GDN_D, p.rows, GDN_CHUNK_TOKENS);
            gdn_tile_load<false>(st.K, p.K, a.qk_stride, p.rows, GDN_CHUNK_TOKENS);
            gdn_spine_decays(st.decay, p.gc, p.rows);
        }
        gdn_sync_block();
        gdn_spine_chunk<SPLIT, TOKENS>(st, p.rows, S, p.S_out, p.uc_out);
        gdn_spine_checkpoint<SPLIT>(x, s, c, ckpt0, head, a.nv, S);
    }
    gdn_column_store<SPLIT>(S, h.out);
}
