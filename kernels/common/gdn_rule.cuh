/* gdn_rule.cuh - what the kernels of the gated delta rule share: the compiled variant, where a sequence's tokens, chunks and state
 * are, and the extras of the `_ext` entries. Contract: abi/gdn_op_rule.h.
 *
 * Variants of a module, one build each: GDN_STATE_VK (states [V][K] instead of [K][V]), GDN_HEADS_TILED (key head of value head h is
 * h % nk instead of h / (nv/nk)), GDN_GATE_LOG (gates are ln a instead of a). */
#pragma once
#include "gdn_math.cuh"
#include "gdn_memory.cuh"
#include "gdn_types.cuh"
#include "gdn_warp.cuh"

/* The variant as a condition; the emulated device of tests/emu chooses it at run time. */
#ifndef GDN_IS_VK
#ifdef GDN_STATE_VK
#define GDN_IS_VK true
#else
#define GDN_IS_VK false
#endif
#ifdef GDN_HEADS_TILED
#define GDN_IS_TILED true
#else
#define GDN_IS_TILED false
#endif
#ifdef GDN_GATE_LOG
#define GDN_IS_LOG true
#else
#define GDN_IS_LOG false
#endif
#endif

/* A core entry and its `_ext` form are the same code twice, and most plans need the second alone: a build has the `_ext` entries, and with
 * GDN_CORE the core ones. The spines that only a lever asks for come together; the emulator has all. */
#if defined(GDN_EMU) || defined(GDN_CORE) || defined(GDN_OTHER_SPINES)
#define GDN_CORE_ENTRIES
#define GDN_CORE_ENTRY(...) __VA_ARGS__
#else
#define GDN_CORE_ENTRY(...)
#endif
#if defined(GDN_EMU) || !defined(GDN_CORE)
#define GDN_EXT_ENTRIES
#define GDN_EXT_ENTRY(...) __VA_ARGS__
#else
#define GDN_EXT_ENTRY(...)
#endif

GDN_DEVICE uint32_t gdn_key_head(uint32_t head, uint32_t nk, uint32_t nv) {
    return GDN_IS_TILED ? head % nk : head / (nv / nk);
}

/* Element (k, v) of one head's state. */
GDN_DEVICE uint32_t gdn_state_at(uint32_t k, uint32_t v, uint32_t k_dim, uint32_t v_dim) {
    return GDN_IS_VK ? v * k_dim + k : k * v_dim + v;
}

/* ln of the decay, as prefill uses it. */
GDN_DEVICE float gdn_log_decay(float gate) {
    return GDN_IS_LOG ? fmaxf(gate, gdn_log(1e-30f)) : gdn_log(fmaxf(gate, 1e-30f));
}

/* The decay, as decode and verify use it. */
GDN_DEVICE float gdn_step_decay(float gate) {
    if (GDN_IS_LOG) gate = gdn_exp(gate);
    return fminf(fmaxf(gate, 1e-6f), 1.0f - 1e-6f);
}

/* What an `_ext` entry appends to its core's arguments. A core entry passes gdn_rule_ext {}. */
struct gdn_rule_ext {
    const uint64_t *in_tab, *out_tab; /* state bases a sequence; null in either: padding. NULL in_tab: the core's addressing */
    const uint8_t *fresh;             /* 1: start from zero; NULL: none is                                                    */
    float *ckpt;                      /* states at multiples of ckpt_every; NULL: none                                        */
    uint32_t ckpt_every;              /* tokens, a multiple of 64; 0: none                                                    */
    float scale;                      /* output scale; 0: rsqrtf(k_dim)                                                       */
    uint32_t chunk_begin, chunk_end;  /* the chunks of each sequence that this launch is for; chunk_end 0: all                */
    uint32_t qk_from_first;           /* 1: query and key begin with the batch's first token (normalised copies), else at row 0 */
    /* Without tables: the state of slot s at base + s*slot_stride elements, base being h_state, or state_out for what is written. */
    const int32_t *in_slots = nullptr, *out_slots = nullptr; /* NULL: slot b; negative: padding */
    uint64_t slot_stride = 0;                                /* 0: the core's addressing        */
    void *state_out = nullptr;
};
/* What the `_ext` entries of prefill append. */
#define GDN_PREFILL_EXT_ARGS                                                                                              \
    const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float *ckpt, uint32_t ckpt_every, float scale, \
        uint32_t chunk_begin, uint32_t chunk_end, uint32_t qk_from_first
#define GDN_PREFILL_EXT                                                                                                      \
    gdn_rule_ext {                                                                                                           \
        in_tab, out_tab, fresh, ckpt, ckpt_every, scale, chunk_begin, chunk_end, qk_from_first, nullptr, nullptr, 0, nullptr \
    }
/* What the `_ext` entries of decode, verify and fold append first. */
#define GDN_STEP_EXT_ARGS                                                                                                                  \
    const uint64_t *in_tab, const uint64_t *out_tab, const uint8_t *fresh, float scale, const int32_t *in_slots, const int32_t *out_slots, \
        uint64_t slot_stride, void *state_out
#define GDN_STEP_EXT                                                                                    \
    gdn_rule_ext {                                                                                      \
        in_tab, out_tab, fresh, nullptr, 0, scale, 0, 0, 0, in_slots, out_slots, slot_stride, state_out \
    }

GDN_DEVICE float gdn_output_scale(uint32_t k_dim, float scale) {
    return scale != 0 ? scale : gdn_rsqrt((float)k_dim);
}

