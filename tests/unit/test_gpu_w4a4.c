/* test_gpu_w4a4.c - FP4 projections of the gb10 and hopper plugins on the mocked backend: the planner's entry runs, every argument in
 * its place, shared memory, workspace, lines, refusals, and what is absent where. */
#include "gdn_op_w4a4.h"
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    char text[512];
    gdn_text err;
} bench;

static void prepare(bench *b, const char *target, uint32_t cc, uint32_t sms) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, cc, sms);
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
}
static void init(bench *b) {
    const gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err);
    if (st) fail_msg("init: %d %s", st, b->text);
}
static void shut(bench *b) {
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}

static gdn_w4a4_shape gemv(uint32_t N, uint32_t K) {
    return (gdn_w4a4_shape) { .base = HEAD(gdn_w4a4_shape, GDN_OP_W4A4_GEMV), .N = N, .K = K, .max_m = 64 };
}
static gdn_w4a4_shape quant(uint32_t K, uint32_t stride) {
    return (gdn_w4a4_shape) { .base = HEAD(gdn_w4a4_shape, GDN_OP_W4A4_QUANT), .K = K, .max_m = 64, .a_stride = stride };
}

enum { SCALE2 = 0x3d800000 };
/* Plans and launches M rows with pointers AT(i + 1); the workspace as given. */
static gdn_status go(bench *b, const gdn_w4a4_shape *s, uint32_t M, uint64_t workspace, uint64_t *needs) {
    gdn_plan *plan = NULL;
    const bool is_gemv = s->base.op == GDN_OP_W4A4_GEMV;
    uint64_t ptr[GDN_W4A4_GEMV_N_PTR];
    for (uint32_t i = 0; i < GDN_W4A4_GEMV_N_PTR; i++) ptr[i] = AT(i + 1);
    ptr[GDN_W4A4_GEMV_P_WORKSPACE] = workspace;
    const uint32_t u_gemv[] = { SCALE2, M }, u_quant[] = { M };
    gdn_status st = b->id->ops->plan(b->ctx, &s->base, NULL, &plan, &b->err);
    if (st) return st;
    const gdn_launch_args args = { (uint32_t)sizeof args,
                                   is_gemv ? (uint32_t)GDN_W4A4_GEMV_N_PTR : (uint32_t)GDN_W4A4_QUANT_N_PTR,
                                   is_gemv ? 2 : 1,
                                   0,
                                   (void *)0x77,
                                   ptr,
                                   is_gemv ? u_gemv : u_quant };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t loads = b->m.loads, before = b->m.launches;
    st = b->id->ops->launch(plan, &args);
    assert_int_equal(b->m.loads, loads);
    if (!st && M) {
        assert_int_equal(b->m.launches, before + 1);
        assert_int_equal(b->id->ops->explain(plan, args.n_u32, args.u32, &r), GDN_OK);
        assert_string_equal(r.entry, b->m.last.function->entry); /* what explain says is what ran */
        assert_int_equal(r.grid[0], b->m.last.dims.grid[0]);
        assert_int_equal(r.smem_bytes, b->m.last.dims.smem_bytes);
    } else {
        assert_int_equal(b->m.launches, before);
    }
    if (!st && needs) *needs = r.workspace_bytes;
    b->id->ops->destroy(plan);
    return st;
}

static void ran(const bench *b, const char *entry, uint32_t grid, uint32_t smem) {
    assert_string_equal(b->m.last.function->entry, entry);
    assert_int_equal(b->m.last.dims.grid[0], grid);
    assert_int_equal(b->m.last.dims.grid[1], 1);
    assert_int_equal(b->m.last.dims.block[0], 256);
    assert_int_equal(b->m.last.dims.smem_bytes, smem);
}

static void params_are(const bench *b, const uint64_t *want, const char *widths) {
    for (uint32_t i = 0; widths[i]; i++) {
        const uint64_t got = widths[i] == '8' ? b->m.last.param[i] : (uint32_t)b->m.last.param[i];
        if (got != want[i])
            fail_msg("%s: argument %u is 0x%llx, expected 0x%llx", b->m.last.function->entry, i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

static void the_quantiser(void **state) {
    (void)state;
    static const struct {
        const char *target;
        uint32_t cc;
    } on[] = { { "gb10", 121 }, { "gb10", 90 }, { "hopper", 90 } }; /* portable: everywhere */
    for (uint32_t i = 0; i < 3; i++) {
        bench b;
        prepare(&b, on[i].target, on[i].cc, 48);
        init(&b);
        const gdn_w4a4_shape dense = quant(5120, 0), apart = quant(5120, 5123);
        b.m.params = 5;
        assert_int_equal(go(&b, &dense, 7, 0, NULL), GDN_OK);
        ran(&b, "w4a4_quant_rows", 7, 0);
        params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 5120 }, "88884");
        b.m.params = 6;
        assert_int_equal(go(&b, &apart, 64, 0, NULL), GDN_OK);
        ran(&b, "w4a4_quant_rows_ext", 64, 0);
        params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 5120, 5123 }, "888844");
        shut(&b);
    }
}

