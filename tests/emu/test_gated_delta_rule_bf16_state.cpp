/* test_gated_delta_rule_bf16_state.cpp - kernels/gb10/gated_delta_rule_bf16_state.cu on the emulator: the outputs of the f32 kernels' CPU
 * form from the widened state, byte for byte, and its states rounded to nearest even, in each variant of the module. */
#include "emu_rule_case.hpp"

#include "gated_delta_rule_bf16_state.cu"

enum { CONTIGUOUS, TABLE, POOL };

/* A launch on bf16 states, whose f32 twin the reference runs. */
struct case16 : rule_case {
    emu::tensor_of<gdn_bf16> *pool16 = nullptr, *hi16 = nullptr;
    emu::tensor_of<uint64_t> *in16 = nullptr, *out16 = nullptr, *hi_tab16 = nullptr;
    emu::tensor_of<int32_t> *slots_in = nullptr, *slots_out = nullptr;

    gdn_bf16 *states() const { return pool16->p + state_shift; }
    void prepare(emu::bench &b) {
        make(b);
        for (float &x : want_pool) x = gdn_to_f32(gdn_to_bf16(x));
        pool16 = &b.inout<gdn_bf16>("states16", d.pool->n, [&](size_t i) { return gdn_to_bf16(d.pool->p[i]); });
        hi16 = &b.inout<gdn_bf16>("hi16", d.hi->n, [](size_t) { return gdn_to_bf16(777.0f); });
        auto table = [&](const char *name, auto slot) -> emu::tensor_of<uint64_t> & {
            return b.input<uint64_t>(name, batch, [&](size_t i) {
                return slot((uint32_t)i) < 0 ? 0 : (uint64_t)(states() + (uint64_t)slot((uint32_t)i) * stride());
            });
        };
        in16 = &table("in16", [&](uint32_t i) { return in_slot(i); });
        out16 = &table("out16", [&](uint32_t i) { return out_slot(i); });
        hi_tab16 = &b.input<uint64_t>("hi_tables16", std::max<size_t>(1, (size_t)hi_capacity * 32), [&](size_t i) {
            return i % 32 < batch ? (uint64_t)(hi16->p + ((i % 32) * hi_capacity + i / 32) * state_size()) : (uint64_t)0;
        });
        slots_in = &b.input<int32_t>("slots_in", batch, [&](size_t i) { return in_slot((uint32_t)i); });
        slots_out = &b.input<int32_t>("slots_out", batch, [&](size_t i) { return out_slot((uint32_t)i); });
    }
    /* What the f32 form gives, rounded where it stores, against the widened buffers. */
    void judge(emu::bench &b, const char *what) {
        for (float &x : want_pool) x = gdn_to_f32(gdn_to_bf16(x));
        for (float &x : want_hi) x = gdn_to_f32(gdn_to_bf16(x));
        for (size_t i = 0; i < pool16->n; i++) d.pool->p[i] = gdn_to_f32(pool16->p[i]);
        for (size_t i = 0; i < hi16->n; i++) d.hi->p[i] = gdn_to_f32(hi16->p[i]);
        for (std::vector<float> *v : { &want_pool, &want_hi })
            for (float &x : *v)
                if (std::isnan(x)) x = 0; /* unread states of fresh sequences: both sides' NaNs are left as they were */
        for (auto *t : { d.pool, d.hi })
            for (size_t i = 0; i < t->n; i++)
                if (std::isnan(t->p[i])) t->p[i] = 0;
        compare(b, what);
    }
};

#define FRONT_(c) (c).query(), (c).key(), (c).value(), (c).gate(), (c).beta(), (c).out()
#define SHAPE_(c) (c).batch, (c).nk, (c).nv, (c).dim, (c).dim, (c).qk_stride(), (c).v_stride(), (c).gb_stride()
/* By slots; by tables. */
#define POOL_(c) nullptr, nullptr, (c).fresh_tab(), (c).scale, (c).slots_in->p, (c).slots_out->p, (c).stride(), (c).states()
#define TABS_(c) (c).in16->p, (c).out16->p, (c).fresh_tab(), (c).scale, nullptr, nullptr, 0, nullptr

static void decode(emu::bench &b, case16 c, const std::string &name, int form) {
    c.prepare(b);
    gdn_cpu_decode(&c.ref);
    c.spoil();
    for (uint32_t h = 0; h < c.nv && c.wrong == 3; h++) /* of every head: a decay may be 0 */
        c.states()[(uint64_t)c.in_slot(0) * c.stride() + h * c.head_size()] = gdn_to_bf16(9.0f);
    b.run(name.c_str(), { 2 * c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.pool16, *c.d.out }, [&] {
        if (form == POOL)
            gated_delta_rule_decode_bf16_state_ext(c.states(), FRONT_(c), SHAPE_(c), 0, POOL_(c));
        else if (form == TABLE)
            gated_delta_rule_decode_bf16_state_ext(nullptr, FRONT_(c), SHAPE_(c), 1, TABS_(c));
        else
            gated_delta_rule_decode_bf16_state(c.states(), FRONT_(c), SHAPE_(c), 0);
    });
    c.judge(b, name.c_str());
}

