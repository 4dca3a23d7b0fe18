/* gdn_memory.cuh - loads and stores with a cache policy, atomics with an order, fences. Addresses are generic pointers into
 * global memory unless a name says otherwise; a 16-byte access needs a 16-byte aligned address. */
#pragma once
#include "gdn_types.cuh"

#ifdef GDN_EMU
#include "gdn_emu_memory.hpp"
#else
/* Ordinary 16- and 8-byte accesses, global or shared. */
GDN_DEVICE uint4 gdn_ld16(const void *p) {
    return *reinterpret_cast<const uint4 *>(p);
}
GDN_DEVICE uint2 gdn_ld8(const void *p) {
    return *reinterpret_cast<const uint2 *>(p);
}
GDN_DEVICE void gdn_st16(void *p, uint4 v) {
    *reinterpret_cast<uint4 *>(p) = v;
}
GDN_DEVICE void gdn_st8(void *p, uint2 v) {
    *reinterpret_cast<uint2 *>(p) = v;
}
GDN_DEVICE float4 gdn_ld16f(const void *p) {
    return *reinterpret_cast<const float4 *>(p);
}
GDN_DEVICE void gdn_st16f(void *p, float4 v) {
    *reinterpret_cast<float4 *>(p) = v;
}

/* _ro: nothing may write the data while the kernel runs. Not ld.global.nc, which ptxas moves in front of the wait of gdn_begin; and a load is
 * never an asm without volatile: the compiler takes that for arithmetic and moves it above the condition that guards the address. */
GDN_DEVICE uint4 gdn_ld16_ro(const void *p) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
GDN_DEVICE uint2 gdn_ld8_ro(const void *p) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
GDN_DEVICE uint32_t gdn_ld4_ro(const void *p) {
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
GDN_DEVICE uint16_t gdn_ld2_ro(const void *p) {
    uint16_t v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}
/* _once: _ro of data that no one reads again: kept out of L1 (weights, packed rows). */
GDN_DEVICE uint4 gdn_ld16_once(const void *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
/* The same, of rows that are read on from here: L2 asks memory for 256 bytes. */
GDN_DEVICE uint4 gdn_ld16_once_256(const void *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
/* _stream: first to be evicted; for state that this kernel reads and rewrites, and for rows that a later kernel reads. */
GDN_DEVICE uint4 gdn_ld16_stream(const void *p) {
    uint4 v;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st16_stream(void *p, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
GDN_DEVICE void gdn_st8_stream(void *p, uint2 v) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
GDN_DEVICE uint2 gdn_ld8_stream(const void *p) {
    uint2 v;
    asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE uint32_t gdn_ld4_stream(const void *p) {
    uint32_t v;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st4_stream(void *p, uint32_t v) {
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GDN_DEVICE gdn_bf16 gdn_ld2_stream(const gdn_bf16 *p) {
    gdn_bf16 v;
    asm volatile("ld.global.cs.u16 %0, [%1];" : "=h"(v.bits) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st2_stream(gdn_bf16 *p, gdn_bf16 v) {
    asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"(v.bits) : "memory");
}
/* p, of which the compiler knows nothing more: accesses p[constant] keep one register for p, not one for each place. */
template <class T> GDN_DEVICE T *gdn_opaque(T *p) {
    asm volatile("" : "+l"(p));
    return p;
}
/* From shared memory, in the order of the source. Long unrolled loops of such loads compile in a third of the time. */
GDN_DEVICE float4 gdn_ld16f_shared(const float *p) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(p))
                 : "memory");
    return v;
}
/* The same, one after the other in the machine code too: a long unrolled loop of them keeps its registers for other things. */
GDN_DEVICE float4 gdn_ld16f_turn(const float *p) {
    float4 v;
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(p))
                 : "memory");
    return v;
}
/* Without a policy, and known to be global memory. */
GDN_DEVICE float gdn_ld4f_global(const float *p) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
/* Two bytes, zero above them. */
GDN_DEVICE uint32_t gdn_ld2_global(const void *p) {
    uint32_t v;
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st4f_global(float *p, float v) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}
GDN_DEVICE float4 gdn_ld16f_global(const void *p) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st16f_global(void *p, float4 v) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
GDN_DEVICE float gdn_ld4f_stream(const float *p) {
    float v;
    asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st4f_stream(float *p, float v) {
    asm volatile("st.global.cs.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}
GDN_DEVICE float4 gdn_ld16f_stream(const void *p) {
    float4 v;
    asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st16f_stream(void *p, float4 v) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
/* A word that another kernel may be writing: some value that it has or had. */
GDN_DEVICE uint32_t gdn_ld4_guess(const int32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_prefetch_l2(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Order between blocks of one launch, or between launches: a store before gdn_st_release is seen after gdn_ld_acquire. */
GDN_DEVICE uint32_t gdn_ld_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GDN_DEVICE void gdn_st_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GDN_DEVICE void gdn_add_release(uint32_t *p, uint32_t v) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/* Waits for another block: only for what a block that has begun will do without waiting itself, whatever else is on the device. */
GDN_DEVICE void gdn_wait_word(const uint32_t *p, uint32_t v) {
    while (gdn_ld_acquire(p) != v) __nanosleep(32);
}
/* For about so many cycles; no order comes of it. */
GDN_DEVICE void gdn_pause(uint32_t cycles) {
    const uint32_t from = (uint32_t)clock64();
    while ((uint32_t)clock64() - from < cycles) __nanosleep(100);
}
/* Relaxed atomics, global or shared; each returns the value before. Float sums depend on the order: no byte contract. */
GDN_DEVICE uint32_t gdn_atomic_add(uint32_t *p, uint32_t v) {
    return atomicAdd(p, v);
}
GDN_DEVICE uint64_t gdn_atomic_add(uint64_t *p, uint64_t v) {
    return atomicAdd(reinterpret_cast<unsigned long long *>(p), (unsigned long long)v);
}
GDN_DEVICE float gdn_atomic_add(float *p, float v) {
    return atomicAdd(p, v);
}
GDN_DEVICE uint32_t gdn_atomic_max(uint32_t *p, uint32_t v) {
    return atomicMax(p, v);
}
GDN_DEVICE uint32_t gdn_atomic_or(uint32_t *p, uint32_t v) {
    return atomicOr(p, v);
}
GDN_DEVICE uint32_t gdn_atomic_exch(uint32_t *p, uint32_t v) {
    return atomicExch(p, v);
}
GDN_DEVICE uint32_t gdn_atomic_cas(uint32_t *p, uint32_t expected, uint32_t v) {
    return atomicCAS(p, expected, v);
}
GDN_DEVICE void gdn_fence_gpu() {
    __threadfence();
}
GDN_DEVICE void gdn_fence_block() {
    __threadfence_block();
}
#endif
