/* gt_sequence.c - mixed batches by sequence, and states in bf16: rounds on the device and on the cpu target, byte for byte (K-major states,
 * linear gates). */
#include "gt.h"
#include <stdlib.h>
#include <string.h>

enum { NK = 2, NV = 4, D = 128, SEQS = 6, SLOTS = SEQS + 3, MOST = 6, ROWS = SEQS * MOST };
enum { B_Q, B_K, B_V, B_GB, B_OUT, B_POOL, B_HI, B_STASH, B_RECORD, B_SLOTS, B_IDS, B_CU, B_NA, B_N };
static const uint64_t bytes_of[B_N] = {
    [B_Q] = ROWS * NK * D * 2ull,
    [B_K] = ROWS * NK * D * 2ull,
    [B_V] = ROWS * NV * D * 2ull,
    [B_GB] = ROWS * 2ull * NV * 4,
    [B_OUT] = ROWS * NV * D * 2ull,
    [B_POOL] = SLOTS * (uint64_t)NV * D * D * 4, /* bf16 ones take half of it, and of hi */
    [B_HI] = SEQS * (uint64_t)MOST * NV * D * D * 4,
    [B_STASH] = SEQS * 4ull * (NV * D + NV + NK * D) * 4,
    [B_RECORD] = SEQS * 4,
    [B_SLOTS] = SEQS * 4,
    [B_IDS] = SEQS * 4,
    [B_CU] = (SEQS + 1) * 4,
    [B_NA] = SEQS * 4,
};
enum { P_WOA, P_VERIFY, P_FOLD, P_CLEAR, P_DECODE16, P_VERIFY16, PLANS };
typedef struct side {
    gdn *g;
    uint64_t mem[B_N];
    gdn_hplan *plan[PLANS];
} side;

static bool plans(gt *t, side *s) {
    static const uint32_t op[PLANS] = { GDN_OP_VERIFY_WOA, GDN_OP_VERIFY, GDN_OP_FOLD, GDN_OP_FLAG_CLEAR, GDN_OP_DECODE, GDN_OP_VERIFY };
    char why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    bool ok = true;
    for (uint32_t i = 0; ok && i < PLANS; i++) {
        const bool half = i >= P_DECODE16;
        gdn_flag_shape clear = { .base = GT_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
        gdn_rule_shape r = { .base = GT_BASE(gdn_rule_shape, op[i]),
                             .nk = NK,
                             .nv = NV,
                             .k_dim = D,
                             .v_dim = D,
                             .gate_form = GDN_GATE_LINEAR,
                             .state_addr = GDN_STATE_POOL,
                             .state_type = half ? GDN_BF16 : GDN_F32,
                             .offsets = i == P_WOA || i == P_VERIFY ? GDN_OFFSETS_I32 : GDN_OFFSETS_NONE,
                             .max_batch = SEQS,
                             .max_rows = half || i == P_WOA ? 4 : MOST,
                             .hi_capacity = MOST,
                             .stash_seqs = SEQS,
                             .num_slots = SLOTS };
        clear.base.flags = GDN_VERIFY_BY_SEQUENCE;
        r.base.flags = half ? GDN_BF16_STATE : GDN_VERIFY_BY_SEQUENCE;
        ok = gt_check(t, gdn_plan_make(s->g, i == P_CLEAR ? &clear.base : &r.base, NULL, &s->plan[i], &err) == GDN_OK, "plan: %s", why);
    }
    return ok;
}
static bool side_up(gt *t, side *s, const char *target) {
    memset(s, 0, sizeof *s);
    s->g = gt_open(t, target, "gdn_woa", "1", NULL);
    bool ok = s->g != NULL;
    for (uint32_t i = 0; ok && i < B_N; i++)
        ok = gt_check(
            t, gdn_mem_alloc(s->g, bytes_of[i], &s->mem[i]) == GDN_OK && gdn_fill(s->g, NULL, s->mem[i], 0xFF, bytes_of[i]) == GDN_OK,
            "device memory");
    return ok && plans(t, s);
}
static void side_down(side *s) {
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(s->plan[i]);
    for (uint32_t i = 0; i < B_N && s->g; i++) gdn_mem_free(s->g, s->mem[i]);
    gdn_close(s->g);
}
static bool put(gt *t, side *sides, uint32_t buf, const void *src) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < 2; i++)
        ok = gt_check(t, gdn_copy_in(sides[i].g, NULL, sides[i].mem[buf], src, bytes_of[buf]) == GDN_OK, "copy");
    return ok;
}
static bool put_random(gt *t, side *sides, uint32_t buf, uint32_t type, double lo, double hi) {
    const uint64_t n = bytes_of[buf] / (type == GDN_F32 ? 4 : 2);
    void *const host = malloc(bytes_of[buf]);
    if (host) num_fill(host, type, n, &t->r, lo, hi);
    const bool ok = host && put(t, sides, buf, host);
    free(host);
    return ok;
}
static bool rows_in(gt *t, side *sides) {
    float gb[ROWS * 2 * NV];
    for (uint32_t i = 0; i < GT_N(gb); i++) gb[i] = (float)rng_uniform(&t->r, i % (2 * NV) < NV ? 0.7 : 0, 1);
    return put_random(t, sides, B_Q, GDN_BF16, -0.12, 0.12) && put_random(t, sides, B_K, GDN_BF16, -0.12, 0.12) &&
           put_random(t, sides, B_V, GDN_BF16, -1, 1) && put(t, sides, B_GB, gb);
}
static bool same(gt *t, side *sides, uint32_t buf, const char *what) {
    const uint64_t n = bytes_of[buf];
    uint8_t *const x = malloc(2 * n);
    bool ok = x != NULL;
    for (uint32_t i = 0; ok && i < 2; i++) ok = gdn_copy_out(sides[i].g, NULL, x + i * n, sides[i].mem[buf], n) == GDN_OK;
    ok = gt_check(t, ok, "copy") && gt_same_bytes(t, x, x + n, n, what);
    free(x);
    return ok;
}

