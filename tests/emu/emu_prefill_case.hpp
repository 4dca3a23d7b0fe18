/* emu_prefill_case.hpp - one prefill problem for the chunk pipeline's kernels: inputs with NaN rows around the valid ones, poisoned
 * scratch, the f64 token recurrence beside it. Included after the kernels' sources. */
#pragma once
#include "emu_check.hpp"
#include "gdn_rule.cuh"
#include <cmath>
#include <string>
#include <vector>

#ifdef GDN_STATE_VK
constexpr bool V_MAJOR = true;
#else
constexpr bool V_MAJOR = false;
#endif
#ifdef GDN_HEADS_TILED
constexpr bool TILED = true;
#else
constexpr bool TILED = false;
#endif
#ifdef GDN_GATE_LOG
constexpr bool LOG_GATE = true;
#else
constexpr bool LOG_GATE = false;
#endif

constexpr float NOT_A_NUMBER = __builtin_nanf("");

struct prefill_case {
    enum { D = 128, C = 64 };
    uint32_t nk = 1, nv = 2, first = 0; /* first: cu[0] */
    std::vector<uint32_t> len = { 130 };
    bool packed = false;          /* by offsets; else all lengths are equal */
    std::vector<bool> pad, fresh; /* empty: none is */
    bool separate = false;        /* states are written elsewhere */
    uint32_t ckpt_every = 0, pad_stride = 0, shift = 0, segment = 0;
    float scale = 0, gate_lo = 0.8f, gate_hi = 0.999f, beta_lo = 0, beta_hi = 1;

    uint32_t batch() const { return (uint32_t)len.size(); }
    uint32_t longest() const {
        uint32_t n = 0;
        for (uint32_t l : len) n = std::max(n, l);
        return n;
    }
    uint32_t rows() const {
        uint32_t n = first;
        for (uint32_t l : len) n += l;
        return n;
    }
    bool is_pad(uint32_t s) const { return s < pad.size() && pad[s]; }
    bool is_fresh(uint32_t s) const { return s < fresh.size() && fresh[s]; }
    uint32_t key_head(uint32_t head) const { return TILED ? head % nk : head / (nv / nk); }
    uint32_t qk_stride() const { return nk * D + pad_stride; }
    uint32_t v_stride() const { return nv * D + pad_stride; }
    uint32_t gb_stride() const { return 2 * nv + 1; }
    static uint32_t state_at(uint32_t k, uint32_t v) { return V_MAJOR ? v * D + k : k * D + v; }
};

/* Everything in memory. Buffers belong to the bench. */
struct prefill_data {
    using D = prefill_case;
    emu::tensor_of<gdn_bf16> *q, *k, *v, *W, *U, *S, *uc, *out;
    emu::tensor_of<float> *gb, *gc, *state, *state_out, *ckpt;
    emu::tensor_of<uint8_t> *fresh;
    emu::tensor_of<uint64_t> *in_tab, *out_tab;
    emu::tensor_of<int32_t> *cu;
    uint32_t chunks = 0; /* of all sequences */
    std::vector<double> want_out, want_state, want_ckpt;
};

inline gdn_bf16 bf16_of(float x) {
    return gdn_to_bf16(x);
}

