/* test_cuda_modules.c - modules, functions and launches on the fake driver and the fake NVRTC: two devices, lazy loading, refused
 * images, deferred unloading, failure at every driver call and every allocation in turn. */
#include "cuda_internal.h"
#include "cuda_test.h"

#include <pthread.h>

static fake_cuda *fake;
static fake_nvrtc *nvrtc;
static fake_cuda_context_fn fake_context;
static fake_cuda_current_fn fake_current;
static fake_cuda_set_fn fake_set;
static char folder[64], root[96];
static gdn__env env;
static heard h;
static const gdn_backend *b;

static const gdn_backend *open_again(void) {
    const gdn__log log = log_threads(&h);
    const gdn_backend *out = NULL;
    reason r;
    if (gdn__cuda_backend_open_file(FAKE_LIBCUDA, &log, &env, &out, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    return out;
}

static int setup(void **state) {
    char cache[96];
    (void)state;
    fake = fake_driver();
    nvrtc = fake_compiler(FAKE_NVRTC13);
    function_of(FAKE_LIBCUDA, "fake_cuda_context", &fake_context);
    function_of(FAKE_LIBCUDA, "fake_cuda_current", &fake_current);
    function_of(FAKE_LIBCUDA, "fake_cuda_set_current", &fake_set);
    fake_set(NULL);
    (void)make_folder(folder);
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s", folder);
    (void)snprintf(root, sizeof root, "%s/v1", folder);
    const char *const vars[] = { cache, "GDN_NVRTC=" FAKE_NVRTC13, NULL };
    env = env_of(vars);
    b = open_again();
    return 0;
}
static int teardown(void **state) {
    (void)state;
    gdn__cuda_backend_close(b);
    gdn__env_drop(&env);
    remove_tree(folder);
    return 0;
}
static void reopen(void) {
    gdn__cuda_backend_close(b);
    b = open_again();
}
static void expect_no_images(void) {
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->libraries, 0);
    assert_int_equal(fake->violations, 0);
    assert_int_equal(atomic_load(&nvrtc->live), 0);
}

static gdn_status load_one(int ordinal, const gdn_compile_job *job, void **module, reason *r) {
    gdn_status st = 77;
    const gdn_status first = b->modules_load(b->user, ordinal, 1, job, module, &st, reason_of(r));
    assert_int_equal(first, st);
    if ((st == GDN_OK) != (*module != NULL)) fail_msg("status %d with module %p", (int)st, *module);
    return st;
}

static void launched_with(const fake_stream *stream, void **params) {
    assert_int_equal(fake->grid[0], 3);
    assert_int_equal(fake->grid[1], 2);
    assert_int_equal(fake->block[0], 128);
    assert_int_equal(fake->smem, 4096);
    assert_ptr_equal(fake->launch_stream, stream);
    assert_ptr_equal(fake->launch_params, params);
}

/* One of each call, in order; then the launch alone. */
static void test_load_and_launch(void **state) {
    (void)state;
    const gdn_compile_job job = job_for("gates.cu", "k() twin()", "sm_90a");
    void *module, *fn = NULL, *again = NULL;
    reason r;
    fake_stream s = { .device = 0 };
    void *params[1] = { &r };
    const gdn_dims dims = { .grid = { 3, 2, 1 }, .block = { 128, 1, 1 }, .smem_bytes = 4096 };
    if (load_one(0, &job, &module, &r) != GDN_OK) fail_msg("%s", r.buf);
    assert_int_equal(fake->libraries, 1);
    assert_int_equal(fake->logs_given, 1);
    assert_contains(fake->trail, "cuLibraryLoadData cuLibraryGetModule "); /* not left to the driver's laziness */
    assert_contains(nvrtc->options, "--gpu-architecture=sm_90a ");
    assert_contains(h.text, "nvrtc: compile 1/1 gates.cu sm_90a");
    assert_contains(h.text, "(cached: 0)");
    assert_contains(h.text, "NVRTC 13.0: " FAKE_NVRTC13 " (GDN_NVRTC)");

    assert_int_equal(b->function(b->user, module, "k", &fn), GDN_OK);
    assert_int_equal(fake->func_loads, 1); /* B26: touched */
    assert_contains(fake->trail, "cuFuncLoad cuFuncGetAttribute cuFuncGetAttribute cuFuncSetAttribute ");
    assert_int_equal(b->function(b->user, module, "k", &again), GDN_OK);
    assert_ptr_equal(fn, again);
    assert_int_equal(b->function(b->user, module, "nothere", &again), GDN_E_LOAD);
    assert_null(again);
    assert_contains(h.text, "gates.cu has no entry 'nothere'");
    assert_int_equal(b->set_smem(b->user, fn, 232448), GDN_OK);
    assert_int_equal(fake->attribute, 232448);
    assert_int_equal(b->set_smem(b->user, fn, 232449), GDN_E_ARG);
    assert_contains(h.text, "k: 232449 bytes of shared memory, device 0 allows 232448");

    fake_set(fake_context(0));
    fake->trail[0] = '\0';
    assert_int_equal(b->launch(b->user, fn, &dims, &s, params), GDN_OK);
    assert_string_equal(fake->trail, "cuCtxGetCurrent cuLaunchKernel "); /* current already: nothing pushed */
    launched_with(&s, params);
    fake_set(NULL);
    fake->trail[0] = '\0';
    assert_int_equal(b->launch(b->user, fn, &dims, &s, params), GDN_OK);
    assert_string_equal(fake->trail, "cuCtxGetCurrent cuCtxPushCurrent cuLaunchKernel cuCtxPopCurrent ");
    fake_set(fake_context(0));
    fake->trail[0] = '\0';
    assert_int_equal(b->launch_early(b->user, fn, &dims, &s, params), GDN_OK);
    assert_string_equal(fake->trail, "cuCtxGetCurrent cuLaunchKernelEx ");
    launched_with(&s, params);
    fake_set(NULL);
    b->module_unload(b->user, 0, module);
    b->module_unload(b->user, 0, NULL);
    expect_no_images();
}

/* An older driver without the library calls. */
static void test_without_library(void **state) {
    (void)state;
    void *module, *fn;
    reason r;
    fake->no_library = 1;
    reopen();
    const gdn_compile_job job = job_for("gates.cu", "k()", "sm_90a"), bad = job_for("gates.cu", "k() REFUSE", "sm_90a");
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK);
    assert_int_equal(fake->modules, 1);
    assert_int_equal(fake->logs_given, 1);
    assert_int_equal(b->function(b->user, module, "k", &fn), GDN_OK);
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
    fake_set(fake_context(0));
    fake->trail[0] = '\0';
    assert_int_equal(b->launch_early(b->user, fn, &dims, NULL, NULL), GDN_OK);
    assert_string_equal(fake->trail, "cuCtxGetCurrent cuLaunchKernel ");
    fake_set(NULL);
    b->module_unload(b->user, 0, module);
    assert_int_equal(load_one(0, &bad, &module, &r), GDN_E_LOAD);
    assert_contains(r.buf, "cuModuleLoadDataEx: CUDA_ERROR_FAKE (200)");
    assert_contains(r.buf, "the linker's own words");
    expect_no_images();
}

