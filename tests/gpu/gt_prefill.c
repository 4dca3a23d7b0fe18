/* gt_prefill.c - prefill against the cpu target, the pairs that must agree byte for byte, cuts, batches, large offsets. */
#include "gt.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Output and state against the cpu target: spec bounds of the whole pipeline, whose W, U, uc and S are bf16. */
#define OUT_TOL   4e-3
#define STATE_TOL 2.5e-3

/* alike: the square of each row's part in a direction that all have. */
static void unit_rows(gt *t, uint16_t *p, uint64_t rows, uint32_t heads, uint32_t dim, uint64_t stride, double alike) {
    double x[128];
    const double middle = sqrt(alike / dim), own = sqrt((1 - alike) * 3 / dim); /* of uniform [-1, 1]: the square is 1 / 3 */
    for (uint64_t r = 0; r < rows; r++)
        for (uint32_t h = 0; h < heads; h++) {
            double sum = 0;
            for (uint32_t i = 0; i < dim; i++) {
                x[i] = rng_uniform(&t->r, -1, 1);
                if (alike > 0) x[i] = (i % 3 ? middle : -middle) + own * x[i];
                sum += x[i] * x[i];
            }
            for (uint32_t i = 0; i < dim; i++) p[r * stride + h * dim + i] = num_to_bf16(x[i] / sqrt(sum));
        }
}

static gdn_route route_of(gt *t, gdn *g, const gdn_shape *shape) {
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    char why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    const gdn_status st = g ? gdn_route_for(g, 0, shape, 0, NULL, &r, &err) : GDN_E_ARG;
    (void)gt_check(t, st >= 0, "route: %s", why);
    return r;
}
static uint64_t workspace_of(gt *t, gdn *g, const gdn_shape *shape) {
    return route_of(t, g, shape).workspace_bytes;
}

