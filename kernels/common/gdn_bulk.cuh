/* gdn_bulk.cuh - the bulk copy engine (sm_90 and later): one thread issues, the engine moves. A load completes its bytes on an
 * mbarrier; stores are closed in groups and waited for by the thread that issued them. Shared memory that ordinary stores wrote
 * needs gdn_fence_async in each writing thread, then a barrier, before the engine (or wgmma) reads it.
 *
 * Plain copies: sizes and addresses are multiples of 16. About 40 ns each, so large ones; boxes of a tensor take a map, which the
 * host encodes and passes by value: `const GDN_GRID_CONSTANT gdn_tensor_map m`. What lies outside the tensor reads as zero (and
 * counts as landed) and is not written. 128-byte swizzle: the 16-byte unit c of row r (128 bytes a row) lies at unit c ^ (r % 8).
 * Thread-block clusters are not used: every address is the block's own. */
#pragma once
#include "gdn_mbarrier.cuh"

struct __align__(64) gdn_tensor_map {
    uint8_t opaque[128];
};
/* The place of byte `offset` of a 1024-byte aligned tile in 128-byte swizzle. */
GDN_DEVICE uint32_t gdn_swizzle128(uint32_t offset) {
    return offset ^ (offset >> 3 & 0x70u);
}

#ifdef GDN_EMU
#include "gdn_emu_bulk.hpp"
#else
GDN_DEVICE void gdn_bulk_load(void *shared, const void *global, uint32_t bytes, gdn_mbarrier &bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(gdn__shared_addr(shared)),
                 "l"(global), "r"(bytes), "r"(gdn__shared_addr(&bar))
                 : "memory");
}
/* The policy of loads whose lines L2 gives up before others. */
GDN_DEVICE uint64_t gdn_l2_first_out() {
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
GDN_DEVICE void gdn_bulk_load_as(void *shared, const void *global, uint32_t bytes, gdn_mbarrier &bar, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                     gdn__shared_addr(shared)),
                 "l"(global), "r"(bytes), "r"(gdn__shared_addr(&bar)), "l"(policy)
                 : "memory");
}
GDN_DEVICE void gdn_bulk_store(void *global, const void *shared, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(gdn__shared_addr(shared)), "r"(bytes)
                 : "memory");
}
/* Coordinates in elements, x along the contiguous dimension. */
GDN_DEVICE void gdn_tensor_load_2d(void *shared, const gdn_tensor_map &map, int x, int y, gdn_mbarrier &bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     gdn__shared_addr(shared)),
                 "l"(&map), "r"(x), "r"(y), "r"(gdn__shared_addr(&bar))
                 : "memory");
}
GDN_DEVICE void gdn_tensor_load_3d(void *shared, const gdn_tensor_map &map, int x, int y, int z, gdn_mbarrier &bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                     gdn__shared_addr(shared)),
                 "l"(&map), "r"(x), "r"(y), "r"(z), "r"(gdn__shared_addr(&bar))
                 : "memory");
}
GDN_DEVICE void gdn_tensor_store_2d(const gdn_tensor_map &map, int x, int y, const void *shared) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y),
                 "r"(gdn__shared_addr(shared))
                 : "memory");
}
GDN_DEVICE void gdn_tensor_store_3d(const gdn_tensor_map &map, int x, int y, int z, const void *shared) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(x), "r"(y), "r"(z),
                 "r"(gdn__shared_addr(shared))
                 : "memory");
}
GDN_DEVICE void gdn_tensor_prefetch(const gdn_tensor_map &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/* Stores: close a group; wait until all but the N newest have read their shared memory, or have been written. */
GDN_DEVICE void gdn_bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> GDN_DEVICE void gdn_bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N> GDN_DEVICE void gdn_bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
GDN_DEVICE void gdn_fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* The same for global memory: between ordinary accesses or flags, and bulk copies of what they stand for. */
GDN_DEVICE void gdn_fence_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
#endif
