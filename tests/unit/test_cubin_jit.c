/* test_cubin_jit.c - from source to cubin on the fake NVRTCs: order of places, processes that start together (B161), what is
 * in the key (B163, B164), damage (B165), missing NVRTC and builtins, refused architectures (B150). */
#include "jit_test.h"

#include <sys/wait.h>

/* B163, B164 (and on a device in gpu_test): arch, options, headers, source and NVRTC each give a miss; a warm start opens no NVRTC.
 * (The one line that tries the compiler counts as a compile.) */
static void test_misses(void **state) {
    (void)state;
    static const char *const with[] = { "-DK=128" }, *const without[] = { "-DK=64" };
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a"), b = job_for("gates.cu", "k()", "sm_121f");
    gdn_compile_job c = a, d = a;
    c.options = with, c.n_options = 1;
    d.options = without, d.n_options = 1;
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    MAKE(FAKE_NVRTC13, NULL, &a, 0);
    assert_contains(h.text, "cache: 1 of 1 modules were there");
    assert_null(strstr(h.text, "NVRTC 13.0")); /* not opened */
    MAKE(FAKE_NVRTC13, NULL, &b, 2);
    MAKE(FAKE_NVRTC13, NULL, &c, 2);
    MAKE(FAKE_NVRTC13, NULL, &d, 2);
    MAKE(FAKE_NVRTC13, NULL, &a, 0);
    assert_int_equal(count_tree(root).entries, 4);
    assert_int_equal(atomic_load(&nvrtc12->compiles), 0);
    MAKE(FAKE_NVRTC12, NULL, &a, 2); /* another NVRTC: a miss */
    assert_contains(h.text, "NVRTC 12.9");
    assert_int_equal(count_tree(root).entries, 5);
    MAKE(FAKE_NVRTC12, NULL, &a, 0);
    MAKE(FAKE_NVRTC13, NULL, &a, 1); /* back: it must be opened to be known, its entry is still there */
    MAKE(FAKE_NVRTC13, NULL, &a, 0);
    MAKE(FAKE_NVRTC13, "GDN_JIT_NOCACHE=1", &a, 2); /* neither read nor written */
    MAKE(FAKE_NVRTC13, "GDN_JIT_NOCACHE=0", &a, 0);
    assert_int_equal(count_tree(root).entries, 5);
}

/* B5: no NVRTC at all: what another one compiled is used, what nobody compiled is an error with the reason. */
static void test_without_nvrtc(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a"), b = job_for("conv.cu", "c()", "sm_90a");
    reason r;
    MAKE(FAKE_NVRTC12, NULL, &a, 2);
    MAKE("/nowhere/libnvrtc.so.13", NULL, &a, 0);
    assert_contains(h.text, "the code that NVRTC 12.9-");
    assert_int_equal(h.warnings, 0); /* nothing needed it */
    gdn__cubin c;
    gdn_status st;
    jit_env j;
    start(&j, "/nowhere/libnvrtc.so.13", NULL);
    j.jit.log.level = GDN_LOG_INFO;
    for (int i = 0; i < 4; i++) { /* the first two are served, the others are not there: one warning */
        assert_int_equal(gdn__jit_get(&j.jit, 1, i < 2 ? &a : &b, NULL, NULL, &c, &st, reason_of(&r)), i < 2 ? GDN_OK : GDN_E_NONVRTC);
        assert_int_equal(h.warnings, i < 2 ? 0 : 1);
        gdn__cubin_free(&c);
    }
    assert_int_equal(times(h.text, "NVRTC is needed and cannot be used: "), 1);
    assert_int_equal(times(h.text, "the code that NVRTC"), 1);
    stop(&j);
    assert_int_equal(make("/nowhere/libnvrtc.so.13", NULL, &b, &r), GDN_E_NONVRTC);
    assert_contains(r.buf, "conv.cu: not compiled yet, and NVRTC is needed and cannot be used: GDN_NVRTC: /nowhere/libnvrtc.so.13");
    nvrtc13->builtins_missing = 1; /* there and not whole: said as such */
    assert_int_equal(make(FAKE_NVRTC13, NULL, &b, &r), GDN_E_NONVRTC);
    assert_contains(r.buf, "NVRTC 13.0 (" FAKE_NVRTC13 ") cannot compile one line: probe.cu: NVRTC's builtins library is missing");
    assert_contains(r.buf, "failed to open libnvrtc-builtins.so");
    assert_int_equal(make(FAKE_LIBCUDA, NULL, &b, &r), GDN_E_NONVRTC);
    assert_contains(r.buf, "libcuda.so.1 has no nvrtcVersion: too old, or not NVRTC");
}