void gt_prefill_job(gt *t, gdn *g, const gt_rule *p, gt_shapes *s, gt_job *job) {
    const uint32_t D = p->dim ? p->dim : 128, batch = p->batch ? p->batch : 1, tail = 2;
    const bool pool = p->slots != NULL, log_form = p->form == GDN_GATE_LOG;
    uint64_t rows = p->len ? 0 : (uint64_t)batch * p->rows, longest = p->rows;
    uint64_t ckpts = p->ckpt_every && !p->len ? batch * (p->rows / p->ckpt_every) : 0;
    for (uint32_t b = 0; p->len && b < batch; b++) {
        rows += p->len[b];
        longest = p->len[b] > longest ? p->len[b] : longest;
        if (p->ckpt_every) ckpts += p->len[b] / p->ckpt_every;
    }
    const uint64_t all = p->first + rows + tail, one = (uint64_t)p->nv * D * D, states = pool ? batch + 3 : batch;
    const uint64_t qk = (uint64_t)p->nk * D + p->pad, vs = (uint64_t)p->nv * D + p->pad, gb = 2ull * p->nv + p->pad;
    s->rule = (gdn_rule_shape) { .base = GT_BASE(gdn_rule_shape, GDN_OP_PREFILL),
                                 .nk = p->nk,
                                 .nv = p->nv,
                                 .k_dim = D,
                                 .v_dim = D,
                                 .qk_stride = (uint32_t)qk,
                                 .v_stride = (uint32_t)vs,
                                 .gb_stride = (uint32_t)gb,
                                 .gate_form = p->form ? p->form : (uint32_t)GDN_GATE_LINEAR,
                                 .head_map = p->map,
                                 .state_layout = p->layout,
                                 .state_addr = pool ? GDN_STATE_POOL : GDN_STATE_CONTIGUOUS,
                                 .state_type = GDN_F32,
                                 .offsets = p->len ? p->offsets ? p->offsets : (uint32_t)GDN_OFFSETS_I32 : 0,
                                 .max_tokens = rows ? (uint32_t)rows : 1,
                                 .max_batch = batch,
                                 .ckpt_every = p->ckpt_every,
                                 .scale = p->scale,
                                 .max_workspace = p->max_workspace };
    s->rule.base.flags = p->flags;
    *job = (gt_job) { .shape = &s->rule.base, .n_ptr = GDN_PREFILL_N_PTR, .u32 = { batch, (uint32_t)longest }, .n_u32 = 2 };
    uint16_t *q = gt_keep(t, all * qk * 2), *k = gt_keep(t, all * qk * 2), *v = gt_keep(t, all * vs * 2);
    float *gates = gt_keep(t, all * gb * 4);
    memset(q, 0xFF, all * qk * 2);
    memset(k, 0xFF, all * qk * 2);
    memset(v, 0xFF, all * vs * 2);
    memset(gates, 0xFF, all * gb * 4);
    unit_rows(t, q + p->first * qk, rows, p->nk, D, qk, p->alike);
    unit_rows(t, k + p->first * qk, rows, p->nk, D, qk, p->alike);
    for (uint64_t r = 1; p->equal_keys && r < rows; r++) memcpy(k + (p->first + r) * qk, k + p->first * qk, (uint64_t)p->nk * D * 2);
    const double lo = p->gate_hi > 0 ? p->gate_lo : 0.8, hi = p->gate_hi > 0 ? p->gate_hi : 0.999, large = p->large > 0 ? p->large : 1;
    for (uint64_t r = p->first; r < p->first + rows; r++) {
        num_fill(v + r * vs, GDN_BF16, (uint64_t)p->nv * D, &t->r, -0.5 * large, 0.5 * large);
        for (uint32_t h = 0; h < p->nv; h++) {
            const double a = p->tiny_decays ? pow(10, rng_uniform(&t->r, -12, -1)) : rng_uniform(&t->r, lo, hi);
            gates[r * gb + h] = (float)(log_form ? log(a) : a);
            gates[r * gb + p->nv + h] = (float)rng_uniform(&t->r, p->beta_lo, 1);
        }
    }
    float *state = gt_random(t, GDN_F32, states * one, -0.1, 0.1);
    for (uint32_t b = 0; b < batch; b++)
        if (p->fresh && p->fresh[b] && (!pool || p->slots[b] >= 0)) memset(state + (pool ? (uint64_t)p->slots[b] : b) * one, 0xFF, one * 4);
    gt_buf *b = job->buf;
    b[GDN_PREFILL_P_QUERY] = (gt_buf) { .bytes = all * qk * 2, .init = q, .role = GT_IN, .shift = p->shift };
    b[GDN_PREFILL_P_KEY] = (gt_buf) { .bytes = all * qk * 2, .init = k, .role = GT_IN, .shift = p->shift };
    b[GDN_PREFILL_P_VALUE] = (gt_buf) { .bytes = all * vs * 2, .init = v, .role = GT_IN, .shift = p->shift };
    b[GDN_PREFILL_P_GATE] = (gt_buf) { .bytes = all * gb * 4, .init = gates, .role = GT_IN };
    b[GDN_PREFILL_P_BETA] = (gt_buf) { .bytes = (all * gb - p->nv) * 4, .init = gates + p->nv, .role = GT_IN };
    b[GDN_PREFILL_P_STATE] = (gt_buf) { .bytes = states * one * 4, .init = state, .role = GT_INOUT, .type = GDN_F32, .tol = STATE_TOL };
    b[GDN_PREFILL_P_OUTPUT] = (gt_buf) { .bytes = all * p->nv * D * 2, .role = GT_OUT, .type = GDN_BF16, .tol = OUT_TOL };
    if (p->len) {
        int64_t *wide = gt_keep(t, (batch + 1) * 8ull);
        int32_t *narrow = gt_keep(t, (batch + 1) * 4ull);
        wide[0] = p->first;
        for (uint32_t i = 0; i < batch; i++) wide[i + 1] = wide[i] + p->len[i];
        for (uint32_t i = 0; i <= batch; i++) narrow[i] = (int32_t)wide[i];
        const bool i64 = p->offsets == GDN_OFFSETS_I64;
        b[GDN_PREFILL_P_CU_SEQLENS] =
            (gt_buf) { .bytes = (batch + 1) * (i64 ? 8ull : 4ull), .init = i64 ? (void *)wide : narrow, .role = GT_IN };
    }
    if (pool) b[GDN_PREFILL_P_IN_SLOTS] = (gt_buf) { .bytes = batch * 4ull, .init = p->slots, .role = GT_IN };
    if (pool && p->out_slots) b[GDN_PREFILL_P_OUT_SLOTS] = (gt_buf) { .bytes = batch * 4ull, .init = p->out_slots, .role = GT_IN };
    if (p->fresh) b[GDN_PREFILL_P_FRESH] = (gt_buf) { .bytes = batch, .init = p->fresh, .role = GT_IN };
    if (ckpts) b[GDN_PREFILL_P_CKPT] = (gt_buf) { .bytes = ckpts * one * 4, .role = GT_OUT, .type = GDN_F32, .tol = STATE_TOL };
    b[GDN_PREFILL_P_WORKSPACE] = (gt_buf) { .bytes = workspace_of(t, g, job->shape), .role = GT_SCRATCH };
}

