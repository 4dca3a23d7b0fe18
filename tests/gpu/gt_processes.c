/* gt_processes.c - public reports on starts that until here ran on the fake driver alone: many processes together (B161, B189), other
 * code in the cache (B164), entries that cannot be trusted or read (B168), architectures (B150, B157). After gt_test_starts, whose warm
 * cache most of them begin from.
 *
 * Not here: B151, whose FP4 products need a device of 12.x (test_nvrtc compiles them or their like for each kind of target). B150 on
 * the device that NVRTC lacks needs such an NVRTC: the fake ones are that (test_cubin_jit). */
#include "gdn_cubins.h"
#include "gt_process.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSES = 8, ROUNDS = 50, FRESH = 16, SIDE_BY_SIDE = 4, THREADS = 32 };

static double sum_of(const char *out, const char *key) {
    double sum = 0;
    for (const char *p = out; (p = gt_line_of(p, key)) != NULL;) sum += gt_value_of(p - strlen(key) - 1, key);
    return sum;
}
/* A folder with a copy of the warm cache in it. */
static bool warm(gt *t, char folder[64]) {
    char command[256], out[GT_OUT_BYTES];
    if (!gt_check(t, t->cache[0], "there is no cache from a cold start") || !gt_folder(t, folder)) return false;
    (void)snprintf(command, sizeof command, "mkdir '%s/cache' && cp -r '%s/.' '%s/cache'", folder, t->cache, folder);
    return gt_check(t, gt_run(command, out) == 0, "the cache could not be copied");
}

/* B161: 50 times 8 processes at once, on a cache that is empty (first) or lacks one module. */
static void rounds(gt *t) {
    char folder[64] = "", command[512], out[GT_OUT_BYTES], why[200];
    if (!gt_begin(t, "B161_50_rounds_of_8_processes")) return;
    if (gt_needs_device(t) && warm(t, folder)) {
        (void)snprintf(command, sizeof command,
                       "for i in 0 1 2 3 4 5 6 7; do env -u GDN_CUBIN_DIR timeout 60 '%s' --rounds %s '%s' $i %d %d 2>&1 & done; wait",
                       t->self, t->target, folder, PROCESSES, ROUNDS);
        (void)gt_run(command, out);
        gt_reason_of(out, why);
        gt_figure(t, "right", sum_of(out, "rounds_right"));
        (void)gt_check(t, sum_of(out, "rounds_right") == PROCESSES * ROUNDS, "%.0f of %d starts were right: %s",
                       sum_of(out, "rounds_right"), PROCESSES * ROUNDS, why);
        (void)gt_check(t, gt_value_of(out, "rounds_clean") == ROUNDS, "%.0f of %d rounds left the cache whole: %s",
                       gt_value_of(out, "rounds_clean"), ROUNDS, why);
    }
    gt_remove_folder(folder);
    gt_end(t);
}

/* B189: nothing of the library has been called when 32 threads open, plan and launch; in each of several new processes. */
static void first_calls(gt *t) {
    char folder[64] = "", command[512], out[GT_OUT_BYTES], why[200];
    if (!gt_begin(t, "B189_first_calls_of_32_threads_in_new_processes")) return;
    if (gt_needs_device(t) && warm(t, folder)) {
        double right = 0;
        for (int i = 0; i < FRESH / SIDE_BY_SIDE; i++) {
            (void)snprintf(command, sizeof command,
                           "for i in 1 2 3 4; do env -u GDN_CUBIN_DIR GDN_CACHE_DIR=%s/cache timeout 60 '%s' --first %s 2>&1 & done; wait",
                           folder, t->self, t->target);
            (void)gt_run(command, out);
            right += sum_of(out, "threads_right");
        }
        gt_reason_of(out, why);
        gt_figure(t, "processes", FRESH);
        (void)gt_check(t, right == FRESH * THREADS, "%.0f of %d threads were right: %s", right, FRESH * THREADS, why);
    }
    gt_remove_folder(folder);
    gt_end(t);
}

/* How many modules a new process compiled for a b/a projection of so many heads; negative: it failed. */
static double compiled(gt *t, const char *vars, int heads) {
    char command[512], out[GT_OUT_BYTES], why[200];
    (void)snprintf(command, sizeof command, "env -u GDN_CUBIN_DIR %s timeout 60 '%s' --width %s %d 2>&1", vars, t->self, t->target, heads);
    const int rc = gt_run(command, out);
    gt_reason_of(out, why);
    return gt_check(t, rc == 0, "the plan failed (%d): %s", rc, why) ? gt_value_of(out, "compiled") : -1;
}
/* B164: the same source under another define, and another NVRTC of the same version, are misses; each is found the second time. The
 * library's own version is not in the key: what it compiles from is, every byte. */
