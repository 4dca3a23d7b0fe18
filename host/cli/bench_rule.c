/* bench_rule.c - prefill beside sgemm, decode and verify beside an in-place scale of the same bytes, interleaved run by run.
 *
 * FLOP: prefill 10*K*V a token and value head (the square chunk form, 163,840 at 128/128); decode and verify rows 7*K*V.
 * Bytes: decode state in and out and the rows; verify the same plus the states kept; write-on-accept with its fold: state read,
 * then state in and out, and the stash both ways. */
#include "bench.h"
#include <math.h>
#include <string.h>

enum { D = 128, ROWS = 4 };

typedef struct timing {
    bench_samples own, ceiling;
} timing;

static double flop_of(const bench *b, uint64_t tokens, double per_head) {
    return per_head * D * D * (double)tokens * b->nv;
}

static uint64_t random_rows(bench *b, uint64_t rows, uint32_t width, uint32_t type, float lo, float hi) {
    float buf[4096];
    uint64_t p = 0, n = rows * width, size = type == GDN_F32 ? 4 : 2;
    static uint32_t seed = 12345;
    if (gdn__arena_take(&b->mem, n * size, &p, &b->err)) return 0;
    for (uint64_t i = 0; i < n; i += sizeof buf / sizeof *buf) {
        const uint64_t m = n - i < sizeof buf / sizeof *buf ? n - i : sizeof buf / sizeof *buf;
        for (uint64_t j = 0; j < m; j++) {
            seed = seed * 1664525u + 1013904223u;
            buf[j] = lo + (hi - lo) * (float)(seed >> 8) * 0x1p-24f;
        }
        if (gdn__arena_set(&b->mem, p + i * size, buf, m, type, &b->err)) return 0;
    }
    return p;
}

/* A packed convolution row [Q | K | V] and its gates; q and k about unit norm. */
typedef struct rows {
    uint64_t x, gate, beta, out, size;
    uint32_t stride;
} rows;

static bool make_rows(bench *b, rows *r, uint64_t tokens, uint32_t act) {
    r->stride = (2 * b->nk + b->nv) * D;
    r->size = act == GDN_F32 ? 4 : 2;
    r->x = random_rows(b, tokens, r->stride, act, -0.15f, 0.15f);
    r->gate = random_rows(b, tokens, b->nv, GDN_F32, 0.8f, 0.999f);
    r->beta = random_rows(b, tokens, b->nv, GDN_F32, 0, 1);
    return r->x && r->gate && r->beta && gdn__arena_take(&b->mem, tokens * b->nv * D * r->size, &r->out, &b->err) == GDN_OK;
}

static gdn_rule_shape shape_of(const bench *b, uint32_t op, uint32_t act, uint32_t batch, uint32_t tokens) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, 0, act },
                              .nk = b->nk,
                              .nv = b->nv,
                              .k_dim = D,
                              .v_dim = D,
                              .qk_stride = (2 * b->nk + b->nv) * D,
                              .v_stride = (2 * b->nk + b->nv) * D,
                              .gb_stride = b->nv,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_type = GDN_F32,
                              .max_tokens = tokens,
                              .max_batch = batch,
                              .max_rows = ROWS,
                              .stash_seqs = batch };
}

static bench_row *add_row(bench *b, const char *op, const gdn_hplan *plan, uint32_t act, const timing *t) {
    static bench_row spill;
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    const gdn_status st = gdn_explain(plan, 0, NULL, &route);
    bench_row *r = b->rows < BENCH_MAX_ROWS ? &b->row[b->rows++] : &spill;
    *r = (bench_row) { .op = op,
                       .entry = st == GDN_OK ? route.entry : "?",
                       .type = act == GDN_F32 ? "f32" : "bf16",
                       .layout = "",
                       .us_median = 1e6 * bench_quantile(&t->own, 0.5),
                       .us_p10 = 1e6 * bench_quantile(&t->own, 0.1),
                       .us_p90 = 1e6 * bench_quantile(&t->own, 0.9),
                       .gbps = NAN,
                       .gflops = NAN,
                       .of_ceiling = NAN };
    return r;
}

static bool launch(bench *b, const gdn_hplan *plan, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32) {
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr, n_u32, 0, NULL, ptr, u32 };
    const gdn_status st = gdn_launch(plan, &args);
    if (st) cli_error(b->cli, "launch: %s", gdn_status_text(st));
    return st == GDN_OK;
}

