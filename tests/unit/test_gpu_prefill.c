/* test_gpu_prefill.c - prefill of the hopper and gb10 plugins on the mocked backend: kernels, geometry, guards, lines, workspace. */
#include "gpu_prefill_bench.h"

/* The contract's geometry, entry by entry. */
static void three_launches(void **state) {
    (void)state;
    static const struct {
        const char *levers[7], *spine, *fwd_o, *wu, *lever;
        uint32_t block, smem, o_smem, wu_block, wu_smem;
    } row[] = {
        { { NULL }, "pipe", FWD_O "_mma8", WU, NULL, 256, 99336, 98816, 256, 33024 },
        { { "gdn_pipe", "1", "gdn_vtile", "1", NULL }, "pipe", FWD_O "_mma8", WU, "gdn_pipe", 256, 99336, 98816, 256, 33024 },
        { { "gdn_pipe", "true", NULL }, "pipe", FWD_O "_mma8", WU, NULL, 256, 99336, 98816, 256, 33024 },
        { { "gdn_pipe", "0", "gdn_vtile", "1", NULL }, "vtile", FWD_O "_mma8", WU, "gdn_vtile", 512, 49412, 98816, 256, 33024 },
        { { "gdn_pipe", "0", NULL }, "vfused", FWD_O "_mma8", WU, "gdn_pipe", 256, 49412, 98816, 256, 33024 },
        { { "gdn_vtile", "1", NULL }, "vtile", FWD_O "_mma8", WU, "gdn_vtile", 512, 49412, 98816, 256, 33024 },
        { { "gdn_no_fwd_o_mma8", "true", NULL }, "pipe", FWD_O, WU, NULL, 256, 99336, 98816, 256, 33024 },
        { { "gdn_prefill_tc", "true", NULL }, "tcfuse_x2", FWD_O "_hopper", WU "_hopper", "gdn_prefill_tc", 256, 88324, 97536, 512, 79104 },
        { { "gdn_prefill_tc", "true", "gdn_no_fwd_o_mma8", "true", NULL },
          "tcfuse_x2",
          FWD_O,
          WU "_hopper",
          "gdn_prefill_tc",
          256,
          88324,
          98816,
          512,
          79104 },
        { { "gdn_prefill_tc", "true", "gdn_no_prefill_tc", "true", NULL },
          "pipe",
          FWD_O "_mma8",
          WU,
          "gdn_no_prefill_tc",
          256,
          99336,
          98816,
          256,
          33024 },
    };
    for (uint32_t i = 0; i < sizeof row / sizeof *row; i++) {
        bench b;
        char spine[96];
        const gdn_rule_shape s = shape_of();
        up(&b, "hopper", row[i].levers);
        snprintf(spine, sizeof spine, DELTA_H "%s", row[i].spine);
        if (make(&b, &s)) fail_msg("plan: %s", b.text);
        assert_int_equal(launch(&b, AT(2), 0, 2, 130), GDN_OK);
        assert_int_equal(b.m.launches, 3);
        ran(&b, 0, row[i].wu, 3, 48, 2, row[i].wu_block, row[i].wu_smem);
        ran(&b, 1, spine, 48, 2, 1, row[i].block, row[i].smem);
        ran(&b, 2, row[i].fwd_o, 3, 48, 2, 512, row[i].o_smem);
        gdn_route r = { .struct_size = (uint32_t)sizeof r };
        const uint32_t u32[] = { 2, 130 };
        assert_int_equal(b.id->ops->explain(b.plan, 2, u32, &r), GDN_OK);
        assert_string_equal(r.entry, spine); /* what explain says is what ran */
        if (!row[i].lever || !r.lever)
            assert_true(!row[i].lever && !r.lever);
        else
            assert_string_equal(r.lever, row[i].lever);
        assert_true(r.grid[0] == 48 && r.grid[1] == 2 && r.block[0] == row[i].block && r.smem_bytes == row[i].smem);
        down(&b);
    }
}

/* Extras go through the _ext entries; tables and normalised copies are made in front. */
static void extras(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    up(&b, "gb10", NULL);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 1u << GDN_PREFILL_P_FRESH, 2, 64), GDN_OK);
    assert_int_equal(b.m.launches, 4);
    ran(&b, 0, "gdn_rule_tables", 1, 1, 1, 256, 0);
    ran(&b, 1, WU "_ext", 1, 48, 2, 256, 33024);
    ran(&b, 2, DELTA_H "pipe_ext", 48, 2, 1, 256, 99336);
    ran(&b, 3, FWD_O "_mma8_ext", 1, 48, 2, 512, 98816);
    s.base.flags = GDN_QK_L2NORM;
    s.state_addr = GDN_STATE_TABLE;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 2, 64), GDN_OK);
    assert_int_equal(b.m.launches, 4); /* the caller's table is taken as it is */
    ran(&b, 0, "gdn_rule_l2norm", 2 * 64 * 16 / 8, 1, 1, 256, 0);
    s = shape_of();
    s.k_dim = s.v_dim = 64;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 2, 64), GDN_OK);
    assert_int_equal(b.m.launches, 1);
    ran(&b, 0, "gated_delta_rule_recurrent_prefill", 48, 2, 1, 256, 0);
    /* Sequences without tokens: states only. */
    s = shape_of();
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 2, 0), GDN_OK);
    assert_int_equal(b.m.launches, 1);
    down(&b);
}

