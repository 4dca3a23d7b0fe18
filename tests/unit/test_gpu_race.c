/* test_gpu_race.c - plans that several threads make of one context at once, while others ask for routes, and others open one for
 * themselves: every build is loaded once a context, and every plan has its entries. On a backend that may be called from anywhere; made for
 * ThreadSanitizer. */
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 6, CONTEXTS = 2, OWNERS = 2, ALL = THREADS * CONTEXTS + OWNERS };
static struct { _Atomic uint32_t loaded, unloaded, functions, batches, warnings; } seen;

static gdn_status slow_load(void *user, int32_t ordinal, uint32_t n, const gdn_compile_job *jobs, void **modules, gdn_status *status,
                            gdn_text *err) {
    const struct timespec t = { 0, 2000000 };
    (void)user, (void)ordinal, (void)jobs, (void)err;
    (void)nanosleep(&t, NULL);
    atomic_fetch_add(&seen.batches, 1);
    for (uint32_t i = 0; i < n; i++) {
        modules[i] = (void *)(uintptr_t)(atomic_fetch_add(&seen.loaded, 1) + 1);
        status[i] = GDN_OK;
    }
    return GDN_OK;
}
static void unload(void *user, int32_t ordinal, void *module) {
    (void)user, (void)ordinal, (void)module;
    atomic_fetch_add(&seen.unloaded, 1);
}
static gdn_status function(void *user, void *module, const char *entry, void **out) {
    (void)user, (void)module, (void)entry;
    *out = (void *)(uintptr_t)(atomic_fetch_add(&seen.functions, 1) + 1);
    return GDN_OK;
}
static gdn_status set_smem(void *user, void *fn, uint32_t bytes) {
    (void)user, (void)bytes;
    return fn ? GDN_OK : GDN_E_ARG;
}
static gdn_status device(void *user, int32_t ordinal, gdn_device *out) {
    const mock *m = user;
    *out = m->device[ordinal];
    return GDN_OK;
}
static gdn_status started(void *user, void *fn, const gdn_dims *dims, void *stream, void **params) {
    (void)user, (void)dims, (void)stream, (void)params;
    return fn ? GDN_OK : GDN_E_DRIVER;
}
static void listen(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user, (void)area, (void)msg;
    if (severity <= GDN_LOG_WARN) atomic_fetch_add(&seen.warnings, 1);
}
static uint32_t never(void *user, uint32_t slot) {
    (void)user, (void)slot;
    return 0;
}

static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD, GDN_OP_ROUND };
enum { OPS = sizeof ops / sizeof *ops };
static gdn_rule_shape shape_of(uint32_t op) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), op, op == GDN_OP_FOLD ? 0 : GDN_QK_L2NORM, GDN_BF16 },
                              .nk = 16,
                              .nv = 48,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LOG,
                              .state_type = GDN_F32,
                              .state_addr = GDN_STATE_POOL,
                              .max_batch = 8,
                              .max_rows = 4,
                              .max_tokens = op == GDN_OP_PREFILL ? 4096 : 0,
                              .stash_seqs = 8,
                              .hi_capacity = 3,
                              .num_slots = 9 };
}

typedef struct worker {
    const gdn_plugin *id;
    const gdn_host *host;
    gdn_ctx *ctx; /* NULL: one of its own */
    pthread_barrier_t *start;
    uint32_t first;
    bool routes, ok;
} worker;
static void *work(void *arg) {
    worker *w = arg;
    const bool own = !w->ctx;
    pthread_barrier_wait(w->start);
    w->ok = !own || w->id->ops->init(w->host, 0, &w->ctx, NULL) == GDN_OK;
    if (!w->ok) return NULL;
    for (uint32_t i = 0; i < OPS; i++) {
        const gdn_rule_shape s = shape_of(ops[(w->first + i) % OPS]);
        gdn_route r = { .struct_size = sizeof r };
        gdn_plan *plan = NULL;
        if (w->routes) {
            w->ok = w->ok && w->id->ops->route_on(w->ctx, 0, &s.base, 0, NULL, &r, NULL) == GDN_OK && r.entry;
            continue;
        }
        w->ok = w->ok && w->id->ops->plan(w->ctx, &s.base, NULL, &plan, NULL) == GDN_OK &&
                w->id->ops->explain(plan, 0, NULL, &r) == GDN_OK && r.entry;
        if (plan) w->id->ops->destroy(plan);
    }
    if (own) w->id->ops->fini(w->ctx);
    return NULL;
}

/* In every round fresh contexts, which half of the threads share in pairs with one that asks for routes. */
static void plans_of_many_threads(void **state) {
    (void)state;
    static const char *const levers[][2] = { { "gdn_woa", "1" }, { "gdn_prefill_tc", "true" }, { "gdn_prefill_fast", "true" } };
    const gdn_plugin *id = mock_plugin("hopper");
    assert_non_null(id);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        mock m;
        gdn_ctx *ctx[CONTEXTS];
        worker w[ALL];
        pthread_t th[ALL];
        pthread_barrier_t start;
        memset(&seen, 0, sizeof seen);
        mock_init(&m, 90, 132);
        for (uint32_t i = 0; i < 3; i++) mock_lever(&m, levers[i][0], levers[i][1]);
        m.table.modules_load = slow_load, m.table.module_unload = unload, m.table.function = function;
        m.table.set_smem = set_smem, m.table.device = device, m.table.launch = started;
        m.host.log = listen, m.host.once = never;
        for (uint32_t c = 0; c < CONTEXTS; c++) assert_int_equal(id->ops->init(&m.host, 0, &ctx[c], NULL), GDN_OK);
        const uint32_t at_start = atomic_load(&seen.loaded), batches = atomic_load(&seen.batches);
        assert_int_equal(pthread_barrier_init(&start, NULL, ALL), 0);
        for (uint32_t i = 0; i < ALL; i++) {
            w[i] = (worker) { id,     &m.host,           i < THREADS * CONTEXTS ? ctx[i % CONTEXTS] : NULL,
                              &start, (i + round) % OPS, i / CONTEXTS == THREADS - 1,
                              false };
            assert_int_equal(pthread_create(&th[i], NULL, work, &w[i]), 0);
        }
        for (uint32_t i = 0; i < ALL; i++) {
            (void)pthread_join(th[i], NULL);
            assert_true(w[i].ok);
        }
        (void)pthread_barrier_destroy(&start);
        /* fla, chunk_tc, fla_hopper, fast, decode, wyn, verify_split, wy4_round, and write-on-accept's in the form of the verify and, where
         * a fold was first, in its own; segments when the prefill came after the batch */
        const uint32_t builds = atomic_load(&seen.loaded) - at_start - OWNERS * at_start / CONTEXTS, all = CONTEXTS + OWNERS;
        assert_in_range(builds, 9 * all, 12 * all);
        assert_in_range(atomic_load(&seen.batches) - batches, all + OWNERS, 4 * all + OWNERS);
        assert_int_equal(atomic_load(&seen.warnings), 0);
        for (uint32_t c = 0; c < CONTEXTS; c++) id->ops->fini(ctx[c]);
        assert_int_equal(atomic_load(&seen.unloaded), atomic_load(&seen.loaded));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_of_many_threads) };
    return cmocka_run_group_tests_name("gpu_race", tests, NULL, NULL);
}
