/* test_process.c - what happens once a process: the environment at the first open, first use from many threads, exit with and
 * without closing. Each case is a child of its own. */
#include "host_test.h"

#include <pthread.h>

/* Children answer 0, or the line that went wrong. */
#define CHECK(x) \
    if (!(x)) return (int)(__LINE__ & 0x7f) + 1
static heard lines;
static gdn *shared;

static int use(gdn *g) {
    gdn_hplan *plan = NULL;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    uint32_t seen = 0;
    const uint64_t ptr = (uint64_t)(uintptr_t)&seen;
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    CHECK(gdn_plan_make(g, &shape.base, NULL, &plan, NULL) == GDN_OK);
    CHECK(gdn_launch(plan, &args) == GDN_OK);
    gdn_plan_free(plan);
    CHECK(seen == 7);
    return 0;
}

static int opened_as(const char *target, gdn_options *opt) {
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    CHECK(gdn_open(opt, &shared, NULL) == GDN_OK);
    CHECK(gdn_describe(shared, &info) == GDN_OK && !strcmp(info.target, target));
    gdn_close(shared);
    shared = NULL;
    return 0;
}

static int target_by_name(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    CHECK(!setenv("GDN_TARGET", "good", 1) && !setenv("GDN_PLUGIN_PATH", FIXTURES, 1));
    CHECK(opened_as("good", &opt) == 0);
    opt.target = "newer"; /* the program's word is stronger */
    return opened_as("newer", &opt);
}

static int target_by_path(void) {
    CHECK(!setenv("GDN_TARGET", FIXTURES "/libgdn_older.so", 1));
    return opened_as("older", NULL); /* no options at all */
}

static int bad_target(void) {
    reason r;
    CHECK(!setenv("GDN_TARGET", "Not/", 1));
    CHECK(gdn_open(NULL, &shared, reason_of(&r)) == GDN_E_NOTARGET && !shared);
    CHECK(!strcmp(r.buf, "plugin Not/: no such file (asked for by GDN_TARGET)"));
    return 0;
}

static int added_path(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = "good";
    CHECK(!unsetenv("GDN_PLUGIN_PATH") && !setenv("GDN_ADD_PLUGIN_PATH", FIXTURES, 1));
    return opened_as("good", &opt);
}

/* Later changes of the environment have no effect. */
static int read_once(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    CHECK(!setenv("GDN_TARGET", "good", 1) && !setenv("GDN_PLUGIN_PATH", FIXTURES, 1));
    CHECK(opened_as("good", &opt) == 0);
    CHECK(!setenv("GDN_TARGET", "nowhere", 1) && !setenv("GDN_PLUGIN_PATH", "/nonexistent", 1));
    CHECK(!setenv("METRALE_W4A4_MX_NT", "bad", 1));
    return opened_as("good", &opt);
}

static int bad_lever(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    reason r;
    opt.target = "unloadable";
    opt.plugin_path = FIXTURES;
    CHECK(!setenv("METRALE_W4A4_MX_NT", "3", 1));
    CHECK(gdn_open(&opt, &shared, reason_of(&r)) == GDN_E_LEVER && !shared);
    CHECK(!strcmp(r.buf, "METRALE_W4A4_MX_NT=3: expected 1 or 4"));
    opt.target = "good"; /* which may not be unloaded once it began; it did not begin */
    CHECK(gdn_open(&opt, &shared, reason_of(&r)) == GDN_E_LEVER && !shared);
    CHECK(!is_mapped("/libgdn_unloadable.so") && !is_mapped("/libgdn_good.so")); /* nothing is half loaded */
    return 0;
}

static int log_level(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = "good";
    opt.plugin_path = FIXTURES;
    opt.log = hear;
    opt.log_user = &lines;
    CHECK(!setenv("GDN_LOG", "error", 1) && !setenv("GDN_PLUGIN_PAHT", "x", 1));
    CHECK(opened_as("good", &opt) == 0);
    CHECK(lines.lines == 0);
    opt.log_level = GDN_LOG_INFO; /* the program's word is stronger */
    CHECK(opened_as("good", &opt) == 0);
    CHECK(strstr(lines.text, "target good: "));
    return 0;
}

