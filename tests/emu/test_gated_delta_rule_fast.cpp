/* test_gated_delta_rule_fast.cpp - kernels/hopper/gated_delta_rule_fast.cu on the emulator: the cases of emu_fast_cases.hpp. */
#include "emu_check.hpp"

#include "gated_delta_rule_fast.cu"
#include "gated_delta_rule_fast_segments.cu"

#include "emu_fast_cases.hpp"

struct by_t_and_p {
    struct scratch : fast_scratch {
        emu::tensor_of<uint32_t> *words;
        scratch(emu::bench &b, const prefill_case &c, uint32_t chunks) : fast_scratch(b, c, chunks, 8192, 292) {
            const size_t n = std::max(chunks, 1u);
            words = &b.inout<uint32_t>("words", 32 + n * c.nk, [](size_t i) { return i > 1 ? 2u : 77u; }); /* flags of a run before */
        }
    };
    enum { FWD_SMEM = 183856, PREPARE_SMEM = gdn_fast::PREPARE_SMEM };
    static constexpr auto carry = gated_delta_rule_fast_carry, join = gated_delta_rule_fast_join, pass = gated_delta_rule_fast_pass;
    /* T and uc hold differences that cancel in the sums with keys that are alike; their roundings do not (docs/performance.md, Prefill). */
    static constexpr bool ALIKE = true;

    static void prepare(emu::bench &b, const prefill_case &c, prefill_data &d, scratch &w, const fast_run &r, uint32_t all) {
        const fast_pointers x(c, d, r);
        b.run("prepare", { c.nk, all, c.batch() }, 256, PREPARE_SMEM, swizzled(r.proxy), { *w.k, *w.q, *w.t, *w.p, *w.scalars }, [&] {
            gated_delta_rule_fast_prepare(x.q, x.k, x.gate, x.beta, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, w.words->p, c.longest(),
                                          all, c.nk, c.nv, c.qk_stride(), c.gb_stride(), x.cu, c.packed, x.in, x.out, c.scale, 0, all, 0, 0,
                                          c.nv / c.nk);
        });
    }
    static void run(emu::bench &b, const prefill_case &c, prefill_data &d, scratch &w, const fast_run &r) {
        const uint32_t all = gdn_chunks_of(c.longest()), n = c.batch();
        const uint32_t here = (r.end ? std::min(all, r.end) : all) - r.begin, lead = std::min(r.lead, here);
        const uint32_t ratio = c.nv / c.nk, heads = lead % 2 ? (ratio + 1) / 2 : ratio; /* of a block */
        const fast_pointers x(c, d, r);
        if (lead)
            b.run("prepare", { c.nk * ((ratio + heads - 1) / heads), lead, n }, 256, PREPARE_SMEM, swizzled(r.proxy),
                  { *w.k, *w.q, *w.t, *w.p, *w.scalars, *w.words }, [&] {
                      (lead % 2 ? gated_delta_rule_fast_prepare : gated_delta_rule_fast_prepare_two)(
                          x.q, x.k, x.gate, x.beta, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, w.words->p, c.longest(), all, c.nk, c.nv,
                          c.qk_stride(), c.gb_stride(), x.cu, c.packed, x.in, x.out, c.scale, r.begin, r.end, 0, (uint32_t)w.words->n,
                          heads);
                  });
        auto fwd = [&](auto entry, auto... more) {
            entry(x.state, x.q, x.k, x.v, x.gate, x.beta, d.out->p, w.k->p, w.q->p, w.t->p, w.p->p, w.scalars->p, w.words->p, n,
                  c.longest(), all, c.nk, c.nv, c.qk_stride(), c.v_stride(), c.gb_stride(), x.cu, c.packed, x.in, x.out, x.fresh, c.scale,
                  r.begin, r.end, 0, lead, lead < here ? r.helpers : 0, more...);
        };
        const bool many = 2 * c.nv * n > r.blocks && lead == here && !c.ckpt_every; /* gpu_prefill.c's rule */
        b.run(many ? "many" : "fwd", { r.blocks }, 512, many ? 216672 : FWD_SMEM, swizzled(r.proxy),
              { c.separate ? *d.state_out : *d.state, *d.out, *d.ckpt, *w.k, *w.q, *w.t, *w.p, *w.scalars, *w.words }, [&] {
                  if (c.ckpt_every)
                      fwd(gated_delta_rule_fast_fwd_ext, d.ckpt->p, c.ckpt_every);
                  else if (many)
                      fwd(gated_delta_rule_fast_many);
                  else
                      fwd(gated_delta_rule_fast_fwd);
              });
    }
};

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    fast_cases<by_t_and_p>(c);
    return c.done();
}
