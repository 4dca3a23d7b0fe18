/* gdn_emu_bulk.hpp - host forms of gdn_bulk.cuh. A map holds the emulator's own description (emu::tensor_make). */
#pragma once
#include "emu_async.hpp"

static_assert(sizeof(emu::tensor) <= sizeof(gdn_tensor_map) && alignof(emu::tensor) <= alignof(gdn_tensor_map), "a map's 128 bytes");

GDN_DEVICE const emu::tensor &gdn__tensor(const gdn_tensor_map &map) {
    return *reinterpret_cast<const emu::tensor *>(map.opaque);
}
GDN_DEVICE void gdn_bulk_load(void *shared, const void *global, uint32_t bytes, gdn_mbarrier &bar, EMU_AT) {
    emu::bulk_load(shared, global, bytes, &bar.word, at);
}
GDN_DEVICE uint64_t gdn_l2_first_out() {
    return 0;
}
GDN_DEVICE void gdn_bulk_load_as(void *shared, const void *global, uint32_t bytes, gdn_mbarrier &bar, uint64_t, EMU_AT) {
    emu::bulk_load(shared, global, bytes, &bar.word, at);
}
GDN_DEVICE void gdn_bulk_store(void *global, const void *shared, uint32_t bytes, EMU_AT) {
    emu::bulk_store(global, shared, bytes, at);
}
GDN_DEVICE void gdn_tensor_load_2d(void *shared, const gdn_tensor_map &map, int x, int y, gdn_mbarrier &bar, EMU_AT) {
    const int c[] = { x, y };
    emu::tensor_load(shared, gdn__tensor(map), c, 2, &bar.word, at);
}
GDN_DEVICE void gdn_tensor_load_3d(void *shared, const gdn_tensor_map &map, int x, int y, int z, gdn_mbarrier &bar, EMU_AT) {
    const int c[] = { x, y, z };
    emu::tensor_load(shared, gdn__tensor(map), c, 3, &bar.word, at);
}
GDN_DEVICE void gdn_tensor_store_2d(const gdn_tensor_map &map, int x, int y, const void *shared, EMU_AT) {
    const int c[] = { x, y };
    emu::tensor_store(gdn__tensor(map), c, 2, shared, at);
}
GDN_DEVICE void gdn_tensor_store_3d(const gdn_tensor_map &map, int x, int y, int z, const void *shared, EMU_AT) {
    const int c[] = { x, y, z };
    emu::tensor_store(gdn__tensor(map), c, 3, shared, at);
}
GDN_DEVICE void gdn_tensor_prefetch(const gdn_tensor_map &) {}
GDN_DEVICE void gdn_bulk_commit() {
    emu::bulk_commit();
}
template <int N> GDN_DEVICE void gdn_bulk_wait_read() {
    emu::bulk_wait(N);
}
template <int N> GDN_DEVICE void gdn_bulk_wait() {
    emu::bulk_wait(N);
}
GDN_DEVICE void gdn_fence_async() {
    emu::proxy_fence();
}
GDN_DEVICE void gdn_fence_async_global() {}

/* For tests: a map as the host would encode it. Sizes and box in elements, strides in bytes (of dimensions 1, 2). */
inline gdn_tensor_map gdn_emu_tensor_map(void *base, uint32_t element, uint32_t rank, const uint64_t *size, const uint64_t *stride,
                                         const uint32_t *box, uint32_t swizzle) {
    const emu::tensor t = emu::tensor_make(base, element, rank, size, stride, box, swizzle);
    gdn_tensor_map m = {};
    std::memcpy(m.opaque, &t, sizeof t);
    return m;
}
