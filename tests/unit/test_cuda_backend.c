/* test_cuda_backend.c - the driver side on a fake driver of two devices: opening, devices, contexts, memory, capture, fork. */
#include "cuda_internal.h"
#include "cuda_test.h"

#include <pthread.h>

static fake_cuda *fake;
static fake_cuda_context_fn fake_context;
static fake_cuda_current_fn fake_current;
static fake_cuda_set_fn fake_set;
static const char *const no_vars[] = { NULL };
static gdn__env env;
static heard h;
static gdn__log log_all;

static int setup(void **state) {
    (void)state;
    fake = fake_driver();
    function_of(FAKE_LIBCUDA, "fake_cuda_context", &fake_context);
    function_of(FAKE_LIBCUDA, "fake_cuda_current", &fake_current);
    function_of(FAKE_LIBCUDA, "fake_cuda_set_current", &fake_set);
    fake_set(NULL);
    env = env_of(no_vars);
    log_all = log_to(&h, GDN_LOG_DEBUG);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    gdn__env_drop(&env);
    return 0;
}

static const gdn_backend *open_fake(void) {
    const gdn_backend *b = NULL;
    reason r;
    if (gdn__cuda_backend_open_file(FAKE_LIBCUDA, &log_all, &env, &b, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    return b;
}
static void expect_nothing_left(void) {
    assert_int_equal(fake->allocs, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->libraries, 0);
    assert_int_equal(fake->retained[0], 0);
    assert_int_equal(fake->retained[1], 0);
    assert_int_equal(fake->violations, 0);
    assert_ptr_equal(fake_current(), NULL);
}
static gdn_status open_file(const char *file, reason *r) {
    const gdn_backend *b = (const gdn_backend *)(uintptr_t)1;
    const gdn_status st = gdn__cuda_backend_open_file(file, &log_all, &env, &b, reason_of(r));
    assert_null(b);
    return st;
}

static void test_open_refusals(void **state) {
    (void)state;
    reason r;
    assert_int_equal(open_file("/nowhere/libcuda.so.1", &r), GDN_E_NODRIVER);
    assert_contains(r.buf, "/nowhere/libcuda.so.1");
    assert_int_equal(open_file(FAKE_STUB, &r), GDN_E_NODRIVER); /* by its folder, before anything of it runs */
    assert_contains(r.buf, "stubs/libcuda.so.1 is a stub");
    assert_int_equal(open_file(FAKE_NVRTC13, &r), GDN_E_NODRIVER);
    assert_contains(r.buf, "cuGetProcAddress_v2");
    fake->init_error = 34;
    assert_int_equal(open_file(FAKE_LIBCUDA, &r), GDN_E_NODRIVER);
    assert_contains(r.buf, FAKE_LIBCUDA " is a stub for linking (error 34)");
    fake->init_error = 0, fake->lookup_error = 34;
    assert_int_equal(open_file(FAKE_LIBCUDA, &r), GDN_E_NODRIVER);
    assert_contains(r.buf, FAKE_LIBCUDA " is a stub for linking (error 34)");
    fake->lookup_error = 0;
    fake->init_error = 999;
    assert_int_equal(open_file(FAKE_LIBCUDA, &r), GDN_E_DRIVER);
    assert_contains(r.buf, "cuInit: CUDA_ERROR_FAKE (999)");
    fake->init_error = 0;
    fake->missing = "cuLaunchKernel";
    assert_int_equal(open_file(FAKE_LIBCUDA, &r), GDN_E_NODRIVER);
    assert_contains(r.buf, "does not offer cuLaunchKernel as of version 4.0");
    expect_nothing_left();
}

/* Every required entry is asked for by name; the optional ones may be absent. */
static void test_each_symbol(void **state) {
    (void)state;
    reason r;
#define ROW(name, version, params) #name,
    static const char *const required[] = { GDN__CUDA_REQUIRED(ROW) }, *const optional[] = { GDN__CUDA_OPTIONAL(ROW) };
#undef ROW
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        fake->missing = required[i];
        assert_int_equal(open_file(FAKE_LIBCUDA, &r), GDN_E_NODRIVER);
        assert_contains(r.buf, required[i]);
    }
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        fake->missing = optional[i];
        gdn__cuda_backend_close(open_fake());
    }
    expect_nothing_left();
}

