/* test_gdn_wn_prepare.cpp - the first kernel of the fast prefill by W and N on the emulator: K, Q, W, N and scalars of every chunk against
 * f64. */
#include "emu_check.hpp"

#include "gdn_wn_prepare.cuh"

#include "emu_prefill_case.hpp"
#include <cstdlib>

/* What is prepared, poisoned with NaN. */
struct prepared {
    emu::tensor_of<uint8_t> *k, *q, *w, *n;
    emu::tensor_of<float> *scalars;
    prepared(emu::bench &b, const prefill_case &c, uint32_t chunks) {
        const size_t all = std::max(chunks, 1u);
        auto tile = [&](const char *name, size_t bytes) { return &b.inout<uint8_t>(name, bytes, [](size_t) { return (uint8_t)0xff; }); };
        k = tile("K16", all * c.nk * 16384), q = tile("Q16", all * c.nk * 16384);
        w = tile("W16", all * c.nv * 16384), n = tile("N16", all * c.nv * 8192);
        scalars = &b.inout<float>("scalars", all * c.nv * gdn_wn::SCALARS, [](size_t) { return NOT_A_NUMBER; });
    }
    gdn_wn::scratch to() const { return { k->p, q->p, w->p, n->p, scalars->p }; }
};
/* whole, heads: as the kernel's; heads 0: all. */
static void run_prepare(emu::bench &b, const prefill_case &c, prefill_data &d, prepared &w, bool proxy, uint32_t whole = ~0u,
                        uint32_t heads = 0) {
    const uint32_t all = gdn_chunks_of(c.longest()), ratio = c.nv / c.nk, units = c.nk * all * c.batch();
    if (!heads) heads = ratio;
    whole = std::min(whole, units);
    const gdn_wn::prepare_args o = { d.q->p + c.shift,
                                     d.k->p + c.shift,
                                     d.gb->p,
                                     d.gb->p + c.nv,
                                     w.to(),
                                     c.longest(),
                                     all,
                                     c.nk,
                                     c.nv,
                                     c.qk_stride(),
                                     c.gb_stride(),
                                     c.packed ? d.cu->p : nullptr,
                                     c.packed,
                                     c.batch(),
                                     whole,
                                     heads };
    const gdn_rule_ext ext { d.in_tab->p, d.out_tab->p, nullptr, nullptr, 0, c.scale, 0, 0, 0 };
    b.run("prepare", { whole + (units - whole) * ((ratio + heads - 1) / heads) }, 256, gdn_wn::PREPARE_SMEM, swizzled(proxy),
          { *w.k, *w.q, *w.w, *w.n, *w.scalars }, [&] { gdn_wn::prepare(o, ext); });
}

