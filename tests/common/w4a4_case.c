/* w4a4_case.c - see w4a4_case.h. */
#include "w4a4_case.h"
#include "oracle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void w4a4_make(w4a4_case *c, uint32_t M, uint32_t N, uint32_t K, uint32_t act) {
    rng r = { M * 131 + N * 17 + K };
    *c = (w4a4_case) { .M = M, .N = N, .K = K, .act = target_is_cpu() ? act : GDN_BF16, .a_stride = K + 3, .scale2 = 0.0625f };
    c->A = guard_alloc((uint64_t)M * c->a_stride * num_size(c->act));
    guard_poison(&c->A);
    for (uint64_t m = 0; m < M; m++) num_fill(c->A.p + m * c->a_stride * num_size(c->act), c->act, K, &r, -1 - (double)m, 1 + (double)m);
    c->aq = guard_alloc(GDN_W4A4_AQ_BYTES(M, K));
    c->as = guard_alloc(GDN_W4A4_AS_BYTES(M, K));
    c->ag = guard_alloc(M * 4ull);
    c->bq = guard_alloc((uint64_t)N * K / 2);
    c->bs = guard_alloc((uint64_t)N * K / 16);
    c->C = guard_alloc((uint64_t)M * N * num_size(c->act));
    for (uint64_t i = 0; i < c->bq.bytes; i++) c->bq.p[i] = (uint8_t)rng_next(&r);
    for (uint64_t i = 0; i < c->bs.bytes; i++) c->bs.p[i] = (uint8_t)(0x28 + rng_below(&r, 0x18));
    const guard *poison[] = { &c->aq, &c->as, &c->ag, &c->C }; /* scale code 0xFF or 0x7F is NaN */
    for (uint32_t i = 0; i < N_OF(poison); i++) guard_poison(poison[i]);
}

void w4a4_free(w4a4_case *c) {
    guard *all[] = { &c->A, &c->aq, &c->as, &c->ag, &c->bq, &c->bs, &c->C };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
}

/* Rows m0 .. m0+n-1 of A into aq, as, ag (which then begin with row m0). */
void w4a4_quantise(const w4a4_case *c, uint32_t m0, uint32_t n) {
    const gdn_w4a4_shape s = {
        .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT, c->act), .K = c->K, .max_m = n, .a_stride = c->a_stride
    };
    const uint64_t ptr[] = { addr_of(c->A.p) + (uint64_t)m0 * c->a_stride * num_size(c->act), addr_of(c->aq.p), addr_of(c->as.p),
                             addr_of(c->ag.p) };
    run_ok(&s, N_OF(ptr), ptr, 1, &n);
}

/* One for all plans, zero once: each launch leaves it ready for the next. */
static uint64_t workspace(uint64_t bytes) {
    static uint8_t *all;
    static uint64_t has;
    if (bytes > has) {
        free(all);
        all = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(all);
        memset(all, 0, bytes);
        has = bytes;
    }
    return bytes ? addr_of(all) : 0;
}

void w4a4_project(const w4a4_case *c, uint32_t n, uint8_t *C) {
    const gdn_w4a4_shape s = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV, c->act), .N = c->N, .K = c->K, .max_m = n };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    gdn_hplan *const plan = plan_ok(&s);
    uint32_t u32[] = { 0, n };
    memcpy(&u32[0], &c->scale2, 4);
    assert_int_equal(gdn_explain(plan, 2, u32, &r), GDN_OK);
    const uint64_t ptr[] = {
        addr_of(c->aq.p), addr_of(c->as.p), addr_of(c->ag.p), addr_of(c->bq.p), addr_of(c->bs.p), addr_of(C), workspace(r.workspace_bytes)
    };
    gdn_plan_free(plan);
    run_ok(&s, N_OF(ptr), ptr, 2, u32);
}

static double weight(const w4a4_case *c, uint64_t n, uint64_t k) {
    const uint8_t byte = c->bq.p[(n * c->K + k) / 2];
    return oracle_e2m1(k % 2 ? byte >> 4 : byte & 15u) * oracle_ue4m3(c->bs.p[(n * c->K + k) / 16]);
}

bool w4a4_matches(const w4a4_case *c) {
    double *x = malloc((uint64_t)c->K * 2 * sizeof *x), *q = x + c->K;
    assert_non_null(x);
    bool ok = true;
    for (uint32_t m = 0; ok && m < c->M; m++) {
        double ag;
        for (uint32_t k = 0; k < c->K; k++) x[k] = num_get(c->A.p, c->act, (uint64_t)m * c->a_stride + k);
        oracle_quant_row(x, c->K, q, &ag);
        for (uint32_t n = 0; ok && n < c->N; n++) {
            double sum = 0, mag = 0;
            for (uint32_t k = 0; k < c->K; k++) {
                const double p = q[k] * weight(c, n, k);
                sum += p;
                mag += fabs(p);
            }
            const double f = ag * (double)c->scale2, got = num_get(c->C.p, c->act, (uint64_t)m * c->N + n);
            const double bound = (mag * 1e-6 + (c->act == GDN_F32 ? fabs(sum) * 1e-6 : fabs(sum) * 0x1p-8)) * f;
            ok = isfinite(got) && fabs(got - sum * f) <= bound;
        }
    }
    free(x);
    return ok && guard_ok(&c->C) && guard_ok(&c->aq) && guard_ok(&c->as) && guard_ok(&c->ag);
}

void w4a4_check(w4a4_case *c) {
    for (uint32_t i = 0; i < 2; i++) { /* the second time over its own leftovers */
        guard_poison(&c->C);
        w4a4_quantise(c, 0, c->M);
        w4a4_project(c, c->M, c->C.p);
        assert_true(w4a4_matches(c));
    }
}
