/* nvfp4.c - see nvfp4.h. */
#include "nvfp4.h"
#include "numbers.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 16 };

/* x >= 0. A subnormal that rounds up to 8/512 becomes code 8, the first normal one. */
static uint8_t ue4m3(float x) {
    if (x > 448.0f) return 0x7e;
    if (x < 0x1p-6f) return (uint8_t)lrintf(x * 512.0f);
    const uint32_t u = gdn__f32_bits(x);
    return (uint8_t)(((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - (120u << 3));
}

static float ue4m3_value(uint8_t s) {
    const int x = s >> 3, m = s & 7;
    return x ? ldexpf((float)(8 + m), x - 10) : (float)m * 0x1p-9f;
}

/* Decision points between 0, 0.5, 1, 1.5, 2, 3, 4, 6; the sign only on what is not 0. */
static uint8_t e2m1(float x) {
    const float a = fabsf(x);
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (uint8_t)(code ? code | (x < 0 ? 8 : 0) : 0);
}

static float largest(const float *w, uint64_t n) {
    float max = 0;
    for (uint64_t i = 0; i < n; i++) {
        const float a = fabsf(w[i]);
        if (!(a < INFINITY)) return NAN;
        if (a > max) max = a;
    }
    return max;
}

float gdn__nvfp4(const float *w, uint64_t rows, uint32_t k, uint8_t *codes, uint8_t *scales) {
    const uint64_t n = rows * k;
    const float amax = largest(w, n), scale2 = amax > 0 ? amax / 2688.0f : isnan(amax) ? NAN : 1.0f;
    memset(codes, 0, (size_t)(n / 2));
    memset(scales, 0, (size_t)(n / BLOCK));
    for (uint64_t b = 0; !isnan(amax) && b < n / BLOCK; b++) {
        const float *const x = w + b * BLOCK;
        scales[b] = scale2 > 0 ? ue4m3(largest(x, BLOCK) / 6.0f / scale2) : 0;
        const float step = ue4m3_value(scales[b]) * scale2;
        for (uint32_t i = 0; i < BLOCK && step > 0; i++) {
            uint8_t *const to = codes + b * (BLOCK / 2) + i / 2;
            *to = (uint8_t)(*to | e2m1(x[i] / step) << (i % 2 * 4));
        }
    }
    return scale2;
}
