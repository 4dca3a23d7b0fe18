/* test_round.c - the round of speculation in one launch: states, outputs, stashes and words are those of fold and verify_woa one after the
 * other, byte for byte, round after round on the same buffers, whatever was accepted; and what it refuses. */
#include "guard.h"
#include "numeric.h"
#include "target.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 4, D = 128, BATCH = 5, SLOTS = BATCH + 2, ROWS = 4, TOKENS = BATCH * ROWS };
enum { STATE = NV * D * D, QK = NK * D, VW = NV * D, STASH = 4 * (VW + NV + QK) };
enum { P_FOLD, P_WOA, P_ROUND, P_VERIFY, P_CLEAR, PLANS };

/* What a launch changes: once for the two operations, once for the round. */
typedef struct memory {
    guard pool, out, stash[2], word[2], hi, tab;
} memory;
typedef struct world {
    bool table, words;
    uint32_t act, size, now; /* now: which stash this round writes */
    gdn_hplan *plan[PLANS];
    memory m[2];
    guard q, k, v, gb, ws;
    int32_t slot[BATCH], cu[BATCH + 1], ids[BATCH];
    uint32_t na[BATCH], k_rows;
    uint8_t fresh[BATCH], later[BATCH]; /* later: fresh when the fold has run, and from then on until a row is folded */
    rng r;
} world;

static gdn_rule_shape shape_of(const world *w, uint32_t op, uint32_t flags) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, op == GDN_OP_FOLD ? flags & GDN_VERIFY_BY_SEQUENCE : flags,
                                        w->act },
                              .nk = NK,
                              .nv = NV,
                              .k_dim = D,
                              .v_dim = D,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_addr = w->table ? GDN_STATE_TABLE : GDN_STATE_POOL,
                              .state_type = GDN_F32,
                              .offsets = w->words && op != GDN_OP_FOLD ? GDN_OFFSETS_I32 : 0u,
                              .max_batch = BATCH,
                              .max_rows = ROWS,
                              .hi_capacity = ROWS,
                              .stash_seqs = BATCH,
                              .stash_stride = STASH + 3 };
}

static void up(world *w, bool table, bool words, uint32_t flags, uint32_t layout, uint32_t map) {
    static const uint32_t ops[] = {
        [P_FOLD] = GDN_OP_FOLD, [P_WOA] = GDN_OP_VERIFY_WOA, [P_ROUND] = GDN_OP_ROUND, [P_VERIFY] = GDN_OP_VERIFY
    };
    const uint32_t by = words ? (uint32_t)GDN_VERIFY_BY_SEQUENCE : 0u;
    memset(w, 0, sizeof *w);
    w->table = table, w->words = words;
    w->act = target_act(), w->size = num_size(w->act), w->r.s = 7u + table + 2u * words;
    for (uint32_t i = 0; i < P_CLEAR; i++) {
        gdn_rule_shape s = shape_of(w, ops[i], flags | by);
        s.state_layout = layout, s.head_map = map;
        w->plan[i] = plan_ok(&s);
    }
    const gdn_flag_shape clear = { { (uint32_t)sizeof clear, GDN_OP_FLAG_CLEAR, by, 0 } };
    w->plan[P_CLEAR] = plan_ok(&clear);
    w->q = guard_alloc((uint64_t)TOKENS * QK * w->size), w->k = guard_alloc((uint64_t)TOKENS * QK * w->size);
    w->v = guard_alloc((uint64_t)TOKENS * VW * w->size), w->gb = guard_alloc(TOKENS * 2ull * NV * 4), w->ws = guard_alloc(4096);
    for (uint32_t b = 0; b < BATCH; b++) {
        w->slot[b] = b == 2 ? -1 : (int32_t)((b * 3 + 1) % SLOTS);
        w->ids[b] = b == 2 ? -1 : (int32_t)(BATCH - 1 - b); /* padding's is not looked at */
    }
    for (uint32_t i = 0; i < 2; i++) {
        memory *const m = &w->m[i];
        m->pool = guard_alloc((uint64_t)SLOTS * STATE * 4), m->out = guard_alloc((uint64_t)TOKENS * VW * w->size);
        m->hi = guard_alloc((uint64_t)BATCH * ROWS * STATE * 4), m->tab = guard_alloc(8ull * (BATCH + ROWS * GDN_SLAB_ENTRIES));
        for (uint32_t j = 0; j < 2; j++) {
            m->stash[j] = guard_alloc((uint64_t)BATCH * (STASH + 3) * 4), m->word[j] = guard_alloc(BATCH * 4);
            guard_poison(&m->stash[j]), guard_poison(&m->word[j]);
            memset(m->word[j].p, 0, m->word[j].bytes);
        }
        guard_poison(&m->hi);
        rng same = { 11 };
        num_fill(m->pool.p, GDN_F32, m->pool.bytes / 4, &same, -0.1, 0.1);
        uint64_t *const tab = (uint64_t *)(void *)m->tab.p;
        for (uint32_t b = 0; b < BATCH; b++) {
            tab[b] = w->slot[b] < 0 ? 0 : addr_of(m->pool.p + (uint64_t)w->slot[b] * STATE * 4);
            for (uint32_t t = 0; t < ROWS; t++)
                tab[BATCH + t * GDN_SLAB_ENTRIES + b] = addr_of(m->hi.p + ((uint64_t)b * ROWS + t) * STATE * 4);
        }
    }
}

