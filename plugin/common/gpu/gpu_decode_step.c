/* gpu_decode_step.c - the fused decode step: entry, geometry, arguments in the order of gdn_decode_step.cu, and its line. */
#include "gdn_geometry.h"
#include "gpu_plugin.h"
#include <stdio.h>

/* A block has a head. Measured on an H200, 16/48 heads: the wide form wins while all blocks fit at once, two a multiprocessor (5.9 us
 * against 7.6 at batch 1, 11.2 against 11.8 at 5, 18.0 against 16.6 at 8); asking for the state ahead costs 12 % at batch 16, nothing at
 * 64, and wins 5 % at 256. */
static uint32_t entry_of(gpu_set present, uint32_t sms, uint64_t blocks) {
    return blocks <= 2ull * (sms ? sms : 132) && gpu_has(present, GPU_E_DSTEP_WIDE) ? GPU_E_DSTEP_WIDE : GPU_E_DSTEP;
}
static bool ahead(uint32_t sms, uint64_t blocks) {
    return blocks > 24ull * (sms ? sms : 132);
}

/* A count for each key head of each sequence; none where a key head has one value head. */
static uint64_t workspace_bytes(const gdn_step_shape *s) {
    return s->nv == s->nk ? 0 : 4ull * s->nk * s->max_batch;
}

void gpu_decide_decode_step(const gpu_facts *f, const gdn_step_shape *s, const uint32_t *u32, gpu_decision *d) {
    const uint32_t batch = u32 ? u32[GDN_DECODE_STEP_U_BATCH] : s->max_batch, guard = gdn__dstep_pick(s, batch);
    d->route.workspace_bytes = workspace_bytes(s);
    if (guard < GDN_STEP_TAKEN) {
        d->guard = GDN__G_STEP + guard;
        gpu_refuse(d, gdn__dstep_guard_text(guard));
        return;
    }
    const uint32_t entry = entry_of(f->present, f->sm_count, (uint64_t)s->nv * batch);
    gpu_take(d, entry, s->nv / s->nk, s->nk, entry == GPU_E_DSTEP ? GDN_DSTEP_BLOCK : GDN_DSTEP_WIDE, 0);
    d->dims.grid[2] = batch;
}

static uint32_t flags_of(const gdn_step_shape *s, bool is_ahead) {
    return (is_ahead ? GDN_DSTEP_AHEAD : 0u) | (s->weight_type == GDN_F32 ? GDN_DSTEP_WEIGHT_F32 : 0u) |
           (s->norm_weight_type == GDN_F32 ? GDN_DSTEP_NORM_F32 : 0u) | (s->norm_act == GDN_NORM_SIGMOID ? GDN_DSTEP_SIGMOID : 0u) |
           (s->head_map == GDN_HEADS_TILED ? GDN_DSTEP_TILED : 0u) | (s->gates == GDN_STEP_GATES_MADE ? GDN_DSTEP_GATES_MADE : 0u);
}

gdn_status gpu_pack_decode_step(const gdn_plan *p, gdn__call *c, gpu_args *a, gdn_text *err) {
    const gdn_step_shape *s = &p->shape.step;
    const uint32_t w = s->weight_type == GDN_F32 ? 4 : 2, n = s->norm_weight_type == GDN_F32 ? 4 : 2,
                   g = s->gates == GDN_STEP_GATES_MADE ? 4 : 2;
    const struct {
        uint32_t index, align;
    } ptr[] = {
        { GDN_DECODE_STEP_P_X, 2 },           { GDN_DECODE_STEP_P_WEIGHT, w },  { GDN_DECODE_STEP_P_BIAS, w },
        { GDN_DECODE_STEP_P_CONV_STATE, 2 },  { GDN_DECODE_STEP_P_A, g },       { GDN_DECODE_STEP_P_B, g },
        { GDN_DECODE_STEP_P_A_LOG, 4 },       { GDN_DECODE_STEP_P_DT_BIAS, 4 }, { GDN_DECODE_STEP_P_Z, 2 },
        { GDN_DECODE_STEP_P_NORM_WEIGHT, n }, { GDN_DECODE_STEP_P_OUT, 2 },     { GDN_DECODE_STEP_P_STATE, 4 },
        { GDN_DECODE_STEP_P_SLOTS, 4 },       { GDN_DECODE_STEP_P_FRESH, 1 },   { GDN_DECODE_STEP_P_ACCEPTED, 4 },
        { GDN_DECODE_STEP_P_WORKSPACE, 4 },
    };
    const uint32_t sizes[] = { s->nk, s->nv, s->x_stride, s->z_stride, s->a_stride, s->b_stride, s->vheads_per_group, s->state_len };
    const gdn_status st = gdn__dstep_needed(s, c, err);
    if (st) return st;
    if (workspace_bytes(s) && !c->ptr[GDN_DECODE_STEP_P_WORKSPACE])
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'workspace' is NULL, the plan needs %llu bytes", gdn__op_name(s->base.op),
                         (unsigned long long)workspace_bytes(s));
    for (uint32_t i = 0; i < sizeof ptr / sizeof *ptr; i++)
        gpu_arg_u64(a, (uint64_t)(uintptr_t)gdn__call_ptr(c, ptr[i].index, ptr[i].align));
    gpu_arg_u64(a, s->conv_slot_stride);
    gpu_arg_u64(a, s->state_stride);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) gpu_arg_u32(a, sizes[i]);
    gpu_arg_f32(a, s->eps);
    gpu_arg_f32(a, s->scale);
    gpu_arg_u32(a, flags_of(s, ahead(p->ctx->device.sm_count, (uint64_t)s->nv * c->u32[GDN_DECODE_STEP_U_BATCH])));
    return GDN_OK;
}

/* Once a process and entry. */
enum { ONCE_DECODE_STEP = 60 };
void gpu_log_decode_step(const gdn_ctx *ctx, const gpu_decision *d) {
    char text[200];
    if (!ctx->host.once(ctx->host.user, ONCE_DECODE_STEP + (d->entry == GPU_E_DSTEP))) return;
    snprintf(text, sizeof text, "GDN decode step: %s grid=[%u,%u,%u] block=%u", gpu_entry_name(d->entry), d->dims.grid[0], d->dims.grid[1],
             d->dims.grid[2], d->dims.block[0]);
    ctx->host.log(ctx->host.user, GDN_LOG_INFO, "route", text);
}
