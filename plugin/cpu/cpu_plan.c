/* cpu_plan.c - plan, explain and route: all three answer with cpu_decide. */
#include "cpu_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* X(OP, name): operations whose code exists once per instruction set, and those with one form. */
#define CPU_BY_ISA(X)                       \
    X(CONV1D, "causal_conv1d")              \
    X(CONV_FUSED, "conv_silu_split_l2norm") \
    X(BA_GATES, "ba_gates")                 \
    X(BA_GEMV, "ba_gemv")                   \
    X(PREFILL, "prefill")                   \
    X(DECODE, "decode")                     \
    X(VERIFY, "verify")                     \
    X(VERIFY_WOA, "verify_woa")             \
    X(FOLD, "fold")                         \
    X(ROUND, "round")                       \
    X(NORM, "gated_rmsnorm")                \
    X(DECODE_STEP, "decode_step")
#define CPU_PLAIN(X)                 \
    X(GATES, "gates")                \
    X(FLAG_CLEAR, "flag_clear")      \
    X(STATE_COPY, "state_copy")      \
    X(STATE_ZERO, "state_zero")      \
    X(W4A4_QUANT, "w4a4_quant_rows") \
    X(W4A4_GEMV, "w4a4_gemv_mx")

const char *cpu_entry(uint32_t op, uint32_t isa) {
#define BY_ISA_(OP, name) [GDN_OP_##OP] = { "gdn_cpu_" name "_base", "gdn_cpu_" name "_avx2", "gdn_cpu_" name "_avx512" },
#define PLAIN_(OP, name)  [GDN_OP_##OP] = { "gdn_cpu_" name, "gdn_cpu_" name, "gdn_cpu_" name },
    static const char *const names[GDN_OP_COUNT_][GDN_CPU_ISAS] = { CPU_BY_ISA(BY_ISA_) CPU_PLAIN(PLAIN_) };
    return op < GDN_OP_COUNT_ && isa < GDN_CPU_ISAS ? names[op][isa] : NULL;
}

/* The entries on bf16 states. */
static const char *entry_bf16(uint32_t op, uint32_t isa) {
    static const char *const decode[GDN_CPU_ISAS] = { "gdn_cpu_decode_bf16_state_base", "gdn_cpu_decode_bf16_state_avx2",
                                                      "gdn_cpu_decode_bf16_state_avx512" };
    static const char *const verify[GDN_CPU_ISAS] = { "gdn_cpu_verify_bf16_state_base", "gdn_cpu_verify_bf16_state_avx2",
                                                      "gdn_cpu_verify_bf16_state_avx512" };
    return op == GDN_OP_DECODE ? decode[isa] : verify[isa];
}

static void refused(cpu_decision *d, const char *lever, const char *text) {
    if (d->route.n_refused < GDN_ROUTE_REFUSALS) d->route.refused[d->route.n_refused++] = (gdn_refusal) { lever, text };
}

/* Nothing runs: the guard is the answer. */
static void refuse(cpu_decision *d, uint32_t guard, const char *text) {
    d->status = GDN_REFUSED;
    d->guard = guard;
    d->route.chosen = 0;
    d->route.entry = NULL;
    d->route.guard = text;
    refused(d, d->route.lever, text);
}

/* The operation runs here, but not by the kernel that a lever asked for. */
static void fall_back(cpu_decision *d, uint32_t guard, const char *text, const char *lever, const char *where, uint32_t source) {
    d->guard = guard;
    d->route.chosen = 0;
    d->route.guard = text;
    d->route.lever = lever;
    d->route.lever_where = where;
    d->route.lever_source = source;
    refused(d, lever, text);
}

