/* gt_child.c - what gpu_test does as a program of its own: starts with a stopwatch, a lost device, planted faults for the sanitizer. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "gt_process.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct {
    uint32_t progress, compiles, warnings;
    char warning[256], error[256];
} heard;
static void hear(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    heard.progress += strstr(msg, "compile ") != NULL && strchr(msg, '/') != NULL;
    if (severity == GDN_LOG_WARN && !heard.warnings++) (void)snprintf(heard.warning, sizeof heard.warning, "%s: %.200s", area, msg);
    if (severity == GDN_LOG_ERROR && !heard.error[0]) (void)snprintf(heard.error, sizeof heard.error, "%s: %.200s", area, msg);
    if (getenv("GDN_LOG")) (void)fprintf(stderr, "%u %s: %s\n", severity, area, msg);
}

static gdn *open_all(const char *target) {
    static const gdn_setting levers[] = { { "ssm_ba_gates_hopper", "true" }, { "ssm_ba_gates_tc", "true" }, { "gdn_woa", "1" } };
    char why[512] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_options o = GDN_OPTIONS_INIT;
    gdn *g = NULL;
    o.target = target;
    o.settings = levers;
    o.n_settings = GT_N(levers);
    o.log = hear;
    if (gdn_open(&o, &g, &err)) printf("reason %s\n", why);
    return g;
}

/* Every operation: those of a layer, the model's b/a projection among them, and the rule of a model of 16 and 48 heads on a pool of
 * states, as an engine has it: a long prompt alone, and eight sequences. GPU_TEST_LOG_FORM: with the logarithms
 * of the gates, and q and k normalised in the kernels. */