GDN_DEVICE bool gdn_is_padding(const gdn_rule_ext &x, uint32_t b) {
    if (x.in_tab) return x.in_tab[b] == 0 || x.out_tab[b] == 0;
    return x.in_slots && (x.in_slots[b] < 0 || x.out_slots[b] < 0);
}
GDN_DEVICE bool gdn_is_fresh(const gdn_rule_ext &x, uint32_t b) {
    return x.fresh && x.fresh[b];
}

/* The state of (sequence b, head), elements T: where it is read, and where it is written. Core: h_state, or the table that it is. */
template <class T> struct gdn_state_ptrs_of {
    const T *in; /* NULL: padding */
    T *out;
};
typedef gdn_state_ptrs_of<float> gdn_state_ptrs;
template <class T = float>
GDN_DEVICE gdn_state_ptrs_of<T> gdn_states_of(const gdn_rule_ext &x, void *h_state, bool is_table, uint32_t b, uint32_t head, uint32_t nv,
                                        uint32_t k_dim, uint32_t v_dim) {
    const uint64_t one = (uint64_t)k_dim * v_dim, at = head * one;
    if (x.in_tab) { /* both words are asked for before one is looked at */
        const uint64_t in = x.in_tab[b], out = x.out_tab[b];
        if (!in | !out) return gdn_state_ptrs_of<T> { nullptr, nullptr };
        return gdn_state_ptrs_of<T> { reinterpret_cast<const T *>(in) + at, reinterpret_cast<T *>(out) + at };
    }
    if (x.slot_stride) {
        uint64_t from = b, to = b;
        if (x.in_slots) {
            const int32_t in = x.in_slots[b], out = x.out_slots[b];
            if ((in | out) < 0) return gdn_state_ptrs_of<T> { nullptr, nullptr };
            from = (uint32_t)in, to = (uint32_t)out;
        }
        return gdn_state_ptrs_of<T> { static_cast<const T *>(h_state) + from * x.slot_stride + at,
                                      static_cast<T *>(x.state_out) + to * x.slot_stride + at };
    }
    T *const base = is_table ? static_cast<T *const *>(h_state)[b] : static_cast<T *>(h_state) + (uint64_t)b * nv * one;
    return base ? gdn_state_ptrs_of<T> { base + at, base + at } : gdn_state_ptrs_of<T> { nullptr, nullptr };
}

/* Where sequence b lies among tokens, and in the scratch. Chunk c of the sequence (counted in the whole sequence) has scratch row
 * (chunk_row + c - begin)*nv + head. */
struct gdn_sequence {
    uint64_t token;      /* of its first row                                        */
    uint64_t qk_token;   /* the same in query and key                               */
    uint32_t len;        /* tokens                                                  */
    uint32_t begin, end; /* its chunks in this launch; begin == end: none           */
    uint32_t chunk_row;  /* scratch chunks in front of it                           */
};
enum { GDN_CHUNK_TOKENS = 64 };
GDN_DEVICE uint32_t gdn_chunks_of(uint32_t len) {
    return (len + GDN_CHUNK_TOKENS - 1) / GDN_CHUNK_TOKENS;
}
/* How many of `chunks` chunks this launch is for. */
GDN_DEVICE uint32_t gdn_chunks_here(const gdn_rule_ext &x, uint32_t chunks) {
    const uint32_t end = x.chunk_end ? min(chunks, x.chunk_end) : chunks;
    return end > x.chunk_begin ? end - x.chunk_begin : 0;
}

/* A sum over earlier sequences, by one warp; every lane holds it. */
template <class F> GDN_DEVICE uint32_t gdn_sum_before(uint32_t b, const int32_t *cu, F of_length) {
    uint32_t sum = 0;
    for (uint32_t i = gdn_lane(); i < b; i += 32) sum += of_length((uint32_t)(cu[i + 1] - cu[i]));
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(GDN_FULL_MASK, sum, d);
    return sum;
}
/* All lanes of a warp come here together; every warp of the block finds the same. */
GDN_DEVICE gdn_sequence gdn_find_sequence(const gdn_rule_ext &x, uint32_t b, uint32_t seq_len, uint32_t num_chunks, const int32_t *cu,
                                          bool is_varlen) {
    gdn_sequence s;
    if (is_varlen) {
        s.token = (uint64_t)(uint32_t)cu[b];
        s.len = (uint32_t)(cu[b + 1] - cu[b]);
        s.chunk_row = gdn_sum_before(b, cu, [&](uint32_t len) { return gdn_chunks_here(x, gdn_chunks_of(len)); });
    } else {
        s.token = (uint64_t)b * seq_len;
        s.len = seq_len;
        s.chunk_row = b * gdn_chunks_here(x, num_chunks);
    }
    s.qk_token = s.token - (is_varlen && x.qk_from_first ? (uint64_t)(uint32_t)cu[0] : 0);
    s.begin = x.chunk_begin;
    s.end = s.begin + gdn_chunks_here(x, gdn_chunks_of(s.len));
    return s;
}
GDN_DEVICE uint32_t gdn_chunk_rows(const gdn_sequence &s, uint32_t c) {
    return min((uint32_t)GDN_CHUNK_TOKENS, s.len - c * GDN_CHUNK_TOKENS);
}

/* Checkpoints in front of sequence b; as gdn_find_sequence. */
GDN_DEVICE uint64_t gdn_ckpts_before(const gdn_rule_ext &x, uint32_t b, uint32_t seq_len, const int32_t *cu, bool is_varlen) {
    if (!is_varlen) return (uint64_t)b * (seq_len / x.ckpt_every);
    return gdn_sum_before(b, cu, [&](uint32_t len) { return len / x.ckpt_every; });
}
