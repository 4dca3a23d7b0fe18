/* test_self_hopper.cpp - bulk copies, tensor boxes, mbarriers and warpgroup products of the emulator against plain loops. */
#include "emu_check.hpp"
#include "emu_number.hpp"
#include "self_hopper.cuh"
#include "self_products.cuh"

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

/* ---- warpgroup products ---- */
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
    c.test("products, A columns, B columns", sizes<COLUMNS, COLUMNS>);
    return c.done();
}
