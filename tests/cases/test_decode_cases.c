/* test_decode_cases.c - public reports about decode, each named by its id, and the bytes that decode promises. */
#include "rule_case.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DECODE(...) \
    { .op = GDN_OP_DECODE, .addr = GDN_STATE_POOL, __VA_ARGS__ }

static void B39_padded_rows_leave_live_states_alone(void **state) {
    (void)state;
    static const int32_t in[] = { 3, -1, 0, -1 }, out[] = { 3, 2, -1, 1 };
    static const uint8_t fresh[] = { 0, 1, 0, 1 }; /* whatever the row's other arguments hold */
    for (uint32_t addr = GDN_STATE_POOL; addr <= GDN_STATE_TABLE; addr++) {
        rc_spec s = DECODE(.nk = 2, .nv = 6, .dim = 128, .batch = 4, .slots = in, .num_slots = 5);
        s.addr = addr;
        rc_run(&s);
        s.fresh = fresh;
        rc_run(&s);
        s.out_slots = out; /* a row is padding by its output, too; -5 and INT32_MIN are no better than -1 */
        rc_run(&s);
    }
    static const int32_t far[] = { 3, INT32_MIN, 0, -5 };
    const rc_spec s = DECODE(.nk = 1, .nv = 2, .dim = 64, .batch = 4, .slots = far, .num_slots = 4);
    rc_run(&s);
}

/* 1024 rows of 64 heads: more than 65535 blocks in a GPU's second dimension. One row in eight is real, the others are padding:
 * 128 MB of states are enough. */
