/* test_loader.c - the search list, target names, what is said about files that are no plugins, and what stays mapped. */
#include "host_test.h"

#include <elf.h>
#include <grp.h>
#include <sys/stat.h>

static gdn_status list(const char *plugin_path, char *const *vars, bool secure, gdn__places *out, reason *r) {
    gdn__env env;
    assert_int_equal(gdn__env_capture(&env, vars, secure), GDN_OK);
    const gdn_status st = gdn__places_list(&env, plugin_path, out, reason_of(r));
    gdn__env_drop(&env);
    return st;
}

static void expect_places(const char *plugin_path, char *const *vars, bool secure, const char *folders, const char *rule) {
    gdn__places p;
    reason r;
    char joined[4096] = "";
    if (list(plugin_path, vars, secure, &p, &r) != GDN_OK) fail_msg("%s", r.buf);
    for (size_t i = 0; i < p.n; i++) {
        if (i) (void)strcat(joined, ":");
        (void)strcat(joined, p.folder[i]);
        if (p.folder[i][0] != '/') fail_msg("%s depends on the working folder", p.folder[i]);
    }
    if (strncmp(joined, folders, strlen(folders)) != 0) fail_msg("'%s' does not begin with '%s'", joined, folders);
    assert_string_equal(p.rule[0], rule);
    gdn__places_free(&p);
}

static void test_search_order(void **state) {
    (void)state;
    char *none[] = { NULL };
    char *replace[] = { "GDN_PLUGIN_PATH=/a:/b", NULL };
    char *front[] = { "GDN_ADD_PLUGIN_PATH=/c", NULL };
    char *both[] = { "GDN_ADD_PLUGIN_PATH=/c", "GDN_PLUGIN_PATH=/a:/b", NULL };
    char *empty[] = { "GDN_PLUGIN_PATH=::/a::/a:", NULL };
    expect_places(NULL, none, false, GDN_INSTALL_PLUGIN_DIR, "install folder");
    expect_places(NULL, replace, false, "/a:/b", "GDN_PLUGIN_PATH");
    expect_places(NULL, front, false, "/c:" GDN_INSTALL_PLUGIN_DIR, "GDN_ADD_PLUGIN_PATH");
    expect_places(NULL, both, false, "/a:/b", "GDN_PLUGIN_PATH");
    expect_places("/x:/y", both, false, "/x:/y", "plugin_path");
    expect_places("", replace, false, "/a:/b", "GDN_PLUGIN_PATH");
    expect_places(NULL, empty, false, "/a", "GDN_PLUGIN_PATH");
    /* An elevated program looks where it was configured, whatever the environment says. */
    expect_places(NULL, both, true, GDN_INSTALL_PLUGIN_DIR, "install folder");

    gdn__places p;
    reason r;
    assert_int_equal(list(NULL, replace, false, &p, &r), GDN_OK);
    assert_int_equal(p.n, 2); /* it replaces: nothing else is searched */
    gdn__places_free(&p);
    char *relative[] = { "GDN_PLUGIN_PATH=/a:lib", NULL }, *dot[] = { "GDN_ADD_PLUGIN_PATH=.", NULL };
    assert_int_equal(list(NULL, relative, false, &p, &r), GDN_E_ARG);
    assert_string_equal(r.buf, "GDN_PLUGIN_PATH: 'lib' is not an absolute folder");
    assert_int_equal(list(NULL, dot, false, &p, &r), GDN_E_ARG);
    assert_string_equal(r.buf, "GDN_ADD_PLUGIN_PATH: '.' is not an absolute folder");
    char many[1024] = "/0";
    for (int i = 1; i < 70; i++) (void)snprintf(many + strlen(many), sizeof many - strlen(many), ":/%d", i);
    assert_int_equal(list(many, none, false, &p, &r), GDN_E_ARG);
    assert_string_equal(r.buf, "plugin_path: more than 64 folders");
    assert_int_equal(p.n, 0);
}

