/* call_regions.c - the memory of the other operations: convolution, gates, projections, norm, slot lists, the decode step. */
#include "call_regions.h"

static void conv(const gdn_conv_shape *s, const gdn__call *c, gdn__regions *r) {
    const bool fused = s->base.op == GDN_OP_CONV_FUSED, packed = s->offsets && c;
    const uint64_t act = gdn__size(s->base.act_type), w = gdn__size(s->weight_type), batch = c ? c->u32[0] : s->max_batch;
    const uint64_t tokens = packed ? 1 : c ? batch * c->u32[1] : s->max_tokens, q = (uint64_t)s->nk * s->k_dim * act;
    const uint32_t in = packed ? GDN__PACKED : 0, out = in | GDN__WRITTEN;
    const bool slots = !c || c->ptr[GDN_CONV1D_P_SLOTS];
    gdn__region_rows(r, GDN_CONV1D_P_X, in, tokens, s->channels * act, s->x_stride * act);
    gdn__region_of(r, GDN_CONV1D_P_WEIGHT, 0, (uint64_t)s->channels * s->width * w);
    gdn__region_of(r, GDN_CONV1D_P_BIAS, 0, s->channels * w);
    gdn__region_pool(r, GDN_CONV1D_P_STATE, GDN__WRITTEN, slots ? s->num_slots : batch, s->channels * act * s->state_len,
                     gdn__times(s->slot_stride, act));
    gdn__region_of(r, GDN_CONV1D_P_SLOTS, 0, 4 * batch);
    gdn__region_of(r, GDN_CONV1D_P_FRESH, 0, batch);
    if (fused) {
        gdn__region_rows(r, GDN_CONV_FUSED_P_OUT_Q, out, tokens, q, s->q_stride * act);
        gdn__region_rows(r, GDN_CONV_FUSED_P_OUT_K, out, tokens, q, s->k_stride * act);
        gdn__region_rows(r, GDN_CONV_FUSED_P_OUT_V, out, tokens, (uint64_t)s->nv * s->v_dim * act, s->v_stride * act);
    } else {
        gdn__region_rows(r, GDN_CONV1D_P_OUT, out, tokens, s->channels * act, s->out_stride * act);
    }
    const uint32_t cu = fused ? (uint32_t)GDN_CONV_FUSED_P_CU_SEQLENS : (uint32_t)GDN_CONV1D_P_CU_SEQLENS;
    gdn__region_of(r, cu, 0, (s->offsets == GDN_OFFSETS_I64 ? 8 : 4) * (batch + 1));
    gdn__region_of(r, cu + 1, 0, 4 * batch); /* accepted */
}

/* Elements from a base to behind the last that is read: as the shapes' checks have it. */
static uint64_t gate_reach(uint32_t nv, uint32_t vpg) {
    return vpg ? 2 * (uint64_t)nv - vpg : nv;
}

static void gates(const gdn_gates_shape *s, const gdn__call *c, gdn__regions *r) {
    const uint64_t act = gdn__size(s->base.act_type), n = c ? c->u32[0] : s->max_rows, reach = gate_reach(s->nv, s->vheads_per_group);
    gdn__region_rows(r, GDN_GATES_P_A, 0, n, reach * act, s->a_stride * act);
    gdn__region_rows(r, GDN_GATES_P_B, 0, n, reach * act, s->b_stride * act);
    gdn__region_of(r, GDN_GATES_P_A_LOG, 0, s->nv * 4ull);
    gdn__region_of(r, GDN_GATES_P_DT_BIAS, 0, s->nv * 4ull);
    gdn__region_rows(r, GDN_GATES_P_OUT, GDN__WRITTEN, n, s->nv * 8ull, s->gate_stride * 4ull);
}

static void ba(const gdn_ba_shape *s, const gdn__call *c, gdn__regions *r) {
    const bool gemv = s->base.op == GDN_OP_BA_GEMV;
    const uint64_t act = gdn__size(s->base.act_type), m = gemv ? 1 : c ? c->u32[GDN_BA_GATES_U_M] : s->max_m;
    gdn__region_rows(r, GDN_BA_GATES_P_A, 0, m, s->K * act, s->K_stride * act);
    gdn__region_of(r, GDN_BA_GATES_P_B, 0, gdn__times((uint64_t)s->N * s->K, gdn__size(s->weight_type)));
    gdn__region_of(r, GDN_BA_GATES_P_A_LOG, 0, s->nv * 4ull);
    gdn__region_of(r, GDN_BA_GATES_P_DT_BIAS, 0, s->nv * 4ull);
    if (gemv) {
        gdn__region_of(r, GDN_BA_GEMV_P_GATE, GDN__WRITTEN, s->nv * 4ull);
        gdn__region_of(r, GDN_BA_GEMV_P_BETA, GDN__WRITTEN, s->nv * 4ull);
    } else {
        gdn__region_rows(r, GDN_BA_GATES_P_GATE_OUT, GDN__WRITTEN, m, s->nv * 8ull, s->gate_stride * 4ull);
    }
}

