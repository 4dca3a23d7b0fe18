/* test_gdn_decode_step.cpp - kernels/gb10/gdn_decode_step.cu on the emulator: conv state, state and output have the bytes of the four
 * kernels that it stands for, in every order of blocks; the counts are zero again; padding, fresh, accepted offsets, strides. */
static bool tiled_map;
#define GDN_IS_VK    false
#define GDN_IS_TILED tiled_map
#define GDN_IS_LOG   false
#include "emu_check.hpp"
#include "gdn_device.cuh"

#include "causal_conv1d.cu"
#include "gated_delta_rule_decode.cu"
#include "gated_rmsnorm.cu"
#include "gdn_decode_step.cu"
#include "ssm_preprocess.cu"
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

enum { DIM = 128, WIDTH = 4 };

struct step_case {
    uint32_t batch = 2, nk = 1, nv = 3, extra = 0, vpg = 0;
    uint32_t x_pad = 0, z_pad = 0, ab_pad = 0, conv_pad = 0, state_pad = 0, shift = 0; /* shift: elements by which bases are off */
    std::vector<int32_t> slots, accepted;
    std::vector<uint8_t> fresh;
    bool ahead = false, bias = false, weight_f32 = false, norm_f32 = false, sigmoid = false, tiled = false, made = false;
    float scale = 0;
    int wrong = 0; /* controls: 1 a conv weight, 2 a, 3 z, 4 a state element, 5 a conv state element differ from the reference's */

    struct result {
        std::vector<gdn_bf16> conv, out;
        std::vector<float> state;
    };
    gdn_bf16 *x = nullptr, *z = nullptr, *a = nullptr, *b = nullptr, *conv = nullptr, *out = nullptr;
    void *weight = nullptr, *bias_p = nullptr, *norm_w = nullptr;
    float *state = nullptr, *A_log = nullptr, *dt = nullptr, *gates = nullptr;
    const int32_t *slot_p = nullptr, *acc_p = nullptr;
    const uint8_t *fresh_p = nullptr;

    uint32_t qk() const { return nk * DIM; }
    uint32_t channels() const { return 2 * qk() + nv * DIM; }
    uint32_t x_stride() const { return channels() + x_pad; }
    uint32_t z_stride() const { return nv * DIM + z_pad; }
    uint32_t ab_stride() const { return (vpg ? 2 * nv : nv) + ab_pad; }
    uint32_t state_len() const { return WIDTH - 1 + extra; }
    uint64_t conv_stride() const { return (uint64_t)channels() * state_len() + conv_pad; }
    uint64_t state_stride() const { return (uint64_t)nv * DIM * DIM + state_pad; }
    int32_t slot(uint32_t i) const { return slots.empty() ? (int32_t)i : slots[i]; }
    uint32_t flags() const {
        return (weight_f32 ? GDN_DSTEP_WEIGHT_F32 : 0) | (norm_f32 ? GDN_DSTEP_NORM_F32 : 0) | (sigmoid ? GDN_DSTEP_SIGMOID : 0) |
               (tiled ? GDN_DSTEP_TILED : 0) | (made ? GDN_DSTEP_GATES_MADE : 0) | (ahead ? GDN_DSTEP_AHEAD : 0);
    }
    void chain(result &r) const;
    void run(emu::bench &bench, const std::string &name);
};

