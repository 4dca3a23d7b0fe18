/* host_backend.c - the backend for host memory: one device, no kernels, streams are not looked at. */
#include "host_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 256 };

/* "model name : X" of /proc/cpuinfo; machines that do not say keep the general name. */
static char device_name[96] = "host memory";
static void read_device_name(void) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " \t");
        const size_t n = strcspn(colon, "\n");
        if (n && n < sizeof device_name) {
            memcpy(device_name, colon, n);
            device_name[n] = '\0';
        }
        break;
    }
    if (f) (void)fclose(f); /* only read: nothing to lose */
}

static gdn_status device_count(void *user, uint32_t *out) {
    (void)user;
    if (!out) return GDN_E_ARG;
    *out = 1;
    return GDN_OK;
}

static gdn_status device(void *user, int32_t ordinal, gdn_device *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)user;
    if (!out || ordinal != 0) return GDN_E_ARG;
    if (out->struct_size < GDN_THROUGH(gdn_device, name)) return GDN_E_ABI;
    if (pthread_once(&once, read_device_name)) return GDN_E_INTERNAL;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const gdn_device d = { .struct_size = out->struct_size < sizeof d ? out->struct_size : (uint32_t)sizeof d,
                           .name = device_name,
                           .memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0 };
    memcpy(out, &d, d.struct_size);
    return GDN_OK;
}

static gdn_status mem_alloc(void *user, int32_t ordinal, uint64_t bytes, uint64_t *out) {
    (void)user;
    if (!out) return GDN_E_ARG;
    *out = 0;
    if (ordinal != 0) return GDN_E_ARG;
    if (bytes > (uint64_t)PTRDIFF_MAX - ALIGNMENT) return GDN_E_NOMEM;
    /* aligned_alloc wants a multiple of the alignment; 0 bytes become one unit, so that the address is real. */
    const uint64_t rounded = (bytes + ALIGNMENT - 1 + (bytes == 0)) & ~(uint64_t)(ALIGNMENT - 1);
    void *p = aligned_alloc(ALIGNMENT, (size_t)rounded);
    if (!p) return GDN_E_NOMEM;
    *out = (uint64_t)(uintptr_t)p;
    return GDN_OK;
}

static void mem_free(void *user, int32_t ordinal, uint64_t ptr) {
    (void)user;
    (void)ordinal;
    free((void *)(uintptr_t)ptr);
}

static gdn_status copy(void *dst, const void *src, uint64_t bytes) {
    if (!bytes) return GDN_OK;
    if (!dst || !src || bytes > PTRDIFF_MAX) return GDN_E_ARG;
    memmove(dst, src, (size_t)bytes);
    return GDN_OK;
}

static gdn_status copy_in(void *user, int32_t ordinal, void *stream, uint64_t dst, const void *src, uint64_t bytes) {
    (void)user;
    (void)ordinal;
    (void)stream;
    return copy((void *)(uintptr_t)dst, src, bytes);
}

static gdn_status copy_out(void *user, int32_t ordinal, void *stream, void *dst, uint64_t src, uint64_t bytes) {
    (void)user;
    (void)ordinal;
    (void)stream;
    return copy(dst, (const void *)(uintptr_t)src, bytes);
}

static gdn_status fill(void *user, int32_t ordinal, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes) {
    (void)user;
    (void)ordinal;
    (void)stream;
    if (byte > 255) return GDN_E_ARG;
    if (!bytes) return GDN_OK;
    if (!dst || bytes > PTRDIFF_MAX) return GDN_E_ARG;
    memset((void *)(uintptr_t)dst, (int)byte, (size_t)bytes);
    return GDN_OK;
}

static gdn_status wait_for(void *user, int32_t ordinal, void *stream) {
    (void)user;
    (void)ordinal;
    (void)stream; /* everything ran in the calling thread */
    return GDN_OK;
}

static const gdn_backend host_backend = { .struct_size = (uint32_t)sizeof(gdn_backend),
                                          .abi_minor = GDN_ABI_MINOR,
                                          .name = "host",
                                          .device_count = device_count,
                                          .device = device,
                                          .mem_alloc = mem_alloc,
                                          .mem_free = mem_free,
                                          .copy_in = copy_in,
                                          .copy_out = copy_out,
                                          .fill = fill,
                                          .sync = wait_for };

const gdn_backend *gdn__host_backend(void) {
    return &host_backend;
}
