/* test_layouts.c - every combination of activation type, gate form, head map, state layout, addressing, strides and
 * normalisation, for prefill, decode and verify; and the padding rules of section "PADDING" in gdn_op_rule.h. */
#include "rule_case.h"
#include <string.h>

/* On hopper a prefill of heads of 128 takes kernels of its own, everything else gb10's. */
static bool own_kernels(uint32_t op) {
    return target_is_named("hopper") && op == GDN_OP_PREFILL;
}
static rc_spec combination(uint32_t op, uint32_t i) {
    static uint32_t len[] = { 3, 70, 0, 5 };
    static const uint32_t rows[] = { 3, 1, 0, 5 };
    rc_spec s = { .op = op, .nk = 2, .nv = 6, .dim = 64, .batch = 4, .seed = i + 1, .hi = true };
    if (own_kernels(op)) s.dim = 128;
    len[1] = target_is_cpu() || s.dim == 128 ? 70 : 37; /* a GPU takes heads of 64 token by token */
    s.act = i & 1 ? GDN_BF16 : target_act();
    s.gate_form = i & 2 ? GDN_GATE_LOG : GDN_GATE_LINEAR;
    s.head_map = i & 4 ? GDN_HEADS_TILED : GDN_HEADS_GROUPED;
    s.layout = i & 8 ? GDN_STATE_V_MAJOR : GDN_STATE_K_MAJOR;
    s.flags = i & 16 ? GDN_QK_L2NORM : 0;
    if (i & 32) {
        s.qk_pad = 3;
        s.v_pad = 1;
        s.gb_pad = 5;
        s.packed_row = i & 1;
    }
    s.addr = i / 64;
    if (op == GDN_OP_PREFILL) s.len = len;
    if (op == GDN_OP_VERIFY) s.len = rows;
    if (op == GDN_OP_VERIFY && s.addr == GDN_STATE_CONTIGUOUS) { /* legal at batch 1 only */
        s.batch = 1;
        s.len = NULL;
        s.rows = 4;
    }
    return s;
}

static void combinations(uint32_t op) {
    for (uint32_t i = 0; i < 3 * 64; i += TEST_LIGHT || target_is_named("hopper") ? 5 : 1) {
        if (!target_is_cpu() && (i & 1) && !(i & 32)) continue; /* bf16 and no packed row: as the one before */
        rc_spec s = combination(op, i);
        rc_run(&s);
        s.other_pool = true; /* states written elsewhere; the input pool is as it was */
        if (i % 8 == 5) rc_run(&s);
    }
}

static void prefill_in_every_combination(void **state) {
    (void)state;
    combinations(GDN_OP_PREFILL);
}

static void decode_in_every_combination(void **state) {
    (void)state;
    combinations(GDN_OP_DECODE);
}

static void verify_in_every_combination(void **state) {
    (void)state;
    combinations(GDN_OP_VERIFY);
}

/* A negative slot or null entry, of the input or of the output, beside fresh flags and live rows. */
static void padding_of_every_kind(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    static const uint32_t len[] = { 65, 2, 7, 0, 3 }, rows[] = { 2, 4, 1, 0, 3 };
    static const int32_t in[] = { 3, -1, 5, -1, 0 }, out[] = { 4, 2, -1, -7, 0 };
    static const uint8_t fresh[] = { 0, 1, 1, 1, 1 };
    for (uint32_t i = 0; i < (target_is_cpu() ? 3 * 16 : 3 * 8); i++) { /* a GPU has no second type */
        rc_spec s = { .op = ops[i % 3], .nk = 2, .nv = 4, .dim = 64, .batch = 5, .slots = in, .num_slots = 7, .hi = true };
        s.len = s.op == GDN_OP_PREFILL ? len : s.op == GDN_OP_VERIFY ? rows : NULL;
        s.addr = i / 3 & 1 ? GDN_STATE_TABLE : GDN_STATE_POOL;
        if (i / 6 & 1) s.out_slots = out;
        if (i / 12 & 1) s.fresh = fresh;
        s.act = i / 24 & 1 ? GDN_BF16 : target_act();
        rc_run(&s);
    }
    static const int32_t none[] = { -1, -1 };
    for (uint32_t i = 0; i < 3; i++) { /* nothing but padding */
        const rc_spec s = { .op = ops[i], .nk = 1, .nv = 2, .dim = 64, .batch = 2, .rows = 3, .slots = none, .addr = GDN_STATE_POOL };
        rc_run(&s);
    }
}

/* A padding row's own arguments may hold anything: its inputs are not even addressable. */
static void padding_reads_nothing(void **state) {
    (void)state;
    static const int32_t slots[] = { 2, -1 };
    const rc_spec s = { .op = GDN_OP_DECODE, .nk = 2, .nv = 4, .dim = 64, .batch = 2, .slots = slots, .addr = GDN_STATE_POOL };
    rule_case c, cut;
    rc_make(&c, &s);
    rc_check(&c);
    const rc_spec one = {
        .op = GDN_OP_DECODE, .nk = 2, .nv = 4, .dim = 64, .batch = 1, .slots = slots, .num_slots = 5, .addr = GDN_STATE_POOL
    };
    rc_make(&cut, &one); /* inputs of one row, ending at a page without access */
    guard out = guard_alloc(c.o.bytes);
    guard_poison(&out);
    const uint64_t ptr[] = { addr_of(cut.pool.p),
                             addr_of(cut.qp),
                             addr_of(cut.kp),
                             addr_of(cut.vp),
                             addr_of(cut.gb.p),
                             addr_of(rc_beta(&cut, 0, 0)),
                             addr_of(out.p),
                             0,
                             addr_of(c.in_slots.p),
                             0,
                             0,
                             0 };
    const uint32_t two = 2;
    assert_int_equal(launch(c.plan[GDN_OP_DECODE], N_OF(ptr), ptr, 1, &two), GDN_OK);
    for (uint64_t i = out.bytes / 2; i < out.bytes; i++) assert_int_equal(out.p[i], 0);
    guard_free(&out);
    rc_free(&c);
    rc_free(&cut);
}

/* Verify over contiguous states is legal only at batch 1. */
static void contiguous_verify_of_a_batch_is_an_error(void **state) {
    (void)state;
    rc_spec s = { .op = GDN_OP_VERIFY, .nk = 1, .nv = 2, .dim = 64, .batch = 2, .rows = 2 };
    rule_case c;
    rc_make(&c, &s);
    guard pool = guard_copy(&c.pool);
    gdn_hplan *p;
    char text[256];
    if (plan_try(&c.shape, &p, text, sizeof text) == GDN_OK) {
        gdn_plan_free(p);
        target_log_clear();
        assert_int_equal(rc_launch(&c), GDN_E_ARG);
        assert_true(target_logged("contiguous"));
    } else {
        assert_non_null(strstr(text, "contiguous"));
    }
    assert_memory_equal(pool.p, c.pool.p, pool.bytes);
    guard_free(&pool);
    rc_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_in_every_combination), cmocka_unit_test(decode_in_every_combination),
        cmocka_unit_test(verify_in_every_combination),  cmocka_unit_test(padding_of_every_kind),
        cmocka_unit_test(padding_reads_nothing),        cmocka_unit_test(contiguous_verify_of_a_batch_is_an_error),
    };
    return cmocka_run_group_tests_name("layouts", tests, target_setup, target_teardown);
}
