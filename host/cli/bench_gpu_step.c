/* bench_gpu_step.c - rows of the fused decode step: one token of B sequences, beside the four launches that it stands for in one row.
 * Bytes are those of both states, in and out. Buffers rotate by the states; those of the parts in between are in the cache. */
#include "bench_gpu.h"
#include "step_shapes.h"

enum { D = STEP_DIM };

/* Where the arrays are that both ways use, and how far the next set is. */
enum { X, Z, A, B, CONV, STATE, OUT, WEIGHT, ROWS, GATES, CORE, COUNTS, A_LOG, DT_BIAS, NORM_WEIGHT, ARRAYS };
typedef struct arrays {
    uint64_t ptr[ARRAYS], step[ARRAYS];
    uint32_t sets;
} arrays;

static bool take(gpu_bench *b, uint32_t batch, arrays *a) {
    const uint64_t n = batch, values = n * b->nv * D, channels = (2ull * b->nk + b->nv) * D, rows = n * channels;
    const uint64_t bytes[ARRAYS] = {
        [X] = 2 * rows,           [Z] = 2 * values,         [A] = 2 * n * b->nv,     [B] = 2 * n * b->nv,      [CONV] = 6 * rows,
        [STATE] = 4 * values * D, [OUT] = 2 * values,       [WEIGHT] = 8 * channels, [ROWS] = 2 * rows,        [GATES] = 8 * n * b->nv,
        [CORE] = 2 * values,      [COUNTS] = 4 * n * b->nk, [A_LOG] = 4ull * b->nv,  [DT_BIAS] = 4ull * b->nv, [NORM_WEIGHT] = 2 * D,
    };
    a->sets = gpu_bench_sets(b, bytes[STATE]);
    for (uint32_t i = 0; i < ARRAYS; i++) {
        a->step[i] = i < ROWS ? (bytes[i] + 255) / 256 * 256 : 0;
        if (!(a->ptr[i] = gpu_bench_take(b, i < ROWS ? a->sets * a->step[i] : bytes[i], i != COUNTS))) return false;
    }
    return gdn_fill(b->g, NULL, a->ptr[COUNTS], 0, bytes[COUNTS]) == GDN_OK && gdn_sync(b->g, NULL) == GDN_OK;
}

/* Pointer `at` of a row is array `which`, `bytes` behind its beginning. */
static void put(gpu_bench_row *row, const arrays *a, uint32_t at, uint32_t which, uint64_t bytes) {
    row->ptr[at] = a->ptr[which] + bytes;
    row->step[at] = a->step[which];
}

static json_t *keys(const gpu_bench *b, uint32_t batch) {
    return json_pack("{s:i, s:i, s:i}", "batch", (int)batch, "nk", (int)b->nk, "nv", (int)b->nv);
}
static gpu_bench_row row_of(const gpu_bench *b, const arrays *a, const gdn_shape *shape, uint32_t n_ptr, uint32_t batch) {
    return (gpu_bench_row) { .op = "step",
                             .shape = shape,
                             .n_ptr = n_ptr,
                             .u32 = { batch, 1 },
                             .n_u32 = 1,
                             .sets = a->sets,
                             .bytes = batch * (8.0 * b->nv * D * D + 12.0 * (2 * b->nk + b->nv) * D) };
}

static bool fused(gpu_bench *b, uint32_t batch, const arrays *a, const step_shapes *shapes) {
    static const uint32_t array_of[GDN_DECODE_STEP_N_PTR] = {
        [GDN_DECODE_STEP_P_X] = X + 1,
        [GDN_DECODE_STEP_P_WEIGHT] = WEIGHT + 1,
        [GDN_DECODE_STEP_P_CONV_STATE] = CONV + 1,
        [GDN_DECODE_STEP_P_A] = A + 1,
        [GDN_DECODE_STEP_P_B] = B + 1,
        [GDN_DECODE_STEP_P_A_LOG] = A_LOG + 1,
        [GDN_DECODE_STEP_P_DT_BIAS] = DT_BIAS + 1,
        [GDN_DECODE_STEP_P_STATE] = STATE + 1,
        [GDN_DECODE_STEP_P_Z] = Z + 1,
        [GDN_DECODE_STEP_P_NORM_WEIGHT] = NORM_WEIGHT + 1,
        [GDN_DECODE_STEP_P_OUT] = OUT + 1,
        [GDN_DECODE_STEP_P_WORKSPACE] = COUNTS + 1,
    };
    gpu_bench_row row = row_of(b, a, &shapes->fused.base, GDN_DECODE_STEP_N_PTR, batch);
    double us;
    for (uint32_t i = 0; i < GDN_DECODE_STEP_N_PTR; i++)
        if (array_of[i]) put(&row, a, i, array_of[i] - 1, 0);
    return gpu_bench_row_add(b, &row, keys(b, batch), &us);
}

