/* emu_w4a4_case.hpp - a W4A4 projection for the emulator: random codes and scales, NaN scales in the tokens that are not there, the
 * result of the C form and the f64 sum. Included behind the kernels, whose storage order it uses. */
#pragma once
#include "emu_check.hpp"
#include <cmath>
#include <cstring>
#include <string>
extern "C" {
#include "cpu_kernels.h"
}

static const double w4a4_e2m1[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
static inline double code_value(uint32_t c) {
    return c & 8 ? -w4a4_e2m1[c & 7] : w4a4_e2m1[c & 7];
}
static inline double scale_value(uint32_t s) {
    return s & 0x78 ? std::ldexp(8 + (int)(s & 7), (int)(s >> 3 & 15) - 10) : std::ldexp((int)(s & 7), -9);
}

/* wide: scales of any size on both sides; else 0x28..0x3F. */
struct w4a4_problem {
    uint32_t M, N, K;
    bool wide;
    emu::tensor_of<uint8_t> *aq, *as, *bq, *bs;
    emu::tensor_of<float> *ag;
    std::vector<gdn_bf16> want;
    std::vector<double> exact, bound;

    w4a4_problem(emu::bench &b, uint32_t m, uint32_t n, uint32_t k, bool w) : M(m), N(n), K(k), wide(w) {
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
