/* test_by_sequence_args.c - what plans and launches by sequence (GDN_VERIFY_BY_SEQUENCE) refuse, by name; nothing is written. */
#include "guard.h"
#include "target.h"
#include <string.h>

static gdn_rule_shape rule(uint32_t op) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, GDN_VERIFY_BY_SEQUENCE, target_act() },
                              .nk = 1,
                              .nv = 2,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_addr = GDN_STATE_POOL,
                              .state_type = GDN_F32,
                              .max_batch = 2,
                              .max_rows = 4,
                              .stash_seqs = 3 };
}

static void shapes(void **state) {
    (void)state;
    gdn_rule_shape s = rule(GDN_OP_VERIFY);
    s.stash_seqs = 1;
    plan_fails(&s, GDN_E_ARG, "stash_seqs is 1, below max_batch");
    s = rule(GDN_OP_FOLD);
    s.stash_seqs = 0;
    plan_fails(&s, GDN_E_ARG, "stash_seqs is 0, below max_batch");
    s = rule(GDN_OP_VERIFY);
    s.hi_capacity = 3;
    plan_fails(&s, GDN_E_ARG, "hi_capacity is 3, below max_rows, 4");
    s = rule(GDN_OP_VERIFY);
    s.state_addr = GDN_STATE_TABLE;
    s.slab_entries = 2;
    plan_fails(&s, GDN_E_ARG, "slab_entries is 2, below stash_seqs, 3");
    s = rule(GDN_OP_FOLD);
    s.offsets = GDN_OFFSETS_I32;
    plan_fails(&s, GDN_E_ARG, "takes no offsets with GDN_VERIFY_BY_SEQUENCE");
    s = rule(GDN_OP_DECODE);
    plan_fails(&s, GDN_E_ARG, "flags");
}

static void write_on_accept_keeps_its_guards(void **state) {
    (void)state;
    gdn_rule_shape s = rule(GDN_OP_VERIFY_WOA);
    s.stash_seqs = 1;
    plan_fails(&s, GDN_REFUSED, "batch does not fit the stash");
    s.stash_seqs = 0;
    plan_fails(&s, GDN_REFUSED, "no stash is bound");
    s = rule(GDN_OP_VERIFY_WOA);
    s.max_rows = 3;
    plan_fails(&s, GDN_REFUSED, "rows is not 4");
    s.offsets = GDN_OFFSETS_I32; /* sequences of their own rows */
    gdn_hplan *const p = plan_ok(&s);
    const uint32_t none[] = { 0, 2 };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(gdn_explain(p, 2, none, &r), GDN_REFUSED);
    assert_string_equal(r.guard, "rows is not 1 to 4");
    gdn_plan_free(p);
    s.max_rows = 5;
    plan_fails(&s, GDN_REFUSED, "rows is not 1 to 4");
    s.max_rows = 3;
    s.base.flags = 0;
    plan_fails(&s, GDN_E_ARG, "takes no offsets without GDN_VERIFY_BY_SEQUENCE");
}

