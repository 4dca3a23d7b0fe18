/* engine_internal.h - what the files of the engine share: weights, plans, buffers, the sequence. */
#ifndef GDN_ENGINE_INTERNAL_H
#define GDN_ENGINE_INTERNAL_H

#include "arena.h"
#include "checkpoint.h"
#include "dense.h"
#include "engine.h"
#include "pace.h"

enum { GDN__LOGIT_ROWS = 64 }; /* rows of logits made at a time */

/* One plan of each; conv_fused twice, for the plain and the row-keeping form. */
enum {
    GDN__PLAN_CONV,
    GDN__PLAN_CONV_ROWS,
    GDN__PLAN_BA,
    GDN__PLAN_PREFILL,
    GDN__PLAN_DECODE,
    GDN__PLAN_VERIFY,
    GDN__PLAN_WOA,
    GDN__PLAN_FOLD,
    GDN__PLAN_CLEAR,
    GDN__PLAN_NORM,
    GDN__PLAN_ROUND, /* NULL: accepted rows are folded by themselves */
    GDN__PLAN_STEP,  /* NULL: a decode step goes by conv, decode and norm */
    GDN__PLAN_QUANT, /* and of the other projections */
    GDN__PLAN_W4A4 = GDN__PLAN_QUANT + 4,
    GDN__PLANS = GDN__PLAN_W4A4 + 4
};
/* The projections of a layer. qkvz: rows ordered Q | K | V | Z. */
enum { GDN__QKVZ, GDN__OUT, GDN__GATE_UP, GDN__DOWN, GDN__PROJECTIONS };

typedef struct gdn__fp4 {
    uint64_t codes, scales;
    float scale2;
} gdn__fp4;
/* Of all layers: how it is multiplied; why: it stays dense although w4a4 was asked for. */
typedef struct gdn__projection {
    bool fp4;
    char why[240];
} gdn__projection;

typedef struct gdn__layer {
    uint64_t norm1, norm2;            /* f32, 1 + w                                    */
    uint64_t dense[GDN__PROJECTIONS]; /* weights; 0 where fp4 has them                 */
    gdn__fp4 fp4[GDN__PROJECTIONS];
    uint64_t ba, conv, gdn_norm;    /* activation type; ba rows as in the checkpoint */
    uint64_t a_log, dt_bias;        /* f32                                           */
    uint64_t state, conv_state, hi; /* the sequence                                  */
    uint64_t stash[2], engaged[2];  /* of the verify that is now, and before         */
} gdn__layer;

/* Device buffers for one segment of rows. */
typedef struct gdn__rows {
    uint64_t x, h, qkvz, conv, gates, core, core_n, proj, gate_up, act;
    uint64_t logits; /* f32 [GDN__LOGIT_ROWS][vocab] */
} gdn__rows;

/* The last counts a plan was launched with, and how often. */
typedef struct gdn__used {
    uint64_t launches;
    uint32_t n;
    uint32_t u32[3];
} gdn__used;

/* One kind of step, captured; and what a replay of it launches. */
typedef struct gdn__step {
    void *graph;
    gdn__used used[GDN__PLANS];
    bool seen, never; /* it was run once; it cannot be captured */
} gdn__step;

struct gdn_engine {
    gdn *g;
    gdn_model_config c;
    uint32_t act, segment, max_rows;
    bool woa, w4a4;
    gdn__projection projection[GDN__PROJECTIONS];
    uint64_t fp4_codes, fp4_scales, fp4_factors, fp4_counter; /* of 64 quantised rows; of the persistent entries */
    gdn_engine_progress progress;
    void *user; /* of progress */
    gdn__arena mem;
    gdn__stream *stream; /* of a GPU; NULL on host memory */
    const gdn__dense *dense;
    void *dense_ctx;
    gdn_hplan *plans[GDN__PLANS];
    gdn__used used[GDN__PLANS];
    uint64_t workspace, step_workspace; /* of all plans but the fused step's; its own, which it counts in */
    uint64_t embed, head, final_norm;
    gdn__layer *layers;
    gdn__rows rows;
    uint64_t tokens;       /* u32 of the rows of this pass, in device memory      */
    uint64_t accepted, na; /* device words: conv offset (int32), fold count (u32) */
    bool shifted;          /* the conv window starts at *accepted                 */
    bool broken;           /* a launch failed: reset first                        */
    uint32_t pending;      /* rows of a verify that wait for accept               */
    uint32_t now;          /* which stash the next verify leaves                  */
    bool unfolded;         /* *na rows of the other one are not in the states yet */
    uint64_t position;
    gdn__pace pace[GDN_ENGINE_MAX_ROWS + 1];          /* of steps and verifies, by their rows; on host memory */
    gdn__step steps[2][GDN_ENGINE_MAX_ROWS][2][2][2]; /* decode or verify, rows - 1, shifted, now, unfolded */
    uint64_t replays;
    bool no_graph;
    char graph_why[200]; /* the last capture that failed */
};

/* Rows of a product. On a GPU few rows go as four (every buffer has more): cuBLAS then takes the same way for each number of them, so
 * that a verified row has the bits of a decoded one, as with OpenBLAS (dense_blas.c). */
static inline uint32_t gdn__product_rows(const gdn_engine *e, uint32_t rows) {
    return e->stream && rows < GDN_ENGINE_MAX_ROWS ? GDN_ENGINE_MAX_ROWS : rows;
}

/* weights.c */
gdn_status gdn__weights_load(gdn_engine *e, gdn__checkpoint *ck, gdn_engine_progress progress, void *user, gdn_text *err);
/* Row of the checkpoint's in_proj_qkvz (per key head [q | k | v x r | z x r]) that is row `row` of Q | K | V | Z. */
uint32_t gdn__qkvz_source_row(uint32_t nk, uint32_t nv, uint32_t dim, uint32_t row);
/* engine_plans.c */
gdn_status gdn__plans_make(gdn_engine *e, gdn_text *err);
gdn_status gdn__plan_launch(gdn_engine *e, uint32_t plan, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32);
/* engine_fp4.c */
gdn_status gdn__fp4_plans_make(gdn_engine *e, gdn_text *err);
gdn_status gdn__fp4_put(gdn_engine *e, const float *w, uint32_t which, gdn__fp4 *out, gdn_text *err);               /* w [rows][columns] */
gdn_status gdn__project(gdn_engine *e, const gdn__layer *l, uint32_t which, uint64_t x, uint64_t y, uint32_t rows); /* y = x w^T */
/* engine_step.c, all on the engine's stream; the rows' tokens are in e->tokens */
gdn_status gdn__rows_enqueue(gdn_engine *e, uint32_t rows, uint32_t how);     /* embedding and layers: rows.x */
gdn_status gdn__logits_enqueue(gdn_engine *e, uint32_t first, uint32_t rows); /* of rows of rows.x: rows.logits */
gdn_status gdn__step_run(gdn_engine *e, uint32_t rows, uint32_t how);         /* both, by decode or verify; replayed where it can be */
void gdn__steps_drop(gdn_engine *e);
/* engine_layer.c: how the rows of one forward pass go through the rule */
enum { GDN__RUN_PREFILL, GDN__RUN_DECODE, GDN__RUN_VERIFY };
gdn_status gdn__layer_run(gdn_engine *e, const gdn__layer *l, uint32_t rows, uint32_t how);
gdn_status gdn__layer_fold(gdn_engine *e, const gdn__layer *l, uint32_t which, uint32_t rows); /* of stash `which` */

#endif
