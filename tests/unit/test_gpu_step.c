/* test_gpu_step.c - decode, verify, write-on-accept and fold of the hopper and gb10 plugins on the mocked backend: entry, grid, and every
 * argument in its place, for the forms by sequence and on bf16 states. */
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

enum { WORDS = GDN_VERIFY_BY_SEQUENCE };

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    char text[512];
    gdn_text err;
} bench;

static void up(bench *b, const char *target) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, strcmp(target, "hopper") == 0 ? 90 : 121, 132);
    mock_lever(&b->m, "gdn_woa", "1");
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
    if (b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err)) fail_msg("init: %s", b->text);
}
static void down(bench *b) {
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}

static gdn_rule_shape rule(uint32_t op, uint32_t flags, uint32_t addr) {
    gdn_rule_shape s = { .base = HEAD(gdn_rule_shape, op),
                         .nk = 16,
                         .nv = 48,
                         .k_dim = 128,
                         .v_dim = 128,
                         .gate_form = GDN_GATE_LINEAR,
                         .state_type = GDN_F32,
                         .state_addr = addr,
                         .max_batch = 8,
                         .max_rows = op == GDN_OP_VERIFY_WOA || op == GDN_OP_ROUND ? 4 : 16,
                         .slab_entries = 40,
                         .stash_seqs = 30 };
    s.base.flags = flags;
    return s;
}

/* Plans and launches with pointers AT(i + 1), those of `null` 0; entry and geometry are what explain says too. */
static void run(bench *b, const gdn_shape *shape, uint32_t n_ptr, uint32_t null, const uint32_t *u32, uint32_t n_u32, uint32_t params,
                const char *entry, uint32_t gx, uint32_t gy, uint32_t block) {
    gdn_plan *plan = NULL;
    uint64_t ptr[GDN_ROUND_N_PTR]; /* the most */
    for (uint32_t i = 0; i < GDN_ROUND_N_PTR; i++) ptr[i] = null >> i & 1 ? 0 : AT(i + 1);
    if (b->id->ops->plan(b->ctx, shape, NULL, &plan, &b->err)) fail_msg("plan: %s", b->text);
    const uint32_t loads = b->m.loads, before = b->m.launches;
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr, n_u32, 0, (void *)0x77, ptr, u32 };
    b->m.params = params;
    if (b->id->ops->launch(plan, &args)) fail_msg("launch: %s", b->m.lines ? b->m.line[b->m.lines - 1] : "");
    assert_int_equal(b->m.launches, before + 1);
    assert_int_equal(b->m.loads, loads);
    assert_string_equal(b->m.last.function->entry, entry);
    assert_int_equal(b->m.last.dims.grid[0], gx);
    assert_int_equal(b->m.last.dims.grid[1], gy);
    assert_int_equal(b->m.last.dims.block[0], block);
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    assert_int_equal(b->id->ops->explain(plan, n_u32, u32, &r), GDN_OK);
    assert_true(strncmp(entry, r.entry, strlen(r.entry)) == 0);
    assert_int_equal(r.grid[0], gx);
    b->id->ops->destroy(plan);
}
static void params_are(const bench *b, const uint64_t *want, const char *widths) {
    for (uint32_t i = 0; widths[i]; i++) {
        const uint64_t got = widths[i] == '8' ? b->m.last.param[i] : (uint32_t)b->m.last.param[i];
        if (got != want[i])
            fail_msg("%s: argument %u is 0x%llx, expected 0x%llx", b->m.last.function->entry, i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

enum { STATE = 48 * 128 * 128, STASH = 4 * (48 * 128 + 48 + 16 * 128) };

static void verify_by_sequence(void **state) {
    (void)state;
    static const char *const targets[] = { "hopper", "gb10" };
    const uint32_t u32[] = { 4, 5 };
    for (uint32_t i = 0; i < 2; i++) {
        bench b;
        up(&b, targets[i]);
        gdn_rule_shape s = rule(GDN_OP_VERIFY, WORDS, GDN_STATE_POOL);
        s.offsets = GDN_OFFSETS_I32;
        const uint32_t null = 1u << GDN_VERIFY_P_STATE_OUT | 1u << GDN_VERIFY_P_OUT_SLOTS;
        /* whatever the number of rows: the entries that keep the last state as well; five sequences' heads in four parts each */
        run(&b, &s.base, GDN_VERIFY_N_PTR, null, u32, 2, 31, "gated_delta_rule_wy4_split_ext", 192, 5, 256);
        params_are(&b, (const uint64_t[]) { AT(1), AT(2),  AT(3),  AT(4), AT(5), AT(6), AT(7), AT(8),  40,    4, 5,
                                            16,    48,     128,    128,   2048,  6144,  96,    0,      0,     0, AT(13),
                                            0,     AT(11), AT(11), STATE, AT(1), AT(9), 16,    AT(15), AT(16) },
                   "8888888844444444444888488888488");
        s.state_addr = GDN_STATE_TABLE;
        run(&b, &s.base, GDN_VERIFY_N_PTR, null | 1u << GDN_VERIFY_P_IN_SLOTS, u32, 2, 31, "gated_delta_rule_wy4_split_ext", 192, 5, 256);
        params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), AT(8),  40,    4,     5,
                                            16,    48,    128,   128,   2048,  6144,  96,    1,      AT(1), AT(1), AT(13),
                                            0,     0,     0,     0,     AT(1), AT(9), 16,    AT(15), AT(16) },
                   "8888888844444444444888488888488");
        down(&b);
    }
}

