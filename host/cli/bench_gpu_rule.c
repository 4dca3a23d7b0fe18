/* bench_gpu_rule.c - rows of the rule: prefill by each of its routes, decode, verify with every state kept, write-on-accept, fold, and
 * the last two together; decode and verify on bf16 states, too. Packed bf16 rows [Q | K | V], q and k of about unit norm, K-major states
 * in a pool, f32 where nothing else is said, heads of 128/128.
 *
 * Bytes: the rows in and out, gates; states in and out, of verify those kept, of write-on-accept the state once and the stash; fold reads
 * that. FLOP of prefill: 10*K*V a token and value head, the square chunk form. */
#include "bench_gpu.h"
#include <stdlib.h>
#include <string.h>

enum { D = 128, ROWS = 4, MAX_BATCH = 256 };

/* n values in [lo, hi), f32 or bf16; a pattern of PATTERN of them, over and over. */
static uint64_t filled(gpu_bench *b, uint64_t n, bool f32, float lo, float hi) {
    enum { PATTERN = (1 << 22) - 3 };
    const uint64_t size = f32 ? 4 : 2, p = gpu_bench_take(b, n * size, false), m = n < PATTERN ? n : PATTERN;
    unsigned char *host = p && m ? malloc(m * size) : NULL;
    static uint32_t seed = 20240817;
    for (uint64_t i = 0; host && i < m; i++) {
        seed = seed * 1664525u + 1013904223u;
        const union {
            float f;
            uint32_t u;
        } x = { lo + (hi - lo) * (float)(seed >> 8) * 0x1p-24f };
        const uint16_t half = (uint16_t)(x.u >> 16);
        memcpy(host + i * size, f32 ? (const void *)&x.f : (const void *)&half, size);
    }
    bool ok = host != NULL;
    for (uint64_t at = 0; ok && at < n; at += m)
        ok = gdn_copy_in(b->g, NULL, p + at * size, host, (n - at < m ? n - at : m) * size) == GDN_OK;
    ok = ok && gdn_sync(b->g, NULL) == GDN_OK;
    if (p && !ok) cli_error(b->cli, "%llu bytes of rows could not be made on the device", (unsigned long long)n * size);
    free(host);
    return ok ? p : 0;
}

/* `sets` times as many tokens as a call reads. */
typedef struct rows {
    uint64_t x, gate, beta, out;
    uint64_t x_step, gate_step, out_step, k_at, v_at;
    double bytes;
} rows;

static bool make_rows(gpu_bench *b, rows *r, uint64_t tokens, uint32_t sets) {
    const uint64_t width = (2ull * b->nk + b->nv) * D;
    r->k_at = 2ull * b->nk * D;
    r->v_at = 4ull * b->nk * D;
    r->x_step = 2 * tokens * width;
    r->gate_step = 4 * tokens * b->nv;
    r->out_step = 2 * tokens * b->nv * D;
    r->bytes = (double)(r->x_step + 2 * r->gate_step + r->out_step);
    r->x = filled(b, sets * tokens * width, false, -0.15f, 0.15f);
    r->gate = filled(b, sets * tokens * b->nv, true, 0.8f, 0.999f);
    r->beta = filled(b, sets * tokens * b->nv, true, 0, 1);
    r->out = gpu_bench_take(b, sets * r->out_step, false);
    return r->x && r->gate && r->beta && r->out;
}

static gdn_rule_shape shape_of(const gpu_bench *b, uint32_t op, uint32_t batch, uint32_t tokens) {
    const uint32_t width = (2 * b->nk + b->nv) * D;
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, 0, GDN_BF16 },
                              .nk = b->nk,
                              .nv = b->nv,
                              .k_dim = D,
                              .v_dim = D,
                              .qk_stride = width,
                              .v_stride = width,
                              .gb_stride = b->nv,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_addr = batch > 1 || op != GDN_OP_PREFILL ? GDN_STATE_POOL : GDN_STATE_CONTIGUOUS,
                              .state_type = GDN_F32,
                              .num_slots = batch,
                              .max_tokens = tokens,
                              .max_batch = batch,
                              .max_rows = op == GDN_OP_PREFILL || op == GDN_OP_DECODE ? 0 : ROWS,
                              .stash_seqs = op == GDN_OP_VERIFY_WOA || op == GDN_OP_FOLD || op == GDN_OP_ROUND ? batch : 0 };
}

