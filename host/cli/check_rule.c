/* check_rule.c - self test of prefill, decode, verify, write-on-accept and fold: two key heads, six value heads, 128/128. */
#include "check_ref.h"
#include "check_self.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 6, D = 128, T = 133, ROWS = 4 };
static const uint64_t STATE = (uint64_t)NV * D * D;

/* One random sequence: rows, gates, a start state, and what f64 makes of it. */
typedef struct rule_case {
    float *q, *k, *v, *gate, *beta, *h0;
    double *state, *out;
    uint64_t d_q, d_k, d_v, d_gate, d_beta, d_state, d_out;
    uint32_t tokens;
} rule_case;

static void normalise(float *x, uint32_t rows, bool bf16) {
    for (uint32_t r = 0; r < rows; r++) {
        double s = 1e-6;
        for (uint32_t i = 0; i < D; i++) s += (double)x[r * D + i] * (double)x[r * D + i];
        for (uint32_t i = 0; i < D; i++) {
            float y = (float)((double)x[r * D + i] / sqrt(s));
            if (bf16) {
                uint32_t u;
                memcpy(&u, &y, sizeof u);
                u &= 0xffff0000u; /* any bf16 value will do: the reference starts from it too */
                memcpy(&y, &u, sizeof y);
            }
            x[r * D + i] = y;
        }
    }
}

static bool make_case(self_test *s, rule_case *c, uint32_t tokens, bool clamped) {
    const uint32_t act = s->act;
    memset(c, 0, sizeof *c);
    c->tokens = tokens;
    c->q = self_random(s, (uint64_t)tokens * NK * D, -1, 1);
    c->k = self_random(s, (uint64_t)tokens * NK * D, -1, 1);
    c->v = self_random(s, (uint64_t)tokens * NV * D, -1, 1);
    s->act = GDN_F32; /* gates and states are f32 on every target */
    c->gate = self_random(s, (uint64_t)tokens * NV, 0.8f, 0.999f);
    c->beta = self_random(s, (uint64_t)tokens * NV, 0, 1);
    c->h0 = self_random(s, STATE, -0.1f, 0.1f);
    s->act = act;
    c->state = malloc(STATE * sizeof *c->state);
    c->out = malloc((uint64_t)tokens * NV * D * sizeof *c->out);
    if (!c->q || !c->k || !c->v || !c->gate || !c->beta || !c->h0 || !c->state || !c->out) return false;
    normalise(c->q, tokens * NK, act == GDN_BF16);
    normalise(c->k, tokens * NK, act == GDN_BF16);
    for (uint64_t i = 0; i < STATE; i++) c->state[i] = (double)c->h0[i];
    ref_rule(tokens, NK, NV, D, c->q, c->k, c->v, c->gate, c->beta, clamped, c->state, c->out);
    c->d_q = self_put(s, c->q, (uint64_t)tokens * NK * D, act);
    c->d_k = self_put(s, c->k, (uint64_t)tokens * NK * D, act);
    c->d_v = self_put(s, c->v, (uint64_t)tokens * NV * D, act);
    c->d_gate = self_put(s, c->gate, (uint64_t)tokens * NV, GDN_F32);
    c->d_beta = self_put(s, c->beta, (uint64_t)tokens * NV, GDN_F32);
    c->d_state = self_put(s, c->h0, STATE, GDN_F32);
    c->d_out = self_poisoned(s, (uint64_t)tokens * NV * D * 4);
    return c->d_q && c->d_k && c->d_v && c->d_gate && c->d_beta && c->d_state && c->d_out;
}

static void free_case(rule_case *c) {
    free(c->state);
    free(c->out);
}

static gdn_rule_shape shape_of(const self_test *s, uint32_t op) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, 0, s->act },
                              .nk = NK,
                              .nv = NV,
                              .k_dim = D,
                              .v_dim = D,
                              .gb_stride = NV,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_type = GDN_F32,
                              .max_tokens = T,
                              .max_batch = 1,
                              .max_rows = ROWS,
                              .stash_seqs = 1 };
}

