/* log.c - one finished line to the caller's function, filtered by level; and the once-flags, one set a process. */
#include "host_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gdn__log_raw(const gdn__log *log, uint32_t severity, const char *area, const char *msg) {
    /* A broken rule of the caller is no level of its own: no filter keeps it back, whatever its number. */
    if (!log->fn || (severity > log->level && severity != GDN_LOG_HOST_BUG)) return;
    log->fn(log->user, severity, area ? area : "", msg ? msg : "");
}

void gdn__log_line(const gdn__log *log, uint32_t severity, const char *area, const char *fmt, ...) {
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    gdn__log_raw(log, severity, area, line);
}

uint32_t gdn__log_level(const char *name) {
    static const char *const names[] = { "error", "warn", "info", "debug" };
    for (uint32_t i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return i + GDN_LOG_ERROR;
    return 0;
}

uint32_t gdn__once(void *user, uint32_t slot) {
    static _Atomic uint32_t taken[GDN_ONCE_SLOTS];
    (void)user; /* one set a process, so that a swap or a second context repeats nothing */
    if (slot >= GDN_ONCE_SLOTS) return 0;
    return atomic_exchange(&taken[slot], 1) == 0;
}
