/* hopper_target.c - H100 and H200, compute capability 9.0: every gb10 module, and its own. */
#include "gpu_target.h"

const gpu_target gdn__gpu_target = {
    .name = GPU_TARGET_NAME, .cc_major = 9, .cc_minor = 0, .arch = GPU_TARGET_ARCH, .modules = GPU_HOPPER_MODULES
};
