/* gpu_prefill.c - prefill: which kernels, the segments that bound the workspace, and the launches. Heads of 128 go through the two fast
 * kernels or the chunk pipeline (recompute_wu, a state spine, fwd_o), heads of 64 through the token-sequential kernel. */
#include "gpu_rule.h"
#include <stdio.h>
#include <string.h>

enum { GRID_YZ = 65535, FAST_READY = 32 /* words in front of the flags, gdn_fast.cuh */ };

/* Block and dynamic shared memory; the formulas stand in the heads of the kernels' files. */
static gdn_dims dims_of(uint32_t entry) {
    static const struct {
        uint32_t entry, block, smem;
    } rows[] = {
        { GPU_E_WU, 256, 33024 },
        { GPU_E_VFUSED, 256, 49412 },
        { GPU_E_VTILE, 512, 49412 },
        { GPU_E_PIPE, 256, 99336 },
        { GPU_E_FWD_O, 512, 98816 },
        { GPU_E_RECURRENT, 256, 0 },
        { GPU_E_FWD_O_MMA8, 512, 98816 },
        { GPU_E_TCFUSE_X2, 256, 88324 },
        { GPU_E_WU_HOPPER, 512, 79104 },
        { GPU_E_FWD_O_HOPPER, 512, 97536 },
        { GPU_E_FAST_PREPARE, 256, GPU_FAST_PREPARE_SMEM },
        { GPU_E_FAST_PREPARE_TWO, 256, GPU_FAST_PREPARE_SMEM },
        { GPU_E_FAST_FWD, 512, GPU_FAST_FWD_SMEM },
        { GPU_E_FAST_MANY, 512, GPU_FAST_MANY_SMEM },
        { GPU_E_FAST_CARRY, 512, GPU_FAST_FWD_SMEM },
        { GPU_E_FAST_JOIN, 256, 0 },
        { GPU_E_FAST_PASS, 512, GPU_FAST_FWD_SMEM },
        { GPU_E_FAST_WN_PREPARE, 256, GPU_WN_PREPARE_SMEM },
        { GPU_E_FAST_WN_FWD, 512, GPU_WN_FWD_SMEM },
        { GPU_E_FAST_WN_CARRY, 512, GPU_WN_FWD_SMEM },
        { GPU_E_FAST_WN_PASS, 512, GPU_WN_FWD_SMEM },
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].entry == entry) return (gdn_dims) { .grid = { 1, 1, 1 }, .block = { rows[i].block, 1, 1 }, .smem_bytes = rows[i].smem };
    return (gdn_dims) { 0 };
}

uint32_t gpu_scalar_spine(const gdn__levers *lv) {
    static const uint32_t entry[] = {
        [GDN__SPINE_VFUSED] = GPU_E_VFUSED, [GDN__SPINE_VTILE] = GPU_E_VTILE, [GDN__SPINE_PIPE] = GPU_E_PIPE
    };
    return entry[gdn__scalar_spine(lv->pipe, lv->vtile)];
}

static uint32_t chunks_of(uint64_t tokens) {
    return (uint32_t)((tokens + GDN_CHUNK - 1) / GDN_CHUNK);
}

/* Scratch chunks are enough for all of the launch, or for `segment` chunks of each sequence at a time. */
static uint32_t segment_of(const gdn_rule_shape *s, const gpu_workspace *w, uint32_t batch, uint32_t chunks) {
    uint64_t all = (uint64_t)batch * chunks;
    if (s->offsets && all > s->max_tokens / GDN_CHUNK + (uint64_t)batch) all = s->max_tokens / GDN_CHUNK + (uint64_t)batch;
    return all <= w->chunks || batch == 0 ? chunks : (uint32_t)(w->chunks / batch);
}

static void route_lever(gpu_decision *d, const char *key, const char *where, uint32_t source) {
    d->route.lever = key;
    d->route.lever_where = where;
    d->route.lever_source = source;
}
/* The lever that chose the scalar spine, if one did: values that are neither 1 nor 0 choose nothing. */
static void route_scalar(gpu_decision *d, const gdn__levers *lv) {
    const uint32_t spine = gdn__scalar_spine(lv->pipe, lv->vtile);
    if (lv->prefill_tc && lv->no_prefill_tc)
        route_lever(d, "gdn_no_prefill_tc", lv->no_tc_where, lv->no_tc_source);
    else if (spine == GDN__SPINE_VTILE)
        route_lever(d, "gdn_vtile", lv->vtile_where, lv->vtile_source);
    else if (spine == GDN__SPINE_VFUSED || (lv->pipe && strcmp(lv->pipe, "1") == 0))
        route_lever(d, "gdn_pipe", lv->pipe_where, lv->pipe_source);
}
static void route_guard(gpu_decision *d, uint32_t guard, const char *text) {
    d->guard = guard;
    d->route.chosen = 0;
    d->route.guard = text;
}

