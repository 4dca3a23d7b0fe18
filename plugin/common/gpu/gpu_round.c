/* gpu_round.c - a round of speculation in one launch: the fold of the round before and write-on-accept verify. Two entries with the same
 * arguments, whose blocks take any number of parts of heads, or of heads. */
#include "gpu_rule.h"

enum { GRID_Y = 65535, ROUND_BLOCK = 128, SM_FALLBACK = 132, STAY_BLOCKS = 2 /* of a multiprocessor */, STAY_SMEM = 128 * 128 * 4 };

static const gpu_rule_order order = { .query = GDN_ROUND_P_QUERY,
                                      .key = GDN_ROUND_P_KEY,
                                      .value = GDN_ROUND_P_VALUE,
                                      .output = GDN_ROUND_P_OUTPUT,
                                      .state = GDN_ROUND_P_STATE,
                                      .state_out = -1,
                                      .in_slots = GDN_ROUND_P_IN_SLOTS,
                                      .out_slots = -1,
                                      .fresh = GDN_ROUND_P_FRESH,
                                      .ckpt = -1,
                                      .cu = GDN_ROUND_P_CU_ROWS,
                                      .workspace = GDN_ROUND_P_WORKSPACE,
                                      .gate = GDN_ROUND_P_GATE,
                                      .beta = GDN_ROUND_P_BETA,
                                      .hi = GDN_ROUND_P_HI };
const gpu_rule_order *gpu_round_order(void) {
    return &order;
}

static uint32_t multiprocessors(const gpu_facts *f) {
    return f->sm_count ? f->sm_count : SM_FALLBACK;
}
/* Few heads go in eight parts, so that they fill the device, more in four; blocks, a multiple of the parts, up to what fits at once.
 * Measured on an H200, 16/48 and 16/32 heads, batch 1 to 256. */
static uint64_t places(const gpu_facts *f) {
    return (gdn__gpu_target.cc_major == 9 ? 5ull : 2ull) * multiprocessors(f);
}
/* Hopper takes whole heads, [K][V], where there are two for each multiprocessor, or almost so, and not a few more. */
static bool may_stay(const gdn_rule_shape *s) {
    return gdn__gpu_target.cc_major == 9 && s->state_layout == GDN_STATE_K_MAJOR;
}
/* 0: whole heads */
static uint32_t parts_of(const gpu_facts *f, const gdn_rule_shape *s, uint32_t batch) {
    const uint64_t heads = (uint64_t)s->nv * batch;
    const uint64_t sm = multiprocessors(f);
    if (may_stay(s) && gpu_has(f->present, GPU_E_ROUND_STAY) && 4 * heads > 5 * sm && (heads <= 2 * sm || 2 * heads > 5 * sm)) return 0;
    return 8 * heads <= places(f) ? 8 : 4;
}
void gpu_decide_round(const gpu_facts *f, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d) {
    const gdn__levers *lv = f->levers;
    const uint32_t rows = u32 ? u32[GDN_ROUND_U_ROWS] : s->max_rows, batch = u32 ? u32[GDN_ROUND_U_BATCH] : s->max_batch;
    const uint32_t guard = gdn__woa_pick(lv->woa, gpu_has(f->present, GPU_E_ROUND), s, rows, batch);
    gpu_workspace w;
    gpu_rule_workspace(s, false, &w);
    d->route.workspace_bytes = w.total;
    d->route.lever = "gdn_woa";
    d->route.lever_where = lv->woa_where;
    d->route.lever_source = lv->woa_source;
    if (guard < GDN_WOA_TAKEN) {
        d->guard = GDN__G_WOA + guard;
        const char *const lost = guard == GDN_WOA_KERNEL_ABSENT ? gpu_lost(f, GPU_E_ROUND) : NULL;
        gpu_refuse(d, lost ? lost : gdn__woa_guard_text(guard));
        return;
    }
    const uint32_t parts = parts_of(f, s, batch);
    if (!parts) {
        const uint64_t heads = (uint64_t)s->nv * batch, most = (uint64_t)STAY_BLOCKS * multiprocessors(f);
        gpu_take(d, GPU_E_ROUND_STAY, (uint32_t)(heads < most ? heads : most), 1, ROUND_BLOCK, STAY_SMEM);
        if (batch > GRID_Y || s->nv > (1u << 28)) gpu_refuse(d, "more than 65535 sequences in a launch");
        return;
    }
    const uint64_t all = (uint64_t)parts * s->nv * batch, whole = places(f) / parts, fit = (whole ? whole : 1) * parts;
    gpu_take(d, GPU_E_ROUND, (uint32_t)(all < fit ? all : fit), 1, ROUND_BLOCK, 0);
    if (batch > GRID_Y || s->nv > (1u << 28)) gpu_refuse(d, "more than 65535 sequences in a launch");
}

