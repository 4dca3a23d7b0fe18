/* test_ba_maps.c - the index maps of the BA gates kernels (kernels/common/gdn_ba_maps.h): which lane reads what, where an output lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../kernels/common/gdn_ba_maps.h"

enum { MOST = 4096 };

/* Over the lanes, each vector of 0..count exactly once, ascending in each lane. */
static void test_lane_kv_is_a_partition(void **state) {
    (void)state;
    const unsigned ks[] = { 8, 64, 512, 520, 1032, 5120, 8 * MOST };
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        const unsigned count = ks[i] / GDN_BA_VECTOR;
        unsigned char seen[MOST] = { 0 };
        for (unsigned lane = 0; lane < GDN_BA_LANES; lane++) {
            for (unsigned step = 0; gdn_ba_lane_kv(lane, step) < count; step++) {
                const unsigned kv = gdn_ba_lane_kv(lane, step);
                assert_int_equal(kv % GDN_BA_LANES, lane);
                assert_int_equal(kv / GDN_BA_LANES, step);
                seen[kv]++;
            }
        }
        for (unsigned kv = 0; kv < count; kv++) assert_int_equal(seen[kv], 1);
    }
}

static void test_outputs_and_warps(void **state) {
    (void)state;
    assert_int_equal(GDN_BA_OUTPUTS * GDN_BA_LANES, GDN_BA_BLOCK);
    assert_int_equal(GDN_BA_WARPS * 32, GDN_BA_BLOCK);
    unsigned next = 0;
    for (unsigned group = 0; group < 24; group++)
        for (unsigned lo = 0; lo < GDN_BA_OUTPUTS; lo++) assert_int_equal(gdn_ba_output(group, lo), next++);
    unsigned lanes[8] = { 0 };
    for (unsigned lo = 0; lo < GDN_BA_OUTPUTS; lo++) {
        const gdn_ba_pair pair = gdn_ba_warp_pair(lo);
        assert_int_equal(pair.even, 2 * lo);
        assert_int_equal(pair.odd, 2 * lo + 1);
        for (unsigned lane = 0; lane < GDN_BA_LANES; lane++) {
            const unsigned warp = gdn_ba_warp(lo, lane);
            assert_int_equal(warp, 2 * lo + lane / 32);
            assert_int_equal(warp, (lo * GDN_BA_LANES + lane) / 32); /* the hardware's warp of that thread */
            assert_true(warp == (lane < 32 ? pair.even : pair.odd));
            lanes[warp]++;
        }
    }
    for (unsigned w = 0; w < GDN_BA_WARPS; w++) assert_int_equal(lanes[w], 32);
}

static void expect_slot(unsigned n, unsigned vpg, unsigned head, unsigned is_beta) {
    const gdn_ba_slot s = gdn_ba_slot_of(n, vpg);
    assert_int_equal(s.head, head);
    assert_int_equal(s.is_beta, is_beta);
}

static void test_slot_values(void **state) {
    (void)state;
    expect_slot(0, 2, 0, 1);
    expect_slot(1, 2, 1, 1);
    expect_slot(2, 2, 0, 0);
    expect_slot(3, 2, 1, 0);
    expect_slot(4, 2, 2, 1);
    expect_slot(6, 2, 2, 0);
    expect_slot(0, 1, 0, 1);
    expect_slot(1, 1, 0, 0);
    expect_slot(5, 3, 2, 0);
    expect_slot(47, 48, 47, 1); /* vpg = nv: all b, then all a */
    expect_slot(48, 48, 0, 0);
}

/* Columns 0..2 nv fill the row [gate nv | beta nv], each place once. */
static int is_bijection(unsigned nv, unsigned vpg, unsigned (*slot_place)(unsigned n, unsigned nv, unsigned vpg)) {
    unsigned char seen[2 * MOST] = { 0 };
    for (unsigned n = 0; n < 2 * nv; n++) {
        const unsigned at = slot_place(n, nv, vpg);
        if (at >= 2 * nv || seen[at]++) return 0;
    }
    return 1;
}
static unsigned place(unsigned n, unsigned nv, unsigned vpg) {
    return gdn_ba_place(gdn_ba_slot_of(n, vpg), nv);
}
static unsigned wrong_place(unsigned n, unsigned nv, unsigned vpg) { /* reads the group's width as vpg */
    const gdn_ba_slot s = gdn_ba_slot_of(n, vpg);
    return gdn_ba_place((gdn_ba_slot) { .head = n / vpg * vpg / 2 + s.head % vpg, .is_beta = s.is_beta }, nv);
}
static void test_slot_is_a_bijection(void **state) {
    (void)state;
    const unsigned shapes[][2] = { { 48, 3 }, { 48, 48 }, { 32, 2 }, { 32, 1 }, { 1, 1 }, { 6, 3 }, { 64, 8 }, { 47, 47 }, { MOST, 4 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        assert_true(is_bijection(shapes[i][0], shapes[i][1], place));
        for (unsigned n = 0; n < 2 * shapes[i][0]; n++) {
            const gdn_ba_slot s = gdn_ba_slot_of(n, shapes[i][1]);
            assert_int_equal(gdn_ba_place(s, shapes[i][0]), s.is_beta ? shapes[i][0] + s.head : s.head);
        }
    }
    assert_false(is_bijection(48, 3, wrong_place)); /* control */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lane_kv_is_a_partition),
        cmocka_unit_test(test_outputs_and_warps),
        cmocka_unit_test(test_slot_values),
        cmocka_unit_test(test_slot_is_a_bijection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
