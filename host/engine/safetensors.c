/* safetensors.c - opens a safetensors container and checks all of it before anything is used. */
#include "safetensors.h"
#include "engine_text.h"
#include "numbers.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct gdn_st {
    char *label;
    void *map; /* NULL: the caller's bytes */
    size_t map_size;
    json_t *header;
    gdn_st_tensor *tensors; /* sorted by name */
    uint64_t count;
};

#define NAME_(name, bytes) #name,
static const char *const dtype_names[GDN_ST_DTYPES] = { GDN_ST_DTYPE_MAP(NAME_) };
#undef NAME_
#define BYTES_(name, bytes) bytes,
static const uint8_t dtype_bytes[GDN_ST_DTYPES] = { GDN_ST_DTYPE_MAP(BYTES_) };
#undef BYTES_

const char *gdn_st_dtype_name(uint32_t dtype) {
    return dtype < GDN_ST_DTYPES ? dtype_names[dtype] : "?";
}

/* ---- one tensor of the header ---- */

static gdn_status bad(gdn_text *err, const char *label, const char *name, const char *why) {
    return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%.120s': %s", label, name, why);
}

static gdn_status read_dtype(const json_t *entry, const char *label, gdn_st_tensor *t, gdn_text *err) {
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text) return bad(err, label, t->name, "dtype is missing or not a string");
    for (uint32_t d = 0; d < GDN_ST_DTYPES; d++)
        if (!strcmp(text, dtype_names[d])) {
            t->dtype = d;
            return GDN_OK;
        }
    return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%.120s': dtype '%.40s' is not known", label, t->name, text);
}

/* A JSON integer that is not negative. */
static bool whole(const json_t *v, uint64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static gdn_status read_shape(const json_t *entry, const char *label, gdn_st_tensor *t, gdn_text *err) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return bad(err, label, t->name, "shape is missing or not an array");
    if (json_array_size(shape) > GDN_ST_MAX_RANK) return bad(err, label, t->name, "shape has more than 8 dimensions");
    t->rank = (uint32_t)json_array_size(shape);
    t->count = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (!whole(json_array_get(shape, i), &t->shape[i]))
            return bad(err, label, t->name, "shape holds something that is not a whole number");
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count)) return bad(err, label, t->name, "shape overflows 64 bits");
    }
    return GDN_OK;
}

static gdn_status read_offsets(const json_t *entry, const char *label, uint64_t data_size, gdn_st_tensor *t, gdn_text *err) {
    const json_t *off = json_object_get(entry, "data_offsets");
    if (!json_is_array(off) || json_array_size(off) != 2) return bad(err, label, t->name, "data_offsets is not an array of two");
    uint64_t end = 0, want = 0;
    if (!whole(json_array_get(off, 0), &t->begin) || !whole(json_array_get(off, 1), &end))
        return bad(err, label, t->name, "data_offsets holds something that is not a whole number");
    if (end < t->begin) return bad(err, label, t->name, "data_offsets run backwards");
    if (end > data_size) return bad(err, label, t->name, "data_offsets end beyond the file (truncated?)");
    t->bytes = end - t->begin;
    if (__builtin_mul_overflow(t->count, (uint64_t)dtype_bytes[t->dtype], &want))
        return bad(err, label, t->name, "shape overflows 64 bits");
    if (want != t->bytes)
        return gdn__engine_say(err, GDN_E_MODEL, "%s: tensor '%.120s': shape and dtype need %llu bytes, data_offsets hold %llu", label,
                               t->name, (unsigned long long)want, (unsigned long long)t->bytes);
    return GDN_OK;
}

static gdn_status read_tensor(const json_t *entry, const char *label, uint64_t data_size, gdn_st_tensor *t, gdn_text *err) {
    if (!json_is_object(entry)) return bad(err, label, t->name, "entry is not an object");
    gdn_status s = read_dtype(entry, label, t, err);
    if (s == GDN_OK) s = read_shape(entry, label, t, err);
    if (s == GDN_OK) s = read_offsets(entry, label, data_size, t, err);
    return s;
}

