/* test_step_cases.c - the fused decode step beside the four launches that it stands for (conv_fused, gates, decode, norm), through the
 * public API on the target under test: conv state, state and output byte for byte, step after step; padding, fresh sequences, accepted
 * offsets, gates made before, column views; what a plan or launch refuses. */
#include "guard.h"
#include "numeric.h"
#include "target.h"
#include <stdlib.h>
#include <string.h>

enum { D = 128, W = 4 };

/* Zero fields take the default in the comment. */
typedef struct step_spec {
    uint32_t act;                    /* target_act() */
    uint32_t nk, nv, batch;          /* 1, 3, 2 */
    uint32_t x_pad, z_pad, conv_pad; /* elements behind a row of x, of z, behind a slot's conv state */
    uint32_t state_pad, extra, vpg;
    uint32_t weight_type, norm_type, head_map, norm_act; /* act, act, grouped, SiLU */
    bool bias, made;
    float scale;
    const int32_t *slots, *accepted;
    const uint8_t *fresh;
    uint32_t num_slots, flags; /* batch */
} step_spec;

typedef struct step_case {
    step_spec s;
    uint32_t channels, x_stride, z_stride, ab_stride, state_len;
    uint64_t conv_stride, state_stride;
    guard x, z, a, b, A_log, dt, weight, bias, norm_w, slots, accepted, fresh, gates;
    guard conv[2], state[2], out[2], rows, core, workspace; /* [0] of the chain, [1] of the fused step */
    gdn_hplan *plan, *p_conv, *p_gates, *p_rule, *p_norm;
} step_case;

static guard filled(uint64_t n, uint32_t type, rng *r, double lo, double hi) {
    const guard g = guard_alloc(n * num_size(type));
    num_fill(g.p, type, n, r, lo, hi);
    return g;
}

static void fresh_inputs(step_case *c, rng *r) {
    const step_spec *s = &c->s;
    num_fill(c->x.p, s->act, (uint64_t)s->batch * c->x_stride, r, -2, 2);
    num_fill(c->z.p, s->act, (uint64_t)s->batch * c->z_stride, r, -3, 3);
    num_fill(c->a.p, s->act, (uint64_t)s->batch * c->ab_stride, r, -4, 4);
    if (!s->vpg) num_fill(c->b.p, s->act, (uint64_t)s->batch * c->ab_stride, r, -4, 4);
    for (uint32_t i = 0; s->slots && i < s->batch; i++) /* padding: whatever it holds */
        if (s->slots[i] < 0) memset(c->z.p + (uint64_t)i * c->z_stride * num_size(s->act), 0xFF, (uint64_t)s->nv * D * num_size(s->act));
}

static gdn_step_shape shape_of(const step_case *c) {
    const step_spec *s = &c->s;
    gdn_step_shape shape = { .base = SHAPE_BASE(gdn_step_shape, GDN_OP_DECODE_STEP, s->act),
                             .nk = s->nk,
                             .nv = s->nv,
                             .k_dim = D,
                             .v_dim = D,
                             .width = W,
                             .state_len = c->state_len,
                             .x_stride = c->x_stride,
                             .z_stride = c->z_stride,
                             .weight_type = s->weight_type,
                             .gates = s->made ? GDN_STEP_GATES_MADE : GDN_STEP_GATES_RAW,
                             .a_stride = s->made ? 2 * s->nv : c->ab_stride,
                             .b_stride = s->made ? 2 * s->nv : c->ab_stride,
                             .vheads_per_group = s->made ? 0 : s->vpg,
                             .param_type = GDN_F32,
                             .head_map = s->head_map,
                             .state_type = GDN_F32,
                             .norm_act = s->norm_act,
                             .norm_weight_type = s->norm_type,
                             .eps = 1e-6f,
                             .scale = s->scale,
                             .max_batch = s->batch,
                             .conv_slot_stride = c->conv_stride,
                             .state_stride = c->state_stride,
                             .num_slots = s->num_slots };
    shape.base.flags = s->flags;
    return shape;
}

