/* nvrtc_ahead.c - gdn_compile_ahead and gdn_compile_jobs: the modules that a plugin or the caller lists, compiled into a folder, without a
 * device. */
#include "cuda_backend.h"
#include "gdn_cubins.h"
#include "gdn_modules.h"
#include "nvrtc_jit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct ahead {
    const char *target, *arch, *folder;
    uint32_t flags, n;
    gdn_compile_job *jobs; /* all of the target, for this architecture  */
    gdn__key *keys;        /* as shipped                                */
    gdn__cubin *cubins;    /* kept ones have a path                     */
    gdn_status *status;
    char **why;
    const char *id;     /* NVRTC's */
    const uint32_t *at; /* places of the modules that are compiled */
    uint32_t left;      /* not begun: stopped */
    gdn__jit jit;
    void (*each)(void *user, const gdn_compile_row *row);
    void *user;
} ahead;

/* The plugin by name or path; only its pure parts are used. */
static gdn_status find_plugin(const gdn_options *o, const gdn__env *env, const gdn__log *log, gdn__plugin *out, gdn_text *err) {
    gdn__places places;
    if (!o->target || !*o->target) {
        gdn__text_set(err, "which target?");
        return GDN_E_ARG;
    }
    if (strchr(o->target, '/')) {
        char why[1024] = "";
        gdn_text text = { why, sizeof why, 0 };
        const gdn_status st = gdn__plugin_load(o->target, NULL, out, &text);
        if (st != GDN_OK) gdn__text_set(err, "plugin %s: %s", o->target, why);
        return st == GDN_ABSENT ? GDN_E_NOTARGET : st;
    }
    if (!gdn__target_name_ok(o->target)) {
        gdn__text_set(err, "'%.64s' is no target name ([a-z0-9_], 1 to 32); a path has a slash", o->target);
        return GDN_E_ARG;
    }
    gdn_status st = gdn__places_list(env, o->plugin_path, &places, err);
    if (st != GDN_OK) return st;
    st = gdn__plugin_find(&places, o->target, out, log, err);
    gdn__places_free(&places);
    return st;
}

static const gdn_modules *modules_of(const gdn__plugin *p) {
    const gdn_modules *m = p->ops.extension ? p->ops.extension(GDN_MODULES_ID) : NULL;
    return m && GDN_HAS(m, gdn_modules, count) && GDN_HAS(m, gdn_modules, get) ? m : NULL;
}

/* Room for n modules; GDN_E_NOMEM is said. */
static gdn_status take_room(ahead *a, gdn_text *err) {
    a->jobs = gdn__alloc(a->n * sizeof *a->jobs);
    a->keys = gdn__alloc(a->n * sizeof *a->keys);
    a->cubins = gdn__alloc(a->n * sizeof *a->cubins);
    a->status = gdn__alloc(a->n * sizeof *a->status);
    a->why = gdn__alloc(a->n * sizeof *a->why);
    if (a->jobs && a->keys && a->cubins && a->status && a->why) return GDN_OK;
    gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
    return GDN_E_NOMEM;
}

/* Checked, and what its key is. */
static gdn_status take_job(ahead *a, uint32_t i, gdn_text *err) {
    gdn_compile_job checked;
    gdn_status st = gdn__job_read(a->jobs, i, &checked, err);
    if (st == GDN_OK) st = gdn__jit_sources(&a->jit, &a->jobs[i], err);
    return st == GDN_OK ? gdn__cubin_key(&a->jobs[i], "", &a->keys[i]) : st;
}

