/* gdn_step_shared.cuh - up to four rows of one (sequence, value head) of 128 that leave the state as it was, from 64 KiB of shared memory:
 * gdn_step.cuh's operations in its order, so its bytes. States [K][V] only; sm_90 and later.
 *
 * One thread sends for the whole state, nobody's registers wait for it. Warp w has k = 32w ... 32w+31, a lane four neighbouring columns of
 * them: four k of a row, 16 bytes of shared memory that all lanes read, serve four columns, and an element that is read once serves four
 * rows.
 *   hk     each warp makes its sums of four; the accumulators go from warp to warp, with a barrier of the two for each row.
 *   out    all rows' updates of four k and their sums of four at once; the sums take the place of the state, row t's in the t-th of the
 *          four k, and each thread adds those of its column. */
#pragma once
#include "gdn_bulk.cuh"
#include "gdn_rows.cuh"
#include "gdn_step.cuh"

enum { GDN_SHARED_ROWS = 4, GDN_SHARED_PAIRS = 6, GDN_SHARED_LEG = 32, GDN_SHARED_GROUPS = GDN_SHARED_LEG / 4 };

struct __align__(16) gdn_shared_smem {
    float q[GDN_SHARED_ROWS][GDN_STEP_DIM], k[GDN_SHARED_ROWS][GDN_STEP_DIM];
    float vn[GDN_SHARED_ROWS][GDN_STEP_DIM]; /* v, then vn */
    float hk[GDN_SHARED_ROWS][GDN_STEP_DIM]; /* as far as it got */
    float g[GDN_SHARED_ROWS], b[GDN_SHARED_ROWS], lead[GDN_SHARED_ROWS], mix[GDN_SHARED_PAIRS];
    float dots[GDN_SHARED_PAIRS][4]; /* of keys t and s < t, each warp's share */
#ifdef GDN_QK_L2NORM
    float squares[2 * GDN_SHARED_ROWS][4];
#endif
    gdn_mbarrier arrived[4]; /* each warp's part of the state */
};

GDN_DEVICE constexpr uint32_t gdn_shared_pair(uint32_t t, uint32_t s) {
    return t * (t - 1) / 2 + s;
}
/* N sums at once, so that their shuffles wait together. */
template <uint32_t N> GDN_DEVICE void gdn_shared_sums(float (*to)[4], float (&x)[N]) {
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) GDN_UNROLL
    for (uint32_t n = 0; n < N; n++) x[n] += __shfl_down_sync(GDN_FULL_MASK, x[n], d);
    GDN_UNROLL
    for (uint32_t n = 0; n < N; n++)
        if (gdn_lane() == 0) to[n][threadIdx.x / 32] = x[n];
}

/* Sends for the state; NULL: zeros. Returns whether to wait for `arrived`, else the next block barrier is enough. */
GDN_DEVICE bool gdn_shared_send(gdn_shared_smem &m, float *state, const float *in) {
    enum : uint32_t { PART = GDN_SHARED_LEG * GDN_STEP_DIM };
    if (in && gdn_aligned16(in)) {
        if (threadIdx.x == 0) {
            GDN_UNROLL
            for (uint32_t w = 0; w < 4; w++) gdn_mbar_init(m.arrived[w], 1);
            gdn_mbar_init_fence();
            GDN_UNROLL
            for (uint32_t w = 0; w < 4; w++) {
                gdn_mbar_arrive_expect(m.arrived[w], PART * 4);
                gdn_bulk_load(state + w * PART, in + w * PART, PART * 4, m.arrived[w]);
            }
        }
        return true;
    }
    GDN_NO_UNROLL
    for (uint32_t e = threadIdx.x; e < 4 * PART; e += 16 * GDN_STEP_BLOCK) {
        float x[16];
        GDN_UNROLL
        for (uint32_t n = 0; n < 16; n++) x[n] = in ? gdn_ld4f_stream(in + e + n * GDN_STEP_BLOCK) : 0.0f;
        GDN_UNROLL
        for (uint32_t n = 0; n < 16; n++) state[e + n * GDN_STEP_BLOCK] = x[n];
    }
    return false;
}

