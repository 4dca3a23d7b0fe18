/* test_purity.c - gdn_plugin_query is pure: before any host exists, twice, and in a forked child the answer is the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gdn_plugin.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Open files and threads of the process: a query that made one would be seen. */
static int count(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) return -1;
    while (readdir(d)) n++;
    (void)closedir(d);
    return n;
}

static int same(const gdn_plugin *a, const gdn_plugin *b) {
    return a == b && a && a->struct_size >= GDN_THROUGH(gdn_plugin, ops) && a->ops &&
           a->ops->struct_size >= GDN_THROUGH(gdn_vtable, explain);
}

static void check(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    gdn_plugin_query_fn query;
    void *symbol = dlsym(handle, "gdn_plugin_query");
    assert_non_null(symbol);
    memcpy(&query, &symbol, sizeof query);
    const int files = count("/proc/self/fd"), threads = count("/proc/self/task");
    const gdn_plugin *first = query(GDN_ABI_MAJOR, GDN_ABI_MINOR);
    assert_true(same(first, query(GDN_ABI_MAJOR, GDN_ABI_MINOR)));
    assert_true(same(first, query(GDN_ABI_MAJOR, GDN_ABI_MINOR + 9)));
    assert_int_equal(count("/proc/self/fd"), files);
    assert_int_equal(count("/proc/self/task"), threads);
    gdn_plugin copy = *first;
    int status = -1;
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(query(GDN_ABI_MAJOR, GDN_ABI_MINOR) == first && !memcmp(first, &copy, sizeof copy) ? 0 : 1);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(memcmp(first, &copy, sizeof copy), 0);
    /* Not closed: a plugin says itself whether it may be. */
}

static void test_fixture(void **state) {
    (void)state;
    check(GDN_BINARY_DIR "/tests/abi/fixtures/libgdn_good.so");
}

static void test_cpu(void **state) {
    (void)state;
    check(GDN_PLUGIN_DIR "/libgdn_cpu.so");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fixture), cmocka_unit_test(test_cpu) };
    return cmocka_run_group_tests_name("purity", tests, NULL, NULL) != 0;
}
