/* dense_gpu.c - the dense operations on a CUDA device: projections by cuBLAS, the rest by the kernels of engine_rows.cu, which are
 * compiled through the target's own backend for the device that is there. bf16 only. */
#include "cublas.h"
#include "dense.h"
#include "engine.h"
#include "engine_rows.h"
#include "engine_text.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct gpu {
    const gdn_backend *backend;
    int32_t ordinal;
    gdn__stream *stream, *own; /* own: one that was opened here */
    void *module;
    void *fn[GDN__ROWS_ENTRIES];
    gdn__cublas *blas;
    uint64_t workspace; /* of cuBLAS */
} gpu;

/* ---- opening ---- */

static void gpu_close(void *ctx) {
    gpu *d = ctx;
    if (!d) return;
    if (d->blas && gdn__stream_enter(d->stream) == GDN_OK) {
        gdn__cublas_close(d->blas);
        gdn__stream_leave(d->stream);
    }
    if (d->workspace) d->backend->mem_free(d->backend->user, d->ordinal, d->workspace);
    if (d->module) d->backend->module_unload(d->backend->user, d->ordinal, d->module);
    gdn__stream_close(d->own);
    free(d);
}

void gdn_engine_module(const char *arch, gdn_compile_job *out) {
    static const char *const options[] = { "--std=c++17", "--fmad=false" };
    *out = (gdn_compile_job) { .struct_size = (uint32_t)sizeof *out,
                               .n_headers = gdn__engine_headers,
                               .name = gdn__engine_sources_names[0],
                               .source = gdn__engine_sources_texts[0],
                               .header_names = gdn__engine_headers_names,
                               .headers = gdn__engine_headers_texts,
                               .options = options,
                               .arch = arch,
                               .n_options = 2 };
}

static gdn_status load_kernels(gpu *d, const gdn_device *device, gdn_text *err) {
    static const char *const entries[GDN__ROWS_ENTRIES] = {
#define ROW(id, name) "gdn_engine_" #name,
        GDN__ROWS_MAP(ROW)
#undef ROW
    };
    char arch[16], why[400] = "";
    gdn_text text = { why, sizeof why, 0 };
    gdn_compile_job job;
    snprintf(arch, sizeof arch, "sm_%u%u", device->cc_major % 1000, device->cc_minor % 10);
    gdn_engine_module(arch, &job);
    gdn_status st = GDN_OK;
    (void)d->backend->modules_load(d->backend->user, d->ordinal, 1, &job, &d->module, &st, &text);
    if (st != GDN_OK) return gdn__engine_say(err, st, "the engine's kernels: %s", why[0] ? why : gdn_status_text(st));
    for (uint32_t i = 0; st == GDN_OK && i < GDN__ROWS_ENTRIES; i++) {
        st = d->backend->function(d->backend->user, d->module, entries[i], &d->fn[i]);
        if (st != GDN_OK) return gdn__engine_say(err, st, "the engine's kernels: %s: %s", entries[i], gdn_status_text(st));
    }
    return GDN_OK;
}

static gdn_status open_blas(gpu *d, gdn_text *err) {
    gdn_status st = d->backend->mem_alloc(d->backend->user, d->ordinal, GDN__CUBLAS_WORKSPACE, &d->workspace);
    if (st != GDN_OK) return gdn__engine_say(err, st, "device memory for cuBLAS: %s", gdn_status_text(st));
    st = gdn__stream_enter(d->stream);
    if (st != GDN_OK) return gdn__engine_say(err, st, "the device's context cannot be entered");
    st = gdn__cublas_open(gdn__stream_handle(d->stream), d->workspace, &d->blas, err);
    gdn__stream_leave(d->stream);
    return st;
}

static gdn_status gpu_open(gdn *g, gdn__stream *stream, uint32_t act_type, uint64_t max_elems, void **ctx, gdn_text *err) {
    (void)max_elems;
    *ctx = NULL;
    if (act_type != GDN_BF16) return gdn__engine_say(err, GDN_REFUSED, "dense operations: refused: activations are f32 (target cpu only)");
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    int32_t ordinal = 0;
    const gdn_backend *backend = gdn_backend_of(g, &ordinal);
    if (!backend || gdn_describe(g, &info) != GDN_OK) return gdn__engine_say(err, GDN_E_ARG, "no device is open");
    gpu *d = calloc(1, sizeof *d);
    if (!d) return gdn__engine_say(err, GDN_E_NOMEM, "out of memory");
    *d = (gpu) { .backend = backend, .ordinal = ordinal, .stream = stream };
    gdn_status st = GDN_OK;
    if (!stream) {
        st = gdn__stream_open(d->ordinal, false, &d->own, err);
        d->stream = d->own;
    }
    if (st == GDN_OK) st = open_blas(d, err);
    if (st == GDN_OK) st = load_kernels(d, &info.device, err);
    if (st != GDN_OK) {
        gpu_close(d);
        return st;
    }
    *ctx = d;
    return GDN_OK;
}