static void test_names(void **state) {
    (void)state;
    static const char *const good[] = { "cpu", "gb10", "a", "_", "0123456789_0123456789_0123456789" };
    static const char *const bad[] = { "", "CPU", "a-b", "a.b", "../cpu", "a b", "cpu\n", "0123456789_0123456789_0123456789_", "\xc3\xa4" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(gdn__target_name_ok(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(gdn__target_name_ok(bad[i]));
}

/* ---- files that are no plugins ---- */
static void refused(const char *path, gdn_status status, const char *part) {
    gdn__plugin p;
    reason r;
    const gdn_status st = gdn__plugin_load(path, NULL, &p, reason_of(&r));
    if (st != status) fail_msg("%s: status %d (%s), expected %d", path, st, r.buf, status);
    assert_contains(r.buf, part);
    assert_null(p.handle);
    assert_null(p.path);
}

static size_t read_fixture(const char *name, char *buf, size_t size) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/libgdn_%s.so", FIXTURES, name);
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    const size_t n = fread(buf, 1, size, f);
    assert_int_equal(fclose(f), 0);
    assert_true(n > 4096 && n < size);
    return n;
}

/* Bytes up to the end of the last loaded segment: what is behind it (debug information) is not needed. */
static size_t segments_end(const char *data) {
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)data;
    size_t end = 0;
    for (uint32_t i = 0; i < h->e_phnum; i++) {
        const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(data + h->e_phoff + (size_t)i * h->e_phentsize);
        if (p->p_type == PT_LOAD && p->p_offset + p->p_filesz > end) end = p->p_offset + p->p_filesz;
    }
    return end;
}

static void test_file_kinds(void **state) {
    (void)state;
    static char data[1 << 20];
    char dir[64], path[128];
    (void)snprintf(path, sizeof path, "%s/libgdn_x.so", make_folder(dir));
    const size_t n = read_fixture("good", data, sizeof data);

    refused(path, GDN_ABSENT, "no such file");
    refused(dir, GDN_E_LOAD, "a directory");
    refused("/dev/null", GDN_E_LOAD, "not a regular file");
    assert_int_equal(symlink("/nonexistent/libgdn_x.so", path), 0);
    refused(path, GDN_E_LOAD, "a dangling link");
    assert_int_equal(unlink(path), 0);
    write_file(path, "", 0);
    refused(path, GDN_E_LOAD, "not a shared object (no ELF header)");
    write_file(path, "#!/bin/sh\necho this is a text file\n", 35);
    refused(path, GDN_E_LOAD, "not a shared object (no ELF header)");

    /* Cut anywhere: said so, and never mapped. The tail behind the last segment may be missing. */
    write_file(path, data, 40);
    refused(path, GDN_E_LOAD, "truncated");
    const size_t end = segments_end(data), cuts[] = { 64, 100, 500, end / 4, end / 2, end - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_file(path, data, cuts[i]);
        refused(path, GDN_E_LOAD, "truncated");
    }
    /* Another machine, another class, a program. */
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)data;
    const Elf64_Ehdr good = *h;
    h->e_machine = EM_SPARCV9;
    write_file(path, data, n);
    refused(path, GDN_E_LOAD, "built for another machine (ELF class 2 machine 43");
    *h = good;
    h->e_ident[EI_CLASS] = ELFCLASS32;
    write_file(path, data, n);
    refused(path, GDN_E_LOAD, "built for another machine (ELF class 1");
    *h = good;
    h->e_type = ET_EXEC;
    write_file(path, data, n);
    refused(path, GDN_E_LOAD, "not a shared object");
    *h = good;
    h->e_phoff = UINT64_MAX - 8;
    write_file(path, data, n);
    refused(path, GDN_E_LOAD, "truncated");
    *h = good;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static char locked[128];
static int try_locked(void) {
    gdn__plugin p;
    reason r;
    if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) return 1;
    if (gdn__plugin_load(locked, NULL, &p, reason_of(&r)) != GDN_E_LOAD) return 2;
    return strcmp(r.buf, "cannot be opened: Permission denied") ? 3 : 0;
}