/* B150: refused by name with what was wanted, the version and the list; other modules go on. Only a fake NVRTC can lack the
 * device's own architecture; on a device (gpu_test) a real one is asked for an architecture that it dropped. */
static void test_arch_refused(void **state) {
    (void)state;
    const gdn_compile_job jobs[] = { job_for("a.cu", "a()", "sm_121f"), job_for("b.cu", "b()", "sm_90a"),
                                     job_for("c.cu", "c()", "compute_90"), job_for("d.cu", "d()", "sm_89") };
    char text[4][1024];
    gdn_text err[4];
    gdn__cubin c[4];
    gdn_status st[4];
    jit_env j;
    for (int i = 0; i < 4; i++) err[i] = (gdn_text) { text[i], sizeof text[i], 0 };
    start(&j, FAKE_NVRTC12, NULL);
    assert_int_equal(gdn__jit_get(&j.jit, 4, jobs, NULL, NULL, c, st, err), GDN_E_ARCH);
    assert_int_equal(st[0], GDN_E_ARCH);
    assert_contains(text[0], "sm_121f is wanted; NVRTC 12.9 (" FAKE_NVRTC12 ") compiles for 90 100: a newer NVRTC is needed");
    assert_int_equal(st[1], GDN_OK);
    assert_int_equal(st[2], GDN_E_ARCH);
    assert_contains(text[2], "PTX is never made");
    assert_int_equal(st[3], GDN_E_ARCH);
    assert_contains(text[3], "compiles for 90 100: not this one");
    gdn__cubin_free(&c[1]);
    stop(&j);
}

/* B165: an entry that is truncated to 0 or to half, or has one byte flipped: one warning, compiled, written again. */
static void test_damage(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k() and some more text", "sm_90a");
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    const tree t = count_tree(root);
    char good[512];
    FILE *f = fopen(t.last, "rbe");
    assert_non_null(f);
    const size_t n = fread(good, 1, sizeof good, f);
    assert_int_equal(fclose(f), 0);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2) good[n / 2] ^= 1;
        write_file(t.last, good, kind == 0 ? 0 : kind == 1 ? n / 2 : n);
        MAKE(FAKE_NVRTC13, NULL, &a, 2);
        assert_int_equal(h.warnings, 1);
        assert_contains(h.text, ": not used");
        MAKE(FAKE_NVRTC13, NULL, &a, 0);
        assert_int_equal(h.warnings, 0);
    }
    assert_int_equal(count_tree(root).entries, 1);
}

