/* gdn_fold.cuh - what a write-on-accept verify leaves for its fold, and the fold of one (sequence, value head): blocks of 128 threads.
 *
 * Stash of a sequence, f32: vn[4][nv][128] | g[4][nv], clamped | sk[4][nk][128], k as used. A fold repeats the updates of the accepted
 * rows, S = g_t S + sk_t vn_t for t < na, with the operations and so the bytes of gdn_step_state.cuh. */
#pragma once
#include "gdn_rule.cuh"

enum { GDN_STASH_ROWS = 4, GDN_STASH_DIM = 128 };

struct gdn_stash {
    float *vn, *g, *sk;
};
GDN_DEVICE gdn_stash gdn_stash_of(float *stash, uint64_t row, uint64_t pitch, uint32_t nv) {
    float *const vn = stash + row * pitch, *const g = vn + (uint64_t)GDN_STASH_ROWS * nv * GDN_STASH_DIM;
    return gdn_stash { vn, g, g + GDN_STASH_ROWS * nv };
}
/* Whether a value head is the first of its key head: the one that stashes its k. */
GDN_DEVICE bool gdn_first_of_key_head(uint32_t head, uint32_t nk, uint32_t nv) {
    return GDN_IS_TILED ? head < nk : head % (nv / nk) == 0;
}

#ifndef GDN_FOLD_DEPTH
#define GDN_FOLD_DEPTH 8 /* lines in flight of a warp */
#endif

/* One of the blocks of a head: 1, 2 or 4 share it. */
struct gdn_fold_part {
    uint32_t head, part, parts;
};

/* A line of the state is 128 consecutive f32: a k of [K][V], or a v of [V][K]. The warps of a head's blocks take equal shares. The lane's
 * four elements of a line are neighbours (WIDE), or 32 apart where some address is no multiple of 16 bytes. */
template <bool WIDE> struct gdn_line {
    static GDN_METHOD float4 load(const float *p) {
        if (WIDE) return gdn_ld16f_global(p);
        return float4 { gdn_ld4f_global(p), gdn_ld4f_global(p + 32), gdn_ld4f_global(p + 64), gdn_ld4f_global(p + 96) };
    }
    static GDN_METHOD float4 load_row(const float *p) {
        if (WIDE) return gdn_ld16f_global(p);
        return float4 { p[0], p[32], p[64], p[96] };
    }
    static GDN_METHOD void store(float *p, float4 x) {
        if (WIDE)
            gdn_st16f_global(p, x);
        else
            gdn_st4f_global(p, x.x), gdn_st4f_global(p + 32, x.y), gdn_st4f_global(p + 64, x.z), gdn_st4f_global(p + 96, x.w);
    }
    static GDN_METHOD uint32_t place() { return WIDE ? 4 * gdn_lane() : gdn_lane(); }
};

/* in NULL: from zeros. 1 <= na <= 4. */
template <bool WIDE>
GDN_DEVICE void gdn_fold_lines(const float *in, float *out, const gdn_stash &s, const gdn_fold_part &by, uint32_t nk, uint32_t nv,
                               uint32_t na) {
    typedef gdn_line<WIDE> line;
    const uint32_t lines = 32 / by.parts, first = (4 * by.part + threadIdx.x / 32) * lines, head = by.head;
    const uint32_t at = line::place(), kh = gdn_key_head(head, nk, nv);
    float g[GDN_STASH_ROWS] = {}, a[GDN_STASH_ROWS] = {}; /* a: what goes with line first + lane; b: with the lane's four of a line */
    float4 x[GDN_FOLD_DEPTH], b[GDN_STASH_ROWS] = {};
    GDN_UNROLL
    for (uint32_t t = 0; t < GDN_STASH_ROWS; t++)
        if (t < na) {
            const float *const vn = s.vn + (t * nv + head) * GDN_STASH_DIM, *const sk = s.sk + (t * nk + kh) * GDN_STASH_DIM;
#ifdef GDN_STATE_VK
            a[t] = vn[first + gdn_lane() % lines];
            b[t] = line::load_row(sk + at);
#else
            a[t] = sk[first + gdn_lane() % lines];
            b[t] = line::load_row(vn + at);
#endif
            g[t] = s.g[t * nv + head];
        }
    GDN_NO_UNROLL
    for (uint32_t from = 0; from < lines; from += GDN_FOLD_DEPTH) {
        const float *const p = gdn_opaque(in + (first + from) * GDN_STASH_DIM + at);
        float *const to = gdn_opaque(out + (first + from) * GDN_STASH_DIM + at);
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_FOLD_DEPTH; i++) x[i] = in ? line::load(p + i * GDN_STASH_DIM) : float4 { 0, 0, 0, 0 };
        GDN_UNROLL
        for (uint32_t t = 0; t < GDN_STASH_ROWS; t++) {
            if (t >= na) break;
            GDN_UNROLL
            for (uint32_t i = 0; i < GDN_FOLD_DEPTH; i++) {
                const float k = __shfl_sync(GDN_FULL_MASK, a[t], (int)(from + i));
                x[i] = float4 { g[t] * x[i].x + k * b[t].x, g[t] * x[i].y + k * b[t].y, g[t] * x[i].z + k * b[t].z,
                                g[t] * x[i].w + k * b[t].w };
            }
        }
        GDN_UNROLL
        for (uint32_t i = 0; i < GDN_FOLD_DEPTH; i++) line::store(to + i * GDN_STASH_DIM, x[i]);
    }
}
GDN_DEVICE void gdn_fold_stash(const float *in, float *out, const gdn_stash &s, const gdn_fold_part &by, uint32_t nk, uint32_t nv,
                               uint32_t na) {
    if ((((uint64_t)in | (uint64_t)out | (uint64_t)s.vn | (uint64_t)s.sk) & 15) == 0)
        gdn_fold_lines<true>(in, out, s, by, nk, nv, na);
    else
        gdn_fold_lines<false>(in, out, s, by, nk, nv, na);
}

/* `elements` f32, a multiple of 4096, by 128 threads. */
GDN_DEVICE void gdn_fold_copy(const float *from, float *to, uint32_t elements) {
    enum { DEPTH = 8 };
    if (from == to) return;
    if ((((uint64_t)from | (uint64_t)to) & 15) == 0) {
        GDN_NO_UNROLL
        for (uint32_t e = 4 * threadIdx.x; e < elements; e += 512 * DEPTH) {
            float4 x[DEPTH];
            GDN_UNROLL
            for (uint32_t i = 0; i < DEPTH; i++) x[i] = gdn_ld16f_global(from + e + 512 * i);
            GDN_UNROLL
            for (uint32_t i = 0; i < DEPTH; i++) gdn_st16f_global(to + e + 512 * i, x[i]);
        }
    } else {
        GDN_NO_UNROLL
        for (uint32_t e = threadIdx.x; e < elements; e += 128 * DEPTH) {
            float x[DEPTH];
            GDN_UNROLL
            for (uint32_t i = 0; i < DEPTH; i++) x[i] = gdn_ld4f_global(from + e + 128 * i);
            GDN_UNROLL
            for (uint32_t i = 0; i < DEPTH; i++) gdn_st4f_global(to + e + 128 * i, x[i]);
        }
    }
}
