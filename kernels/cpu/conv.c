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
#pragma omp parallel if (tokens * c->channels > 32768)
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

static block plain_block(const gdn_cpu_conv *c, uint32_t j) {
    const uint32_t c0 = j * GDN__CONV_BLOCK, left = c->channels - c0;
    return (block) {
        .out = (char *)c->out + c0 * elem(c), .out_stride = c->out_stride, .c0 = c0, .nc = left < GDN__CONV_BLOCK ? left : GDN__CONV_BLOCK
    };
}

void gdn_cpu_conv1d(const gdn_cpu_conv *c) {
    run_all(c, (c->channels + GDN__CONV_BLOCK - 1) / GDN__CONV_BLOCK, plain_block);
}

/* Whole heads a block; a block never mixes q, k and v. */
static uint32_t heads_a_block(uint32_t dim) {
    return dim < GDN__CONV_BLOCK ? GDN__CONV_BLOCK / dim : 1;
}
static uint32_t blocks_of(uint32_t heads, uint32_t dim) {
    return (heads + heads_a_block(dim) - 1) / heads_a_block(dim);
}

static block fused_block(const gdn_cpu_conv *c, uint32_t j) {
    const uint32_t qk = blocks_of(c->nk, c->k_dim), part = j < qk ? 0 : j < 2 * qk ? 1 : 2;
    const uint32_t dim = part == 2 ? c->v_dim : c->k_dim, heads = part == 2 ? c->nv : c->nk, step = heads_a_block(dim);
    const uint32_t h0 = (j - part * qk) * step, n = heads - h0 < step ? heads - h0 : step;
    void *const out[3] = { c->out_q, c->out_k, c->out_v };
    const uint32_t stride[3] = { c->q_stride, c->k_stride, c->v_stride };
    return (block) { .out = (char *)out[part] + (uint64_t)h0 * dim * elem(c),
                     .out_stride = stride[part],
                     .c0 = part * c->nk * c->k_dim + h0 * dim,
                     .nc = n * dim,
                     .head = part == 2 ? 0 : dim };
}

void gdn_cpu_conv_fused(const gdn_cpu_conv *c) {
    run_all(c, 2 * blocks_of(c->nk, c->k_dim) + blocks_of(c->nv, c->v_dim), fused_block);
}
