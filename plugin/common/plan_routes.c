/* plan_routes.c - the pure decisions: which kernel a shape takes, or the first guard that declines it. Planner, launcher,
 * explain, route and log lines all ask here, so that they cannot disagree. */
#include "plan_common.h"
#include <string.h>

uint32_t gdn__scalar_spine(const char *pipe, const char *vtile) {
    if (pipe && strcmp(pipe, "1") == 0) return GDN__SPINE_PIPE;
    if (vtile && strcmp(vtile, "1") == 0) return GDN__SPINE_VTILE;
    if (pipe && strcmp(pipe, "0") == 0) return GDN__SPINE_VFUSED;
    return GDN__SPINE_PIPE;
}

#define TEXT_(ID, text) [ID] = text,
#define TEXTS_(name, MAP, end)                             \
    const char *name(uint32_t guard) {                     \
        static const char *const texts[] = { MAP(TEXT_) }; \
        return guard < (end) ? texts[guard] : NULL;        \
    }
TEXTS_(gdn__ba_guard_text, GDN_BA_GUARD_MAP, GDN_BA_TWIN)
TEXTS_(gdn__woa_guard_text, GDN_WOA_GUARD_MAP, GDN_WOA_TAKEN)
TEXTS_(gdn__w4a4_guard_text, GDN_W4A4_GUARD_MAP, GDN_W4A4_TAKEN)
TEXTS_(gdn__rule_guard_text, GDN__RULE_GUARD_MAP, GDN__RULE_TAKEN)
TEXTS_(gdn__tc_guard_text, GDN__TC_GUARD_MAP, GDN__TC_TAKEN)
TEXTS_(gdn__fast_guard_text, GDN__FAST_GUARD_MAP, GDN__FAST_TAKEN)
TEXTS_(gdn__dstep_guard_text, GDN_STEP_GUARD_MAP, GDN_STEP_TAKEN)
TEXTS_(gdn__ba_tc_guard_text, GDN__BA_TC_GUARD_MAP, GDN__BA_TC_TAKEN)

const char *gdn__guard_text(uint32_t g, uint32_t *op) {
    if (g < GDN__G_WOA) return *op = GDN_OP_BA_GATES, gdn__ba_guard_text(g - GDN__G_BA);
    if (g < GDN__G_W4A4) return *op = GDN_OP_VERIFY_WOA, gdn__woa_guard_text(g - GDN__G_WOA);
    if (g < GDN__G_RULE) return *op = GDN_OP_W4A4_GEMV, gdn__w4a4_guard_text(g - GDN__G_W4A4);
    if (g < GDN__G_TC) return *op = GDN_OP_VERIFY, gdn__rule_guard_text(g - GDN__G_RULE);
    if (g < GDN__G_BA_TC) return *op = GDN_OP_PREFILL, gdn__tc_guard_text(g - GDN__G_TC);
    if (g < GDN__G_FAST) return *op = GDN_OP_BA_GATES, gdn__ba_tc_guard_text(g - GDN__G_BA_TC);
    if (g < GDN__G_STEP) return *op = GDN_OP_PREFILL, gdn__fast_guard_text(g - GDN__G_FAST);
    return *op = GDN_OP_DECODE_STEP, g < GDN__GUARDS ? gdn__dstep_guard_text(g - GDN__G_STEP) : NULL;
}

uint32_t gdn__ba_min_tokens(uint32_t sm_count) {
    const uint32_t sm = sm_count ? sm_count : 1;
    return sm > UINT32_MAX / 2 ? UINT32_MAX : 2 * sm;
}

uint32_t gdn__ba_pick(bool requested, bool present, uint32_t m, uint32_t n, uint32_t k, uint32_t k_stride, uint32_t sm_count) {
    if (!requested) return GDN_BA_NOT_REQUESTED;
    if (!present) return GDN_BA_KERNEL_ABSENT;
    if (n == 0 || k == 0) return GDN_BA_EMPTY;
    if (k % 8) return GDN_BA_K_TAIL;
    if (k_stride < k) return GDN_BA_K_STRIDE;
    if (m < gdn__ba_min_tokens(sm_count)) return GDN_BA_FEW_TOKENS;
    return GDN_BA_TWIN;
}

/* Measured on an H200 (132 SMs, N 96, K 5120): the parent takes 17.5 us at M = 128 and 0.107 us a row more, the tensor cores 20 us and the
 * twin more than that at any M: they draw level at M = 150. */