/* Shipped cubins: found before NVRTC, whatever made them; damaged ones are passed over. */
static void test_shipped(void **state) {
    (void)state;
    const gdn_compile_job a = job_for("gates.cu", "k()", "sm_90a");
    const gdn__entry_facts facts = { &a, "12.9-whatever", 5 };
    char shipped[96], var[128], path[256];
    gdn__key key;
    reason r;
    (void)snprintf(shipped, sizeof shipped, "%s/shipped", folder);
    (void)snprintf(var, sizeof var, "GDN_CUBIN_DIR=%s", shipped);
    assert_int_equal(gdn__cubin_key(&a, "", &key), GDN_OK);
    assert_int_equal(gdn__entry_write(shipped, &key, &facts,
                                      "\x7f"
                                      "ELFxxxxsm_90a k()",
                                      18, reason_of(&r)),
                     GDN_OK);
    MAKE("/nowhere/libnvrtc.so.13", var, &a, 0);
    assert_int_equal(h.warnings, 0);
    assert_int_equal(count_tree(root).entries, 0); /* not copied */
    assert_int_equal(chmod(shipped, 0777), 0);
    assert_int_equal(make("/nowhere/libnvrtc.so.13", var, &a, &r), GDN_E_NONVRTC);
    assert_contains(h.text, "shipped: everybody may write there");
    /* The folder's fault is told once, not for each module. */
    jit_env j;
    gdn_compile_job three[] = { a, a, a };
    gdn__cubin c[3];
    gdn_status st[3];
    three[1].name = "conv.cu", three[2].name = "norm.cu";
    start(&j, FAKE_NVRTC12, var);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gdn__jit_get(&j.jit, 3, three, NULL, NULL, c, st, NULL), GDN_OK);
        for (int k = 0; k < 3; k++) gdn__cubin_free(&c[k]);
    }
    stop(&j);
    assert_int_equal(times(h.text, "everybody may write there"), 1);
    assert_int_equal(h.warnings, 1);
    remove_tree(root);
    assert_int_equal(chmod(shipped, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/%.2s/%.32s.cubin", shipped, key.hex, key.hex);
    write_file(path, "x", 1);
    MAKE(FAKE_NVRTC13, var, &a, 2);
    assert_contains(h.text, "shipped/");
    MAKE(FAKE_NVRTC13, var, &a, 0);                      /* from the cache now */
    MAKE(FAKE_NVRTC13, "GDN_CUBIN_DIR=/nowhere", &a, 0); /* what is there serves */
    assert_contains(h.text, "GDN_CUBIN_DIR=/nowhere: no such folder");
}

/* A batch on several threads: each once, in parallel, with counted progress lines; what was there is not counted as compiled. */
static void test_batch(void **state) {
    (void)state;
    enum { N = 9 };
    static char name[N][16];
    gdn_compile_job jobs[N];
    gdn__cubin c[N];
    gdn_status st[N];
    jit_env j;
    for (int i = 0; i < N; i++) {
        (void)snprintf(name[i], sizeof name[i], "m%d.cu", i);
        jobs[i] = job_for(name[i], i == 8 ? "FAIL" : "k()", "sm_90a");
    }
    MAKE(FAKE_NVRTC13, NULL, &jobs[2], 2);
    MAKE(FAKE_NVRTC13, NULL, &jobs[5], 2);
    nvrtc13->sleep_ms = 30;
    const int before = compiles();
    start(&j, FAKE_NVRTC13, NULL);
    assert_int_equal(gdn__jit_get(&j.jit, N, jobs, NULL, NULL, c, st, NULL), GDN_E_COMPILE);
    assert_int_equal(compiles() - before, 8); /* the probe and seven */
    for (int i = 0; i < N; i++) {
        assert_int_equal(st[i], i == 8 ? GDN_E_COMPILE : GDN_OK);
        gdn__cubin_free(&c[i]);
    }
    for (int k = 3; k <= 9; k++) { /* 1 and 2 of 9 were cached */
        char part[32];
        (void)snprintf(part, sizeof part, "compile %d/9 m", k);
        assert_int_equal(times(h.text, part), 1);
    }
    assert_int_equal(times(h.text, "(cached: 2)"), 7);
    assert_int_equal(times(h.text, "ms failed"), 1);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) assert_true(atomic_load(&nvrtc13->most_running) > 1);
    /* Again: nothing is compiled, and the failure is remembered with its text. */
    char text[512];
    gdn_text err = { text, sizeof text, 0 };
    assert_int_equal(gdn__jit_get(&j.jit, 1, &jobs[8], NULL, NULL, c, st, &err), GDN_E_COMPILE);
    assert_contains(text, "m8.cu(3): error: identifier");
    assert_int_equal(compiles() - before, 8);
    /* A caller's short text: what fits, and the whole length. */
    char tiny[16];
    err = (gdn_text) { tiny, sizeof tiny, 0 };
    const gdn_compile_job other = job_for("m9.cu", "FAIL", "sm_90a");
    assert_int_equal(gdn__jit_get(&j.jit, 1, &other, NULL, NULL, c, st, &err), GDN_E_COMPILE);
    assert_int_equal(strlen(tiny), sizeof tiny - 1);
    assert_true(err.len > 150);
    stop(&j);
}

