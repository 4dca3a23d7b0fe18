/* golden_chain.c - a recorded layer as an engine runs it: from `hidden` to `out`, with its own states from call to call.
 *
 * conv_fused, ba_gates, prefill or decode, norm and the projections follow each other without going back to the recording,
 * so the errors of all stages meet: the bounds are 1.25 times the root of the sum of squares of the stages' errors, with bf16
 * activations twice the squares, as both sides round. A single row's core_out can be a near cancellation, which enlarges
 * whatever came before it; the decode steps are therefore judged together. */
#include "golden_lab.h"
#include <math.h>

/* The root of the squares of conv 2.9, g 2.2, beta 2.9, core 2.0 (e-3); and of z 1.8, norm 3.5, out 1.8 too. */
static const double error_state = 5.06e-3, error_out = 6.66e-3;

typedef struct rows {
    uint64_t hidden, proj, conv, gates, core, norm;
} rows;

static gdn_shape base(const golden_lab *b, uint32_t op, uint64_t size) {
    return (gdn_shape) { .struct_size = (uint32_t)size, .op = op, .act_type = b->act };
}

static void run_conv(golden_lab *b, const golden_call *call, const golden_chain *chain, const rows *r) {
    const golden *l = b->l;
    const uint64_t heads = (uint64_t)l->nk * l->dim * gdn__type_bytes(b->act);
    const gdn_conv_shape shape = {
        .base = base(b, GDN_OP_CONV_FUSED, sizeof shape),
        .channels = l->channels,
        .width = GOLDEN_CONV_WIDTH,
        .x_stride = l->channels + l->nv * l->dim,
        .silu = GDN_CONV_ACT_SILU,
        .weight_type = b->act,
        .max_tokens = call->rows,
        .max_batch = l->batch,
        .nk = l->nk,
        .nv = l->nv,
        .k_dim = l->dim,
        .v_dim = l->dim,
    };
    uint64_t ptr[GDN_CONV_FUSED_N_PTR] = {
        [GDN_CONV_FUSED_P_X] = r->proj,     [GDN_CONV_FUSED_P_WEIGHT] = b->w_conv,      [GDN_CONV_FUSED_P_STATE] = chain->conv_state,
        [GDN_CONV_FUSED_P_OUT_Q] = r->conv, [GDN_CONV_FUSED_P_OUT_K] = r->conv + heads, [GDN_CONV_FUSED_P_OUT_V] = r->conv + 2 * heads,
    };
    const uint32_t u32[GDN_CONV_FUSED_N_U32] = { [GDN_CONV_FUSED_U_BATCH] = l->batch, [GDN_CONV_FUSED_U_SEQ_LEN] = call->tokens };
    lab_launch(b, &shape.base, GDN_CONV_FUSED_N_PTR, ptr, -1, GDN_CONV_FUSED_N_U32, u32);
}

static void run_gates(golden_lab *b, const golden_call *call, const rows *r) {
    const golden *l = b->l;
    const gdn_ba_shape shape = {
        .base = base(b, GDN_OP_BA_GATES, sizeof shape),
        .N = 2 * l->nv,
        .K = l->hidden,
        .nv = l->nv,
        .vheads_per_group = l->interleaved ? l->nv / l->nk : l->nv,
        .weight_type = b->act,
        .max_m = call->rows,
    };
    uint64_t ptr[GDN_BA_GATES_N_PTR] = {
        [GDN_BA_GATES_P_A] = r->hidden,          [GDN_BA_GATES_P_B] = b->w_ba,         [GDN_BA_GATES_P_A_LOG] = b->w_a_log,
        [GDN_BA_GATES_P_DT_BIAS] = b->w_dt_bias, [GDN_BA_GATES_P_GATE_OUT] = r->gates,
    };
    const uint32_t u32[GDN_BA_GATES_N_U32] = { [GDN_BA_GATES_U_M] = call->rows };
    lab_launch(b, &shape.base, GDN_BA_GATES_N_PTR, ptr, -1, GDN_BA_GATES_N_U32, u32);
}