static void guards(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_tc", "true", NULL });
    s.qk_stride = 10240; /* taken */
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(r.chosen == 1 && !r.guard && strcmp(r.entry, DELTA_H "tcfuse_x2") == 0);
    s.qk_stride = 10244;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(r.chosen == 0 && strcmp(r.entry, DELTA_H "pipe") == 0);
    assert_string_equal(r.guard, "qk_stride is not a multiple of 8 (16-byte K loads)");
    assert_int_equal(launch(&b, AT(2), 0, 1, 64), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 1, 64), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m,
                                      "GDN state spine: the tensor-core spine is NOT running: qk_stride is not a multiple of 8 (16-byte K "
                                      "loads); gated_delta_rule_chunk_delta_h_pipe runs (METRALE_GDN_PREFILL_TC)"),
                     1);
    s = shape_of();
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2) + 2, 0, 1, 64), GDN_OK); /* a key base that 16-byte loads cannot take */
    ran(&b, 1, DELTA_H "pipe", 48, 1, 1, 256, 99336);
    assert_true(mock_said(&b.m, "NOT running: key is not 16-byte aligned (16-byte K loads); gated_delta_rule_chunk_delta_h_pipe runs"));
    down(&b);
    up(&b, "gb10", (const char *const[]) { "gdn_prefill_tc", "true", NULL });
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 1, 64), GDN_OK);
    assert_true(
        mock_said(&b.m, "NOT running: kernel absent from this image (kernels/hopper only); gated_delta_rule_chunk_delta_h_pipe runs"));
    s.state_type = GDN_BF16;
    assert_int_equal(make(&b, &s), GDN_REFUSED);
    s = shape_of();
    s.k_dim = s.v_dim = 96;
    assert_int_equal(make(&b, &s), GDN_REFUSED);
    assert_non_null(strstr(b.text, "k_dim and v_dim are not 64/64 or 128/128"));
    down(&b);
}

static void lines(void **state) {
    (void)state;
    static const char bound[] =
        "GDN state spine: gated_delta_rule_chunk_delta_h_tcfuse_x2 ([defaults] gdn_prefill_tc; the scalar spine stays "
        "bound as the fallback the prefill's shape guards drop to, and the prefill logs the entry it launches)";
    static const char first[] = "3 route: GDN state spine: gated_delta_rule_chunk_delta_h_tcfuse_x2 (METRALE_GDN_PREFILL_TC; bf16 mma.sync "
                                "operands, f32 accumulator = the recurrent state, h stays f32) grid=[48,3] block=256 smem=88324B";
    bench b;
    gdn_rule_shape s = shape_of();
    s.layers = 5;
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_tc", "true", NULL });
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m, bound), 5);
    assert_false(mock_said(&b.m, "pipe"));
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m, first), 1);         /* at level info once a plan, */
    assert_int_equal(mock_count_lines(&b.m, "grid=[48,3]"), 3); /* at level debug each time   */
    assert_false(mock_said(&b.m, "tcfuse "));
    down(&b);
    up(&b, "hopper", NULL);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m, "GDN state spine: gated_delta_rule_chunk_delta_h_pipe"), 5);
    assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
    assert_int_equal(b.m.lines, 5); /* the lever off: silence */
    down(&b);
}

/* The workspace is bounded; a small one is gone through in segments, a too small one refused. */
static void workspace(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    up(&b, "gb10", NULL);
    s.max_batch = 1;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    const uint64_t rows = (8192 / 64 + 1) * 48;
    assert_true(r.workspace_bytes >= rows * 82176 && r.workspace_bytes <= rows * 82176 + 4096);
    s.max_workspace = 10ull * 48 * 82176 + 8192;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(r.workspace_bytes <= s.max_workspace);
    assert_int_equal(launch(&b, AT(2), 0, 1, 25 * 64 - 3), GDN_OK);
    assert_int_equal(b.m.launches, 1 + 3 * 3); /* tables, then 10 + 10 + 5 chunks */
    ran(&b, 1, WU "_ext", 10, 48, 1, 256, 33024);
    ran(&b, 7, WU "_ext", 5, 48, 1, 256, 33024);
    s.max_workspace = 48 * 82176 - 1;
    assert_int_equal(make(&b, &s), GDN_REFUSED);
    assert_non_null(strstr(b.text, "max_workspace holds less than one chunk of every sequence"));
    s.max_workspace = 0;
    s.max_batch = 65536;
    s.max_tokens = 1;
    assert_int_equal(make(&b, &s), GDN_REFUSED);
    assert_non_null(strstr(b.text, "65535"));
    down(&b);
}

