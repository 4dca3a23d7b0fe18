/* test_norm_cases.c - public reports about the gated RMS norm, each named by its id. */
#include "guard.h"
#include "numeric.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct norm_case {
    gdn_norm_shape s;
    uint32_t rows, groups, xs, zs; /* strides as used */
    guard x, z, w, out;
} norm_case;

/* groups * heads rows; pads are elements between groups. */
static void make(norm_case *c, uint32_t dim, uint32_t heads, uint32_t groups, uint32_t x_pad, uint32_t z_pad, uint32_t act,
                 uint32_t weight) {
    rng r = { dim * 7 + heads };
    const uint64_t size = num_size(act);
    *c = (norm_case) { .rows = groups * heads, .groups = groups, .xs = heads * dim + x_pad, .zs = heads * dim + z_pad };
    c->s = (gdn_norm_shape) { .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, act),
                              .dim = dim,
                              .heads = heads == 1 ? 0 : heads,
                              .x_stride = x_pad ? c->xs : 0,
                              .z_stride = z_pad ? c->zs : 0,
                              .act = GDN_NORM_SILU,
                              .weight_type = weight,
                              .max_rows = c->rows,
                              .eps = 1e-6f };
    c->x = guard_alloc(groups * c->xs * size);
    c->z = guard_alloc(groups * c->zs * size);
    c->w = guard_alloc((uint64_t)dim * num_size(weight));
    c->out = guard_alloc((uint64_t)c->rows * dim * size);
    guard_poison(&c->x);
    guard_poison(&c->z);
    guard_poison(&c->out);
    for (uint64_t t = 0; t < groups; t++) {
        num_fill(c->x.p + t * c->xs * size, act, (uint64_t)heads * dim, &r, -1, 1);
        num_fill(c->z.p + t * c->zs * size, act, (uint64_t)heads * dim, &r, -3, 3);
    }
    num_fill(c->w.p, weight, dim, &r, 0.3, 1.7);
}

static void drop(norm_case *c) {
    guard_free(&c->x);
    guard_free(&c->z);
    guard_free(&c->w);
    guard_free(&c->out);
}

static void run(norm_case *c) {
    const uint64_t ptr[] = { addr_of(c->x.p), addr_of(c->z.p), addr_of(c->w.p), addr_of(c->out.p) };
    run_ok(&c->s, N_OF(ptr), ptr, 1, &c->rows);
}

static bool row_matches(const norm_case *c, uint32_t row) {
    const uint32_t dim = c->s.dim, heads = c->s.heads ? c->s.heads : 1;
    double *b = malloc(5ull * dim * sizeof *b);
    assert_non_null(b);
    for (uint32_t i = 0; i < dim; i++) {
        b[i] = num_get(c->x.p, c->s.base.act_type, (uint64_t)(row / heads) * c->xs + (uint64_t)(row % heads) * dim + i);
        b[dim + i] = num_get(c->z.p, c->s.base.act_type, (uint64_t)(row / heads) * c->zs + (uint64_t)(row % heads) * dim + i);
        b[2 * dim + i] = num_get(c->w.p, c->s.weight_type, i);
        b[4 * dim + i] = num_get(c->out.p, c->s.base.act_type, (uint64_t)row * dim + i);
    }
    oracle_norm(b, b + dim, b + 2 * dim, dim, (double)c->s.eps, c->s.act == GDN_NORM_SIGMOID, b + 3 * dim);
    const num_error e = num_compare(b + 3 * dim, b + 4 * dim, dim);
    free(b);
    return num_close(&e, c->s.base.act_type == GDN_F32 ? 1e-6 : 3e-3);
}

static void check(norm_case *c) {
    for (uint32_t i = 0; i < 2; i++) {
        guard_poison(&c->out);
        run(c);
        for (uint32_t r = 0; r < c->rows; r++) {
            if (!row_matches(c, r)) fail_msg("dim %u, row %u", c->s.dim, r);
        }
    }
    assert_true(guard_ok(&c->out) && guard_ok(&c->x) && guard_ok(&c->z));
}