/* B197, B199: two devices, each with its own module and functions; the pointers' device decides, not the current one. */
static void test_two_devices(void **state) {
    (void)state;
    const gdn_compile_job job[2] = { job_for("gates.cu", "k()", "sm_90a"), job_for("gates.cu", "k()", "sm_121f") };
    void *module[2], *fn[2];
    fake_stream s[2] = { { .device = 0 }, { .device = 1 } };
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
    reason r;
    for (int i = 0; i < 2; i++) {
        if (load_one(i, &job[i], &module[i], &r) != GDN_OK) fail_msg("%s", r.buf);
        assert_int_equal(b->function(b->user, module[i], "k", &fn[i]), GDN_OK);
    }
    for (int current = -1; current < 2; current++)
        for (int i = 0; i < 2; i++) {
            void *ctx = current < 0 ? NULL : fake_context(current);
            fake_set(ctx);
            assert_int_equal(b->launch(b->user, fn[i], &dims, &s[i], NULL), GDN_OK);
            assert_int_equal(fake->launched_on, i);
            assert_ptr_equal(fake_current(), ctx);
        }
    const int before = fake->launches;
    assert_int_equal(b->launch(b->user, fn[0], &dims, &s[1], NULL), GDN_E_ARG); /* the other device's stream */
    assert_int_equal(b->launch(b->user, fn[0], &dims, &s[1], NULL), GDN_E_ARG);
    assert_int_equal(
        times(h.text, "k on device 0: cuLaunchKernel: CUDA_ERROR_FAKE (400): as the test asked; the stream belongs to another device"), 1);
    assert_int_equal(fake->launches, before);
    assert_ptr_equal(fake_current(), fake_context(1));
    fake_set(NULL);
    for (int i = 0; i < 2; i++) b->module_unload(b->user, i, module[i]);
    expect_no_images();
}