static void pair(gt *t, const char *name, const gt_rule *p) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "prefill_%s", name)) return;
    gt_prefill_job(t, t->dev, p, &s, &job);
    gt_pair(t, &job);
    gt_end(t);
}

/* ---- two targets with other levers: the same bytes, the whole workspace included ---- */
static void same_by_levers(gt *t, const char *name, const char *key, const char *a, const char *b, uint32_t T) {
    gt_shapes s;
    gt_job job;
    gt_live x = { 0 }, y = { 0 };
    if (!gt_begin(t, "prefill_%s_T%u", name, T)) return;
    if (gt_needs_device(t)) {
        gdn *ga = gt_open(t, t->target, "gdn_prefill_tc", "false", "gdn_prefill_fast", "false", key, a, NULL);
        gdn *gb = gt_open(t, t->target, "gdn_prefill_tc", "false", "gdn_prefill_fast", "false", key, b, NULL);
        const gt_rule p = { .nk = 16, .nv = 32, .rows = T, .gate_lo = 0.5, .gate_hi = 1 };
        gt_prefill_job(t, ga, &p, &s, &job);
        job.buf[GDN_PREFILL_P_WORKSPACE].role = GT_INOUT;
        job.buf[GDN_PREFILL_P_WORKSPACE].type = GDN_BF16;
        for (uint32_t i = 0; i < job.n_ptr; i++) job.buf[i].tol = 0;
        if (gt_up(t, ga, &job, &x) && gt_check(t, gt_launch(&x, NULL) == GDN_OK, "launch") && gt_down(t, &x, NULL) &&
            gt_up(t, gb, &job, &y) && gt_check(t, gt_launch(&y, NULL) == GDN_OK, "launch") && gt_down(t, &y, NULL) &&
            gt_same(t, &x, &y, true)) {
            (void)gt_check(t, strcmp(key, "gdn_pipe") != 0 || strcmp(gt_entry(&x), gt_entry(&y)) != 0, "both ran %s", gt_entry(&x));
            gt_control(t, &x, &y);
        }
        gt_drop(&x);
        gt_drop(&y);
        gdn_close(ga);
        gdn_close(gb);
    }
    gt_end(t);
}

/* ---- a cut at a multiple of 64 tokens, and the same sequence among others ---- */
static bool run_rows(gt *t, gt_live *l, uint32_t from, uint32_t rows, const gt_rule *p) {
    uint64_t ptr[GT_MAX_PTR];
    memcpy(ptr, l->ptr, sizeof ptr);
    const uint64_t row = from, gb = (2ull * p->nv + p->pad) * 4;
    ptr[GDN_PREFILL_P_QUERY] += row * (p->nk * 128 + p->pad) * 2;
    ptr[GDN_PREFILL_P_KEY] += row * (p->nk * 128 + p->pad) * 2;
    ptr[GDN_PREFILL_P_VALUE] += row * (p->nv * 128 + p->pad) * 2;
    ptr[GDN_PREFILL_P_GATE] += row * gb;
    ptr[GDN_PREFILL_P_BETA] += row * gb;
    ptr[GDN_PREFILL_P_OUTPUT] += row * p->nv * 256;
    const uint32_t u32[] = { 1, rows };
    const gdn_launch_args args = { (uint32_t)sizeof args, l->job->n_ptr, 2, 0, NULL, ptr, u32 };
    return gt_check(t, gdn_launch(l->plan, &args) == GDN_OK, "launch of rows %u..", from);
}

