/* gated_delta_rule_wy4_round.cu - a round of speculation in one launch: the fold of the round before, then write-on-accept verify of up to
 * four rows from the folded states. Contract: abi/gdn_op_rule.h; formulas and bits: gdn_step.cuh, gdn_fold.cuh. States, outputs, stash and
 * words are those of gated_delta_rule_wy4_fold_* and gated_delta_rule_wy4_woa_* one after the other, byte for byte; a state is read once
 * and written once, or, where no row was accepted, not at all. Arguments, in order:
 *
 * gated_delta_rule_wy4_round   h_table, query, key, value, gate, beta, output, stash, engaged, pending, na_tab, ran, hi_tables,
 * slab_entries, k_rows, batch, nk, nv, k_dim, v_dim, qk_stride, v_stride, gb_stride, stash_seq_floats, fresh, scale, in_slots, slot_stride,
 * cu_rows, hi_is_table, hi_capacity, seq_ids, by_sequence, parts
 *
 * gated_delta_rule_wy4_round_stay   the same; on Hopper, [K][V]; whole heads, `parts` is not looked at
 *
 * Grid: 1-dimensional, any multiple of `parts`, which is 8 or 4 parts of a head, or for _stay any; block 128; dynamic shared memory none,
 * for _stay 64 KiB; k_dim = v_dim = 128.
 * slot_stride 0: h_table holds u64 addresses, NULL is padding; else it is f32, sequence b's state at slot_stride * (in_slots ? in_slots[b]
 * : b), negative: padding. stash and engaged are this round's and written; pending and ran are those of the round before and read: apart
 * from the others. by_sequence 0: *ran == 1 says that pending holds rows, else k_rows rows were verified with states kept in hi_tables (0:
 * none), and *engaged = 1; four rows a sequence. by_sequence: id = seq_ids[b] (NULL: b) finds stash, pending, hi, ran[id] and engaged[id],
 * words as in gated_delta_rule_wy4_woa.cu; with cu_rows a sequence has 0 to 4 rows. fresh: u8 a sequence or NULL; scale 0: rsqrt(k_dim). */
#include "gdn_device.cuh"
#include "gdn_round.cuh"

/* Whole heads take shared memory that Hopper has. The emulator has both. */
#if !defined(GDN_STATE_VK) && (defined(GDN_EMU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000))
#define ROUND_STAYS
#include "gdn_round_stay.cuh"
#endif

#define ROUND_ARGS                                                                                                                        \
    void *h_table, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate, const float *beta,               \
        gdn_bf16 *output, float *stash, uint32_t *engaged, float *pending, const uint32_t *na_tab, const uint32_t *ran,                   \
        const void *hi_tables, uint32_t slab_entries, uint32_t k_rows, uint32_t batch, uint32_t nk, uint32_t nv, uint32_t k_dim,          \
        uint32_t v_dim, uint32_t qk_stride, uint32_t v_stride, uint32_t gb_stride, uint32_t stash_seq_floats, const uint8_t *fresh,       \
        float scale, const int32_t *in_slots, uint64_t slot_stride, const int32_t *cu_rows, uint32_t hi_is_table, uint32_t hi_capacity,   \
        const int32_t *seq_ids, uint32_t by_sequence, uint32_t parts
#define ROUND                                                                                                                             \
    gdn_round {                                                                                                                           \
        gdn_step { query, key, value, gate, beta, output, nk, nv, qk_stride, v_stride, gb_stride, gdn_output_scale(k_dim, scale) },       \
            h_table, in_slots, slot_stride, fresh, stash, engaged, pending, na_tab, ran,                                                  \
            gdn_hi { hi_tables, slab_entries, hi_capacity, hi_is_table != 0 }, stash_seq_floats, k_rows, batch, cu_rows, seq_ids,         \
            by_sequence != 0                                                                                                              \
    }

GDN_KERNEL(128, GDN_ROUND_BLOCKS)
gated_delta_rule_wy4_round(ROUND_ARGS) {
    gdn_begin();
    (void)v_dim;
    __shared__ union {
        gdn_round_smem<32, 2> wide;
        gdn_round_smem<16, 1> narrow;
    } m;
    const gdn_round o = ROUND;
    if (parts == 4)
        gdn_round_of<32, 2>::run(m.wide, o);
    else
        gdn_round_of<16, 1>::run(m.narrow, o);
}

#ifdef ROUND_STAYS
GDN_KERNEL(128, 2)
gated_delta_rule_wy4_round_stay(ROUND_ARGS) {
    gdn_begin();
    (void)v_dim, (void)parts;
    GDN_DYN_SMEM_ALIGNED(float, state, 128);
    __shared__ gdn_round_stay_smem m;
    const gdn_round o = ROUND;
    gdn_round_stay_run(m, state, o);
}
#endif