/* bf16 output alone costs 1.65e-3; the GPUs' chunk pipeline rounds W and U to bf16 as well. */
static double out_bound(const self_test *s) {
    return s->act == GDN_F32 ? 1e-5 : s->reference ? 2.2e-3 : 4e-3;
}
static double state_bound(const self_test *s, bool chunked) {
    return s->reference || !chunked ? 1e-5 : 3e-3;
}

static void report_case(self_test *s, uint32_t op, const rule_case *c, const char *entry, bool chunked) {
    const float *out = self_get(s, c->d_out, (uint64_t)c->tokens * NV * D, s->act), *state = self_get(s, c->d_state, STATE, GDN_F32);
    if (!out || !state) {
        self_failed(s, op, GDN_E_NOMEM);
        return;
    }
    self_report(s, op, "output", entry, ref_error((uint64_t)c->tokens * NV * D, out, c->out), out_bound(s));
    self_report(s, op, "state", entry, ref_error(STATE, state, c->state), state_bound(s, chunked));
}

void self_prefill(self_test *s) {
    rule_case c;
    const char *entry;
    gdn_status st = GDN_E_NOMEM;
    if (make_case(s, &c, T, false)) {
        const gdn_rule_shape shape = shape_of(s, GDN_OP_PREFILL);
        const uint64_t ptr[GDN_PREFILL_N_PTR] = { c.d_q, c.d_k, c.d_v, c.d_gate, c.d_beta, c.d_state, c.d_out };
        const uint32_t u32[GDN_PREFILL_N_U32] = { 1, T };
        st = self_go(s, &shape.base, ptr, GDN_PREFILL_N_PTR, u32, GDN_PREFILL_N_U32, &entry);
    }
    if (st)
        self_failed(s, GDN_OP_PREFILL, st);
    else
        report_case(s, GDN_OP_PREFILL, &c, entry, true);
    free_case(&c);
}

/* The same on a bf16 state: what is stored is rounded once, 1.65e-3 of it. */
static void decode_bf16_state(self_test *s) {
    rule_case c;
    const char *entry;
    gdn_status st = GDN_E_NOMEM;
    if (make_case(s, &c, 1, true)) {
        gdn_rule_shape shape = shape_of(s, GDN_OP_DECODE);
        const uint64_t state = self_put(s, c.h0, STATE, GDN_BF16);
        const uint64_t ptr[GDN_DECODE_N_PTR] = { state, c.d_q, c.d_k, c.d_v, c.d_gate, c.d_beta, c.d_out };
        const uint32_t u32[GDN_DECODE_N_U32] = { 1 };
        const float *const begin = state ? self_get(s, state, STATE, GDN_BF16) : NULL;
        shape.state_type = GDN_BF16;
        shape.base.flags = GDN_BF16_STATE;
        for (uint64_t i = 0; begin && i < STATE; i++) c.state[i] = (double)begin[i];
        if (begin) ref_rule(1, NK, NV, D, c.q, c.k, c.v, c.gate, c.beta, true, c.state, c.out);
        if (begin) st = self_go(s, &shape.base, ptr, GDN_DECODE_N_PTR, u32, GDN_DECODE_N_U32, &entry);
        const float *const out = st ? NULL : self_get(s, c.d_out, (uint64_t)NV * D, s->act),
                           *end = st ? NULL : self_get(s, state, STATE, GDN_BF16);
        if (!st && (!out || !end)) st = GDN_E_NOMEM;
        if (!st) self_report(s, GDN_OP_DECODE, "output", entry, ref_error((uint64_t)NV * D, out, c.out), out_bound(s));
        if (!st) self_report(s, GDN_OP_DECODE, "bf16 state", entry, ref_error(STATE, end, c.state), 2.2e-3);
    }
    if (st) self_failed(s, GDN_OP_DECODE, st);
    free_case(&c);
}

