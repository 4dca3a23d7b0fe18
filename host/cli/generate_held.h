/* generate_held.h - what `gdn generate --w4a4` tells first: which projections are NVFP4, and the perplexity of a held text with the
 * checkpoint's weights and with them. */
#ifndef GDN_CLI_GENERATE_HELD_H
#define GDN_CLI_GENERATE_HELD_H

#include "cli.h"
#include "engine.h"

/* A short text that no checkpoint was trained on (held_text.c). */
extern const char gdn__held_text[];

typedef struct held {
    uint32_t *tokens;
    uint64_t n;
    double before, after;
} held;

/* A file's bytes, or with path NULL text's, as tokens, which the caller frees. An exit code; a line was printed unless CLI_OK. */
int cli_read_tokens(const cli_common *c, const char *path, const char *text, uint32_t **tokens, uint64_t *n);
/* The perplexity of h's tokens. false: a line was printed. */
bool held_measure(const cli_common *c, gdn_engine *e, const held *h, double *out);
void held_print(const gdn_engine *e, const held *h);
uint32_t held_projections(const gdn_engine *e); /* how many became NVFP4 */ /* to stderr */
json_t *held_document(const gdn_engine *e, const held *h);

#endif
