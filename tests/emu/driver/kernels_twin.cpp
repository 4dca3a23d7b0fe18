/* kernels_twin.cpp - ssm_ba_gates_hopper.cu for the emulated device. */
#include "emu_driver.hpp"

#include "ssm_ba_gates_hopper.cu"

static const emu_driver::kernel twin[] = {
    EMU_KERNEL("ssm_ba_gates_hopper.cu", dense_gemm_ba_gates_prefill_hopper),
};
EMU_MODULE(twin);
