/* guard.c - see guard.h. */
#include "guard.h"
#include "pinned.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 0xC5, MIN_SLACK = 64 };

guard guard_alloc(uint64_t bytes) {
    guard g = { 0 };
    if (bytes == 0) return g;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t body = (bytes + MIN_SLACK + page - 1) / page * page;
    g.mapped = body + 2 * page;
    void *m = mmap(NULL, g.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED || mprotect((char *)m + page, body, PROT_READ | PROT_WRITE) != 0) {
        perror("guard_alloc");
        exit(3);
    }
    g.map = m;
    g.bytes = bytes;
    g.slack = (uint32_t)(body - bytes);
    g.p = g.map + page + g.slack;
    memset(g.p - g.slack, CANARY, g.slack);
    pinned_add(g.map + page, body);
    return g;
}

void guard_free(guard *g) {
    if (g->map) pinned_drop(g->map + sysconf(_SC_PAGESIZE));
    if (g->map && munmap(g->map, g->mapped) != 0) perror("guard_free");
    memset(g, 0, sizeof *g);
}

bool guard_ok(const guard *g) {
    if (!g->p) return true;
    for (uint32_t i = 1; i <= g->slack; i++) {
        if (g->p[-(ptrdiff_t)i] != CANARY) return false;
    }
    return true;
}

void guard_poison(const guard *g) {
    if (g->p) memset(g->p, 0xFF, g->bytes);
}

void guard_put(const guard *g, const void *src) {
    if (g->p) memcpy(g->p, src, g->bytes);
}

guard guard_of(const void *src, uint64_t bytes) {
    guard g = guard_alloc(bytes);
    guard_put(&g, src);
    return g;
}

guard guard_copy(const guard *g) {
    return guard_of(g->p, g->bytes);
}