/* B163 on devices, and the batch: what does not fit is named and does not stop the others. */
static void test_batch(void **state) {
    (void)state;
    const gdn_compile_job jobs[] = { job_for("a.cu", "a()", "sm_90a"),         job_for("other.cu", "k()", "sm_121f"),
                                     job_for("broken.cu", "FAIL", "sm_90a"),   job_for("b.cu", "b() WARN", "sm_90"),
                                     job_for("ptx.cu", "k()", "compute_90"),   job_for("empty.cu", "EMPTY", "sm_90a"),
                                     job_for("refused.cu", "REFUSE", "sm_90a") };
    enum { N = sizeof jobs / sizeof *jobs };
    void *modules[N];
    gdn_status st[N];
    char text[N][1024];
    gdn_text err[N];
    const gdn_status expected[N] = { GDN_OK, GDN_E_ARCH, GDN_E_COMPILE, GDN_OK, GDN_E_ARCH, GDN_E_COMPILE, GDN_E_LOAD };
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) err[i] = (gdn_text) { text[i], sizeof text[i], 0 };
        assert_int_equal(b->modules_load(b->user, 0, N, jobs, modules, st, err), GDN_E_ARCH); /* the first that failed */
        for (int i = 0; i < N; i++) {
            if (st[i] != expected[i]) fail_msg("%s: %d, %s", jobs[i].name, (int)st[i], text[i]);
            assert_int_equal(modules[i] != NULL, expected[i] == GDN_OK);
        }
        assert_contains(text[1], "other.cu: code for sm_121f does not run on device 0 (Fake 0, compute capability 9.0)");
        assert_contains(text[2], "broken.cu: did not compile for sm_90a with NVRTC 13.0 (" FAKE_NVRTC13 "): NVRTC_ERROR_COMPILATION\n");
        assert_contains(text[2], "broken.cu(3): error: identifier \"FAIL\" is undefined\n\n1 error detected"); /* the whole log */
        assert_contains(text[4], "ptx.cu: code for compute_90 does not run");
        assert_contains(text[5], "a cubin of 0 bytes");
        assert_contains(text[6], "refused.cu for sm_90a on device 0: cuLibraryLoadData: CUDA_ERROR_FAKE (200)");
        b->module_unload(b->user, 0, modules[0]);
        b->module_unload(b->user, 0, modules[3]);
        expect_no_images();
        /* The probe, five that reached the compiler, one again for the refused; the second round compiles nothing:
         * failures are remembered. empty.cu too. */
        if (round == 0) assert_int_equal(atomic_load(&nvrtc->compiles), 6);
    }
    assert_int_equal(atomic_load(&nvrtc->compiles), 6);
    assert_contains(h.text, "nvrtc: b.cu(1): warning #177-D");         /* at debug level */
    assert_contains(h.text, "nvrtc: broken.cu(3): error: identifier"); /* at error level */
    assert_contains(h.text, " broken.cu sm_90a ");
    /* Nothing half done: what failed is in no folder. */
    const tree t = count_tree(root);
    assert_int_equal(t.entries, 2); /* a, b */
    assert_int_equal(t.bad, 1);     /* refused: the compiler had no quarrel with it, the driver had */
    assert_int_equal(t.temps + t.locks, 0);
}

