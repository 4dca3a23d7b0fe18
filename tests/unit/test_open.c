/* test_open.c - the public entries: bad arguments, what gdn_open picks and says, memory, every allocation failed in turn. */
#include "host_test.h"

static heard lines;
static gdn_options options(const char *target, const char *path) {
    gdn_options opt = GDN_OPTIONS_INIT;
    lines = (heard) { 0 };
    opt.target = target;
    opt.plugin_path = path;
    opt.log = hear;
    opt.log_user = &lines;
    return opt;
}

static void expect_error(const gdn_options *opt, gdn_status status, const char *part) {
    reason r;
    gdn *g = (gdn *)1;
    const gdn_status st = gdn_open(opt, &g, reason_of(&r));
    if (st != status) fail_msg("%s (%s), expected %s", gdn_status_name(st), r.buf, gdn_status_name(status));
    assert_null(g);
    assert_contains(r.buf, part);
}

static void test_bad_options(void **state) {
    (void)state;
    reason r;
    gdn_options opt = options("good", FIXTURES);
    assert_int_equal(gdn_open(&opt, NULL, reason_of(&r)), GDN_E_ARG);
    assert_contains(r.buf, "out is NULL");
    opt.struct_size = 8;
    expect_error(&opt, GDN_E_ABI, "gdn_options.struct_size is 8, at least 16 are needed");
    opt = options("good", FIXTURES);
    opt.n_settings = 1;
    expect_error(&opt, GDN_E_ARG, "gdn_options.settings is NULL, n_settings is 1");
    opt = options("good", FIXTURES);
    opt.log_level = 5;
    expect_error(&opt, GDN_E_ARG, "gdn_options.log_level is 5, the highest is 4");
    opt.log_level = GDN_LOG_DEBUG;
    opt.pad_ = 1;
    expect_error(&opt, GDN_E_ARG, "gdn_options.pad_ is 0x1, must be 0");
    opt = options("good", "fixtures");
    expect_error(&opt, GDN_E_ARG, "plugin_path: 'fixtures' is not an absolute folder");
    static const char *const names[] = { "Cpu", "a b", "x.so", "a-b", "0123456789_0123456789_0123456789_" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        opt = options(names[i], FIXTURES);
        expect_error(&opt, GDN_E_ARG, "is no target name ([a-z0-9_], 1 to 32); a path has a slash");
    }
    opt = options("good", FIXTURES);
    opt.ordinal = 1;
    expect_error(&opt, GDN_E_ARG, "device 1: target 'good' has 1");
    opt.ordinal = -1;
    expect_error(&opt, GDN_E_ARG, "device -1: target 'good' has 1");
    opt = options("none", FIXTURES);
    expect_error(&opt, GDN_E_NOTARGET, "target 'none'");
    opt = options("./gone.so", FIXTURES);
    expect_error(&opt, GDN_E_NOTARGET, "plugin ./gone.so: no such file");
    opt = options(FIXTURES "/libgdn_major1.so", NULL);
    expect_error(&opt, GDN_E_ABI, "libgdn_major1.so: plugin ABI 1.4, host 0.4");
    opt = options("auto", "/nonexistent");
    expect_error(&opt, GDN_E_NOTARGET,
                 "auto found no target; hopper: no plugin here, gb10: no plugin here; target 'cpu' could not be opened");
    const gdn_setting bad = { "gdn_pip", "1" };
    opt = options("good", FIXTURES);
    opt.settings = &bad;
    opt.n_settings = 1;
    expect_error(&opt, GDN_E_LEVER, "api: gdn_pip: unknown key; did you mean gdn_pipe?");
    opt = options("good", FIXTURES);
    opt.conf = "/nonexistent/x.ini";
    expect_error(&opt, GDN_E_CONF, "conf=/nonexistent/x.ini: no such file");
}

/* A caller that was built when the options ended after plugin_path. */
static void test_older_caller(void **state) {
    (void)state;
    gdn_options opt = options("good", FIXTURES);
    gdn *g = NULL;
    opt.struct_size = GDN_THROUGH(gdn_options, plugin_path);
    opt.n_settings = 77; /* beyond its end: not looked at */
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);
    assert_int_equal(lines.lines, 0); /* nor is the log */
    gdn_close(g);
}

