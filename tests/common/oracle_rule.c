/* oracle_rule.c - the gated delta rule in f64: the token recurrence, and the chunk form it must agree with. */
#include "oracle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void oracle_token(double *S, uint32_t K, uint32_t V, const double *q, const double *k, const double *v, double decay, double beta,
                  double scale, double *o) {
    double u[256] = { 0 }, out[256] = { 0 };
    for (uint32_t i = 0; i < K; i++) {
        double *row = S + (uint64_t)i * V;
        for (uint32_t c = 0; c < V; c++) {
            row[c] *= decay;
            u[c] += row[c] * k[i];
        }
    }
    for (uint32_t c = 0; c < V; c++) u[c] = beta * (v[c] - u[c]);
    for (uint32_t i = 0; i < K; i++) {
        double *row = S + (uint64_t)i * V;
        for (uint32_t c = 0; c < V; c++) {
            row[c] += k[i] * u[c];
            out[c] += row[c] * q[i];
        }
    }
    for (uint32_t c = 0; o && c < V; c++) o[c] = out[c] * scale;
}

double oracle_decay_prefill(double gate, bool log_form) {
    const double floor_ = 1e-30;
    if (log_form) return exp(fmax(gate, log(floor_)));
    return fmax(gate, floor_);
}

double oracle_decay_decode(double gate, bool log_form) {
    const double a = log_form ? exp(gate) : gate;
    return fmin(fmax(a, 1e-6), 1 - 1e-6);
}

void oracle_l2norm(double *x, uint32_t n) {
    double ss = 1e-6;
    for (uint32_t i = 0; i < n; i++) ss += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) x[i] /= sqrt(ss);
}

static double dot(const double *a, const double *b, uint32_t n) {
    double s = 0;
    for (uint32_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Forward substitution of (I + L) X = R, X in place of R [n][w], L[i][l] = beta_i exp(gc_i - gc_l) <k_i, k_l>, l < i. */
static void solve(double *X, uint32_t n, uint32_t w, uint32_t K, const double *k, const double *beta, const double *gc) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t l = 0; l < i; l++) {
            const double f = beta[i] * exp(gc[i] - gc[l]) * dot(k + (uint64_t)i * K, k + (uint64_t)l * K, K);
            for (uint32_t c = 0; c < w; c++) X[(uint64_t)i * w + c] -= f * X[(uint64_t)l * w + c];
        }
    }
}

/* One chunk of n tokens. W is solved from diag(beta exp(gc)) K, U from diag(beta) V, then uc = U - W S. */
static void one_chunk(double *S, uint32_t K, uint32_t V, uint32_t n, const double *q, const double *k, const double *v, const double *decay,
                      const double *beta, double scale, double *o, double *scratch) {
    double *W = scratch, *U = W + (uint64_t)n * K, *gc = U + (uint64_t)n * V;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        gc[i] = sum += log(decay[i]);
        for (uint32_t c = 0; c < K; c++) W[(uint64_t)i * K + c] = beta[i] * exp(gc[i]) * k[(uint64_t)i * K + c];
        for (uint32_t c = 0; c < V; c++) U[(uint64_t)i * V + c] = beta[i] * v[(uint64_t)i * V + c];
    }
    solve(W, n, K, K, k, beta, gc);
    solve(U, n, V, K, k, beta, gc);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < K; j++) {
            const double w = W[(uint64_t)i * K + j];
            for (uint32_t c = 0; c < V; c++) U[(uint64_t)i * V + c] -= w * S[(uint64_t)j * V + c];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        double *oi = o + (uint64_t)i * V;
        memset(oi, 0, V * sizeof *oi);
        for (uint32_t j = 0; j < K; j++) {
            for (uint32_t c = 0; c < V; c++) oi[c] += exp(gc[i]) * q[(uint64_t)i * K + j] * S[(uint64_t)j * V + c];
        }
        for (uint32_t l = 0; l <= i; l++) {
            const double f = exp(gc[i] - gc[l]) * dot(q + (uint64_t)i * K, k + (uint64_t)l * K, K);
            for (uint32_t c = 0; c < V; c++) oi[c] += f * U[(uint64_t)l * V + c];
        }
        for (uint32_t c = 0; c < V; c++) oi[c] *= scale;
    }
    for (uint64_t j = 0; j < (uint64_t)K * V; j++) S[j] *= exp(gc[n - 1]);
    for (uint32_t i = 0; i < n; i++) {
        const double f = exp(gc[n - 1] - gc[i]);
        for (uint32_t j = 0; j < K; j++) {
            for (uint32_t c = 0; c < V; c++) S[(uint64_t)j * V + c] += f * k[(uint64_t)i * K + j] * U[(uint64_t)i * V + c];
        }
    }
}

void oracle_chunked(double *S, uint32_t K, uint32_t V, uint32_t T, uint32_t chunk, const double *q, const double *k, const double *v,
                    const double *decay, const double *beta, double scale, double *o) {
    double *scratch = malloc(((uint64_t)chunk * (K + V + 1)) * sizeof *scratch);
    if (!scratch) abort();
    for (uint32_t t = 0; t < T; t += chunk) {
        const uint32_t n = T - t < chunk ? T - t : chunk;
        one_chunk(S, K, V, n, q + (uint64_t)t * K, k + (uint64_t)t * K, v + (uint64_t)t * V, decay + t, beta + t, scale,
                  o + (uint64_t)t * V, scratch);
    }
    free(scratch);
}
