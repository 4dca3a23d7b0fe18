/* prefill.c - gated delta rule over whole sequences: takes the launch apart into units and runs them over OpenMP threads.
 *
 * A unit is (sequence, key head), cut further into runs of column tiles where there are fewer units than threads (a few heads,
 * one long sequence). Columns of a state never meet, so the cut changes no byte; it only repeats what value heads share. */
#include "prefill.h"
#include "rule_addr.h"
#include <omp.h>
#include <string.h>

typedef struct prefill_plan {
    const gdn__prefill_table *table;
    uint32_t tiles, parts; /* column tiles of a key head, and the units they are cut into */
    uint64_t units;
} prefill_plan;

/* Time of the busiest thread, in quarters of a tile's work; what a unit's heads share (packing, Gram matrices) costs about a
 * quarter of one head. */
static uint64_t makespan(uint64_t units, uint32_t threads, uint32_t tiles, uint32_t parts, uint32_t per_head) {
    uint64_t rounds = (units * parts + threads - 1) / threads;
    return rounds * (per_head + 4 * ((tiles + parts - 1) / parts));
}

/* The cut with the shortest makespan. Sequences differ in length: what counts is how many of the longest there would be. */
static uint32_t choose_parts(const gdn_cpu_rule *c, uint32_t tiles, uint32_t per_head) {
    const uint32_t fewest = (c->nv / c->nk + GDN__PREFILL_MAX_HEADS - 1) / GDN__PREFILL_MAX_HEADS;
    const uint32_t threads = (uint32_t)omp_get_max_threads();
    uint64_t longest = c->seq_len, total = gdn__rule_row(c, c->batch) - gdn__rule_row(c, 0);
    if (c->cu) {
        longest = 0;
        for (uint32_t b = 0; b < c->batch; b++) {
            const uint64_t len = gdn__rule_row(c, b + 1) - gdn__rule_row(c, b);
            longest = len > longest ? len : longest;
        }
    }
    const uint64_t units = longest ? c->nk * ((total + longest - 1) / longest) : c->nk;
    uint32_t best = fewest;
    if (units * fewest >= 16 * (uint64_t)threads) return best;
    for (uint32_t parts = fewest; parts <= tiles; parts++)
        if (makespan(units, threads, tiles, parts, per_head) < makespan(units, threads, tiles, best, per_head)) best = parts;
    return best;
}

/* Checkpoints of the sequences before b. Units come in ascending order, so each thread only ever walks forward. */
typedef struct ckpt_cursor {
    uint32_t b;
    uint64_t count;
} ckpt_cursor;
static float *ckpt_of(const gdn_cpu_rule *c, uint32_t b, ckpt_cursor *at) {
    if (!c->ckpt || !c->ckpt_every) return NULL;
    if (at->b > b) *at = (ckpt_cursor) { 0 };
    for (; at->b < b; at->b++) at->count += (gdn__rule_row(c, at->b + 1) - gdn__rule_row(c, at->b)) / c->ckpt_every;
    return c->ckpt + at->count * gdn__rule_seq_size(c);
}

static void zero_rows(const gdn_cpu_rule *c, uint64_t row, uint64_t len, uint32_t key_head) {
    const size_t size = c->f32 ? sizeof(float) : sizeof(uint16_t);
    for (uint64_t t = 0; t < len; t++)
        for (uint32_t e = 0; e < c->nv / c->nk; e++) {
            const uint64_t at = gdn__rule_out_at(c, row + t, gdn__rule_value_head(c, key_head, e));
            memset((char *)c->out + at * size, 0, c->v_dim * size);
        }
}

static void run_unit(const gdn_cpu_rule *c, const prefill_plan *p, uint64_t i, ckpt_cursor *at) {
    const uint32_t part = (uint32_t)(i % p->parts), b = (uint32_t)(i / p->parts / c->nk);
    gdn__prefill_unit u = { .in = gdn__rule_in(c, b), .out = gdn__rule_out(c, b), .row = gdn__rule_row(c, b) };
    u.len = gdn__rule_row(c, b + 1) - u.row;
    u.key_head = (uint32_t)(i / p->parts % c->nk);
    if (!u.in || !u.out) {
        if (part == 0) zero_rows(c, u.row, u.len, u.key_head);
        return;
    }
    if (gdn__rule_fresh(c, b)) u.in = NULL;
    if (u.len == 0 && u.in == u.out) return;
    u.ckpt = ckpt_of(c, b, at);
    u.tile_first = (uint32_t)((uint64_t)p->tiles * part / p->parts);
    u.tile_end = (uint32_t)((uint64_t)p->tiles * (part + 1) / p->parts);
    p->table->run(c, &u);
}

void gdn_cpu_prefill(const gdn_cpu_rule *c) {
    static const gdn__prefill_table *const tables[GDN_CPU_ISAS] = { &gdn__prefill_table_base, &gdn__prefill_table_avx2,
                                                                    &gdn__prefill_table_avx512 };
    if (c->batch == 0) return;
    prefill_plan p = { .table = tables[c->isa] };
    const uint32_t per_head = c->v_dim / p.table->tile;
    p.tiles = c->nv / c->nk * per_head;
    p.parts = choose_parts(c, p.tiles, per_head);
    p.units = (uint64_t)c->batch * c->nk * p.parts;
#pragma omp parallel
    {
        ckpt_cursor at = { 0 };
#pragma omp for schedule(dynamic)
        for (uint64_t i = 0; i < p.units; i++) run_unit(c, &p, i, &at);
    }
}