static void chain_plans(step_case *c) {
    const step_spec *s = &c->s;
    const gdn_conv_shape conv = { .base = SHAPE_BASE(gdn_conv_shape, GDN_OP_CONV_FUSED, s->act),
                                  .channels = c->channels,
                                  .width = W,
                                  .state_len = c->state_len,
                                  .x_stride = c->x_stride,
                                  .silu = 1,
                                  .weight_type = s->weight_type,
                                  .max_tokens = s->batch,
                                  .max_batch = s->batch,
                                  .nk = s->nk,
                                  .nv = s->nv,
                                  .k_dim = D,
                                  .v_dim = D,
                                  .slot_stride = c->conv_stride };
    const gdn_gates_shape gates = { .base = SHAPE_BASE(gdn_gates_shape, GDN_OP_GATES, s->act),
                                    .nv = s->nv,
                                    .a_stride = c->ab_stride,
                                    .b_stride = c->ab_stride,
                                    .vheads_per_group = s->vpg,
                                    .gate_form = GDN_GATE_LINEAR,
                                    .param_type = GDN_F32,
                                    .max_rows = s->batch };
    const gdn_rule_shape rule = { .base = SHAPE_BASE(gdn_rule_shape, GDN_OP_DECODE, s->act),
                                  .nk = s->nk,
                                  .nv = s->nv,
                                  .k_dim = D,
                                  .v_dim = D,
                                  .qk_stride = c->channels,
                                  .v_stride = c->channels,
                                  .gate_form = GDN_GATE_LINEAR,
                                  .head_map = s->head_map,
                                  .state_addr = GDN_STATE_POOL,
                                  .state_type = GDN_F32,
                                  .max_batch = s->batch,
                                  .scale = s->scale,
                                  .state_stride = c->state_stride };
    const gdn_norm_shape norm = { .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, s->act),
                                  .dim = D,
                                  .heads = s->nv,
                                  .z_stride = c->z_stride,
                                  .act = s->norm_act,
                                  .weight_type = s->norm_type,
                                  .max_rows = s->batch * s->nv,
                                  .eps = 1e-6f };
    c->p_conv = plan_ok(&conv);
    c->p_gates = plan_ok(&gates);
    c->p_rule = plan_ok(&rule);
    c->p_norm = plan_ok(&norm);
}

