/* text.c - caller-owned texts, and allocation with a failure switch for tests. */
#include "host_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic int32_t gdn__alloc_fail_in = -1;

static void text_vadd(gdn_text *t, const char *fmt, va_list ap) {
    const bool room = t->buf && t->len < t->cap;
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): both callers call va_start */
    const int n = vsnprintf(room ? t->buf + t->len : NULL, room ? (size_t)(t->cap - t->len) : 0, fmt, ap);
    if (n > 0) t->len += (uint64_t)n;
}

void gdn__text_set(gdn_text *t, const char *fmt, ...) {
    if (!t) return;
    t->len = 0;
    if (t->buf && t->cap) t->buf[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    text_vadd(t, fmt, ap);
    va_end(ap);
}

void gdn__text_add(gdn_text *t, const char *fmt, ...) {
    if (!t) return;
    va_list ap;
    va_start(ap, fmt);
    text_vadd(t, fmt, ap);
    va_end(ap);
}

void *gdn__alloc(size_t bytes) {
    if (atomic_load(&gdn__alloc_fail_in) >= 0 && atomic_fetch_sub(&gdn__alloc_fail_in, 1) == 0) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

char *gdn__copy(const char *text) {
    const size_t n = strlen(text) + 1;
    char *copy = gdn__alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

char *gdn__format(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    char *s = n < 0 ? NULL : gdn__alloc((size_t)n + 1);
    if (!s) return NULL;
    va_start(ap, fmt);
    (void)vsnprintf(s, (size_t)n + 1, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
    va_end(ap);
    return s;
}
