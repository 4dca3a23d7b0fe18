/* gpu_pack.c - a launch's pointers and the plan's shape, in the order of each kernel's arguments (the heads of the .cu files). */
#include "gpu_plugin.h"
#include <string.h>

static void raw(gpu_args *a, const void *value, uint32_t bytes) {
    a->slot[a->n] = 0;
    memcpy(&a->slot[a->n], value, bytes);
    a->param[a->n] = &a->slot[a->n];
    a->n++;
}
void gpu_arg_u32(gpu_args *a, uint32_t v) {
    raw(a, &v, sizeof v);
}
void gpu_arg_u64(gpu_args *a, uint64_t v) {
    raw(a, &v, sizeof v);
}
void gpu_arg_f32(gpu_args *a, float v) {
    raw(a, &v, sizeof v);
}
static void ptr(gpu_args *a, gdn__call *c, uint32_t index, uint32_t align) {
    gpu_arg_u64(a, (uint64_t)(uintptr_t)gdn__call_ptr(c, index, align));
}
static uint32_t width_of(uint32_t type) {
    return type == GDN_F32 ? 4 : 2;
}

static gdn_status pack_ba(const gdn_ba_shape *s, gdn__call *c, gpu_args *a, gdn_text *err) {
    const bool gemv = s->base.op == GDN_OP_BA_GEMV;
    if (c->ptr[GDN_BA_GATES_P_A] % 16 || c->ptr[GDN_BA_GATES_P_B] % 16)
        return gdn__fail(err, GDN_E_ARG, "%s: %s", gdn__op_name(s->base.op), GDN_BA_ALIGN_TEXT);
    ptr(a, c, GDN_BA_GATES_P_A, 16);
    ptr(a, c, GDN_BA_GATES_P_B, 16);
    ptr(a, c, GDN_BA_GATES_P_A_LOG, 4);
    ptr(a, c, GDN_BA_GATES_P_DT_BIAS, 4);
    if (gemv) {
        ptr(a, c, GDN_BA_GEMV_P_GATE, 4);
        ptr(a, c, GDN_BA_GEMV_P_BETA, 4);
    } else {
        ptr(a, c, GDN_BA_GATES_P_GATE_OUT, 4);
        gpu_arg_u32(a, c->u32[GDN_BA_GATES_U_M]);
    }
    gpu_arg_u32(a, s->N);
    gpu_arg_u32(a, s->K);
    if (!gemv) {
        gpu_arg_u32(a, s->K_stride);
        gpu_arg_u32(a, s->gate_stride);
    }
    gpu_arg_u32(a, s->nv);
    gpu_arg_u32(a, s->vheads_per_group);
    return GDN_OK;
}

static void pack_gates(const gdn_gates_shape *s, gdn__call *c, gpu_args *a) {
    ptr(a, c, GDN_GATES_P_A, 2);
    ptr(a, c, GDN_GATES_P_B, 2);
    ptr(a, c, GDN_GATES_P_A_LOG, 4);
    ptr(a, c, GDN_GATES_P_DT_BIAS, 4);
    ptr(a, c, GDN_GATES_P_OUT, 4);
    const uint32_t tail[] = { c->u32[GDN_GATES_U_ROWS],    s->nv, s->a_stride, s->b_stride, s->gate_stride, s->vheads_per_group,
                              s->gate_form == GDN_GATE_LOG };
    for (uint32_t i = 0; i < sizeof tail / sizeof *tail; i++) gpu_arg_u32(a, tail[i]);
}

