/* bench_gpu_step.c - rows of the fused decode step: one token of B sequences, beside the four launches that it stands for in one row.
 * Bytes are those of both states, in and out. Buffers rotate by the states; those of the parts in between are in the cache. */
#include "bench_gpu.h"

enum { D = 128, WIDTH = 4 };

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

static bool fused(gpu_bench *b, uint32_t batch, const arrays *a) {
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
    const gdn_step_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_DECODE_STEP, 0, GDN_BF16 },
                                   .nk = b->nk,
                                   .nv = b->nv,
                                   .k_dim = D,
                                   .v_dim = D,
                                   .width = WIDTH,
                                   .weight_type = GDN_BF16,
                                   .gates = GDN_STEP_GATES_RAW,
                                   .param_type = GDN_F32,
                                   .state_type = GDN_F32,
                                   .norm_act = GDN_NORM_SILU,
                                   .norm_weight_type = GDN_BF16,
                                   .eps = 1e-6f,
                                   .max_batch = batch };
    gpu_bench_row row = row_of(b, a, &shape.base, GDN_DECODE_STEP_N_PTR, batch);
    double us;
    for (uint32_t i = 0; i < GDN_DECODE_STEP_N_PTR; i++)
        if (array_of[i]) put(&row, a, i, array_of[i] - 1, 0);
    return gpu_bench_row_add(b, &row, keys(b, batch), &us);
}

static bool parts(gpu_bench *b, uint32_t batch, const arrays *a) {
    const uint32_t channels = (2 * b->nk + b->nv) * D;
    const gdn_conv_shape c = { .base = { (uint32_t)sizeof c, GDN_OP_CONV_FUSED, 0, GDN_BF16 },
                               .channels = channels,
                               .width = WIDTH,
                               .silu = 1,
                               .weight_type = GDN_BF16,
                               .max_tokens = batch,
                               .max_batch = batch,
                               .nk = b->nk,
                               .nv = b->nv,
                               .k_dim = D,
                               .v_dim = D };
    const gdn_gates_shape g = { .base = { (uint32_t)sizeof g, GDN_OP_GATES, 0, GDN_BF16 },
                                .nv = b->nv,
                                .gate_form = GDN_GATE_LINEAR,
                                .param_type = GDN_F32,
                                .max_rows = batch };
    const gdn_rule_shape r = { .base = { (uint32_t)sizeof r, GDN_OP_DECODE, 0, GDN_BF16 },
                               .nk = b->nk,
                               .nv = b->nv,
                               .k_dim = D,
                               .v_dim = D,
                               .qk_stride = channels,
                               .v_stride = channels,
                               .gate_form = GDN_GATE_LINEAR,
                               .state_type = GDN_F32,
                               .max_batch = batch };
    const gdn_norm_shape n = { .base = { (uint32_t)sizeof n, GDN_OP_NORM, 0, GDN_BF16 },
                               .dim = D,
                               .heads = b->nv,
                               .act = GDN_NORM_SILU,
                               .weight_type = GDN_BF16,
                               .max_rows = batch * b->nv,
                               .eps = 1e-6f };
    const uint64_t k = 2ull * b->nk * D, v = 2 * k, beta = 4ull * b->nv;
    gpu_bench_row conv = row_of(b, a, &c.base, GDN_CONV_FUSED_N_PTR, batch), gates = row_of(b, a, &g.base, GDN_GATES_N_PTR, batch),
                  rule = row_of(b, a, &r.base, GDN_DECODE_N_PTR, batch), norm = row_of(b, a, &n.base, GDN_NORM_N_PTR, batch * b->nv);
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
        arrays a;
        if (!take(b, batch[i], &a) || !fused(b, batch[i], &a) || !parts(b, batch[i], &a)) return false;
        gpu_bench_peers(b, from);
        gpu_bench_release(b);
        cli_progress("decode_step", i + 1, CASES);
    }
    return true;
}
