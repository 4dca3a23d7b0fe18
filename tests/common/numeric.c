/* numeric.c - see numeric.h. */
#include "numeric.h"
#include <math.h>
#include <string.h>

uint64_t rng_next(rng *r) {
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double rng_uniform(rng *r, double lo, double hi) {
    return lo + (hi - lo) * (double)(rng_next(r) >> 11) * 0x1p-53;
}

uint32_t rng_below(rng *r, uint32_t n) {
    return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

uint16_t num_to_bf16(double x) {
    const float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (isnan(f)) return (uint16_t)(u >> 16 | 0x40u);
    const uint32_t low = u & 0xffffu;
    u >>= 16;
    if (low > 0x8000u || (low == 0x8000u && (u & 1u))) u++;
    return (uint16_t)u;
}

double num_from_bf16(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

uint32_t num_size(uint32_t type) {
    return type == GDN_F32 ? 4 : 2;
}

double num_get(const void *p, uint32_t type, uint64_t i) {
    if (type == GDN_F32) {
        float f;
        memcpy(&f, (const char *)p + i * 4, 4);
        return (double)f;
    }
    uint16_t h;
    memcpy(&h, (const char *)p + i * 2, 2);
    return num_from_bf16(h);
}

void num_put(void *p, uint32_t type, uint64_t i, double x) {
    if (type == GDN_F32) {
        const float f = (float)x;
        memcpy((char *)p + i * 4, &f, 4);
        return;
    }
    const uint16_t h = num_to_bf16(x);
    memcpy((char *)p + i * 2, &h, 2);
}

void num_fill(void *p, uint32_t type, uint64_t n, rng *r, double lo, double hi) {
    for (uint64_t i = 0; i < n; i++) num_put(p, type, i, rng_uniform(r, lo, hi));
}

num_error num_compare(const double *ref, const double *got, uint64_t n) {
    num_error e = { 0, 0, 0, true };
    double ss = 0, dd = 0, worst = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double d = got[i] - ref[i];
        if (!isfinite(got[i])) e.finite = false;
        ss += ref[i] * ref[i];
        dd += d * d;
        if (fabs(d) > worst) worst = fabs(d);
    }
    e.rms = n ? sqrt(ss / (double)n) : 0;
    if (ss > 0) {
        e.rel_rms = sqrt(dd / ss);
        e.rel_worst = worst / e.rms;
    } else if (dd > 0) {
        e.rel_rms = e.rel_worst = INFINITY;
    }
    return e;
}

bool num_close(const num_error *e, double tol) {
    return e->finite && e->rms > 0 && isfinite(e->rms) && e->rel_rms <= tol && e->rel_worst <= 40 * tol;
}

uint64_t num_hash(const void *p, uint64_t bytes) {
    const uint8_t *b = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++) h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}