/* The four launches, on copies of what they change. */
void step_case::chain(result &r) const {
    const emu::options opt;
    const uint32_t C = channels(), lanes = GDN_CONV_FUSED_LANES(nk, DIM, nv, DIM);
    std::vector<gdn_bf16> rows((size_t)batch * C), core((size_t)batch * nv * DIM);
    std::vector<float> gb((size_t)batch * 2 * nv);
    gdn_bf16 *const q = rows.data();
    emu::launch((uint32_t)GDN_CONV_GRID(batch, batch, lanes), GDN_CONV_BLOCK, 0, opt, [&] {
        conv_silu_split_l2norm(x, weight, bias_p, r.conv.data() + shift, slot_p, fresh_p, q, q + qk(), q + 2 * qk(), batch, C, x_stride(),
                               WIDTH, state_len(), nullptr, batch, 1, 0, acc_p, 0, conv_stride(), weight_f32, nk, nv, DIM, DIM, C, C, C);
    });
    if (made)
        for (uint32_t i = 0; i < batch; i++) std::copy_n(gates + (size_t)i * ab_stride() * 2, 2 * nv, gb.data() + (size_t)i * 2 * nv);
    else
        emu::launch((batch * nv + 255) / 256, 256, 0, opt,
                    [&] { gdn_gates(a, b, A_log, dt, gb.data(), batch, nv, ab_stride(), ab_stride(), 2 * nv, vpg, 0); });
    emu::launch({ nv, batch }, GDN_STEP_BLOCK, 0, opt, [&] {
        gated_delta_rule_decode_ext(r.state.data(), q, q + qk(), q + 2 * qk(), gb.data(), gb.data() + nv, core.data(), batch, nk, nv, DIM,
                                    DIM, C, C, 2 * nv, 0, nullptr, nullptr, fresh_p, scale, slot_p, slot_p, state_stride(), r.state.data());
    });
    emu::launch((uint32_t)GDN_NORM_GRID(batch * nv, DIM), GDN_NORM_BLOCK, 0, opt, [&] {
        gated_rmsnorm(core.data(), z, norm_w, r.out.data(), batch * nv, DIM, nv * DIM, z_stride(), 1e-6f, sigmoid ? 2 : 1, nv, norm_f32);
    });
    for (uint32_t i = 0; i < batch; i++)
        if (slot(i) < 0) std::fill_n(r.out.begin() + (size_t)i * nv * DIM, nv * DIM, gdn_bf16 { 0 });
}

