/* rule_verify.c - speculation over a rule_case: the write-on-accept sequence, and states after some accepted rows. */
#include "rule_case.h"
#include <stdlib.h>

/* What na sequential decodes of sequence b's first rows leave, against `got`; f64 by way of rc_expect's kept states. */
void rc_assert_after(const rule_case *c, const rc_expect *e, uint32_t b, uint32_t na, const float *got) {
    const uint32_t n = c->start[b + 1] - c->start[b];
    const double *want = na == n ? e->state + b * c->state_elems : e->hi + ((uint64_t)b * e->hi_cap + na - 1) * c->state_elems;
    double *g = malloc(c->state_elems * sizeof *g);
    assert_non_null(g);
    for (uint64_t h = 0; h < c->s.nv; h++) {
        for (uint32_t i = 0; i < c->s.dim; i++) {
            for (uint32_t j = 0; j < c->s.dim; j++) {
                const uint64_t block = (uint64_t)c->s.dim * c->s.dim;
                g[h * block + i * c->s.dim + j] = (double)got[h * block + rc_elem(c, i, j)];
            }
        }
    }
    const num_error err = num_compare(want, g, c->state_elems);
    free(g);
    if (!num_close(&err, 1e-5)) fail_msg("sequence %u after %u rows: relative RMS %.3g", b, na, err.rel_rms);
}

/* clear, write-on-accept verify, fold. */
void rc_deferred(rule_case *c, const uint32_t *na) {
    guard_put(&c->na, na);
    assert_int_equal(rc_launch_op(c, GDN_OP_FLAG_CLEAR, 0, c->s.batch), GDN_OK);
    assert_int_equal(rc_launch_op(c, GDN_OP_VERIFY_WOA, 0, c->s.batch), GDN_OK);
    assert_int_equal(*(uint32_t *)(void *)c->flag.p, 1);
    assert_int_equal(rc_launch_op(c, GDN_OP_FOLD, 0, c->s.batch), GDN_OK);
}
