/* test_cpu_conv.c - gdn_cpu_conv1d and gdn_cpu_conv_fused called directly.
 *
 * The reference adds in the same order in f32 (so the sums must agree exactly), takes SiLU and the norm in f64, and moves
 * state elements as bytes. Rows outside the sequences, stride gaps, slots that must not be read and outputs are poisoned
 * with NaNs; every instruction set and thread count must give the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <omp.h>

#include "cpu_kernels.h"
#include "guard.h"
#include "numeric.h"

enum { MAX_B = 8 };

typedef struct tcase {
    uint32_t batch, len[MAX_B], width, extra, channels, x_gap, out_gap, cu0, seed;
    int32_t slot[MAX_B], accepted[MAX_B];
    uint8_t fresh[MAX_B];
    int cu; /* 0: uniform, 32, 64 */
    bool f32, weight_f32, bias, state, slots, use_fresh, use_accepted, keep, silu;
    uint32_t nk, nv, dim; /* nk: fused */
} tcase;

enum { SLOTS = 10 };

typedef struct data {
    gdn_cpu_conv c;
    guard x, w, bias, state0, state, out[3], cu;
    uint64_t out_rows;
} data;

static uint32_t type_of(bool f32) {
    return f32 ? GDN_F32 : GDN_BF16;
}

static uint64_t first_row(const tcase *t, uint32_t b) {
    uint64_t r = t->cu ? t->cu0 : 0;
    for (uint32_t i = 0; i < b; i++) r += t->len[i];
    return r;
}

static bool is_padding(const tcase *t, uint32_t b) {
    return t->slots && t->slot[b] < 0;
}
static uint32_t slot_of(const tcase *t, uint32_t b) {
    return t->slots ? (uint32_t)t->slot[b] : b;
}
static bool is_fresh(const tcase *t, uint32_t b) {
    return t->use_fresh && t->fresh[b];
}

/* Output o of the fused form (q, k, v), or the only one. */
static uint32_t out_width(const tcase *t, int o) {
    return t->nk ? (o < 2 ? t->nk : t->nv) * t->dim : t->channels;
}

static void fill_inputs(const tcase *t, data *d, rng *r) {
    const uint32_t type = type_of(t->f32), xs = t->channels + t->x_gap, sl = t->width - 1 + t->extra;
    guard_poison(&d->x);
    guard_poison(&d->state0);
    for (uint32_t b = 0; b < t->batch; b++) {
        for (uint64_t row = first_row(t, b); row < first_row(t, b) + t->len[b] && !is_padding(t, b); row++)
            for (uint32_t ch = 0; ch < t->channels; ch++) num_put(d->x.p, type, row * xs + ch, rng_uniform(r, -2, 2));
        if (is_padding(t, b) || is_fresh(t, b)) continue;
        for (uint64_t i = 0; i < (uint64_t)t->channels * sl; i++)
            num_put(d->state0.p, type, slot_of(t, b) * d->c.slot_stride + i, rng_uniform(r, -2, 2));
    }
    num_fill(d->w.p, type_of(t->weight_f32), (uint64_t)t->channels * t->width, r, -1, 1);
    num_fill(d->bias.p, type_of(t->weight_f32), t->channels, r, -1, 1);
}

