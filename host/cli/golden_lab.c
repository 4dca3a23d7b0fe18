/* golden_lab.c - memory, launches and comparisons for recorded layers; the layer's weights. */
#include "golden_lab.h"
#include "engine_internal.h"
#include "numbers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fail(golden_lab *b, const char *what) {
    if (!b->failed && what) cli_error(b->c, "%s", what);
    b->failed = true;
}

/* ---- host arrays ---- */

static float *keep(golden_lab *b, float *p) {
    if (!p) {
        b->failed = true;
        return NULL;
    }
    if (b->n_host == b->cap_host) {
        const uint32_t cap = b->cap_host ? 2 * b->cap_host : 32;
        float **grown = realloc(b->host, cap * sizeof(float *));
        if (!grown) {
            free(p);
            fail(b, "out of memory");
            return NULL;
        }
        b->host = grown;
        b->cap_host = cap;
    }
    b->host[b->n_host++] = p;
    return p;
}

float *lab_host(golden_lab *b, uint64_t n) {
    if (b->failed) return NULL;
    float *p = calloc((size_t)(n ? n : 1), sizeof *p);
    if (!p) fail(b, "out of memory");
    return keep(b, p);
}

float *lab_read(golden_lab *b, const char *group, const char *name, uint32_t rank, const uint64_t *shape) {
    return b->failed ? NULL : keep(b, golden_read(b->c, b->l, group, name, rank, shape));
}

/* ---- device memory ---- */

static uint64_t put_in(golden_lab *b, gdn__arena *where, const float *src, uint64_t n, uint32_t type) {
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    uint64_t at = 0;
    if (b->failed || !src) return 0;
    if (gdn__arena_put(where, src, n, type, &at, &err) != GDN_OK) fail(b, buf);
    return at;
}

uint64_t lab_put(golden_lab *b, const float *src, uint64_t n, uint32_t type) {
    return put_in(b, &b->call, src, n, type);
}

uint64_t lab_take(golden_lab *b, uint64_t n, uint32_t type) {
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    uint64_t at = 0;
    if (b->failed) return 0;
    if (gdn__arena_zeros(&b->call, n * gdn__type_bytes(type), &at, &err) != GDN_OK) fail(b, buf);
    return at;
}

float *lab_get(golden_lab *b, uint64_t src, uint64_t n, uint32_t type) {
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    float *p = lab_host(b, n);
    if (p && gdn__arena_get(&b->call, src, n, type, p, &err) != GDN_OK) fail(b, buf);
    return b->failed ? NULL : p;
}

uint64_t lab_matmul(golden_lab *b, uint64_t x, uint64_t w, uint32_t rows, uint32_t in, uint32_t out) {
    const uint64_t n = (uint64_t)rows * out;
    const uint64_t y = lab_take(b, n, b->act);
    if (b->failed) return 0;
    if (b->dense->matmul(b->dense_ctx, x, w, y, rows, in, out, b->act) != GDN_OK) fail(b, "the projection failed");
    if (b->act == GDN_BF16) return y;
    float *v = lab_get(b, y, n, GDN_F32); /* the recording's projections are bf16 */
    for (uint64_t i = 0; v && i < n; i++) v[i] = gdn__round_bf16(v[i]);
    return lab_put(b, v, n, GDN_F32);
}

/* ---- launches ---- */

static void note_route(golden_lab *b, uint32_t op, const gdn_route *r) {
    const char *name = gdn_op_name(op), *entry = r->entry ? r->entry : "-";
    size_t i;
    json_t *seen;
    json_array_foreach(b->routes, i, seen) {
        if (!strcmp(json_string_value(json_object_get(seen, "entry")), entry)) return;
    }
    json_array_append_new(b->routes, json_pack("{s:s,s:s}", "op", name, "entry", cli_text(entry)));
}

void lab_launch(golden_lab *b, const gdn_shape *shape, uint32_t n_ptr, uint64_t *ptr, int workspace, uint32_t n_u32, const uint32_t *u32) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_hplan *plan = NULL;
    if (b->failed) return;
    gdn_status s = gdn_plan_make(b->g, shape, NULL, &plan, &err);
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    if (s == GDN_OK) s = gdn_explain(plan, n_u32, u32, &r);
    if (s == GDN_OK) {
        note_route(b, shape->op, &r);
        if (workspace >= 0 && r.workspace_bytes) ptr[workspace] = lab_take(b, r.workspace_bytes, GDN_F32);
        const gdn_launch_args args = { .struct_size = (uint32_t)sizeof args, .n_ptr = n_ptr, .n_u32 = n_u32, .ptr = ptr, .u32 = u32 };
        if (!b->failed) s = gdn_launch(plan, &args);
        if (s == GDN_OK) s = gdn_sync(b->g, NULL);
    }
    gdn_plan_free(plan);
    if (s == GDN_OK || b->failed) return;
    if (buf[0])
        cli_error(b->c, "%s", buf); /* it names the operation */
    else
        cli_error(b->c, "%s: %s", gdn_op_name(shape->op), gdn_status_text(s));
    b->failed = true;
}

/* ---- comparing ---- */

void lab_add(lab_sums *sums, const float *got, const float *want, uint64_t n) {
    if (!got || !want) return;
    for (uint64_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i], w = (double)want[i];
        sums->diff += d * d;
        sums->norm += w * w;
    }
}

