/* search.c - which folders may hold plugins, strongest first. The working folder is never one of them.
 *
 *   1 gdn_options.plugin_path            } each replaces all that follows
 *   2 GDN_PLUGIN_PATH                    }
 *   3 GDN_ADD_PLUGIN_PATH                  in front of
 *   4 the folder libgdn was configured with
 *   5 <folder of libgdn>/gdn/<major>, <folder of the program>/../lib/gdn/<major> */
#define _GNU_SOURCE /* dladdr */
#include "host_internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool gdn__target_name_ok(const char *name) {
    const size_t n = strlen(name);
    return n >= 1 && n <= 32 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

gdn_status gdn__target_name_check(const char *name, gdn_text *err) {
    if (gdn__target_name_ok(name)) return GDN_OK;
    gdn__text_set(err, "'%.64s' is no target name ([a-z0-9_], 1 to 32); a path has a slash", name);
    return GDN_E_ARG;
}

static char *folder_of(const char *file) {
    char real[PATH_MAX];
    if (!realpath(file, real)) return NULL;
    char *slash = strrchr(real, '/');
    if (!slash) return NULL;
    *slash = '\0';
    return gdn__copy(real);
}

char *gdn__own_folder(void) {
    Dl_info info;
    static const char here = 0;
    if (!dladdr(&here, &info) || !info.dli_fname) return NULL;
    /* In a program the name is argv[0]; a relative one may mean another file by now. */
    return info.dli_fname[0] == '/' ? folder_of(info.dli_fname) : gdn__program_folder();
}

char *gdn__program_folder(void) {
    return folder_of("/proc/self/exe");
}

void gdn__places_free(gdn__places *p) {
    for (size_t i = 0; i < p->n; i++) {
        free(p->folder[i]);
        free(p->rule[i]);
    }
    free(p->folder);
    free(p->rule);
    *p = (gdn__places) { 0 };
}

enum { MAX_PLACES = 64, SPARE = 3 /* the folders that no list names */ };

/* Takes over folder. A folder that is listed already is not listed again. */
static gdn_status add(gdn__places *p, char *folder, const char *rule) {
    for (size_t i = 0; folder && i < p->n; i++) {
        if (strcmp(p->folder[i], folder) != 0) continue;
        free(folder);
        return GDN_OK;
    }
    char *why = folder ? gdn__copy(rule) : NULL;
    if (!why) {
        free(folder);
        return GDN_E_NOMEM;
    }
    p->folder[p->n] = folder;
    p->rule[p->n++] = why;
    return GDN_OK;
}

/* Colon separated; empty entries, which other programs read as the working folder, are dropped. */
static gdn_status add_list(gdn__places *p, const char *list, const char *rule, gdn_text *err) {
    gdn_status st = GDN_OK;
    while (st == GDN_OK && *list) {
        const size_t n = strcspn(list, ":");
        if (n && list[0] != '/') {
            gdn__text_set(err, "%s: '%.*s' is not an absolute folder", rule, (int)(n < 200 ? n : 200), list);
            st = GDN_E_ARG;
        } else if (n && p->n == MAX_PLACES) {
            gdn__text_set(err, "%s: more than %d folders", rule, MAX_PLACES);
            st = GDN_E_ARG;
        } else if (n) {
            st = add(p, gdn__format("%.*s", (int)n, list), rule);
        }
        list += n + (list[n] == ':');
    }
    return st;
}

static gdn_status add_relative(gdn__places *p, char *base, const char *tail, const char *rule) {
    if (!base) return GDN_OK; /* cannot be told: one place less */
    char *folder = gdn__format("%s/%s/%u", base, tail, GDN_ABI_MAJOR);
    free(base);
    char real[PATH_MAX];
    if (folder && realpath(folder, real)) { /* so that one folder has one name */
        free(folder);
        folder = gdn__copy(real);
    }
    return add(p, folder, rule);
}

gdn_status gdn__places_list(const gdn__env *env, const char *plugin_path, gdn__places *out, gdn_text *err) {
    const char *replace = gdn__env_get(env, "GDN_PLUGIN_PATH"), *front = gdn__env_get(env, "GDN_ADD_PLUGIN_PATH");
    *out = (gdn__places) { .folder = gdn__alloc((MAX_PLACES + SPARE) * sizeof(char *)),
                           .rule = gdn__alloc((MAX_PLACES + SPARE) * sizeof(char *)) };
    gdn_status st = out->folder && out->rule ? GDN_OK : GDN_E_NOMEM;
    if (st == GDN_OK && plugin_path && *plugin_path) {
        st = add_list(out, plugin_path, "plugin_path", err);
    } else if (st == GDN_OK && replace && *replace) {
        st = add_list(out, replace, "GDN_PLUGIN_PATH", err);
    } else if (st == GDN_OK) {
        if (front) st = add_list(out, front, "GDN_ADD_PLUGIN_PATH", err);
        if (st == GDN_OK) st = add(out, gdn__copy(GDN_INSTALL_PLUGIN_DIR), "install folder");
        if (st == GDN_OK) st = add_relative(out, gdn__own_folder(), "gdn", "beside libgdn");
        if (st == GDN_OK) st = add_relative(out, gdn__program_folder(), "../lib/gdn", "beside the program");
    }
    if (st == GDN_E_NOMEM) gdn__text_set(err, "%s", gdn_status_text(st));
    if (st != GDN_OK) gdn__places_free(out);
    return st;
}
