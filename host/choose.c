/* choose.c - from what the caller asked for (a name, a path, auto, nothing) to a loaded plugin and its backend. */
#include "cuda_backend.h"
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

gdn_status gdn__backend_for(const gdn__plugin *p, const gdn__log *log, const gdn_backend **out, gdn_text *err) {
    char why[512] = "";
    gdn_text reason = { why, sizeof why, 0 };
    *out = NULL;
    if (!*p->id.archs) {
        *out = gdn__host_backend();
        return GDN_OK;
    }
    const gdn_status st = gdn__cuda_backend_open(log, gdn__env_shared(), out, &reason);
    if (st != GDN_OK) gdn__text_set(err, "target '%s' needs a GPU (%s): %s", p->id.target, p->id.archs, why);
    return st;
}

void gdn__backend_drop(const gdn_backend *backend) {
    if (backend && backend != gdn__host_backend()) gdn__cuda_backend_close(backend);
}

/* The devices that are there; without a driver there are none, and `why` says so. */
typedef struct devices {
    gdn_device list[16];
    uint32_t n;
    char why[256];
} devices;

static void find_devices(devices *d) {
    gdn_text text = { d->why, sizeof d->why, 0 };
    d->n = 0;
    d->why[0] = 0;
    if (gdn__cuda_probe(d->list, (uint32_t)(sizeof d->list / sizeof *d->list), &d->n, &text) != GDN_OK)
        d->n = 0;
    else if (d->n == 0)
        gdn__text_set(&text, "the driver sees no GPU");
    if (d->n > sizeof d->list / sizeof *d->list) d->n = (uint32_t)(sizeof d->list / sizeof *d->list);
}

/* auto takes a GPU target only for the very devices that it is made for; by name its portable kernels may run on others. */
static bool fits(const gdn__plugin *p, const gdn_device *d, bool by_name) {
    return gdn__arch_fits(p->id.archs, d->cc_major, d->cc_minor) || (by_name && (p->id.flags & GDN_F_PORTABLE) && d->cc_major >= 8);
}

static bool has_device(const gdn__plugin *p, const devices *d, int32_t ordinal) {
    if (!*p->id.archs) return true;
    return ordinal >= 0 && (uint32_t)ordinal < d->n && fits(p, &d->list[ordinal], false);
}

gdn_status gdn__device_for(const gdn__plugin *p, gdn_text *why) {
    devices d;
    if (!*p->id.archs) return GDN_OK;
    find_devices(&d);
    for (uint32_t i = 0; i < d.n; i++)
        if (fits(p, &d.list[i], true)) return GDN_OK;
    gdn__text_set(why, "target '%s' needs a GPU (%s): %s", p->id.target, p->id.archs, d.n ? "no device of its kind" : d.why);
    return d.n ? GDN_E_ARCH : GDN_E_NODRIVER;
}

/* The best target whose plugin loads and whose device is there. One line says what was taken and why not the others. */
static gdn_status take_auto(const gdn__places *places, const gdn_options *opt, const gdn__log *log, gdn__plugin *out, gdn_text *err) {
    char skipped[1024] = "";
    gdn_text why = { skipped, sizeof skipped, 0 };
    devices d;
    bool portable = false;
    find_devices(&d);
    for (size_t i = 0; gdn__known_targets[i]; i++) {
        const char *name = gdn__known_targets[i];
        char reason[2048] = "";
        gdn_text text = { reason, sizeof reason, 0 };
        gdn_status st = gdn__plugin_find(places, name, out, log, &text);
        const bool found = st == GDN_OK;
        if (found && has_device(out, &d, opt->ordinal)) {
            gdn__log_line(log, GDN_LOG_INFO, "loader", "auto took %s%s%s%s", name, why.len ? ": " : "", skipped,
                          portable ? "; gb10's portable kernels could be asked for by name on this GPU" : "");
            return GDN_OK;
        }
        if (found && d.n && fits(out, &d.list[0], true)) portable = true;
        if (found) gdn__plugin_retire(out, false);
        if (!gdn__known_targets[i + 1]) { /* the last one: its whole reason is the answer */
            gdn__text_set(err, "auto found no target; %s%s%s", skipped, why.len ? "; " : "", reason);
            return found ? GDN_E_NOTARGET : st;
        }
        gdn__text_add(&why, "%s%s: %s", why.len ? ", " : "", name,
                      found                  ? (d.n ? "no device of its kind" : d.why)
                      : st == GDN_E_NOTARGET ? "no plugin here"
                                             : "its plugin was refused");
    }
    return GDN_E_NOTARGET;
}

static gdn_status take(const char *name, const gdn_options *opt, const gdn__env *env, const gdn__log *log, gdn__plugin *out,
                       gdn_text *err) {
    gdn__places places;
    if (strchr(name, '/')) {
        char why[GDN__WHY] = "";
        gdn_text reason = { why, sizeof why, 0 };
        const gdn_status st = gdn__plugin_load(name, NULL, out, &reason);
        if (st != GDN_OK) gdn__text_set(err, "plugin %s: %s", name, why);
        return st == GDN_ABSENT ? GDN_E_NOTARGET : st;
    }
    if (!strcmp(name, "none")) {
        gdn__text_set(err, "target 'none': no target is wanted");
        return GDN_E_NOTARGET;
    }
    gdn_status st = gdn__target_name_check(name, err);
    if (st != GDN_OK) return st;
    st = gdn__places_list(env, opt->plugin_path, &places, err);
    if (st != GDN_OK) return st;
    st = strcmp(name, "auto") != 0 ? gdn__plugin_find(&places, name, out, log, err) : take_auto(&places, opt, log, out, err);
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
