/* gdn_op_rule.h - the gated delta rule: prefill, decode, verify, write-on-accept verify, fold, round, flag clear.
 *
 * Per sequence and value head, state S [K][V] in f32, token t with q, k [K], v [V], decay a in [0,1], beta in [0,1]:
 *
 *     S <- a S;   u = beta (v - S^T k);   S <- S + k u^T;   o = scale S^T q          scale = 1/sqrt(K) unless given
 *
 * (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024.) q and k come L2-normalised unless GDN_QK_L2NORM is set.
 *
 * Gates. A LINEAR gate is the decay a itself; a LOG gate is g = ln a <= 0. There is no default: say which one.
 *   prefill          LINEAR: ln(max(a, 1e-30))          LOG: max(g, ln 1e-30)
 *   decode, verify   LINEAR: clamp(a, 1e-6, 1 - 1e-6)   LOG: clamp(exp g, 1e-6, 1 - 1e-6)
 * The clamp of decode and verify does not exist in prefill; both are the contract, on every target.
 *
 * Rows. q and k rows are nk heads of k_dim, qk_stride apart; v rows nv heads of v_dim, v_stride apart; gate and beta rows
 * nv values, gb_stride apart. Any stride that holds a row and any element-aligned base is accepted. The output row of
 * token t, head h is (t*nv + h)*v_dim, dense. A packed convolution row [Q nk*K][K nk*K][V nv*V] is used in place:
 * q = base, k = base + nk*K, v = base + 2*nk*K, both strides the row length.
 *
 * States are found in one of three ways (state_addr), and each sequence's state is nv blocks of k_dim*v_dim f32:
 *   CONTIGUOUS  sequence b at state + b*nv*K*V
 *   POOL        sequence b at state + slot[b]*state_stride (64-bit)
 *   TABLE       a table of 64-bit base pointers, one a sequence
 * PADDING: a negative slot or a NULL table entry, of the input or of the output. Nothing of that row is read, no state
 * is written, its output rows are zeroed, whatever its other arguments hold.
 * state_out NULL means in place; with out_slots the pool may be the same and the slots others. Input states are then
 * left as they were. Two sequences of one launch must not name the same output state, nor one the input of another.
 * fresh[b] = 1: start from a zero state, the input state is not read, whatever it holds.
 *
 * Packed batches: cu[0..batch], cu[0] may be > 0, cu[b] == cu[b+1] is a sequence without tokens: its state is unchanged (or
 * copied to its output slot; fresh: zeroed), and it has no output row. Rows outside [cu[0], cu[batch]) are neither read nor written.
 * max_tokens bounds cu[batch] - cu[0]; that the arrays reach from row cu[0] to row cu[batch] is the caller's word.
 * One shape may serve the operations of a layer, `op` set anew: sizes and maxima of what an operation does not have (max_tokens but
 * in prefill, max_rows in prefill and decode, gates, strides and scale in fold, hi_capacity, slab_entries, stash_* where there is none)
 * are not looked at. What would ask it for something is refused: ckpt_every but in prefill, offsets in decode.
 * Offsets without a plan that has them (offsets), slots without a pool (state_addr) and checkpoints without ckpt_every are
 * refused (GDN_E_ARG), not ignored. */
#ifndef GDN_OP_RULE_H
#define GDN_OP_RULE_H

#include "gdn_ops.h"

enum { GDN_GATE_LINEAR = 1, GDN_GATE_LOG = 2 };        /* gate_form, no default                             */
enum { GDN_HEADS_GROUPED = 0, GDN_HEADS_TILED = 1 };   /* key head of value head h: h/(nv/nk), or h % nk    */
enum { GDN_STATE_K_MAJOR = 0, GDN_STATE_V_MAJOR = 1 }; /* [K][V] with V fastest, or [V][K] with K fastest   */
enum { GDN_STATE_CONTIGUOUS = 0, GDN_STATE_POOL = 1, GDN_STATE_TABLE = 2 };
enum { GDN_MAX_ROWS = 16, GDN_CHUNK = 64, GDN_WOA_ROWS = 4, GDN_SLAB_ENTRIES = 32 };

