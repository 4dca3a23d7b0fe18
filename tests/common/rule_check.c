/* rule_check.c - what a rule_case must give, and whether it did; see rule_case.h. */
#include "oracle.h"
#include "rule_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 256 };

/* The chunk pipeline of a GPU target rounds W, U, uc and S to bf16. */
static bool rounds(const rule_case *c) {
    return c->carried || (c->s.op == GDN_OP_PREFILL && c->s.dim == 128 && !target_is_cpu());
}
static double tol_out(const rule_case *c) {
    const bool normalised = c->s.op == GDN_OP_PREFILL && (c->s.flags & GDN_QK_L2NORM) && !target_is_cpu(); /* q and k rounded once more */
    return c->s.act == GDN_F32 ? 1e-5 : normalised || c->carried ? 7e-3 : rounds(c) ? 4.5e-3 : 3e-3;
}
static double tol_state(const rule_case *c) {
    return rounds(c) ? 4e-3 : c->s.op == GDN_OP_PREFILL && (c->s.flags & GDN_QK_L2NORM) && !target_is_cpu() ? 3e-3 : 1e-5;
}

static void *zeros(uint64_t n, uint64_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) abort();
    return p;
}

/* One head of one sequence: its state from init or the pool, then token by token. */
static void expect_head(const rule_case *c, rc_expect *e, uint32_t b, uint32_t h, const double *init) {
    const rc_spec *s = &c->s;
    const uint32_t D = s->dim, kh = s->head_map == GDN_HEADS_TILED ? h % s->nk : h / (s->nv / s->nk);
    const uint64_t block = (uint64_t)D * D, at = ((uint64_t)b * s->nv + h) * block;
    double *S = e->state + at, x[3][MAX_DIM];
    const bool fresh = s->fresh && s->fresh[b];
    const float *from = rc_state(c, false, b) + h * block;
    for (uint32_t i = 0; i < D; i++) {
        for (uint32_t j = 0; j < D; j++) S[i * D + j] = fresh ? 0 : init ? init[at + i * D + j] : (double)from[rc_elem(c, i, j)];
    }
    const double scale = s->scale > 0 ? (double)s->scale : 1 / sqrt(D);
    const bool prefill = s->op == GDN_OP_PREFILL, log_form = s->gate_form == GDN_GATE_LOG;
    for (uint32_t t = c->start[b]; t < c->start[b + 1]; t++) {
        for (uint32_t i = 0; i < D; i++) {
            x[0][i] = num_get(c->qp, s->act, (uint64_t)t * c->qk_stride + kh * D + i);
            x[1][i] = num_get(c->kp, s->act, (uint64_t)t * c->qk_stride + kh * D + i);
            x[2][i] = num_get(c->vp, s->act, (uint64_t)t * c->v_stride + h * D + i);
        }
        if (s->flags & GDN_QK_L2NORM) {
            oracle_l2norm(x[0], D);
            oracle_l2norm(x[1], D);
        }
        const double g = (double)*rc_gate(c, t, h), a = prefill ? oracle_decay_prefill(g, log_form) : oracle_decay_decode(g, log_form);
        oracle_token(S, D, D, x[0], x[1], x[2], a, (double)*rc_beta(c, t, h), scale, e->o + ((uint64_t)(t - c->start[0]) * s->nv + h) * D);
        const uint32_t done = t - c->start[b] + 1, every = prefill ? s->ckpt_every : 1;
        if (e->hi && done % every == 0 && done / every <= e->hi_n[b])
            memcpy(e->hi + (((uint64_t)b * e->hi_cap + done / every - 1) * s->nv + h) * block, S, block * sizeof *S);
    }
}

