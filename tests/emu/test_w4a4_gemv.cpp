/* test_w4a4_gemv.cpp - the W4A4 projections on the emulator, with the exact model of the instruction: every entry gives the bytes of
 * the C form (and so of every other entry), within the error of an f32 sum of f64. */
#include "emu_check.hpp"

#define project project_tiles
#include "w4a4_gemv_mx.cu"
#undef project
#undef ENTRY_
#define project project_persistent
#include "w4a4_gemv_mx_ps.cu"
#undef project

#include "emu_w4a4_case.hpp"

typedef void tile_entry(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                        uint32_t, uint32_t);
typedef void ps_entry(const uint8_t *, const uint8_t *, const float *, const uint8_t *, const uint8_t *, float, gdn_bf16 *, uint32_t,
                      uint32_t, uint32_t, uint32_t, uint32_t *);
static const struct {
    const char *name;
    tile_entry *tiles;
    ps_entry *persistent;
    uint32_t blocks, rows;
} entries[] = {
    { "mx8", w4a4_gemv_mx8, nullptr, 1, 16 },           { "mx16", w4a4_gemv_mx16, nullptr, 2, 16 },
    { "mx16_nt2", w4a4_gemv_mx16_nt2, nullptr, 2, 32 }, { "mx32", w4a4_gemv_mx32, nullptr, 4, 16 },
    { "mx32_nt4", w4a4_gemv_mx32_nt4, nullptr, 4, 64 }, { "mx64", w4a4_gemv_mx64, nullptr, 8, 16 },
    { "mx64_nt2", w4a4_gemv_mx64_nt2, nullptr, 8, 32 }, { "mx16_ps", nullptr, w4a4_gemv_mx16_ps, 2, 16 },
    { "mx32_ps", nullptr, w4a4_gemv_mx32_ps, 4, 16 },
};

static const uint32_t SENTINEL = 16;

/* Runs one entry; C has a sentinel row behind it. Returns whether its bytes are those of the C form. */
static bool run(emu::bench &b, const w4a4_problem &p, uint32_t e, uint32_t sst, uint32_t grid, gdn_bf16 **result = nullptr) {
    const std::string name =
        std::string(entries[e].name) + " " + std::to_string(p.M) + "x" + std::to_string(p.N) + "x" + std::to_string(p.K);
    auto &C = b.inout<gdn_bf16>("C", (size_t)p.M * p.N + SENTINEL, [](size_t) { return gdn_bf16 { 0x7A7A }; });
    if (entries[e].tiles)
        b.run(name.c_str(), (p.N + entries[e].rows - 1) / entries[e].rows, 256, 0, { C },
              [&] { entries[e].tiles(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K); });
    else {
        auto &counter = b.inout<uint32_t>("counter", 2, [](size_t) { return 0u; });
        b.run((name + " sst " + std::to_string(sst)).c_str(), grid, 256, (size_t)8 * sst * entries[e].blocks * 576 + 8192, { C, counter },
              [&] { entries[e].persistent(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, sst, counter.p); });
        b.expect(counter.p[0] == 0 && counter.p[1] == 0, (name + ": the counter was not reset").c_str());
    }
    bool whole = true;
    for (uint32_t i = 0; i < SENTINEL; i++) whole &= C.p[(size_t)p.M * p.N + i].bits == 0x7A7A;
    b.expect(whole, (name + ": wrote behind C").c_str());
    if (result) *result = C.p;
    return std::memcmp(C.p, p.want.data(), p.want.size() * 2) == 0;
}

