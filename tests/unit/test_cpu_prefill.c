/* test_cpu_prefill.c - gdn_cpu_prefill against an f64 token recurrence: every instruction set, layout, type and gate form.
 *
 * Limits are relative RMS: 1e-6 for f32 on ordinary data, 1e-5 on hard data, one rounding for bf16 outputs. The last test
 * feeds the comparison a wrong input and wants it noticed. */
#include "numeric.h"
#include "prefill_problem.h"
#include <omp.h>
#include <sys/mman.h>

static void check(const problem *p, double out_limit, double state_limit) {
    data d = make(p);
    const errors e = run_and_compare(p, &d);
    check_untouched(p, &d);
    const double out = relative(e.out, e.out_norm), state = relative(e.state, e.state_norm), ckpt = relative(e.ckpt, e.ckpt_norm);
    if (getenv("GDN_TEST_PRINT"))
        print_message("%-6s dim %3u kind %d f32 %d len %4u: output %.1e state %.1e checkpoints %.1e\n", gdn_cpu_isa_name(p->isa), p->dim,
                      (int)p->kind, p->f32, p->len[0], out, state, ckpt);
    if (!(out <= out_limit && state <= state_limit && ckpt <= state_limit))
        fail_msg("isa %s dim %u kind %d f32 %d len %u: output %.2e (limit %.1e), state %.2e, checkpoints %.2e (limit %.1e)",
                 gdn_cpu_isa_name(p->isa), p->dim, (int)p->kind, p->f32, p->len[0], out, out_limit, state, ckpt, state_limit);
    drop(&d);
}
/* bf16 outputs are rounded once: 2^-9 at most, a third of it in the mean. */
static double out_limit(bool f32, double limit) {
    return f32 ? limit : 2e-3;
}

#define EACH_ISA(i) for (uint32_t i = 0; i <= gdn_cpu_isa_pick(GDN_CPU_AVX512); i++)

/* ---- tests ---- */

static void test_forms(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 64; form++) {
        problem p = { .isa = isa, .nk = 2, .nv = 4, .dim = form & 1 ? 64 : 128, .batch = 1, .len = { 69 } };
        p.f32 = form & 2, p.v_major = form & 4, p.log_gate = form & 8, p.tiled = form & 16, p.l2norm = form & 32;
        p.wide_rows = (form ^ (form >> 3)) & 1;
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

static void test_lengths(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t len = 0; len <= 200; len += TEST_LIGHT && len > 65 ? 7 : 1) {
        problem p = {
            .isa = isa, .nk = 1, .nv = 1, .dim = len % 3 ? 64 : 128, .batch = 1, .len = { len }, .f32 = len % 4 != 1, .v_major = len & 1
        };
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

static void test_hard_data(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (int kind = ORDINARY; kind <= EQUAL_KEYS; kind++)
        for (uint32_t log_gate = 0; log_gate < 2; log_gate++) {
            problem p = { .isa = isa, .nk = 1, .nv = 2, .dim = 128, .batch = 1, .len = { 150 }, .f32 = true, .log_gate = log_gate };
            p.kind = (enum data_kind)kind;
            check(&p, kind == ORDINARY ? 1e-6 : 1e-5, kind == ORDINARY ? 1e-6 : 1e-5);
        }
}

static void test_long(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = {
            .isa = isa, .nk = 1, .nv = 1, .dim = 128, .batch = 1, .len = { TEST_LIGHT ? 1024 : 8192 }, .f32 = true, .kind = SLOW
        };
        check(&p, 1e-5, 1e-5);
    }
}

static problem packed(uint32_t isa, uint32_t form) {
    problem p = {
        .isa = isa, .nk = 2, .nv = 4, .dim = form & 1 ? 128 : 64, .batch = 6, .len = { 70, 0, 131, 40, 1, 64 }, .packed = true, .first = 5
    };
    p.cu64 = form & 2, p.f32 = form & 4, p.v_major = form & 8, p.ckpt_every = 64;
    p.fresh[2] = true, p.padding[3] = true, p.fresh[3] = true;
    return p;
}
static void test_packed(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 16; form++) {
        problem p = packed(isa, form);
        check(&p, out_limit(p.f32, 1e-6), 1e-6);
    }
}

