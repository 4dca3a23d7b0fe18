/* test_gpu_checked.c - GDN_PLAN_CHECKED of the GPU plugins on the mocked backend: the kernel in front with every argument in its place,
 * what is read when, capture, and each call of the backend failing in turn. */
#include "gdn_check.h"
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

enum { ADDRESS = 0x5000 };

/* One block of device memory, the report's. */
static struct {
    gdn_check_report report, found; /* found: what the kernel of the next launch will leave */
    uint32_t taken, reads, calls, fail_at;
} memory;

static bool fails(void) {
    return ++memory.calls == memory.fail_at;
}
static gdn_status mem_alloc(void *user, int32_t ordinal, uint64_t bytes, uint64_t *out) {
    (void)user, (void)ordinal;
    if (fails()) return GDN_E_NOMEM;
    assert_int_equal(bytes, sizeof memory.report);
    memory.taken++;
    *out = ADDRESS;
    return GDN_OK;
}
static void mem_free(void *user, int32_t ordinal, uint64_t p) {
    (void)user, (void)ordinal;
    assert_true(p == ADDRESS && memory.taken);
    memory.taken--;
}
static gdn_status copy_out(void *user, int32_t ordinal, void *stream, void *dst, uint64_t src, uint64_t bytes) {
    const mock *m = user;
    (void)ordinal, (void)stream;
    assert_false(m->capturing);
    assert_true(src == ADDRESS && bytes == sizeof memory.report);
    if (fails()) return GDN_E_DRIVER;
    if (m->launches && !strcmp(m->last.function->entry, "gdn_check_values") && memory.found.kind) {
        memory.report = memory.found;
        memory.found.kind = GDN_BAD_NOTHING;
    }
    memcpy(dst, &memory.report, bytes);
    memory.reads++;
    return GDN_OK;
}
static gdn_status fill(void *user, int32_t ordinal, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes) {
    (void)user, (void)ordinal, (void)stream;
    assert_true(dst == ADDRESS && bytes == sizeof memory.report && byte == 0);
    if (fails()) return GDN_E_DRIVER;
    memset(&memory.report, 0, sizeof memory.report);
    return GDN_OK;
}
static gdn_status sync_stream(void *user, int32_t ordinal, void *stream) {
    (void)user, (void)ordinal, (void)stream;
    return fails() ? GDN_E_DRIVER : GDN_OK;
}

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    gdn_plan *plan;
} bench;

static char text[512];
static gdn_text err = { text, sizeof text, 0 };

static void open_target(bench *b) {
    memset(b, 0, sizeof *b);
    memset(&memory, 0, sizeof memory);
    mock_init(&b->m, 90, 132);
    b->m.table.mem_alloc = mem_alloc;
    b->m.table.mem_free = mem_free;
    b->m.table.copy_out = copy_out;
    b->m.table.fill = fill;
    b->m.table.sync = sync_stream;
    b->id = mock_plugin("hopper");
    assert_non_null(b->id);
}
static void shut(bench *b) {
    b->id->ops->destroy(b->plan);
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
    assert_int_equal(memory.taken, 0);
}

static gdn_rule_shape decode_shape(void) {
    return (gdn_rule_shape) { .base = { (uint32_t)sizeof(gdn_rule_shape), GDN_OP_DECODE, GDN_PLAN_CHECKED, GDN_BF16 },
                              .nk = 2,
                              .nv = 6,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LOG,
                              .gb_stride = 12,
                              .state_addr = GDN_STATE_POOL,
                              .state_type = GDN_F32,
                              .max_batch = 5,
                              .num_slots = 26 };
}
static gdn_status plan(bench *b) {
    const gdn_rule_shape s = decode_shape();
    gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &err);
    return st ? st : b->id->ops->plan(b->ctx, &s.base, NULL, &b->plan, &err);
}
static gdn_status launch(bench *b, uint64_t ptr[GDN_DECODE_N_PTR]) {
    static const uint32_t five[] = { 5 };
    for (uint32_t i = 0; i < GDN_DECODE_N_PTR; i++) ptr[i] = AT(i + 1);
    ptr[GDN_DECODE_P_STATE_OUT] = 0;
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_DECODE_N_PTR, 1, 0, (void *)0x77, ptr, five };
    return b->id->ops->launch(b->plan, &args);
}

