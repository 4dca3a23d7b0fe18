#define _GNU_SOURCE /* posix_openpt */
/* test_terminal.c - long prompts show a bar on a terminal, segment by segment, and nothing where stderr is no terminal. */
#include "target.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEGMENT = 2048, LONG = TEST_LIGHT ? SEGMENT + 100 : 5000, HELD = TEST_LIGHT ? 600 : 1100 };
static const char gdn_program[] = GDN_BINARY_DIR "/bin/gdn";
static const char model[] = GDN_TEST_DATA "/jargon-tiny";
static char said[1 << 15];

/* Runs the command with stderr on a terminal or a pipe; what it wrote there is in `said`. The exit code, or 1000 + signal. */
static int run(bool terminal, const char *const *args) {
    int ends[2] = { -1, -1 };
    if (terminal) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
        assert_true(ends[1] >= 0);
    } else {
        assert_int_equal(pipe(ends), 0);
    }
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char *argv[24] = { (char *)(uintptr_t)gdn_program };
        for (size_t i = 0; args[i] && i < 22; i++) argv[i + 1] = (char *)(uintptr_t)args[i];
        const int null = open("/dev/null", O_WRONLY);
        if (null < 0 || dup2(null, 1) < 0 || dup2(ends[1], 2) < 0) _exit(99);
        execv(gdn_program, argv);
        _exit(98);
    }
    close(ends[1]);
    size_t n = 0;
    for (;;) { /* a terminal whose other end is closed answers with an error, a pipe with 0 */
        const ssize_t got = read(ends[0], said + n, sizeof said - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    said[n] = 0;
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
#define RUN(terminal, ...) run(terminal, (const char *const[]) { __VA_ARGS__, NULL })

/* The bar at each segment's end, in their order. */
static void expect_bar(uint64_t total) {
    const char *at = said;
    for (uint64_t done = SEGMENT;; done += SEGMENT) {
        char part[64];
        if (done > total) done = total;
        (void)snprintf(part, sizeof part, "] %llu/%llu", (unsigned long long)done, (unsigned long long)total);
        const char *found = strstr(at, part);
        if (!found || !strstr(said, "prompt [")) fail_msg("'%s' is not in: %s", part, said);
        at = found;
        if (done == total) break;
    }
}

static char *long_text(void) {
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++) text[i] = "The quick fox. "[i % 15];
    text[LONG] = 0;
    return text;
}

static void generate(void **state) {
    (void)state;
    char *text = long_text();
    FILE *f = fopen("long.prompt", "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, LONG, f), LONG);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(RUN(true, "generate", "--target", "cpu", "--model", model, "--prompt-file", "long.prompt", "--n", "2"), 0);
    expect_bar(LONG);
    assert_int_equal(RUN(true, "generate", "--target", "cpu", "--model", model, "--prompt-file", "long.prompt", "--n", "2", "--json"), 0);
    expect_bar(LONG);
    assert_int_equal(RUN(false, "generate", "--target", "cpu", "--model", model, "--prompt-file", "long.prompt", "--n", "2"), 0);
    assert_null(strstr(said, "prompt [")); /* the control: no terminal, no bar */
    assert_int_equal(RUN(true, "generate", "--target", "cpu", "--model", model, "--prompt", "short", "--n", "2"), 0);
    assert_null(strstr(said, "prompt [")); /* nor for one segment */
    assert_int_equal(truncate("long.prompt", HELD), 0);
    assert_int_equal(
        RUN(true, "generate", "--target", "cpu", "--model", model, "--prompt", "short", "--n", "2", "--w4a4", "--held", "long.prompt"), 0);
    char *first = strstr(said, "text ["); /* the held text, before and after */
    assert_non_null(first);
    char part[64];
    (void)snprintf(part, sizeof part, "] 512/%d", HELD);
    assert_non_null(strstr(first, part));
    (void)snprintf(part, sizeof part, "] %d/%d", HELD, HELD);
    first = strstr(first, part);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, part));
    unlink("long.prompt");
    free(text);
}

static void check(void **state) {
    (void)state;
    char *text = long_text();
    json_t *doc =
        json_pack("{s:[{s:s,s:s,s:[i,i],s:[f,f]}]}", "cases", "prompt", text, "dtype", "float32", "tokens", 'a', 'b', "top2_gap", 1.0, 1.0);
    assert_non_null(doc);
    assert_int_equal(json_dump_file(doc, "long.json", 0), 0);
    json_decref(doc);
    const int code = RUN(true, "check", "--target", "cpu", "--model", model, "--replay", "long.json");
    if (code > 1) fail_msg("exit %d: %s", code, said); /* the bytes were not recorded: no matter */
    expect_bar(LONG);
    expect_bar(LONG + 1); /* the second pass: prompt and text in one */
    unlink("long.json");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(generate), cmocka_unit_test(check) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
