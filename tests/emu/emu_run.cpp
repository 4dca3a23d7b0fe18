/* emu_run.cpp - runs a grid: blocks one by one, in each the warps in the schedule's order, every warp as far as it can go before the
 * next one starts. A warp that may run ahead does: that is what shows a missing barrier (round robin would hide it). */
#include "emu_internal.hpp"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace emu {
thread *self;
block_place here;
block_state B;

static fibre &first_of(unsigned warp, uint32_t ready) {
    return B.f[warp * WARP + B.lane_order[warp][__builtin_ctz(ready)]];
}
/* A lane that stops hands over to the next of its warp that may run, in the schedule's order; the scheduler is asked only when the
 * warp can go no further, or when a barrier fell. */
void yield() {
    fibre *f = me();
    proxy_note();
    const uint32_t ready = B.w[f->warp].ready, later = f->turn < WARP - 1 ? ready >> (f->turn + 1) << (f->turn + 1) : 0;
    if (!ready || B.restart) {
        context_switch(f->ctx, B.main, f->st == state::done);
        return;
    }
    fibre *next = &first_of(f->warp, later ? later : ready);
    if (next == f) return;
    self = next;
    B.from_main = false;
    context_switch(f->ctx, next->ctx, f->st == state::done);
}
void sleep(state why, place at) {
    fibre &f = *me();
    f.st = why;
    f.at = at;
    if (why != state::ready) B.w[f.warp].ready &= ~(1u << f.turn);
    yield();
    f.st = state::ready;
}
void sleep_on(const uint32_t *word, uint32_t value, place at) {
    me()->word = word;
    me()->value = value;
    sleep(state::at_word, at);
}
static bool words_step() {
    bool any = false;
    for (unsigned i = 0; i < B.n; i++)
        if (B.f[i].st == state::at_word && __atomic_load_n(B.f[i].word, __ATOMIC_RELAXED) == B.f[i].value) wake(B.f[i]), any = true;
    return any;
}
static void resume(fibre &f) {
    self = &f;
    B.from_main = true;
    context_switch(B.main, f.ctx, false);
    self = nullptr;
}
unsigned random_below(unsigned bound) {
    B.random = B.random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(B.random >> 33) % bound;
}

/* In a fibre a failure is noted and control goes to the scheduler for good (its stack is abandoned); launch throws. */
void fail(const char *fmt, ...) {
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text - 100, fmt, ap);
    va_end(ap);
    size_t n = strlen(text);
    if (B.n) n += (size_t)snprintf(text + n, sizeof text - n, " [block %u,%u,%u", here.block_id.x, here.block_id.y, here.block_id.z);
    if (self) n += (size_t)snprintf(text + n, sizeof text - n, " thread %u,%u,%u", self->tid.x, self->tid.y, self->tid.z);
    if (B.n) snprintf(text + n, sizeof text - n, "]");
    if (!self) throw error(text);
    copy(B.why, text, sizeof text);
    B.failed = true;
    release(&B.sync_end);
    me()->st = state::ready;
    for (;;) context_switch(me()->ctx, B.main, false);
}

static void entry() {
    context other; /* entered by a lane before this one */
    context_entered(B.from_main ? B.main : other);
    acquire(&B.sync_start);
    (*B.body)();
    release(&B.sync_end);
    exit_checks(*me());
    fibre *f = me();
    f->st = state::done;
    B.w[f->warp].ready &= ~(1u << f->turn);
    B.live--;
    for (;;) yield();
}

