/* kernels_w4a4_mx.cpp - w4a4_gemv_mx.cu for the emulated device. */
#include "emu_driver.hpp"

#include "w4a4_gemv_mx.cu"

static const emu_driver::kernel w4a4_mx[] = {
    EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx8),      EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx16),
    EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx16_nt2), EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx32),
    EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx32_nt4), EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx64),
    EMU_KERNEL("w4a4_gemv_mx.cu", w4a4_gemv_mx64_nt2),
};
EMU_MODULE(w4a4_mx);
