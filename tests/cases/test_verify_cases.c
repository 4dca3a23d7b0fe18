/* test_verify_cases.c - public reports about speculative verify, each named by its id: verify with kept states, and
 * write-on-accept verify with fold. Accepted counts na include the first row: 0 keeps nothing, rows keeps all. */
#include "rule_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY(...) \
    { .op = GDN_OP_VERIFY, .addr = GDN_STATE_POOL, __VA_ARGS__ }

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
    rc_deferred(&c, na);
    for (uint32_t b = 0; b < 2; b++) rc_assert_after(&c, &e, b, 4, rc_state(&c, true, b));
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
    rc_deferred(&c, na);
    rc_assert_after(&c, &e, 1, 2, rc_state(&c, true, 1));
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
    guard_put(&c.na, na);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 2), GDN_OK);
    assert_memory_equal(base.p, rc_state(&c, false, 0), base.bytes);
    rc_assert_after(&c, &e, 1, 2, rc_state(&c, false, 1));
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

/* rc_run compares every sequence with its run alone; the states lie in an order of their own, too. */
static void B61_plain_and_draft_rows_in_any_order(void **state) {
    (void)state;
    static const uint32_t len[][3] = { { 1, 4, 2 }, { 4, 2, 1 }, { 2, 1, 4 }, { 1, 4, 0 }, { 4, 1, 0 } };
    static const int32_t slots[][3] = { { 2, 0, 4 }, { 0, 4, 2 }, { 4, 2, 0 }, { 1, 0, 2 }, { 0, 1, 2 } };
    for (uint32_t dim = 64; dim <= 128; dim += 64)
        for (uint32_t i = 0; i < N_OF(len); i++) {
            const rc_spec s =
                VERIFY(.nk = 2, .nv = 6, .dim = dim, .batch = 3, .len = len[i], .slots = slots[i], .hi = true, .a_lo = 0.1, .row0 = i);
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

/* drafts [0,2,4] are rows [1,3,5]; the accepted states are taken from hi, then one plain decode follows. */
static void drafts_then_a_plain_step(uint32_t dim, const uint32_t *na) {
    static const uint32_t len[] = { 1, 3, 5 };
    const rc_spec s = VERIFY(.nk = 2, .nv = 6, .dim = dim, .batch = 3, .len = len, .hi = true);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_check_against(&c, &e);
    guard after = guard_copy(&c.pool);
    guard_put(&c.na, na); /* fold knows each sequence's rows from cu_rows ... */
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
    guard src_slots = guard_of(src, sizeof src), dst_slots = guard_of(dst, sizeof dst);
    const gdn_state_shape copy = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_COPY, 0), .bytes = c.state_elems * 4, .max_count = 3 };
    const uint64_t ptr[] = { addr_of(c.hi.p), addr_of(c.pool.p), addr_of(src_slots.p), addr_of(dst_slots.p) };
    const uint32_t count = 3;
    run_ok(&copy, 4, ptr, 1, &count);
    assert_memory_equal(folded.p, c.pool.p, folded.bytes);
    guard_free(&dst_slots);
    guard_free(&src_slots);
    guard_free(&folded);
    guard_free(&after);
    for (uint32_t b = 0; b < 3; b++) {
        rc_assert_after(&c, &e, b, na[b], rc_state(&c, true, b));
        if (na[b] < len[b])
            memcpy(e.state + b * c.state_elems, e.hi + ((uint64_t)b * e.hi_cap + na[b] - 1) * c.state_elems,
                   c.state_elems * sizeof *e.state);
    }
    rc_then_decode(&c, &e);
    rc_expect_free(&e);
    rc_free(&c);
}

/* The counts as an engine gives them that counts the first row, and as one that gives the last sequence's accepted drafts. */
static void B67_different_drafts_then_a_plain_step(void **state) {
    (void)state;
    static const uint32_t na[][3] = { { 1, 1, 3 }, { 1, 1, 4 }, { 1, 3, 5 }, { 1, 2, 1 } };
    for (uint32_t dim = 64; dim <= 128; dim += 64)
        for (uint32_t i = 0; i < N_OF(na); i++) drafts_then_a_plain_step(dim, na[i]);
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
        cmocka_unit_test(B67_different_drafts_then_a_plain_step),
        cmocka_unit_test(control_spoilt_results_are_noticed),
    };
    return cmocka_run_group_tests_name("verify cases", tests, target_setup, target_teardown);
}
