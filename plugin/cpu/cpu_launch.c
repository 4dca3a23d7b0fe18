/* cpu_launch.c - launch: check everything, then run. An error means that nothing was written. */
#include "cpu_plugin.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Is there a token at all? Offsets can be read here; one that is wrong is reported later, by name. */
static bool has_rows(const gdn__shape *s, const gdn__call *c) {
    const uint32_t op = s->base.op;
    const bool rule = op == GDN_OP_PREFILL || op == GDN_OP_VERIFY, conv = op == GDN_OP_CONV1D || op == GDN_OP_CONV_FUSED;
    if (!rule && !conv) return true;
    const uint32_t at = op == GDN_OP_PREFILL  ? (uint32_t)GDN_PREFILL_P_CU_SEQLENS
                        : op == GDN_OP_VERIFY ? (uint32_t)GDN_VERIFY_P_CU_ROWS
                        : op == GDN_OP_CONV1D ? (uint32_t)GDN_CONV1D_P_CU_SEQLENS
                                              : (uint32_t)GDN_CONV_FUSED_P_CU_SEQLENS;
    const uint32_t batch = op == GDN_OP_VERIFY ? c->u32[GDN_VERIFY_U_BATCH] : c->u32[0],
                   len = op == GDN_OP_VERIFY ? c->u32[GDN_VERIFY_U_ROWS] : c->u32[1];
    const uint32_t offsets = rule ? s->rule.offsets : s->conv.offsets;
    const void *cu = (const void *)(uintptr_t)c->ptr[at];
    if (!offsets) return len > 0;
    if (!cu || c->ptr[at] % (offsets == GDN_OFFSETS_I64 ? 8 : 4)) return true;
    return offsets == GDN_OFFSETS_I64 ? ((const int64_t *)cu)[0] != ((const int64_t *)cu)[batch]
                                      : ((const int32_t *)cu)[0] != ((const int32_t *)cu)[batch];
}

static gdn_status run_rule(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    gdn_cpu_rule r;
    gdn_status st = cpu_bind_rule(p, c, &r, err);
    if (!st) st = cpu_check_rule(p, &r, err);
    if (st) return st;
    switch (p->op->op) {
    case GDN_OP_PREFILL: gdn_cpu_prefill(&r); break;
    case GDN_OP_DECODE: gdn_cpu_decode(&r); break;
    case GDN_OP_VERIFY: gdn_cpu_verify(&r); break;
    case GDN_OP_VERIFY_WOA: gdn_cpu_verify_woa(&r); break;
    default: gdn_cpu_fold(&r); break;
    }
    return GDN_OK;
}

/* The fold of the round before, then this one's verify. */
static gdn_status run_round(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    gdn_cpu_rule verify, fold;
    gdn_status st = cpu_bind_round(p, c, &verify, &fold, err);
    if (!st) st = cpu_check_rule(p, &verify, err);
    if (!st) st = cpu_check_fold(&fold, GDN_OP_ROUND, err);
    if (st) return st;
    gdn_cpu_round(&verify, &fold);
    return GDN_OK;
}

static gdn_status run_conv(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    gdn_cpu_conv v;
    gdn_status st = cpu_bind_conv(p, c, &v, err);
    if (!st) st = cpu_check_conv(p, &v, err);
    if (st) return st;
    if (p->op->op == GDN_OP_CONV1D)
        gdn_cpu_conv1d(&v);
    else
        gdn_cpu_conv_fused(&v);
    return GDN_OK;
}

static void log_ba(const gdn_ctx *ctx, const cpu_decision *d, uint32_t m) {
    const uint32_t slot = d->guard - GDN__G_BA;
    if (d->guard >= GDN__G_WOA || !ctx->host.once(ctx->host.user, GDN_ONCE_BA_GATES + slot)) return;
    char line[256];
    snprintf(line, sizeof line, "SSM ba_gates: the Hopper twin is NOT running at M=%u: %s (ATLAS_SSM_BA_GATES_HOPPER)", m, d->route.guard);
    ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", line);
}

static gdn_status launch(const gdn_plan *p, const gdn_launch_args *args, gdn_text *err) {
    gdn_ctx *ctx = p->ctx;
    gdn__call c;
    cpu_decision d;
    gdn_status st;
    if (ctx->pid != getpid())
        return gdn__fail(err, GDN_E_FORKED, "%s: the plan belongs to process %ld", gdn__op_name(p->op->op), (long)ctx->pid);
    if ((st = gdn__call_read(p->op, args, &c, err))) return st;
    if ((st = gdn__call_counts(&p->shape, &c, err))) return st;
    if (gdn__call_is_empty(&p->shape, &c)) return GDN_OK;
    cpu_decide(&ctx->levers, ctx->isa, &p->shape, c.u32, &d);
    if (d.status) {
        atomic_fetch_add(&ctx->refused[d.guard], 1);
        return gdn__fail_refused(err, p->op->op, &d.route);
    }
    if ((st = gdn__call_required(&c, has_rows(&p->shape, &c), err))) {
        const bool woa = p->op->op == GDN_OP_VERIFY_WOA;
        if (woa && (!c.ptr[GDN_VERIFY_WOA_P_STATE] || !c.ptr[GDN_VERIFY_WOA_P_STASH] || !c.ptr[GDN_VERIFY_WOA_P_FLAG]))
            return gdn__fail(err, st, GDN_WOA_NULL_TEXT);
        return st;
    }
    if ((st = gdn__call_unused(&p->shape, &c, err)) || (st = gdn__call_by_sequence(&p->shape, &c, err)) ||
        (st = gdn__call_apart(&p->shape, &c, d.route.workspace_bytes, err)))
        return st;
    switch (p->op->op) {
    case GDN_OP_PREFILL:
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD: st = run_rule(p, &c, err); break;
    case GDN_OP_ROUND: st = run_round(p, &c, err); break;
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: st = run_conv(p, &c, err); break;
    case GDN_OP_DECODE_STEP: st = cpu_run_step(p, &c, err); break;
    default: st = cpu_run_layer(p, &c, err); break;
    }
    if (st) return st;
    if (d.guard < GDN__GUARDS) atomic_fetch_add(&ctx->refused[d.guard], 1);
    if (p->op->op == GDN_OP_BA_GATES) log_ba(ctx, &d, c.u32[GDN_BA_GATES_U_M]);
    atomic_fetch_add_explicit(&ctx->launched[p->op->op], 1, memory_order_relaxed);
    return GDN_OK;
}

gdn_status cpu_launch(const gdn_plan *plan, const gdn_launch_args *args) {
    if (!plan) return GDN_E_ARG;
    char line[256] = "";
    gdn_text err = { line, sizeof line, 0 };
    const gdn_status st = launch(plan, args, &err);
    if (st) plan->ctx->host.log(plan->ctx->host.user, st < 0 ? GDN_LOG_ERROR : GDN_LOG_WARN, "launch", line);
    return st;
}