static bool has_wn(gpu_set present, const gdn__levers *lv) {
    return lv->prefill_wn && gpu_has(present, GPU_E_FAST_WN_PREPARE) && gpu_has(present, GPU_E_FAST_WN_FWD);
}
static bool has_fast(gpu_set present, const gdn__levers *lv) {
    return has_wn(present, lv) ||
           (gpu_has(present, GPU_E_FAST_PREPARE) && gpu_has(present, GPU_E_FAST_PREPARE_TWO) && gpu_has(present, GPU_E_FAST_FWD));
}
/* The kernels of segments, in their order. */
static const uint32_t segment_kernels[2][3] = { { GPU_E_FAST_CARRY, GPU_E_FAST_JOIN, GPU_E_FAST_PASS },
                                                { GPU_E_FAST_WN_CARRY, GPU_E_FAST_JOIN, GPU_E_FAST_WN_PASS } };
static bool has_segments(gpu_set present, bool wn) {
    const uint32_t *const e = segment_kernels[wn];
    return gpu_has(present, e[0]) && gpu_has(present, e[1]) && gpu_has(present, e[2]);
}

/* The pass: where blocks have several short tasks each, the kernel that runs on from one to the next. Measured on an H200: it gains 2 %
 * with 16 chunks a task, 20 % with two, and nothing with 32. */
static uint32_t pass_of(gpu_set present, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks, const gpu_fast_share *share) {
    enum { SHORT = 24 };
    const bool many = !s->ckpt_every && chunks <= SHORT && 2ull * s->nv * batch > share->blocks - share->helpers;
    return many && gpu_has(present, GPU_E_FAST_MANY) ? GPU_E_FAST_MANY : GPU_E_FAST_FWD;
}

/* A build that failed says so itself. */
static const char *fast_text(const gpu_facts *f, uint32_t guard) {
    const char *lost = gpu_lost(f, GPU_E_FAST_FWD);
    if (!lost) lost = gpu_lost(f, GPU_E_FAST_PREPARE);
    if (!lost) lost = gpu_lost(f, GPU_E_FAST_PREPARE_TWO);
    return guard == GDN__FAST_KERNEL_ABSENT && lost ? lost : gdn__fast_guard_text(guard);
}
static const char *wn_text(const gpu_facts *f) {
    const char *lost = gpu_lost(f, GPU_E_FAST_WN_FWD);
    if (!lost) lost = gpu_lost(f, GPU_E_FAST_WN_PREPARE);
    return lost ? lost : gdn__fast_guard_text(GDN__FAST_KERNEL_ABSENT);
}
static const char *tc_text(const gpu_facts *f, uint32_t guard) {
    const char *const lost = gpu_lost(f, GPU_E_TCFUSE_X2);
    return guard == GDN__TC_KERNEL_ABSENT && lost ? lost : gdn__tc_guard_text(guard);
}

/* The fast prefill runs: by W and N, or by T and P. */
static void decide_fast(const gpu_facts *f, const gdn_rule_shape *s, uint32_t batch, uint32_t len, const gpu_workspace *w,
                        gpu_decision *d) {
    const gdn__levers *const lv = f->levers;
    gpu_prefill *const r = &d->prefill;
    if (w->fast_segment && has_segments(f->present, r->wn)) {
        d->route.split_tokens = w->fast_segment * GDN_CHUNK;
        if (len / GDN_CHUNK >= w->fast_segment) r->fast_segment = w->fast_segment; /* one that ends before: the same bytes either way */
    }
    const uint64_t tasks = 2ull * s->nv * batch;
    uint32_t pass, blocks;
    if (r->fast_segment) {
        pass = segment_kernels[r->wn][2];
        blocks = gpu_fast_blocks(f->sm_count, tasks * ((r->chunks + r->fast_segment - 1) / r->fast_segment));
    } else if (r->wn) {
        pass = GPU_E_FAST_WN_FWD;
        blocks = gpu_fast_blocks(f->sm_count, tasks);
    } else {
        const gpu_fast_share share = gpu_share_fast(f->sm_count, s, batch, r->segment);
        pass = pass_of(f->present, s, batch, r->segment, &share);
        blocks = share.blocks;
    }
    if (lv->prefill_wn) {
        route_lever(d, "gdn_prefill_fast_wn", lv->wn_where, lv->wn_source);
        if (!r->wn) r->wn_text = wn_text(f);
    } else {
        route_lever(d, "gdn_prefill_fast", lv->fast_where, lv->fast_source);
    }
    if (r->wn_text) gpu_declined(d, "gdn_prefill_fast_wn", r->wn_text);
    const gdn_dims dims = dims_of(pass);
    gpu_take(d, pass, blocks, 1, dims.block[0], dims.smem_bytes);
    if (r->wn_text) {
        d->route.chosen = 0;
        d->route.guard = r->wn_text;
    }
}

