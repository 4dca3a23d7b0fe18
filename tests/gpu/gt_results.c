/* gt_results.c - results by name, and what results need: memory, randoms, open targets. */
#include "gt.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --only: one of the texts between commas is in the name. */
static bool wanted(const char *only, const char *name) {
    char one[96];
    for (size_t n; only && *only; only += n + (only[n] == ',')) {
        n = strcspn(only, ",");
        (void)snprintf(one, sizeof one, "%.*s", (int)n, only);
        if (n && strstr(name, one)) return true;
    }
    return !only;
}

bool gt_begin(gt *t, const char *fmt, ...) {
    va_list ap;
    const int n = snprintf(t->name, sizeof t->name, "%s", t->prefix ? t->prefix : "");
    va_start(ap, fmt);
    (void)vsnprintf(t->name + n, sizeof t->name - (size_t)n, fmt, ap);
    va_end(ap);
    if (!wanted(t->only, t->name)) return false;
    t->figures = json_object();
    t->reason[0] = '\0';
    t->bad = t->skip = false;
    t->r.s = num_hash(t->name, strlen(t->name)); /* every result has its own data, whatever else runs */
    return true;
}

void gt_figure(gt *t, const char *name, double value) {
    if (isfinite(value))
        json_object_set_new(t->figures, name, json_real(value));
    else
        gt_fail(t, "%s is not a number", name);
}

static void say(gt *t, const char *fmt, va_list ap) {
    if (!t->reason[0]) (void)vsnprintf(t->reason, sizeof t->reason, fmt, ap); /* NOLINT: va_start is the caller's */
}
void gt_fail(gt *t, const char *fmt, ...) {
    va_list ap;
    if (!t->bad) t->reason[0] = '\0'; /* a failure outranks a skip */
    t->bad = true;
    va_start(ap, fmt);
    say(t, fmt, ap);
    va_end(ap);
}
bool gt_check(gt *t, bool ok, const char *fmt, ...) {
    va_list ap;
    if (ok) return true;
    if (!t->bad) t->reason[0] = '\0';
    t->bad = true;
    va_start(ap, fmt);
    say(t, fmt, ap);
    va_end(ap);
    return false;
}
void gt_skip(gt *t, const char *fmt, ...) {
    va_list ap;
    if (t->bad) return;
    t->skip = true;
    va_start(ap, fmt);
    say(t, fmt, ap);
    va_end(ap);
}

void gt_end(gt *t) {
    const char *status = t->bad ? "fail" : t->skip ? "skip" : "pass", *key;
    json_t *v;
    printf("%-4s %s%s%s", status, t->name, t->reason[0] ? ": " : "", t->reason);
    json_object_foreach(t->figures, key, v) printf("  %s=%.4g", key, json_real_value(v));
    printf("\n");
    (void)fflush(stdout);
    t->failed += t->bad;
    t->skipped += !t->bad && t->skip;
    t->done++;
    json_array_append_new(t->results,
                          json_pack("{s:s, s:s, s:s, s:o}", "name", t->name, "status", status, "reason", t->reason, "figures", t->figures));
    t->figures = NULL;
    while (t->n_kept) free(t->kept[--t->n_kept]);
}

bool gt_needs_device(gt *t) {
    if (t->clock) return true;
    gt_skip(t, "no device in this run");
    return false;
}

bool gt_needs_hopper(gt *t) {
    if (!gt_needs_device(t)) return false;
    if (strcmp(t->target, "hopper") == 0) return true;
    gt_skip(t, "target %s has no kernel of its own for it", t->target);
    return false;
}

void *gt_keep(gt *t, uint64_t bytes) {
    void *p = t->n_kept < GT_MAX_KEPT ? calloc(1, bytes ? bytes : 1) : NULL;
    if (!p) {
        (void)fprintf(stderr, "gpu_test: out of memory\n");
        exit(3);
    }
    t->kept[t->n_kept++] = p;
    return p;
}

void *gt_random(gt *t, uint32_t type, uint64_t n, double lo, double hi) {
    void *p = gt_keep(t, n * num_size(type));
    num_fill(p, type, n, &t->r, lo, hi);
    return p;
}

static void to_stderr(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    (void)severity;
    (void)fprintf(stderr, "gdn %s: %s\n", area, msg);
}

gdn *gt_open(gt *t, const char *target, ...) {
    gdn_setting levers[8];
    char why[1024] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_options o = GDN_OPTIONS_INIT;
    gdn *g = NULL;
    va_list ap;
    o.target = target;
    o.settings = levers;
    o.log = getenv("GDN_LOG") ? to_stderr : NULL; /* refusals are asked for here: quiet unless wanted */
    va_start(ap, target);
    for (const char *key = va_arg(ap, const char *); key && o.n_settings < GT_N(levers); key = va_arg(ap, const char *))
        levers[o.n_settings++] = (gdn_setting) { key, va_arg(ap, const char *) };
    va_end(ap);
    if (gdn_open(&o, &g, &err) != GDN_OK) gt_fail(t, "%s", why);
    return g;
}
