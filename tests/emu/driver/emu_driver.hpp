/* emu_driver.hpp - a CUDA driver whose device is the emulator: tests/fake's driver, with the kernels of the plugins' modules behind it.
 *
 * Device memory is host memory, a launch runs at once. So every program that opens a GPU target (the tests of cases/, the engine,
 * `gdn check`) runs here without a GPU: planning, packing of arguments and kernels are the ones that ship. A module is one file
 * kernels_*.cpp, which includes the .cu; its variants are chosen at run time (GDN_IS_* in kernels/common/gdn_rule.cuh). */
#pragma once
#include "emu.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace emu_driver {
extern bool is_vk, is_tiled, is_log; /* of the module whose kernel runs */

struct kernel {
    const char *module, *name;
    void (*run)(void **params);
    std::vector<unsigned> sizes; /* of the parameters */
    int vk = -1, norm = -1;      /* the only form that it is for; -1: any */
};
struct listed {
    listed(const kernel *k, size_t n);
};

template <class... A, size_t... I> void call(void (*f)(A...), void **p, std::index_sequence<I...>) {
    f(*static_cast<std::remove_reference_t<A> *>(p[I])...);
}
template <class... A> void call(void (*f)(A...), void **p) {
    call(f, p, std::index_sequence_for<A...> {});
}
template <class... A> std::vector<unsigned> sizes_of(void (*)(A...)) {
    return { static_cast<unsigned>(sizeof(A))... };
}
} // namespace emu_driver

/* Layout and normalisation change whole types in decode and verify: kernels_step.cpp is compiled once for each of the four. */
#ifdef EMU_FORM_VK
#define GDN_IS_VK   (EMU_FORM_VK != 0)
#define GDN_LINKAGE static
#if EMU_FORM_VK
#define GDN_STATE_VK
#endif
#if EMU_FORM_NORM
#define GDN_QK_L2NORM
#endif
#else
#define GDN_IS_VK emu_driver::is_vk
#endif
#define GDN_IS_TILED  emu_driver::is_tiled
#define GDN_IS_LOG    emu_driver::is_log
#define EMU_RUN(name) [](void **p) { emu_driver::call(name, p); }
/* One row of a module's list; _BOTH also lists the entry's `_ext` form. */
#define EMU_KERNEL(module, name) \
    { module, #name, EMU_RUN(name), emu_driver::sizes_of(name) }
#define EMU_BOTH(module, name) EMU_KERNEL(module, name), EMU_KERNEL(module, name##_ext)
#define EMU_STEP(module, name) \
    { module, #name, EMU_RUN(name), emu_driver::sizes_of(name), EMU_FORM_VK, EMU_FORM_NORM }
#define EMU_STEPS(module, name) EMU_STEP(module, name), EMU_STEP(module, name##_ext)
#define EMU_MODULE(list)        static const emu_driver::listed list##_listed(list, sizeof list / sizeof *list)
