/* test_w4a4_f16.cpp - the W4A4 projections of hopper on the emulator, within the error of an f32 sum of f64 and of what the block-scaled
 * instruction gives. Staged entries: staging depths and grids give the same bytes. Wide ones: any number of groups and blocks, so pieces of
 * every kind; the workspace's flags are zero again. */
#include "emu_check.hpp"

#include "w4a4_gemv_f16.cu"
#include "w4a4_gemv_f16_wide.cu"

#include "emu_w4a4_case.hpp"

typedef void staged_fn(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                       uint32_t, uint32_t, uint32_t);
typedef void wide_fn(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                     uint32_t, uint32_t, uint32_t *);
static const struct {
    const char *name;
    staged_fn *staged;
    wide_fn *wide;
    uint32_t blocks, expanders, most; /* most: groups */
} entries[] = {
    { "f16_8", w4a4_gemv_f16_8, nullptr, 1, 0, 0 },
    { "f16_16", w4a4_gemv_f16_16, nullptr, 2, 0, 0 },
    { "f16_16_wide", nullptr, w4a4_gemv_f16_16_wide, 2, 1, 4 },
    { "f16_32", nullptr, w4a4_gemv_f16_32, 4, 1, 4 },
    { "f16_64", nullptr, w4a4_gemv_f16_64, 8, 2, 3 },
};
enum { SENTINEL = 16, ENTRIES = sizeof entries / sizeof *entries };

static size_t smem_of(uint32_t e, uint32_t sst) {
    return (size_t)sst * entries[e].blocks * 16384 + 24576;
}
static size_t wide_smem(uint32_t e, uint32_t groups) {
    return (size_t)entries[e].blocks * 8 * 1024 + 128 + 27648 * groups;
}

/* how: of a staged entry the grid; of a wide one 16 * blocks + groups. */
static std::vector<gdn_bf16> run(emu::bench &b, const w4a4_problem &p, uint32_t e, uint32_t sst, uint32_t how) {
    const std::string name = std::string(entries[e].name) + " " + std::to_string(p.M) + "x" + std::to_string(p.N) + "x" +
                             std::to_string(p.K) + " sst " + std::to_string(sst) + " how " + std::to_string(how);
    auto &C = b.inout<gdn_bf16>("C", (size_t)p.M * p.N + SENTINEL, [](size_t) { return gdn_bf16 { 0x7A7A }; });
    emu::options opt;
    opt.smem_align = 1024;
    if (entries[e].staged)
        b.run(name.c_str(), how, 768, smem_of(e, sst), { C },
              [&] { entries[e].staged(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, sst); });
    else {
        const uint32_t grid = how / 16, groups = how % 16;
        auto &ws = b.inout<uint32_t>("workspace", 1024 + (size_t)grid * groups * entries[e].blocks * 512, [](size_t i) { return i < 1024 ? 0u : 0x7fc00000u; });
        b.run(name.c_str(), grid, 128 * (groups + entries[e].expanders), wide_smem(e, groups), opt, { C, ws },
              [&] { entries[e].wide(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, ws.p); });
        bool clean = true;
        for (uint32_t i = 0; i < 1024; i++) clean &= ws.p[i] == 0;
        b.expect(clean, (name + ": a flag was left").c_str());
    }
    bool whole = true;
    for (uint32_t i = 0; i < SENTINEL; i++) whole &= C.p[(size_t)p.M * p.N + i].bits == 0x7A7A;
    b.expect(whole, (name + ": wrote behind C").c_str());
    return std::vector<gdn_bf16>(C.p, C.p + (size_t)p.M * p.N);
}
/* Blocks that have something to do. */
static uint32_t how_of(const w4a4_problem &p, uint32_t grid, uint32_t groups) {
    const uint32_t units = (p.N + 64 * groups - 1) / (64 * groups) * ((p.K + 255) / 256);
    return 16 * (grid < units ? grid : units) + groups;
}
static bool same(const std::vector<gdn_bf16> &a, const std::vector<gdn_bf16> &b) {
    return std::memcmp(a.data(), b.data(), a.size() * 2) == 0;
}

