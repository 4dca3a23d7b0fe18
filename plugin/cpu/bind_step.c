/* bind_step.c - the fused decode step: its pointers, and scratch rows in the workspace, become the calls that it is made of. */
#include "cpu_plugin.h"

static uint64_t up(uint64_t bytes) {
    return (bytes + 63) & ~(uint64_t)63;
}
static uint32_t size_of(uint32_t type) {
    return type == GDN_F32 ? 4 : 2;
}

/* The scratch: convolved rows, gates, the rule's output, and the slots of a batch that gives none. */
typedef struct scratch {
    uint64_t conv, gates, core, slots, bytes;
} scratch;

static scratch scratch_of(const gdn_step_shape *s) {
    const uint64_t act = size_of(s->base.act_type), n = s->max_batch, values = (uint64_t)s->nv * s->v_dim;
    scratch w = { 0 };
    w.gates = up(n * (2 * (uint64_t)s->nk * s->k_dim + values) * act);
    w.core = w.gates + up(n * 2 * s->nv * sizeof(float));
    w.slots = w.core + up(n * values * act);
    w.bytes = w.slots + up(n * sizeof(int32_t));
    return w;
}

uint64_t cpu_step_workspace(const gdn_step_shape *s) {
    return scratch_of(s).bytes + 64; /* any alignment will do */
}

static void *at(uint64_t base, uint64_t offset) {
    return (void *)(uintptr_t)(up(base) + offset);
}

static gdn_cpu_conv conv_of(const gdn_plan *p, gdn__call *c, const scratch *w, const int32_t *slots) {
    const gdn_step_shape *s = &p->shape.step;
    const uint32_t act = size_of(s->base.act_type), wt = size_of(s->weight_type), qk = s->nk * s->k_dim;
    char *const rows = at(c->ptr[GDN_DECODE_STEP_P_WORKSPACE], w->conv);
    return (gdn_cpu_conv) {
        .x = gdn__call_ptr(c, GDN_DECODE_STEP_P_X, act),
        .weight = gdn__call_ptr(c, GDN_DECODE_STEP_P_WEIGHT, wt),
        .bias = gdn__call_ptr(c, GDN_DECODE_STEP_P_BIAS, wt),
        .state = gdn__call_ptr(c, GDN_DECODE_STEP_P_CONV_STATE, act),
        .slots = slots,
        .accepted = gdn__call_ptr(c, GDN_DECODE_STEP_P_ACCEPTED, 4),
        .fresh = gdn__call_ptr(c, GDN_DECODE_STEP_P_FRESH, 1),
        .out_q = rows,
        .out_k = rows + (uint64_t)qk * act,
        .out_v = rows + 2ull * qk * act,
        .slot_stride = s->conv_slot_stride,
        .batch = c->u32[GDN_DECODE_STEP_U_BATCH],
        .seq_len = 1,
        .channels = 2 * qk + s->nv * s->v_dim,
        .width = s->width,
        .state_len = s->state_len,
        .x_stride = s->x_stride,
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .q_stride = 2 * qk + s->nv * s->v_dim,
        .k_stride = 2 * qk + s->nv * s->v_dim,
        .v_stride = 2 * qk + s->nv * s->v_dim,
        .isa = p->ctx->isa,
        .f32 = s->base.act_type == GDN_F32,
        .weight_f32 = s->weight_type == GDN_F32,
        .silu = true,
    };
}

static gdn_cpu_gates gates_of(const gdn_step_shape *s, gdn__call *c, float *out) {
    const uint32_t size = s->gates == GDN_STEP_GATES_MADE ? 4 : size_of(s->base.act_type);
    return (gdn_cpu_gates) {
        .a = gdn__call_ptr(c, GDN_DECODE_STEP_P_A, size),
        .b = gdn__call_ptr(c, GDN_DECODE_STEP_P_B, size),
        .A_log = gdn__call_ptr(c, GDN_DECODE_STEP_P_A_LOG, 4),
        .dt_bias = gdn__call_ptr(c, GDN_DECODE_STEP_P_DT_BIAS, 4),
        .out = out,
        .rows = c->u32[GDN_DECODE_STEP_U_BATCH],
        .nv = s->nv,
        .a_stride = s->a_stride,
        .b_stride = s->b_stride,
        .gate_stride = 2 * s->nv,
        .vpg = s->vheads_per_group,
        .f32 = s->base.act_type == GDN_F32,
    };
}

