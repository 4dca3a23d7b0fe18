/* emu_rule_data.hpp - inputs of a prefill for the emulator, and its references in f64: the token recurrence, and each of the three
 * kernels fed what the kernel itself was fed. NaN rows lie in front of the first token and behind the last one. */
#pragma once
#include "emu_check.hpp"
#include "gdn_rule.cuh"

namespace rule {
typedef std::vector<double> vec;
enum { DIM = 128, CHUNK = 64, STATE = DIM * DIM, NAN_ROWS = 64 };
const gdn_bf16 NAN_BF16 = { 0x7fff };

struct shape {
    uint32_t nk, nv;
    std::vector<uint32_t> lens;
    bool varlen;         /* else all lens are equal */
    uint32_t first = 0;  /* cu[0] */
    uint32_t pad = 0;    /* elements between the rows */
    uint32_t shift = 0;  /* elements in front of the first row */
    bool spread = false; /* decays of exactly 0 and 1 among them */
    bool alike = false;  /* keys that share a direction, beta near 1, slow decay: the solve's hard case */
};
struct data {
    shape s;
    uint32_t row, tokens, batch, max_len, num_chunks; /* row: elements of a packed row [Q nk][K nk][V nv] */
    std::vector<int32_t> cu;
    std::vector<uint32_t> chunk0; /* chunks in front of each sequence */
    gdn_bf16 *packed;
    float *gb; /* rows [gate nv][beta nv] */
    const gdn_bf16 *q, *k, *v;
    const float *gate, *beta;
    const int32_t *cu_dev;

    data(emu::bench &b, const shape &want) : s(want) {
        batch = (uint32_t)s.lens.size();
        row = (2 * s.nk + s.nv) * DIM + s.pad;
        cu.push_back((int32_t)s.first);
        max_len = 0;
        uint32_t chunks = 0;
        for (uint32_t len : s.lens) {
            cu.push_back(cu.back() + (int32_t)len);
            chunk0.push_back(chunks);
            chunks += (len + CHUNK - 1) / CHUNK;
            max_len = std::max(max_len, len);
        }
        chunk0.push_back(chunks);
        num_chunks = (max_len + CHUNK - 1) / CHUNK;
        tokens = (uint32_t)cu.back();
        auto &x = b.input<gdn_bf16>("q, k, v", (size_t)(tokens + NAN_ROWS) * row + s.shift, [](size_t) { return NAN_BF16; });
        auto &g = b.input<float>("gate, beta", (size_t)(tokens + NAN_ROWS) * 2 * s.nv, [](size_t) { return NAN; });
        packed = x.p + s.shift;
        gb = g.p;
        for (uint32_t t = s.first; t < tokens; t++) fill(b, t);
        q = packed;
        k = packed + s.nk * DIM;
        v = packed + 2 * s.nk * DIM;
        gate = gb;
        beta = gb + s.nv;
        cu_dev = b.input<int32_t>("cu", cu.size(), [&](size_t i) { return cu[i]; }).p;
    }
    uint32_t rows(uint32_t b, uint32_t c) const { return std::min<uint32_t>(CHUNK, s.lens[b] - c * CHUNK); }
    uint32_t chunks(uint32_t b) const { return chunk0[b + 1] - chunk0[b]; }
    size_t scratch(uint32_t b, uint32_t c, uint32_t h) const { return (size_t)(chunk0[b] + c) * s.nv + h; }
    uint32_t token(uint32_t b, uint32_t c, uint32_t i) const { return (uint32_t)cu[b] + c * CHUNK + i; }
    double key_of(uint32_t t, uint32_t h, uint32_t i) const {
        return gdn_to_f32(k[(size_t)t * row + gdn_key_head(h, s.nk, s.nv) * DIM + i]);
    }
    double query_of(uint32_t t, uint32_t h, uint32_t i) const {
        return gdn_to_f32(q[(size_t)t * row + gdn_key_head(h, s.nk, s.nv) * DIM + i]);
    }
    double value_of(uint32_t t, uint32_t h, uint32_t i) const { return gdn_to_f32(v[(size_t)t * row + h * DIM + i]); }
    float log_decay(uint32_t t, uint32_t h) const { return gdn_log_decay(gate[(size_t)t * 2 * s.nv + h]); }
    double beta_of(uint32_t t, uint32_t h) const { return beta[(size_t)t * 2 * s.nv + h]; }

