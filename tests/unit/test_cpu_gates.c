/* test_cpu_gates.c - gdn_cpu_gates_rows and gdn_cpu_ba_gates called directly.
 *
 * Gates against f64 in extended precision; the projection's dot products bit for bit against a slow walk of the contract's
 * reduction order, one lane at a time. Every instruction set and thread count must give the same bytes. */
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

/* ---- references ---- */
static long double ref_beta(double b) {
    return 1 / (1 + expl(-(long double)b));
}
static long double ref_log(double A_log, double x) {
    const long double y = x > 20 ? 20 : (long double)x;
    return -expl(A_log > 20 ? 20 : (long double)A_log) * log1pl(expl(y));
}
static bool close_to(double got, long double want) {
    return fabsl((long double)got - want) <= 1e-6L * fabsl(want) + 1.5e-45L; /* half an f32 ulp is 6e-8; subnormals have less */
}

/* ---- one gate at a time ---- */
static void one(float a, float A_log, float dt_bias, float b, bool log_gate, float out[2]) {
    const gdn_cpu_gates c = { .a = &a,
                              .b = &b,
                              .A_log = &A_log,
                              .dt_bias = &dt_bias,
                              .out = out,
                              .rows = 1,
                              .nv = 1,
                              .a_stride = 1,
                              .b_stride = 1,
                              .gate_stride = 2,
                              .f32 = true,
                              .log_gate = log_gate };
    gdn_cpu_gates_rows(&c);
}

static void test_known_values(void **state) {
    (void)state;
    float o[2];
    one(100, -8, 0, 0.5f, false, o); /* exp(100) overflows without the clamp */
    assert_true(fabs((double)o[0] - 0.9933133) < 1e-6);
    assert_true(o[1] == 0.62245935f);                  /* f32, not rounded to bf16 */
    assert_false(close_to(0.62109375, ref_beta(0.5))); /* control: a beta that went through bf16 is noticed */
    one(-200, 100, 0, 0, false, o);                    /* inf * 0 without the clamp */
    assert_true(o[0] == 1.0f && o[1] == 0.5f);
    one(-200, 100, 0, 0, true, o);
    assert_true(o[0] == 0.0f);
    one(1e4f, 100, 0, -1e4f, false, o);
    assert_true(o[0] == 0.0f && o[1] == 0.0f);
    one(-30, 20, 0, 1e4f, false, o); /* log1p keeps exp(-30) * exp(20) */
    assert_true(close_to(o[0], expl(ref_log(20, -30))) && o[0] < 0.99996f && o[1] == 1.0f);
    one(NAN, 0, 0, NAN, false, o);
    assert_true(isnan(o[0]) && isnan(o[1]));
    const float around[] = { 19.9f, 20, 20.1f, 88, 89, 200, 1e4f };
    float before = 1;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        one(around[i], -3, 0, 0, false, o);
        assert_true(close_to(o[0], expl(ref_log(-3, (double)around[i]))));
        assert_true(o[0] <= before); /* no step back at the clamp */
        before = o[0];
    }
}

static void test_accuracy(void **state) {
    (void)state;
    rng r = { 5 };
    for (uint32_t i = 0; i < (TEST_LIGHT ? 2000u : 40000u); i++) {
        const float a = (float)rng_uniform(&r, -60, 30), A = (float)rng_uniform(&r, -10, 22), dt = (float)rng_uniform(&r, -5, 5);
        const float b = (float)rng_uniform(&r, -100, 40);
        float lin[2], lg[2];
        one(a, A, dt, b, false, lin);
        one(a, A, dt, b, true, lg);
        const long double g = ref_log((double)A, (double)a + (double)dt);
        assert_true(close_to(lg[0], g));
        assert_true(close_to(lin[0], expl(g)));
        assert_true(close_to(lin[1], ref_beta((double)b)) && lin[1] == lg[1]);
    }
}

