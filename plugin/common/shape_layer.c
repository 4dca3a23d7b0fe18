/* shape_layer.c - shapes of convolution, gates, b/a projection, norm, state copies and W4A4: defaults and checks. */
#include "plan_common.h"
#include <math.h>

static gdn_status check_conv_heads(gdn_conv_shape *s, const char *op, gdn_text *err) {
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "nk", s->nk)) || (st = gdn__check_nonzero(err, op, "nv", s->nv)) ||
        (st = gdn__check_nonzero(err, op, "k_dim", s->k_dim)) || (st = gdn__check_nonzero(err, op, "v_dim", s->v_dim)))
        return st;
    const uint64_t q = (uint64_t)s->nk * s->k_dim, v = (uint64_t)s->nv * s->v_dim, all = 2 * q + v;
    if (all != s->channels)
        return gdn__fail(err, GDN_E_ARG, "%s: channels is %u, not 2*nk*k_dim + nv*v_dim, %llu", op, s->channels, (unsigned long long)all);
    if (s->k_dim > 512) return gdn__fail(err, GDN_E_ARG, "%s: k_dim is %u, above 512", op, s->k_dim);
    if (s->silu != GDN_CONV_ACT_SILU) return gdn__fail(err, GDN_E_ARG, "%s: silu is %u, this form always applies it: set 1", op, s->silu);
    if (s->out_stride) return gdn__fail(err, GDN_E_ARG, "%s: out_stride is for conv1d; set q_stride, k_stride and v_stride", op);
    if (s->q_stride == 0) s->q_stride = s->channels;
    if (s->k_stride == 0) s->k_stride = s->channels;
    if (s->v_stride == 0) s->v_stride = s->channels;
    if ((st = gdn__check_stride(err, op, "q_stride", &s->q_stride, q)) || (st = gdn__check_stride(err, op, "k_stride", &s->k_stride, q)))
        return st;
    return gdn__check_stride(err, op, "v_stride", &s->v_stride, v);
}

gdn_status gdn__shape_conv(gdn_conv_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "channels", s->channels)) || (st = gdn__check_nonzero(err, op, "max_tokens", s->max_tokens)) ||
        (st = gdn__check_nonzero(err, op, "max_batch", s->max_batch)) ||
        (st = gdn__check_enum(err, op, "width", s->width, 1, GDN_CONV_MAX_WIDTH)) ||
        (st = gdn__check_enum(err, op, "silu", s->silu, 0, GDN_CONV_ACT_SILU)) ||
        (st = gdn__check_type(err, op, "weight_type", s->weight_type)) ||
        (st = gdn__check_enum(err, op, "offsets", s->offsets, 0, GDN_OFFSETS_I64)))
        return st;
    if (s->weight_type == GDN_F16) return gdn__fail(err, GDN_E_ARG, "%s: weight_type f16 is not supported", op);
    if (s->pad_) return gdn__fail(err, GDN_E_ARG, "%s: pad_ is not 0", op);
    if (s->state_len == 0) s->state_len = s->width - 1;
    if (s->state_len < s->width - 1 || s->state_len > 4096)
        return gdn__fail(err, GDN_E_ARG, "%s: state_len is %u, expected width-1, %u, to 4096", op, s->state_len, s->width - 1);
    if ((st = gdn__check_stride(err, op, "x_stride", &s->x_stride, s->channels))) return st;
    if (s->base.op == GDN_OP_CONV_FUSED) {
        if ((st = check_conv_heads(s, op, err))) return st;
    } else {
        if (s->nk || s->nv || s->k_dim || s->v_dim || s->q_stride || s->k_stride || s->v_stride)
            return gdn__fail(err, GDN_E_ARG, "%s: heads and their strides are for conv_fused", op);
        if ((st = gdn__check_stride(err, op, "out_stride", &s->out_stride, s->channels))) return st;
    }
    const uint64_t one = (uint64_t)s->channels * s->state_len;
    if (s->slot_stride == 0) s->slot_stride = one;
    if (s->slot_stride < one)
        return gdn__fail(err, GDN_E_ARG, "%s: slot_stride is %llu, shorter than a slot of %llu elements", op,
                         (unsigned long long)s->slot_stride, (unsigned long long)one);
    return GDN_OK;
}

gdn_status gdn__shape_gates(gdn_gates_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "nv", s->nv)) || (st = gdn__check_nonzero(err, op, "max_rows", s->max_rows)) ||
        (st = gdn__check_enum(err, op, "gate_form (GDN_GATE_LINEAR or GDN_GATE_LOG)", s->gate_form, 1, GDN_GATE_LOG)) ||
        (st = gdn__check_type(err, op, "param_type", s->param_type)))
        return st;
    if (s->param_type != GDN_F32)
        return gdn__fail(err, GDN_E_ARG, "%s: param_type: A_log and dt_bias must be f32 (widen what a checkpoint keeps in bf16)", op);
    if (s->vheads_per_group && s->nv % s->vheads_per_group)
        return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, not a multiple of vheads_per_group, %u", op, s->nv, s->vheads_per_group);
    /* From either base the last value that is read is nv-1 away, or (groups-1)*2*vpg + vpg-1 = 2*nv - vpg - 1 when interleaved. */
    const uint64_t reach = s->vheads_per_group ? 2 * (uint64_t)s->nv - s->vheads_per_group : s->nv;
    if (s->vheads_per_group && s->a_stride == 0 && s->nv < UINT32_MAX / 2) s->a_stride = 2 * s->nv;
    if (s->vheads_per_group && s->b_stride == 0 && s->nv < UINT32_MAX / 2) s->b_stride = 2 * s->nv;
    if ((st = gdn__check_stride(err, op, "a_stride", &s->a_stride, reach)) ||
        (st = gdn__check_stride(err, op, "b_stride", &s->b_stride, reach)))
        return st;
    return gdn__check_stride(err, op, "gate_stride", &s->gate_stride, 2 * (uint64_t)s->nv);
}

