/* emu_mma.hpp - tensor-core instructions of one warp on the emulator. */
#pragma once
#include "emu.hpp"

namespace emu {
void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, bool f16, place at);
void ldmatrix(uint32_t *r, unsigned matrices, bool trans, const void *row, place at);
void stmatrix(void *row, const uint32_t *r, bool trans, place at);
} // namespace emu
