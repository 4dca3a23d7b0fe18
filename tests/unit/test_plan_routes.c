/* test_plan_routes.c - the pure decisions: pinned rows of the scalar spine, guards in their order, floors and edges. */
#include "plan_common.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

/* (gdn_pipe, gdn_vtile) -> spine; NULL is unset. */
static void scalar_spine_rows(void **state) {
    (void)state;
    static const struct {
        const char *pipe, *vtile;
        uint32_t spine;
    } rows[] = {
        { NULL, NULL, GDN__SPINE_PIPE },   { "1", NULL, GDN__SPINE_PIPE },   { "1", "1", GDN__SPINE_PIPE },
        { NULL, "1", GDN__SPINE_VTILE },   { "0", "1", GDN__SPINE_VTILE },   { "0", NULL, GDN__SPINE_VFUSED },
        { "0", "0", GDN__SPINE_VFUSED },   { "yes", NULL, GDN__SPINE_PIPE }, { NULL, "0", GDN__SPINE_PIPE },
        { "", NULL, GDN__SPINE_PIPE },     { " 1", NULL, GDN__SPINE_PIPE },  { "true", "true", GDN__SPINE_PIPE },
        { "0", "yes", GDN__SPINE_VFUSED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (gdn__scalar_spine(rows[i].pipe, rows[i].vtile) != rows[i].spine)
            fail_msg("row %zu: (%s, %s)", i, rows[i].pipe ? rows[i].pipe : "-", rows[i].vtile ? rows[i].vtile : "-");
    }
}

static void ba_floor(void **state) {
    (void)state;
    assert_int_equal(gdn__ba_min_tokens(132), 264);
    assert_int_equal(gdn__ba_min_tokens(48), 96);
    assert_int_equal(gdn__ba_min_tokens(0), 2);
    assert_int_equal(gdn__ba_min_tokens(UINT32_MAX), UINT32_MAX);
}

/* Each row breaks everything from its guard on: the first in the contract's order must answer. */
static void ba_guards_in_order(void **state) {
    (void)state;
    assert_int_equal(gdn__ba_pick(false, false, 0, 0, 0, 0, 132), GDN_BA_NOT_REQUESTED);
    assert_int_equal(gdn__ba_pick(true, false, 0, 0, 0, 0, 132), GDN_BA_KERNEL_ABSENT);
    assert_int_equal(gdn__ba_pick(true, true, 0, 0, 7, 0, 132), GDN_BA_EMPTY);
    assert_int_equal(gdn__ba_pick(true, true, 0, 96, 0, 0, 132), GDN_BA_EMPTY);
    assert_int_equal(gdn__ba_pick(true, true, 0, 96, 5121, 0, 132), GDN_BA_K_TAIL);
    assert_int_equal(gdn__ba_pick(true, true, 0, 96, 5120, 5119, 132), GDN_BA_K_STRIDE);
    assert_int_equal(gdn__ba_pick(true, true, 263, 96, 5120, 5120, 132), GDN_BA_FEW_TOKENS);
    assert_int_equal(gdn__ba_pick(true, true, 264, 96, 5120, 5120, 132), GDN_BA_TWIN);
    assert_int_equal(gdn__ba_pick(true, true, 16, 96, 5120, 5120, 132), GDN_BA_FEW_TOKENS);
    assert_string_equal(gdn__ba_guard_text(GDN_BA_FEW_TOKENS), "too few tokens to fill the device at one CTA per token");
    assert_null(gdn__ba_guard_text(GDN_BA_TWIN));
}

/* Each row breaks everything from its guard on. */
static void decode_step_guards_in_order(void **state) {
    (void)state;
    gdn_step_shape s = { .k_dim = 64, .v_dim = 64, .width = 3, .state_type = GDN_BF16 };
    assert_int_equal(gdn__dstep_pick(&s, 65536), GDN_STEP_DIMS);
    s.k_dim = 128;
    assert_int_equal(gdn__dstep_pick(&s, 65536), GDN_STEP_DIMS);
    s.v_dim = 128;
    assert_int_equal(gdn__dstep_pick(&s, 65536), GDN_STEP_WIDTH);
    s.width = 4;
    assert_int_equal(gdn__dstep_pick(&s, 65536), GDN_STEP_STATE_TYPE);
    s.state_type = GDN_F32;
    assert_int_equal(gdn__dstep_pick(&s, 65536), GDN_STEP_BATCH);
    assert_int_equal(gdn__dstep_pick(&s, 65535), GDN_STEP_TAKEN);
    assert_string_equal(gdn__dstep_guard_text(GDN_STEP_DIMS), "k_dim or v_dim is not 128");
    assert_null(gdn__dstep_guard_text(GDN_STEP_TAKEN));
}

static void ba_tensor_core_guards(void **state) {
    (void)state;
    assert_int_equal(gdn__ba_tc_min_rows(132), 165);
    assert_int_equal(gdn__ba_tc_min_rows(0), 2);
    assert_int_equal(gdn__ba_tc_min_rows(UINT32_MAX), UINT32_MAX);
    assert_int_equal(gdn__ba_tc_pick(false, false, 0, 129, 63, 132), GDN__BA_TC_NOT_REQUESTED);
    assert_int_equal(gdn__ba_tc_pick(true, false, 0, 129, 63, 132), GDN__BA_TC_KERNEL_ABSENT);
    assert_int_equal(gdn__ba_tc_pick(true, true, 0, 129, 63, 132), GDN__BA_TC_N_BIG);
    assert_int_equal(gdn__ba_tc_pick(true, true, 0, 128, 63, 132), GDN__BA_TC_K_TILE);
    assert_int_equal(gdn__ba_tc_pick(true, true, 164, 128, 64, 132), GDN__BA_TC_FEW_ROWS);
    assert_int_equal(gdn__ba_tc_pick(true, true, 165, 128, 64, 132), GDN__BA_TC_TAKEN);
}

static void woa_guards_in_order(void **state) {
    (void)state;
    gdn_rule_shape s = { .k_dim = 64, .v_dim = 64, .state_type = GDN_BF16, .stash_seqs = 0 };
    assert_int_equal(gdn__woa_pick(false, false, &s, 3, 9), GDN_WOA_NOT_REQUESTED);
    assert_int_equal(gdn__woa_pick(true, false, &s, 3, 9), GDN_WOA_ROWS_NOT_4);
    assert_int_equal(gdn__woa_pick(true, false, &s, 4, 9), GDN_WOA_STATE_TYPE);
    s.state_type = GDN_F32;
    assert_int_equal(gdn__woa_pick(true, false, &s, 4, 9), GDN_WOA_DIMS);
    s.k_dim = s.v_dim = 128;
    assert_int_equal(gdn__woa_pick(true, false, &s, 4, 9), GDN_WOA_KERNEL_ABSENT);
    assert_int_equal(gdn__woa_pick(true, true, &s, 4, 9), GDN_WOA_NO_STASH);
    s.stash_seqs = 8;
    assert_int_equal(gdn__woa_pick(true, true, &s, 4, 9), GDN_WOA_STASH_SMALL);
    assert_int_equal(gdn__woa_pick(true, true, &s, 4, 8), GDN_WOA_TAKEN);
}

static void tensor_core_spine_guards(void **state) {
    (void)state;
    assert_int_equal(gdn__tc_pick(false, true, 128, 128, 64, 10240), GDN__TC_NOT_REQUESTED);
    assert_int_equal(gdn__tc_pick(true, false, 64, 64, 64, 1), GDN__TC_KERNEL_ABSENT);
    assert_int_equal(gdn__tc_pick(true, true, 128, 128, 32, 1), GDN__TC_DIMS);
    assert_int_equal(gdn__tc_pick(true, true, 128, 128, 64, 10244), GDN__TC_STRIDE);
    assert_int_equal(gdn__tc_pick(true, true, 128, 128, 64, 10240), GDN__TC_TAKEN);
}

/* Each row breaks everything from its guard on. */
static void fast_prefill_guards(void **state) {
    (void)state;
    gdn_rule_shape s = {
        .nk = 1, .nv = 9, .k_dim = 64, .v_dim = 64, .qk_stride = 132, .v_stride = 1156, .ckpt_every = 64, .max_tokens = 65535 * 64
    };
    assert_int_equal(gdn__fast_pick(false, false, &s), GDN__FAST_NOT_REQUESTED);
    assert_int_equal(gdn__fast_pick(true, false, &s), GDN__FAST_KERNEL_ABSENT);
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_DIMS);
    s.k_dim = 128;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_DIMS);
    s.v_dim = 128;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_RATIO);
    s.nv = 8;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_STRIDE);
    s.v_stride = 1152;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_STRIDE);
    s.base.flags = GDN_QK_L2NORM; /* dense copies of query and key */
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_LONG);
    s.base.flags = 0;
    s.qk_stride = 136;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_LONG);
    s.max_tokens--;
    assert_int_equal(gdn__fast_pick(true, true, &s), GDN__FAST_TAKEN);
    assert_null(gdn__fast_guard_text(GDN__FAST_TAKEN));
    for (uint32_t g = 0; g < GDN__GUARDS; g++) { /* every counter has its text */
        uint32_t op = 0;
        assert_non_null(gdn__guard_text(g, &op));
        assert_true(op != 0);
    }
}