gdn_status gdn__shape_ba(gdn_ba_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st;
    if (s->N == 0 || s->K == 0) return gdn__fail(err, GDN_E_ARG, "%s: %s", op, gdn__ba_guard_text(GDN_BA_EMPTY));
    if (s->K % 8) return gdn__fail(err, GDN_E_ARG, "%s: %s", op, gdn__ba_guard_text(GDN_BA_K_TAIL));
    if (s->K_stride == 0) s->K_stride = s->K;
    if (s->K_stride < s->K) return gdn__fail(err, GDN_E_ARG, "%s: %s", op, gdn__ba_guard_text(GDN_BA_K_STRIDE));
    if (s->N != 2 * (uint64_t)s->nv) return gdn__fail(err, GDN_E_ARG, "%s: %s", op, GDN_BA_N_TEXT);
    if (s->K_stride % 8) return gdn__fail(err, GDN_E_ARG, "%s: %s", op, GDN_BA_ALIGN_TEXT);
    if ((st = gdn__check_nonzero(err, op, "vheads_per_group", s->vheads_per_group)) ||
        (st = gdn__check_type(err, op, "weight_type", s->weight_type)))
        return st;
    if (s->weight_type == GDN_F16) return gdn__fail(err, GDN_E_ARG, "%s: weight_type f16 is not supported", op);
    if (s->nv % s->vheads_per_group)
        return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, not a multiple of vheads_per_group, %u", op, s->nv, s->vheads_per_group);
    if (s->base.op == GDN_OP_BA_GEMV) {
        s->max_m = 1;
        if (s->gate_stride) return gdn__fail(err, GDN_E_ARG, "%s: has one row, gate_stride is for ba_gates", op);
    } else if ((st = gdn__check_nonzero(err, op, "max_m", s->max_m))) {
        return st;
    }
    return gdn__check_stride(err, op, "gate_stride", &s->gate_stride, 2 * (uint64_t)s->nv);
}

gdn_status gdn__shape_norm(gdn_norm_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "dim", s->dim)) || (st = gdn__check_nonzero(err, op, "max_rows", s->max_rows)) ||
        (st = gdn__check_enum(err, op, "act (GDN_NORM_SILU or GDN_NORM_SIGMOID)", s->act, 1, GDN_NORM_SIGMOID)) ||
        (st = gdn__check_type(err, op, "weight_type", s->weight_type)))
        return st;
    if (s->weight_type == GDN_F16) return gdn__fail(err, GDN_E_ARG, "%s: weight_type f16 is not supported", op);
    if (!isfinite(s->eps) || s->eps <= 0) return gdn__fail(err, GDN_E_ARG, "%s: eps is not a finite number > 0", op);
    if (s->heads == 0) s->heads = 1;
    if ((st = gdn__check_stride(err, op, "x_stride", &s->x_stride, (uint64_t)s->heads * s->dim))) return st;
    return gdn__check_stride(err, op, "z_stride", &s->z_stride, (uint64_t)s->heads * s->dim);
}

gdn_status gdn__shape_state(gdn_state_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "bytes", s->bytes)) || (st = gdn__check_nonzero(err, op, "max_count", s->max_count))) return st;
    if (s->pad_) return gdn__fail(err, GDN_E_ARG, "%s: pad_ is not 0", op);
    if (s->src_stride == 0 || s->base.op == GDN_OP_STATE_ZERO) s->src_stride = s->bytes;
    if (s->dst_stride == 0) s->dst_stride = s->bytes;
    if (s->src_stride < s->bytes)
        return gdn__fail(err, GDN_E_ARG, "%s: src_stride is shorter than a state of %llu bytes", op, (unsigned long long)s->bytes);
    if (s->dst_stride < s->bytes)
        return gdn__fail(err, GDN_E_ARG, "%s: dst_stride is shorter than a state of %llu bytes", op, (unsigned long long)s->bytes);
    return GDN_OK;
}

/* What the route refuses by name (m, n, k) is the target's decision: gdn__w4a4_pick. */
gdn_status gdn__shape_w4a4(gdn_w4a4_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    const gdn_status st = gdn__check_nonzero(err, op, "max_m", s->max_m);
    if (st) return st;
    if (s->base.op == GDN_OP_W4A4_GEMV && s->a_stride) return gdn__fail(err, GDN_E_ARG, "%s: a_stride is for w4a4_quant", op);
    return gdn__check_stride(err, op, "a_stride", &s->a_stride, s->K);
}