/* Pointer k of a row, with what one set of it takes. */
static void set(gpu_bench_row *row, uint32_t k, uint64_t p, uint64_t step) {
    row->ptr[k] = p;
    row->step[k] = step;
}

static uint64_t slots_of(gpu_bench *b, uint32_t batch) {
    int32_t slot[MAX_BATCH];
    for (uint32_t i = 0; i < batch; i++) slot[i] = (int32_t)i;
    const uint64_t p = gpu_bench_take(b, 4ull * batch, false);
    return p && gdn_copy_in(b->g, NULL, p, slot, 4ull * batch) == GDN_OK && gdn_sync(b->g, NULL) == GDN_OK ? p : 0;
}

/* ---- prefill ---- */
enum { FAST, FAST_WN, TC, PIPE, VFUSED, ROUTES };
static const struct {
    const char *fast, *wn, *tc, *pipe, *entry; /* entry: how its name begins */
} route[ROUTES] = { { "true", "false", "true", "1", "gated_delta_rule_fast_" },
                    { "true", "true", "true", "1", "gated_delta_rule_fast_wn_" },
                    { "false", "false", "true", "1", "gated_delta_rule_chunk_delta_h_tcfuse_x2" },
                    { "false", "false", "false", "1", "gated_delta_rule_chunk_delta_h_pipe" },
                    { "false", "false", "false", "0", "gated_delta_rule_chunk_delta_h_vfused" } };

static uint64_t workspace_of(gpu_bench *b, const gdn_shape *shape, const uint32_t *u32, const char **entry, bool *ok) {
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    *ok = gdn_route_for(b->g, (uint32_t)b->clock.sm_count, shape, GDN_PREFILL_N_U32, u32, &r, &b->err) == GDN_OK;
    *entry = r.entry;
    return r.workspace_bytes;
}

static bool prefill_one(gpu_bench *b, gdn *const open[ROUTES], uint32_t T, uint32_t batch) {
    const gdn_rule_shape shape = shape_of(b, GDN_OP_PREFILL, batch, T * batch);
    const uint64_t state = 4ull * b->nv * D * D * batch, tokens = (uint64_t)T * batch;
    const uint32_t sets = gpu_bench_sets(b, 2 * tokens * (2 * b->nk + 2 * b->nv) * D + state);
    rows r;
    gpu_bench_row row = { .op = "prefill",
                          .shape = &shape.base,
                          .n_ptr = GDN_PREFILL_N_PTR,
                          .u32 = { batch, T },
                          .n_u32 = GDN_PREFILL_N_U32,
                          .sets = sets,
                          .flop = 10.0 * D * D * (double)tokens * b->nv };
    const uint64_t h = gpu_bench_take(b, sets * state, true), slots = slots_of(b, batch);
    const size_t from = json_array_size(b->rows);
    if (!h || !slots || !make_rows(b, &r, tokens, sets)) return false;
    row.bytes = r.bytes + 2.0 * (double)state;
    set(&row, GDN_PREFILL_P_QUERY, r.x, r.x_step);
    set(&row, GDN_PREFILL_P_KEY, r.x + r.k_at, r.x_step);
    set(&row, GDN_PREFILL_P_VALUE, r.x + r.v_at, r.x_step);
    set(&row, GDN_PREFILL_P_GATE, r.gate, r.gate_step);
    set(&row, GDN_PREFILL_P_BETA, r.beta, r.gate_step);
    set(&row, GDN_PREFILL_P_STATE, h, state);
    set(&row, GDN_PREFILL_P_OUTPUT, r.out, r.out_step);
    if (batch > 1) set(&row, GDN_PREFILL_P_IN_SLOTS, slots, 0);
    for (int kind = 0; kind < ROUTES; kind++) {
        const char *entry;
        bool ok;
        double us;
        if (kind >= PIPE && T * batch > 8192) continue; /* milliseconds a call */
        b->g = open[kind];
        const uint64_t bytes = workspace_of(b, &shape.base, row.u32, &entry, &ok);
        if (!ok) return cli_error(b->cli, "prefill: %s", b->text), false;
        if (strncmp(entry, route[kind].entry, strlen(route[kind].entry)) != 0) continue; /* another kind's row */
        if (bytes) set(&row, GDN_PREFILL_P_WORKSPACE, gpu_bench_take(b, bytes, false), 0);
        if (bytes && !row.ptr[GDN_PREFILL_P_WORKSPACE]) return false;
        json_t *keys = json_pack("{s:i, s:i, s:i, s:i}", "T", (int)T, "batch", (int)batch, "nk", (int)b->nk, "nv", (int)b->nv);
        if (!gpu_bench_row_add(b, &row, keys, &us)) return false;
    }
    b->g = open[0];
    gpu_bench_peers(b, from);
    gpu_bench_release(b);
    return true;
}