static void same_as(emu::bench &b, std::vector<gdn_bf16> &first, const std::vector<gdn_bf16> &C, uint32_t e) {
    if (first.empty()) first = C;
    b.expect(same(C, first), (std::string(entries[e].name) + ": not the bytes of the first run").c_str());
}
static void close(emu::bench &b, const w4a4_problem &p, const std::vector<gdn_bf16> &C) {
    b.expect(p.matches(C.data()), "not within f32 summation error of the f64 sum");
    size_t other = 0; /* a bf16 beside: only where the f32 sums differ in their last bits */
    for (size_t i = 0; i < C.size(); i++) other += C[i].bits != p.want[i].bits;
    b.expect(other * 50 <= C.size(),
             (std::to_string(other) + " of " + std::to_string(C.size()) + " differ from the block-scaled form").c_str());
}
static void staged_entries(emu::bench &b, const w4a4_problem &p, std::vector<gdn_bf16> &first) {
    const uint32_t full = (p.K / 128 + 7) / 8;
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t sst = 0; p.M <= entries[e].blocks * 8 && sst <= full; sst += sst == 1 && full > 2 ? full - 1 : 1)
            for (uint32_t grid = 1; grid <= 3; grid += 2)
                if (smem_of(e, sst) <= 227 * 1024) same_as(b, first, run(b, p, e, sst, grid), e);
}
static void all_entries(emu::bench &b, uint32_t M, uint32_t N, uint32_t K, bool wide) {
    w4a4_problem p(b, M, N, K, wide);
    p.f64();
    const uint32_t smallest = M <= 8 ? 0 : M <= 16 ? 1 : M <= 32 ? 3 : 4, full = (K / 128 + 7) / 8;
    std::vector<gdn_bf16> first;
    if (M <= 16) {
        staged_entries(b, p, first);
        close(b, p, first);
    }
    for (uint32_t e = 2; e < ENTRIES; e++) {
        std::vector<gdn_bf16> C;
        for (uint32_t groups = 1; M <= entries[e].blocks * 8 && groups <= entries[e].most; groups += 2)
            for (uint32_t grid = 1; grid <= 7; grid += grid == 1 ? 1 : 5) {
                C = run(b, p, e, 0, how_of(p, grid, groups));
                close(b, p, C);
                if (e == smallest && groups == 1 && grid == 1) first = C; /* one sum: no pieces */
            }
    }
    std::vector<gdn_bf16> spoilt = first;
    spoilt[1].bits ^= 0x80;
    b.expect(!p.matches(spoilt.data()), "control: a bit of C flipped went unnoticed");
    uint8_t &w = *p.heaviest();
    w ^= 0x44;
    b.expect(!same(run(b, p, smallest, 0, M > 16 ? 17 : 1), first), "control: a flipped weight byte went unnoticed");
    w ^= 0x44;
    p.bs->p[(&w - p.bq->p) / 8] ^= 0x10;
    b.expect(!same(run(b, p, smallest, full, M > 16 ? 17 : 1), first), "control: another weight scale went unnoticed");
}

/* The conversions: every code under every scale, against its definition. */
static void conversions(emu::bench &b) {
    uint32_t wrong = 0, nan = 0;
    for (uint32_t s = 0; s < 256; s++)
        for (uint32_t c = 0; c < 16; c++) {
            uint32_t h[4];
            gdn_e2m1x8(c * 0x11111111u, h);
            const uint32_t low = gdn_scale_f16x2(h[c % 4], gdn_ue4m3_two(s | 0x3800u), 0),
                           product = gdn_scale_f16x2(h[c % 4], gdn_ue4m3_two(s << 8 | 0x38u), 1);
            if (low != product && (s & 0x7f) != 0x7f) wrong++;
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
    c.test("what the asynchronous products read was fenced", [](emu::bench &b) {
        w4a4_problem p(b, 17, 64, 256, false);
        auto &C = b.inout<gdn_bf16>("C", 17 * 64, [](size_t) { return gdn_bf16 { 0x7A7A }; });
        auto &ws = b.inout<uint32_t>("workspace", 1024 + 2048, [](size_t) { return 0u; });
        emu::options opt;
        opt.smem_align = 1024;
        opt.check_proxy = true;
        b.run("f16_32", 1, 256, wide_smem(3, 1), opt, { C, ws },
              [&] { w4a4_gemv_f16_32(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, ws.p); });
    });
    c.test("pieces: the same bytes again on the same workspace, whatever the number of rows; a flag that is not zero is noticed",
           [](emu::bench &b) {
               w4a4_problem p(b, 24, 150, 1408, true);
               const std::vector<gdn_bf16> all = run(b, p, 3, 0, how_of(p, 5, 1));
               auto &C = b.inout<gdn_bf16>("C", all.size(), [](size_t) { return gdn_bf16 { 0x7A7A }; });
               auto &ws = b.inout<uint32_t>("workspace", 1024 + 5 * 2048, [](size_t) { return 0u; });
               emu::options opt;
               opt.smem_align = 1024;
               auto launch = [&](uint32_t M) {
                   std::memset(C.p, 0x7A, C.n * 2);
                   emu::launch({ 5 }, { 256 }, wide_smem(3, 1), opt,
                               [&] { w4a4_gemv_f16_32(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, M, p.N, p.K, ws.p); });
               };
               for (uint32_t M : { 24u, 17u, 3u, 24u }) {
                   launch(M);
                   b.expect(std::memcmp(C.p, all.data(), (size_t)M * p.N * 2) == 0, "not the bytes of the first run");
               }
               for (uint32_t i = 1; i < 6; i++) ws.p[i] = 1; /* control: sums that nobody has handed over */
               std::memset(ws.p + 1024, 0x7f, 5 * 2048 * 4);
               launch(24);
               b.expect(std::memcmp(C.p, all.data(), all.size() * 2) != 0 || ws.p[1] + ws.p[2] + ws.p[3] + ws.p[4] + ws.p[5] != 0,
                        "control: dirty flags went unnoticed");
           });
    c.test("NaN and Inf rows have the device's NaN", [](emu::bench &b) {
        w4a4_problem p(b, 6, 20, 256, false);
        p.ag->p[1] = NAN, p.ag->p[3] = -INFINITY, p.ag->p[4] = -NAN;
        p.bs->p[5 * 16 + 3] = 0xff; /* and a row of weights */
        for (uint32_t e = 0; e < ENTRIES; e++) {
            const std::vector<gdn_bf16> C = run(b, p, e, 1, entries[e].staged ? 1 : how_of(p, 2, 1));
            bool right = true;
            for (uint32_t i = 0; i < 6 * 20; i++) {
                const uint32_t m = i / 20, bits = C[i].bits;
                right &= m == 1 || m == 4 || i % 20 == 5 ? bits == 0x7fff : m == 3 ? (bits & 0x7fff) == 0x7f80 : (bits & 0x7fff) < 0x7f80;
            }
            b.expect(right, (std::string(entries[e].name) + ": another NaN, or elsewhere").c_str());
        }
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