static gdn_cpu_rule rule_of(const gdn_plan *p, gdn__call *c, const gdn_cpu_conv *v, void *out) {
    const gdn_step_shape *s = &p->shape.step;
    float *const state = gdn__call_ptr(c, GDN_DECODE_STEP_P_STATE, 4);
    return (gdn_cpu_rule) {
        .q = v->out_q,
        .k = v->out_k,
        .v = v->out_v,
        .out = out,
        .state = state,
        .state_out = state,
        .in_slots = v->slots,
        .out_slots = v->slots,
        .fresh = v->fresh,
        .state_stride = s->state_stride,
        .batch = v->batch,
        .seq_len = 1,
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .qk_stride = v->channels,
        .v_stride = v->channels,
        .addr = GDN_STATE_POOL,
        .isa = p->ctx->isa,
        .scale = s->scale,
        .f32 = v->f32,
        .tiled = s->head_map == GDN_HEADS_TILED,
    };
}

static gdn_cpu_norm norm_of(const gdn_plan *p, gdn__call *c, const void *x) {
    const gdn_step_shape *s = &p->shape.step;
    const uint32_t act = size_of(s->base.act_type);
    return (gdn_cpu_norm) {
        .x = x,
        .z = gdn__call_ptr(c, GDN_DECODE_STEP_P_Z, act),
        .w = gdn__call_ptr(c, GDN_DECODE_STEP_P_NORM_WEIGHT, size_of(s->norm_weight_type)),
        .out = gdn__call_ptr(c, GDN_DECODE_STEP_P_OUT, act),
        .rows = c->u32[GDN_DECODE_STEP_U_BATCH] * s->nv,
        .dim = s->v_dim,
        .heads = s->nv,
        .x_stride = s->nv * s->v_dim,
        .z_stride = s->z_stride,
        .isa = p->ctx->isa,
        .eps = s->eps,
        .f32 = s->base.act_type == GDN_F32,
        .weight_f32 = s->norm_weight_type == GDN_F32,
        .sigmoid = s->norm_act == GDN_NORM_SIGMOID,
    };
}

static gdn_status check(const gdn_step_shape *s, const gdn_cpu_step *k, gdn_text *err) {
    const gdn_cpu_conv *c = &k->conv;
    const gdn_status st = cpu_check_accepted(err, s->base.op, c->slots, c->accepted, c->batch, s->state_len - (s->width - 1));
    return !st && (s->base.flags & GDN_PLAN_CHECKED) ? cpu_check_step(s, c->slots, c->batch, err) : st;
}

gdn_status cpu_run_step(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_step_shape *s = &p->shape.step;
    const scratch w = scratch_of(s);
    const uint64_t base = c->ptr[GDN_DECODE_STEP_P_WORKSPACE];
    gdn_status st = gdn__dstep_needed(s, c, err);
    if (st) return st;
    if (!base)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'workspace' is NULL, the plan needs %llu bytes", gdn__op_name(s->base.op),
                         (unsigned long long)cpu_step_workspace(s));
    float *const gates = at(base, w.gates);
    int32_t *const dense = at(base, w.slots);
    const int32_t *const given = gdn__call_ptr(c, GDN_DECODE_STEP_P_SLOTS, 4);
    gdn_cpu_step k = { .made = s->gates == GDN_STEP_GATES_MADE };
    k.conv = conv_of(p, c, &w, given ? given : dense);
    k.gates = gates_of(s, c, gates);
    k.rule = rule_of(p, c, &k.conv, at(base, w.core));
    k.norm = norm_of(p, c, k.rule.out);
    k.rule.gate = k.made ? k.gates.a : gates;
    k.rule.beta = k.made ? k.gates.b : gates + s->nv;
    k.rule.gb_stride = k.made ? s->a_stride : 2 * s->nv;
    if ((st = gdn__call_bound(c, err))) return st;
    for (uint32_t b = 0; !given && b < k.conv.batch; b++) dense[b] = (int32_t)b;
    if ((st = check(s, &k, err))) return st;
    gdn_cpu_fused_step(&k);
    return GDN_OK;
}
