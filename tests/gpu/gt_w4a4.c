/* gt_w4a4.c - FP4 projections: the quantiser's bytes are the cpu target's; the projection's too with FP4 tensor cores, within an f32
 * sum's error without (hopper's f16 products); rows together and alone, and what stays untouched. */
#include "gt.h"
#include <math.h>
#include <string.h>

typedef struct w4a4 {
    uint32_t M, N, K, pad;
} w4a4;

/* noise, ties, zeros, an outlier, a NaN: a row each, over again */
static void *rows_of(gt *t, const w4a4 *c) {
    const uint64_t stride = (uint64_t)c->K + c->pad;
    uint16_t *a = gt_random(t, GDN_BF16, c->M * stride, -2, 2);
    for (uint32_t m = 0; m < c->M; m++)
        for (uint32_t k = 0; k < c->K; k++) {
            uint16_t *x = &a[m * stride + k];
            if (m % 5 == 1) *x = num_to_bf16(k == 3 ? 2688 : (double)(1 + k % 13) / 4 * (k % 2 ? -1 : 1));
            if (m % 5 == 2) *x = (uint16_t)(k % 2 ? 0x8000 : 0);
            if (m % 5 == 3 && k == 77) *x = num_to_bf16(3e38);
            if (m % 5 == 4 && k == 100) *x = 0x7fc0;
        }
    return a;
}

static void quant_pair(gt *t, const w4a4 *c) {
    if (!gt_begin(t, "w4a4_quant_M%u_K%u%s", c->M, c->K, c->pad ? "_apart" : "")) return;
    const gdn_w4a4_shape s = {
        .base = GT_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT), .K = c->K, .max_m = c->M, .a_stride = c->pad ? c->K + c->pad : 0
    };
    gt_job job = { .shape = &s.base, .n_ptr = GDN_W4A4_QUANT_N_PTR, .u32 = { c->M }, .n_u32 = 1 };
    job.buf[GDN_W4A4_QUANT_P_A] =
        (gt_buf) { .bytes = 2ull * c->M * (c->K + c->pad), .init = rows_of(t, c), .role = GT_IN, .type = GDN_BF16 };
    job.buf[GDN_W4A4_QUANT_P_AQ] = (gt_buf) { .bytes = GDN_W4A4_AQ_BYTES(c->M, c->K), .role = GT_OUT, .type = GDN_BF16 };
    job.buf[GDN_W4A4_QUANT_P_AS] = (gt_buf) { .bytes = GDN_W4A4_AS_BYTES(c->M, c->K), .role = GT_OUT, .type = GDN_BF16 };
    job.buf[GDN_W4A4_QUANT_P_AG] = (gt_buf) { .bytes = 4ull * c->M, .role = GT_OUT, .type = GDN_F32 };
    gt_pair(t, &job);
    gt_end(t);
}

/* Ten million values and more: every finite bf16 as likely as any other, noise of any size a row, and around each decision point of codes
 * and scales (a row's largest value makes its factor 1, so that a block's is the scale itself); rows of zeros, Inf and NaN between. */
static uint16_t any_value(rng *r, uint32_t kind, uint32_t m, uint32_t k) {
    static const double points[] = { 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6 };
    const double sign = rng_below(r, 2) ? 1 : -1;
    if (m % 16 == 13) return (uint16_t)(k % 3 ? 0 : 0x8000);
    if (m % 16 == 14 && k == 4097) return rng_below(r, 2) ? 0x7f80 : 0xff80;
    if (m % 16 == 15 && k == 20000) return 0xffc1;
    if (kind == 0) return (uint16_t)((rng_below(r, 0x7f80)) | (sign < 0 ? 0x8000u : 0));
    if (kind == 1) return num_to_bf16(sign * rng_uniform(r, 0, 1) * ldexp(1, (int)(m % 64) - 32));
    if (k == 0) return num_to_bf16(2688);
    /* block b: its first value is 6 s, s near the middle of two scales of any size, down to the subnormal ones */
    const double s = ldexp(1 + rng_below(r, 16) / 16.0, (int)(k / 16 % 20) - 12);
    return num_to_bf16(k % 16 == 0 ? 6 * s : sign * s * points[rng_below(r, 8)] * (1 + ((int)rng_below(r, 3) - 1) / 256.0));
}
static void quant_many(gt *t) {
    enum { M = 64, K = 32768, ROUNDS = 6 };
    const gdn_w4a4_shape s = { .base = GT_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT), .K = K, .max_m = M };
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (!gt_begin(t, "w4a4_quant_two_million_%u", round)) continue;
        gt_job job = { .shape = &s.base, .n_ptr = GDN_W4A4_QUANT_N_PTR, .u32 = { M }, .n_u32 = 1 };
        uint16_t *a = gt_keep(t, 2ull * M * K);
        for (uint32_t i = 0; i < M * K; i++) a[i] = any_value(&t->r, round % 3, i / K, i % K);
        job.buf[GDN_W4A4_QUANT_P_A] = (gt_buf) { .bytes = 2ull * M * K, .init = a, .role = GT_IN, .type = GDN_BF16 };
        job.buf[GDN_W4A4_QUANT_P_AQ] = (gt_buf) { .bytes = GDN_W4A4_AQ_BYTES(M, K), .role = GT_OUT, .type = GDN_BF16 };
        job.buf[GDN_W4A4_QUANT_P_AS] = (gt_buf) { .bytes = GDN_W4A4_AS_BYTES(M, K), .role = GT_OUT, .type = GDN_BF16 };
        job.buf[GDN_W4A4_QUANT_P_AG] = (gt_buf) { .bytes = 4ull * M, .role = GT_OUT, .type = GDN_F32 };
        gt_pair(t, &job);
        gt_end(t);
    }
}