/* An image from the cache that the driver refuses: set aside, compiled once more. */
static void test_quarantine(void **state) {
    (void)state;
    const gdn_compile_job job = job_for("gates.cu", "k()", "sm_90a");
    void *module;
    reason r;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK);
    b->module_unload(b->user, 0, module);
    reopen();
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK); /* from the cache */
    assert_int_equal(atomic_load(&nvrtc->compiles), 2);       /* probe, module: NVRTC was not opened a second time */
    b->module_unload(b->user, 0, module);
    fake->refuse_next = 209;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK);
    assert_int_equal(atomic_load(&nvrtc->compiles), 4);
    tree t = count_tree(root);
    assert_int_equal(t.bad, 1);
    assert_int_equal(t.entries, 1);
    b->module_unload(b->user, 0, module);
    /* A device that is lost is no reason to throw code away. */
    reopen();
    fake->refuse_next = 700;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_E_DRIVER);
    assert_contains(r.buf, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    t = count_tree(root);
    assert_int_equal(t.bad, 1);
    assert_int_equal(t.entries, 1);
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK); /* and none to remember it as broken */
    b->module_unload(b->user, 0, module);
    expect_no_images();
}

/* One that is refused anew compiled too is not kept: the next start says so again, and takes nothing for whole. */
static void test_refused_again(void **state) {
    (void)state;
    const gdn_compile_job job = job_for("gates.cu", "k() REFUSE", "sm_90a");
    gdn__cuda *cu = b->user;
    gdn__cubin c;
    gdn_status st;
    void *module;
    reason r;
    assert_int_equal(gdn__jit_get(&cu->jit, 1, &job, NULL, NULL, &c, &st, reason_of(&r)), GDN_OK); /* into the cache, past the driver */
    gdn__cubin_free(&c);
    tree t = count_tree(root);
    assert_int_equal(t.entries, 1);
    for (int round = 0; round < 3; round++) {
        char said[600];
        const int before = atomic_load(&nvrtc->compiles);
        reopen();
        assert_int_equal(load_one(0, &job, &module, &r), GDN_E_LOAD);
        assert_int_equal(atomic_load(&nvrtc->compiles) - before, 2); /* the probe and one, however it came to that */
        (void)snprintf(said, sizeof said, "gates.cu, %s: refused by the driver and set aside in bad/: gates.cu for sm_90a", t.last);
        assert_int_equal(times(h.text, said), 1);
        assert_contains(h.text, "cuLibraryLoadData: CUDA_ERROR_FAKE (200)");
        const tree now = count_tree(root);
        assert_int_equal(now.entries, 0);
        assert_int_equal(now.bad, 1);
        assert_int_equal(load_one(0, &job, &module, &r), GDN_E_LOAD); /* remembered */
        assert_int_equal(atomic_load(&nvrtc->compiles) - before, 2);
    }
    expect_no_images();
}