/* ---- the whole header ---- */

static int by_place(const void *pa, const void *pb) {
    const gdn_st_tensor *a = pa, *b = pb;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int by_name(const void *pa, const void *pb) {
    return strcmp(((const gdn_st_tensor *)pa)->name, ((const gdn_st_tensor *)pb)->name);
}

/* The tensors, in the order of their offsets, must follow each other without gap and end at the file's end. */
static gdn_status check_tiling(const gdn_st *st, uint64_t data_size, gdn_text *err) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < st->count; i++) {
        const gdn_st_tensor *t = &st->tensors[i];
        if (t->begin < at) return bad(err, st->label, t->name, "overlaps the tensor before it");
        if (t->begin > at) return bad(err, st->label, t->name, "there is a hole before it");
        at += t->bytes;
    }
    if (at != data_size)
        return gdn__engine_say(err, GDN_E_MODEL, "%s: %llu bytes after the last tensor", st->label, (unsigned long long)(data_size - at));
    return GDN_OK;
}

static gdn_status check_metadata(const gdn_st *st, gdn_text *err) {
    json_t *meta = json_object_get(st->header, "__metadata__");
    if (!meta) return GDN_OK;
    if (!json_is_object(meta)) return gdn__engine_say(err, GDN_E_MODEL, "%s: __metadata__ is not an object", st->label);
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value) if (!json_is_string(value)) return gdn__engine_say(
        err, GDN_E_MODEL, "%s: __metadata__ value of '%.80s' is not a string", st->label, key);
    return GDN_OK;
}

static gdn_status read_tensors(gdn_st *st, const unsigned char *data, uint64_t data_size, gdn_text *err) {
    const size_t n = json_object_size(st->header);
    st->tensors = calloc(n ? n : 1, sizeof *st->tensors);
    if (!st->tensors) return gdn__engine_say(err, GDN_E_NOMEM, "%s: out of memory", st->label);
    const char *key;
    json_t *value;
    json_object_foreach(st->header, key, value) {
        if (!strcmp(key, "__metadata__")) continue;
        gdn_st_tensor *t = &st->tensors[st->count];
        t->name = key;
        const gdn_status s = read_tensor(value, st->label, data_size, t, err);
        if (s != GDN_OK) return s;
        t->data = data + t->begin;
        st->count++;
    }
    qsort(st->tensors, (size_t)st->count, sizeof *st->tensors, by_place);
    const gdn_status s = check_tiling(st, data_size, err);
    qsort(st->tensors, (size_t)st->count, sizeof *st->tensors, by_name);
    return s;
}

