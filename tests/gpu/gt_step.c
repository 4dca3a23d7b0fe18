/* gt_step.c - decode, verify, write-on-accept, fold and the round: rounds on the device and on the cpu target, byte for byte (K-major
 * states, linear gates), the other forms within a tolerance, and replays of a captured round with other accepted counts. */
#include "gt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 4, D = 128, BATCH = 5, SLOTS = BATCH + 3, MOST = 16, ROWS = BATCH * MOST };
enum { OP_DECODE, OP_VERIFY, OP_WOA, OP_FOLD, OP_ROUND, OP_CLEAR, OPS };
static const uint32_t op_of[OPS] = { GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD, GDN_OP_ROUND, GDN_OP_FLAG_CLEAR };

/* One target's memory and plans. */
enum { B_Q, B_K, B_V, B_GB, B_OUT, B_POOL, B_SLOTS, B_HI, B_STASH, B_FLAG, B_STASH2, B_FLAG2, B_NA, B_FRESH, B_N };
static const uint64_t bytes_of[B_N] = {
    [B_Q] = ROWS * NK * D * 2ull,
    [B_K] = ROWS * NK * D * 2ull,
    [B_V] = ROWS * NV * D * 2ull,
    [B_GB] = ROWS * 2ull * NV * 4,
    [B_OUT] = ROWS * NV * D * 2ull,
    [B_POOL] = SLOTS * (uint64_t)NV * D * D * 4,
    [B_SLOTS] = BATCH * 4,
    [B_HI] = BATCH * (MOST - 1ull) * NV * D * D * 4,
    [B_STASH] = BATCH * 4ull * (NV * D + NV + NK * D) * 4,
    [B_FLAG] = 4,
    [B_STASH2] = BATCH * 4ull * (NV * D + NV + NK * D) * 4, /* of every other round */
    [B_FLAG2] = 4,
    [B_NA] = BATCH * 4,
    [B_FRESH] = BATCH,
};
typedef struct side {
    gdn *g;
    uint64_t mem[B_N];
    gdn_hplan *plan[OPS];
} side;

static bool side_up(gt *t, side *s, const char *target, uint32_t flags) {
    char why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    memset(s, 0, sizeof *s);
    s->g = gt_open(t, target, "gdn_woa", "1", NULL);
    bool ok = s->g != NULL;
    for (uint32_t i = 0; ok && i < B_N; i++)
        ok = gt_check(
            t, gdn_mem_alloc(s->g, bytes_of[i], &s->mem[i]) == GDN_OK && gdn_fill(s->g, NULL, s->mem[i], 0xFF, bytes_of[i]) == GDN_OK,
            "device memory");
    for (uint32_t i = 0; ok && i < OPS; i++) {
        gdn_rule_shape r = { .base = GT_BASE(gdn_rule_shape, op_of[i]),
                             .nk = NK,
                             .nv = NV,
                             .k_dim = D,
                             .v_dim = D,
                             .gate_form = GDN_GATE_LINEAR,
                             .state_addr = GDN_STATE_POOL,
                             .state_type = GDN_F32,
                             .max_batch = BATCH,
                             .max_rows = i == OP_WOA || i == OP_ROUND ? 4 : MOST,
                             .hi_capacity = MOST - 1,
                             .stash_seqs = BATCH,
                             .num_slots = SLOTS };
        const gdn_flag_shape clear = { .base = GT_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
        r.base.flags = i == OP_FOLD ? 0 : flags;
        ok = gt_check(t, gdn_plan_make(s->g, i == OP_CLEAR ? &clear.base : &r.base, NULL, &s->plan[i], &err) == GDN_OK, "plan: %s", why);
    }
    return ok;
}
static void side_down(side *s) {
    for (uint32_t i = 0; i < OPS; i++) gdn_plan_free(s->plan[i]);
    for (uint32_t i = 0; i < B_N && s->g; i++) gdn_mem_free(s->g, s->mem[i]);
    gdn_close(s->g);
}
static bool put(gt *t, side *s, uint32_t buf, const void *src) {
    return gt_check(t, gdn_copy_in(s->g, NULL, s->mem[buf], src, bytes_of[buf]) == GDN_OK, "copy");
}
static bool go(gt *t, side *s, uint32_t op, uint32_t rows, void *stream) {
    const uint64_t *m = s->mem, beta = m[B_GB] + NV * 4;
    const uint64_t decode[] = { m[B_POOL], m[B_Q], m[B_K], m[B_V], m[B_GB], beta, m[B_OUT], 0, m[B_SLOTS], 0, m[B_FRESH] };
    const uint64_t verify[] = { m[B_POOL], m[B_Q], m[B_K], m[B_V], m[B_GB], beta, m[B_OUT], m[B_HI], 0, 0, m[B_SLOTS], 0, m[B_FRESH] };
    const uint64_t woa[] = { m[B_POOL], m[B_Q], m[B_K], m[B_V], m[B_GB], beta, m[B_OUT], m[B_STASH], m[B_FLAG], m[B_SLOTS], m[B_FRESH] };
    const uint64_t fold[] = { m[B_POOL], m[B_STASH], m[B_NA], m[B_HI], m[B_FLAG], m[B_SLOTS], m[B_FRESH] };
    const uint64_t *const ptr[] = { decode, verify, woa, fold, NULL, &m[B_FLAG] };
    const uint32_t n_ptr[] = { GT_N(decode), GT_N(verify), GT_N(woa), GT_N(fold), 0, 1 };
    const uint32_t u32[] = { op == OP_DECODE ? BATCH : rows, BATCH }, n_u32[] = { 1, 2, 2, 2, 2, 0 };
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr[op], n_u32[op], 0, stream, ptr[op], u32 };
    const gdn_status st = gdn_launch(s->plan[op], &args);
    return gt_check(t, st == GDN_OK, "%s: %s", gdn_op_name(op_of[op]), gdn_status_name(st));
}

