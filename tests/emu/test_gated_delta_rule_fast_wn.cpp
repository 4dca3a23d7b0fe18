/* test_gated_delta_rule_fast_wn.cpp - kernels/hopper/gated_delta_rule_fast_wn.cu on the emulator: the cases of emu_fast_cases.hpp, and the
 * same bytes from blocks with some of a unit's value heads. */
#include "emu_check.hpp"

#include "gated_delta_rule_fast_segments.cu"
#include "gated_delta_rule_fast_wn.cu"
#include "gated_delta_rule_fast_wn_segments.cu"

#include "emu_fast_cases.hpp"

struct by_w_and_n {
    struct scratch : fast_scratch {
        scratch(emu::bench &b, const prefill_case &c, uint32_t chunks) : fast_scratch(b, c, chunks, 16384, gdn_wn::SCALARS) {}
    };
    enum { FWD_SMEM = gdn_wn::FWD_SMEM };
    static constexpr auto carry = gated_delta_rule_fast_wn_carry, join = gated_delta_rule_fast_join, pass = gated_delta_rule_fast_wn_pass;
    static constexpr bool ALIKE = false;

    static void prepare(emu::bench &b, const prefill_case &c, prefill_data &d, scratch &w, const fast_run &r, uint32_t all) {
        const fast_pointers x(c, d, r);
        const uint32_t end = r.end ? std::min(all, r.end) : all, ratio = c.nv / c.nk, units = c.nk * (end - r.begin) * c.batch();
        const uint32_t heads = r.heads ? r.heads : ratio, whole = std::min(r.whole, units);
        const uint32_t blocks = whole + (units - whole) * ((ratio + heads - 1) / heads);
        if (!blocks) return;
        b.run("prepare", { blocks }, 256, gdn_wn::PREPARE_SMEM, swizzled(r.proxy), { *w.k, *w.q, *w.t, *w.p, *w.scalars }, [&] {
            gated_delta_rule_fast_wn_prepare(x.q, x.k, x.gate, x.beta, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, c.batch(), c.longest(),
                                             all, c.nk, c.nv, c.qk_stride(), c.gb_stride(), x.cu, c.packed, x.in, x.out, c.scale, r.begin,
                                             end, 0, whole, heads);
        });
    }
    static void run(emu::bench &b, const prefill_case &c, prefill_data &d, scratch &w, const fast_run &r) {
        const uint32_t all = gdn_chunks_of(c.longest());
        const fast_pointers x(c, d, r);
        prepare(b, c, d, w, r, all);
        auto fwd = [&](auto entry, auto... more) {
            entry(x.state, x.v, d.out->p, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, c.batch(), c.longest(), all, c.nk, c.nv,
                  c.v_stride(), x.cu, c.packed, x.in, x.out, x.fresh, c.scale, r.begin, r.end, more...);
        };
        b.run("fwd", { r.blocks }, 512, FWD_SMEM, swizzled(r.proxy), { c.separate ? *d.state_out : *d.state, *d.out, *d.ckpt }, [&] {
            if (c.ckpt_every)
                fwd(gated_delta_rule_fast_wn_fwd_ext, d.ckpt->p, c.ckpt_every);
            else
                fwd(gated_delta_rule_fast_wn_fwd);
        });
    }
};

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    fast_cases<by_w_and_n>(c);
    c.test("units shared by blocks of one or two value heads: the same bytes of the scratch, and the right output", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nk = 2, p.nv = 6;
        p.len = { 70, 0, 20 };
        prefill_data d = make_prefill(b, p);
        by_w_and_n::scratch all(b, p, d.chunks);
        const uint32_t chunks = gdn_chunks_of(p.longest());
        fast_run r;
        by_w_and_n::prepare(b, p, d, all, r, chunks);
        solve_prefill(d, p);
        const struct { uint32_t whole, heads; } shares[] = { { 0, 1 }, { 0, 2 }, { 3, 2 } };
        for (const auto &s : shares) {
            by_w_and_n::scratch w(b, p, d.chunks);
            r.whole = s.whole, r.heads = s.heads;
            if (s.whole)
                by_w_and_n::run(b, p, d, w, r);
            else
                by_w_and_n::prepare(b, p, d, w, r, chunks);
            b.same_bytes(*all.k, *w.k);
            b.same_bytes(*all.q, *w.q);
            b.same_bytes(*all.t, *w.t);
            b.same_bytes(*all.p, *w.p);
            b.same_bytes(*all.scalars, *w.scalars);
        }
        check_fast(b, d);
    });
    return c.done();
}