inline prefill_data make_prefill(emu::bench &b, const prefill_case &c) {
    using P = prefill_case;
    prefill_data d;
    const uint32_t rows = c.rows(), tail = 2;
    auto rows_of = [&](const char *name, uint32_t stride, float size, bool unit) -> emu::tensor_of<gdn_bf16> & {
        const size_t n = c.shift + (size_t)(rows + tail) * stride;
        auto &t = b.input<gdn_bf16>(name, n, [&](size_t) { return bf16_of(NOT_A_NUMBER); });
        for (uint32_t r = c.first; r < rows; r++)
            for (uint32_t h = 0; h < (unit ? c.nk : c.nv); h++) {
                float x[P::D];
                double sum = 0;
                for (auto &e : x) e = b.uniform(-size, size), sum += (double)e * e;
                for (uint32_t i = 0; i < P::D; i++)
                    t.p[c.shift + (size_t)r * stride + h * P::D + i] = bf16_of(unit ? (float)(x[i] / std::sqrt(sum)) : x[i]);
            }
        return t;
    };
    d.q = &rows_of("query", c.qk_stride(), 0.5f, true);
    d.k = &rows_of("key", c.qk_stride(), 0.5f, true);
    d.v = &rows_of("value", c.v_stride(), 0.5f, false);
    d.gb = &b.input<float>("gate and beta", (size_t)(rows + tail) * c.gb_stride(), [&](size_t i) {
        const size_t r = i / c.gb_stride(), at = i % c.gb_stride();
        if (r < c.first || r >= rows) return NOT_A_NUMBER;
        const float g = b.uniform(c.gate_lo, c.gate_hi);
        return at < c.nv ? (LOG_GATE ? std::log(g) : g) : b.uniform(c.beta_lo, c.beta_hi);
    });
    for (uint32_t l : c.len) d.chunks += (l + P::C - 1) / P::C;
    const size_t scratch = (size_t)std::max(d.chunks, 1u) * c.nv, one = (size_t)c.nv * P::D * P::D;
    auto poison = [&](size_t) { return gdn_bf16 { 0xffff }; };
    d.W = &b.inout<gdn_bf16>("W", scratch * P::C * P::D, poison);
    d.U = &b.inout<gdn_bf16>("U", scratch * P::C * P::D, poison);
    d.S = &b.inout<gdn_bf16>("S", scratch * P::D * P::D, poison);
    d.uc = &b.inout<gdn_bf16>("uc", scratch * P::C * P::D, poison);
    d.gc = &b.inout<float>("gc", scratch * P::C, [&](size_t) { return NOT_A_NUMBER; });
    d.out = &b.inout<gdn_bf16>("output", (size_t)(rows + tail) * c.nv * P::D, poison);
    d.state = &b.inout<float>("state", c.batch() * one, [&](size_t i) {
        const uint32_t s = (uint32_t)(i / one);
        return c.is_pad(s) || c.is_fresh(s) ? NOT_A_NUMBER : b.uniform(-0.1f, 0.1f);
    });
    d.state_out = c.separate ? &b.inout<float>("state_out", c.batch() * one, [&](size_t) { return NOT_A_NUMBER; }) : d.state;
    d.fresh = &b.input<uint8_t>("fresh", c.batch(), [&](size_t i) { return (uint8_t)c.is_fresh((uint32_t)i); });
    d.in_tab =
        &b.input<uint64_t>("in_tab", c.batch(), [&](size_t i) { return c.is_pad((uint32_t)i) ? 0 : (uint64_t)(d.state->p + i * one); });
    d.out_tab = &b.input<uint64_t>("out_tab", c.batch(), [&](size_t i) { return (uint64_t)(d.state_out->p + i * one); });
    uint32_t at = c.first;
    d.cu = &b.input<int32_t>("cu_seqlens", c.batch() + 1, [&](size_t i) {
        const uint32_t here = at;
        if (i < c.batch()) at += c.len[i];
        return (int32_t)here;
    });
    size_t n_ckpt = 0;
    if (c.ckpt_every)
        for (uint32_t l : c.len) n_ckpt += l / c.ckpt_every;
    d.ckpt = &b.inout<float>("ckpt", n_ckpt * one + 1, [&](size_t) { return NOT_A_NUMBER; });
    return d;
}

