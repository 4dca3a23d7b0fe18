/* test_plan_w4a4.c - the pure planner of W4A4 projections: the worked rows, floors and edges. */
#include "plan_common.h"
#include "plan_w4a4.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

typedef struct row {
    uint32_t m, n, k, nt, ps, sms, entry, rows, grid, sst, smem;
} row;

static void check(const row *r) {
    const gdn__w4a4_route got = gdn__w4a4_mx_plan(r->m, r->n, r->k, r->nt, r->ps != 0, r->sms);
    if (got.entry != r->entry || got.rows != r->rows || got.grid != r->grid || got.sst != r->sst || got.smem != r->smem || got.block != 256)
        fail_msg("m=%u %ux%u nt=%u ps=%u on %u: entry %u rows %u grid %u sst %u smem %u, expected %u %u %u %u %u", r->m, r->n, r->k, r->nt,
                 r->ps, r->sms, got.entry, got.rows, got.grid, got.sst, got.smem, r->entry, r->rows, r->grid, r->sst, r->smem);
}

#define PICK_(ID) GDN__W4A4_##ID
static void worked_rows(void **state) {
    (void)state;
    static const row rows[] = {
        /* 17408 x 5120, on GB10 and on an H200 */
        { 16, 17408, 5120, 4, 1, 48, PICK_(MX16_PS), 16, 48, 5, 54272 },
        { 16, 17408, 5120, 4, 1, 132, PICK_(MX16_PS), 16, 132, 5, 54272 },
        { 32, 17408, 5120, 4, 1, 48, PICK_(MX32_PS), 16, 48, 5, 100352 },
        { 32, 17408, 5120, 4, 1, 132, PICK_(MX32_PS), 16, 132, 5, 100352 },
        { 64, 17408, 5120, 4, 1, 48, PICK_(MX64_NT2), 32, 544, 0, 0 },
        { 64, 17408, 5120, 4, 1, 132, PICK_(MX64_NT2), 32, 544, 0, 0 },
        /* 10240 x 5120: 640 tiles are enough for 48 */
        { 16, 10240, 5120, 4, 1, 48, PICK_(MX16_PS), 16, 48, 5, 54272 },
        { 32, 10240, 5120, 4, 1, 48, PICK_(MX32_PS), 16, 48, 5, 100352 },
        { 16, 10240, 5120, 4, 1, 132, PICK_(MX16_NT2), 32, 320, 0, 0 },
        /* 5120 x 17408: 17 chunks a warp do not fit */
        { 16, 5120, 17408, 4, 1, 48, PICK_(MX16_NT2), 32, 160, 0, 0 },
        { 16, 5120, 17408, 4, 1, 1, PICK_(MX16_NT2), 32, 160, 0, 0 },
        { 32, 5120, 17408, 4, 1, 1, PICK_(MX32_NT4), 64, 80, 0, 0 },
        /* the first persistent N */
        { 16, 6128, 5120, 4, 1, 48, PICK_(MX16_NT2), 32, 192, 0, 0 },
        { 16, 6129, 5120, 4, 1, 48, PICK_(MX16_PS), 16, 48, 5, 54272 },
        { 32, 6128, 5120, 4, 1, 48, PICK_(MX32_NT4), 64, 96, 0, 0 },
        { 32, 6129, 5120, 4, 1, 48, PICK_(MX32_PS), 16, 48, 5, 100352 },
        { 16, 16880, 5120, 4, 1, 132, PICK_(MX16_NT2), 32, 528, 0, 0 },
        { 16, 16881, 5120, 4, 1, 132, PICK_(MX16_PS), 16, 132, 5, 54272 },
        /* the largest k that fits */
        { 16, 17408, 10240, 4, 1, 48, PICK_(MX16_PS), 16, 48, 10, 100352 },
        { 16, 17408, 10240 + 128, 4, 1, 48, PICK_(MX16_NT2), 32, 544, 0, 0 },
        { 32, 17408, 5120 + 128, 4, 1, 48, PICK_(MX32_NT4), 64, 272, 0, 0 },
        /* rows that no _ps takes, levers off, multiprocessors unknown */
        { 8, 17408, 5120, 4, 1, 48, PICK_(MX8), 16, 1088, 0, 0 },
        { 9, 17408, 5120, 4, 1, 48, PICK_(MX16_PS), 16, 48, 5, 54272 },
        { 17, 17408, 5120, 4, 1, 48, PICK_(MX32_PS), 16, 48, 5, 100352 },
        { 33, 17408, 5120, 4, 1, 48, PICK_(MX64_NT2), 32, 544, 0, 0 },
        { 16, 17408, 5120, 4, 0, 48, PICK_(MX16_NT2), 32, 544, 0, 0 },
        { 16, 17408, 5120, 1, 1, 48, PICK_(MX16), 16, 1088, 0, 0 },
        { 32, 17408, 5120, 1, 1, 48, PICK_(MX32), 16, 1088, 0, 0 },
        { 64, 17408, 5120, 1, 1, 48, PICK_(MX64), 16, 1088, 0, 0 },
        { 16, 17408, 5120, 4, 1, 0, PICK_(MX16_NT2), 32, 544, 0, 0 },
        { 0, 17408, 5120, 4, 1, 48, PICK_(MX8), 16, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&rows[i]);
}

/* Every m: the tile entry of its column blocks, with and without tiles that share. */
static void every_m(void **state) {
    (void)state;
    for (uint32_t m = 0; m <= 64; m++) {
        const gdn__w4a4_route one = gdn__w4a4_mx_pick(m, 1000, 1), many = gdn__w4a4_mx_pick(m, 1000, 4);
        const uint32_t a = m <= 8 ? PICK_(MX8) : m <= 16 ? PICK_(MX16) : m <= 32 ? PICK_(MX32) : PICK_(MX64);
        const uint32_t b = m <= 8 ? PICK_(MX8) : m <= 16 ? PICK_(MX16_NT2) : m <= 32 ? PICK_(MX32_NT4) : PICK_(MX64_NT2);
        const uint32_t rows = m <= 8 ? 16 : m <= 16 ? 32 : m <= 32 ? 64 : 32;
        assert_int_equal(one.entry, a);
        assert_int_equal(one.rows, 16);
        assert_int_equal(one.grid, 63);
        assert_int_equal(many.entry, b);
        assert_int_equal(many.rows, rows);
        assert_int_equal(many.grid, (1000 + rows - 1) / rows);
    }
}

static void pieces(void **state) {
    (void)state;
    assert_int_equal(gdn__w4a4_ps_column_blocks(16), 2);
    assert_int_equal(gdn__w4a4_ps_column_blocks(17), 4);
    assert_int_equal(gdn__w4a4_ps_stripe_chunks(5120), 5);
    assert_int_equal(gdn__w4a4_ps_stripe_chunks(5119), 5); /* 39 chunks */
    assert_int_equal(gdn__w4a4_ps_stripe_chunks(17408), 17);
    assert_int_equal(gdn__w4a4_ps_stripe_chunks(127), 0);
    assert_int_equal(gdn__w4a4_ps_smem_bytes(2, 0), 8192);
    assert_int_equal(gdn__w4a4_ps_smem_bytes(2, 5), 54272);
    assert_int_equal(gdn__w4a4_ps_smem_bytes(4, 5), 100352);
    assert_int_equal(gdn__w4a4_ps_smem_bytes(2, 10), GDN__W4A4_PS_SMEM_MOST);
    assert_int_equal(gdn__w4a4_ps_smem_bytes(4, 5), GDN__W4A4_PS_SMEM_MOST);
    assert_true(GDN__W4A4_PS_SMEM_MOST + 1024 <= GDN__W4A4_PS_SMEM_MAX);
    assert_true(gdn__w4a4_ps_smem_bytes(2, 10) <= GDN__W4A4_PS_SMEM_MAX && gdn__w4a4_ps_smem_bytes(2, 11) > GDN__W4A4_PS_SMEM_MAX);
    assert_true(gdn__w4a4_ps_smem_bytes(4, 5) <= GDN__W4A4_PS_SMEM_MAX && gdn__w4a4_ps_smem_bytes(4, 6) > GDN__W4A4_PS_SMEM_MAX);
}

/* Nothing wraps: products above 32 bits refuse persistence instead of passing for small ones. */
static void wide_products(void **state) {
    (void)state;
    assert_int_equal(gdn__w4a4_ps_smem_bytes(4, UINT32_MAX), 8ull * UINT32_MAX * 4 * 576 + 8192);
    const row rows[] = {
        { 16, UINT32_MAX, 5120, 4, 1, 48, PICK_(MX16_PS), 16, 48, 5, 54272 },
        { 16, 17408, 5120, 4, 1, UINT32_MAX / 8 + 2, PICK_(MX16_NT2), 32, 544, 0, 0 }, /* 8 * sms is 8 in 32 bits */
        { 8, UINT32_MAX, 5120, 4, 1, 48, PICK_(MX8), 16, 1u << 28, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&rows[i]);
}

#define WIDE_(tokens, groups) 1024 * (tokens) + 128 + 27648 * (groups)
/* The form without FP4 tensor cores: entry by m and k, never more blocks than there is work. */
static void f16_form(void **state) {
    (void)state;
    static const struct {
        uint32_t m, n, k, sms, entry, grid, block, sst, smem;
        uint64_t workspace;
    } rows[] = {
        { 1, 17408, 5120, 132, PICK_(F16_8), 132, 768, 5, 5 * 16384 + 24576, 0 },
        { 8, 17408, 12288, 132, PICK_(F16_8), 132, 768, 12, 12 * 16384 + 24576, 0 }, /* all of k fits */
        { 8, 17408, 12416, 132, PICK_(F16_16_WIDE), 132, 512, 0, WIDE_(16, 3), 4096 + 132ull * 3 * 4096 },
        { 9, 17408, 5120, 132, PICK_(F16_16), 132, 768, 5, 5 * 32768 + 24576, 0 },
        { 16, 17408, 6144, 132, PICK_(F16_16), 132, 768, 6, 6 * 32768 + 24576, 0 },
        { 16, 17408, 10240, 132, PICK_(F16_16_WIDE), 132, 512, 0, WIDE_(16, 3), 4096 + 132ull * 3 * 4096 },
        { 17, 17408, 5120, 132, PICK_(F16_32), 132, 512, 0, WIDE_(32, 3), 4096 + 132ull * 3 * 8192 },
        { 32, 34816, 5120, 0, PICK_(F16_32), 132, 640, 0, WIDE_(32, 4), 4096 + 132ull * 4 * 8192 },   /* four tiles for each */
        { 32, 33728, 5120, 132, PICK_(F16_32), 132, 512, 0, WIDE_(32, 3), 4096 + 132ull * 3 * 8192 }, /* not quite */
        { 33, 17408, 5120, 132, PICK_(F16_64), 132, 640, 0, WIDE_(64, 3), 4096 + 132ull * 3 * 16384 },
        { 64, 34816, 5120, 132, PICK_(F16_64), 132, 640, 0, WIDE_(64, 3), 4096 + 132ull * 3 * 16384 },
        { 64, 1024, 640, 132, PICK_(F16_64), 18, 640, 0, WIDE_(64, 3), 4096 + 18ull * 3 * 16384 }, /* 6 row tiles of three pairs */
        { 20, 64, 128, 132, PICK_(F16_32), 1, 256, 0, WIDE_(32, 1), 4096 + 8192 },
        { 20, 65, 384, 132, PICK_(F16_32), 2, 384, 0, WIDE_(32, 2), 4096 + 2 * 2 * 8192 },
        { 64, 17408, 5120, 1000, PICK_(F16_64), 341, 640, 0, WIDE_(64, 3), 4096 + 341ull * 3 * 16384 }, /* a flag for each */
        { 64, UINT32_MAX, 128, 132, PICK_(F16_64), 132, 640, 0, WIDE_(64, 3), 4096 + 132ull * 3 * 16384 },
        { 8, 100, 128, 132, PICK_(F16_8), 3, 768, 1, 16384 + 24576, 0 }, /* 7 tiles */
        { 0, 17408, 5120, 132, PICK_(F16_8), 0, 768, 5, 5 * 16384 + 24576, 0 },
        { 8, UINT32_MAX, 32768, 132, PICK_(F16_16_WIDE), 132, 640, 0, WIDE_(16, 4), 4096 + 132ull * 4 * 4096 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gdn__w4a4_route got = gdn__w4a4_f16_plan(rows[i].m, rows[i].n, rows[i].k, rows[i].sms);
        if (got.entry != rows[i].entry || got.grid != rows[i].grid || got.block != rows[i].block || got.sst != rows[i].sst ||
            got.smem != rows[i].smem || got.workspace != rows[i].workspace)
            fail_msg("row %zu: entry %u grid %u block %u sst %u smem %u workspace %llu", i, got.entry, got.grid, got.block, got.sst,
                     got.smem, (unsigned long long)got.workspace);
        assert_true(got.smem <= GDN__W4A4_F16_SMEM_MAX);
    }
}

/* The route's refusals, by name and in their order; k % 128 above all: no chunk's tail is dropped in silence. */
static void refusals(void **state) {
    (void)state;
    static const struct {
        uint32_t m, n, k;
        const char *text;
    } rows[] = {
        { 65, 0, 0, "m is above 64" },
        { 64, 0, 0, "n is 0" },
        { 64, 16, 0, "k is 0" },
        { 64, 16, 5120 + 64, "k is not a multiple of 128 (whole k128 chunks are read; a tail would be dropped)" },
        { 64, 16, 64, "k is not a multiple of 128 (whole k128 chunks are read; a tail would be dropped)" },
        { 64, 16, 32768 + 64, "k is not a multiple of 128 (whole k128 chunks are read; a tail would be dropped)" },
        { 64, 16, 32768 + 128, "k is above 32768" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(gdn__w4a4_guard_text(gdn__w4a4_pick(rows[i].m, rows[i].n, rows[i].k)), rows[i].text);
    assert_int_equal(gdn__w4a4_pick(64, 1, 32768), GDN_W4A4_TAKEN);
    for (uint32_t k = 128; k <= 1024; k += 128)
        for (uint32_t tail = 1; tail < 128; tail++) assert_int_equal(gdn__w4a4_pick(1, 16, k + tail), GDN_W4A4_K_TAIL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_rows),   cmocka_unit_test(every_m),  cmocka_unit_test(pieces),
        cmocka_unit_test(wide_products), cmocka_unit_test(f16_form), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("plan_w4a4", tests, NULL, NULL) != 0;
}
