/* test_call_overlap.c - what a launch writes lies apart from everything else: each pair of pointers of each operation, neighbours that
 * touch and do not overlap, rows between rows, slots of one pool; and sizes that no address reaches. */
#include "numeric.h"
#include "plan_common.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#define AT(n)           ((uint64_t)(n) << 40)
#define HEAD(type, op_) .base = { (uint32_t)sizeof(type), (op_), 0, GDN_BF16 }
#define N_OF(a)         (sizeof(a) / sizeof *(a))
enum { WORKSPACE = 4096 };

static char text[256];
static gdn_text err = { text, sizeof text, 0 };

static gdn__shape read_shape(const void *in) {
    gdn__shape s;
    if (gdn__shape_read(in, &s, &err)) fail_msg("%s", text);
    return s;
}
static gdn__call call_of(const gdn__shape *s, uint32_t a, uint32_t b) {
    gdn__call c = { .op = gdn__op_find(s->base.op), .u32 = { a, b } };
    for (uint32_t i = 0; i < c.op->n_ptr; i++) c.ptr[i] = AT(i + 1);
    return c;
}
static gdn_status apart(const gdn__shape *s, const gdn__call *c) {
    text[0] = '\0';
    return gdn__call_apart(s, c, WORKSPACE, &err);
}
static void passes(const gdn__shape *s, const gdn__call *c) {
    if (apart(s, c)) fail_msg("%s", text);
}
static void told(const gdn__shape *s, const gdn__call *c, uint32_t i, uint32_t k) {
    const gdn_status st = apart(s, c);
    if (st != GDN_E_ARG || !strstr(text, c->op->ptr[i].name) || !strstr(text, c->op->ptr[k].name))
        fail_msg("%s: %s and %s: %d %s", gdn__op_name(c->op->op), c->op->ptr[i].name, c->op->ptr[k].name, st, text);
}

static gdn_rule_shape rule(uint32_t op, uint32_t addr) {
    return (gdn_rule_shape) { HEAD(gdn_rule_shape, op),
                              .nk = 2,
                              .nv = 4,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_addr = addr,
                              .state_type = GDN_F32,
                              .max_tokens = 256,
                              .max_batch = 3,
                              .max_rows = 4,
                              .stash_seqs = 3 };
}
static const gdn_conv_shape conv1d = {
    HEAD(gdn_conv_shape, GDN_OP_CONV1D), .channels = 1024, .width = 4, .weight_type = GDN_F32, .max_tokens = 64, .max_batch = 4
};
static const gdn_conv_shape fused = { HEAD(gdn_conv_shape, GDN_OP_CONV_FUSED),
                                      .channels = 1024,
                                      .width = 4,
                                      .silu = 1,
                                      .weight_type = GDN_BF16,
                                      .max_tokens = 64,
                                      .max_batch = 4,
                                      .nk = 2,
                                      .nv = 4,
                                      .k_dim = 128,
                                      .v_dim = 128 };
static const gdn_gates_shape gates = { HEAD(gdn_gates_shape, GDN_OP_GATES), .nv = 4, .gate_form = GDN_GATE_LINEAR, .param_type = GDN_F32,
                                       .max_rows = 64 };
static const gdn_ba_shape ba = {
    HEAD(gdn_ba_shape, GDN_OP_BA_GATES), .N = 8, .K = 64, .nv = 4, .vheads_per_group = 2, .weight_type = GDN_BF16, .max_m = 64
};
static const gdn_ba_shape gemv = {
    HEAD(gdn_ba_shape, GDN_OP_BA_GEMV), .N = 8, .K = 64, .nv = 4, .vheads_per_group = 2, .weight_type = GDN_BF16
};
static const gdn_norm_shape norm = { HEAD(gdn_norm_shape, GDN_OP_NORM), .dim = 128,     .heads = 4,  .act = GDN_NORM_SILU,
                                     .weight_type = GDN_BF16,           .max_rows = 64, .eps = 1e-6f };
