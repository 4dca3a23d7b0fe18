/* test_verify_cases.c - public reports about speculative verify, each named by its id: verify with kept states, and
 * write-on-accept verify with fold. Accepted counts na include the first row: 0 keeps nothing, rows keeps all. */
#include "rule_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY(...)                                                                                                                        \
    { .op = GDN_OP_VERIFY, .addr = GDN_STATE_POOL, __VA_ARGS__ }

/* What na sequential decodes of sequence b's first rows leave, against `got`; f64 by way of rc_expect's kept states. */
static void assert_state_is_after(const rule_case *c, const rc_expect *e, uint32_t b, uint32_t na, const float *got) {
    const uint32_t n = c->start[b + 1] - c->start[b];
    const double *want = na == n ? e->state + b * c->state_elems : e->hi + ((uint64_t)b * e->hi_cap + na - 1) * c->state_elems;
    double *g = malloc(c->state_elems * sizeof *g);
    assert_non_null(g);
    for (uint64_t h = 0; h < c->s.nv; h++) {
        for (uint32_t i = 0; i < c->s.dim; i++) {
            for (uint32_t j = 0; j < c->s.dim; j++) {
                const uint64_t block = (uint64_t)c->s.dim * c->s.dim;
                g[h * block + i * c->s.dim + j] = (double)got[h * block + rc_elem(c, i, j)];
            }
        }
    }
    const num_error err = num_compare(want, g, c->state_elems);
    free(g);
    if (!num_close(&err, 1e-5)) fail_msg("sequence %u after %u rows: relative RMS %.3g", b, na, err.rel_rms);
}

static void set_na(rule_case *c, const uint32_t *na) {
    guard_put(&c->na, na);
}

/* clear, write-on-accept verify, fold. */
static void deferred(rule_case *c, const uint32_t *na) {
    set_na(c, na);
    assert_int_equal(rc_launch_op(c, GDN_OP_FLAG_CLEAR, 0, c->s.batch), GDN_OK);
    assert_int_equal(rc_launch_op(c, GDN_OP_VERIFY_WOA, 0, c->s.batch), GDN_OK);
    assert_int_equal(*(uint32_t *)(void *)c->flag.p, 1);
    assert_int_equal(rc_launch_op(c, GDN_OP_FOLD, 0, c->s.batch), GDN_OK);
}

static void make_woa(rule_case *c, uint32_t batch, const int32_t *slots) {
    rc_spec s = {
        .op = GDN_OP_VERIFY_WOA, .addr = GDN_STATE_POOL, .nk = 2, .nv = 6, .dim = 128, .batch = batch, .rows = 4, .slots = slots, .hi = true
    };
    rc_make(c, &s);
}

static void B56_all_four_rows_accepted(void **state) {
    (void)state;
    rule_case c;
    static const uint32_t na[] = { 4, 4 };
    make_woa(&c, 2, NULL);
    rc_expect e = rc_expect_of(&c, NULL);
    deferred(&c, na);
    for (uint32_t b = 0; b < 2; b++) assert_state_is_after(&c, &e, b, 4, rc_state(&c, true, b));
    rc_then_decode(&c, &e);
    rc_expect_free(&e);
    rc_free(&c);
    const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 128, .batch = 2, .rows = 4, .hi = true);
    rc_run(&s); /* the plain form writes the state after row 4 itself */
}

