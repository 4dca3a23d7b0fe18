/* test_cli_compile.c - what a user sees of compiles: progress where something is compiled and nothing where all is there, one line for a
 * bad folder, and an interrupted `gdn compile`, of which the finished builds stay. On the fake NVRTC; commands that open a target on the
 * driver whose device is the emulator, where that is built. */
#include "cuda_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char emulated[] = GDN_BINARY_DIR "/tests/emu/driver";
static char folder[64], out[1 << 16];

static int setup(void **state) {
    (void)state;
    (void)make_folder(folder);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    remove_tree(folder);
    return 0;
}

/* `gdn <args>`, stderr alone; the exit code. */
static int run(const char *env, const char *args) {
    char command[2048];
    (void)snprintf(
        command, sizeof command,
        "env -u GDN_TARGET -u GDN_CONF -u GDN_LOG -u GDN_CUBIN_DIR GDN_PLUGIN_PATH='%s' GDN_CACHE_DIR='%s/cache' %s '%s/bin/gdn' %s "
        "2>&1 >/dev/null",
        GDN_PLUGIN_DIR, folder, env, GDN_BINARY_DIR, args);
    FILE *f = popen(command, "re");
    assert_non_null(f);
    out[fread(out, 1, sizeof out - 1, f)] = '\0';
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static unsigned count(const char *part) {
    unsigned n = 0;
    for (const char *p = out; (p = strstr(p, part)) != NULL; p++) n++;
    return n;
}

static void progress_is_shown(void **state) {
    (void)state;
    char env[512], quiet[600];
    (void)snprintf(env, sizeof env, "LD_LIBRARY_PATH=%s GDN_NVRTC=%s/libnvrtc.so.13", emulated, emulated);
    (void)snprintf(quiet, sizeof quiet, "%s/libcuda.so.1", emulated);
    if (access(quiet, R_OK) != 0) skip();
    static const char args[] =
        "check --target hopper --set ssm_ba_gates_tc=false --golden '" GDN_TEST_DATA "/golden/qwen3_5_h128_k2_v2_d64_t200_b2.safetensors'";
    char asked[400];
    (void)snprintf(asked, sizeof asked, "%s --log warn", args);
    if (run(env, args) != 0) fail_msg("%s", out);
    assert_in_range(count("gdn [info] nvrtc: to compile: "), 2, 5); /* opening, a plan with a core and one without, in each gate form */
    assert_int_equal(count("to compile: "), count("gdn [info] nvrtc: compiled: "));
    assert_true(count("gdn [info] nvrtc: compile ") >= 15);
    assert_contains(out, "compile 1/");
    assert_contains(out, "gated_delta_rule_decode.cu -DGDN_CORE");
    assert_null(strstr(out, "libnvrtc")); /* other lines of that level stay away */
    if (run(env, args) != 0) fail_msg("%s", out);
    assert_string_equal(out, "");
    /* Who chooses a level gets that. */
    static const char *const levels[] = { "GDN_LOG=warn", "" };
    for (int i = 0; i < 2; i++) {
        (void)snprintf(quiet, sizeof quiet, "%s %s GDN_JIT_NOCACHE=1", env, levels[i]);
        if (run(quiet, i ? asked : args) != 0) fail_msg("%s", out);
        assert_string_equal(out, "");
    }
}

static void a_bad_folder_is_told_once(void **state) {
    (void)state;
    static const char *const bad[][2] = { { "/nonexistent/a/b", "cannot be made: No such file or directory" },
                                          { "/dev/null", "not a folder" } };
    for (int i = 0; i < 2; i++) {
        char args[256], want[256];
        (void)snprintf(args, sizeof args, "compile --arch sm_90a,sm_121f --out %s", bad[i][0]);
        (void)snprintf(want, sizeof want, "gdn compile: --out %s: %s\n", bad[i][0], bad[i][1]);
        assert_int_equal(run("GDN_NVRTC=" FAKE_NVRTC13, args), 1);
        assert_string_equal(out, want);
    }
}

static pid_t start_compile(const char *to) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    const int e = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char dir[96];
    (void)snprintf(dir, sizeof dir, "%s/out", folder);
    if (e < 0 || dup2(e, 1) < 0 || dup2(e, 2) < 0 || setenv("GDN_PLUGIN_PATH", GDN_PLUGIN_DIR, 1) || setenv("GDN_NVRTC", FAKE_NVRTC13, 1) ||
        setenv("FAKE_NVRTC_SLEEP_MS", "20", 1))
        _exit(99);
    execl(GDN_BINARY_DIR "/bin/gdn", "gdn", "compile", "--arch", "sm_90a", "--target", "hopper", "--out", dir, (char *)NULL);
    _exit(98);
}
static void wait_ms(long ms) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    (void)nanosleep(&t, NULL);
}

/* SIGINT and SIGTERM: exit code 1, a line that says how to go on, whole files; the next run takes them over. */
static void an_interrupt_keeps_what_is_done(void **state) {
    (void)state;
    char to[96], dir[96], args[256];
    unsigned before = 0;
    (void)snprintf(to, sizeof to, "%s/lines", folder);
    (void)snprintf(dir, sizeof dir, "%s/out", folder);
    for (int turn = 0; turn < 2; turn++) {
        const pid_t pid = start_compile(to);
        for (int i = 0; i < 1000 && count_tree(dir).entries < before + 5; i++) wait_ms(10);
        assert_int_equal(kill(pid, turn ? SIGTERM : SIGINT), 0);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        FILE *f = fopen(to, "rb");
        assert_non_null(f);
        out[fread(out, 1, sizeof out - 1, f)] = '\0';
        (void)fclose(f);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fail_msg("status %d: %s", status, out);
        assert_int_equal(count("gdn compile: interrupted: stopped: "), 1);
        const tree t = count_tree(dir);
        assert_true(t.entries >= before + 5 && t.entries < 300);
        assert_int_equal(t.entries, t.sides);
        assert_int_equal(t.temps + t.others, 0);
        assert_int_equal(count("\nhopper "), t.entries); /* rows */
        assert_int_equal(count("  kept  ") + count("  kept\n"), before);
        before = t.entries;
    }
    (void)snprintf(args, sizeof args, "compile --arch sm_90a --target hopper --out %s", dir);
    assert_int_equal(run("GDN_NVRTC=" FAKE_NVRTC13, args), 0);
    assert_int_equal(count_tree(dir).entries, count_tree(dir).sides);
    assert_true(count_tree(dir).entries > before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(progress_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_folder_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interrupt_keeps_what_is_done, setup, teardown),
    };
    return cmocka_run_group_tests_name("cli_compile", tests, NULL, NULL);
}
