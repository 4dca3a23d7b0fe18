/* lever_set.c - the effective levers: built in < files < environment < kill switch < API, each with its source and place. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *shown(const char *value) {
    return value ? value : "unset";
}

/* Replaces one value. What it replaces, unless built in, is told at level debug: "<key>: <old> (<place>) is overridden by ...". */
static gdn_status put(gdn_lever_set *set, int i, const char *value, const char *where, uint32_t source, const gdn__log *log) {
    char *v = value ? gdn__copy(value) : NULL, *w = gdn__copy(where);
    if (!w || (value && !v)) {
        free(v);
        free(w);
        return GDN_E_NOMEM;
    }
    if (set->at[i].where && set->at[i].source != GDN_FROM_BUILTIN)
        gdn__log_line(log, GDN_LOG_DEBUG, "levers", "%s: %s (%s) is overridden by %s (%s)", gdn__lever_defs[i].key, shown(set->at[i].value),
                      set->at[i].where, shown(v), w);
    free(set->at[i].value);
    free(set->at[i].where);
    set->at[i].value = v;
    set->at[i].where = w;
    set->at[i].source = source;
    return GDN_OK;
}

static gdn_status from_files(gdn_lever_set *set, const gdn__conf *conf, const gdn__log *log) {
    gdn_status st = GDN_OK;
    for (uint32_t f = 0; f < conf->n; f++) {
        for (int i = 0; i < GDN__LEVERS && st == GDN_OK; i++) {
            if (!conf->file[f]->value[i]) continue;
            char *where = gdn__format("%s:%u", conf->label[f], (unsigned)conf->file[f]->line[i]);
            st = where ? put(set, i, conf->file[f]->value[i], where, GDN_FROM_CONF, log) : GDN_E_NOMEM;
            free(where);
        }
    }
    return st;
}

static gdn_status from_environment(gdn_lever_set *set, const gdn__env *env, const gdn__log *log, gdn_text *err) {
    for (int i = 0; i < GDN__LEVERS; i++) {
        const gdn__lever_def *d = &gdn__lever_defs[i];
        const char *newer = gdn__env_get(env, d->env), *older = d->older ? gdn__env_get(env, d->older) : NULL;
        const char *value = NULL, *other = NULL;
        gdn_status st = GDN_OK;
        if (newer) st = gdn__lever_from_env(d, d->env, newer, &value, err);
        if (st == GDN_OK && older) st = gdn__lever_from_env(d, d->older, older, &other, err);
        if (st != GDN_OK) return st;
        if (value && other && strcmp(value, other) != 0)
            gdn__log_line(log, GDN_LOG_WARN, "levers", "%s=%s and %s=%s disagree; %s is used", d->env, newer, d->older, older, d->env);
        if (value || other) st = put(set, i, value ? value : other, value ? d->env : d->older, GDN_FROM_ENV, log);
        if (st != GDN_OK) return st;
    }
    return GDN_OK;
}

