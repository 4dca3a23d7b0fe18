/* test_gdn_gates.cpp - gdn_gates against extended precision: values, clamps, rows of their own strides, interleaved heads. */
#include "emu_check.hpp"
#include "ssm_preprocess.cu"

/* ---- the formula again, in extended precision ---- */
static long double want_g(double a, double A_log, double dt) {
    const long double x = (long double)a + dt;
    return -expl(A_log > 20 ? 20.0L : (long double)A_log) * log1pl(expl(x > 20 ? 20.0L : x));
}
static long double want_beta(double b) {
    return 1 / (1 + expl(-(long double)b));
}
/* 2e-6 of the value; below the normal range half the spacing of an f32 is added. */
static bool near(float got, long double want, long double tolerance = 2e-6L) {
    return fabsl((long double)got - want) <= tolerance * fabsl(want) + 0.75e-45L;
}
static float bf16_of(float x) {
    return gdn_to_f32(gdn_to_bf16(x));
}

struct shape {
    uint32_t rows, nv, vpg, pad, log_form, blocks; /* blocks: of the grid, 0 = enough */
};
static void one_shape(emu::bench &b, const shape &s) {
    const uint32_t row = (s.vpg ? 2 * s.nv : s.nv), stride = row + s.pad, gate_stride = 2 * s.nv + s.pad;
    const size_t n = (size_t)s.rows * stride;
    auto &a = b.input<gdn_bf16>("a", n, [&](size_t) { return gdn_to_bf16(b.uniform(-20, 22)); });
    auto &bb = b.input<gdn_bf16>("b", n, [&](size_t) { return gdn_to_bf16(b.uniform(-12, 12)); });
    auto &A = b.input<float>("A_log", s.nv, [&](size_t) { return b.uniform(-8, 3); });
    auto &dt = b.input<float>("dt_bias", s.nv, [&](size_t) { return b.uniform(-6, 2); });
    auto &out = b.inout<float>("out", (size_t)s.rows * gate_stride, [](size_t) { return -7.0f; });
    /* interleaved: b is the row, a the row from vpg on; a's last row then ends vpg earlier */
    const gdn_bf16 *const a_at = a.p + (s.vpg ? s.vpg : 0);
    const uint32_t blocks = s.blocks ? s.blocks : (s.rows * s.nv + 255) / 256;
    b.run("gdn_gates", { blocks }, 256, 0, { out },
          [&] { gdn_gates(a_at, bb.p, A.p, dt.p, out.p, s.rows, s.nv, stride, stride, gate_stride, s.vpg, s.log_form); });
    unsigned wrong = 0, touched = 0, control = 0;
    for (uint32_t r = 0; r < s.rows; r++) {
        for (uint32_t h = 0; h < s.nv; h++) {
            const uint32_t at = s.vpg ? h / s.vpg * 2 * s.vpg + h % s.vpg : h;
            const double x = gdn_to_f32(a_at[(size_t)r * stride + at]), y = gdn_to_f32(bb.p[(size_t)r * stride + at]);
            const long double g = want_g(x, A.p[h], dt.p[h]), want = s.log_form ? g : expl(g);
            const float *o = out.p + (size_t)r * gate_stride;
            wrong += !near(o[h], want) || !near(o[s.nv + h], want_beta(y));
            control += !near(bf16_of(o[s.nv + h]), want_beta(y));
        }
        for (uint32_t i = 2 * s.nv; i < gate_stride; i++) touched += out.p[(size_t)r * gate_stride + i] != -7.0f;
    }
    b.expect(wrong == 0, "every gate and beta within 2e-6");
    b.expect(touched == 0, "nothing beside the row");
    b.expect(control > s.rows * s.nv / 2, "control: a beta rounded to bf16 is noticed");
}

