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

#include <cmath>
#include <cstring>
#include <string>
extern "C" {
#include "cpu_kernels.h"
}

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

static const double e2m1[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
static double code_value(uint32_t c) {
    return c & 8 ? -e2m1[c & 7] : e2m1[c & 7];
}
static double scale_value(uint32_t s) {
    return s & 0x78 ? std::ldexp(8 + (int)(s & 7), (int)(s >> 3 & 15) - 10) : std::ldexp((int)(s & 7), -9);
}

/* wide: scales of any size on both sides; else 0x28..0x3F. */
struct problem {
    uint32_t M, N, K;
    bool wide;
    emu::tensor_of<uint8_t> *aq, *as, *bq, *bs;
    emu::tensor_of<float> *ag;
    std::vector<gdn_bf16> want;
    std::vector<double> exact, bound;

    problem(emu::bench &b, uint32_t m, uint32_t n, uint32_t k, bool w) : M(m), N(n), K(k), wide(w) {
        const uint32_t padded = (M + 7) / 8 * 8;
        auto any = [&](size_t) { return (uint8_t)b.bits(); };
        auto scale = [&](size_t) { return (uint8_t)(wide ? b.bits() % 0x7f : 0x28 + b.bits() % 0x18); };
        aq = &b.input<uint8_t>("Aq", (size_t)padded * K / 2, any);
        as = &b.input<uint8_t>("As", (size_t)padded * K / 16, scale);
        bq = &b.input<uint8_t>("Bq", (size_t)N * K / 2, any);
        bs = &b.input<uint8_t>("Bs", (size_t)N * K / 16, scale);
        ag = &b.input<float>("Ag", M, [&](size_t) { return b.uniform(0.1f, 2); });
        for (uint32_t r = M; r < padded; r++) /* tokens that are not there: NaN scales */
            for (uint32_t g = 0; g < K / 16; g++) as->p[gdn_w4a4_scale_at(K / 128, r, g / 8, g % 8)] = g % 2 ? 0x7f : 0xff;
        want.resize((size_t)M * N);
        const gdn_cpu_w4a4 c = call();
        gdn_cpu_w4a4_gemv(&c);
    }
    gdn_cpu_w4a4 call() {
        gdn_cpu_w4a4 c = {};
        c.aq = aq->p, c.as = as->p, c.ag = ag->p, c.bq = bq->p, c.bs = bs->p, c.C = want.data(), c.scale2 = 0.03f, c.M = M, c.N = N,
        c.K = K;
        return c;
    }
    /* The f64 sum over the very codes, and what an f32 sum of chunks truncated toward zero may lose. */
    void f64() {
        for (uint32_t m = 0; m < M; m++)
            for (uint32_t n = 0; n < N; n++) {
                double sum = 0, mag = 0;
                for (uint32_t k = 0; k < K; k++) {
                    const uint32_t g = k / 16, chunk = g / 8, in = g % 8;
                    const uint8_t a = aq->p[gdn_w4a4_codes_at(K / 128, m, chunk, in, k % 16 / 8) + k % 8 / 2],
                                  w = bq->p[((size_t)n * K + k) / 2];
                    const double x = code_value(a >> (k % 2 * 4) & 15) * scale_value(as->p[gdn_w4a4_scale_at(K / 128, m, chunk, in)]) *
                                     code_value(w >> (k % 2 * 4) & 15) * scale_value(bs->p[(size_t)n * (K / 16) + g]);
                    sum += x;
                    mag += std::fabs(x);
                }
                const double f = (double)ag->p[m] * (double)0.03f;
                exact.push_back(sum * f);
                bound.push_back((mag * (K / 64 + 16) * 0x1p-23 + std::fabs(sum) * 0x1p-8) * f);
            }
    }
    /* A byte of weights in the block whose scales weigh most for some token. */
    uint8_t *heaviest() {
        double best = 0;
        size_t at = 0;
        for (uint32_t m = 0; m < M; m++)
            for (uint32_t n = 0; n < N; n++)
                for (uint32_t g = 0; g < K / 16; g++) {
                    const size_t w = (size_t)n * (K / 16) + g;
                    const double x = scale_value(as->p[gdn_w4a4_scale_at(K / 128, m, g / 8, g % 8)]) * scale_value(bs->p[w]);
                    if (x > best) best = x, at = w * 8;
                }
        return bq->p + at;
    }
    bool matches(const gdn_bf16 *C) const {
        for (size_t i = 0; i < exact.size(); i++)
            if (!(std::fabs((double)gdn_to_f32(C[i]) - exact[i]) <= bound[i])) return false;
        return true;
    }
};

static const uint32_t SENTINEL = 16;

/* Runs one entry; C has a sentinel row behind it. Returns whether its bytes are those of the C form. */
static bool run(emu::bench &b, const problem &p, uint32_t e, uint32_t sst, uint32_t grid, gdn_bf16 **result = nullptr) {
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
    problem p(b, M, N, K, wide);
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
        problem p(b, 13, 50, 256, false);
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
        problem p(b, 10, 16, 128, false);
        p.as->p[gdn_w4a4_scale_at(1, 9, 0, 5)] = 0x7f;
        gdn_bf16 *C = nullptr;
        (void)run(b, p, 1, 0, 1, &C);
        bool nan = true, others = std::memcmp(C, p.want.data(), 9 * 16 * 2) == 0;
        for (uint32_t n = 0; n < 16; n++) nan &= std::isnan(gdn_to_f32(C[9 * 16 + n]));
        b.expect(nan && others, "NaN where it should not be, or not where it should");
    });
    return c.done();
}
