/* gpu_launch.c - launch: check, decide, pack, one backend call. No allocation, lock, lookup, compile or synchronisation. */
#include "gpu_rule.h"
#include <unistd.h>

/* The launches themselves; entries are counted as they start. */
static gdn_status start(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err) {
    gpu_args packed;
    gdn_status st;
    switch (p->op->op) {
    case GDN_OP_PREFILL: return gpu_launch_prefill(p, c, d, stream, err);
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD: return gpu_launch_step(p, c, d, stream, err);
    case GDN_OP_ROUND: return gpu_launch_round(p, c, d, stream, err);
    default: break;
    }
    if ((st = gdn__call_required(c, true, err)) || (st = gdn__call_unused(&p->shape, c, err)) ||
        (st = gdn__call_by_sequence(&p->shape, c, err)) || (st = gpu_pack(p, c, d->entry, &packed, err)) ||
        (st = gdn__call_apart(&p->shape, c, d->route.workspace_bytes, err)))
        return st;
    return gpu_start(p, d->entry, false, &d->dims, stream, &packed, err);
}

static gdn_status launch(const gdn_plan *p, const gdn_launch_args *args, gdn_text *err) {
    gdn_ctx *ctx = p->ctx;
    const gpu_facts facts = { &ctx->levers, p->present, ctx->device.sm_count, p->lost };
    gdn__call c;
    gpu_decision d;
    gdn_status st;
    if (ctx->pid != getpid())
        return gdn__fail(err, GDN_E_FORKED, "%s: the plan belongs to process %ld", gdn__op_name(p->op->op), (long)ctx->pid);
    if ((st = gdn__call_read(p->op, args, &c, err)) || (st = gdn__call_counts(&p->shape, &c, err))) return st;
    if (gdn__call_is_empty(&p->shape, &c)) return GDN_OK;
    gpu_decide(&facts, &p->shape, c.u32, &d);
    if (d.status) {
        if (d.guard < GDN__GUARDS) atomic_fetch_add(&ctx->refused[d.guard], 1);
        return gdn__fail_refused(err, p->op->op, &d.route);
    }
    if (d.dims.grid[0] == 0) return GDN_OK; /* sequences without tokens and without state */
    if (p->op->op == GDN_OP_PREFILL) gpu_prefill_base(&facts, &p->shape.rule, &c, &d);
    if (p->report && (st = gpu_check_values(p, &c, args->stream, err))) return st;
    if ((st = start(p, &c, &d, args->stream, err))) return st;
    if (d.guard < GDN__GUARDS) atomic_fetch_add_explicit(&ctx->refused[d.guard], 1, memory_order_relaxed);
    gpu_log_launch(p, &d, &c);
    return GDN_OK;
}

gdn_status gpu_launch(const gdn_plan *plan, const gdn_launch_args *args) {
    if (!plan) return GDN_E_ARG;
    char text[256] = "";
    gdn_text err = { text, sizeof text, 0 };
    const gdn_status st = launch(plan, args, &err);
    if (st) plan->ctx->host.log(plan->ctx->host.user, st < 0 ? GDN_LOG_ERROR : GDN_LOG_WARN, "launch", text);
    return st;
}
