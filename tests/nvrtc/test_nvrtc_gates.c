/* test_nvrtc_gates.c - every module of the plugins gb10 and hopper, compiled as the plugins have it compiled, against modules.def;
 * before that the gates themselves: calibration of the instruction table on kernels whose counts are known, and a violation planted
 * for each gate. Needs NVRTC, no device; without it skipped (77). Arguments: modules to look at; none: all. */
#include "gdn_modules.h"
#include "nvrtc_gate.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gate_row rows[] = {
#define GATE(archs, module, form, entry, registers, spills, smem, sass) \
    { archs, module, form, entry, registers, spills, smem, sass, false },
#include "modules.def"
#undef GATE
    { "", "", "", "", 0, 0, 0, "", true },
};
static const uint32_t n_rows = sizeof rows / sizeof *rows - 1;
static gdn__nvrtc nvrtc;
static uint32_t failures, skipped;

static void expect(bool ok, const char *what, const char *detail) {
    if (ok) return;
    failures++;
    printf("FAIL %s: %s\n", what, detail);
}

/* ---- calibration: names that facts rest on, one kernel each ---- */
#define WAITS "#define WAIT asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
static const char known[] = WAITS
    "typedef unsigned u32;\n"
    "extern \"C\" __global__ void muladd(float *x) { WAIT x[0] = x[1] * x[2] + x[3]; }\n"
    "extern \"C\" __global__ void fused(float *x) { WAIT x[0] = __fmaf_rn(x[1], x[2], x[3]); }\n"
    "extern \"C\" __global__ void approx(float *x) { WAIT asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(x[0]) : \"f\"(x[1])); }\n"
    "extern \"C\" __global__ void wide(float4 *x) { WAIT x[threadIdx.x] = x[threadIdx.x + 64]; }\n"
    "extern \"C\" __global__ void tensor(float *x, const u32 *a) { WAIT float d0 = x[0], d1 = x[1], d2 = x[2], d3 = x[3];\n"
    "  asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\"\n"
    "    : \"+f\"(d0), \"+f\"(d1), \"+f\"(d2), \"+f\"(d3) : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(a[4]), \"r\"(a[5]));\n"
    "  x[0] = d0; x[1] = d1; x[2] = d2; x[3] = d3; }\n";
static const char warpgroup[] =
    WAITS "extern \"C\" __global__ void __launch_bounds__(128) group(float *x, unsigned long a) { WAIT float d[4] = {};\n"
          "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
          "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;\"\n"
          "    : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a));\n"
          "  asm volatile(\"wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
          "  x[threadIdx.x] = d[0] + d[1] + d[2] + d[3]; }\n";
static const char *const plain_options[] = { "--std=c++17", "--fmad=false" };

static gdn_compile_job job_of(const char *name, const char *source, const char *arch) {
    return (gdn_compile_job) { .struct_size = (uint32_t)sizeof(gdn_compile_job),
                               .name = name,
                               .source = source,
                               .arch = arch,
                               .options = plain_options,
                               .n_options = 2 };
}
static void calibrate(const char *arch) {
    gate_row want[] = {
        { arch, "known.cu", "", "muladd", 32, 0, 0, "FMUL=1 FADD=1 FFMA=0 HMMA=0 MUFU=0 LDG=3 LDG128=0 STG=1", false },
        { arch, "known.cu", "", "fused", 32, 0, 0, "FMUL=0 FADD=0 FFMA=1", false },
        { arch, "known.cu", "", "approx", 32, 0, 0, "MUFU=1 FFMA=0", false },
        { arch, "known.cu", "", "wide", 32, 0, 0, "LDG=1 LDG128=1", false },
        { arch, "known.cu", "", "tensor", 32, 0, 0, "HMMA=1 HGMMA=0", false },
        { arch, "group.cu", "", "group", 32, 0, 0, "HGMMA=1 HMMA=0", false },
    };
    char why[GATE_TEXT];
    const gdn_compile_job a = job_of("known.cu", known, arch), b = job_of("group.cu", warpgroup, arch);
    expect(gate_module(&nvrtc, &a, "", want, 5, NULL, why, sizeof why) == 0, arch, why);
    if (!strcmp(arch, "sm_90a")) expect(gate_module(&nvrtc, &b, "", want + 5, 1, NULL, why, sizeof why) == 0, arch, why);
}

