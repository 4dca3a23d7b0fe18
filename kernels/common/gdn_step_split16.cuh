/* gdn_step_split16.cuh - decode of 64 value columns of a head whose state is bf16, by a block of 128 threads: as gdn_step_split.cuh, with
 * as many bytes of state a thread. It stays packed in registers, two elements a word, and is widened where it is used; sums and order are
 * gdn_step.cuh's. Heads of 128.
 *
 *   [K][V]: warp w has k = 32w ... 32w+31, a lane two neighbouring columns.    [V][K]: warp w has columns 16w ... 16w+15, a lane four k
 *   of each. A sum of four of column c and group i lies at sums[i*PITCH + c]: the pitch keeps both sides off each other's banks. */
#pragma once
#include "gdn_step.cuh"
#include "gdn_step_state16.cuh"

enum { GDN_SPLIT16_COLUMNS = 64, GDN_SPLIT16_WORDS = 32, GDN_SPLIT16_PITCH = GDN_IS_VK ? 65 : 64 };

struct __align__(16) gdn_split16_smem {
    float q[GDN_STEP_DIM], k[GDN_STEP_DIM], vn[GDN_SPLIT16_COLUMNS];
    float sums[32 * GDN_SPLIT16_PITCH];
#ifdef GDN_QK_L2NORM
    float squares[2][4];
#endif
};

/* The two of a word once more, by another instruction than before: the compiler would else keep what the first pass made of 32 words. */
#ifdef GDN_EMU
GDN_DEVICE float gdn_bf16_lo_again(uint32_t pair) {
    return gdn_bf16_lo(pair);
}
GDN_DEVICE float gdn_bf16_hi_again(uint32_t pair) {
    return gdn_bf16_hi(pair);
}
#else
GDN_DEVICE float gdn_bf16_lo_again(uint32_t pair) {
    uint32_t r;
    asm("prmt.b32 %0, %1, 0, 0x1044;" : "=r"(r) : "r"(pair));
    return gdn_float(r);
}
GDN_DEVICE float gdn_bf16_hi_again(uint32_t pair) {
    uint32_t r;
    asm("prmt.b32 %0, %1, 0, 0x3244;" : "=r"(r) : "r"(pair));
    return gdn_float(r);
}
#endif

struct gdn_split16_state {
    uint32_t s[GDN_SPLIT16_WORDS];
#ifndef GDN_STATE_VK
    static GDN_METHOD uint32_t first() {
        return threadIdx.x / 32 * 32;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return first() * GDN_STEP_DIM + slice * GDN_SPLIT16_COLUMNS + 2 * gdn_lane();
    }
    GDN_METHOD void load(const gdn_bf16 *p) {
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_SPLIT16_WORDS; i++) s[i] = gdn_ld4_stream(p + i * GDN_STEP_DIM);
    }
    template <class F> GDN_METHOD float4 of(uint32_t i, F half) const { return float4 { half(s[i]), half(s[i + 1]), half(s[i + 2]), half(s[i + 3]) }; }
    static GDN_METHOD void keep(float *sums, uint32_t i, float low, float high) {
        float *const at = sums + (first() + i) / 4 * GDN_SPLIT16_PITCH + 2 * gdn_lane();
        at[0] = low, at[1] = high;
    }
    GDN_METHOD void dot(float *sums, const float *k) const {
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_SPLIT16_WORDS; i += 4) {
            const float4 k4 = gdn_ld16f(k + first() + i);
            keep(sums, i, gdn_group_sum(of(i, gdn_bf16_lo), k4), gdn_group_sum(of(i, gdn_bf16_hi), k4));
        }
    }
    GDN_METHOD void step(float *sums, float g, const float *vn, const float *k, const float *q, gdn_bf16 *to) const {
        const float vn0 = vn[2 * gdn_lane()], vn1 = vn[2 * gdn_lane() + 1];
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_SPLIT16_WORDS; i += 4) {
            const float4 k4 = gdn_ld16f(k + first() + i), q4 = gdn_ld16f(q + first() + i);
            const float4 x = gdn_group_step(g, of(i, gdn_bf16_lo_again), k4, vn0), y = gdn_group_step(g, of(i, gdn_bf16_hi_again), k4, vn1);
            gdn_bf16 *const at = to + i * GDN_STEP_DIM;
            gdn_st4_stream(at, gdn_pack_bf16(x.x, y.x));
            gdn_st4_stream(at + GDN_STEP_DIM, gdn_pack_bf16(x.y, y.y));
            gdn_st4_stream(at + 2 * GDN_STEP_DIM, gdn_pack_bf16(x.z, y.z));
            gdn_st4_stream(at + 3 * GDN_STEP_DIM, gdn_pack_bf16(x.w, y.w));
            keep(sums, i, gdn_group_sum(x, q4), gdn_group_sum(y, q4));
        }
    }
