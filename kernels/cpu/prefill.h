/* prefill.h - between the work distribution (prefill.c) and the kernels compiled per instruction set (isa/prefill_chunk.c). */
#ifndef GDN_PREFILL_H
#define GDN_PREFILL_H

#include "cpu_kernels.h"

enum { GDN__PREFILL_MAX_HEADS = 4 }; /* value heads whose states a unit holds: 64 KiB each, on the stack */

/* A unit: one sequence, one key head, and a run of column tiles of the value heads that share the key head.
 * Tile i is columns (i % per_head)*tile .. of the (i / per_head)-th of these heads, per_head = v_dim/tile. */
typedef struct gdn__prefill_unit {
    const float *in; /* the sequence's states; NULL: start from zero */
    float *out;
    float *ckpt; /* the sequence's first checkpoint; NULL: none  */
    uint64_t row, len;
    uint32_t key_head, tile_first, tile_end;
} gdn__prefill_unit;

typedef struct gdn__prefill_table {
    uint32_t tile; /* value columns that are computed together */
    void (*run)(const gdn_cpu_rule *c, const gdn__prefill_unit *u);
} gdn__prefill_table;

extern const gdn__prefill_table gdn__prefill_table_base, gdn__prefill_table_avx2, gdn__prefill_table_avx512;

#endif
