/* test_w4a4_exact.c - the bytes of FP4 projections through the API: quantised by a search over all codes, multiplied by the
 * instruction in 64-bit integers (tests/unit/cpu_w4a4_ref.h), added in the contract's order. No byte may differ. */
#include "../unit/cpu_w4a4_ref.h"
#include "w4a4_case.h"

typedef struct model {
    plain A, B;
} model;

static model model_of(const w4a4_case *c) {
    model m = { plain_alloc(c->M, c->K), plain_alloc(c->N, c->K) };
    double *x = malloc(c->K * sizeof *x);
    assert_non_null(x);
    for (uint64_t r = 0; r < c->M; r++) {
        for (uint32_t k = 0; k < c->K; k++) x[k] = num_get(c->A.p, c->act, r * c->a_stride + k);
        slow_quant(x, c->K, m.A.code + r * c->K, m.A.scale + r * (c->K / 16), m.A.ag + r);
    }
    for (uint64_t i = 0; i < (uint64_t)c->N * c->K; i++) m.B.code[i] = c->bq.p[i / 2] >> (i % 2 * 4) & 15;
    memcpy(m.B.scale, c->bs.p, (uint64_t)c->N * (c->K / 16));
    free(x);
    return m;
}

static void model_free(model *m) {
    plain_free(&m->A);
    plain_free(&m->B);
}

/* What an f32 sum of the exact products, rounded once, would be: close, and not the contract. */
static float rounded_once(const w4a4_case *c, const model *m, uint32_t r, uint32_t n) {
    double sum = 0;
    for (uint64_t k = 0; k < c->K; k++)
        sum += e2m1(m->A.code[(uint64_t)r * c->K + k]) * ue4m3(m->A.scale[((uint64_t)r * c->K + k) / 16]) *
               e2m1(m->B.code[(uint64_t)n * c->K + k]) * ue4m3(m->B.scale[((uint64_t)n * c->K + k) / 16]);
    return (float)sum;
}

typedef struct verdict {
    uint32_t wrong, like_f64;
} verdict;

static verdict compare(const w4a4_case *c, const model *m) {
    verdict v = { 0, 0 };
    for (uint32_t r = 0; r < c->M; r++)
        for (uint32_t n = 0; n < c->N; n++) {
            const float acc = ref_acc(&m->A, r, &m->B, n, c->K), want = acc * (m->A.ag[r] * c->scale2);
            uint8_t bytes[4] = { 0 };
            num_put(bytes, c->act, 0, (double)want);
            v.wrong += memcmp(bytes, c->C.p + ((uint64_t)r * c->N + n) * num_size(c->act), num_size(c->act)) != 0;
            v.like_f64 += bits_of(acc) == bits_of(rounded_once(c, m, r, n));
        }
    return v;
}

/* wide: weight scales from the smallest subnormal to the largest, so that small terms are cut off beside large ones. */
static void exact(uint32_t M, uint32_t N, uint32_t K, uint32_t act, bool wide) {
    w4a4_case c;
    rng r = { M + N + K };
    w4a4_make(&c, M, N, K, act);
    for (uint64_t i = 0; wide && i < c.bs.bytes; i++) c.bs.p[i] = (uint8_t)rng_below(&r, 0x7f);
    for (uint32_t k = 0; wide && k < K; k += 16) /* activations as well: groups of very different size */
        for (uint32_t i = 0; i < 16; i++) {
            const double shrink = ldexp(1, -(int)(k / 16 % 14)), v = num_get(c.A.p, c.act, k + i);
            num_put(c.A.p, c.act, k + i, v * shrink);
        }
    w4a4_quantise(&c, 0, M);
    w4a4_project(&c, M, c.C.p);
    model m = model_of(&c);
    verdict v = compare(&c, &m);
    if (v.wrong) fail_msg("%u x %u x %u: %u of %u outputs differ", M, N, K, v.wrong, M * N);
    if (wide && v.like_f64 == M * N) fail_msg("%u x %u x %u: a plain sum gives the same: nothing is shown", M, N, K);
    for (uint64_t i = 0; i < K / 2; i++) c.bq.p[(N - 1) * (uint64_t)(K / 2) + i] ^= 0x88; /* the control: one weight row changes its sign */
    w4a4_project(&c, M, c.C.p);
    v = compare(&c, &m);
    assert_int_equal(v.wrong, M);
    assert_true(guard_ok(&c.C) && guard_ok(&c.aq) && guard_ok(&c.as) && guard_ok(&c.ag));
    model_free(&m);
    w4a4_free(&c);
}

static void bytes_of_the_instruction(void **state) {
    (void)state;
    static const uint32_t sizes[][3] = {
        { 1, 16, 128 }, { 3, 33, 256 }, { 8, 17, 1024 }, { 9, 16, 1152 }, { 17, 40, 2176 }, { 64, 5, 384 }
    };
    for (uint32_t i = 0; i < N_OF(sizes); i++)
        for (uint32_t how = 0; how < 4; how++) exact(sizes[i][0], sizes[i][1], sizes[i][2], how & 1 ? GDN_BF16 : GDN_F32, how & 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(bytes_of_the_instruction) };
    return cmocka_run_group_tests(tests, target_setup, target_teardown);
}
