/* test_engine_rows.c - the dense operations of the target's memory, bf16, against f64: OpenBLAS and loops on the cpu target, cuBLAS and
 * the engine's own kernels on a GPU target. Every output is poisoned before, and must end where it should. */
#include "arena.h"
#include "dense.h"
#include "target.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 };
static const gdn__dense *d;
static void *ctx;
static gdn__arena mem;
static rng r = { 77 };

static double rounded(double x) {
    return num_from_bf16(num_to_bf16(x));
}

/* n random values that bf16 holds, in [lo, hi]. */
static float *values(uint64_t n, double lo, double hi) {
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) x[i] = (float)rounded(rng_uniform(&r, lo, hi));
    return x;
}

static uint64_t put(const float *x, uint64_t n, uint32_t type) {
    uint64_t p = 0;
    assert_int_equal(gdn__arena_put(&mem, x, n, type, &p, NULL), GDN_OK);
    return p;
}

static uint64_t poisoned(uint64_t n, uint32_t type) {
    uint64_t p = 0;
    const uint64_t bytes = (n + GUARD) * gdn__type_bytes(type);
    assert_int_equal(gdn__arena_take(&mem, bytes, &p, NULL), GDN_OK);
    assert_int_equal(gdn_fill(target(), NULL, p, 0xff, bytes), GDN_OK);
    return p;
}

/* The n elements of an output; behind them the poison must be whole. */
static float *result(uint64_t p, uint64_t n, uint32_t type) {
    float *y = malloc((size_t)(n + GUARD) * sizeof *y);
    assert_non_null(y);
    assert_int_equal(gdn__arena_get(&mem, p, n + GUARD, type, y, NULL), GDN_OK);
    for (uint32_t i = 0; i < GUARD; i++)
        if (!isnan(y[n + i])) fail_msg("element %u past the end was written", i);
    return y;
}

/* Places among the bf16 values between a and b. */
static int32_t place(double x) {
    const int32_t bits = num_to_bf16(x);
    return bits & 0x8000 ? -(bits & 0x7fff) : bits;
}

static bool near(float got, double want, int32_t places) {
    return isfinite(got) && abs(place((double)got) - place(want)) <= places;
}

/* Every element within `places` of the f64 value; moved by one element, as a control, most are not. */
static void expect(const float *got, const double *want, uint64_t n, int32_t places, const char *what) {
    uint64_t alike = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!near(got[i], want[i], places))
            fail_msg("%s: element %llu is %g, expected %g", what, (unsigned long long)i, (double)got[i], want[i]);
        alike += near(got[i], want[(i + 1) % n], places);
    }
    if (n > 20 && alike > n / 2) fail_msg("%s: the control agrees", what);
}

static const uint32_t dims[] = { 1, 31, 256, 257, 700 };

static void embed(void **state) {
    (void)state;
    static const uint32_t tokens[] = { 6, 0, 3, 6 };
    uint64_t where = 0;
    assert_int_equal(gdn__arena_take(&mem, sizeof tokens, &where, NULL), GDN_OK);
    assert_int_equal(gdn_copy_in(target(), NULL, where, tokens, sizeof tokens), GDN_OK);
    for (size_t i = 0; i < N_OF(dims); i++) {
        const uint32_t dim = dims[i];
        float *w = values(7ull * dim, -2, 2);
        const uint64_t out = poisoned(4ull * dim, GDN_BF16);
        assert_int_equal(d->embed(ctx, put(w, 7ull * dim, d->weight_type(GDN_BF16)), where, out, 4, dim), GDN_OK);
        float *y = result(out, 4ull * dim, GDN_BF16);
        for (uint32_t t = 0; t < 4; t++) assert_memory_equal(y + (size_t)t * dim, w + (size_t)tokens[t] * dim, dim * sizeof *y);
        free(y);
        free(w);
    }
}

static void rms_norm(void **state) {
    (void)state;
    enum { ROWS = 5 };
    for (size_t i = 0; i < N_OF(dims); i++) {
        const uint64_t dim = dims[i], n = ROWS * dim;
        float *x = values(n, -3, 3), *w = values(dim, 0.5, 1.5);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        for (uint64_t row = 0; row < ROWS; row++) {
            double sum = 0;
            for (uint64_t k = 0; k < dim; k++) sum += (double)x[row * dim + k] * (double)x[row * dim + k];
            for (uint64_t k = 0; k < dim; k++)
                want[row * dim + k] = (double)x[row * dim + k] / sqrt(sum / (double)dim + 1e-6) * (double)w[k];
        }
        const uint64_t out = poisoned(n, GDN_BF16);
        assert_int_equal(d->rms_norm(ctx, put(x, n, GDN_BF16), put(w, dim, GDN_F32), out, ROWS, (uint32_t)dim, 1e-6f), GDN_OK);
        float *y = result(out, n, GDN_BF16);
        expect(y, want, n, 1, "rms_norm");
        free(y);
        free(want);
        free(w);
        free(x);
    }
}