static const gdn_state_shape copy = { HEAD(gdn_state_shape, GDN_OP_STATE_COPY), .bytes = 512, .max_count = 8 };
static const gdn_state_shape zero = { HEAD(gdn_state_shape, GDN_OP_STATE_ZERO), .bytes = 512, .max_count = 8 };
static const gdn_w4a4_shape quant = { HEAD(gdn_w4a4_shape, GDN_OP_W4A4_QUANT), .K = 256, .max_m = 16 };
static const gdn_w4a4_shape w4a4 = { HEAD(gdn_w4a4_shape, GDN_OP_W4A4_GEMV), .N = 64, .K = 256, .max_m = 16 };
static const gdn_step_shape step = { HEAD(gdn_step_shape, GDN_OP_DECODE_STEP),
                                     .nk = 2,
                                     .nv = 4,
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
                                     .max_batch = 4 };
static const gdn_flag_shape flag = { HEAD(gdn_flag_shape, GDN_OP_FLAG_CLEAR) };

static bool is_one_of(const char *list, const char *name) {
    const size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
    return false;
}

/* Apart: fine. Any pointer at the place of one that is written, or inside it: told, but for the pairs that may be the same. */
static void every_pair(const void *shape, uint32_t a, uint32_t b, const char *written, const char *same) {
    const gdn__shape s = read_shape(shape);
    const gdn__call far = call_of(&s, a, b);
    passes(&s, &far);
    for (uint32_t i = 0; i < far.op->n_ptr; i++)
        for (uint32_t k = 0; k < far.op->n_ptr; k++) {
            const char *x = far.op->ptr[i].name, *y = far.op->ptr[k].name;
            gdn__call c = far;
            if (i == k || !is_one_of(written, x) || (s.base.op == GDN_OP_PREFILL && s.rule.offsets && !strcmp(y, "ckpt"))) continue;
            c.ptr[k] = c.ptr[i];
            if (is_one_of(same, x) && is_one_of(same, y))
                passes(&s, &c);
            else
                told(&s, &c, i, k);
        }
}

static void pairs_of_the_rule(void **state) {
    (void)state;
    gdn_rule_shape s = rule(GDN_OP_PREFILL, GDN_STATE_POOL);
    s.ckpt_every = 64;
    every_pair(&s, 3, 70, "h_state_out output ckpt workspace", "h_state h_state_out ckpt"); /* states: slots of one pool */
    s.offsets = GDN_OFFSETS_I32; /* how many checkpoints there are, only the offsets say */
    every_pair(&s, 3, 0, "output h_state_out workspace", "h_state h_state_out");
    s = rule(GDN_OP_DECODE, GDN_STATE_CONTIGUOUS);
    every_pair(&s, 3, 0, "output h_state_out workspace", "h_state h_state_out");
    s = rule(GDN_OP_VERIFY, GDN_STATE_POOL);
    every_pair(&s, 4, 3, "out h_out hi workspace record", "h h_out hi");
    s = rule(GDN_OP_VERIFY_WOA, GDN_STATE_TABLE);
    every_pair(&s, 4, 3, "output stash engaged_flag workspace", "");
    s = rule(GDN_OP_FOLD, GDN_STATE_POOL);
    every_pair(&s, 4, 3, "h_table", "h_table hi_tables");
}

static void pairs_of_the_layer(void **state) {
    (void)state;
    every_pair(&conv1d, 4, 16, "state out", "");
    every_pair(&fused, 4, 16, "state out_q out_k out_v", "");
    every_pair(&gates, 64, 0, "out", "");
    every_pair(&ba, 64, 0, "gate_out", "");
    every_pair(&gemv, 0, 0, "gate beta", "");
    every_pair(&norm, 64, 0, "out", "out x"); /* in place */
    every_pair(&copy, 8, 0, "dst", "src dst");
    every_pair(&zero, 8, 0, "dst", "");
    every_pair(&quant, 16, 0, "Aq As Ag", "");
    every_pair(&w4a4, 0x3f800000u, 16, "C workspace", "");
    every_pair(&step, 4, 0, "conv_state state out workspace", "");
    every_pair(&flag, 0, 0, "engaged_flag", "");
}

