/* checkkern.c - see checkkern.h. */
#define _POSIX_C_SOURCE 200809L
#include "checkkern.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_OUT = 8, BENCH_RUNS = 5 };

bool ck_same(const ck_output *o, const void *want, const void *got, char *why, uint32_t cap) {
    const uint64_t bytes = o->at->bytes;
    if (o->tol == 0) {
        if (memcmp(want, got, bytes) == 0) return true;
        uint64_t i = 0;
        while (((const uint8_t *)want)[i] == ((const uint8_t *)got)[i]) i++;
        snprintf(why, cap, "%s: byte %llu of %llu differs", o->name, (unsigned long long)i, (unsigned long long)bytes);
        return false;
    }
    const uint64_t n = bytes / num_size(o->type);
    double *a = malloc(2 * n * sizeof *a), *b = a ? a + n : NULL;
    if (!a) abort();
    for (uint64_t i = 0; i < n; i++) {
        a[i] = num_get(want, o->type, i);
        b[i] = num_get(got, o->type, i);
    }
    const num_error e = num_compare(a, b, n);
    free(a);
    if (num_close(&e, o->tol)) return true;
    snprintf(why, cap, "%s: relative RMS %.3g, worst %.3g, bound %.3g, reference RMS %.3g, finite %d", o->name, e.rel_rms, e.rel_worst,
             o->tol, e.rms, e.finite);
    return false;
}

static void start(const ck_pair *p, bool poison) {
    for (uint32_t i = 0; poison && i < p->n_out; i++) guard_poison(p->out[i].at);
    if (p->reset) p->reset(p->ctx);
}

static double best_of(const ck_pair *p, void (*fn)(void *)) {
    double best = 1e30;
    for (int i = 0; i < BENCH_RUNS; i++) {
        struct timespec a, b;
        start(p, false);
        clock_gettime(CLOCK_MONOTONIC, &a);
        fn(p->ctx);
        clock_gettime(CLOCK_MONOTONIC, &b);
        const double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        if (s < best) best = s;
    }
    return best;
}

/* The control: one bit of a byte comparison, the exponent of one element in the middle where rounding is allowed for. */
static void flip(const ck_output *o, guard *kept) {
    const uint64_t size = o->tol == 0 ? 1 : num_size(o->type);
    const uint64_t at = kept->bytes / 2 / size * size;
    if (o->tol == 0) {
        kept->p[at] ^= 1;
    } else {
        kept->p[at + size - 1] ^= 0x7f;
    }
}

bool ck_pair_check(const ck_pair *p, char *why, uint32_t cap) {
    guard want[MAX_OUT] = { 0 }, got[MAX_OUT] = { 0 };
    bool ok = p->n_out <= MAX_OUT && p->n_out > 0;
    if (!ok) snprintf(why, cap, "%s: between 1 and %d outputs", p->name, MAX_OUT);
    char part[256] = "";
    start(p, true);
    p->ref(p->ctx);
    for (uint32_t i = 0; ok && i < p->n_out; i++) want[i] = guard_copy(p->out[i].at);
    start(p, true);
    p->variant(p->ctx);
    for (uint32_t i = 0; ok && i < p->n_out; i++) {
        got[i] = guard_copy(p->out[i].at);
        if (!ck_same(&p->out[i], want[i].p, got[i].p, part, sizeof part)) ok = false;
    }
    start(p, false);
    p->variant(p->ctx);
    for (uint32_t i = 0; ok && i < p->n_out; i++) {
        ok = memcmp(got[i].p, p->out[i].at->p, got[i].bytes) == 0;
        if (!ok) snprintf(part, sizeof part, "%s: a second run gives other bytes", p->out[i].name);
    }
    for (uint32_t i = 0; ok && i < p->n_out; i++) {
        char ignored[256];
        flip(&p->out[i], &got[i]);
        if (ck_same(&p->out[i], want[i].p, got[i].p, ignored, sizeof ignored)) {
            ok = false;
            snprintf(part, sizeof part, "%s: a changed element is not noticed", p->out[i].name);
        }
        if (ok && !guard_ok(p->out[i].at)) {
            ok = false;
            snprintf(part, sizeof part, "%s: bytes before the buffer were written", p->out[i].name);
        }
    }
    for (uint32_t i = 0; ok && i < p->n_canaries; i++) {
        ok = guard_ok(p->canaries[i]);
        if (!ok) snprintf(part, sizeof part, "bytes before buffer %u were written", i);
    }
    if (!ok && part[0]) snprintf(why, cap, "%s: %s", p->name, part);
    if (ok && getenv("GDN_TEST_BENCH")) {
        const double a = best_of(p, p->ref), b = best_of(p, p->variant);
        printf("bench %-40s ref %10.1f us  variant %10.1f us  ratio %.2f\n", p->name, a * 1e6, b * 1e6, a / b);
    }
    for (uint32_t i = 0; i < MAX_OUT; i++) {
        guard_free(&want[i]);
        guard_free(&got[i]);
    }
    return ok;
}
