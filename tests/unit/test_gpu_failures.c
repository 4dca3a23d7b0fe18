/* test_gpu_failures.c - the GPU plugins when things go wrong: each backend call fails in turn, modules that do not compile, wrong
 * devices, capture, empty launches, two devices, a forked child. Nothing leaks, nothing is half done. */
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[512];
static gdn_text err = { text, sizeof text, 0 };

/* init, plan, launch, down again; the first failing status. Everything that was opened is closed. */
static gdn_status whole_life(mock *m, const gdn_plugin *id) {
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    uint64_t ptr[GDN_BA_GATES_N_PTR] = { AT(1), AT(2), AT(3), AT(4), AT(5) };
    const uint32_t rows[] = { 4576 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_BA_GATES_N_PTR, 1, 0, NULL, ptr, rows };
    text[0] = 0;
    gdn_status st = id->ops->init(&m->host, 0, &ctx, &err);
    if (st) assert_null(ctx);
    if (!st && (st = id->ops->plan(ctx, &s.base, (void *)1, &plan, &err))) assert_null(plan);
    if (!st) st = id->ops->launch(plan, &args);
    if (st && !text[0]) assert_true(m->lines > 0); /* every failure is explained somewhere */
    id->ops->destroy(plan);
    id->ops->fini(ctx);
    return st;
}

static void each_backend_call_fails_in_turn(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    uint32_t failed = 0, calls = 0;
    for (uint32_t at = 0; at <= calls; at++) {
        mock_init(&m, 90, 132);
        mock_lever(&m, "ssm_ba_gates_tc", "true");
        mock_lever(&m, "ssm_ba_gates_hopper", "true");
        m.fail_at = at;
        const gdn_status st = whole_life(&m, id);
        assert_int_equal(mock_loaded(&m), 0);
        if (at == 0) {
            assert_int_equal(st, GDN_OK);
            calls = m.calls;
        }
        failed += st != GDN_OK;
    }
    assert_true(calls >= 8);
    /* A failing module leaves the others usable, so not every call is fatal; the essential ones are. */
    assert_true(failed >= 3 && failed < calls); /* device, capturing, launch */
}

/* A module that does not compile: its operations say why, the others run. */
static void one_broken_module(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("gb10");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    mock_init(&m, 121, 48);
    m.broken_module = "gated_rmsnorm.cu";
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    assert_true(mock_said(&m, "2 modules: gated_rmsnorm.cu(12): error: planted"));
    const gdn_norm_shape n = mock_norm();
    assert_int_equal(id->ops->plan(ctx, &n.base, NULL, &plan, &err), GDN_ABSENT);
    assert_null(plan);
    assert_non_null(strstr(text, "error: planted"));
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    assert_int_equal(id->ops->plan(ctx, &s.base, NULL, &plan, &err), GDN_OK);
    id->ops->destroy(plan);
    id->ops->fini(ctx);
    assert_int_equal(mock_loaded(&m), 0);
}

static void missing_entry_is_absent(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    mock_init(&m, 90, 132);
    m.broken_entry = "gated_rmsnorm";
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    const gdn_norm_shape n = mock_norm();
    assert_int_equal(id->ops->plan(ctx, &n.base, NULL, &plan, &err), GDN_ABSENT);
    assert_non_null(strstr(text, "entry gated_rmsnorm is missing"));
    id->ops->fini(ctx);
}

