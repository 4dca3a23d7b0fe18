/* test_woa_fold.c - bit contracts of write-on-accept verify, fold and flag clear, and what they refuse. */
#include "rule_case.h"
#include <stdlib.h>
#include <string.h>

static void make(rule_case *c, uint32_t op, uint32_t batch, uint32_t addr, const int32_t *slots, const uint8_t *fresh) {
    const rc_spec s = { .op = op,
                        .nk = 2,
                        .nv = 6,
                        .dim = 128,
                        .batch = batch,
                        .rows = 4,
                        .addr = addr,
                        .slots = slots,
                        .fresh = fresh,
                        .hi = true,
                        .num_slots = 20,
                        .gb_pad = 3,
                        .v_pad = 5 };
    rc_make(c, &s);
    guard_poison(&c->pool);
    rng r = { 5 };
    num_fill(c->pool.p, GDN_F32, c->pool.bytes / 4, &r, -0.1, 0.1); /* the same states whatever the operation */
}

/* The same call as plain verify and as write-on-accept: inputs are drawn from the operation's own seed, so they are copied. */
static void make_both(rule_case *plain, rule_case *woa, uint32_t batch, uint32_t addr, const int32_t *slots, const uint8_t *fresh) {
    make(plain, GDN_OP_VERIFY, batch, addr, slots, fresh);
    make(woa, GDN_OP_VERIFY_WOA, batch, addr, slots, fresh);
    guard_put(&woa->q, plain->q.p);
    guard_put(&woa->k, plain->k.p);
    guard_put(&woa->v, plain->v.p);
    guard_put(&woa->gb, plain->gb.p);
}

static void deferred(rule_case *c, const uint32_t *na) {
    guard_put(&c->na, na);
    assert_int_equal(rc_launch_op(c, GDN_OP_FLAG_CLEAR, 0, c->s.batch), GDN_OK);
    assert_int_equal(*(const uint32_t *)(const void *)c->flag.p, 0);
    assert_int_equal(rc_launch(c), GDN_OK);
    assert_int_equal(*(const uint32_t *)(const void *)c->flag.p, 1);
}

static void woa_output_is_verify_output_and_fold_gives_its_states(void **state) {
    (void)state;
    static const int32_t slots[16] = { 3, 0, 7, 19, 2, 11, -1, 5, 6, 1, 8, 9, 10, 4, 12, 13 };
    static const uint8_t fresh[16] = { 0, 1 };
    static const uint32_t batches[] = { 1, 2, 4, 8, 16 };
    for (uint32_t i = 0; i < 10; i++) {
        const uint32_t batch = batches[i / 2], addr = i % 2 ? GDN_STATE_TABLE : GDN_STATE_POOL;
        rule_case plain, woa;
        make_both(&plain, &woa, batch, addr, slots, fresh);
        rc_before before = rc_remember(&woa);
        assert_int_equal(rc_launch(&plain), GDN_OK);
        for (uint32_t k = 0; k <= 5; k++) {
            uint32_t na[16];
            for (uint32_t b = 0; b < batch; b++) na[b] = k == 5 ? 9 : (k + b) % 5; /* above k_rows counts as k_rows */
            rc_put_back(&woa, &before);
            deferred(&woa, na);
            assert_memory_equal(plain.o.p, woa.o.p, plain.o.bytes);
            assert_memory_equal(before.pool.p, woa.pool.p, woa.pool.bytes);
            assert_int_equal(rc_launch_op(&woa, GDN_OP_FOLD, 0, batch), GDN_OK);
            assert_int_equal(*(const uint32_t *)(const void *)woa.flag.p, 1); /* fold does not clear it */
            guard want = guard_copy(&before.pool);
            for (uint32_t b = 0; b < batch; b++) {
                if (slots[b] < 0 || na[b] == 0) continue;
                const float *from = na[b] >= 4 ? rc_state(&plain, true, b) : rc_hi(&plain, b, na[b] - 1);
                memcpy(want.p + (uint64_t)slots[b] * woa.stride * 4, from, woa.state_elems * 4);
            }
            assert_memory_equal(want.p, woa.pool.p, want.bytes); /* the right ones, and no other slot */
            guard_free(&want);
        }
        assert_true(rc_canaries(&woa) && rc_canaries(&plain));
        rc_forget(&before);
        rc_free(&plain);
        rc_free(&woa);
    }
}

