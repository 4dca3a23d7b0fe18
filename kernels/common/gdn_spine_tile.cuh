/* gdn_spine_tile.cuh - the scalar spine of two halves (gdn_spine.cuh with SPLIT 2: the same operations, the same bytes) as two matrix
 * products in registers, for a device with 145 KiB of shared memory a block.
 *
 * A chunk's dots all read the state as it was before the chunk, so they need not wait for its updates:
 *     1  dots of all rows W_i with S      2  uc = U - dot, d = decay_i uc, in shared memory      3  S = decay S + sum_i K_i (outer) d_i
 * A thread has 16 rows of S by four columns, so that one k of W or K serves four products. The 64 rows of a half lie with four lanes, the
 * stages; a dot goes from stage to stage by shuffle, one token a step, so that its additions keep their order. Stage s is s tokens
 * behind the first. W, then K, are widened to f32 once for all threads.
 *
 * 256 threads; lane = stage*8 + half*4 + column group. */
#pragma once
#include "gdn_spine.cuh"

enum { GDN_PATCH_ROWS = 16, GDN_PATCH_COLUMNS = 4, GDN_PATCH_STAGES = 4, GDN_PATCH_LOW = 32 /* tokens whose dots take the place of W */ };

struct gdn_patch {
    static GDN_METHOD uint32_t stage() { return gdn_lane() / 8; }
    static GDN_METHOD uint32_t half() { return gdn_lane() / 4 % 2; }
    static GDN_METHOD uint32_t first_row() { return 32 * stage() + 8 * half(); }
    /* Of its 16: two pieces of eight, 16 rows apart. */
    static GDN_METHOD uint32_t row(uint32_t j) { return first_row() + j / 8 * 16 + j % 8; }
    static GDN_METHOD uint32_t column() { return (threadIdx.x / 32 * 4 + gdn_lane() % 4) * GDN_PATCH_COLUMNS; }
};

/* What a block has of a chunk, beside its stage. */
struct gdn_patch_smem {
    float *wide;       /* W, then K, as f32 */
    float *low, *high; /* dots, then d: the first 32 tokens and the rest */
};
GDN_DEVICE float *gdn_patch_dots(const gdn_patch_smem &m, uint32_t token) {
    return (token < GDN_PATCH_LOW ? m.low : m.high - GDN_PATCH_LOW * GDN_D) + token * GDN_D;
}

/* The thread's 16 of a row. */
GDN_DEVICE void gdn_patch_row(float (&x)[GDN_PATCH_ROWS], const float *row) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const float4 four = gdn_ld16f(row + i / 2 * 16 + i % 2 * 4);
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
}
GDN_DEVICE void gdn_patch_load(float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS], const float *state) {
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) GDN_UNROLL
    for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++)
        S[j][c] = state ? state[gdn_state_at(gdn_patch::row(j), gdn_patch::column() + c, GDN_D, GDN_D)] : 0.0f;
}
GDN_DEVICE void gdn_patch_store(const float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS], float *state) {
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) GDN_UNROLL
    for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++)
        state[gdn_state_at(gdn_patch::row(j), gdn_patch::column() + c, GDN_D, GDN_D)] = S[j][c];
}
/* Row j of the patch as bf16. */
GDN_DEVICE void gdn_patch_round(const float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS], gdn_bf16 *S_out) {
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) {
        gdn_bf16 *const p = S_out + gdn_patch::row(j) * GDN_D + gdn_patch::column();
        gdn_st8(p, uint2 { gdn_pack_bf16(S[j][0], S[j][1]), gdn_pack_bf16(S[j][2], S[j][3]) });
    }
}

/* A tile as f32, for all the threads that read it. */
GDN_DEVICE void gdn_patch_widen(float *wide, const gdn_bf16 *tile) {
    GDN_UNROLL
    for (uint32_t n = 0; n < GDN_SPINE_TILE / 8 / 256; n++) {
        const uint32_t at = (threadIdx.x + 256 * n) * 8;
        float x[8];
        gdn_unpack8(x, gdn_ld16(tile + at));
        gdn_st16f(wide + at, float4 { x[0], x[1], x[2], x[3] });
        gdn_st16f(wide + at + 4, float4 { x[4], x[5], x[6], x[7] });
    }
}