bool bench_prefill(bench *b, uint32_t act, uint32_t T) {
    const gdn_rule_shape shape = shape_of(b, GDN_OP_PREFILL, act, 1, T);
    gdn_hplan *plan = NULL;
    rows r;
    timing t = { 0 };
    bool ok = false;
    if (gdn_plan_make(b->g, &shape.base, NULL, &plan, &b->err) || !make_rows(b, &r, T, act)) {
        cli_error(b->cli, "%s", b->text);
        goto out;
    }
    const uint64_t k = r.x + (uint64_t)b->nk * D * r.size, v = k + (uint64_t)b->nk * D * r.size;
    const uint64_t ptr[GDN_PREFILL_N_PTR] = { r.x, k, v, r.gate, r.beta, (uint64_t)(uintptr_t)b->pool, r.out };
    const uint32_t u32[GDN_PREFILL_N_U32] = { 1, T };
    for (uint32_t i = 0; i < b->reps + 2; i++) { /* the first two warm up */
        double t0 = bench_now();
        if (!launch(b, plan, ptr, GDN_PREFILL_N_PTR, u32, GDN_PREFILL_N_U32)) goto out;
        const double own = bench_now() - t0;
        t0 = bench_now();
        if (i % 2 == 0) bench_sgemm(b);
        if (i < 2) continue;
        bench_add(&t.own, own);
        if (i % 2 == 0) bench_add(&t.ceiling, bench_now() - t0);
    }
    bench_row *row = add_row(b, "prefill", plan, act, &t);
    const double bytes = (double)T * ((double)r.size * (r.stride + b->nv * D) + 8.0 * b->nv) + 2.0 * 4 * b->nv * D * D;
    row->T = T;
    row->batch = 1;
    row->gflops = flop_of(b, T, 10) / row->us_median * 1e-3;
    row->gbps = bytes / row->us_median * 1e-3;
    row->ceiling = "sgemm";
    row->of_ceiling = row->gflops / (2.0 * BENCH_SGEMM_N * BENCH_SGEMM_N * BENCH_SGEMM_N / bench_quantile(&t.ceiling, 0.5) * 1e-9);
    ok = true;
out:
    gdn_plan_free(plan);
    gdn__arena_free(&b->mem);
    b->mem.g = b->g;
    return ok;
}

/* The next window of the pool; consecutive runs never touch the same states. */
static float *next_window(const bench *b, uint64_t floats, uint64_t *turn) {
    const uint64_t sets = b->pool_bytes / sizeof(float) / floats;
    return b->pool + (*turn)++ % (sets ? sets : 1) * floats;
}

/* Decode and verify: run(), then an in-place scale of as many bytes of state, each on a fresh window. */
typedef struct step_case {
    gdn_hplan *plan, *second; /* second: fold */
    uint64_t ptr[GDN_VERIFY_N_PTR], fold[GDN_FOLD_N_PTR];
    uint32_t n_ptr, state_at, u32[2], n_u32, fold_u32[2];
} step_case;

static bool time_steps(bench *b, step_case *s, uint64_t floats, timing *t) {
    uint64_t turn = 0;
    for (uint32_t i = 0; i < b->reps + 2; i++) {
        const uint64_t state = (uint64_t)(uintptr_t)next_window(b, floats, &turn);
        s->ptr[s->state_at] = s->fold[GDN_FOLD_P_STATE] = state;
        double t0 = bench_now();
        if (!launch(b, s->plan, s->ptr, s->n_ptr, s->u32, s->n_u32)) return false;
        if (s->second && !launch(b, s->second, s->fold, GDN_FOLD_N_PTR, s->fold_u32, 2)) return false;
        const double own = bench_now() - t0;
        float *w = next_window(b, floats, &turn);
        t0 = bench_now();
        bench_scale(w, floats);
        if (i < 2) continue;
        bench_add(&t->own, own);
        bench_add(&t->ceiling, bench_now() - t0);
    }
    return true;
}

static void finish(bench_row *row, const timing *t, double bytes, double state_bytes) {
    row->gbps = bytes / row->us_median * 1e-3;
    row->ceiling = "in-place scale";
    row->of_ceiling = row->gbps / (state_bytes / bench_quantile(&t->ceiling, 0.5) * 1e-9);
}

bool bench_decode(bench *b, uint32_t v_major, uint32_t batch) {
    gdn_rule_shape shape = shape_of(b, GDN_OP_DECODE, GDN_F32, batch, batch);
    step_case s = { .n_ptr = GDN_DECODE_N_PTR, .state_at = GDN_DECODE_P_STATE, .u32 = { batch }, .n_u32 = GDN_DECODE_N_U32 };
    const uint64_t floats = (uint64_t)batch * b->nv * D * D;
    timing t = { 0 };
    rows r;
    bool ok = false;
    shape.state_layout = v_major;
    if (gdn_plan_make(b->g, &shape.base, NULL, &s.plan, &b->err) || !make_rows(b, &r, batch, GDN_F32)) {
        cli_error(b->cli, "%s", b->text);
        goto out;
    }
    s.ptr[GDN_DECODE_P_QUERY] = r.x;
    s.ptr[GDN_DECODE_P_KEY] = r.x + (uint64_t)b->nk * D * 4;
    s.ptr[GDN_DECODE_P_VALUE] = r.x + (uint64_t)b->nk * D * 8;
    s.ptr[GDN_DECODE_P_GATE] = r.gate;
    s.ptr[GDN_DECODE_P_BETA] = r.beta;
    s.ptr[GDN_DECODE_P_OUTPUT] = r.out;
    if (!(ok = time_steps(b, &s, floats, &t))) goto out;
    bench_row *row = add_row(b, "decode", s.plan, GDN_F32, &t);
    const double row_bytes = 4.0 * (r.stride + b->nv * D + 2.0 * b->nv), state = 8.0 * (double)floats;
    row->T = 1;
    row->batch = batch;
    row->layout = v_major ? "V-major" : "K-major";
    row->gflops = flop_of(b, batch, 7) / row->us_median * 1e-3;
    finish(row, &t, state + batch * row_bytes, state);
out:
    gdn_plan_free(s.plan);
    gdn__arena_free(&b->mem);
    b->mem.g = b->g;
    return ok;
}