static void decide_rule(const gdn__levers *lv, uint32_t isa, const gdn_rule_shape *s, const uint32_t *u32, cpu_decision *d) {
    const uint32_t op = s->base.op, row_index = op == GDN_OP_FOLD ? (uint32_t)GDN_FOLD_U_K_ROWS : (uint32_t)GDN_VERIFY_U_ROWS;
    const bool has_rows = op == GDN_OP_VERIFY || gdn__defers(op) || op == GDN_OP_FOLD;
    const uint32_t rows = !has_rows ? 0 : u32 ? u32[row_index] : s->max_rows;
    if (gdn__defers(op)) {
        const uint32_t batch = u32 ? u32[GDN_VERIFY_WOA_U_BATCH] : s->max_batch, g = gdn__woa_pick(lv->woa, true, s, rows, batch);
        d->route.lever = "gdn_woa";
        d->route.lever_where = lv->woa_where;
        d->route.lever_source = lv->woa_source;
        if (g < GDN_WOA_TAKEN) refuse(d, GDN__G_WOA + g, gdn__woa_guard_text(g));
        return;
    }
    const uint32_t g = gdn__rule_pick(s, rows);
    if (g < GDN__RULE_TAKEN) {
        refuse(d, GDN__G_RULE + g, gdn__rule_guard_text(g));
        return;
    }
    if (gdn__bf16_state(s)) d->route.entry = entry_bf16(op, isa);
    const bool tc = lv->prefill_tc && !lv->no_prefill_tc;
    if (op == GDN_OP_PREFILL) d->route.split_tokens = GDN_CHUNK;
    if (op == GDN_OP_PREFILL && lv->prefill_fast) {
        const uint32_t f = gdn__fast_pick(true, false, s);
        fall_back(d, GDN__G_FAST + f, gdn__fast_guard_text(f), "gdn_prefill_fast", lv->fast_where, lv->fast_source);
    }
    if (op == GDN_OP_PREFILL && tc) {
        const uint32_t t = gdn__tc_pick(tc, false, s->k_dim, s->v_dim, GDN_CHUNK, s->qk_stride);
        fall_back(d, GDN__G_TC + t, gdn__tc_guard_text(t), "gdn_prefill_tc", lv->tc_where, lv->tc_source);
    }
}

void cpu_decide(const gdn__levers *lv, uint32_t isa, const gdn__shape *shape, const uint32_t *u32, cpu_decision *d) {
    const uint32_t op = shape->base.op;
    *d = (cpu_decision) { .guard = GDN__GUARDS };
    d->route.struct_size = (uint32_t)sizeof d->route;
    d->route.chosen = 1;
    d->route.entry = cpu_entry(op, isa);
    switch (op) {
    case GDN_OP_PREFILL:
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD:
    case GDN_OP_ROUND: decide_rule(lv, isa, &shape->rule, u32, d); break;
    case GDN_OP_BA_GATES:
        if (lv->ba_hopper) {
            const gdn_ba_shape *s = &shape->ba;
            const uint32_t g = gdn__ba_pick(true, false, u32 ? u32[GDN_BA_GATES_U_M] : s->max_m, s->N, s->K, s->K_stride, 0);
            fall_back(d, GDN__G_BA + g, gdn__ba_guard_text(g), "ssm_ba_gates_hopper", lv->ba_where, lv->ba_source);
        }
        break;
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: {
        const bool gemv = op == GDN_OP_W4A4_GEMV;
        const uint32_t m = !u32 ? shape->w4a4.max_m : gemv ? u32[GDN_W4A4_GEMV_U_M] : u32[GDN_W4A4_QUANT_U_M];
        const uint32_t g = gdn__w4a4_pick(m, gemv ? shape->w4a4.N : 1, shape->w4a4.K);
        if (g < GDN_W4A4_TAKEN) refuse(d, GDN__G_W4A4 + g, gdn__w4a4_guard_text(g));
        break;
    }
    case GDN_OP_DECODE_STEP: {
        const uint32_t g = gdn__dstep_pick(&shape->step, u32 ? u32[GDN_DECODE_STEP_U_BATCH] : shape->step.max_batch);
        if (g < GDN_STEP_TAKEN) refuse(d, GDN__G_STEP + g, gdn__dstep_guard_text(g));
        d->route.workspace_bytes = cpu_step_workspace(&shape->step);
        break;
    }
    default: break;
    }
}

