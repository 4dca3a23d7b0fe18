/* test_cpu_verify_batch.c - batches of verify, woa and fold on the CPU: batched is single launches, padding, fresh and ragged
 * sequences, output slots, threads; and a long run of verify, fold and decode against an f64 recurrence. */
#include "rule_step_case.h"

#include <omp.h>

typedef void (*launch)(const gdn_cpu_rule *);
static const launch launches[] = { gdn_cpu_verify, gdn_cpu_verify_woa, gdn_cpu_fold };
enum { VERIFY, WOA, FOLD, LAUNCHES };

/* A case ready for launch n: fold gets a stash from woa (engaged) or hi from verify, and some accepted counts. */
static step_case *ready(const spec *s, int n, bool engaged) {
    step_case *const t = case_make(s);
    for (uint32_t b = 0; b < s->batch; b++) t->na[b] = (b * 3 + 2) % 6;
    if (n == FOLD) launches[engaged ? WOA : VERIFY](&t->c);
    return t;
}

static void batched_is_single(void **unused) {
    (void)unused;
    const int threads = omp_get_max_threads();
    for (uint32_t batch = 2; batch <= 16; batch *= 2)
        for (uint32_t kind = 0; kind < 16; kind++) {
            const bool engaged = (kind & 3) == 3;
            const int what = engaged ? FOLD : (int)(kind & 3); /* fold: after verify, after woa */
            spec s = { .batch = batch,
                       .rows = 4,
                       .nk = 1,
                       .nv = 2,
                       .dim = 128,
                       .addr = kind & 4 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                       .f32 = batch & 4,
                       .hi_capacity = 5,
                       .v_major = kind & 8,
                       .isa = gdn_cpu_isa_pick(2),
                       .seed = batch + kind };
            step_case *const one = ready(&s, what, engaged), *const all = ready(&s, what, engaged);
            omp_set_num_threads(1 + (int)(kind & 1) * 2);
            launches[what](&all->c);
            assert_false(same_case(one, all)); /* control */
            omp_set_num_threads(threads);
            for (uint32_t b = 0; b < batch; b++) {
                const gdn_cpu_rule c = case_single(one, b);
                launches[what](&c);
            }
            assert_true(same_case(one, all));
            case_free(all);
            case_free(one);
        }
}

/* Padding rows full of NaN: zero output, nothing else written, the others as in a batch without them. */
static void padding(void **unused) {
    (void)unused;
    for (uint32_t kind = 0; kind < 16; kind++) {
        const int n = kind & 8 ? FOLD : (int)(kind & 1);
        spec s = { .batch = 4,
                   .rows = 4,
                   .nk = 1,
                   .nv = 2,
                   .dim = 128,
                   .addr = kind & 2 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                   .f32 = true,
                   .hi_capacity = 3,
                   .v_major = kind & 4,
                   .isa = gdn_cpu_isa_pick(2),
                   .seed = 77 };
        step_case *const t = ready(&s, n, kind & 1), *const whole = ready(&s, n, kind & 1), *const before = ready(&s, n, kind & 1);
        for (uint32_t b = 0; b < 4; b++) t->na[b] = whole->na[b] = b < 3 ? b + 1 : 77;
        launches[n](&whole->c);
        for (uint32_t b = 1; b < 4; b += 2) {
            t->in_slots[b] = -3;
            if (b == 3 || n == WOA) t->tab_in[b] = 0; /* sequence 1: only its output is padding, where there is one */
            t->tab_out[b] = 0;
            if (b == 1 && n != WOA) t->in_slots[b] = 1 + 2 * (int32_t)b, t->out_slots[b] = -1;
            t->fresh[b] = 1;
            for (size_t i = 0; i < 4 * t->row; i++) act_set(t, t->act, 4 * b * t->row + i, NAN);
            for (size_t r = 0; r < 4; r++)
                for (size_t i = 0; i < 2 * s.nv; i++) t->gb[(4 * b + r) * t->c.gb_stride + i] = NAN;
        }
        launches[n](&t->c);
        const size_t rows = 4 * (size_t)s.nv * s.dim, slot = 2 * (t->seq + EDGE), hi = s.hi_capacity * t->seq, stash = t->c.stash_stride;
        for (uint32_t b = 0; b < 4; b++) {
            const step_case *const expect = b % 2 ? before : whole;
            const float *const o = (const float *)t->out + b * rows;
            for (size_t i = 0; i < rows && b % 2 && n != FOLD; i++) assert_true(o[i] == 0);
            if (b % 2 == 0 || n == FOLD) assert_memory_equal(o, (const float *)expect->out + b * rows, rows * sizeof *o);
            assert_true(same_floats(t->pool + t->seq + EDGE + b * slot, expect->pool + t->seq + EDGE + b * slot, slot));
            assert_true(same_floats(t->hi + b * hi, expect->hi + b * hi, hi));
            assert_true(same_floats(t->stash + b * stash, expect->stash + b * stash, stash));
        }
        assert_false(same_case(before, whole));                             /* control */
        if (n != FOLD) assert_true(((const float *)whole->out)[rows] != 0); /* control: such a row is not zero by itself */
        case_free(before);
        case_free(whole);
        case_free(t);
    }
}

