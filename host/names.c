/* names.c - names and texts of statuses and operations, from the lists of abi/. */
#include "host_internal.h"

#include <string.h>

const char *gdn_status_name(gdn_status s) {
    switch (s) {
#define ROW(name, value, text) \
    case value: return #name;
        GDN_STATUS_MAP(ROW)
#undef ROW
    default: return "unknown status";
    }
}

const char *gdn_status_text(gdn_status s) {
    switch (s) {
#define ROW(name, value, text) \
    case value: return text;
        GDN_STATUS_MAP(ROW)
#undef ROW
    default: return "unknown status";
    }
}

const char *gdn_version(void) {
    return GDN_VERSION;
}

uint32_t gdn_op_by_name(const char *name) {
    if (!name) return 0;
#define ROW(NAME, number, text) \
    if (!strcmp(name, text)) return number;
    GDN_OP_MAP(ROW)
#undef ROW
    return 0;
}

const char *gdn_op_name(uint32_t op) {
    switch (op) {
#define ROW(NAME, number, text) \
    case number: return text;
        GDN_OP_MAP(ROW)
#undef ROW
    default: return NULL;
    }
}
