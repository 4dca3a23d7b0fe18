/* kernels_w4a4_mx_ps.cpp - w4a4_gemv_mx_ps.cu for the emulated device. */
#include "emu_driver.hpp"

#include "w4a4_gemv_mx_ps.cu"

static const emu_driver::kernel w4a4_mx_ps[] = {
    EMU_KERNEL("w4a4_gemv_mx_ps.cu", w4a4_gemv_mx16_ps),
    EMU_KERNEL("w4a4_gemv_mx_ps.cu", w4a4_gemv_mx32_ps),
};
EMU_MODULE(w4a4_mx_ps);
