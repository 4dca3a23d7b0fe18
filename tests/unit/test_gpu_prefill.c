/* test_gpu_prefill.c - prefill of the hopper and gb10 plugins on the mocked backend: kernels, geometry, guards, lines, workspace. */
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>

#define WU      "gated_delta_rule_recompute_wu"
#define FWD_O   "gated_delta_rule_chunk_fwd_o"
#define DELTA_H "gated_delta_rule_chunk_delta_h_"

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    gdn_plan *plan;
    char text[512];
    gdn_text err;
} bench;

static gdn_rule_shape shape_of(void) {
    return (gdn_rule_shape) { .base = HEAD(gdn_rule_shape, GDN_OP_PREFILL),
                              .nk = 16,
                              .nv = 48,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_type = GDN_F32,
                              .max_tokens = 8192,
                              .max_batch = 4 };
}

static void up(bench *b, const char *target, const char *const *levers) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, strcmp(target, "hopper") == 0 ? 90 : 121, 132);
    for (uint32_t i = 0; levers && levers[i]; i += 2) mock_lever(&b->m, levers[i], levers[i + 1]);
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
    const gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err);
    if (st) fail_msg("init: %s", b->text);
}
static gdn_status make(bench *b, const gdn_rule_shape *s) {
    b->id->ops->destroy(b->plan);
    b->plan = NULL;
    return b->id->ops->plan(b->ctx, &s->base, NULL, &b->plan, &b->err);
}
static void down(bench *b) {
    b->id->ops->destroy(b->plan);
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}
static gdn_status launch(bench *b, uint64_t key, uint64_t more, uint32_t batch, uint32_t len) {
    uint64_t ptr[GDN_PREFILL_N_PTR] = { 0 };
    for (uint32_t i = 0; i < GDN_PREFILL_P_CU_SEQLENS; i++) ptr[i] = AT(i + 1);
    ptr[GDN_PREFILL_P_KEY] = key;
    ptr[GDN_PREFILL_P_WORKSPACE] = AT(100);
    for (uint32_t i = 0; i < GDN_PREFILL_N_PTR; i++)
        if (more >> i & 1) ptr[i] = AT(i + 1);
    const uint32_t u32[] = { batch, len };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_PREFILL_N_PTR, 2, 0, (void *)0x77, ptr, u32 };
    b->m.launches = 0;
    return b->id->ops->launch(b->plan, &args);
}
static void ran(const bench *b, uint32_t i, const char *entry, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t block, uint32_t smem) {
    const mock_launch *l = &b->m.history[i];
    assert_true(i < b->m.launches);
    assert_string_equal(l->function->entry, entry);
    const uint32_t got[] = { l->dims.grid[0], l->dims.grid[1], l->dims.grid[2], l->dims.block[0], l->dims.smem_bytes };
    const uint32_t want[] = { gx, gy, gz, block, smem };
    for (uint32_t k = 0; k < 5; k++)
        if (got[k] != want[k]) fail_msg("%s: geometry word %u is %u, expected %u", entry, k, got[k], want[k]);
}

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
                assert_int_equal(st, GDN_E_ARG);
                assert_null(b.plan);
                assert_non_null(strstr(b.text, "bytes of shared memory a block, the device has 90000"));
            }
            down(&b);
        }
}