void gpu_decide_prefill(const gpu_facts *f, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d) {
    const gdn__levers *lv = f->levers;
    const uint32_t batch = u32 ? u32[GDN_PREFILL_U_BATCH] : s->max_batch, rule = gdn__rule_pick(s, 0);
    const bool requested = lv->prefill_tc && !lv->no_prefill_tc, small = s->k_dim == 64;
    const uint32_t len = u32 && (u32[GDN_PREFILL_U_SEQ_LEN] || !s->offsets) ? u32[GDN_PREFILL_U_SEQ_LEN] : s->max_tokens;
    gpu_prefill *const r = &d->prefill;
    gpu_workspace w;
    if (rule != GDN__RULE_TAKEN) {
        d->guard = GDN__G_RULE + rule;
        gpu_refuse(d, gdn__rule_guard_text(rule));
        return;
    }
    r->wn = has_wn(f->present, lv);
    r->wn_text = NULL;
    gpu_rule_workspace(s, r->wn, &w);
    d->route.workspace_bytes = w.total;
    if (batch > GRID_YZ || s->nv > GRID_YZ) {
        gpu_refuse(d, "more than 65535 sequences or value heads in a launch");
        return;
    }
    if (!small && w.chunks < batch) {
        gpu_refuse(d, "max_workspace holds less than one chunk of every sequence");
        return;
    }
    r->tc_guard = gdn__tc_pick(requested, gpu_has(f->present, GPU_E_TCFUSE_X2), s->k_dim, s->v_dim, GDN_CHUNK, s->qk_stride);
    r->tc_text = tc_text(f, r->tc_guard);
    const bool tc = r->tc_guard == GDN__TC_TAKEN;
    r->wu = tc && gpu_has(f->present, GPU_E_WU_HOPPER) ? GPU_E_WU_HOPPER : GPU_E_WU;
    r->spine = tc ? GPU_E_TCFUSE_X2 : small ? GPU_E_RECURRENT : gpu_scalar_spine(lv);
    r->fwd_o = lv->no_mma8 ? GPU_E_FWD_O : tc && gpu_has(f->present, GPU_E_FWD_O_HOPPER) ? GPU_E_FWD_O_HOPPER : GPU_E_FWD_O_MMA8;
    r->chunks = chunks_of(len);
    r->fast_segment = 0;
    d->route.split_tokens = GDN_CHUNK;
    r->segment = small ? r->chunks : segment_of(s, &w, batch, r->chunks);
    r->fast_guard = gdn__fast_pick(lv->prefill_fast, has_fast(f->present, lv), s);
    r->fast_text = fast_text(f, r->fast_guard);
    if (r->fast_guard == GDN__FAST_TAKEN) {
        decide_fast(f, s, batch, len, &w, d);
        return;
    }
    if (lv->prefill_fast) gpu_declined(d, "gdn_prefill_fast", r->fast_text);
    if (requested && !tc) gpu_declined(d, "gdn_prefill_tc", r->tc_text);
    if (requested) {
        route_lever(d, "gdn_prefill_tc", lv->tc_where, lv->tc_source);
        if (!tc) route_guard(d, GDN__G_TC + r->tc_guard, r->tc_text);
    } else if (!small) {
        route_scalar(d, lv);
    }
    if (lv->prefill_fast && !d->route.guard) { /* asked for before the spine: its refusal is the answer unless that was refused too */
        route_lever(d, "gdn_prefill_fast", lv->fast_where, lv->fast_source);
        route_guard(d, GDN__G_FAST + r->fast_guard, r->fast_text);
    }
    if (!small && !(gpu_has(f->present, r->wu) && gpu_has(f->present, r->fwd_o))) return; /* absent */
    const gdn_dims dims = dims_of(r->spine);
    gpu_take(d, r->spine, s->nv, batch, dims.block[0], dims.smem_bytes);
}

/* Where the fast kernels run, the others are for pointers that those do not take, and get tables. */
static gdn_status bind(gdn_plan *p, uint32_t entry, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const gdn__levers *const lv = &p->ctx->levers;
    const bool core = gpu_rule_may_be_core(s) && gdn__fast_pick(lv->prefill_fast, has_fast(p->present, lv), s) != GDN__FAST_TAKEN;
    return gpu_bind_rule(p, entry, gpu_rule_form(s), dims_of(entry).smem_bytes, core, err);
}

