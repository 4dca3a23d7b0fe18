/* test_gates_cases.c - public reports about the gates, each named by its id: gates (elementwise), ba_gates and ba_gemv
 * (projection fused with them). The clamps at 20 are the contract; f64 follows them. */
#include "guard.h"
#include "numeric.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct gates_case {
    gdn_gates_shape s;
    uint32_t rows;
    guard ab, A_log, dt, out; /* ab: one wide row that holds both */
    uint64_t a_at, b_at;      /* elements into a row */
} gates_case;

enum { ROW_PAD = 5 };

/* rows of `width` elements; unused columns are NaN. */
static void make(gates_case *c, uint32_t rows, uint32_t nv, uint32_t act, uint32_t width, uint64_t a_at, uint64_t b_at, uint32_t vpg) {
    rng r = { rows * 31 + nv };
    *c = (gates_case) { .rows = rows, .a_at = a_at, .b_at = b_at };
    c->s = (gdn_gates_shape) { .base = SHAPE_BASE(gdn_gates_shape, GDN_OP_GATES, act),
                               .nv = nv,
                               .a_stride = width,
                               .b_stride = width,
                               .gate_stride = 2 * nv + ROW_PAD,
                               .vheads_per_group = vpg,
                               .gate_form = GDN_GATE_LINEAR,
                               .param_type = GDN_F32,
                               .max_rows = rows };
    c->ab = guard_alloc((uint64_t)rows * width * num_size(act));
    c->A_log = guard_alloc(nv * 4u);
    c->dt = guard_alloc(nv * 4u);
    c->out = guard_alloc((uint64_t)rows * c->s.gate_stride * 4);
    guard_poison(&c->ab);
    guard_poison(&c->out);
    num_fill(c->A_log.p, GDN_F32, nv, &r, -3, 1.5);
    num_fill(c->dt.p, GDN_F32, nv, &r, -2, 2);
    for (uint64_t t = 0; t < rows; t++) {
        for (uint32_t h = 0; h < nv; h++) {
            const uint64_t in_row = vpg ? (uint64_t)(h / vpg) * 2 * vpg + h % vpg : h;
            num_put(c->ab.p, act, t * width + a_at + in_row, rng_uniform(&r, -4, 4));
            num_put(c->ab.p, act, t * width + b_at + in_row, rng_uniform(&r, -4, 4));
        }
    }
}

static void drop(gates_case *c) {
    guard_free(&c->ab);
    guard_free(&c->A_log);
    guard_free(&c->dt);
    guard_free(&c->out);
}

static double in_at(const gates_case *c, uint64_t t, uint64_t base, uint32_t h) {
    const uint32_t vpg = c->s.vheads_per_group;
    return num_get(c->ab.p, c->s.base.act_type, t * c->s.a_stride + base + (vpg ? (uint64_t)(h / vpg) * 2 * vpg + h % vpg : h));
}

static void run(gates_case *c) {
    const uint64_t size = num_size(c->s.base.act_type);
    const uint64_t ptr[] = { addr_of(c->ab.p + c->a_at * size), addr_of(c->ab.p + c->b_at * size), addr_of(c->A_log.p), addr_of(c->dt.p),
                             addr_of(c->out.p) };
    run_ok(&c->s, N_OF(ptr), ptr, 1, &c->rows);
}

static bool near(double got, double want, double rel) {
    return isfinite(got) && fabs(got - want) <= rel * fabs(want) + 1e-37;
}

/* Every element against f64, and the padding of the output rows untouched. */
static bool matches(const gates_case *c) {
    const uint32_t nv = c->s.nv;
    for (uint64_t t = 0; t < c->rows; t++) {
        for (uint32_t h = 0; h < nv; h++) {
            const double g = oracle_log_decay(in_at(c, t, c->a_at, h), num_get(c->A_log.p, GDN_F32, h), num_get(c->dt.p, GDN_F32, h));
            const double want = c->s.gate_form == GDN_GATE_LOG ? g : exp(g), beta = oracle_beta(in_at(c, t, c->b_at, h));
            /* an error of g is multiplied by |g| in the decay */
            if (!near(num_get(c->out.p, GDN_F32, t * c->s.gate_stride + h), want,
                      3e-6 * (c->s.gate_form == GDN_GATE_LOG ? 1 : 1 + fabs(g))))
                return false;
            if (!near(num_get(c->out.p, GDN_F32, t * c->s.gate_stride + nv + h), beta, 3e-6)) return false;
        }
        for (uint32_t i = 2 * nv; i < c->s.gate_stride; i++) {
            if (!isnan(num_get(c->out.p, GDN_F32, t * c->s.gate_stride + i))) return false;
        }
    }
    return guard_ok(&c->out) && guard_ok(&c->ab);
}