static gdn_status parse(gdn_st *st, const unsigned char *bytes, uint64_t size, gdn_text *err) {
    if (size < 8)
        return gdn__engine_say(err, GDN_E_MODEL, "%s: %llu bytes are too few for a safetensors file", st->label, (unsigned long long)size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = (n << 8) | bytes[i];
    if (n > GDN_ST_MAX_HEADER)
        return gdn__engine_say(err, GDN_E_MODEL, "%s: header length %llu is above the limit of %d: not a safetensors file?", st->label,
                               (unsigned long long)n, GDN_ST_MAX_HEADER);
    if (n > size - 8)
        return gdn__engine_say(err, GDN_E_MODEL, "%s: header length %llu is beyond the file's %llu bytes", st->label, (unsigned long long)n,
                               (unsigned long long)size);
    json_error_t je;
    st->header = json_loadb((const char *)bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!st->header) return gdn__engine_say(err, GDN_E_MODEL, "%s: header is not JSON: %.120s (byte %d)", st->label, je.text, je.position);
    if (!json_is_object(st->header)) return gdn__engine_say(err, GDN_E_MODEL, "%s: header is not a JSON object", st->label);
    const gdn_status s = check_metadata(st, err);
    return s == GDN_OK ? read_tensors(st, bytes + 8 + n, size - 8 - n, err) : s;
}

/* ---- opening ---- */

/* NULL: out of memory, and said. */
static gdn_st *make(const char *label, gdn_text *err) {
    gdn_st *st = calloc(1, sizeof *st);
    if (st) st->label = strdup(label);
    if (st && st->label) return st;
    free(st);
    (void)gdn__engine_say(err, GDN_E_NOMEM, "%s: out of memory", label);
    return NULL;
}

void gdn_st_close(gdn_st *st) {
    if (!st) return;
    free(st->tensors);
    json_decref(st->header);
    if (st->map) munmap(st->map, st->map_size);
    free(st->label);
    free(st);
}

gdn_status gdn_st_open_memory(const void *bytes, uint64_t size, const char *label, gdn_st **out, gdn_text *err) {
    *out = NULL;
    gdn_st *st = make(label, err);
    if (!st) return GDN_E_NOMEM;
    const gdn_status s = parse(st, bytes, size, err);
    if (s != GDN_OK) {
        gdn_st_close(st);
        return s;
    }
    *out = st;
    return GDN_OK;
}

static gdn_status map_file(gdn_st *st, const char *path, gdn_text *err) {
    gdn_status s = GDN_E_IO;
    struct stat sb;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return gdn__engine_say(err, GDN_E_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &sb) != 0) {
        s = gdn__engine_say(err, GDN_E_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(sb.st_mode)) {
        s = gdn__engine_say(err, GDN_E_IO, "%s: not a regular file", path);
    } else if (sb.st_size <= 0) {
        s = gdn__engine_say(err, GDN_E_MODEL, "%s: the file is empty", path);
    } else {
        void *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            s = gdn__engine_say(err, GDN_E_IO, "%s: mmap: %s", path, strerror(errno));
        } else {
            st->map = p;
            st->map_size = (size_t)sb.st_size;
            s = GDN_OK;
        }
    }
    close(fd);
    return s;
}

gdn_status gdn_st_open(const char *path, gdn_st **out, gdn_text *err) {
    *out = NULL;
    gdn_st *st = make(path, err);
    if (!st) return GDN_E_NOMEM;
    gdn_status s = map_file(st, path, err);
    if (s == GDN_OK) s = parse(st, st->map, st->map_size, err);
    if (s != GDN_OK) {
        gdn_st_close(st);
        return s;
    }
    *out = st;
    return GDN_OK;
}

/* ---- reading ---- */

const char *gdn_st_label(const gdn_st *st) {
    return st->label;
}

uint64_t gdn_st_count(const gdn_st *st) {
    return st->count;
}

const gdn_st_tensor *gdn_st_at(const gdn_st *st, uint64_t i) {
    return i < st->count ? &st->tensors[i] : NULL;
}

const gdn_st_tensor *gdn_st_find(const gdn_st *st, const char *name) {
    const gdn_st_tensor key = { .name = name };
    return bsearch(&key, st->tensors, (size_t)st->count, sizeof *st->tensors, by_name);
}

const char *gdn_st_metadata(const gdn_st *st, const char *key) {
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}

bool gdn_st_is_float(const gdn_st_tensor *t) {
    return t->dtype == GDN_ST_BF16 || t->dtype == GDN_ST_F16 || t->dtype == GDN_ST_F32;
}

void gdn_st_read_f32(const gdn_st_tensor *t, uint64_t first, uint64_t n, float *out) {
    if (t->dtype == GDN_ST_F32) {
        memcpy(out, t->data + first * 4, (size_t)n * 4);
        return;
    }
    const unsigned char *p = t->data + first * 2;
    for (uint64_t i = 0; i < n; i++, p += 2) {
        const uint16_t h = (uint16_t)(p[0] | (p[1] << 8));
        out[i] = t->dtype == GDN_ST_BF16 ? gdn__from_bf16(h) : gdn__from_f16(h);
    }
}