static void tiles_and_persistent(void **state) {
    (void)state;
    static const struct {
        uint32_t M, N, K;
        const char *nt, *ps, *entry;
        uint32_t grid, smem, needs;
    } rows[] = {
        { 8, 17408, 5120, "4", "1", "w4a4_gemv_mx8", 1088, 0, 8 },
        { 16, 17408, 5120, "4", "1", "w4a4_gemv_mx16_ps", 48, 54272, 8 },
        { 32, 17408, 5120, "4", "1", "w4a4_gemv_mx32_ps", 48, 100352, 8 },
        { 33, 17408, 5120, "4", "1", "w4a4_gemv_mx64_nt2", 544, 0, 8 },
        { 16, 17408, 10240, "4", "1", "w4a4_gemv_mx16_ps", 48, 100352, 8 },
        { 32, 17408, 10240, "4", "1", "w4a4_gemv_mx32_nt4", 272, 0, 8 },
        { 16, 5120, 17408, "4", "1", "w4a4_gemv_mx16_nt2", 160, 0, 0 },
        { 16, 17408, 5120, "4", "0", "w4a4_gemv_mx16_nt2", 544, 0, 0 },
        { 32, 17408, 5120, "4", "0", "w4a4_gemv_mx32_nt4", 272, 0, 0 },
        { 16, 17408, 5120, "1", "1", "w4a4_gemv_mx16", 1088, 0, 0 },
        { 32, 17408, 5120, "1", "1", "w4a4_gemv_mx32", 1088, 0, 0 },
        { 64, 17408, 5120, "1", "1", "w4a4_gemv_mx64", 1088, 0, 0 },
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bench b;
        uint64_t needs = 0;
        const gdn_w4a4_shape s = gemv(rows[i].N, rows[i].K);
        const bool ps = rows[i].smem > 0;
        prepare(&b, "gb10", 121, 48);
        mock_lever(&b.m, "w4a4_mx_nt", rows[i].nt);
        mock_lever(&b.m, "w4a4_mx_ps", rows[i].ps);
        init(&b);
        b.m.params = ps ? 12 : 10;
        const gdn_status st = go(&b, &s, rows[i].M, AT(7), &needs);
        if (st) fail_msg("row %u: %d %s", i, st, b.m.lines ? b.m.line[b.m.lines - 1] : b.text);
        ran(&b, rows[i].entry, rows[i].grid, rows[i].smem);
        assert_int_equal(needs, rows[i].needs);
        params_are(&b,
                   (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), SCALE2, AT(6), rows[i].M, rows[i].N, rows[i].K,
                                        (rows[i].K / 128 + 7) / 8, AT(7) },
                   ps ? "888884844448" : "8888848444");
        if (ps) assert_int_equal(b.m.last.function->smem, 100352); /* one bound for every plan */
        char line[200];
        snprintf(line, sizeof line, "3 route: W4A4: %s%s M=%u grid=%u block=256 smem=%uB", rows[i].entry,
                 rows[i].M <= 8 ? ""
                 : ps           ? " (METRALE_W4A4_MX_PS)"
                                : " (METRALE_W4A4_MX_NT)",
                 rows[i].M, rows[i].grid, rows[i].smem);
        assert_int_equal(go(&b, &s, rows[i].M, AT(7), NULL), GDN_OK); /* the second time in silence */
        assert_int_equal(b.m.lines, 1);
        assert_string_equal(b.m.line[0], line);
        shut(&b);
    }
}

/* Two plans of one context: the smaller one, made later, must not take shared memory from the larger. */
static void plans_share_a_function(void **state) {
    (void)state;
    bench b;
    prepare(&b, "gb10", 121, 48);
    init(&b);
    gdn_plan *large = NULL, *small = NULL;
    const gdn_w4a4_shape l = gemv(17408, 10240), s = gemv(17408, 5120);
    assert_int_equal(b.id->ops->plan(b.ctx, &l.base, NULL, &large, &b.err), GDN_OK);
    assert_int_equal(b.id->ops->plan(b.ctx, &s.base, NULL, &small, &b.err), GDN_OK);
    uint64_t ptr[GDN_W4A4_GEMV_N_PTR];
    for (uint32_t i = 0; i < GDN_W4A4_GEMV_N_PTR; i++) ptr[i] = AT(i + 1);
    const uint32_t u32[] = { SCALE2, 16 };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_W4A4_GEMV_N_PTR, 2, 0, NULL, ptr, u32 };
    assert_int_equal(b.id->ops->launch(large, &args), GDN_OK);
    assert_int_equal(b.id->ops->launch(small, &args), GDN_OK);
    b.id->ops->destroy(large);
    b.id->ops->destroy(small);
    shut(&b);
}

