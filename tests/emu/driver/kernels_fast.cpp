/* kernels_fast.cpp - gated_delta_rule_fast.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_fast.cu"

static const emu_driver::kernel fast[] = {
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_prepare),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd_ext),
};
EMU_MODULE(fast);
