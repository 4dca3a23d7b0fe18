/* cmd_bench.c - `gdn bench`: a target's operations beside the machine's own ceilings, measured in the same run. Target cpu here, GPU
 * targets in bench_gpu.c. */
#include "bench.h"
#include "bench_gpu.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: gdn bench [options]\n"
    "  --heads NKxNV       key and value heads, dims 128/128 (default 16x32; on a GPU 16x48)\n"
    "  --op LIST           of prefill,decode,verify; on a GPU of\n"
    "                      " GPU_BENCH_OPS " (default: all)\n"
    "  --reps N            timed runs of each row, 3 to 64 (default 21)\n"
    "  --pool MIB          memory that states are rotated through (default 1024; at least four times the last cache)\n" CLI_COMMON_HELP
    "On cpu times are wall clock, median with 10th and 90th percentile; every row is interleaved with its ceiling. Threads come from\n"
    "OMP_NUM_THREADS; OMP_PROC_BIND=true is set unless you set it (unbound threads can share a core for a scheduler tick).\n"
    "On a GPU they are of one call inside a graph of many, by events over --reps replays, buffers rotated through more than the\n"
    "last cache (--pool is not used).\n";

static const char *number(double x, char buf[16]) {
    if (isnan(x)) return "-";
    snprintf(buf, 16, "%.1f", x);
    return buf;
}

static void print_rows(const bench *b) {
    printf("%-10s %-4s %-7s %5s %5s %4s %12s %12s %12s %8s %8s  %s\n", "op", "type", "state", "T", "batch", "rows", "us median", "p10",
           "p90", "GB/s", "GFLOP/s", "of its ceiling");
    for (uint32_t i = 0; i < b->rows; i++) {
        const bench_row *r = &b->row[i];
        char g[16], f[16];
        printf("%-10s %-4s %-7s %5u %5u %4u %12.1f %12.1f %12.1f %8s %8s  %.0f %% of %s (%s)\n", r->op, r->type, r->layout, r->T, r->batch,
               r->rows, r->us_median, r->us_p10, r->us_p90, number(r->gbps, g), number(r->gflops, f), 100 * r->of_ceiling, r->ceiling,
               r->entry);
    }
}

static json_t *rows_json(const bench *b) {
    json_t *rows = json_array();
    for (uint32_t i = 0; i < b->rows; i++) {
        const bench_row *r = &b->row[i];
        json_t *shape = json_pack("{s:i, s:i, s:i, s:i}", "T", (int)r->T, "batch", (int)r->batch, "nk", (int)b->nk, "nv", (int)b->nv);
        if (r->rows) json_object_set_new(shape, "rows", json_integer(r->rows));
        if (r->layout[0]) json_object_set_new(shape, "state", json_string(r->layout));
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:s, s:f}", "op", r->op, "entry",
                                              cli_text(r->entry), "type", r->type, "shape", shape, "us_median", r->us_median, "us_p10",
                                              r->us_p10, "us_p90", r->us_p90, "gbps", r->gbps, "gflops", r->gflops, "ceiling", r->ceiling,
                                              "of_ceiling", r->of_ceiling));
    }
    return rows;
}

static bool run_all(bench *b, const char *ops) {
    static const uint32_t T[] = { 1, 4, 32, 33, 64, 65, 128, 256, 512, 1024, 2048, 4096, 8192 }, B[] = { 1, 2, 4, 8, 16, 32, 64 };
    enum { NT = sizeof T / sizeof *T, NB = sizeof B / sizeof *B };
    const bool prefill = strstr(ops, "prefill"), decode = strstr(ops, "decode"), verify = strstr(ops, "verify");
    const uint64_t total = (prefill ? 2u * NT : 0u) + (decode ? 2u * NB : 0u) + (verify ? 2u * NB : 0u);
    const uint64_t one = (uint64_t)b->nv * 128 * 128 * 4;
    uint64_t done = 0;
    for (uint32_t i = 0; prefill && i < 2 * NT; i++, cli_progress("bench", ++done, total))
        if (!bench_prefill(b, i < NT ? GDN_F32 : GDN_BF16, T[i % NT])) return false;
    for (uint32_t i = 0; decode && i < 2 * NB; i++, cli_progress("bench", ++done, total))
        if (2 * B[i % NB] * one <= b->pool_bytes && !bench_decode(b, i >= NB, B[i % NB])) return false;
    for (uint32_t i = 0; verify && i < 2 * NB; i++, cli_progress("bench", ++done, total))
        if (2 * B[i % NB] * one <= b->pool_bytes && !bench_verify(b, i >= NB, B[i % NB])) return false;
    return true;
}

