/* shape_rule.c - the shape of prefill, decode, verify, write-on-accept verify and fold: defaults and checks. */
#include "plan_common.h"
#include <math.h>

static gdn_status check_heads(gdn_rule_shape *s, const char *op, gdn_text *err) {
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "nk", s->nk)) || (st = gdn__check_nonzero(err, op, "nv", s->nv)) ||
        (st = gdn__check_nonzero(err, op, "k_dim", s->k_dim)) || (st = gdn__check_nonzero(err, op, "v_dim", s->v_dim)))
        return st;
    if (s->nv % s->nk) return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, not a multiple of nk, %u", op, s->nv, s->nk);
    if ((st = gdn__check_stride(err, op, "qk_stride", &s->qk_stride, (uint64_t)s->nk * s->k_dim)) ||
        (st = gdn__check_stride(err, op, "v_stride", &s->v_stride, (uint64_t)s->nv * s->v_dim)))
        return st;
    if (s->gb_stride == 0 && s->nv > UINT32_MAX / 2) return gdn__fail(err, GDN_E_ARG, "%s: nv is %u, too many", op, s->nv);
    if (s->gb_stride == 0) s->gb_stride = 2 * s->nv;
    return gdn__check_stride(err, op, "gb_stride", &s->gb_stride, s->nv);
}

static gdn_status check_state(gdn_rule_shape *s, const char *op, gdn_text *err) {
    gdn_status st;
    const uint64_t one = (uint64_t)s->nv * s->k_dim * s->v_dim;
    if (s->k_dim > 4096 || s->v_dim > 4096 || s->nv > (1u << 20))
        return gdn__fail(err, GDN_E_ARG, "%s: nv %u x k_dim %u x v_dim %u is no state size", op, s->nv, s->k_dim, s->v_dim);
    if ((st = gdn__check_type(err, op, "state_type", s->state_type)) ||
        (st = gdn__check_enum(err, op, "state_layout", s->state_layout, 0, GDN_STATE_V_MAJOR)) ||
        (st = gdn__check_enum(err, op, "state_addr", s->state_addr, 0, GDN_STATE_TABLE)))
        return st;
    if (s->state_stride == 0) s->state_stride = one;
    if (s->state_stride < one)
        return gdn__fail(err, GDN_E_ARG, "%s: state_stride is %llu, shorter than a state of %llu elements", op,
                         (unsigned long long)s->state_stride, (unsigned long long)one);
    if (s->state_addr != GDN_STATE_POOL && s->state_stride != one)
        return gdn__fail(err, GDN_E_ARG, "%s: state_stride is only for GDN_STATE_POOL", op);
    if (s->slab_entries == 0) s->slab_entries = GDN_SLAB_ENTRIES;
    if (s->base.flags & GDN_BF16_STATE && !gdn__bf16_state(s))
        return gdn__fail(err, GDN_E_ARG, "%s: GDN_BF16_STATE is set, but state_type is not GDN_BF16", op);
    if (gdn__bf16_state(s) && s->state_stride % 4)
        return gdn__fail(err, GDN_E_ARG, "%s: state_stride is %llu, not a multiple of 4 (bf16 state)", op,
                         (unsigned long long)s->state_stride);
    const bool by_sequence = gdn__by_sequence(&s->base);
    const uint32_t entries = by_sequence ? s->stash_seqs : s->max_batch;
    if (s->state_addr == GDN_STATE_TABLE && (s->base.op == GDN_OP_VERIFY || s->base.op == GDN_OP_FOLD || s->base.op == GDN_OP_ROUND) &&
        s->slab_entries < entries)
        return gdn__fail(err, GDN_E_ARG, "%s: slab_entries is %u, below %s, %u", op, s->slab_entries,
                         by_sequence ? "stash_seqs" : "max_batch", entries);
    return GDN_OK;
}

static gdn_status check_rows(gdn_rule_shape *s, const char *op, gdn_text *err) {
    const uint64_t stash = 4 * ((uint64_t)s->nv * s->v_dim + s->nv + (uint64_t)s->nk * s->k_dim);
    const bool by_sequence = gdn__by_sequence(&s->base);
    const uint32_t need = by_sequence ? s->max_rows : s->max_rows > 1 ? s->max_rows - 1 : 0;
    if (s->hi_capacity == 0) s->hi_capacity = need;
    if (s->hi_capacity < need)
        return gdn__fail(err, GDN_E_ARG, "%s: hi_capacity is %u, below max_rows%s, %u", op, s->hi_capacity, by_sequence ? "" : " - 1",
                         need);
    if (s->stash_stride == 0) s->stash_stride = stash;
    if (s->stash_stride < stash)
        return gdn__fail(err, GDN_E_ARG, "%s: stash_stride is %llu, below %llu", op, (unsigned long long)s->stash_stride,
                         (unsigned long long)stash);
    return GDN_OK;
}