gdn_status gpu_bind_round(gdn_plan *p, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    if (s->state_type != GDN_F32 || !p->ctx->levers.woa || !gpu_has(p->present, GPU_E_ROUND)) return GDN_OK; /* the decision says why */
    const gdn_status st = gpu_bind_form(p, GPU_E_ROUND, gpu_step_form(s), gpu_entry_name(GPU_E_ROUND), 0, &p->entry[GPU_E_ROUND], err);
    const uint32_t stay = GPU_E_ROUND_STAY;
    if (st || !may_stay(s)) return st;
    return gpu_bind_form(p, stay, gpu_step_form(s), gpu_entry_name(stay), STAY_SMEM, &p->entry[stay], err);
}

static void pack(const gdn_rule_shape *s, const gdn__call *c, const gpu_rule_io *io, uint32_t parts, gpu_args *a) {
    const uint64_t rows[] = {
        c->ptr[GDN_ROUND_P_STATE], io->query, io->key, c->ptr[GDN_ROUND_P_VALUE], c->ptr[GDN_ROUND_P_GATE], c->ptr[GDN_ROUND_P_BETA],
        c->ptr[GDN_ROUND_P_OUTPUT]
    };
    const uint64_t kept[] = { c->ptr[GDN_ROUND_P_STASH], c->ptr[GDN_ROUND_P_FLAG],         c->ptr[GDN_ROUND_P_PENDING],
                              c->ptr[GDN_ROUND_P_NA],    c->ptr[GDN_ROUND_P_PENDING_FLAG], c->ptr[GDN_ROUND_P_HI] };
    const uint32_t sizes[] = { s->slab_entries,
                               c->u32[GDN_ROUND_U_K_ROWS],
                               c->u32[GDN_ROUND_U_BATCH],
                               s->nk,
                               s->nv,
                               s->k_dim,
                               s->v_dim,
                               io->qk_stride,
                               s->v_stride,
                               s->gb_stride,
                               (uint32_t)s->stash_stride };
    const bool table = s->state_addr == GDN_STATE_TABLE;
    gpu_arg_list(a, rows, 7, NULL, 0);
    gpu_arg_list(a, kept, 6, sizes, 11);
    gpu_arg_u64(a, io->fresh);
    gpu_arg_f32(a, io->scale);
    gpu_arg_u64(a, c->ptr[GDN_ROUND_P_IN_SLOTS]);
    gpu_arg_u64(a, table ? 0 : s->state_stride);
    gpu_arg_u64(a, io->cu);
    gpu_arg_u32(a, table);
    gpu_arg_u32(a, s->hi_capacity);
    gpu_arg_u64(a, c->ptr[GDN_ROUND_P_SEQ_IDS]);
    gpu_arg_u32(a, gdn__by_sequence(&s->base));
    gpu_arg_u32(a, parts);
}

gdn_status gpu_launch_round(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    gpu_workspace w;
    gpu_rule_io io;
    gpu_args a = { .n = 0 };
    const gpu_facts facts = { &p->ctx->levers, p->present, p->ctx->device.sm_count, p->lost };
    gpu_rule_workspace(s, false, &w);
    if (s->stash_stride > UINT32_MAX) return gdn__fail(err, GDN_E_ARG, "%s: stash_stride is above 2^32 - 1", gdn__op_name(p->op->op));
    gdn_status st = gpu_rule_check(p, c, &order, true, w.total, err);
    if (!st) st = gpu_rule_offsets(p, c, &order, &w, c->u32[GDN_ROUND_U_BATCH], stream, &io, err);
    if (st) return st;
    pack(s, c, &io, parts_of(&facts, s, c->u32[GDN_ROUND_U_BATCH]), &a);
    return gpu_start(p, d->entry, false, &d->dims, stream, &a, err);
}
