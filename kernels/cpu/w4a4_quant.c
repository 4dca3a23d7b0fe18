/* w4a4_quant.c - one NVFP4 row a token: f32 row factor, UE4M3 scale a block of 16, E2M1 codes. All f32, IEEE division:
 *
 *     Ag = amax/2688 (1 for an all-zero row);  s = ue4m3((gm/6)/Ag);  code = e2m1(x/(s*Ag))
 *
 * Contract: abi/gdn_op_w4a4.h; storage order: w4a4.h. Where s or s*Ag is 0 (values below what f32 can divide) the codes are
 * 0: such a block is lost, but nothing becomes a NaN. */
#include <math.h>
#include <string.h>

#include "w4a4.h"

static float load(const void *p, uint64_t i, bool f32) {
    return f32 ? ((const float *)p)[i] : gdn_bf16_to_f32(((const uint16_t *)p)[i]);
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* x >= 0, nearest even, saturating at 448. A subnormal that rounds up to 8/512 becomes code 8, the first normal one. */
static uint8_t to_ue4m3(float x) {
    if (x > 448.0f) return 0x7e;
    if (x < 0x1p-6f) return (uint8_t)lrintf(x * 512.0f);
    const uint32_t u = bits_of(x);
    return (uint8_t)(((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - (120u << 3));
}

static float from_ue4m3(uint8_t s) {
    const int x = s >> 3, m = s & 7;
    return x ? ldexpf((float)(8 + m), x - 10) : (float)m * 0x1p-9f;
}

/* Decision points between the values 0, 0.5, 1, 1.5, 2, 3, 4, 6; a tie goes to the even code. */
static uint8_t to_e2m1(float x) {
    const float a = fabsf(x);
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (uint8_t)(code ? code | (x < 0 ? 8 : 0) : 0);
}

/* The largest magnitude of a row; *finite tells whether it means anything. */
static float row_max(const gdn_cpu_w4a4 *c, uint64_t first, bool *finite) {
    float max = 0;
    *finite = true;
    for (uint32_t k = 0; k < c->K; k++) {
        const float a = fabsf(load(c->A, first + k, c->f32));
        if (!(a < INFINITY)) *finite = false;
        if (a > max) max = a;
    }
    return max;
}

/* Codes of one block of 16, two a byte; returns the scale. */
static uint8_t quant_block(const float *x, float ag, uint8_t *codes) {
    float gm = 0;
    for (int i = 0; i < GDN__W4A4_BLOCK; i++) gm = fabsf(x[i]) > gm ? fabsf(x[i]) : gm;
    const uint8_t scale = ag > 0 ? to_ue4m3(gm / 6.0f / ag) : 0;
    const float step = from_ue4m3(scale) * ag;
    memset(codes, 0, GDN__W4A4_BLOCK / 2);
    for (int i = 0; i < GDN__W4A4_BLOCK && step > 0; i++) codes[i / 2] = (uint8_t)(codes[i / 2] | to_e2m1(x[i] / step) << (i % 2 * 4));
    return scale;
}

static void quant_row(const gdn_cpu_w4a4 *c, uint32_t row) {
    const uint64_t first = (uint64_t)row * c->a_stride, chunks = c->K / GDN__W4A4_CHUNK;
    bool finite;
    const float max = row_max(c, first, &finite), ag = max > 0 ? max / 2688.0f : 1.0f;
    for (uint64_t chunk = 0; chunk < chunks; chunk++)
        for (uint32_t b = 0; b < GDN__W4A4_BLOCKS; b++) {
            uint8_t codes[GDN__W4A4_BLOCK / 2] = { 0 }, scale = 0;
            float x[GDN__W4A4_BLOCK];
            for (uint32_t i = 0; i < GDN__W4A4_BLOCK && finite; i++)
                x[i] = load(c->A, first + chunk * GDN__W4A4_CHUNK + b * GDN__W4A4_BLOCK + i, c->f32);
            if (finite) scale = quant_block(x, ag, codes);
            for (uint32_t half = 0; half < 2; half++) memcpy(c->aq + gdn__w4a4_codes_at(chunks, row, chunk, b, half), codes + 4 * half, 4);
            c->as[gdn__w4a4_scale_at(chunks, row, chunk, b)] = scale;
        }
    c->ag[row] = finite ? ag : NAN;
}

void gdn_cpu_w4a4_quant(const gdn_cpu_w4a4 *c) {
#pragma omp parallel for schedule(static) if ((uint64_t)c->M * c->K > 8192)
    for (uint32_t row = 0; row < c->M; row++) quant_row(c, row);
}
