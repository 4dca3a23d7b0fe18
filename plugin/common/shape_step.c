/* shape_step.c - the shape of the fused decode step: defaults and checks. */
#include "plan_common.h"
#include <math.h>

static gdn_status check_values(const gdn_step_shape *s, const char *op, gdn_text *err) {
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "nk", s->nk)) || (st = gdn__check_nonzero(err, op, "nv", s->nv)) ||
        (st = gdn__check_nonzero(err, op, "k_dim", s->k_dim)) || (st = gdn__check_nonzero(err, op, "v_dim", s->v_dim)) ||
        (st = gdn__check_nonzero(err, op, "max_batch", s->max_batch)) ||
        (st = gdn__check_enum(err, op, "width", s->width, 1, GDN_CONV_MAX_WIDTH)) ||
        (st = gdn__check_enum(err, op, "gates (GDN_STEP_GATES_RAW or GDN_STEP_GATES_MADE)", s->gates, 1, GDN_STEP_GATES_MADE)) ||
        (st = gdn__check_enum(err, op, "head_map", s->head_map, 0, GDN_HEADS_TILED)) ||
        (st = gdn__check_enum(err, op, "norm_act (GDN_NORM_SILU or GDN_NORM_SIGMOID)", s->norm_act, 1, GDN_NORM_SIGMOID)) ||
        (st = gdn__check_type(err, op, "weight_type", s->weight_type)) ||
        (st = gdn__check_type(err, op, "norm_weight_type", s->norm_weight_type)) ||
        (st = gdn__check_type(err, op, "state_type", s->state_type)))
        return st;
    if (s->weight_type == GDN_F16 || s->norm_weight_type == GDN_F16)
        return gdn__fail(err, GDN_E_ARG, "%s: %s f16 is not supported", op, s->weight_type == GDN_F16 ? "weight_type" : "norm_weight_type");
    if (s->pad_) return gdn__fail(err, GDN_E_ARG, "%s: pad_ is not 0", op);
    if (s->nv % s->nk) return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, not a multiple of nk, %u", op, s->nv, s->nk);
    if (s->k_dim > 4096 || s->v_dim > 4096 || s->nv > 65535)
        return gdn__fail(err, GDN_E_ARG, "%s: nv %u x k_dim %u x v_dim %u is no state size", op, s->nv, s->k_dim, s->v_dim);
    if (!isfinite(s->eps) || s->eps <= 0) return gdn__fail(err, GDN_E_ARG, "%s: eps is not a finite number > 0", op);
    if (!isfinite(s->scale) || s->scale < 0) return gdn__fail(err, GDN_E_ARG, "%s: scale is not a finite number >= 0", op);
    return GDN_OK;
}

/* a and b rows. Made gates lie side by side, [gate nv | beta nv], as ba_gates and gates leave them. */
static gdn_status check_gates(gdn_step_shape *s, const char *op, gdn_text *err) {
    const bool made = s->gates == GDN_STEP_GATES_MADE;
    const uint32_t vpg = s->vheads_per_group;
    gdn_status st;
    if (made && vpg) return gdn__fail(err, GDN_E_ARG, "%s: vheads_per_group is for raw gates", op);
    if (!made && (st = gdn__check_type(err, op, "param_type", s->param_type))) return st;
    if (!made && s->param_type != GDN_F32)
        return gdn__fail(err, GDN_E_ARG, "%s: param_type: A_log and dt_bias must be f32 (widen what a checkpoint keeps in bf16)", op);
    if (vpg && s->nv % vpg) return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, not a multiple of vheads_per_group, %u", op, s->nv, vpg);
    if (s->a_stride == 0 && (made || vpg)) s->a_stride = 2 * s->nv;
    if (s->b_stride == 0 && (made || vpg)) s->b_stride = 2 * s->nv;
    const uint64_t reach = vpg ? 2 * (uint64_t)s->nv - vpg : s->nv; /* from either base, as in gdn__shape_gates */
    if ((st = gdn__check_stride(err, op, "a_stride", &s->a_stride, reach))) return st;
    if ((st = gdn__check_stride(err, op, "b_stride", &s->b_stride, reach))) return st;
    if (made && s->a_stride != s->b_stride)
        return gdn__fail(err, GDN_E_ARG, "%s: a_stride is %u and b_stride %u, made gates are in one row", op, s->a_stride, s->b_stride);
    return GDN_OK;
}

static gdn_status check_slot(gdn_text *err, const char *op, const char *field, uint64_t *stride, uint64_t one) {
    if (*stride == 0) *stride = one;
    if (*stride >= one) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: %s is %llu, shorter than a slot of %llu elements", op, field, (unsigned long long)*stride,
                     (unsigned long long)one);
}

gdn_status gdn__shape_step(gdn_step_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    gdn_status st = check_values(s, op, err);
    if (st) return st;
    const uint64_t values = (uint64_t)s->nv * s->v_dim, channels = 2 * (uint64_t)s->nk * s->k_dim + values;
    if (s->state_len == 0) s->state_len = s->width - 1;
    if (s->state_len < s->width - 1 || s->state_len > 4096)
        return gdn__fail(err, GDN_E_ARG, "%s: state_len is %u, expected width-1, %u, to 4096", op, s->state_len, s->width - 1);
    if ((st = gdn__check_stride(err, op, "x_stride", &s->x_stride, channels)) ||
        (st = gdn__check_stride(err, op, "z_stride", &s->z_stride, values)) || (st = check_gates(s, op, err)) ||
        (st = check_slot(err, op, "conv_slot_stride", &s->conv_slot_stride, channels * s->state_len)))
        return st;
    if (s->scale == 0) s->scale = gdn__own_scale(s->k_dim);
    return check_slot(err, op, "state_stride", &s->state_stride, values * s->k_dim);
}
