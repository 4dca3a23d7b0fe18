/* test_w4a4_cases.c - public reports about FP4 projections, each named by its id: quantise the rows, project, compare with
 * an f64 sum over the very codes. On a GPU all of it is bf16. The order of quantised activations is private to the pair, so codes are read
 * back by projecting onto one-hot weights. B121's padded scale stride has no place on host memory; B130's shared memory is a test of the
 * plan. */
#include "oracle.h"
#include "w4a4_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void B114_padding_of_the_activation_block(void **state) {
    (void)state;
    static const uint8_t fill[] = { 0x7F, 0xFF, 0x00 };
    guard first = { 0 };
    for (uint32_t i = 0; i < 3; i++) {
        w4a4_case c;
        w4a4_make(&c, 3, 24, 256, GDN_F32);
        memset(c.aq.p, fill[i], c.aq.bytes); /* rows 3..7 of the block keep this */
        memset(c.as.p, fill[i], c.as.bytes);
        w4a4_quantise(&c, 0, 3);
        w4a4_project(&c, 3, c.C.p);
        assert_true(w4a4_matches(&c));
        if (i == 0) first = guard_copy(&c.C);
        assert_memory_equal(first.p, c.C.p, first.bytes);
        w4a4_free(&c);
    }
    guard_free(&first);
}

static void B116_a_row_of_zeros(void **state) {
    (void)state;
    w4a4_case c, one;
    w4a4_make(&c, 2, 17, 256, GDN_BF16);
    memset(c.A.p + c.a_stride * 2ull, 0, c.K * 2ull);
    w4a4_quantise(&c, 0, 2);
    w4a4_project(&c, 2, c.C.p);
    assert_true(num_get(c.ag.p, GDN_F32, 1) == 1);
    for (uint32_t n = 0; n < 17; n++) assert_true(num_get(c.C.p, c.act, 17 + n) == 0);
    w4a4_make(&one, 2, 17, 256, GDN_BF16);
    w4a4_quantise(&one, 0, 1);
    w4a4_project(&one, 1, one.C.p);
    assert_memory_equal(one.C.p, c.C.p, 17 * 2);
    w4a4_free(&c);
    w4a4_free(&one);
}

/* Weights that read activation k back: row n has the value 1 at k0 + n, scales 1. */
static void one_hot(const w4a4_case *c, uint32_t k0) {
    memset(c->bq.p, 0, c->bq.bytes);
    memset(c->bs.p, 0x38, c->bs.bytes); /* 1.0 */
    for (uint64_t n = 0; n < c->N; n++) c->bq.p[(n * c->K + k0 + n) / 2] = (uint8_t)((k0 + n) % 2 ? 0x20 : 0x02);
}

/* A row whose largest value is 2688 has Ag = 1; a group whose largest is 6 then has scale 1: its codes are the values. */
static void B118_ties_round_to_even(void **state) {
    (void)state;
    static const double in[] = { 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, 0 };
    static const double want[] = { 0, 1, 1, 2, 2, 4, 4, 6, 0, -1, -1, -2, -2, -4, -4, 0 };
    w4a4_case c;
    w4a4_make(&c, 1, 32, 128, GDN_F32);
    memset(c.A.p, 0, c.A.bytes);
    for (uint32_t i = 0; i < 16; i++) num_put(c.A.p, c.act, i, in[i]);
    num_put(c.A.p, c.act, 16, 7); /* its own group: 7/6 rounds to the scale 1.125, and 7/1.125 saturates at 6 */
    num_put(c.A.p, c.act, 100, 2688);
    c.scale2 = 1;
    one_hot(&c, 0);
    w4a4_quantise(&c, 0, 1);
    w4a4_project(&c, 1, c.C.p);
    assert_true(num_get(c.ag.p, GDN_F32, 0) == 1);
    for (uint32_t i = 0; i < 16; i++) assert_true(num_get(c.C.p, c.act, i) == want[i]);
    assert_true(num_get(c.C.p, c.act, 16) == 6 * 1.125);
    for (uint32_t i = 0; i < 16; i++) assert_true(oracle_e2m1(oracle_to_e2m1((float)in[i])) == want[i]); /* and the oracle agrees */
    w4a4_free(&c);
}

static void B120_scale_multiplies(void **state) {
    (void)state;
    w4a4_case c;
    w4a4_make(&c, 2, 9, 128, GDN_F32);
    c.scale2 = 8;
    w4a4_check(&c);
    const double by8 = num_get(c.C.p, c.act, 3);
    c.scale2 = 0.125f; /* the inverse convention would give 64 times the other result */
    assert_false(w4a4_matches(&c));
    w4a4_check(&c);
    assert_true(num_get(c.C.p, c.act, 3) == by8 / 64);
    w4a4_free(&c);
}

