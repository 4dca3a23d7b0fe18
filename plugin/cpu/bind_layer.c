/* bind_layer.c - convolution, gates, b/a projection, norm, state copies, W4A4: pointers and shape become call structs. */
#include "cpu_plugin.h"
#include <string.h>

gdn_status cpu_bind_conv(const gdn_plan *p, gdn__call *c, gdn_cpu_conv *v, gdn_text *err) {
    const gdn_conv_shape *s = &p->shape.conv;
    const bool fused = s->base.op == GDN_OP_CONV_FUSED, f32 = s->base.act_type == GDN_F32, wide = s->weight_type == GDN_F32;
    const uint32_t act = f32 ? 4 : 2, w = wide ? 4 : 2, cu_align = s->offsets == GDN_OFFSETS_I64 ? 8 : 4;
    const uint32_t i_cu = fused ? (uint32_t)GDN_CONV_FUSED_P_CU_SEQLENS : (uint32_t)GDN_CONV1D_P_CU_SEQLENS;
    const uint32_t i_acc = fused ? (uint32_t)GDN_CONV_FUSED_P_ACCEPTED : (uint32_t)GDN_CONV1D_P_ACCEPTED;
    *v = (gdn_cpu_conv) {
        .x = gdn__call_ptr(c, GDN_CONV1D_P_X, act),
        .weight = gdn__call_ptr(c, GDN_CONV1D_P_WEIGHT, w),
        .bias = gdn__call_ptr(c, GDN_CONV1D_P_BIAS, w),
        .state = gdn__call_ptr(c, GDN_CONV1D_P_STATE, act),
        .slots = gdn__call_ptr(c, GDN_CONV1D_P_SLOTS, 4),
        .fresh = gdn__call_ptr(c, GDN_CONV1D_P_FRESH, 1),
        .cu = s->offsets ? gdn__call_ptr(c, i_cu, cu_align) : NULL,
        .accepted = gdn__call_ptr(c, i_acc, 4),
        .slot_stride = s->slot_stride,
        .batch = c->u32[GDN_CONV1D_U_BATCH],
        .seq_len = c->u32[GDN_CONV1D_U_SEQ_LEN],
        .channels = s->channels,
        .width = s->width,
        .state_len = s->state_len,
        .x_stride = s->x_stride,
        .out_stride = s->out_stride,
        .nk = s->nk,
        .nv = s->nv,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .q_stride = s->q_stride,
        .k_stride = s->k_stride,
        .v_stride = s->v_stride,
        .isa = p->ctx->isa,
        .f32 = f32,
        .weight_f32 = wide,
        .cu64 = s->offsets == GDN_OFFSETS_I64,
        .silu = s->silu == GDN_CONV_ACT_SILU,
        .keep_rows = (s->base.flags & GDN_CONV_KEEP_ROWS) != 0,
    };
    if (fused) {
        v->out_q = gdn__call_ptr(c, GDN_CONV_FUSED_P_OUT_Q, act);
        v->out_k = gdn__call_ptr(c, GDN_CONV_FUSED_P_OUT_K, act);
        v->out_v = gdn__call_ptr(c, GDN_CONV_FUSED_P_OUT_V, act);
    } else {
        v->out = gdn__call_ptr(c, GDN_CONV1D_P_OUT, act);
    }
    if (s->offsets && !v->cu)
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'cu_seqlens' is NULL, but the plan's offsets ask for it", gdn__op_name(s->base.op));
    return gdn__call_bound(c, err);
}

static gdn_status run_gates(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_gates_shape *s = &p->shape.gates;
    const bool f32 = s->base.act_type == GDN_F32;
    const gdn_cpu_gates g = {
        .a = gdn__call_ptr(c, GDN_GATES_P_A, f32 ? 4 : 2),
        .b = gdn__call_ptr(c, GDN_GATES_P_B, f32 ? 4 : 2),
        .A_log = gdn__call_ptr(c, GDN_GATES_P_A_LOG, 4),
        .dt_bias = gdn__call_ptr(c, GDN_GATES_P_DT_BIAS, 4),
        .out = gdn__call_ptr(c, GDN_GATES_P_OUT, 4),
        .rows = c->u32[GDN_GATES_U_ROWS],
        .nv = s->nv,
        .a_stride = s->a_stride,
        .b_stride = s->b_stride,
        .gate_stride = s->gate_stride,
        .vpg = s->vheads_per_group,
        .f32 = f32,
        .log_gate = s->gate_form == GDN_GATE_LOG,
    };
    const gdn_status st = gdn__call_bound(c, err);
    if (!st) gdn_cpu_gates_rows(&g);
    return st;
}

