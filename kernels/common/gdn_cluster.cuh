/* gdn_cluster.cuh - SIZE neighbouring blocks of THREADS threads that read each other's dynamic shared memory (sm_90 and later).
 * A kernel: GDN_KERNEL(THREADS, 1) GDN_CLUSTER_DIMS(SIZE) name(...); the grid is a multiple of SIZE; BYTES of dynamic shared memory.
 * A neighbour's memory may be touched once it has started: enter() first thing, entered() before the first touch. sync() orders
 * shared-memory accesses of all threads of the cluster. Who is read must not return before: leave() is for the end, and orders nothing
 * else. Who is only stored to need not: it waits in sync() for what it gets.
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
    static void enter() {}
    static void entered() {}
    typedef float *remote;
    static remote in(float *own, uint32_t peer) {
        return reinterpret_cast<float *>(reinterpret_cast<unsigned char *>(own) + ((ptrdiff_t)peer - (ptrdiff_t)rank()) * (ptrdiff_t)BYTES);
    }
    static float4 load(const float *own, uint32_t peer) { return gdn_ld16f(in(const_cast<float *>(own), peer)); }
    static void store(remote p, uint32_t floats, float4 v) { gdn_st16f(p + floats, v); }
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
    static __device__ __forceinline__ void enter() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
    static __device__ __forceinline__ void entered() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
    /* 16 bytes at the place that `own` has in this block, of block `peer`. */
    static __device__ __forceinline__ float4 load(const float *own, uint32_t peer) {
        float4 v;
        asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(gdn__shared_addr(own)), "r"(peer)
                     : "memory");
        return v;
    }
    /* That place, for several stores; one of 16 bytes, `floats` behind it. */
    typedef uint32_t remote;
    static __device__ __forceinline__ remote in(float *own, uint32_t peer) {
        remote p;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(p) : "r"(gdn__shared_addr(own)), "r"(peer));
        return p;
    }
    static __device__ __forceinline__ void store(remote p, uint32_t floats, float4 v) {
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(p + floats * 4), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                     : "memory");
    }
};
#endif