/* Few heads go in parts; heads of 64 and bf16 states do not. */
static void verify_in_parts(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    gdn_rule_shape s = rule(GDN_OP_VERIFY, 0, GDN_STATE_TABLE);
    s.max_batch = s.slab_entries = 512;
    const uint32_t table = 1u << GDN_VERIFY_P_STATE_OUT | 1u << GDN_VERIFY_P_OUT_SLOTS | 1u << GDN_VERIFY_P_IN_SLOTS |
                           1u << GDN_VERIFY_P_CU_ROWS | 1u << GDN_VERIFY_P_FRESH | 1u << GDN_VERIFY_P_SEQ_IDS | 1u << GDN_VERIFY_P_RECORD |
                           1u << GDN_VERIFY_P_WORKSPACE;
    static const struct {
        uint32_t rows, batch;
        const char *entry;
        uint32_t grid, block;
    } cases[] = { { 4, 2, "gated_delta_rule_wy4_split_ext", 384, 128 },   { 4, 3, "gated_delta_rule_wy4_split_ext", 192, 256 },
                  { 4, 512, "gated_delta_rule_wy4_split_ext", 192, 256 }, { 2, 1, "gated_delta_rule_wy4_split_ext", 384, 128 },
                  { 3, 6, "gated_delta_rule_wy4_split_ext", 192, 256 },   { 1, 5, "gated_delta_rule_wy4_split_ext", 192, 256 },
                  { 1, 6, "gated_delta_rule_wyn_ext", 48, 128 },          { 5, 1, "gated_delta_rule_wyn_split_ext", 384, 128 },
                  { 5, 2, "gated_delta_rule_wyn_split_ext", 192, 256 },   { 16, 4, "gated_delta_rule_wyn_split_ext", 192, 256 },
                  { 16, 5, "gated_delta_rule_wyn_ext", 48, 128 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t u32[] = { cases[i].rows, cases[i].batch };
        run(&b, &s.base, GDN_VERIFY_N_PTR, table, u32, 2, 31, cases[i].entry, cases[i].grid, cases[i].batch, cases[i].block);
    }
    s.k_dim = s.v_dim = 64;
    const uint32_t one[] = { 4, 1 };
    run(&b, &s.base, GDN_VERIFY_N_PTR, table, one, 2, 31, "gated_delta_rule_wy4_ext", 48, 1, 128);
    s = rule(GDN_OP_VERIFY, 0, GDN_STATE_CONTIGUOUS);
    s.max_batch = 1;
    run(&b, &s.base, GDN_VERIFY_N_PTR, table, one, 2, 19, "gated_delta_rule_wy4_split", 384, 1, 128);
    params_are(&b,
               (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), AT(8), 40, 4, 1, 16, 48, 128, 128, 2048, 6144, 96, 0 },
               "8888888844444444444");
    down(&b);
}