static void test_devices(void **state) {
    (void)state;
    gdn_device list[1] = { { 0 } }, d = { .struct_size = sizeof d };
    uint32_t n = 0;
    reason r;
    assert_int_equal(gdn__cuda_probe_file(FAKE_LIBCUDA, list, 1, &n, reason_of(&r)), GDN_OK);
    assert_int_equal(n, 2); /* how many there are, though one was asked for */
    assert_int_equal(list[0].cc_major, 9);
    assert_int_equal(list[0].sm_count, 132);
    assert_null(strstr(fake->trail, "cuDevicePrimaryCtxRetain")); /* no context */

    const gdn_backend *b = open_fake();
    assert_int_equal(b->device_count(b->user, &n), GDN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(b->device(b->user, 1, &d), GDN_OK);
    assert_string_equal(d.name, "Fake 1");
    assert_int_equal(d.cc_major, 12);
    assert_int_equal(d.cc_minor, 1);
    assert_int_equal(d.smem_optin, 232448);
    assert_int_equal(d.memory_bytes, (uint64_t)1 << 36);
    assert_int_equal(b->device(b->user, 2, &d), GDN_E_ARG);
    assert_int_equal(b->device(b->user, -1, &d), GDN_E_ARG);
    gdn_device old = { .struct_size = (uint32_t)GDN_THROUGH(gdn_device, name), .memory_bytes = 7 };
    assert_int_equal(b->device(b->user, 0, &old), GDN_OK);
    assert_int_equal(old.memory_bytes, 7); /* a caller that knows less is not written past */
    assert_null(strstr(fake->trail, "cuDevicePrimaryCtxRetain"));
    gdn__cuda_backend_close(b);

    fake->init_error = 100; /* a driver and no device */
    assert_int_equal(gdn__cuda_probe_file(FAKE_LIBCUDA, list, 1, &n, reason_of(&r)), GDN_OK);
    assert_int_equal(n, 0);
    b = open_fake();
    assert_int_equal(b->device_count(b->user, &n), GDN_OK);
    assert_int_equal(n, 0);
    uint64_t p;
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_E_ARG);
    gdn__cuda_backend_close(b);
    expect_nothing_left();
}

/* Primary contexts: retained once a device, given back at the end; the caller's current context is what it was. B199, B202. */
static void test_contexts(void **state) {
    (void)state;
    const gdn_backend *b = open_fake();
    uint64_t p[2], q;
    fake_stream on1 = { .device = 1 };
    unsigned char bytes[64], back[64];
    memset(bytes, 0x5a, sizeof bytes);
    fake_set(fake_context(0));
    for (int i = 0; i < 2; i++) assert_int_equal(b->mem_alloc(b->user, i, 64, &p[i]), GDN_OK);
    assert_int_equal(b->mem_alloc(b->user, 1, 0, &q), GDN_OK);
    assert_true(q && q % 256 == 0);
    b->mem_free(b->user, 1, q);
    b->mem_free(b->user, 1, 0);
    assert_int_equal(fake->retained[0], 1);
    assert_int_equal(fake->retained[1], 1);
    assert_int_equal(b->copy_in(b->user, 1, &on1, p[1], bytes, 64), GDN_OK);
    assert_int_equal(b->fill(b->user, 1, &on1, p[1], 7, 8), GDN_OK);
    assert_int_equal(b->copy_out(b->user, 1, &on1, back, p[1], 64), GDN_OK);
    assert_int_equal(back[7], 7);
    assert_int_equal(back[8], 0x5a);
    assert_int_equal(b->sync(b->user, 1, &on1), GDN_OK);
    assert_int_equal(b->fill(b->user, 1, &on1, p[1], 256, 8), GDN_E_ARG);
    assert_int_equal(b->copy_in(b->user, 1, &on1, 0, bytes, 8), GDN_E_ARG);
    assert_int_equal(b->copy_in(b->user, 0, &on1, p[0], bytes, 8), GDN_E_DRIVER); /* a stream of another device */
    assert_contains(h.text, "cuMemcpyHtoDAsync: CUDA_ERROR_FAKE (400)");
    assert_ptr_equal(fake_current(), fake_context(0));
    for (int i = 0; i < 2; i++) b->mem_free(b->user, i, p[i]);
    fake_set(NULL);
    gdn__cuda_backend_close(b);
    expect_nothing_left();
}