static bool open_routes(gpu_bench *b, const gdn_options *base, gdn *open[ROUTES]) {
    for (int kind = 0; kind < ROUTES; kind++) {
        const gdn_setting levers[] = { { "gdn_prefill_fast", route[kind].fast },
                                       { "gdn_prefill_fast_wn", route[kind].wn },
                                       { "gdn_prefill_tc", route[kind].tc },
                                       { "gdn_pipe", route[kind].pipe } };
        if (!gpu_bench_open(b, base, levers, sizeof levers / sizeof *levers, &open[kind])) return false;
    }
    return true;
}

bool gpu_bench_prefill(gpu_bench *b, const gdn_options *base) {
    static const uint32_t T[] = { 256, 1024, 1168, 1193, 2048, 4593, 8192, 32768 }, batch[] = { 1, 8, 1, 1, 1, 1, 1, 1 };
    enum { CASES = sizeof T / sizeof *T };
    gdn *const lent = b->g, *open[ROUTES] = { NULL };
    bool ok = open_routes(b, base, open);
    for (uint32_t i = 0; ok && i < CASES; i++) {
        b->g = open[0];
        ok = prefill_one(b, open, T[i], batch[i]);
        cli_progress("prefill", i + 1, CASES);
    }
    b->g = open[0];
    if (b->g) gpu_bench_release(b);
    b->g = lent;
    for (int kind = 0; kind < ROUTES; kind++) gdn_close(open[kind]);
    return ok;
}

/* ---- one to four tokens a sequence ---- */
typedef struct step {
    uint32_t batch, sets;
    uint64_t h, slots, state;
    rows r;
} step;

static bool step_of(gpu_bench *b, step *s, uint32_t batch, uint32_t rows_each, bool bf16) {
    *s = (step) { .batch = batch, .state = (bf16 ? 2ull : 4ull) * b->nv * D * D * batch };
    s->sets = gpu_bench_sets(b, s->state);
    s->h = gpu_bench_take(b, s->sets * s->state, true);
    s->slots = slots_of(b, batch);
    return s->h && s->slots && make_rows(b, &s->r, (uint64_t)rows_each * batch, s->sets);
}

/* state, q, k, v, gate, beta, output: the first seven of decode, verify and write-on-accept. */
static void first_seven(gpu_bench_row *row, const step *s) {
    const rows *r = &s->r;
    const uint64_t p[7] = { s->h, r->x, r->x + r->k_at, r->x + r->v_at, r->gate, r->beta, r->out },
                   n[7] = { s->state, r->x_step, r->x_step, r->x_step, r->gate_step, r->gate_step, r->out_step };
    for (uint32_t k = 0; k < 7; k++) set(row, k, p[k], n[k]);
}

static json_t *step_keys(const gpu_bench *b, uint32_t batch, uint32_t rows_each) {
    return json_pack("{s:i, s:i, s:i, s:i}", "batch", (int)batch, "nk", (int)b->nk, "nv", (int)b->nv, "rows", (int)rows_each);
}

static gdn_rule_shape step_shape(const gpu_bench *b, uint32_t op, uint32_t batch, bool bf16) {
    gdn_rule_shape s = shape_of(b, op, batch, batch);
    if (bf16) s.state_type = GDN_BF16, s.base.flags |= GDN_BF16_STATE;
    return s;
}

