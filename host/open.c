/* open.c - gdn_open: environment, plugin, settings, levers, context, in this order; gdn_close; gdn_describe. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

/* A caller built against a longer gdn_options: fine, so long as it asks for nothing that is not known here. */
static bool asks_for_more(const gdn_options *opt) {
    enum { NO_OPTIONS = 4096 };
    const unsigned char *bytes = (const unsigned char *)opt;
    if (opt->struct_size > NO_OPTIONS) return true;
    for (uint32_t i = (uint32_t)sizeof *opt; i < opt->struct_size; i++)
        if (bytes[i]) return true;
    return false;
}

gdn_status gdn__options_read(const gdn_options *opt, gdn_options *out, gdn_text *err) {
    const gdn_options none = GDN_OPTIONS_INIT;
    *out = none;
    if (!opt) return GDN_OK; /* all defaults */
    if (opt->struct_size < GDN_THROUGH(gdn_options, target)) {
        gdn__text_set(err, "gdn_options.struct_size is %u, at least %u are needed (use GDN_OPTIONS_INIT)", (unsigned)opt->struct_size,
                      (unsigned)GDN_THROUGH(gdn_options, target));
        return GDN_E_ABI;
    }
    if (asks_for_more(opt)) {
        gdn__text_set(err, "gdn_options.struct_size is %u and beyond %u bytes, which is all this libgdn knows, something is set",
                      (unsigned)opt->struct_size, (unsigned)sizeof *opt);
        return GDN_E_ABI;
    }
    memcpy(out, opt, opt->struct_size < sizeof *out ? opt->struct_size : sizeof *out);
    if (out->n_settings && !out->settings) {
        gdn__text_set(err, "gdn_options.settings is NULL, n_settings is %u", (unsigned)out->n_settings);
        return GDN_E_ARG;
    }
    if (out->log_level > GDN_LOG_DEBUG) {
        gdn__text_set(err, "gdn_options.log_level is %u, the highest is %u", (unsigned)out->log_level, (unsigned)GDN_LOG_DEBUG);
        return GDN_E_ARG;
    }
    if (out->flags & ~(uint32_t)GDN_OPEN_DRY) {
        gdn__text_set(err, "gdn_options.flags has unknown bits: 0x%x", (unsigned)(out->flags & ~(uint32_t)GDN_OPEN_DRY));
        return GDN_E_ARG;
    }
    if (out->pad_) {
        gdn__text_set(err, "gdn_options.pad_ is 0x%x, must be 0", (unsigned)out->pad_);
        return GDN_E_ARG;
    }
    return GDN_OK;
}

void gdn__log_open(const gdn_options *opt, const gdn__env *env, gdn__log *out) {
    static _Atomic bool warned;
    const char *name = gdn__env_get(env, "GDN_LOG");
    const uint32_t level = name ? gdn__log_level(name) : 0;
    *out = (gdn__log) { opt->log, opt->log_user, opt->log_level ? opt->log_level : level ? level : (uint32_t)GDN_LOG_INFO };
    if (!opt->log || atomic_exchange(&warned, true)) return; /* once a process, to the first who listens */
    gdn__env_warn_unknown(env, out);
    if (name && *name && !level) gdn__log_line(out, GDN_LOG_WARN, "env", "GDN_LOG=%s: expected error, warn, info or debug", name);
}

gdn_status gdn_open(const gdn_options *opt, gdn **out, gdn_text *err) {
    gdn_options o;
    gdn__log log;
    gdn__conf conf;
    gdn__plugin plugin = { 0 };
    gdn_lever_set *levers = NULL;
    gdn__generation *gen = NULL;
    gdn *g = NULL;
    gdn__text_set(err, "%s", "");
    if (!out) {
        gdn__text_set(err, "gdn_open: out is NULL");
        return GDN_E_ARG;
    }
    *out = NULL;
    gdn_status st = gdn__options_read(opt, &o, err);
    if (st != GDN_OK) return st;
    const gdn__env *env = gdn__env_shared();
    g = gdn__alloc(sizeof *g);
    if (!env || !g) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        free(g);
        return GDN_E_NOMEM;
    }
    const bool keep = gdn__env_get(env, "GDN_KEEP_LOADED") != NULL;
    gdn__log_open(&o, env, &log);

    st = gdn__choose(&o, env, &log, &plugin, err);
    if (st == GDN_OK) st = gdn__conf_find(env, plugin.id.target, o.conf, &conf, &log, err);
    if (st == GDN_OK) st = gdn__levers_resolve(env, &conf, o.settings, o.n_settings, &log, &levers, err);
    if (st == GDN_OK) st = gdn__generation_make(&plugin, levers, &log, &o, keep, 1, &gen, err);
    if (st != GDN_OK) {
        gdn__plugin_retire(&plugin, keep); /* nothing to do when the generation took it */
        free(g);
        return st;
    }
    gdn__log_line(&log, GDN_LOG_INFO, "loader", "target %s: %s, version %s, build %s, ABI %u.%u (host %u.%u)", gen->plugin.id.target,
                  gen->plugin.path, gen->plugin.id.version, gen->plugin.id.build_id, (unsigned)gen->plugin.id.abi_major,
                  (unsigned)gen->plugin.id.abi_minor, GDN_ABI_MAJOR, GDN_ABI_MINOR);
    g->gen = gen;
    *out = g;
    return GDN_OK;
}

void gdn_close(gdn *g) {
    if (!g) return;
    gdn__generation_unref(g->gen);
    free(g);
}

gdn_status gdn_describe(const gdn *g, gdn_info *out) {
    if (!g || !out) return GDN_E_ARG;
    if (out->struct_size < GDN_THROUGH(gdn_info, target)) return GDN_E_ABI;
    const gdn__generation *gen = g->gen;
    const gdn_plugin *id = &gen->plugin.id;
    const gdn_info info = { .struct_size = out->struct_size < sizeof info ? out->struct_size : (uint32_t)sizeof info,
                            .abi_major = id->abi_major,
                            .abi_minor = id->abi_minor,
                            .generation = gen->number,
                            .target = id->target,
                            .path = gen->plugin.path,
                            .version = id->version,
                            .build_id = id->build_id,
                            .sanitizer = id->sanitizer,
                            .archs = id->archs,
                            .flags = id->flags,
                            .device = gen->device };
    memcpy(out, &info, info.struct_size);
    return GDN_OK;
}
