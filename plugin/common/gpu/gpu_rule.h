/* gpu_rule.h - shared by the launchers of the rule operations. */
#ifndef GDN_GPU_RULE_H
#define GDN_GPU_RULE_H

#include "gpu_plugin.h"
#include <math.h>

/* Where an operation has each pointer: its index, -1 when it has none. */
typedef struct gpu_rule_order {
    int32_t query, key, value, gate, beta, output, state, state_out, in_slots, out_slots, fresh, ckpt, cu, hi, workspace;
} gpu_rule_order;

const gpu_rule_order *gpu_prefill_order(void);
const gpu_rule_order *gpu_step_order(uint32_t op); /* decode, verify, verify_woa, fold */
const gpu_rule_order *gpu_round_order(void);
uint32_t gpu_step_form(const gdn_rule_shape *s);

/* What the kernels are given instead of the caller's pointers. */
typedef struct gpu_rule_io {
    uint64_t query, key, cu, in_tab, out_tab, fresh;
    float scale; /* 0: the core's */
    uint32_t qk_stride, from_first;
    bool ext; /* the `_ext` entries are needed */
} gpu_rule_io;

/* Pointers that must be there, must not, and their alignment. workspace: bytes that the plan needs. */
gdn_status gpu_rule_check(const gdn_plan *p, gdn__call *c, const gpu_rule_order *o, bool has_rows, uint64_t workspace, gdn_text *err);
/* The launches in front, where they are needed. rows: an upper bound of the launch's rows; extras: the caller needs `_ext` anyway. */
gdn_status gpu_rule_prepare(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                            uint32_t rows, bool extras, void *stream, gpu_rule_io *io, gdn_text *err);
/* For operations whose kernels find states by slots: only int64 offsets are made int32 in front. */
gdn_status gpu_rule_offsets(const gdn_plan *p, const gdn__call *c, const gpu_rule_order *o, const gpu_workspace *w, uint32_t batch,
                            void *stream, gpu_rule_io *io, gdn_text *err);
/* One build's entry, with the shared memory that it needs; one that cannot be had is lost to the plan. */
gdn_status gpu_bind_form(gdn_plan *p, uint32_t entry, uint32_t form, const char *name, uint32_t smem, void **out, gdn_text *err);
/* The `_ext` form of an entry, with the shared memory that it needs, and its core: where that is compiled apart only if `core`. */
gdn_status gpu_bind_rule(gdn_plan *p, uint32_t entry, uint32_t form, uint32_t smem, bool core, gdn_text *err);
/* Decode and verify on the states of one launch in place, write-on-accept and fold on a table, without extras: the core's arguments do. */
bool gpu_rule_may_be_core(const gdn_rule_shape *s);
gdn_status gpu_start(const gdn_plan *p, uint32_t entry, bool ext, const gdn_dims *dims, void *stream, gpu_args *a, gdn_text *err);
void gpu_arg_list(gpu_args *a, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32);

/* How one launch of the fast prefill is shared out: chunks of each sequence that its first kernel prepares; in the second kernel blocks
 * that prepare the others, and all blocks. */
typedef struct gpu_fast_share {
    uint32_t lead, helpers, blocks;
    uint32_t prepare; /* GPU_E_FAST_PREPARE, or _TWO */
    uint32_t heads;   /* value heads of one of its blocks */
} gpu_fast_share;
/* sm_count 0: cannot say. chunks: of the longest sequence, in this launch. */
gpu_fast_share gpu_share_fast(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks);
/* The same where the second kernel does not prepare: all chunks in front. */
gpu_fast_share gpu_share_fast_all(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks);
/* How the first kernel by W and N is shared out: blocks with a whole (chunk, key head), then blocks with `heads` value heads of one. */
typedef struct gpu_wn_share {
    uint32_t whole, heads, blocks; /* blocks: in all */
} gpu_wn_share;
gpu_wn_share gpu_share_wn(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks);
/* Blocks that take `tasks` in turn. */
uint32_t gpu_fast_blocks(uint32_t sm_count, uint64_t tasks);
/* Chunks of the segments in which the sequences of a plan pass side by side; 0: they do not. By the plan's shape alone, the same on every
 * device: results depend on it. */
uint32_t gpu_fast_segment(const gdn_rule_shape *s);
enum { GPU_FAST_PREPARE_SMEM = 67792, GPU_FAST_FWD_SMEM = 183856, GPU_FAST_MANY_SMEM = 216672 };
enum { GPU_WN_PREPARE_SMEM = 110624, GPU_WN_FWD_SMEM = 230384 };

#endif
