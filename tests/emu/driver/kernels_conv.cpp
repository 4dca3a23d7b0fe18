/* kernels_conv.cpp - causal_conv1d.cu for the emulated device. */
#include "emu_driver.hpp"

#include "causal_conv1d.cu"

static const emu_driver::kernel conv[] = {
    EMU_KERNEL("causal_conv1d.cu", causal_conv1d),
    EMU_KERNEL("causal_conv1d.cu", conv_silu_split_l2norm),
};
EMU_MODULE(conv);
