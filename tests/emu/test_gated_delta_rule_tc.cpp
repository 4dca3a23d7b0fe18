/* test_gated_delta_rule_tc.cpp - the tensor-core prefill of Hopper: recompute_wu_hopper, the spines tcfuse and tcfuse_x2 and
 * chunk_fwd_o_hopper, each against f64 fed the same inputs, the three together against the token recurrence, and the bytes that must
 * agree. test_gated_delta_rule_tc_variant.cpp compiles this file a second time with the other layout, head map and gate form. */
#include "emu_rule_data.hpp"
#include "gated_delta_rule_chunk_tc.cu"
#include "gated_delta_rule_fla_hopper.cu"

using emu::bench;
using rule::data;
using rule::DIM;
using rule::shape;
using rule::STATE;
using rule::vec;
enum { SMEM_WU = 79104, SMEM_SPINE = 88324, SMEM_O = 97536 };
static const double SCALE = 1 / std::sqrt(128.0);
static const float OLD = 7.0f; /* what lies where nothing may be written */

/* Scratch, states and output of one prefill. Scratch and output begin as NaN, and stay NaN where no valid row is. */
struct work {
    const data &d;
    bench &b;
    emu::tensor_of<gdn_bf16> &W, &U, &S, &uc, &out;
    emu::tensor_of<float> &gc, &state;
    gdn_rule_ext x = {};
    bool core = true, table = false;
    const uint64_t *state_table = nullptr;

    static emu::tensor_of<gdn_bf16> &nans(bench &b, const char *name, size_t n) {
        return b.inout<gdn_bf16>(name, n, [](size_t) { return rule::NAN_BF16; });
    }
    work(bench &bench_, const data &d_, const std::function<float(size_t)> &initial, size_t states = 0)
        : d(d_), b(bench_), W(nans(b, "W", rows() * 64 * DIM)), U(nans(b, "U", rows() * 64 * DIM)), S(nans(b, "S", rows() * STATE)),
          uc(nans(b, "uc", rows() * 64 * DIM)), out(nans(b, "output", (size_t)(d.tokens + 1) * d.s.nv * DIM)),
          gc(b.inout<float>("gc", rows() * 64, [](size_t) { return NAN; })),
          state(b.inout<float>("h_state", (states ? states : d.batch) * d.s.nv * STATE, initial)) {}
    size_t rows() const { return (size_t)std::max(1u, d.chunk0.back()) * d.s.nv; }
    uint32_t seq_len() const { return d.s.varlen ? 0 : d.max_len; }
    uint32_t grid_x() const { return std::max(1u, x.chunk_end ? x.chunk_end - x.chunk_begin : d.num_chunks); }

