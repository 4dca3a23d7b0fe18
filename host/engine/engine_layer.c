/* engine_layer.c - one decoder layer over a block of rows, and the accepting of verified rows.
 *
 * e->rows.x holds the residual rows, in and out. */
#include "engine_internal.h"

static gdn_status run_conv(gdn_engine *e, const gdn__layer *l, uint32_t rows, uint32_t how) {
    const gdn_model_config *c = &e->c;
    const uint64_t q = e->rows.conv, size = gdn__type_bytes(e->act);
    const uint64_t ptr[GDN_CONV_FUSED_N_PTR] = {
        [GDN_CONV_FUSED_P_X] = e->rows.qkvz,
        [GDN_CONV_FUSED_P_WEIGHT] = l->conv,
        [GDN_CONV_FUSED_P_STATE] = l->conv_state,
        [GDN_CONV_FUSED_P_OUT_Q] = q,
        [GDN_CONV_FUSED_P_OUT_K] = q + (uint64_t)c->nk * c->k_dim * size,
        [GDN_CONV_FUSED_P_OUT_V] = q + 2ull * c->nk * c->k_dim * size,
        [GDN_CONV_FUSED_P_ACCEPTED] = e->shifted ? e->accepted : 0,
    };
    const uint32_t u32[GDN_CONV_FUSED_N_U32] = { [GDN_CONV_FUSED_U_BATCH] = 1, [GDN_CONV_FUSED_U_SEQ_LEN] = rows };
    return gdn__plan_launch(e, how == GDN__RUN_VERIFY ? GDN__PLAN_CONV_ROWS : GDN__PLAN_CONV, GDN_CONV_FUSED_N_PTR, ptr,
                            GDN_CONV_FUSED_N_U32, u32);
}

static gdn_status run_gates(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    const uint64_t ptr[GDN_BA_GATES_N_PTR] = {
        [GDN_BA_GATES_P_A] = e->rows.h,
        [GDN_BA_GATES_P_B] = l->ba,
        [GDN_BA_GATES_P_A_LOG] = l->a_log,
        [GDN_BA_GATES_P_DT_BIAS] = l->dt_bias,
        [GDN_BA_GATES_P_GATE_OUT] = e->rows.gates,
    };
    const uint32_t u32[GDN_BA_GATES_N_U32] = { [GDN_BA_GATES_U_M] = rows };
    return gdn__plan_launch(e, GDN__PLAN_BA, GDN_BA_GATES_N_PTR, ptr, GDN_BA_GATES_N_U32, u32);
}

/* Where the rule finds its rows. */
typedef struct inputs {
    uint64_t q, k, v, gate, beta;
} inputs;

static inputs rule_inputs(const gdn_engine *e) {
    const gdn_model_config *c = &e->c;
    const uint64_t q = e->rows.conv, size = gdn__type_bytes(e->act), heads = (uint64_t)c->nk * c->k_dim * size;
    return (inputs) { q, q + heads, q + 2 * heads, e->rows.gates, e->rows.gates + (uint64_t)c->nv * sizeof(float) };
}

static gdn_status run_prefill(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    const inputs in = rule_inputs(e);
    const uint64_t ptr[GDN_PREFILL_N_PTR] = {
        [GDN_PREFILL_P_QUERY] = in.q,          [GDN_PREFILL_P_KEY] = in.k,
        [GDN_PREFILL_P_VALUE] = in.v,          [GDN_PREFILL_P_GATE] = in.gate,
        [GDN_PREFILL_P_BETA] = in.beta,        [GDN_PREFILL_P_STATE] = l->state,
        [GDN_PREFILL_P_OUTPUT] = e->rows.core, [GDN_PREFILL_P_WORKSPACE] = e->workspace,
    };
    const uint32_t u32[GDN_PREFILL_N_U32] = { [GDN_PREFILL_U_BATCH] = 1, [GDN_PREFILL_U_SEQ_LEN] = rows };
    return gdn__plan_launch(e, GDN__PLAN_PREFILL, GDN_PREFILL_N_PTR, ptr, GDN_PREFILL_N_U32, u32);
}

