/* tiny_checkpoint.h - writes a small random checkpoint folder, whole or spoiled in one place. */
#ifndef GDN_TEST_TINY_CHECKPOINT_H
#define GDN_TEST_TINY_CHECKPOINT_H

#include "numeric.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tiny {
    uint32_t vocab, hidden, inter, layers, nk, nv, dim, width;
    bool tied, f32;        /* f32: tensors as F32, else BF16                      */
    const char *drop;      /* leave this tensor out                               */
    const char *odd_shape; /* give this tensor one row more                       */
    const char *odd_type;  /* store this tensor as I32                            */
    const char *extra;     /* one more tensor of this name, two by three          */
    bool head_too;         /* tied: an lm_head.weight that is the embedding       */
    const char *spoil;     /* one element of this tensor is `spoilt`              */
    double spoilt;
    uint32_t shards;         /* 0, 1: model.safetensors; 2: an index and two files  */
    uint32_t cut;            /* bytes to cut off the (last) file's end              */
    const char *key, *value; /* config.json: this key gets this JSON text          */
    char dir[64];
} tiny;

#define TINY_DEFAULT \
    { .vocab = 40, .hidden = 32, .inter = 48, .layers = 2, .nk = 2, .nv = 4, .dim = 64, .width = 4 }

/* One file being made: header and data grow side by side. */
typedef struct tiny_file {
    json_t *header;
    unsigned char *data;
    uint64_t size;
} tiny_file;

static void tiny_add(const tiny *t, tiny_file *f, rng *r, const char *name, uint64_t a, uint64_t b, uint64_t c, double lo, double hi) {
    if (t->drop && !strcmp(t->drop, name)) return;
    if (t->odd_shape && !strcmp(t->odd_shape, name)) a++;
    const bool odd = t->odd_type && !strcmp(t->odd_type, name);
    const uint32_t type = t->f32 ? GDN_F32 : GDN_BF16, size = odd ? 4 : num_size(type);
    const uint64_t n = a * (b ? b : 1) * (c ? c : 1);
    f->data = realloc(f->data, (size_t)(f->size + n * size));
    if (!f->data) abort();
    if (odd)
        memset(f->data + f->size, 0, (size_t)(n * size));
    else
        num_fill(f->data + f->size, type, n, r, lo, hi);
    if (t->spoil && !strcmp(t->spoil, name)) num_put(f->data + f->size, type, n - 1, t->spoilt);
    json_t *shape = json_pack("[I]", (json_int_t)a);
    if (b) json_array_append_new(shape, json_integer((json_int_t)b));
    if (c) json_array_append_new(shape, json_integer((json_int_t)c));
    json_object_set_new(f->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype",
                                  odd      ? "I32"
                                  : t->f32 ? "F32"
                                           : "BF16",
                                  "shape", shape, "data_offsets", (json_int_t)f->size, (json_int_t)(f->size + n * size)));
    f->size += n * size;
}

static void tiny_layer(const tiny *t, tiny_file *f, rng *r, uint32_t layer) {
    const uint64_t h = t->hidden, core = (uint64_t)t->nv * t->dim, channels = (2ull * t->nk + t->nv) * t->dim;
    const struct {
        const char *name;
        uint64_t a, b, c;
        double lo, hi;
    } rows[] = {
        { "input_layernorm.weight", h, 0, 0, -0.2, 0.2 },
        { "linear_attn.in_proj_qkvz.weight", channels + core, h, 0, -0.3, 0.3 },
        { "linear_attn.in_proj_ba.weight", 2ull * t->nv, h, 0, -0.3, 0.3 },
        { "linear_attn.A_log", t->nv, 0, 0, -1, 1 },
        { "linear_attn.dt_bias", t->nv, 0, 0, -1, 1 },
        { "linear_attn.conv1d.weight", channels, 1, t->width, -0.5, 0.5 },
        { "linear_attn.norm.weight", t->dim, 0, 0, 0.5, 1.5 },
        { "linear_attn.out_proj.weight", h, core, 0, -0.15, 0.15 },
        { "post_attention_layernorm.weight", h, 0, 0, -0.2, 0.2 },
        { "mlp.gate_proj.weight", t->inter, h, 0, -0.3, 0.3 },
        { "mlp.up_proj.weight", t->inter, h, 0, -0.3, 0.3 },
        { "mlp.down_proj.weight", h, t->inter, 0, -0.3, 0.3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[120];
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, rows[i].name);
        tiny_add(t, f, r, name, rows[i].a, rows[i].b, rows[i].c, rows[i].lo, rows[i].hi);
    }
}