rc_expect rc_expect_of(const rule_case *c, const double *init) {
    const rc_spec *s = &c->s;
    rc_expect e = { 0 };
    e.o = zeros((uint64_t)(c->start[s->batch] - c->start[0]) * s->nv * s->dim, sizeof *e.o);
    e.row = zeros(c->buffer_rows, 1);
    e.state = zeros(s->batch * c->state_elems, sizeof *e.state);
    e.written = zeros(s->batch, 1);
    e.hi_n = zeros(s->batch, sizeof *e.hi_n);
    const bool ckpt = c->ckpt.p != NULL;
    for (uint32_t b = 0; b < s->batch; b++) {
        const uint32_t n = c->start[b + 1] - c->start[b];
        e.hi_n[b] = rc_padding(c, b) || n == 0 ? 0 : ckpt ? n / s->ckpt_every : c->hi.p ? n - 1 : 0;
        if (e.hi_n[b] > e.hi_cap) e.hi_cap = e.hi_n[b];
    }
    if (e.hi_cap) e.hi = zeros((uint64_t)s->batch * e.hi_cap * c->state_elems, sizeof *e.hi);
    for (uint32_t b = 0; b < s->batch; b++) {
        const bool pad = rc_padding(c, b);
        for (uint32_t t = c->start[b]; t < c->start[b + 1]; t++) e.row[t] = pad ? RC_ZERO : RC_VALUE;
        /* Without tokens a state is written only when it is copied elsewhere or zeroed. */
        const bool moves = s->op != GDN_OP_DECODE && (rc_state(c, true, b) != rc_state(c, false, b) || (s->fresh && s->fresh[b]));
        e.written[b] = !pad && s->op != GDN_OP_VERIFY_WOA && (c->start[b + 1] > c->start[b] || moves);
        for (uint32_t h = 0; !pad && h < s->nv; h++) expect_head(c, &e, b, h, init);
    }
    return e;
}

void rc_expect_free(rc_expect *e) {
    free(e->o);
    free(e->row);
    free(e->state);
    free(e->written);
    free(e->hi);
    free(e->hi_n);
    memset(e, 0, sizeof *e);
}

rc_before rc_remember(const rule_case *c) {
    return (rc_before) { guard_copy(&c->pool), c->pool_out.p ? guard_copy(&c->pool_out) : (guard) { 0 },
                         c->hi.p ? guard_copy(&c->hi) : (guard) { 0 }, c->ckpt.p ? guard_copy(&c->ckpt) : (guard) { 0 } };
}

void rc_put_back(rule_case *c, const rc_before *b) {
    guard_put(&c->pool, b->pool.p);
    guard_put(&c->pool_out, b->pool_out.p);
    guard_put(&c->hi, b->hi.p);
    guard_put(&c->ckpt, b->ckpt.p);
    guard_poison(&c->o);
    guard_poison(&c->stash);
    guard_poison(&c->flag);
}

void rc_forget(rc_before *b) {
    guard_free(&b->pool);
    guard_free(&b->pool_out);
    guard_free(&b->hi);
    guard_free(&b->ckpt);
}

/* One state block [nv][K][V] against f64, head by head; afterwards `shadow` holds what is there. */
static bool state_matches(const rule_case *c, const double *want, const float *got, float *shadow, const char *what, uint32_t b, bool any,
                          char *why, uint32_t cap) {
    const uint32_t D = c->s.dim;
    double *g = zeros((uint64_t)D * D, sizeof *g);
    bool ok = true;
    for (uint32_t h = 0; !any && ok && h < c->s.nv; h++) {
        const float *head = got + (uint64_t)h * D * D;
        const double *w = want + (uint64_t)h * D * D;
        bool zero = true;
        for (uint32_t i = 0; i < D; i++) {
            for (uint32_t j = 0; j < D; j++) {
                g[i * D + j] = (double)head[rc_elem(c, i, j)];
                zero = zero && w[i * D + j] == 0 && head[rc_elem(c, i, j)] == 0;
            }
        }
        const num_error e = num_compare(w, g, (uint64_t)D * D);
        ok = num_close(&e, tol_state(c)) || zero;
        if (!ok)
            snprintf(why, cap, "%s of sequence %u head %u: relative RMS %.3g worst %.3g (reference RMS %.3g, finite %d)", what, b, h,
                     e.rel_rms, e.rel_worst, e.rms, e.finite);
    }
    free(g);
    memcpy(shadow, got, c->state_elems * 4);
    return ok;
}