/* One launch for a round; odd ones leave what even ones take up. */
static bool go_round(gt *t, side *s, uint32_t odd, void *stream) {
    const uint64_t *m = s->mem, stash[] = { m[B_STASH], m[B_STASH2] }, flag[] = { m[B_FLAG], m[B_FLAG2] };
    const uint64_t ptr[] = { m[B_POOL], m[B_Q],      m[B_K],  m[B_V],     m[B_GB], m[B_GB] + NV * 4, m[B_OUT],  stash[odd],
                             flag[odd], stash[!odd], m[B_NA], flag[!odd], 0,       m[B_SLOTS],       m[B_FRESH] };
    const uint32_t u32[] = { 4, BATCH };
    const gdn_launch_args args = { (uint32_t)sizeof args, GT_N(ptr), 2, 0, stream, ptr, u32 };
    const gdn_status st = gdn_launch(s->plan[OP_ROUND], &args);
    return gt_check(t, st == GDN_OK, "round: %s", gdn_status_name(st));
}

/* Random rows of a round, the same for both sides. */
static bool rows_in(gt *t, side *const *sides, uint32_t n) {
    uint8_t *host = malloc(bytes_of[B_V]);
    float gb[ROWS * 2 * NV];
    bool ok = host != NULL;
    for (uint32_t buf = B_Q; ok && buf <= B_V; buf++) {
        num_fill(host, GDN_BF16, bytes_of[buf] / 2, &t->r, buf == B_V ? -1 : -0.12, buf == B_V ? 1 : 0.12);
        for (uint32_t i = 0; ok && i < n; i++) ok = put(t, sides[i], buf, host);
    }
    for (uint32_t i = 0; i < GT_N(gb); i++) gb[i] = (float)rng_uniform(&t->r, i % (2 * NV) < NV ? 0.7 : 0, 1);
    for (uint32_t i = 0; ok && i < n; i++) ok = put(t, sides[i], B_GB, gb);
    free(host);
    return ok;
}
static bool same(gt *t, side *a, side *b, uint32_t buf, uint64_t bytes, const char *what) {
    uint8_t *x = malloc(2 * bytes);
    bool ok =
        x && gdn_copy_out(a->g, NULL, x, a->mem[buf], bytes) == GDN_OK && gdn_copy_out(b->g, NULL, x + bytes, b->mem[buf], bytes) == GDN_OK;
    ok = gt_check(t, ok, "copy") && gt_same_bytes(t, x, x + bytes, bytes, what);
    free(x);
    return ok;
}
static bool states_in(gt *t, side *const *sides, uint32_t n) {
    static const int32_t slots[BATCH] = { 6, 0, 3, 7, 2 };
    static const uint8_t fresh[BATCH] = { 0 };
    float *pool = malloc(bytes_of[B_POOL]);
    if (!pool) return gt_check(t, false, "out of memory");
    num_fill(pool, GDN_F32, bytes_of[B_POOL] / 4, &t->r, -0.1, 0.1);
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = put(t, sides[i], B_POOL, pool) && put(t, sides[i], B_SLOTS, slots) && put(t, sides[i], B_FRESH, fresh);
    free(pool);
    return ok;
}

