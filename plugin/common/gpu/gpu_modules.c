/* gpu_modules.c - which modules a target has for an architecture, loading them as a batch, binding their entries. */
#include "gpu_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *file, *arch;
    uint32_t forms;
} modules[GPU_MODULES] = {
#define ROW_(ID, file, arch, forms) [GPU_M_##ID] = { file, arch, GPU_##forms },
    GPU_MODULE_MAP(ROW_)
#undef ROW_
};
static const struct {
    const char *name, *ext, *lost;
    uint32_t module, op;
} entries[GPU_ENTRIES] = {
#define ROW_(ID, module, op, name) [GPU_E_##ID] = { name, name "_ext", name " did not load", GPU_M_##module, GDN_OP_##op },
    GPU_ENTRY_MAP(ROW_)
#undef ROW_
};

/* Fixed for every module: contraction is off because byte contracts are compared across kernels and with the CPU. */
#define FIXED_ "--std=c++17", "--fmad=false"
#define VK_    "-DGDN_STATE_VK"
#define TILED_ "-DGDN_HEADS_TILED"
#define LOG_   "-DGDN_GATE_LOG"
#define NORM_  "-DGDN_QK_L2NORM"
enum { N_FIXED = 2, MAX_OPTIONS = N_FIXED + 5 };
/* Each combination of the rule modules' forms, in the order of their bits, with `first` in front. */
#define EIGHT_(...)                                                                                                      \
    { __VA_ARGS__ }, { __VA_ARGS__, VK_ }, { __VA_ARGS__, TILED_ }, { __VA_ARGS__, VK_, TILED_ }, { __VA_ARGS__, LOG_ }, \
        { __VA_ARGS__, VK_, LOG_ }, { __VA_ARGS__, TILED_, LOG_ }, {                                                     \
        __VA_ARGS__, VK_, TILED_, LOG_                                                                                   \
    }
#define SIXTEEN_(...) EIGHT_(__VA_ARGS__), EIGHT_(__VA_ARGS__, NORM_)
static const char *const rule_options[][MAX_OPTIONS] = { SIXTEEN_(FIXED_) };
static const char *const core_options[][MAX_OPTIONS] = { SIXTEEN_(FIXED_, "-DGDN_CORE") };
static const char *const ckpt_options[][MAX_OPTIONS] = { EIGHT_(FIXED_, "-DGDN_CHECKPOINTS") };
static const char *const other_options[][MAX_OPTIONS] = { EIGHT_(FIXED_, "-DGDN_OTHER_SPINES") };
#undef EIGHT_
#undef SIXTEEN_
static const char *const column_options[4][MAX_OPTIONS] = {
    { FIXED_, "-DGDN_BA_TC_COLUMNS=32" },
    { FIXED_, "-DGDN_BA_TC_COLUMNS=64" },
    { FIXED_, "-DGDN_BA_TC_COLUMNS=96" },
    { FIXED_, "-DGDN_BA_TC_COLUMNS=128" },
};

static uint32_t forms_of(uint32_t module) {
    static const uint32_t n[] = { [GPU_PLAIN] = 1,   [GPU_RULE] = 8,       [GPU_OTHERS] = 8,     [GPU_STEP] = 16,
                                  [GPU_COLUMNS] = 4, [GPU_RULE_CORE] = 16, [GPU_STEP_CORE] = 32, [GPU_RULE_CKPT] = 16 };
    return n[modules[module].forms];
}
static bool has_core(uint32_t module) {
    return modules[module].forms == GPU_RULE_CORE || modules[module].forms == GPU_STEP_CORE;
}
/* The n-th build of a module: its form, GPU_HALF those of the second half. */
static uint32_t form_at(uint32_t module, uint32_t n) {
    const uint32_t kind = modules[module].forms, half = forms_of(module) / 2;
    const bool two = has_core(module) || kind == GPU_RULE_CKPT;
    return two && n >= half ? n - half + GPU_HALF : n;
}
/* Modules of one build serve every plan; those of the rule have the plan's form. */
static bool in_advance(uint32_t module) {
    return modules[module].forms == GPU_PLAIN;
}