static void all_entries(emu::bench &b, uint32_t M, uint32_t N, uint32_t K, bool wide) {
    w4a4_problem p(b, M, N, K, wide);
    gdn_bf16 *C = nullptr;
    for (uint32_t e = 0; e < sizeof entries / sizeof *entries; e++) {
        if (M > entries[e].blocks * 8) continue;
        if (entries[e].blocks > 4 && M <= 8) continue; /* more blocks than that compute nothing new */
        const std::string at =
            std::string(entries[e].name) + ", M " + std::to_string(M) + ", N " + std::to_string(N) + ", K " + std::to_string(K);
        const uint32_t full = (K / 128 + 7) / 8;
        for (uint32_t sst = 0; sst <= (entries[e].persistent ? full : 0); sst += sst == 1 && full > 2 ? full - 1 : 1)
            b.expect(run(b, p, e, sst, 2, &C), (at + ": not the bytes of the C form, sst " + std::to_string(sst)).c_str());
    }
    p.f64();
    b.expect(p.matches(C), "not within f32 summation error of the f64 sum");
    C[1].bits ^= 0x80;
    b.expect(!p.matches(C), "control: a bit of C flipped went unnoticed");
    uint8_t &w = *p.heaviest();
    w ^= 0x44; /* two codes of a weight row */
    b.expect(!run(b, p, M <= 8 ? 0 : M <= 16 ? 2 : M <= 32 ? 4 : 6, 0, 1), "control: a flipped weight byte went unnoticed");
    w ^= 0x44;
    p.bs->p[(&w - p.bq->p) / 8] ^= 0x10; /* its scale */
    b.expect(!run(b, p, M <= 8 ? 0 : M <= 16 ? 1 : M <= 32 ? 3 : 5, 0, 1), "control: another weight scale went unnoticed");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("M 1..64, ragged N, K of one chunk and of ragged stripes", [](emu::bench &b) {
        all_entries(b, 1, 17, 128, false);
        all_entries(b, 8, 40, 256, false);
        all_entries(b, 9, 33, 384, true);
        all_entries(b, 16, 70, 128, false);
        all_entries(b, 17, 20, 1152, false);
        all_entries(b, 32, 65, 128, true);
        all_entries(b, 33, 18, 256, false);
        all_entries(b, 64, 34, 128, true);
    });
    c.test("three chunks a warp", [](emu::bench &b) { all_entries(b, 12, 16, 2176, true); });
    c.test("one row of weights", [](emu::bench &b) { all_entries(b, 3, 1, 128, false); });
    c.test("persistent: more blocks than tiles, one block, replays on the same counter", [](emu::bench &b) {
        w4a4_problem p(b, 13, 50, 256, false);
        for (uint32_t grid : { 1u, 3u, 4u, 9u }) b.expect(run(b, p, 7, 1, grid), "not the bytes of the C form");
        auto &C = b.inout<gdn_bf16>("C", p.want.size(), [](size_t) { return gdn_bf16 { 0x7A7A }; });
        auto &counter = b.inout<uint32_t>("counter", 2, [](size_t) { return 0u; });
        for (int replay = 0; replay < 3; replay++) {
            std::memset(C.p, 0x7A, C.n * 2);
            emu::launch({ 3 }, { 256 }, 8 * 2 * 576 + 8192, emu::options(),
                        [&] { w4a4_gemv_mx16_ps(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, 1, counter.p); });
            b.expect(std::memcmp(C.p, p.want.data(), C.n * 2) == 0, "a replay differs");
        }
        counter.p[0] = 1; /* control: a counter that is not zero skips a tile */
        std::memset(C.p, 0x7A, C.n * 2);
        emu::launch({ 3 }, { 256 }, 8 * 2 * 576 + 8192, emu::options(),
                    [&] { w4a4_gemv_mx16_ps(p.aq->p, p.as->p, p.ag->p, p.bq->p, p.bs->p, 0.03f, C.p, p.M, p.N, p.K, 1, counter.p); });
        b.expect(std::memcmp(C.p, p.want.data(), C.n * 2) != 0, "control: a dirty counter went unnoticed");
    });
    c.test("a NaN scale of one token poisons that token only", [](emu::bench &b) {
        w4a4_problem p(b, 10, 16, 128, false);
        p.as->p[gdn_w4a4_scale_at(1, 9, 0, 5)] = 0x7f;
        gdn_bf16 *C = nullptr;
        (void)run(b, p, 1, 0, 1, &C);
        bool nan = true, others = std::memcmp(C, p.want.data(), 9 * 16 * 2) == 0;
        for (uint32_t n = 0; n < 16; n++) nan &= std::isnan(gdn_to_f32(C[9 * 16 + n]));
        b.expect(nan && others, "NaN where it should not be, or not where it should");
    });
    c.test("NaN and Inf rows: the bytes of the C form", [](emu::bench &b) {
        w4a4_problem p(b, 6, 20, 128, false);
        p.ag->p[1] = NAN, p.ag->p[3] = -INFINITY, p.ag->p[4] = -NAN;
        p.bs->p[5 * 8 + 3] = 0xff; /* and a row of weights */
        const gdn_cpu_w4a4 call = p.call();
        gdn_cpu_w4a4_gemv(&call);
        for (uint32_t e = 0; e < sizeof entries / sizeof *entries; e++)
            b.expect(run(b, p, e, 1, 2), (std::string(entries[e].name) + ": not the bytes of the C form").c_str());
        for (uint32_t n = 0; n < 20; n++) b.expect(p.want[20 + n].bits == 0x7fff && p.want[80 + n].bits == 0x7fff, "not the NaN of the device");
        b.expect(p.want[5].bits == 0x7fff && p.want[6].bits != 0x7fff, "the NaN of a weight row is elsewhere");
    });
    return c.done();
}
