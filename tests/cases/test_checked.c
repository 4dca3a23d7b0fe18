/* test_checked.c - what is validated before anything is written: offsets and accepted counts always on the cpu target; slots, collisions
 * and gate ranges (on a GPU everything) under GDN_PLAN_CHECKED (B16 and B54 have rows of their own); alignment of pointers. The log line
 * names the value, and outputs and states keep their bytes. */
#include "conv_case.h"
#include "rule_case.h"
#include <stdio.h>
#include <string.h>

static bool all_ff(const guard *g) {
    for (uint64_t i = 0; i < g->bytes; i++) {
        if (g->p[i] != 0xFF) return false;
    }
    return true;
}

/* The launch is declined with `status`, the line holds `part`, nothing was written. */
static void declined(rule_case *c, gdn_status status, const char *part) {
    guard pool = guard_copy(&c->pool);
    guard_poison(&c->o);
    target_log_clear();
    const gdn_status st = rc_launch(c);
    if (st != status || !target_logged(part))
        fail_msg("%s, expected %s naming %s; log: %s", gdn_status_name(st), gdn_status_name(status), part, target_log_text());
    assert_true(all_ff(&c->o));
    assert_memory_equal(pool.p, c->pool.p, pool.bytes);
    guard_free(&pool);
}

static void offsets_that_run_backwards_or_too_far(void **state) {
    (void)state;
    static const uint32_t len[] = { 3, 5, 2 };
    static const struct {
        uint32_t at;
        int64_t value;
        const char *part;
    } row[] = { { 2, 2, "cu_" }, { 0, -1, "-1" }, { 3, 900, "cu_" }, { 1, -7, "-7" } };
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 4 * N_OF(row); i++) {
        rc_spec s = { .op = ops[i & 1], .nk = 1, .nv = 2, .dim = 64, .batch = 3, .len = len, .addr = GDN_STATE_POOL };
        s.offsets = i & 2 ? GDN_OFFSETS_I64 : GDN_OFFSETS_I32;
        s.flags = target_is_cpu() ? 0 : GDN_PLAN_CHECKED; /* cpu looks at them unasked */
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c);
        if (i & 2) {
            ((int64_t *)(void *)c.cu.p)[row[i / 4].at] = row[i / 4].value;
        } else {
            ((int32_t *)(void *)c.cu.p)[row[i / 4].at] = (int32_t)row[i / 4].value;
        }
        const bool too_many = row[i / 4].value == 900; /* it is said of the sequence */
        declined(&c, GDN_E_CHECKED, too_many ? "sequence 2" : row[i / 4].part);
        rc_free(&c);
    }
}

static void two_sequences_of_one_state(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    static const int32_t good[] = { 1, 2, -1, 4 }, twice[] = { 1, 2, -1, 1 }, pads[] = { 1, -1, -1, -1 }, chain_in[] = { 0, 1, 2, 3 },
                         chain_out[] = { 4, 5, 3, 6 };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec s = { .op = ops[i],
                      .nk = 1,
                      .nv = 2,
                      .dim = 64,
                      .batch = 4,
                      .rows = 2,
                      .slots = good,
                      .num_slots = 7,
                      .addr = GDN_STATE_POOL,
                      .flags = GDN_PLAN_CHECKED };
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c);
        guard_put(&c.in_slots, twice);
        declined(&c, GDN_E_CHECKED, "slot");
        rc_free(&c);
        s.slots = pads; /* any number of padding rows is fine */
        rc_run(&s);
        s.slots = chain_in; /* sequence 3 reads what sequence 2 writes */
        s.out_slots = chain_in;
        rc_make(&c, &s);
        rc_check(&c);
        guard_put(&c.out_slots, chain_out);
        declined(&c, GDN_E_CHECKED, "slot");
        rc_free(&c);
    }
}

/* Padding by one of its slots, a row's other slot may be anything; a real row's may not. */
static void the_other_slot_of_padding(void **state) {
    (void)state;
    static const int32_t in[] = { 1, -1, 0 }, out[] = { 2, 1, 0 }, far_out[] = { 2, 9, 0 }, far_in[] = { 1, 9, 0 }, less[] = { 2, -1, 0 };
    rc_spec s = { .op = GDN_OP_DECODE,
                  .nk = 1,
                  .nv = 2,
                  .dim = 64,
                  .batch = 3,
                  .slots = in,
                  .out_slots = out,
                  .num_slots = 3,
                  .addr = GDN_STATE_POOL,
                  .flags = GDN_PLAN_CHECKED };
    rule_case c;
    rc_make(&c, &s);
    guard_put(&c.out_slots, far_out);
    rc_check(&c);
    guard_put(&c.in_slots, far_in);
    declined(&c, GDN_E_CHECKED, "slot 9, but the pool has 3");
    guard_put(&c.out_slots, less);
    rc_check(&c);
    rc_free(&c);
}

/* Padding rows may hold any gate. */
static void gates_of_padding_rows_are_not_looked_at(void **state) {
    (void)state;
    static const int32_t slots[] = { 1, -1 };
    for (uint32_t i = 0; i < 2; i++) {
        rc_spec s = { .op = i ? GDN_OP_PREFILL : GDN_OP_DECODE,
                      .nk = 1,
                      .nv = 2,
                      .dim = 64,
                      .batch = 2,
                      .rows = 2,
                      .slots = slots,
                      .addr = GDN_STATE_POOL,
                      .flags = GDN_PLAN_CHECKED };
        rule_case c;
        rc_make(&c, &s);
        *rc_gate(&c, c.start[1], 0) = 5;
        rc_check(&c);
        *rc_gate(&c, 0, 1) = 5;
        declined(&c, GDN_E_CHECKED, "5");
        rc_free(&c);
    }
}

