/* emu.hpp - runs a CUDA kernel on the CPU: blocks one after another, every thread of a block a fibre. For index arithmetic, guards,
 * byte contracts, barriers and races; not for speed.
 *
 *     emu::launch({grid}, {block}, smem_bytes, options, [&] { kernel(a.p, b.p, n); });
 *
 * launch throws emu::error, which names block and thread, when it sees
 *   - __syncthreads at different lines, or by some threads while others have returned; named barriers of different counts;
 *   - a deadlock: nothing can run; every waiting place is listed;
 *   - a warp collective whose lanes disagree on kind, line or mask, or that reads a lane outside the mask;
 *   - an asynchronous copy still in flight at exit, a misaligned one, an mbarrier that was overwritten or never initialised;
 *   - an access outside a device buffer or past dynamic shared memory (guard pages; the buffer is named).
 * Races show as different bytes between schedules (order of threads, copies at issue or at the wait, poison), or exactly in the
 * thread-sanitizer build. One block runs at a time in a process. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace emu {
struct error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class order { ascending, descending, shuffled };
struct options {
    order threads = order::ascending; /* of warps, and of lanes inside a warp */
    unsigned seed = 1;                /* of `shuffled` */
    bool reverse_blocks = false;
    bool at_issue = false;       /* asynchronous work happens at its issue; else as late as the program allows */
    bool check_proxy = false;    /* generic writes must be fenced before the async proxy reads them (slow) */
    unsigned char poison = 0xCB; /* shared memory before every block */
    size_t smem_align = 16;      /* of dynamic shared memory; above 16 its end may lie below the guard page */
};

void launch(dim3 grid, dim3 block, size_t smem, const options &opt, const std::function<void()> &body);

/* What a kernel reads of itself. */
struct thread {
    uint3 tid;
    unsigned lane, warp, index;
};
struct block_place {
    uint3 block_id;
    dim3 block_dim, grid_dim;
};
extern thread *self;
extern block_place here;
void *dyn_smem(size_t align);

/* The place of a call, as a default argument. */
struct place {
    const char *file;
    int line;
    const char *name() const {
        const char *slash = __builtin_strrchr(file, '/');
        return slash ? slash + 1 : file;
    }
};
#define EMU_AT emu::place at = { __builtin_FILE(), __builtin_LINE() }

[[noreturn]] void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- barriers and warp collectives ---- */
enum class fold { none, any, all, count };
unsigned sync_block(place at, fold how = fold::none, bool value = false);
void bar(unsigned id, unsigned threads, bool wait, place at);
void sync_warp(uint32_t mask, place at);
void sleep_on(const uint32_t *word, uint32_t value, place at); /* until nothing else can run; then, if it holds the value */
uint64_t shuffle(uint32_t mask, uint64_t value, int kind, int operand, int width, place at);
uint32_t ballot(uint32_t mask, bool value, place at);

/* One collective in flight: each lane of the mask brings up to 64 bytes, the last one runs `finish`, each takes its result. */
struct alignas(16) lane_in {
    unsigned char b[64];
};
struct alignas(16) lane_out {
    unsigned char b[32];
};
struct group {
    uint32_t mask, arrived, left, asleep; /* asleep: by place in the schedule's order */
    int kind, line;
    lane_in *in;
    lane_out *out;
};
group *warp_arrive(uint32_t mask, int kind, place at, const void *in, size_t bytes, void (*finish)(group &));
void warp_leave(group *g);
enum {
    KIND_SYNCWARP = 1,
    KIND_SHUFFLE,
    KIND_BALLOT = 8,
    KIND_MMA,
    KIND_LDMATRIX = 32,
    KIND_STMATRIX = 48,
    KIND_WGMMA = 64,
    KIND_WG_STEP = 80
};

/* Accesses that the emulator makes on behalf of the running thread: the sanitizers are told, a bad one fails by name. */
void seen_read(const void *p, size_t bytes, const char *what);
void seen_write(const void *p, size_t bytes, const char *what);
} // namespace emu
