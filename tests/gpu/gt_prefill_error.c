/* gt_prefill_error.c - output and state of the prefill routes against an f64 recurrence. */
#include "gt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void recurrence(const gt_job *job, const gdn_rule_shape *s, uint32_t T, uint32_t head, double *o, double *S) {
    const uint32_t D = 128, kh = head / (s->nv / s->nk);
    const uint16_t *q = job->buf[GDN_PREFILL_P_QUERY].init, *k = job->buf[GDN_PREFILL_P_KEY].init, *v = job->buf[GDN_PREFILL_P_VALUE].init;
    const float *gb = job->buf[GDN_PREFILL_P_GATE].init, *h0 = job->buf[GDN_PREFILL_P_STATE].init;
    for (uint32_t i = 0; i < D * D; i++) S[i] = h0[(uint64_t)head * D * D + i];
    for (uint32_t t = 0; t < T; t++) {
        const double a = fmax(gb[(uint64_t)t * s->gb_stride + head], 1e-30), beta = gb[(uint64_t)t * s->gb_stride + s->nv + head];
        double u[128] = { 0 }, sum[128] = { 0 };
        for (uint32_t i = 0; i < D; i++) {
            const double key = num_from_bf16(k[(uint64_t)t * s->qk_stride + kh * D + i]);
            for (uint32_t j = 0; j < D; j++) u[j] += (S[i * D + j] *= a) * key;
        }
        for (uint32_t j = 0; j < D; j++) u[j] = beta * (num_from_bf16(v[(uint64_t)t * s->v_stride + head * D + j]) - u[j]);
        for (uint32_t i = 0; i < D; i++) {
            const double key = num_from_bf16(k[(uint64_t)t * s->qk_stride + kh * D + i]);
            const double query = num_from_bf16(q[(uint64_t)t * s->qk_stride + kh * D + i]);
            for (uint32_t j = 0; j < D; j++) sum[j] += (S[i * D + j] += key * u[j]) * query;
        }
        for (uint32_t j = 0; j < D; j++) o[((uint64_t)t * s->nv + head) * D + j] = sum[j] / sqrt(128.0);
    }
}

enum { SCALAR, TENSOR_CORES, FAST, FAST_WN, ROUTES };
/* 2 key heads and 6 value heads; `how` is p's name in the result's. */
static void errors(gt *t, uint32_t route, gt_rule p, const char *how) {
    static const struct {
        const char *name, *tc, *fast, *wn, *entry; /* entry: how its name begins */
        double out, state;
    } routes[ROUTES] = { { "scalar", "false", "false", "false", "", 3.5e-3, 2.5e-3 },
                         { "tensor_cores", "true", "false", "false", "", 3.5e-3, 2.5e-3 },
                         { "fast", "false", "true", "false", "gated_delta_rule_fast_", 1.9e-3, 5e-4 },
                         { "fast_wn", "false", "true", "true", "gated_delta_rule_fast_wn_", 1.9e-3, 5e-4 } };
    const double out = routes[route].out, state = routes[route].state;
    const uint32_t T = p.rows;
    gt_shapes s;
    gt_job job;
    gt_live l = { 0 };
    if (!gt_begin(t, "prefill_error_against_f64_%s%s_T%u", routes[route].name, how, T)) return;
    p.nk = 2, p.nv = 6;
    if (gt_needs_device(t) && (route == SCALAR || gt_needs_hopper(t))) {
        gdn *g = gt_open(t, t->target, "gdn_prefill_tc", routes[route].tc, "gdn_prefill_fast", routes[route].fast, "gdn_prefill_fast_wn",
                         routes[route].wn, NULL);
        gt_prefill_job(t, g, &p, &s, &job);
        const uint64_t n = (uint64_t)T * p.nv * 128, m = (uint64_t)p.nv * 128 * 128;
        double *o = gt_keep(t, n * 8), *S = gt_keep(t, m * 8), *x = gt_keep(t, (n > m ? n : m) * 8);
#pragma omp parallel for
        for (uint32_t h = 0; h < p.nv; h++) recurrence(&job, &s.rule, T, h, o, S + (uint64_t)h * 128 * 128);
        if (gt_up(t, g, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL)) {
            for (uint64_t i = 0; i < n; i++) x[i] = num_get(l.got[GDN_PREFILL_P_OUTPUT], GDN_BF16, i);
            const num_error eo = num_compare(o, x, n);
            for (uint64_t i = 0; i < m; i++) x[i] = num_get(l.got[GDN_PREFILL_P_STATE], GDN_F32, i);
            const num_error es = num_compare(S, x, m);
            gt_figure(t, "output_rel_rms", eo.rel_rms);
            gt_figure(t, "state_rel_rms", es.rel_rms);
            (void)gt_check(t, eo.finite && eo.rel_rms <= out, "output: relative RMS %.3g, bound %.3g", eo.rel_rms, out);
            (void)gt_check(t, es.finite && es.rel_rms <= state, "state: relative RMS %.3g, bound %.3g", es.rel_rms, state);
            (void)gt_check(t, !strncmp(gt_entry(&l), routes[route].entry, strlen(routes[route].entry)), "%s ran", gt_entry(&l));
            x[7] = -x[7] + 1; /* a wrong state is told */
            (void)gt_check(t, num_compare(S, x, m).rel_rms > state, "control: a wrong state is within the bound");
        }
        gt_drop(&l);
        gdn_close(g);
    }
    gt_end(t);
}

void gt_test_prefill_error(gt *t) {
    static const struct {
        const char *name;
        gt_rule p;
    } hard[] = {
        { "_decays_near_0", { .tiny_decays = true } },
        { "_decays_near_1", { .gate_lo = 0.9999, .gate_hi = 1 } },
        { "_equal_keys_decay_1_beta_1", { .equal_keys = true, .gate_lo = 1, .gate_hi = 1, .beta_lo = 1 } },
        { "_equal_keys", { .equal_keys = true } },
        { "_beta_1", { .gate_lo = 0.99, .gate_hi = 1, .beta_lo = 1 } },
        { "_large_values", { .large = 2000 } },
    };
    static const uint32_t T[] = { 256, 1193, 4593 }, fast[] = { 1168, 4593, 32768 };
    if (t->brief) return;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t route = SCALAR; route < ROUTES; route++) errors(t, route, (gt_rule) { .rows = T[i] }, "");
    for (uint32_t route = FAST; route < ROUTES; route++) {
        errors(t, route, (gt_rule) { .rows = 1168 }, "");
        errors(t, route, (gt_rule) { .rows = 32768 }, "");
        for (uint32_t k = 0; k < sizeof hard / sizeof *hard; k++)
            for (uint32_t i = 0; i < 3; i++) {
                gt_rule p = hard[k].p;
                p.rows = fast[i];
                if (i == 2 && k != 2) continue; /* the longest: equal keys alone, as f64 takes its time */
                errors(t, route, p, hard[k].name);
            }
    }
    errors(t, FAST_WN, (gt_rule) { .rows = 256, .alike = 0.5, .gate_lo = 0.999, .gate_hi = 1 }, "_keys_alike");
    errors(t, FAST_WN, (gt_rule) { .rows = 1193, .alike = 0.9, .gate_lo = 0.999, .gate_hi = 1 }, "_keys_alike");
}
