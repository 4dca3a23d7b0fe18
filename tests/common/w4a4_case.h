/* w4a4_case.h - one FP4 projection: rows A (a_stride apart, NaN between), weights and scales drawn at random, buffers for the
 * quantised rows; quantise, project, and compare with the f64 sum over the very codes. */
#ifndef GDN_TEST_W4A4_CASE_H
#define GDN_TEST_W4A4_CASE_H

#include "guard.h"
#include "numeric.h"
#include "target.h"

typedef struct w4a4_case {
    uint32_t M, N, K, act, a_stride;
    float scale2;
    guard A, aq, as, ag, bq, bs, C;
} w4a4_case;

/* act: on the cpu; elsewhere it is GDN_BF16. */
void w4a4_make(w4a4_case *c, uint32_t M, uint32_t N, uint32_t K, uint32_t act);
void w4a4_free(w4a4_case *c);
/* Rows m0 .. m0+n-1 of A into aq, as, ag (which then begin with row m0). */
void w4a4_quantise(const w4a4_case *c, uint32_t m0, uint32_t n);
void w4a4_project(const w4a4_case *c, uint32_t n, uint8_t *C); /* n rows of what was quantised */
bool w4a4_matches(const w4a4_case *c);
void w4a4_check(w4a4_case *c); /* twice, the second time over its own leftovers */

#endif