/* Rows past the last whole group are left out. */
static void norm_rows(const gdn_norm_shape *s, uint32_t ptr, uint64_t n, uint64_t stride, gdn__regions *r) {
    const uint64_t row = s->dim * gdn__size(s->base.act_type), groups = n / s->heads;
    if (stride == (uint64_t)s->heads * s->dim || groups == 0)
        gdn__region_of(r, ptr, 0, gdn__times(n, row));
    else
        gdn__region_rows(r, ptr, 0, groups, s->heads * row, stride * gdn__size(s->base.act_type));
}

static void norm(const gdn_norm_shape *s, const gdn__call *c, gdn__regions *r) {
    const uint64_t n = c ? c->u32[GDN_NORM_U_ROWS] : s->max_rows, row = s->dim * gdn__size(s->base.act_type);
    norm_rows(s, GDN_NORM_P_X, n, s->x_stride, r);
    norm_rows(s, GDN_NORM_P_Z, n, s->z_stride, r);
    gdn__region_of(r, GDN_NORM_P_W, 0, s->dim * gdn__size(s->weight_type));
    gdn__region_of(r, GDN_NORM_P_OUT, GDN__WRITTEN, gdn__times(n, row));
}

static void slot_lists(const gdn_state_shape *s, const gdn__call *c, gdn__regions *r) {
    const bool copy = s->base.op == GDN_OP_STATE_COPY;
    const uint64_t n = c ? c->u32[0] : s->max_count;
    if (copy) gdn__region_pool(r, GDN_STATE_COPY_P_SRC, 0, s->src_slots, s->bytes, s->src_stride);
    gdn__region_pool(r, copy ? (uint32_t)GDN_STATE_COPY_P_DST : (uint32_t)GDN_STATE_ZERO_P_DST, GDN__WRITTEN, s->dst_slots, s->bytes,
                     s->dst_stride);
    if (copy) gdn__region_of(r, GDN_STATE_COPY_P_SRC_SLOTS, 0, 4 * n);
    gdn__region_of(r, copy ? (uint32_t)GDN_STATE_COPY_P_DST_SLOTS : (uint32_t)GDN_STATE_ZERO_P_DST_SLOTS, 0, 4 * n);
}

static void w4a4(const gdn_w4a4_shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r) {
    const bool quant = s->base.op == GDN_OP_W4A4_QUANT;
    const uint64_t act = gdn__size(s->base.act_type);
    const uint32_t m = !c ? s->max_m : quant ? c->u32[GDN_W4A4_QUANT_U_M] : c->u32[GDN_W4A4_GEMV_U_M], k = s->K;
    const uint64_t aq = GDN_W4A4_AQ_BYTES(m, k), as = GDN_W4A4_AS_BYTES(m, k);
    if (quant) {
        gdn__region_rows(r, GDN_W4A4_QUANT_P_A, 0, m, k * act, s->a_stride * act);
        gdn__region_of(r, GDN_W4A4_QUANT_P_AQ, GDN__WRITTEN, aq);
        gdn__region_of(r, GDN_W4A4_QUANT_P_AS, GDN__WRITTEN, as);
        gdn__region_of(r, GDN_W4A4_QUANT_P_AG, GDN__WRITTEN, 4ull * m);
        return;
    }
    gdn__region_of(r, GDN_W4A4_GEMV_P_AQ, 0, aq);
    gdn__region_of(r, GDN_W4A4_GEMV_P_AS, 0, as);
    gdn__region_of(r, GDN_W4A4_GEMV_P_AG, 0, 4ull * m);
    gdn__region_of(r, GDN_W4A4_GEMV_P_BQ, 0, (uint64_t)s->N * (k / 2));
    gdn__region_of(r, GDN_W4A4_GEMV_P_BS, 0, (uint64_t)s->N * (k / 16));
    gdn__region_of(r, GDN_W4A4_GEMV_P_C, GDN__WRITTEN, gdn__times(m * (uint64_t)s->N, act));
    gdn__region_of(r, GDN_W4A4_GEMV_P_WORKSPACE, GDN__WRITTEN, workspace);
}

