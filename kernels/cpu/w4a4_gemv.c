/* w4a4_gemv.c - NVFP4 x NVFP4 projection by the exact model of the block-scaled m16n8k64 MMA.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) ),  acc = the eight partials in order; partial w runs over chunks c % 8 == w
 *
 * The model of one MMA, D = A*B + C over four blocks of 16 codes: exact dots; term_b = dot_b * sA_b * sB_b has the exponent
 * e_b = eA_b + eB_b of its scales (not of its value); C and the terms are aligned to mx = max(eC, e_b) and truncated toward
 * zero at 35 fraction bits; the sum is exact; D is that sum truncated to f32. A NaN scale gives NaN.
 *
 * f64 computes this without error. |term_b| < 2^(mx+11) and |C| < 2^(mx+1), so on a grid of 2^(mx-35) the sum of five fits
 * in 50 bits; and no value is below 2^-20, so truncating to f32 is clearing 29 bits. Terms are multiples of 2^(e_b-8), with
 * e_b >= -12; hence every C is a multiple of 2^-20 too. So the alignment loses nothing, and is left out, when
 *
 *     mx <= 15,   or   min e_b >= mx - 27  and  (C == 0 or eC >= mx - 12: its 24 bits fit)
 *
 * Bounds of mx and min e_b over both operands decide; where they do not suffice, step_aligned() does all of it. */
#include <math.h>
#include <string.h>

#include "w4a4.h"

enum { TOKENS = GDN__W4A4_TOKENS, ROWS = 32, PARTIALS = 8, NO_EXPONENT = -126 };

/* Eight tokens; the vectors are the registers that every machine has. */
typedef int16_t v8 __attribute__((vector_size(16), may_alias));

/* Four scales of an MMA, as values and as exponents. lo: of the scales that are not 0; hi: of all. */
typedef struct scales {
    double value[4];
    int32_t e[4], lo, hi;
} scales;

/* One chunk of eight tokens, by MMA; codes as twice their value. */
typedef struct token_chunk {
    v8 code[2][4][GDN__W4A4_BLOCK];
    scales s[2][TOKENS];
    double scale[2][4][TOKENS]; /* s, the other way round, times 1/4 for the codes */
} token_chunk;

static const int16_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
#define ALL_(x) \
    { x, x, x, x, x, x, x, x }
static const v8 twice_all[16] = { ALL_(0), ALL_(1),  ALL_(2),  ALL_(3),  ALL_(4),  ALL_(6),  ALL_(8),  ALL_(12),
                                  ALL_(0), ALL_(-1), ALL_(-2), ALL_(-3), ALL_(-4), ALL_(-6), ALL_(-8), ALL_(-12) };

/* The sign bit is not looked at; 0x7F is NaN. */
static void set_scale(scales *s, int i, uint8_t byte) {
    const int x = (byte >> 3) & 15, m = byte & 7;
    static const double power[16] = { 0x1p-9, 0x1p-9, 0x1p-8, 0x1p-7, 0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8, 16, 32 };
    s->value[i] = (byte & 0x7f) == 0x7f ? (double)NAN : (x ? 8 + m : m) * power[x];
    s->e[i] = x ? x - 7 : m ? -6 : NO_EXPONENT;
    if (i == 0) s->lo = 8, s->hi = NO_EXPONENT;
    if (s->e[i] > s->hi) s->hi = s->e[i];
    if (s->e[i] != NO_EXPONENT && s->e[i] < s->lo) s->lo = s->e[i];
}

/* Tokens past M are zeros: their bytes are not trusted. */
static void load_tokens(const gdn_cpu_w4a4 *c, uint32_t row0, uint64_t chunk, token_chunk *t) {
    const uint64_t chunks = c->K / GDN__W4A4_CHUNK;
    memset(t, 0, sizeof *t);
    for (uint32_t n = 0; n < TOKENS && row0 + n < c->M; n++)
        for (uint32_t b = 0; b < GDN__W4A4_BLOCKS; b++) {
            const uint32_t j = b & 1, i = b >> 1;
            for (uint32_t k = 0; k < GDN__W4A4_BLOCK; k++) {
                const uint8_t byte = c->aq[gdn__w4a4_codes_at(chunks, row0 + n, chunk, b, k / 8) + k % 8 / 2];
                t->code[j][i][k][n] = twice[byte >> (k % 2 * 4) & 15];
            }
            set_scale(&t->s[j][n], (int)i, c->as[gdn__w4a4_scale_at(chunks, row0 + n, chunk, b)]);
            t->scale[j][i][n] = t->s[j][n].value[i] / 4;
        }
}

/* To f32 toward zero, staying f64; |x| is 0 or in f32's normal range. A NaN stays one. */
static double truncate_f32(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    u &= ~((UINT64_C(1) << 29) - 1);
    memcpy(&x, &u, sizeof u);
    return x;
}

/* Exponent of a non-zero C; of a NaN something large. */
static int32_t exponent(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return (int32_t)(u >> 52 & 0x7ff) - 1023;
}