/* Each round: decode, or a verify of 2 to 16 rows, or a deferred one, folded with counts from 0 to the rows; states after every one. */
static void rounds(gt *t, uint32_t n) {
    side dev, cpu, *const both[] = { &dev, &cpu };
    if (!gt_begin(t, "verify_fold_decode_%u_random_rounds_bytes", n)) return;
    const bool one = side_up(t, &dev, t->target, 0), other = side_up(t, &cpu, "cpu", 0); /* both: both are taken down */
    bool ok = one && other;
    ok = ok && states_in(t, both, 2);
    uint32_t kinds[3] = { 0 };
    for (uint32_t r = 0; ok && r < n; r++) {
        const uint32_t kind = rng_below(&t->r, 3), rows = kind == 0 ? 1 : kind == 1 ? 2 + rng_below(&t->r, MOST - 1) : 4;
        uint32_t na[BATCH];
        for (uint32_t b = 0; b < BATCH; b++) na[b] = rng_below(&t->r, rows + 1);
        ok = rows_in(t, both, 2);
        for (uint32_t i = 0; ok && i < 2; i++) {
            if (kind == 0) {
                ok = go(t, both[i], OP_DECODE, 1, NULL);
                continue;
            }
            ok = put(t, both[i], B_NA, na) && go(t, both[i], OP_CLEAR, 0, NULL) &&
                 go(t, both[i], kind == 1 ? OP_VERIFY : OP_WOA, rows, NULL) && go(t, both[i], OP_FOLD, rows, NULL);
        }
        ok = ok && same(t, &dev, &cpu, B_OUT, (uint64_t)rows * BATCH * NV * D * 2, "outputs") &&
             same(t, &dev, &cpu, B_POOL, bytes_of[B_POOL], "states");
        kinds[kind]++;
    }
    gt_figure(t, "rounds", n);
    (void)gt_check(t, !ok || n < 50 || (kinds[0] && kinds[1] && kinds[2]), "a kind of round did not come up");
    if (ok) { /* control: one row in one accepted count more is seen */
        const uint32_t na[BATCH] = { 1, 1, 1, 1, 1 }, more[BATCH] = { 1, 1, 2, 1, 1 };
        ok = rows_in(t, both, 2) && put(t, &dev, B_NA, more) && put(t, &cpu, B_NA, na);
        for (uint32_t i = 0; ok && i < 2; i++)
            ok = go(t, both[i], OP_CLEAR, 0, NULL) && go(t, both[i], OP_WOA, 4, NULL) && go(t, both[i], OP_FOLD, 4, NULL);
        uint8_t *x = malloc(2 * bytes_of[B_POOL]);
        ok = ok && x && gdn_copy_out(dev.g, NULL, x, dev.mem[B_POOL], bytes_of[B_POOL]) == GDN_OK &&
             gdn_copy_out(cpu.g, NULL, x + bytes_of[B_POOL], cpu.mem[B_POOL], bytes_of[B_POOL]) == GDN_OK;
        (void)gt_check(t, ok && memcmp(x, x + bytes_of[B_POOL], bytes_of[B_POOL]) != 0, "control: another count leaves the same states");
        free(x);
    }
    side_down(&dev);
    side_down(&cpu);
    gt_end(t);
}