static bool go(gt *t, side *sides, uint32_t plan, uint32_t rows, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < 2; i++) {
        const uint64_t *const m = sides[i].mem, beta = m[B_GB] + NV * 4, u = plan == P_WOA || plan == P_VERIFY ? m[B_CU] : 0;
        const uint64_t woa[] = { m[B_POOL],  m[B_Q],      m[B_K],     m[B_V], m[B_GB], beta, m[B_OUT],
                                 m[B_STASH], m[B_RECORD], m[B_SLOTS], 0,      0,       u,    m[B_IDS] };
        const uint64_t kept[] = { m[B_POOL], m[B_Q], m[B_K],     m[B_V], m[B_GB], beta, m[B_OUT], m[B_HI],
                                  u,         0,      m[B_SLOTS], 0,      0,       0,    m[B_IDS], m[B_RECORD] };
        const uint64_t fold[] = { m[B_POOL], m[B_STASH], m[B_NA], m[B_HI], m[B_RECORD], m[B_SLOTS], 0, 0, m[B_IDS] };
        const uint64_t clear[] = { m[B_RECORD] };
        const uint64_t decode[] = { m[B_POOL], m[B_Q], m[B_K], m[B_V], m[B_GB], beta, m[B_OUT], 0, m[B_SLOTS] };
        const uint64_t *const ptr[PLANS] = { woa, kept, fold, clear, decode, kept };
        const uint32_t n_ptr[PLANS] = { GT_N(woa), GT_N(kept), GT_N(fold), GT_N(clear), GT_N(decode), GT_N(kept) - 2 };
        const uint32_t two[] = { rows, n }, *const u32 = plan == P_CLEAR || plan == P_DECODE16 ? &two[1] : two;
        const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr[plan], u32 == two ? 2 : 1, 0, NULL, ptr[plan], u32 };
        const gdn_status st = gdn_launch(sides[i].plan[plan], &args);
        ok = gt_check(t, st == GDN_OK, "plan %u: %s", plan, gdn_status_name(st));
    }
    return ok;
}

