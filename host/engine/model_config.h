/* model_config.h - the geometry of a checkpoint, from Hugging Face's config.json.
 *
 * Taken: model_type qwen3_next, every layer linear_attention, a plain SwiGLU MLP on every layer. Anything else is refused
 * with one line that names the key. Keys that have no bearing on such a model are not looked at. */
#ifndef GDN_MODEL_CONFIG_H
#define GDN_MODEL_CONFIG_H

#include "gdn_status.h"
#include <stdbool.h>

typedef struct gdn_model_config {
    uint32_t vocab, hidden, inter, layers;
    uint32_t nk, nv, k_dim, v_dim; /* heads and head sizes; k_dim == v_dim, 64 or 128 */
    uint32_t conv_width;
    float eps; /* rms_norm_eps */
    bool tied; /* the head is the embedding */
} gdn_model_config;

/* Errors: GDN_E_IO, GDN_E_MODEL, GDN_E_NOMEM; err names file, key and reason. */
gdn_status gdn_config_read(const char *path, gdn_model_config *out, gdn_text *err);
gdn_status gdn_config_parse(const void *bytes, uint64_t size, const char *label, gdn_model_config *out, gdn_text *err);

/* Columns of the projected row and of the convolution: [Q nk*k | K nk*k | V nv*v | Z nv*v], the convolution sees the first three. */
static inline uint32_t gdn_config_channels(const gdn_model_config *c) {
    return 2 * c->nk * c->k_dim + c->nv * c->v_dim;
}
static inline uint32_t gdn_config_qkvz(const gdn_model_config *c) {
    return gdn_config_channels(c) + c->nv * c->v_dim;
}

/* A whole file of at most `limit` bytes; *out is malloc'ed, with a NUL behind it. */
gdn_status gdn__read_file(const char *path, uint64_t limit, char **out, uint64_t *size, gdn_text *err);

#endif
