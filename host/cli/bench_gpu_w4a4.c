/* bench_gpu_w4a4.c - rows of the FP4 projections: the weights rotated through more than the last cache, their bytes alone counted; and
 * the quantiser. Random bytes are codes and scales; a scale that is a NaN costs what any other does. The peer is cuBLAS's bf16 product of
 * the same sizes, its weights rotated too. */
#include "bench_gpu.h"
#include <math.h>

static const uint32_t sizes[][2] = { { 17408, 5120 }, { 34816, 5120 }, { 5120, 17408 } }, rows[] = { 1, 8, 16, 32, 64 };
enum { SIZES = sizeof sizes / sizeof *sizes, ROWS = sizeof rows / sizeof *rows };

static json_t *keys(uint32_t M, uint32_t N, uint32_t K) {
    return json_pack("{s:i, s:i, s:i}", "M", (int)M, "N", (int)N, "K", (int)K);
}

/* ---- the peer ---- */
typedef struct dense {
    gpu_blas blas;
    uint64_t a, w, c, step;
    uint32_t M, N, K, sets;
} dense;

static bool dense_once(void *user, uint32_t i, void *stream) {
    const dense *d = user;
    (void)stream; /* set before */
    return gpu_blas_product(&d->blas, d->a, d->w + i % d->sets * d->step, d->c, d->M, d->N, d->K);
}

/* The median, NaN and why when there is none. The first call, which may load what it needs, is not in a graph. */
static double dense_us(gpu_bench *b, uint32_t M, uint32_t N, uint32_t K, char *why, size_t cap) {
    gpu_times t;
    dense d = { .M = M, .N = N, .K = K, .step = 2ull * N * K };
    if (!gpu_blas_open(b, &d.blas, why, cap)) return NAN;
    d.sets = gpu_bench_sets(b, d.step);
    d.a = gpu_bench_take(b, 2ull * M * K, true);
    d.w = gpu_bench_take(b, d.sets * d.step, true);
    d.c = gpu_bench_take(b, 2ull * M * N, false);
    const bool ok = d.a && d.w && d.c && gpu_clock_plain(&b->clock, dense_once, &d, 1, 1, &t) &&
                    gpu_clock_time(&b->clock, dense_once, &d, 24, b->replays, &t);
    if (!ok) (void)snprintf(why, cap, "%s", d.c ? b->clock.why : "no device memory");
    gpu_blas_close(&d.blas);
    return ok ? t.us_median : NAN;
}

/* Into the last row; a row whose peer could not be timed has none, and it is told why. */
static bool add_peer(gpu_bench *b, uint32_t M, uint32_t N, uint32_t K) {
    char why[256] = "";
    const double us = dense_us(b, M, N, K, why, sizeof why);
    gpu_bench_release(b);
    json_t *row = json_array_get(b->rows, json_array_size(b->rows) - 1);
    if (!isnan(us)) return json_object_set_new(json_object_get(row, "peers"), "cublas_bf16", json_real(us)) == 0;
    return json_array_append_new(b->left_out, json_sprintf("w4a4 M=%u N=%u K=%u, the peer: %s", M, N, K, why)) == 0;
}

static bool project(gpu_bench *b, uint32_t M, uint32_t N, uint32_t K) {
    const gdn_w4a4_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_W4A4_GEMV, 0, GDN_BF16 }, .N = N, .K = K, .max_m = M };
    const uint64_t codes = (uint64_t)N * K / 2, scales = codes / 8;
    const uint32_t sets = gpu_bench_sets(b, codes + scales);
    gpu_bench_row row = { .op = "w4a4",
                          .shape = &shape.base,
                          .step = { [GDN_W4A4_GEMV_P_BQ] = codes, [GDN_W4A4_GEMV_P_BS] = scales },
                          .n_ptr = GDN_W4A4_GEMV_N_PTR,
                          .u32 = { 0x3d800000, M }, /* scale2 = 1/16 */
                          .n_u32 = 2,
                          .sets = sets,
                          .bytes = (double)(codes + scales),
                          .flop = 2.0 * M * N * K };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    if (gdn_route_for(b->g, 0, &shape.base, 0, NULL, &route, NULL)) return false;
    const uint64_t workspace = route.workspace_bytes ? route.workspace_bytes : 8;
    const uint64_t size[] = {
        GDN_W4A4_AQ_BYTES(M, K), GDN_W4A4_AS_BYTES(M, K), 4ull * M, sets * codes, sets * scales, 2ull * M * N, workspace
    };
    double us;
    for (uint32_t i = 0; i < row.n_ptr; i++)
        if (!(row.ptr[i] = gpu_bench_take(b, size[i], i < GDN_W4A4_GEMV_P_C))) return false;
    if (gdn_fill(b->g, NULL, row.ptr[GDN_W4A4_GEMV_P_WORKSPACE], 0, workspace) || gdn_sync(b->g, NULL)) return false;
    const bool ok = gpu_bench_row_add(b, &row, keys(M, N, K), &us);
    gpu_bench_release(b);
    return ok && add_peer(b, M, N, K);
}

static bool quantise(gpu_bench *b, uint32_t M, uint32_t K) {
    const gdn_w4a4_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_W4A4_QUANT, 0, GDN_BF16 }, .K = K, .max_m = M };
    const uint64_t in = 2ull * M * K, codes = GDN_W4A4_AQ_BYTES(M, K), scales = GDN_W4A4_AS_BYTES(M, K);
    gpu_bench_row row = { .op = "w4a4_quant",
                          .shape = &shape.base,
                          .n_ptr = GDN_W4A4_QUANT_N_PTR,
                          .u32 = { M },
                          .n_u32 = 1,
                          .sets = 1, /* what a layer has just written */
                          .bytes = (double)(in + codes + scales) };
    const uint64_t size[] = { in, codes, scales, 4ull * M };
    double us;
    for (uint32_t i = 0; i < row.n_ptr; i++)
        if (!(row.ptr[i] = gpu_bench_take(b, size[i], i == 0))) return false;
    const bool ok = gpu_bench_row_add(b, &row, keys(M, 0, K), &us);
    gpu_bench_release(b);
    return ok;
}

bool gpu_bench_w4a4(gpu_bench *b) {
    const gdn_w4a4_shape any = { .base = { (uint32_t)sizeof any, GDN_OP_W4A4_GEMV, 0, GDN_BF16 }, .N = 16, .K = 128, .max_m = 1 };
    gdn_hplan *plan = NULL;
    const gdn_status st = gdn_plan_make(b->g, &any.base, NULL, &plan, &b->err);
    gdn_plan_free(plan);
    if (st == GDN_ABSENT) return json_array_append_new(b->left_out, json_sprintf("w4a4: %s", b->text)) == 0;
    for (uint32_t i = 0; i < SIZES; i++)
        for (uint32_t k = 0; k < ROWS; k++) {
            if (!project(b, rows[k], sizes[i][0], sizes[i][1])) return false;
            cli_progress("w4a4", i * ROWS + k + 1, SIZES * ROWS);
        }
    return quantise(b, 8, 5120) && quantise(b, 64, 5120) && quantise(b, 64, 17408);
}
