/* ba_rows.c - the dot products of a tile of the b/a projection, in the order that is a bit contract:
 *
 *     lane l of 64 takes the 8-element vectors l, l + 64, ... ascending, elements in order, product rounded, then added;
 *     lanes by shuffle-down 16, 8, 4, 2, 1 in each half of 32; result = lower half + upper half
 *
 * A step is 512 consecutive k: one vector a lane. Both operands are turned to [element][lane], so that the lanes are
 * vector lanes. Lanes past K add +0 to a sum that is never -0, which changes no bit. */
#include "ba_rows.h"
#include "conv_vec.h"

enum { ROWS = GDN__BA_ROWS, COLUMNS = GDN__BA_COLUMNS, LANES = GDN__BA_LANES, VECTOR = GDN__BA_VECTOR, STEP = LANES * VECTOR };

#if VL == 16
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif VL == 8
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* VL groups of four words -> four vectors of VL: out[i] holds word i of each group. */
GDN_INLINE void deal4(const vu in[4], vu out[4]) {
    const vu e0 = EVEN(in[0], in[1]), o0 = ODD(in[0], in[1]), e1 = EVEN(in[2], in[3]), o1 = ODD(in[2], in[3]);
    out[0] = EVEN(e0, e1), out[2] = ODD(e0, e1);
    out[1] = EVEN(o0, o1), out[3] = ODD(o0, o1);
}

/* VL consecutive 8-element vectors -> element e of each in out[e]. */
GDN_INLINE void deal_bf16(const uint16_t *p, vf out[VECTOR]) {
    vu in[4], pair[4];
    memcpy(in, p, sizeof in);
    deal4(in, pair);
    for (int j = 0; j < 4; j++) {
        out[2 * j] = (vf)(pair[j] << 16);
        out[2 * j + 1] = (vf)(pair[j] & 0xffff0000u);
    }
}

GDN_INLINE void deal_f32(const float *p, vf out[VECTOR]) {
    vu in[8], half[2][4], q[4];
    memcpy(in, p, sizeof in);
    for (int j = 0; j < 4; j++) half[0][j] = EVEN(in[2 * j], in[2 * j + 1]), half[1][j] = ODD(in[2 * j], in[2 * j + 1]);
    for (int s = 0; s < 2; s++) {
        deal4(half[s], q);
        for (int j = 0; j < 4; j++) out[2 * j + s] = (vf)q[j];
    }
}

/* Elements [k, k + 8*VL) of a row of K, zeros past K. */
GDN_INLINE void deal(const void *row, uint64_t k, uint64_t K, bool f32, vf out[VECTOR]) {
    if (k + (uint64_t)VECTOR * VL <= K) {
        if (f32)
            deal_f32((const float *)row + k, out);
        else
            deal_bf16((const uint16_t *)row + k, out);
        return;
    }
    float pad[VECTOR * VL] = { 0 };
    for (uint64_t i = 0; k + i < K; i++) pad[i] = f32 ? ((const float *)row)[k + i] : gdn_bf16_to_f32(((const uint16_t *)row)[k + i]);
    deal_f32(pad, out);
}

static float tree(float *v) {
    for (uint32_t off = 16; off; off /= 2)
        for (uint32_t l = 0; l < off; l++) v[l] += v[l + off], v[32 + l] += v[32 + l + off];
    return v[0] + v[32];
}

static void dots(const gdn_cpu_ba *c, uint32_t m0, uint32_t rows, uint32_t n0, uint32_t columns, float r[ROWS][COLUMNS]) {
    float acc[COLUMNS][ROWS][LANES], a[ROWS][VECTOR][LANES];
    const size_t a_size = c->f32 ? sizeof(float) : sizeof(uint16_t), b_size = c->weight_f32 ? sizeof(float) : sizeof(uint16_t);
    memset(acc, 0, sizeof acc);
    for (uint64_t k = 0; k < c->K; k += STEP) {
        for (uint32_t m = 0; m < rows; m++)
            for (uint32_t l = 0; l < LANES; l += VL) {
                vf e[VECTOR];
                deal((const char *)c->A + (uint64_t)(m0 + m) * c->K_stride * a_size, k + (uint64_t)l * VECTOR, c->K, c->f32, e);
                for (int i = 0; i < VECTOR; i++) vstore(a[m][i] + l, e[i]);
            }
        for (uint32_t n = 0; n < columns; n++)
            for (uint32_t l = 0; l < LANES; l += VL) {
                vf b[VECTOR];
                deal((const char *)c->B + (uint64_t)(n0 + n) * c->K * b_size, k + (uint64_t)l * VECTOR, c->K, c->weight_f32, b);
                for (uint32_t m = 0; m < rows; m++) {
                    vf sum = vload(acc[n][m] + l);
                    for (int i = 0; i < VECTOR; i++) sum += vload(a[m][i] + l) * b[i];
                    vstore(acc[n][m] + l, sum);
                }
            }
    }
    for (uint32_t n = 0; n < columns; n++)
        for (uint32_t m = 0; m < rows; m++) r[m][n] = tree(acc[n][m]);
}

const struct gdn__ba_table GDN_ISA_NAME(gdn__ba_table) = { dots };
