/* test_gated_delta_rule_variants.cpp - gated_delta_rule_fla.cu with all three of its variants at once: V-major states, the tiled head map,
 * log gates. Each is a change that the f64 reference makes for itself, so that any one of them ignored fails. */
#define GDN_STATE_VK
#define GDN_HEADS_TILED
#define GDN_GATE_LOG
#include "emu_check.hpp"

#include "gated_delta_rule_fla.cu"

#include "emu_prefill_run.hpp"

static const auto pipe_ = entries_of("spine pipe", gated_delta_rule_recompute_wu, gated_delta_rule_recompute_wu_ext, 256, 33024,
                                     gated_delta_rule_chunk_delta_h_pipe, gated_delta_rule_chunk_delta_h_pipe_ext, 256, 99336,
                                     gated_delta_rule_chunk_fwd_o_mma8, gated_delta_rule_chunk_fwd_o_mma8_ext, 512, 98816);

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("V-major, tiled, log gates: packed with a checkpoint", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nk = 2, p.nv = 4;
        p.len = { 66, 5 };
        p.separate = true;
        p.ckpt_every = 64;
        prefill_data d = make_prefill(b, p);
        solve_prefill(d, p);
        run_prefill(b, p, d, pipe_, true);
        check_prefill(b, d, p, true);
    });
    c.test("log gates far below ln 1e-30", [](emu::bench &b) {
        prefill_case p;
        p.nv = 1;
        p.nk = 1;
        p.len = { 40 };
        prefill_data d = make_prefill(b, p);
        auto &gb = b.input<float>("gates", d.gb->n, [&](size_t i) { return i % 3 == 0 && !std::isnan(d.gb->p[i]) ? -1e30f : d.gb->p[i]; });
        d.gb = &gb;
        solve_prefill(d, p);
        run_prefill(b, p, d, pipe_, false);
        check_prefill(b, d, p, false);
    });
    return c.done();
}