static gdn_status list_jobs(ahead *a, const gdn__plugin *p, gdn_text *err) {
    const gdn_modules *m = modules_of(p);
    a->n = m ? m->count(a->arch) : 0;
    if (!a->n) {
        gdn__text_set(err, "target '%s' has no modules%s%s", a->target, m ? " for " : " to compile", m ? a->arch : "");
        return GDN_ABSENT;
    }
    gdn_status st = take_room(a, err);
    for (uint32_t i = 0; i < a->n && st == GDN_OK; i++) {
        a->jobs[i].struct_size = (uint32_t)sizeof a->jobs[i];
        st = m->get(a->arch, i, &a->jobs[i]);
        a->jobs[i].struct_size = (uint32_t)sizeof a->jobs[i]; /* the rest is zero when the plugin knows less */
        if (st != GDN_OK)
            gdn__text_set(err, "target '%s': module %u of %u: %s", a->target, (unsigned)i, (unsigned)a->n, gdn_status_text(st));
        else
            st = take_job(a, i, err);
    }
    return st > 0 ? GDN_E_INTERNAL : st;
}

/* The caller's, all for one architecture. */
static gdn_status copy_jobs(ahead *a, const gdn_compile_job *jobs, gdn_text *err) {
    gdn_status st = take_room(a, err);
    for (uint32_t i = 0; i < a->n && st == GDN_OK; i++) {
        st = gdn__job_read(jobs, i, &a->jobs[i], err);
        if (st == GDN_OK && strcmp(a->jobs[i].arch, a->arch) != 0) {
            gdn__text_set(err, "%s is for %s, the first module for %s", a->jobs[i].name, a->jobs[i].arch, a->arch);
            st = GDN_E_ARG;
        }
        if (st == GDN_OK) st = take_job(a, i, err);
    }
    return st;
}

/* What the folder has already, made by this very NVRTC; two targets share modules. */
static bool kept(ahead *a, uint32_t i, const char *id) {
    gdn__cubin c;
    if (gdn__entry_read(a->folder, &a->keys[i], a->arch, geteuid(), &c, NULL) != GDN_OK) return false;
    if (strcmp(c.nvrtc, id) != 0) {
        gdn__cubin_free(&c);
        return false;
    }
    a->cubins[i] = c;
    return true;
}

/* The one switch of a process: a signal handler can set no other. */
static _Atomic int stop;
void gdn_compile_stop(void) {
    atomic_store(&stop, 1);
}

/* Written at once: what is compiled when the caller stops, or is killed, need not be compiled again. */
static void write_made(void *user, uint32_t k, const gdn__cubin *c) {
    ahead *a = user;
    const uint32_t i = a->at[k];
    gdn_text text = { a->why[i], GDN__WHY_BYTES, 0 };
    const gdn__entry_facts facts = { &a->jobs[i], a->id, c->ms };
    a->status[i] = gdn__entry_write(a->folder, &a->keys[i], &facts, c->data, c->size, &text);
}

/* Those that are missing, together; the answers go back to their places. */
static gdn_status compile_missing(ahead *a, const char *id) {
    uint32_t n = 0;
    gdn_compile_job *jobs = gdn__alloc(a->n * sizeof *jobs);
    uint32_t *at = gdn__alloc(a->n * sizeof *at);
    gdn__cubin *cubins = gdn__alloc(a->n * sizeof *cubins);
    gdn_status *status = gdn__alloc(a->n * sizeof *status), st = GDN_E_NOMEM;
    gdn_text *err = gdn__alloc(a->n * sizeof *err);
    if (!jobs || !at || !cubins || !status || !err) goto out;
    for (uint32_t i = 0; i < a->n; i++) {
        if (kept(a, i, id)) continue;
        a->why[i] = gdn__alloc(GDN__WHY_BYTES);
        if (!a->why[i]) goto out;
        err[n] = (gdn_text) { a->why[i], GDN__WHY_BYTES, 0 };
        jobs[n] = a->jobs[i];
        at[n++] = i;
    }
    a->at = at;
    a->jit.made = write_made;
    a->jit.made_user = a;
    a->jit.stop = &stop;
    (void)gdn__jit_get(&a->jit, n, jobs, NULL, NULL, cubins, status, err);
    for (uint32_t k = 0; k < n; k++) {
        a->cubins[at[k]] = cubins[k];
        if (status[k] != GDN_OK) a->status[at[k]] = status[k];
        a->left += status[k] == GDN_ABSENT;
    }
    st = GDN_OK;
out:
    free(err);
    free(status);
    free(cubins);
    free(at);
    free(jobs);
    return st;
}

