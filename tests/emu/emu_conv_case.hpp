/* emu_conv_case.hpp - one launch of causal_conv1d or conv_silu_split_l2norm on the emulator, judged in f64.
 *
 * conv_case::run() lays everything out (rows of no sequence and of padding sequences, paddings of strides and slots that must not be
 * read are NaN; outputs hold a canary), launches under every schedule and checks
 *   - every output element against f64 from the same bf16 values: half an ulp of bf16 and 2e-6 of the sum of its terms' sizes;
 *   - the whole state buffer byte for byte, untouched slots and columns included;
 *   - zeros in padding rows, canaries everywhere else.
 * The launch is made with the grid of gdn_geometry.h and no other. Include after causal_conv1d.cu. */
#pragma once
#include "emu_check.hpp"
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

struct conv_case {
    uint32_t channels = 0, nk = 0, nv = 0, k_dim = 0, v_dim = 0; /* nk set: the fused form, channels follow */
    uint32_t width = 4, extra = 0;
    std::vector<uint32_t> len = { 5 };
    uint32_t packed = 0;                    /* 0: uniform (all lengths equal), 32 or 64: bits of an offset */
    uint32_t row0 = 0, tail = 0, spare = 0; /* spare: rows by which `tokens` is above the true sum */
    std::vector<int32_t> slots;             /* empty: identity */
    std::vector<uint8_t> fresh;
    std::vector<int32_t> accepted;
    bool no_state = false, bias = false, f32_weights = false, silu = true, keep = false;
    uint32_t x_pad = 0, out_pad = 0, slot_pad = 0, shift = 0; /* shift: elements by which x, out and state bases are off */
    uint32_t seed = 1;

    std::vector<uint16_t> y;     /* after run: outputs, [row of all sequences][channel] */
    std::vector<uint16_t> after; /* the state buffer */
    void run(emu::bench &b, const char *what, bool wrong_reference = false);
    uint32_t batch() const { return (uint32_t)len.size(); }
};

namespace conv_detail {
inline float value(uint16_t bits) {
    return gdn_to_f32(gdn_bf16 { bits });
}
inline double rounded(double v) { /* to bf16, to see whether a reference fits a result */
    return value(gdn_to_bf16((float)v).bits);
}
struct stream {
    uint64_t s;
    float next(float lo, float hi) {
        s = s * 6364136223846793005ull + 1442695040888963407ull;
        return lo + (hi - lo) * (float)(s >> 40) / 16777216.0f;
    }
};
} // namespace conv_detail

