/* emu_internal.hpp - state of the running block. The emulator's own files are compiled without sanitizers: their bookkeeping is not
 * the kernel's memory. What sanitizers must know (fibres, happens-before edges, accesses on behalf of a thread) is told them here. */
#pragma once
#include "emu.hpp"
#include "emu_async.hpp"

#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_acquire(void *);
extern "C" void __tsan_release(void *);
extern "C" void __tsan_read_range(void *, size_t);
extern "C" void __tsan_write_range(void *, size_t);
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {
#ifdef EMU_TSAN
inline void acquire(void *p) {
    __tsan_acquire(p);
}
inline void release(void *p) {
    __tsan_release(p);
}
#else
inline void acquire(void *) {}
inline void release(void *) {}
#endif

enum {
    WARP = 32,
    GROUPS = 8,
    BARS = 16,
    MAX_THREADS = 1536, /* a cluster runs as one block */
    MAX_COPIES = 512,
    MAX_COMMITS = 64,
    MAX_MBARS = 64,
    MAX_LOADS = 1024,
    MAX_STORES = 64,
    MAX_PRODUCTS = 256
};
/* Address-sanitizer frames are larger. */
#ifdef EMU_ASAN
constexpr size_t STACK = 256 << 10;
#else
constexpr size_t STACK = 128 << 10;
#endif

/* ---- fibres (emu_fibre.cpp) ---- */
struct context {
    void *sp = nullptr; /* or a ucontext_t */
#ifdef EMU_TSAN
    void *tsan = nullptr;
#endif
#ifdef EMU_ASAN
    void *fake = nullptr;
    const void *stack = nullptr;
    size_t size = 0;
#endif
};
void context_make(context &c, char *stack, size_t bytes, void (*entry)());
void context_switch(context &from, context &to, bool from_ends);
void context_entered(context &from); /* first thing on a new stack; `from` is where control came from */

/* ---- queues of asynchronous work: items in order of issue, groups closed by a commit ---- */
struct queue {
    unsigned open, done, commits, end[MAX_COMMITS];
};
void queue_commit(queue &q, const char *what);
bool queue_next(queue &q, unsigned keep, unsigned *item); /* the next item that waiting for all but `keep` groups must perform */

struct copy_item {
    void *dst;
    const void *src;
    uint32_t size, take;
};
struct transfer { /* a bulk copy, plain or a box of a tensor */
    bool to_shared, boxed;
    char *shared, *global;
    uint32_t bytes;
    tensor map;
    int coordinate[3];
    unsigned mbar; /* a load completes `bytes` on it */
    unsigned engine;
};
struct product { /* one wgmma of one warp; head: what all lanes agree on (emu_wgmma.cpp) */
    alignas(16) unsigned char head[64];
    uint32_t a[4][WARP];
    float *d[WARP];
    bool done;
    unsigned engine;
};

/* A loop of its own (the build keeps it one): a call of memcpy would be seen by the sanitizers. */
inline void copy(void *d, const void *s, size_t bytes) {
    typedef uint64_t __attribute__((may_alias, aligned(1))) word;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8)
        *reinterpret_cast<word *>(static_cast<char *>(d) + i) = *reinterpret_cast<const word *>(static_cast<const char *>(s) + i);
    for (; i < bytes; i++) static_cast<volatile char *>(d)[i] = static_cast<const char *>(s)[i];
}

enum class state : unsigned char { ready, at_bar, at_warp, at_mbar, at_word, done };
struct fibre : thread {
    context ctx;
    state st;      /* why it sleeps; whether it may run is in its warp's `ready` */
    unsigned turn; /* its place in the order of its warp */
    place at;
    unsigned bar, mbar, parity;
    const uint32_t *word; /* at_word: until it holds `value` */
    uint32_t value;
    queue cp, bulk; /* cp.async; bulk stores */
    copy_item *cp_item;
    transfer *store;
    unsigned tests; /* polls without success in a row */
    char issued, finished;
};
struct barrier {
    unsigned expected, arrived, phase, accumulated[2];
    place at;
    uint32_t who[MAX_THREADS / 32];
    char sync[2]; /* happens-before, by parity of the phase: a late sleeper must not learn of the next phase's arrivals */
};
struct mbarrier {
    void *where;
    uint32_t expected, pending, phase;
    int64_t tx;
    char sync[2];
};
struct warp_state {
    uint32_t ready;          /* lanes that may run, by turn */
    uint32_t open, occupied; /* groups that still miss lanes; groups that not all have left */
    group pool[GROUPS];
    queue products; /* wgmma */
    product *item;
    uint64_t history; /* of wgmma steps; the four warps of a warpgroup must agree */
    bool fenced;
    char issued, finished; /* edges to and from the engines */
};
struct block_state {
    fibre *f;
    unsigned n, warps, live, warp_order[MAX_THREADS / WARP], lane_order[MAX_THREADS / WARP][WARP];
    warp_state *w;
    barrier bars[BARS];
    mbarrier mb[MAX_MBARS];
    unsigned mbars;
    transfer *loads;
    unsigned load_n;
    unsigned char *smem;
    size_t smem_bytes;
    unsigned char *fix; /* static shared memory of all kernels of the program */
    size_t fix_bytes;
    context main;
    const std::function<void()> *body;
    options opt;
    bool failed, restart, from_main;
    char why[600];
    char sync_start, sync_end;
    uint64_t random;
};
extern block_state B;
inline fibre *me() {
    return static_cast<fibre *>(self);
}
inline bool running() {
    return self != nullptr;
}
void yield();                    /* on to the next lane that may run, or to the scheduler */
void sleep(state why, place at); /* until someone wakes it */
inline void wake(fibre &f) {
    B.w[f.warp].ready |= 1u << f.turn;
}
unsigned random_below(unsigned bound); /* of the schedule's seed */

/* Who does asynchronous work, for the thread sanitizer (emu_engine.cpp): `known` is an edge that the issuers released, `done` one that
 * the waiters acquire. */
unsigned engine_start(void *known);
void engine_enter(unsigned engine);
void engine_leave(void *done);

bool load_step();           /* performs one bulk load that is still under way; false: there is none */
void exit_checks(fibre &f); /* nothing of a thread may be in flight when it returns */
void exit_checks_block();
void bulk_reset();
void products_reset();
void products_exit(fibre &f);
void products_exit_block();

/* ---- shared memory that the async proxy may not read yet (emu_proxy.cpp); nothing without options::check_proxy ---- */
void proxy_reset();
void proxy_note();                                              /* what changed since the last switch was written by `self` */
void proxy_read(const void *p, size_t bytes, const char *what); /* fails on bytes whose writer has not fenced; noted before */
void proxy_wrote(const void *p, size_t bytes);

/* ---- memory (emu_memory.cpp) ---- */
void guard_install();
void guard_remove();
void smem_place(size_t bytes, size_t align);
void smem_check();
void static_shared_find();
const char *describe_address(const void *p, char *text, size_t room);
} // namespace emu
