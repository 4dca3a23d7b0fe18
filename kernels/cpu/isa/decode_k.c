/* decode_k.c - decode, verify and fold of one head, state [K][V] (V fastest): the bit contract.
 *
 *     pass 1   hk_t[v] = sum_j S[j][v] k_t[j]               c_t = lead_t*hk_t + sum_{s<t} mix_ts*vn_s      (row 0: c = hk)
 *              vn_t[v] = (v_t - g_t*c_t) * b_t
 *     pass 2   S[j][v] = g_t*S + k_t[j]*vn_t[v] for t in order;   out_t[v] = scale * sum_j S_t[j][v] q_t[j]
 *
 * Sums over j: from 0, four products added left to right, then that sum to the accumulator. No contraction, and vectors run
 * over v only, so that every instruction set and a GPU without FMA give the same bytes.
 *
 * Both passes take blocks of whole state rows (decode_k_pass.h): the head at once for one row t, and otherwise few enough that
 * all rows t find them in L1. Between the passes a head (64 KiB) waits in L2. */
#include "decode_k_pass.h"
#include "isa.h"
#include "step.h"

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

/* block: state rows at a time, a constant */
GDN_INLINE void rows_of(gdn__step *u, uint32_t rows, int dim, int block) {
    _Alignas(64) float spare[BLOCK * GDN__STEP_DIM]; /* a block whose state is not kept */

    clear_rows(u, rows, dim);
    for (int j = 0; j < dim; j += block)
        for (uint32_t t = 0; t < rows; t++) dot_block(u->src + j * u->src_pitch, u->src_pitch, u->k[t] + j, u->out[t], block, dim);
    for (uint32_t t = 0; t < rows; t++) value_row(u, t, dim);

    clear_rows(u, rows, dim);
    for (int j = 0; j < dim; j += block) {
        const float *from = u->src + j * u->src_pitch;
        ptrdiff_t pitch = u->src_pitch;
        for (uint32_t t = 0; t < rows; t++) {
            float *const to = u->after[t] ? u->after[t] + j * dim : spare;
            step_block(from, pitch, to, u->g[t], u->k[t] + j, u->q[t] + j, u->vn[t], u->out[t], block, dim,
                       t == 0 && u->next ? u->next + j * dim : NULL);
            from = to;
            pitch = dim;
        }
    }
    for (uint32_t t = 0; t < rows; t++)
        for (int v = 0; v < dim; v += VL) vstore(u->out[t] + v, vset(u->scale) * vload(u->out[t] + v));
}

static void rows(gdn__step *u) {
    if (u->dim == GDN__STEP_DIM && u->rows == 1 && u->after[0])
        rows_of(u, 1, GDN__STEP_DIM, HEAD_BLOCK);
    else if (u->dim == GDN__STEP_DIM)
        rows_of(u, u->rows, GDN__STEP_DIM, BLOCK);
    else
        rows_of(u, u->rows, 64, BLOCK);
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
