/* check_layer.c - self test of convolution, gates, b/a projection, norm, state copies and W4A4. */
#include "check_ref.h"
#include "check_self.h"
#include "numbers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 70, NK = 2, NV = 6, D = 128, C = 2 * NK * D + NV * D, W = 4 };

static double bound_of(const self_test *s) {
    return s->act == GDN_F32 ? 3e-6 : 2.2e-3;
}

/* Plain convolution, then the fused form on the same rows. */
void self_conv(self_test *s) {
    const float *x = self_random(s, (uint64_t)ROWS * C, -2, 2), *w = self_random(s, (uint64_t)C * W, -0.5f, 0.5f),
                *win = self_random(s, C * (W - 1), -2, 2);
    double *y = malloc(sizeof(double) * ROWS * C), *window = malloc(sizeof(double) * C * (W - 1));
    const char *entry;
    gdn_conv_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_CONV1D, 0, s->act },
                             .channels = C,
                             .width = W,
                             .silu = 1,
                             .weight_type = s->act,
                             .max_tokens = ROWS,
                             .max_batch = 1 };
    if (!x || !w || !win || !y || !window) {
        self_failed(s, GDN_OP_CONV1D, GDN_E_NOMEM);
        goto out;
    }
    for (uint32_t i = 0; i < C * (W - 1); i++) window[i] = (double)win[i];
    ref_conv(ROWS, C, W, x, w, window, y);
    const uint64_t d_x = self_put(s, x, (uint64_t)ROWS * C, s->act), d_w = self_put(s, w, (uint64_t)C * W, s->act);
    const uint64_t d_state = self_put(s, win, C * (W - 1), s->act), d_out = self_poisoned(s, (uint64_t)ROWS * C * 4);
    const uint64_t ptr[GDN_CONV1D_N_PTR] = { d_x, d_w, 0, d_state, 0, 0, d_out };
    const uint32_t u32[2] = { 1, ROWS };
    gdn_status st = self_go(s, &shape.base, ptr, GDN_CONV1D_N_PTR, u32, 2, &entry);
    if (st) {
        self_failed(s, GDN_OP_CONV1D, st);
        goto out;
    }
    const float *out = self_get(s, d_out, (uint64_t)ROWS * C, s->act), *state = self_get(s, d_state, C * (W - 1), s->act);
    if (out && state) {
        self_report(s, GDN_OP_CONV1D, "output", entry, ref_error((uint64_t)ROWS * C, out, y), bound_of(s));
        self_report(s, GDN_OP_CONV1D, "state", entry, ref_error(C * (W - 1), state, window), 0);
    }
    shape.base.op = GDN_OP_CONV_FUSED;
    shape.nk = NK, shape.nv = NV, shape.k_dim = D, shape.v_dim = D;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t h = 0; h < 2 * NK; h++) ref_l2norm(D, y + (uint64_t)r * C + h * D);
    const uint64_t size = s->act == GDN_F32 ? 4 : 2, q = self_poisoned(s, (uint64_t)ROWS * C * 4),
                   d_state2 = self_put(s, win, C * (W - 1), s->act);
    const uint64_t fused[GDN_CONV_FUSED_N_PTR] = { d_x, d_w, 0, d_state2, 0, 0, q, q + NK * D * size, q + 2 * NK * D * size };
    if ((st = self_go(s, &shape.base, fused, GDN_CONV_FUSED_N_PTR, u32, 2, &entry)))
        self_failed(s, GDN_OP_CONV_FUSED, st);
    else if ((out = self_get(s, q, (uint64_t)ROWS * C, s->act)))
        self_report(s, GDN_OP_CONV_FUSED, "output", entry, ref_error((uint64_t)ROWS * C, out, y), bound_of(s));
out:
    free(y);
    free(window);
}

/* a and b rows to [gate | beta] rows in f64; a, b at the same stride. */
static void ref_gate_rows(const double *a, const double *b, const float *A_log, const float *dt, uint32_t rows, double *y) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t h = 0; h < NV; h++) {
            y[r * 2 * NV + h] = ref_decay(a[r * NV + h], (double)A_log[h], (double)dt[h]);
            y[r * 2 * NV + NV + h] = ref_sigmoid(b[r * NV + h]);
        }
}