typedef struct gdn_rule_shape {
    gdn_shape base;
    uint32_t nk, nv;                         /* key heads, value heads; nv % nk must be 0                                        */
    uint32_t k_dim, v_dim;                   /* equal; 64 or 128 (verify_woa, round: 128)                                           */
    uint32_t qk_stride, v_stride, gb_stride; /* elements from token to token; 0 = dense rows (gb: 2*nv)          */
    uint32_t gate_form;                      /* GDN_GATE_LINEAR or GDN_GATE_LOG                                                  */
    uint32_t head_map;                       /* GDN_HEADS_*                                                                      */
    uint32_t state_layout;                   /* GDN_STATE_*_MAJOR                                                                */
    uint32_t state_addr;                     /* GDN_STATE_CONTIGUOUS, _POOL, _TABLE                                              */
    uint32_t state_type;                     /* GDN_F32; GDN_BF16 with the flag GDN_BF16_STATE; others are refused by name       */
    uint32_t offsets;                        /* GDN_OFFSETS_* of cu_seqlens (prefill) or cu_rows (verify, fold)                  */
    uint32_t max_tokens;                     /* prefill: tokens of all sequences together                                        */
    uint32_t max_batch;                      /* sequences of a launch                                                            */
    uint32_t max_rows;                       /* verify: rows a sequence, 1..16; verify_woa and fold: of the verify that ran       */
    uint32_t ckpt_every;                     /* prefill: 0 none, else a multiple of 64: see below                                */
    uint32_t hi_capacity;                    /* verify, fold: states a sequence has room for in `hi`; 0 = max_rows - 1           */
    uint32_t slab_entries;                   /* TABLE: entries of a slab of pointers; 0 = 32; at least max_batch                 */
    uint32_t stash_seqs;                     /* verify_woa, fold: sequences the stash holds; 0 = none is bound. By sequence: the
                                              * numbers are below it, in verify too                                      */
    uint32_t layers;                         /* how many layers use the plan; only counts log lines; 0 = 1                       */
    float scale;                             /* output scale; 0 = 1/sqrt(k_dim)                                                  */
    uint64_t state_stride;                   /* POOL: elements from slot to slot; 0 = nv*k_dim*v_dim                             */
    uint64_t num_slots;                      /* POOL: slots that exist; 0 = unknown: not checked (GDN_PLAN_CHECKED), and
                                                states are not asked for early (decode with slots) */
    uint64_t stash_stride;                   /* f32 elements a sequence; 0 = 4*(nv*v_dim + nv + nk*k_dim)                        */
    uint64_t max_workspace;                  /* bytes the plan may ask for; 0 = 1 GiB                                            */
} gdn_rule_shape;

/* ---- prefill: whole sequences, T tokens each ------------------------------------------------------------------------
 * Checkpoint j (0-based) of sequence b is the state after (j+1)*ckpt_every tokens, in the plan's state layout, at
 * ckpt + (n_b + j)*nv*k_dim*v_dim with n_b = the sum over earlier sequences of floor(len/ckpt_every). Padding sequences
 * keep their place and are not written. A prefill cut at a multiple of gdn_route.split_tokens and carried on from the
 * state by the same plan gives the same bytes as one call; that is 64, but where a plan for long sequences of few heads
 * lets segments of them pass side by side (hopper's fast prefill, without checkpoints) it is a segment. A sequence's
 * bytes do not depend on what else is in the batch. */
#define GDN_PREFILL_PTRS(X)                                                               \
    X(GDN_PREFILL_P_QUERY, "query", GDN_REQ)                                              \
    X(GDN_PREFILL_P_KEY, "key", GDN_REQ)                                                  \
    X(GDN_PREFILL_P_VALUE, "value", GDN_REQ)                                              \
    X(GDN_PREFILL_P_GATE, "gate", GDN_REQ)     /* f32 */                                  \
    X(GDN_PREFILL_P_BETA, "beta", GDN_REQ)     /* f32 */                                  \
    X(GDN_PREFILL_P_STATE, "h_state", GDN_REQ) /* f32, or the table */                    \
    X(GDN_PREFILL_P_OUTPUT, "output", GDN_REQ)                                            \
    X(GDN_PREFILL_P_CU_SEQLENS, "cu_seqlens", GDN_OPT) /* required unless OFFSETS_NONE */ \
    X(GDN_PREFILL_P_STATE_OUT, "h_state_out", GDN_OPT)                                    \
    X(GDN_PREFILL_P_IN_SLOTS, "in_tab", GDN_OPT)     /* int32; required by POOL */        \
    X(GDN_PREFILL_P_OUT_SLOTS, "out_tab", GDN_OPT)   /* int32; NULL = in_tab */           \
    X(GDN_PREFILL_P_FRESH, "fresh", GDN_OPT)         /* u8 a sequence */                  \
    X(GDN_PREFILL_P_CKPT, "ckpt", GDN_OPT)           /* f32; required by ckpt_every */    \
    X(GDN_PREFILL_P_WORKSPACE, "workspace", GDN_OPT) /* explain says how many bytes */