static bool ops_are_known(const char *ops) {
    static const char *const known[] = { "prefill", "decode", "verify" };
    while (*ops) {
        const size_t n = strcspn(ops, ",");
        bool found = false;
        for (int i = 0; i < 3; i++) found = found || (strlen(known[i]) == n && strncmp(ops, known[i], n) == 0);
        if (!found) return false;
        ops += n + (ops[n] == ',');
    }
    return true;
}

static bool heads_of(const char *text, uint32_t *nk, uint32_t *nv) {
    char end;
    return sscanf(text, "%ux%u%c", nk, nv, &end) == 2 && *nk && *nv && *nk <= 256 && *nv <= 256 && *nv % *nk == 0;
}

/* The OpenMP runtime reads its settings when the program is loaded: start again with the setting. main hands over argv + 1 and
 * has put the program's name in front of the subcommand's, for getopt's messages. */
static void rerun_bound(char **argv) {
    static char name[] = "bench";
    if (getenv("OMP_PROC_BIND") || setenv("OMP_PROC_BIND", "true", 1)) return;
    argv[0] = name;
    execv("/proc/self/exe", argv - 1);
}

static int report(bench *b, const char *ops) {
    const gdn_setting woa = { "gdn_woa", "1" };
    cli_common with_woa = *b->cli;
    bench_machine m;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    if (with_woa.open.n_settings < sizeof with_woa.settings / sizeof *with_woa.settings)
        with_woa.settings[with_woa.open.n_settings++] = woa;
    with_woa.open.settings = with_woa.settings;
    if (!(b->g = cli_open(&with_woa)) || gdn_describe(b->g, &info)) return CLI_NO;
    b->mem.g = b->g;
    if (strcmp(info.target, "cpu")) return cli_error(b->cli, "no rows for target %s", info.target), CLI_NO;
    if (!bench_open_ceilings(b))
        return cli_error(b->cli, "out of memory for two pools of %llu MiB", (unsigned long long)(b->pool_bytes >> 20)), CLI_NO;
    bench_measure_machine(b, &m);
    if (!run_all(b, ops)) return CLI_NO;
    if (b->cli->json) {
        cli_print_json(json_pack("{s:i, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:I, s:o}", "schema", 1, "command", "bench", "target",
                                 cli_text(info.target), "device", cli_text(info.device.name), "threads", m.threads, "memcpy_gbps",
                                 m.memcpy_gbps, "copy_gbps", m.stream_gbps, "scale_gbps", m.scale_gbps, "sgemm_gflops", m.sgemm_gflops,
                                 "pool_bytes", (json_int_t)b->pool_bytes, "bench", rows_json(b)));
        return CLI_OK;
    }
    printf("target %s, %s, %d threads, heads %u/%u, states rotated through %llu MiB\n", info.target, info.device.name, m.threads, b->nk,
           b->nv, (unsigned long long)(b->pool_bytes >> 20));
    printf(
        "this machine, best of 5, read + write: memcpy %.1f GB/s, non-temporal copy %.1f GB/s, in-place scale %.1f GB/s; sgemm 1024 cubed %.1f GFLOP/s\n",
        m.memcpy_gbps, m.stream_gbps, m.scale_gbps, m.sgemm_gflops);
    print_rows(b);
    return CLI_OK;
}