static bool decode_one(gpu_bench *b, uint32_t batch, bool bf16) {
    const gdn_rule_shape shape = step_shape(b, GDN_OP_DECODE, batch, bf16);
    step s;
    double us;
    if (!step_of(b, &s, batch, 1, bf16)) return false;
    gpu_bench_row row = { .op = "decode",
                          .shape = &shape.base,
                          .n_ptr = GDN_DECODE_N_PTR,
                          .u32 = { batch },
                          .n_u32 = GDN_DECODE_N_U32,
                          .sets = s.sets,
                          .bytes = 2.0 * (double)s.state + s.r.bytes };
    first_seven(&row, &s);
    set(&row, GDN_DECODE_P_IN_SLOTS, s.slots, 0);
    const bool ok = gpu_bench_row_add(b, &row, step_keys(b, batch, 1), &us);
    gpu_bench_release(b);
    return ok;
}

static bool verify_one(gpu_bench *b, uint32_t batch, bool bf16) {
    const gdn_rule_shape shape = step_shape(b, GDN_OP_VERIFY, batch, bf16);
    step s;
    double us;
    if (!step_of(b, &s, batch, ROWS, bf16)) return false;
    gpu_bench_row row = { .op = "verify",
                          .shape = &shape.base,
                          .n_ptr = GDN_VERIFY_N_PTR,
                          .u32 = { ROWS, batch },
                          .n_u32 = GDN_VERIFY_N_U32,
                          .sets = s.sets,
                          .bytes = (1.0 + ROWS) * (double)s.state + s.r.bytes };
    const uint64_t hi = gpu_bench_take(b, (ROWS - 1) * s.state, false);
    first_seven(&row, &s);
    set(&row, GDN_VERIFY_P_HI, hi, 0);
    set(&row, GDN_VERIFY_P_IN_SLOTS, s.slots, 0);
    const bool ok = hi && gpu_bench_row_add(b, &row, step_keys(b, batch, ROWS), &us);
    gpu_bench_release(b);
    return ok;
}

/* Four rows a sequence, all accepted, and what a round before has left of them: anything. */
typedef struct kept {
    step s;
    uint64_t stash, flag, na, bytes; /* bytes of a stash */
} kept;
static bool kept_of(gpu_bench *b, kept *k, uint32_t batch) {
    uint32_t all[MAX_BATCH];
    const uint32_t one = 1;
    for (uint32_t i = 0; i < batch; i++) all[i] = ROWS;
    if (!step_of(b, &k->s, batch, ROWS, false)) return false;
    k->bytes = 16 * ((uint64_t)b->nv * D + b->nv + (uint64_t)b->nk * D) * batch;
    k->stash = gpu_bench_take(b, k->s.sets * k->bytes, true);
    k->flag = gpu_bench_take(b, 4, false);
    k->na = gpu_bench_take(b, 4ull * batch, false);
    return k->stash && k->flag && k->na && gdn_copy_in(b->g, NULL, k->na, all, 4ull * batch) == GDN_OK &&
           gdn_copy_in(b->g, NULL, k->flag, &one, 4) == GDN_OK && gdn_sync(b->g, NULL) == GDN_OK;
}

/* Fold of the round before and write-on-accept in one launch. */
static bool round_one(gpu_bench *b, uint32_t batch) {
    const gdn_rule_shape shape = shape_of(b, GDN_OP_ROUND, batch, batch);
    kept k;
    double us;
    if (!kept_of(b, &k, batch)) return false;
    const uint64_t stash = gpu_bench_take(b, k.s.sets * k.bytes, false), word = gpu_bench_take(b, 4, false);
    gpu_bench_row row = { .op = "round",
                          .shape = &shape.base,
                          .n_ptr = GDN_ROUND_N_PTR,
                          .u32 = { ROWS, batch },
                          .n_u32 = 2,
                          .sets = k.s.sets,
                          .bytes = 2.0 * (double)(k.s.state + k.bytes) + k.s.r.bytes };
    first_seven(&row, &k.s);
    set(&row, GDN_ROUND_P_STASH, stash, k.bytes);
    set(&row, GDN_ROUND_P_FLAG, word, 0);
    set(&row, GDN_ROUND_P_PENDING, k.stash, k.bytes);
    set(&row, GDN_ROUND_P_NA, k.na, 0);
    set(&row, GDN_ROUND_P_PENDING_FLAG, k.flag, 0);
    set(&row, GDN_ROUND_P_IN_SLOTS, k.s.slots, 0);
    const bool ok = stash && word && gpu_bench_row_add(b, &row, step_keys(b, batch, ROWS), &us);
    gpu_bench_release(b);
    return ok;
}