#define GDN_PREFILL_U32S(X)                  \
    X(GDN_PREFILL_U_BATCH, "batch", GDN_REQ) \
    X(GDN_PREFILL_U_SEQ_LEN, "seq_len",      \
      GDN_REQ) /* uniform: tokens of each; packed: the longest or more, 0 = not known; fewer cut it on a GPU, CHECKED says so */
enum { GDN_PREFILL_PTRS(GDN_ORDER_) GDN_PREFILL_N_PTR };
enum { GDN_PREFILL_U32S(GDN_ORDER_) GDN_PREFILL_N_U32 };

/* ---- decode: one token a sequence, row b ----------------------------------------------------------------------------
 * Sums over k run in groups of four: the four products added left to right, the group sum added to the accumulator;
 * no product is contracted into an FMA (K-major states). */
#define GDN_DECODE_PTRS(X)                            \
    X(GDN_DECODE_P_STATE, "h_state", GDN_REQ)         \
    X(GDN_DECODE_P_QUERY, "query", GDN_REQ)           \
    X(GDN_DECODE_P_KEY, "key", GDN_REQ)               \
    X(GDN_DECODE_P_VALUE, "value", GDN_REQ)           \
    X(GDN_DECODE_P_GATE, "gate", GDN_REQ)             \
    X(GDN_DECODE_P_BETA, "beta", GDN_REQ)             \
    X(GDN_DECODE_P_OUTPUT, "output", GDN_REQ)         \
    X(GDN_DECODE_P_STATE_OUT, "h_state_out", GDN_OPT) \
    X(GDN_DECODE_P_IN_SLOTS, "in_tab", GDN_OPT)       \
    X(GDN_DECODE_P_OUT_SLOTS, "out_tab", GDN_OPT)     \
    X(GDN_DECODE_P_FRESH, "fresh", GDN_OPT)           \
    X(GDN_DECODE_P_WORKSPACE, "workspace", GDN_OPT)
#define GDN_DECODE_U32S(X) X(GDN_DECODE_U_BATCH, "batch", GDN_REQ)
enum { GDN_DECODE_PTRS(GDN_ORDER_) GDN_DECODE_N_PTR };
enum { GDN_DECODE_U32S(GDN_ORDER_) GDN_DECODE_N_U32 };

/* ---- verify: 1..16 rows a sequence, the state after the last row is written ------------------------------------------
 * Rows are sequence-major, b*rows + t, or [cu_rows[b], cu_rows[b+1]) so that sequences may bring different numbers (0: like a
 * sequence without tokens above).
 * Row 0 has decode's bytes. Later rows use the corrected form (c_t = (g0...g_{t-1}) hk_t + sum_s (g_{s+1}...g_{t-1}) kd_ts vn_s,
 * left to right, vn_t = (v_t - g_t c_t) b_t), so that a token's bits depend on its row.
 * hi receives the state after row t, for t = 0 .. rows-2. CONTIGUOUS and POOL: hi + (b*hi_capacity + t)*nv*K*V.
 * TABLE: hi is a table of base pointers, entry t*slab_entries + b (slab 1 of the engine's tables; slab 0 holds the states).
 * NULL hi: no states are kept. Accepting na rows means S := hi[na-1] for na < rows, S as written for na == rows.
 * The CONTIGUOUS form is legal only at batch 1 (GDN_E_ARG): use POOL or TABLE for batches. Rows 0, or above 16, are refused. */
