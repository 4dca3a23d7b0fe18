/* dense.h - what the engine needs besides the GDN operations: projections and the small row operations of a decoder.
 *
 * Addresses are device addresses of the table's kind; activations are of the type the table was opened for (GDN_BF16 or
 * GDN_F32), computed in f32 and, for bf16, rounded once at the end of each operation as Hugging Face's modules do. Rows are
 * dense. There is one table for host memory (OpenBLAS); another device brings its own. */
#ifndef GDN_ENGINE_DENSE_H
#define GDN_ENGINE_DENSE_H

#include "gdn.h"

typedef struct gdn__dense {
    const char *name;
    /* max_elems: the largest rows*in and rows*out of a matmul. */
    gdn_status (*open)(gdn *g, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err);
    void (*close)(void *ctx); /* NULL is ignored */
    /* The element type that weights of matmul and embed must be stored in. */
    uint32_t (*weight_type)(uint32_t act_type);
    /* y[rows][out] = x[rows][in] w[out][in]^T; y_type GDN_F32 keeps f32 (but bf16 tables round the values), else act_type. */
    gdn_status (*matmul)(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, uint32_t y_type);
    /* y[i] = w[tokens[i]]; tokens in host memory. */
    gdn_status (*embed)(void *ctx, uint64_t w, const uint32_t *tokens, uint64_t y, uint32_t rows, uint32_t dim);
    /* y = x * rsqrt(mean x^2 + eps) * w, w f32 [dim] (for this model it holds 1 + the checkpoint's). */
    gdn_status (*rms_norm)(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps);
    /* y += x, n elements */
    gdn_status (*add)(void *ctx, uint64_t x, uint64_t y, uint64_t n);
    /* y[rows][dim] = silu(gate) * up, from rows [gate dim | up dim] */
    gdn_status (*silu_mul)(void *ctx, uint64_t gate_up, uint64_t y, uint32_t rows, uint32_t dim);
} gdn__dense;

extern const gdn__dense gdn__dense_blas;

/* The table for the target's memory, or NULL. */
const gdn__dense *gdn__dense_for(const gdn *g);

#endif
