/* test_cold_start.c - all plans of a model through the real NVRTC, from nothing: how much is compiled, and how long it would take on two
 * cores. Both gate forms, with q and k normalised in the log one; on the plugins' own code and a device that is not there. Time is this
 * process's CPU time, so that what else runs here counts little; half of it leaves three of the 15 seconds for cores that wait for
 * another's last compile. */
#include "gpu_mock_shapes.h"
#include "host_test.h"
#include "mock_backend.h"
#include "numeric.h"
#include "nvrtc_jit.h"

#include <time.h>

enum { BOUND_MS = 12000 };
static struct {
    gdn__jit jit;
    uint32_t builds, batches;
} compiler;

/* Under sanitizers the first two of a batch: NVRTC itself is not instrumented, and what is round it is the same for all. */
static gdn_status compile(void *user, int32_t ordinal, uint32_t n, const gdn_compile_job *jobs, void **modules, gdn_status *status,
                          gdn_text *err) {
    static char module;
    gdn__cubin c[64];
    (void)user;
    (void)ordinal;
    assert_true(n <= 64);
    compiler.batches++;
    const uint32_t real = TEST_LIGHT && n > 2 ? 2 : n;
    const gdn_status st = gdn__jit_get(&compiler.jit, real, jobs, NULL, NULL, c, status, err);
    for (uint32_t i = real; i < n; i++) {
        status[i] = GDN_OK;
        c[i] = (gdn__cubin) { 0 };
    }
    for (uint32_t i = 0; i < n; i++) {
        modules[i] = status[i] == GDN_OK ? &module : NULL;
        compiler.builds += status[i] == GDN_OK;
        gdn__cubin_free(&c[i]);
    }
    return st;
}
static void keep(void *user, int32_t ordinal, void *module) {
    (void)user;
    (void)ordinal;
    (void)module;
}
static gdn_status any_function(void *user, void *module, const char *entry, void **out) {
    (void)user;
    (void)entry;
    *out = module;
    return GDN_OK;
}
static gdn_status any_smem(void *user, void *fn, uint32_t bytes) {
    (void)user;
    (void)bytes;
    return fn ? GDN_OK : GDN_E_ARG;
}

static void plan(const gdn_plugin *id, gdn_ctx *ctx, const gdn_shape *s) {
    gdn_plan *p = NULL;
    reason r;
    if (id->ops->plan(ctx, s, NULL, &p, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    id->ops->destroy(p);
}
/* As an engine makes them, one after another. */
static void all_plans(const gdn_plugin *id, gdn_ctx *ctx, bool log) {
    static const uint32_t rules[] = { GDN_OP_PREFILL,    GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY,
                                      GDN_OP_VERIFY_WOA, GDN_OP_FOLD,    GDN_OP_ROUND };
    const gdn_ba_shape ba = mock_ba(GDN_OP_BA_GATES), gemv = mock_ba(GDN_OP_BA_GEMV);
    const gdn_conv_shape conv = mock_conv(GDN_OP_CONV1D), fused = mock_conv(GDN_OP_CONV_FUSED);
    const gdn_gates_shape gates = mock_gates();
    const gdn_norm_shape norm = mock_norm();
    const gdn_flag_shape clear = { .base = HEAD(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
    const gdn_shape *const layer[] = { &ba.base, &gemv.base, &conv.base, &fused.base, &gates.base, &norm.base };
    for (uint32_t i = 0; i < sizeof layer / sizeof *layer; i++) plan(id, ctx, layer[i]);
    for (uint32_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        gdn_rule_shape s = { .base = HEAD(gdn_rule_shape, rules[i]),
                             .nk = 16,
                             .nv = 48,
                             .k_dim = 128,
                             .v_dim = 128,
                             .gate_form = log ? GDN_GATE_LOG : GDN_GATE_LINEAR,
                             .state_type = GDN_F32,
                             .state_addr = GDN_STATE_POOL,
                             .max_batch = i ? 8 : 1,
                             .max_rows = rules[i] == GDN_OP_VERIFY ? 16 : 4,
                             .max_tokens = rules[i] == GDN_OP_PREFILL ? 8192 : 0,
                             .stash_seqs = 8,
                             .hi_capacity = 15,
                             .num_slots = 9 };
        if (log && rules[i] != GDN_OP_FOLD) s.base.flags = GDN_QK_L2NORM;
        plan(id, ctx, &s.base);
    }
    plan(id, ctx, &clear.base);
}
static double cpu_ms(void) {
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void cold_start(void **state) {
    (void)state;
    static const char *const levers[][2] = { { "gdn_woa", "1" },
                                             { "gdn_prefill_tc", "true" },
                                             { "gdn_prefill_fast", "true" },
                                             { "ssm_ba_gates_tc", "true" },
                                             { "ssm_ba_gates_hopper", "true" } };
    static heard h;
    for (uint32_t i = TEST_LIGHT; i < 2; i++) { /* under sanitizers the form with more to it alone */
        const bool log = i != 0;
        const gdn_plugin *id = mock_plugin("hopper");
        const gdn__log lines = log_to(&h, GDN_LOG_WARN);
        const char *const asked = getenv("GDN_NVRTC");
        char var[512];
        const char *const vars[] = { "GDN_JIT_NOCACHE=1", asked && *asked ? var : NULL, NULL };
        gdn__env env;
        gdn_ctx *ctx = NULL;
        gdn_status st;
        reason r;
        mock m;
        (void)snprintf(var, sizeof var, "GDN_NVRTC=%s", asked ? asked : "");
        assert_int_equal(gdn__env_capture(&env, (char *const *)(uintptr_t)vars, false), GDN_OK);
        memset(&compiler, 0, sizeof compiler);
        assert_int_equal(gdn__jit_open(&compiler.jit, &env, &lines, reason_of(&r)), GDN_OK);
        if (!gdn__jit_nvrtc(&compiler.jit, &st, reason_of(&r))) {
            print_message("%s\n", r.buf);
            gdn__jit_close(&compiler.jit);
            gdn__env_drop(&env);
            skip();
        }
        mock_init(&m, 90, 132);
        for (uint32_t k = 0; k < sizeof levers / sizeof *levers; k++) mock_lever(&m, levers[k][0], levers[k][1]);
        m.table.modules_load = compile;
        m.table.module_unload = keep;
        m.table.function = any_function;
        m.table.set_smem = any_smem;
        const double begin = cpu_ms();
        if (id->ops->init(&m.host, 0, &ctx, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
        const double opened = cpu_ms();
        all_plans(id, ctx, log);
        const double ms = cpu_ms() - begin;
        print_message("%s: %u builds in %u batches, %.0f ms of CPU, %.0f of them at the start\n",
                      log ? "log gates and L2 norm" : "linear gates", compiler.builds, compiler.batches, ms, opened - begin);
        if (!TEST_LIGHT) assert_true(ms / 2 <= BOUND_MS);
        assert_true(compiler.builds >= 20);
        assert_in_range(compiler.batches, 2, 4); /* the start, the b/a projection's, the model's */
        id->ops->fini(ctx);
        gdn__jit_close(&compiler.jit);
        gdn__env_drop(&env);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(cold_start) };
    return cmocka_run_group_tests_name("cold_start", tests, NULL, NULL);
}