/* ---- what a deadlock looks like: waiting places with the number of threads at each ---- */
static const char *waits_for(const fibre &f) {
    switch (f.st) {
    case state::at_bar: return f.bar ? "a named barrier" : "__syncthreads";
    case state::at_warp: return "the other lanes";
    case state::at_mbar: return "an mbarrier";
    case state::at_word: return "a word that no other thread of the block writes, nor an earlier block";
    default: return "?";
    }
}
static void deadlock() {
    std::string text = B.live < B.n ? "deadlock, " + std::to_string(B.n - B.live) + " threads have returned:" : std::string("deadlock:");
    bool told[MAX_THREADS] = {};
    for (unsigned i = 0; i < B.n && text.size() < 350; i++) {
        const fibre &f = B.f[i];
        if (f.st == state::done || told[i]) continue;
        unsigned same = 0;
        for (unsigned j = i; j < B.n; j++) {
            const fibre &o = B.f[j];
            if (o.st != f.st || o.at.line != f.at.line || (f.st == state::at_bar && o.bar != f.bar)) continue;
            told[j] = true;
            same++;
        }
        char line[160];
        snprintf(line, sizeof line, " thread %u (and %u more) waits for %s at %s:%d;", f.index, same - 1, waits_for(f), f.at.name(),
                 f.at.line);
        text += line;
    }
    fail("%s", text.c_str());
}

/* ---- one block ---- */
static void block_reset() {
    if (B.fix_bytes) memset(B.fix, B.opt.poison, B.fix_bytes);
    if (B.smem_bytes) memset(B.smem, B.opt.poison, B.smem_bytes);
    for (unsigned i = 0; i < B.warps; i++) B.w[i].ready = B.w[i].open = B.w[i].occupied = 0;
    memset(B.bars, 0, sizeof B.bars);
    bulk_reset();
    products_reset();
    if (B.opt.check_proxy) proxy_reset();
    B.live = B.n;
    B.failed = false;
    release(&B.sync_start);
    for (unsigned i = 0; i < B.n; i++) {
        fibre &f = B.f[i];
        f.st = state::ready;
        wake(f);
        f.tests = 0;
        f.cp.open = f.cp.done = f.cp.commits = f.bulk.open = f.bulk.done = f.bulk.commits = 0;
    }
}
static char *stack_of(unsigned i);
static void block_run() {
    block_reset();
    for (unsigned i = 0; i < B.n; i++) context_make(B.f[i].ctx, stack_of(i), STACK, entry);
    while (B.live) {
        bool any = false;
        B.restart = false;
        for (unsigned w = 0; w < B.warps && !B.restart; w++) {
            const unsigned at = B.warp_order[w];
            warp_state &warp = B.w[at];
            while (warp.ready && !B.restart) {
                any = true;
                resume(first_of(at, warp.ready));
                if (B.failed) {
                    acquire(&B.sync_end);
                    throw error(B.why);
                }
            }
        }
        if (!any && !load_step() && !words_step()) deadlock();
    }
    acquire(&B.sync_end);
    exit_checks_block();
    smem_check();
}

/* ---- memory of the emulator: kept from launch to launch, grown when a bigger block comes ---- */
static struct {
    char *stacks;
    size_t threads;
} arena;
static const size_t PAGE = 4096;

