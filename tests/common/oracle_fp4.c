/* oracle_fp4.c - E2M1 and UE4M3 by their definitions, and the quantiser's row in the f32 steps of its contract. */
#include "oracle.h"
#include <math.h>

double oracle_e2m1(uint32_t code) {
    static const double mag[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    return code & 8u ? -mag[code & 7u] : mag[code & 7u];
}

double oracle_ue4m3(uint32_t code) {
    const uint32_t e = (code >> 3) & 15u, m = code & 7u;
    if (e == 15 && m == 7) return NAN;
    return e == 0 ? ldexp(m, -9) : ldexp(8 + m, (int)e - 10);
}

/* The code in 0..last whose value is nearest; of two, the even one. The values ascend with the code. */
static uint32_t nearest(double x, double (*value)(uint32_t), uint32_t last) {
    uint32_t best = 0;
    for (uint32_t c = 1; c <= last; c++) {
        const double d = fabs(x - value(c)), b = fabs(x - value(best));
        if (d < b || (d == b && c % 2 == 0)) best = c;
    }
    return best;
}

uint32_t oracle_to_e2m1(float x) {
    const uint32_t c = nearest(fabs((double)x), oracle_e2m1, 7);
    return c && x < 0 ? c | 8u : c;
}

uint32_t oracle_to_ue4m3(float x) {
    return nearest((double)x, oracle_ue4m3, 126);
}

void oracle_quant_row(const double *x, uint32_t K, double *out, double *ag) {
    float amax = 0;
    bool finite = true;
    for (uint32_t k = 0; k < K; k++) {
        if (!isfinite(x[k])) finite = false;
        if ((float)fabs(x[k]) > amax) amax = (float)fabs(x[k]);
    }
    const float factor = amax > 0 ? amax / 2688.0f : 1.0f;
    *ag = finite ? (double)factor : NAN;
    for (uint32_t g = 0; g < K; g += 16) {
        float gm = 0;
        for (uint32_t k = g; finite && k < g + 16; k++) gm = fmaxf(gm, (float)fabs(x[k]));
        const float s = (float)oracle_ue4m3(oracle_to_ue4m3(gm / 6.0f / factor));
        const float step = s * factor;
        for (uint32_t k = g; k < g + 16; k++) {
            const uint32_t code = finite && s > 0 ? oracle_to_e2m1((float)x[k] / step) : 0;
            out[k] = oracle_e2m1(code) * (double)s;
        }
    }
}
