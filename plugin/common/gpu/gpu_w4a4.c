/* gpu_w4a4.c - FP4 projections: the pure planner's entry and geometry, shared memory, arguments, and the lines that people grep. */
#include "gpu_plugin.h"
#include "plan_w4a4.h"
#include <stdio.h>
#include <string.h>

enum { COUNTER_BYTES = 8 }; /* of the persistent entries, in the workspace */

/* The planner's entries, as this target's. */
static const uint32_t mx_entry[GDN__W4A4_MX_ENTRIES] = {
#define ROW_(ID, ...) [GDN__W4A4_##ID] = GPU_E_W4A4_##ID,
    GDN__W4A4_MX_MAP(ROW_)
#undef ROW_
};

static bool persistent(uint32_t entry) {
    return entry == GPU_E_W4A4_MX16_PS || entry == GPU_E_W4A4_MX32_PS;
}

static gdn__w4a4_route route_of(const gpu_facts *f, const gdn_w4a4_shape *s, uint32_t m) {
    const gdn__levers *lv = f->levers;
    const gdn__w4a4_route r = gdn__w4a4_mx_plan(m, s->N, s->K, lv->mx_nt, lv->mx_ps, f->sm_count);
    /* A persistent module that did not load: the tile entries give the same bytes. */
    return gpu_has(f->present, mx_entry[r.entry]) ? r : gdn__w4a4_mx_plan(m, s->N, s->K, lv->mx_nt, false, f->sm_count);
}

/* Some launch of the plan may be persistent: it depends on m only through the column blocks. */
static bool may_persist(const gpu_facts *f, const gdn_w4a4_shape *s) {
    static const uint32_t most[] = { 16, 32 };
    for (uint32_t i = 0; i < 2; i++)
        if (persistent(mx_entry[route_of(f, s, s->max_m < most[i] ? s->max_m : most[i]).entry])) return true;
    return false;
}

static void decide_quant(const gdn_w4a4_shape *s, uint32_t m, gpu_decision *d) {
    gpu_take(d, s->a_stride == s->K ? GPU_E_W4A4_QUANT : GPU_E_W4A4_QUANT_EXT, m, 1, 256, 0);
}

void gpu_decide_w4a4(const gpu_facts *f, const gdn_w4a4_shape *s, const uint32_t *u32, gpu_decision *d) {
    const bool gemv = s->base.op == GDN_OP_W4A4_GEMV;
    const uint32_t m = !u32 ? s->max_m : gemv ? u32[GDN_W4A4_GEMV_U_M] : u32[GDN_W4A4_QUANT_U_M];
    const uint32_t guard = gdn__w4a4_pick(m, gemv ? s->N : 1, s->K);
    if (guard != GDN_W4A4_TAKEN) {
        d->guard = GDN__G_W4A4 + guard;
        gpu_refuse(d, gdn__w4a4_guard_text(guard));
        return;
    }
    if (!gemv) {
        decide_quant(s, m, d);
        return;
    }
    const gdn__w4a4_route r = route_of(f, s, m);
    const bool ps = persistent(mx_entry[r.entry]);
    gpu_take(d, mx_entry[r.entry], r.grid, 1, GDN__W4A4_BLOCK_THREADS, r.smem);
    d->route.workspace_bytes = may_persist(f, s) ? COUNTER_BYTES : 0;
    if (m <= 8) return; /* one entry, whatever the levers say */
    d->route.lever = ps ? "w4a4_mx_ps" : "w4a4_mx_nt";
    d->route.lever_where = ps ? f->levers->mx_ps_where : f->levers->mx_nt_where;
    d->route.lever_source = ps ? f->levers->mx_ps_source : f->levers->mx_nt_source;
}