/* Two launches; what they are given, extras and segments. */
#define FAST "gated_delta_rule_fast_"
enum { FAST_SMEM = 183472, PREPARE_SMEM = 67648, TWO_SMEM = 100 * 1024 };
static void fast_launches(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = shape_of();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t u32[] = { 2, 130 };
    up(&b, "hopper", (const char *const[]) { "gdn_prefill_tc", "true", "gdn_prefill_fast", "true", NULL });
    if (make(&b, &s)) fail_msg("plan: %s", b.text);
    assert_int_equal(b.id->ops->explain(b.plan, 2, u32, &r), GDN_OK);
    assert_string_equal(r.entry, FAST "fwd");
    assert_string_equal(r.lever, "gdn_prefill_fast");
    assert_true(r.chosen == 1 && !r.guard && r.grid[0] == 132 && r.grid[1] == 1 && r.grid[2] == 1 && r.smem_bytes == FAST_SMEM);
    const uint64_t rows = (8192 / 64 + 4) * 48, ws = r.workspace_bytes;
    assert_true(ws >= rows * 82176 && ws <= rows * 82176 + 8192); /* the contract pipeline's: one of the two runs */
    b.m.params = 32;
    assert_int_equal(launch(&b, AT(2), 0, 2, 130), GDN_OK);
    assert_int_equal(b.m.launches, 2);
    ran(&b, 0, FAST "prepare", 16, 3, 2, 256, PREPARE_SMEM);
    ran(&b, 1, FAST "fwd", 132, 1, 1, 512, FAST_SMEM); /* of 192 tasks */
    /* The scratch lies inside the workspace, in order, and both are given the same. */
    const uint64_t *const p = b.m.history[0].param, *const f = b.m.history[1].param, chunks = 8192 / 64 + 4;
    const uint64_t bytes[] = { chunks * 16 * 16384, chunks * 16 * 16384, chunks * 48 * 8192,
                               chunks * 48 * 8192,  chunks * 48 * 1040,  (chunks * 16 + 32) * 4 };
    assert_true(p[4] >= AT(100) && p[9] + bytes[5] <= AT(100) + ws);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(p[4 + i] == f[7 + i] && p[4 + i] % 16 == 0);
        if (i < 5) assert_true(p[4 + i] + bytes[i] == p[5 + i]);
    }
    assert_true((uint32_t)p[24] == 0 && (uint32_t)f[30] == 3 && (uint32_t)f[31] == 0); /* words to clear; lead, helpers */
    /* 96 tasks leave 36 multiprocessors to prepare 4 of 19 chunks; the words are cleared for all. */
    assert_int_equal(launch(&b, AT(2), 0, 1, 1168), GDN_OK);
    ran(&b, 0, FAST "prepare", 16, 15, 1, 256, PREPARE_SMEM);
    ran(&b, 1, FAST "fwd", 132, 1, 1, 512, FAST_SMEM);
    assert_true((uint32_t)p[24] == 32 + 19 * 16 && (uint32_t)f[30] == 15 && (uint32_t)f[31] == 36);
    b.m.params = 0;
    assert_int_equal(launch(&b, AT(2), 0, 1, 64), GDN_OK); /* as many blocks as tasks */
    ran(&b, 1, FAST "fwd", 96, 1, 1, 512, FAST_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 4, 2048), GDN_OK);
    ran(&b, 0, FAST "prepare", 16, 32, 4, 256, PREPARE_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 2, 16 * 64), GDN_OK); /* 512 blocks: two rounds of two */
    ran(&b, 0, FAST "prepare", 16, 16, 2, 256, TWO_SMEM);
    assert_int_equal(launch(&b, AT(2), 1u << GDN_PREFILL_P_FRESH, 2, 64), GDN_OK);
    ran(&b, 0, "gdn_rule_tables", 1, 1, 1, 256, 0);
    ran(&b, 2, FAST "fwd", 132, 1, 1, 512, FAST_SMEM);
    assert_int_equal(launch(&b, AT(2), 0, 2, 0), GDN_OK); /* no tokens: states only */
    assert_int_equal(b.m.launches, 1);
    ran(&b, 0, FAST "fwd", 132, 1, 1, 512, FAST_SMEM);
    s.max_batch = 1;
    s.max_workspace = 10ull * 48 * 82176 + 8192;
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 1, 25 * 64 - 3), GDN_OK);
    assert_int_equal(b.m.launches, 1 + 3 * 2); /* tables, then 10 + 10 + 5 chunks */
    ran(&b, 1, FAST "prepare", 16, 10, 1, 256, PREPARE_SMEM);
    ran(&b, 5, FAST "prepare", 16, 5, 1, 256, PREPARE_SMEM);
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
    ran(&b, 0, FAST "prepare", 2, 128, 1, 256, PREPARE_SMEM);
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
        "3 route: GDN prefill: gated_delta_rule_fast_fwd (METRALE_GDN_PREFILL_FAST; f16 wgmma operands, f32 accumulator "
        "= the recurrent state, h stays f32) grid=[132,1,1] block=512 smem=183472B";
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
    /* Bases that 16-byte accesses cannot take: the spine where it can, else the scalar kernels; each said once. */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
        assert_string_equal(b.m.history[1].function->entry, FAST "fwd");
        assert_int_equal(launch(&b, AT(2) + 2, 0, 3, 64), GDN_OK);
        assert_int_equal(b.m.launches, 3);
        ran(&b, 1, DELTA_H "pipe", 48, 3, 1, 256, 99336);
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
    ran(&b, 1, DELTA_H "tcfuse_x2", 48, 3, 1, 256, 88324);
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
    assert_string_equal(r.guard, "kernel absent from this image (kernels/hopper only)");
    down(&b);
    up(&b, "gb10", levers);
    assert_int_equal(make(&b, &s), GDN_OK);
    assert_int_equal(launch(&b, AT(2), 0, 3, 64), GDN_OK);
    ran(&b, 1, DELTA_H "pipe", 48, 3, 1, 256, 99336);
    assert_true(
        mock_said(&b.m, "the fast prefill is NOT running: kernel absent from this image (kernels/hopper only); " DELTA_H "pipe runs"));
    down(&b);
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
        cmocka_unit_test(fast_launches),
        cmocka_unit_test(fast_segments),
        cmocka_unit_test(fast_guards_and_lines),
        cmocka_unit_test(other_spines_are_compiled_on_demand),
    };
    return cmocka_run_group_tests_name("prefill on the mocked backend", tests, NULL, NULL);
}
