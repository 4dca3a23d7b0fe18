/* gdn_wn.cuh - what the two kernels of the fast prefill by W and N (gated_delta_rule_fast_wn.cu) share: the scratch between them. Chunks of
 * 64 tokens, k_dim = v_dim = 128. A chunk's row among all chunks is gdn_find_sequence's.
 *
 * Scratch, tiles of f16 in the byte order of the 128-byte swizzle (panels of 64 columns), so that a tile is one plain bulk copy:
 *   (chunk row * nk + key head)    K, Q     [64 tokens][128]   16,384 bytes each
 *   (chunk row * nv + value head)  W        [64 tokens][128]   16,384 bytes: W[l] = beta_l e^(gc_last - gc_l) sum_i T[i][l] k_i
 *                                  N        [64][64]            8,192 bytes: N[i][l] = scale beta_l e^(gc_i - gc_l) (P T)[i][l], l <= i
 *                                  scalars  68 f32: e^gc in the order of `spot`, and e^gc_last, which stands four times
 * T = (I + L)^-1 with L[i][l] = beta_i <k_i, k_l>, l < i, and P[i][l] = <q_i, k_l>, l <= i: without decays, which W and N have.
 * gc: running sum of ln(decay) inside the chunk. Rows past the last token are zero (their decay is 1), so nothing of theirs remains. */
#pragma once
#include "gdn_fast_tiles.cuh"

namespace gdn_wn {
using gdn_fast::CHUNK;
using gdn_fast::DIM;
using gdn_fast::get_pair;
using gdn_fast::MAX_RATIO;
using gdn_fast::PANEL;
using gdn_fast::place;
using gdn_fast::put_pair;
using gdn_fast::spot;
using gdn_fast::TILE;
enum {
    SCALARS = CHUNK + 4, /* floats */
    AT_DECAY = 0,
    AT_ALL = CHUNK,
};

struct scratch {
    unsigned char *k, *q, *w, *n;
    float *scalars;
};
} // namespace gdn_wn
