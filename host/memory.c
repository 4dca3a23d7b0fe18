/* memory.c - memory of the target's device, through the backend that its plugin was lent; and that backend itself. */
#include "host_internal.h"

gdn_status gdn_mem_alloc(gdn *g, uint64_t bytes, uint64_t *out) {
    if (!g || !out) return GDN_E_ARG;
    *out = 0;
    if (g->gen->dry) return GDN_E_ARG; /* no device */
    return g->gen->backend->mem_alloc(g->gen->backend->user, g->gen->ordinal, bytes, out);
}

void gdn_mem_free(gdn *g, uint64_t ptr) {
    if (g && ptr && !g->gen->dry) g->gen->backend->mem_free(g->gen->backend->user, g->gen->ordinal, ptr);
}

gdn_status gdn_copy_in(gdn *g, void *stream, uint64_t dst, const void *src, uint64_t bytes) {
    if (!g || g->gen->dry || (bytes && (!dst || !src))) return GDN_E_ARG;
    return g->gen->backend->copy_in(g->gen->backend->user, g->gen->ordinal, stream, dst, src, bytes);
}

gdn_status gdn_copy_out(gdn *g, void *stream, void *dst, uint64_t src, uint64_t bytes) {
    if (!g || g->gen->dry || (bytes && (!dst || !src))) return GDN_E_ARG;
    return g->gen->backend->copy_out(g->gen->backend->user, g->gen->ordinal, stream, dst, src, bytes);
}

gdn_status gdn_fill(gdn *g, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes) {
    if (!g || g->gen->dry || byte > 255 || (bytes && !dst)) return GDN_E_ARG;
    return g->gen->backend->fill(g->gen->backend->user, g->gen->ordinal, stream, dst, byte, bytes);
}

gdn_status gdn_sync(gdn *g, void *stream) {
    if (!g || g->gen->dry) return GDN_E_ARG;
    return g->gen->backend->sync(g->gen->backend->user, g->gen->ordinal, stream);
}

const gdn_backend *gdn_backend_of(const gdn *g, int32_t *ordinal) {
    if (ordinal) *ordinal = 0;
    if (!g || g->gen->dry) return NULL;
    if (ordinal) *ordinal = g->gen->ordinal;
    return g->gen->backend;
}