static gdn_status run_ba(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_ba_shape *s = &p->shape.ba;
    const bool f32 = s->base.act_type == GDN_F32, wide = s->weight_type == GDN_F32, gemv = s->base.op == GDN_OP_BA_GEMV;
    gdn_cpu_ba b = {
        .A = gdn__call_ptr(c, GDN_BA_GATES_P_A, f32 ? 4 : 2),
        .B = gdn__call_ptr(c, GDN_BA_GATES_P_B, wide ? 4 : 2),
        .A_log = gdn__call_ptr(c, GDN_BA_GATES_P_A_LOG, 4),
        .dt_bias = gdn__call_ptr(c, GDN_BA_GATES_P_DT_BIAS, 4),
        .M = gemv ? 1 : c->u32[GDN_BA_GATES_U_M],
        .N = s->N,
        .K = s->K,
        .K_stride = s->K_stride,
        .gate_stride = s->gate_stride,
        .nv = s->nv,
        .vpg = s->vheads_per_group,
        .isa = p->ctx->isa,
        .f32 = f32,
        .weight_f32 = wide,
    };
    b.gate = gdn__call_ptr(c, gemv ? (uint32_t)GDN_BA_GEMV_P_GATE : (uint32_t)GDN_BA_GATES_P_GATE_OUT, 4);
    b.beta = gemv ? gdn__call_ptr(c, GDN_BA_GEMV_P_BETA, 4) : b.gate + s->nv;
    const gdn_status st = gdn__call_bound(c, err);
    if (st) return st;
    /* The GPU kernels load 16-byte vectors of bf16; the same bases are asked for here, so that a program moves over unchanged. */
    if ((!f32 && (uintptr_t)b.A % 16) || (!wide && (uintptr_t)b.B % 16))
        return gdn__fail(err, GDN_E_ARG, "%s: %s", gdn__op_name(s->base.op), GDN_BA_ALIGN_TEXT);
    gdn_cpu_ba_gates(&b);
    return GDN_OK;
}

static gdn_status run_norm(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_norm_shape *s = &p->shape.norm;
    const bool f32 = s->base.act_type == GDN_F32, wide = s->weight_type == GDN_F32;
    const gdn_cpu_norm n = {
        .x = gdn__call_ptr(c, GDN_NORM_P_X, f32 ? 4 : 2),
        .z = gdn__call_ptr(c, GDN_NORM_P_Z, f32 ? 4 : 2),
        .w = gdn__call_ptr(c, GDN_NORM_P_W, wide ? 4 : 2),
        .out = gdn__call_ptr(c, GDN_NORM_P_OUT, f32 ? 4 : 2),
        .rows = c->u32[GDN_NORM_U_ROWS],
        .dim = s->dim,
        .heads = s->heads,
        .x_stride = s->x_stride,
        .z_stride = s->z_stride,
        .isa = p->ctx->isa,
        .eps = s->eps,
        .f32 = f32,
        .weight_f32 = wide,
        .sigmoid = s->act == GDN_NORM_SIGMOID,
    };
    const gdn_status st = gdn__call_bound(c, err);
    if (!st) gdn_cpu_gated_rmsnorm(&n);
    return st;
}

