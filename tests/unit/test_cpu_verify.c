/* test_cpu_verify.c - verify, write-on-accept verify and fold on the CPU: the bit contracts between them and with decode, the
 * order of operations written out, an f64 recurrence. Every comparison has a control that must fail. */
#include "rule_step_case.h"

static const spec plain = {
    .batch = 2, .rows = 4, .nk = 1, .nv = 2, .dim = 128, .addr = GDN_STATE_POOL, .f32 = true, .hi_capacity = 8, .seed = 3
};

/* Runs body for each instruction set, both layouts, both head sizes and both forms of addressing (s is the spec). */
static void each(void (*body)(const spec *)) {
    for (uint32_t bits = 0; bits < 8; bits++)
        for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(2); isa++) {
            spec s = plain;
            s.isa = isa;
            s.v_major = bits & 1;
            s.dim = bits & 2 ? 64 : 128;
            s.addr = bits & 4 ? GDN_STATE_TABLE : GDN_STATE_POOL;
            body(&s);
        }
}

/* ---- the order of operations of four rows, K-major ---- */
static float group(const float *s, const float *x, size_t d, size_t v) {
    float acc = 0;
    for (size_t j = 0; j < d; j += 4)
        acc += ((s[j * d + v] * x[j] + s[(j + 1) * d + v] * x[j + 1]) + s[(j + 2) * d + v] * x[j + 2]) + s[(j + 3) * d + v] * x[j + 3];
    return acc;
}
static float warp_tree(const float *x, const float *y, size_t d) {
    float w[4] = { 0 };
    for (size_t n = 0; n < d / 32; n++) {
        float lane[32];
        for (size_t i = 0; i < 32; i++) lane[i] = x[n * 32 + i] * y[n * 32 + i];
        for (size_t off = 16; off; off /= 2) /* shuffle-down: a lane past the end keeps its own value, lane 0 never sees it */
            for (size_t i = 0; i < 32; i++) lane[i] += i + off < 32 ? lane[i + off] : lane[i];
        w[n] = lane[0];
    }
    return d == 128 ? (w[0] + w[2]) + (w[1] + w[3]) : w[0] + w[1];
}
/* vn of one column. */
static void column(const float g[4], const float b[4], const float v[4], const float hk[4], float kd[4][4], float vn[4]) {
    vn[0] = (v[0] - g[0] * hk[0]) * b[0];
    const float c1 = g[0] * hk[1] + kd[1][0] * vn[0];
    vn[1] = (v[1] - g[1] * c1) * b[1];
    const float c2 = (g[0] * g[1] * hk[2] + g[1] * kd[2][0] * vn[0]) + kd[2][1] * vn[1];
    vn[2] = (v[2] - g[2] * c2) * b[2];
    const float c3 = ((g[0] * g[1] * g[2] * hk[3] + g[1] * g[2] * kd[3][0] * vn[0]) + g[2] * kd[3][1] * vn[1]) + kd[3][2] * vn[2];
    vn[3] = (v[3] - g[3] * c3) * b[3];
}
/* Whether states and outputs of head h are those bytes; moved: with a k2.k0 that is off by 2^-16. */
static bool head_is(const step_case *before, const step_case *t, uint32_t b, uint32_t h, bool moved) {
    const size_t d = t->s.dim, nv = t->s.nv;
    const float *row[4], *k[4];
    float g[4], beta[4], kd[4][4] = { { 0 } };
    float *const s = floats(d * d, 0), *const vn = floats(4 * d, 0);
    bool same = true;
    memcpy(s, state_in(before, b) + h * d * d, d * d * sizeof *s);
    for (size_t r = 0; r < 4; r++) {
        row[r] = (const float *)t->act + (4 * b + r) * t->row;
        k[r] = row[r] + d;
        g[r] = t->gb[(4 * b + r) * t->c.gb_stride + h];
        beta[r] = t->gb[(4 * b + r) * t->c.gb_stride + nv + h];
        for (size_t i = 0; i < r; i++) kd[r][i] = warp_tree(k[r], k[i], d);
    }
    if (moved) kd[2][0] *= 1.0f + 0x1p-16f;
    for (size_t v = 0; v < d; v++) {
        float hk[4], vv[4], n[4];
        for (size_t r = 0; r < 4; r++) hk[r] = group(s, k[r], d, v), vv[r] = row[r][(2 + h) * d + v];
        column(g, beta, vv, hk, kd, n);
        for (size_t r = 0; r < 4; r++) vn[r * d + v] = n[r];
    }
    for (uint32_t r = 0; r < 4; r++) {
        for (size_t i = 0; i < d * d; i++) s[i] = g[r] * s[i] + k[r][i / d] * vn[r * d + i % d];
        same = same && same_floats(s, (r < 3 ? hi_at(t, b, r) : state_out(t, b)) + h * d * d, d * d);
        for (size_t v = 0; v < d; v++)
            same = same && t->c.scale * group(s, row[r], d, v) == ((const float *)t->out)[((4 * b + r) * nv + h) * d + v];
    }
    free(vn);
    free(s);
    return same;
}
static void order_body(const spec *s) {
    if (s->v_major) return;
    step_case *const before = case_make(s), *const t = case_make(s);
    gdn_cpu_verify(&t->c);
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t h = 0; h < s->nv; h++) {
            assert_true(head_is(before, t, b, h, false));
            assert_false(head_is(before, t, b, h, true)); /* control */
        }
    case_free(t);
    case_free(before);
}
static void order_of_operations(void **unused) {
    (void)unused;
    each(order_body);
}

