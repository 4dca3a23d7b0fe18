/* call_counts.c - this launch's counts: is there work, and are they within the plan's maxima. */
#include "plan_common.h"

/* A launch without work is done before any pointer is looked at. */
bool gdn__call_is_empty(const gdn__shape *s, const gdn__call *c) {
    switch (s->base.op) {
    case GDN_OP_PREFILL: return c->u32[GDN_PREFILL_U_BATCH] == 0;
    case GDN_OP_DECODE: return c->u32[GDN_DECODE_U_BATCH] == 0;
    case GDN_OP_VERIFY: return c->u32[GDN_VERIFY_U_BATCH] == 0;
    case GDN_OP_VERIFY_WOA: return c->u32[GDN_VERIFY_WOA_U_BATCH] == 0;
    case GDN_OP_FOLD: return c->u32[GDN_FOLD_U_BATCH] == 0;
    case GDN_OP_ROUND: return c->u32[GDN_ROUND_U_BATCH] == 0;
    case GDN_OP_CONV1D: return c->u32[GDN_CONV1D_U_BATCH] == 0;
    case GDN_OP_CONV_FUSED: return c->u32[GDN_CONV_FUSED_U_BATCH] == 0;
    case GDN_OP_BA_GEMV: return false;
    case GDN_OP_FLAG_CLEAR: return gdn__by_sequence(&s->base) && c->u32[GDN_FLAG_CLEAR_U_COUNT] == 0;
    case GDN_OP_W4A4_GEMV: return c->u32[GDN_W4A4_GEMV_U_M] == 0;
    default: return c->u32[0] == 0; /* rows, M, count: the only scalar */
    }
}

static gdn_status check_uniform(const gdn__call *c, uint32_t batch, uint32_t seq_len, uint32_t max_tokens, bool packed, gdn_text *err) {
    if (packed || (uint64_t)batch * seq_len <= max_tokens) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: %u sequences of %u tokens are above the plan's max_tokens, %u", gdn__op_name(c->op->op), batch,
                     seq_len, max_tokens);
}

gdn_status gdn__call_counts(const gdn__shape *s, const gdn__call *c, gdn_text *err) {
    gdn_status st;
    switch (s->base.op) {
    case GDN_OP_PREFILL:
        if ((st = gdn__call_max(c, GDN_PREFILL_U_BATCH, s->rule.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_PREFILL_U_SEQ_LEN, s->rule.max_tokens, "max_tokens", err)))
            return st;
        return check_uniform(c, c->u32[GDN_PREFILL_U_BATCH], c->u32[GDN_PREFILL_U_SEQ_LEN], s->rule.max_tokens, s->rule.offsets, err);
    case GDN_OP_DECODE: return gdn__call_max(c, GDN_DECODE_U_BATCH, s->rule.max_batch, "max_batch", err);
    case GDN_OP_VERIFY:
        if ((st = gdn__call_max(c, GDN_VERIFY_U_BATCH, s->rule.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_VERIFY_U_ROWS, s->rule.max_rows, "max_rows", err)))
            return st;
        if (s->rule.state_addr == GDN_STATE_CONTIGUOUS && c->u32[GDN_VERIFY_U_BATCH] > 1)
            return gdn__fail(err, GDN_E_ARG, "verify: the contiguous state form is legal only at batch 1, not %u",
                             c->u32[GDN_VERIFY_U_BATCH]);
        return GDN_OK;
    case GDN_OP_VERIFY_WOA: return gdn__call_max(c, GDN_VERIFY_WOA_U_BATCH, s->rule.max_batch, "max_batch", err);
    case GDN_OP_ROUND:
        if ((st = gdn__call_max(c, GDN_ROUND_U_BATCH, s->rule.max_batch, "max_batch", err))) return st;
        return gdn__call_max(c, GDN_ROUND_U_K_ROWS, s->rule.max_rows, "max_rows", err);
    case GDN_OP_FOLD:
        if ((st = gdn__call_max(c, GDN_FOLD_U_BATCH, s->rule.max_batch, "max_batch", err))) return st;
        return gdn__call_max(c, GDN_FOLD_U_K_ROWS, s->rule.max_rows, "max_rows", err);
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED:
        if ((st = gdn__call_max(c, GDN_CONV1D_U_BATCH, s->conv.max_batch, "max_batch", err)) ||
            (st = gdn__call_max(c, GDN_CONV1D_U_SEQ_LEN, s->conv.max_tokens, "max_tokens", err)))
            return st;
        return check_uniform(c, c->u32[GDN_CONV1D_U_BATCH], c->u32[GDN_CONV1D_U_SEQ_LEN], s->conv.max_tokens, s->conv.offsets, err);
    case GDN_OP_GATES: return gdn__call_max(c, GDN_GATES_U_ROWS, s->gates.max_rows, "max_rows", err);
    case GDN_OP_BA_GATES: return gdn__call_max(c, GDN_BA_GATES_U_M, s->ba.max_m, "max_m", err);
    case GDN_OP_NORM: return gdn__call_max(c, GDN_NORM_U_ROWS, s->norm.max_rows, "max_rows", err);
    case GDN_OP_FLAG_CLEAR:
        if (gdn__by_sequence(&s->base) && c->n_u32 == 0)
            return gdn__fail(err, GDN_E_ARG, "flag_clear: 'count' is missing, but the plan is GDN_VERIFY_BY_SEQUENCE");
        if (gdn__by_sequence(&s->base) || c->u32[GDN_FLAG_CLEAR_U_COUNT] == 0) return GDN_OK;
        return gdn__fail(err, GDN_E_ARG, "flag_clear: 'count' is %u, but the plan is not GDN_VERIFY_BY_SEQUENCE",
                         c->u32[GDN_FLAG_CLEAR_U_COUNT]);
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: return gdn__call_max(c, GDN_STATE_COPY_U_COUNT, s->state.max_count, "max_count", err);
    case GDN_OP_DECODE_STEP: return gdn__call_max(c, GDN_DECODE_STEP_U_BATCH, s->step.max_batch, "max_batch", err);
    case GDN_OP_W4A4_QUANT: return gdn__call_max(c, GDN_W4A4_QUANT_U_M, s->w4a4.max_m, "max_m", err);
    case GDN_OP_W4A4_GEMV: return gdn__call_max(c, GDN_W4A4_GEMV_U_M, s->w4a4.max_m, "max_m", err);
    default: return GDN_OK;
    }
}
