/* test_engine_pace.c - steps go into threads while these are cheaper, and alone while they are not; what is changed is put back. */
#include "pace.h"
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Runs n steps that cost `alone` or `threads`; answers how many ran in threads. */
static uint32_t steps(gdn__pace *p, uint32_t n, double alone, double threads) {
    uint32_t in_threads = 0;
    for (uint32_t i = 0; i < n; i++) {
        in_threads += p->threaded;
        gdn__pace_took(p, p->threaded ? threads : alone);
    }
    return in_threads;
}

static void threads_while_they_are_cheaper(void **state) {
    (void)state;
    gdn__pace p = { 0 };
    assert_int_equal(steps(&p, 1000, 1e-3, 6e-4), 1000 - GDN__PACE_FIRST);
    assert_true(p.threaded);
    /* one step that was interrupted a little is no reason, a stall is */
    gdn__pace_took(&p, 15e-4);
    assert_true(p.threaded);
    gdn__pace_took(&p, 8e-3);
    assert_false(p.threaded);
    /* and after the pause they are tried again */
    assert_int_equal(steps(&p, GDN__PACE_PAUSE, 1e-3, 6e-4), 0);
    assert_int_equal(steps(&p, 100, 1e-3, 6e-4), 100);
}

/* Beside a busy program: the tries become rare, so that their stalls stay a small part of the whole. */
static void alone_while_threads_stall(void **state) {
    (void)state;
    gdn__pace p = { 0 };
    assert_int_equal(steps(&p, 1000, 1e-3, 0.1), 5);    /* after 4 steps, 64, 128, 256, 512 */
    assert_int_equal(steps(&p, 100000, 1e-3, 0.1), 25); /* after 1024 in all, 2048, then each 4096 */
    /* the machine is free again: within the longest pause it is noticed, and the pauses are short again */
    assert_true(steps(&p, 3 * GDN__PACE_LONGEST, 1e-3, 6e-4) >= 2 * GDN__PACE_LONGEST - 1);
    assert_int_equal(p.pause, GDN__PACE_PAUSE);
}

static void caller_keeps_his_threads(void **state) {
    (void)state;
    gdn__pace p = { 0 };
    omp_set_num_threads(3);
    for (uint32_t i = 0; i < 2 * GDN__PACE_FIRST; i++) {
        gdn__pace_begin(&p);
        assert_int_equal(omp_get_max_threads(), p.threaded ? 3 : 1);
        gdn__pace_end(&p, true);
        assert_int_equal(omp_get_max_threads(), 3);
    }
    assert_true(p.alone > 0 && (p.threads > 0 || !p.threaded)); /* both were tried */
    const gdn__pace before = p;
    gdn__pace_begin(&p);
    gdn__pace_end(&p, false); /* a piece that is not judged */
    assert_true(p.alone == before.alone && p.threads == before.threads && p.left == before.left);
    omp_set_num_threads(1);
    gdn__pace one = { 0 };
    gdn__pace_begin(&one); /* nothing to choose: nothing is learnt */
    gdn__pace_end(&one, true);
    assert_true(one.alone == 0 && one.left == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_while_they_are_cheaper),
        cmocka_unit_test(alone_while_threads_stall),
        cmocka_unit_test(caller_keeps_his_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
