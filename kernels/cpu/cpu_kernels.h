/* cpu_kernels.h - the operations as C functions on host memory: what plugin/cpu calls.
 *
 * The plugin has checked every argument; these functions trust them. Activations are bf16 (uint16_t bits) or f32 as `f32`
 * says; everything is computed in f32. Functions that work on many rows or heads use OpenMP; the results do not depend on
 * the number of threads, nor on what else is in the batch.
 *
 * Dispatch: hot code is compiled once per instruction set from the same source (kernels/cpu/isa/) and reached through a
 * const table per family, indexed by the call's `isa`. There is no state at file scope. The base form is plain C. */
#ifndef GDN_CPU_KERNELS_H
#define GDN_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- instruction sets, ascending ---- */
enum { GDN_CPU_BASE = 0, GDN_CPU_AVX2 = 1, GDN_CPU_AVX512 = 2, GDN_CPU_ISAS = 3 };
/* The best one that this machine has and this build carries, at most `limit`. */
uint32_t gdn_cpu_isa_pick(uint32_t limit);
const char *gdn_cpu_isa_name(uint32_t isa); /* "base", "avx2", "avx512" */

/* ---- the gated delta rule: formulas, layouts and padding rules are in abi/gdn_op_rule.h ---- */
typedef struct gdn_cpu_rule {
    const void *q, *k, *v; /* first row of head 0; heads are dense inside a row                    */
    const float *gate, *beta;
    void *out;
    const void *state;                   /* base, or a table of uint64_t bases; f32, or bf16 with bf16_state     */
    void *state_out;                     /* same form; equal to state when in place                              */
    const int32_t *in_slots, *out_slots; /* pool form; out_slots equals in_slots when not given        */
    const uint8_t *fresh;                /* may be NULL                                                          */
    float *ckpt;                         /* prefill; may be NULL                                                 */
    void *hi;                            /* verify, fold: f32 base or table of uint64_t; may be NULL              */
    float *stash;                        /* woa, fold                                                            */
    uint32_t *engaged;                   /* woa, fold                                                            */
    uint32_t *record;                    /* by sequence: what ran, by id; else NULL; engaged is then NULL        */
    const int32_t *ids;                  /* by sequence: the id of each; NULL: b                                 */
    const uint32_t *na;                  /* fold                                                                 */
    const struct gdn_cpu_rule *folded;   /* the fold in front of this verify: what it touched is not fresh; or NULL */
    const void *cu;                      /* offsets or NULL: prefill sequences, verify and woa rows              */
    uint64_t state_stride, stash_stride; /* f32 elements                                               */
    uint32_t batch, seq_len;             /* seq_len: tokens of each uniform sequence (prefill), 1 (decode), rows (verify) */
    uint32_t nk, nv, k_dim, v_dim;
    uint32_t qk_stride, v_stride, gb_stride;
    uint32_t ckpt_every, hi_capacity, slab_entries;
    uint32_t addr; /* GDN_STATE_CONTIGUOUS, _POOL, _TABLE                                  */
    uint32_t isa;  /* GDN_CPU_*                                                            */
    float scale;   /* never 0                                                              */
    bool f32, cu64, log_gate, tiled, v_major, l2norm;
    bool bf16_state; /* decode, verify; strides are then in its elements                       */
} gdn_cpu_rule;

/* Each picks the work apart over OpenMP threads. */
void gdn_cpu_prefill(const gdn_cpu_rule *c);
void gdn_cpu_decode(const gdn_cpu_rule *c);
void gdn_cpu_verify(const gdn_cpu_rule *c);     /* 1..16 rows; writes states and hi */
void gdn_cpu_verify_woa(const gdn_cpu_rule *c); /* four rows; writes the stash, sets *engaged */
void gdn_cpu_fold(const gdn_cpu_rule *c);       /* seq_len = k_rows */
/* fold, then verify_woa of what has been folded: fold differs from verify in stash, word and seq_len */
void gdn_cpu_round(const gdn_cpu_rule *verify, const gdn_cpu_rule *fold);