void self_decode(self_test *s) {
    rule_case c;
    const char *entry;
    gdn_status st = GDN_E_NOMEM;
    if (make_case(s, &c, 1, true)) {
        const gdn_rule_shape shape = shape_of(s, GDN_OP_DECODE);
        const uint64_t ptr[GDN_DECODE_N_PTR] = { c.d_state, c.d_q, c.d_k, c.d_v, c.d_gate, c.d_beta, c.d_out };
        const uint32_t u32[GDN_DECODE_N_U32] = { 1 };
        st = self_go(s, &shape.base, ptr, GDN_DECODE_N_PTR, u32, GDN_DECODE_N_U32, &entry);
    }
    if (st)
        self_failed(s, GDN_OP_DECODE, st);
    else
        report_case(s, GDN_OP_DECODE, &c, entry, false);
    free_case(&c);
    decode_bf16_state(s);
}

/* Write-on-accept of the same rows: output bytes equal, and folding all four rows gives verify's state. */
static void check_woa(self_test *s, const rule_case *c, const float *verify_out, const float *verify_state) {
    const gdn_rule_shape shape = shape_of(s, GDN_OP_VERIFY_WOA), fold = shape_of(s, GDN_OP_FOLD);
    const gdn_flag_shape clear = { .base = { (uint32_t)sizeof clear, GDN_OP_FLAG_CLEAR, 0, 0 } };
    const uint32_t na = ROWS, u32[2] = { ROWS, 1 };
    const uint64_t state = self_put(s, c->h0, STATE, GDN_F32), flag = self_poisoned(s, 4),
                   out = self_poisoned(s, (uint64_t)ROWS * NV * D * 4);
    const uint64_t stash = self_poisoned(s, 4ull * 4 * (NV * D + NV + NK * D)), d_na = self_raw(s, &na, sizeof na);
    const uint64_t p_clear[] = { flag },
                   p_woa[GDN_VERIFY_WOA_N_PTR] = { state, c->d_q, c->d_k, c->d_v, c->d_gate, c->d_beta, out, stash, flag };
    const uint64_t p_fold[GDN_FOLD_N_PTR] = { state, stash, d_na, 0, flag };
    const char *entry;
    gdn_status st = self_go(s, &clear.base, p_clear, 1, NULL, 0, &entry);
    if (st) {
        self_failed(s, GDN_OP_FLAG_CLEAR, st);
        return;
    }
    const float *word = self_get(s, flag, 1, GDN_F32);
    self_report(s, GDN_OP_FLAG_CLEAR, "cleared", entry, word && word[0] == 0.0f ? 0 : NAN, 0);
    if ((st = self_go(s, &shape.base, p_woa, GDN_VERIFY_WOA_N_PTR, u32, 2, &entry))) {
        self_failed(s, GDN_OP_VERIFY_WOA, st);
        return;
    }
    const float *o = self_get(s, out, (uint64_t)ROWS * NV * D, s->act);
    if (!o) {
        self_failed(s, GDN_OP_VERIFY_WOA, GDN_E_NOMEM);
        return;
    }
    self_report(s, GDN_OP_VERIFY_WOA, "= verify", entry, memcmp(o, verify_out, sizeof(float) * ROWS * NV * D) ? NAN : 0, 0);
    if ((st = self_go(s, &fold.base, p_fold, GDN_FOLD_N_PTR, u32, 2, &entry))) {
        self_failed(s, GDN_OP_FOLD, st);
        return;
    }
    const float *folded = self_get(s, state, STATE, GDN_F32);
    if (!folded) {
        self_failed(s, GDN_OP_FOLD, GDN_E_NOMEM);
        return;
    }
    self_report(s, GDN_OP_FOLD, "= verify", entry, memcmp(folded, verify_state, sizeof(float) * STATE) ? NAN : 0, 0);
}

