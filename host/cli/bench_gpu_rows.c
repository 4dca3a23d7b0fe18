/* bench_gpu_rows.c - the rows: b/a projection by each of its kernels, convolution, gated norm, gates. Model geometry 128/128. */
#include "bench_gpu.h"
#include <math.h>
#include <string.h>

enum { D = 128, WIDTH = 4, GRAPH_US = 1500, MAX_CALLS = 512, PARTS = 4 };

typedef struct running {
    const gpu_bench_row *row;
    gdn_hplan *plan[PARTS]; /* of the row and of those that follow it */
} running;

static bool launch(const gpu_bench_row *row, const gdn_hplan *plan, uint32_t i, void *stream) {
    uint64_t ptr[GPU_BENCH_PTRS];
    for (uint32_t k = 0; k < row->n_ptr; k++) ptr[k] = row->ptr[k] ? row->ptr[k] + i % row->sets * row->step[k] : 0;
    const gdn_launch_args args = { (uint32_t)sizeof args, row->n_ptr, row->n_u32, 0, stream, ptr, row->u32 };
    return gdn_launch(plan, &args) == GDN_OK;
}
static bool call(void *user, uint32_t i, void *stream) {
    const running *r = user;
    bool ok = true;
    uint32_t k = 0;
    for (const gpu_bench_row *row = r->row; ok && row; row = row->then) ok = launch(row, r->plan[k++], i, stream);
    return ok;
}

/* "first" or "first + second + ..."; false: an operation that cannot be planned, which was said. */
static bool plan_row(gpu_bench *b, running *r, char *entry, size_t cap) {
    uint32_t i = 0;
    for (const gpu_bench_row *part = r->row; part; part = part->then, i++) {
        gdn_route route = { .struct_size = (uint32_t)sizeof route };
        const size_t n = i ? strlen(entry) : 0;
        if (i == PARTS) return cli_error(b->cli, "%s: more than %d operations in a row", part->op, (int)PARTS), false;
        if (gdn_plan_make(b->g, part->shape, NULL, &r->plan[i], &b->err)) return cli_error(b->cli, "%s: %s", part->op, b->text), false;
        if (gdn_explain(r->plan[i], part->n_u32, part->u32, &route)) return cli_error(b->cli, "%s: no route", part->op), false;
        (void)snprintf(entry + n, cap - n, "%s%s", i ? " + " : "", route.entry);
    }
    return true;
}

bool gpu_bench_row_add(gpu_bench *b, const gpu_bench_row *row, json_t *shape_keys, double *us) {
    char entry[160] = "";
    gpu_times t;
    running r = { .row = row };
    bool ok = plan_row(b, &r, entry, sizeof entry);
    if (!ok) goto out;
    ok = false;
    const uint32_t calls = gpu_clock_calls(&b->clock, call, &r, GRAPH_US, row->sets < 8 ? 8 : row->sets, MAX_CALLS);
    if (!calls || !gpu_clock_time(&b->clock, call, &r, calls, b->replays, &t)) {
        cli_error(b->cli, "%s, %s: %s", row->op, entry, b->clock.why);
        goto out;
    }
    *us = t.us_median;
    json_t *doc = json_pack("{s:s, s:s, s:O, s:f, s:f, s:f, s:f, s:o, s:i, s:i, s:{}}", "op", row->op, "entry", entry, "shape", shape_keys,
                            "us_median", t.us_median, "us_p10", t.us_p10, "us_p90", t.us_p90, "gbps", row->bytes / t.us_median * 1e-3,
                            "tflops", row->flop > 0 ? json_real(row->flop / t.us_median * 1e-6) : json_null(), "calls", (int)t.calls,
                            "sets", (int)row->sets, "peers");
    ok = doc && json_array_append_new(b->rows, doc) == 0;
out:
    json_decref(shape_keys);
    for (uint32_t i = 0; i < PARTS; i++) gdn_plan_free(r.plan[i]);
    return ok;
}

void gpu_bench_peers(gpu_bench *b, size_t from) {
    for (size_t i = from; i < json_array_size(b->rows); i++)
        for (size_t j = from; j < json_array_size(b->rows); j++) {
            json_t *mine = json_array_get(b->rows, i), *other = json_array_get(b->rows, j);
            if (i != j)
                json_object_set(json_object_get(mine, "peers"), json_string_value(json_object_get(other, "entry")),
                                json_object_get(other, "us_median"));
        }
}

/* ---- the b/a projection ---- */
static const uint32_t ba_m[] = { 17, 264, 1168, 4576 };
enum { BA_K = 5120, BA_MS = sizeof ba_m / sizeof *ba_m, KINDS = 3 };
static const char *const ba_entry[KINDS] = { "dense_gemm_ba_gates_prefill", "dense_gemm_ba_gates_prefill_hopper",
                                             "dense_gemm_ba_gates_prefill_tc" };