const char *gpu_entry_name(uint32_t entry) {
    return entry < GPU_ENTRIES ? entries[entry].name : NULL;
}
const char *gpu_ext_name(uint32_t entry) {
    return entries[entry].ext;
}
const char *gpu_entry_lost(uint32_t entry) {
    return entries[entry].lost;
}
bool gpu_has_core(uint32_t entry) {
    return has_core(entries[entry].module);
}
uint32_t gpu_entry_op(uint32_t entry) {
    return entries[entry].op;
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

/* What takes half a second and more to compile, the longest first. */
static const uint32_t long_ones[] = { GPU_M_WY4_WOA,   GPU_M_FLA,     GPU_M_FLA_OTHERS,    GPU_M_FAST_SEGMENTS, GPU_M_FAST_WN_SEGMENTS,
                                      GPU_M_FAST,      GPU_M_FAST_WN, GPU_M_CAUSAL_CONV1D, GPU_M_VERIFY_SPLIT,  GPU_M_W4A4_F16_WIDE,
                                      GPU_M_WY4,       GPU_M_WY,      GPU_M_WY3,           GPU_M_WY4_ROUND,     GPU_M_BF16_STATE,
                                      GPU_M_TC_OTHERS, GPU_M_WYN,     GPU_M_GATED_RMSNORM, GPU_M_DECODE,        GPU_M_CHUNK_TC,
                                      GPU_M_FLA_HOPPER };
enum { LONG_ONES = sizeof long_ones / sizeof *long_ones };
uint32_t gpu_module_rank(uint32_t module) {
    uint32_t i = 0;
    while (i < LONG_ONES && long_ones[i] != module) i++;
    return i;
}

/* A job's arrays are const and live as long as the plugin. */
gdn_status gpu_job_of(uint32_t module, uint32_t form, const char *arch, gdn_compile_job *out) {
    const char *source = NULL;
    for (uint32_t i = 0; i < gdn__embedded_sources; i++)
        if (strcmp(gdn__embedded_sources_names[i], modules[module].file) == 0) source = gdn__embedded_sources_texts[i];
    if (!source) return GDN_E_INTERNAL;
    const uint32_t forms = modules[module].forms, at = form % GPU_HALF;
    const char *const *options = forms == GPU_COLUMNS     ? column_options[at]
                                 : forms == GPU_OTHERS    ? other_options[at]
                                 : form < GPU_HALF        ? rule_options[at]
                                 : forms == GPU_RULE_CKPT ? ckpt_options[at]
                                                          : core_options[at];
    *out = (gdn_compile_job) { .struct_size = (uint32_t)sizeof *out,
                               .n_headers = gdn__embedded_headers,
                               .name = modules[module].file,
                               .source = source,
                               .header_names = gdn__embedded_headers_names,
                               .headers = gdn__embedded_headers_texts,
                               .options = options,
                               .arch = arch,
                               .n_options = N_FIXED };
    while (out->n_options < MAX_OPTIONS && options[out->n_options]) out->n_options++;
    return GDN_OK;
}

bool gpu_job_at(const char *arch, uint32_t index, gdn_compile_job *out) {
    for (uint32_t m = 0; m < GPU_MODULES; m++) {
        if (!gpu_module_for(arch, m)) continue;
        if (index < forms_of(m)) return gpu_job_of(m, form_at(m, index), arch, out) == GDN_OK;
        index -= forms_of(m);
    }
    return false;
}

/* Entries of a loaded module; one that is missing is the module's failure. */
static void bind_entries(gdn_ctx *ctx, uint32_t module) {
    const gdn_backend *b = ctx->host.backend;
    for (uint32_t e = 0; e < GPU_ENTRIES; e++) {
        if (entries[e].module != module || ctx->entry[e]) continue;
        const gdn_status st = b->function(b->user, ctx->form[module][0].handle, entries[e].name, &ctx->entry[e]);
        if (st == GDN_OK && ctx->entry[e]) continue;
        ctx->entry[e] = NULL;
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
    /* The long ones first: a compile that starts last should not be one that all others end before. */
    for (uint32_t i = 0; i < LONG_ONES + GPU_MODULES; i++) {
        const uint32_t m = i < LONG_ONES ? long_ones[i] : i - LONG_ONES;
        if ((i >= LONG_ONES && gpu_module_rank(m) < LONG_ONES) || !gpu_module_for(ctx->arch, m) || !in_advance(m)) continue;
        const gdn_status st = gpu_job_of(m, 0, ctx->arch, &job[n]);
        if (st) return gdn__fail(err, st, "%s: %s is not among the embedded sources", gdn__gpu_target.name, modules[m].file);
        text[n][0] = 0;
        reasons[n] = (gdn_text) { text[n], sizeof text[n], 0 };
        which[n++] = m;
    }
    const gdn_status all = b->modules_load(b->user, ctx->ordinal, n, job, handle, status, reasons);
    if (all == GDN_E_CAPTURE || all == GDN_E_FORKED) return gdn__fail(err, all, "%s: %s", gdn__gpu_target.name, n ? text[0] : "");
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < n; i++) {
        gpu_form *f = &ctx->form[which[i]][0];
        f->handle = handle[i];
        f->status = handle[i] ? GDN_OK : status[i] ? status[i] : GDN_E_LOAD;
        atomic_store(&f->state, handle[i] ? GPU_LOADED : GPU_FAILED);
        if (handle[i])
            loaded++, bind_entries(ctx, which[i]);
        else if (!ctx->reason[0])
            gpu_reason(ctx->reason, sizeof ctx->reason, which[i], text[i], reasons[i].len, "");
    }
    /* One module that fails leaves the others usable; when all fail there is nothing to open. */
    if (n && !loaded) return gdn__fail(err, all ? all : GDN_E_LOAD, "%s: no module could be loaded: %s", gdn__gpu_target.name, ctx->reason);
    if (ctx->reason[0]) ctx->host.log(ctx->host.user, GDN_LOG_WARN, "modules", ctx->reason);
    return GDN_OK;
}

void gpu_modules_close(gdn_ctx *ctx) {
    const gdn_backend *b = ctx->host.backend;
    for (uint32_t m = 0; m < GPU_MODULES; m++)
        for (uint32_t f = 0; f < GPU_FORMS; f++) {
            if (ctx->form[m][f].handle) b->module_unload(b->user, ctx->ordinal, ctx->form[m][f].handle);
            free(ctx->form[m][f].why);
            free(ctx->form[m][f].guards);
        }
}

void gpu_lost_in_advance(const gdn_ctx *ctx, const char *lost[GPU_ENTRIES]) {
    for (uint32_t e = 0; e < GPU_ENTRIES; e++)
        if (!ctx->entry[e] && in_advance(entries[e].module) && gpu_module_for(ctx->arch, entries[e].module)) lost[e] = entries[e].lost;
}

gpu_set gpu_present(const gdn_ctx *ctx) {
    gpu_set bits = { { 0 } };
    for (uint32_t e = 0; e < GPU_ENTRIES; e++)
        if (ctx->entry[e] || (!in_advance(entries[e].module) && gpu_module_for(ctx->arch, entries[e].module))) gpu_put(&bits, e);
    return bits;
}
