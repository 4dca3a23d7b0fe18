/* emu_memory.hpp - a device buffer of the emulator: it ends at a guard page (or starts at one), so that the first access outside
 * stops the run and names buffer, block and thread. Less than 16 bytes may lie between; intact() looks at them. */
#pragma once
#include <cstddef>

namespace emu {
struct region {
    char *map, *data;
    size_t mapped, bytes;
    const char *name;
};
region region_make(const char *name, size_t bytes, bool at_start);
void region_free(region &r);
bool region_intact(const region &r);

template <class E> struct buffer {
    region r;
    size_t n;
    E *p;
    buffer(const char *name, size_t count, unsigned char poison = 0xFF, bool at_start = false)
        : r(region_make(name, count * sizeof(E), at_start)), n(count), p(reinterpret_cast<E *>(r.data)) {
        for (size_t i = 0; i < r.bytes; i++) r.data[i] = static_cast<char>(poison);
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer() { region_free(r); }
    E &operator[](size_t i) { return p[i]; }
    const E &operator[](size_t i) const { return p[i]; }
    bool intact() const { return region_intact(r); }
};
} // namespace emu
