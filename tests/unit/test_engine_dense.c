/* test_engine_dense.c - the dense table on host memory: products against f64, rows alike alone and together, in any number
 * of threads; OpenBLAS's own thread count comes back. */
#include "dense.h"
#include "numbers.h"
#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const gdn__dense *const d = &gdn__dense_blas;

static float value(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return gdn__round_bf16((float)(*seed >> 8) * 0x1p-24f - 0.5f);
}

static uint64_t address(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

typedef struct problem {
    uint32_t rows, in, out;
    float *x, *w, *y, *again;
    void *ctx;
} problem;

static problem make(uint32_t rows, uint32_t in, uint32_t out) {
    problem p = { .rows = rows, .in = in, .out = out };
    uint32_t seed = rows * 7 + in;
    p.x = malloc((size_t)rows * in * sizeof *p.x);
    p.w = malloc((size_t)in * out * sizeof *p.w);
    p.y = malloc((size_t)rows * out * sizeof *p.y);
    p.again = malloc((size_t)rows * out * sizeof *p.again);
    assert_true(p.x && p.w && p.y && p.again);
    for (uint64_t i = 0; i < (uint64_t)rows * in; i++) p.x[i] = value(&seed);
    for (uint64_t i = 0; i < (uint64_t)in * out; i++) p.w[i] = value(&seed);
    assert_int_equal(d->open(NULL, NULL, GDN_F32, (uint64_t)rows * (in > out ? in : out), &p.ctx, NULL), GDN_OK);
    return p;
}

static void drop(problem *p) {
    d->close(p->ctx);
    free(p->again);
    free(p->y);
    free(p->w);
    free(p->x);
}

static void run(const problem *p, uint32_t first, uint32_t rows, float *y) {
    assert_int_equal(d->matmul(p->ctx, address(p->x + (size_t)first * p->in), address(p->w), address(y), rows, p->in, p->out, GDN_F32),
                     GDN_OK);
}

/* |error| / sum |x w| of the worst element; `turn`: of w taken as its neighbour's row, the control. */
static double worst(const problem *p, uint32_t turn) {
    double most = 0;
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t o = 0; o < p->out; o++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < p->in; k++) {
                const double t = (double)p->x[(size_t)r * p->in + k] * (double)p->w[(size_t)((o + turn) % p->out) * p->in + k];
                sum += t;
                size += fabs(t);
            }
            most = fmax(most, fabs(sum - (double)p->y[(size_t)r * p->out + o]) / size);
        }
    return most;
}

static void values(void **state) {
    (void)state;
    static const uint32_t sizes[][3] = { { 1, 256, 1536 }, { 4, 768, 256 }, { 3, 40, 131 },   { 2, 8, 1 },     { 4, 2048, 513 },
                                         { 5, 64, 700 },   { 64, 40, 96 },  { 129, 72, 515 }, { 300, 33, 77 }, { 1, 70000, 3 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem p = make(sizes[i][0], sizes[i][1], sizes[i][2]);
        run(&p, 0, p.rows, p.y);
        const double e = worst(&p, 0);
        if (!(e < 1e-6)) fail_msg("%u x %u x %u: %g", p.rows, p.in, p.out, e);
        if (p.out > 1 && !(worst(&p, 1) > 1e-3)) fail_msg("%u x %u x %u: the control agrees", p.rows, p.in, p.out);
        drop(&p);
    }
}

/* What a verified row says is what a decoded one would: the same bits. */
static void few_rows_are_alike(void **state) {
    (void)state;
    static const uint32_t sizes[][2] = {
        { 256, 1536 }, { 512, 256 }, { 768, 256 }, { 256, 257 }, { 40, 131 }, { 1003, 66 }, { 5120, 200 }
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem p = make(4, sizes[i][0], sizes[i][1]);
        run(&p, 0, 4, p.y);
        for (uint32_t rows = 1; rows < 4; rows++)
            for (uint32_t first = 0; first + rows <= 4; first++) {
                run(&p, first, rows, p.again);
                assert_memory_equal(p.again, p.y + (size_t)first * p.out, (size_t)rows * p.out * sizeof *p.y);
            }
        p.x[0] += 0.25f; /* the control */
        run(&p, 0, 1, p.again);
        assert_memory_not_equal(p.again, p.y, p.out * sizeof *p.y);
        drop(&p);
    }
}

static void any_number_of_threads(void **state) {
    (void)state;
    const int before = omp_get_max_threads();
    for (uint32_t rows = 1; rows < 400; rows += rows < 5 ? 1 : 197) {
        problem p = make(rows, 256, 1536);
        for (int threads = 1; threads <= 3; threads++) {
            omp_set_num_threads(threads);
            run(&p, 0, rows, threads == 1 ? p.y : p.again);
            if (threads > 1) assert_memory_equal(p.again, p.y, (size_t)rows * p.out * sizeof *p.y);
        }
        omp_set_num_threads(before);
        drop(&p);
    }
}

static void threads_of_the_library(void **state) {
    (void)state;
    void *a = NULL, *b = NULL;
    openblas_set_num_threads(3);
    assert_int_equal(d->open(NULL, NULL, GDN_F32, 64, &a, NULL), GDN_OK);
    assert_int_equal(openblas_get_num_threads(), 1);
    assert_int_equal(d->open(NULL, NULL, GDN_BF16, 64, &b, NULL), GDN_OK);
    d->close(a);
    assert_int_equal(openblas_get_num_threads(), 1); /* b still needs it so */
    d->close(b);
    assert_int_equal(openblas_get_num_threads(), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(few_rows_are_alike),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(threads_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
