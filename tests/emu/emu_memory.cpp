/* emu_memory.cpp - guarded buffers, dynamic shared memory, and what happens when a thread runs into a guard page: the signal
 * handler sends the fibre on into a function that fails by name, so that launch throws like after any other fault. */
#include "emu_memory.hpp"
#include "emu_internal.hpp"
#include <csignal>
#include <cstdio>
#include <cstring>
#include <link.h>
#include <new>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace emu {
static const size_t PAGE = 4096, REGIONS = 4096;
static const unsigned char CANARY = 0xA5;
static region *known[REGIONS];
static region shared_region;

static void remember(region *r) {
    for (region *&k : known)
        if (!k) {
            k = r;
            return;
        }
    delete r;
    throw std::bad_alloc(); /* one that is not known would hide faults in it */
}
static void forget(const char *map) {
    for (region *&k : known)
        if (k && k->map == map) {
            delete k;
            k = nullptr;
        }
}
static void tell_asan(const region &r, bool in_use) {
#ifdef EMU_ASAN
    if (in_use) {
        __asan_poison_memory_region(r.map + PAGE, (size_t)(r.data - r.map) - PAGE);
        __asan_poison_memory_region(r.data + r.bytes, (size_t)(r.map + r.mapped - PAGE - (r.data + r.bytes)));
    } else {
        __asan_unpoison_memory_region(r.map, r.mapped);
    }
#else
    (void)r, (void)in_use;
#endif
}
region region_make(const char *name, size_t bytes, bool at_start) {
    const size_t body = (bytes + 15) / 16 * 16, pages = (body + PAGE - 1) / PAGE * PAGE;
    region r = {};
    r.mapped = pages + 2 * PAGE;
    r.bytes = bytes;
    r.name = name;
    void *map = mmap(nullptr, r.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    r.map = static_cast<char *>(map);
    r.data = r.map + PAGE + (at_start ? 0 : pages - body);
    memset(r.map + PAGE, CANARY, pages);
    if (mprotect(r.map, PAGE, PROT_NONE) || mprotect(r.map + PAGE + pages, PAGE, PROT_NONE)) throw std::bad_alloc();
    tell_asan(r, true);
    remember(new region(r));
    return r;
}
void region_free(region &r) {
    if (!r.map) return;
    tell_asan(r, false);
    forget(r.map);
    munmap(r.map, r.mapped);
    r.map = nullptr;
}
bool region_intact(const region &r) {
    const auto clean = [](const char *from, const char *end) {
        while (from < end && static_cast<unsigned char>(*from) == CANARY) from++;
        return from == end;
    };
    return clean(r.map + PAGE, r.data) && clean(r.data + r.bytes, r.map + r.mapped - PAGE);
}

/* ---- dynamic shared memory ---- */
void smem_place(size_t bytes, size_t align) {
    if (align < 16 || (align & (align - 1)) || align > PAGE) throw error("emu: smem_align is a power of two from 16 to 4096");
    if (shared_region.map && shared_region.bytes == bytes && reinterpret_cast<uintptr_t>(shared_region.data) % align == 0) return;
    if (shared_region.map) region_free(shared_region);
    if (align == 16) {
        shared_region = region_make("dynamic shared memory", bytes, false);
    } else { /* the base on the boundary, so the end may lie before the guard page: smem_check looks at what is between */
        size_t room = (bytes + align - 1) / align * align;
        shared_region = region_make("dynamic shared memory", room, false);
        tell_asan(shared_region, false);
        memset(shared_region.data, CANARY, room);
        forget(shared_region.map);
        shared_region.bytes = bytes;
        tell_asan(shared_region, true);
        remember(new region(shared_region));
    }
    B.smem = reinterpret_cast<unsigned char *>(shared_region.data);
    B.smem_bytes = bytes;
}
void smem_check() {
    if (!shared_region.map || region_intact(shared_region)) return;
    const size_t bytes = shared_region.bytes;
    region_free(shared_region);
    fail("dynamic shared memory: a write past its %zu bytes", bytes);
}
void *dyn_smem(size_t align) {
    if (!B.smem_bytes) fail("the kernel uses dynamic shared memory, the launch gives none");
    if (reinterpret_cast<uintptr_t>(B.smem) % align)
        fail("dynamic shared memory must be %zu-byte aligned here: launch with options.smem_align", align);
    return B.smem;
}

/* Static shared memory is the block of thread-local variables of the program, or of the shared object, that the emulator is linked
 * into; nothing else of the emulator lives there. Under clang's sanitizers, and the address sanitizer, `__shared__` is plain static and
 * is not poisoned. */
static int static_shared_of(struct dl_phdr_info *info, size_t, void *own) {
    bool mine = false;
    const uintptr_t at = reinterpret_cast<uintptr_t>(own);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        mine = mine || (info->dlpi_phdr[i].p_type == PT_LOAD && at >= from && at - from < info->dlpi_phdr[i].p_memsz);
    }
    for (int i = 0; mine && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            B.fix = static_cast<unsigned char *>(info->dlpi_tls_data);
            B.fix_bytes = B.fix ? info->dlpi_phdr[i].p_memsz : 0;
        }
    return mine;
}
void static_shared_find() {
#if !defined(EMU_ASAN) && !(defined(EMU_TSAN) && defined(__clang__))
    dl_iterate_phdr(static_shared_of, &shared_region);
#endif
}