/* The last byte of one and the first of the other: by one byte. */
static void neighbours(void **state) {
    (void)state;
    const gdn_rule_shape in = rule(GDN_OP_PREFILL, GDN_STATE_CONTIGUOUS);
    const gdn__shape s = read_shape(&in);
    gdn__call c = call_of(&s, 1, 100);
    for (uint32_t i = GDN_PREFILL_P_CU_SEQLENS; i < GDN_PREFILL_N_PTR; i++) c.ptr[i] = 0;
    const uint64_t out = 100 * 4 * 128 * 2, query = 100 * 2 * 128 * 2, one = 4ull * 128 * 128 * 4;
    c.ptr[GDN_PREFILL_P_OUTPUT] = c.ptr[GDN_PREFILL_P_QUERY] + query;
    passes(&s, &c);
    c.ptr[GDN_PREFILL_P_OUTPUT]--;
    told(&s, &c, GDN_PREFILL_P_OUTPUT, GDN_PREFILL_P_QUERY);
    c.ptr[GDN_PREFILL_P_OUTPUT] = c.ptr[GDN_PREFILL_P_QUERY] - out;
    passes(&s, &c);
    c.ptr[GDN_PREFILL_P_OUTPUT]++;
    told(&s, &c, GDN_PREFILL_P_OUTPUT, GDN_PREFILL_P_QUERY);
    c.ptr[GDN_PREFILL_P_OUTPUT] = AT(30);
    c.ptr[GDN_PREFILL_P_STATE_OUT] = c.ptr[GDN_PREFILL_P_STATE] + one; /* behind the state: another; half of it: neither */
    passes(&s, &c);
    c.ptr[GDN_PREFILL_P_STATE_OUT] -= one / 2;
    told(&s, &c, GDN_PREFILL_P_STATE_OUT, GDN_PREFILL_P_STATE);
    c.ptr[GDN_PREFILL_P_STATE_OUT] = 0;
    c.u32[GDN_PREFILL_U_SEQ_LEN] = 0; /* no rows: nothing to overlap */
    c.ptr[GDN_PREFILL_P_OUTPUT] = c.ptr[GDN_PREFILL_P_QUERY];
    passes(&s, &c);
    c = call_of(&s, 1, 100);
    c.ptr[GDN_PREFILL_P_VALUE] = UINT64_MAX - 100;
    assert_int_equal(apart(&s, &c), GDN_E_ARG);
    assert_non_null(strstr(text, "'value'"));
    assert_non_null(strstr(text, "past the address space"));
}

/* Columns of one wide row: side by side they are apart, one element more and they are not. */
static void rows_between_rows(void **state) {
    (void)state;
    gdn_conv_shape in = fused;
    gdn__shape s = read_shape(&in);
    gdn__call c = call_of(&s, 4, 16);
    const uint64_t base = AT(40);
    c.ptr[GDN_CONV_FUSED_P_OUT_Q] = base; /* the packed row */
    c.ptr[GDN_CONV_FUSED_P_OUT_K] = base + 2 * 128 * 2;
    c.ptr[GDN_CONV_FUSED_P_OUT_V] = base + 4 * 128 * 2;
    passes(&s, &c);
    c.ptr[GDN_CONV_FUSED_P_OUT_K] -= 2;
    told(&s, &c, GDN_CONV_FUSED_P_OUT_Q, GDN_CONV_FUSED_P_OUT_K);
    c.ptr[GDN_CONV_FUSED_P_OUT_K] = base + 2 * 128 * 2 + 1024 * 2 * 3; /* three rows further, still its own columns */
    passes(&s, &c);
    c.ptr[GDN_CONV_FUSED_P_OUT_K] += 2;
    told(&s, &c, GDN_CONV_FUSED_P_OUT_K, GDN_CONV_FUSED_P_OUT_V);
    gdn_conv_shape wide = conv1d; /* x and out in one row of twice the channels, then with strides that differ */
    wide.x_stride = wide.out_stride = 2048;
    s = read_shape(&wide);
    c = call_of(&s, 4, 16);
    c.ptr[GDN_CONV1D_P_OUT] = c.ptr[GDN_CONV1D_P_X] + 2048;
    passes(&s, &c);
    c.ptr[GDN_CONV1D_P_OUT] -= 2;
    told(&s, &c, GDN_CONV1D_P_OUT, GDN_CONV1D_P_X);
    wide.x_stride = 4096;
    s = read_shape(&wide);
    c.ptr[GDN_CONV1D_P_OUT] = c.ptr[GDN_CONV1D_P_X] + 63 * 8192 - 4096; /* its second row is x's last */
    told(&s, &c, GDN_CONV1D_P_OUT, GDN_CONV1D_P_X);
    wide.offsets = GDN_OFFSETS_I32; /* packed: one row is certain, the others are not */
    s = read_shape(&wide);
    passes(&s, &c);
    c.ptr[GDN_CONV1D_P_OUT] = c.ptr[GDN_CONV1D_P_X];
    told(&s, &c, GDN_CONV1D_P_OUT, GDN_CONV1D_P_X);
}