#define GDN_VERIFY_PTRS(X)                                                         \
    X(GDN_VERIFY_P_STATE, "h", GDN_REQ)                                            \
    X(GDN_VERIFY_P_QUERY, "q", GDN_REQ)                                            \
    X(GDN_VERIFY_P_KEY, "k", GDN_REQ)                                              \
    X(GDN_VERIFY_P_VALUE, "v", GDN_REQ)                                            \
    X(GDN_VERIFY_P_GATE, "gate", GDN_REQ)                                          \
    X(GDN_VERIFY_P_BETA, "beta", GDN_REQ)                                          \
    X(GDN_VERIFY_P_OUTPUT, "out", GDN_REQ)                                         \
    X(GDN_VERIFY_P_HI, "hi", GDN_OPT)                                              \
    X(GDN_VERIFY_P_CU_ROWS, "cu_rows", GDN_OPT) /* required unless OFFSETS_NONE */ \
    X(GDN_VERIFY_P_STATE_OUT, "h_out", GDN_OPT)                                    \
    X(GDN_VERIFY_P_IN_SLOTS, "in_tab", GDN_OPT)                                    \
    X(GDN_VERIFY_P_OUT_SLOTS, "out_tab", GDN_OPT)                                  \
    X(GDN_VERIFY_P_FRESH, "fresh", GDN_OPT)                                        \
    X(GDN_VERIFY_P_WORKSPACE, "workspace", GDN_OPT)                                \
    X(GDN_VERIFY_P_SEQ_IDS, "seq_ids", GDN_OPT) /* by sequence only */             \
    X(GDN_VERIFY_P_RECORD, "record", GDN_OPT)   /* required by sequence */
#define GDN_VERIFY_U32S(X)                \
    X(GDN_VERIFY_U_ROWS, "rows", GDN_REQ) \
    X(GDN_VERIFY_U_BATCH, "batch", GDN_REQ)
enum { GDN_VERIFY_PTRS(GDN_ORDER_) GDN_VERIFY_N_PTR };
enum { GDN_VERIFY_U32S(GDN_ORDER_) GDN_VERIFY_N_U32 };

/* ---- decode and verify on bf16 states: state_type GDN_BF16 and the flag GDN_BF16_STATE, never one without the other -----
 * Half the bytes of state, and of the time where a launch is bound by them. The state is widened when it is read, all rows of the launch
 * are computed in f32 from it, and what is stored (h_out, hi) is rounded to nearest even, once: an output sees no rounding but those of
 * earlier launches. Each launch adds about 1.65e-3 of a state's size, which decays with it: after many tokens the state is off by
 * at most 1.65e-3 / sqrt(1 - d^2), d the decay of a token (tests/cases/test_bf16_state.c: over 10,000 tokens 4e-3 at 0.9, 8e-3 at
 * 0.98, 2e-2 at 0.999), where an f32 one is off by some 1e-6.
 * k_dim = v_dim = 128; verify of 1 to 4 rows, hi in bf16; not by sequence, and no fold: state_copy brings hi[na-1] back. State addresses
 * are multiples of 8 bytes, state_stride (elements of 2 bytes) a multiple of 4. Row 0 of a verify has decode's bytes, its state included.
 */

/* ---- write-on-accept verify: four rows, verify's output bytes, no state written --------------------------------------
 * Stashes per sequence, f32: vn[4][nv][v_dim] | g[4][nv] (clamped) | sk[4][nk][k_dim] (k as used), at stash + b*stash_stride,
 * and sets *engaged (u32) to 1. Padding rows zero their output and stash nothing. Launch order of a batched verify:
 * flag_clear, verify_woa (or verify, when it is refused), then fold with the accepted counts.
 * A plan is refused (GDN_REFUSED, the first guard of GDN_WOA_GUARD_MAP that fires) when it cannot be deferred. */
