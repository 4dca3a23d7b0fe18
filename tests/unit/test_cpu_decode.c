/* test_cpu_decode.c - the cpu decode kernel against an f64 recurrence, against its order of operations written out, and the
 * rules for slots, padding, fresh states and batches. Every comparison has a control that must fail. */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "rule_step_case.h"

#include <omp.h>
#include <sys/mman.h>

static const spec plain = { .batch = 3, .rows = 1, .nk = 2, .nv = 4, .dim = 128, .addr = GDN_STATE_POOL, .f32 = true, .seed = 11 };

/* The bytes of one head by the contract's order, K-major; `flat` sums over j one by one instead of in fours. */
static float group(const float *s, const float *x, size_t d, size_t v, bool flat) {
    float acc = 0;
    for (size_t j = 0; j < d; j += 4) {
        const float p0 = s[j * d + v] * x[j], p1 = s[(j + 1) * d + v] * x[j + 1], p2 = s[(j + 2) * d + v] * x[j + 2],
                    p3 = s[(j + 3) * d + v] * x[j + 3];
        acc = flat ? (((acc + p0) + p1) + p2) + p3 : acc + (((p0 + p1) + p2) + p3);
    }
    return acc;
}
static bool head_is(const step_case *t, const step_case *ran, uint32_t b, uint32_t h, bool flat) {
    const size_t d = t->s.dim, kh = h / (t->s.nv / t->s.nk);
    const float *const row = (const float *)t->act + b * t->row, *const k = row + (t->s.nk + kh) * d, *const q = row + kh * d;
    const float g = t->gb[b * t->c.gb_stride + h], beta = t->gb[b * t->c.gb_stride + t->s.nv + h];
    float *const s = floats(d * d, 0);
    memcpy(s, state_in(t, b) + h * d * d, d * d * sizeof *s);
    bool same = true;
    for (size_t v = 0; v < d; v++) {
        const float vn = (row[(2 * t->s.nk + h) * d + v] - g * group(s, k, d, v, flat)) * beta;
        for (size_t j = 0; j < d; j++) {
            const float decayed = g * s[j * d + v], added = k[j] * vn;
            s[j * d + v] = decayed + added;
        }
        const float o = t->c.scale * group(s, q, d, v, flat);
        same = same && o == ((const float *)ran->out)[(b * t->s.nv + h) * d + v];
    }
    same = same && same_floats(s, state_out(ran, b) + h * d * d, d * d);
    free(s);
    return same;
}

static void order_of_operations(void **unused) {
    (void)unused;
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(2); isa++)
        for (uint32_t dim = 64; dim <= 128; dim += 64) {
            spec s = plain;
            s.isa = isa;
            s.dim = dim;
            step_case *const before = case_make(&s), *const t = case_make(&s);
            gdn_cpu_decode(&t->c);
            for (uint32_t b = 0; b < s.batch; b++)
                for (uint32_t h = 0; h < s.nv; h++) {
                    assert_true(head_is(before, t, b, h, false));
                    assert_false(head_is(before, t, b, h, true)); /* control */
                }
            case_free(t);
            case_free(before);
        }
}

static double decode_error(const spec *s, const spec *reference) {
    step_case *const ref = case_make(reference), *const t = case_make(s);
    double *const S = must(malloc(s->dim * s->dim * sizeof *S)), o[128], worst_error = 0;
    gdn_cpu_decode(&t->c);
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t h = 0; h < s->nv; h++) {
            ref_state(ref, state_in(ref, b), h, S);
            ref_row(ref, b, h, S, o);
            worst_error = fmax(worst_error, fmax(error_state(t, state_out(t, b), h, S), error_out(t, b, h, o) * (s->f32 ? 1 : 1e-3)));
        }
    free(S);
    case_free(t);
    case_free(ref);
    return worst_error;
}

/* All combinations of the flags, every instruction set; K-major bytes are the same on all of them. */
static void against_f64(void **unused) {
    (void)unused;
    for (uint32_t bits = 0; bits < 128; bits++) {
        spec s = { .batch = 1,
                   .rows = 1,
                   .nk = 2,
                   .nv = 6,
                   .dim = bits & 1 ? 64 : 128,
                   .addr = bits & 2 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                   .f32 = bits & 4,
                   .log_gate = bits & 8,
                   .tiled = bits & 16,
                   .v_major = bits & 32,
                   .l2norm = bits & 64,
                   .elsewhere = bits % 3 == 0,
                   .seed = 100 + bits };
        step_case *const first = case_make(&s);
        gdn_cpu_decode(&first->c);
        for (s.isa = 0; s.isa <= gdn_cpu_isa_pick(2); s.isa++) {
            assert_true(decode_error(&s, &s) <= 1e-5);
            step_case *const t = case_make(&s);
            gdn_cpu_decode(&t->c);
            if (!s.v_major) assert_true(same_case(first, t));
            case_free(t);
        }
        s.isa = 0;
        spec other = s; /* controls: the other head map, other inputs */
        other.tiled = !s.tiled;
        assert_true(decode_error(&s, &other) > 1e-3);
        other = s;
        other.seed++;
        assert_true(decode_error(&s, &other) > 1e-3);
        case_free(first);
    }
}