void step_case::run(emu::bench &t, const std::string &name) {
    auto bf = [&](float lo, float hi) { return gdn_to_bf16(t.uniform(lo, hi)); };
    auto weights = [&](const char *what, size_t n, bool f32, float lo, float hi) -> void * {
        if (f32) return t.input<float>(what, n, [&](size_t) { return t.uniform(lo, hi); }).p;
        return t.input<gdn_bf16>(what, n, [&](size_t) { return bf(lo, hi); }).p;
    };
    tiled_map = tiled;
    uint32_t n_slots = 1;
    for (uint32_t i = 0; i < batch; i++) n_slots = std::max<uint32_t>(n_slots, (uint32_t)(slot(i) + 2));
    x = t.input<gdn_bf16>("x", shift + (size_t)batch * x_stride(), [&](size_t) { return bf(-2, 2); }).p + shift;
    z = t.input<gdn_bf16>("z", shift + (size_t)batch * z_stride(), [&](size_t) { return bf(-4, 4); }).p + shift;
    a = t.input<gdn_bf16>("a", (size_t)batch * ab_stride() + nv, [&](size_t) { return bf(-6, 6); }).p;
    b = vpg ? a + vpg : t.input<gdn_bf16>("b", (size_t)batch * ab_stride(), [&](size_t) { return bf(-6, 6); }).p;
    gates = t.input<float>("gates", (size_t)batch * ab_stride() * 2, [&](size_t) { return t.uniform(0, 1); }).p;
    A_log = t.input<float>("A_log", nv, [&](size_t) { return t.uniform(-3, 1); }).p;
    dt = t.input<float>("dt_bias", nv, [&](size_t) { return t.uniform(-2, 2); }).p;
    weight = weights("weight", (size_t)channels() * WIDTH, weight_f32, -1, 1);
    bias_p = bias ? weights("bias", channels(), weight_f32, -1, 1) : nullptr;
    norm_w = weights("norm_weight", DIM, norm_f32, 0.5f, 1.5f);
    auto &conv_t = t.inout<gdn_bf16>("conv state", shift + n_slots * conv_stride(), [&](size_t) { return bf(-2, 2); });
    auto &state_t = t.inout<float>("state", n_slots * state_stride(), [&](size_t) { return t.uniform(-0.5f, 0.5f); });
    auto &out_t = t.inout<gdn_bf16>("out", (size_t)batch * nv * DIM, [](size_t) { return gdn_bf16 { 0x7A7A }; });
    auto &count_t = t.inout<uint32_t>("arrived", (size_t)batch * nk, [](size_t) { return 0u; });
    for (uint32_t i = 0; i < batch; i++) {
        if (slot(i) < 0) /* padding: nothing that it holds may come out */
            std::fill_n(x + (size_t)i * x_stride(), channels(), gdn_bf16 { 0x7fc0 }),
                std::fill_n(z + (size_t)i * z_stride(), nv * DIM, gdn_bf16 { 0x7f80 });
        else if (!fresh.empty() && fresh[i])
            std::fill_n(state_t.p + (uint64_t)slot(i) * state_stride(), (size_t)nv * DIM * DIM, NAN),
                std::fill_n(conv_t.p + shift + (uint64_t)slot(i) * conv_stride(), (size_t)channels() * state_len(), gdn_bf16 { 0x7fc0 });
    }
    slot_p = slots.empty() ? nullptr : t.input<int32_t>("slots", batch, [&](size_t i) { return slots[i]; }).p;
    acc_p = accepted.empty() ? nullptr : t.input<int32_t>("accepted", batch, [&](size_t i) { return accepted[i]; }).p;
    fresh_p = fresh.empty() ? nullptr : t.input<uint8_t>("fresh", batch, [&](size_t i) { return fresh[i]; }).p;

    auto copies = [&] {
        return result { std::vector<gdn_bf16>(conv_t.p, conv_t.p + conv_t.n), std::vector<gdn_bf16>(out_t.p, out_t.p + out_t.n),
                        std::vector<float>(state_t.p, state_t.p + state_t.n) };
    };
    result want = copies();
    chain(want);
    if (wrong == 1) static_cast<gdn_bf16 *>(weight)[5].bits ^= 0x40;
    if (wrong == 2) a[nv - 1].bits ^= 0x40;
    if (wrong == 3) z[7].bits ^= 0x40;
    if (wrong == 4) state_t.p[77] += 0.125f;
    if (wrong == 5) conv_t.p[shift + 2 * state_len() + 1].bits ^= 0x40;
    const result first = copies();
    const void *const a_p = made ? (const void *)gates : a, *const b_p = made ? (const void *)(gates + nv) : b;
    for (int wide = 0; wide < 2; wide++) {
        const std::string what = name + (wide ? ", wide" : "");
        const uint32_t stride = made ? 2 * ab_stride() : ab_stride();
        t.run(what.c_str(), { nv / nk, nk, batch }, wide ? GDN_DSTEP_WIDE : GDN_DSTEP_BLOCK, 0, { conv_t, state_t, out_t, count_t }, [&] {
            (wide ? gdn_decode_step_wide : gdn_decode_step)(
                x, weight, bias_p, conv_t.p + shift, a_p, b_p, made ? nullptr : A_log, made ? nullptr : dt, z, norm_w, out_t.p, state_t.p,
                slot_p, fresh_p, acc_p, nk == nv ? nullptr : count_t.p, conv_stride(), state_stride(), nk, nv, x_stride(), z_stride(),
                stride, stride, vpg, state_len(), 1e-6f, gdn_output_scale((uint32_t)DIM, scale), flags());
        });
        auto same = [](const auto &tensor, const auto &v) { return memcmp(tensor.p, v.data(), v.size() * sizeof v[0]) == 0; };
        const bool conv_ok = same(conv_t, want.conv), state_ok = same(state_t, want.state), out_ok = same(out_t, want.out);
        const bool counts_ok = std::all_of(count_t.p, count_t.p + count_t.n, [](uint32_t v) { return v == 0; });
        if (wrong) {
            t.expect(!(conv_ok && state_ok && out_ok), (what + ": the control went unnoticed").c_str());
        } else {
            t.expect(conv_ok, (what + ": conv state").c_str());
            t.expect(state_ok, (what + ": state").c_str());
            t.expect(out_ok, (what + ": output").c_str());
        }
        t.expect(counts_ok, (what + ": the counts are not zero again").c_str());
        std::copy(first.conv.begin(), first.conv.end(), conv_t.p);
        std::copy(first.state.begin(), first.state.end(), state_t.p);
        std::copy(first.out.begin(), first.out.end(), out_t.p);
    }
}