static void make(step_case *c, const step_spec *spec) {
    memset(c, 0, sizeof *c);
    c->s = *spec;
    step_spec *s = &c->s;
    s->act = target_is_cpu() && s->act ? s->act : target_act();
    s->nk = s->nk ? s->nk : 1;
    s->nv = s->nv ? s->nv : 3;
    s->batch = s->batch ? s->batch : 2;
    s->weight_type = s->weight_type ? s->weight_type : s->act;
    s->norm_type = s->norm_type ? s->norm_type : s->act;
    s->norm_act = s->norm_act ? s->norm_act : GDN_NORM_SILU;
    s->num_slots = s->num_slots ? s->num_slots : s->batch;
    c->channels = (2 * s->nk + s->nv) * D;
    c->x_stride = c->channels + s->x_pad;
    c->z_stride = s->nv * D + s->z_pad;
    c->ab_stride = s->vpg ? 2 * s->nv : s->nv;
    c->state_len = W - 1 + s->extra;
    c->conv_stride = (uint64_t)c->channels * c->state_len + s->conv_pad;
    c->state_stride = (uint64_t)s->nv * D * D + s->state_pad;
    rng r = { 7 + s->nv * 31 + s->batch };
    const uint64_t rows = s->batch, size = num_size(s->act);
    c->x = guard_alloc(rows * c->x_stride * size);
    c->z = guard_alloc(rows * c->z_stride * size);
    c->a = guard_alloc(rows * c->ab_stride * size);
    if (!s->vpg) c->b = guard_alloc(rows * c->ab_stride * size);
    c->A_log = filled(s->nv, GDN_F32, &r, -3, 1);
    c->dt = filled(s->nv, GDN_F32, &r, -2, 2);
    c->weight = filled((uint64_t)c->channels * W, s->weight_type, &r, -1, 1);
    if (s->bias) c->bias = filled(c->channels, s->weight_type, &r, -1, 1);
    c->norm_w = filled(D, s->norm_type, &r, 0.5, 1.5);
    c->conv[0] = filled(s->num_slots * c->conv_stride, s->act, &r, -2, 2);
    c->state[0] = filled(s->num_slots * c->state_stride, GDN_F32, &r, -0.5, 0.5);
    int32_t *slots = calloc(s->batch, sizeof *slots);
    assert_non_null(slots);
    for (uint32_t i = 0; i < s->batch; i++) slots[i] = s->slots ? s->slots[i] : (int32_t)i;
    c->slots = guard_of(slots, s->batch * 4ull);
    free(slots);
    if (s->accepted) c->accepted = guard_of(s->accepted, s->batch * 4ull);
    if (s->fresh) c->fresh = guard_of(s->fresh, s->batch);
    for (uint32_t i = 0; s->fresh && i < s->batch; i++) {
        if (!s->fresh[i] || ((int32_t *)(void *)c->slots.p)[i] < 0) continue;
        const uint64_t at = (uint64_t)((int32_t *)(void *)c->slots.p)[i];
        memset(c->conv[0].p + at * c->conv_stride * size, 0xFF, (uint64_t)c->channels * c->state_len * size);
        memset(c->state[0].p + at * c->state_stride * 4, 0xFF, (uint64_t)s->nv * D * D * 4);
    }
    c->conv[1] = guard_copy(&c->conv[0]);
    c->state[1] = guard_copy(&c->state[0]);
    c->gates = guard_alloc(rows * 2 * s->nv * 4);
    c->rows = guard_alloc(rows * c->channels * size);
    c->core = guard_alloc(rows * s->nv * D * size);
    for (uint32_t i = 0; i < 2; i++) c->out[i] = guard_alloc(rows * s->nv * D * size);
    const gdn_step_shape shape = shape_of(c);
    c->plan = plan_ok(&shape);
    chain_plans(c);
    c->workspace = guard_alloc(plan_workspace(c->plan));
    if (c->workspace.p) memset(c->workspace.p, 0, c->workspace.bytes);
    fresh_inputs(c, &r);
}

static void drop(step_case *c) {
    guard *all[] = { &c->x,        &c->z,      &c->a,        &c->b,     &c->A_log, &c->dt,       &c->weight,  &c->bias,
                     &c->norm_w,   &c->slots,  &c->accepted, &c->fresh, &c->gates, &c->conv[0],  &c->conv[1], &c->state[0],
                     &c->state[1], &c->out[0], &c->out[1],   &c->rows,  &c->core,  &c->workspace };
    for (uint32_t i = 0; i < N_OF(all); i++) guard_free(all[i]);
    gdn_hplan *plans[] = { c->plan, c->p_conv, c->p_gates, c->p_rule, c->p_norm };
    for (uint32_t i = 0; i < N_OF(plans); i++) gdn_plan_free(plans[i]);
}

static uint64_t b_rows(const step_case *c) {
    return c->s.vpg ? addr_of(c->a.p) + c->s.vpg * num_size(c->s.act) : addr_of(c->b.p);
}

