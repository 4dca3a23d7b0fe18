/* kernels_prepare.cpp - gdn_rule_prepare.cu for the emulated device. */
#include "emu_driver.hpp"

#include "gdn_rule_prepare.cu"

static const emu_driver::kernel prepare[] = {
    EMU_KERNEL("gdn_rule_prepare.cu", gdn_rule_tables),
    EMU_KERNEL("gdn_rule_prepare.cu", gdn_rule_l2norm),
};
EMU_MODULE(prepare);
