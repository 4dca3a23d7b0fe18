/* engine.h - a small engine: one sequence of a qwen3_next checkpoint, the GDN parts through a target, the rest dense.
 *
 * Per layer: x += linear_attn(rmsnorm(x; 1 + w)); x += mlp(rmsnorm(x; 1 + w)); at the end a norm and the head. linear_attn is
 * projection, then through gdn_launch only: conv_fused, ba_gates, prefill | decode | verify (or verify_woa, round), norm; then the
 * output projection. All memory is the target's. dtype GDN_F32: everything f32. GDN_BF16: activations bf16 between stages.
 *
 * With w4a4 the weights of the four projections of each layer are quantised to NVFP4 when they are loaded, and their products are
 * w4a4_quant and w4a4, 64 rows at a time; a projection that the target refuses by name stays dense (gdn_engine_projections).
 *
 * On a GPU target the engine has a stream of its own, products are cuBLAS's (opened at run time) and the rest its own kernels
 * (engine_rows.cu, compiled through gdn_backend_of); activations are bf16. The passes of decode and verify are captured in CUDA graphs
 * and replayed. The calling thread needs no context.
 *
 *     gdn_engine_load(dir, &opt, &e, &err)
 *     gdn_engine_prefill(e, tokens, n, false, logits, &err);            the prompt
 *     gdn_engine_step(e, token, logits, &err);                          one token
 *     gdn_engine_verify(e, tokens, rows, logits, &err);                 the last token and drafts; logits of each row
 *     gdn_engine_accept(e, n, &err);                                    n of these rows were right: the state is that of n tokens
 *
 * An engine is used by one thread at a time. After a failed call the sequence is lost until gdn_engine_reset. */
#ifndef GDN_ENGINE_H
#define GDN_ENGINE_H

#include "gdn.h"
#include "model_config.h"

enum { GDN_ENGINE_MAX_ROWS = 4 };

typedef struct gdn_engine gdn_engine;

/* What is being done: "loading" in layers, "prompt" in tokens when a prefill takes several segments, "text" in
 * tokens of a perplexity. done == total at its end. */
typedef void (*gdn_engine_progress)(void *user, const char *what, uint64_t done, uint64_t total);

typedef struct gdn_engine_options {
    gdn *target;                  /* borrowed, must outlive the engine                                                     */
    uint32_t dtype;               /* GDN_F32 or GDN_BF16; 0 = GDN_F32 on host memory, GDN_BF16 on a GPU                    */
    uint32_t segment;             /* tokens of one prefill launch, a multiple of 64; 0 = 2048                              */
    bool woa;                     /* verify 4 rows by verify_woa; an error when the target refuses (lever gdn_woa = 1)     */
    bool w4a4;                    /* projections by NVFP4 codes of both sides, where the target takes their sizes (K % 128)  */
    bool no_graph;                /* launch the kernels of every step one by one                                           */
    gdn_engine_progress progress; /* may be NULL; called by load, prefill, perplexity                                               */
    void *user;
} gdn_engine_options;

/* Errors: of the files (model_config.h, safetensors.h), of the target (its guard by name), of cuBLAS (what was tried), GDN_E_NOMEM. */
gdn_status gdn_engine_load(const char *dir, const gdn_engine_options *opt, gdn_engine **out, gdn_text *err);
void gdn_engine_free(gdn_engine *e); /* NULL is ignored */

const gdn_model_config *gdn_engine_config(const gdn_engine *e);
uint32_t gdn_engine_dtype(const gdn_engine *e);
uint64_t gdn_engine_position(const gdn_engine *e); /* tokens in the state */
uint64_t gdn_engine_bytes(const gdn_engine *e);    /* device memory taken */
const char *gdn_engine_dense(const gdn_engine *e); /* "OpenBLAS" or "cuBLAS" */
/* Passes of decode and verify that were replayed from a graph; *why (may be NULL): the last capture that failed, NULL when none did. */
uint64_t gdn_engine_replays(const gdn_engine *e, const char **why);

/* Forgets the sequence. */
gdn_status gdn_engine_reset(gdn_engine *e, gdn_text *err);
/* Appends n >= 1 tokens. logits: of the last token [vocab], or with `all` of every token [n][vocab]; NULL: not computed. */
gdn_status gdn_engine_prefill(gdn_engine *e, const uint32_t *tokens, uint64_t n, bool all, float *logits, gdn_text *err);
/* Appends one token by decode. */
gdn_status gdn_engine_step(gdn_engine *e, uint32_t token, float *logits, gdn_text *err);
/* Tries 1..4 tokens; logits [rows][vocab]. Must be followed by gdn_engine_accept (or reset). */
gdn_status gdn_engine_verify(gdn_engine *e, const uint32_t *tokens, uint32_t rows, float *logits, gdn_text *err);
/* Keeps the first n of the rows, 1..rows. */
gdn_status gdn_engine_accept(gdn_engine *e, uint32_t n, gdn_text *err);

/* The routes that have run since loading: operation, what explain says for its last counts, launches. */
typedef void (*gdn_engine_route_fn)(void *user, const char *op, const gdn_route *route, uint64_t launches);
gdn_status gdn_engine_routes(const gdn_engine *e, gdn_engine_route_fn each, void *user);

/* The projections of every layer, their weights [n][k]: why NULL: with w4a4, NVFP4 on both sides; else dense, and why: the guard that
 * refused, that the target does not carry it, or that it was not asked for. */
typedef void (*gdn_engine_projection_fn)(void *user, const char *name, uint32_t n, uint32_t k, const char *why);
void gdn_engine_projections(const gdn_engine *e, gdn_engine_projection_fn each, void *user);
/* exp of the mean of -ln p(token | those before it) over tokens 1..n-1, n >= 2, by prefill. The sequence is reset before and after. */
gdn_status gdn_engine_perplexity(gdn_engine *e, const uint32_t *tokens, uint64_t n, double *out, gdn_text *err);

/* What the engine itself compiles on a GPU, to be compiled ahead (gdn_compile_jobs). arch: "sm_90", the device's without a suffix; it and
 * the text live as long as the caller's string and the program. */
void gdn_engine_module(const char *arch, gdn_compile_job *out);

#endif
