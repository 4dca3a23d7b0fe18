/* test_cuda_device.c - the CUDA backend on a real device and driver, where there is one: what the fake driver can only suppose.
 * Capture and loading in every mixture, lazy loading, refused images, a lost device, fork, and what a launch costs. */
#include "cuda_internal.h"
#include "host_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

static struct {
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **exec, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *exec, void *stream);
    int (*cuGraphExecDestroy)(void *exec);
    int (*cuGraphDestroy)(void *graph);
} drv;
enum { BLOCKING = 0, NON_BLOCKING = 1, GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

static const gdn_backend *b;
static gdn__cuda *cu;
static gdn__env env;
static heard h;
static char folder[64], arch[16];
static const char source[] =
    "extern \"C\" __global__ void add(float *x, int n, float v) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += v; }\n"
    "extern \"C\" __global__ void nothing() {}\n"
    "extern \"C\" __global__ void fault(float *x) { *x = 1.f; }\n";

static void find(const char *name, void *function) {
    void *symbol = dlsym(cu->api.library, name);
    if (!symbol) fail_msg("%s", name);
    memcpy(function, &symbol, sizeof symbol);
}

static const gdn_backend *open_real(gdn_text *err) {
    const gdn__log log = log_to(&h, GDN_LOG_DEBUG);
    const gdn_backend *out = NULL;
    return gdn__cuda_backend_open(&log, &env, &out, err) == GDN_OK ? out : NULL;
}

static void *load(const char *name, const char *text) {
    const gdn_compile_job job = { .struct_size = sizeof job, .name = name, .source = text, .arch = arch };
    void *module = NULL;
    gdn_status st;
    reason r;
    if (b->modules_load(b->user, 0, 1, &job, &module, &st, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
    return module;
}
static void *entry(void *module, const char *name) {
    void *fn = NULL;
    if (b->function(b->user, module, name, &fn) != GDN_OK) fail_msg("%s", h.text);
    return fn;
}
static gdn_status add(void *fn, void *stream, uint64_t x, int n, float v) {
    const gdn_dims d = { .grid = { (uint32_t)(n + 127) / 128, 1, 1 }, .block = { 128, 1, 1 } };
    void *params[] = { &x, &n, &v };
    return b->launch(b->user, fn, &d, stream, params);
}
static void expect_all(void *stream, uint64_t x, float v) {
    float back[256];
    assert_int_equal(b->copy_out(b->user, 0, stream, back, x, sizeof back), GDN_OK);
    for (int i = 0; i < 256; i++)
        if (!(back[i] == v)) fail_msg("x[%d] is %g, not %g", i, (double)back[i], (double)v);
}
static uint64_t zeros(void) {
    uint64_t x;
    assert_int_equal(b->mem_alloc(b->user, 0, 1024, &x), GDN_OK);
    assert_int_equal(b->fill(b->user, 0, NULL, x, 0, 1024), GDN_OK);
    assert_int_equal(b->sync(b->user, 0, NULL), GDN_OK);
    return x;
}
static void *stream_of(unsigned flags) {
    gdn__cuda_scope s;
    void *stream = NULL;
    assert_int_equal(gdn__cuda_enter(cu, 0, true, &s, NULL), GDN_OK);
    assert_int_equal(drv.cuStreamCreate(&stream, flags), 0);
    gdn__cuda_leave(&s);
    return stream;
}
/* Replays what was captured, n times; the capture must have survived. */
static void replay(void *stream, int times_) {
    gdn__cuda_scope s;
    void *graph = NULL, *exec = NULL;
    assert_int_equal(gdn__cuda_enter(cu, 0, false, &s, NULL), GDN_OK);
    assert_int_equal(drv.cuStreamEndCapture(stream, &graph), 0);
    assert_int_equal(drv.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (int i = 0; i < times_; i++) assert_int_equal(drv.cuGraphLaunch(exec, stream), 0);
    assert_int_equal(cu->api.cuStreamSynchronize(stream), 0);
    assert_int_equal(drv.cuGraphExecDestroy(exec), 0);
    assert_int_equal(drv.cuGraphDestroy(graph), 0);
    gdn__cuda_leave(&s);
}
static void begin(void *stream, int mode) {
    gdn__cuda_scope s;
    assert_int_equal(gdn__cuda_enter(cu, 0, false, &s, NULL), GDN_OK);
    assert_int_equal(drv.cuStreamBeginCapture_v2(stream, mode), 0);
    gdn__cuda_leave(&s);
}
static void destroy(void *stream) {
    assert_int_equal(drv.cuStreamDestroy_v2(stream), 0);
}

static void test_compute(void **state) {
    (void)state;
    void *module = load("device.cu", source), *fn = entry(module, "add"), *side = stream_of(NON_BLOCKING);
    const uint64_t x = zeros();
    assert_int_equal(add(fn, side, x, 256, 2.f), GDN_OK);
    expect_all(side, x, 2.f);
    assert_int_equal(b->set_smem(b->user, fn, 96 << 10), GDN_OK);
    void *none;
    assert_int_equal(b->function(b->user, module, "nothere", &none), GDN_E_LOAD);
    b->mem_free(b->user, 0, x);
    b->module_unload(b->user, 0, module);
    destroy(side);
}

/* B187, B188: the very first launch of a function is inside a capture, in each mode, on each kind of stream; what is refused
 * while capturing leaves the capture whole. */
static void test_first_launch_captured(void **state) {
    (void)state;
    for (int mode = GLOBAL; mode <= RELAXED; mode++)
        for (unsigned flags = BLOCKING; flags <= NON_BLOCKING; flags++) {
            void *module = load("device.cu", source), *fn = entry(module, "add"), *stream = stream_of(flags);
            const uint64_t x = zeros();
            float host[256];
            uint32_t yes = 0;
            begin(stream, mode);
            assert_int_equal(b->capturing(b->user, 0, stream, &yes), GDN_OK);
            assert_int_equal(yes, 1);
            assert_int_equal(add(fn, stream, x, 256, 1.f), GDN_OK);
            assert_int_equal(b->copy_in(b->user, 0, stream, x, host, sizeof host), GDN_E_CAPTURE);
            assert_int_equal(b->copy_out(b->user, 0, stream, host, x, sizeof host), GDN_E_CAPTURE);
            assert_int_equal(b->sync(b->user, 0, stream), GDN_E_CAPTURE);
            if (flags == BLOCKING) { /* the legacy stream would wait for it */
                assert_int_equal(b->capturing(b->user, 0, NULL, &yes), GDN_OK);
                assert_int_equal(yes, 1);
            }
            replay(stream, 3);
            expect_all(stream, x, 3.f);
            assert_int_equal(b->capturing(b->user, 0, stream, &yes), GDN_OK);
            assert_int_equal(yes, 0);
            b->mem_free(b->user, 0, x);
            b->module_unload(b->user, 0, module);
            destroy(stream);
        }
}

typedef struct other {
    gdn_status load, function, alloc, smem;
} other;
static void *work_beside(void *arg) {
    other *o = arg;
    const gdn_compile_job job = { .struct_size = sizeof job, .name = "beside.cu", .source = source, .arch = arch };
    void *module = NULL, *fn = NULL;
    uint64_t p = 0;
    (void)b->modules_load(b->user, 0, 1, &job, &module, &o->load, NULL);
    o->function = module ? b->function(b->user, module, "add", &fn) : GDN_E_LOAD;
    o->smem = fn ? b->set_smem(b->user, fn, 65536) : GDN_E_LOAD;
    o->alloc = b->mem_alloc(b->user, 0, 4096, &p);
    b->mem_free(b->user, 0, p);
    b->module_unload(b->user, 0, module);
    return NULL;
}
/* B25: another thread loads, allocates, frees and unloads while this one captures, in every mode. And the same from the
 * capturing thread itself: the plugin asks first, but nothing breaks if it does not. */
static void test_load_beside_capture(void **state) {
    (void)state;
    void *module = load("device.cu", source), *fn = entry(module, "add");
    for (int mode = GLOBAL; mode <= RELAXED; mode++)
        for (unsigned flags = BLOCKING; flags <= NON_BLOCKING; flags++)
            for (int same_thread = 0; same_thread < 2; same_thread++) {
                void *stream = stream_of(flags);
                const uint64_t x = zeros();
                other o = { 77, 77, 77, 77 };
                pthread_t t;
                begin(stream, mode);
                assert_int_equal(add(fn, stream, x, 256, 1.f), GDN_OK);
                if (same_thread) {
                    (void)work_beside(&o);
                } else {
                    assert_int_equal(pthread_create(&t, NULL, work_beside, &o), 0);
                    assert_int_equal(pthread_join(t, NULL), 0);
                }
                print_message("mode %d, %s stream, %s thread: load %d, function %d, attribute %d, alloc %d\n", mode,
                              flags ? "non-blocking" : "blocking", same_thread ? "same" : "another", (int)o.load, (int)o.function,
                              (int)o.smem, (int)o.alloc);
                replay(stream, 2); /* the capture survived */
                expect_all(stream, x, 2.f);
                assert_int_equal(o.load, GDN_OK);
                assert_int_equal(o.function, GDN_OK);
                assert_int_equal(o.smem, GDN_OK);
                assert_int_equal(o.alloc, GDN_OK);
                b->mem_free(b->user, 0, x);
                destroy(stream);
            }
    b->module_unload(b->user, 0, module);
}

/* Images that verify and that the driver refuses: what it says, and that the module is made anew. */
static void test_refused_images(void **state) {
    (void)state;
    static const char *const kinds[] = { "cut in half", "zeros behind its head", "of another architecture" };
    reason r;
    for (int kind = 0; kind < 3; kind++) {
        gdn_compile_job job = { .struct_size = sizeof job, .name = "refused.cu", .source = source, .arch = arch };
        gdn_status st;
        gdn__cubin c;
        char root[96], id[256];
        gdn__key key;
        job.name = kind == 0 ? "refused0.cu" : kind == 1 ? "refused1.cu" : "refused2.cu";
        gdn_compile_job made = job;
        if (kind == 2) made.arch = "sm_121f";
        if (gdn__jit_get(&cu->jit, 1, &made, NULL, NULL, &c, &st, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
        (void)snprintf(root, sizeof root, "%s/v1", folder);
        (void)snprintf(id, sizeof id, "%s/%s", root, cu->jit.nvrtc.id);
        assert_int_equal(gdn__cubin_key(&job, cu->jit.nvrtc.id, &key), GDN_OK);
        if (kind == 1) memset((char *)c.data + 256, 0, c.size - 256);
        const gdn__entry_facts facts = { &job, cu->jit.nvrtc.id, 1 };
        assert_int_equal(gdn__entry_write(id, &key, &facts, c.data, kind == 0 ? c.size / 2 : c.size, reason_of(&r)), GDN_OK);
        gdn__cubin_free(&c);
        h.text[0] = '\0';
        void *module = load(job.name, source);
        const char *said = strstr(h.text, "cuda: refused");
        if (!said) fail_msg("the driver took an image %s: %s", kinds[kind], h.text);
        print_message("an image %s: %.*s\n", kinds[kind], (int)strcspn(said, "\n"), said);
        (void)entry(module, "add");
        b->module_unload(b->user, 0, module);
    }
    gdn_compile_job job = { .struct_size = sizeof job, .name = "a.cu", .source = source, .arch = "sm_121f" };
    void *module;
    gdn_status st;
    if (cu->dev[0].info.cc_major != 12) {
        assert_int_equal(b->modules_load(b->user, 0, 1, &job, &module, &st, reason_of(&r)), GDN_E_ARCH);
        assert_contains(r.buf, "does not run on device 0");
    }
}

static int child_is_refused(void) {
    uint64_t p;
    uint32_t n;
    return b->mem_alloc(b->user, 0, 16, &p) == GDN_E_FORKED && b->device_count(b->user, &n) == GDN_E_FORKED &&
                   b->sync(b->user, 0, NULL) == GDN_E_FORKED
               ? 0
               : 1;
}
static void test_fork(void **state) {
    (void)state;
    assert_int_equal(in_child(child_is_refused), 0);
    const uint64_t x = zeros();
    expect_all(NULL, x, 0.f);
    b->mem_free(b->user, 0, x);
}

static double ns_a_launch(bool bare, void *fn, void *stream) {
    enum { N = 20000 };
    const gdn__cuda_function *f = fn;
    const gdn_dims d = { .grid = { 1, 1, 1 }, .block = { 32, 1, 1 } };
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double begin_ = gdn__now_ms();
        for (int i = 0; i < N; i++) {
            if (bare)
                (void)cu->api.cuLaunchKernel(f->fn, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
            else
                (void)b->launch(b->user, fn, &d, stream, NULL);
            if (i % 500 == 499) (void)cu->api.cuStreamSynchronize(stream); /* the queue never fills */
        }
        const double ns = (gdn__now_ms() - begin_) * 1e6 / N;
        if (ns < best) best = ns;
    }
    return best;
}
static void test_launch_cost(void **state) {
    (void)state;
    void *module = load("device.cu", source), *fn = entry(module, "nothing"), *stream = stream_of(NON_BLOCKING);
    gdn__cuda_scope s;
    const double pushed = ns_a_launch(false, fn, stream);
    assert_int_equal(gdn__cuda_enter(cu, 0, false, &s, NULL), GDN_OK);
    const double bare = ns_a_launch(true, fn, stream), ours = ns_a_launch(false, fn, stream);
    gdn__cuda_leave(&s);
    print_message("a launch: bare %.0f ns, through the backend %.0f ns (context current), %.0f ns (pushed)\n", bare, ours, pushed);
    b->module_unload(b->user, 0, module);
    destroy(stream);
}

/* From nothing, from the cache, and from a folder with NVRTC hidden. */
static void test_starts(void **state) {
    (void)state;
    char cache[96];
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s", folder);
    const char *const hidden[] = { cache, "GDN_NVRTC=/nowhere/libnvrtc.so.13", NULL };
    void *module = load("starts.cu", source);
    b->module_unload(b->user, 0, module);
    gdn__env other_env;
    assert_int_equal(gdn__env_capture(&other_env, (char *const *)(uintptr_t)hidden, false), GDN_OK);
    const gdn_backend *before = b;
    const gdn__log log = log_to(&h, GDN_LOG_DEBUG);
    assert_int_equal(gdn__cuda_backend_open(&log, &other_env, &b, NULL), GDN_OK);
    const double t0 = gdn__now_ms();
    module = load("starts.cu", source);
    (void)entry(module, "add");
    print_message("a module from the cache, NVRTC hidden: %.2f ms\n", gdn__now_ms() - t0);
    b->module_unload(b->user, 0, module);
    gdn__cuda_backend_close(b);
    gdn__env_drop(&other_env);
    b = before;
}

/* B196: in a process of its own, before this one touches the driver. */
static int lost_device(void) {
    reason r;
    b = open_real(reason_of(&r));
    if (!b) return 0;
    cu = b->user;
    const gdn_device *d = &cu->dev[0].info;
    (void)snprintf(arch, sizeof arch, "sm_%u%u", (unsigned)d->cc_major, (unsigned)d->cc_minor);
    void *module = load("device.cu", source), *fault = entry(module, "fault"), *fn = entry(module, "add");
    const uint64_t x = zeros();
    uint64_t bad = 0x10, y;
    void *params[] = { &bad };
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
    float host[4];
    if (b->launch(b->user, fault, &dims, NULL, params) != GDN_OK) return 2;
    const double t0 = gdn__now_ms();
    h.text[0] = '\0';
    const bool all = b->sync(b->user, 0, NULL) == GDN_E_DRIVER && b->mem_alloc(b->user, 0, 64, &y) == GDN_E_DRIVER &&
                     b->copy_in(b->user, 0, NULL, x, host, 16) == GDN_E_DRIVER &&
                     b->copy_out(b->user, 0, NULL, host, x, 16) == GDN_E_DRIVER && b->fill(b->user, 0, NULL, x, 0, 16) == GDN_E_DRIVER &&
                     add(fn, NULL, x, 4, 1.f) == GDN_E_DRIVER;
    b->module_unload(b->user, 0, module);
    gdn__cuda_backend_close(b);
    const double ms = gdn__now_ms() - t0;
    print_message("a lost device: every entry said so in %.0f ms: %.*s\n", ms, (int)strcspn(h.text, "\n"), h.text);
    return all && strstr(h.text, "CUDA_ERROR_ILLEGAL_ADDRESS") && ms < 5000 ? 0 : 3;
}
static void test_lost_device(void **state) {
    assert_int_equal(*(int *)*state, 0);
}

int main(void) {
    char cache[96], command[128];
    reason r;
    (void)make_folder(folder);
    (void)snprintf(cache, sizeof cache, "GDN_CACHE_DIR=%s", folder);
    const char *nvrtc = getenv("GDN_NVRTC");
    char asked[512] = "GDN_NOTHING=";
    if (nvrtc) (void)snprintf(asked, sizeof asked, "GDN_NVRTC=%s", nvrtc);
    const char *const vars[] = { cache, asked, NULL };
    if (gdn__env_capture(&env, (char *const *)(uintptr_t)vars, false) != GDN_OK) return 1;
    static int lost;
    lost = in_child(lost_device);
    b = open_real(reason_of(&r));
    cu = b ? b->user : NULL;
    if (!cu || !cu->n || (cu->dev[0].info.cc_major != 9 && cu->dev[0].info.cc_major != 12)) {
        print_message("skipped: %s\n", !b ? r.buf : cu->n ? "the device is neither 9.0 nor 12.x" : "no device");
        (void)rmdir(folder);
        return 77;
    }
    find("cuStreamCreate", &drv.cuStreamCreate);
    find("cuStreamDestroy_v2", &drv.cuStreamDestroy_v2);
    find("cuStreamBeginCapture_v2", &drv.cuStreamBeginCapture_v2);
    find("cuStreamEndCapture", &drv.cuStreamEndCapture);
    find("cuGraphInstantiateWithFlags", &drv.cuGraphInstantiateWithFlags);
    find("cuGraphLaunch", &drv.cuGraphLaunch);
    find("cuGraphExecDestroy", &drv.cuGraphExecDestroy);
    find("cuGraphDestroy", &drv.cuGraphDestroy);
    (void)snprintf(arch, sizeof arch, "sm_%u%u", (unsigned)cu->dev[0].info.cc_major, (unsigned)cu->dev[0].info.cc_minor);
    print_message("%s, driver %d, fork guard by %s\n", cu->dev[0].name, cu->api.version, cu->pid ? "process id" : "page");
    const struct CMUnitTest tests[] = { cmocka_unit_test_prestate(test_lost_device, &lost),
                                        cmocka_unit_test(test_compute),
                                        cmocka_unit_test(test_first_launch_captured),
                                        cmocka_unit_test(test_load_beside_capture),
                                        cmocka_unit_test(test_refused_images),
                                        cmocka_unit_test(test_fork),
                                        cmocka_unit_test(test_launch_cost),
                                        cmocka_unit_test(test_starts) };
    const int failed = cmocka_run_group_tests_name("test_cuda_device", tests, NULL, NULL);
    gdn__cuda_backend_close(b);
    gdn__env_drop(&env);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return failed != 0 || system(command) != 0;
}