static void verify(emu::bench &b, case16 c, const std::string &name, int form) {
    c.prepare(b);
    gdn_cpu_verify(&c.ref);
    c.spoil();
    void *const hi = !c.hi_capacity ? nullptr : form == TABLE ? (void *)c.hi_tab16->p : (void *)c.hi16->p;
    b.run(name.c_str(), { c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.pool16, *c.hi16, *c.d.out }, [&] {
        if (form == POOL)
            gated_delta_rule_wyn_bf16_state_ext(c.states(), FRONT_(c), hi, 32, c.rows, SHAPE_(c), 0, POOL_(c), c.cu(), c.hi_capacity);
        else if (form == TABLE)
            gated_delta_rule_wyn_bf16_state_ext(nullptr, FRONT_(c), hi, 32, c.rows, SHAPE_(c), 1, TABS_(c), c.cu(), c.hi_capacity);
        else
            gated_delta_rule_wyn_bf16_state(c.states(), FRONT_(c), hi, 32, c.rows, SHAPE_(c), 0);
    });
    c.judge(b, name.c_str());
}

static void decodes(emu::check &c) {
    const uint32_t heads[][2] = { { 1, 1 }, { 2, 6 }, { 4, 4 } };
    for (auto &h : heads)
        c.test(("decode: " + std::to_string(h[0]) + "/" + std::to_string(h[1]) + " heads, three ways to a state").c_str(),
               [&](emu::bench &b) {
                   for (int form : { CONTIGUOUS, TABLE, POOL }) {
                       case16 r;
                       r.nk = h[0], r.nv = h[1];
                       decode(b, r, "form " + std::to_string(form), form);
                   }
               });
    c.test("decode: strides, packed rows, odd bases, pools with gaps", [](emu::bench &b) {
        for (uint32_t shift : { 1u, 4u }) {
            case16 r;
            r.shift = shift, r.packed = shift == 4, r.qk_pad = 3 * shift, r.v_pad = 5, r.gb_pad = 1, r.state_pad = 516, r.state_shift = 4;
            decode(b, r, "shift " + std::to_string(shift), POOL);
        }
    });
    c.test("decode: padding, moved states, fresh sequences, a scale", [](emu::bench &b) {
        case16 r;
        r.batch = 4, r.in_slots = { 3, -1, 0, -1 };
        decode(b, r, "in place, pool", POOL);
        decode(b, r, "in place, table", TABLE);
        r.in_slots = { 0, 1, 2, 3 }, r.out_slots = { 5, 4, -1, 6 }, r.fresh = { 0, 1, 0, 1 }, r.scale = 0.25f;
        decode(b, r, "moved, pool", POOL);
        decode(b, r, "moved, table", TABLE);
    });
    c.test("decode: controls: a wrong gate, key or state is seen", [](emu::bench &b) {
        for (int wrong = 1; wrong <= 3; wrong++) {
            case16 r;
            r.wrong = wrong;
            decode(b, r, "wrong " + std::to_string(wrong), POOL);
        }
    });
}

static void verifies(emu::check &c) {
    for (uint32_t rows = 1; rows <= 4; rows++)
        c.test(("verify: " + std::to_string(rows) + " rows, states kept and not").c_str(), [&](emu::bench &b) {
            for (int form : { TABLE, POOL }) {
                case16 r;
                r.rows = rows, r.hi_capacity = form == POOL ? 3 : 4, r.state_pad = 4;
                verify(b, r, "form " + std::to_string(form), form);
                r.hi_capacity = 0;
                verify(b, r, "none kept, form " + std::to_string(form), form);
            }
            case16 one;
            one.rows = rows, one.batch = 1, one.hi_capacity = rows;
            verify(b, one, "contiguous", CONTIGUOUS);
        });
    c.test("verify: rows of their own, padding, moved and fresh states", [](emu::bench &b) {
        case16 r;
        r.rows = 4, r.batch = 5, r.cu_rows = { 0, 4, 4, 5, 8, 10 }, r.hi_capacity = 3, r.in_slots = { 0, 1, 2, -1, 4 };
        verify(b, r, "pool", POOL);
        r.out_slots = { 5, 6, 7, 8, 9 }, r.fresh = { 0, 1, 1, 0, 0 };
        verify(b, r, "moved, pool", POOL);
        verify(b, r, "moved, table", TABLE);
    });
    c.test("verify: controls: a wrong gate or key is seen", [](emu::bench &b) {
        for (int wrong = 1; wrong <= 2; wrong++) {
            case16 r;
            r.rows = 3, r.wrong = wrong;
            verify(b, r, "wrong " + std::to_string(wrong), POOL);
        }
    });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    decodes(c);
    verifies(c);
    return c.done();
}