#else
    static GDN_METHOD uint32_t first() {
        return threadIdx.x / 32 * 16;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return (slice * GDN_SPLIT16_COLUMNS + first()) * GDN_STEP_DIM + 4 * gdn_lane();
    }
    GDN_METHOD void load(const gdn_bf16 *p) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            const uint2 w = gdn_ld8_stream(p + i * GDN_STEP_DIM);
            s[2 * i] = w.x, s[2 * i + 1] = w.y;
        }
    }
    template <class LO, class HI> GDN_METHOD float4 four(uint32_t i, LO lo, HI hi) const {
        return float4 { lo(s[2 * i]), hi(s[2 * i]), lo(s[2 * i + 1]), hi(s[2 * i + 1]) };
    }
    GDN_METHOD void dot(float *sums, const float *k) const {
        const float4 k4 = gdn_ld16f(k + 4 * gdn_lane());
        GDN_UNROLL
        for (uint32_t i = 0; i < 16; i++) sums[gdn_lane() * GDN_SPLIT16_PITCH + first() + i] = gdn_group_sum(four(i, gdn_bf16_lo, gdn_bf16_hi), k4);
    }
    GDN_METHOD void step(float *sums, float g, const float *vn, const float *k, const float *q, gdn_bf16 *to) const {
        const float4 k4 = gdn_ld16f(k + 4 * gdn_lane()), q4 = gdn_ld16f(q + 4 * gdn_lane());
        GDN_UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            const float4 x = gdn_group_step(g, four(i, gdn_bf16_lo_again, gdn_bf16_hi_again), k4, vn[first() + i]);
            gdn_st4x16(to + i * GDN_STEP_DIM, x);
            sums[gdn_lane() * GDN_SPLIT16_PITCH + first() + i] = gdn_group_sum(x, q4);
        }
    }
#endif
};

/* The 32 sums of four of a column, in order; eight on their way at a time, more would cost registers. */
GDN_DEVICE float gdn_split16_total(const float *sums, uint32_t column) {
    float sum = 0;
    GDN_NO_UNROLL
    for (uint32_t from = 0; from < 32; from += 8) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) sum += sums[(from + i) * GDN_SPLIT16_PITCH + column];
    }
    return sum;
}

/* in NULL: zeros. */
GDN_DEVICE void gdn_split16_decode(gdn_split16_smem &m, const gdn_step &a, uint64_t row, uint32_t head, uint32_t slice, const gdn_bf16 *in,
                                   gdn_bf16 *out) {
    const uint32_t i = threadIdx.x, column = slice * GDN_SPLIT16_COLUMNS + i;
    const bool mine = i < GDN_SPLIT16_COLUMNS; /* a column to finish */
    gdn_split16_state state = {};
    if (in) state.load(gdn_opaque(in + state.place(slice)));
    /* after the state's loads: the key head takes a division */
    const uint64_t qk = row * a.qk_stride + gdn_key_head(head, a.nk, a.nv) * GDN_STEP_DIM + i, gb = row * a.gb_stride + head;
    const gdn_bf16 q16 = a.q[qk], k16 = a.k[qk];
    const gdn_bf16 v16 = mine ? a.v[row * a.v_stride + head * GDN_STEP_DIM + column] : gdn_bf16 { 0 };
    const float gate = a.gate[gb], beta = a.beta[gb];
    m.q[i] = gdn_to_f32(q16);
    m.k[i] = gdn_to_f32(k16);
#ifdef GDN_QK_L2NORM
    gdn_step_share(m.squares[0], m.q[i] * m.q[i]);
    gdn_step_share(m.squares[1], m.k[i] * m.k[i]);
    gdn_sync_block();
    m.q[i] = gdn_div(m.q[i], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[0]) + 1e-6f));
    m.k[i] = gdn_div(m.k[i], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[1]) + 1e-6f));
#endif
    gdn_sync_block();
    state.dot(m.sums, m.k);
    gdn_sync_block();
    const float decay = gdn_step_decay(gate);
    if (mine) m.vn[i] = (gdn_to_f32(v16) - decay * gdn_split16_total(m.sums, i)) * beta;
    gdn_sync_block();
    state.step(m.sums, decay, m.vn, m.k, m.q, gdn_opaque(out + state.place(slice)));
    gdn_sync_block();
    if (mine) a.out[(row * a.nv + head) * GDN_STEP_DIM + column] = gdn_to_bf16(a.scale * gdn_split16_total(m.sums, i));
}
