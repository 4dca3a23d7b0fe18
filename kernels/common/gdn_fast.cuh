/* gdn_fast.cuh - what the two kernels of the fast prefill (gated_delta_rule_fast.cu) share: the scratch between them, and arithmetic on
 * fragments. Chunks of 64 tokens, k_dim = v_dim = 128. A chunk's row among all chunks is gdn_find_sequence's.
 *
 * Scratch, tiles of f16 in the byte order of the 128-byte swizzle (panels of 64 columns), so that a tile is one plain bulk copy:
 *   (chunk row * nk + key head)    K, Q    [64 tokens][128]   16,384 bytes each
 *   (chunk row * nv + value head)  T, P    [64][64]            8,192 bytes each: T = (I + L)^-1, its diagonal is 1;
 *                                          P[i][l] = scale e^(gc_i - gc_l) <q_i, k_l>, l <= i
 *                                  scalars 292 words: f32 beta | beta e^gc | e^(gc_last - gc) | scale e^gc, each in the order of `spot`;
 *                                          f32 e^gc_last, four times; f16 <k_63, k_j> for j < 63, in the order of `tail_at`
 *   words u32: the next unit of work at 0, the next role of a block at 1; from READY on, at (chunk row * nk + key head), 2 when both halves
 *   of a unit are there
 * gc: running sum of ln(decay) inside the chunk. The last token of a chunk that is not full has row 63 (`token_of`); the rows in front of
 * it that have no token are zero (their decay is 1), so nothing of theirs remains. */
#pragma once
#include "gdn_fast_tiles.cuh"

namespace gdn_fast {
enum {
    SCALARS = 4 * CHUNK + 4 + CHUNK / 2, /* words */
    AT_BETA = 0,
    AT_BETA_DECAY = CHUNK,
    AT_REST = 2 * CHUNK,
    AT_OUT = 3 * CHUNK,
    AT_ALL = 4 * CHUNK,
    AT_TAIL = AT_ALL + 4,
    NEXT_UNIT = 0,
    NEXT_ROLE = 1,
    READY = 32, /* words in front of the flags */
};

/* The token of a row in a chunk of n tokens; n or more: none. */
GDN_DEVICE uint32_t token_of(uint32_t row, uint32_t n) {
    return row == CHUNK - 1 ? n - 1 : row == n - 1 ? n : row;
}
/* The word of a pair of tokens (8 j + 2 t, + 1) in the tail: lane t of four needs eight side by side. */
GDN_DEVICE uint32_t tail_at(uint32_t j, uint32_t t) {
    return AT_TAIL + 8 * t + j;
}

struct scratch {
    unsigned char *k, *q, *t, *p;
    float *scalars;
    uint32_t *words;
};
} // namespace gdn_fast
