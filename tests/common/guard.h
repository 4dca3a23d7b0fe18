/* guard.h - buffers that notice what a kernel must not touch.
 *
 *     [no access][canary bytes ... payload][no access]
 *
 * The payload ends at a page without access: one element past the end, read or written, faults at once. Before it lie at
 * least 64 canary bytes, checked by guard_ok(). Pages are taken only when touched, so a buffer of many gigabytes of which
 * a few rows are used is cheap. Payload addresses are aligned to the largest power of two that divides its size. */
#ifndef GDN_TEST_GUARD_H
#define GDN_TEST_GUARD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct guard {
    uint8_t *p; /* payload; NULL when bytes was 0 */
    uint64_t bytes;
    uint8_t *map; /* the whole mapping */
    uint64_t mapped;
    uint32_t slack; /* canary bytes before the payload */
} guard;

guard guard_alloc(uint64_t bytes);               /* not touched; ends the program when there is no address space */
void guard_free(guard *g);                       /* an empty one is ignored */
bool guard_ok(const guard *g);                   /* the canary is whole */
void guard_poison(const guard *g);               /* 0xFF: NaN in bf16, f32 and f16, -1 in int32 */
void guard_put(const guard *g, const void *src); /* g->bytes bytes */
guard guard_of(const void *src, uint64_t bytes); /* alloc and put */
guard guard_copy(const guard *g);

#endif