/* ---- one element at a time, without a launch of its own ---- */
static void values(emu::bench &b) {
    struct {
        float a, A_log, dt;
    } list[4096];
    uint32_t n = 0;
    const float as[] = { -3e38f, -1e4f,       -200, -104, -87, -50,     -30, -20.0625f, -19.875f, -17, -10, -1,   -0.00390625f,
                         0,      0.00390625f, 0.5f, 1,    10,  19.875f, 20,  20.125f,   88,       89,  200, 1e4f, 3e38f };
    const float logs[] = { -1000, -100, -8, -1, 0, 1, 2.7183f, 3.4567f, 10, 19.9f, 20, 20.1f, 100, 3e38f };
    for (float a : as)
        for (float A : logs)
            for (float dt : { 0.0f, -0.12345f, 3.3f }) list[n++] = { bf16_of(a), A, dt };
    while (n < 4096) list[n++] = { bf16_of(b.uniform(-110, 25)), b.uniform(-20, 20), b.uniform(-3, 3) };
    /* head h of one row has parameters of its own, so one row of 4096 heads holds all */
    auto &a = b.input<gdn_bf16>("a", n, [&](size_t i) { return gdn_to_bf16(list[i].a); });
    auto &bb = b.input<gdn_bf16>("b", n, [&](size_t i) { return gdn_to_bf16(i % 8 ? b.uniform(-110, 110) : list[i].a); });
    auto &A = b.input<float>("A_log", n, [&](size_t i) { return list[i].A_log; });
    auto &dt = b.input<float>("dt_bias", n, [&](size_t i) { return list[i].dt; });
    for (uint32_t log_form = 0; log_form < 2; log_form++) {
        auto &out = b.output<float>(log_form ? "log" : "linear", 2 * (size_t)n);
        b.run("gdn_gates", { n / 256 }, 256, 0, { out }, [&] { gdn_gates(a.p, bb.p, A.p, dt.p, out.p, 1, n, n, n, 2 * n, 0, log_form); });
        unsigned wrong = 0, not_finite = 0;
        for (uint32_t i = 0; i < n; i++) {
            const long double g = want_g(list[i].a, list[i].A_log, list[i].dt), want = log_form ? g : expl(g);
            wrong += !near(out.p[i], want) || !near(out.p[n + i], want_beta(gdn_to_f32(bb.p[i])));
            not_finite += !std::isfinite(out.p[i]) || !std::isfinite(out.p[n + i]);
        }
        b.expect(wrong == 0, log_form ? "log form within 2e-6 over the whole range" : "linear form within 2e-6 over the whole range");
        b.expect(not_finite == 0, "finite for every finite input");
    }
}

/* Everywhere that the decay is neither 0 nor 1: g to 87, from large rates of tiny softplus to the reverse. */
static void everywhere(emu::bench &b) {
    unsigned wrong = 0, plain_wrong = 0, used = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        const float a = bf16_of(b.uniform(-60, 25)), A = b.uniform(-12, 20), dt = b.uniform(-5, 5);
        const long double g = want_g(a, A, dt);
        wrong += !near(gdn_gate_exact(a, A, dt, true), g, 2e-7L) || !near(gdn_gate_exact(a, A, dt, false), expl(g));
        if (g < -60 && g > -87) {
            used++;
            plain_wrong += !near((float)expl((float)g), expl(g)); /* g rounded to f32, all else exact */
        }
    }
    b.expect(wrong == 0, "within 2e-6 everywhere, the log form within 2e-7");
    b.expect(used > 1000 && plain_wrong > used / 10, "control: a decay of an f32 g is noticed");
}