void lab_note(golden_lab *b, const char *call, const char *stage, const lab_sums *sums, double bound) {
    if (b->failed) return;
    const double e = sqrt(sums->norm > 0 ? sums->diff / sums->norm : sums->diff);
    const bool ok = e <= bound; /* false for a NaN */
    b->over += !ok;
    json_array_append_new(b->results, json_pack("{s:s,s:s,s:o,s:f,s:b}", "call", call, "stage", stage, "error",
                                                isfinite(e) ? json_real(e) : json_null(), "bound", bound, "ok", ok));
    if (!b->c->json) printf("%-9s %-22s %.3e  bound %.3e  %s\n", call, stage, e, bound, ok ? "ok" : "ABOVE ITS BOUND");
}

void lab_compare(golden_lab *b, const char *call, const char *stage, const float *got, const float *want, uint64_t n, double bound) {
    lab_sums sums = { 0, 0 };
    if (b->failed || !got || !want) return;
    lab_add(&sums, got, want, n);
    lab_note(b, call, stage, &sums, bound);
}

/* ---- the layer's weights ---- */

static float *weight(golden_lab *b, const char *name, uint64_t rows, uint64_t cols) {
    return lab_read(b, "weight", name, 2, (const uint64_t[]) { rows, cols });
}

/* One matrix for q, k, v and z: rows Q | K | V | Z. */
static float *qkvz(golden_lab *b) {
    const golden *l = b->l;
    const uint64_t z = (uint64_t)l->nv * l->dim, rows = l->channels + z, cols = l->hidden;
    float *out = lab_host(b, rows * cols);
    if (l->interleaved) {
        const float *src = weight(b, "in_proj_qkvz.weight", rows, cols);
        for (uint32_t r = 0; src && out && r < rows; r++)
            memcpy(out + r * cols, src + gdn__qkvz_source_row(l->nk, l->nv, l->dim, r) * cols, (size_t)cols * sizeof *out);
        return src ? out : NULL;
    }
    const float *qkv = weight(b, "in_proj_qkv.weight", l->channels, cols), *pz = weight(b, "in_proj_z.weight", z, cols);
    if (!out || !qkv || !pz) return NULL;
    memcpy(out, qkv, (size_t)(l->channels * cols) * sizeof *out);
    memcpy(out + l->channels * cols, pz, (size_t)(z * cols) * sizeof *out);
    return out;
}

/* One matrix for b and a: interleaved per key head as it is, else all b, then all a. */
static float *ba(golden_lab *b) {
    const golden *l = b->l;
    const uint64_t cols = l->hidden, half = l->nv * cols;
    if (l->interleaved) return weight(b, "in_proj_ba.weight", 2ull * l->nv, cols);
    float *out = lab_host(b, 2 * half);
    const float *pb = weight(b, "in_proj_b.weight", l->nv, cols), *pa = weight(b, "in_proj_a.weight", l->nv, cols);
    if (!out || !pb || !pa) return NULL;
    memcpy(out, pb, (size_t)half * sizeof *out);
    memcpy(out + half, pa, (size_t)half * sizeof *out);
    return out;
}

static void take_weights(golden_lab *b) {
    const golden *l = b->l;
    const uint64_t core = (uint64_t)l->nv * l->dim, width = GOLDEN_CONV_WIDTH;
    const uint32_t dense = b->dense->weight_type(b->act);
    const float *p_ba = ba(b);
    b->w_qkvz = put_in(b, &b->weights, qkvz(b), (l->channels + core) * l->hidden, dense);
    b->w_ba = put_in(b, &b->weights, p_ba, 2ull * l->nv * l->hidden, b->act);
    b->w_ba_dense = put_in(b, &b->weights, p_ba, 2ull * l->nv * l->hidden, dense);
    b->w_conv = put_in(b, &b->weights, lab_read(b, "weight", "conv1d.weight", 3, (const uint64_t[]) { l->channels, 1, width }),
                       l->channels * width, b->act);
    b->w_norm = put_in(b, &b->weights, lab_read(b, "weight", "norm.weight", 1, (const uint64_t[]) { l->dim }), l->dim, b->act);
    b->w_out = put_in(b, &b->weights, weight(b, "out_proj.weight", l->hidden, core), core * l->hidden, dense);
    b->w_a_log = put_in(b, &b->weights, lab_read(b, "weight", "A_log", 1, (const uint64_t[]) { l->nv }), l->nv, GDN_F32);
    b->w_dt_bias = put_in(b, &b->weights, lab_read(b, "weight", "dt_bias", 1, (const uint64_t[]) { l->nv }), l->nv, GDN_F32);
}

bool lab_open(golden_lab *b, const cli_common *c, const golden *l, gdn *g, uint32_t act) {
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    *b = (golden_lab) { .c = c, .l = l, .g = g, .act = act, .weights.g = g, .call.g = g, .dense = gdn__dense_for(g) };
    b->results = json_array();
    b->routes = json_array();
    const uint64_t rows = (uint64_t)l->batch * l->tokens, widest = l->channels + l->nv * l->dim + l->hidden;
    if (!b->dense)
        fail(b, "no dense operations for this target's memory");
    else if (rows > UINT32_MAX / 2 / l->nv)
        fail(b, "the recording has too many rows");
    else if (b->dense->open(g, NULL, act, rows * widest, &b->dense_ctx, &err) != GDN_OK)
        fail(b, buf);
    else
        take_weights(b);
    lab_end_call(b);
    return !b->failed;
}

void lab_end_call(golden_lab *b) {
    while (b->n_host) free(b->host[--b->n_host]);
    gdn__arena_free(&b->call);
}

void lab_close(golden_lab *b) {
    lab_end_call(b);
    gdn__arena_free(&b->weights);
    if (b->dense) b->dense->close(b->dense_ctx);
    free(b->host);
    json_decref(b->routes);
    json_decref(b->results);
}