/* fresh: bytes of a zero state, a slot full of NaN is not read; fold starts from zero as well. */
static void fresh_state(void **unused) {
    (void)unused;
    for (uint32_t kind = 0; kind < 12; kind++) {
        spec s = { .batch = 2,
                   .rows = 4,
                   .nk = 1,
                   .nv = 2,
                   .dim = 128,
                   .addr = GDN_STATE_POOL,
                   .f32 = true,
                   .v_major = kind & 1,
                   .elsewhere = kind & 2,
                   .isa = kind / 4,
                   .seed = 21 };
        if (s.isa > gdn_cpu_isa_pick(2)) continue;
        for (int n = VERIFY; n <= WOA; n++) {
            step_case *const t = case_make(&s), *const zero = case_make(&s), *const stale = case_make(&s);
            memset(state_in(zero, 1), 0, zero->seq * sizeof(float));
            for (size_t i = 0; i < t->seq; i++) state_in(t, 1)[i] = state_in(stale, 1)[i] = NAN;
            t->fresh[1] = 1;
            step_case *const run[3] = { t, zero, stale };
            for (int i = 0; i < 3; i++) {
                launches[n](&run[i]->c);
                run[i]->na[0] = 0;
                run[i]->na[1] = 3;
                if (n == WOA) gdn_cpu_fold(&run[i]->c);
            }
            assert_memory_equal(t->out, zero->out, t->out_bytes);
            assert_true(same_floats(state_out(t, 1), state_out(zero, 1), t->seq) && same_floats(t->hi, zero->hi, t->hi_len));
            assert_true(same_floats(state_out(t, 0), state_out(zero, 0), t->seq));
            assert_memory_not_equal(stale->out, zero->out, t->out_bytes); /* control */
            assert_true(isnan(state_out(stale, 1)[0]));
            case_free(stale);
            case_free(zero);
            case_free(t);
        }
    }
}

/* Sequences of 3, 0, 16, 1 and 0 rows that start at row 2: each as alone; 0 rows carry the state; other rows are not read. */
static void ragged(void **unused) {
    (void)unused;
    static const uint32_t lens[5] = { 3, 0, 16, 1, 0 };
    for (uint32_t kind = 0; kind < 16; kind++) {
        spec s = { .batch = 5,
                   .rows = 16,
                   .nk = 1,
                   .nv = 2,
                   .dim = 64,
                   .addr = kind & 1 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                   .f32 = true,
                   .cu64 = kind & 2,
                   .v_major = kind & 4,
                   .elsewhere = kind & 8,
                   .lens = lens,
                   .isa = gdn_cpu_isa_pick(2),
                   .seed = 9 + kind };
        step_case *const t = case_make(&s), *const before = case_make(&s), *const one = case_make(&s);
        t->fresh[4] = 1;
        for (size_t i = 0; i < 2 * t->row; i++) act_set(t, t->act, i, NAN);
        gdn_cpu_verify(&t->c);
        assert_true(isnan(((const float *)t->out)[2 * s.nv * s.dim - 1])); /* row 1 belongs to nobody */
        for (uint32_t b = 0; b < 5; b++) {
            gdn_cpu_rule c = case_single(one, b);
            const uint64_t at = (uint64_t)one->cu64[b];
            if (lens[b] == 0) continue;
            c.cu = NULL;
            c.seq_len = lens[b];
            c.q = (const float *)one->c.q + at * t->row;
            c.k = (const float *)one->c.k + at * t->row;
            c.v = (const float *)one->c.v + at * t->row;
            c.gate = one->c.gate + at * t->c.gb_stride;
            c.beta = one->c.beta + at * t->c.gb_stride;
            c.out = (float *)one->out + at * s.nv * s.dim;
            if (s.addr != GDN_STATE_TABLE) c.hi = hi_at(one, b, 0);
            gdn_cpu_verify(&c);
            assert_false(same_floats(state_out(t, b), state_in(before, b), t->seq)); /* control: a row changes the state */
        }
        assert_memory_equal(t->out, one->out, t->out_bytes);
        assert_true(same_floats(t->hi, one->hi, t->hi_len));
        for (uint32_t b = 0; b < 5; b++) {
            if (lens[b]) assert_true(same_floats(state_out(t, b), state_out(one, b), t->seq));
            if (b == 1) assert_true(same_floats(state_out(t, b), state_in(before, b), t->seq));
            for (size_t i = 0; i < t->seq && b == 4; i++) assert_true(state_out(t, b)[i] == 0);
        }
        case_free(one);
        case_free(before);
        case_free(t);
    }
}

