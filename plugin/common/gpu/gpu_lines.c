/* gpu_lines.c - lines that people and scripts grep (docs/levers.md): once per process and branch. */
#include "gpu_plugin.h"
#include <stdio.h>

static void line(const gdn_ctx *ctx, const char *text) {
    ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", text);
}
static bool first(const gdn_ctx *ctx, uint32_t slot) {
    return ctx->host.once(ctx->host.user, slot) != 0;
}

/* Slots of `once`: the twin's seven, then the tensor-core route's, then the guards of the tensor-core spine and of the fast prefill. */
enum {
    ONCE_BA_TC = GDN_ONCE_BA_GATES + 16,
    ONCE_PREFILL_TC = ONCE_BA_TC + GDN__BA_TC_TAKEN + 1,
    ONCE_PREFILL_FAST = ONCE_PREFILL_TC + GDN__TC_TAKEN,
    ONCE_PREFILL_WN = ONCE_PREFILL_FAST + GDN__FAST_TAKEN
};
_Static_assert(ONCE_PREFILL_WN + 1 <= 40, "W4A4's begin at 40 (gpu_w4a4.c)");

static void log_twin(const gdn_ctx *ctx, const gpu_decision *d, uint32_t m) {
    char text[512];
    if (d->entry == GPU_E_BA_TWIN) {
        if (!first(ctx, GDN_ONCE_BA_GATES + GDN_BA_TWIN)) return;
        snprintf(text, sizeof text, "SSM ba_gates: %s (ATLAS_SSM_BA_GATES_HOPPER) M=%u block=%u grid=(M,1,1)", gpu_entry_name(d->entry), m,
                 d->dims.block[0]);
    } else {
        if (d->guard >= GDN__G_WOA || d->guard == GDN__G_BA + GDN_BA_NOT_REQUESTED || !first(ctx, GDN_ONCE_BA_GATES + d->guard - GDN__G_BA))
            return;
        snprintf(text, sizeof text, "SSM ba_gates: the Hopper twin is NOT running at M=%u: %s (ATLAS_SSM_BA_GATES_HOPPER)", m,
                 d->twin_text);
    }
    line(ctx, text);
}

static void log_tc(const gdn_ctx *ctx, const gpu_decision *d, uint32_t m) {
    char text[512];
    if (d->tc_guard == GDN__BA_TC_NOT_REQUESTED || !first(ctx, ONCE_BA_TC + d->tc_guard)) return;
    if (d->tc_guard == GDN__BA_TC_TAKEN)
        snprintf(text, sizeof text, "SSM ba_gates: %s (METRALE_SSM_BA_GATES_TC) M=%u block=%u grid=(%u,1,1) smem=%uB",
                 gpu_entry_name(d->entry), m, d->dims.block[0], d->dims.grid[0], d->dims.smem_bytes);
    else
        snprintf(text, sizeof text, "SSM ba_gates: the tensor-core route is NOT running at M=%u: %s (METRALE_SSM_BA_GATES_TC)", m,
                 d->tc_text);
    line(ctx, text);
}

/* "", or "; segments of 2048 tokens side by side". */
static const char *segments_of(const gpu_decision *d, char text[64]) {
    text[0] = 0;
    if (d->prefill.fast_segment) snprintf(text, 64, "; segments of %u tokens side by side", d->prefill.fast_segment * GDN_CHUNK);
    return text;
}

/* What was asked for and is not had because its build failed; guards of the shape are said by launches. */
static void log_lost(const gdn_plan *p, const gpu_decision *d) {
    char text[512];
    for (uint32_t i = 0; i < d->route.n_refused; i++)
        for (uint32_t e = 0; e < GPU_ENTRIES; e++) {
            if (!p->lost[e] || p->lost[e] != d->route.refused[i].guard) continue;
            snprintf(text, sizeof text, "%s: declined: %s; %s is bound", gdn__op_name(p->op->op), p->lost[e], gpu_entry_name(d->entry));
            p->ctx->host.log(p->ctx->host.user, GDN_LOG_WARN, "route", text);
        }
}

static bool scalar_bound(const gdn_plan *p, uint32_t spine) {
    return gpu_has(p->present, spine) && gpu_has(p->present, GPU_E_WU) &&
           gpu_has(p->present, p->ctx->levers.no_mma8 ? GPU_E_FWD_O : GPU_E_FWD_O_MMA8);
}

