/* check_replay.h - a recorded text for `gdn check --replay`: {"cases": [{"prompt", "dtype": "float32" | "bfloat16", "tokens": [bytes],
 * "top2_gap": [..], "first_logits": [..]}]}; first_logits may be left out. */
#ifndef GDN_CLI_CHECK_REPLAY_H
#define GDN_CLI_CHECK_REPLAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct replay_case {
    uint32_t *tokens; /* prompt, then the recorded text */
    double *gap;      /* one a recorded token           */
    float *first;     /* vocab; NULL: not recorded      */
    uint64_t n_prompt, n;
    const char *prompt;
} replay_case;

/* NULL, or what is wrong with the case. Either way replay_free is owed; prompt stays j's own. */
const char *replay_read(const json_t *j, uint32_t vocab, replay_case *k);
void replay_free(replay_case *k);

#endif
