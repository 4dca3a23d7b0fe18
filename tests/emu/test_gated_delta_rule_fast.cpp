/* test_gated_delta_rule_fast.cpp - kernels/hopper/gated_delta_rule_fast.cu on the emulator against the f64 token recurrence: tails,
 * packed sequences with padding, fresh and zero-length ones among NaN rows, head ratios; and what must be the same bytes. */
#include "emu_check.hpp"

#include "gated_delta_rule_fast.cu"
#include "gated_delta_rule_fast_segments.cu"

#include "emu_prefill_case.hpp"

/* The scratch, poisoned with NaN. */
struct fast_scratch {
    emu::tensor_of<uint8_t> *k, *q, *t, *p;
    emu::tensor_of<float> *scalars;
    emu::tensor_of<uint32_t> *words;
    fast_scratch(emu::bench &b, const prefill_case &c, uint32_t chunks) {
        const size_t n = std::max(chunks, 1u);
        auto tile = [&](const char *name, size_t bytes) { return &b.inout<uint8_t>(name, bytes, [](size_t) { return (uint8_t)0xff; }); };
        k = tile("K16", n * c.nk * 16384), q = tile("Q16", n * c.nk * 16384);
        t = tile("T16", n * c.nv * 8192), p = tile("P16", n * c.nv * 8192);
        scalars = &b.inout<float>("scalars", n * c.nv * 260, [](size_t) { return NOT_A_NUMBER; });
        words = &b.inout<uint32_t>("words", 32 + n * c.nk, [](size_t i) { return i > 1 ? 2u : 77u; }); /* flags of a run before */
    }
};
static emu::options swizzled(bool proxy) {
    emu::options o;
    o.smem_align = 1024;
    o.check_proxy = proxy;
    return o;
}

