/* checkkern.h - one harness for every pair of ways to compute the same thing.
 *
 * ck_pair_check() poisons the outputs, runs the reference, poisons again, runs the variant, and compares: bytes when the
 * tolerance is 0, relative RMS (num_close) otherwise. It then runs the variant once more over its own leftovers, which must
 * give the same bytes; spoils one element of the kept variant's output, which must be noticed (a check that compares
 * nothing is found out here); and looks at every canary. With GDN_TEST_BENCH set, it prints both times and their ratio. */
#ifndef GDN_TEST_CHECKKERN_H
#define GDN_TEST_CHECKKERN_H

#include "guard.h"
#include "numeric.h"

typedef struct ck_output {
    const char *name;
    const guard *at;
    uint32_t type; /* GDN_F32 or GDN_BF16; not looked at when tol is 0 */
    double tol;    /* 0: the same bytes */
} ck_output;

typedef struct ck_pair {
    const char *name;
    void (*reset)(void *ctx); /* NULL, or puts inputs that a run changes (states) back */
    void (*ref)(void *ctx);
    void (*variant)(void *ctx);
    void *ctx;
    const ck_output *out;
    uint32_t n_out;
    const guard *const *canaries; /* further buffers whose canaries are looked at */
    uint32_t n_canaries;
} ck_pair;

/* true when all held; else `why` says what did not. Outputs that a reset fills are not poisoned: give those a reset. */
bool ck_pair_check(const ck_pair *p, char *why, uint32_t cap);

/* The comparison alone: got against want. */
bool ck_same(const ck_output *o, const void *want, const void *got, char *why, uint32_t cap);

#endif
