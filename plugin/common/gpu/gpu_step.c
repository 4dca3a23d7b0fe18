/* gpu_step.c - decode, verify, write-on-accept verify, fold and flag clear:
 * which entry, and the arguments of its one launch. Pools and separate output
 * states are found by the kernels from slots, so nothing runs in front of them
 * but int64 offsets. */
#include "gpu_rule.h"
#include <string.h>

enum { GRID_Y = 65535, STEP_BLOCK = 128, SM_FALLBACK = 132 };

static bool present(const gpu_facts *f, uint32_t entry) {
    return gpu_has(f->present, entry);
}

uint32_t gpu_step_form(const gdn_rule_shape *s) {
    return gpu_rule_form(s) | (s->base.flags & GDN_QK_L2NORM ? (uint32_t)GPU_STEP_L2NORM : 0u);
}

/* Few heads go in parts, so that they fill the device: eight of 256 threads up to a head a multiprocessor, four of 512 up to 48, and
 * Hopper's [K][V], which send for states ahead, however many. Measured on an H200, 16/48 and 16/32 heads, batch 1 to 256. */
static uint32_t decode_wants(const gpu_facts *f, const gdn_rule_shape *s, uint32_t batch) {
    const uint64_t heads = (uint64_t)s->nv * batch, sm = f->sm_count ? f->sm_count : SM_FALLBACK;
    const bool ahead = gdn__gpu_target.cc_major == 9 && s->state_layout == GDN_STATE_K_MAJOR;
    if (s->k_dim != 128 || (heads > 48 * sm && !ahead)) return 1;
    return heads <= sm ? 8 : 4;
}
/* Four blocks a head in Hopper's fold, two from two heads a multiprocessor on: measured on an H200, 16/48 heads, batch 1 to 256. */
static uint32_t fold_parts(const gpu_facts *f, const gdn_rule_shape *s, uint32_t batch) {
    if (gdn__gpu_target.cc_major != 9 || s->k_dim != 128) return 1;
    return (uint64_t)s->nv * batch > 2 * (uint64_t)(f->sm_count ? f->sm_count : SM_FALLBACK) ? 2 : 4;
}
/* The same of verify: eight of 128 threads, four of 256. With up to four rows in a launch always in parts; with more, few heads only:
 * each part makes the mixing factors for itself. Measured on an H200, 16/48 heads, 1 to 16 rows, batch 1 to 128. */
static uint32_t verify_wants(const gpu_facts *f, const gdn_rule_shape *s, uint32_t rows, uint32_t batch) {
    const uint64_t heads = (uint64_t)s->nv * batch, sm = f->sm_count ? f->sm_count : SM_FALLBACK;
    if (gdn__bf16_state(s) || s->k_dim != 128) return 1;
    if (rows > 4) return 2 * heads <= sm ? 8 : 2 * heads <= 3 * sm ? 4 : 1;
    return heads <= sm ? 8 : rows > 1 || heads <= 2 * sm ? 4 : 1;
}
/* As many parts as are wanted, if their kernel is there: one that did not load is told of, the heads go whole. */
static uint32_t parts_of(const gpu_facts *f, uint32_t wanted, uint32_t split, gpu_decision *d) {
    if (wanted <= 1 || present(f, split)) return wanted;
    if (gpu_lost(f, split)) {
        d->route.chosen = 0;
        d->route.guard = gpu_lost(f, split);
        gpu_declined(d, NULL, d->route.guard);
    }
    return 1;
}
/* By sequence: one that keeps the state after the last row as well. */
static uint32_t verify_entry(const gdn_rule_shape *s, uint32_t rows, uint32_t parts) {
    if (gdn__bf16_state(s)) return GPU_E_WYN16;
    if (parts > 1) return rows <= 4 ? GPU_E_WY4_SPLIT : GPU_E_WYN_SPLIT;
    if (gdn__by_sequence(&s->base)) return GPU_E_WYN;
    return rows == 2 ? GPU_E_WY2 : rows == 3 ? GPU_E_WY3 : rows == 4 ? GPU_E_WY4 : GPU_E_WYN;
}