/* tables: states through in_tab and out_tab. Chunks [begin, end) of every sequence; end 0: all. lead: of them are prepared in front. */
struct fast_run {
    bool tables = false, proxy = false;
    uint32_t begin = 0, end = 0, lead = 1, blocks = 3, helpers = 1, chunks = 0; /* chunks: launched of the longest sequence, 0: all */
};
static void run_fast(emu::bench &b, const prefill_case &c, prefill_data &d, fast_scratch &w, const fast_run &r) {
    const uint32_t all = gdn_chunks_of(c.longest()), n = c.batch();
    const uint32_t here = (r.end ? std::min(all, r.end) : all) - r.begin, lead = std::min(r.lead, here);
    const float *const gate = d.gb->p;
    const int32_t *const cu = c.packed ? d.cu->p : nullptr;
    const uint64_t *const in = r.tables ? d.in_tab->p : nullptr, *const out = r.tables ? d.out_tab->p : nullptr;
    const uint8_t *const fresh = c.fresh.empty() ? nullptr : d.fresh->p;
    const gdn_bf16 *const q = d.q->p + c.shift, *const k = d.k->p + c.shift, *const v = d.v->p + c.shift;
    if (lead)
        b.run("prepare", { c.nk, lead, n }, 256, 67648, swizzled(r.proxy), { *w.k, *w.q, *w.t, *w.p, *w.scalars, *w.words }, [&] {
            (lead % 2 ? gated_delta_rule_fast_prepare : gated_delta_rule_fast_prepare_two)(q, k, gate, gate + c.nv, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, w.words->p, c.longest(),
                                          all, c.nk, c.nv, c.qk_stride(), c.gb_stride(), cu, c.packed, in, out, c.scale, r.begin, r.end, 0,
                                          (uint32_t)w.words->n);
        });
    auto fwd = [&](auto entry, auto... more) {
        entry(r.tables ? nullptr : d.state->p, q, k, v, gate, gate + c.nv, d.out->p, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p,
              w.words->p, n, c.longest(), all, c.nk, c.nv, c.qk_stride(), c.v_stride(), c.gb_stride(), cu, c.packed, in, out, fresh,
              c.scale, r.begin, r.end, 0, lead, lead < here ? r.helpers : 0, more...);
    };
    const bool many = 2 * c.nv * n > r.blocks && lead == here && !c.ckpt_every; /* gpu_prefill.c's rule */
    b.run(many ? "many" : "fwd", { r.blocks }, 512, many ? 216288 : 183472, swizzled(r.proxy),
          { c.separate ? *d.state_out : *d.state, *d.out, *d.ckpt, *w.k, *w.q, *w.t, *w.p, *w.scalars, *w.words }, [&] {
              if (c.ckpt_every)
                  fwd(gated_delta_rule_fast_fwd_ext, d.ckpt->p, c.ckpt_every);
              else if (many)
                  fwd(gated_delta_rule_fast_many);
              else
                  fwd(gated_delta_rule_fast_fwd);
          });
}
/* All chunks prepared, then segments of `segment` chunks side by side. */
static void run_segments(emu::bench &b, const prefill_case &c, prefill_data &d, fast_scratch &w, const fast_run &r, uint32_t segment) {
    const uint32_t all = r.chunks ? r.chunks : gdn_chunks_of(c.longest()), n = c.batch(), count = (all + segment - 1) / segment;
    const size_t states = ((size_t)d.chunks / segment + n) * c.nv * 128 * 128;
    auto nan = [](size_t) { return NOT_A_NUMBER; };
    auto &moved = b.inout<float>("moved", states, nan), &added = b.inout<float>("added", states, nan),
         &begins = b.inout<float>("begins", states, nan);
    const float *const gate = d.gb->p;
    const int32_t *const cu = c.packed ? d.cu->p : nullptr;
    const uint64_t *const in = r.tables ? d.in_tab->p : nullptr, *const out = r.tables ? d.out_tab->p : nullptr;
    const uint8_t *const fresh = c.fresh.empty() ? nullptr : d.fresh->p;
    const gdn_bf16 *const v = d.v->p + c.shift;
    b.run("prepare", { c.nk, all, n }, 256, 67648, swizzled(r.proxy), { *w.k, *w.q, *w.t, *w.p, *w.scalars }, [&] {
        gated_delta_rule_fast_prepare(d.q->p + c.shift, d.k->p + c.shift, gate, gate + c.nv, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p,
                                      w.words->p, c.longest(), all, c.nk, c.nv, c.qk_stride(), c.gb_stride(), cu, c.packed, in, out,
                                      c.scale, 0, all, 0, 0);
    });
    auto call = [&](auto entry) {
        entry(r.tables ? nullptr : d.state->p, v, d.out->p, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, n, c.longest(), all, c.nk, c.nv,
              c.v_stride(), cu, c.packed, in, out, fresh, segment, count, moved.p, added.p, begins.p);
    };
    auto &state = c.separate ? *d.state_out : *d.state;
    b.run("carry", { r.blocks }, 512, 183472, swizzled(r.proxy), { moved, added }, [&] { call(gated_delta_rule_fast_carry); });
    b.run("join", { c.nv, n, 8 }, 256, 0, swizzled(r.proxy), { state, begins }, [&] { call(gated_delta_rule_fast_join); });
    b.run("pass", { r.blocks }, 512, 183472, swizzled(r.proxy), { state, *d.out }, [&] { call(gated_delta_rule_fast_pass); });
}
/* Rounding an exact output to bf16 costs 1.65e-3. */
static void check_fast(emu::bench &b, prefill_data &d, double output = 1.9e-3, double state = 5e-4) {
    check_written(b, "output", d.out->p, d.want_out, output, 0.03);
    check_written(b, "state", d.state_out->p, d.want_state, state, 0.01);
}
static void whole(emu::bench &b, const prefill_case &c, const fast_run &r) {
    prefill_data d = make_prefill(b, c);
    fast_scratch w(b, c, d.chunks);
    solve_prefill(d, c);
    run_fast(b, c, d, w, r);
    check_fast(b, d);
}