/* Unloading while something is captured waits for a better moment: the next load, or close. */
static void test_deferred_unload(void **state) {
    (void)state;
    const gdn_compile_job job = job_for("gates.cu", "k()", "sm_90a"), other = job_for("conv.cu", "c()", "sm_90a");
    void *module, *second, *third;
    reason r;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_OK);
    fake->implicit = 1;
    fake->trail[0] = '\0';
    b->module_unload(b->user, 0, module);
    assert_null(strstr(fake->trail, "Unload"));
    assert_int_equal(fake->libraries, 1);
    fake->implicit = 0;
    assert_int_equal(load_one(0, &other, &second, &r), GDN_OK);
    assert_int_equal(fake->libraries, 1); /* the first is gone */
    fake->unload_error = 900;             /* a capture that the question did not show */
    b->module_unload(b->user, 0, second);
    assert_int_equal(fake->libraries, 1);
    assert_int_equal(load_one(0, &job, &third, &r), GDN_OK);
    assert_int_equal(fake->libraries, 1);
    fake->implicit = 1;
    b->module_unload(b->user, 0, third);
    reopen(); /* close leaves nothing */
    assert_int_equal(fake->libraries, 0);
    fake->implicit = 0;
    expect_no_images();
}

/* Failure at each driver call and at each allocation in turn: an error with a reason, nothing kept, and the next try works. */
static int whole_life(reason *r) {
    const gdn_compile_job jobs[2] = { job_for("a.cu", "a()", "sm_90a"), job_for("b.cu", "b()", "sm_90a") };
    void *modules[2] = { NULL, NULL }, *fn = NULL;
    gdn_status st[2];
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
    gdn_text err[2] = { { r->buf, sizeof r->buf, 0 }, { NULL, 0, 0 } };
    r->buf[0] = '\0';
    gdn_status first = b->modules_load(b->user, 0, 2, jobs, modules, st, err);
    for (int i = 0; i < 2; i++) assert_int_equal(modules[i] != NULL, st[i] == GDN_OK);
    if (first == GDN_OK) first = b->function(b->user, modules[0], "a", &fn);
    if (first == GDN_OK) first = b->set_smem(b->user, fn, 65536);
    if (first == GDN_OK) first = b->launch(b->user, fn, &dims, NULL, NULL);
    for (int i = 0; i < 2; i++) b->module_unload(b->user, 0, modules[i]);
    return first;
}
static void test_each_call_fails(void **state) {
    (void)state;
    reason r;
    int failures = 0, codes[] = { 3, 2, 700 };
    assert_int_equal(whole_life(&r), GDN_OK); /* fills the cache */
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        for (int k = 1;; k++) {
            reopen();
            fake->fail_with = codes[c];
            fake->fail_at = k;
            fake->calls = 0;
            const int st = whole_life(&r);
            const bool reached = fake->calls >= k;
            fake->fail_at = 0;
            assert_true(strstr(h.text, codes[c] == 2 ? "(2)" : codes[c] == 3 ? "(3)" : "(700)") || *r.buf || !reached);
            failures += st != GDN_OK;
            reopen(); /* what could not be unloaded at the moment of the failure is unloaded here, or was given up by the driver */
            if (fake->libraries > 0) { /* an unload that itself failed: the driver still has it, and said so */
                assert_int_equal(fake->libraries, 1);
                assert_contains(fake->trail, "cuLibraryUnload");
                fake->libraries = 0;
            }
            assert_int_equal(fake->violations, 0);
            assert_ptr_equal(fake_current(), NULL);
            assert_true(fake->retained[0] <= 1);
            fake->retained[0] = 0;
            assert_int_equal(whole_life(&r), GDN_OK);
            expect_no_images();
            if (!reached) break;
        }
    }
    assert_true(failures > 30);
    assert_int_equal(count_tree(root).bad, 0); /* no failure of a call was taken for a bad image */
}
static void test_each_allocation_fails(void **state) {
    (void)state;
    reason r;
    int failures = 0;
    for (int warm = 0; warm < 2; warm++)
        for (int32_t k = 0;; k++) {
            reopen();
            if (!warm) remove_tree(folder), assert_int_equal(mkdir(folder, 0700), 0);
            atomic_store(&gdn__alloc_fail_in, k);
            const int st = whole_life(&r);
            const bool reached = atomic_load(&gdn__alloc_fail_in) < 0;
            atomic_store(&gdn__alloc_fail_in, -1);
            if (st != GDN_OK && st != GDN_E_NOMEM && st != GDN_E_NONVRTC) fail_msg("allocation %d: %d %s", (int)k, st, r.buf);
            failures += st != GDN_OK;
            expect_no_images();
            if (!reached) break;
        }
    assert_true(failures > 10);
}