/* A plugin that knows a longer job than this host. */
static void test_longer_jobs(void **state) {
    (void)state;
    struct {
        gdn_compile_job job;
        uint64_t later;
    } jobs[2];
    memset(jobs, 0xff, sizeof jobs);
    for (int i = 0; i < 2; i++) {
        jobs[i].job = job_for(i ? "b.cu" : "a.cu", "k()", "sm_90a");
        jobs[i].job.struct_size = (uint32_t)sizeof jobs[i];
    }
    gdn__cubin c[2];
    gdn_status st[2];
    jit_env j;
    start(&j, FAKE_NVRTC13, NULL);
    assert_int_equal(gdn__jit_get(&j.jit, 2, &jobs[0].job, NULL, NULL, c, st, NULL), GDN_OK);
    assert_contains(h.text, "compile 2/2 ");
    assert_contains(h.text, " b.cu sm_90a");
    for (int i = 0; i < 2; i++) gdn__cubin_free(&c[i]);
    stop(&j);
}

static void test_print_and_dump(void **state) {
    (void)state;
    static const char *const option[] = { "--fmad=false" }, *const header[] = { "int x;" }, *const header_name[] = { "common/x.cuh" };
    gdn_compile_job a = job_for("gates.cu", "k() WARN", "sm_90a");
    a.options = option, a.n_options = 1;
    a.headers = header, a.header_names = header_name, a.n_headers = 1;
    char dump[96], var[128], path[192];
    (void)snprintf(dump, sizeof dump, "%s/dump", folder);
    (void)snprintf(var, sizeof var, "GDN_JIT_DUMP=%s", dump);
    MAKE(FAKE_NVRTC13, var, &a, 2); /* the folder is not there: a warning, nothing else */
    assert_contains(h.text, "GDN_JIT_DUMP: ");
    assert_int_equal(mkdir(dump, 0755), 0);
    a.source = "k() WARN 2";
    MAKE(FAKE_NVRTC13, var, &a, 2);
    static const char *const files[] = { "gates.cu.sm_90a.cu", "gates.cu.sm_90a.cubin", "gates.cu.sm_90a.log", "common_x.cuh" };
    for (int i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dump, files[i]);
        if (access(path, F_OK) != 0) fail_msg("%s was not written", path);
    }
    a.source = "k() WARN 3";
    MAKE(FAKE_NVRTC13, "GDN_JIT_PRINT=1", &a, 2);
    assert_contains(h.text, "nvrtc: nvcc -cubin -arch=sm_90a --fmad=false gates.cu");
}