static const float *f32_random(self_test *s, uint64_t n, float lo, float hi) {
    const uint32_t act = s->act;
    s->act = GDN_F32;
    const float *x = self_random(s, n, lo, hi);
    s->act = act;
    return x;
}

void self_gates(self_test *s) {
    const float *a = self_random(s, ROWS * NV, -6, 6), *b = self_random(s, ROWS * NV, -6, 6);
    const float *A_log = f32_random(s, NV, -2, 2), *dt = f32_random(s, NV, -1, 1);
    double da[ROWS * NV], db[ROWS * NV], y[ROWS * 2 * NV];
    const gdn_gates_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_GATES, 0, s->act },
                                    .nv = NV,
                                    .gate_form = GDN_GATE_LINEAR,
                                    .param_type = GDN_F32,
                                    .max_rows = ROWS };
    if (!a || !b || !A_log || !dt) {
        self_failed(s, GDN_OP_GATES, GDN_E_NOMEM);
        return;
    }
    for (uint32_t i = 0; i < ROWS * NV; i++) da[i] = (double)a[i], db[i] = (double)b[i];
    ref_gate_rows(da, db, A_log, dt, ROWS, y);
    const uint64_t out = self_poisoned(s, sizeof(float) * ROWS * 2 * NV);
    const uint64_t ptr[GDN_GATES_N_PTR] = { self_put(s, a, ROWS * NV, s->act), self_put(s, b, ROWS * NV, s->act),
                                            self_put(s, A_log, NV, GDN_F32), self_put(s, dt, NV, GDN_F32), out };
    const uint32_t u32[1] = { ROWS };
    const char *entry;
    const gdn_status st = self_go(s, &shape.base, ptr, GDN_GATES_N_PTR, u32, 1, &entry);
    if (st) {
        self_failed(s, GDN_OP_GATES, st);
        return;
    }
    const float *got = self_get(s, out, ROWS * 2 * NV, GDN_F32);
    if (got) self_report(s, GDN_OP_GATES, "gate, beta", entry, ref_error(ROWS * 2 * NV, got, y), 3e-6);
}

void self_ba(self_test *s) {
    enum { K = 1032, VPG = NV / NK };
    const float *A = self_random(s, (uint64_t)ROWS * K, -1, 1), *B = self_random(s, 2 * NV * K, -0.1f, 0.1f);
    const float *A_log = f32_random(s, NV, -2, 2), *dt = f32_random(s, NV, -1, 1);
    double da[ROWS * NV], db[ROWS * NV], y[ROWS * 2 * NV];
    if (!A || !B || !A_log || !dt) {
        self_failed(s, GDN_OP_BA_GATES, GDN_E_NOMEM);
        return;
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t n = 0; n < 2 * NV; n++) {
            const uint32_t w = n % (2 * VPG), grp = n / (2 * VPG);
            double dot = 0;
            for (uint32_t k = 0; k < K; k++) dot += (double)A[(uint64_t)r * K + k] * (double)B[n * K + k];
            if (w < VPG)
                db[r * NV + grp * VPG + w] = dot;
            else
                da[r * NV + grp * VPG + w - VPG] = dot;
        }
    ref_gate_rows(da, db, A_log, dt, ROWS, y);
    gdn_ba_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_BA_GATES, 0, s->act },
                           .N = 2 * NV,
                           .K = K,
                           .nv = NV,
                           .vheads_per_group = VPG,
                           .weight_type = s->act,
                           .max_m = ROWS };
    const uint64_t out = self_poisoned(s, sizeof(float) * ROWS * 2 * NV), one = self_poisoned(s, sizeof(float) * 2 * NV);
    const uint64_t d_A = self_put(s, A, (uint64_t)ROWS * K, s->act), d_B = self_put(s, B, 2 * NV * K, s->act);
    const uint64_t d_log = self_put(s, A_log, NV, GDN_F32), d_dt = self_put(s, dt, NV, GDN_F32);
    const uint64_t ptr[GDN_BA_GATES_N_PTR] = { d_A, d_B, d_log, d_dt, out };
    const uint64_t gemv[GDN_BA_GEMV_N_PTR] = { d_A, d_B, d_log, d_dt, one, one + sizeof(float) * NV };
    const uint32_t u32[1] = { ROWS };
    const char *entry;
    gdn_status st = self_go(s, &shape.base, ptr, GDN_BA_GATES_N_PTR, u32, 1, &entry);
    if (st) {
        self_failed(s, GDN_OP_BA_GATES, st);
        return;
    }
    const float *got = self_get(s, out, ROWS * 2 * NV, GDN_F32);
    if (!got) {
        self_failed(s, GDN_OP_BA_GATES, GDN_E_NOMEM);
        return;
    }
    self_report(s, GDN_OP_BA_GATES, "gate, beta", entry, ref_error(ROWS * 2 * NV, got, y), 1e-5);
    shape.base.op = GDN_OP_BA_GEMV;
    if ((st = self_go(s, &shape.base, gemv, GDN_BA_GEMV_N_PTR, NULL, 0, &entry))) {
        self_failed(s, GDN_OP_BA_GEMV, st);
        return;
    }
    const float *row = self_get(s, one, 2 * NV, GDN_F32);
    if (row) self_report(s, GDN_OP_BA_GEMV, "= ba_gates", entry, memcmp(row, got, sizeof(float) * 2 * NV) ? NAN : 0, 0);
}