static void other_code(gt *t) {
    char folder[64] = "", vars[256], command[768], out[GT_OUT_BYTES];
    if (!gt_begin(t, "B164_cache_misses_other_code")) return;
    if (!gt_needs_hopper(t) || !warm(t, folder)) goto out;
    (void)snprintf(vars, sizeof vars, "GDN_CACHE_DIR=%s/cache", folder);
    (void)gt_check(t, compiled(t, vars, 48) == 0, "control: what the cold start compiled was compiled again");
    (void)gt_check(t, compiled(t, vars, 16) > 0, "another define was found in the cache");
    (void)gt_check(t, compiled(t, vars, 16) == 0, "the other define was not kept");
    (void)gt_check(t, compiled(t, vars, 48) == 0, "the first define was lost");
    /* That NVRTC, with builtins one byte longer. */
    (void)snprintf(
        command, sizeof command,
        "at=$(sed -n 's/^path *= *//p' $(find '%s/cache' -name nvrtc.ini | head -1)); at=$(readlink -f \"$at\"); mkdir '%s/other' && "
        "cp \"$at\" \"${at%%/*}\"/libnvrtc-builtins.so.*.* '%s/other' && for f in '%s'/other/libnvrtc-builtins*; do "
        "printf x >>\"$f\"; done; echo \"file ${at##*/}\"",
        folder, folder, folder, folder);
    const char *file = gt_run(command, out) == 0 ? gt_line_of(out, "file") : NULL;
    if (!gt_check(t, file != NULL, "NVRTC could not be copied: %.150s", out)) goto out;
    (void)snprintf(vars, sizeof vars, "GDN_CACHE_DIR=%s/cache GDN_NVRTC=%s/other/%.*s", folder, folder, (int)strcspn(file, "\n"), file);
    (void)gt_check(t, compiled(t, vars, 48) > 0, "another NVRTC's code was found in the cache");
    (void)gt_check(t, compiled(t, vars, 48) == 0, "the other NVRTC's code was not kept");
out:
    gt_remove_folder(folder);
    gt_end(t);
}

/* B168: as root, entries of another user; as that user, entries of mode 000. Misses: compiled, run, and mended. */
static void not_mine(gt *t, bool other_user) {
    char folder[64] = "", vars[256], command[512], out[GT_OUT_BYTES];
    static const char *const as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp";
    if (!gt_begin(t, other_user ? "B168_cache_entries_of_another_user" : "B168_cache_entries_of_mode_000")) return;
    if (!gt_needs_device(t) || !warm(t, folder)) goto out;
    const char *const user = !other_user && geteuid() == 0 ? as_nobody : "env";
    (void)snprintf(vars, sizeof vars, "-u GDN_CUBIN_DIR GDN_CACHE_DIR=%s/cache %s", folder, user);
    if (other_user && geteuid() != 0) {
        gt_skip(t, "not root: files of another user cannot be made");
        goto out;
    }
    if (user == as_nobody) {
        (void)snprintf(command, sizeof command, "chown -R 65534:65534 '%s' && env %s '%s' --start %s 2>&1", folder, vars, t->self,
                       t->target);
        if (gt_run(command, out) != 0 || gt_value_of(out, "progress") != 0) {
            gt_skip(t, "mode 000 does not bind root, and no other user can start this program here");
            goto out;
        }
    }
    (void)snprintf(command, sizeof command,
                   other_user ? "find '%s' -name '*.cubin' -exec chown 4242 {} +" : "find '%s' -name '*.cubin' -exec chmod 000 {} +",
                   folder);
    (void)gt_check(t, gt_run(command, out) == 0, "the entries could not be changed");
    if (gt_start(t, vars, out)) {
        gt_figure(t, "warnings", gt_value_of(out, "warnings"));
        (void)gt_check(t, gt_value_of(out, "progress") > 0, "nothing was compiled: the entries were used");
    }
    if (gt_start(t, vars, out)) (void)gt_check(t, gt_value_of(out, "progress") == 0, "the entries were not mended");
out:
    gt_remove_folder(folder);
    gt_end(t);
}

/* B157: the architecture is this device's, in each place that says it. B150: one that NVRTC dropped is refused by name, with what it
 * has; the same NVRTC goes on with the device's own. */
static void architectures(gt *t) {
    char folder[64] = "", why[1024] = "", own[16];
    gdn_text err = { why, sizeof why, 0 };
    gdn_options o = GDN_OPTIONS_INIT;
    if (gt_begin(t, "B157_the_target_fits_the_device")) {
        if (gt_needs_device(t)) {
            const int major = t->clock->cc_major, minor = t->clock->cc_minor;
            const char *const want = major == 9 && minor == 0 ? "hopper" : major == 12 && minor == 1 ? "gb10" : "cpu";
            gdn_info info = { .struct_size = (uint32_t)sizeof info };
            gdn *g = gt_open(t, "auto", NULL);
            if (g && gt_check(t, gdn_describe(g, &info) == GDN_OK, "describe")) {
                (void)gt_check(t, !strcmp(info.target, want), "auto took %s on capability %d.%d", info.target, major, minor);
                if (strcmp(want, "cpu") != 0)
                    (void)gt_check(t, (int)info.device.cc_major == major && (int)info.device.cc_minor == minor, "the library says %u.%u",
                                   info.device.cc_major, info.device.cc_minor);
            }
            gdn_close(g);
        }
        gt_end(t);
    }
    if (!gt_begin(t, "B150_dropped_architecture_is_refused_by_name")) return;
    if (gt_needs_device(t) && gt_folder(t, folder)) {
        o.target = "gb10"; /* its modules are the portable ones */
        const gdn_status st = gdn_compile_ahead(&o, "sm_35", folder, 0, NULL, NULL, &err);
        (void)gt_check(t, st != GDN_OK && strstr(why, "sm_35"), "sm_35: %s: %.200s", gdn_status_name(st), why);
        (void)gt_check(t, gt_count_files(folder, "*.cubin") == 0, "something was written for it");
        (void)snprintf(own, sizeof own, "sm_%d%d%s", t->clock->cc_major, t->clock->cc_minor, t->clock->cc_major == 9 ? "a" : "f");
        o.target = t->target;
        why[0] = '\0';
        (void)gt_check(t, gdn_compile_ahead(&o, own, folder, 0, NULL, NULL, &err) == GDN_OK, "%s after it: %.200s", own, why);
        gt_figure(t, "own_modules", gt_count_files(folder, "*.cubin"));
    }
    gt_remove_folder(folder);
    gt_end(t);
}

void gt_test_processes(gt *t) {
    architectures(t);
    first_calls(t);
    other_code(t);
    not_mine(t, true);
    not_mine(t, false);
    rounds(t);
}
