/* decode_v.c - decode, verify and fold of one head, state [V][K] (K fastest): the layout for speed on a CPU.
 *
 * A value column S[v] is K contiguous floats, so one pass does all: for t in order
 *
 *     vn = b*(v - g*(S.k));   out = scale*(g*(S.q) + (k.q)*vn);   S = g*S + vn*k
 *
 * Both dots come from the first load, and the column is written from registers. This is the recurrence itself in each row:
 * a token's bytes do not depend on its row, so a verify equals as many decodes. FMAs are used where the machine has them:
 * bytes are promised inside one instruction set (verify, woa and fold against each other), not between them. */
#include "isa.h"
#include "step.h"
#include "vmath.h"

GDN_INLINE float dot(const float *a, const float *b, int dim) {
    vf s = { 0 };
    for (int j = 0; j < dim; j += VL) s = vfma(vload(a + j), vload(b + j), s);
    return vsum(s);
}

/* The update, the same in rows() and fold(). */
GDN_INLINE vf advance(vf s, float g, float vn, vf k) {
    return vfma(vset(vn), k, vset(g) * s);
}

GDN_INLINE void rows_of(gdn__step *u, uint32_t rows, int dim) {
    float kq[GDN_MAX_ROWS];
    for (uint32_t t = 0; t < rows; t++) kq[t] = dot(u->k[t], u->q[t], dim);
    for (int c = 0; c < dim; c++) {
        vf s[GDN__STEP_DIM / VL];
        for (int j = 0; j < dim / VL; j++) s[j] = vload(u->src + c * u->src_pitch + j * VL);
        for (uint32_t t = 0; t < rows; t++) {
            vf k0 = { 0 }, k1 = { 0 }, q0 = { 0 }, q1 = { 0 };
            for (int j = 0; j < dim / VL; j += 2) {
                k0 = vfma(s[j], vload(u->k[t] + j * VL), k0);
                k1 = vfma(s[j + 1], vload(u->k[t] + (j + 1) * VL), k1);
                q0 = vfma(s[j], vload(u->q[t] + j * VL), q0);
                q1 = vfma(s[j + 1], vload(u->q[t] + (j + 1) * VL), q1);
            }
            const float g = u->g[t], vn = (u->v[t][c] - g * vsum(k0 + k1)) * u->b[t];
            u->vn[t][c] = vn;
            u->out[t][c] = u->scale * (g * vsum(q0 + q1) + kq[t] * vn);
            for (int j = 0; j < dim / VL; j++) s[j] = advance(s[j], g, vn, vload(u->k[t] + j * VL));
            if (u->after[t])
                for (int j = 0; j < dim / VL; j++) vstore(u->after[t] + c * dim + j * VL, s[j]);
        }
    }
}

static void rows(gdn__step *u) {
    if (u->dim == GDN__STEP_DIM && u->rows == 1)
        rows_of(u, 1, GDN__STEP_DIM);
    else if (u->dim == GDN__STEP_DIM)
        rows_of(u, u->rows, GDN__STEP_DIM);
    else
        rows_of(u, u->rows, 64);
}

static void fold(gdn__step *u) {
    const int dim = (int)u->dim;
    for (int c = 0; c < dim; c++)
        for (int j = 0; j < dim; j += VL) {
            vf s = vload(u->src + c * u->src_pitch + j);
            for (uint32_t t = 0; t < u->rows; t++) s = advance(s, u->g[t], u->vn[t][c], vload(u->k[t] + j));
            vstore(u->after[0] + c * dim + j, s);
        }
}

const gdn__step_table GDN_ISA_NAME(gdn__step_v) = { rows, fold };