/* 1000 rounds of verify (plain or write-on-accept), fold by a random count, decode of the next token: no drift from f64. */
enum { ROUNDS = 1000, HEADS = 2, DIM = 128, FORMS = 2 * GDN_CPU_ISAS };
static void round_of(step_case *t, bool woa, uint32_t na) {
    t->engaged = 0;
    t->na[0] = na;
    launches[woa ? WOA : VERIFY](&t->c);
    gdn_cpu_fold(&t->c);
}
/* Row r of the case against the reference, whose state advances. */
static double row_error(const step_case *const *t, uint32_t n, size_t r, double S[HEADS][DIM * DIM], bool check) {
    double e = 0, o[DIM];
    for (uint32_t h = 0; h < HEADS; h++) {
        ref_row(t[0], r, h, S[h], o);
        for (uint32_t i = 0; i < n && check; i++) e = fmax(e, error_out(t[i], r, h, o));
    }
    return e;
}
static void random_rounds(void **unused) {
    (void)unused;
    static double S[HEADS][DIM * DIM], late[HEADS][DIM * DIM];
    step_case *t[FORMS];
    const int threads = omp_get_max_threads();
    uint64_t seed = 4242;
    uint32_t n = 0;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(2); isa++)
        for (uint32_t v = 0; v < 2; v++) {
            const spec s = { .batch = 1,
                             .rows = 4,
                             .nk = 1,
                             .nv = HEADS,
                             .dim = DIM,
                             .addr = GDN_STATE_POOL,
                             .f32 = true,
                             .isa = isa,
                             .v_major = v,
                             .seed = 1 };
            t[n] = case_make(&s);
            t[n++]->fresh[0] = 1; /* both layouts start from zero */
        }
    double worst_error = 0, control = 0;
    omp_set_num_threads(1); /* thousands of tiny launches: on a busy machine each would wait for a thread */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t na = (uint32_t)uniform(&seed, 0, 5);
        const bool woa = uniform(&seed, 0, 1) < 0.5f,
                   plain_all = na == 0 && !woa; /* a plain verify of which nothing is accepted has no way back */
        const uint64_t tokens = seed;
        for (uint32_t i = 0; i < n; i++) {
            case_tokens(t[i], tokens);
            round_of(t[i], woa, plain_all ? 4 : na);
            if (plain_all || na > 0 || !woa) t[i]->fresh[0] = 0;
        }
        memcpy(late, S, sizeof S);
        for (uint32_t r = 0; r < (plain_all ? 4 : na); r++)
            worst_error = fmax(worst_error, row_error((const step_case *const *)t, n, r, S, true));
        for (uint32_t i = 0; i < n; i++) { /* the next token, from a new row 0 */
            case_tokens(t[i], tokens + 1);
            gdn_cpu_decode(&t[i]->c);
            t[i]->fresh[0] = 0;
        }
        worst_error = fmax(worst_error, row_error((const step_case *const *)t, n, 0, S, true));
        if (na > 0) control = fmax(control, row_error((const step_case *const *)t, n, 0, late, true)); /* accepted rows forgotten */
    }
    omp_set_num_threads(threads);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < HEADS; h++) worst_error = fmax(worst_error, error_state(t[i], state_out(t[i], 0), h, S[h]));
        case_free(t[i]);
    }
    print_message("largest relative difference from f64 in %d rounds: %.1e\n", ROUNDS, worst_error);
    assert_true(worst_error <= 1e-5);
    assert_true(control > 1e-2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batched_is_single), cmocka_unit_test(padding), cmocka_unit_test(fresh_state), cmocka_unit_test(ragged),
        cmocka_unit_test(random_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
