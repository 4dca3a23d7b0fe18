/* gdn_async.cuh - cp.async: copies from global to shared memory that run beside the arithmetic (sm_80 and later).
 * Each thread waits for its own copies; a barrier after the wait makes them visible to the others, and one before a stage is
 * refilled keeps it whole. gdn_cp_async_wait<N>: all but the N newest committed groups have landed. */
#pragma once
#include "gdn_types.cuh"

#ifdef GDN_EMU
#include "gdn_emu_async.hpp"
#else
GDN_DEVICE uint32_t gdn__shared_addr(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* 16 bytes past L1; `bytes` (0..16) of them are read, the rest of the 16 becomes zero. Both addresses 16-byte aligned. */
GDN_DEVICE void gdn_cp_async16(void *shared, const void *global, uint32_t bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(gdn__shared_addr(shared)), "l"(global), "r"(bytes) : "memory");
}
/* 8 or 4 bytes, aligned to their size: rows whose stride is no multiple of 16 bytes. */
GDN_DEVICE void gdn_cp_async8(void *shared, const void *global, uint32_t bytes = 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(gdn__shared_addr(shared)), "l"(global), "r"(bytes) : "memory");
}
GDN_DEVICE void gdn_cp_async4(void *shared, const void *global, uint32_t bytes = 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(gdn__shared_addr(shared)), "l"(global), "r"(bytes) : "memory");
}
GDN_DEVICE void gdn_cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> GDN_DEVICE void gdn_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