    void run_wu() {
        const auto &s = d.s;
        b.run("recompute_wu", { grid_x(), s.nv, d.batch }, 512, SMEM_WU, { W, U, gc }, [&] {
            if (core)
                gated_delta_rule_recompute_wu_hopper(d.k, d.v, d.gate, d.beta, W.p, U.p, gc.p, d.batch, seq_len(), d.num_chunks, s.nk, s.nv,
                                                     DIM, DIM, d.row, d.row, 2 * s.nv, d.cu_dev, nullptr, s.varlen);
            else
                gated_delta_rule_recompute_wu_hopper_ext(d.k, d.v, d.gate, d.beta, W.p, U.p, gc.p, d.batch, seq_len(), d.num_chunks, s.nk,
                                                         s.nv, DIM, DIM, d.row, d.row, 2 * s.nv, d.cu_dev, nullptr, s.varlen, x.in_tab,
                                                         x.out_tab, x.fresh, x.ckpt, x.ckpt_every, x.scale, x.chunk_begin, x.chunk_end,
                                                         x.qk_from_first);
        });
    }
    void run_spine(bool x2, emu::watched *ckpt = nullptr) {
        const auto &s = d.s;
        float *const h = table ? reinterpret_cast<float *>(const_cast<uint64_t *>(state_table)) : state.p;
        auto kernel = [&] {
            if (core)
                (x2 ? gated_delta_rule_chunk_delta_h_tcfuse_x2
                    : gated_delta_rule_chunk_delta_h_tcfuse)(h, W.p, U.p, d.k, d.gate, gc.p, S.p, uc.p, d.batch, seq_len(), d.num_chunks,
                                                             s.nk, s.nv, DIM, DIM, d.row, 2 * s.nv, table, d.cu_dev, nullptr, s.varlen);
            else
                (x2 ? gated_delta_rule_chunk_delta_h_tcfuse_x2_ext : gated_delta_rule_chunk_delta_h_tcfuse_ext)(
                    h, W.p, U.p, d.k, d.gate, gc.p, S.p, uc.p, d.batch, seq_len(), d.num_chunks, s.nk, s.nv, DIM, DIM, d.row, 2 * s.nv,
                    table, d.cu_dev, nullptr, s.varlen, x.in_tab, x.out_tab, x.fresh, x.ckpt, x.ckpt_every, x.scale, x.chunk_begin,
                    x.chunk_end, x.qk_from_first);
        };
        b.run("spine", { s.nv, d.batch }, 256, SMEM_SPINE, { S, uc, state, ckpt ? ckpt : state }, kernel);
    }
    void run_o() {
        const auto &s = d.s;
        b.run("fwd_o", { grid_x(), s.nv, d.batch }, 512, SMEM_O, { out }, [&] {
            if (core)
                gated_delta_rule_chunk_fwd_o_hopper(d.q, d.k, d.gate, gc.p, S.p, uc.p, out.p, d.batch, seq_len(), d.num_chunks, s.nk, s.nv,
                                                    DIM, DIM, d.row, 2 * s.nv, d.cu_dev, nullptr, s.varlen);
            else
                gated_delta_rule_chunk_fwd_o_hopper_ext(d.q, d.k, d.gate, gc.p, S.p, uc.p, out.p, d.batch, seq_len(), d.num_chunks, s.nk,
                                                        s.nv, DIM, DIM, d.row, 2 * s.nv, d.cu_dev, nullptr, s.varlen, x.in_tab, x.out_tab,
                                                        x.fresh, x.ckpt, x.ckpt_every, x.scale, x.chunk_begin, x.chunk_end,
                                                        x.qk_from_first);
        });
    }
    void run_all(emu::watched *ckpt = nullptr) {
        run_wu();
        run_spine(true, ckpt);
        run_o();
    }
    vec output_of(uint32_t s, uint32_t h) const {
        vec o;
        for (uint32_t t = 0; t < d.s.lens[s]; t++)
            for (uint32_t v = 0; v < DIM; v++) o.push_back(gdn_to_f32(out.p[((size_t)(d.cu[s] + (int)t) * d.s.nv + h) * DIM + v]));
        return o;
    }
};

static vec widen(const gdn_bf16 *p, size_t n) {
    vec r(n);
    for (size_t i = 0; i < n; i++) r[i] = gdn_to_f32(p[i]);
    return r;
}
static void append(vec &to, const vec &more) {
    to.insert(to.end(), more.begin(), more.end());
}
/* Allowed: little more than what rounding the exact numbers to bf16 costs by itself. */
static double floor_of(const vec &want) {
    double e = 0, n = 0;
    for (double x : want) {
        const double r = gdn_to_f32(gdn_to_bf16((float)x)) - x;
        e += r * r;
        n += x * x;
    }
    return 1.02 * std::sqrt(e / n);
}
static bool all_nan(const gdn_bf16 *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i].bits != rule::NAN_BF16.bits) return false;
    return true;
}