/* Lines that people grep (levers: which spine a prefill takes). */
static void log_plan(const gdn_ctx *ctx, const gdn__shape *shape, const cpu_decision *d) {
    char line[256];
    if (shape->base.op != GDN_OP_PREFILL) return;
    if (d->route.guard) {
        snprintf(line, sizeof line, "GDN state spine: the tensor-core spine is NOT running: %s; %s runs (METRALE_GDN_PREFILL_TC)",
                 d->route.guard, d->route.entry);
        ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", line);
    }
    snprintf(line, sizeof line, "GDN state spine: %s", d->route.entry);
    for (uint32_t i = 0; i < shape->rule.layers; i++) ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", line);
}

gdn_status cpu_plan(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err) {
    (void)stream; /* nothing here can disturb a capture */
    if (!out) return gdn__fail(err, GDN_E_ARG, "plan: out is NULL");
    *out = NULL;
    if (!ctx) return gdn__fail(err, GDN_E_ARG, "plan: the context is NULL");
    if (ctx->pid != getpid()) return gdn__fail(err, GDN_E_FORKED, "plan: the context belongs to process %ld", (long)ctx->pid);
    gdn_plan *p = calloc(1, sizeof *p);
    if (!p) return gdn__fail(err, GDN_E_NOMEM, "plan: out of memory");
    cpu_decision d;
    gdn_status st = gdn__shape_read(shape, &p->shape, err);
    if (st) goto fail;
    cpu_decide(&ctx->levers, ctx->isa, &p->shape, NULL, &d);
    if (d.guard < GDN__GUARDS) atomic_fetch_add(&ctx->refused[d.guard], 1);
    if (d.status) {
        st = gdn__fail_refused(err, p->shape.base.op, &d.route);
        goto fail;
    }
    p->ctx = ctx;
    p->op = gdn__op_find(p->shape.base.op);
    log_plan(ctx, &p->shape, &d);
    atomic_fetch_add(&ctx->plans, 1);
    *out = p;
    return GDN_OK;
fail:
    free(p);
    return st;
}

void cpu_destroy(gdn_plan *plan) {
    if (!plan) return;
    atomic_fetch_sub(&plan->ctx->plans, 1);
    free(plan);
}

/* Fills what the caller's struct has room for. */
static gdn_status give_route(const cpu_decision *d, gdn_route *out) {
    const uint32_t room = out->struct_size, fill = room < sizeof d->route ? room : (uint32_t)sizeof d->route;
    memcpy(out, &d->route, fill);
    out->struct_size = fill;
    return d->status;
}

static gdn_status answer(const gdn__levers *lv, uint32_t isa, const gdn__shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                         gdn_text *err) {
    const gdn_status st = gdn__asked_counts(shape, n_u32, u32, err);
    if (st) return st;
    if (!out || out->struct_size < GDN_THROUGH(gdn_route, guard))
        return gdn__fail(err, GDN_E_ARG, "%s: out is NULL or too small", gdn__op_name(shape->base.op));
    cpu_decision d;
    cpu_decide(lv, isa, shape, n_u32 ? u32 : NULL, &d);
    return give_route(&d, out);
}

gdn_status cpu_explain(const gdn_plan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out) {
    return plan ? answer(&plan->ctx->levers, plan->ctx->isa, &plan->shape, n_u32, u32, out, NULL) : GDN_E_ARG;
}

gdn_status cpu_route(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                     gdn_text *err) {
    (void)sm_count;
    gdn__shape s;
    gdn__levers lv;
    const gdn_status st = gdn__shape_read(shape, &s, err);
    if (st) return st;
    gdn__levers_read(host, &lv);
    return answer(&lv, gdn_cpu_isa_pick(lv.cpu_isa), &s, n_u32, u32, out, err);
}

gdn_status cpu_route_on(const gdn_ctx *ctx, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                        gdn_text *err) {
    (void)sm_count;
    gdn__shape s;
    if (!ctx) return gdn__fail(err, GDN_E_ARG, "route: the context is NULL");
    const gdn_status st = gdn__shape_read(shape, &s, err);
    return st ? st : answer(&ctx->levers, ctx->isa, &s, n_u32, u32, out, err);
}