/* Sequences list[0..n) as one launch with rows of their own, a padding slot among them now and then. */
static bool verify(gt *t, side *sides, uint32_t plan, const uint32_t *list, uint32_t n, const uint32_t *rows) {
    int32_t slots[SEQS], ids[SEQS], cu[SEQS + 1] = { 0 };
    for (uint32_t i = 0; i < SEQS; i++) {
        const uint32_t id = i < n ? list[i] : 0;
        ids[i] = (int32_t)id;
        slots[i] = i < n && !(i == 1 && rows[id] == 2) ? (int32_t)((id * 2 + 1) % SLOTS) : -1;
        cu[i + 1] = cu[i] + (i < n ? (int32_t)rows[id] : 0);
    }
    if (n == 0) return true;
    return rows_in(t, sides) && put(t, sides, B_SLOTS, slots) && put(t, sides, B_IDS, ids) && put(t, sides, B_CU, cu) &&
           go(t, sides, plan, plan == P_WOA ? 4 : MOST, n) && same(t, sides, B_OUT, "outputs");
}

static bool one_round(gt *t, side *sides) {
    uint32_t list[SEQS], rows[SEQS], na[SEQS], deferred = rng_below(&t->r, SEQS), kept = rng_below(&t->r, SEQS - deferred + 1);
    int32_t slots[SEQS], ids[SEQS];
    for (uint32_t i = 0; i < SEQS; i++) list[i] = i;
    for (uint32_t i = SEQS; i > 1; i--) {
        const uint32_t j = rng_below(&t->r, i), x = list[j];
        list[j] = list[i - 1];
        list[i - 1] = x;
    }
    for (uint32_t i = 0; i < SEQS; i++) rows[list[i]] = rng_below(&t->r, i < deferred ? 5 : MOST + 1);
    bool ok = go(t, sides, P_CLEAR, 0, SEQS) && verify(t, sides, P_WOA, list, deferred, rows) &&
              verify(t, sides, P_VERIFY, list + deferred, kept, rows);
    for (uint32_t i = 0; i < SEQS; i++) { /* all of them, in order; those that no launch had as well */
        ids[i] = (int32_t)i;
        slots[i] = (int32_t)((i * 2 + 1) % SLOTS);
        na[i] = rng_below(&t->r, MOST + 2);
    }
    return ok && put(t, sides, B_SLOTS, slots) && put(t, sides, B_IDS, ids) && put(t, sides, B_NA, na) &&
           go(t, sides, P_FOLD, MOST, SEQS) && same(t, sides, B_RECORD, "record") && same(t, sides, B_POOL, "states");
}

static void by_sequence(gt *t, uint32_t n) {
    side sides[2];
    if (!gt_begin(t, "by_sequence_%u_mixed_rounds_bytes", n)) return;
    bool ok = side_up(t, &sides[0], t->target);
    ok = side_up(t, &sides[1], "cpu") && ok;
    ok = ok && put_random(t, sides, B_POOL, GDN_F32, -0.1, 0.1);
    for (uint32_t r = 0; ok && r < n; r++) ok = one_round(t, sides);
    gt_figure(t, "rounds", n);
    side_down(&sides[0]), side_down(&sides[1]);
    gt_end(t);
}

/* Decode, and verify of 1 to 4 rows with the states between them. */
static void bf16_state(gt *t, uint32_t n) {
    static const int32_t slots[SEQS] = { 5, 0, -1, 7, 2, 3 };
    side sides[2];
    if (!gt_begin(t, "bf16_state_%u_rounds_bytes", n)) return;
    bool ok = side_up(t, &sides[0], t->target);
    ok = side_up(t, &sides[1], "cpu") && ok;
    ok = ok && put_random(t, sides, B_POOL, GDN_BF16, -0.1, 0.1) && put(t, sides, B_SLOTS, slots);
    for (uint32_t r = 0; ok && r < n; r++) {
        const uint32_t rows = rng_below(&t->r, 5);
        ok = rows_in(t, sides) && (rows ? go(t, sides, P_VERIFY16, rows, SEQS) : go(t, sides, P_DECODE16, 1, SEQS)) &&
             same(t, sides, B_OUT, "outputs") && same(t, sides, B_HI, "states between rows") && same(t, sides, B_POOL, "states");
    }
    gt_figure(t, "rounds", n);
    side_down(&sides[0]), side_down(&sides[1]);
    gt_end(t);
}

void gt_test_sequence(gt *t) {
    const uint32_t n = t->clock ? t->brief ? 10 : 200 : 3;
    by_sequence(t, n);
    bf16_state(t, n / 2 + 1);
}
