/* gdn_op_w4a4.h - NVFP4 x NVFP4 projections for 1..64 rows: quantise the rows, then project.
 *
 *     C[m][n] = bf16( acc * (Ag[m] * scale2) ),   acc = sum_k A[m][k] W[n][k] in f32
 *
 * Both sides: E2M1 codes, two a byte, low nibble = even k; one UE4M3 scale per 16 consecutive k. Weights also carry one
 * f32 scale2 a tensor, activations one f32 Ag a row. Weights stay in the checkpoint's order: Bq u8 [N][K/2], Bs u8 [N][K/16].
 *
 * Quantiser, f32 with IEEE division: Ag = amax/2688 (1 for an all-zero row); per group of 16, s = e4m3((gm/6)/Ag), saturating,
 * nearest even; code = e2m1(x/(s*Ag)) with s*Ag rounded, ties to even, codes 0 when s is 0, the sign bit only on non-zero
 * codes. A row with a NaN or Inf: Ag = NaN (7fc00000), codes and scales 0, so that its outputs are NaN and no other row is touched. A NaN
 * output is 7fff (f32: 7fffffff) on every target.
 *
 * The order of Aq and As is private to the pair. Bytes to allocate: Aq GDN_W4A4_AQ_BYTES, As GDN_W4A4_AS_BYTES, Ag 4*M.
 * Rows quantised once may be projected through any number of weights of the same K: by passing Aq, As and Ag again, never because a
 * pointer repeats. Rows past M of the last block of eight are neither written nor trusted. Alignment in bytes: Aq and Bq 16, Bs 8, As and
 * Ag 4.
 *
 * Accumulation: of the K/128 chunks, partial w (0..7) takes those with c % 8 == w, ascending; the eight partials are added
 * in order 0..7. Every mx entry gives the same bytes. Entries without FP4 tensor cores (f16) differ by f32 summation: f16_8 and f16_16 give
 * the same bytes as each other; the others (more than 16 rows, or k too long to be staged) sum in pieces of k that depend on N, K and the
 * number of multiprocessors, the same in every launch. scale2 travels as the bits of an f32 in a u32.
 *
 * workspace: as many bytes as the plan says (0: not looked at), 16-byte aligned, zero before its first launch; every launch leaves it ready
 * for the next one, of this plan or another. Launches on different streams need one each. */
#ifndef GDN_OP_W4A4_H
#define GDN_OP_W4A4_H

#include "gdn_ops.h"

enum { GDN_W4A4_MAX_M = 64, GDN_W4A4_MAX_K = 32768 };
#define GDN_W4A4_AQ_BYTES(M, K) ((((uint64_t)(M) + 7) / 8) * 8 * ((uint64_t)(K) / 2))
#define GDN_W4A4_AS_BYTES(M, K) ((((uint64_t)(M) + 7) / 8) * 8 * ((uint64_t)(K) / 16))

typedef struct gdn_w4a4_shape {
    gdn_shape base;    /* act_type: of A (quantiser) and of C                      */
    uint32_t N;        /* projection: weight rows; the quantiser does not look     */
    uint32_t K;        /* reduction length, a multiple of 128, <= 32768            */
    uint32_t max_m;    /* rows, <= 64                                              */
    uint32_t a_stride; /* quantiser: elements from row to row of A; 0 = K          */
} gdn_w4a4_shape;

#define GDN_W4A4_QUANT_PTRS(X)            \
    X(GDN_W4A4_QUANT_P_A, "A", GDN_REQ)   \
    X(GDN_W4A4_QUANT_P_AQ, "Aq", GDN_REQ) \
    X(GDN_W4A4_QUANT_P_AS, "As", GDN_REQ) \
    X(GDN_W4A4_QUANT_P_AG, "Ag", GDN_REQ)
#define GDN_W4A4_QUANT_U32S(X) X(GDN_W4A4_QUANT_U_M, "M", GDN_REQ)
enum { GDN_W4A4_QUANT_PTRS(GDN_ORDER_) GDN_W4A4_QUANT_N_PTR };
enum { GDN_W4A4_QUANT_U32S(GDN_ORDER_) GDN_W4A4_QUANT_N_U32 };

#define GDN_W4A4_GEMV_PTRS(X)            \
    X(GDN_W4A4_GEMV_P_AQ, "Aq", GDN_REQ) \
    X(GDN_W4A4_GEMV_P_AS, "As", GDN_REQ) \
    X(GDN_W4A4_GEMV_P_AG, "Ag", GDN_REQ) \
    X(GDN_W4A4_GEMV_P_BQ, "Bq", GDN_REQ) \
    X(GDN_W4A4_GEMV_P_BS, "Bs", GDN_REQ) \
    X(GDN_W4A4_GEMV_P_C, "C", GDN_REQ)   \
    X(GDN_W4A4_GEMV_P_WORKSPACE, "workspace", GDN_OPT)
#define GDN_W4A4_GEMV_U32S(X)                                         \
    X(GDN_W4A4_GEMV_U_SCALE2, "scale2", GDN_REQ) /* bits of an f32 */ \
    X(GDN_W4A4_GEMV_U_M, "M", GDN_REQ)
enum { GDN_W4A4_GEMV_PTRS(GDN_ORDER_) GDN_W4A4_GEMV_N_PTR };
enum { GDN_W4A4_GEMV_U32S(GDN_ORDER_) GDN_W4A4_GEMV_N_U32 };

/* What the route refuses, in this order; the texts are the contract. */
#define GDN_W4A4_GUARD_MAP(X)                                                                              \
    X(GDN_W4A4_M_BIG, "m is above 64")                                                                     \
    X(GDN_W4A4_N_ZERO, "n is 0")                                                                           \
    X(GDN_W4A4_K_ZERO, "k is 0")                                                                           \
    X(GDN_W4A4_K_TAIL, "k is not a multiple of 128 (whole k128 chunks are read; a tail would be dropped)") \
    X(GDN_W4A4_K_BIG, "k is above 32768")

#endif