/* The tensor-core kernels: what does not load is lost, and the plan has the scalar ones. */
static gdn_status bind_tc(gdn_plan *p, gdn_text *err) {
    static const uint32_t all[] = { GPU_E_TCFUSE_X2, GPU_E_WU_HOPPER, GPU_E_FWD_O_HOPPER };
    gdn_status st = GDN_OK;
    for (uint32_t i = 0; i < sizeof all / sizeof *all && !st; i++)
        if (gpu_has(p->present, all[i])) st = bind(p, all[i], err);
    return st;
}

/* Fast kernels, one form of each; lost in the same way. */
static gdn_status bind_those(gdn_plan *p, const uint32_t *entries, uint32_t n, gdn_text *err) {
    const gdn_rule_shape *const s = &p->shape.rule;
    gdn_status st = GDN_OK;
    for (uint32_t i = 0; i < n && !st; i++) {
        const uint32_t e = entries[i];
        const bool ext = (e == GPU_E_FAST_FWD || e == GPU_E_FAST_WN_FWD) && s->ckpt_every;
        if (!gpu_has(p->present, e) || (e == GPU_E_FAST_MANY && s->ckpt_every)) continue;
        st = gpu_bind_form(p, e, gpu_rule_form(s) | (ext ? (uint32_t)GPU_HALF : 0u), ext ? gpu_ext_name(e) : gpu_entry_name(e),
                           dims_of(e).smem_bytes, ext ? &p->ext[e] : &p->entry[e], err);
    }
    return st;
}
/* Those by W and N where they are asked for, those by T and P where the others cannot be had. Those of segments where the plan has
 * segments. */
static gdn_status bind_fast(gdn_plan *p, gdn_text *err) {
    static const uint32_t kernels[] = { GPU_E_FAST_PREPARE, GPU_E_FAST_PREPARE_TWO, GPU_E_FAST_FWD, GPU_E_FAST_MANY },
                          kernels_wn[] = { GPU_E_FAST_WN_PREPARE, GPU_E_FAST_WN_FWD };
    const gdn__levers *const lv = &p->ctx->levers;
    gdn_status st = has_wn(p->present, lv) ? bind_those(p, kernels_wn, 2, err) : GDN_OK;
    const bool wn = has_wn(p->present, lv);
    gpu_workspace w;
    gpu_rule_workspace(&p->shape.rule, wn, &w);
    if (!st && !wn) st = bind_those(p, kernels, 4, err);
    return st || !w.fast_segment ? st : bind_those(p, segment_kernels[wn], 3, err);
}

gdn_status gpu_bind_prefill(gdn_plan *p, gdn_text *err) {
    const gdn__levers *lv = &p->ctx->levers;
    const gdn_rule_shape *s = &p->shape.rule;
    if (gdn__rule_pick(s, 0) != GDN__RULE_TAKEN) return GDN_OK; /* the decision says why */
    const uint32_t scalar[] = { GPU_E_WU, gpu_scalar_spine(lv), lv->no_mma8 ? GPU_E_FWD_O : GPU_E_FWD_O_MMA8 },
                   sequential[] = { GPU_E_RECURRENT };
    const bool small = s->k_dim == 64;
    const uint32_t *const need = small ? sequential : scalar;
    gdn_status st = GDN_OK;
    for (uint32_t i = 0; i < (small ? 1u : 3u) && !st; i++)
        if (gpu_has(p->present, need[i])) st = bind(p, need[i], err);
    if (!st && lv->prefill_tc && !lv->no_prefill_tc && !small) st = bind_tc(p, err);
    return st || !lv->prefill_fast || small ? st : bind_fast(p, err);
}

/* The decision without a lever; what was asked for, and why it is not so, stays. */
static void without(const gpu_facts *f, const gdn_rule_shape *s, const gdn__call *c, gdn__levers *levers, bool *lever, uint32_t guard,
                    const char *text, gpu_decision *d) {
    const gpu_facts less = { levers, f->present, f->sm_count, f->lost };
    const gdn_route asked = d->route;
    *lever = false;
    gpu_decide_prefill(&less, s, c->u32, d);
    d->route = asked;
    route_guard(d, guard, text);
}

