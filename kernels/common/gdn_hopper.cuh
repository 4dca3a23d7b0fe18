/* gdn_hopper.cuh - what a kernel file of the hopper target includes. Mbarriers and bulk copies also exist on sm_121 (gdn_bulk.cuh);
 * wgmma and setmaxnreg do not. */
#pragma once
#include "gdn_device.cuh"
#include "gdn_wgmma.cuh"