/* Write-on-accept, fold of all four rows, and one after the other. */
static bool fold_one(gpu_bench *b, uint32_t batch) {
    const gdn_rule_shape woa_shape = shape_of(b, GDN_OP_VERIFY_WOA, batch, batch), fold_shape = shape_of(b, GDN_OP_FOLD, batch, batch);
    kept k;
    double us;
    if (!kept_of(b, &k, batch)) return false;
    gpu_bench_row woa = { .op = "verify",
                          .shape = &woa_shape.base,
                          .n_ptr = GDN_VERIFY_WOA_N_PTR,
                          .u32 = { ROWS, batch },
                          .n_u32 = GDN_VERIFY_WOA_N_U32,
                          .sets = k.s.sets,
                          .bytes = (double)(k.s.state + k.bytes) + k.s.r.bytes };
    gpu_bench_row fold = { .op = "fold",
                           .shape = &fold_shape.base,
                           .n_ptr = GDN_FOLD_N_PTR,
                           .u32 = { ROWS, batch },
                           .n_u32 = GDN_FOLD_N_U32,
                           .sets = k.s.sets,
                           .bytes = (double)(2 * k.s.state + k.bytes) };
    first_seven(&woa, &k.s);
    set(&woa, GDN_VERIFY_WOA_P_STASH, k.stash, k.bytes);
    set(&woa, GDN_VERIFY_WOA_P_FLAG, k.flag, 0);
    set(&woa, GDN_VERIFY_WOA_P_IN_SLOTS, k.s.slots, 0);
    set(&fold, GDN_FOLD_P_STATE, k.s.h, k.s.state);
    set(&fold, GDN_FOLD_P_STASH, k.stash, k.bytes);
    set(&fold, GDN_FOLD_P_NA, k.na, 0);
    set(&fold, GDN_FOLD_P_FLAG, k.flag, 0);
    set(&fold, GDN_FOLD_P_IN_SLOTS, k.s.slots, 0);
    bool ok = gpu_bench_row_add(b, &woa, step_keys(b, batch, ROWS), &us) && gpu_bench_row_add(b, &fold, step_keys(b, batch, ROWS), &us);
    gpu_bench_row both = woa;
    both.then = &fold;
    both.bytes += fold.bytes;
    ok = ok && gpu_bench_row_add(b, &both, step_keys(b, batch, ROWS), &us);
    gpu_bench_release(b);
    return ok;
}

static bool each_batch(gpu_bench *b, const char *what, bool (*one)(gpu_bench *, uint32_t)) {
    static const uint32_t batch[] = { 1, 16, 64, MAX_BATCH };
    enum { CASES = sizeof batch / sizeof *batch };
    for (uint32_t i = 0; i < CASES; i++) {
        if (!one(b, batch[i])) return false;
        cli_progress(what, i + 1, CASES);
    }
    return true;
}

static bool decodes(gpu_bench *b, uint32_t batch) {
    return decode_one(b, batch, false) && decode_one(b, batch, true);
}
bool gpu_bench_decode(gpu_bench *b) {
    return each_batch(b, "decode", decodes);
}

static bool verifies(gpu_bench *b, uint32_t batch) {
    return verify_one(b, batch, false) && verify_one(b, batch, true);
}
bool gpu_bench_verify(gpu_bench *b) {
    return each_batch(b, "verify", verifies);
}

/* Write-on-accept is a lever. */
static bool with_lever(gpu_bench *b, const gdn_options *base, const char *what, bool (*one)(gpu_bench *, uint32_t)) {
    const gdn_setting lever = { "gdn_woa", "1" };
    gdn *const lent = b->g;
    b->g = NULL;
    const bool open = gpu_bench_open(b, base, &lever, 1, &b->g), ok = open && each_batch(b, what, one);
    if (open) gpu_bench_release(b);
    gdn_close(b->g);
    b->g = lent;
    return ok;
}
bool gpu_bench_fold(gpu_bench *b, const gdn_options *base) {
    return with_lever(b, base, "fold", fold_one);
}
bool gpu_bench_round(gpu_bench *b, const gdn_options *base) {
    return with_lever(b, base, "round", round_one);
}