static void run_rule(golden_lab *b, const golden_call *call, const golden_chain *chain, const rows *r) {
    const golden *l = b->l;
    const gdn_rule_shape shape = {
        .base = base(b, call->before ? GDN_OP_DECODE : GDN_OP_PREFILL, sizeof shape),
        .nk = l->nk,
        .nv = l->nv,
        .k_dim = l->dim,
        .v_dim = l->dim,
        .qk_stride = l->channels,
        .v_stride = l->channels,
        .gate_form = GDN_GATE_LINEAR,
        .state_type = GDN_F32,
        .max_tokens = call->rows,
        .max_batch = l->batch,
    };
    const uint64_t heads = (uint64_t)l->nk * l->dim * gdn__type_bytes(b->act), q = r->conv, k = q + heads, v = k + heads;
    const uint64_t gate = r->gates, beta = gate + l->nv * sizeof(float);
    if (call->before) {
        uint64_t ptr[GDN_DECODE_N_PTR] = {
            [GDN_DECODE_P_STATE] = chain->state, [GDN_DECODE_P_QUERY] = q,   [GDN_DECODE_P_KEY] = k,          [GDN_DECODE_P_VALUE] = v,
            [GDN_DECODE_P_GATE] = gate,          [GDN_DECODE_P_BETA] = beta, [GDN_DECODE_P_OUTPUT] = r->core,
        };
        const uint32_t u32[GDN_DECODE_N_U32] = { [GDN_DECODE_U_BATCH] = l->batch };
        lab_launch(b, &shape.base, GDN_DECODE_N_PTR, ptr, GDN_DECODE_P_WORKSPACE, GDN_DECODE_N_U32, u32);
    } else {
        uint64_t ptr[GDN_PREFILL_N_PTR] = {
            [GDN_PREFILL_P_QUERY] = q,        [GDN_PREFILL_P_KEY] = k,     [GDN_PREFILL_P_VALUE] = v,
            [GDN_PREFILL_P_GATE] = gate,      [GDN_PREFILL_P_BETA] = beta, [GDN_PREFILL_P_STATE] = chain->state,
            [GDN_PREFILL_P_OUTPUT] = r->core,
        };
        const uint32_t u32[GDN_PREFILL_N_U32] = { [GDN_PREFILL_U_BATCH] = l->batch, [GDN_PREFILL_U_SEQ_LEN] = call->tokens };
        lab_launch(b, &shape.base, GDN_PREFILL_N_PTR, ptr, GDN_PREFILL_P_WORKSPACE, GDN_PREFILL_N_U32, u32);
    }
}

static void run_norm(golden_lab *b, const golden_call *call, const rows *r) {
    const golden *l = b->l;
    const gdn_norm_shape shape = {
        .base = base(b, GDN_OP_NORM, sizeof shape),
        .dim = l->dim,
        .heads = l->nv,
        .z_stride = l->channels + l->nv * l->dim,
        .act = GDN_NORM_SILU,
        .weight_type = b->act,
        .max_rows = call->rows * l->nv,
        .eps = l->eps,
    };
    uint64_t ptr[GDN_NORM_N_PTR] = {
        [GDN_NORM_P_X] = r->core,
        [GDN_NORM_P_Z] = r->proj + l->channels * gdn__type_bytes(b->act),
        [GDN_NORM_P_W] = b->w_norm,
        [GDN_NORM_P_OUT] = r->norm,
    };
    const uint32_t u32[GDN_NORM_N_U32] = { [GDN_NORM_U_ROWS] = call->rows * l->nv };
    lab_launch(b, &shape.base, GDN_NORM_N_PTR, ptr, -1, GDN_NORM_N_U32, u32);
}

void golden_run_chain(golden_lab *b, const golden_call *call, golden_chain *chain) {
    const golden *l = b->l;
    const uint32_t width = l->channels + l->nv * l->dim;
    const uint64_t core = (uint64_t)call->rows * l->nv * l->dim, n = (uint64_t)call->rows * l->hidden;
    const uint64_t n_state = (uint64_t)l->batch * l->nv * l->dim * l->dim;
    const float *hidden = lab_read(b, call->group, "hidden", 3, (const uint64_t[]) { l->batch, call->tokens, l->hidden });
    rows r = { .hidden = lab_put(b, hidden, n, b->act) };
    r.proj = lab_take(b, (uint64_t)call->rows * width, b->act);
    r.conv = lab_take(b, (uint64_t)call->rows * l->channels, b->act);
    r.gates = lab_take(b, 2ull * call->rows * l->nv, GDN_F32);
    r.core = lab_take(b, core, b->act);
    r.norm = lab_take(b, core, b->act);
    const uint64_t out = lab_take(b, n, b->act);
    gdn_status s = GDN_OK;
    if (!b->failed) s = b->dense->matmul(b->dense_ctx, r.hidden, b->w_qkvz, r.proj, call->rows, l->hidden, width, b->act);
    run_conv(b, call, chain, &r);
    run_gates(b, call, &r);
    run_rule(b, call, chain, &r);
    run_norm(b, call, &r);
    if (!b->failed && s == GDN_OK) s = b->dense->matmul(b->dense_ctx, r.norm, b->w_out, out, call->rows, l->nv * l->dim, l->hidden, b->act);
    if (s != GDN_OK) {
        cli_error(b->c, "the projection failed");
        b->failed = true;
    }
    const float *state = lab_read(b, call->group, "state_out", 4, (const uint64_t[]) { l->batch, l->nv, l->dim, l->dim });
    const float *want = lab_read(b, call->group, "out", 3, (const uint64_t[]) { l->batch, call->tokens, l->hidden });
    const uint32_t part = call->before != NULL;
    lab_add(&chain->states[part], lab_get(b, chain->state, n_state, GDN_F32), state, n_state);
    lab_add(&chain->out[part], lab_get(b, out, n, b->act), want, n);
    lab_end_call(b);
}

void golden_judge_chain(golden_lab *b, const golden_chain *chain) {
    static const char *const names[2] = { "prefill", "decode" };
    const double slack = 1.25 * (b->act == GDN_BF16 ? sqrt(2.0) : 1.0);
    for (uint32_t part = 0; part < (b->l->steps ? 2u : 1u); part++) {
        lab_note(b, names[part], "end to end: state", &chain->states[part], slack * error_state);
        lab_note(b, names[part], "end to end: out", &chain->out[part], slack * error_out);
    }
}