static void B101_silu_and_sigmoid(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        norm_case c;
        make(&c, 128, 6, 3, 0, 0, i & 1 ? GDN_BF16 : GDN_F32, i & 2 ? GDN_BF16 : GDN_F32);
        c.s.act = i & 4 ? GDN_NORM_SIGMOID : GDN_NORM_SILU;
        check(&c);
        c.s.act = i & 4 ? GDN_NORM_SILU : GDN_NORM_SIGMOID; /* control: the other activation is another result */
        assert_false(row_matches(&c, 4));
        drop(&c);
    }
    gdn_norm_shape s = {
        .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, GDN_F32), .dim = 8, .act = 3, .weight_type = GDN_F32, .max_rows = 1, .eps = 1e-6f
    };
    plan_fails(&s, GDN_E_ARG, "act");
    s.act = 0;
    plan_fails(&s, GDN_E_ARG, "act");
}

static void B102_weight_is_plain_and_the_gate_comes_after(void **state) {
    (void)state;
    norm_case c;
    make(&c, 128, 1, 2, 0, 0, GDN_F32, GDN_F32);
    memset(c.w.p, 0, c.w.bytes);
    run(&c);
    for (uint64_t i = 0; i < c.out.bytes / 4; i++) assert_true(num_get(c.out.p, GDN_F32, i) == 0);
    for (uint64_t i = 0; i < 128; i++) num_put(c.w.p, GDN_F32, i, 1);
    check(&c);
    for (uint32_t i = 0; i < 256; i++) {
        num_put(c.z.p, GDN_F32, i, 50);
        num_put(c.x.p, GDN_F32, i, 1e-3 * (i % 7 + 1));
    }
    check(&c); /* norm(x) * w * silu(z), about 50 times the norm */
    drop(&c);
}

static void B104_large_values(void **state) {
    (void)state;
    for (uint32_t act = GDN_BF16; act <= GDN_F32; act++) {
        norm_case c;
        make(&c, 128, 1, 3, 0, 0, act, GDN_F32);
        for (uint64_t i = 0; i < 3 * 128; i++) num_put(c.x.p, act, i, i < 128 ? 300 : i < 256 ? 1e18 : -1e-3);
        check(&c);
        drop(&c);
    }
}

static void B106_odd_widths(void **state) {
    (void)state;
    static const uint32_t dims[] = { 1, 2, 3, 7, 15, 17, 33, 127, 129 };
    for (uint32_t i = 0; i < 2 * N_OF(dims); i++) {
        norm_case c;
        make(&c, dims[i / 2], 1, 7, 0, 0, i % 2 ? GDN_BF16 : GDN_F32, GDN_F32);
        check(&c);
        drop(&c);
    }
}

static void B107_wide_rows(void **state) {
    (void)state;
    static const uint32_t dims[] = { 96, 384, 3584 };
    for (uint32_t i = 0; i < 2 * N_OF(dims); i++) {
        norm_case c;
        make(&c, dims[i / 2], 2, 3, 0, 0, i % 2 ? GDN_BF16 : GDN_F32, GDN_BF16);
        check(&c);
        drop(&c);
    }
}

/* guard buffers end at a page: an odd dim makes every base odd; here the bases are moved by one element besides. */
static void B108_bases_one_element_off(void **state) {
    (void)state;
    for (uint32_t act = GDN_BF16; act <= GDN_F32; act++) {
        norm_case c;
        make(&c, 128, 1, 3, 1, 1, act, act);
        const uint64_t size = num_size(act);
        guard w = guard_alloc(129 * size);
        memcpy(w.p, c.w.p, c.w.bytes); /* w at an odd element: the buffer ends at a page */
        check(&c);
        guard want = guard_copy(&c.out);
        guard out = guard_alloc(c.out.bytes + size);
        guard_poison(&out);
        const uint64_t ptr[] = { addr_of(c.x.p), addr_of(c.z.p), addr_of(w.p), addr_of(out.p) };
        assert_true(addr_of(w.p) % 16 != 0 && addr_of(out.p) % 16 != 0);
        run_ok(&c.s, N_OF(ptr), ptr, 1, &c.rows);
        assert_memory_equal(want.p, out.p, want.bytes);
        for (uint64_t i = 0; i < size; i++) assert_int_equal(out.p[want.bytes + i], 0xFF);
        guard_free(&w);
        guard_free(&want);
        guard_free(&out);
        drop(&c);
    }
}

