/* emu_wgmma.hpp - warpgroup products of the emulator: noted at their issue, done there or at the wait that covers them. */
#pragma once
#include "emu.hpp"

namespace emu {
struct tile { /* the descriptor in plain words */
    const char *base;
    uint32_t leading, stride;
    bool transposed;
};
void wgmma(float *d, int regs, const uint32_t *a, const tile *a_tile, const tile &b, bool f16, bool keep, place at);
void wgmma_fence(place at);
void wgmma_commit(place at);
void wgmma_wait(unsigned keep, place at);
void set_registers(int n, place at);
} // namespace emu
