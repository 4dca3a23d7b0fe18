/* gt_starts.c - programs started anew: cold, warm, with NVRTC hidden; together on one empty cache; over damaged entries; on a lost
 * device; under compute-sanitizer. Each child is this program with --start, --lost, --plant or --short. */
#include "gt_process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLD_MS = 15000, WARM_MS = 100 };

/* Cold: NVRTC's own cache off too. The machine's toolkit variables point to nowhere: B154 and B155, nothing of a toolkit is looked for. */
static void start_cold(gt *t, const char *name, const char *form, char cache[64]) {
    char vars[512], out[GT_OUT_BYTES];
    if (!gt_begin(t, "%s", name)) return;
    if (gt_needs_device(t) && gt_folder(t, cache)) {
        (void)snprintf(
            vars, sizeof vars,
            "-u GDN_CUBIN_DIR CUDA_HOME=/nonexistent/cuda-99 CUDA_PATH=/nonexistent CUDA_CACHE_DISABLE=1 GPU_TEST_CORES=2 GDN_CACHE_DIR=%s %s",
            cache, form);
        if (gt_start(t, vars, out)) {
            gt_figure(t, "ms", gt_value_of(out, "ms"));
            gt_figure(t, "open_ms", gt_value_of(out, "open_ms"));
            gt_figure(t, "progress_lines", gt_value_of(out, "progress"));
            (void)gt_check(t, gt_value_of(out, "cores") >= 1 && gt_value_of(out, "cores") <= 2, "it had %.0f cores",
                           gt_value_of(out, "cores"));
            (void)gt_check(t, gt_value_of(out, "ms") <= COLD_MS, "it took %.0f ms", gt_value_of(out, "ms"));
            (void)gt_check(t, gt_value_of(out, "progress") > 0, "no progress was reported");
            gt_figure(t, "cached", gt_count_files(cache, "*.cubin"));
            (void)gt_check(t, gt_count_files(cache, "*.cubin") > 0, "nothing was kept in the cache");
        }
    }
    gt_end(t);
}

static void start_warm(gt *t, const char *name, const char *form, const char *cache) {
    char vars[512], out[GT_OUT_BYTES];
    double best = 1e9;
    if (!gt_begin(t, "%s", name)) return;
    if (gt_needs_device(t) && gt_check(t, cache[0], "there is no cache from a cold start")) {
        (void)snprintf(vars, sizeof vars, "-u GDN_CUBIN_DIR GDN_NVRTC=/nonexistent GDN_CACHE_DIR=%s %s", cache, form);
        for (int i = 0; i < 5; i++) {
            if (!gt_start(t, vars, out)) break;
            gt_check(t, gt_value_of(out, "progress") == 0, "something was compiled");
            if (gt_value_of(out, "ms") < best) best = gt_value_of(out, "ms");
        }
        gt_figure(t, "best_ms", best);
        gt_figure(t, "last_ms", gt_value_of(out, "ms"));
        (void)gt_check(t, best <= WARM_MS, "the best of 5 took %.1f ms", best);
    }
    gt_end(t);
}

void gt_test_starts(gt *t) {
    static const char log_form[] = "GPU_TEST_LOG_FORM=1";
    char vars[512], out[GT_OUT_BYTES], logs[64] = "";
    start_cold(t, "start_cold_B154_B155", "", t->cache);
    start_warm(t, "start_from_cache", "", t->cache);
    start_cold(t, "start_cold_log_gates_l2norm", log_form, logs);
    start_warm(t, "start_from_cache_log_gates_l2norm", log_form, logs);
    gt_remove_folder(logs);
    if (gt_begin(t, "start_from_compiled_modules_nvrtc_hidden")) {
        char empty[64] = "";
        if (gt_needs_device(t) && gt_check(t, t->cubins != NULL, "%s", t->cubin_reason) && gt_folder(t, empty)) {
            (void)snprintf(vars, sizeof vars, "GDN_NVRTC=/nonexistent GDN_CUBIN_DIR=%s GDN_CACHE_DIR=%s", t->cubins, empty);
            if (gt_start(t, vars, out)) gt_figure(t, "ms", gt_value_of(out, "ms"));
            /* Control: without the folder there is nothing to start from. */
            (void)snprintf(vars, sizeof vars,
                           "env -u GDN_CUBIN_DIR GDN_NVRTC=/nonexistent GDN_CACHE_DIR=%s timeout 60 '%s' --start %s 2>&1", empty, t->self,
                           t->target);
            (void)gt_check(t, gt_run(vars, out) != 0, "control: it started without modules and without NVRTC");
        }
        gt_remove_folder(empty);
        gt_end(t);
    }
}

