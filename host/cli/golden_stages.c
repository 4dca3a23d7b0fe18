/* golden_stages.c - every stage of a recorded call from its recorded inputs, each against what was recorded.
 *
 * Bounds are 1.25 times the error of an f64 implementation from the same inputs, which is the recording's own rounding. A
 * target may round q and k to bf16 after normalising them, so the rule's bounds are wider with bf16 activations. */
#include "golden_lab.h"
#include <math.h>
#include <string.h>

static const double slack = 1.25;
static const double bound_conv = 2.9e-3, bound_g = 2.2e-3, bound_beta = 2.9e-3, bound_z = 1.8e-3, bound_core = 2.0e-3, bound_state = 1.2e-6,
                    bound_norm = 3.5e-3, bound_out = 1.8e-3;
static const double bf16_core = 4.5e-3, bf16_state = 3e-3;

enum { TAPS = GOLDEN_CONV_WIDTH - 1 };

static gdn_shape base(const golden_lab *b, uint32_t op, uint64_t size, uint32_t flags) {
    return (gdn_shape) { .struct_size = (uint32_t)size, .op = op, .flags = flags, .act_type = b->act };
}

/* ---- projections, convolution and its state ---- */

/* The last TAPS of the four recorded columns: [batch][channels][TAPS]. */
static float *recorded_window(golden_lab *b, const char *group) {
    const golden *l = b->l;
    const uint64_t n = (uint64_t)l->batch * l->channels;
    float *out = lab_host(b, n * TAPS);
    if (!group) return out;
    const float *four = lab_read(b, group, "conv_state", 3, (const uint64_t[]) { l->batch, l->channels, TAPS + 1 });
    for (uint64_t i = 0; four && out && i < n; i++) memcpy(out + i * TAPS, four + i * (TAPS + 1) + 1, TAPS * sizeof *out);
    return four ? out : NULL;
}

/* Columns that the call only moved must be equal; those that it projected agree as projections do. */
static void compare_window(golden_lab *b, const golden_call *call, const float *got, const float *want) {
    const uint64_t n = (uint64_t)b->l->batch * b->l->channels;
    const uint32_t moved = call->tokens < TAPS ? TAPS - call->tokens : 0;
    float *g = lab_host(b, n * TAPS), *w = lab_host(b, n * TAPS);
    if (!g || !w || !got || !want) return;
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t lo = part ? moved : 0, hi = part ? TAPS : moved;
        uint64_t k = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint32_t j = lo; j < hi; j++, k++) {
                g[k] = got[i * TAPS + j];
                w[k] = want[i * TAPS + j];
            }
        if (k) lab_compare(b, call->group, part ? "conv_state, new" : "conv_state, moved", g, w, k, part ? slack * bound_z : 0);
    }
}

/* [batch][channels][tokens] to rows. */
static float *to_rows(golden_lab *b, const float *src, uint32_t tokens) {
    const golden *l = b->l;
    float *out = lab_host(b, (uint64_t)l->batch * tokens * l->channels);
    for (uint64_t s = 0; src && out && s < l->batch; s++)
        for (uint64_t ch = 0; ch < l->channels; ch++)
            for (uint64_t t = 0; t < tokens; t++) out[(s * tokens + t) * l->channels + ch] = src[(s * l->channels + ch) * tokens + t];
    return src ? out : NULL;
}

static void run_conv(golden_lab *b, const golden_call *call, uint64_t proj) {
    const golden *l = b->l;
    const uint64_t n = (uint64_t)call->rows * l->channels, n_state = (uint64_t)l->batch * l->channels * TAPS;
    const gdn_conv_shape shape = {
        .base = base(b, GDN_OP_CONV1D, sizeof shape, 0),
        .channels = l->channels,
        .width = GOLDEN_CONV_WIDTH,
        .x_stride = l->channels + l->nv * l->dim,
        .silu = GDN_CONV_ACT_SILU,
        .weight_type = b->act,
        .max_tokens = call->rows,
        .max_batch = l->batch,
    };
    const uint64_t state = lab_put(b, recorded_window(b, call->before), n_state, b->act), out = lab_take(b, n, b->act);
    uint64_t ptr[GDN_CONV1D_N_PTR] = {
        [GDN_CONV1D_P_X] = proj,
        [GDN_CONV1D_P_WEIGHT] = b->w_conv,
        [GDN_CONV1D_P_STATE] = state,
        [GDN_CONV1D_P_OUT] = out,
    };
    const uint32_t u32[GDN_CONV1D_N_U32] = { [GDN_CONV1D_U_BATCH] = l->batch, [GDN_CONV1D_U_SEQ_LEN] = call->tokens };
    lab_launch(b, &shape.base, GDN_CONV1D_N_PTR, ptr, -1, GDN_CONV1D_N_U32, u32);
    const float *want =
        to_rows(b, lab_read(b, call->group, "conv_out", 3, (const uint64_t[]) { l->batch, l->channels, call->tokens }), call->tokens);
    lab_compare(b, call->group, "conv_out", lab_get(b, out, n, b->act), want, n, slack * bound_conv);
    compare_window(b, call, lab_get(b, state, n_state, b->act), recorded_window(b, call->group));
}

