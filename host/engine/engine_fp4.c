/* engine_fp4.c - the four projections of a layer: dense, or with the option w4a4 NVFP4 on both sides through the target's operations.
 *
 * A projection whose sizes the target refuses, or that it does not carry, stays dense; gdn_engine_projections says why. Rows go in
 * blocks of 64, each quantised once. */
#include "engine_internal.h"
#include "engine_text.h"
#include "nvfp4.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rows_of(const gdn_engine *e, uint32_t which) {
    const gdn_model_config *c = &e->c;
    return which == GDN__QKVZ ? gdn_config_qkvz(c) : which == GDN__GATE_UP ? 2 * c->inter : c->hidden;
}
static uint32_t columns_of(const gdn_engine *e, uint32_t which) {
    const gdn_model_config *c = &e->c;
    return which == GDN__OUT ? c->nv * c->v_dim : which == GDN__DOWN ? c->inter : c->hidden;
}

/* GDN_OK also when it stays dense; then why says so. */
static gdn_status make(gdn_engine *e, uint32_t slot, const gdn_w4a4_shape *shape, char *why, size_t cap, gdn_text *err) {
    gdn_text text = { why, cap, 0 };
    const gdn_status s = gdn_plan_make(e->g, &shape->base, NULL, &e->plans[slot], &text);
    if (s >= 0) {
        if (s != GDN_OK && !why[0]) (void)snprintf(why, cap, "%s: %s", gdn_op_name(shape->base.op), gdn_status_text(s));
        return GDN_OK;
    }
    return gdn__engine_say(err, s, "no plan for this checkpoint: %s", why[0] ? why : gdn_status_text(s));
}

static gdn_status plan_projection(gdn_engine *e, uint32_t which, gdn_text *err) {
    gdn__projection *p = &e->projection[which];
    const gdn_w4a4_shape quant = { .base = { (uint32_t)sizeof quant, GDN_OP_W4A4_QUANT, 0, e->act },
                                   .K = columns_of(e, which),
                                   .max_m = GDN_W4A4_MAX_M };
    gdn_w4a4_shape gemv = quant;
    gemv.base.op = GDN_OP_W4A4_GEMV;
    gemv.N = rows_of(e, which);
    gdn_status s = make(e, GDN__PLAN_W4A4 + which, &gemv, p->why, sizeof p->why, err);
    if (s == GDN_OK && !p->why[0]) s = make(e, GDN__PLAN_QUANT + which, &quant, p->why, sizeof p->why, err);
    p->fp4 = s == GDN_OK && !p->why[0];
    return s;
}

/* The counter of the persistent entries is zero between launches, so it is nobody else's. */
gdn_status gdn__fp4_plans_make(gdn_engine *e, gdn_text *err) {
    uint64_t k = 0, counter = 0;
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && e->w4a4 && i < GDN__PROJECTIONS; i++) {
        s = plan_projection(e, i, err);
        if (s != GDN_OK || !e->projection[i].fp4) continue;
        gdn_route r = { .struct_size = (uint32_t)sizeof r };
        s = gdn_explain(e->plans[GDN__PLAN_W4A4 + i], 0, NULL, &r);
        if (r.workspace_bytes > counter) counter = r.workspace_bytes;
        if (columns_of(e, i) > k) k = columns_of(e, i);
    }
    if (s == GDN_OK && k) s = gdn__arena_take(&e->mem, GDN_W4A4_AQ_BYTES(GDN_W4A4_MAX_M, k), &e->fp4_codes, err);
    if (s == GDN_OK && k) s = gdn__arena_take(&e->mem, GDN_W4A4_AS_BYTES(GDN_W4A4_MAX_M, k), &e->fp4_scales, err);
    if (s == GDN_OK && k) s = gdn__arena_take(&e->mem, GDN_W4A4_MAX_M * sizeof(float), &e->fp4_factors, err);
    if (s == GDN_OK && counter) s = gdn__arena_zeros(&e->mem, counter, &e->fp4_counter, err);
    return s;
}

