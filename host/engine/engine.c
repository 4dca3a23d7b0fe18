/* engine.c - loading, the forward pass over segments, and the sequence: prefill, step, verify, accept. */
#include "engine.h"
#include "engine_internal.h"
#include "engine_text.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- loading ---- */

static uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static gdn_status take_rows(gdn_engine *e, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const uint64_t n = e->segment, size = gdn__type_bytes(e->act), core = (uint64_t)c->nv * c->v_dim;
    const struct {
        uint64_t *out, bytes;
    } takes[] = {
        { &e->rows.x, n * c->hidden * size },
        { &e->rows.h, n * c->hidden * size },
        { &e->rows.qkvz, n * gdn_config_qkvz(c) * size },
        { &e->rows.conv, n * gdn_config_channels(c) * size },
        { &e->rows.gates, n * 2 * c->nv * sizeof(float) },
        { &e->rows.core, n * core * size },
        { &e->rows.core_n, n * core * size },
        { &e->rows.proj, n * c->hidden * size },
        { &e->rows.gate_up, n * 2 * c->inter * size },
        { &e->rows.act, n * c->inter * size },
        { &e->rows.logits, (uint64_t)GDN__LOGIT_ROWS * c->vocab * sizeof(float) },
        { &e->tokens, n * sizeof(uint32_t) },
        { &e->accepted, sizeof(int32_t) },
        { &e->na, sizeof(uint32_t) },
    };
    gdn_status s = GDN_OK;
    for (size_t i = 0; s == GDN_OK && i < sizeof takes / sizeof *takes; i++)
        s = gdn__arena_zeros(&e->mem, takes[i].bytes, takes[i].out, err);
    return s;
}

static uint64_t state_bytes(const gdn_model_config *c) {
    return (uint64_t)c->nv * c->k_dim * c->v_dim * sizeof(float);
}

static uint64_t conv_state_bytes(const gdn_engine *e) {
    return (uint64_t)gdn_config_channels(&e->c) * (e->c.conv_width - 1 + e->max_rows) * gdn__type_bytes(e->act);
}

static gdn_status take_states(gdn_engine *e, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const uint64_t stash = 4ull * (c->nv * c->v_dim + c->nv + c->nk * c->k_dim) * sizeof(float);
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && i < c->layers; i++) {
        gdn__layer *l = &e->layers[i];
        s = gdn__arena_zeros(&e->mem, state_bytes(c), &l->state, err);
        if (s == GDN_OK) s = gdn__arena_zeros(&e->mem, conv_state_bytes(e), &l->conv_state, err);
        if (s == GDN_OK) s = gdn__arena_zeros(&e->mem, (e->max_rows - 1) * state_bytes(c), &l->hi, err);
        for (uint32_t w = 0; w < 2; w++) {
            if (s == GDN_OK) s = gdn__arena_zeros(&e->mem, sizeof(uint32_t), &l->engaged[w], err);
            if (s == GDN_OK && e->woa) s = gdn__arena_zeros(&e->mem, stash, &l->stash[w], err);
        }
    }
    return s;
}

/* The stream of a GPU and the dense operations on it. */
static gdn_status open_dense(gdn_engine *e, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    int32_t ordinal = 0;
    const gdn_backend *backend = gdn_backend_of(e->g, &ordinal);
    e->dense = gdn__dense_for(e->g);
    if (!e->dense) return gdn__engine_say(err, GDN_E_ARG, "the target has no device open");
    if (backend->launch) {
        const gdn_status s = gdn__stream_open(ordinal, true, &e->stream, err);
        if (s != GDN_OK) return s;
    }
    uint64_t widest = max_u64(gdn_config_qkvz(c), 2ull * c->inter);
    widest = max_u64(widest, c->hidden) * e->segment;
    widest = max_u64(widest, (uint64_t)GDN__LOGIT_ROWS * max_u64(c->vocab, c->hidden));
    return e->dense->open(e->g, e->stream, e->act, widest, &e->dense_ctx, err);
}

static gdn_status load(gdn_engine *e, gdn__checkpoint *ck, const gdn_engine_options *opt, gdn_text *err) {
    e->layers = calloc(e->c.layers, sizeof *e->layers);
    if (!e->layers) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    gdn_status s = gdn__plans_make(e, err); /* first: they name what the target does not take */
    if (s == GDN_OK) s = open_dense(e, err);
    if (s == GDN_OK) s = gdn__weights_load(e, ck, opt->progress, opt->user, err);
    if (s == GDN_OK) s = take_rows(e, err);
    if (s == GDN_OK) s = take_states(e, err);
    if (s == GDN_OK) s = gdn_sync(e->g, NULL); /* of fills on the legacy stream, which e->stream does not wait for */
    return s;
}

