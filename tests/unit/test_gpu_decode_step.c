/* test_gpu_decode_step.c - the fused decode step of the hopper and gb10 plugins on the mocked backend: entry, grid, block, every argument
 * in its place, the workspace, its line, what is refused by name, and the shapes that are wrong. */
#include "gdn_op_step.h"
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

static void init(bench *b, const char *target, uint32_t cc, uint32_t sms) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, cc, sms);
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
    const gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err);
    if (st) fail_msg("init: %d %s", st, b->text);
}
static void shut(bench *b) {
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}

static gdn_step_shape step(void) {
    return (gdn_step_shape) { .base = HEAD(gdn_step_shape, GDN_OP_DECODE_STEP),
                              .nk = 16,
                              .nv = 48,
                              .k_dim = 128,
                              .v_dim = 128,
                              .width = 4,
                              .weight_type = GDN_BF16,
                              .gates = GDN_STEP_GATES_RAW,
                              .param_type = GDN_F32,
                              .state_type = GDN_F32,
                              .norm_act = GDN_NORM_SILU,
                              .norm_weight_type = GDN_BF16,
                              .eps = 1e-6f,
                              .max_batch = 256 };
}

/* Plans and launches with pointers AT(i + 1), but for those of `without` (bits). */
static gdn_status go(bench *b, const gdn_step_shape *s, uint32_t batch, uint32_t without, uint64_t *needs) {
    gdn_plan *plan = NULL;
    uint64_t ptr[GDN_DECODE_STEP_N_PTR];
    for (uint32_t i = 0; i < GDN_DECODE_STEP_N_PTR; i++) ptr[i] = without >> i & 1 ? 0 : AT(i + 1);
    gdn_status st = b->id->ops->plan(b->ctx, &s->base, NULL, &plan, &b->err);
    if (st) return st;
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_DECODE_STEP_N_PTR, 1, 0, (void *)0x77, ptr, &batch };
    gdn_route r = { .struct_size = (uint32_t)sizeof r };
    const uint32_t loads = b->m.loads, before = b->m.launches;
    b->m.params = 29;
    st = b->id->ops->launch(plan, &args);
    assert_int_equal(b->m.loads, loads);
    assert_int_equal(b->m.launches, before + (st == GDN_OK && batch));
    if (!st && batch) {
        assert_ptr_equal(b->m.last.stream, (void *)0x77);
        assert_int_equal(b->id->ops->explain(plan, 1, &batch, &r), GDN_OK);
        assert_string_equal(r.entry, b->m.last.function->entry); /* what explain says is what ran */
        assert_int_equal(r.grid[0], b->m.last.dims.grid[0]);
        assert_int_equal(r.grid[1], b->m.last.dims.grid[1]);
        assert_int_equal(r.grid[2], b->m.last.dims.grid[2]);
        assert_int_equal(r.block[0], b->m.last.dims.block[0]);
        if (needs) *needs = r.workspace_bytes;
    }
    b->id->ops->destroy(plan);
    return st;
}

static void ran(const bench *b, const char *entry, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t block) {
    const gdn_dims *d = &b->m.last.dims;
    assert_string_equal(b->m.last.function->entry, entry);
    assert_int_equal(d->grid[0], gx);
    assert_int_equal(d->grid[1], gy);
    assert_int_equal(d->grid[2], gz);
    assert_int_equal(d->block[0], block);
    assert_int_equal(d->smem_bytes, 0);
}

