/* gdn_step_state.cuh - one head's state in the registers of a block, for gdn_step.cuh. Threads below DIM take part, whole warps.
 *
 *     load(in)                  in NULL: zeros
 *     dot(k)                    sum_j S[j][v] k[j] for column v = threadIdx.x
 *     step(g, vn, k, q, to)     S = g S + k vn^T, written to `to` unless it is NULL; sum_j S[j][v] q[j]
 *
 * STREAM: the state is first to leave the caches.
 * k and q are in shared memory; g is the head's, vn the column's. Sums in groups of four, as gdn_step.cuh says.
 *   [K][V]: a thread holds its column, all k; rows go through memory 128 bytes a warp.
 *   [V][K]: a lane holds four k of each of its warp's 32 columns (two columns side by side when K = 64), 16 bytes an access; the
 *   groups' sums change hands through shared memory, and each lane adds those of its column. */
#pragma once
#include "gdn_rule.cuh"

/* ((a.x b.x + a.y b.y) + a.z b.z) + a.w b.w */
GDN_DEVICE float gdn_group_sum(float4 a, float4 b) {
    return ((a.x * b.x + a.y * b.y) + a.z * b.z) + a.w * b.w;
}
GDN_DEVICE float4 gdn_group_step(float g, float4 s, float4 k, float vn) {
    return float4 { g * s.x + k.x * vn, g * s.y + k.y * vn, g * s.z + k.z * vn, g * s.w + k.w * vn };
}

template <bool STREAM> GDN_DEVICE float gdn_ld4f_as(const float *p) {
    return STREAM ? gdn_ld4f_stream(p) : gdn_ld4f_global(p);
}
template <bool STREAM> GDN_DEVICE void gdn_st4f_as(float *p, float x) {
    STREAM ? gdn_st4f_stream(p, x) : gdn_st4f_global(p, x);
}

#ifndef GDN_STATE_VK
struct gdn_state_smem {};

template <uint32_t DIM, bool STREAM> struct gdn_state {
    float s[DIM];
    GDN_METHOD gdn_state(gdn_state_smem &) {}

    GDN_METHOD void load(const float *in) {
        const float *const p = gdn_opaque(in + threadIdx.x);
        GDN_UNROLL
        for (uint32_t j = 0; j < DIM; j++) s[j] = in ? gdn_ld4f_as<STREAM>(p + j * DIM) : 0.0f;
    }
    GDN_METHOD float4 group(uint32_t j) const { return float4 { s[j], s[j + 1], s[j + 2], s[j + 3] }; }
    GDN_METHOD float dot(const float *k) const {
        float sum = 0;
        GDN_UNROLL
        for (uint32_t j = 0; j < DIM; j += 4) sum += gdn_group_sum(group(j), gdn_ld16f(k + j));
        return sum;
    }
    GDN_METHOD float step(float g, float vn, const float *k, const float *q, float *to) {
        float *const p = gdn_opaque(to + threadIdx.x);
        float sum = 0;
        GDN_UNROLL
        for (uint32_t j = 0; j < DIM; j += 4) {
            const float4 x = gdn_group_step(g, group(j), gdn_ld16f(k + j), vn);
            s[j] = x.x, s[j + 1] = x.y, s[j + 2] = x.z, s[j + 3] = x.w;
            if (to) {
                gdn_st4f_as<STREAM>(p + j * DIM, x.x);
                gdn_st4f_as<STREAM>(p + (j + 1) * DIM, x.y);
                gdn_st4f_as<STREAM>(p + (j + 2) * DIM, x.z);
                gdn_st4f_as<STREAM>(p + (j + 3) * DIM, x.w);
            }
            sum += gdn_group_sum(x, gdn_ld16f(q + j));
        }
        return sum;
    }
};
#else
enum { GDN_STATE_PITCH = 33 }; /* of a column's sums: odd, so that neither side meets a bank twice */
struct gdn_state_smem {
    float sums[4][32 * GDN_STATE_PITCH];
};

template <uint32_t DIM, bool STREAM> struct gdn_state {
    enum : uint32_t { GROUPS = DIM / 4, BESIDE = 32 / GROUPS };
    float4 s[GROUPS]; /* of columns BESIDE*i + lane/GROUPS of the warp, k = 4*(lane % GROUPS) ... */
    float *mine;      /* the warp's sums */
    GDN_METHOD gdn_state(gdn_state_smem &m) : mine(m.sums[threadIdx.x / 32]) {}

    GDN_METHOD static uint64_t place() { return threadIdx.x / 32 * 32 * DIM + 4 * gdn_lane(); }
    GDN_METHOD static float4 ld4x4(const float *p) {
        return float4 { gdn_ld4f_as<STREAM>(p), gdn_ld4f_as<STREAM>(p + 1), gdn_ld4f_as<STREAM>(p + 2), gdn_ld4f_as<STREAM>(p + 3) };
    }
    GDN_METHOD static void st4x4(float *p, float4 x) {
        gdn_st4f_as<STREAM>(p, x.x), gdn_st4f_as<STREAM>(p + 1, x.y), gdn_st4f_as<STREAM>(p + 2, x.z), gdn_st4f_as<STREAM>(p + 3, x.w);
    }
    GDN_METHOD static uint32_t four() { return 4 * (gdn_lane() % GROUPS); }
    GDN_METHOD void load(const float *in) {
        const float *const p = gdn_opaque(in + place());
        const bool wide = (uint64_t)in % 16 == 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < GROUPS; i++) {
            if (!in)
                s[i] = float4 { 0, 0, 0, 0 };
            else if (wide)
                s[i] = STREAM ? gdn_ld16f_stream(p + 128 * i) : gdn_ld16f_global(p + 128 * i);
            else
                s[i] = ld4x4(p + 128 * i);
        }
    }
    GDN_METHOD void put(uint32_t i, float sum) const {
        mine[(BESIDE * i + gdn_lane() / GROUPS) * GDN_STATE_PITCH + gdn_lane() % GROUPS] = sum;
    }
    GDN_METHOD float total() const {
        float sum = 0;
        gdn_sync_warp();
        GDN_UNROLL
        for (uint32_t i = 0; i < GROUPS; i++) sum += mine[gdn_lane() * GDN_STATE_PITCH + i];
        gdn_sync_warp();
        return sum;
    }
    GDN_METHOD float dot(const float *k) const {
        const float4 k4 = gdn_ld16f(k + four());
        GDN_UNROLL
        for (uint32_t i = 0; i < GROUPS; i++) put(i, gdn_group_sum(s[i], k4));
        return total();
    }
    GDN_METHOD float step(float g, float vn, const float *k, const float *q, float *to) {
        const float4 k4 = gdn_ld16f(k + four()), q4 = gdn_ld16f(q + four());
        float *const p = gdn_opaque(to + place());
        const bool wide = (uint64_t)to % 16 == 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < GROUPS; i++) {
            s[i] = gdn_group_step(g, s[i], k4, __shfl_sync(GDN_FULL_MASK, vn, (int)(BESIDE * i + gdn_lane() / GROUPS)));
            if (to && wide) {
                STREAM ? gdn_st16f_stream(p + 128 * i, s[i]) : gdn_st16f_global(p + 128 * i, s[i]);
            } else if (to) {
                st4x4(p + 128 * i, s[i]);
            }
            put(i, gdn_group_sum(s[i], q4));
        }
        return total();
    }
};
#endif
