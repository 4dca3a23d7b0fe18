/* arena.h - device memory that is given back all at once. */
#ifndef GDN_ENGINE_ARENA_H
#define GDN_ENGINE_ARENA_H

#include "gdn.h"

typedef struct gdn__arena {
    gdn *g;
    uint64_t *ptr;
    uint64_t n, cap;
    uint64_t bytes; /* taken so far */
} gdn__arena;

static inline uint64_t gdn__type_bytes(uint32_t type) {
    return type == GDN_F32 ? 4 : 2;
}

/* Device memory of `bytes` (0 gives a small block), not cleared. */
gdn_status gdn__arena_take(gdn__arena *a, uint64_t bytes, uint64_t *out, gdn_text *err);
/* The same, filled with zeros. */
gdn_status gdn__arena_zeros(gdn__arena *a, uint64_t bytes, uint64_t *out, gdn_text *err);
/* A device copy of n f32 values as `type` (GDN_F32, or GDN_BF16: rounded to nearest even). */
gdn_status gdn__arena_put(gdn__arena *a, const float *src, uint64_t n, uint32_t type, uint64_t *out, gdn_text *err);
/* n values of `type` from the device, widened to f32. */
gdn_status gdn__arena_get(gdn__arena *a, uint64_t src, uint64_t n, uint32_t type, float *out, gdn_text *err);
/* Writes n f32 values over an existing device array of `type`. */
gdn_status gdn__arena_set(gdn__arena *a, uint64_t dst, const float *src, uint64_t n, uint32_t type, gdn_text *err);
void gdn__arena_free(gdn__arena *a);

#endif
