/* test_gpu_builds.c - which builds of which modules a GPU target compiles, on the mocked backend: at its start what every plan needs, with
 * the first plan of the rule what its model's plans will need, and with a plan what that one needs beside it. */
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
                              .max_rows = op == GDN_OP_VERIFY_WOA || op == GDN_OP_FOLD || op == GDN_OP_ROUND ? 4 : 16,
                              .max_tokens = op == GDN_OP_PREFILL ? 4096 : 0,
                              .slab_entries = 40,
                              .stash_seqs = 30 };
}
#define FILE_(name) "gated_delta_rule_" name ".cu"

static const char *const model_files[] = { FILE_("fla"),          FILE_("decode"),     FILE_("wyn"),
                                           FILE_("verify_split"), FILE_("wy4_woa"),    FILE_("wy4_round"), /* hopper's own: */
                                           FILE_("chunk_tc"),     FILE_("fla_hopper"), FILE_("fast") };
enum { PORTABLE_FILES = 6, MODEL_FILES = 9 };
static const mock_module *build_of(const bench *b, const char *file) {
    const mock_module *found = NULL;
    for (uint32_t i = 0; i < b->m.modules; i++) {
        if (strcmp(b->m.module[i].name, file) != 0) continue;
        assert_null(found); /* once */
        found = &b->m.module[i];
    }
    return found;
}
static void make_model_plan(bench *b, uint32_t op, bool log) {
    gdn_rule_shape s = rule(op, 128, GDN_STATE_POOL);
    gdn_plan *plan = NULL;
    if (log) s.gate_form = GDN_GATE_LOG, s.base.flags = op == GDN_OP_FOLD ? 0 : GDN_QK_L2NORM;
    if (b->id->ops->plan(b->ctx, &s.base, NULL, &plan, &b->err)) fail_msg("plan of %u: %s", op, b->text);
    b->id->ops->destroy(plan);
}

/* An engine's plans: heads of 128, states in a pool. The start compiles nothing of the rule; the first plan, whichever it is, what all of
 * them need, in its form and in one batch with the long compiles in front; the others nothing. */
static void plans_of_a_model(void **state) {
    (void)state;
    static const char *const targets[] = { "hopper", "gb10" };
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_ROUND, GDN_OP_FOLD };
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t first = 0; first + 1 < sizeof ops / sizeof *ops; first++) {
            const bool log = t / 2, hopper = t % 2 == 0;
            const uint32_t files = hopper ? MODEL_FILES : PORTABLE_FILES;
            bench b;
            up(&b, targets[t % 2]);
            const uint32_t from = b.m.modules, loads = b.m.loads;
            for (uint32_t i = 0; i < from; i++) assert_int_not_equal(strncmp(b.m.module[i].option, "-D", 2), 0);
            for (uint32_t i = 0; i < files; i++) assert_null(build_of(&b, model_files[i]));
            make_model_plan(&b, ops[first], log);
            assert_int_equal(b.m.loads, loads + 1);
            assert_int_equal(b.m.modules, from + files);
            assert_string_equal(b.m.module[from].name, FILE_("wy4_woa"));
            assert_string_equal(b.m.module[from + 1].name, FILE_("fla"));
            for (uint32_t i = 0; i < files; i++) {
                assert_non_null(build_of(&b, model_files[i]));
                assert_string_equal(build_of(&b, model_files[i])->option, log ? "-DGDN_GATE_LOG" : "--fmad=false");
            }
            for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++) make_model_plan(&b, ops[i], log);
            const gdn_flag_shape clear = { .base = HEAD(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
            gdn_plan *plan = NULL;
            assert_int_equal(b.id->ops->plan(b.ctx, &clear.base, NULL, &plan, &b.err), GDN_OK);
            b.id->ops->destroy(plan);
            assert_int_equal(b.m.loads, loads + 1);
            down(&b);
        }
}

/* A fold looks at neither q nor gates: it has the build that is there, of its own layout and head map, and alone but one. */
static void a_fold_takes_what_is_there(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    gdn_rule_shape s = rule(GDN_OP_FOLD, 128, GDN_STATE_POOL);
    plan_needs(&b, &s, FILE_("wy4_woa"));
    s.gate_form = GDN_GATE_LOG;
    plan_needs(&b, &s, "");
    s.state_layout = GDN_STATE_V_MAJOR;
    plan_needs(&b, &s, FILE_("wy4_woa") " -DGDN_GATE_LOG");
    down(&b);
}

