/* test_gated_delta_rule_round.cpp - the round of speculation in one launch (kernels/gb10/gated_delta_rule_wy4_round.cu) on the emulator:
 * the bytes of kernels/cpu's fold of the round before and then its write-on-accept verify, in states, outputs, stashes and words, round
 * after round on the same buffers. */
#include "emu_rule_case.hpp"

#include "gated_delta_rule_wy4_round.cu"

/* Two of each, for this round and for the one before. */
struct rounds {
    rule_case r;
    emu::tensor_of<float> *stash[2];
    emu::tensor_of<uint32_t> *word[2], *na;
    emu::tensor_of<int32_t> *ids = nullptr;
    std::vector<float> want_stash[2];
    std::vector<uint32_t> want_word[2];
    uint32_t now = 0, words = 1;
    bool by_sequence = false;

    void make(emu::bench &b) {
        r.make(b);
        words = by_sequence ? r.batch : 1;
        stash[0] = r.d.stash;
        stash[1] = &b.inout<float>("other stash", r.d.stash->n, [](size_t) { return 444.0f; });
        for (int i = 0; i < 2; i++) {
            word[i] = &b.inout<uint32_t>(i ? "other word" : "word", words, [](size_t) { return 0u; });
            want_word[i].assign(words, 0);
            want_stash[i].assign(stash[i]->p, stash[i]->p + stash[i]->n);
        }
        na = &b.inout<uint32_t>("na", r.batch, [](size_t) { return 0u; });
        if (by_sequence) ids = &b.input<int32_t>("ids", r.batch, [&](size_t i) { return (int32_t)(r.batch - 1 - i); });
    }
    void inputs(emu::bench &b) {
        for (auto *x : { r.d.q, r.d.k })
            for (size_t i = 0; i < x->n; i++) x->p[i] = gdn_to_bf16(b.uniform(-0.15f, 0.15f));
        for (size_t i = 0; i < r.d.v->n; i++) r.d.v->p[i] = gdn_to_bf16(b.uniform(-1, 1));
        for (size_t i = 0; i < r.d.gb->n; i++) r.d.gb->p[i] = RULE_LOG && i % 2 == 0 ? -b.uniform(0, 1) : b.uniform(0, 1);
    }
    /* The word of the round before is want_word[!now]. */
    void reference() {
        gdn_cpu_rule verify = r.ref, fold = r.ref;
        for (gdn_cpu_rule *c : { &verify, &fold }) {
            const uint32_t which = c == &verify ? now : !now;
            c->ids = by_sequence ? ids->p : nullptr;
            c->na = na->p;
            c->stash = want_stash[which].data();
            (by_sequence ? c->record : c->engaged) = want_word[which].data();
        }
        fold.cu = nullptr;
        gdn_cpu_round(&verify, &fold);
    }
    /* parts 0: whole heads */
    void kernel(emu::bench &b, const std::string &name, uint32_t blocks, uint32_t parts, bool table) {
        const uint32_t was = !now, smem = parts ? 0 : 65536;
#ifdef ROUND_STAYS
        const auto entry = parts ? gated_delta_rule_wy4_round : gated_delta_rule_wy4_round_stay;
#else
        const auto entry = gated_delta_rule_wy4_round;
#endif
        b.run(name.c_str(), blocks, GDN_STEP_BLOCK, smem, { *r.d.pool, *r.d.out, *stash[now], *word[now] }, [&] {
            entry(table ? (void *)r.in_tab() : (void *)r.pool(), r.query(), r.key(), r.value(), r.gate(), r.beta(), r.out(), stash[now]->p,
                  word[now]->p, stash[was]->p, na->p, word[was]->p,
                  !r.hi_capacity ? nullptr
                  : table        ? (const void *)r.d.hi_tab->p
                                 : r.d.hi->p,
                  32, 4, r.batch, r.nk, r.nv, r.dim, r.dim, r.qk_stride(), r.v_stride(), r.gb_stride(), r.stash_floats(), r.fresh_tab(),
                  r.scale, table ? nullptr : r.ref.in_slots, table ? 0 : r.stride(), r.cu(), table, r.hi_capacity,
                  by_sequence ? ids->p : nullptr, by_sequence, parts);
        });
    }
    void compare(emu::bench &b, const std::string &name) {
        for (uint32_t i : { 0u, 1u }) {
            r.d.stash = stash[i], r.want_stash = want_stash[i];
            r.compare(b, (name + ", stash " + std::to_string(i)).c_str());
            b.expect(!memcmp(word[i]->p, want_word[i].data(), words * 4), (name + ": the words").c_str());
        }
    }
};

static void run(emu::bench &b, rounds c, const std::string &name, uint32_t count, bool table) {
    c.make(b);
    const std::vector<float> pool(c.r.d.pool->p, c.r.d.pool->p + c.r.d.pool->n), reference = c.r.want_pool;
    uint32_t round = 0;
#ifdef ROUND_STAYS
    const std::vector<uint32_t> forms = { 4, 8, 0 };
#else
    const std::vector<uint32_t> forms = { 4, 8 };
#endif
    for (uint32_t parts : forms)
        for (uint32_t n = 0; n < count; n++, round++, c.now ^= 1) {
            const uint32_t heads = c.r.nv * c.r.batch, each = n % 3 == 0 ? heads : n % 3 == 1 ? heads / 3 + 1 : 1;
            const uint32_t blocks = parts ? parts * each : each;
            const std::string at = name + ", round " + std::to_string(round);
            c.inputs(b);
            for (uint32_t i = 0; i < c.r.batch; i++) c.na->p[i] = n < 6 ? (n + i) % 6 : b.bits() % 6;
            for (uint32_t i = 0; i < c.words && n % 5 == 4; i++) c.word[!c.now]->p[i] = c.want_word[!c.now][i] = 0; /* cleared */
            c.reference();
            c.kernel(b, at, blocks, parts, table);
            c.compare(b, at);
        }
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("one word", [](emu::bench &b) {
        rounds r;
        r.r.rows = 4;
        run(b, r, "tables", emu::small_or(3u, 7u), true);
        r.r.batch = 3, r.r.in_slots = { 2, -1, 0 }, r.r.nk = 1, r.r.nv = 3, r.r.state_pad = 5, r.r.state_shift = 1, r.r.shift = 1;
        r.r.qk_pad = 1, r.r.stash_pad = 5, r.r.scale = 0.25f, r.r.hi_capacity = 3;
        run(b, r, "slots, odd addresses", emu::small_or(3u, 7u), false);
    });
    c.test("by sequence", [](emu::bench &b) {
        rounds r;
        r.by_sequence = true;
        r.r.rows = 4, r.r.batch = 6, r.r.nk = 1, r.r.nv = 2, r.r.cu_rows = { 0, 4, 5, 5, 8, 10, 14 }, r.r.fresh = { 0, 0, 1, 0, 1, 0 };
        r.r.in_slots = { 3, 0, 5, 2, 1, -1 };
        run(b, r, "slots", emu::small_or(3u, 7u), false);
        run(b, r, "tables", emu::small_or(3u, 7u), true);
    });
    return c.done();
}