/* Any bytes are codes; scales 0x28..0x3F, NaN in the tokens that are not there (their storage is the last rows of each block of eight). */
void gt_w4a4_job(gt *t, uint32_t M, uint32_t N, uint32_t K, double tol, gt_shapes *s, gt_job *job) {
    const uint64_t aq = GDN_W4A4_AQ_BYTES(M, K), as = GDN_W4A4_AS_BYTES(M, K), bq = (uint64_t)N * K / 2, bs = bq / 8;
    static const float scale2 = 0.01f;
    static const uint64_t zero = 0; /* the counter of a persistent entry; it comes back zero */
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    s->w4a4 = (gdn_w4a4_shape) { .base = GT_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV), .N = N, .K = K, .max_m = M };
    *job = (gt_job) { .shape = &s->w4a4.base, .n_ptr = GDN_W4A4_GEMV_N_PTR, .u32 = { 0, M }, .n_u32 = 2 };
    memcpy(&job->u32[0], &scale2, 4);
    uint8_t *p[4] = { gt_keep(t, aq), gt_keep(t, as), gt_keep(t, bq), gt_keep(t, bs) };
    const uint64_t bytes[4] = { aq, as, bq, bs };
    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t k = 0; k < bytes[i]; k++) p[i][k] = (uint8_t)(i % 2 ? 0x28 + rng_below(&t->r, 0x18) : rng_next(&t->r));
    for (uint64_t k = 0; k < as; k++) /* byte k: token k / 8 % 8 of block k / 64 / chunks */
        if (k / 64 / (K / 128) * 8 + k / 8 % 8 >= M) p[1][k] = 0x7f;
    static const uint32_t place[4] = { GDN_W4A4_GEMV_P_AQ, GDN_W4A4_GEMV_P_AS, GDN_W4A4_GEMV_P_BQ, GDN_W4A4_GEMV_P_BS };
    for (uint32_t i = 0; i < 4; i++) job->buf[place[i]] = (gt_buf) { .bytes = bytes[i], .init = p[i], .role = GT_IN, .type = GDN_BF16 };
    uint32_t *const ag = gt_random(t, GDN_F32, M, 0.5, 2);
    if (tol == 0 && M > 3) ag[1] = 0xffc00001, ag[2] = 0x7f800000; /* rows of NaN and of Inf: one form, too */
    job->buf[GDN_W4A4_GEMV_P_AG] = (gt_buf) { .bytes = 4ull * M, .init = ag, .role = GT_IN, .type = GDN_F32 };
    job->buf[GDN_W4A4_GEMV_P_C] = (gt_buf) { .bytes = 2ull * M * N, .role = GT_OUT, .type = GDN_BF16, .tol = tol };
    job->buf[GDN_W4A4_GEMV_P_WORKSPACE] = (gt_buf) { .bytes = 8, .init = &zero, .role = GT_IN, .type = GDN_F32 };
    if (tol > 0 && t->dev && gdn_route_for(t->dev, 0, &s->w4a4.base, 0, NULL, &route, NULL) == GDN_OK && route.workspace_bytes)
        job->buf[GDN_W4A4_GEMV_P_WORKSPACE] =
            (gt_buf) { .bytes = route.workspace_bytes, .init = gt_keep(t, route.workspace_bytes), .role = GT_SCRATCH, .type = GDN_F32 };
}

static void gemv_pair(gt *t, const w4a4 *c, bool exact) {
    gt_shapes s;
    gt_job job;
    if (!gt_begin(t, "w4a4_M%u_N%u_K%u", c->M, c->N, c->K)) return;
    gt_w4a4_job(t, c->M, c->N, c->K, exact ? 0 : 5e-4, &s, &job);
    gt_pair(t, &job);
    gt_end(t);
}

void gt_test_w4a4(gt *t) {
    static const w4a4 quant[] = { { 5, 0, 256, 0 }, { 64, 0, 5120, 0 }, { 17, 0, 1152, 3 }, { 3, 0, 32768, 0 } },
                      gemv[] = { { 1, 17, 128, 0 },     { 8, 1024, 5120, 0 },  { 9, 333, 1152, 0 },
                                 { 16, 512, 6144, 0 },  { 17, 70, 2176, 0 },   { 32, 512, 5120, 0 },
                                 { 33, 100, 384, 0 },   { 64, 512, 5120, 0 },  { 16, 6400, 1280, 0 },
                                 { 32, 6400, 1280, 0 }, /* persistent on 48 multiprocessors */
                                 { 24, 25400, 256, 0 }, { 64, 33900, 384, 0 }, { 40, 9000, 640, 0 },
                                 { 20, 17408, 5120, 0 } /* hopper's wide forms */ };
    const gdn_w4a4_shape s = { .base = GT_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV), .N = 16, .K = 128, .max_m = 8 };
    gdn_hplan *plan = NULL;
    const bool carries = gdn_plan_make(t->dev, &s.base, NULL, &plan, NULL) == GDN_OK;
    gdn_plan_free(plan);
    for (uint32_t i = 0; i < (t->brief ? 1u : GT_N(quant)); i++) quant_pair(t, &quant[i]);
    if (!t->brief) quant_many(t);
    if (!carries) {
        if (!gt_begin(t, "w4a4")) return;
        gt_skip(t, "target %s has no FP4 products on this device", t->target);
        gt_end(t);
        return;
    }
    gt_test_w4a4_model(t);
    for (uint32_t i = 0; i < (t->brief ? 3u : GT_N(gemv)); i++) gemv_pair(t, &gemv[i], strcmp(t->target, "hopper") != 0);
}
