/* conv_check.c - what a conv_case must give, and whether it did; see conv_case.h. */
#include "conv_case.h"
#include "oracle.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(uint64_t n) {
    double *p = calloc(n ? n : 1, sizeof *p);
    if (!p) abort();
    return p;
}

/* One channel of one sequence: outputs to y, the new columns into e->state. full: window ++ x. */
static void expect_channel(const conv_case *c, conv_expect *e, uint32_t b, uint32_t ch, double *full) {
    const conv_spec *s = &c->s;
    const uint32_t hist = s->width - 1, T = c->start[b + 1] - c->start[b], na = s->accepted ? (uint32_t)s->accepted[b] : 0;
    const bool zero = s->no_state || (s->fresh && s->fresh[b]);
    double w[16], *y = doubles(T);
    for (uint32_t j = 0; j < s->width; j++) w[j] = num_get(c->weight.p, s->weight_type, (uint64_t)ch * s->width + j);
    for (uint32_t j = 0; j < hist; j++) full[j] = zero ? 0 : num_get(c->state.p, s->act, conv_at(c, (uint32_t)c->slot[b], ch, na + j));
    for (uint32_t t = 0; t < T; t++) full[hist + t] = conv_x(c, c->start[b] + t, ch);
    const double bias = s->bias ? num_get(c->bias.p, s->weight_type, ch) : 0;
    oracle_conv(w, s->width, bias, !s->no_silu, full, full + hist, T, y);
    for (uint32_t t = 0; t < T; t++) e->y[(uint64_t)(c->start[b] - c->start[0] + t) * s->channels + ch] = y[t];
    free(y);
    if (s->no_state) return;
    const uint32_t n = s->keep ? hist + T : hist, skip = s->keep ? 0 : T;
    for (uint32_t j = 0; j < n; j++) num_put(e->state.p, s->act, conv_at(c, (uint32_t)c->slot[b], ch, j), full[skip + j]);
}

static void norm_heads(const conv_case *c, conv_expect *e) {
    const uint32_t rows = c->start[c->s.batch] - c->start[0];
    for (uint32_t t = 0; t < rows; t++) {
        for (uint32_t h = 0; h < 2 * c->s.nk; h++) oracle_l2norm(e->y + (uint64_t)t * c->s.channels + h * c->s.dim, c->s.dim);
    }
}

conv_expect conv_expect_of(const conv_case *c) {
    const conv_spec *s = &c->s;
    const uint32_t rows = c->start[s->batch] - c->start[0];
    conv_expect e = { doubles((uint64_t)rows * s->channels), c->state.p ? guard_copy(&c->state) : (guard) { 0 } };
    double *full = doubles(rows + 16u);
    for (uint32_t b = 0; b < s->batch; b++) {
        for (uint32_t ch = 0; c->slot[b] >= 0 && ch < s->channels; ch++) expect_channel(c, &e, b, ch, full);
    }
    free(full);
    if (s->nk) norm_heads(c, &e);
    return e;
}

void conv_expect_free(conv_expect *e) {
    free(e->y);
    guard_free(&e->state);
}

/* Rows of a sequence: the block against f64, or zero when it is padding. */
static bool sequence_matches(const conv_case *c, const conv_expect *e, uint32_t b, char *why, uint32_t cap) {
    const uint32_t C = c->s.channels, T = c->start[b + 1] - c->start[b];
    double *got = doubles((uint64_t)T * C);
    bool zero = true;
    for (uint32_t t = 0; t < T; t++) {
        for (uint32_t ch = 0; ch < C; ch++) {
            got[(uint64_t)t * C + ch] = conv_out(c, c->start[b] + t, ch);
            zero = zero && got[(uint64_t)t * C + ch] == 0;
        }
    }
    const num_error r = num_compare(e->y + (uint64_t)(c->start[b] - c->start[0]) * C, got, (uint64_t)T * C);
    const bool ok = T == 0 || (c->slot[b] < 0 ? zero : num_close(&r, c->s.act == GDN_F32 ? 1e-6 : 3e-3));
    if (!ok)
        snprintf(why, cap, "sequence %u: relative RMS %.3g worst %.3g (reference RMS %.3g, padding %d)", b, r.rel_rms, r.rel_worst, r.rms,
                 c->slot[b] < 0);
    free(got);
    return ok;
}

/* What is between rows and outside the sequences still holds the poison. */
static bool gaps_untouched(const conv_case *c) {
    for (uint32_t i = 0; i < 3; i++) {
        if (!c->out[i].p) continue;
        const uint64_t stride = c->out[i].bytes / c->buffer_rows, used = stride - c->s.out_pad * num_size(c->s.act);
        for (uint64_t k = 0; k < c->out[i].bytes; k++) {
            const uint64_t row = k / stride;
            const bool inside = row >= c->start[0] && row < c->start[c->s.batch] && k % stride < used;
            if (!inside && c->out[i].p[k] != 0xFF) return false;
        }
        if (!guard_ok(&c->out[i])) return false;
    }
    return guard_ok(&c->state) && guard_ok(&c->x);
}

bool conv_matches(const conv_case *c, const conv_expect *e, char *why, uint32_t cap) {
    for (uint32_t b = 0; b < c->s.batch; b++) {
        if (!sequence_matches(c, e, b, why, cap)) return false;
    }
    if (c->state.p && memcmp(c->state.p, e->state.p, e->state.bytes) != 0) {
        uint64_t i = 0;
        while (num_get(c->state.p, c->s.act, i) == num_get(e->state.p, c->s.act, i)) i++;
        snprintf(why, cap, "state element %llu is %g, expected %g", (unsigned long long)i, num_get(c->state.p, c->s.act, i),
                 num_get(e->state.p, c->s.act, i));
        return false;
    }
    if (gaps_untouched(c)) return true;
    snprintf(why, cap, "something outside the sequences' rows was written");
    return false;
}

void conv_check(conv_case *c) {
    char why[256] = "";
    conv_expect e = conv_expect_of(c);
    guard before = c->state.p ? guard_copy(&c->state) : (guard) { 0 };
    for (uint32_t i = 0; i < 2; i++) {
        guard_put(&c->state, before.p);
        conv_poison(c);
        const gdn_status st = conv_launch(c, 0, c->s.batch);
        if (st != GDN_OK) fail_msg("launch: %s: %s", gdn_status_name(st), target_log_text());
        if (!conv_matches(c, &e, why, sizeof why)) fail_msg("%s", why);
    }
    guard_free(&before);
    conv_expect_free(&e);
}

void conv_run(const conv_spec *s) {
    conv_case c, one;
    conv_make(&c, s);
    conv_check(&c);
    conv_make(&one, s); /* each sequence alone, on the same inputs */
    for (uint32_t b = 0; b < c.s.batch; b++) assert_int_equal(conv_launch(&one, b, 1), GDN_OK);
    for (uint32_t i = 0; i < 3; i++) {
        if (c.out[i].p && memcmp(c.out[i].p, one.out[i].p, c.out[i].bytes) != 0) fail_msg("outputs depend on what else is in the batch");
    }
    if (c.state.p && memcmp(c.state.p, one.state.p, c.state.bytes) != 0) fail_msg("states depend on what else is in the batch");
    conv_free(&one);
    conv_free(&c);
}
