/* test_gated_delta_rule_verify.cpp - verify, write-on-accept verify and fold (kernels/gb10/gated_delta_rule_wy*.cu) on the emulator: the
 * bytes of kernels/cpu for outputs, whole pools, intermediate states and stashes, and the byte contracts between the entries. Rows of the
 * reports: area spec-verify. */
#include "emu_rule_case.hpp"

#include "gated_delta_rule_decode.cu"
#include "gated_delta_rule_wy.cu"
#include "gated_delta_rule_wy3.cu"
#include "gated_delta_rule_wy4.cu"
#include "gated_delta_rule_verify_split.cu"
#include "gated_delta_rule_wy4_woa.cu"
#include "gated_delta_rule_wyn.cu"

#define FRONT_(c) (c).query(), (c).key(), (c).value(), (c).gate(), (c).beta(), (c).out()
#define SHAPE_(c) (c).batch, (c).nk, (c).nv, (c).dim, (c).dim, (c).qk_stride(), (c).v_stride(), (c).gb_stride()
#define EXT_(c)   (c).in_tab(), (c).out_tab(), (c).fresh_tab(), (c).scale, nullptr, nullptr, 0, nullptr

enum { CORE, EXT, GENERAL, GENERAL_EXT }; /* wy2..4, their _ext, wyn, its _ext; core forms with tables */

