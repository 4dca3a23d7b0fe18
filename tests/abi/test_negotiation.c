/* test_negotiation.c - real plugin files through gdn_open: which load, which are refused, and with what reason (B135 to B147). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gdn.h"
#include <stdio.h>
#include <string.h>

#define FIXTURES GDN_BINARY_DIR "/tests/abi/fixtures"

static char log_text[16384];
static void hear(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    const size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "[%u] %s: %s\n", (unsigned)severity, area, msg);
}

static gdn_status open_fixture(const char *name, gdn **g, char *why, size_t size) {
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn_text err = { why, size, 0 };
    opt.target = name;
    opt.plugin_path = FIXTURES;
    opt.log = hear;
    log_text[0] = '\0';
    *g = (gdn *)1;
    return gdn_open(&opt, g, &err);
}

/* Plan, launch and see the effect; counts the fixture's own view. */
static void use(gdn *g) {
    char why[256];
    gdn_text err = { why, sizeof why, 0 };
    gdn_hplan *plan = NULL;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    uint32_t seen = 0;
    const uint64_t ptr = (uint64_t)(uintptr_t)&seen;
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan, &err), GDN_OK);
    assert_int_equal(gdn_launch(plan, &args), GDN_OK);
    assert_int_equal(seen, 7);
    assert_int_equal(gdn_explain(plan, 0, NULL, &route), GDN_OK);
    assert_string_equal(route.entry, "fixture");
    gdn_plan_free(plan);
}

static int is_mapped(const char *part) {
    char line[4096];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found |= strstr(line, part) != NULL;
    assert_int_equal(fclose(f), 0);
    return found;
}

static void test_accepted(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t minor;
        int offers_route;
    } rows[] = { { "good", GDN_ABI_MINOR, 1 }, { "older", 0, 0 },    { "newer", 7, 1 },    { "frozen01", 1, 1 },
                 { "frozen02", 2, 1 },         { "frozen03", 3, 1 }, { "frozen04", 4, 1 }, { "unloadable", GDN_ABI_MINOR, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[4096] = "";
        gdn *g = NULL;
        gdn_info info = { .struct_size = (uint32_t)sizeof info };
        gdn_route route = { .struct_size = (uint32_t)sizeof route };
        gdn_text err = { why, sizeof why, 0 };
        uint32_t n = 0;
        const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
        if (open_fixture(rows[i].name, &g, why, sizeof why) != GDN_OK) fail_msg("%s: %s", rows[i].name, why);
        assert_int_equal(gdn_describe(g, &info), GDN_OK);
        assert_string_equal(info.target, rows[i].name);
        assert_int_equal(info.abi_major, GDN_ABI_MAJOR);
        assert_int_equal(info.abi_minor, rows[i].minor);
        assert_int_equal(info.generation, 1);
        assert_string_equal(info.path, (snprintf(why, sizeof why, "%s/libgdn_%s.so", FIXTURES, rows[i].name), why));
        use(g);
        /* An entry that the older table ends before is not offered; it is not called, and nothing crashes. */
        const gdn_status st = gdn_route_for(g, 0, &shape.base, 0, NULL, &route, &err);
        assert_int_equal(st, rows[i].offers_route ? GDN_OK : GDN_ABSENT);
        if (!rows[i].offers_route) assert_non_null(strstr(why, "does not offer 'route'"));
        assert_int_equal(gdn_counters(g, NULL, 0, &n), rows[i].offers_route ? GDN_OK : GDN_ABSENT);
        gdn_close(g);
        /* One line: real path, build, both versions. */
        assert_non_null(strstr(log_text, "build fixture, ABI 0."));
        assert_non_null(strstr(log_text, FIXTURES));
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        gdn_status status;
        const char *reason;
    } rows[] = {
        { "major1", GDN_E_ABI, "plugin ABI 1.4, host 0.4" },
        { "bad_magic", GDN_E_ABI, "bad magic 0x00000007" },
        { "null_entry", GDN_E_ABI, "mandatory entry 'launch' is missing (table of 88 bytes)" },
        { "short_table", GDN_E_ABI, "mandatory entry 'launch' is missing (table of 40 bytes)" },
        { "older_id", GDN_E_ABI, "its identity has 64 bytes, at least 72 are needed" },
        { "no_table", GDN_E_ABI, "it has no table" },
        { "wrong_name", GDN_E_ABI, "a file for 'wrong_name' that says it is 'other'" },
        { "bad_name", GDN_E_ABI, "its target name is not one ([a-z0-9_], 1 to 32)" },
        { "no_symbol", GDN_E_LOAD, "no gdn_plugin_query: not a plugin" },
        { "null_answer", GDN_E_ABI, "it has no table for ABI 0.4" },
        { "other_sanitizer", GDN_E_ABI, "built with sanitizer '" },
        { "needs_foo", GDN_E_LOAD, "libfoo.so" },
        { "gpu", GDN_E_NODRIVER, "target 'gpu' needs a GPU (sm_90a): no CUDA driver: libcuda.so.1" },
        { "init_fails", GDN_E_DRIVER, "target 'init_fails': init failed: a driver call failed" },
        { "nowhere", GDN_E_NOTARGET, "no such file" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[4096] = "", file[64];
        gdn *g = NULL;
        const gdn_status st = open_fixture(rows[i].name, &g, why, sizeof why);
        if (st != rows[i].status)
            fail_msg("%s: %s (%s), expected %s", rows[i].name, gdn_status_name(st), why, gdn_status_name(rows[i].status));
        if (!strstr(why, rows[i].reason)) fail_msg("%s: '%s' is not in: %s", rows[i].name, rows[i].reason, why);
        assert_null(g);
        /* What was refused does not stay loaded. */
        (void)snprintf(file, sizeof file, "/libgdn_%s.so", rows[i].name);
        if (is_mapped(file)) fail_msg("%s is still mapped", file);
    }
}

/* B138: a hundred times, and nothing is left. */
static void test_no_handle_growth(void **state) {
    (void)state;
    char why[4096];
    gdn *g;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(open_fixture("no_symbol", &g, why, sizeof why), GDN_E_LOAD);
        assert_int_equal(open_fixture("init_fails", &g, why, sizeof why), GDN_E_DRIVER);
    }
    assert_false(is_mapped("/libgdn_no_symbol.so"));
    assert_false(is_mapped("/libgdn_init_fails.so"));
}