static void make(const tcase *t, data *d) {
    rng r = { t->seed + 1 };
    const uint32_t esz = t->f32 ? 4 : 2, wsz = t->weight_f32 ? 4 : 2, sl = t->width - 1 + t->extra;
    const uint64_t rows = first_row(t, t->batch);
    memset(d, 0, sizeof *d);
    d->out_rows = rows + 1; /* one row past the end stays poisoned */
    d->c = (gdn_cpu_conv) { .batch = t->batch,
                            .seq_len = t->cu ? 0 : t->len[0],
                            .channels = t->channels,
                            .width = t->width,
                            .state_len = sl,
                            .x_stride = t->channels + t->x_gap,
                            .out_stride = t->channels + t->out_gap,
                            .slot_stride = (uint64_t)t->channels * sl + 3,
                            .nk = t->nk,
                            .nv = t->nv,
                            .k_dim = t->dim,
                            .v_dim = t->dim,
                            .f32 = t->f32,
                            .weight_f32 = t->weight_f32,
                            .cu64 = t->cu == 64,
                            .silu = t->silu,
                            .keep_rows = t->keep };
    d->x = guard_alloc((rows * d->c.x_stride + 1) * esz);
    d->w = guard_alloc((uint64_t)t->channels * t->width * wsz);
    d->bias = guard_alloc((uint64_t)t->channels * wsz);
    d->state0 = guard_alloc(SLOTS * d->c.slot_stride * esz);
    d->cu = guard_alloc((t->batch + 1) * 8u);
    for (uint32_t b = 0; b <= t->batch; b++) {
        if (t->cu == 64)
            ((int64_t *)(void *)d->cu.p)[b] = (int64_t)first_row(t, b);
        else
            ((int32_t *)(void *)d->cu.p)[b] = (int32_t)first_row(t, b);
    }
    fill_inputs(t, d, &r);
    d->state = guard_copy(&d->state0);
    for (int o = 0; o < (t->nk ? 3 : 1); o++) d->out[o] = guard_alloc(d->out_rows * (out_width(t, o) + t->out_gap) * esz);
    d->c.x = d->x.p, d->c.weight = d->w.p, d->c.bias = t->bias ? d->bias.p : NULL, d->c.state = t->state ? d->state.p : NULL;
    d->c.slots = t->slots ? t->slot : NULL, d->c.fresh = t->use_fresh ? t->fresh : NULL,
    d->c.accepted = t->use_accepted ? t->accepted : NULL;
    d->c.cu = t->cu ? d->cu.p : NULL;
    d->c.out = d->c.out_q = d->out[0].p, d->c.out_k = d->out[1].p, d->c.out_v = d->out[2].p;
    d->c.q_stride = out_width(t, 0) + t->out_gap, d->c.k_stride = out_width(t, 1) + t->out_gap,
    d->c.v_stride = out_width(t, 2) + t->out_gap;
}

static void drop(data *d) {
    guard *const all[] = { &d->x, &d->w, &d->bias, &d->state0, &d->state, &d->out[0], &d->out[1], &d->out[2], &d->cu, NULL };
    for (size_t i = 0; all[i]; i++) {
        assert_true(guard_ok(all[i]));
        guard_free(all[i]);
    }
}

static void run(const tcase *t, data *d, uint32_t isa, int threads) {
    d->c.isa = isa;
    for (int o = 0; o < 3; o++) guard_poison(&d->out[o]);
    guard_put(&d->state, d->state0.p);
    omp_set_num_threads(threads);
    if (t->nk)
        gdn_cpu_conv_fused(&d->c);
    else
        gdn_cpu_conv1d(&d->c);
}

/* Element `i` of (window ++ x) of one channel, as an address; NULL: zero. */
static const uint8_t *history(const tcase *t, const data *d, uint32_t b, uint32_t ch, int64_t i) {
    const uint32_t esz = t->f32 ? 4 : 2, cols = t->width - 1;
    if (i >= cols) return d->x.p + ((first_row(t, b) + (uint64_t)(i - cols)) * d->c.x_stride + ch) * esz;
    if (!t->state || is_fresh(t, b)) return NULL;
    const int64_t na = t->use_accepted ? t->accepted[b] : 0;
    return d->state0.p + (slot_of(t, b) * d->c.slot_stride + (uint64_t)ch * d->c.state_len + (uint64_t)(na + i)) * esz;
}

/* The sum of one output, in the contract's order; `reversed` is the control. */
static float sum_of(const tcase *t, const data *d, uint32_t b, uint32_t ch, uint32_t tok, bool reversed) {
    float acc = t->bias ? (float)num_get(d->bias.p, type_of(t->weight_f32), ch) : 0;
    for (uint32_t j = 0; j < t->width; j++) {
        const uint32_t tap = reversed ? t->width - 1 - j : j;
        const float w = (float)num_get(d->w.p, type_of(t->weight_f32), (uint64_t)ch * t->width + tap);
        const uint8_t *const x = history(t, d, b, ch, (int64_t)tok + j);
        const float p = w * (x ? (float)num_get(x, type_of(t->f32), 0) : 0);
        acc = acc + p;
    }
    return acc;
}

static bool near(const tcase *t, double got, double want, bool exact) {
    if (exact) return got == (t->f32 ? want : num_from_bf16(num_to_bf16(want)));
    return fabs(got - want) <= fabs(want) * ((t->f32 ? 0 : 0x1p-8) + 6e-7) + 1e-36;
}