/* The kernel's hi arguments: tables in the core forms, f32 with a capacity in the others. */
static void verify_kernel(const rule_case &c, int form, uint32_t *record = nullptr, const int32_t *ids = nullptr) {
    void *const h = (void *)c.in_tab();
    const uint64_t *const tab = c.hi_capacity ? c.d.hi_tab->p : nullptr;
    float *const hi = c.hi_capacity ? c.d.hi->p : nullptr;
    auto slab = [&](uint32_t t) { return (void *)(tab ? tab + 32 * t : nullptr); };
    auto base = [&](uint32_t t) { return (void *)(hi ? hi + t * c.state_size() : nullptr); };
    if (form == GENERAL)
        gated_delta_rule_wyn(h, FRONT_(c), tab, 32, c.rows, SHAPE_(c), 1);
    else if (form == GENERAL_EXT)
        gated_delta_rule_wyn_ext(nullptr, FRONT_(c), hi, 32, c.rows, SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
    else if (form == CORE && c.rows == 2)
        gated_delta_rule_wy2(h, FRONT_(c), slab(0), SHAPE_(c), 1);
    else if (form == CORE && c.rows == 3)
        gated_delta_rule_wy3(h, FRONT_(c), slab(0), slab(1), SHAPE_(c), 1);
    else if (form == CORE)
        gated_delta_rule_wy4(h, FRONT_(c), slab(0), slab(1), slab(2), SHAPE_(c), 1);
    else if (c.rows == 2)
        gated_delta_rule_wy2_ext(nullptr, FRONT_(c), base(0), SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
    else if (c.rows == 3)
        gated_delta_rule_wy3_ext(nullptr, FRONT_(c), base(0), base(1), SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
    else
        gated_delta_rule_wy4_ext(nullptr, FRONT_(c), base(0), base(1), base(2), SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
}

/* A head in parts: the entry of up to 4 rows for CORE and EXT, that of any number for the others. */
static void split_kernel(const rule_case &c, int form, uint32_t *record = nullptr, const int32_t *ids = nullptr) {
    void *const h = (void *)c.in_tab();
    const uint64_t *const tab = c.hi_capacity ? c.d.hi_tab->p : nullptr;
    float *const hi = c.hi_capacity ? c.d.hi->p : nullptr;
    if (form == CORE)
        gated_delta_rule_wy4_split(h, FRONT_(c), tab, 32, c.rows, SHAPE_(c), 1);
    else if (form == EXT)
        gated_delta_rule_wy4_split_ext(nullptr, FRONT_(c), hi, 32, c.rows, SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
    else if (form == GENERAL)
        gated_delta_rule_wyn_split(h, FRONT_(c), tab, 32, c.rows, SHAPE_(c), 1);
    else
        gated_delta_rule_wyn_split_ext(nullptr, FRONT_(c), hi, 32, c.rows, SHAPE_(c), 0, EXT_(c), c.cu(), c.hi_capacity, ids, record);
}

/* What the buffers held before a launch, for the next way to do the same. */
struct before {
    std::vector<float> pool, hi;
    before(const rule_case &c) : pool(c.d.pool->p, c.d.pool->p + c.d.pool->n), hi(c.d.hi->p, c.d.hi->p + c.d.hi->n) {}
    void restore(const rule_case &c) const {
        std::copy(pool.begin(), pool.end(), c.d.pool->p);
        std::copy(hi.begin(), hi.end(), c.d.hi->p);
        std::fill_n(c.d.out->p, c.d.out->n, gdn_bf16 { 0x7A7A });
    }
};
/* launch(): the rows of c as the buffers held them at `was`, a head in 4 and in 8 parts. */
template <class LAUNCH> static void in_parts(emu::bench &b, rule_case &c, const before &was, const std::string &name, LAUNCH launch) {
    for (uint32_t parts : { 4u, 8u }) {
        const std::string split = name + ", a head in " + std::to_string(parts);
        was.restore(c);
        b.run(split.c_str(), { parts * c.nv, c.batch }, 1024 / parts, 0, { *c.d.pool, *c.d.out, *c.d.hi }, launch);
        c.compare(b, split.c_str());
    }
}

static void verify(emu::bench &b, rule_case c, const std::string &name, int form) {
    c.make(b);
    gdn_cpu_verify(&c.ref);
    c.spoil();
    const before was(c);
    b.run(name.c_str(), { c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.d.pool, *c.d.out, *c.d.hi }, [&] { verify_kernel(c, form); });
    c.compare(b, name.c_str());
    if (c.dim == 128) in_parts(b, c, was, name, [&] { split_kernel(c, form); });
}

static std::string form_name(uint32_t rows, int form) {
    return std::to_string(rows) + " rows, form " + std::to_string(form);
}

static void plain(emu::check &c) {
    for (uint32_t rows : { 2u, 3u, 4u })
        c.test((std::to_string(rows) + " rows: core, ext and general entry").c_str(), [&](emu::bench &b) {
            for (uint32_t dim : { 64u, 128u })
                for (int form : { CORE, EXT, GENERAL, GENERAL_EXT }) {
                    rule_case r;
                    r.rows = rows, r.dim = dim, r.hi_capacity = form % 2 ? rows + 1 : rows - 1; /* B60: the pitch is the capacity */
                    verify(b, r, form_name(rows, form), form);
                }
        });
    for (uint32_t rows = 1; rows <= 16; rows++)
        c.test((std::to_string(rows) + " rows").c_str(), [&](emu::bench &b) {
            rule_case r;
            r.rows = rows, r.nk = 1, r.nv = 1, r.dim = rows % 4 == 1 && rows > 1 ? 64 : 128, r.hi_capacity = 15;
            verify(b, r, form_name(rows, GENERAL), GENERAL);
            verify(b, r, form_name(rows, GENERAL_EXT), GENERAL_EXT);
            r.dim = 128;
            if (rows % 4 == 1 && rows > 1) verify(b, r, form_name(rows, GENERAL) + ", heads of 128", GENERAL);
        });
    c.test("no place for the states between rows, or none in one table entry", [](emu::bench &b) {
        for (int form : { CORE, EXT, GENERAL, GENERAL_EXT }) {
            rule_case r;
            r.rows = 4;
            verify(b, r, form_name(4, form), form);
        }
        rule_case r;
        r.rows = 4, r.hi_capacity = 3;
        r.make(b);
        gdn_cpu_verify(&r.ref);
        r.d.hi_tab->p[32 * 1 + 0] = 0; /* sequence 0, row 1 */
        std::fill_n(r.want_hi.begin() + r.state_size(), r.state_size(), 777.0f);
        const before was(r);
        b.run("a NULL", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out, *r.d.hi }, [&] { verify_kernel(r, CORE); });
        r.compare(b, "a NULL");
        for (int form : { CORE, GENERAL }) in_parts(b, r, was, "a NULL", [&] { split_kernel(r, form); });
    });
    c.test("one sequence, contiguous", [](emu::bench &b) {
        for (uint32_t rows : { 2u, 3u, 4u, 7u }) {
            rule_case r;
            r.rows = rows, r.batch = 1, r.hi_capacity = rows; /* the general entry's pitch is `rows` */
            r.make(b);
            gdn_cpu_verify(&r.ref);
            float *const hi = r.d.hi->p;
            const uint64_t n = r.state_size();
            const before was(r);
            b.run(form_name(rows, 9).c_str(), { r.nv, 1 }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out, *r.d.hi }, [&] {
                if (rows == 2) gated_delta_rule_wy2(r.pool(), FRONT_(r), hi, SHAPE_(r), 0);
                if (rows == 3) gated_delta_rule_wy3(r.pool(), FRONT_(r), hi, hi + n, SHAPE_(r), 0);
                if (rows == 4) gated_delta_rule_wy4(r.pool(), FRONT_(r), hi, hi + n, hi + 2 * n, SHAPE_(r), 0);
                if (rows == 7) gated_delta_rule_wyn(r.pool(), FRONT_(r), hi, 32, rows, SHAPE_(r), 0);
            });
            r.compare(b, form_name(rows, 9).c_str());
            in_parts(b, r, was, form_name(rows, 9), [&] {
                if (rows <= 4)
                    gated_delta_rule_wy4_split(r.pool(), FRONT_(r), hi, 32, rows, SHAPE_(r), 0);
                else
                    gated_delta_rule_wyn_split(r.pool(), FRONT_(r), hi, 32, rows, SHAPE_(r), 0);
            });
        }
    });
    c.test("strides, bases, packed rows", [](emu::bench &b) {
        for (int packed = 0; packed < 2; packed++)
            for (int form : { EXT, GENERAL_EXT }) {
                rule_case r;
                r.rows = 4, r.nv = 6, r.shift = 1, r.qk_pad = 7, r.v_pad = 5, r.gb_pad = 3, r.state_pad = 3, r.state_shift = 1;
                r.packed = packed, r.hi_capacity = 3;
                verify(b, r, form_name(4, form), form);
            }
    });
    c.test("batches of 2, 4, 8, 16 with guard content between (the reference takes one at a time)", [](emu::bench &b) {
        for (uint32_t n : { 2u, 4u, 8u, 16u }) {
            rule_case r;
            r.rows = 4, r.batch = n, r.nk = 1, r.nv = 1, r.qk_pad = n, r.state_pad = 16 * n, r.hi_capacity = 3;
            verify(b, r, "batch " + std::to_string(n), n % 4 ? EXT : CORE);
        }
    });
    c.test("controls: a wrong gate, key or state is seen", [](emu::bench &b) {
        for (int wrong = 1; wrong <= 3; wrong++) {
            rule_case r;
            r.rows = 4, r.wrong = wrong;
            verify(b, r, "wrong " + std::to_string(wrong), CORE);
        }
    });
}

static void extras(emu::check &c) {
    c.test("padding, fresh, moved states (B70)", [](emu::bench &b) {
        for (int form : { EXT, GENERAL_EXT }) {
            rule_case r;
            r.rows = 3, r.batch = 4, r.hi_capacity = 2, r.nv = 2, r.fresh = { 0, 1, 1, 0 };
            r.in_slots = { 3, -1, 0, 2 };
            verify(b, r, "in place, " + form_name(3, form), form);
            r.out_slots = { 4, 1, 5, -1 };
            verify(b, r, "moved, " + form_name(3, form), form);
        }
        rule_case r;
        r.rows = 4, r.batch = 3, r.hi_capacity = 3, r.in_slots = { 2, -1, 0 };
        verify(b, r, "core, padding", CORE);
    });
    c.test("sequences with different numbers of rows, none included", [](emu::bench &b) {
        for (int form : { EXT, GENERAL_EXT }) {
            rule_case r;
            r.rows = 4, r.batch = 6, r.nk = 1, r.nv = 2, r.hi_capacity = 3;
            r.cu_rows = { 2, 3, 3, 7, 9, 9, 12 };
            verify(b, r, "in place, " + form_name(4, form), form);
            r.in_slots = { 0, 1, 2, -1, 4, 5 }, r.out_slots = { 0, 6, 7, 8, 9, 5 }, r.fresh = { 0, 0, 1, 0, 1, 0 };
            verify(b, r, "moved, " + form_name(4, form), form);
        }
    });
    c.test("row 0 of a verify is a decode", [](emu::bench &b) {
        for (uint32_t dim : { 64u, 128u })
            for (uint32_t rows : { 4u, 5u }) {
                rule_case r;
                r.rows = rows, r.dim = dim, r.hi_capacity = rows;
                r.make(b);
                const std::vector<float> pool(r.d.pool->p, r.d.pool->p + r.d.pool->n);
                b.run("verify", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out, *r.d.hi },
                      [&] { verify_kernel(r, rows == 4 ? EXT : GENERAL_EXT); });
                const std::vector<gdn_bf16> out(r.d.out->p, r.d.out->p + r.d.out->n);
                std::copy(pool.begin(), pool.end(), r.d.pool->p);
                b.run("decode", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out }, [&] {
                    gated_delta_rule_decode((void *)r.in_tab(), FRONT_(r), r.batch, r.nk, r.nv, r.dim, r.dim, rows * r.qk_stride(),
                                            rows * r.v_stride(), rows * r.gb_stride(), 1);
                });
                bool same = true;
                for (uint32_t s = 0; s < r.batch; s++) {
                    same = same &&
                           !memcmp(r.d.out->p + s * r.nv * dim, out.data() + (size_t)s * rows * r.nv * dim, r.nv * dim * sizeof(gdn_bf16));
                    same = same && !memcmp(r.pool() + s * r.stride(), r.d.hi->p + s * r.hi_capacity * r.state_size(),
                                           r.state_size() * sizeof(float));
                }
                b.expect(same, "row 0 is not decode");
                b.expect(memcmp(r.d.out->p + r.nv * dim, out.data() + r.nv * dim, r.nv * dim * sizeof(gdn_bf16)) != 0,
                         "control: row 1 looks like another sequence");
            }
    });
}

/* ---- write on accept ---- */
static void woa_kernel(const rule_case &c, int form, uint32_t *flag) {
    if (form == CORE)
        gated_delta_rule_wy4_woa((void *)c.in_tab(), FRONT_(c), c.d.stash->p, SHAPE_(c), c.stash_floats(), flag);
    else
        gated_delta_rule_wy4_woa_ext(nullptr, FRONT_(c), c.d.stash->p, SHAPE_(c), c.stash_floats(), flag, EXT_(c));
}
static void fold_kernel(const rule_case &c, int form, const uint32_t *na, const uint32_t *flag) {
    if (form == CORE)
        gated_delta_rule_wy4_fold((void *)c.in_tab(), c.d.stash->p, na, c.hi_capacity ? c.d.hi_tab->p : nullptr, 32, flag, c.rows, c.batch,
                                  c.nk, c.nv, c.dim, c.dim, c.stash_floats());
    else
        gated_delta_rule_wy4_fold_ext(nullptr, c.d.stash->p, na, c.hi_capacity ? c.d.hi->p : nullptr, 32, flag, c.rows, c.batch, c.nk, c.nv,
                                      c.dim, c.dim, c.stash_floats(), c.in_tab(), c.out_tab(), c.fresh_tab(), 0, nullptr, nullptr, 0,
                                      nullptr, c.cu(), 0, c.hi_capacity);
}

static void woa_case(emu::bench &b, rule_case c, const std::string &name, int form) {
    c.rows = 4;
    c.make(b);
    uint32_t engaged = 7;
    c.ref.engaged = &engaged;
    auto &flag = b.inout<uint32_t>("flag", 1, [](size_t) { return 9u; });
    gdn_cpu_verify_woa(&c.ref);
    b.run((name + ": woa").c_str(), { c.nv, c.batch }, GDN_STEP_BLOCK, 65536, { *c.d.out, *c.d.stash, flag },
          [&] { woa_kernel(c, form, flag.p); });
    c.compare(b, (name + ": woa").c_str());
#if GDN_WOA_STAY
    for (uint32_t blocks : { 1u, 2u, 4u }) { /* some have one head more than others, some none */
        const std::string at = name + ": woa by " + std::to_string(blocks);
        b.run(at.c_str(), { blocks, 1 }, GDN_STEP_BLOCK, 65536, { *c.d.out, *c.d.stash, flag }, [&] { woa_kernel(c, form, flag.p); });
        c.compare(b, at.c_str());
    }
#endif
    b.expect(engaged == 1 && flag.p[0] == 1, "the flag");
    /* the outputs of the plain verify, and states of every length */
    const std::vector<gdn_bf16> out(c.d.out->p, c.d.out->p + c.d.out->n);
    const std::vector<float> pool(c.d.pool->p, c.d.pool->p + c.d.pool->n);
    b.run((name + ": wy4").c_str(), { c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.d.pool, *c.d.out, *c.d.hi },
          [&] { verify_kernel(c, form); });
    b.expect(!memcmp(out.data(), c.d.out->p, out.size() * sizeof out[0]), (name + ": woa's output is not wy4's").c_str());
    const std::vector<float> after(c.d.pool->p, c.d.pool->p + c.d.pool->n);
    for (uint32_t accept = 0; accept <= 5; accept++) {
        std::copy(pool.begin(), pool.end(), c.d.pool->p);
        auto &na = b.input<uint32_t>("na", c.batch, [&](size_t) { return accept; });
        const uint32_t parts = 1u << accept % 3; /* blocks a head */
        const std::string at = name + ": fold of " + std::to_string(accept) + " by " + std::to_string(parts);
        b.run(at.c_str(), { parts * c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.d.pool }, [&] { fold_kernel(c, form, na.p, flag.p); });
        for (uint32_t s = 0; s < c.batch; s++) {
            if (c.in_slot(s) < 0) continue;
            const uint64_t slot = c.state_shift + (uint64_t)c.in_slot(s) * c.stride();
            const float *const want = accept == 0  ? pool.data() + slot
                                      : accept < 4 ? c.d.hi->p + ((uint64_t)s * c.hi_capacity + accept - 1) * c.state_size()
                                                   : after.data() + slot;
            b.expect(!memcmp(c.d.pool->p + slot, want, c.state_size() * sizeof(float)), (at + ": not the bytes of wy4's state").c_str());
            if (accept)
                b.expect(memcmp(c.d.pool->p + slot, pool.data() + slot, c.state_size() * sizeof(float)) != 0,
                         (at + ": control: nothing happened").c_str());
        }
        /* after a plain verify instead: the flag is clear */
        std::copy(after.begin(), after.end(), c.d.pool->p);
        flag.p[0] = 0;
        c.want_pool = after, c.ref.na = na.p, c.ref.stash = nullptr, engaged = 0;
        c.turn(after.data() + c.state_shift, c.want_pool.data() + c.state_shift, c.slots(), c.stride());
        c.want_hi.assign(c.d.hi->p, c.d.hi->p + c.d.hi->n);
        c.turn(c.d.hi->p, c.want_hi.data(), (uint64_t)c.batch * c.hi_capacity, c.state_size());
        gdn_cpu_fold(&c.ref);
        b.run((at + ", plain").c_str(), { parts * c.nv, c.batch }, GDN_STEP_BLOCK, 0, { *c.d.pool },
              [&] { fold_kernel(c, form, na.p, flag.p); });
        c.want_out.assign(c.d.out->p, c.d.out->p + c.d.out->n);
        c.compare(b, (at + ", plain").c_str());
        flag.p[0] = 1;
    }
}

static void woa(emu::check &c) {
    c.test("woa = wy4, fold = its states, flag 0 and 1, 0 to 5 accepted (B56 B57 B66)", [](emu::bench &b) {
        for (int form : { CORE, EXT }) {
            rule_case r;
            r.hi_capacity = 3, r.batch = 2, r.stash_pad = form == EXT ? 5 : 0;
            woa_case(b, r, form == CORE ? "core" : "ext", form);
            r.batch = 3, r.in_slots = { 2, -1, 0 }, r.nk = 1, r.nv = 3, r.state_pad = 5, r.state_shift = 1, r.shift = 1, r.qk_pad = 1;
            woa_case(b, r, form == CORE ? "core, padding, odd addresses" : "ext, padding, odd addresses", form);
        }
    });
    c.test("fresh sequences fold from zero", [](emu::bench &b) {
        rule_case r;
        r.hi_capacity = 3, r.fresh = { 1, 0 };
        woa_case(b, r, "fresh", EXT);
    });
    c.test("a fold with row offsets", [](emu::bench &b) {
        rule_case r;
        r.rows = 4, r.batch = 5, r.nk = 1, r.nv = 1, r.hi_capacity = 3, r.cu_rows = { 0, 4, 6, 6, 9, 10 };
        r.make(b);
        uint32_t engaged = 0;
        auto &na = b.input<uint32_t>("na", r.batch, [](size_t i) { return (uint32_t)(i == 2 ? 3 : i == 0 ? 2 : 1); });
        auto &flag = b.input<uint32_t>("flag", 1, [](size_t) { return 0u; });
        r.ref.engaged = &engaged, r.ref.na = na.p;
        gdn_cpu_verify(&r.ref);
        gdn_cpu_fold(&r.ref);
        b.run("verify", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out, *r.d.hi }, [&] { verify_kernel(r, EXT); });
        b.run("fold", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool }, [&] { fold_kernel(r, EXT, na.p, flag.p); });
        r.compare(b, "fold");
    });
    c.test("heads of 64: the fold of a plain verify copies", [](emu::bench &b) {
        rule_case r;
        r.rows = 4, r.dim = 64, r.hi_capacity = 3;
        r.make(b);
        uint32_t engaged = 0;
        auto &na = b.input<uint32_t>("na", r.batch, [](size_t i) { return (uint32_t)i + 1; });
        auto &flag = b.input<uint32_t>("flag", 1, [](size_t) { return 0u; });
        r.ref.engaged = &engaged, r.ref.na = na.p;
        gdn_cpu_verify(&r.ref);
        gdn_cpu_fold(&r.ref);
        b.run("verify", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out, *r.d.hi }, [&] { verify_kernel(r, CORE); });
        b.run("fold", { r.nv, r.batch }, GDN_STEP_BLOCK, 0, { *r.d.pool }, [&] { fold_kernel(r, CORE, na.p, flag.p); });
        r.compare(b, "fold");
    });
    c.test("flag_clear", [](emu::bench &b) {
        auto &flag = b.inout<uint32_t>("flag", 2, [](size_t) { return 1u; });
        b.run("one word", 1, 32, 0, { flag }, [&] { gated_delta_rule_wy4_flag_clear(flag.p); });
        b.expect(flag.p[0] == 0 && flag.p[1] == 1, "one word");
        auto &record = b.inout<uint32_t>("record", 80, [](size_t) { return 0x204u; });
        auto &ids = b.input<int32_t>("ids", 71, [](size_t i) { return i == 70 ? -1 : (int32_t)(79 - i); });
        b.run("ids", 2, 32, 0, { record }, [&] { gated_delta_rule_wy4_flag_clear_seq(record.p, ids.p, 71); });
        bool ok = true;
        for (uint32_t i = 0; i < 80; i++) ok = ok && record.p[i] == (i < 10 ? 0x204u : 0);
        b.expect(ok, "ids");
    });
}

