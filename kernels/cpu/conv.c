/* conv.c - causal convolution with its state: which rows and channels, which window, who writes the state, which thread.
 * Contract: abi/gdn_op_conv.h. Arithmetic: isa/conv_rows.c.
 *
 * The work is cut into units: (sequence, block of tokens, block of channels). Only the unit of a sequence's first tokens
 * reads the state of its channels, and the same unit writes it afterwards, so units need no order among each other;
 * later units take their window from x. A sequence without tokens is one unit that only moves its window. */
#include <omp.h>
#include <string.h>

#include "conv_rows.h"

typedef struct seq {
    uint64_t row0, len, slot;
    uint32_t na;
    bool fresh, padding;
} seq;

/* Channels [c0, c0 + nc), and where their first output row begins. */
typedef struct block {
    void *out;
    uint64_t out_stride;
    uint32_t c0, nc, head;
} block;

static uint64_t offset_of(const gdn_cpu_conv *c, uint32_t b) {
    if (!c->cu) return (uint64_t)b * c->seq_len;
    return c->cu64 ? (uint64_t)((const int64_t *)c->cu)[b] : (uint64_t)((const int32_t *)c->cu)[b];
}

static seq seq_of(const gdn_cpu_conv *c, uint32_t b) {
    seq s = { .row0 = offset_of(c, b), .slot = b };
    s.len = offset_of(c, b + 1) - s.row0;
    s.padding = c->slots && c->slots[b] < 0;
    if (s.padding) return s;
    if (c->slots) s.slot = (uint64_t)c->slots[b];
    s.fresh = c->fresh && c->fresh[b];
    s.na = c->accepted && !s.fresh ? (uint32_t)c->accepted[b] : 0;
    return s;
}

static uint64_t token_blocks(const gdn_cpu_conv *c, uint32_t b) {
    const uint64_t len = offset_of(c, b + 1) - offset_of(c, b);
    return len ? (len + GDN__CONV_TOKENS - 1) / GDN__CONV_TOKENS : 1;
}

static size_t elem(const gdn_cpu_conv *c) {
    return c->f32 ? sizeof(float) : sizeof(uint16_t);
}
static const char *x_at(const gdn_cpu_conv *c, uint64_t row, uint32_t channel) {
    return (const char *)c->x + (row * c->x_stride + channel) * elem(c);
}
static char *state_at(const gdn_cpu_conv *c, const seq *s, uint32_t channel) {
    return (char *)c->state + (s->slot * c->slot_stride + (uint64_t)channel * c->state_len) * elem(c);
}
static float widen(const gdn_cpu_conv *c, const char *p) {
    return c->f32 ? *(const float *)p : gdn_bf16_to_f32(*(const uint16_t *)p);
}

/* The width-1 rows before token t0. */
static void load_window(const gdn_cpu_conv *c, const seq *s, const block *k, uint64_t t0, float (*win)[GDN__CONV_BLOCK]) {
    const uint32_t cols = c->width - 1;
    for (uint32_t j = 0; j < cols && t0; j++) {
        const char *const x = x_at(c, s->row0 + t0 - cols + j, k->c0);
        for (uint32_t i = 0; i < k->nc; i++) win[j][i] = widen(c, x + i * elem(c));
    }
    for (uint32_t j = 0; j < cols && !t0; j++)
        for (uint32_t i = 0; i < k->nc; i++)
            win[j][i] = !c->state || s->fresh ? 0 : widen(c, state_at(c, s, k->c0 + i) + (s->na + j) * elem(c));
}

/* Columns of (window ++ x) to the front of the state, as bits. Ascending: no column is read after a lower one took its
 * place. Inlined for both element sizes. */
static inline void write_state_as(const gdn_cpu_conv *c, const seq *s, const block *k, bool f32) {
    const uint64_t cols = c->width - 1, first = c->keep_rows ? 0 : s->len, n = c->keep_rows ? cols + s->len : cols;
    for (uint32_t i = 0; i < k->nc; i++) {
        char *const row = state_at(c, s, k->c0 + i);
        for (uint64_t j = 0; j < n; j++) {
            const uint64_t from = first + j;
            const void *const v = from >= cols ? x_at(c, s->row0 + from - cols, k->c0 + i) : row + (s->na + from) * (f32 ? 4 : 2);
            const bool zero = from < cols && s->fresh;
            if (f32)
                ((uint32_t *)(void *)row)[j] = zero ? 0 : *(const uint32_t *)v;
            else
                ((uint16_t *)(void *)row)[j] = zero ? 0 : *(const uint16_t *)v;
        }
    }
}

static void write_state(const gdn_cpu_conv *c, const seq *s, const block *k) {
    if (s->len == 0 && s->na == 0 && !s->fresh) return;
    if (c->f32)
        write_state_as(c, s, k, true);
    else
        write_state_as(c, s, k, false);
}