static gdn_status pack_conv(const gdn_conv_shape *s, gdn__call *c, gpu_args *a, gdn_text *err) {
    const bool fused = s->base.op == GDN_OP_CONV_FUSED;
    const uint32_t w = width_of(s->weight_type), batch = c->u32[GDN_CONV1D_U_BATCH], len = c->u32[GDN_CONV1D_U_SEQ_LEN];
    const uint32_t i_cu = fused ? (uint32_t)GDN_CONV_FUSED_P_CU_SEQLENS : (uint32_t)GDN_CONV1D_P_CU_SEQLENS;
    const uint32_t i_acc = fused ? (uint32_t)GDN_CONV_FUSED_P_ACCEPTED : (uint32_t)GDN_CONV1D_P_ACCEPTED;
    uint64_t tokens = s->offsets ? s->max_tokens : (uint64_t)batch * len;
    if (s->offsets && !c->ptr[i_cu])
        return gdn__fail(err, GDN_E_ARG, "%s: pointer 'cu_seqlens' is NULL, but the plan's offsets ask for it", gdn__op_name(s->base.op));
    if (s->offsets && len && (uint64_t)batch * len < tokens) tokens = (uint64_t)batch * len;
    ptr(a, c, GDN_CONV1D_P_X, 2);
    ptr(a, c, GDN_CONV1D_P_WEIGHT, w);
    ptr(a, c, GDN_CONV1D_P_BIAS, w);
    ptr(a, c, GDN_CONV1D_P_STATE, 2);
    ptr(a, c, GDN_CONV1D_P_SLOTS, 4);
    ptr(a, c, GDN_CONV1D_P_FRESH, 1);
    if (fused) {
        ptr(a, c, GDN_CONV_FUSED_P_OUT_Q, 2);
        ptr(a, c, GDN_CONV_FUSED_P_OUT_K, 2);
        ptr(a, c, GDN_CONV_FUSED_P_OUT_V, 2);
    } else {
        ptr(a, c, GDN_CONV1D_P_OUT, 2);
    }
    gpu_arg_u32(a, (uint32_t)tokens);
    gpu_arg_u32(a, s->channels);
    gpu_arg_u32(a, s->x_stride);
    if (!fused) gpu_arg_u32(a, s->out_stride);
    gpu_arg_u32(a, s->width);
    gpu_arg_u32(a, s->state_len);
    if (!fused) gpu_arg_u32(a, s->silu);
    ptr(a, c, i_cu, s->offsets == GDN_OFFSETS_I64 ? 8 : 4);
    gpu_arg_u32(a, batch);
    gpu_arg_u32(a, len);
    gpu_arg_u32(a, s->offsets == GDN_OFFSETS_I64);
    ptr(a, c, i_acc, 4);
    gpu_arg_u32(a, (s->base.flags & GDN_CONV_KEEP_ROWS) != 0);
    gpu_arg_u64(a, s->slot_stride);
    gpu_arg_u32(a, s->weight_type == GDN_F32);
    const uint32_t heads[] = { s->nk, s->nv, s->k_dim, s->v_dim, s->q_stride, s->k_stride, s->v_stride };
    for (uint32_t i = 0; fused && i < sizeof heads / sizeof *heads; i++) gpu_arg_u32(a, heads[i]);
    return GDN_OK;
}

static void pack_norm(const gdn_norm_shape *s, gdn__call *c, gpu_args *a) {
    ptr(a, c, GDN_NORM_P_X, 2);
    ptr(a, c, GDN_NORM_P_Z, 2);
    ptr(a, c, GDN_NORM_P_W, width_of(s->weight_type));
    ptr(a, c, GDN_NORM_P_OUT, 2);
    gpu_arg_u32(a, c->u32[GDN_NORM_U_ROWS]);
    gpu_arg_u32(a, s->dim);
    gpu_arg_u32(a, s->x_stride);
    gpu_arg_u32(a, s->z_stride);
    gpu_arg_f32(a, s->eps);
    gpu_arg_u32(a, s->act);
    gpu_arg_u32(a, s->heads);
    gpu_arg_u32(a, s->weight_type == GDN_F32);
}

static void pack_state(const gdn_state_shape *s, gdn__call *c, gpu_args *a) {
    const bool copy = s->base.op == GDN_OP_STATE_COPY;
    if (copy) ptr(a, c, GDN_STATE_COPY_P_SRC, 1);
    ptr(a, c, copy ? (uint32_t)GDN_STATE_COPY_P_DST : (uint32_t)GDN_STATE_ZERO_P_DST, 1);
    if (copy) ptr(a, c, GDN_STATE_COPY_P_SRC_SLOTS, 4);
    ptr(a, c, copy ? (uint32_t)GDN_STATE_COPY_P_DST_SLOTS : (uint32_t)GDN_STATE_ZERO_P_DST_SLOTS, 4);
    gpu_arg_u32(a, c->u32[0]);
    gpu_arg_u64(a, s->bytes);
    if (copy) gpu_arg_u64(a, s->src_stride);
    gpu_arg_u64(a, s->dst_stride);
}

gdn_status gpu_pack(const gdn_plan *p, gdn__call *c, uint32_t entry, gpu_args *a, gdn_text *err) {
    gdn_status st = GDN_OK;
    a->n = 0;
    switch (p->op->op) {
    case GDN_OP_BA_GATES:
    case GDN_OP_BA_GEMV: st = pack_ba(&p->shape.ba, c, a, err); break;
    case GDN_OP_GATES: pack_gates(&p->shape.gates, c, a); break;
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: st = pack_conv(&p->shape.conv, c, a, err); break;
    case GDN_OP_FLAG_CLEAR:
        ptr(a, c, GDN_FLAG_CLEAR_P_FLAG, 4);
        if (!gdn__by_sequence(&p->shape.base)) break;
        ptr(a, c, GDN_FLAG_CLEAR_P_SEQ_IDS, 4);
        gpu_arg_u32(a, c->u32[GDN_FLAG_CLEAR_U_COUNT]);
        break;
    case GDN_OP_NORM: pack_norm(&p->shape.norm, c, a); break;
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: pack_state(&p->shape.state, c, a); break;
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: st = gpu_pack_w4a4(&p->shape.w4a4, c, entry, a, err); break;
    case GDN_OP_DECODE_STEP: st = gpu_pack_decode_step(p, c, a, err); break;
    default: return gdn__fail(err, GDN_E_INTERNAL, "%s: no arguments are known for %s", gdn__op_name(p->op->op), gpu_entry_name(entry));
    }
    return st ? st : gdn__call_bound(c, err);
}