static void B57_every_draft_rejected(void **state) {
    (void)state;
    static const uint32_t na[] = { 0, 2 };
    rule_case c;
    make_woa(&c, 2, NULL);
    rc_expect e = rc_expect_of(&c, NULL);
    guard pool = guard_copy(&c.pool);
    deferred(&c, na);
    assert_state_is_after(&c, &e, 1, 2, rc_state(&c, true, 1));
    memcpy(pool.p + (uint64_t)c.in[1] * c.stride * 4, rc_state(&c, true, 1), c.state_elems * 4);
    assert_memory_equal(pool.p, c.pool.p, pool.bytes); /* sequence 0 and all other slots */
    guard_free(&pool);
    rc_expect_free(&e);
    rc_free(&c);
    /* Plain form: verify into spare slots leaves the base states; not engaged, fold copies hi[na-1] and skips na = 0. */
    static const int32_t in[] = { 1, 3 }, out[] = { 0, 4 };
    const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 64, .batch = 2, .rows = 4, .hi = true, .slots = in, .out_slots = out, .num_slots = 6);
    rc_make(&c, &s);
    e = rc_expect_of(&c, NULL);
    guard base = guard_of(rc_state(&c, false, 0), c.state_elems * 4);
    assert_int_equal(rc_launch(&c), GDN_OK);
    set_na(&c, na);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 2), GDN_OK);
    assert_memory_equal(base.p, rc_state(&c, false, 0), base.bytes);
    assert_state_is_after(&c, &e, 1, 2, rc_state(&c, false, 1));
    guard_free(&base);
    rc_expect_free(&e);
    rc_free(&c);
}

static void B60_room_for_more_states_than_rows(void **state) {
    (void)state;
    for (uint32_t addr = GDN_STATE_POOL; addr <= GDN_STATE_TABLE; addr++) {
        rc_spec s = VERIFY(.nk = 2, .nv = 4, .dim = 64, .batch = 3, .rows = 4, .hi = true, .hi_capacity = 8, .slab_entries = 5);
        s.addr = addr;
        rc_run(&s); /* entries 3..7 of each sequence stay poisoned */
    }
}

static void B61_plain_and_draft_rows_in_any_order(void **state) {
    (void)state;
    static const uint32_t len[][3] = { { 1, 4, 2 }, { 4, 2, 1 }, { 2, 1, 4 } };
    for (uint32_t i = 0; i < 3; i++) {
        const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 64, .batch = 3, .len = len[i], .hi = true, .a_lo = 0.1, .row0 = i);
        rc_run(&s);
    }
}

static void B62_a_piece_of_one_row_beside_drafts(void **state) {
    (void)state;
    static const uint32_t len[] = { 1, 4, 4 };
    for (uint32_t offsets = GDN_OFFSETS_I32; offsets <= GDN_OFFSETS_I64; offsets++) {
        const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 128, .batch = 3, .len = len, .offsets = offsets, .tail = 2);
        rc_run(&s);
    }
}

static void B64_rows_0_and_17(void **state) {
    (void)state;
    rule_case c;
    const rc_spec s = VERIFY(.nk = 2, .nv = 4, .dim = 64, .batch = 2, .rows = 4);
    rc_make(&c, &s);
    gdn_rule_shape sh = c.shape;
    sh.max_rows = 17;
    plan_fails(&sh, GDN_REFUSED, "rows is above 16");
    sh.max_rows = 0;
    plan_fails(&sh, GDN_REFUSED, "rows is 0");
    assert_int_equal(rc_launch(&c), GDN_OK);
    guard pool = guard_copy(&c.pool);
    guard_poison(&c.o);
    const uint64_t ptr[] = { addr_of(c.pool.p),
                             addr_of(c.qp),
                             addr_of(c.kp),
                             addr_of(c.vp),
                             addr_of(c.gb.p),
                             addr_of(rc_beta(&c, 0, 0)),
                             addr_of(c.o.p),
                             0,
                             0,
                             0,
                             addr_of(c.in_slots.p),
                             0,
                             0,
                             0 };
    static const uint32_t rows[] = { 0, 5, 17 };
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t u32[] = { rows[i], 2 };
        target_log_clear();
        const gdn_status st = launch(c.plan[GDN_OP_VERIFY], N_OF(ptr), ptr, 2, u32);
        assert_true(st == GDN_REFUSED || st == GDN_E_ARG);
        assert_true(target_logged("rows"));
    }
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    for (uint64_t i = 0; i < c.o.bytes; i++) assert_int_equal(c.o.p[i], 0xFF);
    guard_free(&pool);
    rc_free(&c);
    static const uint32_t many[] = { 16, 3, 0, 9 };
    const rc_spec most = VERIFY(.nk = 1, .nv = 3, .dim = 64, .batch = 4, .len = many, .hi = true);
    rc_run(&most); /* 16 are fine; 0 leaves a sequence untouched */
}