static void run_unit(const gdn_cpu_conv *c, const seq *s, const block *k, uint64_t token_block) {
    const uint64_t t0 = token_block * GDN__CONV_TOKENS;
    const uint64_t rows = s->len - t0 < GDN__CONV_TOKENS ? s->len - t0 : GDN__CONV_TOKENS;
    char *const out = (char *)k->out + (s->row0 + t0) * k->out_stride * elem(c);
    if (s->padding) {
        for (uint64_t t = 0; t < rows; t++) memset(out + t * k->out_stride * elem(c), 0, k->nc * elem(c));
        return;
    }
    if (rows) {
        float win[GDN__CONV_TAPS][GDN__CONV_BLOCK];
        load_window(c, s, k, t0, win);
        const size_t wsize = c->weight_f32 ? sizeof(float) : sizeof(uint16_t);
        const gdn__conv_rows r = { .x = x_at(c, s->row0 + t0, k->c0),
                                   .weight = (const char *)c->weight + (uint64_t)k->c0 * c->width * wsize,
                                   .bias = c->bias ? (const char *)c->bias + k->c0 * wsize : NULL,
                                   .out = out,
                                   .window = (const float(*)[GDN__CONV_BLOCK])win,
                                   .rows = rows,
                                   .x_stride = c->x_stride,
                                   .out_stride = k->out_stride,
                                   .nc = k->nc,
                                   .width = c->width,
                                   .head = k->head,
                                   .f32 = c->f32,
                                   .weight_f32 = c->weight_f32,
                                   .silu = c->silu };
        static const struct gdn__conv_table *const table[GDN_CPU_ISAS] = { &gdn__conv_table_base, &gdn__conv_table_avx2,
                                                                           &gdn__conv_table_avx512 };
        table[c->isa]->rows(&r);
    }
    if (t0 == 0 && c->state) write_state(c, s, k);
}

typedef block block_fn(const gdn_cpu_conv *c, uint32_t j);

/* Every thread takes an equal run of the units, in an order that puts a token block's channel blocks together. */
static void run_all(const gdn_cpu_conv *c, uint32_t blocks, block_fn *block_of) {
    uint64_t units = 0;
    for (uint32_t b = 0; b < c->batch; b++) units += token_blocks(c, b) * blocks;
    if (!units) return;
    const uint64_t tokens = offset_of(c, c->batch) - offset_of(c, 0);
#pragma omp parallel if (tokens * c->channels > 4096)
    {
        const uint64_t threads = (uint64_t)omp_get_num_threads(), me = (uint64_t)omp_get_thread_num();
        uint64_t base = 0; /* units before sequence b */
        uint32_t b = 0;
        for (uint64_t u = units * me / threads; u < units * (me + 1) / threads; u++) {
            while (u - base >= token_blocks(c, b) * blocks) base += token_blocks(c, b++) * blocks;
            const seq s = seq_of(c, b);
            const block k = block_of(c, (uint32_t)((u - base) % blocks));
            run_unit(c, &s, &k, (u - base) / blocks);
        }
    }
}

/* Block j of `channels` ones that begin at channel c0 of x and at `out`. */
static block part_of(const gdn_cpu_conv *c, void *out, uint32_t out_stride, uint32_t c0, uint32_t channels, uint32_t j) {
    const uint32_t first = j * GDN__CONV_BLOCK, left = channels - first;
    return (block) { .out = (char *)out + first * elem(c),
                     .out_stride = out_stride,
                     .c0 = c0 + first,
                     .nc = left < GDN__CONV_BLOCK ? left : GDN__CONV_BLOCK };
}
static uint32_t parts_of(uint32_t channels) {
    return channels / GDN__CONV_BLOCK + (channels % GDN__CONV_BLOCK != 0);
}

static block plain_block(const gdn_cpu_conv *c, uint32_t j) {
    return part_of(c, c->out, c->out_stride, 0, c->channels, j);
}

void gdn_cpu_conv1d(const gdn_cpu_conv *c) {
    run_all(c, parts_of(c->channels), plain_block);
}

/* q and k: whole heads a block, because each is normalised; no head is above GDN__CONV_BLOCK. */
static uint32_t heads_a_block(const gdn_cpu_conv *c) {
    return GDN__CONV_BLOCK / c->k_dim;
}
static uint32_t qk_blocks(const gdn_cpu_conv *c) {
    return (c->nk + heads_a_block(c) - 1) / heads_a_block(c);
}

static block fused_block(const gdn_cpu_conv *c, uint32_t j) {
    const uint32_t qk = c->nk * c->k_dim, n = qk_blocks(c);
    if (j >= 2 * n) return part_of(c, c->out_v, c->v_stride, 2 * qk, c->nv * c->v_dim, j - 2 * n);
    const bool k = j >= n;
    const uint32_t h0 = (k ? j - n : j) * heads_a_block(c), heads = c->nk - h0 < heads_a_block(c) ? c->nk - h0 : heads_a_block(c);
    return (block) { .out = (char *)(k ? c->out_k : c->out_q) + (uint64_t)h0 * c->k_dim * elem(c),
                     .out_stride = k ? c->k_stride : c->q_stride,
                     .c0 = (k ? qk : 0) + h0 * c->k_dim,
                     .nc = heads * c->k_dim,
                     .head = c->k_dim };
}

void gdn_cpu_conv_fused(const gdn_cpu_conv *c) {
    run_all(c, 2 * qk_blocks(c) + parts_of(c->nv * c->v_dim), fused_block);
}