/* Before any other source is read: what the program says itself is told first. */
static gdn_status check_api(const gdn_setting *settings, uint32_t n, gdn_text *err) {
    for (uint32_t k = 0; k < n; k++) {
        const char *key = settings[k].key, *text = settings[k].value, *value;
        const int i = key ? gdn__lever_find(key) : -1;
        if (!key || !text) {
            gdn__text_set(err, "api: setting %u has no %s", (unsigned)k, key ? "value" : "key");
            return GDN_E_ARG;
        }
        if (i < 0) {
            const char *near = gdn__lever_nearest(key);
            gdn__text_set(err, "api: %s: unknown key%s%s%s", key, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
            return GDN_E_LEVER;
        }
        const gdn_status st = gdn__lever_from_text(&gdn__lever_defs[i], "api", text, &value, err);
        if (st != GDN_OK) return st;
    }
    return GDN_OK;
}

/* Checked before. */
static gdn_status from_api(gdn_lever_set *set, const gdn_setting *settings, uint32_t n, bool kill_switches, const gdn__log *log,
                           gdn_text *err) {
    gdn_status st = GDN_OK;
    for (uint32_t k = 0; k < n && st == GDN_OK; k++) {
        const char *value;
        const int i = gdn__lever_find(settings[k].key);
        if ((gdn__lever_defs[i].grammar == GDN__PRESENCE) != kill_switches) continue;
        st = gdn__lever_from_text(&gdn__lever_defs[i], "api", settings[k].value, &value, err);
        if (st == GDN_OK) st = put(set, i, value, "api", GDN_FROM_API, log);
    }
    return st;
}

/* A switch that is on turns its toggle off here, so that plugins need not know of the pair. */
static gdn_status apply_kill_switches(gdn_lever_set *set, const gdn__log *log) {
    gdn_status st = GDN_OK;
    for (int i = 0; i < GDN__LEVERS && st == GDN_OK; i++) {
        const char *off = gdn__lever_defs[i].off;
        if (!off || !set->at[i].value || strcmp(set->at[i].value, "true") != 0) continue;
        st = put(set, gdn__lever_find(off), "false", set->at[i].where, set->at[i].source, log);
    }
    return st;
}

/* The program turned a toggle on against its switch: the switch is off then, so that plugins may look at either. */
static gdn_status settle_kill_switches(gdn_lever_set *set, const gdn__log *log) {
    gdn_status st = GDN_OK;
    for (int i = 0; i < GDN__LEVERS && st == GDN_OK; i++) {
        const int toggle = gdn__lever_defs[i].off ? gdn__lever_find(gdn__lever_defs[i].off) : -1;
        if (toggle < 0 || !set->at[i].value || strcmp(set->at[i].value, "true") != 0) continue;
        if (!strcmp(set->at[toggle].value, "true")) st = put(set, i, "false", set->at[toggle].where, set->at[toggle].source, log);
    }
    return st;
}

gdn_status gdn__levers_resolve(const gdn__env *env, const gdn__conf *conf, const gdn_setting *settings, uint32_t n_settings,
                               const gdn__log *log, gdn_lever_set **out, gdn_text *err) {
    gdn_lever_set *set = gdn__alloc(sizeof *set);
    gdn_status st = set ? GDN_OK : GDN_E_NOMEM;
    *out = NULL;
    if (st == GDN_OK) st = check_api(settings, n_settings, err);
    for (int i = 0; i < GDN__LEVERS && st == GDN_OK; i++) st = put(set, i, gdn__lever_defs[i].builtin, "built in", GDN_FROM_BUILTIN, log);
    if (st == GDN_OK) st = from_files(set, conf, log);
    if (st == GDN_OK) st = from_environment(set, env, log, err);
    if (st == GDN_OK) st = from_api(set, settings, n_settings, true, log, err);
    if (st == GDN_OK) st = apply_kill_switches(set, log);
    if (st == GDN_OK) st = from_api(set, settings, n_settings, false, log, err);
    if (st == GDN_OK) st = settle_kill_switches(set, log);
    if (st == GDN_OK) {
        *out = set;
        return GDN_OK;
    }
    if (st == GDN_E_NOMEM) gdn__text_set(err, "%s", gdn_status_text(st));
    gdn_levers_free(set);
    return st;
}

void gdn_levers_free(gdn_lever_set *set) {
    if (!set) return;
    for (int i = 0; i < GDN__LEVERS; i++) {
        free(set->at[i].value);
        free(set->at[i].where);
    }
    free(set);
}

gdn_status gdn_levers_at(const gdn_lever_set *set, uint32_t index, gdn_lever_info *out) {
    if (!set || !out) return GDN_E_ARG;
    if (out->struct_size < GDN_THROUGH(gdn_lever_info, value)) return GDN_E_ABI;
    if (index >= GDN__LEVERS) return GDN_ABSENT;
    const gdn__lever_def *d = &gdn__lever_defs[index];
    const gdn_lever_info info = { .struct_size = out->struct_size < sizeof info ? out->struct_size : (uint32_t)sizeof info,
                                  .source = set->at[index].source,
                                  .key = d->key,
                                  .value = set->at[index].value,
                                  .where = set->at[index].where,
                                  .env = d->env,
                                  .grammar = gdn__grammar_name(d->grammar),
                                  .meaning = d->meaning,
                                  .builtin = d->builtin };
    memcpy(out, &info, info.struct_size);
    return GDN_OK;
}

gdn_status gdn_levers_read(const gdn_options *opt, const char *target, gdn_lever_set **out, gdn_text *err) {
    gdn_options o;
    gdn__log log;
    gdn__conf conf;
    if (!out) {
        gdn__text_set(err, "gdn_levers_read: out is NULL");
        return GDN_E_ARG;
    }
    *out = NULL;
    gdn_status st = gdn__options_read(opt, &o, err);
    const gdn__env *env = st == GDN_OK ? gdn__env_shared() : NULL;
    if (st != GDN_OK) return st;
    if (!env) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    gdn__log_open(&o, env, &log);
    char *chosen = NULL;
    if (target) o.target = target;
    st = gdn__choose_name(&o, env, &log, &chosen, err);
    if (st == GDN_OK) st = gdn__conf_find(env, chosen, o.conf, &conf, &log, err);
    if (st == GDN_OK) st = gdn__levers_resolve(env, &conf, o.settings, o.n_settings, &log, out, err);
    free(chosen);
    return st;
}
