/* emu_fast_cases.hpp - what both forms of the fast prefill must do, against the f64 token recurrence: tails, packed sequences with padding,
 * fresh and zero-length ones among NaN rows, head ratios; and what must be the same bytes. A form F has
 *
 *     scratch(bench, case, chunks)        a fast_scratch
 *     prepare(b, c, d, w, r, all)         the first kernel, of `all` chunks of each sequence
 *     run(b, c, d, w, r)                  the whole
 *     FWD_SMEM, carry, join, pass         the kernels of segments
 *     ALIKE                               larger bounds where keys are alike */
#pragma once
#include "emu_prefill_case.hpp"

/* The scratch, poisoned with NaN. t: T or W; p: P or N. */
struct fast_scratch {
    emu::tensor_of<uint8_t> *k, *q, *t, *p;
    emu::tensor_of<float> *scalars;
    fast_scratch(emu::bench &b, const prefill_case &c, uint32_t chunks, uint32_t t_bytes, uint32_t n_scalars) {
        const size_t n = std::max(chunks, 1u);
        auto tile = [&](const char *name, size_t bytes) { return &b.inout<uint8_t>(name, bytes, [](size_t) { return (uint8_t)0xff; }); };
        k = tile("K16", n * c.nk * 16384), q = tile("Q16", n * c.nk * 16384);
        t = tile("T16 or W16", n * c.nv * t_bytes), p = tile("P16 or N16", n * c.nv * 8192);
        scalars = &b.inout<float>("scalars", n * c.nv * n_scalars, [](size_t) { return NOT_A_NUMBER; });
    }
};

/* tables: states through in_tab and out_tab. Chunks [begin, end) of every sequence; end 0: all. lead: of them are prepared in front. */
struct fast_run {
    bool tables = false, proxy = false;
    uint32_t begin = 0, end = 0, lead = 1, blocks = 3, helpers = 1, chunks = 0; /* chunks: launched of the longest sequence, 0: all */
    uint32_t whole = ~0u, heads = 0; /* by W and N: units with a block of their own; value heads of a block of the others, 0: all */
};
/* The pointers of a run. */
struct fast_pointers {
    const gdn_bf16 *q, *k, *v;
    const float *gate, *beta;
    const int32_t *cu;
    float *state;
    const uint64_t *in, *out;
    const uint8_t *fresh;
    fast_pointers(const prefill_case &c, const prefill_data &d, const fast_run &r)
        : q(d.q->p + c.shift), k(d.k->p + c.shift), v(d.v->p + c.shift), gate(d.gb->p), beta(d.gb->p + c.nv),
          cu(c.packed ? d.cu->p : nullptr), state(r.tables ? nullptr : d.state->p), in(r.tables ? d.in_tab->p : nullptr),
          out(r.tables ? d.out_tab->p : nullptr), fresh(c.fresh.empty() ? nullptr : d.fresh->p) {}
};
/* All chunks prepared, then segments of `segment` chunks side by side. */
template <class F>
void run_segments(emu::bench &b, const prefill_case &c, prefill_data &d, typename F::scratch &w, const fast_run &r, uint32_t segment) {
    const uint32_t all = r.chunks ? r.chunks : gdn_chunks_of(c.longest()), n = c.batch(), count = (all + segment - 1) / segment;
    const size_t states = ((size_t)d.chunks / segment + n) * c.nv * 128 * 128;
    auto nan = [](size_t) { return NOT_A_NUMBER; };
    auto &moved = b.inout<float>("moved", states, nan), &added = b.inout<float>("added", states, nan),
         &begins = b.inout<float>("begins", states, nan);
    const fast_pointers x(c, d, r);
    F::prepare(b, c, d, w, r, all);
    auto call = [&](auto entry) {
        entry(x.state, x.v, d.out->p, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, n, c.longest(), all, c.nk, c.nv, c.v_stride(), x.cu,
              c.packed, x.in, x.out, x.fresh, segment, count, moved.p, added.p, begins.p);
    };
    auto &state = c.separate ? *d.state_out : *d.state;
    b.run("carry", { r.blocks }, 512, F::FWD_SMEM, swizzled(r.proxy), { moved, added }, [&] { call(F::carry); });
    b.run("join", { c.nv, n, 8 }, 256, 0, swizzled(r.proxy), { state, begins }, [&] { call(F::join); });
    b.run("pass", { r.blocks }, 512, F::FWD_SMEM, swizzled(r.proxy), { state, *d.out }, [&] { call(F::pass); });
}
/* Rounding an exact output to bf16 costs 1.65e-3. */
inline void check_fast(emu::bench &b, prefill_data &d, double output = 1.9e-3, double state = 5e-4) {
    check_written(b, "output", d.out->p, d.want_out, output, 0.03);
    check_written(b, "state", d.state_out->p, d.want_state, state, 0.01);
}
template <class F> void whole(emu::bench &b, const prefill_case &c, const fast_run &r) {
    prefill_data d = make_prefill(b, c);
    typename F::scratch w(b, c, d.chunks);
    solve_prefill(d, c);
    F::run(b, c, d, w, r);
    check_fast(b, d);
}