/* Whether write-on-accept is compiled in the form whose blocks take any number of heads (gdn_step_stay.cuh). */
static bool woa_stays(const gdn_rule_shape *s) {
    return gdn__gpu_target.cc_major == 9 && s->state_layout != GDN_STATE_V_MAJOR;
}

static void decide_woa(const gpu_facts *f, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d) {
    const gdn__levers *lv = f->levers;
    const uint32_t rows = u32 ? u32[GDN_VERIFY_WOA_U_ROWS] : s->max_rows, batch = u32 ? u32[GDN_VERIFY_WOA_U_BATCH] : s->max_batch;
    const uint32_t entry = gdn__by_sequence(&s->base) ? (uint32_t)GPU_E_WOA_SEQ : (uint32_t)GPU_E_WOA;
    const uint32_t guard = gdn__woa_pick(lv->woa, present(f, entry), s, rows, batch);
    d->route.lever = "gdn_woa";
    d->route.lever_where = lv->woa_where;
    d->route.lever_source = lv->woa_source;
    if (guard < GDN_WOA_TAKEN) {
        d->guard = GDN__G_WOA + guard;
        gpu_refuse(d, guard == GDN_WOA_KERNEL_ABSENT && gpu_lost(f, entry) ? gpu_lost(f, entry) : gdn__woa_guard_text(guard));
        return;
    }
    /* A block a head. Where there are more heads than fit at once, Hopper's blocks go from head to head, two a multiprocessor. */
    const uint64_t heads = (uint64_t)s->nv * batch, places = 2 * (uint64_t)(f->sm_count ? f->sm_count : SM_FALLBACK);
    if (woa_stays(s) && heads > places)
        gpu_take(d, entry, (uint32_t)places, 1, STEP_BLOCK, s->k_dim * s->v_dim * 4);
    else
        gpu_take(d, entry, s->nv, batch, STEP_BLOCK, s->k_dim * s->v_dim * 4);
}

void gpu_decide_step(const gpu_facts *f, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d) {
    const uint32_t op = s->base.op;
    const uint32_t rows = op == GDN_OP_VERIFY ? u32 ? u32[GDN_VERIFY_U_ROWS] : s->max_rows
                          : op == GDN_OP_FOLD ? u32 ? u32[GDN_FOLD_U_K_ROWS] : s->max_rows
                                              : 1;
    const uint32_t batch = !u32                  ? s->max_batch
                           : op == GDN_OP_DECODE ? u32[GDN_DECODE_U_BATCH]
                           : op == GDN_OP_VERIFY ? u32[GDN_VERIFY_U_BATCH]
                                                 : u32[1];
    gpu_workspace w;
    gpu_rule_workspace(s, false, &w);
    d->route.workspace_bytes = w.total;
    if (op == GDN_OP_VERIFY_WOA) {
        decide_woa(f, s, u32, d);
    } else {
        const uint32_t guard = gdn__rule_pick(s, rows);
        if (guard < GDN__RULE_TAKEN) {
            d->guard = GDN__G_RULE + guard;
            gpu_refuse(d, gdn__rule_guard_text(guard));
            return;
        }
        const uint32_t fold = gdn__by_sequence(&s->base) ? (uint32_t)GPU_E_FOLD_SEQ : (uint32_t)GPU_E_FOLD;
        const bool bf16 = gdn__bf16_state(s);
        const uint32_t verify_split = rows <= 4 ? (uint32_t)GPU_E_WY4_SPLIT : (uint32_t)GPU_E_WYN_SPLIT;
        const uint32_t parts = op == GDN_OP_VERIFY   ? parts_of(f, verify_wants(f, s, rows, batch), verify_split, d)
                               : op == GDN_OP_FOLD   ? fold_parts(f, s, batch)
                               : op != GDN_OP_DECODE ? 1
                               : bf16                ? 2
                                                     : parts_of(f, decode_wants(f, s, batch), GPU_E_DECODE_SPLIT, d);
        const uint32_t decode = bf16 ? (uint32_t)GPU_E_DECODE16 : parts > 1 ? (uint32_t)GPU_E_DECODE_SPLIT : (uint32_t)GPU_E_DECODE;
        const uint32_t entry = op == GDN_OP_DECODE ? decode : op == GDN_OP_VERIFY ? verify_entry(s, rows, parts) : fold;
        const uint32_t block = entry == GPU_E_DECODE_SPLIT ? 2048 / parts : op == GDN_OP_VERIFY && parts > 1 ? 1024 / parts : STEP_BLOCK;
        gpu_take(d, entry, parts * s->nv, batch, block, 0);
    }
    if (d->status == GDN_OK && (batch > GRID_Y || s->nv > (1u << 28))) gpu_refuse(d, "more than 65535 sequences in a launch");
}

