/* engine_plans.c - one plan an operation, for the engine's maxima; all layers use the same plans.
 *
 * A verify of fewer than four rows, or one that write-on-accept is not asked for, goes by `verify`; fold then copies the kept
 * state, or applies the stash: one way to accept for both. Where the target has `round`, accepted rows of a write-on-accept verify wait
 * for the next one, which folds them; whatever else comes first folds them by itself. */
#include "engine_internal.h"
#include "engine_text.h"

static gdn_status make(gdn_engine *e, uint32_t slot, const gdn_shape *shape, gdn_text *err) {
    char buf[400] = "";
    gdn_text why = { buf, sizeof buf, 0 };
    const gdn_status s = gdn_plan_make(e->g, shape, NULL, &e->plans[slot], &why);
    if (s == GDN_OK) return GDN_OK;
    if (buf[0]) return gdn__engine_say(err, s, "no plan for this checkpoint: %s", buf); /* it names the operation */
    return gdn__engine_say(err, s, "no plan for this checkpoint: %s: %s", gdn_op_name(shape->op), gdn_status_text(s));
}

static gdn_shape base(const gdn_engine *e, uint32_t op, uint64_t size, uint32_t flags) {
    return (gdn_shape) { .struct_size = (uint32_t)size, .op = op, .flags = flags, .act_type = e->act };
}

static gdn_status make_conv(gdn_engine *e, uint32_t slot, uint32_t tokens, uint32_t flags, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const gdn_conv_shape shape = {
        .base = base(e, GDN_OP_CONV_FUSED, sizeof shape, flags),
        .channels = gdn_config_channels(c),
        .width = c->conv_width,
        .state_len = c->conv_width - 1 + e->max_rows,
        .x_stride = gdn_config_qkvz(c),
        .silu = GDN_CONV_ACT_SILU,
        .weight_type = e->act,
        .offsets = GDN_OFFSETS_NONE,
        .max_tokens = tokens,
        .max_batch = 1,
        .nk = c->nk,
        .nv = c->nv,
        .k_dim = c->k_dim,
        .v_dim = c->v_dim,
    };
    return make(e, slot, &shape.base, err);
}

static gdn_status make_rule(gdn_engine *e, uint32_t slot, uint32_t op, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const uint32_t channels = gdn_config_channels(c);
    const bool deferred = op == GDN_OP_VERIFY_WOA || op == GDN_OP_FOLD || op == GDN_OP_ROUND;
    const gdn_rule_shape shape = {
        .base = base(e, op, sizeof shape, 0),
        .nk = c->nk,
        .nv = c->nv,
        .k_dim = c->k_dim,
        .v_dim = c->v_dim,
        .qk_stride = channels,
        .v_stride = channels,
        .gate_form = GDN_GATE_LINEAR,
        .head_map = GDN_HEADS_GROUPED,
        .state_layout = GDN_STATE_K_MAJOR,
        .state_addr = GDN_STATE_CONTIGUOUS,
        .state_type = GDN_F32,
        .offsets = GDN_OFFSETS_NONE,
        .max_tokens = e->segment,
        .max_batch = 1,
        .max_rows = e->max_rows,
        .stash_seqs = deferred && e->woa ? 1 : 0,
        .layers = c->layers,
    };
    return make(e, slot, &shape.base, err);
}

static gdn_status make_rest(gdn_engine *e, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const gdn_ba_shape ba = {
        .base = base(e, GDN_OP_BA_GATES, sizeof ba, 0),
        .N = 2 * c->nv,
        .K = c->hidden,
        .nv = c->nv,
        .vheads_per_group = c->nv / c->nk,
        .weight_type = e->act,
        .max_m = e->segment,
    };
    const gdn_norm_shape norm = {
        .base = base(e, GDN_OP_NORM, sizeof norm, 0),
        .dim = c->v_dim,
        .heads = c->nv,
        .z_stride = gdn_config_qkvz(c),
        .act = GDN_NORM_SILU,
        .weight_type = e->act,
        .max_rows = e->segment * c->nv,
        .eps = c->eps,
    };
    const gdn_flag_shape clear = { .base = base(e, GDN_OP_FLAG_CLEAR, sizeof clear, 0) };
    gdn_status s = make(e, GDN__PLAN_BA, &ba.base, err);
    if (s == GDN_OK) s = make(e, GDN__PLAN_NORM, &norm.base, err);
    if (s == GDN_OK) s = make(e, GDN__PLAN_CLEAR, &clear.base, err);
    return s;
}

/* The fused decode step, where the target has it for this model. The gates are ba_gates' (f32, never rounded), so that a step has the
 * bytes of the launches that it stands for. */