static void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return p;
}
static char *stack_of(unsigned i) {
    return arena.stacks + i * (STACK + PAGE) + PAGE;
}
static void arena_grow(unsigned n) {
    if (arena.threads >= n) return;
    if (!B.f) { /* virtual only: pages come when they are touched */
        B.f = static_cast<fibre *>(reserve(MAX_THREADS * sizeof(fibre)));
        for (unsigned i = 0; i < MAX_THREADS; i++) {
            new (&B.f[i]) fibre {};
            B.f[i].cp_item = static_cast<copy_item *>(reserve(MAX_COPIES * sizeof(copy_item)));
            B.f[i].store = static_cast<transfer *>(reserve(MAX_STORES * sizeof(transfer)));
        }
        B.w = static_cast<warp_state *>(reserve(MAX_THREADS / WARP * sizeof(warp_state)));
        auto *in = static_cast<lane_in *>(reserve(MAX_THREADS * GROUPS * sizeof(lane_in)));
        auto *out = static_cast<lane_out *>(reserve(MAX_THREADS * GROUPS * sizeof(lane_out)));
        for (unsigned i = 0; i < MAX_THREADS / WARP * GROUPS; i++) {
            group &g = B.w[i / GROUPS].pool[i % GROUPS];
            g.in = in + i * WARP;
            g.out = out + i * WARP;
        }
        for (unsigned i = 0; i < MAX_THREADS / WARP; i++) B.w[i].item = static_cast<product *>(reserve(MAX_PRODUCTS * sizeof(product)));
        B.loads = static_cast<transfer *>(reserve(MAX_LOADS * sizeof(transfer)));
    }
    if (arena.stacks) munmap(arena.stacks, arena.threads * (STACK + PAGE));
    arena.stacks = static_cast<char *>(reserve(n * (STACK + PAGE)));
    for (unsigned i = 0; i < n; i++)
        if (mprotect(stack_of(i) - PAGE, PAGE, PROT_NONE)) throw std::bad_alloc();
    arena.threads = n;
}
static void order_threads() {
    const order how = B.opt.threads;
    for (unsigned w = 0; w < B.warps; w++) B.warp_order[w] = how == order::descending ? B.warps - 1 - w : w;
    if (how == order::shuffled)
        for (unsigned w = B.warps - 1; w; w--) std::swap(B.warp_order[w], B.warp_order[random_below(w + 1)]);
    for (unsigned w = 0; w < B.warps; w++) {
        unsigned *lane = B.lane_order[w];
        for (unsigned l = 0; l < WARP; l++) lane[l] = how == order::descending ? WARP - 1 - l : l;
        if (how == order::shuffled)
            for (unsigned l = WARP - 1; l; l--) std::swap(lane[l], lane[random_below(l + 1)]);
        for (unsigned l = 0; l < WARP; l++) B.f[w * WARP + lane[l]].turn = l;
    }
}
static void fibres_make(dim3 block) {
    for (unsigned i = 0; i < B.n; i++) {
        fibre &f = B.f[i];
        f.tid = { i % block.x, i / block.x % block.y, i / (block.x * block.y) };
        f.index = i;
        f.lane = i % WARP;
        f.warp = i / WARP;
#ifdef EMU_TSAN
        if (!f.ctx.tsan) f.ctx.tsan = __tsan_create_fiber(0); /* kept: one costs about 0.4 ms; launches are ordered by the main fibre */
#endif
    }
#ifdef EMU_TSAN
    B.main.tsan = __tsan_get_current_fiber();
#endif
}
static void launch_end() {
    guard_remove();
#ifdef EMU_TSAN
    if (B.failed) /* call stacks that were never unwound */
        for (unsigned i = 0; i < B.n; i++) {
            __tsan_destroy_fiber(B.f[i].ctx.tsan);
            B.f[i].ctx.tsan = nullptr;
        }
#endif
#ifdef EMU_ASAN
    if (B.failed) /* red zones of frames that never returned */
        for (unsigned i = 0; i < B.n; i++) __asan_unpoison_memory_region(stack_of(i), STACK);
#endif
    B.failed = false;
    B.n = 0;
}

void launch(dim3 grid, dim3 block, size_t smem, const options &opt, const std::function<void()> &body) {
    const size_t n = (size_t)block.x * block.y * block.z, blocks = (size_t)grid.x * grid.y * grid.z;
    if (B.n) throw error("emu: a launch inside a launch");
    if (!n || n > MAX_THREADS) throw error("emu: a block has 1 to 1536 threads");
    if (!blocks || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffff)
        throw error("emu: the grid is empty or past the device's limits (x 2^31-1, y and z 65535)");
    if (smem > 232448u * (n > 256 ? n / 256 : 1))
        throw error("emu: more than 227 KiB of dynamic shared memory"); /* a block, or each of a cluster */
    arena_grow((unsigned)n);
    B.opt = opt;
    B.body = &body;
    B.random = opt.seed;
    B.n = (unsigned)n;
    B.warps = (B.n + WARP - 1) / WARP;
    smem_place(smem, opt.smem_align);
    static_shared_find();
    order_threads();
    fibres_make(block);
    here = { { 0, 0, 0 }, block, grid };
    guard_install();
    try {
        for (size_t k = 0; k < blocks; k++) {
            size_t i = opt.reverse_blocks ? blocks - 1 - k : k;
            here.block_id = { (unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y) };
            block_run();
        }
    } catch (...) {
        launch_end();
        throw;
    }
    launch_end();
}
} // namespace emu