/* What is refused whatever would be loaded is refused before. */
static void a_refused_plan_compiles_nothing(void **state) {
    (void)state;
    bench b;
    gdn_plan *plan = NULL;
    up(&b, "hopper");
    const uint32_t loads = b.m.loads;
    gdn_rule_shape s = rule(GDN_OP_VERIFY_WOA, 64, GDN_STATE_POOL);
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_REFUSED);
    assert_non_null(strstr(b.text, "refused: k_dim or v_dim is not 128"));
    s = rule(GDN_OP_PREFILL, 128, GDN_STATE_POOL);
    s.max_workspace = 1;
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_REFUSED);
    assert_int_equal(b.m.loads, loads);
    down(&b);
}

/* The route says which entry was lost to which build, and each plan a line about it. */
static void expect_lost(const bench *b, const gdn_route *r, const char *entry, const char *file, uint32_t plans) {
    char want[200], line[256];
    if (!entry) {
        assert_null(r->guard);
        return;
    }
    snprintf(want, sizeof want, "%s did not load: %s(12): error: planted", entry, file);
    assert_int_equal(r->chosen, 0);
    assert_int_equal(r->n_refused, 1);
    assert_string_equal(r->refused[0].guard, want);
    if (r->guard) assert_string_equal(r->guard, want);
    snprintf(line, sizeof line, "declined: %s; %s is bound", want, r->entry ? r->entry : "nothing");
    assert_int_equal(mock_count_lines(&b->m, line), plans);
}

/* A build that does not load: the route names the entry before and not after, the plan says the guard and the build's own reason, and it is
 * compiled and told of once. Before and after, the others run. */
static void builds_that_fail(void **state) {
    (void)state;
    static const struct {
        uint32_t op;
        const char *file, *entry, *answer;
        gdn_status status;
        const char *guard; /* of the route from then on, the build's reason behind it */
    } rows[] = {
        { GDN_OP_DECODE, FILE_("decode"), "gated_delta_rule_decode_split", "decode: target hopper does not have it here", GDN_ABSENT,
          "gated_delta_rule_decode_split" },
        { GDN_OP_VERIFY_WOA, FILE_("wy4_woa"), "gated_delta_rule_wy4_woa", "refused: its kernel did not load: ", GDN_REFUSED,
          "gated_delta_rule_wy4_woa" },
        { GDN_OP_FOLD, FILE_("wy4_woa"), "gated_delta_rule_wy4_fold", "fold: target hopper does not have it here", GDN_ABSENT, NULL },
        { GDN_OP_ROUND, FILE_("wy4_round"), "gated_delta_rule_wy4_round_stay", "refused: its kernel did not load: ", GDN_REFUSED,
          "gated_delta_rule_wy4_round" },
        { GDN_OP_VERIFY, FILE_("verify_split"), "gated_delta_rule_wy4_split", NULL, GDN_OK,
          "gated_delta_rule_wy4_split" }, /* and wy4 is loaded */
        { GDN_OP_PREFILL, FILE_("fast"), "gated_delta_rule_fast_many", NULL, GDN_OK, "gated_delta_rule_fast_fwd" },
        { GDN_OP_PREFILL, FILE_("fla"), "gated_delta_rule_fast_many", NULL, GDN_OK, NULL }, /* the fast kernels do without */
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bench b;
        char said[160];
        gdn_rule_shape s = rule(rows[i].op, 128, GDN_STATE_POOL);
        gdn_route r = { .struct_size = sizeof r };
        s.max_rows = 4;
        up(&b, "hopper");
        b.m.broken_module = rows[i].file;
        assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), GDN_OK);
        assert_string_equal(r.entry, rows[i].entry);
        snprintf(said, sizeof said, "2 modules: %s(12): error: planted", rows[i].file);
        assert_false(mock_said(&b.m, said));
        for (uint32_t again = 0; again < 2; again++) {
            gdn_plan *plan = NULL;
            const uint32_t loads = b.m.loads;
            b.text[0] = 0;
            assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), rows[i].status);
            if (rows[i].answer) {
                assert_non_null(strstr(b.text, rows[i].answer));
                assert_non_null(strstr(b.text, said + strlen("2 modules: ")));
            }
            if (plan) {
                gdn_route e = { .struct_size = sizeof e };
                assert_int_equal(b.id->ops->explain(plan, 0, NULL, &e), GDN_OK);
                expect_lost(&b, &e, rows[i].guard, rows[i].file, again + 1);
            }
            b.id->ops->destroy(plan);
            assert_int_equal(mock_count_lines(&b.m, said), 1);
            if (again) assert_int_equal(b.m.loads, loads);
        }
        memset(&r, 0, sizeof r);
        r.struct_size = sizeof r;
        assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), rows[i].status);
        expect_lost(&b, &r, rows[i].guard, rows[i].file, rows[i].status ? 0 : 2);
        if (rows[i].status)
            assert_null(r.entry);
        else if (strcmp(rows[i].file, FILE_("fla")) != 0)
            assert_string_not_equal(r.entry, rows[i].entry);
        make_model_plan(&b, rows[i].op == GDN_OP_DECODE ? GDN_OP_VERIFY : GDN_OP_DECODE, false);
        down(&b);
    }
}

