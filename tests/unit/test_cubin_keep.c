/* test_cubin_keep.c - what was compiled and cannot be kept: no folder (B166), no lock, a folder that takes nothing or only can be read.
 * What is told of it, and how often. */
#include "jit_test.h"

/* B166, B168: no usable folder: works, keeps in memory, warns once. */
static void test_memory_only(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a");
    char before[96];
    (void)strcpy(before, cache_var);
    (void)snprintf(cache_var, sizeof cache_var, "GDN_CACHE_DIR=%s/no/such", folder);
    jit_env j;
    gdn__cubin c;
    gdn_status st;
    start(&j, FAKE_NVRTC13, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gdn__jit_get(&j.jit, 1, &a, NULL, NULL, &c, &st, NULL), GDN_OK);
        gdn__cubin_free(&c);
    }
    assert_int_equal(compiles(), 2);
    assert_int_equal(h.warnings, 1);
    assert_contains(h.text, "/no/such");
    assert_contains(h.text, "GDN_CACHE_DIR");
    stop(&j);
    (void)strcpy(cache_var, before);
}

/* A lock file that cannot be made: compiled, not kept, said once. (A folder in its place is what root cannot write either.) */
static void test_no_lock(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a");
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    tree t = count_tree(root);
    char path[512], key[40];
    const char *slash = strrchr(t.last, '/');
    (void)snprintf(key, sizeof key, "%.32s", slash + 1);
    (void)snprintf(path, sizeof path, "%.*s/.%.32s.lock", (int)(slash - t.last), t.last, key);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(unlink(t.last), 0);
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    assert_contains(h.text, "gates.cu: compiled and not kept: ");
    assert_int_equal(h.warnings, 1);
    assert_int_equal(count_tree(root).entries, 0);
}

/* Nothing can be written: one warning for the folder and the reason, info lines for the other modules, and what was compiled
 * serves this process. (A file where a folder is wanted stops root as well.) */
static void test_told_once(void **state) {
    (void)state;
    enum { N = 3 };
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a");
    gdn_compile_job jobs[N] = { a, a, a };
    gdn__cubin c[N];
    gdn_status st[N];
    jit_env j;
    char id[96], blocked[128];
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    tree t = count_tree(root);
    (void)snprintf(id, sizeof id, "%.*s", (int)(strrchr(t.last, '/') - t.last - 3), t.last);
    remove_tree(id);
    write_file(id, "in the way", strlen("in the way"));
    for (int i = 0; i < N; i++) jobs[i].name = i == 0 ? "a.cu" : i == 1 ? "b.cu" : "c.cu";
    start(&j, FAKE_NVRTC13, NULL);
    const int before = compiles();
    for (int round = 0; round < 2; round++) {
        assert_int_equal(gdn__jit_get(&j.jit, N, jobs, NULL, NULL, c, st, NULL), GDN_OK);
        for (int i = 0; i < N; i++) gdn__cubin_free(&c[i]);
    }
    stop(&j);
    assert_int_equal(compiles() - before, 1 + N);
    assert_int_equal(h.warnings, 1);
    assert_int_equal(times(h.text, "compiled and not kept: "), N);
    assert_int_equal(times(h.text, "told once"), 1);
    (void)snprintf(blocked, sizeof blocked, "%s/", id);
    assert_contains(h.text, blocked);
}

/* A cache that can be read only: while it has everything there is nothing to warn of. (Root writes anywhere, so the flag that the
 * opening finds on a read-only file system is set here.) */
static void test_read_only(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a"), b = job_for("conv.cu", "c()", "sm_90a");
    gdn__cubin c;
    gdn_status st;
    jit_env j;
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    start(&j, FAKE_NVRTC13, NULL);
    gdn__cache_open(&j.jit.cache, &j.env, &j.jit.log, NULL);
    j.jit.cache_open = true;
    j.jit.cache.writable = false;
    j.jit.cache.why = gdn__copy("v1: Read-only file system");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gdn__jit_get(&j.jit, 1, &a, NULL, NULL, &c, &st, NULL), GDN_OK);
        gdn__cubin_free(&c);
        assert_int_equal(h.warnings, 0);
    }
    for (int i = 0; i < 2; i++) { /* this one is not there */
        assert_int_equal(gdn__jit_get(&j.jit, 1, i ? &a : &b, NULL, NULL, &c, &st, NULL), GDN_OK);
        gdn__cubin_free(&c);
        assert_int_equal(h.warnings, 1);
    }
    assert_contains(h.text, "compiled kernels are kept in memory only: v1: Read-only file system");
    stop(&j);
    assert_int_equal(count_tree(root).entries, 1);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { TEST(test_memory_only), TEST(test_no_lock), TEST(test_told_once), TEST(test_read_only) };
    return cmocka_run_group_tests_name("test_cubin_keep", tests, NULL, NULL) != 0;
}