static void B04_decode_of_many_sequences(void **state) {
    (void)state;
    enum { N = TEST_LIGHT ? 160 : 1024 };
    static int32_t slots[N];
    for (uint32_t b = 0; b < N; b++) slots[b] = b % 8 ? -1 : (int32_t)(b / 8 + 1);
    const rc_spec s = DECODE(.nk = 16, .nv = 64, .dim = 64, .batch = N, .slots = slots, .num_slots = N / 8 + 2);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    char why[256];
    rc_before before = rc_remember(&c);
    assert_int_equal(rc_launch(&c), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    guard out = guard_copy(&c.o), states = guard_copy(&c.pool);
    rc_put_back(&c, &before);
    for (uint32_t b = 0; b < N; b += 8) { /* each row equals its run alone */
        assert_int_equal(rc_launch_op(&c, GDN_OP_DECODE, b, 1), GDN_OK);
        assert_memory_equal(rc_out_row(&c, b), out.p + b * rc_out_row_bytes(&c), rc_out_row_bytes(&c));
    }
    assert_memory_equal(c.pool.p, states.p, states.bytes);
    guard_free(&states);
    guard_free(&out);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

/* Slot `at` of 32 x 128 x 128 states begins at element at * 2^19: 4199 lies past 2^31, 8295 past 2^32. 8.8 and 17.6 GB of
 * addresses, a few pages of memory. Either would wrap to slot 103. */
static void far_slot(uint32_t at) {
    enum { WRAPPED = 103, FIRST = 200 };
    const rc_spec s = DECODE(.nk = 16, .nv = 32, .dim = 128);
    rule_case c;
    rc_make(&c, &s);
    guard small = c.pool;
    c.pool = guard_alloc((at + 1ull) * c.stride * 4);
    c.in[0] = c.out[0] = (int32_t)at;
    guard_put(&c.in_slots, c.in);
    c.shape.num_slots = at + 1;
    memcpy(rc_state(&c, false, 0), small.p, c.state_elems * 4);
    float *wrapped = (float *)(void *)c.pool.p + WRAPPED * c.stride;
    memcpy(wrapped, small.p, c.state_elems * 4);
    rc_expect e = rc_expect_of(&c, NULL);
    assert_int_equal(rc_launch(&c), GDN_OK);
    double *got = malloc(c.state_elems * sizeof *got);
    assert_non_null(got);
    for (uint64_t i = 0; i < c.state_elems; i++) got[i] = (double)rc_state(&c, true, 0)[i];
    const num_error err = num_compare(e.state, got, c.state_elems);
    assert_true(num_close(&err, 1e-5));
    assert_memory_equal(wrapped, small.p, c.state_elems * 4);
    const uint64_t *word = (const uint64_t *)(const void *)c.pool.p;
    const uint64_t slot = c.stride / 2; /* words */
    for (uint64_t i = 0; i < FIRST; i++) {
        uint64_t any = 0; /* they are as they were: zero, but for the one where a product of 32 bits would have ended */
        for (uint64_t k = 0; k < slot; k++) any |= word[i * slot + k];
        if ((any != 0) != (i == WRAPPED)) fail_msg("slot %u was written, and slot %u changed with it", at, (uint32_t)i);
    }
    free(got);
    rc_expect_free(&e);
    guard_free(&small);
    rc_free(&c);
}

static void B41_slot_offsets_past_2_to_the_31_and_32(void **state) {
    (void)state;
    far_slot(4199);
    far_slot(8295);
}

static void B43_state_goes_from_every_writer_to_decode(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        rc_spec s = {
            .op = i & 1 ? GDN_OP_PREFILL : GDN_OP_VERIFY, .nk = 2, .nv = 6, .dim = i & 2 ? 128 : 64, .addr = GDN_STATE_POOL, .seed = i + 1
        };
        s.layout = i & 4 ? GDN_STATE_V_MAJOR : GDN_STATE_K_MAJOR;
        s.act = i & 8 ? GDN_BF16 : target_act();
        s.rows = s.op == GDN_OP_PREFILL ? 65 : 4;
        rc_run(&s); /* the further decode is judged against the recurrence carried on in f64 */
    }
}

/* The state row that a head writes to is its key head's hot element. */
static void B44_value_heads_take_the_right_key_head(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    static const uint8_t fresh[] = { 1 };
    for (uint32_t i = 0; i < 6; i++) {
        rc_spec s = { .op = ops[i % 3], .nk = 2, .nv = 6, .dim = 64, .addr = GDN_STATE_POOL, .rows = 1, .fresh = fresh };
        s.head_map = i < 3 ? GDN_HEADS_GROUPED : GDN_HEADS_TILED;
        rule_case c;
        rc_make(&c, &s);
        for (uint32_t j = 0; j < 2 * 64; j++) {
            num_put(c.qp, c.s.act, j, j == 7 || j == 64 + 23);
            num_put(c.kp, c.s.act, j, j == 7 || j == 64 + 23);
        }
        rc_check(&c);
        for (uint32_t h = 0; h < 6; h++) {
            const uint32_t hot = (s.head_map == GDN_HEADS_GROUPED ? h / 3 : h % 2) ? 23 : 7;
            const float *S = rc_state(&c, true, 0) + h * 64u * 64u;
            assert_true(S[rc_elem(&c, hot, 5)] != 0 && S[rc_elem(&c, 30 - hot, 5)] == 0);
        }
        rc_free(&c);
    }
}

static void B45_ratios_of_value_to_key_heads(void **state) {
    (void)state;
    static const uint32_t R[] = { 1, 2, 3, 4, 5, 8 }, ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < N_OF(R); i++) {
        for (uint32_t j = 0; j < 3; j++) {
            rc_spec s = { .op = ops[j],
                          .nk = 2,
                          .nv = 2 * R[i],
                          .dim = 64,
                          .addr = GDN_STATE_POOL,
                          .batch = 3,
                          .rows = ops[j] == GDN_OP_PREFILL ? 67 : 4 };
            rc_run(&s);
            s.head_map = GDN_HEADS_TILED;
            rc_run(&s);
        }
    }
}

typedef struct repeat {
    rule_case c;
    uint64_t hash;
    uint32_t n;
    bool same;
} repeat;

