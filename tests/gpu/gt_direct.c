/* gt_direct.c - kernels started without the library: the twin below its floor of tokens, and what a bare launch costs. The module is
 * the file that gdn_compile_ahead writes, byte for byte what the plugin loads. */
#include "gdn_cubins.h"
#include "gt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool gt_make_cubins(gt *t, char folder[64]) {
    gdn_options o = GDN_OPTIONS_INIT;
    char arch[16] = "", why[256] = "";
    gdn_text err = { why, sizeof why, 0 };
    (void)snprintf(folder, 64, "/tmp/gdn_gpu_test_XXXXXX");
    if (!mkdtemp(folder)) {
        (void)snprintf(t->cubin_reason, sizeof t->cubin_reason, "no temporary folder");
        folder[0] = '\0';
        return false;
    }
    o.target = t->target;
    if (t->clock) {
        const bool h = t->clock->cc_major == 9 && t->clock->cc_minor == 0, b = t->clock->cc_major == 12 && t->clock->cc_minor == 1;
        (void)snprintf(arch, sizeof arch, "sm_%d%d%s", t->clock->cc_major, t->clock->cc_minor, h ? "a" : b ? "f" : "");
    }
    const gdn_status st = arch[0] ? gdn_compile_ahead(&o, arch, folder, 0, NULL, NULL, &err) : GDN_ABSENT;
    if (st == GDN_OK) {
        t->cubins = folder;
        return true;
    }
    (void)snprintf(t->cubin_reason, sizeof t->cubin_reason, "%.240s",
                   arch[0] ? (why[0] ? why : gdn_status_text(st)) : "no device in this run");
    return false;
}

/* The .cubin whose side file names the module. */
static bool file_of(const char *folder, const char *module, char *out, size_t cap) {
    char command[512];
    (void)snprintf(command, sizeof command, "grep -rlF --include='*.ini' '%s' '%s' | head -1", module, folder);
    FILE *p = popen(command, "r");
    if (!p) return false;
    bool ok = fgets(out, (int)cap, p) != NULL;
    ok = pclose(p) == 0 && ok;
    char *dot = ok ? strstr(out, ".ini") : NULL;
    if (!dot || (size_t)(dot - out) + 7 > cap) return false;
    memcpy(dot, ".cubin", 7);
    return true;
}

static void *read_file(gt *t, const char *file, size_t *bytes) {
    FILE *f = fopen(file, "rb");
    void *p = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        const long n = ftell(f);
        if (n > 0 && fseek(f, 0, SEEK_SET) == 0) {
            p = gt_keep(t, (uint64_t)n);
            if (fread(p, 1, (size_t)n, f) == (size_t)n) *bytes = (size_t)n;
        }
    }
    if (f && fclose(f) != 0) *bytes = 0;
    return *bytes ? p : NULL;
}

/* B152: what is loaded is machine code for the device, no PTX that a driver would have to know. */
void gt_test_machine_code(gt *t) {
    enum { MACHINE_AT = 18, EM_CUDA = 190 };
    static const char *const modules[] = { "ssm_preprocess.cu", "causal_conv1d.cu", "gated_rmsnorm.cu", "gdn_state.cu" };
    if (!gt_begin(t, "B152_modules_are_machine_code")) return;
    if (gt_needs_device(t) && gt_check(t, t->cubins != NULL, "%s", t->cubin_reason))
        for (size_t i = 0; i < GT_N(modules); i++) {
            char file[512] = "";
            size_t bytes = 0;
            const uint8_t *p = file_of(t->cubins, modules[i], file, sizeof file) ? read_file(t, file, &bytes) : NULL;
            if (!gt_check(t, p && bytes > 64, "no compiled module of %s", modules[i])) break;
            (void)gt_check(t, memcmp(p, "\177ELF", 4) == 0 && p[MACHINE_AT] == EM_CUDA, "%s is not an image for a GPU", modules[i]);
            bool ptx = false;
            for (size_t k = 0; k + 8 <= bytes; k++) ptx = ptx || memcmp(p + k, ".version", 8) == 0;
            (void)gt_check(t, !ptx, "%s carries PTX", modules[i]);
        }
    gt_end(t);
}

bool gt_direct_open(gt *t, const char *module, const char *entry, gt_direct *d) {
    char file[512] = "";
    size_t bytes = 0;
    *d = (gt_direct) { .clock = t->clock };
    if (!gt_needs_device(t) || (strstr(module, "hopper") && !gt_needs_hopper(t))) return false;
    if (!t->cubins) {
        gt_skip(t, "no compiled modules: %s", t->cubin_reason);
        return false;
    }
    const void *image = file_of(t->cubins, module, file, sizeof file) ? read_file(t, file, &bytes) : NULL;
    if (!gt_check(t, image != NULL, "no compiled module of %s in %s", module, t->cubins)) return false;
    if (gt_check(t, gpu_ok(t->clock, t->clock->module_load(&d->module, image), "cuModuleLoadData"), "%s", t->clock->why) &&
        gt_check(t, gpu_ok(t->clock, t->clock->module_function(&d->function, d->module, entry), "cuModuleGetFunction"), "%s",
                 t->clock->why))
        return true;
    gt_direct_close(d);
    return false;
}

void gt_direct_close(gt_direct *d) {
    if (d->module) (void)d->clock->module_unload(d->module);
    *d = (gt_direct) { 0 };
}
