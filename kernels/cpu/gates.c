/* gates.c - decay and beta from raw projections, elementwise. Contract: abi/gdn_op_gates.h; formula: gates_math.h.
 *
 * Output row [gate nv | beta nv], f32. Heads are handled in groups, so that a group's rates are computed once. */
#include "cpu_kernels.h"
#include "gates_math.h"

enum { HEADS = 64 };

static float load(const void *p, uint64_t i, bool f32) {
    return f32 ? ((const float *)p)[i] : gdn_bf16_to_f32(((const uint16_t *)p)[i]);
}

/* Where head h is in a row, from either base. */
static uint32_t place(const gdn_cpu_gates *c, uint32_t h) {
    return c->vpg ? h / c->vpg * 2 * c->vpg + h % c->vpg : h;
}

static void gates_row(const gdn_cpu_gates *c, const double *rate, uint32_t h0, uint32_t h1, uint64_t row) {
    float *const out = c->out + row * c->gate_stride;
    for (uint32_t h = h0; h < h1; h++) {
        const float a = load(c->a, row * c->a_stride + place(c, h), c->f32);
        const double g = gdn__gate_log(rate[h - h0], a, c->dt_bias[h]);
        out[h] = (float)(c->log_gate ? g : exp(g));
        out[c->nv + h] = gdn__beta(load(c->b, row * c->b_stride + place(c, h), c->f32));
    }
}

void gdn_cpu_gates_rows(const gdn_cpu_gates *c) {
    for (uint32_t h0 = 0; h0 < c->nv; h0 += HEADS) {
        const uint32_t h1 = c->nv - h0 < HEADS ? c->nv : h0 + HEADS;
        double rate[HEADS];
        for (uint32_t h = h0; h < h1; h++) rate[h - h0] = gdn__gate_rate(c->A_log[h]);
#pragma omp parallel for schedule(static) if ((uint64_t)c->rows * (h1 - h0) > 1024)
        for (uint32_t row = 0; row < c->rows; row++) gates_row(c, rate, h0, h1, row);
    }
}