/* Without verify_split heads of 128 have the kernels for a number of rows: all in one batch, behind the one that failed. */
static void fallback_of_the_split_verify(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    b.m.broken_module = FILE_("verify_split");
    gdn_rule_shape s = rule(GDN_OP_VERIFY, 128, GDN_STATE_POOL);
    s.max_rows = 4;
    const uint32_t loads = b.m.loads, from = b.m.modules;
    gdn_plan *plan = NULL;
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_OK);
    assert_int_equal(b.m.loads, loads + 2);
    expect_builds(&b, from + MODEL_FILES - 1, FILE_("wy4") "," FILE_("wy") "," FILE_("wy3"));
    for (uint32_t rows = 1; rows <= 4; rows++) { /* few heads: in parts, were they there */
        gdn_route r = { .struct_size = sizeof r };
        const uint32_t u32[] = { rows, 1 };
        assert_int_equal(b.id->ops->explain(plan, 2, u32, &r), GDN_OK);
        assert_int_equal(r.chosen, 0);
        assert_string_equal(r.guard, "gated_delta_rule_wy4_split did not load: " FILE_("verify_split") "(12): error: planted");
    }
    b.id->ops->destroy(plan);
    down(&b);
}

/* The fallback is told of where it is there. */
static void lines_of_a_fallback(void **state) {
    (void)state;
    static const char *const fallback[] = { "the contract pipeline stays bound", "the scalar spine stays bound" };
    for (uint32_t broken = 0; broken < 2; broken++) {
        bench b;
        gdn_plan *plan = NULL;
        gdn_rule_shape s = rule(GDN_OP_PREFILL, 128, GDN_STATE_POOL);
        s.layers = 1;
        up(&b, "hopper");
        if (broken) b.m.broken_module = FILE_("fla");
        assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_OK);
        b.id->ops->destroy(plan);
        assert_true(mock_said(&b.m, "GDN prefill: gated_delta_rule_fast_many ([defaults] gdn_prefill_fast"));
        assert_true(mock_said(&b.m, "GDN state spine: gated_delta_rule_chunk_delta_h_tcfuse_x2 ([defaults] gdn_prefill_tc"));
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(mock_count_lines(&b.m, fallback[i]), !broken);
        down(&b);
    }
}

