/* model_config.c - reads config.json; see model_config.h for what is taken. */
#include "model_config.h"
#include "engine_text.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 16 << 20, MAX_LAYERS = 1024 };

typedef struct reader {
    const json_t *root;
    const char *label;
    gdn_text *err;
} reader;

static const char *kind_of(const json_t *v) {
    static const char *const names[] = { "an object", "an array", "a string", "an integer", "a real number", "true", "false", "null" };
    return names[json_typeof(v)];
}

static gdn_status missing(const reader *r, const char *key) {
    return gdn__engine_say(r->err, GDN_E_MODEL, "%s: %s is missing", r->label, key);
}

static gdn_status get_u32(const reader *r, const char *key, uint32_t lo, uint32_t hi, uint32_t *out) {
    const json_t *v = json_object_get(r->root, key);
    if (!v) return missing(r, key);
    if (!json_is_integer(v)) return gdn__engine_say(r->err, GDN_E_MODEL, "%s: %s must be an integer, is %s", r->label, key, kind_of(v));
    const json_int_t n = json_integer_value(v);
    if (n < (json_int_t)lo || n > (json_int_t)hi)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: %s is %lld, must be %u to %u", r->label, key, (long long)n, lo, hi);
    *out = (uint32_t)n;
    return GDN_OK;
}

static gdn_status want_text(const reader *r, const char *key, const char *want) {
    const json_t *v = json_object_get(r->root, key);
    if (!v) return missing(r, key);
    if (!json_is_string(v)) return gdn__engine_say(r->err, GDN_E_MODEL, "%s: %s must be a string, is %s", r->label, key, kind_of(v));
    if (strcmp(json_string_value(v), want) != 0)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: %s is '%.60s', only %s is supported", r->label, key, json_string_value(v), want);
    return GDN_OK;
}

static gdn_status get_eps(const reader *r, float *out) {
    const json_t *v = json_object_get(r->root, "rms_norm_eps");
    if (!v) return missing(r, "rms_norm_eps");
    if (!json_is_number(v)) return gdn__engine_say(r->err, GDN_E_MODEL, "%s: rms_norm_eps must be a number, is %s", r->label, kind_of(v));
    const double d = json_number_value(v);
    if (!(d >= 1e-12 && d <= 0.1)) return gdn__engine_say(r->err, GDN_E_MODEL, "%s: rms_norm_eps is %g, must be 1e-12 to 0.1", r->label, d);
    *out = (float)d;
    return GDN_OK;
}

static gdn_status get_tied(const reader *r, bool *out) {
    const json_t *v = json_object_get(r->root, "tie_word_embeddings");
    *out = false; /* as the model class has it */
    if (!v) return GDN_OK;
    if (!json_is_boolean(v))
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: tie_word_embeddings must be true or false, is %s", r->label, kind_of(v));
    *out = json_is_true(v);
    return GDN_OK;
}

static gdn_status check_layer_types(const reader *r, uint32_t layers) {
    const json_t *types = json_object_get(r->root, "layer_types");
    if (!types) return missing(r, "layer_types");
    if (!json_is_array(types))
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: layer_types must be an array, is %s", r->label, kind_of(types));
    if (json_array_size(types) != layers)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: layer_types has %zu entries, num_hidden_layers is %u", r->label,
                               json_array_size(types), layers);
    for (uint32_t i = 0; i < layers; i++) {
        const json_t *t = json_array_get(types, i);
        if (!json_is_string(t))
            return gdn__engine_say(r->err, GDN_E_MODEL, "%s: layer_types[%u] must be a string, is %s", r->label, i, kind_of(t));
        if (strcmp(json_string_value(t), "linear_attention") != 0)
            return gdn__engine_say(r->err, GDN_E_MODEL, "%s: layer %u is %.40s, only linear_attention is supported", r->label, i,
                                   json_string_value(t));
    }
    return GDN_OK;
}

/* Is layer i in mlp_only_layers? */
static gdn_status mlp_only(const reader *r, uint32_t layer, bool *out) {
    const json_t *list = json_object_get(r->root, "mlp_only_layers");
    *out = false;
    if (!list || json_is_null(list)) return GDN_OK;
    if (!json_is_array(list))
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: mlp_only_layers must be an array, is %s", r->label, kind_of(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v))
            return gdn__engine_say(r->err, GDN_E_MODEL, "%s: mlp_only_layers[%zu] must be an integer, is %s", r->label, i, kind_of(v));
        if (json_integer_value(v) == (json_int_t)layer) *out = true;
    }
    return GDN_OK;
}

/* A layer has experts when num_experts > 0, it is not in mlp_only_layers and (layer + 1) % decoder_sparse_step == 0. */
static gdn_status check_experts(const reader *r, uint32_t layers) {
    uint32_t experts = 0, step = 1;
    gdn_status s = get_u32(r, "num_experts", 0, 1u << 20, &experts);
    if (s == GDN_OK && json_object_get(r->root, "decoder_sparse_step")) s = get_u32(r, "decoder_sparse_step", 1, 1u << 20, &step);
    for (uint32_t i = 0; s == GDN_OK && i < layers; i++) {
        bool plain = false;
        s = mlp_only(r, i, &plain);
        if (s == GDN_OK && experts && !plain && (i + 1) % step == 0)
            s = gdn__engine_say(r->err, GDN_E_MODEL, "%s: layer %u has %u experts (num_experts), only plain MLP layers are supported",
                                r->label, i, experts);
    }
    return s;
}

