/* test_by_sequence.c - mixed batches by sequence (GDN_VERIFY_BY_SEQUENCE): rounds in which sequences bring different numbers of rows,
 * are deferred, kept, decoded or left out, in launches of any order with padding between them, and are accepted in part, whole or not
 * at all. What comes out of a round is each sequence alone: the bytes of a plain verify of its rows, and the f64 recurrence over all
 * rounds. */
#include "guard.h"
#include "oracle.h"
#include "target.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NK = 1, NV = 2, D = 128, SEQS = 7, SLOTS = SEQS + 3, MOST = 6, ENTRIES = SEQS + 3, ROWS = ENTRIES * MOST };
enum { ONE = D * D, STATE = NV * ONE, QK = NK * D, VW = NV * D, PAD = 0xFFFF };
enum { SKIPPED, DECODED, DEFERRED, FOURS, KEPT, KINDS }; /* FOURS: deferred in a launch without offsets */
enum { P_DECODE, P_DEFERRED, P_FOURS, P_KEPT, P_FOLD, P_CLEAR, P_ALONE, PLANS };

/* The rows of one sequence in one round. */
typedef struct turn {
    uint32_t kind, rows, accepted;
    uint8_t q[MOST * QK * 4], k[MOST * QK * 4], v[MOST * VW * 4];
    float gb[MOST * 2 * NV];
} turn;

typedef struct world {
    uint32_t act, size, addr, left; /* size: of an activation; left: sequences that are fresh */
    gdn_hplan *plan[PLANS];
    int32_t slot[SEQS];
    uint8_t fresh[SEQS];
    guard pool, hi, hi_tab, stash, record, ws;
    float *want;            /* the whole pool, and what it must become  */
    double *exact;          /* [SEQS][NV][K][V]                         */
    guard out, state, kept; /* of one sequence alone: rows, state, after each row but the last */
    uint8_t *rows_want;     /* [SEQS][MOST][VW] activations             */
    float *after;           /* [SEQS][MOST][STATE]                      */
    turn t[SEQS];
    uint32_t seen[KINDS], whole, none;
    rng r;
} world;

static void *need(uint64_t bytes) {
    void *p = calloc(1, bytes);
    if (!p) abort();
    return p;
}

static gdn_hplan *plan_for(const world *w, uint32_t op, uint32_t flags, uint32_t offsets, uint32_t rows) {
    const gdn_rule_shape s = { .base = { (uint32_t)sizeof s, op, flags, w->act },
                               .nk = NK,
                               .nv = NV,
                               .k_dim = D,
                               .v_dim = D,
                               .gate_form = GDN_GATE_LINEAR,
                               .state_addr = op == GDN_OP_VERIFY && !flags ? (uint32_t)GDN_STATE_CONTIGUOUS : w->addr,
                               .state_type = GDN_F32,
                               .offsets = offsets,
                               .max_batch = op == GDN_OP_VERIFY && !flags ? 1 : ENTRIES,
                               .max_rows = rows,
                               .slab_entries = ENTRIES + 5,
                               .stash_seqs = ENTRIES };
    return plan_ok(&s);
}

/* The state of a sequence, and what it must be. */
static float *place(const world *w, uint32_t id) {
    return (float *)(void *)w->pool.p + (uint64_t)w->slot[id] * STATE;
}
static float *want_of(const world *w, uint32_t id) {
    return w->want + (uint64_t)w->slot[id] * STATE;
}