template <class F> void fast_cases(emu::check &c) {
    c.test("every tail", [](emu::bench &b) {
        for (uint32_t T : { 1u, 63u, 64u, 65u, 130u }) {
            prefill_case p;
            p.nv = 1;
            p.len = { emu::small_or(std::min(T, 65u), T) };
            fast_run r;
            r.proxy = T == 65 && !LOG_GATE; /* once: it is slow */
            whole<F>(b, p, r);
        }
    });
    c.test("longer than the stages go round, two sequences", [](emu::bench &b) {
        prefill_case p;
        p.nv = 1;
        p.len = { 290, 290 };
        for (uint32_t lead : { 1u, 5u }) {
            fast_run r;
            r.lead = lead;
            r.blocks = lead == 1 ? 4 : 3; /* three workers for four tasks */
            r.helpers = lead == 1 ? 1 : 0;
            whole<F>(b, p, r);
        }
    });
    c.test("value heads of a key head: 2, 3, 4, 8", [](emu::bench &b) {
        for (uint32_t r : { 2u, 3u, 4u, 8u }) {
            prefill_case p;
            p.nk = r == 2 ? 2 : 1;
            p.nv = p.nk * r;
            p.len = { 67 };
            whole<F>(b, p, {});
        }
    });
    c.test("packed: zero length, padding, fresh, first row above 0, NaN rows, wide rows, a scale", [](emu::bench &b) {
        for (bool separate : { false, true }) {
            prefill_case p;
            p.packed = true;
            p.first = 5;
            p.nk = 2, p.nv = 2;
            p.len = { 3, 0, 70, 17, 0, 5 };
            p.pad = { false, false, false, true, false, false };
            p.fresh = { false, false, true, true, true, false };
            p.shift = separate ? 8 : 0;
            p.pad_stride = 8;
            p.separate = separate;
            p.scale = separate ? 0.25f : 0.0f;
            fast_run r;
            r.tables = true;
            r.blocks = separate ? 3 : 30;
            r.helpers = separate ? 2 : 1;
            whole<F>(b, p, r);
        }
    });
    c.test("short tasks one behind the other in a block, or one a block, states on and off 16 bytes, in place and not", [](emu::bench &b) {
        for (uint32_t kind = 0; kind < 6; kind++) {
            prefill_case p;
            p.packed = true;
            p.nv = 1;
            p.len = { 5, 64, 0, 1, 70, 3 };
            p.pad = { false, false, false, false, false, true };
            p.fresh = { false, true, false, false, false, false };
            p.separate = kind % 2;
            prefill_data d = make_prefill(b, p);
            typename F::scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            const size_t one = 128 * 128, odd = kind / 2 % 2;
            auto &in =
                b.inout<float>("states moved", d.state->n + odd, [&](size_t i) { return i < odd ? NOT_A_NUMBER : d.state->p[i - odd]; });
            auto &out = p.separate ? b.inout<float>("states out", d.state->n + odd, [&](size_t) { return NOT_A_NUMBER; }) : in;
            d.in_tab = &b.input<uint64_t>("in_tab moved", 6,
                                          [&](size_t i) { return p.is_pad((uint32_t)i) ? 0 : (uint64_t)(in.p + odd + i * one); });
            d.out_tab = &b.input<uint64_t>("out_tab moved", 6, [&](size_t i) { return (uint64_t)(out.p + odd + i * one); });
            d.state = &in, d.state_out = &out;
            fast_run r;
            r.tables = true;
            r.lead = kind < 4 ? 2 : 1;
            r.blocks = kind == 1 ? 1 : kind < 4 ? 2 : 13; /* one or two for all tasks, or one for each */
            F::run(b, p, d, w, r);
            check_written(b, "output", d.out->p, d.want_out, 1.9e-3, 0.03);
            if (p.separate) check_written(b, "state", out.p + odd, d.want_state, 5e-4, 0.01);
            double worst = 0;
            for (size_t i = 0; i < 5 * one; i++) worst = std::max(worst, std::fabs(out.p[odd + i] - d.want_state[i]));
            b.expect(worst < 0.01, "a state is not what it should be");
        }
    });
    c.test("states every 64 and 128 tokens, packed, with padding", [](emu::bench &b) {
        for (uint32_t every : { 64u, 128u }) {
            prefill_case p;
            p.packed = true;
            p.nv = 2;
            p.len = { 64, 70, 0, 200, 40 };
            p.pad = { false, true, false, false, false };
            p.ckpt_every = every;
            prefill_data d = make_prefill(b, p);
            typename F::scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            F::run(b, p, d, w, { true });
            check_fast(b, d);
            check_written(b, "checkpoints", d.ckpt->p, d.want_ckpt, 5e-4, 0.01);
        }
    });
    c.test("a sequence alone and in two launches: the bytes of the batch", [](emu::bench &b) {
        prefill_case p, alone;
        p.packed = true;
        p.nv = 2;
        p.len = { 20, 130 };
        p.separate = true;
        prefill_data d = make_prefill(b, p);
        typename F::scratch w(b, p, d.chunks);
        solve_prefill(d, p);
        F::run(b, p, d, w, { true });
        check_fast(b, d);
        const size_t one = 2 * 128 * 128, row = 2 * 128;
        const std::vector<float> state(d.state_out->p + one, d.state_out->p + 2 * one);
        std::vector<uint16_t> out;
        for (size_t i = 0; i < 130 * row; i++) out.push_back(d.out->p[20 * row + i].bits);

        alone = p;
        alone.len = { 130 };
        prefill_data half = d;
        half.cu = &b.input<int32_t>("cu of one", 2, [&](size_t i) { return i ? 150 : 20; });
        auto &mid = b.inout<float>("state between", one, [&](size_t) { return NOT_A_NUMBER; });
        auto &tab = b.input<uint64_t>("tables", 3, [&](size_t i) {
            return (uint64_t)(i == 0 ? d.state->p + one : i == 1 ? mid.p : d.state_out->p);
        });
        for (uint32_t i = 0; i < 2; i++) {
            auto &in = b.input<uint64_t>("in_tab of one", 1, [&](size_t) { return tab.p[i]; });
            auto &to = b.input<uint64_t>("out_tab of one", 1, [&](size_t) { return tab.p[i + 1]; });
            half.in_tab = &in, half.out_tab = &to;
            half.state_out = i ? d.state_out : &mid;
            fast_run r;
            r.tables = true;
            r.begin = i, r.end = i ? 3 : 1;
            F::run(b, alone, half, w, r);
            const size_t from = i ? 64 * row : 0, end = i ? 130 * row : 64 * row;
            bool same = true;
            for (size_t e = from; e < end; e++) same = same && d.out->p[20 * row + e].bits == out[e];
            b.expect(same, "output bytes differ between one launch of a batch and two of the sequence alone");
        }
        b.expect(std::equal(state.begin(), state.end(), d.state_out->p), "the state's bytes differ between one launch and two");
        b.expect(!std::equal(state.begin(), state.end(), mid.p), "control: the state between is not the last one");
    });
    c.test("segments side by side: tails, borders, packed with padding", [](emu::bench &b) {
        for (uint32_t kind = 0; kind < 4; kind++) {
            prefill_case p;
            p.nv = kind == 3 ? 2 : 1;
            p.len = { kind == 0 ? 100u : kind == 1 ? 256u : 300u };
            fast_run r;
            if (kind == 3) {
                p.packed = true;
                p.first = 5;
                p.len = { 3, 0, 150, 70, 0, 128 };
                p.pad = { false, false, false, true, false, false };
                p.fresh = { false, false, true, true, true, false };
                r.tables = true;
            }
            p.separate = kind == 3;
            prefill_data d = make_prefill(b, p);
            typename F::scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            run_segments<F>(b, p, d, w, r, kind == 2 ? 1 : 2);
            check_fast(b, d);
        }
    });
    c.test("segments: what is longer than the launch is for is cut there, and its neighbours are right", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nv = 1;
        p.len = { 300, 70, 130 };
        prefill_data d = make_prefill(b, p);
        typename F::scratch w(b, p, d.chunks);
        fast_run r;
        r.tables = true;
        r.chunks = 4;
        solve_prefill(d, p);
        run_segments<F>(b, p, d, w, r, 2);
        const size_t row = 128;
        auto part = [&](size_t from, size_t to) {
            double e = 0, n = 0;
            for (size_t i = from * row; i < to * row; i++) {
                const double x = gdn_to_f32(d.out->p[i]) - d.want_out[i];
                e += x * x, n += d.want_out[i] * d.want_out[i];
            }
            return std::sqrt(e / n);
        };
        b.expect(part(0, 256) < 1.9e-3 && part(300, 500) < 1.9e-3, "outputs in front of the cut, or of the sequences behind it, are wrong");
    });
    c.test("segments: cut at a border, and alone: the bytes of the batch", [](emu::bench &b) {
        prefill_case whole, part;
        whole.packed = true;
        whole.nv = 1;
        whole.len = { 20, 300 };
        whole.separate = true;
        prefill_data d = make_prefill(b, whole);
        typename F::scratch w(b, whole, d.chunks);
        solve_prefill(d, whole);
        fast_run r;
        r.tables = true;
        run_segments<F>(b, whole, d, w, r, 2);
        check_fast(b, d);
        const size_t one = 128 * 128, row = 128;
        const std::vector<float> state(d.state_out->p + one, d.state_out->p + 2 * one);
        std::vector<uint16_t> out;
        for (size_t i = 0; i < 300 * row; i++) out.push_back(d.out->p[20 * row + i].bits);
        auto &mid = b.inout<float>("state between", one, [&](size_t) { return NOT_A_NUMBER; });
        const uint32_t cut[] = { 0, 128, 300 };
        for (uint32_t i = 0; i < 2; i++) {
            prefill_data half = d;
            part = whole;
            part.len = { cut[i + 1] - cut[i] };
            half.cu = &b.input<int32_t>("cu of one", 2, [&](size_t k) { return (int32_t)(20 + cut[i + k]); });
            half.chunks = gdn_chunks_of(part.len[0]);
            half.in_tab = &b.input<uint64_t>("in_tab of one", 1, [&](size_t) { return (uint64_t)(i ? mid.p : d.state->p + one); });
            half.out_tab = &b.input<uint64_t>("out_tab of one", 1, [&](size_t) { return (uint64_t)(i ? d.state_out->p + one : mid.p); });
            half.state_out = i ? d.state_out : &mid;
            run_segments<F>(b, part, half, w, r, 2);
            bool same = true;
            for (size_t e = cut[i] * row; e < cut[i + 1] * row; e++) same = same && d.out->p[20 * row + e].bits == out[e];
            b.expect(same, "output bytes differ between the whole and a part");
        }
        b.expect(std::equal(state.begin(), state.end(), d.state_out->p + one), "the state's bytes differ between the whole and two parts");
    });
    c.test("decay 0, decay 1, equal keys with beta 1, small decays, large values", [](emu::bench &b) {
        for (uint32_t kind = 0; kind < 5; kind++) {
            prefill_case p;
            p.nv = 1;
            p.len = { emu::small_or(65u, 100u) };
            if (kind == 0 && !LOG_GATE) p.gate_lo = p.gate_hi = 0;
            if (kind == 1) p.gate_lo = p.gate_hi = 1;
            if (kind == 2) p.beta_lo = p.beta_hi = 1, p.gate_lo = p.gate_hi = 1;
            if (kind == 3) p.gate_lo = p.gate_hi = 1.03e-12f;
            prefill_data d = make_prefill(b, p);
            if (kind == 2) { /* 64 times the same key */
                auto &k = b.input<gdn_bf16>("one key", d.k->n, [&](size_t i) { return d.k->p[i < d.k->n - 256 ? i % 128 : i]; });
                d.k = &k;
            }
            if (kind == 4) {
                auto &v = b.input<gdn_bf16>("large", d.v->n, [&](size_t i) { return bf16_of(gdn_to_f32(d.v->p[i]) * 16384.0f); });
                d.v = &v;
            }
            typename F::scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            F::run(b, p, d, w, {});
            check_written(b, "output", d.out->p, d.want_out, 1.9e-3, kind == 4 ? 500 : 0.05);
            check_written(b, "state", d.state->p, d.want_state, 5e-4, kind == 4 ? 100 : 0.05);
        }
    });
    c.test("keys that are alike, betas and decays near 1: what is lost has a bound", [](emu::bench &b) {
        const struct {
            float keys, queries, gate_lo, beta_lo;
            double output, state;
        } kinds[] = { { 0.5f, 0.5f, 0.9f, 0, 1.9e-3, 5e-4 }, { 0.5f, 0.5f, 1, 1, 2e-3, 1e-3 },    { 0.9f, 0.9f, 0.999f, 0, 2e-3, 8e-4 },
                      { 0.9f, 0.9f, 1, 1, 2.2e-3, 1.2e-3 },  { 1, 0, 0.99f, 0.8f, 2.3e-3, 5e-4 }, { 1, 1, 0.8f, 0, 1.9e-3, 5e-4 } };
        for (const auto &k : kinds)
            for (bool segments : { false, true }) {
                prefill_case p;
                p.nv = 1;
                p.len = { emu::small_or(100u, 230u) };
                p.gate_lo = k.gate_lo, p.gate_hi = 1;
                p.beta_lo = k.beta_lo;
                prefill_data d = make_prefill(b, p);
                d.k = alike(b, *d.k, k.keys, p);
                d.q = alike(b, *d.q, k.queries, p);
                typename F::scratch w(b, p, d.chunks);
                solve_prefill(d, p);
                if (segments)
                    run_segments<F>(b, p, d, w, {}, 1);
                else
                    F::run(b, p, d, w, {});
                check_fast(b, d, F::ALIKE ? k.output : 1.9e-3, F::ALIKE ? k.state : 5e-4);
            }
    });
}
