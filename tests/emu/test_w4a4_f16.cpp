/* test_w4a4_f16.cpp - the W4A4 projections of hopper on the emulator: all entries, staging depths and grids give the same bytes, within
 * the error of an f32 sum of f64, and of what the block-scaled instruction gives. */
#include "emu_check.hpp"

#include "w4a4_gemv_f16.cu"

#include "emu_w4a4_case.hpp"

typedef void staged_fn(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                       uint32_t, uint32_t, uint32_t);
typedef void shared_fn(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                       uint32_t, uint32_t);
static const struct {
    const char *name;
    staged_fn *staged;
    shared_fn *shared;
    uint32_t blocks;
} entries[] = {
    { "f16_8", w4a4_gemv_f16_8, nullptr, 1 },
    { "f16_16", w4a4_gemv_f16_16, nullptr, 2 },
    { "f16_32", nullptr, w4a4_gemv_f16_32, 4 },
    { "f16_64", nullptr, w4a4_gemv_f16_64, 8 },
};
enum { SENTINEL = 16 };

static size_t smem_of(uint32_t e, uint32_t sst) {
    return entries[e].staged ? (size_t)sst * entries[e].blocks * 16384 + 24576 : 0;
}

/* how: of a staged entry the grid, of a shared one the warps of a block. */
static std::vector<gdn_bf16> run(emu::bench &b, const w4a4_problem &p, uint32_t e, uint32_t sst, uint32_t how) {
    const std::string name = std::string(entries[e].name) + " " + std::to_string(p.M) + "x" + std::to_string(p.N) + "x" +
                             std::to_string(p.K) + " sst " + std::to_string(sst) + " how " + std::to_string(how);
    auto &C = b.inout<gdn_bf16>("C", (size_t)p.M * p.N + SENTINEL, [](size_t) { return gdn_bf16 { 0x7A7A }; });
    if (entries[e].staged)
        b.run(name.c_str(), how, 768, smem_of(e, sst), { C },
              [&] { entries[e].staged(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, sst); });
    else
        b.run(name.c_str(), (p.N + 16 * how - 1) / (16 * how), 32 * how, 0, { C },
              [&] { entries[e].shared(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K); });
    bool whole = true;
    for (uint32_t i = 0; i < SENTINEL; i++) whole &= C.p[(size_t)p.M * p.N + i].bits == 0x7A7A;
    b.expect(whole, (name + ": wrote behind C").c_str());
    return std::vector<gdn_bf16>(C.p, C.p + (size_t)p.M * p.N);
}
static bool same(const std::vector<gdn_bf16> &a, const std::vector<gdn_bf16> &b) {
    return std::memcmp(a.data(), b.data(), a.size() * 2) == 0;
}

static void all_entries(emu::bench &b, uint32_t M, uint32_t N, uint32_t K, bool wide) {
    w4a4_problem p(b, M, N, K, wide);
    p.f64();
    std::vector<gdn_bf16> first;
    uint32_t smallest = 4;
    const uint32_t full = (K / 128 + 7) / 8;
    for (uint32_t e = 0; e < 4; e++) {
        if (M > entries[e].blocks * 8) continue;
        if (smallest == 4) smallest = e;
        static const uint32_t grids[] = { 1, 3 }, warps[] = { 1, 4, 9, 12 };
        for (uint32_t sst = 0; sst <= (entries[e].staged ? full : 0); sst += sst == 1 && full > 2 ? full - 1 : 1)
            for (uint32_t i = 0; i < (entries[e].staged ? 2u : 4u); i++) {
                if (smem_of(e, sst) > 227 * 1024) continue; /* more than a block can have */
                const std::vector<gdn_bf16> C = run(b, p, e, sst, entries[e].staged ? grids[i] : warps[i]);
                if (first.empty()) first = C;
                b.expect(same(C, first), (std::string(entries[e].name) + ": not the bytes of the first entry").c_str());
            }
    }
    b.expect(p.matches(first.data()), "not within f32 summation error of the f64 sum");
    size_t other = 0; /* a bf16 beside: only where the f32 sums differ in their last bits */
    for (size_t i = 0; i < first.size(); i++) other += first[i].bits != p.want[i].bits;
    b.expect(other * 50 <= first.size(),
             (std::to_string(other) + " of " + std::to_string(first.size()) + " differ from the block-scaled form").c_str());
    std::vector<gdn_bf16> spoilt = first;
    spoilt[1].bits ^= 0x80;
    b.expect(!p.matches(spoilt.data()), "control: a bit of C flipped went unnoticed");
    uint8_t &w = *p.heaviest();
    w ^= 0x44;
    b.expect(!same(run(b, p, smallest, 0, 1), first), "control: a flipped weight byte went unnoticed");
    w ^= 0x44;
    p.bs->p[(&w - p.bq->p) / 8] ^= 0x10;
    b.expect(!same(run(b, p, smallest, full, 1), first), "control: another weight scale went unnoticed");
}

