/* gdn_mbarrier.cuh - mbarriers in shared memory (sm_90 and later). A phase ends when `count` arrivals came and all announced bytes
 * landed. wait(parity) returns once the phase of that parity is over; a fresh barrier is in phase 0, so wait(1) passes at once.
 * It also passes when the barrier is a whole phase behind: a thread that skips phases must know that the previous one ended. */
#pragma once
#include "gdn_async.cuh"

struct gdn_mbarrier { /* as __shared__ gdn_mbarrier full[3]; */
    uint64_t word;
};

#ifdef GDN_EMU
#include "gdn_emu_mbarrier.hpp"
#else
GDN_DEVICE void gdn_mbar_init(gdn_mbarrier &bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gdn__shared_addr(&bar)), "r"(count) : "memory");
}
/* After the last init, in the thread that made it; then a block barrier. */
GDN_DEVICE void gdn_mbar_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GDN_DEVICE void gdn_mbar_arrive(gdn_mbarrier &bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gdn__shared_addr(&bar)) : "memory");
}
/* Arrives, and announces `bytes` that copies will complete; before or after their issue. */
GDN_DEVICE void gdn_mbar_arrive_expect(gdn_mbarrier &bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gdn__shared_addr(&bar)), "r"(bytes) : "memory");
}
/* One look; true: the phase is over. Issued early it hides the latency of a wait; a loop round it is gdn_mbar_wait. */
GDN_DEVICE bool gdn_mbar_test(gdn_mbarrier &bar, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(gdn__shared_addr(&bar)), "r"(parity)
                 : "memory");
    return done != 0;
}
GDN_DEVICE void gdn_mbar_wait(gdn_mbarrier &bar, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(gdn__shared_addr(&bar)),
        "r"(parity)
        : "memory");
}
#endif
