/* test_ba_gates.c - the b/a projection fused with the gates: columns, strides, reduction bytes, refusals; B76, B86 fused. */
#include "guard.h"
#include "numeric.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ba_case {
    gdn_ba_shape s;
    uint32_t M;
    guard A, B, A_log, dt, out;
} ba_case;

static void make(ba_case *c, uint32_t M, uint32_t nv, uint32_t vpg, uint32_t K, uint32_t pad, uint32_t act, uint32_t weight) {
    rng r = { M + nv + K };
    *c = (ba_case) { .M = M };
    c->s = (gdn_ba_shape) { .base = SHAPE_BASE(gdn_ba_shape, GDN_OP_BA_GATES, act),
                            .N = 2 * nv,
                            .K = K,
                            .K_stride = K + pad,
                            .gate_stride = 2 * nv + 3,
                            .nv = nv,
                            .vheads_per_group = vpg,
                            .weight_type = weight,
                            .max_m = M };
    c->A = guard_alloc((uint64_t)M * (K + pad) * num_size(act));
    c->B = guard_alloc(2ull * nv * K * num_size(weight));
    c->A_log = guard_alloc(nv * 4u);
    c->dt = guard_alloc(nv * 4u);
    c->out = guard_alloc((uint64_t)M * c->s.gate_stride * 4);
    guard_poison(&c->A);
    for (uint64_t m = 0; m < M; m++) {
        for (uint32_t k = 0; k < K; k++) num_put(c->A.p, act, m * (K + pad) + k, rng_uniform(&r, -1, 1));
    }
    num_fill(c->B.p, weight, 2ull * nv * K, &r, -0.15, 0.15);
    num_fill(c->A_log.p, GDN_F32, nv, &r, -3, 1);
    num_fill(c->dt.p, GDN_F32, nv, &r, -2, 2);
    guard_poison(&c->out);
}

static void drop(ba_case *c) {
    guard *all[] = { &c->A, &c->B, &c->A_log, &c->dt, &c->out };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
}

static void run(ba_case *c) {
    const uint64_t ptr[] = { addr_of(c->A.p), addr_of(c->B.p), addr_of(c->A_log.p), addr_of(c->dt.p), addr_of(c->out.p) };
    run_ok(&c->s, N_OF(ptr), ptr, 1, &c->M);
}

/* Against f64 through the header's column map; the dot itself is f32, so its rounding goes through the gates. */
static bool matches(const ba_case *c) {
    const uint32_t nv = c->s.nv, vpg = c->s.vheads_per_group;
    for (uint64_t m = 0; m < c->M; m++) {
        for (uint32_t n = 0; n < 2 * nv; n++) {
            double r = 0, mag = 0;
            for (uint32_t k = 0; k < c->s.K; k++) {
                const double p = num_get(c->A.p, c->s.base.act_type, m * c->s.K_stride + k) *
                                 num_get(c->B.p, c->s.weight_type, (uint64_t)n * c->s.K + k);
                r += p;
                mag += fabs(p);
            }
            const uint32_t w = n % (2 * vpg), head = n / (2 * vpg) * vpg + w % vpg;
            const bool is_beta = w < vpg;
            const double A = num_get(c->A_log.p, GDN_F32, head), dt = num_get(c->dt.p, GDN_F32, head);
            const double want = is_beta ? oracle_beta(r) : exp(oracle_log_decay(r, A, dt));
            const double got = num_get(c->out.p, GDN_F32, m * c->s.gate_stride + (is_beta ? nv : 0) + head);
            const double slope = 1e-6 * mag * (is_beta ? 1 : exp(A)) + 4e-6 * (1 + exp(A) * 4);
            if (!(fabs(got - want) <= slope * fmax(want, 1e-6))) return false;
        }
        for (uint32_t i = 2 * nv; i < c->s.gate_stride; i++) {
            if (!isnan(num_get(c->out.p, GDN_F32, m * c->s.gate_stride + i))) return false;
        }
    }
    return guard_ok(&c->out);
}