static void up(world *w, uint32_t addr) {
    const uint32_t by = GDN_VERIFY_BY_SEQUENCE;
    const gdn_flag_shape clear = { { (uint32_t)sizeof clear, GDN_OP_FLAG_CLEAR, by, 0 } };
    memset(w, 0, sizeof *w);
    w->act = target_act(), w->size = num_size(w->act), w->addr = addr, w->r.s = addr;
    w->plan[P_DECODE] = plan_for(w, GDN_OP_DECODE, 0, 0, 1);
    w->plan[P_DEFERRED] = plan_for(w, GDN_OP_VERIFY_WOA, by, GDN_OFFSETS_I32, 4);
    w->plan[P_FOURS] = plan_for(w, GDN_OP_VERIFY_WOA, by, 0, 4);
    w->plan[P_KEPT] = plan_for(w, GDN_OP_VERIFY, by, GDN_OFFSETS_I64, MOST);
    w->plan[P_FOLD] = plan_for(w, GDN_OP_FOLD, by, 0, MOST);
    w->plan[P_CLEAR] = plan_ok(&clear);
    w->plan[P_ALONE] = plan_for(w, GDN_OP_VERIFY, 0, 0, MOST);
    w->pool = guard_alloc((uint64_t)SLOTS * STATE * 4);
    w->hi = guard_alloc((uint64_t)ENTRIES * MOST * STATE * 4);
    w->hi_tab = guard_alloc((uint64_t)MOST * (ENTRIES + 5) * 8);
    w->stash = guard_alloc(ENTRIES * 4ull * (VW + NV + QK) * 4);
    w->record = guard_alloc(ENTRIES * 4);
    w->ws = guard_alloc(4096);
    w->out = guard_alloc((uint64_t)MOST * VW * w->size);
    w->state = guard_alloc(STATE * 4);
    w->kept = guard_alloc((MOST - 1ull) * STATE * 4);
    w->want = need(w->pool.bytes);
    w->exact = need((uint64_t)SEQS * STATE * 8);
    w->rows_want = need((uint64_t)SEQS * MOST * VW * 4);
    w->after = need((uint64_t)SEQS * MOST * STATE * 4);
    num_fill(w->pool.p, GDN_F32, w->pool.bytes / 4, &w->r, -0.1, 0.1);
    memcpy(w->want, w->pool.p, w->pool.bytes);
    guard_poison(&w->hi), guard_poison(&w->stash), guard_poison(&w->record);
    memset(w->hi_tab.p, 0, w->hi_tab.bytes);
    for (uint32_t t = 0; t < MOST; t++)
        for (uint32_t id = 0; id < SEQS; id++)
            ((uint64_t *)(void *)w->hi_tab.p)[t * (ENTRIES + 5) + id] = addr_of(w->hi.p + ((uint64_t)t * ENTRIES + id) * STATE * 4);
    for (uint32_t id = 0; id < SEQS; id++) {
        w->slot[id] = (int32_t)((id * 3 + 1) % SLOTS);
        for (uint32_t i = 0; i < STATE; i++) w->exact[id * (uint64_t)STATE + i] = (double)want_of(w, id)[i];
    }
}

static void down(world *w) {
    guard *const g[] = { &w->pool, &w->hi, &w->hi_tab, &w->stash, &w->record, &w->ws, &w->out, &w->state, &w->kept };
    for (uint32_t i = 0; i < N_OF(g); i++) {
        assert_true(guard_ok(g[i]));
        guard_free(g[i]);
    }
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(w->plan[i]);
    free(w->want), free(w->exact), free(w->rows_want), free(w->after);
}

/* Something for every sequence; sometimes a new tenant, whose slot holds anything. */
static void draw(world *w) {
    for (uint32_t id = 0; id < SEQS; id++) {
        turn *t = &w->t[id];
        t->kind = rng_below(&w->r, KINDS);
        t->rows = t->kind == DECODED ? 1 : t->kind == FOURS ? 4 : rng_below(&w->r, t->kind == KEPT ? MOST + 1 : 5);
        t->accepted = rng_below(&w->r, t->rows + 2); /* one more than there are: all of them */
        w->seen[t->kind]++;
        w->whole += t->rows > 1 && t->accepted >= t->rows;
        w->none += t->rows > 1 && t->accepted == 0 && t->kind >= DEFERRED;
        for (uint32_t r = 0; r < MOST; r++) {
            num_fill(t->q + (uint64_t)r * QK * w->size, w->act, QK, &w->r, -0.12, 0.12);
            num_fill(t->k + (uint64_t)r * QK * w->size, w->act, QK, &w->r, -0.12, 0.12);
            num_fill(t->v + (uint64_t)r * VW * w->size, w->act, VW, &w->r, -0.5, 0.5);
            for (uint32_t h = 0; h < NV; h++) {
                t->gb[r * 2 * NV + h] = (float)rng_uniform(&w->r, 0.8, 0.999);
                t->gb[r * 2 * NV + NV + h] = (float)rng_uniform(&w->r, 0.05, 0.95);
            }
        }
        if (rng_below(&w->r, 8) || w->fresh[id]) continue;
        w->fresh[id] = 1;
        memset(place(w, id), 0xFF, STATE * 4);
        memset(want_of(w, id), 0xFF, STATE * 4);
    }
}

