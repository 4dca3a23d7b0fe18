/* arena.c - device memory that is given back all at once, and f32 values into and out of it. */
#include "arena.h"
#include "engine_text.h"
#include "numbers.h"
#include <stdlib.h>

static gdn_status failed(gdn_text *err, gdn_status s, const char *what, uint64_t bytes) {
    return gdn__engine_say(err, s, "%s of %llu bytes: %s", what, (unsigned long long)bytes, gdn_status_text(s));
}

gdn_status gdn__arena_take(gdn__arena *a, uint64_t bytes, uint64_t *out, gdn_text *err) {
    *out = 0;
    if (a->n == a->cap) {
        const uint64_t cap = a->cap ? 2 * a->cap : 64;
        uint64_t *p = realloc(a->ptr, (size_t)cap * sizeof *p);
        if (!p) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
        a->ptr = p;
        a->cap = cap;
    }
    const gdn_status s = gdn_mem_alloc(a->g, bytes ? bytes : 64, out);
    if (s != GDN_OK) return failed(err, s, "device memory", bytes);
    a->ptr[a->n++] = *out;
    a->bytes += bytes;
    return GDN_OK;
}

gdn_status gdn__arena_zeros(gdn__arena *a, uint64_t bytes, uint64_t *out, gdn_text *err) {
    gdn_status s = gdn__arena_take(a, bytes, out, err);
    if (s == GDN_OK && bytes) {
        s = gdn_fill(a->g, NULL, *out, 0, bytes);
        if (s != GDN_OK) return failed(err, s, "clearing", bytes);
    }
    return s;
}

gdn_status gdn__arena_set(gdn__arena *a, uint64_t dst, const float *src, uint64_t n, uint32_t type, gdn_text *err) {
    gdn_status s = GDN_OK;
    if (!n) return GDN_OK;
    if (type == GDN_F32) {
        s = gdn_copy_in(a->g, NULL, dst, src, n * 4);
    } else {
        uint16_t *half = calloc((size_t)n, sizeof *half);
        if (!half) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
        for (uint64_t i = 0; i < n; i++) half[i] = gdn__to_bf16(src[i]);
        s = gdn_copy_in(a->g, NULL, dst, half, n * 2);
        if (s == GDN_OK) s = gdn_sync(a->g, NULL); /* the copy may still read `half` */
        free(half);
    }
    return s == GDN_OK ? s : failed(err, s, "copy to the device", n * gdn__type_bytes(type));
}

gdn_status gdn__arena_put(gdn__arena *a, const float *src, uint64_t n, uint32_t type, uint64_t *out, gdn_text *err) {
    const gdn_status s = gdn__arena_take(a, n * gdn__type_bytes(type), out, err);
    return s == GDN_OK ? gdn__arena_set(a, *out, src, n, type, err) : s;
}

gdn_status gdn__arena_get(gdn__arena *a, uint64_t src, uint64_t n, uint32_t type, float *out, gdn_text *err) {
    const uint64_t bytes = n * gdn__type_bytes(type);
    if (!n) return GDN_OK;
    if (type == GDN_F32) {
        const gdn_status s = gdn_copy_out(a->g, NULL, out, src, bytes);
        return s == GDN_OK ? s : failed(err, s, "copy from the device", bytes);
    }
    uint16_t *half = calloc((size_t)n, sizeof *half);
    if (!half) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    const gdn_status s = gdn_copy_out(a->g, NULL, half, src, bytes);
    for (uint64_t i = 0; s == GDN_OK && i < n; i++) out[i] = gdn__from_bf16(half[i]);
    free(half);
    return s == GDN_OK ? s : failed(err, s, "copy from the device", bytes);
}

void gdn__arena_free(gdn__arena *a) {
    while (a->n) gdn_mem_free(a->g, a->ptr[--a->n]);
    free(a->ptr);
    a->ptr = NULL;
    a->cap = 0;
}
