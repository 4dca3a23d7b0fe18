/* prefill_pack.h - moves rows and states between the caller's layouts and those that the prefill kernels read.
 *
 * K, Q [CHUNK][d] and KT [d][CHUNK]: f32, normalised if asked. State tile: [k_dim][TILE], value columns tile*TILE .. of a head.
 * Copies are exact. */
#ifndef GDN_PREFILL_PACK_H
#define GDN_PREFILL_PACK_H

#include "prefill_tiles.h"

/* One row; with l2norm x / sqrt(sum x^2 + 1e-6). */
GDN_INLINE void pack_row(long d, bool f32, bool l2norm, const void *x, uint64_t at, float *to) {
    vf sum = vset(0);
    for (long k = 0; k < d; k += VL) {
        const vf e = vload_act(f32, x, at + (uint64_t)k);
        *(vf *)(to + k) = e;
        sum = vfma(e, e, sum);
    }
    if (!l2norm) return;
    const vf norm = vset(1.f / __builtin_sqrtf(vsum(sum) + 1e-6f));
    for (long k = 0; k < d; k += VL) *(vf *)(to + k) *= norm;
}

/* n rows of q or k; the rows up to the next multiple of a vector and of a register block are zeroed. `next` rows of the chunk
 * that follows are fetched. */
GDN_INLINE void pack_rows(long d, bool f32, bool l2norm, const void *x, uint64_t at, uint64_t stride, long n, long next, float *to) {
    for (long i = 0; i < n; i++) {
        if (i < next) prefetch_row(f32, x, at + (uint64_t)(i + CHUNK) * stride, d);
        pack_row(d, f32, l2norm, x, at + (uint64_t)i * stride, to + i * d);
    }
    const long end = n + 16 < CHUNK ? n + 16 : CHUNK;
    if (end > n) memset(to + n * d, 0, (size_t)((end - n) * d) * sizeof *to);
}

GDN_INLINE void transpose_keys(long d, long n, const float *K, float *KT) {
    for (long i = 0; i < n; i += VL)
        for (long k = 0; k < d; k += VL) {
            vf r[VL];
            GDN_UNROLL for (int j = 0; j < VL; j++) r[j] = *(const vf *)(K + (i + j) * d + k);
            vtranspose(r);
            GDN_UNROLL for (int j = 0; j < VL; j++) * (vf *)(KT + (k + j) * CHUNK + i) = r[j];
        }
}

/* Tile `tile` of a head's state; head NULL: zeros. */
GDN_INLINE void pack_state(long d, bool v_major, const float *head, long tile, float *S) {
    if (!head) {
        memset(S, 0, (size_t)(d * TILE) * sizeof *S);
    } else if (!v_major) {
        for (long k = 0; k < d; k++) EACH_VEC *(vf *)(S + k * TILE + j * VL) = vload(head + k * d + tile * TILE + j * VL);
    } else {
        for (long c = 0; c < TILE; c += VL)
            for (long k = 0; k < d; k += VL) {
                vf r[VL];
                GDN_UNROLL for (int j = 0; j < VL; j++) r[j] = vload(head + (tile * TILE + c + j) * d + k);
                vtranspose(r);
                GDN_UNROLL for (int j = 0; j < VL; j++) * (vf *)(S + (k + j) * TILE + c) = r[j];
            }
    }
}
GDN_INLINE void unpack_state(long d, bool v_major, const float *S, long tile, float *head) {
    if (!v_major) {
        for (long k = 0; k < d; k++) EACH_VEC vstore(head + k * d + tile * TILE + j * VL, *(const vf *)(S + k * TILE + j * VL));
        return;
    }
    for (long c = 0; c < TILE; c += VL)
        for (long k = 0; k < d; k += VL) {
            vf r[VL];
            GDN_UNROLL for (int j = 0; j < VL; j++) r[j] = *(const vf *)(S + (k + j) * TILE + c);
            vtranspose(r);
            GDN_UNROLL for (int j = 0; j < VL; j++) vstore(head + (tile * TILE + c + j) * d + k, r[j]);
        }
}

#endif