/* segments: of a shape whose sequences pass in segments, at whose borders it may be cut. */
static void cuts(gt *t, uint32_t T, bool segments) {
    uint32_t at[] = { 64, 640, 1152 };
    const gt_rule p = { .nk = 2, .nv = segments ? 8 : 6, .rows = T, .pad = 8 };
    gt_shapes s;
    gt_job job;
    gt_live one = { 0 }, two = { 0 };
    if (!gt_begin(t, "prefill_cut_at_multiples_of_%s_T%u", segments ? "a_segment" : "64", T)) return;
    gt_prefill_job(t, t->dev, &p, &s, &job);
    const uint32_t border = route_of(t, t->dev, job.shape).split_tokens;
    (void)gt_check(t, segments ? border > 64 : border == 64, "the plan promises cuts at multiples of %u", border);
    for (uint32_t i = 0; i < GT_N(at) && segments; i++) at[i] = (i + 1) * border;
    for (uint32_t i = 0; i < job.n_ptr; i++) job.buf[i].tol = 0;
    if (gt_up(t, t->dev, &job, &one) && gt_check(t, gt_launch(&one, NULL) == GDN_OK, "launch") && gt_down(t, &one, NULL) &&
        gt_up(t, t->dev, &job, &two))
        for (uint32_t i = 0; i < GT_N(at); i++)
            if (at[i] < T && gt_fill(t, &two, NULL) && run_rows(t, &two, 0, at[i], &p) && run_rows(t, &two, at[i], T - at[i], &p) &&
                gt_down(t, &two, NULL))
                (void)gt_same(t, &one, &two, true);
    gt_drop(&one);
    gt_drop(&two);
    gt_end(t);
}

/* Segments that a small workspace asks for: the bytes of one pass. */
static void segments(gt *t, const gt_rule *p, const char *name) {
    gt_shapes s, small;
    gt_job job, less;
    gt_live one = { 0 }, two = { 0 };
    gt_rule q = *p;
    if (!gt_begin(t, "prefill_small_workspace_%s", name)) return;
    gt_prefill_job(t, t->dev, p, &s, &job);
    small = s;
    small.rule.max_workspace = (uint64_t)(q.batch ? q.batch : 1) * 3 * q.nv * 82176 + 65536;
    less = job;
    less.shape = &small.rule.base;
    less.buf[GDN_PREFILL_P_WORKSPACE].bytes = workspace_of(t, t->dev, less.shape);
    (void)gt_check(t, less.buf[GDN_PREFILL_P_WORKSPACE].bytes <= small.rule.max_workspace, "the workspace is above the plan's bound");
    (void)gt_check(t, !t->clock || less.buf[GDN_PREFILL_P_WORKSPACE].bytes < job.buf[GDN_PREFILL_P_WORKSPACE].bytes, "nothing was saved");
    for (uint32_t i = 0; i < job.n_ptr; i++) job.buf[i].tol = less.buf[i].tol = 0;
    if (gt_up(t, t->dev, &job, &one) && gt_check(t, gt_launch(&one, NULL) == GDN_OK, "launch") && gt_down(t, &one, NULL) &&
        gt_up(t, t->dev, &less, &two) && gt_check(t, gt_launch(&two, NULL) == GDN_OK, "launch") && gt_down(t, &two, NULL))
        (void)gt_same(t, &one, &two, true);
    gt_drop(&one);
    gt_drop(&two);
    gt_end(t);
}

