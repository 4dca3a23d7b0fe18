/* gt_race.c - children that meet: processes that start each round together on a cache that lacks one module (B161), threads that make
 * a fresh process's first calls together (B189); and one that plans a b/a projection of a given width (B164). */
#include "gt_process.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint32_t number(const char *text) {
    return (uint32_t)strtoul(text, NULL, 10);
}

/* ---- processes ---- */
enum { PATIENCE_MS = 30000 };

/* The counter only grows; all are there when it reaches the next multiple of n. false: somebody did not come. */
static bool meet(_Atomic uint32_t *counter, uint32_t n, uint32_t *meetings) {
    const struct timespec nap = { 0, 200000 };
    const uint32_t all = ++*meetings * n;
    (void)atomic_fetch_add(counter, 1);
    for (uint32_t i = 0; i < PATIENCE_MS * 5; i++) {
        if (atomic_load(counter) >= all) return true;
        (void)nanosleep(&nap, NULL);
    }
    printf("reason a neighbour did not come to meeting %u\n", *meetings);
    return false;
}

/* One module's entry goes (the others stay, so that a round is short); in the first round everything. */
static bool empty(const char *cache, bool all) {
    char command[512], out[GT_OUT_BYTES];
    if (all)
        (void)snprintf(command, sizeof command, "rm -rf '%s/v1'", cache);
    else
        (void)snprintf(command, sizeof command,
                       "for f in $(grep -rlF --include='*.ini' gdn_state.cu '%s'); do rm -f \"$f\" \"${f%%.ini}.cubin\" && echo gone; done",
                       cache);
    return gt_run(command, out) == 0 && (all || strstr(out, "gone"));
}
static bool tidy(const char *cache) {
    const double cubins = gt_count_files(cache, "*.cubin");
    return cubins > 0 && cubins == gt_count_files(cache, "??*.ini") - gt_count_files(cache, "nvrtc.ini") &&
           gt_count_files(cache, "*.tmp") == 0;
}

static bool right_once(gt *t, gdn *g, const gt_job *job, const gt_live *ref) {
    gt_live l;
    const bool ok = gt_up(t, g, job, &l) && gt_launch(&l, NULL) == GDN_OK && gt_down(t, &l, NULL) && gt_same(t, ref, &l, false);
    gt_drop(&l);
    return ok;
}
/* The cpu target's outputs are what the device must give. */
static bool reference(gt *t, const gt_job *job, gt_live *ref) {
    t->cpu = gt_open(t, "cpu", NULL);
    return t->cpu && gt_up(t, t->cpu, job, ref) && gt_launch(ref, NULL) == GDN_OK && gt_down(t, ref, NULL);
}

int gt_child_rounds(gt *t, char **argv) {
    const char *const folder = argv[0];
    const uint32_t rank = number(argv[1]), n = number(argv[2]), rounds = number(argv[3]);
    char name[128], cache[128];
    gpu_clock clock;
    gt_shapes s;
    gt_job job;
    gt_live ref = { 0 };
    uint32_t meetings = 0, right = 0, clean = 0, i = 0;
    (void)snprintf(name, sizeof name, "%.60s/together", folder);
    (void)snprintf(cache, sizeof cache, "%.60s/cache", folder);
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *shared = fd >= 0 && ftruncate(fd, 4096) == 0 ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (shared == MAP_FAILED || !gpu_clock_open(&clock, 0)) return printf("reason no shared page, or no device\n"), 1;
    _Atomic uint32_t *const counter = shared;
    gt_state_job(t, true, 4000, 5, &s, &job);
    if (setenv("GDN_CACHE_DIR", cache, 1) != 0 || !reference(t, &job, &ref)) return 1;
    for (; i < rounds; i++) {
        if (!meet(counter, n, &meetings)) break;
        if (rank == 0 && !empty(cache, i == 0)) printf("reason the cache could not be emptied\n");
        if (!meet(counter, n, &meetings)) break;
        gdn *g = gt_open(t, t->target, NULL);
        right += g && right_once(t, g, &job, &ref);
        gdn_close(g);
        if (!meet(counter, n, &meetings)) break;
        if (rank == 0) clean += tidy(cache);
    }
    printf("rounds_right %u\n", right);
    if (rank == 0) printf("rounds_clean %u\n", clean);
    gt_drop(&ref);
    gdn_close(t->cpu);
    gpu_clock_close(&clock);
    (void)munmap(shared, 4096);
    (void)close(fd);
    return i == rounds ? 0 : 1;
}