/* The same bound for every plan: a function has one, and plans with different K share it. One that is refused is absent. */
gdn_status gpu_bind_w4a4(gdn_plan *p, gdn_text *err) {
    static const uint32_t all[] = { GPU_E_W4A4_MX16_PS, GPU_E_W4A4_MX32_PS };
    const gpu_facts facts = { &p->ctx->levers, p->present, p->ctx->device.sm_count };
    const gdn_w4a4_shape *s = &p->shape.w4a4;
    char why[256] = "";
    gdn_text text = { why, sizeof why, 0 };
    if (gdn__w4a4_pick(s->max_m, s->N, s->K) != GDN_W4A4_TAKEN || !may_persist(&facts, s)) return GDN_OK;
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!gpu_has(p->present, all[i])) continue;
        const gdn_status st = gpu_allow_smem(p->ctx, all[i], p->entry[all[i]], GDN__W4A4_PS_SMEM_MOST, &text);
        if (st == GDN_E_CAPTURE || st == GDN_E_FORKED) return gdn__fail(err, st, "%s", why);
        if (!st) continue;
        p->present &= ~((uint64_t)1 << all[i]);
        p->ctx->host.log(p->ctx->host.user, GDN_LOG_WARN, "modules", why);
    }
    return GDN_OK;
}

static void ptr(gpu_args *a, gdn__call *c, uint32_t index, uint32_t align) {
    gpu_arg_u64(a, (uint64_t)(uintptr_t)gdn__call_ptr(c, index, align));
}

gdn_status gpu_pack_w4a4(const gdn_w4a4_shape *s, gdn__call *c, uint32_t entry, gpu_args *a, gdn_text *err) {
    if (s->base.op == GDN_OP_W4A4_QUANT) {
        ptr(a, c, GDN_W4A4_QUANT_P_A, 2);
        ptr(a, c, GDN_W4A4_QUANT_P_AQ, 16);
        ptr(a, c, GDN_W4A4_QUANT_P_AS, 4);
        ptr(a, c, GDN_W4A4_QUANT_P_AG, 4);
        gpu_arg_u32(a, s->K);
        if (entry == GPU_E_W4A4_QUANT_EXT) gpu_arg_u32(a, s->a_stride);
        return GDN_OK;
    }
    ptr(a, c, GDN_W4A4_GEMV_P_AQ, 16);
    ptr(a, c, GDN_W4A4_GEMV_P_AS, 4);
    ptr(a, c, GDN_W4A4_GEMV_P_AG, 4);
    ptr(a, c, GDN_W4A4_GEMV_P_BQ, 16);
    ptr(a, c, GDN_W4A4_GEMV_P_BS, 8);
    gpu_arg_u32(a, c->u32[GDN_W4A4_GEMV_U_SCALE2]);
    ptr(a, c, GDN_W4A4_GEMV_P_C, 2);
    gpu_arg_u32(a, c->u32[GDN_W4A4_GEMV_U_M]);
    gpu_arg_u32(a, s->N);
    gpu_arg_u32(a, s->K);
    if (!persistent(entry)) return GDN_OK;
    if (!c->ptr[GDN_W4A4_GEMV_P_WORKSPACE])
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'workspace' is NULL, the plan needs %d bytes", gdn__op_name(s->base.op),
                         (int)COUNTER_BYTES);
    gpu_arg_u32(a, gdn__w4a4_ps_stripe_chunks(s->K));
    ptr(a, c, GDN_W4A4_GEMV_P_WORKSPACE, 4);
    return GDN_OK;
}

/* Once a process and entry. */
enum { ONCE_W4A4 = 40 };
void gpu_log_w4a4(const gdn_ctx *ctx, const gpu_decision *d, uint32_t m) {
    char text[320];
    uint32_t which = 0;
    while (which < GDN__W4A4_MX_ENTRIES && mx_entry[which] != d->entry) which++;
    if (!ctx->host.once(ctx->host.user, ONCE_W4A4 + which)) return;
    const char *lever = !d->route.lever ? "" : persistent(d->entry) ? " (METRALE_W4A4_MX_PS)" : " (METRALE_W4A4_MX_NT)";
    snprintf(text, sizeof text, "W4A4: %s%s M=%u grid=%u block=%u smem=%uB", gpu_entry_name(d->entry), lever, m, d->dims.grid[0],
             d->dims.block[0], d->dims.smem_bytes);
    ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", text);
}