uint32_t gdn__ba_tc_min_rows(uint32_t sm_count) {
    const uint64_t rows = ((uint64_t)(sm_count ? sm_count : 1) * 5 + 3) / 4;
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

uint32_t gdn__ba_tc_pick(bool requested, bool present, uint32_t m, uint32_t n, uint32_t k, uint32_t sm_count) {
    if (!requested) return GDN__BA_TC_NOT_REQUESTED;
    if (!present) return GDN__BA_TC_KERNEL_ABSENT;
    if (n > 128) return GDN__BA_TC_N_BIG;
    if (k % 64) return GDN__BA_TC_K_TILE;
    if (m < gdn__ba_tc_min_rows(sm_count)) return GDN__BA_TC_FEW_ROWS;
    return GDN__BA_TC_TAKEN;
}

uint32_t gdn__woa_pick(bool requested, bool present, const gdn_rule_shape *s, uint32_t rows, uint32_t batch) {
    if (!requested) return GDN_WOA_NOT_REQUESTED;
    const bool own_rows = s->offsets != GDN_OFFSETS_NONE; /* by sequence only */
    if (!own_rows && rows != GDN_WOA_ROWS) return GDN_WOA_ROWS_NOT_4;
    if (s->state_type != GDN_F32) return GDN_WOA_STATE_TYPE;
    if (s->k_dim != 128 || s->v_dim != 128) return GDN_WOA_DIMS;
    if (!present) return GDN_WOA_KERNEL_ABSENT;
    if (s->stash_seqs == 0) return GDN_WOA_NO_STASH;
    if (batch > s->stash_seqs) return GDN_WOA_STASH_SMALL;
    if (own_rows && (rows == 0 || rows > GDN_WOA_ROWS)) return GDN_WOA_ROWS_NOT_1_TO_4;
    return GDN_WOA_TAKEN;
}

uint32_t gdn__w4a4_pick(uint32_t m, uint32_t n, uint32_t k) {
    if (m > GDN_W4A4_MAX_M) return GDN_W4A4_M_BIG;
    if (n == 0) return GDN_W4A4_N_ZERO;
    if (k == 0) return GDN_W4A4_K_ZERO;
    if (k % 128) return GDN_W4A4_K_TAIL;
    if (k > GDN_W4A4_MAX_K) return GDN_W4A4_K_BIG;
    return GDN_W4A4_TAKEN;
}

uint32_t gdn__rule_pick(const gdn_rule_shape *s, uint32_t rows) {
    if (s->k_dim != s->v_dim || (s->k_dim != 64 && s->k_dim != 128)) return GDN__RULE_DIMS;
    const bool bf16 = gdn__bf16_state(s) && (s->base.op == GDN_OP_DECODE || s->base.op == GDN_OP_VERIFY);
    if (bf16 && !(s->base.flags & GDN_BF16_STATE)) return GDN__RULE_BF16_FLAG;
    if (bf16 && s->k_dim != 128) return GDN__RULE_BF16_DIMS;
    if (!bf16 && s->state_type != GDN_F32) return GDN__RULE_STATE_TYPE;
    if (s->base.op == GDN_OP_VERIFY || s->base.op == GDN_OP_FOLD) {
        if (rows == 0) return GDN__RULE_ROWS_ZERO;
        if (rows > GDN_MAX_ROWS) return GDN__RULE_ROWS_MANY;
        if (bf16 && rows > 4) return GDN__RULE_BF16_ROWS;
    }
    return GDN__RULE_TAKEN;
}

uint32_t gdn__tc_pick(bool requested, bool present, uint32_t k_dim, uint32_t v_dim, uint32_t chunk, uint32_t qk_stride) {
    if (!requested) return GDN__TC_NOT_REQUESTED;
    if (!present) return GDN__TC_KERNEL_ABSENT;
    if (k_dim != 128 || v_dim != 128 || chunk != GDN_CHUNK) return GDN__TC_DIMS;
    if (qk_stride % 8) return GDN__TC_STRIDE;
    return GDN__TC_TAKEN;
}

/* Queries and keys that are normalised first are read as dense copies. */
uint32_t gdn__fast_pick(bool requested, bool present, const gdn_rule_shape *s) {
    const bool copies = (s->base.flags & GDN_QK_L2NORM) != 0;
    if (!requested) return GDN__FAST_NOT_REQUESTED;
    if (!present) return GDN__FAST_KERNEL_ABSENT;
    if (s->k_dim != 128 || s->v_dim != 128) return GDN__FAST_DIMS;
    if (s->nv / s->nk > 8) return GDN__FAST_RATIO;
    if ((!copies && s->qk_stride % 8) || s->v_stride % 8) return GDN__FAST_STRIDE;
    if (s->max_tokens / GDN_CHUNK >= 65535) return GDN__FAST_LONG;
    return GDN__FAST_TAKEN;
}

uint32_t gdn__dstep_pick(const gdn_step_shape *s, uint32_t batch) {
    if (s->k_dim != 128 || s->v_dim != 128) return GDN_STEP_DIMS;
    if (s->width != 4) return GDN_STEP_WIDTH;
    if (s->state_type != GDN_F32) return GDN_STEP_STATE_TYPE;
    if (batch > 65535) return GDN_STEP_BATCH;
    return GDN_STEP_TAKEN;
}