struct expected {
    std::vector<double> k, q, w, n, scalars; /* row by row; NaN: not written */
};
static double log_of(float gate) {
    return LOG_GATE ? std::fmax((double)gate, std::log(1e-30)) : std::log(std::fmax((double)gate, 1e-30));
}
static expected solve(const prefill_data &d, const prefill_case &c) {
    enum { D = 128, C = 64 };
    expected x;
    const double nan = std::nan(""), scale = c.scale != 0 ? (double)c.scale : 1 / std::sqrt((double)D);
    x.k.assign((size_t)d.chunks * c.nk * C * D, nan), x.q = x.k;
    x.w.assign((size_t)d.chunks * c.nv * C * D, nan);
    x.n.assign((size_t)d.chunks * c.nv * C * C, nan);
    x.scalars.assign((size_t)d.chunks * c.nv * gdn_wn::SCALARS, nan);
    size_t row = c.first, chunk = 0;
    for (uint32_t s = 0; s < c.batch(); row += c.len[s++])
        for (uint32_t t0 = 0; t0 < c.len[s]; t0 += C, chunk++) {
            if (c.is_pad(s)) continue;
            const uint32_t rows = std::min<uint32_t>(C, c.len[s] - t0);
            for (uint32_t h = 0; h < c.nv; h++) {
                const uint32_t kh = c.key_head(h);
                double *const k = &x.k[(chunk * c.nk + kh) * C * D], *const q = &x.q[(chunk * c.nk + kh) * C * D];
                double *const w = &x.w[(chunk * c.nv + h) * C * D], *const n = &x.n[(chunk * c.nv + h) * C * C];
                double *const to = &x.scalars[(chunk * c.nv + h) * gdn_wn::SCALARS];
                double gc[C], beta[C], sum = 0;
                static double T[C][C], P[C][C];
                for (uint32_t i = 0; i < C; i++) {
                    const bool in = i < rows;
                    const float *const gb = d.gb->p + (row + t0 + i) * c.gb_stride();
                    const size_t at = c.shift + (row + t0 + i) * c.qk_stride() + kh * D;
                    gc[i] = sum += in ? log_of(gb[h]) : 0;
                    beta[i] = in ? (double)gb[c.nv + h] : 0;
                    for (uint32_t e = 0; e < D; e++) {
                        k[i * D + e] = in ? (double)gdn_to_f32(d.k->p[at + e]) : 0;
                        q[i * D + e] = in ? (double)gdn_to_f32(d.q->p[at + e]) : 0;
                    }
                }
                for (uint32_t i = 0; i < C; i++) {
                    double L[C] = {};
                    for (uint32_t l = 0; l <= i; l++) {
                        P[i][l] = 0;
                        for (uint32_t e = 0; e < D; e++)
                            L[l] += beta[i] * k[i * D + e] * k[l * D + e], P[i][l] += q[i * D + e] * k[l * D + e];
                    }
                    for (uint32_t l = 0; l < C; l++) {
                        T[i][l] = i == l;
                        for (uint32_t j = l; j < i; j++) T[i][l] -= L[j] * T[j][l];
                    }
                }
                for (uint32_t l = 0; l < C; l++) {
                    to[gdn_wn::spot(l)] = std::exp(gc[l]);
                    for (uint32_t e = 0; e < D; e++) {
                        double y = 0;
                        for (uint32_t i = l; i < C; i++) y += T[i][l] * k[i * D + e];
                        w[l * D + e] = y * beta[l] * std::exp(gc[C - 1] - gc[l]);
                    }
                    for (uint32_t i = 0; i < C; i++) {
                        double y = 0;
                        for (uint32_t j = l; j <= i; j++) y += P[i][j] * T[j][l];
                        n[i * C + l] = i < l ? 0 : y * scale * beta[l] * std::exp(gc[i] - gc[l]);
                    }
                }
                for (uint32_t i = 0; i < 4; i++) to[gdn_wn::AT_ALL + i] = std::exp(gc[C - 1]);
            }
        }
    return x;
}