/* Rows, heads, strides and layouts: every (row, head) has its own value. */
static void check_rows(uint32_t rows, uint32_t nv, uint32_t vpg, uint32_t gap, bool f32, bool log_gate) {
    const uint32_t type = type_of(f32), esz = num_size(type), stride = (vpg ? 2 * nv : nv) + gap, gs = 2 * nv + gap;
    rng r = { rows + nv };
    guard raw_a = guard_alloc((uint64_t)rows * stride * esz), raw_b = guard_alloc((uint64_t)rows * stride * esz);
    guard A = guard_alloc(nv * 4u), dt = guard_alloc(nv * 4u), out = guard_alloc((uint64_t)rows * gs * 4);
    guard_poison(&raw_a);
    guard_poison(&raw_b);
    num_fill(A.p, GDN_F32, nv, &r, -4, 3);
    num_fill(dt.p, GDN_F32, nv, &r, -1, 1);
    /* Interleaved: both come from raw_b, a starting vpg further on. */
    const guard *const from_a = vpg ? &raw_b : &raw_a;
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t h = 0; h < nv; h++) {
            const uint64_t at = (uint64_t)m * stride + (vpg ? h / vpg * 2 * vpg + h % vpg : h);
            num_put(from_a->p, type, at + vpg, rng_uniform(&r, -6, 6));
            num_put(raw_b.p, type, at, rng_uniform(&r, -6, 6));
        }
    const gdn_cpu_gates c = { .a = from_a->p + (size_t)vpg * esz,
                              .b = raw_b.p,
                              .A_log = (const float *)(void *)A.p,
                              .dt_bias = (const float *)(void *)dt.p,
                              .out = (float *)(void *)out.p,
                              .rows = rows,
                              .nv = nv,
                              .a_stride = stride,
                              .b_stride = stride,
                              .gate_stride = gs,
                              .vpg = vpg,
                              .f32 = f32,
                              .log_gate = log_gate };
    guard kept = { 0 };
    for (int threads = 1; threads <= 3; threads += 2) {
        guard_poison(&out);
        omp_set_num_threads(threads);
        gdn_cpu_gates_rows(&c);
        if (threads == 1)
            kept = guard_copy(&out);
        else
            assert_memory_equal(kept.p, out.p, out.bytes);
    }
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t i = 0; i < gs; i++) {
            const double got = num_get(out.p, GDN_F32, (uint64_t)m * gs + i);
            const uint32_t h = i % nv;
            const uint64_t at = (uint64_t)m * stride + (vpg ? h / vpg * 2 * vpg + h % vpg : h);
            const long double g = ref_log(num_get(A.p, GDN_F32, h), num_get(from_a->p, type, at + vpg) + num_get(dt.p, GDN_F32, h));
            if (i < nv)
                assert_true(close_to(got, log_gate ? g : expl(g)));
            else if (i < 2 * nv)
                assert_true(close_to(got, ref_beta(num_get(raw_b.p, type, at))));
            else
                assert_true(isnan(got)); /* a gap */
        }
    guard *const all[] = { &raw_a, &raw_b, &A, &dt, &out, &kept, NULL };
    for (size_t i = 0; all[i]; i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
}

static void test_rows(void **state) {
    (void)state;
    check_rows(3, 6, 0, 0, true, false);
    check_rows(3, 6, 0, 5, false, false); /* column views of a wider projection */
    check_rows(5, 8, 2, 0, false, false); /* [b b a a] per key head */
    check_rows(4, 8, 2, 7, true, true);
    check_rows(2, 48, 3, 0, false, true);
    check_rows(70, 96, 0, 1, false, false); /* more heads than a group */
    check_rows(40, 64, 64, 0, true, false);
    check_rows(1, 1, 1, 0, true, false);
}

/* ---- the projection ---- */
static float slow_dot(const gdn_cpu_ba *c, uint32_t m, uint32_t n) {
    float lane[64];
    for (uint32_t l = 0; l < 64; l++) {
        lane[l] = 0;
        for (uint32_t kv = l; kv < c->K / 8; kv += 64)
            for (uint32_t e = 0; e < 8; e++) {
                const uint64_t k = (uint64_t)kv * 8 + e;
                const float p = (float)num_get(c->A, type_of(c->f32), (uint64_t)m * c->K_stride + k) *
                                (float)num_get(c->B, type_of(c->weight_f32), (uint64_t)n * c->K + k);
                lane[l] = lane[l] + p;
            }
    }
    for (uint32_t off = 16; off; off /= 2) /* a whole shuffle-down: lanes past the end of a half take their own value */
        for (uint32_t l = 0; l < 64; l++) lane[l] += lane[l % 32 + off < 32 ? l + off : l];
    return lane[0] + lane[32];
}