static void the_workspace(void **state) {
    (void)state;
    bench b;
    prepare(&b, "gb10", 121, 48);
    init(&b);
    const gdn_w4a4_shape s = gemv(17408, 5120);
    assert_int_equal(go(&b, &s, 16, 0, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "w4a4: pointer 'workspace' is NULL, w4a4_gemv_mx16_ps needs one (the plan says how many bytes)"));
    assert_int_equal(go(&b, &s, 16, AT(7) + 2, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "w4a4: pointer 'workspace' is not 4-byte aligned"));
    assert_int_equal(go(&b, &s, 64, 0, NULL), GDN_OK); /* a tile entry does not look at it */
    assert_int_equal(go(&b, &s, 0, 0, NULL), GDN_OK);  /* no rows: done, nothing launched */
    shut(&b);
}

static void a_broken_persistent_module(void **state) {
    (void)state;
    bench b;
    prepare(&b, "gb10", 121, 48);
    b.m.broken_module = "w4a4_gemv_mx_ps.cu";
    init(&b);
    const gdn_w4a4_shape s = gemv(17408, 5120);
    uint64_t needs = 1;
    assert_int_equal(go(&b, &s, 16, 0, &needs), GDN_OK);
    ran(&b, "w4a4_gemv_mx16_nt2", 544, 0);
    assert_int_equal(needs, 0);
    shut(&b);
    prepare(&b, "gb10", 121, 48); /* B130: a device without that much shared memory */
    b.m.device[0].smem_optin = 64 * 1024;
    init(&b);
    assert_int_equal(go(&b, &s, 16, 0, &needs), GDN_OK);
    ran(&b, "w4a4_gemv_mx16_nt2", 544, 0);
    assert_true(mock_said(&b.m, "w4a4_gemv_mx16_ps needs 100352 bytes of shared memory a block, the device has 65536"));
    shut(&b);
}

/* No FP4 tensor cores on 9.0: absent under either target, never another kernel under mx's name. */
static void absent_without_fp4_tensor_cores(void **state) {
    (void)state;
    bench b;
    const gdn_w4a4_shape s = gemv(17408, 5120);
    prepare(&b, "gb10", 90, 132);
    init(&b);
    assert_int_equal(go(&b, &s, 16, AT(7), NULL), GDN_ABSENT);
    assert_false(mock_said(&b.m, "w4a4_gemv_mx"));
    /* The route of the open device says what the plan does; the dry one speaks of the target's own. */
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(b.id->ops->route_on(b.ctx, 0, &s.base, 0, NULL, &r, &b.err), GDN_ABSENT);
    assert_null(r.entry);
    assert_non_null(strstr(b.text, "w4a4: target gb10 has it for sm_121f only, this device is sm_90"));
    assert_int_equal(b.id->ops->route(&b.m.host, 0, &s.base, 0, NULL, &r, &b.err), GDN_OK);
    assert_string_equal(r.entry, "w4a4_gemv_mx64_nt2");
    assert_int_equal(b.id->ops->route_on(NULL, 0, &s.base, 0, NULL, &r, &b.err), GDN_E_ARG);
    shut(&b);
}

