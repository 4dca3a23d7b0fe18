/* test_engine_targets.c - the engine on the target under test beside the engine on the cpu target: the same small random checkpoint, the
 * same tokens. On a GPU target also what only it has: graphs, its refusals, a cuBLAS that is not there. */
#include "engine.h"
#include "generate.h"
#include "target.h"
#include "tiny_checkpoint.h"
#include <math.h>

enum { TOKENS = 90, VOCAB = 40 };
static uint32_t text[TOKENS];
static gdn *cpu;
static tiny model = { .vocab = VOCAB, .hidden = 40, .inter = 56, .layers = 2, .nk = 2, .nv = 4, .dim = 128, .width = 4 };

static gdn_engine *load_options(const gdn_engine_options *opt) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    if (gdn_engine_load(model.dir, opt, &e, &err) != GDN_OK) fail_msg("%s", buf);
    return e;
}

static gdn_engine *load(gdn *g, uint32_t dtype) {
    const gdn_engine_options opt = { .target = g, .dtype = dtype };
    return load_options(&opt);
}

static double distance(const float *a, const float *b, uint64_t n) {
    double diff = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : INFINITY;
}

static float *by_prefill(gdn_engine *e, const uint32_t *tokens) {
    float *out = malloc((size_t)TOKENS * VOCAB * sizeof *out);
    assert_non_null(out);
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, tokens, TOKENS, true, out, NULL), GDN_OK);
    return out;
}

/* In bf16 the target is as far from f32 as the cpu target is in bf16, and no further. */
static void prefill_as_on_the_cpu(void **state) {
    (void)state;
    const uint64_t n = (uint64_t)TOKENS * VOCAB;
    gdn_engine *full = load(cpu, GDN_F32), *half = load(cpu, GDN_BF16), *here = load(target(), GDN_BF16);
    float *exact = by_prefill(full, text), *other = by_prefill(half, text), *got = by_prefill(here, text);
    const double own = distance(other, exact, n), ours = distance(got, exact, n), apart = distance(got, other, n);
    print_message("bf16 against f32: cpu %.2e, here %.2e; here against cpu %.2e\n", own, ours, apart);
    assert_true(own < 0.1 && ours <= 1.25 * own && apart <= 2 * own);
    /* The control: one other token in the middle, and from there on it shows; before, nothing changes. */
    uint32_t changed[TOKENS];
    memcpy(changed, text, sizeof changed);
    changed[40] = (changed[40] + 1) % VOCAB;
    float *next = by_prefill(here, changed);
    assert_memory_equal(next, got, 40 * VOCAB * sizeof *got);
    assert_true(distance(next + 40 * VOCAB, got + 40 * VOCAB, VOCAB) > 4 * own);
    free(next);
    free(got);
    free(other);
    free(exact);
    gdn_engine_free(here);
    gdn_engine_free(half);
    gdn_engine_free(full);
}

/* Steps, then verifies of every number of rows with every number accepted. All logits into `out`; *rows is how many rows of them. */
static void walk(gdn_engine *e, float *out, uint32_t *rows) {
    uint32_t at = 30, n = 0;
    assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
    assert_int_equal(gdn_engine_prefill(e, text, at, false, NULL, NULL), GDN_OK);
    for (uint32_t i = 0; i < 5; i++, n++) assert_int_equal(gdn_engine_step(e, text[at++], out + (size_t)n * VOCAB, NULL), GDN_OK);
    for (uint32_t k = 2; k <= GDN_ENGINE_MAX_ROWS; k++)
        for (uint32_t accept = 1; accept <= k; accept++) {
            assert_int_equal(gdn_engine_verify(e, text + at, k, out + (size_t)n * VOCAB, NULL), GDN_OK);
            assert_int_equal(gdn_engine_accept(e, accept, NULL), GDN_OK);
            n += k;
            at += accept;
            if (accept % 2) continue; /* a step whose conv window is shifted, or another verify */
            assert_int_equal(gdn_engine_step(e, text[at++], out + (size_t)n++ * VOCAB, NULL), GDN_OK);
        }
    assert_true(at < TOKENS && n < TOKENS);
    *rows = n;
}

/* A replayed graph gives the bytes of the launches that it was made of, twice over; and both are near the cpu's. */
static void steps_and_graphs(void **state) {
    (void)state;
    static float plain[TOKENS * VOCAB], graph[TOKENS * VOCAB], other[TOKENS * VOCAB];
    uint32_t rows = 0;
    const char *why = NULL;
    for (uint32_t woa = 0; woa < 2; woa++) {
        gdn_engine_options opt = { .target = target(), .dtype = GDN_BF16, .woa = woa, .no_graph = true };
        gdn_engine *e = load_options(&opt);
        walk(e, plain, &rows);
        assert_int_equal(gdn_engine_replays(e, NULL), 0);
        gdn_engine_free(e);
        opt.no_graph = false;
        e = load_options(&opt);
        for (uint32_t round = 0; round < 2; round++) {
            memset(graph, 0xff, sizeof graph);
            walk(e, graph, &rows);
            assert_memory_equal(graph, plain, rows * VOCAB * sizeof *plain);
        }
        const uint64_t replays = gdn_engine_replays(e, &why);
        if (why) fail_msg("%s", why);
        print_message("%u rows, %llu passes replayed\n", rows, (unsigned long long)replays);
        assert_true(target_is_cpu() ? replays == 0 : replays > 20);
        gdn_engine_free(e);
        opt.target = cpu;
        opt.no_graph = true;
        e = load_options(&opt);
        walk(e, other, &rows);
        gdn_engine_free(e);
        assert_true(distance(graph, other, (uint64_t)rows * VOCAB) < 0.05);
        for (uint32_t i = 0; i < 3; i++) assert_true(distance(graph + i * VOCAB, graph + (i + 1) * VOCAB, VOCAB) > 0.1);
    }
}