static void fill_ba(gdn_cpu_ba *c, guard g[6], uint32_t seed) {
    rng r = { seed };
    const uint32_t at = type_of(c->f32), bt = type_of(c->weight_f32);
    g[0] = guard_alloc((uint64_t)c->M * c->K_stride * num_size(at));
    g[1] = guard_alloc((uint64_t)c->N * c->K * num_size(bt));
    g[2] = guard_alloc(c->nv * 4u), g[3] = guard_alloc(c->nv * 4u);
    g[4] = guard_alloc((uint64_t)c->M * c->gate_stride * 4), g[5] = guard_alloc((uint64_t)c->M * c->gate_stride * 4);
    guard_poison(&g[0]);
    for (uint32_t m = 0; m < c->M; m++) num_fill(g[0].p + (uint64_t)m * c->K_stride * num_size(at), at, c->K, &r, -1, 1);
    num_fill(g[1].p, bt, (uint64_t)c->N * c->K, &r, -0.3, 0.3);
    num_fill(g[2].p, GDN_F32, c->nv, &r, -3, 2);
    num_fill(g[3].p, GDN_F32, c->nv, &r, -1, 1);
    c->A = g[0].p, c->B = g[1].p, c->A_log = (const float *)(void *)g[2].p, c->dt_bias = (const float *)(void *)g[3].p;
    c->gate = (float *)(void *)g[4].p, c->beta = (float *)(void *)g[5].p;
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Gates of the slow dots, by the elementwise kernel: the bytes must agree. `ulp` is added to every dot, for the control. */
static bool ba_right(const gdn_cpu_ba *c, uint32_t ulp) {
    bool same = true;
    for (uint32_t m = 0; m < c->M; m++)
        for (uint32_t n = 0; n < c->N; n++) {
            const uint32_t vpg = c->vpg ? c->vpg : c->nv, w = n % (2 * vpg), h = n / (2 * vpg) * vpg + w % vpg;
            float r = slow_dot(c, m, n), o[2];
            uint32_t u;
            memcpy(&u, &r, 4);
            u += ulp;
            memcpy(&r, &u, 4);
            one(r, c->A_log[h], c->dt_bias[h], r, false, o);
            const float *const got = (w < vpg ? c->beta : c->gate) + (uint64_t)m * c->gate_stride + h;
            same &= bits_of(*got) == bits_of(o[w < vpg]);
        }
    return same;
}

static void check_ba(uint32_t M, uint32_t nv, uint32_t vpg, uint32_t K, uint32_t gap, bool f32, bool weight_f32) {
    gdn_cpu_ba c = { .M = M,
                     .N = 2 * nv,
                     .K = K,
                     .K_stride = K + gap,
                     .gate_stride = nv + gap,
                     .nv = nv,
                     .vpg = vpg,
                     .f32 = f32,
                     .weight_f32 = weight_f32 };
    guard g[6], kept[2] = { { 0 } };
    fill_ba(&c, g, M + K);
    for (c.isa = 0; c.isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); c.isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            guard_poison(&g[4]);
            guard_poison(&g[5]);
            omp_set_num_threads(threads);
            gdn_cpu_ba_gates(&c);
            for (int i = 0; i < 2; i++) {
                if (!kept[i].p) kept[i] = guard_copy(&g[4 + i]);
                assert_memory_equal(kept[i].p, g[4 + i].p, g[4 + i].bytes);
            }
        }
    assert_true(ba_right(&c, 0));
    assert_false(ba_right(&c, 1u << 6)); /* control: 64 ulp more in a dot show in the gates */
    for (uint32_t m = 0; m < M; m++)
        for (uint32_t i = nv; i < c.gate_stride; i++)
            assert_true(isnan(c.gate[(uint64_t)m * c.gate_stride + i]) && isnan(c.beta[(uint64_t)m * c.gate_stride + i]));
    for (int i = 0; i < 6; i++) {
        assert_true(guard_ok(&g[i]));
        guard_free(&g[i]);
    }
    guard_free(&kept[0]);
    guard_free(&kept[1]);
}

static void test_projection(void **state) {
    (void)state;
    check_ba(1, 48, 3, 5120, 0, false, false);
    check_ba(17, 48, 3, 1024, 0, false, false);
    check_ba(3, 6, 0, 8, 1, false, false); /* one vector */
    check_ba(9, 5, 1, 520, 3, false, false);
    check_ba(2, 16, 2, 2048 + 504, 8, true, true);
    check_ba(8, 4, 4, 1160, 0, true, false);
    check_ba(5, 4, 2, 3000, 16, false, true);
}

/* The order itself: a sum that comes out differently in any other plain order. */
static void test_reduction_order(void **state) {
    (void)state;
    enum { K = 1024 };
    float A[K], B[2 * K], A_log = 0, dt = 0, gate, beta;
    for (int k = 0; k < K; k++) A[k] = 1, B[k] = B[K + k] = 0;
    /* Lane 0 gets 2^24 in its first vector and 1 in its second: the 1 is lost there (tie to even), but not beside it. */
    B[0] = 16777216.0f, B[512] = 1, B[7] = -16777216.0f;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); isa++) {
        const gdn_cpu_ba c = { .A = A,
                               .B = B,
                               .A_log = &A_log,
                               .dt_bias = &dt,
                               .gate = &gate,
                               .beta = &beta,
                               .M = 1,
                               .N = 2,
                               .K = K,
                               .K_stride = K,
                               .gate_stride = 1,
                               .nv = 1,
                               .isa = isa,
                               .f32 = true,
                               .weight_f32 = true };
        gdn_cpu_ba_gates(&c);
        assert_true(close_to(beta, ref_beta(1))); /* 2^24 - 2^24 + 1, lane 0 alone */
        B[7] = 0, B[8] = -16777216.0f;            /* now lane 1 holds the negative: lane 0 loses the 1 */
        gdn_cpu_ba_gates(&c);
        assert_true(close_to(beta, ref_beta(0)));
        B[7] = -16777216.0f, B[8] = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values), cmocka_unit_test(test_accuracy),        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_projection),   cmocka_unit_test(test_reduction_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
