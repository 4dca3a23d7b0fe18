/* kernels_fast.cpp - gated_delta_rule_fast.cu and gated_delta_rule_fast_segments.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_fast.cu"
#include "gated_delta_rule_fast_segments.cu"

static const emu_driver::kernel fast[] = {
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_prepare),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_prepare_two),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_many),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd_ext),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_carry),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_join),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_pass),
};
EMU_MODULE(fast);