/* ---- mixed batches ---- */
/* One round over `n` sequences, cut into a deferred launch and one that keeps its states, each in its own order, and one fold in a third.
 * What must come out is each sequence's own verify on the CPU. */
static void mixed_round(emu::bench &b, uint32_t round) {
    const uint32_t n = 7;
    for (uint32_t i = 0; i < 1000 * round; i++) b.bits(); /* the harness seeds by the length of the name */
    enum { DEFERRED, KEPT, SKIPPED };
    rule_case r;
    r.batch = n, r.nk = 1, r.nv = 2, r.hi_capacity = 6, r.rows = 6;
    std::vector<uint32_t> kind(n), rows(n), accept(n), order(n);
    r.cu_rows = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        kind[i] = b.bits() % 5 == 0 ? SKIPPED : b.bits() % 2 ? DEFERRED : KEPT;
        rows[i] = b.bits() % (kind[i] == DEFERRED ? 5 : 7);
        accept[i] = b.bits() % (rows[i] + 2);
        r.cu_rows.push_back(r.cu_rows.back() + (int32_t)rows[i]);
        r.fresh.push_back(b.bits() % 5 == 0);
        r.in_slots.push_back(i == round % n ? -1 : (int32_t)(n - 1 - i));
    }
    auto shuffle = [&] {
        for (uint32_t i = n - 1; i > 0; i--) std::swap(order[i], order[b.bits() % (i + 1)]);
    };
    r.make(b);
    const std::vector<float> pool0 = r.want_pool;
    gdn_cpu_verify(&r.ref);                                                                             /* sequence i's own rows and hi */
    auto &record = b.inout<uint32_t>("record", n, [](size_t i) { return 0x200u | (uint32_t)(i % 5); }); /* of an earlier round */
    b.run("clear", 1, 32, 0, { record }, [&] { gated_delta_rule_wy4_flag_clear_seq(record.p, nullptr, n); });
    for (uint32_t which : { DEFERRED, KEPT }) {
        shuffle();
        std::vector<uint32_t> mine;
        for (uint32_t i : order)
            if (kind[i] == which) mine.push_back(i);
        if (mine.empty()) continue;
        /* this launch's rows are packed in its own order */
        rule_case l = r;
        l.batch = (uint32_t)mine.size();
        std::vector<int32_t> cu = { 0 };
        std::vector<uint32_t> from;
        for (uint32_t i : mine) {
            cu.push_back(cu.back() + (int32_t)rows[i]);
            for (uint32_t t = 0; t < rows[i]; t++) from.push_back((uint32_t)r.cu_rows[i] + t);
        }
        const size_t t = std::max<size_t>(1, from.size());
        auto row_of = [&](size_t i, uint32_t pitch) { return from.empty() ? 0 : from[i / pitch] * (size_t)pitch + i % pitch; };
        auto &q = b.input<gdn_bf16>("q", t * r.qk_stride(), [&](size_t i) { return r.d.q->p[row_of(i, r.qk_stride())]; });
        auto &k = b.input<gdn_bf16>("k", t * r.qk_stride(), [&](size_t i) { return r.d.k->p[row_of(i, r.qk_stride())]; });
        auto &v = b.input<gdn_bf16>("v", t * r.v_stride(), [&](size_t i) { return r.d.v->p[row_of(i, r.v_stride())]; });
        auto &gb = b.input<float>("gb", t * r.gb_stride(), [&](size_t i) { return r.d.gb->p[row_of(i, r.gb_stride())]; });
        auto &out = b.inout<gdn_bf16>("out", t * r.nv * r.dim, [](size_t) { return gdn_bf16 { 0x7A7A }; });
        auto &offsets = b.input<int32_t>("cu", cu.size(), [&](size_t i) { return cu[i]; });
        auto &ids = b.input<int32_t>("ids", mine.size(), [&](size_t i) { return (int32_t)mine[i]; });
        auto &tab = b.input<uint64_t>("tab", mine.size(), [&](size_t i) { return r.d.in_tab->p[mine[i]]; });
        auto &fresh = b.input<uint8_t>("fresh", mine.size(), [&](size_t i) { return r.fresh[mine[i]]; });
        if (which == DEFERRED)
            b.run("deferred", { r.nv, l.batch }, GDN_STEP_BLOCK, 65536, { out, *r.d.stash, record }, [&] {
                gated_delta_rule_wy4_woa_seq(nullptr, q.p, k.p, v.p, gb.p, gb.p + r.nv, out.p, r.d.stash->p, SHAPE_(l), r.stash_floats(),
                                             record.p, tab.p, tab.p, fresh.p, 0, nullptr, nullptr, 0, nullptr, offsets.p, ids.p);
            });
        else
            /* and no state; a head in 1, 4 or 8 parts */
            b.run("kept", { (round % 3 ? 4 * (round % 3) : 1) * r.nv, l.batch }, round % 3 == 1 ? 256 : GDN_STEP_BLOCK, 0,
                  { out, *r.d.hi, record }, [&] {
                      (round % 3 ? gated_delta_rule_wyn_split_ext : gated_delta_rule_wyn_ext)(
                          nullptr, q.p, k.p, v.p, gb.p, gb.p + r.nv, out.p, r.d.hi->p, 32, 6, SHAPE_(l), 0, tab.p, tab.p, fresh.p, 0,
                          nullptr, nullptr, 0, nullptr, offsets.p, r.hi_capacity, ids.p, record.p);
                  });
        bool same = true;
        for (size_t i = 0; i < from.size(); i++)
            same = same &&
                   !memcmp(out.p + i * r.nv * r.dim, r.want_out.data() + (size_t)from[i] * r.nv * r.dim, r.nv * r.dim * sizeof(gdn_bf16));
        b.expect(same, "outputs of a mixed batch");
    }
    shuffle();
    auto &ids = b.input<int32_t>("ids", n, [&](size_t i) { return (int32_t)order[i]; });
    auto &na = b.input<uint32_t>("na", n, [&](size_t i) { return accept[order[i]]; });
    auto &tab = b.input<uint64_t>("tab", n, [&](size_t i) { return r.d.in_tab->p[order[i]]; });
    auto &fresh = b.input<uint8_t>("fresh", n, [&](size_t i) { return r.fresh[order[i]]; });
    b.run("fold", { r.nv << round % 3, n }, GDN_STEP_BLOCK, 0, { *r.d.pool }, [&] {
        gated_delta_rule_wy4_fold_seq(nullptr, r.d.stash->p, na.p, r.d.hi->p, 32, record.p, n, r.nk, r.nv, r.dim, r.dim, r.stash_floats(),
                                      tab.p, tab.p, fresh.p, 0, nullptr, nullptr, 0, nullptr, 0, r.hi_capacity, ids.p);
    });
    std::vector<float> got(r.want_pool.size());
    r.turn(r.d.pool->p, got.data(), r.slots(), r.stride());
    for (uint32_t i = 0; i < n; i++) {
        if (r.in_slot(i) < 0) continue;
        const uint64_t slot = (uint64_t)r.in_slot(i) * r.stride();
        const uint32_t a = std::min(accept[i], rows[i]);
        const float *want = a == rows[i] ? r.want_pool.data() + slot
                            : a == 0     ? pool0.data() + slot
                                         : r.want_hi.data() + ((uint64_t)i * r.hi_capacity + a - 1) * r.state_size();
        if (kind[i] == SKIPPED || a == 0) want = pool0.data() + slot; /* a fold of nothing writes nothing */
        b.expect(!memcmp(got.data() + slot, want, r.state_size() * sizeof(float)),
                 ("round " + std::to_string(round) + ": sequence " + std::to_string(i) + " of kind " + std::to_string(kind[i]) + ", " +
                  std::to_string(rows[i]) + " rows, " + std::to_string(accept[i]) + " accepted")
                     .c_str());
    }
}

