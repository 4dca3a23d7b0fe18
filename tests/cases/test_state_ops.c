/* test_state_ops.c - state_copy, state_zero and flag_clear: slots, padding, strides, offsets above 4 GB, checked plans. */
#include "guard.h"
#include "numeric.h"
#include "target.h"
#include <string.h>

enum { BYTES = 200, SRC_STRIDE = 256, DST_STRIDE = 208, SRC_SLOTS = 9, DST_SLOTS = 7 };

typedef struct pools {
    gdn_state_shape s;
    guard src, dst, want, from, to;
} pools;

static void make(pools *p, uint32_t op, uint32_t flags) {
    rng r = { 3 };
    *p = (pools) { .s = { .base = SHAPE_BASE(gdn_state_shape, op, 0),
                          .bytes = BYTES,
                          .src_stride = SRC_STRIDE,
                          .dst_stride = DST_STRIDE,
                          .src_slots = SRC_SLOTS,
                          .dst_slots = DST_SLOTS,
                          .max_count = 6 } };
    p->s.base.flags = flags;
    p->src = guard_alloc(SRC_SLOTS * SRC_STRIDE);
    p->dst = guard_alloc(DST_SLOTS * DST_STRIDE);
    for (uint64_t i = 0; i < p->src.bytes; i++) p->src.p[i] = (uint8_t)rng_next(&r);
    for (uint64_t i = 0; i < p->dst.bytes; i++) p->dst.p[i] = (uint8_t)rng_next(&r);
    p->want = guard_copy(&p->dst);
}

static void drop(pools *p) {
    guard *all[] = { &p->src, &p->dst, &p->want, &p->from, &p->to };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
}

static gdn_status go(pools *p, const int32_t *from, const int32_t *to, uint32_t n) {
    guard_free(&p->from);
    guard_free(&p->to);
    p->from = guard_of(from, n * 4ull);
    p->to = guard_of(to, n * 4ull);
    const uint64_t copy[] = { addr_of(p->src.p), addr_of(p->dst.p), addr_of(p->from.p), addr_of(p->to.p) },
                   zero[] = { addr_of(p->dst.p), addr_of(p->to.p) };
    gdn_hplan *plan = plan_ok(&p->s);
    const bool is_copy = p->s.base.op == GDN_OP_STATE_COPY;
    target_log_clear();
    const gdn_status st = launch(plan, is_copy ? 4 : 2, is_copy ? copy : zero, 1, &n);
    gdn_plan_free(plan);
    return st;
}

static const int32_t from[] = { 8, 0, -1, 3, 3, 7 }, to[] = { 6, 2, 1, -1, 0, 4 };

static void copies_the_named_pairs_and_nothing_else(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        pools p;
        make(&p, GDN_OP_STATE_COPY, i ? GDN_PLAN_CHECKED : 0);
        guard src = guard_copy(&p.src);
        assert_int_equal(go(&p, from, to, 6), GDN_OK);
        for (uint32_t k = 0; k < 6; k++) {
            if (from[k] >= 0 && to[k] >= 0) memcpy(p.want.p + to[k] * DST_STRIDE, p.src.p + from[k] * SRC_STRIDE, BYTES);
        }
        assert_memory_equal(p.want.p, p.dst.p, p.want.bytes);
        assert_memory_equal(src.p, p.src.p, src.bytes);
        assert_true(guard_ok(&p.dst) && guard_ok(&p.src));
        p.dst.p[to[1] * DST_STRIDE + 5] ^= 1; /* control */
        assert_memory_not_equal(p.want.p, p.dst.p, p.want.bytes);
        guard_free(&src);
        drop(&p);
    }
}

static void zeroes_the_named_slots_and_nothing_else(void **state) {
    (void)state;
    pools p;
    make(&p, GDN_OP_STATE_ZERO, 0);
    assert_int_equal(go(&p, from, to, 6), GDN_OK);
    for (uint32_t k = 0; k < 6; k++) {
        if (to[k] >= 0) memset(p.want.p + to[k] * DST_STRIDE, 0, BYTES);
    }
    assert_memory_equal(p.want.p, p.dst.p, p.want.bytes);
    drop(&p);
}

