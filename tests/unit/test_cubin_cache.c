/* test_cubin_cache.c - the cache's files: keys, whole writes, verified reads (B165), folders that cannot be trusted or written
 * (B166, B168), locks, the bound on the size. */
#include "cuda_test.h"

#include <sys/file.h>

static char folder[64];
static int setup(void **state) {
    (void)state;
    (void)make_folder(folder);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    remove_tree(folder);
    return 0;
}

static const char *const options[] = { "--fmad=false", "-DK=128" };
static const char *const names[] = { "a.cuh", "b.cuh" };
static const char *const bodies[] = { "int a;", "int b;" };
static gdn_compile_job full_job(void) {
    gdn_compile_job j = job_for("gates.cu", "k()", "sm_90a");
    j.options = options;
    j.n_options = 2;
    j.header_names = names;
    j.headers = bodies;
    j.n_headers = 2;
    return j;
}
static gdn__key key_of(const gdn_compile_job *j, const char *nvrtc) {
    gdn__key k;
    assert_int_equal(gdn__cubin_key(j, nvrtc, &k), GDN_OK);
    assert_int_equal(strlen(k.hex), 32);
    return k;
}

/* B163, B164: everything that decides the bytes is in the name, and nothing runs into its neighbour. */
static void test_keys(void **state) {
    (void)state;
    enum { N = 16 };
    static const char *const other_options[] = { "--fmad=true", "-DK=128" }, *const swapped[] = { "-DK=128", "--fmad=false" },
                             *const glued[] = { "--fmad=false-DK=128", "" }, *const cut[] = { "--fmad=false-", "DK=128" };
    static const char *const other_names[] = { "a.cuh", "c.cuh" }, *const other_bodies[] = { "int a;", "int c;" },
                             *const moved_names[] = { "a.cuhi", "b.cuh" }, *const moved_bodies[] = { "nt a;", "int b;" };
    gdn_compile_job j[N];
    gdn__key k[N + 1];
    for (int i = 0; i < N; i++) j[i] = full_job();
    j[1].arch = "sm_121f";
    j[2].source = "k() ";
    j[3].name = "gates2.cu";
    j[4].options = other_options;
    j[5].options = swapped;
    j[6].options = glued;
    j[7].options = cut;
    j[8].n_options = 1;
    j[9].header_names = other_names;
    j[10].headers = other_bodies;
    j[11].header_names = moved_names, j[11].headers = moved_bodies;
    j[12].n_headers = 1;
    j[13].n_headers = 0;
    j[14].n_options = 0;
    j[15].arch = "sm_90";
    for (int i = 0; i < N; i++) k[i] = key_of(&j[i], "13.0-00000000");
    k[N] = key_of(&j[0], "13.0-00000001");
    for (int a = 0; a <= N; a++)
        for (int c = 0; c < a; c++)
            if (!strcmp(k[a].hex, k[c].hex)) fail_msg("%d and %d share a key", a, c);
    const gdn__key again = key_of(&j[0], "13.0-00000000");
    assert_string_equal(again.hex, k[0].hex);
    /* A key is on other people's disks: if this changes, GDN__CACHE_SCHEMA must. */
    const gdn_compile_job plain = job_for("a.cu", "k()", "sm_90a");
    assert_string_equal(key_of(&plain, "").hex, "5f69c037d560f74d365ffd953211e38f");
}

