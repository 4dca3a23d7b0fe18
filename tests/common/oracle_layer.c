/* oracle_layer.c - convolution, gates and gated norm in f64. */
#include "oracle.h"
#include <math.h>

double oracle_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
double oracle_silu(double x) {
    return x * oracle_sigmoid(x);
}

void oracle_conv(const double *w, uint32_t width, double bias, bool silu, const double *hist, const double *x, uint32_t T, double *y) {
    for (uint32_t t = 0; t < T; t++) {
        double s = bias;
        for (uint32_t j = 0; j < width; j++) {
            const int64_t at = (int64_t)t - (int64_t)(width - 1) + (int64_t)j;
            s += w[j] * (at < 0 ? hist[(int64_t)(width - 1) + at] : x[at]);
        }
        y[t] = silu ? oracle_silu(s) : s;
    }
}

double oracle_beta(double b) {
    return oracle_sigmoid(b);
}

double oracle_log_decay(double a, double A_log, double dt_bias) {
    return -exp(fmin(A_log, 20)) * log1p(exp(fmin(a + dt_bias, 20)));
}

void oracle_norm(const double *x, const double *z, const double *w, uint32_t dim, double eps, bool sigmoid, double *out) {
    double ss = 0;
    for (uint32_t i = 0; i < dim; i++) ss += x[i] * x[i];
    const double r = 1 / sqrt(ss / dim + eps);
    for (uint32_t i = 0; i < dim; i++) out[i] = x[i] * r * w[i] * (sigmoid ? oracle_sigmoid(z[i]) : oracle_silu(z[i]));
}
