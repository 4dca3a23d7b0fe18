/* decode_step.c - the rows of one (sequence, value head) in and out of a step: what decode, verify and fold share.
 *
 *     g     clamp(gate, 1e-6, 1 - 1e-6), gate = expf(log gate) for LOG gates
 *     q, k  widened; with l2norm x / sqrt(sum x^2 + 1e-6)
 *     lead_t = g_0*...*g_{t-1};  mix_ts = g_{s+1}*...*g_{t-1} * (k_t . k_s), products left to right
 *
 * Dots over the key dimension (k_t . k_s, sum x^2) follow a GPU's warp tree: lane i has product i; in each warp of 32 the
 * lanes are folded by 16, 8, 4, 2, 1; warps as (w0 + w2) + (w1 + w3), for 64 dimensions w0 + w1. This file is compiled
 * once, for any machine, without contraction: nothing here depends on the instruction set. */
#include "step.h"

#include <math.h>
#include <string.h>

const gdn__step_table *gdn__step_pick(const gdn_cpu_rule *c) {
    static const gdn__step_table *const table[2][GDN_CPU_ISAS] = {
        { &gdn__step_k_base, &gdn__step_k_avx2, &gdn__step_k_avx512 },
        { &gdn__step_v_base, &gdn__step_v_avx2, &gdn__step_v_avx512 },
    };
    return table[c->v_major][c->isa];
}

static float warp_sum(const float *x, const float *y) {
    float p[32];
    for (int i = 0; i < 32; i++) p[i] = x[i] * y[i];
    for (int w = 16; w > 0; w /= 2)
        for (int i = 0; i < w; i++) p[i] += p[i + w];
    return p[0];
}

static float tree_dot(const float *x, const float *y, uint32_t dim) {
    const float w0 = warp_sum(x, y), w1 = warp_sum(x + 32, y + 32);
    if (dim == 64) return w0 + w1;
    return (w0 + warp_sum(x + 64, y + 64)) + (w1 + warp_sum(x + 96, y + 96));
}

static void widen(const gdn_cpu_rule *c, const void *from, uint64_t at, float *to, uint32_t n) {
    if (c->f32) {
        memcpy(to, (const float *)from + at, n * sizeof *to);
        return;
    }
    const uint16_t *const p = (const uint16_t *)from + at;
    for (uint32_t i = 0; i < n; i++) to[i] = gdn_bf16_to_f32(p[i]);
}

static void normalise(float *x, uint32_t dim) {
    const float r = sqrtf(tree_dot(x, x, dim) + 1e-6f);
    for (uint32_t i = 0; i < dim; i++) x[i] /= r;
}

static float clamp_gate(const gdn_cpu_rule *c, float gate) {
    return fminf(fmaxf(c->log_gate ? expf(gate) : gate, 1e-6f), 1.0f - 1e-6f);
}

static void mix_rows(gdn__step *u) {
    for (uint32_t t = 1; t < u->rows; t++) {
        u->lead[t] = t == 1 ? u->g[0] : u->lead[t - 1] * u->g[t - 1];
        for (uint32_t s = 0; s < t; s++) {
            const float kd = tree_dot(u->k[t], u->k[s], u->dim);
            float decay = s + 1 < t ? u->g[s + 1] : 1.0f;
            for (uint32_t i = s + 2; i < t; i++) decay *= u->g[i];
            u->mix[t][s] = decay * kd;
        }
    }
}

void gdn__step_source(const gdn_cpu_rule *c, gdn__step *u, const float *state, bool fresh) {
    _Alignas(64) static const float zero[GDN__STEP_DIM] = { 0 };
    u->dim = c->k_dim;
    u->src = fresh ? zero : state;
    u->src_pitch = fresh ? 0 : (ptrdiff_t)c->k_dim;
}

void gdn__step_load(const gdn_cpu_rule *c, gdn__step *u, uint64_t row, uint32_t rows, uint32_t h) {
    const uint32_t kh = gdn__rule_key_head(c, h);
    u->rows = rows;
    u->dim = c->k_dim;
    u->scale = c->scale;
    for (uint32_t t = 0; t < rows; t++) {
        widen(c, c->q, gdn__rule_qk_at(c, row + t, kh), u->q[t], c->k_dim);
        widen(c, c->k, gdn__rule_qk_at(c, row + t, kh), u->k[t], c->k_dim);
        widen(c, c->v, gdn__rule_v_at(c, row + t, h), u->v[t], c->v_dim);
        if (c->l2norm) {
            normalise(u->q[t], c->k_dim);
            normalise(u->k[t], c->k_dim);
        }
        u->g[t] = clamp_gate(c, c->gate[gdn__rule_gb_at(c, row + t, h)]);
        u->b[t] = c->beta[gdn__rule_gb_at(c, row + t, h)];
    }
    if (!c->v_major) mix_rows(u);
}

void gdn__step_store(const gdn_cpu_rule *c, const gdn__step *u, uint64_t row, uint32_t h) {
    for (uint32_t t = 0; t < u->rows; t++) {
        const uint64_t at = gdn__rule_out_at(c, row + t, h);
        if (c->f32) {
            memcpy((float *)c->out + at, u->out[t], c->v_dim * sizeof(float));
            continue;
        }
        uint16_t *const p = (uint16_t *)c->out + at;
        for (uint32_t i = 0; i < c->v_dim; i++) p[i] = gdn_f32_to_bf16(u->out[t][i]);
    }
}

void gdn__step_zero(const gdn_cpu_rule *c, uint64_t row, uint32_t rows, uint32_t h) {
    const size_t width = c->f32 ? sizeof(float) : sizeof(uint16_t);
    for (uint32_t t = 0; t < rows; t++) memset((char *)c->out + gdn__rule_out_at(c, row + t, h) * width, 0, c->v_dim * width);
}
