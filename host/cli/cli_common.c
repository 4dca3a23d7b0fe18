/* cli_common.c - the options, messages and output that every subcommand has. */
#include "cli_state.h"

#include <limits.h>
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

/* What is shown where nobody has chosen a level: besides warnings how far compiling is, which takes seconds and is silent else. On a
 * terminal a bar that stays in its line. */
void cli_compile_progress(void *user, uint32_t severity, const char *area, const char *msg) {
    unsigned done, total;
    const bool loud = severity <= GDN_LOG_WARN || severity == GDN_LOG_HOST_BUG;
    const bool compiler = severity == GDN_LOG_INFO && !strcmp(area, "nvrtc");
    const bool step = compiler && sscanf(msg, "compile %u/%u ", &done, &total) == 2;
    if (step && isatty(STDERR_FILENO) && !strstr(msg, " failed "))
        cli_progress("compile", done, total);
    else if (loud || step || (compiler && (!strncmp(msg, "compiled:", 9) || !strncmp(msg, "to compile:", 11))))
        to_stderr(user, severity, area, msg);
}
gdn_options cli_open_options(const cli_common *c) {
    gdn_options o = c->open;
    if (c->level_chosen || o.log != to_stderr || o.log_level >= GDN_LOG_INFO) return o;
    o.log = cli_compile_progress;
    o.log_level = GDN_LOG_INFO;
    return o;
}

static uint32_t level_of(const char *name) {
    for (uint32_t i = 0; name && i < sizeof level_names / sizeof *level_names; i++)
        if (!strcmp(name, level_names[i])) return i + GDN_LOG_ERROR;
    return 0;
}

uint32_t cli_default_level(uint32_t otherwise) {
    const uint32_t level = level_of(getenv("GDN_LOG"));
    return level ? level : otherwise;
}

void cli_common_init(cli_common *c, const char *command) {
    const gdn_options defaults = GDN_OPTIONS_INIT;
    memset(c, 0, sizeof *c);
    c->open = defaults;
    c->open.log = to_stderr;
    c->open.log_level = cli_default_level(GDN_LOG_WARN);
    c->level_chosen = level_of(getenv("GDN_LOG")) != 0;
    c->command = command;
}

/* What a text quotes may hold anything: other lines of it are set in, so that none looks like a message of its own, and what would
 * steer a terminal is shown as \xNN. */
static void print_tame(const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        if (*s == '\n')
            (void)fputs("\n    ", stderr);
        else if ((*s < 0x20 && *s != '\t') || *s == 0x7f)
            (void)fprintf(stderr, "\\x%02x", (unsigned)*s);
        else
            (void)fputc(*s, stderr);
    }
    (void)fputc('\n', stderr);
}

void cli_error(const cli_common *c, const char *fmt, ...) {
    char line[CLI_TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    (void)fprintf(stderr, "gdn%s%s: ", *c->command ? " " : "", c->command);
    print_tame(line);
    if (!*cli_run.error) (void)snprintf(cli_run.error, sizeof cli_run.error, "%s", line);
}

/* A bad value ends the command before it has begun. */
static _Noreturn void leave(void) {
    const int code = cli_finish(CLI_USAGE);
    (void)fflush(stdout);
    exit(code);
}

/* KEY=VALUE. The argument itself stays whole: a command may read its options twice. */
static void add_setting(cli_common *c, const char *arg) {
    const char *eq = strchr(arg, '=');
    if (!eq || eq == arg) {
        cli_error(c, "--set %s: expected KEY=VALUE", arg);
        leave();
    }
    if (c->open.n_settings == MAX_SETTINGS) {
        cli_error(c, "--set: at most %d", (int)MAX_SETTINGS);
        leave();
    }
    const size_t n = (size_t)(eq - arg);
    char *key = cli_keep(n + 1);
    if (!key) {
        cli_error(c, "out of memory");
        leave();
    }
    memcpy(key, arg, n);
    key[n] = '\0';
    c->settings[c->open.n_settings++] = (gdn_setting) { key, eq + 1 };
    c->open.settings = c->settings;
}

static uint32_t log_level(const cli_common *c, const char *arg) {
    const uint32_t level = level_of(arg);
    if (level) return level;
    cli_error(c, "--log %s: expected error, warn, info or debug", arg);
    leave();
}

static const char *some(const cli_common *c, const char *option, const char *arg) {
    const size_t n = strlen(arg);
    if (n && n < PATH_MAX) return arg;
    if (n)
        cli_error(c, "%s: %zu bytes; a path has at most %d", option, n, PATH_MAX - 1);
    else
        cli_error(c, "%s: is empty", option);
    leave();
}

bool cli_common_option(cli_common *c, int val, const char *arg) {
    switch (val) {
    case 1000: c->open.target = some(c, "--target", arg); return true;
    case 1001: add_setting(c, arg); return true;
    case 1002: c->open.conf = some(c, "--conf", arg); return true;
    case 1003: c->open.log_level = log_level(c, arg); return c->level_chosen = true;
    case 1004: cli_run.json = c->json = true; return true;
    case 1005: c->help = true; return true;
    default: return false;
    }
}

bool cli_no_levers(const cli_common *c, const char *why) {
    if (!c->open.n_settings && !c->open.conf) return true;
    cli_error(c, "%s: not for this command: %s", c->open.n_settings ? "--set" : "--conf", why);
    return false;
}

bool cli_fault(const cli_common *c, const char *why, char *buf, size_t size) {
    const char *conf = c->open.conf;
    const size_t n = conf ? strlen(conf) : 0;
    bool fault = true;
    if (c->open.n_settings && !strncmp(why, "api: ", 5))
        (void)snprintf(buf, size, "--set %s", why + 5);
    else if (conf && !strncmp(why, "conf=", 5) && !strncmp(why + 5, conf, n))
        (void)snprintf(buf, size, "--conf %s", why + 5);
    else if (conf && !strncmp(why, conf, n) && why[n] == ':') /* "FILE:LINE: ..." or "FILE: ..." */
        (void)snprintf(buf, size, "--conf %s", why);
    else {
        fault = c->open.target && strstr(why, " is no target name ") != NULL;
        (void)snprintf(buf, size, "%s%s", fault ? "--target: " : "", why);
    }
    cli_run.fault |= fault;
    return fault;
}

void cli_failed(const cli_common *c, gdn_status st, const char *why) {
    char line[CLI_TEXT];
    (void)cli_fault(c, *why ? why : gdn_status_text(st), line, sizeof line);
    cli_error(c, "%s", line);
}

gdn_status cli_open_status(const cli_common *c, gdn **out) {
    char why[CLI_TEXT] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_options options = cli_open_options(c);
    if (options.n_settings) options.settings = c->settings; /* the struct may have been copied */
    const gdn_status st = gdn_open(&options, out, &err);
    if (st != GDN_OK) cli_failed(c, st, why);
    return st;
}

gdn *cli_open(const cli_common *c) {
    gdn *g = NULL;
    (void)cli_open_status(c, &g); /* NULL says it */
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
