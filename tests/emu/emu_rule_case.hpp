/* emu_rule_case.hpp - launches of decode, verify and fold against kernels/cpu: arguments, pools and tables with guard content everywhere,
 * and whole buffers compared byte for byte. One build of a test is one variant of the modules (GDN_STATE_VK, GDN_HEADS_TILED,
 * GDN_GATE_LOG, GDN_QK_L2NORM): the reference always has states [K][V]; for GDN_STATE_VK they are turned on the way in and out. */
#pragma once
#include "emu_check.hpp"
#include "gdn_device.cuh"

extern "C" {
#include "cpu_kernels.h"
}
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#ifdef GDN_STATE_VK
enum { RULE_V_MAJOR = 1 };
#else
enum { RULE_V_MAJOR = 0 };
#endif
#ifdef GDN_HEADS_TILED
enum { RULE_TILED = 1 };
#else
enum { RULE_TILED = 0 };
#endif
#ifdef GDN_GATE_LOG
enum { RULE_LOG = 1 };
#else
enum { RULE_LOG = 0 };
#endif

struct rule_case {
    /* the launch */
    uint32_t batch = 2, nk = 2, nv = 4, dim = 128, rows = 1;
    uint32_t qk_pad = 0, v_pad = 0, gb_pad = 0, shift = 0; /* elements beyond a row; elements by which bases are off */
    uint32_t state_pad = 0, state_shift = 0;               /* f32 between the states of a pool, and in front of it */
    std::vector<int32_t> in_slots, out_slots, cu_rows;     /* empty: 0, 1, ...; the same; `rows` each */
    std::vector<uint8_t> fresh;
    float scale = 0;
    bool packed = false; /* q, k, v in one row */
    /* verify */
    uint32_t hi_capacity = 0; /* 0: no hi */
    uint32_t stash_pad = 0;
    int wrong = 0; /* controls: 1 a gate, 2 a k, 3 a state element of the kernel's inputs differs from the reference's */

    /* ---- sizes ---- */
    uint64_t head_size() const { return (uint64_t)dim * dim; }
    uint64_t state_size() const { return nv * head_size(); }
    uint64_t stride() const { return state_size() + state_pad; }
    uint32_t slots() const {
        int32_t n = (int32_t)batch - 1;
        for (int32_t s : in_slots) n = std::max(n, s);
        for (int32_t s : out_slots) n = std::max(n, s);
        return (uint32_t)n + 1;
    }
    int32_t in_slot(uint32_t b) const { return in_slots.empty() ? (int32_t)b : in_slots[b]; }
    int32_t out_slot(uint32_t b) const { return out_slots.empty() ? in_slot(b) : out_slots[b]; }
    uint32_t first_row(uint32_t b) const { return cu_rows.empty() ? b * rows : (uint32_t)cu_rows[b]; }
    uint32_t tokens() const { return first_row(batch); }
    uint32_t qk_stride() const { return (packed ? 2 * nk * dim + nv * dim : nk * dim) + qk_pad; }
    uint32_t v_stride() const { return packed ? qk_stride() : nv * dim + v_pad; }
    uint32_t gb_stride() const { return 2 * nv + gb_pad; }
    uint32_t stash_floats() const { return 4 * (nv * dim + nv + nk * dim) + stash_pad; }

    /* ---- data ---- */
    struct bufs {
        emu::tensor_of<gdn_bf16> *q, *k, *v, *out;
        emu::tensor_of<float> *gb, *pool, *hi, *stash;
        emu::tensor_of<uint64_t> *in_tab, *out_tab, *hi_tab;
        emu::tensor_of<uint8_t> *fresh;
        emu::tensor_of<int32_t> *cu;
    } d = {};
    std::vector<gdn_bf16> want_out;
    std::vector<float> want_pool, want_hi, want_stash;
    gdn_cpu_rule ref = {};

    const gdn_bf16 *query() const { return d.q->p + shift; }
    const gdn_bf16 *key() const { return packed ? d.q->p + shift + nk * dim : d.k->p + shift; }
    const gdn_bf16 *value() const { return packed ? d.q->p + shift + 2 * nk * dim : d.v->p + shift; }
    const float *gate() const { return d.gb->p; }
    const float *beta() const { return d.gb->p + nv; }
    gdn_bf16 *out() const { return d.out->p; }
    float *pool() const { return d.pool->p + state_shift; }
    const uint64_t *in_tab() const { return d.in_tab->p; }
    const uint64_t *out_tab() const { return d.out_tab->p; }
    const uint8_t *fresh_tab() const { return fresh.empty() ? nullptr : d.fresh->p; }
    const int32_t *cu() const { return cu_rows.empty() ? nullptr : d.cu->p; }

