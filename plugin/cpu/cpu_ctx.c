/* cpu_ctx.c - the context of the cpu target: host table, levers, instruction set, counters. */
#include "cpu_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gdn_status cpu_init(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err) {
    if (!out) return gdn__fail(err, GDN_E_ARG, "cpu: out is NULL");
    *out = NULL;
    if (!host) return gdn__fail(err, GDN_E_ARG, "cpu: host is NULL");
    if (!GDN_HAS(host, gdn_host, log) || !GDN_HAS(host, gdn_host, lever) || !GDN_HAS(host, gdn_host, once))
        return gdn__fail(err, GDN_E_ABI, "cpu: the host table of %u bytes lacks log, lever or once", host->struct_size);
    if (ordinal != 0) return gdn__fail(err, GDN_E_ARG, "cpu: there is no device %d, only 0", ordinal);
    gdn_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return gdn__fail(err, GDN_E_NOMEM, "cpu: out of memory for the context");
    memcpy(&ctx->host, host, host->struct_size < sizeof ctx->host ? host->struct_size : sizeof ctx->host);
    gdn__levers_read(&ctx->host, &ctx->levers);
    ctx->isa = gdn_cpu_isa_pick(ctx->levers.cpu_isa);
    ctx->pid = getpid();
    char line[96];
    snprintf(line, sizeof line, "cpu: instruction set %s", gdn_cpu_isa_name(ctx->isa));
    ctx->host.log(ctx->host.user, GDN_LOG_DEBUG, "cpu", line);
    *out = ctx;
    return GDN_OK;
}

void cpu_fini(gdn_ctx *ctx) {
    if (!ctx) return;
    if (atomic_load(&ctx->plans))
        ctx->host.log(ctx->host.user, GDN_LOG_HOST_BUG, "cpu", "cpu: the context is closed while plans of it exist");
    free(ctx);
}

gdn_status cpu_counters(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n) {
    if (!ctx || !n || (cap && !out)) return GDN_E_ARG;
    uint32_t used = 0;
    for (uint32_t op = 1; op < GDN_OP_COUNT_; op++, used++)
        if (used < cap) out[used] = (gdn_counter) { cpu_entry(op, ctx->isa), atomic_load(&ctx->launched[op]), op, 0 };
    for (uint32_t g = 0; g < GDN__GUARDS; g++, used++)
        if (used < cap) {
            uint32_t op;
            const char *text = gdn__guard_text(g, &op);
            out[used] = (gdn_counter) { text, atomic_load(&ctx->refused[g]), op, 1 };
        }
    *n = used;
    return GDN_OK;
}
