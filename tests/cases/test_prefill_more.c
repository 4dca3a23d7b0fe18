/* test_prefill_more.c - public reports about prefill, B16 and later; see test_prefill_cases.c. */
#include "rule_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFILL(...) \
    { .op = GDN_OP_PREFILL, .addr = GDN_STATE_POOL, __VA_ARGS__ }

static bool untouched(const rule_case *c, const rc_before *b) {
    for (uint64_t i = 0; i < c->o.bytes; i++) {
        if (c->o.p[i] != 0xFF) return false;
    }
    return memcmp(c->pool.p, b->pool.p, c->pool.bytes) == 0;
}

static void B16_gate_of_the_other_space(void **state) {
    (void)state;
    static const struct {
        uint32_t form;
        float gate;
        const char *value, *space;
    } row[] = { { GDN_GATE_LINEAR, -0.05f, "-0.05", "[0, 1]" },
                { GDN_GATE_LINEAR, 1.6f, "1.6", "[0, 1]" },
                { GDN_GATE_LOG, 0.5f, "0.5", "<= 0" },
                { GDN_GATE_LINEAR, NAN, "nan", "[0, 1]" } };
    static const uint32_t len[] = { 30, 40 };
    for (uint32_t i = 0; i < N_OF(row); i++) {
        const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 64, .batch = 2, .len = len, .gate_form = row[i].form, .flags = GDN_PLAN_CHECKED);
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c); /* right gates pass the checks */
        *rc_gate(&c, 66, 3) = row[i].gate;
        guard_poison(&c.o);
        rc_before before = rc_remember(&c);
        target_log_clear();
        assert_int_equal(rc_launch(&c), GDN_E_CHECKED);
        if (!target_logged(row[i].value) || !target_logged(row[i].space) || !target_logged("gate")) fail_msg("log: %s", target_log_text());
        assert_true(untouched(&c, &before));
        rc_forget(&before);
        rc_free(&c);
    }
}

static void B17_padding_rows_before_the_first_token(void **state) {
    (void)state;
    static const uint32_t len[] = { 64 };
    const rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 128, .len = len, .row0 = 5);
    rc_run(&s);
    /* The same bytes as rows 5..68 alone. */
    rule_case a, b;
    rc_make(&a, &s);
    rc_make(&b, &s);
    for (uint32_t i = 0; i < 2; i++) ((int32_t *)(void *)b.cu.p)[i] -= 5;
    const uint64_t qk = 5ull * a.qk_stride * num_size(a.s.act), v = 5ull * a.v_stride * num_size(a.s.act), g = 5ull * a.gb_stride * 4,
                   o = 5 * rc_out_row_bytes(&a);
    memmove(b.q.p, b.q.p + qk, b.q.bytes - qk);
    memmove(b.k.p, b.k.p + qk, b.k.bytes - qk);
    memmove(b.v.p, b.v.p + v, b.v.bytes - v);
    memmove(b.gb.p, b.gb.p + g, b.gb.bytes - g);
    assert_int_equal(rc_launch(&a), GDN_OK);
    assert_int_equal(rc_launch(&b), GDN_OK);
    assert_memory_equal(a.o.p + o, b.o.p, a.o.bytes - o);
    assert_memory_equal(a.pool.p, b.pool.p, a.pool.bytes);
    rc_free(&a);
    rc_free(&b);
}

static void B18_state_of_the_previous_tenant(void **state) {
    (void)state;
    static const uint32_t len[] = { 67, 70 };
    static const uint8_t fresh[] = { 1, 0 };
    for (uint32_t addr = GDN_STATE_CONTIGUOUS; addr <= GDN_STATE_TABLE; addr++) {
        rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 128, .batch = 2, .len = len, .fresh = fresh);
        s.addr = addr;
        rule_case c;
        rc_make(&c, &s);
        memset(rc_state(&c, false, 0), 0xFF, c.state_elems * 4);
        rc_expect e = rc_expect_of(&c, NULL);
        rc_check_against(&c, &e);
        rc_then_decode(&c, &e);
        rc_expect_free(&e);
        rc_free(&c);
    }
}

static void B21_alone_and_packed_with_seven_others(void **state) {
    (void)state;
    static const uint32_t len[] = { 130, 5, 64, 1, 200, 63, 65, 77 };
    rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .batch = 8, .len = len);
    rc_run(&s);
    /* Fresh and an all-zero start state: the same bytes. */
    static const uint8_t fresh[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    rule_case a, b;
    rc_make(&a, &s);
    s.fresh = fresh;
    rc_make(&b, &s);
    memset(a.pool.p, 0, a.pool.bytes);
    memset(b.pool.p, 0xFF, b.pool.bytes);
    assert_int_equal(rc_launch(&a), GDN_OK);
    assert_int_equal(rc_launch(&b), GDN_OK);
    assert_memory_equal(a.o.p, b.o.p, a.o.bytes);
    for (uint32_t i = 0; i < 8; i++) assert_memory_equal(rc_state(&a, true, i), rc_state(&b, true, i), a.state_elems * 4);
    rc_free(&a);
    rc_free(&b);
}