static void run_z(golden_lab *b, const golden_call *call, uint64_t proj) {
    const golden *l = b->l;
    const uint64_t core = (uint64_t)l->nv * l->dim, width = l->channels + core;
    const float *row = lab_get(b, proj, call->rows * width, b->act);
    float *z = lab_host(b, call->rows * core);
    for (uint64_t r = 0; row && z && r < call->rows; r++) memcpy(z + r * core, row + r * width + l->channels, (size_t)core * sizeof *z);
    const float *want = lab_read(b, call->group, "z", 2, (const uint64_t[]) { (uint64_t)call->rows * l->nv, l->dim });
    lab_compare(b, call->group, "z", z, want, call->rows * core, slack * bound_z);
}

/* ---- gates: fused with the projection, and from projected rows ---- */

/* out holds rows [gate nv | beta nv]; linear gates are compared as logs. */
static void compare_gates(golden_lab *b, const golden_call *call, const char *g_name, const char *beta_name, uint64_t out, bool linear) {
    const golden *l = b->l;
    const uint64_t n = (uint64_t)call->rows * l->nv;
    const float *rows = lab_get(b, out, 2 * n, GDN_F32);
    float *g = lab_host(b, n), *beta = lab_host(b, n);
    if (b->failed) return;
    for (uint64_t i = 0; i < n; i++) {
        const float v = rows[i / l->nv * 2 * l->nv + i % l->nv];
        g[i] = linear ? logf(v) : v;
        beta[i] = rows[i / l->nv * 2 * l->nv + l->nv + i % l->nv];
    }
    const uint64_t shape[3] = { l->batch, call->tokens, l->nv };
    lab_compare(b, call->group, g_name, g, lab_read(b, call->group, "g", 3, shape), n, slack * bound_g);
    lab_compare(b, call->group, beta_name, beta, lab_read(b, call->group, "beta", 3, shape), n, slack * bound_beta);
}

static void run_ba(golden_lab *b, const golden_call *call, uint64_t hidden) {
    const golden *l = b->l;
    const gdn_ba_shape shape = {
        .base = base(b, GDN_OP_BA_GATES, sizeof shape, 0),
        .N = 2 * l->nv,
        .K = l->hidden,
        .nv = l->nv,
        .vheads_per_group = l->interleaved ? l->nv / l->nk : l->nv,
        .weight_type = b->act,
        .max_m = call->rows,
    };
    const uint64_t out = lab_take(b, 2ull * call->rows * l->nv, GDN_F32);
    uint64_t ptr[GDN_BA_GATES_N_PTR] = {
        [GDN_BA_GATES_P_A] = hidden,         [GDN_BA_GATES_P_B] = b->w_ba,
        [GDN_BA_GATES_P_A_LOG] = b->w_a_log, [GDN_BA_GATES_P_DT_BIAS] = b->w_dt_bias,
        [GDN_BA_GATES_P_GATE_OUT] = out,
    };
    const uint32_t u32[GDN_BA_GATES_N_U32] = { [GDN_BA_GATES_U_M] = call->rows };
    lab_launch(b, &shape.base, GDN_BA_GATES_N_PTR, ptr, -1, GDN_BA_GATES_N_U32, u32);
    compare_gates(b, call, "g (ba_gates)", "beta (ba_gates)", out, true);
}

