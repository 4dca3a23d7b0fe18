/* kernels_check.cpp - gdn_check.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gdn_check.cu"

static const emu_driver::kernel check[] = {
    EMU_KERNEL("gdn_check.cu", gdn_check_values),
};
EMU_MODULE(check);