static bool ba_one(gpu_bench *b, gdn *const open[KINDS], uint32_t M) {
    const uint32_t N = 2 * b->nv;
    const gdn_ba_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_BA_GATES, 0, GDN_BF16 },
                                 .N = N,
                                 .K = BA_K,
                                 .nv = b->nv,
                                 .vheads_per_group = b->nv / b->nk,
                                 .weight_type = GDN_BF16,
                                 .max_m = M };
    const uint64_t a = 2ull * M * BA_K, w = 2ull * N * BA_K, out = 4ull * M * N, param = 4ull * b->nv;
    const uint32_t sets = gpu_bench_sets(b, a + w + out);
    gpu_bench_row row = { .op = "ba_gates",
                          .shape = &shape.base,
                          .n_ptr = GDN_BA_GATES_N_PTR,
                          .step = { a, w, 0, 0, out },
                          .u32 = { M },
                          .n_u32 = 1,
                          .sets = sets,
                          .bytes = (double)(a + w + out),
                          .flop = 2.0 * M * N * BA_K };
    const uint64_t size[] = { sets * a, sets * w, param, param, sets * out };
    const size_t from = json_array_size(b->rows);
    for (uint32_t i = 0; i < row.n_ptr; i++)
        if (!(row.ptr[i] = gpu_bench_take(b, size[i], true))) return false;
    for (int kind = 0; kind < KINDS; kind++) {
        gdn_route route = { .struct_size = (uint32_t)sizeof route };
        double us;
        char why[256];
        b->g = open[kind];
        if (!b->g || gdn_route_for(b->g, (uint32_t)b->clock.sm_count, &shape.base, 1, row.u32, &route, &b->err)) continue;
        if (strcmp(route.entry, ba_entry[kind]) != 0) {
            (void)snprintf(why, sizeof why, "ba_gates M=%u, %s: %s", M, ba_entry[kind], route.guard ? route.guard : "not chosen");
            json_array_append_new(b->left_out, json_string(why));
            continue;
        }
        json_t *keys = json_pack("{s:i, s:i, s:i}", "M", (int)M, "N", (int)N, "K", BA_K);
        if (!gpu_bench_row_add(b, &row, keys, &us)) return false;
    }
    b->g = open[0];
    gpu_bench_peers(b, from);
    gpu_bench_release(b);
    return true;
}

bool gpu_bench_open(gpu_bench *b, const gdn_options *base, const gdn_setting *levers, uint32_t n, gdn **out) {
    gdn_setting all[sizeof b->cli->settings / sizeof *b->cli->settings];
    gdn_options options = *base;
    if (base->n_settings + n > sizeof all / sizeof *all) return cli_error(b->cli, "too many --set"), false;
    for (uint32_t i = 0; i < base->n_settings; i++) all[i] = base->settings[i];
    for (uint32_t i = 0; i < n; i++) all[base->n_settings + i] = levers[i];
    options.settings = all;
    options.n_settings = base->n_settings + n;
    if (gdn_open(&options, out, &b->err) != GDN_OK) return cli_error(b->cli, "%s", b->text), false;
    return true;
}

/* Which kernel runs is a matter of levers, which are those of an open target: one for each. */
bool gpu_bench_ba(gpu_bench *b, const gdn_options *base) {
    gdn *const lent = b->g;
    gdn *open[KINDS] = { NULL };
    bool ok = true;
    for (int kind = 0; kind < KINDS && ok; kind++) {
        const gdn_setting levers[2] = { { "ssm_ba_gates_hopper", kind == 1 ? "true" : "false" },
                                        { "ssm_ba_gates_tc", kind == 2 ? "true" : "false" } };
        ok = gpu_bench_open(b, base, levers, 2, &open[kind]);
    }
    b->g = open[0];
    for (uint32_t i = 0; i < BA_MS && ok; i++) {
        ok = ba_one(b, open, ba_m[i]);
        cli_progress("ba_gates", i + 1, BA_MS);
    }
    b->g = open[0];
    if (b->g) gpu_bench_release(b);
    b->g = lent;
    for (int kind = 0; kind < KINDS; kind++) gdn_close(open[kind]);
    return ok;
}