static bool states_match(const rule_case *c, const rc_expect *e, const rc_before *before, char *why, uint32_t cap) {
    bool ok = true;
    rc_before s = { guard_copy(&before->pool), guard_copy(&before->pool_out), guard_copy(&before->hi), guard_copy(&before->ckpt) };
    uint64_t ck = 0;
    for (uint32_t b = 0; ok && b < c->s.batch; b++) {
        const double *want = e->state + b * c->state_elems;
        if (e->written[b]) {
            const guard *pool = c->s.other_pool ? &c->pool_out : &c->pool;
            const guard *shadow = c->s.other_pool ? &s.pool_out : &s.pool;
            const float *got = rc_state(c, true, b);
            const uint64_t off = (uint64_t)((const uint8_t *)got - pool->p);
            ok = state_matches(c, want, got, (float *)(void *)(shadow->p + off), "state", b, e->written[b] == RC_ANY, why, cap);
        }
        for (uint32_t t = 0; ok && c->s.op != GDN_OP_VERIFY_WOA && t < e->hi_n[b]; t++) {
            const bool is_ckpt = c->ckpt.p != NULL;
            const guard *g = is_ckpt ? &c->ckpt : &c->hi, *shadow = is_ckpt ? &s.ckpt : &s.hi;
            const float *got = is_ckpt ? (const float *)(const void *)c->ckpt.p + (ck + t) * c->state_elems : rc_hi(c, b, t);
            const uint64_t off = (uint64_t)((const uint8_t *)got - g->p);
            ok = state_matches(c, e->hi + ((uint64_t)b * e->hi_cap + t) * c->state_elems, got, (float *)(void *)(shadow->p + off),
                               is_ckpt ? "checkpoint" : "intermediate", b, e->written[b] == RC_ANY, why, cap);
        }
        if (c->ckpt.p) ck += (c->start[b + 1] - c->start[b]) / c->s.ckpt_every;
    }
    const guard *now[] = { &c->pool, &c->pool_out, &c->hi, &c->ckpt }, *then[] = { &s.pool, &s.pool_out, &s.hi, &s.ckpt };
    const char *name[] = { "pool", "output pool", "hi", "ckpt" };
    for (uint32_t i = 0; ok && i < 4; i++) {
        ok = !now[i]->p || memcmp(now[i]->p, then[i]->p, now[i]->bytes) == 0;
        if (!ok) snprintf(why, cap, "%s: bytes that belong to no written state have changed", name[i]);
    }
    rc_forget(&s);
    return ok;
}

static bool all_bytes(const uint8_t *p, uint64_t n, uint8_t byte) {
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] != byte) return false;
    }
    return true;
}

static bool outputs_match(const rule_case *c, const rc_expect *e, char *why, uint32_t cap) {
    const rc_spec *s = &c->s;
    for (uint32_t t = rc_first_row(c); t < c->buffer_rows; t++) {
        const bool untouched = e->row[t] == RC_UNTOUCHED;
        if ((untouched || e->row[t] == RC_ZERO) && !all_bytes(rc_out_row(c, t), rc_out_row_bytes(c), untouched ? 0xFF : 0)) {
            snprintf(why, cap, "output row %u: %s", t, untouched ? "written though it belongs to no sequence" : "not zeroed");
            return false;
        }
    }
    const uint64_t D = s->dim;
    double *w = zeros(2 * (uint64_t)c->longest * D, sizeof *w), *g = w + c->longest * D;
    bool ok = true;
    for (uint32_t b = 0; b < s->batch; b++) {
        const uint32_t t0 = c->start[b], n = c->start[b + 1] - t0;
        if (n == 0 || e->row[t0] != RC_VALUE) continue;
        for (uint32_t h = 0; ok && h < s->nv; h++) {
            for (uint32_t t = 0; t < n; t++) {
                for (uint32_t i = 0; i < D; i++) {
                    const uint64_t at = ((uint64_t)(t0 + t) * s->nv + h) * D + i;
                    w[t * D + i] = e->o[at - (uint64_t)c->start[0] * s->nv * D];
                    g[t * D + i] = num_get(c->o.p, s->act, at);
                }
            }
            const num_error r = num_compare(w, g, n * D);
            ok = num_close(&r, tol_out(c));
            if (!ok)
                snprintf(why, cap, "output of sequence %u head %u: relative RMS %.3g worst %.3g (reference RMS %.3g, finite %d)", b, h,
                         r.rel_rms, r.rel_worst, r.rms, r.finite);
        }
    }
    free(w);
    return ok;
}

