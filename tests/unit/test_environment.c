/* test_environment.c - the copy of the environment: what is taken, elevated programs, and names that nobody reads. */
#include "host_test.h"

static char *vars[] = { "PATH=/bin",
                        "GDN_TARGET=cpu",
                        "GDN_TARGET=second",
                        "GDN_LOG=",
                        "METRALE_GDN_PIPE=1",
                        "METRALE_GDN_PIPES=1", /* from here on: meant for a lever */
                        "METRALE_PREFILL_TC=1",
                        "METRALE_NO_GDN_QQQQQQQQQQQQQQQQQQQQQQQ=1",
                        "METRALE_W4A4_MX_NP=1",
                        "METRALE_SSM_BA_GATES=1",
                        "ATLAS_SSM_BA_GATES_HOPER=1",
                        "METRALE_OTHER=1", /* and not */
                        "METRALE_PIPE=1",
                        "METRALE_GPU_TIMEOUT=1",
                        "METRALE_=1",
                        "METRALE_SSM_STATE_DIR=/x",
                        "ATLAS_HOME=/x",
                        "ATLAS_GDN_WOA=1",
                        "ATLAS_SSM_BA_GATES_HOPPER=1",
                        "GDN_PLUGIN_PAHT=/x",
                        "GDN_CPU_ISA=base",
                        "GDN_QQQQQQQQQ=1",
                        "GDN_NO_VALUE",
                        NULL };

static void test_what_is_taken(void **state) {
    (void)state;
    gdn__env env;
    assert_int_equal(gdn__env_capture(&env, vars, false), GDN_OK);
    assert_string_equal(gdn__env_get(&env, "GDN_TARGET"), "cpu"); /* the first one, as getenv() */
    assert_string_equal(gdn__env_get(&env, "GDN_LOG"), "");
    assert_string_equal(gdn__env_get(&env, "METRALE_GDN_PIPE"), "1");
    assert_string_equal(gdn__env_get(&env, "ATLAS_SSM_BA_GATES_HOPPER"), "1");
    assert_null(gdn__env_get(&env, "PATH"));
    assert_null(gdn__env_get(&env, "METRALE_OTHER"));
    assert_null(gdn__env_get(&env, "METRALE_PIPE"));
    assert_null(gdn__env_get(&env, "ATLAS_HOME"));
    assert_null(gdn__env_get(&env, "GDN_TARGE"));
    gdn__env_drop(&env);
    assert_int_equal(gdn__env_capture(&env, vars, true), GDN_OK); /* elevated: none of it */
    assert_int_equal(env.n, 0);
    assert_null(gdn__env_get(&env, "GDN_TARGET"));
    gdn__env_drop(&env);
    assert_int_equal(gdn__env_capture(&env, NULL, false), GDN_OK);
    gdn__env_drop(&env);
}

static void test_unknown_names(void **state) {
    (void)state;
    gdn__env env;
    heard h;
    const gdn__log log = log_to(&h, GDN_LOG_WARN);
    assert_int_equal(gdn__env_capture(&env, vars, false), GDN_OK);
    gdn__env_warn_unknown(&env, &log);
    assert_contains(h.text, "env: GDN_PLUGIN_PAHT is set but nothing reads it; did you mean GDN_PLUGIN_PATH?\n");
    assert_contains(h.text, "env: GDN_QQQQQQQQQ is set but nothing reads it\n");
    assert_contains(h.text, "env: GDN_NO_VALUE is set but nothing reads it");
    assert_contains(h.text, "env: METRALE_GDN_PIPES is set but nothing reads it; did you mean METRALE_GDN_PIPE?\n");
    assert_contains(h.text, "env: METRALE_PREFILL_TC is set but nothing reads it; did you mean METRALE_GDN_PREFILL_TC?\n");
    assert_contains(h.text, "env: METRALE_NO_GDN_QQQQQQQQQQQQQQQQQQQQQQQ is set but nothing reads it");
    assert_contains(h.text, "env: METRALE_W4A4_MX_NP is set but nothing reads it; did you mean METRALE_W4A4_MX_NT?\n");
    assert_contains(h.text, "env: METRALE_SSM_BA_GATES is set but nothing reads it; did you mean METRALE_SSM_BA_GATES_TC?\n");
    assert_contains(h.text, "env: ATLAS_SSM_BA_GATES_HOPER is set but nothing reads it; did you mean ATLAS_SSM_BA_GATES_HOPPER?\n");
    assert_int_equal(h.warnings, 9); /* none for the others */
    gdn__env_drop(&env);
}

static void test_no_memory(void **state) {
    (void)state;
    int failures = 0;
    for (int32_t n = 0;; n++, failures++) {
        gdn__env env;
        atomic_store(&gdn__alloc_fail_in, n);
        const gdn_status st = gdn__env_capture(&env, vars, false);
        if (atomic_exchange(&gdn__alloc_fail_in, -1) >= 0) {
            assert_int_equal(st, GDN_OK);
            gdn__env_drop(&env);
            break;
        }
        assert_int_equal(st, GDN_E_NOMEM);
        assert_null(env.vars);
        assert_int_equal(env.n, 0);
    }
    assert_int_equal(failures, 16); /* the list, and fifteen that concern us */
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_what_is_taken), cmocka_unit_test(test_unknown_names),
                                        cmocka_unit_test(test_no_memory) };
    return cmocka_run_group_tests_name("environment", tests, NULL, NULL) != 0;
}
