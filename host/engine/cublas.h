/* cublas.h - products of bf16 matrices by cuBLAS, which is opened at run time: CUBLAS_LIBRARY names the file, else libcublas.so.13,
 * libcublas.so.12, then both in /usr/local/cuda/lib64. */
#ifndef GDN_ENGINE_CUBLAS_H
#define GDN_ENGINE_CUBLAS_H

#include "gdn_status.h"

typedef struct gdn__cublas gdn__cublas;

enum { GDN__CUBLAS_WORKSPACE = 32 << 20 }; /* bytes; cuBLAS's own choice for Hopper, and enough elsewhere */

/* A handle whose work goes to `stream`, with `workspace` (device memory of GDN__CUBLAS_WORKSPACE bytes, the caller's), so that
 * nothing is allocated while a stream is captured. The device's context must be current, here and in the other calls. Errors:
 * GDN_E_LOAD, and err says what was tried; or what cuBLAS said. */
gdn_status gdn__cublas_open(void *stream, uint64_t workspace, gdn__cublas **out, gdn_text *err);
void gdn__cublas_close(gdn__cublas *b); /* NULL is ignored */
/* y[rows][out] = x[rows][in] w[out][in]^T, rows of bf16, sums in f32; y bf16, or f32 with wide != 0. */
gdn_status gdn__cublas_matmul(gdn__cublas *b, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, int wide);

#endif
