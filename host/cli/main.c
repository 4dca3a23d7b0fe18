/* main.c - the `gdn` command: finds the subcommand, and makes sure that what was printed arrived. */
#include "cli_state.h"
#include "nearest.h"

#include <errno.h>
#include <string.h>

typedef struct command {
    const char *name, *text;
    int (*run)(int argc, char **argv);
} command;
#define ROW(name, text) { #name, text, gdn_cmd_##name },
static const command commands[] = { CLI_COMMAND_MAP(ROW) };
#undef ROW
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *f) {
    (void)fputs("usage: gdn COMMAND [options]\n\n", f);
    for (size_t i = 0; i < COMMANDS; i++) (void)fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].text);
    (void)fputs(
        "\n  gdn COMMAND --help   what the command takes\n"
        "  gdn --version        release and plugin ABI; with --json as a document\n\n"
        "Exit codes: 0 done; 1 the answer is no; 2 wrong usage, or bad input on the command line (--set, --conf, fields, ...).\n"
        "With --json stdout is one JSON document, of a failure {\"schema\":1,\"error\":\"...\"}. Settings: gdn levers.\n"
        "Environment: GDN_TARGET, GDN_PLUGIN_PATH, GDN_ADD_PLUGIN_PATH, GDN_CONF, GDN_CONF_DIR, GDN_LOG, GDN_KEEP_LOADED,\n"
        "  and for GPU kernels GDN_NVRTC, GDN_CACHE_DIR, GDN_CACHE_MAX_MIB, GDN_CUBIN_DIR, GDN_KERNEL_DIR, GDN_JIT_NOCACHE, GDN_JIT_PRINT,\n"
        "  GDN_JIT_DUMP.\n",
        f);
}

static int version(const cli_common *c, int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        cli_run.json |= !strcmp(argv[i], "--json");
        if (!strcmp(argv[i], "--json")) continue;
        cli_error(c, "--version takes --json and nothing else, not '%s'", argv[i]);
        return CLI_USAGE;
    }
    if (cli_run.json)
        cli_print_json(json_pack("{s:i, s:s, s:s, s:i, s:i}", "schema", 1, "command", "version", "version", gdn_version(), "abi_major",
                                 (int)GDN_ABI_MAJOR, "abi_minor", (int)GDN_ABI_MINOR));
    else
        (void)printf("gdn %s, plugin ABI %u.%u\n", gdn_version(), GDN_ABI_MAJOR, GDN_ABI_MINOR);
    return CLI_OK;
}

static int run(int argc, char **argv) {
    cli_common c;
    cli_common_init(&c, "");
    if (argc < 2) {
        usage(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--version")) return version(&c, argc, argv);
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        static char name[32]; /* what getopt_long begins its messages with */
        (void)snprintf(name, sizeof name, "gdn %s", commands[i].name);
        argv[1] = name;
        cli_run.argc = argc - 1;
        cli_run.argv = argv + 1;
        return commands[i].run(argc - 1, argv + 1);
    }
    const char *near = gdn__nearest(argv[1], names, COMMANDS);
    cli_error(&c, "'%s' is no command%s%s%s (gdn --help lists them)", argv[1], near ? "; did you mean " : "", near ? near : "",
              near ? "?" : "");
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    cli_run.argc = argc;
    cli_run.argv = argv;
    int code = cli_finish(run(argc, argv));
    if (fflush(stdout) != 0 || ferror(stdout)) { /* a full disk or a closed pipe must not look like success */
        (void)fprintf(stderr, "gdn: standard output: %s\n", strerror(errno));
        if (code == CLI_OK) code = CLI_NO;
    }
    return code;
}
