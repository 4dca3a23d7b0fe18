/* kernels_engine.cpp - the engine's own kernels for the emulated device. */
#include "emu_driver.hpp"

#include "engine_rows.cu"

static const emu_driver::kernel engine[] = {
    EMU_KERNEL("engine_rows.cu", gdn_engine_embed),
    EMU_KERNEL("engine_rows.cu", gdn_engine_rms_norm),
    EMU_KERNEL("engine_rows.cu", gdn_engine_add),
    EMU_KERNEL("engine_rows.cu", gdn_engine_silu_mul),
};
EMU_MODULE(engine);