inline void conv_case::run(emu::bench &b, const char *what, bool wrong_reference) {
    using namespace conv_detail;
    const bool fused = nk != 0;
    const uint32_t qk = nk * k_dim, B = batch(), cols = width - 1, state_len = cols + extra;
    if (fused) channels = 2 * qk + nv * v_dim;
    const uint32_t C = channels, x_stride = C + x_pad;
    std::vector<uint64_t> at(1, packed ? row0 : 0);
    for (uint32_t l : len) at.push_back(at.back() + l);
    const uint64_t rows = at[B] + tail, slot_stride = (uint64_t)C * state_len + slot_pad;
    const uint32_t parts = fused ? 3 : 1, width_of[3] = { fused ? qk : C, qk, nv * v_dim };
    auto slot_of = [&](uint32_t i) { return slots.empty() ? (int32_t)i : slots[i]; };
    int32_t n_slots = 1;
    for (uint32_t i = 0; i < B; i++) n_slots = std::max(n_slots, slot_of(i) + 2);

    /* ---- buffers ---- */
    stream r { seed * 977u + C }, r_x { r.s + 1 }, r_state { r.s + 2 }; /* the same values whatever the layout is */
    auto real = [](stream &from, float lo, float hi) { return gdn_to_bf16(from.next(lo, hi)); };
    auto &x = b.input<gdn_bf16>("x", shift + rows * x_stride, [&](size_t) { return gdn_bf16 { 0xFFFF }; });
    for (uint32_t i = 0; i < B; i++)
        for (uint64_t t = at[i]; slot_of(i) >= 0 && t < at[i + 1]; t++)
            for (uint32_t c = 0; c < C; c++) x.p[shift + t * x_stride + c] = real(r_x, -2, 2);
    std::vector<float> w(C * width), bias_of(C, 0.0f);
    for (float &v : w) v = f32_weights ? r.next(-1, 1) : gdn_to_f32(real(r, -1, 1));
    for (float &v : bias_of) v = !bias ? 0 : f32_weights ? r.next(-1, 1) : gdn_to_f32(real(r, -1, 1));
    auto weights_in = [&](const char *name, const std::vector<float> &v) -> const void * {
        if (f32_weights) return b.input<float>(name, v.size(), [&](size_t i) { return v[i]; }).p;
        return b.input<gdn_bf16>(name, v.size(), [&](size_t i) { return gdn_to_bf16(v[i]); }).p;
    };
    const void *const weight = weights_in("weight", w), *const bias_p = bias ? weights_in("bias", bias_of) : nullptr;
    auto &state = b.inout<gdn_bf16>("state", shift + n_slots * slot_stride + 1, [&](size_t) { return real(r, -2, 2); });
    for (int32_t k = 0; k < n_slots; k++)
        for (uint32_t e = 0; e < C * state_len; e++) state.p[shift + (uint64_t)k * slot_stride + e] = real(r_state, -2, 2);
    for (uint32_t i = 0; i < B; i++) /* what the previous user of a slot left */
        if (!fresh.empty() && fresh[i] && slot_of(i) >= 0)
            for (uint64_t e = 0; e < slot_stride; e++) state.p[shift + (uint64_t)slot_of(i) * slot_stride + e].bits = 0xFFFF;
    const std::vector<gdn_bf16> before(state.p, state.p + state.n);
    auto list = [&](const char *name,
                    const auto &v) { /* none: a null pointer */
                                     using E = typename std::decay_t<decltype(v)>::value_type;
                                     return v.empty() ? nullptr : (const E *)b.input<E>(name, v.size(), [&](size_t i) { return v[i]; }).p;
    };
    const int32_t *const slot_p = list("slots", slots), *const acc_p = list("accepted", accepted);
    const uint8_t *const fresh_p = list("fresh", fresh);
    const void *cu = nullptr;
    if (packed == 64) cu = list("cu64", std::vector<int64_t>(at.begin(), at.end()));
    if (packed == 32) cu = list("cu32", std::vector<int32_t>(at.begin(), at.end()));
    emu::tensor_of<gdn_bf16> *out[3] = { nullptr, nullptr, nullptr };
    uint32_t stride[3] = { 0, 0, 0 };
    const char *const out_name[3] = { "out", "out_k", "out_v" };
    for (uint32_t p = 0; p < parts; p++) {
        stride[p] = width_of[p] + out_pad;
        out[p] =
            &b.inout<gdn_bf16>(out_name[p], std::max<uint64_t>(1, shift + rows * stride[p]), [](size_t) { return gdn_bf16 { 0x7A7A }; });
    }

    /* ---- launch ---- */
    const uint32_t tokens = (uint32_t)(at[B] - at[0]) + spare, seq_len = packed ? 0 : len[0];
    gdn_bf16 *const st = no_state ? nullptr : state.p + shift;
    const uint32_t lanes = fused ? GDN_CONV_FUSED_LANES(nk, k_dim, nv, v_dim) : GDN_CONV1D_LANES(C);
    const uint32_t grid = (uint32_t)GDN_CONV_GRID(tokens, B, lanes);
    if (fused)
        b.run(what, grid, GDN_CONV_BLOCK, 0, { *out[0], *out[1], *out[2], state }, [&] {
            conv_silu_split_l2norm(x.p + shift, weight, bias_p, st, slot_p, fresh_p, out[0]->p + shift, out[1]->p + shift,
                                   out[2]->p + shift, tokens, C, x_stride, width, state_len, cu, B, seq_len, packed == 64, acc_p, keep,
                                   slot_stride, f32_weights, nk, nv, k_dim, v_dim, stride[0], stride[1], stride[2]);
        });
    else
        b.run(what, grid, GDN_CONV_BLOCK, 0, { *out[0], state }, [&] {
            causal_conv1d(x.p + shift, weight, bias_p, st, slot_p, fresh_p, out[0]->p + shift, tokens, C, x_stride, stride[0], width,
                          state_len, silu, cu, B, seq_len, packed == 64, acc_p, keep, slot_stride, f32_weights);
        });

    /* ---- what it must have done ---- */
    std::vector<gdn_bf16> want_state = before;
    y.assign((at[B] - at[0]) * C, 0);
    uint64_t wrong = 0, checked = 0;
    auto where = [&](uint32_t c, uint32_t *p) { return *p = !fused || c < qk ? 0 : c < 2 * qk ? 1 : 2, c - *p * qk; };
    for (uint32_t i = 0; i < B; i++) {
        const bool padding = slot_of(i) < 0, zero = no_state || padding || (!fresh.empty() && fresh[i]);
        const uint32_t na = accepted.empty() || (!fresh.empty() && fresh[i]) ? 0 : (uint32_t)accepted[i];
        const uint64_t T = len[i], slot0 = shift + (padding ? 0 : (uint64_t)slot_of(i)) * slot_stride;
        std::vector<double> v(T * C), terms(T * C);
        for (uint32_t c = 0; c < C; c++) {
            std::vector<uint16_t> full;
            for (uint32_t j = 0; j < cols; j++) full.push_back(zero ? 0 : before[slot0 + (uint64_t)c * state_len + na + j].bits);
            for (uint64_t t = 0; t < T; t++) full.push_back(x.p[shift + (at[i] + t) * x_stride + c].bits);
            for (uint64_t t = 0; t < T && !padding; t++) {
                double sum = bias_of[c], size = std::fabs(sum);
                for (uint32_t j = 0; j < width; j++) {
                    const double term = (double)w[c * width + (wrong_reference ? width - 1 - j : j)] * value(full[t + j]);
                    sum += term;
                    size += std::fabs(term);
                }
                v[t * C + c] = silu || fused ? sum / (1 + std::exp(-sum)) : sum;
                terms[t * C + c] = size;
            }
            if (no_state || padding) continue;
            const uint64_t n = keep ? cols + T : cols;
            for (uint64_t j = 0; j < n && (T || na || zero); j++)
                want_state[slot0 + (uint64_t)c * state_len + j].bits = full[(keep ? 0 : T) + j];
        }
        for (uint64_t t = 0; t < T; t++) {
            for (uint32_t h = 0; fused && !padding && h < 2 * nk; h++) {
                double s = 0, *const q = &v[t * C + h * k_dim];
                for (uint32_t k = 0; k < k_dim; k++) s += q[k] * q[k];
                for (uint32_t k = 0; k < k_dim; k++) q[k] /= std::sqrt(s + 1e-6), terms[t * C + h * k_dim + k] /= std::sqrt(s + 1e-6);
            }
            for (uint32_t c = 0; c < C; c++) {
                uint32_t p;
                const uint32_t k = where(c, &p);
                gdn_bf16 &got = out[p]->p[shift + (at[i] + t) * stride[p] + k];
                const double g = gdn_to_f32(got), e = v[t * C + c];
                y[(at[i] - at[0] + t) * C + c] = got.bits;
                wrong += padding ? got.bits != 0 : !(std::fabs(g - e) <= 0x1.01p-8 * std::fabs(e) + 2e-6 * terms[t * C + c]);
                checked++;
                got.bits = 0x7A7A; /* all that is left must be canary */
            }
        }
    }
    uint64_t stray = 0, state_wrong = 0;
    for (uint32_t p = 0; p < parts; p++)
        for (size_t e = 0; e < out[p]->n; e++) stray += out[p]->p[e].bits != 0x7A7A;
    after.clear();
    for (size_t e = 0; e < state.n; e++) {
        after.push_back(state.p[e].bits);
        state_wrong += state.p[e].bits != want_state[e].bits;
    }
    const std::string name = what;
    if (wrong_reference) {
        b.expect(wrong > checked / 10, (name + ": control: reversed taps went unnoticed").c_str());
        return;
    }
    b.expect(wrong == 0, (name + ": " + std::to_string(wrong) + " of " + std::to_string(checked) + " outputs are off").c_str());
    b.expect(stray == 0, (name + ": " + std::to_string(stray) + " elements outside the rows were written").c_str());
    b.expect(state_wrong == 0, (name + ": " + std::to_string(state_wrong) + " elements of the state are wrong").c_str());
}
