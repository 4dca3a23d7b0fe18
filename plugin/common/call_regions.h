/* call_regions.h - the memory that each pointer of a launch stands for, as rows of bytes: what overlaps is found in it, and at a plan
 * which sizes no address can reach.
 *
 * Of a launch's counts, or of the plan's maxima. What only memory knows is left small rather than guessed: a pool of unknown size is its
 * first slot, packed rows are one row. So what is found is wrong; what is not found may be wrong all the same. */
#ifndef GDN_CALL_REGIONS_H
#define GDN_CALL_REGIONS_H

#include "plan_common.h"

enum {
    GDN__WRITTEN = 1,
    GDN__STATES = 2, /* slots: two pointers may stand for the same ones */
    GDN__PACKED = 4  /* rows of a packed batch: the first one is not known */
};
typedef struct gdn__region {
    uint64_t base, width, stride, rows; /* rows of width bytes, stride apart */
    uint64_t bytes;                     /* from the first byte to behind the last; UINT64_MAX: no address reaches it */
    uint32_t ptr, is;
} gdn__region;
typedef struct gdn__regions {
    gdn__region at[GDN__MAX_PTR];
    uint32_t n;
} gdn__regions;

/* c NULL: the plan's maxima. workspace: bytes that the plan asks for. */
void gdn__regions_rule(const gdn_rule_shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r);
void gdn__regions_of(const gdn__shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r);

static inline uint64_t gdn__times(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}
static inline uint64_t gdn__size(uint32_t type) {
    return type == GDN_F32 ? 4 : 2;
}

static inline void gdn__region_rows(gdn__regions *r, uint32_t ptr, uint32_t is, uint64_t n, uint64_t width, uint64_t stride) {
    if (!n || !width) return;
    const uint64_t far = gdn__times(n - 1, stride), bytes = far > UINT64_MAX - width ? UINT64_MAX : far + width;
    r->at[r->n++] = (gdn__region) { .ptr = ptr, .is = is, .width = width, .stride = stride, .rows = n, .bytes = bytes };
}
static inline void gdn__region_of(gdn__regions *r, uint32_t ptr, uint32_t is, uint64_t bytes) {
    gdn__region_rows(r, ptr, is, 1, bytes, bytes);
}
/* Slots of a pool; of an unknown number the first. */
static inline void gdn__region_pool(gdn__regions *r, uint32_t ptr, uint32_t is, uint64_t slots, uint64_t width, uint64_t stride) {
    gdn__region_rows(r, ptr, is | GDN__STATES, slots ? slots : 1, width, stride);
}

#endif