static void B23_axes_of_different_sizes(void **state) {
    (void)state;
    rc_spec s = PREFILL(.nk = 8, .nv = 32, .dim = 64, .rows = 18);
    rc_run(&s);
    s.batch = 3;
    s.rows = 11;
    rc_run(&s);
}

static void B27_decay_of_exactly_0(void **state) {
    (void)state;
    static const uint32_t first[] = { 70, 70, 64, 0 }, count[] = { 1, 2, 64, 1 };
    for (uint32_t form = GDN_GATE_LINEAR; form <= GDN_GATE_LOG; form++) {
        for (uint32_t i = 0; i < N_OF(first); i++) {
            const rc_spec s = PREFILL(.nk = 1, .nv = 3, .dim = 128, .rows = 130, .gate_form = form);
            rule_case c;
            rc_make(&c, &s);
            for (uint32_t t = first[i]; t < first[i] + count[i]; t++) *rc_gate(&c, t, 1) = form == GDN_GATE_LOG ? -INFINITY : 0;
            rc_check(&c);
            rc_then_decode(&c, NULL);
            rc_free(&c);
        }
    }
}

static void B28_poisoned_workspace(void **state) {
    (void)state;
    static const uint32_t T[] = { 1, 5, 70 };
    for (uint32_t i = 0; i < N_OF(T); i++) {
        const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .rows = T[i]);
        rule_case c;
        rc_make(&c, &s);
        rc_before before = rc_remember(&c);
        rc_check(&c); /* on 0xFF bytes, then on its own leftovers */
        guard out = guard_copy(&c.o), pool = guard_copy(&c.pool);
        rc_put_back(&c, &before);
        if (c.ws.p) memset(c.ws.p, 0, c.ws.bytes);
        assert_int_equal(rc_launch(&c), GDN_OK);
        assert_memory_equal(out.p, c.o.p, out.bytes);
        assert_memory_equal(pool.p, c.pool.p, pool.bytes);
        guard_free(&out);
        guard_free(&pool);
        rc_forget(&before);
        rc_free(&c);
    }
}

/* Judged once in f64, then called again and again from zero states: every call gives the first one's bytes. */
static void called_again(const rc_spec *s, uint32_t calls) {
    rule_case c;
    rc_make(&c, s);
    memset(c.pool.p, 0, c.pool.bytes);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_check_against(&c, &e);
    guard out = guard_copy(&c.o), states = guard_copy(&c.pool);
    for (uint32_t i = 0; i < calls; i++) {
        memset(c.pool.p, 0, c.pool.bytes);
        assert_int_equal(rc_launch(&c), GDN_OK);
    }
    assert_memory_equal(c.o.p, out.p, out.bytes);
    assert_memory_equal(c.pool.p, states.p, states.bytes);
    guard_free(&states);
    guard_free(&out);
    rc_expect_free(&e);
    rc_free(&c);
}

/* A deadlock would run into the alarm, which ends the program. A hundred calls on few heads, some on all 48. */
static void B29_long_tailed_batch_returns(void **state) {
    (void)state;
    static const uint32_t len[] = { 1238, 1199, 1240, 1216, 1187, 1203, 519 }, light[] = { 138, 99, 140, 116, 87, 103, 51 };
    const rc_spec few = PREFILL(.nk = 1, .nv = 3, .dim = 128, .batch = 7, .len = target_is_light() ? light : len);
    const rc_spec many = PREFILL(.nk = target_is_cpu() ? 16 : 2, .nv = target_is_cpu() ? 48 : 6, .dim = target_is_light() ? 64 : 128,
                                 .batch = 7, .len = light);
    alarm(300);
    called_again(&few, target_is_light() ? 5 : 100);
    called_again(&many, target_is_light() ? 1 : 5);
    alarm(0);
}

static void B30_buffers_padded_to_a_bucket(void **state) {
    (void)state;
    static const uint32_t len[] = { 120, 80 };
    for (uint32_t offsets = GDN_OFFSETS_I32; offsets <= GDN_OFFSETS_I64; offsets++) {
        rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 64, .batch = 2, .len = len, .tail = 56, .offsets = offsets);
        rc_run(&s);
    }
}

