/* engine_step.c - what one pass over rows enqueues: embedding, layers, logits; and on a GPU the passes of decode and verify, captured
 * once for each kind and replayed.
 *
 * All that changes from step to step lies in device memory (the tokens, the accepted count), so that one graph serves every step of
 * its kind: decode or verify, its rows, whether the conv window is shifted, which stash is written and whether the other is folded. The
 * first pass of a kind is launched kernel by kernel, which loads whatever is loaded lazily; the second is captured. A capture that fails is
 * not tried again. */
#include "engine_internal.h"
#include <string.h>

gdn_status gdn__logits_enqueue(gdn_engine *e, uint32_t first, uint32_t rows) {
    const gdn_model_config *c = &e->c;
    const uint64_t x = e->rows.x + (uint64_t)first * c->hidden * gdn__type_bytes(e->act);
    const gdn_status s = e->dense->rms_norm(e->dense_ctx, x, e->final_norm, e->rows.h, rows, c->hidden, c->eps);
    const uint32_t n = gdn__product_rows(e, rows);
    return s == GDN_OK ? e->dense->matmul(e->dense_ctx, e->rows.h, e->head, e->rows.logits, n, c->hidden, c->vocab, GDN_F32) : s;
}

gdn_status gdn__rows_enqueue(gdn_engine *e, uint32_t rows, uint32_t how) {
    gdn_status s = e->dense->embed(e->dense_ctx, e->embed, e->tokens, e->rows.x, rows, e->c.hidden);
    for (uint32_t i = 0; s == GDN_OK && i < e->c.layers; i++) s = gdn__layer_run(e, &e->layers[i], rows, how);
    return s;
}

typedef struct pass {
    gdn_engine *e;
    uint32_t rows, how;
} pass;

static gdn_status enqueue(void *user) {
    const pass *p = user;
    const gdn_status s = gdn__rows_enqueue(p->e, p->rows, p->how);
    return s == GDN_OK ? gdn__logits_enqueue(p->e, 0, p->rows) : s;
}

/* Nothing of it runs, so nothing of it counts; what it would have counted is kept, for the replays. */
static void capture(gdn_engine *e, gdn__step *step, pass *p) {
    gdn_text why = { e->graph_why, sizeof e->graph_why, 0 };
    gdn__used before[GDN__PLANS];
    memcpy(before, e->used, sizeof before);
    step->never = gdn__stream_capture(e->stream, enqueue, p, &step->graph, &why) != GDN_OK;
    for (uint32_t i = 0; i < GDN__PLANS; i++) {
        step->used[i] = e->used[i];
        step->used[i].launches -= before[i].launches;
    }
    memcpy(e->used, before, sizeof before);
}

static void count(gdn_engine *e, const gdn__step *step) {
    for (uint32_t i = 0; i < GDN__PLANS; i++) {
        if (!step->used[i].launches) continue;
        const uint64_t launches = e->used[i].launches + step->used[i].launches;
        e->used[i] = step->used[i];
        e->used[i].launches = launches;
    }
    e->replays++;
}

gdn_status gdn__step_run(gdn_engine *e, uint32_t rows, uint32_t how) {
    pass p = { e, rows, how };
    gdn__step *step = &e->steps[how == GDN__RUN_VERIFY][rows - 1][e->shifted][e->now][e->unfolded];
    if (!e->stream || e->no_graph) return enqueue(&p);
    if (step->seen && !step->graph && !step->never) capture(e, step, &p);
    step->seen = true;
    if (!step->graph) return enqueue(&p);
    const gdn_status s = gdn__stream_replay(e->stream, step->graph);
    if (s == GDN_OK) count(e, step);
    return s;
}

void gdn__steps_drop(gdn_engine *e) {
    gdn__step *const all = &e->steps[0][0][0][0][0];
    for (size_t i = 0; i < sizeof e->steps / sizeof *all; i++) gdn__stream_drop(e->stream, all[i].graph);
}