/* Once a plan and layer. */
void gpu_log_plan(const gdn_plan *p, const gpu_decision *d) {
    char text[512], segments[64];
    log_lost(p, d);
    if (p->op->op != GDN_OP_PREFILL) return;
    const bool scalar = scalar_bound(p, gpu_scalar_spine(&p->ctx->levers));
    if (d->prefill.fast_guard == GDN__FAST_TAKEN) {
        snprintf(text, sizeof text, "GDN prefill: %s ([defaults] %s%s%s)", gpu_entry_name(d->entry),
                 d->prefill.wn ? "gdn_prefill_fast_wn" : "gdn_prefill_fast",
                 scalar ? "; the contract pipeline stays bound as its fallback" : "", segments_of(d, segments));
        for (uint32_t i = 0; i < p->shape.rule.layers; i++) line(p->ctx, text);
    }
    if (d->prefill.tc_guard == GDN__TC_TAKEN)
        snprintf(text, sizeof text, "GDN state spine: %s ([defaults] gdn_prefill_tc%s)", gpu_entry_name(d->prefill.spine),
                 scalar
                     ? "; the scalar spine stays bound as the fallback the prefill's shape guards drop to, and the prefill logs the entry "
                       "it launches"
                     : "");
    else if (!gpu_has(p->present, d->prefill.spine))
        snprintf(text, sizeof text, "GDN state spine: none: %s did not load", gpu_entry_name(d->prefill.spine));
    else
        snprintf(text, sizeof text, "GDN state spine: %s", gpu_entry_name(d->prefill.spine));
    for (uint32_t i = 0; i < p->shape.rule.layers; i++) line(p->ctx, text);
}

static bool said_before(const gdn_plan *p, uint32_t bit) {
    return (atomic_fetch_or(&((gdn_plan *)(uintptr_t)p)->said, bit) & bit) != 0;
}

/* True: the fast prefill ran, and there is no spine to speak of. */
static bool log_fast(const gdn_plan *p, const gpu_decision *d) {
    char text[512], segments[64];
    const uint32_t guard = d->prefill.fast_guard;
    if (guard == GDN__FAST_NOT_REQUESTED) return false;
    if (guard != GDN__FAST_TAKEN) {
        if (!first(p->ctx, ONCE_PREFILL_FAST + guard)) return false;
        snprintf(text, sizeof text, "GDN prefill: the fast prefill is NOT running: %s; %s runs (METRALE_GDN_PREFILL_FAST)",
                 d->prefill.fast_text, gpu_entry_name(d->entry));
        line(p->ctx, text);
        return false;
    }
    if (d->prefill.wn_text && first(p->ctx, ONCE_PREFILL_WN)) {
        snprintf(text, sizeof text, "GDN prefill: the fast prefill by W and N is NOT running: %s; %s runs (METRALE_GDN_PREFILL_FAST_WN)",
                 d->prefill.wn_text, gpu_entry_name(d->entry));
        line(p->ctx, text);
    }
    snprintf(text, sizeof text,
             "GDN prefill: %s (METRALE_GDN_PREFILL_FAST%s; f16 wgmma operands, f32 accumulator = the recurrent state, h stays f32%s) "
             "grid=[%u,%u,%u] block=%u smem=%uB",
             gpu_entry_name(d->entry), d->prefill.wn ? "_WN" : "", segments_of(d, segments), d->dims.grid[0], d->dims.grid[1],
             d->dims.grid[2], d->dims.block[0], d->dims.smem_bytes);
    p->ctx->host.log(p->ctx->host.user, said_before(p, 2) ? GDN_LOG_DEBUG : GDN_LOG_INFO, "route", text);
    return true;
}

static void log_spine(const gdn_plan *p, const gpu_decision *d) {
    char text[512];
    if (d->prefill.tc_guard == GDN__TC_NOT_REQUESTED) return;
    if (d->prefill.tc_guard != GDN__TC_TAKEN) {
        if (!first(p->ctx, ONCE_PREFILL_TC + d->prefill.tc_guard)) return;
        snprintf(text, sizeof text, "GDN state spine: the tensor-core spine is NOT running: %s; %s runs (METRALE_GDN_PREFILL_TC)",
                 d->prefill.tc_text, gpu_entry_name(d->entry));
        line(p->ctx, text);
        return;
    }
    const bool again = said_before(p, 1);
    snprintf(text, sizeof text,
             "GDN state spine: %s (METRALE_GDN_PREFILL_TC; bf16 mma.sync operands, f32 accumulator = the recurrent state, h stays f32) "
             "grid=[%u,%u] block=%u smem=%uB",
             gpu_entry_name(d->entry), d->dims.grid[0], d->dims.grid[1], d->dims.block[0], d->dims.smem_bytes);
    p->ctx->host.log(p->ctx->host.user, again ? GDN_LOG_DEBUG : GDN_LOG_INFO, "route", text);
}

void gpu_log_launch(const gdn_plan *p, const gpu_decision *d, const gdn__call *c) {
    if (p->op->op == GDN_OP_PREFILL && !log_fast(p, d)) log_spine(p, d);
    if (p->op->op == GDN_OP_W4A4_GEMV) gpu_log_w4a4(p->ctx, d, c->u32[GDN_W4A4_GEMV_U_M]);
    if (p->op->op == GDN_OP_DECODE_STEP) gpu_log_decode_step(p->ctx, d);
    if (p->op->op != GDN_OP_BA_GATES) return;
    log_tc(p->ctx, d, c->u32[GDN_BA_GATES_U_M]);
    if (d->entry != GPU_E_BA_TC) log_twin(p->ctx, d, c->u32[GDN_BA_GATES_U_M]);
}