static void check(gates_case *c) {
    for (uint32_t form = GDN_GATE_LINEAR; form <= GDN_GATE_LOG; form++) {
        c->s.gate_form = form;
        guard_poison(&c->out);
        run(c);
        assert_true(matches(c));
    }
}

/* Packed copies give the bytes of the views. */
static void B75_views_of_a_wide_projection(void **state) {
    (void)state;
    static const uint32_t heads[] = { 16, 32 };
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nv = heads[i / 2], act = i % 2 ? GDN_BF16 : GDN_F32, width = 3 * nv + 77;
        gates_case view, packed;
        make(&view, 7, nv, act, width, 2 * nv + 9, 33, 0);
        check(&view);
        make(&packed, 7, nv, act, 2 * nv, nv, 0, 0);
        for (uint64_t t = 0; t < 7; t++) {
            for (uint32_t h = 0; h < nv; h++) {
                num_put(packed.ab.p, act, t * 2 * nv + nv + h, in_at(&view, t, view.a_at, h));
                num_put(packed.ab.p, act, t * 2 * nv + h, in_at(&view, t, view.b_at, h));
            }
        }
        check(&packed);
        assert_memory_equal(view.out.p, packed.out.p, view.out.bytes);
        drop(&view);
        drop(&packed);
    }
}

/* [b,b,a,a] per key head and [all b, all a] hold the same values. */
static void B76_interleaved_and_plain_rows(void **state) {
    (void)state;
    enum { NK = 4, R = 2, NV = NK * R, ROWS = 3 };
    gates_case mixed, plain;
    make(&mixed, ROWS, NV, GDN_F32, 2 * NV, R, 0, R);
    check(&mixed);
    make(&plain, ROWS, NV, GDN_F32, 2 * NV, NV, 0, 0);
    for (uint64_t t = 0; t < ROWS; t++) {
        for (uint32_t n = 0; n < 2 * NV; n++) { /* column n of the interleaved row, by the header's words */
            const uint32_t w = n % (2 * R), grp = n / (2 * R), head = grp * R + w % R;
            num_put(plain.ab.p, GDN_F32, t * 2 * NV + (w < R ? 0 : NV) + head, num_get(mixed.ab.p, GDN_F32, t * 2 * NV + n));
        }
    }
    check(&plain);
    assert_memory_equal(mixed.out.p, plain.out.p, plain.out.bytes);
    drop(&mixed);
    drop(&plain);
}

/* One row, one head: gate and beta for given inputs. */
static void one(double a, double b, double A_log, double dt, uint32_t form, double *gate, double *beta) {
    gates_case c;
    make(&c, 1, 1, GDN_F32, 2, 1, 0, 0);
    c.s.gate_form = form;
    num_put(c.ab.p, GDN_F32, 1, a);
    num_put(c.ab.p, GDN_F32, 0, b);
    num_put(c.A_log.p, GDN_F32, 0, A_log);
    num_put(c.dt.p, GDN_F32, 0, dt);
    run(&c);
    *gate = num_get(c.out.p, GDN_F32, 0);
    *beta = num_get(c.out.p, GDN_F32, 1);
    drop(&c);
}

static void B77_a_large_a_does_not_zero_the_state(void **state) {
    (void)state;
    double gate, beta;
    one(100, 0, -8, 0, GDN_GATE_LINEAR, &gate, &beta);
    assert_true(fabs(gate - exp(-exp(-8.0) * 20)) < 1e-6); /* 0.9933: a + dt_bias is clamped at 20 */
    assert_true(gate > 0.993 && gate < 0.994);
}

