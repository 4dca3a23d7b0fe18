/* jit_test.h - the just-in-time compiler on the fake NVRTCs, with a cache folder of its own for each test: test_cubin_jit, test_cubin_keep.
 */
#ifndef JIT_TEST_H
#define JIT_TEST_H
#include "cuda_test.h"

static fake_nvrtc *nvrtc13, *nvrtc12;
static char folder[64], cache_var[96], root[96];
static heard h;

typedef struct jit_env {
    gdn__env env;
    gdn__jit jit;
} jit_env;

static int setup(void **state) {
    (void)state;
    nvrtc13 = fake_compiler(FAKE_NVRTC13);
    nvrtc12 = fake_compiler(FAKE_NVRTC12);
    (void)make_folder(folder);
    (void)snprintf(cache_var, sizeof cache_var, "GDN_CACHE_DIR=%s", folder);
    (void)snprintf(root, sizeof root, "%s/v1", folder);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    assert_int_equal(atomic_load(&nvrtc13->live) + atomic_load(&nvrtc12->live), 0);
    remove_tree(folder);
    return 0;
}

/* nvrtc: the library's file; more: one more variable, or NULL. */
static void start(jit_env *j, const char *nvrtc, const char *more) {
    char asked[512];
    reason r;
    (void)snprintf(asked, sizeof asked, "GDN_NVRTC=%s", nvrtc);
    const char *const vars[] = { cache_var, asked, more, NULL };
    const gdn__log log = log_threads(&h);
    j->env = env_of(vars);
    assert_int_equal(gdn__jit_open(&j->jit, &j->env, &log, reason_of(&r)), GDN_OK);
}
static void stop(jit_env *j) {
    gdn__jit_close(&j->jit);
    gdn__env_drop(&j->env);
}
/* One module through a fresh opening: status, and what was compiled for it. */
static gdn_status make(const char *nvrtc, const char *more, const gdn_compile_job *job, reason *r) {
    jit_env j;
    gdn__cubin c;
    gdn_status st = 77;
    start(&j, nvrtc, more);
    const gdn_status first = gdn__jit_get(&j.jit, 1, job, NULL, NULL, &c, &st, reason_of(r));
    assert_int_equal(first, st);
    assert_int_equal(c.data != NULL, st == GDN_OK);
    if (st == GDN_OK)
        assert_memory_equal(c.data,
                            "\x7f"
                            "ELF",
                            4);
    gdn__cubin_free(&c);
    stop(&j);
    return st;
}
static int compiles(void) {
    return atomic_load(&nvrtc13->compiles) + atomic_load(&nvrtc12->compiles);
}
#define MAKE(nvrtc, more, job, compiled)                                       \
    do {                                                                       \
        const int before_ = compiles();                                        \
        reason why_;                                                           \
        if (make(nvrtc, more, job, &why_) != GDN_OK) fail_msg("%s", why_.buf); \
        assert_int_equal(compiles() - before_, compiled);                      \
    } while (0)

#endif
