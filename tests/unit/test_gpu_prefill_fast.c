/* test_gpu_prefill_fast.c - the fast prefill of the hopper plugin on the mocked backend: launches, segments, guards, lines. */
#include "gpu_prefill_bench.h"

/* Two launches; what they are given, extras and segments. */
#define FAST "gated_delta_rule_fast_"
enum { FAST_SMEM = 183856, MANY_SMEM = 216672, PREPARE_SMEM = 67792 };
static void fast_launches(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t u32[] = { 2, 130 };
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_tc", "true", "gdn_prefill_fast", "true", NULL });
    if (make(&b, &s)) fail_msg("plan: %s", b.text);
    assert_int_equal(b.id->ops->explain(b.plan, 2, u32, &r), GDN_OK);
    assert_string_equal(r.entry, FAST "many");
    assert_string_equal(r.lever, "gdn_prefill_fast");
    assert_true(r.chosen == 1 && !r.guard && r.grid[0] == 132 && r.grid[1] == 1 && r.grid[2] == 1 && r.smem_bytes == MANY_SMEM);
    const uint64_t rows = (8192 / 64 + 4) * 48, ws = r.workspace_bytes;
    assert_true(ws >= rows * 82176 && ws <= rows * 82176 + 8192); /* the contract pipeline's: one of the two runs */
    b.m.params = 32;
    assert_int_equal(launch(&b, AT(2), 0, 2, 130), GDN_OK);
    assert_int_equal(b.m.launches, 2);
    ran(&b, 0, FAST "prepare_two", 16, 3, 2, 256, PREPARE_SMEM); /* one wave of two blocks a multiprocessor */
    ran(&b, 1, FAST "many", 132, 1, 1, 512, MANY_SMEM);          /* of 192 tasks */
    /* The scratch lies inside the workspace, in order, and both are given the same. */
    const uint64_t *const p = b.m.history[0].param, *const f = b.m.history[1].param, chunks = 8192 / 64 + 4;
    const uint64_t bytes[] = { chunks * 16 * 16384, chunks * 16 * 16384, chunks * 48 * 8192,
                               chunks * 48 * 8192,  chunks * 48 * 1168,  (chunks * 16 + 32) * 4 };
    assert_true(p[4] >= AT(100) && p[9] + bytes[5] <= AT(100) + ws);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(p[4 + i] == f[7 + i] && p[4 + i] % 16 == 0);
        if (i < 5) assert_true(p[4 + i] + bytes[i] == p[5 + i]);
    }
    assert_true((uint32_t)p[24] == 0 && (uint32_t)f[30] == 3 && (uint32_t)f[31] == 0); /* words to clear; lead, helpers */
    /* 96 tasks leave 36 multiprocessors to prepare 3 of 19 chunks; the words are cleared for all. */
    assert_int_equal(launch(&b, AT(2), 0, 1, 1168), GDN_OK);
    ran(&b, 0, FAST "prepare_two", 16, 16, 1, 256, PREPARE_SMEM);
    ran(&b, 1, FAST "fwd", 132, 1, 1, 512, FAST_SMEM);
    assert_true((uint32_t)p[24] == 32 + 19 * 16 && (uint32_t)f[30] == 16 && (uint32_t)f[31] == 36);
    static const uint32_t shared[][3] = { { 32, 22, 0 }, { 72, 33, 1 }, { 128, 64, 1 } }; /* chunks, lead, by two blocks */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(launch(&b, AT(2), 0, 1, 64 * shared[i][0]), GDN_OK);
        ran(&b, 0, shared[i][2] ? FAST "prepare_two" : FAST "prepare", 16, shared[i][1], 1, 256, PREPARE_SMEM);
    }
    static const uint32_t parts[][3] = {
        { 1, 3, 1 }, { 4, 2, 2 }, { 5, 3, 1 }, { 6, 1, 3 }
    }; /* chunks, blocks of a key head, heads of one */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(launch(&b, AT(2), 0, 1, 64 * parts[i][0]), GDN_OK);
        ran(&b, 0, FAST "prepare_two", 16 * parts[i][1], parts[i][0], 1, 256, PREPARE_SMEM);
        assert_int_equal((uint32_t)p[25], parts[i][2]);
        ran(&b, 1, FAST "fwd", 96, 1, 1, 512, FAST_SMEM); /* as many blocks as tasks */
    }
    b.m.params = 0;
    assert_int_equal(launch(&b, AT(2), 0, 4, 2048), GDN_OK);
    ran(&b, 0, FAST "prepare_two", 16, 32, 4, 256, PREPARE_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 2, 12 * 64), GDN_OK); /* 384 blocks: one round of three */
    ran(&b, 0, FAST "prepare", 16, 12, 2, 256, PREPARE_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 2, 16 * 64), GDN_OK); /* 512 blocks: two rounds of two */
    ran(&b, 0, FAST "prepare_two", 16, 16, 2, 256, PREPARE_SMEM);
    assert_int_equal(launch(&b, AT(2), 1u << GDN_PREFILL_P_FRESH, 2, 64), GDN_OK);
    ran(&b, 0, "gdn_rule_tables", 1, 1, 1, 256, 0);
    ran(&b, 2, FAST "many", 132, 1, 1, 512, MANY_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 2, 0), GDN_OK); /* no tokens: states only */
    assert_int_equal(b.m.launches, 1);
    ran(&b, 0, FAST "many", 132, 1, 1, 512, MANY_SMEM);
    s.max_batch = 1;
    s.max_workspace = 10ull * 48 * 82176 + 8192;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 1, 25 * 64 - 3), GDN_OK);
    assert_int_equal(b.m.launches, 1 + 3 * 2); /* tables, then 10 + 10 + 5 chunks */
    ran(&b, 1, FAST "prepare_two", 16, 10, 1, 256, PREPARE_SMEM);
    ran(&b, 5, FAST "prepare_two", 48, 5, 1, 256, PREPARE_SMEM);
    down(&b);
}

