/* gt_decode_step.c - the fused decode step on the device beside the four launches that it stands for: conv state, state and output byte
 * for byte, token after token; the form for few sequences, the one for many, and that one with the state asked for ahead. A captured step
 * is replayed: its counts must be zero again each time. */
#include "gt.h"
#include "step_shapes.h"
#include <stdlib.h>
#include <string.h>

enum { D = STEP_DIM };
enum {
    X,
    Z,
    A,
    B,
    WEIGHT,
    NORM_WEIGHT,
    A_LOG,
    DT_BIAS,
    SLOTS,
    FRESH,
    ROWS,
    GATES,
    CORE,
    WORKSPACE,
    CONV,
    STATE,
    OUT,
    LISTED,
    ARRAYS = LISTED + 3
};
enum { FUSED, CONVOLVE, MAKE_GATES, DECODE, NORM, PLANS };

/* Of CONV, STATE and OUT there are two: the chain's, and the fused step's behind the list. */
typedef struct stepping {
    gdn *g;
    uint32_t nk, nv, batch, channels;
    uint64_t bytes[ARRAYS], mem[ARRAYS];
    gdn_hplan *plan[PLANS];
} stepping;
static uint32_t of(uint32_t array, bool fused) {
    return array >= CONV && fused ? array + 3 : array;
}

static bool put(gt *t, stepping *s, uint32_t array, const void *from) {
    return gt_check(t, gdn_copy_in(s->g, NULL, s->mem[array], from, s->bytes[array]) == GDN_OK && gdn_sync(s->g, NULL) == GDN_OK, "copy");
}
static bool fill(gt *t, stepping *s, uint32_t array, uint32_t type, double lo, double hi) {
    const uint64_t n = s->bytes[array] / num_size(type);
    void *v = malloc(s->bytes[array]);
    if (!v) return gt_check(t, false, "out of memory");
    num_fill(v, type, n, &t->r, lo, hi);
    bool ok = put(t, s, array, v);
    if (ok && (array == CONV || array == STATE)) ok = put(t, s, of(array, true), v);
    free(v);
    return ok;
}

static bool plans(gt *t, stepping *s) {
    step_shapes all = step_shapes_of(s->nk, s->nv, s->batch);
    all.rule.state_addr = GDN_STATE_POOL;
    const gdn_shape *const shape[PLANS] = { &all.fused.base, &all.conv.base, &all.gates.base, &all.rule.base, &all.norm.base };
    char why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    bool ok = true;
    for (uint32_t i = 0; ok && i < PLANS; i++)
        ok = gt_check(t, gdn_plan_make(s->g, shape[i], NULL, &s->plan[i], &err) == GDN_OK, "plan: %s", why);
    return ok;
}

static bool up(gt *t, stepping *s, uint32_t nk, uint32_t nv, uint32_t batch) {
    *s = (stepping) { .g = t->dev, .nk = nk, .nv = nv, .batch = batch, .channels = (2 * nk + nv) * D };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    if (!plans(t, s) || !gt_check(t, gdn_explain(s->plan[FUSED], 0, NULL, &route) == GDN_OK, "explain")) return false;
    const uint64_t values = (uint64_t)batch * nv * D, rows = (uint64_t)batch * s->channels;
    const uint64_t bytes[LISTED] = { [X] = 2 * rows,
                                     [Z] = 2 * values,
                                     [A] = 2ull * batch * nv,
                                     [B] = 2ull * batch * nv,
                                     [WEIGHT] = 8ull * s->channels,
                                     [NORM_WEIGHT] = 2 * D,
                                     [A_LOG] = 4ull * nv,
                                     [DT_BIAS] = 4ull * nv,
                                     [SLOTS] = 4ull * batch,
                                     [FRESH] = batch,
                                     [ROWS] = 2 * rows,
                                     [GATES] = 8ull * batch * nv,
                                     [CORE] = 2 * values,
                                     [WORKSPACE] = route.workspace_bytes ? route.workspace_bytes : 64,
                                     [CONV] = 6 * rows,
                                     [STATE] = 4 * values * D,
                                     [OUT] = 2 * values };
    bool ok = true;
    for (uint32_t i = 0; ok && i < ARRAYS; i++) {
        s->bytes[i] = bytes[i < LISTED ? i : i - 3];
        ok =
            gt_check(t, gdn_mem_alloc(s->g, s->bytes[i], &s->mem[i]) == GDN_OK && gdn_fill(s->g, NULL, s->mem[i], 0, s->bytes[i]) == GDN_OK,
                     "device memory");
    }
    int32_t *slots = gt_keep(t, s->bytes[SLOTS]);
    uint8_t *fresh = gt_keep(t, s->bytes[FRESH]);
    for (uint32_t b = 0; b < batch; b++) slots[b] = b % 5 == 3 ? -1 : (int32_t)(batch - 1 - b), fresh[b] = b % 7 == 2;
    return ok && put(t, s, SLOTS, slots) && put(t, s, FRESH, fresh) && fill(t, s, WEIGHT, GDN_BF16, -1, 1) &&
           fill(t, s, NORM_WEIGHT, GDN_BF16, 0.5, 1.5) && fill(t, s, A_LOG, GDN_F32, -3, 1) && fill(t, s, DT_BIAS, GDN_F32, -2, 2) &&
           fill(t, s, CONV, GDN_BF16, -2, 2) && fill(t, s, STATE, GDN_F32, -0.3, 0.3);
}
static void down(stepping *s) {
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(s->plan[i]);
    for (uint32_t i = 0; i < ARRAYS; i++) gdn_mem_free(s->g, s->mem[i]);
}