static void run_gates(golden_lab *b, const golden_call *call, uint64_t hidden) {
    const golden *l = b->l;
    const uint32_t vpg = l->interleaved ? l->nv / l->nk : l->nv;
    const gdn_gates_shape shape = {
        .base = base(b, GDN_OP_GATES, sizeof shape, 0),
        .nv = l->nv,
        .vheads_per_group = vpg,
        .gate_form = GDN_GATE_LOG,
        .param_type = GDN_F32,
        .max_rows = call->rows,
    };
    const uint64_t ba = lab_matmul(b, hidden, b->w_ba_dense, call->rows, l->hidden, 2 * l->nv);
    const uint64_t out = lab_take(b, 2ull * call->rows * l->nv, GDN_F32);
    uint64_t ptr[GDN_GATES_N_PTR] = {
        [GDN_GATES_P_A] = ba + vpg * gdn__type_bytes(b->act),
        [GDN_GATES_P_B] = ba,
        [GDN_GATES_P_A_LOG] = b->w_a_log,
        [GDN_GATES_P_DT_BIAS] = b->w_dt_bias,
        [GDN_GATES_P_OUT] = out,
    };
    const uint32_t u32[GDN_GATES_N_U32] = { [GDN_GATES_U_ROWS] = call->rows };
    lab_launch(b, &shape.base, GDN_GATES_N_PTR, ptr, -1, GDN_GATES_N_U32, u32);
    compare_gates(b, call, "g (gates)", "beta (gates)", out, false);
}

/* ---- the rule ---- */

/* Rows [g nv | beta nv] as recorded. */
static uint64_t recorded_gates(golden_lab *b, const golden_call *call) {
    const golden *l = b->l;
    const uint64_t shape[3] = { l->batch, call->tokens, l->nv }, n = (uint64_t)call->rows * l->nv;
    const float *g = lab_read(b, call->group, "g", 3, shape), *beta = lab_read(b, call->group, "beta", 3, shape);
    float *rows = lab_host(b, 2 * n);
    for (uint64_t i = 0; !b->failed && i < n; i++) {
        rows[i / l->nv * 2 * l->nv + i % l->nv] = g[i];
        rows[i / l->nv * 2 * l->nv + l->nv + i % l->nv] = beta[i];
    }
    return lab_put(b, rows, 2 * n, GDN_F32);
}

static uint64_t recorded_heads(golden_lab *b, const golden_call *call, const char *name, uint32_t heads) {
    const uint64_t shape[4] = { b->l->batch, call->tokens, heads, b->l->dim };
    return lab_put(b, lab_read(b, call->group, name, 4, shape), (uint64_t)call->rows * heads * b->l->dim, b->act);
}

static void run_rule(golden_lab *b, const golden_call *call) {
    const golden *l = b->l;
    const bool prefill = !call->before;
    const uint64_t n = (uint64_t)call->rows * l->nv * l->dim, n_state = (uint64_t)l->batch * l->nv * l->dim * l->dim;
    const uint64_t state_shape[4] = { l->batch, l->nv, l->dim, l->dim };
    const gdn_rule_shape shape = {
        .base = base(b, prefill ? GDN_OP_PREFILL : GDN_OP_DECODE, sizeof shape, GDN_QK_L2NORM),
        .nk = l->nk,
        .nv = l->nv,
        .k_dim = l->dim,
        .v_dim = l->dim,
        .gate_form = GDN_GATE_LOG,
        .state_type = GDN_F32,
        .max_tokens = call->rows,
        .max_batch = l->batch,
    };
    const uint64_t q = recorded_heads(b, call, "q", l->nk), k = recorded_heads(b, call, "k", l->nk),
                   v = recorded_heads(b, call, "v", l->nv);
    const uint64_t gate = recorded_gates(b, call), beta = gate + l->nv * sizeof(float), out = lab_take(b, n, b->act);
    const uint64_t state =
        prefill ? lab_take(b, n_state, GDN_F32) : lab_put(b, lab_read(b, call->group, "state_in", 4, state_shape), n_state, GDN_F32);
    if (prefill) {
        uint64_t ptr[GDN_PREFILL_N_PTR] = {
            [GDN_PREFILL_P_QUERY] = q,   [GDN_PREFILL_P_KEY] = k,       [GDN_PREFILL_P_VALUE] = v,    [GDN_PREFILL_P_GATE] = gate,
            [GDN_PREFILL_P_BETA] = beta, [GDN_PREFILL_P_STATE] = state, [GDN_PREFILL_P_OUTPUT] = out,
        };
        const uint32_t u32[GDN_PREFILL_N_U32] = { [GDN_PREFILL_U_BATCH] = l->batch, [GDN_PREFILL_U_SEQ_LEN] = call->tokens };
        lab_launch(b, &shape.base, GDN_PREFILL_N_PTR, ptr, GDN_PREFILL_P_WORKSPACE, GDN_PREFILL_N_U32, u32);
    } else {
        uint64_t ptr[GDN_DECODE_N_PTR] = {
            [GDN_DECODE_P_STATE] = state, [GDN_DECODE_P_QUERY] = q,   [GDN_DECODE_P_KEY] = k,      [GDN_DECODE_P_VALUE] = v,
            [GDN_DECODE_P_GATE] = gate,   [GDN_DECODE_P_BETA] = beta, [GDN_DECODE_P_OUTPUT] = out,
        };
        const uint32_t u32[GDN_DECODE_N_U32] = { [GDN_DECODE_U_BATCH] = l->batch };
        lab_launch(b, &shape.base, GDN_DECODE_N_PTR, ptr, GDN_DECODE_P_WORKSPACE, GDN_DECODE_N_U32, u32);
    }
    const bool half = b->act == GDN_BF16;
    const float *want = lab_read(b, call->group, "core_out", 4, (const uint64_t[]) { l->batch, call->tokens, l->nv, l->dim });
    lab_compare(b, call->group, "core_out", lab_get(b, out, n, b->act), want, n, half ? bf16_core : slack * bound_core);
    const float *want_state = lab_read(b, call->group, "state_out", 4, state_shape);
    lab_compare(b, call->group, "state_out", lab_get(b, state, n_state, GDN_F32), want_state, n_state,
                half ? bf16_state : slack * bound_state);
}