/* On hopper: exact f16 products, under names of their own; no lever. */
static void f16_on_hopper(void **state) {
    (void)state;
    static const struct {
        uint32_t M;
        const char *entry;
        uint32_t grid, block, sst, smem;
    } rows[] = {
        { 8, "w4a4_gemv_f16_8", 132, 768, 5, 106496 },
        { 16, "w4a4_gemv_f16_16", 132, 768, 5, 188416 },
        { 32, "w4a4_gemv_f16_32", 132, 512, 0, 115840 },
        { 64, "w4a4_gemv_f16_64", 132, 640, 0, 148608 },
    };
    enum { NEEDS = 4096 + 132 * 3 * 16384 }; /* of a plan for 64 rows */
    bench b;
    prepare(&b, "hopper", 90, 132);
    init(&b);
    const gdn_w4a4_shape s = gemv(17408, 5120);
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t needs = 1;
        b.m.params = 11;
        const gdn_status st = go(&b, &s, rows[i].M, rows[i].sst ? 0 : AT(7), &needs); /* staged entries do not look at it */
        if (st) fail_msg("row %u: %d %s", i, st, b.m.lines ? b.m.line[b.m.lines - 1] : b.text);
        assert_int_equal(needs, NEEDS);
        assert_string_equal(b.m.last.function->entry, rows[i].entry);
        assert_int_equal(b.m.last.dims.grid[0], rows[i].grid);
        assert_int_equal(b.m.last.dims.block[0], rows[i].block);
        assert_int_equal(b.m.last.dims.smem_bytes, rows[i].smem);
        params_are(&b,
                   (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), SCALE2, AT(6), rows[i].M, 17408, 5120,
                                        rows[i].sst ? rows[i].sst : AT(7) },
                   rows[i].sst ? "88888484444" : "88888484448");
        char line[200];
        snprintf(line, sizeof line, "3 route: W4A4: %s (no FP4 tensor cores: exact f16 products) M=%u grid=%u block=%u smem=%uB",
                 rows[i].entry, rows[i].M, rows[i].grid, rows[i].block, rows[i].smem);
        assert_int_equal(go(&b, &s, rows[i].M, AT(7), NULL), GDN_OK);
        assert_int_equal(b.m.lines, i + 1);
        assert_string_equal(b.m.line[i], line);
    }
    assert_false(mock_said(&b.m, "gemv_mx"));
    assert_int_equal(go(&b, &s, 17, 0, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "w4a4: pointer 'workspace' is NULL, w4a4_gemv_f16_32 needs one (the plan says how many bytes)"));
    assert_int_equal(go(&b, &s, 64, AT(7) + 8, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "w4a4: pointer 'workspace' is not 16-byte aligned"));
    uint64_t needs = 1;
    gdn_w4a4_shape few = s, deep = gemv(5120, 17408);
    few.max_m = 16;
    assert_int_equal(go(&b, &few, 16, 0, &needs), GDN_OK);
    assert_int_equal(needs, 0);
    deep.max_m = 3;
    assert_int_equal(go(&b, &deep, 3, AT(7), &needs), GDN_OK); /* k too long to be staged */
    assert_string_equal(b.m.last.function->entry, "w4a4_gemv_f16_16_wide");
    assert_int_equal(needs, 4096 + 132 * 3 * 4096);
    shut(&b);
    prepare(&b, "hopper", 90, 132);
    b.m.broken_module = "w4a4_gemv_f16.cu";
    init(&b);
    assert_int_equal(go(&b, &s, 8, 0, NULL), GDN_ABSENT);
    shut(&b);
    prepare(&b, "hopper", 90, 132);
    b.m.broken_module = "w4a4_gemv_f16_wide.cu";
    init(&b);
    assert_int_equal(go(&b, &s, 64, AT(7), NULL), GDN_ABSENT);
    shut(&b);
}

static void refusals_by_name(void **state) {
    (void)state;
    static const struct {
        uint32_t m, n, k;
        const char *text;
    } rows[] = {
        { 65, 0, 0, "w4a4: refused: m is above 64" },
        { 64, 0, 0, "w4a4: refused: n is 0" },
        { 64, 16, 0, "w4a4: refused: k is 0" },
        { 64, 16, 5184, "w4a4: refused: k is not a multiple of 128 (whole k128 chunks are read; a tail would be dropped)" },
        { 64, 16, 32896, "w4a4: refused: k is above 32768" },
    };
    bench b;
    prepare(&b, "gb10", 121, 48);
    init(&b);
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gdn_w4a4_shape s = gemv(rows[i].n, rows[i].k);
        s.max_m = rows[i].m;
        assert_int_equal(go(&b, &s, 1, AT(7), NULL), GDN_REFUSED);
        assert_string_equal(b.text, rows[i].text);
        gdn_counter c[256];
        uint32_t n = 0, found = 0;
        assert_int_equal(b.id->ops->counters(b.ctx, c, 256, &n), GDN_OK);
        for (uint32_t k = 0; k < n && k < 256; k++)
            found += c[k].refused && c[k].op == GDN_OP_W4A4_GEMV && strstr(rows[i].text, c[k].name) && c[k].count == 1;
        assert_int_equal(found, 1);
    }
    gdn_w4a4_shape q = quant(192, 0);
    assert_int_equal(go(&b, &q, 1, 0, NULL), GDN_REFUSED);
    assert_non_null(strstr(b.text, "w4a4_quant: refused: k is not a multiple of 128"));
    shut(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_quantiser), cmocka_unit_test(tiles_and_persistent),       cmocka_unit_test(plans_share_a_function),
        cmocka_unit_test(the_workspace), cmocka_unit_test(a_broken_persistent_module), cmocka_unit_test(absent_without_fp4_tensor_cores),
        cmocka_unit_test(f16_on_hopper), cmocka_unit_test(refusals_by_name),
    };
    return cmocka_run_group_tests_name("gpu_w4a4", tests, NULL, NULL) != 0;
}
