/* verify.c - 1 to 16 rows a sequence with the states between them, and the form of four rows, by sequence up to four, that writes no
 * state (woa).
 *
 * woa leaves per sequence, at stash + b*stash_stride, by sequence id*stash_stride:  vn[4][nv][v_dim] | g[4][nv] | sk[4][nk][k_dim], what
 * fold needs to repeat the updates; its outputs are verify's because both run the same code and only `after` differs. */
#include "step.h"

#include <string.h>

void gdn_cpu_verify(const gdn_cpu_rule *c) {
#pragma omp parallel if (gdn__step_threads(c, c->seq_len))
    {
        uint64_t from, to;
        gdn__step_share(c, &from, &to);
        for (uint64_t i = from; i < to; i++) {
            const uint32_t b = (uint32_t)(i / c->nv);
            const uint64_t row = gdn__rule_row(c, b);
            gdn__step_run(c, i, row, (uint32_t)(gdn__rule_row(c, b + 1) - row), true, gdn__step_peek(c, i + 1, to));
        }
    }
}

static void stash_step(const gdn_cpu_rule *c, const gdn__step *u, uint32_t b, uint32_t h) {
    const uint32_t kh = gdn__rule_key_head(c, h);
    float *const vn = c->stash + gdn__rule_id(c, b) * c->stash_stride;
    float *const g = vn + (uint64_t)GDN_WOA_ROWS * c->nv * c->v_dim;
    float *const sk = g + (uint64_t)GDN_WOA_ROWS * c->nv;

    for (uint32_t t = 0; t < u->rows; t++) {
        memcpy(vn + ((uint64_t)t * c->nv + h) * c->v_dim, u->vn[t], c->v_dim * sizeof *vn);
        g[(uint64_t)t * c->nv + h] = u->g[t];
        if (gdn__rule_value_head(c, kh, 0) == h) /* one value head writes for its key head */
            memcpy(sk + ((uint64_t)t * c->nk + kh) * c->k_dim, u->k[t], c->k_dim * sizeof *sk);
    }
}

static void woa_unit(const gdn_cpu_rule *c, uint64_t i, const float *next) {
    const uint32_t b = (uint32_t)(i / c->nv), h = (uint32_t)(i % c->nv);
    const uint64_t row = gdn__rule_row(c, b);
    const uint32_t rows = (uint32_t)(gdn__rule_row(c, b + 1) - row);
    const float *const in = gdn__rule_in(c, b);
    gdn__step u;

    if (!in) {
        gdn__step_zero(c, row, rows, h);
        return;
    }
    if (c->record && h == 0) c->record[gdn__rule_id(c, b)] = GDN_RECORD_DEFERRED | rows;
    if (rows == 0) return;
    gdn__step_load(c, &u, row, rows, h);
    gdn__step_source(c, &u, in + h * gdn__rule_head_size(c), gdn__rule_fresh(c, b));
    u.next = next;
    for (uint32_t t = 0; t < rows; t++) u.after[t] = NULL;
    gdn__step_pick(c)->rows(&u);
    gdn__step_store(c, &u, row, h);
    stash_step(c, &u, b, h);
}

void gdn_cpu_verify_woa(const gdn_cpu_rule *c) {
#pragma omp parallel if (gdn__step_threads(c, GDN_WOA_ROWS))
    {
        uint64_t from, to;
        gdn__step_share(c, &from, &to);
        for (uint64_t i = from; i < to; i++) woa_unit(c, i, gdn__step_peek(c, i + 1, to));
    }
    if (!c->record) *c->engaged = 1;
}