/* B24, B188: a capturing stream is asked about and nothing else is called. */
static void test_capture(void **state) {
    (void)state;
    const gdn_backend *b = open_fake();
    fake_stream s = { .device = 0, .capturing = 1 };
    uint64_t p;
    uint32_t yes = 7;
    char bytes[16] = "";
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_OK);
    for (int invalidated = 1; invalidated <= 2; invalidated++) {
        s.capturing = invalidated;
        fake->trail[0] = '\0';
        assert_int_equal(b->copy_in(b->user, 0, &s, p, bytes, 16), GDN_E_CAPTURE);
        assert_int_equal(b->copy_out(b->user, 0, &s, bytes, p, 16), GDN_E_CAPTURE);
        assert_int_equal(b->sync(b->user, 0, &s), GDN_E_CAPTURE);
        assert_int_equal(b->capturing(b->user, 0, &s, &yes), GDN_OK);
        assert_int_equal(yes, 1);
        char only[512] = "";
        for (int i = 0; i < 4; i++) (void)strcat(only, "cuCtxPushCurrent cuStreamIsCapturing cuCtxPopCurrent ");
        assert_string_equal(fake->trail, only);
    }
    assert_contains(h.text, "copy_in: the stream is capturing; copy before the capture begins or after it has ended");
    assert_int_equal(b->fill(b->user, 0, &s, p, 1, 16), GDN_OK); /* a node of the graph */
    s.capturing = 0;
    assert_int_equal(b->capturing(b->user, 0, &s, &yes), GDN_OK);
    assert_int_equal(yes, 0);
    fake->implicit = 1; /* the legacy stream while another one captures */
    assert_int_equal(b->capturing(b->user, 0, NULL, &yes), GDN_OK);
    assert_int_equal(yes, 1);
    assert_int_equal(b->sync(b->user, 0, NULL), GDN_E_CAPTURE);
    fake->implicit = 0;
    b->mem_free(b->user, 0, p);
    /* 900 that arrives all the same is the same status with the same advice. */
    fake->fail_with = 900;
    fake->fail_at = fake->calls + 3; /* push, relax, alloc */
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_E_CAPTURE);
    assert_int_equal(p, 0);
    assert_contains(
        h.text,
        "cuMemAlloc: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900): as the test asked; make plans, memory and copies before the capture");
    fake->fail_at = 0;
    gdn__cuda_backend_close(b);
    expect_nothing_left();
}

/* B196: a device lost by somebody else's fault: every entry says so at once, nothing waits, nothing succeeds. */
static void test_sticky(void **state) {
    (void)state;
    const gdn_backend *b = open_fake();
    fake_stream s = { .device = 0 };
    uint64_t p, q;
    uint32_t yes;
    char bytes[16];
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_OK);
    fake->sticky = 700;
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &q), GDN_E_DRIVER);
    assert_int_equal(b->copy_in(b->user, 0, &s, p, bytes, 16), GDN_E_DRIVER);
    assert_int_equal(b->copy_out(b->user, 0, &s, bytes, p, 16), GDN_E_DRIVER);
    assert_int_equal(b->fill(b->user, 0, &s, p, 0, 16), GDN_E_DRIVER);
    assert_int_equal(b->sync(b->user, 0, &s), GDN_E_DRIVER);
    assert_int_equal(b->capturing(b->user, 0, &s, &yes), GDN_E_DRIVER);
    assert_int_equal(times(h.text, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"), 6);
    gdn__cuda_backend_close(b);
    fake->sticky = 0;
    free((void *)(uintptr_t)p); /* what the lost device held */
    fake_set(NULL);
}

static const gdn_backend *forked_backend;
static int in_the_child(void) {
    const gdn_backend *b = forked_backend;
    uint64_t p;
    uint32_t n;
    gdn_device d = { .struct_size = sizeof d };
    const int before = fake->calls;
    int ok = b->mem_alloc(b->user, 0, 16, &p) == GDN_E_FORKED && b->device_count(b->user, &n) == GDN_E_FORKED &&
             b->device(b->user, 0, &d) == GDN_E_FORKED && b->sync(b->user, 0, NULL) == GDN_E_FORKED &&
             b->capturing(b->user, 0, NULL, &n) == GDN_E_FORKED && b->launch(b->user, &p, NULL, NULL, NULL) == GDN_E_FORKED;
    gdn_status st;
    void *module;
    const gdn_compile_job job = job_for("a.cu", "k()", "sm_90");
    ok = ok && b->modules_load(b->user, 0, 1, &job, &module, &st, NULL) == GDN_E_FORKED && st == GDN_E_FORKED;
    b->mem_free(b->user, 0, 1);
    gdn__cuda_backend_close(b);
    return ok && fake->calls == before ? 0 : 1; /* not one call reached the driver */
}
static void test_fork(void **state) {
    (void)state;
    for (int no_wipe = 0; no_wipe < 2; no_wipe++) {
        atomic_store(&gdn__cuda_no_wipe, no_wipe != 0);
        const gdn_backend *b = open_fake();
        uint64_t p;
        assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_OK);
        forked_backend = b;
        assert_int_equal(in_child(in_the_child), 0);
        b->mem_free(b->user, 0, p); /* and the parent goes on */
        gdn__cuda_backend_close(b);
        expect_nothing_left();
    }
    atomic_store(&gdn__cuda_no_wipe, false);
}

