/* test_gpu_builds.c - which builds of which modules a GPU target compiles, on the mocked backend: at its start what most plans need, and
 * with a plan what that one needs beside it. */
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

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    char text[512];
    gdn_text err;
} bench;

static void up(bench *b, const char *target) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, strcmp(target, "hopper") == 0 ? 90 : 121, 132);
    mock_lever(&b->m, "gdn_woa", "1");
    mock_lever(&b->m, "gdn_prefill_tc", "true"); /* as in conf/hopper.ini */
    mock_lever(&b->m, "gdn_prefill_fast", "true");
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
    if (b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err)) fail_msg("init: %s", b->text);
}
static void down(bench *b) {
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}

/* The builds that came since `from`, "name option" each where the option is a define, with commas. */
static void expect_builds(const bench *b, uint32_t from, const char *want) {
    char got[1024] = "";
    for (uint32_t i = from; i < b->m.modules; i++) {
        const mock_module *k = &b->m.module[i];
        const size_t n = strlen(got);
        const bool define = strncmp(k->option, "-D", 2) == 0;
        snprintf(got + n, sizeof got - n, "%s%s%s%s", n ? "," : "", k->name, define ? " " : "", define ? k->option : "");
    }
    assert_string_equal(got, want);
}
static void plan_needs(bench *b, const gdn_rule_shape *s, const char *want) {
    gdn_plan *plan = NULL;
    const uint32_t from = b->m.modules;
    if (b->id->ops->plan(b->ctx, &s->base, NULL, &plan, &b->err)) fail_msg("plan: %s", b->text);
    b->id->ops->destroy(plan);
    expect_builds(b, from, want);
}
static gdn_rule_shape rule(uint32_t op, uint32_t dim, uint32_t addr) {
    return (gdn_rule_shape) { .base = HEAD(gdn_rule_shape, op),
                              .nk = 16,
                              .nv = 48,
                              .k_dim = dim,
                              .v_dim = dim,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_type = GDN_F32,
                              .state_addr = addr,
                              .max_batch = 8,
                              .max_rows = op == GDN_OP_VERIFY_WOA || op == GDN_OP_FOLD ? 4 : 16,
                              .max_tokens = op == GDN_OP_PREFILL ? 4096 : 0,
                              .slab_entries = 40,
                              .stash_seqs = 30 };
}
#define FILE_(name) "gated_delta_rule_" name ".cu"

/* An engine's plans: heads of 128, states in a pool. Nothing is compiled but what came at the start, once each. */
static void most_plans(void **state) {
    (void)state;
    static const char *const targets[] = { "hopper", "gb10" };
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD };
    for (uint32_t t = 0; t < 2; t++) {
        bench b;
        up(&b, targets[t]);
        for (uint32_t i = 0; i < b.m.modules; i++) {
            assert_int_not_equal(strncmp(b.m.module[i].option, "-D", 2), 0);
            for (uint32_t k = 0; k < i; k++) assert_string_not_equal(b.m.module[i].name, b.m.module[k].name);
            for (uint32_t k = 0; k < 4; k++)
                assert_string_not_equal(b.m.module[i].name,
                                        ((const char *const[]) { FILE_("wy"), FILE_("wy3"), FILE_("wy4"), FILE_("recurrent") })[k]);
        }
        for (uint32_t i = 0; i < 5; i++) {
            const gdn_rule_shape s = rule(ops[i], 128, GDN_STATE_POOL);
            plan_needs(&b, &s, "");
        }
        down(&b);
    }
}

/* A launch's own states in place, or a table of them: the core entries, and only those of the operation, once. */
static void core_entries(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    gdn_rule_shape s = rule(GDN_OP_DECODE, 128, GDN_STATE_CONTIGUOUS);
    plan_needs(&b, &s, FILE_("decode") " -DGDN_CORE");
    plan_needs(&b, &s, "");
    s = rule(GDN_OP_VERIFY, 128, GDN_STATE_CONTIGUOUS);
    s.max_batch = 1;
    plan_needs(&b, &s, FILE_("wyn") " -DGDN_CORE," FILE_("verify_split") " -DGDN_CORE");
    s = rule(GDN_OP_FOLD, 128, GDN_STATE_TABLE);
    plan_needs(&b, &s, FILE_("wy4_woa") " -DGDN_CORE");
    s = rule(GDN_OP_VERIFY_WOA, 128, GDN_STATE_TABLE);
    plan_needs(&b, &s, "");
    s = rule(GDN_OP_PREFILL, 128, GDN_STATE_CONTIGUOUS); /* the fast kernels have one form */
    plan_needs(&b, &s, "");
    s.ckpt_every = 64;
    plan_needs(&b, &s, FILE_("fast") " -DGDN_CHECKPOINTS");
    down(&b);
    up(&b, "gb10");
    s.ckpt_every = 0;
    plan_needs(&b, &s, FILE_("fla") " -DGDN_CORE");
    down(&b);
}

/* Heads of 64: the verifies of as many rows as the plan is for, and the prefill token by token. */
static void heads_of_64(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    gdn_rule_shape s = rule(GDN_OP_VERIFY, 64, GDN_STATE_POOL);
    s.max_rows = 3;
    plan_needs(&b, &s, FILE_("wy") "," FILE_("wy3"));
    s.max_rows = 16;
    plan_needs(&b, &s, FILE_("wy4"));
    s = rule(GDN_OP_PREFILL, 64, GDN_STATE_POOL);
    plan_needs(&b, &s, FILE_("recurrent"));
    s = rule(GDN_OP_DECODE, 64, GDN_STATE_POOL);
    plan_needs(&b, &s, "");
    down(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(most_plans), cmocka_unit_test(core_entries), cmocka_unit_test(heads_of_64) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