static void B122_B121_B131_B133_lengths_of_k(void **state) {
    (void)state;
    static const uint32_t refused[] = { 96, 112, 160, 176, 192, 4112, 576, 1056, 1088, 5184, 544, 608, 64, 127, 16 },
                          right[] = { 128, 256, 1152, 2176, 4096 };
    for (uint32_t i = 0; i < N_OF(refused); i++) {
        const gdn_w4a4_shape s = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV, GDN_BF16), .N = 16, .K = refused[i], .max_m = 2 };
        plan_fails(&s, GDN_REFUSED, "k is not a multiple of 128");
        const gdn_w4a4_shape q = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT, GDN_BF16), .K = refused[i], .max_m = 2 };
        plan_fails(&q, GDN_REFUSED, "k is not a multiple of 128");
    }
    for (uint32_t i = 0; i < N_OF(right); i++) {
        w4a4_case c;
        w4a4_make(&c, 3, 20, right[i], GDN_F32);
        for (uint64_t n = 0; n < 20; n++) memset(c.bq.p + n * c.K / 2, 0, (c.K - 64) / 2); /* weights in the last 64 columns only */
        w4a4_check(&c);
        assert_true(num_get(c.C.p, c.act, 7) != 0);
        w4a4_free(&c);
    }
}

static void guards_come_in_their_order(void **state) {
    (void)state;
    gdn_w4a4_shape s = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV, GDN_BF16), .N = 0, .K = 0, .max_m = 65 };
    plan_fails(&s, GDN_REFUSED, "m is above 64");
    s.max_m = 64;
    plan_fails(&s, GDN_REFUSED, "n is 0");
    s.N = 4;
    plan_fails(&s, GDN_REFUSED, "k is 0");
    s.K = 32768 + 64;
    plan_fails(&s, GDN_REFUSED, "k is not a multiple of 128");
    s.K = 32768 + 128;
    plan_fails(&s, GDN_REFUSED, "k is above 32768");
    s.K = 32768;
    gdn_plan_free(plan_ok(&s));
}

static void B124_rows_together_and_alone(void **state) {
    (void)state;
    for (uint32_t M = 1; M <= 64; M += M < 9 ? 1 : 11) {
        w4a4_case c;
        w4a4_make(&c, M, 33, 384, M % 2 ? GDN_BF16 : GDN_F32);
        w4a4_check(&c);
        guard row = guard_alloc(33ull * num_size(c.act));
        for (uint32_t m = 0; m < M; m++) {
            w4a4_quantise(&c, m, 1);
            w4a4_project(&c, 1, row.p);
            assert_memory_equal(row.p, c.C.p + m * row.bytes, row.bytes);
        }
        guard_free(&row);
        w4a4_free(&c);
    }
}

static void B126_no_rows(void **state) {
    (void)state;
    const gdn_w4a4_shape q = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT, GDN_BF16), .K = 128, .max_m = 2 };
    const gdn_w4a4_shape p = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV, GDN_BF16), .N = 16, .K = 128, .max_m = 2 };
    const uint64_t null[GDN_W4A4_GEMV_N_PTR] = { 0 };
    const uint32_t u32[] = { 0, 0 };
    run_ok(&q, GDN_W4A4_QUANT_N_PTR, null, 1, u32);
    run_ok(&p, GDN_W4A4_GEMV_N_PTR, null, 2, u32);
}

static void B128_output_widths(void **state) {
    (void)state;
    static const uint32_t N[] = { 464, 1000, 7, 1, 16, 17 };
    for (uint32_t i = 0; i < N_OF(N); i++) {
        w4a4_case c;
        w4a4_make(&c, 5, N[i], 128, i % 2 ? GDN_F32 : GDN_BF16);
        w4a4_check(&c); /* C ends at a page without access: a sixteenth column too many would fault */
        w4a4_free(&c);
    }
}

static void B129_order_of_the_nibbles(void **state) {
    (void)state;
    w4a4_case c;
    w4a4_make(&c, 2, 3, 128, GDN_F32);
    memset(c.bq.p, 0x21, c.bq.bytes); /* element 0: code 1 = 0.5; element 1: code 2 = 1 */
    memset(c.bs.p, 0x38, c.bs.bytes);
    memset(c.A.p, 0, c.A.bytes);
    num_put(c.A.p, c.act, 10, 2688);
    num_put(c.A.p, c.act, c.a_stride + 11ull, 2688);
    c.scale2 = 1;
    w4a4_quantise(&c, 0, 2);
    w4a4_project(&c, 2, c.C.p);
    assert_true(num_get(c.C.p, c.act, 0) == 0.5 * 2688 && num_get(c.C.p, c.act, 3) == 1.0 * 2688);
    w4a4_free(&c);
}