/* ---- planted violations: each must be found, and named ---- */
typedef struct plant {
    const char *what, *source, *found;
    uint32_t registers, spill, smem;
    const char *sass;
} plant;
static const plant plants[] = {
    { "source that does not compile", "extern \"C\" __global__ void e(float *x) { x[0] = y; }", "does not compile", 255, 0, 0, "" },
    { "entry with another name", "extern \"C\" __global__ void other(float *x) { x[0] = 1.f; }", "e: the entry is missing", 255, 0, 0, "" },
    { "entry without a row", "extern \"C\" __global__ void other(float *x) { x[0] = 1.f; }", "other: no row", 255, 0, 0, "" },
    { "too many registers", "extern \"C\" __global__ void e(float *x) { x[threadIdx.x] *= 2.f; }", "registers, budget 2", 2, 0, 0, "" },
    { "spills",
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) e(float *x) { float v[64];\n#pragma unroll\nfor (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];\n__syncthreads();\n#pragma unroll\n"
      "for (int i = 0; i < 64; i++) x[threadIdx.x * 64 + (63 - i)] = v[i] * v[(i * 7 + 1) % 64]; }",
      "bytes spilled, budget 0", 255, 0, 0, "" },
    { "static shared memory",
      "extern \"C\" __global__ void e(float *x) { __shared__ float s[512]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[511 - threadIdx.x]; }",
      "2048 bytes of static shared memory, budget 1024", 255, 0, 1024, "" },
    { "a fused multiply-add where none may be", "extern \"C\" __global__ void e(float *x) { x[0] = __fmaf_rn(x[1], x[2], x[3]); }",
      "FFMA=0, but there are 1", 255, 0, 0, "FFMA=0" },
    { "no tensor instruction where one must be", "extern \"C\" __global__ void e(float *x) { x[0] = 1.f; }", "HMMA>=1, but there are 0",
      255, 0, 0, "HMMA>=1" },
    { "a fact about nothing", "extern \"C\" __global__ void e(float *x) { x[0] = 1.f; }", "no such instruction", 255, 0, 0, "FROB=0" },
    { "an accumulator read while its product is in flight",
      "extern \"C\" __global__ void __launch_bounds__(128) e(float *x, unsigned long a) { float d[4] = {};\n"
      "asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
      "for (int i = 0; i < 2; i++) { asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;\"\n"
      ": \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a)); x[threadIdx.x + 128 * i] = d[0]; }\n"
      "asm volatile(\"wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\" ::: \"memory\"); x[threadIdx.x] = d[1] + d[2] + d[3]; }",
      "Potential Performance Loss", 255, 0, 0, "" },
    { "no wait for the kernel in front", "extern \"C\" __global__ void e(float *x) { x[0] = 1.f; }", "before it has waited", 255, 0, 0,
      "" },
    { "a load in front of the wait",
      "extern \"C\" __global__ void e(float *x) { float y = x[1]; asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); x[0] = y; }",
      "before it has waited", 255, 0, 0, "" },
    { "an end in front of the wait",
      "extern \"C\" __global__ void e(float *x, int n) { if (n < 2) return; asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); x[threadIdx.x] = 0; }",
      "before it has waited", 255, 0, 0, "" },
    { "an addition in memory in front of the wait",
      "extern \"C\" __global__ void e(float *x) { atomicAdd(x, 1.f); asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); x[threadIdx.x + 1] = 0; }",
      "before it has waited", 255, 0, 0, "" },
    { "a store in front of the wait, behind a guess",
      "extern \"C\" __global__ void e(float *x) { float y; asm volatile(\"ld.relaxed.gpu.global.f32 %0, [%1];\" : \"=f\"(y) : \"l\"(x) : \"memory\"); x[1] = y;\n"
      "asm volatile(\"griddepcontrol.wait;\" ::: \"memory\"); x[0] = y; }",
      "before it has waited", 255, 0, 0, "" },
    { "a compiler warning", "extern \"C\" __global__ void e(float *x) { int unused; x[0] = 1.f; }", "compiler warnings", 255, 0, 0, "" },
};
static void plant_all(const char *arch) {
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        const plant *p = &plants[i];
        gate_row row = { arch, "plant.cu", "", "e", p->registers, p->spill, p->smem, p->sass, false };
        char why[GATE_TEXT];
        const gdn_compile_job job = job_of("plant.cu", p->source, arch);
        const uint32_t n = gate_module(&nvrtc, &job, "", &row, 1, NULL, why, sizeof why);
        expect(n > 0 && strstr(why, p->found), p->what, n ? why : "was not found");
    }
}

