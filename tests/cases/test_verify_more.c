/* test_verify_more.c - public reports about speculative verify, B66 and later; see test_verify_cases.c. */
#include "rule_case.h"
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
    rc_deferred(&c, na);
    for (uint32_t b = 0; b < 2; b++) rc_assert_after(&c, &e, b, 2, rc_state(&c, true, b));
    guard_free(&pool);
    guard_free(&hi);
    guard_free(&out);
    guard_free(&stash);
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
                rc_deferred(&c, na);
            } else {
                assert_int_equal(rc_launch(&c), GDN_OK);
            }
            rc_assert_after(&c, &e, 0, c.s.rows, rc_state(&c, true, 0)); /* the same bound at the last step as at the first */
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
    rc_deferred(&c, na);
    for (uint32_t b = 0; b < 8; b++) {
        if (slots[b] < 0) continue;
        rc_assert_after(&c, &e, b, na[b], rc_state(&c, true, b));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B66_base_state_until_the_commit),
        cmocka_unit_test(B68_speculation_stays_with_plain_decoding),
        cmocka_unit_test(B70_padded_rows_of_a_verify),
        cmocka_unit_test(B72_four_rows_are_not_a_request_to_defer),
    };
    return cmocka_run_group_tests_name("verify cases, continued", tests, target_setup, target_teardown);
}
