/* test_backend_host.c - the backend for host memory: alignment, sizes at the edge, copies, what it refuses, and no kernels. */
#include "host_test.h"

/* AddressSanitizer ends the program at sizes that malloc refuses, unless it is told otherwise here. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

static const gdn_backend *b;
static int setup(void **state) {
    (void)state;
    b = gdn__host_backend();
    return b ? 0 : -1;
}

static void test_device(void **state) {
    (void)state;
    uint32_t n = 9;
    struct {
        gdn_device d;
        char canary;
    } out = { .canary = 'x' };
    assert_int_equal(b->device_count(b->user, &n), GDN_OK);
    assert_int_equal(n, 1);
    assert_int_equal(b->device_count(b->user, NULL), GDN_E_ARG);
    out.d.struct_size = (uint32_t)sizeof out.d;
    assert_int_equal(b->device(b->user, 0, &out.d), GDN_OK);
    assert_true(strlen(out.d.name) > 0);
    assert_null(strchr(out.d.name, '\n'));
    assert_int_equal(out.d.cc_major, 0);
    assert_int_equal(out.d.sm_count, 0);
    assert_true(out.d.memory_bytes > 1 << 20);
    assert_int_equal(b->device(b->user, 1, &out.d), GDN_E_ARG);
    assert_int_equal(b->device(b->user, -1, &out.d), GDN_E_ARG);
    assert_int_equal(b->device(b->user, 0, NULL), GDN_E_ARG);
    out.d.struct_size = 4;
    assert_int_equal(b->device(b->user, 0, &out.d), GDN_E_ABI);
    out.d.struct_size = GDN_THROUGH(gdn_device, name); /* an older caller */
    out.d.memory_bytes = 77;
    assert_int_equal(b->device(b->user, 0, &out.d), GDN_OK);
    assert_int_equal(out.d.memory_bytes, 77);
    out.d.struct_size = 1000; /* a newer one */
    assert_int_equal(b->device(b->user, 0, &out.d), GDN_OK);
    assert_int_equal(out.d.struct_size, sizeof out.d);
    assert_int_equal(out.canary, 'x');
}

static void test_memory(void **state) {
    (void)state;
    static const uint64_t sizes[] = { 0, 1, 255, 256, 257, 1 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t p = 0;
        assert_int_equal(b->mem_alloc(b->user, 0, sizes[i], &p), GDN_OK);
        assert_true(p != 0 && p % 256 == 0);
        assert_int_equal(b->fill(b->user, 0, NULL, p, 0xa5, sizes[i]), GDN_OK); /* every byte is ours */
        b->mem_free(b->user, 0, p);
    }
    static const uint64_t huge[] = { UINT64_MAX, UINT64_MAX - 254, (uint64_t)INT64_MAX + 1, INT64_MAX, INT64_MAX - 256 };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        uint64_t p = 9;
        assert_int_equal(b->mem_alloc(b->user, 0, huge[i], &p), GDN_E_NOMEM);
        assert_int_equal(p, 0);
    }
    uint64_t p = 9;
    assert_int_equal(b->mem_alloc(b->user, 1, 16, &p), GDN_E_ARG);
    assert_int_equal(p, 0);
    assert_int_equal(b->mem_alloc(b->user, 0, 16, NULL), GDN_E_ARG);
    b->mem_free(b->user, 0, 0);
}

static void test_copies(void **state) {
    (void)state;
    uint64_t p = 0;
    char back[16] = { 0 };
    assert_int_equal(b->mem_alloc(b->user, 0, 16, &p), GDN_OK);
    assert_int_equal(b->fill(b->user, 0, NULL, p, 7, 16), GDN_OK);
    assert_int_equal(b->copy_in(b->user, 0, NULL, p + 4, "abcd", 4), GDN_OK);
    assert_int_equal(b->copy_out(b->user, 0, NULL, back, p, 16), GDN_OK);
    assert_memory_equal(back, "\7\7\7\7abcd\7\7\7\7\7\7\7\7", 16);
    assert_int_equal(b->fill(b->user, 0, NULL, p, 256, 16), GDN_E_ARG);
    assert_int_equal(b->fill(b->user, 0, NULL, 0, 1, 16), GDN_E_ARG);
    assert_int_equal(b->copy_in(b->user, 0, NULL, 0, "a", 1), GDN_E_ARG);
    assert_int_equal(b->copy_in(b->user, 0, NULL, p, NULL, 1), GDN_E_ARG);
    assert_int_equal(b->copy_out(b->user, 0, NULL, NULL, p, 1), GDN_E_ARG);
    assert_int_equal(b->copy_out(b->user, 0, NULL, back, 0, 1), GDN_E_ARG);
    /* no bytes: nothing to look at */
    assert_int_equal(b->copy_in(b->user, 0, NULL, 0, NULL, 0), GDN_OK);
    assert_int_equal(b->copy_out(b->user, 0, NULL, NULL, 0, 0), GDN_OK);
    assert_int_equal(b->fill(b->user, 0, NULL, 0, 1, 0), GDN_OK);
    assert_int_equal(b->sync(b->user, 0, NULL), GDN_OK);
    b->mem_free(b->user, 0, p);
}

static void test_no_kernels(void **state) {
    (void)state;
    assert_string_equal(b->name, "host");
    assert_int_equal(b->struct_size, sizeof *b);
    assert_int_equal(b->abi_minor, GDN_ABI_MINOR);
    assert_null(b->modules_load);
    assert_null(b->module_unload);
    assert_null(b->function);
    assert_null(b->set_smem);
    assert_null(b->capturing);
    assert_null(b->launch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_no_kernels),
    };
    return cmocka_run_group_tests_name("backend host", tests, setup, NULL) != 0;
}
