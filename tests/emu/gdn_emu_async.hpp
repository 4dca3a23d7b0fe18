/* gdn_emu_async.hpp - host forms of gdn_async.cuh. */
#pragma once
#include "emu_async.hpp"

GDN_DEVICE void gdn_cp_async16(void *shared, const void *global, uint32_t bytes = 16, EMU_AT) {
    emu::cp_async(shared, global, 16, bytes, at);
}
GDN_DEVICE void gdn_cp_async8(void *shared, const void *global, uint32_t bytes = 8, EMU_AT) {
    emu::cp_async(shared, global, 8, bytes, at);
}
GDN_DEVICE void gdn_cp_async4(void *shared, const void *global, uint32_t bytes = 4, EMU_AT) {
    emu::cp_async(shared, global, 4, bytes, at);
}
GDN_DEVICE void gdn_cp_async_commit() {
    emu::cp_commit();
}
template <int N> GDN_DEVICE void gdn_cp_async_wait() {
    emu::cp_wait(N);
}