/* Gates at and outside the clamp. */
static void gate_clamp(void **unused) {
    (void)unused;
    static const float gate[4] = { 0.0f, 1.0f, 1.5f, -2.0f }, used[4] = { 1e-6f, 1.0f - 1e-6f, 1.0f - 1e-6f, 1e-6f };
    step_case *const t = case_make(&plain), *const same = case_make(&plain);
    memcpy(t->gb, gate, sizeof gate);
    memcpy(same->gb, used, sizeof used);
    gdn_cpu_decode(&t->c);
    gdn_cpu_decode(&same->c);
    assert_true(same_case(t, same));
    case_free(same);
    step_case *const other = case_make(&plain);
    memcpy(other->gb, used, sizeof used);
    other->gb[1] = 1.0f - 2e-6f; /* control */
    gdn_cpu_decode(&other->c);
    assert_false(same_case(t, other));
    case_free(other);
    case_free(t);
}

/* Padding rows zero their output and touch nothing else, whatever they hold; the other rows do not notice. */
static void padding(void **unused) {
    (void)unused;
    for (uint32_t kind = 0; kind < 8; kind++) {
        spec s = { .batch = 4,
                   .rows = 1,
                   .nk = 1,
                   .nv = 2,
                   .dim = 64,
                   .addr = kind & 1 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                   .f32 = kind & 2,
                   .elsewhere = true,
                   .isa = gdn_cpu_isa_pick(2),
                   .seed = 5 };
        step_case *const t = case_make(&s), *const whole = case_make(&s), *const before = case_make(&s);
        gdn_cpu_decode(&whole->c);
        for (uint32_t b = 1; b < 4; b += 2) {
            if (kind & 4) {
                t->in_slots[b] = -1;
                t->tab_in[b] = 0;
            } else {
                t->out_slots[b] = -7;
                t->tab_out[b] = 0;
            }
            t->fresh[b] = b == 3;
            for (size_t i = 0; i < t->row; i++) act_set(t, t->act, b * t->row + i, NAN);
            for (size_t i = 0; i < 2 * s.nv; i++) t->gb[b * t->c.gb_stride + i] = NAN;
        }
        gdn_cpu_decode(&t->c);
        const size_t n = t->out_bytes / 4;
        for (uint32_t b = 0; b < 4; b++) {
            const char *const o = (const char *)t->out + b * n, *const w = (const char *)whole->out + b * n;
            for (size_t i = 0; i < n && b % 2; i++) assert_int_equal(o[i], 0);
            if (b % 2)
                assert_memory_not_equal(o, w, n); /* control: the row is not zero by itself */
            else
                assert_memory_equal(o, w, n);
            const size_t slot = t->seq + EDGE, at = (2 * b + 1) * slot;
            const step_case *const expect = b % 2 ? before : whole;
            assert_true(same_floats(t->pool + at, expect->pool + at, 2 * slot));
        }
        assert_false(same_floats(before->pool, whole->pool, t->pool_len)); /* control */
        case_free(before);
        case_free(whole);
        case_free(t);
    }
}

/* fresh: as if the state were zero, and its slot full of NaN is not read. */
static void fresh_state(void **unused) {
    (void)unused;
    for (uint32_t kind = 0; kind < 4; kind++) {
        spec s = plain;
        s.v_major = kind & 1;
        s.elsewhere = kind & 2;
        for (s.isa = 0; s.isa <= gdn_cpu_isa_pick(2); s.isa++) {
            step_case *const t = case_make(&s), *const zero = case_make(&s), *const stale = case_make(&s);
            memset(state_in(zero, 1), 0, zero->seq * sizeof(float));
            for (size_t i = 0; i < t->seq; i++) state_in(t, 1)[i] = state_in(stale, 1)[i] = NAN;
            t->fresh[1] = 1;
            gdn_cpu_decode(&t->c);
            gdn_cpu_decode(&zero->c);
            gdn_cpu_decode(&stale->c);
            assert_memory_equal(t->out, zero->out, t->out_bytes);
            assert_true(same_floats(state_out(t, 1), state_out(zero, 1), t->seq));
            assert_memory_not_equal(stale->out, zero->out, t->out_bytes); /* control */
            case_free(stale);
            case_free(zero);
            case_free(t);
        }
    }
}