/* The entries that launches of a plan may come to. Heads of 128 go in parts up to four rows, so that the forms for a fixed number of rows
 * are those of other heads. */
static uint32_t may_run(const gdn_plan *p, uint32_t list[4]) {
    const gdn_rule_shape *s = &p->shape.rule;
    uint32_t n = 0;
    switch (s->base.op) {
    case GDN_OP_DECODE:
        list[n++] = GPU_E_DECODE;
        if (s->k_dim == 128) list[n++] = GPU_E_DECODE_SPLIT;
        return n;
    case GDN_OP_VERIFY:
        list[n++] = GPU_E_WYN;
        if (s->k_dim == 128 && gpu_has(p->present, GPU_E_WY4_SPLIT)) {
            list[n++] = GPU_E_WY4_SPLIT;
            if (s->max_rows > 4) list[n++] = GPU_E_WYN_SPLIT;
            return n;
        }
        for (uint32_t rows = 2; rows <= 4 && rows <= s->max_rows && !gdn__by_sequence(&s->base); rows++)
            list[n++] = rows == 2 ? GPU_E_WY2 : rows == 3 ? GPU_E_WY3 : GPU_E_WY4;
        return n;
    case GDN_OP_FOLD: list[n++] = GPU_E_FOLD; return n;
    default: list[n++] = GPU_E_WOA; return n;
    }
}

/* What launches may come to; where one of these is lost others may take its place, and are bound as well. */
static gdn_status bind_list(gdn_plan *p, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    gdn_status st = GDN_OK;
    gpu_set before;
    do {
        uint32_t list[4];
        const uint32_t n = may_run(p, list);
        before = p->present;
        for (uint32_t i = 0; i < n && !st; i++)
            if (gpu_has(p->present, list[i]))
                st = gpu_bind_rule(p, list[i], gpu_step_form(s), list[i] == GPU_E_WOA ? s->k_dim * s->v_dim * 4 : 0,
                                   gpu_rule_may_be_core(s), err);
    } while (!st && memcmp(&p->present, &before, sizeof before) != 0);
    return st;
}

gdn_status gpu_bind_step(gdn_plan *p, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const uint32_t op = s->base.op;
    if (s->base.flags & GDN_BF16_STATE) {
        const uint32_t entry = op == GDN_OP_DECODE ? (uint32_t)GPU_E_DECODE16 : (uint32_t)GPU_E_WYN16;
        return gpu_has(p->present, entry) ? gpu_bind_rule(p, entry, gpu_step_form(s), 0, true, err) : GDN_OK;
    }
    if (s->state_type != GDN_F32 || (op == GDN_OP_VERIFY_WOA && !p->ctx->levers.woa)) return GDN_OK; /* the decision says why */
    if (!gdn__by_sequence(&s->base) || op == GDN_OP_VERIFY) return bind_list(p, err);
    const uint32_t entry = op == GDN_OP_FOLD ? (uint32_t)GPU_E_FOLD_SEQ : (uint32_t)GPU_E_WOA_SEQ;
    if (!gpu_has(p->present, entry)) return GDN_OK;
    return gpu_bind_form(p, entry, gpu_step_form(s), gpu_entry_name(entry), entry == GPU_E_WOA_SEQ ? s->k_dim * s->v_dim * 4 : 0,
                         &p->entry[entry], err);
}

/* The same in every build: one that is loaded does. */
gdn_status gpu_bind_flag_clear(gdn_plan *p, gdn_text *err) {
    const uint32_t entry = gdn__by_sequence(&p->shape.base) ? GPU_E_FLAG_CLEAR_SEQ : GPU_E_FLAG_CLEAR;
    if (!gpu_has(p->present, entry)) return GDN_OK;
    return gpu_form_entry(p, entry, gpu_form_at_hand(p->ctx, entry, 0, 0), gpu_entry_name(entry), &p->entry[entry], err);
}