static void down(world *w) {
    guard *const inputs[] = { &w->q, &w->k, &w->v, &w->gb, &w->ws };
    for (uint32_t i = 0; i < N_OF(inputs); i++) guard_free(inputs[i]);
    for (uint32_t i = 0; i < 2; i++) {
        memory *const m = &w->m[i];
        guard *const all[] = { &m->pool, &m->out, &m->stash[0], &m->stash[1], &m->word[0], &m->word[1], &m->hi, &m->tab };
        for (uint32_t j = 0; j < N_OF(all); j++) {
            assert_true(guard_ok(all[j]));
            guard_free(all[j]);
        }
    }
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(w->plan[i]);
}

/* New rows, counts and tenants. */
static void draw(world *w, uint32_t round) {
    num_fill(w->q.p, w->act, TOKENS * QK, &w->r, -0.12, 0.12);
    num_fill(w->k.p, w->act, TOKENS * QK, &w->r, -0.12, 0.12);
    num_fill(w->v.p, w->act, TOKENS * VW, &w->r, -0.5, 0.5);
    float *const gb = (float *)(void *)w->gb.p;
    for (uint32_t i = 0; i < TOKENS * 2 * NV; i++) gb[i] = (float)rng_uniform(&w->r, i / NV % 2 ? 0.05 : 0.7, 1);
    for (uint32_t b = 0; b < BATCH; b++) {
        const uint32_t *const word = (const uint32_t *)(void *)w->m[0].word[!w->now].p;
        const uint32_t rows = w->words ? rng_below(&w->r, ROWS + 1) : ROWS;
        w->cu[b + 1] = w->cu[b] + (int32_t)rows;
        w->na[b] = round < 6 ? (round + b) % 6 : rng_below(&w->r, 6);
        w->fresh[b] = w->later[b] || (round == 0 ? b % 2 == 1 : rng_below(&w->r, 6) == 0);
        const uint32_t ran = w->words ? (w->ids[b] < 0 ? 0 : word[w->ids[b]] & GDN_RECORD_ROWS) : word[0] ? ROWS : w->k_rows;
        w->later[b] = w->fresh[b] && (w->na[b] == 0 || ran == 0);
        for (uint32_t i = 0; i < 2 && w->fresh[b] && w->slot[b] >= 0; i++) /* not read, whatever it holds; but for a plain verify's */
            if (w->words || word[0] || w->k_rows == 0) memset(w->m[i].pool.p + (uint64_t)w->slot[b] * STATE * 4, 0xFF, STATE * 4);
        if (!w->words && !word[0] && w->k_rows) w->fresh[b] = w->later[b] = 0;
    }
    for (uint32_t i = 0; i < 2; i++) guard_poison(&w->m[i].out);
}

