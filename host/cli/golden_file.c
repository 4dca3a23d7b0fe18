/* golden_file.c - opens a recorded layer and reads its tensors. */
#include "golden_file.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

/* An error line with text from the file in it. */
static void complain(const cli_common *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(const cli_common *c, const char *fmt, ...) {
    char buf[600] = "";
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    for (char *p = buf; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    cli_error(c, "%s", buf);
}

static const char *metadata(const cli_common *c, const golden *l, const char *key) {
    const char *text = gdn_st_metadata(l->st, key);
    if (!text) cli_error(c, "%s: metadata has no %s: not a recorded layer?", l->file, key);
    return text;
}

static bool number(const cli_common *c, const golden *l, const char *key, uint64_t lo, uint64_t hi, uint32_t *out) {
    const char *text = metadata(c, l, key);
    if (!text) return false;
    char *end = NULL;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v < lo || v > hi) {
        complain(c, "%s: metadata %s is '%.40s', must be %llu to %llu", l->file, key, text, (unsigned long long)lo, (unsigned long long)hi);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

/* A number as JSON writes it, whatever the locale. */
static bool real(const cli_common *c, const golden *l, const char *key, double lo, double hi, double *out) {
    const char *text = metadata(c, l, key);
    if (!text) return false;
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool ok = json_is_number(v) && json_number_value(v) >= lo && json_number_value(v) <= hi;
    *out = json_number_value(v);
    if (!ok && lo < hi) complain(c, "%s: metadata %s is '%.40s', must be %g to %g", l->file, key, text, lo, hi);
    if (!ok && lo == hi) complain(c, "%s: metadata %s is '%.40s', must be %g", l->file, key, text, lo);
    json_decref(v);
    return ok;
}

/* The rule's own epsilon is a constant of the ABI: a layer recorded with another one cannot be compared. */
static bool epsilons(const cli_common *c, golden *l) {
    double l2 = 0, rms = 0;
    if (!real(c, l, "l2norm_eps", 1e-6, 1e-6, &l2) || !real(c, l, "rms_eps", 1e-12, 0.1, &rms)) return false;
    l->eps = (float)rms;
    return true;
}

static bool layout(const cli_common *c, golden *l) {
    const char *model = gdn_st_metadata(l->st, "model");
    l->interleaved = model && !strcmp(model, "qwen3_next");
    if (l->interleaved || (model && !strcmp(model, "qwen3_5"))) return true;
    complain(c, "%s: metadata model is '%.40s', must be qwen3_next or qwen3_5", l->file, model ? model : "missing");
    return false;
}

static bool geometry(const cli_common *c, golden *l) {
    bool ok = layout(c, l) && number(c, l, "hidden", 8, 65536, &l->hidden) && number(c, l, "num_k_heads", 1, 256, &l->nk);
    ok = ok && number(c, l, "num_v_heads", 1, 256, &l->nv) && number(c, l, "head_dim", 64, 128, &l->dim);
    ok = ok && number(c, l, "batch", 1, 1024, &l->batch) && number(c, l, "prefill_tokens", 1, 1u << 20, &l->tokens);
    ok = ok && number(c, l, "decode_steps", 0, 10000, &l->steps) && epsilons(c, l);
    if (ok && (l->nv % l->nk || (l->dim != 64 && l->dim != 128) || l->hidden % 8)) {
        cli_error(c, "%s: metadata: value heads must be a multiple of key heads, head_dim 64 or 128, hidden a multiple of 8", l->file);
        ok = false;
    }
    l->channels = (2 * l->nk + l->nv) * l->dim;
    return ok;
}

/* ---- what the file holds, against the metadata ---- */

enum { NAME = 120 };
static const char *const call_tensors[] = { "hidden",   "conv_out",  "q",        "k", "v",        "g",          "beta",
                                            "state_in", "state_out", "core_out", "z", "norm_out", "conv_state", "out" };
static const char *const weight_tensors[] = { "A_log", "conv1d.weight", "dt_bias", "norm.weight", "out_proj.weight" },
                         *const next_tensors[] = { "in_proj_qkvz.weight", "in_proj_ba.weight" },
                         *const apart_tensors[] = { "in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight" };
#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool among(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i])) return true;
    return false;
}

/* Whether `name` is a tensor of a layer like this one; *step: 1 + the decode call that it is of, else 0. */
static bool belongs(const golden *l, const char *name, uint64_t *step) {
    *step = 0;
    if (!strncmp(name, "weight.", 7)) {
        if (among(name + 7, weight_tensors, COUNT(weight_tensors))) return true;
        return l->interleaved ? among(name + 7, next_tensors, COUNT(next_tensors)) : among(name + 7, apart_tensors, COUNT(apart_tensors));
    }
    if (!strncmp(name, "prefill.", 8)) return among(name + 8, call_tensors, COUNT(call_tensors));
    unsigned at = 0;
    char again[NAME];
    const char *dot = strchr(name, '.');
    if (!dot || sscanf(name, "decode%9u", &at) != 1) return false;
    snprintf(again, sizeof again, "decode%u.", at); /* decode01 is not decode1 */
    *step = at + 1ull;
    return !strncmp(name, again, strlen(again)) && among(dot + 1, call_tensors, COUNT(call_tensors));
}

static void shape_text(char buf[NAME], uint32_t rank, const uint64_t *shape) {
    size_t at = 0;
    buf[0] = 0;
    for (uint32_t i = 0; i < rank && at < NAME; i++)
        at += (size_t)snprintf(buf + at, NAME - at, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
}

/* The tensor is there, holds numbers and has this shape. */
static bool is_shaped(const cli_common *c, const golden *l, const char *name, uint32_t rank, const uint64_t *shape) {
    const gdn_st_tensor *t = gdn_st_find(l->st, name);
    bool same = t && t->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) same = t->shape[i] == shape[i];
    if (!t) {
        cli_error(c, "%s: tensor '%s' is missing", l->file, name);
    } else if (!same) {
        char has[NAME], want[NAME];
        shape_text(has, t->rank, t->shape);
        shape_text(want, rank, shape);
        cli_error(c, "%s: tensor '%s' has shape [%s], the metadata says [%s]", l->file, name, has, want);
    } else if (!gdn_st_is_float(t)) {
        cli_error(c, "%s: tensor '%s' is %s, must be BF16, F16 or F32", l->file, name, gdn_st_dtype_name(t->dtype));
    } else {
        return true;
    }
    return false;
}

/* Every tensor has a place, and the calls are as many as decode_steps says. */
static bool holds_what_it_says(const cli_common *c, const golden *l) {
    for (uint64_t i = 0; i < gdn_st_count(l->st); i++) {
        const char *name = gdn_st_at(l->st, i)->name;
        uint64_t step = 0;
        if (!belongs(l, name, &step)) {
            complain(c, "%s: tensor '%.120s' has no place in a recorded layer", l->file, name);
            return false;
        }
        if (step > l->steps) {
            complain(c, "%s: metadata decode_steps is %u, but there is a tensor '%.120s'", l->file, l->steps, name);
            return false;
        }
    }
    for (uint32_t i = 0; i < l->steps; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "decode%u.hidden", i);
        if (gdn_st_find(l->st, name)) continue;
        cli_error(c, "%s: metadata decode_steps is %u, but tensor '%s' is missing", l->file, l->steps, name);
        return false;
    }
    return is_shaped(c, l, "prefill.hidden", 3, (const uint64_t[]) { l->batch, l->tokens, l->hidden });
}

bool golden_open(const cli_common *c, const char *file, golden *out) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    *out = (golden) { .file = file };
    if (gdn_st_open(file, &out->st, &err) != GDN_OK) {
        cli_error(c, "%s", buf);
        return false;
    }
    if (geometry(c, out) && holds_what_it_says(c, out)) return true;
    golden_close(out);
    return false;
}

void golden_close(golden *l) {
    gdn_st_close(l->st);
    l->st = NULL;
}

/* ---- tensors ---- */

float *golden_read(const cli_common *c, const golden *l, const char *group, const char *name, uint32_t rank, const uint64_t *shape) {
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", group, name);
    if (!is_shaped(c, l, full, rank, shape)) return NULL;
    const gdn_st_tensor *t = gdn_st_find(l->st, full);
    float *out = malloc((size_t)(t->count ? t->count : 1) * sizeof *out);
    if (!out) {
        cli_error(c, "out of memory");
        return NULL;
    }
    gdn_st_read_f32(t, 0, t->count, out);
    return out;
}
