/* gdn_round_state.cuh - what a thread of gdn_round.cuh has of the state, and its arithmetic: GROUPS tiles of four k, from four(j), by four
 * columns, from columns(j). Sums of four go to shared memory, a row's SUMS apart. */
#pragma once
#include "gdn_verify_split.cuh"

enum { GDN_ROUND_ROWS = 4 };

template <uint32_t COLUMNS, uint32_t GROUPS> struct gdn_round_state {
    enum : uint32_t {
        THREADS = GDN_PART_THREADS * COLUMNS / GROUPS,
        SUMS = 33 * COLUMNS + (COLUMNS == 32 ? 8 : 24) /* a row begins 8 banks behind the one before */
    };
    float4 s[GROUPS][4];
#ifndef GDN_STATE_VK
    static GDN_METHOD uint32_t four(uint32_t j) {
        return threadIdx.x / (COLUMNS / 4) * 4 + j * (GDN_STEP_DIM / GROUPS);
    }
    static GDN_METHOD uint32_t columns(uint32_t) {
        return threadIdx.x % (COLUMNS / 4) * 4;
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return four(0) * GDN_STEP_DIM + slice * COLUMNS + columns(0);
    }
    static GDN_METHOD constexpr uint32_t line(uint32_t j, uint32_t i) {
        return (j * (GDN_STEP_DIM / GROUPS) + i) * GDN_STEP_DIM;
    }
    static GDN_METHOD float sum_of(float a, float b, float c, float d, float4 k) {
        return gdn_group_sum(float4 { a, b, c, d }, k);
    }
    GDN_METHOD float4 dot(uint32_t j, float4 k) const {
        return float4 { sum_of(s[j][0].x, s[j][1].x, s[j][2].x, s[j][3].x, k), sum_of(s[j][0].y, s[j][1].y, s[j][2].y, s[j][3].y, k),
                        sum_of(s[j][0].z, s[j][1].z, s[j][2].z, s[j][3].z, k), sum_of(s[j][0].w, s[j][1].w, s[j][2].w, s[j][3].w, k) };
    }
    static GDN_METHOD float4 mixed(float g, float4 x, float k, float4 vn) {
        return float4 { g * x.x + k * vn.x, g * x.y + k * vn.y, g * x.z + k * vn.z, g * x.w + k * vn.w };
    }
    GDN_METHOD void step(uint32_t j, float g, float4 k, float4 vn) {
        s[j][0] = mixed(g, s[j][0], k.x, vn), s[j][1] = mixed(g, s[j][1], k.y, vn);
        s[j][2] = mixed(g, s[j][2], k.z, vn), s[j][3] = mixed(g, s[j][3], k.w, vn);
    }
    /* [group][column] */
    static GDN_METHOD void keep(float *sums, uint32_t j, float4 x) {
        gdn_st16f(sums + four(j) / 4 * COLUMNS + columns(j), x);
    }
    static GDN_METHOD uint32_t sum_at(uint32_t group, uint32_t column) {
        return group * COLUMNS + column;
    }
#else
    static GDN_METHOD uint32_t four(uint32_t) {
        return 4 * gdn_lane();
    }
    static GDN_METHOD uint32_t columns(uint32_t j) {
        return threadIdx.x / 32 * 4 + j * (COLUMNS / GROUPS);
    }
    static GDN_METHOD uint64_t place(uint32_t slice) {
        return (slice * COLUMNS + columns(0)) * GDN_STEP_DIM + four(0);
    }
    static GDN_METHOD constexpr uint32_t line(uint32_t j, uint32_t i) {
        return (j * (COLUMNS / GROUPS) + i) * GDN_STEP_DIM;
    }
    GDN_METHOD float4 dot(uint32_t j, float4 k) const {
        return float4 { gdn_group_sum(s[j][0], k), gdn_group_sum(s[j][1], k), gdn_group_sum(s[j][2], k), gdn_group_sum(s[j][3], k) };
    }
    GDN_METHOD void step(uint32_t j, float g, float4 k, float4 vn) {
        s[j][0] = gdn_group_step(g, s[j][0], k, vn.x), s[j][1] = gdn_group_step(g, s[j][1], k, vn.y);
        s[j][2] = gdn_group_step(g, s[j][2], k, vn.z), s[j][3] = gdn_group_step(g, s[j][3], k, vn.w);
    }
    /* [column][group], a group more between columns */
    static GDN_METHOD void keep(float *sums, uint32_t j, float4 x) {
        sums += columns(j) * 33 + gdn_lane();
        sums[0] = x.x, sums[33] = x.y, sums[66] = x.z, sums[99] = x.w;
    }
    static GDN_METHOD uint32_t sum_at(uint32_t group, uint32_t column) {
        return column * 33 + group;
    }
#endif
    /* Sends for the thread's elements; in NULL: zeros. */
    static GDN_METHOD void send(float4 (&to)[GROUPS][4][THREADS], const float *in, uint32_t slice) {
        const float *const p = gdn_opaque(in + place(slice));
        const uint32_t i = threadIdx.x;
        if (!in) {
            GDN_UNROLL
            for (uint32_t j = 0; j < 4 * GROUPS; j++) to[j / 4][j % 4][i] = float4 { 0, 0, 0, 0 };
        } else if ((uint64_t)in % 16 == 0) {
            GDN_UNROLL
            for (uint32_t j = 0; j < 4 * GROUPS; j++) gdn_cp_async16(&to[j / 4][j % 4][i], p + line(j / 4, j % 4));
        } else {
            GDN_NO_UNROLL
            for (uint32_t j = 0; j < 16 * GROUPS; j++)
                gdn_cp_async4(reinterpret_cast<float *>(&to[j / 16][j / 4 % 4][i]) + j % 4, p + line(j / 16, j / 4 % 4) + j % 4);
        }
    }
    GDN_METHOD void take(const float4 (&from)[GROUPS][4][THREADS]) {
        GDN_UNROLL
        for (uint32_t j = 0; j < 4 * GROUPS; j++) s[j / 4][j % 4] = from[j / 4][j % 4][threadIdx.x];
    }
    GDN_METHOD void store(float *out, uint32_t slice) const {
        float *const p = gdn_opaque(out + place(slice));
        const bool wide = (uint64_t)out % 16 == 0;
        GDN_UNROLL
        for (uint32_t j = 0; j < 4 * GROUPS; j++) gdn_part_put(p + line(j / 4, j % 4), wide, s[j / 4][j % 4]);
    }

    GDN_METHOD void step(float g, const float *k, const float *vn) {
        GDN_UNROLL
        for (uint32_t j = 0; j < GROUPS; j++) step(j, g, gdn_ld16f(k + four(j)), gdn_ld16f(vn + columns(j)));
    }
    GDN_METHOD void sums_to(float *sums, const float *x) const {
        GDN_UNROLL
        for (uint32_t j = 0; j < GROUPS; j++) keep(sums, j, dot(j, gdn_ld16f(x + four(j))));
    }
    /* The accepted rows of the round before; the sums with this round's keys; its rows, and the sums with their queries. */
    template <class SMEM> GDN_METHOD void fold(const SMEM &m, uint32_t rows) {
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < rows; t++) step(m.fold_g[t], m.fold_k[t], m.fold_vn[t]);
    }
    template <class SMEM> GDN_METHOD void sums_of_keys(SMEM &m, uint32_t rows) const {
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < rows; t++) sums_to(m.sums[t], m.k[t]);
    }
    template <class SMEM> GDN_METHOD void steps(SMEM &m, uint32_t rows) {
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < rows; t++) {
            step(m.g[t], m.k[t], m.vn[t]);
            sums_to(m.sums[t], m.q[t]);
        }
    }
    /* Four columns' 32 sums of four, in order. */
    static GDN_METHOD float4 total(const float *sums, uint32_t column) {
        float4 sum = { 0, 0, 0, 0 };
#ifndef GDN_STATE_VK
        GDN_UNROLL
        for (uint32_t i = 0; i < 32; i++) {
            const float4 x = gdn_ld16f(sums + sum_at(i, column));
#else
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < 32; i++) {
            const float4 x = { sums[sum_at(i, column)], sums[sum_at(i, column + 1)], sums[sum_at(i, column + 2)],
                               sums[sum_at(i, column + 3)] };
#endif
            sum = float4 { sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w };
        }
        return sum;
    }
};
