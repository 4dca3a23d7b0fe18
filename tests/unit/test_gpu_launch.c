/* test_gpu_launch.c - the real hopper and gb10 plugins on the mocked backend: which entry runs, its grid and block, and every
 * argument in its place. */
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    char text[512];
    gdn_text err;
} bench;

static void open_target(bench *b, const char *target, uint32_t cc) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, cc, 132);
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
}

static void init(bench *b) {
    const gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err);
    if (st) fail_msg("init: %d %s", st, b->text);
}

static void shut(bench *b) {
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}

/* Plans, launches with pointers AT(i + 1), and checks entry and geometry; the plan is destroyed. */
static void run(bench *b, const gdn_shape *shape, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32, uint32_t params, const char *entry,
                uint32_t gx, uint32_t gy, uint32_t block) {
    gdn_plan *plan = NULL;
    uint64_t ptr[16];
    for (uint32_t i = 0; i < 16; i++) ptr[i] = AT(i + 1);
    if (shape->op == GDN_OP_CONV1D) ptr[GDN_CONV1D_P_CU_SEQLENS] = 0; /* uniform sequences */
    gdn_status st = b->id->ops->plan(b->ctx, shape, NULL, &plan, &b->err);
    if (st) fail_msg("plan: %d %s", st, b->text);
    const uint32_t loads = b->m.loads, before = b->m.launches;
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr, n_u32, 0, (void *)0x77, ptr, u32 };
    b->m.params = params;
    st = b->id->ops->launch(plan, &args);
    if (st) fail_msg("launch: %d %s", st, b->m.lines ? b->m.line[b->m.lines - 1] : "");
    assert_int_equal(b->m.launches, before + 1);
    assert_int_equal(b->m.loads, loads); /* a launch compiles nothing */
    assert_string_equal(b->m.last.function->entry, entry);
    assert_ptr_equal(b->m.last.stream, (void *)0x77);
    assert_int_equal(b->m.last.dims.grid[0], gx);
    assert_int_equal(b->m.last.dims.grid[1], gy);
    assert_int_equal(b->m.last.dims.block[0], block);
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(b->id->ops->explain(plan, n_u32, u32, &r), GDN_OK);
    assert_string_equal(r.entry, entry); /* what explain says is what ran */
    assert_int_equal(r.grid[0], gx);
    b->id->ops->destroy(plan);
}

/* Parameters are compared at their width: w[i] is 4, 8, or 0 at the end. */
static void params_are(const bench *b, const uint64_t *want, const char *widths) {
    for (uint32_t i = 0; widths[i]; i++) {
        const uint64_t got = widths[i] == '8' ? b->m.last.param[i] : (uint32_t)b->m.last.param[i];
        if (got != want[i])
            fail_msg("%s: argument %u is 0x%llx, expected 0x%llx", b->m.last.function->entry, i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

static void ba_gates_arguments(void **state) {
    (void)state;
    bench b;
    open_target(&b, "gb10", 121);
    init(&b);
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const uint32_t m[] = { 27 };
    run(&b, &s.base, GDN_BA_GATES_N_PTR, m, 1, 12, "dense_gemm_ba_gates_prefill", 24, 27, 256);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), 27, 96, 5120, 5120, 96, 48, 3 }, "888884444444");
    assert_string_equal(b.m.module[0].arch, "sm_121f");
    const gdn_ba_shape v = mock_ba(GDN_OP_BA_GEMV);
    run(&b, &v.base, GDN_BA_GEMV_N_PTR, NULL, 0, 10, "dense_gemv_ba_gates", 24, 1, 256);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), 96, 5120, 48, 3 }, "8888884444");
    shut(&b);
}