/* The last sequence alone, in place, through a table of pointers, gives the bytes it gave in the batch. */
static void test_alone_in_place(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 16; form++) {
        problem p = packed(isa, form);
        data d = make(&p);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        const uint64_t seq = (uint64_t)p.nv * p.dim * p.dim, size = p.f32 ? 4 : 2, row = (uint64_t)d.cu[5], width = p.nv * p.dim * size;
        uint8_t *out = need(p.len[5] * width);
        memcpy(out, (uint8_t *)d.out + row * width, p.len[5] * width);
        memset((uint8_t *)d.out + row * width, 0x77, p.len[5] * width);
        const uint64_t table = (uint64_t)(uintptr_t)(d.in + 11 * d.c.state_stride);
        const int64_t cu[2] = { d.cu[5], d.cu[6] };
        gdn_cpu_rule c = d.c;
        c.addr = GDN_STATE_TABLE, c.state = &table, c.state_out = (void *)(uintptr_t)&table, c.fresh = NULL, c.ckpt = NULL;
        c.batch = 1, c.cu = cu, c.cu64 = true;
        gdn_cpu_prefill(&c);
        assert_memory_equal(out, (uint8_t *)d.out + row * width, p.len[5] * width);
        assert_memory_equal(d.in + 11 * d.c.state_stride, d.out_state + 10 * d.c.state_stride, seq * sizeof(float));
        free(out);
        drop(&d);
    }
}

/* Two calls, cut at `cut`, against one. */
static bool same_when_cut(uint32_t isa, bool f32, bool v_major, uint32_t cut) {
    problem p = { .isa = isa, .nk = 1, .nv = 2, .dim = 128, .batch = 1, .len = { 259 }, .f32 = f32, .v_major = v_major };
    data d = make(&p);
    bind(&p, &d);
    gdn_cpu_prefill(&d.c);
    const uint64_t size = f32 ? 4 : 2, seq = (uint64_t)p.nv * p.dim * p.dim, all = p.len[0] * (uint64_t)p.nv * p.dim * size;
    uint8_t *out = need(all);
    float *end = need(seq * sizeof(float));
    memcpy(out, d.out, all);
    memcpy(end, d.out_state, seq * sizeof(float));
    memset(d.out, 0x11, all);
    gdn_cpu_rule c = d.c;
    c.cu = d.cu, c.cu64 = true;
    d.cu[1] = cut;
    gdn_cpu_prefill(&c);
    d.cu[0] = cut, d.cu[1] = (int64_t)p.len[0];
    c.state = d.out_state, c.in_slots = d.out_slots;
    gdn_cpu_prefill(&c);
    const bool same = memcmp(out, d.out, all) == 0 && memcmp(end, d.out_state, seq * sizeof(float)) == 0;
    free(end);
    free(out);
    drop(&d);
    return same;
}
static void test_cut(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (uint32_t form = 0; form < 4; form++) {
        for (uint32_t cut = 64; cut < 259; cut += 64) assert_true(same_when_cut(isa, form & 1, form & 2, cut));
        assert_false(same_when_cut(isa, form & 1, form & 2, 77)); /* control: a ragged cut rounds otherwise */
    }
}

/* Any number of threads, so any cut into units, and a zero state instead of a fresh one: the same bytes. */
static void test_threads(void **state) {
    (void)state;
    static const int threads[] = { 1, 2, 7, 64 };
    const int before = omp_get_max_threads();
    EACH_ISA(isa)
    for (uint32_t heads = 1; heads <= 9; heads += 4) {
        problem p = { .isa = isa, .nk = 1, .nv = heads, .dim = 128, .batch = 1, .len = { 75 }, .fresh = { true } };
        const uint64_t all = p.len[0] * (uint64_t)p.nv * p.dim * 2, seq = (uint64_t)p.nv * p.dim * p.dim * sizeof(float);
        data first = { 0 };
        for (uint32_t i = 0; i < 5; i++) {
            omp_set_num_threads(threads[i % 4]);
            data d = make(&p);
            if (i == 4) {
                memset(d.in, 0, d.slot_count * d.c.state_stride * sizeof(float));
                d.fresh[0] = 0;
            }
            bind(&p, &d);
            gdn_cpu_prefill(&d.c);
            if (i == 0) {
                const errors e = run_and_compare(&p, &d);
                assert_true(relative(e.out, e.out_norm) < 2e-3 && relative(e.state, e.state_norm) < 1e-6);
                first = d;
                continue;
            }
            assert_memory_equal(d.out, first.out, all);
            assert_memory_equal(d.out_state, first.out_state, seq);
            drop(&d);
        }
        drop(&first);
    }
    omp_set_num_threads(before);
}

