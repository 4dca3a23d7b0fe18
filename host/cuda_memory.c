/* cuda_memory.c - device memory, copies, streams.
 *
 * A stream that is capturing is asked about first and then left alone: a call that a capture does not allow would spoil the
 * caller's capture. copy_in and copy_out return when the host's bytes were read or written. fill may be captured. */
#include "cuda_internal.h"

static gdn_status refuse(const gdn__cuda *cu, const char *what, const char *instead) {
    gdn__log_line(&cu->log, GDN_LOG_ERROR, "cuda", "%s: the stream is capturing; %s", what, instead);
    return GDN_E_CAPTURE;
}

static gdn_status mem_alloc(void *user, int32_t ordinal, uint64_t bytes, uint64_t *out) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (!out) return GDN_E_ARG;
    *out = 0;
    if (bytes > SIZE_MAX / 2) return GDN_E_NOMEM;
    gdn_status st = gdn__cuda_enter(cu, ordinal, true, &s, NULL);
    if (st != GDN_OK) return st;
    /* The driver aligns to 256 bytes and more. 0 bytes become one, so that the address is real. */
    st = gdn__cuda_check(cu, cu->api.cuMemAlloc(out, bytes ? (size_t)bytes : 1), "cuMemAlloc", NULL);
    if (st != GDN_OK) *out = 0;
    gdn__cuda_leave(&s);
    return st;
}

static void mem_free(void *user, int32_t ordinal, uint64_t ptr) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (!ptr || gdn__cuda_enter(cu, ordinal, true, &s, NULL) != GDN_OK) return;
    (void)gdn__cuda_check(cu, cu->api.cuMemFree(ptr), "cuMemFree", NULL);
    gdn__cuda_leave(&s);
}

/* Opens the scope of a call that a capture does not allow. */
static gdn_status enter_uncaptured(gdn__cuda *cu, int32_t ordinal, void *stream, const char *what, const char *instead,
                                   gdn__cuda_scope *s) {
    gdn_status st = gdn__cuda_enter(cu, ordinal, false, s, NULL);
    if (st != GDN_OK) return st;
    st = gdn__cuda_not_capturing(cu, stream);
    if (st != GDN_OK) gdn__cuda_leave(s);
    return st == GDN_E_CAPTURE ? refuse(cu, what, instead) : st;
}

/* The call itself waits, so a replay could not hold it. */
static const char copies[] = "copy before the capture begins or after it has ended (fill, and state_copy between slots, can be captured)";

static gdn_status copy_in(void *user, int32_t ordinal, void *stream, uint64_t dst, const void *src, uint64_t bytes) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (bytes && (!dst || !src)) return GDN_E_ARG;
    gdn_status st = enter_uncaptured(cu, ordinal, stream, "copy_in", copies, &s);
    if (st != GDN_OK) return st;
    if (bytes) st = gdn__cuda_check(cu, cu->api.cuMemcpyHtoDAsync(dst, src, (size_t)bytes, stream), "cuMemcpyHtoDAsync", NULL);
    /* Pinned memory would still be read after the return. */
    if (bytes && st == GDN_OK) st = gdn__cuda_check(cu, cu->api.cuStreamSynchronize(stream), "cuStreamSynchronize", NULL);
    gdn__cuda_leave(&s);
    return st;
}

static gdn_status copy_out(void *user, int32_t ordinal, void *stream, void *dst, uint64_t src, uint64_t bytes) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (bytes && (!dst || !src)) return GDN_E_ARG;
    gdn_status st = enter_uncaptured(cu, ordinal, stream, "copy_out", copies, &s);
    if (st != GDN_OK) return st;
    if (bytes) st = gdn__cuda_check(cu, cu->api.cuMemcpyDtoHAsync(dst, src, (size_t)bytes, stream), "cuMemcpyDtoHAsync", NULL);
    if (bytes && st == GDN_OK) st = gdn__cuda_check(cu, cu->api.cuStreamSynchronize(stream), "cuStreamSynchronize", NULL);
    gdn__cuda_leave(&s);
    return st;
}

static gdn_status fill(void *user, int32_t ordinal, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (byte > 255 || (bytes && !dst)) return GDN_E_ARG;
    gdn_status st = gdn__cuda_enter(cu, ordinal, false, &s, NULL);
    if (st != GDN_OK) return st;
    if (bytes) st = gdn__cuda_check(cu, cu->api.cuMemsetD8Async(dst, (unsigned char)byte, (size_t)bytes, stream), "cuMemsetD8Async", NULL);
    gdn__cuda_leave(&s);
    return st;
}

static gdn_status wait_for(void *user, int32_t ordinal, void *stream) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    gdn_status st = enter_uncaptured(cu, ordinal, stream, "sync", "wait once the capture has ended", &s);
    if (st != GDN_OK) return st;
    st = gdn__cuda_check(cu, cu->api.cuStreamSynchronize(stream), "cuStreamSynchronize", NULL);
    gdn__cuda_leave(&s);
    return st;
}

static gdn_status capturing(void *user, int32_t ordinal, void *stream, uint32_t *out) {
    gdn__cuda *cu = user;
    gdn__cuda_scope s;
    if (!out) return GDN_E_ARG;
    *out = 0;
    gdn_status st = gdn__cuda_enter(cu, ordinal, false, &s, NULL);
    if (st != GDN_OK) return st;
    st = gdn__cuda_not_capturing(cu, stream);
    *out = st == GDN_E_CAPTURE;
    gdn__cuda_leave(&s);
    return st == GDN_E_CAPTURE ? GDN_OK : st;
}

void gdn__cuda_memory_entries(gdn_backend *table) {
    table->mem_alloc = mem_alloc;
    table->mem_free = mem_free;
    table->copy_in = copy_in;
    table->copy_out = copy_out;
    table->fill = fill;
    table->sync = wait_for;
    table->capturing = capturing;
}