/* Early where the lever says so and the host knows how. */
static void launches_early(void **state) {
    (void)state;
    static const struct {
        const char *lever;
        bool known;
        uint32_t early;
    } cases[] = { { "true", true, 1 }, { "true", false, 0 }, { "false", true, 0 }, { NULL, true, 0 } };
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const uint32_t m[] = { 27 };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        open_target(&b, "gb10", 121);
        if (cases[i].lever) mock_lever(&b.m, "gdn_launch_early", cases[i].lever);
        if (!cases[i].known) b.m.table.struct_size = (uint32_t)offsetof(gdn_backend, launch_early);
        init(&b);
        run(&b, &s.base, GDN_BA_GATES_N_PTR, m, 1, 12, "dense_gemm_ba_gates_prefill", 24, 27, 256);
        assert_int_equal(b.m.launches, 1);
        assert_int_equal(b.m.early, cases[i].early);
        shut(&b);
    }
}

/* M = 27 is refused, M = 1168 taken: both lines in that order, and repeating prints nothing. */
static void ba_twin_lines(void **state) {
    (void)state;
    bench b;
    open_target(&b, "hopper", 90);
    mock_lever(&b.m, "ssm_ba_gates_hopper", "true");
    init(&b);
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const uint32_t few[] = { 27 }, many[] = { 1168 };
    for (int round = 0; round < 2; round++) {
        run(&b, &s.base, GDN_BA_GATES_N_PTR, few, 1, 12, "dense_gemm_ba_gates_prefill", 24, 27, 256);
        run(&b, &s.base, GDN_BA_GATES_N_PTR, many, 1, 12, "dense_gemm_ba_gates_prefill_hopper", 1168, 1, 256);
    }
    const char *refused =
        "3 route: SSM ba_gates: the Hopper twin is NOT running at M=27: too few tokens to fill the device at one CTA per token "
        "(ATLAS_SSM_BA_GATES_HOPPER)";
    const char *taken =
        "3 route: SSM ba_gates: dense_gemm_ba_gates_prefill_hopper (ATLAS_SSM_BA_GATES_HOPPER) M=1168 block=256 grid=(M,1,1)";
    assert_int_equal(b.m.lines, 2);
    assert_string_equal(b.m.line[0], refused);
    assert_string_equal(b.m.line[1], taken);
    shut(&b);
}

/* The lever off: silence. Asked for on gb10: absent, and the line says so. */
static void ba_twin_absent_and_silent(void **state) {
    (void)state;
    bench b;
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const uint32_t m[] = { 1168 };
    open_target(&b, "hopper", 90);
    init(&b);
    run(&b, &s.base, GDN_BA_GATES_N_PTR, m, 1, 12, "dense_gemm_ba_gates_prefill", 24, 1168, 256);
    assert_int_equal(b.m.lines, 0);
    shut(&b);
    open_target(&b, "gb10", 121);
    mock_lever(&b.m, "ssm_ba_gates_hopper", "true");
    init(&b);
    run(&b, &s.base, GDN_BA_GATES_N_PTR, m, 1, 12, "dense_gemm_ba_gates_prefill", 24, 1168, 256);
    assert_true(mock_said(
        &b.m, "the Hopper twin is NOT running at M=1168: kernel absent from this image (kernels/hopper only) (ATLAS_SSM_BA_GATES_HOPPER)"));
    shut(&b);
}

/* Tensor cores: compiled for the columns of the plan, shared memory asked for above 48 KiB, own line. */
static void ba_tensor_cores(void **state) {
    (void)state;
    bench b;
    open_target(&b, "hopper", 90);
    mock_lever(&b.m, "ssm_ba_gates_tc", "true");
    init(&b);
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const uint32_t m[] = { 4576 }, few[] = { 16 };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    gdn_plan *plan = NULL;
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_OK);
    assert_int_equal(b.id->ops->explain(plan, 1, m, &r), GDN_OK);
    const uint32_t loads = b.m.loads;
    b.id->ops->destroy(plan);
    run(&b, &s.base, GDN_BA_GATES_N_PTR, m, 1, 12, "dense_gemm_ba_gates_prefill_tc", r.grid[0], 1, r.block[0]);
    assert_int_equal(b.m.loads, loads); /* the second plan finds the variant */
    assert_string_equal(b.m.last.function->option, "-DGDN_BA_TC_COLUMNS=96");
    assert_true(b.m.last.function->smem >= b.m.last.dims.smem_bytes && b.m.last.dims.smem_bytes == r.smem_bytes);
    assert_true(mock_said(&b.m, "SSM ba_gates: dense_gemm_ba_gates_prefill_tc (METRALE_SSM_BA_GATES_TC) M=4576"));
    run(&b, &s.base, GDN_BA_GATES_N_PTR, few, 1, 12, "dense_gemm_ba_gates_prefill", 24, 16, 256);
    assert_true(mock_said(&b.m, "the tensor-core route is NOT running at M=16: too few rows"));
    shut(&b);
}