/* Few heads and long sequences: segments side by side, four launches. */
static void fast_segments(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t longest[] = { 1, 8192 }, brief[] = { 1, 1000 };
    s.nk = 2, s.nv = 8, s.max_batch = 1, s.max_tokens = 8192;
    s.qk_stride = s.v_stride = (2 * 2 + 8) * 128, s.gb_stride = 2 * 8;
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_fast", "true", NULL });
    if (make(&b, &s)) fail_msg("plan: %s", b.text);
    assert_int_equal(b.id->ops->explain(b.plan, 2, longest, &r), GDN_OK);
    assert_string_equal(r.entry, FAST "pass");
    assert_true(r.split_tokens == 26 * 64 && r.grid[0] == 80 && r.smem_bytes == FAST_SMEM); /* 5 segments x 8 heads x 2 */
    assert_true(mock_said(&b.m, "segments of 1664 tokens side by side"));
    b.m.params = 25;
    assert_int_equal(launch(&b, AT(2), 0, 1, 8192), GDN_OK);
    assert_int_equal(b.m.launches, 4);
    ran(&b, 0, FAST "prepare_two", 2, 128, 1, 256, PREPARE_SMEM);
    ran(&b, 1, FAST "carry", 128, 1, 1, 512, FAST_SMEM); /* four full segments */
    ran(&b, 2, FAST "join", 8, 1, 8, 256, 0);
    ran(&b, 3, FAST "pass", 80, 1, 1, 512, FAST_SMEM);
    assert_int_equal((uint32_t)b.m.history[0].param[24], 0); /* no flags */
    const uint64_t *const c = b.m.history[1].param, states = (129 / 26 + 1) * 8ull * 65536;
    for (uint32_t i = 1; i < 4; i++) assert_memory_equal(b.m.history[i].param, c, 24 * sizeof *c);
    assert_true((uint32_t)c[19] == 26 && (uint32_t)c[20] == 5 && c[22] == c[21] + states && c[23] == c[22] + states);
    assert_true(c[21] % 256 == 0 && c[23] + states <= AT(100) + r.workspace_bytes && c[21] > c[7]);
    /* One that ends before its first border passes as one, and gives the same bytes; the multiple is the plan's. */
    b.m.params = 0;
    assert_int_equal(b.id->ops->explain(b.plan, 2, brief, &r), GDN_OK);
    assert_true(strcmp(r.entry, FAST "fwd") == 0 && r.split_tokens == 26 * 64);
    assert_int_equal(launch(&b, AT(2), 0, 1, 26 * 64 - 1), GDN_OK);
    assert_int_equal(b.m.launches, 2);
    assert_int_equal(launch(&b, AT(2), 0, 1, 26 * 64), GDN_OK);
    assert_int_equal(b.m.launches, 4);
    /* Not with checkpoints, a bounded workspace, many heads, or a batch that fills the device. */
    for (uint32_t i = 0; i < 4; i++) {
        gdn_rule_shape t = s;
        if (i == 0) t.ckpt_every = 64;
        if (i == 1) t.max_workspace = 100ull * 8 * 82176;
        if (i == 2) t.nk = 16, t.nv = 48, t.qk_stride = t.v_stride = 80 * 128, t.gb_stride = 96;
        if (i == 3) t.max_batch = 8, t.max_tokens = 8 * 8192;
        assert_int_equal(make(&b, &t), GDN_OK);
        assert_int_equal(b.id->ops->explain(b.plan, 2, longest, &r), GDN_OK);
        assert_true(strncmp(r.entry, FAST "fwd", strlen(FAST "fwd")) == 0 && r.split_tokens == 64);
    }
    down(&b);
    /* Kernels that do not load are absent, and the sequence passes as one. */
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_fast", "true", NULL });
    b.m.broken_entry = FAST "join";
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 2, longest, &r), GDN_OK);
    assert_true(strcmp(r.entry, FAST "fwd") == 0 && r.split_tokens == 64);
    down(&b);
}