/* ---- launches ---- */
static const gpu_rule_order orders[] = {
    [GDN_OP_DECODE] = { .query = GDN_DECODE_P_QUERY,
                        .key = GDN_DECODE_P_KEY,
                        .value = GDN_DECODE_P_VALUE,
                        .output = GDN_DECODE_P_OUTPUT,
                        .state = GDN_DECODE_P_STATE,
                        .state_out = GDN_DECODE_P_STATE_OUT,
                        .in_slots = GDN_DECODE_P_IN_SLOTS,
                        .out_slots = GDN_DECODE_P_OUT_SLOTS,
                        .fresh = GDN_DECODE_P_FRESH,
                        .ckpt = -1,
                        .cu = -1,
                        .workspace = GDN_DECODE_P_WORKSPACE,
                        .gate = GDN_DECODE_P_GATE,
                        .beta = GDN_DECODE_P_BETA,
                        .hi = -1 },
    [GDN_OP_VERIFY] = { .query = GDN_VERIFY_P_QUERY,
                        .key = GDN_VERIFY_P_KEY,
                        .value = GDN_VERIFY_P_VALUE,
                        .output = GDN_VERIFY_P_OUTPUT,
                        .state = GDN_VERIFY_P_STATE,
                        .state_out = GDN_VERIFY_P_STATE_OUT,
                        .in_slots = GDN_VERIFY_P_IN_SLOTS,
                        .out_slots = GDN_VERIFY_P_OUT_SLOTS,
                        .fresh = GDN_VERIFY_P_FRESH,
                        .ckpt = -1,
                        .cu = GDN_VERIFY_P_CU_ROWS,
                        .workspace = GDN_VERIFY_P_WORKSPACE,
                        .gate = GDN_VERIFY_P_GATE,
                        .beta = GDN_VERIFY_P_BETA,
                        .hi = GDN_VERIFY_P_HI },
    [GDN_OP_VERIFY_WOA] = { .query = GDN_VERIFY_WOA_P_QUERY,
                            .key = GDN_VERIFY_WOA_P_KEY,
                            .value = GDN_VERIFY_WOA_P_VALUE,
                            .output = GDN_VERIFY_WOA_P_OUTPUT,
                            .state = GDN_VERIFY_WOA_P_STATE,
                            .state_out = -1,
                            .in_slots = GDN_VERIFY_WOA_P_IN_SLOTS,
                            .out_slots = -1,
                            .fresh = GDN_VERIFY_WOA_P_FRESH,
                            .ckpt = -1,
                            .cu = GDN_VERIFY_WOA_P_CU_ROWS,
                            .workspace = GDN_VERIFY_WOA_P_WORKSPACE,
                            .gate = GDN_VERIFY_WOA_P_GATE,
                            .beta = GDN_VERIFY_WOA_P_BETA,
                            .hi = -1 },
    [GDN_OP_FOLD] = { .query = -1,
                      .key = -1,
                      .value = -1,
                      .output = -1,
                      .state = GDN_FOLD_P_STATE,
                      .state_out = -1,
                      .in_slots = GDN_FOLD_P_IN_SLOTS,
                      .out_slots = -1,
                      .fresh = GDN_FOLD_P_FRESH,
                      .ckpt = -1,
                      .cu = GDN_FOLD_P_CU_ROWS,
                      .workspace = -1,
                      .gate = -1,
                      .beta = -1,
                      .hi = GDN_FOLD_P_HI },
};
const gpu_rule_order *gpu_step_order(uint32_t op) {
    return &orders[op];
}

/* One launch: its arguments in the kernel's order. */
typedef struct step_call {
    const gdn_plan *p;
    const gdn__call *c;
    const gpu_rule_order *o;
    gpu_workspace w;
    gpu_rule_io io;
    uint32_t batch, rows;
} step_call;

static uint64_t at(const step_call *k, int32_t index) {
    return index < 0 ? 0 : k->c->ptr[index];
}

/* What every `_ext` entry of these operations appends first (GDN_STEP_EXT_ARGS
 * in gdn_rule.cuh). */