/* The reference: a plain verify of the sequence alone, all its rows. */
static void alone(world *w, uint32_t id) {
    const turn *t = &w->t[id];
    const uint32_t u32[] = { t->rows, 1 };
    if (t->rows == 0) return;
    guard_put(&w->state, place(w, id));
    const uint64_t ptr[] = { addr_of(w->state.p),
                             addr_of(t->q),
                             addr_of(t->k),
                             addr_of(t->v),
                             addr_of(t->gb),
                             addr_of(t->gb + NV),
                             addr_of(w->out.p),
                             addr_of(w->kept.p),
                             0,
                             0,
                             0,
                             0,
                             addr_of(&w->fresh[id]),
                             0 };
    assert_int_equal(launch(w->plan[P_ALONE], N_OF(ptr), ptr, 2, u32), GDN_OK);
    float *const after = w->after + (uint64_t)id * MOST * STATE;
    memcpy(after, w->kept.p, (t->rows - 1ull) * STATE * 4);
    memcpy(after + (t->rows - 1ull) * STATE, w->state.p, STATE * 4);
    memcpy(w->rows_want + (uint64_t)id * MOST * VW * w->size, w->out.p, (uint64_t)t->rows * VW * w->size);
}

/* Some sequences as one launch, in this order, with padding between them. */
typedef struct cut {
    uint32_t n, entry[ENTRIES], rows[ENTRIES], total;
    int32_t slot[ENTRIES], id[ENTRIES], cu32[ENTRIES + 1];
    int64_t cu64[ENTRIES + 1];
    uint64_t table[ENTRIES];
    uint32_t na[ENTRIES];
    uint8_t fresh[ENTRIES];
} cut;

static void add(world *w, cut *c, uint32_t entry, uint32_t rows) {
    const bool pad = entry == PAD;
    const uint32_t i = c->n++;
    c->entry[i] = entry;
    c->rows[i] = rows;
    c->slot[i] = pad ? -1 : w->slot[entry];
    c->table[i] = pad ? 0 : addr_of(place(w, entry));
    c->id[i] = pad ? 0x7FFFFFFF : (int32_t)entry;
    c->fresh[i] = pad ? 1 : w->fresh[entry];
    c->na[i] = pad ? 77 : w->t[entry].accepted;
    c->total += rows;
    c->cu32[i + 1] = (int32_t)c->total;
    c->cu64[i + 1] = c->total;
}

/* The sequences of `kinds`, shuffled. */
static cut gather(world *w, uint32_t kinds, bool halved, uint32_t half, uint32_t pad_rows) {
    cut c = { 0 };
    uint32_t list[SEQS], n = 0, pads = rng_below(&w->r, 3);
    for (uint32_t id = 0; id < SEQS; id++)
        if (kinds >> w->t[id].kind & 1 && (!halved || id % 2 == half)) list[n++] = id;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = rng_below(&w->r, i), x = list[j];
        list[j] = list[i - 1];
        list[i - 1] = x;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (pads && rng_below(&w->r, 2)) pads--, add(w, &c, PAD, pad_rows);
        add(w, &c, list[i], w->t[list[i]].rows);
    }
    if (pads) add(w, &c, PAD, pad_rows);
    return c;
}

static void assert_rows(const world *w, const cut *c, const guard *out) {
    static const uint8_t zero[MOST * VW * 4];
    uint64_t row = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const uint64_t bytes = (uint64_t)c->rows[i] * VW * w->size;
        const uint8_t *const want = c->entry[i] == PAD ? zero : w->rows_want + (uint64_t)c->entry[i] * MOST * VW * w->size;
        if (bytes && memcmp(want, out->p + row * VW * w->size, bytes) != 0)
            fail_msg("entry %u of a launch: not the rows of sequence %d alone", i, c->id[i]);
        row += c->rows[i];
    }
    assert_true(guard_ok(out));
}