static void reported(emu::bench &b) {
    b.expect(near(gdn_gate_exact(100, -8, 0, false), expl(-expl(-8.0L) * log1pl(expl(20.0L)))),
             "B77: a = 100 decays by the clamped 0.9933");
    b.expect(gdn_gate_exact(-200, 100, 0, false) == 1.0f, "B86: A_log = 100, a = -200 decays by 1");
    b.expect(gdn_beta_exact(0.5f) == 0.62245935f, "B80: beta of 0.5 is not rounded to bf16");
    b.expect(!near(0.62109375f, want_beta(0.5)), "control: the rounded one is noticed");
    b.expect(gdn_gate_exact(20, -5, 0, false) == gdn_gate_exact(1e4f, -5, 0, false), "B78: no step above the clamp");
    b.expect(near(gdn_gate_exact(-17, 15, 0, true), want_g(-17, 15, 0)), "a tiny log(1 + e^x)");
    b.expect(!near((float)(-std::exp(15.0) * std::log(1.0f + std::exp(-17.0f))), want_g(-17, 15, 0)), "control: 1 + e^-17 in f32 loses it");
    b.expect(std::isnan(gdn_gate_exact(NAN, 0, 0, false)) && std::isnan(gdn_beta_exact(NAN)), "a NaN stays one");
}

/* The forms that the projections use: finite everywhere, the same limits. */
static void fast_form(emu::bench &b) {
    unsigned bad = 0, off = 0;
    for (float r : { -3e38f, -1e4f, -200.0f, -88.0f, -20.0f, 0.0f, 20.0f, 88.0f, 200.0f, 3e38f })
        for (float A : { -100.0f, -8.0f, 0.0f, 3.0f, 20.0f, 100.0f, 3e38f })
            for (float dt : { -2.0f, 0.0f, 2.0f }) {
                const float g = gdn_gate_fast(r, A, dt), y = gdn_beta_fast(r);
                const float p = gdn_gate_precise(r, gdn_gate_rate(A), dt), z = gdn_beta_precise(r, 0);
                bad += !(g >= 0 && g <= 1) || !(y >= 0 && y <= 1) || !(p >= 0 && p <= 1) || !(z >= 0 && z <= 1);
                off += A <= 3 && !(fabsl((long double)g - expl(want_g(r, A, dt))) <= 1e-5L);
                off += A <= 3 && !(fabsl((long double)p - expl(want_g(r, A, dt))) <= 1e-6L);
            }
    b.expect(bad == 0, "gates are in [0, 1] for every finite input");
    b.expect(off == 0, "gates are near the exact ones");
    b.expect(gdn_gate_fast(-200, 100, 0) == 1.0f && gdn_beta_fast(-200) == 0.0f, "B86: fast form");
    b.expect(std::isnan(gdn_gate_fast(NAN, 0, 0)) && std::isnan(gdn_beta_fast(NAN)), "a NaN stays one: fast form");
    b.expect(std::isnan(gdn_gate_precise(NAN, 1, 0)) && std::isnan(gdn_beta_precise(NAN, 0)) && std::isnan(gdn_beta_precise(0, NAN)),
             "a NaN stays one: precise form");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("values", values);
    c.test("everywhere", everywhere);
    c.test("reported cases", reported);
    c.test("fast form", fast_form);
    c.test("plain, 17 x 48", [](emu::bench &b) { one_shape(b, { 17, 48, 0, 0, 0, 0 }); });
    c.test("plain, padded, log", [](emu::bench &b) { one_shape(b, { 9, 6, 0, 5, 1, 0 }); });
    c.test("B75: columns of a wide projection", [](emu::bench &b) { one_shape(b, { 3, 32, 0, 1000, 0, 0 }); });
    c.test("B76: interleaved, vpg 2", [](emu::bench &b) { one_shape(b, { 5, 8, 2, 3, 0, 0 }); });
    c.test("interleaved, vpg 3", [](emu::bench &b) { one_shape(b, { 5, 48, 3, 0, 1, 0 }); });
    c.test("a grid that is too small loops", [](emu::bench &b) { one_shape(b, { 40, 32, 0, 0, 0, 2 }); });
    c.test("one row, one head", [](emu::bench &b) { one_shape(b, { 1, 1, 0, 0, 0, 0 }); });
    return c.done();
}
