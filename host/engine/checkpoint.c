/* checkpoint.c - opens a checkpoint folder and reads its tensors by name. */
#include "checkpoint.h"
#include "engine_text.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_INDEX = 64 << 20, MAX_SHARDS = 1024 };

static gdn_status join(char path[MAX_PATH], const char *dir, const char *name, gdn_text *err) {
    const int n = snprintf(path, MAX_PATH, "%s/%s", dir, name);
    return n > 0 && n < MAX_PATH ? GDN_OK : gdn__engine_say(err, GDN_E_IO, "%.200s: the path is too long", dir);
}

static gdn_status add_shard(gdn__checkpoint *c, const char *name, gdn_text *err) {
    char path[MAX_PATH];
    gdn_status s = join(path, c->dir, name, err);
    if (s != GDN_OK) return s;
    for (uint32_t i = 0; i < c->n_shards; i++)
        if (!strcmp(gdn_st_label(c->shards[i]), path)) return GDN_OK;
    if (c->n_shards == MAX_SHARDS) return gdn__engine_say(err, GDN_E_MODEL, "%s: more than %d files", c->dir, MAX_SHARDS);
    gdn_st **p = realloc(c->shards, (c->n_shards + 1) * sizeof(gdn_st *));
    if (p) c->shards = p;
    bool **u = realloc(c->used, (c->n_shards + 1) * sizeof(bool *));
    if (u) c->used = u;
    if (!p || !u) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    gdn_st *st = NULL;
    s = gdn_st_open(path, &st, err);
    if (s != GDN_OK) return s;
    bool *used = calloc((size_t)gdn_st_count(st) + 1, sizeof *used);
    if (!used) {
        gdn_st_close(st);
        return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    }
    c->shards[c->n_shards] = st;
    c->used[c->n_shards++] = used;
    return GDN_OK;
}

/* weight_map: tensor name to file name; the files must be in the folder itself. */
static gdn_status add_index(gdn__checkpoint *c, const char *path, const json_t *root, gdn_text *err) {
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) return gdn__engine_say(err, GDN_E_MODEL, "%s: weight_map is missing or not an object", path);
    const char *key;
    json_t *value;
    gdn_status s = GDN_OK;
    json_object_foreach(map, key, value) {
        const char *name = json_string_value(value);
        if (!name || !*name || *name == '.' || strchr(name, '/'))
            s = gdn__engine_say(err, GDN_E_MODEL, "%s: weight_map of '%.120s' is not a plain file name", path, key);
        if (s == GDN_OK) s = add_shard(c, name, err);
        if (s != GDN_OK) break;
    }
    if (s == GDN_OK && !c->n_shards) s = gdn__engine_say(err, GDN_E_MODEL, "%s: weight_map is empty", path);
    return s;
}

/* A tensor that is in two files would be taken from either. */
static gdn_status check_once(const gdn__checkpoint *c, gdn_text *err) {
    for (uint32_t i = 1; i < c->n_shards; i++)
        for (uint64_t k = 0; k < gdn_st_count(c->shards[i]); k++) {
            const char *name = gdn_st_at(c->shards[i], k)->name;
            for (uint32_t j = 0; j < i; j++)
                if (gdn_st_find(c->shards[j], name))
                    return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%.120s' is in another file too", gdn_st_label(c->shards[i]),
                                           name);
        }
    return GDN_OK;
}

static gdn_status open_shards(gdn__checkpoint *c, gdn_text *err) {
    char path[MAX_PATH];
    gdn_status s = join(path, c->dir, "model.safetensors.index.json", err);
    if (s != GDN_OK) return s;
    if (access(path, F_OK) != 0) return add_shard(c, "model.safetensors", err);
    char *bytes = NULL;
    uint64_t size = 0;
    s = gdn__read_file(path, MAX_INDEX, &bytes, &size, err);
    if (s != GDN_OK) return s;
    json_error_t je;
    json_t *root = json_loadb(bytes, (size_t)size, JSON_REJECT_DUPLICATES, &je);
    s = root ? add_index(c, path, root, err) : gdn__engine_say(err, GDN_E_MODEL, "%s: line %d: not JSON: %.120s", path, je.line, je.text);
    json_decref(root);
    free(bytes);
    return s;
}

