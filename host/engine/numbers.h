/* numbers.h - the element types a checkpoint may hold, widened to f32 and narrowed to bf16. */
#ifndef GDN_ENGINE_NUMBERS_H
#define GDN_ENGINE_NUMBERS_H

#include <stdint.h>
#include <string.h>

static inline float gdn__bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t gdn__f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float gdn__from_bf16(uint16_t h) {
    return gdn__bits_f32((uint32_t)h << 16);
}

/* Nearest even; a NaN stays a quiet NaN. */
static inline uint16_t gdn__to_bf16(float f) {
    const uint32_t u = gdn__f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float gdn__round_bf16(float f) {
    return gdn__from_bf16(gdn__to_bf16(f));
}

static inline float gdn__from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return gdn__bits_f32(sign | 0x7f800000u | (m << 13));
    if (e) return gdn__bits_f32(sign | ((e + 112u) << 23) | (m << 13));
    const float sub = (float)m * 0x1p-24f; /* zero and subnormals: exact */
    return sign ? -sub : sub;
}

#endif
