/* prefill_tiles.h - the register-blocked products of one prefill chunk (formulas: prefill_chunk.c).
 *
 * Each keeps its rows x NV vectors of accumulators from the first product to the last store. `rows`, `d` and `f32` are constants
 * at every call. A row's sums run in ascending order whatever block it falls into, so its bits do not depend on the blocking. */
#ifndef GDN_PREFILL_TILES_H
#define GDN_PREFILL_TILES_H

#include "vmath.h"

enum {
    CHUNK = 32,            /* tokens */
    MR = 6,                /* rows of a register block */
    MR_LAST = CHUNK % MR,  /* rows of the block that fills a chunk up; also the tail's when so few are left */
    NV = VL == 16 ? 4 : 2, /* vectors of a register block */
    TILE = NV * VL         /* value columns */
};

/* Rows lie far apart, so the hardware does not see the next one coming. */
GDN_INLINE void prefetch_row(bool f32, const void *x, uint64_t at, long columns) {
    const long size = f32 ? 4 : 2;
    const char *p = (const char *)x + at * (uint64_t)size;
    for (long i = 0; i < columns * size; i += 64) __builtin_prefetch(p + i, 0, 2);
}

#define EACH_ROW GDN_UNROLL for (int r = 0; r < rows; r++)
#define EACH_VEC GDN_UNROLL for (int j = 0; j < NV; j++)

/* acc[r] += sum_{k<n} a[r*row_step + k*k_step] b[k][TILE] */
GDN_INLINE void mac(int rows, vf acc[MR][NV], const float *a, long row_step, long k_step, const float *b, long n) {
    for (long k = 0; k < n; k++) {
        vf x[NV];
        EACH_VEC x[j] = *(const vf *)(b + k * TILE + j * VL);
        EACH_ROW {
            const vf s = vset(a[r * row_step + k * k_step]);
            EACH_VEC acc[r][j] = vfma(s, x[j], acc[r][j]);
        }
    }
}

/* Rows r0.. of (I + L) U = beta (V - eg K S), given the U rows above; L comes negated. UD = dec U.
 * Rows past the last token (n) have beta 0; they take the last token's v rather than read beyond it. */
typedef struct solve_args {
    const float *K, *S, *L, *beta, *eg, *dec;
    float *U, *UD;
    const void *v; /* row 0 of the chunk, first column of the tile */
    uint64_t v_stride;
    long n;
} solve_args;
GDN_INLINE void solve_rows(int rows, long d, bool f32, const solve_args *p, long r0) {
    vf acc[MR][NV];
    EACH_ROW prefetch_row(f32, p->v, (uint64_t)(r0 + r < p->n ? r0 + r : p->n - 1) * p->v_stride, TILE);
    EACH_ROW EACH_VEC acc[r][j] = vset(0);
    mac(rows, acc, p->K + r0 * d, d, 1, p->S, d);
    EACH_ROW {
        const long i = r0 + r, at = i < p->n ? i : p->n - 1;
        const vf e = vset(-p->eg[i]), b = vset(p->beta[i]);
        EACH_VEC acc[r][j] = b * vfma(e, acc[r][j], vload_act(f32, p->v, (uint64_t)at * p->v_stride + (uint64_t)j * VL));
    }
    mac(rows, acc, p->L + r0 * CHUNK, CHUNK, 1, p->U, r0);
    EACH_ROW {
        GDN_UNROLL for (int above = 0; above < r; above++) {
            const vf s = vset(p->L[(r0 + r) * CHUNK + r0 + above]);
            EACH_VEC acc[r][j] = vfma(s, acc[above][j], acc[r][j]);
        }
        const vf dec = vset(p->dec[r0 + r]);
        EACH_VEC *(vf *)(p->U + (r0 + r) * TILE + j * VL) = acc[r][j];
        EACH_VEC *(vf *)(p->UD + (r0 + r) * TILE + j * VL) = dec * acc[r][j];
    }
}

/* Rows r0.. of O = egs Q S + A U; A holds zeros right of its diagonal up to the end of the row's block. */
typedef struct out_args {
    const float *Q, *S, *A, *egs, *U;
    void *o;
    uint64_t o_stride;
    long n;
} out_args;
GDN_INLINE void out_rows(int rows, long d, bool f32, const out_args *p, long r0) {
    vf acc[MR][NV];
    EACH_ROW EACH_VEC acc[r][j] = vset(0);
    mac(rows, acc, p->Q + r0 * d, d, 1, p->S, d);
    EACH_ROW {
        const vf e = vset(p->egs[r0 + r]);
        EACH_VEC acc[r][j] *= e;
    }
    mac(rows, acc, p->A + r0 * CHUNK, CHUNK, 1, p->U, r0 + rows);
    EACH_ROW if (r0 + r < p->n) {
        EACH_VEC vstore_act(f32, p->o, (uint64_t)(r0 + r) * p->o_stride + (uint64_t)j * VL, acc[r][j]);
    }
}

/* Rows k0.. of S = decay S + K^T UD over n tokens. */
GDN_INLINE void update_rows(int rows, long d, long k0, long n, float decay, const float *K, const float *UD, float *S) {
    vf acc[MR][NV];
    const vf g = vset(decay);
    EACH_ROW EACH_VEC acc[r][j] = g * *(const vf *)(S + (k0 + r) * TILE + j * VL);
    mac(rows, acc, K + k0, 1, d, UD, n);
    EACH_ROW EACH_VEC *(vf *)(S + (k0 + r) * TILE + j * VL) = acc[r][j];
}

/* GRAM_ROWS rows from r0, vecs*VL columns from l0, of KK = K K^T and QK = Q K^T; KT is [d][CHUNK]. */
enum { GRAM_ROWS = VL == 16 ? 4 : 2, GRAM_VECS = VL == 16 ? 2 : 3 };
GDN_INLINE void gram_rows(int vecs, long d, long r0, long l0, const float *K, const float *Q, const float *KT, float *KK, float *QK) {
    enum { rows = GRAM_ROWS };
    vf a[GRAM_ROWS][GRAM_VECS], b[GRAM_ROWS][GRAM_VECS];
    EACH_ROW GDN_UNROLL for (int j = 0; j < vecs; j++) a[r][j] = b[r][j] = vset(0);
    for (long k = 0; k < d; k++) {
        vf x[GRAM_VECS];
        GDN_UNROLL for (int j = 0; j < vecs; j++) x[j] = *(const vf *)(KT + k * CHUNK + l0 + j * VL);
        EACH_ROW {
            const vf s = vset(K[(r0 + r) * d + k]), t = vset(Q[(r0 + r) * d + k]);
            GDN_UNROLL for (int j = 0; j < vecs; j++) {
                a[r][j] = vfma(s, x[j], a[r][j]);
                b[r][j] = vfma(t, x[j], b[r][j]);
            }
        }
    }
    EACH_ROW GDN_UNROLL for (int j = 0; j < vecs; j++) {
        *(vf *)(KK + (r0 + r) * CHUNK + l0 + j * VL) = a[r][j];
        *(vf *)(QK + (r0 + r) * CHUNK + l0 + j * VL) = b[r][j];
    }
}

#endif