/* kind: which plan, and so which pointers. */
static void verify(world *w, uint32_t plan, const cut *c) {
    guard q = guard_alloc((uint64_t)c->total * QK * w->size + 16), k = guard_alloc(q.bytes);
    guard v = guard_alloc((uint64_t)c->total * VW * w->size + 16), out = guard_alloc((uint64_t)c->total * VW * w->size + 16);
    guard gb = guard_alloc(c->total * 2ull * NV * 4 + 16);
    guard *const all[] = { &q, &k, &v, &out, &gb };
    uint64_t row = 0;
    if (c->n == 0) goto done;
    for (uint32_t i = 0; i < N_OF(all); i++) guard_poison(all[i]);
    for (uint32_t i = 0; i < c->n; row += c->rows[i++]) {
        if (c->entry[i] == PAD) continue;
        const turn *t = &w->t[c->entry[i]];
        memcpy(q.p + row * QK * w->size, t->q, (uint64_t)c->rows[i] * QK * w->size);
        memcpy(k.p + row * QK * w->size, t->k, (uint64_t)c->rows[i] * QK * w->size);
        memcpy(v.p + row * VW * w->size, t->v, (uint64_t)c->rows[i] * VW * w->size);
        memcpy(gb.p + row * 2 * NV * 4, t->gb, c->rows[i] * 2ull * NV * 4);
    }
    const bool table = w->addr == GDN_STATE_TABLE, woa = plan == P_DEFERRED || plan == P_FOURS;
    const uint64_t state = table ? addr_of(c->table) : addr_of(w->pool.p), slots = table ? 0 : addr_of(c->slot),
                   beta = addr_of(gb.p + NV * 4);
    const uint64_t record = addr_of(w->record.p), ids = addr_of(c->id), ws = addr_of(w->ws.p), fresh = addr_of(c->fresh);
    const uint64_t hi = table ? addr_of(w->hi_tab.p) : addr_of(w->hi.p);
    const uint64_t decode[] = {
        state, addr_of(q.p), addr_of(k.p), addr_of(v.p), addr_of(gb.p), beta, addr_of(out.p), 0, slots, 0, fresh, ws
    };
    const uint64_t deferred[] = { state,
                                  addr_of(q.p),
                                  addr_of(k.p),
                                  addr_of(v.p),
                                  addr_of(gb.p),
                                  beta,
                                  addr_of(out.p),
                                  addr_of(w->stash.p),
                                  record,
                                  slots,
                                  fresh,
                                  ws,
                                  plan == P_DEFERRED ? addr_of(c->cu32) : 0,
                                  ids };
    const uint64_t kept[] = {
        state, addr_of(q.p), addr_of(k.p), addr_of(v.p), addr_of(gb.p), beta, addr_of(out.p), hi, addr_of(c->cu64), 0, slots,
        0,     fresh,        ws,           ids,          record
    };
    const uint32_t two[] = { woa ? 4 : MOST, c->n };
    gdn_status st;
    if (plan == P_DECODE)
        st = launch(w->plan[plan], N_OF(decode), decode, 1, &c->n);
    else if (woa)
        st = launch(w->plan[plan], N_OF(deferred), deferred, 2, two);
    else
        st = launch(w->plan[plan], N_OF(kept), kept, 2, two);
    if (st != GDN_OK) fail_msg("%s: %s", gdn_status_name(st), target_log_text());
    assert_rows(w, c, &out);
done:
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
}

static void fold(world *w, const cut *c) {
    const bool table = w->addr == GDN_STATE_TABLE;
    const uint64_t ptr[] = { table ? addr_of(c->table) : addr_of(w->pool.p),
                             addr_of(w->stash.p),
                             addr_of(c->na),
                             table ? addr_of(w->hi_tab.p) : addr_of(w->hi.p),
                             addr_of(w->record.p),
                             table ? 0 : addr_of(c->slot),
                             addr_of(c->fresh),
                             0,
                             addr_of(c->id) };
    const uint32_t u32[] = { MOST, c->n };
    const gdn_status st = launch(w->plan[P_FOLD], N_OF(ptr), ptr, 2, u32);
    if (st != GDN_OK) fail_msg("fold: %s: %s", gdn_status_name(st), target_log_text());
}

/* How many rows of a sequence count after the round. */
static uint32_t taken(const turn *t) {
    if (t->kind == SKIPPED) return 0;
    return t->kind == DECODED || t->accepted > t->rows ? t->rows : t->accepted;
}

/* The f64 recurrence over the rows that count, and the state of the round against it. */
static void assert_exact(world *w, uint32_t id, const float *got) {
    const turn *t = &w->t[id];
    double *const S = w->exact + (uint64_t)id * STATE, q[D], k[D], v[D], *const x = need(STATE * sizeof *x);
    if (w->fresh[id]) memset(S, 0, STATE * sizeof *S);
    for (uint32_t r = 0; r < taken(t); r++)
        for (uint32_t h = 0; h < NV; h++) {
            for (uint32_t i = 0; i < D; i++) {
                q[i] = num_get(t->q, w->act, (uint64_t)r * QK + i);
                k[i] = num_get(t->k, w->act, (uint64_t)r * QK + i);
                v[i] = num_get(t->v, w->act, (uint64_t)r * VW + h * D + i);
            }
            oracle_token(S + (uint64_t)h * ONE, D, D, q, k, v, (double)t->gb[r * 2 * NV + h], (double)t->gb[r * 2 * NV + NV + h], 1, NULL);
        }
    for (uint32_t i = 0; i < STATE; i++) x[i] = (double)got[i];
    const num_error e = num_compare(S, x, STATE);
    free(x);
    if (!num_close(&e, 1e-5)) fail_msg("sequence %u: relative RMS %.3g from that many plain tokens in f64", id, e.rel_rms);
}

