/* loader.c - from a path or a name to a checked plugin. Whatever fails, nothing stays open. */
#include "host_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* dlsym hands out an object pointer; the copy is how POSIX says to make a function of it. */
static gdn_plugin_query_fn query_of(void *handle) {
    void *symbol = dlsym(handle, "gdn_plugin_query");
    gdn_plugin_query_fn query = NULL;
    _Static_assert(sizeof query == sizeof symbol, "function and object pointers have one size");
    memcpy(&query, &symbol, sizeof query);
    return query;
}

gdn_status gdn__plugin_load(const char *path, const char *target, gdn__plugin *out, gdn_text *err) {
    char real[PATH_MAX];
    *out = (gdn__plugin) { 0 };
    gdn_status st = gdn__elf_check(path, err);
    if (st != GDN_OK) return st;
    if (!realpath(path, real)) {
        gdn__text_set(err, "%s", strerror(errno));
        return GDN_E_LOAD;
    }
    /* A full path, so that a library of that name which is loaded already is not taken instead. */
    (void)dlerror();
    out->handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!out->handle) {
        const char *why = dlerror();
        gdn__text_set(err, "%s", why ? why : "dlopen failed without a reason");
        return GDN_E_LOAD;
    }
    out->path = gdn__copy(real);
    gdn_plugin_query_fn query = query_of(out->handle);
    if (!out->path) {
        st = GDN_E_NOMEM;
        gdn__text_set(err, "%s", gdn_status_text(st));
    } else if (!query) {
        st = GDN_E_LOAD;
        gdn__text_set(err, "no gdn_plugin_query: not a plugin");
    } else {
        st = gdn__negotiate(query, target, out, err);
    }
    if (st != GDN_OK) {
        (void)dlclose(out->handle); /* nothing of it ran but the pure query */
        free(out->path);
        *out = (gdn__plugin) { 0 };
    }
    return st;
}

gdn_status gdn__plugin_find(const gdn__places *places, const char *target, gdn__plugin *out, const gdn__log *log, gdn_text *err) {
    gdn_status result = GDN_E_NOTARGET;
    gdn__text_set(err, "target '%s' could not be opened; tried", target);
    for (size_t i = 0; i < places->n; i++) {
        char why[1024] = "";
        gdn_text reason = { why, sizeof why, 0 };
        char *path = gdn__format("%s/libgdn_%s.so", places->folder[i], target);
        if (!path) {
            gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
            return GDN_E_NOMEM;
        }
        const gdn_status st = gdn__plugin_load(path, target, out, &reason);
        if (st < 0) {
            gdn__log_line(log, GDN_LOG_WARN, "loader", "%s is not used: %s", path, why);
            if (result == GDN_E_NOTARGET) result = st; /* the first file that was there says what is wrong */
        }
        if (st != GDN_OK) gdn__text_add(err, "%s %s (%s): %s", i ? ";" : "", path, places->rule[i], why);
        free(path);
        if (st == GDN_OK) {
            gdn__text_set(err, "%s", "");
            return GDN_OK;
        }
    }
    if (!places->n) gdn__text_add(err, " nothing: the search list is empty");
    return result;
}

void gdn__plugin_retire(gdn__plugin *p, bool keep) {
    /* Code that ran is only given up when the plugin promises that nothing of it runs on by itself. */
    const bool may = !p->begun || ((p->id.flags & GDN_F_UNLOADABLE) && !keep);
    if (p->handle && may) (void)dlclose(p->handle);
    free(p->path);
    *p = (gdn__plugin) { 0 };
}
