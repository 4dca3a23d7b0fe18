/* gpu_w4a4.c - FP4 projections: the pure planner's entry and geometry, shared memory, arguments, and the lines that people grep. Where
 * there are FP4 tensor cores the mx entries run, else the f16 ones if the target carries them, under their own names. */
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

static const uint32_t f16_entry[GDN__W4A4_F16_ENTRIES] = {
#define ROW_(ID, ...) [GDN__W4A4_##ID] = GPU_E_W4A4_##ID,
    GDN__W4A4_F16_MAP(ROW_)
#undef ROW_
};

static bool is_f16(uint32_t entry) {
    return entry >= GPU_E_W4A4_F16_8 && entry <= GPU_E_W4A4_F16_64;
}
static bool is_wide(uint32_t entry) {
    return entry >= GPU_E_W4A4_F16_16_WIDE && entry <= GPU_E_W4A4_F16_64;
}
static bool persistent(uint32_t entry) {
    return entry == GPU_E_W4A4_MX16_PS || entry == GPU_E_W4A4_MX32_PS;
}

/* The route, with its entry as this target's. */
static gdn__w4a4_route route_of(const gpu_facts *f, const gdn_w4a4_shape *s, uint32_t m) {
    const gdn__levers *lv = f->levers;
    gdn__w4a4_route r;
    if (!gpu_has(f->present, GPU_E_W4A4_MX8) && gpu_has(f->present, GPU_E_W4A4_F16_8)) {
        r = gdn__w4a4_f16_plan(m, s->N, s->K, f->sm_count);
        r.entry = f16_entry[r.entry];
        return r;
    }
    r = gdn__w4a4_mx_plan(m, s->N, s->K, lv->mx_nt, lv->mx_ps, f->sm_count);
    /* A persistent module that did not load: the tile entries give the same bytes. */
    if (!gpu_has(f->present, mx_entry[r.entry])) r = gdn__w4a4_mx_plan(m, s->N, s->K, lv->mx_nt, false, f->sm_count);
    r.entry = mx_entry[r.entry];
    return r;
}

/* Some launch of the plan may be persistent: it depends on m only through the column blocks. */
static bool may_persist(const gpu_facts *f, const gdn_w4a4_shape *s) {
    static const uint32_t most[] = { 16, 32 };
    for (uint32_t i = 0; i < 2; i++)
        if (persistent(route_of(f, s, s->max_m < most[i] ? s->max_m : most[i]).entry)) return true;
    return false;
}

/* Of any number of rows that the plan takes. */
static uint64_t workspace_of(const gpu_facts *f, const gdn_w4a4_shape *s) {
    static const uint32_t most[] = { 8, 16, 32, 64 };
    uint64_t bytes = may_persist(f, s) ? COUNTER_BYTES : 0;
    for (uint32_t i = 0; i < 4; i++) {
        const gdn__w4a4_route r = route_of(f, s, s->max_m < most[i] ? s->max_m : most[i]);
        if (r.workspace > bytes) bytes = r.workspace;
    }
    return bytes;
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
    const bool ps = persistent(r.entry);
    gpu_take(d, r.entry, r.grid, 1, r.block, r.smem);
    d->route.workspace_bytes = workspace_of(f, s);
    if (m <= 8 || is_f16(r.entry)) return; /* one entry, whatever the levers say */
    d->route.lever = ps ? "w4a4_mx_ps" : "w4a4_mx_nt";
    d->route.lever_where = ps ? f->levers->mx_ps_where : f->levers->mx_nt_where;
    d->route.lever_source = ps ? f->levers->mx_ps_source : f->levers->mx_nt_source;
}

/* The same bound for every plan: a function has one, and plans with different K share it. A persistent entry that is refused is absent:
 * the others give the same bytes. */
static gdn_status allow(gdn_plan *p, uint32_t entry, uint32_t bytes, gdn_text *err) {
    char why[256] = "";
    gdn_text text = { why, sizeof why, 0 };
    const gdn_status st = gpu_has(p->present, entry) ? gpu_allow_smem(p->ctx, entry, p->entry[entry], bytes, &text) : GDN_OK;
    if (st == GDN_OK) return st;
    if (!persistent(entry) || st == GDN_E_CAPTURE || st == GDN_E_FORKED) return gdn__fail(err, st, "%s", why);
    gpu_drop(&p->present, entry);
    p->ctx->host.log(p->ctx->host.user, GDN_LOG_WARN, "modules", why);
    return GDN_OK;
}

gdn_status gpu_bind_w4a4(gdn_plan *p, gdn_text *err) {
    const gpu_facts facts = { &p->ctx->levers, p->present, p->ctx->device.sm_count, p->lost };
    const gdn_w4a4_shape *s = &p->shape.w4a4;
    gdn_status st = GDN_OK;
    if (gdn__w4a4_pick(s->max_m, s->N, s->K) != GDN_W4A4_TAKEN) return GDN_OK; /* the decision says why */
    for (uint32_t e = 0; e < GDN__W4A4_F16_ENTRIES; e++)
        if ((st = allow(p, f16_entry[e], GDN__W4A4_F16_SMEM_MAX, err))) return st;
    if (!may_persist(&facts, s)) return GDN_OK;
    if ((st = allow(p, GPU_E_W4A4_MX16_PS, GDN__W4A4_PS_SMEM_MOST, err))) return st;
    return allow(p, GPU_E_W4A4_MX32_PS, GDN__W4A4_PS_SMEM_MOST, err);
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
    if (entry == GPU_E_W4A4_F16_8 || entry == GPU_E_W4A4_F16_16)
        gpu_arg_u32(a, gdn__w4a4_f16_plan(c->u32[GDN_W4A4_GEMV_U_M], s->N, s->K, 0).sst);
    if (!persistent(entry) && !is_wide(entry)) return GDN_OK;
    if (!c->ptr[GDN_W4A4_GEMV_P_WORKSPACE])
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'workspace' is NULL, %s needs one (the plan says how many bytes)",
                         gdn__op_name(s->base.op), gpu_entry_name(entry));
    if (persistent(entry)) gpu_arg_u32(a, gdn__w4a4_ps_stripe_chunks(s->K));
    ptr(a, c, GDN_W4A4_GEMV_P_WORKSPACE, is_wide(entry) ? 16 : 4);
    return GDN_OK;
}

/* Once a process and entry. */
enum { ONCE_W4A4 = 40 };
void gpu_log_w4a4(const gdn_ctx *ctx, const gpu_decision *d, uint32_t m) {
    char text[320];
    const uint32_t slot = is_f16(d->entry) ? GDN__W4A4_MX_ENTRIES + d->entry - GPU_E_W4A4_F16_8 : d->entry - GPU_E_W4A4_MX8;
    const char *why = is_f16(d->entry)       ? " (no FP4 tensor cores: exact f16 products)"
                      : !d->route.lever      ? ""
                      : persistent(d->entry) ? " (METRALE_W4A4_MX_PS)"
                                             : " (METRALE_W4A4_MX_NT)";
    if (!ctx->host.once(ctx->host.user, ONCE_W4A4 + slot)) return;
    snprintf(text, sizeof text, "W4A4: %s%s M=%u grid=%u block=%u smem=%uB", gpu_entry_name(d->entry), why, m, d->dims.grid[0],
             d->dims.block[0], d->dims.smem_bytes);
    ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", text);
}
