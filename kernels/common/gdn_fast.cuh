/* gdn_fast.cuh - what the two kernels of the fast prefill (gated_delta_rule_fast.cu) share: the scratch between them, and arithmetic on
 * fragments. Chunks of 64 tokens, k_dim = v_dim = 128. A chunk's row among all chunks is gdn_find_sequence's.
 *
 * Scratch, tiles of f16 in the byte order of the 128-byte swizzle (panels of 64 columns), so that a tile is one plain bulk copy:
 *   (chunk row * nk + key head)    K, Q    [64 tokens][128]   16,384 bytes each
 *   (chunk row * nv + value head)  T, P    [64][64]            8,192 bytes each: T = (I + L)^-1, its diagonal is 1;
 *                                          P[i][l] = scale e^(gc_i - gc_l) <q_i, k_l>, l <= i
 *                                  scalars 260 f32: beta | beta e^gc | e^(gc_last - gc) | scale e^gc, each in the order of `spot`, and
 *                                          e^gc_last, which stands four times
 *   words u32: the next unit of work at 0, the next role of a block at 1; from READY on, at (chunk row * nk + key head), 2 when both halves
 *   of a unit are there
 * gc: running sum of ln(decay) inside the chunk. Rows past the last token are zero (their decay is 1), so nothing of theirs remains. */
#pragma once
#include "gdn_hopper.cuh"
#include "gdn_rule.cuh"

namespace gdn_fast {
enum {
    CHUNK = GDN_CHUNK_TOKENS,
    DIM = 128,
    PANEL = CHUNK * 128,     /* bytes of 64 rows x 64 columns */
    TILE = 2 * PANEL,        /* of 64 rows x 128 columns */
    SCALARS = 4 * CHUNK + 4, /* floats */
    AT_BETA = 0,
    AT_BETA_DECAY = CHUNK,
    AT_REST = 2 * CHUNK,
    AT_OUT = 3 * CHUNK,
    AT_ALL = 4 * CHUNK,
    MAX_RATIO = 8, /* value heads of a key head */
    NEXT_UNIT = 0,
    NEXT_ROLE = 1,
    READY = 32, /* words in front of the flags */
};

struct scratch {
    unsigned char *k, *q, *t, *p;
    float *scalars;
    uint32_t *words;
};

/* Byte of element (row, column) of a swizzled panel. */
GDN_DEVICE uint32_t place(uint32_t row, uint32_t column) {
    return gdn_swizzle128(row * 128 + column * 2);
}
/* A token's place among 64 scalars: the four that a lane of a fragment needs of 16 tokens lie side by side. */
GDN_DEVICE uint32_t spot(uint32_t token) {
    return (token & 48) + (token & 6) * 2 + (token >> 2 & 2) + (token & 1);
}
GDN_DEVICE void put_pair(unsigned char *p, uint32_t pair) {
    *reinterpret_cast<uint32_t *>(p) = pair;
}
GDN_DEVICE float2 get_pair(const float *p) {
    return *reinterpret_cast<const float2 *>(p);
}
} // namespace gdn_fast