/* hopper is for 9.0 only; gb10's portable modules run on 9.0 too, compiled for it. */
static void devices(void **state) {
    (void)state;
    const gdn_plugin *hopper = mock_plugin("hopper"), *gb10 = mock_plugin("gb10");
    assert_true(hopper && gb10);
    mock m;
    gdn_ctx *ctx = NULL;
    mock_init(&m, 121, 48);
    assert_int_equal(hopper->ops->init(&m.host, 0, &ctx, &err), GDN_E_ARCH);
    assert_non_null(strstr(text, "compute capability 12.1, this target is for 9.0"));
    assert_null(ctx);
    mock_init(&m, 90, 132);
    assert_int_equal(gb10->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    assert_string_equal(m.module[0].arch, "sm_90a");
    gb10->ops->fini(ctx);
    mock_init(&m, 103, 132);
    assert_int_equal(gb10->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    assert_string_equal(m.module[0].arch, "sm_103");
    gb10->ops->fini(ctx);
    mock_init(&m, 90, 132);
    assert_int_equal(hopper->ops->init(&m.host, 7, &ctx, &err), GDN_E_ARG); /* no such device */
    m.host.backend = NULL;
    assert_int_equal(hopper->ops->init(&m.host, 0, &ctx, &err), GDN_E_ABI);
    mock_init(&m, 90, 132);
    m.table.launch = NULL; /* a backend of host memory */
    assert_int_equal(hopper->ops->init(&m.host, 0, &ctx, &err), GDN_ABSENT);
    assert_non_null(strstr(text, "has no kernels"));
}

static void nothing_is_planned_while_capturing(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    const gdn_norm_shape n = mock_norm();
    mock_init(&m, 90, 132);
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    m.capturing = 1;
    assert_int_equal(id->ops->plan(ctx, &n.base, (void *)1, &plan, &err), GDN_E_CAPTURE);
    assert_null(plan);
    assert_non_null(strstr(text, "create the plan before capture"));
    id->ops->fini(ctx);
}

/* Counts of zero with NULL pointers are done without a launch; wrong ones never reach the backend. */
static void launches_without_work_or_with_errors(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    mock_init(&m, 90, 132);
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    assert_int_equal(id->ops->plan(ctx, &s.base, NULL, &plan, &err), GDN_OK);
    uint64_t ptr[GDN_BA_GATES_N_PTR] = { 0 };
    uint32_t rows[] = { 0 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_BA_GATES_N_PTR, 1, 0, NULL, ptr, rows };
    assert_int_equal(id->ops->launch(plan, &args), GDN_OK);
    rows[0] = 5;
    assert_int_equal(id->ops->launch(plan, &args), GDN_E_ARG);
    assert_true(mock_said(&m, "ba_gates: pointer 'A' is NULL"));
    for (uint32_t i = 0; i < GDN_BA_GATES_N_PTR; i++) ptr[i] = AT(1);
    ptr[GDN_BA_GATES_P_A] = AT(1) + 8;
    assert_int_equal(id->ops->launch(plan, &args), GDN_E_ARG);
    assert_true(mock_said(&m, GDN_BA_ALIGN_TEXT));
    for (uint32_t i = 0; i < GDN_BA_GATES_N_PTR; i++) ptr[i] = AT(i + 1);
    ptr[GDN_BA_GATES_P_GATE_OUT] = ptr[GDN_BA_GATES_P_A];
    assert_int_equal(id->ops->launch(plan, &args), GDN_E_ARG);
    assert_true(mock_said(&m, "ba_gates: the memory of 'gate_out', which is written, and of 'A' overlaps"));
    rows[0] = 8193;
    assert_int_equal(id->ops->launch(plan, &args), GDN_E_ARG);
    assert_true(mock_said(&m, "'M' is 8193, above the plan's max_m, 8192"));
    assert_int_equal(m.launches, 0);
    id->ops->destroy(plan);
    id->ops->fini(ctx);
}

/* Two contexts on two devices: everything is per context. */
static void two_devices(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx[2] = { NULL, NULL };
    gdn_plan *plan[2] = { NULL, NULL };
    const gdn_norm_shape n = mock_norm();
    uint64_t ptr[GDN_NORM_N_PTR] = { AT(1), AT(2), AT(3), AT(4) };
    const uint32_t rows[] = { 48 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_NORM_N_PTR, 1, 0, NULL, ptr, rows };
    mock_init(&m, 90, 132);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(id->ops->init(&m.host, i, &ctx[i], &err), GDN_OK);
        assert_int_equal(id->ops->plan(ctx[i], &n.base, NULL, &plan[i], &err), GDN_OK);
    }
    const mock_function *ran[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(id->ops->launch(plan[i], &args), GDN_OK);
        ran[i] = m.last.function;
    }
    assert_ptr_not_equal(ran[0], ran[1]);
    for (int i = 0; i < 2; i++) {
        id->ops->destroy(plan[i]);
        id->ops->fini(ctx[i]);
    }
    assert_int_equal(mock_loaded(&m), 0);
}

static void a_forked_child_is_told(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    const gdn_norm_shape n = mock_norm();
    uint64_t ptr[GDN_NORM_N_PTR] = { AT(1), AT(2), AT(3), AT(4) };
    const uint32_t rows[] = { 48 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_NORM_N_PTR, 1, 0, NULL, ptr, rows };
    mock_init(&m, 90, 132);
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    assert_int_equal(id->ops->plan(ctx, &n.base, NULL, &plan, &err), GDN_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gdn_plan *more = NULL;
        const bool ok = id->ops->launch(plan, &args) == GDN_E_FORKED && id->ops->plan(ctx, &n.base, NULL, &more, NULL) == GDN_E_FORKED &&
                        m.launches == 0;
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(id->ops->launch(plan, &args), GDN_OK); /* the parent goes on */
    id->ops->destroy(plan);
    id->ops->fini(ctx);
}

/* What this target does not carry is ABSENT, what it declines REFUSED: never something else in silence. */
static void absent_and_refused(void **state) {
    (void)state;
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    mock_init(&m, 90, 132);
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, &err), GDN_OK);
    gdn_norm_shape n = mock_norm();
    n.base.act_type = GDN_F32;
    assert_int_equal(id->ops->plan(ctx, &n.base, NULL, &plan, &err), GDN_REFUSED);
    assert_non_null(strstr(text, "activations are f32"));
    gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    s.K_stride = 5119;
    assert_int_equal(id->ops->plan(ctx, &s.base, NULL, &plan, &err), GDN_E_ARG);
    assert_non_null(strstr(text, "K_stride < K: the activation row is shorter than the reduction"));
    assert_null(plan);
    id->ops->fini(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_backend_call_fails_in_turn),
        cmocka_unit_test(one_broken_module),
        cmocka_unit_test(missing_entry_is_absent),
        cmocka_unit_test(devices),
        cmocka_unit_test(nothing_is_planned_while_capturing),
        cmocka_unit_test(launches_without_work_or_with_errors),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(absent_and_refused),
    };
    return cmocka_run_group_tests_name("gpu_failures", tests, NULL, NULL) != 0;
}
