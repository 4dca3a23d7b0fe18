/* test_self_hopper.cpp - bulk copies, tensor boxes, mbarriers and warpgroup products of the emulator against plain loops. */
#include "emu_check.hpp"
#include "emu_number.hpp"
#include "self_hopper.cuh"

static emu::options tiles(bool check_proxy) {
    emu::options o;
    o.smem_align = 1024;
    o.check_proxy = check_proxy;
    return o;
}

/* ---- mbarriers: the ring of self_hopper.cuh ---- */
static void ring(emu::bench &b) {
    const size_t words = SELF_TILE / 4;
    for (int n : { 1, 2, 5, 8 }) {
        auto &x = b.input<uint32_t>("x", (size_t)n * words, [&](size_t) { return b.bits(); });
        auto &o = b.output<uint32_t>("o", 128);
        b.run("ring", 2, 160, SELF_STAGES * SELF_TILE, tiles(false), { o }, [&] { self_ring<0>(x.p, o.p, n); });
        bool ok = true;
        for (size_t t = 0; t < 128; t++) {
            uint32_t sum = 0;
            for (size_t c = 0; c < (size_t)n; c++)
                for (size_t i = t; i < words; i += 128) sum += x[c * words + i] ^ (uint32_t)c;
            ok = ok && o[t] == sum;
        }
        b.expect(ok, "sum through the ring");
    }
}

/* ---- boxes ---- */
static __global__ void __launch_bounds__(64)
    box_through(const GDN_GRID_CONSTANT gdn_tensor_map in, const GDN_GRID_CONSTANT gdn_tensor_map out, uint16_t *image, int x, int y, int z,
                int rank, uint32_t bytes) {
    GDN_DYN_SMEM_ALIGNED(uint16_t, tile, 1024);
    __shared__ gdn_mbarrier bar;
    if (threadIdx.x == 0) {
        gdn_mbar_init(bar, 1);
        gdn_mbar_init_fence();
        gdn_mbar_arrive_expect(bar, bytes);
        if (rank == 2)
            gdn_tensor_load_2d(tile, in, x, y, bar);
        else
            gdn_tensor_load_3d(tile, in, x, y, z, bar);
    }
    __syncthreads();
    gdn_mbar_wait(bar, 0);
    for (uint32_t i = threadIdx.x; i < bytes / 2; i += 64) image[i] = tile[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        if (rank == 2)
            gdn_tensor_store_2d(out, x, y, tile);
        else
            gdn_tensor_store_3d(out, x, y, z, tile);
        gdn_bulk_commit();
        gdn_bulk_wait<0>();
    }
}
static void boxes_of(emu::bench &b, int rank, uint32_t swizzle) {
    const uint64_t size[] = { 100, 40, 3 }, stride[] = { 208, 40 * 208 }; /* 104 elements a row: 4 beside the tensor */
    const uint32_t box[] = { swizzle ? 64u : 24u, 16, rank == 3 ? 2u : 1u };
    const size_t whole = 104 * 40 * 3, in_box = (size_t)box[0] * box[1] * box[2];
    auto &x = b.input<uint16_t>("x", whole, [&](size_t) { return (uint16_t)(1 + b.bits() % 65535); });
    auto &y = b.inout<uint16_t>("y", whole, [](size_t) { return (uint16_t)0; });
    auto &image = b.output<uint16_t>("image", in_box);
    const gdn_tensor_map in = gdn_emu_tensor_map(x.p, 2, (uint32_t)rank, size, stride, box, swizzle),
                         out = gdn_emu_tensor_map(y.p, 2, (uint32_t)rank, size, stride, box, swizzle);
    const int at[][3] = { { 0, 0, 0 }, { 8, 24, 1 }, { 64, 32, 2 }, { -8, -4, 0 }, { 96, 39, 2 }, { 200, 0, 0 } };
    std::vector<uint16_t> want(whole, 0); /* the boxes so far */
    for (const auto &p : at) {
        const int z0 = rank == 3 ? p[2] : 0;
        b.run("box", 1, 64, in_box * 2, tiles(true), { y, image },
              [&] { box_through(in, out, image.p, p[0], p[1], p[2], rank, (uint32_t)in_box * 2); });
        bool ok = true;
        for (int k = 0; k < (int)box[2]; k++)
            for (int j = 0; j < (int)box[1]; j++)
                for (int i = 0; i < (int)box[0]; i++) {
                    const int gx = p[0] + i, gy = p[1] + j, gz = z0 + k;
                    const bool inside = gx >= 0 && gx < 100 && gy >= 0 && gy < 40 && gz >= 0 && gz < (rank == 3 ? 3 : 1);
                    const size_t g = inside ? (size_t)gz * 104 * 40 + (size_t)gy * 104 + (size_t)gx : 0;
                    const size_t row = (size_t)(k * (int)box[1] + j);
                    const size_t place = swizzle ? row * 64 + (((size_t)i / 8 ^ row % 8) * 8 + (size_t)i % 8) : row * box[0] + (size_t)i;
                    ok = ok && image[place] == (inside ? x[g] : 0);
                    if (inside) want[g] = x[g];
                }
        b.expect(ok, "a box in shared memory: swizzled, zero outside the tensor");
        ok = true;
        for (size_t i = 0; i < whole; i++) ok = ok && y[i] == want[i];
        b.expect(ok, "a box stored: clipped to the tensor");
    }
}
static void boxes(emu::bench &b) {
    boxes_of(b, 2, 128);
    boxes_of(b, 2, 0);
    boxes_of(b, 3, 128);
    boxes_of(b, 3, 0);
}