static void fast_guards_and_lines(void **state) {
    (void)state;
    static const char bound[] =
        "GDN prefill: gated_delta_rule_fast_fwd ([defaults] gdn_prefill_fast; the contract pipeline stays bound as its fallback)";
    static const char first[] =
        "3 route: GDN prefill: gated_delta_rule_fast_many (METRALE_GDN_PREFILL_FAST; f16 wgmma operands, f32 accumulator "
        "= the recurrent state, h stays f32) grid=[132,1,1] block=512 smem=216672B";
    static const char *const levers[] = { "gdn_prefill_tc", "true", "gdn_prefill_fast", "true", NULL };
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    s.layers = 3;
    up(&b, "hopper", levers);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m, bound), 3);
    assert_int_equal(b.m.lines, 6);
    assert_non_null(strstr(b.m.line[2], bound)); /* before the spine's */
    assert_non_null(strstr(b.m.line[3], "GDN state spine: " DELTA_H "tcfuse_x2 ([defaults] gdn_prefill_tc"));
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
    assert_int_equal(mock_count_lines(&b.m, first), 1);
    assert_int_equal(mock_count_lines(&b.m, "grid=[132,1,1]"), 3);
    assert_false(mock_said(&b.m, "mma.sync"));
    /* Bases that 16-byte accesses cannot take: the spine where it can, else the scalar kernels, in the forms that take tables; each said
     * once. */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
        assert_string_equal(b.m.history[1].function->entry, FAST "many");
        assert_int_equal(launch(&b, AT(2) + 2, 0, 3, 64), GDN_OK);
        assert_int_equal(b.m.launches, 4);
        assert_string_equal(b.m.history[0].function->entry, "gdn_rule_tables");
        ran(&b, 2, DELTA_H "pipe_ext", 48, 3, 1, 256, 99336);
    }
    assert_int_equal(
        mock_count_lines(&b.m, "GDN prefill: the fast prefill is NOT running: query, key, value or output is not 16-byte aligned; " DELTA_H
                               "pipe runs (METRALE_GDN_PREFILL_FAST)"),
        1);
    assert_int_equal(mock_count_lines(&b.m, "the tensor-core spine is NOT running: key is not 16-byte aligned"), 1);
    uint64_t ptr[GDN_PREFILL_N_PTR] = { 0 };
    for (uint32_t i = 0; i < GDN_PREFILL_P_CU_SEQLENS; i++) ptr[i] = AT(i + 1);
    ptr[GDN_PREFILL_P_WORKSPACE] = AT(100);
    ptr[GDN_PREFILL_P_OUTPUT] += 8;
    for (uint32_t i = GDN_PREFILL_P_STATE_OUT; i < GDN_PREFILL_N_PTR; i++)
        if (i != GDN_PREFILL_P_WORKSPACE) ptr[i] = 0;
    const uint32_t u32[] = { 3, 64 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_PREFILL_N_PTR, 2, 0, (void *)0x77, ptr, u32 };
    b.m.launches = 0;
    assert_int_equal(b.id->ops->launch(b.plan, &args), GDN_OK);
    ran(&b, 2, DELTA_H "tcfuse_x2_ext", 48, 3, 1, 256, 88324);
    s.ckpt_every = 64;
    s.state_addr = GDN_STATE_CONTIGUOUS;
    assert_int_equal(make(&b, &s), GDN_OK);
    b.m.params = 36; /* checkpoints: an entry of its own */
    assert_int_equal(launch(&b, AT(2), 1u << GDN_PREFILL_P_CKPT, 3, 64), GDN_OK);
    assert_int_equal(b.m.launches, 3);
    ran(&b, 2, FAST "fwd_ext", 132, 1, 1, 512, FAST_SMEM);
    assert_true(b.m.history[2].param[32] == AT(GDN_PREFILL_P_CKPT + 1) && (uint32_t)b.m.history[2].param[33] == 64);
    b.m.params = 0;
    down(&b);
    /* A kernel that does not load is absent, and said so. */
    up(&b, "hopper", levers);
    s = shape_of();
    b.m.broken_entry = FAST "fwd";
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(r.chosen == 0 && strcmp(r.entry, DELTA_H "tcfuse_x2") == 0);
    assert_string_equal(r.guard, FAST "fwd did not load");
    down(&b);
    up(&b, "gb10", levers);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
    ran(&b, 1, DELTA_H "pipe", 48, 3, 1, 256, 99336);
    assert_true(
        mock_said(&b.m, "the fast prefill is NOT running: kernel absent from this image (kernels/hopper only); " DELTA_H "pipe runs"));
    down(&b);
}

