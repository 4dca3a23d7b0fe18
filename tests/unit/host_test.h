/* host_test.h - what the tests of libgdn's inside share: a log that can be asked, levers from texts, files that go away. */
#ifndef GDN_HOST_TEST_H
#define GDN_HOST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIXTURES GDN_BINARY_DIR "/tests/abi/fixtures"

/* ---- lines that were logged, one after the other ---- */
typedef struct heard {
    uint32_t lines, warnings;
    char text[16384];
} heard;

static inline void hear(void *user, uint32_t severity, const char *area, const char *msg) {
    heard *h = user;
    h->lines++;
    h->warnings += severity <= GDN_LOG_WARN;
    const size_t used = strlen(h->text);
    (void)snprintf(h->text + used, sizeof h->text - used, "%s: %s\n", area, msg);
}

static inline gdn__log log_to(heard *h, uint32_t level) {
    *h = (heard) { 0 };
    return (gdn__log) { hear, h, level };
}

static inline unsigned times(const char *text, const char *part) {
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part)) n++;
    return n;
}

/* ---- a text for errors ---- */
typedef struct reason {
    char buf[4096];
    gdn_text text;
} reason;
static inline gdn_text *reason_of(reason *r) {
    r->buf[0] = '\0';
    r->text = (gdn_text) { r->buf, sizeof r->buf, 0 };
    return &r->text;
}

#define assert_contains(text, part)                                                  \
    do {                                                                             \
        if (!strstr((text), (part))) fail_msg("'%s' is not in: %s", (part), (text)); \
    } while (0)

/* ---- files in a folder of their own ---- */
static inline char *make_folder(char path[64]) {
    (void)strcpy(path, "/tmp/gdn_test_XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}
static inline void write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Runs f in a child of its own, so that what is read once a process is read anew; the test fails when f does not answer 0. */
static inline int in_child(int (*f)(void)) {
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(f());
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

/* Is a file of that path mapped into this process? */
static inline int is_mapped(const char *part) {
    char line[4096];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found |= strstr(line, part) != NULL;
    (void)fclose(f);
    return found;
}

#endif
