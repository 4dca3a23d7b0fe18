/* nvrtc_jit_batch.c - a batch of modules: what is there is taken, what is missing is compiled by as many threads as there are
 * cores, with one progress line each. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "nvrtc_jit.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 16 << 20, MAX_THREADS = 64 };

typedef struct task {
    gdn_compile_job job;
    gdn__key content;
    gdn__cubin *out;
    gdn_status *status;
    gdn_text *err;
    bool done;
} task;
typedef struct batch {
    gdn__jit *jit;
    task *tasks;
    uint32_t n;
    _Atomic uint32_t next;
    pthread_mutex_t mutex; /* of the counts and of the order of progress lines */
    uint32_t finished, cached, built;
    gdn__jit_accept accept;
    const void *user;
} batch;

static void finish(task *t, gdn_status st) {
    *t->status = st;
    t->done = true;
}

static void build_one(batch *b, task *t) {
    bool hit = false;
    double ms = 0;
    char defines[GDN__DEFINES_BYTES], *buf = gdn__alloc(GDN__WHY_BYTES);
    gdn_text why = { buf, buf ? GDN__WHY_BYTES : 0, 0 };
    const gdn_status st = gdn__jit_build(b->jit, &t->job, &t->content, true, t->out, &hit, &ms, &why);
    if (st != GDN_OK) {
        gdn__hand_over(t->err, &why);
        if (buf) gdn__log_text(&b->jit->log, GDN_LOG_ERROR, "nvrtc", buf);
    }
    (void)pthread_mutex_lock(&b->mutex);
    b->finished++;
    b->cached += hit;
    b->built += st == GDN_OK && !hit;
    if (st == GDN_OK && !hit && b->jit->made) b->jit->made(b->jit->made_user, (uint32_t)(t - b->tasks), t->out);
    if (!hit)
        gdn__log_line(&b->jit->log, GDN_LOG_INFO, "nvrtc", "compile %u/%u %s%s %s %.0f ms%s (cached: %u)", (unsigned)b->finished,
                      (unsigned)b->n, t->job.name, gdn__job_defines(&t->job, defines), t->job.arch, ms, st == GDN_OK ? "" : " failed",
                      (unsigned)b->cached);
    (void)pthread_mutex_unlock(&b->mutex);
    finish(t, st);
    free(buf);
}

static bool stopped(const batch *b) {
    return b->jit->stop && atomic_load(b->jit->stop) != 0;
}
static void give_up(task *t) {
    gdn__text_set(t->err, "%s: not begun: stopped before", t->job.name);
    finish(t, GDN_ABSENT);
}

static void *worker(void *arg) {
    batch *b = arg;
    for (uint32_t i; (i = atomic_fetch_add(&b->next, 1)) < b->n;)
        if (!b->tasks[i].done) {
            if (stopped(b))
                give_up(&b->tasks[i]);
            else
                build_one(b, &b->tasks[i]);
        }
    return NULL;
}

static uint32_t cores(void) {
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > MAX_THREADS ? (uint32_t)MAX_THREADS : (uint32_t)n;
}

/* This thread works too, so that a machine that gives no thread still compiles. A line says what is ahead, one each is done, one the end.
 */
static void build_all(batch *b, uint32_t missing) {
    const double begin = gdn__now_ms();
    pthread_t threads[MAX_THREADS];
    pthread_attr_t attr;
    sigset_t all, before;
    uint32_t n = 0;
    const uint32_t want = missing < cores() ? missing : cores();
    if (missing > 1)
        gdn__log_line(&b->jit->log, GDN_LOG_INFO, "nvrtc", "to compile: %u of %u modules, %u at a time", (unsigned)missing, (unsigned)b->n,
                      (unsigned)want);
    if (want > 1 && pthread_attr_init(&attr) == 0) {
        (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
        /* The program's signal handlers run in its own threads. */
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        while (n + 1 < want && pthread_create(&threads[n], &attr, worker, b) == 0) n++;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)pthread_attr_destroy(&attr);
    }
    (void)worker(b);
    while (n) (void)pthread_join(threads[--n], NULL);
    if (missing > 1)
        gdn__log_line(&b->jit->log, GDN_LOG_INFO, "nvrtc", "compiled: %u of %u modules in %.1f s", (unsigned)b->built, (unsigned)missing,
                      (gdn__now_ms() - begin) * 1e-3);
}

/* ---- before compiling ---- */
static void take_hit(batch *b, task *t) {
    b->finished++;
    b->cached++;
    finish(t, GDN_OK);
}

static uint32_t first_pass(batch *b, const gdn_compile_job *jobs, const char *id) {
    uint32_t missing = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        task *t = &b->tasks[i];
        gdn_status st = gdn__job_read(jobs, i, &t->job, t->err);
        if (st == GDN_OK && b->accept) st = b->accept(b->user, &t->job, t->err);
        if (st == GDN_OK) st = gdn__jit_sources(b->jit, &t->job, t->err);
        if (st == GDN_OK) st = gdn__cubin_key(&t->job, "", &t->content);
        if (st != GDN_OK) {
            b->finished++;
            finish(t, st);
            continue;
        }
        st = gdn__jit_recall(b->jit, &t->content, t->err);
        if (st != GDN_ABSENT) {
            b->finished++;
            finish(t, st);
        } else if (gdn__jit_look(b->jit, &t->job, &t->content, id, t->out) == GDN_OK) {
            take_hit(b, t);
        } else {
            missing++;
        }
    }
    return missing;
}

