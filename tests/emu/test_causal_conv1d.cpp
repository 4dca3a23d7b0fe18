/* test_causal_conv1d.cpp - kernels/gb10/causal_conv1d.cu on the emulator: outputs in f64, states by bytes, the report rows of the
 * area conv, and the same bytes whatever alignment, batch or schedule. */
#include "emu_check.hpp"

#include "causal_conv1d.cu"

#include "emu_conv_case.hpp"

static conv_case fused(uint32_t nk, uint32_t nv, uint32_t k_dim, uint32_t v_dim) {
    conv_case c;
    c.nk = nk, c.nv = nv, c.k_dim = k_dim, c.v_dim = v_dim;
    return c;
}
static conv_case plain(uint32_t channels) {
    conv_case c;
    c.channels = channels;
    return c;
}
static conv_case with(conv_case c, std::vector<uint32_t> len, uint32_t packed, uint32_t row0 = 0, uint32_t tail = 0) {
    c.len = len, c.packed = packed, c.row0 = row0, c.tail = tail;
    return c;
}

static void shapes(emu::check &c) {
    c.test("uniform batches, tiles and tails", [](emu::bench &b) {
        for (uint32_t T : { 1u, 2u, 3u, 15u, 16u, 17u, 37u }) {
            conv_case p = with(plain(40), { T, T }, 0);
            p.run(b, ("conv1d T=" + std::to_string(T)).c_str());
            conv_case f = with(fused(2, 3, 32, 32), { T, T }, 0);
            f.run(b, ("fused T=" + std::to_string(T)).c_str());
        }
        conv_case w = with(plain(24), { 9 }, 0);
        w.run(b, "reversed taps", true);
    });
    c.test("head sizes: one lane to a warp, ragged, several lane blocks", [](emu::bench &b) {
        for (uint32_t d : { 8u, 20u, 64u, 96u, 128u, 200u, 256u }) {
            conv_case f = with(fused(2, 3, d, 32), { 5, 18 }, 32);
            f.run(b, ("head of " + std::to_string(d)).c_str());
            f.f32_weights = f.bias = true;
            f.run(b, ("f32 weights, head of " + std::to_string(d)).c_str());
        }
        conv_case f = with(fused(1, 1, 128, 1500), { 3 }, 0); /* 2 lane blocks; q, k and v lanes in one warp */
        f.run(b, "v of 1500");
        conv_case m = with(fused(1, 4, 128, 4), { 4 }, 0);
        m.run(b, "v of 16 in k's last warp");
    });
    c.test("B91 widths, with bias and without activation", [](emu::bench &b) {
        for (uint32_t W = 1; W <= 8; W++)
            for (uint32_t n : { 16u, 21u }) {
                conv_case p = with(plain(n), { 1, 20, 2 }, 32, 1, 2);
                p.width = W, p.bias = W & 1, p.silu = W % 3 != 0, p.f32_weights = W & 2;
                p.no_state = W == 1;
                p.run(b, ("width " + std::to_string(W) + " channels " + std::to_string(n)).c_str());
                conv_case f = with(fused(1, 2, 24, 16), { 1, 20, 2 }, 64, 1, 2);
                f.width = W, f.no_state = W == 1, f.extra = W > 1 ? 2 : 0;
                f.run(b, ("fused, width " + std::to_string(W)).c_str());
            }
    });
    c.test("packed: more sequences than one search step sees", [](emu::bench &b) {
        const uint32_t n = emu::small_or(40u, 1100u);
        for (uint32_t packed : { 32u, 64u }) {
            conv_case p = plain(8);
            p.len.clear();
            for (uint32_t i = 0; i < n; i++) p.len.push_back(i * 7 % 5 == 4 ? 33 : i * 7 % 5);
            p.packed = packed, p.row0 = 5, p.tail = 3, p.spare = 100;
            p.run(b, "many sequences");
        }
    });
}

