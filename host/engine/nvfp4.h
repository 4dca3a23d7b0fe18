/* nvfp4.h - weights as NVFP4 (abi/gdn_op_w4a4.h): E2M1 codes, two a byte, low nibble = even k; a UE4M3 scale per 16 consecutive k; one
 * f32 factor a tensor. f32, IEEE division, as the quantiser of activations does with its rows:
 *
 *     scale2 = amax/2688 (1 for zeros only);  s = ue4m3((gm/6)/scale2);  code = e2m1(x/(s*scale2)), nearest even, saturating */
#ifndef GDN_ENGINE_NVFP4_H
#define GDN_ENGINE_NVFP4_H

#include <stdint.h>

/* w [rows][k], k a multiple of 16; codes [rows][k/2], scales [rows][k/16]. Returns scale2; NaN when a weight is NaN or infinite: then
 * codes and scales are 0, and every product is NaN. */
float gdn__nvfp4(const float *w, uint64_t rows, uint32_t k, uint8_t *codes, uint8_t *scales);

#endif
