/* generate.h - writes tokens after a prompt, plain or speculative.
 *
 * Speculative: the last token and up to three drafts from the text so far go through one verify; each row's logits are
 * sampled in order, and rows are kept as long as the sample is the next draft. What is written is what plain decoding would
 * write, up to rounding: a row's bits depend on its place in the launch. near_ties counts the tokens where that could matter. */
#ifndef GDN_ENGINE_GENERATE_H
#define GDN_ENGINE_GENERATE_H

#include "engine.h"
#include "sampler.h"

#define GDN_NEAR_TIE 1e-4f /* best minus second best logit */

typedef struct gdn_generate_options {
    uint64_t n;           /* tokens to write                                        */
    gdn_sampler *sampler; /* of the checkpoint's vocabulary                         */
    uint32_t drafts;      /* at most so many a verify, 0..3; 0: plain decoding      */
    uint32_t pad_;
    bool (*token)(void *user, uint32_t token); /* every token as it is known; false stops; may be NULL */
    void *user;
} gdn_generate_options;

typedef struct gdn_generate_stats {
    uint64_t prompt, generated;
    uint64_t steps, verifies;               /* launches of one row, of several          */
    uint64_t rows[GDN_ENGINE_MAX_ROWS + 1]; /* verifies by their rows                 */
    uint64_t proposed, accepted;            /* drafts                                   */
    uint64_t near_ties;
    double prefill_seconds, decode_seconds;
    float least_gap;
    uint32_t pad_;
} gdn_generate_stats;

/* The engine must be reset. GDN_OK also when the callback stopped it. */
gdn_status gdn_generate(gdn_engine *e, const uint32_t *prompt, uint64_t n_prompt, const gdn_generate_options *opt,
                        gdn_generate_stats *stats, gdn_text *err);

#endif
