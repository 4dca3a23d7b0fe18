/* gdn_device.cuh - everything a portable kernel file includes. gdn_hopper.cuh (wgmma, bulk copies, mbarriers) comes on top.
 * One wrapper an instruction; wrappers take references and generic pointers, never shared-memory addresses or descriptors,
 * so that each has a form that runs on the CPU in tests/emu. */
#pragma once
#include "gdn_async.cuh"
#include "gdn_math.cuh"
#include "gdn_memory.cuh"
#include "gdn_mma.cuh"
#include "gdn_types.cuh"
#include "gdn_warp.cuh"