/* ---- fused convolution: T tokens of one sequence, or one token each of `batch` sequences ---- */
static bool conv_one(gpu_bench *b, uint32_t T, uint32_t batch) {
    const uint32_t C = (2 * b->nk + b->nv) * D;
    const gdn_conv_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_CONV_FUSED, 0, GDN_BF16 },
                                   .channels = C,
                                   .width = WIDTH,
                                   .silu = 1,
                                   .weight_type = GDN_BF16,
                                   .max_tokens = T * batch,
                                   .max_batch = batch,
                                   .nk = b->nk,
                                   .nv = b->nv,
                                   .k_dim = D,
                                   .v_dim = D };
    const uint64_t rows = 2ull * T * batch * C, w = 2ull * C * WIDTH, state = 2ull * C * (WIDTH - 1) * batch;
    const uint32_t sets = gpu_bench_sets(b, 2 * rows + w + state);
    const uint64_t x = gpu_bench_take(b, sets * rows, true), weight = gpu_bench_take(b, sets * w, true),
                   st = gpu_bench_take(b, sets * state, true), out = gpu_bench_take(b, sets * rows, true);
    if (!x || !weight || !st || !out) return false;
    const gpu_bench_row row = { .op = "conv",
                                .shape = &shape.base,
                                .ptr = { x, weight, 0, st, 0, 0, out, out + 2ull * b->nk * D, out + 4ull * b->nk * D },
                                .step = { rows, w, 0, state, 0, 0, rows, rows, rows },
                                .n_ptr = GDN_CONV_FUSED_N_PTR,
                                .u32 = { batch, T },
                                .n_u32 = 2,
                                .sets = sets,
                                .bytes = (double)(2 * rows + w + 2 * state) };
    double us;
    const bool ok = gpu_bench_row_add(
        b, &row, json_pack("{s:i, s:i, s:i, s:i}", "T", (int)T, "batch", (int)batch, "nk", (int)b->nk, "nv", (int)b->nv), &us);
    gpu_bench_release(b);
    return ok;
}

bool gpu_bench_conv(gpu_bench *b) {
    static const uint32_t T[] = { 1168, 4593, 8192, 1, 1, 1 }, batch[] = { 1, 1, 1, 1, 32, 256 };
    enum { CASES = sizeof T / sizeof *T };
    for (uint32_t i = 0; i < CASES; i++) {
        if (!conv_one(b, T[i], batch[i])) return false;
        cli_progress("conv", i + 1, CASES);
    }
    return true;
}

/* ---- gated norm over all value heads of T tokens ---- */
bool gpu_bench_norm(gpu_bench *b) {
    static const uint32_t T[] = { 1, 32, 1168, 4593, 8192 };
    enum { CASES = sizeof T / sizeof *T };
    for (uint32_t i = 0; i < CASES; i++) {
        const uint32_t rows = T[i] * b->nv;
        const gdn_norm_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_NORM, 0, GDN_BF16 },
                                       .dim = D,
                                       .heads = b->nv,
                                       .act = GDN_NORM_SILU,
                                       .weight_type = GDN_BF16,
                                       .max_rows = rows,
                                       .eps = 1e-6f };
        const uint64_t bytes = 2ull * rows * D;
        const uint32_t sets = gpu_bench_sets(b, 3 * bytes);
        gpu_bench_row row = { .op = "norm",
                              .shape = &shape.base,
                              .step = { bytes, bytes, 0, bytes },
                              .n_ptr = GDN_NORM_N_PTR,
                              .u32 = { rows },
                              .n_u32 = 1,
                              .sets = sets,
                              .bytes = (double)(3 * bytes + 2ull * D) };
        const uint64_t size[] = { sets * bytes, sets * bytes, 2ull * D, sets * bytes };
        double us;
        for (uint32_t k = 0; k < row.n_ptr; k++)
            if (!(row.ptr[k] = gpu_bench_take(b, size[k], true))) return false;
        if (!gpu_bench_row_add(b, &row, json_pack("{s:i, s:i, s:i}", "T", (int)T[i], "nv", (int)b->nv, "rows", (int)rows), &us))
            return false;
        gpu_bench_release(b);
        cli_progress("norm", i + 1, CASES);
    }
    return true;
}

/* ---- gates from separate projections ---- */
bool gpu_bench_gates(gpu_bench *b) {
    static const uint32_t rows[] = { 1, 32, 1168, 8192 };
    enum { CASES = sizeof rows / sizeof *rows };
    for (uint32_t i = 0; i < CASES; i++) {
        const gdn_gates_shape shape = { .base = { (uint32_t)sizeof shape, GDN_OP_GATES, 0, GDN_BF16 },
                                        .nv = b->nv,
                                        .gate_form = GDN_GATE_LINEAR,
                                        .param_type = GDN_F32,
                                        .max_rows = rows[i] };
        const uint64_t in = 2ull * rows[i] * b->nv, out = 8ull * rows[i] * b->nv, param = 4ull * b->nv;
        const uint64_t step = (in + 255) / 256 * 256;
        const uint32_t sets = gpu_bench_sets(b, 2 * step + out);
        gpu_bench_row row = { .op = "gates",
                              .shape = &shape.base,
                              .step = { step, step, 0, 0, out },
                              .n_ptr = GDN_GATES_N_PTR,
                              .u32 = { rows[i] },
                              .n_u32 = 1,
                              .sets = sets,
                              .bytes = (double)(2 * in + out) };
        const uint64_t size[] = { sets * step, sets * step, param, param, sets * out };
        double us;
        for (uint32_t k = 0; k < row.n_ptr; k++)
            if (!(row.ptr[k] = gpu_bench_take(b, size[k], true))) return false;
        if (!gpu_bench_row_add(b, &row, json_pack("{s:i, s:i}", "rows", (int)rows[i], "nv", (int)b->nv), &us)) return false;
        gpu_bench_release(b);
        cli_progress("gates", i + 1, CASES);
    }
    return true;
}