/* ---- convolution: abi/gdn_op_conv.h ---- */
typedef struct gdn_cpu_conv {
    const void *x, *weight, *bias; /* bias may be NULL */
    void *state;                   /* may be NULL */
    const int32_t *slots, *accepted;
    const uint8_t *fresh;
    void *out;                   /* conv1d */
    void *out_q, *out_k, *out_v; /* conv_fused */
    const void *cu;
    uint64_t slot_stride;
    uint32_t batch, seq_len, channels, width, state_len, x_stride, out_stride;
    uint32_t nk, nv, k_dim, v_dim, q_stride, k_stride, v_stride, isa;
    bool f32, weight_f32, cu64, silu, keep_rows;
} gdn_cpu_conv;
void gdn_cpu_conv1d(const gdn_cpu_conv *c);
void gdn_cpu_conv_fused(const gdn_cpu_conv *c);

/* ---- gates and the b/a projection: abi/gdn_op_gates.h ---- */
typedef struct gdn_cpu_gates {
    const void *a, *b;
    const float *A_log, *dt_bias;
    float *out;
    uint32_t rows, nv, a_stride, b_stride, gate_stride, vpg; /* vpg 0: plain rows */
    bool f32, log_gate;
} gdn_cpu_gates;
void gdn_cpu_gates_rows(const gdn_cpu_gates *c);

typedef struct gdn_cpu_ba {
    const void *A, *B;
    const float *A_log, *dt_bias;
    float *gate, *beta; /* row m at gate + m*gate_stride, beta + m*gate_stride */
    uint32_t M, N, K, K_stride, gate_stride, nv, vpg, isa;
    bool f32, weight_f32;
} gdn_cpu_ba;
void gdn_cpu_ba_gates(const gdn_cpu_ba *c);

/* ---- gated RMS norm: abi/gdn_op_norm.h ---- */
typedef struct gdn_cpu_norm {
    const void *x, *z, *w;
    void *out;
    uint32_t rows, dim, heads, x_stride, z_stride, isa;
    float eps;
    bool f32, weight_f32, sigmoid;
} gdn_cpu_norm;
void gdn_cpu_gated_rmsnorm(const gdn_cpu_norm *c);

/* ---- the fused decode step: abi/gdn_op_step.h. The four calls share batch, types and instruction set; where one's output is another's
 * input, both name the same scratch rows. made: gates holds no call, rule.gate and rule.beta are the caller's ---- */
typedef struct gdn_cpu_step {
    gdn_cpu_conv conv;
    gdn_cpu_gates gates;
    gdn_cpu_rule rule;
    gdn_cpu_norm norm;
    bool made;
} gdn_cpu_step;
void gdn_cpu_fused_step(const gdn_cpu_step *c);

/* ---- W4A4: abi/gdn_op_w4a4.h; the projection follows the exact model of the instruction ---- */
typedef struct gdn_cpu_w4a4 {
    const void *A; /* quantiser */
    uint8_t *aq, *as;
    float *ag;
    const uint8_t *bq, *bs; /* projection */
    void *C;
    float scale2;
    uint32_t M, N, K, a_stride;
    bool f32;
} gdn_cpu_w4a4;
void gdn_cpu_w4a4_quant(const gdn_cpu_w4a4 *c);
void gdn_cpu_w4a4_gemv(const gdn_cpu_w4a4 *c);

/* ---- bf16 ---- */
static inline float gdn_bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } x = { (uint32_t)h << 16 };
    return x.f;
}
/* Nearest even; a NaN stays a (quiet) NaN. */
static inline uint16_t gdn_f32_to_bf16(float f) {
    union {
        float f;
        uint32_t u;
    } x = { f };
    if ((x.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x.u >> 16) | 0x40u);
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
}

#endif
