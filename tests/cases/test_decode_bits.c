/* test_decode_bits.c - the bytes and clamps that gdn_op_rule.h promises for decode, and which of them prefill does not share.
 *
 * Decode, K-major: sums over k in groups of four, the four products added left to right, the group sum added to the
 * accumulator, nothing contracted; vn = (v - g hk) beta; S = g S + k vn; out = scale * sum. */
#include "rule_case.h"
#include <math.h>
#include <string.h>

static float grouped(const float *S, const float *x, uint32_t D, uint32_t v) {
    float acc = 0;
    for (uint32_t j = 0; j < D; j += 4) {
        float g = S[j * D + v] * x[j];
        g += S[(j + 1) * D + v] * x[j + 1];
        g += S[(j + 2) * D + v] * x[j + 2];
        g += S[(j + 3) * D + v] * x[j + 3];
        acc += g;
    }
    return acc;
}

static void model_head(float *S, uint32_t D, const float *q, const float *k, const float *v, float gate, float beta, float scale,
                       float *out) {
    const float g = fminf(fmaxf(gate, 1e-6f), 1.0f - 1e-6f);
    for (uint32_t c = 0; c < D; c++) {
        const float hk = grouped(S, k, D, c), vn = (v[c] - g * hk) * beta;
        for (uint32_t j = 0; j < D; j++) S[j * D + c] = g * S[j * D + c] + k[j] * vn;
        out[c] = scale * grouped(S, q, D, c);
    }
}

static void decode_has_the_bytes_of_its_formula(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rc_spec s = { .op = GDN_OP_DECODE,
                      .nk = 2,
                      .nv = 6,
                      .dim = i & 1 ? 128 : 64,
                      .batch = 3,
                      .addr = GDN_STATE_POOL,
                      .scale = 0.125f,
                      .seed = i + 1 };
        s.act = i & 2 ? GDN_BF16 : target_act();
        const uint32_t D = s.dim;
        rule_case c;
        rc_make(&c, &s);
        *rc_gate(&c, 0, 1) = 0;
        *rc_gate(&c, 1, 2) = 1;
        guard S = guard_copy(&c.pool), o = guard_copy(&c.o);
        for (uint32_t b = 0; b < 3; b++) {
            for (uint32_t h = 0; h < 6; h++) {
                float x[3][128], out[128];
                for (uint32_t j = 0; j < D; j++) {
                    x[0][j] = (float)num_get(c.qp, c.s.act, b * c.qk_stride + h / 3 * D + j);
                    x[1][j] = (float)num_get(c.kp, c.s.act, b * c.qk_stride + h / 3 * D + j);
                    x[2][j] = (float)num_get(c.vp, c.s.act, b * c.v_stride + h * D + j);
                }
                float *head = (float *)(void *)S.p + (uint64_t)c.in[b] * c.stride + h * D * D;
                model_head(head, D, x[0], x[1], x[2], *rc_gate(&c, b, h), *rc_beta(&c, b, h), 0.125f, out);
                for (uint32_t j = 0; j < D; j++) num_put(o.p, c.s.act, (b * 6 + h) * D + j, (double)out[j]);
            }
        }
        rc_check(&c);
        assert_memory_equal(S.p, c.pool.p, S.bytes);
        assert_memory_equal(o.p, c.o.p, o.bytes);
        guard_free(&S);
        guard_free(&o);
        rc_free(&c);
    }
}

/* With beta 0 the new state is exactly the decay times the old one: the clamp can be read off. */
static float decay_applied(uint32_t op, uint32_t form, float gate) {
    rc_spec s = { .op = op, .nk = 1, .nv = 2, .dim = 64, .addr = GDN_STATE_POOL, .rows = 1, .gate_form = form };
    rule_case c;
    rc_make(&c, &s);
    *rc_beta(&c, 0, 0) = 0;
    *rc_gate(&c, 0, 0) = gate;
    const float one = 1;
    rc_state(&c, false, 0)[rc_elem(&c, 5, 9)] = one;
    const gdn_status st = rc_launch(&c);
    const float got = rc_state(&c, true, 0)[rc_elem(&c, 5, 9)];
    rc_free(&c);
    assert_int_equal(st, GDN_OK);
    return got;
}

static void decode_and_verify_clamp_the_decay_and_prefill_does_not(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(decay_applied(ops[i], GDN_GATE_LINEAR, 0) == 1e-6f);
        assert_true(decay_applied(ops[i], GDN_GATE_LINEAR, 1) == 1.0f - 1e-6f);
        assert_true(decay_applied(ops[i], GDN_GATE_LINEAR, 0.25f) == 0.25f);
        assert_true(decay_applied(ops[i], GDN_GATE_LOG, 0) == 1.0f - 1e-6f);
        assert_true(decay_applied(ops[i], GDN_GATE_LOG, -INFINITY) == 1e-6f);
        assert_true(decay_applied(ops[i], GDN_GATE_LOG, -40) == 1e-6f);
    }
    const float floor_ = decay_applied(GDN_OP_PREFILL, GDN_GATE_LINEAR, 0),
                log_floor = decay_applied(GDN_OP_PREFILL, GDN_GATE_LOG, -INFINITY);
    assert_true(floor_ > 0.9e-30f && floor_ < 1.1e-30f);
    assert_true(log_floor > 0.9e-30f && log_floor < 1.1e-30f);
    assert_true(decay_applied(GDN_OP_PREFILL, GDN_GATE_LINEAR, 1) == 1.0f);
    assert_true(fabsf(decay_applied(GDN_OP_PREFILL, GDN_GATE_LINEAR, 1e-9f) / 1e-9f - 1) < 1e-5f);
}

/* 1/sqrt(k_dim) unless the plan says otherwise; the output alone scales. */
static void scale_of_the_output(void **state) {
    (void)state;
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY };
    for (uint32_t i = 0; i < 3; i++) {
        rc_spec s = { .op = ops[i], .nk = 1, .nv = 2, .dim = 64, .addr = GDN_STATE_POOL, .rows = 3 };
        rule_case a, b;
        rc_make(&a, &s);
        s.scale = 0.25f;
        rc_make(&b, &s);
        rc_check(&a);
        rc_check(&b);
        assert_memory_equal(a.pool.p, b.pool.p, a.pool.bytes);
        for (uint64_t j = 0; j < a.o.bytes / num_size(a.s.act); j++)
            assert_true(num_get(b.o.p, a.s.act, j) == 2 * num_get(a.o.p, a.s.act, j));
        rc_free(&a);
        rc_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_has_the_bytes_of_its_formula),
        cmocka_unit_test(decode_and_verify_clamp_the_decay_and_prefill_does_not),
        cmocka_unit_test(scale_of_the_output),
    };
    return cmocka_run_group_tests_name("decode bytes", tests, target_setup, target_teardown);
}
