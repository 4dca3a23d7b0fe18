/* test_gdn_state.cpp - kernels/gb10/gdn_state.cu on the emulator: whole pools byte for byte, at every alignment and size class. */
#include "emu_check.hpp"

#include "gdn_state.cu"

#include <algorithm>
#include <string>
#include <vector>

struct state_case {
    uint64_t bytes = 64, src_pad = 0, dst_pad = 0;
    uint32_t src_shift = 0, dst_shift = 0;
    std::vector<int32_t> from = { 2, 0, -1, 1, 3 }, to = { 0, 4, 2, -1, 1 };
    void run(emu::bench &b, const char *name, bool zero);
};

void state_case::run(emu::bench &b, const char *name, bool zero) {
    const uint64_t src_stride = bytes + src_pad, dst_stride = bytes + dst_pad;
    auto slots = [](const std::vector<int32_t> &v) { return (uint64_t)*std::max_element(v.begin(), v.end()) + 1; };
    /* The last slot ends at the guard page. */
    const size_t src_n = src_shift + (slots(from) - 1) * src_stride + bytes, dst_n = dst_shift + (slots(to) - 1) * dst_stride + bytes;
    auto &src = b.input<uint8_t>("src", src_n, [&](size_t) { return (uint8_t)b.bits(); });
    auto &dst = b.inout<uint8_t>("dst", dst_n, [&](size_t) { return (uint8_t)b.bits(); });
    auto &f = b.input<int32_t>("src_slots", from.size(), [&](size_t i) { return from[i]; });
    auto &t = b.input<int32_t>("dst_slots", to.size(), [&](size_t i) { return to[i]; });
    std::vector<uint8_t> want(dst.p, dst.p + dst_n);
    for (size_t i = 0; i < to.size(); i++) {
        if (to[i] < 0 || (!zero && from[i] < 0)) continue;
        for (uint64_t k = 0; k < bytes; k++)
            want[dst_shift + (uint64_t)to[i] * dst_stride + k] = zero ? 0 : src.p[src_shift + (uint64_t)from[i] * src_stride + k];
    }
    const uint32_t count = (uint32_t)to.size(), grid = (uint32_t)GDN_STATE_GRID(count, bytes);
    b.run(name, grid, GDN_STATE_BLOCK, 0, { dst }, [&] {
        if (zero)
            gdn_state_zero(dst.p + dst_shift, t.p, count, bytes, dst_stride);
        else
            gdn_state_copy(src.p + src_shift, dst.p + dst_shift, f.p, t.p, count, bytes, src_stride, dst_stride);
    });
    b.expect(std::equal(want.begin(), want.end(), dst.p), (std::string(name) + ": the pool is not as expected").c_str());
    want[want.size() / 2] ^= 1;
    b.expect(!std::equal(want.begin(), want.end(), dst.p), "control: one changed bit went unnoticed");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    for (const bool zero : { false, true }) {
        const std::string what = zero ? "zero" : "copy";
        c.test((what + ": sizes below, at and above a block's share").c_str(), [&](emu::bench &b) {
            for (uint64_t bytes : { 1ull, 6ull, 16ull, 100ull, 4096ull, 32767ull, 32768ull, 32769ull, 70000ull }) {
                state_case s;
                s.bytes = bytes;
                s.run(b, ("dense, " + std::to_string(bytes)).c_str(), zero);
                s.src_pad = (16 - bytes % 16) % 16 + 16, s.dst_pad = s.src_pad + 32;
                s.run(b, ("padded, " + std::to_string(bytes)).c_str(), zero);
            }
        });
        c.test((what + ": alignments").c_str(), [&](emu::bench &b) {
            for (uint32_t shift : { 1u, 2u, 4u, 8u, 12u })
                for (uint32_t which = 1; which < 4; which++) {
                    state_case s;
                    s.bytes = 200;
                    s.src_shift = which & 1 ? shift : 0, s.dst_shift = which & 2 ? shift : 0;
                    s.src_pad = s.dst_pad = shift;
                    s.run(b, ("shift " + std::to_string(shift)).c_str(), zero);
                }
        });
        c.test((what + ": nothing but skipped pairs, one pair").c_str(), [&](emu::bench &b) {
            state_case s;
            s.from = { -1, 2 }, s.to = { 1, -5 };
            s.to.push_back(-1), s.from.push_back(-1);
            s.run(b, "skipped", zero);
            s.from = { 3 }, s.to = { 0 };
            s.run(b, "one", zero);
        });
    }
    return c.done();
}