/* 1: the dots of the chunk's rows; four steps at a time. At step n stage s has token n - 1 - s, and token n - 4 is done: sets of four
 * done tokens begin at multiples of four. Row 0 and the last are read again where a stage has no token; nothing is made of that. */
GDN_DEVICE void gdn_patch_product(const gdn_patch_smem &m, uint32_t rows, const float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS]) {
    const int stage = (int)gdn_patch::stage();
    const float *const wide = m.wide + gdn_patch::first_row();
    const bool last = gdn_lane() / 4 == 2 * (GDN_PATCH_STAGES - 1);
    float x[GDN_PATCH_ROWS] = {}, dot[GDN_PATCH_COLUMNS] = {};
    GDN_NO_UNROLL
    for (uint32_t n = 0; n < rows + GDN_PATCH_STAGES; n += 4) {
        float *const to = gdn_patch_dots(m, n ? n - 4 : 0) + gdn_patch::column();
        const uint32_t left = last && n ? rows + 4 - n : 0; /* of this set, where the thread writes it */
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            float ahead[GDN_PATCH_ROWS], sum[GDN_PATCH_COLUMNS];
            gdn_patch_row(ahead, wide + min(max((int)(n + i) - stage, 0), (int)rows - 1) * GDN_D);
            GDN_UNROLL
            for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++) {
                const float before = __shfl_up_sync(GDN_FULL_MASK, dot[c], 8);
                dot[c] = stage ? before : 0.0f;
            }
            GDN_UNROLL
            for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) GDN_UNROLL
            for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++) dot[c] = dot[c] + x[j] * S[j][c];
            GDN_UNROLL
            for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++) sum[c] = dot[c] + __shfl_xor_sync(GDN_FULL_MASK, dot[c], 4);
            if (i < left) gdn_st16f(to + i * GDN_D, float4 { sum[0], sum[1], sum[2], sum[3] });
            GDN_UNROLL
            for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) x[j] = ahead[j];
        }
    }
}

/* 2: dots become uc and d. */
GDN_DEVICE void gdn_patch_values(const gdn_patch_smem &m, const gdn_spine_stage &st, uint32_t rows, gdn_bf16 *uc_out) {
    for (uint32_t i = threadIdx.x; i < rows * GDN_D / 4; i += 256) {
        const uint32_t token = i / (GDN_D / 4), v = i % (GDN_D / 4) * 4;
        float *const at = gdn_patch_dots(m, token) + v;
        const float4 dot = gdn_ld16f(at);
        const uint2 u = gdn_ld8(st.U + token * GDN_D + v);
        const float4 uc = { gdn_bf16_lo(u.x) - dot.x, gdn_bf16_hi(u.x) - dot.y, gdn_bf16_lo(u.y) - dot.z, gdn_bf16_hi(u.y) - dot.w };
        const float decay = st.decay[token];
        gdn_st8(uc_out + token * GDN_D + v, uint2 { gdn_pack_bf16(uc.x, uc.y), gdn_pack_bf16(uc.z, uc.w) });
        gdn_st16f(at, float4 { decay * uc.x, decay * uc.y, decay * uc.z, decay * uc.w });
    }
}

/* 3: the terms of all tokens, in their order. */
struct gdn_patch_term {
    float k[GDN_PATCH_ROWS], d[GDN_PATCH_COLUMNS];
    GDN_METHOD void load(const float *wide, const float *dots, uint32_t ahead) {
        gdn_patch_row(k, wide + ahead * GDN_D);
        const float4 four = gdn_ld16f(dots + ahead * GDN_D);
        d[0] = four.x, d[1] = four.y, d[2] = four.z, d[3] = four.w;
    }
    GDN_METHOD void add(float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS]) const {
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) GDN_UNROLL
        for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++) S[j][c] = S[j][c] + k[j] * d[c];
    }
};
GDN_DEVICE void gdn_patch_update(const gdn_patch_smem &m, uint32_t rows, float decay, float (&S)[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS]) {
    const float *const wide = m.wide + gdn_patch::first_row();
    auto dots = [&](uint32_t token) { return gdn_patch_dots(m, token) + gdn_patch::column(); };
    gdn_patch_term now, next;
    now.load(wide, dots(0), 0);
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_PATCH_ROWS; j++) GDN_UNROLL
    for (uint32_t c = 0; c < GDN_PATCH_COLUMNS; c++) S[j][c] = decay * S[j][c];
    uint32_t token = 0;
    GDN_NO_UNROLL
    for (; token + 4 <= rows; token += 4) {
        const float *const k = wide + token * GDN_D, *const d = dots(token);
        const uint32_t after = min(token + 4, rows - 1);
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (i < 3)
                next.load(k, d, i + 1);
            else
                next.load(wide + after * GDN_D, dots(after), 0);
            now.add(S);
            now = next;
        }
    }
    GDN_NO_UNROLL
    for (; token < rows; token++) {
        now.load(wide + token * GDN_D, dots(token), 0);
        now.add(S);
    }
}