static bool token(gt *t, stepping *s) {
    return fill(t, s, X, GDN_BF16, -2, 2) && fill(t, s, Z, GDN_BF16, -3, 3) && fill(t, s, A, GDN_BF16, -4, 4) &&
           fill(t, s, B, GDN_BF16, -4, 4);
}

static bool go(gt *t, const stepping *s, uint32_t plan, void *stream, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32,
               uint32_t n_u32) {
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr, n_u32, 0, stream, ptr, u32 };
    return gt_check(t, gdn_launch(s->plan[plan], &args) == GDN_OK, "launch");
}
static bool by_four(gt *t, const stepping *s) {
    const uint64_t *m = s->mem, k = m[ROWS] + 2ull * s->nk * D, v = k + 2ull * s->nk * D, beta = m[GATES] + 4ull * s->nv;
    const uint64_t conv[GDN_CONV_FUSED_N_PTR] = { m[X], m[WEIGHT], 0, m[CONV], m[SLOTS], m[FRESH], m[ROWS], k, v };
    const uint64_t gates[GDN_GATES_N_PTR] = { m[A], m[B], m[A_LOG], m[DT_BIAS], m[GATES] };
    const uint64_t rule[GDN_DECODE_N_PTR] = { m[STATE], m[ROWS], k, v, m[GATES], beta, m[CORE], 0, m[SLOTS], 0, m[FRESH] };
    const uint64_t norm[GDN_NORM_N_PTR] = { m[CORE], m[Z], m[NORM_WEIGHT], m[OUT] };
    const uint32_t tokens[] = { s->batch, 1 }, heads = s->batch * s->nv;
    return go(t, s, CONVOLVE, NULL, conv, GDN_CONV_FUSED_N_PTR, tokens, 2) &&
           go(t, s, MAKE_GATES, NULL, gates, GDN_GATES_N_PTR, tokens, 1) && go(t, s, DECODE, NULL, rule, GDN_DECODE_N_PTR, tokens, 1) &&
           go(t, s, NORM, NULL, norm, GDN_NORM_N_PTR, &heads, 1);
}
static bool by_one(gt *t, const stepping *s, void *stream) {
    const uint64_t *m = s->mem;
    const uint64_t ptr[GDN_DECODE_STEP_N_PTR] = { m[X],           m[WEIGHT],        0,          m[of(CONV, true)],  m[A],
                                                  m[B],           m[A_LOG],         m[DT_BIAS], m[of(STATE, true)], m[Z],
                                                  m[NORM_WEIGHT], m[of(OUT, true)], m[SLOTS],   m[FRESH],           0,
                                                  m[WORKSPACE] };
    return go(t, s, FUSED, stream, ptr, GDN_DECODE_STEP_N_PTR, &s->batch, 1);
}

