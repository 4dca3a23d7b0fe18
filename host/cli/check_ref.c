/* check_ref.c - see check_ref.h. */
#include "check_ref.h"
#include <math.h>

void ref_rule(uint32_t T, uint32_t nk, uint32_t nv, uint32_t D, const float *q, const float *k, const float *v, const float *gate,
              const float *beta, bool clamped, double *state, double *o) {
    double u[256];
    for (uint32_t h = 0; h < nv; h++) {
        double *S = state + (uint64_t)h * D * D;
        const uint32_t kh = h / (nv / nk);
        for (uint32_t t = 0; t < T; t++) {
            const float *qt = q + ((uint64_t)t * nk + kh) * D, *kt = k + ((uint64_t)t * nk + kh) * D, *vt = v + ((uint64_t)t * nv + h) * D;
            const double g = (double)gate[(uint64_t)t * nv + h], b = (double)beta[(uint64_t)t * nv + h];
            const double a = clamped ? fmin(fmax(g, 1e-6), 1 - 1e-6) : fmax(g, 1e-30);
            for (uint32_t j = 0; j < D; j++) {
                double hk = 0;
                for (uint32_t i = 0; i < D; i++) hk += a * S[i * D + j] * (double)kt[i];
                u[j] = b * ((double)vt[j] - hk);
            }
            for (uint32_t j = 0; j < D; j++) {
                double out = 0;
                for (uint32_t i = 0; i < D; i++) {
                    S[i * D + j] = a * S[i * D + j] + (double)kt[i] * u[j];
                    out += S[i * D + j] * (double)qt[i];
                }
                o[((uint64_t)t * nv + h) * D + j] = out / sqrt((double)D);
            }
        }
    }
}

double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

void ref_conv(uint32_t T, uint32_t C, uint32_t W, const float *x, const float *weight, double *window, double *y) {
    for (uint32_t c = 0; c < C; c++) {
        double *w = window + (uint64_t)c * (W - 1);
        for (uint32_t t = 0; t < T; t++) {
            const double now = (double)x[(uint64_t)t * C + c];
            double s = (double)weight[c * W + W - 1] * now;
            for (uint32_t j = 0; j + 1 < W; j++) s += (double)weight[c * W + j] * w[j];
            for (uint32_t j = 0; j + 2 < W; j++) w[j] = w[j + 1];
            w[W - 2] = now;
            y[(uint64_t)t * C + c] = s * ref_sigmoid(s);
        }
    }
}

void ref_l2norm(uint32_t D, double *x) {
    double s = 1e-6;
    for (uint32_t i = 0; i < D; i++) s += x[i] * x[i];
    for (uint32_t i = 0; i < D; i++) x[i] /= sqrt(s);
}

double ref_decay(double a, double A_log, double dt_bias) {
    return exp(-exp(fmin(A_log, 20)) * log1p(exp(fmin(a + dt_bias, 20))));
}

void ref_norm(uint32_t D, const float *x, const float *z, const float *w, double eps, double *y) {
    double s = 0;
    for (uint32_t i = 0; i < D; i++) s += (double)x[i] * (double)x[i];
    const double r = 1 / sqrt(s / D + eps);
    for (uint32_t i = 0; i < D; i++) y[i] = (double)x[i] * r * (double)w[i] * (double)z[i] * ref_sigmoid((double)z[i]);
}

static const double fp4_values[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };

static double e4m3_value(uint32_t b) {
    return b >> 3 ? ldexp(8 + (b & 7), (int)(b >> 3) - 10) : ldexp(b & 7, -9);
}

double ref_fp4_weight(uint8_t code, uint8_t scale) {
    const double v = fp4_values[code & 7] * e4m3_value(scale & 0x7f);
    return code & 8 ? -v : v;
}

/* The nearest of n ascending values; a tie takes the even index. */
static uint32_t nearest(double x, uint32_t n, double (*value)(uint32_t)) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        const double a = fabs(value(i) - x), b = fabs(value(best) - x);
        if (a < b || (a == b && i % 2 == 0)) best = i;
    }
    return best;
}
static double code_value(uint32_t i) {
    return fp4_values[i];
}

void ref_fp4_row(uint32_t K, const float *x, double *y) {
    float amax = 0;
    for (uint32_t i = 0; i < K; i++) amax = fmaxf(amax, fabsf(x[i]));
    const float ag = amax > 0 ? amax / 2688.0f : 1.0f;
    for (uint32_t g = 0; g < K; g += 16) {
        float gm = 0;
        for (uint32_t i = g; i < g + 16; i++) gm = fmaxf(gm, fabsf(x[i]));
        const float want = gm / 6.0f / ag;
        const double s = e4m3_value(nearest((double)want, 127, e4m3_value));
        const float step = (float)s * ag;
        for (uint32_t i = g; i < g + 16; i++) {
            const double c = s > 0 ? fp4_values[nearest(fabs((double)(x[i] / step)), 8, code_value)] : 0;
            y[i] = (x[i] < 0 ? -c : c) * s * (double)ag;
        }
    }
}

double ref_error(uint64_t n, const float *got, const double *ref) {
    double e = 0, r = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double d = (double)got[i] - ref[i];
        e += d * d;
        r += ref[i] * ref[i];
    }
    return r > 0 ? sqrt(e / r) : NAN; /* a reference of zeros would prove nothing */
}
