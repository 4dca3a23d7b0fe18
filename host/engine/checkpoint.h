/* checkpoint.h - a Hugging Face folder: config.json and model.safetensors, or the shards that model.safetensors.index.json lists.
 *
 * Which tensors were read is kept, so that a checkpoint with more than its config.json describes can be refused. */
#ifndef GDN_ENGINE_CHECKPOINT_H
#define GDN_ENGINE_CHECKPOINT_H

#include "model_config.h"
#include "safetensors.h"

typedef struct gdn__checkpoint {
    char *dir;
    gdn_model_config config;
    gdn_st **shards;
    bool **used; /* of each shard, a flag a tensor */
    uint32_t n_shards;
} gdn__checkpoint;

gdn_status gdn__checkpoint_open(const char *dir, gdn__checkpoint *out, gdn_text *err);
void gdn__checkpoint_close(gdn__checkpoint *c);
/* Reads a whole tensor as f32. It must be there, hold BF16, F16 or F32, all finite, and have this very shape. */
gdn_status gdn__checkpoint_read(gdn__checkpoint *c, const char *name, uint32_t rank, const uint64_t *shape, float *out, gdn_text *err);
/* Names the first tensor that was not read. Not minded: inverse frequencies of rotary embeddings, which are derived values,
 * and with a tied head an lm_head.weight that is the embedding, byte for byte. */
gdn_status gdn__checkpoint_all_read(const gdn__checkpoint *c, gdn_text *err);

#endif
