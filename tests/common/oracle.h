/* oracle.h - what the operations must compute, in f64 and in the plainest form: token by token, element by element.
 *
 * Formulas and clamps are those of abi/gdn_op_*.h; no code of the product is used. Rows of heads are dense here: the
 * callers unpack strides, layouts and types (rule_case.h does it for the rule operations). */
#ifndef GDN_TEST_ORACLE_H
#define GDN_TEST_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* ---- the rule: S [K][V] is updated in place, o [V] may be NULL ---- */
void oracle_token(double *S, uint32_t K, uint32_t V, const double *q, const double *k, const double *v, double decay, double beta,
                  double scale, double *o);
double oracle_decay_prefill(double gate, bool log_form); /* max(a, 1e-30), or exp(max(g, ln 1e-30)) */
double oracle_decay_decode(double gate, bool log_form);  /* clamp to [1e-6, 1 - 1e-6]               */
void oracle_l2norm(double *x, uint32_t n);               /* x / sqrt(sum x^2 + 1e-6)                */

/* The same result by the chunk form (W, U and the carried state; no rounding anywhere), T tokens of one head:
 * q, k [T][K], v [T][V], decay, beta [T], o [T][V]. Decays must be above 0. */
void oracle_chunked(double *S, uint32_t K, uint32_t V, uint32_t T, uint32_t chunk, const double *q, const double *k, const double *v,
                    const double *decay, const double *beta, double scale, double *o);

/* ---- convolution of one channel: hist [width-1] oldest first, x [T], y [T] ---- */
void oracle_conv(const double *w, uint32_t width, double bias, bool silu, const double *hist, const double *x, uint32_t T, double *y);
double oracle_silu(double x);
double oracle_sigmoid(double x);

/* ---- gates ---- */
double oracle_beta(double b);
double oracle_log_decay(double a, double A_log, double dt_bias); /* with the clamps at 20 */

/* ---- gated RMS norm of one row ---- */
void oracle_norm(const double *x, const double *z, const double *w, uint32_t dim, double eps, bool sigmoid, double *out);

/* ---- FP4 ---- */
double oracle_e2m1(uint32_t code);  /* 4 bits: sign, then 0 .5 1 1.5 2 3 4 6 */
double oracle_ue4m3(uint32_t code); /* 8 bits; 0x7F is NaN; the sign bit is not used */
uint32_t oracle_to_e2m1(float x);   /* ties to even, saturating, no negative zero */
uint32_t oracle_to_ue4m3(float x);  /* x >= 0: ties to even, saturating at 448 */
/* One row as the quantiser must give it: out[k] = code * scale, the row factor in *ag. */
void oracle_quant_row(const double *x, uint32_t K, double *out, double *ag);

#endif