void gpu_prefill_base(const gpu_facts *f, const gdn_rule_shape *s, const gdn__call *c, gpu_decision *d) {
    const bool copies = (s->base.flags & GDN_QK_L2NORM) != 0; /* of query and key: aligned */
    const uint64_t qk = copies ? 0 : c->ptr[GDN_PREFILL_P_QUERY] | c->ptr[GDN_PREFILL_P_KEY];
    gdn__levers levers = *f->levers;
    if (d->prefill.fast_guard == GDN__FAST_TAKEN && (qk | c->ptr[GDN_PREFILL_P_VALUE] | c->ptr[GDN_PREFILL_P_OUTPUT]) % 16) {
        without(f, s, c, &levers, &levers.prefill_fast, GDN__G_FAST + GDN__FAST_BASE, gdn__fast_guard_text(GDN__FAST_BASE), d);
        d->prefill.fast_guard = GDN__FAST_BASE;
        d->prefill.fast_text = gdn__fast_guard_text(GDN__FAST_BASE);
    }
    const uint32_t fast = d->prefill.fast_guard;
    const char *const text = d->prefill.fast_text;
    if (fast == GDN__FAST_TAKEN || d->prefill.tc_guard != GDN__TC_TAKEN || copies || c->ptr[GDN_PREFILL_P_KEY] % 16 == 0) return;
    without(f, s, c, &levers, &levers.prefill_tc, GDN__G_TC + GDN__TC_BASE, gdn__tc_guard_text(GDN__TC_BASE), d);
    d->prefill.tc_guard = GDN__TC_BASE;
    d->prefill.tc_text = gdn__tc_guard_text(GDN__TC_BASE);
    d->prefill.fast_guard = fast;
    d->prefill.fast_text = text;
}

static const gpu_rule_order order = {
    .query = GDN_PREFILL_P_QUERY,
    .key = GDN_PREFILL_P_KEY,
    .value = GDN_PREFILL_P_VALUE,
    .output = GDN_PREFILL_P_OUTPUT,
    .state = GDN_PREFILL_P_STATE,
    .state_out = GDN_PREFILL_P_STATE_OUT,
    .in_slots = GDN_PREFILL_P_IN_SLOTS,
    .out_slots = GDN_PREFILL_P_OUT_SLOTS,
    .fresh = GDN_PREFILL_P_FRESH,
    .ckpt = GDN_PREFILL_P_CKPT,
    .cu = GDN_PREFILL_P_CU_SEQLENS,
    .workspace = GDN_PREFILL_P_WORKSPACE,
    .gate = GDN_PREFILL_P_GATE,
    .beta = GDN_PREFILL_P_BETA,
    .hi = -1,
};
const gpu_rule_order *gpu_prefill_order(void) {
    return &order;
}

/* One launch of a prefill: what all of its kernels are given. */
typedef struct prefill_call {
    const gdn_plan *p;
    const gdn__call *c;
    const gpu_decision *d;
    gpu_workspace w;
    gpu_rule_io io;
    void *stream;
    uint32_t batch, seq_len;
} prefill_call;

/* gdn_rule_ext's fields for the chunks [begin, end). A later segment starts where the one before has written. */
static void ext_args(const prefill_call *k, uint32_t begin, uint32_t end, gpu_args *a) {
    if (!k->io.ext) return;
    const bool later = begin > 0;
    const uint64_t ptrs[] = { later ? k->io.out_tab : k->io.in_tab, k->io.out_tab, later ? 0 : k->io.fresh, k->c->ptr[GDN_PREFILL_P_CKPT] };
    const uint32_t tail[] = { begin, end, k->io.from_first };
    gpu_arg_list(a, ptrs, 4, &k->p->shape.rule.ckpt_every, 1);
    gpu_arg_f32(a, k->io.scale);
    gpu_arg_list(a, NULL, 0, tail, 3);
}

static uint64_t at(const prefill_call *k, uint64_t offset) {
    return k->c->ptr[GDN_PREFILL_P_WORKSPACE] + offset;
}

static gdn_status start(const prefill_call *k, uint32_t entry, uint32_t gx, uint32_t gy, uint32_t gz, gpu_args *a, gdn_text *err) {
    gdn_dims dims = dims_of(entry);
    dims.grid[0] = gx;
    dims.grid[1] = gy;
    dims.grid[2] = gz;
    return gpu_start(k->p, entry, k->io.ext, &dims, k->stream, a, err);
}