/* ---- many rounds ---- */
#if defined(GDN_STATE_VK) || defined(GDN_QK_L2NORM)
enum { ROUNDS = 200 }; /* the contract's form runs them all */
#else
enum { ROUNDS = 1000 };
#endif
enum { ROUND_ROWS = 6, WRITE_ON_ACCEPT = GENERAL_EXT + 1, ROUND_KINDS };
/* A verify of `c.rows` rows in one of its forms, or one that defers its writes, on both sides. */
static void round_verify(emu::bench &b, rule_case &c, int kind, uint32_t *flag, emu::watched *flagged) {
    if (kind == WRITE_ON_ACCEPT) {
        gdn_cpu_verify_woa(&c.ref);
        b.run("woa", { c.nv, c.batch }, GDN_STEP_BLOCK, 65536, { *c.d.out, *c.d.stash, flagged }, [&] { woa_kernel(c, CORE, flag); });
        return;
    }
    gdn_cpu_verify(&c.ref);
    static const uint32_t forms[][2] = { { 1, GDN_STEP_BLOCK }, { 4, 256 }, { 8, 128 } };
    const uint32_t form = b.bits() % 3, parts = forms[form][0]; /* blocks a head */
    b.run("verify", { parts * c.nv, c.batch }, forms[form][1], 0, { *c.d.out, *c.d.hi, *c.d.pool },
          [&] { parts == 1 ? verify_kernel(c, kind) : split_kernel(c, kind); });
}
/* Buffers are kept, inputs are new each round; the CPU target runs beside the kernels on its own pool: every state, output, kept state
 * and stash is looked at after the fold and again after the decode of one plain token. */