    void make(emu::bench &b);
    void spoil(); /* after the reference has run */
    void turn(const float *from, float *to, uint64_t states, uint64_t pitch) const;
    void compare(emu::bench &b, const char *what);
};

/* Heads of `states` states, `pitch` apart, turned when the variant stores [V][K]; what lies between them is copied. */
inline void rule_case::turn(const float *from, float *to, uint64_t states, uint64_t pitch) const {
    for (uint64_t s = 0; s < states; s++) {
        for (uint64_t h = 0; h < nv; h++) {
            const float *const f = from + s * pitch + h * head_size();
            float *const t = to + s * pitch + h * head_size();
            for (uint32_t i = 0; i < dim; i++)
                for (uint32_t j = 0; j < dim; j++) t[RULE_V_MAJOR ? j * dim + i : i * dim + j] = f[i * dim + j];
        }
        if (s + 1 < states) memcpy(to + s * pitch + state_size(), from + s * pitch + state_size(), (pitch - state_size()) * sizeof(float));
    }
}

inline void rule_case::make(emu::bench &b) {
    auto bf = [&](float lo, float hi) { return gdn_to_bf16(b.uniform(lo, hi)); };
    const uint32_t t = tokens();
    const float k_size = 2.0f / std::sqrt((float)dim); /* keys near unit length */
    d.q = &b.input<gdn_bf16>("q", shift + (size_t)std::max(t, 1u) * qk_stride(), [&](size_t) { return bf(-k_size, k_size); });
    d.k = &b.input<gdn_bf16>("k", packed ? 1 : shift + (size_t)std::max(t, 1u) * qk_stride(), [&](size_t) { return bf(-k_size, k_size); });
    d.v = &b.input<gdn_bf16>("v", packed ? 1 : shift + (size_t)std::max(t, 1u) * v_stride(), [&](size_t) { return bf(-1, 1); });
    d.gb = &b.input<float>("gate, beta", (size_t)std::max(t, 1u) * gb_stride(), [&](size_t i) {
        const uint32_t at = (uint32_t)(i % gb_stride());
        if (at >= nv) return b.uniform(0, 1);
        const uint32_t edge = b.bits() % 16; /* the clamp's both ends now and then */
        const float a = edge == 0 ? 0.0f : edge == 1 ? 1.0f : b.uniform(0.5f, 1.0f);
        return RULE_LOG ? (a > 0 ? logf(a) : -1e30f) : a;
    });
    for (uint32_t i = 0; i < batch; i++) /* padding reads nothing */
        if (in_slot(i) < 0 || out_slot(i) < 0)
            for (uint32_t r = first_row(i); r < first_row(i + 1); r++)
                std::fill_n(const_cast<gdn_bf16 *>(key()) + (size_t)r * qk_stride(), nk * dim, gdn_bf16 { 0x7fc0 });
    const size_t pool_n = state_shift + (slots() - 1) * stride() + state_size();
    std::vector<float> pool0(pool_n), turned(pool_n);
    for (float &x : pool0) x = b.uniform(-0.5f, 0.5f);
    for (uint32_t i = 0; i < batch; i++) /* not read, whatever it holds */
        if (!fresh.empty() && fresh[i] && in_slot(i) >= 0)
            std::fill_n(pool0.begin() + state_shift + (uint64_t)in_slot(i) * stride(), state_size(), NAN);
    turned = pool0;
    turn(pool0.data() + state_shift, turned.data() + state_shift, slots(), stride());
    d.pool = &b.inout<float>("states", pool_n, [&](size_t i) { return turned[i]; });
    d.out = &b.inout<gdn_bf16>("out", (size_t)t * nv * dim + 1, [&](size_t) { return gdn_bf16 { 0x7A7A }; });
    const size_t hi_n = hi_capacity ? (size_t)batch * hi_capacity * state_size() : 1;
    d.hi = &b.inout<float>("hi", hi_n, [](size_t) { return 777.0f; });
    d.stash = &b.inout<float>("stash", (size_t)batch * stash_floats(), [](size_t) { return 555.0f; });
    auto table = [&](const char *name, auto slot) -> emu::tensor_of<uint64_t> & {
        return b.input<uint64_t>(
            name, batch, [&](size_t i) { return slot((uint32_t)i) < 0 ? 0 : (uint64_t)(pool() + (uint64_t)slot((uint32_t)i) * stride()); });
    };
    d.in_tab = &table("in_tab", [&](uint32_t i) { return in_slot(i); });
    d.out_tab = &table("out_tab", [&](uint32_t i) { return out_slot(i); });
    d.hi_tab = &b.input<uint64_t>("hi_tables", std::max<size_t>(1, (size_t)hi_capacity * 32), [&](size_t i) {
        return i % 32 < batch ? (uint64_t)(d.hi->p + ((i % 32) * hi_capacity + i / 32) * state_size()) : (uint64_t)0;
    });
    d.fresh =
        &b.input<uint8_t>("fresh", std::max<size_t>(1, fresh.size()), [&](size_t i) { return fresh.empty() ? (uint8_t)0 : fresh[i]; });
    d.cu = &b.input<int32_t>("cu_rows", std::max<size_t>(1, cu_rows.size()), [&](size_t i) { return cu_rows.empty() ? 0 : cu_rows[i]; });

    /* the reference's buffers */
    want_out.assign(d.out->p, d.out->p + d.out->n);
    want_pool = pool0;
    want_hi.assign(d.hi->p, d.hi->p + d.hi->n);
    want_stash.assign(d.stash->p, d.stash->p + d.stash->n);
    static std::vector<int32_t> slot_in, slot_out;
    slot_in.clear(), slot_out.clear();
    for (uint32_t i = 0; i < batch; i++) slot_in.push_back(in_slot(i)), slot_out.push_back(out_slot(i));
    ref = {};
    ref.q = query(), ref.k = key(), ref.v = value();
    ref.gate = gate(), ref.beta = beta();
    ref.out = want_out.data();
    ref.state = ref.state_out = want_pool.data() + state_shift;
    ref.in_slots = slot_in.data(), ref.out_slots = slot_out.data();
    ref.fresh = fresh_tab();
    ref.hi = hi_capacity ? want_hi.data() : nullptr;
    ref.stash = want_stash.data();
    ref.cu = cu();
    ref.state_stride = stride(), ref.stash_stride = stash_floats();
    ref.batch = batch, ref.seq_len = rows, ref.nk = nk, ref.nv = nv, ref.k_dim = ref.v_dim = dim;
    ref.qk_stride = qk_stride(), ref.v_stride = v_stride(), ref.gb_stride = gb_stride();
    ref.hi_capacity = hi_capacity;
    ref.addr = 1; /* GDN_STATE_POOL; the ABI's header cannot be read under -DGDN_GATE_LOG */
    ref.isa = gdn_cpu_isa_pick(GDN_CPU_AVX512);
    ref.scale = scale != 0 ? scale : gdn_rsqrt((float)dim);
    ref.log_gate = RULE_LOG, ref.tiled = RULE_TILED;
#ifdef GDN_QK_L2NORM
    ref.l2norm = true;
#endif
}

