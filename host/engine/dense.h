/* dense.h - what the engine needs besides the GDN operations: projections and the small row operations of a decoder.
 *
 * Addresses are device addresses of the table's kind; activations are of the type the table was opened for (GDN_BF16 or
 * GDN_F32), computed in f32 and, for bf16, rounded once at the end of each operation as Hugging Face's modules do. Rows are
 * dense. There is a table for host memory (OpenBLAS, bf16 and f32) and one for CUDA devices (cuBLAS, bf16), whose operations are
 * enqueued on the stream it was opened with and may be captured. */
#ifndef GDN_ENGINE_DENSE_H
#define GDN_ENGINE_DENSE_H

#include "gdn.h"
#include "gpu_stream.h"

typedef struct gdn__dense {
    const char *name;
    /* stream: borrowed; NULL: the legacy stream of the device, or host memory. max_elems: the largest rows*in and rows*out of a
     * matmul. GDN_REFUSED for an act_type that the table does not have. */
    gdn_status (*open)(gdn *g, gdn__stream *stream, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err);
    void (*close)(void *ctx); /* NULL is ignored */
    /* The element type that weights of matmul and embed must be stored in. */
    uint32_t (*weight_type)(uint32_t act_type);
    /* y[rows][out] = x[rows][in] w[out][in]^T; y_type GDN_F32 keeps f32 (on host memory in bf16 the values are
     * rounded nevertheless, as Hugging Face's are), else act_type. */
    gdn_status (*matmul)(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, uint32_t y_type);
    /* y[i] = w[tokens[i]]; tokens u32, in the table's memory as everything else. */
    gdn_status (*embed)(void *ctx, uint64_t w, uint64_t tokens, uint64_t y, uint32_t rows, uint32_t dim);
    /* y = x * rsqrt(mean x^2 + eps) * w, w f32 [dim] (for this model it holds 1 + the checkpoint's). */
    gdn_status (*rms_norm)(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps);
    /* y += x, n elements */
    gdn_status (*add)(void *ctx, uint64_t x, uint64_t y, uint64_t n);
    /* y[rows][dim] = silu(gate) * up, from rows [gate dim | up dim] */
    gdn_status (*silu_mul)(void *ctx, uint64_t gate_up, uint64_t y, uint32_t rows, uint32_t dim);
} gdn__dense;

extern const gdn__dense gdn__dense_blas, gdn__dense_gpu;

/* The table for the target's memory; NULL when no device is open. */
const gdn__dense *gdn__dense_for(const gdn *g);
/* The type of activations when none is asked for: GDN_F32 on host memory, GDN_BF16 on a GPU. */
uint32_t gdn__dense_act(const gdn *g);

#endif
