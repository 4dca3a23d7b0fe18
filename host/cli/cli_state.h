/* cli_state.h - what one run of the command remembers for its end: cli_common.c writes it, cli_json.c makes the end of it. */
#ifndef GDN_CLI_STATE_H
#define GDN_CLI_STATE_H

#include "cli.h"

typedef struct cli_state {
    int argc; /* of the process, for the end of a command that leaves early */
    char *const *argv;
    bool json;            /* --json was read                         */
    bool printed;         /* a JSON document is on stdout            */
    bool fault;           /* of the command line: see cli_fault      */
    char error[CLI_TEXT]; /* the first error line, "" when none      */
} cli_state;
extern cli_state cli_run;

/* Memory that stays until the process ends, so that no reader has to free it; NULL: there is none. */
void *cli_keep(size_t bytes);

#endif
