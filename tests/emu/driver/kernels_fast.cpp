/* kernels_fast.cpp - the fast prefill's kernels for the emulated device, by T and P and by W and N. */
#include "emu_driver.hpp"

#include "gated_delta_rule_fast.cu"
#include "gated_delta_rule_fast_segments.cu"
#include "gated_delta_rule_fast_wn.cu"
#include "gated_delta_rule_fast_wn_segments.cu"

static const emu_driver::kernel fast[] = {
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_prepare),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_prepare_two),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_many),
    EMU_KERNEL("gated_delta_rule_fast.cu", gated_delta_rule_fast_fwd_ext),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_carry),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_join),
    EMU_KERNEL("gated_delta_rule_fast_segments.cu", gated_delta_rule_fast_pass),
    EMU_KERNEL("gated_delta_rule_fast_wn.cu", gated_delta_rule_fast_wn_prepare),
    EMU_KERNEL("gated_delta_rule_fast_wn.cu", gated_delta_rule_fast_wn_fwd),
    EMU_KERNEL("gated_delta_rule_fast_wn.cu", gated_delta_rule_fast_wn_fwd_ext),
    EMU_KERNEL("gated_delta_rule_fast_wn_segments.cu", gated_delta_rule_fast_wn_carry),
    EMU_KERNEL("gated_delta_rule_fast_wn_segments.cu", gated_delta_rule_fast_wn_pass),
};
EMU_MODULE(fast);