/* B161: eight processes on one empty cache. */
static void together(gt *t) {
    char cache[64] = "", command[1024], out[GT_OUT_BYTES];
    if (!gt_begin(t, "B161_eight_processes_on_an_empty_cache")) return;
    if (gt_needs_device(t) && gt_folder(t, cache)) {
        (void)snprintf(
            command, sizeof command,
            "for i in 1 2 3 4 5 6 7 8; do (env -u GDN_CUBIN_DIR GDN_CACHE_DIR=%s timeout 120 '%s' --start %s 2>&1 | grep '^right 1') & "
            "done; wait",
            cache, t->self, t->target);
        (void)gt_run(command, out);
        int right = 0;
        for (const char *p = out; (p = strstr(p, "right 1")) != NULL; p++) right++;
        gt_figure(t, "right", right);
        (void)gt_check(t, right == 8, "%d of 8 came up", right);
        (void)gt_check(t, gt_count_files(cache, "*tmp*") == 0, "temporary files were left");
        (void)gt_check(t, gt_count_files(cache, "*.cubin") == gt_count_files(cache, "??*.ini") - gt_count_files(cache, "nvrtc.ini"),
                       "entries and their side files do not match");
    }
    gt_remove_folder(cache);
    gt_end(t);
}

/* B163: another architecture's modules in the same folder. B165: damaged entries. */
static void damaged(gt *t, const char *name, const char *damage) {
    char cache[64] = "", vars[256], command[512], out[GT_OUT_BYTES];
    if (!gt_begin(t, "%s", name)) return;
    if (gt_needs_device(t) && gt_folder(t, cache)) {
        (void)snprintf(vars, sizeof vars, "-u GDN_CUBIN_DIR GDN_CACHE_DIR=%s", cache);
        (void)snprintf(command, sizeof command, "cp -r '%s/.' '%s'", t->cache, cache);
        if (gt_check(t, t->cache[0] && gt_run(command, out) == 0, "there is no cache from a cold start")) {
            const double before = gt_count_files(cache, "*.cubin");
            (void)snprintf(command, sizeof command, damage, cache);
            (void)gt_check(t, gt_run(command, out) == 0, "the entries could not be damaged");
            if (gt_start(t, vars, out)) {
                gt_figure(t, "warnings", gt_value_of(out, "warnings"));
                (void)gt_check(t, gt_value_of(out, "progress") > 0, "nothing was compiled again");
                (void)gt_check(t, gt_value_of(out, "warnings") > 0 && gt_value_of(out, "warnings") <= before,
                               "%.0f warnings of %.0f entries", gt_value_of(out, "warnings"), before);
                (void)gt_check(t, gt_count_files(cache, "*.cubin") >= before, "the entries were not written again");
            }
            if (gt_start(t, vars, out)) (void)gt_check(t, gt_value_of(out, "progress") == 0, "the entries were not mended");
        }
    }
    gt_remove_folder(cache);
    gt_end(t);
}

static void no_home(gt *t, const char *name, const char *vars) {
    char out[GT_OUT_BYTES];
    if (!gt_begin(t, "%s", name)) return;
    if (gt_needs_device(t) && gt_start(t, vars, out)) {
        gt_figure(t, "warnings", gt_value_of(out, "warnings"));
        (void)gt_check(t, gt_value_of(out, "warnings") == 1, "%.0f warnings", gt_value_of(out, "warnings"));
        const char *line = gt_line_of(out, "warning");
        (void)gt_check(t, line && strstr(line, "HOME"), "the warning does not name the setting: %.100s", line ? line : "");
    }
    gt_end(t);
}

