/* gpu_rule.c - what the rule operations share: the form of their modules, the workspace's parts, and the small launches in front: state
 * tables from slots, int32 offsets, normalised copies of q and k. */
#include "gpu_rule.h"

static uint64_t up(uint64_t n) {
    return (n + 255) & ~(uint64_t)255;
}

uint32_t gpu_rule_form(const gdn_rule_shape *s) {
    return (s->state_layout == GDN_STATE_V_MAJOR ? GPU_RULE_VK : 0u) | (s->head_map == GDN_HEADS_TILED ? GPU_RULE_TILED : 0u) |
           (s->gate_form == GDN_GATE_LOG ? GPU_RULE_LOG : 0u);
}

static bool normalises(const gdn_rule_shape *s) {
    return (s->base.flags & GDN_QK_L2NORM) != 0;
}

/* The next part of the workspace. */
static uint64_t part(gpu_workspace *w, uint64_t bytes) {
    const uint64_t at = w->total;
    w->total += up(bytes);
    return at;
}

/* The fast kernels' scratch: 32,772 nk + 17,552 nv bytes a chunk, and 128, or by W and N 32,768 nk + 24,848 nv, are less than 82,176 nv. */
static void fast_workspace(const gdn_rule_shape *s, bool wn, uint64_t all, gpu_workspace *w) {
    const uint64_t heads = s->nv, tile = (uint64_t)GDN_CHUNK * 128 * 2;
    w->fast_k = w->W;
    w->fast_q = w->fast_k + w->chunks * s->nk * tile;
    w->fast_t = w->fast_q + w->chunks * s->nk * tile;
    w->fast_p = w->fast_t + w->chunks * heads * (wn ? tile : tile / 2);
    w->fast_scalars = w->fast_p + w->chunks * heads * (tile / 2);
    w->fast_words = w->fast_scalars + w->chunks * heads * (wn ? 272 : 1168);
    w->fast_moved = up(w->fast_words + (wn ? 0 : 4 * (32 + w->chunks * s->nk)));
    /* 196,608 nv bytes a segment, of 8 chunks at least: there is room where the batch is small, by W and N perhaps with longer ones, else
     * sequences pass as one. */
    const uint64_t each = heads * 128 * 128 * 4, room = w->total > w->fast_moved ? (w->total - w->fast_moved) / (3 * each) : 0; /* states */
    uint64_t segment = w->chunks == all ? gpu_fast_segment(s) : 0;
    if (segment && wn && room > s->max_batch) {
        const uint64_t least = all / (room - s->max_batch + 1) + 1;
        if (segment < least) segment = least;
    }
    const uint64_t states = segment ? (all / segment + s->max_batch) * each : 0;
    if (segment && w->fast_moved + 3 * states <= w->total) w->fast_segment = (uint32_t)segment;
    w->fast_added = w->fast_moved + states;
    w->fast_begins = w->fast_added + states;
}

void gpu_rule_workspace(const gdn_rule_shape *s, bool wn, gpu_workspace *w) {
    const uint64_t heads = s->nv, tile = (uint64_t)GDN_CHUNK * 128 * 2, rows = (uint64_t)s->max_tokens * s->nk * s->k_dim * 2;
    *w = (gpu_workspace) { 0 };
    if (s->offsets == GDN_OFFSETS_I64) w->cu = part(w, 4ull * (s->max_batch + 1ull));
    if (s->base.op != GDN_OP_PREFILL) return;
    w->in_tab = part(w, 8ull * s->max_batch);
    w->out_tab = part(w, 8ull * s->max_batch);
    if (normalises(s)) w->query = part(w, rows), w->key = part(w, rows);
    if (s->k_dim != 128) return;
    const uint64_t all = s->max_tokens / GDN_CHUNK + (uint64_t)s->max_batch, each = heads * (3 * tile + 128 * 128 * 2 + GDN_CHUNK * 4);
    const uint64_t room = s->max_workspace > w->total + 5 * 256 ? (s->max_workspace - w->total - 5 * 256) / each : 0;
    w->chunks = all < room ? all : room;
    w->W = part(w, w->chunks * heads * tile);
    w->U = part(w, w->chunks * heads * tile);
    w->uc = part(w, w->chunks * heads * tile);
    w->S = part(w, w->chunks * heads * 128 * 128 * 2);
    w->gc = part(w, w->chunks * heads * GDN_CHUNK * 4);
    fast_workspace(s, wn, all, w);
}

/* Every bit of a form is in the code, but for the fold's, which has neither q nor gates. */
static uint32_t looked_at(uint32_t entry) {
    return entry == GPU_E_FOLD || entry == GPU_E_FOLD_SEQ ? GPU_RULE_VK | GPU_RULE_TILED : GPU_HALF - 1u;
}