/* A batch gives the bytes of single launches, on any number of threads; states elsewhere leave the input alone. */
static void batch_and_threads(void **unused) {
    (void)unused;
    const int threads = omp_get_max_threads();
    for (uint32_t kind = 0; kind < 8; kind++) {
        spec s = { .batch = kind & 4 ? 16 : 5,
                   .rows = 1,
                   .nk = 1,
                   .nv = 3,
                   .dim = 128,
                   .v_major = kind & 1,
                   .addr = kind & 2 ? GDN_STATE_TABLE : GDN_STATE_POOL,
                   .f32 = true,
                   .isa = gdn_cpu_isa_pick(2),
                   .seed = 40 };
        step_case *const one = case_make(&s), *const all = case_make(&s);
        gdn_cpu_decode(&all->c);
        for (uint32_t b = 0; b < s.batch; b++) {
            assert_false(same_case(one, all)); /* control: differs until the last single launch is done */
            const gdn_cpu_rule c = case_single(one, b);
            gdn_cpu_decode(&c);
        }
        assert_true(same_case(one, all));
        s.elsewhere = true;
        for (int n = 1; n <= 3; n++) {
            omp_set_num_threads(n);
            step_case *const t = case_make(&s), *const before = case_make(&s);
            gdn_cpu_decode(&t->c);
            assert_memory_equal(t->out, all->out, t->out_bytes);
            for (uint32_t b = 0; b < s.batch; b++) {
                assert_true(same_floats(state_in(t, b), state_in(before, b), t->seq + EDGE));
                assert_true(same_floats(state_out(t, b), state_out(all, b), t->seq));
            }
            case_free(before);
            case_free(t);
        }
        omp_set_num_threads(threads);
        case_free(all);
        case_free(one);
    }
}

/* CONTIGUOUS: sequence b right behind b - 1. */
static void contiguous(void **unused) {
    (void)unused;
    step_case *const t = case_make(&plain), *const pool = case_make(&plain);
    t->c.addr = GDN_STATE_CONTIGUOUS;
    t->c.in_slots = t->c.out_slots = NULL;
    pool->c.state_stride = pool->seq;
    for (int b = 0; b < 3; b++) pool->in_slots[b] = pool->out_slots[b] = b;
    gdn_cpu_decode(&t->c);
    assert_false(same_case(t, pool)); /* control */
    gdn_cpu_decode(&pool->c);
    assert_true(same_case(t, pool));
    case_free(pool);
    case_free(t);
}

/* Element offsets beyond 2^32 in a pool that is only address space. */
static void far_slot(void **unused) {
    (void)unused;
    enum { SLOT = 9 };
    const uint64_t stride = (UINT64_C(1) << 29) + 3;
    const size_t bytes = (SLOT + 1) * stride * sizeof(float);
    spec s = { .batch = 1, .rows = 1, .nk = 1, .nv = 2, .dim = 64, .addr = GDN_STATE_POOL, .f32 = true, .seed = 8 };
    float *const far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED) skip();
    step_case *const near = case_make(&s), *const t = case_make(&s);
    const uint64_t at = SLOT * stride;
    memcpy(far + at, state_in(t, 0), t->seq * sizeof *far);
    t->c.state = t->c.state_out = far;
    t->c.state_stride = stride;
    t->in_slots[0] = t->out_slots[0] = SLOT;
    gdn_cpu_decode(&t->c);
    gdn_cpu_decode(&near->c);
    assert_memory_equal(t->out, near->out, t->out_bytes);
    assert_true(same_floats(far + at, state_out(near, 0), t->seq));
    assert_true(far[(uint32_t)at] == 0 && far[at & 0x7fffffff] == 0); /* where 32 bits would have led */
    assert_true(far[at] != 0);                                        /* control */
    munmap(far, bytes);
    case_free(t);
    case_free(near);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_operations), cmocka_unit_test(against_f64),
        cmocka_unit_test(gate_clamp),          cmocka_unit_test(padding),
        cmocka_unit_test(fresh_state),         cmocka_unit_test(batch_and_threads),
        cmocka_unit_test(contiguous),          cmocka_unit_test(far_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