/* By W and N: the lever's kernels, what they are given, segments. */
#define WN "gated_delta_rule_fast_wn_"
enum { WN_FWD_SMEM = 230384, WN_PREPARE_SMEM = 110624 };
static const char *const wn_levers[] = { "gdn_prefill_fast", "true", "gdn_prefill_fast_wn", "true", NULL };
static void wn_launches(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t u32[] = { 2, 130 };
    up(&b, "hopper", wn_levers);
    if (make(&b, &s)) fail_msg("plan: %s", b.text);
    assert_int_equal(b.id->ops->explain(b.plan, 2, u32, &r), GDN_OK);
    assert_string_equal(r.entry, WN "fwd");
    assert_string_equal(r.lever, "gdn_prefill_fast_wn");
    assert_true(r.chosen == 1 && !r.guard && !r.n_refused && r.grid[0] == 132 && r.grid[1] == 1 && r.smem_bytes == WN_FWD_SMEM);
    const uint64_t ws = r.workspace_bytes;
    b.m.params = 26;
    assert_int_equal(launch(&b, AT(2), 0, 2, 130), GDN_OK);
    assert_int_equal(b.m.launches, 2);
    ran(&b, 0, WN "prepare", 192, 1, 1, 256, WN_PREPARE_SMEM); /* 96 chunks of a key head, each by two blocks */
    ran(&b, 1, WN "fwd", 132, 1, 1, 512, WN_FWD_SMEM);         /* of 192 tasks */
    assert_true(mock_said(&b.m, "GDN prefill: " WN "fwd ([defaults] gdn_prefill_fast_wn; the contract pipeline stays bound"));
    assert_true(mock_said(&b.m, "GDN prefill: " WN "fwd (METRALE_GDN_PREFILL_FAST_WN; f16 wgmma operands"));
    assert_false(mock_said(&b.m, "NOT running"));
    /* The scratch lies inside the workspace, in order, and both are given the same. */
    const uint64_t *const p = b.m.history[0].param, *const f = b.m.history[1].param, chunks = 8192 / 64 + 4;
    const uint64_t bytes[] = { chunks * 16 * 16384, chunks * 16 * 16384, chunks * 48 * 16384, chunks * 48 * 8192, chunks * 48 * 272 };
    assert_true(p[4] >= AT(100) && p[8] + bytes[4] <= AT(100) + ws);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(p[4 + i] == f[3 + i] && p[4 + i] % 16 == 0);
        if (i < 4) assert_true(p[4 + i] + bytes[i] == p[5 + i]);
    }
    assert_true((uint32_t)p[24] == 0 && (uint32_t)p[25] == 2); /* none by a block of its own; heads of a block */
    static const uint32_t shared[][4] = {
        { 1, 48, 0, 1 }, { 4, 192, 0, 1 }, { 16, 256, 256, 3 }, { 19, 384, 264, 1 }, { 33, 528, 528, 3 }
    };
    for (uint32_t i = 0; i < 5; i++) { /* chunks; blocks, those with all heads, heads of the others */
        assert_int_equal(launch(&b, AT(2), 0, 1, 64 * shared[i][0]), GDN_OK);
        ran(&b, 0, WN "prepare", shared[i][1], 1, 1, 256, WN_PREPARE_SMEM);
        assert_true((uint32_t)p[24] == shared[i][2] && (uint32_t)p[25] == shared[i][3]);
        ran(&b, 1, WN "fwd", 96, 1, 1, 512, WN_FWD_SMEM);
    }
    b.m.params = 0;
    assert_int_equal(launch(&b, AT(2), 0, 2, 0), GDN_OK); /* no tokens: states only */
    assert_int_equal(b.m.launches, 1);
    ran(&b, 0, WN "fwd", 132, 1, 1, 512, WN_FWD_SMEM);
    s.max_batch = 1;
    s.max_workspace = 10ull * 48 * 82176 + 8192;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 1, 25 * 64 - 3), GDN_OK);
    assert_int_equal(b.m.launches, 1 + 3 * 2); /* tables, then 10 + 10 + 5 chunks */
    ran(&b, 1, WN "prepare", 160, 1, 1, 256, WN_PREPARE_SMEM);
    s = shape_of();
    s.ckpt_every = 64;
    assert_int_equal(make(&b, &s), GDN_OK);
    b.m.params = 24; /* checkpoints: an entry of its own */
    assert_int_equal(launch(&b, AT(2), 1u << GDN_PREFILL_P_CKPT, 2, 64), GDN_OK);
    ran(&b, 2, WN "fwd_ext", 132, 1, 1, 512, WN_FWD_SMEM);
    assert_true(b.m.history[2].param[22] == AT(GDN_PREFILL_P_CKPT + 1) && (uint32_t)b.m.history[2].param[23] == 64);
    b.m.params = 0;
    down(&b);
    up(&b, "hopper", wn_levers);
    s = shape_of();
    s.nk = 2, s.nv = 8, s.max_batch = 1, s.max_tokens = 8192;
    s.qk_stride = s.v_stride = (2 * 2 + 8) * 128, s.gb_stride = 2 * 8;
    if (make(&b, &s)) fail_msg("plan: %s", b.text);
    b.m.params = 24;
    assert_int_equal(launch(&b, AT(2), 0, 1, 8192), GDN_OK);
    assert_int_equal(b.m.launches, 4);
    ran(&b, 0, WN "prepare", 256, 1, 1, 256, WN_PREPARE_SMEM);
    ran(&b, 1, WN "carry", 128, 1, 1, 512, WN_FWD_SMEM); /* four full segments */
    ran(&b, 2, FAST "join", 8, 1, 8, 256, 0);
    ran(&b, 3, WN "pass", 80, 1, 1, 512, WN_FWD_SMEM);
    const uint64_t *const c = b.m.history[1].param, scalars = 129ull * 8 * 272, states = (129 / 26 + 1) * 8ull * 65536;
    for (uint32_t i = 1; i < 4; i++) assert_memory_equal(b.m.history[i].param, c, 24 * sizeof *c);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(c[21] >= c[7] + scalars && c[22] == c[21] + states && c[23] + states <= AT(100) + r.workspace_bytes);
    /* As many key heads as value heads: longer segments than by T and P, for which there is room. */
    s.nk = s.nv = 1, s.max_batch = 3, s.max_tokens = 4205;
    s.qk_stride = s.v_stride = 3 * 128, s.gb_stride = 2;
    s.offsets = GDN_OFFSETS_I32;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(strcmp(r.entry, WN "pass") == 0 && r.split_tokens > 8 * 64 && r.split_tokens < 34 * 64);
    /* The shortest segments that there is room for: the numbers are those of trying one length after another. */
    static const uint32_t shortest[][3] = { { 1, 3777, 9 },  { 4, 3777, 16 },  { 3, 5554, 11 },  { 4, 5554, 12 },  { 1, 9108, 12 },
                                            { 4, 9108, 16 }, { 3, 10885, 16 }, { 4, 10885, 22 }, { 1, 12662, 17 }, { 4, 12662, 25 } };
    for (uint32_t i = 0; i < 10; i++) { /* sequences, tokens, chunks of a segment */
        s.max_batch = shortest[i][0], s.max_tokens = shortest[i][1];
        assert_int_equal(make(&b, &s), GDN_OK);
        assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
        assert_int_equal(r.split_tokens, shortest[i][2] * 64);
    }
    b.m.params = 0;
    down(&b);
}