/* States by pool, so that a batch is legal; slots 0..batch-1 of a window. */
bool bench_verify(bench *b, bool woa, uint32_t batch) {
    gdn_rule_shape shape = shape_of(b, woa ? GDN_OP_VERIFY_WOA : GDN_OP_VERIFY, GDN_F32, batch, batch),
                   fold = shape_of(b, GDN_OP_FOLD, GDN_F32, batch, batch);
    step_case s = { .n_ptr = woa ? GDN_VERIFY_WOA_N_PTR : GDN_VERIFY_N_PTR,
                    .state_at = 0,
                    .u32 = { ROWS, batch },
                    .n_u32 = 2,
                    .fold_u32 = { ROWS, batch } };
    const uint64_t floats = (uint64_t)batch * b->nv * D * D, stash = 4 * ((uint64_t)b->nv * D + b->nv + (uint64_t)b->nk * D);
    uint64_t slots, kept = 0, flag = 0, na = 0;
    int32_t slot[64];
    uint32_t all[64];
    timing t = { 0 };
    rows r;
    bool ok = false;
    for (uint32_t i = 0; i < 64; i++) slot[i] = (int32_t)i, all[i] = ROWS;
    shape.state_addr = fold.state_addr = GDN_STATE_POOL;
    if (gdn_plan_make(b->g, &shape.base, NULL, &s.plan, &b->err) || !make_rows(b, &r, (uint64_t)batch * ROWS, GDN_F32) ||
        gdn__arena_take(&b->mem, sizeof slot, &slots, &b->err) || gdn_copy_in(b->g, NULL, slots, slot, sizeof slot) ||
        gdn__arena_zeros(&b->mem, woa ? 4 * stash * batch : 4 * floats * (ROWS - 1), &kept, &b->err) ||
        (woa && (gdn_plan_make(b->g, &fold.base, NULL, &s.second, &b->err) || gdn__arena_zeros(&b->mem, 4, &flag, &b->err) ||
                 gdn__arena_take(&b->mem, sizeof all, &na, &b->err) || gdn_copy_in(b->g, NULL, na, all, sizeof all)))) {
        cli_error(b->cli, "%s", b->text);
        goto out;
    }
    const uint64_t rows5[5] = { r.x, r.x + (uint64_t)b->nk * D * 4, r.x + (uint64_t)b->nk * D * 8, r.gate, r.beta };
    memcpy(s.ptr + 1, rows5, sizeof rows5); /* both orders: h, q, k, v, gate, beta, out, then their own */
    s.ptr[GDN_VERIFY_P_OUTPUT] = r.out;
    s.ptr[woa ? (uint32_t)GDN_VERIFY_WOA_P_STASH : (uint32_t)GDN_VERIFY_P_HI] = kept;
    s.ptr[woa ? (uint32_t)GDN_VERIFY_WOA_P_IN_SLOTS : (uint32_t)GDN_VERIFY_P_IN_SLOTS] = slots;
    if (woa) s.ptr[GDN_VERIFY_WOA_P_FLAG] = flag;
    s.fold[GDN_FOLD_P_STASH] = kept;
    s.fold[GDN_FOLD_P_NA] = na;
    s.fold[GDN_FOLD_P_FLAG] = flag;
    s.fold[GDN_FOLD_P_IN_SLOTS] = slots;
    if (!(ok = time_steps(b, &s, floats, &t))) goto out;
    bench_row *row = add_row(b, woa ? "woa + fold" : "verify", s.plan, GDN_F32, &t);
    const double row_bytes = ROWS * 4.0 * (r.stride + b->nv * D + 2.0 * b->nv), state = 8.0 * (double)floats;
    row->T = 1;
    row->batch = batch;
    row->rows = ROWS;
    row->layout = "K-major";
    row->gflops = flop_of(b, (uint64_t)batch * ROWS, 7) / row->us_median * 1e-3;
    finish(row, &t, batch * row_bytes + (woa ? 1.5 * state + 8.0 * (double)(stash * batch) : state + 4.0 * (double)floats * (ROWS - 1)),
           state);
out:
    gdn_plan_free(s.plan);
    gdn_plan_free(s.second);
    gdn__arena_free(&b->mem);
    b->mem.g = b->g;
    return ok;
}