inline void rule_case::spoil() {
    if (wrong == 1) d.gb->p[0] = RULE_LOG ? -0.25f : 0.75f;
    if (wrong == 2) const_cast<gdn_bf16 *>(key())[dim - 1] = gdn_to_bf16(1.0f);
    if (wrong == 3) pool()[(uint64_t)in_slot(0) * stride()] += 1.0f;
}

/* All four buffers are the reference's, every byte of them. */
inline void rule_case::compare(emu::bench &b, const char *what) {
    const std::string at = what;
    auto same = [&](const char *name, const void *got, const void *want, size_t n) {
        size_t i = n && memcmp(got, want, n) ? 0 : n;
        while (i < n && static_cast<const char *>(got)[i] == static_cast<const char *>(want)[i]) i++;
        b.expect((i == n) != (wrong != 0 && !strcmp(name, "out")),
                 (at + ": `" + name + "`" +
                  (wrong ? ": control: a wrong input went unnoticed"
                         : " differs, first in byte " + std::to_string(i) + " of " + std::to_string(n)))
                     .c_str());
        if (wrong || n == 0) return;
        std::vector<char> off(static_cast<const char *>(want), static_cast<const char *>(want) + n);
        off[n / 2] = (char)(off[n / 2] ^ 1);
        b.expect(memcmp(got, off.data(), n) != 0, (at + ": control: a changed bit went unnoticed").c_str());
    };
    std::vector<float> pool(want_pool), hi(want_hi);
    memcpy(pool.data(), d.pool->p, pool.size() * sizeof(float));
    turn(d.pool->p + state_shift, pool.data() + state_shift, slots(), stride());
    memcpy(hi.data(), d.hi->p, hi.size() * sizeof(float));
    if (hi_capacity) turn(d.hi->p, hi.data(), (uint64_t)batch * hi_capacity, state_size());
    same("out", d.out->p, want_out.data(), want_out.size() * sizeof(gdn_bf16));
    if (wrong) return;
    same("states", pool.data(), want_pool.data(), pool.size() * sizeof(float));
    same("hi", hi.data(), want_hi.data(), hi.size() * sizeof(float));
    same("stash", d.stash->p, want_stash.data(), want_stash.size() * sizeof(float));
}
