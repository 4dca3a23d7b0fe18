/* decode_k.c - decode, verify and fold of one head, state [K][V] (V fastest): the bit contract.
 *
 *     pass 1   hk_t[v] = sum_j S[j][v] k_t[j]               c_t = lead_t*hk_t + sum_{s<t} mix_ts*vn_s      (row 0: c = hk)
 *              vn_t[v] = (v_t - g_t*c_t) * b_t
 *     pass 2   S[j][v] = g_t*S + k_t[j]*vn_t[v] for t in order;   out_t[v] = scale * sum_j S_t[j][v] q_t[j]
 *
 * Sums over j: from 0, four products added left to right, then that sum to the accumulator. No contraction, and vectors run
 * over v only, so that every instruction set and a GPU without FMA give the same bytes.
 *
 * Both passes walk blocks of whole state rows; the accumulators are a row that stays in L1, so no instruction set runs out of
 * registers. Pass 2 takes a block through all rows t while it is in L1. Between the passes a head (64 KiB) waits in L2, and
 * all through both of them the next head is asked for, line after line: that is what keeps memory busy while this computes. */
#include "isa.h"
#include "step.h"

/* Rows of a block (as many as leave room for the broadcast k and q in registers), and how many of every 8 rows of the next
 * head are asked for in pass 1; the others in pass 2. */
#if VL == 16
enum { DOT_ROWS = 8, STEP_ROWS = 8, EARLY = 4 };
#else
enum { DOT_ROWS = 8, STEP_ROWS = 4, EARLY = 2 };
#endif
enum { LATE = (8 - EARLY) * STEP_ROWS / 8 }; /* rows a block of pass 2 */

GDN_INLINE vf sum4(const vf *p) {
    return ((p[0] + p[1]) + p[2]) + p[3];
}

/* Asks L2 for the part of `rows` dense rows that falls to vector v of a pass over a row. */
GDN_INLINE void fetch(const float *next, int rows, int v) {
    for (int i = 0; i < rows * VL; i += 16) __builtin_prefetch(next + v * rows + i, 0, 2);
}

/* acc += block^T k; next: rows to fetch meanwhile (EARLY of them), or NULL */
GDN_INLINE void dot_block(const float *s, ptrdiff_t pitch, const float *k, float *restrict acc, int dim, const float *next) {
    vf kb[DOT_ROWS];
    for (int i = 0; i < DOT_ROWS; i++) kb[i] = vset(k[i]);
    for (int v = 0; v < dim; v += VL) {
        vf a = vload(acc + v), p[DOT_ROWS];
        if (next) fetch(next, EARLY, v);
        for (int i = 0; i < DOT_ROWS; i++) p[i] = vload(s + i * pitch + v) * kb[i];
        for (int i = 0; i < DOT_ROWS; i += 4) a += sum4(p + i);
        vstore(acc + v, a);
    }
}

/* dst = g*src + k vn^T, acc += dst^T q; dst may be src; next: LATE rows */
GDN_INLINE void step_block(const float *src, ptrdiff_t pitch, float *dst, float g, const float *k, const float *q, const float *restrict vn,
                           float *restrict acc, int dim, const float *next) {
    const vf gb = vset(g);
    vf kb[STEP_ROWS], qb[STEP_ROWS];
    for (int i = 0; i < STEP_ROWS; i++) kb[i] = vset(k[i]), qb[i] = vset(q[i]);
    for (int v = 0; v < dim; v += VL) {
        const vf n = vload(vn + v);
        if (next) fetch(next, LATE, v);
        vf a = vload(acc + v), x[STEP_ROWS];
        for (int i = 0; i < STEP_ROWS; i++) x[i] = gb * vload(src + i * pitch + v) + kb[i] * n;
        for (int i = 0; i < STEP_ROWS; i++) {
            vstore(dst + i * dim + v, x[i]);
            x[i] *= qb[i];
        }
        for (int i = 0; i < STEP_ROWS; i += 4) a += sum4(x + i);
        vstore(acc + v, a);
    }
}