#define GDN_VERIFY_WOA_PTRS(X)                                                                           \
    X(GDN_VERIFY_WOA_P_STATE, "h_table", GDN_REQ)                                                        \
    X(GDN_VERIFY_WOA_P_QUERY, "query", GDN_REQ)                                                          \
    X(GDN_VERIFY_WOA_P_KEY, "key", GDN_REQ)                                                              \
    X(GDN_VERIFY_WOA_P_VALUE, "value", GDN_REQ)                                                          \
    X(GDN_VERIFY_WOA_P_GATE, "gate", GDN_REQ)                                                            \
    X(GDN_VERIFY_WOA_P_BETA, "beta", GDN_REQ)                                                            \
    X(GDN_VERIFY_WOA_P_OUTPUT, "output", GDN_REQ)                                                        \
    X(GDN_VERIFY_WOA_P_STASH, "stash", GDN_REQ)                                                          \
    X(GDN_VERIFY_WOA_P_FLAG, "engaged_flag", GDN_REQ)                                                    \
    X(GDN_VERIFY_WOA_P_IN_SLOTS, "in_tab", GDN_OPT)                                                      \
    X(GDN_VERIFY_WOA_P_FRESH, "fresh", GDN_OPT)                                                          \
    X(GDN_VERIFY_WOA_P_WORKSPACE, "workspace", GDN_OPT)                                                  \
    X(GDN_VERIFY_WOA_P_CU_ROWS, "cu_rows", GDN_OPT) /* by sequence only; required unless OFFSETS_NONE */ \
    X(GDN_VERIFY_WOA_P_SEQ_IDS, "seq_ids", GDN_OPT) /* by sequence only */
#define GDN_VERIFY_WOA_U32S(X)                \
    X(GDN_VERIFY_WOA_U_ROWS, "rows", GDN_REQ) \
    X(GDN_VERIFY_WOA_U_BATCH, "batch", GDN_REQ)
enum { GDN_VERIFY_WOA_PTRS(GDN_ORDER_) GDN_VERIFY_WOA_N_PTR };
enum { GDN_VERIFY_WOA_U32S(GDN_ORDER_) GDN_VERIFY_WOA_N_U32 };

/* First match wins; the texts are the contract. */
#define GDN_WOA_GUARD_MAP(X)                                  \
    X(GDN_WOA_NOT_REQUESTED, "not requested")                 \
    X(GDN_WOA_ROWS_NOT_4, "rows is not 4")                    \
    X(GDN_WOA_STATE_TYPE, "state is not f32")                 \
    X(GDN_WOA_DIMS, "k_dim or v_dim is not 128")              \
    X(GDN_WOA_KERNEL_ABSENT, "kernel absent from this image") \
    X(GDN_WOA_NO_STASH, "no stash is bound")                  \
    X(GDN_WOA_STASH_SMALL, "batch does not fit the stash")    \
    X(GDN_WOA_ROWS_NOT_1_TO_4, "rows is not 1 to 4")
#define GDN_WOA_NULL_TEXT "gdn_decode_wy4_woa: null table/stash/flag"

/* ---- fold: apply the accepted rows ----------------------------------------------------------------------------------
 * na = na_tab[b]; na == 0 or padding: nothing. Engaged (*engaged_flag == 1): for t < min(na, 4) S = g_t S + sk_t vn_t, the
 * bytes of verify's states; fresh sequences start from zero. Not engaged: na < k_rows copies hi[na-1] to S, na >= k_rows
 * nothing (verify wrote it). na above k_rows counts as k_rows. With cu_rows a sequence's own number of rows stands for k_rows.
 * The flag is not cleared. stash has to be there where the flag can be 1, hi where it can be 0 and rows can be declined: the cpu target
 * says so when one is missing, a GPU only under GDN_PLAN_CHECKED. */
#define GDN_FOLD_PTRS(X)                                                                               \
    X(GDN_FOLD_P_STATE, "h_table", GDN_REQ)                                                            \
    X(GDN_FOLD_P_STASH, "stash", GDN_OPT)                                                              \
    X(GDN_FOLD_P_NA, "na_tab", GDN_REQ) /* u32 a sequence */                                           \
    X(GDN_FOLD_P_HI, "hi_tables", GDN_OPT)                                                             \
    X(GDN_FOLD_P_FLAG, "engaged_flag", GDN_REQ)                                                        \
    X(GDN_FOLD_P_IN_SLOTS, "in_tab", GDN_OPT)                                                          \
    X(GDN_FOLD_P_FRESH, "fresh", GDN_OPT)                                                              \
    X(GDN_FOLD_P_CU_ROWS, "cu_rows", GDN_OPT) /* of the verify that ran, when it had them (offsets) */ \
    X(GDN_FOLD_P_SEQ_IDS, "seq_ids", GDN_OPT) /* by sequence only */