static void done(gdn_status st, const char *what) {
    if (st != GDN_OK) fail_msg("%s: %s; log: %s", what, gdn_status_name(st), target_log_text());
}
static uint64_t state_of(const world *w, const memory *m) {
    return w->table ? addr_of(m->tab.p) : addr_of(m->pool.p);
}
static uint64_t hi_of(const world *w, const memory *m) {
    return w->table ? addr_of(m->tab.p + BATCH * 8ull) : addr_of(m->hi.p);
}

static void two_launches(const world *w) {
    const memory *const m = &w->m[0];
    const uint64_t slots = w->table ? 0 : addr_of(w->slot), beta = addr_of(w->gb.p + NV * 4);
    const uint64_t ids = w->words ? addr_of(w->ids) : 0, cu = w->words ? addr_of(w->cu) : 0;
    const uint64_t fold[] = { state_of(w, m),
                              addr_of(m->stash[!w->now].p),
                              addr_of(w->na),
                              hi_of(w, m),
                              addr_of(m->word[!w->now].p),
                              slots,
                              addr_of(w->fresh),
                              0,
                              ids };
    const uint64_t woa[] = { state_of(w, m),
                             addr_of(w->q.p),
                             addr_of(w->k.p),
                             addr_of(w->v.p),
                             addr_of(w->gb.p),
                             beta,
                             addr_of(m->out.p),
                             addr_of(m->stash[w->now].p),
                             addr_of(m->word[w->now].p),
                             slots,
                             addr_of(w->later),
                             addr_of(w->ws.p),
                             cu,
                             ids };
    const uint32_t n_fold[] = { w->k_rows ? w->k_rows : 1, BATCH }, n_woa[] = { ROWS, BATCH };
    done(launch(w->plan[P_FOLD], N_OF(fold), fold, 2, n_fold), "fold");
    done(launch(w->plan[P_WOA], N_OF(woa), woa, 2, n_woa), "verify_woa");
}

static gdn_status one_launch(const world *w, uint32_t without) {
    const memory *const m = &w->m[1];
    uint64_t ptr[GDN_ROUND_N_PTR] = { [GDN_ROUND_P_STATE] = state_of(w, m),
                                      [GDN_ROUND_P_QUERY] = addr_of(w->q.p),
                                      [GDN_ROUND_P_KEY] = addr_of(w->k.p),
                                      [GDN_ROUND_P_VALUE] = addr_of(w->v.p),
                                      [GDN_ROUND_P_GATE] = addr_of(w->gb.p),
                                      [GDN_ROUND_P_BETA] = addr_of(w->gb.p + NV * 4),
                                      [GDN_ROUND_P_OUTPUT] = addr_of(m->out.p),
                                      [GDN_ROUND_P_STASH] = addr_of(m->stash[w->now].p),
                                      [GDN_ROUND_P_FLAG] = addr_of(m->word[w->now].p),
                                      [GDN_ROUND_P_PENDING] = addr_of(m->stash[!w->now].p),
                                      [GDN_ROUND_P_NA] = addr_of(w->na),
                                      [GDN_ROUND_P_PENDING_FLAG] = addr_of(m->word[!w->now].p),
                                      [GDN_ROUND_P_HI] = hi_of(w, m),
                                      [GDN_ROUND_P_IN_SLOTS] = w->table ? 0 : addr_of(w->slot),
                                      [GDN_ROUND_P_FRESH] = addr_of(w->fresh),
                                      [GDN_ROUND_P_WORKSPACE] = addr_of(w->ws.p),
                                      [GDN_ROUND_P_CU_ROWS] = w->words ? addr_of(w->cu) : 0,
                                      [GDN_ROUND_P_SEQ_IDS] = w->words ? addr_of(w->ids) : 0 };
    const uint32_t u32[GDN_ROUND_N_U32] = { ROWS, BATCH, w->k_rows };
    if (without < GDN_ROUND_N_PTR) ptr[without] = 0;
    return launch(w->plan[P_ROUND], GDN_ROUND_N_PTR, ptr, GDN_ROUND_N_U32, u32);
}