/* Many runs on dirty workspaces: always the first one's bytes. */
static void again(gt *t, uint32_t runs) {
    static const uint32_t len[] = { 1238, 1199, 1240, 1216, 1187, 1203, 519 };
    const gt_rule p = { .nk = 16, .nv = 48, .batch = 7, .len = len };
    gt_shapes s;
    gt_job job;
    gt_live a = { 0 };
    uint8_t *first[GT_MAX_PTR] = { NULL };
    if (!gt_begin(t, "B29_prefill_long_tailed_batch_%u_times", runs)) return;
    if (gt_needs_device(t)) {
        gt_prefill_job(t, t->dev, &p, &s, &job);
        uint64_t *const state = &a.ptr[GDN_PREFILL_P_STATE];
        const gt_buf *sb = &job.buf[GDN_PREFILL_P_STATE];
        bool ok = gt_up(t, t->dev, &job, &a);
        for (uint32_t i = 0; ok && i < runs; i++) {
            ok = gt_check(t, gdn_copy_in(t->dev, NULL, *state, sb->init, sb->bytes) == GDN_OK, "copy") &&
                 gt_check(t, gt_launch(&a, NULL) == GDN_OK, "launch");
            if (!ok || (i > 0 && i + 1 < runs && i % 25)) continue;
            ok = gt_down(t, &a, NULL);
            for (uint32_t k = 0; ok && k < job.n_ptr; k++) {
                if (!a.got[k]) continue;
                if (!first[k]) first[k] = memcpy(gt_keep(t, job.buf[k].bytes), a.got[k], job.buf[k].bytes);
                ok = gt_same_bytes(t, first[k], a.got[k], job.buf[k].bytes, "a later run");
            }
        }
        gt_drop(&a);
    }
    gt_end(t);
}

/* B03: rows that lie behind 2^31 and 2^32 elements have the bytes of the same rows at the front. */
static void far_rows(gt *t) {
    enum { T = 200, NK = 16, NV = 64 };
    static const uint32_t first[] = { 262100, 524200 }, len[] = { 150, 50 };
    if (!gt_begin(t, "B03_prefill_offsets_past_2_to_the_31")) return;
    if (gt_needs_device(t)) {
        gt_shapes s;
        gt_job job;
        gt_live near = { 0 };
        const gt_rule p = { .nk = NK, .nv = NV, .batch = 2, .len = len };
        gt_prefill_job(t, t->dev, &p, &s, &job);
        for (uint32_t i = 0; i < job.n_ptr; i++) job.buf[i].tol = 0;
        bool ok = gt_up(t, t->dev, &job, &near) && gt_check(t, gt_launch(&near, NULL) == GDN_OK, "launch") && gt_down(t, &near, NULL);
        static const struct {
            uint32_t ptr;
            uint64_t row;
        } rows[] = { { GDN_PREFILL_P_QUERY, NK * 256 }, { GDN_PREFILL_P_KEY, NK * 256 }, { GDN_PREFILL_P_VALUE, NV * 256 },
                     { GDN_PREFILL_P_GATE, NV * 8 },    { GDN_PREFILL_P_BETA, NV * 8 },  { GDN_PREFILL_P_OUTPUT, NV * 256 } };
        for (uint32_t f = 0; ok && f < GT_N(first); f++) {
            uint64_t ptr[GT_MAX_PTR], mem[GT_N(rows)] = { 0 };
            memcpy(ptr, near.ptr, sizeof ptr);
            const int32_t cu[] = { (int32_t)first[f], (int32_t)first[f] + 150, (int32_t)first[f] + 200 };
            ok = gt_fill(t, &near, NULL) &&
                 gt_check(t, gdn_copy_in(t->dev, NULL, ptr[GDN_PREFILL_P_CU_SEQLENS], cu, sizeof cu) == GDN_OK, "copy");
            for (uint32_t i = 0; ok && i < GT_N(rows); i++) {
                const uint64_t at = first[f] * rows[i].row;
                ok = gt_check(t, gdn_mem_alloc(t->dev, at + T * rows[i].row, &mem[i]) == GDN_OK, "device memory") &&
                     gt_check(t, gdn_fill(t->dev, NULL, mem[i], 0xFF, at + T * rows[i].row) == GDN_OK, "fill");
                if (ok && job.buf[rows[i].ptr].init)
                    ok = gt_check(t,
                                  gdn_copy_in(t->dev, NULL, mem[i] + at, job.buf[rows[i].ptr].init,
                                              T * rows[i].row - (rows[i].ptr == GDN_PREFILL_P_BETA ? NV * 4 : 0)) == GDN_OK,
                                  "copy");
                ptr[rows[i].ptr] = mem[i];
            }
            const gdn_launch_args args = { (uint32_t)sizeof args, job.n_ptr, 2, 0, NULL, ptr, job.u32 };
            ok = ok && gt_check(t, gdn_launch(near.plan, &args) == GDN_OK, "launch");
            uint8_t *out = gt_keep(t, T * NV * 256), *front = gt_keep(t, 4096);
            ok = ok &&
                 gt_check(t, gdn_copy_out(t->dev, NULL, out, mem[5] + first[f] * (uint64_t)NV * 256, T * NV * 256) == GDN_OK, "copy") &&
                 gt_same_bytes(t, near.got[GDN_PREFILL_P_OUTPUT], out, T * NV * 256, "rows far behind") &&
                 gt_check(t, gdn_copy_out(t->dev, NULL, front, mem[5], 4096) == GDN_OK, "copy");
            for (uint32_t i = 0; ok && i < 4096; i++) ok = gt_check(t, front[i] == 0xFF, "rows at the front were written");
            for (uint32_t i = 0; i < GT_N(rows); i++) gdn_mem_free(t->dev, mem[i]);
        }
        gt_drop(&near);
    }
    gt_end(t);
}

