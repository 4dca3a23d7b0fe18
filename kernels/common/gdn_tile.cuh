/* gdn_tile.cuh - a tile of 64 rows (or 128) by 128 bf16 in shared memory.
 *
 * Linear: row r at r*128. Swizzled: its 16-byte pieces lie as gdn_swizzle.cuh puts the units of a row of 256 bytes. */
#pragma once
#include "gdn_rows.cuh"
#include "gdn_swizzle.cuh"
#include "gdn_types.cuh"

enum { GDN_TILE_COLUMNS = 128, GDN_TILE_PIECES = GDN_TILE_COLUMNS / 8 };

template <bool SWIZZLED> GDN_DEVICE uint32_t gdn_tile_at(uint32_t row, uint32_t piece) {
    return row * GDN_TILE_COLUMNS + (SWIZZLED ? piece ^ gdn_swizzle_of<2 * GDN_TILE_COLUMNS>(row) : piece) * 8;
}
GDN_DEVICE gdn_bf16 gdn_tile_element(const gdn_bf16 *tile, uint32_t row, uint32_t column) {
    return tile[gdn_tile_at<true>(row, column / 8) + column % 8];
}

/* Rows [0, rows) of src, `stride` elements apart; the rest of the tile's `height` rows becomes zero, nothing is read for it. Any base
 * and stride: a whole 16 bytes where they fit, else element by element, the same bytes. All threads of the block. */
template <bool SWIZZLED>
GDN_DEVICE void gdn_tile_load(gdn_bf16 *tile, const gdn_bf16 *src, uint64_t stride, uint32_t rows, uint32_t height) {
    const bool wide = gdn_aligned16(src) && stride % 8 == 0;
    for (uint32_t p = threadIdx.x; p < height * GDN_TILE_PIECES; p += blockDim.x) {
        const uint32_t r = p / GDN_TILE_PIECES, i = p % GDN_TILE_PIECES, n = r < rows ? 8 : 0;
        const gdn_bf16 *const from = src + r * stride + i * 8;
        gdn_st16(tile + gdn_tile_at<SWIZZLED>(r, i), wide ? gdn_load8<true, true>(from, n) : gdn_load8<false, true>(from, n));
    }
}