/* ---- threads ---- */
enum { THREADS = 32 };
typedef struct racer {
    gt t; /* a harness of its own: results are not for several threads */
    pthread_barrier_t *together;
    const gt_job *job;
    gt_live got; /* what came back; the rest is gone */
    bool ran;
} racer;
static void *first_calls(void *user) {
    racer *r = user;
    gdn_options o = GDN_OPTIONS_INIT;
    gt_live l = { 0 };
    gdn *g = NULL;
    o.target = r->t.target;
    (void)pthread_barrier_wait(r->together);
    r->ran = gdn_open(&o, &g, NULL) == GDN_OK && gt_up(&r->t, g, r->job, &l) && gt_launch(&l, NULL) == GDN_OK && gt_down(&r->t, &l, NULL);
    r->got = l;
    if (l.g) gt_drop(&l);
    gdn_close(g);
    return NULL;
}

/* The library is not touched before the threads are; the cpu target works out afterwards what should have come. */
int gt_child_first(gt *t) {
    static racer r[THREADS];
    pthread_t id[THREADS];
    pthread_barrier_t together;
    gt_shapes s;
    gt_job job;
    gt_live ref = { 0 };
    uint32_t started = 0, right = 0;
    gt_norm_job(t, 66, 6, 128, GDN_NORM_SILU, 0, &s, &job);
    if (pthread_barrier_init(&together, NULL, THREADS) != 0) return 1;
    for (; started < THREADS; started++) {
        r[started] = (racer) { .t = { .target = t->target }, .together = &together, .job = &job };
        if (pthread_create(&id[started], NULL, first_calls, &r[started]) != 0) return printf("reason a thread did not start\n"), 1;
    }
    for (uint32_t i = 0; i < THREADS; i++) (void)pthread_join(id[i], NULL);
    if (!reference(t, &job, &ref)) return 1;
    for (uint32_t i = 0; i < THREADS; i++) {
        right += r[i].ran && gt_same(&r[i].t, &ref, &r[i].got, false);
        if (r[i].t.bad) printf("reason thread %u: %.200s\n", i, r[i].t.reason);
        while (r[i].t.n_kept) free(r[i].t.kept[--r[i].t.n_kept]);
    }
    printf("threads_right %u\n", right);
    gt_drop(&ref);
    gdn_close(t->cpu);
    return 0;
}

/* ---- one width ---- */
static uint32_t compiled;
static void count_compiles(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    (void)severity;
    (void)area;
    compiled += strstr(msg, "compile ") != NULL && strchr(msg, '/') != NULL;
}
int gt_child_width(gt *t, const char *heads) {
    static const gdn_setting levers[] = { { "ssm_ba_gates_tc", "true" } };
    char why[512] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_options o = GDN_OPTIONS_INIT;
    gt_shapes s;
    gt_job job;
    gdn *g = NULL;
    gdn_hplan *plan = NULL;
    o.target = t->target;
    o.settings = levers;
    o.n_settings = 1;
    o.log = count_compiles;
    gt_ba_job(t, 300, number(heads), 1, 512, 0, 0, &s, &job);
    const bool ok = gdn_open(&o, &g, &err) == GDN_OK && gdn_plan_make(g, job.shape, NULL, &plan, &err) == GDN_OK;
    if (ok)
        printf("compiled %u\n", compiled);
    else
        printf("reason %s\n", why);
    gdn_plan_free(plan);
    gdn_close(g);
    return ok ? 0 : 1;
}