static void *repeat_decode(void *arg) {
    repeat *r = arg;
    r->same = true;
    for (uint32_t i = 0; r->same && i < r->n; i++) {
        guard_poison(&r->c.o);
        r->same = rc_launch(&r->c) == GDN_OK && num_hash(r->c.o.p, r->c.o.bytes) == r->hash;
    }
    return NULL;
}

static void same_bytes_every_time(uint32_t dim) {
    const rc_spec s = DECODE(.nk = 2, .nv = 4, .dim = dim, .batch = 2, .other_pool = true, .flags = GDN_QK_L2NORM);
    static repeat r[2];
    pthread_t th[2];
    guard pool[2];
    for (uint32_t i = 0; i < 2; i++) {
        rc_make(&r[i].c, &s);
        rc_check(&r[i].c);
        r[i].hash = num_hash(r[i].c.o.p, r[i].c.o.bytes);
        r[i].n = !target_is_cpu() ? 100 : TEST_LIGHT ? 300 : 10000; /* the emulator's threads take the same turns every time */
        pool[i] = guard_copy(&r[i].c.pool_out);
    }
    assert_int_equal(r[0].hash, r[1].hash);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&th[i], NULL, repeat_decode, &r[i]), 0);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(pthread_join(th[i], NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(r[i].same);
        assert_memory_equal(pool[i].p, r[i].c.pool_out.p, pool[i].bytes);
        guard_free(&pool[i]);
        rc_free(&r[i].c);
    }
}
static void B46_the_same_bytes_every_time(void **state) {
    (void)state;
    same_bytes_every_time(64);
    same_bytes_every_time(128);
}

static void B48_padding_between_slots(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec s = { .op = ops[i], .nk = 2, .nv = 6, .dim = 64, .addr = GDN_STATE_POOL, .batch = 3, .rows = 3, .slot_pad = 512 };
        rc_run(&s);
    }
}

static void B49_head_dims_that_fit_no_kernel(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_FOLD },
                          dims[][2] = { { 72, 80 }, { 72, 72 }, { 72, 96 }, { 128, 64 } };
    for (uint32_t i = 0; i < N_OF(ops); i++) {
        for (uint32_t j = 0; j < N_OF(dims); j++) {
            const gdn_rule_shape s = { .base = SHAPE_BASE(gdn_rule_shape, ops[i], target_act()),
                                       .nk = 2,
                                       .nv = 4,
                                       .k_dim = dims[j][0],
                                       .v_dim = dims[j][1],
                                       .gate_form = GDN_GATE_LINEAR,
                                       .state_type = GDN_F32,
                                       .max_tokens = 8,
                                       .max_batch = 1,
                                       .max_rows = 4 };
            plan_fails(&s, GDN_REFUSED, "k_dim");
        }
    }
}

static void B53_views_of_one_fused_projection(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rc_spec s = DECODE(.nk = 16, .nv = 64, .dim = 128, .batch = 3, .packed_row = true);
        s.act = i & 1 ? GDN_BF16 : target_act();
        s.qk_pad = i & 2 ? 1 : 64; /* rows of 12,352 elements; and of an odd number, so that bases are only element-aligned */
        rule_case view, dense;
        rc_make(&view, &s);
        rc_check(&view);
        s.packed_row = false;
        s.qk_pad = 0;
        rc_make(&dense, &s); /* the same seed draws the same rows */
        rc_check(&dense);
        assert_memory_equal(view.o.p, dense.o.p, dense.o.bytes);
        assert_memory_equal(view.pool.p, dense.pool.p, dense.pool.bytes);
        rc_free(&view);
        rc_free(&dense);
    }
}

