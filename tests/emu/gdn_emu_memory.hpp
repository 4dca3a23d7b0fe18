/* gdn_emu_memory.hpp - host forms of gdn_memory.cuh: a cache policy changes nothing here, an order does (thread
 * sanitizer); alignment is looked at in every build. */
#pragma once

namespace emu {
template <class V> const V &aligned(const void *p, place at) {
    if (reinterpret_cast<uintptr_t>(p) % sizeof(V))
        fail("%s:%d: a %zu-byte access at an address that is not %zu-byte aligned", at.name(), at.line, sizeof(V), sizeof(V));
    return *static_cast<const V *>(p);
}
template <class V> void put(void *p, const V &v, place at) {
    const_cast<V &>(aligned<V>(p, at)) = v;
}
} // namespace emu
GDN_DEVICE uint4 gdn_ld16(const void *p, EMU_AT) {
    return emu::aligned<uint4>(p, at);
}
GDN_DEVICE uint2 gdn_ld8(const void *p, EMU_AT) {
    return emu::aligned<uint2>(p, at);
}
GDN_DEVICE float4 gdn_ld16f(const void *p, EMU_AT) {
    return emu::aligned<float4>(p, at);
}
GDN_DEVICE void gdn_st16(void *p, uint4 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE void gdn_st8(void *p, uint2 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE void gdn_st16f(void *p, float4 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE uint4 gdn_ld16_ro(const void *p, EMU_AT) {
    return emu::aligned<uint4>(p, at);
}
GDN_DEVICE uint2 gdn_ld8_ro(const void *p, EMU_AT) {
    return emu::aligned<uint2>(p, at);
}
GDN_DEVICE uint32_t gdn_ld4_ro(const void *p, EMU_AT) {
    return emu::aligned<uint32_t>(p, at);
}
GDN_DEVICE uint16_t gdn_ld2_ro(const void *p, EMU_AT) {
    return emu::aligned<uint16_t>(p, at);
}
GDN_DEVICE uint4 gdn_ld16_once(const void *p, EMU_AT) {
    return emu::aligned<uint4>(p, at);
}
GDN_DEVICE uint4 gdn_ld16_once_256(const void *p, EMU_AT) {
    return emu::aligned<uint4>(p, at);
}
GDN_DEVICE uint4 gdn_ld16_stream(const void *p, EMU_AT) {
    return emu::aligned<uint4>(p, at);
}
GDN_DEVICE void gdn_st16_stream(void *p, uint4 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE void gdn_st8_stream(void *p, uint2 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE uint2 gdn_ld8_stream(const void *p, EMU_AT) {
    return emu::aligned<uint2>(p, at);
}
GDN_DEVICE uint32_t gdn_ld4_stream(const void *p, EMU_AT) {
    return emu::aligned<uint32_t>(p, at);
}
GDN_DEVICE void gdn_st4_stream(void *p, uint32_t v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE gdn_bf16 gdn_ld2_stream(const gdn_bf16 *p, EMU_AT) {
    return emu::aligned<gdn_bf16>(p, at);
}
GDN_DEVICE void gdn_st2_stream(gdn_bf16 *p, gdn_bf16 v, EMU_AT) {
    emu::put(p, v, at);
}
template <class T> GDN_DEVICE T *gdn_opaque(T *p) {
    return p;
}
GDN_DEVICE float gdn_ld4f_global(const float *p, EMU_AT) {
    return emu::aligned<float>(p, at);
}
GDN_DEVICE uint32_t gdn_ld2_global(const void *p, EMU_AT) {
    return emu::aligned<uint16_t>(p, at);
}
GDN_DEVICE void gdn_st4f_global(float *p, float v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE float4 gdn_ld16f_shared(const float *p, EMU_AT) {
    return emu::aligned<float4>(p, at);
}
GDN_DEVICE float4 gdn_ld16f_turn(const float *p, EMU_AT) {
    return emu::aligned<float4>(p, at);
}
GDN_DEVICE float4 gdn_ld16f_global(const void *p, EMU_AT) {
    return emu::aligned<float4>(p, at);
}
GDN_DEVICE void gdn_st16f_global(void *p, float4 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE float gdn_ld4f_stream(const float *p, EMU_AT) {
    return emu::aligned<float>(p, at);
}
GDN_DEVICE void gdn_st4f_stream(float *p, float v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE float4 gdn_ld16f_stream(const void *p, EMU_AT) {
    return emu::aligned<float4>(p, at);
}
GDN_DEVICE void gdn_st16f_stream(void *p, float4 v, EMU_AT) {
    emu::put(p, v, at);
}
GDN_DEVICE uint32_t gdn_ld4_guess(const int32_t *p) {
    return (uint32_t)*p;
}
GDN_DEVICE void gdn_prefetch_l2(const void *) {}
GDN_DEVICE void gdn_pause(uint32_t) {}
GDN_DEVICE uint32_t gdn_ld_acquire(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
GDN_DEVICE void gdn_st_release(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
GDN_DEVICE void gdn_add_release(uint32_t *p, uint32_t v) {
    __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
}
GDN_DEVICE void gdn_wait_word(const uint32_t *p, uint32_t v, EMU_AT) {
    while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != v) emu::sleep_on(p, v, at);
}
GDN_DEVICE uint32_t gdn_atomic_add(uint32_t *p, uint32_t v) {
    return atomicAdd(p, v);
}
GDN_DEVICE uint64_t gdn_atomic_add(uint64_t *p, uint64_t v) {
    return atomicAdd(p, v);
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
GDN_DEVICE void gdn_fence_gpu() {}
GDN_DEVICE void gdn_fence_block() {}