/* lead of row t > 0, and what row t takes of row s: by one thread each. */
GDN_DEVICE void gdn_shared_mix(gdn_shared_smem &m, uint32_t n) {
    if (n < GDN_SHARED_PAIRS) {
        const uint32_t t = n < 1 ? 1 : n < 3 ? 2 : 3, s = n - gdn_shared_pair(t, 0);
        float decay = s + 1 < t ? m.g[s + 1] : 1.0f;
        GDN_NO_UNROLL
        for (uint32_t e = s + 2; e < t; e++) decay *= m.g[e];
        m.mix[n] = decay * gdn_step_join<GDN_STEP_DIM>(m.dots[n]);
    } else if (n < GDN_SHARED_PAIRS + 3) {
        const uint32_t t = n - GDN_SHARED_PAIRS + 1;
        float lead = m.g[0];
        GDN_NO_UNROLL
        for (uint32_t e = 1; e < t; e++) lead *= m.g[e];
        m.lead[t] = lead;
    }
}

/* The rows' values to m, but for mix and lead; zeros beyond `rows`. */
GDN_DEVICE void gdn_shared_begin(gdn_shared_smem &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head) {
    const uint32_t i = threadIdx.x;
    gdn_step_raw<GDN_SHARED_ROWS> raw = {};
    gdn_step_fetch<GDN_STEP_DIM>(raw, a, row, rows, head);
    if (i < rows) {
        raw.gate = a.gate[(row + i) * a.gb_stride + head];
        raw.beta = a.beta[(row + i) * a.gb_stride + head];
    }
    float k[GDN_SHARED_ROWS], q[GDN_SHARED_ROWS], dots[GDN_SHARED_PAIRS];
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
        k[t] = gdn_to_f32(raw.k[t]);
        q[t] = gdn_to_f32(raw.q[t]);
        m.vn[t][i] = gdn_to_f32(raw.v[t]);
    }
    if (i < GDN_SHARED_ROWS) {
        m.g[i] = i < rows ? gdn_step_decay(raw.gate) : 0.0f;
        m.b[i] = raw.beta;
    }
#ifdef GDN_QK_L2NORM
    float squares[2 * GDN_SHARED_ROWS];
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) squares[t] = q[t] * q[t], squares[GDN_SHARED_ROWS + t] = k[t] * k[t];
    gdn_shared_sums(m.squares, squares);
    gdn_sync_block();
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
        q[t] = gdn_div(q[t], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[t]) + 1e-6f));
        k[t] = gdn_div(k[t], sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[GDN_SHARED_ROWS + t]) + 1e-6f));
    }
#endif
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
        m.q[t][i] = q[t];
        m.k[t][i] = k[t];
        GDN_UNROLL
        for (uint32_t s = 0; s < t; s++) dots[gdn_shared_pair(t, s)] = k[t] * k[s];
    }
    gdn_shared_sums(m.dots, dots);
    gdn_sync_block();
}

/* Four k of the lane's four columns. */
struct gdn_shared_four {
    float4 s[4];
    GDN_METHOD void load(const float *p) {
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) s[j] = gdn_ld16f(p + j * GDN_STEP_DIM);
    }
    GDN_METHOD float4 sum(float4 x) const {
        return float4 { gdn_group_sum(float4 { s[0].x, s[1].x, s[2].x, s[3].x }, x),
                        gdn_group_sum(float4 { s[0].y, s[1].y, s[2].y, s[3].y }, x),
                        gdn_group_sum(float4 { s[0].z, s[1].z, s[2].z, s[3].z }, x),
                        gdn_group_sum(float4 { s[0].w, s[1].w, s[2].w, s[3].w }, x) };
    }
    GDN_METHOD void step(float g, float4 k, float4 vn) {
        const float at[4] = { k.x, k.y, k.z, k.w };
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            s[j] = float4 { g * s[j].x + at[j] * vn.x, g * s[j].y + at[j] * vn.y, g * s[j].z + at[j] * vn.z, g * s[j].w + at[j] * vn.w };
    }
};
GDN_DEVICE float4 gdn_shared_add(float4 a, float4 b) {
    return float4 { a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w };
}

