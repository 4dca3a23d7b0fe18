/* gdn_cluster.cuh - SIZE neighbouring blocks of THREADS threads that read each other's dynamic shared memory (sm_90 and later).
 * A kernel: GDN_KERNEL(THREADS, 1) GDN_CLUSTER_DIMS(SIZE) name(...); the grid is a multiple of SIZE; BYTES of dynamic shared memory.
 * sync() orders shared-memory accesses of all threads of the cluster. leave() is for the end: no block returns before its neighbours
 * have read its memory; it orders nothing else, so it does not wait for stores under way.
 *
 * The emulator runs a cluster as ONE block of SIZE * THREADS threads with SIZE * BYTES of shared memory (launch it so, with as many
 * blocks as there are clusters), so a kernel takes its thread, block and barrier from here. */
#pragma once
#include "gdn_async.cuh"
#include "gdn_memory.cuh"
#include "gdn_warp.cuh"

#ifdef GDN_EMU
#define GDN_CLUSTER_DIMS(size)
template <uint32_t SIZE, uint32_t THREADS, uint32_t BYTES> struct gdn_cluster {
    static uint32_t rank() { return threadIdx.x / THREADS; }
    static uint32_t thread() { return threadIdx.x % THREADS; }
    static uint32_t index() { return blockIdx.x; }
    static unsigned char *memory(unsigned char *dynamic) { return dynamic + (size_t)rank() * BYTES; }
    static void sync_block(EMU_AT) { gdn_bar_sync(1 + rank(), THREADS, at); }
    /* Named barriers: roles of a kernel may wait at different places. */
    static void sync(EMU_AT) { gdn_bar_sync(SIZE + 1, SIZE * THREADS, at); }
    static void leave(EMU_AT) { gdn_bar_sync(SIZE + 2, SIZE * THREADS, at); }
    static float4 load(const float *own, uint32_t peer) {
        return gdn_ld16f(reinterpret_cast<const unsigned char *>(own) + ((ptrdiff_t)peer - (ptrdiff_t)rank()) * (ptrdiff_t)BYTES);
    }
};
#else
#define GDN_CLUSTER_DIMS(size) __cluster_dims__(size, 1, 1)
template <uint32_t SIZE, uint32_t THREADS, uint32_t BYTES> struct gdn_cluster {
    static __device__ __forceinline__ uint32_t rank() {
        uint32_t r;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
        return r;
    }
    static __device__ __forceinline__ uint32_t thread() { return threadIdx.x; }
    static __device__ __forceinline__ uint32_t index() { return blockIdx.x / SIZE; }
    static __device__ __forceinline__ unsigned char *memory(unsigned char *dynamic) { return dynamic; }
    static __device__ __forceinline__ void sync_block() { gdn_sync_block(); }
    static __device__ __forceinline__ void sync() {
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
    static __device__ __forceinline__ void leave() {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    }
    /* 16 bytes at the place that `own` has in this block, of block `peer`. */
    static __device__ __forceinline__ float4 load(const float *own, uint32_t peer) {
        float4 v;
        asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(gdn__shared_addr(own)), "r"(peer)
                     : "memory");
        return v;
    }
};
#endif