/* Against every byte of both, at random places: with one stride the answer is exact; with two nothing that is apart is refused. */
static void as_byte_by_byte(void **state) {
    (void)state;
    enum { ROWS = 5, MOST = 4096 };
    static uint8_t mark[2 * MOST];
    rng r = { .s = 77 };
    uint32_t met = 0, missed = 0;
    for (uint32_t n = 0; n < 20000; n++) {
        gdn_conv_shape in = conv1d;
        in.channels = 8 + rng_below(&r, 24);
        in.x_stride = in.channels + rng_below(&r, 40);
        in.out_stride = n % 2 ? in.x_stride : in.channels + rng_below(&r, 40);
        const gdn__shape s = read_shape(&in);
        gdn__call c = call_of(&s, 1, ROWS);
        const uint32_t from = rng_below(&r, MOST / 2);
        c.ptr[GDN_CONV1D_P_OUT] = c.ptr[GDN_CONV1D_P_X] + from - MOST / 4;
        memset(mark, 0, sizeof mark);
        bool overlaps = false;
        for (uint32_t i = 0; i < ROWS; i++) memset(mark + MOST / 4 + i * in.x_stride * 2, 1, in.channels * 2);
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t k = 0; k < in.channels * 2; k++) overlaps = overlaps || mark[from + i * in.out_stride * 2 + k];
        const bool said = apart(&s, &c) != GDN_OK;
        if (said && !overlaps)
            fail_msg("refused, and apart: channels %u, strides %u and %u, from %u", in.channels, in.x_stride, in.out_stride, from);
        if (!said && overlaps && n % 2) fail_msg("not refused: channels %u, stride %u, from %u", in.channels, in.x_stride, from);
        met += said;
        missed += !said && overlaps;
    }
    assert_true(met > 1000 && missed < met / 20); /* rows in the middle that meet between others' strides */
}

