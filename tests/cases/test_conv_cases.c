/* test_conv_cases.c - public reports about the convolution, each named by its id (conv1d and conv_fused), and the conv side
 * of reports about fresh sequences and accepted counts (B18, B56, B57). */
#include "conv_case.h"
#include <stdlib.h>
#include <string.h>

static void B87_no_state_at_all(void **state) {
    (void)state;
    const uint32_t len[] = { 1026, 3 };
    conv_spec s = { .channels = 37, .batch = 2, .len = len, .no_state = true, .no_slots = true };
    conv_run(&s);
    s = (conv_spec) { .nk = 1, .nv = 3, .dim = 64, .rows = 70, .no_state = true, .no_slots = true };
    conv_run(&s);
}

static void B89_pieces_shorter_than_the_window(void **state) {
    (void)state;
    conv_case c;
    conv_spec s = { .channels = 5, .rows = 1 };
    conv_make(&c, &s);
    guard old = guard_copy(&c.state);
    conv_check(&c);
    const uint32_t slot = (uint32_t)c.slot[0];
    for (uint32_t ch = 0; ch < 5; ch++) { /* [s1, s2, x0] */
        assert_true(num_get(c.state.p, GDN_F32, conv_at(&c, slot, ch, 0)) == num_get(old.p, GDN_F32, conv_at(&c, slot, ch, 1)));
        assert_true(num_get(c.state.p, GDN_F32, conv_at(&c, slot, ch, 1)) == num_get(old.p, GDN_F32, conv_at(&c, slot, ch, 2)));
        assert_true(num_get(c.state.p, GDN_F32, conv_at(&c, slot, ch, 2)) == conv_x(&c, 0, ch));
    }
    guard_free(&old);
    conv_free(&c);
    for (uint32_t T = 1; T < 9; T++) {
        s.rows = T;
        conv_run(&s);
    }
}

static void B90_states_wider_than_the_window(void **state) {
    (void)state;
    static const int32_t accepted[] = { 0, 3, 1 };
    static const uint32_t len[] = { 2, 1, 0 };
    for (uint32_t keep = 0; keep < 2; keep++) {
        conv_spec s = { .channels = 7, .extra = 3, .batch = 3, .len = len, .keep = keep };
        conv_run(&s);
        s.accepted = accepted;
        conv_run(&s);
        s.act = GDN_BF16;
        conv_run(&s);
    }
    /* Six distinct values: the window of a call without accepted counts is columns 0..2. */
    conv_spec s = { .channels = 1, .extra = 3, .rows = 1, .no_silu = true, .no_slots = true };
    conv_case c;
    conv_make(&c, &s);
    for (uint32_t j = 0; j < 6; j++) num_put(c.state.p, GDN_F32, j, j + 1);
    for (uint32_t j = 0; j < 4; j++) num_put(c.weight.p, GDN_F32, j, j < 3);
    conv_check(&c);
    assert_true(conv_out(&c, 0, 0) == 1 + 2 + 3);
    for (uint32_t j = 3; j < 6; j++) assert_true(num_get(c.state.p, GDN_F32, j) == j + 1);
    conv_free(&c);
}

static void B91_widths(void **state) {
    (void)state;
    static const uint32_t W[] = { 1, 2, 3, 4, 5, 8 };
    static const uint32_t len[] = { 1, 20, 2 };
    for (uint32_t i = 0; i < N_OF(W); i++) {
        conv_spec s = { .channels = 35, .width = W[i], .batch = 3, .len = len, .bias = i % 2 };
        if (W[i] == 1) s.no_state = s.no_slots = true; /* there is no history */
        conv_run(&s);
        s = (conv_spec) { .nk = 1, .nv = 2, .dim = 64, .width = W[i], .rows = 9, .no_state = s.no_state, .no_slots = s.no_slots };
        conv_run(&s);
    }
    gdn_conv_shape bad = { .base = SHAPE_BASE(gdn_conv_shape, GDN_OP_CONV1D, GDN_F32),
                           .channels = 8,
                           .width = 9,
                           .weight_type = GDN_F32,
                           .max_tokens = 4,
                           .max_batch = 1 };
    plan_fails(&bad, GDN_E_ARG, "width");
    bad.width = 0;
    plan_fails(&bad, GDN_E_ARG, "width");
}

static void B92_order_of_the_taps(void **state) {
    (void)state;
    conv_spec s = { .channels = 3, .rows = 8, .no_silu = true, .no_state = true, .no_slots = true };
    conv_case c;
    conv_make(&c, &s);
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t j = 0; j < 4; j++) num_put(c.weight.p, GDN_F32, ch * 4 + j, j == 0);
        for (uint32_t t = 0; t < 8; t++) num_put(c.x.p, GDN_F32, t * 3 + ch, t + 1.0);
    }
    conv_check(&c);
    for (uint32_t t = 0; t < 8; t++) assert_true(conv_out(&c, t, 1) == (t < 3 ? 0 : t - 2.0)); /* delayed by 3 */
    conv_free(&c);
}