static void lost_device(gt *t) {
    char command[512], out[GT_OUT_BYTES], why[200];
    if (!gt_begin(t, "B196_every_entry_names_a_lost_device")) return;
    if (gt_needs_device(t)) {
        (void)snprintf(command, sizeof command, "timeout 60 '%s' --lost %s 2>&1", t->self, t->target);
        const int rc = gt_run(command, out);
        gt_reason_of(out, why);
        if (rc == 2) {
            gt_skip(t, "%s", why);
        } else {
            gt_figure(t, "ms", gt_value_of(out, "ms"));
            (void)gt_check(t, rc == 0, "it ended with %d: %s", rc, why);
            (void)gt_check(t, gt_value_of(out, "ms") < 1000, "it took %.0f ms", gt_value_of(out, "ms"));
            (void)gt_check(t, gt_value_of(out, "named") == 1, "the error's name was not told");
        }
    }
    gt_end(t);
}

void gt_test_cache(gt *t) {
    together(t);
    damaged(t, "B165_cache_truncated_entries", "find '%s' -name '*.cubin' -exec truncate -s 100 {} +");
    damaged(
        t, "B165_cache_flipped_bytes",
        "for f in $(find '%s' -name '*.cubin'); do printf '\\377\\376\\375\\374' | dd of=$f bs=1 seek=700 conv=notrunc 2>/dev/null; done");
    damaged(t, "B163_cache_entries_of_another_architecture",
            "find '%s' -name '*.ini' ! -name nvrtc.ini -exec sed -i 's/^arch.*/arch = sm_80/' {} +");
    no_home(t, "B166_no_home", "-u HOME -u XDG_CACHE_HOME -u GDN_CACHE_DIR -u GDN_CUBIN_DIR");
    no_home(t, "B166_home_that_is_not_there",
            "-u XDG_CACHE_HOME -u GDN_CACHE_DIR -u GDN_CUBIN_DIR HOME=/proc/nonexistent"); /* nor can it be made, as the driver would */
    lost_device(t);
    gt_remove_folder(t->cache);
}

/* ---- compute-sanitizer ---- */
static bool sanitizer(char path[256]) {
    char out[GT_OUT_BYTES];
    if (gt_run("command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /opt/nvidia/*/compute-sanitizer 2>/dev/null",
               out) == -1 ||
        !out[0])
        return false;
    (void)snprintf(path, 256, "%.*s", (int)strcspn(out, "\n"), out);
    return true;
}

/* "Invalid ..." or "Race ..." and the lines under it, in one line. */
static void first_error(const char *log, char why[300]) {
    const char *p = strstr(log, "========= Invalid");
    if (!p) p = strstr(log, "========= Error");
    if (!p) p = strstr(log, "========= ");
    size_t n = 0;
    for (int lines = 0; p && *p && lines < 5 && n < 280; p++) {
        if (*p == '=' || (*p == ' ' && n && why[n - 1] == ' ')) continue;
        lines += *p == '\n';
        why[n++] = *p == '\n' ? ' ' : *p;
    }
    why[n] = '\0';
}

/* The short list, or of it what `only` names and calls `part`, under a tool, and the planted fault, which it must find. At least `least`
 * results must have run. The tool's log stays in GPU_TEST_LOGS when that is set. */
