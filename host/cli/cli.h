/* cli.h - what the subcommands of `gdn` share. One file a subcommand, cmd_<name>.c, one entry: int gdn_cmd_<name>(argc, argv).
 *
 * Exit codes, everywhere: 0 done; 1 the answer is no (a check above its bound, a target that is not usable, a model or
 * plugin that could not be loaded); 2 wrong usage or bad input on the command line. Errors go to stderr as one line,
 * `gdn <command>: <what>`; results to stdout; --json prints one JSON document with a "schema" number instead. */
#ifndef GDN_CLI_H
#define GDN_CLI_H

#include "gdn.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define CLI_COMMAND_MAP(X)                                                                        \
    X(generate, "write text with a checkpoint, plain or speculative")                             \
    X(targets, "which plugins load, their ABI, and why the others do not")                        \
    X(levers, "every lever: value, source, place")                                                \
    X(route, "what would run for a shape, and which guard refused the other; needs no device")    \
    X(check, "self test, recorded layers (--golden), recorded text (--model)")                    \
    X(bench, "time the operations beside this machine's own ceilings")                            \
    X(compile, "compile the GPU targets' kernels into a folder; needs no GPU")                    \
    X(cache, "kept compiled kernels: list, verify, prune")
#define CLI_DECLARE_(name, text) int gdn_cmd_##name(int argc, char **argv);
CLI_COMMAND_MAP(CLI_DECLARE_)
#undef CLI_DECLARE_

enum { CLI_OK = 0, CLI_NO = 1, CLI_USAGE = 2 };

/* What every subcommand accepts: --target NAME|PATH, --set KEY=VALUE (a lever, repeatable), --conf FILE, --log LEVEL
 * (error, warn, info, debug), --json, --help. */
typedef struct cli_common {
    gdn_options open;
    gdn_setting settings[32];
    bool json, help;
    const char *command; /* for messages */
} cli_common;

/* The getopt_long rows of the common options, to be placed first in a subcommand's own table; val >= 1000. */
#define CLI_COMMON_OPTIONS                                                                                        \
    { "target", 1, 0, 1000 }, { "set", 1, 0, 1001 }, { "conf", 1, 0, 1002 }, { "log", 1, 0, 1003 }, { "json", 0, 0, 1004 }, { "help", 0, 0, 1005 }
#define CLI_COMMON_HELP                                                                \
    "  --target NAME|PATH  cpu, gb10, hopper, auto, or a plugin file (default: auto)\n"  \
    "  --set KEY=VALUE     set a lever (see gdn levers); may be repeated\n"             \
    "  --conf FILE         one more settings file, stronger than the installed ones\n"  \
    "  --log LEVEL         error, warn (default), info, debug; lines go to stderr\n"    \
    "  --json              one JSON document on stdout\n"                              \
    "  --help              this text\n"

void cli_common_init(cli_common *c, const char *command);
/* true when `val` was a common option and was taken; exits with CLI_USAGE on a bad value. */
bool cli_common_option(cli_common *c, int val, const char *arg);
/* Opens the target; on failure prints the line and returns NULL. */
gdn *cli_open(const cli_common *c);
/* `gdn <command>: <text>` on stderr. */
void cli_error(const cli_common *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A whole decimal number in [lo, hi], else an error line and false. */
bool cli_u64(const cli_common *c, const char *what, const char *text, uint64_t lo, uint64_t hi, uint64_t *out);
/* A bar on stderr when it is a terminal, nothing otherwise; done == total ends the line. */
void cli_progress(const char *what, uint64_t done, uint64_t total);
/* Prints the document with sorted keys and frees it. */
void cli_print_json(json_t *doc);

#endif
