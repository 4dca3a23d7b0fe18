/* cmd_compile.c - gdn compile: a folder of compiled kernels, made on a machine that needs no GPU. */
#include "cli_state.h"
#include "engine.h"
#include "gdn_cubins.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: gdn compile --arch ARCH[,ARCH] --out DIR [options]\n\n"
    "Compiles every module of the GPU targets, and the engine's, for each architecture, with NVRTC and without a GPU, and writes\n"
    "what the GPU will load. A program finds the files through GDN_CUBIN_DIR=DIR, or installed as <datadir>/gdn/cubins; then it compiles nothing\n"
    "at its start and needs no NVRTC.\n\n"
    "  --arch LIST         sm_90a, sm_121f, ...; exact names\n"
    "  --out DIR           the folder, made if its parent is there; what it holds already is kept\n"
    "  --verbose           registers and spills of each entry as well\n";
static const char more_help[] = "\nWithout --target: hopper and gb10, those that are installed. --target takes a list here. --log: info.\n";

typedef struct table {
    json_t *list;
    bool failed;
    uint64_t n; /* rows of the current architecture */
} table;

static json_t *text_or_null(const char *s) {
    return s ? json_string(cli_text(s)) : json_null();
}

static void collect(void *user, const gdn_compile_row *r) {
    table *t = user;
    t->n++;
    t->failed |= r->status != GDN_OK;
    const char *defines = GDN_HAS(r, gdn_compile_row, defines) ? r->defines : "";
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:f, s:o, s:o, s:o}", "target", cli_text(r->target), "module",
                            cli_text(r->module), "defines", cli_text(*defines ? defines + 1 : ""), "arch", cli_text(r->arch), "status",
                            gdn_status_name(r->status), "kept", (int)(r->kept != 0), "bytes", (json_int_t)r->bytes, "compile_ms", r->ms,
                            "file", text_or_null(r->file), "reason", text_or_null(r->reason), "usage", text_or_null(r->usage));
    if (row) (void)json_array_append_new(t->list, row);
}

static const char *cell(const json_t *row, const char *key) {
    const char *s = json_string_value(json_object_get(row, key));
    return s && *s ? s : "-";
}