static const uint32_t rules[] = {
    GDN_OP_PREFILL, GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD, GDN_OP_ROUND
};
enum { LAYER = GT_ANY + 1, CLEAR = LAYER + GT_N(rules), PLANS };
static const gdn_flag_shape clear_shape = { .base = GT_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
static gt_shapes shapes[LAYER];
static gdn_rule_shape rule_shapes[GT_N(rules)];
static const gdn_shape *all_shapes[PLANS];
static void make_shapes(gt *t) {
    gt_job job;
    const bool log = getenv("GPU_TEST_LOG_FORM") != NULL;
    for (uint32_t i = 0; i < LAYER; i++) {
        if (i < GT_ANY)
            gt_any_job(t, i, &shapes[i], &job);
        else
            gt_ba_job(t, 300, 48, 3, 5120, 0, 0, &shapes[i], &job);
        all_shapes[i] = job.shape;
    }
    for (uint32_t i = 0; i < GT_N(rules); i++) {
        rule_shapes[i] = (gdn_rule_shape) { .base = GT_BASE(gdn_rule_shape, rules[i]),
                                            .nk = 16,
                                            .nv = 48,
                                            .k_dim = 128,
                                            .v_dim = 128,
                                            .gate_form = log ? GDN_GATE_LOG : GDN_GATE_LINEAR,
                                            .state_addr = GDN_STATE_POOL,
                                            .state_type = GDN_F32,
                                            .max_batch = i ? 8 : 1,
                                            .max_rows = rules[i] == GDN_OP_VERIFY ? 16 : 4,
                                            .max_tokens = rules[i] == GDN_OP_PREFILL ? 8192 : 0,
                                            .hi_capacity = 15,
                                            .stash_seqs = 8,
                                            .num_slots = 9 };
        if (log && rules[i] != GDN_OP_FOLD) rule_shapes[i].base.flags |= GDN_QK_L2NORM;
        all_shapes[LAYER + i] = &rule_shapes[i].base;
    }
    all_shapes[CLEAR] = &clear_shape.base;
}

static bool plan_all(gdn *g, gdn_hplan *plan[PLANS]) {
    for (uint32_t i = 0; i < PLANS; i++) {
        char why[512] = "";
        gdn_text err = { why, sizeof why, 0 };
        if (gdn_plan_make(g, all_shapes[i], NULL, &plan[i], &err)) {
            printf("reason plan: %s\n", why);
            return false;
        }
    }
    return true;
}

/* The lowest hardware thread of the core that this one is part of; itself where that cannot be read. */
static unsigned first_of_core(unsigned cpu) {
    char path[96];
    unsigned first = cpu;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (f && (fscanf(f, "%u", &first) != 1 || first >= CPU_SETSIZE)) first = cpu;
    if (f) (void)fclose(f);
    return first;
}

/* GPU_TEST_CORES=n: this program gets n of the machine's cores, one hardware thread of each. */
static void choose_cores(void) {
    const char *text = getenv("GPU_TEST_CORES");
    const long want = text ? strtol(text, NULL, 10) : 0;
    cpu_set_t some, taken, all;
    long n = 0;
    if (want <= 0 || sched_getaffinity(0, sizeof all, &all) != 0) return;
    CPU_ZERO(&some);
    CPU_ZERO(&taken);
    for (unsigned k = 0; k < CPU_SETSIZE && n < want; k++) { /* even numbers first: a virtual machine may not tell its siblings */
        const unsigned i = 2 * k % CPU_SETSIZE + (2 * k >= CPU_SETSIZE);
        if (!CPU_ISSET(i, &all) || CPU_ISSET(first_of_core(i), &taken)) continue;
        CPU_SET(first_of_core(i), &taken);
        CPU_SET(i, &some);
        n++;
    }
    if (sched_setaffinity(0, sizeof some, &some) != 0) printf("reason %ld cores could not be chosen\n", want);
}

/* --start: from a ready primary context to all plans made; then one launch that must be right. */
static int start(gt *t) {
    gpu_clock clock;
    gdn_hplan *plan[PLANS] = { NULL };
    gt_shapes s;
    gt_job job;
    gt_live ref, dev;
    int rc = 1;
    choose_cores();
    make_shapes(t);
    if (!gpu_clock_open(&clock, 0)) {
        printf("reason %s\n", clock.why);
        return 1;
    }
    const double from = now_ms();
    gdn *g = open_all(t->target);
    const double opened = now_ms();
    if (g && plan_all(g, plan)) {
        const double ms = now_ms() - from;
        cpu_set_t mine;
        const int cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 0;
        printf("ms %.3f\nopen_ms %.3f\nprogress %u\nwarnings %u\ncores %d\n", ms, opened - from, heard.progress, heard.warnings, cores);
        if (heard.warnings) printf("warning %s\n", heard.warning);
        t->dev = g;
        t->cpu = gt_open(t, "cpu", NULL);
        gt_norm_job(t, 66, 6, 128, GDN_NORM_SILU, 0, &s, &job);
        if (t->cpu && gt_up(t, t->cpu, &job, &ref) && gt_up(t, g, &job, &dev) && gt_launch(&ref, NULL) == GDN_OK &&
            gt_launch(&dev, NULL) == GDN_OK && gt_down(t, &ref, NULL) && gt_down(t, &dev, NULL) && gt_same(t, &ref, &dev, false)) {
            printf("right 1\n");
            rc = 0;
        }
        if (t->cpu) gt_drop(&ref), gt_drop(&dev);
    }
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(plan[i]);
    gdn_close(g);
    gdn_close(t->cpu);
    gpu_clock_close(&clock);
    return rc;
}

static const char fault_source[] = "extern \"C\" __global__ void gdn_fault(float *x) { *x = 1.0f; }\n";

/* --lost: B196. A kernel that is not the library's writes to nowhere; then every entry answers that error, soon. */
static int lost(gt *t) {
    gpu_clock clock;
    gpu_kernel k = { 0 };
    gdn_hplan *plan[PLANS] = { NULL };
    uint64_t p = 0, q = 0;
    float host[4] = { 0 };
    if (!gpu_clock_open(&clock, 0) || !gpu_kernel_make(&clock, fault_source, "gdn_fault", &k)) {
        printf("reason %s\n", clock.why);
        return 2;
    }
    make_shapes(t);
    gdn *g = open_all(t->target);
    gt_shapes s;
    gt_job job;
    gt_live l;
    if (!g || !plan_all(g, plan) || gdn_mem_alloc(g, 4096, &p)) return 1;
    gt_norm_job(t, 66, 6, 128, GDN_NORM_SILU, 0, &s, &job);
    if (!gt_up(t, g, &job, &l)) return 1;
    uint64_t nowhere = 16;
    void *params[] = { &nowhere };
    if (!gpu_kernel_go(&clock, &k, 1, 1, NULL, params)) return 1;
    (void)gpu_sync(&clock, NULL);
    const double from = now_ms();
    const gdn_status st[] = {
        gt_launch(&l, NULL),         gdn_sync(g, NULL),       gdn_copy_in(g, NULL, p, host, 16), gdn_copy_out(g, NULL, host, p, 16),
        gdn_fill(g, NULL, p, 0, 16), gdn_mem_alloc(g, 64, &q)
    };
    bool all = true;
    for (uint32_t i = 0; i < GT_N(st); i++) {
        all = all && st[i] == GDN_E_DRIVER;
        if (st[i] != GDN_E_DRIVER) printf("reason call %u answered %s\n", i, gdn_status_name(st[i]));
    }
    gt_drop(&l);
    gdn_mem_free(g, p);
    for (uint32_t i = 0; i < PLANS; i++) gdn_plan_free(plan[i]);
    gdn_close(g);
    printf("ms %.3f\nnamed %d\n", now_ms() - from, strstr(heard.error, "CUDA_ERROR_") != NULL);
    printf("error %s\n", heard.error);
    return all ? 0 : 1;
}

static const char oob_source[] = "extern \"C\" __global__ void gdn_oob(float *x, int n) { x[n + threadIdx.x] = 1.0f; }\n";
static const char race_source[] = "extern \"C\" __global__ void gdn_race(float *x) {\n"
                                  "    __shared__ float s[64];\n"
                                  "    s[threadIdx.x] = x[threadIdx.x];\n"
                                  "    x[threadIdx.x] = s[63 - threadIdx.x];\n"
                                  "}\n";
/* --plant oob|race: what memcheck and racecheck must find, or their silence about the library's kernels means nothing. */
static int plant(gt *t, const char *what) {
    gpu_clock clock;
    gpu_kernel k;
    uint64_t x = 0;
    int n = 64;
    const bool oob = !strcmp(what, "oob");
    if (!gpu_clock_open(&clock, 0) || !gpu_kernel_make(&clock, oob ? oob_source : race_source, oob ? "gdn_oob" : "gdn_race", &k)) {
        printf("reason %s\n", clock.why);
        return 2;
    }
    gdn *g = open_all(t->target);
    if (!g || gdn_mem_alloc(g, 64 * sizeof(float), &x)) return 1;
    void *params[] = { &x, &n };
    const bool ok = gpu_kernel_go(&clock, &k, 1, 64, NULL, params) && gpu_sync(&clock, NULL);
    printf("ran %d\n", ok);
    return 0;
}

bool gt_child(int argc, char **argv, int *rc) {
    if (argc < 3) return false;
    gt t = { .target = argv[2], .self = argv[0], .results = json_array(), .figures = json_object() };
    bool known = true;
    if (!strcmp(argv[1], "--start"))
        *rc = start(&t);
    else if (!strcmp(argv[1], "--lost"))
        *rc = lost(&t);
    else if (!strcmp(argv[1], "--plant") && argc > 3)
        *rc = plant(&t, argv[3]);
    else if (!strcmp(argv[1], "--rounds") && argc > 6)
        *rc = gt_child_rounds(&t, argv + 3);
    else if (!strcmp(argv[1], "--first"))
        *rc = gt_child_first(&t);
    else if (!strcmp(argv[1], "--width") && argc > 3)
        *rc = gt_child_width(&t, argv[3]);
    else
        known = false;
    if (known && t.bad) printf("reason %s\n", t.reason);
    (void)fflush(stdout);
    json_decref(t.results);
    json_decref(t.figures);
    return known;
}
