/* kernels_w4a4_f16_wide.cpp - w4a4_gemv_f16_wide.cu for the emulated device. */
#include "emu_driver.hpp"

#include "w4a4_gemv_f16_wide.cu"

static const emu_driver::kernel w4a4_f16_wide[] = {
    EMU_KERNEL("w4a4_gemv_f16_wide.cu", w4a4_gemv_f16_16_wide),
    EMU_KERNEL("w4a4_gemv_f16_wide.cu", w4a4_gemv_f16_32),
    EMU_KERNEL("w4a4_gemv_f16_wide.cu", w4a4_gemv_f16_64),
};
EMU_MODULE(w4a4_f16_wide);