static void write_on_accept_by_sequence(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    const uint32_t u32[] = { 3, 5 };
    gdn_rule_shape s = rule(GDN_OP_VERIFY_WOA, WORDS, GDN_STATE_POOL);
    s.offsets = GDN_OFFSETS_I32;
    run(&b, &s.base, GDN_VERIFY_WOA_N_PTR, 0, u32, 2, 28, "gated_delta_rule_wy4_woa_seq", 48, 5, 128);
    params_are(&b,
               (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7),  AT(8), 5,      16,     48,    128,   128,    2048,
                                    6144,  96,    STASH, AT(9), 0,     0,     AT(11), 0,     AT(10), AT(10), STATE, AT(1), AT(13), AT(14) },
               "8888888844444444488884888888");
    down(&b);
}

/* More heads than fit at once: two blocks a multiprocessor, and the `_ext` entry, since the core's grid is its contract; [V][K], and gb10:
 * a block a head. */
static void write_on_accept_blocks(void **state) {
    (void)state;
    const uint32_t u32[] = { 4, 7 }, few[] = { 4, 5 },
                   no_slots = 1u << GDN_VERIFY_WOA_P_IN_SLOTS | 1u << GDN_VERIFY_WOA_P_FRESH | 1u << GDN_VERIFY_WOA_P_CU_ROWS |
                              1u << GDN_VERIFY_WOA_P_SEQ_IDS;
    gdn_rule_shape s = rule(GDN_OP_VERIFY_WOA, 0, GDN_STATE_TABLE);
    bench b;
    up(&b, "hopper");
    run(&b, &s.base, GDN_VERIFY_WOA_N_PTR, no_slots, few, 2, 18, "gated_delta_rule_wy4_woa", 48, 5, 128);
    run(&b, &s.base, GDN_VERIFY_WOA_N_PTR, no_slots, u32, 2, 26, "gated_delta_rule_wy4_woa_ext", 264, 1, 128);
    assert_int_equal(b.m.last.dims.smem_bytes, 65536);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), AT(8), 7, 16, 48, 128, 128,
                                        2048,  6144,  96,    STASH, AT(9), AT(1), AT(1), 0,     0, 0,  0,  0,   AT(1) },
               "88888888444444444888848888");
    s.state_layout = GDN_STATE_V_MAJOR;
    run(&b, &s.base, GDN_VERIFY_WOA_N_PTR, no_slots, u32, 2, 18, "gated_delta_rule_wy4_woa", 48, 7, 128);
    down(&b);
    up(&b, "gb10");
    s.state_layout = GDN_STATE_K_MAJOR;
    run(&b, &s.base, GDN_VERIFY_WOA_N_PTR, no_slots, u32, 2, 18, "gated_delta_rule_wy4_woa", 48, 7, 128);
    down(&b);
}

static void fold_by_sequence(void **state) {
    (void)state;
    bench b;
    up(&b, "gb10");
    const uint32_t u32[] = { 16, 5 };
    const gdn_rule_shape s = rule(GDN_OP_FOLD, WORDS, GDN_STATE_TABLE);
    const uint32_t null = 1u << GDN_FOLD_P_IN_SLOTS | 1u << GDN_FOLD_P_CU_ROWS;
    run(&b, &s.base, GDN_FOLD_N_PTR, null, u32, 2, 23, "gated_delta_rule_wy4_fold_seq", 48, 5, 128);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 40, AT(5), 5, 16,    48, 128, 128,  STASH,
                                        AT(1), AT(1), AT(7), 0,     0,  0,     0, AT(1), 1,  16,  AT(9) },
               "88884844444488848888448");
    down(&b);
}

