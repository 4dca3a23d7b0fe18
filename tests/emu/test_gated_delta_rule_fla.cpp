/* test_gated_delta_rule_fla.cpp - kernels/gb10/gated_delta_rule_fla.cu on the emulator, against the f64 token recurrence, and the pairs
 * that must agree byte for byte. */
#include "emu_check.hpp"

#include "gated_delta_rule_fla.cu"

#include "emu_prefill_run.hpp"

#define FLA_(spine, block, smem, o)                                                                                    \
    entries_of("spine " #spine, gated_delta_rule_recompute_wu, gated_delta_rule_recompute_wu_ext, GDN_WU_BLOCK, 33024, \
               gated_delta_rule_chunk_delta_h_##spine, gated_delta_rule_chunk_delta_h_##spine##_ext, block, smem,      \
               gated_delta_rule_chunk_##o, gated_delta_rule_chunk_##o##_ext, GDN_O_BLOCK, 98816)
static const auto pipe_ = FLA_(pipe, 256, 99336, fwd_o_mma8);
static const auto vfused = FLA_(vfused, 256, 49412, fwd_o);
static const auto vtile = FLA_(vtile, 512, 49412, fwd_o_mma8);

/* What a pipeline wrote, to be compared with what another one writes. */
struct written {
    std::vector<char> bytes;
    explicit written(prefill_data &d) { add(*d.W), add(*d.U), add(*d.gc), add(*d.S), add(*d.uc), add(*d.state), add(*d.out); }
    template <class T> void add(emu::tensor_of<T> &t) {
        const char *const p = reinterpret_cast<const char *>(t.p);
        bytes.insert(bytes.end(), p, p + t.n * sizeof(T));
    }
};

static void same(emu::bench &b, const written &a, const written &other, const char *what) {
    b.expect(a.bytes == other.bytes, what);
    written off = other;
    off.bytes[off.bytes.size() / 3] = (char)(off.bytes[off.bytes.size() / 3] ^ 1);
    b.expect(a.bytes != off.bytes, "control: one changed bit went unnoticed");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("every tail, core entries, alone", [](emu::bench &b) {
        for (uint32_t T : { 1u, 63u, 64u, 65u, 130u }) {
            prefill_case p;
            p.nv = 1;
            p.len = { emu::small_or(std::min(T, 65u), T) };
            prefill_data d = make_prefill(b, p);
            solve_prefill(d, p);
            run_prefill(b, p, d, pipe_, false);
            check_prefill(b, d, p, false);
        }
    });
    c.test("pipe and vfused, fwd_o and mma8, core and _ext: the same bytes", [](emu::bench &b) {
        prefill_case p;
        p.len = { 103 };
        prefill_data d = make_prefill(b, p);
        solve_prefill(d, p);
        const std::vector<float> start(d.state->p, d.state->p + d.state->n);
        auto from_start = [&](const auto &entries, bool ext) {
            std::copy(start.begin(), start.end(), d.state->p);
            run_prefill(b, p, d, entries, ext);
        };
        from_start(pipe_, false);
        const written fast(d);
        from_start(vfused, false);
        same(b, fast, written(d), "vfused and fwd_o wrote other bytes than pipe and mma8");
        from_start(pipe_, true);
        same(b, fast, written(d), "_ext without extras wrote other bytes than the core");
        from_start(vtile, false);
        check_prefill(b, d, p, false);
    });
    c.test("packed: zero length, padding, fresh, first row above 0, narrow rows", [](emu::bench &b) {
        for (uint32_t shift : { 0u, 1u, 2u }) {
            prefill_case p;
            p.packed = true;
            p.first = 5;
            p.nk = 2, p.nv = 2;
            p.len = { 3, 0, 70, 17, 0, 5 };
            p.pad = { false, false, false, true, false, false };
            p.fresh = { false, false, true, true, true, false };
            p.shift = shift;
            p.pad_stride = shift == 0 ? 8 : shift;
            prefill_data d = make_prefill(b, p);
            solve_prefill(d, p);
            for (size_t i = 0; i < d.want_out.size(); i++) /* padding rows are zeroed, exactly */
                if (i / ((size_t)p.nv * 128) >= 5 + 73 && i / ((size_t)p.nv * 128) < 5 + 90)
                    b.expect(d.want_out[i] == 0, "the reference of a padding row is not 0");
            run_prefill(b, p, d, pipe_, true);
            check_prefill(b, d, p, true);
        }
    });
    c.test("states elsewhere, checkpoints, a scale, fresh", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nv = 1;
        p.len = { 130, 64, 63 };
        p.fresh = { false, true, false };
        p.separate = true;
        p.ckpt_every = 64;
        p.scale = 0.25f;
        prefill_data d = make_prefill(b, p);
        solve_prefill(d, p);
        run_prefill(b, p, d, pipe_, true);
        check_prefill(b, d, p, true);
    });
    c.test("a batch's sequence alone, and in two launches: the same bytes", [](emu::bench &b) {
        prefill_case p;
        p.packed = true;
        p.nv = 1;
        p.len = { 20, 130 };
        p.separate = true;
        prefill_data d = make_prefill(b, p);
        solve_prefill(d, p);
        run_prefill(b, p, d, pipe_, true);
        check_prefill(b, d, p, true);
        const size_t one = 128 * 128, rows = 130 * 128;
        const std::vector<float> state(d.state_out->p + one, d.state_out->p + 2 * one);
        std::vector<uint16_t> out;
        for (size_t i = 0; i < rows; i++) out.push_back(d.out->p[20 * 128 + i].bits);

        /* alone: the first 64 tokens into a state of their own, then the others from there */
        auto &cu = b.input<int32_t>("cu of one", 2, [&](size_t i) { return i ? 150 : 20; });
        auto &mid = b.inout<float>("state between", one, [&](size_t) { return NOT_A_NUMBER; });
        auto &tab = b.input<uint64_t>("tables", 3, [&](size_t i) {
            return (uint64_t)(i == 0 ? d.state->p + one : i == 1 ? mid.p : d.state_out->p);
        });
        const float *const gb = d.gb->p;
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t begin = half, end = half ? 3 : 1, grid = end - begin;
            const uint64_t *const in = tab.p + half, *const to = tab.p + half + 1;
            b.run("wu", { grid, 1, 1 }, 256, 33024, { *d.W, *d.U, *d.gc }, [&] {
                gated_delta_rule_recompute_wu_ext(d.k->p, d.v->p, gb, gb + 1, d.W->p, d.U->p, d.gc->p, 1, 0, 3, 1, 1, 128, 128, 128, 128, 3,
                                                  cu.p, nullptr, 1, in, to, nullptr, nullptr, 0, 0, begin, end, 0);
            });
            b.run("spine", { 1, 1 }, 256, 99336, { *d.S, *d.uc, half ? *d.state_out : mid }, [&] {
                gated_delta_rule_chunk_delta_h_pipe_ext(nullptr, d.W->p, d.U->p, d.k->p, gb, d.gc->p, d.S->p, d.uc->p, 1, 0, 3, 1, 1, 128,
                                                        128, 128, 3, 0, cu.p, nullptr, 1, in, to, nullptr, nullptr, 0, 0, begin, end, 0);
            });
            b.run("o", { grid, 1, 1 }, 512, 98816, { *d.out }, [&] {
                gated_delta_rule_chunk_fwd_o_mma8_ext(d.q->p, d.k->p, gb, d.gc->p, d.S->p, d.uc->p, d.out->p, 1, 0, 3, 1, 1, 128, 128, 128,
                                                      3, cu.p, nullptr, 1, in, to, nullptr, nullptr, 0, 0, begin, end, 0);
            });
            const size_t from = half ? 64 * 128 : 0, to_row = half ? rows : 64 * 128;
            for (size_t i = from; i < to_row; i++)
                if (d.out->p[20 * 128 + i].bits != out[i]) {
                    b.expect(false, "output bytes differ between one launch of a batch and two of the sequence alone");
                    break;
                }
        }
        b.expect(std::equal(state.begin(), state.end(), d.state_out->p), "the state's bytes differ between one launch and two");
    });
    c.test("decay 0, decay 1, equal keys with beta 1, decays near the smallest", [](emu::bench &b) {
        for (uint32_t kind = 0; kind < 4; kind++) {
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
            solve_prefill(d, p);
            run_prefill(b, p, d, vfused, false);
            /* Equal keys: U holds differences of neighbouring rows, whose roundings add up in the one row of the state that they fill. */
            const double bound = kind == 2 ? 8e-3 : 3.5e-3;
            check_written(b, "output", d.out->p, d.want_out, bound, 0.05);
            check_written(b, "state", d.state->p, d.want_state, bound, 0.05);
        }
    });
    return c.done();
}
