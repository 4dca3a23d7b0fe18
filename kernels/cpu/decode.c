/* decode.c - one token a sequence; and the run of any number of rows that verify shares with it, so that row 0 of a verify
 * is decode's code. Formulas and bit contract: abi/gdn_op_rule.h, isa/decode_k.c; layouts of a unit: step.h. */
#include "step.h"

#include <omp.h>
#include <string.h>

/* No rows: the state stays, or moves to its output place. */
static void carry_state(const gdn_cpu_rule *c, const float *in, float *out, bool fresh) {
    const size_t bytes = gdn__rule_head_size(c) * (c->bf16_state ? 2 : 4);
    if (fresh)
        memset(out, 0, bytes);
    else if (out != in)
        memcpy(out, in, bytes);
}

void gdn__step_share(const gdn_cpu_rule *c, uint64_t *from, uint64_t *to) {
    const uint64_t units = (uint64_t)c->batch * c->nv, n = (uint64_t)omp_get_num_threads(), id = (uint64_t)omp_get_thread_num();
    *from = units * id / n;
    *to = units * (id + 1) / n;
}

const float *gdn__step_peek(const gdn_cpu_rule *c, uint64_t i, uint64_t to) {
    const uint32_t b = (uint32_t)(i / c->nv);
    const float *const in = i < to && !c->bf16_state ? gdn__rule_in(c, b) : NULL;
    return in && !gdn__rule_fresh(c, b) ? in + i % c->nv * gdn__rule_head_size(c) : NULL;
}

void gdn__step_run(const gdn_cpu_rule *c, uint64_t i, uint64_t row, uint32_t rows, bool keep, const float *next) {
    const uint32_t b = (uint32_t)(i / c->nv), h = (uint32_t)(i % c->nv);
    const uint64_t at = h * gdn__rule_head_size(c);
    const float *const in = gdn__rule_in(c, b);
    float *const out = gdn__rule_out(c, b), *after[GDN_MAX_ROWS];
    gdn__step u;

    if (!in || !out) {
        gdn__step_zero(c, row, rows, h);
        return;
    }
    const bool fresh = gdn__rule_fresh(c, b);
    if (c->record && h == 0) c->record[gdn__rule_id(c, b)] = GDN_RECORD_KEPT | rows;
    if (rows == 0) {
        if (!c->record) carry_state(c, gdn__rule_further(c, in, at), gdn__rule_further(c, out, at), fresh);
        return;
    }
    gdn__step_load(c, &u, row, rows, h);
    u.next = next;
    const uint32_t kept = c->record ? rows : rows - 1;
    after[rows - 1] = gdn__rule_further(c, out, at);
    for (uint32_t t = 0; t < kept; t++) {
        float *const hi = keep ? gdn__step_hi(c, b, t) : NULL;
        after[t] = hi ? gdn__rule_further(c, hi, at) : NULL;
    }
    if (c->bf16_state) {
        gdn__step_rows_bf16(c, &u, gdn__rule_further(c, in, at), fresh, after);
    } else {
        gdn__step_source(c, &u, in + at, fresh);
        memcpy(u.after, after, rows * sizeof *after);
        gdn__step_pick(c)->rows(&u);
    }
    gdn__step_store(c, &u, row, h);
}

void gdn_cpu_decode(const gdn_cpu_rule *c) {
#pragma omp parallel if (gdn__step_threads(c, 1))
    {
        uint64_t from, to;
        gdn__step_share(c, &from, &to);
        for (uint64_t i = from; i < to; i++) gdn__step_run(c, i, i / c->nv, 1, false, gdn__step_peek(c, i + 1, to));
    }
}
