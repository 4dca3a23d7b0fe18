/* test_compile_ahead.c - gdn_compile_ahead and the public side of the cache, with the real GPU plugins' module lists and the
 * fake NVRTC: what is compiled ahead is what is found without a compiler. */
#include "cuda_test.h"
#include "engine.h"
#include "gdn_cubins.h"
#include "gdn_modules.h"

static char folder[64], out[96];
static heard h;
static fake_nvrtc *nvrtc;

typedef struct seen {
    unsigned rows, good, kept;
    char file[512], reason[1024];
} seen;
static void see(void *user, const gdn_compile_row *r) {
    seen *s = user;
    s->rows++;
    s->good += r->status == GDN_OK;
    s->kept += r->kept != 0;
    if (r->file) (void)snprintf(s->file, sizeof s->file, "%s", r->file);
    if (r->reason) (void)snprintf(s->reason, sizeof s->reason, "%s", r->reason);
}

static gdn_status compile(const char *target, const char *arch, seen *s, reason *r) {
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = target;
    opt.plugin_path = GDN_PLUGIN_DIR;
    opt.log = hear_locked;
    opt.log_user = &h;
    h = (heard) { 0 };
    *s = (seen) { 0 };
    return gdn_compile_ahead(&opt, arch, out, 0, see, s, reason_of(r));
}

static const gdn_modules *modules_of(const char *target) {
    char path[256];
    gdn_plugin_query_fn query;
    (void)snprintf(path, sizeof path, "%s/libgdn_%s.so", GDN_PLUGIN_DIR, target);
    function_of(path, "gdn_plugin_query", &query);
    const gdn_plugin *p = query(GDN_ABI_MAJOR, GDN_ABI_MINOR);
    assert_non_null(p);
    assert_non_null(p->ops->extension);
    return p->ops->extension(GDN_MODULES_ID);
}

/* Every module that a plugin lists for an architecture is found in the folder, NVRTC hidden. */
static void expect_found(const char *target, const char *arch) {
    char shipped[128], cache[128];
    (void)snprintf(shipped, sizeof shipped, "GDN_CUBIN_DIR=%s", out);
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s", folder);
    const char *const vars[] = { shipped, cache, "GDN_NVRTC=/nowhere/libnvrtc.so.13", NULL };
    gdn__env env = env_of(vars);
    const gdn__log log = log_threads(&h);
    gdn__jit j;
    const gdn_modules *m = modules_of(target);
    assert_non_null(m);
    assert_int_equal(gdn__jit_open(&j, &env, &log, NULL), GDN_OK);
    const uint32_t n = m->count(arch);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        gdn_compile_job job = { .struct_size = sizeof job };
        gdn__cubin c;
        gdn_status st;
        assert_int_equal(m->get(arch, i, &job), GDN_OK);
        if (gdn__jit_get(&j, 1, &job, NULL, NULL, &c, &st, NULL) != GDN_OK) fail_msg("%s for %s: %s", job.name, arch, h.text);
        gdn__cubin_free(&c);
    }
    gdn_compile_job past = { .struct_size = sizeof past };
    assert_int_equal(m->get(arch, n, &past), GDN_E_ARG);
    gdn__jit_close(&j);
    gdn__env_drop(&env);
}

static void test_ahead(void **state) {
    (void)state;
    static const char *const targets[] = { "hopper", "gb10" }, *const archs[] = { "sm_90a", "sm_121f" };
    seen s;
    reason r;
    for (int a = 0; a < 2; a++)
        for (int t = 0; t < 2; t++) {
            if (compile(targets[t], archs[a], &s, &r) != GDN_OK) fail_msg("%s", r.buf);
            assert_int_equal(s.rows, modules_of(targets[t])->count(archs[a]));
            assert_int_equal(s.good, s.rows);
            if (t == 1) assert_int_equal(s.kept, s.rows); /* hopper has all of gb10's */
            expect_found(targets[t], archs[a]);
        }
    assert_int_equal(compile("hopper", "sm_90a", &s, &r), GDN_OK);
    assert_int_equal(s.kept, s.rows);
    write_file(s.file, "x", 1); /* a damaged one is made again */
    assert_int_equal(compile("hopper", "sm_90a", &s, &r), GDN_OK);
    assert_int_equal(s.kept, s.rows - 1);
    expect_found("hopper", "sm_90a");
    assert_int_equal(count_tree(out).temps, 0);
}