/* GDN_KERNEL_DIR: what the folder has is compiled, what it has not stays built in; each change is a new key. */
static void test_sources_of_a_folder(void **state) {
    (void)state;
    static const char *const header[] = { "int x;" }, *const header_name[] = { "common/x.cuh" };
    gdn_compile_job a = job_for("folder.cu", "k() built in", "sm_90a");
    a.headers = header, a.header_names = header_name, a.n_headers = 1;
    char kernels[96], sub[128], var[128], path[192];
    (void)snprintf(kernels, sizeof kernels, "%s/kernels", folder);
    (void)snprintf(sub, sizeof sub, "%s/hopper", kernels);
    (void)snprintf(var, sizeof var, "GDN_KERNEL_DIR=%s", kernels);
    MAKE(FAKE_NVRTC13, NULL, &a, 2);
    reason why;
    assert_int_equal(make(FAKE_NVRTC13, var, &a, &why), GDN_E_IO); /* a folder that is not there is told, not passed over */
    assert_contains(why.buf, "GDN_KERNEL_DIR=");
    assert_int_equal(mkdir(kernels, 0755), 0);
    assert_int_equal(mkdir(sub, 0755), 0);
    MAKE(FAKE_NVRTC13, var, &a, 0); /* it has nothing of this: the built-in text's code is there */
    (void)snprintf(path, sizeof path, "%s/folder.cu", sub);
    write_file(path, "k() of the folder", strlen("k() of the folder"));
    MAKE(FAKE_NVRTC13, var, &a, 2);
    assert_contains(h.text, "folder.cu is read from ");
    MAKE(FAKE_NVRTC13, var, &a, 0);
    write_file(path, "k() changed", strlen("k() changed"));
    MAKE(FAKE_NVRTC13, var, &a, 2);
    (void)snprintf(sub, sizeof sub, "%s/common", kernels);
    assert_int_equal(mkdir(sub, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/x.cuh", sub);
    write_file(path, "int y;", strlen("int y;"));
    MAKE(FAKE_NVRTC13, var, &a, 2);
    MAKE(FAKE_NVRTC13, NULL, &a, 0); /* without the folder: as before */
}

/* ---- B161 ---- */
static int process(int start_fd) {
    enum { N = 3 };
    static const char *const name[N] = { "a.cu", "b.cu", "c.cu" };
    gdn_compile_job jobs[N];
    gdn__cubin c[N];
    gdn_status st[N];
    jit_env j;
    char byte;
    for (int i = 0; i < N; i++) jobs[i] = job_for(name[i], "k()", "sm_90a");
    start(&j, FAKE_NVRTC13, NULL);
    if (read(start_fd, &byte, 1) != 0) return 1; /* all at once, when the parent closes its end */
    if (gdn__jit_get(&j.jit, N, jobs, NULL, NULL, c, st, NULL) != GDN_OK || h.warnings) return 2;
    for (int i = 0; i < N; i++) {
        if (c[i].size <= 8 + sizeof "sm_90a k()\n" || memcmp((char *)c[i].data + 8, "sm_90a k()\n", sizeof "sm_90a k()\n" - 1) != 0)
            return 3;
        gdn__cubin_free(&c[i]);
    }
    stop(&j);
    const int compiled = atomic_load(&nvrtc13->compiles);
    return 10 + (compiled ? compiled - 1 : 0); /* without the probe */
}
static void test_processes(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        const int n = 2 + round % 7;
        pid_t pid[8];
        int gate[2], compiled = 0;
        assert_int_equal(pipe(gate), 0);
        (void)fflush(NULL);
        for (int i = 0; i < n; i++) {
            pid[i] = fork();
            assert_true(pid[i] >= 0);
            if (pid[i]) continue;
            (void)close(gate[1]);
            _exit(process(gate[0]));
        }
        assert_int_equal(close(gate[0]), 0);
        assert_int_equal(close(gate[1]), 0);
        for (int i = 0; i < n; i++) {
            int status = -1;
            assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
            if (!WIFEXITED(status) || WEXITSTATUS(status) < 10) fail_msg("process %d of %d: status %x", i, n, (unsigned)status);
            compiled += WEXITSTATUS(status) - 10;
        }
        assert_int_equal(compiled, 3); /* each module by one process only */
        const tree t = count_tree(root);
        assert_int_equal(t.entries, 3);
        assert_int_equal(t.sides, 3);
        assert_int_equal(t.temps + t.locks, 0);
        remove_tree(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_misses), TEST(test_without_nvrtc), TEST(test_arch_refused),   TEST(test_damage),    TEST(test_shipped),
        TEST(test_batch),  TEST(test_longer_jobs),   TEST(test_print_and_dump), TEST(test_processes), TEST(test_sources_of_a_folder)
    };
    return cmocka_run_group_tests_name("test_cubin_jit", tests, NULL, NULL) != 0;
}
