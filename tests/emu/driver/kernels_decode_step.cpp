/* kernels_decode_step.cpp - gdn_decode_step.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gdn_decode_step.cu"

static const emu_driver::kernel decode_step[] = {
    EMU_KERNEL("gdn_decode_step.cu", gdn_decode_step),
    EMU_KERNEL("gdn_decode_step.cu", gdn_decode_step_wide),
};
EMU_MODULE(decode_step);