/* And one that was built when they will be longer: what is not known must be zero. */
static void test_newer_caller(void **state) {
    (void)state;
    struct {
        gdn_options opt;
        uint64_t more[2];
    } newer = { .opt = options("good", FIXTURES) };
    gdn *g = NULL;
    newer.opt.struct_size = (uint32_t)sizeof newer;
    assert_int_equal(gdn_open(&newer.opt, &g, NULL), GDN_OK);
    gdn_close(g);
    newer.more[1] = 1;
    expect_error(&newer.opt, GDN_E_ABI, "something is set");
    newer.opt.struct_size = UINT32_MAX; /* no options are that long */
    expect_error(&newer.opt, GDN_E_ABI, "gdn_options.struct_size is 4294967295");
}

static void test_settings_arrive(void **state) {
    (void)state;
    gdn_options opt = options("good", FIXTURES);
    char value[] = " 1";
    const gdn_setting one = { "gdn_pipe", value };
    gdn *g = NULL;
    opt.settings = &one;
    opt.n_settings = 1;
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);
    value[0] = 'x';                               /* it was copied */
    assert_contains(lines.text, "fixture:  1\n"); /* what the plugin saw, byte for byte */
    assert_string_equal(g->gen->levers->at[GDN__L_PIPE].value, " 1");
    gdn_lever lever = { .struct_size = (uint32_t)sizeof lever };
    const gdn_host *host = &g->gen->host;
    assert_int_equal(host->lever(host->user, "gdn_pipe", &lever), GDN_OK);
    assert_string_equal(lever.where, "api");
    assert_int_equal(lever.source, GDN_FROM_API);
    assert_int_equal(host->lever(host->user, "gdn_vtile", &lever), GDN_ABSENT); /* unset */
    assert_int_equal(host->lever(host->user, "no_such_key", &lever), GDN_ABSENT);
    assert_int_equal(host->lever(host->user, NULL, &lever), GDN_E_ARG);
    assert_int_equal(host->lever(host->user, "gdn_pipe", NULL), GDN_E_ARG);
    lever.struct_size = 4;
    assert_int_equal(host->lever(host->user, "gdn_pipe", &lever), GDN_E_ABI);
    gdn_close(g);
}

