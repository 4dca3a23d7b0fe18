/* kernels_w4a4_f16.cpp - w4a4_gemv_f16.cu for the emulated device. */
#include "emu_driver.hpp"

#include "w4a4_gemv_f16.cu"

static const emu_driver::kernel w4a4_f16[] = {
    EMU_KERNEL("w4a4_gemv_f16.cu", w4a4_gemv_f16_8),
    EMU_KERNEL("w4a4_gemv_f16.cu", w4a4_gemv_f16_16),
};
EMU_MODULE(w4a4_f16);
