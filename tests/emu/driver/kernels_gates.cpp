/* kernels_gates.cpp - ssm_preprocess.cu for the emulated device. */
#include "emu_driver.hpp"

#include "ssm_preprocess.cu"

static const emu_driver::kernel gates[] = {
    EMU_KERNEL("ssm_preprocess.cu", dense_gemm_ba_gates_prefill),
    EMU_KERNEL("ssm_preprocess.cu", dense_gemv_ba_gates),
    EMU_KERNEL("ssm_preprocess.cu", gdn_gates),
};
EMU_MODULE(gates);
