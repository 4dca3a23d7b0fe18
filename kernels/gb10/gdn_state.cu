/* gdn_state.cu - copies and zeroes states by slot lists (SSM and conv states alike). Contract: abi/gdn_op_state.h.
 *
 * Grid GDN_STATE_GRID(count, bytes), block GDN_STATE_BLOCK: block i takes bytes [p*S, p*S + S) of pair i / n, where
 * S = GDN_STATE_BYTES, n = ceil(bytes / S), p = i % n. A pair with a negative slot is skipped. Accesses are as wide as both addresses
 * allow: 16, 4 or 1 byte; a tail below that goes byte by byte. */
#include "gdn_device.cuh"
#include "gdn_geometry.h"
#include "gdn_rows.cuh"

enum { DEPTH = GDN_STATE_BYTES / 16 / GDN_STATE_BLOCK }; /* 16-byte words a thread */

struct part {
    uint64_t src, dst; /* byte offsets */
    uint32_t bytes;    /* 0: nothing to do */
};

GDN_DEVICE part part_of(const int32_t *src_slots, const int32_t *dst_slots, uint64_t bytes, uint64_t src_stride, uint64_t dst_stride) {
    const uint32_t each = (uint32_t)GDN__CEIL_DIV(bytes, (uint64_t)GDN_STATE_BYTES), pair = blockIdx.x / each;
    const uint64_t at = (uint64_t)(blockIdx.x % each) * GDN_STATE_BYTES;
    const int32_t from = src_slots ? src_slots[pair] : 0, to = dst_slots[pair];
    if (from < 0 || to < 0) return part { 0, 0, 0 };
    return part { (uint64_t)from * src_stride + at, (uint64_t)to * dst_stride + at,
                  bytes - at < GDN_STATE_BYTES ? (uint32_t)(bytes - at) : GDN_STATE_BYTES };
}

/* Bytes [from, bytes), one at a time. */
GDN_DEVICE void copy_bytes(const uint8_t *src, uint8_t *dst, uint32_t from, uint32_t bytes) {
    for (uint32_t i = from + threadIdx.x; i < bytes; i += GDN_STATE_BLOCK) dst[i] = src ? src[i] : 0;
}

GDN_KERNEL(GDN_STATE_BLOCK)
gdn_state_copy(const uint8_t *src, uint8_t *dst, const int32_t *src_slots, const int32_t *dst_slots, uint32_t count, uint64_t bytes,
               uint64_t src_stride, uint64_t dst_stride) {
    gdn_begin();
    gdn_let_next();
    (void)count; /* the grid's */
    const part p = part_of(src_slots, dst_slots, bytes, src_stride, dst_stride);
    if (p.bytes == 0) return;
    src += p.src;
    dst += p.dst;
    const uint64_t both = (uint64_t)src | (uint64_t)dst;
    uint32_t done = 0;
    if (both % 16 == 0) {
        const uint32_t words = p.bytes / 16;
        uint4 v[DEPTH];
        GDN_UNROLL
        for (uint32_t k = 0; k < DEPTH; k++)
            if (threadIdx.x + k * GDN_STATE_BLOCK < words) v[k] = gdn_ld16(src + 16 * (threadIdx.x + k * GDN_STATE_BLOCK));
        GDN_UNROLL
        for (uint32_t k = 0; k < DEPTH; k++)
            if (threadIdx.x + k * GDN_STATE_BLOCK < words) gdn_st16(dst + 16 * (threadIdx.x + k * GDN_STATE_BLOCK), v[k]);
        done = words * 16;
    } else if (both % 4 == 0) {
        const uint32_t words = p.bytes / 4;
        for (uint32_t i = threadIdx.x; i < words; i += GDN_STATE_BLOCK)
            reinterpret_cast<uint32_t *>(dst)[i] = reinterpret_cast<const uint32_t *>(src)[i];
        done = words * 4;
    }
    copy_bytes(src, dst, done, p.bytes);
}

GDN_KERNEL(GDN_STATE_BLOCK)
gdn_state_zero(uint8_t *dst, const int32_t *dst_slots, uint32_t count, uint64_t bytes, uint64_t dst_stride) {
    gdn_begin();
    gdn_let_next();
    (void)count;
    const part p = part_of(nullptr, dst_slots, bytes, 0, dst_stride);
    if (p.bytes == 0) return;
    dst += p.dst;
    uint32_t done = 0;
    if (gdn_aligned16(dst)) {
        for (uint32_t i = threadIdx.x; i < p.bytes / 16; i += GDN_STATE_BLOCK) gdn_st16(dst + 16 * i, uint4 { 0, 0, 0, 0 });
        done = p.bytes / 16 * 16;
    } else if ((uint64_t)dst % 4 == 0) {
        for (uint32_t i = threadIdx.x; i < p.bytes / 4; i += GDN_STATE_BLOCK) reinterpret_cast<uint32_t *>(dst)[i] = 0;
        done = p.bytes / 4 * 4;
    }
    copy_bytes(nullptr, dst, done, p.bytes);
}