/* How many output values are wrong, gaps and rows outside included. */
static uint64_t wrong_out(const tcase *t, const data *d, bool reversed) {
    uint64_t bad = 0;
    const uint32_t esz = t->f32 ? 4 : 2;
    for (int o = 0; o < (t->nk ? 3 : 1); o++) {
        const uint32_t wide = out_width(t, o), pitch = wide + t->out_gap, ch0 = o == 0 ? 0 : o == 1 ? out_width(t, 0) : 2 * out_width(t, 0);
        guard seen = guard_alloc(d->out[o].bytes); /* what must still be poison */
        guard_poison(&seen);
        for (uint32_t b = 0; b < t->batch; b++)
            for (uint32_t tok = 0; tok < t->len[b]; tok++) {
                const uint64_t row = first_row(t, b) + tok;
                memcpy(seen.p + row * pitch * esz, d->out[o].p + row * pitch * esz, wide * esz);
                double norm = 1;
                for (uint32_t ch = 0; ch < wide; ch++) {
                    const double got = num_get(d->out[o].p, type_of(t->f32), row * pitch + ch);
                    if (is_padding(t, b)) {
                        bad += got != 0;
                        continue;
                    }
                    if (t->nk && o < 2 && ch % t->dim == 0) {
                        double s = 0;
                        for (uint32_t i = 0; i < t->dim; i++) {
                            const double a = sum_of(t, d, b, ch0 + ch + i, tok, reversed), y = a / (1 + exp(-a));
                            s += y * y;
                        }
                        norm = sqrt(s + 1e-6);
                    }
                    const double a = sum_of(t, d, b, ch0 + ch, tok, reversed), y = t->silu ? a / (1 + exp(-a)) : a;
                    bad += !near(t, got, y / norm, !t->silu);
                }
            }
        bad += memcmp(seen.p, d->out[o].p, seen.bytes) != 0;
        guard_free(&seen);
    }
    return bad;
}

/* The whole state pool, byte for byte. */
static bool state_right(const tcase *t, const data *d) {
    guard want = guard_copy(&d->state0);
    const uint32_t esz = t->f32 ? 4 : 2, cols = t->width - 1;
    for (uint32_t b = 0; b < t->batch && t->state; b++) {
        if (is_padding(t, b)) continue;
        const uint32_t n = t->keep ? cols + t->len[b] : cols, first = t->keep ? 0 : t->len[b];
        for (uint32_t ch = 0; ch < t->channels; ch++)
            for (uint32_t j = 0; j < n; j++) {
                uint8_t *const to = want.p + (slot_of(t, b) * d->c.slot_stride + (uint64_t)ch * d->c.state_len + j) * esz;
                const uint8_t *const from = history(t, d, b, ch, (int64_t)first + j);
                if (from)
                    memcpy(to, from, esz);
                else
                    memset(to, 0, esz);
            }
    }
    const bool same = memcmp(want.p, d->state.p, want.bytes) == 0;
    guard_free(&want);
    return same;
}

static void check(const tcase *t) {
    data d;
    make(t, &d);
    guard kept[4] = { { 0 } };
    for (uint32_t isa = 0; isa <= gdn_cpu_isa_pick(GDN_CPU_AVX512); isa++)
        for (int threads = 1; threads <= 5; threads += 2) {
            run(t, &d, isa, threads);
            const guard *const now[4] = { &d.out[0], &d.out[1], &d.out[2], &d.state };
            for (int i = 0; i < 4; i++) {
                if (isa == 0 && threads == 1)
                    kept[i] = guard_copy(now[i]);
                else
                    assert_int_equal(now[i]->bytes ? memcmp(kept[i].p, now[i]->p, now[i]->bytes) : 0, 0);
            }
        }
    assert_int_equal(wrong_out(t, &d, false), 0);
    assert_true(state_right(t, &d));
    for (int i = 0; i < 4; i++) guard_free(&kept[i]);
    drop(&d);
}

static tcase base_case(void) {
    return (tcase) { .batch = 1, .len = { 5 }, .width = 4, .channels = 37, .f32 = true, .weight_f32 = true, .state = true, .silu = true };
}

