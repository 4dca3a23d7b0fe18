/* targets.c - gdn_targets: every known target, every plugin file of the search folders, and the one that was asked for;
 * each loaded, checked, asked for its settings as gdn_open would read them, and let go again, without opening a device. */
#include "host_internal.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TARGETS = 64 };
typedef struct name_list {
    char *name[MAX_TARGETS];
    size_t n;
} name_list;

/* false: no memory. A full list drops the rest: there are not that many targets. */
static bool add_name(name_list *l, const char *name, size_t n) {
    char *copy = gdn__format("%.*s", (int)n, name);
    if (!copy) return false;
    bool wanted = l->n < MAX_TARGETS && gdn__target_name_ok(copy);
    for (size_t i = 0; i < l->n && wanted; i++) wanted = strcmp(l->name[i], copy) != 0;
    if (wanted) {
        l->name[l->n++] = copy;
    } else {
        free(copy);
    }
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* libgdn_<name>.so in every folder; folders that cannot be read have nothing. */
static bool scan(name_list *l, const gdn__places *places) {
    static const char head[] = "libgdn_", tail[] = ".so";
    bool ok = true;
    const size_t first = l->n;
    for (size_t i = 0; i < places->n && ok; i++) {
        DIR *d = opendir(places->folder[i]);
        for (struct dirent *e = d ? readdir(d) : NULL; e && ok; e = readdir(d)) {
            const size_t n = strlen(e->d_name), fixed = sizeof head + sizeof tail - 2;
            if (n <= fixed || strncmp(e->d_name, head, sizeof head - 1) != 0 || strcmp(e->d_name + n - (sizeof tail - 1), tail) != 0)
                continue;
            ok = add_name(l, e->d_name + sizeof head - 1, n - fixed);
        }
        if (d) (void)closedir(d);
    }
    qsort(l->name + first, l->n - first, sizeof *l->name, by_name);
    return ok;
}

typedef struct asker {
    void (*each)(void *user, const gdn_target_info *info);
    void *user;
    const gdn_options *opt;
    const gdn__env *env;
} asker;

/* Would gdn_open take this target's settings? */
static gdn_status settings_ok(const asker *a, const char *target, gdn_text *why) {
    const gdn__log silent = { 0 };
    gdn__conf conf;
    gdn_lever_set *levers = NULL;
    gdn_status st = gdn__conf_find(a->env, target, a->opt->conf, &conf, &silent, why);
    if (st == GDN_OK) st = gdn__levers_resolve(a->env, &conf, a->opt->settings, a->opt->n_settings, &silent, &levers, why);
    gdn_levers_free(levers);
    return st;
}

static void tell(const asker *a, const char *name, gdn_status st, gdn__plugin *p, const char *reason) {
    char why[GDN__WHY] = "";
    gdn_text text = { why, sizeof why, 0 };
    const bool loaded = st == GDN_OK;
    if (loaded && (st = settings_ok(a, p->id.target, &text)) == GDN_OK) st = gdn__device_for(p, &text);
    if (loaded && st != GDN_OK) reason = *why ? why : gdn_status_text(st);
    const gdn_target_info info = { .struct_size = (uint32_t)sizeof info,
                                   .status = st,
                                   .target = loaded ? p->id.target : name,
                                   .path = loaded ? p->path : NULL,
                                   .version = loaded ? p->id.version : NULL,
                                   .build_id = loaded ? p->id.build_id : NULL,
                                   .archs = loaded ? p->id.archs : NULL,
                                   .reason = st == GDN_OK ? NULL : reason,
                                   .abi_major = loaded ? p->id.abi_major : 0,
                                   .abi_minor = loaded ? p->id.abi_minor : 0 };
    a->each(a->user, &info);
    if (loaded) gdn__plugin_retire(p, false);
}

gdn_status gdn_targets(const gdn_options *opt, void (*each)(void *user, const gdn_target_info *info), void *user, gdn_text *err) {
    gdn_options o;
    gdn__log log = { 0 }, warn; /* every reason is in the answer: no lines besides, but for what the environment has wrong */
    gdn__places places = { 0 };
    name_list names = { .n = 0 };
    gdn__text_set(err, "%s", "");
    if (!each) {
        gdn__text_set(err, "gdn_targets: each is NULL");
        return GDN_E_ARG;
    }
    gdn_status st = gdn__options_read(opt, &o, err);
    if (st != GDN_OK) return st;
    const bool is_path = o.target && strchr(o.target, '/'), is_name = o.target && !is_path && strcmp(o.target, "auto") != 0;
    if (is_name && (st = gdn__target_name_check(o.target, err)) != GDN_OK) return st;
    const gdn__env *env = gdn__env_shared();
    st = env ? gdn__places_list(env, o.plugin_path, &places, err) : GDN_E_NOMEM;
    bool ok = st == GDN_OK;
    const asker a = { each, user, &o, env };
    if (ok) gdn__log_open(&o, env, &warn);
    for (size_t i = 0; ok && gdn__known_targets[i]; i++) ok = add_name(&names, gdn__known_targets[i], strlen(gdn__known_targets[i]));
    if (ok && is_name) ok = add_name(&names, o.target, strlen(o.target));
    if (ok) ok = scan(&names, &places);
    for (size_t i = 0; ok && i < names.n; i++) {
        char why[GDN__WHY] = "";
        gdn_text reason = { why, sizeof why, 0 };
        gdn__plugin p = { 0 };
        const gdn_status found = gdn__plugin_find(&places, names.name[i], &p, &log, &reason);
        tell(&a, names.name[i], found, &p, why);
    }
    if (ok && is_path) {
        char why[GDN__WHY] = "";
        gdn_text reason = { why, sizeof why, 0 };
        gdn__plugin p = { 0 };
        const gdn_status found = gdn__plugin_load(o.target, NULL, &p, &reason);
        tell(&a, o.target, found == GDN_ABSENT ? GDN_E_NOTARGET : found, &p, why);
    }
    if (!ok && st == GDN_OK) st = GDN_E_NOMEM;
    if (st == GDN_E_NOMEM) gdn__text_set(err, "%s", gdn_status_text(st));
    for (size_t i = 0; i < names.n; i++) free(names.name[i]);
    gdn__places_free(&places);
    return st;
}