static void B54_slots_outside_the_pool(void **state) {
    (void)state;
    static const int32_t bad[] = { 6947, 26 };
    static const char *const text[] = { "6947", "26" };
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 12; i++) {
        const int32_t good[] = { 5, 7 }, slots[] = { 5, bad[i % 2] };
        rc_spec s = {
            .op = ops[i / 4], .nk = 2, .nv = 4, .dim = 64, .addr = GDN_STATE_POOL, .batch = 2, .rows = 2, .num_slots = 26, .slots = good
        };
        s.flags = GDN_PLAN_CHECKED;
        if (i & 2) s.out_slots = good;
        rule_case c;
        rc_make(&c, &s);
        rc_check(&c);
        guard_put(i & 2 ? &c.out_slots : &c.in_slots, slots);
        guard pool = guard_copy(&c.pool);
        guard_poison(&c.o);
        target_log_clear();
        assert_int_equal(rc_launch(&c), GDN_E_CHECKED);
        if (!target_logged(text[i % 2])) fail_msg("log: %s", target_log_text());
        assert_memory_equal(pool.p, c.pool.p, pool.bytes);
        for (uint64_t b = 0; b < c.o.bytes; b++) assert_int_equal(c.o.p[b], 0xFF);
        guard_free(&pool);
        rc_free(&c);
    }
}

static void B55_states_that_are_not_f32(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD };
    static const uint32_t types[] = { GDN_F16, GDN_BF16 };
    for (uint32_t i = 0; i < N_OF(ops); i++) {
        gdn_rule_shape s = { .base = SHAPE_BASE(gdn_rule_shape, ops[i], target_act()),
                             .nk = 2,
                             .nv = 4,
                             .k_dim = 128,
                             .v_dim = 128,
                             .gate_form = GDN_GATE_LINEAR,
                             .max_tokens = 8,
                             .max_batch = 1,
                             .max_rows = 4,
                             .stash_seqs = 1 };
        for (uint32_t j = 0; j < 2; j++) {
            s.state_type = types[j];
            plan_fails(&s, GDN_REFUSED, "state is not f32");
        }
        s.state_type = 0; /* forgotten */
        plan_fails(&s, GDN_E_ARG, "state_type");
        s.state_type = 9;
        plan_fails(&s, GDN_E_ARG, "state_type");
    }
}

static void control_spoilt_results_are_noticed(void **state) {
    (void)state;
    static const int32_t slots[] = { 3, -1, 0 };
    const rc_spec s = DECODE(.nk = 2, .nv = 4, .dim = 64, .batch = 3, .slots = slots, .num_slots = 5, .slot_pad = 16);
    rule_case c;
    rc_make(&c, &s);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    char why[256];
    assert_int_equal(rc_launch(&c), GDN_OK);
    assert_true(rc_matches(&c, &e, &before, why, sizeof why));
    /* an output, a padding row's zeros, a live state, the last slot, padding between slots, the bytes before the pool */
    uint8_t *spoil[] = { rc_out_row(&c, 0) + 3,        rc_out_row(&c, 1) + 5,       (uint8_t *)rc_state(&c, true, 2) + 3,
                         c.pool.p + c.pool.bytes - 70, c.pool.p + c.stride * 4 - 8, c.pool.p - 1 };
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
        cmocka_unit_test(B39_padded_rows_leave_live_states_alone),
        cmocka_unit_test(B04_decode_of_many_sequences),
        cmocka_unit_test(B41_slot_offsets_past_2_to_the_31_and_32),
        cmocka_unit_test(B43_state_goes_from_every_writer_to_decode),
        cmocka_unit_test(B44_value_heads_take_the_right_key_head),
        cmocka_unit_test(B45_ratios_of_value_to_key_heads),
        cmocka_unit_test(B46_the_same_bytes_every_time),
        cmocka_unit_test(B48_padding_between_slots),
        cmocka_unit_test(B49_head_dims_that_fit_no_kernel),
        cmocka_unit_test(B53_views_of_one_fused_projection),
        cmocka_unit_test(B54_slots_outside_the_pool),
        cmocka_unit_test(B55_states_that_are_not_f32),
        cmocka_unit_test(control_spoilt_results_are_noticed),
    };
    return cmocka_run_group_tests_name("decode cases", tests, target_setup, target_teardown);
}
