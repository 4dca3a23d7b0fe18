/* test_gated_rmsnorm.cpp - kernels/gb10/gated_rmsnorm.cu on the emulator: every element in f64, canaries, the report rows of the area
 * norm, and the same bytes at any alignment and in place. */
#include "emu_check.hpp"

#include "gated_rmsnorm.cu"

#include <cmath>
#include <string>
#include <vector>

struct norm_case {
    uint32_t rows = 7, dim = 128, heads = 1, x_pad = 0, z_pad = 0, shift = 0; /* shift: elements by which all bases are off */
    uint32_t act = 1;
    float eps = 1e-6f;
    bool f32_weights = false, in_place = false;
    int what = 0; /* 0: random; 1: x = 300; 2: w = 0; 3: w = 1; 4: z = 50, small x; 5: a row of zeros, extreme z */

    std::vector<uint16_t> y;
    void run(emu::bench &b, const char *name, bool wrong_reference = false);
};

static float some(uint64_t &s, float lo, float hi) {
    s = s * 6364136223846793005ull + 1442695040888963407ull;
    return lo + (hi - lo) * (float)(s >> 40) / 16777216.0f;
}

void norm_case::run(emu::bench &b, const char *name, bool wrong_reference) {
    const uint32_t groups = (rows + heads - 1) / heads, x_stride = heads * dim + x_pad, z_stride = heads * dim + z_pad;
    const size_t n_out = (size_t)rows * dim;
    uint64_t sx = 11, sz = 12, sw = 13;
    std::vector<gdn_bf16> xs(shift + (size_t)groups * x_stride, gdn_bf16 { 0xFFFF }),
        zs(shift + (size_t)groups * z_stride, gdn_bf16 { 0xFFFF });
    auto x_at = [&](uint32_t r) { return shift + (size_t)(r / heads) * x_stride + (size_t)(r % heads) * dim; };
    auto z_at = [&](uint32_t r) { return shift + (size_t)(r / heads) * z_stride + (size_t)(r % heads) * dim; };
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < dim; i++) {
            float x = some(sx, -2, 2), z = some(sz, -6, 6);
            if (what == 1) x = 300;
            if (what == 4) x *= 1e-3f, z = 50;
            if (what == 5) x = r % 2 ? x : 0, z = i % 3 == 0 ? -200 : i % 3 == 1 ? 200 : -60;
            xs[x_at(r) + i] = gdn_to_bf16(x);
            zs[z_at(r) + i] = gdn_to_bf16(z);
        }
    std::vector<float> ws(dim);
    for (float &v : ws) v = what == 2 ? 0 : what == 3 ? 1 : f32_weights ? some(sw, -2, 2) : gdn_to_f32(gdn_to_bf16(some(sw, -2, 2)));

    auto &x = b.inout<gdn_bf16>("x", xs.size(), [&](size_t i) { return xs[i]; });
    auto &z = b.input<gdn_bf16>("z", zs.size(), [&](size_t i) { return zs[i]; });
    auto &w16 = b.input<gdn_bf16>("w", shift + dim, [&](size_t i) { return gdn_to_bf16(i < shift ? NAN : ws[i - shift]); });
    auto &w32 = b.input<float>("w f32", dim, [&](size_t i) { return ws[i]; });
    auto &out = b.inout<gdn_bf16>("out", shift + n_out + 1, [](size_t) { return gdn_bf16 { 0x7A7A }; });
    gdn_bf16 *const to = in_place ? x.p + shift : out.p + shift;
    const void *const w = f32_weights ? (const void *)w32.p : w16.p + shift;
    const uint32_t grid = (uint32_t)GDN_NORM_GRID(rows, dim);
    auto kernel = [&] { gated_rmsnorm(x.p + shift, z.p + shift, w, to, rows, dim, x_stride, z_stride, eps, act, heads, f32_weights); };
    if (in_place)
        b.run(name, grid, GDN_NORM_BLOCK, 0, { x }, kernel);
    else
        b.run(name, grid, GDN_NORM_BLOCK, 0, { out }, kernel);

    y.clear();
    size_t wrong = 0, stray = 0;
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t i = 0; i < dim; i++) sum += std::pow((double)gdn_to_f32(xs[x_at(r) + i]), 2);
        const double f = 1 / std::sqrt(sum / dim + (double)eps);
        for (uint32_t i = 0; i < dim; i++) {
            const double g = gdn_to_f32(zs[z_at(r) + i]), sigmoid = 1 / (1 + std::exp(-g)), weight = ws[i] + (wrong_reference ? 1 : 0);
            const double want = gdn_to_f32(xs[x_at(r) + i]) * f * weight * (act == 1 ? g * sigmoid : sigmoid);
            gdn_bf16 &got = to[(size_t)r * dim + i];
            y.push_back(got.bits);
            /* half an ulp of bf16, and the sigmoid's error at -60 (4e-6 of it); below -87.3 it may be 0 */
            wrong += !(std::fabs(gdn_to_f32(got) - want) <= 0x1.02p-8 * std::fabs(want) + 1e-35);
            got.bits = 0x7A7A;
        }
    }
    for (size_t i = 0; !in_place && i < out.n; i++) stray += out.p[i].bits != 0x7A7A;
    const std::string at = name;
    if (wrong_reference) {
        b.expect(wrong > n_out / 4, (at + ": control: 1 + w went unnoticed").c_str());
        return;
    }
    b.expect(wrong == 0, (at + ": " + std::to_string(wrong) + " of " + std::to_string(n_out) + " elements are off").c_str());
    b.expect(stray == 0, (at + ": elements outside the rows were written").c_str());
}