gdn_status gpu_bind_form(gdn_plan *p, uint32_t entry, uint32_t form, const char *name, uint32_t smem, void **out, gdn_text *err) {
    char why[256] = "";
    gdn_text text = { why, sizeof why, 0 };
    gdn_status st = gpu_form_entry(p, entry, gpu_form_at_hand(p->ctx, entry, form, looked_at(entry)), name, out, err);
    if (st || !*out || !(st = gpu_allow_smem(p->ctx, entry, *out, smem, &text))) return st;
    if (st == GDN_E_CAPTURE || st == GDN_E_FORKED) return gdn__fail(err, st, "%s", why);
    gpu_lose(p, entry, why, NULL);
    p->ctx->host.log(p->ctx->host.user, GDN_LOG_WARN, "modules", why);
    return GDN_OK;
}

gdn_status gpu_bind_rule(gdn_plan *p, uint32_t entry, uint32_t form, uint32_t smem, bool core, gdn_text *err) {
    const bool apart = gpu_has_core(entry);
    const gdn_status st = gpu_bind_form(p, entry, form, gpu_ext_name(entry), smem, &p->ext[entry], err);
    p->entry[entry] = NULL;
    if (st || (apart && !core)) return st;
    return gpu_bind_form(p, entry, form | (apart ? (uint32_t)GPU_HALF : 0u), gpu_entry_name(entry), smem, &p->entry[entry], err);
}

bool gpu_rule_may_be_core(const gdn_rule_shape *s) {
    const bool deferred = s->base.op == GDN_OP_VERIFY_WOA || s->base.op == GDN_OP_FOLD, prefill = s->base.op == GDN_OP_PREFILL;
    const float own = gdn__own_scale(s->k_dim);
    if (s->state_addr != (deferred ? GDN_STATE_TABLE : GDN_STATE_CONTIGUOUS)) return false;
    if (s->scale > 0 && (s->scale < own || s->scale > own)) return false;
    return prefill ? !normalises(s) && !s->ckpt_every : !s->offsets && !gdn__by_sequence(&s->base);
}

gdn_status gpu_start(const gdn_plan *p, uint32_t entry, bool ext, const gdn_dims *dims, void *stream, gpu_args *a, gdn_text *err) {
    void *const fn = ext ? p->ext[entry] : p->entry[entry];
    if (!fn) /* what the plan fell back on was lost to it */
        return gdn__fail(err, GDN_ABSENT, "%s: %s did not load", gdn__op_name(p->op->op),
                         ext ? gpu_ext_name(entry) : gpu_entry_name(entry));
    const gdn_status st = p->ctx->start(p->ctx->host.backend->user, fn, dims, stream, a->param);
    if (st)
        return gdn__fail(err, st, "%s: the launch of %s failed", gdn__op_name(p->op->op),
                         ext ? gpu_ext_name(entry) : gpu_entry_name(entry));
    atomic_fetch_add_explicit(&p->ctx->launched[entry], 1, memory_order_relaxed);
    return GDN_OK;
}

void gpu_arg_list(gpu_args *a, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32) {
    for (uint32_t i = 0; i < n_ptr; i++) gpu_arg_u64(a, ptr[i]);
    for (uint32_t i = 0; i < n_u32; i++) gpu_arg_u32(a, u32[i]);
}

static uint64_t given(const gdn__call *c, int32_t index) {
    return index < 0 ? 0 : c->ptr[index];
}

gdn_status gpu_rule_check(const gdn_plan *p, gdn__call *c, const gpu_rule_order *o, bool has_rows, uint64_t workspace, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const uint32_t state = s->state_addr == GDN_STATE_TABLE || gdn__bf16_state(s) ? 8 : 4, cu = s->offsets == GDN_OFFSETS_I64 ? 8 : 4;
    gdn_status st;
    if ((st = gdn__call_required(c, has_rows, err)) || (st = gdn__call_unused(&p->shape, c, err)) ||
        (st = gdn__call_by_sequence(&p->shape, c, err)) ||
        (st = gdn__rule_needed(s, given(c, o->cu) != 0, given(c, o->in_slots) != 0, given(c, o->ckpt) != 0, err)))
        return st;
    for (uint32_t i = 0; i < c->op->n_ptr; i++) {
        const int32_t k = (int32_t)i;
        const bool bytes = k == o->fresh, half = k == o->query || k == o->key || k == o->value || k == o->output;
        const bool states = k == o->state || k == o->state_out || k == o->hi;
        (void)gdn__call_ptr(c, i, bytes ? 1 : half ? 2 : states ? state : k == o->cu ? cu : k == o->workspace ? 16 : 4);
    }
    if ((st = gdn__call_bound(c, err))) return st;
    if (workspace && !given(c, o->workspace))
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'workspace' is NULL, the plan needs %llu bytes", gdn__op_name(p->op->op),
                         (unsigned long long)workspace);
    return gdn__call_apart(&p->shape, c, workspace, err);
}