static void B95_odd_row_pitches(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        conv_spec s = { .channels = 2064,
                        .rows = 5,
                        .x_pad = i ? 2 * i - 1 : 4,
                        .out_pad = i,
                        .slot_pad = i,
                        .act = i & 1 ? GDN_BF16 : GDN_F32,
                        .weight_type = i & 2 ? GDN_BF16 : GDN_F32 };
        conv_run(&s);
        s = (conv_spec) { .nk = 2, .nv = 6, .dim = 64, .rows = 5, .x_pad = 3, .out_pad = i, .act = i & 1 ? GDN_BF16 : GDN_F32 };
        conv_run(&s);
    }
}

static void B96_padding_rows(void **state) {
    (void)state;
    static const int32_t idx[] = { 2, -1, 5 };
    static const uint8_t fresh[] = { 0, 1, 0 };
    for (uint32_t i = 0; i < 8; i++) {
        conv_spec s = { .channels = 21, .batch = 3, .rows = i & 1 ? 4 : 1, .slots = idx, .num_slots = 6, .keep = i & 2, .extra = 4 };
        if (i & 4) {
            s.nk = 1;
            s.nv = 2;
            s.dim = 64;
        }
        conv_run(&s);
        s.fresh = fresh;
        conv_run(&s);
    }
}

static void B97_neighbours_in_a_pack(void **state) {
    (void)state;
    static const uint32_t len[] = { 3, 7 };
    static const uint8_t fresh[] = { 0, 1 };
    conv_spec s = { .channels = 9, .batch = 2, .len = len, .fresh = fresh, .no_silu = true };
    conv_case c;
    conv_make(&c, &s);
    for (uint32_t i = 0; i < 3 * 9; i++) num_put(c.x.p, GDN_F32, i, 1e6 + i);
    conv_check(&c);
    for (uint32_t ch = 0; ch < 9; ch++) { /* token 3 sees only zeros before it */
        const double want = num_get(c.weight.p, GDN_F32, ch * 4 + 3) * conv_x(&c, 3, ch), got = conv_out(&c, 3, ch);
        assert_true(got - want < 1e-6 && want - got < 1e-6);
    }
    conv_free(&c);
}

static void B18_slot_of_the_previous_tenant(void **state) {
    (void)state;
    static const uint32_t len[] = { 2, 9, 0 };
    static const uint8_t fresh[] = { 1, 0, 1 };
    conv_spec s = { .channels = 9, .batch = 3, .len = len, .fresh = fresh, .extra = 2 };
    conv_case c;
    conv_make(&c, &s);
    for (uint32_t b = 0; b < 3; b += 2) memset(c.state.p + (uint64_t)c.slot[b] * c.slot_stride * 4, 0xFF, c.slot_stride * 4);
    conv_check(&c);
    conv_free(&c);
}

/* Update by update, the state is the reference's at every step. */
static void B99_a_thousand_updates(void **state) {
    (void)state;
    static const int32_t slots[] = { 8, 3, 1, 0, 9, 2, 7, 5 };
    conv_spec s = { .nk = 2, .nv = 4, .dim = 64, .batch = 8, .rows = 1, .slots = slots, .num_slots = 11 };
    conv_case prev = { 0 };
    for (uint32_t step = 0; step < (TEST_LIGHT ? 50 : 1000); step++) {
        conv_case c;
        s.seed = step + 1;
        conv_make(&c, &s);
        if (step) guard_put(&c.state, prev.state.p);
        conv_expect e = conv_expect_of(&c);
        assert_int_equal(conv_launch(&c, 0, 8), GDN_OK);
        assert_memory_equal(e.state.p, c.state.p, e.state.bytes);
        conv_expect_free(&e);
        if (step) conv_free(&prev);
        prev = c;
    }
    conv_free(&prev);
}

static void B100_draft_rows_beside_plain_rows(void **state) {
    (void)state;
    static const uint32_t len[] = { 1, 4, 70, 2 };
    for (uint32_t offsets = GDN_OFFSETS_I32; offsets <= GDN_OFFSETS_I64; offsets++) {
        conv_spec s = { .channels = 130, .batch = 4, .len = len, .row0 = 3, .tail = 2, .offsets = offsets, .bias = true };
        conv_run(&s);
        s = (conv_spec) { .nk = 2, .nv = 4, .dim = 128, .batch = 4, .len = len, .row0 = 3, .tail = 2, .offsets = offsets, .act = GDN_BF16 };
        conv_run(&s);
    }
}