/* Each launch gets one thing wrong. */
static void pointers(void **state) {
    (void)state;
    static uint64_t room[1024];
    const uint64_t a = addr_of(room), full[GDN_VERIFY_N_PTR] = { a, a, a, a, a, a, a, a, 0, 0, a, 0, 0, 0, 0, a };
    static const struct {
        uint32_t at;
        bool given;
        const char *name;
    } wrong[] = { { GDN_VERIFY_P_RECORD, false, "'record' is NULL" },
                  { GDN_VERIFY_P_HI, false, "'hi' is NULL" },
                  { GDN_VERIFY_P_STATE_OUT, true, "'h_out' is given" },
                  { GDN_VERIFY_P_OUT_SLOTS, true, "'out_tab' is given" } };
    const uint32_t u32[] = { 4, 2 }, three = 3;
    const gdn_rule_shape s = rule(GDN_OP_VERIFY);
    gdn_hplan *p = plan_ok(&s);
    for (uint32_t i = 0; i < N_OF(wrong); i++) {
        uint64_t ptr[GDN_VERIFY_N_PTR];
        memcpy(ptr, full, sizeof ptr);
        ptr[wrong[i].at] = wrong[i].given ? a : 0;
        target_log_clear();
        assert_int_equal(launch(p, GDN_VERIFY_N_PTR, ptr, 2, u32), GDN_E_ARG);
        if (!target_logged(wrong[i].name)) fail_msg("%s: %s", wrong[i].name, target_log_text());
    }
    gdn_plan_free(p);
    const gdn_flag_shape one = { { (uint32_t)sizeof one, GDN_OP_FLAG_CLEAR, 0, 0 } };
    p = plan_ok(&one);
    target_log_clear();
    assert_int_equal(launch(p, 1, full, 1, &three), GDN_E_ARG);
    assert_true(target_logged("'count' is 3"));
    gdn_plan_free(p);
    const gdn_flag_shape some = { { (uint32_t)sizeof some, GDN_OP_FLAG_CLEAR, GDN_VERIFY_BY_SEQUENCE, 0 } };
    p = plan_ok(&some);
    assert_int_equal(launch(p, 1, full, 0, NULL), GDN_E_ARG);
    assert_true(target_logged("'count' is missing"));
    gdn_plan_free(p);
    for (uint32_t i = 0; i < N_OF(room); i++) assert_true(room[i] == 0);
}

/* What lies in memory: numbers, and on the cpu target, which looks at them unasked, records and missing places. */
static void values(void **state) {
    (void)state;
    static const struct {
        int32_t id;
        uint32_t word, flags;
        const char *name;
    } wrong[] = { { 3, 0, 0, "seq_ids[1] is 3, expected 0 to stash_seqs - 1, 2" },
                  { -1, 0, 0, "seq_ids[1] is -1" },
                  { 1, 0x3, 0, "the record of sequence 1 is 0x3" },
                  { 1, GDN_RECORD_DEFERRED | 5, 0, "the record of sequence 1 is 0x205" },
                  { 1, GDN_RECORD_DEFERRED | 4, 0, "'stash' is NULL, but sequence 1" },
                  { 1, GDN_RECORD_KEPT | 4, 0, "'hi_tables' is NULL, but sequence 1" },
                  { 0, 0, GDN_PLAN_CHECKED, "sequences 0 and 1 have the same seq_ids, 0" } };
    static const int32_t zeros[3] = { 0 }, both[2] = { 0, 1 }, ones[2] = { 1, 1 };
    guard pool = guard_alloc(2 * 2 * 128 * 128 * sizeof(float)), ids = guard_of(zeros, 8), slots = guard_of(both, 8),
          na = guard_of(ones, 8), record = guard_of(zeros, 12);
    memset(pool.p, 0, pool.bytes);
    const uint64_t ptr[] = { addr_of(pool.p), 0, addr_of(na.p), 0, addr_of(record.p), addr_of(slots.p), 0, 0, addr_of(ids.p) };
    const uint32_t u32[] = { 4, 2 };
    for (uint32_t i = 0; i < N_OF(wrong); i++) {
        gdn_rule_shape s = rule(GDN_OP_FOLD);
        s.base.flags |= target_is_cpu() ? wrong[i].flags : (uint32_t)GDN_PLAN_CHECKED;
        gdn_hplan *const p = plan_ok(&s);
        ((int32_t *)(void *)ids.p)[1] = wrong[i].id;
        ((uint32_t *)(void *)record.p)[1] = wrong[i].word;
        target_log_clear();
        assert_true(launch(p, N_OF(ptr), ptr, 2, u32) < 0);
        if (!target_logged(wrong[i].name)) fail_msg("%s: %s", wrong[i].name, target_log_text());
        gdn_plan_free(p);
    }
    for (uint64_t i = 0; i < pool.bytes; i++) assert_true(pool.p[i] == 0);
    guard *const all[] = { &pool, &ids, &slots, &na, &record };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(write_on_accept_keeps_its_guards),
        cmocka_unit_test(pointers),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests_name("by sequence: arguments", tests, target_setup, target_teardown);
}