static void only_progress(void *user, uint32_t severity, const char *area, const char *msg) {
    if (severity == GDN_LOG_INFO) cli_compile_progress(user, severity, area, msg);
}

/* hopper, gb10, or auto where it picks one of them. A path is a target of its own and is asked. */
static bool is_gpu(const cli_common *c) {
    gdn_options dry = cli_open_options(c);
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    gdn *g = NULL;
    bool gpu = false;
    dry.flags |= GDN_OPEN_DRY;
    dry.log = dry.log == cli_compile_progress ? only_progress : NULL; /* the open that follows says the rest */
    if (c->open.target && !strcmp(c->open.target, "auto")) dry.flags &= ~(uint32_t)GDN_OPEN_DRY;
    if (gdn_open(&dry, &g, NULL) == GDN_OK && gdn_describe(g, &info) == GDN_OK) gpu = info.archs && *info.archs;
    gdn_close(g);
    return gpu;
}

static int report_gpu(const cli_common *c, const char *ops, uint32_t nk, uint32_t nv, uint32_t reps) {
    if (!*ops || !gpu_bench_knows(ops)) return cli_error(c, "--op is '%s', expected on a GPU a list of " GPU_BENCH_OPS, ops), CLI_USAGE;
    json_t *doc = gpu_bench_run(c, ops, nk, nv, reps);
    if (!doc) return CLI_NO;
    if (c->json) return cli_print_json(doc), CLI_OK;
    gpu_bench_print(doc);
    json_decref(doc);
    return CLI_OK;
}

int gdn_cmd_bench(int argc, char **argv) {
    static const struct option options[] = { CLI_COMMON_OPTIONS,    { "heads", 1, 0, 'h' }, { "op", 1, 0, 'o' },
                                             { "reps", 1, 0, 'r' }, { "pool", 1, 0, 'p' },  { 0, 0, 0, 0 } };
    cli_common c;
    const char *ops = NULL;
    uint64_t reps = 21, pool = 1024;
    cli_common_init(&c, "bench");
    c.open.target = "cpu";
    bench *b = calloc(1, sizeof *b);
    if (!b) return cli_error(&c, "out of memory"), CLI_NO;
    int rc = CLI_USAGE;
    for (int v; (v = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (cli_common_option(&c, v, optarg)) continue;
        if (v == 'h' && !heads_of(optarg, &b->nk, &b->nv)) {
            cli_error(&c, "--heads is '%s', expected NKxNV with NV a multiple of NK, such as 16x32", optarg);
            goto out;
        }
        if (v == 'o') ops = optarg;
        if (v == 'r' && !cli_u64(&c, "--reps", optarg, 3, BENCH_MAX_REPS, &reps)) goto out;
        if (v == 'p' && !cli_u64(&c, "--pool", optarg, 64, 1u << 20, &pool)) goto out;
        if (v == '?') goto out;
    }
    if (c.help) {
        fputs(help, stdout);
        rc = CLI_OK;
        goto out;
    }
    if (optind < argc) {
        cli_error(&c, "unexpected argument '%s'", argv[optind]);
        goto out;
    }
    if (is_gpu(&c)) {
        rc = report_gpu(&c, ops ? ops : GPU_BENCH_OPS, b->nk ? b->nk : 16, b->nv ? b->nv : 48, (uint32_t)reps);
        goto out;
    }
    if (!ops) ops = "prefill,decode,verify";
    if (!b->nk) b->nk = 16, b->nv = 32;
    if (!*ops || !ops_are_known(ops)) {
        cli_error(&c, "--op is '%s', expected on target cpu a list of prefill, decode and verify", ops);
        goto out;
    }
    rerun_bound(argv);
    b->cli = &c;
    b->reps = (uint32_t)reps;
    b->pool_bytes = pool << 20;
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    rc = report(b, ops);
out:
    bench_close_ceilings(b);
    gdn_close(b->g);
    free(b);
    return rc;
}