/* Rounds in one launch each, two at a time on the same rows and counts, out of a graph where `captured`; against the cpu target. */
static bool round_pair(gt *t, side *s, void *stream) {
    return go_round(t, s, 1, stream) && go_round(t, s, 0, stream);
}
static bool round_replay(gt *t, side *dev, gpu_graph *graph, void *stream) {
    return gt_check(t, gdn_sync(dev->g, NULL) == GDN_OK, "sync") && gt_check(t, gpu_graph_go(t->clock, graph, stream), "replay") &&
           gt_check(t, gdn_sync(dev->g, stream) == GDN_OK, "sync");
}
static void one_launch(gt *t, uint32_t n, bool captured) {
    side dev, cpu, *const both[] = { &dev, &cpu };
    void *stream = NULL;
    gpu_graph graph = { 0 };
    if (!gt_begin(t, "%s", captured ? "round_graph_replayed_with_other_counts" : "round_in_one_launch_bytes")) return;
    if (captured && !gt_needs_device(t)) {
        gt_end(t);
        return;
    }
    const bool one = side_up(t, &dev, t->target, 0), other = side_up(t, &cpu, "cpu", 0); /* both: both are taken down */
    bool ok = one && other && states_in(t, both, 2);
    for (uint32_t i = 0; ok && i < 2; i++) {
        gdn *const g = both[i]->g;
        ok = gdn_fill(g, NULL, both[i]->mem[B_FLAG], 0, 4) == GDN_OK && gdn_fill(g, NULL, both[i]->mem[B_FLAG2], 0, 4) == GDN_OK;
        ok = gt_check(t, ok && gdn_sync(g, NULL) == GDN_OK, "the words");
    }
    if (ok && captured)
        ok = gt_check(t, (stream = gpu_stream(t->clock, true)) != NULL, "stream") &&
             gt_check(t, gpu_capture_begin(t->clock, stream, 0), "capture") && round_pair(t, &dev, stream) &&
             gt_check(t, gpu_capture_end(t->clock, stream, &graph), "end of capture");
    for (uint32_t r = 0; ok && r < n; r++) {
        uint32_t na[BATCH];
        for (uint32_t b = 0; b < BATCH; b++) na[b] = (r + b) % 6;
        ok = rows_in(t, both, 2) && put(t, &dev, B_NA, na) && put(t, &cpu, B_NA, na) &&
             (captured ? round_replay(t, &dev, &graph, stream) : round_pair(t, &dev, NULL)) && round_pair(t, &cpu, NULL) &&
             same(t, &dev, &cpu, B_OUT, BATCH * 4ull * NV * D * 2, "outputs") && same(t, &dev, &cpu, B_POOL, bytes_of[B_POOL], "states") &&
             same(t, &dev, &cpu, B_STASH, bytes_of[B_STASH], "stash") && same(t, &dev, &cpu, B_STASH2, bytes_of[B_STASH2], "other stash");
    }
    if (captured) gpu_graph_free(t->clock, &graph);
    if (stream) gpu_stream_free(t->clock, stream);
    side_down(&dev);
    side_down(&cpu);
    gt_end(t);
}

/* clear, deferred verify and fold captured once; replayed with other rows and other counts. */
static void replays(gt *t) {
    side dev, cpu, *const both[] = { &dev, &cpu };
    void *stream = NULL;
    gpu_graph graph = { 0 };
    if (!gt_begin(t, "%s", "verify_fold_graph_replayed_with_other_counts")) return;
    if (gt_needs_device(t)) {
        const bool one = side_up(t, &dev, t->target, 0), other = side_up(t, &cpu, "cpu", 0); /* both: both are taken down */
        bool ok = one && other;
        ok = ok && states_in(t, both, 2) && gt_check(t, (stream = gpu_stream(t->clock, true)) != NULL, "stream");
        ok = ok && gt_check(t, gpu_capture_begin(t->clock, stream, 0), "capture") && go(t, &dev, OP_CLEAR, 0, stream) &&
             go(t, &dev, OP_WOA, 4, stream) && go(t, &dev, OP_FOLD, 4, stream) &&
             gt_check(t, gpu_capture_end(t->clock, stream, &graph), "end of capture");
        for (uint32_t r = 0; ok && r < 12; r++) {
            uint32_t na[BATCH];
            for (uint32_t b = 0; b < BATCH; b++) na[b] = (r + b) % 5;
            ok = rows_in(t, both, 2) && put(t, &dev, B_NA, na) && put(t, &cpu, B_NA, na) &&
                 gt_check(t, gdn_sync(dev.g, NULL) == GDN_OK, "sync") && gt_check(t, gpu_graph_go(t->clock, &graph, stream), "replay") &&
                 gt_check(t, gdn_sync(dev.g, stream) == GDN_OK, "sync") && go(t, &cpu, OP_CLEAR, 0, NULL) && go(t, &cpu, OP_WOA, 4, NULL) &&
                 go(t, &cpu, OP_FOLD, 4, NULL) && same(t, &dev, &cpu, B_OUT, BATCH * 4ull * NV * D * 2, "outputs") &&
                 same(t, &dev, &cpu, B_POOL, bytes_of[B_POOL], "states");
        }
        gpu_graph_free(t->clock, &graph);
        if (stream) gpu_stream_free(t->clock, stream);
        side_down(&dev);
        side_down(&cpu);
    }
    gt_end(t);
}

void gt_test_step(gt *t) {
    rounds(t, t->clock ? t->brief ? 12 : 1000 : 3);
    if (!t->brief) replays(t);
    one_launch(t, t->clock ? 12 : 3, false);
    if (!t->brief) one_launch(t, 12, true);
}