/* ---- warpgroup products: A 64 x 64 and B N x 64 (or transposed), swizzled by hand ---- */
enum form { REGISTERS, ROWS, COLUMNS };
template <int R, bool F16, form A, form B>
static __global__ void __launch_bounds__(128) one_product(const uint16_t *a, const uint16_t *b, const float *c, float *d, int keep) {
    GDN_DYN_SMEM_ALIGNED(uint16_t, tile, 1024); /* A 8 KiB, then B */
    enum { N = 2 * R, PANELS = B == COLUMNS ? (N + 63) / 64 : 1, BROWS = B == COLUMNS ? 64 : N };
    uint16_t *const tb = tile + 4096;
    const uint32_t t = threadIdx.x;
    for (uint32_t i = t; i < 4096; i += 128) { /* row r along M (k contiguous), or row k (M contiguous) */
        const uint32_t r = i / 64, k = i % 64;
        tile[gdn_swizzle128(A == COLUMNS ? (k * 64 + r) * 2 : i * 2) / 2] = a[i];
    }
    for (uint32_t i = t; i < N * 64; i += 128) {
        const uint32_t n = i / 64, k = i % 64;
        tb[gdn_swizzle128(B == COLUMNS ? (n / 64) * 8192 + (k * 64 + n % 64) * 2 : i * 2) / 2] = b[i];
    }
    gdn_fence_async();
    __syncthreads();
    const uint32_t g = gdn_warp() * 16 + gdn_lane() / 4, q = gdn_lane() % 4 * 2;
    float acc[R];
    for (uint32_t i = 0; i < R; i++) acc[i] = c[(g + (i & 2 ? 8 : 0)) * N + i / 4 * 8 + q + (i & 1)];
    gdn_wgmma_fence();
    for (uint32_t k = 0; k < 4; k++) {
        auto run = [&](auto bt) {
            const bool on = keep || k > 0;
            if constexpr (A == REGISTERS) {
                uint32_t fa[4];
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t at = (g + (i & 1) * 8) * 64 + k * 16 + q + (i >> 1) * 8;
                    fa[i] = a[at] | (uint32_t)a[at + 1] << 16;
                }
                if constexpr (F16)
                    gdn_wgmma_f16(acc, fa, bt, on);
                else
                    gdn_wgmma_bf16(acc, fa, bt, on);
            } else if constexpr (A == ROWS) {
                if constexpr (F16)
                    gdn_wgmma_f16(acc, gdn_move(gdn_make_tile_k(tile), 32 * k), bt, on);
                else
                    gdn_wgmma_bf16(acc, gdn_move(gdn_make_tile_k(tile), 32 * k), bt, on);
            } else {
                if constexpr (F16)
                    gdn_wgmma_f16(acc, gdn_move(gdn_make_tile_mn(tile, 8192), 2048 * k), bt, on);
                else
                    gdn_wgmma_bf16(acc, gdn_move(gdn_make_tile_mn(tile, 8192), 2048 * k), bt, on);
            }
        };
        if constexpr (B == COLUMNS)
            run(gdn_move(gdn_make_tile_mn(tb, 8192), 2048 * k));
        else
            run(gdn_move(gdn_make_tile_k(tb), 32 * k));
        if (k & 1) gdn_wgmma_commit();
    }
    gdn_wgmma_wait<1>();
    gdn_wgmma_wait<0>();
    gdn_pin(acc);
    for (uint32_t i = 0; i < R; i++) d[(g + (i & 2 ? 8 : 0)) * N + i / 4 * 8 + q + (i & 1)] = acc[i];
}
template <int R, bool F16, form A, form B> static void product(emu::bench &b) {
    const size_t n = 2 * R, panels = B == COLUMNS ? (n + 63) / 64 : 1,
                 bytes = 8192 + (B == COLUMNS ? panels * 8192 : (n * 128 + 1023) / 1024 * 1024);
    auto half = [&](size_t) { return F16 ? gdn_to_f16(b.uniform(-1, 1)).bits : gdn_to_bf16(b.uniform(-1, 1)).bits; };
    auto value = [](uint16_t v) { return (double)(F16 ? emu::widen_f16(v) : emu::widen_bf16(v)); };
    auto &x = b.input<uint16_t>("A", 4096, half);
    auto &y = b.input<uint16_t>("B", n * 64, half);
    auto &c = b.input<float>("C", 64 * n, [&](size_t) { return b.uniform(-1, 1); });
    auto &d = b.output<float>("D", 64 * n);
    for (int keep = 0; keep < 2; keep++) {
        b.run("product", 1, 128, bytes, tiles(R == 4), { d }, [&] { one_product<R, F16, A, B>(x.p, y.p, c.p, d.p, keep); });
        std::vector<double> got(64 * n), want(64 * n);
        for (size_t i = 0; i < 64; i++)
            for (size_t j = 0; j < n; j++) {
                want[i * n + j] = keep ? (double)c[i * n + j] : 0.0;
                for (size_t k = 0; k < 64; k++) want[i * n + j] += value(x[i * 64 + k]) * value(y[j * 64 + k]);
                got[i * n + j] = d[i * n + j];
            }
        b.close("m64nNk16 against loops", got, want, 2e-7, 4e-6);
    }
}
template <form A, form B> static void sizes(emu::bench &b) {
    product<4, true, A, B>(b);
    product<16, false, A, B>(b);
    product<32, true, A, B>(b);
    product<32, false, A, B>(b);
    if (!emu::sanitized()) product<64, true, A, B>(b);
    if (!emu::sanitized()) product<128, false, A, B>(b);
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("ring of mbarriers", ring);
    c.test("boxes of a tensor", boxes);
    c.test("products, A registers, B rows", sizes<REGISTERS, ROWS>);
    c.test("products, A registers, B columns", sizes<REGISTERS, COLUMNS>);
    c.test("products, A rows, B rows", sizes<ROWS, ROWS>);
    c.test("products, A rows, B columns", sizes<ROWS, COLUMNS>);
    c.test("products, A columns, B rows", sizes<COLUMNS, ROWS>);
    return c.done();
}