/* ---- accesses on behalf of a thread ---- */
void seen_read(const void *p, size_t bytes, const char *what) {
#ifdef EMU_ASAN
    if (__asan_region_is_poisoned(const_cast<void *>(p), bytes)) {
        char t[160];
        fail("%s reads outside: %s", what, describe_address(p, t, sizeof t));
    }
#elif defined(EMU_TSAN)
    __tsan_read_range(const_cast<void *>(p), bytes);
#endif
    (void)p, (void)bytes, (void)what;
}
void seen_write(const void *p, size_t bytes, const char *what) {
#ifdef EMU_ASAN
    if (__asan_region_is_poisoned(const_cast<void *>(p), bytes)) {
        char t[160];
        fail("%s writes outside: %s", what, describe_address(p, t, sizeof t));
    }
#elif defined(EMU_TSAN)
    __tsan_write_range(const_cast<void *>(p), bytes);
#endif
    (void)p, (void)bytes, (void)what;
}

/* ---- faults ---- */
const char *describe_address(const void *p, char *text, size_t room) {
    const char *c = static_cast<const char *>(p);
    for (const region *k : known) {
        if (!k || c < k->map || c >= k->map + k->mapped) continue;
        if (c >= k->data + k->bytes)
            snprintf(text, room, "%zu bytes past the end of `%s` (%zu bytes)", (size_t)(c - (k->data + k->bytes)), k->name, k->bytes);
        else if (c < k->data)
            snprintf(text, room, "%zu bytes before `%s` (%zu bytes)", (size_t)(k->data - c), k->name, k->bytes);
        else
            snprintf(text, room, "byte %zu of `%s` (%zu bytes)", (size_t)(c - k->data), k->name, k->bytes);
        return text;
    }
    snprintf(text, room, "address %p, no device buffer", p);
    return text;
}
static const void *fault_at;
static bool fault_write;
static struct sigaction before;
static char *alt_stack;

static void faulted() {
    char t[160];
    fail("out of bounds %s: %s", fault_write ? "write" : "access", describe_address(fault_at, t, sizeof t));
}
static void on_segv(int sig, siginfo_t *si, void *uc) {
    ucontext_t *u = static_cast<ucontext_t *>(uc);
    if (!self) { /* not a kernel's access: as if there were no handler */
        sigaction(sig, &before, nullptr);
        return;
    }
    fault_at = si->si_addr;
#if defined(__x86_64__)
    fault_write = (u->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    u->uc_mcontext.gregs[REG_RSP] = ((u->uc_mcontext.gregs[REG_RSP] - 256) & ~15ll) - 8; /* below the red zone, aligned as after a call */
    u->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<long long>(&faulted);
#elif defined(__aarch64__)
    u->uc_mcontext.sp = (u->uc_mcontext.sp - 256) & ~15ull;
    u->uc_mcontext.pc = reinterpret_cast<uintptr_t>(&faulted);
#else
    (void)u;
    char t[300];
    int n = snprintf(t, sizeof t, "emu: out of bounds in block %u,%u,%u thread %u,%u,%u\n", here.block_id.x, here.block_id.y,
                     here.block_id.z, self->tid.x, self->tid.y, self->tid.z);
    if (write(2, t, (size_t)n) < 0) _exit(43);
    _exit(42);
#endif
}
void guard_install() {
    if (!alt_stack) {
        void *map = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) throw std::bad_alloc();
        alt_stack = static_cast<char *>(map);
    }
    stack_t ss = {};
    ss.ss_sp = alt_stack;
    ss.ss_size = 1 << 16;
    if (sigaltstack(&ss, nullptr)) throw error("emu: sigaltstack");
    struct sigaction sa = {};
    sa.sa_sigaction = on_segv;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (sigaction(SIGSEGV, &sa, &before)) throw error("emu: sigaction");
}
void guard_remove() {
    sigaction(SIGSEGV, &before, nullptr);
}
} // namespace emu
