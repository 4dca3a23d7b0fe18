/* test_old_host.c - a host built from frozen headers, those of 0.OLD_MINOR, drives today's plugins: the fixture and the cpu target.
 *
 * It knows only what that minor knew: its own host table, sizes and orders. Nothing of libgdn is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gdn_op_rule.h"
#include "gdn_plugin.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(GDN_ABI_MINOR == OLD_MINOR, "the frozen headers must come first");

static void old_log(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    (void)fprintf(stderr, "[%u] %s: %s\n", (unsigned)severity, area, msg);
}
static gdn_status old_lever(void *user, const char *key, gdn_lever *out) {
    (void)user;
    (void)key;
    (void)out;
    return GDN_ABSENT; /* an old host need not know a newer plugin's levers */
}
static uint32_t old_once(void *user, uint32_t slot) {
    (void)user;
    (void)slot;
    return 0;
}
static gdn_status old_count(void *user, uint32_t *out) {
    (void)user;
    *out = 1;
    return GDN_OK;
}
static gdn_status old_device(void *user, int32_t ordinal, gdn_device *out) {
    (void)user;
    const gdn_device d = { .struct_size = out->struct_size < sizeof d ? out->struct_size : (uint32_t)sizeof d,
                           .ordinal = ordinal,
                           .name = "old host" };
    memcpy(out, &d, d.struct_size);
    return GDN_OK;
}
static gdn_status old_alloc(void *user, int32_t ordinal, uint64_t bytes, uint64_t *out) {
    (void)user;
    (void)ordinal;
    void *p = aligned_alloc(256, (size_t)((bytes + 256) & ~(uint64_t)255));
    *out = (uint64_t)(uintptr_t)p;
    return p ? GDN_OK : GDN_E_NOMEM;
}
static void old_free(void *user, int32_t ordinal, uint64_t ptr) {
    (void)user;
    (void)ordinal;
    free((void *)(uintptr_t)ptr);
}
static const gdn_backend old_backend = { .struct_size = (uint32_t)sizeof old_backend,
                                         .abi_minor = OLD_MINOR,
                                         .name = "old",
                                         .device_count = old_count,
                                         .device = old_device,
                                         .mem_alloc = old_alloc,
                                         .mem_free = old_free };
static const gdn_host old_host = { .struct_size = (uint32_t)sizeof old_host,
                                   .abi_minor = OLD_MINOR,
                                   .log = old_log,
                                   .lever = old_lever,
                                   .once = old_once,
                                   .backend = &old_backend };

/* Opens, plans flag_clear, launches it, and answers what the flag became. */
static uint32_t drive(const char *path, const char *target) {
    char why[512] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_ctx *ctx = NULL;
    gdn_plan *plan = NULL;
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    uint32_t flag = 5;
    const uint64_t ptr = (uint64_t)(uintptr_t)&flag;
    const gdn_flag_shape shape = { { (uint32_t)sizeof shape, GDN_OP_FLAG_CLEAR, 0, 0 } };
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = 1, .ptr = &ptr };
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    gdn_plugin_query_fn query;
    void *symbol = dlsym(handle, "gdn_plugin_query");
    assert_non_null(symbol);
    memcpy(&query, &symbol, sizeof query);
    const gdn_plugin *p = query(GDN_ABI_MAJOR, GDN_ABI_MINOR);
    assert_non_null(p);
    assert_int_equal(p->magic, GDN_ABI_MAGIC);
    assert_int_equal(p->abi_major, GDN_ABI_MAJOR);
    assert_true(p->struct_size >= GDN_THROUGH(gdn_plugin, ops));
    assert_string_equal(p->target, target);
    assert_true(p->ops->struct_size >= GDN_THROUGH(gdn_vtable, explain));
    if (p->ops->init(&old_host, 0, &ctx, &err) != GDN_OK) fail_msg("init: %s", why);
    if (p->ops->plan(ctx, &shape.base, NULL, &plan, &err) != GDN_OK) fail_msg("plan: %s", why);
    assert_int_equal(p->ops->explain(plan, 0, NULL, &route), GDN_OK);
    assert_non_null(route.entry);
    assert_int_equal(p->ops->launch(plan, &args), GDN_OK);
    p->ops->destroy(plan);
    p->ops->destroy(NULL);
    p->ops->fini(ctx);
    p->ops->fini(NULL);
    return flag;
}

static void test_fixture(void **state) {
    (void)state;
    assert_int_equal(drive(GDN_BINARY_DIR "/tests/abi/fixtures/libgdn_good.so", "good"), 7);
    assert_int_equal(drive(GDN_BINARY_DIR "/tests/abi/fixtures/libgdn_newer.so", "newer"), 7);
}

static void test_cpu(void **state) {
    (void)state;
    assert_int_equal(drive(GDN_PLUGIN_DIR "/libgdn_cpu.so", "cpu"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fixture), cmocka_unit_test(test_cpu) };
    return cmocka_run_group_tests_name("old host", tests, NULL, NULL) != 0;
}