/* auto: the best target that is here. With a cpu plugin alone it is cpu, and one line says so. */
static void test_auto(void **state) {
    (void)state;
    char dir[64], link[128];
    gdn *g = NULL;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    (void)snprintf(link, sizeof link, "%s/libgdn_cpu.so", make_folder(dir));
    assert_int_equal(symlink(GDN_PLUGIN_DIR "/libgdn_cpu.so", link), 0);
    gdn_options opt = options("auto", dir);
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);
    assert_int_equal(gdn_describe(g, &info), GDN_OK);
    assert_string_equal(info.target, "cpu");
    assert_contains(lines.text, "loader: auto took cpu: hopper: no plugin here, gb10: no plugin here\n");
    gdn_close(g);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_bad_arguments(void **state) {
    (void)state;
    gdn_options opt = options("good", FIXTURES);
    gdn *g = NULL;
    gdn_hplan *plan = (gdn_hplan *)1;
    reason r;
    gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    gdn_launch_args args = { .struct_size = (uint32_t)sizeof args };
    uint32_t n = 0;
    uint64_t ptr = 0;
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);

    assert_int_equal(gdn_plan_make(NULL, &shape.base, NULL, &plan, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, NULL, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_plan_make(g, NULL, NULL, &plan, reason_of(&r)), GDN_E_ARG);
    assert_string_equal(r.buf, "shape is NULL");
    assert_null(plan);
    shape.base.struct_size = 12;
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan, reason_of(&r)), GDN_E_ABI);
    assert_string_equal(r.buf, "shape.struct_size is 12, at least 16 are needed");
    shape.base.struct_size = (uint32_t)sizeof shape;
    shape.base.op = 99;
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan, reason_of(&r)), GDN_E_ARG);
    assert_string_equal(r.buf, "shape.op is 99, which is no operation");
    shape.base.op = GDN_OP_NORM; /* the fixture does not carry it */
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan, reason_of(&r)), GDN_ABSENT);
    assert_string_equal(r.buf, "norm: this target does not carry it");
    assert_null(plan);
    shape.base.op = GDN_OP_FLAG_CLEAR;
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan, NULL), GDN_OK);

    assert_int_equal(gdn_launch(NULL, &args), GDN_E_ARG);
    assert_int_equal(gdn_launch(plan, NULL), GDN_E_ARG);
    assert_contains(lines.text, "host: gdn_launch: args is NULL");
    args.struct_size = 16;
    assert_int_equal(gdn_launch(plan, &args), GDN_E_ABI);
    assert_contains(lines.text, "host: gdn_launch: args.struct_size is too small");
    assert_int_equal(gdn_explain(NULL, 0, NULL, &route), GDN_E_ARG);
    assert_int_equal(gdn_explain(plan, 0, NULL, NULL), GDN_E_ARG);
    assert_int_equal(gdn_explain(plan, 1, NULL, &route), GDN_E_ARG);
    route.struct_size = 8;
    assert_int_equal(gdn_explain(plan, 0, NULL, &route), GDN_E_ABI);
    assert_int_equal(gdn_route_for(g, 0, &shape.base, 0, NULL, &route, reason_of(&r)), GDN_E_ABI);
    route.struct_size = GDN_THROUGH(gdn_route, entry); /* the guard belongs to the least that is asked for */
    assert_int_equal(gdn_explain(plan, 0, NULL, &route), GDN_E_ABI);
    assert_int_equal(gdn_route_for(g, 0, &shape.base, 0, NULL, &route, reason_of(&r)), GDN_E_ABI);
    route.struct_size = (uint32_t)sizeof route;
    assert_int_equal(gdn_route_for(NULL, 0, &shape.base, 0, NULL, &route, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_route_for(g, 0, NULL, 0, NULL, &route, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_route_for(g, 0, &shape.base, 2, NULL, &route, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_counters(NULL, NULL, 0, &n), GDN_E_ARG);
    assert_int_equal(gdn_counters(g, NULL, 0, NULL), GDN_E_ARG);
    assert_int_equal(gdn_counters(g, NULL, 1, &n), GDN_E_ARG);
    assert_int_equal(gdn_counters(g, NULL, 0, &n), GDN_OK);
    assert_int_equal(n, 1);
    assert_int_equal(gdn_describe(NULL, &info), GDN_E_ARG);
    assert_int_equal(gdn_describe(g, NULL), GDN_E_ARG);
    info.struct_size = 8;
    assert_int_equal(gdn_describe(g, &info), GDN_E_ABI);
    info.struct_size = GDN_THROUGH(gdn_info, target);
    info.path = "untouched";
    assert_int_equal(gdn_describe(g, &info), GDN_OK);
    assert_string_equal(info.path, "untouched");
    gdn_plan_free(NULL);
    gdn_close(NULL);

    assert_int_equal(gdn_mem_alloc(NULL, 1, &ptr), GDN_E_ARG);
    assert_int_equal(gdn_mem_alloc(g, 1, NULL), GDN_E_ARG);
    assert_int_equal(gdn_mem_alloc(g, UINT64_MAX, &ptr), GDN_E_NOMEM);
    assert_int_equal(gdn_mem_alloc(g, 4, &ptr), GDN_OK);
    uint32_t word = 0;
    assert_int_equal(gdn_fill(g, NULL, ptr, 0xff, 4), GDN_OK);
    assert_int_equal(gdn_copy_out(g, NULL, &word, ptr, 4), GDN_OK);
    assert_int_equal(word, UINT32_MAX);
    assert_int_equal(gdn_copy_in(g, NULL, ptr, NULL, 4), GDN_E_ARG);
    assert_int_equal(gdn_copy_in(NULL, NULL, ptr, &word, 4), GDN_E_ARG);
    assert_int_equal(gdn_copy_out(g, NULL, NULL, ptr, 4), GDN_E_ARG);
    assert_int_equal(gdn_fill(g, NULL, ptr, 256, 4), GDN_E_ARG);
    assert_int_equal(gdn_fill(g, NULL, 0, 0, 4), GDN_E_ARG);
    assert_int_equal(gdn_sync(NULL, NULL), GDN_E_ARG);
    assert_int_equal(gdn_sync(g, NULL), GDN_OK);
    gdn_mem_free(g, ptr);
    gdn_mem_free(g, 0);
    gdn_mem_free(NULL, 0);
    gdn_plan_free(plan);
    gdn_close(g);
    assert_int_equal(gdn_targets(NULL, NULL, NULL, reason_of(&r)), GDN_E_ARG);
    assert_int_equal(gdn_levers_read(NULL, "cpu", NULL, reason_of(&r)), GDN_E_ARG);
}

/* What the plugin itself counted: contexts and plans end once each, and not before the last plan. */
static void test_balance(void **state) {
    (void)state;
    gdn_options opt = options("good", FIXTURES);
    gdn *g = NULL;
    gdn_hplan *plan[2];
    uint32_t seen = 0;
    const uint64_t ptr = (uint64_t)(uintptr_t)&seen;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);
    /* inits, finis, plans, destroys, launches, sizes of host and arguments; the fixture stays mapped */
    const uint32_t *count = g->gen->plugin.ops.extension("test.counts/1");
    assert_non_null(count);
    const uint32_t inits = count[0], finis = count[1], plans = count[2], destroys = count[3], launches = count[4];
    for (int i = 0; i < 2; i++) assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan[i], NULL), GDN_OK);
    gdn_close(g);
    assert_int_equal(count[1], finis);
    assert_int_equal(gdn_launch(plan[0], &args), GDN_OK);
    gdn_plan_free(plan[0]);
    assert_int_equal(count[1], finis);
    gdn_plan_free(plan[1]);
    assert_int_equal(count[0], inits);
    assert_int_equal(count[1], finis + 1);
    assert_int_equal(count[2], plans + 2);
    assert_int_equal(count[3], destroys + 2);
    assert_int_equal(count[4], launches + 1);
    assert_int_equal(count[5], sizeof(gdn_host));
    assert_int_equal(count[6], sizeof(gdn_launch_args));
}

