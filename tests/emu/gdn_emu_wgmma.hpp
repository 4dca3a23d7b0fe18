/* gdn_emu_wgmma.hpp - host forms of gdn_wgmma.cuh. */
#pragma once
#include "emu_wgmma.hpp"

struct gdn_tile_k : emu::tile {};
struct gdn_tile_mn : emu::tile {};

GDN_DEVICE gdn_tile_k gdn_make_tile_k(const void *tile) {
    gdn_tile_k t = {};
    static_cast<emu::tile &>(t) = { static_cast<const char *>(tile), 16, 1024, false };
    return t;
}
GDN_DEVICE gdn_tile_mn gdn_make_tile_mn(const void *tile, uint32_t panel_bytes) {
    gdn_tile_mn t = {};
    static_cast<emu::tile &>(t) = { static_cast<const char *>(tile), panel_bytes, 1024, true };
    return t;
}
template <class T> GDN_DEVICE T gdn_move(T tile, uint32_t bytes) {
    tile.base += bytes;
    return tile;
}
GDN_DEVICE void gdn_wgmma_fence(EMU_AT) {
    emu::wgmma_fence(at);
}
GDN_DEVICE void gdn_wgmma_commit(EMU_AT) {
    emu::wgmma_commit(at);
}
template <int N> GDN_DEVICE void gdn_wgmma_wait(EMU_AT) {
    emu::wgmma_wait(N, at);
}
template <int R> GDN_DEVICE void gdn_pin(float (&)[R]) {}
template <int N> GDN_DEVICE void gdn_registers_up(EMU_AT) {
    emu::set_registers(N, at);
}
template <int N> GDN_DEVICE void gdn_registers_down(EMU_AT) {
    emu::set_registers(N, at);
}
namespace emu {
template <int R> constexpr bool wgmma_size = R == 4 || R == 8 || R == 16 || R == 32 || R == 64 || R == 128;
}
template <int R, class B> GDN_DEVICE void gdn_wgmma_f16(float (&d)[R], const uint32_t (&a)[4], B b, bool keep, EMU_AT) {
    static_assert(emu::wgmma_size<R>, "N = 2 R is 8, 16, 32, 64, 128 or 256");
    emu::wgmma(d, R, a, nullptr, b, true, keep, at);
}
template <int R, class B> GDN_DEVICE void gdn_wgmma_bf16(float (&d)[R], const uint32_t (&a)[4], B b, bool keep, EMU_AT) {
    static_assert(emu::wgmma_size<R>, "N = 2 R is 8, 16, 32, 64, 128 or 256");
    emu::wgmma(d, R, a, nullptr, b, false, keep, at);
}
template <int R, class A, class B> GDN_DEVICE void gdn_wgmma_f16(float (&d)[R], A a, B b, bool keep, EMU_AT) {
    static_assert(emu::wgmma_size<R>, "N = 2 R is 8, 16, 32, 64, 128 or 256");
    emu::wgmma(d, R, nullptr, &a, b, true, keep, at);
}
template <int R, class A, class B> GDN_DEVICE void gdn_wgmma_bf16(float (&d)[R], A a, B b, bool keep, EMU_AT) {
    static_assert(emu::wgmma_size<R>, "N = 2 R is 8, 16, 32, 64, 128 or 256");
    emu::wgmma(d, R, nullptr, &a, b, false, keep, at);
}