/* Swizzled panels row by row. */
static std::vector<double> plain(const emu::tensor_of<uint8_t> &t, uint32_t panels) {
    std::vector<double> to(t.n / 2);
    const size_t width = 64 * panels;
    for (size_t i = 0; i < to.size(); i++) {
        const size_t tile = i / (64 * width), row = i / width % 64, column = i % width;
        uint16_t bits;
        std::memcpy(&bits, t.p + (tile * panels + column / 64) * 8192 + gdn_wn::place((uint32_t)row, (uint32_t)column % 64), 2);
        to[i] = bits == 0xffff ? std::nan("") : (double)gdn_to_f32(gdn_f16 { bits });
    }
    return to;
}
/* Relative RMS of all, and the worst row's error beside what rounding its largest element to f16 may cost, 2^-11 of it. */
static void compare(emu::bench &b, const char *name, const std::vector<double> &got, const std::vector<double> &want, size_t width,
                    double rms, double row_limit) {
    double e2 = 0, w2 = 0, worst = 0, row_worst = 0;
    bool untouched = true;
    for (size_t r = 0; r < want.size() / width; r++) {
        double e = 0, m = 0;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            if (std::isnan(want[i])) {
                untouched = untouched && std::isnan(got[i]);
                continue;
            }
            const double x = std::fabs(got[i] - want[i]);
            e = std::fmax(e, std::isnan(x) ? 1e30 : x), m = std::fmax(m, std::fabs(want[i]));
            e2 += x * x, w2 += want[i] * want[i];
        }
        worst = std::fmax(worst, e);
        row_worst = std::fmax(row_worst, e / (m / 2048 + 6e-8));
    }
    const double relative = w2 > 0 ? std::sqrt(e2 / w2) : std::sqrt(e2);
    if (std::getenv("PRINT_ERRORS")) std::printf("  %-7s rms %.2e  worst %.2e  rows %.2f\n", name, relative, worst, row_worst);
    b.expect(untouched, (std::string(name) + ": something was written that is not its own").c_str());
    b.expect(relative <= rms && row_worst <= row_limit,
             (std::string(name) + ": off by " + std::to_string(relative) + ", worst row " + std::to_string(row_worst)).c_str());
}
/* rows: how far off W and N may be in units of 2^-11 of a row's largest element. */
static void check_prepared(emu::bench &b, const prefill_case &c, const prefill_data &d, const prepared &w, double rows_w, double rows_n,
                           double rms = 2.4e-4) {
    const expected x = solve(d, c);
    compare(b, "K", plain(*w.k, 2), x.k, 128, 1e-5, 1);
    compare(b, "Q", plain(*w.q, 2), x.q, 128, 1e-5, 1);
    compare(b, "W", plain(*w.w, 2), x.w, 128, rms, rows_w);
    compare(b, "N", plain(*w.n, 1), x.n, 64, rms, rows_n);
    compare(b, "scalars", std::vector<double>(w.scalars->p, w.scalars->p + w.scalars->n), x.scalars, gdn_wn::SCALARS, 2e-5, 1);
}
static void whole(emu::bench &b, const prefill_case &c, bool proxy = false) {
    prefill_data d = make_prefill(b, c);
    prepared w(b, c, d.chunks);
    run_prepare(b, c, d, w, proxy);
    check_prepared(b, c, d, w, 1.1, 1.1);
}
int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("tails", [](emu::bench &b) {
        for (uint32_t T : { 1u, 63u, 64u, 65u }) {
            prefill_case p;
            p.nv = 1;
            p.len = { T };
            whole(b, p, T == 65);
        }
    });
    c.test("value heads of a key head: 1, 2, 3, 4, 8", [](emu::bench &b) {
        for (uint32_t r : { 1u, 2u, 3u, 4u, 8u }) {
            prefill_case p;
            p.nk = r == 3 ? 2 : 1;
            p.nv = p.nk * r;
            p.len = { r == 3 ? 40u : 67u };
            whole(b, p, r == 3 && emu::small_or(false, true));
        }
    });
    c.test("packed: zero length, padding, first row above 0, NaN rows, wide rows, a scale", [](emu::bench &b) {
        for (bool wide : { false, true }) {
            prefill_case p;
            p.packed = true;
            p.first = 5;
            p.nk = 2, p.nv = 6;
            p.len = { 3, 0, 70, 17, 0, 5 };
            p.pad = { false, false, false, true, false, false };
            p.shift = wide ? 8 : 0;
            p.pad_stride = 8;
            p.scale = wide ? 0.25f : 0.0f;
            whole(b, p);
        }
    });
    c.test("value heads of a unit by blocks of their own: the same bytes", [](emu::bench &b) {
        const struct { uint32_t whole, heads; } shares[] = { { 0, 1 }, { 0, 2 }, { 2, 2 } };
        prefill_case p;
        p.nv = 3;
        p.len = { 64, 100 };
        p.packed = true;
        prefill_data d = make_prefill(b, p);
        prepared all(b, p, d.chunks);
        run_prepare(b, p, d, all, false);
        for (const auto &s : shares) {
            prepared some(b, p, d.chunks);
            run_prepare(b, p, d, some, false, s.whole, s.heads);
            b.same_bytes(*all.k, *some.k);
            b.same_bytes(*all.q, *some.q);
            b.same_bytes(*all.w, *some.w);
            b.same_bytes(*all.n, *some.n);
            b.same_bytes(*all.scalars, *some.scalars);
        }
    });
    c.test("hard inputs: equal keys, keys alike, small decays", [](emu::bench &b) {
        const struct {
            float common, gate_lo, gate_hi, beta_lo, beta_hi;
        } kinds[] = { { 1, 1, 1, 1, 1 },           { 1, 0.99f, 1, 0.8f, 1 },  { 0.5f, 1, 1, 1, 1 },     { 0.5f, 0.9f, 1, 0, 1 },
                      { 0.9f, 1, 1, 1, 1 },        { 0.9f, 0.999f, 1, 0, 1 }, { 0, 1, 1, 1, 1 },        { 0, 1.0e-12f, 1.03e-12f, 0, 1 },
                      { 0.9f, 1.0e-12f, 1, 1, 1 }, { 0, 0, 0, 0, 1 },         { 0, 0.01f, 0.5f, 0, 1 }, { 0.5f, 0.99f, 1, -1, 2 } };
        for (const auto &k : kinds) {
            if (LOG_GATE && k.gate_lo == 0) continue;
            prefill_case p;
            p.nv = 2;
            p.len = { 64, 64 };
            p.gate_lo = k.gate_lo, p.gate_hi = k.gate_hi;
            p.beta_lo = k.beta_lo, p.beta_hi = k.beta_hi;
            prefill_data d = make_prefill(b, p);
            if (k.common > 0) d.k = alike(b, *d.k, k.common, p);
            prepared w(b, p, d.chunks);
            run_prepare(b, p, d, w, false);
            if (std::getenv("PRINT_ERRORS"))
                std::printf("keys %g decay %g..%g beta %g..%g\n", k.common, k.gate_lo, k.gate_hi, k.beta_lo, k.beta_hi);
            check_prepared(b, p, d, w, 1.1, 1.1);
        }
    });
    return c.done();
}