/* Bytes, not only values: all targets have the same NaN, whatever the input's sign or payload. */
static void poisoned_row(uint32_t act, uint32_t M) {
    w4a4_case c;
    w4a4_make(&c, M, 18, 256, act);
    w4a4_check(&c);
    guard want = guard_copy(&c.C);
    const uint32_t size = num_size(c.act);
    const uint64_t row = 18ull * size;
    static const uint32_t bad[] = { 0x7fc00000, 0xffc00000, 0x7f810000, 0xffff0000, 0x7f800000, 0xff800000 }; /* NaNs, Inf and -Inf */
    for (uint32_t i = 0; i < N_OF(bad); i++) {
        uint8_t *const at = c.A.p + (c.a_stride + 77ull) * size;
        memcpy(at, (const uint8_t *)&bad[i] + 4 - size, size);
        w4a4_quantise(&c, 0, M);
        w4a4_project(&c, M, c.C.p);
        for (uint32_t k = 0; k < row; k++) assert_int_equal(c.C.p[row + k], k % size + 1 == size ? 0x7f : 0xff);
        assert_int_equal(memcmp(c.ag.p + 4, (const uint8_t[4]) { 0, 0, 0xc0, 0x7f }, 4), 0);
        assert_memory_equal(want.p, c.C.p, row);
        assert_memory_equal(want.p + 2 * row, c.C.p + 2 * row, (M - 2) * row);
    }
    w4a4_free(&c);
    guard_free(&want);
}
static void a_row_with_NaN_or_Inf_poisons_only_itself(void **state) {
    (void)state;
    static const uint32_t M[] = { 3, 9, 17, 40 };
    for (uint32_t i = 0; i < 2 * N_OF(M); i++) poisoned_row(i % 2 ? GDN_BF16 : GDN_F32, M[i / 2]);
}

/* A NaN scale of a weight row and an infinite scale2: NaN and Inf outputs have one form as well. */
static void NaN_of_weights_and_scale2(void **state) {
    (void)state;
    w4a4_case c;
    w4a4_make(&c, 3, 18, 256, GDN_BF16);
    memset(c.A.p + c.a_stride * 2ull, 0, c.K * 2ull); /* row 1: 0 * Inf */
    w4a4_quantise(&c, 0, 3);
    c.bs.p[5 * (c.K / 16) + 3] = 0x7f;
    c.bs.p[6 * (c.K / 16)] = 0xff;
    c.scale2 = INFINITY;
    w4a4_project(&c, 3, c.C.p);
    for (uint32_t i = 0; i < 3 * 18; i++) {
        const uint32_t got = c.C.p[2 * i] | (uint32_t)c.C.p[2 * i + 1] << 8, n = i % 18;
        assert_true(i / 18 == 1 || n == 5 || n == 6 ? got == 0x7fff : got == 0x7f80 || got == 0xff80 || got == 0x7fff);
    }
    w4a4_free(&c);
}

/* Control: one weight nibble, one scale code, one activation changed after the run are noticed. */
static void control_spoilt_inputs_are_noticed(void **state) {
    (void)state;
    w4a4_case c;
    w4a4_make(&c, 9, 40, 256, GDN_F32);
    w4a4_check(&c);
    uint8_t *spoil[] = { c.bq.p + 777, c.bs.p + 99, c.A.p + (5 * c.a_stride + 1) * (uint64_t)num_size(c.act) - 1, c.C.p + 3 };
    for (uint32_t i = 0; i < N_OF(spoil); i++) {
        *spoil[i] ^= 0x06;
        assert_false(w4a4_matches(&c));
        *spoil[i] ^= 0x06;
    }
    assert_true(w4a4_matches(&c));
    w4a4_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B114_padding_of_the_activation_block),
        cmocka_unit_test(B116_a_row_of_zeros),
        cmocka_unit_test(B118_ties_round_to_even),
        cmocka_unit_test(B120_scale_multiplies),
        cmocka_unit_test(B122_B121_B131_B133_lengths_of_k),
        cmocka_unit_test(guards_come_in_their_order),
        cmocka_unit_test(B124_rows_together_and_alone),
        cmocka_unit_test(B126_no_rows),
        cmocka_unit_test(B128_output_widths),
        cmocka_unit_test(B129_order_of_the_nibbles),
        cmocka_unit_test(a_row_with_NaN_or_Inf_poisons_only_itself),
        cmocka_unit_test(NaN_of_weights_and_scale2),
        cmocka_unit_test(control_spoilt_inputs_are_noticed),
    };
    return cmocka_run_group_tests_name("W4A4 cases", tests, target_setup, target_teardown);
}