static void ext_args(const step_call *k, gpu_args *a) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const bool table = s->state_addr == GDN_STATE_TABLE;
    const uint64_t state = at(k, k->o->state), out = at(k, k->o->state_out), in = at(k, k->o->in_slots), to = at(k, k->o->out_slots);
    const uint64_t tables[] = { table ? state : 0, table ? out ? out : state : 0, k->io.fresh };
    const uint64_t slots[] = { in, to ? to : in };
    gpu_arg_list(a, tables, 3, NULL, 0);
    gpu_arg_f32(a, k->io.scale);
    gpu_arg_list(a, slots, 2, NULL, 0);
    gpu_arg_u64(a, table ? 0 : s->state_stride);
    gpu_arg_u64(a, out ? out : state);
}

static void decode_args(const step_call *k, gpu_args *a) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const uint64_t ptrs[] = { at(k, k->o->state), k->io.query,       k->io.key,          at(k, k->o->value),
                              at(k, k->o->gate),  at(k, k->o->beta), at(k, k->o->output) };
    const uint32_t sizes[] = { k->batch, s->nk, s->nv, s->k_dim, s->v_dim, k->io.qk_stride, s->v_stride, s->gb_stride, 0 };
    gpu_arg_list(a, ptrs, 7, sizes, 9);
    if (k->io.ext) ext_args(k, a);
    if (k->io.ext) gpu_arg_u64(a, s->num_slots); /* the split form's */
}

/* Where the state after row t goes: a table of addresses, or states hi_capacity
 * apart from sequence to sequence. */
static void verify_args(const step_call *k, uint32_t entry, gpu_args *a) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const bool table = s->state_addr == GDN_STATE_TABLE;
    const uint64_t hi = at(k, k->o->hi), one = (uint64_t)s->nv * s->k_dim * s->v_dim * 4;
    const uint64_t ptrs[] = { at(k, k->o->state), k->io.query,       k->io.key,          at(k, k->o->value),
                              at(k, k->o->gate),  at(k, k->o->beta), at(k, k->o->output) };
    gpu_arg_list(a, ptrs, 7, NULL, 0);
    if (entry == GPU_E_WYN || entry == GPU_E_WYN16 || entry == GPU_E_WY4_SPLIT || entry == GPU_E_WYN_SPLIT) {
        const uint32_t rows[] = { s->slab_entries, k->rows };
        gpu_arg_list(a, &hi, 1, rows, 2);
    } else {
        const uint64_t step = table ? 8ull * s->slab_entries : one;
        for (uint32_t t = 0; t + 1 < k->rows; t++) gpu_arg_u64(a, hi ? hi + t * step : 0);
    }
    const uint32_t sizes[] = { k->batch, s->nk, s->nv, s->k_dim, s->v_dim, k->io.qk_stride, s->v_stride, s->gb_stride, table };
    gpu_arg_list(a, NULL, 0, sizes, 9);
    if (!k->io.ext) return;
    ext_args(k, a);
    gpu_arg_u64(a, k->io.cu);
    gpu_arg_u32(a, s->hi_capacity);
    if (entry == GPU_E_WYN16) return;
    gpu_arg_u64(a, k->c->ptr[GDN_VERIFY_P_SEQ_IDS]);
    gpu_arg_u64(a, k->c->ptr[GDN_VERIFY_P_RECORD]);
}

static void woa_args(const step_call *k, gpu_args *a) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const uint64_t ptrs[] = { at(k, k->o->state), k->io.query,       k->io.key,           at(k, k->o->value),
                              at(k, k->o->gate),  at(k, k->o->beta), at(k, k->o->output), k->c->ptr[GDN_VERIFY_WOA_P_STASH] };
    const uint32_t sizes[] = { k->batch,    s->nk,        s->nv,
                               s->k_dim,    s->v_dim,     k->io.qk_stride,
                               s->v_stride, s->gb_stride, (uint32_t)s->stash_stride };
    gpu_arg_list(a, ptrs, 8, sizes, 9);
    gpu_arg_u64(a, k->c->ptr[GDN_VERIFY_WOA_P_FLAG]);
    if (k->io.ext) ext_args(k, a);
    if (!gdn__by_sequence(&s->base)) return;
    gpu_arg_u64(a, k->io.cu);
    gpu_arg_u64(a, k->c->ptr[GDN_VERIFY_WOA_P_SEQ_IDS]);
}

