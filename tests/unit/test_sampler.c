/* test_sampler.c - greedy and top-p sampling: the set that is drawn from, its frequencies, the seed. */
#include "sampler.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 5 };
/* Logs of 0.1, 0.4, 0.05, 0.4 (a little less), 0.05. */
static const float logits[N] = { -2.302585f, -0.9162907f, -2.9957323f, -0.9162908f, -2.9957324f };

static void greedy(void **state) {
    (void)state;
    gdn_sampler s;
    uint32_t token = 99;
    float gap = -1;
    assert_int_equal(gdn_sampler_init(&s, 0, 1, 0, N, NULL), GDN_OK);
    const float a[N] = { 1, 7, 3, 6.5f, 7 }, b[N] = { -1, -1, -1, -1, -1 }, c[N] = { 9, 2, 3, 4, 5 };
    assert_int_equal(gdn_sampler_next(&s, a, &token, &gap), GDN_OK);
    assert_int_equal(token, 1); /* the first of two equal ones */
    assert_true(gap == 0);
    assert_int_equal(gdn_sampler_next(&s, b, &token, &gap), GDN_OK);
    assert_int_equal(token, 0);
    assert_int_equal(gdn_sampler_next(&s, c, &token, &gap), GDN_OK);
    assert_int_equal(token, 0);
    assert_true(gap == 4);
    float bad[N];
    for (int i = 0; i < N; i++) {
        memcpy(bad, a, sizeof bad);
        static const float not_finite[] = { NAN, INFINITY, -INFINITY };
        for (int k = 0; k < 3; k++) {
            bad[i] = not_finite[k];
            assert_int_equal(gdn_sampler_next(&s, bad, &token, NULL), GDN_E_INTERNAL);
        }
    }
    gdn_sampler_free(&s);
}

static void counts(double temperature, double top_p, uint64_t seed, int draws, int out[N]) {
    gdn_sampler s;
    memset(out, 0, N * sizeof *out);
    assert_int_equal(gdn_sampler_init(&s, temperature, top_p, seed, N, NULL), GDN_OK);
    for (int i = 0; i < draws; i++) {
        uint32_t token = N;
        assert_int_equal(gdn_sampler_next(&s, logits, &token, NULL), GDN_OK);
        assert_true(token < N);
        out[token]++;
    }
    gdn_sampler_free(&s);
}

/* Within five standard deviations of the expected count. */
static void near(int got, double p, int draws) {
    const double sigma = sqrt(p * (1 - p) * draws);
    if (fabs(got - p * draws) > 5 * sigma) fail_msg("%d draws, expected %.0f +- %.0f", got, p * draws, 5 * sigma);
}

static void frequencies(void **state) {
    (void)state;
    enum { DRAWS = 40000 };
    int n[N];
    counts(1, 1, 1, DRAWS, n);
    near(n[0], 0.1, DRAWS);
    near(n[1], 0.4, DRAWS);
    near(n[2], 0.05, DRAWS);
    counts(0.5, 1, 2, DRAWS, n); /* squares: .01 .16 .0025 .16 .0025 */
    near(n[0], 0.01 / 0.335, DRAWS);
    near(n[3], 0.16 / 0.335, DRAWS);
    counts(1, 0.79, 3, DRAWS, n); /* the two best hold 0.8 */
    near(n[1], 0.5, DRAWS);
    assert_int_equal(n[0] + n[2] + n[4], 0);
    counts(1, 0.85, 4, DRAWS, n); /* and the third */
    near(n[0], 0.1 / 0.9, DRAWS);
    assert_int_equal(n[2] + n[4], 0);
    counts(1, 1e-9, 5, 100, n); /* never fewer than one: the best */
    assert_int_equal(n[1], 100);
    counts(1e-3, 1, 6, 100, n); /* cold: of the two that are nearly equal only */
    assert_int_equal(n[1] + n[3], 100);
}

static void seeds(void **state) {
    (void)state;
    gdn_sampler a, b, c;
    assert_int_equal(gdn_sampler_init(&a, 1, 1, 7, N, NULL), GDN_OK);
    assert_int_equal(gdn_sampler_init(&b, 1, 1, 7, N, NULL), GDN_OK);
    assert_int_equal(gdn_sampler_init(&c, 1, 1, 8, N, NULL), GDN_OK);
    int differ = 0;
    for (int i = 0; i < 200; i++) {
        uint32_t x = 0, y = 0, z = 0;
        assert_int_equal(gdn_sampler_next(&a, logits, &x, NULL), GDN_OK);
        assert_int_equal(gdn_sampler_next(&b, logits, &y, NULL), GDN_OK);
        assert_int_equal(gdn_sampler_next(&c, logits, &z, NULL), GDN_OK);
        assert_int_equal(x, y);
        differ += x != z;
    }
    assert_true(differ > 50);
    gdn_sampler_free(&a);
    gdn_sampler_free(&b);
    gdn_sampler_free(&c);
}

static void bad_arguments(void **state) {
    (void)state;
    char buf[120] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_sampler s;
    const double temperatures[] = { -1, NAN, INFINITY }, top_ps[] = { 0, -0.1, 1.1, NAN };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(gdn_sampler_init(&s, temperatures[i], 1, 0, N, &err), GDN_E_ARG);
        assert_non_null(strstr(buf, "temperature is"));
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gdn_sampler_init(&s, 1, top_ps[i], 0, N, &err), GDN_E_ARG);
        assert_non_null(strstr(buf, "top_p is"));
    }
    assert_int_equal(gdn_sampler_init(&s, 1, 1, 0, 0, &err), GDN_E_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy),
        cmocka_unit_test(frequencies),
        cmocka_unit_test(seeds),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
