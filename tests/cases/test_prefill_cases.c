/* test_prefill_cases.c - public reports about prefill, each named by its id, through the API against the f64 recurrence.
 *
 * rc_run() (tests/common/rule_case.h) also runs every sequence alone, twice on a dirty workspace, with canaries, and one
 * decode further. B24 (shared memory of a tile) has no meaning on host memory. */
#include "oracle.h"
#include "rule_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFILL(...) \
    { .op = GDN_OP_PREFILL, .addr = GDN_STATE_POOL, __VA_ARGS__ }

static void B01_empty_sequence_in_a_pack(void **state) {
    (void)state;
    static const uint32_t len[] = { 70, 0, 65 };
    for (uint32_t addr = GDN_STATE_CONTIGUOUS; addr <= GDN_STATE_TABLE; addr++) {
        rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 128, .batch = 3, .len = len);
        s.addr = addr;
        rc_run(&s);
        s.other_pool = true; /* the state of the empty one is copied */
        rc_run(&s);
    }
    const uint8_t fresh[] = { 0, 1, 0 };
    rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 64, .batch = 3, .len = len, .fresh = fresh); /* and zeroed */
    rule_case c;
    rc_make(&c, &s);
    rc_check(&c);
    for (uint64_t i = 0; i < c.state_elems; i++) assert_true(rc_state(&c, true, 1)[i] == 0.0f);
    rc_free(&c);
}

/* All strides are 8192 elements or a little more (the output row is nv*128 = 8192), so that row 262144 is element 2^31 and
 * row 524288 is 2^32: cu[0] puts 200 tokens across either. Only pages that a row lives on are ever touched. */
static void B03_offsets_past_2_to_the_31_and_32(void **state) {
    (void)state;
    static const uint32_t len[] = { 150, 50 }, first[] = { 262100, 524200 };
    for (uint32_t i = 0; i < 2; i++) {
        const rc_spec s = { .op = GDN_OP_PREFILL,
                            .addr = GDN_STATE_POOL,
                            .act = GDN_BF16,
                            .nk = 16,
                            .nv = 64,
                            .dim = 128,
                            .batch = 2,
                            .len = len,
                            .row0 = first[i],
                            .tail = 3,
                            .qk_pad = 6144,
                            .gb_pad = 8072,
                            .sparse = true };
        rule_case c;
        rc_make(&c, &s);
        rc_expect e = rc_expect_of(&c, NULL);
        rc_before before = rc_remember(&c);
        char why[256];
        assert_int_equal(rc_launch(&c), GDN_OK);
        if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
        /* A write 2^31 or 2^32 elements too low would land on these pages; they must still be zero. */
        const uint64_t *low = (const uint64_t *)(const void *)c.o.p, row = rc_out_row_bytes(&c);
        uint64_t any = 0;
        for (uint64_t k = 0; k < 300 * row / 8; k++) any |= low[k];
        assert_int_equal(any, 0);
        rc_forget(&before);
        rc_expect_free(&e);
        rc_free(&c);
    }
}

static void B04_many_short_sequences(void **state) {
    (void)state;
    enum { N = TEST_LIGHT ? 300 : 2048 };
    static uint32_t len[N];
    static int32_t slots[N]; /* one in eight is real, the others are padding: 128 MB of states are enough */
    for (uint32_t b = 0; b < N; b++) {
        len[b] = 1;
        slots[b] = b % 8 ? -1 : (int32_t)(b / 8 + 1);
    }
    const rc_spec s = PREFILL(.nk = 16, .nv = 32, .dim = 64, .batch = N, .len = len, .slots = slots, .num_slots = N / 8 + 2);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    char why[256];
    rc_before before = rc_remember(&c);
    assert_int_equal(rc_launch(&c), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    guard out = guard_copy(&c.o);
    rc_put_back(&c, &before);
    for (uint32_t b = 0; b < N; b += 96) { /* each row equals its run alone */
        assert_int_equal(rc_launch_op(&c, GDN_OP_PREFILL, b, 1), GDN_OK);
        assert_memory_equal(rc_out_row(&c, b), out.p + b * rc_out_row_bytes(&c), rc_out_row_bytes(&c));
    }
    guard_free(&out);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

static void B05_decay_of_exactly_1(void **state) {
    (void)state;
    for (uint32_t form = GDN_GATE_LINEAR; form <= GDN_GATE_LOG; form++) {
        rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .rows = 130, .gate_form = form, .a_lo = 1, .a_hi = 1);
        rule_case c;
        rc_make(&c, &s);
        assert_true(*rc_gate(&c, 0, 0) == (form == GDN_GATE_LOG ? 0.0f : 1.0f));
        rc_check(&c);
        rc_free(&c);
    }
}

static void B06_tiny_decay_for_every_token(void **state) {
    (void)state;
    for (uint32_t form = GDN_GATE_LINEAR; form <= GDN_GATE_LOG; form++) {
        const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .rows = 128, .gate_form = form);
        rule_case c;
        rc_make(&c, &s);
        for (uint32_t t = 0; t < 128; t++) {
            for (uint32_t h = 0; h < 3; h++) *rc_gate(&c, t, h) = form == GDN_GATE_LOG ? -27.6f : (float)exp(-27.6);
        }
        rc_check(&c);
        rc_then_decode(&c, NULL);
        rc_free(&c);
    }
}

