/* gpu_modules.c - which modules a target has for an architecture, loading them as a batch, binding their entries. */
#include "gpu_plugin.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *file, *arch;
} modules[GPU_MODULES] = {
#define ROW_(ID, file, arch) [GPU_M_##ID] = { file, arch },
    GPU_MODULE_MAP(ROW_)
#undef ROW_
};
static const struct {
    const char *name;
    uint32_t module;
} entries[GPU_ENTRIES] = {
#define ROW_(ID, module, name) [GPU_E_##ID] = { name, GPU_M_##module },
    GPU_ENTRY_MAP(ROW_)
#undef ROW_
};
/* Fixed for every module: contraction is off because byte contracts are compared across kernels and with the CPU. */
#define OPTIONS_ "--std=c++17", "--fmad=false"
static const char *const options[] = { OPTIONS_ };
enum { N_OPTIONS = sizeof options / sizeof *options };
static const struct {
    uint32_t module;
    const char *options[N_OPTIONS + 1];
} variants[GPU_VARIANTS] = {
#define ROW_(ID, module, define) [GPU_V_##ID] = { GPU_M_##module, { OPTIONS_, define } },
    GPU_VARIANT_MAP(ROW_)
#undef ROW_
};

static bool only_by_variant(uint32_t module) {
    for (uint32_t v = 0; v < GPU_VARIANTS; v++)
        if (variants[v].module == module) return true;
    return false;
}

const char *gpu_entry_name(uint32_t entry) {
    return entry < GPU_ENTRIES ? entries[entry].name : NULL;
}
uint32_t gpu_entry_module(uint32_t entry) {
    return entries[entry].module;
}
const char *gpu_module_file(uint32_t module) {
    return modules[module].file;
}

bool gpu_module_for(const char *arch, uint32_t module) {
    if (!(gdn__gpu_target.modules >> module & 1)) return false;
    return !modules[module].arch || strcmp(modules[module].arch, arch) == 0;
}

void gpu_arch_of(uint32_t cc_major, uint32_t cc_minor, char out[GPU_ARCH_BYTES]) {
    const char *suffix = cc_major == 9 && cc_minor == 0 ? "a" : cc_major == 12 && cc_minor == 1 ? "f" : "";
    snprintf(out, GPU_ARCH_BYTES, "sm_%u%u%s", cc_major % 1000, cc_minor % 10, suffix);
}

/* A job's arrays are const and live as long as the plugin. */
static gdn_status job_of(uint32_t module, const char *arch, gdn_compile_job *out) {
    const char *source = NULL;
    for (uint32_t i = 0; i < gdn__embedded_sources; i++)
        if (strcmp(gdn__embedded_sources_names[i], modules[module].file) == 0) source = gdn__embedded_sources_texts[i];
    if (!source) return GDN_E_INTERNAL;
    *out = (gdn_compile_job) { .struct_size = (uint32_t)sizeof *out,
                               .n_headers = gdn__embedded_headers,
                               .name = modules[module].file,
                               .source = source,
                               .header_names = gdn__embedded_headers_names,
                               .headers = gdn__embedded_headers_texts,
                               .options = options,
                               .arch = arch,
                               .n_options = N_OPTIONS };
    return GDN_OK;
}

static gdn_status variant_job(uint32_t variant, const char *arch, gdn_compile_job *out) {
    const gdn_status st = job_of(variants[variant].module, arch, out);
    out->options = variants[variant].options;
    out->n_options = N_OPTIONS + 1;
    return st;
}

bool gpu_job_at(const char *arch, uint32_t index, gdn_compile_job *out) {
    for (uint32_t m = 0; m < GPU_MODULES; m++)
        if (gpu_module_for(arch, m) && !only_by_variant(m) && index-- == 0) return job_of(m, arch, out) == GDN_OK;
    for (uint32_t v = 0; v < GPU_VARIANTS; v++)
        if (gpu_module_for(arch, variants[v].module) && index-- == 0) return variant_job(v, arch, out) == GDN_OK;
    return false;
}

/* Entries of a loaded module; one that is missing is the module's failure. */
static void bind_entries(gdn_ctx *ctx, uint32_t module) {
    const gdn_backend *b = ctx->host.backend;
    for (uint32_t e = 0; e < GPU_ENTRIES; e++) {
        if (entries[e].module != module || ctx->entry[e]) continue;
        const gdn_status st = b->function(b->user, ctx->module[module], entries[e].name, &ctx->entry[e]);
        if (st == GDN_OK && ctx->entry[e]) continue;
        ctx->entry[e] = NULL;
        ctx->module_status[module] = st ? st : GDN_E_LOAD;
        if (!ctx->reason[0]) snprintf(ctx->reason, sizeof ctx->reason, "%s: entry %s is missing", modules[module].file, entries[e].name);
    }
}