static void *use_in_thread(void *arg) {
    static char name[16][16];
    const uintptr_t i = (uintptr_t)arg;
    (void)snprintf(name[i], sizeof name[i], "m%u.cu", (unsigned)i % 4);
    const gdn_compile_job job = job_for(name[i], "k()", "sm_90a");
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
    void *module = NULL, *fn = NULL;
    gdn_status st;
    bool ok = b->modules_load(b->user, 0, 1, &job, &module, &st, NULL) == GDN_OK && b->function(b->user, module, "k", &fn) == GDN_OK &&
              b->launch(b->user, fn, &dims, NULL, NULL) == GDN_OK;
    b->module_unload(b->user, 0, module);
    return ok ? NULL : arg;
}
/* B189: the first calls of many threads at once. */
static void test_threads(void **state) {
    (void)state;
    pthread_t t[16];
    int failed = 0;
    for (uintptr_t i = 0; i < 16; i++) assert_int_equal(pthread_create(&t[i], NULL, use_in_thread, (void *)i), 0);
    for (int i = 0; i < 16; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(t[i], &bad), 0);
        failed += bad != NULL;
    }
    assert_int_equal(failed, 0);
}

/* Arguments that are not acceptable, before any driver call. */
static void test_bad_arguments(void **state) {
    (void)state;
    gdn_compile_job job = job_for("a.cu", "a()", "sm_90a");
    const char *null_option[] = { NULL }, *arch_option[] = { "--gpu-architecture=sm_80" };
    void *module;
    gdn_status st;
    reason r;
    assert_int_equal(b->modules_load(b->user, 0, 1, NULL, &module, &st, NULL), GDN_E_ARG);
    assert_int_equal(b->modules_load(b->user, 0, 0, NULL, NULL, NULL, NULL), GDN_OK);
    assert_int_equal(load_one(5, &job, &module, &r), GDN_E_ARG);
    assert_contains(r.buf, "device 5: there are 2");
    job.n_options = 1;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_E_ARG);
    assert_contains(r.buf, "module 0 ('a.cu'): a list is NULL");
    job.options = null_option;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_E_ARG);
    job.options = arch_option;
    assert_int_equal(load_one(0, &job, &module, &r), GDN_E_ARG);
    assert_contains(r.buf, "an option names an architecture");
    job = job_for("a.cu", NULL, "sm_90a");
    assert_int_equal(load_one(0, &job, &module, &r), GDN_E_ARG);
    job.struct_size = 16;
    assert_int_equal(b->modules_load(b->user, 0, 1, &job, &module, &st, NULL), GDN_E_ABI);
    assert_int_equal(b->function(b->user, NULL, "a", &module), GDN_E_ARG);
    assert_int_equal(b->set_smem(b->user, NULL, 1), GDN_E_ARG);
    assert_int_equal(b->launch(b->user, NULL, NULL, NULL, NULL), GDN_E_ARG);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_load_and_launch), TEST(test_without_library), TEST(test_two_devices),     TEST(test_batch),
        TEST(test_quarantine),      TEST(test_deferred_unload), TEST(test_each_call_fails), TEST(test_each_allocation_fails),
        TEST(test_threads),         TEST(test_bad_arguments),   TEST(test_refused_again)
    };
    return cmocka_run_group_tests_name("test_cuda_modules", tests, NULL, NULL) != 0;
}
