/* gt_evidence.c - tests/gpu/evidence.json: written from a run, and read back with a check of its form.
 *
 *     { "schema": 1, "hash": of kernels/ plugin/ abi/ host/ (source_hash in ./dev), "target", "device", "driver",
 *       "nvrtc", "date",
 *       "results": [ { "name", "status": pass|fail|skip, "reason", "figures": {} } ],
 *       "bench": rows of bench_gpu.h, "copy_gbps", "copy_by", "memcpy_gbps", "bf16_tflops", "bf16_by", "left_out" } */
#include "gt.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* "580.159.03 (CUDA 13.0)" */
static void driver_text(const gt *t, char out[128]) {
    char line[256] = "", version[64] = "?";
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    /* "NVRM version: ... Kernel Module  for x86_64  580.159.03  ...": the first word of digits and dots. */
    if (f && fgets(line, (int)sizeof line, f)) {
        char *rest = NULL;
        for (const char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
            if (!strchr(word, '.') || word[strspn(word, "0123456789.")] != '\0') continue;
            (void)snprintf(version, sizeof version, "%.60s", word);
            break;
        }
    }
    if (f) (void)fclose(f);
    (void)snprintf(out, 128, "%s (CUDA %d.%d)", version, t->clock->driver / 1000, t->clock->driver % 1000 / 10);
}

bool gt_evidence(const gt *t, const char *file, const char *hash, const json_t *bench) {
    static const char *const kept[] = { "bench", "copy_gbps", "copy_by", "memcpy_gbps", "bf16_tflops", "bf16_by", "left_out" };
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    char driver[128], nvrtc[512], date[32];
    const time_t now = time(NULL);
    struct tm utc;
    if (!t->clock || gdn_describe(t->dev, &info) != GDN_OK) {
        (void)fprintf(stderr, "gpu_test: no evidence without a device\n");
        return false;
    }
    driver_text(t, driver);
    gpu_nvrtc_text(nvrtc, sizeof nvrtc);
    (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    char *slash = strstr(nvrtc, " ("); /* where it lay is this machine's affair */
    if (slash && nvrtc[0] >= '0' && nvrtc[0] <= '9') *slash = '\0';
    json_t *doc = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:O}", "schema", 1, "hash", hash, "target", info.target, "device",
                            info.device.name, "driver", driver, "nvrtc", nvrtc, "date", date, "results", t->results);
    for (size_t i = 0; doc && i < GT_N(kept); i++)
        if (json_object_set(doc, kept[i], json_object_get(bench, kept[i])) != 0) break;
    const bool ok =
        doc && json_object_get(doc, "left_out") && json_dump_file(doc, file, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6)) == 0;
    if (!ok) (void)fprintf(stderr, "gpu_test: %s could not be written: %s\n", file, strerror(errno));
    json_decref(doc);
    return ok;
}

static int wrong(const char *file, const char *what, const char *name) {
    (void)fprintf(stderr, "gpu_test: %s: %s%s%s\n", file, what, name ? ": " : "", name ? name : "");
    return 1;
}

static int result_is_wrong(const char *file, const json_t *r) {
    const char *name = json_string_value(json_object_get(r, "name")), *status = json_string_value(json_object_get(r, "status")),
               *reason = json_string_value(json_object_get(r, "reason"));
    if (!name || !status || !reason || !json_is_object(json_object_get(r, "figures"))) return wrong(file, "a result lacks a field", name);
    if (strcmp(status, "pass") != 0 && strcmp(status, "fail") != 0 && strcmp(status, "skip") != 0)
        return wrong(file, "a result of unknown status", name);
    return !strcmp(status, "pass") || reason[0] ? 0 : wrong(file, "a skip or failure without a reason", name);
}
/* Named, one a line; how many. */
static int failed_results(const char *file, const json_t *results) {
    size_t i;
    const json_t *r;
    int n = 0;
    json_array_foreach(results, i, r) if (!strcmp(json_string_value(json_object_get(r, "status")), "fail")) n +=
        wrong(file, "a result that is not a pass", json_string_value(json_object_get(r, "name")));
    return n;
}

int gt_verify(const char *file) {
    static const char *const strings[] = { "hash", "target", "device", "driver", "nvrtc", "date" }, *const numbers[] = { "us_median",
                                                                                                                         "us_p10", "us_p90",
                                                                                                                         "gbps" };
    json_error_t e;
    json_t *doc = json_load_file(file, 0, &e), *v;
    size_t i;
    int rc = 0;
    if (!doc) return wrong(file, e.text, NULL);
    for (size_t k = 0; k < GT_N(strings) && !rc; k++)
        if (!json_string_value(json_object_get(doc, strings[k]))) rc = wrong(file, "a field is missing", strings[k]);
    if (!rc && json_array_size(json_object_get(doc, "results")) == 0) rc = wrong(file, "there are no results", NULL);
    if (!rc && json_array_size(json_object_get(doc, "bench")) == 0) rc = wrong(file, "there are no bench rows", NULL);
    if (!rc && !json_is_number(json_object_get(doc, "copy_gbps"))) rc = wrong(file, "a field is missing", "copy_gbps");
    if (!rc && !json_object_get(doc, "bf16_tflops")) rc = wrong(file, "a field is missing", "bf16_tflops");
    json_array_foreach(json_object_get(doc, "results"), i, v) if (!rc) rc = result_is_wrong(file, v);
    json_array_foreach(json_object_get(doc, "bench"), i, v) {
        for (size_t k = 0; k < GT_N(numbers) && !rc; k++)
            if (!json_is_number(json_object_get(v, numbers[k]))) rc = wrong(file, "a bench row lacks a number", numbers[k]);
        if (!rc && (!json_string_value(json_object_get(v, "op")) || !json_string_value(json_object_get(v, "entry")) ||
                    !json_is_object(json_object_get(v, "shape")) || !json_is_object(json_object_get(v, "peers"))))
            rc = wrong(file, "a bench row lacks a field", NULL);
    }
    if (!rc && failed_results(file, json_object_get(doc, "results"))) rc = 4;
    json_decref(doc);
    return rc;
}