static void B66_base_state_until_the_commit(void **state) {
    (void)state;
    static const uint32_t na[] = { 2, 2 };
    rule_case c;
    make_woa(&c, 2, NULL);
    rc_expect e = rc_expect_of(&c, NULL);
    guard pool = guard_copy(&c.pool), hi = guard_copy(&c.hi);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
    assert_int_equal(rc_launch(&c), GDN_OK);
    guard out = guard_copy(&c.o), stash = guard_copy(&c.stash);
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_memory_equal(out.p, c.o.p, out.bytes);
    assert_memory_equal(stash.p, c.stash.p, stash.bytes);
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    assert_memory_equal(hi.p, c.hi.p, hi.bytes);
    deferred(&c, na);
    for (uint32_t b = 0; b < 2; b++) assert_state_is_after(&c, &e, b, 2, rc_state(&c, true, b));
    guard_free(&pool);
    guard_free(&hi);
    guard_free(&out);
    guard_free(&stash);
    rc_expect_free(&e);
    rc_free(&c);
}

/* drafts [0,2,4] are rows [1,3,5]; the accepted states are taken from hi, then one plain decode follows. */
static void B67_different_drafts_then_a_plain_step(void **state) {
    (void)state;
    static const uint32_t len[] = { 1, 3, 5 }, na[] = { 1, 1, 4 };
    const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 64, .batch = 3, .len = len, .hi = true);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_check_against(&c, &e);
    guard after = guard_copy(&c.pool);
    set_na(&c, na); /* fold knows each sequence's rows from cu_rows ... */
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 3), GDN_OK);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 3), GDN_OK);
    guard folded = guard_copy(&c.pool);
    guard_put(&c.pool, after.p);
    int32_t src[3], dst[3]; /* ... and copies by slot lists come to the same */
    for (uint32_t b = 0; b < 3; b++) {
        const bool all = na[b] == len[b];
        src[b] = all ? -1 : (int32_t)(b * 4 + na[b] - 1);
        dst[b] = all ? -1 : c.out[b];
    }
    const gdn_state_shape copy = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_COPY, 0), .bytes = c.state_elems * 4, .max_count = 3 };
    const uint64_t ptr[] = { addr_of(c.hi.p), addr_of(c.pool.p), addr_of(src), addr_of(dst) };
    const uint32_t count = 3;
    run_ok(&copy, 4, ptr, 1, &count);
    assert_memory_equal(folded.p, c.pool.p, folded.bytes);
    guard_free(&folded);
    guard_free(&after);
    for (uint32_t b = 0; b < 3; b++) {
        assert_state_is_after(&c, &e, b, na[b], rc_state(&c, true, b));
        if (na[b] < len[b])
            memcpy(e.state + b * c.state_elems, e.hi + ((uint64_t)b * e.hi_cap + na[b] - 1) * c.state_elems,
                   c.state_elems * sizeof *e.state);
    }
    rc_then_decode(&c, &e);
    rc_expect_free(&e);
    rc_free(&c);
}

/* 256 tokens: decode one by one, verify by fours, write-on-accept by fours; all against the f64 recurrence. */
static void B68_speculation_stays_with_plain_decoding(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA };
    static const uint32_t na[] = { 4 };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec s = { .op = ops[i], .nk = 1, .nv = 2, .dim = 128, .addr = GDN_STATE_POOL, .rows = 4, .a_lo = 0.97, .a_hi = 1 };
        double *init = NULL;
        rule_case prev = { 0 };
        for (uint32_t step = 0; step < (ops[i] == GDN_OP_DECODE ? 256u : 64u); step++) {
            rule_case c;
            s.seed = step + 1;
            rc_make(&c, &s);
            if (step) guard_put(&c.pool, prev.pool.p);
            rc_expect e = rc_expect_of(&c, init);
            if (ops[i] == GDN_OP_VERIFY_WOA) {
                deferred(&c, na);
            } else {
                assert_int_equal(rc_launch(&c), GDN_OK);
            }
            assert_state_is_after(&c, &e, 0, c.s.rows, rc_state(&c, true, 0)); /* the same bound at the last step as at the first */
            if (step) rc_free(&prev);
            prev = c;
            init = realloc(init, c.state_elems * sizeof *init);
            assert_non_null(init);
            memcpy(init, e.state, c.state_elems * sizeof *init);
            rc_expect_free(&e);
        }
        rc_free(&prev);
        free(init);
    }
}

