/* check_ref.h - f64 references of the operations on dense rows, for `gdn check`: plain loops, nothing shared with a kernel. */
#ifndef GDN_CLI_CHECK_REF_H
#define GDN_CLI_CHECK_REF_H

#include <stdbool.h>
#include <stdint.h>

/* T tokens of the gated delta rule: q, k [T][nk][D], v [T][nv][D], gate, beta [T][nv] (linear decay), state [nv][D][D] K-major in and
 * out, o [T][nv][D]. `clamped`: decode's and verify's clamp of the decay, else prefill's floor. */
void ref_rule(uint32_t T, uint32_t nk, uint32_t nv, uint32_t D, const float *q, const float *k, const float *v, const float *gate,
              const float *beta, bool clamped, double *state, double *o);
/* Causal convolution of T rows of C channels with SiLU; window [C][W-1] in and out. */
void ref_conv(uint32_t T, uint32_t C, uint32_t W, const float *x, const float *weight, double *window, double *y);
/* x / sqrt(sum x^2 + 1e-6) over D values. */
void ref_l2norm(uint32_t D, double *x);
double ref_decay(double a, double A_log, double dt_bias);
double ref_sigmoid(double x);
/* x * rsqrt(mean x^2 + eps) * w * silu(z) */
void ref_norm(uint32_t D, const float *x, const float *z, const float *w, double eps, double *y);
/* NVFP4: the value that quantising x [K] and reading it back gives (K a multiple of 16), and one weight. */
void ref_fp4_row(uint32_t K, const float *x, double *y);
double ref_fp4_weight(uint8_t code, uint8_t scale);

/* Relative root mean square of got against ref; NaN when any of got is NaN. */
double ref_error(uint64_t n, const float *got, const double *ref);

#endif