/* On the routes of t->dev. small: with heads of 64, which the fast prefill has not. */
static void on_route(gt *t, bool small) {
    static const uint32_t tails[] = { 1, 63, 64, 65, 103, 200 }, len[] = { 3, 0, 70, 17, 130, 5 }, zero[] = { 0, 0 };
    static const int32_t slots[] = { 4, 0, -1, 6, 2, 7 }, out[] = { 1, 3, 5, -1, 8, 7 };
    static const uint8_t fresh[] = { 0, 1, 1, 0, 0, 1 };
    char name[96];
    for (uint32_t i = 0; i < GT_N(tails); i++) {
        (void)snprintf(name, sizeof name, "T%u", tails[i]);
        pair(t, name, &(gt_rule) { .nk = 2, .nv = 6, .rows = tails[i], .pad = i });
    }
    for (uint32_t form = 0; form < 8; form++) {
        (void)snprintf(name, sizeof name, "%s_%s_%s", form & 1 ? "v_major" : "k_major", form & 2 ? "tiled" : "grouped",
                       form & 4 ? "log" : "linear");
        pair(t, name,
             &(gt_rule) { .nk = 2,
                          .nv = 4,
                          .batch = 6,
                          .len = len,
                          .slots = slots,
                          .fresh = fresh,
                          .layout = form & 1,
                          .map = form >> 1 & 1,
                          .form = form & 4 ? GDN_GATE_LOG : GDN_GATE_LINEAR });
        if (!small) continue;
        (void)snprintf(name, sizeof name, "dim_64_form_%u", form);
        pair(t, name,
             &(gt_rule) { .nk = 2,
                          .nv = 4,
                          .dim = 64,
                          .batch = 6,
                          .len = len,
                          .slots = slots,
                          .fresh = fresh,
                          .layout = form & 1,
                          .map = form >> 1 & 1,
                          .form = form & 4 ? GDN_GATE_LOG : GDN_GATE_LINEAR });
    }
    pair(t, "other_slots_checkpoints_first_row",
         &(gt_rule) { .nk = 2,
                      .nv = 4,
                      .batch = 6,
                      .len = len,
                      .slots = slots,
                      .out_slots = out,
                      .ckpt_every = 64,
                      .first = 5,
                      .offsets = GDN_OFFSETS_I64 });
    pair(t, "B13_normalising_flag",
         &(gt_rule) { .nk = 2, .nv = 4, .batch = 6, .len = len, .first = 3, .flags = GDN_QK_L2NORM, .scale = 0.5f });
    pair(t, "odd_strides_and_bases", &(gt_rule) { .nk = 2, .nv = 4, .rows = 130, .pad = 1, .shift = 2 });
    pair(t, "B05_decay_1", &(gt_rule) { .nk = 1, .nv = 3, .rows = 130, .gate_lo = 1, .gate_hi = 1 });
    pair(t, "B06_tiny_decay", &(gt_rule) { .nk = 1, .nv = 3, .rows = 130, .gate_lo = 1.03e-12, .gate_hi = 1.03e-12 });
    (void)zero;
    segments(t, &(gt_rule) { .nk = 2, .nv = 4, .rows = 700 }, "one_sequence");
    segments(
        t,
        &(gt_rule) { .nk = 2, .nv = 4, .batch = 6, .len = (const uint32_t[]) { 300, 0, 770, 17, 530, 64 }, .fresh = fresh, .slots = slots },
        "packed");
    cuts(t, t->brief ? 200 : 1193, false);
}