/* A round whose pending rows are those: the folded state, and the outputs that write-on-accept gives from it. */
static void check_round(self_test *s, const rule_case *c, const float *verify_state) {
    const gdn_rule_shape shape = shape_of(s, GDN_OP_ROUND), woa = shape_of(s, GDN_OP_VERIFY_WOA);
    const uint64_t rows = (uint64_t)ROWS * NV * D, floats = 4ull * (NV * D + NV + NK * D);
    const uint32_t na = ROWS, one = 1, u32[2] = { ROWS, 1 };
    const uint64_t state = self_put(s, c->h0, STATE, GDN_F32), d_na = self_raw(s, &na, sizeof na), flag = self_raw(s, &one, sizeof one);
    uint64_t out[2], stash[2];
    for (uint32_t i = 0; i < 2; i++) out[i] = self_poisoned(s, rows * 4), stash[i] = self_poisoned(s, floats * 4);
    const uint64_t word = self_poisoned(s, 4);
    const uint64_t p_woa[GDN_VERIFY_WOA_N_PTR] = { state, c->d_q, c->d_k, c->d_v, c->d_gate, c->d_beta, out[0], stash[0], word };
    const uint64_t p_round[GDN_ROUND_N_PTR] = { state,  c->d_q,   c->d_k, c->d_v,   c->d_gate, c->d_beta,
                                                out[1], stash[1], word,   stash[0], d_na,      flag };
    const char *entry;
    gdn_status st = self_go(s, &woa.base, p_woa, GDN_VERIFY_WOA_N_PTR, u32, 2, &entry);
    if (!st) st = self_go(s, &shape.base, p_round, GDN_ROUND_N_PTR, u32, 2, &entry);
    const char *const ran = entry;
    if (!st) st = self_go(s, &woa.base, p_woa, GDN_VERIFY_WOA_N_PTR, u32, 2, &entry);
    const float *const a = st ? NULL : self_get(s, out[0], rows, s->act), *const b = st ? NULL : self_get(s, out[1], rows, s->act);
    const float *const folded = st ? NULL : self_get(s, state, STATE, GDN_F32);
    if (!st && (!a || !b || !folded)) st = GDN_E_NOMEM;
    if (st) {
        self_failed(s, GDN_OP_ROUND, st);
        return;
    }
    self_report(s, GDN_OP_ROUND, "= woa", ran, memcmp(a, b, sizeof(float) * rows) ? NAN : 0, 0);
    self_report(s, GDN_OP_ROUND, "= verify", ran, memcmp(folded, verify_state, sizeof(float) * STATE) ? NAN : 0, 0);
}

void self_verify(self_test *s) {
    rule_case c;
    const char *entry;
    gdn_status st = GDN_E_NOMEM;
    if (make_case(s, &c, ROWS, true)) {
        const gdn_rule_shape shape = shape_of(s, GDN_OP_VERIFY);
        const uint64_t hi = self_poisoned(s, (ROWS - 1) * STATE * 4);
        const uint64_t ptr[GDN_VERIFY_N_PTR] = { c.d_state, c.d_q, c.d_k, c.d_v, c.d_gate, c.d_beta, c.d_out, hi };
        const uint32_t u32[GDN_VERIFY_N_U32] = { ROWS, 1 };
        st = self_go(s, &shape.base, ptr, GDN_VERIFY_N_PTR, u32, GDN_VERIFY_N_U32, &entry);
    }
    if (st) {
        self_failed(s, GDN_OP_VERIFY, st);
    } else {
        report_case(s, GDN_OP_VERIFY, &c, entry, false);
        const float *out = self_get(s, c.d_out, (uint64_t)ROWS * NV * D, s->act), *state = self_get(s, c.d_state, STATE, GDN_F32);
        if (out && state) {
            check_woa(s, &c, out, state);
            check_round(s, &c, state);
        }
    }
    free_case(&c);
}