/* The first row of a verify is decode's, bit for bit, whatever comes with it. */
static void first_row_is_a_step(void **state) {
    (void)state;
    float step[VOCAB], rows[GDN_ENGINE_MAX_ROWS * VOCAB];
    gdn_engine *e = load(target(), GDN_BF16);
    for (uint32_t k = 0; k <= GDN_ENGINE_MAX_ROWS; k++) {
        assert_int_equal(gdn_engine_reset(e, NULL), GDN_OK);
        assert_int_equal(gdn_engine_prefill(e, text, 21, false, NULL, NULL), GDN_OK);
        if (!k)
            assert_int_equal(gdn_engine_step(e, text[21], step, NULL), GDN_OK);
        else
            assert_int_equal(gdn_engine_verify(e, text + 21, k, rows, NULL), GDN_OK);
        if (k) assert_memory_equal(rows, step, sizeof step);
        if (k > 1) assert_memory_not_equal(rows + VOCAB, step, sizeof step); /* the control */
        if (k) assert_int_equal(gdn_engine_accept(e, 1, NULL), GDN_OK);
    }
    gdn_engine_free(e);
}

/* Replays count as the launches that they stand for. */
typedef struct launches {
    uint64_t step, decode, conv;
} launches;

static void note(void *user, const char *op, const gdn_route *route, uint64_t n) {
    launches *l = user;
    (void)route;
    if (!strcmp(op, "decode_step")) l->step = n;
    if (!strcmp(op, "decode")) l->decode = n;
    if (!strcmp(op, "conv_fused")) l->conv = n;
}

static void counts(void **state) {
    (void)state;
    launches l = { 0, 0, 0 };
    float logits[VOCAB];
    gdn_engine *e = load(target(), GDN_BF16);
    assert_int_equal(gdn_engine_prefill(e, text, 3, false, NULL, NULL), GDN_OK);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(gdn_engine_step(e, text[i], logits, NULL), GDN_OK);
    assert_int_equal(gdn_engine_routes(e, note, &l), GDN_OK);
    assert_int_equal(l.step, 6 * model.layers);
    assert_int_equal(l.decode, 0);
    assert_int_equal(l.conv, model.layers); /* the prefill's */
    assert_int_equal(gdn_engine_replays(e, NULL), target_is_cpu() ? 0 : 5);
    gdn_engine_free(e);
}

/* What a GPU target does not take, by name. */
static void refusals(void **state) {
    (void)state;
    char buf[1500] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = load(target(), 0);
    assert_int_equal(gdn_engine_dtype(e), target_is_cpu() ? GDN_F32 : GDN_BF16);
    assert_string_equal(gdn_engine_dense(e), target_is_cpu() ? "OpenBLAS" : "cuBLAS");
    gdn_engine_free(e);
    if (target_is_cpu()) return;
    e = NULL;
    const gdn_engine_options wide = { .target = target(), .dtype = GDN_F32 }, none = { .target = target() };
    assert_int_equal(gdn_engine_load(model.dir, &wide, &e, &err), GDN_REFUSED);
    assert_null(e);
    assert_non_null(strstr(buf, "activations are f32 (target cpu only)"));
    const char *before = getenv("CUBLAS_LIBRARY");
    char *kept = before ? strdup(before) : NULL;
    assert_int_equal(setenv("CUBLAS_LIBRARY", "/nonexistent/libcublas.so", 1), 0);
    assert_int_equal(gdn_engine_load(model.dir, &none, &e, &err), GDN_E_LOAD);
    assert_null(e);
    if (!strstr(buf, "no cuBLAS for the dense products; tried /nonexistent/libcublas.so (") || !strstr(buf, "CUBLAS_LIBRARY, which is set"))
        fail_msg("%s", buf);
    assert_int_equal(kept ? setenv("CUBLAS_LIBRARY", kept, 1) : unsetenv("CUBLAS_LIBRARY"), 0);
    free(kept);
    e = load(target(), 0); /* and nothing of it stays */
    gdn_engine_free(e);
}

static int setup(void **state) {
    if (target_setup(state)) return -1;
    gdn_options opt = GDN_OPTIONS_INIT;
    const gdn_setting woa = { "gdn_woa", "1" };
    opt.target = "cpu";
    opt.settings = &woa;
    opt.n_settings = 1;
    tiny_make(&model, 61);
    return gdn_open(&opt, &cpu, NULL) == GDN_OK ? 0 : -1;
}

static int teardown(void **state) {
    tiny_remove(&model);
    gdn_close(cpu);
    return target_teardown(state);
}

int main(void) {
    rng r = { 5 };
    for (uint32_t i = 0; i < TOKENS; i++) text[i] = rng_below(&r, VOCAB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_as_on_the_cpu),
        cmocka_unit_test(steps_and_graphs),
        cmocka_unit_test(first_row_is_a_step),
        cmocka_unit_test(counts),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