/* States one after the other, updated in place, against the pool form. */
static void test_contiguous(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = { .isa = isa, .nk = 2, .nv = 2, .dim = 64, .batch = 3, .len = { 40, 40, 40 }, .packed = true, .f32 = true };
        const uint64_t seq = (uint64_t)p.nv * p.dim * p.dim, all = 120u * p.nv * p.dim;
        data d = make(&p);
        float *states = need(p.batch * seq * sizeof *states), *out = need(all * sizeof *out);
        for (uint32_t b = 0; b < p.batch; b++) memcpy(states + b * seq, d.in + (2 * b + 1) * d.c.state_stride, seq * sizeof *states);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        memcpy(out, d.out, all * sizeof *out);
        memset(d.out, 0x33, all * sizeof *out);
        gdn_cpu_rule c = d.c;
        c.addr = GDN_STATE_CONTIGUOUS, c.state = states, c.state_out = states, c.cu = NULL, c.seq_len = 40;
        gdn_cpu_prefill(&c);
        assert_memory_equal(out, d.out, all * sizeof *out);
        for (uint32_t b = 0; b < p.batch; b++)
            assert_memory_equal(states + b * seq, d.out_state + 2 * b * d.c.state_stride, seq * sizeof *states);
        free(out);
        free(states);
        drop(&d);
    }
}

/* Rows 2^32 - 8 elements apart give the bytes that dense rows give: no 32-bit index. */
static void test_far_rows(void **state) {
    (void)state;
    const uint32_t stride = 0xfffffff8u;
    const size_t size = 3 * (size_t)stride * 2;
    uint16_t *far = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED) skip();
    EACH_ISA(isa) {
        problem p = { .isa = isa, .nk = 1, .nv = 1, .dim = 128, .batch = 1, .len = { 3 } };
        const uint64_t all = 3 * 128 * sizeof(uint16_t);
        data d = make(&p);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        uint16_t out[3 * 128];
        memcpy(out, d.out, all);
        memset(d.out, 0x33, all);
        for (size_t t = 0; t < 3; t++) {
            memcpy(far + t * stride, (uint16_t *)d.q + t * 128, 256);
            memcpy(far + t * stride + 128, (uint16_t *)d.k + t * 128, 256);
            memcpy(far + t * stride + 256, (uint16_t *)d.v + t * 128, 256);
        }
        d.c.q = far, d.c.k = far + 128, d.c.v = far + 256;
        d.c.qk_stride = d.c.v_stride = stride;
        gdn_cpu_prefill(&d.c);
        assert_memory_equal(out, d.out, all);
        drop(&d);
    }
    assert_int_equal(munmap(far, size), 0);
}

/* A NaN in one sequence stays there, although every other unit reuses the scratch that held it. */
static void test_nan_stays(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = packed(isa, 5);
        p.ckpt_every = 0;
        data d = make(&p);
        for (uint64_t i = 0; i < d.c.v_stride; i++) put(p.f32, d.v, (uint64_t)d.cu[0] * d.c.v_stride + i, NAN);
        for (uint64_t i = 0; i < d.c.qk_stride; i++) put(p.f32, d.k, ((uint64_t)d.cu[1] - 1) * d.c.qk_stride + i, NAN);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        errors e = { 0 }, bad = { 0 };
        for (uint32_t b = 1; b < p.batch; b++)
            for (uint32_t h = 0; !p.padding[b] && h < p.nv; h++) compare_head(&p, &d, b, h, 0, &e);
        assert_true(relative(e.out, e.out_norm) < 1e-6 && relative(e.state, e.state_norm) < 1e-6);
        compare_head(&p, &d, 0, 0, 0, &bad);
        assert_true(isnan(bad.out)); /* control: it was there */
        drop(&d);
    }
}

/* Control: one changed input value, in the last row of the last sequence, is noticed by the comparison. */
static void test_control(void **state) {
    (void)state;
    EACH_ISA(isa) {
        problem p = packed(isa, 5);
        data d = make(&p);
        bind(&p, &d);
        gdn_cpu_prefill(&d.c);
        put(p.f32, d.v, (d.rows - 1) * d.c.v_stride + 7, 0.75);
        errors e = { 0 };
        compare_head(&p, &d, 5, 0, 0, &e);
        assert_true(relative(e.out, e.out_norm) > 1e-4 && relative(e.state, e.state_norm) > 1e-4);
        drop(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),      cmocka_unit_test(test_lengths),  cmocka_unit_test(test_hard_data),
        cmocka_unit_test(test_long),       cmocka_unit_test(test_packed),   cmocka_unit_test(test_alone_in_place),
        cmocka_unit_test(test_cut),        cmocka_unit_test(test_threads),  cmocka_unit_test(test_nan_stays),
        cmocka_unit_test(test_contiguous), cmocka_unit_test(test_far_rows), cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests_name("cpu prefill", tests, NULL, NULL);
}