static gdn_status run_fused(const step_case *c) {
    const step_spec *s = &c->s;
    const uint64_t g = addr_of(c->gates.p);
    const uint64_t ptr[GDN_DECODE_STEP_N_PTR] = {
        [GDN_DECODE_STEP_P_X] = addr_of(c->x.p),
        [GDN_DECODE_STEP_P_WEIGHT] = addr_of(c->weight.p),
        [GDN_DECODE_STEP_P_BIAS] = addr_of(c->bias.p),
        [GDN_DECODE_STEP_P_CONV_STATE] = addr_of(c->conv[1].p),
        [GDN_DECODE_STEP_P_A] = s->made ? g : addr_of(c->a.p),
        [GDN_DECODE_STEP_P_B] = s->made ? g + s->nv * 4ull : b_rows(c),
        [GDN_DECODE_STEP_P_A_LOG] = s->made ? 0 : addr_of(c->A_log.p),
        [GDN_DECODE_STEP_P_DT_BIAS] = s->made ? 0 : addr_of(c->dt.p),
        [GDN_DECODE_STEP_P_STATE] = addr_of(c->state[1].p),
        [GDN_DECODE_STEP_P_Z] = addr_of(c->z.p),
        [GDN_DECODE_STEP_P_NORM_WEIGHT] = addr_of(c->norm_w.p),
        [GDN_DECODE_STEP_P_OUT] = addr_of(c->out[1].p),
        [GDN_DECODE_STEP_P_SLOTS] = s->slots ? addr_of(c->slots.p) : 0,
        [GDN_DECODE_STEP_P_FRESH] = addr_of(c->fresh.p),
        [GDN_DECODE_STEP_P_ACCEPTED] = addr_of(c->accepted.p),
        [GDN_DECODE_STEP_P_WORKSPACE] = addr_of(c->workspace.p),
    };
    return launch(c->plan, N_OF(ptr), ptr, 1, &s->batch);
}

static void run_chain(const step_case *c) {
    const step_spec *s = &c->s;
    const uint64_t size = num_size(s->act), q = addr_of(c->rows.p), k = q + (uint64_t)s->nk * D * size, v = k + (uint64_t)s->nk * D * size;
    const uint64_t slots = addr_of(c->slots.p), fresh = addr_of(c->fresh.p), g = addr_of(c->gates.p);
    const uint64_t conv[] = {
        addr_of(c->x.p), addr_of(c->weight.p), addr_of(c->bias.p), addr_of(c->conv[0].p), slots, fresh, q, k, v, 0, addr_of(c->accepted.p)
    };
    const uint64_t gates[] = { addr_of(c->a.p), b_rows(c), addr_of(c->A_log.p), addr_of(c->dt.p), g };
    const uint64_t state = addr_of(c->state[0].p), core = addr_of(c->core.p);
    const uint64_t rule[] = { state, q, k, v, g, g + s->nv * 4ull, core, 0, slots, 0, fresh, 0 };
    const uint64_t norm[] = { core, addr_of(c->z.p), addr_of(c->norm_w.p), addr_of(c->out[0].p) };
    const uint32_t conv_u[] = { s->batch, 1 }, rows = s->batch * s->nv;
    assert_int_equal(launch(c->p_conv, N_OF(conv), conv, 2, conv_u), GDN_OK);
    assert_int_equal(launch(c->p_gates, N_OF(gates), gates, 1, &s->batch), GDN_OK);
    assert_int_equal(launch(c->p_rule, N_OF(rule), rule, 1, &s->batch), GDN_OK);
    assert_int_equal(launch(c->p_norm, N_OF(norm), norm, 1, &rows), GDN_OK);
    const uint64_t row = (uint64_t)s->nv * D * size;
    for (uint32_t i = 0; i < s->batch; i++) /* the fused step zeroes padding rows whatever their z is */
        if (((const int32_t *)(const void *)c->slots.p)[i] < 0) memset(c->out[0].p + i * row, 0, row);
}

static bool same(const step_case *c) {
    return !memcmp(c->conv[0].p, c->conv[1].p, c->conv[0].bytes) && !memcmp(c->state[0].p, c->state[1].p, c->state[0].bytes) &&
           !memcmp(c->out[0].p, c->out[1].p, c->out[0].bytes);
}