static gdn__entry_facts facts_of(const gdn_compile_job *j) {
    return (gdn__entry_facts) { j, "13.0-00000000", 412 };
}
static void write_entry(const gdn_compile_job *j, const void *data, size_t n, gdn__key *key) {
    const gdn__entry_facts f = facts_of(j);
    reason r;
    *key = key_of(j, "");
    if (gdn__entry_write(folder, key, &f, data, n, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
}
static void path_of(char out[256], const gdn__key *key, const char *tail) {
    (void)snprintf(out, 256, "%s/%.2s/%.32s%.8s", folder, key->hex, key->hex, tail);
}

static void test_round_trip(void **state) {
    (void)state;
    const gdn_compile_job j = full_job();
    static const char bytes[] = "\x7f"
                                "ELF and more";
    char path[256];
    gdn__key key;
    gdn__cubin c;
    gdn__side side;
    reason r;
    write_entry(&j, bytes, sizeof bytes, &key);
    assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_OK);
    assert_int_equal(c.size, sizeof bytes);
    assert_memory_equal(c.data, bytes, sizeof bytes);
    assert_string_equal(c.nvrtc, "13.0-00000000");
    gdn__cubin_free(&c);
    path_of(path, &key, ".cubin");
    assert_int_equal(gdn__entry_check(path, geteuid(), &side, NULL, NULL, reason_of(&r)), GDN_OK);
    assert_string_equal(side.options, "--fmad=false -DK=128");
    assert_string_equal(side.name, "gates.cu");
    assert_true(side.ms == 412);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, sizeof bytes); /* raw: what the GPU loads and nothing else */
    const tree t = count_tree(folder);
    assert_int_equal(t.entries, 1);
    assert_int_equal(t.sides, 1);
    assert_int_equal(t.temps + t.locks + t.others, 0);
    /* The same name asked for under another architecture is not this entry. */
    assert_int_equal(gdn__entry_read(folder, &key, "sm_121f", geteuid(), &c, reason_of(&r)), GDN_E_IO);
    assert_contains(r.buf, "compiled for sm_90a, not for sm_121f");
    gdn__key other = key;
    other.hex[5] = other.hex[5] == '0' ? '1' : '0';
    assert_int_equal(gdn__entry_read(folder, &other, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_ABSENT);
}

/* B165: every single byte of both files, flipped; every length. */
static void test_damage(void **state) {
    (void)state;
    const gdn_compile_job j = full_job();
    static const char bytes[] = "\x7f"
                                "ELF and more";
    static const char *const tails[] = { ".cubin", ".ini" };
    gdn__key key;
    gdn__cubin c;
    reason r;
    char path[256], good[4096], bad[4096];
    write_entry(&j, bytes, sizeof bytes, &key);
    for (int t = 0; t < 2; t++) {
        path_of(path, &key, tails[t]);
        FILE *f = fopen(path, "rbe");
        assert_non_null(f);
        const size_t n = fread(good, 1, sizeof good, f);
        assert_int_equal(fclose(f), 0);
        assert_true(n > 8 && n < sizeof good);
        unsigned accepted = 0;
        for (size_t i = 0; i < n; i++) {
            memcpy(bad, good, n);
            bad[i] = (char)(bad[i] ^ 1);
            write_file(path, bad, n);
            const gdn_status st = gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r));
            if (st == GDN_OK) {
                accepted++;
                assert_int_equal(c.size, sizeof bytes); /* only ever the right bytes */
                assert_memory_equal(c.data, bytes, sizeof bytes);
                gdn__cubin_free(&c);
            } else if (st != GDN_E_IO || !*r.buf) {
                fail_msg("byte %zu of %s: %d '%s'", i, tails[t], (int)st, r.buf);
            }
        }
        if (t == 0) assert_int_equal(accepted, 0); /* of the side file, texts for people may change */
        for (size_t k = 0; k < n; k += t ? 7 : 1) {
            write_file(path, good, k);
            const gdn_status st = gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r));
            if (st == GDN_OK) gdn__cubin_free(&c);
            if (t == 0) assert_int_equal(st, GDN_E_IO);
        }
        write_file(path, good, n);
        assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_OK); /* the control */
        gdn__cubin_free(&c);
    }
    /* A cubin without its side file is one that is being written. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_ABSENT);
}

/* B168 and planted files: another owner, writable by all, a link, not a file, mode 000. */
static void test_not_trusted(void **state) {
    (void)state;
    const gdn_compile_job j = full_job();
    gdn__key key;
    gdn__cubin c;
    reason r;
    char path[256], aside[256];
    write_entry(&j,
                "\x7f"
                "ELF",
                5, &key);
    path_of(path, &key, ".cubin");
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_E_IO);
    assert_contains(r.buf, "mode 0666: not trusted");
    assert_int_equal(chmod(path, 0644), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 4242, 4242), 0);
        assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_E_IO);
        assert_contains(r.buf, "belongs to user 4242");
        assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", 4242, &c, reason_of(&r)), GDN_OK); /* a shipped folder's owner */
        gdn__cubin_free(&c);
        assert_int_equal(chown(path, 0, 0), 0);
        print_message("mode 000 binds nobody here (root): not checked\n");
    } else {
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_ABSENT);
        assert_int_equal(chmod(path, 0644), 0);
        print_message("files of another user cannot be made here (not root): not checked\n");
    }
    (void)snprintf(aside, sizeof aside, "%s/aside", folder);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(symlink(aside, path), 0);
    assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_ABSENT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* would hang one who just opens it */
    assert_int_equal(gdn__entry_read(folder, &key, "sm_90a", geteuid(), &c, reason_of(&r)), GDN_E_IO);
    assert_contains(r.buf, "not a regular file");
}