static void tiny_write(const tiny *t, const char *name, const void *bytes, size_t n) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", t->dir, name);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, n, out) != n || fclose(out) != 0) abort();
}

static void tiny_close(const tiny *t, tiny_file *f, const char *name, uint32_t cut) {
    char *text = json_dumps(f->header, JSON_COMPACT);
    if (!text) abort();
    const uint64_t n = strlen(text), size = 8 + n + f->size;
    unsigned char *all = malloc((size_t)size);
    if (!all) abort();
    for (int i = 0; i < 8; i++) all[i] = (unsigned char)(n >> (8 * i));
    memcpy(all + 8, text, (size_t)n);
    memcpy(all + 8 + n, f->data, (size_t)f->size);
    tiny_write(t, name, all, (size_t)(size - cut));
    free(all);
    free(text);
    free(f->data);
    json_decref(f->header);
}

static void tiny_config(const tiny *t) {
    json_t *types = json_array();
    for (uint32_t i = 0; i < t->layers; i++) json_array_append_new(types, json_string("linear_attention"));
    json_t *doc = json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:b,s:i,s:o}", "model_type", "qwen3_next", "hidden_act",
                            "silu", "vocab_size", t->vocab, "hidden_size", t->hidden, "intermediate_size", t->inter, "num_hidden_layers",
                            t->layers, "linear_num_key_heads", t->nk, "linear_num_value_heads", t->nv, "linear_key_head_dim", t->dim,
                            "linear_value_head_dim", t->dim, "linear_conv_kernel_dim", t->width, "rms_norm_eps", 1e-6,
                            "tie_word_embeddings", t->tied, "num_experts", 0, "layer_types", types);
    if (t->key) json_object_set_new(doc, t->key, json_loads(t->value, JSON_DECODE_ANY, NULL));
    char *text = json_dumps(doc, JSON_INDENT(1));
    if (!text) abort();
    tiny_write(t, "config.json", text, strlen(text));
    free(text);
    json_decref(doc);
}

/* Makes the folder; the same seed and geometry give the same weights, whatever the number of files. */
static void tiny_make(tiny *t, uint64_t seed) {
    strcpy(t->dir, "checkpoint-XXXXXX");
    if (!mkdtemp(t->dir)) abort();
    rng r = { seed };
    tiny_file first = { json_object(), NULL, 0 }, second = { json_object(), NULL, 0 };
    tiny_file *const rest = t->shards == 2 ? &second : &first;
    tiny_add(t, &first, &r, "model.embed_tokens.weight", t->vocab, t->hidden, 0, -1, 1);
    for (uint32_t i = 0; i < t->layers; i++) tiny_layer(t, i ? rest : &first, &r, i);
    tiny_add(t, rest, &r, "model.norm.weight", t->hidden, 0, 0, -0.2, 0.2);
    if (!t->tied) tiny_add(t, rest, &r, "lm_head.weight", t->vocab, t->hidden, 0, -1, 1);
    if (t->extra) tiny_add(t, rest, &r, t->extra, 2, 3, 0, -1, 1);
    if (t->head_too) { /* drawn as the embedding was */
        rng same = { seed };
        tiny_add(t, rest, &same, "lm_head.weight", t->vocab, t->hidden, 0, -1, 1);
    }
    if (t->shards == 2) {
        json_t *map = json_object();
        const char *key;
        json_t *value;
        json_object_foreach(first.header, key, value) json_object_set_new(map, key, json_string("model-1.safetensors"));
        json_object_foreach(second.header, key, value) json_object_set_new(map, key, json_string("model-2.safetensors"));
        json_t *index = json_pack("{s:o}", "weight_map", map);
        char *text = json_dumps(index, 0);
        if (!text) abort();
        tiny_write(t, "model.safetensors.index.json", text, strlen(text));
        free(text);
        json_decref(index);
        tiny_close(t, &first, "model-1.safetensors", 0);
        tiny_close(t, &second, "model-2.safetensors", t->cut);
    } else {
        tiny_close(t, &first, "model.safetensors", t->cut);
        json_decref(second.header);
    }
    tiny_config(t);
}

static void tiny_remove(const tiny *t) {
    static const char *const names[] = { "config.json", "model.safetensors", "model-1.safetensors", "model-2.safetensors",
                                         "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", t->dir, names[i]);
        (void)unlink(path);
    }
    if (rmdir(t->dir) != 0) abort();
}

#endif
