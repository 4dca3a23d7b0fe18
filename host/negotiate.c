/* negotiate.c - may this plugin be used? The checks run in a fixed order and the first that fails is named.
 *
 * Both sides may be older or newer than the other: what is read ends at the smaller struct_size, the rest is zero, and an
 * entry beyond the end of an older table is simply not offered. */
#include "host_internal.h"

#include <string.h>

/* Copies min(theirs, mine) bytes and zeroes the rest. */
static void take(void *mine, size_t my_size, const void *theirs, uint32_t their_size) {
    const size_t n = their_size < my_size ? their_size : my_size;
    memset(mine, 0, my_size);
    memcpy(mine, theirs, n);
}

/* The mandatory entries, in the order of the table. */
#define MANDATORY(X) X(init) X(fini) X(plan) X(destroy) X(launch) X(explain)

static gdn_status check_table(const gdn_vtable *theirs, gdn_vtable *out, gdn_text *err) {
    if (!theirs) {
        gdn__text_set(err, "it has no table");
        return GDN_E_ABI;
    }
    take(out, sizeof *out, theirs, theirs->struct_size);
#define CHECK(entry)                                                                                                      \
    if (!out->entry) {                                                                                                    \
        gdn__text_set(err, "mandatory entry '%s' is missing (table of %u bytes)", #entry, (unsigned)theirs->struct_size); \
        return GDN_E_ABI;                                                                                                 \
    }
    MANDATORY(CHECK)
#undef CHECK
    return GDN_OK;
}

static bool sanitizer_fits(const char *kind) {
    /* A plain plugin runs in any host; an instrumented one needs its own runtime. */
    return !strcmp(kind, "none") || !strcmp(kind, GDN_SANITIZER_NAME); /* NOLINT(misc-redundant-expression): one text in a plain build */
}

gdn_status gdn__negotiate(gdn_plugin_query_fn query, const char *target, gdn__plugin *out, gdn_text *err) {
    const gdn_plugin *p = query(GDN_ABI_MAJOR, GDN_ABI_MINOR);
    if (!p) {
        gdn__text_set(err, "it has no table for ABI %u.%u", GDN_ABI_MAJOR, GDN_ABI_MINOR);
        return GDN_E_ABI;
    }
    if (p->magic != GDN_ABI_MAGIC) {
        gdn__text_set(err, "bad magic 0x%08x", (unsigned)p->magic);
        return GDN_E_ABI;
    }
    if (p->abi_major != GDN_ABI_MAJOR) {
        gdn__text_set(err, "plugin ABI %u.%u, host %u.%u", (unsigned)p->abi_major, (unsigned)p->abi_minor, GDN_ABI_MAJOR, GDN_ABI_MINOR);
        return GDN_E_ABI;
    }
    const uint32_t least = (uint32_t)GDN_THROUGH(gdn_plugin, ops); /* NOLINT(bugprone-sizeof-expression): the pointer's own size */
    if (p->struct_size < least) {
        gdn__text_set(err, "its identity has %u bytes, at least %u are needed", (unsigned)p->struct_size, (unsigned)least);
        return GDN_E_ABI;
    }
    take(&out->id, sizeof out->id, p, p->struct_size);
    if (!p->target || !gdn__target_name_ok(p->target)) {
        gdn__text_set(err, "its target name is not one ([a-z0-9_], 1 to 32)");
        return GDN_E_ABI;
    }
    if (target && strcmp(target, p->target) != 0) {
        gdn__text_set(err, "a file for '%s' that says it is '%s'", target, p->target);
        return GDN_E_ABI;
    }
    const char *kind = p->sanitizer ? p->sanitizer : "none";
    if (!sanitizer_fits(kind)) {
        gdn__text_set(err, "built with sanitizer '%s', this libgdn with '%s'", kind, GDN_SANITIZER_NAME);
        return GDN_E_ABI;
    }
    out->id.sanitizer = kind;
    if (!out->id.version) out->id.version = "";
    if (!out->id.build_id) out->id.build_id = "";
    if (!out->id.archs) out->id.archs = "";
    return check_table(p->ops, &out->ops, err);
}