/* The flag's own demands; what verify_woa and round lack, a guard says. */
static gdn_status check_by_sequence(const gdn_rule_shape *s, const char *op, gdn_text *err) {
    if (!gdn__by_sequence(&s->base) || gdn__defers(s->base.op)) return GDN_OK;
    if (s->base.flags & GDN_BF16_STATE)
        return gdn__fail(err, GDN_E_ARG, "%s: GDN_BF16_STATE and GDN_VERIFY_BY_SEQUENCE do not go together", op);
    if (s->stash_seqs < s->max_batch)
        return gdn__fail(err, GDN_E_ARG, "%s: stash_seqs is %u, below max_batch, %u: GDN_VERIFY_BY_SEQUENCE numbers the sequences", op,
                         s->stash_seqs, s->max_batch);
    if (s->offsets && s->base.op == GDN_OP_FOLD)
        return gdn__fail(err, GDN_E_ARG, "%s: takes no offsets with GDN_VERIFY_BY_SEQUENCE, the record has the rows", op);
    return GDN_OK;
}

float gdn__own_scale(uint32_t k_dim) {
    return k_dim == 128 ? 0x1.6a09e4p-4f : 1.0f / sqrtf((float)k_dim); /* 0x3db504f2; 64: 0.125 either way */
}

gdn_status gdn__shape_rule(gdn_rule_shape *s, gdn_text *err) {
    const char *op = gdn__op_name(s->base.op);
    const bool prefill = s->base.op == GDN_OP_PREFILL, rows = prefill || s->base.op == GDN_OP_DECODE ? false : true;
    gdn_status st;
    if ((st = gdn__check_nonzero(err, op, "max_batch", s->max_batch)) || (st = check_heads(s, op, err)) || (st = check_state(s, op, err)))
        return st;
    if (s->base.op != GDN_OP_FOLD &&
        (st = gdn__check_enum(err, op, "gate_form (GDN_GATE_LINEAR or GDN_GATE_LOG)", s->gate_form, 1, GDN_GATE_LOG)))
        return st;
    if ((st = gdn__check_enum(err, op, "head_map", s->head_map, 0, GDN_HEADS_TILED)) ||
        (st = gdn__check_enum(err, op, "offsets", s->offsets, 0, GDN_OFFSETS_I64)))
        return st;
    if (prefill && (st = gdn__check_nonzero(err, op, "max_tokens", s->max_tokens))) return st;
    if (!prefill && s->ckpt_every) return gdn__fail(err, GDN_E_ARG, "%s: ckpt_every is %u, only prefill keeps states", op, s->ckpt_every);
    if (prefill && s->ckpt_every % GDN_CHUNK)
        return gdn__fail(err, GDN_E_ARG, "%s: ckpt_every is %u, not a multiple of %d", op, s->ckpt_every, GDN_CHUNK);
    if (rows && ((st = check_rows(s, op, err)) || (st = check_by_sequence(s, op, err)))) return st;
    if (s->offsets && s->base.op == GDN_OP_DECODE) return gdn__fail(err, GDN_E_ARG, "%s: takes no offsets", op);
    if (s->offsets && gdn__defers(s->base.op) && !gdn__by_sequence(&s->base))
        return gdn__fail(err, GDN_E_ARG, "%s: takes no offsets without GDN_VERIFY_BY_SEQUENCE", op);
    if (!isfinite(s->scale) || s->scale < 0) return gdn__fail(err, GDN_E_ARG, "%s: scale is not a finite number >= 0", op);
    if (s->scale == 0) s->scale = gdn__own_scale(s->k_dim);
    if (s->layers == 0) s->layers = 1;
    if (s->max_workspace == 0) s->max_workspace = (uint64_t)1 << 30;
    if (s->max_workspace > (uint64_t)1 << 62) s->max_workspace = (uint64_t)1 << 62; /* no bound, and no sum overflows */
    return GDN_OK;
}
