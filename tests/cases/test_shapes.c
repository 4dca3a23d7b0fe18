/* test_shapes.c - head counts, head sizes and lengths that must work: the public models' (nk, nv) and their shards, every
 * length from 0 to 200, tails around the chunk, verify of 1 to 16 rows. */
#include "rule_case.h"
#include <stdlib.h>

static const uint32_t heads[][2] = { { 16, 16 }, { 16, 32 }, { 16, 48 }, { 16, 64 }, { 8, 24 }, { 4, 16 }, { 2, 8 }, { 1, 4 },
                                     { 4, 12 },  { 8, 16 },  { 1, 1 },   { 2, 16 },  { 1, 3 },  { 1, 8 },  { 1, 5 } };

static void prefill_at_every_head_count(void **state) {
    (void)state;
    for (uint32_t i = TEST_LIGHT ? 4 : 0; i < N_OF(heads); i++) { /* the largest four are more of the same to a sanitizer */
        rc_spec s = { .op = GDN_OP_PREFILL,
                      .nk = heads[i][0],
                      .nv = heads[i][1],
                      .dim = 128,
                      .addr = GDN_STATE_POOL,
                      .rows = target_is_light() ? 65 : 67 + i };
        rc_run(&s);
        s.dim = 64;
        s.act = GDN_BF16;
        s.packed_row = true;
        if (!target_is_cpu()) s.rows = 9; /* token by token: no chunks */
        rc_run(&s);
    }
}

static void decode_and_verify_at_every_head_count(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA };
    for (uint32_t i = 0; i < N_OF(heads); i++) {
        for (uint32_t j = 0; j < 3; j++) {
            rc_spec s = { .op = ops[j],
                          .nk = heads[i][0],
                          .nv = heads[i][1],
                          .dim = 128,
                          .addr = GDN_STATE_POOL,
                          .batch = 2,
                          .num_slots = 4,
                          .rows = 4 };
            rc_run(&s);
            s.dim = 64;
            s.act = GDN_BF16;
            if (ops[j] != GDN_OP_VERIFY_WOA) rc_run(&s);
        }
    }
}

static void every_length_from_0_to_200(void **state) {
    (void)state;
    const bool all = getenv("GDN_TEST_EVERY_LENGTH") != NULL; /* minutes on the emulator */
    for (uint32_t T = 0; T <= 200; T++) {
        if (!all && (TEST_LIGHT ? T % 9 : !target_is_cpu() && (T + 2) % 16 > 3)) continue; /* a GPU's tiles have 16 rows */
        const uint32_t len[] = { T };
        rc_spec s = { .op = GDN_OP_PREFILL, .nk = 1, .nv = 2, .dim = T % 2 ? 128 : 64, .addr = GDN_STATE_POOL, .rows = T, .seed = T + 1 };
        rc_run(&s);
        s.len = len;
        s.offsets = T % 3 ? GDN_OFFSETS_I32 : GDN_OFFSETS_I64;
        s.row0 = T % 4;
        s.tail = 1;
        rc_run(&s);
    }
}

static void tails_around_the_chunk(void **state) {
    (void)state;
    const uint32_t heads_k = target_is_cpu() ? 2 : 1; /* a head is a block of its own on a GPU */
    static const uint32_t T[] = { 63, 64, 65, 127, 128, 129, 191, 192, 193 };
    for (uint32_t i = 0; i < N_OF(T); i++) {
        rc_spec s = {
            .op = GDN_OP_PREFILL, .nk = heads_k, .nv = 3 * heads_k, .dim = 128, .addr = GDN_STATE_POOL, .rows = T[i], .batch = 2
        };
        rc_run(&s);
    }
}

static void verify_of_1_to_16_rows(void **state) {
    (void)state;
    for (uint32_t rows = 1; rows <= GDN_MAX_ROWS; rows++) {
        rc_spec s = { .op = GDN_OP_VERIFY,
                      .nk = 2,
                      .nv = 6,
                      .dim = rows % 2 ? 64 : 128,
                      .addr = GDN_STATE_POOL,
                      .batch = 2,
                      .rows = rows,
                      .hi = rows > 1 };
        s.a_lo = 0.3;
        rc_run(&s);
    }
}

/* A prefill cut at a multiple of 64 and carried on: the same bytes. Elsewhere: the same values. */
static void cut_prefills(void **state) {
    (void)state;
    static const uint32_t cut[] = { 64, 128, 1, 63, 100 };
    for (uint32_t i = 0; i < 2 * N_OF(cut); i++) {
        const uint32_t len[] = { 200 };
        const rc_spec s = { .op = GDN_OP_PREFILL, .nk = 2, .nv = 4, .dim = i % 2 ? 64 : 128, .addr = GDN_STATE_POOL, .len = len };
        rule_case one, two;
        rc_make(&one, &s);
        rc_make(&two, &s);
        rc_expect e = rc_expect_of(&two, NULL);
        rc_before before = rc_remember(&two);
        rc_check(&one);
        int32_t *cu = (int32_t *)(void *)two.cu.p;
        cu[1] = (int32_t)cut[i / 2];
        assert_int_equal(rc_launch(&two), GDN_OK);
        cu[0] = cu[1];
        cu[1] = 200;
        assert_int_equal(rc_launch(&two), GDN_OK);
        if (cut[i / 2] % 64 == 0) {
            assert_memory_equal(one.o.p, two.o.p, one.o.bytes);
            assert_memory_equal(one.pool.p, two.pool.p, one.pool.bytes);
        }
        char why[256];
        if (!rc_matches(&two, &e, &before, why, sizeof why)) fail_msg("cut at %u: %s", cut[i / 2], why);
        rc_forget(&before);
        rc_expect_free(&e);
        rc_free(&one);
        rc_free(&two);
    }
}

/* A small workspace gives the same bytes as a large one. */
static void bounded_workspaces(void **state) {
    (void)state;
    /* A GPU's scratch is 82,176 bytes a chunk and head: all five chunks of four heads, two chunks, one; below that it refuses. */
    static const uint64_t most[] = { 0, 1 << 20, 400000, 200000 };
    guard first = { 0 };
    for (uint32_t i = 0; i < N_OF(most); i++) {
        const rc_spec s = {
            .op = GDN_OP_PREFILL, .nk = 2, .nv = 4, .dim = 128, .addr = GDN_STATE_POOL, .rows = 300, .max_workspace = most[i]
        };
        rule_case c;
        rc_make(&c, &s);
        if (!target_is_cpu() && most[i] == 200000) {
            plan_fails(&c.shape, GDN_REFUSED, "max_workspace holds less than one chunk");
            rc_free(&c);
            continue;
        }
        rc_check(&c);
        assert_true(most[i] == 0 || c.ws.bytes <= most[i] + 255);
        if (i == 0) first = guard_copy(&c.o);
        assert_memory_equal(first.p, c.o.p, first.bytes);
        rc_free(&c);
    }
    guard_free(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_at_every_head_count), cmocka_unit_test(decode_and_verify_at_every_head_count),
        cmocka_unit_test(every_length_from_0_to_200),  cmocka_unit_test(tails_around_the_chunk),
        cmocka_unit_test(verify_of_1_to_16_rows),      cmocka_unit_test(cut_prefills),
        cmocka_unit_test(bounded_workspaces),
    };
    return cmocka_run_group_tests_name("shapes", tests, target_setup, target_teardown);
}