static uint32_t gpu_weight_type(uint32_t act_type) {
    return act_type;
}

/* ---- operations ---- */

static gdn_status go(const gpu *d, uint32_t entry, uint64_t grid, uint32_t grid_y, void **params) {
    if (!grid || !grid_y) return GDN_OK;
    if (grid > INT32_MAX || grid_y > 65535) return GDN_E_ARG;
    const gdn_dims dims = { .grid = { (uint32_t)grid, grid_y, 1 }, .block = { GDN__ROWS_BLOCK, 1, 1 } };
    return d->backend->launch(d->backend->user, d->fn[entry], &dims, gdn__stream_handle(d->stream), params);
}

static uint64_t blocks(uint64_t n) {
    return (n + GDN__ROWS_BLOCK - 1) / GDN__ROWS_BLOCK;
}

static gdn_status gpu_matmul(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t in, uint32_t out, uint32_t y_type) {
    gpu *d = ctx;
    gdn_status st = gdn__stream_enter(d->stream);
    if (st != GDN_OK) return st;
    st = gdn__cublas_matmul(d->blas, x, w, y, rows, in, out, y_type == GDN_F32);
    gdn__stream_leave(d->stream);
    return st;
}

static gdn_status gpu_embed(void *ctx, uint64_t w, uint64_t tokens, uint64_t y, uint32_t rows, uint32_t dim) {
    void *params[] = { &w, &tokens, &y, &dim };
    return go(ctx, GDN__ROWS_EMBED, rows, 1, params);
}

static gdn_status gpu_rms_norm(void *ctx, uint64_t x, uint64_t w, uint64_t y, uint32_t rows, uint32_t dim, float eps) {
    void *params[] = { &x, &w, &y, &dim, &eps };
    return go(ctx, GDN__ROWS_RMS_NORM, rows, 1, params);
}

static gdn_status gpu_add(void *ctx, uint64_t x, uint64_t y, uint64_t n) {
    void *params[] = { &x, &y, &n };
    return go(ctx, GDN__ROWS_ADD, blocks(n), 1, params);
}

/* Rows go by the grid's second axis, which ends at 65535. */
static gdn_status gpu_silu_mul(void *ctx, uint64_t gate_up, uint64_t y, uint32_t rows, uint32_t dim) {
    gdn_status st = GDN_OK;
    for (uint32_t at = 0; st == GDN_OK && at < rows; at += 65535) {
        uint64_t from = gate_up + (uint64_t)at * 2 * dim * sizeof(uint16_t), to = y + (uint64_t)at * dim * sizeof(uint16_t);
        void *params[] = { &from, &to, &dim };
        st = go(ctx, GDN__ROWS_SILU_MUL, blocks(dim), rows - at < 65535 ? rows - at : 65535, params);
    }
    return st;
}

const gdn__dense gdn__dense_gpu = {
    .name = "cuBLAS",
    .open = gpu_open,
    .close = gpu_close,
    .weight_type = gpu_weight_type,
    .matmul = gpu_matmul,
    .embed = gpu_embed,
    .rms_norm = gpu_rms_norm,
    .add = gpu_add,
    .silu_mul = gpu_silu_mul,
};

/* ---- which table ---- */

static bool on_host_memory(const gdn *g) {
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    return gdn_describe(g, &info) == GDN_OK && info.device.cc_major == 0;
}

const gdn__dense *gdn__dense_for(const gdn *g) {
    if (!gdn_backend_of(g, NULL)) return NULL;
    return on_host_memory(g) ? &gdn__dense_blas : &gdn__dense_gpu;
}

uint32_t gdn__dense_act(const gdn *g) {
    return on_host_memory(g) ? GDN_F32 : GDN_BF16;
}
