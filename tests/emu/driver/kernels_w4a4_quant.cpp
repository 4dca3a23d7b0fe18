/* kernels_w4a4_quant.cpp - w4a4_quant.cu for the emulated device. */
#include "emu_driver.hpp"

#include "w4a4_quant.cu"

static const emu_driver::kernel w4a4_quant[] = {
    EMU_KERNEL("w4a4_quant.cu", w4a4_quant_rows),
    EMU_KERNEL("w4a4_quant.cu", w4a4_quant_rows_ext),
};
EMU_MODULE(w4a4_quant);
