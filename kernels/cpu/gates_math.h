/* gates_math.h - the gate non-linearity, shared by gates.c and ba_gates.c so that both give the same bytes.
 *
 *     beta = 1 / (1 + exp(-b))          g = -exp(min(A_log, 20)) * log(1 + exp(min(a + dt_bias, 20)))
 *
 * In f64: g reaches hundreds, and exp(g) turns the absolute error of g into a relative one. log1p keeps what is small
 * (a = -200: exactly 0, whatever A_log says). The clamps let a NaN through. */
#ifndef GDN_CPU_GATES_MATH_H
#define GDN_CPU_GATES_MATH_H

#include <math.h>

static inline double gdn__clamp20(double x) {
    return x > 20.0 ? 20.0 : x;
}

/* exp(min(A_log, 20)): once a head. */
static inline double gdn__gate_rate(float A_log) {
    return exp(gdn__clamp20((double)A_log));
}

/* The log decay. */
static inline double gdn__gate_log(double rate, float a, float dt_bias) {
    return -rate * log1p(exp(gdn__clamp20((double)a + (double)dt_bias)));
}

static inline float gdn__beta(float b) {
    return (float)(1.0 / (1.0 + exp(-(double)b)));
}

#endif
