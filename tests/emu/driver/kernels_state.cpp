/* kernels_state.cpp - gdn_state.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gdn_state.cu"

static const emu_driver::kernel state[] = {
    EMU_KERNEL("gdn_state.cu", gdn_state_copy),
    EMU_KERNEL("gdn_state.cu", gdn_state_zero),
};
EMU_MODULE(state);