static void under(gt *t, const char *tool, const char *fault, const char *part, const char *only, int least) {
    char path[256], command[1024], out[GT_OUT_BYTES], own[64] = "", log[128], why[300];
    const char *logs = getenv("GPU_TEST_LOGS");
    if (!gt_begin(t, "sanitizer_%s%s", tool, part)) return;
    if (!gt_needs_device(t)) goto out;
    if (!sanitizer(path)) {
        gt_skip(t, "compute-sanitizer is not on this machine");
        goto out;
    }
    if (!logs && !gt_folder(t, own)) goto out;
    (void)snprintf(log, sizeof log, "%.80s/%s%s.log", logs ? logs : own, tool, part);
    (void)snprintf(command, sizeof command, "timeout 100 '%s' --tool %s --error-exitcode 9 '%s' --plant %s %s 2>&1", path, tool, t->self,
                   t->target, fault);
    int rc = gt_run(command, out);
    if (strstr(out, "Device not supported") || strstr(out, "not supported on")) {
        gt_skip(t, "compute-sanitizer does not support this device or system");
        goto out;
    }
    if (!gt_check(t, rc == 9, "control: %s did not find the planted fault (%d): %.150s", tool, rc, out)) goto out;
    struct timespec a, b;
    (void)clock_gettime(CLOCK_MONOTONIC, &a);
    (void)snprintf(
        command, sizeof command,
        "%sGPU_TEST_NO_LENGTHS=1 timeout 150 '%s' --tool %s --print-limit 20 --log-file '%s' --error-exitcode 9 '%s' --short --target %s%s%s%s%s 2>&1",
        strcmp(tool, "racecheck") == 0 && !*only ? "GPU_TEST_NO_FAST=1 " : "", path, tool, log, t->self, t->target, *only ? " --only " : "",
        only, t->cubins ? " --cubins " : "", t->cubins ? t->cubins : "");
    rc = gt_run(command, out);
    (void)clock_gettime(CLOCK_MONOTONIC, &b);
    gt_figure(t, "seconds", (double)(b.tv_sec - a.tv_sec));
    int passes = 0;
    for (const char *p = out; (p = strstr(p, "pass ")) != NULL; p++) passes++;
    gt_figure(t, "results", passes);
    if (rc != 0) {
        const char *bad = strstr(out, "fail ");
        (void)snprintf(command, sizeof command, "cat '%s'", log);
        char said[160];
        (void)snprintf(said, sizeof said, "%.*s", bad ? (int)(strcspn(bad, "\n") < 150 ? strcspn(bad, "\n") : 150) : 0, bad ? bad : "");
        if (gt_run(command, out) != 0) out[0] = '\0';
        first_error(out, why);
        gt_fail(t, "%s ended with %d: %s; %s", tool, rc, why, said);
    }
    (void)gt_check(t, passes >= least, "only %d results ran", passes);
out:
    if (own[0]) gt_remove_folder(own);
    gt_end(t);
}

/* The portable kernels: target gb10 on this device, compiled for it. */
static void portable(gt *t) {
    char command[512], out[GT_OUT_BYTES];
    if (strcmp(t->target, "gb10") == 0 || !gt_begin(t, "portable_kernels_of_gb10")) return;
    if (gt_needs_device(t)) {
        (void)snprintf(command, sizeof command, "timeout 120 '%s' --short --target gb10 2>&1", t->self);
        const int rc = gt_run(command, out);
        const char *bad = strstr(out, "fail ");
        int passes = 0;
        for (const char *p = out; (p = strstr(p, "pass ")) != NULL; p++) passes++;
        gt_figure(t, "results", passes);
        (void)gt_check(t, rc == 0 && passes > 10, "%d results, exit status %d: %.*s", passes, rc, bad ? (int)strcspn(bad, "\n") : 0,
                       bad ? bad : "");
    }
    gt_end(t);
}

void gt_test_sanitizer(gt *t) {
    portable(t);
    under(t, "memcheck", "oob", "", "", 11);
    under(t, "racecheck", "race", "", "", 11);
    /* By itself and in few shapes, for racecheck takes seconds over each of its launches: padding, checkpoints, other slots. Without chunks
     * that are prepared while others pass: of those it reports, in some runs and for one warp, the record of a unit, between whose store
     * and load stands the BAR.SYNC of 256 of the block's 512 threads at which all else that they share meets, too (docs/performance.md). */
    if (strcmp(t->target, "hopper") == 0)
        under(t, "racecheck", "race", "_fast_prefill", "fast_prefill_k_major_grouped_linear,fast_prefill_other_slots,fast_prefill_T103", 3);
}