static void B76_columns_of_the_fused_projection(void **state) {
    (void)state;
    static const uint32_t vpg[] = { 1, 2, 3, 6 };
    for (uint32_t i = 0; i < 16; i++) {
        ba_case c;
        make(&c, 5, 6, vpg[i / 4], 264, i % 2 ? 16 : 0, i & 2 ? GDN_BF16 : GDN_F32, i & 1 ? GDN_BF16 : GDN_F32);
        run(&c);
        assert_true(matches(&c));
        float *out = (float *)(void *)c.out.p; /* control: gate and beta exchanged */
        const float keep = out[2];
        out[2] = out[c.s.nv + 2];
        assert_false(matches(&c));
        out[2] = keep;
        assert_true(matches(&c));
        drop(&c);
    }
}

static float tree(const float *x) { /* shuffle-down 16, 8, 4, 2, 1 over 32 lanes */
    float v[32];
    memcpy(v, x, sizeof v);
    for (uint32_t step = 16; step; step /= 2) {
        for (uint32_t l = 0; l < step; l++) v[l] += v[l + step];
    }
    return v[0];
}

/* The dot in the order of the contract, as f32. */
static float model_dot(const ba_case *c, uint64_t m, uint32_t n) {
    float lane[64] = { 0 };
    for (uint32_t l = 0; l < 64; l++) {
        for (uint32_t kv = l; kv < c->s.K / 8; kv += 64) {
            for (uint32_t e = 0; e < 8; e++) {
                const float p = (float)num_get(c->A.p, c->s.base.act_type, m * c->s.K_stride + kv * 8 + e) *
                                (float)num_get(c->B.p, c->s.weight_type, (uint64_t)n * c->s.K + kv * 8 + e);
                lane[l] += p;
            }
        }
    }
    return tree(lane) + tree(lane + 32);
}

/* The gates of exact inputs: the model's dot goes through `gates`, which must then give the very bytes. */
static void the_reduction_order_is_kept_to_the_bit(void **state) {
    (void)state;
    static const uint32_t Ks[] = { 8, 512, 520, 2048, 5120 };
    for (uint32_t i = 0; i < 2 * N_OF(Ks); i++) {
        const uint32_t act = i % 2 ? GDN_BF16 : GDN_F32;
        ba_case c;
        make(&c, 3, 4, 4, Ks[i / 2], 8, act, act);
        run(&c);
        guard ab = guard_alloc(3ull * 8 * 4), out = guard_alloc(3ull * 8 * 4);
        for (uint64_t m = 0; m < 3; m++) {
            for (uint32_t n = 0; n < 8; n++) ((float *)(void *)ab.p)[m * 8 + n] = model_dot(&c, m, n);
        }
        const gdn_gates_shape g = { .base = SHAPE_BASE(gdn_gates_shape, GDN_OP_GATES, GDN_F32),
                                    .nv = 4,
                                    .a_stride = 8,
                                    .b_stride = 8,
                                    .gate_form = GDN_GATE_LINEAR,
                                    .param_type = GDN_F32,
                                    .max_rows = 3 };
        const uint64_t ptr[] = { addr_of(ab.p) + 16, addr_of(ab.p), addr_of(c.A_log.p), addr_of(c.dt.p), addr_of(out.p) };
        const uint32_t rows = 3;
        run_ok(&g, N_OF(ptr), ptr, 1, &rows);
        for (uint64_t m = 0; m < 3; m++) assert_memory_equal(out.p + m * 32, c.out.p + m * c.s.gate_stride * 4, 32);
        guard_free(&ab);
        guard_free(&out);
        drop(&c);
    }
}

static void gemv_is_a_row_of_the_gemm(void **state) {
    (void)state;
    ba_case c;
    make(&c, 4, 6, 3, 1032, 0, GDN_BF16, GDN_BF16);
    run(&c);
    gdn_ba_shape s = c.s;
    s.base.op = GDN_OP_BA_GEMV;
    s.gate_stride = 0;
    guard gate = guard_alloc(6 * 4), beta = guard_alloc(6 * 4);
    for (uint64_t m = 0; m < 4; m++) {
        guard_poison(&gate);
        guard_poison(&beta);
        const uint64_t ptr[] = {
            addr_of(c.A.p) + m * c.s.K_stride * 2, addr_of(c.B.p), addr_of(c.A_log.p), addr_of(c.dt.p), addr_of(gate.p), addr_of(beta.p)
        };
        run_ok(&s, N_OF(ptr), ptr, 0, NULL);
        assert_memory_equal(gate.p, c.out.p + m * c.s.gate_stride * 4, gate.bytes);
        assert_memory_equal(beta.p, c.out.p + (m * c.s.gate_stride + 6) * 4, beta.bytes);
    }
    guard_free(&gate);
    guard_free(&beta);
    drop(&c);
}