/* A caller's own module, as the engine's: in the same folder, found without a compiler, kept the second time. */
static void test_jobs(void **state) {
    (void)state;
    char shipped[128];
    (void)snprintf(shipped, sizeof shipped, "GDN_CUBIN_DIR=%s", out);
    const char *const vars[] = { shipped, "GDN_CACHE_DIR=/nowhere/cache", "GDN_NVRTC=/nowhere/libnvrtc.so.13", NULL };
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn_compile_job job[2];
    gdn__cubin c;
    gdn_status st;
    gdn__jit j;
    seen s = { 0 };
    reason r;
    gdn_engine_module("sm_90", &job[0]);
    assert_string_equal(job[0].name, "engine_rows.cu");
    if (gdn_compile_jobs(&opt, "engine", 1, job, out, 0, see, &s, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    assert_true(s.rows == 1 && s.good == 1 && s.kept == 0);
    assert_int_equal(gdn_compile_jobs(&opt, "engine", 1, job, out, 0, see, &s, reason_of(&r)), GDN_OK);
    assert_true(s.rows == 2 && s.kept == 1);
    gdn__env env = env_of(vars);
    const gdn__log log = log_threads(&h);
    assert_int_equal(gdn__jit_open(&j, &env, &log, NULL), GDN_OK);
    if (gdn__jit_get(&j, 1, job, NULL, NULL, &c, &st, NULL) != GDN_OK) fail_msg("%s", h.text);
    gdn__cubin_free(&c);
    gdn__jit_close(&j);
    gdn__env_drop(&env);
    gdn_engine_module("sm_121", &job[1]); /* one architecture a call */
    assert_int_equal(gdn_compile_jobs(&opt, "engine", 2, job, out, 0, see, &s, reason_of(&r)), GDN_E_ARG);
    assert_contains(r.buf, "engine_rows.cu is for sm_121, the first module for sm_90");
    job[0].arch = "compute_90";
    assert_int_equal(gdn_compile_jobs(&opt, "engine", 1, job, out, 0, see, &s, reason_of(&r)), GDN_E_ARCH);
    assert_int_equal(gdn_compile_jobs(&opt, "engine", 0, job, out, 0, see, &s, reason_of(&r)), GDN_E_ARG);
}

/* B207: a folder that has only a neighbouring architecture is no match: compiled at run time, and the log says so. */
static void test_other_arch_only(void **state) {
    (void)state;
    char shipped[128], cache[160];
    (void)snprintf(shipped, sizeof shipped, "GDN_CUBIN_DIR=%s", out);
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s/for121", folder);
    const char *const vars[] = { shipped, cache, "GDN_NVRTC=" FAKE_NVRTC13, NULL };
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn_compile_job job;
    gdn__cubin c;
    gdn_status st;
    gdn__jit j;
    seen s = { 0 };
    reason r;
    gdn_engine_module("sm_121a", &job);
    if (gdn_compile_jobs(&opt, "engine", 1, &job, out, 0, see, &s, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    gdn__env env = env_of(vars);
    const gdn__log log = log_threads(&h);
    h = (heard) { 0 };
    assert_int_equal(gdn__jit_open(&j, &env, &log, NULL), GDN_OK);
    assert_int_equal(gdn__jit_get(&j, 1, &job, NULL, NULL, &c, &st, NULL), GDN_OK);
    gdn__cubin_free(&c);
    assert_null(strstr(h.text, "compile 1/1")); /* the control: its own architecture is found */
    job.arch = "sm_121f";
    assert_int_equal(gdn__jit_get(&j, 1, &job, NULL, NULL, &c, &st, NULL), GDN_OK);
    gdn__cubin_free(&c);
    assert_contains(h.text, "compile 1/1 engine_rows.cu sm_121f");
    gdn__jit_close(&j);
    gdn__env_drop(&env);
}

static void test_refusals(void **state) {
    (void)state;
    seen s;
    reason r;
    assert_int_equal(compile("cpu", "sm_90a", &s, &r), GDN_ABSENT);
    assert_contains(r.buf, "target 'cpu' has no modules");
    assert_int_equal(compile("nosuch", "sm_90a", &s, &r), GDN_E_NOTARGET);
    assert_int_equal(compile("../x", "sm_90a", &s, &r), GDN_E_NOTARGET);
    assert_int_equal(compile("Hopper", "sm_90a", &s, &r), GDN_E_ARG);
    assert_int_equal(compile(NULL, "sm_90a", &s, &r), GDN_E_ARG);
    assert_int_equal(compile("hopper", "compute_90", &s, &r), GDN_E_ARCH);
    assert_contains(r.buf, "PTX is never made");
    assert_int_equal(compile("hopper", "sm_90f", &s, &r), GDN_E_ARCH); /* before anything is compiled */
    assert_contains(r.buf, "there is no sm_90f");
    assert_int_equal(compile("hopper", "sm_130", &s, &r), GDN_E_ARCH);
    assert_contains(r.buf, "sm_130 is wanted; NVRTC 13.0");
    assert_int_equal(s.rows, 0);
    (void)strcat(out, "/no/such");
    assert_int_equal(compile("hopper", "sm_90a", &s, &r), GDN_E_IO);
    assert_contains(r.buf, "/no/such: cannot be made");
    out[strlen(out) - strlen("/no/such")] = '\0';
    gdn_options opt = GDN_OPTIONS_INIT;
    assert_int_equal(gdn_compile_ahead(&opt, NULL, out, 0, NULL, NULL, NULL), GDN_E_ARG);
    assert_int_equal(gdn_compile_ahead(&opt, "sm_90a", "", 0, NULL, NULL, NULL), GDN_E_ARG);
}

/* ---- the cache through gdn_cubins.h; its folder comes from the environment that main set ---- */
typedef struct listed {
    unsigned rows, whole, damaged, aside;
    char reason[512], file[512];
} listed;
static void list_row(void *user, const gdn_cache_row *r) {
    listed *l = user;
    l->rows++;
    l->whole += r->status == GDN_OK && !r->set_aside;
    l->damaged += r->status == GDN_E_IO;
    l->aside += r->set_aside != 0;
    if (r->reason) (void)snprintf(l->reason, sizeof l->reason, "%s", r->reason);
    (void)snprintf(l->file, sizeof l->file, "%s", r->file);
}
static void test_cache(void **state) {
    (void)state;
    static const char *const names[] = { "a.cu", "b.cu", "c.cu" };
    gdn_compile_job jobs[3];
    gdn__cubin c[3];
    gdn_status st[3];
    gdn__jit j;
    listed l = { 0 };
    gdn_cache_sums sums = { .struct_size = sizeof sums };
    char place[256];
    gdn_text where = { place, sizeof place, 0 };
    reason r;
    const gdn__log log = log_threads(&h);
    for (int i = 0; i < 3; i++) jobs[i] = job_for(names[i], "k()", "sm_90a");
    assert_int_equal(gdn__jit_open(&j, gdn__env_shared(), &log, NULL), GDN_OK);
    if (gdn__jit_get(&j, 3, jobs, NULL, NULL, c, st, NULL) != GDN_OK) fail_msg("%s", h.text);
    for (int i = 0; i < 3; i++) gdn__cubin_free(&c[i]);
    gdn__jit_close(&j);
    assert_int_equal(gdn_cache_each(list_row, &l, &sums, &where, reason_of(&r)), GDN_OK);
    assert_int_equal(l.rows, 3);
    assert_int_equal(l.whole, 3);
    assert_int_equal(sums.entries, 3);
    assert_int_equal(sums.writable, 1);
    assert_contains(place, folder);
    write_file(l.file, "damage", 6);
    l = (listed) { 0 };
    assert_int_equal(gdn_cache_each(list_row, &l, &sums, &where, reason_of(&r)), GDN_OK);
    assert_int_equal(l.damaged, 1);
    assert_contains(l.reason, "6 bytes instead of ");
    assert_int_equal(gdn_cache_prune(UINT64_MAX, &sums, &where, reason_of(&r)), GDN_OK);
    assert_int_equal(sums.removed, 1);
    assert_int_equal(sums.entries, 2);
    assert_int_equal(gdn_cache_prune(0, &sums, &where, reason_of(&r)), GDN_OK);
    assert_int_equal(sums.removed, 2);
    assert_int_equal(sums.entries, 0);
    sums.struct_size = 8;
    assert_int_equal(gdn_cache_each(list_row, &l, &sums, &where, reason_of(&r)), GDN_E_ARG);
}

int main(void) {
    nvrtc = fake_compiler(FAKE_NVRTC13);
    (void)make_folder(folder);
    (void)snprintf(out, sizeof out, "%s/out", folder);
    /* Before the environment is read, which is once a process. */
    if (setenv("GDN_NVRTC", FAKE_NVRTC13, 1) || setenv("GDN_CACHE_DIR", folder, 1) || unsetenv("GDN_PLUGIN_PATH")) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ahead), cmocka_unit_test(test_jobs), cmocka_unit_test(test_other_arch_only),
                                        cmocka_unit_test(test_refusals), cmocka_unit_test(test_cache) };
    const int failed = cmocka_run_group_tests_name("test_compile_ahead", tests, NULL, NULL);
    remove_tree(folder);
    return failed != 0;
}