static void random_rounds(emu::bench &b) {
    rule_case r;
    r.rows = ROUND_ROWS, r.batch = 2, r.nk = 1, r.nv = 1, r.hi_capacity = ROUND_ROWS - 1;
    r.make(b);
    auto &na = b.inout<uint32_t>("na", 2, [](size_t) { return 0u; });
    auto &flag = b.inout<uint32_t>("flag", 1, [](size_t) { return 1u; });
    uint32_t engaged = 1, kinds[ROUND_KINDS] = {}, seen[ROUND_ROWS + 2][ROUND_ROWS + 2] = {};
    r.ref.engaged = &engaged, r.ref.na = na.p;
    const uint32_t rounds = emu::small_or<uint32_t>(20, ROUNDS);
    for (uint32_t round = 0; round < rounds; round++) {
        for (auto *x : { r.d.q, r.d.k })
            for (size_t i = 0; i < x->n; i++) x->p[i] = gdn_to_bf16(b.uniform(-0.15f, 0.15f));
        for (size_t i = 0; i < r.d.v->n; i++) r.d.v->p[i] = gdn_to_bf16(b.uniform(-1, 1));
        for (size_t i = 0; i < r.d.gb->n; i++) r.d.gb->p[i] = RULE_LOG && i % 2 == 0 ? -b.uniform(0, 1) : b.uniform(0, 1);
        const int kind = (int)(b.bits() % ROUND_KINDS);
        rule_case c = r; /* the same buffers, this round's number of rows */
        c.rows = kind == WRITE_ON_ACCEPT ? 4 : 2 + b.bits() % (kind < GENERAL ? 3 : ROUND_ROWS - 1);
        c.ref.seq_len = c.rows;
        c.ref.state = c.ref.state_out = r.want_pool.data(), c.ref.out = r.want_out.data();
        c.ref.hi = r.want_hi.data(), c.ref.stash = r.want_stash.data();
        kinds[kind]++;
        for (int i = 0; i < 2; i++) seen[c.rows][na.p[i] = b.bits() % (c.rows + 2)]++;
        engaged = 0;
        b.run("clear", 1, 32, 0, { flag }, [&] { gated_delta_rule_wy4_flag_clear(flag.p); });
        round_verify(b, c, kind, flag.p, flag);
        gdn_cpu_fold(&c.ref);
        b.run("fold", { 1, 2 }, GDN_STEP_BLOCK, 0, { *r.d.pool }, [&] { fold_kernel(c, CORE, na.p, flag.p); });
        r.compare(b, ("round " + std::to_string(round)).c_str());
        c.rows = c.ref.seq_len = 1; /* one plain token a sequence: its first row */
        gdn_cpu_decode(&c.ref);
        b.run("decode", { 1, 2 }, GDN_STEP_BLOCK, 0, { *r.d.pool, *r.d.out },
              [&] { gated_delta_rule_decode((void *)r.in_tab(), FRONT_(r), SHAPE_(r), 1); });
        r.compare(b, ("decode of round " + std::to_string(round)).c_str());
    }
    if (rounds < 1000) return;
    for (uint32_t n : kinds) b.expect(n > 100, "control: a form hardly came up");
    for (uint32_t rows = 2; rows <= ROUND_ROWS; rows++)
        for (uint32_t n = 0; n < rows + 2; n++) b.expect(seen[rows][n] > 5, "control: a count of accepted rows hardly came up");
}

static void mixed(emu::check &c) {
    for (uint32_t round = 0; round < emu::small_or(2u, 12u); round++)
        c.test(("mixed batch " + std::to_string(round) + " by record (B61 B67 B72)").c_str(),
               [&](emu::bench &b) { mixed_round(b, round); });
    c.test("many rounds of verify, fold and decode (B68)", random_rounds);
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    plain(c);
    extras(c);
    woa(c);
    mixed(c);
    return c.done();
}
