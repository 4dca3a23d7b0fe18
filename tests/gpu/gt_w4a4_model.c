/* gt_w4a4_model.c - the FP4 projections of gb10 where there are no FP4 tensor cores: the very sources out of gb10's plugin, compiled for
 * this device with the exact model in the instruction's place (GDN_FP4_MODEL). Every entry, every number of rows 1..64 and depth of
 * staging gives the bytes of the cpu target, and leaves the row behind them alone. For some: bands round C, NaN scales in padding
 * tokens, the counter zero again; a flipped weight is noticed. */
#include "gdn_modules.h"
#include "gt.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SMEM_ATTRIBUTE = 8 }; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
static const char *const files[] = { "w4a4_gemv_mx.cu", "w4a4_gemv_mx_ps.cu" };
static const struct {
    const char *name;
    uint32_t file, blocks, rows;
} entries[] = {
    { "w4a4_gemv_mx8", 0, 1, 16 },      { "w4a4_gemv_mx16", 0, 2, 16 },     { "w4a4_gemv_mx16_nt2", 0, 2, 32 },
    { "w4a4_gemv_mx32", 0, 4, 16 },     { "w4a4_gemv_mx32_nt4", 0, 4, 64 }, { "w4a4_gemv_mx64", 0, 8, 16 },
    { "w4a4_gemv_mx64_nt2", 0, 8, 32 }, { "w4a4_gemv_mx16_ps", 1, 2, 16 },  { "w4a4_gemv_mx32_ps", 1, 4, 16 },
};
enum { PS = 1 };

typedef struct model {
    void *library, *module[2], *function[GT_N(entries)];
} model;

/* gb10's list of modules, without its device. */
static const gdn_modules *list_of(gt *t, model *m) {
    gdn_options o = GDN_OPTIONS_INIT;
    char why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn *g = NULL;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    gdn_plugin_query_fn query = NULL;
    o.target = "gb10";
    o.flags = GDN_OPEN_DRY;
    if (!gt_check(t, gdn_open(&o, &g, &err) == GDN_OK, "gb10: %s", why)) return NULL;
    if (gdn_describe(g, &info) == GDN_OK) m->library = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
    gdn_close(g);
    if (m->library) *(void **)&query = dlsym(m->library, "gdn_plugin_query");
    const gdn_plugin *p = query ? query(GDN_ABI_MAJOR, GDN_ABI_MINOR) : NULL;
    return p && p->ops->extension ? p->ops->extension(GDN_MODULES_ID) : NULL;
}

static bool open_model(gt *t, model *m) {
    const gdn_modules *list = list_of(t, m);
    bool ok = gt_check(t, list != NULL, "gb10's plugin has no list of modules");
    for (uint32_t f = 0; ok && f < GT_N(files); f++) {
        gdn_compile_job job = { .struct_size = (uint32_t)sizeof job };
        bool found = false;
        for (uint32_t i = 0; !found && i < list->count("sm_121f"); i++)
            found = list->get("sm_121f", i, &job) == GDN_OK && strcmp(job.name, files[f]) == 0;
        ok = gt_check(t, found, "gb10 has no %s", files[f]) &&
             gt_check(t, gpu_module_make(t->clock, &job, "-DGDN_FP4_MODEL", &m->module[f]), "%s", t->clock->why);
    }
    for (uint32_t e = 0; ok && e < GT_N(entries); e++)
        ok = gt_check(
            t, gpu_ok(t->clock, t->clock->module_function(&m->function[e], m->module[entries[e].file], entries[e].name), entries[e].name),
            "%s", t->clock->why);
    return ok;
}
static void close_model(gt *t, model *m) {
    for (uint32_t f = 0; f < GT_N(files); f++)
        if (m->module[f]) (void)t->clock->module_unload(m->module[f]);
    if (m->library) (void)dlclose(m->library);
}

static uint32_t smem_of(uint32_t e, uint32_t sst) {
    return entries[e].file == PS ? 8 * sst * entries[e].blocks * 576 + 8192 : 0;
}

