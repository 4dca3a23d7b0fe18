/* command_run.h - the command as a user runs it: output, one error line, exit code. For one test program. */
#ifndef GDN_TEST_COMMAND_RUN_H
#define GDN_TEST_COMMAND_RUN_H

#include "numeric.h"
#include "target.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char gdn_program[] = GDN_BINARY_DIR "/bin/gdn";
static const char model[] = GDN_TEST_DATA "/jargon-tiny";
static const char replay_file[] = GDN_TEST_DATA "/jargon-tiny/greedy.json";
static char out[1 << 17], err[1 << 14];

static inline void read_back(const char *name, char *buf, size_t cap) {
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    buf[fread(buf, 1, cap - 1, f)] = 0;
    fclose(f);
    unlink(name);
}

/* Runs the command with stdout and stderr in `out` and `err`; the exit code, or 1000 + signal. */
static inline int run(const char *const *args) {
    char names[2][32]; /* of this program's own: others run beside it */
    for (int i = 0; i < 2; i++) (void)snprintf(names[i], sizeof names[i], "run.%ld.%s", (long)getpid(), i ? "err" : "out");
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char *argv[24] = { (char *)(uintptr_t)gdn_program };
        for (size_t i = 0; args[i] && i < 22; i++) argv[i + 1] = (char *)(uintptr_t)args[i];
        const int o = open(names[0], O_WRONLY | O_CREAT | O_TRUNC, 0600), e = open(names[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (o < 0 || e < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0) _exit(99);
        execv(gdn_program, argv);
        _exit(98);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_back(names[0], out, sizeof out);
    read_back(names[1], err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
#define RUN(...) run((const char *const[]) { __VA_ARGS__, NULL })

/* One line on stderr with `part`, nothing on stdout, this exit code. */
static inline void one_line(int code, int want, const char *part) {
    const char *end = strchr(err, '\n');
    if (code != want || !end || end[1] || !strstr(err, part) || out[0])
        fail_msg("exit %d, stderr '%s', expected %d and '%s'", code, err, want, part);
}

#endif