/* Of one key head, keys (or queries) with a common direction: <k, k'> about `common`; 1: all the same. */
static emu::tensor_of<gdn_bf16> *alike(emu::bench &b, const emu::tensor_of<gdn_bf16> &from, float common, const prefill_case &c) {
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

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("every tail", [](emu::bench &b) {
        for (uint32_t T : { 1u, 63u, 64u, 65u, 130u }) {
            prefill_case p;
            p.nv = 1;
            p.len = { emu::small_or(std::min(T, 65u), T) };
            fast_run r;
            r.proxy = T == 65;
            whole(b, p, r);
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
            whole(b, p, r);
        }
    });
    c.test("value heads of a key head: 2, 3, 4, 8", [](emu::bench &b) {
        for (uint32_t r : { 2u, 3u, 4u, 8u }) {
            prefill_case p;
            p.nk = r == 2 ? 2 : 1;
            p.nv = p.nk * r;
            p.len = { 67 };
            whole(b, p, {});
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
            whole(b, p, r);
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
            fast_scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            const size_t one = 128 * 128, odd = kind / 2 % 2;
            auto &in = b.inout<float>("states moved", d.state->n + odd, [&](size_t i) { return i < odd ? NOT_A_NUMBER : d.state->p[i - odd]; });
            auto &out = p.separate ? b.inout<float>("states out", d.state->n + odd, [&](size_t) { return NOT_A_NUMBER; }) : in;
            d.in_tab = &b.input<uint64_t>("in_tab moved", 6, [&](size_t i) { return p.is_pad((uint32_t)i) ? 0 : (uint64_t)(in.p + odd + i * one); });
            d.out_tab = &b.input<uint64_t>("out_tab moved", 6, [&](size_t i) { return (uint64_t)(out.p + odd + i * one); });
            d.state = &in, d.state_out = &out;
            fast_run r;
            r.tables = true;
            r.lead = kind < 4 ? 2 : 1;
            r.blocks = kind == 1 ? 1 : kind < 4 ? 2 : 13; /* one or two for all tasks, or one for each */
            run_fast(b, p, d, w, r);
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
            fast_scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            run_fast(b, p, d, w, { true });
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
        fast_scratch w(b, p, d.chunks);
        solve_prefill(d, p);
        run_fast(b, p, d, w, { true });
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
            run_fast(b, alone, half, w, r);
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
            fast_scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            run_segments(b, p, d, w, r, kind == 2 ? 1 : 2);
            check_fast(b, d);
        }
    });
    c.test("segments: what is longer than the launch is for is cut there, and its neighbours are right", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nv = 1;
        p.len = { 300, 70, 130 };
        prefill_data d = make_prefill(b, p);
        fast_scratch w(b, p, d.chunks);
        fast_run r;
        r.tables = true;
        r.chunks = 4;
        solve_prefill(d, p);
        run_segments(b, p, d, w, r, 2);
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
        fast_scratch w(b, whole, d.chunks);
        solve_prefill(d, whole);
        fast_run r;
        r.tables = true;
        run_segments(b, whole, d, w, r, 2);
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
            run_segments(b, part, half, w, r, 2);
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
            fast_scratch w(b, p, d.chunks);
            solve_prefill(d, p);
            run_fast(b, p, d, w, {});
            /* Equal keys: uc holds differences of neighbouring rows, whose roundings meet in the one row of the state that they fill. */
            check_written(b, "output", d.out->p, d.want_out, 1.9e-3, kind == 4 ? 500 : 0.05);
            check_written(b, "state", d.state->p, d.want_state, kind == 2 ? 1.2e-3 : 5e-4, kind == 4 ? 100 : 0.05);
        }
    });
    /* T and uc hold differences that cancel in the sums with such keys; their roundings do not (docs/performance.md, Prefill). */
    c.test("keys that are alike, betas and decays near 1: what is lost has a bound", [](emu::bench &b) {
        const struct {
            float keys, queries, gate_lo, beta_lo;
            double output, state;
        } kinds[] = { { 0.5f, 0.5f, 0.9f, 0, 1.9e-3, 5e-4 }, { 0.5f, 0.5f, 1, 1, 2e-3, 1e-3 },      { 0.9f, 0.9f, 0.999f, 0, 2e-3, 8e-4 },
                      { 0.9f, 0.9f, 1, 1, 2.2e-3, 1.2e-3 },  { 1, 0, 0.99f, 0.8f, 2.3e-3, 1.9e-3 }, { 1, 1, 0.8f, 0, 1.9e-3, 9e-4 } };
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
                fast_scratch w(b, p, d.chunks);
                solve_prefill(d, p);
                if (segments)
                    run_segments(b, p, d, w, {}, 1);
                else
                    run_fast(b, p, d, w, {});
                check_fast(b, d, k.output, k.state);
            }
    });
    return c.done();
}
