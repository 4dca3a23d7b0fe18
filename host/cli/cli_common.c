/* cli_common.c - the options, messages and output that every subcommand has. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SETTINGS = sizeof((cli_common *)0)->settings / sizeof(gdn_setting) };
static const char *const level_names[] = { "error", "warn", "info", "debug" };

static void to_stderr(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    const char *name = severity >= GDN_LOG_ERROR && severity <= GDN_LOG_DEBUG ? level_names[severity - 1] : "caller's mistake";
    (void)fprintf(stderr, "gdn [%s] %s: %s\n", name, area, msg);
}

void cli_common_init(cli_common *c, const char *command) {
    const gdn_options defaults = GDN_OPTIONS_INIT;
    memset(c, 0, sizeof *c);
    c->open = defaults;
    c->open.log = to_stderr;
    /* 0 leaves the choice to GDN_LOG. */
    c->open.log_level = getenv("GDN_LOG") ? 0 : (uint32_t)GDN_LOG_WARN;
    c->command = command;
}

void cli_error(const cli_common *c, const char *fmt, ...) {
    va_list ap;
    (void)fprintf(stderr, "gdn %s: ", c->command);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    (void)fputc('\n', stderr);
}

/* KEY=VALUE, cut in place: the text is one of main's arguments and lives as long as the program. */
static void add_setting(cli_common *c, const char *arg) {
    char *eq = strchr(arg, '=');
    if (!eq || eq == arg) {
        cli_error(c, "--set %s: expected KEY=VALUE", arg);
        exit(CLI_USAGE);
    }
    if (c->open.n_settings == MAX_SETTINGS) {
        cli_error(c, "--set: at most %d", (int)MAX_SETTINGS);
        exit(CLI_USAGE);
    }
    *eq = '\0';
    c->settings[c->open.n_settings++] = (gdn_setting) { arg, eq + 1 };
    c->open.settings = c->settings;
}

static uint32_t log_level(const cli_common *c, const char *arg) {
    for (uint32_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (!strcmp(arg, level_names[i])) return i + GDN_LOG_ERROR;
    cli_error(c, "--log %s: expected error, warn, info or debug", arg);
    exit(CLI_USAGE);
}

bool cli_common_option(cli_common *c, int val, const char *arg) {
    switch (val) {
    case 1000: c->open.target = arg; return true;
    case 1001: add_setting(c, arg); return true;
    case 1002: c->open.conf = arg; return true;
    case 1003: c->open.log_level = log_level(c, arg); return true;
    case 1004: c->json = true; return true;
    case 1005: c->help = true; return true;
    default: return false;
    }
}

gdn *cli_open(const cli_common *c) {
    char why[4096] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn *g = NULL;
    gdn_options options = c->open;
    if (options.n_settings) options.settings = c->settings; /* the struct may have been copied */
    const gdn_status st = gdn_open(&options, &g, &err);
    if (st != GDN_OK) cli_error(c, "%s", *why ? why : gdn_status_text(st));
    return g;
}

bool cli_u64(const cli_common *c, const char *what, const char *text, uint64_t lo, uint64_t hi, uint64_t *out) {
    uint64_t v = 0;
    bool ok = *text != '\0';
    for (const char *p = text; *p && ok; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        ok = *p >= '0' && *p <= '9' && v <= (UINT64_MAX - digit) / 10;
        v = v * 10 + digit;
    }
    if (!ok || v < lo || v > hi) {
        cli_error(c, "%s: '%s' is not a whole number from %llu to %llu", what, text, (unsigned long long)lo, (unsigned long long)hi);
        return false;
    }
    *out = v;
    return true;
}

void cli_progress(const char *what, uint64_t done, uint64_t total) {
    enum { WIDTH = 32 };
    static const char full[WIDTH + 1] = "################################", empty[WIDTH + 1] = "                                ";
    if (!total || !isatty(STDERR_FILENO)) return;
    const int n = done >= total ? WIDTH : (int)((double)done / (double)total * WIDTH);
    (void)fprintf(stderr, "\r%s [%.*s%.*s] %llu/%llu%s", what, n, full, WIDTH - n, empty, (unsigned long long)done,
                  (unsigned long long)total, done >= total ? "\n" : "");
    (void)fflush(stderr);
}

void cli_print_json(json_t *doc) {
    char *text = doc ? json_dumps(doc, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(doc);
    if (!text) {
        (void)fputs("gdn: the JSON document could not be made\n", stderr);
        exit(CLI_NO);
    }
    (void)puts(text);
    free(text);
}
