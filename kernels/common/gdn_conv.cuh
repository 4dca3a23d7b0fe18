/* gdn_conv.cuh - the bookkeeping of causal_conv1d.cu: which sequence and tile a block has, the window before its first token,
 * and the state after its last one. Contract: abi/gdn_op_conv.h.
 *
 * Only the lane that has a sequence's first tile reads or writes the state of its channels, and it reads the window before it
 * writes; all other tiles take their window from x. So blocks need no order. */
#pragma once
#include "gdn_device.cuh"
#include "gdn_geometry.h"
#include "gdn_rows.cuh"

struct gdn_conv {
    const gdn_bf16 *x;
    const void *weight, *bias;
    gdn_bf16 *state;
    const int32_t *slots;
    const uint8_t *fresh;
    const void *cu;
    const int32_t *accepted;
    uint64_t slot_stride;
    uint32_t channels, x_stride, width, state_len, batch, seq_len;
    bool cu64, keep_rows, weight_f32, silu;
};
struct gdn_conv_seq {
    uint64_t row0, len;
    gdn_bf16 *state; /* of its slot; NULL: zeros before the first token, nothing written */
    uint32_t na;     /* the window's first column */
    bool fresh, padding;
};
/* Channels [c0, c0 + n) of x to out; n = 0: a lane that only takes part in shuffles. head: lanes of a normalised head, 0 when this
 * warp has none; the same in the whole warp, also where only some lanes (`norm`) belong to one. */
struct gdn_conv_lane {
    gdn_bf16 *out;
    uint64_t out_stride;
    uint32_t c0, n, head;
    bool norm;
};

/* ---- sequences and tiles ---- */
GDN_DEVICE uint64_t gdn_conv_offset(const gdn_conv &a, uint32_t b) {
    if (!a.cu) return (uint64_t)b * a.seq_len;
    return a.cu64 ? (uint64_t) static_cast<const int64_t *>(a.cu)[b] : (uint64_t) static_cast<const int32_t *>(a.cu)[b];
}

/* Packed: sequence b begins with tile floor((cu[b] - cu[0]) / TOKENS) + b. That leaves each at least the tiles it needs and grows
 * with b, so the sequence of a tile is found without a sum over the earlier ones: a search in which each of the warp's lanes
 * probes one place. Whole warps. */
GDN_DEVICE uint32_t gdn_conv_find(const gdn_conv &a, uint64_t tile, uint64_t *first_tile) {
    const uint64_t base = gdn_conv_offset(a, 0);
    uint32_t lo = 0, n = a.batch;
    *first_tile = 0;
    while (n > 1) {
        const uint32_t step = (n + 31) / 32, p = gdn_lane() * step; /* p < n + 32, from lo */
        const uint64_t first = p < n ? (gdn_conv_offset(a, lo + p) - base) / GDN_CONV_TOKENS + lo + p : 0;
        const uint32_t below = __ballot_sync(GDN_FULL_MASK, p < n && first <= tile); /* a run of ones from lane 0 */
        uint32_t k = 0;
        while (k < 31 && (below >> (k + 1)) & 1) k++;
        *first_tile = (uint64_t)__shfl_sync(GDN_FULL_MASK, first, (int)k);
        lo += k * step;
        n = n - k * step < step ? n - k * step : step;
    }
    return lo;
}

/* The sequence of a tile and the tile's first token. false: the tile is not used. */
GDN_DEVICE bool gdn_conv_seq_of(const gdn_conv &a, uint64_t tile, gdn_conv_seq *s, uint64_t *t0) {
    uint64_t b, first;
    if (a.cu) {
        b = gdn_conv_find(a, tile, &first);
    } else {
        const uint32_t each = a.seq_len ? GDN__CEIL_DIV(a.seq_len, (uint32_t)GDN_CONV_TOKENS) : 1;
        b = tile / each;
        first = b * each;
    }
    if (b >= a.batch) return false;
    s->row0 = gdn_conv_offset(a, (uint32_t)b);
    s->len = gdn_conv_offset(a, (uint32_t)b + 1) - s->row0;
    *t0 = (tile - first) * GDN_CONV_TOKENS;
    if (*t0 >= s->len && *t0) return false;
    const int64_t slot = a.slots ? a.slots[b] : (int64_t)b;
    s->padding = slot < 0;
    s->fresh = !s->padding && a.fresh && a.fresh[b];
    s->na = a.accepted && !s->padding && !s->fresh ? (uint32_t)a.accepted[b] : 0;
    s->state = a.state && !s->padding ? a.state + (uint64_t)slot * a.slot_stride : nullptr;
    return true;
}