#define GDN_FOLD_U32S(X)                    \
    X(GDN_FOLD_U_K_ROWS, "k_rows", GDN_REQ) \
    X(GDN_FOLD_U_BATCH, "batch", GDN_REQ)
enum { GDN_FOLD_PTRS(GDN_ORDER_) GDN_FOLD_N_PTR };
enum { GDN_FOLD_U32S(GDN_ORDER_) GDN_FOLD_N_U32 };

/* ---- round: the fold of the round before, then verify_woa, in one launch (since 0.3) ------------------------------------
 * Does to each state what fold does with na_tab, pending_stash, pending_flag and hi_tables, then to its rows what verify_woa does from the
 * state that this leaves, to stash and engaged_flag: the bytes of the two launches, the state read once, and written where a row was
 * accepted. A loop of speculation takes turns between two stashes and two words (by sequence: records): what this round leaves, the next
 * one is given as pending. In the first round, and after anything else that settled the states (fold, prefill, decode), the pending word is
 * 0 or na_tab is; with a pending word of 0 a plain verify of k_rows rows may have run, as in fold, and k_rows 0 says that none has.
 * fresh: the state starts from zero, and so does what is folded onto it; a sequence of which a row was accepted is fresh no more.
 * Padding rows zero their output, stash nothing and fold nothing.
 * rows: 4 each; by sequence with cu_rows it bounds them, 1 to 4. max_rows bounds rows and k_rows, so that it is 4, or there 1 to 4: a plain
 * verify of more rows is settled by a fold. k_rows is looked at where the pending word is 0; where it is 1 the stash has four rows.
 * Without the flag a sequence is its place in the batch, and keeps it from round to round: what is pending for place b belongs to the
 * sequence that is there now. Batches that change are for the form by sequence.
 * engaged_flag is written, never read: it needs no flag_clear before.
 * By sequence the pending record says what ran for which id, and each sequence of the launch gets its word in engaged_flag. A sequence that
 * sits out a round has to be folded first: its stash is where the round after writes.
 * Guards are verify_woa's: lever gdn_woa has to be 1. stash and pending_stash, and the two words, lie apart. */
#define GDN_ROUND_PTRS(X)                                                                           \
    X(GDN_ROUND_P_STATE, "h_table", GDN_REQ)                                                        \
    X(GDN_ROUND_P_QUERY, "query", GDN_REQ)                                                          \
    X(GDN_ROUND_P_KEY, "key", GDN_REQ)                                                              \
    X(GDN_ROUND_P_VALUE, "value", GDN_REQ)                                                          \
    X(GDN_ROUND_P_GATE, "gate", GDN_REQ)                                                            \
    X(GDN_ROUND_P_BETA, "beta", GDN_REQ)                                                            \
    X(GDN_ROUND_P_OUTPUT, "output", GDN_REQ)                                                        \
    X(GDN_ROUND_P_STASH, "stash", GDN_REQ)                                                          \
    X(GDN_ROUND_P_FLAG, "engaged_flag", GDN_REQ)                                                    \
    X(GDN_ROUND_P_PENDING, "pending_stash", GDN_REQ)     /* of the round before */                  \
    X(GDN_ROUND_P_NA, "na_tab", GDN_REQ)                 /* u32 a sequence: its accepted rows */    \
    X(GDN_ROUND_P_PENDING_FLAG, "pending_flag", GDN_REQ) /* its word or record */                   \
    X(GDN_ROUND_P_HI, "hi_tables", GDN_OPT)              /* as fold's */                            \
    X(GDN_ROUND_P_IN_SLOTS, "in_tab", GDN_OPT)                                                      \
    X(GDN_ROUND_P_FRESH, "fresh", GDN_OPT)                                                          \
    X(GDN_ROUND_P_WORKSPACE, "workspace", GDN_OPT)                                                  \
    X(GDN_ROUND_P_CU_ROWS, "cu_rows", GDN_OPT) /* by sequence only; required unless OFFSETS_NONE */ \
    X(GDN_ROUND_P_SEQ_IDS, "seq_ids", GDN_OPT) /* by sequence only */
