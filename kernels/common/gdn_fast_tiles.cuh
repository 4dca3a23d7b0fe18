/* gdn_fast_tiles.cuh - sizes of a chunk and places in the tiles of the fast prefill's scratch, for both of its forms: by T and P
 * (gdn_fast.cuh), by W and N (gdn_wn.cuh). */
#pragma once
#include "gdn_hopper.cuh"
#include "gdn_rule.cuh"

namespace gdn_fast {
enum {
    CHUNK = GDN_CHUNK_TOKENS,
    DIM = 128,
    PANEL = CHUNK * 128, /* bytes of 64 rows x 64 columns */
    TILE = 2 * PANEL,    /* of 64 rows x 128 columns */
    MAX_RATIO = 8,       /* value heads of a key head */
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
