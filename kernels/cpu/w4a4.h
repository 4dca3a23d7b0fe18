/* w4a4.h - where the quantiser puts an activation's codes and scales, and what the projection reads.
 *
 * Order (that of the tensor-core fragments, so that a GPU lane loads 16 bytes): tokens in blocks of eight, k in chunks of
 * 128, a chunk in eight blocks of 16 codes, a block in two halves of 8 codes (4 bytes, low nibble = even k). Block
 * b = 4p + 2s + j of token n of token block cb, half h, of nch chunks a row:
 *
 *     codes  ((cb*nch + c)*32 + 4n + 2p + h)*16 + (2j + s)*4          scale  ((cb*nch + c)*8 + n)*8 + 4j + 2s + p
 *
 * j names the MMA of the chunk: MMA 0 takes the even blocks, MMA 1 the odd ones. */
#ifndef GDN_CPU_W4A4_H
#define GDN_CPU_W4A4_H

#include "cpu_kernels.h"

enum { GDN__W4A4_TOKENS = 8, GDN__W4A4_CHUNK = 128, GDN__W4A4_BLOCK = 16, GDN__W4A4_BLOCKS = 8 };

static inline uint64_t gdn__w4a4_codes_at(uint64_t chunks, uint32_t row, uint64_t chunk, uint32_t b, uint32_t half) {
    const uint64_t base = (row / GDN__W4A4_TOKENS * chunks + chunk) * 32;
    const uint32_t n = row % GDN__W4A4_TOKENS, p = b >> 2, s = (b >> 1) & 1, j = b & 1;
    return (base + 4 * n + 2 * p + half) * 16 + (2 * j + s) * 4;
}

static inline uint64_t gdn__w4a4_scale_at(uint64_t chunks, uint32_t row, uint64_t chunk, uint32_t b) {
    const uint64_t base = (row / GDN__W4A4_TOKENS * chunks + chunk) * 8;
    const uint32_t n = row % GDN__W4A4_TOKENS, p = b >> 2, s = (b >> 1) & 1, j = b & 1;
    return (base + n) * 8 + 4 * j + 2 * s + p;
}

#endif