/* Each line of a text, indented. */
static void print_lines(FILE *f, const char *text) {
    while (text && *text) {
        const size_t n = strcspn(text, "\n");
        (void)fprintf(f, "    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_table(const json_t *list) {
    size_t i;
    json_t *row;
    (void)printf("%-8s %-36s %-8s %9s %8s  %-8s  %s\n", "target", "module", "arch", "bytes", "ms", "state", "build");
    json_array_foreach(list, i, row) {
        char ms[32] = "-";
        const bool done = !strcmp(cell(row, "status"), "GDN_OK"), kept = json_is_true(json_object_get(row, "kept"));
        if (!kept) (void)snprintf(ms, sizeof ms, "%.0f", json_real_value(json_object_get(row, "compile_ms")));
        const char *defines = json_string_value(json_object_get(row, "defines"));
        (void)printf("%-8s %-36s %-8s %9lld %8s  %-8s%s%s\n", cell(row, "target"), cell(row, "module"), cell(row, "arch"),
                     (long long)json_integer_value(json_object_get(row, "bytes")), ms,
                     !done  ? cell(row, "status")
                     : kept ? "kept"
                            : "compiled",
                     defines && *defines ? "  " : "", defines ? defines : "");
        print_lines(stdout, json_string_value(json_object_get(row, "usage")));
        print_lines(stdout, json_string_value(json_object_get(row, "reason")));
    }
}

/* Splits a comma list in place; false: an empty name, or too many. */
enum { MAX_NAMES = 16 };
static bool split(char *list, const char *out[MAX_NAMES], size_t *n) {
    char *save = NULL;
    *n = 0;
    if (!*list || list[0] == ',' || strstr(list, ",,") || list[strlen(list) - 1] == ',') return false;
    for (char *p = strtok_r(list, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        if (*n == MAX_NAMES) return false;
        out[(*n)++] = p;
    }
    return true;
}

typedef struct order {
    const char *arch[MAX_NAMES], *target[MAX_NAMES], *out;
    size_t n_arch, n_target;
    bool named; /* targets were asked for by name */
    uint32_t flags;
} order;

/* On a terminal the compiler's progress lines become a bar. */
static gdn_log_fn plain_log;
static void draw_progress(void *user, uint32_t severity, const char *area, const char *msg) {
    unsigned done, total;
    if (severity == GDN_LOG_INFO && sscanf(msg, "compile %u/%u ", &done, &total) == 2)
        cli_progress("compile", done, total);
    else if (severity <= GDN_LOG_WARN || severity == GDN_LOG_HOST_BUG)
        plain_log(user, severity, area, msg);
}

/* The engine's own kernels use nothing of one architecture alone: no suffix. */
static bool compile_engine(const cli_common *c, const order *o, const char *arch, table *t) {
    char plain[CLI_TEXT], why[CLI_TEXT] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_compile_job job;
    size_t n = (size_t)snprintf(plain, sizeof plain, "%s", arch);
    if (n > 1 && n < sizeof plain && (plain[n - 1] == 'a' || plain[n - 1] == 'f')) plain[n - 1] = '\0';
    gdn_engine_module(plain, &job);
    const gdn_status st = gdn_compile_jobs(&c->open, "engine", 1, &job, o->out, o->flags, collect, t, &err);
    if (st != GDN_OK) cli_failed(c, st, why);
    return st == GDN_OK;
}

/* The builds that run are finished and written; a second signal ends the program at once. */
static volatile sig_atomic_t interrupted;
static void on_signal(int number) {
    interrupted = number;
    gdn_compile_stop();
}
static void stop_on_signals(void) {
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction a = { .sa_flags = (int)SA_RESETHAND, .sa_handler = on_signal };
    (void)sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) (void)sigaction(numbers[i], &a, NULL);
    }
}

/* What no target changes: the folder, made here if its parent is there. */
static bool folder_there(const cli_common *c, const char *out) {
    struct stat s;
    if (mkdir(out, 0755) != 0 && errno != EEXIST) return cli_error(c, "--out %s: cannot be made: %s", out, strerror(errno)), false;
    if (stat(out, &s) != 0) return cli_error(c, "--out %s: %s", out, strerror(errno)), false;
    if (!S_ISDIR(s.st_mode)) return cli_error(c, "--out %s: not a folder", out), false;
    return true;
}

/* One architecture through all targets, and the engine. A target that was not named may be absent; an architecture must be served by one.
 */
static bool compile_arch(const cli_common *c, const order *o, const char *arch, table *t) {
    char last[CLI_TEXT] = "";
    bool ok = true;
    t->n = 0;
    for (size_t i = 0; i < o->n_target; i++) {
        char why[CLI_TEXT] = "";
        gdn_text err = { why, sizeof why, 0 };
        cli_common one = *c; /* its settings stay those of c */
        one.open.target = o->target[i];
        const gdn_status st = gdn_compile_ahead(&one.open, arch, o->out, o->flags, collect, t, &err);
        if (interrupted)
            return cli_error(c, "interrupted: %s; what is done is kept, the same command goes on", *why ? why : "between targets"), false;
        if (st == GDN_OK) continue;
        (void)snprintf(last, sizeof last, "%s", why);
        if (st == GDN_ABSENT || (st == GDN_E_NOTARGET && !o->named)) continue;
        if (st == GDN_E_ARCH && strstr(why, ": expected sm_")) { /* no architecture at all: the command line is at fault */
            cli_run.fault = true;
            cli_error(&one, "--arch: %s", why);
            return false;
        }
        cli_failed(&one, st, why);
        ok = false;
        if (st == GDN_E_ARCH && !t->n) break; /* the next target would be told the same */
    }
    if (ok && !t->n) {
        cli_error(c, "%s: no target compiles for it: %s", arch, last);
        ok = false;
    }
    return ok && compile_engine(c, o, arch, t);
}

static int run(const cli_common *c, const order *o) {
    table t = { .list = json_array() };
    bool ok = t.list != NULL;
    if (!folder_there(c, o->out)) {
        json_decref(t.list);
        return CLI_NO;
    }
    stop_on_signals();
    for (size_t i = 0; i < o->n_arch && t.list && !interrupted; i++) ok &= compile_arch(c, o, o->arch[i], &t);
    ok = ok && !t.failed && !interrupted;
    if (c->json && cli_run.fault && !json_array_size(t.list)) {
        json_decref(t.list); /* nothing was begun: the document is the failure's */
    } else if (c->json) {
        json_t *doc = json_pack("{s:i, s:s, s:s, s:s, s:b, s:o}", "schema", 1, "version", gdn_version(), "command", "compile", "folder",
                                cli_text(o->out), "complete", (int)ok, "modules", t.list);
        const char *error = *cli_run.error ? cli_run.error : "a module did not compile: its reason is in its row";
        if (doc && !ok) (void)json_object_set_new(doc, "error", json_string(cli_text(error)));
        cli_print_json(doc);
    } else {
        if (json_array_size(t.list)) print_table(t.list);
        json_decref(t.list);
    }
    return ok ? CLI_OK : CLI_NO;
}

int gdn_cmd_compile(int argc, char **argv) {
    static const struct option options[] = {
        CLI_COMMON_OPTIONS, { "arch", 1, 0, 'a' }, { "out", 1, 0, 'o' }, { "verbose", 0, 0, 'v' }, { 0, 0, 0, 0 }
    };
    static char both[] = "hopper,gb10";
    cli_common c;
    order o = { .out = NULL };
    char *archs = NULL, *targets = NULL;
    cli_common_init(&c, "compile");
    c.open.log_level = cli_default_level(GDN_LOG_INFO); /* the progress lines */
    for (int val; (val = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (val == 'a')
            archs = optarg;
        else if (val == 'o')
            o.out = optarg;
        else if (val == 'v')
            o.flags |= GDN_COMPILE_USAGE;
        else if (val == 1000)
            targets = optarg;
        else if (!cli_common_option(&c, val, optarg))
            return CLI_USAGE;
    }
    if (c.help) {
        (void)fputs(help, stdout);
        (void)fputs(CLI_TARGET_HELP CLI_OUTPUT_HELP, stdout);
        (void)fputs(more_help, stdout);
        return CLI_OK;
    }
    if (!cli_no_levers(&c, "levers choose among kernels when a target is opened; here every one is compiled")) return CLI_USAGE;
    if (optind != argc) {
        cli_error(&c, "'%s': takes no argument but options", argv[optind]);
        return CLI_USAGE;
    }
    if (!archs || !o.out || !*o.out) {
        cli_error(&c, "%s", archs ? "--out is missing" : "--arch is missing");
        return CLI_USAGE;
    }
    if (isatty(STDERR_FILENO) && c.open.log_level == GDN_LOG_INFO) {
        plain_log = c.open.log;
        c.open.log = draw_progress;
    }
    o.named = targets != NULL;
    if (!split(archs, o.arch, &o.n_arch) || !split(targets ? targets : both, o.target, &o.n_target)) {
        cli_error(&c, "--arch and --target take names with single commas between them, at most %d", (int)MAX_NAMES);
        return CLI_USAGE;
    }
    return run(&c, &o);
}
