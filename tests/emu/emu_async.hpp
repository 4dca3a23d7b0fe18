/* emu_async.hpp - asynchronous work of the emulator. Hardware may do it at any time between issue and wait; a schedule takes one end
 * of that (options::at_issue). A result used too early shows at the late end, a source or target reused too early at the other. */
#pragma once
#include "emu.hpp"

namespace emu {
/* cp.async and its groups: `size` bytes at dst, the first `take` from src, the rest zero. */
void cp_async(void *dst, const void *src, uint32_t size, uint32_t take, place at);
void cp_commit();
void cp_wait(unsigned keep);

/* mbarriers: the 8 bytes in shared memory hold a mark, so that one that was never initialised or was overwritten is found. */
void mbar_init(uint64_t *bar, uint32_t count, place at);
void mbar_arrive(uint64_t *bar, uint32_t expect_bytes, bool expect, place at);
bool mbar_test(uint64_t *bar, uint32_t parity, place at);
void mbar_wait(uint64_t *bar, uint32_t parity, place at);

/* Bulk copies. A tensor map is 128 bytes; here they describe the tensor plainly. */
struct tensor {
    uint64_t mark;
    char *base;
    uint64_t size[3], stride[2]; /* elements; bytes of dimensions 1 and 2 */
    uint32_t box[3], element;    /* elements, bytes of one */
    uint32_t rank, swizzle;      /* swizzle: 0 or 128 */
};
tensor tensor_make(void *base, uint32_t element, uint32_t rank, const uint64_t *size, const uint64_t *stride, const uint32_t *box,
                   uint32_t swizzle);
void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, place at);
void bulk_store(void *global, const void *shared, uint32_t bytes, place at);
void tensor_load(void *shared, const tensor &map, const int *coordinate, unsigned rank, uint64_t *bar, place at);
void tensor_store(const tensor &map, const int *coordinate, unsigned rank, const void *shared, place at);
void bulk_commit();
void bulk_wait(unsigned keep);
void proxy_fence();
} // namespace emu