/* ---- the state, element by element ---- */
/* Column j of the window, channels of a lane. */
GDN_DEVICE uint4 gdn_conv_column(const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l, uint32_t j) {
    uint32_t w[4] = { 0, 0, 0, 0 };
    if (s.state && !s.fresh) {
        const gdn_bf16 *const p = s.state + (uint64_t)l.c0 * a.state_len + s.na + j;
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (i < l.n) w[i / 2] |= (uint32_t)p[(uint64_t)i * a.state_len].bits << (16 * (i % 2));
    }
    return uint4 { w[0], w[1], w[2], w[3] };
}

GDN_DEVICE void gdn_conv_put_column(const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l, uint64_t j, uint4 v) {
    gdn_bf16 *const p = s.state + (uint64_t)l.c0 * a.state_len + j;
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        if (i < l.n) p[(uint64_t)i * a.state_len].bits = (uint16_t)(w[i / 2] >> (16 * (i % 2)));
}

/* What the launch leaves: columns [0, n) become columns [from, from + n) of (window ++ x). n = 0: the state stays. */
GDN_DEVICE uint64_t gdn_conv_kept(const gdn_conv &a, const gdn_conv_seq &s, uint64_t *from) {
    *from = a.keep_rows ? 0 : s.len;
    if (!s.state || (s.len == 0 && s.na == 0 && !s.fresh)) return 0;
    return a.keep_rows ? a.width - 1 + s.len : a.width - 1;
}

/* Any width and alignment. Ascending: no column is read after a lower one took its place. */
GDN_DEVICE void gdn_conv_write_state(const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l) {
    uint64_t from;
    const uint64_t n = gdn_conv_kept(a, s, &from), cols = a.width - 1;
    GDN_NO_UNROLL
    for (uint64_t j = 0; j < n; j++, from++)
        gdn_conv_put_column(a, s, l, j,
                            from < cols ? gdn_conv_column(a, s, l, (uint32_t)from)
                                        : gdn_load8<false, true>(a.x + (s.row0 + from - cols) * a.x_stride + l.c0, l.n));
}

/* ---- width 4, rows of x aligned. A lane's part of the state is state_len whole words when its base is aligned too ---- */
GDN_DEVICE bool gdn_conv_whole_words(const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l) {
    return l.n == 8 && gdn_aligned16(s.state + (uint64_t)l.c0 * a.state_len);
}
GDN_DEVICE uint32_t gdn__half(const uint32_t *w, uint32_t e) {
    return (w[e / 2] >> (16 * (e % 2))) & 0xffffu;
}
GDN_DEVICE void gdn__to_words(uint32_t *w, const uint4 &v) {
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
}