/* ---- norm and output projection ---- */

static void run_norm(golden_lab *b, const golden_call *call) {
    const golden *l = b->l;
    const uint64_t rows = (uint64_t)call->rows * l->nv, n = rows * l->dim;
    const gdn_norm_shape shape = {
        .base = base(b, GDN_OP_NORM, sizeof shape, 0),
        .dim = l->dim,
        .act = GDN_NORM_SILU,
        .weight_type = b->act,
        .max_rows = (uint32_t)rows,
        .eps = l->eps,
    };
    const uint64_t x = recorded_heads(b, call, "core_out", l->nv), out = lab_take(b, n, b->act);
    const uint64_t z = lab_put(b, lab_read(b, call->group, "z", 2, (const uint64_t[]) { rows, l->dim }), n, b->act);
    uint64_t ptr[GDN_NORM_N_PTR] = { [GDN_NORM_P_X] = x, [GDN_NORM_P_Z] = z, [GDN_NORM_P_W] = b->w_norm, [GDN_NORM_P_OUT] = out };
    const uint32_t u32[GDN_NORM_N_U32] = { [GDN_NORM_U_ROWS] = (uint32_t)rows };
    lab_launch(b, &shape.base, GDN_NORM_N_PTR, ptr, -1, GDN_NORM_N_U32, u32);
    const float *want = lab_read(b, call->group, "norm_out", 2, (const uint64_t[]) { rows, l->dim });
    lab_compare(b, call->group, "norm_out", lab_get(b, out, n, b->act), want, n, slack * bound_norm);
}

static void run_out(golden_lab *b, const golden_call *call) {
    const golden *l = b->l;
    const uint64_t core = (uint64_t)l->nv * l->dim, rows = (uint64_t)call->rows * l->nv, n = (uint64_t)call->rows * l->hidden;
    const uint64_t x = lab_put(b, lab_read(b, call->group, "norm_out", 2, (const uint64_t[]) { rows, l->dim }), call->rows * core, b->act);
    const uint64_t y = lab_take(b, n, b->act);
    if (b->failed) return;
    if (b->dense->matmul(b->dense_ctx, x, b->w_out, y, call->rows, (uint32_t)core, l->hidden, b->act) != GDN_OK) {
        cli_error(b->c, "the projection failed");
        b->failed = true;
    }
    const float *want = lab_read(b, call->group, "out", 3, (const uint64_t[]) { l->batch, call->tokens, l->hidden });
    lab_compare(b, call->group, "out", lab_get(b, y, n, b->act), want, n, slack * bound_out);
}

void golden_run_stages(golden_lab *b, const golden_call *call) {
    const golden *l = b->l;
    const float *rows = lab_read(b, call->group, "hidden", 3, (const uint64_t[]) { l->batch, call->tokens, l->hidden });
    const uint64_t hidden = lab_put(b, rows, (uint64_t)call->rows * l->hidden, b->act);
    const uint64_t proj = lab_matmul(b, hidden, b->w_qkvz, call->rows, l->hidden, l->channels + l->nv * l->dim);
    run_conv(b, call, proj);
    run_z(b, call, proj);
    run_ba(b, call, hidden);
    run_gates(b, call, hidden);
    run_rule(b, call);
    run_norm(b, call);
    run_out(b, call);
    lab_end_call(b);
}