static void B86_inf_times_zero_in_the_fused_form(void **state) {
    (void)state;
    ba_case c;
    make(&c, 2, 2, 2, 64, 0, GDN_F32, GDN_F32);
    for (uint32_t k = 0; k < 64; k++) { /* gate columns 2 and 3: r = -200 for row 0, +200 for row 1 */
        num_put(c.A.p, GDN_F32, k, -1);
        num_put(c.A.p, GDN_F32, 64 + k, 1);
        for (uint32_t n = 0; n < 4; n++) num_put(c.B.p, GDN_F32, n * 64 + k, 200.0 / 64);
    }
    for (uint32_t h = 0; h < 2; h++) {
        num_put(c.A_log.p, GDN_F32, h, 100);
        num_put(c.dt.p, GDN_F32, h, 0);
    }
    run(&c);
    for (uint32_t h = 0; h < 2; h++) {
        const double low = num_get(c.out.p, GDN_F32, h), high = num_get(c.out.p, GDN_F32, c.s.gate_stride + h);
        assert_true(low == 1);
        assert_true(high >= 0 && high < 1e-30);
    }
    drop(&c);
}

static void what_the_operation_refuses_by_its_texts(void **state) {
    (void)state;
    const gdn_ba_shape good = { .base = SHAPE_BASE(gdn_ba_shape, GDN_OP_BA_GATES, GDN_BF16),
                                .N = 8,
                                .K = 64,
                                .nv = 4,
                                .vheads_per_group = 2,
                                .weight_type = GDN_BF16,
                                .max_m = 2 };
    gdn_plan_free(plan_ok(&good));
    gdn_ba_shape s = good;
    s.N = 0;
    plan_fails(&s, GDN_E_ARG, "empty BA projection");
    s = good;
    s.K = 0;
    plan_fails(&s, GDN_E_ARG, "empty BA projection");
    s = good;
    s.K = 60;
    plan_fails(&s, GDN_E_ARG, "K is not a multiple of 8 (the uint4 K sweep would drop a tail)");
    s = good;
    s.K_stride = 56;
    plan_fails(&s, GDN_E_ARG, "K_stride < K: the activation row is shorter than the reduction");
    s = good;
    s.N = 10;
    plan_fails(&s, GDN_E_ARG, GDN_BA_N_TEXT);
    s = good;
    s.K_stride = 68;
    plan_fails(&s, GDN_E_ARG, GDN_BA_ALIGN_TEXT);
    ba_case c;
    make(&c, 2, 4, 2, 64, 0, GDN_BF16, GDN_BF16);
    gdn_hplan *p = plan_ok(&c.s);
    const uint64_t ptr[] = { addr_of(c.A.p) + 2, addr_of(c.B.p), addr_of(c.A_log.p), addr_of(c.dt.p), addr_of(c.out.p) };
    const uint32_t one = 1;
    target_log_clear();
    assert_int_equal(launch(p, N_OF(ptr), ptr, 1, &one), GDN_E_ARG);
    assert_true(target_logged(GDN_BA_ALIGN_TEXT));
    for (uint64_t i = 0; i < c.out.bytes; i++) assert_int_equal(c.out.p[i], 0xFF);
    gdn_plan_free(p);
    drop(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B76_columns_of_the_fused_projection),
        cmocka_unit_test(the_reduction_order_is_kept_to_the_bit),
        cmocka_unit_test(gemv_is_a_row_of_the_gemm),
        cmocka_unit_test(B86_inf_times_zero_in_the_fused_form),
        cmocka_unit_test(what_the_operation_refuses_by_its_texts),
    };
    return cmocka_run_group_tests_name("ba gates", tests, target_setup, target_teardown);
}