static void B09_odd_tails_before_NaN_rows(void **state) {
    (void)state;
    static const uint32_t tails[] = { 1, 15, 16, 17, 33, 39, 63 };
    for (uint32_t i = 0; i < N_OF(tails); i++) {
        const uint32_t len[] = { 64 + tails[i] };
        const rc_spec s = PREFILL(.nk = 1, .nv = 3, .dim = 128, .len = len, .tail = 25);
        rc_run(&s);
    }
}

static void B11_sequences_with_very_different_gates(void **state) {
    (void)state;
    static const uint32_t len[] = { 70, 70 };
    const rc_spec s = PREFILL(.nk = 2, .nv = 6, .dim = 128, .batch = 2, .len = len, .a_lo = 0.97, .a_hi = 1, .b_lo = 0.9, .b_hi = 1);
    rule_case c;
    rc_make(&c, &s);
    for (uint32_t t = 70; t < 140; t++) {
        for (uint32_t h = 0; h < 6; h++) {
            *rc_gate(&c, t, h) *= 0.02f * (float)(h + 1);
            *rc_beta(&c, t, h) *= 0.1f;
        }
    }
    rc_before before = rc_remember(&c);
    rc_check_alone(&c);
    rc_put_back(&c, &before);
    rc_check(&c);
    rc_forget(&before);
    rc_free(&c);
}

static void B12_start_state_with_strong_decay(void **state) {
    (void)state;
    static const uint8_t fresh[] = { 1 };
    for (uint32_t T = 3; T <= 64; T += T < 20 ? 1 : 11) {
        rc_spec s = PREFILL(.nk = 1, .nv = 2, .dim = 128, .rows = T, .a_lo = 0.01, .a_hi = 1, .seed = T);
        rc_run(&s);
        s.fresh = fresh;
        rc_run(&s);
    }
}

static void B13_normalising_flag(void **state) {
    (void)state;
    rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .rows = 70, .flags = GDN_QK_L2NORM, .norm = 10);
    rule_case on, off;
    rc_make(&on, &s);
    s.flags = 0; /* the same seed: the same q and k, which are then normalised here */
    rc_make(&off, &s);
    assert_memory_equal(on.qp, off.qp, on.q.bytes);
    for (uint32_t r = 0; r < 70 * 2; r++) {
        double x[128];
        uint8_t *row[] = { off.qp, off.kp };
        for (uint32_t j = 0; j < 2; j++) {
            for (uint32_t i = 0; i < 128; i++) x[i] = num_get(row[j], on.s.act, r * 128 + i);
            oracle_l2norm(x, 128);
            for (uint32_t i = 0; i < 128; i++) num_put(row[j], on.s.act, r * 128 + i, x[i]);
        }
    }
    rc_check(&on);
    rc_check(&off);
    const uint64_t n = on.o.bytes / num_size(on.s.act);
    double *a = malloc(2 * n * sizeof *a);
    assert_non_null(a);
    for (uint64_t i = 0; i < n; i++) {
        a[i] = num_get(on.o.p, on.s.act, i);
        a[n + i] = num_get(off.o.p, on.s.act, i);
    }
    const num_error e = num_compare(a, a + n, n);
    assert_true(num_close(&e, on.s.act == GDN_F32 ? 1e-5 : 3e-3));
    free(a);
    rc_free(&on);
    rc_free(&off);
    /* Off, the raw values count: rows of length 2 stay of length 2. */
    rc_spec raw = PREFILL(.nk = 2, .nv = 4, .dim = 64, .rows = 9, .norm = 2, .b_lo = 0.2, .b_hi = 0.4);
    rc_run(&raw);
}

