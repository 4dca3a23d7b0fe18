/* choose.c - from what the caller asked for (a name, a path, auto, nothing) to a loaded plugin and its backend. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

const char *const gdn__known_targets[] = { "hopper", "gb10", "cpu", NULL };

static bool known(const char *name) {
    for (size_t i = 0; gdn__known_targets[i]; i++)
        if (!strcmp(name, gdn__known_targets[i])) return true;
    return false;
}

/* What is asked for: the options, else GDN_TARGET, else auto. */
static const char *asked(const gdn_options *opt, const gdn__env *env) {
    const char *name = opt->target && *opt->target ? opt->target : gdn__env_get(env, "GDN_TARGET");
    return name && *name ? name : "auto";
}

gdn_status gdn__backend_for(const gdn__plugin *p, const gdn_backend **out, gdn_text *err) {
    if (!*p->id.archs) {
        *out = gdn__host_backend();
        return GDN_OK;
    }
    gdn__text_set(err, "target '%s' needs a GPU (%s), and this libgdn carries no GPU backend", p->id.target, p->id.archs);
    return GDN_E_NODRIVER;
}

/* The best target whose plugin loads and whose device is there. One line says what was taken and why not the others. */
static gdn_status take_auto(const gdn__places *places, const gdn__log *log, gdn__plugin *out, gdn_text *err) {
    char skipped[1024] = "";
    gdn_text why = { skipped, sizeof skipped, 0 };
    for (size_t i = 0; gdn__known_targets[i]; i++) {
        const char *name = gdn__known_targets[i];
        char reason[2048] = "";
        gdn_text text = { reason, sizeof reason, 0 };
        const gdn_backend *backend;
        gdn_status st = gdn__plugin_find(places, name, out, log, &text);
        const bool found = st == GDN_OK;
        if (found) st = gdn__backend_for(out, &backend, &text);
        if (st == GDN_OK) {
            gdn__log_line(log, GDN_LOG_INFO, "loader", "auto took %s%s%s", name, why.len ? ": " : "", skipped);
            return GDN_OK;
        }
        if (found) gdn__plugin_retire(out, false);
        if (!gdn__known_targets[i + 1]) { /* the last one: its whole reason is the answer */
            gdn__text_set(err, "auto found no target; %s%s%s", skipped, why.len ? "; " : "", reason);
            return st;
        }
        gdn__text_add(&why, "%s%s: %s", why.len ? ", " : "", name,
                      st == GDN_E_NOTARGET   ? "no plugin here"
                      : st == GDN_E_NODRIVER ? "no device (this libgdn carries no GPU backend)"
                                             : "its plugin was refused");
    }
    return GDN_E_NOTARGET;
}

static gdn_status take(const char *name, const gdn_options *opt, const gdn__env *env, const gdn__log *log, gdn__plugin *out,
                       gdn_text *err) {
    gdn__places places;
    if (strchr(name, '/')) {
        char why[1024] = "";
        gdn_text reason = { why, sizeof why, 0 };
        const gdn_status st = gdn__plugin_load(name, NULL, out, &reason);
        if (st != GDN_OK) gdn__text_set(err, "plugin %s: %s", name, why);
        return st == GDN_ABSENT ? GDN_E_NOTARGET : st;
    }
    if (!strcmp(name, "none")) {
        gdn__text_set(err, "target 'none': no target is wanted");
        return GDN_E_NOTARGET;
    }
    if (!gdn__target_name_ok(name)) {
        gdn__text_set(err, "'%.64s' is no target name ([a-z0-9_], 1 to 32); a path has a slash", name);
        return GDN_E_ARG;
    }
    gdn_status st = gdn__places_list(env, opt->plugin_path, &places, err);
    if (st != GDN_OK) return st;
    st = strcmp(name, "auto") != 0 ? gdn__plugin_find(&places, name, out, log, err) : take_auto(&places, log, out, err);
    gdn__places_free(&places);
    return st;
}

gdn_status gdn__choose(const gdn_options *opt, const gdn__env *env, const gdn__log *log, gdn__plugin *out, gdn_text *err) {
    *out = (gdn__plugin) { 0 };
    const gdn_status st = take(asked(opt, env), opt, env, log, out, err);
    const char *variable = opt->target && *opt->target ? NULL : gdn__env_get(env, "GDN_TARGET");
    if (st != GDN_OK && variable && *variable) gdn__text_add(err, " (asked for by GDN_TARGET)");
    return st;
}

gdn_status gdn__choose_name(const gdn_options *opt, const gdn__env *env, const gdn__log *log, char **out, gdn_text *err) {
    const char *name = asked(opt, env);
    gdn__plugin plugin;
    *out = NULL;
    if (known(name)) { /* its files can be read without the plugin */
        *out = gdn__copy(name);
    } else {
        const gdn_status st = gdn__choose(opt, env, log, &plugin, err);
        if (st != GDN_OK) return st;
        *out = gdn__copy(plugin.id.target);
        gdn__plugin_retire(&plugin, false);
    }
    if (*out) return GDN_OK;
    gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
    return GDN_E_NOMEM;
}
