/* emu_proxy.cpp - ordinary writes to shared memory that bulk copies or wgmma then read need fence.proxy.async in the thread that
 * wrote. On a device a forgotten one is rarely seen. Here (options::check_proxy) every switch of threads is followed by a look at
 * what changed, so each unfenced byte has a known writer. Writing the value that was there already goes unseen. Static shared
 * memory is covered where it is poisoned (emu_memory.cpp). */
#include "emu_internal.hpp"
#include <cstring>
#include <vector>

namespace emu {
enum { LINE = 64, BLOCK = 512 };
struct shadow {
    unsigned char *base;
    size_t bytes;
    std::vector<unsigned char> seen;
    std::vector<uint16_t> writer;        /* thread + 1; 0: fenced */
    std::vector<unsigned char> unfenced; /* a line: may hold a writer */
};
static shadow areas[2];

/* Not memcmp: the thread sanitizer would take it for an access of the kernel. */
static bool same(const unsigned char *a, const unsigned char *b, size_t n) {
    typedef uint64_t pair __attribute__((vector_size(16)));
    pair d = {}, x, y;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __builtin_memcpy(&x, a + i, 16);
        __builtin_memcpy(&y, b + i, 16);
        d |= x ^ y;
    }
    uint64_t rest = d[0] | d[1];
    for (; i < n; i++) rest |= (uint64_t)(a[i] ^ b[i]);
    return rest == 0;
}
static void area_reset(shadow &s, unsigned char *base, size_t bytes) {
    s.base = base;
    s.bytes = bytes;
    s.seen.resize(bytes);
    copy(s.seen.data(), base, bytes);
    s.writer.assign(bytes, 0);
    s.unfenced.assign((bytes + LINE - 1) / LINE, 0);
}
void proxy_reset() {
    area_reset(areas[0], B.smem, B.smem_bytes);
    area_reset(areas[1], B.fix, B.fix_bytes);
}
static void note_line(shadow &s, size_t from, size_t end) {
    if (same(s.base + from, &s.seen[from], end - from)) return;
    s.unfenced[from / LINE] = 1;
    for (size_t j = from; j < end; j++)
        if (s.base[j] != s.seen[j]) {
            s.seen[j] = s.base[j];
            s.writer[j] = (uint16_t)(self->index + 1);
        }
}
void proxy_note() {
    if (!B.opt.check_proxy) return;
    for (shadow &s : areas)
        for (size_t i = 0; i < s.bytes; i += BLOCK) {
            const size_t end = s.bytes - i < BLOCK ? s.bytes : i + BLOCK;
            if (end - i == BLOCK && same(s.base + i, &s.seen[i], BLOCK)) continue;
            for (size_t j = i; j < end; j += LINE) note_line(s, j, end - j < LINE ? end : j + LINE);
        }
}
void proxy_fence() {
    if (!B.opt.check_proxy) return;
    proxy_note();
    for (shadow &s : areas)
        for (size_t l = 0; l < s.unfenced.size(); l++) {
            if (!s.unfenced[l]) continue;
            uint16_t left = 0;
            for (size_t j = l * LINE; j < s.bytes && j < (l + 1) * LINE; j++) {
                if (s.writer[j] == self->index + 1) s.writer[j] = 0;
                left |= s.writer[j];
            }
            s.unfenced[l] = left != 0;
        }
}
static void each_byte(const void *p, size_t bytes, void (*visit)(shadow &, size_t, const char *), const char *what) {
    const auto *c = static_cast<const unsigned char *>(p);
    for (shadow &s : areas)
        if (s.bytes && c >= s.base && c < s.base + s.bytes)
            for (size_t i = 0; i < bytes && (size_t)(c - s.base) + i < s.bytes; i++) visit(s, (size_t)(c - s.base) + i, what);
}
void proxy_read(const void *p, size_t bytes, const char *what) {
    if (!B.opt.check_proxy) return;
    each_byte(
        p, bytes,
        [](shadow &s, size_t i, const char *name) {
            if (s.writer[i])
                fail("%s reads byte %zu of shared memory, written by thread %u without fence.proxy.async", name, i, s.writer[i] - 1u);
        },
        what);
}
void proxy_wrote(const void *p, size_t bytes) {
    if (!B.opt.check_proxy) return;
    each_byte(
        p, bytes,
        [](shadow &s, size_t i, const char *) {
            s.seen[i] = s.base[i];
            s.writer[i] = 0;
        },
        nullptr);
}
} // namespace emu