static bool start(gt *t, const model *m, uint32_t e, uint32_t sst, const gt_live *l, uint32_t M, uint32_t N, uint32_t K) {
    uint64_t ptr[GT_MAX_PTR];
    uint32_t scale2 = l->job->u32[0];
    memcpy(ptr, l->ptr, sizeof ptr);
    void *params[] = { &ptr[GDN_W4A4_GEMV_P_AQ],
                       &ptr[GDN_W4A4_GEMV_P_AS],
                       &ptr[GDN_W4A4_GEMV_P_AG],
                       &ptr[GDN_W4A4_GEMV_P_BQ],
                       &ptr[GDN_W4A4_GEMV_P_BS],
                       &scale2,
                       &ptr[GDN_W4A4_GEMV_P_C],
                       &M,
                       &N,
                       &K,
                       &sst,
                       &ptr[GDN_W4A4_GEMV_P_WORKSPACE] };
    const uint32_t grid = entries[e].file == PS ? (uint32_t)t->clock->sm_count : (N + entries[e].rows - 1) / entries[e].rows;
    const uint32_t smem = smem_of(e, sst);
    return gt_check(
        t,
        (smem <= 48 * 1024 || gpu_ok(t->clock, t->clock->function_set(m->function[e], SMEM_ATTRIBUTE, (int)smem), "cuFuncSetAttribute")) &&
            gpu_ok(t->clock, t->clock->launch(m->function[e], grid, 1, 1, 256, 1, 1, smem, NULL, params, NULL), entries[e].name),
        "%s", t->clock->why);
}

/* A flipped byte of weights changes C. */
static void control(gt *t, const model *m, uint32_t e, const gt_live *l, const void *want, uint32_t N, uint32_t K) {
    const uint64_t bytes = l->job->buf[GDN_W4A4_GEMV_P_C].bytes, at = l->ptr[GDN_W4A4_GEMV_P_BQ] + (uint64_t)N * K / 4;
    uint8_t *C = gt_keep(t, bytes), byte = 0;
    (void)gt_check(t, gdn_copy_out(l->g, NULL, &byte, at, 1) == GDN_OK, "copy");
    byte ^= 0x44;
    if (gt_check(t, gdn_copy_in(l->g, NULL, at, &byte, 1) == GDN_OK, "copy") && start(t, m, e, 0, l, l->job->u32[1], N, K) &&
        gt_check(t, gdn_copy_out(l->g, NULL, C, l->ptr[GDN_W4A4_GEMV_P_C], bytes) == GDN_OK, "copy"))
        (void)gt_check(t, memcmp(C, want, bytes) != 0, "a flipped byte of weights was not noticed");
}

static void shape(gt *t, const model *m, uint32_t M, uint32_t N, uint32_t K) {
    const uint32_t full = (K / 128 + 7) / 8;
    gt_shapes s;
    gt_job job;
    gt_live ref, l;
    uint32_t runs = 0;
    if (!gt_begin(t, "w4a4_model_M%u_N%u_K%u", M, N, K)) return;
    gt_w4a4_job(t, M, N, K, 0, &s, &job);
    if (gt_up(t, t->cpu, &job, &ref) && gt_check(t, gt_launch(&ref, NULL) == GDN_OK, "the cpu target did not run it") &&
        gt_down(t, &ref, NULL) && gt_up(t, t->dev, &job, &l)) {
        const void *want = ref.got[GDN_W4A4_GEMV_P_C];
        for (uint32_t e = 0; e < GT_N(entries) && !t->bad; e++) {
            const uint32_t stripes[] = { 0, 1, full }, n = entries[e].file == PS ? GT_N(stripes) : 1;
            for (uint32_t i = 0; M <= 8 * entries[e].blocks && i < n && !t->bad; i++) {
                if (smem_of(e, stripes[i]) > 100352) continue; /* does not fit: the planner takes another entry */
                if (gt_fill(t, &l, NULL) && start(t, m, e, stripes[i], &l, M, N, K) && gt_down(t, &l, NULL))
                    (void)gt_same_bytes(t, want, l.got[GDN_W4A4_GEMV_P_C], job.buf[GDN_W4A4_GEMV_P_C].bytes, entries[e].name);
                runs++;
            }
        }
        if (!t->bad) control(t, m, M <= 8 ? 0 : M <= 16 ? 2 : M <= 32 ? 4 : 6, &l, want, N, K);
        gt_figure(t, "runs", runs);
        gt_drop(&l);
    }
    gt_drop(&ref);
    gt_end(t);
}

