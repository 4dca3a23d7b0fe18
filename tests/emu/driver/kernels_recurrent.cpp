/* kernels_recurrent.cpp - gated_delta_rule_recurrent.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gated_delta_rule_recurrent.cu"

static const emu_driver::kernel recurrent[] = {
    EMU_BOTH("gated_delta_rule_recurrent.cu", gated_delta_rule_recurrent_prefill),
};
EMU_MODULE(recurrent);