/* What does not load: T and P run, and it is said. Without the fast prefill the lever is about nothing. */
static void wn_falls_back(void **state) {
    (void)state;
    static const char *const off[] = { "gdn_prefill_fast", "false", "gdn_prefill_fast_wn", "true", NULL };
    static const char *const lost[] = { WN "fwd", WN "prepare" };
    char text[256];
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    for (uint32_t i = 0; i < 2; i++) {
        up(&b, "hopper", wn_levers);
        b.m.broken_entry = lost[i];
        if (make(&b, &s)) fail_msg("plan: %s", b.text);
        assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
        (void)snprintf(text, sizeof text, "%s did not load", lost[i]);
        assert_true(r.chosen == 0 && strncmp(r.entry, FAST "fwd", strlen(FAST "fwd")) == 0);
        assert_string_equal(r.guard, text);
        assert_string_equal(r.lever, "gdn_prefill_fast_wn");
        assert_true(r.n_refused == 1 && strcmp(r.refused[0].lever, "gdn_prefill_fast_wn") == 0 && strcmp(r.refused[0].guard, text) == 0);
        for (uint32_t k = 0; k < 2; k++) assert_int_equal(launch(&b, AT(2), 0, 2, 2048), GDN_OK);
        ran(&b, 1, FAST "fwd", 132, 1, 1, 512, FAST_SMEM);
        (void)snprintf(text, sizeof text,
                       "GDN prefill: the fast prefill by W and N is NOT running: %s did not load; " FAST
                       "fwd runs (METRALE_GDN_PREFILL_FAST_WN)",
                       lost[i]);
        assert_int_equal(mock_count_lines(&b.m, text), 1);
        assert_true(mock_said(&b.m, "GDN prefill: " FAST "fwd (METRALE_GDN_PREFILL_FAST; "));
        down(&b);
    }
    /* Its module does not compile: those by T and P are, which else are not. */
    for (uint32_t broken = 0; broken < 2; broken++) {
        up(&b, "hopper", wn_levers);
        if (broken) b.m.broken_module = "gated_delta_rule_fast_wn.cu";
        assert_int_equal(make(&b, &s), GDN_OK);
        uint32_t t_and_p = 0;
        for (uint32_t i = 0; i < b.m.modules; i++) t_and_p += strcmp(b.m.module[i].name, "gated_delta_rule_fast.cu") == 0;
        assert_int_equal(t_and_p, broken);
        assert_int_equal(launch(&b, AT(2), 0, 2, 2048), GDN_OK);
        ran(&b, 1, broken ? FAST "fwd" : WN "fwd", 132, 1, 1, 512, broken ? FAST_SMEM : WN_FWD_SMEM);
        assert_int_equal(mock_said(&b.m, "the fast prefill by W and N is NOT running: " WN "fwd did not load: "), broken);
        down(&b);
    }
    up(&b, "hopper", off);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 2, 2048), GDN_OK);
    assert_int_equal(b.id->ops->explain(b.plan, 0, NULL, &r), GDN_OK);
    assert_true(r.n_refused == 0 && strncmp(r.entry, DELTA_H, strlen(DELTA_H)) == 0 && !mock_said(&b.m, "W and N"));
    down(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_launches), cmocka_unit_test(fast_segments), cmocka_unit_test(fast_guards_and_lines),
        cmocka_unit_test(wn_launches),   cmocka_unit_test(wn_falls_back),
    };
    return cmocka_run_group_tests_name("the fast prefill on the mocked backend", tests, NULL, NULL);
}
