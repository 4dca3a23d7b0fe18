/* main.c - the `gdn` command: finds the subcommand, and makes sure that what was printed arrived. */
#include "cli.h"
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
        "  gdn --version        release and plugin ABI\n\n"
        "Exit codes: 0 done, 1 the answer is no, 2 wrong usage. Settings: gdn levers.\n"
        "Environment: GDN_TARGET, GDN_PLUGIN_PATH, GDN_ADD_PLUGIN_PATH, GDN_CONF, GDN_CONF_DIR, GDN_LOG, GDN_KEEP_LOADED,\n"
        "  and for GPU kernels GDN_NVRTC, GDN_CACHE_DIR, GDN_CACHE_MAX_MIB, GDN_CUBIN_DIR, GDN_JIT_NOCACHE, GDN_JIT_PRINT, GDN_JIT_DUMP.\n",
        f);
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        (void)printf("gdn %s, plugin ABI %u.%u\n", gdn_version(), GDN_ABI_MAJOR, GDN_ABI_MINOR);
        return CLI_OK;
    }
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        static char name[32]; /* what getopt_long begins its messages with */
        (void)snprintf(name, sizeof name, "gdn %s", commands[i].name);
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    const char *near = gdn__nearest(argv[1], names, COMMANDS);
    (void)fprintf(stderr, "gdn: '%s' is no command%s%s%s (gdn --help lists them)\n", argv[1], near ? "; did you mean " : "",
                  near ? near : "", near ? "?" : "");
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) { /* a full disk or a closed pipe must not look like success */
        (void)fprintf(stderr, "gdn: standard output: %s\n", strerror(errno));
        if (code == CLI_OK) code = CLI_NO;
    }
    return code;
}
