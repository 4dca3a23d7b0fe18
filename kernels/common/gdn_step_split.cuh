/* gdn_step_split.cuh - decode of 32 or 16 value columns of a head by sixteen threads a column: more of a state is in flight, and one
 * sequence fills more multiprocessors, than with gdn_step.cuh. The same operations in the same order, so the same bytes: sums of four are
 * made where the state is and change hands through shared memory, and one thread a column adds those of its column. Heads of 128.
 *
 *   [K][V]: a thread has eight consecutive k of its column.      [V][K]: warp w has columns 2w and 2w + 1, a lane four k of each. */
#pragma once
#include "gdn_step.cuh"

enum { GDN_SPLIT_THREADS = 16 /* a column */, GDN_SPLIT_WIDEST = 32, GDN_SPLIT_GROUPS = 2 /* of four k, a thread */ };

struct __align__(16) gdn_split_smem {
    float q[GDN_STEP_DIM], k[GDN_STEP_DIM];
    float vn[GDN_SPLIT_WIDEST], decay;
    float sums[2][32 * (GDN_SPLIT_WIDEST + 1)]; /* [pass][group of four k][column], a column more between groups */
#ifdef GDN_QK_L2NORM
    float squares[2][4];
#endif
};

template <uint32_t COLUMNS> struct gdn_split_state {
    float4 s[GDN_SPLIT_GROUPS];
#ifndef GDN_STATE_VK
    static GDN_METHOD uint32_t first() {
        return threadIdx.x / COLUMNS * 8;
    }
    static GDN_METHOD uint32_t column(uint32_t) {
        return threadIdx.x % COLUMNS;
    }
    static GDN_METHOD uint32_t k_of(uint32_t i) {
        return first() + 4 * i;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return first() * GDN_STEP_DIM + slice * COLUMNS + column(0);
    }
    static GDN_METHOD float4 get(const float *p, bool, uint32_t i) {
        p += 4 * i * GDN_STEP_DIM;
        return float4 { gdn_ld4f_stream(p), gdn_ld4f_stream(p + GDN_STEP_DIM), gdn_ld4f_stream(p + 2 * GDN_STEP_DIM),
                        gdn_ld4f_stream(p + 3 * GDN_STEP_DIM) };
    }
    static GDN_METHOD void put(float *p, bool, uint32_t i, float4 x) {
        p += 4 * i * GDN_STEP_DIM;
        gdn_st4f_stream(p, x.x), gdn_st4f_stream(p + GDN_STEP_DIM, x.y), gdn_st4f_stream(p + 2 * GDN_STEP_DIM, x.z);
        gdn_st4f_stream(p + 3 * GDN_STEP_DIM, x.w);
    }
#else
    static GDN_METHOD uint32_t column(uint32_t i) {
        return threadIdx.x / 32 * GDN_SPLIT_GROUPS + i;
    }
    static GDN_METHOD uint32_t k_of(uint32_t) {
        return 4 * gdn_lane();
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return (slice * COLUMNS + column(0)) * GDN_STEP_DIM + k_of(0);
    }
    static GDN_METHOD float4 get(const float *p, bool wide, uint32_t i) {
        p += i * GDN_STEP_DIM;
        if (wide) return gdn_ld16f_stream(p);
        return float4 { gdn_ld4f_stream(p), gdn_ld4f_stream(p + 1), gdn_ld4f_stream(p + 2), gdn_ld4f_stream(p + 3) };
    }
    static GDN_METHOD void put(float *p, bool wide, uint32_t i, float4 x) {
        p += i * GDN_STEP_DIM;
        if (wide)
            gdn_st16f_stream(p, x);
        else
            gdn_st4f_stream(p, x.x), gdn_st4f_stream(p + 1, x.y), gdn_st4f_stream(p + 2, x.z), gdn_st4f_stream(p + 3, x.w);
    }
#endif
    static GDN_METHOD uint32_t sum_at(uint32_t i) {
        return k_of(i) / 4 * (COLUMNS + 1) + column(i);
    }
};

/* Column threadIdx.x: its 32 sums of four, in order. */
template <uint32_t COLUMNS> GDN_DEVICE float gdn_split_total(const float *sums) {
    float sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) sum += sums[i * (COLUMNS + 1) + threadIdx.x];
    return sum;
}

/* q by the first four warps, k by the next. */
GDN_DEVICE void gdn_split_rows(gdn_split_smem &m, const gdn_step &a, uint64_t row, uint32_t head) {
    const uint32_t i = threadIdx.x % GDN_STEP_DIM, which = threadIdx.x / GDN_STEP_DIM;
    float x = 0;
    if (which < 2) {
        const uint64_t at = row * a.qk_stride + gdn_key_head(head, a.nk, a.nv) * GDN_STEP_DIM + i;
        x = gdn_to_f32((which ? a.k : a.q)[at]);
    }
#ifdef GDN_QK_L2NORM
    if (which < 2) {
        const float sum = gdn_warp_sum_down(x * x);
        if (gdn_lane() == 0) m.squares[which][i / 32] = sum;
    }
    gdn_sync_block();
    if (which < 2) x = gdn_div(x, sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[which]) + 1e-6f));
#endif
    if (which < 2) (which ? m.k : m.q)[i] = x;
    gdn_sync_block();
}

/* Columns slice*COLUMNS and up, by 16*COLUMNS threads. in NULL: zeros. then() is called behind the state's loads. */
template <uint32_t COLUMNS, class F>
GDN_DEVICE void gdn_split_decode(gdn_split_smem &m, const gdn_step &a, uint64_t row, uint32_t head, uint32_t slice, const float *in,
                                 float *out, F then) {
    typedef gdn_split_state<COLUMNS> part;
    const uint32_t i = threadIdx.x, v = head * GDN_STEP_DIM + slice * COLUMNS + i;
    part state;
    const float *const from = gdn_opaque(in + part::place(slice));
    float *const to = gdn_opaque(out + part::place(slice));
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) state.s[g] = in ? state.get(from, (uint64_t)in % 16 == 0, g) : float4 { 0, 0, 0, 0 };
    gdn_bf16 v16 = {};
    float gate = 0, beta = 0;
    if (i < COLUMNS) {
        const uint64_t gb = row * a.gb_stride + head;
        v16 = a.v[row * a.v_stride + v];
        gate = a.gate[gb], beta = a.beta[gb];
    }
    then();
    gdn_split_rows(m, a, row, head); /* after the state's loads: the key head takes a division */
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) m.sums[0][part::sum_at(g)] = gdn_group_sum(state.s[g], gdn_ld16f(m.k + part::k_of(g)));
    gdn_sync_block();
    if (i < COLUMNS) {
        const float decay = gdn_step_decay(gate);
        m.vn[i] = (gdn_to_f32(v16) - decay * gdn_split_total<COLUMNS>(m.sums[0])) * beta;
        if (i == 0) m.decay = decay;
    }
    gdn_sync_block();
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) {
        const float4 x = gdn_group_step(m.decay, state.s[g], gdn_ld16f(m.k + part::k_of(g)), m.vn[part::column(g)]);
        state.put(to, (uint64_t)out % 16 == 0, g, x);
        m.sums[1][part::sum_at(g)] = gdn_group_sum(x, gdn_ld16f(m.q + part::k_of(g)));
    }
    gdn_sync_block();
    if (i < COLUMNS) a.out[row * a.nv * GDN_STEP_DIM + v] = gdn_to_bf16(a.scale * gdn_split_total<COLUMNS>(m.sums[1]));
}