static void test_no_permission(void **state) {
    (void)state;
    static char data[1 << 20];
    char dir[64];
    (void)snprintf(locked, sizeof locked, "%s/libgdn_x.so", make_folder(dir));
    write_file(locked, data, read_fixture("good", data, sizeof data));
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(chmod(locked, 0), 0);
    assert_int_equal(in_child(try_locked), 0);
    assert_int_equal(unlink(locked), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* B144: the text of the dynamic linker names what is missing. */
static void test_missing_dependency(void **state) {
    (void)state;
    refused(FIXTURES "/libgdn_needs_foo.so", GDN_E_LOAD, "libfoo.so");
}

/* B146: through a link, from another working folder; each place has its own reason, and a later place may still do. */
static void test_places(void **state) {
    (void)state;
    char dir[64], link[128], text[128], where[256], here[512];
    gdn__places places = { 0 };
    gdn__plugin p;
    heard h;
    reason r;
    const gdn__log log = log_to(&h, GDN_LOG_INFO);
    gdn__env env = { 0 };
    assert_non_null(getcwd(here, sizeof here));
    (void)snprintf(link, sizeof link, "%s/libgdn_good.so", make_folder(dir));
    (void)snprintf(where, sizeof where, "/nonexistent:%s:%s", dir, FIXTURES);
    assert_int_equal(gdn__places_list(&env, where, &places, reason_of(&r)), GDN_OK);
    assert_int_equal(chdir("/"), 0);

    assert_int_equal(symlink(FIXTURES "/libgdn_good.so", link), 0);
    assert_int_equal(gdn__plugin_find(&places, "good", &p, &log, reason_of(&r)), GDN_OK);
    assert_string_equal(p.path, FIXTURES "/libgdn_good.so"); /* the real one */
    assert_int_equal(h.lines, 0);                            /* B137: a place without the file is no news */
    gdn__plugin_retire(&p, false);
    assert_int_equal(unlink(link), 0);

    write_file(link, "text", 4); /* there and wrong: a warning, and the next place is taken */
    assert_int_equal(gdn__plugin_find(&places, "good", &p, &log, reason_of(&r)), GDN_OK);
    assert_int_equal(h.warnings, 1);
    assert_contains(h.text, "is not used: not a shared object");
    gdn__plugin_retire(&p, false);
    assert_int_equal(unlink(link), 0);

    (void)snprintf(text, sizeof text, "%s/libgdn_gone.so", dir);
    write_file(text, "text", 4);
    assert_int_equal(gdn__plugin_find(&places, "gone", &p, &log, reason_of(&r)), GDN_E_LOAD);
    assert_contains(r.buf, "target 'gone' could not be opened; tried /nonexistent/libgdn_gone.so (plugin_path): no such file; ");
    assert_contains(r.buf, "/libgdn_gone.so (plugin_path): not a shared object (no ELF header); ");
    assert_int_equal(times(r.buf, "libgdn_gone.so"), 3);
    assert_int_equal(unlink(text), 0);
    assert_int_equal(gdn__plugin_find(&places, "gone", &p, &log, reason_of(&r)), GDN_E_NOTARGET);
    gdn__places_free(&places);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Every allocation failed in turn: nothing loaded, nothing mapped. */
static void test_no_memory(void **state) {
    (void)state;
    int failures = 0;
    for (int32_t n = 0;; n++, failures++) {
        gdn__plugin p;
        reason r;
        atomic_store(&gdn__alloc_fail_in, n);
        const gdn_status st = gdn__plugin_load(FIXTURES "/libgdn_unloadable.so", "unloadable", &p, reason_of(&r));
        if (atomic_exchange(&gdn__alloc_fail_in, -1) >= 0) {
            assert_int_equal(st, GDN_OK);
            assert_true(is_mapped("/libgdn_unloadable.so"));
            p.begun = true;
            gdn__plugin_retire(&p, true); /* GDN_KEEP_LOADED */
            assert_true(is_mapped("/libgdn_unloadable.so"));
            break;
        }
        assert_int_equal(st, GDN_E_NOMEM);
        assert_false(is_mapped("/libgdn_unloadable.so"));
    }
    assert_int_equal(failures, 1);
    failures = 0;
    for (int32_t n = 0;; n++, failures++) {
        gdn__env env = { 0 };
        gdn__places places;
        reason r;
        atomic_store(&gdn__alloc_fail_in, n);
        const gdn_status st = gdn__places_list(&env, NULL, &places, reason_of(&r));
        if (atomic_exchange(&gdn__alloc_fail_in, -1) >= 0) {
            assert_int_equal(st, GDN_OK);
            gdn__places_free(&places);
            break;
        }
        /* A folder that cannot be told is one place less, the rest is an error. */
        if (st == GDN_OK)
            gdn__places_free(&places);
        else
            assert_int_equal(st, GDN_E_NOMEM);
    }
    assert_true(failures > 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_order),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_file_kinds),         cmocka_unit_test(test_no_permission),
        cmocka_unit_test(test_missing_dependency), cmocka_unit_test(test_places),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL) != 0;
}
