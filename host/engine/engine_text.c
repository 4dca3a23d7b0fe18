/* engine_text.c - error lines of the engine. */
#include "engine_text.h"
#include <stdarg.h>
#include <stdio.h>

gdn_status gdn__engine_say(gdn_text *err, gdn_status status, const char *fmt, ...) {
    if (!err) return status;
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(err->buf, (size_t)err->cap, fmt, ap);
    va_end(ap);
    err->len = n > 0 ? (uint64_t)n : 0;
    if (!err->cap) return status;
    for (char *p = err->buf; *p; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) *p = '?';
    }
    return status;
}
