/* decode_v.c - decode, verify and fold of one head, state [V][K] (K fastest): the layout for speed on a CPU.
 *
 * A value column S[v] is K contiguous floats and needs nothing of the others, so one pass does all: for t in order
 *
 *     vn = b*(v - g*(S.k));   out = scale*(g*(S.q) + (k.q)*vn);   S = g*S + vn*k
 *
 * Columns go in blocks of VL/2: their VL dots are reduced to one vector together, the update reads the block from L1, and a
 * block goes through all rows while it is there. This is the recurrence itself in each row: a token's bytes do not depend
 * on its row, and a verify equals as many decodes. FMAs are used where the machine has them: bytes are promised inside one
 * instruction set (decode, verify, woa and fold against each other), not between them. */
#include "isa.h"
#include "step.h"
#include "vmath.h"

enum { COLS = VL / 2 };
enum { AHEAD = VL == 16 ? 2 * COLS : 0 }; /* columns to ask for in advance, 8 KiB; slower vectors leave it to the hardware */

/* Lane p of the result is the sum of the lanes of r[p]: each step adds neighbours s apart and keeps two vectors in one. */
#define FOLD_BY(s)                                                                                                              \
    GDN_UNROLL for (int i = 0; i < VL; i += 2 * (s)) r[i] = __builtin_shufflevector(r[i], r[i + (s)], GDN_LANES_(GDN_LO_, s)) + \
                                                            __builtin_shufflevector(r[i], r[i + (s)], GDN_LANES_(GDN_HI_, s));
GDN_INLINE vf sums(vf r[VL]) {
    FOLD_BY(1)
    FOLD_BY(2)
#if VL >= 8
    FOLD_BY(4)
#endif
#if VL >= 16
    FOLD_BY(8)
#endif
    return r[0];
}

GDN_INLINE float dot(const float *a, const float *b, int dim) {
    vf s = { 0 };
    for (int j = 0; j < dim; j += VL) s = vfma(vload(a + j), vload(b + j), s);
    return vsum(s);
}

/* The update, the same in rows() and fold(). */
GDN_INLINE vf advance(vf s, float g, float vn, vf k) {
    return vfma(vset(vn), k, vset(g) * s);
}

/* Asks for n floats that are wanted soon. Into L2, and spread over the work of a block: both gave the most. */
GDN_INLINE void fetch(const float *p, int n) {
    for (int j = 0; j < n; j += 16) __builtin_prefetch(p + j, 0, 2);
}

/* One row of a block: from (dense, or one column for all: pitch 0) to `to`, which may be the same. more: ask for
 * what is ahead. */
GDN_INLINE void step_block(gdn__step *u, uint32_t t, int c, const float *from, ptrdiff_t pitch, float *to, float kq, int dim,
                           const float *ahead, bool more) {
    const float *const k = u->k[t], *const q = u->q[t];
    float s[VL];
    vf r[VL];
    GDN_UNROLL for (int i = 0; i < COLS; i++) {
        vf sk = { 0 }, sq = { 0 };
        if (more) fetch(ahead + i * dim / 2, dim / 2);
        for (int j = 0; j < dim; j += VL) {
            const vf x = vload(from + i * pitch + j);
            sk = vfma(x, vload(k + j), sk);
            sq = vfma(x, vload(q + j), sq);
        }
        r[i] = sk;
        r[COLS + i] = sq;
    }
    vstore(s, sums(r));
    const float g = u->g[t], b = u->b[t], scale = u->scale;
    float *const vn = u->vn[t] + c, *const out = u->out[t] + c, *const v = u->v[t] + c;
    for (int i = 0; i < COLS; i++) {
        vn[i] = (v[i] - g * s[i]) * b;
        out[i] = scale * (g * s[COLS + i] + kq * vn[i]);
    }
    for (int i = 0; i < COLS; i++) {
        if (more) fetch(ahead + (COLS + i) * dim / 2, dim / 2);
        for (int j = 0; j < dim; j += VL) vstore(to + i * dim + j, advance(vload(from + i * pitch + j), g, vn[i], vload(k + j)));
    }
}

GDN_INLINE void rows_of(gdn__step *u, uint32_t rows, int dim) {
    _Alignas(64) float spare[COLS * GDN__STEP_DIM]; /* a block whose state is not kept */
    float kq[GDN_MAX_ROWS];
    for (uint32_t t = 0; t < rows; t++) kq[t] = dot(u->k[t], u->q[t], dim);
    for (int c = 0; c < dim; c += COLS) {
        const float *from = u->src + c * u->src_pitch;
        ptrdiff_t pitch = u->src_pitch;
        const bool here = c + AHEAD < dim;
        const bool more = AHEAD > 0 && (here || u->next);
        const float *const ahead = here || !more ? from + AHEAD * pitch : u->next + (c + AHEAD - dim) * dim;
        for (uint32_t t = 0; t < rows; t++) {
            float *const to = u->after[t] ? u->after[t] + c * dim : spare;
            step_block(u, t, c, from, pitch, to, kq[t], dim, ahead, t == 0 && more);
            from = to;
            pitch = dim;
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