static void batched_launches_have_the_bytes_of_single_ones(void **state) {
    (void)state;
    static const int32_t slots[4] = { 3, 0, -1, 7 };
    static const uint32_t na[4] = { 4, 1, 2, 3 };
    rule_case c;
    make(&c, GDN_OP_VERIFY_WOA, 4, GDN_STATE_POOL, slots, NULL);
    rc_before before = rc_remember(&c);
    deferred(&c, na);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 4), GDN_OK);
    guard out = guard_copy(&c.o), stash = guard_copy(&c.stash), pool = guard_copy(&c.pool);
    rc_put_back(&c, &before);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 1), GDN_OK);
    for (uint32_t b = 0; b < 4; b++) {
        assert_int_equal(rc_launch_op(&c, GDN_OP_VERIFY_WOA, b, 1), GDN_OK);
        *(uint32_t *)(void *)c.flag.p = 1; /* a launch of padding alone may leave it */
        assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, b, 1), GDN_OK);
    }
    assert_memory_equal(out.p, c.o.p, out.bytes);
    assert_memory_equal(stash.p, c.stash.p, stash.bytes);
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    guard_free(&out);
    guard_free(&stash);
    guard_free(&pool);
    rc_forget(&before);
    rc_free(&c);
}

static void fold_that_is_not_engaged_copies_kept_states(void **state) {
    (void)state;
    static const int32_t slots[5] = { 3, 0, -1, 7, 5 };
    static const uint32_t na[5] = { 1, 4, 2, 0, 3 };
    for (uint32_t addr = GDN_STATE_POOL; addr <= GDN_STATE_TABLE; addr++) {
        rule_case c;
        make(&c, GDN_OP_VERIFY, 5, addr, slots, NULL);
        assert_int_equal(rc_launch(&c), GDN_OK);
        guard want = guard_copy(&c.pool);
        for (uint32_t b = 0; b < 5; b++) {
            if (slots[b] < 0 || na[b] == 0 || na[b] >= 4) continue;
            memcpy(want.p + (uint64_t)slots[b] * c.stride * 4, rc_hi(&c, b, na[b] - 1), c.state_elems * 4);
        }
        guard_put(&c.na, na);
        assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 5), GDN_OK);
        assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 5), GDN_OK);
        assert_memory_equal(want.p, c.pool.p, want.bytes);
        guard_free(&want);
        rc_free(&c);
    }
}

/* Without kept states a fold that would need them is an argument error, not a crash; na = 0 or all needs none. A GPU says so under
 * GDN_PLAN_CHECKED, and otherwise changes nothing. */
static void fold_that_is_not_engaged_without_kept_states(void **state) {
    (void)state;
    static const uint32_t na[] = { 0, 4 }, needs[] = { 0, 2 };
    const rc_spec s = { .op = GDN_OP_VERIFY, .nk = 2, .nv = 4, .dim = 128, .batch = 2, .rows = 4, .addr = GDN_STATE_POOL };
    rule_case c, checked;
    rc_make(&c, &s);
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
    guard pool = guard_copy(&c.pool);
    guard_put(&c.na, na);
    assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 2), GDN_OK);
    guard_put(&c.na, needs);
    target_log_clear();
    if (target_is_cpu()) {
        assert_true(rc_launch_op(&c, GDN_OP_FOLD, 0, 2) < 0);
        assert_true(target_logged("hi_tables"));
    } else {
        assert_int_equal(rc_launch_op(&c, GDN_OP_FOLD, 0, 2), GDN_OK);
        rc_spec more = s;
        more.flags = GDN_PLAN_CHECKED;
        rc_make(&checked, &more);
        assert_int_equal(rc_launch_op(&checked, GDN_OP_FLAG_CLEAR, 0, 2), GDN_OK);
        guard_put(&checked.na, needs);
        assert_true(rc_launch_op(&checked, GDN_OP_FOLD, 0, 2) < 0);
        assert_true(target_logged("hi_tables"));
        rc_free(&checked);
    }
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    guard_free(&pool);
    rc_free(&c);
}