/* B142: twice open, once closed: still works; then closed: unmapped, because it may be. A plugin that does not allow it stays. */
static void test_unloading(void **state) {
    (void)state;
    char why[4096];
    gdn *a, *b;
    assert_int_equal(open_fixture("unloadable", &a, why, sizeof why), GDN_OK);
    assert_int_equal(open_fixture("unloadable", &b, why, sizeof why), GDN_OK);
    gdn_close(a);
    use(b);
    assert_true(is_mapped("/libgdn_unloadable.so"));
    gdn_close(b);
    assert_false(is_mapped("/libgdn_unloadable.so"));
    assert_int_equal(open_fixture("good", &a, why, sizeof why), GDN_OK);
    gdn_close(a);
    assert_true(is_mapped("/libgdn_good.so"));
}

/* A plan outlives gdn_close; the last plan ends the context. */
static void test_plan_outlives_close(void **state) {
    (void)state;
    char why[4096];
    gdn *g;
    gdn_text err = { why, sizeof why, 0 };
    gdn_hplan *plan[2];
    uint32_t seen = 0;
    const uint64_t ptr = (uint64_t)(uintptr_t)&seen;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    assert_int_equal(open_fixture("unloadable", &g, why, sizeof why), GDN_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(gdn_plan_make(g, &shape.base, NULL, &plan[i], &err), GDN_OK);
    gdn_close(g);
    gdn_plan_free(plan[0]);
    assert_int_equal(gdn_launch(plan[1], &args), GDN_OK);
    assert_int_equal(seen, 7);
    assert_true(is_mapped("/libgdn_unloadable.so"));
    gdn_plan_free(plan[1]);
    assert_false(is_mapped("/libgdn_unloadable.so"));
}

/* B136, B147: errors with nobody listening and nowhere to write. */
static void test_nobody_listens(void **state) {
    (void)state;
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn *g;
    static const char *const names[] = { "major1", "no_symbol", "init_fails", "nowhere", "Not A Name" };
    opt.plugin_path = FIXTURES;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        opt.target = names[i];
        assert_true(gdn_open(&opt, &g, NULL) < 0);
        assert_null(g);
    }
    opt.target = "good";
    assert_int_equal(gdn_open(&opt, &g, NULL), GDN_OK);
    use(g);
    gdn_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_handle_growth),
        cmocka_unit_test(test_unloading),
        cmocka_unit_test(test_plan_outlives_close),
        cmocka_unit_test(test_nobody_listens),
    };
    return cmocka_run_group_tests_name("negotiation", tests, NULL, NULL) != 0;
}