gdn_status gdn_engine_load(const char *dir, const gdn_engine_options *opt, gdn_engine **out, gdn_text *err) {
    *out = NULL;
    const uint32_t dtype = opt->dtype ? opt->dtype : gdn__dense_act(opt->target), segment = opt->segment ? opt->segment : 2048;
    if (dtype != GDN_F32 && dtype != GDN_BF16) return gdn__engine_say(err, GDN_E_ARG, "dtype must be f32 or bf16");
    if (segment % GDN_CHUNK || segment > 1u << 20)
        return gdn__engine_say(err, GDN_E_ARG, "segment %u is not a multiple of %d up to 2^20", segment, GDN_CHUNK);
    gdn__checkpoint ck;
    gdn_status s = gdn__checkpoint_open(dir, &ck, err);
    if (s != GDN_OK) return s;
    gdn_engine *e = calloc(1, sizeof *e);
    if (e) {
        e->g = opt->target;
        e->mem.g = opt->target;
        e->c = ck.config;
        e->act = dtype;
        e->segment = segment;
        e->max_rows = GDN_ENGINE_MAX_ROWS;
        e->woa = opt->woa;
        e->w4a4 = opt->w4a4;
        e->no_graph = opt->no_graph;
        e->progress = opt->progress;
        e->user = opt->user;
        s = load(e, &ck, opt, err);
    } else {
        s = gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    }
    gdn__checkpoint_close(&ck);
    if (s != GDN_OK) {
        gdn_engine_free(e);
        return s;
    }
    *out = e;
    return GDN_OK;
}

void gdn_engine_free(gdn_engine *e) {
    if (!e) return;
    if (e->stream) gdn__steps_drop(e);
    for (uint32_t i = 0; i < GDN__PLANS; i++) gdn_plan_free(e->plans[i]);
    if (e->dense) e->dense->close(e->dense_ctx);
    gdn__stream_close(e->stream);
    gdn__arena_free(&e->mem);
    free(e->layers);
    free(e);
}

/* ---- the sequence ---- */

static gdn_status lost(gdn_engine *e, gdn_status s, const char *what, gdn_text *err) {
    e->broken = true;
    return gdn__engine_say(err, s, "%s: %s", what, gdn_status_text(s));
}

static gdn_status ready(const gdn_engine *e, gdn_text *err) {
    if (e->broken) return gdn__engine_say(err, GDN_E_ARG, "the sequence is lost after an earlier failure: reset first");
    if (e->pending) return gdn__engine_say(err, GDN_E_ARG, "%u verified rows wait for accept", e->pending);
    return GDN_OK;
}

static gdn_status check_tokens(const gdn_engine *e, const uint32_t *tokens, uint64_t n, gdn_text *err) {
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i] >= e->c.vocab)
            return gdn__engine_say(err, GDN_E_ARG, "token %u is outside the vocabulary of %u", tokens[i], e->c.vocab);
    return GDN_OK;
}

static void *stream(const gdn_engine *e) {
    return gdn__stream_handle(e->stream);
}

static gdn_status put_tokens(gdn_engine *e, const uint32_t *tokens, uint32_t rows) {
    return gdn_copy_in(e->g, stream(e), e->tokens, tokens, rows * sizeof *tokens);
}

/* The rows are done: what the next launch finds. */
static void passed(gdn_engine *e, uint32_t rows) {
    e->shifted = false;
    e->position += rows;
}

static gdn_status get_logits(gdn_engine *e, uint32_t rows, float *logits) {
    return gdn_copy_out(e->g, stream(e), logits, e->rows.logits, (uint64_t)rows * e->c.vocab * sizeof(float));
}

/* Logits of rows [first, first + n) of rows.x. */
static gdn_status head(gdn_engine *e, uint32_t first, uint32_t n, float *logits) {
    gdn_status s = GDN_OK;
    for (uint32_t at = 0; s == GDN_OK && at < n; at += GDN__LOGIT_ROWS) {
        const uint32_t rows = n - at < GDN__LOGIT_ROWS ? n - at : GDN__LOGIT_ROWS;
        s = gdn__logits_enqueue(e, first + at, rows);
        if (s == GDN_OK) s = get_logits(e, rows, logits + (uint64_t)at * e->c.vocab);
    }
    return s;
}

