/* decode_k_pass.h - the two passes of decode_k.c over some rows of a state [K][V], in two forms with the same bytes.
 *
 *     dot_block    acc += S^T k
 *     step_block   S = g*S + k vn^T;   acc += S^T q
 *
 * AVX2 and AVX-512 walk the state in the order of its addresses, whole rows: a machine's own prefetchers follow that and
 * nothing else, and they alone keep memory busy in pass 1. Narrower registers have more arithmetic than memory to wait for:
 * they take BLOCK rows side by side, so that nothing but the accumulators' row goes through L1. */
#ifndef GDN_DECODE_K_PASS_H
#define GDN_DECODE_K_PASS_H

#include "isa.h"
#include "vmath.h"

#include <stdatomic.h>
#include <stddef.h>

enum { BLOCK = 8 }; /* rows of 128 floats that fill a quarter of an L1 at most */

#if VL >= 8
enum { ROW = 128 / VL };   /* vectors of a row: accumulators, in registers with AVX-512 */
enum { HEAD_BLOCK = 128 }; /* rows a call when the head goes through one token          */
enum { FETCH = 0x13 };     /* lines 0, 1 and 4 of 8 */

/* Pass 2 reads from L2 and leaves memory idle, so it asks for the next head, but for three lines of eight only: those are what
 * the prefetchers need to be ahead when pass 1 gets there. With more of them the dirty lines on their way out are in the way. */
GDN_INLINE void fetch(const float *next, int at) {
    if (at % 16 == 0 && (FETCH >> at / 16 % 8 & 1)) __builtin_prefetch(next + at, 0, 2);
}

/* Between rows; without it compilers interleave them. */
GDN_INLINE void in_order(void) {
    atomic_signal_fence(memory_order_seq_cst);
}

GDN_INLINE void dot_block(const float *s, ptrdiff_t pitch, const float *k, float *restrict acc, int rows, int dim) {
    const int n = dim / VL;
    vf a[ROW], p[ROW];
    GDN_UNROLL for (int i = 0; i < n; i++) a[i] = vload(acc + i * VL);
    for (int j = 0; j < rows; j += 4) {
        GDN_UNROLL for (int r = 0; r < 4; r++) {
            const float *const row = s + (j + r) * pitch;
            const vf kb = vset(k[j + r]);
            GDN_UNROLL for (int i = 0; i < n; i++) {
                const vf x = vload(row + i * VL) * kb;
                p[i] = r > 0 ? (vf)(p[i] + x) : x;
            }
            in_order();
        }
        GDN_UNROLL for (int i = 0; i < n; i++) a[i] += p[i];
    }
    GDN_UNROLL for (int i = 0; i < n; i++) vstore(acc + i * VL, a[i]);
}

/* dst may be src; next: as many rows to fetch meanwhile, or NULL */
GDN_INLINE void step_block(const float *src, ptrdiff_t pitch, float *dst, float g, const float *k, const float *q, const float *restrict vn,
                           float *restrict acc, int rows, int dim, const float *next) {
    const int n = dim / VL;
    const vf gb = vset(g);
    vf a[ROW], p[ROW];
    GDN_UNROLL for (int i = 0; i < n; i++) a[i] = vload(acc + i * VL);
    for (int j = 0; j < rows; j += 4) {
        GDN_UNROLL for (int r = 0; r < 4; r++) {
            const float *const from = src + (j + r) * pitch;
            float *const to = dst + (j + r) * dim;
            const vf kb = vset(k[j + r]), qb = vset(q[j + r]);
            GDN_UNROLL for (int i = 0; i < n; i++) {
                if (next) fetch(next + (j + r) * dim, i * VL);
                vf x = gb * vload(from + i * VL) + kb * vload(vn + i * VL);
                vstore(to + i * VL, x);
                x *= qb;
                p[i] = r > 0 ? (vf)(p[i] + x) : x;
            }
            in_order();
        }
        GDN_UNROLL for (int i = 0; i < n; i++) a[i] += p[i];
    }
    GDN_UNROLL for (int i = 0; i < n; i++) vstore(acc + i * VL, a[i]);
}

#else
enum { HEAD_BLOCK = BLOCK };

GDN_INLINE vf sum4(const vf *p) {
    return ((p[0] + p[1]) + p[2]) + p[3];
}

GDN_INLINE void dot_block(const float *s, ptrdiff_t pitch, const float *k, float *restrict acc, int rows, int dim) {
    for (int j = 0; j < rows; j += BLOCK) {
        vf kb[BLOCK];
        for (int i = 0; i < BLOCK; i++) kb[i] = vset(k[j + i]);
        for (int v = 0; v < dim; v += VL) {
            vf a = vload(acc + v), p[BLOCK];
            for (int i = 0; i < BLOCK; i++) p[i] = vload(s + (j + i) * pitch + v) * kb[i];
            for (int i = 0; i < BLOCK; i += 4) a += sum4(p + i);
            vstore(acc + v, a);
        }
    }
}

GDN_INLINE void step_block(const float *src, ptrdiff_t pitch, float *dst, float g, const float *k, const float *q, const float *restrict vn,
                           float *restrict acc, int rows, int dim, const float *next) {
    const vf gb = vset(g);
    for (int j = 0; j < rows; j += 4) {
        vf kb[4], qb[4];
        for (int i = 0; i < 4; i++) kb[i] = vset(k[j + i]), qb[i] = vset(q[j + i]);
        for (int v = 0; v < dim; v += VL) {
            vf x[4];
            const vf n = vload(vn + v);
            if (next) __builtin_prefetch(next + j * dim + 4 * v, 0, 2);
            for (int i = 0; i < 4; i++) x[i] = gb * vload(src + (j + i) * pitch + v) + kb[i] * n;
            for (int i = 0; i < 4; i++) {
                vstore(dst + (j + i) * dim + v, x[i]);
                x[i] *= qb[i];
            }
            vstore(acc + v, vload(acc + v) + sum4(x));
        }
    }
}
#endif

#endif