static void gates_and_norm_arguments(void **state) {
    (void)state;
    bench b;
    open_target(&b, "hopper", 90);
    init(&b);
    gdn_gates_shape g = mock_gates();
    const uint32_t rows[] = { 100 };
    run(&b, &g.base, GDN_GATES_N_PTR, rows, 1, 12, "gdn_gates", (100 * 48 + 255) / 256, 1, 256);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), 100, 48, 48, 48, 96, 0, 0 }, "888884444444");
    g.vheads_per_group = 3;
    g.gate_form = GDN_GATE_LOG;
    run(&b, &g.base, GDN_GATES_N_PTR, rows, 1, 12, "gdn_gates", (100 * 48 + 255) / 256, 1, 256);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), 100, 48, 96, 96, 96, 3, 1 }, "888884444444");
    const gdn_norm_shape n = mock_norm();
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(b.id->ops->route(&b.m.host, 132, &n.base, 1, rows, &r, &b.err), GDN_OK);
    run(&b, &n.base, GDN_NORM_N_PTR, rows, 1, 12, "gated_rmsnorm", r.grid[0], 1, r.block[0]);
    uint32_t eps;
    memcpy(&eps, &n.eps, sizeof eps);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 100, 128, 6144, 6144, eps, 1, 48, 0 }, "888844444444");
    shut(&b);
}

static void conv_arguments(void **state) {
    (void)state;
    bench b;
    open_target(&b, "hopper", 90);
    init(&b);
    const uint32_t u32[] = { 3, 40 };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    gdn_conv_shape c = mock_conv(GDN_OP_CONV1D);
    assert_int_equal(b.id->ops->route(&b.m.host, 132, &c.base, 2, u32, &r, &b.err), GDN_OK);
    run(&b, &c.base, GDN_CONV1D_N_PTR, u32, 2, 22, "causal_conv1d", r.grid[0], r.grid[1], r.block[0]);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7),
                                        120,   10240, 10240, 10240, 4,     7,     1,
                                        0,     3,     40,    0,     AT(9), 0,     (uint64_t)10240 * 7,
                                        0 },
               "8888888444444484448484");
    gdn_conv_shape f = mock_conv(GDN_OP_CONV_FUSED);
    f.offsets = GDN_OFFSETS_I64;
    f.base.flags = GDN_CONV_KEEP_ROWS;
    const uint32_t packed[] = { 3, 0 };
    assert_int_equal(b.id->ops->route(&b.m.host, 132, &f.base, 2, packed, &r, &b.err), GDN_OK);
    run(&b, &f.base, GDN_CONV_FUSED_N_PTR, packed, 2, 29, "conv_silu_split_l2norm", r.grid[0], r.grid[1], r.block[0]);
    params_are(&b, (const uint64_t[]) { AT(1),  AT(2), AT(3), AT(4), AT(5),  AT(6), AT(7),
                                        AT(8),  AT(9), 8192,  10240, 10240,  4,     7,
                                        AT(10), 3,     0,     1,     AT(11), 1,     (uint64_t)10240 * 7,
                                        0,      16,    48,    128,   128,    10240, 10240,
                                        10240 },
               "88888888844444844484844444444");
    shut(&b);
}

