/* gdn_emu_warp.hpp - host forms of gdn_warp.cuh. */
#pragma once

/* A shuffle, as on the device: in a branch that not all lanes take it hangs there and is named here. */
GDN_DEVICE uint32_t gdn_warp(EMU_AT) {
    return __shfl_sync(0xffffffffu, threadIdx.x >> 5, 0, 32, at);
}
GDN_DEVICE uint32_t gdn_uniform(uint32_t x, EMU_AT) {
    return __shfl_sync(0xffffffffu, x, 0, 32, at);
}
GDN_DEVICE uint32_t gdn_anew(uint32_t x) {
    return x;
}
GDN_DEVICE void gdn_sync_block(EMU_AT) {
    emu::sync_block(at);
}
GDN_DEVICE void gdn_sync_warp(uint32_t mask = GDN_FULL_MASK, EMU_AT) {
    emu::sync_warp(mask, at);
}
GDN_DEVICE void gdn_bar_sync(uint32_t id, uint32_t threads, EMU_AT) {
    emu::bar(id, threads, true, at);
}
GDN_DEVICE void gdn_bar_arrive(uint32_t id, uint32_t threads, EMU_AT) {
    emu::bar(id, threads, false, at);
}