static void add(void **state) {
    (void)state;
    for (size_t i = 0; i < N_OF(dims); i++) {
        const uint64_t n = 3ull * dims[i];
        float *x = values(n, -3, 3), *y0 = values(n + GUARD, -3, 3);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        for (uint64_t k = 0; k < n; k++) want[k] = (double)x[k] + (double)y0[k];
        for (uint64_t k = 0; k < GUARD; k++) y0[n + k] = NAN;
        const uint64_t out = put(y0, n + GUARD, GDN_BF16);
        assert_int_equal(d->add(ctx, put(x, n, GDN_BF16), out, n), GDN_OK);
        float *y = result(out, n, GDN_BF16);
        expect(y, want, n, 0, "add");
        free(y);
        free(want);
        free(y0);
        free(x);
    }
}

static void silu_mul(void **state) {
    (void)state;
    enum { ROWS = 3 };
    for (size_t i = 0; i < N_OF(dims); i++) {
        const uint64_t dim = dims[i], n = ROWS * dim;
        float *x = values(2 * n, -8, 8);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        for (uint64_t k = 0; k < n; k++) {
            const float *gate = x + k / dim * 2 * dim + k % dim;
            want[k] = rounded((double)*gate / (1 + exp(-(double)*gate))) * (double)gate[dim];
        }
        const uint64_t out = poisoned(n, GDN_BF16);
        assert_int_equal(d->silu_mul(ctx, put(x, 2 * n, GDN_BF16), out, ROWS, (uint32_t)dim), GDN_OK);
        float *y = result(out, n, GDN_BF16);
        expect(y, want, n, 2, "silu_mul"); /* a first rounding that falls the other way moves the product by up to two places */
        free(y);
        free(want);
        free(x);
    }
}

static void product(uint32_t rows, uint32_t in, uint32_t out, uint32_t type) {
    const uint64_t n = (uint64_t)rows * out;
    float *x = values((uint64_t)rows * in, -1, 1), *w = values((uint64_t)out * in, -1, 1);
    const uint64_t to = poisoned(n, type);
    const bool rounds = type == GDN_BF16 || target_is_cpu(); /* dense.h */
    uint64_t alike = 0;
    assert_int_equal(d->matmul(ctx, put(x, (uint64_t)rows * in, GDN_BF16), put(w, (uint64_t)out * in, d->weight_type(GDN_BF16)), to, rows,
                               in, out, type),
                     GDN_OK);
    float *y = result(to, n, type);
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0, size = 0, other = 0;
        for (uint32_t k = 0; k < in; k++) {
            const double a = (double)x[i / out * in + k];
            sum += a * (double)w[i % out * in + k];
            other += a * (double)w[(i + 1) % out * in + k]; /* the control */
            size += fabs(a * (double)w[i % out * in + k]);
        }
        const double bound = (rounds ? fabs(sum) * 0x1p-8 : 0) + size * 1e-6;
        if (!(fabs((double)y[i] - sum) <= bound)) fail_msg("%u x %u x %u: %g, expected %g", rows, in, out, (double)y[i], sum);
        assert_true(!rounds || ((double)y[i] >= rounded((double)y[i]) && (double)y[i] <= rounded((double)y[i])));
        alike += fabs((double)y[i] - other) <= bound;
    }
    if (n > 20 && alike > n / 2) fail_msg("%u x %u x %u: the control agrees", rows, in, out);
    free(y);
    free(w);
    free(x);
}

static void products(void **state) {
    (void)state;
    static const uint32_t sizes[][3] = { { 1, 256, 96 }, { 4, 40, 131 }, { 3, 8, 33 }, { 65, 72, 40 }, { 1, 700, 3 } };
    for (size_t i = 0; i < N_OF(sizes); i++) {
        product(sizes[i][0], sizes[i][1], sizes[i][2], GDN_BF16);
        product(sizes[i][0], sizes[i][1], sizes[i][2], GDN_F32);
    }
}

static int setup(void **state) {
    if (target_setup(state)) return -1;
    char why[900] = "";
    gdn_text err = { why, sizeof why, 0 };
    mem.g = target();
    d = gdn__dense_for(target());
    assert_non_null(d);
    if (d->open(target(), NULL, GDN_BF16, 1 << 20, &ctx, &err) != GDN_OK) fail_msg("%s", why);
    return 0;
}

static int teardown(void **state) {
    d->close(ctx);
    gdn__arena_free(&mem);
    return target_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed), cmocka_unit_test(rms_norm), cmocka_unit_test(add), cmocka_unit_test(silu_mul), cmocka_unit_test(products),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
