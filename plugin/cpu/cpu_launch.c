/* cpu_launch.c - launch: check everything, then run. An error means that nothing was written. */
#include "cpu_plugin.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A launch without work is done before any pointer is looked at. */
bool cpu_is_empty(const gdn__shape *s, const gdn__call *c) {
    switch (s->base.op) {
    case GDN_OP_PREFILL: return c->u32[GDN_PREFILL_U_BATCH] == 0;
    case GDN_OP_DECODE: return c->u32[GDN_DECODE_U_BATCH] == 0;
    case GDN_OP_VERIFY: return c->u32[GDN_VERIFY_U_BATCH] == 0;
    case GDN_OP_VERIFY_WOA: return c->u32[GDN_VERIFY_WOA_U_BATCH] == 0;
    case GDN_OP_FOLD: return c->u32[GDN_FOLD_U_BATCH] == 0;
    case GDN_OP_CONV1D: return c->u32[GDN_CONV1D_U_BATCH] == 0;
    case GDN_OP_CONV_FUSED: return c->u32[GDN_CONV_FUSED_U_BATCH] == 0;
    case GDN_OP_BA_GEMV:
    case GDN_OP_FLAG_CLEAR: return false;
    case GDN_OP_W4A4_GEMV: return c->u32[GDN_W4A4_GEMV_U_M] == 0;
    default: return c->u32[0] == 0; /* rows, M, count: the only scalar */
    }
}

static gdn_status check_uniform(const gdn__call *c, uint32_t batch, uint32_t seq_len, uint32_t max_tokens, bool packed, gdn_text *err) {
    if (packed || (uint64_t)batch * seq_len <= max_tokens) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: %u sequences of %u tokens are above the plan's max_tokens, %u", gdn__op_name(c->op->op), batch,
                     seq_len, max_tokens);
}

gdn_status cpu_check_counts(const gdn__shape *s, const gdn__call *c, gdn_text *err) {
    gdn_status st;
    switch (s->base.op) {
    case GDN_OP_PREFILL:
        if ((st = gdn__call_max(c, GDN_PREFILL_U_BATCH, s->rule.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_PREFILL_U_SEQ_LEN, s->rule.max_tokens, "max_tokens", err)))
            return st;
        return check_uniform(c, c->u32[GDN_PREFILL_U_BATCH], c->u32[GDN_PREFILL_U_SEQ_LEN], s->rule.max_tokens, s->rule.offsets, err);
    case GDN_OP_DECODE: return gdn__call_max(c, GDN_DECODE_U_BATCH, s->rule.max_batch, "max_batch", err);
    case GDN_OP_VERIFY:
        if ((st = gdn__call_max(c, GDN_VERIFY_U_BATCH, s->rule.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_VERIFY_U_ROWS, s->rule.max_rows, "max_rows", err)))
            return st;
        if (s->rule.state_addr == GDN_STATE_CONTIGUOUS && c->u32[GDN_VERIFY_U_BATCH] > 1)
            return gdn__fail(err, GDN_E_ARG, "verify: the contiguous state form is legal only at batch 1, not %u",
                             c->u32[GDN_VERIFY_U_BATCH]);
        return GDN_OK;
    case GDN_OP_VERIFY_WOA: return gdn__call_max(c, GDN_VERIFY_WOA_U_BATCH, s->rule.max_batch, "max_batch", err);
    case GDN_OP_FOLD:
        if ((st = gdn__call_max(c, GDN_FOLD_U_BATCH, s->rule.max_batch, "max_batch", err))) return st;
        return gdn__call_max(c, GDN_FOLD_U_K_ROWS, s->rule.max_rows, "max_rows", err);
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED:
        if ((st = gdn__call_max(c, GDN_CONV1D_U_BATCH, s->conv.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_CONV1D_U_SEQ_LEN, s->conv.max_tokens, "max_tokens", err)))
            return st;
        return check_uniform(c, c->u32[GDN_CONV1D_U_BATCH], c->u32[GDN_CONV1D_U_SEQ_LEN], s->conv.max_tokens, s->conv.offsets, err);
    case GDN_OP_GATES: return gdn__call_max(c, GDN_GATES_U_ROWS, s->gates.max_rows, "max_rows", err);
    case GDN_OP_BA_GATES: return gdn__call_max(c, GDN_BA_GATES_U_M, s->ba.max_m, "max_m", err);
    case GDN_OP_NORM: return gdn__call_max(c, GDN_NORM_U_ROWS, s->norm.max_rows, "max_rows", err);
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: return gdn__call_max(c, GDN_STATE_COPY_U_COUNT, s->state.max_count, "max_count", err);
    case GDN_OP_W4A4_QUANT: return gdn__call_max(c, GDN_W4A4_QUANT_U_M, s->w4a4.max_m, "max_m", err);
    case GDN_OP_W4A4_GEMV: return gdn__call_max(c, GDN_W4A4_GEMV_U_M, s->w4a4.max_m, "max_m", err);
    default: return GDN_OK;
    }
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
    const uint32_t slot = d->guard - CPU_GUARD_BA;
    if (d->guard >= CPU_GUARD_WOA || !ctx->host.once(ctx->host.user, GDN_ONCE_BA_GATES + slot)) return;
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
    if ((st = cpu_check_counts(&p->shape, &c, err))) return st;
    if (cpu_is_empty(&p->shape, &c)) return GDN_OK;
    cpu_decide(&ctx->levers, ctx->isa, &p->shape, c.u32, &d);
    if (d.status) {
        atomic_fetch_add(&ctx->refused[d.guard], 1);
        return gdn__fail(err, d.status, "%s: refused: %s", gdn__op_name(p->op->op), d.route.guard);
    }
    if ((st = gdn__call_required(&c, err))) {
        const bool woa = p->op->op == GDN_OP_VERIFY_WOA;
        if (woa && (!c.ptr[GDN_VERIFY_WOA_P_STATE] || !c.ptr[GDN_VERIFY_WOA_P_STASH] || !c.ptr[GDN_VERIFY_WOA_P_FLAG]))
            return gdn__fail(err, st, GDN_WOA_NULL_TEXT);
        return st;
    }
    switch (p->op->op) {
    case GDN_OP_PREFILL:
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD: st = run_rule(p, &c, err); break;
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: st = run_conv(p, &c, err); break;
    default: st = cpu_run_layer(p, &c, err); break;
    }
    if (st) return st;
    if (d.guard < CPU_GUARDS) atomic_fetch_add(&ctx->refused[d.guard], 1);
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