static void one_round(world *w) {
    draw(w);
    for (uint32_t id = 0; id < SEQS; id++) alone(w, id);
    int32_t every[SEQS + 1]; /* cleared in some order; a negative one is nobody */
    for (uint32_t i = 0; i < SEQS; i++) every[i] = (int32_t)(SEQS - 1 - i);
    every[SEQS] = -1;
    const uint64_t clear[] = { addr_of(w->record.p), addr_of(every) };
    const uint32_t words = N_OF(every);
    assert_int_equal(launch(w->plan[P_CLEAR], 2, clear, 1, &words), GDN_OK);
    const cut decoded = gather(w, 1u << DECODED, false, 0, 1), fours = gather(w, 1u << FOURS, false, 0, 4);
    const cut deferred[] = { gather(w, 1u << DEFERRED, true, 0, 3), gather(w, 1u << DEFERRED, true, 1, 0) };
    const cut kept[] = { gather(w, 1u << KEPT, true, 0, 2), gather(w, 1u << KEPT, true, 1, MOST) };
    verify(w, P_KEPT, &kept[0]);
    verify(w, P_DEFERRED, &deferred[0]);
    verify(w, P_DECODE, &decoded);
    verify(w, P_FOURS, &fours);
    verify(w, P_DEFERRED, &deferred[1]);
    verify(w, P_KEPT, &kept[1]);
    for (uint32_t id = 0; id < SEQS; id++)
        if (w->t[id].kind != DECODED) /* no verify has written a state */
            assert_memory_equal(want_of(w, id), place(w, id), STATE * 4);
    for (uint32_t half = 0; half < 2; half++) { /* all of them, those that no verify saw as well */
        const cut c = gather(w, (1u << KINDS) - 1, true, half, 0);
        fold(w, &c);
    }
    for (uint32_t id = 0; id < SEQS; id++) {
        const uint32_t n = taken(&w->t[id]);
        if (n == 0) continue;
        memcpy(want_of(w, id), w->after + ((uint64_t)id * MOST + n - 1) * STATE, STATE * 4);
        assert_exact(w, id, place(w, id));
        w->fresh[id] = 0;
    }
    assert_memory_equal(w->want, w->pool.p, w->pool.bytes); /* the right ones, and no other slot */
}

static void rounds_of_mixed_batches(void **state) {
    (void)state;
    const uint32_t rounds = target_is_light() ? 20 : 200;
    for (uint32_t addr = GDN_STATE_POOL; addr <= GDN_STATE_TABLE; addr++) {
        world *const w = need(sizeof *w);
        up(w, addr);
        for (uint32_t i = 0; i < rounds; i++) one_round(w);
        for (uint32_t i = 0; rounds > 20 && i < KINDS; i++) assert_true(w->seen[i] > rounds / 4);
        assert_true(rounds <= 20 || (w->whole > rounds / 4 && w->none > rounds / 10));
        down(w);
        free(w);
    }
}

/* The harness sees a state that is not the right one. */
static void control_a_wrong_count_is_seen(void **state) {
    (void)state;
    world *const w = need(sizeof *w);
    up(w, GDN_STATE_POOL);
    draw(w);
    w->t[0].kind = DEFERRED, w->t[0].rows = 4, w->t[0].accepted = 2, w->fresh[0] = 0;
    num_fill(place(w, 0), GDN_F32, STATE, &w->r, -0.1, 0.1);
    for (uint32_t id = 1; id < SEQS; id++) w->t[id].kind = SKIPPED;
    alone(w, 0);
    const uint64_t clear[] = { addr_of(w->record.p), 0 };
    const uint32_t words = SEQS;
    assert_int_equal(launch(w->plan[P_CLEAR], 2, clear, 1, &words), GDN_OK);
    cut c = gather(w, 1u << DEFERRED, false, 0, 0);
    verify(w, P_DEFERRED, &c);
    for (uint32_t i = 0; i < c.n; i++) c.na[i] = 3;
    fold(w, &c);
    assert_memory_not_equal(w->after + 1ull * STATE, place(w, 0), STATE * 4);
    assert_memory_equal(w->after + 2ull * STATE, place(w, 0), STATE * 4);
    down(w);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_of_mixed_batches),
        cmocka_unit_test(control_a_wrong_count_is_seen),
    };
    return cmocka_run_group_tests_name("by sequence", tests, target_setup, target_teardown);
}
