/* numeric.h - numbers for tests: fixed-seed randoms, element types read and written as f64, relative errors.
 *
 * Nothing here uses the product's helpers: a rounding bug of the product must not hide in its own conversion. */
#ifndef GDN_TEST_NUMERIC_H
#define GDN_TEST_NUMERIC_H

#include "gdn_ops.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True under sanitizers: loops that only repeat work run shorter there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_LIGHT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define TEST_LIGHT 1
#endif
#endif
#ifndef TEST_LIGHT
#define TEST_LIGHT 0
#endif

/* splitmix64: every seed gives its own stream, the same on every machine. */
typedef struct rng {
    uint64_t s;
} rng;
uint64_t rng_next(rng *r);
double rng_uniform(rng *r, double lo, double hi);
uint32_t rng_below(rng *r, uint32_t n);

uint16_t num_to_bf16(double x); /* nearest even, by way of f32 */
double num_from_bf16(uint16_t h);
uint32_t num_size(uint32_t type); /* bytes of GDN_BF16, GDN_F32 */
double num_get(const void *p, uint32_t type, uint64_t i);
void num_put(void *p, uint32_t type, uint64_t i, double x); /* rounds to the type */
void num_fill(void *p, uint32_t type, uint64_t n, rng *r, double lo, double hi);

/* got against ref over one block. */
typedef struct num_error {
    double rms;       /* of ref                                        */
    double rel_rms;   /* rms(got - ref) / rms(ref); inf when ref is 0 and got is not */
    double rel_worst; /* largest |got - ref| / rms(ref)                */
    bool finite;      /* every value of got                            */
} num_error;
num_error num_compare(const double *ref, const double *got, uint64_t n);
/* rel_rms within tol, the worst element within 40 tol, all finite, and ref not zero: a zero reference proves nothing. */
bool num_close(const num_error *e, double tol);

uint64_t num_hash(const void *p, uint64_t bytes); /* FNV-1a, for "the same bytes as before" across processes */

#endif