/* One decode or verify, paced where threads of the host run it. */
static gdn_status step(gdn_engine *e, const uint32_t *tokens, uint32_t rows, uint32_t how, float *logits) {
    gdn_status s = put_tokens(e, tokens, rows);
    if (!e->stream) gdn__pace_begin(&e->pace[rows]);
    if (s == GDN_OK) s = logits ? gdn__step_run(e, rows, how) : gdn__rows_enqueue(e, rows, how);
    if (s == GDN_OK && logits) s = get_logits(e, rows, logits);
    if (!e->stream) gdn__pace_end(&e->pace[rows], true);
    return s;
}

/* The accepted rows that wait for a round, onto the states. */
static gdn_status settle(gdn_engine *e) {
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && e->unfolded && i < e->c.layers; i++) s = gdn__layer_fold(e, &e->layers[i], !e->now, GDN_WOA_ROWS);
    if (s == GDN_OK) e->unfolded = false;
    return s;
}

gdn_status gdn_engine_reset(gdn_engine *e, gdn_text *err) {
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && i < e->c.layers; i++) {
        s = gdn_fill(e->g, stream(e), e->layers[i].state, 0, state_bytes(&e->c));
        if (s == GDN_OK) s = gdn_fill(e->g, stream(e), e->layers[i].conv_state, 0, conv_state_bytes(e));
    }
    if (s != GDN_OK) return lost(e, s, "reset", err);
    e->shifted = e->broken = e->unfolded = false;
    e->pending = 0;
    e->position = 0;
    return GDN_OK;
}

gdn_status gdn_engine_prefill(gdn_engine *e, const uint32_t *tokens, uint64_t n, bool all, float *logits, gdn_text *err) {
    gdn_status s = ready(e, err);
    if (s == GDN_OK) s = check_tokens(e, tokens, n, err);
    if (s == GDN_OK && !n) s = gdn__engine_say(err, GDN_E_ARG, "prefill needs at least one token");
    if (s != GDN_OK) return s;
    if ((s = settle(e)) != GDN_OK) return lost(e, s, "fold", err);
    for (uint64_t at = 0; at < n;) {
        const uint32_t rows = n - at < e->segment ? (uint32_t)(n - at) : e->segment;
        s = put_tokens(e, tokens + at, rows);
        if (s == GDN_OK) s = gdn__rows_enqueue(e, rows, GDN__RUN_PREFILL);
        if (s == GDN_OK) passed(e, rows);
        if (s == GDN_OK && logits && all) s = head(e, 0, rows, logits + at * e->c.vocab);
        at += rows;
        if (s == GDN_OK && logits && !all && at == n) s = head(e, rows - 1, 1, logits);
        if (s != GDN_OK) return lost(e, s, "prefill", err);
        if (e->progress && n > e->segment) e->progress(e->user, "prompt", at, n);
    }
    return GDN_OK;
}

gdn_status gdn_engine_step(gdn_engine *e, uint32_t token, float *logits, gdn_text *err) {
    gdn_status s = ready(e, err);
    if (s == GDN_OK) s = check_tokens(e, &token, 1, err);
    if (s != GDN_OK) return s;
    s = settle(e);
    if (s == GDN_OK) s = step(e, &token, 1, GDN__RUN_DECODE, logits);
    if (s != GDN_OK) return lost(e, s, "decode", err);
    passed(e, 1);
    return GDN_OK;
}

gdn_status gdn_engine_verify(gdn_engine *e, const uint32_t *tokens, uint32_t rows, float *logits, gdn_text *err) {
    gdn_status s = ready(e, err);
    if (s == GDN_OK && (!rows || rows > e->max_rows))
        s = gdn__engine_say(err, GDN_E_ARG, "verify of %u rows, must be 1 to %u", rows, e->max_rows);
    if (s == GDN_OK) s = check_tokens(e, tokens, rows, err);
    if (s != GDN_OK) return s;
    if (rows != GDN_WOA_ROWS) s = settle(e);
    if (s == GDN_OK) s = step(e, tokens, rows, GDN__RUN_VERIFY, logits);
    if (s != GDN_OK) return lost(e, s, "verify", err);
    e->unfolded = false;
    e->pending = rows;
    return GDN_OK;
}