/* The conversions: every code under every scale, against its definition. */
static void conversions(emu::bench &b) {
    uint32_t wrong = 0, nan = 0;
    for (uint32_t s = 0; s < 256; s++)
        for (uint32_t c = 0; c < 16; c++) {
            uint32_t h[4];
            gdn_e2m1x8(c * 0x11111111u, h);
            const uint32_t product = gdn_mul_f16x2(h[c % 4], gdn_ue4m3_pair(s));
            const float lo = gdn_f16_lo(product), hi = gdn_f16_hi(product);
            if ((s & 0x7f) == 0x7f)
                nan += std::isnan(lo) && std::isnan(hi);
            else
                wrong += (double)lo != code_value(c) * scale_value(s & 0x7f) * 0x1p-14 || gdn_bits(lo) != gdn_bits(hi);
        }
    b.expect(wrong == 0 && nan == 32, "a code times a scale is not exact");
    uint32_t h[4];
    gdn_e2m1x8(0x76543210u, h);
    bool order = true;
    for (uint32_t i = 0; i < 4; i++)
        order &= (double)gdn_f16_lo(h[i]) == code_value(i) * 0x1p-14 && (double)gdn_f16_hi(h[i]) == code_value(i + 4) * 0x1p-14;
    b.expect(order, "the halves are not codes i and i + 4");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("every code and scale", conversions);
    c.test("M 1..64, ragged N, K of one chunk and of ragged stripes", [](emu::bench &b) {
        all_entries(b, 1, 17, 128, false);
        all_entries(b, 8, 40, 256, false);
        all_entries(b, 9, 33, 384, true);
        all_entries(b, 16, 130, 128, false);
        all_entries(b, 17, 20, 1152, false);
        all_entries(b, 32, 65, 128, true);
        all_entries(b, 33, 18, 256, false);
        all_entries(b, 64, 70, 128, true);
    });
    c.test("three chunks a warp, more tiles than groups", [](emu::bench &b) { all_entries(b, 12, 100, 2176, false); });
    c.test("one row of weights", [](emu::bench &b) { all_entries(b, 3, 1, 128, false); });
    c.test("a NaN scale of one token poisons that token only", [](emu::bench &b) {
        w4a4_problem p(b, 10, 16, 128, false);
        const std::vector<gdn_bf16> before = run(b, p, 1, 1, 1);
        p.as->p[gdn_w4a4_scale_at(1, 9, 0, 5)] = 0x7f;
        const std::vector<gdn_bf16> C = run(b, p, 1, 1, 1);
        bool nan = true;
        for (uint32_t n = 0; n < 16; n++) nan &= std::isnan(gdn_to_f32(C[9 * 16 + n]));
        b.expect(nan && std::memcmp(C.data(), before.data(), 9 * 16 * 2) == 0, "NaN where it should not be, or not where it should");
    });
    return c.done();
}