static void test_widths_and_lengths(void **state) {
    (void)state;
    for (uint32_t width = 1; width <= 8; width++)
        for (uint32_t len = 0; len <= 9; len++)
            for (uint32_t v = 0; v < 8; v++) {
                tcase t = base_case();
                t.width = width, t.len[0] = len, t.seed = v, t.bias = v & 1, t.extra = v & 2 ? 9 : 0, t.silu = !(v & 4);
                t.f32 = v % 3 != 0, t.weight_f32 = v % 2 != 0, t.x_gap = v, t.out_gap = v % 3;
                check(&t);
                t.use_accepted = t.extra != 0, t.accepted[0] = (int32_t)(v % 5), t.keep = t.extra != 0;
                check(&t);
                t.state = false, t.keep = false, t.use_accepted = false;
                check(&t);
            }
}

static void test_packed(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 12; v++) {
        tcase t = { .batch = 6,
                    .len = { 1, 4, 70, 0, 2, 3 },
                    .width = 4,
                    .channels = 1061,
                    .cu = v & 1 ? 32 : 64,
                    .cu0 = v % 3 * 2,
                    .slot = { 2, -1, 5, 7, 0, 3 },
                    .slots = true,
                    .fresh = { 0, 1, 0, 0, 1, 0 },
                    .use_fresh = v & 2,
                    .state = v % 4 != 3,
                    .accepted = { 1, 9, 0, 2, 3, 1 },
                    .use_accepted = v & 4,
                    .extra = 5,
                    .silu = true,
                    .seed = v,
                    .x_gap = 4,
                    .out_gap = 2,
                    .f32 = v > 5 };
        check(&t);
    }
}

static void test_uniform_batches(void **state) {
    (void)state;
    tcase t = {
        .batch = 8, .len = { 1, 1, 1, 1, 1, 1, 1, 1 }, .width = 4, .channels = 2064, .x_gap = 4, .state = true, .silu = true, .bias = true
    };
    check(&t); /* decode; a pitch of 2068 */
    t.batch = 3, t.len[0] = t.len[1] = t.len[2] = 2, t.slots = true, t.slot[0] = 2, t.slot[1] = -1, t.slot[2] = 5;
    check(&t);
    t = (tcase) {
        .batch = 2, .len = { 389, 389 }, .width = 4, .channels = 530, .state = true, .silu = true, .seed = 9
    }; /* several token blocks */
    check(&t);
    t.width = 8, t.f32 = true, t.state = false;
    check(&t);
    t = (tcase) { .batch = 4,
                  .len = { 4, 4, 4, 4 },
                  .width = 4,
                  .channels = 300,
                  .state = true,
                  .silu = true,
                  .keep = true,
                  .extra = 4,
                  .use_accepted = true,
                  .accepted = { 0, 1, 3, 4 } }; /* verify after verify */
    check(&t);
}

static void test_fused(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 8; v++) {
        tcase t = { .batch = 3,
                    .len = { 3, 131, 1 },
                    .cu = 32,
                    .width = 4,
                    .nk = v & 1 ? 2 : 9,
                    .nv = 6,
                    .dim = v & 2 ? 64 : 128,
                    .state = true,
                    .silu = true,
                    .f32 = v & 4,
                    .weight_f32 = v & 1,
                    .out_gap = v,
                    .seed = v,
                    .slots = true,
                    .slot = { 1, 0, -1 },
                    .x_gap = 3 };
        t.channels = (2 * t.nk + t.nv) * t.dim;
        check(&t);
    }
    tcase odd = { .batch = 1, .len = { 7 }, .width = 3, .nk = 3, .nv = 3, .dim = 21, .channels = 189, .silu = true, .f32 = true };
    check(&odd);
    odd.nk = 1, odd.dim = 512, odd.channels = 5 * 512; /* the largest head of q and k */
    check(&odd);
}

/* The comparison notices reversed taps, one flipped state bit, and a write outside. */
static void test_control(void **state) {
    (void)state;
    tcase t = base_case();
    t.out_gap = 1;
    data d;
    make(&t, &d);
    run(&t, &d, GDN_CPU_BASE, 1);
    assert_int_equal(wrong_out(&t, &d, false), 0);
    assert_true(wrong_out(&t, &d, true) > 0);
    d.state.p[0] ^= 1;
    assert_false(state_right(&t, &d));
    ((float *)(void *)d.out[0].p)[t.channels] = 0; /* a gap */
    assert_int_equal(wrong_out(&t, &d, false), 1);
    drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths_and_lengths),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_uniform_batches),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