GDN_DEVICE void gdn_patch_spine(const gdn_spine &a, const gdn_rule_ext &x) {
    GDN_DYN_SMEM(gdn_bf16, smem);
    __shared__ __align__(16) float floats[GDN_SPINE_TILE + (GDN_CHUNK_TOKENS - GDN_PATCH_LOW) * GDN_D];
    float *const small = reinterpret_cast<float *>(smem + 2 * 3 * GDN_SPINE_TILE);
    const uint32_t head = blockIdx.x, b = blockIdx.y;
    const gdn_state_ptrs h = gdn_states_of(x, a.h_state, a.is_table, b, head, a.nv, GDN_D, GDN_D);
    if (!h.in) return;
    const gdn_sequence s = gdn_find_sequence(x, b, a.seq_len, a.num_chunks, a.cu, a.varlen);
    const uint64_t ckpt0 = x.ckpt_every ? gdn_ckpts_before(x, b, a.seq_len, a.cu, a.varlen) : 0;
    const bool fresh = gdn_is_fresh(x, b);
    if (s.begin == s.end && h.in == h.out && !fresh) return;
    auto stage = [&](uint32_t n) {
        gdn_bf16 *const tiles = smem + n * 3 * GDN_SPINE_TILE;
        return gdn_spine_stage { tiles, tiles + GDN_SPINE_TILE, tiles + 2 * GDN_SPINE_TILE, small + n * (GDN_CHUNK_TOKENS + 1) };
    };
    auto stage_gc = [&](uint32_t n) { return small + 2 * (GDN_CHUNK_TOKENS + 1) + n * GDN_CHUNK_TOKENS; };

    if (s.begin < s.end) gdn_spine_fetch(stage(0), stage_gc(0), gdn_spine_at(a, s, s.begin, head), a.qk_stride);
    float S[GDN_PATCH_ROWS][GDN_PATCH_COLUMNS];
    gdn_patch_load(S, fresh ? nullptr : h.in);
    for (uint32_t c = s.begin; c < s.end; c++) {
        const gdn_spine_place p = gdn_spine_at(a, s, c, head);
        const uint32_t n = (c - s.begin) % 2;
        const gdn_spine_stage st = stage(n);
        const gdn_patch_smem m = { floats, reinterpret_cast<float *>(st.W), floats + GDN_SPINE_TILE };
        gdn_cp_async_wait<0>();
        gdn_sync_block(); /* this stage has arrived, and the other one is no longer read */
        if (c + 1 < s.end) gdn_spine_fetch(stage(1 - n), stage_gc(1 - n), gdn_spine_at(a, s, c + 1, head), a.qk_stride);
        gdn_spine_decays(st.decay, stage_gc(n), p.rows);
        gdn_patch_widen(m.wide, st.W);
        gdn_patch_round(S, p.S_out);
        gdn_sync_block();
        gdn_patch_product(m, p.rows, S);
        gdn_sync_block();
        gdn_patch_widen(m.wide, st.K);
        gdn_patch_values(m, st, p.rows, p.uc_out);
        gdn_sync_block();
        gdn_patch_update(m, p.rows, st.decay[GDN_CHUNK_TOKENS], S);
        const uint32_t tokens = (c + 1) * GDN_CHUNK_TOKENS;
        if (x.ckpt_every && tokens % x.ckpt_every == 0 && tokens <= s.len)
            gdn_patch_store(S, x.ckpt + ((ckpt0 + tokens / x.ckpt_every - 1) * a.nv + head) * GDN_D * GDN_D);
    }
    gdn_patch_store(S, h.out);
}
