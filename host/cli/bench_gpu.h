/* bench_gpu.h - the rows that `gdn bench` and tests/gpu measure on a GPU target, beside the device's own ceilings of the same run.
 *
 * Times are of one call inside a graph of many (gpu_clock.h), buffers rotated through more than twice the last cache, inputs random.
 * Bytes are those that must move: every input read once, every output written once. The result is a document, so that the table,
 * --json and the evidence file print the same numbers:
 *
 *   { "schema": 1, "target", "device", "copy_gbps", "copy_by", "memcpy_gbps", "bf16_tflops": number or null, "bf16_by",
 *     "bench": [ { "op", "entry", "shape": {...}, "us_median", "us_p10", "us_p90", "gbps", "tflops", "calls", "peers": {entry: us} } ],
 *     "left_out": [ "what and why" ] } */
#ifndef GDN_CLI_BENCH_GPU_H
#define GDN_CLI_BENCH_GPU_H

#include "cli.h"
#include "gpu_clock.h"

typedef struct gpu_bench {
    const cli_common *cli;
    gpu_clock clock;
    gdn *g; /* lent: the rows that are being measured */
    json_t *rows, *left_out;
    uint32_t nk, nv, replays;
    uint64_t random; /* device memory, random bf16 values in [-1, 1) */
    uint64_t random_bytes;
    uint64_t taken[64]; /* device memory of the row */
    uint32_t n_taken;
    char text[512];
    gdn_text err;
} gpu_bench;

#define GPU_BENCH_OPS "prefill,decode,verify,fold,round,decode_step,ba_gates,conv,norm,gates,w4a4"
/* Operations of ops (a comma list of GPU_BENCH_OPS). NULL: it could not run; one line was printed. */
json_t *gpu_bench_run(const cli_common *cli, const char *ops, uint32_t nk, uint32_t nv, uint32_t replays);
void gpu_bench_print(const json_t *doc);
bool gpu_bench_knows(const char *ops);

/* ---- bench_gpu_mem.c ---- */
enum { GPU_BENCH_SETS = 512 };
/* n bytes, all sets of a row in one piece: device address, 0 on failure. Random or left as it is. */
uint64_t gpu_bench_take(gpu_bench *b, uint64_t bytes, bool random);
void gpu_bench_release(gpu_bench *b);
/* How many sets of `bytes` go round more than the last cache. */
uint32_t gpu_bench_sets(const gpu_bench *b, uint64_t bytes);

/* ---- bench_gpu_blas.c ---- */
typedef struct gpu_blas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b,
                int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
    void *library, *handle;
} gpu_blas;
/* On the clock's stream; its workspace is released with the row's memory. false: why says what is missing. */
bool gpu_blas_open(gpu_bench *b, gpu_blas *x, char *why, size_t cap);
void gpu_blas_close(gpu_blas *x);
/* c[M][N] = a[M][K] w[N][K]^T in bf16, sums in f32. */
bool gpu_blas_product(const gpu_blas *x, uint64_t a, uint64_t w, uint64_t c, uint32_t M, uint32_t N, uint32_t K);

/* ---- bench_gpu_ceilings.c: adds copy_gbps, memcpy_gbps, copy_by, bf16_tflops, bf16_by ---- */
bool gpu_bench_ceilings(gpu_bench *b, json_t *doc);

/* ---- bench_gpu_rows.c ---- */
enum { GPU_BENCH_PTRS = 32 };
/* One call of a row: pointers of set i are those of set 0 plus i times their step. */
typedef struct gpu_bench_row {
    const char *op;
    const gdn_shape *shape;
    uint64_t ptr[GPU_BENCH_PTRS], step[GPU_BENCH_PTRS];
    uint32_t n_ptr, u32[2], n_u32, sets;
    double bytes, flop;               /* flop 0: not meant for this row        */
    const struct gpu_bench_row *then; /* launched after it, timed with it; four in all */
} gpu_bench_row;
/* Plans, times, adds a row; *us gets the median. shape_keys is taken over. false: a line was printed. */
bool gpu_bench_row_add(gpu_bench *b, const gpu_bench_row *row, json_t *shape_keys, double *us);
/* Opens what `base` does with n levers more, stronger than its own. false: a line was printed. */
bool gpu_bench_open(gpu_bench *b, const gdn_options *base, const gdn_setting *levers, uint32_t n, gdn **out);
/* Every row from `from` on names what the others took. */
void gpu_bench_peers(gpu_bench *b, size_t from);
bool gpu_bench_ba(gpu_bench *b, const gdn_options *base);
bool gpu_bench_conv(gpu_bench *b);
bool gpu_bench_norm(gpu_bench *b);
bool gpu_bench_gates(gpu_bench *b);
bool gpu_bench_w4a4(gpu_bench *b); /* bench_gpu_w4a4.c */
bool gpu_bench_step(gpu_bench *b); /* bench_gpu_step.c */

/* ---- bench_gpu_rule.c ---- */
bool gpu_bench_prefill(gpu_bench *b, const gdn_options *base);
bool gpu_bench_decode(gpu_bench *b);
bool gpu_bench_verify(gpu_bench *b);
bool gpu_bench_fold(gpu_bench *b, const gdn_options *base);  /* write-on-accept, fold, both */
bool gpu_bench_round(gpu_bench *b, const gdn_options *base); /* both in one launch */

#endif