gdn_status gdn_engine_accept(gdn_engine *e, uint32_t n, gdn_text *err) {
    if (!e->pending) return gdn__engine_say(err, GDN_E_ARG, "accept without a verify");
    if (!n || n > e->pending) return gdn__engine_say(err, GDN_E_ARG, "accept of %u rows, must be 1 to %u", n, e->pending);
    const int32_t offset = (int32_t)n;
    const bool later = e->woa && e->plans[GDN__PLAN_ROUND] && e->pending == GDN_WOA_ROWS;
    gdn_status s = gdn_copy_in(e->g, stream(e), e->na, &n, sizeof n);
    if (s == GDN_OK) s = gdn_copy_in(e->g, stream(e), e->accepted, &offset, sizeof offset);
    if (!e->stream) gdn__pace_begin(&e->pace[e->pending]);
    for (uint32_t i = 0; s == GDN_OK && !later && i < e->c.layers; i++) s = gdn__layer_fold(e, &e->layers[i], e->now, e->pending);
    if (!e->stream) gdn__pace_end(&e->pace[e->pending], false);
    if (s != GDN_OK) return lost(e, s, "accept", err);
    if (later) e->unfolded = true, e->now ^= 1;
    e->shifted = true;
    e->position += n;
    e->pending = 0;
    return GDN_OK;
}

/* ---- questions ---- */

const gdn_model_config *gdn_engine_config(const gdn_engine *e) {
    return &e->c;
}

uint32_t gdn_engine_dtype(const gdn_engine *e) {
    return e->act;
}

uint64_t gdn_engine_position(const gdn_engine *e) {
    return e->position;
}

uint64_t gdn_engine_bytes(const gdn_engine *e) {
    return e->mem.bytes;
}

const char *gdn_engine_dense(const gdn_engine *e) {
    return e->dense->name;
}

uint64_t gdn_engine_replays(const gdn_engine *e, const char **why) {
    if (why) *why = e->graph_why[0] ? e->graph_why : NULL;
    return e->replays;
}

gdn_status gdn_engine_routes(const gdn_engine *e, gdn_engine_route_fn each, void *user) {
    static const uint32_t ops[GDN__PLANS] = {
        [GDN__PLAN_CONV] = GDN_OP_CONV_FUSED,  [GDN__PLAN_CONV_ROWS] = GDN_OP_CONV_FUSED,
        [GDN__PLAN_BA] = GDN_OP_BA_GATES,      [GDN__PLAN_PREFILL] = GDN_OP_PREFILL,
        [GDN__PLAN_DECODE] = GDN_OP_DECODE,    [GDN__PLAN_VERIFY] = GDN_OP_VERIFY,
        [GDN__PLAN_WOA] = GDN_OP_VERIFY_WOA,   [GDN__PLAN_FOLD] = GDN_OP_FOLD,
        [GDN__PLAN_CLEAR] = GDN_OP_FLAG_CLEAR, [GDN__PLAN_NORM] = GDN_OP_NORM,
        [GDN__PLAN_ROUND] = GDN_OP_ROUND,      [GDN__PLAN_STEP] = GDN_OP_DECODE_STEP,
    };
    static const char *const projections[GDN__PROJECTIONS] = { "qkvz", "out", "gate_up", "down" };
    for (uint32_t i = 0; i < GDN__PLANS; i++) {
        char name[48];
        const gdn__used *used = &e->used[i];
        if (!used->launches) continue;
        gdn_route r = { .struct_size = (uint32_t)sizeof r };
        const gdn_status s = gdn_explain(e->plans[i], used->n, used->u32, &r);
        if (s < 0) return s;
        if (i >= GDN__PLAN_QUANT)
            (void)snprintf(name, sizeof name, "%s, %s", gdn_op_name(i < GDN__PLAN_W4A4 ? GDN_OP_W4A4_QUANT : GDN_OP_W4A4_GEMV),
                           projections[(i - GDN__PLAN_QUANT) % GDN__PROJECTIONS]);
        else
            (void)snprintf(name, sizeof name, "%s%s", gdn_op_name(ops[i]), i == GDN__PLAN_CONV_ROWS ? ", rows kept" : "");
        each(user, name, &r, used->launches);
    }
    return GDN_OK;
}
