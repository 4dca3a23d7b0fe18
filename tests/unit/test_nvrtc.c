/* test_nvrtc.c - the real NVRTC, where there is one: exact architectures, headers from memory, what it says when something is
 * wrong. Needs no device and no toolkit headers. */
#include "host_test.h"
#include "nvrtc_jit.h"

#include <sys/stat.h>

static gdn__nvrtc nvrtc;
static heard h;

static gdn_compile_job job_for(const char *name, const char *source, const char *arch) {
    return (gdn_compile_job) { .struct_size = (uint32_t)sizeof(gdn_compile_job), .name = name, .source = source, .arch = arch };
}
static bool holds(const gdn__compiled *c, const char *text) {
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= c->size; i++)
        if (!memcmp((const char *)c->data + i, text, n)) return true;
    return false;
}
static const char two_lines[] =
    "#include \"gdn_two.cuh\"\n"
    "extern \"C\" __global__ void twice(float *x, int n) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= FACTOR; }\n";
static const char *const names[] = { "gdn_two.cuh" }, *const bodies[] = { "#define FACTOR 2.f\n" };
static const char *const options[] = { "--std=c++17", "--fmad=false" };

/* B154: no header on the machine is needed; B155: CUDA_HOME is not looked at (it is set to nonsense in main). */
static void test_both_architectures(void **state) {
    (void)state;
    static const char *const archs[] = { "sm_90a", "sm_121f" };
    reason r;
    for (int i = 0; i < 2; i++) {
        gdn_compile_job j = job_for("twice.cu", two_lines, archs[i]);
        j.header_names = names, j.headers = bodies, j.n_headers = 1;
        j.options = options, j.n_options = 2;
        gdn__compiled c, again;
        if (gdn__nvrtc_compile(&nvrtc, &j, NULL, &c, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
        assert_memory_equal(c.data,
                            "\x7f"
                            "ELF",
                            4);
        assert_true(holds(&c, "twice"));
        assert_false(holds(&c, "thrice")); /* the control of that search */
        /* The same input gives the same bytes: the cache may be checked against a compile. */
        assert_int_equal(gdn__nvrtc_compile(&nvrtc, &j, NULL, &again, reason_of(&r)), GDN_OK);
        assert_int_equal(c.size, again.size);
        assert_memory_equal(c.data, again.data, c.size);
        gdn__compiled_free(&again);
        /* The extra option of --verbose gives registers and spills, and other bytes. */
        assert_int_equal(gdn__nvrtc_compile(&nvrtc, &j, "--ptxas-options=-v", &again, reason_of(&r)), GDN_OK);
        assert_non_null(again.log);
        assert_contains(again.log, "registers");
        gdn__compiled_free(&again);
        gdn__compiled_free(&c);
    }
}

static gdn_status refuse(const gdn_compile_job *j, reason *r) {
    gdn__compiled c;
    const gdn_status st = gdn__nvrtc_compile(&nvrtc, j, NULL, &c, reason_of(r));
    assert_null(c.data);
    gdn__compiled_free(&c);
    return st;
}

static void test_refusals(void **state) {
    (void)state;
    reason r;
    const char *plain = "extern \"C\" __global__ void k() {}\n";
    gdn_compile_job j = job_for("k.cu", plain, "sm_130");
    assert_int_equal(refuse(&j, &r), GDN_E_ARCH);
    assert_contains(r.buf, "sm_130 is wanted; NVRTC ");
    assert_contains(r.buf, " 90 ");
    j.arch = "sm_90f"; /* 9.0 has no family */
    assert_int_equal(refuse(&j, &r), GDN_E_ARCH);
    assert_contains(r.buf, "there is no sm_90f");
    j.arch = "compute_90";
    assert_int_equal(refuse(&j, &r), GDN_E_ARCH);
    assert_contains(r.buf, "PTX is never made");
    j = job_for("bad.cu", "\n\nextern \"C\" __global__ void k() { undefined_thing(); }\n", "sm_90a");
    assert_int_equal(refuse(&j, &r), GDN_E_COMPILE);
    assert_contains(r.buf, "bad.cu(3): error: identifier \"undefined_thing\" is undefined");
    j = job_for("half.cu", "#include <cuda_fp16.h>\n", "sm_90a"); /* B154: named, were a source to need one */
    assert_int_equal(refuse(&j, &r), GDN_E_COMPILE);
    assert_contains(r.buf, "cuda_fp16.h");
    /* B151: what needs the suffix fails without it, by name, here and not at the load. FP4 products themselves need a device of 12.x,
     * which no test machine has. */
    j = job_for("wg.cu", "extern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n", "sm_90");
    assert_int_equal(refuse(&j, &r), GDN_E_COMPILE);
    assert_contains(r.buf, "wgmma");
    j.arch = "sm_90a";
    gdn__compiled c;
    assert_int_equal(gdn__nvrtc_compile(&nvrtc, &j, NULL, &c, reason_of(&r)), GDN_OK);
    gdn__compiled_free(&c);
    static const char *const unknown[] = { "--no-such-option" };
    j = job_for("k.cu", plain, "sm_90a");
    j.options = unknown, j.n_options = 1;
    assert_int_equal(refuse(&j, &r), GDN_E_COMPILE);
    assert_contains(r.buf, "no-such-option");
}

/* The library without its builtins: a copy that asks for a name that is nowhere. */
static void test_no_builtins(void **state) {
    (void)state;
    char folder[64], copy[128], *bytes;
    struct stat st;
    reason r;
    (void)make_folder(folder);
    (void)snprintf(copy, sizeof copy, "%s/libnvrtc.so.13", folder);
    assert_int_equal(stat(nvrtc.path, &st), 0);
    const size_t n = (size_t)st.st_size;
    bytes = malloc(n);
    assert_non_null(bytes);
    FILE *f = fopen(nvrtc.path, "rbe");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    static const char name[] = "libnvrtc-builtins";
    unsigned patched = 0;
    for (char *p = bytes; (p = memchr(p, 'l', (size_t)(bytes + n - p))) != NULL && (size_t)(bytes + n - p) > sizeof name; p++)
        if (!memcmp(p, name, sizeof name - 1)) p[9] = 'X', patched++;
    assert_true(patched > 0);
    write_file(copy, bytes, n);
    free(bytes);
    gdn__nvrtc broken;
    const gdn__log log = log_to(&h, GDN_LOG_DEBUG);
    const gdn_status got = gdn__nvrtc_open(copy, &log, &broken, reason_of(&r));
    assert_int_equal(unlink(copy), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(got, GDN_E_NONVRTC);
    assert_contains(r.buf, "cannot compile one line");
    assert_contains(r.buf, "NVRTC's builtins library is missing or does not fit");
}

/* A whole start on an empty cache and again from it. */
static void test_cold_and_warm(void **state) {
    (void)state;
    char folder[64], cache[96], command[128], asked[1024];
    gdn_compile_job jobs[2] = { job_for("a.cu", two_lines, "sm_90a"), job_for("b.cu", two_lines, "sm_121f") };
    (void)make_folder(folder);
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s", folder);
    (void)snprintf(asked, sizeof asked, "GDN_NVRTC=%s", nvrtc.path);
    const char *const vars[] = { cache, asked, NULL };
    gdn__env env;
    double ms[2];
    assert_int_equal(gdn__env_capture(&env, (char *const *)(uintptr_t)vars, false), GDN_OK);
    for (int i = 0; i < 2; i++) jobs[i].header_names = names, jobs[i].headers = bodies, jobs[i].n_headers = 1;
    for (int round = 0; round < 2; round++) {
        const gdn__log log = log_to(&h, GDN_LOG_DEBUG);
        gdn__jit j;
        gdn__cubin c[2];
        gdn_status st[2];
        const double begin = gdn__now_ms();
        assert_int_equal(gdn__jit_open(&j, &env, &log, NULL), GDN_OK);
        if (gdn__jit_get(&j, 2, jobs, NULL, NULL, c, st, NULL) != GDN_OK) fail_msg("%s", h.text);
        ms[round] = gdn__now_ms() - begin;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(c[i].path != NULL, round == 1);
            gdn__cubin_free(&c[i]);
        }
        assert_int_equal(strstr(h.text, "NVRTC ") != NULL, round == 0); /* warm: not opened */
        gdn__jit_close(&j);
    }
    print_message("two modules: %.1f ms compiled, %.2f ms from the cache\n", ms[0], ms[1]);
    gdn__env_drop(&env);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const gdn__log log = log_to(&h, GDN_LOG_DEBUG);
    char why[2048] = "";
    gdn_text err = { why, sizeof why, 0 };
    (void)setenv("CUDA_HOME", "/nonexistent", 1);
    if (gdn__nvrtc_open(getenv("GDN_NVRTC"), &log, &nvrtc, &err) != GDN_OK) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (nvrtc.archs[nvrtc.n_archs - 1] < 121) {
        print_message("skipped: NVRTC %d.%d knows no sm_121\n", nvrtc.major, nvrtc.minor);
        return 77;
    }
    print_message("NVRTC %d.%d: %s\n", nvrtc.major, nvrtc.minor, nvrtc.path);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_both_architectures), cmocka_unit_test(test_refusals),
                                        cmocka_unit_test(test_no_builtins), cmocka_unit_test(test_cold_and_warm) };
    const int failed = cmocka_run_group_tests_name("test_nvrtc", tests, NULL, NULL);
    gdn__nvrtc_close(&nvrtc);
    return failed != 0;
}
