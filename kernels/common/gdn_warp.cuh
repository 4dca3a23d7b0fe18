/* gdn_warp.cuh - barriers and exchange inside a block. CUDA's own names (__syncthreads, __syncwarp, __shfl_*_sync, __ballot_sync,
 * __any_sync, __all_sync) work as well, on the device and in the emulator; these add the place of the call to its messages.
 * A shuffle moves 4 or 8 bytes and orders no memory; a lane may read only lanes of the mask. */
#pragma once
#include "gdn_types.cuh"

#define GDN_FULL_MASK 0xffffffffu

GDN_DEVICE uint32_t gdn_lane() {
    return threadIdx.x & 31u; /* blocks are one-dimensional wherever a warp matters */
}
/* The warp's index, the same register in all lanes: descriptors and addresses made from it can stay uniform. A shuffle: all lanes
 * must come here, so ask once at the top of a kernel. */
#ifdef GDN_EMU
#include "gdn_emu_warp.hpp"
#else
GDN_DEVICE uint32_t gdn_warp() {
    return __shfl_sync(GDN_FULL_MASK, threadIdx.x >> 5, 0);
}
/* x, which all lanes have: likewise. */
GDN_DEVICE uint32_t gdn_uniform(uint32_t x) {
    return __shfl_sync(GDN_FULL_MASK, x, 0);
}
/* The compiler forgets what it knows of x: what a loop makes of it is made again in each pass, instead of kept in registers. */
GDN_DEVICE uint32_t gdn_anew(uint32_t x) {
    asm volatile("" : "+r"(x));
    return x;
}
GDN_DEVICE void gdn_sync_block() {
    __syncthreads();
}
GDN_DEVICE void gdn_sync_warp(uint32_t mask = GDN_FULL_MASK) {
    __syncwarp(mask);
}
/* Barrier `id` (1..15; 0 is gdn_sync_block's) of `threads` threads, a multiple of 32. _arrive signals and goes on. */
GDN_DEVICE void gdn_bar_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
GDN_DEVICE void gdn_bar_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif

/* Sum over the warp by shuffle-down 16, 8, 4, 2, 1: lane 0 holds it. The order is part of several byte contracts. */
GDN_DEVICE float gdn_warp_sum_down(float x) {
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(GDN_FULL_MASK, x, d);
    return x;
}
/* Sum by butterfly 16, 8, 4, 2, 1: every lane holds it, the same bits in each (addition commutes). */
GDN_DEVICE float gdn_warp_sum(float x) {
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(GDN_FULL_MASK, x, d);
    return x;
}
GDN_DEVICE float gdn_warp_max(float x) {
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(GDN_FULL_MASK, x, d));
    return x;
}