/* The stash is documented: vn[4][nv][V] | g[4][nv], clamped | sk[4][nk][K]. */
static void the_stash_holds_what_the_header_says(void **state) {
    (void)state;
    rule_case c;
    static const uint32_t na[1] = { 0 };
    make(&c, GDN_OP_VERIFY_WOA, 1, GDN_STATE_POOL, NULL, NULL);
    *rc_gate(&c, 2, 1) = 0;
    deferred(&c, na);
    const float *g = (const float *)(const void *)c.stash.p + 4u * 6 * 128, *sk = g + 4 * 6;
    for (uint32_t t = 0; t < 4; t++) {
        for (uint32_t h = 0; h < 6; h++) assert_true(g[t * 6 + h] == (t == 2 && h == 1 ? 1e-6f : *rc_gate(&c, t, h)));
        for (uint32_t i = 0; i < 2 * 128; i++) assert_true((double)sk[t * 256 + i] == num_get(c.kp, c.s.act, t * c.qk_stride + i));
    }
    rc_free(&c);
}

static gdn_rule_shape woa_shape(void) {
    return (gdn_rule_shape) { .base = SHAPE_BASE(gdn_rule_shape, GDN_OP_VERIFY_WOA, target_act()),
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
}

static void woa_refusals_name_the_first_guard(void **state) {
    (void)state;
    gdn_rule_shape s = woa_shape();
    gdn_plan_free(plan_ok(&s));
    s.max_rows = 3;
    plan_fails(&s, GDN_REFUSED, "rows is not 4");
    s = woa_shape();
    s.state_type = GDN_F16;
    plan_fails(&s, GDN_REFUSED, "state is not f32");
    s = woa_shape();
    s.k_dim = s.v_dim = 64;
    plan_fails(&s, GDN_REFUSED, "k_dim or v_dim is not 128");
    s.max_rows = 5; /* rows come first */
    plan_fails(&s, GDN_REFUSED, "rows is not 4");
    s = woa_shape();
    s.stash_seqs = 0;
    plan_fails(&s, GDN_REFUSED, "no stash is bound");
    s = woa_shape();
    s.max_batch = 3;
    plan_fails(&s, GDN_REFUSED, "batch does not fit the stash");
}

static void woa_without_table_stash_or_flag(void **state) {
    (void)state;
    static const int32_t slots[2] = { 1, 4 };
    static const uint32_t at[] = { GDN_VERIFY_WOA_P_STATE, GDN_VERIFY_WOA_P_STASH, GDN_VERIFY_WOA_P_FLAG };
    rule_case c;
    make(&c, GDN_OP_VERIFY_WOA, 2, GDN_STATE_POOL, slots, NULL);
    assert_int_equal(rc_launch(&c), GDN_OK);
    guard_poison(&c.o);
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t ptr[] = { addr_of(c.pool.p),
                           addr_of(c.qp),
                           addr_of(c.kp),
                           addr_of(c.vp),
                           addr_of(c.gb.p),
                           addr_of(rc_beta(&c, 0, 0)),
                           addr_of(c.o.p),
                           addr_of(c.stash.p),
                           addr_of(c.flag.p),
                           addr_of(c.in_slots.p),
                           0,
                           0 };
        const uint32_t u32[] = { 4, 2 };
        ptr[at[i]] = 0;
        target_log_clear();
        assert_int_equal(launch(c.plan[GDN_OP_VERIFY_WOA], N_OF(ptr), ptr, 2, u32), GDN_E_ARG);
        if (!target_logged(GDN_WOA_NULL_TEXT)) fail_msg("log: %s", target_log_text());
        for (uint64_t b = 0; b < c.o.bytes; b++) assert_int_equal(c.o.p[b], 0xFF);
    }
    rc_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(woa_output_is_verify_output_and_fold_gives_its_states),
        cmocka_unit_test(batched_launches_have_the_bytes_of_single_ones),
        cmocka_unit_test(fold_that_is_not_engaged_copies_kept_states),
        cmocka_unit_test(fold_that_is_not_engaged_without_kept_states),
        cmocka_unit_test(the_stash_holds_what_the_header_says),
        cmocka_unit_test(woa_refusals_name_the_first_guard),
        cmocka_unit_test(woa_without_table_stash_or_flag),
    };
    return cmocka_run_group_tests_name("write on accept", tests, target_setup, target_teardown);
}
