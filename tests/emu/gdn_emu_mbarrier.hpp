/* gdn_emu_mbarrier.hpp - host forms of gdn_mbarrier.cuh. */
#pragma once
#include "emu_async.hpp"

GDN_DEVICE void gdn_mbar_init(gdn_mbarrier &bar, uint32_t count, EMU_AT) {
    emu::mbar_init(&bar.word, count, at);
}
GDN_DEVICE void gdn_mbar_init_fence() {}
GDN_DEVICE void gdn_mbar_arrive(gdn_mbarrier &bar, EMU_AT) {
    emu::mbar_arrive(&bar.word, 0, false, at);
}
GDN_DEVICE void gdn_mbar_arrive_expect(gdn_mbarrier &bar, uint32_t bytes, EMU_AT) {
    emu::mbar_arrive(&bar.word, bytes, true, at);
}
GDN_DEVICE bool gdn_mbar_test(gdn_mbarrier &bar, uint32_t parity, EMU_AT) {
    return emu::mbar_test(&bar.word, parity, at);
}
GDN_DEVICE void gdn_mbar_wait(gdn_mbarrier &bar, uint32_t parity, EMU_AT) {
    emu::mbar_wait(&bar.word, parity, at);
}