/* ---- the plugins' modules ---- */
static const gdn_modules *modules_of(const char *target) {
    char path[1024];
    snprintf(path, sizeof path, "%s/libgdn_%s.so", GDN_PLUGIN_DIR, target);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    gdn_plugin_query_fn query = NULL;
    if (lib) *(void **)&query = dlsym(lib, "gdn_plugin_query");
    const gdn_plugin *p = query ? query(GDN_ABI_MAJOR, GDN_ABI_MINOR) : NULL;
    const gdn_modules *m = p && p->ops->extension ? p->ops->extension(GDN_MODULES_ID) : NULL;
    expect(m != NULL, target, lib ? "has no table of modules" : dlerror());
    return m;
}
/* The job's defines, joined: which form of the module it is. */
static void form_of(const gdn_compile_job *job, char *out, size_t room) {
    out[0] = 0;
    for (uint32_t i = 0; i < job->n_options; i++)
        if (!strncmp(job->options[i], "-D", 2) && strlen(out) + strlen(job->options[i]) + 2 < room)
            strcat(strcat(out, *out ? " " : ""), job->options[i]);
}
static bool wanted(const char *name, int argc, char **argv) {
    if (argc < 2) return true;
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i])) return true;
    return false;
}
static void gate_one(const gdn_compile_job *job, const char *form) {
    char why[GATE_TEXT];
    failures += gate_module(&nvrtc, job, form, rows, n_rows, stdout, why, sizeof why);
    fflush(stdout);
}
/* Forms that only the gates build: "F +-DX" is form F with X added to the module's options. What is added to this base; else NULL. */
static const char *added_to(const char *form, const char *base) {
    const size_t n = strlen(base);
    if (strncmp(form, base, n) != 0) return NULL;
    form += n;
    if (n && *form == ' ') form++;
    return *form == '+' ? form + 1 : NULL;
}
static void gate_added_forms(const gdn_compile_job *job, const char *base) {
    for (uint32_t r = 0; r < n_rows; r++) {
        const char *added = added_to(rows[r].form, base);
        bool done = !added || strcmp(rows[r].module, job->name) != 0 || !strstr(rows[r].archs, job->arch);
        for (uint32_t k = 0; k < r && !done; k++)
            done = !strcmp(rows[k].form, rows[r].form) && !strcmp(rows[k].module, job->name) && strstr(rows[k].archs, job->arch);
        if (done) continue;
        const char *options[16];
        gdn_compile_job j = *job;
        for (j.n_options = 0; j.n_options < job->n_options && j.n_options < 15; j.n_options++)
            options[j.n_options] = job->options[j.n_options];
        options[j.n_options++] = added;
        j.options = options;
        gate_one(&j, rows[r].form);
    }
}
/* A source that is not in a plugin (the wrappers, the engine's kernels), compiled with what the target's modules get. */
static void gate_file(const gdn_modules *m, const char *folder, const char *file, const char *arch) {
    char path[1024];
    static char source[1 << 16];
    gdn_compile_job job = { .struct_size = (uint32_t)sizeof job };
    snprintf(path, sizeof path, "%s/%s/%s", GDN_SOURCE_DIR, folder, file);
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(source, 1, sizeof source - 1, f) : 0;
    if (f) fclose(f);
    source[n] = 0;
    expect(n > 0 && m->get(arch, 0, &job) == GDN_OK, path, "cannot be read, or the target lists no module");
    job.name = file;
    job.source = source;
    if (n) gate_one(&job, "");
}
static bool has_rows(const char *module, const char *form) {
    for (uint32_t r = 0; r < n_rows; r++)
        if (!strcmp(rows[r].module, module) && !strcmp(rows[r].form, form)) return true;
    return false;
}
/* What a build of a source's other entries is told by. */
static const char *part_of(const char *form) {
    static const char *const parts[] = { "-DGDN_OTHER_SPINES", "-DGDN_CORE", "-DGDN_CHECKPOINTS" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(form, parts[i])) return parts[i];
    return "";
}
/* How many of the rule modules' variants a form has. One or two of the three differ from none and all by index arithmetic only. */
static int rule_variants(const char *form) {
    return !!strstr(form, "-DGDN_STATE_VK") + !!strstr(form, "-DGDN_HEADS_TILED") + !!strstr(form, "-DGDN_GATE_LOG");
}
static void gate_target(const char *target, const char *arch, int argc, char **argv) {
    const gdn_modules *m = modules_of(target);
    const uint32_t n = m ? m->count(arch) : 0;
    expect(n > 0, target, "lists no module");
    if (n && wanted("wrappers_portable.cu", argc, argv)) gate_file(m, "tests/nvrtc", "wrappers_portable.cu", arch);
    if (n && !strcmp(arch, "sm_90a") && wanted("wrappers_hopper.cu", argc, argv)) gate_file(m, "tests/nvrtc", "wrappers_hopper.cu", arch);
    if (n && wanted("engine_rows.cu", argc, argv)) gate_file(m, "host/engine", "engine_rows.cu", arch);
    for (uint32_t i = 0; i < n; i++) {
        gdn_compile_job job = { .struct_size = (uint32_t)sizeof job };
        char form[256];
        const gdn_status st = m->get(arch, i, &job);
        expect(st == GDN_OK, target, "does not give a module that it counts");
        if (st != GDN_OK || !wanted(job.name, argc, argv)) continue;
        form_of(&job, form, sizeof form);
        const int variants = rule_variants(form);
        if ((variants > 0 && variants < 3) || (variants && strstr(form, "-DGDN_QK_L2NORM"))) {
            skipped++;
            continue;
        }
        const char *const base = part_of(form);
        char all[64];
        snprintf(all, sizeof all, "%s%sall", base, *base ? " " : "");
        /* all variants at once: rows of their own, or those of none */
        gate_one(&job, !variants ? form : has_rows(job.name, all) ? all : base);
        if (!strcmp(form, base)) gate_added_forms(&job, base);
    }
}