static void checked_plans_name_the_bad_slot(void **state) {
    (void)state;
    static const struct {
        uint32_t op;
        int32_t from[3], to[3];
        const char *part;
    } row[] = {
        { GDN_OP_STATE_COPY, { 0, 1, 9 }, { 0, 1, 2 }, "9" }, /* equal to the pool size */
        { GDN_OP_STATE_COPY, { 0, 1, 2 }, { 0, 1, 6947 }, "6947" },
        { GDN_OP_STATE_COPY, { 0, 1, 2 }, { 0, 4, 4 }, "4" }, /* written twice */
        { GDN_OP_STATE_ZERO, { 0 }, { 0, 1, 7 }, "7" },
        { GDN_OP_STATE_ZERO, { 0 }, { 5, 1, 5 }, "5" },
    };
    for (uint32_t i = 0; i < N_OF(row); i++) {
        pools p;
        make(&p, row[i].op, GDN_PLAN_CHECKED);
        assert_int_equal(go(&p, row[i].from, row[i].to, 3), GDN_E_CHECKED);
        if (!target_logged(row[i].part) || !target_logged("slot")) fail_msg("log: %s", target_log_text());
        assert_memory_equal(p.want.p, p.dst.p, p.want.bytes);
        drop(&p);
    }
}

/* One pool for both sides: a slot that is the source of one pair and the destination of another is caught. */
static void checked_copy_inside_one_pool(void **state) {
    (void)state;
    pools p;
    make(&p, GDN_OP_STATE_COPY, GDN_PLAN_CHECKED);
    p.s.src_stride = p.s.dst_stride;
    p.s.src_slots = DST_SLOTS;
    static const int32_t a[] = { 0, 1 }, b[] = { 1, 2 };
    gdn_hplan *plan = plan_ok(&p.s);
    const uint64_t ptr[] = { addr_of(p.dst.p), addr_of(p.dst.p), addr_of(a), addr_of(b) };
    const uint32_t n = 2;
    assert_int_equal(launch(plan, 4, ptr, 1, &n), GDN_E_CHECKED);
    assert_memory_equal(p.want.p, p.dst.p, p.want.bytes);
    gdn_plan_free(plan);
    drop(&p);
}

static void offsets_are_64_bit(void **state) {
    (void)state;
    const uint64_t one = 512ull << 20;
    const gdn_state_shape s = {
        .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_COPY, 0), .bytes = 4096, .src_stride = one, .dst_stride = one, .max_count = 1
    };
    guard pool = guard_alloc(9 * one + 4096); /* addresses only */
    memset(pool.p + 9 * one, 0x5A, 4096);
    static const int32_t a[] = { 9 }, b[] = { 8 };
    const uint64_t ptr[] = { addr_of(pool.p), addr_of(pool.p), addr_of(a), addr_of(b) };
    const uint32_t n = 1;
    run_ok(&s, 4, ptr, 1, &n);
    assert_memory_equal(pool.p + 8 * one, pool.p + 9 * one, 4096);
    for (uint32_t i = 0; i < 4096; i++) assert_int_equal(pool.p[i] | pool.p[one + i], 0); /* where 32 bits would land */
    guard_free(&pool);
}

static void flag_clear_clears_one_word(void **state) {
    (void)state;
    const gdn_flag_shape s = { SHAPE_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR, 0) };
    uint32_t word[3] = { 7, 7, 7 };
    const uint64_t ptr[] = { addr_of(&word[1]) };
    run_ok(&s, 1, ptr, 0, NULL);
    assert_true(word[0] == 7 && word[1] == 0 && word[2] == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_the_named_pairs_and_nothing_else),
        cmocka_unit_test(zeroes_the_named_slots_and_nothing_else),
        cmocka_unit_test(checked_plans_name_the_bad_slot),
        cmocka_unit_test(checked_copy_inside_one_pool),
        cmocka_unit_test(offsets_are_64_bit),
        cmocka_unit_test(flag_clear_clears_one_word),
    };
    return cmocka_run_group_tests_name("state operations", tests, target_setup, target_teardown);
}
