/* gdn_step_split.cuh - decode of 32 value columns of a head by a block of 128 threads: a quarter of a state in a quarter of the registers
 * of gdn_step.cuh, so that more of them are in flight and one sequence fills more multiprocessors. The same operations in the same order,
 * so the same bytes: sums of four are made where the state is and change hands through shared memory, and each lane adds those of its
 * column. Heads of 128.
 *
 *   [K][V]: warp w has k = 32w ... 32w+31, the lane its column.      [V][K]: warp w has columns 8w ... 8w+7, a lane four k of each. */
#pragma once
#include "gdn_step.cuh"

enum { GDN_SPLIT_COLUMNS = 32, GDN_SPLIT_GROUPS = 8, GDN_SPLIT_PITCH = 33 };

struct __align__(16) gdn_split_smem {
    float q[GDN_STEP_DIM], k[GDN_STEP_DIM];
    float sums[2][32 * GDN_SPLIT_PITCH]; /* [pass][group of four k][column] */
#ifdef GDN_QK_L2NORM
    float squares[2][4];
#endif
};

struct gdn_split_state {
    float4 s[GDN_SPLIT_GROUPS];
#ifndef GDN_STATE_VK
    static GDN_METHOD uint32_t first() {
        return threadIdx.x / 32 * 32;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return first() * GDN_STEP_DIM + slice * GDN_SPLIT_COLUMNS + gdn_lane();
    }
    static GDN_METHOD float4 four(const float *x, uint32_t i) {
        return gdn_ld16f(x + first() + 4 * i);
    }
    static GDN_METHOD uint32_t sum_at(uint32_t i) {
        return (first() / 4 + i) * GDN_SPLIT_PITCH + gdn_lane();
    }
    static GDN_METHOD float vn_of(float vn, uint32_t) {
        return vn;
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
    static GDN_METHOD uint32_t first() {
        return threadIdx.x / 32 * GDN_SPLIT_GROUPS;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return (slice * GDN_SPLIT_COLUMNS + first()) * GDN_STEP_DIM + 4 * gdn_lane();
    }
    static GDN_METHOD float4 four(const float *x, uint32_t) {
        return gdn_ld16f(x + 4 * gdn_lane());
    }
    static GDN_METHOD uint32_t sum_at(uint32_t i) {
        return gdn_lane() * GDN_SPLIT_PITCH + first() + i;
    }
    static GDN_METHOD float vn_of(float vn, uint32_t i) {
        return __shfl_sync(GDN_FULL_MASK, vn, (int)(first() + i));
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
};

/* The lane's column: its 32 sums of four, in order. */
GDN_DEVICE float gdn_split_total(const float *sums) {
    float sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) sum += sums[i * GDN_SPLIT_PITCH + gdn_lane()];
    return sum;
}

/* in NULL: zeros. */
GDN_DEVICE void gdn_split_decode(gdn_split_smem &m, const gdn_step &a, uint64_t row, uint32_t head, uint32_t slice, const float *in,
                                 float *out) {
    const uint32_t i = threadIdx.x, column = slice * GDN_SPLIT_COLUMNS + gdn_lane();
    gdn_split_state state;
    const float *const from = gdn_opaque(in + gdn_split_state::place(slice));
    float *const to = gdn_opaque(out + gdn_split_state::place(slice));
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) state.s[g] = in ? state.get(from, (uint64_t)in % 16 == 0, g) : float4 { 0, 0, 0, 0 };
    /* after the state's loads: the key head takes a division */
    const uint64_t qk = row * a.qk_stride + gdn_key_head(head, a.nk, a.nv) * GDN_STEP_DIM + i, gb = row * a.gb_stride + head;
    const gdn_bf16 q16 = a.q[qk], k16 = a.k[qk], v16 = a.v[row * a.v_stride + head * GDN_STEP_DIM + column];
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
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) m.sums[0][state.sum_at(g)] = gdn_group_sum(state.s[g], state.four(m.k, g));
    gdn_sync_block();
    const float decay = gdn_step_decay(gate);
    const float vn = (gdn_to_f32(v16) - decay * gdn_split_total(m.sums[0])) * beta;
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_SPLIT_GROUPS; g++) {
        const float4 x = gdn_group_step(decay, state.s[g], state.four(m.k, g), state.vn_of(vn, g));
        state.put(to, (uint64_t)out % 16 == 0, g, x);
        m.sums[1][state.sum_at(g)] = gdn_group_sum(x, state.four(m.q, g));
    }
    gdn_sync_block();
    if (i < GDN_SPLIT_COLUMNS) a.out[(row * a.nv + head) * GDN_STEP_DIM + column] = gdn_to_bf16(a.scale * gdn_split_total(m.sums[1]));
}
