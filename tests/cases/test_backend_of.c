/* test_backend_of.c - what an engine does with gdn_backend_of: memory through it, and on a GPU target a kernel of its own. */
#include "fake_cuda.h"
#include "target.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void none_without_a_device(void **state) {
    (void)state;
    gdn_options opt = GDN_OPTIONS_INIT;
    gdn *dry = NULL;
    int32_t ordinal = 7;
    opt.target = "cpu";
    opt.flags = GDN_OPEN_DRY;
    assert_int_equal(gdn_open(&opt, &dry, NULL), GDN_OK);
    assert_null(gdn_backend_of(dry, &ordinal));
    assert_int_equal(ordinal, 0);
    assert_null(gdn_backend_of(NULL, NULL));
    gdn_close(dry);
}

/* The same memory as by gdn_mem_alloc: what one writes the other reads. */
static void memory(void **state) {
    (void)state;
    int32_t ordinal = -1;
    const gdn_backend *b = gdn_backend_of(target(), &ordinal);
    const char in[] = "sixteen bytes...";
    char out[sizeof in] = "";
    uint64_t p = 0;
    assert_non_null(b);
    assert_int_equal(ordinal, 0);
    assert_string_equal(b->name, target_is_cpu() ? "host" : "cuda");
    assert_true((b->launch == NULL) == target_is_cpu() && (b->modules_load == NULL) == target_is_cpu());
    assert_int_equal(b->mem_alloc(b->user, ordinal, sizeof in, &p), GDN_OK);
    assert_int_equal(b->copy_in(b->user, ordinal, NULL, p, in, sizeof in), GDN_OK);
    assert_int_equal(gdn_copy_out(target(), NULL, out, p, sizeof out), GDN_OK);
    assert_string_equal(out, in);
    b->mem_free(b->user, ordinal, p);
}

static fake_cuda *fake_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, "fake_cuda_state") : NULL;
    fake_cuda_fn f = NULL;
    memcpy(&f, &symbol, sizeof symbol);
    return f ? f() : NULL;
}

static void kernel(void **state) {
    (void)state;
    static const char source[] = "extern \"C\" __global__ void mine(float *x, float v) { x[threadIdx.x] += v; }\n";
    char arch[16], why[600] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_info info = { .struct_size = sizeof info };
    int32_t ordinal = 0;
    const gdn_backend *b = gdn_backend_of(target(), &ordinal);
    if (target_is_cpu()) skip();
    assert_int_equal(gdn_describe(target(), &info), GDN_OK);
    snprintf(arch, sizeof arch, "sm_%u%u", info.device.cc_major, info.device.cc_minor);
    const gdn_compile_job job = { .struct_size = sizeof job, .name = "mine.cu", .source = source, .arch = arch };
    void *module = NULL, *fn = NULL;
    gdn_status st = GDN_OK;
    if (b->modules_load(b->user, ordinal, 1, &job, &module, &st, &err) != GDN_OK) fail_msg("%s", why);
    assert_int_equal(b->function(b->user, module, "other", &fn), GDN_E_LOAD); /* the control */
    assert_int_equal(b->function(b->user, module, "mine", &fn), GDN_OK);
    uint64_t x = 0;
    float v = 2.5f, got[32] = { 0 };
    assert_int_equal(gdn_mem_alloc(target(), sizeof got, &x), GDN_OK);
    assert_int_equal(gdn_fill(target(), NULL, x, 0, sizeof got), GDN_OK);
    const gdn_dims dims = { .grid = { 1, 1, 1 }, .block = { 32, 1, 1 } };
    void *params[] = { &x, &v };
    fake_cuda *fake = fake_driver();
    const int before = fake ? fake->launches : 0;
    assert_int_equal(b->launch(b->user, fn, &dims, NULL, params), GDN_OK);
    assert_int_equal(gdn_copy_out(target(), NULL, got, x, sizeof got), GDN_OK);
    if (fake) { /* no kernels there: it notes the launch */
        assert_int_equal(fake->launches, before + 1);
        assert_int_equal(fake->block[0], 32);
        assert_ptr_equal(fake->launch_params, params);
    } else {
        for (int i = 0; i < 32; i++) assert_true(got[i] >= v && got[i] <= v);
    }
    gdn_mem_free(target(), x);
    b->module_unload(b->user, ordinal, module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_without_a_device),
        cmocka_unit_test(memory),
        cmocka_unit_test(kernel),
    };
    return cmocka_run_group_tests(tests, target_setup, target_teardown);
}