static void shapes(emu::check &c) {
    c.test("dims: powers of two, odd ones, wide ones (B106, B107)", [](emu::bench &b) {
        for (uint32_t dim : { 1u, 7u, 8u, 16u, 64u, 96u, 127u, 128u, 129u, 256u, 264u, 384u, 3584u })
            for (uint32_t rows : { 1u, 7u, 67u }) {
                norm_case n;
                n.dim = dim, n.rows = dim > 1000 ? rows % 8 : rows, n.f32_weights = rows == 7, n.act = 1 + (rows == 67);
                n.run(b, ("dim " + std::to_string(dim) + ", rows " + std::to_string(rows)).c_str());
            }
        norm_case n;
        n.run(b, "1 + w", true);
    });
    c.test("B101 B102 B104 activations, weights, large x, zero rows", [](emu::bench &b) {
        for (int what = 0; what <= 5; what++)
            for (uint32_t act : { 1u, 2u })
                for (uint32_t dim : { 128u, 120u }) {
                    norm_case n;
                    n.what = what, n.act = act, n.dim = dim, n.eps = what == 5 ? 1e-5f : 1e-6f;
                    n.run(b, ("content " + std::to_string(what) + ", act " + std::to_string(act)).c_str());
                }
    });
}

static void sameness(emu::check &c) {
    c.test("B108 B112 any base, strided groups: the same bytes", [](emu::bench &b) {
        for (uint32_t dim : { 64u, 128u, 120u, 264u, 33u }) {
            norm_case dense, odd, view;
            dense.dim = odd.dim = view.dim = dim;
            dense.heads = odd.heads = view.heads = 3;
            dense.rows = odd.rows = view.rows = 20; /* the last group is not full */
            dense.run(b, "dense");
            odd.shift = 1, odd.x_pad = 5, odd.z_pad = 2;
            odd.run(b, "odd");
            view.x_pad = 8, view.z_pad = 16 * dim;
            view.run(b, "z a view");
            b.expect(dense.y == odd.y && dense.y == view.y, ("alignment changes the bytes at dim " + std::to_string(dim)).c_str());
            dense.y[5] ^= 1;
            b.expect(dense.y != odd.y, "control: one changed bit went unnoticed");
        }
    });
    c.test("in place", [](emu::bench &b) {
        for (uint32_t dim : { 128u, 264u, 33u }) {
            norm_case apart, same;
            apart.dim = same.dim = dim;
            apart.rows = same.rows = 70;
            same.in_place = true;
            apart.run(b, "apart");
            same.run(b, "in place");
            b.expect(apart.y == same.y, "in place differs");
        }
    });
    c.test("B109 the grid holds any number of rows in x", [](emu::bench &b) {
        b.expect(GDN_NORM_GRID(4096u * 32u, 128u) == 4096 * 32 / 64 && GDN_NORM_GRID(4096u * 32u + 1, 128u) == 4096 * 32 / 64 + 1,
                 "rows of 128");
        b.expect(GDN_NORM_GRID(65537u * 8u, 100u) == 65537, "a warp a row");
        norm_case n;
        n.rows = emu::small_or(300u, 3000u), n.dim = 8;
        n.run(b, "many rows");
    });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    shapes(c);
    sameness(c);
    return c.done();
}
