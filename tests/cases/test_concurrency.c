/* test_concurrency.c - public reports about first use and threads, each named by its id, on the cpu target: 32 threads that
 * make the first call of a fresh process together, one plan launched by many threads, thread counts above the work.
 *
 * The program starts itself: `test_concurrency first` and `test_concurrency digest` are the fresh processes. B187's and
 * B188's streams and captures have no meaning on host memory: a launch runs in the calling thread, which is what
 * B187_a_launch_is_done_when_it_returns checks. */
#include "rule_case.h"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { THREADS = 32 };

static const rc_spec prefill = { .op = GDN_OP_PREFILL, .nk = 2, .nv = 6, .dim = 64, .rows = 67, .addr = GDN_STATE_POOL, .batch = 2 };
static const rc_spec decode = { .op = GDN_OP_DECODE, .nk = 2, .nv = 6, .dim = 64, .addr = GDN_STATE_POOL, .batch = 3 };

/* ---- a fresh process: everything is used for the first time by all threads at once ---- */
typedef struct first_use {
    pthread_barrier_t *start;
    const rule_case *c; /* its buffers give the inputs; states and outputs are this thread's own */
    guard pool, out;
    bool ok;
} first_use;

static void *open_plan_launch(void *arg) {
    first_use *u = arg;
    gdn *g = NULL;
    gdn_hplan *p = NULL;
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = "cpu";
    pthread_barrier_wait(u->start);
    if (gdn_open(&opt, &g, NULL) == GDN_OK && gdn_plan_make(g, &u->c->shape.base, NULL, &p, NULL) == GDN_OK) {
        const uint64_t ptr[] = { addr_of(u->pool.p),
                                 addr_of(u->c->qp),
                                 addr_of(u->c->kp),
                                 addr_of(u->c->vp),
                                 addr_of(u->c->gb.p),
                                 addr_of(rc_beta(u->c, 0, 0)),
                                 addr_of(u->out.p),
                                 0,
                                 addr_of(u->c->in_slots.p),
                                 0,
                                 0,
                                 0 };
        u->ok = launch(p, N_OF(ptr), ptr, 1, &u->c->s.batch) == GDN_OK;
    }
    gdn_plan_free(p);
    gdn_close(g);
    return NULL;
}

