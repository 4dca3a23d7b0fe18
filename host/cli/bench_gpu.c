/* bench_gpu.c - see bench_gpu.h: opens target and clock, runs the rows, prints the table. */
#include "bench_gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool in_list(const char *ops, const char *name) {
    const size_t want = strlen(name);
    for (size_t n; *ops; ops += n + (ops[n] == ',')) {
        n = strcspn(ops, ",");
        if (n == want && strncmp(ops, name, n) == 0) return true;
    }
    return false;
}

bool gpu_bench_knows(const char *ops) {
    char name[32];
    for (size_t n; *ops; ops += n + (ops[n] == ',')) {
        n = strcspn(ops, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), ops);
        if (!in_list(GPU_BENCH_OPS, name)) return false;
    }
    return true;
}

/* Parameters of gates and random bytes as f32 do not go together: every f32 array is read as what random bf16 pairs make, which is
 * finite and below 1 in size. */
json_t *gpu_bench_run(const cli_common *cli, const char *ops, uint32_t nk, uint32_t nv, uint32_t replays) {
    gpu_bench *b = calloc(1, sizeof *b);
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    json_t *doc = NULL;
    bool ok = false;
    if (!b) return cli_error(cli, "out of memory"), NULL;
    *b = (gpu_bench) { .cli = cli, .nk = nk, .nv = nv, .replays = replays };
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    const gdn_options base = cli_open_options(cli);
    gdn *g = cli_open(cli);
    if (!g || gdn_describe(g, &info)) goto out;
    if (!gpu_clock_open(&b->clock, info.device.ordinal)) {
        cli_error(cli, "no clock on device %d: %s", (int)info.device.ordinal, b->clock.why);
        goto out;
    }
    b->g = g;
    b->rows = json_array();
    b->left_out = json_array();
    doc = json_pack("{s:i, s:s, s:s, s:s, s:O, s:O}", "schema", 1, "command", "bench", "target", info.target, "device", info.device.name,
                    "bench", b->rows, "left_out", b->left_out);
    ok = doc && gpu_bench_ceilings(b, doc) && (!in_list(ops, "prefill") || gpu_bench_prefill(b, &base)) &&
         (!in_list(ops, "decode") || gpu_bench_decode(b)) && (!in_list(ops, "verify") || gpu_bench_verify(b)) &&
         (!in_list(ops, "fold") || gpu_bench_fold(b, &base)) && (!in_list(ops, "round") || gpu_bench_round(b, &base)) &&
         (!in_list(ops, "decode_step") || gpu_bench_step(b)) && (!in_list(ops, "ba_gates") || gpu_bench_ba(b, &base)) &&
         (!in_list(ops, "conv") || gpu_bench_conv(b)) && (!in_list(ops, "norm") || gpu_bench_norm(b)) &&
         (!in_list(ops, "gates") || gpu_bench_gates(b)) && (!in_list(ops, "w4a4") || gpu_bench_w4a4(b));
    gpu_bench_release(b);
    gdn_mem_free(g, b->random);
    gpu_clock_close(&b->clock);
out:
    gdn_close(g);
    json_decref(b->rows);
    json_decref(b->left_out);
    free(b);
    if (ok) return doc;
    json_decref(doc);
    return NULL;
}

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}
static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

static void print_row(const json_t *row, double copy) {
    char shape[96] = "", tflops[16] = "-";
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(row, "shape"), key, v) {
        const size_t n = strlen(shape);
        (void)snprintf(shape + n, sizeof shape - n, "%s%s=%lld", n ? " " : "", key, (long long)json_integer_value(v));
    }
    if (!isnan(number(row, "tflops"))) (void)snprintf(tflops, sizeof tflops, "%.1f", number(row, "tflops"));
    printf("%-9s %-52s %-32s %10.2f %10.2f %10.2f %8.0f %5.0f %% %8s", text(row, "op"), text(row, "entry"), shape, number(row, "us_median"),
           number(row, "us_p10"), number(row, "us_p90"), number(row, "gbps"), 100 * number(row, "gbps") / copy, tflops);
    json_object_foreach(json_object_get(row, "peers"), key, v) if (strncmp(key, "cublas", 6) == 0)
        printf("  %s %.2f", key, json_number_value(v));
    putchar('\n');
}

void gpu_bench_print(const json_t *doc) {
    size_t i;
    json_t *v;
    const double copy = number(doc, "copy_gbps"), dense = number(doc, "bf16_tflops");
    printf("target %s, %s\n", text(doc, "target"), text(doc, "device"));
    printf("best copy, read + write: %.0f GB/s by %s; memcpy %.0f GB/s\n", copy, text(doc, "copy_by"), number(doc, "memcpy_gbps"));
    if (isnan(dense))
        printf("dense bf16: not measured, %s\n", text(doc, "bf16_by"));
    else
        printf("dense bf16: %.0f TFLOP/s, %s\n", dense, text(doc, "bf16_by"));
    printf("%-9s %-52s %-32s %10s %10s %10s %8s %7s %8s\n", "op", "entry", "shape", "us median", "p10", "p90", "GB/s", "of copy",
           "TFLOP/s");
    json_array_foreach(json_object_get(doc, "bench"), i, v) print_row(v, copy);
    json_array_foreach(json_object_get(doc, "left_out"), i, v) printf("left out: %s\n", json_string_value(v));
}
