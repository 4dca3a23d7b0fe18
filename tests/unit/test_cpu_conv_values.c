/* test_cpu_conv_values.c - gdn_cpu_conv1d on small cases whose answers are written out, and where random ones do not reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "cpu_kernels.h"
#include "guard.h"
#include "numeric.h"

/* Known values: a delay, a short piece, a wide state. */
static void test_known_values(void **state) {
    (void)state;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); isa++) {
        float x[8], y[8], w[4] = { 1, 0, 0, 0 };
        for (int i = 0; i < 8; i++) x[i] = (float)(i + 1);
        gdn_cpu_conv c = { .x = x,
                           .weight = w,
                           .out = y,
                           .batch = 1,
                           .seq_len = 8,
                           .channels = 1,
                           .width = 4,
                           .state_len = 3,
                           .x_stride = 1,
                           .out_stride = 1,
                           .slot_stride = 3,
                           .isa = isa,
                           .f32 = true,
                           .weight_f32 = true };
        gdn_cpu_conv1d(&c);
        const float delayed[8] = { 0, 0, 0, 1, 2, 3, 4, 5 };
        assert_memory_equal(y, delayed, sizeof y);
        const float reversed[4] = { 0, 0, 0, 1 }; /* control: taps the other way round do not delay */
        c.weight = reversed;
        gdn_cpu_conv1d(&c);
        assert_memory_equal(y, x, sizeof y);
        assert_memory_not_equal(y, delayed, sizeof y);
        c.weight = w;

        float s[3] = { 11, 12, 13 };
        c.state = s, c.seq_len = 1;
        gdn_cpu_conv1d(&c);
        assert_true(s[0] == 12 && s[1] == 13 && s[2] == 1 && y[0] == 11);
        c.seq_len = 2;
        gdn_cpu_conv1d(&c);
        assert_true(s[0] == 1 && s[1] == 1 && s[2] == 2 && y[0] == 12 && y[1] == 13);

        float wide[6] = { 1, 2, 3, 4, 5, 6 }; /* the window is the first three columns; the others stay */
        c.state = wide, c.state_len = 6, c.slot_stride = 6, c.seq_len = 1, x[0] = 9;
        gdn_cpu_conv1d(&c);
        assert_true(y[0] == 1 && wide[0] == 2 && wide[1] == 3 && wide[2] == 9 && wide[3] == 4 && wide[4] == 5 && wide[5] == 6);
        const int32_t two = 2; /* ... unless rows were accepted */
        float again[6] = { 1, 2, 3, 4, 5, 6 };
        c.state = again, c.accepted = &two;
        gdn_cpu_conv1d(&c);
        assert_true(y[0] == 3 && again[0] == 4 && again[1] == 5 && again[2] == 9 && again[3] == 4 && again[4] == 5 && again[5] == 6);
    }
}

/* Accepting na of 4 verify rows and going on is the same as having run those rows. */
static void test_accept_is_an_offset(void **state) {
    (void)state;
    enum { C = 5, T = 4 };
    rng r = { 77 };
    for (int32_t na = 0; na <= T; na++) {
        float x[(T + 2) * C], w[C * 4], spec[C * 7], plain[C * 3], out[(T + 2) * C], out2[2 * C];
        num_fill(x, GDN_F32, (T + 2) * C, &r, -1, 1);
        num_fill(w, GDN_F32, C * 4, &r, -1, 1);
        num_fill(plain, GDN_F32, C * 3, &r, -1, 1);
        num_fill(spec, GDN_F32, C * 7, &r, -1, 1);
        for (int ch = 0; ch < C; ch++) memcpy(spec + ch * 7, plain + ch * 3, 12);
        gdn_cpu_conv c = { .x = x,
                           .weight = w,
                           .out = out,
                           .state = spec,
                           .batch = 1,
                           .seq_len = T,
                           .channels = C,
                           .width = 4,
                           .state_len = 7,
                           .x_stride = C,
                           .out_stride = C,
                           .slot_stride = C * 7,
                           .f32 = true,
                           .weight_f32 = true,
                           .silu = true,
                           .keep_rows = true };
        gdn_cpu_conv1d(&c);
        c.accepted = &na, c.keep_rows = false, c.seq_len = 2, c.x = x + T * C;
        gdn_cpu_conv1d(&c);

        c.accepted = NULL, c.state = plain, c.state_len = 3, c.slot_stride = C * 3, c.out = out2, c.seq_len = (uint32_t)na, c.x = x;
        if (na) {
            float sink[T * C];
            c.out = sink;
            gdn_cpu_conv1d(&c);
        }
        c.out = out2, c.seq_len = 2, c.x = x + T * C;
        gdn_cpu_conv1d(&c);
        assert_memory_equal(out, out2, sizeof out2);
        for (int ch = 0; ch < C; ch++) assert_memory_equal(spec + ch * 7, plain + ch * 3, 12);
    }
}

