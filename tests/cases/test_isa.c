/* test_isa.c - the same cases on the lower instruction sets: levers are read once a process, so the other programs of this
 * folder are started with GDN_CPU_ISA set. On a machine or build without a set the next lower one runs, which is asked first. */
#include "target.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Starts `program` of this program's folder (NULL: this one); its exit code, -1 when it could not run or was killed. */
static int start(const char *program, const char *argument) {
    char exe[4096];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 64);
    if (n <= 0) return -1;
    exe[n] = 0;
    if (program) strcpy(strrchr(exe, '/') + 1, program);
    char *argv[] = { exe, (char *)(uintptr_t)argument, NULL };
    pid_t pid;
    int status;
    if (posix_spawn(&pid, exe, NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The child: 0 when prefill's entry is that of the set asked for, 77 when the machine runs another one, else 1. */
static int entry_is_of(const char *isa) {
    const gdn_rule_shape s = { .base = SHAPE_BASE(gdn_rule_shape, GDN_OP_PREFILL, GDN_F32),
                               .nk = 1,
                               .nv = 1,
                               .k_dim = 64,
                               .v_dim = 64,
                               .gate_form = GDN_GATE_LINEAR,
                               .state_type = GDN_F32,
                               .max_tokens = 1,
                               .max_batch = 1 };
    gdn_route r = { .struct_size = sizeof r };
    char want[64];
    snprintf(want, sizeof want, "gdn_cpu_prefill_%s", isa);
    int code = 1;
    if (gdn_route_for(target(), 0, &s.base, 0, NULL, &r, NULL) == GDN_OK && r.entry) {
        const bool lower = strcmp(isa, "base") != 0 && strcmp(r.entry, "gdn_cpu_prefill_base") == 0;
        code = strcmp(r.entry, want) == 0 ? 0 : lower ? 77 : 1;
    }
    target_teardown(NULL);
    return code;
}

/* Under sanitizers all but the first: test_cpu_prefill has that kernel on every set. */
static void run_on(const char *isa) {
    static const char *const programs[] = { "test_prefill_cases", "test_decode_bits", "test_verify_cases", "test_woa_fold",
                                            "test_conv_cases",    "test_norm_cases",  "test_ba_gates",     "test_pairs" };
    assert_int_equal(setenv("GDN_CPU_ISA", isa, 1), 0);
    const int is_there = start(NULL, isa);
    if (is_there == 77) {
        unsetenv("GDN_CPU_ISA");
        skip();
    }
    assert_int_equal(is_there, 0);
    for (uint32_t i = TEST_LIGHT; i < N_OF(programs); i++) {
        const int code = start(programs[i], NULL);
        if (code != 0) fail_msg("%s with GDN_CPU_ISA=%s: exit code %d", programs[i], isa, code);
    }
    unsetenv("GDN_CPU_ISA");
}

static void cases_on_the_base_set(void **state) {
    (void)state;
    run_on("base");
}

static void cases_on_avx2(void **state) {
    (void)state;
    run_on("avx2");
}

int main(int argc, char **argv) {
    if (argc > 1) return entry_is_of(argv[1]);
    const struct CMUnitTest tests[] = { cmocka_unit_test(cases_on_the_base_set), cmocka_unit_test(cases_on_avx2) };
    return cmocka_run_group_tests_name("instruction sets", tests, NULL, NULL);
}
