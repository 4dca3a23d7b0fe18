/* gt_cli.c - the few functions of the command that the bench rows use, without the command. */
#include "cli.h"
#include <stdarg.h>
#include <stdio.h>

void cli_error(const cli_common *c, const char *fmt, ...) {
    va_list ap;
    (void)fprintf(stderr, "gpu_test: %s: ", c->command);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    (void)fputc('\n', stderr);
}

gdn_options cli_open_options(const cli_common *c) {
    return c->open;
}
gdn *cli_open(const cli_common *c) {
    char why[1024] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn *g = NULL;
    if (gdn_open(&c->open, &g, &err) != GDN_OK) cli_error(c, "%s", why);
    return g;
}

void cli_progress(const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)done;
    (void)total;
}