/* A padding row's output is zero here; the norm alone makes a zero of either sign, so signs of zeros are not looked at. */
static bool same(gt *t, const stepping *s, uint32_t array, const char *what) {
    const uint64_t n = s->bytes[array];
    uint8_t *x = malloc(2 * n);
    bool ok = x && gdn_copy_out(s->g, NULL, x, s->mem[array], n) == GDN_OK &&
              gdn_copy_out(s->g, NULL, x + n, s->mem[of(array, true)], n) == GDN_OK;
    for (uint64_t i = 0; ok && array == OUT && i < 2 * n; i += 2)
        if (x[i] == 0 && x[i + 1] == 0x80) x[i + 1] = 0;
    ok = gt_check(t, ok, "copy") && gt_same_bytes(t, x, x + n, n, what);
    free(x);
    return ok;
}
static bool all_same(gt *t, const stepping *s) {
    return gt_check(t, gdn_sync(s->g, NULL) == GDN_OK, "sync") && same(t, s, CONV, "conv states") && same(t, s, STATE, "states") &&
           same(t, s, OUT, "outputs");
}

static void steps(gt *t, const char *name, uint32_t nk, uint32_t nv, uint32_t batch, uint32_t tokens, const char *entry) {
    stepping s = { 0 };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    if (!gt_begin(t, "decode_step_is_its_four_launches_%s", name)) return;
    bool ok = up(t, &s, nk, nv, batch);
    ok = ok && gt_check(t, gdn_explain(s.plan[FUSED], 1, &batch, &route) == GDN_OK, "explain");
    if (ok && t->clock) ok = gt_check(t, strcmp(route.entry, entry) == 0, "%s would run, not %s", route.entry, entry);
    for (uint32_t i = 0; ok && i < tokens; i++) ok = token(t, &s) && by_four(t, &s) && by_one(t, &s, NULL) && all_same(t, &s);
    gt_figure(t, "tokens", tokens);
    if (ok && batch < 8) { /* control: another x for one of them is seen */
        ok = token(t, &s) && by_four(t, &s) && fill(t, &s, X, GDN_BF16, -2, 2) && by_one(t, &s, NULL);
        uint8_t *x = malloc(2 * s.bytes[STATE]);
        ok = ok && x && gdn_copy_out(s.g, NULL, x, s.mem[STATE], s.bytes[STATE]) == GDN_OK &&
             gdn_copy_out(s.g, NULL, x + s.bytes[STATE], s.mem[of(STATE, true)], s.bytes[STATE]) == GDN_OK;
        (void)gt_check(t, ok && memcmp(x, x + s.bytes[STATE], s.bytes[STATE]) != 0, "control: another x leaves the same states");
        free(x);
    }
    if (s.g) down(&s);
    gt_end(t);
}

static void replayed(gt *t) {
    stepping s = { 0 };
    gpu_graph graph = { 0 };
    void *stream = NULL;
    if (!gt_begin(t, "%s", "decode_step_graph_replayed")) return;
    if (gt_needs_device(t)) {
        bool ok = up(t, &s, 4, 12, 5) && gt_check(t, (stream = gpu_stream(t->clock, true)) != NULL, "stream");
        ok = ok && gt_check(t, gpu_capture_begin(t->clock, stream, 0), "capture") && by_one(t, &s, stream) &&
             gt_check(t, gpu_capture_end(t->clock, stream, &graph), "end of capture");
        for (uint32_t i = 0; ok && i < 20; i++)
            ok = token(t, &s) && gt_check(t, gpu_graph_go(t->clock, &graph, stream), "replay") &&
                 gt_check(t, gdn_sync(s.g, stream) == GDN_OK, "sync") && by_four(t, &s) && all_same(t, &s);
        gpu_graph_free(t->clock, &graph);
        if (stream) gpu_stream_free(t->clock, stream);
        down(&s);
    }
    gt_end(t);
}

void gt_test_decode_step(gt *t) {
    steps(t, "few_sequences", 4, 12, 5, t->brief ? 2 : 12, "gdn_decode_step_wide");
    steps(t, "a_key_head_each", 3, 3, 3, 3, "gdn_decode_step_wide");
    if (t->brief || !t->clock) return;
    steps(t, "many_sequences", 16, 48, 20, 3, "gdn_decode_step");
    steps(t, "the_state_ahead", 16, 48, 80, 2, "gdn_decode_step");
    replayed(t);
}