/* hk of row t is in out; vn_t = (v - g*c)*b */
GDN_INLINE void value_row(gdn__step *u, uint32_t t, int dim) {
    const vf g = vset(u->g[t]), b = vset(u->b[t]);
    for (int v = 0; v < dim; v += VL) {
        vf c = vload(u->out[t] + v);
        if (t > 0) {
            c = vset(u->lead[t]) * c;
            for (uint32_t s = 0; s < t; s++) c = c + vset(u->mix[t][s]) * vload(u->vn[s] + v);
        }
        vstore(u->vn[t] + v, (vload(u->v[t] + v) - g * c) * b);
    }
}

GDN_INLINE void clear_rows(gdn__step *u, uint32_t rows, int dim) {
    for (uint32_t t = 0; t < rows; t++)
        for (int v = 0; v < dim; v += VL) vstore(u->out[t] + v, (vf) { 0 });
}

GDN_INLINE void rows_of(gdn__step *u, uint32_t rows, int dim) {
    _Alignas(64) float spare[STEP_ROWS * GDN__STEP_DIM]; /* a block whose state is not kept */

    clear_rows(u, rows, dim);
    for (int j = 0; j < dim; j += DOT_ROWS) {
        const float *const from = u->src + j * u->src_pitch, *const next = u->next ? u->next + j / DOT_ROWS * EARLY * dim : NULL;
        for (uint32_t t = 0; t < rows; t++) dot_block(from, u->src_pitch, u->k[t] + j, u->out[t], dim, t == 0 ? next : NULL);
    }
    for (uint32_t t = 0; t < rows; t++) value_row(u, t, dim);

    clear_rows(u, rows, dim);
    for (int j = 0; j < dim; j += STEP_ROWS) {
        const float *from = u->src + j * u->src_pitch, *const next =
                                                           u->next ? u->next + (dim / 8 * EARLY + j / STEP_ROWS * LATE) * dim : NULL;
        ptrdiff_t pitch = u->src_pitch;
        for (uint32_t t = 0; t < rows; t++) {
            float *const to = u->after[t] ? u->after[t] + j * dim : spare;
            step_block(from, pitch, to, u->g[t], u->k[t] + j, u->q[t] + j, u->vn[t], u->out[t], dim, t == 0 ? next : NULL);
            from = to;
            pitch = dim;
        }
    }
    for (uint32_t t = 0; t < rows; t++)
        for (int v = 0; v < dim; v += VL) vstore(u->out[t] + v, vset(u->scale) * vload(u->out[t] + v));
}

static void rows(gdn__step *u) {
    if (u->dim == GDN__STEP_DIM && u->rows == 1)
        rows_of(u, 1, GDN__STEP_DIM);
    else if (u->dim == GDN__STEP_DIM)
        rows_of(u, u->rows, GDN__STEP_DIM);
    else
        rows_of(u, u->rows, 64);
}

/* One read and one write of the state: each element goes through the accepted rows in a register. */
GDN_INLINE void fold_of(const gdn__step *u, uint32_t rows, int dim) {
    for (int j = 0; j < dim; j++)
        for (int v = 0; v < dim; v += VL) {
            vf x = vload(u->src + j * u->src_pitch + v);
            for (uint32_t t = 0; t < rows; t++) x = vset(u->g[t]) * x + vset(u->k[t][j]) * vload(u->vn[t] + v);
            vstore(u->after[0] + j * dim + v, x);
        }
}

static void fold(gdn__step *u) {
    if (u->dim == GDN__STEP_DIM && u->rows == GDN_WOA_ROWS)
        fold_of(u, GDN_WOA_ROWS, GDN__STEP_DIM);
    else
        fold_of(u, u->rows, (int)u->dim);
}

const gdn__step_table GDN_ISA_NAME(gdn__step_k) = { rows, fold };
