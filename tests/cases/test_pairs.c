/* test_pairs.c - pairs that must agree, through checkkern: in bytes, or within f32 rounding where the order of sums may
 * differ. GDN_TEST_BENCH=1 prints what each pair costs. */
#include "checkkern.h"
#include "conv_case.h"
#include "oracle.h"
#include "rule_case.h"
#include <stdlib.h>
#include <string.h>

/* Two rule cases over the same numbers; the outputs of b are copied into a's buffers, where both runs are compared. */
typedef struct two {
    rule_case a, b;
    rc_before before;
    uint32_t op_a, op_b;
    guard state; /* [batch] states of the run, in batch order and K-major */
} two;

static void collect(two *t, const rule_case *c) {
    for (uint32_t b = 0; b < c->s.batch; b++) {
        const float *S = rc_state(c, true, b);
        float *to = (float *)(void *)t->state.p + b * c->state_elems;
        const uint32_t D = c->s.dim;
        for (uint32_t h = 0; h < c->s.nv; h++) {
            for (uint32_t i = 0; i < D; i++) {
                for (uint32_t j = 0; j < D; j++) to[h * D * D + i * D + j] = S[h * D * D + rc_elem(c, i, j)];
            }
        }
    }
}

/* b starts from a's states, whatever its layout and addressing. */
static void reset(void *ctx) {
    two *t = ctx;
    rc_put_back(&t->a, &t->before);
    const uint32_t D = t->a.s.dim;
    for (uint32_t b = 0; b < t->a.s.batch; b++) {
        const float *from = rc_state(&t->a, false, b);
        float *to = rc_state(&t->b, false, b);
        for (uint32_t h = 0; h < t->a.s.nv; h++) {
            for (uint32_t i = 0; i < D; i++) {
                for (uint32_t j = 0; j < D; j++) to[h * D * D + rc_elem(&t->b, i, j)] = from[h * D * D + rc_elem(&t->a, i, j)];
            }
        }
    }
    guard_poison(&t->b.o);
}

static void run_a(void *ctx) {
    two *t = ctx;
    assert_int_equal(rc_launch(&t->a), GDN_OK);
    collect(t, &t->a);
}

static void run_b(void *ctx) {
    two *t = ctx;
    assert_int_equal(rc_launch(&t->b), GDN_OK);
    collect(t, &t->b);
    guard_put(&t->a.o, t->b.o.p);
}

static void copy_inputs(two *t) {
    const rc_spec *s = &t->a.s;
    const uint64_t size = num_size(s->act), qk = (uint64_t)s->nk * s->dim, v = (uint64_t)s->nv * s->dim;
    for (uint64_t r = 0; r < t->a.buffer_rows; r++) {
        memcpy(t->b.qp + r * t->b.qk_stride * size, t->a.qp + r * t->a.qk_stride * size, qk * size);
        memcpy(t->b.kp + r * t->b.qk_stride * size, t->a.kp + r * t->a.qk_stride * size, qk * size);
        memcpy(t->b.vp + r * t->b.v_stride * size, t->a.vp + r * t->a.v_stride * size, v * size);
        memcpy(rc_gate(&t->b, (uint32_t)r, 0), rc_gate(&t->a, (uint32_t)r, 0), 2ull * s->nv * 4);
    }
}

static void compare(const char *name, const rc_spec *a, const rc_spec *b, double tol) {
    two t = { 0 };
    rc_make(&t.a, a);
    rc_make(&t.b, b);
    copy_inputs(&t);
    t.before = rc_remember(&t.a);
    t.state = guard_alloc(t.a.s.batch * t.a.state_elems * 4);
    const ck_output out[] = { { "output", &t.a.o, t.a.s.act, tol }, { "state", &t.state, GDN_F32, tol } };
    const guard *canaries[] = { &t.a.pool, &t.b.pool, &t.b.o };
    const ck_pair p = { name, reset, run_a, run_b, &t, out, 2, canaries, 3 };
    char why[256];
    if (!ck_pair_check(&p, why, sizeof why)) fail_msg("%s", why);
    guard_free(&t.state);
    rc_forget(&t.before);
    rc_free(&t.a);
    rc_free(&t.b);
}

static void decode_is_row_0_of_verify(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rc_spec d = { .op = GDN_OP_DECODE,
                      .nk = 4,
                      .nv = 12,
                      .dim = i & 1 ? 128 : 64,
                      .batch = 3,
                      .addr = GDN_STATE_POOL,
                      .flags = i & 2 ? GDN_QK_L2NORM : 0 };
        rc_spec v = d;
        v.op = GDN_OP_VERIFY;
        v.rows = 1;
        compare("decode, verify of 1 row", &d, &v, 0);
    }
}

static void addressing_changes_no_byte(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec a = { .op = ops[i],
                      .nk = 2,
                      .nv = 6,
                      .dim = 128,
                      .batch = 3,
                      .rows = ops[i] == GDN_OP_PREFILL ? 70 : 4,
                      .addr = GDN_STATE_POOL },
                b = a;
        b.addr = GDN_STATE_TABLE;
        compare("pool, table", &a, &b, 0);
        b = a;
        b.slot_pad = 36;
        b.qk_pad = target_is_named("hopper") ? 8 : 1; /* hopper's fast and tensor-core routes take no other: another route, other bytes */
        b.v_pad = target_is_named("hopper") ? 8 : 2;
        b.gb_pad = 1;
        compare("dense, strided", &a, &b, 0);
        b = a;
        b.other_pool = true;
        compare("in place, to another pool", &a, &b, 0);
        if (ops[i] == GDN_OP_VERIFY) continue;
        b = a;
        b.addr = GDN_STATE_CONTIGUOUS;
        compare("pool, contiguous", &a, &b, 0);
    }
}