/* Rows and slots past 2^31 elements. The buffers are address space; only what is used gets memory. */
static void test_far_rows(void **state) {
    (void)state;
    enum { C = 4096, FIRST = 600000, T = 3 };
    guard x = guard_alloc((uint64_t)(FIRST + T) * C * 2), y = guard_alloc((uint64_t)(FIRST + T) * C * 2),
          pool = guard_alloc((uint64_t)200001 * C * 3 * 2);
    rng r = { 4 };
    uint16_t w[C * 4], near_x[T * C], near_y[T * C], near_s[C * 3];
    num_fill(w, GDN_BF16, C * 4, &r, -1, 1);
    num_fill(near_x, GDN_BF16, T * C, &r, -1, 1);
    num_fill(near_s, GDN_BF16, C * 3, &r, -1, 1);
    memcpy(x.p + (uint64_t)FIRST * C * 2, near_x, sizeof near_x);
    memcpy(pool.p + (uint64_t)200000 * C * 3 * 2, near_s, sizeof near_s);
    const int32_t cu[2] = { FIRST, FIRST + T }, slot = 200000;
    gdn_cpu_conv c = { .x = x.p,
                       .weight = w,
                       .out = y.p,
                       .state = pool.p,
                       .slots = &slot,
                       .cu = cu,
                       .batch = 1,
                       .channels = C,
                       .width = 4,
                       .state_len = 3,
                       .x_stride = C,
                       .out_stride = C,
                       .slot_stride = C * 3,
                       .silu = true };
    gdn_cpu_conv1d(&c);
    c.x = near_x, c.out = near_y, c.state = near_s, c.slots = NULL, c.cu = NULL, c.seq_len = T;
    gdn_cpu_conv1d(&c);
    assert_memory_equal(y.p + (uint64_t)FIRST * C * 2, near_y, sizeof near_y);
    assert_memory_equal(pool.p + (uint64_t)200000 * C * 3 * 2, near_s, sizeof near_s);
    guard_free(&x);
    guard_free(&y);
    guard_free(&pool);
}

static void test_extreme_silu(void **state) {
    (void)state;
    const float x[12] = { 0, -0.0f, 88.5f, 89, 1e30f, -88, -103, -1e30f, 1e-30f, INFINITY, NAN, -20 }, w = 1;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); isa++) {
        float y[12];
        const gdn_cpu_conv c = { .x = x,
                                 .weight = &w,
                                 .out = y,
                                 .batch = 1,
                                 .seq_len = 12,
                                 .channels = 1,
                                 .width = 1,
                                 .x_stride = 1,
                                 .out_stride = 1,
                                 .isa = isa,
                                 .f32 = true,
                                 .weight_f32 = true,
                                 .silu = true };
        gdn_cpu_conv1d(&c);
        for (int i = 0; i < 12; i++) {
            const double want = (double)x[i] / (1 + exp(-(double)x[i]));
            if (x[i] != x[i])
                assert_true(isnan(y[i]));
            else
                assert_true((double)y[i] == want || fabs((double)y[i] - want) <= 3e-7 * fabs(want) + 3e-37);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_accept_is_an_offset),
        cmocka_unit_test(test_far_rows),
        cmocka_unit_test(test_extreme_silu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
