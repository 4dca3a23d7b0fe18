/* shape_read.c - takes a caller's shape of any ABI minor: size, operation, flags, activation type, then the family's checks. */
#include "plan_common.h"
#include <string.h>

/* A longer struct than ours comes from a newer caller: what we do not know must be unset, or it would be ignored in silence. */
static bool tail_is_zero(const gdn_shape *in, uint32_t known) {
    const unsigned char *p = (const unsigned char *)in;
    for (uint32_t i = known; i < in->struct_size; i++)
        if (p[i]) return false;
    return true;
}

static gdn_status check_base(const gdn_shape *b, const gdn__op *op, gdn_text *err) {
    const char *name = gdn__op_name(op->op);
    if (b->flags & ~op->flags)
        return gdn__fail(err, GDN_E_ARG, "%s: flags has bits that it does not take: 0x%x", name, b->flags & ~op->flags);
    if (!gdn__has_activations(op->op)) return GDN_OK;
    if (b->act_type == GDN_F16) return gdn__fail(err, GDN_E_ARG, "%s: act_type f16 is not supported, expected GDN_BF16 or GDN_F32", name);
    return gdn__check_type(err, name, "act_type", b->act_type);
}

static gdn_status check_family(gdn__shape *s, gdn_text *err) {
    switch (s->base.op) {
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: return gdn__shape_conv(&s->conv, err);
    case GDN_OP_GATES: return gdn__shape_gates(&s->gates, err);
    case GDN_OP_BA_GATES:
    case GDN_OP_BA_GEMV: return gdn__shape_ba(&s->ba, err);
    case GDN_OP_NORM: return gdn__shape_norm(&s->norm, err);
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: return gdn__shape_state(&s->state, err);
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: return gdn__shape_w4a4(&s->w4a4, err);
    case GDN_OP_FLAG_CLEAR: return GDN_OK;
    case GDN_OP_DECODE_STEP: return gdn__shape_step(&s->step, err);
    default: return gdn__shape_rule(&s->rule, err);
    }
}

gdn_status gdn__shape_read(const gdn_shape *in, gdn__shape *out, gdn_text *err) {
    if (!in) return gdn__fail(err, GDN_E_ARG, "plan: the shape is NULL");
    if (in->struct_size < sizeof *in)
        return gdn__fail(err, GDN_E_ABI, "plan: struct_size is %u, less than a shape's head", in->struct_size);
    const gdn__op *op = gdn__op_find(in->op);
    if (!op) return gdn__fail(err, GDN_E_ARG, "plan: op %u is no operation", in->op);
    const char *name = gdn__op_name(in->op);
    if (in->struct_size < op->shape_size)
        return gdn__fail(err, GDN_E_ABI, "%s: struct_size is %u, its shape has %u bytes", name, in->struct_size, op->shape_size);
    if (in->struct_size > 4096) return gdn__fail(err, GDN_E_ABI, "%s: struct_size is %u, which is no shape", name, in->struct_size);
    if (!tail_is_zero(in, op->shape_size))
        return gdn__fail(err, GDN_E_ABI, "%s: the shape sets fields past byte %u, which this plugin does not know", name, op->shape_size);
    memset(out, 0, sizeof *out);
    memcpy(out, in, op->shape_size);
    out->base.struct_size = op->shape_size;
    gdn_status st = check_base(&out->base, op, err);
    if (!st) st = check_family(out, err);
    return st ? st : gdn__shape_reach(out, err);
}
