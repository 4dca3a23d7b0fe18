/* gt_parts.c - the groups of results, and how they are shared out among programs that run side by side: most of a run is the oracle's time,
 * on cores that one program leaves idle. What is timed runs alone, behind the others. */
#define _GNU_SOURCE
#include "gt_process.h"
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ALONE = GT_PARTS };
static const struct {
    void (*run)(gt *t);
    uint32_t part;
    bool long_list; /* not in the short one */
} groups[] = {
    { gt_test_ba, 3, false },           { gt_test_gates, 3, false },           { gt_test_conv, 3, false },
    { gt_test_norm, 3, false },         { gt_test_state, 3, false },           { gt_test_prefill, 2, false },
    { gt_test_prefill_fast, 0, false }, { gt_test_prefill_fast_wn, 1, false }, { gt_test_prefill_error, 2, false },
    { gt_test_lengths, 3, false },      { gt_test_spine, 3, false },           { gt_test_step, 3, false },
    { gt_test_decode_step, 3, false },  { gt_test_sequence, 3, false },        { gt_test_w4a4, 4, false },
    { gt_test_refusals, 4, false },     { gt_test_checked, 4, false },         { gt_test_capture, 4, false },
    { gt_test_streams, 4, false },      { gt_test_speculation, 4, false },     { gt_test_ba_error, 4, true },
    { gt_test_machine_code, 4, true },  { gt_test_overhead, ALONE, true },     { gt_test_starts, ALONE, true },
    { gt_test_processes, ALONE, true }, { gt_test_cache, ALONE, true },        { gt_test_sanitizer, 5, true },
};

static void count(gt *t) {
    size_t i;
    const json_t *r;
    t->done = t->failed = t->skipped = 0;
    json_array_foreach(t->results, i, r) {
        const char *status = json_string_value(json_object_get(r, "status"));
        t->done++;
        t->failed += !strcmp(status, "fail");
        t->skipped += !strcmp(status, "skip");
    }
}

/* The results of a part's groups into by[group]. */
static void run_part(gt *t, uint32_t part, json_t *by[GT_N(groups)]) {
    for (uint32_t i = 0; i < GT_N(groups); i++) {
        if (groups[i].part != part || (groups[i].long_list && t->brief)) continue;
        json_t *const kept = t->results;
        t->results = by[i];
        groups[i].run(t);
        t->results = kept;
    }
}

int gt_run_part(gt *t, uint32_t part, const char *file) {
    json_t *by[GT_N(groups)], *doc = json_array();
    for (uint32_t i = 0; i < GT_N(groups); i++) {
        by[i] = json_array();
        json_array_append_new(doc, by[i]);
    }
    run_part(t, part, by);
    const int rc = json_dump_file(doc, file, JSON_COMPACT);
    if (rc != 0) (void)fprintf(stderr, "gpu_test: %s could not be written: %s\n", file, strerror(errno));
    json_decref(doc);
    return rc != 0;
}

static pid_t start(const gt *t, uint32_t part, const char *file) {
    char number[16];
    const char *argv[16] = { t->self, "--target", t->target, "--part", number, "--results", file };
    uint32_t n = 7;
    pid_t pid;
    (void)snprintf(number, sizeof number, "%u", part);
    if (t->cubins) argv[n++] = "--cubins", argv[n++] = t->cubins;
    if (t->only) argv[n++] = "--only", argv[n++] = t->only;
    if (t->brief) argv[n++] = "--short";
    return posix_spawnp(&pid, t->self, NULL, NULL, (char *const *)(uintptr_t)argv, environ) == 0 ? pid : -1;
}
/* What a part found; without a file that can be read, or with another end than a good one, it failed as a whole, whatever --only says. */
static void collect(gt *t, uint32_t part, pid_t pid, const char *file, json_t *by[GT_N(groups)]) {
    int status = 0;
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    json_t *doc = json_load_file(file, 0, NULL);
    const bool whole = json_array_size(doc) == GT_N(groups);
    for (uint32_t i = 0; i < GT_N(groups) && whole; i++) json_array_extend(by[i], json_array_get(doc, i));
    json_decref(doc);
    if (ended && whole) return;
    const char *const only = t->only;
    t->only = NULL;
    (void)gt_begin(t, "part_%u", part);
    t->only = only;
    gt_fail(t, "its program ended early: %s %d", WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    gt_end(t);
}

void gt_run_all(gt *t, bool side_by_side) {
    json_t *by[GT_N(groups)];
    char folder[64], file[GT_PARTS][96];
    pid_t pid[GT_PARTS];
    for (uint32_t i = 0; i < GT_N(groups); i++) by[i] = json_array();
    side_by_side = side_by_side && gt_folder(t, folder);
    for (uint32_t p = 0; p < GT_PARTS && side_by_side; p++) {
        (void)snprintf(file[p], sizeof file[p], "%s/part_%u.json", folder, p);
        pid[p] = start(t, p, file[p]);
    }
    for (uint32_t p = 0; p < GT_PARTS; p++) {
        if (!side_by_side) {
            run_part(t, p, by);
            continue;
        }
        collect(t, p, pid[p], file[p], by);
    }
    run_part(t, ALONE, by);
    for (uint32_t i = 0; i < GT_N(groups); i++) {
        json_array_extend(t->results, by[i]);
        json_decref(by[i]);
    }
    count(t);
    if (side_by_side) gt_remove_folder(folder);
}
