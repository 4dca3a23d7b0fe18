/* fold.c - apply the accepted rows of a verify, na[b] of them, to the states.
 *
 * After a write-on-accept verify (*engaged == 1): S = g_t S + sk_t vn_t for t < na from the stash, one read and one write.
 * After a plain one, which has written the state of all k_rows rows: fewer accepted rows bring back hi[na-1]. By sequence the
 * record says which of them it was and with how many rows, and the plain one has written nothing but hi. */
#include "step.h"

#include <string.h>

static void fold_stash(const gdn_cpu_rule *c, uint32_t b, uint32_t h, uint32_t na, const float *in, float *out) {
    const uint32_t kh = gdn__rule_key_head(c, h);
    const float *const vn = c->stash + gdn__rule_id(c, b) * c->stash_stride;
    const float *const g = vn + (uint64_t)GDN_WOA_ROWS * c->nv * c->v_dim;
    const float *const sk = g + (uint64_t)GDN_WOA_ROWS * c->nv;
    gdn__step u;

    gdn__step_source(c, &u, in, gdn__rule_fresh(c, b));
    u.rows = na;
    u.after[0] = out;
    for (uint32_t t = 0; t < na; t++) {
        memcpy(u.vn[t], vn + ((uint64_t)t * c->nv + h) * c->v_dim, c->v_dim * sizeof *vn);
        memcpy(u.k[t], sk + ((uint64_t)t * c->nk + kh) * c->k_dim, c->k_dim * sizeof *sk);
        u.g[t] = g[(uint64_t)t * c->nv + h];
    }
    gdn__step_pick(c)->fold(&u);
}

static void copy_state(const gdn_cpu_rule *c, const float *hi, uint64_t at, float *out) {
    if (hi && hi != out) memcpy(out + at, hi + at, gdn__rule_head_size(c) * sizeof *out);
}

static void fold_by_record(const gdn_cpu_rule *c, uint64_t i) {
    const uint32_t b = (uint32_t)(i / c->nv), h = (uint32_t)(i % c->nv);
    const uint64_t at = h * gdn__rule_head_size(c);
    const float *const in = gdn__rule_in(c, b);
    float *const out = gdn__rule_out(c, b);

    if (!in || !out) return;
    const uint32_t word = c->record[gdn__rule_id(c, b)], rows = word & GDN_RECORD_ROWS, na = c->na[b] < rows ? c->na[b] : rows;
    if (na == 0) return;
    if (word & GDN_RECORD_DEFERRED)
        fold_stash(c, b, h, na, in + at, out + at);
    else if (word & GDN_RECORD_KEPT)
        copy_state(c, gdn__step_hi(c, b, na - 1), at, out);
}

static void fold_unit(const gdn_cpu_rule *c, uint64_t i, bool engaged) {
    const uint32_t b = (uint32_t)(i / c->nv), h = (uint32_t)(i % c->nv);
    const uint64_t at = h * gdn__rule_head_size(c);
    const uint32_t na = c->na[b];
    const float *const in = gdn__rule_in(c, b);
    float *const out = gdn__rule_out(c, b);

    if (na == 0 || !in || !out) return;
    if (engaged) {
        fold_stash(c, b, h, na < GDN_WOA_ROWS ? na : GDN_WOA_ROWS, in + at, out + at);
    } else if (na < gdn__rule_row(c, b + 1) - gdn__rule_row(c, b)) {
        copy_state(c, gdn__step_hi(c, b, na - 1), at, out);
    }
}

void gdn_cpu_fold(const gdn_cpu_rule *c) {
    const bool engaged = c->engaged && *c->engaged == 1;
#pragma omp parallel if (gdn__step_threads(c, 1))
    {
        uint64_t from, to;
        gdn__step_share(c, &from, &to);
        for (uint64_t i = from; i < to; i++) c->record ? fold_by_record(c, i) : fold_unit(c, i, engaged);
    }
}

void gdn_cpu_round(const gdn_cpu_rule *verify, const gdn_cpu_rule *fold) {
    gdn_cpu_rule rows = *verify;
    gdn_cpu_fold(fold);
    rows.folded = fold;
    gdn_cpu_verify_woa(&rows);
}