static void pointers_that_are_not_aligned(void **state) {
    (void)state;
    const rc_spec s = { .op = GDN_OP_DECODE, .nk = 1, .nv = 2, .dim = 64, .batch = 1, .addr = GDN_STATE_POOL };
    static const char *const name[] = { "h_state", "query", "key", "value", "gate", "beta", "output" };
    rule_case c;
    rc_make(&c, &s);
    rc_check(&c);
    guard pool = guard_copy(&c.pool);
    guard_poison(&c.o);
    for (uint32_t i = 0; i < N_OF(name); i++) {
        if (!target_is_cpu() && strstr("query key value output", name[i])) continue; /* bf16: 2 bytes off is aligned */
        uint64_t ptr[] = { addr_of(c.pool.p),
                           addr_of(c.qp),
                           addr_of(c.kp),
                           addr_of(c.vp),
                           addr_of(c.gb.p),
                           addr_of(rc_beta(&c, 0, 0)),
                           addr_of(c.o.p),
                           0,
                           addr_of(c.in_slots.p),
                           0,
                           0,
                           0 };
        const uint32_t one = 1;
        ptr[i] -= 2;
        target_log_clear();
        assert_int_equal(launch(c.plan[GDN_OP_DECODE], N_OF(ptr), ptr, 1, &one), GDN_E_ARG);
        if (!target_logged(name[i]) || !target_logged("aligned")) fail_msg("log: %s", target_log_text());
    }
    assert_true(all_ff(&c.o));
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    guard_free(&pool);
    rc_free(&c);
}

/* A list that is needed and missing is named by the operation; nothing looks into it first. */
static void missing_lists_of_a_checked_plan(void **state) {
    (void)state;
    static const int32_t slots[] = { 2, 0, 1 };
    const rc_spec s = { .op = GDN_OP_DECODE,
                        .nk = 1,
                        .nv = 2,
                        .dim = 64,
                        .batch = 3,
                        .slots = slots,
                        .num_slots = 3,
                        .addr = GDN_STATE_POOL,
                        .flags = GDN_PLAN_CHECKED };
    rule_case c;
    rc_make(&c, &s);
    rc_check(&c);
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
                             0,
                             0 };
    const uint32_t three = 3;
    target_log_clear();
    assert_int_equal(launch(c.plan[GDN_OP_DECODE], N_OF(ptr), ptr, 1, &three), GDN_E_ARG);
    if (!target_logged("in_tab")) fail_msg("log: %s", target_log_text());
    rc_free(&c);
}

/* seq_len of a packed batch is the longest sequence's, or more: a smaller one would cut it. */
static void packed_batches_with_a_seq_len_below_the_longest(void **state) {
    (void)state;
    static const uint32_t len[] = { 30, 90 };
    for (uint32_t i = 0; i < 2; i++) {
        rc_spec s = { .op = GDN_OP_PREFILL, .nk = 1, .nv = 2, .dim = i ? 128 : 64, .batch = 2, .len = len, .addr = GDN_STATE_POOL };
        s.flags = GDN_PLAN_CHECKED;
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c);
        target_log_clear();
        c.start[2]--; /* what rc_launch takes for the longest; cu_seqlens keeps its 90 */
        assert_int_equal(rc_launch(&c), GDN_E_CHECKED);
        if (!target_logged("sequence 1 has 90 rows, above 89")) fail_msg("log: %s", target_log_text());
        c.start[2]++;
        assert_int_equal(rc_launch(&c), GDN_OK);
        rc_free(&c);
    }
}

static void conv_slots_offsets_and_accepted_counts(void **state) {
    (void)state;
    static const uint32_t len[] = { 2, 3 };
    static const int32_t accepted[] = { 0, 2 }, over[] = { 0, 3 }, below[] = { -1, 0 }, far[] = { 1, 26 };
    for (uint32_t i = 0; i < 8; i++) {
        conv_spec s = { .act = target_act(),
                        .channels = 9,
                        .batch = 2,
                        .len = len,
                        .extra = 2,
                        .accepted = accepted,
                        .num_slots = 5,
                        .flags = GDN_PLAN_CHECKED };
        if (i & 1) {
            s.nk = 1;
            s.nv = 2;
            s.dim = 64;
        }
        conv_case c;
        conv_make(&c, &s);
        conv_check(&c);
        const char *part = "accepted";
        switch (i / 2) {
        case 0: guard_put(&c.accepted, over); break;
        case 1: guard_put(&c.accepted, below); break;
        case 2:
            guard_put(&c.slots, far);
            part = "26";
            break;
        default: ((int32_t *)(void *)c.cu.p)[2] = 1; part = "cu_seqlens";
        }
        guard old = guard_copy(&c.state);
        conv_poison(&c);
        target_log_clear();
        assert_int_equal(conv_launch(&c, 0, 2), GDN_E_CHECKED);
        if (!target_logged(part)) fail_msg("log: %s", target_log_text());
        for (uint32_t k = 0; k < 3; k++) assert_true(all_ff(&c.out[k]));
        assert_memory_equal(old.p, c.state.p, old.bytes);
        guard_free(&old);
        conv_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_that_run_backwards_or_too_far),
        cmocka_unit_test(two_sequences_of_one_state),
        cmocka_unit_test(the_other_slot_of_padding),
        cmocka_unit_test(gates_of_padding_rows_are_not_looked_at),
        cmocka_unit_test(pointers_that_are_not_aligned),
        cmocka_unit_test(conv_slots_offsets_and_accepted_counts),
        cmocka_unit_test(missing_lists_of_a_checked_plan),
        cmocka_unit_test(packed_batches_with_a_seq_len_below_the_longest),
    };
    return cmocka_run_group_tests_name("checked", tests, target_setup, target_teardown);
}
