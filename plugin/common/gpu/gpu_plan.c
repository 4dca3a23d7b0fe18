/* gpu_plan.c - plan, explain and route: all three answer with gpu_decide. */
#include "gdn_geometry.h"
#include "gpu_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Activations are bf16 on a GPU; f32 ones are the oracle's. */
static gdn_status check_types(const gdn__shape *s, gdn_text *err) {
    if (s->base.act_type == GDN_F32 && gdn__has_activations(s->base.op))
        return gdn__fail(err, GDN_REFUSED, "%s: refused: activations are f32 (target cpu only)", gdn__op_name(s->base.op));
    if ((s->base.op == GDN_OP_BA_GATES || s->base.op == GDN_OP_BA_GEMV) && s->ba.weight_type != GDN_BF16)
        return gdn__fail(err, GDN_REFUSED, "%s: refused: weights are f32 (target cpu only)", gdn__op_name(s->base.op));
    return GDN_OK;
}

gdn_status gpu_allow_smem(const gdn_ctx *ctx, uint32_t entry, void *function, uint32_t bytes, gdn_text *err) {
    const gdn_backend *b = ctx->host.backend;
    if (bytes <= 48 * 1024 || !function) return GDN_OK; /* an entry that a plan asks for, or has lost */
    if (ctx->device.smem_optin && bytes > ctx->device.smem_optin)
        return gdn__fail(err, GDN_E_ARG, "%s needs %u bytes of shared memory a block, the device has %u", gpu_entry_name(entry), bytes,
                         ctx->device.smem_optin);
    const gdn_status st = b->set_smem(b->user, function, bytes);
    return st ? gdn__fail(err, st, "%s: %u bytes of shared memory a block were refused (the device says %u)", gpu_entry_name(entry), bytes,
                          ctx->device.smem_optin)
              : st;
}

/* The tensor-core route exists per number of columns. One that does not load is absent from this plan, which then has the others. */
gdn_status gpu_bind_ba(gdn_plan *p, gdn_text *err) {
    gdn_ctx *ctx = p->ctx;
    const gdn_ba_shape *s = &p->shape.ba;
    char why[256] = "";
    gdn_text text = { why, sizeof why, 0 };
    if (p->op->op != GDN_OP_BA_GATES || !ctx->levers.ba_tc || !gpu_has(p->present, GPU_E_BA_TC) || s->N > 128 || s->K % 64) return GDN_OK;
    const uint32_t blocks = (s->N + 31) / 32;
    gdn_status st = gpu_form_entry(p, GPU_E_BA_TC, blocks - 1, gpu_entry_name(GPU_E_BA_TC), &p->entry[GPU_E_BA_TC], err);
    if (st) return st;
    st = gpu_allow_smem(ctx, GPU_E_BA_TC, p->entry[GPU_E_BA_TC], GDN_BA_TC_SMEM(blocks * 32), &text);
    if (st == GDN_E_CAPTURE || st == GDN_E_FORKED) return gdn__fail(err, st, "%s", why);
    if (st) {
        gpu_lose(p, GPU_E_BA_TC, why, NULL);
        ctx->host.log(ctx->host.user, GDN_LOG_WARN, "modules", why);
    }
    return GDN_OK;
}

gdn_status gpu_bind_rule_op(gdn_plan *p, gdn_text *err) {
    switch (p->op->op) {
    case GDN_OP_PREFILL: return gpu_bind_prefill(p, err);
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD: return gpu_bind_step(p, err);
    case GDN_OP_ROUND: return gpu_bind_round(p, err);
    case GDN_OP_FLAG_CLEAR: return gpu_bind_flag_clear(p, err);
    default: return GDN_OK;
    }
}
static gdn_status bind(gdn_plan *p, gdn_text *err) {
    if (p->op->op == GDN_OP_W4A4_GEMV) return gpu_bind_w4a4(p, err);
    const gdn_status st = gpu_builds_for(p, err);
    if (st) return st;
    return p->op->op == GDN_OP_BA_GATES ? gpu_bind_ba(p, err) : gpu_bind_rule_op(p, err);
}

/* Nothing here for this operation: a module that failed, or one for the target's own device only. why: of the plan's own builds, or "". */
static gdn_status absent(const gdn_ctx *ctx, uint32_t op, const char *why, gdn_text *err) {
    const char *name = gdn__op_name(op), *target = gdn__gpu_target.name;
    if (why[0]) return gdn__fail(err, GDN_ABSENT, "%s: target %s does not have it here: %s", name, target, why);
    if (!ctx->reason[0] && strcmp(ctx->arch, gdn__gpu_target.arch) != 0)
        return gdn__fail(err, GDN_ABSENT, "%s: target %s has it for %s only, this device is %s", name, target, gdn__gpu_target.arch,
                         ctx->arch);
    return gdn__fail(err, GDN_ABSENT, "%s: target %s does not carry it%s%s", name, target, ctx->reason[0] ? ": " : "", ctx->reason);
}