static void step(const gdn_step_shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r) {
    const bool made = s->gates == GDN_STEP_GATES_MADE, slots = !c || c->ptr[GDN_DECODE_STEP_P_SLOTS];
    const uint64_t act = gdn__size(s->base.act_type), w = gdn__size(s->weight_type), ab = made ? 4 : act;
    const uint64_t n = c ? c->u32[GDN_DECODE_STEP_U_BATCH] : s->max_batch, pool = slots ? s->num_slots : n;
    const uint64_t values = (uint64_t)s->nv * s->v_dim, channels = 2 * (uint64_t)s->nk * s->k_dim + values;
    const uint64_t reach = gate_reach(s->nv, s->vheads_per_group);
    gdn__region_rows(r, GDN_DECODE_STEP_P_X, 0, n, channels * act, s->x_stride * act);
    gdn__region_of(r, GDN_DECODE_STEP_P_WEIGHT, 0, channels * s->width * w);
    gdn__region_of(r, GDN_DECODE_STEP_P_BIAS, 0, channels * w);
    gdn__region_pool(r, GDN_DECODE_STEP_P_CONV_STATE, GDN__WRITTEN, pool, channels * s->state_len * act,
                     gdn__times(s->conv_slot_stride, act));
    gdn__region_rows(r, GDN_DECODE_STEP_P_A, 0, n, reach * ab, s->a_stride * ab);
    gdn__region_rows(r, GDN_DECODE_STEP_P_B, 0, n, reach * ab, s->b_stride * ab);
    if (!made) gdn__region_of(r, GDN_DECODE_STEP_P_A_LOG, 0, s->nv * 4ull);
    if (!made) gdn__region_of(r, GDN_DECODE_STEP_P_DT_BIAS, 0, s->nv * 4ull);
    gdn__region_pool(r, GDN_DECODE_STEP_P_STATE, GDN__WRITTEN, pool, values * s->k_dim * 4, gdn__times(s->state_stride, 4));
    gdn__region_rows(r, GDN_DECODE_STEP_P_Z, 0, n, values * act, s->z_stride * act);
    gdn__region_of(r, GDN_DECODE_STEP_P_NORM_WEIGHT, 0, s->v_dim * gdn__size(s->norm_weight_type));
    gdn__region_of(r, GDN_DECODE_STEP_P_OUT, GDN__WRITTEN, gdn__times(n, values * act));
    gdn__region_of(r, GDN_DECODE_STEP_P_SLOTS, 0, 4 * n);
    gdn__region_of(r, GDN_DECODE_STEP_P_FRESH, 0, n);
    gdn__region_of(r, GDN_DECODE_STEP_P_ACCEPTED, 0, 4 * n);
    gdn__region_of(r, GDN_DECODE_STEP_P_WORKSPACE, GDN__WRITTEN, workspace);
}

static void clear(const gdn_shape *s, const gdn__call *c, gdn__regions *r) {
    const uint64_t n = c && gdn__by_sequence(s) ? c->u32[GDN_FLAG_CLEAR_U_COUNT] : 1;
    const bool ids = c && c->ptr[GDN_FLAG_CLEAR_P_SEQ_IDS]; /* how many words the record has is not known then */
    gdn__region_of(r, GDN_FLAG_CLEAR_P_FLAG, GDN__WRITTEN, ids ? 4 : 4 * n);
    gdn__region_of(r, GDN_FLAG_CLEAR_P_SEQ_IDS, 0, 4 * n);
}

void gdn__regions_of(const gdn__shape *s, const gdn__call *c, uint64_t workspace, gdn__regions *r) {
    r->n = 0;
    switch (s->base.op) {
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: conv(&s->conv, c, r); break;
    case GDN_OP_GATES: gates(&s->gates, c, r); break;
    case GDN_OP_BA_GATES:
    case GDN_OP_BA_GEMV: ba(&s->ba, c, r); break;
    case GDN_OP_NORM: norm(&s->norm, c, r); break;
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: slot_lists(&s->state, c, r); break;
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: w4a4(&s->w4a4, c, workspace, r); break;
    case GDN_OP_DECODE_STEP: step(&s->step, c, workspace, r); break;
    case GDN_OP_FLAG_CLEAR: clear(&s->base, c, r); break;
    default: gdn__regions_rule(&s->rule, c, workspace, r); break;
    }
}
