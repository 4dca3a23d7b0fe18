/* generation.c - one loaded plugin with its context, counted: the gdn holds one reference and so does every plan, so that
 * closing (and later a swap) ends a context only when nothing made in it is left. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

static void lent_log(void *user, uint32_t severity, const char *area, const char *msg) {
    const gdn__generation *gen = user;
    gdn__log_raw(&gen->log, severity, area, msg);
}

static gdn_status lent_lever(void *user, const char *key, gdn_lever *out) {
    const gdn__generation *gen = user;
    if (!key || !out) return GDN_E_ARG;
    if (out->struct_size < GDN_THROUGH(gdn_lever, value)) return GDN_E_ABI;
    const int i = gdn__lever_find(key);
    if (i < 0 || !gen->levers->at[i].value) return GDN_ABSENT;
    const gdn_lever lever = { .struct_size = out->struct_size < sizeof lever ? out->struct_size : (uint32_t)sizeof lever,
                              .source = gen->levers->at[i].source,
                              .value = gen->levers->at[i].value,
                              .where = gen->levers->at[i].where };
    memcpy(out, &lever, lever.struct_size);
    return GDN_OK;
}

/* The device that is asked for, before the plugin opens it. */
static gdn_status find_device(gdn__generation *gen, gdn_text *err) {
    uint32_t n = 0;
    gdn_status st = gdn__backend_for(&gen->plugin, &gen->log, &gen->backend, err);
    if (st != GDN_OK) return st;
    st = gen->backend->device_count(gen->backend->user, &n);
    if (st == GDN_OK && (gen->ordinal < 0 || (uint32_t)gen->ordinal >= n)) {
        gdn__text_set(err, "device %d: target '%s' has %u", (int)gen->ordinal, gen->plugin.id.target, (unsigned)n);
        return GDN_E_ARG;
    }
    gen->device.struct_size = (uint32_t)sizeof gen->device;
    if (st == GDN_OK) st = gen->backend->device(gen->backend->user, gen->ordinal, &gen->device);
    if (st != GDN_OK) gdn__text_set(err, "backend '%s': %s", gen->backend->name, gdn_status_text(st));
    return st;
}

static gdn_status start(gdn__generation *gen, gdn_text *err) {
    gdn_status st = gen->dry ? GDN_OK : find_device(gen, err);
    if (st != GDN_OK) return st;
    gen->host = (gdn_host) { .struct_size = (uint32_t)sizeof gen->host,
                             .abi_minor = GDN_ABI_MINOR,
                             .user = gen,
                             .log = lent_log,
                             .lever = lent_lever,
                             .once = gdn__once,
                             .backend = gen->backend };
    if (gen->dry) return GDN_OK;
    gdn__text_set(err, "%s", "");
    gen->plugin.begun = true;
    st = gen->plugin.ops.init(&gen->host, gen->ordinal, &gen->ctx, err);
    if (st == GDN_OK && !gen->ctx) {
        gdn__text_set(err, "target '%s': init made no context", gen->plugin.id.target);
        st = GDN_E_INTERNAL;
    } else if (st != GDN_OK) {
        if (gen->ctx) gdn__log_line(&gen->log, GDN_LOG_WARN, "loader", "%s: init failed and yet set a context", gen->plugin.id.target);
        gen->ctx = NULL; /* not ours to end */
        if (err && !err->len) gdn__text_set(err, "target '%s': init failed: %s", gen->plugin.id.target, gdn_status_text(st));
    }
    return st < 0 || st == GDN_OK ? st : GDN_E_INTERNAL; /* init has nothing to decline */
}

gdn_status gdn__generation_make(gdn__plugin *plugin, gdn_lever_set *levers, const gdn__log *log, const gdn_options *opt, bool keep,
                                uint32_t number, gdn__generation **out, gdn_text *err) {
    gdn__generation *gen = gdn__alloc(sizeof *gen);
    *out = NULL;
    if (!gen) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        gdn__plugin_retire(plugin, keep);
        gdn_levers_free(levers);
        return GDN_E_NOMEM;
    }
    atomic_init(&gen->refs, 1);
    gen->number = number;
    gen->plugin = *plugin;
    gen->levers = levers;
    gen->log = *log;
    gen->ordinal = opt->ordinal;
    gen->dry = opt->flags & GDN_OPEN_DRY;
    gen->keep_loaded = keep;
    *plugin = (gdn__plugin) { 0 };
    const gdn_status st = start(gen, err);
    if (st == GDN_OK) {
        *out = gen;
    } else {
        gdn__generation_unref(gen);
    }
    return st;
}

void gdn__generation_ref(gdn__generation *gen) {
    (void)atomic_fetch_add_explicit(&gen->refs, 1, memory_order_relaxed);
}

void gdn__generation_unref(gdn__generation *gen) {
    /* Release what this thread did, acquire what the others did, before the context ends. */
    if (atomic_fetch_sub_explicit(&gen->refs, 1, memory_order_acq_rel) != 1) return;
    if (gen->ctx) gen->plugin.ops.fini(gen->ctx);
    gdn__plugin_retire(&gen->plugin, gen->keep_loaded);
    gdn__backend_drop(gen->backend); /* after the plugin that it was lent to */
    gdn_levers_free(gen->levers);
    free(gen);
}
