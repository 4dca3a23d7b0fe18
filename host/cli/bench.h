/* bench.h - what the parts of `gdn bench` share: samples, rows of the report, this machine's ceilings. */
#ifndef GDN_CLI_BENCH_H
#define GDN_CLI_BENCH_H

#include "arena.h"
#include "cli.h"

enum { BENCH_MAX_REPS = 64, BENCH_MAX_ROWS = 96 };

/* Seconds of repeated runs. */
typedef struct bench_samples {
    double s[BENCH_MAX_REPS];
    uint32_t n;
} bench_samples;
double bench_now(void);
void bench_add(bench_samples *b, double seconds);
double bench_quantile(const bench_samples *b, double q); /* 0.5 the median; NaN without samples */

/* One line: what ran, its times, and what stands beside it in the same interleaved run. */
typedef struct bench_row {
    const char *op, *entry, *type, *layout; /* layout: "K-major", "V-major" or "" */
    uint32_t T, batch, rows;
    double us_median, us_p10, us_p90;
    double gbps, gflops; /* NaN: not meant for this row */
    double of_ceiling;   /* this / ceiling, same run    */
    const char *ceiling; /* "sgemm", "in-place scale"   */
} bench_row;

typedef struct bench {
    const cli_common *cli;
    gdn *g;
    gdn__arena mem;
    gdn_text err;
    char text[256];
    uint32_t nk, nv, reps;
    uint64_t pool_bytes; /* states are rotated through this much memory */
    float *pool, *other; /* pool_bytes each, page-touched by the threads that use them */
    float *sgemm_a, *sgemm_b, *sgemm_c;
    bench_row row[BENCH_MAX_ROWS];
    uint32_t rows;
} bench;

/* ---- bench_ceilings.c ---- */
bool bench_open_ceilings(bench *b);
void bench_close_ceilings(bench *b);
enum { BENCH_SGEMM_N = 1024 };
void bench_sgemm(bench *b);             /* 1024 cubed, one BLAS thread in each OpenMP thread, rows split */
void bench_scale(float *p, uint64_t n); /* in place, by all threads */
void bench_memcpy(float *dst, const float *src, uint64_t n);
void bench_stream_copy(float *dst, const float *src, uint64_t n); /* non-temporal stores where there are such */
/* Best of five over the whole pool: GB/s read + write. */
typedef struct bench_machine {
    double memcpy_gbps, stream_gbps, scale_gbps, sgemm_gflops;
    int threads;
} bench_machine;
void bench_measure_machine(bench *b, bench_machine *out);

/* ---- bench_rule.c ---- */
bool bench_prefill(bench *b, uint32_t act, uint32_t T);
bool bench_decode(bench *b, uint32_t v_major, uint32_t batch);
bool bench_verify(bench *b, bool woa, uint32_t batch);
#endif