static gdn_status run_state(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_state_shape *s = &p->shape.state;
    const bool copy = s->base.op == GDN_OP_STATE_COPY;
    const unsigned char *src = copy ? gdn__call_ptr(c, GDN_STATE_COPY_P_SRC, 1) : NULL;
    unsigned char *dst = gdn__call_ptr(c, copy ? (uint32_t)GDN_STATE_COPY_P_DST : (uint32_t)GDN_STATE_ZERO_P_DST, 1);
    const int32_t *from = copy ? gdn__call_ptr(c, GDN_STATE_COPY_P_SRC_SLOTS, 4) : NULL;
    const int32_t *to = gdn__call_ptr(c, copy ? (uint32_t)GDN_STATE_COPY_P_DST_SLOTS : (uint32_t)GDN_STATE_ZERO_P_DST_SLOTS, 4);
    const uint32_t n = c->u32[0];
    gdn_status st = gdn__call_bound(c, err);
    if (!st && (s->base.flags & GDN_PLAN_CHECKED))
        st = cpu_check_pairs(s, from, to, n, copy && src == dst && s->src_stride == s->dst_stride, err);
    if (st) return st;
    for (uint32_t i = 0; i < n; i++) {
        if (to[i] < 0 || (copy && from[i] < 0)) continue;
        unsigned char *d = dst + (uint64_t)to[i] * s->dst_stride;
        if (copy)
            memmove(d, src + (uint64_t)from[i] * s->src_stride, s->bytes); /* a slot onto itself is legal */
        else
            memset(d, 0, s->bytes);
    }
    return GDN_OK;
}

static gdn_status run_w4a4(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    const gdn_w4a4_shape *s = &p->shape.w4a4;
    const bool f32 = s->base.act_type == GDN_F32, gemv = s->base.op == GDN_OP_W4A4_GEMV;
    gdn_cpu_w4a4 w = { .N = s->N, .K = s->K, .a_stride = s->a_stride, .f32 = f32 };
    if (gemv) {
        w.aq = gdn__call_ptr(c, GDN_W4A4_GEMV_P_AQ, 16);
        w.as = gdn__call_ptr(c, GDN_W4A4_GEMV_P_AS, 4);
        w.ag = gdn__call_ptr(c, GDN_W4A4_GEMV_P_AG, 4);
        w.bq = gdn__call_ptr(c, GDN_W4A4_GEMV_P_BQ, 16);
        w.bs = gdn__call_ptr(c, GDN_W4A4_GEMV_P_BS, 8);
        w.C = gdn__call_ptr(c, GDN_W4A4_GEMV_P_C, f32 ? 4 : 2);
        w.M = c->u32[GDN_W4A4_GEMV_U_M];
        memcpy(&w.scale2, &c->u32[GDN_W4A4_GEMV_U_SCALE2], sizeof w.scale2);
    } else {
        w.A = gdn__call_ptr(c, GDN_W4A4_QUANT_P_A, f32 ? 4 : 2);
        w.aq = gdn__call_ptr(c, GDN_W4A4_QUANT_P_AQ, 16);
        w.as = gdn__call_ptr(c, GDN_W4A4_QUANT_P_AS, 4);
        w.ag = gdn__call_ptr(c, GDN_W4A4_QUANT_P_AG, 4);
        w.M = c->u32[GDN_W4A4_QUANT_U_M];
    }
    const gdn_status st = gdn__call_bound(c, err);
    if (st) return st;
    if (gemv)
        gdn_cpu_w4a4_gemv(&w);
    else
        gdn_cpu_w4a4_quant(&w);
    return GDN_OK;
}

/* One word, or by sequence those of some. */
static gdn_status clear_words(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    uint32_t *const word = gdn__call_ptr(c, GDN_FLAG_CLEAR_P_FLAG, 4);
    const int32_t *const ids = gdn__call_ptr(c, GDN_FLAG_CLEAR_P_SEQ_IDS, 4);
    const uint32_t n = gdn__by_sequence(&p->shape.base) ? c->u32[GDN_FLAG_CLEAR_U_COUNT] : 1;
    const gdn_status st = gdn__call_bound(c, err);
    for (uint32_t i = 0; !st && i < n; i++)
        if (!ids || ids[i] >= 0) word[ids ? (uint32_t)ids[i] : i] = GDN_RECORD_NONE;
    return st;
}

gdn_status cpu_run_layer(const gdn_plan *p, gdn__call *c, gdn_text *err) {
    switch (p->op->op) {
    case GDN_OP_GATES: return run_gates(p, c, err);
    case GDN_OP_BA_GATES:
    case GDN_OP_BA_GEMV: return run_ba(p, c, err);
    case GDN_OP_NORM: return run_norm(p, c, err);
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: return run_state(p, c, err);
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: return run_w4a4(p, c, err);
    case GDN_OP_FLAG_CLEAR: return clear_words(p, c, err);
    default: return gdn__fail(err, GDN_E_INTERNAL, "%s: no kernel is bound", gdn__op_name(p->op->op));
    }
}