/* ---- 1 to 16 rows against f64; K-major bytes are the same on every instruction set ---- */
static double verify_error(const step_case *t, const step_case *before, size_t skew) {
    double *const S = must(malloc(t->s.dim * t->s.dim * sizeof *S)), o[128], e = 0;
    for (uint32_t b = 0; b < t->s.batch; b++)
        for (uint32_t h = 0; h < t->s.nv; h++) {
            ref_state(before, state_in(before, b), h, S);
            for (uint32_t r = 0; r < t->s.rows; r++) {
                const size_t row = b * t->s.rows + r;
                ref_row(before, (row + skew) % t->tokens, h, S, o);
                e = fmax(e, error_out(t, row, h, o) * (t->s.f32 ? 1 : 1e-3));
                e = fmax(e, error_state(t, r + 1 < t->s.rows ? hi_at(t, b, r) : state_out(t, b), h, S));
            }
        }
    free(S);
    return e;
}
static void against_f64(void **unused) {
    (void)unused;
    for (uint32_t rows = 1; rows <= GDN_MAX_ROWS; rows++)
        for (uint32_t v_major = 0; v_major < 2; v_major++) {
            spec s = { .batch = 2,
                       .rows = rows,
                       .nk = 2,
                       .nv = 4,
                       .dim = rows % 2 ? 64 : 128,
                       .addr = rows % 3 ? GDN_STATE_POOL : GDN_STATE_TABLE,
                       .f32 = rows % 4 != 1,
                       .l2norm = rows % 5 == 2,
                       .tiled = rows % 3 == 1,
                       .log_gate = rows % 4 == 2,
                       .v_major = v_major,
                       .elsewhere = rows % 2,
                       .seed = rows };
            step_case *const before = case_make(&s), *const first = case_make(&s);
            gdn_cpu_verify(&first->c);
            for (s.isa = 0; s.isa <= gdn_cpu_isa_pick(2); s.isa++) {
                step_case *const t = case_make(&s);
                gdn_cpu_verify(&t->c);
                assert_true(verify_error(t, before, 0) <= 1e-5);
                assert_true(verify_error(t, before, 1) > 1e-3); /* control: tokens moved by one */
                if (!v_major) assert_true(same_case(first, t));
                case_free(t);
            }
            case_free(first);
            case_free(before);
        }
}

/* ---- row 0 is decode; V-major: every row is ---- */
static void decode_body(const spec *s) {
    step_case *const t = case_make(s), *const d = case_make(s);
    const size_t row = (size_t)s->nv * s->dim;
    gdn_cpu_verify(&t->c);
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t r = 0; r < (s->v_major ? s->rows : 1); r++) {
            gdn_cpu_rule c = case_single(d, b);
            c.q = (const float *)c.q + r * t->row;
            c.k = (const float *)c.k + r * t->row;
            c.v = (const float *)c.v + r * t->row;
            c.gate += r * c.gb_stride;
            c.beta += r * c.gb_stride;
            c.out = (float *)c.out + r * row;
            const float *const now = r + 1 < s->rows ? hi_at(t, b, r) : state_out(t, b);
            assert_false(same_floats(now, state_out(d, b), t->seq)); /* control */
            gdn_cpu_decode(&c);
            assert_true(same_floats(now, state_out(d, b), t->seq));
            assert_memory_equal((float *)t->out + (b * s->rows + r) * row, (float *)d->out + (b * s->rows + r) * row, row * sizeof(float));
        }
    case_free(d);
    case_free(t);
}
static void row_0_is_decode(void **unused) {
    (void)unused;
    each(decode_body);
}

