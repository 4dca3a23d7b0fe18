/* test_gated_delta_rule_decode.cpp - kernels/gb10/gated_delta_rule_decode.cu on the emulator: the bytes of kernels/cpu for outputs and
 * whole pools, in each variant of the module. Rows of the reports: area decode. */
#include "emu_rule_case.hpp"

#include "gated_delta_rule_decode.cu"

enum { CONTIGUOUS, TABLE, EXT, SLOTS };

#define FRONT_(c) (c).query(), (c).key(), (c).value(), (c).gate(), (c).beta(), (c).out()
#define SHAPE_(c) (c).batch, (c).nk, (c).nv, (c).dim, (c).dim, (c).qk_stride(), (c).v_stride(), (c).gb_stride()
#define EXT_(c)   (c).in_tab(), (c).out_tab(), (c).fresh_tab(), (c).scale, nullptr, nullptr, 0, nullptr
#define SLOTS_(c) nullptr, nullptr, (c).fresh_tab(), (c).scale, in.p, out.p, (c).stride(), (c).pool()

static void run(emu::bench &b, rule_case c, const std::string &name, int form) {
    c.make(b);
    gdn_cpu_decode(&c.ref);
    c.spoil();
    const auto &in = b.input<int32_t>("in_slots", c.batch, [&](size_t i) { return c.in_slot((uint32_t)i); });
    const auto &out = b.input<int32_t>("out_slots", c.batch, [&](size_t i) { return c.out_slot((uint32_t)i); });
    void *const h = form == TABLE ? (void *)c.in_tab() : c.pool();
    const std::vector<float> pool(c.d.pool->p, c.d.pool->p + c.d.pool->n);
    b.run(name.c_str(), { c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.d.pool, *c.d.out }, [&] {
        if (form == EXT)
            gated_delta_rule_decode_ext(nullptr, FRONT_(c), SHAPE_(c), 1, EXT_(c));
        else if (form == SLOTS)
            gated_delta_rule_decode_ext(h, FRONT_(c), SHAPE_(c), 0, SLOTS_(c));
        else
            gated_delta_rule_decode(h, FRONT_(c), SHAPE_(c), form == TABLE);
    });
    c.compare(b, name.c_str());
    if (c.dim != 128) return;
    for (uint32_t parts : { 4u, 8u }) {
        const std::string split = name + ", a head in " + std::to_string(parts);
        std::copy(pool.begin(), pool.end(), c.d.pool->p);
        std::fill_n(c.d.out->p, c.d.out->n, gdn_bf16 { 0x7A7A });
        b.run(split.c_str(), { parts * c.nv, c.batch }, 2048 / parts, 0, { *c.d.pool, *c.d.out }, [&] {
            if (form == EXT)
                gated_delta_rule_decode_split_ext(nullptr, FRONT_(c), SHAPE_(c), 1, EXT_(c), 0);
            else if (form == SLOTS)
                gated_delta_rule_decode_split_ext(h, FRONT_(c), SHAPE_(c), 0, SLOTS_(c), c.slots());
            else
                gated_delta_rule_decode_split(h, FRONT_(c), SHAPE_(c), form == TABLE);
        });
        c.compare(b, split.c_str());
    }
}

static void shapes(emu::check &c) {
    const uint32_t heads[][2] = { { 1, 1 }, { 2, 6 }, { 1, 4 }, { 4, 4 }, { 2, 10 }, { 1, 8 } };
    for (auto &h : heads)
        c.test((std::to_string(h[0]) + "/" + std::to_string(h[1]) + " heads, three ways to a state (B44 B45)").c_str(), [&](emu::bench &b) {
            for (uint32_t dim : { 64u, 128u })
                for (int form : { CONTIGUOUS, TABLE, EXT }) {
                    rule_case r;
                    r.nk = h[0], r.nv = h[1], r.dim = dim, r.batch = h[1] > 4 ? 1 : 2;
                    run(b, r, "heads of " + std::to_string(dim) + ", form " + std::to_string(form), form);
                }
        });
    for (uint32_t shift : { 0u, 1u, 4u })
        c.test(("strides, packed rows, bases off by " + std::to_string(shift) + " (B53 B48)").c_str(), [&](emu::bench &b) {
            for (uint32_t dim : { 64u, 128u })
                for (int packed = 0; packed < 2; packed++) {
                    rule_case r;
                    r.dim = dim, r.shift = shift, r.packed = packed;
                    r.qk_pad = 3 * shift, r.v_pad = 5, r.gb_pad = 1, r.state_pad = shift ? 513 : 512, r.state_shift = shift;
                    run(b, r, packed ? "ext, packed" : "ext", EXT);
                    run(b, r, packed ? "table, packed" : "table", TABLE);
                }
        });
}