/* A plain verify in place of a round: by sequence it keeps every state and writes none. */
static void plain(world *w) {
    for (uint32_t i = 0; i < 2; i++) {
        const memory *const m = &w->m[i];
        const uint64_t ids = w->words ? addr_of(w->ids) : 0, word = w->words ? addr_of(m->word[w->now].p) : 0;
        const uint64_t ptr[] = { state_of(w, m),
                                 addr_of(w->q.p),
                                 addr_of(w->k.p),
                                 addr_of(w->v.p),
                                 addr_of(w->gb.p),
                                 addr_of(w->gb.p + NV * 4),
                                 addr_of(m->out.p),
                                 hi_of(w, m),
                                 w->words ? addr_of(w->cu) : 0,
                                 0,
                                 w->table ? 0 : addr_of(w->slot),
                                 0,
                                 0,
                                 addr_of(w->ws.p),
                                 ids,
                                 word };
        const uint64_t clear[] = { addr_of(m->word[w->now].p), 0 };
        const uint32_t u32[] = { ROWS, BATCH }, count = BATCH;
        done(launch(w->plan[P_CLEAR], 2, clear, w->words, &count), "flag_clear");
        done(launch(w->plan[P_VERIFY], N_OF(ptr), ptr, 2, u32), "verify");
    }
}

static void same(const guard *a, const guard *b, const char *what, uint32_t round) {
    if (memcmp(a->p, b->p, a->bytes) != 0) fail_msg("round %u: %s are not those of fold and verify_woa", round, what);
}

static void rounds(bool table, bool words, uint32_t flags, uint32_t layout, uint32_t map) {
    world w;
    uint32_t changed = 0;
    up(&w, table, words, flags, layout, map);
    for (uint32_t round = 0; round < (target_is_light() ? 9u : 40u); round++) {
        w.k_rows = 0;
        draw(&w, round);
        if (round % 5 == 3) {                  /* the two that are compared follow on a plain verify */
            for (uint32_t i = 0; i < 2; i++) { /* which reads all states */
                rng alike = { round };
                num_fill(w.m[i].pool.p, GDN_F32, w.m[i].pool.bytes / 4, &alike, -0.1, 0.1);
            }
            memset(w.later, 0, sizeof w.later);
            plain(&w);
            w.k_rows = ROWS, w.now ^= 1;
            draw(&w, round);
        }
        guard before = guard_copy(&w.m[1].pool);
        two_launches(&w);
        done(one_launch(&w, UINT32_MAX), "round");
        changed += memcmp(before.p, w.m[1].pool.p, before.bytes) != 0;
        guard_free(&before);
        const memory *const a = &w.m[0], *const b = &w.m[1];
        same(&a->pool, &b->pool, "states", round);
        same(&a->out, &b->out, "outputs", round);
        for (uint32_t i = 0; i < 2; i++) same(&a->stash[i], &b->stash[i], "stashes", round), same(&a->word[i], &b->word[i], "words", round);
        w.now ^= 1;
    }
    assert_true(changed > 5); /* the control: something was folded */
    down(&w);
}

static void a_round_is_fold_and_verify_woa(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) rounds(i % 2, i / 2, 0, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED);
}
static void a_round_in_the_other_forms(void **state) {
    (void)state;
    rounds(false, false, GDN_QK_L2NORM, GDN_STATE_V_MAJOR, GDN_HEADS_TILED);
    rounds(true, true, GDN_QK_L2NORM, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED);
    rounds(true, false, 0, GDN_STATE_V_MAJOR, GDN_HEADS_GROUPED);
}