gdn_status gpu_plan(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err) {
    if (!out) return gdn__fail(err, GDN_E_ARG, "plan: out is NULL");
    *out = NULL;
    if (!ctx) return gdn__fail(err, GDN_E_ARG, "plan: the context is NULL");
    if (ctx->pid != getpid()) return gdn__fail(err, GDN_E_FORKED, "plan: the context belongs to process %ld", (long)ctx->pid);
    uint32_t capturing = 0;
    gdn_status st = stream ? ctx->host.backend->capturing(ctx->host.backend->user, ctx->ordinal, stream, &capturing) : GDN_OK;
    if (st) return gdn__fail(err, st, "plan: the stream cannot be asked whether it is capturing");
    if (capturing) return gdn__fail(err, GDN_E_CAPTURE, "plan: the stream is capturing: create the plan before capture");
    gpu_making making = { .asking = false };
    gdn_plan *p = calloc(1, sizeof *p);
    if (!p) return gdn__fail(err, GDN_E_NOMEM, "plan: out of memory");
    if ((st = gdn__shape_read(shape, &p->shape, err)) || (st = check_types(&p->shape, err))) goto fail;
    p->ctx = ctx;
    p->op = gdn__op_find(p->shape.base.op);
    memcpy(p->entry, ctx->entry, sizeof p->entry);
    p->present = gpu_present(ctx);
    gpu_lost_in_advance(ctx, p->lost);
    p->making = &making;
    gpu_facts facts = { &ctx->levers, p->present, ctx->device.sm_count, p->lost };
    gpu_decision d;
    gpu_decide(&facts, &p->shape, NULL, &d);
    if (d.status != GDN_REFUSED) { /* with fewer entries it would be refused as well: nothing is compiled for it */
        if ((st = bind(p, err))) goto fail;
        facts.present = p->present;
        gpu_decide(&facts, &p->shape, NULL, &d);
    }
    p->making = NULL;
    if (d.guard < GDN__GUARDS) atomic_fetch_add(&ctx->refused[d.guard], 1);
    if (d.status == GDN_REFUSED && making.why[0])
        st = gdn__fail(err, d.status, "%s: refused: its kernel did not load: %s", gdn__op_name(p->op->op), making.why);
    else if (d.status == GDN_REFUSED)
        st = gdn__fail_refused(err, p->op->op, &d.route);
    if (d.status == GDN_ABSENT) st = absent(ctx, p->op->op, making.why, err);
    if (st || (st = gpu_bind_checked(p, err))) goto fail;
    gpu_log_plan(p, &d);
    atomic_fetch_add(&ctx->plans, 1);
    *out = p;
    return GDN_OK;
fail:
    if (p->ctx) gpu_drop_checked(p);
    free(p);
    return st;
}

void gpu_destroy(gdn_plan *plan) {
    if (!plan) return;
    gpu_drop_checked(plan);
    atomic_fetch_sub(&plan->ctx->plans, 1);
    free(plan);
}

static gdn_status answer(const gpu_facts *f, const gdn__shape *s, uint32_t n_u32, const uint32_t *u32, gdn_route *out, gdn_text *err) {
    const gdn_status st = gdn__asked_counts(s, n_u32, u32, err);
    if (st) return st;
    if (!out || out->struct_size < GDN_THROUGH(gdn_route, guard))
        return gdn__fail(err, GDN_E_ARG, "%s: out is NULL or too small", gdn__op_name(s->base.op));
    gpu_decision d;
    gpu_decide(f, s, n_u32 ? u32 : NULL, &d);
    const uint32_t fill = out->struct_size < sizeof d.route ? out->struct_size : (uint32_t)sizeof d.route;
    memcpy(out, &d.route, fill);
    out->struct_size = fill;
    return d.status;
}

gdn_status gpu_explain(const gdn_plan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out) {
    if (!plan) return GDN_E_ARG;
    const gpu_facts facts = { &plan->ctx->levers, plan->present, plan->ctx->device.sm_count, plan->lost };
    return answer(&facts, &plan->shape, n_u32, u32, out, NULL);
}

/* What a plan would have here, without one: builds that nobody has asked for count as there, those that failed do not. */
gdn_status gpu_route_on(const gdn_ctx *ctx, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                        gdn_text *err) {
    gdn__shape s;
    if (!ctx) return gdn__fail(err, GDN_E_ARG, "route: the context is NULL");
    gdn_status st = gdn__shape_read(shape, &s, err);
    if (st || (st = check_types(&s, err))) return st;
    gpu_making asked;
    const char *lost[GPU_ENTRIES];
    const gpu_set present = gpu_present_for(ctx, &s, &asked, lost);
    const gpu_facts facts = { &ctx->levers, present, sm_count ? sm_count : ctx->device.sm_count, lost };
    st = answer(&facts, &s, n_u32, u32, out, err);
    return st == GDN_ABSENT ? absent(ctx, s.base.op, asked.why, err) : st;
}

/* Without a device: as on the target's own one, with every module of it. */
gdn_status gpu_route(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                     gdn_text *err) {
    gdn__shape s;
    gdn__levers levers;
    gdn_status st = gdn__shape_read(shape, &s, err);
    if (st || (st = check_types(&s, err))) return st;
    gdn__levers_read(host, &levers);
    gpu_facts facts = { &levers, { { 0 } }, sm_count, NULL };
    for (uint32_t e = 0; e < GPU_ENTRIES; e++)
        if (gpu_module_for(gdn__gpu_target.arch, gpu_entry_module(e))) gpu_put(&facts.present, e);
    return answer(&facts, &s, n_u32, u32, out, err);
}