static void fold_args(const step_call *k, gpu_args *a) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const bool table = s->state_addr == GDN_STATE_TABLE;
    const uint64_t ptrs[] = { at(k, k->o->state), k->c->ptr[GDN_FOLD_P_STASH], k->c->ptr[GDN_FOLD_P_NA], k->c->ptr[GDN_FOLD_P_HI] };
    const uint32_t sizes[] = { k->rows, k->batch, s->nk, s->nv, s->k_dim, s->v_dim, (uint32_t)s->stash_stride };
    const bool by_sequence = gdn__by_sequence(&s->base);
    gpu_arg_list(a, ptrs, 4, &s->slab_entries, 1);
    gpu_arg_u64(a, k->c->ptr[GDN_FOLD_P_FLAG]);
    gpu_arg_list(a, NULL, 0, sizes + by_sequence, 7 - by_sequence);
    if (!k->io.ext) return;
    const uint32_t tail[] = { table, s->hi_capacity };
    ext_args(k, a);
    if (!by_sequence) gpu_arg_u64(a, k->io.cu);
    gpu_arg_list(a, NULL, 0, tail, 2);
    if (by_sequence) gpu_arg_u64(a, k->c->ptr[GDN_FOLD_P_SEQ_IDS]);
}

gdn_status gpu_launch_step(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const uint32_t op = s->base.op;
    step_call k = { .p = p, .c = c, .o = &orders[op], .batch = d->dims.grid[1] };
    if (op == GDN_OP_VERIFY_WOA) k.batch = c->u32[GDN_VERIFY_WOA_U_BATCH];
    k.rows = op == GDN_OP_VERIFY ? c->u32[GDN_VERIFY_U_ROWS] : op == GDN_OP_FOLD ? c->u32[GDN_FOLD_U_K_ROWS] : 1;
    gpu_rule_workspace(s, false, &k.w);
    if (op == GDN_OP_VERIFY_WOA && !(c->ptr[GDN_VERIFY_WOA_P_STATE] && c->ptr[GDN_VERIFY_WOA_P_STASH] && c->ptr[GDN_VERIFY_WOA_P_FLAG]))
        return gdn__fail(err, GDN_E_ARG, "%s", GDN_WOA_NULL_TEXT);
    if (s->stash_stride > UINT32_MAX) return gdn__fail(err, GDN_E_ARG, "%s: stash_stride is above 2^32 - 1", gdn__op_name(op));
    gdn_status st = gpu_rule_check(p, c, k.o, true, k.w.total, err);
    if (!st) st = gpu_rule_offsets(p, c, k.o, &k.w, k.batch, stream, &k.io, err);
    if (st) return st;
    /* The core's forms: decode and verify on states of one launch in place;
     * write-on-accept and fold on a table. */
    const bool table = s->state_addr == GDN_STATE_TABLE, deferred = op == GDN_OP_VERIFY_WOA || op == GDN_OP_FOLD;
    k.io.ext = k.io.ext || s->offsets || table != deferred || s->state_addr == GDN_STATE_POOL || gdn__by_sequence(&s->base);
    /* A core entry's grid is fixed. */
    if (deferred && (d->dims.grid[0] != s->nv || d->dims.grid[1] != k.batch)) k.io.ext = true;
    if (!p->entry[d->entry]) k.io.ext = true;
    gpu_args a = { .n = 0 };
    switch (op) {
    case GDN_OP_DECODE: decode_args(&k, &a); break;
    case GDN_OP_VERIFY: verify_args(&k, d->entry, &a); break;
    case GDN_OP_VERIFY_WOA: woa_args(&k, &a); break;
    default: fold_args(&k, &a); break;
    }
    const bool seq = d->entry == GPU_E_WOA_SEQ || d->entry == GPU_E_FOLD_SEQ; /* one form, with every argument */
    return gpu_start(p, d->entry, k.io.ext && !seq, &d->dims, stream, &a, err);
}