/* Slots, or plain bases with another output, become tables; int64 offsets become int32. */
static gdn_status tables(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                         void *stream, gpu_rule_io *io, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const bool pool = s->state_addr == GDN_STATE_POOL, wide = s->offsets == GDN_OFFSETS_I64;
    const uint64_t ws = given(c, o->workspace), state = given(c, o->state), out = given(c, o->state_out);
    const uint64_t in_slots = given(c, o->in_slots), out_slots = given(c, o->out_slots);
    const bool make = io->ext && s->state_addr != GDN_STATE_TABLE;
    if (io->ext) {
        io->in_tab = make ? ws + w->in_tab : state;
        io->out_tab = make ? ws + w->out_tab : out ? out : state;
    }
    if (wide) io->cu = ws + w->cu;
    if (!make && !wide) return GDN_OK;
    gpu_args a = { .n = 0 };
    const uint64_t bases[] = { state, out ? out : state, in_slots, pool && out_slots ? out_slots : in_slots };
    gpu_arg_list(&a, bases, 4, NULL, 0);
    gpu_arg_u64(&a, s->state_stride * 4);
    const uint64_t made[] = { make ? io->in_tab : 0, make ? io->out_tab : 0, wide ? given(c, o->cu) : 0, wide ? io->cu : 0 };
    gpu_arg_list(&a, made, 4, &batch, 1);
    const gdn_dims dims = { .grid = { (batch + 1 + 255) / 256, 1, 1 }, .block = { 256, 1, 1 } };
    return gpu_start(p, GPU_E_TABLES, false, &dims, stream, &a, err);
}

static gdn_status normalise(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                            uint32_t rows, void *stream, gpu_rule_io *io, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    const uint64_t ws = given(c, o->workspace);
    const uint64_t ptrs[] = { io->query, io->key, ws + w->query, ws + w->key };
    const uint32_t counts[] = { rows, s->nk, s->k_dim, s->qk_stride };
    const uint64_t blocks = ((uint64_t)rows * s->nk + 7) / 8;
    gpu_args a = { .n = 0 };
    gpu_arg_list(&a, ptrs, 4, counts, 4);
    gpu_arg_list(&a, &io->cu, 1, &batch, 1);
    io->query = ptrs[2];
    io->key = ptrs[3];
    io->qk_stride = s->nk * s->k_dim;
    io->from_first = 1;
    if (blocks == 0) return GDN_OK;
    const gdn_dims dims = { .grid = { (uint32_t)blocks, 1, 1 }, .block = { 256, 1, 1 } };
    return gpu_start(p, GPU_E_L2NORM, false, &dims, stream, &a, err);
}

static gpu_rule_io io_of(const gdn_rule_shape *s, const gdn__call *c, const gpu_rule_order *o) {
    const float own = gdn__own_scale(s->k_dim);
    gpu_rule_io io = { .query = given(c, o->query),
                       .key = given(c, o->key),
                       .cu = given(c, o->cu),
                       .fresh = given(c, o->fresh),
                       .scale = s->scale < own || s->scale > own ? s->scale : 0,
                       .qk_stride = s->qk_stride };
    io.ext = given(c, o->state_out) || io.fresh || io.scale > 0;
    return io;
}

gdn_status gpu_rule_offsets(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                            void *stream, gpu_rule_io *io, gdn_text *err) {
    *io = io_of(&p->shape.rule, c, o);
    if (p->shape.rule.offsets != GDN_OFFSETS_I64) return GDN_OK;
    const bool ext = io->ext;
    io->ext = false; /* no tables */
    const gdn_status st = tables(p, c, o, w, batch, stream, io, err);
    io->ext = ext;
    return st;
}

gdn_status gpu_rule_prepare(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                            uint32_t rows, bool extras, void *stream, gpu_rule_io *io, gdn_text *err) {
    const gdn_rule_shape *s = &p->shape.rule;
    *io = io_of(s, c, o);
    io->ext = io->ext || extras || normalises(s) || s->state_addr != GDN_STATE_CONTIGUOUS;
    const gdn_status st = tables(p, c, o, w, batch, stream, io, err);
    return st || !normalises(s) ? st : normalise(p, c, o, w, batch, rows, stream, io, err);
}