static gdn_status check_heads(const reader *r, const gdn_model_config *c) {
    if (c->nv % c->nk)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: linear_num_value_heads %u is not a multiple of linear_num_key_heads %u", r->label,
                               c->nv, c->nk);
    if (c->k_dim != c->v_dim)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: linear_key_head_dim %u and linear_value_head_dim %u differ", r->label, c->k_dim,
                               c->v_dim);
    if (c->k_dim != 64 && c->k_dim != 128)
        return gdn__engine_say(r->err, GDN_E_MODEL, "%s: linear_key_head_dim is %u, must be 64 or 128", r->label, c->k_dim);
    if (c->hidden % 8) return gdn__engine_say(r->err, GDN_E_MODEL, "%s: hidden_size %u is not a multiple of 8", r->label, c->hidden);
    return GDN_OK;
}

/* Weights that are codes and scales would otherwise fail one tensor at a time, or not at all. */
static gdn_status check_quantization(const reader *r) {
    const json_t *q = json_object_get(r->root, "quantization_config");
    if (!q || json_is_null(q)) return GDN_OK;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return gdn__engine_say(r->err, GDN_E_MODEL, "%s: quantization_config (%.60s) is not supported, only plain BF16, F16 or F32 weights",
                           r->label, method ? method : "no quant_method");
}

static gdn_status read_root(const reader *r, gdn_model_config *c) {
    gdn_status s = want_text(r, "model_type", "qwen3_next");
    if (s == GDN_OK) s = check_quantization(r);
    if (s == GDN_OK) s = want_text(r, "hidden_act", "silu");
    const struct {
        const char *key;
        uint32_t lo, hi, *out;
    } numbers[] = {
        { "vocab_size", 2, 1u << 22, &c->vocab },           { "hidden_size", 8, 1u << 16, &c->hidden },
        { "intermediate_size", 1, 1u << 18, &c->inter },    { "num_hidden_layers", 1, MAX_LAYERS, &c->layers },
        { "linear_num_key_heads", 1, 1024, &c->nk },        { "linear_num_value_heads", 1, 1024, &c->nv },
        { "linear_key_head_dim", 1, 1024, &c->k_dim },      { "linear_value_head_dim", 1, 1024, &c->v_dim },
        { "linear_conv_kernel_dim", 1, 8, &c->conv_width },
    };
    for (size_t i = 0; s == GDN_OK && i < sizeof numbers / sizeof *numbers; i++)
        s = get_u32(r, numbers[i].key, numbers[i].lo, numbers[i].hi, numbers[i].out);
    if (s == GDN_OK) s = get_eps(r, &c->eps);
    if (s == GDN_OK) s = get_tied(r, &c->tied);
    if (s == GDN_OK) s = check_layer_types(r, c->layers);
    if (s == GDN_OK) s = check_experts(r, c->layers);
    if (s == GDN_OK) s = check_heads(r, c);
    return s;
}

gdn_status gdn_config_parse(const void *bytes, uint64_t size, const char *label, gdn_model_config *out, gdn_text *err) {
    *out = (gdn_model_config) { 0 };
    json_error_t je;
    json_t *root = json_loadb(bytes, (size_t)size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!root) return gdn__engine_say(err, GDN_E_MODEL, "%s: line %d: not JSON: %.120s", label, je.line, je.text);
    const reader r = { root, label, err };
    gdn_model_config c = { 0 };
    gdn_status s = json_is_object(root) ? read_root(&r, &c) : gdn__engine_say(err, GDN_E_MODEL, "%s: not a JSON object", label);
    if (s == GDN_OK) *out = c;
    json_decref(root);
    return s;
}

gdn_status gdn_config_read(const char *path, gdn_model_config *out, gdn_text *err) {
    char *bytes = NULL;
    uint64_t size = 0;
    gdn_status s = gdn__read_file(path, MAX_FILE, &bytes, &size, err);
    if (s == GDN_OK) s = gdn_config_parse(bytes, size, path, out, err);
    free(bytes);
    return s;
}

static gdn_status read_all(int fd, const char *path, uint64_t limit, char **out, uint64_t *size, gdn_text *err) {
    struct stat sb;
    if (fstat(fd, &sb) != 0) return gdn__engine_say(err, GDN_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(sb.st_mode)) return gdn__engine_say(err, GDN_E_IO, "%s: not a regular file", path);
    if ((uint64_t)sb.st_size > limit)
        return gdn__engine_say(err, GDN_E_IO, "%s: %lld bytes, more than the limit of %llu", path, (long long)sb.st_size,
                               (unsigned long long)limit);
    const uint64_t cap = (uint64_t)sb.st_size;
    char *buf = malloc((size_t)cap + 1);
    if (!buf) return gdn__engine_say(err, GDN_E_NOMEM, "%s: out of memory", path);
    uint64_t n = 0;
    while (n < cap) {
        const ssize_t got = read(fd, buf + n, (size_t)(cap - n));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(buf);
            return gdn__engine_say(err, GDN_E_IO, "%s: %s", path, strerror(errno));
        }
        if (!got) break;
        n += (uint64_t)got;
    }
    buf[n] = 0;
    *out = buf;
    *size = n;
    return GDN_OK;
}

gdn_status gdn__read_file(const char *path, uint64_t limit, char **out, uint64_t *size, gdn_text *err) {
    *out = NULL;
    *size = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return gdn__engine_say(err, GDN_E_IO, "%s: %s", path, strerror(errno));
    const gdn_status s = read_all(fd, path, limit, out, size, err);
    close(fd);
    return s;
}