int main(int argc, char **argv) {
    char text[2048] = "";
    gdn_text err = { text, sizeof text, 0 };
    const gdn__log quiet = { 0 };
    const double begin = gdn__now_ms();
    if (gdn__nvrtc_open(getenv("GDN_NVRTC"), &quiet, &nvrtc, &err) != GDN_OK) {
        printf("skipped: no usable NVRTC: %s\n", text);
        return 77;
    }
    printf("NVRTC %d.%d, %s\n", nvrtc.major, nvrtc.minor, nvrtc.path);
    static const char *const archs[] = { "sm_90a", "sm_121f" }, *const targets[] = { "hopper", "gb10" };
    for (int i = 0; i < 2; i++) calibrate(archs[i]);
    plant_all(archs[0]);
    printf("gates: %s\n", failures ? "NOT trustworthy" : "calibrated, every planted violation found");
    for (int i = 0; i < 2; i++) gate_target(targets[i], archs[i], argc, argv);
    for (uint32_t r = 0; r < n_rows && argc < 2; r++) expect(rows[r].met, rows[r].module, rows[r].entry);
    printf(
        "%u rows, %u violations, %.1f s. Not checked here: %u forms with one or two of three variants, what the code computes, speed, and "
        "instructions without a fact.\n",
        n_rows, failures, (gdn__now_ms() - begin) / 1e3, skipped);
    gdn__nvrtc_close(&nvrtc);
    return failures != 0;
}