static void *alloc_in_thread(void *arg) {
    const gdn_backend *b = arg;
    uint64_t p = 0;
    if (b->mem_alloc(b->user, 1, 64, &p) == GDN_OK) b->mem_free(b->user, 1, p);
    return p ? arg : NULL;
}
/* B202: a thread that never set a device. */
static void test_other_thread(void **state) {
    (void)state;
    const gdn_backend *b = open_fake();
    pthread_t t;
    void *answer = NULL;
    assert_int_equal(pthread_create(&t, NULL, alloc_in_thread, (void *)(uintptr_t)b), 0);
    assert_int_equal(pthread_join(t, &answer), 0);
    assert_ptr_equal(answer, b);
    gdn__cuda_backend_close(b);
    expect_nothing_left();
}

/* Opening fails at every driver call in turn. */
static void test_open_failures(void **state) {
    (void)state;
    fake->fail_with = 3;
    int refused = 0;
    for (int k = 1;; k++) {
        const gdn_backend *b = NULL;
        reason r;
        fake->calls = 0;
        fake->fail_at = k;
        const gdn_status st = gdn__cuda_backend_open_file(FAKE_LIBCUDA, &log_all, &env, &b, reason_of(&r));
        if (st == GDN_OK) {
            gdn__cuda_backend_close(b);
            assert_true(fake->calls < k);
            break;
        }
        refused++;
        assert_int_equal(st, GDN_E_DRIVER);
        assert_contains(r.buf, "CUDA_ERROR_FAKE (3)");
        expect_nothing_left();
    }
    assert_int_equal(refused, 3 + 2 * 7); /* init, version, count; seven questions a device */
    fake->fail_at = 0;
    for (int32_t k = 0;; k++) { /* and at every allocation */
        const gdn_backend *b = NULL;
        reason r;
        atomic_store(&gdn__alloc_fail_in, k);
        const gdn_status st = gdn__cuda_backend_open_file(FAKE_LIBCUDA, &log_all, &env, &b, reason_of(&r));
        atomic_store(&gdn__alloc_fail_in, -1);
        if (st == GDN_OK) {
            gdn__cuda_backend_close(b);
            assert_true(k > 1);
            break;
        }
        assert_int_equal(st, GDN_E_NOMEM);
        assert_null(b);
    }
    expect_nothing_left();
}

/* B157: capability and architecture, with two digits and three. */
static void test_archs(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        uint32_t number;
        char suffix;
    } good[] = { { "sm_90", 90, 0 }, { "sm_90a", 90, 'a' }, { "sm_103", 103, 0 }, { "sm_120", 120, 0 }, { "sm_121f", 121, 'f' } };
    uint32_t number;
    char suffix;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(gdn__arch_read(good[i].arch, &number, &suffix));
        assert_int_equal(number, good[i].number);
        assert_int_equal(suffix, good[i].suffix);
    }
    static const char *const bad[] = { "", "sm_", "sm_9", "sm_1210", "sm_90b", "sm_90af", "compute_90", "90", "sm_-90", "SM_90" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(gdn__arch_read(bad[i], &number, &suffix));
    static const struct {
        const char *arch;
        uint32_t major, minor;
        bool fits;
    } rows[] = { { "sm_90", 9, 0, true },     { "sm_90a", 9, 0, true },    { "sm_103", 10, 3, true },    { "sm_120", 12, 0, true },
                 { "sm_121", 12, 1, true },   { "sm_120", 12, 1, true },   { "sm_120f", 12, 1, true },   { "sm_121f", 12, 1, true },
                 { "sm_121f", 12, 0, false }, { "sm_120a", 12, 1, false }, { "sm_90a", 12, 1, false },   { "sm_90", 10, 0, false },
                 { "sm_121f", 9, 0, false },  { "sm_100", 12, 0, false },  { "compute_90", 9, 0, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (gdn__arch_fits(rows[i].arch, rows[i].major, rows[i].minor) != rows[i].fits) fail_msg("%s row %zu", rows[i].arch, i);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { TEST(test_open_refusals), TEST(test_each_symbol), TEST(test_devices), TEST(test_contexts),
                                        TEST(test_capture),       TEST(test_sticky),      TEST(test_fork),    TEST(test_other_thread),
                                        TEST(test_open_failures), TEST(test_archs) };
    return cmocka_run_group_tests_name("test_cuda_backend", tests, NULL, NULL) != 0;
}
