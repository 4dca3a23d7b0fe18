/* pinned.h - lets a real GPU reach the tests' host memory: with GDN_TEST_PINNED set, pages are registered with the CUDA driver, so that
 * the tests of cases/ run on the GPU targets with the pointers they have. */
#ifndef GDN_TEST_PINNED_H
#define GDN_TEST_PINNED_H

#include <stdint.h>

void pinned_add(void *pages, uint64_t bytes); /* ends the program when the driver refuses */
void pinned_drop(void *pages);

#endif
