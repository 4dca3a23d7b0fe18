/* gt_process.c - programs started anew, and their folders. */
#include "gt_process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int gt_run(const char *command, char out[GT_OUT_BYTES]) {
    size_t n = 0, got;
    char rest[4096];
    FILE *p = popen(command, "r");
    out[0] = '\0';
    if (!p) return -1;
    while ((got = fread(rest, 1, sizeof rest, p)) > 0) {
        if (got > GT_OUT_BYTES - 1 - n) got = GT_OUT_BYTES - 1 - n;
        memcpy(out + n, rest, got);
        n += got;
    }
    out[n] = '\0';
    const int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *gt_line_of(const char *out, const char *key) {
    const size_t n = strlen(key);
    for (const char *p = out; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (strncmp(p, key, n) == 0 && p[n] == ' ') return p + n + 1;
    return NULL;
}
double gt_value_of(const char *out, const char *key) {
    const char *p = gt_line_of(out, key);
    return p ? strtod(p, NULL) : -1;
}
void gt_reason_of(const char *out, char why[200]) {
    const char *p = gt_line_of(out, "reason");
    if (!p) p = out;
    (void)snprintf(why, 200, "%.*s", (int)(strcspn(p, "\n") < 190 ? strcspn(p, "\n") : 190), p);
}

bool gt_start(gt *t, const char *variables, char out[GT_OUT_BYTES]) {
    char command[1024], why[200];
    (void)snprintf(command, sizeof command, "env %s timeout 120 '%s' --start %s 2>&1", variables, t->self, t->target);
    const int rc = gt_run(command, out);
    gt_reason_of(out, why);
    return gt_check(t, rc == 0 && gt_value_of(out, "right") == 1, "the start failed (%d): %s", rc, why);
}

bool gt_folder(gt *t, char name[64]) {
    (void)snprintf(name, 64, "/tmp/gdn_gpu_test_XXXXXX");
    return gt_check(t, mkdtemp(name) != NULL, "no temporary folder");
}
void gt_remove_folder(const char *name) {
    char command[128];
    if (strncmp(name, "/tmp/gdn_gpu_test_", 18) != 0) return;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", name);
    if (system(command) != 0) (void)fprintf(stderr, "gpu_test: %s stays\n", name);
}
double gt_count_files(const char *where, const char *pattern) {
    char command[256], out[GT_OUT_BYTES];
    (void)snprintf(command, sizeof command, "find '%s' -name '%s' | wc -l", where, pattern);
    return gt_run(command, out) == 0 ? strtod(out, NULL) : -1;
}