/* Four or two blocks a head on hopper, and so the `_ext` entry; of 64 dimensions, and on gb10, one. */
static void fold_blocks(void **state) {
    (void)state;
    const uint32_t u32[] = { 4, 5 },
                   null = 1u << GDN_FOLD_P_IN_SLOTS | 1u << GDN_FOLD_P_FRESH | 1u << GDN_FOLD_P_CU_ROWS | 1u << GDN_FOLD_P_SEQ_IDS;
    gdn_rule_shape s = rule(GDN_OP_FOLD, 0, GDN_STATE_TABLE);
    bench b;
    up(&b, "hopper");
    run(&b, &s.base, GDN_FOLD_N_PTR, null, u32, 2, 24, "gated_delta_rule_wy4_fold_ext", 192, 5, 128);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), 40, AT(5), 4, 5, 16,    48, 128, 128,
                                        STASH, AT(1), AT(1), 0,     0,  0,     0, 0, AT(1), 0,  1,   15 },
               "888848444444488848888844");
    run(&b, &s.base, GDN_FOLD_N_PTR, null, (const uint32_t[]) { 4, 6 }, 2, 24, "gated_delta_rule_wy4_fold_ext", 96, 6, 128);
    s.k_dim = s.v_dim = 64;
    run(&b, &s.base, GDN_FOLD_N_PTR, null, u32, 2, 13, "gated_delta_rule_wy4_fold", 48, 5, 128);
    down(&b);
    up(&b, "gb10");
    s.k_dim = s.v_dim = 128;
    run(&b, &s.base, GDN_FOLD_N_PTR, null, u32, 2, 13, "gated_delta_rule_wy4_fold", 48, 5, 128);
    down(&b);
}

static void clear_by_sequence(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    const uint32_t some[] = { 100 }, many[] = { 1u << 20 };
    gdn_flag_shape s = { HEAD(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };
    run(&b, &s.base, 1, 0, NULL, 0, 1, "gated_delta_rule_wy4_flag_clear", 1, 1, 32);
    s.base.flags = WORDS;
    run(&b, &s.base, 2, 0, some, 1, 3, "gated_delta_rule_wy4_flag_clear_seq", 4, 1, 32);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), 100 }, "884");
    run(&b, &s.base, 2, 2, many, 1, 3, "gated_delta_rule_wy4_flag_clear_seq", 1024, 1, 32);
    params_are(&b, (const uint64_t[]) { AT(1), 0, 1u << 20 }, "884");
    down(&b);
}

/* Every argument; few heads in eight parts, more in four, as many blocks as fit at once, and on Hopper many whole. */
static void a_round(void **state) {
    (void)state;
    static const char *const entry = "gated_delta_rule_wy4_round", *const widths = "8888888888888444444444448488844844";
    const uint32_t five[] = { 4, 5, 3 }, one[] = { 4, 1, 0 }, three[] = { 4, 3, 3 }, many[] = { 4, 16, 0 };
    gdn_rule_shape s = rule(GDN_OP_ROUND, WORDS, GDN_STATE_POOL);
    bench b;
    up(&b, "hopper");
    s.offsets = GDN_OFFSETS_I32;
    run(&b, &s.base, GDN_ROUND_N_PTR, 0, three, 3, 34, entry, 576, 1, 128);
    params_are(&b, (const uint64_t[]) { AT(1),  AT(2), AT(3),  AT(4), AT(5),  AT(6), AT(7), AT(8),  AT(9), AT(10), AT(11), AT(12),
                                        AT(13), 40,    3,      3,     16,     48,    128,   128,    2048,  6144,   96,     STASH,
                                        AT(15), 0,     AT(14), STATE, AT(17), 0,     4,     AT(18), 1,     4 },
               widths);
    s = rule(GDN_OP_ROUND, 0, GDN_STATE_TABLE);
    const uint32_t null = 1u << GDN_ROUND_P_IN_SLOTS | 1u << GDN_ROUND_P_CU_ROWS | 1u << GDN_ROUND_P_SEQ_IDS | 1u << GDN_ROUND_P_HI;
    run(&b, &s.base, GDN_ROUND_N_PTR, null, one, 3, 34, entry, 384, 1, 128);
    params_are(&b, (const uint64_t[]) { AT(1),  AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), AT(8), AT(9), AT(10), AT(11), AT(12),
                                        0,      40,    0,     1,     16,    48,    128,   128,   2048,  6144,   96,     STASH,
                                        AT(15), 0,     0,     0,     0,     1,     3,     0,     0,     8 },
               widths);
    run(&b, &s.base, GDN_ROUND_N_PTR, null, one, 2, 34, entry, 384, 1, 128); /* k_rows is optional */
    s.max_batch = s.stash_seqs = 16;
    run(&b, &s.base, GDN_ROUND_N_PTR, null, many, 3, 34, "gated_delta_rule_wy4_round_stay", 264, 1, 128);
    assert_int_equal(b.m.last.dims.smem_bytes, 65536);
    run(&b, &s.base, GDN_ROUND_N_PTR, null, five, 3, 34, "gated_delta_rule_wy4_round_stay", 240, 1, 128);
    s.state_layout = GDN_STATE_V_MAJOR;
    run(&b, &s.base, GDN_ROUND_N_PTR, null, many, 3, 34, entry, 660, 1, 128);
    down(&b);
    up(&b, "gb10");
    s = rule(GDN_OP_ROUND, 0, GDN_STATE_TABLE);
    run(&b, &s.base, GDN_ROUND_N_PTR, null, one, 3, 34, entry, 192, 1, 128);
    run(&b, &s.base, GDN_ROUND_N_PTR, null, five, 3, 34, entry, 264, 1, 128);
    down(&b);
}