static void good_values_and_every_argument(void **state) {
    (void)state;
    bench b;
    uint64_t ptr[GDN_DECODE_N_PTR];
    open_target(&b);
    assert_int_equal(plan(&b), GDN_OK);
    b.m.capturing = 1; /* the check and the decode, one after the other */
    assert_int_equal(launch(&b, ptr), GDN_OK);
    assert_int_equal(b.m.launches, 2);
    assert_int_equal(memory.reads, 0);
    b.m.capturing = 0;
    assert_int_equal(launch(&b, ptr), GDN_OK);
    assert_int_equal(b.m.launches, 4);
    assert_string_equal(b.m.history[2].function->entry, "gdn_check_values");
    assert_string_not_equal(b.m.last.function->entry, "gdn_check_values");
    assert_ptr_equal(b.m.history[2].stream, (void *)0x77);
    memory.found.kind = GDN_BAD_ID; /* so that the check is the last launch */
    b.m.params = 29;
    assert_int_equal(launch(&b, ptr), GDN_E_CHECKED);
    const uint64_t in = ptr[GDN_DECODE_P_IN_SLOTS], out = ptr[GDN_DECODE_P_OUT_SLOTS];
    const struct {
        uint64_t value;
        uint32_t bytes;
    } want[29] = { { ADDRESS, 8 },
                   { 0, 8 },
                   { 0, 4 },
                   { 5, 4 },
                   { 1, 4 },
                   { 5, 8 },
                   { 1, 8 },
                   { in, 8 },
                   { out, 8 },
                   { 26, 8 },
                   { 26, 8 },
                   { 0, 8 },
                   { 0, 8 },
                   { GDN_CHECK_SAME_SLOT | GDN_CHECK_READ_SLOT, 4 },
                   { ptr[GDN_DECODE_P_FRESH], 8 },
                   { ptr[GDN_DECODE_P_GATE], 8 },
                   { 6, 4 },
                   { 12, 4 },
                   { 1, 4 },
                   { 0, 8 },
                   { 0, 4 },
                   { 0, 4 },
                   { 0, 8 },
                   { 0, 4 },
                   { 0, 8 },
                   { 0, 8 },
                   { 0, 8 },
                   { 0, 4 },
                   { 0, 4 } };
    for (uint32_t i = 0; i < 29; i++) {
        const uint64_t got = want[i].bytes == 8 ? b.m.last.param[i] : (uint32_t)b.m.last.param[i];
        if (got != want[i].value) fail_msg("argument %u is 0x%llx", i, (unsigned long long)got);
    }
    assert_int_equal(b.m.last.dims.grid[0], GDN_CHECK_BLOCKS);
    assert_int_equal(b.m.last.dims.block[0], GDN_CHECK_BLOCK);
    shut(&b);
}

static void a_bad_value_stops_the_launch(void **state) {
    (void)state;
    bench b;
    uint64_t ptr[GDN_DECODE_N_PTR];
    open_target(&b);
    assert_int_equal(plan(&b), GDN_OK);
    memory.found = (gdn_check_report) { .kind = GDN_BAD_SLOT_OUT, .a = 3, .value = 6947, .bound = 26 };
    assert_int_equal(launch(&b, ptr), GDN_E_CHECKED);
    assert_int_equal(b.m.launches, 1);
    assert_true(mock_said(&b.m, "decode: out_tab[3] is slot 6947, but the pool has 26"));
    assert_int_equal(launch(&b, ptr), GDN_OK); /* told once */
    /* What a replay of a graph has found is told by the next launch, which starts nothing. */
    memory.report = (gdn_check_report) { .kind = GDN_BAD_SAME_SLOT, .a = 1, .b = 4, .value = 7 };
    const uint32_t before = b.m.launches;
    b.m.capturing = 1;
    assert_int_equal(launch(&b, ptr), GDN_OK);
    assert_int_equal(b.m.launches, before + 2);
    b.m.capturing = 0;
    assert_int_equal(launch(&b, ptr), GDN_E_CHECKED);
    assert_int_equal(b.m.launches, before + 2);
    assert_true(mock_said(&b.m, "decode: sequences 1 and 4 write the same slot, 7"));
    shut(&b);
}

static void each_call_fails_in_turn(void **state) {
    (void)state;
    uint32_t failed = 0, calls = 1;
    for (uint32_t at = 0; at < calls; at++) {
        bench b;
        uint64_t ptr[GDN_DECODE_N_PTR];
        open_target(&b);
        memory.fail_at = at;
        text[0] = 0;
        gdn_status st = plan(&b);
        if (st) assert_true(b.plan == NULL && strstr(text, "GDN_PLAN_CHECKED"));
        if (!st) st = launch(&b, ptr);
        if (at == 0) {
            assert_int_equal(st, GDN_OK);
            calls = memory.calls + 1;
        } else {
            assert_true(st == GDN_E_NOMEM || st == GDN_E_DRIVER);
            failed++;
        }
        shut(&b);
    }
    assert_int_equal(failed, 5); /* alloc, fill, sync, and two reads of the launch */
}

static void needs_memory_and_its_module(void **state) {
    (void)state;
    bench b;
    open_target(&b);
    b.m.table.mem_alloc = NULL;
    assert_int_equal(plan(&b), GDN_ABSENT);
    assert_non_null(strstr(text, "the backend has no memory"));
    shut(&b);
    open_target(&b);
    b.m.broken_module = "gdn_check.cu";
    assert_int_equal(plan(&b), GDN_ABSENT);
    assert_non_null(strstr(text, "gdn_check_values did not load"));
    shut(&b);
}

/* Operations without anything to look at take the flag. */
static void nothing_to_look_at(void **state) {
    (void)state;
    bench b;
    gdn_norm_shape s = mock_norm();
    s.base.flags = GDN_PLAN_CHECKED;
    open_target(&b);
    assert_int_equal(b.id->ops->init(&b.m.host, 0, &b.ctx, &err), GDN_OK);
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &b.plan, &err), GDN_OK);
    assert_int_equal(memory.calls, 0);
    shut(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_values_and_every_argument),
        cmocka_unit_test(a_bad_value_stops_the_launch),
        cmocka_unit_test(each_call_fails_in_turn),
        cmocka_unit_test(needs_memory_and_its_module),
        cmocka_unit_test(nothing_to_look_at),
    };
    return cmocka_run_group_tests_name("GDN_PLAN_CHECKED on a GPU", tests, NULL, NULL);
}
