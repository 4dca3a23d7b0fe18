/* kernels_fla_hopper.cpp - gated_delta_rule_fla_hopper.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_fla_hopper.cu"

static const emu_driver::kernel fla_hopper[] = {
    EMU_BOTH("gated_delta_rule_fla_hopper.cu", gated_delta_rule_recompute_wu_hopper),
    EMU_BOTH("gated_delta_rule_fla_hopper.cu", gated_delta_rule_chunk_fwd_o_hopper),
};
EMU_MODULE(fla_hopper);