/* `steps` tokens, each from what the one before left. */
static void check(const step_spec *spec, uint32_t steps) {
    step_case c;
    make(&c, spec);
    rng r = { 99 };
    for (uint32_t t = 0; t < steps; t++) {
        guard_poison(&c.out[0]);
        guard_poison(&c.out[1]);
        run_chain(&c);
        const gdn_status st = run_fused(&c);
        if (st != GDN_OK) fail_msg("launch: %s: %s", gdn_status_name(st), target_log_text());
        if (!same(&c))
            fail_msg("step %u: conv state %s, state %s, output %s", t, memcmp(c.conv[0].p, c.conv[1].p, c.conv[0].bytes) ? "differs" : "ok",
                     memcmp(c.state[0].p, c.state[1].p, c.state[0].bytes) ? "differs" : "ok",
                     memcmp(c.out[0].p, c.out[1].p, c.out[0].bytes) ? "differs" : "ok");
        const guard *const all[] = { &c.conv[1], &c.state[1], &c.out[1], &c.workspace, &c.x };
        for (uint32_t i = 0; i < N_OF(all); i++) assert_true(guard_ok(all[i]));
        fresh_inputs(&c, &r);
    }
    drop(&c);
}

static void heads_and_types(void **state) {
    (void)state;
    static const uint32_t heads[][2] = { { 1, 1 }, { 1, 3 }, { 2, 4 }, { 2, 6 }, { 1, 4 } };
    for (uint32_t i = 0; i < N_OF(heads); i++)
        for (uint32_t act = GDN_BF16; act <= (target_is_cpu() ? GDN_F32 : GDN_BF16); act++) {
            step_spec s = { .act = act, .nk = heads[i][0], .nv = heads[i][1], .batch = 1 + i % 3 };
            check(&s, 3);
            s.bias = i % 2, s.weight_type = i % 3 ? GDN_F32 : 0, s.norm_type = GDN_F32, s.scale = i == 2 ? 0.25f : 0;
            s.head_map = GDN_HEADS_TILED, s.norm_act = GDN_NORM_SIGMOID;
            check(&s, 2);
        }
}

static void column_views(void **state) {
    (void)state;
    for (uint32_t i = 1; i < 4; i++) {
        const step_spec s = { .x_pad = 3 * i, .z_pad = i, .conv_pad = i, .state_pad = 4 * i, .nk = 1, .nv = 2 };
        check(&s, 2);
    }
}

static void padding_fresh_and_accepted(void **state) {
    (void)state;
    static const int32_t slots[] = { 4, -1, 0, 2 }, accepted[] = { 2, 77, 0, 4 };
    static const uint8_t fresh[] = { 0, 1, 1, 0 };
    for (uint32_t i = 0; i < 8; i++) {
        const step_spec s = { .batch = 4,
                              .slots = slots,
                              .num_slots = 6,
                              .extra = i & 1 ? 4 : 0,
                              .accepted = i & 1 && i & 2 ? accepted : NULL,
                              .fresh = i & 4 ? fresh : NULL };
        check(&s, i & 6 ? 1 : 3);
    }
}

static void gates_made_before(void **state) {
    (void)state;
    const step_spec interleaved = { .nk = 2, .nv = 6, .vpg = 3 }, made = { .nk = 2, .nv = 6, .vpg = 3, .made = true };
    check(&interleaved, 2);
    check(&made, 2); /* the chain's gates are the fused step's input */
}

/* More blocks than the form for few sequences takes. */
static void many_sequences(void **state) {
    (void)state;
    const step_spec s = { .nk = 2, .nv = TEST_LIGHT ? 4 : 64, .batch = TEST_LIGHT ? 3 : 20 };
    target_log_clear();
    check(&s, 1);
    if (!target_is_cpu() && !TEST_LIGHT) assert_true(target_logged("GDN decode step: gdn_decode_step grid=[32,2,20] block=256"));
}

