/* emu_sync.cpp - barriers of a block (hardware barriers 0..15) and collectives of a warp. */
#include "emu_internal.hpp"
#include <cstring>

namespace emu {
/* ---- block barriers ---- */
static void bar_open(unsigned id, barrier &b, unsigned threads, place at) {
    fibre &f = *me();
    if (!b.arrived) {
        b.expected = threads;
        b.at = at;
        memset(b.who, 0, sizeof b.who);
    }
    if (b.expected != threads)
        fail("barrier %u: %u threads expected at %s:%d, %u at %s:%d", id, b.expected, b.at.name(), b.at.line, threads, at.name(), at.line);
    if (id == 0 && b.at.line != at.line)
        fail("barrier divergence: a thread waits at %s:%d, this one came to %s:%d", b.at.name(), b.at.line, at.name(), at.line);
    if (b.who[f.warp] >> f.lane & 1) fail("barrier %u: a thread arrives twice at %s:%d", id, at.name(), at.line);
    b.who[f.warp] |= 1u << f.lane;
}
static void bar_arrive(unsigned id, barrier &b, unsigned threads, bool wait, place at) {
    bar_open(id, b, threads, at);
    char *edge = &b.sync[b.phase & 1];
    release(edge);
    if (++b.arrived == b.expected) {
        for (unsigned i = 0; i < B.n; i++)
            if (B.f[i].st == state::at_bar && B.f[i].bar == id) wake(B.f[i]);
        b.arrived = 0;
        b.phase++;
        b.accumulated[b.phase & 1] = 0;
        B.restart = true; /* warps go on in the schedule's order, not the last to arrive first */
        if (wait) sleep(state::ready, at);
    } else if (wait) {
        me()->bar = id;
        sleep(state::at_bar, at);
    }
    if (wait) acquire(edge);
}
unsigned sync_block(place at, fold how, bool value) {
    barrier &b = B.bars[0];
    unsigned parity = b.phase & 1;
    if (!b.arrived) b.accumulated[parity] = 0;
    b.accumulated[parity] += value;
    bar_arrive(0, b, B.n, true, at);
    unsigned sum = b.accumulated[parity];
    return how == fold::any ? sum != 0 : how == fold::all ? sum == B.n : sum;
}
void bar(unsigned id, unsigned threads, bool wait, place at) {
    if (id >= BARS) fail("%s:%d: barrier %u does not exist (0..15)", at.name(), at.line, id);
    if (!threads || threads % WARP || threads > B.warps * WARP)
        fail("%s:%d: barrier %u of %u threads: not whole warps of this block", at.name(), at.line, id, threads);
    bar_arrive(id, B.bars[id], threads, wait, at);
}

/* ---- warp collectives ---- */
static group *find_group(uint32_t mask, place at) {
    warp_state &w = B.w[me()->warp];
    for (uint32_t open = w.open; open; open &= open - 1) {
        group *g = &w.pool[__builtin_ctz(open)];
        if (g->mask & mask) return g;
    }
    const uint32_t spare = ~w.occupied & ((1u << GROUPS) - 1);
    if (!spare) fail("%s:%d: more than %d warp collectives in flight", at.name(), at.line, (int)GROUPS);
    return &w.pool[__builtin_ctz(spare)];
}
static void open_group(warp_state &w, group *g, uint32_t mask, int kind, place at) {
    const uint32_t bit = 1u << (g - w.pool);
    if (w.open & bit) return;
    w.open |= bit;
    w.occupied |= bit;
    g->mask = g->left = mask;
    g->arrived = g->asleep = 0;
    g->kind = kind;
    g->line = at.line;
}
group *warp_arrive(uint32_t mask, int kind, place at, const void *in, size_t bytes, void (*finish)(group &)) {
    fibre &f = *me();
    warp_state &w = B.w[f.warp];
    const uint32_t bit = 1u << f.lane;
    if (!(mask & bit)) fail("%s:%d: the mask %08x of a warp collective lacks the calling lane %u", at.name(), at.line, mask, f.lane);
    group *g = find_group(mask, at);
    open_group(w, g, mask, kind, at);
    if (g->mask != mask || g->kind != kind || g->line != at.line || (g->arrived & bit))
        fail("warp divergence: lane %u at %s:%d (mask %08x), others at line %d (mask %08x)", f.lane, at.name(), at.line, mask, g->line,
             g->mask);
    g->arrived |= bit;
    copy(&g->in[f.lane], in, bytes);
    if (g->arrived != mask) {
        g->asleep |= 1u << f.turn;
        sleep(state::at_warp, at);
        return g;
    }
    w.open &= ~(1u << (g - w.pool));
    if (finish) finish(*g);
    w.ready |= g->asleep;
    return g;
}
void warp_leave(group *g) {
    g->left &= ~(1u << self->lane);
    warp_state &w = B.w[me()->warp];
    if (!g->left) w.occupied &= ~(1u << (g - w.pool));
}
void sync_warp(uint32_t mask, place at) {
    /* The edge lives in the group, which is not used again before all have left. */
    if (!(mask >> self->lane & 1)) fail("%s:%d: __syncwarp's mask %08x lacks the calling lane %u", at.name(), at.line, mask, self->lane);
    release(&find_group(mask, at)->left);
    group *g = warp_arrive(mask, KIND_SYNCWARP, at, nullptr, 0, nullptr);
    acquire(&g->left);
    warp_leave(g);
}
static int source_lane(int kind, int operand, int width) {
    int lane = (int)me()->lane, base = lane & ~(width - 1);
    switch (kind) {
    case 0: return base + (operand & (width - 1));
    case 1: return lane - operand < base ? lane : lane - operand;
    case 2: return lane + operand >= base + width ? lane : lane + operand;
    default: return (lane ^ operand) >= base + width ? lane : lane ^ operand;
    }
}
uint64_t shuffle(uint32_t mask, uint64_t value, int kind, int operand, int width, place at) {
    if (width < 1 || width > WARP || (width & (width - 1))) fail("%s:%d: shuffle width %d", at.name(), at.line, width);
    if (!(mask >> self->lane & 1))
        fail("%s:%d: the mask %08x of a shuffle lacks the calling lane %u", at.name(), at.line, mask, self->lane);
    int src = source_lane(kind, operand, width);
    if (src < 0 || src >= WARP || !(mask >> src & 1))
        fail("%s:%d: shuffle reads lane %d outside its mask %08x", at.name(), at.line, src, mask);
    group *g = warp_arrive(mask, KIND_SHUFFLE + kind, at, &value, sizeof value, nullptr);
    copy(&value, &g->in[src], sizeof value);
    warp_leave(g);
    return value;
}
uint32_t ballot(uint32_t mask, bool value, place at) {
    unsigned char v = value;
    group *g = warp_arrive(mask, KIND_BALLOT, at, &v, 1, nullptr);
    uint32_t r = 0;
    for (int i = 0; i < WARP; i++)
        if ((mask >> i & 1) && g->in[i].b[0]) r |= 1u << i;
    warp_leave(g);
    return r;
}
} // namespace emu