  private:
    void fill(emu::bench &b, uint32_t t) {
        gdn_bf16 *const r = packed + (size_t)t * row;
        for (uint32_t h = 0; h < 2 * s.nk; h++) { /* normalised q and k */
            float x[DIM], sum = 1e-6f;
            for (float &e : x) {
                e = b.uniform(-1, 1) + (s.alike ? 0.6f : 0.0f);
                sum += e * e;
            }
            for (uint32_t i = 0; i < DIM; i++) r[h * DIM + i] = gdn_to_bf16(x[i] / std::sqrt(sum));
        }
        for (uint32_t i = 0; i < s.nv * DIM; i++) r[2 * s.nk * DIM + i] = gdn_to_bf16(b.uniform(-0.5f, 0.5f));
        for (uint32_t h = 0; h < s.nv; h++) {
            float a = s.alike ? b.uniform(0.99f, 1) : b.uniform(0.8f, 0.999f);
            if (s.spread && t % 9 == 4) a = h % 2 ? 0.0f : 1.0f;
#ifdef GDN_GATE_LOG
            a = a == 0 ? -1000.0f : std::log(a);
#endif
            gb[(size_t)t * 2 * s.nv + h] = a;
            gb[(size_t)t * 2 * s.nv + s.nv + h] = b.uniform(s.alike ? 0.9f : 0, 1);
        }
    }
};

inline double state_at(const float *state, uint32_t k, uint32_t v) {
    return state[gdn_state_at(k, v, DIM, DIM)];
}
/* One state as [K][V], whatever the layout. */
inline vec state_of(const float *state) {
    vec s(STATE);
    for (uint32_t k = 0; k < DIM; k++)
        for (uint32_t v = 0; v < DIM; v++) s[k * DIM + v] = state_at(state, k, v);
    return s;
}

/* ---- the token recurrence ---- */
/* S in place, o appended ([token][V]), from token `from` to `to` of sequence b. */
inline void recurrence(const data &d, uint32_t b, uint32_t h, uint32_t from, uint32_t to, double scale, vec &S, vec *o) {
    for (uint32_t t = (uint32_t)d.cu[b] + from; t < (uint32_t)d.cu[b] + to; t++) {
        const double a = std::exp((double)d.log_decay(t, h)), beta = d.beta_of(t, h);
        vec u(DIM, 0), y(DIM, 0);
        for (uint32_t k = 0; k < DIM; k++)
            for (uint32_t v = 0; v < DIM; v++) u[v] += (S[k * DIM + v] *= a) * d.key_of(t, h, k);
        for (uint32_t v = 0; v < DIM; v++) u[v] = beta * (d.value_of(t, h, v) - u[v]);
        for (uint32_t k = 0; k < DIM; k++)
            for (uint32_t v = 0; v < DIM; v++) y[v] += (S[k * DIM + v] += d.key_of(t, h, k) * u[v]) * d.query_of(t, h, k);
        if (o)
            for (double e : y) o->push_back(e * scale);
    }
}

/* ---- each kernel by itself, one chunk ---- */
/* U and W [rows][128] from gc. */
inline void solve(const data &d, uint32_t b, uint32_t c, uint32_t h, const float *gc, vec &U, vec &W) {
    const uint32_t n = d.rows(b, c);
    U.assign(n * DIM, 0);
    W.assign(n * DIM, 0);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t t = d.token(b, c, i);
        for (uint32_t x = 0; x < DIM; x++) {
            U[i * DIM + x] = d.beta_of(t, h) * d.value_of(t, h, x);
            W[i * DIM + x] = d.beta_of(t, h) * std::exp((double)gc[i]) * d.key_of(t, h, x);
        }
        for (uint32_t l = 0; l < i; l++) {
            double kk = 0;
            for (uint32_t x = 0; x < DIM; x++) kk += d.key_of(t, h, x) * d.key_of(d.token(b, c, l), h, x);
            kk *= d.beta_of(t, h) * std::exp((double)gc[i] - (double)gc[l]);
            for (uint32_t x = 0; x < DIM; x++) {
                U[i * DIM + x] -= kk * U[l * DIM + x];
                W[i * DIM + x] -= kk * W[l * DIM + x];
            }
        }
    }
}
/* uc [rows][128], and S to the next chunk's. */
inline void spine(const data &d, uint32_t b, uint32_t c, uint32_t h, const gdn_bf16 *W, const gdn_bf16 *U, const float *gc, vec &S,
                  vec &uc) {
    const uint32_t n = d.rows(b, c);
    uc.assign(n * DIM, 0);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < DIM; v++) uc[i * DIM + v] = gdn_to_f32(U[i * DIM + v]);
        for (uint32_t k = 0; k < DIM; k++)
            for (uint32_t v = 0; v < DIM; v++) uc[i * DIM + v] -= (double)gdn_to_f32(W[i * DIM + k]) * S[k * DIM + v];
    }
    for (double &e : S) e *= std::exp((double)gc[n - 1]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < DIM; k++) {
            const double f = std::exp((double)gc[n - 1] - (double)gc[i]) * d.key_of(d.token(b, c, i), h, k);
            for (uint32_t v = 0; v < DIM; v++) S[k * DIM + v] += f * uc[i * DIM + v];
        }
}
/* O [rows][128] from the stored S and uc. */
inline vec output(const data &d, uint32_t b, uint32_t c, uint32_t h, const float *gc, const gdn_bf16 *S, const gdn_bf16 *uc, double scale) {
    const uint32_t n = d.rows(b, c);
    vec o(n * DIM, 0);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t t = d.token(b, c, i);
        for (uint32_t k = 0; k < DIM; k++)
            for (uint32_t v = 0; v < DIM; v++)
                o[i * DIM + v] += std::exp((double)gc[i]) * d.query_of(t, h, k) * (double)gdn_to_f32(S[k * DIM + v]);
        for (uint32_t l = 0; l <= i; l++) {
            double p = 0;
            for (uint32_t x = 0; x < DIM; x++) p += d.query_of(t, h, x) * d.key_of(d.token(b, c, l), h, x);
            p *= std::exp((double)gc[i] - (double)gc[l]);
            for (uint32_t v = 0; v < DIM; v++) o[i * DIM + v] += p * (double)gdn_to_f32(uc[l * DIM + v]);
        }
        for (uint32_t v = 0; v < DIM; v++) o[i * DIM + v] *= scale;
    }
    return o;
}
} // namespace rule
