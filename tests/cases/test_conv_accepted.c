/* test_conv_accepted.c - speculation and the conv state: accepting rows of a verify (GDN_CONV_KEEP_ROWS) is an offset. */
#include "conv_case.h"
#include <string.h>

/* A state after a verify of which na rows were accepted, read at na, is the state after na plain updates: the same bytes, of all slots of
 * a batch whose sequences accept different numbers. */
static void accepted_rows_leave_the_bytes_of_plain_updates(void **state) {
    (void)state;
    static const int32_t slots[] = { 5, 0, -1, 7, 2, 6 }, na[] = { 0, 4, 2, 1, 2, 3 };
    static const uint8_t fresh[] = { 0, 0, 0, 1, 0, 0 };
    for (uint32_t fused = 0; fused < 2; fused++) {
        conv_spec s = {
            .act = target_act(), .rows = 4, .extra = 4, .keep = true, .batch = 6, .slots = slots, .fresh = fresh, .num_slots = 8
        };
        if (fused)
            s.nk = 1, s.nv = 2, s.dim = 64;
        else
            s.channels = 37;
        conv_case draft;
        conv_make(&draft, &s);
        guard first = guard_copy(&draft.state);
        assert_int_equal(conv_launch(&draft, 0, 6), GDN_OK);
        for (uint32_t b = 0; b < 6; b++) {
            conv_case plain;
            conv_spec one = s;
            const int32_t to = slots[b] < 0 ? 0 : slots[b];
            one.rows = one.batch = 1, one.keep = false, one.slots = &to, one.fresh = NULL;
            conv_make(&plain, &one);
            guard_put(&plain.state, first.p);
            const uint64_t size = num_size(s.act), row = plain.s.channels * size;
            if (fresh[b]) memset(plain.state.p + (uint32_t)to * plain.slot_stride * size, 0, plain.slot_stride * size);
            for (int32_t t = 0; t < na[b]; t++) {
                memcpy(plain.x.p, draft.x.p + (b * 4ull + (uint32_t)t) * row, row);
                assert_int_equal(conv_launch(&plain, 0, 1), GDN_OK);
            }
            for (uint32_t ch = 0; ch < plain.s.channels && slots[b] >= 0; ch++)
                assert_memory_equal(plain.state.p + conv_at(&plain, (uint32_t)to, ch, 0) * size,
                                    draft.state.p + conv_at(&draft, (uint32_t)to, ch, (uint32_t)na[b]) * size, 3 * size);
            conv_free(&plain);
        }
        guard_free(&first);
        conv_free(&draft);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(accepted_rows_leave_the_bytes_of_plain_updates) };
    return cmocka_run_group_tests_name("conv accepted", tests, target_setup, target_teardown);
}