/* Few heads, long sequences: the plan must have taken segments. */
static void segmented(gt *t, const char *name, const gt_rule *p) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "prefill_segments_%s", name)) return;
    gt_prefill_job(t, t->dev, p, &s, &job);
    (void)gt_check(t, route_of(t, t->dev, job.shape).split_tokens > 64, "the plan has no segments");
    gt_pair(t, &job);
    gt_end(t);
}
static void in_segments(gt *t) {
    static const uint32_t brief[] = { 4200, 0, 5 }, len[] = { 6000, 0, 5 }, two[] = { 4000, 2300, 64 };
    static const uint8_t fresh[] = { 0, 1, 0 };
    segmented(t, "of_one_head", &(gt_rule) { .nk = 1, .nv = 1, .batch = 3, .len = brief, .first = 3 });
    if (t->brief) return;
    segmented(t, "side_by_side", &(gt_rule) { .nk = 2, .nv = 8, .rows = 5000, .pad = 8 });
    segmented(t, "of_one_key_head", &(gt_rule) { .nk = 1, .nv = 4, .rows = 8192, .layout = 1 });
    segmented(t, "packed", &(gt_rule) { .nk = 1, .nv = 2, .batch = 3, .len = len });
    segmented(t, "packed_fresh", &(gt_rule) { .nk = 1, .nv = 2, .batch = 3, .len = two, .fresh = fresh, .form = GDN_GATE_LOG });
    cuts(t, 8192, true);
}

/* The fast prefill, by T and P or by W and N: the same tests, lengths around its tiles, of which the latter has some, many runs. */
static void fast_route(gt *t, bool wn) {
    static const uint32_t T[] = { 2,  8,  15, 16,  17,  31,  32,  33,  47,  48,  49,  62,  66,  79,  80,  81,
                                  95, 96, 97, 112, 127, 128, 129, 144, 160, 190, 191, 192, 193, 199, 257, 300 };
    gdn *const lent = t->dev;
    char name[32];
    if (strcmp(t->target, "hopper") != 0 || getenv("GPU_TEST_NO_FAST") || (wn && getenv("GPU_TEST_NO_FAST_WN"))) return;
    t->dev = gt_open(t, t->target, "gdn_prefill_fast", "true", "gdn_prefill_fast_wn", wn ? "true" : "false", NULL);
    t->prefix = wn ? "fast_wn_" : "fast_";
    if (t->dev) {
        on_route(t, !wn);
        for (uint32_t i = 0; i < GT_N(T) && !t->brief; i += wn ? 4 : 1) {
            (void)snprintf(name, sizeof name, "T%u", T[i]);
            pair(t, name, &(gt_rule) { .nk = 1, .nv = 1 + i % 4, .rows = T[i], .pad = 8 });
        }
        in_segments(t);
        if (!t->brief) again(t, 1000);
        if (!t->brief) far_rows(t);
        gdn_close(t->dev);
    }
    t->prefix = NULL;
    t->dev = lent;
}

void gt_test_prefill_fast(gt *t) {
    fast_route(t, false);
}
void gt_test_prefill_fast_wn(gt *t) {
    fast_route(t, true);
}
void gt_test_prefill(gt *t) {
    on_route(t, true);
    if (t->brief) return;
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t T[] = { 300, 1624, 8200 };
        same_by_levers(t, "pipe_is_vfused", "gdn_pipe", "1", "0", T[i]);
        same_by_levers(t, "mma8_is_fwd_o", "gdn_no_fwd_o_mma8", "false", "true", T[i]);
    }
    again(t, 100);
    far_rows(t);
}