gdn_status gdn__checkpoint_open(const char *dir, gdn__checkpoint *out, gdn_text *err) {
    *out = (gdn__checkpoint) { 0 };
    struct stat sb;
    if (stat(dir, &sb) != 0) return gdn__engine_say(err, GDN_E_IO, "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(sb.st_mode))
        return gdn__engine_say(err, GDN_E_IO, "%s: not a folder (config.json and model.safetensors are looked for in it)", dir);
    char path[MAX_PATH];
    gdn__checkpoint c = { .dir = strdup(dir) };
    gdn_status s = c.dir ? join(path, dir, "config.json", err) : gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    if (s == GDN_OK) s = gdn_config_read(path, &c.config, err);
    if (s == GDN_OK) s = open_shards(&c, err);
    if (s == GDN_OK) s = check_once(&c, err);
    if (s != GDN_OK) {
        gdn__checkpoint_close(&c);
        return s;
    }
    *out = c;
    return GDN_OK;
}

void gdn__checkpoint_close(gdn__checkpoint *c) {
    for (uint32_t i = 0; i < c->n_shards; i++) {
        free(c->used[i]);
        gdn_st_close(c->shards[i]);
    }
    free(c->used);
    free(c->shards);
    free(c->dir);
    *c = (gdn__checkpoint) { 0 };
}

static void shape_text(char *buf, size_t cap, uint32_t rank, const uint64_t *shape) {
    size_t at = 0;
    buf[0] = 0;
    for (uint32_t i = 0; i < rank && at < cap; i++) {
        const int n = snprintf(buf + at, cap - at, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
        if (n > 0) at += (size_t)n;
    }
}

gdn_status gdn__checkpoint_read(gdn__checkpoint *c, const char *name, uint32_t rank, const uint64_t *shape, float *out, gdn_text *err) {
    const gdn_st_tensor *t = NULL;
    const char *label = c->dir;
    for (uint32_t i = 0; !t && i < c->n_shards; i++) {
        t = gdn_st_find(c->shards[i], name);
        if (t || c->n_shards == 1) label = gdn_st_label(c->shards[i]);
        if (t) c->used[i][t - gdn_st_at(c->shards[i], 0)] = true;
    }
    if (!t) return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%s' is missing", label, name);
    if (!gdn_st_is_float(t))
        return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%s' is %s, must be BF16, F16 or F32", label, name,
                               gdn_st_dtype_name(t->dtype));
    bool same = t->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) same = t->shape[i] == shape[i];
    if (!same) {
        char has[200], want[200];
        shape_text(has, sizeof has, t->rank, t->shape);
        shape_text(want, sizeof want, rank, shape);
        return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%s' has shape [%s], config.json asks for [%s]", label, name, has, want);
    }
    gdn_st_read_f32(t, 0, t->count, out);
    for (uint64_t i = 0; i < t->count; i++)
        if (!isfinite(out[i]))
            return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%s' is not finite: element %llu is %s", label, name,
                                   (unsigned long long)i, isnan(out[i]) ? "NaN" : "infinite");
    return GDN_OK;
}

/* ---- what was not read ---- */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static const gdn_st_tensor *find(const gdn__checkpoint *c, const char *name) {
    const gdn_st_tensor *t = NULL;
    for (uint32_t i = 0; !t && i < c->n_shards; i++) t = gdn_st_find(c->shards[i], name);
    return t;
}

static bool same_bytes(const gdn_st_tensor *a, const gdn_st_tensor *b) {
    return a && b && a->dtype == b->dtype && a->bytes == b->bytes && !memcmp(a->data, b->data, (size_t)a->bytes);
}

static gdn_status check_unread(const gdn__checkpoint *c, const char *label, const gdn_st_tensor *t, gdn_text *err) {
    if (ends_with(t->name, "rotary_emb.inv_freq")) return GDN_OK;
    if (c->config.tied && !strcmp(t->name, "lm_head.weight")) {
        if (same_bytes(t, find(c, "model.embed_tokens.weight"))) return GDN_OK;
        return gdn__engine_say(err, GDN_E_MODEL,
                               "%s: tensor 'lm_head.weight' is not the embedding, as config.json's tie_word_embeddings says", label);
    }
    return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%.120s' has no place in the model that config.json describes", label, t->name);
}

gdn_status gdn__checkpoint_all_read(const gdn__checkpoint *c, gdn_text *err) {
    gdn_status s = GDN_OK;
    for (uint32_t i = 0; s == GDN_OK && i < c->n_shards; i++)
        for (uint64_t k = 0; s == GDN_OK && k < gdn_st_count(c->shards[i]); k++)
            if (!c->used[i][k]) s = check_unread(c, gdn_st_label(c->shards[i]), gdn_st_at(c->shards[i], k), err);
    return s;
}