static void offsets_of_both_widths_and_uniform_batches(void **state) {
    (void)state;
    static const uint32_t len[] = { 70, 70, 70 };
    rc_spec a = { .op = GDN_OP_PREFILL, .nk = 2, .nv = 6, .dim = 128, .batch = 3, .rows = 70, .addr = GDN_STATE_POOL }, b = a;
    b.len = len;
    compare("uniform, int32 offsets", &a, &b, 0);
    b.offsets = GDN_OFFSETS_I64;
    compare("uniform, int64 offsets", &a, &b, 0);
}

static void state_layouts_agree(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec a = { .op = ops[i],
                      .nk = 2,
                      .nv = 6,
                      .dim = 128,
                      .batch = 2,
                      .rows = ops[i] == GDN_OP_PREFILL ? 70 : 4,
                      .addr = GDN_STATE_POOL },
                b = a;
        b.layout = GDN_STATE_V_MAJOR;
        compare("K-major, V-major", &a, &b, 1e-5);
    }
}

static void prefill_agrees_with_decode_token_by_token(void **state) {
    (void)state;
    const rc_spec p = { .op = GDN_OP_PREFILL, .nk = 2, .nv = 6, .dim = 128, .batch = 1, .rows = 4, .addr = GDN_STATE_POOL };
    rc_spec v = p;
    v.op = GDN_OP_VERIFY;
    compare("prefill, verify", &p, &v, target_is_cpu() ? 1e-5 : 5e-3); /* a GPU rounds W, U and S */
}

/* ---- conv_fused against conv1d and then the norm in f64 ---- */
typedef struct convs {
    conv_case plain, fused;
    guard before, row; /* row: [rows][channels], the packed result */
} convs;

static void conv_reset(void *ctx) {
    convs *c = ctx;
    guard_put(&c->plain.state, c->before.p);
    guard_put(&c->fused.state, c->before.p);
}

static void run_plain(void *ctx) {
    convs *c = ctx;
    const conv_spec *f = &c->fused.s;
    assert_int_equal(conv_launch(&c->plain, 0, c->plain.s.batch), GDN_OK);
    for (uint32_t t = 0; t < c->plain.buffer_rows; t++) {
        double x[256];
        for (uint32_t h = 0; h < 2 * f->nk + f->nv; h++) {
            for (uint32_t i = 0; i < f->dim; i++) x[i] = conv_out(&c->plain, t, h * f->dim + i);
            if (h < 2 * f->nk) oracle_l2norm(x, f->dim);
            for (uint32_t i = 0; i < f->dim; i++) num_put(c->row.p, GDN_F32, (uint64_t)t * f->channels + h * f->dim + i, x[i]);
        }
    }
}

static void run_fused(void *ctx) {
    convs *c = ctx;
    assert_int_equal(conv_launch(&c->fused, 0, c->fused.s.batch), GDN_OK);
    for (uint32_t t = 0; t < c->fused.buffer_rows; t++) {
        for (uint32_t ch = 0; ch < c->fused.s.channels; ch++)
            num_put(c->row.p, GDN_F32, (uint64_t)t * c->fused.s.channels + ch, conv_out(&c->fused, t, ch));
    }
    guard_put(&c->plain.state, c->fused.state.p);
}

static void fused_convolution_is_convolution_split_and_norm(void **state) {
    (void)state;
    if (!target_is_cpu()) skip(); /* f32 rows; the GPU's fused form has its own test against f64 (tests/emu, tests/gpu) */
    convs c = { 0 };
    const conv_spec f = { .nk = 2, .nv = 6, .dim = 128, .batch = 3, .rows = 7, .bias = true, .out_pad = 3 };
    conv_make(&c.fused, &f);
    conv_spec p = f;
    p.nk = p.nv = p.dim = 0;
    p.out_pad = 0;
    p.channels = c.fused.s.channels;
    conv_make(&c.plain, &p); /* the same seed and channels: the same inputs */
    assert_memory_equal(c.plain.x.p, c.fused.x.p, c.plain.x.bytes);
    c.before = guard_copy(&c.plain.state);
    c.row = guard_alloc((uint64_t)c.plain.buffer_rows * p.channels * 4);
    const ck_output out[] = { { "row", &c.row, GDN_F32, 1e-6 }, { "state", &c.plain.state, GDN_F32, 0 } };
    const ck_pair pair = { "conv1d and norm, conv_fused", conv_reset, run_plain, run_fused, &c, out, 2, NULL, 0 };
    char why[256];
    if (!ck_pair_check(&pair, why, sizeof why)) fail_msg("%s", why);
    guard_free(&c.before);
    guard_free(&c.row);
    conv_free(&c.plain);
    conv_free(&c.fused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_is_row_0_of_verify),
        cmocka_unit_test(addressing_changes_no_byte),
        cmocka_unit_test(offsets_of_both_widths_and_uniform_batches),
        cmocka_unit_test(state_layouts_agree),
        cmocka_unit_test(prefill_agrees_with_decode_token_by_token),
        cmocka_unit_test(fused_convolution_is_convolution_split_and_norm),
    };
    return cmocka_run_group_tests_name("pairs", tests, target_setup, target_teardown);
}