gdn_status gpu_modules_open(gdn_ctx *ctx, gdn_text *err) {
    const gdn_backend *b = ctx->host.backend;
    gdn_compile_job job[GPU_MODULES];
    uint32_t which[GPU_MODULES], n = 0;
    void *handle[GPU_MODULES] = { NULL };
    gdn_status status[GPU_MODULES] = { 0 };
    char text[GPU_MODULES][GPU_REASON_BYTES];
    gdn_text reasons[GPU_MODULES];
    for (uint32_t m = 0; m < GPU_MODULES; m++) {
        ctx->module_status[m] = GDN_ABSENT;
        if (!gpu_module_for(ctx->arch, m) || only_by_variant(m)) continue;
        const gdn_status st = job_of(m, ctx->arch, &job[n]);
        if (st) return gdn__fail(err, st, "%s: %s is not among the embedded sources", gdn__gpu_target.name, modules[m].file);
        text[n][0] = 0;
        reasons[n] = (gdn_text) { text[n], sizeof text[n], 0 };
        which[n++] = m;
    }
    const gdn_status all = b->modules_load(b->user, ctx->ordinal, n, job, handle, status, reasons);
    if (all == GDN_E_CAPTURE || all == GDN_E_FORKED) return gdn__fail(err, all, "%s: %s", gdn__gpu_target.name, n ? text[0] : "");
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < n; i++) {
        ctx->module[which[i]] = handle[i];
        ctx->module_status[which[i]] = handle[i] ? GDN_OK : status[i] ? status[i] : GDN_E_LOAD;
        if (handle[i])
            loaded++, bind_entries(ctx, which[i]);
        else if (!ctx->reason[0])
            snprintf(ctx->reason, sizeof ctx->reason, "%s: %.400s", modules[which[i]].file, text[i]);
    }
    /* One module that fails leaves the others usable; when all fail there is nothing to open. */
    if (n && !loaded) return gdn__fail(err, all ? all : GDN_E_LOAD, "%s: no module could be loaded: %s", gdn__gpu_target.name, ctx->reason);
    if (ctx->reason[0]) ctx->host.log(ctx->host.user, GDN_LOG_WARN, "modules", ctx->reason);
    return GDN_OK;
}

void gpu_modules_close(gdn_ctx *ctx) {
    const gdn_backend *b = ctx->host.backend;
    for (uint32_t v = 0; v < GPU_VARIANTS; v++)
        if (ctx->variant[v].handle) b->module_unload(b->user, ctx->ordinal, ctx->variant[v].handle);
    for (uint32_t m = 0; m < GPU_MODULES; m++)
        if (ctx->module[m]) b->module_unload(b->user, ctx->ordinal, ctx->module[m]);
}

gdn_status gpu_variant_entry(gdn_ctx *ctx, uint32_t entry, uint32_t variant, void **out, gdn_text *err) {
    const gdn_backend *b = ctx->host.backend;
    gpu_variant *v = &ctx->variant[variant];
    *out = NULL;
    if (!v->tried) {
        gdn_compile_job job;
        gdn_status st = variant_job(variant, ctx->arch, &job);
        if (st)
            return gdn__fail(err, st, "%s: %s is not among the embedded sources", gdn__gpu_target.name,
                             gpu_module_file(variants[variant].module));
        st = b->modules_load(b->user, ctx->ordinal, 1, &job, &v->handle, &v->status, err);
        if (st == GDN_E_CAPTURE || st == GDN_E_FORKED) return st;
        v->tried = true;
    }
    const char *file = gpu_module_file(variants[variant].module);
    if (!v->handle)
        return err && err->len ? v->status : gdn__fail(err, v->status ? v->status : GDN_E_LOAD, "%s: did not load before", file);
    const gdn_status st = b->function(b->user, v->handle, entries[entry].name, out);
    return st ? gdn__fail(err, st, "%s: entry %s is missing (%s)", file, entries[entry].name, variants[variant].options[N_OPTIONS]) : st;
}

uint32_t gpu_present(const gdn_ctx *ctx) {
    uint32_t bits = 0;
    for (uint32_t e = 0; e < GPU_ENTRIES; e++)
        if (ctx->entry[e] || (only_by_variant(entries[e].module) && gpu_module_for(ctx->arch, entries[e].module))) bits |= 1u << e;
    return bits;
}