static void params_are(const bench *b, const uint64_t *want, const char *widths) {
    for (uint32_t i = 0; widths[i]; i++) {
        const uint64_t got = widths[i] == '8' ? b->m.last.param[i] : (uint32_t)b->m.last.param[i];
        if (got != want[i])
            fail_msg("%s: argument %u is 0x%llx, expected 0x%llx", b->m.last.function->entry, i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

enum { EPS = 0x358637bd, SCALE = 0x3db504f2 };
static void arguments(void **state) {
    (void)state;
    static const struct {
        const char *target;
        uint32_t cc;
    } on[] = { { "gb10", 121 }, { "gb10", 90 }, { "hopper", 90 } };
    for (uint32_t i = 0; i < 3; i++) {
        bench b;
        uint64_t needs = 0;
        init(&b, on[i].target, on[i].cc, 132);
        gdn_step_shape s = step();
        assert_int_equal(go(&b, &s, 2, 0, &needs), GDN_OK);
        ran(&b, "gdn_decode_step_wide", 3, 16, 2, 512);
        assert_int_equal(needs, 4 * 16 * 256);
        params_are(&b, (const uint64_t[]) { AT(1),  AT(2), AT(3),  AT(4),  AT(5),  AT(6),  AT(7),     AT(8),          AT(10), AT(11),
                                            AT(12), AT(9), AT(13), AT(14), AT(15), AT(16), 10240 * 3, 48 * 128 * 128, 16,     48,
                                            10240,  6144,  48,     48,     0,      3,      EPS,       SCALE,          0 },
                   "88888888888888888844444444444");
        s.state_len = 7, s.x_stride = 16384, s.z_stride = 16385, s.vheads_per_group = 3, s.conv_slot_stride = 71681;
        s.state_stride = 786433, s.weight_type = s.norm_weight_type = GDN_F32, s.norm_act = GDN_NORM_SIGMOID, s.scale = 0.5f;
        s.head_map = GDN_HEADS_TILED;
        assert_int_equal(go(&b, &s, 256, 0, NULL), GDN_OK);
        ran(&b, "gdn_decode_step", 3, 16, 256, 256);
        params_are(&b,
                   (const uint64_t[]) { AT(1),
                                        AT(2),
                                        AT(3),
                                        AT(4),
                                        AT(5),
                                        AT(6),
                                        AT(7),
                                        AT(8),
                                        AT(10),
                                        AT(11),
                                        AT(12),
                                        AT(9),
                                        AT(13),
                                        AT(14),
                                        AT(15),
                                        AT(16),
                                        71681,
                                        786433,
                                        16,
                                        48,
                                        16384,
                                        16385,
                                        96,
                                        96,
                                        3,
                                        7,
                                        EPS,
                                        0x3f000000,
                                        1 | 2 | 4 | 8 | 32 },
                   "88888888888888888844444444444");
        s = step();
        s.gates = GDN_STEP_GATES_MADE, s.param_type = 0;
        assert_int_equal(go(&b, &s, 1, 1u << GDN_DECODE_STEP_P_A_LOG | 1u << GDN_DECODE_STEP_P_DT_BIAS, NULL), GDN_OK);
        assert_int_equal((uint32_t)b.m.last.param[22], 96);
        assert_int_equal((uint32_t)b.m.last.param[28], 16);
        assert_int_equal(b.m.last.param[6], 0);
        shut(&b);
    }
}

/* The wide form up to a number of blocks that goes by the device; both lines once. */
static void which_entry(void **state) {
    (void)state;
    bench b;
    init(&b, "hopper", 90, 132);
    const gdn_step_shape s = step();
    uint32_t last_wide = 0;
    for (uint32_t n = 1; n <= 256; n++) {
        assert_int_equal(go(&b, &s, n, 0, NULL), GDN_OK);
        const bool wide = strcmp(b.m.last.function->entry, "gdn_decode_step_wide") == 0;
        if (wide) assert_int_equal(last_wide, n - 1);
        if (wide) last_wide = n;
        assert_int_equal(((uint32_t)b.m.last.param[28] & 32) != 0, 48 * n > 24 * 132); /* the state ahead */
    }
    assert_int_equal(last_wide, 2 * 132 / 48);
    assert_int_equal(b.m.lines, 2);
    assert_string_equal(b.m.line[0], "3 route: GDN decode step: gdn_decode_step_wide grid=[3,16,1] block=512");
    char line[128];
    snprintf(line, sizeof line, "3 route: GDN decode step: gdn_decode_step grid=[3,16,%u] block=256", last_wide + 1);
    assert_string_equal(b.m.line[1], line);
    shut(&b);
}

static void the_workspace(void **state) {
    (void)state;
    bench b;
    uint64_t needs = 1;
    init(&b, "gb10", 121, 48);
    gdn_step_shape s = step();
    assert_int_equal(go(&b, &s, 2, 1u << GDN_DECODE_STEP_P_WORKSPACE, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "pointer 'workspace' is NULL, the plan needs 16384 bytes"));
    s.nk = 48; /* a key head of its own for each value head: nobody to wait for */
    assert_int_equal(go(&b, &s, 2, 1u << GDN_DECODE_STEP_P_WORKSPACE, &needs), GDN_OK);
    assert_int_equal(needs, 0);
    assert_int_equal(go(&b, &s, 0, 0xffff, NULL), GDN_OK); /* no sequences: nothing is looked at */
    shut(&b);
}

static void bad_launches(void **state) {
    (void)state;
    bench b;
    init(&b, "hopper", 90, 132);
    const gdn_step_shape s = step();
    static const struct {
        uint32_t without;
        const char *part;
    } rows[] = { { GDN_DECODE_STEP_P_X, "pointer 'x' is NULL" },
                 { GDN_DECODE_STEP_P_CONV_STATE, "pointer 'conv_state' is NULL" },
                 { GDN_DECODE_STEP_P_A_LOG, "pointer 'A_log' is NULL, but the gates are raw" },
                 { GDN_DECODE_STEP_P_DT_BIAS, "pointer 'dt_bias' is NULL, but the gates are raw" },
                 { GDN_DECODE_STEP_P_STATE, "pointer 'state' is NULL" },
                 { GDN_DECODE_STEP_P_Z, "pointer 'z' is NULL" },
                 { GDN_DECODE_STEP_P_OUT, "pointer 'out' is NULL" } };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(go(&b, &s, 2, 1u << rows[i].without, NULL), GDN_E_ARG);
        assert_true(mock_said(&b.m, rows[i].part));
    }
    assert_int_equal(go(&b, &s, 257, 0, NULL), GDN_E_ARG);
    assert_true(mock_said(&b.m, "'batch' is 257, above the plan's max_batch, 256"));
    shut(&b);
}

static void refusals_and_errors(void **state) {
    (void)state;
    bench b;
    init(&b, "gb10", 121, 48);
    const gdn_step_shape good = step();
#define TRY(want, part, change)                                                               \
    do {                                                                                      \
        gdn_step_shape s = good;                                                              \
        change;                                                                               \
        const gdn_status st = go(&b, &s, 1, 0, NULL);                                         \
        if (st != (want) || !strstr(b.text, (part))) fail_msg("%s: %d %s", part, st, b.text); \
    } while (0)
    TRY(GDN_REFUSED, "refused: k_dim or v_dim is not 128", (s.k_dim = 64, s.v_dim = 64));
    TRY(GDN_REFUSED, "refused: the convolution's width is not 4", s.width = 3);
    TRY(GDN_REFUSED, "refused: state is not f32", s.state_type = GDN_BF16);
    TRY(GDN_REFUSED, "refused: more than 65535 sequences in a launch", s.max_batch = 65536);
    TRY(GDN_REFUSED, "refused: activations are f32 (target cpu only)", s.base.act_type = GDN_F32);
    TRY(GDN_E_ARG, "nv is 48, not a multiple of nk, 5", s.nk = 5);
    TRY(GDN_E_ARG, "gates (GDN_STEP_GATES_RAW or GDN_STEP_GATES_MADE) is not set", s.gates = 0);
    TRY(GDN_E_ARG, "param_type is not set", s.param_type = 0);
    TRY(GDN_E_ARG, "vheads_per_group is for raw gates", (s.gates = GDN_STEP_GATES_MADE, s.vheads_per_group = 3));
    TRY(GDN_E_ARG, "a_stride is 100 and b_stride 96, made gates are in one row", (s.gates = GDN_STEP_GATES_MADE, s.a_stride = 100));
    TRY(GDN_E_ARG, "eps is not a finite number > 0", s.eps = 0);
    TRY(GDN_E_ARG, "state_len is 2", s.state_len = 2);
    TRY(GDN_E_ARG, "x_stride is 10239, shorter than its row of 10240 elements", s.x_stride = 10239);
    TRY(GDN_E_ARG, "conv_slot_stride is 30719, shorter than a slot of 30720 elements", s.conv_slot_stride = 30719);
    TRY(GDN_E_ARG, "state_stride is 786431, shorter than a slot of 786432 elements", s.state_stride = 786431);
    TRY(GDN_E_ARG, "norm_act (GDN_NORM_SILU or GDN_NORM_SIGMOID) is not set", s.norm_act = 0);
    TRY(GDN_E_ARG, "weight_type f16 is not supported", s.weight_type = GDN_F16);
    TRY(GDN_E_ARG, "pad_ is not 0", s.pad_ = 1);
    TRY(GDN_E_ARG, "flags has bits that it does not take", s.base.flags = GDN_QK_L2NORM);
    shut(&b);
}

/* The counters name the guard. */
static void guards_are_counted(void **state) {
    (void)state;
    bench b;
    init(&b, "hopper", 90, 132);
    gdn_step_shape s = step();
    s.width = 5;
    assert_int_equal(go(&b, &s, 1, 0, NULL), GDN_REFUSED);
    gdn_counter c[160];
    uint32_t n = 0, seen = 0;
    assert_int_equal(b.id->ops->counters(b.ctx, c, 160, &n), GDN_OK);
    for (uint32_t i = 0; i < n && i < 160; i++)
        if (c[i].op == GDN_OP_DECODE_STEP && c[i].refused && c[i].count == 1 && strcmp(c[i].name, "the convolution's width is not 4") == 0)
            seen++;
    assert_int_equal(seen, 1);
    shut(&b);
}

/* A module that does not compile leaves the target, without the operation. */
static void absent(void **state) {
    (void)state;
    bench b;
    memset(&b, 0, sizeof b);
    mock_init(&b.m, 90, 132);
    b.m.broken_module = "gdn_decode_step.cu";
    b.err = (gdn_text) { b.text, sizeof b.text, 0 };
    b.id = mock_plugin("hopper");
    assert_int_equal(b.id->ops->init(&b.m.host, 0, &b.ctx, &b.err), GDN_OK);
    const gdn_step_shape s = step();
    assert_int_equal(go(&b, &s, 1, 0, NULL), GDN_ABSENT);
    assert_non_null(strstr(b.text, "gdn_decode_step.cu"));
    shut(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments),    cmocka_unit_test(which_entry),         cmocka_unit_test(the_workspace),
        cmocka_unit_test(bad_launches), cmocka_unit_test(refusals_and_errors), cmocka_unit_test(guards_are_counted),
        cmocka_unit_test(absent),
    };
    return cmocka_run_group_tests_name("gpu_decode_step", tests, NULL, NULL) != 0;
}
