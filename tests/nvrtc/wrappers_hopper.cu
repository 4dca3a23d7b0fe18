/* wrappers_hopper.cu - as wrappers_portable.cu, for gdn_hopper.cuh. */
#include "gdn_hopper.cuh"

template <int R> GDN_DEVICE float products(const char *tile, const uint32_t *x) {
    const gdn_tile_k k = gdn_make_tile_k(tile);
    const gdn_tile_mn m = gdn_make_tile_mn(tile + 8192, 8192);
    uint32_t a[8];
    float d[R], sum = 0.0f;
    GDN_UNROLL
    for (int i = 0; i < 8; i++) a[i] = x[i * 128 + threadIdx.x];
    gdn_wgmma_fence();
    gdn_wgmma_f16(d, gdn_quad(a, 0), k, false);
    gdn_wgmma_f16(d, gdn_quad(a, 4), gdn_move(m, 2048), true);
    gdn_wgmma_f16(d, k, m, true);
    gdn_wgmma_bf16(d, gdn_quad(a, 4), k, true);
    gdn_wgmma_bf16(d, gdn_quad(a, 0), m, true);
    gdn_wgmma_bf16(d, m, gdn_move(k, 32), true);
    gdn_wgmma_commit();
    gdn_wgmma_wait<0>();
    gdn_pin(d);
    GDN_UNROLL
    for (int i = 0; i < R; i++) sum += d[i];
    return sum;
}
#define WRAP_PRODUCTS(REGS)                                                                                                                \
    GDN_KERNEL(128) wrap_wgmma_##REGS(const uint32_t *x, float *o) {                                                                       \
        gdn_begin();                                                                                                                       \
        GDN_DYN_SMEM_ALIGNED(char, tile, 1024);                                                                                            \
        o[threadIdx.x] = products<REGS>(tile, x);                                                                                          \
    }
WRAP_PRODUCTS(4)
WRAP_PRODUCTS(8)
WRAP_PRODUCTS(16)
WRAP_PRODUCTS(32)
WRAP_PRODUCTS(64)
WRAP_PRODUCTS(128)

GDN_KERNEL(384, 1)
wrap_bulk(const GDN_GRID_CONSTANT gdn_tensor_map two, const GDN_GRID_CONSTANT gdn_tensor_map three, const char *g, char *o) {
    gdn_begin();
    GDN_DYN_SMEM_ALIGNED(char, tile, 1024);
    __shared__ gdn_mbarrier bar[2];
    if (threadIdx.x == 0) {
        gdn_mbar_init(bar[0], 1);
        gdn_mbar_init(bar[1], 256);
        gdn_mbar_init_fence();
        gdn_tensor_prefetch(two);
    }
    gdn_sync_block();
    if (gdn_warp() >= 8) {
        gdn_registers_down<24>();
        if (threadIdx.x == 256) {
            gdn_mbar_wait(bar[1], 1);
            gdn_mbar_arrive_expect(bar[0], 1024 + 8192 + 8192);
            gdn_bulk_load(tile + 16384, g, 1024, bar[0]);
            gdn_tensor_load_2d(tile, two, 0, 0, bar[0]);
            gdn_tensor_load_3d(tile + 8192, three, 0, 0, 0, bar[0]);
        }
    } else {
        gdn_registers_up<240>();
        if (!gdn_mbar_test(bar[0], 0)) gdn_mbar_wait(bar[0], 0);
        gdn_mbar_arrive(bar[1]);
        gdn_fence_async();
        gdn_bar_sync(1, 256);
        if (threadIdx.x == 0) {
            gdn_bulk_store(o, tile + 16384, 1024);
            gdn_tensor_store_2d(two, 0, 0, tile);
            gdn_tensor_store_3d(three, 0, 0, 0, tile + 8192);
            gdn_bulk_commit();
            gdn_bulk_wait_read<0>();
            gdn_bulk_wait<0>();
        }
    }
}