void self_norm(self_test *s) {
    const uint64_t n = (uint64_t)ROWS * NV * D;
    const float *x = self_random(s, n, -3, 3), *z = self_random(s, n, -4, 4), *w = self_random(s, D, 0.5f, 1.5f);
    double *y = malloc(n * sizeof *y);
    const gdn_norm_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_NORM, 0, s->act },
                                   .dim = D,
                                   .heads = NV,
                                   .act = GDN_NORM_SILU,
                                   .weight_type = s->act,
                                   .max_rows = ROWS * NV,
                                   .eps = 1e-6f };
    const char *entry;
    if (!x || !z || !w || !y) {
        self_failed(s, GDN_OP_NORM, GDN_E_NOMEM);
        goto out;
    }
    for (uint32_t r = 0; r < ROWS * NV; r++) ref_norm(D, x + r * D, z + r * D, w, (double)1e-6f, y + r * D);
    const uint64_t o = self_poisoned(s, n * 4);
    const uint64_t ptr[GDN_NORM_N_PTR] = { self_put(s, x, n, s->act), self_put(s, z, n, s->act), self_put(s, w, D, s->act), o };
    const uint32_t u32[1] = { ROWS * NV };
    const gdn_status st = self_go(s, &shape.base, ptr, GDN_NORM_N_PTR, u32, 1, &entry);
    if (st) {
        self_failed(s, GDN_OP_NORM, st);
        goto out;
    }
    const float *got = self_get(s, o, n, s->act);
    if (got) self_report(s, GDN_OP_NORM, "output", entry, ref_error(n, got, y), bound_of(s));
out:
    free(y);
}

/* Four slots: 1 -> 3 copied, then 1 zeroed; 0 and 2 stay. */
void self_states(self_test *s) {
    enum { N = 1000, SLOTS = 4 };
    if (s->act != GDN_F32 && s->reference) return; /* bytes are bytes: once is enough */
    const float *x = f32_random(s, N * SLOTS, -1, 1);
    const int32_t from[2] = { 1, -1 }, to[2] = { 3, 0 }, gone[1] = { 1 };
    gdn_state_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_STATE_COPY, 0, 0 }, .bytes = N * sizeof(float), .max_count = 2 };
    const uint64_t pool = self_put(s, x, N * SLOTS, GDN_F32);
    const uint64_t copy[] = { pool, pool, self_raw(s, from, sizeof from), self_raw(s, to, sizeof to) },
                   zero[] = { pool, self_raw(s, gone, sizeof gone) };
    const uint32_t two = 2, one = 1;
    const char *entry, *entry_zero;
    if (!x || !pool) {
        self_failed(s, GDN_OP_STATE_COPY, GDN_E_NOMEM);
        return;
    }
    gdn_status st = self_go(s, &shape.base, copy, GDN_STATE_COPY_N_PTR, &two, 1, &entry);
    if (st) {
        self_failed(s, GDN_OP_STATE_COPY, st);
        return;
    }
    shape.base.op = GDN_OP_STATE_ZERO;
    if ((st = self_go(s, &shape.base, zero, GDN_STATE_ZERO_N_PTR, &one, 1, &entry_zero))) {
        self_failed(s, GDN_OP_STATE_ZERO, st);
        return;
    }
    const float *got = self_get(s, pool, N * SLOTS, GDN_F32);
    if (!got) {
        self_failed(s, GDN_OP_STATE_COPY, GDN_E_NOMEM);
        return;
    }
    bool copied = !memcmp(got + 3 * N, x + N, sizeof(float) * N),
         kept = !memcmp(got, x, sizeof(float) * N) && !memcmp(got + 2 * N, x + 2 * N, sizeof(float) * N);
    bool zeroed = true;
    for (uint32_t i = 0; i < N; i++) zeroed = zeroed && got[N + i] == 0.0f;
    self_report(s, GDN_OP_STATE_COPY, "bytes", entry, copied && kept ? 0 : NAN, 0);
    self_report(s, GDN_OP_STATE_ZERO, "bytes", entry_zero, zeroed && kept ? 0 : NAN, 0);
}