/* B166: what the folder may be. A reason each, naming the folder and the setting; a warning comes when something is compiled. */
static const char *open_cache(const char *const *vars, heard *h, gdn__cache *c) {
    gdn__env env = env_of(vars);
    const gdn__log log = log_to(h, GDN_LOG_DEBUG);
    gdn__cache_open(c, &env, &log, NULL);
    gdn__env_drop(&env);
    return c->root;
}
static void expect_memory_only(const char *const *vars, const char *said, const char *rule) {
    gdn__cache c;
    heard h;
    if (open_cache(vars, &h, &c) || c.writable) fail_msg("accepted: %s", said);
    assert_int_equal(h.warnings, 0);
    assert_non_null(c.why);
    assert_contains(c.why, said);
    assert_contains(c.why, rule);
    gdn__cache_close(&c);
    assert_null(c.why);
}
static void test_folders(void **state) {
    (void)state;
    char var[128], path[128];
    const char *vars[] = { var, NULL };
    static const char *const none[] = { NULL };
    gdn__cache c;
    heard h;
    (void)snprintf(var, sizeof var, "GDN_CACHE_DIR=%s/new", folder);
    assert_non_null(open_cache(vars, &h, &c)); /* made when its parent is there */
    assert_true(c.writable);
    assert_int_equal(h.warnings, 0);
    gdn__cache_close(&c);
    (void)snprintf(path, sizeof path, "%s/new", folder);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(path, 0777), 0);
    expect_memory_only(vars, "everybody may write there (mode 0777)", "GDN_CACHE_DIR");
    assert_int_equal(chmod(path, 01777), 0); /* with the sticky bit nobody replaces our files */
    assert_non_null(open_cache(vars, &h, &c));
    gdn__cache_close(&c);
    assert_int_equal(chmod(path, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 4242, 4242), 0);
        expect_memory_only(vars, "/new: belongs to user 4242", "GDN_CACHE_DIR");
        assert_int_equal(chown(path, 0, 0), 0);
        print_message("mode 0555 binds nobody here (root): not checked\n");
    } else {
        (void)snprintf(path, sizeof path, "%s/new/v1", folder);
        assert_int_equal(chmod(path, 0555), 0);
        assert_non_null(open_cache(vars, &h, &c)); /* still read */
        assert_false(c.writable);
        assert_int_equal(h.warnings, 0);
        assert_contains(c.why, path);
        gdn__cache_close(&c);
        assert_int_equal(chmod(path, 0755), 0);
    }
    (void)snprintf(var, sizeof var, "GDN_CACHE_DIR=%s/no/such", folder);
    expect_memory_only(vars, "/no/such: cannot be made: No such file", "GDN_CACHE_DIR");
    (void)snprintf(var, sizeof var, "GDN_CACHE_DIR=relative");
    expect_memory_only(vars, "relative: not an absolute folder", "GDN_CACHE_DIR");
    (void)snprintf(var, sizeof var, "GDN_CACHE_DIR=/dev/null");
    expect_memory_only(vars, "/dev/null", "GDN_CACHE_DIR");

    char *xdg = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL, *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    expect_memory_only(none, "HOME is not set", "HOME");
    assert_int_equal(setenv("HOME", "/nonexistent", 1), 0);
    expect_memory_only(none, "/nonexistent/.cache: cannot be made", "HOME"); /* and no home is made for anybody */
    assert_int_not_equal(access("/nonexistent", F_OK), 0);
    assert_int_equal(setenv("HOME", folder, 1), 0);
    assert_non_null(open_cache(none, &h, &c));
    assert_contains(c.root, "/.cache/gdn/v1");
    gdn__cache_close(&c);
    (void)snprintf(path, sizeof path, "%s/xdg", folder);
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
    assert_non_null(open_cache(none, &h, &c));
    assert_contains(c.root, "/xdg/gdn/v1");
    gdn__cache_close(&c);
    if (xdg)
        (void)setenv("XDG_CACHE_HOME", xdg, 1);
    else
        (void)unsetenv("XDG_CACHE_HOME");
    if (home) (void)setenv("HOME", home, 1);
    free(xdg);
    free(home);
}
static void test_bound_setting(void **state) {
    (void)state;
    static const struct {
        const char *value;
        uint64_t mib;
    } rows[] = { { "1", 1 },   { "64", 64 }, { "", 256 }, { "0", 256 }, { "-1", 256 }, { "12x", 256 }, { "99999999999999999999", 256 },
                 { " 4", 256 } };
    char var[128], dir[128];
    const char *vars[] = { var, dir, NULL };
    (void)snprintf(dir, sizeof dir, "GDN_CACHE_DIR=%s", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gdn__cache c;
        heard h;
        (void)snprintf(var, sizeof var, "GDN_CACHE_MAX_MIB=%s", rows[i].value);
        assert_non_null(open_cache(vars, &h, &c));
        assert_int_equal(c.max_bytes, rows[i].mib << 20);
        assert_int_equal(h.warnings, rows[i].mib == 256 && *rows[i].value);
        gdn__cache_close(&c);
    }
}

