/* kernels_fla.cpp - gated_delta_rule_fla.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_fla.cu"

static const emu_driver::kernel fla[] = {
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_recompute_wu),
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_chunk_delta_h_vfused),
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_chunk_delta_h_vtile),
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_chunk_delta_h_pipe),
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_chunk_fwd_o),
    EMU_BOTH("gated_delta_rule_fla.cu", gated_delta_rule_chunk_fwd_o_mma8),
};
EMU_MODULE(fla);