/* Quantise rows, project, and compare with f64 sums of the values that the codes stand for. */
void self_w4a4(self_test *s) {
    enum { M = 5, N = 40, K = 256 };
    const float scale2 = 0.01f, *a = self_random(s, M * K, -2, 2);
    uint8_t bq[N * K / 2], bs[N * K / 16];
    double rows[M * K], y[M * N];
    if (!a) {
        self_failed(s, GDN_OP_W4A4_QUANT, GDN_E_NOMEM);
        return;
    }
    for (uint32_t i = 0; i < sizeof bq; i++) bq[i] = (uint8_t)((s->seed = s->seed * 1664525u + 1013904223u) >> 24);
    for (uint32_t i = 0; i < sizeof bs; i++) bs[i] = (uint8_t)(0x28 + i % 24);
    for (uint32_t m = 0; m < M; m++) ref_fp4_row(K, a + m * K, rows + m * K);
    for (uint32_t m = 0; m < M; m++)
        for (uint32_t n = 0; n < N; n++) {
            double acc = 0;
            for (uint32_t k = 0; k < K; k++) {
                const uint8_t code = (uint8_t)(bq[(n * K + k) / 2] >> (k % 2 ? 4 : 0) & 15);
                acc += rows[m * K + k] * ref_fp4_weight(code, bs[(n * K + k) / 16]);
            }
            y[m * N + n] = acc * (double)scale2;
        }
    const gdn_w4a4_shape quant = { .base = { (uint32_t)sizeof quant, GDN_OP_W4A4_QUANT, 0, s->act }, .K = K, .max_m = M };
    const gdn_w4a4_shape gemv = { .base = { (uint32_t)sizeof gemv, GDN_OP_W4A4_GEMV, 0, s->act }, .N = N, .K = K, .max_m = M };
    const uint64_t aq = self_poisoned(s, GDN_W4A4_AQ_BYTES(M, K)), as = self_poisoned(s, GDN_W4A4_AS_BYTES(M, K)),
                   ag = self_poisoned(s, 4 * M);
    const uint64_t c = self_poisoned(s, 4 * M * N);
    const uint64_t p_quant[] = { self_put(s, a, M * K, s->act), aq, as, ag };
    const uint64_t p_gemv[GDN_W4A4_GEMV_N_PTR] = { aq, as, ag, self_raw(s, bq, sizeof bq), self_raw(s, bs, sizeof bs), c };
    const uint32_t u_quant[] = { M }, u_gemv[] = { gdn__f32_bits(scale2), M };
    const char *entry;
    gdn_status st = self_go(s, &quant.base, p_quant, GDN_W4A4_QUANT_N_PTR, u_quant, 1, &entry);
    if (st) {
        self_failed(s, GDN_OP_W4A4_QUANT, st);
        return;
    }
    const char *quant_entry = entry;
    if ((st = self_go(s, &gemv.base, p_gemv, GDN_W4A4_GEMV_N_PTR, u_gemv, 2, &entry))) {
        self_failed(s, GDN_OP_W4A4_GEMV, st);
        return;
    }
    const float *got = self_get(s, c, M * N, s->act);
    if (!got) {
        self_failed(s, GDN_OP_W4A4_GEMV, GDN_E_NOMEM);
        return;
    }
    const double err = ref_error(M * N, got, y), bound = s->act == GDN_F32 ? 3e-6 : 2.2e-3;
    self_report(s, GDN_OP_W4A4_QUANT, "through w4a4", quant_entry, err, bound);
    self_report(s, GDN_OP_W4A4_GEMV, "product", entry, err, bound);
}
