/* kernels_norm.cpp - gated_rmsnorm.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_rmsnorm.cu"

static const emu_driver::kernel norm[] = {
    EMU_KERNEL("gated_rmsnorm.cu", gated_rmsnorm),
};
EMU_MODULE(norm);