static void states(emu::check &c) {
    c.test("padding in either table, slots in any order (B39)", [](emu::bench &b) {
        rule_case r;
        r.batch = 4, r.in_slots = { 3, -1, 0, -1 };
        run(b, r, "in place, ext", EXT);
        run(b, r, "in place, table", TABLE);
        r.out_slots = { 3, 1, -1, 2 };
        run(b, r, "one side", EXT);
        r.in_slots = { 0, 1, 2, 3 }, r.out_slots = { 5, 4, 7, 6 };
        run(b, r, "moved", EXT);
    });
    c.test("fresh sequences do not read their state", [](emu::bench &b) {
        for (uint32_t dim : { 64u, 128u }) {
            rule_case r;
            r.dim = dim, r.batch = 3, r.fresh = { 1, 0, 1 }, r.in_slots = { 0, 1, -1 };
            run(b, r, "in place", EXT);
            r.out_slots = { 2, 3, 0 };
            run(b, r, "moved", EXT);
        }
    });
    c.test("explicit scale", [](emu::bench &b) {
        rule_case r;
        r.scale = 0.25f;
        run(b, r, "1/4", EXT);
        r.scale = 1.0f;
        run(b, r, "1", EXT);
    });
    c.test("controls: a wrong gate, key or state is seen", [](emu::bench &b) {
        for (int wrong = 1; wrong <= 3; wrong++) {
            rule_case r;
            r.wrong = wrong;
            run(b, r, "wrong " + std::to_string(wrong), EXT);
        }
    });
    c.test("batches of 2, 4, 8, 16 (batch invariance: the reference takes one at a time)", [](emu::bench &b) {
        for (uint32_t n : { 2u, 4u, 8u, 16u }) {
            rule_case r;
            r.batch = n, r.nk = 1, r.nv = 1, r.qk_pad = n, r.v_pad = 2 * n;
            run(b, r, "batch " + std::to_string(n), n % 4 ? CONTIGUOUS : TABLE);
        }
    });
    for (uint32_t part = 0; part < emu::small_or(1u, 5u); part++)
        c.test(("random launches " + std::to_string(part)).c_str(), [&](emu::bench &b) {
            for (uint32_t i = 0; i < 1000 * part; i++) b.bits(); /* the harness seeds by the length of the name */
            for (uint32_t n = 0; n < emu::small_or(4u, 8u); n++) {
                rule_case r;
                r.batch = 1 + b.bits() % 3, r.nk = 1 + b.bits() % 2, r.nv = r.nk * (1 + b.bits() % 3), r.dim = b.bits() % 3 ? 128 : 64;
                r.shift = b.bits() % 3, r.qk_pad = b.bits() % 9, r.v_pad = b.bits() % 9, r.state_pad = b.bits() % 7,
                r.packed = b.bits() % 2;
                for (uint32_t i = 0; i < r.batch; i++) {
                    r.fresh.push_back(b.bits() % 4 == 0);
                    r.in_slots.push_back(b.bits() % 5 ? (int32_t)(2 * i) : -1);
                    r.out_slots.push_back(b.bits() % 6 == 0 ? -5 : b.bits() % 2 ? r.in_slots[i] : (int32_t)(2 * i + 1));
                }
                run(b, r, "round " + std::to_string(n), EXT);
                run(b, r, "by slots " + std::to_string(n), SLOTS);
            }
        });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    shapes(c);
    states(c);
    return c.done();
}