static void slots_of_pools(void **state) {
    (void)state;
    gdn_rule_shape in = rule(GDN_OP_DECODE, GDN_STATE_POOL);
    const uint64_t one = 4ull * 128 * 128 * 4;
    in.num_slots = 10;
    gdn__shape s = read_shape(&in);
    gdn__call c = call_of(&s, 3, 0);
    c.ptr[GDN_DECODE_P_STATE_OUT] = c.ptr[GDN_DECODE_P_STATE] + 3 * one; /* a pool that begins at its fourth slot */
    passes(&s, &c);
    c.ptr[GDN_DECODE_P_STATE_OUT] += 256;
    told(&s, &c, GDN_DECODE_P_STATE, GDN_DECODE_P_STATE_OUT);
    c.ptr[GDN_DECODE_P_STATE_OUT] = 0;
    c.ptr[GDN_DECODE_P_OUTPUT] = c.ptr[GDN_DECODE_P_STATE] + 9 * one; /* its last slot; with nine it is behind */
    told(&s, &c, GDN_DECODE_P_STATE, GDN_DECODE_P_OUTPUT);
    in.num_slots = 9;
    s = read_shape(&in);
    passes(&s, &c);
    in.num_slots = 10;
    in.state_stride = one / 4 + 4096; /* other memory between the slots */
    s = read_shape(&in);
    c.ptr[GDN_DECODE_P_OUTPUT] = c.ptr[GDN_DECODE_P_STATE] + one;
    passes(&s, &c);
    c.ptr[GDN_DECODE_P_OUTPUT] -= 2;
    told(&s, &c, GDN_DECODE_P_STATE, GDN_DECODE_P_OUTPUT);
    c.ptr[GDN_DECODE_P_OUTPUT] = 0;
    in.state_stride = one / 2; /* two fields of each slot lie between each other, so long as neither reaches into the other */
    s = read_shape(&in);
    c.ptr[GDN_DECODE_P_STATE_OUT] = c.ptr[GDN_DECODE_P_STATE] + one;
    passes(&s, &c);
    c.ptr[GDN_DECODE_P_STATE_OUT] += 256;
    told(&s, &c, GDN_DECODE_P_STATE, GDN_DECODE_P_STATE_OUT);
    c.ptr[GDN_DECODE_P_STATE_OUT] -= 512;
    told(&s, &c, GDN_DECODE_P_STATE, GDN_DECODE_P_STATE_OUT);
    gdn_norm_shape n = norm; /* in place: dense x only, and all of it */
    n.x_stride = 4 * 128 + 8;
    s = read_shape(&n);
    c = call_of(&s, 64, 0);
    c.ptr[GDN_NORM_P_OUT] = c.ptr[GDN_NORM_P_X];
    told(&s, &c, GDN_NORM_P_X, GDN_NORM_P_OUT);
    n.x_stride = 0;
    s = read_shape(&n);
    passes(&s, &c);
    c.ptr[GDN_NORM_P_OUT] += 2;
    told(&s, &c, GDN_NORM_P_X, GDN_NORM_P_OUT);
}

static void refused(const void *shape, const char *name) {
    gdn__shape s;
    text[0] = '\0';
    const gdn_status st = gdn__shape_read(shape, &s, &err);
    if (st != GDN_E_ARG || !strstr(text, name)) fail_msg("%s: %d %s", name, st, text);
}

/* Products that 64 bits do not hold are told at the plan. */
static void sizes_that_no_address_reaches(void **state) {
    (void)state;
    gdn_rule_shape s = rule(GDN_OP_PREFILL, GDN_STATE_POOL);
    s.max_tokens = UINT32_MAX;
    s.qk_stride = UINT32_MAX - 7;
    refused(&s, "'query'");
    s = rule(GDN_OP_DECODE, GDN_STATE_POOL);
    s.state_stride = UINT64_MAX / 2;
    s.num_slots = 3;
    refused(&s, "'h_state");
    s.num_slots = UINT64_MAX;
    s.state_stride = 0;
    refused(&s, "'h_state");
    s = rule(GDN_OP_VERIFY_WOA, GDN_STATE_POOL);
    s.stash_stride = UINT64_MAX - 1;
    refused(&s, "'stash'");
    s = rule(GDN_OP_VERIFY, GDN_STATE_POOL);
    s.hi_capacity = s.max_batch = UINT32_MAX;
    s.nv = 1u << 20;
    refused(&s, "'hi'");
    gdn_state_shape copies = copy;
    copies.src_slots = 1ull << 40;
    copies.src_stride = 1ull << 40;
    refused(&copies, "'src'");
    gdn_conv_shape c = conv1d;
    c.num_slots = 1ull << 50;
    c.slot_stride = 1ull << 40;
    refused(&c, "'state'");
    s = rule(GDN_OP_PREFILL, GDN_STATE_POOL); /* no bound at all is none that overflows */
    s.max_workspace = UINT64_MAX;
    (void)read_shape(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_the_rule),
        cmocka_unit_test(pairs_of_the_layer),
        cmocka_unit_test(neighbours),
        cmocka_unit_test(rows_between_rows),
        cmocka_unit_test(slots_of_pools),
        cmocka_unit_test(as_byte_by_byte),
        cmocka_unit_test(sizes_that_no_address_reaches),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