/* B24: 101,376 bytes of shared memory a block, as GB10-class devices have, are enough for every kernel; less is told before any launch. */
static void B24_shared_memory_of_a_block(void **state) {
    (void)state;
    static const char *const levers[][3] = {
        { NULL }, { "gdn_pipe", "0", NULL }, { "gdn_vtile", "1", NULL }, { "gdn_no_fwd_o_mma8", "true", NULL }
    };
    for (uint32_t i = 0; i < sizeof levers / sizeof *levers; i++)
        for (uint32_t optin = 101376; optin >= 90000; optin -= 11376) {
            bench b;
            const gdn_rule_shape s = shape_of();
            up(&b, "gb10", levers[i]);
            b.id->ops->fini(b.ctx);
            b.m.device[0].smem_optin = optin;
            assert_int_equal(b.id->ops->init(&b.m.host, 0, &b.ctx, &b.err), GDN_OK);
            const gdn_status st = make(&b, &s);
            if (optin == 101376) {
                assert_int_equal(st, GDN_OK);
                assert_int_equal(launch(&b, AT(2), 0, 1, 64), GDN_OK);
            } else {
                assert_int_equal(st, GDN_ABSENT);
                assert_null(b.plan);
                assert_non_null(strstr(b.text, "bytes of shared memory a block, the device has 90000"));
            }
            down(&b);
        }
}

static void missing_pointers(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    up(&b, "gb10", NULL);
    s.state_addr = GDN_STATE_POOL;
    s.ckpt_every = 64;
    s.offsets = GDN_OFFSETS_I32;
    const uint64_t all = 1u << GDN_PREFILL_P_CU_SEQLENS | 1u << GDN_PREFILL_P_IN_SLOTS | 1u << GDN_PREFILL_P_CKPT;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), all, 2, 64), GDN_OK);
    static const char *const name[] = { "cu_seqlens", "in_tab", "ckpt" };
    static const uint32_t bit[] = { GDN_PREFILL_P_CU_SEQLENS, GDN_PREFILL_P_IN_SLOTS, GDN_PREFILL_P_CKPT };
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(launch(&b, AT(2), all & ~((uint64_t)1 << bit[i]), 2, 64), GDN_E_ARG);
        assert_int_equal(b.m.launches, 0);
        assert_true(mock_said(&b.m, name[i]));
    }
    assert_int_equal(launch(&b, AT(2) + 1, all, 2, 64), GDN_E_ARG);
    assert_true(mock_said(&b.m, "pointer 'key' is not 2-byte aligned"));
    down(&b);
}

/* Kernels that only a lever asks for are compiled by the first plan that has it, not when the target opens. */
static uint32_t others_loaded(const bench *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->m.modules; i++) n += strcmp(b->m.module[i].option, "-DGDN_OTHER_SPINES") == 0;
    return n;
}
static void other_spines_are_compiled_on_demand(void **state) {
    (void)state;
    static const char *const off[] = { "gdn_prefill_tc", "false", NULL },
                             *const vfused[] = { "gdn_prefill_tc", "false", "gdn_pipe", "0", NULL },
                             *const vtile[] = { "gdn_prefill_tc", "false", "gdn_pipe", "0", "gdn_vtile", "1", NULL };
    const struct {
        const char *const *levers;
        uint32_t others;
    } rows[] = { { off, 0 }, { vfused, 1 }, { vtile, 1 } };
    for (uint32_t i = 0; i < 3; i++) {
        bench b;
        const gdn_rule_shape s = shape_of();
        up(&b, "hopper", rows[i].levers);
        assert_int_equal(others_loaded(&b), 0);
        assert_int_equal(make(&b, &s), GDN_OK);
        assert_int_equal(make(&b, &s), GDN_OK);
        assert_int_equal(others_loaded(&b), rows[i].others);
        down(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_launches),
        cmocka_unit_test(extras),
        cmocka_unit_test(guards),
        cmocka_unit_test(lines),
        cmocka_unit_test(workspace),
        cmocka_unit_test(missing_pointers),
        cmocka_unit_test(B24_shared_memory_of_a_block),
        cmocka_unit_test(other_spines_are_compiled_on_demand),
    };
    return cmocka_run_group_tests_name("prefill on the mocked backend", tests, NULL, NULL);
}
