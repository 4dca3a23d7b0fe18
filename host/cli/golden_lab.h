/* golden_lab.h - where a recorded layer is run: host arrays, device memory, plans for one launch each, the results.
 *
 * Everything is sticky: after the first failure (one error line) all calls do nothing, arrays are NULL and addresses 0. */
#ifndef GDN_CLI_GOLDEN_LAB_H
#define GDN_CLI_GOLDEN_LAB_H

#include "arena.h"
#include "dense.h"
#include "golden_file.h"

typedef struct golden_lab {
    const cli_common *c;
    const golden *l;
    gdn *g;
    uint32_t act; /* GDN_F32 or GDN_BF16 */
    bool failed;
    const gdn__dense *dense;
    void *dense_ctx;
    gdn__arena weights, call; /* device memory: of the layer, of one call */
    float **host;             /* host arrays of the call */
    uint32_t n_host, cap_host;
    uint64_t w_qkvz, w_ba, w_ba_dense, w_conv, w_norm, w_out, w_a_log, w_dt_bias;
    json_t *results, *routes; /* arrays */
    uint32_t over;            /* results above their bound */
} golden_lab;

/* Sequences all of `tokens` tokens; rows = batch*tokens. */
typedef struct golden_call {
    const char *group, *before; /* before: the call whose states this one starts from; NULL: zeros */
    uint32_t tokens, rows;
} golden_call;

bool lab_open(golden_lab *b, const cli_common *c, const golden *l, gdn *g, uint32_t act);
void lab_close(golden_lab *b);
void lab_end_call(golden_lab *b); /* gives back what the call took */

float *lab_host(golden_lab *b, uint64_t n); /* zeros */
float *lab_read(golden_lab *b, const char *group, const char *name, uint32_t rank, const uint64_t *shape);
uint64_t lab_put(golden_lab *b, const float *src, uint64_t n, uint32_t type);                         /* to the device */
uint64_t lab_take(golden_lab *b, uint64_t n, uint32_t type);                                          /* zeros on the device */
float *lab_get(golden_lab *b, uint64_t src, uint64_t n, uint32_t type);                               /* from the device */
uint64_t lab_matmul(golden_lab *b, uint64_t x, uint64_t w, uint32_t rows, uint32_t in, uint32_t out); /* values rounded to bf16 */

/* Plans, launches and forgets. workspace: index of that pointer in ptr, or -1. */
void lab_launch(golden_lab *b, const gdn_shape *shape, uint32_t n_ptr, uint64_t *ptr, int workspace, uint32_t n_u32, const uint32_t *u32);

/* Relative L2 error of got against want, noted under call and stage with its bound; bound 0: must be equal. */
void lab_compare(golden_lab *b, const char *call, const char *stage, const float *got, const float *want, uint64_t n, double bound);

/* Adds to sums: squares of the difference and of `want`. lab_note reports their ratio's root. */
typedef struct lab_sums {
    double diff, norm;
} lab_sums;
void lab_add(lab_sums *sums, const float *got, const float *want, uint64_t n);
void lab_note(golden_lab *b, const char *call, const char *stage, const lab_sums *sums, double bound);

/* golden_stages.c */
void golden_run_stages(golden_lab *b, const golden_call *call);
/* golden_chain.c: the whole layer from `hidden`, states carried from call to call. */
typedef struct golden_chain {
    uint64_t state, conv_state;
    lab_sums out[2], states[2]; /* of prefill, of all decode steps */
} golden_chain;
void golden_run_chain(golden_lab *b, const golden_call *call, golden_chain *chain);
void golden_judge_chain(golden_lab *b, const golden_chain *chain);

#endif
