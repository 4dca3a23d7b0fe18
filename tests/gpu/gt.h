/* gt.h - gpu_test: named results on a device, each against the cpu target or f64, with controls that must fail.
 *
 * A job is one launch: a shape and its buffers. It is run on two targets from the same bytes and compared. Each device buffer lies
 * between two bands of known bytes; outputs begin poisoned; inputs must come back unchanged. With --target cpu everything that needs
 * no driver runs on the cpu target on both sides: that proves the harness, never a kernel, and evidence is not written. */
#ifndef GDN_GPU_TEST_H
#define GDN_GPU_TEST_H

#include "gdn.h"
#include "gpu_clock.h"
#include "numeric.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { GT_MAX_KEPT = 256, GT_BAND = 1024 };

typedef struct gt {
    const char *target, *self; /* self: this program, to be run again */
    gdn *dev, *cpu;            /* dev: both levers of the b/a projection and the fast prefill off */
    gpu_clock *clock;          /* NULL: there is no device                   */
    uint32_t device_steps;     /* of B99 */
    bool brief;                /* few and small shapes, for the sanitizer    */
    const char *only;          /* --only                                      */
    const char *prefix;        /* of the next results' names; NULL: none      */
    const char *cubins;        /* folder filled by gdn_compile_ahead; NULL: none could be made */
    char cubin_reason[256];
    char cache[64]; /* filled by the cold start; removed by gt_test_cache */
    json_t *results;
    uint32_t failed, skipped, done;
    /* the result being made */
    char name[96], reason[512];
    json_t *figures;
    bool bad, skip;
    void *kept[GT_MAX_KEPT]; /* host memory of it */
    uint32_t n_kept;
    rng r;
} gt;