static gdn_status chunks(const prefill_call *k, uint32_t begin, uint32_t end, gdn_text *err) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const gpu_prefill *r = &k->d->prefill;
    const uint64_t gate = k->c->ptr[GDN_PREFILL_P_GATE], cu[] = { k->io.cu, 0 };
    const uint32_t n = end - begin, varlen = s->offsets != GDN_OFFSETS_NONE;
    const uint32_t sizes[] = { k->batch, k->seq_len, r->chunks, s->nk, s->nv, s->k_dim, s->v_dim, k->io.qk_stride };
    const uint32_t strides[] = { s->v_stride, s->gb_stride }, table = 0;
    gdn_status st = GDN_OK;
    if (n) {
        const uint64_t ptrs[] = {
            k->io.key, k->c->ptr[GDN_PREFILL_P_VALUE], gate, k->c->ptr[GDN_PREFILL_P_BETA], at(k, k->w.W), at(k, k->w.U), at(k, k->w.gc)
        };
        gpu_args a = { .n = 0 };
        gpu_arg_list(&a, ptrs, 7, sizes, 8);
        gpu_arg_list(&a, NULL, 0, strides, 2);
        gpu_arg_list(&a, cu, 2, &varlen, 1);
        ext_args(k, begin, end, &a);
        if ((st = start(k, r->wu, n, s->nv, k->batch, &a, err))) return st;
    }
    {
        const uint64_t ptrs[] = {
            k->c->ptr[GDN_PREFILL_P_STATE], at(k, k->w.W), at(k, k->w.U), k->io.key, gate, at(k, k->w.gc), at(k, k->w.S), at(k, k->w.uc)
        };
        gpu_args a = { .n = 0 };
        gpu_arg_list(&a, ptrs, 8, sizes, 8);
        gpu_arg_list(&a, NULL, 0, &strides[1], 1);
        gpu_arg_u32(&a, table);
        gpu_arg_list(&a, cu, 2, &varlen, 1);
        ext_args(k, begin, end, &a);
        if ((st = start(k, r->spine, s->nv, k->batch, 1, &a, err))) return st;
    }
    if (n) {
        const uint64_t ptrs[] = {
            k->io.query, k->io.key, gate, at(k, k->w.gc), at(k, k->w.S), at(k, k->w.uc), k->c->ptr[GDN_PREFILL_P_OUTPUT]
        };
        gpu_args a = { .n = 0 };
        gpu_arg_list(&a, ptrs, 7, sizes, 8);
        gpu_arg_list(&a, NULL, 0, &strides[1], 1);
        gpu_arg_list(&a, cu, 2, &varlen, 1);
        ext_args(k, begin, end, &a);
        st = start(k, r->fwd_o, n, s->nv, k->batch, &a, err);
    }
    return st;
}

/* Behind the preparing kernel: what each full segment does to a state, the states in front of all, and the pass of all. */
static gdn_status segments(const prefill_call *k, gdn_text *err) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const gpu_prefill *r = &k->d->prefill;
    const uint32_t sms = k->p->ctx->device.sm_count, varlen = s->offsets != GDN_OFFSETS_NONE, n = r->fast_segment;
    const uint32_t count = (r->chunks + n - 1) / n, full = varlen ? r->chunks / n : k->seq_len / (n * GDN_CHUNK);
    const uint64_t heads = (uint64_t)s->nv * k->batch;
    const uint64_t ptrs[] = { k->c->ptr[GDN_PREFILL_P_STATE],
                              k->c->ptr[GDN_PREFILL_P_VALUE],
                              k->c->ptr[GDN_PREFILL_P_OUTPUT],
                              at(k, k->w.fast_k),
                              at(k, k->w.fast_q),
                              at(k, k->w.fast_t),
                              at(k, k->w.fast_p),
                              at(k, k->w.fast_scalars) };
    const uint32_t sizes[] = { k->batch, k->seq_len, r->chunks, s->nk, s->nv, s->v_stride }, segment[] = { n, count };
    const uint64_t tables[] = { k->io.in_tab, k->io.out_tab, k->io.fresh };
    const uint64_t states[] = { at(k, k->w.fast_moved), at(k, k->w.fast_added), at(k, k->w.fast_begins) };
    const uint32_t *const entries = segment_kernels[r->wn], grids[][3] = {
        { full ? gpu_fast_blocks(sms, 4 * full * heads) : 0, 1, 1 },
        { s->nv, k->batch, 8 },
        { gpu_fast_blocks(sms, 2 * count * heads), 1, 1 },
    };
    gdn_status st = GDN_OK;
    for (uint32_t i = 0; i < 3 && !st; i++) {
        gdn_dims dims = dims_of(entries[i]);
        gpu_args a = { .n = 0 };
        if (!grids[i][0]) continue;
        gpu_arg_list(&a, ptrs, 8, sizes, 6);
        gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
        gpu_arg_list(&a, tables, 3, segment, 2);
        gpu_arg_list(&a, states, 3, NULL, 0);
        memcpy(dims.grid, grids[i], sizeof grids[i]);
        st = gpu_start(k->p, entries[i], false, &dims, k->stream, &a, err);
    }
    return st;
}