#define GDN_ROUND_U32S(X)                  \
    X(GDN_ROUND_U_ROWS, "rows", GDN_REQ)   \
    X(GDN_ROUND_U_BATCH, "batch", GDN_REQ) \
    X(GDN_ROUND_U_K_ROWS, "k_rows", GDN_OPT) /* rows of a plain verify that ran before; 0: none */
enum { GDN_ROUND_PTRS(GDN_ORDER_) GDN_ROUND_N_PTR };
enum { GDN_ROUND_U32S(GDN_ORDER_) GDN_ROUND_N_U32 };

/* ---- flag clear: *engaged_flag = 0, at the start of every batched verify that asks for write-on-accept ----------------
 * By sequence: `count` words of the record are cleared, those of seq_ids[0..count) (a negative one is skipped), or without seq_ids
 * the first ones. Otherwise count is 0. */
typedef struct gdn_flag_shape {
    gdn_shape base; /* act_type is not looked at */
} gdn_flag_shape;
#define GDN_FLAG_CLEAR_PTRS(X)                        \
    X(GDN_FLAG_CLEAR_P_FLAG, "engaged_flag", GDN_REQ) \
    X(GDN_FLAG_CLEAR_P_SEQ_IDS, "seq_ids", GDN_OPT) /* by sequence only */
#define GDN_FLAG_CLEAR_U32S(X) X(GDN_FLAG_CLEAR_U_COUNT, "count", GDN_OPT)
enum { GDN_FLAG_CLEAR_PTRS(GDN_ORDER_) GDN_FLAG_CLEAR_N_PTR };
enum { GDN_FLAG_CLEAR_U32S(GDN_ORDER_) GDN_FLAG_CLEAR_N_U32 };

/* ---- by sequence (GDN_VERIFY_BY_SEQUENCE, a flag of the plans of verify, verify_woa, fold, round and flag_clear together) -----
 * One engaged word cannot describe a batch that runs as several launches (different rows, some declined), and launches number
 * their sequences by themselves. With the flag a sequence has a number of its own, id = seq_ids[b] (int32, NULL: b), below
 * stash_seqs, and everything that outlives a launch is found by it: the stash row (stash + id*stash_stride), the row of hi (id
 * where the text above says b; slab_entries is at least stash_seqs), and the word that says what ran.
 *
 *   record      u32[stash_seqs]: GDN_RECORD_NONE, GDN_RECORD_DEFERRED | rows after verify_woa, GDN_RECORD_KEPT | rows after verify.
 *               It is verify's `record` and the others' `engaged_flag`. Padding rows write no word; their id is not looked at.
 *
 * No verify writes a state, it is the fold that does: so a sequence of which no row is accepted (na 0) has the state it had,
 * whichever verify saw it. What differs from the forms above:
 *   verify      hi (required) gets the state after every row, the last one too: hi_capacity is at least max_rows (0 = max_rows).
 *               h_out and out_tab are refused. A sequence with 0 rows writes its word and nothing else.
 *   verify_woa  with cu_rows (offsets) a sequence has 0 to 4 rows and `rows`, 1 to 4, bounds them; without: 4 rows each.
 *   fold        goes by the record: n = min(na[b], rows). n 0, or no verify since flag_clear: nothing. DEFERRED applies the first n
 *               stashed rows (fresh: onto zeros), KEPT copies hi[n-1] (a NULL entry of a table: nothing). Offsets are refused, and
 *               k_rows says nothing. na, states and fresh are of the fold's own launch, by b.
 * A round: flag_clear of its sequences; any verify_woa, verify and decode launches, which share them out in any order; any folds,
 * likewise. No id is in two verifies of a round, nor in two folds. A fresh sequence of which no row is accepted is still fresh. */
enum { GDN_RECORD_NONE = 0, GDN_RECORD_KEPT = 0x100, GDN_RECORD_DEFERRED = 0x200, GDN_RECORD_ROWS = 0xff };

#endif
