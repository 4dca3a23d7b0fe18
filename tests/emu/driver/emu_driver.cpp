/* emu_driver.cpp - finds and runs the kernels for the fake driver. */
#include "emu_driver.hpp"
#include <cstdio>
#include <mutex>
#include <vector>

namespace emu_driver {
bool is_vk, is_tiled, is_log;

static std::vector<kernel> &all() {
    static std::vector<kernel> kernels;
    return kernels;
}
listed::listed(const kernel *k, size_t n) {
    all().insert(all().end(), k, k + n);
}

/* An image is "<arch> <source>", the source begins with its file's name in a comment. */
static const kernel *find(const char *image, const char *entry) {
    const char *name = std::strchr(image, ' '), *options = std::strstr(image, "\n/* options: ");
    if (!name || !options || std::strncmp(name, " /* ", 4) != 0) return nullptr;
    const int vk = std::strstr(options, "-DGDN_STATE_VK ") != nullptr, norm = std::strstr(options, "-DGDN_QK_L2NORM ") != nullptr;
    for (const kernel &k : all()) {
        if (std::strcmp(k.name, entry) != 0 || std::strncmp(name + 4, k.module, std::strlen(k.module)) != 0) continue;
        if ((k.vk < 0 || k.vk == vk) && (k.norm < 0 || k.norm == norm)) return &k;
    }
    return nullptr;
}
} // namespace emu_driver

extern "C" {
int emu_driver_find(const char *image, const char *entry);
int emu_driver_run(const char *image, const char *entry, const unsigned grid[3], const unsigned block[3], unsigned smem, void **params);

unsigned emu_driver_sizes(const char *image, const char *entry, const unsigned **sizes);

unsigned emu_driver_sizes(const char *image, const char *entry, const unsigned **sizes) {
    const emu_driver::kernel *k = emu_driver::find(image, entry);
    *sizes = k ? k->sizes.data() : nullptr;
    return k ? static_cast<unsigned>(k->sizes.size()) : 0;
}

int emu_driver_find(const char *image, const char *entry) {
    return emu_driver::find(image, entry) != nullptr;
}

int emu_driver_run(const char *image, const char *entry, const unsigned grid[3], const unsigned block[3], unsigned smem, void **params) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const emu_driver::kernel *k = emu_driver::find(image, entry);
    const char *options = std::strstr(image, "\n/* options: ");
    if (!k || !options) return 500;
    emu_driver::is_vk = std::strstr(options, "-DGDN_STATE_VK ") != nullptr;
    emu_driver::is_tiled = std::strstr(options, "-DGDN_HEADS_TILED ") != nullptr;
    emu_driver::is_log = std::strstr(options, "-DGDN_GATE_LOG ") != nullptr;
    try {
        emu::options opt;
        opt.smem_align = smem ? 1024 : 16;
        emu::launch({ grid[0], grid[1], grid[2] }, { block[0], block[1], block[2] }, smem, opt, [&] { k->run(params); });
    } catch (const emu::error &e) {
        std::fprintf(stderr, "%s: %s\n", entry, e.what());
        return 700;
    }
    return 0;
}
}