static gdn_status make_step(gdn_engine *e, gdn_text *err) {
    const gdn_model_config *c = &e->c;
    const gdn_step_shape shape = {
        .base = base(e, GDN_OP_DECODE_STEP, sizeof shape, 0),
        .nk = c->nk,
        .nv = c->nv,
        .k_dim = c->k_dim,
        .v_dim = c->v_dim,
        .width = c->conv_width,
        .state_len = c->conv_width - 1 + e->max_rows,
        .x_stride = gdn_config_qkvz(c),
        .z_stride = gdn_config_qkvz(c),
        .weight_type = e->act,
        .gates = GDN_STEP_GATES_MADE,
        .head_map = GDN_HEADS_GROUPED,
        .state_type = GDN_F32,
        .norm_act = GDN_NORM_SILU,
        .norm_weight_type = e->act,
        .eps = c->eps,
        .max_batch = 1,
    };
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    if (gdn_describe(e->g, &info) || info.abi_minor < 2) return GDN_OK; /* a plugin that does not know the operation */
    const gdn_status s = make(e, GDN__PLAN_STEP, &shape.base, err);
    if (s <= 0) return s;
    if (err && err->cap) err->len = 0, err->buf[0] = 0; /* refused or absent: no complaint */
    return GDN_OK;
}

/* A round in one launch, where the target has it: the same bytes as fold and verify_woa. */
static gdn_status make_round(gdn_engine *e, gdn_text *err) {
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    if (!e->woa || gdn_describe(e->g, &info) || info.abi_minor < 3) return GDN_OK;
    const gdn_status s = make_rule(e, GDN__PLAN_ROUND, GDN_OP_ROUND, err);
    if (s <= 0) return s;
    if (err && err->cap) err->len = 0, err->buf[0] = 0; /* refused or absent: no complaint */
    return GDN_OK;
}

static gdn_status workspace_of(const gdn_engine *e, uint32_t plan, uint64_t *bytes, gdn_text *err) {
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const gdn_status s = gdn_explain(e->plans[plan], 0, NULL, &r);
    if (s < 0) return gdn__engine_say(err, s, "explain: %s", gdn_status_text(s));
    if (r.workspace_bytes > *bytes) *bytes = r.workspace_bytes;
    return GDN_OK;
}

/* One workspace serves all plans, whose launches follow each other on one stream, but the fused step's, which keeps counts in its, and
 * w4a4's (engine_fp4.c). */
static gdn_status make_workspace(gdn_engine *e, gdn_text *err) {
    uint64_t bytes = 0, step = 0;
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && i < GDN__PLAN_QUANT; i++)
        if (e->plans[i]) s = workspace_of(e, i, i == GDN__PLAN_STEP ? &step : &bytes, err);
    if (s == GDN_OK && step) s = gdn__arena_zeros(&e->mem, step, &e->step_workspace, err);
    return s == GDN_OK && bytes ? gdn__arena_take(&e->mem, bytes, &e->workspace, err) : s;
}

gdn_status gdn__plans_make(gdn_engine *e, gdn_text *err) {
    gdn_status s = make_conv(e, GDN__PLAN_CONV, e->segment, 0, err);
    if (s == GDN_OK) s = make_conv(e, GDN__PLAN_CONV_ROWS, e->max_rows, GDN_CONV_KEEP_ROWS, err);
    if (s == GDN_OK) s = make_rule(e, GDN__PLAN_PREFILL, GDN_OP_PREFILL, err);
    if (s == GDN_OK) s = make_rule(e, GDN__PLAN_DECODE, GDN_OP_DECODE, err);
    if (s == GDN_OK) s = make_rule(e, GDN__PLAN_VERIFY, GDN_OP_VERIFY, err);
    if (s == GDN_OK && e->woa) s = make_rule(e, GDN__PLAN_WOA, GDN_OP_VERIFY_WOA, err);
    if (s == GDN_OK) s = make_rule(e, GDN__PLAN_FOLD, GDN_OP_FOLD, err);
    if (s == GDN_OK) s = make_round(e, err);
    if (s == GDN_OK) s = make_rest(e, err);
    if (s == GDN_OK) s = make_step(e, err);
    if (s == GDN_OK) s = make_workspace(e, err);
    if (s == GDN_OK) s = gdn__fp4_plans_make(e, err);
    return s;
}

gdn_status gdn__plan_launch(gdn_engine *e, uint32_t plan, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32) {
    const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args,
                                   .n_ptr = n_ptr,
                                   .n_u32 = n_u32,
                                   .stream = gdn__stream_handle(e->stream),
                                   .ptr = ptr,
                                   .u32 = u32 };
    const gdn_status s = gdn_launch(e->plans[plan], &args);
    gdn__used *used = &e->used[plan];
    used->launches++;
    used->n = n_u32;
    for (uint32_t i = 0; i < n_u32 && i < 3; i++) used->u32[i] = u32[i];
    return s;
}