/* Tensor cores asked for whose build failed: the b/a projection says so, not that they are another device's. */
static void a_projection_that_fails(void **state) {
    (void)state;
    static const char want[] = "dense_gemm_ba_gates_prefill_tc did not load: ssm_ba_gates_tc.cu(12): error: planted";
    mock m;
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    gdn_route r = { .struct_size = sizeof r };
    const gdn_ba_shape s = mock_ba(GDN_OP_BA_GATES);
    const gdn_plugin *id = mock_plugin("hopper");
    mock_init(&m, 90, 132);
    mock_lever(&m, "ssm_ba_gates_tc", "true");
    m.broken_module = "ssm_ba_gates_tc.cu";
    assert_int_equal(id->ops->init(&m.host, 0, &ctx, NULL), GDN_OK);
    assert_int_equal(id->ops->plan(ctx, &s.base, NULL, &plan, NULL), GDN_OK);
    assert_int_equal(id->ops->explain(plan, 0, NULL, &r), GDN_OK);
    assert_string_equal(r.guard, want);
    assert_true(mock_said(&m, want));
    assert_true(mock_said(&m, "ba_gates: declined: "));
    id->ops->destroy(plan);
    id->ops->fini(ctx);
}

/* A compiler's text: whole lines of it in the answer, and how much is left; more in the log; its first line in the route. */
static void a_long_compiler_text(void **state) {
    (void)state;
    char log[6000];
    size_t n = 0;
    for (uint32_t i = 0; n + 40 < sizeof log; i++) n += (size_t)snprintf(log + n, sizeof log - n, "\nline %u of a long text", i);
    bench b;
    gdn_plan *plan = NULL;
    gdn_rule_shape s = rule(GDN_OP_VERIFY_WOA, 128, GDN_STATE_POOL);
    gdn_route r = { .struct_size = sizeof r };
    up(&b, "hopper");
    b.m.broken_module = FILE_("wy4_woa");
    b.m.broken_log = log;
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &plan, &b.err), GDN_REFUSED);
    const char *const first = strstr(b.text, FILE_("wy4_woa"));
    assert_non_null(first);
    assert_null(strstr(first + 1, FILE_("wy4_woa")));
    const char *const mark = strstr(b.text, "\n... (");
    assert_non_null(mark);
    unsigned left = 0;
    assert_int_equal(sscanf(mark, "\n... (%u more bytes in the log)", &left), 1);
    assert_non_null(strstr(mark, " more bytes in the log)"));
    assert_memory_equal(mark - strlen(" of a long text"), " of a long text", strlen(" of a long text"));
    assert_int_equal((size_t)(mark - first) + left, strlen(FILE_("wy4_woa") "(12): error: planted") + n);
    assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), GDN_REFUSED);
    assert_string_equal(r.guard, "gated_delta_rule_wy4_woa did not load: " FILE_("wy4_woa") "(12): error: planted");
    down(&b);
}

/* A launch's own states in place, or a table of them: the core entries, and only those of the operation, once. */
static void core_entries(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    make_model_plan(&b, GDN_OP_PREFILL, false);
    gdn_rule_shape s = rule(GDN_OP_DECODE, 128, GDN_STATE_CONTIGUOUS);
    plan_needs(&b, &s, FILE_("decode") " -DGDN_CORE");
    plan_needs(&b, &s, "");
    s = rule(GDN_OP_VERIFY, 128, GDN_STATE_CONTIGUOUS);
    s.max_batch = 1;
    plan_needs(&b, &s, FILE_("verify_split") " -DGDN_CORE," FILE_("wyn") " -DGDN_CORE");
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
    make_model_plan(&b, GDN_OP_PREFILL, false);
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
    plan_needs(&b, &s, FILE_("wy") "," FILE_("wy3") "," FILE_("wyn"));
    s.max_rows = 16;
    plan_needs(&b, &s, FILE_("wy4"));
    s = rule(GDN_OP_PREFILL, 64, GDN_STATE_POOL);
    plan_needs(&b, &s, FILE_("recurrent"));
    s = rule(GDN_OP_DECODE, 64, GDN_STATE_POOL);
    plan_needs(&b, &s, FILE_("decode"));
    down(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_a_model),
        cmocka_unit_test(a_fold_takes_what_is_there),
        cmocka_unit_test(a_refused_plan_compiles_nothing),
        cmocka_unit_test(builds_that_fail),
        cmocka_unit_test(fallback_of_the_split_verify),
        cmocka_unit_test(lines_of_a_fallback),
        cmocka_unit_test(a_projection_that_fails),
        cmocka_unit_test(a_long_compiler_text),
        cmocka_unit_test(core_entries),
        cmocka_unit_test(heads_of_64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
