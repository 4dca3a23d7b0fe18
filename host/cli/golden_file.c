/* golden_file.c - opens a recorded layer and reads its tensors. */
#include "golden_file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

static bool number(const cli_common *c, const golden *l, const char *key, uint64_t lo, uint64_t hi, uint32_t *out) {
    const char *text = gdn_st_metadata(l->st, key);
    if (!text) {
        cli_error(c, "%s: metadata has no %s: not a recorded layer?", l->file, key);
        return false;
    }
    char *end = NULL;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v < lo || v > hi) {
        cli_error(c, "%s: metadata %s is '%.40s', must be %llu to %llu", l->file, key, text, (unsigned long long)lo,
                  (unsigned long long)hi);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

static bool epsilon(const cli_common *c, golden *l) {
    const char *text = gdn_st_metadata(l->st, "rms_eps");
    char *end = NULL;
    const double v = text ? strtod(text, &end) : 0;
    if (text && end != text && !*end && v >= 1e-12 && v <= 0.1) {
        l->eps = (float)v;
        return true;
    }
    cli_error(c, "%s: metadata rms_eps is %.40s, must be 1e-12 to 0.1", l->file, text ? text : "missing");
    return false;
}

static bool layout(const cli_common *c, golden *l) {
    const char *model = gdn_st_metadata(l->st, "model");
    l->interleaved = model && !strcmp(model, "qwen3_next");
    if (l->interleaved || (model && !strcmp(model, "qwen3_5"))) return true;
    cli_error(c, "%s: metadata model is '%.40s', must be qwen3_next or qwen3_5", l->file, model ? model : "missing");
    return false;
}

static bool geometry(const cli_common *c, golden *l) {
    bool ok = layout(c, l) && number(c, l, "hidden", 8, 65536, &l->hidden) && number(c, l, "num_k_heads", 1, 256, &l->nk);
    ok = ok && number(c, l, "num_v_heads", 1, 256, &l->nv) && number(c, l, "head_dim", 64, 128, &l->dim);
    ok = ok && number(c, l, "batch", 1, 1024, &l->batch) && number(c, l, "prefill_tokens", 1, 1u << 20, &l->tokens);
    ok = ok && number(c, l, "decode_steps", 0, 10000, &l->steps) && epsilon(c, l);
    if (ok && (l->nv % l->nk || (l->dim != 64 && l->dim != 128) || l->hidden % 8)) {
        cli_error(c, "%s: metadata: value heads must be a multiple of key heads, head_dim 64 or 128, hidden a multiple of 8", l->file);
        ok = false;
    }
    l->channels = (2 * l->nk + l->nv) * l->dim;
    return ok;
}

bool golden_open(const cli_common *c, const char *file, golden *out) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    *out = (golden) { .file = file };
    if (gdn_st_open(file, &out->st, &err) != GDN_OK) {
        cli_error(c, "%s", buf);
        return false;
    }
    if (geometry(c, out)) return true;
    golden_close(out);
    return false;
}

void golden_close(golden *l) {
    gdn_st_close(l->st);
    l->st = NULL;
}

/* ---- tensors ---- */

float *golden_read(const cli_common *c, const golden *l, const char *group, const char *name, uint32_t rank, const uint64_t *shape) {
    char full[120];
    snprintf(full, sizeof full, "%s.%s", group, name);
    const gdn_st_tensor *t = gdn_st_find(l->st, full);
    bool same = t && t->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) same = t->shape[i] == shape[i];
    if (!t) {
        cli_error(c, "%s: tensor '%s' is missing", l->file, full);
    } else if (!same) {
        cli_error(c, "%s: tensor '%s' has another shape than the metadata says", l->file, full);
    } else if (!gdn_st_is_float(t)) {
        cli_error(c, "%s: tensor '%s' is %s, must be BF16, F16 or F32", l->file, full, gdn_st_dtype_name(t->dtype));
    } else {
        float *out = malloc((size_t)(t->count ? t->count : 1) * sizeof *out);
        if (out)
            gdn_st_read_f32(t, 0, t->count, out);
        else
            cli_error(c, "out of memory");
        return out;
    }
    return NULL;
}