static void state_arguments(void **state) {
    (void)state;
    bench b;
    open_target(&b, "gb10", 121);
    init(&b);
    const gdn_state_shape c = mock_state(GDN_OP_STATE_COPY), z = mock_state(GDN_OP_STATE_ZERO);
    const uint32_t count[] = { 5 };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(b.id->ops->route(&b.m.host, 48, &c.base, 1, count, &r, &b.err), GDN_OK);
    run(&b, &c.base, GDN_STATE_COPY_N_PTR, count, 1, 8, "gdn_state_copy", r.grid[0], 1, r.block[0]);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 5, 1u << 20, 1u << 20, 1u << 20 }, "88884888");
    run(&b, &z.base, GDN_STATE_ZERO_N_PTR, count, 1, 5, "gdn_state_zero", r.grid[0], 1, r.block[0]);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), 5, 1u << 20, 1u << 20 }, "88488");
    gdn_state_shape f32 = c; /* act_type is not looked at */
    f32.base.act_type = GDN_F32;
    run(&b, &f32.base, GDN_STATE_COPY_N_PTR, count, 1, 8, "gdn_state_copy", r.grid[0], 1, r.block[0]);
    shut(&b);
}

/* A row a block: more of them than a grid has are refused by name, not by the driver. */
static void rows_above_a_grid(void **state) {
    (void)state;
    bench b;
    gdn_plan *plan = NULL;
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t rows[] = { 1u << 31 }, most[] = { INT32_MAX };
    open_target(&b, "hopper", 90);
    mock_lever(&b.m, "ssm_ba_gates_hopper", "true");
    init(&b);
    gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    s.max_m = UINT32_MAX;
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_REFUSED);
    assert_non_null(strstr(b.text, "ba_gates: refused: more blocks than a grid has"));
    assert_int_equal(b.id->ops->route(&b.m.host, 132, &s.base, 1, rows, &r, &b.err), GDN_REFUSED);
    assert_int_equal(b.id->ops->route(&b.m.host, 132, &s.base, 1, most, &r, &b.err), GDN_OK);
    shut(&b);
}

/* Both kernels that were asked for decline: in the order of asking, each with its own guard. None: nothing. */
static void every_refusal_of_a_route(void **state) {
    (void)state;
    bench b;
    gdn_rule_shape s = { .base = HEAD(gdn_rule_shape, GDN_OP_PREFILL),
                         .nk = 16,
                         .nv = 48,
                         .k_dim = 128,
                         .v_dim = 128,
                         .qk_stride = 10244,
                         .gate_form = GDN_GATE_LINEAR,
                         .state_type = GDN_F32,
                         .max_tokens = 8192,
                         .max_batch = 1 };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    open_target(&b, "hopper", 90);
    mock_lever(&b.m, "gdn_prefill_fast", "true");
    mock_lever(&b.m, "gdn_prefill_tc", "true");
    init(&b);
    assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), GDN_OK);
    assert_true(r.chosen == 0 && r.n_refused == 2 && strcmp(r.entry, "gated_delta_rule_chunk_delta_h_pipe") == 0);
    assert_string_equal(r.refused[0].lever, "gdn_prefill_fast");
    assert_string_equal(r.refused[0].guard, "a stride of query, key or value is not a multiple of 8");
    assert_string_equal(r.refused[1].lever, "gdn_prefill_tc");
    assert_string_equal(r.refused[1].guard, "qk_stride is not a multiple of 8 (16-byte K loads)");
    assert_string_equal(r.guard, r.refused[1].guard);
    s.qk_stride = 10240;
    assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), GDN_OK);
    assert_true(r.chosen == 1 && r.n_refused == 0);
    shut(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ba_gates_arguments), cmocka_unit_test(launches_early),
        cmocka_unit_test(ba_twin_lines),      cmocka_unit_test(ba_twin_absent_and_silent),
        cmocka_unit_test(ba_tensor_cores),    cmocka_unit_test(gates_and_norm_arguments),
        cmocka_unit_test(conv_arguments),     cmocka_unit_test(state_arguments),
        cmocka_unit_test(rows_above_a_grid),  cmocka_unit_test(every_refusal_of_a_route),
    };
    return cmocka_run_group_tests_name("gpu_launch", tests, NULL, NULL) != 0;
}