/* ---- each kernel against f64 ---- */
static void check_wu(bench &b, const work &w) {
    const data &d = w.d;
    vec got_u, want_u, got_w, want_w;
    bool bits = true, control = false, untouched = true;
    for (uint32_t s = 0; s < d.batch; s++)
        for (uint32_t c = 0; c < d.chunks(s); c++)
            for (uint32_t h = 0; h < d.s.nv; h++) {
                const size_t r = d.scratch(s, c, h);
                const uint32_t n = d.rows(s, c);
                const float *const gc = w.gc.p + r * 64;
                float sum = 0;
                for (uint32_t i = 0; i < n; i++) {
                    sum += d.log_decay(d.token(s, c, i), h);
                    bits = bits && gc[i] == sum;
                    control = control || gc[i] != std::nextafter(sum, 1.0f);
                }
                for (uint32_t i = n; i < 64; i++) untouched = untouched && std::isnan(gc[i]);
                untouched =
                    untouched && all_nan(w.U.p + (r * 64 + n) * DIM, (64 - n) * DIM) && all_nan(w.W.p + (r * 64 + n) * DIM, (64 - n) * DIM);
                vec U, W;
                rule::solve(d, s, c, h, gc, U, W);
                append(want_u, U);
                append(want_w, W);
                append(got_u, widen(w.U.p + r * 64 * DIM, n * DIM));
                append(got_w, widen(w.W.p + r * 64 * DIM, n * DIM));
            }
    b.expect(bits && control, "gc: the bits of the serial sum, and of no other");
    b.expect(untouched, "W, U, gc: rows past the last token keep what they held");
    b.close("U", got_u, want_u, floor_of(want_u), d.s.alike ? 4e-3 : 2.1e-3);
    b.close("W", got_w, want_w, floor_of(want_w), 1.1e-3);
}
/* S, uc and the final state, from the state each sequence began with. */
static void check_spine(bench &b, const work &w, bool x2, const std::function<vec(uint32_t, uint32_t)> &before) {
    const data &d = w.d;
    vec got_s, want_s, got_uc, want_uc, got_h, want_h;
    bool untouched = true;
    for (uint32_t s = 0; s < d.batch; s++)
        for (uint32_t h = 0; h < d.s.nv; h++) {
            vec S = before(s, h), uc;
            for (uint32_t c = 0; c < d.chunks(s); c++) {
                const size_t r = d.scratch(s, c, h);
                const uint32_t n = d.rows(s, c);
                append(want_s, S);
                append(got_s, widen(w.S.p + r * STATE, STATE));
                rule::spine(d, s, c, h, w.W.p + r * 64 * DIM, w.U.p + r * 64 * DIM, w.gc.p + r * 64, S, uc);
                append(want_uc, uc);
                append(got_uc, widen(w.uc.p + r * 64 * DIM, n * DIM));
                untouched = untouched && all_nan(w.uc.p + (r * 64 + n) * DIM, (64 - n) * DIM);
            }
            append(want_h, S);
            append(got_h, rule::state_of(w.state.p + ((size_t)s * d.s.nv + h) * STATE));
        }
    b.expect(untouched, "uc: rows past the last token keep what they held");
    const double h = b.close("h", got_h, want_h, x2 ? 6e-6 : 4e-3, x2 ? 2e-5 : 2e-2);
    b.expect(x2 || h > 5e-4, "control: one limb is told from two");
    b.close("S", got_s, want_s, x2 ? floor_of(want_s) : 4e-3, 1e-2);
    b.close("uc", got_uc, want_uc, x2 ? floor_of(want_uc) : 4e-3, 1e-2);
}
static void check_o(bench &b, const work &w, double scale) {
    const data &d = w.d;
    vec got, want;
    for (uint32_t s = 0; s < d.batch; s++)
        for (uint32_t h = 0; h < d.s.nv; h++) {
            append(got, w.output_of(s, h));
            for (uint32_t c = 0; c < d.chunks(s); c++) {
                const size_t r = d.scratch(s, c, h);
                append(want, rule::output(d, s, c, h, w.gc.p + r * 64, w.S.p + r * STATE, w.uc.p + r * 64 * DIM, scale));
            }
        }
    b.close("o from S and uc", got, want, floor_of(want), 2e-3);
    size_t first = (size_t)d.cu[0] * d.s.nv * DIM;
    b.expect(all_nan(w.out.p, first) && all_nan(w.out.p + (size_t)d.tokens * d.s.nv * DIM, d.s.nv * DIM),
             "no row outside the tokens is written");
}
static void each_kernel(bench &b, const shape &s, bool one_limb) {
    const data d(b, s);
    work w(b, d, [&](size_t) { return b.uniform(-0.1f, 0.1f); });
    std::vector<float> first(w.state.p, w.state.p + w.state.n);
    auto before = [&](uint32_t q, uint32_t h) { return rule::state_of(first.data() + ((size_t)q * s.nv + h) * STATE); };
    w.run_wu();
    check_wu(b, w);
    w.run_spine(true);
    check_spine(b, w, true, before);
    w.run_o();
    check_o(b, w, SCALE);
    if (s.alike) return; /* bf16 W, U and uc cost more there than the pipeline's bounds */
    vec got_o, want_o, got_h, want_h;
    for (uint32_t q = 0; q < d.batch; q++)
        for (uint32_t h = 0; h < s.nv; h++) {
            vec S = before(q, h);
            rule::recurrence(d, q, h, 0, s.lens[q], SCALE, S, &want_o);
            append(want_h, S);
            append(got_h, rule::state_of(w.state.p + ((size_t)q * s.nv + h) * STATE));
            append(got_o, w.output_of(q, h));
        }
    b.close("o of the pipeline", got_o, want_o, 3.5e-3, 4e-3);
    b.close("h of the pipeline", got_h, want_h, 2.5e-3, 8e-3);
    if (!one_limb) return;
    memcpy(w.state.p, first.data(), first.size() * 4);
    w.run_spine(false);
    check_spine(b, w, false, before);
}

