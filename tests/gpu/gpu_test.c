/* gpu_test.c - the program: which groups run, where results go. Needs libgdn, jansson, a driver and NVRTC; no test framework, so that
 * it runs on a machine that has nothing else. */
#include "bench_gpu.h"
#include "gt.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: gpu_test [options]\n"
                           "  --target NAME   hopper (default), gb10; cpu: the harness alone, on no device\n"
                           "  --short         few and small shapes, nothing that starts programs\n"
                           "  --only TEXT     results whose name holds TEXT, or one of several between commas\n"
                           "  --cubins DIR    modules compiled before (gdn compile); else they are compiled into a temporary folder\n"
                           "  --side-by-side  what is not timed by several programs at once, with the results of one\n"
                           "  --no-bench      no bench rows\n"
                           "  --evidence FILE writes the evidence file; needs --hash\n"
                           "  --hash TEXT     of the sources, as ./dev gpu-evidence prints it\n"
                           "  --verify FILE   no run: has the file the form, and is every result a pass or an explained skip\n"
                           "Exit status: 0 every result is pass or skip; 1 one failed; 2 wrong usage; 3 the target does not open;\n"
                           "4 the file has the form, but a result failed.\n";

static json_t *bench(gt *t) {
    const gdn_options defaults = GDN_OPTIONS_INIT;
    cli_common c = { .open = defaults, .command = "bench" };
    c.open.target = t->target;
    return gpu_bench_run(&c, GPU_BENCH_OPS, 16, 48, 21);
}

/* Targets, clock and modules; false: a line was printed. */
static bool open_all(gt *t, gpu_clock *clock, char folder[64]) {
    (void)gt_begin(t, "%s", "open");
    t->cpu = gt_open(t, "cpu", NULL);
    if (strcmp(t->target, "cpu") != 0) {
        if (!gpu_clock_open(clock, 0)) gt_fail(t, "%s", clock->why);
        if (clock->ctx) t->clock = clock;
    }
    t->dev = gt_open(t, t->target, "ssm_ba_gates_hopper", "false", "ssm_ba_gates_tc", "false", "gdn_prefill_fast", "false", NULL);
    json_decref(t->figures);
    t->figures = NULL;
    if (!t->cpu || !t->dev || t->bad) {
        (void)fprintf(stderr, "gpu_test: %s\n", t->reason);
        return false;
    }
    if (!t->cubins && !t->brief) (void)gt_make_cubins(t, folder);
    if (!t->cubins && !t->cubin_reason[0]) (void)snprintf(t->cubin_reason, sizeof t->cubin_reason, "none were given with --cubins");
    return true;
}

int main(int argc, char **argv) {
    static const struct option options[] = { { "target", 1, 0, 't' }, { "short", 0, 0, 's' },    { "only", 1, 0, 'o' },
                                             { "cubins", 1, 0, 'c' }, { "no-bench", 0, 0, 'n' }, { "evidence", 1, 0, 'e' },
                                             { "hash", 1, 0, 'h' },   { "verify", 1, 0, 'v' },   { "help", 0, 0, '?' },
                                             { "part", 1, 0, 'p' },   { "results", 1, 0, 'r' },  { "side-by-side", 0, 0, 'b' },
                                             { 0, 0, 0, 0 } };
    const char *evidence = NULL, *hash = NULL, *part = NULL, *results = NULL; /* part: of a run side by side, by its own program */
    char folder[64] = "", command[128];
    static gt t;
    static gpu_clock clock;
    bool no_bench = false, side_by_side = false;
    int rc;
    if (gt_child(argc, argv, &rc)) return rc;
    t.target = "hopper";
    t.self = argv[0];
    for (int v; (v = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (v == 't') t.target = optarg;
        if (v == 's') t.brief = true;
        if (v == 'o') t.only = optarg;
        if (v == 'c') t.cubins = optarg;
        if (v == 'n') no_bench = true;
        if (v == 'e') evidence = optarg;
        if (v == 'h') hash = optarg;
        if (v == 'p') part = optarg;
        if (v == 'r') results = optarg;
        if (v == 'b') side_by_side = true;
        if (v == 'v') return gt_verify(optarg);
        if (v == '?') return fputs(help, stdout), 2;
    }
    if (optind < argc || (evidence && (!hash || no_bench || t.only || t.brief)) || !part != !results ||
        (part && (!part[0] || part[strspn(part, "0123456789")] || strtoul(part, NULL, 10) >= GT_PARTS)))
        return fputs(help, stderr), 2;
    t.results = json_array();
    t.device_steps = 1000;
    const char *only = t.only;
    t.only = NULL;
    rc = 3;
    if (!open_all(&t, &clock, folder)) goto out;
    t.only = only;
    if (!t.clock) t.device_steps = 20;
    if (part) {
        rc = gt_run_part(&t, (uint32_t)strtoul(part, NULL, 10), results);
        goto out;
    }
    gt_run_all(&t, side_by_side);
    printf("%u results on target %s: %u ok, %u failed, %u skipped\n", t.done, t.target, t.done - t.failed - t.skipped, t.failed, t.skipped);
    rc = t.failed ? 1 : 0;
    json_t *rows = t.clock && !no_bench && !t.brief && !t.only ? bench(&t) : NULL;
    if (rows) gpu_bench_print(rows);
    if (evidence && (!rows || !gt_evidence(&t, evidence, hash, rows))) rc = 1;
    json_decref(rows);
out:
    gdn_close(t.dev);
    gdn_close(t.cpu);
    gpu_clock_close(&clock);
    json_decref(t.results);
    if (folder[0]) {
        (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
        if (system(command) != 0) (void)fprintf(stderr, "gpu_test: %s stays\n", folder);
    }
    return rc;
}