/* ---- woa: verify's output, no state written, the stash; fold: verify's states ---- */
static void woa_body(const spec *from) {
    spec with = *from, *const s = &with;
    s->l2norm = s->dim == 64; /* then the stash holds normalised k, which the fold below needs */
    s->nk = 3;
    s->nv = 6;
    s->tiled = s->addr == GDN_STATE_TABLE;
    step_case *const ver = case_make(s), *const woa = case_make(s), *const before = case_make(s);
    gdn_cpu_verify(&ver->c);
    gdn_cpu_verify_woa(&woa->c);
    assert_int_equal(woa->engaged, 1);
    assert_memory_equal(woa->out, ver->out, ver->out_bytes);
    assert_memory_not_equal(woa->out, before->out, ver->out_bytes); /* control */
    assert_true(same_floats(woa->pool, before->pool, before->pool_len) && same_floats(woa->hi, before->hi, before->hi_len));
    assert_false(same_floats(ver->pool, before->pool, before->pool_len)); /* control */
    for (uint32_t b = 0; b < s->batch; b++) {
        const float *const vn = woa->stash + b * woa->c.stash_stride, *const g = vn + 4 * s->nv * s->dim, *const sk = g + 4 * s->nv;
        for (uint32_t r = 0; r < 4; r++) {
            assert_true(same_floats(g + r * s->nv, woa->gb + (4 * b + r) * woa->c.gb_stride, s->nv)); /* inside the clamp */
            const size_t n = s->nk * s->dim;
            assert_true(same_floats(sk + r * n, (const float *)woa->act + (4 * b + r) * woa->row + n, n) == !s->l2norm);
        }
        for (size_t i = 0; i < EDGE; i++) assert_true(isnan(vn[woa->c.stash_stride - 1 - i])); /* the gap of the pitch */
    }
    for (uint32_t na = 0; na <= 6; na++) {
        memcpy(woa->pool, before->pool, woa->pool_len * sizeof(float));
        for (uint32_t b = 0; b < s->batch; b++) woa->na[b] = na;
        gdn_cpu_fold(&woa->c);
        assert_int_equal(woa->engaged, 1);
        for (uint32_t b = 0; b < s->batch; b++) {
            const float *const now = state_out(woa, b), *want = state_out(ver, b), *other = hi_at(ver, b, 1);
            if (na == 0) want = state_in(before, b);
            if (na > 0 && na < 4) want = hi_at(ver, b, na - 1), other = na == 2 ? hi_at(ver, b, 0) : other;
            assert_true(same_floats(now, want, woa->seq));
            assert_false(same_floats(now, other, woa->seq)); /* control */
        }
        for (size_t i = 0; i < EDGE; i++) assert_true(woa->pool[i + woa->seq] == before->pool[i + woa->seq]);
    }
    case_free(before);
    case_free(woa);
    case_free(ver);
}
static void woa_and_fold(void **unused) {
    (void)unused;
    each(woa_body);
}

/* Not engaged: fewer rows bring hi[na-1] back, all rows (or more) leave what verify wrote. */
static void fold_plain_body(const spec *s) {
    step_case *const ver = case_make(s), *const t = case_make(s);
    gdn_cpu_verify(&ver->c);
    gdn_cpu_verify(&t->c);
    for (uint32_t na = 0; na <= 5; na++) {
        memcpy(t->pool, ver->pool, t->pool_len * sizeof(float));
        t->na[0] = na;
        t->na[1] = 2;
        gdn_cpu_fold(&t->c);
        assert_true(same_floats(state_out(t, 0), na > 0 && na < 4 ? hi_at(ver, 0, na - 1) : state_out(ver, 0), t->seq));
        assert_true(same_floats(state_out(t, 1), hi_at(ver, 1, 1), t->seq));
        assert_false(same_floats(state_out(t, 1), state_out(ver, 1), t->seq)); /* control */
        assert_int_equal(t->engaged, 0);
    }
    case_free(t);
    case_free(ver);
}
static void fold_not_engaged(void **unused) {
    (void)unused;
    each(fold_plain_body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_operations), cmocka_unit_test(against_f64),      cmocka_unit_test(row_0_is_decode),
        cmocka_unit_test(woa_and_fold),        cmocka_unit_test(fold_not_engaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