GDN_DEVICE void gdn_shared_hk(gdn_shared_smem &m, uint32_t rows, const float *state) {
    const uint32_t leg = threadIdx.x / 32, column = 4 * gdn_lane(), first = leg * GDN_SHARED_LEG;
    GDN_NO_UNROLL
    for (uint32_t two = 0; two < rows; two += 2) {
        float4 held[2][GDN_SHARED_GROUPS];
        GDN_UNROLL
        for (uint32_t n = 0; n < GDN_SHARED_GROUPS; n++) {
            gdn_shared_four x;
            x.load(state + (first + 4 * n) * GDN_STEP_DIM + column);
            GDN_UNROLL
            for (uint32_t t = 0; t < 2; t++) held[t][n] = x.sum(gdn_ld16f(m.k[two + t] + first + 4 * n));
        }
        float4 sum[2] = {};
        if (leg > 0) {
            gdn_bar_sync(3 * (two / 2) + leg, 64);
            GDN_UNROLL
            for (uint32_t t = 0; t < 2; t++) sum[t] = gdn_ld16f(m.hk[two + t] + column);
        }
        GDN_UNROLL
        for (uint32_t n = 0; n < GDN_SHARED_GROUPS; n++) GDN_UNROLL
        for (uint32_t t = 0; t < 2; t++) sum[t] = gdn_shared_add(sum[t], held[t][n]);
        GDN_UNROLL
        for (uint32_t t = 0; t < 2; t++) gdn_st16f(m.hk[two + t] + column, sum[t]);
        if (leg < 3) gdn_bar_arrive(3 * (two / 2) + leg + 1, 64);
    }
    gdn_sync_block();
}

/* vn of the thread's column. */
template <class SEEN> GDN_DEVICE void gdn_shared_values(gdn_shared_smem &m, uint32_t rows, SEEN seen) {
    const uint32_t i = threadIdx.x;
    float vn[GDN_SHARED_ROWS];
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
        if (t >= rows) break;
        float c = m.hk[t][i];
        if (t > 0) c = m.lead[t] * c;
        GDN_UNROLL
        for (uint32_t s = 0; s < t; s++) c += m.mix[gdn_shared_pair(t, s)] * vn[s];
        vn[t] = (m.vn[t][i] - m.g[t] * c) * m.b[t];
        m.vn[t][i] = vn[t];
        seen.value(t, i, vn[t]);
    }
    gdn_sync_block();
}

/* Here a lane has eight columns, four and four, and half of a warp each second group of four k. */
GDN_DEVICE void gdn_shared_out(gdn_shared_smem &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, float *state) {
    enum : uint32_t { FAR = GDN_STEP_DIM / 2 };
    const uint32_t i = threadIdx.x, column = 4 * (i % 16), first = i / 32 * GDN_SHARED_LEG + i / 16 % 2 * 4;
    float4 vn[GDN_SHARED_ROWS][2];
    float g[GDN_SHARED_ROWS], out[GDN_SHARED_ROWS] = {};
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
        vn[t][0] = gdn_ld16f(m.vn[t] + column);
        vn[t][1] = gdn_ld16f(m.vn[t] + column + FAR);
        g[t] = m.g[t];
    }
    GDN_NO_UNROLL
    for (uint32_t n = 0; n < GDN_SHARED_LEG; n += 8) {
        float *const at = state + (first + n) * GDN_STEP_DIM + column;
        gdn_shared_four x, y;
        float4 sum[GDN_SHARED_ROWS][2];
        x.load(at);
        y.load(at + FAR);
        GDN_UNROLL
        for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
            const float4 k = gdn_ld16f(m.k[t] + first + n), q = gdn_ld16f(m.q[t] + first + n);
            x.step(g[t], k, vn[t][0]);
            y.step(g[t], k, vn[t][1]);
            sum[t][0] = x.sum(q);
            sum[t][1] = y.sum(q);
        }
        GDN_UNROLL
        for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++) {
            gdn_st16f(at + t * GDN_STEP_DIM, sum[t][0]);
            gdn_st16f(at + t * GDN_STEP_DIM + FAR, sum[t][1]);
        }
    }
    gdn_sync_block();
    GDN_NO_UNROLL
    for (uint32_t n = 0; n < GDN_STEP_DIM; n += 32) GDN_UNROLL
    for (uint32_t j = 0; j < 32; j++) out[j % 4] += state[(n + j) * GDN_STEP_DIM + i];
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_SHARED_ROWS; t++)
        if (t < rows) a.out[((row + t) * a.nv + head) * GDN_STEP_DIM + i] = gdn_to_bf16(a.scale * out[t]);
}

/* As gdn_step_rows. state: 64 KiB of shared memory. */
template <class SEEN>
GDN_DEVICE void gdn_shared_rows(gdn_shared_smem &m, float *state, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head,
                                const float *in, SEEN seen) {
    const bool comes = gdn_shared_send(m, state, in);
    gdn_shared_begin(m, a, row, rows, head);
    if (threadIdx.x >= 96) gdn_shared_mix(m, threadIdx.x - 96);
    seen.keys(m, rows);
    if (comes) gdn_mbar_wait(m.arrived[threadIdx.x / 32], 0);
    gdn_shared_hk(m, rows, state);
    gdn_shared_values(m, rows, seen);
    gdn_shared_out(m, a, row, rows, head, state);
}