/* "ptxas info : ..." lines of an entry put into one: "<entry>: 32 registers, 0 bytes spilled" */
static char *usage_of(const ahead *a, const gdn_compile_job *job) {
    gdn__compiled c;
    gdn_status st;
    const gdn__nvrtc *n = gdn__jit_nvrtc((gdn__jit *)(uintptr_t)&a->jit, &st, NULL);
    if (!n || gdn__nvrtc_compile(n, job, "--ptxas-options=-v", &c, NULL) != GDN_OK || !c.log) {
        if (n) gdn__compiled_free(&c);
        return NULL;
    }
    char *out = gdn__alloc(strlen(c.log) + 64);
    gdn_text t = { out, out ? strlen(c.log) + 64 : 0, 0 };
    unsigned stores = 0, loads = 0, registers = 0;
    char entry[256] = "";
    for (const char *line = c.log; line && out; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *p = strstr(line, "Compiling entry function '"), *end = strchr(line, '\n');
        const size_t len = end ? (size_t)(end - line) : strlen(line);
        if (p && p < line + len) (void)sscanf(p, "Compiling entry function '%255[^']'", entry);
        if ((p = strstr(line, "stack frame, ")) != NULL && p < line + len)
            (void)sscanf(p, "stack frame, %u bytes spill stores, %u bytes spill loads", &stores, &loads);
        if ((p = strstr(line, "Used ")) != NULL && p < line + len && sscanf(p, "Used %u registers", &registers) == 1) {
            gdn__text_add(&t, "%s%s: %u registers, %u bytes of spill stores, %u of spill loads", t.len ? "\n" : "", entry, registers,
                          stores, loads);
            stores = loads = 0;
        }
    }
    gdn__compiled_free(&c);
    return out;
}

static gdn_status tell(ahead *a, uint32_t i) {
    const bool was_there = a->cubins[i].path != NULL;
    const gdn_status st = a->status[i];
    const char *reason = st != GDN_OK ? a->why[i] : NULL;
    char defines[GDN__DEFINES_BYTES];
    char *file = gdn__format("%s/%.2s/%s.cubin", a->folder, a->keys[i].hex, a->keys[i].hex);
    char *usage = st == GDN_OK && (a->flags & GDN_COMPILE_USAGE) ? usage_of(a, &a->jobs[i]) : NULL;
    const gdn_compile_row row = { .struct_size = (uint32_t)sizeof row,
                                  .status = st,
                                  .target = a->target,
                                  .module = a->jobs[i].name,
                                  .arch = a->arch,
                                  .file = st == GDN_OK ? file : NULL,
                                  .reason = reason,
                                  .usage = usage,
                                  .bytes = a->cubins[i].size,
                                  .kept = was_there,
                                  .ms = a->cubins[i].ms,
                                  .defines = gdn__job_defines(&a->jobs[i], defines) };
    if (a->each) a->each(a->user, &row);
    free(usage);
    free(file);
    return st;
}

static gdn_status run(ahead *a, gdn_text *err) {
    gdn_status st, first = GDN_OK;
    const gdn__nvrtc *n = gdn__jit_nvrtc(&a->jit, &st, err);
    if (!n) return st;
    st = gdn__nvrtc_knows(n, a->arch, err);
    if (st != GDN_OK) return st;
    st = gdn__folder_make(a->folder, 0755, err);
    if (st == GDN_OK) st = gdn__folder_check(a->folder, geteuid(), err);
    a->id = n->id;
    if (st == GDN_OK) st = compile_missing(a, n->id);
    if (st == GDN_E_NOMEM) gdn__text_set(err, "%s", gdn_status_text(st));
    if (st != GDN_OK) return st;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->status[i] == GDN_ABSENT) continue;
        st = tell(a, i);
        if (first == GDN_OK && st != GDN_OK) {
            first = st;
            gdn__text_set(err, "%s for %s: %s", a->jobs[i].name, a->arch, gdn_status_text(st));
        }
    }
    if (first == GDN_OK && a->left) {
        gdn__text_set(err, "stopped: %u of %u modules for %s are not compiled yet", (unsigned)a->left, (unsigned)a->n, a->arch);
        first = GDN_ABSENT;
    }
    return first;
}

