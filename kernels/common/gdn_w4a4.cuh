/* gdn_w4a4.cuh - where W4A4's quantiser puts an activation's codes and scales, and what the projections read: the order of the
 * fragments, so that a lane loads 16 bytes. Contract: abi/gdn_op_w4a4.h; the C form: kernels/cpu/w4a4.h.
 *
 * Tokens in blocks of eight, k in chunks of 128, a chunk in eight blocks of 16 codes, a block in two halves of 8 codes (4 bytes, low
 * nibble = even k). Block b = 4p + 2s + j of token n of token block cb, half h, of nch chunks a row:
 *
 *     codes  ((cb*nch + c)*32 + 4n + 2p + h)*16 + (2j + s)*4          scale  ((cb*nch + c)*8 + n)*8 + 4j + 2s + p
 *
 * j names the product of the chunk: product 0 takes the even blocks, product 1 the odd ones. */
#pragma once
#include "gdn_types.cuh"

enum { GDN_W4A4_TOKENS = 8, GDN_W4A4_CHUNK = 128, GDN_W4A4_BLOCK = 16, GDN_W4A4_BLOCKS = 8 };
enum { GDN_W4A4_CODE_BYTES = 512, GDN_W4A4_SCALE_BYTES = 64 }; /* of a chunk of eight tokens */

GDN_DEVICE uint64_t gdn_w4a4_codes_at(uint64_t chunks, uint32_t row, uint32_t chunk, uint32_t b, uint32_t half) {
    const uint32_t n = row % GDN_W4A4_TOKENS, p = b >> 2, s = b >> 1 & 1, j = b & 1;
    return (row / GDN_W4A4_TOKENS * chunks + chunk) * GDN_W4A4_CODE_BYTES + (4 * n + 2 * p + half) * 16 + (2 * j + s) * 4;
}
GDN_DEVICE uint64_t gdn_w4a4_scale_at(uint64_t chunks, uint32_t row, uint32_t chunk, uint32_t b) {
    const uint32_t n = row % GDN_W4A4_TOKENS, p = b >> 2, s = b >> 1 & 1, j = b & 1;
    return (row / GDN_W4A4_TOKENS * chunks + chunk) * GDN_W4A4_SCALE_BYTES + n * 8 + 4 * j + 2 * s + p;
}