static void B70_padded_rows_of_a_verify(void **state) {
    (void)state;
    static const int32_t slots[] = { 4, -1, 0, -1, -1, 7, -1, -1 };
    static const uint32_t na[] = { 4, 77, 1, 77, 77, 3, 77, 77 };
    rule_case c;
    make_woa(&c, 8, slots);
    rc_check(&c); /* outputs of padding rows are zero, no state is written */
    const uint64_t one = c.stash.bytes / 8;
    for (uint64_t i = 0; i < one; i++) assert_int_equal(c.stash.p[one + i], 0xFF); /* padding stashes nothing */
    rc_expect e = rc_expect_of(&c, NULL);
    guard pool = guard_copy(&c.pool);
    deferred(&c, na);
    for (uint32_t b = 0; b < 8; b++) {
        if (slots[b] < 0) continue;
        assert_state_is_after(&c, &e, b, na[b], rc_state(&c, true, b));
        memcpy(pool.p + (uint64_t)slots[b] * c.stride * 4, rc_state(&c, true, b), c.state_elems * 4);
    }
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    guard_free(&pool);
    rc_expect_free(&e);
    rc_free(&c);
    const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = 64, .batch = 8, .rows = 4, .slots = slots, .hi = true);
    rc_run(&s);
}

/* The lever is on and a stash would fit: the plain operation still writes its states. */
static void B72_four_rows_are_not_a_request_to_defer(void **state) {
    (void)state;
    rc_spec s = VERIFY(.nk = 2, .nv = 4, .dim = 128, .batch = 2, .rows = 4);
    rule_case c;
    rc_make(&c, &s);
    c.shape.stash_seqs = 2;
    rc_expect e = rc_expect_of(&c, NULL);
    rc_check_against(&c, &e);
    rc_then_decode(&c, &e);
    rc_expect_free(&e);
    rc_free(&c);
}

static void control_spoilt_results_are_noticed(void **state) {
    (void)state;
    const rc_spec s = VERIFY(.nk = 2, .nv = 4, .dim = 64, .batch = 2, .rows = 3, .hi = true, .hi_capacity = 4);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_true(rc_matches(&c, &e, &before, why, sizeof why));
    uint8_t *spoil[] = { rc_out_row(&c, 5) + 3, (uint8_t *)rc_hi(&c, 1, 1) + 3, (uint8_t *)rc_hi(&c, 1, 2) + 3,
                         (uint8_t *)rc_state(&c, true, 0) + 3 };
    for (uint32_t i = 0; i < N_OF(spoil); i++) {
        *spoil[i] ^= 0x41;
        assert_false(rc_matches(&c, &e, &before, why, sizeof why));
        *spoil[i] ^= 0x41;
    }
    assert_true(rc_matches(&c, &e, &before, why, sizeof why));
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B56_all_four_rows_accepted),
        cmocka_unit_test(B57_every_draft_rejected),
        cmocka_unit_test(B60_room_for_more_states_than_rows),
        cmocka_unit_test(B61_plain_and_draft_rows_in_any_order),
        cmocka_unit_test(B62_a_piece_of_one_row_beside_drafts),
        cmocka_unit_test(B64_rows_0_and_17),
        cmocka_unit_test(B66_base_state_until_the_commit),
        cmocka_unit_test(B67_different_drafts_then_a_plain_step),
        cmocka_unit_test(B68_speculation_stays_with_plain_decoding),
        cmocka_unit_test(B70_padded_rows_of_a_verify),
        cmocka_unit_test(B72_four_rows_are_not_a_request_to_defer),
        cmocka_unit_test(control_spoilt_results_are_noticed),
    };
    return cmocka_run_group_tests_name("verify cases", tests, target_setup, target_teardown);
}