static void drop(ahead *a) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->cubins) gdn__cubin_free(&a->cubins[i]);
        if (a->why) free(a->why[i]);
    }
    free(a->why);
    free(a->status);
    free(a->cubins);
    free(a->keys);
    free(a->jobs);
}

static bool arch_told(const char *arch, gdn_text *err) {
    uint32_t number;
    char suffix;
    if (gdn__arch_read(arch, &number, &suffix)) return true;
    gdn__text_set(err, "architecture '%.40s': expected sm_<number>, with a or f behind it or not (PTX is never made)", arch);
    return false;
}

/* plugin NULL: the jobs are the caller's. */
static gdn_status compile(ahead *a, const gdn__plugin *plugin, const gdn_compile_job *jobs, const gdn__env *env, const gdn__log *log,
                          gdn_text *err) {
    gdn_status st = gdn__jit_open(&a->jit, env, log, err);
    if (st != GDN_OK) return st;
    a->jit.nocache = true; /* what is shipped is compiled here and now */
    st = plugin ? list_jobs(a, plugin, err) : copy_jobs(a, jobs, err);
    if (st == GDN_OK) st = run(a, err);
    gdn__jit_close(&a->jit);
    drop(a);
    return st;
}

gdn_status gdn_compile_ahead(const gdn_options *opt, const char *arch, const char *folder, uint32_t flags,
                             void (*each)(void *user, const gdn_compile_row *row), void *user, gdn_text *err) {
    gdn_options o;
    gdn__log log;
    gdn__plugin plugin = { 0 };
    const gdn__env *env = gdn__env_shared();
    gdn__text_set(err, "%s", "");
    gdn_status st = gdn__options_read(opt, &o, err);
    if (st != GDN_OK) return st;
    if (!arch || !folder || !*folder || !env) {
        gdn__text_set(err, "%s", env ? "gdn_compile_ahead: arch or folder is missing" : gdn_status_text(GDN_E_NOMEM));
        return env ? GDN_E_ARG : GDN_E_NOMEM;
    }
    if (!arch_told(arch, err)) return GDN_E_ARCH;
    gdn__log_open(&o, env, &log);
    st = find_plugin(&o, env, &log, &plugin, err);
    if (st != GDN_OK) return st;
    ahead a = { .target = plugin.id.target, .arch = arch, .folder = folder, .flags = flags, .each = each, .user = user };
    st = compile(&a, &plugin, NULL, env, &log, err);
    gdn__plugin_retire(&plugin, false);
    return st;
}

gdn_status gdn_compile_jobs(const gdn_options *opt, const char *owner, uint32_t n, const gdn_compile_job *jobs, const char *folder,
                            uint32_t flags, void (*each)(void *user, const gdn_compile_row *row), void *user, gdn_text *err) {
    gdn_options o;
    gdn__log log;
    const gdn__env *env = gdn__env_shared();
    gdn__text_set(err, "%s", "");
    const gdn_status st = gdn__options_read(opt, &o, err);
    if (st != GDN_OK) return st;
    if (!owner || !n || !jobs || !jobs->arch || !folder || !*folder || !env) {
        gdn__text_set(err, "%s", env ? "gdn_compile_jobs: owner, jobs, arch or folder is missing" : gdn_status_text(GDN_E_NOMEM));
        return env ? GDN_E_ARG : GDN_E_NOMEM;
    }
    if (!arch_told(jobs->arch, err)) return GDN_E_ARCH;
    gdn__log_open(&o, env, &log);
    ahead a = { .target = owner, .arch = jobs->arch, .folder = folder, .flags = flags, .n = n, .each = each, .user = user };
    return compile(&a, NULL, jobs, env, &log, err);
}