static void w4a4_guards(void **state) {
    (void)state;
    assert_int_equal(gdn__w4a4_pick(65, 0, 0), GDN_W4A4_M_BIG);
    assert_int_equal(gdn__w4a4_pick(64, 0, 0), GDN_W4A4_N_ZERO);
    assert_int_equal(gdn__w4a4_pick(64, 7, 0), GDN_W4A4_K_ZERO);
    assert_int_equal(gdn__w4a4_pick(1, 7, 5120 + 64), GDN_W4A4_K_TAIL);
    assert_int_equal(gdn__w4a4_pick(1, 7, 32768 + 128), GDN_W4A4_K_BIG);
    assert_int_equal(gdn__w4a4_pick(1, 7, 32768), GDN_W4A4_TAKEN);
}

/* Every operation has a row whose lists fit the call struct, and a name of its own. */
static void every_operation_is_described(void **state) {
    (void)state;
    for (uint32_t op = 1; op < GDN_OP_COUNT_; op++) {
        const gdn__op *o = gdn__op_find(op);
        assert_non_null(o);
        assert_true(o->n_ptr <= GDN__MAX_PTR && o->n_u32 <= GDN__MAX_U32 && o->shape_size % 8 == 0);
        for (uint32_t i = 0; i < o->n_ptr; i++) assert_non_null(o->ptr[i].name);
        for (uint32_t i = 0; i < o->n_u32; i++) assert_non_null(o->u32[i].name);
        for (uint32_t other = 1; other < op; other++) assert_string_not_equal(gdn__op_name(op), gdn__op_name(other));
    }
    assert_null(gdn__op_find(0));
    assert_null(gdn__op_find(GDN_OP_COUNT_));
}

/* What rsqrtf gave on an H200: every target scales by the same bits. */
static void output_scales(void **state) {
    (void)state;
    const float s = gdn__own_scale(128);
    uint32_t bits;
    memcpy(&bits, &s, sizeof bits);
    assert_int_equal(bits, 0x3db504f2);
    assert_true(gdn__own_scale(64) == 0.125f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_scales),
        cmocka_unit_test(scalar_spine_rows),
        cmocka_unit_test(ba_floor),
        cmocka_unit_test(ba_guards_in_order),
        cmocka_unit_test(decode_step_guards_in_order),
        cmocka_unit_test(ba_tensor_core_guards),
        cmocka_unit_test(woa_guards_in_order),
        cmocka_unit_test(tensor_core_spine_guards),
        cmocka_unit_test(w4a4_guards),
        cmocka_unit_test(every_operation_is_described),
        cmocka_unit_test(fast_prefill_guards),
    };
    return cmocka_run_group_tests_name("plan_routes", tests, NULL, NULL) != 0;
}
