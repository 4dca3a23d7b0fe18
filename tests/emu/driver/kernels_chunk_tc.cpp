/* kernels_chunk_tc.cpp - gated_delta_rule_chunk_tc.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_chunk_tc.cu"

static const emu_driver::kernel chunk_tc[] = {
    EMU_BOTH("gated_delta_rule_chunk_tc.cu", gated_delta_rule_chunk_delta_h_tcfuse),
    EMU_BOTH("gated_delta_rule_chunk_tc.cu", gated_delta_rule_chunk_delta_h_tcfuse_x2),
};
EMU_MODULE(chunk_tc);