/* ---- bytes that must agree ---- */
static bool same(const void *a, const void *b, size_t n) {
    return n && !memcmp(a, b, n);
}
/* One call, and the same prefill in parts: segments of two chunks, and as two prefills one after the other. */
static void split(bench &b) {
    const data d(b, { 1, 2, { 200 }, false });
    std::vector<float> first(2 * STATE);
    for (float &e : first) e = b.uniform(-0.1f, 0.1f);
    auto initial = [&](size_t i) { return first[i]; };
    work whole(b, d, initial);
    whole.run_all();

    work parts(b, d, initial); /* segments of two chunks share the scratch of two */
    const uint64_t *const tab = b.input<uint64_t>("table", 1, [&](size_t) { return (uint64_t)(uintptr_t)parts.state.p; }).p;
    parts.core = false;
    parts.x.in_tab = parts.x.out_tab = tab;
    for (uint32_t c = 0; c < 4; c += 2) {
        parts.x.chunk_begin = c;
        parts.x.chunk_end = c + 2;
        parts.run_all();
    }
    b.same_bytes(whole.state, parts.state);
    b.same_bytes(whole.out, parts.out);
    b.expect(same(parts.S.p, whole.S.p + 4 * STATE, 4 * STATE * 2), "a segment's scratch begins at its first chunk");

    for (uint32_t cut : { 64u, 128u }) {
        data head = d, tail = d;
        head.s.lens[0] = head.max_len = cut;
        head.num_chunks = cut / 64;
        tail.s.lens[0] = tail.max_len = 200 - cut;
        tail.num_chunks = (200 - cut + 63) / 64;
        tail.q += (size_t)cut * d.row;
        tail.k += (size_t)cut * d.row;
        tail.v += (size_t)cut * d.row;
        tail.gate += (size_t)cut * 4;
        tail.beta += (size_t)cut * 4;
        work a(b, head, initial);
        a.run_all();
        work z(b, tail, [&](size_t i) { return a.state.p[i]; });
        z.run_all();
        b.same_bytes(whole.state, z.state);
        b.expect(same(whole.out.p, a.out.p, cut * 2 * DIM * 2) &&
                     same(whole.out.p + (size_t)cut * 2 * DIM, z.out.p, (200 - cut) * 2 * DIM * 2),
                 "output of a prefill in two parts");
    }
}
/* Varlen with everything an _ext launch can have, sequence by sequence against the recurrence and against itself alone. */
static void extras(bench &b) {
    const shape s = { 2, 4, { 65, 0, 1, 130, 0, 70 }, true, 3 };
    const data d(b, s);
    enum { SLOTS = 10, HEADS = 4 };
    const size_t one = HEADS * STATE;
    std::vector<float> first(SLOTS * one);
    for (float &e : first) e = b.uniform(-0.1f, 0.1f);
    for (size_t i = 0; i < one; i++) first[2 * one + i] = NAN; /* the fresh sequence's */
    for (uint32_t slot : { 6u, 7u, 8u, 9u })
        for (size_t i = 0; i < one; i++) first[slot * one + i] = OLD;
    work w(
        b, d, [&](size_t i) { return first[i]; }, SLOTS);
    auto slot = [&](int k) { return k < 0 ? 0 : (uint64_t)(uintptr_t)(w.state.p + (size_t)k * one); };
    /*                        65: in place, 0: copied, 1: fresh, 130: to another slot, 0 and fresh: zeroed, 70: padding */
    const int in[6] = { 0, 1, 2, 3, 4, 5 }, out[6] = { 0, 6, 2, 7, 8, -1 };
    const uint64_t *const in_tab = b.input<uint64_t>("in_tab", 6, [&](size_t i) { return slot(in[i]); }).p;
    const uint64_t *const out_tab = b.input<uint64_t>("out_tab", 6, [&](size_t i) { return slot(out[i]); }).p;
    const uint8_t fresh[6] = { 0, 0, 1, 0, 1, 0 };
    auto &ckpt = b.inout<float>("ckpt", 4 * one, [](size_t) { return OLD; }); /* 1 of 65, 2 of 130, 1 of the padding sequence */
    w.core = false;
    w.x.in_tab = in_tab;
    w.x.out_tab = out_tab;
    w.x.fresh = b.input<uint8_t>("fresh", 6, [&](size_t i) { return fresh[i]; }).p;
    w.x.ckpt = ckpt.p;
    w.x.ckpt_every = 64;
    w.x.scale = 0.25f;
    w.run_all(ckpt);

    vec got_o, want_o, got_h, want_h, got_c, want_c;
    const uint32_t ckpt0[6] = { 0, 1, 1, 1, 3, 3 };
    for (uint32_t q : { 0u, 2u, 3u })
        for (uint32_t h = 0; h < HEADS; h++) {
            vec S = q == 2 ? vec(STATE, 0) : rule::state_of(first.data() + q * one + h * STATE);
            uint32_t done = 0;
            for (uint32_t j = 0; (j + 1) * 64 <= s.lens[q]; j++, done += 64) {
                rule::recurrence(d, q, h, done, done + 64, 0.25, S, &want_o);
                append(want_c, S);
                append(got_c, rule::state_of(ckpt.p + (ckpt0[q] + j) * one + h * STATE));
            }
            rule::recurrence(d, q, h, done, s.lens[q], 0.25, S, &want_o);
            append(want_h, S);
            append(got_h, rule::state_of(w.state.p + (size_t)out[q] * one + h * STATE));
            append(got_o, w.output_of(q, h));
        }
    b.close("o", got_o, want_o, 3.5e-3, 1e-2);
    b.close("h", got_h, want_h, 2.5e-3, 8e-3);
    b.close("checkpoints", got_c, want_c, 2.5e-3, 8e-3);
    const float *const p = w.state.p;
    b.expect(same(p + one, first.data() + one, one * 4) && same(p + 6 * one, first.data() + one, one * 4),
             "no tokens: the state is copied");
    b.expect(same(p + 4 * one, first.data() + 4 * one, one * 4), "no tokens, fresh: the input state is left");
    bool zero = true, old = true, pad = true;
    for (size_t i = 0; i < one; i++) {
        zero = zero && p[8 * one + i] == 0;
        old = old && p[9 * one + i] == OLD && ckpt.p[3 * one + i] == OLD;
    }
    b.expect(zero, "no tokens, fresh: the output state is zero");
    b.expect(old, "no other slot, and no checkpoint of a padding sequence, is written");
    b.expect(same(p + 3 * one, first.data() + 3 * one, one * 4) && same(p + 5 * one, first.data() + 5 * one, one * 4),
             "input states of other output slots, and of padding, are left");
    for (uint32_t t = 0; t < 70; t++)
        for (uint32_t i = 0; i < HEADS * DIM; i++) pad = pad && w.out.p[(size_t)(d.cu[5] + (int)t) * HEADS * DIM + i].bits == 0;
    b.expect(pad && all_nan(w.out.p + (size_t)d.tokens * HEADS * DIM, HEADS * DIM),
             "a padding sequence's rows are zero, and no row after it");

    /* the last sequence with tokens, alone */
    data alone = d;
    alone.batch = 1;
    alone.s.lens = { 130 };
    alone.cu = { d.cu[3], d.cu[4] };
    alone.cu_dev = b.input<int32_t>("cu alone", 2, [&](size_t i) { return alone.cu[i]; }).p;
    alone.chunk0 = { 0, 3 };
    alone.q += (size_t)alone.cu[0] * d.row; /* as copies of its own rows alone would lie */
    alone.k += (size_t)alone.cu[0] * d.row;
    work one_of(b, alone, [&](size_t i) { return first[3 * one + i]; });
    one_of.core = false;
    one_of.x.scale = 0.25f;
    one_of.x.qk_from_first = 1;
    one_of.run_all();
    const size_t at = (size_t)d.cu[3] * HEADS * DIM;
    b.expect(same(one_of.state.p, p + 7 * one, one * 4) && same(one_of.out.p + at, w.out.p + at, 130 * HEADS * DIM * 2),
             "a sequence's bytes do not depend on the batch");
}
/* _ext without extras, the table, the chunk-less T = 0, and a null entry of the core's table. */
static void core_and_ext(bench &b) {
    const data d(b, { 1, 2, { 65, 65 }, false, 0, 8 });
    auto initial = [](size_t i) { return (float)(i % 251) * 1e-3f - 0.1f; };
    work core(b, d, initial), ext(b, d, initial), table(b, d, initial);
    core.run_all();
    ext.core = false;
    ext.run_all();
    b.same_bytes(core.state, ext.state);
    b.same_bytes(core.out, ext.out);
    b.same_bytes(core.S, ext.S);
    b.same_bytes(core.gc, ext.gc);
    table.table = true;
    table.state_table =
        b.input<uint64_t>("table", 2, [&](size_t i) { return i ? (uint64_t)(uintptr_t)(table.state.p + 2 * STATE) : (uint64_t)0; }).p;
    table.run_wu();
    table.run_spine(true);
    b.expect(same(table.state.p + 2 * STATE, core.state.p + 2 * STATE, 2 * STATE * 4), "a table's state");
    bool left = true;
    for (size_t i = 0; i < 2 * STATE; i++) left = left && table.state.p[i] == initial(i);
    b.expect(left && all_nan(table.S.p, 2 * STATE), "a null entry: nothing is written");

    const data none(b, { 1, 2, { 0 }, false });
    work w(b, none, initial);
    w.run_all();
    left = true;
    for (size_t i = 0; i < 2 * STATE; i++) left = left && w.state.p[i] == initial(i);
    b.expect(left && all_nan(w.out.p, w.out.n), "T = 0: nothing happens");
}
/* Rows at any stride and base give the bytes of aligned ones. */
static void alignment(bench &b) {
    const data d(b, { 1, 2, { 75 }, false });
    auto initial = [](size_t i) { return (float)(i % 251) * 1e-3f - 0.1f; };
    work aligned(b, d, initial);
    aligned.run_all();
    for (uint32_t shift : { 4u, 2u, 1u }) {
        data moved = d;
        moved.row = d.row + shift;
        auto &x = b.input<gdn_bf16>("moved", (size_t)75 * moved.row + 8, [](size_t) { return rule::NAN_BF16; });
        for (uint32_t t = 0; t < 75; t++) memcpy(x.p + 4 + shift + (size_t)t * moved.row, d.packed + (size_t)t * d.row, d.row * 2);
        moved.q = x.p + 4 + shift;
        moved.k = moved.q + DIM;
        moved.v = moved.q + 2 * DIM;
        work w(b, moved, initial);
        w.run_wu();
        b.same_bytes(aligned.W, w.W);
        b.same_bytes(aligned.U, w.U);
        memcpy(w.S.p, aligned.S.p, w.S.n * 2);
        memcpy(w.uc.p, aligned.uc.p, w.uc.n * 2);
        w.run_o();
        b.same_bytes(aligned.out, w.out);
    }
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    for (uint32_t T : { 1u, 63u, 64u, 65u, 130u, 200u }) {
        char name[64];
        snprintf(name, sizeof name, "each kernel, T=%u", T);
        c.test(name, [&](bench &b) { each_kernel(b, { 1, 2, { T }, false, 0, 0, 0, T == 200 }, T == 200); });
    }
    c.test("each kernel, two sequences, four heads", [](bench &b) { each_kernel(b, { 2, 4, { 66, 66 }, false, 0, 8 }, false); });
    c.test("each kernel, keys alike", [](bench &b) { each_kernel(b, { 1, 1, { 128 }, false, 0, 0, 0, false, true }, false); });
    c.test("a prefill in parts", split);
    c.test("packed sequences with every extra", extras);
    c.test("core and _ext, tables, no tokens", core_and_ext);
    c.test("bases and strides", alignment);
    return c.done();
}