/* ---- gt_results.c ---- */
/* false: left out by --only, and nothing is to be done. */
bool gt_begin(gt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void gt_figure(gt *t, const char *name, double value);
void gt_fail(gt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* the first reason counts */
bool gt_check(gt *t, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void gt_skip(gt *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void gt_end(gt *t);
bool gt_needs_device(gt *t);          /* false: skipped, there is none */
bool gt_needs_hopper(gt *t);          /* false: skipped, only target hopper has the kernel */
void *gt_keep(gt *t, uint64_t bytes); /* zeroed; freed by gt_end */
void *gt_random(gt *t, uint32_t type, uint64_t n, double lo, double hi);
/* Opens a target with lever = value pairs, NULL at the end. NULL: the running result has failed. */
gdn *gt_open(gt *t, const char *target, ...) __attribute__((sentinel));
/* Writes the evidence file. false: a line was printed. */
bool gt_evidence(const gt *t, const char *file, const char *hash, const json_t *bench);
/* 0: the file has the form and every result is pass or an explained skip; 4: the form, but a result failed; a line says what is wrong. */
int gt_verify(const char *file);

/* ---- gt_job.c ---- */
enum { GT_MAX_PTR = 16 };
enum { GT_IN = 1, GT_OUT = 2, GT_INOUT = 3, GT_SCRATCH = 4 /* a workspace: begins poisoned, is not looked at */ };
typedef struct gt_buf {
    uint64_t bytes;   /* 0: the pointer is NULL */
    const void *init; /* NULL: poison (0xFF)    */
    uint32_t role, type;
    double tol;     /* 0: the same bytes; else relative RMS, worst element 200 times that; poison stays poison */
    uint32_t shift; /* bytes by which the payload is moved off its alignment */
    int same_as;    /* index + 1 of the buffer that it is (in place)          */
} gt_buf;
typedef struct gt_job {
    const gdn_shape *shape;
    gt_buf buf[GT_MAX_PTR];
    uint32_t n_ptr, u32[2], n_u32;
} gt_job;

typedef struct gt_live {
    gdn *g;
    const gt_job *job;
    gdn_hplan *plan;
    uint64_t base[GT_MAX_PTR], ptr[GT_MAX_PTR];
    uint8_t *got[GT_MAX_PTR]; /* what came back, kept by the result */
} gt_live;
bool gt_up(gt *t, gdn *g, const gt_job *job, gt_live *l); /* plan, memory, bands, contents */
bool gt_fill(gt *t, const gt_live *l, void *stream);      /* contents again */
gdn_status gt_launch(const gt_live *l, void *stream);
bool gt_down(gt *t, gt_live *l, void *stream); /* waits, fetches; bands and inputs are whole */
void gt_drop(gt_live *l);
/* All outputs of b against a. loud: figures, and the result fails. */
bool gt_same(gt *t, const gt_live *a, const gt_live *b, bool loud);
/* One output against another of its size, e.g. twin against parent. */
bool gt_same_bytes(gt *t, const void *want, const void *got, uint64_t bytes, const char *what);
/* One changed element of l's outputs must be noticed, each output in turn. */
void gt_control(gt *t, const gt_live *want, gt_live *l);
/* cpu and device, compared; the device twice; the control. */
void gt_pair(gt *t, const gt_job *job);
/* The entry that would run. */
const char *gt_entry(const gt_live *l);

/* ---- jobs of each operation, also used by the stream tests ---- */
typedef struct gt_conv {
    uint32_t nk, nv, dim; /* set: fused */
    uint32_t channels, width, extra, batch, rows, offsets, x_pad, out_pad, num_slots, weight_type, shift;
    const uint32_t *len; /* packed */
    const int32_t *slots, *accepted;
    const uint8_t *fresh;
    bool no_slots, no_state, bias, no_silu, keep;
} gt_conv;
typedef struct gt_shapes { /* room for what a job's shape points to */
    gdn_conv_shape conv;
    gdn_ba_shape ba;
    gdn_gates_shape gates;
    gdn_norm_shape norm;
    gdn_state_shape state;
    gdn_rule_shape rule;
    gdn_w4a4_shape w4a4;
} gt_shapes;
void gt_conv_job(gt *t, const gt_conv *c, gt_shapes *s, gt_job *job);
void gt_ba_job(gt *t, uint32_t M, uint32_t nv, uint32_t vpg, uint32_t K, uint32_t pad, uint32_t out_pad, gt_shapes *s, gt_job *job);
void gt_gemv_job(gt *t, const gt_job *ba, uint32_t row, gt_shapes *s, gt_job *job);
void gt_gates_job(gt *t, uint32_t rows, uint32_t nv, uint32_t vpg, uint32_t pad, uint32_t form, gt_shapes *s, gt_job *job);
void gt_norm_job(gt *t, uint32_t rows, uint32_t heads, uint32_t dim, uint32_t act, uint32_t pad, gt_shapes *s, gt_job *job);
void gt_state_job(gt *t, bool copy, uint64_t bytes, uint32_t slots, gt_shapes *s, gt_job *job);
/* Random codes, scales 0x28..0x3F, NaN scales in the tokens that are not there; tol as in gt_buf, of C. */
void gt_w4a4_job(gt *t, uint32_t M, uint32_t N, uint32_t K, double tol, gt_shapes *s, gt_job *job);
typedef struct gt_rule {
    uint32_t nk, nv, dim, batch, rows, offsets, first; /* first: rows in front of the first sequence */
    const uint32_t *len;                               /* packed */
    const int32_t *slots, *out_slots;                  /* a pool of batch + 3 */
    const uint8_t *fresh;
    uint32_t ckpt_every, pad, layout, map, form, flags, shift;
    uint64_t max_workspace;
    double gate_lo, gate_hi, beta_lo;
    double alike; /* of keys and queries: <k, k'> is about that */
    double large; /* times ordinary values; 0: 1 */
    bool equal_keys, tiny_decays;
    float scale;
} gt_rule;
/* The workspace is what target g's plan asks for; the cpu target does not look at it. */
void gt_prefill_job(gt *t, gdn *g, const gt_rule *p, gt_shapes *s, gt_job *job);
/* One of each entry, small. */
enum { GT_ANY = 8 };
void gt_any_job(gt *t, uint32_t index, gt_shapes *s, gt_job *job);
const char *gt_job_name(uint32_t index);

/* ---- gt_direct.c: a kernel started without the library, from a compiled module in t->cubins ---- */
typedef struct gt_direct {
    gpu_clock *clock;
    void *module, *function;
} gt_direct;
bool gt_direct_open(gt *t, const char *module, const char *entry, gt_direct *d);
void gt_direct_close(gt_direct *d);
bool gt_make_cubins(gt *t, char folder[64]);

/* ---- gt_parts.c: all groups into t->results, one after another or in GT_PARTS programs, what is timed behind the others ---- */
enum { GT_PARTS = 6 };
void gt_run_all(gt *t, bool side_by_side);
/* One part, in a program of its own: its results to a file for gt_run_all. The exit status. */
int gt_run_part(gt *t, uint32_t part, const char *file);

/* ---- groups ---- */
void gt_test_ba(gt *t);
void gt_test_ba_error(gt *t);
void gt_test_gates(gt *t);
void gt_test_conv(gt *t);
void gt_test_norm(gt *t);
void gt_test_state(gt *t);
void gt_test_prefill(gt *t);
void gt_test_prefill_fast(gt *t);
void gt_test_prefill_fast_wn(gt *t);
void gt_test_prefill_error(gt *t);
void gt_test_lengths(gt *t);
void gt_test_spine(gt *t);
void gt_test_step(gt *t);
void gt_test_decode_step(gt *t);
void gt_test_sequence(gt *t);
void gt_test_w4a4(gt *t);
void gt_test_w4a4_model(gt *t);
void gt_test_capture(gt *t);
void gt_test_streams(gt *t);
void gt_test_speculation(gt *t);
void gt_test_refusals(gt *t);
void gt_test_checked(gt *t);
void gt_test_machine_code(gt *t);
void gt_test_overhead(gt *t);
void gt_test_starts(gt *t);
void gt_test_cache(gt *t);
void gt_test_processes(gt *t);
void gt_test_sanitizer(gt *t);
/* Runs as a program of its own: --start, --lost, --plant, --rounds, --first, --width; *rc is its exit status. false: none of these. */
bool gt_child(int argc, char **argv, int *rc);

#define GT_BASE(T, op_) \
    { (uint32_t)sizeof(T), (op_), 0, GDN_BF16 }
#define GT_N(a) (sizeof(a) / sizeof((a)[0]))

#endif
