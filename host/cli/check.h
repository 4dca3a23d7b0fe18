/* check.h - the two recorded comparisons of `gdn check`. Both open the target themselves and return an exit code of cli.h. */
#ifndef GDN_CLI_CHECK_H
#define GDN_CLI_CHECK_H

#include "cli.h"

/* Every stage of a recorded layer (tests/data/golden/README.md) through the target. dtype: GDN_F32 or GDN_BF16, 0 = the target's own
 * (engine.h). CLI_NO: an error above its bound, or the file or target could not be used. */
int cli_check_golden(const cli_common *c, const char *file, uint32_t dtype);

/* Feeds the recorded text of `replay` (greedy.json's format) to the checkpoint in `dir` and compares every next byte.
 * CLI_NO: f32: any mismatch; bf16: a mismatch where the recorded gap is 0.5 or more. */
int cli_check_model(const cli_common *c, const char *dir, const char *replay, uint32_t dtype);

/* "f32" or "bf16", else an error line and false. */
bool cli_dtype(const cli_common *c, const char *text, uint32_t *out);

#endif