static void B109_many_rows(void **state) {
    (void)state;
    norm_case c;
    make(&c, 8, 32, TEST_LIGHT ? 300 : 4096, 0, 0, GDN_F32, GDN_F32); /* 131072 rows */
    run(&c);
    for (uint32_t r = 0; r < c.rows; r += 1031) assert_true(row_matches(&c, r));
    assert_true(row_matches(&c, c.rows - 1));
    drop(&c);
}

static void B112_strided_inputs(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        norm_case c;
        make(&c, 128, 6, 5, i & 1 ? 3 : 0, i & 2 ? 513 : 0, i & 4 ? GDN_BF16 : GDN_F32, GDN_F32);
        check(&c); /* the gaps are NaN */
        drop(&c);
    }
}

static void in_place_and_every_row_alone(void **state) {
    (void)state;
    norm_case c;
    make(&c, 128, 6, 5, 0, 7, GDN_F32, GDN_F32);
    check(&c);
    guard want = guard_copy(&c.out);
    gdn_hplan *p = plan_ok(&c.s);
    for (uint32_t t = 0; t < 5; t++) { /* one group at a time */
        const uint64_t ptr[] = { addr_of(c.x.p) + t * c.xs * 4ull, addr_of(c.z.p) + t * c.zs * 4ull, addr_of(c.w.p),
                                 addr_of(c.out.p) + t * 6 * 128 * 4ull };
        const uint32_t six = 6;
        memset(c.out.p + t * 6 * 128 * 4ull, 0xFF, 6 * 128 * 4);
        assert_int_equal(launch(p, 4, ptr, 1, &six), GDN_OK);
    }
    assert_memory_equal(want.p, c.out.p, want.bytes);
    const uint64_t ptr[] = { addr_of(c.x.p), addr_of(c.z.p), addr_of(c.w.p), addr_of(c.x.p) };
    assert_int_equal(launch(p, 4, ptr, 1, &c.rows), GDN_OK);
    assert_memory_equal(want.p, c.x.p, want.bytes);
    gdn_plan_free(p);
    guard_free(&want);
    drop(&c);
}

/* An all-zero row divides by sqrt(eps): zero, not NaN; a NaN stays in its row. */
static void zero_rows_and_NaN_rows(void **state) {
    (void)state;
    norm_case c;
    make(&c, 128, 1, 3, 0, 0, GDN_F32, GDN_F32);
    memset(c.x.p, 0, 512);
    num_put(c.x.p, GDN_F32, 128 + 5, NAN);
    run(&c);
    for (uint64_t i = 0; i < 128; i++) assert_true(num_get(c.out.p, GDN_F32, i) == 0);
    assert_true(row_matches(&c, 2) && !row_matches(&c, 1));
    drop(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B101_silu_and_sigmoid),
        cmocka_unit_test(B102_weight_is_plain_and_the_gate_comes_after),
        cmocka_unit_test(B104_large_values),
        cmocka_unit_test(B106_odd_widths),
        cmocka_unit_test(B107_wide_rows),
        cmocka_unit_test(B108_bases_one_element_off),
        cmocka_unit_test(B109_many_rows),
        cmocka_unit_test(B112_strided_inputs),
        cmocka_unit_test(in_place_and_every_row_alone),
        cmocka_unit_test(zero_rows_and_NaN_rows),
    };
    return cmocka_run_group_tests_name("norm cases", tests, target_setup, target_teardown);
}
