/* weights.c - the checkpoint's tensors into device memory, in the orders that the operations want.
 *
 * in_proj_qkvz is interleaved per key head, [q k_dim | k k_dim | v r*v_dim | z r*v_dim] with r = nv/nk; its rows are put in the
 * order Q | K | V | Z, so that the convolution sees one packed row and z is a column view. in_proj_ba keeps its order, which
 * ba_gates knows. gate_proj and up_proj become one matrix. RMS norm weights become 1 + w. */
#include "engine_internal.h"
#include "engine_text.h"
#include "numbers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    gdn_engine *e;
    gdn__checkpoint *ck;
    gdn_text *err;
    float *buf, *tmp; /* host, the largest tensor each */
    uint32_t layer;
} loader;

uint32_t gdn__qkvz_source_row(uint32_t nk, uint32_t nv, uint32_t dim, uint32_t row) {
    const uint32_t r = nv / nk, group = (2 + 2 * r) * dim, q = nk * dim, v = nv * dim;
    if (row < q) return row / dim * group + row % dim;
    if (row < 2 * q) return (row - q) / dim * group + dim + row % dim;
    const uint32_t at = row - 2 * q, head = at % v / dim; /* value head, of v or of z */
    return head / r * group + (at < v ? 2 : 2 + r) * dim + head % r * dim + at % dim;
}