bool rc_matches(const rule_case *c, const rc_expect *e, const rc_before *before, char *why, uint32_t cap) {
    if (!outputs_match(c, e, why, cap) || !states_match(c, e, before, why, cap)) return false;
    if (rc_canaries(c)) return true;
    snprintf(why, cap, "bytes before a buffer were written");
    return false;
}

void rc_check_against(rule_case *c, const rc_expect *e) {
    char why[256] = "";
    rc_before before = rc_remember(c);
    guard_poison(&c->o);
    gdn_status st = rc_launch(c);
    if (st != GDN_OK) fail_msg("launch: %s: %s", gdn_status_name(st), target_log_text());
    if (!rc_matches(c, e, &before, why, sizeof why)) fail_msg("%s", why);
    rc_before first = rc_remember(c);
    guard out = guard_copy(&c->o);
    rc_put_back(c, &before);
    st = rc_launch(c);
    assert_int_equal(st, GDN_OK);
    const bool same = (!out.p || memcmp(out.p, c->o.p, out.bytes) == 0) && memcmp(first.pool.p, c->pool.p, c->pool.bytes) == 0 &&
                      (!c->pool_out.p || memcmp(first.pool_out.p, c->pool_out.p, c->pool_out.bytes) == 0);
    if (!same) fail_msg("a second launch on a dirty workspace gives other bytes");
    guard_free(&out);
    rc_forget(&first);
    rc_forget(&before);
}

void rc_check(rule_case *c) {
    rc_expect e = rc_expect_of(c, NULL);
    rc_check_against(c, &e);
    rc_expect_free(&e);
}

void rc_check_alone(rule_case *c) {
    rc_before before = rc_remember(c);
    assert_int_equal(rc_launch(c), GDN_OK);
    guard out = guard_copy(&c->o);
    rc_before packed = rc_remember(c);
    rc_put_back(c, &before);
    for (uint32_t b = 0; b < c->s.batch; b++) assert_int_equal(rc_launch_op(c, c->s.op, b, 1), GDN_OK);
    if (out.p && memcmp(out.p, c->o.p, out.bytes) != 0) fail_msg("outputs of a sequence depend on what else is in the batch");
    if (memcmp(packed.pool.p, c->pool.p, c->pool.bytes) != 0) fail_msg("states of a sequence depend on what else is in the batch");
    if (c->pool_out.p && memcmp(packed.pool_out.p, c->pool_out.p, c->pool_out.bytes) != 0) fail_msg("output states depend on the batch");
    if (c->hi.p && memcmp(packed.hi.p, c->hi.p, c->hi.bytes) != 0) fail_msg("intermediate states depend on the batch");
    rc_forget(&packed);
    guard_free(&out);
    rc_forget(&before);
}

void rc_then_decode(const rule_case *c, const rc_expect *e) {
    rc_spec s = c->s;
    s.op = GDN_OP_DECODE;
    s.len = NULL;
    s.row0 = s.tail = s.offsets = s.ckpt_every = 0;
    s.hi = false;
    s.other_pool = false;
    int32_t *slots = zeros(s.batch, sizeof *slots);
    for (uint32_t b = 0; b < s.batch; b++) slots[b] = rc_padding(c, b) ? -1 : c->out[b];
    s.slots = slots;
    s.out_slots = NULL;
    s.fresh = NULL;
    s.seed += 1000;
    rule_case d;
    rc_make(&d, &s);
    d.carried = e && (rounds(c) || (c->s.op == GDN_OP_PREFILL && (c->s.flags & GDN_QK_L2NORM) && !target_is_cpu()));
    guard_put(&d.pool, c->s.other_pool ? c->pool_out.p : c->pool.p);
    rc_expect want = rc_expect_of(&d, e ? e->state : NULL);
    rc_check_against(&d, &want);
    rc_expect_free(&want);
    rc_free(&d);
    free(slots);
}

void rc_run(const rc_spec *s) {
    rule_case c;
    rc_make(&c, s);
    rc_expect e = rc_expect_of(&c, NULL);
    if (c.s.batch > 1) {
        rc_before before = rc_remember(&c);
        rc_check_alone(&c);
        rc_put_back(&c, &before);
        rc_forget(&before);
    }
    rc_check_against(&c, &e);
    if (s->op != GDN_OP_VERIFY_WOA) rc_then_decode(&c, &e);
    rc_expect_free(&e);
    rc_free(&c);
}