/* Flags and the two counters in front of them are cleared by the first kernel, for the second; without helpers neither looks. */
static gdn_status fast(const prefill_call *k, uint32_t begin, uint32_t end, gdn_text *err) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const uint32_t n = end - begin, varlen = s->offsets != GDN_OFFSETS_NONE, sms = k->p->ctx->device.sm_count;
    const gpu_fast_share share = k->d->prefill.fast_segment ? gpu_share_fast_all(sms, s, k->batch, n) : gpu_share_fast(sms, s, k->batch, n);
    const uint64_t rows = (uint64_t)n * k->batch < k->w.chunks ? (uint64_t)n * k->batch : k->w.chunks;
    const uint32_t words = share.helpers ? FAST_READY + (uint32_t)rows * s->nk : 0, tail[] = { begin, end, k->io.from_first };
    const uint64_t qk[] = { k->io.query, k->io.key }, gates[] = { k->c->ptr[GDN_PREFILL_P_GATE], k->c->ptr[GDN_PREFILL_P_BETA] };
    const uint64_t scratch[] = { at(k, k->w.fast_k), at(k, k->w.fast_q),       at(k, k->w.fast_t),
                                 at(k, k->w.fast_p), at(k, k->w.fast_scalars), at(k, k->w.fast_words) };
    const uint32_t sizes[] = { k->seq_len, k->d->prefill.chunks, s->nk, s->nv, k->io.qk_stride };
    const uint64_t tables[] = { begin && k->io.ext ? k->io.out_tab : k->io.in_tab, k->io.out_tab, begin ? 0 : k->io.fresh };
    if (n) {
        gdn_dims dims = dims_of(share.prepare);
        gpu_args a = { .n = 0 };
        gpu_arg_list(&a, qk, 2, NULL, 0);
        gpu_arg_list(&a, gates, 2, NULL, 0);
        gpu_arg_list(&a, scratch, 6, sizes, 5);
        gpu_arg_u32(&a, s->gb_stride);
        gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
        gpu_arg_list(&a, tables, 2, NULL, 0);
        gpu_arg_f32(&a, k->io.scale);
        gpu_arg_list(&a, NULL, 0, tail, 3);
        gpu_arg_u32(&a, words);
        gpu_arg_u32(&a, share.heads);
        dims.grid[0] = s->nk * ((s->nv / s->nk + share.heads - 1) / share.heads);
        dims.grid[1] = share.lead;
        dims.grid[2] = k->batch;
        const gdn_status st = gpu_start(k->p, share.prepare, false, &dims, k->stream, &a, err);
        if (st) return st;
    }
    if (k->d->prefill.fast_segment) return segments(k, err);
    const uint32_t strides[] = { s->v_stride, s->gb_stride };
    const uint32_t pass = pass_of(k->p->present, s, k->batch, n, &share);
    gdn_dims dims = dims_of(pass);
    gpu_args a = { .n = 0 };
    gpu_arg_u64(&a, k->c->ptr[GDN_PREFILL_P_STATE]);
    gpu_arg_list(&a, qk, 2, NULL, 0);
    gpu_arg_u64(&a, k->c->ptr[GDN_PREFILL_P_VALUE]);
    gpu_arg_list(&a, gates, 2, NULL, 0);
    gpu_arg_u64(&a, k->c->ptr[GDN_PREFILL_P_OUTPUT]);
    gpu_arg_list(&a, scratch, 6, &k->batch, 1);
    gpu_arg_list(&a, NULL, 0, sizes, 5);
    gpu_arg_list(&a, NULL, 0, strides, 2);
    gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
    gpu_arg_list(&a, tables, 3, NULL, 0);
    gpu_arg_f32(&a, k->io.scale);
    gpu_arg_list(&a, NULL, 0, tail, 3);
    gpu_arg_u32(&a, share.lead);
    gpu_arg_u32(&a, share.helpers);
    if (s->ckpt_every) {
        gpu_arg_u64(&a, k->c->ptr[GDN_PREFILL_P_CKPT]);
        gpu_arg_u32(&a, s->ckpt_every);
    }
    dims.grid[0] = share.blocks;
    return gpu_start(k->p, pass, s->ckpt_every != 0, &dims, k->stream, &a, err);
}