static void shapes(emu::check &c) {
    const uint32_t heads[][2] = { { 1, 1 }, { 2, 2 }, { 1, 3 }, { 2, 6 }, { 2, 4 }, { 1, 8 } };
    for (auto &h : heads)
        c.test((std::to_string(h[0]) + "/" + std::to_string(h[1]) + " heads").c_str(), [&](emu::bench &b) {
            for (int tiled = 0; tiled < 2; tiled++) {
                step_case s;
                s.nk = h[0], s.nv = h[1], s.batch = h[1] > 4 ? 1 : 2, s.tiled = s.ahead = tiled;
                s.run(b, tiled ? "tiled" : "grouped");
            }
        });
    c.test("types, bias, sigmoid, scale", [](emu::bench &b) {
        for (uint32_t i = 0; i < 8; i++) {
            step_case s;
            s.weight_f32 = i & 1, s.norm_f32 = i & 2, s.bias = i & 4, s.sigmoid = i == 3 || i == 4, s.scale = i == 5 ? 0.25f : 0;
            s.batch = 1;
            s.run(b, "form " + std::to_string(i));
        }
    });
    c.test("gates: interleaved rows, made before", [](emu::bench &b) {
        step_case s;
        s.nk = 2, s.nv = 4, s.vpg = 2, s.ab_pad = 3;
        s.run(b, "interleaved");
        step_case m;
        m.made = true, m.ab_pad = 1;
        m.run(b, "made");
    });
    c.test("strides and bases off", [](emu::bench &b) {
        for (uint32_t i = 1; i < 4; i++) {
            step_case s;
            s.x_pad = i, s.z_pad = 2 * i + 1, s.ab_pad = i, s.conv_pad = 3 * i, s.state_pad = 5 * i, s.shift = i;
            s.run(b, "by " + std::to_string(i));
        }
    });
}

static void states(emu::check &c) {
    c.test("padding, slots in any order", [](emu::bench &b) {
        step_case s;
        s.batch = 4, s.slots = { 3, -1, 0, -1 };
        s.run(b, "slots");
        s.fresh = { 0, 1, 1, 0 };
        s.run(b, "and fresh");
        s.slots = { -1, -1, -1, -1 };
        s.run(b, "nothing else");
    });
    c.test("the window is at the accepted offset; columns behind it stay", [](emu::bench &b) {
        step_case s;
        s.batch = 4, s.extra = 4, s.accepted = { 0, 1, 4, 2 }, s.nv = 2;
        s.run(b, "offsets");
        s.fresh = { 0, 1, 0, 0 }, s.slots = { 2, 0, 5, -1 };
        s.run(b, "offsets, fresh, padding");
    });
    c.test("controls: what differs is seen", [](emu::bench &b) {
        for (int wrong = 1; wrong <= 5; wrong++) {
            step_case s;
            s.batch = 1, s.wrong = wrong;
            s.run(b, "wrong " + std::to_string(wrong));
        }
    });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    shapes(c);
    states(c);
    return c.done();
}