static void no_sequences(void **state) {
    (void)state;
    step_case c;
    const step_spec s = { .batch = 2 };
    const uint64_t ptr[GDN_DECODE_STEP_N_PTR] = { 0 };
    const uint32_t none = 0, more = 3;
    make(&c, &s);
    assert_int_equal(launch(c.plan, N_OF(ptr), ptr, 1, &none), GDN_OK);
    assert_int_equal(launch(c.plan, N_OF(ptr), ptr, 1, &more), GDN_E_ARG);
    drop(&c);
}

static void refused_by_name(void **state) {
    (void)state;
    step_case c;
    const step_spec s = { .batch = 2 };
    make(&c, &s);
    gdn_step_shape bad = shape_of(&c);
    bad.k_dim = bad.v_dim = 64, bad.conv_slot_stride = bad.state_stride = 0;
    plan_fails(&bad, GDN_REFUSED, "k_dim or v_dim is not 128");
    bad = shape_of(&c);
    bad.width = 5, bad.state_len = 0, bad.conv_slot_stride = 0;
    plan_fails(&bad, GDN_REFUSED, "the convolution's width is not 4");
    bad = shape_of(&c);
    bad.state_type = GDN_BF16;
    plan_fails(&bad, GDN_REFUSED, "state is not f32");
    bad = shape_of(&c);
    bad.gates = 3;
    plan_fails(&bad, GDN_E_ARG, "gates");
    drop(&c);
}

static void checked_values(void **state) {
    (void)state;
    static const int32_t twice[] = { 1, 0, 1 }, far[] = { 0, 3, 1 }, slots[] = { 2, 1, 0 }, accepted[] = { 0, 3, 0 };
    const struct {
        const int32_t *slots, *accepted;
        const char *part;
    } rows[] = { { twice, NULL, "sequences 0 and 2 have the same slot, 1" },
                 { far, NULL, "slots[1] is slot 3, but the pool has 3" },
                 { slots, accepted, "accepted[1] is 3, expected 0 to 2" } };
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        step_case c;
        const step_spec s = {
            .batch = 3, .num_slots = 3, .extra = 2, .slots = rows[i].slots, .accepted = rows[i].accepted, .flags = GDN_PLAN_CHECKED
        };
        make(&c, &s);
        target_log_clear();
        assert_int_equal(run_fused(&c), GDN_E_CHECKED);
        if (!target_logged(rows[i].part)) fail_msg("%s", target_log_text());
        assert_memory_equal(c.conv[0].p, c.conv[1].p, c.conv[0].bytes); /* nothing was written */
        assert_memory_equal(c.state[0].p, c.state[1].p, c.state[0].bytes);
        drop(&c);
    }
}

static void control_spoilt_inputs_are_noticed(void **state) {
    (void)state;
    const step_spec s = { .batch = 2 };
    for (uint32_t i = 0; i < 7; i++) {
        step_case c;
        make(&c, &s);
        run_chain(&c);
        guard *const spoil[] = { &c.x, &c.z, &c.a, &c.b, &c.weight, &c.conv[1], &c.state[1] };
        spoil[i]->p[num_size(c.s.act) * 3 - 1] ^= 0x20;
        assert_int_equal(run_fused(&c), GDN_OK);
        assert_false(same(&c));
        drop(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_and_types),   cmocka_unit_test(column_views),   cmocka_unit_test(padding_fresh_and_accepted),
        cmocka_unit_test(gates_made_before), cmocka_unit_test(many_sequences), cmocka_unit_test(no_sequences),
        cmocka_unit_test(refused_by_name),   cmocka_unit_test(checked_values), cmocka_unit_test(control_spoilt_inputs_are_noticed),
    };
    return cmocka_run_group_tests_name("decode step cases", tests, target_setup, target_teardown);
}
