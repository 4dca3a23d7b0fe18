/* test_w4a4_quant.cpp - w4a4_quant_rows on the emulator: the bytes of the C form, whatever the row holds. */
#include "emu_check.hpp"

#include "w4a4_quant.cu"

#include <cmath>
#include <cstring>
#include <string>
extern "C" {
#include "cpu_kernels.h"
}

enum content { NOISE, TIES, WIDE, TINY, OUTLIER, ZEROS, POISON, MIXED, CONTENTS };

/* Value k of a row of this content. */
static float value(emu::bench &b, int what, uint32_t row, uint32_t k) {
    static const float tie[] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6, -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5, -0.0f };
    switch (what) {
    case NOISE: return b.uniform(-1, 1) * (float)(1 + row);
    case TIES: return k == 127 ? 2688.0f : tie[k % 16] * (float)(1u << (k / 16 % 8)); /* Ag 1, scales 1, 2, 4, ..: points of decision */
    case WIDE: return std::ldexp(b.uniform(-1, 1), -(int)(k / 16 * 3 % 40));          /* scales from the largest through subnormals to 0 */
    case TINY: return std::ldexp((float)(b.bits() % 255) - 127, -133 - (int)(row % 2)); /* subnormal Ag, down to 0 */
    case OUTLIER: return k == 77 ? -3.0e38f : b.uniform(-1, 1);
    case ZEROS: return row % 2 ? -0.0f : 0.0f;
    case POISON: return k == 13 + 16 * row ? (row % 3 == 0 ? NAN : row % 3 == 1 ? INFINITY : -INFINITY) : b.uniform(-1, 1);
    default: /* every finite bf16; the largest of a row from 1 to 255 binades */
        return gdn_to_f32(gdn_bf16 { (uint16_t)(b.bits() % ((1 + row * 29 % 255) * 128) | (b.bits() & 0x8000u)) });
    }
}

static void one(emu::bench &b, int what, uint32_t M, uint32_t K, uint32_t pad, uint32_t shift) {
    const uint32_t stride = K + pad, padded = (M + 7) / 8 * 8;
    const uint8_t fill = 0xA5;
    auto &A = b.input<gdn_bf16>("A", shift + (size_t)M * stride, [&](size_t i) {
        const size_t at = i - shift;
        if (i < shift || at % stride >= K) return gdn_bf16 { 0x7fc0 };
        return gdn_to_bf16(
            value(b, what == CONTENTS ? (int)(at / stride % CONTENTS) : what, (uint32_t)(at / stride), (uint32_t)(at % stride)));
    });
    auto fill_with = [&](size_t) { return fill; };
    auto &aq = b.inout<uint8_t>("Aq", (size_t)padded * K / 2, fill_with);
    auto &as = b.inout<uint8_t>("As", (size_t)padded * K / 16, fill_with);
    auto &ag = b.output<float>("Ag", M);
    std::vector<uint8_t> want_q(aq.n, fill), want_s(as.n, fill);
    std::vector<float> want_g(M);
    gdn_cpu_w4a4 c = {};
    c.A = A.p + shift, c.aq = want_q.data(), c.as = want_s.data(), c.ag = want_g.data(), c.M = M, c.K = K, c.a_stride = stride;
    gdn_cpu_w4a4_quant(&c);
    const std::string at = "content " + std::to_string(what) + ", M " + std::to_string(M) + ", K " + std::to_string(K) + ", stride " +
                           std::to_string(stride) + ", shift " + std::to_string(shift);
    b.run(at.c_str(), M, 256, 0, { aq, as, ag }, [&] {
        if (pad || shift)
            w4a4_quant_rows_ext(A.p + shift, aq.p, as.p, ag.p, K, stride);
        else
            w4a4_quant_rows(A.p, aq.p, as.p, ag.p, K);
    });
    auto same = [&] {
        return std::memcmp(aq.p, want_q.data(), aq.n) == 0 && std::memcmp(as.p, want_s.data(), as.n) == 0 &&
               std::memcmp(ag.p, want_g.data(), M * 4) == 0;
    };
    b.expect(same(), (at + ": not the bytes of the C form").c_str());
    want_s[gdn_w4a4_scale_at(K / 128, M - 1, 0, 3)] ^= 1;
    b.expect(!same(), "control: a changed scale went unnoticed");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    static const char *const names[] = { "noise",      "ties",          "scales of every size", "subnormal rows",
                                         "an outlier", "rows of zeros", "NaN and Inf",          "every finite bf16" };
    for (int what = 0; what < CONTENTS; what++)
        c.test(names[what], [&](emu::bench &b) {
            one(b, what, 5, 256, 0, 0);
            one(b, what, 1, emu::small_or(1152u, 5120u), 0, 0);
        });
    c.test("rows apart, on any 2-byte boundary; all contents in one launch", [](emu::bench &b) {
        one(b, CONTENTS, 16, 384, 3, 0);
        one(b, CONTENTS, 9, 128, 8, 1);
        one(b, CONTENTS, 17, 640, 0, 8);
    });
    c.test("ten million values", [](emu::bench &b) {
        for (int what : { NOISE, WIDE, OUTLIER, MIXED, MIXED }) one(b, what, 64, emu::small_or(256u, 32768u), 0, 0);
    });
    c.test("the longest row", [](emu::bench &b) { one(b, NOISE, 2, emu::small_or(4096u, 32768u), 0, 0); });
    return c.done();
}