/* NVRTC is a need only where no other one's code is there: then a warning, for each backend one. */
static void tell_nvrtc(batch *b, const char *why, uint32_t served, uint32_t failed, const char *maker) {
    if (failed && gdn__jit_first(b->jit, why)) gdn__log_line(&b->jit->log, GDN_LOG_WARN, "nvrtc", "%s", why);
    if (served)
        gdn__log_line(&b->jit->log, gdn__jit_first(b->jit, "served") ? GDN_LOG_INFO : GDN_LOG_DEBUG, "cache",
                      "NVRTC cannot be opened; the code that NVRTC %s made is used (%u modules)", maker, (unsigned)served);
}

/* NVRTC is open now, or cannot be: look where that knowledge leads. */
static uint32_t second_pass(batch *b, const char *known, gdn_status nvrtc, const gdn_text *why) {
    uint32_t missing = 0, served = 0, failed = 0;
    const char *maker = "";
    for (uint32_t i = 0; i < b->n; i++) {
        task *t = &b->tasks[i];
        if (t->done) continue;
        if (nvrtc == GDN_OK) {
            const bool again = strcmp(known, b->jit->nvrtc.id) != 0;
            if (again && gdn__jit_look_cached(b->jit, &t->job, b->jit->nvrtc.id, true, t->out) == GDN_OK)
                take_hit(b, t);
            else
                missing++;
        } else if (gdn__jit_look_any(b->jit, &t->job, t->out) == GDN_OK) {
            served++;
            maker = t->out->nvrtc;
            take_hit(b, t);
        } else {
            gdn__text_set(t->err, "%s: not compiled yet, and %s", t->job.name, why->buf);
            b->finished++;
            failed++;
            finish(t, nvrtc);
        }
    }
    tell_nvrtc(b, why->buf, served, failed, maker);
    return missing;
}

static void open_cache(gdn__jit *j) {
    (void)pthread_mutex_lock(&j->mutex);
    if (!j->cache_open && !j->nocache) gdn__cache_open(&j->cache, j->env, &j->log, NULL);
    j->cache_open = true;
    (void)pthread_mutex_unlock(&j->mutex);
}

static void known_id(gdn__jit *j, char id[GDN__NVRTC_ID]) {
    id[0] = '\0';
    (void)pthread_mutex_lock(&j->mutex);
    if (j->nvrtc_tried && j->nvrtc_status == GDN_OK)
        (void)snprintf(id, GDN__NVRTC_ID, "%s", j->nvrtc.id);
    else if (!gdn__cache_known_nvrtc(&j->cache, j->asked, id))
        id[0] = '\0';
    (void)pthread_mutex_unlock(&j->mutex);
}

static void run(batch *b, const gdn_compile_job *jobs) {
    char id[GDN__NVRTC_ID], reason[4096] = "";
    gdn_text why = { reason, sizeof reason, 0 };
    gdn__trimmed trimmed;
    gdn_status nvrtc = GDN_OK;
    open_cache(b->jit);
    known_id(b->jit, id);
    uint32_t missing = first_pass(b, jobs, id);
    if (missing) {
        if (!b->jit->cache.root && !b->jit->nocache) gdn__jit_memory_only(b->jit); /* what is missing may be there, unread */
        (void)gdn__jit_nvrtc(b->jit, &nvrtc, &why);
        missing = second_pass(b, id, nvrtc, &why);
    }
    if (missing)
        build_all(b, missing);
    else
        gdn__log_line(&b->jit->log, GDN_LOG_DEBUG, "cache", "%u of %u modules were there", (unsigned)b->cached, (unsigned)b->n);
    if (b->built && b->jit->cache.writable)
        (void)gdn__cache_trim(b->jit->cache.root, b->jit->cache.max_bytes, b->jit->cache.opened, false, &trimmed, NULL);
}

gdn_status gdn__jit_get(gdn__jit *j, uint32_t n, const gdn_compile_job *jobs, gdn__jit_accept accept, const void *user, gdn__cubin *out,
                        gdn_status *status, gdn_text *err) {
    batch b = { .jit = j, .n = n, .accept = accept, .user = user };
    gdn_status first = GDN_OK;
    if (!n) return GDN_OK;
    b.tasks = gdn__alloc(n * sizeof *b.tasks);
    if (!b.tasks || pthread_mutex_init(&b.mutex, NULL) != 0) {
        free(b.tasks);
        for (uint32_t i = 0; i < n; i++) {
            out[i] = (gdn__cubin) { 0 };
            status[i] = GDN_E_NOMEM;
            gdn__text_set(err ? &err[i] : NULL, "%s", gdn_status_text(GDN_E_NOMEM));
        }
        return GDN_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (gdn__cubin) { 0 };
        b.tasks[i] = (task) { .out = &out[i], .status = &status[i], .err = err ? &err[i] : NULL };
        gdn__text_set(b.tasks[i].err, "%s", "");
    }
    run(&b, jobs);
    for (uint32_t i = 0; i < n && first == GDN_OK; i++) first = status[i];
    (void)pthread_mutex_destroy(&b.mutex);
    free(b.tasks);
    return first;
}
