/* gb10_target.c - GB10 (DGX Spark), compute capability 12.1: the portable modules. They also run on other devices of 8.0 and later,
 * compiled for the device that is there. */
#include "gpu_target.h"

const gpu_target gdn__gpu_target = {
    .name = GPU_TARGET_NAME, .cc_major = 12, .cc_minor = 1, .arch = GPU_TARGET_ARCH, .modules = GPU_GB10_MODULES
};