static bool parts(gpu_bench *b, uint32_t batch, const arrays *a, const step_shapes *shapes) {
    const uint64_t k = 2ull * b->nk * D, v = 2 * k, beta = 4ull * b->nv;
    gpu_bench_row conv = row_of(b, a, &shapes->conv.base, GDN_CONV_FUSED_N_PTR, batch),
                  gates = row_of(b, a, &shapes->gates.base, GDN_GATES_N_PTR, batch),
                  rule = row_of(b, a, &shapes->rule.base, GDN_DECODE_N_PTR, batch),
                  norm = row_of(b, a, &shapes->norm.base, GDN_NORM_N_PTR, batch * b->nv);
    double us;
    put(&conv, a, GDN_CONV_FUSED_P_X, X, 0), put(&conv, a, GDN_CONV_FUSED_P_WEIGHT, WEIGHT, 0),
        put(&conv, a, GDN_CONV_FUSED_P_STATE, CONV, 0);
    put(&conv, a, GDN_CONV_FUSED_P_OUT_Q, ROWS, 0), put(&conv, a, GDN_CONV_FUSED_P_OUT_K, ROWS, k),
        put(&conv, a, GDN_CONV_FUSED_P_OUT_V, ROWS, v);
    put(&gates, a, GDN_GATES_P_A, A, 0), put(&gates, a, GDN_GATES_P_B, B, 0), put(&gates, a, GDN_GATES_P_A_LOG, A_LOG, 0);
    put(&gates, a, GDN_GATES_P_DT_BIAS, DT_BIAS, 0), put(&gates, a, GDN_GATES_P_OUT, GATES, 0);
    put(&rule, a, GDN_DECODE_P_STATE, STATE, 0), put(&rule, a, GDN_DECODE_P_QUERY, ROWS, 0), put(&rule, a, GDN_DECODE_P_KEY, ROWS, k);
    put(&rule, a, GDN_DECODE_P_VALUE, ROWS, v), put(&rule, a, GDN_DECODE_P_GATE, GATES, 0), put(&rule, a, GDN_DECODE_P_BETA, GATES, beta);
    put(&rule, a, GDN_DECODE_P_OUTPUT, CORE, 0);
    put(&norm, a, GDN_NORM_P_X, CORE, 0), put(&norm, a, GDN_NORM_P_Z, Z, 0), put(&norm, a, GDN_NORM_P_W, NORM_WEIGHT, 0);
    put(&norm, a, GDN_NORM_P_OUT, OUT, 0);
    conv.n_u32 = 2;
    conv.then = &gates, gates.then = &rule, rule.then = &norm;
    return gpu_bench_row_add(b, &conv, keys(b, batch), &us);
}

bool gpu_bench_step(gpu_bench *b) {
    static const uint32_t batch[] = { 1, 4, 16, 64, 256 };
    enum { CASES = sizeof batch / sizeof *batch };
    for (uint32_t i = 0; i < CASES; i++) {
        const size_t from = json_array_size(b->rows);
        const step_shapes shapes = step_shapes_of(b->nk, b->nv, batch[i]);
        arrays a;
        if (!take(b, batch[i], &a) || !fused(b, batch[i], &a, &shapes) || !parts(b, batch[i], &a, &shapes)) return false;
        gpu_bench_peers(b, from);
        gpu_bench_release(b);
        cli_progress("decode_step", i + 1, CASES);
    }
    return true;
}