static void set_age(const char *path, long seconds) {
    const struct timespec t[2] = { { time(NULL) - seconds, 0 }, { time(NULL) - seconds, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* The least recently used go first; what this process used stays; stale temporary files and locks go. */
static void test_trim(void **state) {
    (void)state;
    char name[16], path[256], temp[256], fresh[256], lock[256], held[256];
    static char bytes[1000] = "\x7f"
                              "ELF";
    gdn__key key[10];
    gdn__trimmed t;
    reason r;
    for (int i = 0; i < 10; i++) {
        (void)snprintf(name, sizeof name, "m%d.cu", i);
        const gdn_compile_job j = job_for(name, "k()", "sm_90a");
        write_entry(&j, bytes, sizeof bytes, &key[i]);
        path_of(path, &key[i], ".cubin");
        set_age(path, 1000 - 10 * i); /* 0 is the oldest */
    }
    path_of(path, &key[2], ".cubin"); /* a hit makes it young */
    gdn__cubin c;
    assert_int_equal(gdn__entry_read(folder, &key[2], "sm_90a", geteuid(), &c, reason_of(&r)), GDN_OK);
    gdn__cubin_free(&c);
    (void)snprintf(temp, sizeof temp, "%s/%.2s/.x.1.tmp", folder, key[0].hex);
    (void)snprintf(fresh, sizeof fresh, "%s/%.2s/.y.1.tmp", folder, key[0].hex);
    (void)snprintf(lock, sizeof lock, "%s/%.2s/.x.lock", folder, key[0].hex);
    (void)snprintf(held, sizeof held, "%s/%.2s/.y.lock", folder, key[0].hex);
    write_file(temp, "x", 1), write_file(fresh, "x", 1), write_file(lock, "", 0), write_file(held, "", 0);
    const int fd = open(held, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    set_age(temp, 3700), set_age(lock, 3700), set_age(held, 3700);

    assert_int_equal(gdn__cache_trim(folder, 4000, time(NULL) - 500, false, &t, reason_of(&r)), GDN_OK);
    assert_int_equal(t.entries, 4);
    assert_int_equal(t.bytes, 4000);
    assert_int_equal(t.removed, 6);
    assert_int_equal(t.removed_bytes, 6000);
    for (int i = 0; i < 10; i++) {
        path_of(path, &key[i], ".cubin");
        assert_int_equal(access(path, F_OK) == 0, i == 2 || i >= 7);
        path_of(path, &key[i], ".ini");
        assert_int_equal(access(path, F_OK) == 0, i == 2 || i >= 7);
    }
    assert_int_not_equal(access(temp, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);
    assert_int_not_equal(access(lock, F_OK), 0);
    assert_int_equal(access(held, F_OK), 0);
    assert_int_equal(close(fd), 0);
    /* Used since: kept, whatever the bound. */
    assert_int_equal(gdn__cache_trim(folder, 0, time(NULL) - 500, false, &t, reason_of(&r)), GDN_OK);
    assert_int_equal(t.entries, 1);
    /* Damaged ones only go when that is asked for. */
    path_of(path, &key[2], ".cubin");
    write_file(path, "x", 1);
    assert_int_equal(gdn__cache_trim(folder, 1 << 20, 0, false, &t, reason_of(&r)), GDN_OK);
    assert_int_equal(t.entries, 1);
    assert_int_equal(gdn__cache_trim(folder, 1 << 20, 0, true, &t, reason_of(&r)), GDN_OK);
    assert_int_equal(t.entries, 0);
    assert_int_equal(t.removed, 1);
    assert_int_equal(gdn__cache_trim("/nowhere/v1", 0, 0, false, &t, reason_of(&r)), GDN_ABSENT);
}

static gdn__key lock_key;
static int try_lock(void) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/.%s.lock", folder, lock_key.hex);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : 0;
}
static void test_lock(void **state) {
    (void)state;
    const gdn_compile_job j = full_job();
    reason r;
    lock_key = key_of(&j, "");
    const int fd = gdn__key_lock(folder, &lock_key, reason_of(&r));
    assert_true(fd >= 0);
    assert_int_equal(in_child(try_lock), 0); /* another process does not get it */
    gdn__key_unlock(folder, &lock_key, fd);
    assert_int_equal(count_tree(folder).locks, 0);
    assert_int_equal(gdn__key_lock("/nowhere", &lock_key, reason_of(&r)), -1);
    assert_contains(r.buf, "/nowhere");
}

/* The record of the NVRTC last used: another file behind the same name, another search path, another question. */
static void test_nvrtc_record(void **state) {
    (void)state;
    char var[128], file[128], id[GDN__NVRTC_ID];
    const char *vars[] = { var, NULL };
    gdn__cache c;
    heard h;
    (void)snprintf(var, sizeof var, "GDN_CACHE_DIR=%s", folder);
    (void)snprintf(file, sizeof file, "%s/libnvrtc.so.13", folder);
    write_file(file, "one", 3);
    set_age(file, 100);
    assert_non_null(open_cache(vars, &h, &c));
    assert_false(gdn__cache_known_nvrtc(&c, "", id));
    gdn__cache_note_nvrtc(&c, "", file, "13.0-abcdef01");
    assert_true(gdn__cache_known_nvrtc(&c, "", id));
    assert_string_equal(id, "13.0-abcdef01");
    assert_false(gdn__cache_known_nvrtc(&c, "/other/libnvrtc.so.13", id));
    char *before = getenv("LD_LIBRARY_PATH") ? strdup(getenv("LD_LIBRARY_PATH")) : NULL;
    assert_int_equal(setenv("LD_LIBRARY_PATH", "/another/toolkit", 1), 0);
    assert_false(gdn__cache_known_nvrtc(&c, "", id));
    if (before)
        (void)setenv("LD_LIBRARY_PATH", before, 1);
    else
        (void)unsetenv("LD_LIBRARY_PATH");
    free(before);
    assert_true(gdn__cache_known_nvrtc(&c, "", id));
    write_file(file, "two", 3); /* same size, later */
    assert_false(gdn__cache_known_nvrtc(&c, "", id));
    gdn__cache_note_nvrtc(&c, "", file, "13.1-abcdef01");
    assert_true(gdn__cache_known_nvrtc(&c, "", id));
    assert_string_equal(id, "13.1-abcdef01");
    assert_int_equal(unlink(file), 0);
    assert_false(gdn__cache_known_nvrtc(&c, "", id));
    gdn__cache_close(&c);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { TEST(test_keys),        TEST(test_round_trip), TEST(test_damage),
                                        TEST(test_not_trusted), TEST(test_folders),    TEST(test_bound_setting),
                                        TEST(test_trim),        TEST(test_lock),       TEST(test_nvrtc_record) };
    return cmocka_run_group_tests_name("test_cubin_cache", tests, NULL, NULL) != 0;
}