static void B78_around_and_above_the_threshold(void **state) {
    (void)state;
    static const double a[] = { 19.9, 20, 20.1, 88, 89, 200, 1e4, 3e38 };
    double before = 0;
    for (uint32_t i = 0; i < N_OF(a); i++) {
        double gate, beta;
        one(a[i], 0, -4, 0, GDN_GATE_LOG, &gate, &beta);
        const double want = oracle_log_decay(a[i], -4, 0);
        assert_true(near(gate, want, 3e-6));
        if (i) assert_true(fabs(gate - before) < 0.11 * exp(-4.0)); /* no step: at most the 0.1 that a itself moved */
        before = gate;
    }
}

static void B80_beta_is_never_rounded_to_bf16(void **state) {
    (void)state;
    double gate, beta;
    one(0, 0.5, 0, 0, GDN_GATE_LINEAR, &gate, &beta);
    assert_true(fabs(beta - 0.62245935) < 2e-7);
    assert_true(fabs(beta - 0.62109375) > 1e-3);
}

static void B81_A_log_keeps_its_f32_value(void **state) {
    (void)state;
    double fine, coarse, beta;
    one(0.3, 0, 2.7183, 0.1, GDN_GATE_LOG, &fine, &beta);
    one(0.3, 0, num_from_bf16(num_to_bf16(2.7183)), 0.1, GDN_GATE_LOG, &coarse, &beta);
    assert_true(near(fine, oracle_log_decay(0.3f, 2.7183f, 0.1f), 3e-6));
    assert_true(fabs(fine - coarse) > 2e-4 * fabs(fine));
    gdn_gates_shape s = { .base = SHAPE_BASE(gdn_gates_shape, GDN_OP_GATES, GDN_F32),
                          .nv = 4,
                          .gate_form = GDN_GATE_LINEAR,
                          .param_type = GDN_BF16,
                          .max_rows = 1 };
    gdn_hplan *p;
    char text[256];
    const gdn_status st = plan_try(&s, &p, text, sizeof text);
    assert_true(st == GDN_E_ARG || st == GDN_REFUSED);
    assert_non_null(strstr(text, "param_type"));
}

static void B83_every_row_and_head_has_its_own_value(void **state) {
    (void)state;
    gates_case c;
    make(&c, 3, 6, GDN_F32, 12, 6, 0, 0);
    for (uint32_t i = 0; i < 36; i++) num_put(c.ab.p, GDN_F32, i, -3 + 0.17 * i);
    check(&c);
    /* The control: a swapped pair of results is noticed. */
    float *out = (float *)(void *)c.out.p;
    const float keep = out[1];
    out[1] = out[c.s.gate_stride + 1];
    assert_false(matches(&c));
    out[1] = keep;
    assert_true(matches(&c));
    drop(&c);
}

static void B86_inf_times_zero(void **state) {
    (void)state;
    double gate, beta;
    one(-200, 0, 100, 0, GDN_GATE_LINEAR, &gate, &beta);
    assert_true(gate == 1);
    one(-200, 0, 100, 0, GDN_GATE_LOG, &gate, &beta);
    assert_true(gate == 0);
    one(200, -200, 100, 0, GDN_GATE_LINEAR, &gate, &beta); /* the other end: finite, not NaN */
    assert_true(gate >= 0 && gate < 1e-30 && beta >= 0 && beta < 1e-30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B75_views_of_a_wide_projection),           cmocka_unit_test(B76_interleaved_and_plain_rows),
        cmocka_unit_test(B77_a_large_a_does_not_zero_the_state),    cmocka_unit_test(B78_around_and_above_the_threshold),
        cmocka_unit_test(B80_beta_is_never_rounded_to_bf16),        cmocka_unit_test(B81_A_log_keeps_its_f32_value),
        cmocka_unit_test(B83_every_row_and_head_has_its_own_value), cmocka_unit_test(B86_inf_times_zero),
    };
    return cmocka_run_group_tests_name("gates cases", tests, target_setup, target_teardown);
}