typedef struct seen {
    int rows, usable;
    char names[2048], reasons[16384];
} seen;
static void note(void *user, const gdn_target_info *info) {
    seen *s = user;
    s->rows++;
    s->usable += info->status == GDN_OK;
    (void)snprintf(s->names + strlen(s->names), sizeof s->names - strlen(s->names), "%s ", info->target);
    if (info->reason)
        (void)snprintf(s->reasons + strlen(s->reasons), sizeof s->reasons - strlen(s->reasons), "%s: %s\n", info->target, info->reason);
}

static void test_targets(void **state) {
    (void)state;
    reason r;
    gdn_options opt = options(NULL, FIXTURES);
    seen s = { 0 };
    assert_int_equal(gdn_targets(&opt, note, &s, reason_of(&r)), GDN_OK);
    assert_int_equal(strncmp(s.names, "hopper gb10 cpu bad_magic bad_name frozen01 frozen02 frozen03 frozen04 good gpu ", 80), 0);
    assert_int_equal(s.usable, 9); /* frozen01 to frozen04, good, init_fails (not begun), newer, older, unloadable */
    assert_contains(s.reasons, "major1: target 'major1' could not be opened; tried " FIXTURES
                               "/libgdn_major1.so (plugin_path): plugin ABI 1.4, host 0.4");
    assert_contains(s.reasons, "gpu: target 'gpu' needs a GPU (sm_90a)");
    assert_contains(s.reasons,
                    "hopper: target 'hopper' could not be opened; tried " FIXTURES "/libgdn_hopper.so (plugin_path): no such file");
    assert_int_equal(lines.lines, 0);
    opt.target = FIXTURES "/libgdn_major1.so";
    opt.plugin_path = "/nonexistent";
    s = (seen) { 0 };
    assert_int_equal(gdn_targets(&opt, note, &s, reason_of(&r)), GDN_OK);
    assert_int_equal(s.rows, 4);
    assert_contains(s.reasons, "libgdn_major1.so: plugin ABI 1.4, host 0.4");
    opt.target = "elsewhere";
    s = (seen) { 0 };
    assert_int_equal(gdn_targets(&opt, note, &s, reason_of(&r)), GDN_OK);
    assert_string_equal(s.names, "hopper gb10 cpu elsewhere ");
}

