/* test_bf16_state.c - decode and verify on states in bf16 (GDN_BF16_STATE): each launch against f64 rounded once, a verify's rows against
 * decode, what is refused, and how far the state is from an f32 one after 10,000 tokens. */
#include "guard.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 4, D = 128, ONE = D * D, STATE = NV * ONE, QK = NK * D, VW = NV * D, SLOTS = 6, ROWS = 4, MOST = 12 };

static gdn_rule_shape shape(uint32_t op) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, GDN_BF16_STATE, target_act() },
                              .nk = NK,
                              .nv = NV,
                              .k_dim = D,
                              .v_dim = D,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_addr = GDN_STATE_POOL,
                              .state_type = GDN_BF16,
                              .max_batch = 3,
                              .max_rows = ROWS,
                              .num_slots = SLOTS };
}

/* Rows of a launch, a pool and places for the states between rows. */
typedef struct world {
    uint32_t act, size;
    guard q, k, v, gb, out, pool, hi;
    rng r;
} world;

static void draw(world *w) {
    num_fill(w->q.p, w->act, MOST * QK, &w->r, -0.15, 0.15);
    num_fill(w->k.p, w->act, MOST * QK, &w->r, -0.15, 0.15);
    num_fill(w->v.p, w->act, MOST * VW, &w->r, -0.5, 0.5);
    float *const gb = (float *)(void *)w->gb.p;
    for (uint32_t i = 0; i < MOST * 2 * NV; i++)
        gb[i] = (float)rng_uniform(&w->r, i % (2 * NV) < NV ? 0.8 : 0.05, i % (2 * NV) < NV ? 0.999 : 0.95);
}
static void up(world *w) {
    memset(w, 0, sizeof *w);
    w->act = target_act(), w->size = num_size(w->act), w->r.s = 16;
    w->q = guard_alloc((uint64_t)MOST * QK * w->size), w->k = guard_alloc(w->q.bytes);
    w->v = guard_alloc((uint64_t)MOST * VW * w->size), w->out = guard_alloc(w->v.bytes);
    w->gb = guard_alloc(MOST * 2ull * NV * 4);
    w->pool = guard_alloc((uint64_t)SLOTS * STATE * 2);
    w->hi = guard_alloc(3ull * (ROWS - 1) * STATE * 2);
    num_fill(w->pool.p, GDN_BF16, (uint64_t)SLOTS * STATE, &w->r, -0.1, 0.1);
    guard_poison(&w->hi), guard_poison(&w->out);
    draw(w);
}
static void down(world *w) {
    guard *const all[] = { &w->q, &w->k, &w->v, &w->gb, &w->out, &w->pool, &w->hi };
    for (uint32_t i = 0; i < N_OF(all); i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
}
static uint8_t *slot_of(const world *w, int32_t slot) {
    return w->pool.p + (uint64_t)slot * STATE * 2;
}

/* Row `row` applied to S [NV][K][V]; o [NV][V]. */
static void token(const world *w, uint32_t row, double *S, double *o) {
    const float *const gb = (const float *)(const void *)w->gb.p + row * 2 * NV;
    for (uint32_t h = 0; h < NV; h++) {
        double q[D], k[D], v[D];
        for (uint32_t i = 0; i < D; i++) {
            q[i] = num_get(w->q.p, w->act, (uint64_t)row * QK + h / (NV / NK) * D + i);
            k[i] = num_get(w->k.p, w->act, (uint64_t)row * QK + h / (NV / NK) * D + i);
            v[i] = num_get(w->v.p, w->act, (uint64_t)row * VW + h * D + i);
        }
        oracle_token(S + (uint64_t)h * ONE, D, D, q, k, v, (double)gb[h], (double)gb[NV + h], 1 / sqrt(D), o + (uint64_t)h * D);
    }
}

/* got is S rounded to bf16: within f32's own error of it, so nearly always the very bits. */
static void assert_rounded(const double *S, const uint8_t *got, const char *what) {
    uint32_t same = 0;
    for (uint32_t i = 0; i < STATE; i++) {
        const double x = num_get(got, GDN_BF16, i), ulp = ldexp(1, ilogb(fmax(fabs(S[i]), 1e-30)) - 7);
        same += num_to_bf16(S[i]) == num_to_bf16(x);
        if (!(fabs(x - S[i]) < 0.501 * ulp + 1e-7)) fail_msg("%s: element %u is %.9g, exactly %.9g", what, i, x, S[i]);
    }
    if (same < STATE / 1000 * 995) fail_msg("%s: only %u of %d elements are the nearest", what, same, STATE);
}
static void assert_output(const world *w, uint32_t row, const double *o) {
    double got[VW];
    for (uint32_t i = 0; i < VW; i++) got[i] = num_get(w->out.p, w->act, (uint64_t)row * VW + i);
    const num_error e = num_compare(o, got, VW);
    if (!num_close(&e, w->act == GDN_F32 ? 1e-5 : 2.5e-3)) fail_msg("row %u: relative RMS %.3g", row, e.rel_rms);
}

static gdn_status decode(const world *w, gdn_hplan *p, const int32_t *in, const int32_t *out, const uint8_t *fresh, uint32_t n) {
    const uint64_t ptr[] = { addr_of(w->pool.p), addr_of(w->q.p),
                             addr_of(w->k.p),    addr_of(w->v.p),
                             addr_of(w->gb.p),   addr_of(w->gb.p + NV * 4),
                             addr_of(w->out.p),  0,
                             addr_of(in),        addr_of(out),
                             addr_of(fresh),     0 };
    return launch(p, N_OF(ptr), ptr, 1, &n);
}
static gdn_status verify(const world *w, gdn_hplan *p, const int32_t *in, const int32_t *out, const int32_t *cu, uint32_t rows,
                         uint32_t n) {
    const uint64_t ptr[] = { addr_of(w->pool.p),
                             addr_of(w->q.p),
                             addr_of(w->k.p),
                             addr_of(w->v.p),
                             addr_of(w->gb.p),
                             addr_of(w->gb.p + NV * 4),
                             addr_of(w->out.p),
                             addr_of(w->hi.p),
                             addr_of(cu),
                             0,
                             addr_of(in),
                             addr_of(out),
                             0,
                             0 };
    const uint32_t u32[] = { rows, n };
    return launch(p, N_OF(ptr), ptr, 2, u32);
}

static void widen_state(const uint8_t *from, double *S) {
    for (uint32_t i = 0; i < STATE; i++) S[i] = num_get(from, GDN_BF16, i);
}

/* In place and moved, fresh, padding; every slot that is not written stays. */
static void decode_is_f64_rounded_once(void **state) {
    (void)state;
    static const int32_t in[] = { 4, -1, 2 }, moved[] = { 0, 3, 5 };
    static const uint8_t fresh[] = { 0, 0, 1 };
    const gdn_rule_shape s = shape(GDN_OP_DECODE);
    gdn_hplan *const p = plan_ok(&s);
    double *const S = malloc(STATE * sizeof *S), o[VW];
    for (uint32_t form = 0; form < 4; form++) {
        world w;
        up(&w);
        const int32_t *const out = form & 1 ? moved : in;
        guard want = guard_copy(&w.pool);
        assert_int_equal(decode(&w, p, in, form & 1 ? moved : NULL, form & 2 ? fresh : NULL, 3), GDN_OK);
        for (uint32_t b = 0; b < 3; b++) {
            if (in[b] < 0) {
                for (uint32_t i = 0; i < VW; i++) assert_true(num_get(w.out.p, w.act, b * VW + i) == 0);
                continue;
            }
            widen_state(want.p + (uint64_t)in[b] * STATE * 2, S);
            if (form & 2 && fresh[b]) memset(S, 0, STATE * sizeof *S);
            token(&w, b, S, o);
            assert_rounded(S, slot_of(&w, out[b]), "state");
            assert_output(&w, b, o);
        }
        for (uint32_t b = 0; b < 3; b++)
            if (in[b] >= 0) memcpy(want.p + (uint64_t)out[b] * STATE * 2, slot_of(&w, out[b]), STATE * 2);
        assert_memory_equal(want.p, w.pool.p, want.bytes);
        guard_free(&want);
        down(&w);
    }
    free(S);
    gdn_plan_free(p);
}

/* Rows see no rounding between them; what is kept after each is rounded once. Sequences of 2, 4 and 0 rows, then 3 each. */
static void verify_rounds_what_it_stores(void **state) {
    (void)state;
    static const int32_t in[] = { 1, 5, 3 }, cu[] = { 0, 2, 6, 6 };
    double *const S = malloc(STATE * sizeof *S), o[VW];
    for (uint32_t own = 0; own < 2; own++) {
        world w;
        up(&w);
        gdn_rule_shape s = shape(GDN_OP_VERIFY);
        s.offsets = own ? GDN_OFFSETS_I32 : GDN_OFFSETS_NONE;
        gdn_hplan *const p = plan_ok(&s);
        guard before = guard_copy(&w.pool);
        assert_int_equal(verify(&w, p, in, NULL, own ? cu : NULL, own ? 4 : 3, 3), GDN_OK);
        for (uint32_t b = 0; b < 3; b++) {
            const uint32_t first = own ? (uint32_t)cu[b] : 3 * b, n = own ? (uint32_t)(cu[b + 1] - cu[b]) : 3;
            widen_state(before.p + (uint64_t)in[b] * STATE * 2, S);
            for (uint32_t t = 0; t < n; t++) {
                token(&w, first + t, S, o);
                assert_output(&w, first + t, o);
                const uint8_t *const kept = w.hi.p + (b * (ROWS - 1ull) + t) * STATE * 2;
                assert_rounded(S, t + 1 < n ? kept : slot_of(&w, in[b]), "kept state");
            }
            if (n == 0) assert_memory_equal(before.p + (uint64_t)in[b] * STATE * 2, slot_of(&w, in[b]), STATE * 2);
        }
        guard_free(&before);
        gdn_plan_free(p);
        down(&w);
    }
    free(S);
}

/* Row 0 of a verify has decode's bytes, its output and the state after it. */
static void row_0_is_decode(void **state) {
    (void)state;
    static const int32_t in[] = { 2 };
    const gdn_rule_shape d = shape(GDN_OP_DECODE), v = shape(GDN_OP_VERIFY);
    gdn_hplan *const one = plan_ok(&d), *const many = plan_ok(&v);
    for (uint32_t rows = 1; rows <= 4; rows++) {
        world a, b;
        up(&a), up(&b);
        assert_int_equal(decode(&a, one, in, NULL, NULL, 1), GDN_OK);
        assert_int_equal(verify(&b, many, in, NULL, NULL, rows, 1), GDN_OK);
        assert_memory_equal(a.out.p, b.out.p, VW * a.size);
        assert_memory_equal(slot_of(&a, 2), rows == 1 ? slot_of(&b, 2) : b.hi.p, STATE * 2);
        down(&a), down(&b);
    }
    gdn_plan_free(one), gdn_plan_free(many);
}

static void what_is_refused(void **state) {
    (void)state;
    gdn_rule_shape s = shape(GDN_OP_DECODE);
    s.base.flags = 0;
    plan_fails(&s, GDN_REFUSED, "GDN_BF16_STATE");
    s.base.op = GDN_OP_VERIFY;
    plan_fails(&s, GDN_REFUSED, "GDN_BF16_STATE");
    s.base.op = GDN_OP_FOLD;
    plan_fails(&s, GDN_REFUSED, "state is not f32");
    s = shape(GDN_OP_PREFILL);
    s.max_tokens = 8;
    plan_fails(&s, GDN_E_ARG, "flags");
    s.base.flags = 0;
    plan_fails(&s, GDN_REFUSED, "state is not f32");
    s = shape(GDN_OP_DECODE);
    s.state_type = GDN_F32;
    plan_fails(&s, GDN_E_ARG, "GDN_BF16_STATE is set, but state_type");
    s = shape(GDN_OP_DECODE);
    s.k_dim = s.v_dim = 64;
    plan_fails(&s, GDN_REFUSED, "128/128 (bf16 state)");
    s = shape(GDN_OP_VERIFY);
    s.max_rows = 5;
    plan_fails(&s, GDN_REFUSED, "rows is above 4 (bf16 state)");
    s = shape(GDN_OP_VERIFY);
    s.base.flags |= GDN_VERIFY_BY_SEQUENCE;
    s.stash_seqs = 3;
    plan_fails(&s, GDN_E_ARG, "do not go together");
    s = shape(GDN_OP_DECODE);
    s.state_stride = STATE + 2;
    plan_fails(&s, GDN_E_ARG, "state_stride");
    world w;
    up(&w);
    s = shape(GDN_OP_DECODE);
    gdn_hplan *const p = plan_ok(&s);
    static const int32_t in[] = { 0 };
    world off = w;
    off.pool.p += 4;
    target_log_clear();
    assert_int_equal(decode(&off, p, in, NULL, NULL, 1), GDN_E_ARG);
    assert_true(target_logged("'h_state' is not 8-byte aligned"));
    gdn_plan_free(p);
    down(&w);
}

/* ---- error growth ----
 * Rounding an element to bf16 costs 1.65e-3 of it (RMS over mantissas). Errors of different tokens are independent, and a token takes an
 * earlier one down by its decay d and, along k, by the rule's own update, so after n tokens they add up to some
 * 1.65e-3 sqrt((1 - d^2n) / (1 - d^2)), which no longer grows once it has come to where it stays. A quarter more is allowed: the state's
 * own size is not the same at all tokens. */
enum { HEADS = 4 };
static const double decay_of[HEADS] = { 0.9, 0.98, 0.999, 0 }; /* 0: drawn from 0.80 .. 0.999 */
static double allowed(uint32_t head, uint32_t n) {
    const double d = decay_of[head] > 0 ? decay_of[head] : sqrt((0.999 * 0.999 * 0.999 - 0.8 * 0.8 * 0.8) / 3 / 0.199); /* its RMS */
    return 1.65e-3 * sqrt((1 - pow(d, 2.0 * n)) / (1 - d * d));
}
static double apart(const float *exact, const float *got) {
    double e = 0, x = 0;
    for (uint32_t i = 0; i < ONE; i++) {
        const double d = (double)got[i] - (double)exact[i];
        e += d * d, x += (double)exact[i] * (double)exact[i];
    }
    return sqrt(e / x);
}

/* Tokens of the same rows on an f32 state, a bf16 one, and (the control) an f32 one that is cut to 16 bits after each token. */
static void error_growth(void **state) {
    (void)state;
    const uint32_t tokens = target_is_light() ? 100 : 10000;
    world w;
    up(&w);
    gdn_rule_shape s = shape(GDN_OP_DECODE);
    s.state_addr = GDN_STATE_CONTIGUOUS;
    gdn_hplan *const p16 = plan_ok(&s);
    s.base.flags = 0, s.state_type = GDN_F32;
    gdn_hplan *const p32 = plan_ok(&s);
    static float exact[STATE], cut[STATE], wide[STATE];
    static _Alignas(8) uint16_t half[STATE];
    float *const gb = (float *)(void *)w.gb.p;
    double last[HEADS] = { 0 };
    for (uint32_t n = 1, point = 10; n <= tokens; n++) {
        draw(&w);
        for (uint32_t h = 0; h < HEADS; h++)
            if (decay_of[h] > 0) gb[h] = (float)decay_of[h];
        for (uint32_t side = 0; side < 3; side++) {
            const uint64_t S = side == 0 ? addr_of(exact) : side == 1 ? addr_of(half) : addr_of(cut);
            const uint64_t ptr[] = { S, addr_of(w.q.p), addr_of(w.k.p), addr_of(w.v.p), addr_of(gb), addr_of(gb + NV), addr_of(w.out.p) };
            const uint32_t one = 1;
            assert_int_equal(launch(side == 1 ? p16 : p32, N_OF(ptr), ptr, 1, &one), GDN_OK);
        }
        for (uint32_t i = 0; i < STATE; i++) {
            uint32_t bits;
            memcpy(&bits, &cut[i], 4);
            bits &= 0xFFFF0000u;
            memcpy(&cut[i], &bits, 4);
        }
        if (n != point) continue;
        for (uint32_t i = 0; i < STATE; i++) wide[i] = (float)num_get(half, GDN_BF16, i);
        for (uint32_t h = 0; h < HEADS; h++) {
            const double e = apart(exact + h * ONE, wide + h * ONE), c = apart(exact + h * ONE, cut + h * ONE), most = 1.25 * allowed(h, n);
            (void)printf("bf16 state after %5u tokens, decay %s%.3f: relative RMS %.2e of the f32 state, at most %.2e (cut: %.2e)\n", n,
                         decay_of[h] > 0 ? "" : "0.80 to ", decay_of[h] > 0 ? decay_of[h] : 0.999, e, most, c);
            if (!(e <= most)) fail_msg("after %u tokens head %u is %.3g off, above %.3g", n, h, e, most);
            last[h] = c;
        }
        point *= 10;
    }
    assert_true(tokens < 10000 || last[2] > 2 * allowed(2, tokens)); /* control: cutting is seen */
    gdn_plan_free(p16), gdn_plan_free(p32);
    down(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_is_f64_rounded_once),
        cmocka_unit_test(verify_rounds_what_it_stores),
        cmocka_unit_test(row_0_is_decode),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(error_growth),
    };
    return cmocka_run_group_tests_name("bf16 state", tests, target_setup, target_teardown);
}
