/* conv_rows.c - causal depthwise convolution of some rows, SiLU, and the L2 norm of heads.
 *
 *     acc = bias;  acc += w_j * x[t - (width-1) + j], oldest tap first, product rounded;  y = acc / (1 + exp(-acc))
 *     norm: y / sqrt(sum y^2 + 1e-6) per head, f32, before the output is rounded
 *
 * The last `width` rows stay as f32 in a ring, so that every row is read and widened once. The bytes are the same on
 * every instruction set. */
#include "conv_rows.h"
#include "conv_vec.h"

enum { BLOCK = GDN__CONV_BLOCK, TAPS = GDN__CONV_TAPS };

typedef struct work {
    float weight[TAPS][BLOCK], ring[TAPS][BLOCK], bias[BLOCK], y[BLOCK];
} work;

static void load_weights(const gdn__conv_rows *r, work *w) {
    for (uint32_t c = 0; c < r->nc; c++)
        for (uint32_t j = 0; j < r->width; j++) {
            const uint64_t i = (uint64_t)c * r->width + j;
            w->weight[j][c] = r->weight_f32 ? ((const float *)r->weight)[i] : gdn_bf16_to_f32(((const uint16_t *)r->weight)[i]);
        }
    for (uint32_t c = 0; c < r->nc && r->bias; c++)
        w->bias[c] = r->weight_f32 ? ((const float *)r->bias)[c] : gdn_bf16_to_f32(((const uint16_t *)r->bias)[c]);
}

/* One token; tap[j] is the row that weight j multiplies. Inlined with constant width and silu. */
GDN_INLINE void token(work *w, float *const *tap, uint32_t nc, uint32_t width, bool silu) {
    for (uint32_t i = 0; i < nc; i += VL) {
        vf acc = vload(w->bias + i);
        for (uint32_t j = 0; j < width; j++) acc += vload(w->weight[j] + i) * vload(tap[j] + i);
        vstore(w->y + i, silu ? vsilu(acc) : acc);
    }
}

static void normalise(float *y, uint32_t nc, uint32_t head) {
    for (uint32_t h = 0; h < nc; h += head) {
        vsum sum = { { { 0 } } };
        for (uint32_t i = 0; i < head; i += SUM_LANES)
            for (uint32_t j = 0; j < SUM_LANES / VL && i + j * VL < head; j++) {
                const vf v = vload_row(y + h, i + j * VL, head, true);
                sum.part[j] += v * v;
            }
        const vf norm = vset(__builtin_sqrtf(vsum_total(&sum) + 1e-6f));
        for (uint32_t i = 0; i < head; i += VL) vstore_row(y + h, i, head, true, vload_row(y + h, i, head, true) / norm);
    }
}

static void conv_rows(const gdn__conv_rows *r) {
    const uint32_t width = r->width, size = r->f32 ? 4 : 2;
    float *tap[TAPS] = { NULL };
    work w;
    /* Channels past nc fill the last vector: they are computed on zeros and never stored. */
    for (uint32_t j = 0; j < width; j++) {
        memset(w.weight[j], 0, sizeof w.weight[j]);
        memset(w.ring[j], 0, sizeof w.ring[j]);
        tap[j] = w.ring[j];
        if (j + 1 < width) memcpy(w.ring[j], r->window[j], sizeof(float) * r->nc);
    }
    memset(w.bias, 0, sizeof w.bias);
    load_weights(r, &w);
    for (uint64_t t = 0; t < r->rows; t++) {
        const void *const x = (const char *)r->x + t * r->x_stride * size;
        void *const out = (char *)r->out + t * r->out_stride * size;
        for (uint32_t i = 0; i < r->nc; i += VL) vstore(tap[width - 1] + i, vload_row(x, i, r->nc, r->f32));
        if (width == 4 && r->silu)
            token(&w, tap, r->nc, 4, true);
        else if (r->silu)
            token(&w, tap, r->nc, width, true);
        else
            token(&w, tap, r->nc, width, false);
        if (r->head) normalise(w.y, r->nc, r->head);
        for (uint32_t i = 0; i < r->nc; i += VL) vstore_row(out, i, r->nc, r->f32, vload(w.y + i));
        float *const oldest = tap[0];
        for (uint32_t j = 0; j + 1 < width; j++) tap[j] = tap[j + 1];
        tap[width - 1] = oldest;
    }
}

const struct gdn__conv_table GDN_ISA_NAME(gdn__conv_table) = { conv_rows };