/* Reads `name`, or with in_layer model.layers.<n>.`name`, into dst. */
static gdn_status read_at(const loader *l, bool in_layer, const char *name, uint32_t rank, const uint64_t *shape, float *dst) {
    char full[160];
    if (in_layer)
        snprintf(full, sizeof full, "model.layers.%u.%s", l->layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    gdn_status s = gdn__checkpoint_read(l->ck, full, rank, shape, dst, l->err);
    uint64_t n = 1;
    for (uint32_t i = 0; i < rank; i++) n *= shape[i];
    for (uint64_t i = 0; s == GDN_OK && l->e->act == GDN_BF16 && i < n; i++) dst[i] = gdn__round_bf16(dst[i]);
    return s;
}

static gdn_status put(const loader *l, const float *src, uint64_t n, uint32_t type, uint64_t *out) {
    return gdn__arena_put(&l->e->mem, src, n, type, out, l->err);
}

/* Of a projection: dense, or its NVFP4 form. */
static gdn_status put_projection(const loader *l, const float *w, uint64_t n, uint32_t which, gdn__layer *y) {
    gdn_engine *e = l->e;
    if (e->projection[which].fp4) return gdn__fp4_put(e, w, which, &y->fp4[which], l->err);
    return put(l, w, n, e->dense->weight_type(e->act), &y->dense[which]);
}

/* A vector kept as it is, in `type`. */
static gdn_status vector(const loader *l, bool in_layer, const char *name, uint32_t n, float plus, uint32_t type, uint64_t *out) {
    const uint64_t shape[1] = { n };
    const gdn_status s = read_at(l, in_layer, name, 1, shape, l->buf);
    if (s != GDN_OK) return s;
    for (uint32_t i = 0; i < n; i++) l->buf[i] += plus;
    return put(l, l->buf, n, type, out);
}

static gdn_status matrix(const loader *l, bool in_layer, const char *name, uint32_t rows, uint32_t cols, uint32_t type, uint64_t *out) {
    const uint64_t shape[2] = { rows, cols };
    const gdn_status s = read_at(l, in_layer, name, 2, shape, l->buf);
    return s == GDN_OK ? put(l, l->buf, (uint64_t)rows * cols, type, out) : s;
}

static gdn_status projection(const loader *l, const char *name, uint32_t rows, uint32_t cols, uint32_t which, gdn__layer *y) {
    const uint64_t shape[2] = { rows, cols };
    const gdn_status s = read_at(l, true, name, 2, shape, l->buf);
    return s == GDN_OK ? put_projection(l, l->buf, (uint64_t)rows * cols, which, y) : s;
}

static gdn_status qkvz(const loader *l, gdn__layer *y) {
    const gdn_model_config *c = &l->e->c;
    const uint32_t rows = gdn_config_qkvz(c), cols = c->hidden;
    const uint64_t shape[2] = { rows, cols };
    const gdn_status s = read_at(l, true, "linear_attn.in_proj_qkvz.weight", 2, shape, l->buf);
    if (s != GDN_OK) return s;
    for (uint32_t r = 0; r < rows; r++)
        memcpy(l->tmp + (uint64_t)r * cols, l->buf + (uint64_t)gdn__qkvz_source_row(c->nk, c->nv, c->k_dim, r) * cols,
               cols * sizeof(float));
    return put_projection(l, l->tmp, (uint64_t)rows * cols, GDN__QKVZ, y);
}

static gdn_status gate_up(const loader *l, gdn__layer *y) {
    const gdn_model_config *c = &l->e->c;
    const uint64_t shape[2] = { c->inter, c->hidden }, n = (uint64_t)c->inter * c->hidden;
    gdn_status s = read_at(l, true, "mlp.gate_proj.weight", 2, shape, l->buf);
    if (s == GDN_OK) s = read_at(l, true, "mlp.up_proj.weight", 2, shape, l->buf + n);
    return s == GDN_OK ? put_projection(l, l->buf, 2 * n, GDN__GATE_UP, y) : s;
}

static gdn_status conv(const loader *l, uint64_t *out) {
    const gdn_model_config *c = &l->e->c;
    const uint64_t shape[3] = { gdn_config_channels(c), 1, c->conv_width };
    const gdn_status s = read_at(l, true, "linear_attn.conv1d.weight", 3, shape, l->buf);
    return s == GDN_OK ? put(l, l->buf, shape[0] * shape[2], l->e->act, out) : s;
}

static gdn_status load_layer(const loader *l, gdn__layer *y) {
    const gdn_model_config *c = &l->e->c;
    const uint32_t act = l->e->act;
    gdn_status s = vector(l, true, "input_layernorm.weight", c->hidden, 1, GDN_F32, &y->norm1);
    if (s == GDN_OK) s = qkvz(l, y);
    if (s == GDN_OK) s = matrix(l, true, "linear_attn.in_proj_ba.weight", 2 * c->nv, c->hidden, act, &y->ba);
    if (s == GDN_OK) s = vector(l, true, "linear_attn.A_log", c->nv, 0, GDN_F32, &y->a_log);
    if (s == GDN_OK) s = vector(l, true, "linear_attn.dt_bias", c->nv, 0, GDN_F32, &y->dt_bias);
    if (s == GDN_OK) s = conv(l, &y->conv);
    if (s == GDN_OK) s = vector(l, true, "linear_attn.norm.weight", c->v_dim, 0, act, &y->gdn_norm);
    if (s == GDN_OK) s = projection(l, "linear_attn.out_proj.weight", c->hidden, c->nv * c->v_dim, GDN__OUT, y);
    if (s == GDN_OK) s = vector(l, true, "post_attention_layernorm.weight", c->hidden, 1, GDN_F32, &y->norm2);
    if (s == GDN_OK) s = gate_up(l, y);
    if (s == GDN_OK) s = projection(l, "mlp.down_proj.weight", c->hidden, c->inter, GDN__DOWN, y);
    return s;
}

static gdn_status load_all(loader *l, gdn_engine_progress progress, void *user) {
    gdn_engine *e = l->e;
    const gdn_model_config *c = &e->c;
    const uint32_t dense = e->dense->weight_type(e->act);
    gdn_status s = matrix(l, false, "model.embed_tokens.weight", c->vocab, c->hidden, dense, &e->embed);
    e->head = e->embed;
    if (s == GDN_OK && !c->tied) s = matrix(l, false, "lm_head.weight", c->vocab, c->hidden, dense, &e->head);
    if (s == GDN_OK) s = vector(l, false, "model.norm.weight", c->hidden, 1, GDN_F32, &e->final_norm);
    for (l->layer = 0; s == GDN_OK && l->layer < c->layers; l->layer++) {
        s = load_layer(l, &e->layers[l->layer]);
        if (s == GDN_OK && progress) progress(user, "loading", l->layer + 1, c->layers);
    }
    return s == GDN_OK ? gdn__checkpoint_all_read(l->ck, l->err) : s;
}

static uint64_t largest(const gdn_model_config *c) {
    const uint64_t h = c->hidden, sizes[] = {
        c->vocab * h,        gdn_config_qkvz(c) * h, 2 * c->inter * h, 2ull * c->nv * h, (uint64_t)c->conv_width * gdn_config_channels(c),
        h * c->nv * c->v_dim
    };
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > n) n = sizes[i];
    return n;
}

gdn_status gdn__weights_load(gdn_engine *e, gdn__checkpoint *ck, gdn_engine_progress progress, void *user, gdn_text *err) {
    const uint64_t bytes = largest(&e->c) * sizeof(float);
    loader l = { .e = e, .ck = ck, .err = err, .buf = malloc((size_t)bytes), .tmp = malloc((size_t)bytes) };
    const gdn_status s = l.buf && l.tmp ? load_all(&l, progress, user) : gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    free(l.tmp);
    free(l.buf);
    return s;
}
