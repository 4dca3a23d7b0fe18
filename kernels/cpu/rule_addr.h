/* rule_addr.h - where a launch of the gated delta rule finds things: states, offsets, heads, rows (layouts: abi/gdn_op_rule.h).
 *
 * State functions give the base of a sequence's nv blocks of k_dim*v_dim elements, or NULL where the slot or the table entry says
 * padding. All index arithmetic is 64-bit. */
#ifndef GDN_RULE_ADDR_H
#define GDN_RULE_ADDR_H

#include "cpu_kernels.h"
#include "gdn_op_rule.h"
#include <stddef.h>

/* Elements of all value heads of one sequence, and of one head. */
static inline uint64_t gdn__rule_head_size(const gdn_cpu_rule *c) {
    return (uint64_t)c->k_dim * c->v_dim;
}
static inline uint64_t gdn__rule_seq_size(const gdn_cpu_rule *c) {
    return c->nv * gdn__rule_head_size(c);
}

/* The state `elements` further on; bf16 ones travel as float * too. */
static inline float *gdn__rule_further(const gdn_cpu_rule *c, const void *state, uint64_t elements) {
    return (float *)((uintptr_t)state + elements * (c->bf16_state ? 2 : 4));
}

static inline float *gdn__rule_base(const gdn_cpu_rule *c, const void *state, const int32_t *slots, uint32_t b) {
    if (c->addr == GDN_STATE_TABLE) return (float *)(uintptr_t)((const uint64_t *)state)[b];
    if (c->addr == GDN_STATE_POOL) return slots[b] < 0 ? NULL : gdn__rule_further(c, state, (uint64_t)slots[b] * c->state_stride);
    return gdn__rule_further(c, state, b * gdn__rule_seq_size(c));
}
/* The state that sequence b starts from (whether it is read is fresh's say), and where it goes. */
static inline const float *gdn__rule_in(const gdn_cpu_rule *c, uint32_t b) {
    return gdn__rule_base(c, c->state, c->in_slots, b);
}
static inline float *gdn__rule_out(const gdn_cpu_rule *c, uint32_t b) {
    return gdn__rule_base(c, c->state_out, c->out_slots, b);
}

/* The row of sequence b in what outlives a launch: stash, hi, record. */
static inline uint32_t gdn__rule_id(const gdn_cpu_rule *c, uint32_t b) {
    return c->ids ? (uint32_t)c->ids[b] : b;
}
/* Entry b of the offsets (prefill: cu_seqlens, verify: cu_rows); without offsets every sequence has seq_len rows. */
static inline uint64_t gdn__rule_row(const gdn_cpu_rule *c, uint32_t b) {
    if (!c->cu) return (uint64_t)b * c->seq_len;
    return c->cu64 ? (uint64_t)((const int64_t *)c->cu)[b] : (uint64_t)((const int32_t *)c->cu)[b];
}

/* Rows that a fold found to be accepted: of those that there were. */
static inline uint32_t gdn__rule_accepted(const gdn_cpu_rule *fold, uint32_t b) {
    const uint32_t rows = fold->record                           ? fold->record[gdn__rule_id(fold, b)] & GDN_RECORD_ROWS
                          : fold->engaged && *fold->engaged == 1 ? (uint32_t)GDN_WOA_ROWS
                                                                 : (uint32_t)(gdn__rule_row(fold, b + 1) - gdn__rule_row(fold, b));
    return fold->na[b] < rows ? fold->na[b] : rows;
}
/* Not of padding: its row of what outlives a launch may be none. */
static inline bool gdn__rule_fresh(const gdn_cpu_rule *c, uint32_t b) {
    return c->fresh && c->fresh[b] != 0 && (!c->folded || gdn__rule_accepted(c->folded, b) == 0);
}

/* The key head of value head h, and the other way round: the e-th (e < nv/nk) value head of key head kh. */
static inline uint32_t gdn__rule_key_head(const gdn_cpu_rule *c, uint32_t h) {
    return c->tiled ? h % c->nk : h / (c->nv / c->nk);
}
static inline uint32_t gdn__rule_value_head(const gdn_cpu_rule *c, uint32_t kh, uint32_t e) {
    return c->tiled ? e * c->nk + kh : kh * (c->nv / c->nk) + e;
}

/* Element (not byte) offsets of head rows; gate and beta rows share theirs. */
static inline uint64_t gdn__rule_qk_at(const gdn_cpu_rule *c, uint64_t row, uint32_t kh) {
    return row * c->qk_stride + (uint64_t)kh * c->k_dim;
}
static inline uint64_t gdn__rule_v_at(const gdn_cpu_rule *c, uint64_t row, uint32_t h) {
    return row * c->v_stride + (uint64_t)h * c->v_dim;
}
static inline uint64_t gdn__rule_gb_at(const gdn_cpu_rule *c, uint64_t row, uint32_t h) {
    return row * c->gb_stride + h;
}
static inline uint64_t gdn__rule_out_at(const gdn_cpu_rule *c, uint64_t row, uint32_t h) {
    return (row * c->nv + h) * c->v_dim;
}

#endif