/* Accepting na rows of a verify is an offset: the next launch continues as if only they had been there. */
static void B56_B57_accepted_rows_are_an_offset(void **state) {
    (void)state;
    for (int32_t na = 0; na <= 4; na++) {
        const int32_t accepted[] = { na };
        conv_case draft, next, plain;
        conv_spec s = { .channels = 11, .rows = 4, .extra = 4, .keep = true, .no_slots = true };
        conv_make(&draft, &s);
        conv_make(&plain, &s);
        conv_check(&draft);
        s.accepted = accepted;
        s.seed = 77;
        conv_make(&next, &s);
        guard_put(&next.state, draft.state.p);
        conv_check(&next); /* reads its window at na */
        /* The same x in one uninterrupted plain call of na + 4 tokens from the first state. */
        conv_spec joined = s;
        joined.accepted = NULL;
        joined.keep = false;
        joined.rows = (uint32_t)na + 4;
        conv_case one;
        conv_make(&one, &joined);
        guard_put(&one.state, plain.state.p);
        guard_put(&one.weight, next.weight.p);
        for (uint32_t t = 0; t < joined.rows; t++) {
            const conv_case *from = t < (uint32_t)na ? &draft : &next;
            for (uint32_t ch = 0; ch < 11; ch++)
                num_put(one.x.p, GDN_F32, t * 11 + ch, conv_x(from, t < (uint32_t)na ? t : t - (uint32_t)na, ch));
        }
        conv_check(&one);
        for (uint32_t t = 0; t < 4; t++) {
            for (uint32_t ch = 0; ch < 11; ch++) assert_true(conv_out(&one, (uint32_t)na + t, ch) == conv_out(&next, t, ch));
        }
        conv_free(&one);
        conv_free(&next);
        conv_free(&plain);
        conv_free(&draft);
    }
}

static void too_many_rows_to_keep_are_refused(void **state) {
    (void)state;
    conv_spec s = { .channels = 11, .rows = 5, .extra = 4, .keep = true, .no_slots = true };
    conv_case c;
    conv_make(&c, &s);
    guard old = guard_copy(&c.state);
    target_log_clear();
    assert_true(conv_launch(&c, 0, 1) < 0);
    assert_true(target_logged("4") && target_logged("5"));
    assert_memory_equal(old.p, c.state.p, old.bytes);
    guard_free(&old);
    conv_free(&c);
}

static void control_spoilt_results_are_noticed(void **state) {
    (void)state;
    static const int32_t idx[] = { 2, -1, 4 };
    conv_spec s = { .channels = 21, .batch = 3, .rows = 2, .slots = idx, .num_slots = 6, .out_pad = 3, .extra = 2 };
    conv_case c;
    conv_make(&c, &s);
    conv_expect e = conv_expect_of(&c);
    char why[256];
    assert_int_equal(conv_launch(&c, 0, 3), GDN_OK);
    assert_true(conv_matches(&c, &e, why, sizeof why));
    uint8_t *spoil[] = { c.out[0].p + 3, c.out[0].p + 2 * c.out_stride * 4ull + 7, c.state.p + c.state.bytes - 1, c.out[0].p + 21 * 4 + 1,
                         c.state.p + conv_at(&c, 2, 3, 4) * 4 };
    for (uint32_t i = 0; i < N_OF(spoil); i++) {
        *spoil[i] ^= 0x41; /* an output, a padding row, an unused slot, between rows, an extra column */
        assert_false(conv_matches(&c, &e, why, sizeof why));
        *spoil[i] ^= 0x41;
    }
    assert_true(conv_matches(&c, &e, why, sizeof why));
    conv_expect_free(&e);
    conv_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B87_no_state_at_all),
        cmocka_unit_test(B89_pieces_shorter_than_the_window),
        cmocka_unit_test(B90_states_wider_than_the_window),
        cmocka_unit_test(B91_widths),
        cmocka_unit_test(B92_order_of_the_taps),
        cmocka_unit_test(B95_odd_row_pitches),
        cmocka_unit_test(B96_padding_rows),
        cmocka_unit_test(B97_neighbours_in_a_pack),
        cmocka_unit_test(B18_slot_of_the_previous_tenant),
        cmocka_unit_test(B99_a_thousand_updates),
        cmocka_unit_test(B100_draft_rows_beside_plain_rows),
        cmocka_unit_test(B56_B57_accepted_rows_are_an_offset),
        cmocka_unit_test(too_many_rows_to_keep_are_refused),
        cmocka_unit_test(control_spoilt_results_are_noticed),
    };
    return cmocka_run_group_tests_name("conv cases", tests, target_setup, target_teardown);
}