static void states(emu::check &c) {
    c.test("padding, fresh, empty sequences, scattered slots", [](emu::bench &b) {
        for (uint32_t extra : { 0u, 3u })
            for (uint32_t form = 0; form < 3; form++) { /* aligned, odd channels, fused */
                conv_case p = form == 2 ? fused(1, 2, 64, 64) : plain(form ? 21 : 32);
                p = with(p, { 4, 0, 40, 1, 0, 17, 2, 0 }, 32, 3, 2);
                p.extra = extra, p.slot_pad = form == 1 ? 5 : 8;
                p.slots = { 9, 2, 4, -1, 7, -1, 0, 3 };
                p.fresh = { 0, 0, 1, 0, 1, 1, 0, 0 };
                p.run(b, "mixed batch");
                if (extra) p.accepted = { 2, 3, 1, 0, 2, 1, 0, 0 };
                p.run(b, "mixed batch, accepted counts");
            }
    });
    c.test("B89 pieces shorter than the window, B99 step after step", [](emu::bench &b) {
        for (uint32_t T : { 1u, 2u, 3u }) {
            conv_case whole = with(fused(1, 1, 64, 64), { 12, 12 }, 0), piece = with(fused(1, 1, 64, 64), { T, T }, 0);
            whole.slots = piece.slots = { 3, 1 };
            whole.run(b, "whole");
            piece.run(b, "piece");
        }
    });
    c.test("B90 B56 B57 wide states: the window is at the accepted offset, kept rows follow it", [](emu::bench &b) {
        for (uint32_t keep = 0; keep < 2; keep++)
            for (uint32_t n : { 16u, 9u }) {
                conv_case p = with(plain(n), { 4, 4, 4, 4, 4, 4 }, 0);
                p.extra = 4, p.keep = keep, p.accepted = { 0, 1, 2, 3, 4, 2 }, p.fresh = { 0, 0, 0, 0, 0, 1 };
                p.run(b, keep ? "kept rows" : "rows taken");
                p.slot_pad = 1; /* odd state addresses under aligned rows */
                p.run(b, keep ? "kept rows, odd slots" : "rows taken, odd slots");
                p.slot_pad = 0, p.len.assign(6, 20), p.extra = 21;
                p.run(b, keep ? "more kept rows than a tile" : "two tiles, a wide state");
                conv_case v = with(fused(1, 2, 32, 32), { 1, 4, 0, 2, 0 }, 32);
                v.extra = 4, v.keep = keep, v.accepted = { 4, 0, 3, 1, 0 }, v.slots = { 0, 6, 2, -1, 4 };
                v.run(b, "packed verify");
            }
    });
    c.test("B87 no state, B97 neighbours in a pack", [](emu::bench &b) {
        conv_case p = with(plain(32), { 3, 50 }, 32);
        p.no_state = true;
        p.run(b, "no state");
        conv_case f = with(fused(1, 1, 128, 128), { 3, 50 }, 32);
        f.no_state = true;
        f.run(b, "no state, fused");
        p = with(plain(32), { 3, 7 }, 32);
        p.fresh = { 0, 1 };
        p.run(b, "fresh neighbour");
    });
}

static void sameness(emu::check &c) {
    c.test("B95 any base and stride: the same bytes", [](emu::bench &b) {
        for (uint32_t form = 0; form < 4; form++) {
            conv_case p = form & 1 ? fused(2, 2, 64, 64) : plain(256);
            p = with(p, { 1, 4, 35, 2 }, 32);
            p.f32_weights = p.bias = form & 2;
            conv_case q = p, s = p;
            p.run(b, "aligned");
            q.shift = 1, q.x_pad = 4, q.out_pad = 3;
            q.run(b, "everything odd");
            s.x_pad = s.out_pad = s.slot_pad = 8;
            s.run(b, "strides");
            b.expect(p.y == q.y && p.y == s.y, "alignment changes the outputs");
            b.expect(std::equal(p.after.begin(), p.after.begin() + 4 * 3 * p.channels, q.after.begin() + 1),
                     "alignment changes the states");
            s.y[s.y.size() / 2] ^= 1;
            b.expect(p.y != s.y, "control: one changed bit went unnoticed");
        }
    });
    c.test("B100 each sequence as if it were alone", [](emu::bench &b) {
        conv_case all = with(fused(1, 2, 128, 128), { 1, 4, 35, 2 }, 32, 2, 1);
        all.no_state = true;
        all.run(b, "packed");
        conv_case same = with(all, { 1, 4, 35, 2 }, 64, 0, 0);
        same.run(b, "packed from row 0");
        b.expect(all.y == same.y, "the place in the buffer changes the outputs");
        conv_case first = with(all, { 1, 4 }, 32);
        first.run(b, "two of them");
        b.expect(std::equal(first.y.begin(), first.y.end(), all.y.begin()), "the batch changes the outputs");
    });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    shapes(c);
    states(c);
    sameness(c);
    return c.done();
}
