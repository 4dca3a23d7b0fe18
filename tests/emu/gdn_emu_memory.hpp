/* gdn_emu_memory.hpp - host forms of gdn_memory.cuh: a cache policy changes nothing here, an order does (thread sanitizer). */
#pragma once

GDN_DEVICE uint4 gdn_ld16_ro(const void *p) {
    return gdn_ld16(p);
}
GDN_DEVICE uint2 gdn_ld8_ro(const void *p) {
    return gdn_ld8(p);
}
GDN_DEVICE uint32_t gdn_ld4_ro(const void *p) {
    return *static_cast<const uint32_t *>(p);
}
GDN_DEVICE uint4 gdn_ld16_once(const void *p) {
    return gdn_ld16(p);
}
GDN_DEVICE uint4 gdn_ld16_stream(const void *p) {
    return gdn_ld16(p);
}
GDN_DEVICE void gdn_st16_stream(void *p, uint4 v) {
    gdn_st16(p, v);
}
GDN_DEVICE void gdn_st8_stream(void *p, uint2 v) {
    gdn_st8(p, v);
}
GDN_DEVICE void gdn_prefetch_l2(const void *) {}
GDN_DEVICE uint32_t gdn_ld_acquire(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
GDN_DEVICE void gdn_st_release(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
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