static void B15_zero_rows_and_a_NaN_lane(void **state) {
    (void)state;
    static const uint32_t len[] = { 66, 70, 3 };
    const rc_spec s = PREFILL(.nk = 2, .nv = 4, .dim = 128, .batch = 3, .len = len, .flags = GDN_QK_L2NORM);
    rule_case c;
    rc_make(&c, &s);
    memset(c.qp + 5ull * c.qk_stride * num_size(c.s.act), 0, c.qk_stride * num_size(c.s.act));
    memset(c.kp + 5ull * c.qk_stride * num_size(c.s.act), 0, c.qk_stride * num_size(c.s.act));
    rc_expect e = rc_expect_of(&c, NULL);
    rc_check_against(&c, &e);
    for (uint64_t i = 0; i < rc_out_row_bytes(&c) / num_size(c.s.act); i++) assert_true(num_get(rc_out_row(&c, 5), c.s.act, i) == 0);
    /* One NaN lane in the middle sequence: the others stay right. */
    num_put(c.kp, c.s.act, (uint64_t)(66 + 11) * c.qk_stride + 7, NAN);
    rc_expect_free(&e);
    e = rc_expect_of(&c, NULL);
    memset(e.row + 66, RC_ANY, 70);
    e.written[1] = RC_ANY;
    rc_before before = rc_remember(&c);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    assert_true(isnan(rc_state(&c, true, 1)[0]));
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

/* All rows zero: the state only decays, the output is zero. */
static void B15_all_rows_zero(void **state) {
    (void)state;
    const rc_spec s = PREFILL(.nk = 1, .nv = 2, .dim = 64, .rows = 67, .flags = GDN_QK_L2NORM);
    rule_case c;
    rc_make(&c, &s);
    memset(c.q.p, 0, c.q.bytes);
    memset(c.k.p, 0, c.k.bytes);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    memset(e.row, RC_ANY, 67);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    for (uint64_t i = 0; i < c.o.bytes / num_size(c.s.act); i++) assert_true(num_get(c.o.p, c.s.act, i) == 0);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

/* Where a lever of the environment asks for the fast prefill, it is what these cases have run; where it forbids it, it is not. */
static void the_route_that_was_asked_for(void **state) {
    (void)state;
    const char *name = getenv("GDN_TEST_TARGET"), *lever = getenv("METRALE_GDN_PREFILL_FAST");
    const char *wn = getenv("METRALE_GDN_PREFILL_FAST_WN");
    if (!name || strcmp(name, "hopper") != 0 || (!lever && !wn)) skip();
    rc_spec s = PREFILL(.nk = 1, .nv = 2, .dim = 128, .rows = 65);
    rule_case c;
    rc_make(&c, &s);
    rc_check(&c);
    rc_free(&c);
    assert_int_equal(target_logged("GDN prefill: gated_delta_rule_fast_wn_fwd (METRALE_GDN_PREFILL_FAST_WN; "), wn && strcmp(wn, "1") == 0);
    if (!lever) return;
    assert_int_equal(target_logged("GDN prefill: gated_delta_rule_fast_fwd (METRALE_GDN_PREFILL_FAST; "), strcmp(lever, "1") == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B01_empty_sequence_in_a_pack),
        cmocka_unit_test(B03_offsets_past_2_to_the_31_and_32),
        cmocka_unit_test(B04_many_short_sequences),
        cmocka_unit_test(B05_decay_of_exactly_1),
        cmocka_unit_test(B06_tiny_decay_for_every_token),
        cmocka_unit_test(B09_odd_tails_before_NaN_rows),
        cmocka_unit_test(B11_sequences_with_very_different_gates),
        cmocka_unit_test(B12_start_state_with_strong_decay),
        cmocka_unit_test(B13_normalising_flag),
        cmocka_unit_test(B15_zero_rows_and_a_NaN_lane),
        cmocka_unit_test(B15_all_rows_zero),
        cmocka_unit_test(the_route_that_was_asked_for),
    };
    return cmocka_run_group_tests_name("prefill cases", tests, target_setup, target_teardown);
}