static int first_call_by_all_threads(void) {
    static first_use u[THREADS];
    pthread_t th[THREADS];
    pthread_barrier_t start;
    rule_case c;
    rc_make(&c, &decode);
    if (pthread_barrier_init(&start, NULL, THREADS) != 0) return 3;
    for (uint32_t i = 0; i < THREADS; i++) {
        u[i] = (first_use) { .start = &start, .c = &c, .pool = guard_copy(&c.pool), .out = guard_alloc(c.o.bytes) };
        guard_poison(&u[i].out);
        if (pthread_create(&th[i], NULL, open_plan_launch, &u[i]) != 0) return 3;
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(th[i], NULL);
    pthread_barrier_destroy(&start);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    int bad = 0;
    char why[256];
    for (uint32_t i = 0; i < THREADS; i++) {
        guard_put(&c.pool, u[i].pool.p);
        guard_put(&c.o, u[i].out.p);
        if (!u[i].ok || !rc_matches(&c, &e, &before, why, sizeof why)) bad = 1;
        guard_free(&u[i].pool);
        guard_free(&u[i].out);
    }
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
    return bad;
}

static int start_self(const char *what, const char *env) {
    char exe[4096];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return -1;
    exe[n] = 0;
    char *argv[] = { exe, (char *)(uintptr_t)what, NULL };
    pid_t pid;
    if (env && putenv((char *)(uintptr_t)env) != 0) return -1;
    if (posix_spawn(&pid, exe, NULL, NULL, argv, environ) != 0) return -1;
    int status;
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void B189_first_call_by_32_threads(void **state) {
    (void)state;
    for (uint32_t i = 0; i < (TEST_LIGHT ? 10 : 200); i++) assert_int_equal(start_self("first", NULL), 0);
}

/* ---- thread counts: a digest of outputs and states, written to stdout's file ---- */
static uint64_t digest_of(const rc_spec *s) {
    rule_case c;
    rc_make(&c, s);
    rc_check(&c); /* outputs were poisoned: a part that no thread wrote is found here */
    const uint64_t d = num_hash(c.o.p, c.o.bytes) ^ num_hash(c.pool.p, c.pool.bytes);
    rc_free(&c);
    return d;
}

static uint64_t digest(void) {
    static const uint32_t len[] = { 70, 0, 1, 129 };
    const rc_spec packed = { .op = GDN_OP_PREFILL, .nk = 2, .nv = 6, .dim = 128, .addr = GDN_STATE_POOL, .batch = 4, .len = len };
    const rc_spec verify = { .op = GDN_OP_VERIFY, .nk = 2, .nv = 6, .dim = 64, .rows = 4, .addr = GDN_STATE_POOL, .batch = 2, .hi = true };
    const rc_spec one = { .op = GDN_OP_DECODE, .nk = 1, .nv = 1, .dim = 64, .addr = GDN_STATE_POOL };
    return digest_of(&prefill) * 3 + digest_of(&packed) * 5 + digest_of(&decode) * 7 + digest_of(&verify) * 11 + digest_of(&one) * 13;
}

static void write_digest(void **state) {
    (void)state;
    FILE *f = fopen("test_concurrency.digest", "w");
    assert_non_null(f);
    assert_true(fprintf(f, "%llx\n", (unsigned long long)digest()) > 0);
    assert_int_equal(fclose(f), 0);
}

static void B193_any_number_of_threads_gives_the_same_bytes(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    puts("skipped: ThreadSanitizer does not see libgomp's barriers; one thread a region is what it can judge");
    skip();
#endif
    static const char *const threads[] = { "OMP_NUM_THREADS=1",  "OMP_NUM_THREADS=2",  "OMP_NUM_THREADS=7",
                                           "OMP_NUM_THREADS=64", "OMP_NUM_THREADS=96", "OMP_NUM_THREADS=192" };
    const unsigned long long want = digest();
    for (uint32_t i = 0; i < (TEST_LIGHT ? 4 : N_OF(threads)); i++) {
        unsigned long long got = 0;
        assert_int_equal(start_self("digest", threads[i]), 0);
        FILE *f = fopen("test_concurrency.digest", "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%llx", &got), 1);
        fclose(f);
        remove("test_concurrency.digest");
        assert_int_equal(got, want);
    }
    unsetenv("OMP_NUM_THREADS");
}

/* ---- one plan, many threads, own buffers ---- */
typedef struct worker {
    const gdn_hplan *plan;
    rule_case c;
    uint64_t out, pool; /* hashes to meet */
    uint32_t n;
    bool ok;
} worker;

static void *launch_often(void *arg) {
    worker *w = arg;
    rule_case *c = &w->c;
    rc_before before = rc_remember(c);
    const uint64_t ptr[] = { addr_of(c->qp),
                             addr_of(c->kp),
                             addr_of(c->vp),
                             addr_of(c->gb.p),
                             addr_of(rc_beta(c, 0, 0)),
                             addr_of(c->pool.p),
                             addr_of(c->o.p),
                             0,
                             0,
                             addr_of(c->in_slots.p),
                             0,
                             0,
                             0,
                             addr_of(c->ws.p) };
    const uint32_t u32[] = { c->s.batch, c->s.rows };
    w->ok = true;
    for (uint32_t i = 0; w->ok && i < w->n; i++) {
        rc_put_back(c, &before);
        w->ok = launch(w->plan, N_OF(ptr), ptr, 2, u32) == GDN_OK && num_hash(c->o.p, c->o.bytes) == w->out &&
                num_hash(c->pool.p, c->pool.bytes) == w->pool;
    }
    rc_forget(&before);
    return NULL;
}

static void one_plan_launched_by_many_threads(void **state) {
    (void)state;
    enum { N = 8 };
    static worker w[N];
    pthread_t th[N];
    gdn_hplan *plan = NULL;
    for (uint32_t i = 0; i < N; i++) { /* inputs of their own */
        rc_spec s = prefill;
        s.seed = i + 1;
        rc_make(&w[i].c, &s);
        rc_before before = rc_remember(&w[i].c);
        rc_check(&w[i].c);
        w[i].out = num_hash(w[i].c.o.p, w[i].c.o.bytes);
        w[i].pool = num_hash(w[i].c.pool.p, w[i].c.pool.bytes);
        w[i].n = TEST_LIGHT ? 5 : 40;
        rc_put_back(&w[i].c, &before);
        rc_forget(&before);
        if (!plan) plan = plan_ok(&w[i].c.shape);
        w[i].plan = plan;
    }
    assert_true(w[0].out != w[1].out);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(pthread_create(&th[i], NULL, launch_often, &w[i]), 0);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(pthread_join(th[i], NULL), 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(w[i].ok);
        rc_free(&w[i].c);
    }
    gdn_plan_free(plan);
}

/* A stream that the target does not look at, and results that are there at once. */
static void B187_a_launch_is_done_when_it_returns(void **state) {
    (void)state;
    rule_case c;
    rc_make(&c, &decode);
    rc_expect e = rc_expect_of(&c, NULL);
    rc_before before = rc_remember(&c);
    gdn_hplan *p = plan_ok(&c.shape);
    const uint64_t ptr[] = { addr_of(c.pool.p),
                             addr_of(c.qp),
                             addr_of(c.kp),
                             addr_of(c.vp),
                             addr_of(c.gb.p),
                             addr_of(rc_beta(&c, 0, 0)),
                             addr_of(c.o.p),
                             0,
                             addr_of(c.in_slots.p),
                             0,
                             0,
                             0 };
    int not_a_stream;
    const gdn_launch_args a = {
        .struct_size = sizeof a, .n_ptr = N_OF(ptr), .n_u32 = 1, .ptr = ptr, .u32 = &c.s.batch, .stream = &not_a_stream
    };
    char why[256];
    assert_int_equal(gdn_launch(p, &a), GDN_OK);
    if (!rc_matches(&c, &e, &before, why, sizeof why)) fail_msg("%s", why);
    gdn_plan_free(p);
    rc_forget(&before);
    rc_expect_free(&e);
    rc_free(&c);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "first") == 0) return first_call_by_all_threads();
    const struct CMUnitTest digest_only[] = { cmocka_unit_test(write_digest) };
    if (argc > 1 && strcmp(argv[1], "digest") == 0)
        return cmocka_run_group_tests_name("digest", digest_only, target_setup, target_teardown);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B189_first_call_by_32_threads),
        cmocka_unit_test(B193_any_number_of_threads_gives_the_same_bytes),
        cmocka_unit_test(one_plan_launched_by_many_threads),
        cmocka_unit_test(B187_a_launch_is_done_when_it_returns),
    };
    return cmocka_run_group_tests_name("concurrency", tests, target_setup, target_teardown);
}
