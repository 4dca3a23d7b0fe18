/* emu_mma.cpp - mma.sync m16n8k16, ldmatrix, stmatrix. Products of 16-bit operands are exact in f64; sixteen of them and the
 * accumulator are added in f64 and rounded once. The hardware aligns and truncates: compare results with a tolerance. */
#include "emu_mma.hpp"
#include "emu_internal.hpp"
#include "emu_number.hpp"

namespace emu {
struct mma_in {
    uint32_t a[4], b[2];
    float d[4];
};

static void mma_finish(group &g, bool f16) {
    float a[16][16], b[16][8];
    double d[16][8];
    for (int l = 0; l < WARP; l++) {
        mma_in in;
        copy(&in, &g.in[l], sizeof in);
        const int r = l >> 2, t = 2 * (l & 3);
        for (int q = 0; q < 4; q++) {
            float *at = &a[r + (q & 1) * 8][t + (q >> 1) * 8];
            at[0] = low_half(in.a[q], f16);
            at[1] = high_half(in.a[q], f16);
            d[r + (q >> 1) * 8][t + (q & 1)] = (double)in.d[q];
        }
        for (int q = 0; q < 2; q++) {
            b[t + 8 * q][r] = low_half(in.b[q], f16);
            b[t + 8 * q + 1][r] = high_half(in.b[q], f16);
        }
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) d[i][j] += (double)a[i][k] * (double)b[k][j];
    for (int l = 0; l < WARP; l++) {
        float c[4];
        for (int q = 0; q < 4; q++) c[q] = (float)d[(l >> 2) + (q >> 1) * 8][2 * (l & 3) + (q & 1)];
        copy(&g.out[l], c, sizeof c);
    }
}
static void finish_bf16(group &g) {
    mma_finish(g, false);
}
static void finish_f16(group &g) {
    mma_finish(g, true);
}
void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, bool f16, place at) {
    mma_in in = { { a[0], a[1], a[2], a[3] }, { b[0], b[1] }, { d[0], d[1], d[2], d[3] } };
    group *g = warp_arrive(0xffffffffu, KIND_MMA + f16, at, &in, sizeof in, f16 ? finish_f16 : finish_bf16);
    copy(d, &g->out[self->lane], 16);
    warp_leave(g);
}

/* ---- fragments from and to shared memory ---- */
static char *row_of(group *g, unsigned lane) {
    char *p;
    copy(&p, &g->in[lane], sizeof p);
    return p;
}
static void check_row(const void *row, unsigned matrices, const char *what, place at) {
    if (self->lane < 8 * matrices && reinterpret_cast<uintptr_t>(row) % 16)
        fail("%s:%d: %s row is not 16-byte aligned", at.name(), at.line, what);
}
void ldmatrix(uint32_t *r, unsigned matrices, bool trans, const void *row, place at) {
    check_row(row, matrices, "ldmatrix", at);
    group *g = warp_arrive(0xffffffffu, KIND_LDMATRIX + (int)(2 * matrices) + trans, at, &row, sizeof row, nullptr);
    const unsigned i = self->lane / 4, j = 2 * (self->lane % 4);
    if (self->lane < 8 * matrices) seen_read(row, 16, "ldmatrix");
    for (unsigned q = 0; q < matrices; q++) {
        uint16_t lo, hi;
        copy(&lo, row_of(g, 8 * q + (trans ? j : i)) + 2 * (trans ? i : j), 2);
        copy(&hi, row_of(g, 8 * q + (trans ? j + 1 : i)) + 2 * (trans ? i : j + 1), 2);
        r[q] = lo | (uint32_t)hi << 16;
    }
    warp_leave(g);
}
void stmatrix(void *row, const uint32_t *r, bool trans, place at) {
    check_row(row, 4, "stmatrix", at);
    group *g = warp_arrive(0xffffffffu, KIND_STMATRIX + trans, at, &row, sizeof row, nullptr);
    const unsigned i = self->lane / 4, j = 2 * (self->lane % 4);
    seen_write(row, 16, "stmatrix");
    for (unsigned q = 0; q < 4; q++) {
        const uint16_t lo = (uint16_t)r[q], hi = (uint16_t)(r[q] >> 16);
        copy(row_of(g, 8 * q + (trans ? j : i)) + 2 * (trans ? i : j), &lo, 2);
        copy(row_of(g, 8 * q + (trans ? j + 1 : i)) + 2 * (trans ? i : j + 1), &hi, 2);
    }
    warp_leave(g);
}
} // namespace emu
