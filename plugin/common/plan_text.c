/* plan_text.c - error texts, and the checks that shapes of every operation repeat. */
#include "plan_common.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gdn_status gdn__fail(gdn_text *err, gdn_status status, const char *fmt, ...) {
    if (!err) return status;
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(err->buf, err->buf ? (size_t)err->cap : 0, fmt, ap);
    va_end(ap);
    err->len = n > 0 ? (uint64_t)n : 0;
    return status;
}

gdn_status gdn__fail_refused(gdn_text *err, uint32_t op, const gdn_route *r) {
    const bool off = r->guard && strcmp(r->guard, "not requested") == 0 && r->lever;
    return gdn__fail(err, GDN_REFUSED, "%s: refused: %s%s%s", gdn__op_name(op), r->guard, off ? ": it takes lever " : "",
                     off ? r->lever : "");
}

gdn_status gdn__check_stride(gdn_text *err, const char *op, const char *field, uint32_t *stride, uint64_t row) {
    if (row > UINT32_MAX)
        return gdn__fail(err, GDN_E_ARG, "%s: a row of %llu elements (%s) is above 32 bits", op, (unsigned long long)row, field);
    if (*stride == 0) *stride = (uint32_t)row;
    if (*stride < row)
        return gdn__fail(err, GDN_E_ARG, "%s: %s is %u, shorter than its row of %llu elements", op, field, *stride,
                         (unsigned long long)row);
    return GDN_OK;
}

gdn_status gdn__check_type(gdn_text *err, const char *op, const char *field, uint32_t type) {
    if (type == 0) return gdn__fail(err, GDN_E_ARG, "%s: %s is not set (GDN_BF16 or GDN_F32)", op, field);
    if (type > GDN_F16) return gdn__fail(err, GDN_E_ARG, "%s: %s is %u, which is no element type", op, field, type);
    return GDN_OK;
}

gdn_status gdn__check_enum(gdn_text *err, const char *op, const char *field, uint32_t value, uint32_t lo, uint32_t hi) {
    if (value == 0 && lo > 0) return gdn__fail(err, GDN_E_ARG, "%s: %s is not set", op, field);
    if (value < lo || value > hi) return gdn__fail(err, GDN_E_ARG, "%s: %s is %u, expected %u to %u", op, field, value, lo, hi);
    return GDN_OK;
}

gdn_status gdn__check_nonzero(gdn_text *err, const char *op, const char *field, uint64_t value) {
    return value ? GDN_OK : gdn__fail(err, GDN_E_ARG, "%s: %s is 0", op, field);
}
