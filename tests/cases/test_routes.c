/* test_routes.c - explain and route tell what ran, counters count it, and nothing that was refused or empty is counted. */
#include "rule_case.h"
#include <stdlib.h>
#include <string.h>

static gdn_counter *all_counters(uint32_t *n) {
    assert_int_equal(gdn_counters(target(), NULL, 0, n), GDN_OK); /* how many there are */
    gdn_counter *c = calloc(*n ? *n : 1, sizeof *c);
    assert_non_null(c);
    uint32_t again = 0;
    assert_int_equal(gdn_counters(target(), c, *n, &again), GDN_OK);
    assert_int_equal(again, *n);
    return c;
}

/* The count of one entry or guard, 0 when it is not listed. */
static uint64_t count_of(const char *name, bool refused, uint32_t op) {
    uint32_t n;
    gdn_counter *c = all_counters(&n);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(c[i].name, name) == 0 && (c[i].refused != 0) == refused && (op == 0 || c[i].op == op)) sum += c[i].count;
    }
    free(c);
    return sum;
}

static uint64_t launches_in_all(void) {
    uint32_t n;
    gdn_counter *c = all_counters(&n);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!c[i].refused) sum += c[i].count;
    }
    free(c);
    return sum;
}

static void explain_route_and_counters_agree(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA };
    for (uint32_t i = 0; i < N_OF(ops); i++) {
        const rc_spec s = { .op = ops[i], .nk = 2, .nv = 4, .dim = 128, .batch = 2, .rows = 4, .addr = GDN_STATE_POOL };
        rule_case c;
        rc_make(&c, &s);
        assert_int_equal(rc_launch(&c), GDN_OK);
        gdn_route plan = { .struct_size = sizeof plan }, now = plan, free_ = plan;
        static const uint32_t counts[][2] = { { 2, 4 }, { 2, 0 }, { 4, 2 }, { 4, 2 } };
        assert_int_equal(gdn_explain(c.plan[ops[i]], 0, NULL, &plan), GDN_OK);
        assert_int_equal(gdn_explain(c.plan[ops[i]], ops[i] == GDN_OP_DECODE ? 1 : 2, counts[i], &now), GDN_OK);
        assert_int_equal(gdn_route_for(target(), 0, &c.shape.base, 0, NULL, &free_, NULL), GDN_OK);
        assert_non_null(plan.entry);
        assert_string_equal(plan.entry, now.entry);
        assert_string_equal(plan.entry, free_.entry);
        assert_true(plan.chosen == 1 && plan.guard == NULL);
        const uint64_t before = count_of(plan.entry, false, ops[i]), total = launches_in_all();
        for (uint32_t k = 0; k < 3; k++) assert_int_equal(rc_launch(&c), GDN_OK);
        assert_int_equal(count_of(plan.entry, false, ops[i]), before + 3); /* the very string that explain gave */
        assert_int_equal(launches_in_all(), total + 3);
        rc_free(&c);
    }
}

static void refusals_are_counted_by_their_guard(void **state) {
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
                         .max_rows = 3,
                         .stash_seqs = 2 };
    const uint64_t before = count_of("rows is not 4", true, 0), total = launches_in_all();
    plan_fails(&s, GDN_REFUSED, "rows is not 4");
    assert_int_equal(count_of("rows is not 4", true, 0), before + 1);
    gdn_route r = { .struct_size = sizeof r };
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 0, NULL, &r, NULL), GDN_REFUSED);
    assert_true(r.chosen == 0 && r.entry == NULL);
    assert_string_equal(r.guard, "rows is not 4");
    assert_int_equal(count_of("rows is not 4", true, 0), before + 1); /* a question is not a refusal */
    assert_int_equal(launches_in_all(), total);
    /* The lever that decided, and where its value comes from. */
    assert_string_equal(r.lever, "gdn_woa");
    assert_non_null(r.lever_where);
    assert_int_equal(r.lever_source, GDN_FROM_API);
}

static void failed_launches_are_not_counted(void **state) {
    (void)state;
    const rc_spec s = { .op = GDN_OP_DECODE, .nk = 2, .nv = 4, .dim = 64, .batch = 2, .addr = GDN_STATE_POOL, .flags = GDN_PLAN_CHECKED };
    rule_case c;
    rc_make(&c, &s);
    assert_int_equal(rc_launch(&c), GDN_OK);
    const uint64_t total = launches_in_all();
    *rc_gate(&c, 0, 0) = 2;
    assert_int_equal(rc_launch(&c), GDN_E_CHECKED);
    assert_int_equal(rc_launch_op(&c, GDN_OP_DECODE, 0, 0), GDN_OK); /* no sequences: done, nothing launched */
    assert_int_equal(launches_in_all(), total);
    rc_free(&c);
}

/* A route needs no plan and follows the counts: more rows than the kernels have are refused there, too. */
static void routes_follow_the_counts(void **state) {
    (void)state;
    gdn_rule_shape s = { .base = SHAPE_BASE(gdn_rule_shape, GDN_OP_VERIFY, GDN_F32),
                         .nk = 2,
                         .nv = 4,
                         .k_dim = 64,
                         .v_dim = 64,
                         .gate_form = GDN_GATE_LINEAR,
                         .state_addr = GDN_STATE_POOL,
                         .state_type = GDN_F32,
                         .max_batch = 2,
                         .max_rows = 4 };
    static const uint32_t ok[] = { 4, 2 }, none[] = { 0, 2 }, many[] = { 17, 2 };
    gdn_route r = { .struct_size = sizeof r };
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 2, ok, &r, NULL), GDN_OK);
    assert_non_null(r.entry);
    r = (gdn_route) { .struct_size = sizeof r };
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 2, none, &r, NULL), GDN_REFUSED);
    assert_string_equal(r.guard, "rows is 0");
    r = (gdn_route) { .struct_size = sizeof r };
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 2, many, &r, NULL), GDN_E_ARG); /* above this shape's max_rows, like a launch */
    s.max_rows = 17;
    assert_int_equal(gdn_route_for(target(), 0, &s.base, 2, many, &r, NULL), GDN_REFUSED);
    assert_string_equal(r.guard, "rows is above 16");
}

/* A caller compiled with an older, shorter route gets that much and not a byte more. */
static void a_shorter_route_is_filled_no_further(void **state) {
    (void)state;
    const gdn_norm_shape s = { .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, GDN_F32),
                               .dim = 8,
                               .act = GDN_NORM_SILU,
                               .weight_type = GDN_F32,
                               .max_rows = 1,
                               .eps = 1e-6f };
    gdn_hplan *p = plan_ok(&s);
    gdn_route r;
    memset(&r, 0xC5, sizeof r);
    r.struct_size = (uint32_t)GDN_THROUGH(gdn_route, guard);
    assert_int_equal(gdn_explain(p, 0, NULL, &r), GDN_OK);
    assert_int_equal(r.struct_size, GDN_THROUGH(gdn_route, guard));
    assert_non_null(r.entry);
    for (uint64_t i = GDN_THROUGH(gdn_route, guard); i < sizeof r; i++) assert_int_equal(((const uint8_t *)&r)[i], 0xC5);
    gdn_plan_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain_route_and_counters_agree),     cmocka_unit_test(refusals_are_counted_by_their_guard),
        cmocka_unit_test(failed_launches_are_not_counted),      cmocka_unit_test(routes_follow_the_counts),
        cmocka_unit_test(a_shorter_route_is_filled_no_further),
    };
    return cmocka_run_group_tests_name("routes", tests, target_setup, target_teardown);
}