/* usable is what gdn_open would say: a setting, a file or a variable that it refuses is the reason here. */
static void test_targets_settings(void **state) {
    (void)state;
    static const gdn_setting good = { "gdn_pipe", "1" }, unknown = { "foo", "1" }, value = { "w4a4_mx_nt", "3" };
    static const struct {
        const gdn_setting *set;
        const char *conf, *reason;
    } rows[] = { { &good, NULL, NULL },
                 { &unknown, NULL, "good: api: foo: unknown key" },
                 { &value, NULL, "good: api: w4a4_mx_nt = 3: expected 1 or 4" },
                 { &good, "/nonexistent/x.ini", "good: conf=/nonexistent/x.ini: no such file" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gdn_options opt = options("good", FIXTURES);
        seen s = { 0 };
        reason r;
        gdn *g = NULL;
        opt.settings = rows[i].set;
        opt.n_settings = 1;
        opt.conf = rows[i].conf;
        assert_int_equal(gdn_targets(&opt, note, &s, reason_of(&r)), GDN_OK);
        assert_true((gdn_open(&opt, &g, NULL) == GDN_OK) == !rows[i].reason);
        gdn_close(g);
        if (rows[i].reason) assert_contains(s.reasons, rows[i].reason);
        assert_int_equal(s.usable, rows[i].reason ? 0 : 9);
        assert_contains(s.reasons, "major1: target 'major1' could not be opened"); /* what does not load keeps its reason */
    }
}

/* gdn.h: its example calls only what it declares, and every function has a thread tag, beside it or in the comment above. */
static void test_header(void **state) {
    (void)state;
    static char text[65536];
    FILE *f = fopen(GDN_SOURCE_DIR "/host/gdn.h", "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    assert_int_equal(fclose(f), 0);
    char *body = strstr(text, "#ifndef GDN_H");
    assert_non_null(body);
    int called = 0, tagged = 0;
    for (const char *p = text; (p = strstr(p, "gdn_")) && p < body; p++) {
        const size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
        char name[64], declared[80];
        if (p[n] != '(' || n >= sizeof name || p[n + 1] == ')') continue; /* "gdn_open()" is prose */
        (void)snprintf(declared, sizeof declared, " %.*s(", (int)n, p);
        const char *d = body;
        while ((d = strstr(d, declared)) && strncmp(d - strlen("gdn_status"), "gdn_status", 10) != 0 && strncmp(d - 4, "void", 4) != 0) d++;
        if (!d) fail_msg("the example of gdn.h calls%swhich gdn.h does not declare", declared);
        called++;
    }
    assert_true(called >= 5);
    bool above = false;
    for (char *line = strtok(body, "\n"); line; line = strtok(NULL, "\n")) {
        const bool tag = strstr(line, "[any]") || strstr(line, "[ctx]");
        if (!strncmp(line, "GDN_API ", 8)) {
            if (!tag && !above) fail_msg("no thread tag: %s", line);
            tagged++;
            above = false; /* a comment speaks of the next one alone */
        } else if (!strncmp(line, "/* ", 3)) {
            above = tag;
        }
    }
    assert_true(tagged >= 20);
}

/* Open, plan, close with the n-th allocation failing: NOMEM or a place less, *out NULL, nothing left mapped. */
static void test_no_memory(void **state) {
    (void)state;
    int failures = 0;
    const gdn_setting one = { "gdn_pipe", "1" };
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    for (int32_t n = 0;; n++, failures++) {
        gdn_options opt = options("unloadable", FIXTURES);
        gdn *g = NULL;
        gdn_hplan *plan = NULL;
        reason r;
        opt.settings = &one;
        opt.n_settings = 1;
        atomic_store(&gdn__alloc_fail_in, n);
        gdn_status st = gdn_open(&opt, &g, reason_of(&r));
        if (st == GDN_OK) st = gdn_plan_make(g, &shape.base, NULL, &plan, reason_of(&r));
        const bool reached = atomic_exchange(&gdn__alloc_fail_in, -1) < 0;
        if (!reached) assert_int_equal(st, GDN_OK);
        if (st != GDN_OK) {
            assert_int_equal(st, GDN_E_NOMEM);
            assert_contains(r.buf, gdn_status_text(GDN_E_NOMEM));
            assert_null(plan);
        }
        gdn_plan_free(plan);
        gdn_close(g);
        assert_false(is_mapped("/libgdn_unloadable.so"));
        if (!reached) break;
    }
    assert_true(failures > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_options),      cmocka_unit_test(test_older_caller),  cmocka_unit_test(test_newer_caller),
        cmocka_unit_test(test_settings_arrive),  cmocka_unit_test(test_auto),          cmocka_unit_test(test_balance),
        cmocka_unit_test(test_targets),          cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_targets_settings), cmocka_unit_test(test_header),
    };
    return cmocka_run_group_tests_name("open", tests, NULL, NULL) != 0;
}