static int warned_once(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = "good";
    opt.plugin_path = FIXTURES;
    opt.log = hear;
    opt.log_user = &lines;
    CHECK(!setenv("GDN_LOG", "loud", 1) && !setenv("GDN_PLUGIN_PAHT", "x", 1));
    for (int i = 0; i < 3; i++) CHECK(opened_as("good", &opt) == 0);
    CHECK(times(lines.text, "GDN_LOG=loud: expected error, warn, info or debug") == 1);
    CHECK(times(lines.text, "GDN_PLUGIN_PAHT is set but nothing reads it") == 1);
    CHECK(lines.warnings == 2);
    return 0;
}

static int kept_loaded(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.plugin_path = FIXTURES;
    opt.target = "unloadable";
    CHECK(!setenv("GDN_KEEP_LOADED", "", 1));
    CHECK(opened_as("unloadable", &opt) == 0);
    CHECK(is_mapped("/libgdn_unloadable.so"));
    return 0;
}

/* B189: many threads make the first call of the process together. */
enum { THREADS = 32 };
static pthread_barrier_t barrier;
static void *first_call(void *user) {
    int *result = user;
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn *g = NULL;
    opt.plugin_path = FIXTURES;
    opt.target = "unloadable";
    (void)pthread_barrier_wait(&barrier);
    *result = gdn_open(&opt, &g, NULL) == GDN_OK ? use(g) : 1;
    gdn_close(g);
    return NULL;
}
static int first_use(void) {
    pthread_t thread[THREADS];
    int result[THREADS];
    CHECK(!pthread_barrier_init(&barrier, NULL, THREADS));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&thread[i], NULL, first_call, &result[i]));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(thread[i], NULL));
    for (int i = 0; i < THREADS; i++) CHECK(!result[i]);
    CHECK(!is_mapped("/libgdn_unloadable.so"));
    return 0;
}

/* One plan, launched from many threads, each with its own flag. */
static gdn_hplan *one_plan;
static void *launch_many(void *user) {
    int *result = user;
    uint32_t seen = 0;
    const uint64_t ptr = (uint64_t)(uintptr_t)&seen;
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    (void)pthread_barrier_wait(&barrier);
    *result = 0;
    for (int i = 0; i < 1000; i++) {
        seen = 0;
        *result |= gdn_launch(one_plan, &args) != GDN_OK || seen != 7;
    }
    return NULL;
}
static int shared_plan(void) {
    pthread_t thread[8];
    int result[8];
    gdn_options opt = GDN_OPTIONS_INIT;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    opt.target = FIXTURES "/libgdn_frozen01.so";
    CHECK(gdn_open(&opt, &shared, NULL) == GDN_OK && gdn_plan_make(shared, &shape.base, NULL, &one_plan, NULL) == GDN_OK);
    CHECK(!pthread_barrier_init(&barrier, NULL, 8));
    for (int i = 0; i < 8; i++) CHECK(!pthread_create(&thread[i], NULL, launch_many, &result[i]));
    for (int i = 0; i < 8; i++) CHECK(!pthread_join(thread[i], NULL));
    for (int i = 0; i < 8; i++) CHECK(!result[i]);
    gdn_plan_free(one_plan);
    gdn_close(shared);
    return 0;
}

/* B140: the end of a process that closed everything, and of one that closed nothing. */
static int exit_after_unload(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.plugin_path = FIXTURES;
    opt.target = "unloadable";
    CHECK(opened_as("unloadable", &opt) == 0);
    CHECK(gdn_open(&opt, &shared, NULL) == GDN_OK);
    CHECK(use(shared) == 0);
    gdn_close(shared);
    exit(0); /* with atexit and destructors, unlike the other children */
}
static int exit_while_open(void) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = GDN_PLUGIN_DIR "/libgdn_cpu.so";
    CHECK(gdn_open(&opt, &shared, NULL) == GDN_OK);
    exit(0);
}

static void test_environment(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int (*run)(void);
    } rows[] = { { "target by name", target_by_name }, { "target by path", target_by_path }, { "bad target", bad_target },
                 { "added path", added_path },         { "read once", read_once },           { "bad lever", bad_lever },
                 { "log level", log_level },           { "warned once", warned_once },       { "kept loaded", kept_loaded } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int got = in_child(rows[i].run);
        if (got) fail_msg("%s: %d", rows[i].name, got);
    }
}

static void test_threads(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) assert_int_equal(in_child(first_use), 0);
    assert_int_equal(in_child(shared_plan), 0);
}

static void test_exit(void **state) {
    (void)state;
    assert_int_equal(in_child(exit_after_unload), 0);
    assert_int_equal(in_child(exit_while_open), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_environment), cmocka_unit_test(test_threads), cmocka_unit_test(test_exit) };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL) != 0;
}
