/* test_woa_lever.c - with the lever gdn_woa left unset nothing is deferred (B72, B185); its own program, because levers are
 * read once a process. */
#include "rule_case.h"
#include <string.h>

static void B72_deferred_mode_only_on_request(void **state) {
    (void)state;
    gdn_rule_shape s = { .base = SHAPE_BASE(gdn_rule_shape, GDN_OP_VERIFY_WOA, GDN_F32),
                         .nk = 2,
                         .nv = 4,
                         .k_dim = 128,
                         .v_dim = 128,
                         .gate_form = GDN_GATE_LINEAR,
                         .state_addr = GDN_STATE_POOL,
                         .state_type = GDN_F32,
                         .max_batch = 2,
                         .max_rows = 4,
                         .stash_seqs = 2 };
    plan_fails(&s, GDN_REFUSED, "not requested: it takes lever gdn_woa");
    s.k_dim = s.v_dim = 64; /* the first guard is named, whatever else does not fit */
    plan_fails(&s, GDN_REFUSED, "not requested");
    gdn_route r = { .struct_size = sizeof r };
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 0, NULL, &r, NULL), GDN_REFUSED); /* what the plan answers */
    assert_int_equal(r.chosen, 0);
    assert_string_equal(r.guard, "not requested");
}

static void B185_off_is_off_for_the_verify_that_runs_instead(void **state) {
    (void)state;
    static const uint32_t na[] = { 2, 4 };
    const rc_spec s = { .op = GDN_OP_VERIFY, .nk = 2, .nv = 4, .dim = 128, .batch = 2, .rows = 4, .addr = GDN_STATE_POOL, .hi = true };
    rule_case c;
    rc_make(&c, &s);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    assert_int_equal(*(const uint32_t *)(const void *)c.flag.p, 0); /* not engaged */
    guard last = guard_of(rc_state(&c, true, 1), c.state_elems * 4);
    guard_put(&c.na, na);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 2), GDN_OK);
    assert_memory_equal(rc_state(&c, true, 0), rc_hi(&c, 0, 1), c.state_elems * 4);
    assert_memory_equal(rc_state(&c, true, 1), last.p, last.bytes);
    guard_free(&last);
    gdn_counter n[160];
    uint32_t count = 0;
    assert_int_equal(gdn_counters(target(), n, N_OF(n), &count), GDN_OK);
    assert_true(count <= N_OF(n));
    for (uint32_t i = 0; i < count; i++) assert_false(n[i].op == GDN_OP_VERIFY_WOA && !n[i].refused && n[i].count);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

int main(void) {
    target_woa = NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B72_deferred_mode_only_on_request),
        cmocka_unit_test(B185_off_is_off_for_the_verify_that_runs_instead),
    };
    return cmocka_run_group_tests_name("write on accept, lever unset", tests, target_setup, target_teardown);
}
