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
    _Alignas(64) float weight[TAPS][BLOCK], ring[TAPS][BLOCK], bias[BLOCK], y[BLOCK];
} work;

static void load_weights(const gdn__conv_rows *r, work *w) {
    const float *const f = r->weight;
    const uint16_t *const h = r->weight;
    for (uint32_t j = 0; j < r->width; j++) {
        if (r->weight_f32)
            for (uint32_t c = 0; c < r->nc; c++) w->weight[j][c] = f[(uint64_t)c * r->width + j];
        else
            for (uint32_t c = 0; c < r->nc; c++) w->weight[j][c] = gdn_bf16_to_f32(h[(uint64_t)c * r->width + j]);
    }
    for (uint32_t c = 0; c < r->nc; c++)
        w->bias[c] = !r->bias ? 0 : r->weight_f32 ? ((const float *)r->bias)[c] : gdn_bf16_to_f32(((const uint16_t *)r->bias)[c]);
}

/* The window into the ring; zeros from nc to the end of the last vector, which is computed but never stored. */
static void begin(const gdn__conv_rows *r, work *w) {
    load_weights(r, w);
    const uint32_t end = (r->nc + VL - 1) / VL * VL;
    for (uint32_t c = r->nc; c < end; c++) w->bias[c] = 0;
    for (uint32_t j = 0; j < r->width; j++) {
        for (uint32_t c = r->nc; c < end; c++) w->weight[j][c] = w->ring[j][c] = 0;
        if (j + 1 < r->width) memcpy(w->ring[j], r->window[j], sizeof(float) * r->nc);
    }
}

/* One vector of channels of one token: x widened into the newest row of the ring, the sum to out or, for the norm, to y.
 * tap[j] is the row that weight j takes. */
GDN_INLINE void vector(work *w, float *const *tap, const void *x, void *out, uint32_t i, const gdn__conv_rows *r, uint32_t width, bool f32,
                       bool silu, bool norm, bool full) {
    const vf now = vload_row(x, i, r->nc, f32, full);
    vstore(tap[width - 1] + i, now);
    vf acc = vload(w->bias + i);
    for (uint32_t j = 0; j + 1 < width; j++) acc += vload(w->weight[j] + i) * vload(tap[j] + i);
    acc += vload(w->weight[width - 1] + i) * now;
    if (silu) acc = vsilu(acc);
    if (norm)
        vstore(w->y + i, acc);
    else
        vstore_row(out, i, r->nc, f32, full, acc);
}

GDN_INLINE void token(work *w, float *const *tap, const void *x, void *out, const gdn__conv_rows *r, uint32_t width, bool f32, bool silu,
                      bool norm) {
    uint32_t i = 0;
    for (; i + VL <= r->nc; i += VL) vector(w, tap, x, out, i, r, width, f32, silu, norm, true);
    if (i < r->nc) vector(w, tap, x, out, i, r, width, f32, silu, norm, false);
}

GDN_INLINE void normalise(const float *y, void *out, const gdn__conv_rows *r, bool f32) {
    const uint32_t head = r->head;
    for (uint32_t h = 0; h < r->nc; h += head) {
        const vf norm = vset(__builtin_sqrtf(vsquares(y + h, head, true) + 1e-6f));
        void *const to = (char *)out + (uint64_t)h * (f32 ? 4 : 2);
        uint32_t i = 0;
        for (; i + VL <= head; i += VL) vstore_row(to, i, head, f32, true, vload(y + h + i) / norm);
        if (i < head) vstore_row(to, i, head, f32, false, vload_row(y + h, i, head, true, false) / norm);
    }
}

/* Inlined with constants where it matters. */
GDN_INLINE void all_rows(const gdn__conv_rows *r, uint32_t width, bool f32, bool silu, bool norm) {
    const uint64_t size = f32 ? 4 : 2;
    float *tap[TAPS];
    work w;
    begin(r, &w);
    for (uint32_t j = 0; j < TAPS; j++) tap[j] = w.ring[j];
    for (uint64_t t = 0; t < r->rows; t++) {
        void *const out = (char *)r->out + t * r->out_stride * size;
        token(&w, tap, (const char *)r->x + t * r->x_stride * size, out, r, width, f32, silu, norm);
        if (norm) normalise(w.y, out, r, f32);
        float *const oldest = tap[0];
        for (uint32_t j = 0; j + 1 < width; j++) tap[j] = tap[j + 1];
        tap[width - 1] = oldest;
    }
}

static void conv_rows(const gdn__conv_rows *r) {
    if (r->width == 4 && !r->f32 && r->silu && !r->head)
        all_rows(r, 4, false, true, false);
    else if (r->width == 4 && !r->f32 && r->silu)
        all_rows(r, 4, false, true, true);
    else
        all_rows(r, r->width, r->f32, r->silu, r->head != 0);
}

const struct gdn__conv_table GDN_ISA_NAME(gdn__conv_table) = { conv_rows };