/* The f64 token recurrence on the same inputs: fills want_*. NaN stands where nothing may be written. */
inline void solve_prefill(prefill_data &d, const prefill_case &c) {
    using P = prefill_case;
    enum { D = P::D };
    const double nan = std::nan(""), scale = c.scale != 0 ? (double)c.scale : 1 / std::sqrt((double)D);
    d.want_out.assign(d.out->n, nan);
    d.want_state.assign(d.state->n, nan);
    d.want_ckpt.assign(d.ckpt->n, nan);
    const size_t one = (size_t)D * D;
    size_t row = c.first, ckpt = 0;
    for (uint32_t s = 0; s < c.batch(); s++) {
        for (uint32_t h = 0; h < c.nv; h++) {
            std::vector<double> H(one);
            const float *const in = d.state->p + (s * c.nv + h) * one;
            for (uint32_t i = 0; i < one; i++) H[i] = c.is_fresh(s) ? 0 : in[P::state_at(i / D, i % D)];
            for (uint32_t t = 0; t < c.len[s]; t++) {
                double o[D] = {};
                if (!c.is_pad(s)) {
                    const float *const gb = d.gb->p + (row + t) * c.gb_stride();
                    const double a = LOG_GATE ? std::exp((double)std::fmax(gb[h], std::log(1e-30))) : std::fmax((double)gb[h], 1e-30);
                    const gdn_bf16 *const q = d.q->p + c.shift + (row + t) * c.qk_stride() + c.key_head(h) * D;
                    const gdn_bf16 *const k = d.k->p + c.shift + (row + t) * c.qk_stride() + c.key_head(h) * D;
                    const gdn_bf16 *const v = d.v->p + c.shift + (row + t) * c.v_stride() + h * D;
                    double u[D] = {};
                    for (uint32_t i = 0; i < D; i++)
                        for (uint32_t j = 0; j < D; j++) u[j] += (H[i * D + j] *= a) * (double)gdn_to_f32(k[i]);
                    for (uint32_t j = 0; j < D; j++) u[j] = gb[c.nv + h] * ((double)gdn_to_f32(v[j]) - u[j]);
                    for (uint32_t i = 0; i < D; i++)
                        for (uint32_t j = 0; j < D; j++) o[j] += (H[i * D + j] += gdn_to_f32(k[i]) * u[j]) * (double)gdn_to_f32(q[i]);
                }
                for (uint32_t j = 0; j < D; j++) d.want_out[((row + t) * c.nv + h) * D + j] = o[j] * scale;
                if (c.ckpt_every && (t + 1) % c.ckpt_every == 0 && !c.is_pad(s))
                    for (uint32_t i = 0; i < one; i++)
                        d.want_ckpt[((ckpt + (t + 1) / c.ckpt_every - 1) * c.nv + h) * one + P::state_at(i / D, i % D)] = H[i];
            }
            if (!c.is_pad(s))
                for (uint32_t i = 0; i < one; i++) d.want_state[(s * c.nv + h) * one + P::state_at(i / D, i % D)] = H[i];
        }
        row += c.len[s];
        if (c.ckpt_every) ckpt += c.len[s] / c.ckpt_every;
    }
}

inline float number_of(float x) {
    return x;
}
inline float number_of(gdn_bf16 x) {
    return gdn_to_f32(x);
}

/* Compares what was written with what should have been; elsewhere the first content must stand (bits of a NaN). */
template <class T>
void check_written(emu::bench &b, const char *what, const T *got, const std::vector<double> &want, double rms, double worst) {
    std::vector<double> g, w;
    bool untouched = true;
    for (size_t i = 0; i < want.size(); i++) {
        const double x = (double)number_of(got[i]);
        if (std::isnan(want[i]))
            untouched = untouched && std::isnan(x);
        else
            g.push_back(x), w.push_back(want[i]);
    }
    b.expect(untouched, (std::string(what) + ": something was written that is not its own").c_str());
    if (!g.empty()) b.close(what, g, w, rms, worst);
}

/* For tiles in the byte order of the 128-byte swizzle. */
inline emu::options swizzled(bool proxy) {
    emu::options o;
    o.smem_align = 1024;
    o.check_proxy = proxy;
    return o;
}

/* Of one key head, keys (or queries) with a common direction: <k, k'> about `common`; 1: all the same. */
inline emu::tensor_of<gdn_bf16> *alike(emu::bench &b, const emu::tensor_of<gdn_bf16> &from, float common, const prefill_case &c) {
    float middle[128], x[128];
    double n = 0;
    for (auto &e : middle) e = b.uniform(-0.5f, 0.5f), n += e * e;
    for (auto &e : middle) e /= (float)std::sqrt(n);
    auto &to = b.input<gdn_bf16>("alike", from.n, [&](size_t i) { return from.p[i]; });
    for (uint32_t r = c.first; r < c.rows(); r++) {
        gdn_bf16 *const row = to.p + c.shift + r * c.qk_stride();
        double sum = 0;
        for (uint32_t i = 0; i < 128; i++) {
            x[i] = std::sqrt(common) * middle[i] + std::sqrt(1 - common) * gdn_to_f32(row[i]);
            sum += x[i] * x[i];
        }
        for (uint32_t i = 0; i < 128; i++) row[i] = bf16_of((float)(x[i] / std::sqrt(sum)));
    }
    return &to;
}