static void bf16_states(void **state) {
    (void)state;
    bench b;
    up(&b, "hopper");
    const uint32_t five[] = { 5 }, two_five[] = { 2, 5 };
    gdn_rule_shape s = rule(GDN_OP_DECODE, GDN_BF16_STATE, GDN_STATE_POOL);
    s.state_type = GDN_BF16;
    const uint32_t in_place = 1u << GDN_DECODE_P_STATE_OUT | 1u << GDN_DECODE_P_OUT_SLOTS;
    run(&b, &s.base, GDN_DECODE_N_PTR, in_place, five, 1, 24, "gated_delta_rule_decode_bf16_state_ext", 96, 5, 128);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7),  5, 16,    48,    128,   128,
                                        2048,  6144,  96,    0,     0,     0,     AT(11), 0, AT(9), AT(9), STATE, AT(1) },
               "888888844444444488848888");
    s = rule(GDN_OP_VERIFY, GDN_BF16_STATE, GDN_STATE_POOL);
    s.state_type = GDN_BF16, s.max_rows = 4;
    const uint32_t none = 1u << GDN_VERIFY_P_CU_ROWS | 1u << GDN_VERIFY_P_STATE_OUT | 1u << GDN_VERIFY_P_OUT_SLOTS |
                          1u << GDN_VERIFY_P_SEQ_IDS | 1u << GDN_VERIFY_P_RECORD;
    run(&b, &s.base, GDN_VERIFY_N_PTR, none, two_five, 2, 29, "gated_delta_rule_wyn_bf16_state_ext", 48, 5, 128);
    params_are(&b, (const uint64_t[]) { AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7),  AT(8), 40,     2,      5,     16,    48, 128, 128,
                                        2048,  6144,  96,    0,     0,     0,     AT(13), 0,     AT(11), AT(11), STATE, AT(1), 0,  3 },
               "88888888444444444448884888884");
    down(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_by_sequence),     cmocka_unit_test(verify_in_parts),  cmocka_unit_test(write_on_accept_by_sequence),
        cmocka_unit_test(write_on_accept_blocks), cmocka_unit_test(fold_by_sequence), cmocka_unit_test(fold_blocks),
        cmocka_unit_test(clear_by_sequence),      cmocka_unit_test(bf16_states),      cmocka_unit_test(a_round),
    };
    return cmocka_run_group_tests_name("gpu_step", tests, NULL, NULL) != 0;
}