static void a_checked_round_finds_what_a_checked_fold_does(void **state) {
    (void)state;
    world w;
    up(&w, false, true, GDN_PLAN_CHECKED, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED);
    draw(&w, 0);
    ((uint32_t *)(void *)w.m[1].word[1].p)[w.ids[1]] = 0x777;
    target_log_clear();
    assert_true(one_launch(&w, UINT32_MAX) < 0);
    assert_true(target_logged("0x777"));
    ((uint32_t *)(void *)w.m[1].word[1].p)[w.ids[1]] = GDN_RECORD_KEPT | 4;
    w.na[1] = 2;
    target_log_clear();
    assert_true(one_launch(&w, GDN_ROUND_P_HI) < 0);
    assert_true(target_logged("hi_tables"));
    down(&w);
    up(&w, false, false, GDN_PLAN_CHECKED, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED); /* behind a plain verify of fewer rows */
    draw(&w, 0);
    w.na[0] = 1, w.k_rows = 3;
    target_log_clear();
    assert_true(one_launch(&w, GDN_ROUND_P_HI) < 0);
    assert_true(target_logged("hi_tables"));
    down(&w);
}

/* A table of kept states without the one that is to be taken. */
static void a_checked_round_misses_an_entry(void **state) {
    (void)state;
    for (uint32_t words = 0; words < 2; words++) {
        world w;
        up(&w, true, words, GDN_PLAN_CHECKED, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED);
        draw(&w, 0);
        const uint32_t at = words ? (uint32_t)w.ids[1] : 1u;
        char want[96];
        memset(w.na, 0, sizeof w.na);
        w.na[1] = 2, w.k_rows = words ? 0 : 3;
        if (words) ((uint32_t *)(void *)w.m[1].word[1].p)[at] = GDN_RECORD_KEPT | 4;
        ((uint64_t *)(void *)w.m[1].tab.p)[BATCH + GDN_SLAB_ENTRIES + at] = 0;
        (void)snprintf(want, sizeof want, "hi_tables has no state for sequence %u after row 1", (unsigned)at);
        target_log_clear();
        assert_int_equal(one_launch(&w, UINT32_MAX), GDN_E_CHECKED);
        assert_true(target_logged(want));
        down(&w);
    }
}

static void refusals_are_those_of_verify_woa(void **state) {
    (void)state;
    world w = { .act = target_act() };
    gdn_rule_shape s = shape_of(&w, GDN_OP_ROUND, 0);
    gdn_plan_free(plan_ok(&s));
    s.max_rows = 3;
    plan_fails(&s, GDN_REFUSED, "rows is not 4");
    s = shape_of(&w, GDN_OP_ROUND, 0);
    s.k_dim = s.v_dim = 64;
    plan_fails(&s, GDN_REFUSED, "k_dim or v_dim is not 128");
    s = shape_of(&w, GDN_OP_ROUND, 0);
    s.stash_seqs = 2;
    plan_fails(&s, GDN_REFUSED, "batch does not fit the stash");
    s = shape_of(&w, GDN_OP_ROUND, 0);
    s.offsets = GDN_OFFSETS_I32;
    plan_fails(&s, GDN_E_ARG, "offsets");
}

static void memory_of_two_rounds_lies_apart(void **state) {
    (void)state;
    static const char *const names[] = { "pending_stash", "pending_flag" };
    world w;
    up(&w, false, false, 0, GDN_STATE_K_MAJOR, GDN_HEADS_GROUPED);
    draw(&w, 1);
    const memory was = w.m[1];
    for (uint32_t i = 0; i < N_OF(names); i++) {
        if (i == 0) w.m[1].stash[1] = w.m[1].stash[0];
        if (i == 1) w.m[1].word[1] = w.m[1].word[0];
        target_log_clear();
        assert_int_equal(one_launch(&w, UINT32_MAX), GDN_E_ARG);
        assert_true(target_logged("overlaps") && target_logged(names[i]));
        w.m[1] = was;
    }
    down(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_is_fold_and_verify_woa),
        cmocka_unit_test(a_round_in_the_other_forms),
        cmocka_unit_test(a_checked_round_finds_what_a_checked_fold_does),
        cmocka_unit_test(a_checked_round_misses_an_entry),
        cmocka_unit_test(refusals_are_those_of_verify_woa),
        cmocka_unit_test(memory_of_two_rounds_lies_apart),
    };
    return cmocka_run_group_tests_name("round", tests, target_setup, target_teardown);
}