/* Three columns are three words of eight channels: transposed in registers. */
GDN_DEVICE void gdn_conv_read3(uint4 (&win)[3], const gdn_conv_seq &s, const gdn_conv_lane &l) {
    uint32_t w[12];
    GDN_UNROLL
    for (uint32_t q = 0; q < 3; q++) gdn__to_words(w + 4 * q, gdn_ld16(s.state + (uint64_t)l.c0 * 3 + 8 * q));
    GDN_UNROLL
    for (uint32_t j = 0; j < 3; j++) {
        uint32_t r[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) r[i] = gdn__half(w, 6 * i + j) | gdn__half(w, 6 * i + 3 + j) << 16;
        win[j] = uint4 { r[0], r[1], r[2], r[3] };
    }
}
GDN_DEVICE void gdn_conv_write3(const uint4 (&column)[3], const gdn_conv_seq &s, const gdn_conv_lane &l) {
    uint32_t r[3][4], w[12];
    GDN_UNROLL
    for (uint32_t j = 0; j < 3; j++) gdn__to_words(r[j], column[j]);
    GDN_UNROLL
    for (uint32_t i = 0; i < 12; i++) w[i] = gdn__half(r[2 * i % 3], 2 * i / 3) | gdn__half(r[(2 * i + 1) % 3], (2 * i + 1) / 3) << 16;
    GDN_UNROLL
    for (uint32_t q = 0; q < 3; q++)
        gdn_st16(s.state + (uint64_t)l.c0 * 3 + 8 * q, uint4 { w[4 * q], w[4 * q + 1], w[4 * q + 2], w[4 * q + 3] });
}

/* More columns: the words are put together from the thread's rows in shared memory, GDN_CONV_BLOCK words apart: row j of x, and the
 * first three columns behind the tile. Columns from n on keep what they hold. */
GDN_DEVICE void gdn_conv_write_words(const gdn_conv &a, const uint4 *rows, const gdn_conv_seq &s, const gdn_conv_lane &l, uint64_t n) {
    gdn_bf16 *const p = s.state + (uint64_t)l.c0 * a.state_len;
    uint32_t column = 0, channel = 0;
    GDN_NO_UNROLL
    for (uint32_t q = 0; q < a.state_len; q++) {
        uint32_t w[4] = { 0, 0, 0, 0 };
        if (n < a.state_len) gdn__to_words(w, gdn_ld16(p + 8 * q));
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const uint4 *const row = rows + (column < 3 ? GDN_CONV_TOKENS + column : column - 3) * GDN_CONV_BLOCK;
            if (column < n) {
                const uint32_t v = reinterpret_cast<const gdn_bf16 *>(row)[channel].bits;
                w[i / 2] = i % 2 ? (w[i / 2] & 0xffffu) | v << 16 : (w[i / 2] & 0xffff0000u) | v;
            }
            if (++column == a.state_len) column = 0, channel++;
        }
        gdn_st16(p + 8 * q, uint4 { w[0], w[1], w[2], w[3] });
    }
}

/* The new state of a lane from its old window. rows: as above, x landed; the three behind the tile are written here. */
GDN_DEVICE void gdn_conv_write4(const gdn_conv &a, const uint4 (&win)[3], uint4 *rows, const gdn_conv_seq &s, const gdn_conv_lane &l) {
    uint64_t from;
    const uint64_t n = gdn_conv_kept(a, s, &from);
    if (n == 0 || l.n == 0) return;
    uint4 column[3];
    GDN_UNROLL
    for (uint32_t j = 0; j < 3; j++, from++) {
        column[j] = from == 0 ? win[0] : from == 1 ? win[1] : win[2];
        if (from >= 3) column[j] = gdn_load8<true, true>(a.x + (s.row0 + from - 3) * a.x_stride + l.c0, l.n);
    }
    const bool words = gdn_conv_whole_words(a, s, l);
    if (words && a.state_len == 3) {
        gdn_conv_write3(column, s, l);
    } else if (words && n <= 3 + GDN_CONV_TOKENS) {
        GDN_UNROLL
        for (uint32_t j = 0; j < 3; j++) rows[(GDN_CONV_TOKENS + j) * GDN_CONV_BLOCK] = column[j];
        gdn_conv_write_words(a, rows, s, l, n);
    } else {
        GDN_UNROLL
        for (uint32_t j = 0; j < 3; j++) gdn_conv_put_column(a, s, l, j, column[j]);
        GDN_NO_UNROLL
        for (uint64_t j = 3; j < n; j++)
            gdn_conv_put_column(a, s, l, j, gdn_load8<true, true>(a.x + (s.row0 + j - 3) * a.x_stride + l.c0, l.n));
    }
}