static void B31_long_runs_with_slow_decay(void **state) {
    (void)state;
    static const uint32_t full[] = { 2048, 8192, 32768 }, some[] = { 256, 1024 };
    const bool light = target_is_light();
    for (uint32_t i = 0; i < (light ? N_OF(some) : N_OF(full)); i++) {
        rc_spec s = PREFILL(.nk = 1, .nv = 2, .dim = 128, .rows = light ? some[i] : full[i], .a_lo = 0.999, .a_hi = 1);
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c); /* the same bound at each length */
        rc_free(&c);
    }
}

static void B32_continued_from_state_A_into_state_B(void **state) {
    (void)state;
    const uint32_t half = target_is_light() ? 192 : 1792, len[] = { 2 * half };
    static const int32_t in[] = { 1 };
    rc_spec s = PREFILL(.nk = 1, .nv = 3, .dim = 128, .len = len, .slots = in);
    rule_case one, two;
    rc_make(&one, &s);
    rc_make(&two, &s);
    rc_check(&one);
    /* The second half reads slot 1 and writes slot 2. */
    int32_t *cu = (int32_t *)(void *)two.cu.p;
    cu[1] = (int32_t)half;
    assert_int_equal(rc_launch(&two), GDN_OK);
    guard a = guard_of(rc_state(&two, false, 0), two.state_elems * 4);
    cu[0] = (int32_t)half;
    cu[1] = 2 * (int32_t)half;
    two.out_slots = guard_alloc(4);
    *(int32_t *)(void *)two.out_slots.p = two.out[0] = 2;
    assert_int_equal(rc_launch(&two), GDN_OK);
    assert_memory_equal(one.o.p, two.o.p, one.o.bytes);
    assert_memory_equal(rc_state(&one, true, 0), rc_state(&two, true, 0), one.state_elems * 4);
    assert_memory_equal(a.p, rc_state(&two, false, 0), a.bytes);
    guard_free(&a);
    rc_free(&one);
    rc_free(&two);
}

/* Checkpoints every 64 tokens are the states that a run cut there leaves. */
static void checkpoints_are_the_states_of_cut_runs(void **state) {
    (void)state;
    static const uint32_t len[] = { 130, 63, 0, 192 };
    static const int32_t slots[] = { 4, 1, 2, 6 }, padded[] = { 4, 1, 2, -1 };
    for (uint32_t i = 0; i < 2; i++) {
        const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 64, .batch = 4, .len = len, .ckpt_every = 64, .slots = i ? padded : slots);
        rc_run(&s);
    }
}

/* The control of this group: what the checks above compare must be able to fail. */
static void control_spoilt_results_are_noticed(void **state) {
    (void)state;
    static const uint32_t len[] = { 70, 0, 65 };
    const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 64, .batch = 3, .len = len, .tail = 2);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_true(rc_matches(&c, &e, &before, why, sizeof why));
    uint8_t *spoil[] = { rc_out_row(&c, 71) + 3, (uint8_t *)rc_state(&c, true, 2) + 7, (uint8_t *)rc_state(&c, true, 1), c.pool.p,
                         rc_out_row(&c, 136) };
    for (uint32_t i = 0; i < N_OF(spoil); i++) {
        *spoil[i] ^= 0x41; /* an output, a state, the empty sequence's state, an unused slot, a row of no sequence */
        assert_false(rc_matches(&c, &e, &before, why, sizeof why));
        *spoil[i] ^= 0x41;
        assert_true(rc_matches(&c, &e, &before, why, sizeof why));
    }
    *rc_gate(&c, 3, 1) *= 0.99f; /* and an expectation made from other inputs */
    rc_put_back(&c, &before);
    rc_expect wrong = rc_expect_of(&c, NULL);
    *rc_gate(&c, 3, 1) /= 0.99f;
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_false(rc_matches(&c, &wrong, &before, why, sizeof why));
    rc_expect_free(&wrong);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B16_gate_of_the_other_space),
        cmocka_unit_test(B17_padding_rows_before_the_first_token),
        cmocka_unit_test(B18_state_of_the_previous_tenant),
        cmocka_unit_test(B21_alone_and_packed_with_seven_others),
        cmocka_unit_test(B23_axes_of_different_sizes),
        cmocka_unit_test(B27_decay_of_exactly_0),
        cmocka_unit_test(B28_poisoned_workspace),
        cmocka_unit_test(B29_long_tailed_batch_returns),
        cmocka_unit_test(B30_buffers_padded_to_a_bucket),
        cmocka_unit_test(B31_long_runs_with_slow_decay),
        cmocka_unit_test(B32_continued_from_state_A_into_state_B),
        cmocka_unit_test(checkpoints_are_the_states_of_cut_runs),
        cmocka_unit_test(control_spoilt_results_are_noticed),
    };
    return cmocka_run_group_tests_name("prefill cases, continued", tests, target_setup, target_teardown);
}