static gdn_status run_decode(gdn_engine *e, const gdn__layer *l) {
    const inputs in = rule_inputs(e);
    const uint64_t ptr[GDN_DECODE_N_PTR] = {
        [GDN_DECODE_P_STATE] = l->state,
        [GDN_DECODE_P_QUERY] = in.q,
        [GDN_DECODE_P_KEY] = in.k,
        [GDN_DECODE_P_VALUE] = in.v,
        [GDN_DECODE_P_GATE] = in.gate,
        [GDN_DECODE_P_BETA] = in.beta,
        [GDN_DECODE_P_OUTPUT] = e->rows.core,
        [GDN_DECODE_P_WORKSPACE] = e->workspace,
    };
    const uint32_t u32[GDN_DECODE_N_U32] = { [GDN_DECODE_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_DECODE, GDN_DECODE_N_PTR, ptr, GDN_DECODE_N_U32, u32);
}

static gdn_status run_woa(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    const inputs in = rule_inputs(e);
    const uint64_t ptr[GDN_VERIFY_WOA_N_PTR] = {
        [GDN_VERIFY_WOA_P_STATE] = l->state,
        [GDN_VERIFY_WOA_P_QUERY] = in.q,
        [GDN_VERIFY_WOA_P_KEY] = in.k,
        [GDN_VERIFY_WOA_P_VALUE] = in.v,
        [GDN_VERIFY_WOA_P_GATE] = in.gate,
        [GDN_VERIFY_WOA_P_BETA] = in.beta,
        [GDN_VERIFY_WOA_P_OUTPUT] = e->rows.core,
        [GDN_VERIFY_WOA_P_STASH] = l->stash[e->now],
        [GDN_VERIFY_WOA_P_FLAG] = l->engaged[e->now],
        [GDN_VERIFY_WOA_P_WORKSPACE] = e->workspace,
    };
    const uint32_t u32[GDN_VERIFY_WOA_N_U32] = { [GDN_VERIFY_WOA_U_ROWS] = rows, [GDN_VERIFY_WOA_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_WOA, GDN_VERIFY_WOA_N_PTR, ptr, GDN_VERIFY_WOA_N_U32, u32);
}

/* The rows that were accepted before, and these. */
static gdn_status run_round(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    const inputs in = rule_inputs(e);
    const uint64_t ptr[GDN_ROUND_N_PTR] = {
        [GDN_ROUND_P_STATE] = l->state,
        [GDN_ROUND_P_QUERY] = in.q,
        [GDN_ROUND_P_KEY] = in.k,
        [GDN_ROUND_P_VALUE] = in.v,
        [GDN_ROUND_P_GATE] = in.gate,
        [GDN_ROUND_P_BETA] = in.beta,
        [GDN_ROUND_P_OUTPUT] = e->rows.core,
        [GDN_ROUND_P_STASH] = l->stash[e->now],
        [GDN_ROUND_P_FLAG] = l->engaged[e->now],
        [GDN_ROUND_P_PENDING] = l->stash[!e->now],
        [GDN_ROUND_P_NA] = e->na,
        [GDN_ROUND_P_PENDING_FLAG] = l->engaged[!e->now],
        [GDN_ROUND_P_WORKSPACE] = e->workspace,
    };
    const uint32_t u32[GDN_ROUND_N_U32] = { [GDN_ROUND_U_ROWS] = rows, [GDN_ROUND_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_ROUND, GDN_ROUND_N_PTR, ptr, GDN_ROUND_N_U32, u32);
}

static gdn_status run_verify(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    if (e->unfolded) return run_round(e, l, rows);
    const uint64_t flag[GDN_FLAG_CLEAR_N_PTR] = { [GDN_FLAG_CLEAR_P_FLAG] = l->engaged[e->now] };
    const gdn_status s = gdn__plan_launch(e, GDN__PLAN_CLEAR, GDN_FLAG_CLEAR_N_PTR, flag, 0, NULL);
    if (s != GDN_OK) return s;
    if (e->woa && rows == GDN_WOA_ROWS) return run_woa(e, l, rows);
    const inputs in = rule_inputs(e);
    const uint64_t ptr[GDN_VERIFY_N_PTR] = {
        [GDN_VERIFY_P_STATE] = l->state,      [GDN_VERIFY_P_QUERY] = in.q,   [GDN_VERIFY_P_KEY] = in.k,
        [GDN_VERIFY_P_VALUE] = in.v,          [GDN_VERIFY_P_GATE] = in.gate, [GDN_VERIFY_P_BETA] = in.beta,
        [GDN_VERIFY_P_OUTPUT] = e->rows.core, [GDN_VERIFY_P_HI] = l->hi,     [GDN_VERIFY_P_WORKSPACE] = e->workspace,
    };
    const uint32_t u32[GDN_VERIFY_N_U32] = { [GDN_VERIFY_U_ROWS] = rows, [GDN_VERIFY_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_VERIFY, GDN_VERIFY_N_PTR, ptr, GDN_VERIFY_N_U32, u32);
}

gdn_status gdn__layer_fold(gdn_engine *e, const gdn__layer *l, uint32_t which, uint32_t rows) {
    const uint64_t ptr[GDN_FOLD_N_PTR] = {
        [GDN_FOLD_P_STATE] = l->state, [GDN_FOLD_P_STASH] = l->stash[which],  [GDN_FOLD_P_NA] = e->na,
        [GDN_FOLD_P_HI] = l->hi,       [GDN_FOLD_P_FLAG] = l->engaged[which],
    };
    const uint32_t u32[GDN_FOLD_N_U32] = { [GDN_FOLD_U_K_ROWS] = rows, [GDN_FOLD_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_FOLD, GDN_FOLD_N_PTR, ptr, GDN_FOLD_N_U32, u32);
}

static gdn_status run_norm(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    const uint64_t z = e->rows.qkvz + (uint64_t)gdn_config_channels(&e->c) * gdn__type_bytes(e->act);
    const uint64_t ptr[GDN_NORM_N_PTR] = {
        [GDN_NORM_P_X] = e->rows.core,
        [GDN_NORM_P_Z] = z,
        [GDN_NORM_P_W] = l->gdn_norm,
        [GDN_NORM_P_OUT] = e->rows.core_n,
    };
    const uint32_t u32[GDN_NORM_N_U32] = { [GDN_NORM_U_ROWS] = rows * e->c.nv };
    return gdn__plan_launch(e, GDN__PLAN_NORM, GDN_NORM_N_PTR, ptr, GDN_NORM_N_U32, u32);
}

/* Convolution, rule and norm of one row, in one launch. */
static gdn_status run_step(gdn_engine *e, const gdn__layer *l) {
    const gdn_model_config *c = &e->c;
    const uint64_t ptr[GDN_DECODE_STEP_N_PTR] = {
        [GDN_DECODE_STEP_P_X] = e->rows.qkvz,
        [GDN_DECODE_STEP_P_WEIGHT] = l->conv,
        [GDN_DECODE_STEP_P_CONV_STATE] = l->conv_state,
        [GDN_DECODE_STEP_P_A] = e->rows.gates,
        [GDN_DECODE_STEP_P_B] = e->rows.gates + (uint64_t)c->nv * sizeof(float),
        [GDN_DECODE_STEP_P_STATE] = l->state,
        [GDN_DECODE_STEP_P_Z] = e->rows.qkvz + (uint64_t)gdn_config_channels(c) * gdn__type_bytes(e->act),
        [GDN_DECODE_STEP_P_NORM_WEIGHT] = l->gdn_norm,
        [GDN_DECODE_STEP_P_OUT] = e->rows.core_n,
        [GDN_DECODE_STEP_P_ACCEPTED] = e->shifted ? e->accepted : 0,
        [GDN_DECODE_STEP_P_WORKSPACE] = e->step_workspace,
    };
    const uint32_t u32[GDN_DECODE_STEP_N_U32] = { [GDN_DECODE_STEP_U_BATCH] = 1 };
    return gdn__plan_launch(e, GDN__PLAN_STEP, GDN_DECODE_STEP_N_PTR, ptr, GDN_DECODE_STEP_N_U32, u32);
}

/* core_n = norm(rule(conv(qkvz))), launch by launch. */
static gdn_status run_parts(gdn_engine *e, const gdn__layer *l, uint32_t rows, uint32_t how) {
    gdn_status s = run_conv(e, l, rows, how);
    if (s == GDN_OK && how == GDN__RUN_PREFILL) s = run_prefill(e, l, rows);
    if (s == GDN_OK && how == GDN__RUN_DECODE) s = run_decode(e, l);
    if (s == GDN_OK && how == GDN__RUN_VERIFY) s = run_verify(e, l, rows);
    return s == GDN_OK ? run_norm(e, l, rows) : s;
}

/* proj = linear_attn(h) */
static gdn_status run_attention(gdn_engine *e, const gdn__layer *l, uint32_t rows, uint32_t how) {
    gdn_status s = gdn__project(e, l, GDN__QKVZ, e->rows.h, e->rows.qkvz, rows);
    if (s == GDN_OK) s = run_gates(e, l, rows);
    if (s == GDN_OK) s = how == GDN__RUN_DECODE && e->plans[GDN__PLAN_STEP] ? run_step(e, l) : run_parts(e, l, rows, how);
    if (s == GDN_OK) s = gdn__project(e, l, GDN__OUT, e->rows.core_n, e->rows.proj, rows);
    return s;
}

/* proj = mlp(h) */
static gdn_status run_mlp(gdn_engine *e, const gdn__layer *l, uint32_t rows) {
    gdn_status s = gdn__project(e, l, GDN__GATE_UP, e->rows.h, e->rows.gate_up, rows);
    if (s == GDN_OK) s = e->dense->silu_mul(e->dense_ctx, e->rows.gate_up, e->rows.act, rows, e->c.inter);
    if (s == GDN_OK) s = gdn__project(e, l, GDN__DOWN, e->rows.act, e->rows.proj, rows);
    return s;
}

gdn_status gdn__layer_run(gdn_engine *e, const gdn__layer *l, uint32_t rows, uint32_t how) {
    const gdn_model_config *c = &e->c;
    const uint64_t n = (uint64_t)rows * c->hidden;
    gdn_status s = e->dense->rms_norm(e->dense_ctx, e->rows.x, l->norm1, e->rows.h, rows, c->hidden, c->eps);
    if (s == GDN_OK) s = run_attention(e, l, rows, how);
    if (s == GDN_OK) s = e->dense->add(e->dense_ctx, e->rows.proj, e->rows.x, n);
    if (s == GDN_OK) s = e->dense->rms_norm(e->dense_ctx, e->rows.x, l->norm2, e->rows.h, rows, c->hidden, c->eps);
    if (s == GDN_OK) s = run_mlp(e, l, rows);
    if (s == GDN_OK) s = e->dense->add(e->dense_ctx, e->rows.proj, e->rows.x, n);
    return s;
}
