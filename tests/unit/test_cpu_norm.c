/* test_cpu_norm.c - gdn_cpu_gated_rmsnorm called directly, against f64.
 *
 * Outputs are poisoned; buffers end at pages without access, so a vector tail that reads or writes past a row faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <omp.h>

#include "cpu_kernels.h"
#include "guard.h"
#include "numeric.h"

static uint32_t type_of(bool f32) {
    return f32 ? GDN_F32 : GDN_BF16;
}

enum { MAX_DIM = 3584 };

typedef struct tcase {
    uint32_t rows, dim, heads, x_gap, z_gap, offset; /* offset: elements that x, z and w start past an aligned address */
    bool f32, weight_f32, sigmoid, in_place;
    double x_size, z_size;
} tcase;

/* One row in f64. `plus_one` is the control: 1 + w instead of w. */
static void reference(const tcase *t, const gdn_cpu_norm *c, const void *x, uint32_t r, bool plus_one, double *y) {
    const uint32_t type = type_of(t->f32);
    const uint64_t x0 = (uint64_t)(r / c->heads) * c->x_stride + (uint64_t)(r % c->heads) * c->dim;
    const uint64_t z0 = (uint64_t)(r / c->heads) * c->z_stride + (uint64_t)(r % c->heads) * c->dim;
    double s = 0;
    for (uint32_t k = 0; k < c->dim; k++) s += num_get(x, type, x0 + k) * num_get(x, type, x0 + k);
    for (uint32_t i = 0; i < c->dim; i++) {
        const double z = num_get(c->z, type, z0 + i), sig = 1 / (1 + exp(-z));
        const double w = num_get(c->w, type_of(t->weight_f32), i) + (plus_one ? 1 : 0);
        y[i] = num_get(x, type, x0 + i) / sqrt(s / c->dim + (double)c->eps) * w * (c->sigmoid ? sig : z * sig);
    }
}

/* Wrong elements of out. */
static uint64_t wrong(const tcase *t, const gdn_cpu_norm *c, const void *x, const void *out, bool plus_one) {
    uint64_t bad = 0;
    double want[MAX_DIM];
    for (uint32_t r = 0; r < t->rows; r++) {
        reference(t, c, x, r, plus_one, want);
        for (uint32_t i = 0; i < t->dim; i++) {
            const double got = num_get(out, type_of(t->f32), (uint64_t)r * t->dim + i);
            bad += !(fabs(got - want[i]) <= fabs(want[i]) * ((t->f32 ? 0 : 0x1p-8) + 2e-6) + 1e-36);
        }
    }
    return bad;
}

static void check(const tcase *t, bool control) {
    rng r = { t->rows * 131 + t->dim };
    const uint32_t type = type_of(t->f32), esz = num_size(type), wtype = type_of(t->weight_f32),
                   groups = (t->rows + t->heads - 1) / t->heads;
    gdn_cpu_norm c = { .rows = t->rows,
                       .dim = t->dim,
                       .heads = t->heads,
                       .x_stride = t->heads * t->dim + t->x_gap,
                       .z_stride = t->heads * t->dim + t->z_gap,
                       .eps = 1e-6f,
                       .f32 = t->f32,
                       .weight_f32 = t->weight_f32,
                       .sigmoid = t->sigmoid };
    guard x = guard_alloc(((uint64_t)groups * c.x_stride + t->offset) * esz),
          z = guard_alloc(((uint64_t)groups * c.z_stride + t->offset) * esz);
    guard w = guard_alloc((t->dim + t->offset) * num_size(wtype)), out = guard_alloc((uint64_t)t->rows * t->dim * esz), kept = { 0 };
    guard_poison(&x); /* gaps are NaN */
    guard_poison(&z);
    for (uint32_t g = 0; g < groups; g++) {
        num_fill(x.p + ((uint64_t)g * c.x_stride + t->offset) * esz, type, (uint64_t)t->heads * t->dim, &r, -t->x_size, t->x_size);
        num_fill(z.p + ((uint64_t)g * c.z_stride + t->offset) * esz, type, (uint64_t)t->heads * t->dim, &r, -t->z_size, t->z_size);
    }
    num_fill(w.p, wtype, t->dim + t->offset, &r, 0.5, 2);
    const uint8_t *const x0 = x.p + (size_t)t->offset * esz;
    c.z = z.p + (size_t)t->offset * esz, c.w = w.p + t->offset * num_size(wtype);
    for (c.isa = 0; c.isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); c.isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            if (t->in_place)
                guard_put(&out, x0);
            else
                guard_poison(&out);
            c.x = t->in_place ? out.p : x0, c.out = out.p;
            omp_set_num_threads(threads);
            gdn_cpu_gated_rmsnorm(&c);
            if (!kept.p) kept = guard_copy(&out);
            assert_memory_equal(kept.p, out.p, out.bytes);
        }
    assert_int_equal(wrong(t, &c, x0, out.p, false), 0);
    if (control) {
        assert_true(wrong(t, &c, x0, out.p, true) > 0); /* 1 + w instead of w */
        out.p[out.bytes - 1] ^= 1;                      /* a high bit of the last element */
        assert_int_equal(wrong(t, &c, x0, out.p, false), 1);
    }
    guard *const all[] = { &x, &z, &w, &out, &kept, NULL };
    for (size_t i = 0; all[i]; i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
}