/* By W and N: what chunks need of their own tokens, then the pass. */
static gdn_status fast_wn(const prefill_call *k, uint32_t begin, uint32_t end, gdn_text *err) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const uint32_t n = end - begin, varlen = s->offsets != GDN_OFFSETS_NONE, sms = k->p->ctx->device.sm_count;
    const uint64_t scratch[] = { at(k, k->w.fast_k), at(k, k->w.fast_q), at(k, k->w.fast_t), at(k, k->w.fast_p), at(k, k->w.fast_scalars) };
    const uint64_t tables[] = { begin && k->io.ext ? k->io.out_tab : k->io.in_tab, k->io.out_tab, begin ? 0 : k->io.fresh };
    const uint32_t part[] = { begin, end };
    if (n) {
        const gpu_wn_share share = gpu_share_wn(sms, s, k->batch, n);
        const uint64_t tokens[] = { k->io.query, k->io.key, k->c->ptr[GDN_PREFILL_P_GATE], k->c->ptr[GDN_PREFILL_P_BETA] };
        const uint32_t sizes[] = { k->batch, k->seq_len, k->d->prefill.chunks, s->nk, s->nv, k->io.qk_stride, s->gb_stride };
        const uint32_t tail[] = { k->io.from_first, share.whole, share.heads };
        gdn_dims dims = dims_of(GPU_E_FAST_WN_PREPARE);
        gpu_args a = { .n = 0 };
        gpu_arg_list(&a, tokens, 4, NULL, 0);
        gpu_arg_list(&a, scratch, 5, sizes, 7);
        gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
        gpu_arg_list(&a, tables, 2, NULL, 0);
        gpu_arg_f32(&a, k->io.scale);
        gpu_arg_list(&a, NULL, 0, part, 2);
        gpu_arg_list(&a, NULL, 0, tail, 3);
        dims.grid[0] = share.blocks;
        const gdn_status st = gpu_start(k->p, GPU_E_FAST_WN_PREPARE, false, &dims, k->stream, &a, err);
        if (st) return st;
    }
    if (k->d->prefill.fast_segment) return segments(k, err);
    const uint64_t rows[] = { k->c->ptr[GDN_PREFILL_P_STATE], k->c->ptr[GDN_PREFILL_P_VALUE], k->c->ptr[GDN_PREFILL_P_OUTPUT] };
    const uint32_t sizes[] = { k->batch, k->seq_len, k->d->prefill.chunks, s->nk, s->nv, s->v_stride };
    gdn_dims dims = dims_of(GPU_E_FAST_WN_FWD);
    gpu_args a = { .n = 0 };
    gpu_arg_list(&a, rows, 3, NULL, 0);
    gpu_arg_list(&a, scratch, 5, sizes, 6);
    gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
    gpu_arg_list(&a, tables, 3, NULL, 0);
    gpu_arg_f32(&a, k->io.scale);
    gpu_arg_list(&a, NULL, 0, part, 2);
    if (s->ckpt_every) {
        gpu_arg_u64(&a, k->c->ptr[GDN_PREFILL_P_CKPT]);
        gpu_arg_u32(&a, s->ckpt_every);
    }
    dims.grid[0] = gpu_fast_blocks(sms, 2ull * s->nv * k->batch);
    return gpu_start(k->p, GPU_E_FAST_WN_FWD, s->ckpt_every != 0, &dims, k->stream, &a, err);
}

static gdn_status recurrent(const prefill_call *k, gdn_text *err) {
    const gdn_rule_shape *s = &k->p->shape.rule;
    const uint64_t ptrs[] = { k->c->ptr[GDN_PREFILL_P_STATE],
                              k->io.query,
                              k->io.key,
                              k->c->ptr[GDN_PREFILL_P_VALUE],
                              k->c->ptr[GDN_PREFILL_P_GATE],
                              k->c->ptr[GDN_PREFILL_P_BETA],
                              k->c->ptr[GDN_PREFILL_P_OUTPUT] };
    const uint32_t sizes[] = { k->batch, k->seq_len, s->nk, s->nv, s->k_dim, s->v_dim, k->io.qk_stride, s->v_stride, s->gb_stride, 0 };
    const uint32_t varlen = s->offsets != GDN_OFFSETS_NONE;
    gpu_args a = { .n = 0 };
    gpu_arg_list(&a, ptrs, 7, sizes, 10);
    gpu_arg_list(&a, &k->io.cu, 1, &varlen, 1);
    ext_args(k, 0, 0, &a);
    return start(k, GPU_E_RECURRENT, s->nv, k->batch, 1, &a, err);
}

gdn_status gpu_launch_prefill(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const gpu_prefill *r = &d->prefill;
    prefill_call k = {
        .p = p, .c = c, .d = d, .stream = stream, .batch = c->u32[GDN_PREFILL_U_BATCH], .seq_len = c->u32[GDN_PREFILL_U_SEQ_LEN]
    };
    const uint64_t rows = s->offsets ? s->max_tokens : (uint64_t)k.batch * k.seq_len;
    gpu_rule_workspace(s, r->wn, &k.w);
    gdn_status st = gpu_rule_check(p, c, &order, s->offsets || k.seq_len, k.w.total, err);
    if (st) return st;
    const bool only_ext = r->fast_guard != GDN__FAST_TAKEN && !p->entry[r->spine];
    const bool extras = r->segment < r->chunks || s->ckpt_every || only_ext;
    if ((st = gpu_rule_prepare(p, c, &order, &k.w, k.batch, (uint32_t)rows, extras, stream, &k.io, err))) return st;
    if (s->k_dim == 64) return recurrent(&k, err);
    uint32_t begin = 0;
    do {
        const uint32_t end = r->chunks - begin > r->segment ? begin + r->segment : r->chunks;
        st = r->fast_guard != GDN__FAST_TAKEN ? chunks(&k, begin, end, err)
             : r->wn                          ? fast_wn(&k, begin, end, err)
                                              : fast(&k, begin, end, err);
        if (st) return st;
        begin = end;
    } while (begin < r->chunks);
    return GDN_OK;
}
