/* cli.h - what the subcommands of `gdn` share. One file a subcommand, cmd_<name>.c, one entry: int gdn_cmd_<name>(argc, argv).
 *
 * Exit codes, everywhere: 0 done; 1 the answer is no (a check above its bound, a target that is not usable, a model or
 * plugin that could not be loaded, a settings file or variable that is wrong); 2 wrong usage or bad input on the command line,
 * --conf, --set and the form of --target's name included. Errors go to stderr as one line, `gdn <command>: <what>`; results to
 * stdout; --json prints one JSON document with a "schema" number instead. A command that fails under --json before it printed its
 * document gets {"schema":1,"error":"<what>"} from main, after the line on stderr: commands need not care. */
#ifndef GDN_CLI_H
#define GDN_CLI_H

#include "gdn.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define CLI_COMMAND_MAP(X)                                                                     \
    X(generate, "write text with a checkpoint, plain or speculative")                          \
    X(targets, "which plugins load, their ABI, and why the others do not")                     \
    X(levers, "every lever: value, source, place")                                             \
    X(route, "what would run for a shape, and which guard refused the other; needs no device") \
    X(check, "self test, recorded layers (--golden), recorded text (--model)")                 \
    X(bench, "time the operations beside this machine's own ceilings")                         \
    X(compile, "compile the GPU targets' kernels into a folder; needs no GPU")                 \
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
    bool level_chosen;   /* by --log or GDN_LOG: what is logged is that and nothing more */
    const char *command; /* for messages */
} cli_common;

/* The getopt_long rows of the common options, to be placed first in a subcommand's own table; val >= 1000. */
#define CLI_COMMON_OPTIONS                                                                                                    \
    { "target", 1, 0, 1000 }, { "set", 1, 0, 1001 }, { "conf", 1, 0, 1002 }, { "log", 1, 0, 1003 }, { "json", 0, 0, 1004 }, { \
        "help", 0, 0, 1005                                                                                                    \
    }
/* Room for a message that quotes a path of any length. */
enum { CLI_TEXT = 8192 };

#define CLI_TARGET_HELP "  --target NAME|PATH  cpu, gb10, hopper, auto, or a plugin file (default: auto)\n"
#define CLI_LEVER_HELP                                                      \
    "  --set KEY=VALUE     set a lever (see gdn levers); may be repeated\n" \
    "  --conf FILE         one more settings file, stronger than the installed ones\n"
#define CLI_OUTPUT_HELP                                                                                   \
    "  --log LEVEL         error, warn, info, debug; lines go to stderr. Default: warn, and\n"            \
    "                      how far compiling is\n"                                                        \
    "  --json              one JSON document on stdout; {\"schema\":1,\"error\":\"...\"} when it fails\n" \
    "  --help              this text\n"
#define CLI_COMMON_HELP CLI_TARGET_HELP CLI_LEVER_HELP CLI_OUTPUT_HELP

void cli_common_init(cli_common *c, const char *command);
/* GDN_LOG's level; `otherwise` when it is not set or no level, of which libgdn warns. */
uint32_t cli_default_level(uint32_t otherwise);
/* true when `val` was a common option and was taken; exits with CLI_USAGE on a bad value. */
bool cli_common_option(cli_common *c, int val, const char *arg);
/* For a command that opens nothing: false, with a line that ends in `why`, when --set or --conf was given. */
bool cli_no_levers(const cli_common *c, const char *why);
/* Opens the target; on failure *out is NULL and the line is printed. The status is for callers that choose by it; the exit code needs
 * no choice: where the command line was at fault (see cli_fault) CLI_NO becomes CLI_USAGE in main. */
gdn_status cli_open_status(const cli_common *c, gdn **out);
gdn *cli_open(const cli_common *c); /* NULL: it failed */
/* What it opens with: where no level was chosen the compiler's progress is shown as well. */
gdn_options cli_open_options(const cli_common *c);
void cli_compile_progress(void *user, uint32_t severity, const char *area, const char *msg);
/* What libgdn said, in the words of the command line ("api: " is --set, "conf=" is --conf), into buf; true when the command line is
 * at fault, and then the exit code of the process is CLI_USAGE instead of CLI_NO. */
bool cli_fault(const cli_common *c, const char *why, char *buf, size_t size);
/* The line for a failed call of libgdn: cli_error with the text of cli_fault. */
void cli_failed(const cli_common *c, gdn_status st, const char *why);
/* `gdn <command>: <text>` on stderr. The first one is what --json says. */
void cli_error(const cli_common *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A whole decimal number in [lo, hi], else an error line and false. */
bool cli_u64(const cli_common *c, const char *what, const char *text, uint64_t lo, uint64_t hi, uint64_t *out);
/* A bar on stderr when it is a terminal, nothing otherwise; done == total ends the line. */
void cli_progress(const char *what, uint64_t done, uint64_t total);
/* Prints the document with sorted keys and frees it. */
void cli_print_json(json_t *doc);
/* The text itself when it is UTF-8, as JSON wants it, else a copy that lives as long as the process with \xNN for every byte that is
 * not; NULL stays NULL. For what comes from the environment, the command line and file names. */
const char *cli_text(const char *text);
/* main's last step: the JSON of a failure if it is owed, and the exit code that is left of `code`. */
int cli_finish(int code);

#endif