gdn_status gdn__fp4_put(gdn_engine *e, const float *w, uint32_t which, gdn__fp4 *out, gdn_text *err) {
    const uint64_t n = rows_of(e, which), k = columns_of(e, which);
    uint8_t *codes = malloc((size_t)(n * k / 2)), *scales = malloc((size_t)(n * k / 16));
    gdn_status s = codes && scales ? GDN_OK : gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    if (s == GDN_OK) out->scale2 = gdn__nvfp4(w, n, (uint32_t)k, codes, scales);
    if (s == GDN_OK) s = gdn__arena_take(&e->mem, n * k / 2, &out->codes, err);
    if (s == GDN_OK) s = gdn__arena_take(&e->mem, n * k / 16, &out->scales, err);
    if (s == GDN_OK) {
        s = gdn_copy_in(e->g, NULL, out->codes, codes, n * k / 2);
        if (s == GDN_OK) s = gdn_copy_in(e->g, NULL, out->scales, scales, n * k / 16);
        if (s == GDN_OK) s = gdn_sync(e->g, NULL); /* the copies may still read */
        if (s != GDN_OK) s = gdn__engine_say(err, s, "copy of NVFP4 weights: %s", gdn_status_text(s));
    }
    free(scales);
    free(codes);
    return s;
}

/* rows <= 64 */
static gdn_status block(gdn_engine *e, const gdn__fp4 *w, uint32_t which, uint64_t x, uint64_t y, uint32_t rows) {
    const uint64_t quant[GDN_W4A4_QUANT_N_PTR] = {
        [GDN_W4A4_QUANT_P_A] = x,
        [GDN_W4A4_QUANT_P_AQ] = e->fp4_codes,
        [GDN_W4A4_QUANT_P_AS] = e->fp4_scales,
        [GDN_W4A4_QUANT_P_AG] = e->fp4_factors,
    };
    const uint64_t gemv[GDN_W4A4_GEMV_N_PTR] = {
        [GDN_W4A4_GEMV_P_AQ] = e->fp4_codes,
        [GDN_W4A4_GEMV_P_AS] = e->fp4_scales,
        [GDN_W4A4_GEMV_P_AG] = e->fp4_factors,
        [GDN_W4A4_GEMV_P_BQ] = w->codes,
        [GDN_W4A4_GEMV_P_BS] = w->scales,
        [GDN_W4A4_GEMV_P_C] = y,
        [GDN_W4A4_GEMV_P_WORKSPACE] = e->fp4_counter,
    };
    const uint32_t m[GDN_W4A4_QUANT_N_U32] = { [GDN_W4A4_QUANT_U_M] = rows };
    uint32_t u32[GDN_W4A4_GEMV_N_U32] = { [GDN_W4A4_GEMV_U_M] = rows };
    memcpy(&u32[GDN_W4A4_GEMV_U_SCALE2], &w->scale2, sizeof w->scale2);
    const gdn_status s = gdn__plan_launch(e, GDN__PLAN_QUANT + which, GDN_W4A4_QUANT_N_PTR, quant, GDN_W4A4_QUANT_N_U32, m);
    return s == GDN_OK ? gdn__plan_launch(e, GDN__PLAN_W4A4 + which, GDN_W4A4_GEMV_N_PTR, gemv, GDN_W4A4_GEMV_N_U32, u32) : s;
}

gdn_status gdn__project(gdn_engine *e, const gdn__layer *l, uint32_t which, uint64_t x, uint64_t y, uint32_t rows) {
    const uint32_t n = rows_of(e, which), k = columns_of(e, which);
    const uint64_t size = gdn__type_bytes(e->act);
    gdn_status s = GDN_OK;
    if (!e->projection[which].fp4) return e->dense->matmul(e->dense_ctx, x, l->dense[which], y, gdn__product_rows(e, rows), k, n, e->act);
    for (uint32_t at = 0; s == GDN_OK && at < rows; at += GDN_W4A4_MAX_M)
        s = block(e, &l->fp4[which], which, x + at * k * size, y + at * n * size, rows - at < GDN_W4A4_MAX_M ? rows - at : GDN_W4A4_MAX_M);
    return s;
}

void gdn_engine_projections(const gdn_engine *e, gdn_engine_projection_fn each, void *user) {
    static const char *const names[GDN__PROJECTIONS] = { "in_proj_qkvz", "out_proj", "gate_proj and up_proj", "down_proj" };
    for (uint32_t i = 0; i < GDN__PROJECTIONS; i++) {
        const gdn__projection *p = &e->projection[i];
        each(user, names[i], rows_of(e, i), columns_of(e, i), p->fp4 ? NULL : e->w4a4 ? p->why : "not asked for");
    }
}