/* One run: the first M rows are want's, and row M, if there is one, is still poison. */
static bool rows_are(gt *t, const model *m, uint32_t e, uint32_t sst, const gt_live *l, const uint8_t *want, uint8_t *got, uint32_t M,
                     uint32_t N, uint32_t K) {
    const uint64_t C = l->ptr[GDN_W4A4_GEMV_P_C], row = 2ull * N, bytes = (M < GDN_W4A4_MAX_M ? M + 1 : M) * row;
    if (!gt_check(t, gdn_fill(l->g, NULL, C, 0xff, bytes) == GDN_OK, "fill") || !start(t, m, e, sst, l, M, N, K) ||
        !gt_check(t, gdn_copy_out(l->g, NULL, got, C, bytes) == GDN_OK, "copy"))
        return false;
    for (uint64_t i = M * row; i < bytes; i++)
        if (got[i] != 0xff) return gt_check(t, false, "%s, M %u: row M was written", entries[e].name, M);
    return gt_check(t, memcmp(got, want, M * row) == 0, "%s, M %u, %u chunks staged: not the bytes of the cpu target", entries[e].name, M,
                    sst);
}

/* M 1..64 of one shape: what the rows are does not depend on how many there are, so that the cpu target computes 64 once. */
static void every_row(gt *t, const model *m, uint32_t N, uint32_t K) {
    const uint32_t full = (K / 128 + 7) / 8, stripes[] = { 0, 1, full };
    gt_shapes s;
    gt_job job;
    gt_live ref, l;
    uint32_t runs = 0;
    if (!gt_begin(t, "w4a4_model_every_M_N%u_K%u", N, K)) return;
    gt_w4a4_job(t, GDN_W4A4_MAX_M, N, K, 0, &s, &job);
    uint8_t *got = gt_keep(t, job.buf[GDN_W4A4_GEMV_P_C].bytes);
    if (gt_up(t, t->cpu, &job, &ref) && gt_check(t, gt_launch(&ref, NULL) == GDN_OK, "the cpu target did not run it") &&
        gt_down(t, &ref, NULL) && gt_up(t, t->dev, &job, &l)) {
        for (uint32_t M = 1; M <= GDN_W4A4_MAX_M && !t->bad; M++)
            for (uint32_t e = 0; e < GT_N(entries) && !t->bad; e++)
                for (uint32_t i = 0; M <= 8 * entries[e].blocks && i < (entries[e].file == PS ? GT_N(stripes) : 1) && !t->bad; i++) {
                    if (smem_of(e, stripes[i]) > 100352) continue; /* does not fit: the planner takes another entry */
                    runs += rows_are(t, m, e, stripes[i], &l, ref.got[GDN_W4A4_GEMV_P_C], got, M, N, K);
                }
        gt_figure(t, "runs", runs);
        gt_drop(&l);
    }
    gt_drop(&ref);
    gt_end(t);
}

void gt_test_w4a4_model(gt *t) {
    static const uint32_t sizes[][2] = { { 100, 1152 },   { 1024, 5120 },  { 5120, 6144 },  { 6144, 5120 }, { 10240, 5120 },
                                         { 12288, 5120 }, { 16384, 5120 }, { 5120, 17408 }, { 17408, 5120 } };
    static const uint32_t rows[] = { 8, 16, 32, 64, 1, 7, 9, 17, 33 };
    enum { PADDED = 2 }; /* sizes with NaN in the tokens that are not there, and all memory looked at after each run */
    model m = { 0 };
    if (!gt_begin(t, "w4a4_model_compiles")) return;
    const bool ok = gt_needs_device(t) && open_model(t, &m);
    gt_end(t);
    for (uint32_t i = 0; ok && i < (t->brief ? 1u : PADDED); i++)
        for (uint32_t k = 0; k < GT_N(rows); k++) shape(t, &m, rows[k], sizes[i][0], sizes[i][1]);
    for (uint32_t i = 0; ok && !t->brief && i < GT_N(sizes); i++) every_row(t, &m, sizes[i][0], sizes[i][1]);
    if (t->clock) close_model(t, &m);
}
