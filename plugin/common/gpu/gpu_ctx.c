/* gpu_ctx.c - the context of a GPU target: device, levers, modules, counters; the table's identity is in plugin/<target>/. */
#include "gpu_plugin.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gdn_status check_host(const gdn_host *host, gdn_text *err) {
    const char *name = gdn__gpu_target.name;
    if (!host) return gdn__fail(err, GDN_E_ARG, "%s: host is NULL", name);
    if (!GDN_HAS(host, gdn_host, log) || !GDN_HAS(host, gdn_host, lever) || !GDN_HAS(host, gdn_host, once) ||
        !GDN_HAS(host, gdn_host, backend)) /* NOLINT(bugprone-sizeof-expression): the pointer's own size */
        return gdn__fail(err, GDN_E_ABI, "%s: the host table of %u bytes lacks log, lever, once or backend", name, host->struct_size);
    const gdn_backend *b = host->backend;
    if (!GDN_HAS(b, gdn_backend, modules_load) || !GDN_HAS(b, gdn_backend, module_unload) || !GDN_HAS(b, gdn_backend, function) ||
        !GDN_HAS(b, gdn_backend, set_smem) || !GDN_HAS(b, gdn_backend, capturing) || !GDN_HAS(b, gdn_backend, launch) ||
        !GDN_HAS(b, gdn_backend, device))
        return gdn__fail(err, GDN_ABSENT, "%s: the host's backend '%s' has no kernels: a GPU is needed", name, b->name ? b->name : "?");
    return GDN_OK;
}

/* gb10's modules are portable and run on other devices too; hopper is for its own. */
static gdn_status open_device(gdn_ctx *ctx, gdn_text *err) {
    const gdn_backend *b = ctx->host.backend;
    ctx->device.struct_size = (uint32_t)sizeof ctx->device;
    const gdn_status st = b->device(b->user, ctx->ordinal, &ctx->device);
    if (st)
        return gdn__fail(err, st, "%s: device %d cannot be opened: the backend '%s' does not have it", gdn__gpu_target.name, ctx->ordinal,
                         b->name);
    gpu_arch_of(ctx->device.cc_major, ctx->device.cc_minor, ctx->arch);
    const bool own = ctx->device.cc_major == gdn__gpu_target.cc_major && ctx->device.cc_minor == gdn__gpu_target.cc_minor;
    const bool portable = gdn__gpu_target.modules == GPU_GB10_MODULES && ctx->device.cc_major >= 8;
    if (!own && !portable)
        return gdn__fail(err, GDN_E_ARCH, "%s: device %d (%s) has compute capability %u.%u, this target is for %u.%u", gdn__gpu_target.name,
                         ctx->ordinal, ctx->device.name ? ctx->device.name : "?", ctx->device.cc_major, ctx->device.cc_minor,
                         gdn__gpu_target.cc_major, gdn__gpu_target.cc_minor);
    return GDN_OK;
}

/* Every entry waits for the kernel in front of it (gdn_begin), so every launch may be early. */
static void choose_start(gdn_ctx *ctx) {
    const gdn_backend *b = ctx->host.backend;
    ctx->start = ctx->levers.launch_early && GDN_HAS(b, gdn_backend, launch_early) ? b->launch_early : b->launch;
}

gdn_status gpu_init(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err) {
    if (!out) return gdn__fail(err, GDN_E_ARG, "%s: out is NULL", gdn__gpu_target.name);
    *out = NULL;
    gdn_status st = check_host(host, err);
    if (st) return st;
    gdn_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return gdn__fail(err, GDN_E_NOMEM, "%s: out of memory for the context", gdn__gpu_target.name);
    memcpy(&ctx->host, host, host->struct_size < sizeof ctx->host ? host->struct_size : sizeof ctx->host);
    ctx->ordinal = ordinal;
    ctx->pid = getpid();
    if (pthread_mutex_init(&ctx->loading, NULL)) {
        free(ctx);
        return gdn__fail(err, GDN_E_INTERNAL, "%s: a mutex could not be made", gdn__gpu_target.name);
    }
    gdn__levers_read(&ctx->host, &ctx->levers);
    choose_start(ctx);
    if (!(st = open_device(ctx, err))) st = gpu_modules_open(ctx, err);
    if (st) {
        gpu_modules_close(ctx);
        (void)pthread_mutex_destroy(&ctx->loading);
        free(ctx);
        return st;
    }
    *out = ctx;
    return GDN_OK;
}

void gpu_fini(gdn_ctx *ctx) {
    if (!ctx) return;
    if (atomic_load(&ctx->plans)) ctx->host.log(ctx->host.user, GDN_LOG_HOST_BUG, "plan", "the context is closed while plans of it exist");
    if (ctx->pid == getpid()) gpu_modules_close(ctx); /* a forked child owns nothing of the driver's */
    (void)pthread_mutex_destroy(&ctx->loading);
    free(ctx);
}

gdn_status gpu_counters(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n) {
    if (!ctx || !n || (cap && !out)) return GDN_E_ARG;
    uint32_t used = 0;
    for (uint32_t e = 0; e < GPU_ENTRIES; e++) {
        if (e == GPU_E_CHECK || !(gdn__gpu_target.modules >> gpu_entry_module(e) & 1)) continue; /* no operation's */
        if (used < cap) out[used] = (gdn_counter) { gpu_entry_name(e), atomic_load(&ctx->launched[e]), gpu_entry_op(e), 0 };
        used++;
    }
    for (uint32_t g = 0; g < GDN__GUARDS; g++, used++)
        if (used < cap) {
            uint32_t op;
            const char *text = gdn__guard_text(g, &op);
            out[used] = (gdn_counter) { text, atomic_load(&ctx->refused[g]), op, 1 };
        }
    *n = used;
    return GDN_OK;
}
