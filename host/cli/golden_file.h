/* golden_file.h - a recorded layer: geometry from the metadata, tensors by group and name as f32.
 *
 * Groups: weight, prefill, decode0, decode1, ... Shapes are checked against the geometry when a tensor is read. */
#ifndef GDN_CLI_GOLDEN_FILE_H
#define GDN_CLI_GOLDEN_FILE_H

#include "cli.h"
#include "safetensors.h"

typedef struct golden {
    gdn_st *st;
    const char *file;
    uint32_t hidden, nk, nv, dim, batch, tokens, steps; /* tokens: of each sequence's prefill; steps: decode calls */
    uint32_t channels;                                  /* 2*nk*dim + nv*dim */
    float eps;
    bool interleaved; /* qwen3_next: qkvz and ba interleaved per key head; qwen3_5: qkv, z, b, a apart */
} golden;

enum { GOLDEN_CONV_WIDTH = 4 };

/* false after an error line. */
bool golden_open(const cli_common *c, const char *file, golden *out);
void golden_close(golden *l);
/* Tensor `group`.`name` as f32, malloc'ed; NULL after an error line when it is missing or of another shape or dtype. */
float *golden_read(const cli_common *c, const golden *l, const char *group, const char *name, uint32_t rank, const uint64_t *shape);

#endif