static void test_control(void **state) {
    (void)state;
    check(&(tcase) { .rows = 3, .dim = 128, .heads = 1, .f32 = true, .weight_f32 = true, .x_size = 1, .z_size = 3 }, true);
}

static void test_shapes(void **state) {
    (void)state;
    static const uint32_t dims[] = { 1, 3, 5, 16, 17, 64, 96, 127, 128, 129, 384, 3584 };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (uint32_t v = 0; v < 8; v++) {
            const tcase t = { .rows = 7,
                              .dim = dims[i],
                              .heads = v & 1 ? 3 : 1,
                              .x_gap = v & 1 ? 5 : 0,
                              .z_gap = v & 2 ? 2 * dims[i] + 1 : 0,
                              .offset = v % 2,
                              .f32 = v & 4,
                              .weight_f32 = v & 2,
                              .sigmoid = v & 1,
                              .x_size = 1,
                              .z_size = 4 };
            check(&t, false);
        }
    check(&(tcase) { .rows = 300, .dim = 128, .heads = 4, .z_gap = 77, .x_size = 1, .z_size = 4 }, false);
}

static void test_in_place(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 4; v++)
        check(
            &(tcase) {
                .rows = 150, .dim = 128 + v, .heads = 2, .in_place = true, .f32 = v & 1, .sigmoid = v & 2, .x_size = 1, .z_size = 4 },
            false);
}

static void test_sizes_of_values(void **state) {
    (void)state;
    check(&(tcase) { .rows = 4, .dim = 128, .heads = 1, .x_size = 300, .z_size = 4 }, false);
    check(&(tcase) { .rows = 4, .dim = 128, .heads = 1, .f32 = true, .x_size = 1e-4, .z_size = 50 },
          false); /* eps matters, gates saturate */
    check(&(tcase) { .rows = 4, .dim = 128, .heads = 1, .f32 = true, .x_size = 1e15, .z_size = 80, .sigmoid = true }, false);
}

/* Weight 0 gives 0; weight 1 and z = 50 a plain norm times 50; gates far out stay finite. */
static void test_known_values(void **state) {
    (void)state;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); isa++) {
        float x[128], z[128], w[128], out[128];
        for (int i = 0; i < 128; i++) x[i] = 300, z[i] = 50, w[i] = i < 64 ? 0.0f : 1.0f;
        const gdn_cpu_norm c = { .x = x,
                                 .z = z,
                                 .w = w,
                                 .out = out,
                                 .rows = 1,
                                 .dim = 128,
                                 .heads = 1,
                                 .x_stride = 128,
                                 .z_stride = 128,
                                 .isa = isa,
                                 .eps = 1e-6f,
                                 .f32 = true,
                                 .weight_f32 = true };
        gdn_cpu_gated_rmsnorm(&c);
        for (int i = 0; i < 128; i++) assert_true(fabs((double)out[i] - (i < 64 ? 0 : 50)) < 1e-4);
        for (int i = 0; i < 128; i++) z[i] = i % 2 ? 1e4f : -1e4f;
        gdn_cpu_gated_rmsnorm(&c);
        for (int i = 0; i < 128; i++) assert_true(i % 2 == 0 || i < 64 ? out[i] == 0 : fabs((double)out[i] - 1e4) < 0.01);
    }
}

/* 131072 rows: more than a 16-bit grid; the last one is right. */
static void test_many_rows(void **state) {
    (void)state;
    enum { ROWS = 131072, DIM = 8 };
    float *const x = calloc((size_t)ROWS * DIM, sizeof *x);
    assert_non_null(x);
    float w[DIM] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    rng r = { 3 };
    num_fill(x + (size_t)(ROWS - 1) * DIM, GDN_F32, DIM, &r, -1, 1);
    guard out = guard_alloc((uint64_t)ROWS * DIM * 4);
    guard_poison(&out);
    const gdn_cpu_norm c = { .x = x,
                             .z = x,
                             .w = w,
                             .out = out.p,
                             .rows = ROWS,
                             .dim = DIM,
                             .heads = 32,
                             .x_stride = 32 * DIM,
                             .z_stride = 32 * DIM,
                             .isa = gdn_cpu_isa_pick(GDN_CPU_AVX512),
                             .eps = 1e-6f,
                             .f32 = true,
                             .weight_f32 = true };
    gdn_cpu_gated_rmsnorm(&c);
    const tcase t = { .rows = ROWS, .dim = DIM, .f32 = true, .weight_f32 = true };
    double want[DIM];
    reference(&t, &c, x, ROWS - 1, false, want);
    for (uint32_t i = 0; i < DIM; i++) assert_true(fabs(num_get(out.p, GDN_F32, (uint64_t)(ROWS - 1) * DIM + i) - want[i]) < 1e-5);
    assert_true(num_get(out.p, GDN_F32, 0) == 0);
    guard_free(&out);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control),  cmocka_unit_test(test_known_values),    cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_in_place), cmocka_unit_test(test_sizes_of_values), cmocka_unit_test(test_many_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
