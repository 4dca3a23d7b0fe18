/* check_step.c - self test of the fused decode step: two sequences in each other's slots and a padding row, against f64 of the five steps
 * that it is made of, rounded where it rounds. */
#include "check_ref.h"
#include "check_self.h"
#include "numbers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, SLOTS = 2, NK = 2, NV = 6, D = 128, C = 2 * NK * D + NV * D, W = 4, CONV = C * (W - 1), STATE = NV * D * D };
static const int32_t slots[B] = { 1, -1, 0 };

typedef struct inputs {
    const float *x, *w, *conv, *a, *b, *A_log, *dt, *state, *z, *nw;
} inputs;
typedef struct result {
    double conv[SLOTS * CONV], state[SLOTS * STATE], out[B * NV * D];
} result;

static void rounded(const self_test *s, float *to, const double *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = s->act == GDN_BF16 ? gdn__round_bf16((float)from[i]) : (float)from[i];
}

static void one(const self_test *s, const inputs *in, uint32_t b, result *r) {
    const uint32_t at = (uint32_t)slots[b];
    double row[C], core[NV * D];
    float packed[C], rule[NV * D], gate[NV], beta[NV];
    ref_conv(1, C, W, in->x + b * C, in->w, r->conv + at * CONV, row);
    for (uint32_t h = 0; h < 2 * NK; h++) ref_l2norm(D, row + h * D);
    rounded(s, packed, row, C);
    for (uint32_t h = 0; h < NV; h++) {
        gate[h] = (float)ref_decay((double)in->a[b * NV + h], (double)in->A_log[h], (double)in->dt[h]);
        beta[h] = (float)ref_sigmoid((double)in->b[b * NV + h]);
    }
    ref_rule(1, NK, NV, D, packed, packed + NK * D, packed + 2 * NK * D, gate, beta, true, r->state + at * STATE, core);
    rounded(s, rule, core, NV * D);
    for (uint32_t h = 0; h < NV; h++) ref_norm(D, rule + h * D, in->z + (b * NV + h) * D, in->nw, (double)1e-6f, r->out + (b * NV + h) * D);
}

static const float *f32_random(self_test *s, uint64_t n, float lo, float hi) {
    const uint32_t act = s->act;
    s->act = GDN_F32;
    const float *x = self_random(s, n, lo, hi);
    s->act = act;
    return x;
}

static bool make(self_test *s, inputs *in, result *r) {
    *in = (inputs) { .x = self_random(s, B * C, -2, 2),
                     .w = self_random(s, C * W, -0.5f, 0.5f),
                     .conv = self_random(s, SLOTS * CONV, -2, 2),
                     .a = self_random(s, B * NV, -6, 6),
                     .b = self_random(s, B * NV, -6, 6),
                     .A_log = f32_random(s, NV, -2, 2),
                     .dt = f32_random(s, NV, -1, 1),
                     .state = f32_random(s, SLOTS * STATE, -0.1f, 0.1f),
                     .z = self_random(s, B * NV * D, -4, 4),
                     .nw = self_random(s, D, 0.5f, 1.5f) };
    if (!in->x || !in->w || !in->conv || !in->a || !in->b || !in->A_log || !in->dt || !in->state || !in->z || !in->nw) return false;
    for (uint32_t i = 0; i < SLOTS * CONV; i++) r->conv[i] = (double)in->conv[i];
    for (uint32_t i = 0; i < SLOTS * STATE; i++) r->state[i] = (double)in->state[i];
    memset(r->out, 0, sizeof r->out);
    for (uint32_t b = 0; b < B; b++)
        if (slots[b] >= 0) one(s, in, b, r);
    return true;
}

void self_decode_step(self_test *s) {
    const gdn_step_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_DECODE_STEP, 0, s->act },
                                   .nk = NK,
                                   .nv = NV,
                                   .k_dim = D,
                                   .v_dim = D,
                                   .width = W,
                                   .weight_type = s->act,
                                   .gates = GDN_STEP_GATES_RAW,
                                   .param_type = GDN_F32,
                                   .state_type = GDN_F32,
                                   .norm_act = GDN_NORM_SILU,
                                   .norm_weight_type = s->act,
                                   .eps = 1e-6f,
                                   .max_batch = B };
    const uint32_t u32[] = { B };
    const double tight = s->act == GDN_F32 ? 3e-6 : 1e-4, bound = s->act == GDN_F32 ? 3e-6 : 2.2e-3;
    inputs in;
    result *want = malloc(sizeof *want);
    const char *entry;
    gdn_status st = GDN_E_NOMEM;
    if (!want || !make(s, &in, want)) goto out;
    const uint64_t conv = self_put(s, in.conv, SLOTS * CONV, s->act), state = self_put(s, in.state, SLOTS * STATE, GDN_F32),
                   out = self_poisoned(s, sizeof(float) * B * NV * D);
    const uint64_t ptr[GDN_DECODE_STEP_N_PTR] = {
        [GDN_DECODE_STEP_P_X] = self_put(s, in.x, B * C, s->act),
        [GDN_DECODE_STEP_P_WEIGHT] = self_put(s, in.w, C * W, s->act),
        [GDN_DECODE_STEP_P_CONV_STATE] = conv,
        [GDN_DECODE_STEP_P_A] = self_put(s, in.a, B * NV, s->act),
        [GDN_DECODE_STEP_P_B] = self_put(s, in.b, B * NV, s->act),
        [GDN_DECODE_STEP_P_A_LOG] = self_put(s, in.A_log, NV, GDN_F32),
        [GDN_DECODE_STEP_P_DT_BIAS] = self_put(s, in.dt, NV, GDN_F32),
        [GDN_DECODE_STEP_P_STATE] = state,
        [GDN_DECODE_STEP_P_Z] = self_put(s, in.z, B * NV * D, s->act),
        [GDN_DECODE_STEP_P_NORM_WEIGHT] = self_put(s, in.nw, D, s->act),
        [GDN_DECODE_STEP_P_OUT] = out,
        [GDN_DECODE_STEP_P_SLOTS] = self_raw(s, slots, sizeof slots),
    };
    if ((st = self_go(s, &shape.base, ptr, GDN_DECODE_STEP_N_PTR, u32, 1, &entry))) goto out;
    const float *got_out = self_get(s, out, B * NV * D, s->act), *got_state = self_get(s, state, SLOTS * STATE, GDN_F32),
                *got_conv = self_get(s, conv, SLOTS * CONV, s->act);
    st = got_out && got_state && got_conv ? GDN_OK : GDN_E_NOMEM;
    if (st) goto out;
    self_report(s, GDN_OP_DECODE_STEP, "output", entry, ref_error(B * NV * D, got_out, want->out), bound);
    self_report(s, GDN_OP_DECODE_STEP, "state", entry, ref_error(SLOTS * STATE, got_state, want->state), tight);
    self_report(s, GDN_OP_DECODE_STEP, "conv state", entry, ref_error(SLOTS * CONV, got_conv, want->conv), 0);
out:
    if (st) self_failed(s, GDN_OP_DECODE_STEP, st);
    free(want);
}