/* One MMA for one token, the model in full. dot: times 4. */
static double step_aligned(double C, const int16_t dot[4], const scales *w, const scales *a) {
    int mx = C != 0 ? exponent(C) : NO_EXPONENT;
    if (isnan(C)) return C;
    for (int b = 0; b < 4; b++) mx = w->e[b] + a->e[b] > mx ? w->e[b] + a->e[b] : mx;
    double sum = trunc(ldexp(C, 35 - mx));
    for (int b = 0; b < 4; b++) sum += trunc(ldexp((double)dot[b] * (w->value[b] * a->value[b]), 35 - 2 - mx));
    return truncate_f32(ldexp(sum, mx - 35));
}

/* One MMA for one weight row and eight tokens. codes: the row's chunk, 64 bytes; j: which MMA. */
static void step(double *acc, const uint8_t *codes, const scales *w, const token_chunk *t, uint32_t j) {
    v8 dot[4];
    double sum[TOKENS];
    for (uint32_t b = 0; b < 4; b++) {
        const uint8_t *const p = codes + (2 * b + j) * (GDN__W4A4_BLOCK / 2);
        v8 d = { 0 }; /* at most 16 * 144: fits */
        for (uint32_t k = 0; k < GDN__W4A4_BLOCK; k += 2)
            d += twice_all[p[k / 2] & 15] * t->code[j][b][k] + twice_all[p[k / 2] >> 4] * t->code[j][b][k + 1];
        dot[b] = d;
    }
    for (uint32_t n = 0; n < TOKENS; n++) sum[n] = acc[n];
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t n = 0; n < TOKENS; n++) sum[n] += (double)dot[b][n] * (w->value[b] * t->scale[j][b][n]);
    for (uint32_t n = 0; n < TOKENS; n++) {
        const int32_t e = exponent(acc[n]), hi = w->hi + t->s[j][n].hi, lo = w->lo + t->s[j][n].lo, mx = e > hi ? e : hi;
        if (mx <= 15 || (lo >= mx - 27 && (acc[n] == 0 || e >= mx - 12)))
            acc[n] = truncate_f32(sum[n]);
        else
            acc[n] = step_aligned(acc[n], (const int16_t[4]) { dot[0][n], dot[1][n], dot[2][n], dot[3][n] }, w, &t->s[j][n]);
    }
}

/* There is one NaN: that of the device's arithmetic and conversions, all ones without a sign. */
static void store(const gdn_cpu_w4a4 *c, uint32_t m, uint32_t n, float acc) {
    static const uint32_t nan_f32 = 0x7fffffff;
    const float y = acc * (c->ag[m] * c->scale2);
    const uint64_t at = (uint64_t)m * c->N + n;
    if (c->f32)
        memcpy((float *)c->C + at, isnan(y) ? (const void *)&nan_f32 : &y, sizeof y);
    else
        ((uint16_t *)c->C)[at] = isnan(y) ? 0x7fff : gdn_f32_to_bf16(y);
}

/* Weight rows [n0, n0 + rows), tokens [m0, m0 + 8). */
static void tile(const gdn_cpu_w4a4 *c, uint32_t n0, uint32_t rows, uint32_t m0) {
    const uint64_t chunks = c->K / GDN__W4A4_CHUNK;
    float total[ROWS][TOKENS];
    memset(total, 0, sizeof total);
    for (uint32_t partial = 0; partial < PARTIALS; partial++) {
        double acc[ROWS][TOKENS];
        memset(acc, 0, sizeof acc);
        for (uint64_t chunk = partial; chunk < chunks; chunk += PARTIALS) {
            token_chunk t;
            load_tokens(c, m0, chunk, &t);
            for (uint32_t r = 0; r < rows; r++) {
                const uint64_t at = (uint64_t)(n0 + r) * chunks + chunk;
                for (uint32_t j = 0; j < 2; j++) {
                    scales w;
                    for (uint32_t b = 0; b < 4; b++) set_scale(&w, (int)b, c->bs[at * GDN__W4A4_BLOCKS + 2 * b + j]);
                    step(acc[r], c->bq + at * (GDN__W4A4_CHUNK / 2), &w, &t, j);
                }
            }
        }
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t n = 0; n < TOKENS; n++) total[r][n] = partial ? total[r][n] + (float)acc[r][n] : (float)acc[r][n];
    }
    for (uint32_t n = 0; n < TOKENS && m0 + n < c->M; n++)
        for (uint32_t r = 0; r < rows; r++) store(c, m0 + n, n0 + r, total[r][n]);
}

void gdn_cpu_w4a4_gemv(const gdn_cpu_w4a4 *c) {
    const uint64_t across = ((uint64_t)c->M + TOKENS - 1) / TOKENS, tiles = ((uint64_t)c->N + ROWS - 1) / ROWS * across;
#pragma omp parallel for schedule(static) if (tiles > 1)
    for (uint64_t i = 0; i < tiles; i++) {
        const uint32_t n0 = (uint32_t)(i / across * ROWS), left = c->N - n0;
        tile(c, n0, left < ROWS ? left : ROWS, (uint32_t)(i % across * TOKENS));
    }
}
